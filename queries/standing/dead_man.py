"""Dead-man's switch: a heartbeat that stops when alerting itself is silent.

Alerts that do not come look like quiet. So as long as each standing query is evaluated, alerts are delivered, and
queries over the tap keep up, a heartbeat goes to an address outside, which warns when it hears none. It goes the way of
alerts, signed and to allowed hosts only, but is never kept for later: a heartbeat that is late says nothing.
"""

import logging
import re
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from hypergrid.continuous.tap_status import find_tap_trouble
from hypergrid.core.settings import Settings
from hypergrid.core.times import SECOND_NS, format_timestamp
from queries.standing.definition import check_webhook
from queries.standing.notifications import send_webhook, webhook_secret
from queries.standing.repository import StandingStore
from queries.standing.runner import StandingRunner

EVERY_S: Final = 60.0
"""Interval of heartbeats [s]."""
LATE_S: Final = 300.0
"""Time for which a query may wait for its evaluation, or fail, before its alerts count as silent [s]."""
SILENT_S: Final = 120.0
"""Time without a sign of the runner after which it counts as stuck [s]."""
UNDELIVERED_S: Final = 300.0
"""Age of an alert that is not delivered yet, after which delivery counts as silent [s]."""
_AGE: Final = re.compile(r"\b\d+ s\b")
_LOG: Final = logging.getLogger(__name__)


class DeadMansSwitch:
    """Tells whether alerting works, and sends heartbeats while it does.

    Parameters
    ----------
    archive
        Folder of the archive.
    store
        The catalogue of standing queries, with the alerts to deliver.
    runner
        What evaluates them.
    settings
        Address of heartbeats, and allowed hosts.
    clock
        Returns the time [ns since 1970 UTC].
    monotonic
        Monotonic clock [s].
    """

    def __init__(
        self,
        archive: Path,
        store: StandingStore,
        runner: StandingRunner,
        settings: Settings,
        *,
        clock: Callable[[], int],
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._archive, self._store, self._runner, self._settings = archive, store, runner, settings
        self._clock, self._monotonic = clock, monotonic
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._known = self._failure = ""
        self._logging = threading.Lock()
        # What waited before has its time to be delivered by this server, too.
        self._began_ns = clock()
        self.sent = 0
        """Heartbeats that arrived."""

    def check(self) -> None:
        """Reject an address that is no webhook, or whose host is not allowed (`InvalidQuery`)."""
        if self._settings.heartbeat_url:
            check_webhook(self._settings.heartbeat_url, self._settings.webhook_hosts, "the heartbeat")

    def start(self) -> None:
        """Send heartbeats, if the settings have an address for them."""
        if self._thread is None and self._settings.heartbeat_url:
            self._thread = threading.Thread(target=self._run, name="heartbeat", daemon=True)
            self._thread.start()

    def stop(self, timeout_s: float = 2.0) -> None:
        """Send no more."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(timeout_s)

    def find_trouble(self) -> str:
        """Return why alerts are not raised or not delivered now; empty if they are. It never fails.

        Each trouble is logged once, and its end, by any number of callers.
        """
        try:
            trouble = self._examine()
        except Exception as error:  # noqa: BLE001 - what fails here is trouble of alerting, and must not end its callers
            trouble = f"alerting cannot be examined: {str(error) or type(error).__name__}"
        # A trouble that lasts is the same one at any age.
        key = _AGE.sub("", trouble)
        with self._logging:
            if key != self._known:
                _LOG.log(logging.ERROR if trouble else logging.WARNING, "alerting: %s", trouble or "well again")
            self._known = key
        return trouble

    def _examine(self) -> str:
        silent_s = self._monotonic() - self._runner.beat_s
        if self._runner.is_started and silent_s > SILENT_S:
            return f"standing queries have not been evaluated for {silent_s:.0f} s"
        if trouble := self._runner.statistics().trouble:
            return f"standing queries cannot be kept up to date: {trouble}"
        if late := self._runner.find_late(LATE_S):
            return late
        oldest = self._store.find_oldest_waiting()
        if oldest is not None:
            waited_s = (self._clock() - max(oldest.at_ns, self._began_ns)) / SECOND_NS
            if waited_s > UNDELIVERED_S:
                reason = f": {oldest.error}" if oldest.error else ""
                return f"an alert of {oldest.name!r} has not been delivered for {waited_s:.0f} s{reason}"
        return find_tap_trouble(self._archive, self._clock())

    def _run(self) -> None:
        while not self._stop.is_set():
            self.beat()
            self._stop.wait(EVERY_S)

    def beat(self) -> bool:
        """Send a heartbeat unless alerting is silent; return whether it arrived."""
        if self.find_trouble():
            return False
        failure = ""
        try:
            self._send()
        except Exception as error:  # noqa: BLE001 - an address that does not answer must not end the thread
            failure = str(error) or type(error).__name__
        # Only changes are logged, not every heartbeat.
        if failure != self._failure:
            _LOG.log(logging.ERROR if failure else logging.WARNING, "heartbeat: %s", failure or "sent again")
        self._failure = failure
        self.sent += not failure
        return not failure

    def _send(self) -> None:
        now_ns = self._clock()
        body: dict[str, Any] = {
            "id": f"heartbeat-{now_ns}", "happening": "heartbeat", "at": format_timestamp(now_ns),
            "every_s": EVERY_S, "possible_repeat": False,
        }  # fmt: skip
        settings = self._settings
        secret = webhook_secret(self._store.path.parent)
        send_webhook(settings.heartbeat_url, body, settings.webhook_hosts, secret)
