"""The weights of some targets under one mask: what is left of local kriging once neighbours and systems are done.

They depend on places, variogram, drift and on which stations report, never on values. So a field of few slices, as a
box of a surface is or the newest slice of a standing query, is a product with weights that were kept from the box or
the query before, for as long as the same stations report.
"""

from dataclasses import dataclass

import numpy as np
import scipy  # its parts load when they are used: most queries need none of them
from numpy.typing import NDArray

from hypergrid.interpolation.kernels.local_task import COUNTS, ESTIMATES, weight_rows
from hypergrid.interpolation.weight_cache import ALLOWED_BYTES, WEIGHTS

Floats = NDArray[np.float64]

FEW_SLICES = 8
"""Slices up to which weights are kept: more have too many masks, and are shared by loops that solve what changes."""


@dataclass(frozen=True, eq=False)
class Weights:
    """Of some targets, under one mask."""

    matrix: "scipy.sparse.csr_array"
    """Shape (targets, stations); as many numbers for each target, those beyond its stations zero."""
    variance: Floats
    """Kriging variances, NaN where too few stations may be used, shape (targets,)."""
    counts: NDArray[np.int32]
    """Stations used, 0 where they do not determine an estimate, shape (targets,)."""

    @classmethod
    def of(cls, rows: Floats, stations: int) -> "Weights":
        """Take them from the rows that `WEIGHTS_OF_ONE` gives, shape (`weight_rows(most)`, targets)."""
        max_stations, targets = (len(rows) - 2) // 2, rows.shape[1]
        # Where there is no estimate all rows are missing.
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
        """What they take [bytes]."""
        matrix = self.matrix
        arrays = (matrix.data, matrix.indices, matrix.indptr, self.variance, self.counts)
        return sum(array.nbytes for array in arrays)

    def put(self, what: int, values: Floats, slices: NDArray[np.intp], out: Floats) -> None:
        """Put estimates, variances or counts of some slices into their rows of `out`.

        Parameters
        ----------
        what
            `ESTIMATES`, `VARIANCES` or `COUNTS`.
        values
            Of every slice, less the known mean, 0 where missing, shape (slices, stations).
        """
        if what != ESTIMATES:
            out[slices] = self.counts if what == COUNTS else self.variance
            return
        lacking = self.counts == 0
        has_gaps = bool(lacking.any())
        # One after the other: of 40,000 targets three slices take 0.8 ms so, and 1.4 ms as one product.
        for number in slices.tolist():
            out[number] = self.matrix @ values[number]
            if has_gaps:
                out[number, lacking] = np.nan


def projected_bytes(targets: int, maximum: int) -> int:
    """Return what the weights of so many targets take once they are kept [bytes]."""
    return targets * (12 * maximum + 16)


def held_bytes(places: int, block: int, maximum: int, stations: int, masks: int) -> int:
    """Return what a job takes for weights: those that are kept, with neighbours, and those that are being made [bytes].

    Parameters
    ----------
    places, block
        Targets in all, and those that are asked for together.
    maximum, stations
        Stations used at most, and those that there are.
    masks
        Sets of reporting stations, at most.
    """
    if not WEIGHTS.takes(projected_bytes(places, maximum)):
        return 0
    # Each number is there twice while its array is transposed.
    making = 2 * 8 * block * weight_rows(maximum)
    chunks = 13 * places * min(stations, 12 * maximum)
    return making + min(ALLOWED_BYTES, masks * projected_bytes(places, maximum) + chunks)
