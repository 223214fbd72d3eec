"""Security headers of every answer, and the host names that the server answers to."""

from collections.abc import Iterable
from typing import Any, Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from queries.web.middleware.authentication import route_path
from queries.web.responses.problems import response_of

LOOPBACK_NAMES: Final = ("127.0.0.1", "localhost", "[::1]")

HEADERS: Final = {
    # Tested with Chromium: BokehJS without custom code needs no eval; its figures use style elements and data icons.
    "Content-Security-Policy": "default-src 'self'; script-src 'self'; style-src 'self' 'unsafe-inline'; "
    "img-src 'self' data: blob:; object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}


class SecurityHeadersMiddleware:
    """Adds the security headers, and rejects unknown host names.

    Without access keys, loopback and this check are the access control.
    """

    def __init__(self, app: ASGIApp, names: Iterable[str] = LOOPBACK_NAMES) -> None:
        self._app = app
        self._names = frozenset(names)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault("Cache-Control", "no-store" if route_path(scope).startswith("/api/") else "no-cache")
            await send(message)

        headers = Headers(scope=scope)
        problem: dict[str, Any] | None = None
        # A page of another site can point its own host name at loopback (DNS rebinding) and become the same origin, but
        # it cannot hide that name in the Host header.
        if _host(headers.get("host", "")) not in self._names:
            problem = {
                "type": "urn:hypergrid:problem:unknown-host",
                "title": "The server does not answer to this name",
                "status": 421,
                "detail": f"it answers to {', '.join(sorted(self._names))}; use one of them in the address",
            }
        elif "content-length" in headers and "transfer-encoding" in headers:
            # A proxy could use the other length and take the rest of the body for another client's request (smuggling).
            problem = {
                "type": "urn:hypergrid:problem:two-lengths",
                "title": "The request cannot be read",
                "status": 400,
                "detail": "it tells the length of its body in two ways; send Content-Length or Transfer-Encoding",
            }
        if problem is None:
            await self._app(scope, receive, send_with_headers)
        else:
            await response_of(problem)(scope, receive, send_with_headers)


def _host(header: str) -> str:
    """Return the host name of a Host header, without its port."""
    return header[: header.index("]") + 1] if header.startswith("[") and "]" in header else header.partition(":")[0]
