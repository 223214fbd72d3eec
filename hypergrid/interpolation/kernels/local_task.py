"""What local kriging is asked for, and what becomes of a target."""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

SOLVED, TOO_FEW_CANDIDATES, UNSOLVED = 0, 1, 2
"""What became of a target: done; its list of candidates ended too early; a system that another way must solve."""
ESTIMATES, VARIANCES, COUNTS, WEIGHTS_OF_ONE = 0, 1, 2, 3
"""What is asked for; the last are the weights of a single mask, whose "slices" are the rows of `weight_rows`."""
LANES = 8
"""Numbers that compiled loops take at once; rows are padded to whole multiples of it."""
INDEPENDENT = 1e-5
"""Share of its size that a drift function must have of its own among the stations of a set, given those before it."""


class LocalTask(NamedTuple):
    """Slices of one group and what is wanted of them; slices with the same stations follow one another."""

    what: int
    """`ESTIMATES`, `VARIANCES`, `COUNTS` or `WEIGHTS_OF_ONE`."""
    reporting: NDArray[np.bool_]
    """Which stations report, shape (masks, stations + 1); the last stands for no station and never does."""
    changed: NDArray[np.uint64]
    """Whether a station reports in one mask and not in the one before, a bit a mask, shape (stations + 1, words)."""
    starts: NDArray[np.int64]
    """Where the slices of each mask start in `slices`, and where the last end; shape (masks + 1,)."""
    slices: NDArray[np.int64]
    """Numbers of the slices, shape (slices,)."""
    values: Floats
    """Values in these slices, less the known mean, 0 where missing, shape (stations, slices + `LANES`)."""
    shift: float
    """Added to each covariance, so that each set's matrix is positive definite; the drift's constant takes it up."""
    max_stations: int
    """Stations used at most."""
    octants: int
    """Stations used at most in each sector; 0 where any number may."""

    def select_stations(self, numbers: NDArray[np.intp]) -> "LocalTask":
        """Return the same task for some of the stations."""
        with_none = np.append(numbers, -1)
        return self._replace(
            reporting=np.ascontiguousarray(self.reporting[:, with_none]),
            changed=self.changed[with_none],
            values=self.values[numbers],
        )


class Factors(NamedTuple):
    """Sets of stations whose systems were factored, a table that the targets of a chunk share; n sets at most."""

    keys: NDArray[np.uint64]
    """Hashes of the sets, shape (2 n,);"""
    slots: NDArray[np.int32]
    """where each set is held, -1: nowhere, shape (2 n,)."""
    held: NDArray[np.int64]
    """How many sets are held, shape (1,)."""
    uppers: Floats
    """Factors, shape (n, most, most in whole `LANES`),"""
    lowers: Floats
    """and the same transposed."""
    rows: Floats
    """Drift functions solved for, shape (n, functions, most in whole `LANES`),"""
    triangles: Floats
    """and what is left of them, factored, shape (n, functions, functions)."""
    members: NDArray[np.int32]
    """Stations of each set, ascending, shape (n, most)."""
    sizes: NDArray[np.int32]
    """How many they are, shape (n,)."""
    states: NDArray[np.int8]
    """What became of each system, shape (n,)."""

    @classmethod
    def empty(cls, sets: int, maximum: int, functions: int) -> "Factors":
        """Return a table without sets; `sets`, a power of two, is how many it can hold."""
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
    """Return how many numbers say the weights of a target.

    They are the weights of its stations, as many numbers of the stations, the variance, and how many stations they are.
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
    """Return the task of masks, each with its slices, over a whole network; values have shape (slices, stations)."""
    reporting = np.zeros((len(masks), values.shape[1] + 1), dtype=bool)
    reporting[:, :-1] = [mask for mask, _ in masks]
    differs = np.zeros((-(-len(masks) // 64) * 64, values.shape[1] + 1), dtype=bool)
    differs[1 : len(masks)] = reporting[1:] != reporting[:-1]
    packed = np.packbits(np.ascontiguousarray(differs.T), axis=1, bitorder="little")
    slices = np.concatenate([own for _, own in masks]).astype(np.int64)
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
