"""From a message at a broker to an alert at a webhook, through the tap, the live query and the standing query."""

import signal
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from paho.mqtt.client import Client
from paho.mqtt.enums import CallbackAPIVersion

from hypergrid.continuous.live import LiveOptions, add_tap_query, open_store
from hypergrid.core.settings import Settings
from hypergrid.core.times import SECOND_NS
from ingest.streaming.stream_commit import ledger_of
from queries.standing.service import StandingQueries
from tests.bench.kriging_figures import Tell
from tests.ingest.brokers import RunningBroker, wait_until
from tests.support.tap_alerts import Program, Webhook, receiver, server, streamer, watcher
from tests.support.tap_networks import create_network, message

Table = tuple[str, tuple[str, ...], list[tuple[object, ...]]]
HOT = 35.0
"""Temperature that is planted [degC], above the threshold of 30."""
ALERT = "Select Istream(station, value, time) From air_temperature Where value > '30 degC' EMIT NOW"
HEAVY = """
Select a.station, count(*) as pairs, max(b.value) as most
From air_temperature [Range 5 Minutes] a, wind_speed [Range 5 Minutes] b
Where a.station = b.station Group By a.station EMIT NOW
"""
QUIET = "5s"
MEDIAN_S, P99_S = 2.0, 5.0
"""What is asked for."""
START_S = 600.0
"""Time that programs may take to start on a busy machine [s]."""


@dataclass(frozen=True)
class TapLoad:
    """What is sent, and what happens meanwhile."""

    stations: int = 1000
    every_s: float = 10.0
    """A message of each station."""
    seconds: float = 240.0
    crossing_s: float = 0.7
    """A planted reading, each of another station."""
    late_share: float = 0.0
    """Share of the messages that are sent later than their stamp."""
    late_s: float = 20.0
    """By how much, at most."""
    kills: int = 0
    """How often one of receiver, evaluation and server is killed (-9) and started again."""
    outage_s: float = 0.0
    """How long the webhook is out of reach."""
    has_heavy: bool = True
    """Whether a heavy query runs beside the alert."""
    has_spark: bool = True
    """Whether Spark follows the messages into the archive beside the tap; otherwise a receiver alone takes them."""


def measure(load: TapLoad, notify: Tell) -> dict[str, Any]:
    """Return the times from publishing to delivery [s], and what was lost, repeated or out of order."""
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        return _run(Path(name), load, notify, stack)


def _run(folder: Path, load: TapLoad, notify: Tell, stack: ExitStack) -> dict[str, Any]:
    broker = RunningBroker(folder / "broker").start()
    stack.callback(broker.stop)
    webhook = Webhook().start()
    stack.callback(webhook.stop)
    now_ns = time.time_ns()
    archive = folder / "archive"
    opened = create_network(archive, stations=load.stations, now_ns=now_ns)
    add_tap_query(opened, "hot", ALERT, LiveOptions(now_ns - SECOND_NS, 60.0)).close()
    if load.has_heavy:
        add_tap_query(opened, "heavy", HEAVY, LiveOptions(now_ns - SECOND_NS, 60.0)).close()
    with StandingQueries(opened, Settings(webhook_hosts=("127.0.0.1",)), clock=time.time_ns) as standing:
        standing.add(
            {
                "name": "hot", "query": {"continuous": "hot"}, "to": [f"webhook:{webhook.url}"],
                "condition": {"kind": "continuous", "quiet": QUIET},
            }
        )  # fmt: skip
    receive = streamer if load.has_spark else receiver
    programs = [receive(archive, folder / "archive.toml", broker.url), watcher(archive), server(archive)]
    for program in programs:
        program.start()
        # Those that have processes of their own end them.
        stack.callback(program.end, signal.SIGTERM if load.has_spark else signal.SIGKILL)
    wait_until(lambda: "ready" in (folder / "server.log").read_text(), within_s=START_S)
    wait_until(lambda: (archive / "continuous" / "tap.json").exists(), within_s=START_S)
    wait_until(lambda: "we listen to" in (folder / "receiver.log").read_text(), within_s=START_S)
    if load.has_spark:
        _publish_first(broker)
        wait_until(lambda: opened.store.latest().snapshot != opened.snapshot, within_s=START_S)
    notify("tap", 0.0)
    planted = _publish(broker, webhook, programs, load, notify)
    deadline = time.monotonic() + 60.0 + load.outage_s
    while len(webhook.alerts()) < len(planted) and time.monotonic() < deadline:
        time.sleep(0.1)
    # What comes twice would come now.
    time.sleep(2.0)
    store = open_store(archive)
    late = {entry.name: entry.late for entry in store.list_entries()}
    store.close()
    assert all(program.is_running for program in programs), read_logs(folder)
    latest = opened.store.latest()
    followed = max((ledger_of(latest, each).upto for each in latest.streams), default=0)
    return {
        **judge_alerts(webhook, planted), "late": late, "followed": followed,
        "log": read_logs(folder), "load": vars(load),
    }  # fmt: skip


