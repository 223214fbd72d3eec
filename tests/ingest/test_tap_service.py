"""The program that evaluates queries over the tap: turns of slow queries, and what their windows may take."""

import time
from itertools import count, islice
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from hypergrid.archive.disk.lock import wait_for_lock
from hypergrid.cli.commands import app
from hypergrid.continuous.live import LiveOptions, TapBatch, TapQuery, add_tap_query, open_store
from hypergrid.continuous.live.tap_query import TapStep
from hypergrid.continuous.tap_status import FOLDER, LOCK, find_tap_trouble
from hypergrid.core.readings import Readings, Series
from hypergrid.core.times import SECOND_NS
from hypergrid.query import OpenArchive
from ingest.sources.spool import Spool
from ingest.streaming import tap
from ingest.streaming.stream_commit import SPOOL
from ingest.tap_service import TapService
from tests.support.tap_networks import create_network, record

START_NS = 1_700_000_000 * SECOND_NS
HOT = "Select Istream(station, value, time) From air_temperature Where value > '30 degC' EMIT NOW"


def append(archive: OpenArchive, begin: int, count: int) -> None:
    with Spool.open(archive.path / SPOOL) as spool:
        spool.append(
            record(number % 3, START_NS + number * SECOND_NS, 20.0, START_NS + number * SECOND_NS)
            for number in range(begin, begin + count)
        )
        spool.flush()


@pytest.mark.parametrize(
    ("batch_bytes", "age_s", "positions"),
    [
        (10**6, 0, [10, 10, 10]),
        # What arrived long ago delays no alert.
        (10**6, 90, [10, 14, 18]),
        # A batch is a frame, so each step leaves one behind.
        (1, 0, [5, 10, 14]),
    ],
)
def test_a_slow_query_rests_while_readings_arrive_and_it_keeps_pace(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch_bytes: int, age_s: int, positions: list[int]
) -> None:
    archive = create_network(tmp_path / "a", stations=3, now_ns=START_NS)
    for name in ("a", "b"):
        store = add_tap_query(archive, name, HOT, LiveOptions(START_NS, 60.0))
    append(archive, 0, 5)
    append(archive, 5, 5)
    monkeypatch.setattr(tap, "BATCH_BYTES", batch_bytes)
    step = TapQuery.step
    begins, now_s = count(10, 4), [0.0]

    def step_slowly(query: TapQuery, batch: TapBatch) -> TapStep:
        if query.entry.name == "a":
            append(archive, next(begins), 4)
            now_s[0] += 1.0
        return step(query, batch)

    monkeypatch.setattr(TapQuery, "step", step_slowly)
    now_ns = START_NS + (9 + age_s) * SECOND_NS
    service = TapService(archive, notify=lambda _: None, clock=lambda: now_ns, monotonic=lambda: now_s[0])
    reached = []
    for _ in positions:
        service.work()
        reached.append(int((store.find("a").snapshot or "-0").rpartition("-")[2]))
    assert reached == positions


def test_a_query_that_does_not_keep_up_is_trouble_until_it_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    archive = create_network(tmp_path / "a", stations=3, now_ns=START_NS)
    add_tap_query(archive, "slow", HOT, LiveOptions(START_NS, 60.0))
    append(archive, 0, 5)
    # A step takes a frame, and two come during each of the first ones.
    monkeypatch.setattr(tap, "BATCH_BYTES", 1)
    step, begins, now_s = TapQuery.step, iter([5, 10, 15, 20]), [0.0]

    def step_slowly(query: TapQuery, batch: TapBatch) -> TapStep:
        for begin in islice(begins, 2):
            append(archive, begin, 5)
        now_s[0] += 200.0
        return step(query, batch)

    monkeypatch.setattr(TapQuery, "step", step_slowly)
    service = TapService(archive, notify=lambda _: None, clock=lambda: START_NS, monotonic=lambda: now_s[0])
    troubles = []
    with wait_for_lock(archive.path / FOLDER / LOCK):
        while service.work():
            troubles.append(find_tap_trouble(archive.path, START_NS))
    late = [f"the query 'slow' over the tap has been behind what arrives for {age_s} s" for age_s in (400, 600, 800)]
    assert troubles == ["", *late, ""]


def test_a_query_over_the_tap_keeps_the_tables_that_it_names(tmp_path: Path) -> None:
    archive = create_network(tmp_path / "a", stations=3, now_ns=START_NS)
    append(archive, 0, 3)
    limits, other, file = (tmp_path / name for name in ("limits.csv", "other.csv", "above.cql"))
    limits.write_text("station,most\ns0,15\ns1,25\n")
    other.write_text("station,tau\ns0,2023-11-14T22:13:20Z\n")
    file.write_text(
        "Select Istream(a.station, l.most) From air_temperature [Now] a, limits l "
        "Where a.station = l.station and a.value > l.most EMIT NOW"
    )
    words = ["cql", "watch", str(archive.path), str(file), "--only-add"]
    missing = CliRunner().invoke(app, words)
    assert "limits" in str(missing.exception)
    done = CliRunner().invoke(app, [*words, "--table", f"limits={limits}", "--table", f"other={other}"])
    assert done.exit_code == 0, done.output
    [entry] = open_store(archive.path).list_entries()
    assert list(entry.options.tables) == ["limits"]
    # The file is not needed any more.
    limits.unlink()
    begin_ns = time.time_ns() // 10**6 * 10**6
    with Spool.open(archive.path / SPOOL) as spool:
        spool.append(
            record(number % 3, begin_ns + number * 10**6, 20.0, begin_ns + number * 10**6) for number in range(6)
        )
        spool.flush()
    service = TapService(archive, notify=lambda _: None)
    assert service.work()
    rows = [each.row for each in open_store(archive.path).list_elements("above")]
    assert rows == [("s0", 15.0), ("s0", 15.0)]
    # A stream would have to go on with the readings.
    file.write_text("Select Istream(a.station) From air_temperature [Now] a, other [Now] o Where a.station = o.station")
    refused = CliRunner().invoke(
        app, [*words[:-2], str(file.rename(tmp_path / "both.cql")), words[-1], "--table", f"other={other}"]
    )
    assert "other" in str(refused.exception)


def test_the_command_says_what_windows_may_take(tmp_path: Path) -> None:
    archive = create_network(tmp_path / "a", stations=1, now_ns=START_NS)
    series = Series("air_temperature", "s0", interval_s=1.0)
    stamps = START_NS + np.arange(600) * SECOND_NS
    readings = Readings((series,), np.zeros(600, np.int32), stamps, np.full(600, 20.0), np.ones(600, np.uint8), stamps)
    with archive.store.commit(batch="1", message="readings", now_ns=START_NS) as writer:
        writer.readings(readings)
    file = tmp_path / "mean.cql"
    file.write_text("Select avg(value) as mean From air_temperature [Range 5 Minutes] EMIT NOW")
    words = ["cql", "watch", str(archive.path), str(file), "--only-add", "--memory"]
    refused = CliRunner().invoke(app, [*words, "10"])
    assert "may take 10; most is held by" in str(refused.exception)
    assert open_store(archive.path).list_entries() == []
    done = CliRunner().invoke(app, [*words, "1000000"])
    assert done.exit_code == 0, done.output
    assert [entry.name for entry in open_store(archive.path).list_entries()] == ["mean"]
