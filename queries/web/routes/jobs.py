"""`queries`: submit, list, inspect and cancel queries, and follow their progress as server-sent events."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import suppress
from functools import partial
from typing import Annotated, Any, Final

from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from pydantic import BaseModel
from sse_starlette import EventSourceResponse, ServerSentEvent

from hypergrid.execution.results.second_opinion import MAX_CELLS
from hypergrid.formats.results import FORMATS
from queries.jobs.job_history import JobRecord, Past
from queries.jobs.records import Job, Order
from queries.jobs.runner import Runner
from queries.web.auth.access import Forbidden
from queries.web.responses.addresses import root_of
from queries.web.responses.bodies import Limit, read_document
from queries.web.responses.files import RESULT_MEDIA
from queries.web.responses.negotiation import form_of
from queries.web.responses.waiting import OrphanJobCanceller, patience_s, threadsafe_event, wait_for_response
from queries.web.schemas import answer_of, body_of, event_body, job_body, plan_body, record_body

SHORTEST_PAUSE_S: Final = 0.1
"""Minimum time between progress events [s]: at most ten a second, except for the one at the start."""
PING_S: Final = 15
"""Interval of the comments that keep a connection open during a long block [s]."""
FAREWELL_S: Final = 2.0
"""How long a stream may take to send its end on shutdown [s]."""
_LAST: Final = ("done", "error", "cancelled")
# Above all other ids, and equal whichever process sends it.
END_ID: Final = 999_999_999_999_999
"""Id of the event that ends a stream."""
_NO_MORE: Final[dict[int | str, dict[str, Any]]] = {204: {"description": "The end was seen: nothing follows"}}
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


class QueryRequest(BaseModel, frozen=True):
    """How a query is to be answered, as in its URL."""

    tied: Annotated[bool, Query(description="stop it when the last who follows its events has gone")] = False
    order: Annotated[Order, Query(description="which cells are computed first")] = "coarse_to_fine"
    wait: Annotated[str | None, Query(description="how long to wait for the result itself, such as 5s")] = None
    f: Annotated[
        str | None, Query(description=f"its format: {', '.join(FORMATS)}; where absent by Accept, or netcdf")
    ] = None
    second_opinion: Annotated[
        int | None, Query(ge=1, le=MAX_CELLS, description="random cells that PyKrige recomputes; told in the notes")
    ] = None


def router(runner: Runner, ties: OrphanJobCanceller) -> APIRouter:
    """Create the routes of this module."""
    routes = APIRouter(tags=["queries"])

    @routes.post("/queries/explain", openapi_extra=body_of("Query"), responses=answer_of("Plan"))
    async def explain(request: Request) -> dict[str, Any]:
        """Say what a query would do and need, without running it."""
        return plan_body(await run_in_threadpool(runner.explain, await read_document(request)))

    @routes.post(
        "/queries",
        status_code=202,
        openapi_extra=body_of("Query"),
        response_model=None,
        responses=answer_of("Job", status=202, links=_LINKS) | _IN_TIME,
    )
    async def ask(
        request: Request, response: Response, asked: Annotated[QueryRequest, Query()]
    ) -> dict[str, Any] | Response:
        """Ask for the answer of a query; its address is in Location.

        Who says `wait=5s`, or `Prefer: wait=5` (RFC 7240), gets the result itself (200) where it is done in time.
        """
        seconds, form = patience_s(request, asked.wait), FORMATS[form_of(request, RESULT_MEDIA, asked.f)].name
        job = await run_in_threadpool(
            runner.submit, await read_document(request), order=asked.order, second_opinion=asked.second_opinion
        )
        if asked.tied:
            ties.tie(job.id)
        early = await wait_for_response(runner, job, request, seconds=seconds, form=form)
        body = job_body(runner.job(job.id), root_of(request))
        (early or response).headers["Location"] = body["links"]["self"]
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
        return job_body(job, root_of(request)) | {"plan": plan_body(job.outline)}

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

    @routes.get("/queries/{job_id}/events", response_class=EventSourceResponse, responses=_NO_MORE)
    async def events(request: Request, job_id: str, last_event_id: Annotated[str | None, Header()] = None) -> Response:
        """Tell plan, progress, then done, error or cancelled; a late reader gets the present state first.

        A follower that has seen the end gets 204, which tells an EventSource to stop reconnecting (HTML, 9.2.3).
        """
        is_number = last_event_id is not None and last_event_id.isdecimal() and len(last_event_id) < 16
        after = int(last_event_id or 0) if is_number else 0
        try:
            has_ended = runner.job(job_id).has_ended
        except Past as past:
            if after == END_ID:
                return Response(status_code=204)
            return EventSourceResponse(_yield_end(past, root_of(request)), sep="\n")
        if after == END_ID and has_ended:
            return Response(status_code=204)
        event_stream = _tie_events(ties, job_id, follow_job(runner, job_id, after=after, root=root_of(request)))
        return EventSourceResponse(event_stream, ping=PING_S, sep="\n", shutdown_grace_period=FAREWELL_S)

    return routes


def _may_see(request: Request, job: Job | JobRecord) -> bool:
    caller = request.state.caller
    return caller.scope == "admin" or job.owner == caller.id


async def _yield_end(past: Past, root: str) -> AsyncIterator[ServerSentEvent]:
    name = {"failed": "error"}.get(past.record.state, past.record.state)
    body = record_body(past.record, root)
    yield ServerSentEvent(json.dumps(body["error"] if name == "error" else body), event=name, id=str(END_ID))


async def _tie_events(
    ties: OrphanJobCanceller, job_id: str, events: AsyncIterator[ServerSentEvent]
) -> AsyncIterator[ServerSentEvent]:
    """Yield events while counting their reader as a follower."""
    with ties.count_follower(job_id):
        async for event in events:
            yield event


async def follow_job(runner: Runner, job_id: str, *, after: int, root: str = "") -> AsyncIterator[ServerSentEvent]:
    """Yield the events of a job after number `after`, until it ends."""
    loop = asyncio.get_running_loop()
    told_at = loop.time() - SHORTEST_PAUSE_S
    with threadsafe_event(partial(runner.listen, job_id)) as changed:
        while True:
            changed.clear()
            has_ended = runner.job(job_id).has_ended
            # An id from another stream may exceed all ids here; the end is sent even so.
            for event in runner.events(job_id, after=after) or runner.events(job_id)[-1:] * has_ended:
                after = event.id
                if event.job.progress.cells:
                    told_at = loop.time()
                is_last = event.name in _LAST
                number = END_ID if is_last else event.id
                yield ServerSentEvent(json.dumps(event_body(event, root)), event=event.name, id=str(number))
                if is_last:
                    return
            await changed.wait()
            # Only events between the first progress and the end are throttled.
            with suppress(TimeoutError):
                async with asyncio.timeout_at(told_at + SHORTEST_PAUSE_S):
                    while True:
                        changed.clear()
                        if runner.job(job_id).has_ended:
                            break
                        await changed.wait()
