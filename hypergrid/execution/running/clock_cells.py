"""Time cells that depend on clocks which are right only within a bound (thesis, section 6.2).

The true time of a reading lies within the bound of its stamp. If only some of these times lie in a cell, its value
depends on the clock, and so do the cells that are made of it. A reading that lies in a cell by more than its bound is
in that cell whatever its clock.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hypergrid.core.clock_errors import find_reading_bounds_ns
from hypergrid.core.lru_cache import LruCache
from hypergrid.core.readings import Readings
from hypergrid.core.times import Window, format_duration, format_instant
from hypergrid.execution.operators.elementwise import convert_values
from hypergrid.execution.operators.intervals import assign_ns
from hypergrid.execution.operators.pieces import CHUNKS_AT_ONCE
from hypergrid.execution.planning.dependencies import find_block_bounds, mask_blocks, propagate_to_cells
from hypergrid.perspective import Base, Convert, Perspective
from hypergrid.perspective.build.restrict import are_instants
from hypergrid.perspective.sources.archive_source import ArchiveSource
from hypergrid.topology import Instants, Periodic, TimeAxis

NAMED: Final = 8
"""Stations named in a note."""
MAX_RUNS: Final = 500
"""Maximum number of runs of cells that are listed."""

Mask = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class BlockRanges:
    """Time blocks that may hold a reading, for each of some readings.

    They are those from `first` to below `stop`. Of them, those from `inner_first` to below `inner_stop` hold it
    whatever its clock; if there are none, both are `stop`. Shape (readings,) each.
    """

    first: NDArray[np.intp]
    inner_first: NDArray[np.intp]
    inner_stop: NDArray[np.intp]
    stop: NDArray[np.intp]

    @property
    def is_uncertain(self) -> Mask:
        """Whether it depends on the clock which blocks hold the reading, shape (readings,)."""
        return np.asarray((self.first < self.inner_first) | (self.inner_stop < self.stop))

    def mask_cells(self, time: TimeAxis) -> Mask:
        """Mask the cells that may hold one of the readings, and may not, shape (time cells,)."""
        return mask_blocks(time, np.append(self.first, self.inner_stop), np.append(self.inner_first, self.stop))

    def mask_readings(self, time: TimeAxis, wanted: Mask, columns: NDArray[np.int32]) -> Mask:
        """Mask the readings that a wanted cell, of shape (time cells, columns), may hold, and may not."""
        if isinstance(time, Periodic):
            wanted = wanted[time.owners]
        before = np.concatenate([np.zeros((1, wanted.shape[1]), dtype=np.int64), np.cumsum(wanted, axis=0)])
        outer = before[self.stop, columns] - before[self.first, columns]
        return np.asarray(outer > before[self.inner_stop, columns] - before[self.inner_first, columns])


def find_block_ranges(
    readings: Readings, bound_ns: NDArray[np.int64], time: TimeAxis, reach_ns: int = 0
) -> BlockRanges:
    """Find the blocks of time cells, widened by `reach_ns`, that may hold readings.

    Values between instants depend on the exact times of the readings around: no instant is sure of a reading.
    """
    starts, ends = find_block_bounds(time)
    starts, ends = starts - reach_ns, ends + reach_ns
    at_ns = readings.time_ns if isinstance(time, Instants) else assign_ns(readings, time)
    earliest, latest = at_ns - bound_ns, at_ns + bound_ns
    first, stop = np.searchsorted(ends, earliest, side="right"), np.searchsorted(starts, latest, side="right")
    inner_first, inner_stop = np.searchsorted(ends, latest, side="right"), np.searchsorted(starts, earliest, "right")
    known = (inner_first < inner_stop) & ((bound_ns == 0) | (not are_instants(time)))
    return BlockRanges(first, np.where(known, inner_first, stop), np.where(known, inner_stop, stop), stop)


@dataclass(frozen=True, eq=False)
class ClockDependence:
    """Time cells of a surface that depend on clocks."""

    time: TimeAxis
    cells: Mask
    """Whether each depends on a clock, shape (time cells,)."""
    bounds_ns: Mapping[str, int]
    """Bound of the clock error [ns] of each station with a reading that matters, by station."""

    def describe(self) -> str:
        """Return the note of a result; empty if no cell depends on a clock."""
        if not self.cells.any():
            return ""
        count, stations = int(np.count_nonzero(self.cells)), sorted(self.bounds_ns.items())
        named = ", ".join(f"{station}: {format_duration(bound_ns)}" for station, bound_ns in stations[:NAMED])
        more = f", {len(stations) - NAMED} more" if len(stations) > NAMED else ""
        return (
            f"{count:,} of {len(self.cells):,} time cells depend on clocks that are right only within a bound "
            f"({named}{more}): readings near their edges may belong to the next cell"
        )

    def list_runs(self) -> str:
        """List the cells by runs, each by the coordinates of its first and last cell."""
        edges = np.flatnonzero(np.diff(np.concatenate([[False], self.cells, [False]])))
        runs = [(self._name_cell(first), self._name_cell(stop - 1)) for first, stop in edges.reshape(-1, 2).tolist()]
        listed = [first if first == last else f"{first} to {last}" for first, last in runs[:MAX_RUNS]]
        return ", ".join([*listed, *([f"{len(runs) - MAX_RUNS} more runs"] if len(runs) > MAX_RUNS else [])])

    def _name_cell(self, number: int) -> str:
        time = self.time
        return str(time.labels[number]) if isinstance(time, Periodic) else format_instant(int(time.corners[number]))


_DEPENDENCES: Final[LruCache[str, ClockDependence]] = LruCache(16)


def find_clock_dependence(surface: Perspective) -> ClockDependence | None:
    """Find the time cells of a surface that depend on clocks; None if it reads no station with a clock error.

    Of the last surfaces it is known: a result that is refined asks for it again and again.
    """
    if not any(len(_find_uncertain_series(node)) for node in surface.list_bases()):
        return None
    dependence = _DEPENDENCES.peek(surface.token)
    if dependence is None:
        dependence = _compute_dependence(surface)
        _DEPENDENCES.put(surface.token, dependence, 1)
    return dependence


def _compute_dependence(surface: Perspective) -> ClockDependence:
    bounds_ns: dict[str, int] = {}

    def mask_uncertain(node: Perspective, time: TimeAxis, reach_ns: int) -> Mask:
        cells = np.zeros(time.count, dtype=bool)
        for readings, bound_ns in read_uncertain(node):
            # Where a function looks around, both the edges of a cell and those of what it looks at matter.
            for reach in {reach_ns} if are_instants(time) else {0, reach_ns}:
                ranges = find_block_ranges(readings, bound_ns, time, reach)
                cells |= ranges.mask_cells(time)
                rows = np.flatnonzero(ranges.is_uncertain)
                for number in np.unique(readings.index[rows]).tolist():
                    station, own = readings.series[number].station, rows[readings.index[rows] == number]
                    bounds_ns[station] = max(bounds_ns.get(station, 0), int(bound_ns[own].max()))
        return cells

    return ClockDependence(surface.topology.time, propagate_to_cells(surface, mask_uncertain), bounds_ns)


def read_uncertain(node: Perspective) -> Iterator[tuple[Readings, NDArray[np.int64]]]:
    """Yield the readings of a base, or of its converts, whose clocks are not known to be right, and their bounds [ns].

    They are those in its window or so near that they may belong there, without those left out by flags or converts, in
    pieces. A series is ordered by time within a piece.
    """
    base, series = node.bases[0], _find_uncertain_series(node)
    source = base.source
    if not isinstance(source, ArchiveSource) or not len(series):
        return
    errors, names = source.archive.clock_errors, {node.series[number].station for number in series.tolist()}
    most_ns = max(each.bound_ns for name in names for each in errors[name])
    window = Window(base.window.start_ns - most_ns, base.window.stop_ns + most_ns)
    for columns in source.split_series(source.columns_at_once(CHUNKS_AT_ONCE, window)):
        own = np.intersect1d(columns, series)
        if not len(own):
            continue
        for stored, _ in source.read_pieces(window, own, CHUNKS_AT_ONCE):
            readings = _select_used(node, stored)
            bound_ns = find_reading_bounds_ns(errors, readings)
            rows = np.flatnonzero(bound_ns > 0)
            if len(rows):
                yield readings.take_rows(rows), bound_ns[rows]


def _find_uncertain_series(node: Perspective) -> NDArray[np.intp]:
    """Return the series of a base that are read and whose stations have a clock error, ascending."""
    base = node.bases[0]
    if not isinstance(base.source, ArchiveSource):
        return np.empty(0, dtype=np.intp)
    errors = base.source.archive.clock_errors
    wrong = {station for station, history in errors.items() if any(each.bound_ns for each in history)}
    chosen = [number for number, series in enumerate(node.series) if series.station in wrong] if wrong else []
    return np.setdiff1d(np.array(chosen, dtype=np.intp), np.array(base.unread, dtype=np.intp))


def _select_used(node: Perspective, readings: Readings) -> Readings:
    """Return the readings that a base accepts, as its converts leave them."""
    operator = node.operator
    if isinstance(operator, Base):
        return readings.take_rows(np.isin(readings.flag, operator.accept_flags) & np.isfinite(readings.value))
    if not isinstance(operator, Convert):
        raise TypeError(f"{operator.describe()} does not give readings")
    below = _select_used(node.source, readings)
    value = convert_values(operator, below.value)
    return replace(below, value=value).take_rows(np.isfinite(value))
