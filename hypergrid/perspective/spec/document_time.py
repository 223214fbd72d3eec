"""Times of query documents: the clip in time, before a document is parsed."""

from collections.abc import Mapping
from typing import Any

from hypergrid.core.times import Window, format_instant


def is_clipped_in_time(document: Mapping[str, Any]) -> bool:
    """Return whether a query document has a clip in time, be it valid or not."""
    clip = document.get("clip")
    return isinstance(clip, Mapping) and "time" in clip


def clip_in_time(document: Mapping[str, Any], window: Window) -> dict[str, Any]:
    """Return a query document clipped to a window; its clip in space stays.

    Examples
    --------
    >>> from hypergrid.core.times import Window
    >>> clip_in_time({"variable": "rain"}, Window.parse("2024-01-01", "2024-01-02"))["clip"]
    {'time': ['2024-01-01T00:00Z', '2024-01-02T00:00Z']}
    """
    time = [format_instant(window.start_ns), format_instant(window.stop_ns)]
    return {**document, "clip": {**(document.get("clip") or {}), "time": time}}
