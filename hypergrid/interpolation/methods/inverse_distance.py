"""Inverse distance weights (Shepard 1968), and the nearest station as their simplest case.

An estimate is the mean of the values present, each weighted by its distance to the power of -p; where a station
reports at the point itself its value is the estimate. The weights of all stations are made once for all slices: a
slice divides by the sum over those that report in it, so a thousand slices are one matrix product.
"""

from collections.abc import Iterator

import numpy as np
import scipy  # its parts load when they are used: most queries need none of them
from numpy.typing import NDArray

from hypergrid.core.geodesy import arc_m
from hypergrid.interpolation.methods.sparse_weights import WithoutVariance, apply_weights
from hypergrid.interpolation.points.distance import COINCIDENT_M, are_on_sphere, separations
from hypergrid.interpolation.points.points import Targets
from hypergrid.interpolation.solvers.masks import group_masks

LARGEST_POWER = 16.0
"""Beyond, weights of stations a few thousand kilometres away underflow; the nearest station decides long before."""

MASKS_AT_ONCE = 64
"""Sets of stations whose weights are summed in one matrix product: their sums take as much memory as 64 slices."""


class InverseDistanceField(WithoutVariance):
    """The field of many slices by inverse distance, from all stations, those within a radius, or the k nearest."""

    def __init__(
        self,
        stations_m: NDArray[np.float64],
        values: NDArray[np.float64],
        *,
        method: str,
        power: float,
        neighbours: int | None = None,
        radius_m: float | None = None,
    ) -> None:
        self.method = method
        self._stations_m = stations_m
        self._values = values
        self._power = power
        self._neighbours = neighbours if neighbours is not None and neighbours < len(stations_m) else None
        self._radius_m = np.inf if radius_m is None else radius_m
        self._present = np.isfinite(values)
        self._masks = [(np.flatnonzero(mask), slices) for mask, slices in group_masks(self._present)]

    @property
    def counts(self) -> NDArray[np.int32]:
        """Stations that a point may use at most in each slice, shape (slices,); `counts_at` knows each point's."""
        present = self._present.sum(axis=1)
        return np.asarray(np.minimum(present, self._neighbours or len(self._stations_m)), dtype=np.int32)

    def estimate(self, targets: Targets) -> NDArray[np.float64]:
        """Return estimates at targets, shape (slices, targets); NaN where no station is within reach."""
        points_m = targets.positions_m
        if not len(self._stations_m) or not len(points_m):
            return np.full((len(self._values), len(points_m)), np.nan)
        return self._estimate_from_all(points_m) if self._neighbours is None else self._estimate_from_nearest(points_m)

    def counts_at(self, targets: Targets) -> NDArray[np.int32]:
        """Return how many stations each estimate is from, shape (slices, targets)."""
        points_m = targets.positions_m
        result = np.zeros((len(self._values), len(points_m)), dtype=np.int32)
        if self._neighbours is None:
            within = separations(points_m, self._stations_m) <= self._radius_m
            for present, slices in self._masks:
                result[slices] = within[:, present].sum(axis=1)
        else:
            for slices, _, distance in self._find_nearest(points_m):
                result[slices] = (distance <= self._radius_m).sum(axis=1)
        return result

    def _estimate_from_all(self, points_m: NDArray[np.float64]) -> NDArray[np.float64]:
        distance = separations(points_m, self._stations_m)
        at_station = distance <= COINCIDENT_M
        weights = _find_weights(distance, self._power, self._radius_m)
        filled = np.where(self._present, self._values, 0.0)
        result = np.asarray(filled @ weights.T)
        for start in range(0, len(self._masks), MASKS_AT_ONCE):
            several = [slices for _, slices in self._masks[start : start + MASKS_AT_ONCE]]
            totals = self._present[[slices[0] for slices in several]] @ weights.T
            totals[totals == 0] = np.nan
            for slices, total in zip(several, totals, strict=True):
                result[slices] /= total
        points = np.flatnonzero(at_station.any(axis=1))
        if len(points):
            coincidence = at_station[points].astype(np.float64)
            reporting = self._present @ coincidence.T
            mean = (filled @ coincidence.T) / np.maximum(reporting, 1.0)
            result[:, points] = np.where(reporting > 0, mean, result[:, points])
        return result

    def _estimate_from_nearest(self, points_m: NDArray[np.float64]) -> NDArray[np.float64]:
        result = np.full((len(self._values), len(points_m)), np.nan)
        for slices, near, distance in self._find_nearest(points_m):
            weights = _find_weights(distance, self._power, self._radius_m)
            at_station = distance <= COINCIDENT_M
            weights = np.where(at_station.any(axis=1, keepdims=True), at_station, weights)
            total = weights.sum(axis=1, keepdims=True)
            shares = weights / np.where(total > 0, total, 1.0)
            estimates = apply_weights(self._values[slices], near, shares)
            result[slices] = np.where(total[:, 0] > 0, estimates, np.nan)
        return result

    def _find_nearest(
        self, points_m: NDArray[np.float64]
    ) -> Iterator[tuple[NDArray[np.intp], NDArray[np.intp], NDArray[np.float64]]]:
        """Yield slices, and for each point its nearest stations that report in them, with their distances [m]."""
        for present, slices in self._masks:
            if len(present):
                count = min(self._neighbours or len(present), len(present))
                distance, indices = scipy.spatial.cKDTree(self._stations_m[present]).query(points_m, k=count)
                along = arc_m(distance) if are_on_sphere(points_m) else distance
                yield slices, present[indices.reshape(-1, count)], along.reshape(-1, count)


def _find_weights(distance_m: NDArray[np.float64], power: float, radius_m: float) -> NDArray[np.float64]:
    """Return weights, each point's nearest station having 1, so that no power over- or underflows."""
    clipped = np.maximum(distance_m, COINCIDENT_M)
    weights = (clipped.min(axis=1, keepdims=True) / clipped) ** power
    weights[distance_m > radius_m] = 0.0
    return np.asarray(weights)
