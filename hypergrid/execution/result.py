"""Arrays to an `xarray.Dataset` with CF attributes, bounds, counts, and how it was made."""

import json
from typing import Any

import numpy as np
import xarray as xr

from hypergrid.execution.names import functions_of, value_names
from hypergrid.execution.run import Outcome
from hypergrid.execution.time_coordinates import over_cells, time_coords
from hypergrid.execution.variance_attributes import variance_attributes
from hypergrid.perspective import Aggregate, Base, Interpolate, InterpolateInTime, Perspective, Question
from hypergrid.perspective.placing import place
from hypergrid.topology import Grid, SeriesAxis
from hypergrid.units import as_cf
from hypergrid.version import VERSION


def to_dataset(question: Question, surface: Perspective, outcome: Outcome) -> xr.Dataset:
    """Return a computed surface.

    Returns
    -------
    Variables `value`, `count`, `count_possible` where it is known, and `variance` where it was asked for; dimensions
    time (or hour_of_day, …, which have times beside their numbers), then lat, lon (or y, x) or series; and
    `extrapolated` (lat, lon) where a trend in elevation was interpolated. Coordinates of a grid are cell centres with
    bounds, times the starts of their cells with bounds.
    """
    topology = surface.topology
    shape = topology.shape
    time = topology.time.name
    dims = (
        (time, topology.space.y.name, topology.space.x.name) if isinstance(topology.space, Grid) else (time, "series")
    )
    coords = {**time_coords(topology.time), **_space_coords(topology.space)}
    data: dict[str, Any] = {"value": (dims, outcome.value.reshape(shape), _value_attributes(surface))}
    flat = outcome.value.shape
    if outcome.count is not None:
        count = np.broadcast_to(outcome.count.astype(np.int32), flat).reshape(shape)
        data["count"] = (dims, count, {"long_name": _count_name(surface), "units": "1"})
    if outcome.possible is not None and np.any(outcome.possible > 0):
        possible = np.broadcast_to(outcome.possible.astype(np.int32), flat).reshape(shape)
        data["count_possible"] = (dims, possible, {"long_name": "how many there could have been", "units": "1"})
    if outcome.variance is not None:
        attributes = variance_attributes(surface, outcome.correlation)
        data["variance"] = (dims, outcome.variance.reshape(shape), attributes)
    if outcome.variance_low is not None:
        attributes = variance_attributes(surface, "not known: the optimistic end; variance is the other")
        data["variance_low"] = (dims, outcome.variance_low.reshape(shape), attributes)
    if outcome.extrapolated is not None:
        flags: dict[str, Any] = {
            "long_name": "whether a cell lies outside the range of elevation of the stations",
            "flag_values": np.array([0, 1], dtype=np.int8),
            "flag_meanings": "inside outside",
        }
        data["extrapolated"] = (dims[1:], outcome.extrapolated.astype(np.int8).reshape(shape[1:]), flags)
    return xr.Dataset(data, coords, _provenance(question, surface, outcome))


_SPACE_ATTRIBUTES = {
    "lon": {"standard_name": "longitude", "units": "degrees_east", "axis": "X"},
    "lat": {"standard_name": "latitude", "units": "degrees_north", "axis": "Y"},
    "x": {"standard_name": "projection_x_coordinate", "units": "m", "axis": "X"},
    "y": {"standard_name": "projection_y_coordinate", "units": "m", "axis": "Y"},
}


