"""Every kind of time axis, and what they have in common: blocks, lengths."""

import numpy as np
from numpy.typing import NDArray

from hypergrid.topology.axes import Instants, Regular
from hypergrid.topology.bins import Bins
from hypergrid.topology.periodic import Periodic

Integers = NDArray[np.int64]

TimeCells = Regular | Bins | Periodic
"""Axes whose cells have an extent, so that something can be aggregated to them."""

TimeAxis = TimeCells | Instants


def blocks_of(axis: TimeCells) -> tuple[Integers, Integers]:
    """Return starts and ends of the blocks of time that cells are made of, in order, shape (blocks,) each.

    Each cell is one block, those of `Periodic` as many as its `owners` say.
    """
    if isinstance(axis, Regular):
        return axis.corners, axis.corners + axis.length
    return axis.starts, axis.ends


def per_cell(axis: TimeCells, of_blocks: Integers) -> Integers:
    """Return for each cell the sum over its blocks, shape (count,)."""
    if not isinstance(axis, Periodic):
        return of_blocks
    found = np.zeros(axis.count, dtype=np.int64)
    np.add.at(found, axis.owners, of_blocks)
    return found


def per_cell_at_least_one(axis: TimeCells, of_blocks: Integers) -> Integers:
    """Return for each cell the sum over its blocks, or where that is 0, one a block, shape (count,).

    A block that the edge of the axis cuts short counts as what fits into it; blocks that are all shorter than the
    interval of what is counted, as the hours of the day of readings every three hours, may hold one each.
    """
    counts = per_cell(axis, of_blocks)
    return np.where(counts > 0, counts, per_cell(axis, np.ones_like(of_blocks)))


def shortest_ns(axis: TimeCells) -> int:
    """Return the length of the shortest cell [ns]; of a periodic axis, of a block that nothing cuts."""
    if isinstance(axis, Regular):
        # Before any list of its cells: an axis that is refused a moment later may have 10^13.
        return axis.length
    starts, ends = blocks_of(axis)
    if not len(starts):
        return 1
    return int((ends - starts).max() if isinstance(axis, Periodic) else (ends - starts).min())
