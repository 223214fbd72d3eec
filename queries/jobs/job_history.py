"""Journal of jobs in one SQLite file: their outcomes survive a kill.

A job whose row does not match its checksum counts as forgotten.
"""

import json
import sqlite3
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, get_args

from hypergrid.archive.disk.row_checksums import (
    CHECKED_VERSION,
    DamagedState,
    Schema,
    create_whole,
    find_damaged_rows,
    open_checked,
    require_content,
)
from hypergrid.core.errors import HyperGridError
from queries.jobs.records import Job, ResultGone, State

FILE: Final = "jobs.sqlite"
POST_AGAIN: Final = "post it again"
LOST: Final = f"the server ended before it was done; {POST_AGAIN}"
UNEXPECTED: Final = "something unexpected happened; the server's log has it"

_OPENING_S: Final = 30.0
"""How long to wait for another program's lock when opening the file [s]."""
_NOTING_S: Final = 0.1
"""How long to wait for it when recording a job [s]: all queries wait meanwhile."""
LONGEST: Final = 20_000
"""Longest recorded query document [characters]; of a longer one only the variable is recorded."""
_SCHEMA: Final = Schema(
    (
        """
CREATE TABLE jobs (
    number INTEGER PRIMARY KEY AUTOINCREMENT, id TEXT NOT NULL UNIQUE, owner TEXT NOT NULL, token TEXT NOT NULL,
    snapshot TEXT NOT NULL, document TEXT NOT NULL, cells INTEGER NOT NULL, created_ns INTEGER NOT NULL,
    state TEXT NOT NULL, started_ns INTEGER, ended_ns INTEGER, error TEXT NOT NULL DEFAULT '',
    checksum TEXT NOT NULL DEFAULT ''
) STRICT
""",
    )
)
_COLUMNS: Final = "id, owner, token, snapshot, document, cells, created_ns, state, started_ns, ended_ns, error"


_REMEDY: Final = (
    "restore it from a copy, or remove it and its -wal: then what became of the latest queries is forgotten, and no "
    "more than that"
)


class JournalDamaged(DamagedState):
    """The journal cannot be read; the message names the file."""


@dataclass(frozen=True)
class JobRecord:
    """A job of an earlier process."""

    id: str
    owner: str
    token: str
    snapshot: str
    document: Mapping[str, Any]
    cells: int
    """Cells of its surface."""
    created_ns: int
    """[ns since 1970 UTC]"""
    state: State
    started_ns: int | None
    ended_ns: int | None
    error: str
    """Why it is not done; empty if it is."""


class Past(ResultGone):
    """A job of an earlier process, of which only the outcome is known."""

    def __init__(self, record: JobRecord) -> None:
        outcome = (
            f"it {'was done' if record.state == 'done' else record.state}{f': {record.error}' if record.error else ''}"
        )
        super().__init__(f"of query {record.id} only the end is remembered: {outcome}; post the query again")
        self.record = record


