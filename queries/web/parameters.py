"""Parameters that nobody knows are refused: passed over, a mistyped one would change what is asked for."""

from fastapi import Request
from fastapi.routing import APIRoute

from hypergrid.errors import InvalidQuery, NotFound


def known_alone(request: Request) -> None:
    """Refuse a request with a parameter that its route does not have. A dependency of routes.

    Raises
    ------
    InvalidQuery
        The message names it, and the one that may have been meant.
    """
    route = request.scope["route"]
    assert isinstance(route, APIRoute)
    known = [one.alias for one in route.dependant.query_params]
    for name in request.query_params:
        if name not in known:
            raise InvalidQuery(str(NotFound.among(kind="parameter", given=name[:100], existing=known)))
