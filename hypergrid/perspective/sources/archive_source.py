"""Base of one archive variable at one snapshot."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, TypeAlias

import numpy as np

from hypergrid.archive import Archive
from hypergrid.archive.arrays.cells import CHUNK_SERIES, CHUNK_SLICES
from hypergrid.core.errors import InvalidQuery
from hypergrid.core.lru_cache import LruCache
from hypergrid.core.readings import Position, Readings, Station
from hypergrid.core.times import SECOND_NS, Window
from hypergrid.core.tokens import token
from hypergrid.core.units import Variable
from hypergrid.layers.layer import Layer
from hypergrid.perspective.sources.series_selection import Select, select_series
from hypergrid.topology import Regular, SeriesAxis

# Reading takes half of the time of a query of one position, and others ask for positions nearby.
MAX_CACHED_READINGS: Final = 200_000
"""Largest read that is cached."""
READINGS_AHEAD: Final = 1_000_000
"""Readings that are read in one go for several windows, at most: some 29 MB."""
ReadKey: TypeAlias = tuple[int, str, tuple[tuple[str, Any], ...], Window, bytes]
_READS: Final[LruCache[ReadKey, Readings]] = LruCache(64 << 20)
"""Recent small reads of this process."""


@dataclass(frozen=True, eq=False)
class ArchiveSource:
    """Selected series of one variable."""

    archive: Archive
    variable: Variable
    select: tuple[tuple[str, Any], ...] = ()
    carries_intervals: bool = True

    def __post_init__(self) -> None:
        # Validate the selection immediately.
        _ = self.series_numbers

    @property
    def snapshot(self) -> str:
        return self.archive.snapshot

    @property
    def token(self) -> str:
        as_of = () if self.archive.as_of_ns is None else (self.archive.as_of_ns,)
        return token(self.archive.name, self.archive.snapshot, self.variable.name, self.select, *as_of)

    @property
    def statistics(self) -> tuple[str, ...]:
        return tuple(sorted({item.statistic for item in self.archive.list_series(self.variable.name).values()}))

    @cached_property
    def series_numbers(self) -> np.ndarray[Any, np.dtype[np.intp]]:
        """Indices of the selected series of the variable, shape (selected,)."""
        listed = self.archive.list_series(self.variable.name)
        refuse_withdrawn(self.archive, self.variable.name)
        chosen = select_series(self.variable.name, tuple(listed.values()), self.select)
        return np.array(list(listed), np.intp)[chosen]

    @cached_property
    def _spans_ns(self) -> tuple[int, ...]:
        """Time from interval start to stamp [ns] of each selected series."""
        chosen = (self.archive.series(self.variable.name)[i] for i in self.series_numbers)
        return tuple(round(item.interval_s * SECOND_NS) if item.stamp == "end" else 0 for item in chosen)

    @property
    def _longest_ns(self) -> int:
        return max(self._spans_ns)

    @property
    def _slice_ns(self) -> int:
        return round(self.archive.slice_s * SECOND_NS)

    @property
    def extent(self) -> Window | None:
        """Window of the slices in which readings begin; None if there are none."""
        stored = self.archive.extent(self.variable.name)
        return stored and Window(stored.start_ns - self._longest_ns, stored.stop_ns - min(self._spans_ns))

    def time_axis(self, window: Window) -> Regular:
        first = window.start_ns // self._slice_ns
        stop = -(-window.stop_ns // self._slice_ns)
        return Regular("time", first * self._slice_ns, self._slice_ns, stop - first, self._slice_ns)

    def series_axis(self, window: Window) -> SeriesAxis:
        """Return the selected series at their positions at the end of the window."""
        all_series = self.archive.series(self.variable.name)
        series = tuple(all_series[i] for i in self.series_numbers)
        stations = [self.archive.stations.get(item.station) for item in series]
        where = [_find_position(station, window.stop_ns - 1) for station in stations]
        moved = {
            s.id
            for s in stations
            if s is not None and _find_position(s, window.start_ns) != _find_position(s, window.stop_ns - 1)
        }
        columns = np.array([(p.lon, p.lat, p.elevation_m) for p in where], dtype=np.float64).reshape(-1, 3)
        return SeriesAxis(series, columns[:, 0], columns[:, 1], columns[:, 2], moved=tuple(sorted(moved)))

    def read(self, window: Window, unread: tuple[int, ...] = ()) -> Readings:
        """Return the readings whose intervals start in the window.

        `index` counts the selected series. Few readings are cached, and are read-only.
        """
        # An archive that is opened again reads again, and finds what was damaged since.
        readings = _READS.peek(self._make_key(window, unread))
        if readings is None:
            readings = self._read_stored(window, unread)
            self._keep(window, unread, readings)
        return readings

    def read_ahead(self, windows: Sequence[Window], unread: tuple[int, ...] = ()) -> None:
        """Read adjacent or overlapping windows in one go and cache each, so that `read` finds them.

        Reading a window takes as long as reading the chunks that it touches. At most half of the cache is filled.
        """
        missing = [window for window in windows if _READS.peek(self._make_key(window, unread)) is None]
        room, first = _READS.allowed_bytes // 2, 0
        while first < len(missing) and room > 0:
            whole, stop = missing[first], first + 1
            for window in missing[stop:]:
                wider = Window(min(whole.start_ns, window.start_ns), max(whole.stop_ns, window.stop_ns))
                if self.count_chunks(wider) * self.chunk_readings > READINGS_AHEAD:
                    break
                whole, stop = wider, stop + 1
            # A single one is read as it is asked for.
            if stop > first + 1:
                readings = self._read_stored(whole, unread)
                starts_ns = readings.starts_ns()
                for window in missing[first:stop]:
                    part = readings.take_rows(window.holds(starts_ns))
                    room -= part.nbytes
                    if room < 0:
                        return
                    self._keep(window, unread, part)
            first = stop

    def _make_key(self, window: Window, unread: tuple[int, ...]) -> ReadKey:
        return self.archive.serial, self.variable.name, self.select, window, np.array(unread, np.int32).tobytes()

    def _keep(self, window: Window, unread: tuple[int, ...], readings: Readings) -> None:
        if len(readings) <= MAX_CACHED_READINGS:
            readings.freeze()
            # A series takes a pointer; its record is the archive's.
            size = readings.nbytes + 8 * len(readings.series) + 4 * len(unread) + 1000
            _READS.put(self._make_key(window, unread), readings, size)

    def _read_stored(self, window: Window, unread: tuple[int, ...]) -> Readings:
        wider = Window(window.start_ns, window.stop_ns + self._longest_ns)
        # The archive is read by stamp, which may lie up to one interval after the start.
        read = np.delete(self.series_numbers, np.asarray(unread, dtype=np.intp))
        return self._renumber_own(self.archive.read(self.variable.name, window=wider, series=read), window)

    @property
    def readings(self) -> int:
        """Number of readings of the variable, selected or not."""
        return self.archive.readings(self.variable.name)

    @property
    def chunk_readings(self) -> int:
        """Maximum number of readings in an archive chunk."""
        return CHUNK_SLICES * CHUNK_SERIES

    def count_chunks(self, window: Window) -> int:
        """Return an upper bound of the chunks of the selected series in a window."""
        return self._count_time_chunks(window) * len(np.unique(self.series_numbers // CHUNK_SERIES))

    def _count_time_chunks(self, window: Window) -> int:
        # One more, because a window may start within a chunk.
        return -(-(window.stop_ns - window.start_ns) // (self._slice_ns * CHUNK_SLICES)) + 1

    def columns_at_once(self, chunks: int, window: Window) -> int:
        """Return the number of series to read together to fill `chunks` chunks.

        If the window alone has as many chunks along time, this is one column of chunks.
        """
        return CHUNK_SERIES * max(1, chunks // self._count_time_chunks(window))

    def split_series(self, columns: int) -> Iterator[np.ndarray[Any, np.dtype[np.intp]]]:
        """Yield indices of selected series, grouped by columns of `columns` archive series."""
        places = self.series_numbers // columns
        for chunk_index in np.unique(places):
            yield np.flatnonzero(places == chunk_index)

    def spans(self, window: Window, chunks: int) -> Iterator[Window]:
        """Yield the parts of a stamp window with readings, each up to `chunks` chunks long."""
        for span in self.archive.spans(self.variable.name, chunks):
            start_ns, stop_ns = max(span.start_ns, window.start_ns), min(span.stop_ns, window.stop_ns)
            if start_ns < stop_ns:
                yield Window(start_ns, stop_ns)

    def read_pieces(
        self, window: Window, series: np.ndarray[Any, np.dtype[np.intp]], chunks: int
    ) -> Iterator[tuple[Readings, int]]:
        """Yield the readings of some series in pieces of at most `chunks` chunks along time.

        Yields
        ------
        Readings, ordered by series and time, and the instant [ns] before which no later piece has a reading's interval
        start.
        """
        wider = Window(window.start_ns, window.stop_ns + self._longest_ns)
        for span in self.spans(wider, chunks):
            readings = self.archive.read(self.variable.name, window=span, series=self.series_numbers[series])
            yield self._renumber_own(readings, window), span.stop_ns - self._longest_ns

    def _renumber_own(self, readings: Readings, window: Window) -> Readings:
        """Return stored readings that begin in a window, indexed by selected series."""
        renumber = np.full(max(len(readings.series), 1), -1, dtype=np.int32)
        renumber[self.series_numbers] = np.arange(len(self.series_numbers), dtype=np.int32)
        own = Readings(
            tuple(readings.series[i] for i in self.series_numbers), renumber[readings.index], readings.time_ns,
            readings.value, readings.flag, readings.arrival_ns,
        )  # fmt: skip
        if not self._longest_ns:
            return own
        return own.take_rows(window.holds(own.starts_ns()))

    def layer(self, name: str) -> Layer:
        return self.archive.layers[name]


def find_named_stations(archive: Archive, select: Select) -> Select:
    """Return a selection with the names of stations as their ids.

    Raises
    ------
    InvalidQuery
        Several stations have a name; the message lists their ids.
    """
    chosen = dict(select)
    if "station" not in chosen:
        return select
    given = chosen["station"]
    listed = given if isinstance(given, tuple) else (given,)
    ids = tuple(sorted({find_station_id(archive.stations, station) for station in listed}, key=str))
    return tuple(
        (key, (ids if isinstance(given, tuple) else ids[0]) if key == "station" else value) for key, value in select
    )


def find_station_id(stations: Mapping[str, Station], station: object) -> object:
    """Return the id of a station that is given by id or by name; what is neither stays as it is.

    Raises
    ------
    InvalidQuery
        Several stations have the name; the message lists their ids.
    """
    if station in stations:
        return station
    ids = [each.id for each in stations.values() if each.name == station]
    if len(ids) > 1:
        raise InvalidQuery(
            f"{len(ids)} stations have the name {station!r}; select one by its id: {', '.join(ids[:20])}"
        )
    return ids[0] if ids else station


def is_withdrawn(archive: Archive, variable: str) -> bool:
    """Tell whether a remapping withdrew all series of a variable."""
    hidden = archive.withdrawn.hidden_series(variable, archive.as_of_ns)
    # Series are read only where some are hidden: there may be thousands of each variable.
    return bool(hidden) and len(hidden) == len(archive.series(variable))


def refuse_withdrawn(archive: Archive, variable: str) -> None:
    """Raise `InvalidQuery` if a remapping withdrew all series of a variable."""
    if is_withdrawn(archive, variable):
        raise InvalidQuery(
            f"variable {variable!r} has no series any more: a remapping withdrew all {len(archive.series(variable))}; "
            "ask for another variable, or as of an instant before it"
        )


def _find_position(station: Station | None, time_ns: int) -> Position:
    if station is None:
        return Position(None, np.nan, np.nan, np.nan)
    # Before its first known position a station is placed there.
    past_positions = [p for p in station.positions if p.from_ns is None or p.from_ns <= time_ns]
    return past_positions[-1] if past_positions else station.positions[0]
