"""Who asks: keys, sessions of browsers, and those without either."""

import base64
import hashlib
import hmac
import secrets
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, Literal

from hypergrid.core.errors import HyperGridError
from hypergrid.core.times import SECOND_NS
from queries.jobs.admission import Asker, Limits
from queries.web.auth.keys import BadKey, Key, KeyStore, Scope

COOKIE: Final = "hypergrid_session"
MOST_SESSIONS: Final = 1000
"""Sessions that are remembered; the oldest ends first,"""
MOST_OF_A_KEY: Final = 100
"""and of one key: nobody ends the sessions of others by logging in again and again."""


class Unauthorized(HyperGridError, PermissionError):
    """Nobody is known by what the request shows, and it needs somebody."""


class Forbidden(HyperGridError, PermissionError):
    """Somebody is known, but may not do this."""


class TooManyRequests(HyperGridError, RuntimeError):
    """Somebody asks more often than is allowed."""

    def __init__(self, message: str, retry_s: float) -> None:
        super().__init__(message)
        self.retry_s = retry_s
        """When one more is allowed [s]."""


@dataclass(frozen=True)
class CallerLimits:
    """What a caller may have; None: no limit."""

    requests_per_s: float | None = None
    streams: int | None = None
    """Requests that are open at a time."""
    queries: Limits = Limits()

    def override(self, given: Mapping[str, float]) -> "CallerLimits":
        """Return these limits with those that a key has of its own."""
        whole = {name: int(given[name]) for name in ("cells", "bytes", "queries") if name in given}
        limits = Limits(**{**vars(self.queries), **whole, "seconds": given.get("seconds", self.queries.seconds)})
        streams = int(given["streams"]) if "streams" in given else self.streams
        return CallerLimits(given.get("requests_per_s", self.requests_per_s), streams, limits)


@dataclass(frozen=True)
class Rules:
    """How a server treats those who ask."""

    keyed: CallerLimits = CallerLimits(100.0, 100, Limits(queries=8))
    """Those with a key, where the key says nothing else."""
    anonymous: CallerLimits = CallerLimits(10.0, 10, Limits(cells=1_000_000, bytes=1 << 28, seconds=10.0, queries=2))
    """Those without, by address."""
    anonymous_read: bool = False
    """Whether those without a key may read."""
    session_s: int = 12 * 3600
    """How long a browser stays logged in [s]."""
    names: tuple[str, ...] = ("127.0.0.1", "localhost", "[::1]")
    """Host names that are answered."""
    origins: tuple[str, ...] = ()
    """Origins of other sites whose pages may ask, with a key."""
    trusted_proxies: tuple[str, ...] = ()
    """Addresses whose X-Forwarded-For and X-Forwarded-Proto are believed."""
    root_path: str = ""
    """Path that a proxy puts before all others, "/stations"."""


@dataclass(frozen=True)
class Caller:
    """Somebody who asks."""

    id: str
    """Of the key; "local" where there is no access control, "anonymous" without a key."""
    name: str
    scope: Scope | None
    """None: may do nothing that is not open to all."""
    allowed: CallerLimits = CallerLimits()
    credential: Literal["nothing", "key", "session"] = "nothing"

    @property
    def asker(self) -> Asker:
        """On whose behalf the scheduler works."""
        return Asker(self.id, self.allowed.queries)


LOCAL: Final = Caller("local", "this machine", "admin")
"""Everybody, where access control is off: the server listens on loopback, and no key was ever made."""


@dataclass
class _Session:
    key_id: str
    ends_ns: int


