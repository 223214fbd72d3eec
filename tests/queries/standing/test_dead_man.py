"""The dead-man's switch: heartbeats come as long as alerts are raised and delivered, and no longer."""

import logging
import socket
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import cast

import pytest

from hypergrid.archive.disk.lock import wait_for_lock
from hypergrid.continuous.tap_status import FOLDER, LOCK, TapStatus, write_status
from hypergrid.core.errors import InvalidQuery
from hypergrid.core.times import SECOND_NS
from hypergrid.query import open_archive
from queries.jobs.runner import Runner
from queries.standing.continuous_alerts import ContinuousAlerts
from queries.standing.service import StandingQueries
from queries.web.routes.health import Monitoring, ServerHealth
from tests.queries.standing.hook import Hook
from tests.queries.standing.live import Clock, Live
from tests.support.standing_runner import settle

AIR = {"variable": "air_temperature", "steps": []}
HOT = {"kind": "threshold", "above": 20, "clear": 18}


@pytest.fixture
def hook() -> Iterator[Hook]:
    made = Hook()
    yield made
    made.server.shutdown()


@pytest.fixture
def standing(make_standing: Callable[..., StandingQueries], hook: Hook) -> StandingQueries:
    return make_standing(
        heartbeat_url=hook.url("/alive").removeprefix("webhook:"), webhook_hosts=("127.0.0.1", "localhost")
    )


def test_a_heartbeat_is_signed_and_says_when_it_was_sent(standing: StandingQueries, hook: Hook) -> None:
    assert standing.dead_mans_switch.beat()
    (path, body), (headers, _) = hook.got[0], hook.raw[0]
    assert (path, body["happening"], body["every_s"]) == ("/alive", "heartbeat", 60.0)
    assert headers["webhook-signature"].startswith("v1,")


def test_the_server_sends_heartbeats_by_itself(standing: StandingQueries, hook: Hook) -> None:
    standing.start()
    for _ in range(200):
        if hook.got:
            break
        standing.dead_mans_switch._stop.wait(0.05)  # noqa: SLF001
    assert [path for path, _ in hook.got] == ["/alive"]


def test_no_heartbeat_comes_while_an_alert_cannot_be_delivered(
    standing: StandingQueries, hook: Hook, clock: Clock
) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
    standing.add({"name": "hot", "query": AIR, "condition": HOT, "to": [f"webhook:http://127.0.0.1:{port}/"]})
    standing.test("hot")
    standing.notification_workers.deliver_next()
    assert standing.dead_mans_switch.beat()
    clock.ns += 301 * SECOND_NS
    assert not standing.dead_mans_switch.beat()
    trouble = standing.dead_mans_switch.find_trouble()
    assert "an alert of 'hot' has not been delivered for 301 s" in trouble
    assert "did not take the alert" in trouble
    assert len(hook.got) == 1


