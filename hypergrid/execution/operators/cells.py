"""Values of a block of cells with their counts: what flows between the steps of a run."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Cells:
    """A block: every time cell of a perspective with some cells of its space."""

    value: NDArray[np.float64]
    """Values [the perspective's unit], NaN where missing, shape (time, space)."""
    count: NDArray[np.int64]
    """Readings (or source cells, or stations) behind each value; broadcasts to the values' shape."""
    possible: NDArray[np.int64]
    """How many there could have been, 0 where that is not known; broadcasts to the values' shape."""
    variance: NDArray[np.float64] | None = None
    """Variance of the values' errors, where it was asked for, shape (time, space)."""
    variance_low: NDArray[np.float64] | None = None
    """Least that the variance may be, where it is not known and `variance` is the most; shape (time, space)."""


def mask_uncovered(
    value: NDArray[np.float64], count: NDArray[np.int64], possible: NDArray[np.int64], min_coverage: float
) -> NDArray[np.float64]:
    """Return the values, missing where fewer than a share of the possible readings are there; shapes broadcast.

    55 of 100 are 55 %, although 0.55 * 100 is 55.00000000000001: so the comparison leaves room for one rounding.
    """
    return np.where(count < min_coverage * possible * (1 - 1e-12), np.nan, value)


def select_times(cells: Cells, times: NDArray[np.intp]) -> Cells:
    """Return some time cells of a block that has no variance."""

    def pick(array: NDArray[np.int64]) -> NDArray[np.int64]:
        return array[times] if array.shape[0] > 1 else array

    return Cells(cells.value[times], pick(cells.count), pick(cells.possible))
