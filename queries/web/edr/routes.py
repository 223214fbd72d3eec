"""Routes of EDR below `/edr`; each query of a collection also at its instances, the snapshots of the archive."""

from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar
from urllib.parse import quote

import anyio
import xarray as xr
from anyio import to_thread
from fastapi import APIRouter, Request, Response
from fastapi.responses import JSONResponse
from fastapi.routing import APIRoute

from hypergrid.core.errors import HyperGridError, InvalidQuery, NotFound
from hypergrid.core.times import format_timestamp
from hypergrid.topology.wkt import Region
from queries.jobs.runner import Runner
from queries.snapshots.catalogue import Catalogue
from queries.web.edr import answers, description, metadata
from queries.web.edr.asked import (
    ITEM_FORMATS,
    Asked,
    read_area,
    read_asked,
    read_box,
    read_cube,
    read_meeting,
    read_page,
    read_position,
    refuse_unknown,
)
from queries.web.edr.collections import PREFIX, Collections
from queries.web.edr.metadata import Collection
from queries.web.edr.ranges import Ranges
from queries.web.edr.stations import StationsCollection
from queries.web.edr.surfaces import SurfaceCollection, chosen
from queries.web.responses.etags import entity_tag, tagged, unchanged
from queries.web.responses.problems import problem_of, response_of
from queries.web.responses.waiting import computed

READERS: Final = 2
"""Threads that read readings at a time."""
_COLLECTION: Final = "/collections/{collection_id}"
_OF_COLLECTIONS: Final = {"parameters": list(description.COLLECTIONS)}
_OF_METADATA: Final = {"parameters": list(description.METADATA)}
_OF_INSTANCES: Final = {"parameters": list(description.INSTANCES)}

Made = TypeVar("Made")
Endpoint = Callable[[Request], Awaitable[Response]]


class EdrRoute(APIRoute):
    """Refuses parameters that its description lacks; errors carry what EDR names: `code` and `description`."""

    def get_route_handler(self) -> Callable[[Request], Awaitable[Response]]:  # type: ignore[override]
        """Return the handler with its errors told."""
        handle = super().get_route_handler()

        async def told(request: Request) -> Response:
            try:
                if self.openapi_extra is not None:
                    refuse_unknown(request, self.openapi_extra["parameters"])
                return await handle(request)
            except HyperGridError as error:
                problem = problem_of(error, posted=False)
                return response_of(problem | {"code": str(problem["status"]), "description": problem["detail"]})

        return told


