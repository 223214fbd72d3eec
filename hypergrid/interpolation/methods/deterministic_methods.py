"""Methods without a variogram, one row each: quick surfaces, and baselines for kriging."""

from collections.abc import Callable, Iterator, Mapping
from copy import copy
from dataclasses import dataclass
from typing import Any

import numpy as np
import scipy  # submodules load on first use: most queries need none
from numpy.typing import NDArray

from hypergrid.core.errors import InvalidQuery, NotFound, SingularSystem
from hypergrid.core.geodesy import arc_m
from hypergrid.core.parameters import Parameter
from hypergrid.interpolation.methods.detrended import with_trend
from hypergrid.interpolation.methods.registry import METHODS, Method, Prepare
from hypergrid.interpolation.points import (
    COINCIDENT_M,
    Field,
    Floats,
    Stations,
    Targets,
    are_on_sphere,
    group_masks,
    name_coincident,
    refuse_sphere,
    separations,
)

FLAT = 1e-9
"""Ratio of least to greatest singular value below which stations are on one line (or conic)."""


def determines(stations_m: Floats, degree: int) -> bool:
    """Check that values at these places determine a polynomial of x and y.

    Parameters
    ----------
    stations_m
        Positions [m], shape (stations, 2).
    degree
        0 needs one station, 1 three that are not on one line, 2 six that are not on one conic.
    """
    if len(stations_m) < count_needed(degree):
        return False
    centred = stations_m - stations_m.mean(axis=0)
    size = float(np.abs(centred).max())
    if degree == 0 or size == 0:
        return degree == 0
    x, y = (centred / size).T
    columns = [x**i * y**j for i in range(degree + 1) for j in range(degree + 1 - i)]
    singular = np.linalg.svd(np.stack(columns, axis=1), compute_uv=False)
    return bool(singular[-1] > FLAT * singular[0])


def count_needed(degree: int) -> int:
    """Count the stations needed for a polynomial of x and y."""
    return (degree + 1) * (degree + 2) // 2


def refuse_undetermined(label: str, stations_m: Floats, degree: int) -> None:
    """Reject a network on which no slice could be interpolated; an empty network is accepted.

    Raises
    ------
    InvalidQuery
        Too few stations, or all of them on one line (degree 1) or one conic (degree 2).
    """
    if not len(stations_m) or determines(stations_m, degree):
        return
    figure = {1: "line", 2: "conic"}.get(degree, "point")
    problem = f"{len(stations_m)}" if len(stations_m) < count_needed(degree) else f"{len(stations_m)} on one {figure}"
    raise InvalidQuery(
        f"{label} needs at least {count_needed(degree)} stations with values that are not on one {figure}; "
        f"got {problem}; use "
        "inverse_distance or nearest, or select more stations"
    )


def refuse_same_place(label: str, stations: Stations, remedy: str) -> None:
    """Reject coincident stations, at which a surface through all values would need two values.

    Raises
    ------
    SingularSystem
        Names the stations.
    """
    if named := name_coincident(stations):
        raise SingularSystem(
            f"{label} cannot pass through two values in the same place: {named}; {remedy}, ask for coincident='merge', "
            "or select one of them"
        )


def apply_weights(values: Floats, near: NDArray[np.intp], weights: Floats) -> Floats:
    """Compute the weighted sums of each point's few stations, shape (slices, points).

    Parameters
    ----------
    values
        Shape (slices, stations); missing ones must have zero weight.
    near, weights
        Stations of each point and their weights, shape (points, few).
    """
    rows = np.repeat(np.arange(len(near)), near.shape[1])
    matrix = scipy.sparse.csr_array((weights.ravel(), (rows, near.ravel())), shape=(len(near), values.shape[1]))
    # Zero times NaN is NaN: replace missing values by a number.
    return np.asarray((matrix @ np.nan_to_num(values).T).T)


class WithoutVariance(Field):
    """Base of fields whose method has no variance."""

    method: str

    def variance(self, targets: Targets) -> Floats:
        # The method's row has `has_variance=False`, so that queries are rejected earlier.
        raise InvalidQuery(
            f"{self.method} has no variance; ask for it with a kriging method (got {targets.count} points)"
        )


# Radial basis functions by scipy: the sum of kernels around the stations and a polynomial, through the values.
#
# The thin plate spline without smoothing is the surface of least bending energy through all values (Duchon 1977).
# Distances are in kilometres, so that `smoothing` does not depend on which stations report.

# At least 0, so that a constant is reproduced.
DEGREES = {
    "linear": 0, "multiquadric": 0, "thin_plate_spline": 1, "cubic": 1, "quintic": 2, "gaussian": 0,
    "inverse_multiquadric": 0, "inverse_quadratic": 0,
}  # fmt: skip
"""Degree of the polynomial of each kernel."""

