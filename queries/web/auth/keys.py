"""Access keys in one SQLite file, which stores only the SHA-256 of each key.

A key whose row does not match its checksum is invalid, but counts as a key that was made: access control stays on. It
also stays on if the file is missing, empty or damaged as a whole, because a marker file beside it records that keys are
required.
"""

import base64
import hashlib
import hmac
import json
import logging
import os
import re
import secrets
import sqlite3
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, get_args

from hypergrid.archive.disk.row_checksums import (
    CHECKED_VERSION,
    DamagedState,
    Malformed,
    Schema,
    create_whole,
    find_damaged_rows,
    open_checked,
    require_content,
)
from hypergrid.archive.state_backup import ACCESS_MARKER, KEYS, keep_access_control
from hypergrid.core.errors import HyperGridError, InvalidQuery, NotFound

Scope = Literal["read", "operate", "query", "write", "admin"]
SCOPES: Final[tuple[Scope, ...]] = get_args(Scope)
"""Scopes, each including all before it: view; monitor the server; run queries; change standing queries; everything."""

FOLDER: Final = "server"
"""Folder of an archive in which its server stores keys, jobs and the audit log."""
FILE: Final = KEYS

LIMITS: Final[Mapping[str, str]] = {
    "requests_per_s": "requests a second",
    "streams": "requests that are open at a time",
    "queries": "queries that wait or run",
    "cells": "cells of one query",
    "bytes": "memory of one query, in bytes",
    "seconds": "projected time of one query, in seconds",
}
"""Limits that a key may override, with descriptions."""

KEY_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._@-]{0,62}")
_FORM: Final = re.compile(r"hg_([0-9a-f]{12})_([A-Za-z0-9_-]{43})")
_SCHEMA: Final = Schema(
    (
        """
CREATE TABLE keys (
    id TEXT PRIMARY KEY, name TEXT NOT NULL, scope TEXT NOT NULL, digest BLOB NOT NULL, created_ns INTEGER NOT NULL,
    expires_ns INTEGER, revoked_ns INTEGER, limits TEXT NOT NULL, reason TEXT NOT NULL DEFAULT '',
    checksum TEXT NOT NULL DEFAULT ''
) STRICT
""",
    ),
    added=("ALTER TABLE keys ADD COLUMN reason TEXT NOT NULL DEFAULT ''",),
)
_COLUMNS: Final = "id, name, scope, created_ns, expires_ns, revoked_ns, limits, reason"
_REMEDY: Final = (
    "nobody is let in; restore the file from a copy, and revoke what was revoked since; or move what is left of it "
    "away and make new keys ('hypergrid keys create'), for all former ones are lost; or turn access control off "
    "('hypergrid keys off')"
)
_LOG: Final = logging.getLogger(__name__)


class KeysDamaged(DamagedState):
    """The key file is unreadable, or missing although required; the message names it."""


class BadKey(HyperGridError, PermissionError):
    """An unknown, expired or revoked key. The message never includes the key."""


@dataclass(frozen=True)
class Key:
    """A key without its secret."""

    id: str
    name: str
    scope: Scope
    created_ns: int
    """[ns since 1970 UTC]"""
    expires_ns: int | None = None
    """Expiry [ns since 1970 UTC]; None: never."""
    revoked_ns: int | None = None
    limits: Mapping[str, float] = field(default_factory=dict)
    """Values for `LIMITS` that override the server's settings."""
    reason: str = ""
    """Reason for the revocation, if known."""

    def state(self, now_ns: int) -> Literal["valid", "expired", "revoked"]:
        if self.revoked_ns is not None:
            return "revoked"
        return "expired" if self.expires_ns is not None and now_ns >= self.expires_ns else "valid"