def router(runner: Runner, catalogue: Catalogue, held: Collections) -> APIRouter:
    """Return the routes of this file."""
    routes = APIRouter(prefix=PREFIX, tags=["EDR"], route_class=EdrRoute)
    reading = anyio.CapacityLimiter(READERS)

    async def off(work: Callable[[], Made]) -> Made:
        return await to_thread.run_sync(work, limiter=reading)

    @routes.get("/", include_in_schema=False, openapi_extra=_OF_METADATA)
    @routes.get("", response_class=Response, openapi_extra=_OF_METADATA)
    def landing(request: Request) -> Response:
        """Return the landing page."""
        return JSONResponse(metadata.landing(_base(request), catalogue.archive.name))

    @routes.get("/conformance", response_class=Response, openapi_extra=_OF_METADATA)
    def conformance() -> Response:
        """List the conformance classes."""
        return JSONResponse({"conformsTo": list(metadata.CLASSES)})

    @routes.get("/api", response_class=Response, openapi_extra=_OF_METADATA)
    def api(request: Request) -> Response:
        """Describe EDR (OpenAPI 3.0); `/openapi.json` describes all."""
        told = description.document(_base(request), catalogue.archive.name)
        return JSONResponse(told, media_type="application/vnd.oai.openapi+json;version=3.0")

    @routes.get("/collections", response_class=Response, openapi_extra=_OF_COLLECTIONS)
    async def collections(request: Request) -> Response:
        """List the collections: the stations, and every saved surface; those that meet a box and a time."""

        def listed() -> Response:
            base, meeting, (limit, first) = _base(request), read_meeting(request), read_page(request)
            found = [one for one in held.all() if metadata.meets(one, meeting)]
            page = found[first:][:limit]
            links = _next(request, f"{base}/collections", first + len(page), len(found), limit)
            return JSONResponse(metadata.listing(base, page, links))

        return await off(listed)

    @routes.get("/collections/{collection_id}", response_class=Response, openapi_extra=_OF_METADATA)
    async def collection(request: Request, collection_id: str) -> Response:
        """Describe a collection."""
        return await off(lambda: JSONResponse(metadata.describe(_base(request), held.one(collection_id))))

    @routes.get("/collections/{collection_id}/instances", response_class=Response, openapi_extra=_OF_INSTANCES)
    async def instances(request: Request, collection_id: str) -> Response:
        """List the versions of the archive, newest first, each with what the collection is there."""

        def listed() -> Response:
            base = _base(request)
            held.known(collection_id)
            limit, first = read_page(request)
            found = catalogue.archive.latest().snapshots
            most = description.MOST_INSTANCES
            page = found[first : first + min(limit or most, most)]
            here = f"{base}/collections/{collection_id}/instances"
            told = []
            for snapshot in page:
                there = held.of(collection_id, snapshot.id)
                told += [] if there is None else [metadata.describe(base, there, snapshot.id)]
            links = [{"href": here, "rel": "self", "type": "application/json"}]
            links += _next(request, here, first + len(page), len(found), len(page))
            return JSONResponse({"links": links, "instances": told})

        return await off(listed)

    @routes.get(
        "/collections/{collection_id}/instances/{instance_id}", response_class=Response, openapi_extra=_OF_METADATA
    )
    async def instance(request: Request, collection_id: str, instance_id: str) -> Response:
        """Describe a collection at a version of the archive."""

        def described() -> Response:
            return JSONResponse(metadata.describe(_base(request), held.one(collection_id, instance_id), instance_id))

        return await off(described)

    async def position(request: Request) -> Response:
        """Return what is at a POINT or a MULTIPOINT: the nearest stations, or a surface's estimates there."""
        there = await off(lambda: held.asked_by(request))
        asked, points = read_asked(request, there.parameters), read_position(request)
        if isinstance(there, StationsCollection):
            return await off(lambda: _nearest(there, asked, points, _base(request)))
        heights = asked.heights or (None if there.grid.z is None else _height_of(points))
        times, levels = there.times_of(asked.times), there.levels_of(heights)
        if not len(times) or (levels is not None and not len(levels)):
            return answers.nothing()
        places = [(lon, lat) for lon, lat, _ in points if there.cell_of(lon, lat) is not None]
        if not places:
            return answers.nothing()
        there.check(len(times), 1 if levels is None else len(levels), there.places_at(places))
        dataset = await computed(runner, await off(lambda: there.document_at(places, times)), request)

        def made() -> Response:
            kept = there.at(chosen(dataset, there, times, levels), places)
            return answers.of_points(kept, asked.form, _keys(there, asked), there, _base(request))

        return await off(made)

    async def block(
        request: Request, there: SurfaceCollection, asked: Asked, region: Region, heights: Ranges | None
    ) -> Response:
        times, levels = there.times_of(asked.times), there.levels_of(asked.heights or heights)
        cells = await off(lambda: there.block_of(region))
        if cells is None or not len(times) or (levels is not None and not len(levels)):
            return answers.nothing()
        rows, columns, inside = cells
        there.check(len(times), 1 if levels is None else len(levels), inside.size)
        answers.check_features(asked.form, len(times) * (1 if levels is None else len(levels)) * inside.size)
        dataset = await computed(runner, await off(lambda: there.document(times, rows, columns)), request)

        def made() -> Response:
            mask = xr.DataArray(inside, dims=("lat", "lon"))
            kept = chosen(dataset, there, times, levels)
            masked = kept if inside.all() else kept.assign(
                {name: (item.where(mask) if item.dtype.kind == "f" else item.where(mask, 0)).assign_attrs(item.attrs)
                 for name, item in kept.data_vars.items()}
            )  # fmt: skip
            return answers.of_map(masked, asked.form, _keys(there, asked), there, _base(request))

        return await off(made)

    async def area(request: Request) -> Response:
        """Return what lies in a POLYGON or a MULTIPOLYGON: stations, or the cells of a surface whose centre does."""
        there = await off(lambda: held.asked_by(request))
        asked, region = read_asked(request, there.parameters), read_area(request)
        if isinstance(there, StationsCollection):
            return await off(lambda: _of(there, there.inside(region), asked, _base(request)))
        return await block(request, there, asked, region, None)

    async def cube(request: Request) -> Response:
        """Return what lies in a box; one whose west is above its east crosses the antimeridian."""
        there = await off(lambda: held.asked_by(request))
        asked, (region, heights) = read_asked(request, there.parameters), read_cube(request)
        if isinstance(there, StationsCollection):
            return await off(lambda: _of(there, there.inside(region), asked, _base(request)))
        return await block(request, there, asked, region, heights)

    async def places(request: Request) -> Response:
        """List the stations as features: those in a box, and with data in a time, where these are given."""
        return await off(lambda: _listed(request, _stations(held.asked_by(request))))

    async def location(request: Request) -> Response:
        """Return the readings of a station."""

        def made() -> Response:
            there = _stations(held.asked_by(request))
            return _of(
                there,
                (_station(there, request.path_params["item_id"]),),
                read_asked(request, there.parameters),
                _base(request),
            )

        return await off(made)

    async def item(request: Request) -> Response:
        """Return a station as a feature; its readings where a time, parameters or another form are asked for."""

        def made() -> Response:
            there = _stations(held.asked_by(request))
            name = _station(there, request.path_params["item_id"])
            asked = read_asked(request, there.parameters, ITEM_FORMATS)
            if asked.form != "GeoJSON" or asked.times is not None or asked.names is not None:
                return _of(there, (name,), asked, _base(request))
            return JSONResponse(_entry(there, name, _here(request, there)), media_type=answers.GEOJSON)

        return await off(made)

    def tagged_by_content(endpoint: Endpoint) -> Endpoint:
        """Return an endpoint whose answers have a tag, and that computes nothing for who has the answer already."""

        async def answered(request: Request) -> Response:
            there = await off(lambda: held.asked_by(request))
            accepted = () if "f" in request.query_params else request.headers.getlist("accept")
            tag = entity_tag(there.token, str(request.url), tuple(accepted))
            same = unchanged(request, tag)
            if same is None:
                same = await endpoint(request)
                same.headers.update(tagged(tag))
            return same

        return answered

    endpoints: dict[str, Endpoint] = {
        "position": position, "area": area, "cube": cube, "locations": places, "items": places,
        "locations/{item_id}": location, "items/{item_id}": item,
    }  # fmt: skip
    for query, endpoint in endpoints.items():
        text, parameters = description.QUERIES[query]
        for root, where in ((_COLLECTION, ""), (f"{_COLLECTION}/instances/{{instance_id}}", "instance ")):
            told = description.operation(f"{root}/{query}", text, parameters, description.media_of(query))
            routes.add_api_route(
                f"{root}/{query.replace('item_id', 'item_id:path')}", tagged_by_content(endpoint), methods=["GET"],
                name=f"{where}{query}", operation_id=f"edr {where}{query}", summary=text, openapi_extra=told,
                response_class=Response,
            )  # fmt: skip

    @routes.get("/{rest:path}", include_in_schema=False)
    def unknown(rest: str) -> Response:
        message = f"there is nothing at {PREFIX}/{rest[:200]}; {PREFIX}/collections lists what there is"
        raise NotFound(message)

    return routes


