"""Radial basis functions by scipy: a sum of kernels around the stations and a polynomial, through the values.

The thin plate spline without smoothing is the surface of least bending energy through all values (Duchon 1977).
Distances are taken in kilometres, so that `smoothing` does not depend on which stations happen to report.
"""

import numpy as np
import scipy  # its parts load when they are used: most queries need none of them
from numpy.typing import NDArray

from hypergrid.core.errors import SingularSystem
from hypergrid.interpolation.methods.sparse_weights import (
    WithoutVariance,
    determines,
    refuse_same_place,
    refuse_undetermined,
)
from hypergrid.interpolation.points.distance import refuse_sphere
from hypergrid.interpolation.points.points import Targets
from hypergrid.interpolation.solvers.masks import group_masks

DEGREES = {
    "linear": 0, "multiquadric": 0, "thin_plate_spline": 1, "cubic": 1, "quintic": 2, "gaussian": 0,
    "inverse_multiquadric": 0, "inverse_quadratic": 0,
}  # fmt: skip
"""Kernels, and the degree of the polynomial beside each: at least 0, so that a constant is reproduced."""

SCALED = ("multiquadric", "inverse_multiquadric", "inverse_quadratic", "gaussian")
"""Kernels that need a length."""

MIN_KEPT_SHARE = 1e-6
"""How far a surface without smoothing may miss its values, as a share of their largest, before it is refused."""


class RadialField(WithoutVariance):
    """The field of many slices; one system a set of stations that report, shared by its slices."""

    def __init__(
        self,
        stations_m: NDArray[np.float64],
        values: NDArray[np.float64],
        *,
        method: str,
        names: tuple[str, ...],
        kernel: str,
        smoothing: float,
        scale_m: float | None,
    ) -> None:
        degree = DEGREES[kernel]
        label = f"{method} with the kernel {kernel}"
        refuse_sphere(label, stations_m)
        refuse_undetermined(label, stations_m, degree)
        if smoothing == 0:
            refuse_same_place(label, stations_m, names, "give smoothing above zero")
        self.method = method
        self._values = values
        # Coordinates far from 0 would cost the kernels the digits by which stations differ.
        self._middle = stations_m.mean(axis=0) if len(stations_m) else np.zeros(2)
        places = self._scale_places(stations_m)
        self._surfaces = [
            (slices, _make_surface(label, places[mask], values[np.ix_(slices, mask)], kernel, smoothing, scale_m))
            for mask, slices in group_masks(np.isfinite(values))
            if determines(places[mask], degree)
        ]

    @property
    def counts(self) -> NDArray[np.int32]:
        """Stations used in each slice, shape (slices,); 0 where they are too few or on one line."""
        result = np.zeros(len(self._values), dtype=np.int32)
        for slices, surface in self._surfaces:
            result[slices] = len(surface.y)
        return result

    def estimate(self, targets: Targets) -> NDArray[np.float64]:
        """Return estimates at targets, shape (slices, targets); NaN where the stations do not suffice."""
        points_m = targets.positions_m
        result = np.full((len(self._values), len(points_m)), np.nan)
        for slices, surface in self._surfaces if len(points_m) else []:
            result[slices] = surface(self._scale_places(points_m)).T
        return result

    def counts_at(self, targets: Targets) -> NDArray[np.int32]:
        """Return how many stations each estimate is from, shape (slices, targets)."""
        return np.repeat(self.counts[:, None], targets.count, axis=1)

    def _scale_places(self, points_m: NDArray[np.float64]) -> NDArray[np.float64]:
        return (points_m - self._middle) / 1000.0


def _make_surface(
    label: str,
    places_km: NDArray[np.float64],
    values: NDArray[np.float64],
    kernel: str,
    smoothing: float,
    scale_m: float | None,
) -> "scipy.interpolate.RBFInterpolator":
    epsilon = None if scale_m is None else 1000.0 / scale_m
    try:
        surface = scipy.interpolate.RBFInterpolator(
            places_km, values.T, smoothing=smoothing, kernel=kernel, epsilon=epsilon, degree=DEGREES[kernel]
        )
        off = np.abs(surface(places_km) - values.T).max() if smoothing == 0 else 0.0
    except np.linalg.LinAlgError:
        off = np.inf
    largest = np.abs(values).max()
    if not off <= MIN_KEPT_SHARE * largest:
        remedy = "shorten scale_m, " if scale_m is not None else ""
        message = (
            f"{label} is singular to working precision on {len(places_km)} stations (it misses its own values by "
            f"{off:.1g} where {MIN_KEPT_SHARE * largest:.1g} is allowed); {remedy}give smoothing above zero, or "
            f"take another "
            "kernel"
        )
        raise SingularSystem(message)
    return surface
