"""Standing queries of one archive: the interface of Python, the command line and the server."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, Self

from hypergrid.archive.disk.lock import try_lock
from hypergrid.core.errors import ArchiveConflict, InvalidQuery, InvalidTime, NotFound
from hypergrid.core.lazy_libraries import xr
from hypergrid.core.settings import Settings
from hypergrid.core.times import Window, format_instant, format_timestamp
from hypergrid.query import OpenArchive
from queries.continuous.kept import KeptQueries
from queries.jobs.records import NotReady
from queries.scheduling.strategies import make_opt_profit
from queries.scheduling.strategy import SchedulingStrategy
from queries.standing import incremental_tasks
from queries.standing.conditions import InResult
from queries.standing.dead_man import DeadMansSwitch
from queries.standing.definition import FOLLOWED, UNTITLED, Conflict, Definition, definition_from_json, name_document
from queries.standing.notifications import NotificationWorkers, make_senders, webhook_secret
from queries.standing.planning import refuse_large
from queries.standing.preview import AlertPreview, preview_alerts
from queries.standing.repository import (
    FILE,
    FOLDER,
    Alert,
    CatalogueUnavailable,
    EvaluationProgress,
    Remark,
    StandingEntry,
    StandingStore,
    TooManyStanding,
)
from queries.standing.runner import StandingRunner
from queries.standing.statistics import StandingStatistics, StandingUpdate

LOCK: Final = "lock"
"""Lock file beside the catalogue, held by the process that evaluates the standing queries."""
LONGEST_COMMENT: Final = 1000
"""Longest comment on an alert [characters]."""
UNDELIVERED: Final = 20
"""Undelivered alerts shown with a standing query, at most."""
_LOG: Final = logging.getLogger(__name__)


def standing_folder(archive: Path, settings: Settings) -> Path:
    return Path(settings.standing_folder) if settings.standing_folder else archive / FOLDER


class StandingQueries:
    """Create, inspect and run the standing queries of an archive.

    The catalogue is `ARCHIVE/standing/standing.sqlite`; results of queries with the target "archive" go to
    `ARCHIVE/standing/results/NAME/`, one NetCDF file a day.

    Parameters
    ----------
    archive
        What `hypergrid.open` returns.
    settings
        Allowed webhook hosts, and the mail server.
    clock
        Returns the time [ns since 1970 UTC].
    strategy
        Chooses what is computed next; OptProfit if None.
    folder
        Folder for catalogue and results, overriding the default.

    Examples
    --------
    ::

        with StandingQueries(hg.open("archive"), clock=time.time_ns) as standing:
            standing.add({"name": "frost", "query": {"variable": "air_temperature", "steps": []},
                          "condition": {"kind": "threshold", "below": "0 degC", "clear": "1 degC"}})
            standing.start()
    """

    def __init__(
        self,
        archive: OpenArchive,
        settings: Settings | None = None,
        *,
        clock: Callable[[], int],
        strategy: SchedulingStrategy | None = None,
        folder: Path | None = None,
    ) -> None:
        self._archive, self._settings, self._clock = archive, settings or Settings(), clock
        self._exit_stack = ExitStack()
        self.store = StandingStore((folder or standing_folder(archive.path, self._settings)) / FILE)
        strategy = strategy or make_opt_profit()
        self.kept = KeptQueries(archive)
        self.runner = StandingRunner(archive, self.store, strategy=strategy, clock=clock, kept=self.kept)
        self.notification_workers = NotificationWorkers(
            self.store, archive.name, make_senders(self._settings, self.store.path.parent)
        )

        self.dead_mans_switch = DeadMansSwitch(archive.path, self.store, self.runner, self._settings, clock=clock)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def webhook_secret(self) -> str:
        """Key that signs webhook messages, for their recipients (`DamagedState` if unreadable)."""
        return webhook_secret(self.store.path.parent)

    def add(self, document: Mapping[str, Any]) -> StandingEntry:
        """Create a standing query; it is durable on return.

        Raises
        ------
        HyperGridError
            The document is invalid (`definition_from_json`), uses an unknown name, or its own name is taken. A document
            with a title and without a name gets one that is free.
        """
        document = name_document(document, {entry.name for entry in self.store.entries()})
        definition, progress = self._prepare_definition(document)
        # The catalogue write is durable on return, so an acknowledged query survives a kill.
        return self.store.add(definition, progress, now_ns=self._clock(), maximum=self._settings.standing)

    @property
    def maximum(self) -> int:
        """How many standing queries there may be."""
        return self._settings.standing

    def check(self, document: Mapping[str, Any]) -> None:
        """Reject a document that `add` would, as far as that is known without what it follows; nothing is stored."""
        definition = definition_from_json(document, self._settings)
        taken = {entry.name for entry in self.store.entries()}
        if definition.name in taken:
            raise Conflict(
                f"a standing query {definition.name!r} is there already; remove it first, or choose another name"
            )
        if len(taken) >= self._settings.standing:
            raise TooManyStanding(
                f"there are {len(taken):,} standing queries, and the setting 'standing' allows "
                f"{self._settings.standing:,}; remove one that is not needed any more"
            )

    def replace(self, document: Mapping[str, Any]) -> StandingEntry:
        """Replace the definition of the named standing query; evaluation restarts from now.

        Paused and muted states are kept. Open alerts are raised again if the new definition still raises them.

        Raises
        ------
        HyperGridError
            The document is invalid (`definition_from_json`), or the name does not exist.
        """
        definition, progress = self._prepare_definition(document)
        return self.store.replace(definition, progress, now_ns=self._clock())

    def _prepare_definition(self, document: Mapping[str, Any]) -> tuple[Definition, EvaluationProgress]:
        """Validate a document; return its definition and initial progress, from the next change on."""
        definition = definition_from_json(document, self._settings)
        archive = self._archive.latest()
        if isinstance(definition.condition, InResult):
            self.kept.entry(definition.query[FOLLOWED])
            known = [name for name in archive.variables if archive.store.extent(name) is not None]
            newest = (incremental_tasks.newest_ns(archive.store, name) for name in known)
            return definition, EvaluationProgress(archive.snapshot, max(newest, default=0))
        surface = incremental_tasks.check_definition(definition, archive)
        if surface is not None:
            # Fail at creation rather than at every evaluation.
            refuse_large(definition.name, [surface])
        definition = incremental_tasks.resolve_definition(definition, archive)
        variable = str(definition.query["variable"])
        since_ns = (
            None if archive.store.extent(variable) is None else incremental_tasks.newest_ns(archive.store, variable)
        )
        return definition, EvaluationProgress(archive.snapshot, since_ns)

    def remove(self, name: str) -> None:
        """Delete a standing query; its results and alerts are kept."""
        self.store.remove(name)

    def pause(self, name: str) -> None:
        self.store.pause(name, paused=True)

    def resume(self, name: str) -> None:
        self.store.pause(name, paused=False)

    def mute(self, name: str, until_ns: int | None) -> None:
        """Record its alerts without delivering them until an instant [ns since 1970 UTC]; None: unmute.

        An alert that is still open when the mute ends is delivered then.

        Raises
        ------
        InvalidTime
            The instant is in the past, or after 2261.
        """
        if until_ns is not None and not (now_ns := self._clock()) < until_ns < 2**63:
            end = format_instant(until_ns) if until_ns < 2**63 else "a time after 2261"
            raise InvalidTime(
                f"a mute of {name!r} needs an end between now, {format_instant(now_ns)}, and 2261; got {end}; to tell "
                "again, end the mute instead"
            )
        self.store.mute(name, until_ns)

    def test(self, name: str) -> Alert:
        """Send a test alert through all delivery channels of a standing query."""
        entry = self.store.entry(name)
        body: dict[str, Any] = {
            "variable": entry.definition.query.get("variable"), "place": "nowhere", "rule": "test", "condition": None,
            "readings": [], "snapshot": self._archive.latest().snapshot, "late": False, "since": None, "until": None,
            "text": f"{name}: this is a test; nothing happened",
        }  # fmt: skip
        alert = self.store.add_alert(Alert(name, "test", body, self._clock()))
        self.notification_workers.wake()
        return alert

    def preview(self, document: Mapping[str, Any], window: Window | None = None) -> AlertPreview:
        """Evaluate a document's condition over past readings; nothing is stored or sent.

        Parameters and errors as for `preview_alerts`; the name of the document may be absent.
        """
        named = {"name": UNTITLED, **name_document(document, ())}
        definition = definition_from_json(named, self._settings)
        if isinstance(definition.condition, InResult):
            raise InvalidQuery(
                "the alert of a continuous query has no preview; run the query over past readings instead"
            )
        return preview_alerts(definition, self._archive.latest(), window)

    def remark(self, number: int, happening: Remark, *, author: str, comment: str = "") -> dict[str, Any]:
        """Acknowledge an alert, take that back, or comment on it; durable on return, and listed as an alert.

        Parameters
        ----------
        number
            Number of the alert.
        happening
            "acknowledged", "reopened" or "commented".
        author
            Name of the caller.
        comment
            Text of at most `LONGEST_COMMENT` characters; required if the alert is only commented on.

        Raises
        ------
        NotFound
            No alert has this number.
        InvalidQuery
            The comment is missing, too long or not printable; the alert is a remark, or has too many.
        """
        comment = comment.strip()
        if happening == "commented" and not comment:
            raise InvalidQuery("a comment needs a text; got none")
        if len(comment) > LONGEST_COMMENT:
            raise InvalidQuery(f"a comment has at most {LONGEST_COMMENT:,} letters; got {len(comment):,}; shorten it")
        if not all(line.isprintable() for line in comment.split("\n")):
            raise InvalidQuery("a comment has lines of printable letters; got control characters; leave them out")
        alert = self.store.alert(number)
        body = {name: alert.body.get(name) for name in ("variable", "place", "rule", "snapshot", "since", "until")}
        words = f"{alert.name} {happening} at {alert.body['place']} by {author}"
        body |= {"author": author, "comment": comment, "text": f"{words}: {comment}" if comment else words}
        return self._describe_alert(self.store.add_remark(Alert(alert.name, happening, body, self._clock()), number))

    def show(self, name: str) -> dict[str, Any]:
        document = entry_json(self.store.entry(name), self._clock(), self.store.remarks())
        return {**document, "undelivered": self.store.list_undelivered(name, limit=UNDELIVERED)}

    def listing(self) -> list[dict[str, Any]]:
        """Describe all standing queries as `show` does, without undelivered alerts, oldest first."""
        remarks = self.store.remarks()
        return [entry_json(entry, self._clock(), remarks) for entry in self.store.entries()]

    def alerts(
        self, *, name: str | None = None, after: int = 0, limit: int = 1000, newest: bool = False
    ) -> list[dict[str, Any]]:
        """List alerts and remarks with numbers above `after`, oldest first; the first ones, or the newest."""
        newer_alerts = self.store.alerts(name=name, after=after, limit=limit, newest=newest)
        return [self._describe_alert(alert) for alert in newer_alerts]

    def _describe_alert(self, alert: Alert) -> dict[str, Any]:
        return {**alert.to_json(self._archive.name), "at": format_timestamp(alert.at_ns), "muted": alert.muted}

    def latest(self, name: str) -> xr.Dataset:
        """Return the newest computed time cell of a standing query, in the format of `Query.compute`.

        Raises
        ------
        NotFound
            No standing query has this name.
        NotReady
            Nothing was computed since the process started, for example because the query is paused.
        """
        self.store.entry(name)
        try:
            return self.runner.latest(name)
        except NotFound as error:
            raise NotReady(f"standing query {name!r} is paused, or has not been evaluated yet") from error

    def statistics(self) -> StandingStatistics:
        return self.runner.statistics()

    def start(self) -> None:
        """Start evaluating all standing queries and delivering alerts, until `stop`.

        Raises
        ------
        ArchiveConflict
            Another process already does; the message names it.
        """
        self.dead_mans_switch.check()
        since = format_instant(self._clock())
        # Two processes would deliver every alert twice.
        try:
            self._exit_stack.enter_context(
                try_lock(
                    self.store.path.with_name(LOCK), f"process {os.getpid()} on {socket.gethostname()}, since {since}"
                )
            )
        except ArchiveConflict as held:
            raise ArchiveConflict(
                f"the standing queries of {self._archive.path} are kept up to date by {held}; two would tell every "
                "alert twice: end that process first, or serve another archive"
            ) from held

        def wake(update: StandingUpdate) -> None:
            if update.alerts:
                self.notification_workers.wake()

        self.runner.listen(wake)
        self.notification_workers.start()
        self.runner.start()
        self.dead_mans_switch.start()

    def stop(self) -> None:
        """Stop; interrupted or unrecorded evaluations are repeated after the next start."""
        self.dead_mans_switch.stop()
        try:
            self.runner.stop()
        except CatalogueUnavailable as error:
            _LOG.warning("how far standing queries came was not kept: %s", error)
        finally:
            self.notification_workers.stop()
            # After the workers, which still record the outcome of their deliveries.
            self.store.close()
            self.kept.close()
            self._exit_stack.close()


def entry_json(entry: StandingEntry, now_ns: int, remarks: Mapping[int, Sequence[Alert]]) -> dict[str, Any]:
    """Describe a standing query with its open episodes; `remarks` are those of all alerts, by number."""
    progress = entry.progress
    return {
        **entry.definition.to_json(),
        "created": format_timestamp(entry.created_ns),
        "paused": entry.paused,
        "muted_until": format_timestamp(entry.muted_until_ns or 0) if entry.is_muted(now_ns) else None,
        "snapshot": progress.snapshot,
        "judged": None if progress.judged_ns is None else format_timestamp(progress.judged_ns),
        "standing": [
            {
                **asdict(episode),
                "since": format_timestamp(episode.onset_ns),
                **_describe_remarks(remarks.get(episode.number or 0, ())),
            }
            for episode in progress.episodes
            if episode.cleared_ns is None
        ],
    }


def _describe_remarks(remarks: Sequence[Alert]) -> dict[str, Any]:
    """Say whether an alert is acknowledged, and list the remarks on it."""
    decisions = [remark.happening for remark in remarks if remark.happening != "commented"]
    return {
        "acknowledged": bool(decisions) and decisions[-1] == "acknowledged",
        "remarks": [
            {
                "happening": remark.happening,
                "at": format_timestamp(remark.at_ns),
                **{name: remark.body[name] for name in ("author", "comment")},
            }
            for remark in remarks
        ],
    }
