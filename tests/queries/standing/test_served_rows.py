"""Kept continuous queries at a server of its own: alerts, heartbeats, a back-test that is stopped, one that fails."""

import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from hypergrid.continuous.live import open_store
from tests.ingest.brokers import wait_until
from tests.queries.standing.hook import Hook
from tests.queries.standing.live import STATIONS, Live

ROOT = Path(__file__).resolve().parents[3]
HOT = "Select station, value From air_temperature Where value > 20"
PATIENCE_S = 120.0
SETTINGS = """\
webhook_hosts = ["{host}"]
heartbeat_url = "{heartbeat}"
"""
Serve = Callable[[], Any]


@pytest.fixture
def hook() -> Iterator[Hook]:
    made = Hook()
    yield made
    made.server.shutdown()


@pytest.fixture
def serve(live: Live, hook: Hook, tmp_path: Path) -> Serve:
    """Give what starts `hypergrid serve`, with a client of its API, and ends it as Ctrl-C does."""
    settings = tmp_path / "settings.toml"
    settings.write_text(SETTINGS.format(host=hook.host, heartbeat=hook.url("/alive").removeprefix("webhook:")))
    command = [sys.executable, "-m", "hypergrid", "serve", str(live.folder), "--port", "0", "--settings", str(settings)]
    paths = os.pathsep.join((os.environ.get("PYTHONPATH", ""), str(ROOT)))

    @contextmanager
    def run() -> Iterator[httpx.Client]:
        with ExitStack() as stack:
            process = subprocess.Popen(
                command, stderr=subprocess.PIPE, text=True, cwd=ROOT, env={**os.environ, "PYTHONPATH": paths}
            )
            stack.callback(process.kill)
            assert process.stderr is not None
            line = next(line for line in process.stderr if "http://" in line)
            address = next(word for word in line.split() if word.startswith("http://")).rstrip("/")
            yield stack.enter_context(httpx.Client(base_url=f"{address}/api/v1", timeout=PATIENCE_S))
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=PATIENCE_S)
            assert process.returncode == 0

    return run


def list_alerts(web: httpx.Client) -> list[tuple[str, str]]:
    return [(alert["happening"], alert["place"]) for alert in web.get("/standing/alerts").raise_for_status().json()]


def add_heat(live: Live, first: int, station: str) -> None:
    """Let a station be hot for a slice, and cold for two more: results of the newest instant wait for a later one."""
    cold = dict.fromkeys(STATIONS, 5.0)
    live.add(first, {**cold, station: 25.0})
    live.add_all([(first + 1, cold), (first + 2, cold)])


def test_a_stream_raises_alerts_while_heartbeats_say_that_alerting_works(live: Live, hook: Hook, serve: Serve) -> None:
    with serve() as web:
        alert = {"to": ["events", hook.url("/alerts")], "quiet": "20min"}
        web.post("/continuous", json={"name": "hot", "text": HOT, "alert": alert}).raise_for_status()
        wait_until(lambda: web.get("/continuous/hot").json()["complete"], within_s=PATIENCE_S)
        add_heat(live, 10, "1")
        wait_until(lambda: list_alerts(web) == [("raised", "1")], within_s=PATIENCE_S)
        # Within the quiet time of one station it is the same episode, of another one a second.
        add_heat(live, 13, "1")
        add_heat(live, 16, "2")
        wait_until(lambda: list_alerts(web) == [("raised", "1"), ("raised", "2")], within_s=PATIENCE_S)
        wait_until(lambda: [path for path, _ in hook.got].count("/alerts") == 2, within_s=PATIENCE_S)
        assert "/alive" in [path for path, _ in hook.got]
        health = web.get(str(web.base_url.join("/health"))).json()
        assert "alerting" not in health["troubles"]


def test_a_backtest_is_stopped(live: Live, serve: Serve) -> None:
    live.add_all([(slice_, dict.fromkeys(STATIONS, 5.0)) for slice_ in range(10, 1000)])
    text = "Select station, avg(value) as mean From air_temperature [Range 1 Hour] Group By station"
    with serve() as web:
        begun = web.post("/continuous/backtest", json={"text": text}).raise_for_status().json()
        stopped = web.delete(f"/continuous/backtest/{begun['id']}").raise_for_status().json()
        assert (begun["state"] in ("queued", "running"), stopped["state"]) == (True, "cancelled")
        assert web.get(f"/continuous/backtest/{begun['id']}/rows").status_code == 409
        # The turn that it had is free.
        again = web.post("/continuous/backtest", params={"wait": 60}, json={"text": HOT})
        assert again.status_code == 200, again.text


def test_a_query_that_cannot_be_evaluated_says_why_and_goes_on_once_it_can(live: Live, serve: Serve) -> None:
    def write(text: str) -> None:
        with closing(open_store(live.folder)) as store, store._transaction():  # noqa: SLF001
            store._db.execute("UPDATE queries SET text = ? WHERE name = 'hot'", (text,))  # noqa: SLF001

    with serve() as web:
        web.post("/continuous", json={"name": "hot", "text": HOT, "alert": {}}).raise_for_status()
        wait_until(lambda: web.get("/continuous/hot").json()["complete"], within_s=PATIENCE_S)
    # As if the stream had been there when the query was kept.
    write(HOT.replace("air_temperature", "snow_depth"))
    add_heat(live, 10, "1")
    with serve() as web:
        wait_until(lambda: web.get("/standing/statistics").json()["failing"] == ["hot"], within_s=PATIENCE_S)
        assert "snow_depth" in web.get("/continuous/hot").json()["error"]
        assert list_alerts(web) == []
        write(HOT)
        wait_until(lambda: list_alerts(web) == [("raised", "1")], within_s=PATIENCE_S)
        assert web.get("/continuous/hot").json()["error"] == ""
