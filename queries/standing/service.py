"""Standing queries of one archive, as Python, the command line and the server hold them."""

import logging
import os
import socket
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path
from typing import Any, Final, Self

import xarray as xr

from hypergrid.archive.disk.lock import try_lock
from hypergrid.core.errors import ArchiveConflict, InvalidTime, NotFound
from hypergrid.core.settings import Settings
from hypergrid.core.times import format_instant, format_timestamp
from hypergrid.query import OpenArchive
from queries.jobs.records import NotReady
from queries.standing import incremental_tasks
from queries.standing.definition import Definition, definition_from_json
from queries.standing.notifications import NotificationWorkers, make_senders, webhook_secret
from queries.standing.planning import refuse_large
from queries.standing.repository import (
    FILE,
    FOLDER,
    Alert,
    CatalogueUnavailable,
    EvaluationProgress,
    StandingEntry,
    StandingStore,
)
from queries.standing.runner import StandingRunner
from queries.standing.statistics import StandingStatistics, StandingUpdate

LOCK: Final = "lock"
"""File beside the catalogue that is held by the process that keeps its standing queries up to date."""
UNDELIVERED: Final = 20
"""Alerts that have not arrived which are shown with a standing query."""
_LOG: Final = logging.getLogger(__name__)


def standing_folder(archive: Path, settings: Settings) -> Path:
    """Return where the standing queries of an archive are kept."""
    return Path(settings.standing_folder) if settings.standing_folder else archive / FOLDER


