"""Live queries of an archive: what they gave, corrections included, is one back-test, also after kills."""

import os
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from hypergrid.archive import Archive
from hypergrid.archive.disk.retention import DEFAULT_RETENTION
from hypergrid.continuous.archive_query import open_inputs
from hypergrid.continuous.engine.operators import to_stream
from hypergrid.continuous.engine.state import VERSION
from hypergrid.continuous.live import LiveOptions, LiveQuery, LiveStore, add_query, open_store
from hypergrid.core.errors import InvalidQuery, NotFound
from hypergrid.core.times import DAY_NS, SECOND_NS
from hypergrid.query import open_archive
from tests.support.continuous_live_archives import QUERIES, backtest, commit, create, draw_commits, given
from tests.support.networks import START_NS

END_NS = START_NS + 5 * 3600 * SECOND_NS


@pytest.mark.parametrize("seed", range(2))
def test_live_results_are_one_backtest(tmp_path: Path, seed: int) -> None:
    folder = tmp_path / "a"
    create(folder)
    for name, text in QUERIES.items():
        add_query(open_inputs(open_archive(folder)), name, text, LiveOptions(START_NS, disorder_s=60.0))
    commits = draw_commits(seed, 6)
    rng = np.random.default_rng(seed)
    queries: dict[str, LiveQuery] = {}
    for number, parts in enumerate(commits):
        commit(folder, number, parts)
        for name in QUERIES:
            if rng.random() < 0.3 or name not in queries:
                # Another program goes on.
                queries[name] = LiveQuery(open_archive(folder), open_store(folder), name)
            if rng.random() < 0.8:
                queries[name].step()
            entry = queries[name].entry
            if entry.snapshot is not None and (entry.heartbeat_ns or 0) > START_NS and rng.random() < 0.5:
                archive = open_archive(folder, snapshot=entry.snapshot)
                expected = backtest(archive, QUERIES[name], START_NS, entry.heartbeat_ns or 0)
                assert given(folder, name) == expected, (name, number)
    corrections = 0
    for name in QUERIES:
        queries[name].step(END_NS)
        assert given(folder, name) == backtest(open_archive(folder), QUERIES[name], START_NS, END_NS), name
        elements = open_store(folder).list_elements(name, limit=10**6)
        assert [each.number for each in elements] == sorted({each.number for each in elements})
        known = elements[len(elements) // 2].number
        assert elements[len(elements) // 2 + 1 :] == open_store(folder).list_elements(name, known, 10**6)
        for each in elements:
            corrections += each.corrects is not None
            assert each.corrects != each.snapshot
    assert corrections


def check_kills(folder: Path, seed: int, kills: int, *, by_command: bool) -> None:
    """Kill the program that follows an archive again and again while commits come, and compare with a back-test."""
    create(folder)
    # In the order in which programs step them.
    names = ("join", "mean", "stuck", "total")
    for name in names:
        add_query(open_inputs(open_archive(folder)), name, QUERIES[name], LiveOptions(START_NS, disorder_s=60.0))
    commits = draw_commits(seed, kills + 2)
    rng = np.random.default_rng(seed)
    # Kills come after the step of each query in turn, so in that of the next, or while a program begins.
    awaited = rng.permutation(len(names) - np.arange(kills) % (len(names) + 1))
    command = [sys.executable, "-m", "tests.support.continuous_live_archives", str(folder), str(len(commits))]
    if by_command:
        command = [sys.executable, "-m", "hypergrid", "cql", "step", str(folder), "--follow", "--every", "100ms"]
    killed = 0
    process = subprocess.Popen(command)
    for number, parts in enumerate(commits):
        commit(folder, number, parts)
        if number < kills:
            await_newest(folder, names[: awaited[number]])
            time.sleep(float(rng.uniform(0.0, 0.4)))
            os.kill(process.pid, signal.SIGKILL)
            killed += process.wait() == -signal.SIGKILL
            process = subprocess.Popen(command)
    archive = open_archive(folder)
    if by_command:
        # It goes on until it is ended. Not by SIGINT: it is ignored below a shell that runs this in the background.
        await_newest(folder, names)
        process.terminate()
        process.wait(timeout=60)
    else:
        assert process.wait(timeout=300) == 0
    assert killed == kills
    for name in names:
        query = LiveQuery(archive, open_store(folder), name)
        assert query.entry.snapshot == archive.snapshot
        query.step(END_NS)
        assert given(folder, name) == backtest(archive, QUERIES[name], START_NS, END_NS), name
        elements = open_store(folder).list_elements(name, limit=10**6)
        numbers = [element.number for element in elements]
        assert numbers == sorted(set(numbers))
        corrections = sum(element.corrects is not None for element in elements)
        print(f"{name}: {kills} kills, {len(numbers)} elements, {corrections} corrections, {query.entry.late} windows")
        assert corrections, f"no late reading reached what {name!r} had given"


def await_newest(folder: Path, names: Sequence[str]) -> None:
    """Wait until some live queries did the step to the newest snapshot."""
    newest, store, deadline = open_archive(folder).snapshot, open_store(folder), time.monotonic() + 300
    while any(store.find(name).snapshot != newest for name in names):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    store.close()


def test_kills_lose_and_repeat_nothing(tmp_path: Path) -> None:
    check_kills(tmp_path / "a", 5, 3, by_command=False)


@pytest.mark.soak
@pytest.mark.parametrize("by_command", [False, True])
def test_twenty_kills_lose_and_repeat_nothing(tmp_path: Path, *, by_command: bool) -> None:
    check_kills(tmp_path / "a", 6, 20, by_command=by_command)


@pytest.mark.parametrize("longest_s", [None, 600])
def test_a_clock_that_jumps_stops_a_stream_that_would_repeat(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, longest_s: int | None
) -> None:
    folder = tmp_path / "a"
    create(folder)
    text = "Rstream(Select count(*) as k From air_temperature [Range 60 Seconds Slide 1 Second])"
    add_query(open_inputs(open_archive(folder)), "count", text, LiveOptions(START_NS, disorder_s=0.0))
    first, jumped = (part[0] for part in draw_commits(1, 6)[:2])
    commit(folder, 0, [first])
    query = LiveQuery(open_archive(folder), open_store(folder), "count")
    query.step()
    before = query.entry
    # Of a gateway whose clock jumps by three hours: stamps and arrivals.
    ahead = 10_800 * SECOND_NS
    commit(folder, 1, [replace(jumped, time_ns=jumped.time_ns + ahead, arrival_ns=jumped.arrival_ns + ahead)])
    monkeypatch.setattr(to_stream, "MOST_REPEATED", 5000)
    longest_ns = None if longest_s is None else longest_s * SECOND_NS
    with pytest.raises(InvalidQuery, match="Rstream each 1 s would give 1 rows, which do not change, at each instant"):
        _ = [query.step(longest_ns=longest_ns) for _ in range(20)]
    reached = query.entry
    assert (reached.snapshot == before.snapshot) == (longest_s is None)
    assert query.step(reached.heartbeat_ns) == 0
    monkeypatch.undo()
    query = LiveQuery(open_archive(folder), open_store(folder), "count")
    query.step()
    assert given(folder, "count") == backtest(open_archive(folder), text, START_NS, query.entry.heartbeat_ns or 0)
    assert len(open_store(folder).list_elements("count", limit=10**6)) > 10_000


def test_bad_input_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "a"
    create(folder)
    archive = open_archive(folder)
    store = add_query(open_inputs(archive), "mean", QUERIES["mean"], LiveOptions(START_NS))
    with pytest.raises(InvalidQuery, match="there is a live query 'mean' already"):
        add_query(open_inputs(archive), "mean", QUERIES["mean"], LiveOptions(START_NS))
    with pytest.raises(InvalidQuery, match="needs a stream or a surface of the archive"):
        add_query(open_inputs(archive), "still", "Select station From stations", LiveOptions(START_NS))
    with pytest.raises(InvalidQuery, match="idle_s above 0"):
        add_query(open_inputs(archive), "idle", QUERIES["mean"], LiveOptions(START_NS, 0.0))
    with pytest.raises(NotFound, match="live query"):
        LiveQuery(archive, store, "men")
    assert LiveQuery(archive, store, "mean").step() == 0
    store.remove("mean")
    with pytest.raises(NotFound):
        store.remove("mean")


def test_one_program_goes_on_with_a_query(tmp_path: Path) -> None:
    folder = tmp_path / "a"
    create(folder)
    add_query(open_inputs(open_archive(folder)), "mean", QUERIES["mean"], LiveOptions(START_NS))
    one, other = (LiveQuery(open_archive(folder), open_store(folder), "mean") for _ in range(2))
    commits = draw_commits(1, 3)
    commit(folder, 0, commits[0])
    assert one.step()
    before = one.entry
    commit(folder, 1, commits[1])
    step = other._evaluation.advance(before.snapshot, open_archive(folder).snapshot, before.heartbeat_ns or 0)  # noqa: SLF001
    assert one.step()
    with pytest.raises(InvalidQuery, match="another program evaluates it"):
        open_store(folder).keep(before, open_archive(folder).snapshot, step)


def test_a_removed_query_gives_nothing_to_the_next_of_its_name(tmp_path: Path) -> None:
    folder = tmp_path / "archive"
    create(folder)
    commit(folder, 0, draw_commits(1, 1)[0])
    archive, inputs = open_archive(folder), open_inputs(open_archive(folder))
    store = add_query(inputs, "q", QUERIES["mean"], LiveOptions(START_NS))
    first = LiveQuery(archive, store, "q")
    first.remove()
    add_query(inputs, "q", QUERIES["total"], LiveOptions(START_NS)).close()
    with pytest.raises(NotFound, match="live query 'q' was removed, and another of this name was added"):
        first.step()
    second = LiveQuery(archive, store, "q")
    second.step()
    assert list(second.rows().columns) == ["number", "tau", "sign", "station", "k", "total", "corrects", "snapshot"]
    assert given(folder, "q") == backtest(open_archive(folder), QUERIES["total"], START_NS, second.entry.heartbeat_ns)


def test_relations_of_an_expired_snapshot_let_the_query_begin_again(tmp_path: Path) -> None:
    folder = tmp_path / "archive"
    create(folder)
    commits = draw_commits(2, 3)
    commit(folder, 0, commits[0])
    store = add_query(open_inputs(open_archive(folder)), "near", QUERIES["near"], LiveOptions(START_NS))
    LiveQuery(open_archive(folder), store, "near").step()
    for number in (1, 2):
        commit(folder, number, commits[number])
    time.sleep(0.01)
    Archive.open(folder).maintain(replace(DEFAULT_RETENTION, keep_s=0.001))
    query = LiveQuery(open_archive(folder), store, "near")
    query.step()
    assert given(folder, "near") == backtest(open_archive(folder), QUERIES["near"], START_NS, query.entry.heartbeat_ns)


@pytest.mark.parametrize("name", ["join", "total"])
def test_states_of_another_program_are_made_anew_and_nothing_is_given_twice(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "archive"
    create(folder)
    commits = draw_commits(3, 4)
    store = add_query(open_inputs(open_archive(folder)), name, QUERIES[name], LiveOptions(START_NS))
    for number, parts in enumerate(commits):
        commit(folder, number, parts)
        query = LiveQuery(open_archive(folder), store, name)
        query.step()
        assert given(folder, name) == backtest(
            open_archive(folder), QUERIES[name], START_NS, query.entry.heartbeat_ns or 0
        )
        make_unreadable(store, name)
    # Without a change of the archive nothing is corrected.
    count, before = len(query.rows()), query.entry.late
    LiveQuery(open_archive(folder), store, name).step(END_NS)
    added = query.rows()[count:]
    assert (added["corrects"].isna().all(), query.entry.late) == (True, before)
    assert given(folder, name) == backtest(open_archive(folder), QUERIES[name], START_NS, END_NS)


@pytest.mark.parametrize("moved_s", [-600, 2**28])
@pytest.mark.parametrize("name", ["join", "total"])
def test_a_damaged_heartbeat_of_a_state_moves_no_results(tmp_path: Path, name: str, moved_s: int) -> None:
    folder = tmp_path / "archive"
    create(folder)
    store = add_query(open_inputs(open_archive(folder)), name, QUERIES[name], LiveOptions(START_NS))
    for number, parts in enumerate(draw_commits(3, 5)):
        commit(folder, number, parts)
        query = LiveQuery(open_archive(folder), store, name)
        query.step()
        if number == 3:
            with closing(sqlite3.connect(store.path)) as db:
                db.execute(
                    "UPDATE states SET heartbeat_ns = heartbeat_ns + ? WHERE heartbeat_ns = ?",
                    (moved_s * SECOND_NS, max(store.list_states(name))),
                )
                db.commit()
    assert (query.entry.heartbeat_ns or 0) < START_NS + DAY_NS
    expected = backtest(open_archive(folder), QUERIES[name], START_NS, query.entry.heartbeat_ns or 0)
    assert given(folder, name) == expected
    assert max(store.list_states(name)) == query.entry.heartbeat_ns


def make_unreadable(store: LiveStore, name: str) -> None:
    """Give the states of a query the version of a program to come."""
    with store._transaction():
        for heartbeat, state in store._db.execute("SELECT heartbeat_ns, state FROM states WHERE name = ?", (name,)):
            changed = state[:4] + (VERSION + 1).to_bytes(4, "little") + state[8:]
            store._db.execute(
                "UPDATE states SET state = ? WHERE name = ? AND heartbeat_ns = ?", (changed, name, heartbeat)
            )
