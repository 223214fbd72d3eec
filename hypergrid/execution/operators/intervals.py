"""How the intervals of readings fit the cells that they are assigned to: overlaps, and notes on both.

Totals of the last hour may be reported every ten minutes. Of a series whose intervals overlap so, a cell uses the
readings whose intervals tile it: from the cell's start, each begins where the previous one ends, and the last ends
within the cell. Otherwise an hour's amount would be summed six times. Greedy selection by the earliest end gives the
most disjoint intervals that fit into a cell (Kleinberg and Tardos, Algorithm Design, section 4.1), so a count never
exceeds what is possible.

Overlap is decided from the readings of each time block alone, and whether a reading is for a civil day from its
neighbours, so that every executor, piece and update decides the same.
"""

from dataclasses import dataclass, field, replace
from typing import Final, TypeGuard

import numpy as np
from numpy.typing import NDArray

from hypergrid.core.medians import medians_by_group
from hypergrid.core.readings import Readings, Series
from hypergrid.core.times import SECOND_NS, format_duration
from hypergrid.execution.diagnostics import RunDiagnostics
from hypergrid.perspective.tree import Aggregate
from hypergrid.topology import Periodic, TimeCells, blocks_of
from hypergrid.topology.axes import AGREEING, AGREEMENT, Regular
from hypergrid.topology.bins import civil_day_ns

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
        readings = readings.take_rows(np.isin(find_cells(readings, self._time), cells))
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


def find_cells(readings: Readings, time: TimeCells) -> NDArray[np.intp]:
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


Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]

CERTAIN_SHARE: Final = 0.55
"""Intervals overlap if the median spacing is at most this share of their length, even if readings are irregular."""
LIKELY_SHARE: Final = 0.95
"""Intervals overlap if the median spacing is at most this share of their length and the spacings agree."""
# Clocks jitter.
TOLERANCE: Final = 0.01
"""Share of its length by which an interval may begin before the previous one ends."""
MAX_TOLERANCE_NS: Final = 60 * SECOND_NS
"""Upper limit of that tolerance [ns]."""
_PIECE: Final = 1 << 18


@dataclass(frozen=True, eq=False)
class Tiles:
    """Masks of the readings that cells use if intervals overlap; all other readings are used."""

    tile_mask: Flags
    """Readings whose intervals tile their cell, shape (readings,)."""
    inside_mask: Flags
    """Readings whose intervals end within their cell, shape (readings,)."""
    overlap_mask: Flags
    """Readings in blocks of time in which the intervals of their series overlap, shape (readings,)."""


def intervals_ns(readings: Readings) -> Integers:
    """Return the interval of the readings of each series [ns], 0 for samples, shape (series,)."""
    held = [0 if item.statistic == "sample" else round(item.interval_s * SECOND_NS) for item in readings.series]
    return np.array(held or [0], dtype=np.int64)


def find_crowded_series(readings: Readings) -> Flags:
    """Mask the series with readings closer together than their intervals are long, shape (series,)."""
    lengths = intervals_ns(readings)
    is_crowded = np.zeros(len(lengths), dtype=bool)
    if not lengths.any() or len(readings) < 2:
        return is_crowded
    # Piece by piece: a whole archive has tens of millions of readings, and each column of them takes 0.2 GB.
    for start in range(0, len(readings) - 1, _PIECE):
        index, at_ns = (column[start : start + _PIECE + 1] for column in (readings.index, readings.time_ns))
        close = (index[1:] == index[:-1]) & (np.diff(at_ns) <= LIKELY_SHARE * lengths[index[1:]])
        is_crowded[index[1:][close]] = True
    return is_crowded


