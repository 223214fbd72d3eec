"""Aggregate array values at instants, with coverage by the reporting interval of each series."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from hypergrid.core.flags import NOT_EVALUATED
from hypergrid.core.readings import Readings
from hypergrid.core.times import SECOND_NS
from hypergrid.execution.operators.cells import Cells, mask_uncovered
from hypergrid.execution.operators.stations import count_possible_readings
from hypergrid.perspective.tree.operators import Aggregate
from hypergrid.topology import Instants, Regular, SeriesAxis, TimeCells


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
