"""`continuous`: continuous queries in CQL: names for completion, explanations, and back-tests over the archive."""

import math
from functools import partial
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query, Request, Response
from fastapi.concurrency import run_in_threadpool

from hypergrid.continuous.records import ORDERS
from hypergrid.core.errors import InvalidQuery, NotFound
from hypergrid.core.times import format_timestamp, parse_instant
from queries.continuous.explanation import describe_attributes
from queries.continuous.formats import ROWS_FORMATS, tabulate_backtest
from queries.continuous.records import Backtest, BacktestQuestion
from queries.continuous.service import ContinuousQueries
from queries.web.auth.access import Forbidden
from queries.web.auth.scopes import API
from queries.web.responses.addresses import root_of
from queries.web.responses.bodies import read_document
from queries.web.responses.files import attachment, file_response
from queries.web.responses.negotiation import form_of
from queries.web.responses.problems import problem_of
from queries.web.responses.waiting import patience_s
from queries.web.schemas import answer_of, body_of, format_time

_MEDIA: Final = {name: row.media_type for name, row in ROWS_FORMATS.items()}
_WAITED_S: Final = 0.5
"""Interval at which the client's connection is checked [s]."""
ROWS_ANSWER: Final[dict[int | str, dict[str, Any]]] = {
    200: {"description": "The rows", "content": {media_type: {} for media_type in _MEDIA.values()}}
}
Form = Annotated[str | None, Query(description=f"{', '.join(ROWS_FORMATS)}; where absent by Accept, or json")]


def router(queries: ContinuousQueries) -> APIRouter:
    """Create the routes of this module."""
    routes = APIRouter(tags=["continuous"])

    @routes.get("/continuous/catalogue", responses=answer_of("ContinuousCatalogue"))
    async def catalogue() -> dict[str, Any]:
        """Return what queries may name: streams, relations and their attributes, functions, keywords; and examples."""
        return await run_in_threadpool(queries.catalogue)

    @routes.post(
        "/continuous/explain",
        openapi_extra=body_of("ContinuousQuery"),
        responses=answer_of("ContinuousExplanation"),
    )
    async def explain(request: Request) -> dict[str, Any]:
        """Say what a query assumes, computes and holds, without running it.

        The problem document of a text that is no valid query has `line`, `column` and `length` of what is at fault,
        counted in characters from 1 (0: of the whole), the `problem` without them, and a `suggestion` to replace it.
        """
        document = await read_document(request)
        NotFound.refuse_unknown("key of a continuous query", document, ("text",))
        return await run_in_threadpool(queries.explain, _text_in(document))

    @routes.post(
        "/continuous/backtest",
        status_code=202,
        openapi_extra=body_of("BacktestRequest"),
        response_model=None,
        responses=answer_of("Backtest", status=202) | ROWS_ANSWER,
    )
    async def ask(
        request: Request,
        response: Response,
        wait: Annotated[str | None, Query(description="how long to wait for the rows themselves, such as 5s")] = None,
        f: Form = None,
    ) -> dict[str, Any] | Response:
        """Run a query over a stretch of the archive; the address of the back-test is in Location.

        Who says `wait=5s`, or `Prefer: wait=5` (RFC 7240), gets the rows themselves (200) where they are done in time.
        """
        seconds, form = patience_s(request, wait), check_form(request, f)
        backtest = await run_in_threadpool(queries.submit, question_of(await read_document(request)))
        until = seconds
        while until > 0 and not backtest.has_ended:
            step = min(until, _WAITED_S)
            backtest = await run_in_threadpool(queries.wait, backtest.id, step)
            until -= step
            if await request.is_disconnected():
                # The client was not sent the address, so no request can use the rows.
                backtest = await run_in_threadpool(queries.cancel, backtest.id)
        body = _backtest_body(backtest, root_of(request))
        if seconds > 0 and backtest.state in ("done", "failed"):
            answer = await run_in_threadpool(_answer_rows, queries, backtest.id, form)
            answer.headers["Preference-Applied"] = f"wait={math.ceil(seconds)}"
            answer.headers["Location"] = body["links"]["self"]
            return answer
        response.headers["Location"] = body["links"]["self"]
        return body

    @routes.get("/continuous/backtest/{number}", responses=answer_of("Backtest"))
    def look(request: Request, number: str) -> dict[str, Any]:
        """Return the state of a back-test, and how far it is."""
        return _backtest_body(queries.backtest(number), root_of(request))

    @routes.delete("/continuous/backtest/{number}", responses=answer_of("Backtest"))
    def stop(request: Request, number: str) -> dict[str, Any]:
        """Stop a back-test; one that ended stays as it is."""
        caller = request.state.caller
        # One caller must not cancel the back-test of another.
        if caller.scope != "admin" and queries.backtest(number).owner != caller.id:
            raise Forbidden(
                f"back-test {number} was asked with another key, and stops with that one, or one of scope 'admin'"
            )
        return _backtest_body(queries.cancel(number), root_of(request))

    @routes.get("/continuous/backtest/{number}/rows", response_class=Response, responses=ROWS_ANSWER)
    def rows(request: Request, number: str, f: Form = None) -> Response:
        """Return the rows of a finished back-test: `tau`, `sign` (+1: enters, -1: leaves), then the select list."""
        return _answer_rows(queries, number, check_form(request, f))

    return routes


