"""`session`: browsers exchange an access key for a session cookie.

Pages cannot send a header with event streams, so they need a cookie.
"""

from typing import Annotated, Any

from fastapi import APIRouter, Cookie, Request, Response

from hypergrid.core.errors import InvalidQuery
from hypergrid.core.times import SECOND_NS, format_timestamp
from queries.web.auth.access import COOKIE, Access, Caller
from queries.web.responses.bodies import read_document
from queries.web.schemas import body_of


def router(access: Access, *, takes_imports: bool = False) -> APIRouter:
    """Create the routes of this module; `takes_imports` tells pages whether to offer imports."""
    routes = APIRouter(tags=["access"])

    @routes.get("/session")
    def who(request: Request) -> dict[str, Any]:
        """Say who asks, and what they may: a scope, or null."""
        return _caller_body(request.state.caller, access) | {"imports": takes_imports}

    @routes.post("/session", openapi_extra=body_of("Login"))
    async def log_in(request: Request, response: Response) -> dict[str, Any]:
        """Begin a session: the cookie does what the key does, until it ends or `DELETE session`."""
        document = await read_document(request)
        key = document.get("key")
        if not isinstance(key, str) or set(document) != {"key"}:
            raise InvalidQuery("a login is a JSON object with 'key', an access key, and nothing else")
        caller, value, ends_ns = access.log_in(key)
        response.set_cookie(
            COOKIE, value, max_age=(ends_ns - access.clock()) // SECOND_NS, path=_path(request), httponly=True,
            secure=request.state.scheme == "https", samesite="strict",
        )  # fmt: skip
        return _caller_body(caller, access) | {
            "imports": takes_imports,
            "ends": format_timestamp(ends_ns // SECOND_NS * SECOND_NS),
        }

    @routes.delete("/session", status_code=204)
    def log_out(
        request: Request, response: Response, hypergrid_session: Annotated[str | None, Cookie()] = None
    ) -> None:
        """End a session."""
        if hypergrid_session is not None:
            access.log_out(hypergrid_session)
        response.delete_cookie(
            COOKIE, path=_path(request), httponly=True, secure=request.state.scheme == "https", samesite="strict"
        )

    return routes


def _path(request: Request) -> str:
    return request.scope.get("root_path", "") or "/"


def _caller_body(caller: Caller, access: Access) -> dict[str, Any]:
    return {"name": caller.name, "scope": caller.scope, "by": caller.credential, "access_control": access.is_on}
