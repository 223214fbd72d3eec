"""Build an `xarray.Dataset` from a result, with CF attributes, bounds, counts and provenance."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final

import numpy as np
import scipy  # loads its parts lazily: most queries need none of them
from numpy.typing import NDArray

from hypergrid.core.errors import NotFound
from hypergrid.core.geodesy import RADIUS_M
from hypergrid.core.lazy_libraries import xr
from hypergrid.core.publication import join_attributes
from hypergrid.core.result_names import ABOUT_CELLS, make_name, name_role
from hypergrid.core.times import DAY_NS, SECOND_NS, floor_to_microsecond, format_duration, format_instant
from hypergrid.core.units import KNOWN_VARIABLES, to_cf
from hypergrid.core.version import VERSION
from hypergrid.execution.diagnostics import coverage_of, note_all_missing
from hypergrid.execution.operators.cells import Cells
from hypergrid.execution.planning.explain import round_length_ns
from hypergrid.execution.running.clock_cells import find_clock_dependence
from hypergrid.execution.running.run import Outcome
from hypergrid.interpolation import Variogram
from hypergrid.perspective import (
    Aggregate,
    Base,
    Convert,
    Interpolate,
    InterpolateInTime,
    Merge,
    Perspective,
    QuerySpec,
    Recur,
)
from hypergrid.perspective.build.aggregate_checks import describe_odd_cells, describe_overlap, explain_unknown_coverage
from hypergrid.perspective.build.restrict import are_instants
from hypergrid.perspective.build.station_projection import place_stations
from hypergrid.perspective.build.uncertainty_spec import split_aggregates
from hypergrid.perspective.functions.rows import ANOMALIES, MergeRow
from hypergrid.perspective.functions.user_function_calls import FUNCTION_IDENTITIES
from hypergrid.perspective.sources.archive_source import ArchiveSource
from hypergrid.topology import (
    Bands,
    Bins,
    Grid,
    Instants,
    Periodic,
    Points,
    Regular,
    SeriesAxis,
    Space,
    TimeAxis,
    ZoneCells,
    blocks_of,
    changes_cells,
)


def to_dataset(question: QuerySpec, surface: Perspective, outcome: Outcome, *, token: str) -> xr.Dataset:
    """Build the dataset of a computed surface.

    Parameters
    ----------
    question
        The query specification.
    surface
        The computed perspective, possibly rewritten.
    outcome
        The computed arrays.
    token
        Token of the surface before rewriting, which does not depend on the rewrite rules.

    Returns
    -------
    The values under the name of their quantity, such as `air_temperature`, `…_count`, `…_count_possible` if known,
    and `…_variance` if requested, with dimensions time (or hour_of_day, …, which have times beside their numbers), then
    lat, lon (or y, x) or point, after z if there are levels, or z alone (bands), zone, station, or series if a station
    has several; and `extrapolated`, without time, if a trend in elevation was interpolated. Grid coordinates are cell
    centres with bounds; times are the starts of their cells, with bounds.
    """
    from hypergrid.core.result_dataset import ResultDataset  # noqa: PLC0415 - loads xarray

    shape, dims = surface.topology.shape, list_dims(surface)
    flat = outcome.value.shape
    arrays = list_arrays(outcome)
    for name in arrays.keys() & {"count", "count_possible"}:
        arrays[name] = np.broadcast_to(arrays[name].astype(np.int32), flat)
    attributes = make_attributes(surface, outcome.correlation)
    coords = make_coords(surface)
    quantity = name_quantity(surface, coords)
    # As `link_variables` does, which copies a dataset: 5 % of the time of a small query.
    attributes["value"]["ancillary_variables"] = " ".join(
        name_role(quantity, role) for role in ABOUT_CELLS if role in arrays
    )
    data: dict[str, Any] = {
        name_role(quantity, role): (dims, array.reshape(shape), attributes[role]) for role, array in arrays.items()
    }
    if outcome.extrapolated is not None:
        marks = outcome.extrapolated.astype(np.int8).reshape(shape[1:])
        data["extrapolated"] = (dims[1:], marks, attributes["extrapolated"])
    about = provenance(question, surface, outcome, token=token)
    if isinstance(surface.topology.space, Points) and surface.topology.space.z is None:
        about["featureType"] = "timeSeries"
    return ResultDataset(data, coords, about)


def name_quantity(surface: Perspective, coords: Iterable[str]) -> str:
    """Return the name of a surface's values in results, unlike that of any coordinate or dimension."""
    return make_name(make_value_name(surface).name, {*coords, *list_dims(surface)})


