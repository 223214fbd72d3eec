"""Metadata of commits, as Icechunk keeps them, and the record of a snapshot that they make."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import icechunk

from hypergrid.archive.arrays.records import Snapshot


def read_snapshot(info: icechunk.SnapshotInfo) -> Snapshot | None:
    """Return the record of a commit; None for Icechunk's own first snapshot, before the archive had its tables."""
    metadata = _sort_content(info.metadata)
    if "time_ns" not in metadata:
        return None
    return Snapshot(info.id, int(metadata.pop("time_ns")), info.message, MappingProxyType(metadata))


def _sort_content(content: Any) -> Any:  # noqa: ANN401 - as of JSON
    """Return metadata sorted by key: Icechunk gives them in an order that differs from process to process."""
    return {key: _sort_content(content[key]) for key in sorted(content)} if isinstance(content, Mapping) else content


def commit_metadata(now_ns: int, content: dict[str, object]) -> dict[str, object]:
    """Return what a commit says of itself, with the time of the committer's clock."""
    return {"time_ns": int(now_ns), **content}