class KeyStore:
    """Access keys in a file; thread-safe, and several processes may share the file.

    Parameters
    ----------
    path
        The file. If neither it nor its marker exists, there are no keys; `create` makes both, the file readable only by
        its owner.

    Raises
    ------
    KeysDamaged
        The file cannot be read, or is missing although the marker exists; all methods but `create` and `remove` may
        raise this.
    """

    def __init__(self, path: Path) -> None:
        self.path, self.marker = path, path.with_name(ACCESS_MARKER)
        """The file, and the marker that keys are required."""
        self._lock = threading.Lock()
        self._db: sqlite3.Connection | None = None
        self._version: tuple[int, ...] = ()
        self._existed = False

    def close(self) -> None:
        with self._lock:
            self._close()

    @property
    def exist(self) -> bool:
        """Whether keys are required: one was ever made, even if revoked or damaged since."""
        with self._open() as db:
            if not self._existed:
                has_row = db is not None and db.execute("SELECT 1 FROM keys LIMIT 1").fetchone() is not None
                self._existed = has_row or self.marker.exists()
            return self._existed

    def require(self) -> None:
        """Write the marker if it is missing.

        Raises
        ------
        OSError
            It cannot be written.
        """
        if not self.marker.exists():
            keep_access_control(self.path.parent)

    def remove(self) -> bool:
        """Turn off access control by removing keys and marker; return whether it was on."""
        self.close()
        self._existed = False
        files = [self.path.with_name(f"{self.path.name}{ending}") for ending in ("", "-wal", "-shm")]
        # The marker goes last: if the process dies meanwhile, access stays closed.
        present = [file for file in (*files, self.marker) if file.exists()]
        for file in present:
            file.unlink()
        return bool(present)

    def keys(self) -> list[Key]:
        """List all undamaged keys, oldest first, including revoked ones."""
        with self._open() as db:
            rows = [] if db is None else db.execute(f"SELECT {_COLUMNS} FROM valid_keys ORDER BY row_id").fetchall()
        return [_key(row) for row in rows]

    def list_damaged(self) -> list[str]:
        with self._open() as db:
            return [] if db is None else [f"row {row} of keys" for row in find_damaged_rows(db, "keys")]

    def get(self, key_id: str) -> Key | None:
        row = self._row(key_id)
        return None if row is None else row[0]

    def check(self, text: str, now_ns: int) -> Key:
        """Verify the text of a key and return the key.

        Raises
        ------
        BadKey
            The key is unknown, expired or revoked.
        """
        form = _FORM.fullmatch(text)
        row = None if form is None else self._row(form[1])
        # Constant-time comparison, against timing attacks.
        if row is None or not hmac.compare_digest(row[1], _digest(text)):
            raise BadKey("the access key is not known here; check that it is complete, or ask for a new one")
        state = row[0].state(now_ns)
        if state != "valid":
            happened = "has expired" if state == "expired" else "was revoked"
            why = f" ({row[0].reason})" if row[0].reason else ""
            raise BadKey(f"the access key {row[0].name!r} {happened}{why}; ask for a new one")
        return row[0]

    def create(
        self,
        name: str,
        scope: Scope,
        *,
        now_ns: int,
        expires_ns: int | None = None,
        limits: Mapping[str, float] | None = None,
    ) -> tuple[Key, str]:
        """Create a key; return it with its text, which is not stored.

        Raises
        ------
        InvalidQuery, NotFound
            The name or a limit is invalid, a valid key has the name, or the expiry is past; unknown scope.
        """
        if not KEY_NAME.fullmatch(name):
            raise InvalidQuery(f"the name of a key needs 1 to 63 letters, digits, '.', '_', '@' or '-'; got {name!r}")
        if scope not in SCOPES:
            raise NotFound.among(kind="scope", given=scope, existing=SCOPES)
        if expires_ns is not None and expires_ns <= now_ns:
            raise InvalidQuery(f"the key {name!r} would have expired already; give a later end")
        for limit, value in (limits or {}).items():
            if limit not in LIMITS:
                raise NotFound.among(kind="limit of a key", given=limit, existing=LIMITS)
            if not 0 < value < float("inf"):
                raise InvalidQuery(f"the limit {limit!r} of the key {name!r} needs a number above zero; got {value!r}")
        create_whole(self.path, _SCHEMA)
        if any(key.name == name and key.state(now_ns) == "valid" for key in self.keys()):
            raise InvalidQuery(f"a key {name!r} is there already; revoke it first, or choose another name")
        key = Key(secrets.token_hex(6), name, scope, now_ns, expires_ns, None, dict(limits or {}), "")
        secret = base64.urlsafe_b64encode(secrets.token_bytes(32)).decode("ascii").rstrip("=")
        text = f"hg_{key.id}_{secret}"
        # The marker comes first: if the process dies in between, access stays closed.
        self.require()
        with self._open() as db:
            assert db is not None
            limited = json.dumps(dict(key.limits))
            db.execute(
                f"INSERT INTO keys ({_COLUMNS}, digest) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (key.id, name, scope, now_ns, expires_ns, None, limited, "", _digest(text)),
            )
            _checkpoint(db)
        return key, text

    def revoke(self, name_or_id: str, *, now_ns: int) -> Key:
        """Revoke a key by id or name; return it.

        Raises
        ------
        NotFound
            No unrevoked key has this id or name.
        """
        valid = [key for key in self.keys() if key.revoked_ns is None]
        # The newest first, as an expired key may have the same name.
        revoked_key = next((key for key in reversed(valid) if name_or_id in (key.id, key.name)), None)
        if revoked_key is None:
            raise NotFound.among(kind="key", given=name_or_id, existing=[key.name for key in valid])
        with self._open() as db:
            assert db is not None
            db.execute("UPDATE keys SET revoked_ns = ? WHERE id = ?", (now_ns, revoked_key.id))
            _checkpoint(db)
        return revoked_key

    def revoke_all(self, reason: str, *, now_ns: int) -> int:
        """Revoke every unrevoked key with a reason; return how many."""
        with self._open() as db:
            if db is None:
                return 0
            count = db.execute(
                "UPDATE keys SET revoked_ns = ?, reason = ? WHERE revoked_ns IS NULL", (now_ns, reason)
            ).rowcount
            _checkpoint(db)
        return count

    def _row(self, key_id: str) -> tuple[Key, bytes] | None:
        with self._open() as db:
            if db is None:
                return None
            row = db.execute(f"SELECT {_COLUMNS}, digest FROM valid_keys WHERE id = ?", (key_id,)).fetchone()
            if row is None and db.execute("SELECT 1 FROM keys WHERE id = ?", (key_id,)).fetchone():
                _LOG.error("the access key %s is damaged in %s, and opens nothing; make a new one", key_id, self.path)
        return None if row is None else (_key(row[:-1]), row[-1])

    @contextmanager
    def _open(self) -> Iterator[sqlite3.Connection | None]:
        with self._lock:
            try:
                self._follow_file()
                yield self._db
            except (sqlite3.DatabaseError, OSError) as error:
                raise _damage_error(self.path, str(error)) from error

    def _follow_file(self) -> None:
        """Open or reopen the current file; raise if it is empty, or missing although required."""
        try:
            status = self.path.stat()
        except FileNotFoundError:
            if self._db is not None or self._existed or self.marker.exists():
                raise _damage_error(self.path, "it is missing") from None
            return
        require_content(self.path)
        version = (status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns)
        if version != self._version:
            # Another process wrote a key, or the file was restored, recreated or damaged; an open connection would miss
            # that.
            self._close()
        if self._db is None:
            self._db, self._version = _connect(self.path), version

    def _close(self) -> None:
        if self._db is not None:
            self._db.close()
        self._db = None