@dataclass
class Access:
    """Says who asks.

    Access control is on as soon as a key was made, and stays on when all are revoked; always where it is `required`.
    """

    store: KeyStore | None
    """Keys; None: there are none, and never will be."""
    clock: Callable[[], int]
    """Returns the time [ns since 1970 UTC]."""
    rules: Rules = field(default_factory=Rules)
    required: bool = False
    """Whether a key is needed even if none was ever made: others than this machine can ask."""
    _sessions: "OrderedDict[bytes, _Session]" = field(default_factory=OrderedDict)

    @property
    def is_on(self) -> bool:
        """Whether keys are asked for.

        Raises
        ------
        KeysDamaged
            They are, and cannot be read.
        """
        return (self.store is not None and self.store.exist) or self.required

    def identify_caller(self, *, key: str | None, session: str | None) -> Caller:
        """Return who shows a key, or the cookie of a session, or neither.

        Raises
        ------
        BadKey
            The key opens nothing. A session that ended is as none.
        """
        if not self.is_on:
            return LOCAL
        if key is not None:
            return self._make_caller(self._check(key), "key")
        session_key = None if session is None else self._find_key(session)
        if session_key is not None:
            return self._make_caller(session_key, "session")
        return Caller("anonymous", "anonymous", "read" if self.rules.anonymous_read else None, self.rules.anonymous)

    def log_in(self, key: str) -> tuple[Caller, str, int]:
        """Begin a session for who shows a key; return who it is, the value of the cookie, and its end [ns].

        Raises
        ------
        BadKey
            The key opens nothing.
        """
        known = self._check(key)
        ends_ns = self.clock() + self.rules.session_s * SECOND_NS
        ends_ns = ends_ns if known.expires_ns is None else min(ends_ns, known.expires_ns)
        value = secrets.token_urlsafe(32)
        self._sessions[_digest(value)] = _Session(known.id, ends_ns)
        own = [digest for digest, session in list(self._sessions.items()) if session.key_id == known.id]
        for digest in own[:-MOST_OF_A_KEY]:
            self._sessions.pop(digest, None)
        while len(self._sessions) > MOST_SESSIONS:
            self._sessions.popitem(last=False)
        return self._make_caller(known, "session"), value, ends_ns

    def log_out(self, session: str) -> None:
        """End a session."""
        self._sessions.pop(_digest(session), None)

    def _check(self, key: str) -> Key:
        if self.store is None:
            message = "no access keys are known here; the server answers without"
            raise BadKey(message)
        return self.store.check(key, self.clock())

    def _make_caller(self, key: Key, by: Literal["key", "session"]) -> Caller:
        return Caller(key.id, key.name, key.scope, self.rules.keyed.override(key.limits), by)

    def _find_key(self, session: str) -> Key | None:
        digest, now_ns = _digest(session), self.clock()
        record = self._sessions.get(digest)
        key = None if record is None or self.store is None else self.store.get(record.key_id)
        if record is None or key is None or now_ns >= record.ends_ns or key.state(now_ns) != "valid":
            self._sessions.pop(digest, None)
            return None
        return key


def read_key(authorization: str | None, api_key: str | None) -> str | None:
    """Return the key that headers show; None where they show none.

    Raises
    ------
    BadKey
        The header Authorization has neither the scheme Bearer nor, for programs that know no other, Basic with the key
        as password; or the two headers differ.
    """
    bearer = None
    if authorization is not None:
        scheme, _, bearer = authorization.partition(" ")
        bearer = bearer.strip()
        if scheme.lower() == "basic":
            bearer = _password(bearer)
        elif scheme.lower() != "bearer":
            bearer = ""
        if not bearer:
            message = "the header Authorization needs 'Bearer' and an access key, or 'Basic' with the key as password"
            raise BadKey(message)
    if bearer is not None and api_key is not None and not hmac.compare_digest(bearer.encode(), api_key.encode()):
        message = "the headers Authorization and X-API-Key show two different access keys; send one"
        raise BadKey(message)
    return bearer if bearer is not None else api_key


def _password(encoded: str) -> str:
    """Return the password of Basic authentication (RFC 7617), whoever the user is; empty where it cannot be read."""
    try:
        return base64.b64decode(encoded, validate=True).decode().partition(":")[2]
    except ValueError:
        return ""


def _digest(value: str) -> bytes:
    return hashlib.sha256(value.encode("utf-8", "surrogateescape")).digest()
