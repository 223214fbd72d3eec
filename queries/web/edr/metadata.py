"""EDR metadata: landing page, conformance, collections with extents, queries and parameters."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np

from hypergrid.core.publication import Publication
from hypergrid.core.times import Window, format_timestamp
from hypergrid.formats.covjson import MEDIA_TYPE, STANDARD_NAMES, UCUM, to_ucum
from hypergrid.formats.readings import SeriesKind, describe_measurement
from hypergrid.topology import Regular
from queries.web.edr.asked import CRS, FORMATS, ITEM_FORMATS, ExtentFilter, Ranges
from queries.web.edr.stations import NEAREST_M, StationsCollection
from queries.web.edr.surfaces import SurfaceCollection, cell_bounds

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
"""Queries supported by each kind of collection."""
_TITLES: Final = {
    "position": "the nearest station, or the estimate at any position",
    "area": "what lies in a polygon",
    "cube": "what lies in a box",
    "locations": "a station by its id",
    "items": "the stations as features",
    "instances": "the versions of the archive",
}


def queries_of(collection: Collection) -> tuple[str, ...]:
    return QUERIES["stations" if isinstance(collection, StationsCollection) else "surface"]


def landing(base: str, network: str, publication: Publication) -> Json:
    """Make the landing page; `base` is its address, without a trailing slash."""
    provider = {"name": publication.institution or publication.publisher_name, "url": publication.publisher_url}
    contact = {"email": publication.creator_email or publication.publisher_email}
    return {
        "title": f"{network}: environmental data retrieval",
        "description": f"Readings of the stations of {network}, and surfaces that are interpolated when asked for",
        "links": [
            _link(base, "self", "application/json", "this page"),
            _link(f"{base}/api", "service-desc", "application/vnd.oai.openapi+json;version=3.0", "the API"),
            _link(f"{base}/api", "service-doc", "application/vnd.oai.openapi+json;version=3.0", "the API"),
            _link(f"{base}/conformance", "conformance", "application/json", "conformance classes"),
            _link(f"{base}/collections", "data", "application/json", "collections"),
            *_license_links(publication),
        ],
        # EDR has both, each with the keys that are known.
        **{
            name: known
            for name, document in (("provider", provider), ("contact", contact))
            if (known := {key: text for key, text in document.items() if text})
        },
    }


def _license_links(publication: Publication) -> list[Json]:
    url = publication.license_url
    return [_link(url, "license", "text/html", "terms of use")] if url else []


def listing(base: str, page: Sequence[Collection], more: Sequence[Json], publication: Publication) -> Json:
    """Make a page of collections; `more` are links besides the one to itself."""
    return {
        "links": [_link(f"{base}/collections", "self", "application/json", "collections"), *more],
        "collections": [describe(base, collection, publication) for collection in page],
    }


def meets(collection: Collection, meeting: ExtentFilter) -> bool:
    """Return whether a collection's extents overlap a box, heights and times."""
    return (
        (meeting.region is None or (collection.box is not None and meeting.region.touches(*collection.box)))
        and (meeting.times is None or _has_time(collection, meeting.times))
        and (meeting.heights is None or _has_height(collection, meeting.heights))
    )


def _has_time(collection: Collection, times: Ranges) -> bool:
    if isinstance(collection, SurfaceCollection):
        return bool(len(collection.times_of(times)))
    window = collection.window
    return window is not None and bool(times.meet(np.array([window.start_ns]), np.array([window.stop_ns]))[0])


def _has_height(collection: Collection, heights: Ranges) -> bool:
    """Return whether a collection has levels at some heights; one without levels always matches."""
    levels = collection.levels_of(heights) if isinstance(collection, SurfaceCollection) else None
    return levels is None or bool(len(levels))


def describe(base: str, collection: Collection, publication: Publication, instance: str | None = None) -> Json:
    """Describe a collection, or one instance of it; `attribution` as of OGC API Common, if it is known."""
    url = f"{base}/collections/{collection.id}" + ("" if instance is None else f"/instances/{instance}")
    asked = [name for name in queries_of(collection) if instance is None or name != "instances"]
    summary = _about_stations(collection) if isinstance(collection, StationsCollection) else _about_surface(collection)
    links = [
        _link(url, "self", "application/json", "this collection"),
        _link(f"{base}/collections", "collection", "application/json", "collections"),
        *(
            _link(f"{url}/{name}", "data", "application/json" if name in _LISTS else MEDIA_TYPE, _TITLES[name])
            for name in asked
        ),
        *_license_links(publication),
    ]
    return {
        "id": collection.id if instance is None else instance,
        "title": summary["title"],
        "description": summary["description"],
        "keywords": summary["keywords"],
        **({"attribution": publication.attribution} if publication.attribution else {}),
        "links": links,
        "extent": extent(collection),
        "data_queries": {name: {"link": _query(f"{url}/{name}", name)} for name in asked},
        "crs": [CRS],
        "output_formats": list(FORMATS),
        "parameter_names": parameters_of(collection),
    }


_LISTS: Final = ("locations", "items", "instances")


