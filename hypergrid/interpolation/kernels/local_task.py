"""Inputs, outputs and factor cache of the local kriging kernels."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

SOLVED, TOO_FEW_CANDIDATES, UNSOLVED = 0, 1, 2
"""Status of a target: solved; candidate list too short; system left to another solver."""
ESTIMATES, VARIANCES, COUNTS, WEIGHTS_OF_ONE = 0, 1, 2, 3
"""Requested result.

`WEIGHTS_OF_ONE` writes the weights of a single mask, as `weight_rows` rows instead of slices.
"""
LANES = 8
"""Numbers per iteration of the compiled loops; rows are padded to a multiple of it."""
INDEPENDENT = 1e-5
"""Least share of a drift function's size that must be independent of those before it."""


class LocalTask(NamedTuple):
    """Slices of one group and the requested result; slices with the same mask are consecutive."""

    what: int
    """`ESTIMATES`, `VARIANCES`, `COUNTS` or `WEIGHTS_OF_ONE`."""
    reporting: NDArray[np.bool_]
    """Which stations report, shape (masks, stations + 1); the last column is padding and always False."""
    changed: NDArray[np.uint64]
    """Bit per mask: whether a station reports in exactly one of it and its predecessor; shape (stations + 1, words)."""
    starts: NDArray[np.int64]
    """Start of each mask's slices in `slices`, and the end of the last; shape (masks + 1,)."""
    slices: NDArray[np.int64]
    """Indices of the slices, shape (slices,)."""
    values: Floats
    """Values in these slices minus the known mean, 0 where missing, shape (stations, slices + `LANES`)."""
    # Makes each set's matrix positive definite; the constant drift absorbs it.
    shift: float
    """Constant added to each covariance."""
    max_stations: int
    """Maximum stations used per target."""
    octants: int
    """Maximum stations used per sector; 0 for no limit."""

    def select_stations(self, numbers: NDArray[np.intp]) -> "LocalTask":
        """Restrict the task to some stations."""
        with_none = np.append(numbers, -1)
        return self._replace(
            reporting=np.ascontiguousarray(self.reporting[:, with_none]),
            changed=self.changed[with_none],
            values=self.values[numbers],
        )


class ChunkOutput(NamedTuple):
    """Arrays into which the solvers write the results of a chunk's targets."""

    rows: Floats
    """Estimates, variances or counts, one row per slice; valid where `status` is `SOLVED`."""
    columns: NDArray[np.int64]
    """Column of each target in `rows`, shape (targets,)."""
    status: NDArray[np.int8]
    """Status of each target, `SOLVED` at first, shape (targets,)."""


class Factors(NamedTuple):
    """Table of factored station sets, shared by the targets of a chunk; capacity n sets."""

    keys: NDArray[np.uint64]
    """Hashes of the sets, shape (2 n,)."""
    slots: NDArray[np.int32]
    """Row of each set, -1 if empty, shape (2 n,)."""
    held: NDArray[np.int64]
    """Number of sets held, shape (1,)."""
    uppers: Floats
    """Factors, shape (n, most, most padded to `LANES`)."""
    lowers: Floats
    """The same factors, transposed."""
    rows: Floats
    """Orthonormalised solutions for the drift functions, shape (n, functions, most padded to `LANES`)."""
    triangles: Floats
    """Triangular factors of those solutions, shape (n, functions, functions)."""
    members: NDArray[np.int32]
    """Stations of each set, ascending, shape (n, most)."""
    sizes: NDArray[np.int32]
    """Stations per set, shape (n,)."""
    states: NDArray[np.int8]
    """Outcome of each factorisation, shape (n,)."""

    @classmethod
    def empty(cls, sets: int, maximum: int, functions: int) -> "Factors":
        """Allocate an empty table for `sets` sets, a power of two."""
        padded = (maximum + LANES - 1) & -LANES
        return cls(
            keys=np.zeros(2 * sets, dtype=np.uint64),
            slots=np.full(2 * sets, -1, dtype=np.int32),
            held=np.zeros(1, dtype=np.int64),
            uppers=np.empty((sets, maximum, padded)),
            lowers=np.zeros((sets, maximum, padded)),
            rows=np.empty((sets, functions, padded)),
            triangles=np.empty((sets, functions, functions)),
            members=np.empty((sets, maximum), dtype=np.int32),
            sizes=np.empty(sets, dtype=np.int32),
            states=np.empty(sets, dtype=np.int8),
        )


def weight_rows(maximum: int) -> int:
    """Count the rows that encode the weights of a target.

    They are the weights of its stations, the indices of these stations, the variance, and the number of stations.
    """
    return 2 * maximum + 2


def task_of(
    what: int,
    masks: list[tuple[NDArray[np.bool_], NDArray[np.intp]]],
    values: Floats,
    shift: float,
    maximum: int,
    octants: int,
) -> LocalTask:
    """Build the task of masks, each with its slices, over a network; values have shape (slices, stations)."""
    reporting = np.zeros((len(masks), values.shape[1] + 1), dtype=bool)
    reporting[:, :-1] = [mask for mask, _ in masks]
    differs = np.zeros((-(-len(masks) // 64) * 64, values.shape[1] + 1), dtype=bool)
    differs[1 : len(masks)] = reporting[1:] != reporting[:-1]
    packed = np.packbits(np.ascontiguousarray(differs.T), axis=1, bitorder="little")
    slices = np.concatenate([own for _, own in masks]).astype(np.int64)
    # Padded, because the loops read and write whole blocks of `LANES`.
    by_station = np.zeros((values.shape[1], len(slices) + LANES))
    by_station[:, : len(slices)] = values[slices].T
    return LocalTask(
        what=what,
        reporting=reporting,
        changed=packed.view("<u8").astype(np.uint64),
        starts=np.cumsum([0, *(len(own) for _, own in masks)]).astype(np.int64),
        slices=slices,
        values=by_station,
        shift=shift,
        max_stations=maximum,
        octants=octants,
    )