def list_arrays(part: Outcome | Cells) -> dict[str, NDArray[Any]]:
    """Return the arrays of a surface or block by their roles in a result, without those not known."""
    possible = None if part.possible is None or not np.any(part.possible > 0) else part.possible
    named = {
        "value": part.value, "count": part.count, "count_possible": possible, "variance": part.variance,
        "variance_low": part.variance_low,
    }  # fmt: skip
    return {name: array for name, array in named.items() if array is not None}


def list_dims(surface: Perspective) -> tuple[str, ...]:
    return (surface.topology.time.name, *_space_dims(surface.topology.space))


def make_coords(surface: Perspective) -> dict[str, Any]:
    return {**time_coords(surface.topology.time), **_space_coords(surface.topology.space)}


def make_attributes(surface: Perspective, correlation: str) -> dict[str, dict[str, Any]]:
    """Return the attributes of all possible variables of a result by role; `correlation` as in `Outcome`."""
    return {
        "value": dict(_value_attributes(surface)),
        "count": {
            "long_name": _count_name(surface),
            "standard_name": "number_of_observations",
            "units": "1",
            **_AUXILIARY,
        },
        "count_possible": {"long_name": "how many there could have been", "units": "1", **_AUXILIARY},
        "variance": {**variance_attributes(surface, correlation), **_QUALITY},
        "variance_low": {**variance_attributes(surface, _OPTIMISTIC), **_QUALITY},
        "extrapolated": {
            "long_name": "whether a cell lies outside the range of elevation of the stations",
            "flag_values": np.array([0, 1], dtype=np.int8),
            "flag_meanings": "inside outside",
        },
    }


_AUXILIARY = {"coverage_content_type": "auxiliaryInformation"}
_QUALITY = {"coverage_content_type": "qualityInformation"}
"""Kinds of variables, of ISO 19115-1."""
_OPTIMISTIC = "not known: the optimistic end; variance is the other"


_SPACE_ATTRIBUTES = {
    "lon": {"standard_name": "longitude", "long_name": "longitude", "units": "degrees_east", "axis": "X"},
    "lat": {"standard_name": "latitude", "long_name": "latitude", "units": "degrees_north", "axis": "Y"},
    "x": {"standard_name": "projection_x_coordinate", "units": "m", "axis": "X"},
    "y": {"standard_name": "projection_y_coordinate", "units": "m", "axis": "Y"},
    "z": {
        "standard_name": "altitude",
        "long_name": "height above sea level",
        "units": "m",
        "axis": "Z",
        "positive": "up",
    },
}


_SERIES_ATTRIBUTES = {
    "elevation": {
        "standard_name": "surface_altitude",
        "units": "m",
        "positive": "up",
        "long_name": "elevation of the station above sea level",
    },
    "station": {"long_name": "name of the station"},
    "height_m": {"standard_name": "height", "units": "m", "positive": "up", "long_name": "height above the ground"},
    "statistic": {"long_name": "what a reading is of its interval"},
    "interval_s": {"units": "s", "long_name": "interval between readings; 0 where it is not known"},
    "replicate": {"units": "1", "long_name": "number of the sensor among those alike at one place"},
    "source": {"long_name": "feed that the readings come from"},
}


def _space_dims(space: Space) -> tuple[str, ...]:
    if isinstance(space, Grid | Bands):
        return tuple(axis.name for axis in space.axes)
    if isinstance(space, Points):
        return (*(axis.name for axis in space.axes), "point")
    return ("zone",) if isinstance(space, ZoneCells) else (_name_series_dim(space),)


