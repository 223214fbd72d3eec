"""`standing`: the standing queries, how they stand, and their alerts."""

from dataclasses import asdict
from typing import Annotated, Any

from fastapi import APIRouter, Query

from queries.standing.service import StandingQueries


def router(standing: StandingQueries) -> APIRouter:
    """Return the routes of this file."""
    routes = APIRouter(tags=["standing"])

    @routes.get("/standing")
    def listing() -> list[dict[str, Any]]:
        """List the standing queries, oldest first."""
        return standing.listing()

    @routes.get("/standing/alerts")
    def alerts(
        after: Annotated[int, Query(ge=0, description="number of the last alert that is known")] = 0,
        limit: Annotated[int, Query(ge=1, le=1000)] = 100,
    ) -> list[dict[str, Any]]:
        """Return alerts in the order in which they were found."""
        return standing.alerts(after=after, limit=limit)

    @routes.get("/standing/statistics")
    def statistics() -> dict[str, Any]:
        """Return what the runner of standing queries holds and did."""
        told = standing.statistics()
        return {**asdict(told), "scheduling_share": told.scheduling_share, "letters": standing.store.post()}

    @routes.get("/standing/{name}")
    def one(name: str) -> dict[str, Any]:
        """Return a standing query."""
        return standing.show(name)

    return routes
