"""Catalogue of standing queries: one SQLite file beside the archive, durable before any acknowledgement.

The results of an evaluation (episodes, alerts, outbox messages) are committed in one transaction with the snapshot of
the evaluation. After a kill, an evaluation is either stored with its alerts, or repeated.

Rows that do not match their checksum are not read: a damaged standing query is not evaluated, a damaged alert or
message not sent.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, get_args

from hypergrid.archive.disk.row_checksums import DamagedState, Schema
from hypergrid.archive.disk.state_database import StateDatabase, StateKind
from hypergrid.core.errors import HyperGridError, InvalidQuery, NotFound, StoreUnavailable
from queries.standing.conditions import Episode, Happening
from queries.standing.definition import Conflict, Definition, DeliveryTarget, definition_from_json

FOLDER: Final = "standing"
"""Folder of an archive that holds the catalogue and the results."""
FILE: Final = "standing.sqlite"

_SCHEMA: Final = Schema(
    (
        """
CREATE TABLE queries (
    name TEXT PRIMARY KEY, document TEXT NOT NULL, created_ns INTEGER NOT NULL, paused INTEGER NOT NULL DEFAULT 0,
    muted_until_ns INTEGER, progress TEXT NOT NULL, checksum TEXT NOT NULL DEFAULT ''
) STRICT
""",
        """
CREATE TABLE alerts (
    number INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL, happening TEXT NOT NULL, at_ns INTEGER NOT NULL,
    muted INTEGER NOT NULL, body TEXT NOT NULL, checksum TEXT NOT NULL DEFAULT ''
) STRICT
""",
        """
CREATE TABLE letters (
    id INTEGER PRIMARY KEY AUTOINCREMENT, alert INTEGER NOT NULL, target TEXT NOT NULL, state TEXT NOT NULL,
    attempts INTEGER NOT NULL DEFAULT 0, error TEXT NOT NULL DEFAULT '', checksum TEXT NOT NULL DEFAULT ''
) STRICT
""",
        "CREATE INDEX alerts_of ON alerts (name, number)",
        "CREATE INDEX letters_open ON letters (state) WHERE state IN ('waiting', 'sending')",
    )
)

MessageState = Literal["waiting", "sending", "sent", "refused"]

Remark = Literal["acknowledged", "commented", "reopened"]
"""What a person does with an alert; stored as an alert of its own, whose body names the other one in "about"."""
REMARKS: Final[tuple[Remark, ...]] = get_args(Remark)
MAX_REMARKS: Final = 100
"""Remarks on one alert."""


class CatalogueDamaged(DamagedState):
    """The catalogue, or a row of it, cannot be read; the message names it."""


class TooManyStanding(InvalidQuery):
    """The limit on standing queries is reached."""


class CatalogueUnavailable(StoreUnavailable):
    """The catalogue cannot be used now: locked, missing or disk full; the message says which."""


@dataclass(frozen=True)
class EvaluationProgress:
    """Evaluation progress of a standing query."""

    snapshot: str
    """Last snapshot whose changes were processed."""
    since_ns: int | None = None
    """Start of the first slice to evaluate [ns since 1970 UTC]; None: the archive was empty at creation."""
    judged_ns: int | None = None
    """Start of the last evaluated time cell [ns since 1970 UTC]."""
    episodes: tuple[Episode, ...] = ()
    """Open and recent episodes."""
    memory: Mapping[str, Any] = field(default_factory=dict)
    """Learned state of the condition, as plain JSON."""

    def to_text(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def from_text(cls, text: str) -> "EvaluationProgress":
        values = json.loads(text)
        return cls(**{**values, "episodes": tuple(Episode(**episode) for episode in values["episodes"])})


@dataclass(frozen=True)
class StandingEntry:
    """A standing query in the catalogue."""

    definition: Definition
    created_ns: int
    """[ns since 1970 UTC]"""
    paused: bool
    muted_until_ns: int | None
    """Until when alerts are recorded but not delivered [ns since 1970 UTC]."""
    progress: EvaluationProgress

    @property
    def name(self) -> str:
        return self.definition.name

    def is_muted(self, now_ns: int) -> bool:
        return self.muted_until_ns is not None and now_ns < self.muted_until_ns


@dataclass(frozen=True)
class Alert:
    """One event of an episode, as delivered: with readings, rule and snapshot; or a remark on such an event."""

    name: str
    """Name of the standing query."""
    happening: Happening | Literal["test"] | Remark
    body: Mapping[str, Any]
    """Content of the alert: "place", "rule", "readings", "snapshot", …; plain JSON."""
    at_ns: int
    """When it was detected [ns since 1970 UTC]."""
    muted: bool = False
    number: int = 0
    """Increases with every alert of the catalogue; 0: not stored yet."""

    def to_json(self, catalogue: str) -> dict[str, Any]:
        """Build the delivered document: the body and an id that retries share."""
        return {
            "id": f"{catalogue}-{self.number}", "number": self.number, "query": self.name,
            "happening": self.happening, **self.body,
        }  # fmt: skip


@dataclass(frozen=True)
class OutboxMessage:
    """An alert to be delivered to one target."""

    id: int
    alert: Alert
    target: DeliveryTarget
    attempts: int
    """Delivery attempts, including this one."""
    repeat: bool
    """Whether an earlier attempt may have arrived: it was interrupted by a kill or in transit."""


class WaitingAlert(NamedTuple):
    """The alert that has waited longest for its delivery."""

    name: str
    """Name of the standing query."""
    at_ns: int
    """When it was detected [ns since 1970 UTC]."""
    error: str
    """Why the last attempt failed; empty if there was none."""


@dataclass(frozen=True)
class EvaluationResult:
    """What an evaluation stores, in one transaction."""

    name: str
    progress: EvaluationProgress
    alerts: tuple[tuple[Alert, int | None], ...] = ()
    """Alerts, each with the index of its episode in the progress, or None; the episode gets the alert's number."""
    created_ns: int | None = None
    """Creation time of the evaluated query [ns since 1970 UTC]; None: the one that has the name now."""