def _name_series_dim(space: SeriesAxis) -> str:
    """Return "station" if each station has a single series, so that its name selects it, else "series"."""
    return "station" if len({item.station for item in space.series}) == len(space.series) else "series"


def _zone_coords(space: ZoneCells) -> dict[str, Any]:
    """Return names, representative points (inside each zone), areas, and shares inside the grid."""
    area = {"units": "m2", "long_name": "area of the zone"}
    if space.system == "lonlat":
        area["comment"] = f"on a sphere of radius {RADIUS_M:.1f} m, edges straight in longitude and latitude"
    held = {"units": "1", "long_name": "share of the zone's area that the grid holds"}
    coords: dict[str, Any] = {
        "zone": ("zone", np.array(space.zones.names, dtype=str), {"long_name": "name of the zone"})
    }
    for name, values in zip(_horizontal_names(space), (space.x, space.y), strict=True):
        coords[name] = ("zone", values, _away_from_axes(name))
    return {**coords, "area": ("zone", space.area_m2, area), "area_held": ("zone", space.share_in_grid, held)}


def _point_coords(space: Points) -> dict[str, Any]:
    number = {"long_name": "number of the point, from 0, as they were given", "cf_role": "timeseries_id"}
    coords: dict[str, Any] = {"point": ("point", np.arange(len(space.at)), number)}
    for name, values in zip(space.names, (space.x, space.y), strict=True):
        coords[name] = ("point", values, _away_from_axes(name))
    return coords


def _horizontal_names(space: SeriesAxis | ZoneCells) -> tuple[str, str]:
    return ("lon", "lat") if space.system == "lonlat" else ("x", "y")


def _away_from_axes(name: str) -> dict[str, str]:
    return {key: text for key, text in _SPACE_ATTRIBUTES[name].items() if key != "axis"}


def _space_coords(space: Space) -> dict[str, Any]:
    coords: dict[str, Any] = {}
    if isinstance(space, ZoneCells):
        return _zone_coords(space)
    if isinstance(space, Grid | Points | Bands):
        for axis in space.axes:
            bounds = f"{axis.name}_bounds"
            coords[axis.name] = (axis.name, axis.centres, {**_SPACE_ATTRIBUTES[axis.name], "bounds": bounds})
            coords[bounds] = ((axis.name, "bounds"), axis.bounds)
        return {**coords, **_point_coords(space)} if isinstance(space, Points) else coords
    series, along = space.series, _name_series_dim(space)
    for name, values in zip(_horizontal_names(space), (space.x, space.y), strict=True):
        coords[name] = (along, values, _away_from_axes(name))
    coords["elevation"] = (along, space.elevation_m, dict(_SERIES_ATTRIBUTES["elevation"]))
    held: dict[str, NDArray[Any]] = {
        "station": np.array([s.station for s in series], dtype=str),
        "height_m": np.array([np.nan if s.height_m is None else s.height_m for s in series], dtype=float),
        "statistic": np.array([s.statistic for s in series], dtype=str),
        "interval_s": np.array([s.interval_s for s in series], dtype=float),
        "replicate": np.array([s.replicate for s in series], dtype=np.int32),
        "source": np.array([s.source for s in series], dtype=str),
    }
    coords.update({name: (along, values, dict(_SERIES_ATTRIBUTES[name])) for name, values in held.items()})
    if along == "station":
        # CF allows this role only if the names are unique.
        coords["station"][2]["cf_role"] = "timeseries_id"
    return coords


