"""`queries`: submit, list, inspect and cancel queries."""

from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Request, Response
from fastapi.concurrency import run_in_threadpool

from hypergrid.formats.results import FORMATS
from queries.jobs.job_history import JobRecord, Past
from queries.jobs.records import Job, Order
from queries.jobs.runner import Runner
from queries.web.auth.access import Forbidden
from queries.web.responses.bodies import read_document
from queries.web.responses.files import RESULT_MEDIA
from queries.web.responses.negotiation import form_of
from queries.web.responses.orphan_jobs import OrphanJobCanceller
from queries.web.responses.parameters import Limit
from queries.web.responses.waiting import patience_s, wait_for_response
from queries.web.schemas.openapi import answer_of, body_of
from queries.web.schemas.records import job_body, plan_body, record_body, surface_body

_LINKS: Final[dict[str, Any]] = {
    name: {
        "operationRef": f"#/paths/~1api~1v1~1queries~1{{job_id}}/{method}",
        "parameters": {"job_id": "$response.body#/id"},
    }
    for name, method in (("look", "get"), ("stop", "delete"))
}


_IN_TIME: Final[dict[int | str, dict[str, Any]]] = {
    200: {
        "description": "The result, which was done in time",
        "content": {row.media_type: {} for row in FORMATS.values()},
    }
}


def router(runner: Runner, ties: OrphanJobCanceller) -> APIRouter:
    """Create the routes of this module."""
    routes = APIRouter(tags=["queries"])

    @routes.post("/queries/explain", openapi_extra=body_of("Query"), responses=answer_of("Plan"))
    async def explain(request: Request) -> dict[str, Any]:
        """Say what a query would do and need, without running it."""
        outline = await run_in_threadpool(runner.explain, await read_document(request))
        return {
            "cells": outline.cells,
            "projected_bytes": outline.projected_bytes,
            "projected_seconds": outline.projected_s,
            "explanation": outline.explanation,
            "surface": surface_body(outline.layout),
        }

    @routes.post(
        "/queries",
        status_code=202,
        openapi_extra=body_of("Query"),
        response_model=None,
        responses=answer_of("Job", status=202, links=_LINKS) | _IN_TIME,
    )
    async def ask(
        request: Request,
        response: Response,
        tied: Annotated[bool, Query(description="stop it when the last who follows its events has gone")] = False,  # noqa: FBT002
        order: Annotated[Order, Query(description="which cells are computed first")] = "coarse_to_fine",
        wait: Annotated[str | None, Query(description="how long to wait for the result itself, such as 5s")] = None,
        f: Annotated[
            str | None, Query(description=f"its format: {', '.join(FORMATS)}; where absent by Accept, or netcdf")
        ] = None,
    ) -> dict[str, Any] | Response:
        """Ask for the answer of a query; its address is in Location.

        Who says `wait=5s`, or `Prefer: wait=5` (RFC 7240), gets the result itself (200) where it is done in time.
        """
        seconds, form = patience_s(request, wait), FORMATS[form_of(request, RESULT_MEDIA, f)].name
        job = await run_in_threadpool(runner.submit, await read_document(request), order=order)
        if tied:
            ties.tie(job.id)
        early = await wait_for_response(runner, job, request, seconds=seconds, form=form)
        body = job_body(runner.job(job.id), root_of(request))
        answer = response if early is None else early
        answer.headers["Location"] = body["links"]["self"]
        return body if early is None else early

    @routes.get("/queries", responses=answer_of("Job", listed=True))
    def listing(request: Request, limit: Limit = None) -> list[dict[str, Any]]:
        """List the queries that are remembered, newest first: one's own, or all for who has scope admin."""
        root = root_of(request)
        everybodys: list[Job | JobRecord] = [*runner.jobs(), *runner.list_past_jobs()]
        visible_jobs = [job for job in everybodys if _may_see(request, job)]
        return [job_body(job, root) if isinstance(job, Job) else record_body(job, root) for job in visible_jobs[:limit]]

    @routes.get("/queries/{job_id}", responses=answer_of("Job"))
    def look(request: Request, job_id: str) -> dict[str, Any]:
        """Return the state of a query and its plan."""
        try:
            job = runner.job(job_id)
        except Past as past:
            return record_body(past.record, root_of(request))
        return job_body(job, root_of(request)) | {"plan": plan_body(job)}

    @routes.delete("/queries/{job_id}", responses=answer_of("Job"))
    def stop(request: Request, job_id: str) -> dict[str, Any]:
        """Stop a query; one that ended stays as it is. Its run goes on while others wait for it."""
        try:
            job = runner.job(job_id)
        except Past as past:
            return record_body(past.record, root_of(request))
        # One caller must not cancel the query of another.
        if not _may_see(request, job):
            raise Forbidden(
                f"query {job_id} was asked with another key, and stops with that one, or one of scope 'admin'"
            )
        return job_body(runner.cancel(job_id), root_of(request))

    return routes


def root_of(request: Request) -> str:
    """Return the path prefix added by a proxy."""
    return str(request.scope.get("root_path", ""))


def _may_see(request: Request, job: Job | JobRecord) -> bool:
    caller = request.state.caller
    return caller.scope == "admin" or job.owner == caller.id
