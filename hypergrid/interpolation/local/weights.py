"""Sparse kriging weights of some targets under one mask, cached between queries.

They depend on places, variogram, drift and the mask, never on values. A field of few slices, such as a block of a
surface or the newest slice of a standing query, is therefore a product with weights cached by the previous block or
query, as long as the same stations report.
"""

from dataclasses import dataclass

import numpy as np
import scipy  # submodules load on first use: most queries need none
from numpy.typing import NDArray

from hypergrid.interpolation.kernels.local_task import COUNTS, ESTIMATES, weight_rows
from hypergrid.interpolation.points import Floats
from hypergrid.interpolation.weight_cache import ALLOWED_BYTES, WEIGHTS

# More slices have too many masks; the loops then solve only what changes between them.
FEW_SLICES = 8
"""Maximum slices for which weights are cached."""


@dataclass(frozen=True, eq=False)
class Weights:
    """Kriging weights of some targets under one mask."""

    matrix: "scipy.sparse.csr_array"
    """Shape (targets, stations); equally many entries per target, zero beyond its stations."""
    variance: Floats
    """Kriging variances, NaN where too few stations qualify, shape (targets,)."""
    counts: NDArray[np.int32]
    """Stations used, 0 where they do not determine an estimate, shape (targets,)."""

    @classmethod
    def of(cls, rows: Floats, stations: int) -> "Weights":
        """Build from rows of `WEIGHTS_OF_ONE`, shape (`weight_rows(most)`, targets); overwrites their NaN with 0."""
        max_stations, targets = (len(rows) - 2) // 2, rows.shape[1]
        # Targets without an estimate have NaN in all rows.
        np.nan_to_num(rows, copy=False, nan=0.0)
        counts = rows[-1].astype(np.int32)
        parts = (
            rows[:max_stations].T.ravel(),
            rows[max_stations : 2 * max_stations].T.astype(np.int32).ravel(),
            np.arange(0, max_stations * targets + 1, max_stations, dtype=np.int32),
        )
        matrix = scipy.sparse.csr_array(parts, shape=(targets, stations))
        return cls(matrix, np.where(counts > 0, rows[-2], np.nan), counts)

    @property
    def nbytes(self) -> int:
        """Memory used [bytes]."""
        matrix = self.matrix
        arrays = (matrix.data, matrix.indices, matrix.indptr, self.variance, self.counts)
        return sum(array.nbytes for array in arrays)

    def put(self, what: int, values: Floats, slices: NDArray[np.intp], out: Floats) -> None:
        """Write estimates, variances or counts of some slices into their rows of `out`.

        Parameters
        ----------
        what
            `ESTIMATES`, `VARIANCES` or `COUNTS`.
        values
            Values of every slice minus the known mean, 0 where missing, shape (slices, stations).
        """
        if what != ESTIMATES:
            out[slices] = self.counts if what == COUNTS else self.variance
            return
        lacking = self.counts == 0
        has_gaps = bool(lacking.any())
        # Slice by slice: three slices of 40,000 targets take 0.8 ms, and 1.4 ms as one product.
        for number in slices.tolist():
            out[number] = self.matrix @ values[number]
            if has_gaps:
                out[number, lacking] = np.nan


def projected_bytes(targets: int, maximum: int) -> int:
    """Project the size of the cached weights of `targets` targets [bytes]."""
    return targets * (12 * maximum + 16)


def held_bytes(places: int, block: int, maximum: int, stations: int, masks: int) -> int:
    """Project the memory for weights: cached ones, with neighbours, and those under construction [bytes].

    Parameters
    ----------
    places, block
        Targets in all, and those estimated together.
    maximum, stations
        Maximum stations used per target, and stations in all.
    masks
        Maximum number of masks.
    """
    if not WEIGHTS.takes(projected_bytes(places, maximum)):
        return 0
    # Transposing an array holds each number twice.
    making = 2 * 8 * block * weight_rows(maximum)
    chunks = 13 * places * min(stations, 12 * maximum)
    return making + min(ALLOWED_BYTES, masks * projected_bytes(places, maximum) + chunks)