SCALED = ("multiquadric", "inverse_multiquadric", "inverse_quadratic", "gaussian")
"""Kernels that need a length."""

MIN_KEPT_SHARE = 1e-6
"""Largest misfit of a surface without smoothing, relative to its largest value."""


@dataclass(frozen=True)
class RadialBasis:
    """Kernel around each station, and how closely the surface follows the values."""

    kernel: str
    """One of `DEGREES`."""
    smoothing: float = 0.0
    """0 passes through the values; distances in km."""
    scale_m: float | None = None
    """Length of the kernels `SCALED`; None for the others."""

    @property
    def label(self) -> str:
        return f"radial_basis with the kernel {self.kernel}"


class RadialField(WithoutVariance):
    """Radial basis field of many slices; slices with the same mask share one system."""

    method = "radial_basis"

    def __init__(self, stations: Stations, values: Floats, basis: RadialBasis) -> None:
        stations_m, degree = stations.positions_m, DEGREES[basis.kernel]
        refuse_sphere(basis.label, stations_m)
        refuse_undetermined(basis.label, stations_m, degree)
        if basis.smoothing == 0:
            refuse_same_place(basis.label, stations, "give smoothing above zero")
        self._values = values
        # Centred, because large coordinates would cost the kernels the digits in which stations differ.
        self._middle = stations_m.mean(axis=0) if len(stations_m) else np.zeros(2)
        places = self._scale_places(stations_m)
        self._surfaces = [
            (slices, _make_surface(basis, places[mask], values[np.ix_(slices, mask)]))
            for mask, slices in group_masks(np.isfinite(values))
            if determines(places[mask], degree)
        ]

    @property
    def counts(self) -> NDArray[np.int32]:
        """Stations used in each slice, shape (slices,); 0 if they are too few or on one line."""
        result = np.zeros(len(self._values), dtype=np.int32)
        for slices, surface in self._surfaces:
            result[slices] = len(surface.y)
        return result

    def estimate(self, targets: Targets) -> Floats:
        """Estimate the targets, shape (slices, targets); NaN if the stations do not suffice."""
        points_m = targets.positions_m
        result = np.full((len(self._values), len(points_m)), np.nan)
        for slices, surface in self._surfaces if len(points_m) else []:
            result[slices] = surface(self._scale_places(points_m)).T
        return result

    def counts_at(self, targets: Targets) -> NDArray[np.int32]:
        return np.repeat(self.counts[:, None], targets.count, axis=1)

    def _scale_places(self, points_m: Floats) -> Floats:
        return (points_m - self._middle) / 1000.0


def _make_surface(basis: RadialBasis, places_km: Floats, values: Floats) -> "scipy.interpolate.RBFInterpolator":
    kernel, smoothing = basis.kernel, basis.smoothing
    epsilon = None if basis.scale_m is None else 1000.0 / basis.scale_m
    try:
        surface = scipy.interpolate.RBFInterpolator(
            places_km, values.T, smoothing=smoothing, kernel=kernel, epsilon=epsilon, degree=DEGREES[kernel]
        )
        off = np.abs(surface(places_km) - values.T).max() if smoothing == 0 else 0.0
    except np.linalg.LinAlgError:
        off = np.inf
    largest = np.abs(values).max()
    if not off <= MIN_KEPT_SHARE * largest:
        remedy = "shorten scale_m, " if basis.scale_m is not None else ""
        raise SingularSystem(
            f"{basis.label} is singular to working precision on {len(places_km)} stations (it misses its own values by "
            f"{off:.1g} where {MIN_KEPT_SHARE * largest:.1g} is allowed); {remedy}give smoothing above zero, or "
            f"take another "
            "kernel"
        )
    return surface


NO_VARIOGRAM = ("nearest", "inverse_distance", "linear", "radial_basis")
"""Names of the methods in this file; each can be used without parameters."""

_RADIUS = Parameter(
    "radius_m", "number", "stations farther away are not used; no limit where absent", unit="m", required=False
)


def _check_positive(method: str, given: Mapping[str, Any], name: str) -> None:
    if given[name] is not None and not given[name] > 0:
        raise InvalidQuery(f"{method} needs {name!r} above zero; got {given[name]:g}")


def _parse_inverse_distance(given: Mapping[str, Any]) -> dict[str, Any]:
    _check_positive("inverse_distance", given, "radius_m")
    if not 0 < given["power"] <= LARGEST_POWER:
        raise InvalidQuery(
            f"inverse_distance needs 'power' above zero and up to {LARGEST_POWER:g}; got {given['power']:g}"
        )
    return dict(given)


def _parse_nearest(given: Mapping[str, Any]) -> dict[str, Any]:
    _check_positive("nearest", given, "radius_m")
    # Set as a parameter, because plans and counts read from it how many stations a point uses.
    return {**given, "neighbours": 1}


