"""Live queries of an archive: one SQLite file beside it, in which a step is kept at once or not at all.

A step is its results, the states and the position (snapshot and heartbeat) that go with them. After a kill it is
kept, or done again from the step before: nothing is given twice, nothing is lost. Results have running numbers; a
reader goes on after the last number that it knows.

Where results are kept for a time only, the oldest ones are dropped, from the first number on. Of a relation the rows
that still hold then go on with numbers below 0, so that a reader of all that is kept has the relation as it is.
"""

import hashlib
import json
import uuid
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple

from hypergrid.archive.disk.row_checksums import DamagedState, Schema
from hypergrid.archive.disk.state_database import StateDatabase, StateKind
from hypergrid.continuous.expressions import GREATEST_INTEGER
from hypergrid.continuous.live.evaluation import START, LiveStep
from hypergrid.continuous.live.rows import Row, read_row, row_text
from hypergrid.continuous.records import LIVE_FILE, NoLongerKept
from hypergrid.core.errors import InvalidQuery, NotFound, StoreUnavailable
from hypergrid.core.times import SECOND_NS, Window, format_instant

_SCHEMA: Final = Schema(
    (
        """
CREATE TABLE queries (
    name TEXT PRIMARY KEY, identity TEXT NOT NULL, text TEXT NOT NULL, options TEXT NOT NULL, snapshot TEXT,
    heartbeat_ns INTEGER, late INTEGER NOT NULL DEFAULT 0, disorder_s REAL, checksum TEXT NOT NULL DEFAULT ''
) STRICT
""",
        """
CREATE TABLE states (
    name TEXT NOT NULL, heartbeat_ns INTEGER NOT NULL, state BLOB NOT NULL, checksum TEXT NOT NULL DEFAULT ''
) STRICT
""",
        """
CREATE TABLE elements (
    number INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL, tau_ns INTEGER NOT NULL, sign INTEGER NOT NULL,
    content TEXT NOT NULL, corrects TEXT, snapshot TEXT NOT NULL, checksum TEXT NOT NULL DEFAULT ''
) STRICT
""",
        """
CREATE TABLE taps (name TEXT PRIMARY KEY, content BLOB NOT NULL, checksum TEXT NOT NULL DEFAULT '') STRICT
""",
        """
CREATE TABLE tables (
    name TEXT NOT NULL, label TEXT NOT NULL, content BLOB NOT NULL, checksum TEXT NOT NULL DEFAULT ''
) STRICT
""",
        "CREATE UNIQUE INDEX tables_of ON tables (name, label)",
        "CREATE UNIQUE INDEX states_of ON states (name, heartbeat_ns)",
        "CREATE INDEX elements_of ON elements (name, tau_ns)",
    ),
    later=(
        """
CREATE TABLE IF NOT EXISTS retentions (
    name TEXT PRIMARY KEY, keep_s REAL, kept_ns INTEGER NOT NULL, dropped INTEGER NOT NULL DEFAULT 0,
    held_from INTEGER NOT NULL DEFAULT 0, held_upto INTEGER NOT NULL DEFAULT -1, too_late INTEGER NOT NULL DEFAULT 0,
    checksum TEXT NOT NULL DEFAULT ''
) STRICT
""",
        # In order of the numbers, too, which are the keys of rows.
        "CREATE INDEX IF NOT EXISTS elements_by_number ON elements (name)",
    ),
)
LEAST_KEEP_S: Final = 86_400.0
"""Shortest time for which results can be kept [s]: alerts look back so far."""
LONGEST_KEEP_S: Final = 500 * 366 * 86_400.0
"""Longest time [s]."""
PORTION: Final = 100_000
"""Elements that a step drops, at most, beside as many as rows that hold; the rest is left to later steps."""
_NUMBERS: Final = ""
"""Name, which no query has, of the row of `retentions` with the least number ever used."""


_BEFORE_ALL: Final = -(2**63)
"""Less than any number."""


class LiveQueriesDamaged(DamagedState):
    """The file of live queries, or a row of it, cannot be read; the message names it."""


