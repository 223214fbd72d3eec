"""Which cell of a climatology each cell of another axis lies in: hour 14 of any day in hour 14."""

from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from hypergrid.core.errors import InvalidQuery
from hypergrid.core.times import format_instant
from hypergrid.topology.axes import Instants, Regular
from hypergrid.topology.civil import MAX_BLOCKS
from hypergrid.topology.periodic import Cycle, Periodic, periodic
from hypergrid.topology.time_axes import TimeAxis, blocks_of

Numbers = NDArray[np.intp]


@lru_cache(maxsize=16)
def find_normal_cells(normal: TimeAxis, axis: TimeAxis) -> Numbers:
    """Return the number of the cell of a climatology that each cell of an axis lies in.

    A cycle goes on beyond the time that a climatology was made of: the hour 14 of a day in the future is an hour 14.

    Parameters
    ----------
    normal
        Cells that come again, or one cell, in which everything lies.
    axis
        What lies in them; a cell that comes again itself lies where all of its blocks do.

    Returns
    -------
    Shape (cells of the axis,).

    Raises
    ------
    InvalidQuery
        A cell lies in none or in several; the message names the first. Or there are more cells than can be listed.
    """
    if not isinstance(normal, Periodic):
        if normal.count != 1:
            message = f"a climatology has cells that come again, or one cell; got {normal.count:,} cells of time"
            raise InvalidQuery(message)
        return np.zeros(axis.count, dtype=np.intp)
    if isinstance(axis, Periodic) and axis.cycle == normal.cycle:
        return _number_cells(normal, axis.cells, axis)
    if axis.count > MAX_BLOCKS:
        message = (
            f"{axis.count:,} cells of time are more than the {MAX_BLOCKS:,} of which it can be told in which of "
            f"{normal.name} each lies; take longer cells, or a shorter time"
        )
        raise InvalidQuery(message)
    starts, ends = (axis.corners, axis.corners + 1) if isinstance(axis, Instants) else blocks_of(axis)
    turns = _find_turns(normal.cycle, starts, ends)
    if isinstance(axis, Periodic):
        lowest, highest = np.full(axis.count, normal.cycle.count), np.full(axis.count, -2)
        np.minimum.at(lowest, axis.owners, turns)
        np.maximum.at(highest, axis.owners, turns)
        # A cell without a block holds nothing: wherever it lies, nothing is compared.
        turns = np.where(highest == -2, normal.cells[0], np.where(lowest == highest, highest, -1))
    if (turns < 0).any():
        message = (
            f"{_describe_cell(axis, int(np.argmax(turns < 0)))} lies in several cells of {normal.describe()}, so "
            f"that none is "
            "normal for it; take cells that each lie within one"
        )
        raise InvalidQuery(message)
    return _number_cells(normal, turns, axis)


def _find_turns(cycle: Cycle, starts: NDArray[np.int64], ends: NDArray[np.int64]) -> Numbers:
    """Return in which cell of a cycle stretches of time lie, counted from 0, -1 where in several; shape as given."""
    if not len(starts):
        return np.empty(0, dtype=np.intp)
    over = periodic(cycle, int(starts.min()), int(ends.max()))
    first = np.searchsorted(over.starts, starts, side="right") - 1
    last = np.searchsorted(over.starts, ends, side="left") - 1
    return np.where(first == last, over.owners[first], -1)


def _number_cells(normal: Periodic, cells: Numbers, axis: TimeAxis) -> Numbers:
    """Return where cells of the cycle are among those that the climatology has."""
    places = np.searchsorted(normal.cells, cells)
    missing = normal.cells[np.minimum(places, normal.count - 1)] != cells
    if missing.any():
        cell = int(np.argmax(missing))
        message = (
            f"{_describe_cell(axis, cell)} lies in no cell of {normal.describe()}: cell "
            f"{int(cells[cell]) + normal.cycle.first} of the cycle is not there"
        )
        raise InvalidQuery(message)
    return places.astype(np.intp)


def _describe_cell(axis: TimeAxis, cell: int) -> str:
    if isinstance(axis, Periodic):
        return f"cell {int(axis.labels[cell])} of {axis.describe()}"
    start = int(axis.corners[cell])
    if isinstance(axis, Instants):
        return f"the instant {format_instant(start)}"
    stop = start + axis.length if isinstance(axis, Regular) else int(axis.ends[cell])
    return f"the cell {format_instant(start)} to {format_instant(stop)}"
