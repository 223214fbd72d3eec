"""Linear interpolation on the Delaunay triangles of the stations that report; outside their hull nothing is known."""

import numpy as np
import scipy  # its parts load when they are used: most queries need none of them
from numpy.typing import NDArray

from hypergrid.interpolation.methods.sparse_weights import (
    WithoutVariance,
    apply_weights,
    determines,
    refuse_same_place,
    refuse_undetermined,
)
from hypergrid.interpolation.points.distance import refuse_sphere
from hypergrid.interpolation.points.points import Targets
from hypergrid.interpolation.solvers.masks import group_masks

ON_THE_EDGE = 1e-9
"""How far a point may lie outside a triangle, as a share of it: stations and their edges belong to the hull."""

SLIVER = 1e-13
"""Triangles whose area is below this share of their side squared have no inside; their neighbours hold its points."""


class TriangleField(WithoutVariance):
    """The field of many slices, each linear between three stations that report; a slice on one line is missing."""

    def __init__(
        self, stations_m: NDArray[np.float64], values: NDArray[np.float64], *, method: str, names: tuple[str, ...]
    ) -> None:
        refuse_sphere(method, stations_m)
        refuse_undetermined(method, stations_m, 1)
        refuse_same_place(method, stations_m, names, "use inverse_distance, which takes their mean")
        self.method = method
        self._values = values
        self._middle = stations_m.mean(axis=0) if len(stations_m) else np.zeros(2)
        # Coordinates far from 0 would cost the triangulation the digits by which stations differ.
        self._stations_m = stations_m - self._middle
        self._triangles = [
            (np.flatnonzero(mask), slices, *triangles)
            for mask, slices in group_masks(np.isfinite(values))
            if (triangles := _triangulate(self._stations_m[mask])) is not None
        ]

    @property
    def counts(self) -> NDArray[np.int32]:
        """Stations that are joined in each slice, shape (slices,); 0 where they make no triangle."""
        result = np.zeros(len(self._values), dtype=np.int32)
        for present, slices, *_ in self._triangles:
            result[slices] = len(present)
        return result

    def estimate(self, targets: Targets) -> NDArray[np.float64]:
        """Return estimates at targets, shape (slices, targets); NaN outside the hull of those that report."""
        points_m = targets.positions_m
        result = np.full((len(self._values), len(points_m)), np.nan)
        points = points_m - self._middle
        for present, slices, triangles, to_weights in self._triangles:
            simplices = triangles.find_simplex(points, tol=ON_THE_EDGE)
            inside = np.flatnonzero(simplices >= 0)
            affine = to_weights[simplices[inside]]
            first = np.einsum("pij,pj->pi", affine[:, :2], points[inside] - affine[:, 2])
            weights = np.concatenate([first, 1.0 - first.sum(axis=1, keepdims=True)], axis=1)
            near = present[triangles.simplices[simplices[inside]]]
            result[np.ix_(slices, inside)] = apply_weights(self._values[slices], near, weights)
        return result

    def counts_at(self, targets: Targets) -> NDArray[np.int32]:
        """Return how many stations each estimate is from, 3 or none, shape (slices, targets)."""
        points_m = targets.positions_m
        result = np.zeros((len(self._values), len(points_m)), dtype=np.int32)
        for _, slices, triangles, _ in self._triangles:
            result[slices] = np.where(triangles.find_simplex(points_m - self._middle, tol=ON_THE_EDGE) >= 0, 3, 0)
        return result


def _triangulate(places_m: NDArray[np.float64]) -> "tuple[scipy.spatial.Delaunay, NDArray[np.float64]] | None":
    """Return triangles, and for each the map from a place to the weights of its first two corners.

    The maps have scipy's form (`Delaunay.transform`), shape (triangles, 3, 2): an inverse, and the third corner.
    """
    if not determines(places_m, 1):
        return None
    try:
        triangles = scipy.spatial.Delaunay(places_m)
    except scipy.spatial.QhullError:
        # So nearly on one line that Qhull finds no first triangle.
        return None
    third = places_m[triangles.simplices[:, 2]]
    first, second = (places_m[triangles.simplices[:, i]] - third for i in (0, 1))
    area = first[:, 0] * second[:, 1] - first[:, 1] * second[:, 0]
    size = np.maximum(np.abs(first), np.abs(second)).max(axis=1) ** 2
    area = np.where(np.abs(area) > SLIVER * size, area, np.nan)
    rows = [np.stack([second[:, 1], -second[:, 0]], axis=1), np.stack([-first[:, 1], first[:, 0]], axis=1)]
    to_weights = np.stack([rows[0] / area[:, None], rows[1] / area[:, None], third], axis=1)
    # Scipy would solve a system of two a triangle, and on a busy machine wait for threads at each: 22 ms in place of
    # 0.1 ms for 25 stations on two cores. Where it no longer looks here, it makes its own: slower, and the same.
    triangles._transform = to_weights
    return triangles, to_weights