def test_no_heartbeat_comes_while_nothing_is_evaluated(
    standing: StandingQueries, hook: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    standing.start()
    assert standing.dead_mans_switch.find_trouble() == ""
    # The runner hangs: its sign of life is old.
    monkeypatch.setattr(standing.runner, "work", lambda: standing.runner._stop.wait(60))  # noqa: SLF001
    for _ in range(100):
        before = standing.runner.beat_s
        standing.runner._stop.wait(0.3)  # noqa: SLF001
        if standing.runner.beat_s == before:
            break
    monkeypatch.setattr(standing.runner, "beat_s", standing.runner.beat_s - 121.0)
    assert "have not been evaluated for 12" in standing.dead_mans_switch.find_trouble()
    assert not standing.dead_mans_switch.beat()


@pytest.fixture
def seconds(standing: StandingQueries, monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """The monotonic clock of the runner, which is moved by hand."""
    made = SimpleNamespace(now=1000.0)
    monkeypatch.setattr(standing.runner, "_monotonic", lambda: made.now)
    return made


def test_no_heartbeat_comes_while_a_query_waits_for_its_turn(
    standing: StandingQueries, live: Live, seconds: SimpleNamespace
) -> None:
    standing.add({"name": "hot", "query": AIR, "condition": HOT})
    standing.runner._poll(seconds.now)  # noqa: SLF001
    seconds.now += 400.0
    # The first result may take longer.
    assert standing.dead_mans_switch.find_trouble() == ""
    settle(standing.runner)
    live.add(10, {"1": 5.0})
    standing.runner._poll(seconds.now)  # noqa: SLF001
    seconds.now += 300.0
    assert standing.dead_mans_switch.beat()
    seconds.now += 1.0
    assert standing.dead_mans_switch.find_trouble() == (
        "standing query 'hot' has not been evaluated for 301 s: others go first"
    )
    assert not standing.dead_mans_switch.beat()
    settle(standing.runner)
    assert standing.dead_mans_switch.beat()


def test_no_heartbeat_comes_while_a_query_fails(standing: StandingQueries, seconds: SimpleNamespace) -> None:
    standing.add({"name": "hot", "query": AIR, "condition": HOT})
    settle(standing.runner)
    standing.runner.state("hot").record_failure(InvalidQuery("no such unit any more"), seconds.now)
    assert standing.dead_mans_switch.beat()
    seconds.now += 301.0
    assert standing.dead_mans_switch.find_trouble().endswith("evaluated for 301 s: no such unit any more")
    standing.pause("hot")
    settle(standing.runner)
    assert standing.dead_mans_switch.beat()


def test_no_heartbeat_comes_while_the_query_that_an_alert_follows_fails(
    standing: StandingQueries, live: Live, seconds: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    queries = ContinuousAlerts(standing)
    text = "Select station, value From air_temperature Where value > 20"
    queries.add({"name": "warm", "text": text, "alert": {"to": ["events"]}})
    queries.add({"name": "unheard", "text": text})
    settle(standing.runner)

    def fail(name: str, *_rest: object) -> int:
        raise InvalidQuery(f"{name} does not fit the archive any more")

    with monkeypatch.context() as broken:
        broken.setattr(standing.kept, "_step", fail)
        live.add(10, {"1": 5.0})
        settle(standing.runner)
        assert standing.dead_mans_switch.beat()
        seconds.now += 301.0
        assert standing.dead_mans_switch.find_trouble() == (
            "standing query 'warm' has not been evaluated for 301 s: warm does not fit the archive any more"
        )
        seconds.now += 100.0
        settle(standing.runner)
        assert "for 401 s" in standing.dead_mans_switch.find_trouble()
    seconds.now += 1000.0
    settle(standing.runner)
    assert standing.dead_mans_switch.beat()


def test_no_heartbeat_comes_while_the_tap_is_not_followed(standing: StandingQueries, live: Live, clock: Clock) -> None:
    (live.folder / FOLDER).mkdir(exist_ok=True)
    write_status(live.folder, TapStatus(clock.time_ns(), queries=1))
    assert "no program evaluates the queries over the tap" in standing.dead_mans_switch.find_trouble()
    with wait_for_lock(live.folder / FOLDER / LOCK):
        assert standing.dead_mans_switch.beat()
        clock.ns += 31 * SECOND_NS
        assert "has said nothing for 31 s" in standing.dead_mans_switch.find_trouble()
        write_status(live.folder, TapStatus(clock.time_ns(), queries=2, errors={"hot": "no such unit"}))
        assert standing.dead_mans_switch.find_trouble() == (
            "the query 'hot' over the tap is not evaluated: no such unit"
        )
        write_status(live.folder, TapStatus(clock.time_ns(), queries=2, slowest="hot", behind_s=299.0))
        assert standing.dead_mans_switch.find_trouble() == ""
        write_status(live.folder, TapStatus(clock.time_ns(), queries=2, slowest="hot", behind_s=301.0))
        assert standing.dead_mans_switch.find_trouble() == (
            "the query 'hot' over the tap has been behind what arrives for 301 s"
        )
        assert not standing.dead_mans_switch.beat()
        write_status(live.folder, TapStatus(clock.time_ns(), queries=0))
    # Without queries nothing is missed.
    assert standing.dead_mans_switch.beat()


def test_a_heartbeat_that_fails_is_not_kept_for_later(standing: StandingQueries, hook: Hook) -> None:
    hook.failures = 1
    assert not standing.dead_mans_switch.beat()
    assert standing.dead_mans_switch.beat()
    assert (standing.dead_mans_switch.sent, len(hook.got)) == (1, 2)
    assert standing.store.count_messages() == {}


def test_alerting_that_cannot_be_examined_is_silent_and_ends_no_caller(
    standing: StandingQueries, hook: Hook, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        raise RuntimeError("the disk is gone")

    with monkeypatch.context() as broken:
        broken.setattr(standing.store, "find_oldest_waiting", fail)
        assert standing.dead_mans_switch.find_trouble() == "alerting cannot be examined: the disk is gone"
        assert not standing.dead_mans_switch.beat()
    assert standing.dead_mans_switch.beat()
    assert len(hook.got) == 1


def test_a_trouble_is_logged_once_whoever_asks(
    standing: StandingQueries, live: Live, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    (live.folder / FOLDER).mkdir(exist_ok=True)
    runner = cast("Runner", SimpleNamespace(is_stopped=False))
    health = ServerHealth(runner, open_archive(live.folder), standing, None, lambda: "", Monitoring())
    with caplog.at_level(logging.WARNING), wait_for_lock(live.folder / FOLDER / LOCK):
        write_status(live.folder, TapStatus(clock.time_ns(), queries=1))
        for _ in range(3):
            # The age of the trouble grows.
            clock.ns += 31 * SECOND_NS
            assert not standing.dead_mans_switch.beat()
            assert health._examine()["alerting"]  # noqa: SLF001
        write_status(live.folder, TapStatus(clock.time_ns(), queries=1))
        assert standing.dead_mans_switch.beat()
        assert "alerting" not in health._examine()  # noqa: SLF001
        clock.ns += 31 * SECOND_NS
        assert health._examine()["alerting"]  # noqa: SLF001
    said = [each.getMessage() for each in caplog.records if "alerting" in each.getMessage()]
    silent = "alerting: the program that evaluates the queries over the tap has said nothing for 31 s"
    assert said == [silent, "alerting: well again", silent]


def test_an_address_that_is_not_allowed_is_refused_at_the_start(make_standing: Callable[..., StandingQueries]) -> None:
    standing = make_standing(heartbeat_url="https://elsewhere.example.org/x", webhook_hosts=("127.0.0.1",))
    with pytest.raises(InvalidQuery, match="the heartbeat: the webhook goes to 'elsewhere.example.org'"):
        standing.start()