def assign_ns(readings: Readings, target: TimeCells) -> Integers:
    """Return the instant that assigns each reading to a cell [ns], shape (readings,).

    It is the start of the interval. A total of a civil day that is stamped at its end is assigned by its middle: on a
    day of 23 hours, the instant 24 hours before the end is in the previous day.
    """
    starts, day_ns = readings.starts_ns(), civil_day_ns(target)
    if not day_ns:
        return starts
    by_day = np.array(
        [
            item.stamp == "end" and item.statistic != "sample" and round(item.interval_s * SECOND_NS) == day_ns
            for item in readings.series
        ]
        or [False]
    )
    if not by_day.any():
        return starts
    # Totals of the last day that are reported every hour are each assigned by their start.
    alone = by_day[readings.index] & ~_mask_crowded(readings, day_ns)
    return np.where(alone, readings.time_ns - day_ns // 2, starts)


def _mask_crowded(readings: Readings, length_ns: int) -> Flags:
    """Mask the readings closer than a length [ns] to another of their series, shape (readings,)."""
    is_crowded = np.zeros(len(readings), dtype=bool)
    close = (np.diff(readings.index) == 0) & (np.diff(readings.time_ns) <= LIKELY_SHARE * length_ns)
    is_crowded[1:] |= close
    is_crowded[:-1] |= close
    return is_crowded


def find_blocks(instants_ns: Integers, target: TimeCells) -> NDArray[np.intp]:
    """Return the time block of each instant, -1 if none; blocks must not overlap."""
    if isinstance(target, Regular):
        block = (instants_ns - target.origin) // target.step
        within = instants_ns - target.origin - block * target.step < target.length
        outside = (block < 0) | (block >= target.count) | ~within
    else:
        block = np.searchsorted(target.starts, instants_ns, side="right") - 1
        outside = (block < 0) | (instants_ns >= np.append(target.ends, 0)[block])
    return np.asarray(np.where(outside, -1, block), dtype=np.intp)


def select_tiles(readings: Readings, target: TimeCells) -> Tiles:
    """Select the readings that tile the cells of an axis without overlapping cells.

    Parameters
    ----------
    readings
        Ordered by series and time, none missing.
    target
        Time cells; each of their time blocks is tiled by itself.
    """
    taken, inside = np.ones(len(readings), dtype=bool), np.ones(len(readings), dtype=bool)
    overlapping = np.zeros(len(readings), dtype=bool)
    instants, block = readings.starts_ns(), find_blocks(readings.starts_ns(), target)
    rows = np.flatnonzero(find_crowded_series(readings)[readings.index] & (block >= 0))
    if not len(rows):
        return Tiles(taken, inside, overlapping)
    groups = _group_readings(readings.index[rows], block[rows], instants[rows])
    starts, ends = blocks_of(target)
    lengths = intervals_ns(readings)[readings.index[rows[groups.first]]]
    numbers = block[rows[groups.first]]
    crowds = _find_overlaps(groups, lengths)
    tolerance = np.minimum((TOLERANCE * lengths).astype(np.int64), MAX_TOLERANCE_NS)
    # If the stamps of a series never match the cell's start, it may extend past the end by the same phase, but no more.
    phase = (instants[rows[groups.first]] - starts[numbers]) % np.maximum(groups.step, 1)
    latest = ends[numbers] + phase + tolerance
    of = np.repeat(np.arange(len(groups.first)), groups.stop - groups.first)
    overlapping[rows] = crowds[of]
    inside[rows] = ~crowds[of] | (instants[rows] + lengths[of] <= latest[of])
    taken[rows] = ~crowds[of]
    taken[rows[_select_tiling(groups, crowds, lengths, latest, tolerance)]] = True
    return Tiles(taken, inside, overlapping)


@dataclass(frozen=True, eq=False)
class _ReadingGroups:
    """Readings grouped by series and time block."""

    instants: Integers
    """Starts of the intervals [ns], in order within each group, shape (rows,)."""
    first: Integers
    """Index of the first row of each group, shape (groups,)."""
    stop: Integers
    """Index after the last row of each group, shape (groups,)."""
    step: Integers
    """Median spacing [ns], the lower of two; 0 for a single reading, shape (groups,)."""
    agreeing: NDArray[np.float64]
    """Share of the spacings that agree with the median, shape (groups,)."""


def _group_readings(index: NDArray[np.int32], block: NDArray[np.intp], instants: Integers) -> _ReadingGroups:
    new = np.append(True, (np.diff(index) != 0) | (np.diff(block) != 0))  # noqa: FBT003 - a value
    first = np.flatnonzero(new)
    stop = np.append(first[1:], len(new))
    group = (np.cumsum(new) - 1)[1:][~new[1:]]
    spacing = np.diff(instants)[~new[1:]]
    number = stop - first - 1
    in_order = spacing[np.lexsort((spacing, group))]
    begins = np.cumsum(number) - number
    step = np.zeros(len(first), dtype=np.int64)
    several = number > 0
    step[several] = in_order[(begins + (number - 1) // 2)[several]]
    agrees = np.abs(spacing - step[group]) <= AGREEMENT * step[group]
    agreeing = np.bincount(group, agrees, len(first)) / np.maximum(number, 1)
    return _ReadingGroups(instants, first, stop, step, agreeing)


def _find_overlaps(groups: _ReadingGroups, lengths: Integers) -> Flags:
    """Mask groups with overlapping intervals: short median spacing, or a longer one that agrees."""
    number = groups.stop - groups.first - 1
    agreed = (number > 1) & (groups.agreeing >= AGREEING) & (groups.step <= LIKELY_SHARE * lengths)
    return (number > 0) & ((groups.step <= CERTAIN_SHARE * lengths) | agreed)


def _select_tiling(
    groups: _ReadingGroups, crowds: Flags, lengths: Integers, latest: Integers, tolerance: Integers
) -> Integers:
    """Select rows with consecutive intervals, one more per group in each pass."""
    live = np.flatnonzero(crowds)
    at, free = groups.first[live], groups.instants[groups.first[live]]
    # If nothing is missing, the next interval begins this many rows later.
    stride = np.maximum(np.rint(lengths / np.maximum(groups.step, 1)), 1).astype(np.int64)
    row_parts = []
    while len(live):
        # Jitter must not accumulate: the next interval begins where this one should end, not earlier.
        end = np.maximum(free, groups.instants[at]) + lengths[live]
        fits = end <= latest[live]
        live, at, free = live[fits], at[fits], end[fits]
        row_parts.append(at)
        at = _bisect_first(groups.instants, at + 1, groups.stop[live], free - tolerance[live], at + stride[live])
        more = at < groups.stop[live]
        live, at, free = live[more], at[more], free[more]
    return np.concatenate(row_parts) if row_parts else np.empty(0, dtype=np.int64)


def _bisect_first(instants: Integers, low: Integers, high: Integers, wanted: Integers, guess: Integers) -> Integers:
    """Find the first row per range at or after an instant; `guess` avoids bisection."""
    guessed = np.clip(guess, low, np.maximum(high - 1, low))
    right = (guessed < high) & (guessed < len(instants))
    guessed = np.where(right, guessed, 0)
    right &= (instants[guessed] >= wanted) & ((guessed == low) | (instants[guessed - 1] < wanted))
    low, high = np.where(right, guessed, low), np.where(right, guessed, high)
    while (open_ := low < high).any():
        middle = (low + high) // 2
        before = open_ & (instants[np.where(open_, middle, 0)] < wanted)
        low = np.where(before, middle + 1, low)
        high = np.where(open_ & ~before, middle, high)
    return low


@dataclass
class Overlaps:
    """Overlapping intervals, counted piece by piece."""

    series: set[Series] = field(default_factory=set)
    """Series with overlapping intervals."""
    steps_ns: set[int] = field(default_factory=set)
    """Their median spacings [ns], whole seconds."""
    used: int = 0
    left_out: int = 0

    def add(self, readings: Readings, target: TimeCells, *, repeatable: bool) -> None:
        """Count the readings with overlapping intervals; a call must contain whole cells of a series.

        Parameters
        ----------
        readings
            As `select_tiles` takes them.
        target
            Time cells; of overlapping windows only some are examined, which do not overlap.
        repeatable
            Whether the function uses every interval within a cell, such as a maximum.
        """
        if not find_crowded_series(readings).any():
            return
        if is_sliding(target):
            turns = -(-target.length // target.step)
            target = replace(target, step=turns * target.step, count=-(-target.count // turns))
        tiles = select_tiles(readings, target)
        if not tiles.overlap_mask.any():
            return
        numbers = np.unique(readings.index[tiles.overlap_mask])
        self.series.update(readings.series[number] for number in numbers.tolist())
        self.steps_ns.update(_median_steps_ns(readings, numbers))
        used = int(np.count_nonzero(tiles.overlap_mask & (tiles.inside_mask if repeatable else tiles.tile_mask)))
        self.used += used
        self.left_out += int(np.count_nonzero(tiles.overlap_mask)) - used

    def note(self, target: TimeCells, *, repeatable: bool, of_series: int) -> str:
        """Describe overlapping intervals among `of_series` series; empty if none overlap."""
        if not self.series:
            return ""
        lengths, steps = sorted({item.interval_s for item in self.series}), sorted(self.steps_ns)
        kinds = ", ".join(sorted({item.statistic for item in self.series}))
        how = "those that lie within it" if repeatable else "those that follow one another from its start"
        note = (
            f"intervals overlap in {len(self.series)} of {of_series} series ({kinds} over "
            f"{_format_lengths(lengths)}, reported "
            f"every {_format_lengths([step / SECOND_NS for step in steps])}): each cell takes {how}"
        )
        if not is_sliding(target):
            # A reading may be used in one window and left out of another that overlaps it.
            note += f", {self.used:,} of {self.used + self.left_out:,} readings; {self.left_out:,} are left out"
        odd = sorted(
            {
                f"{format_duration(step)} do not divide {format_duration(round(length * SECOND_NS))}"
                for step in steps
                for length in lengths
                if step
                and min(remainder := round(length * SECOND_NS) % step, step - remainder)
                > TOLERANCE * length * SECOND_NS
            }
        )
        return f"{note}; {', '.join(odd)}, so that what lies between two of them is in no cell" if odd else note


def is_sliding(target: TimeCells) -> TypeGuard[Regular]:
    return isinstance(target, Regular) and target.length > target.step


def _median_steps_ns(readings: Readings, numbers: NDArray[np.int32]) -> list[int]:
    """Return the distinct median spacings of some series [ns], whole seconds."""
    same = (readings.index[1:] == readings.index[:-1]) & np.isin(readings.index[1:], numbers)
    spacing, index = np.diff(readings.time_ns)[same], readings.index[1:][same]
    _, medians = medians_by_group(spacing, index)
    return sorted({round(median / SECOND_NS) * SECOND_NS for median in medians.tolist()})


def _format_lengths(lengths_s: list[float]) -> str:
    several = [format_duration(round(length * SECOND_NS)) for length in lengths_s]
    return ", ".join(several[:4]) + (", …" if len(several) > 4 else "")
