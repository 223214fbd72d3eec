"""First and last accepted reading of each series, updated from the changes of commits."""

import threading
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hypergrid.archive import Archive
from hypergrid.archive.arrays.change_set import KINDS
from hypergrid.archive.diff import Change, diff_from_log
from hypergrid.core.errors import NotFound
from hypergrid.core.flags import ACCEPTED_BY_DEFAULT
from hypergrid.core.readings import Readings
from hypergrid.core.times import Window

NONE_FIRST: Final = np.iinfo(np.int64).max
"""First stamp of a series without accepted readings."""
NONE_LAST: Final = np.iinfo(np.int64).min
"""Last stamp of a series without accepted readings."""
# Most series are found in the first chunk.
_MOST_CHUNKS: Final = 8
"""Upper limit of the chunks of slices read together in a search, which starts with one and doubles."""


@dataclass(frozen=True, eq=False)
class Extents:
    """First and last stamps of each series of a variable, at one snapshot."""

    first_ns: NDArray[np.int64]
    """[ns since 1970 UTC], `NONE_FIRST` without readings, shape (series,)."""
    last_ns: NDArray[np.int64]
    """[ns since 1970 UTC], `NONE_LAST` without readings, shape (series,)."""


class SeriesExtents:
    """Cached extents of the last requested snapshot, updated incrementally; thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._snapshot: str | None = None
        self._held: dict[str, Extents] = {}

    def read_extents(self, archive: Archive) -> Mapping[str, Extents]:
        """Return the extents of all variables at the archive's snapshot."""
        with self._lock:
            # Under the lock: concurrent callers wait for one update instead of repeating it.
            if self._snapshot != archive.snapshot:
                changes = _read_changes(archive, self._snapshot)
                self._held = {
                    name: _search_extents(archive, name)
                    if changes is None or name not in self._held
                    else _update_extents(
                        self._held[name], archive, name, [change for change in changes if change.variable == name]
                    )
                    for name in archive.variables
                }
                self._snapshot = archive.snapshot
            return self._held


def _read_changes(archive: Archive, since: str | None) -> tuple[Change, ...] | None:
    """List the changes since a snapshot; None if the log does not record them."""
    try:
        changes = None if since is None else diff_from_log(archive, since)
    except NotFound:
        return None
    return None if changes is None or any(change.kind not in KINDS for change in changes) else changes


def _search_extents(archive: Archive, variable: str) -> Extents:
    count = len(archive.series(variable))
    nothing = Extents(np.full(count, NONE_FIRST), np.full(count, NONE_LAST))
    return _search_ends(nothing, archive, variable, np.arange(count), np.arange(count))


def _update_extents(known: Extents, archive: Archive, variable: str, changes: list[Change]) -> Extents:
    """Update extents to a later snapshot, reading only what commits changed, and search lost ends."""
    more = len(archive.series(variable)) - len(known.first_ns)
    first_ns = np.append(known.first_ns, np.full(more, NONE_FIRST))
    last_ns = np.append(known.last_ns, np.full(more, NONE_LAST))
    # New readings remove nothing; replaced or reflagged ones may.
    lost = [run for change in changes if change.kind != "new" for run in change.runs]
    of_first, of_last = (np.flatnonzero(_mask_within(stamps, lost)) for stamps in (first_ns, last_ns))
    first_ns[of_first], last_ns[of_last] = NONE_FIRST, NONE_LAST
    extents = Extents(first_ns, last_ns)
    for window in {run for change in changes for run in change.runs}:
        extents = _merge_readings(extents, archive.read(variable, window=window))
    # A changed window may hold a later reading than the actual first one, so lost ends are searched.
    extents.first_ns[of_first], extents.last_ns[of_last] = NONE_FIRST, NONE_LAST
    return _search_ends(extents, archive, variable, of_first, of_last)


def _mask_within(stamps_ns: NDArray[np.int64], windows: Iterable[Window]) -> NDArray[np.bool_]:
    mask = np.zeros(len(stamps_ns), np.bool_)
    for window in windows:
        mask |= window.holds(stamps_ns)
    return mask


def _search_ends(
    known: Extents, archive: Archive, variable: str, of_first: NDArray[np.intp], of_last: NDArray[np.intp]
) -> Extents:
    """Search the first stamps of some series and the last stamps of others."""
    windows = list(archive.spans(variable, 1))
    first_ns, last_ns = known.first_ns.copy(), known.last_ns.copy()
    for window in _grow_windows(windows):
        if not len(of_first):
            break
        extents = _merge_readings(_make_empty(known), archive.read(variable, window=window, series=of_first))
        first_ns[of_first] = extents.first_ns[of_first]
        # Continue only with the series that are still without a reading.
        of_first = of_first[first_ns[of_first] == NONE_FIRST]
    for window in _grow_windows(windows[::-1]):
        if not len(of_last):
            break
        extents = _merge_readings(_make_empty(known), archive.read(variable, window=window, series=of_last))
        last_ns[of_last] = extents.last_ns[of_last]
        of_last = of_last[last_ns[of_last] == NONE_LAST]
    return Extents(first_ns, last_ns)


def _grow_windows(windows: list[Window]) -> Iterator[Window]:
    """Yield windows from one end, merging twice as many each time."""
    done, size = 0, 1
    while done < len(windows):
        group = windows[done : done + size]
        yield Window(min(window.start_ns for window in group), max(window.stop_ns for window in group))
        done, size = done + size, min(2 * size, _MOST_CHUNKS)


def _make_empty(like: Extents) -> Extents:
    return Extents(np.full_like(like.first_ns, NONE_FIRST), np.full_like(like.last_ns, NONE_LAST))


def _merge_readings(known: Extents, readings: Readings) -> Extents:
    """Extend extents with readings that are good or not evaluated."""
    kept = readings.take_rows(np.isin(readings.flag, ACCEPTED_BY_DEFAULT))
    first_ns, last_ns = known.first_ns.copy(), known.last_ns.copy()
    np.minimum.at(first_ns, kept.index, kept.time_ns)
    np.maximum.at(last_ns, kept.index, kept.time_ns)
    return Extents(first_ns, last_ns)
