"""Source cells of each target cell by interval arithmetic on axes (thesis 5.5.2, equation 5.1).

Also the cell of a climatology that contains each cell of a time axis.
"""

import math
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from hypergrid.core.errors import InvalidQuery
from hypergrid.core.times import format_instant
from hypergrid.topology.axes import Instants, Regular
from hypergrid.topology.bins import Bins
from hypergrid.topology.civil import MAX_BLOCKS
from hypergrid.topology.periodic import Cycle, Periodic, periodic
from hypergrid.topology.topology import TimeAxis, TimeCells, blocks_of, sum_per_cell


@dataclass(frozen=True, eq=False)
class Cover:
    """Half-open range of source cells inside each target cell; empty ranges are allowed."""

    first: NDArray[np.int64]
    """First source cell, or first index into `members`; shape (target cells,)."""
    stop: NDArray[np.int64]
    """End of the range (exclusive), shape (target cells,)."""
    members: NDArray[np.intp] | None = None
    """Source cells grouped by target, in order, for targets of several blocks; None: the ranges index source cells."""

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Number of source cells per target cell, shape (target cells,)."""
        return self.stop - self.first

    def list_members(self) -> NDArray[np.intp]:
        """Return the source cells of all targets, target by target, shape (sum of sizes,)."""
        sizes = self.sizes
        places = np.arange(int(sizes.sum())) - np.repeat(np.cumsum(sizes) - sizes - self.first, sizes)
        return places if self.members is None else self.members[places]

    def select_targets(self, targets: NDArray[np.intp] | slice) -> "tuple[NDArray[np.intp], Cover]":
        """Restrict the cover to some target cells.

        Parameters
        ----------
        targets
            Target cells, shape (chosen,).

        Returns
        -------
        The unique source cells needed, in order, shape (needed,), and their cover, which indexes into these.
        """
        chosen = Cover(self.first[targets], self.stop[targets], self.members)
        needed, places = np.unique(chosen.list_members(), return_inverse=True)
        if self.members is None:
            # Every cell between the first and last source cell of a target is needed, so ranges stay contiguous.
            begin = np.searchsorted(needed, chosen.first)
            return needed, Cover(begin, begin + chosen.sizes)
        stop = np.cumsum(chosen.sizes)
        return needed, Cover(stop - chosen.sizes, stop, places)


def is_location_consistent(source: TimeAxis, target: TimeCells) -> bool:
    """Return whether every target cell is exactly a union of source cells.

    This is derived from the axes, never declared. Instants have no extent, so any cell is a union of them. Gaps between
    source cells belong to no cell, so a target may start or end in one. No cell is a union of periodic cells, each of
    which is many disjoint times.
    """
    if isinstance(source, Instants):
        return True
    if isinstance(source, Periodic):
        return False
    if isinstance(source, Regular) and isinstance(target, Regular):
        return _is_consistent_throughout(source, target)
    starts, ends = blocks_of(target)
    if isinstance(source, Bins):
        return not (_cuts(source, starts).any() or _cuts(source, ends).any())
    if source.length > source.step:
        # Overlapping source cells: a target must start at a corner and end with a cell.
        reach = ends - starts - source.length
        aligned = ((starts - source.origin) % source.step == 0) & (reach >= 0) & (reach % source.step == 0)
        return bool(aligned.all())
    edges = np.concatenate([starts, ends])
    residue = (edges - source.origin) % source.step
    outside = (edges <= source.origin) | (edges >= source.stop)
    return bool(np.all(outside | (residue == 0) | (residue >= source.length)))


def _is_consistent_throughout(source: Regular, target: Regular) -> bool:
    # Residues of target corners modulo the source step: a single one, or all multiples of the gcd.
    period = source.step if target.count == 1 else math.gcd(target.step, source.step)
    begin, end = ((edge - source.origin) % period for edge in (target.origin, target.origin + target.length))
    if source.length > source.step:
        reach = target.length - source.length
        return period == source.step and begin == 0 and reach >= 0 and reach % source.step == 0
    return all(source.length <= (residue or period) for residue in (begin, end))


def _cuts(source: Bins, edges: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which edges lie strictly inside a cell."""
    # side="left": an edge at the start of a cell does not cut it.
    indices = np.searchsorted(source.starts, edges, side="left") - 1
    return (indices >= 0) & (edges < source.ends[np.maximum(indices, 0)])


def cover(source: TimeAxis, target: TimeCells) -> Cover:
    """Return the source cells inside each target cell.

    Raises
    ------
    InvalidQuery
        A target cell would cut source cells (the transformation is location across, which an aggregate is not).
    """
    if not is_location_consistent(source, target):
        raise InvalidQuery(
            f"cells of {target.name!r} ({_describe_axis(target)}) cut the source's cells "
            f"({_describe_axis(source)}), so their "
            "union is not exact; choose multiples of the source's step"
        )
    return cells_inside(source, target)


def cells_inside(source: TimeAxis, target: TimeCells) -> Cover:
    """Return the source cells entirely inside each target cell, even if it cuts others."""
    starts, ends = blocks_of(target)
    first = np.searchsorted(source.corners, starts, side="left")
    if isinstance(source, Instants):
        stop = np.searchsorted(source.corners, ends, side="left")
    else:
        # side="right" includes a cell that ends exactly with the target.
        stop = np.searchsorted(blocks_of(source)[1], ends, side="right")
    # A target within a source cell has an empty range.
    cells = Cover(first.astype(np.int64), np.maximum(stop, first).astype(np.int64))
    return _gather_blocks(cells, target) if isinstance(target, Periodic) else cells


def _gather_blocks(of_blocks: Cover, target: Periodic) -> Cover:
    """Combine the covers of blocks into covers of cells, members in block order."""
    order = np.argsort(target.owners, kind="stable")
    members = Cover(of_blocks.first[order], of_blocks.stop[order]).list_members()
    sizes = sum_per_cell(target, of_blocks.sizes)
    stop = np.cumsum(sizes)
    return Cover(stop - sizes, stop, members)


def _describe_axis(axis: TimeAxis) -> str:
    if isinstance(axis, Regular):
        return f"step {axis.step}, length {axis.length} {axis.quantum}"
    return "instants" if isinstance(axis, Instants) else axis.describe()


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
