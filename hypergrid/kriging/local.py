"""Ordinary kriging on the k nearest stations that report: one system for each distinct set of neighbours."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray
from scipy import sparse
from scipy.spatial import cKDTree

from hypergrid.kriging.masks import groups
from hypergrid.kriging.system import bordered_matrix, inverse, refuse_coincident, right_hand_side
from hypergrid.kriging.variogram import Variogram

POINTS_AT_ONCE = 4096
"""Points whose systems are held together: at 20 neighbours 4096 x 21 x 21 floats are 14 MB."""


class LocalField:
    """The field of many slices, each point kriged from its k nearest stations that report in the slice."""

    def __init__(
        self,
        stations_m: NDArray[np.float64],
        values: NDArray[np.float64],
        *,
        neighbours: int,
        model: Variogram,
        names: tuple[str, ...],
    ) -> None:
        refuse_coincident(stations_m, names, model)
        self._stations_m = stations_m
        self._isotropic_m = model.isotropic(stations_m)
        self._values = values
        self._neighbours = neighbours
        self._model = model
        self._masks = list(groups(np.isfinite(values)))

    @property
    def counts(self) -> NDArray[np.int32]:
        """Stations used in each slice, shape (slices,)."""
        present = np.count_nonzero(np.isfinite(self._values), axis=1)
        return np.asarray(np.minimum(present, self._neighbours), dtype=np.int32)

    def at(self, points_m: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return estimates at points (x, y) [m], shape (slices, points); NaN where no station reports."""
        result = np.full((len(self._values), len(points_m)), np.nan)
        stations = len(self._stations_m)
        for slices, points, near, solved, _ in self._solutions(points_m):
            rows = np.repeat(np.arange(len(near)), near.shape[1])
            weights = sparse.csr_array((solved.ravel(), (rows, near.ravel())), shape=(len(near), stations))
            # A missing station has no weight, but NaN times nothing is NaN: give it a number.
            result[slices, points] = (weights @ np.nan_to_num(self._values[slices]).T).T
        return result

    def variance(self, points_m: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the kriging variance of the observable value, shape (slices, points)."""
        result = np.full((len(self._values), len(points_m)), np.nan)
        for slices, points, _, _, variance in self._solutions(points_m):
            result[slices, points] = variance
        return result

    def _solutions(
        self, points_m: NDArray[np.float64]
    ) -> Iterator[tuple[NDArray[np.intp], slice, NDArray[np.intp], NDArray[np.float64], NDArray[np.float64]]]:
        """Yield slices, points, and for each point its stations, their weights, and its variance."""
        for mask, slices in self._masks:
            present = np.flatnonzero(mask)
            if not len(present):
                continue
            count = min(self._neighbours, len(present))
            tree = cKDTree(self._isotropic_m[present])
            for start in range(0, len(points_m), POINTS_AT_ONCE):
                points = slice(start, min(start + POINTS_AT_ONCE, len(points_m)))
                _, found = tree.query(self._model.isotropic(points_m[points]), k=count)
                near = np.sort(present[found.reshape(-1, count)], axis=1)
                weights, variance = self._solve(points_m[points], near)
                yield slices, points, near, weights, variance

    def _solve(
        self, points_m: NDArray[np.float64], near: NDArray[np.intp]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        sets, which = np.unique(near, axis=0, return_inverse=True)
        systems = inverse(bordered_matrix(self._stations_m[sets], self._model))
        distance = np.linalg.norm(self._model.isotropic(points_m)[:, None, :] - self._isotropic_m[near], axis=-1)
        sides = right_hand_side(distance, self._model)
        solved = np.einsum("pij,pj->pi", systems[which.ravel()], sides)
        return solved[:, :-1], -np.einsum("pi,pi->p", solved, sides)
