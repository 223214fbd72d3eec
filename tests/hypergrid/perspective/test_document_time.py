"""The time of a query document is read and replaced where it is, and the rest of the document stays."""

from typing import Any

import pytest

from hypergrid.core.times import Window
from hypergrid.perspective.spec.document_time import clip_in_time, is_clipped_in_time

DAY = Window.parse("2024-01-01", "2024-01-02")
TIME = ["2024-01-01T00:00Z", "2024-01-02T00:00Z"]


@pytest.mark.parametrize(
    ("clip", "clipped"),
    [
        ({}, {"time": TIME}),
        # A null clip means the same as none.
        ({"clip": None}, {"time": TIME}),
        ({"clip": {"lon": ["7:10", "7:11"]}}, {"lon": ["7:10", "7:11"], "time": TIME}),
        ({"clip": {"time": ["2007", "2008"]}}, {"time": TIME}),
    ],
)
def test_a_window_replaces_the_time_of_a_document(clip: dict[str, Any], clipped: dict[str, Any]) -> None:
    document = {"variable": "rain", "steps": [], **clip}
    assert clip_in_time(document, DAY) == {"variable": "rain", "steps": [], "clip": clipped}
    assert is_clipped_in_time(document) == ("time" in (clip.get("clip") or {}))
    assert is_clipped_in_time(clip_in_time(document, DAY))
    assert document == {"variable": "rain", "steps": [], **clip}
