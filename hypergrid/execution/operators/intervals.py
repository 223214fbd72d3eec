"""Notes on how the intervals of readings fit the cells that they are assigned to."""

from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hypergrid.core.readings import Readings, Series
from hypergrid.core.times import SECOND_NS, format_duration
from hypergrid.execution.diagnostics.run_notes import RunDiagnostics
from hypergrid.execution.operators.overlapping_intervals import (
    MAX_TOLERANCE_NS,
    TOLERANCE,
    Overlaps,
    assign_ns,
    find_blocks,
    find_crowded_series,
    intervals_ns,
    is_sliding,
)
from hypergrid.perspective.tree.operators import Aggregate
from hypergrid.topology import Periodic, TimeCells, blocks_of

_HALF: Final = 0.5
"""Intervals of at least this share of a cell's length are compared with its edges."""


class IntervalNotes:
    """Notes on the intervals of the readings of an aggregate, collected piece by piece."""

    def __init__(self, time: TimeCells, operator: Aggregate, of_series: int) -> None:
        """Start without any readings.

        Parameters
        ----------
        time
            Time cells of the aggregate.
        operator
            The aggregate.
        of_series
            Number of series that it reads.
        """
        self._time, self._operator, self._of_series = time, operator, of_series
        self._overlaps, self._edges, self._negative = Overlaps(), _EdgeOverlaps(), _NegativeTotals()
        self._counted_cells = np.zeros(time.count, dtype=bool)

    def select_uncounted(self, times: NDArray[np.intp] | None) -> NDArray[np.intp]:
        """Select the time cells (None: all) that no earlier call selected."""
        cells = np.arange(self._time.count) if times is None else np.unique(times)
        cells = cells[~self._counted_cells[cells]]
        self._counted_cells[cells] = True
        return cells

    def add(self, readings: Readings, cells: NDArray[np.intp]) -> None:
        """Count the readings of some cells only.

        Parameters
        ----------
        readings
            Ordered by series and time, none missing; for each series all readings of these cells.
        cells
            Indices of the time cells, ascending.
        """
        row = self._operator.row
        if not len(cells) or not row.tiles or not intervals_ns(readings).any():
            return
        readings = readings.take_rows(np.isin(_find_cells(readings, self._time), cells))
        self._overlaps.add(readings, self._time, repeatable=row.repeatable)
        if not is_sliding(self._time):
            self._edges.add(readings, self._time)
        if row.weigh == "share":
            self._negative.add(readings)

    def write_notes(self, remarks: RunDiagnostics, about: str) -> None:
        """Write the notes to the diagnostics; `about` is the aggregate's token."""
        repeatable = self._operator.row.repeatable
        overlap = self._overlaps.note(self._time, repeatable=repeatable, of_series=self._of_series)
        remarks.set_note(f"{about} overlap", overlap)
        remarks.set_note(f"{about} edges", self._edges.note())
        remarks.set_note(f"{about} negative", self._negative.note())


def note_intervals(
    remarks: RunDiagnostics, about: str, readings: Readings, time: TimeCells, operator: Aggregate
) -> None:
    """Note how the intervals of all readings of an aggregate fit its cells.

    Parameters
    ----------
    remarks
        Diagnostics of the run.
    about
        The aggregate's token.
    readings
        Ordered by series and time, none missing.
    time
        Time cells of the aggregate.
    """
    notes = IntervalNotes(time, operator, len(readings.series))
    notes.add(readings, notes.select_uncounted(None))
    notes.write_notes(remarks, about)


def _find_cells(readings: Readings, time: TimeCells) -> NDArray[np.intp]:
    """Return the cell of each reading, -1 if in none, the last of overlapping windows."""
    instants = assign_ns(readings, time)
    if is_sliding(time):
        number = np.minimum((instants - time.origin) // time.step, time.count - 1)
        inside = (number >= 0) & (instants - time.origin - number * time.step < time.length)
        return np.asarray(np.where(inside, number, -1), dtype=np.intp)
    block = find_blocks(instants, time)
    if not isinstance(time, Periodic):
        return block
    return np.asarray(np.where(block >= 0, time.owners[block], -1), dtype=np.intp)


@dataclass
class _NegativeTotals:
    """Negative totals in sums; an amount such as rain should have none."""

    count: int = 0
    min_value: float = np.inf
    stations: set[str] = field(default_factory=set)

    def add(self, readings: Readings) -> None:
        totals = np.array([item.statistic == "total" for item in readings.series] or [False])
        below = totals[readings.index] & (readings.value < 0)
        if not below.any():
            return
        self.count += int(np.count_nonzero(below))
        self.min_value = min(self.min_value, float(readings.value[below].min()))
        self.stations.update(readings.series[number].station for number in np.unique(readings.index[below]).tolist())

    def note(self) -> str:
        if not self.count:
            return ""
        stations = sorted(self.stations)
        return (
            f"{self.count:,} totals below zero are in the sums, the least {self.min_value:g} "
            f"({', '.join(stations[:5])}{', …' if len(stations) > 5 else ''}); convert('valid_range', low=0, high=…) "
            "leaves them out"
        )


@dataclass
class _EdgeOverlaps:
    """Long intervals across cell edges, such as totals of local days over UTC days."""

    reading_count: int = 0
    beyond_count: int = 0
    series: set[Series] = field(default_factory=set)
    max_reach_ns: int = 0
    longest_ns: int = 0

    def add(self, readings: Readings, time: TimeCells) -> None:
        lengths = intervals_ns(readings)
        starts, ends = blocks_of(time)
        longest = int((ends - starts).max(initial=1))
        long_series = (lengths >= _HALF * longest) & ~find_crowded_series(readings)
        rows = np.flatnonzero(long_series[readings.index])
        if not len(rows):
            return
        own = readings.take_rows(rows)
        block = find_blocks(assign_ns(own, time), time)
        held = block >= 0
        begin, length = own.starts_ns()[held], lengths[own.index[held]]
        start, end = starts[block[held]], ends[block[held]]
        # A day of 23 hours is a whole day: the excess of a 24-hour total is not part of another day.
        longer = np.maximum(length - (end - start), 0)
        over = np.maximum(start - begin, begin + length - end) - longer
        beyond = over > np.minimum(TOLERANCE * length, MAX_TOLERANCE_NS)
        self.reading_count += int(np.count_nonzero(held))
        if not beyond.any():
            return
        self.beyond_count += int(np.count_nonzero(beyond))
        self.series.update(own.series[number] for number in np.unique(own.index[held][beyond]).tolist())
        self.max_reach_ns = max(self.max_reach_ns, int(over[beyond].max()))
        self.longest_ns = max(self.longest_ns, int(length[beyond].max()))

    def note(self) -> str:
        if not self.beyond_count:
            return ""
        max_reach, kind = format_duration(self.max_reach_ns // SECOND_NS * SECOND_NS), format_duration(self.longest_ns)
        return (
            f"{self.beyond_count:,} of {self.reading_count:,} readings over {kind} reach beyond their cells, by "
            f"up to {max_reach} "
            f"({len(self.series)} series): each is wholly in the cell in which it begins; cells with the edges of the "
            "intervals, by an offset or a zone, hold them exactly"
        )