def _value_attributes(surface: Perspective) -> dict[str, Any]:
    kind = "modelResult" if surface.is_interpolated else "physicalMeasurement"
    attributes: dict[str, Any] = {
        "units": to_cf(surface.unit), **value_names(surface), "coverage_content_type": kind,
    }  # fmt: skip
    value_steps = _list_value_steps(surface)
    aggregates = [item for item in value_steps if isinstance(item.operator, Aggregate)]
    others = [_describe_aggregate(item) for item in aggregates if not item.aggregate.row.cell_method]
    # Branches of a recipe may share methods.
    methods = " ".join(dict.fromkeys(filter(None, map(_cell_method, value_steps))))
    texts = {"cell_methods": methods, "comment": "; ".join(dict.fromkeys(others))}
    attributes |= {name: text for name, text in texts.items() if text}
    for item in aggregates:
        given = format_parameters(item, item.aggregate)
        attributes |= {f"{item.aggregate.function}_{name}": value for name, value in given.items()}
    normals = [_describe_reference(item.source) for item in surface.list_chain() if isinstance(item.operator, Recur)]
    if normals:
        attributes["reference"] = "; ".join(dict.fromkeys(normals))
    return attributes


def _list_value_steps(node: Perspective) -> list[Perspective]:
    if isinstance(node.operator, Recur):
        return []
    return [*(item for source in node.sources for item in _list_value_steps(source)), node]


def _describe_reference(normal: Perspective) -> str:
    """Describe what values are compared with: cells, aggregates and time."""
    steps = [_describe_aggregate(item) for item in _list_value_steps(normal) if isinstance(item.operator, Aggregate)]
    time = normal.topology.time
    # Cells over all instants of an array end one nanosecond after the last instant.
    start, stop = (format_instant(floor_to_microsecond(edge)) for edge in (time.origin, time.stop))
    return f"{value_names(normal)['long_name']}: {', then '.join(dict.fromkeys(steps))}; {start} to {stop}"


def _describe_aggregate(item: Perspective) -> str:
    """Describe an aggregate in words, for attributes other than cell methods."""
    operator = item.aggregate
    remarks = [describe_time_cells(operator.dimensions, item.topology.time), _describe_weights(item, operator)]
    words = ", ".join(remark for remark in remarks if remark)
    over = f"{operator.describe_call()} over {', '.join(operator.dimensions)}"
    return f"{over} ({words})" if words else over


def _cell_method(item: Perspective) -> str:
    """Return the CF cell method of a step; empty if it has none."""
    operator = item.operator
    if isinstance(operator, InterpolateInTime):
        return f"time: point (comment: {operator.method})"
    if isinstance(operator, Interpolate):
        return _describe_support(operator, item.topology.space)
    if not isinstance(operator, Aggregate) or not operator.row.cell_method:
        return ""
    return format_cell_methods(
        operator.dimensions, operator.row.cell_method, item.topology.time, remark=_describe_weights(item, operator)
    )


def _describe_weights(item: Perspective, operator: Aggregate) -> str:
    """Describe how an aggregate weighs unequal cells; empty if weights make no difference."""
    differ, row = _describe_differences(item, operator), operator.row
    if not differ or row.weigh == "share":
        return ""
    if row.weigh == "area":
        return f"weighted by the {differ} of the cells"
    # A minimum, for example, does not depend on weights.
    matters = row.step is not None or row.whole is not None
    return f"each cell alike, whatever its {differ}" if matters else ""


def _describe_differences(item: Perspective, operator: Aggregate) -> str:
    """Name the properties in which aggregated cells differ; empty if there are none."""
    below, above = item.source.topology.space, item.topology.space
    if not changes_cells(below, above) or not isinstance(below, Grid):
        return ""
    by_area = "lat" in operator.dimensions or (isinstance(above, Bands) and below.system == "lonlat")
    by_height = isinstance(below.z, Bins) and "z" in operator.dimensions
    return " and ".join(name for name, is_so in (("area", by_area), ("height", by_height)) if is_so)


def _describe_support(operator: Interpolate, space: Space) -> str:
    given = operator.arguments
    height = "z: " if isinstance(space, Grid | Points) and space.z is not None else ""
    if given.get("support") != "block":
        return f"{height}area: point (comment: estimate at the cell's centre)"
    side, point = given.get("quadrature", 4), height and "z: point "
    return f"{point}area: mean (comment: block of {side} by {side} Gauss-Legendre points)"


