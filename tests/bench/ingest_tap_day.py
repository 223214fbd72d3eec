"""A day of a network through the tap, as fast as it goes: disorder, kills, a heavy query, a webhook out of reach.

Messages are put into the spool with simulated stamps and arrivals; evaluation and server are the programs of users.
"""

import signal
import tempfile
import time
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from hypergrid.continuous.live import LiveOptions, LiveStore, add_tap_query, open_store
from hypergrid.continuous.tap_status import read_status
from hypergrid.core.settings import Settings
from hypergrid.core.times import SECOND_NS
from ingest.sources.spool import Spool, SpoolRecord
from ingest.streaming.stream_commit import SPOOL
from queries.standing.service import StandingQueries
from tests.bench.ingest_tap import ALERT, HEAVY, HOT, QUIET, find_deliveries, judge_alerts, read_logs
from tests.bench.kriging_figures import Tell
from tests.ingest.brokers import wait_until
from tests.support.tap_alerts import Webhook, server, watcher
from tests.support.tap_networks import create_network, record

BEHIND = 2
"""Steps that evaluation may be behind: what is late must not be read together with what it is later than."""


@dataclass(frozen=True)
class TapDay:
    """A simulated network."""

    hours: float = 24.0
    stations: int = 1000
    every_s: float = 10.0
    step_s: float = 60.0
    """Simulated time whose messages arrive at once."""
    crossings: int = 400
    late_share: float = 0.1
    late_s: float = 300.0
    """By how much messages are late at most; planted readings, too."""
    kills: int = 20
    outages: int = 3
    """How often the webhook is out of reach."""
    outage_share: float = 1 / 12
    """How long each time, as a share of the day."""
    longest_s: float | None = None
    """Time after which nothing more is sent [s]; what was sent by then is the day."""
    start_ns: int = 1_700_000_000 * SECOND_NS


def measure(day: TapDay, notify: Tell) -> dict[str, Any]:
    """Return what was lost, repeated or out of order."""
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        return _run(Path(name), day, notify, stack)


def _run(folder: Path, day: TapDay, notify: Tell, stack: ExitStack) -> dict[str, Any]:
    webhook = Webhook().start()
    stack.callback(webhook.stop)
    archive = folder / "archive"
    opened = create_network(archive, stations=day.stations, now_ns=day.start_ns)
    for name, text in (("hot", ALERT), ("heavy", HEAVY)):
        add_tap_query(opened, name, text, LiveOptions(day.start_ns, 60.0)).close()
    with StandingQueries(opened, Settings(webhook_hosts=("127.0.0.1",)), clock=time.time_ns) as standing:
        standing.add(
            {
                "name": "hot", "query": {"continuous": "hot"}, "to": [f"webhook:{webhook.url}"],
                "condition": {"kind": "continuous", "quiet": QUIET},
            }
        )  # fmt: skip
    programs = [watcher(archive), server(archive)]
    for program in programs:
        program.start()
        stack.callback(program.end, signal.SIGKILL)
    wait_until(lambda: "ready" in (folder / "server.log").read_text())
    steps = round(day.hours * 3600 / day.step_s)
    kills = {round(steps * (number + 0.5) / day.kills): number for number in range(day.kills)}
    starts = [round(steps * (number + 0.3) / day.outages) for number in range(day.outages)]
    ends_of = {start + max(1, round(steps * day.outage_share)) for start in starts}
    outages: list[list[int]] = []
    killed = step = 0
    begun_s = time.monotonic()
    store = open_store(archive)
    stack.callback(store.close)
    ends: list[int] = []
    made = _StepsOfDay(day, steps)
    with Spool.open(archive / SPOOL) as spool:
        while step < steps:
            is_last = step + 1 == steps or _is_over(day, begun_s)
            spool.append(made.take(step, is_last=is_last))
            spool.flush()
            ends.append(spool.durable)
            wait_until(lambda: len(ends) <= BEHIND or _find_position(store) >= ends[-1 - BEHIND], within_s=600.0)
            if step in kills:
                programs[kills[step] % 2].restart()
                killed += 1
            if step in starts:
                webhook.stop()
                outages.append([time.time_ns()])
            if step in ends_of:
                outages[-1].append(time.time_ns())
                webhook.start()
            step += 1
            notify("tap, a day", step / steps)
            if is_last:
                break
        last = spool.durable
    sent_s = time.monotonic() - begun_s
    if outages and len(outages[-1]) == 1:
        outages[-1].append(time.time_ns())
        webhook.start()
    wait_until(lambda: _find_position(store) == last, within_s=900.0)
    taken_s = time.monotonic() - begun_s
    planted = made.planted
    # A target that failed rests for at most a quarter of an hour.
    until = time.monotonic() + 1000.0
    while len(webhook.alerts()) < len(planted) and time.monotonic() < until:
        time.sleep(0.2)
    time.sleep(2.0)
    late = {entry.name: entry.late for entry in store.list_entries()}
    status = read_status(archive)
    assert all(program.is_running for program in programs), read_logs(folder)
    simulated_s = step * day.step_s
    judged = judge_alerts(webhook, planted)
    return {
        **judged, "records": last, "late": late, "ignored": None if status is None else status.ignored,
        "simulated [h]": round(simulated_s / 3600, 2), "kills": killed, "outages": len(outages),
        "backlog": _count_backlog(webhook, planted, outages),
        "sent [s]": round(sent_s, 1), "taken [s]": round(taken_s, 1), "rate": round(simulated_s / taken_s, 1),
        "seconds": round(time.monotonic() - begun_s, 1), "log": read_logs(folder),
    }  # fmt: skip