def _keys(there: SurfaceCollection, asked: Asked) -> list[str]:
    return [key for key in there.parameters if asked.names is None or key in asked.names]


def _height_of(points: list[tuple[float, float, float | None]]) -> Ranges | None:
    """Return the height that points have in common [m]; None where they have none.

    Raises
    ------
    InvalidQuery
        They have several, and an answer is of the same levels at all points.
    """
    heights = list(dict.fromkeys(z for *_, z in points))
    if len(heights) > 1:
        message = f"coords need points of one height, or z={{height}} for all; got {len(heights)} heights; ask for each"
        raise InvalidQuery(message)
    height = heights[0]
    return None if height is None else Ranges(((height, height),))


def _nearest(
    there: StationsCollection, asked: Asked, points: list[tuple[float, float, float | None]], base: str
) -> Response:
    found: dict[str, dict[str, Any]] = {}
    for lon, lat, _ in points:
        near = there.nearest(lon, lat, asked.names)
        if near is not None:
            name, distance_m = near
            asked_for = {
                "hypergrid:station": there.label(name),
                "hypergrid:distance_m": round(distance_m, 1),
            }
            found.setdefault(name, asked_for)
    return _of(there, tuple(found), asked, base, found)


def _of(
    there: StationsCollection,
    names: tuple[str, ...],
    asked: Asked,
    base: str,
    told: dict[str, dict[str, Any]] | None = None,
) -> Response:
    read = there.read(names, asked)
    return answers.nothing() if read is None else answers.of_readings(read, asked.form, base, there, told)


