"""JSON bodies and query parameters of requests, parsed within limits of size and depth."""

import json
from collections.abc import Container, Iterable
from typing import Annotated, Any, Final

from fastapi import Query, Request
from fastapi.dependencies.models import Dependant
from fastapi.dependencies.utils import get_flat_params
from fastapi.routing import APIRoute

from hypergrid.core.errors import InvalidQuery, NotFound
from hypergrid.topology.wkt import Region, box
from queries.web.responses.problems import BodyTooLarge, InvalidBody, NotJson

MOST_BYTES: Final = 1_000_000
"""Largest accepted body [bytes]."""
MOST_LEVELS: Final = 32
"""Deepest accepted nesting."""


async def read_document(request: Request) -> dict[str, Any]:
    """Read the JSON object in a request body.

    Raises
    ------
    NotJson, BodyTooLarge, InvalidBody, InvalidQuery
        Another media type; above 1 MB; not JSON, or nested too deeply; JSON, but not an object.
    """
    # Requiring a JSON media type prevents cross-site posts: browsers send those only after a preflight, which is
    # refused to unknown origins.
    media_type = media_type_of(request)
    if media_type != "application/json" and not media_type.endswith("+json"):
        raise NotJson(f"a query comes as application/json; got {media_type or 'no media type'}; set Content-Type")
    document = parse(await read_body(request, "a request", remedy="shorten the query"))
    if not isinstance(document, dict):
        raise InvalidQuery(f"a query is a JSON object with a variable and steps; got {type(document).__name__}")
    return document


def media_type_of(request: Request) -> str:
    """Return the media type of a body, in lower case and without parameters; empty if not stated."""
    return request.headers.get("content-type", "").partition(";")[0].strip().lower()


async def read_body(request: Request, what: str, *, remedy: str) -> bytes:
    """Read a request body within the limit.

    Raises
    ------
    BodyTooLarge
        It is above `MOST_BYTES`; the message names `what` it is and the `remedy`.
    """
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MOST_BYTES:
            raise BodyTooLarge(f"{what} may have {MOST_BYTES:,} bytes; this one has more; {remedy}")
    return bytes(body)


def parse(body: bytes) -> object:
    """Parse JSON, rejecting NaN, Infinity and deep nesting.

    Raises
    ------
    InvalidBody
        With line and column if the text is not JSON.
    """
    try:
        value = json.loads(body, parse_constant=_refuse_constant)
    except RecursionError as error:
        raise InvalidBody(_too_deep_message()) from error
    except json.JSONDecodeError as error:
        raise InvalidBody(f"the body is no JSON: {error.msg} at line {error.lineno}, column {error.colno}") from error
    except ValueError as error:
        raise InvalidBody(f"the body is no JSON: {error}") from error
    level: list[object] = [value]
    for _ in range(MOST_LEVELS):
        level = [inner for outer in level for inner in _list_children(outer)]
        if not level:
            return value
    raise InvalidBody(_too_deep_message())


def _list_children(value: object) -> list[object]:
    if isinstance(value, dict):
        return list(value.values())
    return value if isinstance(value, list) else []


def _refuse_constant(constant: str) -> None:
    raise ValueError(f"{constant} is no JSON number")


def _too_deep_message() -> str:
    return f"the body is nested deeper than {MOST_LEVELS} levels; no query needs that"


Limit = Annotated[int | None, Query(ge=1, le=1_000_000, description="how many at most, the newest; all where absent")]
Stations = Annotated[
    tuple[str, ...] | None, Query(description="ids of stations, with commas between; all where absent")
]
Box = Annotated[str | None, Query(description="west,south,east,north [degree]: the stations within; all where absent")]
Variables = Annotated[tuple[str, ...] | None, Query(description="names of variables, with commas between")]
StandardNames = Annotated[
    tuple[str, ...] | None, Query(description="CF standard names of variables, with commas between")
]


def refuse_unknown(request: Request) -> None:
    """Reject a request with a parameter unknown to its route. A FastAPI dependency.

    Raises
    ------
    InvalidQuery
        The message names it, and a similar known one.
    """
    # Ignoring a mistyped parameter would change the meaning of the request.
    route = request.scope["route"]
    assert isinstance(route, APIRoute)
    known = [parameter.alias for parameter in get_flat_params(Dependant(query_params=route.dependant.query_params))]
    for name in request.query_params:
        if name not in known:
            raise InvalidQuery(str(NotFound.among(kind="parameter", given=name[:100], existing=known)))


def names_in(given: Iterable[str] | None, existing: Container[str]) -> tuple[str, ...]:
    """Split comma-separated names; an existing name may itself contain a comma."""
    names = [name for text in given or () for name in ([text] if text in existing else text.split(","))]
    return tuple(dict.fromkeys(names))


def region_of(bbox: str | None) -> Region | None:
    """Parse the region of a box; None if absent.

    Raises
    ------
    InvalidQuery
        It is malformed.
    """
    if bbox is None:
        return None
    try:
        west, south, east, north = map(float, bbox.split(","))
    except ValueError:
        raise InvalidQuery(f"bbox needs four numbers, west,south,east,north; got {bbox[:80]!r}") from None
    return box(west, south, east, north)