def _damage_error(path: Path, why: str) -> KeysDamaged:
    return KeysDamaged(f"{path} cannot be read as a file of access keys: {why}; {_REMEDY}")


def _connect(path: Path) -> sqlite3.Connection:
    is_ours = os.access(path, os.W_OK) and os.access(path.parent, os.W_OK)
    options: dict[str, Any] = {"timeout": 30.0, "isolation_level": None, "check_same_thread": False}
    # A file that cannot be written is read into memory, as SQLite needs to write its log beside it.
    db = sqlite3.connect(path, **options) if is_ours else sqlite3.connect(":memory:", **options)
    try:
        if not is_ours:
            db.deserialize(_content(path))
        version = open_checked(db, _SCHEMA)
        # A revocation must survive a power cut.
        db.execute("PRAGMA synchronous = FULL" if is_ours else "PRAGMA query_only = ON")
        if version > CHECKED_VERSION:
            raise KeysDamaged(
                f"{path} is a file of access keys of version {version}; this program reads {CHECKED_VERSION}"
            )
    except BaseException:
        db.close()
        raise
    return db


def _content(path: Path) -> bytes:
    """Read a file that cannot be written, in a form that SQLite can deserialise.

    Raises
    ------
    Malformed
        A write-ahead log with changes, such as a revocation, lies beside it; only a process that can write the file can
        apply them.
    """
    log = path.with_name(f"{path.name}-wal")
    if log.exists() and log.stat().st_size:
        raise Malformed(
            f"changes lie beside it in {log.name}, and the folder cannot be written; copy archives with "
            "'hypergrid backup', or let this process write to the folder"
        )
    content = bytearray(path.read_bytes())
    # Format versions in the file header: set to those without a write-ahead log.
    content[18:20] = b"\x01\x01"
    return bytes(content)


def _checkpoint(db: sqlite3.Connection) -> None:
    """Move committed changes from the write-ahead log into the file."""
    # A revocation must not be lost with a damaged log.
    db.execute("PRAGMA wal_checkpoint(TRUNCATE)")


def _key(row: tuple[Any, ...]) -> Key:
    key_id, name, scope, created_ns, expires_ns, revoked_ns, limits, reason = row
    return Key(key_id, name, scope, created_ns, expires_ns, revoked_ns, json.loads(limits), reason)


def _digest(text: str) -> bytes:
    # Keys are 256 random bits, which cannot be guessed, so a slow hash is unnecessary.
    return hashlib.sha256(text.encode()).digest()