def _listed(request: Request, there: StationsCollection) -> Response:
    asked, given = read_asked(request, there.parameters), read_box(request)
    limit, first = read_page(request)
    names = list(there.keys) if given is None else list(there.inside(given[0]))
    if asked.names is not None:
        names = [name for name in names if set(asked.names) & set(there.keys[name])]
    if asked.times is not None:
        names = [name for name in names if _has(there, name, asked.times, asked.names)]
    page = names[first:][:limit]
    here = _here(request, there)
    links = [{"href": f"{here}/{request.url.path.rpartition('/')[2]}", "rel": "self", "type": answers.GEOJSON}]
    links += _next(request, links[0]["href"], first + len(page), len(names), limit, answers.GEOJSON)
    return answers.features([_entry(there, name, here) for name in page], links, len(names), there)


def _has(there: StationsCollection, name: str, times: Ranges, wanted: tuple[str, ...] | None) -> bool:
    """Return whether a time has something in common with that of a station's readings of some parameters, or all."""
    held = there.extents.get(name, {})
    return any(one.meets(times) for key, one in held.items() if wanted is None or key in wanted)


def _entry(there: StationsCollection, name: str, here: str) -> dict[str, Any]:
    """Return a station as a feature after EDR's own profile of GeoJSON."""
    place, held = there.places.get(name), there.extents.get(name, {}).values()
    when = "../.."
    if held:
        first_ns, last_ns = min(one.start_ns for one in held), max(one.end_ns for one in held)
        when = f"{format_timestamp(first_ns)}/{format_timestamp(last_ns)}"
    return {
        "type": "Feature",
        "id": name,
        "geometry": None if place is None else {"type": "Point", "coordinates": list(place)},
        "properties": {
            "datetime": when,
            "label": there.label(name),
            "parameter-name": list(there.keys[name]),
            "edrqueryendpoint": f"{here}/locations/{quote(name, safe='')}",
        },
    }


def _next(
    request: Request, here: str, first: int, matched: int, limit: int | None, media_type: str = "application/json"
) -> list[dict[str, str]]:
    """Return the link to the page that follows, none after the last."""
    if first >= matched or not limit:
        return []
    query = request.url.include_query_params(limit=limit, offset=first).query
    return [{"href": f"{here}?{query}", "rel": "next", "type": media_type}]


def _stations(there: Collection) -> StationsCollection:
    if not isinstance(there, StationsCollection):
        message = f"collection {there.id!r} is a surface, which has no locations and no items; ask for a position in it"
        raise NotFound(message)
    return there


def _station(there: StationsCollection, name: str) -> str:
    if name not in there.keys:
        raise NotFound.among(kind="station", given=name[:100], existing=there.keys)
    return name


def _here(request: Request, there: Collection) -> str:
    instance = request.path_params.get("instance_id")
    return f"{_base(request)}/collections/{there.id}" + ("" if instance is None else f"/instances/{instance}")


def _base(request: Request) -> str:
    return f"{str(request.base_url).rstrip('/')}{PREFIX}"
