"""Methods that need no variogram, one row each: quick surfaces, and what kriging is compared with."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hypergrid.core.errors import InvalidQuery, NotFound
from hypergrid.core.parameters import Parameter
from hypergrid.interpolation.methods.detrended import with_trend
from hypergrid.interpolation.methods.inverse_distance import LARGEST_POWER, InverseDistanceField
from hypergrid.interpolation.methods.radial import DEGREES, SCALED, RadialField
from hypergrid.interpolation.methods.registry import METHODS, Field, Method, Prepare
from hypergrid.interpolation.methods.triangles import TriangleField
from hypergrid.interpolation.points.points import Stations

Floats = NDArray[np.float64]

NO_VARIOGRAM = ("nearest", "inverse_distance", "linear", "radial_basis")
"""Methods of this file, by name; each can be used without parameters."""

_RADIUS = Parameter(
    "radius_m", "number", "stations farther away are not used; no limit where absent", unit="m", required=False
)


def _check_positive(method: str, given: Mapping[str, Any], name: str) -> None:
    if given[name] is not None and not given[name] > 0:
        message = f"{method} needs {name!r} above zero; got {given[name]:g}"
        raise InvalidQuery(message)


def _parse_inverse_distance(given: Mapping[str, Any]) -> dict[str, Any]:
    _check_positive("inverse_distance", given, "radius_m")
    if not 0 < given["power"] <= LARGEST_POWER:
        message = f"inverse_distance needs 'power' above zero and up to {LARGEST_POWER:g}; got {given['power']:g}"
        raise InvalidQuery(message)
    return dict(given)


def _inverse_distance(stations: Stations, values: Floats, given: Mapping[str, Any]) -> Field:
    return InverseDistanceField(
        stations.positions_m,
        values,
        method="inverse_distance",
        power=given["power"],
        neighbours=given["neighbours"],
        radius_m=given["radius_m"],
    )


def _parse_nearest(given: Mapping[str, Any]) -> dict[str, Any]:
    _check_positive("nearest", given, "radius_m")
    # Said as a parameter, because plans and counts ask how many stations a point uses.
    return {**given, "neighbours": 1}


def _nearest(stations: Stations, values: Floats, given: Mapping[str, Any]) -> Field:
    # With one neighbour the power does not matter.
    return InverseDistanceField(
        stations.positions_m, values, method="nearest", power=1.0, neighbours=1, radius_m=given["radius_m"]
    )


def _linear(stations: Stations, values: Floats, _given: Mapping[str, Any]) -> Field:
    return TriangleField(stations.positions_m, values, method="linear", names=stations.names)


def _parse_radial(given: Mapping[str, Any]) -> dict[str, Any]:
    kernel, smoothing = given["kernel"], given["smoothing"]
    if kernel not in DEGREES:
        raise NotFound.among(kind="kernel of radial_basis", given=kernel, existing=DEGREES)
    if smoothing < 0:
        message = f"radial_basis needs 'smoothing' of zero or more; got {smoothing:g}"
        raise InvalidQuery(message)
    _check_positive("radial_basis", given, "scale_m")
    if (given["scale_m"] is not None) != (kernel in SCALED):
        need = "needs 'scale_m', the length over which it falls" if kernel in SCALED else "has no 'scale_m'; remove it"
        message = f"the kernel {kernel} of radial_basis {need}; got scale_m={given['scale_m']}"
        raise InvalidQuery(message)
    return dict(given)


def _radial(stations: Stations, values: Floats, given: Mapping[str, Any]) -> Field:
    return RadialField(stations.positions_m, values, method="radial_basis", names=stations.names, **given)


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
    prepare=_inverse_distance,
)
_add_method(
    "nearest",
    "Value of the nearest station that reports.",
    (_RADIUS,),
    parse=_parse_nearest,
    prepare=_nearest,
)
_add_method(
    "linear",
    "Linear on Delaunay triangles of the stations that report; missing outside their hull.",
    (),
    parse=dict,
    prepare=_linear,
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
    prepare=_radial,
)
