"""Every kind of time axis, and what they have in common: blocks, lengths."""

import numpy as np
from numpy.typing import NDArray

from hypergrid.core.times import DAY_NS
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


def sum_per_cell(axis: TimeCells, of_blocks: Integers) -> Integers:
    """Return for each cell the sum over its blocks, shape (count,)."""
    if not isinstance(axis, Periodic):
        return of_blocks
    totals = np.zeros(axis.count, dtype=np.int64)
    np.add.at(totals, axis.owners, of_blocks)
    return totals


def _find_civil_lengths_ns(axis: TimeCells) -> Integers:
    """Return how long each block is by the clock of its zone [ns], shape (blocks,): a day of 23 hours is a day."""
    starts, ends = blocks_of(axis)
    calendar = axis.calendar if isinstance(axis, Bins) else axis.cycle.calendar if isinstance(axis, Periodic) else None
    if calendar is None or calendar.clock.zone is None or not len(starts):
        return ends - starts
    stretches = np.array(calendar.clock.stretches(int(starts.min()), int(ends.max()) + 1), dtype=np.int64)

    def local_ns(instants: Integers) -> Integers:
        shifts: Integers = stretches[np.searchsorted(stretches[:, 0], instants, side="right") - 1, 2]
        return instants + shifts

    return local_ns(ends) - local_ns(starts)


def count_fitting_intervals(axis: TimeCells, interval_ns: int) -> Integers:
    """Return how many intervals fit into each cell, shape (count,); days are those of the axis's clock.

    A block that the edge of the axis cuts short counts as what fits into it; blocks that are all shorter than the
    interval, as the hours of the day are for readings every three hours, may hold one each.
    """
    starts, ends = blocks_of(axis)
    lengths = ends - starts if interval_ns % DAY_NS else _find_civil_lengths_ns(axis)
    counts = sum_per_cell(axis, lengths // interval_ns)
    # What is over all instants ends a nanosecond after the last, which it holds.
    closing = sum_per_cell(axis, (lengths % interval_ns == 1).astype(np.int64))
    return np.where(counts > 0, counts + closing, sum_per_cell(axis, np.ones_like(lengths)))


def shortest_ns(axis: TimeCells) -> int:
    """Return the length of the shortest cell [ns]; of a periodic axis, of a block that nothing cuts."""
    if isinstance(axis, Regular):
        # Before any list of its cells: an axis that is refused a moment later may have 10^13.
        return axis.length
    starts, ends = blocks_of(axis)
    if not len(starts):
        return 1
    return int((ends - starts).max() if isinstance(axis, Periodic) else (ends - starts).min())
