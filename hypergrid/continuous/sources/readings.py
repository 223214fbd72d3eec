"""Elements of the streams of an archive, by windows of their instants.

The instant of a reading is when it was complete: its stamp, plus the interval where a stamp marks its start (R10).
Elements of one instant are ordered by (arrival, series, number).
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from hypergrid.continuous.archive_catalogue import OBS, RAIN, READINGS, SERIES_OF_VARIABLE, list_rain_variables
from hypergrid.continuous.expressions import Attributes
from hypergrid.continuous.sources.batch import CodedTexts, Column, Integers
from hypergrid.continuous.sources.demand import Texts
from hypergrid.core.flags import ACCEPTED_BY_DEFAULT, MISSING
from hypergrid.core.readings import Readings, Series
from hypergrid.core.times import SECOND_NS, Window
from hypergrid.core.units import convert, is_known_counter
from hypergrid.query import OpenArchive

HOUR_NS: Final = 3600 * SECOND_NS
GAP_INTERVALS: Final = 3
"""Longest time between two readings of a counter over which its growth is known, in intervals; at least an hour."""

RESET_SHARE: Final = 0.5
"""A fall of a counter to less than this share of its content is a reset, or a rollover if it was nearly full."""

NEARLY_FULL: Final = 0.9
"""Share of a rollover from which a counter that falls has rolled over."""

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class Rows:
    """Rows of a stream in any order."""

    tau: Integers
    """Instants [ns]."""
    arrival: Integers
    """When all that a row is made of had arrived [ns]."""
    series: Integers
    """Order of rows of one instant and arrival."""
    columns: Mapping[str, Column]
    """Columns by attribute."""

    def __len__(self) -> int:
        return len(self.tau)

    def take(self, rows: Any) -> "Rows":  # noqa: ANN401 - any index of numpy
        columns = {
            name: column.take(rows) if isinstance(column, CodedTexts) else column[rows]
            for name, column in self.columns.items()
        }
        return Rows(self.tau[rows], self.arrival[rows], self.series[rows], columns)


class RowReader(Protocol):
    """Rows of one stream."""

    @property
    def extent(self) -> Window | None:
        """Window of the instants of all rows; None if there is none."""

    @property
    def rate(self) -> float:
        """Mean number of cells that are read for a second of the stream."""

    def read(self, window: Window, *, every_version: bool) -> Rows:
        """Return the rows whose instants lie in a window, in any order.

        Parameters
        ----------
        every_version
            Whether to return superseded readings, too.
        """


@dataclass(frozen=True, eq=False)
class VariableReader:
    """Readings of one variable, of some stations."""

    archive: OpenArchive
    variable: str
    stations: Texts | None = None
    """Stations that are read; None: all."""

    @cached_property
    def series(self) -> Mapping[int, Series]:
        """Series that are read, by number in the variable."""
        chosen = self.archive.store.list_series(self.variable)
        return {
            number: item for number, item in chosen.items() if self.stations is None or item.station in self.stations
        }

    @cached_property
    def first_number(self) -> int:
        """Number of the variable's first series among those of all variables."""
        return list(self.archive.store.variables).index(self.variable) * SERIES_OF_VARIABLE

    @cached_property
    def shifts_ns(self) -> Mapping[int, int]:
        """Time from the stamp of a reading to its instant, by series [ns]."""
        return {number: completion_ns(item) for number, item in self.series.items()}

    @cached_property
    def extent(self) -> Window | None:
        stamps = self.archive.store.extent(self.variable)
        if stamps is None or not self.series:
            return None
        shifts = self.shifts_ns.values()
        return Window(stamps.start_ns + min(shifts), stamps.stop_ns + max(shifts))

    @cached_property
    def rate(self) -> float:
        return len(self.series) / self.archive.store.slice_s

    def read_readings(self, window: Window, *, every_version: bool = False) -> tuple[Readings, Integers]:
        """Return the readings whose instants lie in a window, and these instants [ns]."""
        parts: list[tuple[Readings, int]] = []
        for shift in sorted(set(self.shifts_ns.values())):
            numbers = np.array([number for number, own in self.shifts_ns.items() if own == shift], np.intp)
            stamps = Window(window.start_ns - shift, window.stop_ns - shift)
            versions = (False, True) if every_version else (False,)
            for superseded in versions:
                part = self.archive.store.read(self.variable, window=stamps, series=numbers, superseded=superseded)
                parts.append((part, shift))
        kept = [(part, shift) for part, shift in parts if len(part)]
        if not kept:
            return Readings.empty(), np.empty(0, np.int64)
        readings = _concatenate([part for part, _ in kept])
        return readings, np.concatenate([part.time_ns + shift for part, shift in kept])

    def read(self, window: Window, *, every_version: bool) -> Rows:
        readings, tau = self.read_readings(window, every_version=every_version)
        return self.make_rows(readings, tau)

    def make_rows(self, readings: Readings, tau: Integers) -> Rows:
        """Return readings as rows."""
        index = readings.index
        series = self.first_number + index.astype(np.int64)
        every = self.archive.store.series(self.variable)
        heights = np.array([np.nan if item.height_m is None else item.height_m for item in every] or [0.0])
        columns: dict[str, Column] = {
            "station": CodedTexts(self._words, self._codes[index]),
            "series": series,
            "height_m": heights[index],
            "value": np.where(readings.flag == MISSING, np.nan, readings.value),
            "flag": readings.flag.astype(np.int64),
            "slice": slice_numbers(readings.time_ns, self.archive.store.slice_s),
            "time": readings.time_ns,
            "arrival": readings.arrival_ns,
        }
        return Rows(tau, readings.arrival_ns, series, columns)

    @cached_property
    def _words(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(item.station for item in self.archive.store.series(self.variable)))

    @cached_property
    def _codes(self) -> Integers:
        numbers = {station: code for code, station in enumerate(self._words)}
        every = self.archive.store.series(self.variable)
        return np.array([numbers[item.station] for item in every] or [0], np.int64)