class LiveQueriesUnavailable(StoreUnavailable):
    """The file of live queries cannot be used now; the message says why."""


@dataclass(frozen=True)
class LiveOptions:
    """How a live query is evaluated."""

    start_ns: int
    """Start of the stretch [ns since 1970 UTC]."""
    idle_s: float = 3600.0
    """A series this long behind the newest reading of all is not waited for."""
    disorder_s: float | None = None
    """How far behind the newest reading of its series a reading may come and not be late; None: from arrivals."""
    source: Literal["archive", "tap"] = "archive"
    """Whether it follows the commits of the archive, or readings as they arrive (`TapQuery`)."""
    after_record: int = 0
    """Record of the tap after which it begins."""
    tables: Mapping[str, str] = field(default_factory=dict)
    """SHA-256 of each table of the user that is kept with the query, by name."""
    surfaces: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Title and document of each surface that the query reads, by the name of its relation (`describe_surface`)."""

    def check(self) -> None:
        """Refuse waits that cannot be.

        Raises
        ------
        InvalidQuery
            `idle_s` is not above 0, or `disorder_s` below it.
        """
        if self.idle_s <= 0 or (self.disorder_s is not None and self.disorder_s < 0):
            raise InvalidQuery(
                f"a live query needs idle_s above 0 and disorder_s from 0 on; got {self.idle_s} and {self.disorder_s}"
            )


class StepTaken(InvalidQuery):
    """Another program did the step of a live query, or it was removed; nothing was kept."""


class ResultRetention(NamedTuple):
    """For how long the results of a live query are kept, and which were dropped."""

    keep_s: float | None = None
    """How long results are kept, at least [s]; None: all are."""
    kept_ns: int = START
    """Instant from which on results are kept; of a relation also the rows that hold then. `START`: all are.

    It is the heartbeat of a state, in which is what was read until then.
    """
    dropped: int = 0
    """Greatest number of an element that was dropped, or has another number now; 0: none."""
    held_from: int = 0
    held_upto: int = -1
    """Least and greatest number of the elements whose rows held when others were dropped; the greatest is less if none
    did."""
    too_late: int = 0
    """Windows before `kept_ns` in which elements arrived late or were amended: they change nothing any more."""

    @property
    def keep_ns(self) -> int | None:
        """How long results are kept, at least [ns]; None: all are."""
        return None if self.keep_s is None else round(self.keep_s * SECOND_NS)

    def covers(self, after: int) -> bool:
        """Return whether all elements after a number are kept; 0 stands for all that are kept."""
        if after < 0:
            return self.held_from <= after <= self.held_upto
        return after == 0 or after >= self.dropped


class LiveEntry(NamedTuple):
    """A live query, and how far it is evaluated."""

    name: str
    text: str
    options: LiveOptions
    snapshot: str | None
    """Snapshot of the last step; None before the first."""
    heartbeat_ns: int | None
    """Instant before which results are given [ns since 1970 UTC]."""
    late: int
    """Windows in which elements arrived late or were amended so far."""
    disorder_s: float | None
    """Greatest disorder of a series that the heartbeat takes into account; None before the first step."""
    identity: str
    """What no other query has, also not a later one of the same name."""
    retention: ResultRetention = ResultRetention()


class GivenElement(NamedTuple):
    """Element of a result, as readers get it."""

    number: int
    """Increases with each element of any query; below 0 for rows that held when older elements were dropped."""
    tau_ns: int
    sign: int
    row: Row
    corrects: str | None
    """Snapshot with which the results so far were right; None for new results."""
    snapshot: str
    """Snapshot that the element was computed from."""


_OWN: Final = "name, text, options, snapshot, heartbeat_ns, late, disorder_s, identity"
_ENTRIES: Final = (
    f"SELECT {_OWN}, EXISTS (SELECT 1 FROM retentions WHERE retentions.name = valid_queries.name), keep_s, kept_ns, "
    "dropped, held_from, held_upto, too_late FROM valid_queries LEFT JOIN valid_retentions USING (name)"
)
_PREFIX: Final = """
SELECT number, sign, sum(sign) OVER (PARTITION BY content) AS net,
    row_number() OVER (PARTITION BY content, sign ORDER BY tau_ns DESC, number DESC) AS position
