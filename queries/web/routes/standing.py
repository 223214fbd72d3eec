"""`standing`: the standing queries, their state, and their alerts."""

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import suppress
from dataclasses import asdict
from functools import partial
from typing import Annotated, Any, Final, Literal

import anyio
from anyio import to_thread
from fastapi import APIRouter, Header, Path, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from sse_starlette import EventSourceResponse, ServerSentEvent

from hypergrid.core.errors import InvalidQuery, InvalidTime
from hypergrid.core.times import Window, parse_duration, parse_instant
from hypergrid.formats.results import FORMATS
from queries.standing.repository import Remark
from queries.standing.service import StandingQueries
from queries.web.auth.scopes import is_allowed
from queries.web.responses.addresses import announce_created, resolve_name
from queries.web.responses.bodies import read_document
from queries.web.responses.etags import entity_tag, etag_headers, not_modified_response
from queries.web.responses.files import PARTS, RESULT_MEDIA, surface_response
from queries.web.responses.negotiation import form_of
from queries.web.responses.problems import strip_paths
from queries.web.responses.waiting import threadsafe_event
from queries.web.routes.jobs import FAREWELL_S, PING_S
from queries.web.schemas import answer_of, body_of

LOOKED_S: Final = 2.0
"""Interval at which a stream checks for alerts of other processes, such as `hypergrid standing test` [s]."""
LAST_NS: Final = 2**63 - 1
"""Largest representable instant [ns since 1970 UTC]."""
AT_ONCE: Final = 100
"""Alerts read at once by a stream."""
PREVIEWS: Final = 1
"""Previews that are computed at a time; others wait, as each may take a processor for ten seconds."""
ACTS: Final[Mapping[str, Remark]] = {"acknowledge": "acknowledged", "comment": "commented", "reopen": "reopened"}
"""Remarks by the last part of their address."""


def router(standing: StandingQueries, clock: Callable[[], int] = time.time_ns) -> APIRouter:
    """Create the routes of this module; `clock` returns the time [ns since 1970 UTC]."""
    routes = APIRouter(tags=["standing"])
    previewing = anyio.CapacityLimiter(PREVIEWS)

    def known(request: Request, name: str) -> str:
        """Check a name in the URL, recording it for the audit log."""
        with resolve_name(request, name):
            standing.store.entry(name)
        return name

    @routes.get("/standing", responses=answer_of("Standing", listed=True))
    def listing(request: Request) -> list[dict[str, Any]]:
        """List the standing queries, oldest first."""
        return [hide_recipients(request, document) for document in standing.listing()]

    @routes.post(
        "/standing",
        status_code=201,
        openapi_extra=body_of("StandingQuery"),
        responses=answer_of("Standing", status=201),
    )
    async def add(request: Request, response: Response) -> dict[str, Any]:
        """Make a standing query; it is on the disk when this answers, and is evaluated with the next readings."""
        entry = await run_in_threadpool(standing.add, await read_document(request))
        announce_created(request, response, f"standing/{entry.name}")
        return standing.show(entry.name)

    @routes.get("/standing/alerts", responses=answer_of("Alert", listed=True))
    def alerts(
        *,
        after: Annotated[int, Query(ge=0, le=2**53, description="number of the last alert that is known")] = 0,
        limit: Annotated[int, Query(ge=1, le=1000)] = 100,
        name: Annotated[str | None, Query(max_length=63, description="of this standing query only")] = None,
        newest: Annotated[bool, Query(description="the newest ones, where there are more than the limit")] = False,
    ) -> list[dict[str, Any]]:
        """Return alerts, and the remarks on them, in the order in which they were found."""
        return standing.alerts(name=name, after=after, limit=limit, newest=newest)

    @routes.post(
        "/standing/alerts/{number}/{act}",
        status_code=201,
        openapi_extra=body_of("Remark"),
        responses=answer_of("Alert", status=201),
    )
    async def remark(
        request: Request,
        number: Annotated[int, Path(ge=1, le=2**53)],
        act: Literal["acknowledge", "comment", "reopen"],
    ) -> dict[str, Any]:
        """Acknowledge an alert, comment on it, or open it again; who did so and when is listed among the alerts."""
        document = await read_document(request)
        author = request.state.caller.name
        with resolve_name(request, str(number)):
            comment = document.get("comment", "")
            if not isinstance(comment, str) or set(document) - {"comment"}:
                raise InvalidQuery(
                    f"a remark is a JSON object with at most a text as 'comment'; got {sorted(document)}"
                )
            return await run_in_threadpool(standing.remark, number, ACTS[act], author=author, comment=comment)

    @routes.post("/standing/preview", openapi_extra=body_of("StandingQuery"), responses=answer_of("StandingPreview"))
    async def preview(
        request: Request,
        start: Annotated[str | None, Query(description="first instant; a week before the newest where absent")] = None,
        stop: Annotated[str | None, Query(description="first instant that is not judged any more")] = None,
    ) -> dict[str, Any]:
        """Say which alerts a standing query would have raised and cleared in the past; nothing is stored or sent."""
        document = await read_document(request)
        if (start is None) != (stop is None):
            raise InvalidQuery("a preview needs both 'start' and 'stop', or neither for the newest week")
        window = None if start is None else Window.parse(start, stop)
        made = await to_thread.run_sync(standing.preview, document, window, limiter=previewing)
        return made.to_json()

    @routes.get("/standing/alerts/events", response_class=EventSourceResponse)
    async def follow_alerts(
        after: Annotated[int, Query(ge=0, le=2**53, description="number of the last alert that is known")] = 0,
        last_event_id: Annotated[str | None, Header()] = None,
    ) -> EventSourceResponse:
        """Tell the alerts after a number, and then each new one; its number is the id of the event."""
        if last_event_id and last_event_id.isdecimal() and len(last_event_id) < 16:
            after = max(after, int(last_event_id))
        return EventSourceResponse(
            stream_alerts(standing, after), ping=PING_S, sep="\n", shutdown_grace_period=FAREWELL_S
        )

    @routes.get("/standing/statistics")
    def statistics() -> dict[str, Any]:
        """Return what the runner of standing queries holds and did."""
        figures = standing.statistics()
        return {
            **asdict(figures), "trouble": strip_paths(figures.trouble),
            "scheduling_share": figures.scheduling_share, "letters": standing.store.count_messages(),
        }  # fmt: skip

    @routes.get("/standing/{name}", responses=answer_of("Standing"))
    def one(request: Request, name: str) -> dict[str, Any]:
        """Return a standing query."""
        return hide_recipients(request, standing.show(name))

    @routes.get("/standing/{name}/result", response_class=Response, responses=PARTS)
    def newest(
        request: Request,
        name: str,
        f: Annotated[str | None, Query(description=f"{', '.join(FORMATS)}; where absent by Accept, or netcdf")] = None,
    ) -> Response:
        """Return the newest time cell of a standing query that was computed."""
        form, dataset = FORMATS[form_of(request, RESULT_MEDIA, f)].name, standing.latest(known(request, name))
        tag = entity_tag(str(dataset.attrs["hypergrid_token"]), str(dataset.attrs["hypergrid_snapshot"]), form)
        return not_modified_response(request, tag) or surface_response(
            dataset, form, headers=etag_headers(tag), asked=request
        )

    @routes.delete("/standing/{name}", status_code=204)
    def remove(request: Request, name: str) -> None:
        """Forget a standing query; its results and alerts stay."""
        standing.remove(known(request, name))

    @routes.post("/standing/{name}/replace", openapi_extra=body_of("StandingQuery"), responses=answer_of("Standing"))
    async def replace(request: Request, name: str) -> dict[str, Any]:
        """Have a standing query be what a document of the same name says; pause, mute, results and alerts stay."""
        document = await read_document(request)
        if document.get("name") != name:
            raise InvalidQuery(
                f"the document of the standing query {name!r} needs its name; got {document.get('name')!r}"
            )
        await run_in_threadpool(known, request, name)
        await run_in_threadpool(standing.replace, document)
        return standing.show(name)

    @routes.post("/standing/{name}/pause", responses=answer_of("Standing"))
    def pause(request: Request, name: str) -> dict[str, Any]:
        """Evaluate a standing query no more, until it is resumed."""
        standing.pause(known(request, name))
        return standing.show(name)

    @routes.post("/standing/{name}/resume", responses=answer_of("Standing"))
    def resume(request: Request, name: str) -> dict[str, Any]:
        """Evaluate a standing query again, from what has come meanwhile on."""
        standing.resume(known(request, name))
        return standing.show(name)

    @routes.post("/standing/{name}/mute", openapi_extra=body_of("Mute"), responses=answer_of("Standing"))
    async def mute(request: Request, name: str) -> dict[str, Any]:
        """Keep the alerts of a standing query, but tell nobody, until an instant, for a time, or (null) tell again."""
        until_ns = _parse_mute_end(await read_document(request), clock())
        await run_in_threadpool(lambda: standing.mute(known(request, name), until_ns))
        return standing.show(name)

    @routes.post("/standing/{name}/test")
    def test(request: Request, name: str) -> dict[str, Any]:
        """Send an alert that says that it is a test, the way that others go."""
        alert = standing.test(known(request, name))
        return {"number": alert.number, "to": [str(to) for to in standing.store.entry(name).definition.to]}

    return routes


