"""Values of cells listed one cell after the other: what functions get that need more of a cell than a fold gives."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

LISTED_AT_ONCE: Final = 2**19
"""Values that are listed at once, unless a single cell has more: some ten arrays of them then take 40 MB."""


@dataclass(frozen=True, eq=False)
class ValueInstants:
    """Where in time the values along an axis stand, and how long each stands for."""

    at_days: Floats
    """Since an instant that all of them share [day], shape (n,)."""
    for_days: Floats
    """How long each stands for [day], NaN where that is not known, shape (n,)."""

    def of(self, places: NDArray[np.intp]) -> "ValueInstants":
        """Return those of some values."""
        return ValueInstants(self.at_days[places], self.for_days[places])


@dataclass(frozen=True, eq=False)
class Listing:
    """How many members each cell has, where the members of all cells are listed cell by cell."""

    sizes: NDArray[np.int64]
    """Members of each cell, shape (cells,)."""

    def total(self, numbers: Floats) -> Floats:
        """Return the sum of each cell's numbers, 0 where it has none: shape (members,) to (cells,)."""
        sums = np.zeros(len(self.sizes))
        has_members = self.sizes > 0
        if has_members.any():
            sums[has_members] = np.add.reduceat(numbers, (np.cumsum(self.sizes) - self.sizes)[has_members])
        return sums

    def mean(self, numbers: Floats) -> Floats:
        """Return the mean of each cell's numbers, 0 where it has none: shape (members,) to (cells,)."""
        return self.total(numbers) / np.maximum(self.sizes, 1)

    def repeat_per_member(self, numbers: Floats) -> Floats:
        """Return a number of each cell for each of its members: shape (cells,) to (members,)."""
        return np.repeat(numbers, self.sizes)

    def number_members(self) -> NDArray[np.int64]:
        """Return which member of its cell each is, from 0 on, shape (members,)."""
        return np.arange(int(self.sizes.sum())) - np.repeat(np.cumsum(self.sizes) - self.sizes, self.sizes)


@dataclass(frozen=True, eq=False)
class RaggedCells(Listing):
    """Values of cells, listed cell by cell, those of a cell in the order of time; none is missing."""

    value: Floats
    """Shape (members,)."""
    instants: ValueInstants | None = None
    """Of the members, for functions that are timed."""

    def table(self) -> Floats:
        """Return a row for each cell with its values in ascending order, then as much infinity as fills the row."""
        filled = np.full((len(self.sizes), int(self.sizes.max(initial=0))), np.inf)
        filled[np.repeat(np.arange(len(self.sizes)), self.sizes), self.number_members()] = self.value
        filled.sort(axis=1)
        return filled

    def columns(self, cells: NDArray[np.intp]) -> Floats:
        """Return a column for each of some cells with its values in order, then NaN, shape (largest size, cells)."""
        first = (np.cumsum(self.sizes) - self.sizes)[cells]
        rows = np.arange(int(self.sizes[cells].max(initial=0)))[:, None]
        inside = rows < self.sizes[cells]
        return np.where(inside, self.value[np.where(inside, first + rows, 0)], np.nan)

    def sort_values(self) -> Floats:
        """Return the values cell by cell, those of a cell in ascending order, shape (members,)."""
        cells, width = len(self.sizes), int(self.sizes.max(initial=0))
        # Rows of a table are sorted some five times as fast as two keys, where it is not mostly filling.
        if cells * width <= 2 * len(self.value) + 1:
            table = self.table()
            return table[np.arange(width) < self.sizes[:, None]]
        order = np.lexsort((self.value, np.repeat(np.arange(cells), self.sizes)))
        return self.value[order]


def split_pieces(sizes: NDArray[np.int64]) -> Iterator[slice]:
    """Return the cells in parts of at most `LISTED_AT_ONCE` members, or of one cell that has more.

    Where there are no cells, one part is empty.
    """
    ends = np.cumsum(sizes)
    if not len(sizes):
        yield slice(0, 0)
    begin = 0
    while begin < len(sizes):
        before = int(ends[begin - 1]) if begin else 0
        stop = max(int(np.searchsorted(ends, before + LISTED_AT_ONCE, side="right")), begin + 1)
        yield slice(begin, stop)
        begin = stop