class Journal:
    """Records jobs when they are submitted and when they end; thread-safe.

    Parameters
    ----------
    path
        The file; created if missing. Unfinished jobs of an earlier process are marked as failed.
    now_ns
        Current time [ns since 1970 UTC].
    remembered
        Number of jobs to keep.
    reason
        Error recorded for unfinished jobs of an earlier process.

    Raises
    ------
    JournalDamaged
        The file is not a journal.
    """

    def __init__(self, path: Path, *, now_ns: int, remembered: int = 1000, reason: str = LOST) -> None:
        self.path, self._remembered = path, remembered
        self._lock = threading.Lock()
        # Created whole, so that an empty file can be treated as damaged.
        create_whole(path, _SCHEMA)
        self._db = sqlite3.connect(path, timeout=_OPENING_S, isolation_level=None, check_same_thread=False)
        try:
            require_content(path)
            version = open_checked(self._db, _SCHEMA)
            # Enough to survive a kill; only a power cut can lose the last moment.
            self._db.execute("PRAGMA synchronous = NORMAL")
            if version > CHECKED_VERSION:
                raise JournalDamaged(
                    f"{path} is a file of jobs of version {version}; this program reads {CHECKED_VERSION}; remove it"
                )
            self.lost = self._db.execute(
                "UPDATE jobs SET state = 'failed', ended_ns = ?, error = ? WHERE state IN ('queued', 'running')",
                (now_ns, reason),
            ).rowcount
            """Jobs cut short when the previous process ended."""
            # Recording a job must not wait as long as opening the file may.
            self._db.execute(f"PRAGMA busy_timeout = {round(1000 * _NOTING_S)}")
        except BaseException as error:
            self._db.close()
            if isinstance(error, sqlite3.DatabaseError):
                raise _damage_error(path, error) from error
            raise

    def close(self) -> None:
        with self._lock:
            self._db.close()

    def record_job(self, job: Job) -> None:
        """Record a submitted job, and delete the oldest beyond the limit."""
        document = json.dumps(job.document)
        # Polygons can make documents arbitrarily large.
        if len(document) > LONGEST:
            document = json.dumps({"variable": job.document["variable"]})
        row = (
            job.id, job.owner, job.token, job.snapshot, document, job.outline.cells, job.created_ns,
            "queued", None, None, "",
        )  # fmt: skip
        with self._lock:
            number = self._db.execute(
                f"INSERT INTO jobs ({_COLUMNS}) VALUES ({', '.join('?' * len(row))})", row
            ).lastrowid
            self._db.execute("DELETE FROM jobs WHERE number <= ?", ((number or 0) - self._remembered,))

    def record_end(self, job: Job) -> None:
        """Record the outcome of a job."""
        # Unexpected errors are replaced by a fixed text, as theirs may be confidential.
        error = "" if job.state == "done" else "it was stopped"
        if job.error is not None:
            error = str(job.error) if isinstance(job.error, HyperGridError) else UNEXPECTED
        with self._lock:
            self._db.execute(
                "UPDATE jobs SET state = ?, started_ns = ?, ended_ns = ?, error = ? WHERE id = ?",
                (job.state, job.started_ns, job.ended_ns, error, job.id),
            )

    def list_damaged(self) -> list[str]:
        with self._lock:
            return [f"row {row} of jobs" for row in find_damaged_rows(self._db, "jobs")]

    def find(self, job_id: str) -> JobRecord | None:
        """Look up a job; None if it is unknown or forgotten.

        Raises
        ------
        JournalDamaged
            The file cannot be read any more.
        """
        with self._lock_for_reading():
            row = self._db.execute(f"SELECT {_COLUMNS} FROM valid_jobs WHERE id = ?", (job_id,)).fetchone()
        return None if row is None else _record_from_row(row)

    def list_records(self) -> list[JobRecord]:
        """List the jobs, newest first; raises as `find`."""
        with self._lock_for_reading():
            rows = self._db.execute(f"SELECT {_COLUMNS} FROM valid_jobs ORDER BY number DESC").fetchall()
        return [_record_from_row(row) for row in rows]

    @contextmanager
    def _lock_for_reading(self) -> Iterator[None]:
        with self._lock:
            try:
                yield
            except sqlite3.DatabaseError as error:
                raise _damage_error(self.path, error) from error


def _damage_error(path: Path, error: sqlite3.DatabaseError) -> JournalDamaged:
    return JournalDamaged(f"{path} cannot be read as a file of jobs: {error}; {_REMEDY}")


def _record_from_row(row: tuple[Any, ...]) -> JobRecord:
    job_id, owner, token, snapshot, document, cells, created_ns, state, started_ns, ended_ns, error = row
    known: State = next(candidate for candidate in get_args(State) if candidate == state)
    return JobRecord(
        job_id, owner, token, snapshot, json.loads(document), cells, created_ns, known, started_ns, ended_ns, error
    )
