"""Readings whose intervals overlap: a total of the last hour that is reported every ten minutes.

A cell takes of such a series the readings whose intervals tile it: from the cell's start, each begins where the one
before ends, and the last ends within the cell. Otherwise what fell in an hour would be summed six times. Greedy choice
by the earliest end gives the most disjoint intervals that a cell can hold (Kleinberg and Tardos, Algorithm Design,
section 4.1), so a count never exceeds what is possible.

Whether intervals overlap is decided from the readings of each block of time alone, and whether a reading is of a civil
day from its neighbours, so that every executor, piece and update decides alike.
"""

from dataclasses import dataclass, field, replace
from typing import Final, TypeGuard

import numpy as np
from numpy.typing import NDArray

from hypergrid.core.medians import medians_by_group
from hypergrid.core.readings import Readings, Series
from hypergrid.core.times import SECOND_NS, format_duration
from hypergrid.topology import TimeCells, blocks_of
from hypergrid.topology.axes import AGREEING, AGREEMENT, Regular
from hypergrid.topology.bins import civil_day_ns

Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]

CERTAIN_SHARE: Final = 0.55
"""Intervals overlap where the median spacing is at most this share of them, however irregular the readings are."""
LIKELY_SHARE: Final = 0.95
"""They overlap where it is at most this share, if the spacings agree."""
TOLERANCE: Final = 0.01
"""An interval may begin before the one before it ends by this share of its length, as clocks jitter, …"""
MAX_TOLERANCE_NS: Final = 60 * SECOND_NS
"""… and at most by this [ns]."""
_PIECE: Final = 1 << 18


@dataclass(frozen=True, eq=False)
class Tiles:
    """Which readings the cells take of those whose intervals overlap; all others are taken."""

    tile_mask: Flags
    """Readings whose intervals tile their cell, shape (readings,)."""
    inside_mask: Flags
    """Readings whose intervals end within their cell, shape (readings,)."""
    overlap_mask: Flags
    """Readings in blocks of time in which the intervals of their series overlap, shape (readings,)."""


def intervals_ns(readings: Readings) -> Integers:
    """Return the interval that readings of each series stand for [ns], 0 for samples, shape (series,)."""
    held = [0 if item.statistic == "sample" else round(item.interval_s * SECOND_NS) for item in readings.series]
    return np.array(held or [0], dtype=np.int64)


def find_crowded_series(readings: Readings) -> Flags:
    """Return the series in which some readings lie closer than their intervals are long, shape (series,)."""
    lengths = intervals_ns(readings)
    is_crowded = np.zeros(len(lengths), dtype=bool)
    if not lengths.any() or len(readings) < 2:
        return is_crowded
    # Piece by piece: a whole archive has tens of millions of readings, and each column of them is 0.2 GB.
    for start in range(0, len(readings) - 1, _PIECE):
        index, at_ns = (column[start : start + _PIECE + 1] for column in (readings.index, readings.time_ns))
        close = (index[1:] == index[:-1]) & (np.diff(at_ns) <= LIKELY_SHARE * lengths[index[1:]])
        is_crowded[index[1:][close]] = True
    return is_crowded