def completion_ns(series: Series) -> int:
    """Return the time from a stamp of a series to the instant at which its reading is complete [ns]."""
    return round(series.interval_s * SECOND_NS) if series.stamp == "start" else 0


def slice_numbers(time_ns: Integers, slice_s: float) -> Integers:
    """Return the slices of stamps: floor(time / slice_s)."""
    return time_ns // round(slice_s * SECOND_NS)


def _concatenate(parts: Sequence[Readings]) -> Readings:
    first = parts[0]
    return Readings(
        first.series,
        *(
            np.concatenate([getattr(part, name) for part in parts])
            for name in ("index", "time_ns", "value", "flag", "arrival_ns")
        ),
    )


@dataclass(frozen=True, eq=False)
class LongReader:
    """Readings of several variables, one after another."""

    parts: tuple[VariableReader, ...]

    @property
    def extent(self) -> Window | None:
        return _join_extents(self.parts)

    @property
    def rate(self) -> float:
        return sum(part.rate for part in self.parts)

    def read(self, window: Window, *, every_version: bool) -> Rows:
        words = tuple(part.variable for part in self.parts)
        rows: list[Rows] = []
        for code, part in enumerate(self.parts):
            own = part.read(window, every_version=every_version)
            variable = CodedTexts(words, np.full(len(own), code, np.int64))
            rows.append(Rows(own.tau, own.arrival, own.series, {**own.columns, "variable": variable}))
        return concatenate_rows(rows)


