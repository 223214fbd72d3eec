"""The door: who asks, whether they may, and how often; what a route raises leaves it as a problem document."""

import logging
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect, cookie_parser
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from queries.jobs.admission import act_as
from queries.web.auth.access import (
    COOKIE,
    LOCAL,
    Access,
    Caller,
    Forbidden,
    TooManyRequests,
    Unauthorized,
    read_key,
)
from queries.web.auth.audit import Audit
from queries.web.auth.keys import BadKey, KeysDamaged
from queries.web.auth.scopes import FILES, PROBES, find_rule, is_allowed
from queries.web.responses.problems import MethodNotAllowed, NoSuchPage, problem_of, response_of

_LOG: Final = logging.getLogger(__name__)
_SAFE: Final = ("GET", "HEAD", "OPTIONS")
_PROXY_HEADERS: Final = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip")
"""Headers that proxies add."""


class AuthenticationMiddleware:
    """Lets requests through to the routes.

    Parameters
    ----------
    app
        The routes.
    access
        Who asks.
    audit
        Where changes are noted; None: nowhere.
    clock
        Returns seconds that never go back.
    """

    def __init__(
        self, app: ASGIApp, access: Access, audit: Audit | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._app, self._access, self._audit, self._clock = app, access, audit, clock
        self._rates = RateLimiter()
        self._open: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started = False

        async def sending(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                scope["state"]["status"] = message["status"]
                _keep_private(message, scope["state"].get("caller"))
            if scope["method"] != "HEAD" or message["type"] != "http.response.body":
                await send(message)
                return
            await send({"type": "http.response.body"})
            if message.get("more_body"):
                # Nobody reads on: a stream of events would have no end.
                raise ClientDisconnect

        try:
            caller = self._authorize(scope)
            with self._audit_change(scope), act_as(caller.asker), self._count_open(scope, caller):
                await self._app(_as_get(scope), receive, sending)
        except ClientDisconnect:
            pass
        except Exception as error:
            if started:
                # The server logs it, and closes the connection.
                error.add_note(f"while the answer to request {scope['state']['request_id']} was being sent")
                raise
            response = response_of(problem_of(error, posted=scope["method"] == "POST"))
            await response(scope, receive, sending)
            if isinstance(error, Forbidden):
                self._write_audit(scope)

    def _authorize(self, scope: Scope) -> Caller:
        """Return who asks, where they may."""
        headers, state, method = Headers(scope=scope), scope["state"], scope["method"]
        rule = state["found"] = find_rule(method, route_path(scope))
        requester = f"address {state['client']}"
        try:
            caller = self._access.identify_caller(
                key=read_key(headers.get("authorization"), headers.get("x-api-key")),
                session=cookie_parser(headers.get("cookie", "")).get(COOKIE),
            )
        except BadKey:
            self._check_rate(requester, self._access.rules.anonymous.requests_per_s)
            if rule.need != "open":
                raise
            caller = Caller("anonymous", "anonymous", None, self._access.rules.anonymous)
        except KeysDamaged:
            if rule.need != "open":
                raise
            caller = Caller("anonymous", "anonymous", None, self._access.rules.anonymous)
        if caller is LOCAL and any(name in headers for name in _PROXY_HEADERS):
            message = (
                "a proxy hands this request on, and there are no access keys: others than this machine could do "
                "everything; make one with 'hypergrid keys create'"
            )
            raise Forbidden(message)
        state["caller"] = caller
        state["asker"] = requester if caller.id == "anonymous" else caller.id
        if rule.template not in FILES:
            requester = f"probe {state['asker']}" if rule.template in PROBES else state["asker"]
            self._check_rate(requester, caller.allowed.requests_per_s)
        if not rule.methods:
            message = f"{method} {route_path(scope)}: there is nothing here; /openapi.json lists what there is"
            raise NoSuchPage(message)
        if rule.need is None:
            raise MethodNotAllowed(method, rule.methods)
        if not is_allowed(caller.scope, rule.need):
            if caller.credential == "nothing":
                message = (
                    f"this needs an access key of scope {rule.need!r}: send it as 'Authorization: Bearer KEY', or log "
                    "in; whoever runs the server makes one with 'hypergrid keys create'"
                )
                raise Unauthorized(message)
            message = f"this needs scope {rule.need!r}; the key {caller.name!r} has {caller.scope!r}"
            raise Forbidden(message)
        if method not in _SAFE:
            _check_origin(headers, caller, self._access.rules.origins)
        return caller

    def _check_rate(self, label: str, per_s: float | None) -> None:
        wait_s = 0.0 if per_s is None else self._rates.take(label, per_s, self._clock())
        if wait_s:
            message = f"{per_s:g} requests a second are allowed; ask again in {wait_s:.1f} s"
            raise TooManyRequests(message, wait_s)

    @contextmanager
    def _count_open(self, scope: Scope, caller: Caller) -> Iterator[None]:
        requester, max_streams = scope["state"]["asker"], caller.allowed.streams
        if scope["state"]["found"].template in (*FILES, *PROBES):
            yield
            return
        if max_streams is not None and self._open[requester] >= max_streams:
            message = (
                f"{max_streams} requests may be open at a time; end one, such as a stream of events, and ask again"
            )
            raise TooManyRequests(message, 1.0)
        self._open[requester] += 1
        try:
            yield
        finally:
            self._open[requester] -= 1
            if not self._open[requester]:
                del self._open[requester]

    @contextmanager
    def _audit_change(self, scope: Scope) -> Iterator[None]:
        """Note a change, however it ends."""
        try:
            yield
        finally:
            self._write_audit(scope)

    def _write_audit(self, scope: Scope) -> None:
        """Note a change that somebody known made, or wanted to make and may not.

        One that a full disk keeps from being noted was made, and is logged.
        """
        state, audit = scope["state"], self._audit
        caller: Caller | None = state.get("caller")
        is_change = state["found"].need in ("write", "admin") and scope["method"] not in _SAFE
        if audit is None or caller is None or not is_change:
            return
        try:
            audit.note(
                now_ns=self._access.clock(), label=f"{caller.name} ({caller.id})",
                what=f"{scope['method']} {route_path(scope)}", about=state.get("about", ""),
                status=state.get("status", 0), client=state["client"], request=state["request_id"],
            )  # fmt: skip
        except OSError as error:
            _LOG.error("a change could not be noted in %s: %s", audit.path, error)


def route_path(scope: Scope) -> str:
    """Return the path without the prefix of a proxy."""
    return str(scope["path"])[len(scope.get("root_path", "")) :]


def _as_get(scope: Scope) -> Scope:
    """Return the request; HEAD as the GET that it asks about (RFC 9110, 9.3.2), for no route knows it.

    It tells of the whole: a range is for GET alone (14.2).
    """
    if scope["method"] != "HEAD":
        return scope
    return {**scope, "method": "GET", "headers": [header for header in scope["headers"] if header[0] != b"range"]}


def _check_origin(headers: Headers, caller: Caller, origins: tuple[str, ...]) -> None:
    """Refuse what a page of another site had a browser send.

    Browsers say where a request comes from; a program that is none says nothing, and then the cookie of a session is
    refused: it was made for browsers.
    """
    origin, site = headers.get("origin"), headers.get("sec-fetch-site")
    if origin is not None:
        is_own = origin.partition("://")[2] == headers.get("host", "") != ""
        is_fine = is_own or (caller.credential == "key" and origin in origins)
    elif site is not None:
        is_fine = site in ("same-origin", "none")
    else:
        is_fine = caller.credential != "session"
    if not is_fine:
        message = (
            "a change must come from the server's own page, or from a program with an access key; behind a proxy "
            "the header Host must be handed on as it came"
        )
        raise Forbidden(message)


def _keep_private(message: Message, caller: Caller | None) -> None:
    """Have no shared cache keep what was answered to one caller."""
    if caller is None or caller.credential == "nothing":
        return
    headers = MutableHeaders(scope=message)
    headers.add_vary_header("Authorization, Cookie, X-API-Key")
    if "public" in headers.get("cache-control", ""):
        headers["Cache-Control"] = headers["cache-control"].replace("public", "private")


MAX_ASKERS: Final = 10_000
"""Askers that are remembered; the longest silent one is forgotten first."""


class RateLimiter:
    """Token buckets by asker; time is an argument. Each holds two seconds' worth, and at least five."""

    def __init__(self, maximum: int = MAX_ASKERS) -> None:
        self._max_askers = maximum
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, asker: str, per_s: float, now_s: float) -> float:
        """Take a token; return 0, or where there is none how long to wait for one [s].

        Parameters
        ----------
        asker
            Whose bucket.
        per_s
            Tokens that it gets a second.
        now_s
            The time [s], of a clock that never goes back.
        """
        full = max(2 * per_s, 5.0)
        left, since_s = self._left.pop(asker, (full, now_s))
        left = min(full, left + (now_s - since_s) * per_s)
        wait_s = 0.0 if left >= 1 else (1 - left) / per_s
        self._left[asker] = (left if wait_s else left - 1, now_s)
        while len(self._left) > self._max_askers:
            self._left.popitem(last=False)
        return wait_s