def assign_ns(readings: Readings, target: TimeCells) -> Integers:
    """Return the instant by which each reading is assigned to a cell [ns], shape (readings,).

    It is the start of its interval. A total of a civil day that is stamped at its end is assigned by its middle: on the
    day of 23 hours, 24 hours before the end are in the day before.
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
    # Of totals of the last day that are reported every hour each is assigned by its start.
    alone = by_day[readings.index] & ~_mask_crowded(readings, day_ns)
    return np.where(alone, readings.time_ns - day_ns // 2, starts)


def _mask_crowded(readings: Readings, length_ns: int) -> Flags:
    """Return which readings lie closer to another of their series than a length [ns], shape (readings,)."""
    is_crowded = np.zeros(len(readings), dtype=bool)
    close = (np.diff(readings.index) == 0) & (np.diff(readings.time_ns) <= LIKELY_SHARE * length_ns)
    is_crowded[1:] |= close
    is_crowded[:-1] |= close
    return is_crowded


def find_blocks(instants_ns: Integers, target: TimeCells) -> NDArray[np.intp]:
    """Return in which block of time each instant lies, -1 where in none; blocks must not overlap."""
    if isinstance(target, Regular):
        block = (instants_ns - target.origin) // target.step
        within = instants_ns - target.origin - block * target.step < target.length
        outside = (block < 0) | (block >= target.count) | ~within
    else:
        block = np.searchsorted(target.starts, instants_ns, side="right") - 1
        outside = (block < 0) | (instants_ns >= np.append(target.ends, 0)[block])
    return np.asarray(np.where(outside, -1, block), dtype=np.intp)


def select_tiles(readings: Readings, target: TimeCells) -> Tiles:
    """Return which readings tile the cells of an axis whose cells do not overlap.

    Parameters
    ----------
    readings
        Ordered by series and time, none missing.
    target
        Time cells, each block of time of which is tiled by itself.
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
    # A series whose stamps never meet the cell's start may reach over its end by as much, and no more.
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
    """Readings of one series in one block of time each, group by group."""

    instants: Integers
    """Where intervals begin [ns], in order within each group, shape (rows,)."""
    first: Integers
    """First row of each group, shape (groups,)."""
    stop: Integers
    """After its last row, shape (groups,)."""
    step: Integers
    """Median spacing [ns], the lower one of two; 0 of a single reading, shape (groups,)."""
    agreeing: NDArray[np.float64]
    """Share of the spacings that agree with it, shape (groups,)."""


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
    """Return in which groups intervals overlap: by their median spacing, or a looser one on which they agree."""
    number = groups.stop - groups.first - 1
    agreed = (number > 1) & (groups.agreeing >= AGREEING) & (groups.step <= LIKELY_SHARE * lengths)
    return (number > 0) & ((groups.step <= CERTAIN_SHARE * lengths) | agreed)


def _select_tiling(
    groups: _ReadingGroups, crowds: Flags, lengths: Integers, latest: Integers, tolerance: Integers
) -> Integers:
    """Return the rows whose intervals follow one another in each group, one more of every group at a time."""
    live = np.flatnonzero(crowds)
    at, free = groups.first[live], groups.instants[groups.first[live]]
    # Where nothing is missing, the next interval is as many rows on.
    stride = np.maximum(np.rint(lengths / np.maximum(groups.step, 1)), 1).astype(np.int64)
    row_parts = []
    while len(live):
        # Jitter does not add up: the next interval begins where this one should end, not earlier.
        end = np.maximum(free, groups.instants[at]) + lengths[live]
        fits = end <= latest[live]
        live, at, free = live[fits], at[fits], end[fits]
        row_parts.append(at)
        at = _bisect_first(groups.instants, at + 1, groups.stop[live], free - tolerance[live], at + stride[live])
        more = at < groups.stop[live]
        live, at, free = live[more], at[more], free[more]
    return np.concatenate(row_parts) if row_parts else np.empty(0, dtype=np.int64)


def _bisect_first(instants: Integers, low: Integers, high: Integers, wanted: Integers, guess: Integers) -> Integers:
    """Return the first row of each range that is not before an instant, by bisection where a guess is wrong."""
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
    """Readings whose intervals overlap, counted as pieces of them come."""

    series: set[Series] = field(default_factory=set)
    """Those that have some."""
    steps_ns: set[int] = field(default_factory=set)
    """Their usual spacings, whole seconds."""
    used: int = 0
    left_out: int = 0

    def add(self, readings: Readings, target: TimeCells, *, repeatable: bool) -> None:
        """Count some readings; of each series those of a cell together.

        Parameters
        ----------
        readings
            As `select_tiles` takes them.
        target
            Time cells; of windows that overlap those are looked at that do not.
        repeatable
            Whether the function takes every interval within a cell, as a maximum may.
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
        """Return the note on overlapping intervals among `of_series` series; empty where none overlap."""
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
            # A reading may be in one window, and left out of another that overlaps it.
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
    """Return whether time cells are windows that overlap."""
    return isinstance(target, Regular) and target.length > target.step


def _median_steps_ns(readings: Readings, numbers: NDArray[np.int32]) -> list[int]:
    """Return the median spacings of some series [ns], whole seconds, each once."""
    same = (readings.index[1:] == readings.index[:-1]) & np.isin(readings.index[1:], numbers)
    spacing, index = np.diff(readings.time_ns)[same], readings.index[1:][same]
    _, medians = medians_by_group(spacing, index)
    return sorted({round(median / SECOND_NS) * SECOND_NS for median in medians.tolist()})


def _format_lengths(lengths_s: list[float]) -> str:
    several = [format_duration(round(length * SECOND_NS)) for length in lengths_s]
    return ", ".join(several[:4]) + (", …" if len(several) > 4 else "")
