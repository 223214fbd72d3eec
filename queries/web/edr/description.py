"""OpenAPI description of EDR, for the whole API (3.1) and alone (3.0)."""

from typing import Any, Final

from hypergrid.formats.covjson import MEDIA_TYPE
from queries.web.edr.asked import CRS, FORMATS, ITEM_FORMATS, JSON

Json = dict[str, Any]


def _parameter(name: str, text: str, schema: Json, *, required: bool = False) -> Json:
    return {"name": name, "in": "query", "required": required, "description": text, "schema": schema}


def _form(*forms: str) -> Json:
    text = "the form of the answer, in upper or lower case" + (f"; {JSON} is {forms[0]}" if len(forms) > 1 else "")
    return _parameter("f", text, {"type": "string", "enum": list(forms), "default": forms[0]})


_TEXT: Final[Json] = {"type": "string"}
_COMMON: Final = (
    _parameter(
        "datetime",
        "an instant, an interval a/b, ../b or a/.., a list with commas, or R5/start/PT1H; a day (2007-10-01), a month "
        "(2007-10) or a year is all of it",
        _TEXT,
    ),
    _parameter("parameter-name", "names with commas between; all where absent", _TEXT),
    _parameter(
        "crs", "the coordinate reference system of the request and the answer", {"type": "string", "enum": [CRS]}
    ),
    _form(*FORMATS, JSON),
)
_FEATURES: Final = _form("GeoJSON", JSON)
_HEIGHT: Final = _parameter("z", "heights above sea level [m]: 2400, 400/2400, a list, or R5/400/500", _TEXT)
_BOX: Final = "west,south,east,north [degree], with heights west,south,low,east,north,high"
MOST_INSTANCES: Final = 10
"""Snapshots on a page of instances, each of which is read."""


def _page(text: str) -> tuple[Json, ...]:
    return (
        _parameter("limit", f"entries of a page; {text}", {"type": "integer", "minimum": 1}),
        _parameter("offset", "entries before the page", {"type": "integer", "minimum": 0, "default": 0}),
    )


_PAGE: Final = _page("all where absent")
_LISTED: Final = (_parameter("bbox", _BOX, _TEXT), *_COMMON[:3], _FEATURES, *_PAGE)
METADATA: Final[tuple[Json, ...]] = (_form(JSON),)
"""Parameters of the metadata routes."""
COLLECTIONS: Final[tuple[Json, ...]] = (_parameter("bbox", _BOX, _TEXT), _COMMON[0], *METADATA, *_PAGE)
"""Parameters of the list of collections."""
INSTANCES: Final[tuple[Json, ...]] = (*METADATA, *_page(f"{MOST_INSTANCES} at most"))
"""Parameters of the list of instances."""
_LISTS: Final = {"/collections": COLLECTIONS, "/collections/{collection_id}/instances": INSTANCES}

QUERIES: Final[dict[str, tuple[str, tuple[Json, ...]]]] = {
    "position": (
        "What is at a POINT or a MULTIPOINT: the nearest stations, or a surface's estimates there",
        (_parameter("coords", "POINT(lon lat) or MULTIPOINT(…)", _TEXT, required=True), *_COMMON, _HEIGHT),
    ),
    "area": (
        "What lies in a POLYGON or a MULTIPOLYGON: stations, or the cells of a surface whose centre does",
        (_parameter("coords", "POLYGON((…)) or MULTIPOLYGON(…)", _TEXT, required=True), *_COMMON, _HEIGHT),
    ),
    "cube": (
        "What lies in a box; one whose west is above its east crosses the antimeridian",
        (_parameter("bbox", _BOX, _TEXT, required=True), *_COMMON, _HEIGHT),
    ),
    "locations": ("The stations as features", _LISTED),
    "items": ("The stations as features", _LISTED),
    "locations/{item_id}": ("The readings of a station", (*_COMMON, _HEIGHT)),
    "items/{item_id}": (
        "A station as a feature; its readings where a time, parameters or another form are asked for",
        (*_COMMON[:3], _form(*ITEM_FORMATS, JSON), _HEIGHT),
    ),
}
"""Summary and parameters of each query, by path below a collection."""
_MEDIA: Final = {
    "data": (MEDIA_TYPE, "application/geo+json", "application/x-netcdf", "text/csv"),
    "features": ("application/geo+json",),
    "metadata": ("application/json",),
}
_METADATA: Final = {
    "": "The landing page",
    "/conformance": "Conformance classes",
    "/collections": "The stations, and every saved surface",
    "/collections/{collection_id}": "A collection",
    "/collections/{collection_id}/instances": "The versions of the archive, newest first",
    "/collections/{collection_id}/instances/{instance_id}": "A collection at a version of the archive",
}


def media_of(query: str) -> tuple[str, ...]:
    """List the media types of a query's answers."""
    return _MEDIA["features" if query in ("locations", "items") else "data"]


def document(base: str, network: str) -> Json:
    """Describe EDR alone in OpenAPI 3.0, as its clients expect."""
    paths: Json = {}
    for path, text in _METADATA.items():
        paths[path or "/"] = {"get": operation(path, text, _LISTS.get(path, METADATA), _MEDIA["metadata"])}
    for root in ("/collections/{collection_id}", "/collections/{collection_id}/instances/{instance_id}"):
        for query, (text, parameters) in QUERIES.items():
            path = f"{root}/{query}"
            paths[path] = {"get": operation(path, text, parameters, media_of(query))}
    return {
        "openapi": "3.0.3",
        "info": {"title": f"{network}: OGC API - Environmental Data Retrieval", "version": "1.1"},
        "servers": [{"url": base}],
        "paths": paths,
    }


def operation(path: str, text: str, parameters: tuple[Json, ...], media: tuple[str, ...]) -> Json:
    """Describe one operation: path and query parameters, and answers."""
    inside = [part[1:-1] for part in path.split("/") if part.startswith("{")]
    named = [{"name": name, "in": "path", "required": True, "schema": _TEXT} for name in inside]
    problem = {"content": {"application/problem+json": {"schema": {"type": "object"}}}}
    responses = {
        "200": {"description": "the answer", "content": {kind: {"schema": {}} for kind in media}},
        # Only data queries can be empty.
        **({"204": {"description": "there is no data"}} if parameters and len(media) > 1 else {}),
        "400": {"description": "a parameter cannot be used", **problem},
        "404": {"description": "it does not exist", **problem},
        "413": {"description": "it is too much for one answer", **problem},
    }
    name = "-".join(part.strip("{}") for part in path.split("/") if part) or "landing"
    return {"operationId": name, "summary": text, "parameters": [*named, *parameters], "responses": responses}
