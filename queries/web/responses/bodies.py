"""Reading the JSON body of a request within limits of size and depth."""

import json
from typing import Any, Final

from fastapi import Request

from hypergrid.core.errors import InvalidQuery
from queries.web.responses.problems import BodyTooLarge, InvalidBody, NotJson

MOST_BYTES: Final = 1_000_000
"""Largest body that is read [bytes]."""
MOST_LEVELS: Final = 32
"""Deepest nesting that is read."""


async def read_document(request: Request) -> dict[str, Any]:
    """Return the JSON object that a request carries.

    The media type must be JSON: a page of another site cannot send that without asking first, and is never told yes.

    Raises
    ------
    NotJson, BodyTooLarge, InvalidBody, InvalidQuery
        Another media type; above 1 MB; no JSON, or nested too deeply; JSON, but no object.
    """
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type != "application/json" and not media_type.endswith("+json"):
        message = f"a query comes as application/json; got {media_type or 'no media type'}; set Content-Type"
        raise NotJson(message)
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > MOST_BYTES:
            message = f"a request may have {MOST_BYTES:,} bytes; this one has more; shorten the query"
            raise BodyTooLarge(message)
    document = parse(bytes(body))
    if not isinstance(document, dict):
        message = f"a query is a JSON object with a variable and steps; got {type(document).__name__}"
        raise InvalidQuery(message)
    return document


def parse(body: bytes) -> object:
    """Return what JSON text says; refuse NaN, Infinity and deep nesting.

    Raises
    ------
    InvalidBody
        With line and column where the text is no JSON.
    """
    try:
        value = json.loads(body, parse_constant=_refuse_constant)
    except RecursionError as error:
        raise InvalidBody(_too_deep_message()) from error
    except json.JSONDecodeError as error:
        message = f"the body is no JSON: {error.msg} at line {error.lineno}, column {error.colno}"
        raise InvalidBody(message) from error
    except ValueError as error:
        message = f"the body is no JSON: {error}"
        raise InvalidBody(message) from error
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
    message = f"{constant} is no JSON number"
    raise ValueError(message)


def _too_deep_message() -> str:
    return f"the body is nested deeper than {MOST_LEVELS} levels; no query needs that"