def question_of(document: dict[str, Any]) -> BacktestQuestion:
    """Parse a document: text, and from, to, order where given.

    Raises
    ------
    InvalidQuery
        A key is not of its type.
    InvalidTime
        A bound is not an instant.
    NotFound
        There is no such key or order.
    """
    NotFound.refuse_unknown("key of a back-test", document, ("text", "from", "to", "order"))
    given = document.get("order") or "time"
    order = next((each for each in ORDERS if each == given), None)
    if order is None:
        raise NotFound.among("order of a back-test", given, ORDERS)
    return BacktestQuestion(_text_in(document), _instant_in(document, "from"), _instant_in(document, "to"), order)


def _text_in(document: dict[str, Any]) -> str:
    text = document.get("text")
    if not isinstance(text, str) or not text.strip():
        raise InvalidQuery(f"a continuous query needs text, its CQL; got {str(text)[:80]!r}")
    return text


def _instant_in(document: dict[str, Any], key: str) -> int | None:
    given = document.get(key)
    if given is None:
        return None
    if not isinstance(given, str):
        raise InvalidQuery(f"{key} needs an instant, such as 2007-10-01T00:00Z; got {str(given)[:80]!r}")
    return parse_instant(given)


def check_form(request: Request, f: str | None) -> str:
    form = form_of(request, _MEDIA, f)
    if form not in ROWS_FORMATS:
        raise NotFound.among("format of rows", form, ROWS_FORMATS)
    return form


def _answer_rows(queries: ContinuousQueries, number: str, form: str) -> Response:
    table, row = tabulate_backtest(queries.rows(number)), ROWS_FORMATS[form]
    return file_response(
        partial(row.to_bytes, table),
        media_type=row.media_type,
        headers=attachment(f"backtest_{number[:8]}", row.suffix) | {"X-Backtest-Id": number},
    )


def _backtest_body(backtest: Backtest, root: str) -> dict[str, Any]:
    url = f"{root}{API}/continuous/backtest/{backtest.id}"
    return {
        "id": backtest.id,
        "state": backtest.state,
        "text": backtest.question.text,
        "from": format_timestamp(backtest.window.start_ns),
        "to": format_timestamp(backtest.window.stop_ns),
        "order": backtest.question.order,
        "snapshot": backtest.snapshot,
        "result": "stream" if backtest.is_stream else "relation",
        "columns": describe_attributes(backtest.attributes),
        "created": format_time(backtest.created_ns),
        "started": format_time(backtest.started_ns),
        "ended": format_time(backtest.ended_ns),
        "fraction": backtest.fraction,
        "rows": backtest.rows,
        "error": problem_of(backtest.error, posted=True, is_answer=False) if backtest.error else None,
        "links": {"self": url, "rows": f"{url}/rows"},
    }
