"""State databases: SQLite files of the server with row checksums, durable before any acknowledgement."""

import logging
import os
import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar, Final

from hypergrid.archive.disk.row_checksums import (
    CHECKED_VERSION,
    DamagedState,
    Malformed,
    Schema,
    create_whole,
    find_damaged_rows,
    list_tables,
    open_checked,
    require_content,
)
from hypergrid.core.errors import StoreUnavailable

_LOG: Final = logging.getLogger(__name__)


@dataclass(frozen=True)
class StateKind:
    """What a kind of state database holds, and which errors it raises."""

    schema: Schema
    content: str
    """What the file is, such as "a catalogue of standing queries"."""
    loss: str
    """What is lost without the file, as a clause."""
    damaged: type[DamagedState]
    """Raised if the file cannot be read."""
    unavailable: type[StoreUnavailable]
    """Raised if the file cannot be used now."""
    busy_s: float
    """How long to wait while another program holds the file [s]."""


class StateDatabase:
    """A SQLite file of one kind; thread-safe, and several processes may share the file.

    A subclass sets `kind`, reads inside `_lock_for_reading` and writes inside `_transaction`.

    Parameters
    ----------
    path
        The file; created if missing.

    Raises
    ------
    DamagedState
        The file is not one of this kind.
    StoreUnavailable
        It cannot be used now: locked, missing, not writable or disk full; all methods may raise both, as the classes
        that the kind names.
    """

    kind: ClassVar[StateKind]

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()
        self._is_gone = False
        with self._translate_errors():
            # The connection then fails in SQLite's words, which are translated.
            with suppress(OSError):
                create_whole(path, self.kind.schema)
            require_content(path)
            # Autocommit mode: transactions are explicit.
            self._db = sqlite3.connect(path, timeout=self.kind.busy_s, isolation_level=None, check_same_thread=False)
        try:
            with self._translate_errors():
                version = open_checked(self._db, self.kind.schema)
                # An acknowledged change must survive a power cut, not only a kill.
                self._db.execute("PRAGMA synchronous = FULL")
            if version > CHECKED_VERSION:
                raise self.kind.damaged(
                    f"{path} is {self.kind.content} of version {version}; this program reads {CHECKED_VERSION}; use a "
                    "newer program"
                )
            self._status = path.stat()
        except BaseException:
            self._db.close()
            raise

    def close(self) -> None:
        with self._lock:
            self._db.close()

    def list_damaged(self) -> list[str]:
        """List the rows that do not match their checksums, such as "row 3 of boards"."""
        with self._lock_for_reading():
            return [
                f"row {row} of {table}" for table in list_tables(self._db) for row in find_damaged_rows(self._db, table)
            ]

    @contextmanager
    def _lock_for_reading(self) -> Iterator[None]:
        with self._lock, self._translate_errors():
            yield

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        with self._lock_for_reading():
            self._require_same_file()
            # IMMEDIATE takes the write lock first: a deferred transaction could fail when it upgrades.
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield
                self._db.execute("COMMIT")
            finally:
                # Also if COMMIT itself failed, for example on a full disk.
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")

    def _require_same_file(self) -> None:
        """Raise if the open file was removed or replaced."""
        # SQLite would go on writing into the unlinked file, where no process would ever read it.
        with suppress(FileNotFoundError):
            if os.path.samestat(self._status, self.path.stat()):
                return
        message = (
            f"{self.path} was removed or replaced while it was open, perhaps with its archive, and no change is kept "
            "any more; start this program again"
        )
        # Log once, not at every poll.
        if not self._is_gone:
            self._is_gone = True
            _LOG.error(message)
        raise self.kind.unavailable(message)

    @contextmanager
    def _translate_errors(self) -> Iterator[None]:
        """Translate SQLite errors into those of the kind."""
        try:
            yield
        except sqlite3.Error as error:
            # The lower byte is the primary result code.
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF
            if isinstance(error, Malformed) or code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
                raise self.kind.damaged(
                    f"{self.path} cannot be read as {self.kind.content}: {error}; restore it from a copy, or move it "
                    f"away: then {self.kind.loss}"
                ) from error
            if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
                raise self.kind.unavailable(
                    f"{self.path} has been held by another program for {self.kind.busy_s:g} s; nothing is wrong with "
                    "it: end what holds it, and try again"
                ) from error
            raise self.kind.unavailable(
                f"{self.path} cannot be used now: {error}; see to its disk and its permissions, and try again"
            ) from error
