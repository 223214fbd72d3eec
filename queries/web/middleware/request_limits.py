"""What every request passes first: its id, limits, host name and security headers; the log of finished requests."""

import asyncio
import ipaddress
import json
import logging
import re
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from hypergrid.cli.console import escape_invisible
from hypergrid.core.times import format_instant
from queries.web.auth.access import Rules
from queries.web.auth.scopes import PROBES, UPLOADS, find_rule
from queries.web.middleware.authentication import route_path
from queries.web.responses.bodies import MOST_BYTES
from queries.web.responses.problems import (
    FOLDERS,
    REQUEST_ID,
    BodyTooLarge,
    Busy,
    SlowRequest,
    problem_of,
    response_of,
)

MOST_OPEN: Final = 400
"""Limit of open requests of all callers, except for `PROBES`."""
MOST_PROBES: Final = 20
"""Limit of open requests for each of `PROBES`."""
RESERVED: Final = "reserved"
"""Key in a request's state: whether its connection exceeds the limit, so that only `PROBES` are served."""
BODY_S: Final = 20.0
"""Timeout for receiving a request body [s]."""
SEND_S: Final = 60.0
"""Timeout for a client to accept a part of an answer [s]."""

_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")


@dataclass(frozen=True)
class AccessLogEntry:
    """A finished or disconnected request; without query string, headers and body."""

    request_id: str
    method: str
    path: str
    route: str
    """Matching row of the scope table; empty if none."""
    status: int
    """0: it was never answered."""
    seconds: float
    bytes: int
    """Size of the answer's body."""
    caller: str
    """Id of a key, "local" or "anonymous"."""
    client: str
    """Client address."""


class RequestLimitsMiddleware:
    """Assigns request ids, enforces the limits, and reports finished requests.

    Parameters
    ----------
    app
        The inner application.
    rules
        Path prefix and trusted proxies.
    notify
        Called with each finished request; must be quick, and not raise.
    folders
        Folders of the server, which answers must not reveal.
    most_open, body_s
        As `MOST_OPEN` and `BODY_S`.
    """

    def __init__(
        self,
        app: ASGIApp,
        rules: Rules,
        notify: Sequence[Callable[[AccessLogEntry], None]] = (),
        *,
        folders: Sequence[Path] = (),
        most_open: int = MOST_OPEN,
        body_s: float = BODY_S,
    ) -> None:
        self._app, self._rules, self._listeners = app, rules, notify
        self._most_open, self._body_s = most_open, body_s
        # Longest first, so that paths in a nested folder are shortened relative to the inner one.
        known = {str(path) for folder in folders for path in (folder, folder.absolute(), folder.resolve())}
        self._folders = tuple(sorted(known - {"/", "."}, key=len, reverse=True))
        self._open: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started_s = time.perf_counter()
        scope = self._apply_prefix(scope)
        state = scope["state"]
        given = Headers(scope=scope).get("x-request-id", "")
        # Ids are logged, so only harmless characters are accepted from clients.
        request_id = state["request_id"] = given if _ID.fullmatch(given) else uuid4().hex
        token, folders = REQUEST_ID.set(request_id), FOLDERS.set(self._folders)
        status = sent = 0

        async def sending(message: Message) -> None:
            nonlocal status, sent
            if message["type"] == "http.response.start":
                status = message["status"]
                headers = MutableHeaders(scope=message)
                headers["X-Request-ID"] = request_id
                if state.get(RESERVED):
                    headers["Connection"] = "close"
            sent += len(message.get("body", b""))
            # A client that does not read must not occupy the connection.
            async with asyncio.timeout(SEND_S):
                await send(message)

        path = route_path(scope)
        route = find_rule(scope["method"], path).template
        probe = route if route in PROBES else ""
        max_open = MOST_PROBES if probe else 0 if state.get(RESERVED) else self._most_open
        self._open[probe] += 1
        try:
            if self._open[probe] > max_open:
                message = "as many requests or connections are open as may be; ask again soon"
                await response_of(problem_of(Busy(message), posted=False))(scope, receive, sending)
                return
            limited = (
                _limit_pauses(receive, self._body_s)
                if route in UPLOADS
                else _limit_receive(scope, receive, self._body_s, lambda: status != 0)
            )
            await self._app(scope, limited, sending)
        finally:
            self._open[probe] -= 1
            REQUEST_ID.reset(token)
            FOLDERS.reset(folders)
            caller = state.get("caller")
            served = AccessLogEntry(
                request_id, scope["method"], path, route, status,
                time.perf_counter() - started_s, sent, caller.id if caller else "", state["client"],
            )  # fmt: skip
            for listener in self._listeners:
                listener(served)

    def _apply_prefix(self, scope: Scope) -> Scope:
        """Prepend the proxy's prefix to the path if missing, and resolve the client."""
        root, path = self._rules.root_path, scope["path"]
        # Proxies may remove the prefix or leave it.
        if root and not path.startswith(f"{root}/"):
            path = root + path
        client, scheme = client_address(scope, self._rules.trusted_proxies)
        state = {**scope.get("state", {}), "client": client, "scheme": scheme}
        return {**scope, "path": path, "root_path": root, "scheme": scheme, "state": state}


