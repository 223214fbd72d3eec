"""Aggregate irregular readings, or array values at instants, into cells, one column per series."""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hypergrid.core.flags import NOT_EVALUATED
from hypergrid.core.readings import Readings, Series
from hypergrid.core.times import SECOND_NS
from hypergrid.core.tokens import token
from hypergrid.execution.operators.cells import Cells, mask_uncovered
from hypergrid.execution.operators.counters import instants_of_readings
from hypergrid.execution.operators.fold import cell_hashes, choose_ranges, evaluate_ranges, fold_values
from hypergrid.execution.operators.intervals import (
    assign_ns,
    find_blocks,
    find_crowded_series,
    select_tiles,
)
from hypergrid.perspective.tree import Aggregate
from hypergrid.topology import Instants, Periodic, Regular, SeriesAxis, TimeCells, count_fitting_intervals

FIRST: Final = Aggregate("first", ("time",), 0.0)
"""Aggregate of a base that is read as cells: the first reading of each series in each slice."""


def aggregate_readings(
    readings: Readings,
    target: TimeCells,
    axis: SeriesAxis,
    *,
    operator: Aggregate,
    times: NDArray[np.intp] | None = None,
) -> Cells:
    """Aggregate the readings of each series in each time cell.

    A reading belongs to the cells that contain the start of its interval (its stamp, for a sample). If intervals of a
    series overlap, a cell uses those that tile it (`intervals.py`); a minimum, a maximum, and a function
    that chooses a reading use all intervals that lie within the cell, and count those that tile it.

    Parameters
    ----------
    readings
        Ordered by series and time, none missing, all to be used, as `prepare_readings` returns them.
    target
        Time cells; they may overlap, leave gaps, or recur.
    axis
        The series that `readings.index` refers to.
    operator
        The function, its parameters, and the share of possible readings below which a cell is missing.
    times
        Indices of the wanted time cells, shape (chosen,); None for all.
    """
    chosen = np.arange(target.count) if times is None else times
    if not (operator.row.tiles and find_crowded_series(readings).any()):
        return _aggregate(readings, target, axis, operator, chosen)
    if isinstance(target, Regular) and target.length > target.step:
        return _aggregate_sliding(readings, target, axis, operator, chosen)
    return _aggregate_tiled(readings, target, axis, operator, chosen)


def aggregate_slices(
    readings: Readings, target: Regular, axis: SeriesAxis, times: NDArray[np.intp] | None = None
) -> Cells:
    """Evaluate a base as cells: each series' first reading per slice, whatever its interval."""
    chosen = np.arange(target.count) if times is None else times
    return _aggregate(readings, target, axis, FIRST, chosen)


def _aggregate_tiled(
    readings: Readings, target: TimeCells, axis: SeriesAxis, operator: Aggregate, chosen: NDArray[np.intp]
) -> Cells:
    tiles = select_tiles(readings, target)
    cells = _aggregate(readings.take_rows(tiles.tile_mask), target, axis, operator, chosen)
    if not operator.row.repeatable:
        return cells
    value = _aggregate(
        readings.take_rows(tiles.inside_mask), target, axis, replace(operator, min_coverage=0.0), chosen
    ).value
    return replace(cells, value=mask_uncovered(value, cells.count, cells.possible, operator.min_coverage))


