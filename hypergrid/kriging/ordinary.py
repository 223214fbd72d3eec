"""Ordinary kriging on all stations: one weight matrix for every slice, whichever stations report.

Kriging is consistent with itself: stations that are missing from a slice are first kriged from those present, after
which the weights of ALL stations give exactly the estimate of those present (design section 5). With P the inverse
of the full bordered matrix, M the missing and A the present stations: `z_M = -inv(P_MM) P_MA z_A`; and the variance
grows from that of all stations by `-w_M' inv(P_MM) w_M` (Schur complement).
"""

import numpy as np
from numpy.typing import NDArray
from scipy.spatial.distance import cdist

from hypergrid.kriging.masks import groups
from hypergrid.kriging.system import bordered_matrix, inverse, refuse_coincident, right_hand_side
from hypergrid.kriging.variogram import Variogram


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
        self._stations_m = stations_m
        self._model = model
        self._present = np.isfinite(values)
        self._inverse = inverse(bordered_matrix(stations_m, model))
        self._filled = self._fill(values)

    @property
    def counts(self) -> NDArray[np.int32]:
        """Stations used in each slice, shape (slices,)."""
        return np.asarray(self._present.sum(axis=1), dtype=np.int32)

    def at(self, points_m: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return estimates at points (x, y) [m], shape (slices, points); NaN where no station reports."""
        return self._filled @ self._weights(points_m)[:, :-1].T

    def variance(self, points_m: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the kriging variance of the observable value, shape (slices, points)."""
        solved, sides = self._weights(points_m), self._sides(points_m)
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
        return right_hand_side(cdist(points_m, self._stations_m), self._model)

    def _weights(self, points_m: NDArray[np.float64]) -> NDArray[np.float64]:
        return self._sides(points_m) @ self._inverse

    def _fill(self, values: NDArray[np.float64]) -> NDArray[np.float64]:
        filled = np.array(values, dtype=np.float64)
        for mask, slices in groups(self._present):
            missing, present = np.flatnonzero(~mask), np.flatnonzero(mask)
            if len(missing) and len(present):
                block = self._inverse[np.ix_(missing, missing)]
                carried = self._inverse[np.ix_(missing, present)] @ values[np.ix_(slices, present)].T
                filled[np.ix_(slices, missing)] = -np.linalg.solve(block, carried).T
        return filled