def _space_coords(space: SeriesAxis | Grid) -> dict[str, Any]:
    coords: dict[str, Any] = {}
    if isinstance(space, Grid):
        for axis in (space.y, space.x):
            bounds = f"{axis.name}_bounds"
            coords[axis.name] = (axis.name, axis.centres, {**_SPACE_ATTRIBUTES[axis.name], "bounds": bounds})
            coords[bounds] = ((axis.name, "bounds"), axis.bounds)
        return coords
    names = ("lon", "lat") if space.system == "lonlat" else ("x", "y")
    for name, values in zip(names, (space.x, space.y), strict=True):
        attributes = {key: text for key, text in _SPACE_ATTRIBUTES[name].items() if key != "axis"}
        coords[name] = ("series", values, attributes)
    coords["elevation"] = ("series", space.elevation_m, {"standard_name": "surface_altitude", "units": "m"})
    series = space.series
    coords["station"] = ("series", np.array([s.station for s in series], dtype=str))
    coords["height_m"] = (
        "series",
        np.array([np.nan if s.height_m is None else s.height_m for s in series], dtype=float),
    )
    coords["statistic"] = ("series", np.array([s.statistic for s in series], dtype=str))
    coords["interval_s"] = ("series", np.array([s.interval_s for s in series], dtype=float))
    coords["replicate"] = ("series", np.array([s.replicate for s in series], dtype=np.int32))
    coords["source"] = ("series", np.array([s.source for s in series], dtype=str))
    return coords


def _value_attributes(surface: Perspective) -> dict[str, str]:
    attributes = {"units": as_cf(surface.unit), **value_names(surface)}
    methods = [text for item in surface.chain() if (text := _cell_method(item))]
    if methods:
        # What the branches of a recipe have in common is said once.
        attributes["cell_methods"] = " ".join(dict.fromkeys(methods))
    return attributes


def _cell_method(item: Perspective) -> str:
    """Return what a step does to the cells, as CF writes it; nothing for those that keep them."""
    operator = item.operator
    if isinstance(operator, InterpolateInTime):
        return f"time: point (comment: {operator.method})"
    if isinstance(operator, Interpolate):
        return _support(operator)
    if not isinstance(operator, Aggregate):
        return ""
    return over_cells(operator.dimensions, _cf_method(operator.function), item.topology.time)


def _support(operator: Interpolate) -> str:
    """Return what an estimate is of in space, as CF writes it."""
    given = operator.given
    if given.get("support") != "block":
        return "area: point (comment: estimate at the cell's centre)"
    side = given.get("quadrature", 4)
    return f"area: mean (comment: block of {side} by {side} Gauss-Legendre points)"


def _cf_method(function: str) -> str:
    return {
        "min": "minimum", "max": "maximum", "first": "point", "last": "point", "sample": "point",
        "circular_mean": "mean", "degree_days": "sum", "rain_accumulation": "sum",
    }.get(function, function)  # fmt: skip


def _count_name(surface: Perspective) -> str:
    if isinstance(surface.operator, Interpolate):
        return "stations used"
    if isinstance(surface.operator, Aggregate | InterpolateInTime):
        return "readings used" if surface.source.holds_readings else "source cells used"
    return "readings or source cells used"


def _distance(here: Perspective, operator: Interpolate) -> str:
    axis = here.source.topology.space
    if not isinstance(axis, SeriesAxis):
        message = "an interpolation starts from stations"
        raise TypeError(message)
    return place(axis, operator).metres.description


def _provenance(question: Question, surface: Perspective, outcome: Outcome) -> dict[str, str]:
    bases = [item.operator for item in surface.bases() if isinstance(item.operator, Base)]
    attributes = {
        "Conventions": "CF-1.11",
        "title": f"{question.variable}: {' > '.join(step.name for step in question.steps) or 'readings'}",
        "source": "HyperGrid " + VERSION,
        "hypergrid_query": json.dumps(question.to_json()),
        "hypergrid_token": surface.token,
        "hypergrid_functions": functions_of(surface),
        "hypergrid_snapshot": ", ".join(sorted({str(base.source.snapshot or "array") for base in bases})),
    }
    ways = [_distance(item, item.operator) for item in surface.chain() if isinstance(item.operator, Interpolate)]
    if ways:
        attributes["hypergrid_distance"] = "; ".join(dict.fromkeys(ways))
    if outcome.left_out:
        parts = [f"{count} by {reason}" for reason, count in sorted(outcome.left_out.items())]
        attributes["hypergrid_readings_left_out"] = ", ".join(parts)
    notes = [*outcome.notes]
    if outcome.extrapolated is not None and outcome.extrapolated.any():
        share = outcome.extrapolated.mean()
        notes.append(f"{share:.1%} of the cells lie outside the stations' range of elevation (extrapolated)")
    if notes:
        attributes["comment"] = "; ".join(notes)
    return attributes
