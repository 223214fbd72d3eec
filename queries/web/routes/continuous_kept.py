"""`continuous`: kept continuous queries: how far they are, their rows, what holds now, and events."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Annotated, Any, Final

from fastapi import APIRouter, Header, Query, Request, Response
from fastapi.concurrency import run_in_threadpool
from sse_starlette import EventSourceResponse, ServerSentEvent

from hypergrid.continuous.records import NoLongerKept
from hypergrid.core.errors import HyperGridError, InvalidQuery, NotFound
from hypergrid.core.times import format_timestamp
from queries.continuous.formats import ROWS_FORMATS, RowsTable, tabulate_elements, tabulate_relation
from queries.continuous.kept import NO_INSTANT, ResultForm
from queries.standing.continuous_alerts import ContinuousAlerts, describe_retention
from queries.standing.service import StandingQueries
from queries.web.responses.addresses import announce_created, resolve_name
from queries.web.responses.bodies import read_document
from queries.web.responses.files import attachment, file_response
from queries.web.responses.problems import strip_paths
from queries.web.responses.waiting import threadsafe_event
from queries.web.routes.continuous import ROWS_ANSWER, Form, check_form
from queries.web.routes.jobs import FAREWELL_S, PING_S
from queries.web.routes.standing import LOOKED_S, hide_recipients
from queries.web.schemas import answer_of, body_of

if TYPE_CHECKING:
    from hypergrid.continuous.live import GivenElement

AT_ONCE: Final = 100
"""Elements read at once by a stream."""
MOST_ROWS: Final = 10_000
"""Rows of an answer, at most."""
After = Annotated[
    int,
    Query(ge=-(2**53), le=2**53, description="number of the last element that is known; 0 for all that are kept"),
]
Limit = Annotated[int, Query(ge=1, le=MOST_ROWS)]


def router(standing: StandingQueries) -> APIRouter:
    """Create the routes of this module."""
    routes = APIRouter(tags=["continuous"])
    queries = ContinuousAlerts(standing)

    def known(request: Request, name: str) -> str:
        """Check a name in the URL, recording it for the audit log."""
        with resolve_name(request, name):
            queries.kept.entry(name)
        return name

    def shown(request: Request, document: dict[str, Any]) -> dict[str, Any]:
        alerts = [hide_recipients(request, alert) for alert in document["alerts"]]
        return document | {"alerts": alerts, "error": strip_paths(document["error"])}

    @routes.get("/continuous", responses=answer_of("KeptQuery", listed=True))
    def listing(request: Request) -> list[dict[str, Any]]:
        """List the kept continuous queries, by name."""
        return [shown(request, document) for document in queries.listing()]

    @routes.post(
        "/continuous",
        status_code=201,
        openapi_extra=body_of("NewKeptQuery"),
        responses=answer_of("KeptQuery", status=201),
    )
    async def add(request: Request, response: Response) -> dict[str, Any]:
        """Keep a continuous query; it is on the disk when this answers, and goes on with each commit."""
        document = await read_document(request)
        made = await run_in_threadpool(queries.add, document)
        announce_created(request, response, f"continuous/{made['name']}")
        return shown(request, made)

    @routes.get("/continuous/{name}", responses=answer_of("KeptQuery"))
    def show(request: Request, name: str) -> dict[str, Any]:
        """Return a kept query: how far it is evaluated, why it is not, and its alert."""
        return shown(request, queries.show(name))

    @routes.post("/continuous/{name}/keep", openapi_extra=body_of("ResultRetention"), responses=answer_of("KeptQuery"))
    async def change_keep(request: Request, name: str) -> dict[str, Any]:
        """Change how long the rows of a kept query are kept; older ones are dropped as it goes on."""
        document = await read_document(request)
        await run_in_threadpool(known, request, name)
        return shown(request, await run_in_threadpool(queries.change_keep, name, document))

    @routes.delete("/continuous/{name}", status_code=204)
    def remove(request: Request, name: str) -> None:
        """Forget a kept query with its rows and its alert; alerts that were raised stay."""
        queries.remove(known(request, name))

    @routes.get("/continuous/{name}/rows", response_class=Response, responses=ROWS_ANSWER)
    def rows(
        request: Request,
        name: str,
        *,
        after: After = 0,
        limit: Limit = 1000,
        newest: Annotated[bool, Query(description="the newest ones, where there are more than the limit")] = False,
        f: Form = None,
    ) -> Response:
        """Return the elements after a number: `number`, `tau`, `sign`, the select list, `corrects`, `snapshot`.

        Where results are kept for a time only, a number after which some were dropped is refused (410).

        An element with `corrects` corrects what was given before: +1 was missing, -1 should not have been. `tau` is
        null for rows that are there from the start.
        """
        form = queries.kept.form(queries.kept.entry(name))
        elements = queries.kept.list_elements(name, after, limit, newest=newest)
        table = tabulate_elements(elements, form.attributes, head=_head(name, form, offset=3))
        return _answer(table, name, check_form(request, f))

    @routes.get("/continuous/{name}/relation", response_class=Response, responses=ROWS_ANSWER)
    def relation(request: Request, name: str, *, limit: Limit = 1000, f: Form = None) -> Response:
        """Return the rows that the result of a query holds now."""
        entry = queries.kept.entry(name)
        form = queries.kept.form(entry)
        if form.is_stream:
            raise InvalidQuery(
                f"the result of the continuous query {name!r} is a stream, which holds no rows; ask for its 'rows'"
            )
        counts = queries.kept.count_rows(name)
        head = _head(name, form, offset=0) | {
            "snapshot": entry.snapshot,
            "heartbeat": None if entry.heartbeat_ns is None else format_timestamp(entry.heartbeat_ns),
            "total": counts.total(),
        }
        return _answer(tabulate_relation(counts, form.attributes, limit=limit, head=head), name, check_form(request, f))

    @routes.get("/continuous/{name}/events", response_class=EventSourceResponse)
    async def follow(
        request: Request, name: str, after: After = 0, last_event_id: Annotated[str | None, Header()] = None
    ) -> EventSourceResponse:
        """Tell the elements after a number, and then each new one; its number is the id of the event.

        Events are "row", "correction" (of what was given before) and "progress": how far the query is evaluated. The
        event "dropped" says that elements after the number are not kept any more: all that are kept follow, as after 0.
        """
        await run_in_threadpool(known, request, name)
        if last_event_id and last_event_id.removeprefix("-").isdecimal() and len(last_event_id) < 16:
            after = int(last_event_id) if not after else max(after, int(last_event_id))
        return EventSourceResponse(
            stream_elements(standing, queries, name, after), ping=PING_S, sep="\n", shutdown_grace_period=FAREWELL_S
        )

    return routes


async def stream_elements(
    standing: StandingQueries, queries: ContinuousAlerts, name: str, after: int
) -> AsyncIterator[ServerSentEvent]:
    """Yield the elements of a kept query with numbers above `after`, and its progress, until it is removed."""
    progress = ""
    known: dict[str, Any] = {
        "snapshot": None, "heartbeat": None, "complete": False, "late_windows": 0,
        "keep_s": None, "kept_from": None, "too_late_windows": 0,
    }  # fmt: skip
    with threadsafe_event(standing.runner.listen) as changed:
        while True:
            changed.clear()
            try:
                state, elements = await run_in_threadpool(_look, queries, name, after)
            except NotFound:
                yield ServerSentEvent(json.dumps({"name": name}), event="removed")
                return
            except NoLongerKept as error:
                yield ServerSentEvent(json.dumps({"after": after, "problem": str(error)}), event="dropped")
                after = 0
                continue
            except HyperGridError as error:
                # The file may be locked for a while: what was known stands.
                state, elements = known | {"error": strip_paths(str(error))}, []
            known = state
            for element, body in elements:
                after = element.number
                event = "row" if element.corrects is None else "correction"
                yield ServerSentEvent(json.dumps(body), event=event, id=str(after))
            text = json.dumps(state)
            # Elements first: progress says that all before its heartbeat were given.
            if len(elements) < AT_ONCE:
                if text != progress:
                    progress = text
                    yield ServerSentEvent(text, event="progress")
                with suppress(TimeoutError):
                    # A removal by another program causes no callback, hence the timeout.
                    await asyncio.wait_for(changed.wait(), LOOKED_S)


def _look(
    queries: ContinuousAlerts, name: str, after: int
) -> "tuple[dict[str, Any], list[tuple[GivenElement, dict[str, Any]]]]":
    """Return the progress of a query, and its elements, each with its JSON, where its text fits the archive."""
    entry = queries.kept.entry(name)
    state = {
        "snapshot": entry.snapshot,
        "heartbeat": None if entry.heartbeat_ns is None else format_timestamp(entry.heartbeat_ns),
        "complete": queries.kept.is_complete(name),
        "late_windows": entry.late,
        **describe_retention(entry.retention),
        "error": strip_paths(queries.kept.error(name)),
    }
    try:
        form = queries.kept.form(entry)
    except HyperGridError as error:
        return state | {"error": state["error"] or strip_paths(str(error))}, []
    return state, [(each, element_body(each, form)) for each in queries.kept.list_elements(name, after, AT_ONCE)]


def element_body(element: "GivenElement", form: ResultForm) -> dict[str, Any]:
    """Convert an element to JSON."""
    return {
        "number": element.number,
        "tau": None if element.tau_ns == NO_INSTANT else format_timestamp(element.tau_ns),
        "sign": element.sign,
        "row": form.to_json(element.row),
        "corrects": element.corrects,
        "snapshot": element.snapshot,
    }


def _head(name: str, form: ResultForm, *, offset: int) -> dict[str, Any]:
    """Return what JSON says of rows besides; keys are behind as many columns as `offset`."""
    return {
        "name": name,
        "result": "stream" if form.is_stream else "relation",
        "keys": [position + offset for position in form.keys],
    }


def _answer(table: RowsTable, name: str, form: str) -> Response:
    row = ROWS_FORMATS[form]
    return file_response(
        partial(row.to_bytes, table), media_type=row.media_type, headers=attachment(f"continuous_{name}", row.suffix)
    )