def _count_name(surface: Perspective) -> str:
    if isinstance(surface.operator, Interpolate):
        return "stations used"
    if isinstance(surface.operator, Aggregate | InterpolateInTime):
        return "readings used" if surface.source.holds_readings else "source cells used"
    return "readings or source cells used"


_STATISTICS = {"mean": "Mean", "max": "Maximum", "min": "Minimum", "sum": "Sum"}
"""Words of aggregates in titles; others have a name of their own, or none."""


def make_title(surface: Perspective) -> str:
    """Describe a surface in words: statistic, quantity, time, and the interpolation."""
    steps = _list_value_steps(surface)
    over_time = [item.aggregate for item in steps if isinstance(item.operator, Aggregate)]
    over_time = [operator for operator in over_time if "time" in operator.dimensions]
    words = value_names(surface)["long_name"]
    statistic = _STATISTICS.get(over_time[-1].function, "") if over_time else ""
    if statistic and not (over_time[-1].row.long_name or words.lower().startswith(statistic.lower())):
        words = f"{statistic} {words[:1].lower()}{words[1:]}"
    time = surface.topology.time
    made = [item.operator.method.replace("_", " ") for item in steps if isinstance(item.operator, Interpolate)]
    return ", ".join([words, _describe_period(time.origin, time.stop), *dict.fromkeys(made)])


def _describe_period(start_ns: int, stop_ns: int) -> str:
    """Describe a time in words, to the instant, or by its first and last day where it has whole days."""
    # Cells over all instants of an array end one nanosecond after the last instant.
    start, stop = (floor_to_microsecond(edge) for edge in (start_ns, stop_ns))
    if start % DAY_NS or stop % DAY_NS or stop <= start:
        return f"{format_instant(start)} to {format_instant(stop)}"
    first, last = (format_instant(day).removesuffix("T00:00Z") for day in (start, stop - DAY_NS))
    return first if first == last else f"{first} to {last}"


def provenance(question: QuerySpec, surface: Perspective, outcome: Outcome, *, token: str) -> dict[str, str]:
    """Return the attributes of a result: its description, and everything needed to reproduce it."""
    bases = surface.bases
    attributes = {
        "Conventions": "CF-1.11, ACDD-1.3",
        "title": make_title(surface),
        "summary": f"{question.variable}: {' > '.join(step.name for step in question.steps) or 'readings'}",
        "keywords": ", ".join(dict.fromkeys([question.variable, *value_names(surface).values()])),
        "source": "HyperGrid " + VERSION,
        # Without an instant, so that equal results are equal files; commands that write files say when and how instead.
        "history": f"computed by HyperGrid {VERSION}",
        "hypergrid_version": VERSION,
        "hypergrid_libraries": f"numpy {np.__version__}, scipy {scipy.__version__}",
        "hypergrid_query": json.dumps(question.to_json()),
        "hypergrid_token": token,
        "hypergrid_functions": format_functions(surface),
        "hypergrid_snapshot": ", ".join(sorted({str(base.source.snapshot or "array") for base in bases})),
    }
    read = {
        base.source.archive.snapshot: base.source.archive for base in bases if isinstance(base.source, ArchiveSource)
    }
    archives = {archive.name for archive in read.values()}
    if archives:
        # In the order of the snapshot ids. Once the snapshots have expired, these instants answer the query.
        # A snapshot that expired during the run has no instant any more; the values read from it stay valid.
        with suppress(NotFound):
            instants = [format_instant(archive.committed_ns) for _, archive in sorted(read.items())]
            attributes["hypergrid_snapshot_time"] = ", ".join(instants)
        # The name, not the path: a copy elsewhere, or on another machine, gives the same attribute.
        attributes["hypergrid_archive"] = ", ".join(sorted(archives))
        attributes |= join_attributes([archive.publication for _, archive in sorted(read.items())])
    placings = [
        (item.source.stations, place_stations(item.source.stations, item.operator))
        for item in surface.list_chain()
        if isinstance(item.operator, Interpolate)
    ]
    if placings:
        ways = dict.fromkeys(placing.metres.description for _, placing in placings)
        attributes["hypergrid_distance"] = "; ".join(ways)
        attributes["hypergrid_stations"] = format_stations(
            axis.series[at].station for axis, placing in placings for at in np.flatnonzero(placing.near).tolist()
        )
    if outcome.left_out:
        parts = [f"{count} by {reason}" for reason, count in sorted(outcome.left_out.items())]
        attributes["hypergrid_readings_left_out"] = ", ".join(parts)
    kinds = (explain_unknown_coverage, describe_overlap, describe_odd_cells)
    of_steps = (about(item) for about in kinds for item in surface.list_chain())
    notes = [*outcome.notes, *dict.fromkeys(filter(None, of_steps))]
    notes += outcome.tally(coverage_of(surface)).notes(surface)
    dependence = find_clock_dependence(surface)
    if dependence is not None and dependence.cells.any():
        attributes["hypergrid_clock_cells"] = dependence.list_runs()
        notes.append(dependence.describe())
    if outcome.is_empty:
        notes.append(note_all_missing(surface, outcome.left_out))
    if outcome.extrapolated is not None and outcome.extrapolated.any():
        share = outcome.extrapolated.mean()
        notes.append(f"{share:.1%} of the cells lie outside the stations' range of elevation (extrapolated)")
    if notes:
        attributes["comment"] = "; ".join(notes)
    return attributes


