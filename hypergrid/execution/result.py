"""Arrays to an `xarray.Dataset` with CF attributes, bounds, counts, and how it was made."""

import json
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from hypergrid.execution.run import Outcome
from hypergrid.execution.variance_attributes import variance_attributes
from hypergrid.perspective import Aggregate, Base, Interpolate, InterpolateInTime, Perspective, Question
from hypergrid.perspective.placing import place
from hypergrid.perspective.standing import are_instants
from hypergrid.sphere import RADIUS_M
from hypergrid.times import SECOND_NS, format_duration
from hypergrid.topology import Grid, Regular, SeriesAxis, Space, ZoneCells
from hypergrid.units import KNOWN_VARIABLES, as_cf
from hypergrid.version import VERSION


def to_dataset(question: Question, surface: Perspective, outcome: Outcome) -> xr.Dataset:
    """Return a computed surface.

    Returns
    -------
    Variables `value`, `count`, `count_possible` where it is known, and `variance` where it was asked for; dimensions
    time, then lat, lon (or y, x), zone or series; and `extrapolated` (lat, lon) where a trend in
    elevation was interpolated. Coordinates of a grid are cell centres with bounds, times the starts of
    their cells with bounds.
    """
    topology = surface.topology
    shape = topology.shape
    dims = ("time", *_space_dims(topology.space))
    coords = {**_time_coords(surface), **_space_coords(topology.space)}
    data: dict[str, Any] = {"value": (dims, outcome.value.reshape(shape), _value_attributes(question, surface))}
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


def _time_coords(surface: Perspective) -> dict[str, Any]:
    axis = surface.topology.time
    if not isinstance(axis, Regular) or are_instants(axis):
        attributes = {"standard_name": "time", "axis": "T"}
        return {"time": xr.Variable("time", axis.corners.view("datetime64[ns]"), attributes, _time_unit(axis.corners))}
    bounds = np.stack([axis.corners, axis.corners + axis.length], axis=1)
    # One unit, so that a file's times and their bounds can be compared.
    unit = _time_unit(bounds)
    attributes = {
        "standard_name": "time",
        "axis": "T",
        "bounds": "time_bounds",
        "long_name": "start of the time cell (UTC)",
    }
    return {
        "time": xr.Variable("time", axis.corners.view("datetime64[ns]"), attributes, unit),
        "time_bounds": xr.Variable(("time", "bounds"), bounds.view("datetime64[ns]"), None, unit),
    }


def _time_unit(instants_ns: NDArray[np.int64]) -> dict[str, str]:
    """Return how times are written: in whole seconds where they are whole."""
    unit = "nanoseconds" if (instants_ns % SECOND_NS).any() else "seconds"
    return {"units": f"{unit} since 1970-01-01", "calendar": "standard", "dtype": "int64"}


_SPACE_ATTRIBUTES = {
    "lon": {"standard_name": "longitude", "units": "degrees_east", "axis": "X"},
    "lat": {"standard_name": "latitude", "units": "degrees_north", "axis": "Y"},
    "x": {"standard_name": "projection_x_coordinate", "units": "m", "axis": "X"},
    "y": {"standard_name": "projection_y_coordinate", "units": "m", "axis": "Y"},
}


def _space_dims(space: Space) -> tuple[str, ...]:
    if isinstance(space, Grid):
        return space.y.name, space.x.name
    return ("zone",) if isinstance(space, ZoneCells) else ("series",)


def _zone_coords(space: ZoneCells) -> dict[str, Any]:
    """Return names, representative points (inside each zone), areas, and how much of each the grid holds."""
    area = {"standard_name": "area", "units": "m2", "long_name": "area of the zone"}
    if space.system == "lonlat":
        area["comment"] = f"on a sphere of radius {RADIUS_M:.1f} m, edges straight in longitude and latitude"
    held = {"units": "1", "long_name": "share of the zone's area that the grid holds"}
    coords: dict[str, Any] = {
        "zone": ("zone", np.array(space.zones.names, dtype=str), {"long_name": "name of the zone"})
    }
    for name, values in zip(_horizontal(space), (space.x, space.y), strict=True):
        coords[name] = ("zone", values, _away_from_axes(name))
    return {**coords, "area": ("zone", space.area_m2, area), "area_held": ("zone", space.held, held)}


def _horizontal(space: SeriesAxis | ZoneCells) -> tuple[str, str]:
    return ("lon", "lat") if space.system == "lonlat" else ("x", "y")


def _away_from_axes(name: str) -> dict[str, str]:
    return {key: text for key, text in _SPACE_ATTRIBUTES[name].items() if key != "axis"}


def _space_coords(space: Space) -> dict[str, Any]:
    coords: dict[str, Any] = {}
    if isinstance(space, ZoneCells):
        return _zone_coords(space)
    if isinstance(space, Grid):
        for axis in (space.y, space.x):
            bounds = f"{axis.name}_bounds"
            coords[axis.name] = (axis.name, axis.centres, {**_SPACE_ATTRIBUTES[axis.name], "bounds": bounds})
            coords[bounds] = ((axis.name, "bounds"), axis.bounds)
        return coords
    for name, values in zip(_horizontal(space), (space.x, space.y), strict=True):
        coords[name] = ("series", values, _away_from_axes(name))
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


def _value_attributes(question: Question, surface: Perspective) -> dict[str, str]:
    known = KNOWN_VARIABLES.get(question.variable)
    attributes = {"units": as_cf(surface.unit), "long_name": known.long_name if known else question.variable}
    merged = any(len(item.sources) > 1 for item in surface.chain())
    if known and known.standard_name and not merged and surface.unit == known.unit:
        attributes["standard_name"] = known.standard_name
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
    method, length = _cf_method(operator.function), _cell_length(item)
    if "zones" in operator.dimensions:
        over_time = "time: " if "time" in operator.dimensions else ""
        return f"{over_time}area: {method} where zone{length}"
    dimensions = " ".join(f"{dimension}:" for dimension in operator.dimensions)
    weighted = operator.row.weigh == "area" and "lat" in operator.dimensions
    if weighted and not length:
        return f"{dimensions} {method} (comment: weighted by the area of the cells)"
    return f"{dimensions} {method}{length}"


def _cell_length(item: Perspective) -> str:
    time = item.topology.time
    if (
        not isinstance(time, Regular)
        or not isinstance(item.operator, Aggregate)
        or "time" not in item.operator.dimensions
    ):
        return ""
    return f" (comment: cells of {format_duration(_readable(time.length))})"


def _readable(length_ns: int) -> int:
    """Return a length as people say it: cells over all instants of an array end a nanosecond after the last."""
    if length_ns % 1_000 == 1 and length_ns > 1_000:
        return length_ns - 1
    is_odd = length_ns % 1_000 and length_ns > 60 * SECOND_NS
    return round(length_ns / SECOND_NS) * SECOND_NS if is_odd else length_ns


def _support(operator: Interpolate) -> str:
    """Return what an estimate is of in space, as CF writes it."""
    given = operator.given
    if given.get("support") != "block":
        return "area: point (comment: estimate at the cell's centre)"
    side = given.get("quadrature", 4)
    return f"area: mean (comment: block of {side} by {side} Gauss-Legendre points)"


def _cf_method(function: str) -> str:
    return {"min": "minimum", "max": "maximum", "first": "point", "last": "point", "sample": "point"}.get(
        function, function
    )


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
