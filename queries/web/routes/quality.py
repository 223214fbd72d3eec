"""`stations/quality` and `rejects`: which tests flagged what, and what could not be read."""

from dataclasses import asdict
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response

from hypergrid.query import OpenArchive
from queries.snapshots.quality import MOST_DAYS, quality, reject_kinds, rejects_csv
from queries.snapshots.snapshot_cache import AtSnapshot
from queries.web.responses.negotiation import form_of


def router(archive: OpenArchive) -> APIRouter:
    """Return the routes of this file."""
    routes = APIRouter(tags=["quality"])
    qualities = AtSnapshot(archive, lambda opened, days: quality(opened.store, days))
    rejected = AtSnapshot(archive, lambda opened, _asked: opened.store.rejects())

    @routes.get("/stations/quality")
    def stations_quality(
        days: Annotated[
            int | None, Query(ge=1, le=MOST_DAYS, description="so many before each variable's newest reading; or all")
        ] = None,
    ) -> list[dict[str, Any]]:
        """Return, for every station and variable, how many readings have which flag, and which tests set how many."""
        return [asdict(one) for one in qualities.of(days)]

    @routes.get("/rejects", response_model=None, responses={200: {"content": {"text/csv": {}}}})
    def rejects(
        request: Request,
        response: Response,
        f: Annotated[
            Literal["json", "csv"] | None,
            Query(description="kinds with examples, or a row each; where absent by Accept, or json"),
        ] = None,
    ) -> dict[str, Any] | Response:
        """Return what could not be read: reasons by kind with counts and examples, or every one of them as CSV."""
        found = rejected.of()
        if form_of(request, {"json": "application/json", "csv": "text/csv"}, f) == "csv":
            told = {"Content-Disposition": 'attachment; filename="rejects.csv"', "Vary": "Accept"}
            return Response(rejects_csv(found), media_type="text/csv", headers=told)
        kinds = [
            {
                "kind": one.kind,
                "count": one.count,
                "files": len(one.files),
                "examples": [asdict(example) for example in one.examples],
            }
            for one in reject_kinds(found)
        ]
        response.headers["Vary"] = "Accept"
        return {"count": len(found), "kinds": kinds}

    return routes