@dataclass(frozen=True, eq=False)
class PacketReader:
    """Readings of one station and stamp as one row, with a column for each variable.

    Of a variable that a station measures more than once, its first series is read. Values that do not pass the quality
    tests are NULL. A row is complete when all that its station measures is.
    """

    parts: tuple[VariableReader, ...]

    @cached_property
    def _first_series(self) -> Mapping[str, Mapping[str, int]]:
        """Number of the first series of each station, by variable."""
        first: dict[str, dict[str, int]] = {}
        for part in self.parts:
            own = first.setdefault(part.variable, {})
            for number, item in part.series.items():
                own.setdefault(item.station, number)
        return first

    @cached_property
    def _words(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(station for own in self._first_series.values() for station in own))

    @cached_property
    def _shifts_ns(self) -> Integers:
        """Time from the stamp of a row to its instant, by station [ns]."""
        shifts = dict.fromkeys(self._words, 0)
        for part in self.parts:
            for station, number in self._first_series[part.variable].items():
                shifts[station] = max(shifts[station], part.shifts_ns[number])
        return np.array(list(shifts.values()) or [0], np.int64)

    @property
    def extent(self) -> Window | None:
        known = _join_extents(self.parts)
        return None if known is None else Window(known.start_ns, known.stop_ns + int(self._shifts_ns.max()))

    @property
    def rate(self) -> float:
        return sum(part.rate for part in self.parts)

    def read(self, window: Window, *, every_version: bool) -> Rows:
        """Return the packets whose instants lie in a window, made of the newest versions of their readings."""
        del every_version  # A row is made of the newest versions: those before them arrived at other times.
        longest = int(self._shifts_ns.max())
        wide = Window(window.start_ns - longest, window.stop_ns + longest)
        numbers = {station: code for code, station in enumerate(self._words)}
        read: list[tuple[str, Readings, Integers]] = []
        for part in self.parts:
            every = part.archive.store.series(part.variable)
            code_of = np.full(max(len(every), 1), -1, np.int64)
            for station, number in self._first_series[part.variable].items():
                code_of[number] = numbers[station]
            readings, _ = part.read_readings(wide)
            codes = code_of[readings.index]
            if (codes < 0).any():
                readings, codes = readings.take_rows(codes >= 0), codes[codes >= 0]
            read.append((part.variable, readings, codes))
        times = np.concatenate([readings.time_ns for _, readings, _ in read] or [np.empty(0, np.int64)])
        stations = np.concatenate([codes for _, _, codes in read] or [np.empty(0, np.int64)])
        instants, at = np.unique(times, return_inverse=True)
        width = max(len(self._words), 1)
        packets, rows = np.unique(at * width + stations, return_inverse=True)
        codes_of, time = packets % width, instants[packets // width]
        arrival = np.full(len(packets), np.iinfo(np.int64).min)
        slice_s = self.parts[0].archive.store.slice_s
        columns: dict[str, Column] = {
            "station": CodedTexts(self._words, codes_of),
            "slice": slice_numbers(time, slice_s),
            "time": time,
        }
        done = 0
        for variable, readings, codes in read:
            own = rows[done : done + len(codes)]
            done += len(codes)
            np.maximum.at(arrival, own, readings.arrival_ns)
            passes = np.isin(readings.flag, ACCEPTED_BY_DEFAULT)
            column = np.full(len(packets), np.nan)
            column[own[passes]] = readings.value[passes]
            columns[variable] = column
        columns["arrival"] = arrival
        tau = time + self._shifts_ns[codes_of]
        return Rows(tau, arrival, codes_of, columns).take(window.holds(tau))


@dataclass(frozen=True, eq=False)
class RainReader:
    """Rain since the last reading of a counter, or amounts that the archive holds as such, in mm.

    What a reading tells when it is there, without those to come: the growth since the last reading that passed the
    quality tests, at most an hour or three intervals before; after a fall to less than half, what the counter shows
    since, and from near the declared rollover what was left to it. Other falls are noise: no rain.
    """

    parts: tuple[VariableReader, ...]

    @property
    def extent(self) -> Window | None:
        return _join_extents(self.parts)

    @property
    def rate(self) -> float:
        return sum(part.rate for part in self.parts)

    def read(self, window: Window, *, every_version: bool) -> Rows:
        """Return the rain of a window, between the newest versions of readings."""
        del every_version  # Growth is that between the newest versions.
        rows: list[Rows] = []
        for part in self.parts:
            variable = part.archive.variables[part.variable]
            gaps = [gap_ns(item) for item in part.series.values()]
            wide = Window(window.start_ns - max(gaps, default=0), window.stop_ns)
            readings, tau = part.read_readings(wide if is_known_counter(variable) else window)
            passes = np.isin(readings.flag, ACCEPTED_BY_DEFAULT)
            own = part.make_rows(readings, tau)
            arrival = own.arrival
            if is_known_counter(variable):
                mm, arrival = self._grow(part, readings, passes, variable.rollover)
            else:
                mm = np.where(passes, readings.value, np.nan)
            columns = {**own.columns, "mm": convert_to_mm(mm, variable.unit), "arrival": arrival}
            del columns["value"]
            rows.append(Rows(tau, arrival, own.series, columns).take(window.holds(tau)))
        return concatenate_rows(rows)

    def _grow(
        self, part: VariableReader, readings: Readings, passes: NDArray[np.bool_], rollover: float | None
    ) -> tuple[Floats, Integers]:
        """Return the growth at each reading, and when it was known [ns]."""
        growth, arrival = np.full(len(readings), np.nan), readings.arrival_ns.copy()
        kept = np.flatnonzero(passes)
        kept = kept[np.lexsort((readings.time_ns[kept], readings.index[kept]))]
        if len(kept) < 2:  # noqa: PLR2004 - two readings make a difference
            return growth, arrival
        gaps = np.zeros(int(readings.index.max()) + 1, np.int64)
        for number, item in part.series.items():
            if number < len(gaps):
                gaps[number] = gap_ns(item)
        last, rows = kept[:-1], kept[1:]
        same = readings.index[last] == readings.index[rows]
        same &= readings.time_ns[rows] - readings.time_ns[last] <= gaps[readings.index[rows]]
        before, after = readings.value[last], readings.value[rows]
        # What a counter shows after a reset or a rollover has come since; small falls are noise.
        fallen = np.where(after < RESET_SHARE * before, after, 0.0)
        if rollover is not None:
            is_wrapped = (after < RESET_SHARE * before) & (before >= NEARLY_FULL * rollover)
            fallen = np.where(is_wrapped, fallen + np.maximum(rollover - before, 0.0), fallen)
        growth[rows[same]] = np.where(after >= before, after - before, fallen)[same]
        arrival[rows[same]] = np.maximum(arrival[rows], arrival[last])[same]
        return growth, arrival


def gap_ns(series: Series) -> int:
    """Return the longest time between two readings of a counter over which its growth is known [ns]."""
    return max(HOUR_NS, GAP_INTERVALS * round(series.interval_s * SECOND_NS))


def convert_to_mm(values: Floats, unit: str) -> Floats:
    """Return amounts of rain in mm."""
    return values if unit in ("mm", "kg m-2") else convert(values, unit, "mm")


def concatenate_rows(parts: Sequence[Rows]) -> Rows:
    """Return rows of several parts with the same columns."""
    if len(parts) == 1:
        return parts[0]
    columns: dict[str, Column] = {}
    for name in parts[0].columns if parts else ():
        columns[name] = _concatenate_columns([part.columns[name] for part in parts])
    tau, arrival, series = (
        np.concatenate([getattr(part, name) for part in parts] or [np.empty(0, np.int64)])
        for name in ("tau", "arrival", "series")
    )
    return Rows(tau, arrival, series, columns)


def _concatenate_columns(parts: Sequence[Column]) -> Column:
    texts = [part for part in parts if isinstance(part, CodedTexts)]
    if not texts:
        return np.concatenate([part for part in parts if not isinstance(part, CodedTexts)])
    words = tuple(dict.fromkeys(word for part in texts for word in part.words))
    numbers = {word: code for code, word in enumerate(words)}
    codes = [
        part.codes if part.words == words else np.array([*(numbers[word] for word in part.words), -1])[part.codes]
        for part in texts
    ]
    return CodedTexts(words, np.concatenate(codes))


def _join_extents(parts: Iterable[VariableReader]) -> Window | None:
    extents = [part.extent for part in parts]
    known = [extent for extent in extents if extent is not None]
    if not known:
        return None
    return Window(min(extent.start_ns for extent in known), max(extent.stop_ns for extent in known))


def make_reader(archive: OpenArchive, name: str, stations: Texts | None, variables: Texts | None) -> RowReader:
    """Return the reader of a stream.

    Parameters
    ----------
    stations, variables
        Those of which rows are needed; None: all. Packets have all variables.
    """
    if name in archive.variables:
        return VariableReader(archive, name, stations)
    match name:
        case _ if name == RAIN:
            return RainReader(tuple(VariableReader(archive, each, stations) for each in list_rain_variables(archive)))
        case _ if name == OBS:
            return PacketReader(tuple(VariableReader(archive, each, stations) for each in archive.variables))
        case _ if name == READINGS:
            chosen = [each for each in archive.variables if variables is None or each in variables]
            return LongReader(tuple(VariableReader(archive, each, stations) for each in chosen))
    raise KeyError(name)


def read_columns(rows: Rows, attributes: Attributes, read: frozenset[int]) -> tuple[Column | None, ...]:
    """Return the columns of rows that are read, in the order of the attributes."""
    return tuple(
        rows.columns[attribute.name] if position in read else None for position, attribute in enumerate(attributes)
    )
