"""What holds for every request before anything looks at it: an id, whence it came, how long and how large it may be."""

import asyncio
import ipaddress
import re
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final
from uuid import uuid4

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from queries.web.auth.access import Rules
from queries.web.auth.scopes import PROBES, find_rule
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
"""Requests that are open at a time, of all callers, but for those of `PROBES`;"""
MOST_PROBES: Final = 20
"""and of each of these."""
RESERVED: Final = "reserved"
"""Key of a request's state: whether its connection is above the bound of those, and takes `PROBES` alone."""
BODY_S: Final = 20.0
"""How long the body of a request may take to come [s]."""
SEND_S: Final = 60.0
"""How long a client may leave a part of an answer lying [s]."""

_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")


@dataclass(frozen=True)
class AccessLogEntry:
    """A request that was answered, or whose client went away; without query string, headers and body."""

    request_id: str
    method: str
    path: str
    route: str
    """The row of the table of scopes that it fits; empty: none."""
    status: int
    """0: it was never answered."""
    seconds: float
    bytes: int
    """Of the answer's body."""
    caller: str
    """Id of a key, "local" or "anonymous"."""
    client: str
    """Address."""


class RequestLimitsMiddleware:
    """Gives each request an id, and tells of it when it is over.

    Parameters
    ----------
    app
        What answers.
    rules
        Path prefix and trusted proxies.
    tell
        Called with each request that is over; must be quick, and raise nothing.
    folders
        Folders of the server, which no answer tells.
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
        # The longest first: what lies in a folder within another is named by its path below the inner one.
        known = {str(path) for folder in folders for path in (folder, folder.absolute(), folder.resolve())}
        self._folders = tuple(sorted(known - {"/", "."}, key=len, reverse=True))
        self._open: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started_s = time.perf_counter()
        scope = self._apply_prefix(scope)
        state = scope["state"]
        given = Headers(scope=scope).get("x-request-id", "")
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
            await self._app(scope, _limit_receive(scope, receive, self._body_s, lambda: status != 0), sending)
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
        """Return the request with the proxy's prefix before its path, whether the proxy left it there or not."""
        root, path = self._rules.root_path, scope["path"]
        if root and not path.startswith(f"{root}/"):
            path = root + path
        client, scheme = client_address(scope, self._rules.trusted_proxies)
        state = {**scope.get("state", {}), "client": client, "scheme": scheme}
        return {**scope, "path": path, "root_path": root, "scheme": scheme, "state": state}


def client_address(scope: Scope, trusted: Sequence[str]) -> tuple[str, str]:
    """Return the address of who asks, and "http" or "https" as they wrote it.

    A proxy is believed only where its address is trusted; of several the last that is not trusted is who asks. What
    stands before an address that cannot be read may be anybody's words, and so may all but the last of several headers.
    """
    peer, scheme = (scope.get("client") or ("unknown", 0))[0], str(scope["scheme"])
    address = _parse_address(peer) or peer
    if address not in trusted:
        return address_of(peer), scheme
    headers = Headers(scope=scope)
    forwarded_scheme = "".join(headers.getlist("x-forwarded-proto")[-1:]).strip().lower()
    for hop in reversed(",".join(headers.getlist("x-forwarded-for")).split(",")):
        before = _parse_address(hop.strip())
        if before is None or address not in trusted:
            break
        address = before
    return _network(address), forwarded_scheme if forwarded_scheme in ("http", "https") else scheme


def address_of(peer: str) -> str:
    """Return what one who asks is known by: the address, of IPv6 its network."""
    return _network(_parse_address(peer) or peer)


def _parse_address(text: str) -> str | None:
    """Return an address, of IPv4 within IPv6 (as a socket for both tells it) that of IPv4; None: it is none."""
    try:
        ip = ipaddress.ip_address(text)
    except ValueError:
        return None
    return str(getattr(ip, "ipv4_mapped", None) or ip)


def _network(address: str) -> str:
    """Return an address, of IPv6 its network of 64 bits: who has one of these has all."""
    if ":" not in address or _parse_address(address) is None:
        return address
    return str(ipaddress.ip_network((address.partition("%")[0], 64), strict=False))


def _limit_receive(scope: Scope, receive: Receive, body_s: float, has_answer: Callable[[], bool]) -> Receive:
    """Return `receive` with bounds: the body of a request is neither larger nor slower than is allowed."""
    declared = Headers(scope=scope).get("content-length", "")
    ends = asyncio.get_running_loop().time() + body_s
    got, complete = 0, False

    async def receiving() -> Message:
        nonlocal got, complete
        if complete:
            return await receive()
        if declared.isdecimal() and len(declared) < 20 and int(declared) > MOST_BYTES:
            raise BodyTooLarge(_too_large_message())
        try:
            async with asyncio.timeout_at(ends):
                message = await receive()
        except TimeoutError:
            if has_answer():
                return {"type": "http.disconnect"}
            text = f"the body of a request must come within {body_s:g} s; send it at once"
            raise SlowRequest(text) from None
        if message["type"] == "http.request":
            got, complete = got + len(message.get("body", b"")), not message.get("more_body", False)
        if got > MOST_BYTES:
            raise BodyTooLarge(_too_large_message())
        return message

    return receiving


def _too_large_message() -> str:
    return f"a request may have {MOST_BYTES:,} bytes; this one has more; shorten it"
