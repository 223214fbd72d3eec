"""Which source cells cover which target cells: interval arithmetic on axes (thesis 5.5.2, equation 5.1)."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hypergrid.core.errors import InvalidQuery
from hypergrid.topology.axes import Instants, Regular
from hypergrid.topology.bins import Bins
from hypergrid.topology.periodic import Periodic
from hypergrid.topology.time_axes import TimeAxis, TimeCells, blocks_of, sum_per_cell


@dataclass(frozen=True, eq=False)
class Cover:
    """For each target cell the source cells inside it: a half-open range, empty where there is none."""

    first: NDArray[np.int64]
    """First source cell, or first of `members`; shape (target cells,)."""
    stop: NDArray[np.int64]
    """After the last one, shape (target cells,)."""
    members: NDArray[np.intp] | None = None
    """Source cells target by target, each target's in order, where a target is several blocks; None: ranges count
    source cells themselves."""

    @property
    def sizes(self) -> NDArray[np.int64]:
        """How many source cells each target cell covers, shape (target cells,)."""
        return self.stop - self.first

    def list_members(self) -> NDArray[np.intp]:
        """Return the source cells of all target cells, target by target, shape (sum of sizes,)."""
        sizes = self.sizes
        places = np.arange(int(sizes.sum())) - np.repeat(np.cumsum(sizes) - sizes - self.first, sizes)
        return places if self.members is None else self.members[places]

    def select_targets(self, targets: NDArray[np.intp] | slice) -> "tuple[NDArray[np.intp], Cover]":
        """Return what some target cells cover.

        Parameters
        ----------
        targets
            Target cells, shape (chosen,).

        Returns
        -------
        The source cells that they need, each once, in order, shape (needed,); and their cover, which counts these.
        """
        chosen = Cover(self.first[targets], self.stop[targets], self.members)
        needed, places = np.unique(chosen.list_members(), return_inverse=True)
        if self.members is None:
            # Whatever lies between a target's first and last source cell is needed by it, so a range stays a range.
            begin = np.searchsorted(needed, chosen.first)
            return needed, Cover(begin, begin + chosen.sizes)
        stop = np.cumsum(chosen.sizes)
        return needed, Cover(stop - chosen.sizes, stop, places)


def is_location_consistent(source: TimeAxis, target: TimeCells) -> bool:
    """Return whether every target cell is exactly a union of source cells; derived, never declared.

    Instants have no extent, so any cells are unions of them. What the source leaves out between its cells belongs to
    no cell, so a target may begin and end in such a gap. Cells that come again are many times at once: nothing in time
    is a union of them.
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
        reach = ends - starts - source.length
        aligned = ((starts - source.origin) % source.step == 0) & (reach >= 0) & (reach % source.step == 0)
        return bool(aligned.all())
    edges = np.concatenate([starts, ends])
    residue = (edges - source.origin) % source.step
    outside = (edges <= source.origin) | (edges >= source.stop)
    return bool(np.all(outside | (residue == 0) | (residue >= source.length)))


def _is_consistent_throughout(source: Regular, target: Regular) -> bool:
    # Corners of the target fall on these residues of the source's step: on one, or on all multiples of a divisor.
    period = source.step if target.count == 1 else math.gcd(target.step, source.step)
    begin, end = ((edge - source.origin) % period for edge in (target.origin, target.origin + target.length))
    if source.length > source.step:
        reach = target.length - source.length
        return period == source.step and begin == 0 and reach >= 0 and reach % source.step == 0
    return all(source.length <= (residue or period) for residue in (begin, end))


def _cuts(source: Bins, edges: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Return which edges lie inside a cell, neither at its start nor at its end."""
    indices = np.searchsorted(source.starts, edges, side="left") - 1
    return (indices >= 0) & (edges < source.ends[np.maximum(indices, 0)])


def cover(source: TimeAxis, target: TimeCells) -> Cover:
    """Return the source cells that lie inside each target cell.

    Raises
    ------
    InvalidQuery
        A target cell would cut source cells: the transformation is location across, which an aggregate is not.
    """
    if not is_location_consistent(source, target):
        message = (
            f"cells of {target.name!r} ({_describe_axis(target)}) cut the source's cells "
            f"({_describe_axis(source)}), so their "
            "union is not exact; choose multiples of the source's step"
        )
        raise InvalidQuery(message)
    return cells_inside(source, target)


def cells_inside(source: TimeAxis, target: TimeCells) -> Cover:
    """Return the source cells that lie wholly inside each target cell, whether or not it cuts others."""
    starts, ends = blocks_of(target)
    first = np.searchsorted(source.corners, starts, side="left")
    if isinstance(source, Instants):
        stop = np.searchsorted(source.corners, ends, side="left")
    else:
        stop = np.searchsorted(blocks_of(source)[1], ends, side="right")
    cells = Cover(first.astype(np.int64), np.maximum(stop, first).astype(np.int64))
    return _gather_blocks(cells, target) if isinstance(target, Periodic) else cells


def _gather_blocks(of_blocks: Cover, target: Periodic) -> Cover:
    """Return the cover of cells from the cover of their blocks: each cell's members one after the other, in order."""
    order = np.argsort(target.owners, kind="stable")
    members = Cover(of_blocks.first[order], of_blocks.stop[order]).list_members()
    sizes = sum_per_cell(target, of_blocks.sizes)
    stop = np.cumsum(sizes)
    return Cover(stop - sizes, stop, members)


def _describe_axis(axis: TimeAxis) -> str:
    if isinstance(axis, Regular):
        return f"step {axis.step}, length {axis.length} {axis.quantum}"
    return "instants" if isinstance(axis, Instants) else axis.describe()
