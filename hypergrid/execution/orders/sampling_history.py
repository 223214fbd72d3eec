"""What walkers remember of the cells that they met, a few time cells of each, and where these surprise."""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.spatial import KDTree

from hypergrid.execution.orders.estimate import NEIGHBOURS, STRETCHED

Floats = NDArray[np.float64]

TIMES_COMPARED: Final = 32
"""Time cells at most, evenly spaced, that two cells are compared by: all would be a second copy of the surface."""
CHOOSING: Final = 500
"""Visited cells at most among which the stretch is chosen."""
ROUNDED: Final = 1e-9
"""Share of the greatest value below which a surprise is rounding."""


@dataclass(frozen=True, eq=False)
class Surprises:
    """How far each visited cell is from what those around it tell."""

    cells: NDArray[np.intp]
    """The visited cells, ascending."""
    sizes: Floats
    """Their surprises over the root mean square of all; 0 where there is none."""
    tree: KDTree
    stretch: Floats

    def near(self, places: Floats) -> Floats:
        """Return how much the cells around places surprise: the share of all that surprise less, the median of a few.

        Parameters
        ----------
        places
            Rows and columns, the last axis.
        """
        shares = np.searchsorted(np.sort(self.sizes), self.sizes) / len(self.sizes)
        _, around = self.tree.query(places * self.stretch, k=range(1, min(NEIGHBOURS, len(shares)) + 1))
        return np.asarray(np.median(shares[around], axis=-1))


class Visited:
    """Values of visited cells.

    Parameters
    ----------
    columns
        Cells of a row.
    most
        Cells that can be visited.
    """

    def __init__(self, columns: int, most: int) -> None:
        self._columns = columns
        self._cells = np.empty(most, dtype=np.intp)
        self._values = np.empty((0, most))
        self._used = 0

    def put(self, cells: NDArray[np.intp], values: Floats) -> None:
        """Take the values of cells, shape (time cells, cells), NaN where missing."""
        times = np.unique(np.linspace(0, len(values) - 1, min(len(values), TIMES_COMPARED)).astype(np.intp))
        if not len(self._values):
            self._values = np.empty((len(times), self._values.shape[1]))
        stop = self._used + len(cells)
        self._cells[self._used : stop] = cells
        self._values[:, self._used : stop] = values[times]
        self._used = stop

    def surprises(self) -> Surprises:
        """Compare each cell with the mean of a few near ones, in the stretch of rows and columns that tells best."""
        # However they came: of neighbours at equal distances the first is taken.
        order = np.argsort(self._cells[: self._used])
        cells, values = self._cells[order], self._values[:, order]
        places = np.stack(np.divmod(cells, self._columns), axis=1).astype(np.float64)
        scale = np.max(np.abs(values), where=np.isfinite(values), initial=0.0)
        values = values / scale if scale > 0 else values
        some = np.unique(np.linspace(0, self._used - 1, min(self._used, CHOOSING)).astype(np.intp))
        told = [np.mean(_apart(KDTree(places[some] * one), values[:, some]) ** 2) for one in STRETCHED]
        stretch = STRETCHED[int(np.argmin(told))]
        tree = KDTree(places * stretch)
        apart = _apart(tree, values)
        apart[apart < ROUNDED] = 0.0
        usual = np.sqrt(np.mean(apart**2))
        return Surprises(cells, apart / usual if usual > 0 else apart, tree, stretch)


def _apart(tree: KDTree, values: Floats) -> Floats:
    """Return the mean over time of |value - mean of near others|, shape (cells,), as far as they are there; else 0."""
    count = values.shape[1]
    if count < 2:
        return np.zeros(count)
    distance, near = tree.query(tree.data, k=range(2, min(NEIGHBOURS, count - 1) + 2))
    there = np.isfinite(values)
    weights = there[:, near] / np.square(distance)
    total = weights.sum(axis=-1)
    expected = np.sum(weights * np.where(there, values, 0.0)[:, near], axis=-1) / np.where(total > 0, total, 1.0)
    known = there & (total > 0)
    apart = np.sum(np.abs(np.where(there, values, 0.0) - expected), axis=0, where=known)
    return np.asarray(apart / np.maximum(np.count_nonzero(known, axis=0), 1))