FROM valid_elements WHERE name = ? AND number <= ?
"""


def _make_entry(row: Sequence[Any]) -> LiveEntry:
    name, text, options, snapshot, heartbeat_ns, late, disorder_s, identity, has_retention, *kept = row
    if has_retention and kept[1] is None:
        raise LiveQueriesDamaged(
            f"what is known of the results that live query {name!r} keeps is damaged; remove the query, and add it "
            "again"
        )
    retention = ResultRetention(*kept) if has_retention else ResultRetention()
    return LiveEntry(
        name, text, LiveOptions(**json.loads(options)), snapshot, heartbeat_ns, late, disorder_s, identity, retention
    )


class LiveStore(StateDatabase):
    """Live queries of an archive with their states and results; several processes may share the file."""

    kind = StateKind(
        _SCHEMA,
        "a file of live queries",
        "live queries, their states and results are lost",
        LiveQueriesDamaged,
        LiveQueriesUnavailable,
        30.0,
    )

    def add(
        self,
        name: str,
        text: str,
        options: LiveOptions,
        tables: Mapping[str, bytes] | None = None,
        *,
        keep_s: float | None = None,
    ) -> None:
        """Add a query.

        Parameters
        ----------
        tables
            Content of each table of the user that the text names.
        keep_s
            How long its results are kept, at least [s]; None: always.

        Raises
        ------
        InvalidQuery
            There is one with this name, or its results would be kept for less than a day.
        """
        check_keep(keep_s)
        with self._transaction():
            if self._db.execute("SELECT 1 FROM queries WHERE name = ?", (name,)).fetchone():
                raise InvalidQuery(f"there is a live query {name!r} already; remove it first, or choose another name")
            content = tables or {}
            kept = replace(options, tables={label: _digest(table) for label, table in content.items()})
            self._db.execute(
                "INSERT INTO queries (name, identity, text, options) VALUES (?, ?, ?, ?)",
                (name, uuid.uuid4().hex, text, json.dumps(vars(kept))),
            )
            self._db.executemany(
                "INSERT INTO tables (name, label, content) VALUES (?, ?, ?)",
                [(name, label, table) for label, table in content.items()],
            )
            # A program that knows no such table may have removed a query of the name.
            self._db.execute("DELETE FROM retentions WHERE name = ?", (name,))
            if keep_s is not None:
                self._write_keep(name, keep_s)

    def change_keep(self, name: str, keep_s: float | None) -> None:
        """Change how long the results of a query are kept, at least [s]; None: always, from now on.

        Raises
        ------
        NotFound
            There is none with this name.
        InvalidQuery
            It is less than a day.
        """
        check_keep(keep_s)
        # It is there, and what is known of its results is not damaged.
        self.find(name)
        with self._transaction():
            if not self._db.execute("SELECT 1 FROM queries WHERE name = ?", (name,)).fetchone():
                raise NotFound(f"there is no live query {name!r}")
            self._write_keep(name, keep_s)

    def _write_keep(self, name: str, keep_s: float | None) -> None:
        self._db.execute(
            "INSERT INTO retentions (name, keep_s, kept_ns) VALUES (?, ?, ?) "
            "ON CONFLICT (name) DO UPDATE SET keep_s = excluded.keep_s",
            (name, keep_s, START),
        )

    def remove(self, name: str) -> None:
        """Remove a query with its results.

        Raises
        ------
        NotFound
            There is none with this name.
        """
        with self._transaction():
            for table in ("states", "elements", "tables", "taps", "retentions"):
                self._db.execute(f"DELETE FROM {table} WHERE name = ?", (name,))
            if not self._db.execute("DELETE FROM queries WHERE name = ?", (name,)).rowcount:
                raise NotFound(f"there is no live query {name!r}")

    def list_entries(self) -> list[LiveEntry]:
        """Return all queries, by name."""
        with self._lock_for_reading():
            rows = self._db.execute(f"{_ENTRIES} ORDER BY name").fetchall()
        return [_make_entry(row) for row in rows]

    def find_entry(self, name: str) -> LiveEntry | None:
        """Return a query; None if there is none with this name."""
        with self._lock_for_reading():
            row = self._db.execute(f"{_ENTRIES} WHERE name = ?", (name,)).fetchone()
        return None if row is None else _make_entry(row)

    def find(self, name: str) -> LiveEntry:
        """Return a query.

        Raises
        ------
        NotFound
            There is none with this name.
        """
        entry = self.find_entry(name)
        if entry is None:
            raise NotFound.among("live query", name, (each.name for each in self.list_entries()))
        return entry

    def read_tables(self, entry: LiveEntry) -> dict[str, bytes]:
        """Return the content of the tables of a query.

        Raises
        ------
        LiveQueriesDamaged
            One is not what was kept.
        """
        with self._lock_for_reading():
            rows = self._db.execute("SELECT label, content FROM valid_tables WHERE name = ?", (entry.name,)).fetchall()
        tables = dict(rows)
        for label, digest in entry.options.tables.items():
            if label not in tables or _digest(tables[label]) != digest:
                raise LiveQueriesDamaged(
                    f"{self.path}: table {label!r} of live query {entry.name!r} is not the one that was added; remove "
                    "the query, and add it again with its table"
                )
        return tables

    def list_elements(
        self, name: str, after: int = 0, limit: int = 10_000, *, newest: bool = False
    ) -> list[GivenElement]:
        """Return the results of a query whose numbers are greater than one, in their order; after 0 all that are kept.

        Parameters
        ----------
        newest
            Whether to return the last ones where there are more than the limit.

        Raises
        ------
        NoLongerKept
            Some of them are not kept any more.
        """
        with self._lock_for_reading():
            rows = self._db.execute(
                "SELECT number, tau_ns, sign, content, corrects, snapshot FROM valid_elements "
                f"WHERE name = ? AND number > ? ORDER BY number {'DESC' if newest else ''} LIMIT ?",
                (name, after or _BEFORE_ALL, limit),
            ).fetchall()
        if newest:
            rows.reverse()
        # Afterwards, so that what another program drops meanwhile is noticed.
        entry = self.find_entry(name) if after else None
        if entry is not None and not entry.retention.covers(after):
            raise NoLongerKept(
                f"not all results of live query {name!r} after number {after:,} are kept: they are from "
                f"{format_instant(entry.retention.kept_ns)} on; begin again after number 0, which gives the rows that "
                "held before, and all since"
            )
        return [GivenElement(number, tau, sign, read_row(row), *rest) for number, tau, sign, row, *rest in rows]

    def count_rows(self, name: str) -> Counter[Row]:
        """Return the rows that a relation holds, each with how often it does."""
        with self._lock_for_reading():
            rows = self._db.execute(
                "SELECT content, sum(sign) FROM valid_elements WHERE name = ? GROUP BY content HAVING sum(sign) <> 0",
                (name,),
            ).fetchall()
        return Counter({read_row(content): count for content, count in rows})

    def keep(
        self,
        entry: LiveEntry,
        snapshot: str,
        step: LiveStep,
        *,
        disorder_s: float | None = None,
        tap: bytes | None = None,
    ) -> None:
        """Keep a step that follows on an entry.

        Parameters
        ----------
        disorder_s
            Greatest disorder of a series that the heartbeat takes into account.
        tap
            What a query over a tap has to know of readings that it took, for `find_tap`.

        Raises
        ------
        StepTaken
            Another program did the step before, or the query was removed.
        """
        heartbeat, position = max(step.states), (entry.identity, entry.snapshot, entry.heartbeat_ns)
        with self._transaction():
            moved = self._db.execute(
                "UPDATE queries SET snapshot = ?, heartbeat_ns = ?, late = late + ?, disorder_s = ? "
                "WHERE identity = ? AND snapshot IS ? AND heartbeat_ns IS ?",
                (snapshot, heartbeat, step.late_windows, disorder_s, *position),
            )
            if not moved.rowcount:
                raise StepTaken(
                    f"live query {entry.name!r} was removed, or another program evaluates it; let one program do so"
                )
            if tap is not None:
                self._db.execute("INSERT OR REPLACE INTO taps (name, content) VALUES (?, ?)", (entry.name, tap))
            gone = [(entry.name, at) for at in (*step.dropped, *step.states)]
            self._db.executemany("DELETE FROM states WHERE name = ? AND heartbeat_ns = ?", gone)
            self._db.executemany(
                "INSERT INTO states (name, heartbeat_ns, state) VALUES (?, ?, ?)",
                [(entry.name, at, state) for at, state in step.states.items()],
            )
            if step.kept_ns > START:
                # Before those of this step come, so that a reader that has all before it misses none.
                self._drop_before(entry, step)
            self._db.executemany(
                "INSERT INTO elements (name, tau_ns, sign, content, corrects, snapshot) VALUES (?, ?, ?, ?, ?, ?)",
                [
                    (entry.name, each.tau, each.sign, row_text(each.row), corrects, snapshot)
                    for each in step.elements
                    for corrects in [entry.snapshot if each.is_correction else None]
                ],
            )

    def _drop_before(self, entry: LiveEntry, step: LiveStep) -> None:
        """Drop elements up to the last one before the first that is kept; of a relation rows that hold stay.

        Elements that follow an earlier one that is kept, such as corrections, wait until that one is dropped.
        """
        name, retention, kept_ns = entry.name, entry.retention, step.kept_ns
        if kept_ns > retention.kept_ns or step.too_late_windows:
            self._db.execute(
                "UPDATE retentions SET kept_ns = ?, too_late = too_late + ? WHERE name = ?",
                (kept_ns, step.too_late_windows, name),
            )
        own = "FROM elements INDEXED BY elements_by_number WHERE name = ? AND number > ?"
        first = self._db.execute(
            f"SELECT number {own} AND tau_ns >= ? ORDER BY number LIMIT 1", (name, retention.dropped, kept_ns)
        ).fetchone()
        before = 2**63 - 1 if first is None else first[0]
        portion = PORTION + retention.held_upto - retention.held_from
        (dropped,) = self._db.execute(
            f"SELECT max(number) FROM (SELECT number {own} AND number < ? ORDER BY number LIMIT ?)",
            (name, retention.dropped, before, portion),
        ).fetchone()
        if dropped is None:
            return
        prefix = (name, dropped)
        kept = dict(
            self._db.execute(
                f"SELECT number, sign * net > 0 AND position <= abs(net) FROM ({_PREFIX})", prefix
            ).fetchall()
        )
        (count,) = self._db.execute("SELECT count(*) FROM elements WHERE name = ? AND number <= ?", prefix).fetchone()
        if len(kept) < count:
            # Damaged rows are evidence, and what holds is not known without them.
            return
        held = [] if step.is_stream else sorted(number for number, is_held in kept.items() if is_held)
        # Numbers that no reader knows: one that has others would not notice what was dropped meanwhile.
        used = self._db.execute("SELECT held_from FROM retentions WHERE name = ?", (_NUMBERS,)).fetchone()
        start = (0 if used is None else used[0]) - len(held)
        self._db.executemany(
            "UPDATE elements SET number = ? WHERE number = ?",
            [(start + position, number) for position, number in enumerate(held)],
        )
        upto = start + len(held) - 1
        self._db.execute(
            "DELETE FROM elements WHERE name = ? AND number <= ? AND NOT number BETWEEN ? AND ?", (*prefix, start, upto)
        )
        self._db.execute(
            "UPDATE retentions SET dropped = ?, held_from = ?, held_upto = ? WHERE name = ?",
            (dropped, start, upto, name),
        )
        self._db.execute(
            "INSERT INTO retentions (name, kept_ns, held_from) VALUES (?, ?, ?) "
            "ON CONFLICT (name) DO UPDATE SET held_from = excluded.held_from",
            (_NUMBERS, START, start),
        )

    def find_tap(self, name: str) -> bytes | None:
        """Return what a query over a tap kept with its last step; None before the first."""
        with self._lock_for_reading():
            row = self._db.execute("SELECT content FROM valid_taps WHERE name = ?", (name,)).fetchone()
        return None if row is None else bytes(row[0])

    def record(self, name: str) -> "StoredRecord":
        """Return what is kept of the evaluation of a query."""
        return StoredRecord(self, name)

    def find_state(self, name: str, at_ns: int) -> tuple[int, bytes] | None:
        """Return the state of a query with the greatest heartbeat up to an instant."""
        with self._lock_for_reading():
            row = self._db.execute(
                "SELECT heartbeat_ns, state FROM valid_states WHERE name = ? AND heartbeat_ns <= ? "
                "ORDER BY heartbeat_ns DESC LIMIT 1",
                (name, at_ns),
            ).fetchone()
        return None if row is None else (row[0], row[1])

    def list_states(self, name: str) -> list[int]:
        """Return the heartbeats of the states of a query."""
        with self._lock_for_reading():
            rows = self._db.execute("SELECT heartbeat_ns FROM states WHERE name = ?", (name,)).fetchall()
        return [row[0] for row in rows]

    def count_given(self, name: str, window: Window, *, upto: int = GREATEST_INTEGER) -> Counter[tuple[int, Row]]:
        """Return how many more of each row entered than left at each instant of a window.

        Parameters
        ----------
        upto
            Number of the last element that counts.
        """
        with self._lock_for_reading():
            rows = self._db.execute(
                "SELECT tau_ns, content, sum(sign) FROM valid_elements WHERE name = ? AND tau_ns >= ? AND tau_ns < ? "
                "AND number <= ? GROUP BY tau_ns, content HAVING sum(sign) <> 0",
                (name, window.start_ns, window.stop_ns, upto),
            ).fetchall()
        counts = Counter[tuple[int, Row]]()
        for tau, content, count in rows:
            counts[tau, read_row(content)] += count
        return counts


@dataclass(frozen=True)
class StoredRecord:
    """What is kept of the evaluation of a query."""

    store: LiveStore
    name: str

    def find_heartbeat(self) -> int | None:
        """Return the heartbeat of the last step; None before the first."""
        return self.store.find(self.name).heartbeat_ns

    def find_kept(self) -> int:
        """Return the instant from which on results are kept; `START` if all are."""
        return self.store.find(self.name).retention.kept_ns

    def find_state(self, at_ns: int) -> tuple[int, bytes] | None:
        """Return the state with the greatest heartbeat up to an instant."""
        return self.store.find_state(self.name, at_ns)

    def list_states(self) -> Sequence[int]:
        """Return the heartbeats of all states, those that cannot be read included."""
        return self.store.list_states(self.name)

    def count_given(self, window: Window) -> Counter[tuple[int, Row]]:
        """Return how many more of each row entered than left at each instant of a window, corrections included."""
        return self.store.count_given(self.name, window)


def check_keep(keep_s: float | None) -> None:
    """Refuse times for which results cannot be kept.

    Raises
    ------
    InvalidQuery
        It is less than a day, or more than 500 years.
    """
    if keep_s is not None and not LEAST_KEEP_S <= keep_s <= LONGEST_KEEP_S:
        raise InvalidQuery(f"results can be kept for a day to 500 years, or always; got {keep_s:,g} s")


def _digest(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def open_store(archive: Path) -> LiveStore:
    """Open the live queries of an archive, creating the file if it is missing."""
    return LiveStore(archive / LIVE_FILE)


def has_store(archive: Path) -> bool:
    """Return whether an archive has a file of live queries."""
    return (archive / LIVE_FILE).exists()
