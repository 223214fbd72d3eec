"""The catalogue: variables, stations, layers, snapshots, functions, saved and suggested queries, and publication."""

import dataclasses
from collections.abc import Mapping
from typing import Annotated, Any

from fastapi import APIRouter, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.responses import JSONResponse

from queries.snapshots.catalogue import Catalogue, select_stations, select_variables
from queries.web.edr import Collections
from queries.web.responses.bodies import (
    Box,
    Limit,
    StandardNames,
    Stations,
    Variables,
    names_in,
    read_document,
    region_of,
)
from queries.web.schemas import body_of


def router(catalogue: Catalogue, collections: Collections) -> APIRouter:
    """Create the routes of this module."""
    routes = APIRouter(tags=["catalogue"])

    @routes.get("/variables")
    def variables() -> list[dict[str, Any]]:
        """List the variables of the archive with their units."""
        return catalogue.variables()

    @routes.get("/publication")
    def publication() -> dict[str, str]:
        """Return the network's name, and what it states about its data: institution, license, creator and publisher."""
        return {"network": catalogue.archive.name, **catalogue.publication.attributes()}

    @routes.get("/stations", response_class=Response)
    def stations(
        station: Stations = None, bbox: Box = None, variable: Variables = None, standard_name: StandardNames = None
    ) -> JSONResponse:
        """Return the stations as GeoJSON (RFC 7946): a point each, null where the position is not known."""
        archive = catalogue.archive.latest()
        names = select_stations(archive.stations, names_in(station, archive.stations), region_of(bbox))
        variables = select_variables(
            archive.variables, names_in(variable, archive.variables), names_in(standard_name, ())
        )
        if variables:
            having = {series.station for name in variables for series in archive.store.list_series(name).values()}
            names = tuple(name for name in (archive.stations if names is None else names) if name in having)
        return JSONResponse(catalogue.stations(names), media_type="application/geo+json")

    @routes.get("/layers")
    def layers() -> list[dict[str, Any]]:
        """List the fields that do not change with time, such as elevation, with unit, extent and source."""
        return catalogue.layers()

    @routes.get("/snapshots")
    def snapshots(limit: Limit = None) -> list[dict[str, Any]]:
        """List the versions of the archive, newest first; all of them where no limit is given."""
        return catalogue.snapshots(limit)

    @routes.get("/functions")
    def functions() -> dict[str, list[dict[str, Any]]]:
        """List what the steps of a query can name, with the parameters of each."""
        return catalogue.functions()

    @routes.get("/saved")
    def saved(
        *, answerable: Annotated[bool, Query(description="only those that the newest snapshot can answer")] = False
    ) -> dict[str, Mapping[str, Any]]:
        """Return the saved queries by name."""
        return catalogue.answerable_queries() if answerable else catalogue.saved_queries()

    @routes.get("/suggestion")
    def suggest(
        variable: Annotated[str | None, Query(description="name of the variable; one that varies where absent")] = None,
    ) -> dict[str, Any]:
        """Return a first query, a map of the newest day that has readings, and notes on how it was chosen."""
        return dataclasses.asdict(catalogue.suggest(variable))

    @routes.post("/suggestion", openapi_extra=body_of("Query"))
    async def adapt(
        request: Request, variable: Annotated[str, Query(description="name of the other variable")]
    ) -> dict[str, Any]:
        """Carry a query over to another variable: bounds, aggregates and variograms change, grid and time stay."""
        document = await read_document(request)
        return dataclasses.asdict(await run_in_threadpool(catalogue.adapt, document, variable))

    @routes.get("/surfaces")
    def surfaces() -> list[dict[str, Any]]:
        """List the saved queries that are maps, with their collections of EDR, or why they cannot be computed now."""
        return collections.surfaces()

    return routes
