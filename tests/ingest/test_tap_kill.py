"""A program that evaluates queries over the tap and is killed (-9): nothing is lost, and nothing is given twice."""

import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from typer.testing import CliRunner

from hypergrid.cli.commands import app
from hypergrid.continuous.live import LiveStore, open_store
from hypergrid.continuous.tap_status import find_tap_trouble, read_status
from hypergrid.core.times import SECOND_NS
from ingest.sources.spool import Spool
from ingest.streaming.stream_commit import SPOOL
from tests.ingest.brokers import wait_until
from tests.support.tap_alerts import watcher
from tests.support.tap_networks import create_network, record, retire_segments

STATIONS = 20
QUERIES = {
    "hot": "Select Istream(station, value, time) From air_temperature Where value > '30 degC' EMIT NOW",
    "sure": "Select Istream(station, value, time) From air_temperature Where value > '30 degC'",
    "count": "Select count(*) as k From air_temperature [Range 1 Minute] EMIT NOW",
}


def add_queries(folder: Path, archive: Path) -> None:
    for name, text in QUERIES.items():
        (folder / f"{name}.cql").write_text(text)
    files = [str(folder / f"{name}.cql") for name in QUERIES]
    done = CliRunner().invoke(app, ["cql", "watch", str(archive), *files, "--only-add"])
    assert done.exit_code == 0, done.output


def find_positions(store: LiveStore) -> list[int]:
    """Return the last record that each query took, 0 at first."""
    return [int((entry.snapshot or "records 1-0").rpartition("-")[2]) for entry in store.list_entries()]


def test_nothing_is_lost_or_given_twice(tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    create_network(archive, stations=STATIONS, now_ns=time.time_ns())
    add_queries(tmp_path, archive)
    begun_ns = time.time_ns()
    rng = np.random.default_rng(5)
    store = open_store(archive)
    program = watcher(archive).start()
    planted: list[tuple[str, int]] = []
    killed_at = 0
    # An instant for each message, to the microsecond; a tenth comes late.
    stamps = begun_ns // 1000 * 1000 + np.arange(600) * 20_000_000
    order = np.argsort(np.arange(600) + np.where(rng.random(600) < 0.1, rng.integers(0, 60, 600), 0), kind="stable")
    try:
        wait_until(lambda: (archive / "continuous" / "tap.json").exists())
        with Spool.open(archive / SPOOL) as spool:
            for turn, part in enumerate(np.split(order, 60)):
                arrived_ns = time.time_ns()
                rows = []
                for number in part.tolist():
                    is_hot = number % 13 == 0
                    stamp = int(stamps[number])
                    rows.append(record(number % STATIONS, stamp, 35.0 if is_hot else 20.0, max(arrived_ns, stamp)))
                    planted += [(f"s{number % STATIONS}", stamp)] if is_hot else []
                spool.append(rows)
                spool.flush()
                time.sleep(0.05)
                if turn in (10, 25, 40):
                    # Each program goes on with what the one before kept, and keeps something itself.
                    wait_until(lambda last=killed_at: min(find_positions(store)) > last)
                    program.restart()
                    killed_at = spool.durable
            last = spool.durable
            wait_until(lambda: set(find_positions(store)) == {last})
    finally:
        program.end()
    elements = store.list_elements("hot")
    assert all(element.sign == 1 for element in elements)
    # Decimal seconds of messages are exact to less than a microsecond.
    given = sorted((str(element.row[0]), round(int(element.row[2]) / 1000)) for element in elements)
    assert given == sorted((station, round(stamp / 1000)) for station, stamp in planted)
    # Those whose turn came by the last heartbeat, which stands behind the messages that came late.
    heartbeat = next(entry.heartbeat_ns for entry in store.list_entries() if entry.name == "sure") or 0
    sure = [(str(element.row[0]), round(int(element.row[2]) / 1000)) for element in store.list_elements("sure")]
    assert sorted(sure) == [(station, at) for station, at in given if at * 1000 < heartbeat - heartbeat % 1000]
    assert len(sure) > len(given) / 2
    numbers = [element.number for element in elements]
    assert numbers == sorted(set(numbers))
    net = sum(element.sign * int(element.row[0]) for element in store.list_elements("count", limit=10**6))
    # What the window of a minute holds at the newest instant.
    newest = int(stamps.max())
    assert net == int(((stamps > newest - 60 * SECOND_NS) & (stamps <= newest)).sum())
    store.close()
    status = read_status(archive)
    assert status is not None
    assert (status.queries, status.ignored, dict(status.errors)) == (len(QUERIES), 0, {})
    assert "start 'hypergrid cql watch archive'" in find_tap_trouble(archive, time.time_ns())


def test_records_that_left_the_spool_before_they_were_followed_are_read_from_raw_copies(tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    opened = create_network(archive, stations=3, now_ns=time.time_ns())
    add_queries(tmp_path, archive)
    begun_ns = time.time_ns() // SECOND_NS * SECOND_NS + SECOND_NS
    with Spool.open(archive / SPOOL, segment_bytes=1) as spool:
        for first in range(0, 30, 5):
            numbers = range(first, first + 5)
            spool.append(record(number % 3, begun_ns + number * SECOND_NS, 35.0, begun_ns) for number in numbers)
            spool.flush()
    retire_segments(opened, 4, now_ns=begun_ns)
    program = watcher(archive).start()
    try:
        store = open_store(archive)
        wait_until(lambda: set(find_positions(store)) == {30}, within_s=180.0)
    finally:
        program.end()
    given = sorted((int(element.row[2]) - begun_ns) / SECOND_NS for element in store.list_elements("hot"))
    assert given == list(range(30))
    store.close()


def test_a_second_program_is_refused(tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    create_network(archive, stations=2, now_ns=time.time_ns())
    program = watcher(archive).start()
    try:
        wait_until(lambda: (archive / "continuous" / "tap.json").exists())
        # Where it is not refused, it does not end.
        second = subprocess.run(
            [sys.executable, "-m", "hypergrid", "cql", "watch", str(archive)],
            capture_output=True, text=True, timeout=120,
        )  # fmt: skip
    finally:
        program.end()
    assert second.returncode == 1
    assert "another program evaluates the queries over the tap" in second.stderr


def test_the_command_refuses_an_archive_without_stream_and_a_name_that_is_taken(tmp_path: Path) -> None:
    archive = tmp_path / "archive"
    create_network(archive, stations=2, now_ns=time.time_ns())
    add_queries(tmp_path, archive)
    again = CliRunner().invoke(app, ["cql", "watch", str(archive), str(tmp_path / "hot.cql"), "--only-add"])
    assert again.exit_code != 0
    assert "there is a live query 'hot' already" in str(again.exception)
    (archive / "stream").rename(tmp_path / "gone")
    without = CliRunner().invoke(app, ["cql", "watch", str(archive), "--only-add"])
    assert "has no stream yet" in str(without.exception)
