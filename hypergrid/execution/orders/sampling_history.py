"""What walkers remember of the cells that they met, a few time cells of each, and where these surprise."""

from dataclasses import dataclass
from typing import Final

import numpy as np
import scipy  # its parts load when they are used: most queries need none of them
from numpy.typing import NDArray

from hypergrid.execution.orders.estimate import NEIGHBOURS, STRETCH_SCALES

Floats = NDArray[np.float64]

TIMES_COMPARED: Final = 32
"""Time cells at most, evenly spaced, that two cells are compared by: all would be a second copy of the surface."""
STRETCH_SAMPLE: Final = 500
"""SamplingHistory cells at most among which the stretch is chosen."""
ROUNDING: Final = 1e-9
"""Share of the greatest value below which a surprise is rounding."""


@dataclass(frozen=True, eq=False)
class PredictionErrors:
    """How far each visited cell is from what those around it tell."""

    cells: NDArray[np.intp]
    """The visited cells, ascending."""
    sizes: Floats
    """Their surprises over the root mean square of all; 0 where there is none."""
    tree: "scipy.spatial.KDTree"
    stretch: Floats

    def rank_near(self, places: Floats) -> Floats:
        """Return how much the cells around places surprise: the share of all that surprise less, the median of a few.

        Parameters
        ----------
        places
            Rows and columns, the last axis.
        """
        shares = np.searchsorted(np.sort(self.sizes), self.sizes) / len(self.sizes)
        _, around = self.tree.query(places * self.stretch, k=range(1, min(NEIGHBOURS, len(shares)) + 1))
        return np.asarray(np.median(shares[around], axis=-1))


class SamplingHistory:
    """Values of visited cells.

    Parameters
    ----------
    columns
        Cells of a row.
    most
        Cells that can be visited.
    """

    def __init__(self, columns: int, maximum: int) -> None:
        self._columns = columns
        self._cells = np.empty(maximum, dtype=np.intp)
        self._values = np.empty((0, maximum))
        self._count = 0

    def add_values(self, cells: NDArray[np.intp], values: Floats) -> None:
        """Take the values of cells, shape (time cells, cells), NaN where missing."""
        times = np.unique(np.linspace(0, len(values) - 1, min(len(values), TIMES_COMPARED)).astype(np.intp))
        if not len(self._values):
            self._values = np.empty((len(times), self._values.shape[1]))
        stop = self._count + len(cells)
        self._cells[self._count : stop] = cells
        self._values[:, self._count : stop] = values[times]
        self._count = stop

    def find_errors(self) -> PredictionErrors:
        """Compare each cell with the mean of a few near ones, in the stretch of rows and columns that tells best."""
        # However they came: of neighbours at equal distances the first is taken.
        order = np.argsort(self._cells[: self._count])
        cells, values = self._cells[order], self._values[:, order]
        places = np.stack(np.divmod(cells, self._columns), axis=1).astype(np.float64)
        scale = np.max(np.abs(values), where=np.isfinite(values), initial=0.0)
        values = values / scale if scale > 0 else values
        sample = np.unique(np.linspace(0, self._count - 1, min(self._count, STRETCH_SAMPLE)).astype(np.intp))
        errors = [
            np.mean(_find_deviations(scipy.spatial.KDTree(places[sample] * candidate), values[:, sample]) ** 2)
            for candidate in STRETCH_SCALES
        ]
        stretch = STRETCH_SCALES[int(np.argmin(errors))]
        tree = scipy.spatial.KDTree(places * stretch)
        deviations = _find_deviations(tree, values)
        deviations[deviations < ROUNDING] = 0.0
        usual = np.sqrt(np.mean(deviations**2))
        return PredictionErrors(cells, deviations / usual if usual > 0 else deviations, tree, stretch)


def _find_deviations(tree: "scipy.spatial.KDTree", values: Floats) -> Floats:
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
    deviations = np.sum(np.abs(np.where(there, values, 0.0) - expected), axis=0, where=known)
    return np.asarray(deviations / np.maximum(np.count_nonzero(known, axis=0), 1))