class StandingQueries:
    """Makes, shows and runs the standing queries of an archive.

    They are kept in `ARCHIVE/standing/standing.sqlite`; results of those with "archive" among their targets go to
    `ARCHIVE/standing/results/NAME/`, a NetCDF file a day.

    Parameters
    ----------
    archive
        What `hypergrid.open` returns.
    settings
        Allowed hosts of webhooks, and the mail server.
    clock
        Returns the time [ns since 1970 UTC].
    strategy
        Name of a strategy of `queries.scheduling.strategies`.
    folder
        Where catalogue and results are kept instead.

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
        strategy: str = "opt-profit",
        folder: Path | None = None,
    ) -> None:
        self._archive, self._settings, self._clock = archive, settings or Settings(), clock
        self._exit_stack = ExitStack()
        self.store = StandingStore((folder or standing_folder(archive.path, self._settings)) / FILE)
        self.runner = StandingRunner(archive, self.store, strategy=strategy, clock=clock)
        self.notification_workers = NotificationWorkers(
            self.store, archive.name, make_senders(self._settings, self.store.path.parent)
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def webhook_secret(self) -> str:
        """What letters to webhooks are signed with, for those who receive them (`DamagedState`: it cannot be read)."""
        return webhook_secret(self.store.path.parent)

    @property
    def results(self) -> Path:
        """Folder that results go to, one a query."""
        return self.runner.folder

    def add(self, document: Mapping[str, Any]) -> StandingEntry:
        """Make a standing query; it is on the disk when this returns.

        Raises
        ------
        HyperGridError
            Something in the document does not fit (`definition_from_json`), a name that does not exist, or is taken.
        """
        definition, progress = self._prepare_definition(document)
        return self.store.add(definition, progress, now_ns=self._clock(), maximum=self._settings.standing)

    def replace(self, document: Mapping[str, Any]) -> StandingEntry:
        """Give the standing query of the document's name what the document says; it is evaluated from now on.

        Whether it is paused or muted stays. Alerts that stand are found anew, if they are any under what it says now.

        Raises
        ------
        HyperGridError
            Something in the document does not fit (`definition_from_json`), or a name that does not exist.
        """
        definition, progress = self._prepare_definition(document)
        return self.store.replace(definition, progress, now_ns=self._clock())

    def _prepare_definition(self, document: Mapping[str, Any]) -> tuple[Definition, EvaluationProgress]:
        """Return what a document says, and where its evaluation begins: with what comes next."""
        definition = definition_from_json(document, self._settings)
        archive = self._archive.latest()
        surface = incremental_tasks.check_definition(definition, archive)
        if surface is not None:
            refuse_large(definition.name, [surface])
        variable = str(definition.query["variable"])
        since_ns = (
            None if archive.store.extent(variable) is None else incremental_tasks.newest_ns(archive.store, variable)
        )
        return definition, EvaluationProgress(archive.snapshot, since_ns)

    def remove(self, name: str) -> None:
        """Forget a standing query; its results and alerts stay."""
        self.store.remove(name)

    def pause(self, name: str) -> None:
        """Have a standing query evaluated no more."""
        self.store.pause(name, paused=True)

    def resume(self, name: str) -> None:
        """Have it evaluated again, from what has come meanwhile on."""
        self.store.pause(name, paused=False)

    def mute(self, name: str, until_ns: int | None) -> None:
        """Keep its alerts, but tell nobody, until an instant [ns since 1970 UTC]; None: tell again.

        Of an alert that still stands when the mute ends those who are to be told are told then.

        Raises
        ------
        InvalidTime
            The instant is past, or lies after 2261.
        """
        if until_ns is not None and not (now_ns := self._clock()) < until_ns < 2**63:
            end = format_instant(until_ns) if until_ns < 2**63 else "a time after 2261"
            message = (
                f"a mute of {name!r} needs an end between now, {format_instant(now_ns)}, and 2261; got {end}; to tell "
                "again, end the mute instead"
            )
            raise InvalidTime(message)
        self.store.mute(name, until_ns)

    def test(self, name: str) -> Alert:
        """Send an alert that says that it is a test the way that others go."""
        entry = self.store.entry(name)
        body = {
            "variable": entry.definition.query["variable"], "place": "nowhere", "rule": "test", "condition": None,
            "readings": [], "snapshot": self._archive.latest().snapshot, "late": False, "since": None, "until": None,
            "text": f"{name}: this is a test; nothing happened",
        }  # fmt: skip
        alert = self.store.add_alert(Alert(name, "test", body, self._clock()))
        self.notification_workers.wake()
        return alert

    def show(self, name: str) -> dict[str, Any]:
        """Return all that is known of a standing query, as JSON values, with alerts that have not arrived lately."""
        document = entry_json(self.store.entry(name), self._clock())
        return {**document, "undelivered": self.store.list_undelivered(name, limit=UNDELIVERED)}

    def listing(self) -> list[dict[str, Any]]:
        """Return all standing queries as `show` does, but for what has not arrived, oldest first."""
        return [entry_json(entry, self._clock()) for entry in self.store.entries()]

    def alerts(self, *, name: str | None = None, after: int = 0, limit: int = 1000) -> list[dict[str, Any]]:
        """Return alerts with numbers above `after`, oldest first."""
        newer_alerts = self.store.alerts(name=name, after=after, limit=limit)
        return [
            {**alert.to_json(self._archive.name), "at": format_timestamp(alert.at_ns), "muted": alert.muted}
            for alert in newer_alerts
        ]

    def latest(self, name: str) -> xr.Dataset:
        """Return the newest time cell of a standing query that was computed, as `Query.compute` returns results.

        Raises
        ------
        NotFound
            There is no standing query of this name.
        NotReady
            Nothing of it was computed since the process began, as of one that is paused.
        """
        self.store.entry(name)
        try:
            return self.runner.latest(name)
        except NotFound as error:
            message = f"standing query {name!r} is paused, or has not been evaluated yet"
            raise NotReady(message) from error

    def statistics(self) -> StandingStatistics:
        """Return what the runner holds and did."""
        return self.runner.statistics()

    def start(self) -> None:
        """Keep all standing queries up to date, and send alerts, until `stop`.

        Raises
        ------
        ArchiveConflict
            Another process does; the message names it. Two would tell every alert twice.
        """
        since = format_instant(self._clock())
        try:
            self._exit_stack.enter_context(
                try_lock(
                    self.store.path.with_name(LOCK), f"process {os.getpid()} on {socket.gethostname()}, since {since}"
                )
            )
        except ArchiveConflict as held:
            message = (
                f"the standing queries of {self._archive.path} are kept up to date by {held}; two would tell every "
                "alert twice: end that process first, or serve another archive"
            )
            raise ArchiveConflict(message) from held

        def wake(update: StandingUpdate) -> None:
            if update.alerts:
                self.notification_workers.wake()

        self.runner.listen(wake)
        self.notification_workers.start()
        self.runner.start()

    def stop(self) -> None:
        """End; what was being computed, or could not be written down, is computed again after the next start."""
        try:
            self.runner.stop()
        except CatalogueUnavailable as error:
            _LOG.warning("how far standing queries came was not kept: %s", error)
        finally:
            self.notification_workers.stop()
            self.store.close()
            self._exit_stack.close()


def entry_json(entry: StandingEntry, now_ns: int) -> dict[str, Any]:
    """Return a standing query with how it stands, as JSON values."""
    progress = entry.progress
    return {
        **entry.definition.to_json(),
        "created": format_timestamp(entry.created_ns),
        "paused": entry.paused,
        "muted_until": format_timestamp(entry.muted_until_ns or 0) if entry.is_muted(now_ns) else None,
        "snapshot": progress.snapshot,
        "standing": [asdict(episode) for episode in progress.episodes if episode.cleared_ns is None],
    }
