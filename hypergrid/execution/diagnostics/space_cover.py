"""Which cells of a space cover which, as ranges over pairs, with what each pair weighs."""

from dataclasses import dataclass

import numpy as np
import scipy  # its parts load when they are used: most queries need none of them
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class SpaceCover:
    """Which source cells each target cell of a block covers, as ranges over a list of pairs."""

    needed: NDArray[np.intp]
    """Flat source cells that the block needs, each once, shape (needed,)."""
    members: NDArray[np.intp]
    """Positions in `needed`, target by target, shape (pairs,)."""
    first: NDArray[np.int64]
    """First pair of each target cell, shape (targets,)."""
    stop: NDArray[np.int64]
    """After its last pair, shape (targets,)."""
    full: NDArray[np.int64]
    """Source cells under a whole target cell, shape (targets,), or (1,) where they are the same for all."""
    weights: Floats | None = None
    """What each pair weighs in the aggregate, shape (pairs,); None where all weigh alike."""
    of_sum: bool = False
    """Whether weights are shares in a sum; else they matter relative to each other, as in a mean."""
    parts: Floats | None = None
    """Share of its target's area that each pair stands for, shape (pairs,); None where coverage counts cells."""

    def matrix(self, data: Floats | None) -> "scipy.sparse.csr_array":
        """Return numbers of the pairs, 1 for None, as a matrix of shape (targets, needed)."""
        data = np.ones(len(self.members)) if data is None else data
        pointers = np.append(self.first, self.stop[-1:])
        return scipy.sparse.csr_array((data, self.members, pointers), (len(self.first), len(self.needed)))

    def sum_weighted(self, folded: Floats, count: NDArray[np.int64]) -> Floats:
        """Return weighted sums over the pairs of each target.

        Where weights matter relative to each other, those of what is present are scaled to add up to its count: what
        makes a mean of a sum and a count, then makes a weighted one.

        Parameters
        ----------
        folded
            Sums, 0 where there is nothing, shape (needed, n).
        count
            How many values each is of, shape (needed, n), or (1, n) where it is the same for all.
        """
        matrix = self.matrix(self.weights)
        sums = matrix @ folded
        if self.of_sum:
            return np.asarray(sums)
        mass, number = _sum_totals(matrix, count), _sum_totals(self.matrix(None), count)
        return np.asarray(sums * (number / np.where(mass > 0, mass, 1.0)))

    def sum_counts(self, count: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the sums of counts, shape (targets, n), of counts as `weighted` takes them."""
        return np.rint(_sum_totals(self.matrix(None), count)).astype(np.int64)

    def coverage(self, count: NDArray[np.int64], slices: NDArray[np.int64]) -> Floats:
        """Return the share of each target, by area and over time, that has values, shape (targets, n).

        Parameters
        ----------
        count
            Slices of each source cell that have a value, shape (needed, n) or (1, n).
        slices
            How many a target cell could have, shape (1, n) or (1, 1).
        """
        return _sum_totals(self.matrix(self.parts), count) / np.maximum(slices, 1)


def _sum_totals(matrix: "scipy.sparse.csr_array", count: NDArray[np.int64]) -> Floats:
    if len(count) == 1:
        return np.asarray(matrix.sum(axis=1))[:, None] * count
    return np.asarray(matrix @ count.astype(np.float64))
