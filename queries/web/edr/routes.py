"""EDR routes below `/edr`, each query also at an instance (a snapshot), and their OpenAPI description."""

from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any, Final, TypeVar
from urllib.parse import quote

import anyio
from anyio import to_thread
from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute

from hypergrid.core.errors import HyperGridError, InvalidQuery, NotFound
from hypergrid.core.lazy_libraries import xr
from hypergrid.core.publication import Publication
from hypergrid.core.times import format_timestamp
from hypergrid.formats.covjson import MEDIA_TYPE
from hypergrid.topology.wkt import Region
from queries.jobs.runner import Runner
from queries.snapshots.catalogue import Catalogue
from queries.web.edr import answers, metadata
from queries.web.edr.asked import (
    CRS,
    FORMATS,
    ITEM_FORMATS,
    JSON,
    EdrParams,
    Ranges,
    read_area,
    read_box,
    read_cube,
    read_filter,
    read_page,
    read_params,
    read_position,
    refuse_unknown,
)
from queries.web.edr.collections import PREFIX, Collections
from queries.web.edr.metadata import Collection, Json
from queries.web.edr.stations import StationsCollection
from queries.web.edr.surfaces import SurfaceCollection, select_cells
from queries.web.responses.etags import entity_tag, etag_headers, not_modified_response
from queries.web.responses.problems import problem_of, response_of
from queries.web.responses.waiting import compute_dataset


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
_LISTED: Final = (_parameter("bbox", _BOX, _TEXT), *_COMMON[:3], _form("GeoJSON", JSON), *_PAGE)
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
    return _MEDIA["features" if query in ("locations", "items") else "data"]


def describe_api(base: str, network: str, publication: Publication) -> Json:
    """Describe EDR alone in OpenAPI 3.0, as its clients expect."""
    paths: Json = {}
    for path, text in _METADATA.items():
        paths[path or "/"] = {"get": describe_operation(path, text, _LISTS.get(path, METADATA), _MEDIA["metadata"])}
    for root in ("/collections/{collection_id}", "/collections/{collection_id}/instances/{instance_id}"):
        for query, (text, parameters) in QUERIES.items():
            path = f"{root}/{query}"
            paths[path] = {"get": describe_operation(path, text, parameters, media_of(query))}
    return {
        "openapi": "3.0.3",
        "info": {
            "title": f"{network}: OGC API - Environmental Data Retrieval",
            "version": "1.1",
            **publication.to_openapi(),
        },
        "servers": [{"url": base}],
        "paths": paths,
    }


def describe_operation(path: str, text: str, parameters: tuple[Json, ...], media: tuple[str, ...]) -> Json:
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


READERS: Final = 2
"""Threads that read readings concurrently."""
_COLLECTION: Final = "/collections/{collection_id}"
_OF_METADATA: Final = {"parameters": list(METADATA)}

Made = TypeVar("Made")
Endpoint = Callable[[Request], Awaitable[Response]]


class EdrRoute(APIRoute):
    """Rejects undeclared parameters; errors include EDR's `code` and `description`."""

    def get_route_handler(self) -> Callable[[Request], Awaitable[Response]]:  # type: ignore[override]
        """Wrap the handler, converting errors to EDR problem documents."""
        handle = super().get_route_handler()

        async def answer(request: Request) -> Response:
            try:
                if self.openapi_extra is not None:
                    refuse_unknown(request, self.openapi_extra["parameters"])
                return await handle(request)
            except HyperGridError as error:
                problem = problem_of(error, posted=False)
                return response_of(problem | {"code": str(problem["status"]), "description": problem["detail"]})

        return answer


