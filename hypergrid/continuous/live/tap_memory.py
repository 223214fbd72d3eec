"""Recent readings of a tap in memory, which can be read as an archive is."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hypergrid.archive import Archive
from hypergrid.archive.arrays.cells import Slices
from hypergrid.continuous.sources.readings import completion_ns
from hypergrid.core.readings import Readings, Series, Station, equal_values
from hypergrid.core.times import Window
from hypergrid.core.units import Variable
from hypergrid.query import OpenArchive


class TapBatch(NamedTuple):
    """Readings of consecutive records, in order of arrival."""

    after: int
    upto: int
    """Numbers of records: after < number <= upto."""
    clock_ns: int
    """When the last of these records arrived [ns since 1970 UTC]."""
    readings: Mapping[str, tuple[Readings, NDArray[np.int64]]]
    """Readings by variable, in its unit, each with the number of its record."""


class LateLimits:
    """Instants below which readings are left to the archive, by record.

    Parameters
    ----------
    otherwise_ns
        Instant for records that have none of their own [ns].
    rows
        First and last record of each stretch that has its own, and its instant, shape (n, 3), in their order.
    """

    def __init__(self, otherwise_ns: int, rows: NDArray[np.int64] | None = None) -> None:
        self._otherwise_ns = otherwise_ns
        self.rows = np.empty((0, 3), np.int64) if rows is None else rows

    def find(self, records: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the instants of some records [ns], shape (n,)."""
        limits = np.full(len(records), self._otherwise_ns, np.int64)
        if len(self.rows):
            stretch = np.minimum(np.searchsorted(self.rows[:, 1], records), len(self.rows) - 1)
            first, last, instant = self.rows[stretch].T
            inside = (records >= first) & (records <= last)
            limits[inside] = np.maximum(limits, instant)[inside]
        return limits


@dataclass(eq=False)
class _HeldReadings:
    """Readings of one variable in order of their stamps."""

    series: list[Series]
    index: NDArray[np.int32] = field(default_factory=lambda: np.empty(0, np.int32))
    time_ns: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    value: NDArray[np.float64] = field(default_factory=lambda: np.empty(0))
    flag: NDArray[np.uint8] = field(default_factory=lambda: np.empty(0, np.uint8))
    arrival_ns: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))
    record: NDArray[np.int64] = field(default_factory=lambda: np.empty(0, np.int64))

    COLUMNS = ("index", "time_ns", "value", "flag", "arrival_ns", "record")

    def __post_init__(self) -> None:
        self.numbers = {series: number for number, series in enumerate(self.series)}

    def number(self, series: Series) -> int:
        """Return the number of a series; one that is not known gets the next."""
        if series not in self.numbers:
            self.numbers[series] = len(self.series)
            self.series.append(series)
        return self.numbers[series]

    def keep(self, rows: NDArray[np.bool_]) -> None:
        for name in self.COLUMNS:
            setattr(self, name, getattr(self, name)[rows])

    def find(self, index: NDArray[np.int32], time_ns: NDArray[np.int64], within: slice) -> NDArray[np.intp]:
        """Return the rows of series and stamps, -1 if absent, shape (n,); the part must not be empty."""
        instants, ranks = np.unique(self.time_ns[within], return_inverse=True)
        width = len(self.series)
        keys = ranks * width + self.index[within]
        order = np.argsort(keys, kind="stable")
        rank = np.minimum(np.searchsorted(instants, time_ns), len(instants) - 1)
        wanted = rank * width + index
        at = order[np.minimum(np.searchsorted(keys, wanted, sorter=order), len(keys) - 1)]
        return np.where((instants[rank] == time_ns) & (keys[at] == wanted), at + within.start, -1)

    def merge(self, parts: Sequence[NDArray[np.generic]]) -> None:
        """Add columns; the order of equal stamps is that of arrival."""
        order = np.argsort(parts[1], kind="stable")
        stamps = np.asarray(parts[1])[order]
        at = np.searchsorted(self.time_ns, stamps, side="right")
        for name, part in zip(self.COLUMNS, parts, strict=True):
            setattr(self, name, np.insert(getattr(self, name), at, part[order]))