MAX_STATIONS: Final = 1000
"""Maximum number of stations that a result names, as an attribute of HDF5 holds 64 KiB."""


def format_stations(names: Iterable[str]) -> str:
    """List the stations that interpolations may use, each once, and the number of those beyond the limit."""
    known = list(dict.fromkeys(names))
    more = f" and {len(known) - MAX_STATIONS:,} more" if len(known) > MAX_STATIONS else ""
    return f"{', '.join(known[:MAX_STATIONS])}{more}"


def split_notes(comment: str) -> list[str]:
    """Split the comment of a result into notes at semicolons outside parentheses."""
    notes, depth, start = [], 0, 0
    for index, letter in enumerate(comment):
        depth += (letter == "(") - (letter == ")")
        if depth <= 0 and comment.startswith("; ", index):
            notes.append(comment[start:index])
            start = index + 2
    return [note for note in (*notes, comment[start:]) if note]


def variance_attributes(surface: Perspective, correlation: str) -> dict[str, str]:
    """Return the attributes of a variance: its value, aggregates and correlation in time.

    Parameters
    ----------
    surface
        The computed perspective.
    correlation
        Correlation between slices that was used; empty if none was needed.
    """
    below, aggregates = split_aggregates(surface)
    operator = below.operator
    given = operator.arguments if isinstance(operator, Interpolate) else {}
    model = given.get("variogram")
    is_block = given.get("support") == "block"
    is_noise = isinstance(model, Variogram) and model.noise > 0
    noise_free = is_noise and (is_block or given.get("variance_of") == "noise-free")
    value = "noise-free value" if noise_free else "observable value"
    steps = [item.operator for item in aggregates if isinstance(item.operator, Aggregate)]
    over = [f"{step.function} over {', '.join(step.dimensions)}" for step in steps]
    of = f"the {', then '.join(over)}, of the {value}" if over else f"the {value}"
    attributes = {
        "long_name": f"kriging variance of {of}",
        "units": f"({to_cf(surface.unit)})2",
        "variance_of": value,
        "support": "mean of a cell" if is_block else "point at a cell's centre",
    }
    if correlation:
        attributes["temporal_correlation"] = correlation
    return attributes


@dataclass(frozen=True)
class ValueName:
    """Names of values, and the unit in which they apply."""

    name: str
    """Name in results and their files."""
    long_name: str
    """Name for display."""
    standard_name: str | None
    """CF standard name, if it applies exactly."""
    unit: str
    """Unit in which the names apply: a count of temperatures is not a temperature."""