class StandingStore(StateDatabase):
    """Catalogue of standing queries in a state database.

    Raises
    ------
    CatalogueDamaged
        The file is not such a catalogue.
    CatalogueUnavailable
        It cannot be used now; all methods may raise this.
    """

    kind = StateKind(
        _SCHEMA, "a catalogue of standing queries",
        "all standing queries, their alerts, and what was not sent yet are lost", CatalogueDamaged,
        CatalogueUnavailable, busy_s=30.0,
    )  # fmt: skip

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self._changes = 0
        # Creation times of removed queries, for names that are reused.
        self._removed: dict[str, int] = {}
        # Remarks by the alert that they are about, as far as they have been read; none is ever changed.
        self._remarks: dict[int, list[Alert]] = {}
        self._remarks_read = 0

    @property
    def version(self) -> tuple[int, int]:
        """Changes when a query is added, replaced, removed, paused, resumed or muted, by any process."""
        with self._lock_for_reading():
            self._require_same_file()
            # data_version changes only with writes of other connections, so own changes of queries are counted besides.
            return self._changes, self._db.execute("PRAGMA data_version").fetchone()[0]

    def add(
        self, definition: Definition, progress: EvaluationProgress, *, now_ns: int, maximum: int | None = None
    ) -> StandingEntry:
        """Store a new standing query.

        Raises
        ------
        Conflict
            The name is taken.
        TooManyStanding
            There are `maximum` already.
        """
        # Unique even if the clock stalls or steps back: `created_ns` distinguishes a query from its removed namesake.
        created_ns = max(now_ns, self._removed.get(definition.name, now_ns - 1) + 1)
        with self._transaction():
            if self._db.execute("SELECT 1 FROM queries WHERE name = ?", (definition.name,)).fetchone():
                raise Conflict(
                    f"a standing query {definition.name!r} is there already; remove it first, or choose a name"
                )
            count = self._db.execute("SELECT count(*) FROM queries").fetchone()[0]
            if maximum is not None and count >= maximum:
                raise TooManyStanding(
                    f"there are {count:,} standing queries, and the setting 'standing' allows {maximum:,}; remove one "
                    "that nobody needs any more"
                )
            self._db.execute(
                "INSERT INTO queries (name, document, created_ns, progress) VALUES (?, ?, ?, ?)",
                (definition.name, json.dumps(definition.to_json()), created_ns, progress.to_text()),
            )
            self._changes += 1
        return StandingEntry(definition, created_ns, paused=False, muted_until_ns=None, progress=progress)

    def replace(self, definition: Definition, progress: EvaluationProgress, *, now_ns: int) -> StandingEntry:
        """Replace the definition of a standing query; keep its alerts, paused and muted.

        Raises
        ------
        NotFound
            No standing query has this name.
        """
        name = definition.name
        with self._transaction():
            before = self._db.execute("SELECT created_ns FROM valid_queries WHERE name = ?", (name,)).fetchone()
            if before is None:
                raise self._unknown_error(name)
            # The runner may be computing the old definition: `created_ns` distinguishes the two.
            created_ns = max(now_ns, before[0] + 1)
            self._db.execute(
                "UPDATE queries SET document = ?, created_ns = ?, progress = ? WHERE name = ?",
                (json.dumps(definition.to_json()), created_ns, progress.to_text(), name),
            )
            self._changes += 1
            row = self._db.execute(f"{_ENTRIES} WHERE name = ?", (name,)).fetchone()
        return _entry_from_row(row)

    def remove(self, name: str) -> None:
        """Delete a standing query; its alerts are kept, and its pending messages cancelled."""
        with self._transaction():
            row = self._db.execute("DELETE FROM queries WHERE name = ? RETURNING created_ns", (name,)).fetchone()
            if row is None:
                raise self._unknown_error(name)
            self._removed[name] = row[0]
            self._changes += 1
            self._db.execute(
                "UPDATE letters SET state = 'refused', error = 'the standing query was removed' "
                "WHERE state = 'waiting' AND alert IN (SELECT number FROM alerts WHERE name = ?)",
                (name,),
            )

    def pause(self, name: str, *, paused: bool) -> None:
        """Pause or resume a standing query; on resume, changes made meanwhile are processed."""
        self._change("paused", int(paused), name)

    def mute(self, name: str, until_ns: int | None) -> None:
        """Record alerts without delivering them until an instant [ns since 1970 UTC]; None: unmute."""
        self._change("muted_until_ns", until_ns, name)

    def entry(self, name: str) -> StandingEntry:
        """Look up one standing query.

        Raises
        ------
        NotFound
            No standing query has this name.
        """
        with self._lock_for_reading():
            row = self._db.execute(f"{_ENTRIES} WHERE name = ?", (name,)).fetchone()
            if row is None:
                raise self._unknown_error(name)
            return _entry_from_row(row)

    def entries(self) -> list[StandingEntry]:
        """List the standing queries, oldest first."""
        with self._lock_for_reading():
            return [_entry_from_row(row) for row in self._db.execute(f"{_ENTRIES} ORDER BY row_id")]

    def keep(self, results: Sequence[EvaluationResult]) -> "list[tuple[EvaluationProgress, list[Alert]]]":
        """Store evaluation results, and a message per target of each unmuted alert, atomically.

        Returns, for each, the progress and the numbered alerts. Results of a query that was removed meanwhile are
        dropped, even if another query has taken its name.
        """
        kept: list[tuple[EvaluationProgress, list[Alert]]] = []
        with self._transaction():
            for result in results:
                row = self._db.execute(
                    "SELECT document FROM valid_queries WHERE name = ? AND created_ns = ifnull(?, created_ns)",
                    (result.name, result.created_ns),
                ).fetchone()
                kept.append(
                    (result.progress, []) if row is None else self._keep_result(result, _definition_from_text(row[0]))
                )
        return kept

    def _keep_result(self, result: EvaluationResult, definition: Definition) -> tuple[EvaluationProgress, list[Alert]]:
        numbered, episodes = [], list(result.progress.episodes)
        for alert, index in result.alerts:
            kept = self._insert_alert(alert, definition.to)
            numbered.append(kept)
            if index is not None and alert.happening == "raised" and not alert.muted:
                # A muted alert leaves the number empty: the episode counts as not reported, and is delivered after the
                # mute.
                episodes[index] = replace(episodes[index], number=kept.number)
        progress = replace(result.progress, episodes=tuple(episodes))
        self._db.execute("UPDATE queries SET progress = ? WHERE name = ?", (progress.to_text(), result.name))
        return progress, numbered

    def _insert_alert(self, alert: Alert, targets: Sequence[DeliveryTarget]) -> Alert:
        row = (alert.name, alert.happening, alert.at_ns, int(alert.muted), json.dumps(alert.body))
        columns = "name, happening, at_ns, muted, body"
        number = self._db.execute(f"INSERT INTO alerts ({columns}) VALUES (?, ?, ?, ?, ?)", row).lastrowid or 0
        if not alert.muted:
            self._db.executemany(
                "INSERT INTO letters (alert, target, state) VALUES (?, ?, 'waiting')",
                [(number, str(to)) for to in targets if to.channel in ("email", "webhook")],
            )
        return replace(alert, number=number)

    def add_alert(self, alert: Alert) -> Alert:
        """Store an alert without an episode, such as a test, with its outbox messages."""
        with self._transaction():
            row = self._db.execute("SELECT document FROM valid_queries WHERE name = ?", (alert.name,)).fetchone()
            if row is None:
                raise self._unknown_error(alert.name)
            return self._insert_alert(alert, _definition_from_text(row[0]).to)

    def add_remark(self, remark: Alert, about: int) -> Alert:
        """Store a remark on an alert; it goes to no recipient.

        Raises
        ------
        NotFound
            No alert has this number.
        InvalidQuery
            The alert is itself a remark, or has as many as it may have.
        """
        with self._transaction():
            alert = self._read_alert(about)
            if alert.happening in REMARKS:
                raise InvalidQuery(
                    f"alert {about} is itself a remark, on alert {alert.body['about']}; give that number instead"
                )
            self._read_remarks()
            if len(self._remarks.get(about, ())) >= MAX_REMARKS:
                raise InvalidQuery(f"alert {about} has {MAX_REMARKS} remarks already, and may have no more")
            return self._insert_alert(replace(remark, body={**remark.body, "about": about}), ())

    def alert(self, number: int) -> Alert:
        """Look up one alert.

        Raises
        ------
        NotFound
            No alert has this number.
        """
        with self._lock_for_reading():
            return self._read_alert(number)

    def _read_alert(self, number: int) -> Alert:
        row = self._db.execute(f"{_ALERTS} WHERE number = ?", (number,)).fetchone()
        if row is None:
            raise NotFound(f"no alert has the number {number}; 'standing/alerts' lists those that there are")
        return _alert_from_row(*row)

    def remarks(self) -> dict[int, list[Alert]]:
        """Return the remarks by the number of the alert that they are about, oldest first."""
        with self._lock_for_reading():
            self._read_remarks()
            return {number: list(remarks) for number, remarks in self._remarks.items()}

    def _read_remarks(self) -> None:
        """Read the remarks that were stored since the last time, by any process."""
        # First: what another process stores between the two statements is read the next time.
        newest = self._db.execute("SELECT max(number) FROM alerts").fetchone()[0] or 0
        if newest <= self._remarks_read:
            return
        marks = ", ".join("?" * len(REMARKS))
        # From the table: the view computes the checksum of each row that it passes.
        numbers = self._db.execute(
            f"SELECT number FROM alerts WHERE number > ? AND number <= ? AND happening IN ({marks})",
            (self._remarks_read, newest, *REMARKS),
        ).fetchall()
        for number in numbers:
            # A damaged row is left out.
            for row in self._db.execute(f"{_ALERTS} WHERE number = ?", number):
                remark = _alert_from_row(*row)
                self._remarks.setdefault(int(remark.body["about"]), []).append(remark)
        self._remarks_read = newest

    def alerts(
        self, *, name: str | None = None, after: int = 0, limit: int = 1000, newest: bool = False
    ) -> list[Alert]:
        """List up to `limit` alerts numbered above `after`, oldest first; `name` restricts the query.

        `newest` selects the last ones, if there are more than `limit`; otherwise the first.
        """
        where, values = ("number > ?", [after]) if name is None else ("name = ? AND number > ?", [name, after])
        order = "DESC" if newest else "ASC"
        with self._lock_for_reading():
            rows = self._db.execute(f"{_ALERTS} WHERE {where} ORDER BY number {order} LIMIT ?", (*values, limit))
            listed = [_alert_from_row(*row) for row in rows]
        return listed[::-1] if newest else listed

    def recover(self) -> int:
        """Requeue messages left in state "sending" by a dead process; return how many."""
        with self._transaction():
            # Marked apart: whether such a message arrived is unknown.
            return self._db.execute(
                "UPDATE letters SET state = 'waiting', error = 'cut short; it may have arrived' WHERE state = 'sending'"
            ).rowcount

    def list_waiting(self, *, excluded: Sequence[str] = (), limit: int = 50) -> list[tuple[int, DeliveryTarget]]:
        """List waiting messages, oldest first, as ids and targets, without those to excluded targets."""
        marks = ", ".join("?" * len(excluded))
        with self._lock_for_reading():
            statement = f"SELECT id, target FROM valid_letters WHERE state = 'waiting' AND target NOT IN ({marks})"
            rows = self._db.execute(f"{statement} ORDER BY id LIMIT ?", (*excluded, limit))
            return [(int(id_), _target_from_text(text)) for id_, text in rows]

    def mark_sending(self, letter: int) -> OutboxMessage | None:
        """Mark a message as being sent, durably, and return it; None if not waiting."""
        with self._transaction():
            taken = self._db.execute(
                "UPDATE letters SET state = 'sending', attempts = attempts + 1 WHERE id = ? AND state = 'waiting' "
                "RETURNING alert, target, attempts",
                (letter,),
            ).fetchone()
            if taken is None:
                return None
            row = self._db.execute(f"{_ALERTS} WHERE number = ?", (taken[0],)).fetchone()
            if row is None:
                self._db.execute(
                    "UPDATE letters SET state = 'refused', error = 'its alert is damaged' WHERE id = ?", (letter,)
                )
                return None
            return OutboxMessage(
                letter, _alert_from_row(*row), _target_from_text(taken[1]), taken[2], repeat=taken[2] > 1
            )

    def mark_sent(self, letter: int, state: MessageState, error: str = "") -> None:
        """Record how sending ended: "sent", "refused" for good, or "waiting" for a retry."""
        with self._transaction():
            self._db.execute("UPDATE letters SET state = ?, error = ? WHERE id = ?", (state, error, letter))

    def count_messages(self) -> dict[str, int]:
        with self._lock_for_reading():
            return dict(self._db.execute("SELECT state, count(*) FROM valid_letters GROUP BY state").fetchall())

    def find_oldest_waiting(self) -> WaitingAlert | None:
        """Return the alert that has waited longest for its delivery; None if none waits."""
        with self._lock_for_reading():
            row = self._db.execute(
                "SELECT name, at_ns, error FROM letters JOIN alerts ON number = alert "
                "WHERE state IN ('waiting', 'sending') ORDER BY id LIMIT 1"
            ).fetchone()
        return None if row is None else WaitingAlert(*row)

    def list_undelivered(self, name: str, *, limit: int) -> list[dict[str, Any]]:
        """List the latest undelivered messages of a standing query, oldest first.

        Each has the number of the alert, its target, its state, the number of attempts and the last error.
        """
        columns = ("number", "to", "state", "attempts", "error")
        with self._lock_for_reading():
            rows = self._db.execute(
                "SELECT alert, target, state, attempts, error FROM valid_letters WHERE state <> 'sent' "
                "AND alert IN (SELECT number FROM valid_alerts WHERE name = ?) ORDER BY id DESC LIMIT ?",
                (name, limit),
            ).fetchall()
        return [dict(zip(columns, row, strict=True)) for row in reversed(rows)]

    def suspend(self, reason: str) -> tuple[int, int]:
        """Pause all standing queries and cancel waiting messages; return the counts of both."""
        with self._transaction():
            paused = self._db.execute("UPDATE queries SET paused = 1 WHERE paused = 0").rowcount
            refused = self._db.execute(
                "UPDATE letters SET state = 'refused', error = ? WHERE state IN ('waiting', 'sending')", (reason,)
            ).rowcount
            self._changes += 1
        return paused, refused

    def _change(self, column: Literal["paused", "muted_until_ns"], value: int | None, name: str) -> None:
        with self._transaction():
            if self._db.execute(f"UPDATE queries SET {column} = ? WHERE name = ?", (value, name)).rowcount == 0:
                raise self._unknown_error(name)
            self._changes += 1

    def _unknown_error(self, name: str) -> HyperGridError:
        if self._db.execute("SELECT 1 FROM queries WHERE name = ?", (name,)).fetchone():
            return CatalogueDamaged(
                f"the standing query {name!r} is damaged in {self.path}, and is not evaluated; remove it, and make it "
                "anew"
            )
        existing = [row[0] for row in self._db.execute("SELECT name FROM valid_queries")]
        return NotFound.among(kind="standing query", given=name, existing=existing)


_ENTRIES: Final = "SELECT document, created_ns, paused, muted_until_ns, progress FROM valid_queries"
_ALERTS: Final = "SELECT number, name, happening, at_ns, muted, body FROM valid_alerts"


def _entry_from_row(row: tuple[Any, ...]) -> StandingEntry:
    document, created_ns, paused, muted_until_ns, progress = row
    return StandingEntry(
        _definition_from_text(document),
        created_ns,
        bool(paused),
        muted_until_ns,
        EvaluationProgress.from_text(progress),
    )


def _definition_from_text(text: str) -> Definition:
    # Allowed hosts are checked at creation and again before sending.
    return definition_from_json(json.loads(text), settings=None)


def _target_from_text(text: str) -> DeliveryTarget:
    channel, _, address = text.partition(":")
    return DeliveryTarget(channel, address)  # type: ignore[arg-type]


def _alert_from_row(number: int, name: str, happening: str, at_ns: int, muted: int, body: str) -> Alert:
    return Alert(name, happening, json.loads(body), at_ns, bool(muted), number)  # type: ignore[arg-type]
