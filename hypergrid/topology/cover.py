"""Which source cells cover which target cells: interval arithmetic on axes (thesis 5.5.2, equation 5.1)."""

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hypergrid.errors import InvalidQuery
from hypergrid.topology.axes import Instants, Regular


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

    def listed(self) -> NDArray[np.intp]:
        """Return the source cells of all target cells, target by target, shape (sum of sizes,)."""
        sizes = self.sizes
        places = np.arange(int(sizes.sum())) - np.repeat(np.cumsum(sizes) - sizes - self.first, sizes)
        return places if self.members is None else self.members[places]

    def of(self, targets: NDArray[np.intp] | slice) -> "tuple[NDArray[np.intp], Cover]":
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
        needed, places = np.unique(chosen.listed(), return_inverse=True)
        if self.members is None:
            # Whatever lies between a target's first and last source cell is needed by it, so a range stays a range.
            begin = np.searchsorted(needed, chosen.first)
            return needed, Cover(begin, begin + chosen.sizes)
        stop = np.cumsum(chosen.sizes)
        return needed, Cover(stop - chosen.sizes, stop, places)


def is_location_consistent(source: Regular | Instants, target: Regular) -> bool:
    """Return whether every target cell is exactly a union of source cells; derived, never declared.

    Instants have no extent, so any cells are unions of them. What the source leaves out between its cells belongs to
    no cell, so a target may begin and end in such a gap.
    """
    if isinstance(source, Instants):
        return True
    # Corners of the target fall on these residues of the source's step: on one, or on all multiples of a divisor.
    period = source.step if target.count == 1 else math.gcd(target.step, source.step)
    begin, end = ((edge - source.origin) % period for edge in (target.origin, target.origin + target.length))
    if source.length > source.step:
        reach = target.length - source.length
        return period == source.step and begin == 0 and reach >= 0 and reach % source.step == 0
    return all(source.length <= (residue or period) for residue in (begin, end))


def cover(source: Regular | Instants, target: Regular) -> Cover:
    """Return the source cells that lie inside each target cell.

    Raises
    ------
    InvalidQuery
        A target cell would cut source cells: the transformation is location across, which an aggregate is not.
    """
    if not is_location_consistent(source, target):
        message = (
            f"cells of {target.name!r} with step {target.step} and length {target.length} {target.quantum} cut the "
            f"source's cells (step {source.step}, length {source.length}), so their union is not exact; "  # type: ignore[union-attr]
            "choose multiples of the source's step"
        )
        raise InvalidQuery(message)
    length = 0 if isinstance(source, Instants) else source.length
    first = np.searchsorted(source.corners, target.corners, side="left")
    last_corner = target.corners + (target.length - length)
    stop = np.searchsorted(source.corners, last_corner, side="left" if length == 0 else "right")
    return Cover(first.astype(np.int64), np.maximum(stop, first).astype(np.int64))
