"""What EDR tells of itself: landing page, conformance, collections with nested extents, queries and parameters."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np

from hypergrid.covjson import MEDIA_TYPE, STANDARD_NAMES, UCUM, ucum
from hypergrid.reading_files import Kind
from hypergrid.times import Window
from hypergrid.topology import Regular
from queries.web.edr.asked import CRS, FORMATS
from queries.web.edr.stations import NEAREST_M, StationsCollection
from queries.web.edr.surfaces import SurfaceCollection, blocks

Json = dict[str, Any]
Collection = StationsCollection | SurfaceCollection

WKT: Final = (
    'GEOGCS["WGS 84",DATUM["WGS_1984",SPHEROID["WGS 84",6378137,298.257223563]],PRIMEM["Greenwich",0],'
    'UNIT["degree",0.0174532925199433],AXIS["Longitude",EAST],AXIS["Latitude",NORTH]]'
)
_TIME: Final = 'TIMECRS["DateTime",TDATUM["Gregorian Calendar"],CS[TemporalDateTime,1],AXIS["Time (T)",future]]'
_HEIGHT: Final = (
    'VERTCRS["height above mean sea level",VDATUM["mean sea level"],CS[vertical,1],'
    'AXIS["gravity-related height (H)",up],LENGTHUNIT["metre",1]]'
)
_SPEC: Final = "http://www.opengis.net/spec"
CLASSES: Final = (
    f"{_SPEC}/ogcapi-common-1/1.0/conf/core",
    f"{_SPEC}/ogcapi-common-2/1.0/conf/collections",
    *(f"{_SPEC}/ogcapi-edr-1/1.1/conf/{name}" for name in (
        "core", "collections", "queries", "json", "geojson", "edr-geojson", "covjson", "oas30",
    )),
)  # fmt: skip
QUERIES: Final = {
    "stations": ("position", "area", "cube", "locations", "items", "instances"),
    "surface": ("position", "area", "cube", "instances"),
}
"""Queries that each kind of collection answers."""
_TITLES: Final = {
    "position": "the nearest station, or the estimate at any position",
    "area": "what lies in a polygon",
    "cube": "what lies in a box",
    "locations": "a station by its id",
    "items": "the stations as features",
    "instances": "the versions of the archive",
}


def queries_of(collection: Collection) -> tuple[str, ...]:
    """Return the queries that a collection answers."""
    return QUERIES["stations" if isinstance(collection, StationsCollection) else "surface"]


def landing(base: str, network: str) -> Json:
    """Return the landing page; `base` is its address, without a slash at its end."""
    return {
        "title": f"{network}: environmental data retrieval",
        "description": f"Readings of the stations of {network}, and surfaces that are interpolated when asked for",
        "links": [
            _link(base, "self", "application/json", "this page"),
            _link(f"{base}/api", "service-desc", "application/vnd.oai.openapi+json;version=3.0", "the API"),
            _link(f"{base}/api", "service-doc", "application/vnd.oai.openapi+json;version=3.0", "the API"),
            _link(f"{base}/conformance", "conformance", "application/json", "conformance classes"),
            _link(f"{base}/collections", "data", "application/json", "collections"),
        ],
    }


def listing(base: str, collections: Sequence[Collection]) -> Json:
    """Return all collections."""
    return {
        "links": [_link(f"{base}/collections", "self", "application/json", "collections")],
        "collections": [describe(base, one) for one in collections],
    }


def describe(base: str, collection: Collection, instance: str | None = None) -> Json:
    """Return one collection, or one instance of it."""
    here = f"{base}/collections/{collection.id}" + ("" if instance is None else f"/instances/{instance}")
    asked = [name for name in queries_of(collection) if instance is None or name != "instances"]
    told = _about_stations(collection) if isinstance(collection, StationsCollection) else _about_surface(collection)
    links = [
        _link(here, "self", "application/json", "this collection"),
        _link(f"{base}/collections", "collection", "application/json", "collections"),
        *(
            _link(f"{here}/{name}", "data", "application/json" if name in _LISTS else MEDIA_TYPE, _TITLES[name])
            for name in asked
        ),
    ]
    return {
        "id": collection.id if instance is None else instance,
        "title": told["title"],
        "description": told["description"],
        "keywords": told["keywords"],
        "links": links,
        "extent": extent(collection),
        "data_queries": {name: {"link": _query(f"{here}/{name}", name)} for name in asked},
        "crs": [CRS],
        "output_formats": list(FORMATS),
        "parameter_names": told["parameters"],
    }


_LISTS: Final = ("locations", "items", "instances")


def extent(collection: Collection) -> Json:
    """Return where and when there are data, each extent a list of lists."""
    if isinstance(collection, StationsCollection):
        west, south, east, north = collection.box or (-180.0, -90.0, 180.0, 90.0)
        found: Json = {"spatial": {"bbox": [[west, south, east, north]], "crs": WKT}}
        window = collection.window
        return (
            found
            if window is None
            else found | {"temporal": _temporal(window, f"{instant(window.start_ns)}/{instant(window.stop_ns)}")}
        )
    found = {"spatial": {"bbox": [list(collection.box)], "crs": WKT}}
    starts, ends = blocks(collection.time)
    window = Window(int(starts.min()), max(int(ends.max()), int(starts.min()) + 1))
    found["temporal"] = _temporal(window, _values(collection))
    if collection.grid.z is not None:
        heights = [f"{height:g}" for height in collection.grid.z.centres]
        found["vertical"] = {"interval": [[heights[0], heights[-1]]], "values": heights, "vrs": _HEIGHT}
    return found


def instant(time_ns: int) -> str:
    """Return an instant as RFC 3339 writes it, with seconds."""
    text = str(np.datetime64(int(time_ns), "ns"))
    whole, _, fraction = text.partition(".")
    return f"{whole}.{fraction.rstrip('0')}Z" if fraction.strip("0") else f"{whole}Z"


def _temporal(window: Window, values: str) -> Json:
    return {"interval": [[instant(window.start_ns), instant(window.stop_ns)]], "values": [values], "trs": _TIME}


def _values(collection: SurfaceCollection) -> str:
    """Return the time cells: so many from the first by a step where they are regular."""
    time = collection.time
    starts, ends = blocks(time)
    if isinstance(time, Regular) and time.step % 1_000_000_000 == 0:
        return f"R{time.count}/{instant(time.origin)}/PT{time.step // 1_000_000_000}S"
    return f"{instant(int(starts.min()))}/{instant(int(ends.max()))}"


def _about_stations(collection: StationsCollection) -> Json:
    network = collection.archive.name
    return {
        "title": f"Stations of {network}",
        "description": f"Readings of {len(collection.keys)} stations, good or not evaluated, as they are stored; a "
        f"position gets those of the nearest station within {NEAREST_M / 1000:g} km, with its name and its distance",
        "keywords": [network, *collection.parameters],
        "parameters": {key: _of_kind(key, kind) for key, kind in collection.parameters.items()},
    }


def _about_surface(collection: SurfaceCollection) -> Json:
    question = collection.query.question
    steps = " > ".join(step.name for step in question.steps)
    why = collection.refusal
    variance = f"without the variance of its error: {why}" if why else "and the variance of its error"
    return {
        "title": f"{collection.id}: {question.variable} > {steps}",
        "description": f"The saved query {collection.id!r}, computed when asked for; a position gets the estimate "
        f"there, not that of the cell around it, {variance}",
        "keywords": [question.variable, *dict.fromkeys(step.name for step in question.steps)],
        "parameters": {
            key: _parameter(key, attributes, *_measured(collection))
            for key, (_, attributes) in collection.parameters.items()
        },
    }


def _of_kind(key: str, kind: Kind) -> Json:
    variable, sample = kind.variable, kind.sample
    named = {} if variable.standard_name is None else {"standard_name": variable.standard_name}
    label = variable.long_name or variable.name
    length = sample.interval_s if sample.stamp != "instant" else 0.0
    method = "point" if sample.statistic == "sample" else sample.statistic
    told = _parameter(key, {"long_name": label, "units": variable.unit, **named}, method, f"PT{length:g}S")
    return told if sample.height_m is None else {**told, "hypergrid:height_m": sample.height_m}


def _measured(collection: SurfaceCollection) -> tuple[str, str]:
    """Return the last function over time, and the length of the cells."""
    steps = [step for step in collection.query.question.steps if step.op == "aggregate" and "time" in dict(step.cells)]
    time = collection.time
    seconds = time.length / 1e9 if isinstance(time, Regular) else 0.0
    return steps[-1].name if steps else "point", f"PT{seconds:.12g}S"


def _parameter(key: str, attributes: Mapping[str, Any], method: str, duration: str) -> Json:
    label, is_count = str(attributes.get("long_name", key)), key.endswith("_count")
    observed: Json = {"label": label}
    if "standard_name" in attributes:
        observed["id"] = f"{STANDARD_NAMES}{str(attributes['standard_name']).split()[0]}/"
    return {
        "type": "Parameter",
        "id": key,
        "label": label,
        "data-type": "integer" if is_count else "float",
        "unit": {"symbol": {"value": ucum(str(attributes.get("units", "1"))), "type": UCUM}},
        "observedProperty": observed,
        # A count is no measurement of the method that made the value.
        **({} if is_count else {"measurementType": {"method": method, "duration": duration}}),
    }


def _query(href: str, name: str) -> Json:
    variables: Json = {"title": _TITLES[name], "query_type": name}
    if name in ("position", "area", "cube", "locations"):
        variables |= {
            "output_formats": list(FORMATS),
            "default_output_format": FORMATS[0],
            "crs_details": [{"crs": CRS, "wkt": WKT}],
        }
    if name == "position":
        variables["coords"] = "well-known text of a POINT or a MULTIPOINT"
    if name == "area":
        variables["coords"] = "well-known text of a POLYGON or a MULTIPOLYGON"
    if name == "cube":
        variables["height_units"] = ["m"]
    return {"href": href, "rel": "data", "templated": False, "title": _TITLES[name], "variables": variables}


def _link(href: str, rel: str, media_type: str, title: str) -> Json:
    return {"href": href, "rel": rel, "type": media_type, "title": title}