def make_value_name(node: Perspective) -> ValueName:
    """Name the values of a perspective by its last renaming step, or its readings."""
    operator = node.operator
    if isinstance(operator, Base):
        variable = KNOWN_VARIABLES.get(operator.source.variable.name, operator.source.variable)
        return ValueName(variable.name, variable.long_name or variable.name, variable.standard_name, variable.unit)
    names = [make_value_name(source) for source in node.sources]
    if isinstance(operator, Merge):
        row = operator.row
        long_names = [name.long_name for name in names]
        standard = row.standard_name
        if standard is not None and "{0}" in standard:
            standard = standard.format(names[0].standard_name) if names[0].standard_name in ANOMALIES else None
        return ValueName(
            _name_merge(row, names), row.long_name.format(*long_names) or names[0].long_name, standard, node.unit
        )
    if isinstance(operator, Convert):
        for row_ in reversed(operator.list_rows()):
            if row_.long_name or row_.standard_name:
                return ValueName(row_.name, row_.long_name or names[0].long_name, row_.standard_name, node.unit)
        rows = zip(operator.list_rows(), operator.calls, strict=True)
        if not all(row_.keeps_quantity(call.arguments) for row_, call in rows):
            return replace(names[0], standard_name=None)
    if isinstance(operator, Aggregate):
        return _name_aggregate(names[0], node, operator)
    return names[0]


def _name_merge(row: MergeRow, sources: Sequence[ValueName]) -> str:
    """Name what a merge makes: by its sources if its words name them, by the function if they do not."""
    names = [source.name for source in sources]
    if "{0}" in row.long_name:
        return row.long_name.format(*names)
    return row.name if row.long_name or row.standard_name else names[0]


def _name_aggregate(below: ValueName, node: Perspective, operator: Aggregate) -> ValueName:
    row, name = operator.row, f"{operator.function}_of_{below.name}"
    if row.long_name:
        words = {key: str(value) for key, value in format_parameters(node, operator).items()}
        return ValueName(name, row.long_name.format(below.long_name, **words), row.standard_name, node.unit)
    if node.unit != node.source.unit:
        return ValueName(name, f"{operator.function} of {below.long_name}", None, node.unit)
    return below


def format_parameters(node: Perspective, operator: Aggregate) -> dict[str, Any]:
    """Return an aggregate's parameters by name, as numbers or as text with unit."""
    units = {parameter.name: parameter.unit for parameter in operator.row.parameters}
    parameters: dict[str, Any] = {}
    for name, value in operator.parameters:
        unit = node.source.unit if units.get(name) == "variable" else units.get(name, "")
        plain = ", ".join(map(str, value)) if isinstance(value, tuple) else value
        parameters[name] = (
            plain if unit in ("", "1", "unknown") or isinstance(plain, str) else f"{plain:g} {to_cf(unit)}"
        )
    return parameters


def value_names(surface: Perspective) -> dict[str, str]:
    """Return `long_name`, and `standard_name` if the values still have its unit."""
    name = make_value_name(surface)
    named = {"long_name": name.long_name}
    if name.standard_name and surface.unit == name.unit:
        named["standard_name"] = name.standard_name
    return named


def format_functions(surface: Perspective) -> str:
    """Return the versions of a chain's functions as JSON: "operator name" to version."""
    used: dict[str, str] = {}
    for item in surface.list_chain():
        operator = item.operator
        if isinstance(operator, Convert):
            used.update({f"convert {call.name}": _version("convert", call.name) for call in operator.calls})
        elif isinstance(operator, Aggregate | Merge):
            kind = "aggregate" if isinstance(operator, Aggregate) else "merge"
            used[f"{kind} {operator.function}"] = _version(kind, operator.function)
        elif isinstance(operator, Interpolate | InterpolateInTime):
            used[f"interpolate {operator.method}"] = _version("interpolate", operator.method)
    return json.dumps(used)


def _version(kind: str, name: str) -> str:
    return FUNCTION_IDENTITIES[kind, name].origin if (kind, name) in FUNCTION_IDENTITIES else f"HyperGrid {VERSION}"


