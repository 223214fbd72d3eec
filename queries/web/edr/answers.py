"""EDR answers in the requested format: CoverageJSON, GeoJSON, NetCDF, CSV; 204 without data."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, Final
from urllib.parse import quote

import numpy as np
from fastapi import Response

from hypergrid.core.errors import TooLarge
from hypergrid.core.lazy_libraries import xr
from hypergrid.core.result_names import by_role, find_names
from hypergrid.formats.covjson import MEDIA_TYPE, make_collection, point_series, result_json, time_axis
from hypergrid.formats.readings import make_coverages, make_parameters
from queries.snapshots.readings import FORMATS as READING_FORMATS
from queries.web.edr.metadata import Json, parameters_of
from queries.web.edr.stations import ReadingsAnswer, StationsCollection
from queries.web.edr.surfaces import SurfaceCollection
from queries.web.responses.files import attachment, file_response, readings_name, surface_response

_FILES: Final[Mapping[str, str]] = {"NetCDF": "netcdf", "CSV": "csv"}
"""File formats by their EDR names."""
GEOJSON: Final = "application/geo+json"
MOST_FEATURES: Final = 100_000
"""Limit of values in a GeoJSON answer."""


def no_data_response() -> Response:
    return Response(status_code=204)


def readings_response(
    read: ReadingsAnswer,
    form: str,
    base: str,
    collection_of: StationsCollection,
    details: Mapping[str, Json] | None = None,
) -> Response:
    """Answer with readings; `details` are extra members by station, such as the distance.

    Raises
    ------
    InvalidQuery
        NetCDF of several parameters.
    """
    pieces = [piece for piece in read.pieces if len(piece.readings)]
    if not pieces:
        return no_data_response()
    if form in _FILES:
        row = READING_FORMATS[_FILES[form]]
        named = attachment(readings_name(read.chosen, pieces), row.suffix)
        return file_response(partial(row.to_bytes, read.chosen, pieces), media_type=row.media_type, headers=named)
    made = [coverage | (details or {}).get(coverage["id"], {}) for coverage in make_coverages(read.chosen, pieces)]
    shared = {"parameters": make_parameters(read.chosen.kinds)}
    if form == "GeoJSON":
        url = f"{base}/collections/{collection_of.id}/locations"
        parameters = parameters_of(collection_of, shared["parameters"])
        return _features(
            [_feature(coverage, url, parameters, collection_of.label(coverage["id"])) for coverage in made], parameters
        )
    return _json(made[0] | shared if len(made) == 1 else make_collection(made, shared), MEDIA_TYPE)


def check_features(form: str, values: int) -> None:
    """Reject too many values for GeoJSON, before they are computed.

    Raises
    ------
    TooLarge
        The message has both numbers.
    """
    if form == "GeoJSON" and values > MOST_FEATURES:
        remedy = "ask for f=CoverageJSON, f=CSV or f=NetCDF"
        raise TooLarge("the answer in GeoJSON", "values", values, MOST_FEATURES, remedy)


def map_response(
    dataset: xr.Dataset, form: str, keys: Sequence[str], collection_of: SurfaceCollection, base: str
) -> Response:
    """Answer with cells of a surface."""
    held = _select_variables(dataset, keys, collection_of)
    if form in _FILES:
        return surface_response(held, _FILES[form], headers={})
    held = by_role(held)
    if form == "CoverageJSON":
        return _json(result_json(held, keys), MEDIA_TYPE)
    cells = held.stack(cell=[name for name in held["value"].dims if name != held["time"].dims[0]])
    points = [cells.isel(cell=index) for index in range(cells.sizes["cell"])]
    made = [_series(point, keys, collection_of, (float(point["lon"]), float(point["lat"]))) for point in points]
    return _surface_features(made, keys, collection_of, base)


def points_response(
    dataset: xr.Dataset, form: str, keys: Sequence[str], collection_of: SurfaceCollection, base: str
) -> Response:
    """Answer with a surface at positions; the last dimension of the dataset is the point."""
    held = _select_variables(dataset, keys, collection_of)
    if form in _FILES:
        return surface_response(held, _FILES[form], headers={})
    held = by_role(held)
    times = _time_axis(held)
    heights: list[float | None] = [None] if "z" not in held.dims else held["z"].to_numpy().tolist()
    # NumPy, as xarray would take a millisecond per point and level.
    arrays = {key: held[collection_of.parameters[key][0]].to_numpy() for key in keys}
    columns = {key: array.reshape(len(array), len(heights), -1) for key, array in arrays.items()}
    made = [
        point_series((lon, lat, height_m), times, {key: array[:, level, index] for key, array in columns.items()})
        for index, (lon, lat) in enumerate(np.stack([held["lon"], held["lat"]], axis=1).tolist())
        for level, height_m in enumerate(heights)
    ]
    if form == "GeoJSON":
        return _surface_features(made, keys, collection_of, base)
    document = result_json(held.isel(point=[0]), keys)
    shared: Json = {name: document[name] for name in ("parameters", "parameterGroups") if name in document}
    return _json(made[0] | shared if len(made) == 1 else make_collection(made, shared), MEDIA_TYPE)


def features_response(
    entries: Sequence[Json], links: Sequence[Json], matched: int, collection_of: StationsCollection
) -> Response:
    paging = {"numberMatched": matched, "numberReturned": len(entries), "links": list(links)}
    return _features(entries, parameters_of(collection_of), paging)


def _surface_features(
    made: Sequence[Json], keys: Sequence[str], collection_of: SurfaceCollection, base: str
) -> Response:
    url, parameters = f"{base}/collections/{collection_of.id}/position", parameters_of(collection_of, keys)
    return _features([_feature(coverage, url, parameters) for coverage in made], parameters)


def _features(entries: Sequence[Json], parameters: Json, more: Mapping[str, Any] = MappingProxyType({})) -> Response:
    """Make a feature collection in EDR's GeoJSON profile, with its parameters."""
    document = {"type": "FeatureCollection", **more, "parameters": list(parameters.values())}
    return _json({**document, "features": list(entries)}, GEOJSON)