def _parse_radial(given: Mapping[str, Any]) -> dict[str, Any]:
    kernel, smoothing = given["kernel"], given["smoothing"]
    if kernel not in DEGREES:
        raise NotFound.among(kind="kernel of radial_basis", given=kernel, existing=DEGREES)
    if smoothing < 0:
        raise InvalidQuery(f"radial_basis needs 'smoothing' of zero or more; got {smoothing:g}")
    _check_positive("radial_basis", given, "scale_m")
    if (given["scale_m"] is not None) != (kernel in SCALED):
        need = "needs 'scale_m', the length over which it falls" if kernel in SCALED else "has no 'scale_m'; remove it"
        raise InvalidQuery(f"the kernel {kernel} of radial_basis {need}; got scale_m={given['scale_m']}")
    return dict(given)


def _add_method(
    name: str,
    summary: str,
    parameters: tuple[Parameter, ...],
    *,
    parse: Callable[[Mapping[str, Any]], dict[str, Any]],
    prepare: Prepare,
) -> None:
    row = Method(name, summary, parameters, linear=True, has_variance=False, parse=parse, prepare=prepare)
    METHODS.add(name, with_trend(row))


_add_method(
    "inverse_distance",
    "Mean of the stations weighted by inverse distance; exact at stations, flat between far ones.",
    (
        Parameter("power", "number", "exponent of the distance, up to 16", required=False, default=2.0),
        Parameter("neighbours", "count", "nearest stations to use; all where absent", required=False),
        _RADIUS,
    ),
    parse=_parse_inverse_distance,
    prepare=lambda stations, values, given: InverseDistanceField(
        stations.positions_m, values, method="inverse_distance", **given
    ),
)
_add_method(
    "nearest",
    "Value of the nearest station that reports.",
    (_RADIUS,),
    parse=_parse_nearest,
    # With one neighbour the power does not matter.
    prepare=lambda stations, values, given: InverseDistanceField(
        stations.positions_m, values, method="nearest", power=1.0, **given
    ),
)
_add_method(
    "linear",
    "Linear on Delaunay triangles of the stations that report; missing outside their hull.",
    (),
    parse=dict,
    prepare=lambda stations, values, _given: TriangleField(stations, values),
)
_add_method(
    "radial_basis",
    "Sum of kernels around the stations and a polynomial, through the values or, smoothed, near them.",
    (
        Parameter("kernel", "text", f"one of {', '.join(DEGREES)}", required=False, default="thin_plate_spline"),
        Parameter("smoothing", "number", "0 passes through the values; distances in km", required=False, default=0.0),
        Parameter("scale_m", "number", f"length of the kernels {', '.join(SCALED)}", unit="m", required=False),
    ),
    parse=_parse_radial,
    prepare=lambda stations, values, given: RadialField(stations, values, RadialBasis(**given)),
)


# Stations and the edges between them belong to the hull.
ON_THE_EDGE = 1e-9
"""Tolerance for a point outside a triangle, relative to it."""

# Neighbouring triangles hold the points of a sliver.
SLIVER = 1e-13
"""Ratio of a triangle's area to its squared side below which it is treated as empty."""


class TriangleField(WithoutVariance):
    """Field of many slices, linear between three reporting stations; missing in slices with collinear stations."""

    method = "linear"

    def __init__(self, stations: Stations, values: Floats) -> None:
        stations_m = stations.positions_m
        refuse_sphere(self.method, stations_m)
        refuse_undetermined(self.method, stations_m, 1)
        refuse_same_place(self.method, stations, "use inverse_distance, which takes their mean")
        self._values = values
        self._middle = stations_m.mean(axis=0) if len(stations_m) else np.zeros(2)
        # Centred, because large coordinates would cost the triangulation the digits in which stations differ.
        self._stations_m = stations_m - self._middle
        self._triangles = [
            (np.flatnonzero(mask), slices, *triangles)
            for mask, slices in group_masks(np.isfinite(values))
            if (triangles := _triangulate(self._stations_m[mask])) is not None
        ]

    @property
    def counts(self) -> NDArray[np.int32]:
        """Stations triangulated in each slice, shape (slices,); 0 if they form no triangle."""
        result = np.zeros(len(self._values), dtype=np.int32)
        for present, slices, *_ in self._triangles:
            result[slices] = len(present)
        return result

    def estimate(self, targets: Targets) -> Floats:
        """Estimate the targets, shape (slices, targets); NaN outside the hull of the reporting stations."""
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
        """Count the stations behind each estimate, 3 or 0, shape (slices, targets)."""
        points_m = targets.positions_m
        result = np.zeros((len(self._values), len(points_m)), dtype=np.int32)
        for _, slices, triangles, _ in self._triangles:
            result[slices] = np.where(triangles.find_simplex(points_m - self._middle, tol=ON_THE_EDGE) >= 0, 3, 0)
        return result