def _aggregate_sliding(
    readings: Readings, target: Regular, axis: SeriesAxis, operator: Aggregate, chosen: NDArray[np.intp]
) -> Cells:
    """Aggregate in overlapping windows, in turns of windows that do not overlap."""
    turns = -(-target.length // target.step)
    shape = (len(chosen), axis.count)
    value, count = np.full(shape, np.nan), np.zeros(shape, dtype=np.int64)
    possible = np.zeros((1, axis.count), dtype=np.int64)
    for turn in range(min(turns, target.count)):
        rows = np.flatnonzero(chosen % turns == turn)
        if len(rows):
            step, origin = turns * target.step, target.origin + turn * target.step
            own = replace(target, origin=origin, step=step, count=-(-(target.count - turn) // turns))
            cells = _aggregate_tiled(readings, own, axis, operator, chosen[rows] // turns)
            value[rows], count[rows], possible = cells.value, cells.count, cells.possible
    return Cells(value, count, possible)


def _aggregate(
    readings: Readings, target: TimeCells, axis: SeriesAxis, operator: Aggregate, chosen: NDArray[np.intp]
) -> Cells:
    """Aggregate the readings that begin in each chosen cell."""
    row, given = operator.row, operator.arguments
    readings = _sort_by_cell(readings, target)
    first, stop = _find_ranges(readings, target, axis.count, chosen)
    if row.rank is not None:
        hashes = cell_hashes(target.corners[chosen], hash_series(axis.series))
        value, count = choose_ranges(row, readings.value, first, stop, hashes)
    elif row.finish is None:
        value, count = evaluate_ranges(row, readings.value, first.ravel(), stop.ravel(), given=given)
        value, count = value.reshape(first.shape), count.reshape(first.shape)
    else:
        # Fold series by series, in the order of the readings. Time by time, each range would be followed by a jump to
        # the next series, and reduceat also folds what lies between two ranges (22 of 24 s for an hourly mean of a
        # year).
        begins, ends = first.T.ravel(), stop.T.ravel()
        standing = instants_of_readings(readings, operator, target.origin)
        states, count = fold_values(row, readings.value, begins, ends, given=given, standing=standing)
        value = row.finish(states, count, given)
        value, count = value.reshape(first.T.shape).T, count.reshape(first.T.shape).T
    possible = count_possible_readings(target, axis)
    if len(possible) > 1:
        possible = possible[chosen]
    return Cells(mask_uncovered(value, count, possible, operator.min_coverage), count, possible)


def _sort_by_cell(readings: Readings, target: TimeCells) -> Readings:
    """Sort readings so that those of a cell are contiguous within a series.

    Only periodic cells need sorting; readings outside all of their cells are dropped.
    """
    if not isinstance(target, Periodic):
        return readings
    block = find_blocks(assign_ns(readings, target), target)
    inside = np.flatnonzero(block >= 0)
    order = np.lexsort((target.owners[block[inside]], readings.index[inside]))
    return readings.take_rows(inside[order])


def _find_ranges(
    readings: Readings, target: TimeCells, series: int, chosen: NDArray[np.intp]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Find the readings in each chosen cell as half-open ranges, shape (chosen, series)."""
    if isinstance(target, Regular):
        return _find_step_ranges(readings, target, series, chosen)
    offsets = np.arange(series, dtype=np.int64) * (2 * target.count + 1)
    instants = assign_ns(readings, target)
    block = find_blocks(instants, target)
    # Even numbers are the gaps between cells, odd ones the cells: within a series they never decrease.
    if isinstance(target, Periodic):
        number = 2 * target.owners[block].astype(np.int64) + 1
    else:
        number = 2 * np.searchsorted(target.starts, instants, side="right") - (block >= 0)
    keys = readings.index.astype(np.int64) * (2 * target.count + 1) + number
    begins = 2 * chosen.astype(np.int64)[:, None] + 1 + offsets
    first = np.searchsorted(keys, begins.ravel(), side="left").reshape(begins.shape)
    stop = np.searchsorted(keys, begins.ravel(), side="right").reshape(begins.shape)
    return first, stop


def _find_step_ranges(
    readings: Readings, target: Regular, series: int, chosen: NDArray[np.intp]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    # All boundaries are multiples of one unit from the origin, so a reading is a small whole number within its series,
    # and one search finds all ranges of all series.
    unit = math.gcd(target.step, target.length)
    units = (target.stop - target.origin) // unit
    bins = np.clip((readings.starts_ns() - target.origin) // unit, -1, units)
    keys = readings.index.astype(np.int64) * (units + 2) + bins
    offsets = np.arange(series, dtype=np.int64) * (units + 2)
    begins = chosen.astype(np.int64)[:, None] * (target.step // unit) + offsets
    first = np.searchsorted(keys, begins.ravel(), side="left").reshape(begins.shape)
    stop = np.searchsorted(keys, (begins + target.length // unit).ravel(), side="left").reshape(begins.shape)
    return first, stop


def count_possible_readings(target: TimeCells, axis: SeriesAxis) -> NDArray[np.int64]:
    """Count the possible readings of each series per cell, shape (time cells or 1, series).

    As many as its interval fits into the blocks of the cell, one per block if it fits into none of them; 0 if the
    interval is unknown.
    """
    intervals = np.array([round(series.interval_s * SECOND_NS) for series in axis.series], dtype=np.int64)
    if isinstance(target, Regular):
        known = np.maximum(target.length // np.maximum(intervals, 1), 1)
        return np.where(intervals > 0, known, 0)[None, :]
    distinct, inverse = np.unique(intervals, return_inverse=True)
    columns = [
        count_fitting_intervals(target, interval) if interval > 0 else np.zeros(target.count, dtype=np.int64)
        for interval in distinct.tolist()
    ]
    return np.stack(columns, axis=1).astype(np.int64)[:, inverse]


def hash_series(several: tuple[Series, ...]) -> NDArray[np.uint64]:
    """Hash several series by their content alone, shape (series,)."""
    return np.array([int(token(series)[:16], 16) for series in several], dtype=np.uint64)


def drop_nonfinite(readings: Readings) -> Readings:
    return keep_rows(readings, np.isfinite(readings.value))


def keep_rows(readings: Readings, mask: NDArray[np.bool_]) -> Readings:
    """Return the readings of a mask; nothing is copied if it holds all of them."""
    return readings if mask.all() else readings.take_rows(np.flatnonzero(mask))


def readings_of(value: NDArray[np.float64], time: Instants, axis: SeriesAxis) -> Readings:
    """Convert the values of an array, shape (instants, series), to readings without missing ones."""
    index, row = np.nonzero(np.isfinite(value.T))
    at_ns = time.times_ns[row]
    flags = np.full(len(row), NOT_EVALUATED, dtype=np.uint8)
    return Readings(axis.series, index.astype(np.int32), at_ns, value[row, index], flags, at_ns)


def count_by_interval(
    fold: Callable[[Aggregate], Cells],
    operator: Aggregate,
    target: TimeCells,
    axis: SeriesAxis,
    times: NDArray[np.intp] | None,
) -> Cells:
    """Aggregate cells, with possible counts and coverage by the intervals of the series.

    Parameters
    ----------
    fold
        Aggregates the instants of each cell.
    operator
        The function, and its minimum coverage.
    target
        The target time cells.
    axis
        The series; without a known interval the possible count is 0.
    times
        Indices of the wanted time cells; None for all.
    """
    cells = fold(replace(operator, min_coverage=0.0))
    if not any(item.interval_s > 0 for item in axis.series):
        return replace(cells, possible=np.zeros((1, axis.count), dtype=np.int64))
    possible = count_possible_readings(target, axis)
    if isinstance(target, Regular):
        # A cell over all instants ends one nanosecond after the last, to contain it.
        intervals = np.array([round(item.interval_s * SECOND_NS) for item in axis.series], dtype=np.int64)
        possible = possible + ((intervals > 0) & (target.length % np.maximum(intervals, 2) == 1) & (possible > 0))
    possible = possible if times is None or len(possible) == 1 else possible[times]
    if np.any((cells.count > possible) & (possible > 0)):
        # The number of fitting intervals is a floor: a day of 23 hours holds seven or eight values three hours apart.
        possible = np.where(possible > 0, np.maximum(possible, cells.count), 0)
    return replace(
        cells, value=mask_uncovered(cells.value, cells.count, possible, operator.min_coverage), possible=possible
    )


class UnusedReadings:
    """Counts of unused readings, collected over the windows that a run reads."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}
        """Number of readings, by reason."""
        self._passed_counts: dict[str, int] = {}
        """Number of readings that cannot recur, by reason."""
        self._known_keys: dict[str, NDArray[np.uint64]] = {}
        """Hash of the series, and stamp, of each reading, shape (readings, 2), by reason."""

    def add(self, reason: str, readings: Readings, *, known_once: bool = False) -> None:
        """Count readings that are not used for a reason, none of them twice.

        Parameters
        ----------
        reason, readings
            The reason, and the readings.
        known_once
            Whether none of them can recur, so that they are counted and forgotten.
        """
        if not len(readings):
            return
        if known_once:
            self._passed_counts[reason] = self._passed_counts.get(reason, 0) + len(readings)
            self.counts[reason] = self.counts.get(reason, 0) + len(readings)
            return
        keys = hash_series(readings.series)[readings.index]
        reading_keys = np.stack([keys, readings.time_ns.view(np.uint64)], axis=1)
        if reason in self._known_keys:
            # Several sources of a merge may read the same readings.
            reading_keys = np.unique(np.concatenate([self._known_keys[reason], reading_keys]), axis=0)
        self._known_keys[reason] = reading_keys
        self.counts[reason] = len(reading_keys) + self._passed_counts.get(reason, 0)
