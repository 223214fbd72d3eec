"""Validation of query parameters."""

from collections.abc import Container
from typing import Annotated

from fastapi import Query, Request
from fastapi.routing import APIRoute

from hypergrid.core.errors import InvalidQuery, NotFound
from hypergrid.topology.wkt import Region, box

Limit = Annotated[int | None, Query(ge=1, le=1_000_000, description="how many at most, the newest; all where absent")]
Stations = Annotated[list[str] | None, Query(description="ids of stations, with commas between; all where absent")]
Box = Annotated[str | None, Query(description="west,south,east,north [degree]: the stations within; all where absent")]
StandardNames = Annotated[list[str] | None, Query(description="CF standard names of variables, with commas between")]


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
    known = [parameter.alias for parameter in route.dependant.query_params]
    for name in request.query_params:
        if name not in known:
            raise InvalidQuery(str(NotFound.among(kind="parameter", given=name[:100], existing=known)))


def names_in(given: list[str] | None, existing: Container[str]) -> tuple[str, ...]:
    """Split comma-separated names; an existing name may itself contain a comma."""
    names = [name for text in given or [] for name in ([text] if text in existing else text.split(","))]
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