def _is_over(day: TapDay, begun_s: float) -> bool:
    return day.longest_s is not None and time.monotonic() - begun_s >= day.longest_s


def _count_backlog(webhook: Webhook, planted: dict[tuple[str, int], int], outages: list[list[int]]) -> int:
    """Return the number of readings that were planted during an outage, and delivered after its end."""
    delivered = find_deliveries(webhook, planted)
    return sum(begin <= planted[key] < end <= at_ns for begin, end in outages for key, at_ns in delivered.items())


def _find_position(store: LiveStore) -> int:
    """Return the last record that all queries took."""
    return min(int((entry.snapshot or "-0").rpartition("-")[2]) for entry in store.list_entries())


class _StepsOfDay:
    """The messages of each step in the order of their arrival, and those of them that are planted."""

    def __init__(self, day: TapDay, steps: int) -> None:
        self._day = day
        self._rng = np.random.default_rng(11)
        self._waiting: list[tuple[int, int, float]] = []
        self._size = round(day.step_s / day.every_s * day.stations)
        self._every = max(1, steps * self._size // day.crossings)
        self._number = 0
        self.planted: dict[tuple[str, int], int] = {}
        """When each planted reading was made, by station and stamp [ns since 1970 UTC]."""

    def take(self, step: int, *, is_last: bool) -> list[SpoolRecord]:
        """Return the messages of the next step; those that wait to be late come with the last."""
        day = self._day
        begin_ns = day.start_ns + round(step * day.step_s * SECOND_NS)
        end_ns = begin_ns + round(day.step_s * SECOND_NS)
        messages = self._waiting
        for index in range(self._size):
            stamp_ns = begin_ns + round(index * day.step_s * SECOND_NS / self._size / 1000) * 1000
            station, celsius = self._number % day.stations, 20.0
            if self._number % self._every == self._every // 2:
                station, celsius = len(self.planted) * 37 % day.stations, HOT
                self.planted[f"s{station}", stamp_ns] = time.time_ns()
            arrived_ns = stamp_ns + 50_000_000
            if self._rng.random() < day.late_share or (celsius == HOT and self._rng.random() < 0.3):
                arrived_ns += round(day.late_s * float(self._rng.random()) * SECOND_NS)
            self._number += 1
            messages.append((arrived_ns, station * 10**15 + (stamp_ns - day.start_ns) // 1000, celsius))
        arriving = sorted(each for each in messages if is_last or each[0] < end_ns)
        self._waiting = [each for each in messages if not is_last and each[0] >= end_ns]
        return [
            record(code // 10**15, day.start_ns + code % 10**15 * 1000, celsius, arrived_ns)
            for arrived_ns, code, celsius in arriving
        ]
