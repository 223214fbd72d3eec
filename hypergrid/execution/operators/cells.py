"""Values of a block of cells with their counts, passed between steps of a run."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True, eq=False)
class Cells:
    """A block: all time cells of a perspective for some cells of its space."""

    value: NDArray[np.float64]
    """Values [the perspective's unit], NaN where missing, shape (time, space)."""
    count: NDArray[np.int64]
    """Readings (or source cells, or stations) behind each value; broadcasts to the shape of `value`."""
    possible: NDArray[np.int64]
    """The most that `count` could be, 0 if unknown; broadcasts to the shape of `value`."""
    variance: NDArray[np.float64] | None = None
    """Error variance of the values, if requested, shape (time, space)."""
    variance_low: NDArray[np.float64] | None = None
    """Lower bound of the variance, if it is bracketed and `variance` is the upper bound; shape (time, space)."""


def mask_uncovered(
    value: NDArray[np.float64], count: NDArray[np.int64], possible: NDArray[np.int64], min_coverage: float
) -> NDArray[np.float64]:
    """Mask values with less than a minimum share of the possible readings; shapes broadcast."""
    # 55 of 100 are 55 %, although 0.55 * 100 is 55.00000000000001: leave room for one rounding.
    return np.where(count < min_coverage * possible * (1 - 1e-12), np.nan, value)


def select_times(cells: Cells, times: NDArray[np.intp]) -> Cells:
    """Select some time cells of a block without variance."""

    def pick(array: NDArray[np.int64]) -> NDArray[np.int64]:
        return array[times] if array.shape[0] > 1 else array

    return Cells(cells.value[times], pick(cells.count), pick(cells.possible))