def router(runner: Runner, catalogue: Catalogue, held: Collections) -> APIRouter:
    """Create the routes of this module."""
    routes = APIRouter(prefix=PREFIX, tags=["EDR"], route_class=EdrRoute)
    reading = anyio.CapacityLimiter(READERS)

    async def off(work: Callable[[], Made]) -> Made:
        return await to_thread.run_sync(work, limiter=reading)

    @routes.get("/", include_in_schema=False, openapi_extra=_OF_METADATA)
    @routes.get("", response_class=Response, openapi_extra=_OF_METADATA)
    def landing(request: Request) -> Response:
        """Return the landing page."""
        return JSONResponse(metadata.landing(_base_url(request), catalogue.archive.name, catalogue.publication))

    @routes.get("/conformance", response_class=Response, openapi_extra=_OF_METADATA)
    def conformance() -> Response:
        """List the conformance classes."""
        return JSONResponse({"conformsTo": list(metadata.CLASSES)})

    @routes.get("/api", response_class=Response, openapi_extra=_OF_METADATA)
    def api(request: Request) -> Response:
        """Describe EDR (OpenAPI 3.0); `/openapi.json` describes all."""
        return JSONResponse(
            describe_api(_base_url(request), catalogue.archive.name, catalogue.publication),
            media_type="application/vnd.oai.openapi+json;version=3.0",
        )

    @routes.get("/collections", response_class=Response, openapi_extra={"parameters": list(COLLECTIONS)})
    async def collections(request: Request) -> Response:
        """List the collections: the stations, and every saved surface; those that meet a box and a time."""

        def listed() -> Response:
            base, meeting, (limit, first) = _base_url(request), read_filter(request), read_page(request)
            matches = [candidate for candidate in held.list_available() if metadata.meets(candidate, meeting)]
            page = matches[first:][:limit]
            links = _next_link(request, f"{base}/collections", first + len(page), len(matches), limit)
            return JSONResponse(metadata.listing(base, page, links, catalogue.publication))

        return await off(listed)

    @routes.get("/collections/{collection_id}", response_class=Response, openapi_extra=_OF_METADATA)
    async def collection(request: Request, collection_id: str) -> Response:
        """Describe a collection."""
        return await off(
            lambda: JSONResponse(
                metadata.describe(_base_url(request), held.get_collection(collection_id), catalogue.publication)
            )
        )

    @routes.get(
        "/collections/{collection_id}/instances",
        response_class=Response,
        openapi_extra={"parameters": list(INSTANCES)},
    )
    async def instances(request: Request, collection_id: str) -> Response:
        """List the versions of the archive, newest first, each with what the collection is there."""

        def listed() -> Response:
            base = _base_url(request)
            held.check_name(collection_id)
            limit, first = read_page(request)
            snapshots = catalogue.archive.latest().snapshots
            page = snapshots[first : first + min(limit or MOST_INSTANCES, MOST_INSTANCES)]
            url = f"{base}/collections/{collection_id}/instances"
            documents = []
            for snapshot in page:
                there = held.find_collection(collection_id, snapshot.id)
                documents += (
                    [] if there is None else [metadata.describe(base, there, catalogue.publication, snapshot.id)]
                )
            links = [{"href": url, "rel": "self", "type": "application/json"}]
            links += _next_link(request, url, first + len(page), len(snapshots), len(page))
            return JSONResponse({"links": links, "instances": documents})

        return await off(listed)

    @routes.get(
        "/collections/{collection_id}/instances/{instance_id}", response_class=Response, openapi_extra=_OF_METADATA
    )
    async def instance(request: Request, collection_id: str, instance_id: str) -> Response:
        """Describe a collection at a version of the archive."""
        return await off(
            lambda: JSONResponse(
                metadata.describe(
                    _base_url(request),
                    held.get_collection(collection_id, instance_id),
                    catalogue.publication,
                    instance_id,
                )
            )
        )

    async def position(request: Request) -> Response:
        there = await off(lambda: held.get_requested(request))
        asked, points = read_params(request, there.parameters), read_position(request)
        if isinstance(there, StationsCollection):
            return await off(lambda: _nearest_response(there, asked, points, _base_url(request)))
        heights = asked.heights or (None if there.grid.z is None else _height_of(points))
        times, levels = there.times_of(asked.times), there.levels_of(heights)
        if not len(times) or (levels is not None and not len(levels)):
            return answers.no_data_response()
        places = [(lon, lat) for lon, lat, _ in points if there.cell_of(lon, lat) is not None]
        if not places:
            return answers.no_data_response()
        # Before the query is submitted, so that refusals cost nothing.
        there.check(len(times), 1 if levels is None else len(levels), there.places_at(places))
        dataset = await compute_dataset(runner, await off(lambda: there.document_at(places, times)), request)

        def made() -> Response:
            kept = there.select_points(select_cells(dataset, there, times, levels), places)
            return answers.points_response(kept, asked.form, _keys(there, asked), there, _base_url(request))

        return await off(made)

    async def within(request: Request, read: Callable[[Request], tuple[Region, Ranges | None]]) -> Response:
        there = await off(lambda: held.get_requested(request))
        asked, (region, heights) = read_params(request, there.parameters), read(request)
        if isinstance(there, StationsCollection):
            return await off(lambda: _readings_response(there, there.find_inside(region), asked, _base_url(request)))
        times, levels = there.times_of(asked.times), there.levels_of(asked.heights or heights)
        cells = await off(lambda: there.block_of(region))
        if cells is None or not len(times) or (levels is not None and not len(levels)):
            return answers.no_data_response()
        rows, columns, inside = cells
        there.check(len(times), 1 if levels is None else len(levels), inside.size)
        answers.check_features(asked.form, len(times) * (1 if levels is None else len(levels)) * inside.size)
        dataset = await compute_dataset(runner, await off(lambda: there.document(times, rows, columns)), request)

        def made() -> Response:
            mask = xr.DataArray(inside, dims=("lat", "lon"))
            kept = select_cells(dataset, there, times, levels)
            masked = kept if inside.all() else kept.assign(
                # Integers have no NaN: masked counts become 0.
                {name: (item.where(mask) if item.dtype.kind == "f" else item.where(mask, 0)).assign_attrs(item.attrs)
                 for name, item in kept.data_vars.items()}
            )  # fmt: skip
            return answers.map_response(masked, asked.form, _keys(there, asked), there, _base_url(request))

        return await off(made)

    async def places(request: Request) -> Response:
        return await off(lambda: _list_features(request, _require_stations(held.get_requested(request))))

    async def location(request: Request) -> Response:
        def made() -> Response:
            there = _require_stations(held.get_requested(request))
            return _readings_response(
                there,
                (_require_station(there, request.path_params["item_id"]),),
                read_params(request, there.parameters),
                _base_url(request),
            )

        return await off(made)

    async def item(request: Request) -> Response:
        def made() -> Response:
            there = _require_stations(held.get_requested(request))
            name = _require_station(there, request.path_params["item_id"])
            asked = read_params(request, there.parameters, ITEM_FORMATS)
            if asked.form != "GeoJSON" or asked.times is not None or asked.names is not None:
                return _readings_response(there, (name,), asked, _base_url(request))
            return JSONResponse(
                _station_feature(there, name, _collection_url(request, there)), media_type=answers.GEOJSON
            )

        return await off(made)

    def tagged_by_content(endpoint: Endpoint) -> Endpoint:
        """Wrap an endpoint with an entity tag, so that unchanged answers are not computed."""

        async def answered(request: Request) -> Response:
            there = await off(lambda: held.get_requested(request))
            # With an explicit format the answer does not depend on Accept.
            accepted = () if "f" in request.query_params else request.headers.getlist("accept")
            tag = entity_tag(there.token, str(request.url), tuple(accepted))
            same = not_modified_response(request, tag)
            if same is None:
                same = await endpoint(request)
                same.headers.update(etag_headers(tag))
            return same

        return answered

    endpoints: dict[str, Endpoint] = {
        "position": position, "area": partial(within, read=read_area), "cube": partial(within, read=read_cube),
        "locations": places, "items": places,
        "locations/{item_id}": location, "items/{item_id}": item,
    }  # fmt: skip
    for query, endpoint in endpoints.items():
        text, parameters = QUERIES[query]
        for root, where in ((_COLLECTION, ""), (f"{_COLLECTION}/instances/{{instance_id}}", "instance ")):
            operation = describe_operation(f"{root}/{query}", text, parameters, media_of(query))
            routes.add_api_route(
                f"{root}/{query.replace('item_id', 'item_id:path')}", tagged_by_content(endpoint), methods=["GET"],
                name=f"{where}{query}", operation_id=f"edr {where}{query}", summary=text, openapi_extra=operation,
                response_class=Response,
            )  # fmt: skip

    @routes.get("/{rest:path}", include_in_schema=False)
    def unknown(rest: str) -> Response:
        raise NotFound(f"there is nothing at {PREFIX}/{rest[:200]}; {PREFIX}/collections lists what there is")

    return routes