def client_address(scope: Scope, trusted: Sequence[str]) -> tuple[str, str]:
    """Resolve the client's address, and the scheme ("http" or "https") it used.

    A proxy is believed only if its address is trusted; in a chain, the client is the last untrusted address. Addresses
    before an unparsable one, and all but the last of repeated headers, may be forged.
    """
    peer, scheme = (scope.get("client") or ("unknown", 0))[0], str(scope["scheme"])
    address = _parse_address(peer) or peer
    if address not in trusted:
        return address_of(peer), scheme
    headers = Headers(scope=scope)
    forwarded_scheme = "".join(headers.getlist("x-forwarded-proto")[-1:]).strip().lower()
    # Proxies append: the last entries are the trustworthy ones.
    for hop in reversed(",".join(headers.getlist("x-forwarded-for")).split(",")):
        before = _parse_address(hop.strip())
        if before is None or address not in trusted:
            break
        address = before
    return _network(address), forwarded_scheme if forwarded_scheme in ("http", "https") else scheme


def address_of(peer: str) -> str:
    """Normalise a peer's address; IPv6 addresses to their network."""
    return _network(_parse_address(peer) or peer)


def _parse_address(text: str) -> str | None:
    """Parse an address, unwrapping IPv4 mapped into IPv6; None if invalid."""
    # Dual-stack sockets report IPv4 peers as mapped addresses.
    try:
        ip = ipaddress.ip_address(text)
    except ValueError:
        return None
    return str(getattr(ip, "ipv4_mapped", None) or ip)


def _network(address: str) -> str:
    """Return an address, or the 64-bit network of an IPv6 address."""
    # The owner of one address in such a network has all of them.
    if ":" not in address or _parse_address(address) is None:
        return address
    return str(ipaddress.ip_network((address.partition("%")[0], 64), strict=False))


def _limit_receive(scope: Scope, receive: Receive, body_s: float, has_answer: Callable[[], bool]) -> Receive:
    """Wrap `receive` with limits on the size and the duration of the request body."""
    declared = Headers(scope=scope).get("content-length", "")
    ends = asyncio.get_running_loop().time() + body_s
    got, complete = 0, False

    async def receiving() -> Message:
        nonlocal got, complete
        if complete:
            return await receive()
        # Refuse before reading; the length bound keeps int() cheap.
        if declared.isdecimal() and len(declared) < 20 and int(declared) > MOST_BYTES:
            raise BodyTooLarge(_too_large_message())
        try:
            async with asyncio.timeout_at(ends):
                message = await receive()
        except TimeoutError:
            if has_answer():
                # After the answer has begun, the body is not needed any more.
                return {"type": "http.disconnect"}
            text = f"the body of a request must come within {body_s:g} s; send it at once"
            raise SlowRequest(text) from None
        if message["type"] == "http.request":
            got, complete = got + len(message.get("body", b"")), not message.get("more_body", False)
        if got > MOST_BYTES:
            raise BodyTooLarge(_too_large_message())
        return message

    return receiving


