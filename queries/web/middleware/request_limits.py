"""Limits and metadata of every request: id, client address, body size and timeouts."""

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


def _too_large_message() -> str:
    return f"a request may have {MOST_BYTES:,} bytes; this one has more; shorten it"
