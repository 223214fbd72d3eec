"""Readings that commits changed between two snapshots: read once for all that is updated from them."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from hypergrid.archive import Archive
from hypergrid.archive.arrays.records import KINDS
from hypergrid.archive.diff import Change, diff_from_log, merge_windows
from hypergrid.core.errors import NotFound
from hypergrid.core.lru_cache import LruCache
from hypergrid.core.readings import Readings
from hypergrid.core.times import Window

Changed = list[tuple[Window, Readings]]
"""Disjoint windows of slices in which readings changed, in order, and all readings of listed series in each."""

# A slice of 2,000 stations takes 0.2 s, and three caches are updated from it after each commit.
_READ: Final[LruCache[tuple[str, int | None, str, str], Changed]] = LruCache(16 << 20)


def list_numbers(archive: Archive, variable: str) -> NDArray[np.intp]:
    """Return the indices of the series of a variable that are listed, shape (listed,)."""
    return np.array(list(archive.list_series(variable)), np.intp)


def read_changes(archive: Archive, since: str, variable: str) -> list[Change] | None:
    """List a variable's changes since a snapshot; None if the log does not record them."""
    try:
        changes = [change for change in diff_from_log(archive, since) if change.variable == variable]
    except NotFound:
        return None
    # Commits of earlier versions do not record removed readings.
    return None if any(change.kind not in KINDS for change in changes) else changes


def read_changed(archive: Archive, since: str, variable: str) -> Changed | None:
    """Read the slices of a variable that changed since a snapshot; None if the log does not record them."""
    key = archive.snapshot, archive.as_of_ns, since, variable
    changed = _READ.peek(key)
    if changed is None and (changes := read_changes(archive, since, variable)) is not None:
        windows = merge_windows(run for change in changes for run in change.runs)
        listed = list_numbers(archive, variable)
        series = None if len(listed) == len(archive.series(variable)) else listed
        changed = [(window, archive.read(variable, window=window, series=series)) for window in windows]
        size = sum(readings.nbytes for _, readings in changed)
        if size <= _READ.allowed_bytes:
            _READ.put(key, changed, size)
    return changed
