"""`stations/quality` and `rejects`: flags by test, and rejected rows."""

from dataclasses import asdict
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Query, Request, Response

from hypergrid.query import OpenArchive
from queries.snapshots.quality import MOST_DAYS, assess_quality, reject_kinds, rejects_csv
from queries.snapshots.snapshot_cache import SnapshotCache
from queries.web.responses.negotiation import form_of


def router(archive: OpenArchive) -> APIRouter:
    """Create the routes of this module."""
    routes = APIRouter(tags=["quality"])
    qualities = SnapshotCache(archive, lambda opened, days: assess_quality(opened.store, days))
    rejected = SnapshotCache(archive, lambda opened, _asked: opened.store.rejects())

    @routes.get("/stations/quality")
    def stations_quality(
        days: Annotated[
            int | None, Query(ge=1, le=MOST_DAYS, description="so many before each variable's newest reading; or all")
        ] = None,
    ) -> list[dict[str, Any]]:
        """Return, for every station and variable, how many readings have which flag, and which tests set how many."""
        return [asdict(row) for row in qualities.get_answer(days)]

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
        rows = rejected.get_answer()
        if form_of(request, {"json": "application/json", "csv": "text/csv"}, f) == "csv":
            headers = {"Content-Disposition": 'attachment; filename="rejects.csv"', "Vary": "Accept"}
            return Response(rejects_csv(rows), media_type="text/csv", headers=headers)
        kinds = [
            {
                "kind": reject_kind.kind,
                "count": reject_kind.count,
                "files": len(reject_kind.files),
                "examples": [asdict(example) for example in reject_kind.examples],
            }
            for reject_kind in reject_kinds(rows)
        ]
        response.headers["Vary"] = "Accept"
        return {"count": len(rows), "kinds": kinds}

    return routes
