"""What walkers remember of the cells that they met: a few time cells of each."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

TIMES_COMPARED: Final = 32
"""Time cells at most, evenly spaced, that two cells are compared by: all would be a second copy of the surface."""


class Visited:
    """Values of visited cells.

    Parameters
    ----------
    cells
        Cells that there are.
    most
        Cells that can be visited.
    """

    def __init__(self, cells: int, most: int) -> None:
        self._slot = np.full(cells, -1, dtype=np.int32)
        self._values = np.empty((0, most))
        self._used = 0

    def put(self, cells: NDArray[np.intp], values: NDArray[np.float64]) -> None:
        """Take the values of cells, shape (time cells, cells), NaN where missing."""
        times = np.unique(np.linspace(0, len(values) - 1, min(len(values), TIMES_COMPARED)).astype(np.intp))
        if not len(self._values):
            self._values = np.empty((len(times), self._values.shape[1]))
        stop = self._used + len(cells)
        self._slot[cells] = np.arange(self._used, stop)
        self._values[:, self._used : stop] = values[times]
        self._used = stop

    def difference(self, first: NDArray[np.intp], second: NDArray[np.intp]) -> NDArray[np.float64]:
        """Return the mean over time of |first - second|, shape (pairs,), as far as both are there; 0 where never."""
        # Cells beyond a walk's share are met and not computed: nothing is known of them.
        known = (self._slot[first] >= 0) & (self._slot[second] >= 0)
        difference = np.zeros(len(first))
        apart = np.abs(self._values[:, self._slot[first[known]]] - self._values[:, self._slot[second[known]]])
        there = np.isfinite(apart)
        total = np.sum(apart, axis=0, where=there)
        difference[known] = total / np.maximum(np.count_nonzero(there, axis=0), 1)
        return difference