def extent(collection: Collection) -> Json:
    """Describe the spatial, temporal and vertical extents, each as a list of lists."""
    if isinstance(collection, StationsCollection):
        west, south, east, north = collection.box or (-180.0, -90.0, 180.0, 90.0)
        document: Json = {"spatial": {"bbox": [[west, south, east, north]], "crs": WKT}}
        window = collection.window
        return document if window is None else document | {"temporal": _temporal(window, "/".join(_ends(window)))}
    document = {"spatial": {"bbox": [list(collection.box)], "crs": WKT}}
    starts, ends = cell_bounds(collection.time)
    # A window must not be empty, even for a single instant.
    window = Window(int(starts.min()), max(int(ends.max()), int(starts.min()) + 1))
    document["temporal"] = _temporal(window, _values(collection))
    if collection.grid.z is not None:
        heights = [f"{height:g}" for height in collection.grid.z.centres]
        document["vertical"] = {"interval": [[heights[0], heights[-1]]], "values": heights, "vrs": _HEIGHT}
    return document


def _temporal(window: Window, values: str) -> Json:
    return {
        "interval": [_ends(window)],
        "values": [values],
        "trs": _TIME,
    }


def _ends(window: Window) -> list[str]:
    return [format_timestamp(window.start_ns), format_timestamp(window.stop_ns)]


def _values(collection: SurfaceCollection) -> str:
    """Describe the time cells, as a repeating interval if they are regular."""
    time = collection.time
    starts, ends = cell_bounds(time)
    if isinstance(time, Regular) and time.step % 1_000_000_000 == 0:
        return f"R{time.count}/{format_timestamp(time.origin)}/PT{time.step // 1_000_000_000}S"
    return f"{format_timestamp(int(starts.min()))}/{format_timestamp(int(ends.max()))}"


def _about_stations(collection: StationsCollection) -> Json:
    network = collection.archive.name
    return {
        "title": f"Stations of {network}",
        "description": f"Readings of {len(collection.keys)} stations, good or not evaluated, as they are stored; a "
        f"position gets those of the nearest station within {NEAREST_M / 1000:g} km, with its name and its distance",
        "keywords": [network, *collection.parameters],
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
    }


def parameters_of(collection: Collection, keys: Iterable[str] | None = None) -> Json:
    """Describe the parameters of a collection, by key; None: all."""
    wanted = collection.parameters if keys is None else keys
    if isinstance(collection, StationsCollection):
        return {key: _kind_parameter(key, collection.parameters[key]) for key in wanted}
    how = _measurement_type(collection)
    return {key: _parameter(key, collection.parameters[key][1], how) for key in wanted}


def _kind_parameter(key: str, kind: SeriesKind) -> Json:
    variable = kind.variable
    named = {} if variable.standard_name is None else {"standard_name": variable.standard_name}
    label = variable.long_name or variable.name
    return _parameter(key, {"long_name": label, "units": variable.unit, **named}, describe_measurement(kind))


def _measurement_type(collection: SurfaceCollection) -> Json:
    """Describe the last aggregation over time and the cell length, for a parameter."""
    steps = [step for step in collection.query.question.steps if step.op == "aggregate" and "time" in dict(step.cells)]
    time = collection.time
    seconds = time.length / 1e9 if isinstance(time, Regular) else 0.0
    method = steps[-1].name if steps else "point"
    return {"measurementType": {"method": method, "duration": f"PT{seconds:.12g}S"}}


def _parameter(key: str, attributes: Mapping[str, Any], how: Json) -> Json:
    label, is_count = str(attributes.get("long_name", key)), key.endswith("_count")
    observed: Json = {"label": label}
    if "standard_name" in attributes:
        observed["id"] = f"{STANDARD_NAMES}{str(attributes['standard_name']).split()[0]}/"
    return {
        "type": "Parameter",
        "id": key,
        "label": label,
        "data-type": "integer" if is_count else "float",
        "unit": {"symbol": {"value": to_ucum(str(attributes.get("units", "1"))), "type": UCUM}},
        "observedProperty": observed,
        # A count does not result from the method that produced the value.
        **({} if is_count else how),
    }


_MORE: Final[Mapping[str, Json]] = {
    "position": {"coords": "well-known text of a POINT or a MULTIPOINT"},
    "area": {"coords": "well-known text of a POLYGON or a MULTIPOLYGON"},
    "cube": {"height_units": ["m"]},
}


def _query(href: str, name: str) -> Json:
    variables: Json = {"title": _TITLES[name], "query_type": name}
    if name != "instances":
        forms = ITEM_FORMATS if name == "items" else FORMATS
        variables |= {
            "output_formats": list(forms),
            "default_output_format": forms[0],
            "crs_details": [{"crs": CRS, "wkt": WKT}],
        }
    variables |= _MORE.get(name, {})
    return {"href": href, "rel": "data", "templated": False, "title": _TITLES[name], "variables": variables}


def _link(href: str, rel: str, media_type: str, title: str) -> Json:
    return {"href": href, "rel": rel, "type": media_type, "title": title}