def _keys(there: SurfaceCollection, asked: EdrParams) -> list[str]:
    return [key for key in there.parameters if asked.names is None or key in asked.names]


def _height_of(points: list[tuple[float, float, float | None]]) -> Ranges | None:
    """Return the common height of points [m]; None if they have none.

    Raises
    ------
    InvalidQuery
        The heights differ, but an answer has the same levels at all points.
    """
    heights = list(dict.fromkeys(z for *_, z in points))
    if len(heights) > 1:
        raise InvalidQuery(
            f"coords need points of one height, or z={{height}} for all; got {len(heights)} heights; ask for each"
        )
    height = heights[0]
    return None if height is None else Ranges(((height, height),))


def _nearest_response(
    there: StationsCollection, asked: EdrParams, points: list[tuple[float, float, float | None]], base: str
) -> Response:
    details: dict[str, dict[str, Any]] = {}
    for lon, lat, _ in points:
        near = there.find_nearest(lon, lat, asked.names)
        if near is not None:
            name, distance_m = near
            details.setdefault(
                name, {"hypergrid:station": there.label(name), "hypergrid:distance_m": round(distance_m, 1)}
            )
    return _readings_response(there, tuple(details), asked, base, details)


def _readings_response(
    there: StationsCollection,
    names: tuple[str, ...],
    asked: EdrParams,
    base: str,
    details: dict[str, dict[str, Any]] | None = None,
) -> Response:
    read = there.read(names, asked)
    return (
        answers.no_data_response()
        if read is None
        else answers.readings_response(read, asked.form, base, there, details)
    )


