"""Authentication, authorisation and rate limiting; errors of routes become problem documents."""

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
    Audit,
    Caller,
    Forbidden,
    TooManyRequests,
    Unauthorized,
    read_key,
)
from queries.web.auth.keys import BadKey, KeysDamaged
from queries.web.auth.scopes import FILES, PROBES, find_rule, is_allowed
from queries.web.responses.problems import POSTED, MethodNotAllowed, NoSuchPage, problem_of, response_of

_LOG: Final = logging.getLogger(__name__)
_SAFE: Final = ("GET", "HEAD", "OPTIONS")
_PROXY_HEADERS: Final = ("forwarded", "x-forwarded-for", "x-forwarded-host", "x-forwarded-proto", "x-real-ip")
"""Headers that proxies add."""


class AuthenticationMiddleware:
    """Authenticates and authorises requests before they reach the routes.

    Parameters
    ----------
    app
        The routes.
    access
        Identifies callers.
    audit
        Log of changes; None: no log.
    clock
        Monotonic clock [s].
    """

    def __init__(
        self, app: ASGIApp, access: Access, audit: Audit | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._app, self._access, self._audit, self._clock = app, access, audit, clock
        self._rates = RateLimiter()
        self._open: Counter[str] = Counter()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
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
                # The body is not sent for HEAD: end it here, as an event stream would never finish.
                raise ClientDisconnect

        try:
            caller = self._authorize(scope)
            try:
                with act_as(caller.asker), self._count_open(scope, caller):
                    await self._app(_as_get(scope), receive, sending)
            finally:
                self._write_audit(scope)
        except ClientDisconnect:
            pass
        except Exception as error:
            if started:
                # The server logs it and closes the connection.
                error.add_note(f"while the answer to request {scope['state']['request_id']} was being sent")
                raise
            response = response_of(problem_of(error, posted=scope["method"] in POSTED))
            await response(scope, receive, sending)
            if isinstance(error, Forbidden):
                self._write_audit(scope)

    def _authorize(self, scope: Scope) -> Caller:
        headers, state, method = Headers(scope=scope), scope["state"], scope["method"]
        rule = state["found"] = find_rule(method, route_path(scope))
        requester = f"address {state['client']}"
        try:
            caller = self._access.identify_caller(
                key=read_key(headers.get("authorization"), headers.get("x-api-key")),
                session=cookie_parser(headers.get("cookie", "")).get(COOKIE),
            )
        except (BadKey, KeysDamaged) as error:
            if isinstance(error, BadKey):
                # Guessing keys is rate-limited like anonymous requests.
                self._check_rate(requester, self._access.rules.anonymous.requests_per_s)
            if rule.need != "open":
                raise
            # Open routes are answered even with a bad key, for example to log in again.
            caller = Caller("anonymous", "anonymous", None, self._access.rules.anonymous)
        # A forwarded request has the proxy's loopback address, but may be from any machine.
        if caller is LOCAL and any(name in headers for name in _PROXY_HEADERS):
            raise Forbidden(
                "a proxy hands this request on, and there are no access keys: others than this machine could do "
                "everything; make one with 'hypergrid keys create'"
            )
        state["caller"] = caller
        state["asker"] = requester if caller.id == "anonymous" else caller.id
        if rule.template not in FILES:
            requester = f"probe {state['asker']}" if rule.template in PROBES else state["asker"]
            self._check_rate(requester, caller.allowed.requests_per_s)
        if not rule.methods:
            raise NoSuchPage(f"{method} {route_path(scope)}: there is nothing here; /openapi.json lists what there is")
        if rule.need is None:
            raise MethodNotAllowed(method, rule.methods)
        if not is_allowed(caller.scope, rule.need):
            if caller.credential == "nothing":
                raise Unauthorized(
                    f"this needs an access key of scope {rule.need!r}: send it as 'Authorization: Bearer KEY', or log "
                    "in; whoever runs the server makes one with 'hypergrid keys create'"
                )
            raise Forbidden(f"this needs scope {rule.need!r}; the key {caller.name!r} has {caller.scope!r}")
        if method not in _SAFE:
            _check_origin(headers, caller, self._access.rules.origins)
        return caller

    def _check_rate(self, label: str, per_s: float | None) -> None:
        wait_s = 0.0 if per_s is None else self._rates.take(label, per_s, self._clock())
        if wait_s:
            raise TooManyRequests(f"{per_s:g} requests a second are allowed; ask again in {wait_s:.1f} s", wait_s)

    @contextmanager
    def _count_open(self, scope: Scope, caller: Caller) -> Iterator[None]:
        requester, max_streams = scope["state"]["asker"], caller.allowed.streams
        if scope["state"]["found"].template in (*FILES, *PROBES):
            yield
            return
        if max_streams is not None and self._open[requester] >= max_streams:
            raise TooManyRequests(
                f"{max_streams} requests may be open at a time; end one, such as a stream of events, and ask again", 1.0
            )
        self._open[requester] += 1
        try:
            yield
        finally:
            self._open[requester] -= 1
            # Entries are removed, so that the counter does not grow with the number of callers seen.
            if not self._open[requester]:
                del self._open[requester]

    def _write_audit(self, scope: Scope) -> None:
        """Record a change by an identified caller, including refused ones."""
        state, audit = scope["state"], self._audit
        caller: Caller | None = state.get("caller")
        is_change = state["found"].need in ("operate", "write", "admin") and scope["method"] not in _SAFE
        if audit is None or caller is None or not is_change:
            return
        try:
            audit.note(
                now_ns=self._access.clock(), label=f"{caller.name} ({caller.id})",
                what=f"{scope['method']} {route_path(scope)}", about=state.get("about", ""),
                status=state.get("status", 0), client=state["client"], request=state["request_id"],
            )  # fmt: skip
        except OSError as error:
            # The change itself has been made, so the answer must not report a failure.
            _LOG.error("a change could not be noted in %s: %s", audit.path, error)


def route_path(scope: Scope) -> str:
    """Return the path without the prefix of a proxy."""
    return str(scope["path"])[len(scope.get("root_path", "")) :]


def _as_get(scope: Scope) -> Scope:
    """Turn HEAD into GET (RFC 9110, 9.3.2), without Range, which applies only to GET (14.2)."""
    # Routes do not implement HEAD.
    if scope["method"] != "HEAD":
        return scope
    return {**scope, "method": "GET", "headers": [header for header in scope["headers"] if header[0] != b"range"]}


def _check_origin(headers: Headers, caller: Caller, origins: tuple[str, ...]) -> None:
    """Reject cross-site requests made by a browser."""
    origin, site = headers.get("origin"), headers.get("sec-fetch-site")
    if origin is not None:
        is_own = origin.partition("://")[2] == headers.get("host", "") != ""
        is_fine = is_own or (caller.credential == "key" and origin in origins)
    elif site is not None:
        is_fine = site in ("same-origin", "none")
    else:
        # Browsers send their origin, so this is another program; session cookies are meant for browsers only.
        is_fine = caller.credential != "session"
    if not is_fine:
        raise Forbidden(
            "a change must come from the server's own page, or from a program with an access key; behind a proxy "
            "the header Host must be handed on as it came"
        )


def _keep_private(message: Message, caller: Caller | None) -> None:
    """Keep shared caches from storing an answer to an identified caller."""
    if caller is None or caller.credential == "nothing":
        return
    headers = MutableHeaders(scope=message)
    headers.add_vary_header("Authorization, Cookie, X-API-Key")
    if "public" in headers.get("cache-control", ""):
        headers["Cache-Control"] = headers["cache-control"].replace("public", "private")


MAX_ASKERS: Final = 10_000
"""Callers remembered; the one silent for longest is forgotten first."""


class RateLimiter:
    """Token buckets by caller; each holds two seconds' worth, at least five tokens."""

    def __init__(self, maximum: int = MAX_ASKERS) -> None:
        self._max_askers = maximum
        self._left: OrderedDict[str, tuple[float, float]] = OrderedDict()

    def take(self, asker: str, per_s: float, now_s: float) -> float:
        """Take a token; return 0, or the wait for the next one [s].

        Parameters
        ----------
        asker
            The caller.
        per_s
            Tokens per second.
        now_s
            Current time of a monotonic clock [s].
        """
        full = max(2 * per_s, 5.0)
        left, since_s = self._left.pop(asker, (full, now_s))
        left = min(full, left + (now_s - since_s) * per_s)
        wait_s = 0.0 if left >= 1 else (1 - left) / per_s
        self._left[asker] = (left if wait_s else left - 1, now_s)
        # pop() and reinsertion above keep the order by last use.
        while len(self._left) > self._max_askers:
            self._left.popitem(last=False)
        return wait_s
