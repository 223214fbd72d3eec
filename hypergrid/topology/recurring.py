"""Map the cells of a time axis to the cells of a climatology."""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from hypergrid.core.errors import InvalidQuery
from hypergrid.core.times import format_instant
from hypergrid.topology.axes import Instants, Regular
from hypergrid.topology.civil import MAX_BLOCKS
from hypergrid.topology.periodic import Cycle, Periodic, periodic
from hypergrid.topology.topology import TimeAxis, blocks_of

Numbers = NDArray[np.intp]


@lru_cache(maxsize=16)
def find_normal_cells(normal: TimeAxis, axis: TimeAxis) -> Numbers:
    """Return the index of the climatology cell that contains each cell of an axis.

    A cycle is not limited to the period of the climatology: hour 14 of a future day lies in hour 14.

    Parameters
    ----------
    normal
        A periodic axis, or a single cell that contains everything.
    axis
        Cells to look up; a periodic cell lies in a climatology cell if all its blocks do.

    Returns
    -------
    Shape (cells of the axis,).

    Raises
    ------
    InvalidQuery
        A cell lies in no climatology cell or in several (the message names the first one), or there are too many
        cells to list.
    """
    if not isinstance(normal, Periodic):
        if normal.count != 1:
            raise InvalidQuery(
                f"a climatology has cells that come again, or one cell; got {normal.count:,} cells of time"
            )
        return np.zeros(axis.count, dtype=np.intp)
    if isinstance(axis, Periodic) and axis.cycle == normal.cycle:
        return _number_cells(normal, axis.cells, axis)
    # Checked before the cells are listed.
    if axis.count > MAX_BLOCKS:
        raise InvalidQuery(
            f"{axis.count:,} cells of time are more than the {MAX_BLOCKS:,} of which it can be told in which of "
            f"{normal.name} each lies; take longer cells, or a shorter time"
        )
    starts, ends = (axis.corners, axis.corners + 1) if isinstance(axis, Instants) else blocks_of(axis)
    turns = _find_turns(normal.cycle, starts, ends)
    if isinstance(axis, Periodic):
        # -2 marks cells without a block, -1 cells with a block that spans several cells of the cycle.
        lowest, highest = np.full(axis.count, normal.cycle.count), np.full(axis.count, -2)
        np.minimum.at(lowest, axis.owners, turns)
        np.maximum.at(highest, axis.owners, turns)
        # An empty periodic cell may map to any cell: there is nothing to compare.
        turns = np.where(highest == -2, normal.cells[0], np.where(lowest == highest, highest, -1))
    if (turns < 0).any():
        raise InvalidQuery(
            f"{_describe_cell(axis, int(np.argmax(turns < 0)))} lies in several cells of {normal.describe()}, so "
            f"that none is "
            "normal for it; take cells that each lie within one"
        )
    return _number_cells(normal, turns, axis)


def _find_turns(cycle: Cycle, starts: NDArray[np.int64], ends: NDArray[np.int64]) -> Numbers:
    """Return the cycle cell of each interval, -1 if it spans several; shape as given."""
    if not len(starts):
        return np.empty(0, dtype=np.intp)
    over = periodic(cycle, int(starts.min()), int(ends.max()))
    first = np.searchsorted(over.starts, starts, side="right") - 1
    last = np.searchsorted(over.starts, ends, side="left") - 1
    return np.where(first == last, over.owners[first], -1)


def _number_cells(normal: Periodic, cells: Numbers, axis: TimeAxis) -> Numbers:
    """Return the positions of cycle cells among the cells of the climatology."""
    places = np.searchsorted(normal.cells, cells)
    # A cell after the last one gets the index `count`, which would be out of range.
    missing = normal.cells[np.minimum(places, normal.count - 1)] != cells
    if missing.any():
        cell = int(np.argmax(missing))
        raise InvalidQuery(
            f"{_describe_cell(axis, cell)} lies in no cell of {normal.describe()}: cell "
            f"{int(cells[cell]) + normal.cycle.first} of the cycle is not there"
        )
    return places.astype(np.intp)


def _describe_cell(axis: TimeAxis, cell: int) -> str:
    if isinstance(axis, Periodic):
        return f"cell {int(axis.labels[cell])} of {axis.describe()}"
    start = int(axis.corners[cell])
    if isinstance(axis, Instants):
        return f"the instant {format_instant(start)}"
    stop = start + axis.length if isinstance(axis, Regular) else int(axis.ends[cell])
    return f"the cell {format_instant(start)} to {format_instant(stop)}"
