"""`queries`: ask, list, look, stop."""

from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Request, Response
from fastapi.concurrency import run_in_threadpool

from hypergrid.export import FORMATS
from queries.scheduling.jobs import Order
from queries.scheduling.runner import Runner
from queries.web.bodies import read_document
from queries.web.records import PREFIX, job_body, plan_body, surface_body
from queries.web.waiting import answered, patience_s

_BODY: Final[dict[str, Any]] = {
    "requestBody": {
        "required": True,
        "content": {
            "application/json": {
                "schema": {
                    "type": "object",
                    "required": ["variable", "steps"],
                    "properties": {
                        "variable": {"type": "string"},
                        "snapshot": {"type": ["string", "null"]},
                        "as_of": {"type": ["string", "null"], "format": "date-time"},
                        "steps": {"type": "array", "items": {"type": "object"}},
                        "clip": {"type": "object"},
                    },
                }
            }
        },
    }
}


_IN_TIME: Final[dict[int | str, dict[str, Any]]] = {
    200: {
        "description": "The result, which was done in time",
        "content": {row.media_type: {} for row in FORMATS.values()},
    }
}


def router(runner: Runner) -> APIRouter:
    """Return the routes of this file."""
    routes = APIRouter(tags=["queries"])

    @routes.post("/queries/explain", openapi_extra=_BODY)
    async def explain(request: Request) -> dict[str, Any]:
        """Say what a query would do and need, without running it."""
        outline = await run_in_threadpool(runner.explain, await read_document(request))
        return {
            "cells": outline.cells,
            "projected_bytes": outline.projected_bytes,
            "explanation": outline.explanation,
            "surface": surface_body(outline.layout),
        }

    @routes.post("/queries", status_code=202, response_model=None, openapi_extra=_BODY, responses=_IN_TIME)
    async def ask(
        request: Request,
        response: Response,
        order: Annotated[Order, Query(description="which cells are computed first")] = "coarse_to_fine",
        wait: Annotated[str | None, Query(description="how long to wait for the result itself, such as 5s")] = None,
        f: Annotated[str, Query(description="its format: " + ", ".join(FORMATS))] = "netcdf",
    ) -> dict[str, Any] | Response:
        """Ask for the answer of a query; its address is in Location.

        Who says `wait=5s`, or `Prefer: wait=5` (RFC 7240), gets the result itself (200) where it is done in time.
        """
        seconds, form = patience_s(request, wait), FORMATS[f].name
        job = await run_in_threadpool(runner.submit, await read_document(request), order=order)
        early = await answered(runner, job, request, seconds=seconds, form=form)
        if early is not None:
            early.headers["Location"] = f"{PREFIX}/queries/{job.id}"
            return early
        job = runner.job(job.id)
        response.headers["Location"] = f"{PREFIX}/queries/{job.id}"
        return job_body(job)

    @routes.get("/queries")
    def listing() -> list[dict[str, Any]]:
        """List the queries that are remembered, newest first."""
        return [job_body(job) for job in runner.jobs()]

    @routes.get("/queries/{job_id}")
    def look(job_id: str) -> dict[str, Any]:
        """Return the state of a query and its plan."""
        job = runner.job(job_id)
        return job_body(job) | {"plan": plan_body(job)}

    @routes.delete("/queries/{job_id}")
    def stop(job_id: str) -> dict[str, Any]:
        """Stop a query; one that ended stays as it is. Its run goes on while others wait for it."""
        return job_body(runner.cancel(job_id))

    return routes
