"""kill -9 of the server at any moment: no alert is lost, and none comes twice without being marked."""

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

import hypergrid as hg
from hypergrid.core.settings import Settings
from hypergrid.core.times import format_timestamp
from queries.standing.continuous_alerts import ContinuousAlerts
from queries.standing.service import StandingQueries
from tests.queries.standing.hook import Hook
from tests.queries.standing.live import START_NS, STATIONS, STEP_NS, VARIABLES, Live

ROOT = Path(__file__).resolve().parents[3]
AIR = {"variable": "air_temperature", "steps": []}
PATIENCE_S = 120.0


class Server:
    """`hypergrid serve` in a process of its own."""

    def __init__(self, archive: Path, host: str) -> None:
        environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join((os.environ.get("PYTHONPATH", ""), str(ROOT))),
            "HYPERGRID_WEBHOOK_HOSTS": host,
        }
        command = [sys.executable, "-m", "hypergrid", "serve", "--archive", str(archive), "--port", "0"]
        self.process = subprocess.Popen(command, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True)

    def wait_until_it_serves(self) -> None:
        assert self.process.stderr is not None
        assert "serving" in self.process.stderr.readline()

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)
        self.process.wait()


def prove(folder: Path, *, kills: int, queries: int, slices: int) -> tuple[int, int]:
    """Alternate hot and cold slices while the server is killed; return how many alerts there were, and repeats.

    In the end a station is silent for so long that it is dead, and comes back.
    """
    chosen = random.Random(2007)
    live, hook = Live(folder / "archive"), Hook()
    live.add_all([(slice_, dict.fromkeys(STATIONS, 5.0)) for slice_ in range(10)], variables=VARIABLES)
    with StandingQueries(hg.open(live.folder), Settings(webhook_hosts=(hook.host,)), clock=time.time_ns) as standing:
        for number in range(queries):
            condition = {"kind": "threshold", "above": 20 + number, "clear": 10}
            to = [hook.url(f"/{number % 4}")]
            standing.add({"name": f"hot{number}", "query": AIR, "condition": condition, "to": to})
        standing.add({"name": "dead", "query": AIR, "condition": {"kind": "dead"}, "to": [hook.url("/dead")]})
    expected: Counter[tuple[str, str, str, str]] = Counter()
    slice_ = 10
    for _ in range(kills):
        server = Server(live.folder, hook.host)
        if chosen.random() < 0.8:
            server.wait_until_it_serves()
        for _ in range(slices // kills):
            hot = slice_ % 2 == 0
            live.add(slice_, dict.fromkeys(STATIONS, 99.0 if hot else 5.0))
            begins = slice_ if hot else slice_ - 1
            for number in range(queries):
                for station in STATIONS:
                    happening, since = ("raised" if hot else "cleared"), format_timestamp(START_NS + begins * STEP_NS)
                    expected[f"hot{number}", happening, station, since] += 1
            slice_ += 1
            time.sleep(chosen.random() * 0.4)
        time.sleep(chosen.random() * 1.5)
        server.kill()
    server = Server(live.folder, hook.host)
    *others, dead = STATIONS
    for silent in range(6):
        live.add(slice_ + silent, dict.fromkeys(others, 5.0))
    live.add(slice_ + 6, dict.fromkeys(STATIONS, 5.0))
    # A station is dead 1.5 times three of its gaps after its last reading.
    died_ns = START_NS + (slice_ - 1) * STEP_NS + 9 * STEP_NS // 2
    for happening in ("raised", "cleared"):
        expected["dead", happening, dead, format_timestamp(died_ns)] += 1
    with StandingQueries(hg.open(live.folder), Settings(), clock=time.time_ns) as standing:
        ends = time.monotonic() + PATIENCE_S
        total = sum(expected.values())
        while standing.store.count_messages().get("sent", 0) < total and time.monotonic() < ends:
            time.sleep(0.2)
        server.kill()
        kept = standing.alerts(limit=1_000_000)
        assert standing.store.count_messages() == {"sent": total}
    found = Counter((one["query"], one["happening"], one["place"], one["since"]) for one in kept)
    assert found == expected
    got = [body for _, body in hook.got]
    assert {body["id"] for body in got} == {one["id"] for one in kept}
    seen: set[str] = set()
    repeats = 0
    for body in got:
        if body["id"] in seen:
            assert body["possible_repeat"], body
            repeats += 1
        seen.add(body["id"])
    assert all(body["snapshot"] and body["rule"] for body in got)
    assert all(bool(body["readings"]) == (body["query"] != "dead") for body in got)
    return len(kept), repeats


def test_kills_of_the_server_lose_and_repeat_nothing_of_a_kept_query(tmp_path: Path) -> None:
    """Rows are those of one back-test at the end, and each episode has one alert, with one letter or marked repeats."""
    chosen = random.Random(26)
    live, hook = Live(tmp_path / "archive"), Hook()
    text = "Select station, max(value) as top From air_temperature [Range 2 Minutes] Group By station"
    text += " Having max(value) > 20"
    live.add_all([(slice_, dict.fromkeys(STATIONS, 5.0)) for slice_ in range(10)], variables=VARIABLES)
    settings = Settings(webhook_hosts=(hook.host,))
    with StandingQueries(hg.open(live.folder), settings, clock=time.time_ns) as standing:
        ContinuousAlerts(standing).add({"name": "hot", "text": text, "alert": {"to": [hook.url("/hot")]}})
    slice_, hot = 10, 0
    for _ in range(3):
        server = Server(live.folder, hook.host)
        server.wait_until_it_serves()
        for _ in range(6):
            live.add(slice_, dict.fromkeys(STATIONS, 99.0 if slice_ % 2 else 5.0))
            hot += slice_ % 2
            slice_ += 1
            time.sleep(chosen.random() * 0.6)
        time.sleep(chosen.random() * 1.5)
        server.kill()
    live.add_all([(slice_ + more, dict.fromkeys(STATIONS, 5.0)) for more in range(2)])
    total = 2 * hot * len(STATIONS)
    server = Server(live.folder, hook.host)
    with StandingQueries(hg.open(live.folder), Settings(), clock=time.time_ns) as standing:
        ends = time.monotonic() + PATIENCE_S
        while standing.store.count_messages().get("sent", 0) < total and time.monotonic() < ends:
            time.sleep(0.2)
        server.kill()
        alerts = standing.alerts(limit=10_000)
        given = Counter[tuple[str, str]]()
        for element in standing.kept.iterate_elements("hot", 0):
            given[format_timestamp(element.tau_ns), str(element.row[0])] += element.sign
        assert standing.store.count_messages() == {"sent": total}
    expected = Counter[tuple[str, str]]()
    for tau, sign, station, _ in hg.continuous(live.folder).query(text).run().itertuples(index=False):
        expected[format_timestamp(tau.value), station] += sign
    assert +given == +expected
    assert -given == -expected
    found = Counter((each["happening"], each["place"], each["since"]) for each in alerts)
    assert set(found.values()) == {1}
    assert len(found) == total
    repeats = Counter(body["id"] for _, body in hook.got if not body["possible_repeat"])
    assert set(repeats.values()) == {1}


def test_three_kills_of_the_server(tmp_path: Path) -> None:
    alerts, _ = prove(tmp_path, kills=3, queries=3, slices=12)
    assert alerts == 3 * 4 * 12 + 2


@pytest.mark.soak
def test_a_thousand_alerts_over_twenty_kills(tmp_path: Path) -> None:
    alerts, _ = prove(tmp_path, kills=20, queries=5, slices=60)
    assert alerts >= 1000