def time_coords(axis: TimeAxis) -> dict[str, Any]:
    """Return the coordinates of a time axis.

    Returns
    -------
    Instants: `time`. Cells: `time`, their starts, and `time_bounds`. Periodic cells: their numbers (`hour_of_day`, …),
    `time`, the start of each one's first block, and `climatology_bounds`, from there to the end of its last block (CF
    1.11, section 7.4); a cell without blocks has bounds of zero length.
    """
    if isinstance(axis, Instants) or are_instants(axis):
        attributes = {"standard_name": "time", "long_name": "time (UTC)", "axis": "T"}
        return {"time": xr.Variable("time", axis.corners.view("datetime64[ns]"), attributes, _time_unit(axis.corners))}
    if isinstance(axis, Periodic):
        return _climatology_coords(axis)
    attributes = {
        "standard_name": "time",
        "axis": "T",
        "bounds": "time_bounds",
        "long_name": "start of the time cell (UTC)",
    }
    return _bounded_coords("time", np.stack(blocks_of(axis), axis=1), "time_bounds", attributes)


def _climatology_coords(axis: Periodic) -> dict[str, Any]:
    cycle = axis.cycle
    numbered: dict[str, Any] = {
        "long_name": f"{cycle.name.replace('_', ' ')} ({cycle.calendar.clock.describe()})",
        "units": "1",
    }
    if cycle.meanings:
        numbered["flag_values"] = axis.labels.astype(np.int32)
        numbered["flag_meanings"] = " ".join(cycle.meanings[cell] for cell in axis.cells.tolist())
    attributes = {
        "standard_name": "time",
        "climatology": "climatology_bounds",
        "long_name": "start of the cell's first block of time (UTC)",
    }
    bounds = np.stack([axis.corners, axis.last_ends], axis=1)
    numbers = xr.Variable(axis.name, axis.labels.astype(np.int32), numbered)
    return {axis.name: numbers, **_bounded_coords(axis.name, bounds, "climatology_bounds", attributes)}


def _bounded_coords(dimension: str, bounds: NDArray[np.int64], name: str, attributes: dict[str, str]) -> dict[str, Any]:
    # Use one unit, so that a file's times and their bounds can be compared.
    unit = _time_unit(bounds)
    return {
        "time": xr.Variable(dimension, bounds[:, 0].copy().view("datetime64[ns]"), attributes, unit),
        name: xr.Variable((dimension, "bounds"), bounds.view("datetime64[ns]"), None, unit),
    }


def _time_unit(instants_ns: NDArray[np.int64]) -> dict[str, str]:
    unit = "nanoseconds" if (instants_ns % SECOND_NS).any() else "seconds"
    return {"units": f"{unit} since 1970-01-01", "calendar": "standard", "dtype": "int64"}


def format_cell_methods(dimensions: Sequence[str], method: str, time: TimeAxis, remark: str = "") -> str:
    """Return the CF cell methods of an aggregate.

    Parameters
    ----------
    dimensions
        The dimensions that change.
    method
        CF name of the function.
    time
        Time cells of the aggregate.
    remark
        A further remark, in words.
    """
    if "zones" in dimensions:
        method = f"{method} where zone"
    over = " ".join("area:" if dimension == "zones" else f"{dimension}:" for dimension in dimensions)
    within = time.cycle.within if isinstance(time, Periodic) and "time" in dimensions else None
    cell_methods = (
        f"{over} {method}" if within is None else f"{over} {method} within {within} {over} {method} over {within}"
    )
    remarks = ", ".join(words for words in (describe_time_cells(dimensions, time), remark) if words)
    return f"{cell_methods} (comment: {remarks})" if remarks else cell_methods


def describe_time_cells(dimensions: Sequence[str], time: TimeAxis) -> str:
    """Describe the time cells of an aggregate; empty for instants or without time."""
    if "time" not in dimensions:
        return ""
    if isinstance(time, Periodic):
        return f"by {time.describe()}"
    if isinstance(time, Bins):
        return f"cells of {time.describe()}"
    return f"cells of {format_duration(round_length_ns(time.length))}" if isinstance(time, Regular) else ""