def _limit_pauses(receive: Receive, pause_s: float) -> Receive:
    """Wrap `receive` with a limit on the time between two parts of a body, whose size its route limits."""
    complete = False

    async def receiving() -> Message:
        nonlocal complete
        if complete:
            return await receive()
        try:
            async with asyncio.timeout(pause_s):
                message = await receive()
        except TimeoutError:
            raise SlowRequest(f"nothing of the file came for {pause_s:g} s; send it again") from None
        complete = message["type"] != "http.request" or not message.get("more_body", False)
        return message

    return receiving


def _too_large_message() -> str:
    return f"a request may have {MOST_BYTES:,} bytes; this one has more; shorten it"


EMBEDDED: Final = b"embed=1"
"""Query string of the page without its frame, in which it changes nothing."""
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


def framed_headers(origins: Sequence[str]) -> dict[str, str]:
    """Make the security headers of a page that other pages may show in a frame: the server's own, and some origins."""
    ancestors = " ".join(("frame-ancestors 'self'", *origins))
    policy = HEADERS["Content-Security-Policy"].replace("frame-ancestors 'none'", ancestors)
    # This older header cannot name origins, and browsers that know both ignore it.
    return {name: text for name, text in HEADERS.items() if name != "X-Frame-Options"} | {
        "Content-Security-Policy": policy
    }


class SecurityHeadersMiddleware:
    """Adds the security headers, and rejects unknown host names.

    Without access keys, loopback and this check are the access control. Only the page without its frame (`/?embed=1`)
    may be shown within others: the server's own, and those of `embed_origins`.
    """

    def __init__(self, app: ASGIApp, names: Iterable[str], embed_origins: Sequence[str] = ()) -> None:
        self._app = app
        self._names = frozenset(names)
        self._framed = framed_headers(embed_origins)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                is_embedded = route_path(scope) == "/" and scope.get("query_string") == EMBEDDED
                for name, value in (self._framed if is_embedded else HEADERS).items():
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
    return header[: header.index("]") + 1] if header.startswith("[") and "]" in header else header.partition(":")[0]


class _Utc(logging.Formatter):
    """Prefixes records with UTC time and level, and escapes control characters for terminals."""

    def format(self, record: logging.LogRecord) -> str:
        return escape_invisible(super().format(record))

    def formatTime(self, record: logging.LogRecord, datefmt: str | None = None) -> str:
        return datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")


def log_to_stderr() -> None:
    """Log records of level WARNING and above to standard error, with time (UTC) and level."""
    logging.basicConfig(level=logging.WARNING, handlers=[stderr_handler()])


def stderr_handler() -> logging.Handler:
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(_Utc("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    return handler


class RequestLog:
    """Writes a line per finished request: the fields of `AccessLogEntry`, so no secrets.

    Parameters
    ----------
    target
        A file, appended to, or "-": standard error.
    clock
        Returns the time [ns since 1970 UTC].
    """

    def __init__(self, target: str, clock: Callable[[], int] = time.time_ns) -> None:
        self._path, self._clock = None if target == "-" else Path(target), clock
        self._lock = threading.Lock()

    def write_entry(self, entry: AccessLogEntry) -> None:
        """Write a line; errors such as a full disk are ignored."""
        fields = {**asdict(entry), "seconds": round(entry.seconds, 6)}
        # Text chosen by the client is escaped, so that each entry is one line.
        line = json.dumps({"time": format_instant(self._clock()), **fields}, ensure_ascii=True)
        with self._lock:
            try:
                if self._path is None:
                    print(line, file=sys.stderr, flush=True)
                else:
                    # Reopened each time, so that the file can be rotated.
                    with self._path.open("a", encoding="ascii") as file:
                        file.write(f"{line}\n")
            except OSError:
                pass
