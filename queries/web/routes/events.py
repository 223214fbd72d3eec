"""`GET queries/{id}/events`: progress of a query as server-sent events."""

import asyncio
import json
from collections.abc import AsyncIterator
from functools import partial
from typing import Annotated, Any, Final

from fastapi import APIRouter, Header, Request, Response
from sse_starlette import EventSourceResponse, ServerSentEvent

from queries.jobs.job_history import Past
from queries.jobs.runner import Runner
from queries.web.responses.orphan_jobs import OrphanJobCanceller
from queries.web.responses.waiting import threadsafe_event
from queries.web.routes.jobs import root_of
from queries.web.schemas.records import event_body, record_body

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


def router(runner: Runner, ties: OrphanJobCanceller) -> APIRouter:
    """Create the routes of this module."""
    routes = APIRouter(tags=["queries"])

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


async def _yield_end(past: Past, root: str) -> AsyncIterator[ServerSentEvent]:
    """Yield the end event of a job of an earlier process."""
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
            # Only events after the first progress are throttled.
            await asyncio.sleep(told_at + SHORTEST_PAUSE_S - loop.time())