def _triangulate(places_m: Floats) -> "tuple[scipy.spatial.Delaunay, Floats] | None":
    """Triangulate stations, and map places to the weights of each triangle's first two corners.

    The maps have scipy's form (`Delaunay.transform`), shape (triangles, 3, 2): an inverse, and the third corner.
    """
    if not determines(places_m, 1):
        return None
    try:
        triangles = scipy.spatial.Delaunay(places_m)
    except scipy.spatial.QhullError:
        # Stations too close to one line for Qhull to find a first triangle.
        return None
    third = places_m[triangles.simplices[:, 2]]
    first, second = (places_m[triangles.simplices[:, i]] - third for i in (0, 1))
    area = first[:, 0] * second[:, 1] - first[:, 1] * second[:, 0]
    size = np.maximum(np.abs(first), np.abs(second)).max(axis=1) ** 2
    area = np.where(np.abs(area) > SLIVER * size, area, np.nan)
    rows = [np.stack([second[:, 1], -second[:, 0]], axis=1), np.stack([-first[:, 1], first[:, 0]], axis=1)]
    to_weights = np.stack([rows[0] / area[:, None], rows[1] / area[:, None], third], axis=1)
    # scipy would solve a 2 by 2 system per triangle, waiting for threads at each on a busy machine: 22 ms instead of
    # 0.1 ms for 25 stations on two cores. If scipy ever ignores this attribute, it computes its own: slower, but equal.
    triangles._transform = to_weights
    return triangles, to_weights


# Inverse distance weighting (Shepard 1968), and the nearest station as its simplest case.
#
# An estimate is the mean of the present values, weighted by distance to the power of -p; the value of a station that
# reports at the point itself is the estimate. The weights of all stations are computed once for all slices: each slice
# divides by their sum over its reporting stations, so a thousand slices are one matrix product.

# Beyond, weights of stations a few thousand kilometres away underflow; the nearest station decides long before.
LARGEST_POWER = 16.0
"""Upper limit of the power."""

# Their sums take as much memory as 64 slices.
MASKS_AT_ONCE = 64
"""Masks whose weights are summed in one matrix product."""


class InverseDistanceField(WithoutVariance):
    """Inverse distance field of many slices, from all, the k nearest, or stations within a radius."""

    def __init__(
        self,
        stations_m: Floats,
        values: Floats,
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
        self._set_present(np.isfinite(values))

    def _set_present(self, present: NDArray[np.bool_]) -> None:
        self._present = present
        self._masks = [(np.flatnonzero(mask), slices) for mask, slices in group_masks(present)]

    def take_slices(self, slices: NDArray[np.intp]) -> "InverseDistanceField":
        part = copy(self)
        part._values = self._values[slices]
        part._set_present(self._present[slices])
        return part

    @property
    def counts(self) -> NDArray[np.int32]:
        """Maximum stations per point in each slice, shape (slices,); `counts_at` gives each point's."""
        present = self._present.sum(axis=1)
        return np.asarray(np.minimum(present, self._neighbours or len(self._stations_m)), dtype=np.int32)

    def estimate(self, targets: Targets) -> Floats:
        """Estimate the targets, shape (slices, targets); NaN if no station is within the radius."""
        points_m = targets.positions_m
        if not len(self._stations_m) or not len(points_m):
            return np.full((len(self._values), len(points_m)), np.nan)
        return self._estimate_from_all(points_m) if self._neighbours is None else self._estimate_from_nearest(points_m)

    def counts_at(self, targets: Targets) -> NDArray[np.int32]:
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

    def _estimate_from_all(self, points_m: Floats) -> Floats:
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

    def _estimate_from_nearest(self, points_m: Floats) -> Floats:
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

    def _find_nearest(self, points_m: Floats) -> Iterator[tuple[NDArray[np.intp], NDArray[np.intp], Floats]]:
        """Yield slices with each point's nearest reporting stations and their distances [m]."""
        for present, slices in self._masks:
            if len(present):
                count = min(self._neighbours or len(present), len(present))
                distance, indices = scipy.spatial.cKDTree(self._stations_m[present]).query(points_m, k=count)
                along = arc_m(distance) if are_on_sphere(points_m) else distance
                yield slices, present[indices.reshape(-1, count)], along.reshape(-1, count)


def _find_weights(distance_m: Floats, power: float, radius_m: float) -> Floats:
    """Compute weights scaled to 1 at each point's nearest station."""
    # Scaled by the nearest distance, no power over- or underflows.
    clipped = np.maximum(distance_m, COINCIDENT_M)
    weights = (clipped.min(axis=1, keepdims=True) / clipped) ** power
    weights[distance_m > radius_m] = 0.0
    return np.asarray(weights)
