"""`variables`, `stations`, `layers`, `snapshots`, `functions`, `saved`: what there is to ask about."""

from collections.abc import Mapping
from typing import Any

from fastapi import APIRouter, Response
from fastapi.responses import JSONResponse

from queries.catalogue import Catalogue
from queries.web.parameters import Limit


def router(catalogue: Catalogue) -> APIRouter:
    """Return the routes of this file."""
    routes = APIRouter(tags=["catalogue"])

    @routes.get("/variables")
    def variables() -> list[dict[str, Any]]:
        """List the variables of the archive with their units."""
        return catalogue.variables()

    @routes.get("/stations", response_class=Response)
    def stations() -> JSONResponse:
        """Return the stations as GeoJSON (RFC 7946): a point each, null where the position is not known."""
        return JSONResponse(catalogue.stations(), media_type="application/geo+json")

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
    def saved() -> dict[str, Mapping[str, Any]]:
        """Return the saved queries by name."""
        return catalogue.saved()

    return routes
