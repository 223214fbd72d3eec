"""Alerts of queries over the tap: another program evaluates them, and the server tells what they give."""

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from hypergrid.archive.disk.lock import wait_for_lock
from hypergrid.continuous.live import LiveOptions, TapBatch, TapQuery, add_tap_query, open_store
from hypergrid.continuous.tap_status import FOLDER, LOCK, TapStatus, write_status
from hypergrid.core.readings import Readings, Series
from hypergrid.core.times import SECOND_NS
from hypergrid.query import OpenArchive
from queries.standing.service import StandingQueries
from tests.support.standing_runner import settle
from tests.support.tap_networks import create_network

START_NS = 1_700_000_000 * SECOND_NS
HOT = "Select station, value From air_temperature Where value > 30 EMIT NOW"


@pytest.fixture
def opened(tmp_path: Path) -> OpenArchive:
    archive = create_network(tmp_path / "archive", stations=3, now_ns=START_NS)
    add_tap_query(archive, "hot", HOT, LiveOptions(START_NS, 60.0)).close()
    return archive


@pytest.fixture
def standing(opened: OpenArchive) -> Iterator[StandingQueries]:
    with StandingQueries(opened, clock=lambda: START_NS) as made:
        made.add({"name": "hot", "query": {"continuous": "hot"}, "condition": {"kind": "continuous", "quiet": "1min"}})
        settle(made.runner)
        yield made


class Follower:
    """The other program, with a batch for each reading."""

    def __init__(self, opened: OpenArchive) -> None:
        self.store = open_store(opened.path)
        self._query = TapQuery(opened, self.store, "hot")
        self._query.missing_records()

    def add(self, station: str, second: int, celsius: float) -> None:
        stamps = np.array([START_NS + second * SECOND_NS])
        series = (Series("air_temperature", station, None, 1, source="net:t"),)
        one = Readings(series, np.zeros(1, np.int32), stamps, np.array([celsius]), np.ones(1, np.uint8), stamps)
        after = self._query.position
        self._query.step(TapBatch(after, after + 1, int(stamps[0]), {"air_temperature": (one, np.array([after + 1]))}))


def list_alerts(standing: StandingQueries) -> list[tuple[str, str, str]]:
    settle(standing.runner)
    return [(alert["happening"], alert["place"], alert["since"][11:19]) for alert in standing.alerts(name="hot")]


def test_what_the_tap_gives_raises_alerts_without_a_commit(opened: OpenArchive, standing: StandingQueries) -> None:
    follower, snapshot = Follower(opened), opened.store.latest().snapshot
    assert list_alerts(standing) == []
    follower.add("s0", 0, 20.0)
    follower.add("s1", 1, 31.0)
    assert list_alerts(standing) == [("raised", "s1", "22:13:21")]
    follower.add("s1", 2, 32.0)
    # Before the newest, as it is late.
    follower.add("s2", 1, 33.0)
    assert list_alerts(standing) == [("raised", "s1", "22:13:21"), ("raised", "s2", "22:13:21")]
    assert opened.store.latest().snapshot == snapshot
    # The server evaluates nothing of it.
    assert follower.store.find("hot").snapshot == "records 1-4"


def test_a_reading_that_is_replaced_withdraws_its_alert(opened: OpenArchive, standing: StandingQueries) -> None:
    follower = Follower(opened)
    follower.add("s0", 1, 31.0)
    follower.add("s0", 1, 21.0)
    assert [happening for happening, _, _ in list_alerts(standing)] in (["raised", "withdrawn"], [])
    follower.add("s1", 2, 31.0)
    raised = list_alerts(standing)
    follower.add("s1", 2, 21.0)
    assert list_alerts(standing) == [*raised, ("withdrawn", "s1", "22:13:22")]


def test_a_query_that_no_program_follows_says_so(opened: OpenArchive, standing: StandingQueries) -> None:
    assert "start 'hypergrid cql watch archive'" in standing.kept.error("hot")
    with wait_for_lock(opened.path / FOLDER / LOCK):
        assert standing.kept.error("hot") == ""
        write_status(opened.path, TapStatus(START_NS, queries=1, errors={"hot": "damaged"}))
        assert standing.kept.error("hot") == "damaged"