class TapMemory:
    """Recent readings of some variables, with the parts of `Archive` that streams are read by.

    Series and stations are those of an archive; a series that it has not yet gets a number after them. Of readings of a
    series with one stamp the last is kept.

    Parameters
    ----------
    archive
        The archive, at any snapshot.
    variables
        Variables to keep readings of.
    """

    def __init__(self, archive: Archive, variables: Sequence[str]) -> None:
        self._archive = archive
        self.variables: Mapping[str, Variable] = archive.variables
        self.stations: Mapping[str, Station] = archive.stations
        self.slice_s: float = archive.slice_s
        self.slices: Slices = archive.slices
        self.as_of_ns = None
        self._kept = {name: _HeldReadings(list(archive.series(name))) for name in variables}

    def series(self, variable: str) -> tuple[Series, ...]:
        """Return the series of a variable."""
        known = self._kept.get(variable)
        return self._archive.series(variable) if known is None else tuple(known.series)

    def list_series(self, variable: str) -> Mapping[int, Series]:
        """Return the series of a variable that are in use, by number."""
        hidden = set(range(len(self._archive.series(variable)))) - self._archive.list_series(variable).keys()
        return {number: item for number, item in enumerate(self.series(variable)) if number not in hidden}

    def extent(self, variable: str) -> Window | None:
        """Return the window of the stamps that are kept; None if there are none."""
        known = self._kept.get(variable)
        if known is None or not len(known.time_ns):
            return None
        return Window(int(known.time_ns[0]), int(known.time_ns[-1]) + 1)

    def read(
        self, variable: str, *, window: Window, series: Sequence[int] | NDArray[np.intp], superseded: bool = False
    ) -> Readings:
        """Return the readings of a window of stamps, of some series; superseded ones are not kept."""
        known = self._kept[variable]
        first, last = np.searchsorted(known.time_ns, (window.start_ns, window.stop_ns)).tolist()
        part = slice(first, first if superseded else last)
        readings = Readings(
            tuple(known.series),
            known.index[part],
            known.time_ns[part],
            known.value[part],
            known.flag[part],
            known.arrival_ns[part],
        )
        if len(series) == len(known.series):
            return readings
        return readings.take_rows(np.isin(readings.index, series))

    def add(self, batch: TapBatch, start_ns: int, limits: LateLimits) -> tuple[list[Window], int]:
        """Add the readings of a batch whose instants are below neither `start_ns` nor their limits.

        What is kept does not depend on how records are cut into batches. Returns the windows of instants in which
        elements may change, and the number of readings between `start_ns` and their limits.
        """
        windows: list[Window] = []
        ignored = 0
        for name, (given, records) in batch.readings.items():
            if name not in self._kept or not len(given):
                continue
            known = self._kept[name]
            numbers = np.array([known.number(series) for series in given.series] or [0], np.int32)
            shifts = np.array([completion_ns(series) for series in given.series] or [0], np.int64)
            tau = given.time_ns + shifts[given.index]
            is_late = tau < limits.find(records)
            ignored += int((is_late & (tau >= start_ns)).sum())
            fitting = np.flatnonzero(~is_late & (tau >= start_ns))
            if not len(fitting):
                continue
            given, records, tau = given.take_rows(fitting), records[fitting], tau[fitting]
            index = numbers[given.index]
            chosen, is_only = _last_of_each(index, given)
            chosen &= ~self._supersede(known, given, index, chosen, is_only)
            if not chosen.any():
                continue
            part = given.take_rows(chosen)
            known.merge((index[chosen], part.time_ns, part.value, part.flag, part.arrival_ns, records[chosen]))
            windows += [Window(instant, instant + 1) for instant in np.unique(tau[chosen]).tolist()]
        return windows, ignored

    def _supersede(
        self,
        known: _HeldReadings,
        given: Readings,
        index: NDArray[np.int32],
        chosen: NDArray[np.bool_],
        is_only: NDArray[np.bool_],
    ) -> NDArray[np.bool_]:
        """Remove kept readings that others replace, and tell which of these only repeat one, shape (n,).

        Parameters
        ----------
        is_only
            Whether no other value has the stamp of a chosen reading, shape (n,).
        """
        repeats = np.zeros(len(given), np.bool_)
        rows = np.flatnonzero(chosen)
        if not len(rows):
            return repeats
        first = int(np.searchsorted(known.time_ns, given.time_ns[rows].min()))
        last = int(np.searchsorted(known.time_ns, given.time_ns[rows].max(), side="right"))
        if first == last:
            return repeats
        held_at = known.find(index[rows], given.time_ns[rows], slice(first, last))
        rows, held_at = rows[held_at >= 0], held_at[held_at >= 0]
        is_same = equal_values(known.value[held_at], given.value[rows]) & (known.flag[held_at] == given.flag[rows])
        is_same &= is_only[rows]
        repeats[rows] = is_same
        gone = np.zeros(len(known.time_ns), np.bool_)
        gone[held_at[~is_same]] = True
        if gone.any():
            known.keep(~gone)
        return repeats

    def drop_before(self, stamp_ns: int) -> None:
        """Forget readings with earlier stamps."""
        for known in self._kept.values():
            first = int(np.searchsorted(known.time_ns, stamp_ns))
            # Not at each step, as columns are copied.
            if first > len(known.time_ns) // 8:
                known.keep(np.arange(len(known.time_ns)) >= first)

    def first_record(self, otherwise: int) -> int:
        """Return the number of the first record with a reading that is kept."""
        firsts = [int(known.record.min()) for known in self._kept.values() if len(known.record)]
        return min(firsts, default=otherwise)

    @property
    def kept_variables(self) -> Collection[str]:
        """Variables whose readings are kept."""
        return self._kept.keys()

    def clear(self) -> None:
        """Forget all readings; series keep their numbers."""
        for known in self._kept.values():
            known.keep(np.zeros(len(known.time_ns), np.bool_))


def _last_of_each(index: NDArray[np.int32], given: Readings) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Return which readings are the last of their series and stamp, and which of these are the only ones, shape (n,).

    Readings that repeat the one before are not counted.
    """
    order = np.lexsort((given.time_ns, index))
    before, after = order[:-1], order[1:]
    begins = np.append(True, (index[after] != index[before]) | (given.time_ns[after] != given.time_ns[before]))
    is_repeat = equal_values(given.value[after], given.value[before]) & (given.flag[after] == given.flag[before])
    distinct = np.flatnonzero(begins | ~np.append(False, is_repeat))
    is_last = np.append(begins[distinct[1:]], True)
    chosen, is_only = np.zeros(len(index), np.bool_), np.zeros(len(index), np.bool_)
    chosen[order[distinct[is_last]]] = True
    is_only[order[distinct]] = is_last & begins[distinct]
    return chosen, is_only


class TapArchive(OpenArchive):
    """Readings of a tap as an archive that queries read."""

    def __init__(self, archive: OpenArchive, memory: TapMemory) -> None:
        super().__init__(archive.store)
        self._memory = memory

    @property
    def store(self) -> TapMemory:  # type: ignore[override]
        """What streams are read from."""
        return self._memory
