"""Ordinary kriging on all stations: one system for every slice, whichever stations report.

Kriging is consistent with itself: stations that are missing from a slice are first kriged from those present, after
which the estimate from ALL stations is exactly that from those present (design section 5). With P the inverse of the
full bordered matrix, M the missing and A the present stations: `z_M = -inv(P_MM) P_MA z_A`; and the variance grows from
that of all stations by `-w_M' inv(P_MM) w_M` (Schur complement).

Estimates are taken in the dual form: P times the values once, then one product with the right-hand sides of the points.
That leaves out the weights of each point, which cost a product of stations by stations a point.
"""

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from hypergrid.kriging.masks import groups
from hypergrid.kriging.system import bordered_matrix, inverse, refuse_coincident, right_hand_side
from hypergrid.kriging.variogram import Variogram

BATCH_FLOATS = 2**21
"""Numbers in one batch of small systems (16 MiB)."""


class OrdinaryField:
    """The kriged field of many slices over one network, asked for at points."""

    def __init__(
        self,
        stations_m: NDArray[np.float64],
        values: NDArray[np.float64],
        *,
        model: Variogram,
        names: tuple[str, ...],
    ) -> None:
        refuse_coincident(stations_m, names, model)
        self._isotropic_m = model.isotropic(stations_m)
        self._model = model
        self._present = np.isfinite(values)
        self._inverse = inverse(bordered_matrix(stations_m, model))
        self.complete = self._fill(np.asarray(values, dtype=np.float64))
        """Values of every station in every slice, the missing ones kriged, NaN where no station reports."""
        self._dual = self.dual(self.complete)

    @property
    def counts(self) -> NDArray[np.int32]:
        """Stations used in each slice, shape (slices,)."""
        return np.asarray(self._present.sum(axis=1), dtype=np.int32)

    def at(self, points_m: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return estimates at points (x, y) [m], shape (slices, points); NaN where no station reports."""
        return self.carry(self._dual, points_m)

    def dual(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the dual form of values of all stations, shape (stations + 1, slices).

        Parameters
        ----------
        values
            `complete`, or linear combinations of it such as means over slices: shape (slices, stations), a row NaN as
            a whole or not at all.
        """
        return self._inverse[:, :-1] @ values.T

    def carry(self, dual: NDArray[np.float64], points_m: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the estimates of a dual form at points (x, y) [m], shape (slices, points)."""
        return dual.T @ self._sides(points_m).T

    def variance(self, points_m: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the kriging variance of the observable value, shape (slices, points)."""
        sides = self._sides(points_m)
        solved = sides @ self._inverse
        full = -np.einsum("ps,ps->p", solved, sides)
        result = np.broadcast_to(full, (len(self._present), len(points_m))).copy()
        for mask, slices in groups(self._present):
            if not mask.any():
                result[slices] = np.nan
            elif not mask.all():
                missing = np.flatnonzero(~mask)
                weights = solved[:, missing].T
                grown = np.linalg.solve(self._inverse[np.ix_(missing, missing)], weights)
                result[slices] += np.einsum("mp,mp->p", weights, grown)
        return result

    def _sides(self, points_m: NDArray[np.float64]) -> NDArray[np.float64]:
        return right_hand_side(cdist(self._model.isotropic(points_m), self._isotropic_m), self._model)

    def _fill(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        """Krige the missing stations of each slice from those present.

        Slices with equally many missing stations are solved in one batch: at 200 stations, 1,000 slices and 700 masks
        a loop over masks took 70 ms, most of it outside LAPACK.
        """
        stations = values.shape[1]
        filled = np.where(self._present, values, 0.0)
        core = self._inverse[:stations, :stations]
        carried = filled @ core
        lacking = stations - self._present.sum(axis=1)
        for count in np.unique(lacking):
            slices = np.flatnonzero(lacking == count)
            if count == stations:
                filled[slices] = np.nan
            elif count:
                step = max(1, BATCH_FLOATS // int(count) ** 2)
                for start in range(0, len(slices), step):
                    self._fill_batch(filled, carried, core, slices[start : start + step], int(count))
        return filled

    def _fill_batch(
        self,
        filled: NDArray[np.float64],
        carried: NDArray[np.float64],
        core: NDArray[np.float64],
        slices: NDArray[np.intp],
        count: int,
    ) -> None:
        missing = np.nonzero(~self._present[slices])[1].reshape(len(slices), count)
        blocks = core[missing[:, :, None], missing[:, None, :]]
        right = np.take_along_axis(carried[slices], missing, axis=1)
        filled[slices[:, None], missing] = -np.linalg.solve(blocks, right[:, :, None])[:, :, 0]
