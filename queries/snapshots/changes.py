"""Readings that commits changed between two snapshots: read once for all that is updated from them."""

from collections.abc import Iterable, Iterator
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

Key = tuple[str, int | None, str, str]
# A slice of 2,000 stations takes 0.2 s, and three caches are updated from it after each commit.
_READ: Final[LruCache[Key, Changed]] = LruCache(16 << 20)


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


def read_changed(
    archive: Archive, since: str, variable: str, *, within: Window | None = None
) -> Iterable[tuple[Window, Readings]] | None:
    """Read the slices of a variable that changed since a snapshot, window by window.

    Parameters
    ----------
    within
        Window outside which changes need not be read; those known already are returned all the same.

    Returns
    -------
    Disjoint windows of slices, in order, with all readings of listed series in each; None if the log does not record
    the changes.
    """
    key = archive.snapshot, archive.as_of_ns, since, variable
    if (changed := _READ.peek(key)) is not None:
        return changed
    changes = read_changes(archive, since, variable)
    if changes is None:
        return None
    windows = merge_windows(run for change in changes for run in change.runs)
    wanted = (
        windows if within is None else [part for window in windows if (part := window.intersect(within)) is not None]
    )
    return _iterate_readings(archive, variable, wanted, key if tuple(wanted) == windows else None)


def _iterate_readings(
    archive: Archive, variable: str, windows: Iterable[Window], key: Key | None
) -> Iterator[tuple[Window, Readings]]:
    """Read windows one by one, as a backfill of years fits into no memory; cache few readings under the key."""
    listed = list_numbers(archive, variable)
    series = None if len(listed) == len(archive.series(variable)) else listed
    read: Changed = []
    free = 0 if key is None else _READ.allowed_bytes
    for window in windows:
        readings = archive.read(variable, window=window, series=series)
        free -= readings.nbytes
        if free >= 0:
            read.append((window, readings))
        else:
            read.clear()
        yield window, readings
    if key is not None and free >= 0:
        _READ.put(key, read, _READ.allowed_bytes - free)