def _publish_first(broker: RunningBroker) -> None:
    """Publish a message, so that Spark has a batch to begin with."""
    client = Client(CallbackAPIVersion.VERSION2)
    client.connect("127.0.0.1", broker.port)
    client.loop_start()
    topic, content = message(0, time.time_ns() // 1000 * 1000, 20.0)
    client.publish(topic, content, qos=1).wait_for_publish(10.0)
    client.disconnect()
    client.loop_stop()


def _publish(
    broker: RunningBroker, webhook: Webhook, programs: list[Program], load: TapLoad, notify: Tell
) -> dict[tuple[str, int], int]:
    """Publish in real time; return when each planted reading was, by station and stamp [ns]."""
    rng = np.random.default_rng(7)
    client = Client(CallbackAPIVersion.VERSION2)
    client.max_inflight_messages_set(500)
    client.connect("127.0.0.1", broker.port)
    client.loop_start()
    planted: dict[tuple[str, int], int] = {}
    waiting: list[tuple[float, str, bytes]] = []
    begun = time.monotonic()
    kills = [load.seconds * (number + 0.7) / (load.kills + 1) for number in range(load.kills)]
    outage = (load.seconds * 0.3, load.seconds * 0.3 + load.outage_s)
    is_out, next_crossing, hot = False, load.crossing_s, 0
    for number in range(round(load.seconds / load.every_s * load.stations)):
        due = number * load.every_s / load.stations
        time.sleep(max(0.0, begun + due - time.monotonic()))
        passed = time.monotonic() - begun
        if kills and passed >= kills[0]:
            kills.pop(0)
            programs[len(kills) % len(programs)].restart()
        if load.outage_s and not is_out and outage[0] <= passed < outage[1]:
            webhook.stop()
            is_out = True
        if is_out and passed >= outage[1]:
            webhook.start()
            is_out = False
        station = number % load.stations
        now_ns = time.time_ns() // 1000 * 1000
        is_hot = passed >= next_crossing
        if is_hot:
            next_crossing += load.crossing_s
            # Stations far apart, so that each is an episode of its own.
            station, hot = hot * 37 % load.stations, hot + 1
        topic, content = message(station, now_ns, HOT if is_hot else 20.0)
        while waiting and waiting[0][0] <= passed:
            client.publish(*waiting.pop(0)[1:], qos=1)
        if not is_hot and rng.random() < load.late_share:
            waiting.append((passed + load.late_s * float(rng.random()), topic, content))
            waiting.sort()
            continue
        if is_hot:
            planted[f"s{station}", now_ns] = time.time_ns()
        client.publish(topic, content, qos=1)
        if number % load.stations == 0:
            notify("tap", passed / load.seconds)
    if is_out:
        time.sleep(max(0.0, begun + outage[1] - time.monotonic()))
        webhook.start()
    for _, topic, content in waiting:
        client.publish(topic, content, qos=1)
    time.sleep(1.0)
    client.disconnect()
    client.loop_stop()
    return planted


def judge_alerts(webhook: Webhook, planted: Mapping[tuple[str, int], int]) -> dict[str, Any]:
    alerts = webhook.alerts()
    delivered = find_deliveries(webhook, planted)
    unknown = sum(_key_of(one.body, planted) is None for one in alerts)
    delays = np.array([delivered[key] - planted[key] for key in delivered]) / 1e9
    numbers = [one.body["number"] for one in alerts]
    counts = Counter(one.body["id"] for one in webhook.delivered)
    marked = {one.body["id"] for one in webhook.delivered if one.body["possible_repeat"]}
    return {
        "planted": len(planted),
        "delivered": len(delivered),
        "lost": len(planted) - len(delivered),
        "twice": len(alerts) - unknown - len(delivered),
        "unknown": unknown,
        "possible repeats": sum(counts.values()) - len(counts),
        "unmarked repeats": sum(count > 1 and key not in marked for key, count in counts.items()),
        "in order": numbers == sorted(numbers),
        "median [s]": round(float(np.median(delays)), 3) if len(delays) else None,
        "p99 [s]": round(float(np.quantile(delays, 0.99)), 3) if len(delays) else None,
        "max [s]": round(float(delays.max()), 3) if len(delays) else None,
    }


def find_deliveries(webhook: Webhook, planted: Mapping[tuple[str, int], int]) -> dict[tuple[str, int], int]:
    """Return when each planted reading was first delivered [ns since 1970 UTC]."""
    delivered: dict[tuple[str, int], int] = {}
    for one in webhook.alerts():
        key = _key_of(one.body, planted)
        if key is not None:
            delivered.setdefault(key, one.at_ns)
    return delivered


def _key_of(body: Mapping[str, Any], planted: Mapping[tuple[str, int], int]) -> tuple[str, int] | None:
    """Return the planted reading of an alert: that of its station with the nearest stamp, within a millisecond."""
    station = body["row"]["station"]
    stamp_ns = int(np.datetime64(str(body["row"]["time"]).rstrip("Z"), "ns").astype(np.int64))
    near = [key for key in planted if key[0] == station and abs(key[1] - stamp_ns) < 1_000_000]
    return near[0] if near else None


def read_logs(folder: Path) -> str:
    """Return what the programs said last."""
    return "\n".join(line for path in sorted(folder.glob("*.log")) for line in path.read_text().split("\n")[-8:])


def tables(measured: Mapping[str, Any]) -> list[Table]:
    """Return the table of the case tap."""
    names = ("planted", "lost", "twice", "in order", "median [s]", "p99 [s]", "max [s]", "followed")
    return [
        ("From a message at the broker to the alert at a webhook", names, [tuple(measured[each] for each in names)])
    ]