def _list_features(request: Request, there: StationsCollection) -> Response:
    asked, given = read_params(request, there.parameters), read_box(request)
    limit, first = read_page(request)
    names = list(there.keys) if given is None else list(there.find_inside(given[0]))
    if asked.names is not None:
        names = [name for name in names if set(asked.names) & set(there.keys[name])]
    if asked.times is not None:
        names = [name for name in names if _has_readings(there, name, asked.times, asked.names)]
    page = names[first:][:limit]
    url = _collection_url(request, there)
    links = [{"href": f"{url}/{request.url.path.rpartition('/')[2]}", "rel": "self", "type": answers.GEOJSON}]
    links += _next_link(request, links[0]["href"], first + len(page), len(names), limit, answers.GEOJSON)
    return answers.features_response([_station_feature(there, name, url) for name in page], links, len(names), there)


def _has_readings(there: StationsCollection, name: str, times: Ranges, wanted: tuple[str, ...] | None) -> bool:
    held = there.extents.get(name, {})
    return any(extent.meets(times) for key, extent in held.items() if wanted is None or key in wanted)


def _station_feature(there: StationsCollection, name: str, url: str) -> dict[str, Any]:
    """Describe a station as a feature in EDR's GeoJSON profile."""
    position, held = there.places.get(name), there.extents.get(name, {}).values()
    when = "../.."
    if held:
        first_ns, last_ns = min(extent.start_ns for extent in held), max(extent.end_ns for extent in held)
        when = f"{format_timestamp(first_ns)}/{format_timestamp(last_ns)}"
    return {
        "type": "Feature",
        "id": name,
        "geometry": None if position is None else {"type": "Point", "coordinates": list(position)},
        "properties": {
            "datetime": when,
            "label": there.label(name),
            "parameter-name": list(there.keys[name]),
            "edrqueryendpoint": f"{url}/locations/{quote(name, safe='')}",
        },
    }


def _next_link(
    request: Request, url: str, first: int, matched: int, limit: int | None, media_type: str = "application/json"
) -> list[dict[str, str]]:
    """Link to the next page; empty after the last."""
    if first >= matched or not limit:
        return []
    query = request.url.include_query_params(limit=limit, offset=first).query
    return [{"href": f"{url}?{query}", "rel": "next", "type": media_type}]


def _require_stations(there: Collection) -> StationsCollection:
    if not isinstance(there, StationsCollection):
        raise NotFound(
            f"collection {there.id!r} is a surface, which has no locations and no items; ask for a position in it"
        )
    return there


def _require_station(there: StationsCollection, name: str) -> str:
    if name not in there.keys:
        raise NotFound.among(kind="station", given=name[:100], existing=there.keys)
    return name


def _collection_url(request: Request, there: Collection) -> str:
    instance = request.path_params.get("instance_id")
    return f"{_base_url(request)}/collections/{there.id}" + ("" if instance is None else f"/instances/{instance}")


def _base_url(request: Request) -> str:
    return f"{str(request.base_url).rstrip('/')}{PREFIX}"
