"""Identification of callers by access keys and browser sessions, and the audit log of their changes."""

import base64
import errno
import hashlib
import hmac
import os
import secrets
from collections import OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from hypergrid.archive.disk.row_checksums import format_checked_line
from hypergrid.core.errors import HyperGridError
from hypergrid.core.times import SECOND_NS, format_instant
from queries.jobs.admission import Asker, Limits
from queries.web.auth.keys import BadKey, Key, KeyStore, Scope

COOKIE: Final = "hypergrid_session"
LOOPBACK: Final = ("127.0.0.1", "localhost", "[::1]")
MOST_SESSIONS: Final = 1000
"""Sessions remembered in total; the oldest is dropped first."""
# Repeated logins with one key must not end the sessions of others.
MOST_OF_A_KEY: Final = 100
"""Sessions remembered per key."""


class Unauthorized(HyperGridError, PermissionError):
    """The request needs credentials and has none that are valid."""


class Forbidden(HyperGridError, PermissionError):
    """The caller is identified but not permitted to do this."""


class TooManyRequests(HyperGridError, RuntimeError):
    """The caller exceeded its request rate or its open requests."""

    def __init__(self, message: str, retry_s: float) -> None:
        super().__init__(message)
        self.retry_s = retry_s
        """When one more is allowed [s]."""


@dataclass(frozen=True)
class CallerLimits:
    """Limits of a caller; None: no limit."""

    requests_per_s: float | None = None
    streams: int | None = None
    """Requests open at a time."""
    queries: Limits = Limits()

    def override(self, given: Mapping[str, float]) -> "CallerLimits":
        """Apply the key's own limits to these defaults."""
        whole = {name: int(given[name]) for name in ("cells", "bytes", "queries") if name in given}
        limits = Limits(**{**vars(self.queries), **whole, "seconds": given.get("seconds", self.queries.seconds)})
        streams = int(given["streams"]) if "streams" in given else self.streams
        return CallerLimits(given.get("requests_per_s", self.requests_per_s), streams, limits)


@dataclass(frozen=True)
class Rules:
    """Access rules of a server."""

    keyed: CallerLimits = CallerLimits(100.0, 100, Limits(queries=8))
    """Default limits of callers with a key."""
    anonymous: CallerLimits = CallerLimits(10.0, 10, Limits(cells=1_000_000, bytes=1 << 28, seconds=10.0, queries=2))
    """Limits of callers without a key, per address."""
    anonymous_read: bool = False
    """Whether callers without a key may read."""
    session_s: int = 12 * 3600
    """Lifetime of a browser session [s]."""
    names: tuple[str, ...] = LOOPBACK
    """Host names that the server answers to."""
    origins: tuple[str, ...] = ()
    """Origins of other sites whose pages may send requests, with a key."""
    embed_origins: tuple[str, ...] = ()
    """Origins of other sites that may show the pages of `/embed` in a frame."""
    trusted_proxies: tuple[str, ...] = ()
    """Addresses whose X-Forwarded-For and X-Forwarded-Proto are trusted."""
    root_path: str = ""
    """Path prefix added by a proxy, "/stations"."""


@dataclass(frozen=True)
class Caller:
    """An identified caller."""

    id: str
    """Id of the key; "local" without access control, "anonymous" without a key."""
    name: str
    scope: Scope | None
    """None: only routes open to all."""
    allowed: CallerLimits = CallerLimits()
    credential: Literal["nothing", "key", "session"] = "nothing"

    @property
    def asker(self) -> Asker:
        return Asker(self.id, self.allowed.queries)


LOCAL: Final = Caller("local", "this machine", "admin")
"""Every caller, if access control is off: the server listens on loopback and no key was ever made."""


@dataclass
class _Session:
    key_id: str
    ends_ns: int


