"""CoverageJSON (OGC Community Standard 21-069r2): grids, point series, and collections, as JSON values.

Missing values are null, times carry the bounds of their cells, and a variance shares a parameter group with its value.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, Literal

import numpy as np
from numpy.typing import NDArray

from hypergrid.core.lazy_libraries import xr
from hypergrid.core.result_names import by_role

MEDIA_TYPE: Final = "application/vnd.cov+json"
CRS84: Final = "http://www.opengis.net/def/crs/OGC/1.3/CRS84"
UCUM: Final = "http://www.opengis.net/def/uom/UCUM/"
STANDARD_NAMES: Final = "http://vocab.nerc.ac.uk/standard_name/"
_CODES: Final = {
    "degC": "Cel",
    "(degC)2": "K2",
    "delta_degC": "K",
    "degree": "deg",
    "degrees": "deg",
    "unknown": "1",
    "": "1",
}

_UNITS: Final[tuple[tuple[Literal["s", "ms", "us", "ns"], int], ...]] = (
    ("s", 10**9), ("ms", 10**6), ("us", 10**3), ("ns", 1),
)  # fmt: skip

Json = dict[str, Any]


def result_json(dataset: xr.Dataset, wanted: Iterable[str] | None = None) -> Json:
    """Convert a result to a Coverage (map, elevation bands) or a CoverageCollection (stations, zones, points).

    Parameters
    ----------
    dataset
        Result of a query, or some of its cells; other coordinates are kept.
    wanted
        Names of parameters, as returned by `parameter_names`; None: all.

    Returns
    -------
    JSON values. Provenance (query, snapshot, token) is under `hypergrid:provenance`.
    """
    dataset = by_role(dataset)
    keys = {name: key for name, key in parameter_names(dataset).items() if wanted is None or key in set(wanted)}
    joint = next((name for name in ("series", "station", "zone", "point") if name in dataset.dims), None)
    shared = {
        "parameters": {key: make_parameter(key, dataset[name].attrs) for name, key in keys.items()},
        **parameter_groups(keys, dataset),
    }
    ordered = _sort_by_time(dataset)
    about = {name: text for name, text in dataset.attrs.items() if str(name).startswith("hypergrid_")}
    if joint is None:
        return _make_coverage(ordered, keys) | shared | {"hypergrid:provenance": about}
    parts = [_make_coverage(ordered.isel({joint: index}), keys) for index in range(dataset.sizes[joint])]
    return make_collection(parts, shared) | {"hypergrid:provenance": about}


def parameter_names(dataset: xr.Dataset) -> dict[str, str]:
    """Map the roles of a result's variables to parameter keys.

    The value has the name of the query's variable, the others a suffix to it.
    """
    variable = str(json.loads(dataset.attrs["hypergrid_query"])["variable"])
    return {str(name): variable if name == "value" else f"{variable}_{name}" for name in by_role(dataset).data_vars}


def parameter_groups(keys: Mapping[str, str], dataset: xr.Dataset) -> Json:
    """Return the parameter group of an estimate and its variance; empty unless both exist."""
    if not {"value", "variance"} <= keys.keys():
        return {}
    label = f"{dataset['value'].attrs.get('long_name', keys['value'])} and the variance of its error"
    members = [keys[name] for name in ("value", "variance", "variance_low") if name in keys]
    return {"parameterGroups": [{"type": "ParameterGroup", "label": {"en": label}, "members": members}]}


def make_parameter(key: str, attributes: Mapping[str, Any]) -> Json:
    """Build a parameter from CF attributes: long_name, standard_name, units; flags become categories."""
    label = {"en": str(attributes.get("long_name", key))}
    observed: Json = {"label": label}
    if "standard_name" in attributes:
        # A standard name modifier may follow the name after a blank (CF appendix C).
        observed["id"] = f"{STANDARD_NAMES}{str(attributes['standard_name']).split()[0]}/"
    if "flag_values" in attributes:
        words = str(attributes["flag_meanings"]).split()
        observed["categories"] = [{"id": word, "label": {"en": word.replace("_", " ")}} for word in words]
        codes = {word: int(code) for word, code in zip(words, attributes["flag_values"], strict=True)}
        return {"type": "Parameter", "label": label, "observedProperty": observed, "categoryEncoding": codes}
    parameter_json: Json = {"type": "Parameter", "label": label, "observedProperty": observed}
    if "cell_methods" in attributes:
        parameter_json["description"] = {"en": str(attributes["cell_methods"])}
    return parameter_json | {"unit": {"symbol": {"value": to_ucum(str(attributes.get("units", "1"))), "type": UCUM}}}


def to_ucum(unit: str) -> str:
    """Convert a CF unit to UCUM: "W m-2" becomes "W.m-2", "degC" becomes "Cel"."""
    return ".".join(_CODES.get(word, word) for word in unit.split()) or "1"


def point_series(
    position: tuple[float, float, float | None], times: Json, ranges: Mapping[str, NDArray[Any]], **more: object
) -> Json:
    """Build the coverage of one point over time.

    It has no domain type if the position is unknown.

    Parameters
    ----------
    position
        Longitude and latitude [degree], NaN if unknown, and height [m] or None.
    times
        Time axis from `time_axis`.
    ranges
        Values by parameter, each of shape (times,).
    more
        Further members, such as `id`.
    """
    lon, lat, height_m = position
    known = math.isfinite(lon) and math.isfinite(lat)
    axes: Json = {"x": {"values": [lon]}, "y": {"values": [lat]}} if known else {}
    systems = [_horizontal_system(("x", "y"), geographic=True)] if known else []
    if known and height_m is not None and math.isfinite(height_m):
        axes["z"] = {"values": [height_m]}
        systems.append(_VERTICAL)
    domain: Json = {"type": "Domain", **({"domainType": "PointSeries"} if known else {})}
    domain |= {"axes": {**axes, "t": times}, "referencing": [*systems, _TEMPORAL]}
    held = {key: array_json(values, ("t",)) for key, values in ranges.items()}
    return {"type": "Coverage", **more, "domain": domain, "ranges": held}


def make_collection(coverages: Sequence[Json], shared: Mapping[str, Any]) -> Json:
    kinds = {coverage["domain"].get("domainType") for coverage in coverages}
    kind = {"domainType": kinds.pop()} if len(kinds) == 1 and None not in kinds else {}
    return {"type": "CoverageCollection", **kind, **shared, "coverages": list(coverages)}


def time_axis(
    starts_ns: NDArray[np.int64],
    ends_ns: NDArray[np.int64] | None = None,
    *,
    stamps_ns: NDArray[np.int64] | None = None,
) -> Json:
    """Build a time axis of instants, or of cells with bounds.

    Values are the stamps, or the starts if absent.
    """
    values = starts_ns if stamps_ns is None else stamps_ns
    if ends_ns is None or np.array_equal(starts_ns, ends_ns):
        return {"values": format_instants(values)}
    bounds = np.stack([starts_ns, ends_ns], axis=1).ravel()
    return {"values": format_instants(values), "bounds": format_instants(bounds)}


def format_instants(times_ns: NDArray[np.int64]) -> list[str]:
    """Format instants as ISO 8601 in UTC, with seconds and the fewest common decimals."""
    unit = next(name for name, unit_ns in _UNITS if not (times_ns % unit_ns).any())
    texts: list[str] = np.datetime_as_string(times_ns.astype("datetime64[ns]"), unit=unit).tolist()
    return [f"{text}Z" for text in texts]


def array_json(values: NDArray[Any], names: Sequence[str]) -> Json:
    """Encode an array as an NdArray of integers, or of floats and null."""
    whole = values.dtype.kind in "iu"
    listed = values.ravel().astype(object)
    if not whole:
        # JSON has no NaN or infinity.
        listed[~np.isfinite(values.ravel())] = None
    return {
        "type": "NdArray",
        "dataType": "integer" if whole else "float",
        "axisNames": list(names),
        "shape": list(values.shape),
        "values": listed.tolist(),
    }


_TEMPORAL: Final[Json] = {"coordinates": ["t"], "system": {"type": "TemporalRS", "calendar": "Gregorian"}}
_VERTICAL: Final[Json] = {
    "coordinates": ["z"],
    "system": {"type": "VerticalCRS", "description": {"en": "height above mean sea level [m]"}},
}
_AXES: Final = {"lon": "x", "lat": "y", "x": "x", "y": "y", "z": "z"}


def _horizontal_system(names: Sequence[str], *, geographic: bool) -> Json:
    if geographic:
        return {"coordinates": list(names), "system": {"type": "GeographicCRS", "id": CRS84}}
    about = "the metres that the stations' positions were given in"
    return {"coordinates": list(names), "system": {"type": "ProjectedCRS", "description": {"en": about}}}


def _sort_by_time(dataset: xr.Dataset) -> xr.Dataset:
    """Return the cells in order of time; recurring cells can be out of order."""
    along = str(dataset["time"].dims[0])
    order = np.argsort(dataset["time"].to_numpy(), kind="stable")
    return dataset if (order[1:] > order[:-1]).all() else dataset.isel({along: order})


def _make_coverage(dataset: xr.Dataset, keys: Mapping[str, str]) -> Json:
    """Build the coverage of a map, elevation bands, a station, a zone or a point."""
    along = str(dataset["time"].dims[0])
    times = _make_time_axis(dataset, along)
    axis_names = [name for name in ("lon", "lat", "x", "y", "z") if name in dataset.dims]
    axis_of = {**_AXES, along: "t"}
    ranges = {
        key: array_json(dataset[name].to_numpy(), [axis_of[str(dim)] for dim in dataset[name].dims])
        for name, key in keys.items()
    }
    geographic = "lon" in dataset.coords
    horizontal = ("lon", "lat") if geographic else ("x", "y")
    if not axis_names:
        x, y = (float(dataset[name]) if name in dataset.coords else math.nan for name in horizontal)
        name = next(str(dataset[label].item()) for label in ("station", "zone", "point") if label in dataset.coords)
        elevation_m = float(dataset["elevation"]) if "elevation" in dataset.coords else None
        made = point_series((x, y, elevation_m), times, {}, id=name)
        if not geographic and made["domain"]["axes"].keys() > {"t"}:
            made["domain"]["referencing"][0] = _horizontal_system(("x", "y"), geographic=False)
        return made | {"ranges": ranges}
    axes: Json = {
        _AXES[name]: {
            "values": dataset[name].to_numpy().tolist(),
            "bounds": dataset[f"{name}_bounds"].to_numpy().ravel().tolist(),
        }
        for name in axis_names
    }
    if "point" in dataset.coords:
        axes = {_AXES[name]: {"values": [float(dataset[name])]} for name in horizontal} | axes
    systems = [_horizontal_system(("x", "y"), geographic=geographic)] if "x" in axes else []
    systems += [_VERTICAL] if "z" in axes else []
    domain: Json = {"type": "Domain", **({"domainType": "Grid"} if {"lon", "x"} & set(axis_names) else {})}
    domain |= {"axes": {**axes, "t": times}, "referencing": [*systems, _TEMPORAL]}
    return {"type": "Coverage", "domain": domain, "ranges": ranges}


def _make_time_axis(dataset: xr.Dataset, along: str) -> Json:
    starts = dataset["time"].to_numpy().astype("datetime64[ns]").astype(np.int64)
    bounds = next((dataset[name] for name in ("time_bounds", "climatology_bounds") if name in dataset.variables), None)
    axis = time_axis(starts)
    if bounds is not None:
        edges = bounds.to_numpy().astype("datetime64[ns]").astype(np.int64)
        axis = time_axis(edges[:, 0], edges[:, 1], stamps_ns=starts)
    # Recurring cells have numbers in addition to the start of their first block.
    return axis if along == "time" else {**axis, f"hypergrid:{along}": dataset[along].to_numpy().tolist()}
