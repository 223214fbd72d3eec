"""Source cells of each target cell by interval arithmetic on axes (thesis 5.5.2, equation 5.1)."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hypergrid.core.errors import InvalidQuery
from hypergrid.topology.axes import Instants, Regular
from hypergrid.topology.bins import Bins
from hypergrid.topology.periodic import Periodic
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