@dataclass
class Access:
    """Identifies callers and manages browser sessions.

    Access control is on as soon as a key has been made, and stays on if all are revoked; if `required` it is always on.
    """

    store: KeyStore | None
    """The keys; None: there are none, and never will be."""
    clock: Callable[[], int]
    """Returns the time [ns since 1970 UTC]."""
    rules: Rules = field(default_factory=Rules)
    required: bool = False
    """Whether a key is needed even if none was ever made, because other machines can connect."""
    _sessions: "OrderedDict[bytes, _Session]" = field(default_factory=OrderedDict)

    @property
    def is_on(self) -> bool:
        """Whether access control is on.

        Raises
        ------
        KeysDamaged
            It is on, and the keys cannot be read.
        """
        return (self.store is not None and self.store.exist) or self.required

    def identify_caller(self, *, key: str | None, session: str | None) -> Caller:
        """Identify the caller by key, by session cookie, or as anonymous.

        Raises
        ------
        BadKey
            The key is not valid. An expired session counts as none.
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
        """Start a browser session for a key.

        Returns the caller, the cookie value, and its expiry [ns since 1970 UTC].

        Raises
        ------
        BadKey
            The key is not valid.
        """
        known = self._check(key)
        ends_ns = self.clock() + self.rules.session_s * SECOND_NS
        # A session must not outlive its key.
        ends_ns = ends_ns if known.expires_ns is None else min(ends_ns, known.expires_ns)
        value = secrets.token_urlsafe(32)
        # Only the digest is kept, as of keys.
        self._sessions[_digest(value)] = _Session(known.id, ends_ns)
        own = [digest for digest, session in list(self._sessions.items()) if session.key_id == known.id]
        for digest in own[:-MOST_OF_A_KEY]:
            self._sessions.pop(digest, None)
        while len(self._sessions) > MOST_SESSIONS:
            self._sessions.popitem(last=False)
        return self._make_caller(known, "session"), value, ends_ns

    def log_out(self, session: str) -> None:
        self._sessions.pop(_digest(session), None)

    def _check(self, key: str) -> Key:
        if self.store is None:
            raise BadKey("no access keys are known here; the server answers without")
        return self.store.check(key, self.clock())

    def _make_caller(self, key: Key, by: Literal["key", "session"]) -> Caller:
        return Caller(key.id, key.name, key.scope, self.rules.keyed.override(key.limits), by)

    def _find_key(self, session: str) -> Key | None:
        digest, now_ns = _digest(session), self.clock()
        record = self._sessions.get(digest)
        key = None if record is None or self.store is None else self.store.get(record.key_id)
        # The key is checked at each request, so a revocation ends its sessions.
        if record is None or key is None or now_ns >= record.ends_ns or key.state(now_ns) != "valid":
            self._sessions.pop(digest, None)
            return None
        return key


def read_key(authorization: str | None, api_key: str | None) -> str | None:
    """Read the key from the headers; None if they have none.

    Raises
    ------
    BadKey
        The Authorization header has neither the scheme Bearer nor Basic with the key as password, for programs that
        know no other; or the two headers differ.
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
            raise BadKey(
                "the header Authorization needs 'Bearer' and an access key, or 'Basic' with the key as password"
            )
    # Constant-time comparison, against timing attacks.
    if bearer is not None and api_key is not None and not hmac.compare_digest(bearer.encode(), api_key.encode()):
        raise BadKey("the headers Authorization and X-API-Key show two different access keys; send one")
    return bearer if bearer is not None else api_key


def _password(encoded: str) -> str:
    """Decode the password of Basic authentication (RFC 7617); empty if it is malformed."""
    try:
        return base64.b64decode(encoded, validate=True).decode().partition(":")[2]
    except ValueError:
        return ""


def _digest(value: str) -> bytes:
    # Header values may contain bytes that are not UTF-8.
    return hashlib.sha256(value.encode("utf-8", "surrogateescape")).digest()


AUDIT_FILE: Final = "audit.jsonl"


class Audit:
    """Appends changes to one file of JSON lines, created readable only by its owner.

    Each line begins with a checksum of the rest; lines of older versions have none.

    Parameters
    ----------
    path
        The file.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def note(self, *, now_ns: int, label: str, what: str, **more: str | int) -> None:
        """Append an action as one line.

        Raises
        ------
        OSError
            The file cannot be written.
        """
        line = format_checked_line({"time": format_instant(now_ns), "who": label, "what": what, **more})
        data = f"{line}\n".encode("ascii")
        self.path.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            # A single write in append mode, so that lines of several processes never mix.
            written = os.write(handle, data)
            if written < len(data):
                # A full disk took only a part: truncate it, as the next line must start on its own.
                os.ftruncate(handle, os.lseek(handle, 0, os.SEEK_CUR) - written)
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(self.path))
        except OSError:
            # If the first line did not fit, remove the file: an empty one would count as a log that was emptied.
            if not os.fstat(handle).st_size:
                self.path.unlink(missing_ok=True)
            raise
        finally:
            os.close(handle)
