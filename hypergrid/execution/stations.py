"""Readings to cells: aggregation of irregular readings, a series a column."""

import math

import numpy as np
from numpy.typing import NDArray

from hypergrid.execution.cells import Cells, covered
from hypergrid.execution.fold import cell_hashes, choose_ranges, fold_values
from hypergrid.perspective.functions import AggregateRow
from hypergrid.streams.elements import Readings
from hypergrid.times import SECOND_NS
from hypergrid.tokens import token
from hypergrid.topology import Regular, SeriesAxis


def aggregate_readings(
    readings: Readings,
    target: Regular,
    axis: SeriesAxis,
    *,
    row: AggregateRow,
    min_coverage: float,
    times: NDArray[np.intp] | None = None,
) -> Cells:
    """Return the aggregate of each series in each time cell.

    A reading belongs to the cells that hold the start of its interval (its stamp, for a sample).

    Parameters
    ----------
    readings
        Ordered by series and time, every one of them to be used.
    target
        Time cells; they may overlap or leave gaps.
    axis
        The series that `readings.index` counts.
    row, min_coverage
        The function, and the share of possible readings below which a cell is missing.
    times
        Numbers of the time cells that are wanted, shape (chosen,); all where absent.
    """
    chosen = np.arange(target.count) if times is None else times
    first, stop = _ranges(readings, target, axis.count, chosen)
    if row.rank is None and row.finish is not None:
        # Series by series, as the readings lie: time by time, each range would be followed by a jump to the next
        # series, and reduceat also folds what lies between two ranges (22 of 24 s for an hourly mean of a year).
        folded, count = fold_values(row, readings.value, first.T.ravel(), stop.T.ravel())
        value = row.finish(folded, count).reshape(first.T.shape).T
        count = count.reshape(first.T.shape).T
    else:
        hashes = cell_hashes(target.corners[chosen], series_keys(axis))
        value, count = choose_ranges(row, readings.value, first, stop, hashes)
    possible = _possible(target.length, axis)
    return Cells(covered(value, count, possible, min_coverage), count, possible)


def _ranges(
    readings: Readings, target: Regular, series: int, chosen: NDArray[np.intp]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return which readings lie in each cell: half-open ranges, shape (time cells, series).

    All boundaries are multiples of one unit from the origin, so a reading is a small whole number within its series,
    and one search finds all ranges of all series.
    """
    unit = math.gcd(target.step, target.length)
    units = (target.stop - target.origin) // unit
    bins = np.clip((readings.starts_ns() - target.origin) // unit, -1, units)
    keys = readings.index.astype(np.int64) * (units + 2) + bins
    offsets = np.arange(series, dtype=np.int64) * (units + 2)
    begins = chosen.astype(np.int64)[:, None] * (target.step // unit) + offsets
    first = np.searchsorted(keys, begins.ravel(), side="left").reshape(begins.shape)
    stop = np.searchsorted(keys, (begins + target.length // unit).ravel(), side="left").reshape(begins.shape)
    return first, stop


def _possible(length_ns: int, axis: SeriesAxis) -> NDArray[np.int64]:
    intervals = np.array([round(series.interval_s * SECOND_NS) for series in axis.series], dtype=np.int64)
    known = np.maximum(length_ns // np.maximum(intervals, 1), 1)
    return np.where(intervals > 0, known, 0)[None, :]


def series_keys(axis: SeriesAxis) -> NDArray[np.uint64]:
    """Return a key of each series from its content alone, shape (series,)."""
    return np.array([int(token(series)[:16], 16) for series in axis.series], dtype=np.uint64)
