"""Values of a block of cells with their counts, dense, or sparse where many are missing (thesis 5.7.2.2)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

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

    def select_times(self, times: NDArray[np.intp] | None) -> "Cells":
        """Select some time cells, and drop the variance; None for all."""
        if times is None:
            return self
        return Cells(self.value[times], _take(self.count, times, axis=0), _take(self.possible, times, axis=0))

    def select_places(self, places: NDArray[np.intp] | slice) -> "Cells":
        """Select some places, and drop the variance."""
        return Cells(self.value[:, places], _take(self.count, places, axis=1), _take(self.possible, places, axis=1))


def join_places(parts: Sequence[Cells]) -> Cells:
    """Join blocks of the same time cells, without variances, beside one another."""

    def join(counts: list[NDArray[np.int64]]) -> NDArray[np.int64]:
        # One column serves all places if it is that of every part.
        if all(each.shape == counts[0].shape and each.shape[1] == 1 and (each == counts[0]).all() for each in counts):
            return counts[0]
        rows = max(len(each) for each in counts)
        whole = [np.broadcast_to(each, (rows, part.value.shape[1])) for each, part in zip(counts, parts, strict=True)]
        return np.concatenate(whole, axis=1)

    if len(parts) == 1:
        return parts[0]
    value = np.concatenate([part.value for part in parts], axis=1)
    return Cells(value, join([part.count for part in parts]), join([part.possible for part in parts]))


def _take(counts: NDArray[np.int64], cells: NDArray[np.intp] | slice, axis: int) -> NDArray[np.int64]:
    # One row or column serves all cells.
    if counts.shape[axis] == 1:
        return counts
    return counts[cells] if axis == 0 else counts[:, cells]


def mask_uncovered(
    value: NDArray[np.float64], count: NDArray[np.int64], possible: NDArray[np.int64], min_coverage: float
) -> NDArray[np.float64]:
    """Mask values with less than a minimum share of the possible readings; shapes broadcast."""
    # 55 of 100 are 55 %, although 0.55 * 100 is 55.00000000000001: leave room for one rounding.
    return np.where(count < min_coverage * possible * (1 - 1e-12), np.nan, value)


FUSED_VALUES: Final = 2**16
"""Approximate number of values of a map that are converted and aggregated at once: half a MB."""
SPARSE_BELOW: Final = 0.3
"""Density below which indices and values together take less memory than a dense array."""


@dataclass(frozen=True, eq=False)
class SparseArray:
    """An array, shape (time, places), that stores only its non-empty cells."""

    index: NDArray[np.int64]
    """Flat indices of the non-empty cells, increasing, shape (n,)."""
    values: NDArray[np.float64]
    """Shape (n,)."""
    shape: tuple[int, int]
    empty: float
    """Value of all other cells."""

    @classmethod
    def of(cls, array: NDArray[np.float64], filled: NDArray[np.bool_], empty: float) -> "SparseArray":
        index = np.flatnonzero(filled)
        rows, columns = array.shape
        return cls(index, array.ravel()[index], (rows, columns), empty)

    def select_times(self, times: NDArray[np.intp] | None) -> NDArray[np.float64]:
        """Return some time cells, or all, as a dense array."""
        rows, columns = self.shape
        if times is None:
            whole = np.full(self.shape, self.empty)
            whole.ravel()[self.index] = self.values
            return whole
        begins = np.searchsorted(self.index, times * columns)
        sizes = np.searchsorted(self.index, (times + 1) * columns) - begins
        row = np.repeat(np.arange(len(times)), sizes)
        taken = np.arange(int(sizes.sum())) - np.repeat(np.cumsum(sizes) - sizes - begins, sizes)
        part = np.full((len(times), columns), self.empty)
        part[row, self.index[taken] % columns] = self.values[taken]
        return part


@dataclass(frozen=True, eq=False)
class SparseCells:
    """Cells of a materialised perspective, with sparse values and counts."""

    value: SparseArray
    count: SparseArray
    possible: NDArray[np.int64]

    def select_times(self, times: NDArray[np.intp] | None) -> Cells:
        possible = self.possible if times is None or len(self.possible) == 1 else self.possible[times]
        return Cells(self.value.select_times(times), self.count.select_times(times).astype(np.int64), possible)


def store_sparse(cells: Cells) -> Cells | SparseCells:
    """Store cells sparsely if few are present and counts are per cell, else densely."""
    present = np.isfinite(cells.value)
    counted = np.count_nonzero(cells.count) if cells.count.shape == cells.value.shape else cells.value.size
    if max(np.count_nonzero(present), counted) >= SPARSE_BELOW * cells.value.size:
        return cells
    return SparseCells(
        SparseArray.of(cells.value, present, np.nan),
        SparseArray.of(cells.count.astype(np.float64), cells.count != 0, 0.0),
        cells.possible,
    )