def _select_variables(dataset: xr.Dataset, keys: Sequence[str], collection_of: SurfaceCollection) -> xr.Dataset:
    # Variance and count refer to the value.
    roles, names = {collection_of.parameters[key][0] for key in keys} | {"value"}, find_names(dataset)
    kept = {name for role, name in names.items() if role in roles}
    return dataset.drop_vars([name for name in dataset.data_vars if name not in kept])


def _series(
    point: xr.Dataset, keys: Sequence[str], collection_of: SurfaceCollection, position: tuple[float, float]
) -> Json:
    ranges = {key: point[collection_of.parameters[key][0]].to_numpy() for key in keys}
    height_m = float(point["z"]) if "z" in point.coords else None
    return point_series((*position, height_m), _time_axis(point), ranges)


def _time_axis(dataset: xr.Dataset) -> Json:
    starts = dataset["time"].to_numpy().astype("datetime64[ns]").astype(np.int64)
    if "time_bounds" not in dataset:
        return time_axis(starts)
    edges = dataset["time_bounds"].to_numpy().astype("datetime64[ns]").astype(np.int64)
    return time_axis(edges[:, 0], edges[:, 1])


def _feature(coverage: Json, url: str, parameters: Json, label: str | None = None) -> Json:
    axes = coverage["domain"]["axes"]
    times = axes["t"]["values"]
    coordinates = [axes[name]["values"][0] for name in ("x", "y", "z") if name in axes]
    name = coverage.get("id")
    more = {key: value for key, value in coverage.items() if ":" in key}
    return {
        "type": "Feature",
        **({} if name is None else {"id": name}),
        "geometry": {"type": "Point", "coordinates": coordinates} if coordinates else None,
        "properties": {
            "datetime": times[0] if len(times) == 1 else f"{times[0]}/{times[-1]}",
            "label": label if label is not None else ", ".join(f"{number:.6g}" for number in coordinates),
            "parameter-name": list(coverage["ranges"]),
            "edrqueryendpoint": url if name is None else f"{url}/{quote(name, safe='')}",
            "times": times,
            "values": {key: held["values"] for key, held in coverage["ranges"].items()},
            "units": {key: parameters[key]["unit"]["symbol"]["value"] for key in coverage["ranges"]},
            **more,
        },
    }


def _json(content: Json, media_type: str) -> Response:
    return file_response(
        lambda: json.dumps(content, allow_nan=False, separators=(",", ":")).encode(), media_type=media_type
    )
