"""Newest reading, and first and last accepted one, of every series: cached, and updated from the changes of commits."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

from hypergrid.archive import Archive
from hypergrid.core.errors import HyperGridError
from hypergrid.core.flags import ACCEPTED_BY_DEFAULT, MISSING
from hypergrid.core.readings import Readings, Series
from hypergrid.core.times import DAY_NS, SECOND_NS, Window
from hypergrid.query import OpenArchive
from queries.snapshots.changes import list_numbers, read_changed, read_changes

_COLUMNS: Final = ("time_ns", "value", "flag", "valued_ns")
NEVER: Final = np.iinfo(np.int64).min
"""Timestamp of a series without readings."""
LOOKED_S: Final = 1.0
"""How long a check for a newer snapshot stays valid [s]."""
# Shorter than LOOKED_S, so that requests need not check themselves.
EVERY_S: Final = LOOKED_S / 2
"""Interval of the checks of the background thread [s]."""
_WIDER: Final = 8
"""Growth factor of the search window."""
_SLICES_AT_ONCE: Final = 4_000_000
"""Upper limit of slices times series read at once when searching far back for values."""


@dataclass(frozen=True, eq=False)
class NewestReadings:
    """Newest reading of each series of a variable, whatever its flag."""

    snapshot: str
    series: tuple[Series, ...]
    time_ns: NDArray[np.int64]
    """Its timestamp [ns since 1970 UTC], `NEVER` without readings, shape (series,)."""
    value: NDArray[np.float64]
    """[the variable's unit], NaN if it has no value, shape (series,)."""
    flag: NDArray[np.uint8]
    """QARTOD flag, shape (series,)."""
    valued_ns: NDArray[np.int64]
    """Timestamp of the newest reading with a value [ns since 1970 UTC], `NEVER` without any, shape (series,).

    Earlier than `time_ns` if a station keeps sending rows with missing values.
    """


class LatestValues:
    """Cached newest readings of an archive, as of a moment ago; thread-safe.

    Parameters
    ----------
    archive
        What `hypergrid.open` returns.
    clock
        Monotonic clock [s].
    """

    def __init__(self, archive: OpenArchive, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.archive = archive
        """The snapshot found by the last check."""
        self._clock = clock
        self._looking = threading.Lock()
        self._lock = threading.RLock()
        self._held: dict[str, NewestReadings] = {}
        self._last_look_s = -np.inf

    @property
    def is_recent(self) -> bool:
        """Whether the last check for a newer snapshot is still valid."""
        return self._clock() - self._last_look_s < LOOKED_S

    def look(self) -> bool:
        """Check for a newer snapshot, unless another thread does; return whether this call did."""
        # One check at a time is enough; others use the values at hand.
        if not self._looking.acquire(blocking=False):
            return False
        try:
            archive = self.archive.latest()
            with self._lock:
                known = dict(self._held)
            # Outside the lock, so that requests use the old values meanwhile: 2,000 stations take 0.4 s to read.
            updated = {name: _update_newest(item, archive.store, name) for name, item in known.items()}
            with self._lock:
                self.archive = archive
                self._held |= updated
            self._last_look_s = self._clock()
        finally:
            self._looking.release()
        return True

    @contextmanager
    def steady(self) -> Iterator[OpenArchive]:
        """Hold `archive` at one snapshot within the context; yield it."""
        with self._lock:
            yield self.archive

    @contextmanager
    def kept_recent(self, *, every_s: float = EVERY_S) -> Iterator[None]:
        """Check for newer snapshots in a background thread while the context is open."""
        ended = threading.Event()

        def look() -> None:
            while not ended.wait(every_s):
                # Read errors surface in the requests, which check themselves then.
                with suppress(HyperGridError, OSError):
                    self.look()

        thread = threading.Thread(target=look, name="latest values", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            # A read in progress is not needed any more; with 13,000 stations it may take seconds.
            thread.join(LOOKED_S)

    def prepare(self) -> None:
        self.look()
        for name in self.archive.variables:
            self.read_newest(name)

    def read_newest(self, variable: str) -> NewestReadings:
        """Return the newest readings of a variable at `archive`.

        Raises
        ------
        NotFound
            There is no such variable.
        """
        with self._lock:
            archive = self.archive.store
            newest = self._held.get(variable)
            if newest is None or newest.snapshot != archive.snapshot:
                newest = newest_of(archive, variable, newest)
                self._held[variable] = newest
            return newest


def newest_of(archive: Archive, variable: str, known: NewestReadings | None = None) -> NewestReadings:
    """Find the newest readings of a variable, incrementally from those of an earlier snapshot."""
    return _search_newest(archive, variable) if known is None else _update_newest(known, archive, variable)


def _search_newest(archive: Archive, variable: str) -> NewestReadings:
    """Search backwards in growing windows, only for series without a value so far."""
    series, extent = archive.series(variable), archive.extent(variable)
    newest, listed = _make_empty(archive, series), list_numbers(archive, variable)
    if extent is None:
        return newest
    stop, length = extent.stop_ns, DAY_NS
    slice_ns = round(archive.slice_s * SECOND_NS)
    while stop > extent.start_ns:
        open_ones = listed[newest.valued_ns[listed] == NEVER]
        if not len(open_ones):
            break
        # A station may have sent missing values for years: bound the amount read at once.
        length = min(length, max(DAY_NS, _SLICES_AT_ONCE // len(open_ones) * slice_ns))
        start = max(extent.start_ns, stop - length)
        newest = _merge_readings(newest, archive.read(variable, window=Window(start, stop), series=open_ones))
        stop, length = start, length * _WIDER
    return newest


def _update_newest(known: NewestReadings, archive: Archive, variable: str) -> NewestReadings:
    """Update the newest readings to a later snapshot, reading only what commits changed."""
    if known.snapshot == archive.snapshot:
        return known
    changed = read_changed(archive, known.snapshot, variable)
    if changed is None:
        return _search_newest(archive, variable)
    series, listed = archive.series(variable), list_numbers(archive, variable)
    if (np.delete(known.time_ns, listed[listed < len(known.time_ns)]) != NEVER).any():
        # Series were withdrawn meanwhile.
        return _search_newest(archive, variable)
    more = _make_empty(archive, series[len(known.series) :])
    columns = (np.concatenate([getattr(known, name), getattr(more, name)]) for name in _COLUMNS)
    newest = NewestReadings(archive.snapshot, series, *columns)
    for _, readings in changed:
        # A missing value replaced a newest value, whose predecessor is unknown.
        if ((readings.flag == MISSING) & (readings.time_ns == newest.valued_ns[readings.index])).any():
            return _search_newest(archive, variable)
        newest = _merge_readings(newest, readings)
    return newest


def _merge_readings(newest: NewestReadings, readings: Readings) -> NewestReadings:
    """Merge newer readings in; one with the same timestamp replaces the known one."""
    # Readings are sorted by series, then time: the last of each series is the newest.
    last = np.flatnonzero(np.append(np.diff(readings.index) != 0, True)[: len(readings)])
    of = readings.index[last]
    last = last[readings.time_ns[last] >= newest.time_ns[of]]
    of = readings.index[last]
    time_ns, value, flag = newest.time_ns.copy(), newest.value.copy(), newest.flag.copy()
    time_ns[of], value[of], flag[of] = readings.time_ns[last], readings.value[last], readings.flag[last]
    valued_ns, valued = newest.valued_ns.copy(), readings.flag != MISSING
    np.maximum.at(valued_ns, readings.index[valued], readings.time_ns[valued])
    return NewestReadings(newest.snapshot, newest.series, time_ns, value, flag, valued_ns)


def _make_empty(archive: Archive, series: tuple[Series, ...]) -> NewestReadings:
    count = len(series)
    value, flag = np.full(count, np.nan), np.zeros(count, np.uint8)
    return NewestReadings(archive.snapshot, series, np.full(count, NEVER), value, flag, np.full(count, NEVER))


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
        self._snapshot = ""
        self._held: dict[str, Extents] = {}

    def read_extents(self, archive: Archive) -> Mapping[str, Extents]:
        """Return the extents of all variables at the archive's snapshot."""
        with self._lock:
            # Under the lock: concurrent callers wait for one update instead of repeating it.
            if self._snapshot != archive.snapshot:
                self._held = {
                    name: _update_extents(self._held.get(name), archive, name, self._snapshot)
                    for name in archive.variables
                }
                self._snapshot = archive.snapshot
            return self._held


def _update_extents(known: Extents | None, archive: Archive, variable: str, since: str) -> Extents:
    """Update extents to a later snapshot, reading only what commits changed, and search lost ends."""
    count = len(archive.series(variable))
    changes = None if known is None else read_changes(archive, since, variable)
    changed = None if known is None else read_changed(archive, since, variable)
    if known is None or changes is None or changed is None:
        every = np.arange(count)
        return _search_ends(_make_endless(count), archive, variable, every, every)
    more = count - len(known.first_ns)
    first_ns = np.append(known.first_ns, np.full(more, NONE_FIRST))
    last_ns = np.append(known.last_ns, np.full(more, NONE_LAST))
    # New readings remove nothing; replaced or reflagged ones may.
    lost = [run for change in changes if change.kind != "new" for run in change.runs]
    of_first, of_last = (
        np.flatnonzero(np.any([run.holds(stamps) for run in lost], axis=0)) for stamps in (first_ns, last_ns)
    )
    first_ns[of_first], last_ns[of_last] = NONE_FIRST, NONE_LAST
    extents = Extents(first_ns, last_ns)
    for _, readings in changed:
        extents = _extend_ends(extents, readings)
    # A changed window may hold a later reading than the actual first one, so lost ends are searched.
    extents.first_ns[of_first], extents.last_ns[of_last] = NONE_FIRST, NONE_LAST
    return _search_ends(extents, archive, variable, of_first, of_last)


def _search_ends(
    known: Extents, archive: Archive, variable: str, of_first: NDArray[np.intp], of_last: NDArray[np.intp]
) -> Extents:
    """Search the first stamps of some series and the last stamps of others."""
    windows, nothing = list(archive.spans(variable, 1)), _make_endless(len(known.first_ns))

    def search(
        name: Literal["first_ns", "last_ns"], forwards: list[Window], open_: NDArray[np.intp]
    ) -> NDArray[np.int64]:
        stamps: NDArray[np.int64] = getattr(known, name).copy()
        for window in _grow_windows(forwards):
            if not len(open_):
                break
            extents = _extend_ends(nothing, archive.read(variable, window=window, series=open_))
            stamps[open_] = getattr(extents, name)[open_]
            # Continue only with the series that are still without a reading.
            open_ = open_[stamps[open_] == getattr(nothing, name)[open_]]
        return stamps

    return Extents(search("first_ns", windows, of_first), search("last_ns", windows[::-1], of_last))


def _grow_windows(windows: list[Window]) -> Iterator[Window]:
    """Yield windows from one end, merging twice as many each time."""
    done, size = 0, 1
    while done < len(windows):
        group = windows[done : done + size]
        yield Window(min(window.start_ns for window in group), max(window.stop_ns for window in group))
        done, size = done + size, min(2 * size, _MOST_CHUNKS)


def _make_endless(count: int) -> Extents:
    return Extents(np.full(count, NONE_FIRST), np.full(count, NONE_LAST))


def _extend_ends(known: Extents, readings: Readings) -> Extents:
    """Extend extents with readings that are good or not evaluated."""
    kept = readings.take_rows(np.isin(readings.flag, ACCEPTED_BY_DEFAULT))
    first_ns, last_ns = known.first_ns.copy(), known.last_ns.copy()
    np.minimum.at(first_ns, kept.index, kept.time_ns)
    np.maximum.at(last_ns, kept.index, kept.time_ns)
    return Extents(first_ns, last_ns)