def hide_recipients(request: Request, document: dict[str, Any]) -> dict[str, Any]:
    """Hide mail addresses and webhooks of a standing query from callers without scope "write"."""
    if is_allowed(request.state.caller.scope, "write"):
        return document
    hidden = {**document, "to": sorted({_channel(to) for to in document["to"]})}
    if "undelivered" in document:
        # Errors contain the address too.
        hidden["undelivered"] = [
            {**letter, "to": _channel(letter["to"]), "error": ""} for letter in document["undelivered"]
        ]
    return hidden


def _channel(target: str) -> str:
    return target.partition(":")[0]


def _parse_mute_end(document: Mapping[str, Any], now_ns: int) -> int | None:
    match document:
        case {"until": None, **rest} if not rest:
            return None
        case {"until": str(instant), **rest} if not rest:
            return parse_instant(instant)
        case {"for": str(span), **rest} if not rest:
            until_ns = now_ns + parse_duration(span)
            if until_ns > LAST_NS:
                raise InvalidTime(f"mute needs an end before 2262; {span!r} from now is later")
            return until_ns
        case _:
            raise InvalidQuery("mute needs {'until': '2025-10-01T12:00Z'}, {'for': '2h'} or {'until': null}")


async def stream_alerts(standing: StandingQueries, after: int) -> AsyncIterator[ServerSentEvent]:
    """Yield alerts with numbers above `after`, indefinitely."""
    with threadsafe_event(standing.runner.listen) as changed:
        while True:
            changed.clear()
            alerts = await run_in_threadpool(partial(standing.alerts, after=after, limit=AT_ONCE))
            for alert in alerts:
                after = alert["number"]
                yield ServerSentEvent(json.dumps(alert), event=alert["happening"], id=str(after))
            # After a full page there may be more alerts, so it reads on without waiting.
            if len(alerts) < AT_ONCE:
                with suppress(TimeoutError):
                    # Alerts of other processes cause no callback, hence the timeout.
                    await asyncio.wait_for(changed.wait(), LOOKED_S)
