"""The benchmark of continuous queries: what it reports, on few rows; its checks of results are part of it."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from numpy.typing import NDArray

from hypergrid.continuous.engine import ChangeBatch, ElementBatch
from tests.bench import cql_peers_apart
from tests.bench.bench_cql import (
    CASES,
    LONG_CASES,
    QUERIES,
    check,
    make_feeds,
    measure,
    measure_peers,
    run_text,
    tables,
)
from tests.bench.cql_near import QUERIES as NEAR_QUERIES
from tests.bench.cql_near import compare as compare_near
from tests.bench.cql_near import make_feeds as make_near
from tests.bench.cql_near import measure_near, run_near
from tests.bench.cql_peers import HOUR_NS, INPUTS, PEERS, WORKLOADS, compare, hold_core, iterate_peer, join_steps
from tests.bench.cql_peers_apart import (
    PROGRAMS,
    RESULT,
    WHOLE,
    Peer,
    compare_best,
    cut_feed,
    measure_apart,
    prepare_feed,
    rate_rows,
    run_program,
)


@pytest.mark.parametrize("case", QUERIES)
def test_rates_are_reported_with_their_aims(case: str) -> None:
    measured = measure(case, pairs=1, rows=6000)
    [row] = measured["rates"]
    assert row["case"] == case
    assert row["elements"] == (6000 if case == "filter" else 12000)
    assert row["elements_per_cpu_s"] > row["range"][0] - 1
    assert row["is_met"] == (row["elements_per_cpu_s"] >= row["aim"])
    json.dumps(measured)
    [(_, columns, listed)] = tables(measured)
    assert all(len(line) == len(columns) for line in listed)


def test_a_wrong_result_is_met() -> None:
    feeds = make_feeds("filter", 100)
    columns = tuple(column[:1] for column in feeds["S"].columns)
    with pytest.raises(AssertionError, match="filter"):
        check("filter", feeds, [ChangeBatch(feeds["S"].tau[:1] + 1, np.ones(1, np.int8), columns)])


def test_registering_is_measured_to_the_first_answer() -> None:
    measured = measure("registering", pairs=1)
    assert set(measured["registering"]["cpu_ms"]) == set(QUERIES)
    assert len(tables(measured)) == 1


def test_memory_is_measured_from_outside() -> None:
    measured = measure("memory", rows=400_000)
    sizes = measured["memory"]["sizes"]
    assert [part["rows"] for part in sizes] == [100_000, 200_000, 400_000]
    for part in sizes:
        # Two columns, a stamp and a place.
        assert part["bytes_a_row_projected"] == 32
        assert part["bytes_a_row_resident"] > 0
        assert "32 bytes a row" in part["explained"] or "total" in part["explained"]
    json.dumps(measured)
    [(_, columns, listed)] = tables(measured)
    assert all(len(line) == len(columns) for line in listed)


def test_near_points_are_compared_with_all_pairs() -> None:
    listed = measure_near(1, 3000, 200)
    assert {row["query"] for row in listed} == set(NEAR_QUERIES)
    assert all(row["rows"] > 0 and row["ratio"] > 0 for row in listed)
    measured = {"rates": [], "near": listed}
    json.dumps(measured)
    [(_, columns, rows)] = tables(measured)
    assert all(len(row) == len(columns) for row in rows)


def test_a_wrong_row_of_near_points_is_met() -> None:
    changes, _ = run_near(NEAR_QUERIES["stations near lightning"], make_near(3000, 200), is_indexed=True)
    compare_near("it", changes, changes)
    with pytest.raises(AssertionError, match="differ"):
        compare_near("it", changes, ChangeBatch(changes.tau + 1, changes.sign, changes.columns))
    nothing = ChangeBatch(changes.tau[:0], changes.sign[:0], tuple(part[:0] for part in changes.columns))
    with pytest.raises(AssertionError, match="empty"):
        compare_near("it", nothing, nothing)


def test_each_query_is_a_case() -> None:
    assert set(CASES) == {"all", *QUERIES, "near", "registering", "memory", *LONG_CASES}


def test_peers_give_the_engines_rows() -> None:
    listed = measure_peers(6000, 1, (500, 3000))
    assert {row["workload"] for row in listed} == set(WORKLOADS)
    assert {(row["run"], row["batch"]) for row in listed} == {
        (run, size) for run in ("ours", *PEERS) for size in (500, 3000)
    }
    assert all(row["is_met"] == (row["ours_over_it"] >= row["aim"]) for row in listed if row["run"] != "ours")
    loops = {(row["workload"], row["batch"]): row for row in listed if row["run"] == "ours"}
    for row in listed:
        rate = loops[row["workload"], row["batch"]]["loops_rows_per_cpu_s"]
        assert row["is_beyond"] == (row["aim"] * row["rows_per_cpu_s"] > rate) if "aim" in row else rate > 0
    measured = {"rates": [], "peers": listed}
    json.dumps(measured)
    [(_, columns, rows)] = tables(measured)
    assert all(len(row) == len(columns) for row in rows)


def compute_both(workload: str, size: int) -> tuple[dict[str, ElementBatch], list[ChangeBatch], list[NDArray[Any]]]:
    """Return the input of a workload, the engine's changes and the rows of Polars."""
    # 40,000 readings are more than an hour: some leave the window of the mean.
    feeds = make_feeds(WORKLOADS[workload], 40_000 if "mean" in workload else 6000)
    return (
        feeds,
        run_text(workload, feeds, size),
        join_steps(iterate_peer(workload, PEERS["polars"](workload), feeds, size)),
    )


@pytest.mark.parametrize("workload", WORKLOADS)
def test_a_wrong_row_of_a_peer_is_met(workload: str) -> None:
    feeds, ours, rows = compute_both(workload, 2000)
    compare(workload, feeds, ours, rows, 2000)
    wrong = [column.copy() for column in rows]
    wrong[-1][-1] += 1
    with pytest.raises(AssertionError, match=workload):
        compare(workload, feeds, ours, wrong, 2000)


@pytest.mark.parametrize("workload", WORKLOADS)
def test_a_missing_row_of_a_peer_is_met(workload: str) -> None:
    feeds, ours, rows = compute_both(workload, 2000)
    with pytest.raises(AssertionError, match=workload):
        compare(workload, feeds, ours, [column[1:] for column in rows], 2000)
    # As many rows as there should be, of which one stands twice and one is missing.
    twice = [np.concatenate([column[1:], column[-1:]]) for column in rows]
    with pytest.raises(AssertionError, match=workload):
        compare(workload, feeds, ours, twice, 2000)


def test_means_of_a_slide_that_are_missing_are_met() -> None:
    feeds, ours, rows = compute_both("mean_at_ends", 2000)
    kept = rows[0] != rows[0][0]
    with pytest.raises(AssertionError, match="mean_at_ends"):
        compare("mean_at_ends", feeds, ours, [column[kept] for column in rows], 2000)


def test_the_measurement_stays_on_one_core() -> None:
    before = os.sched_getaffinity(0)
    with hold_core() as core:
        assert os.sched_getaffinity(0) == {core}
        child = subprocess.run(
            [sys.executable, "-c", "import os; print(*os.sched_getaffinity(0))"],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        assert child.stdout.split() == [str(core)]
    assert os.sched_getaffinity(0) == before


def list_hourly_means(feed: ElementBatch) -> list[NDArray[Any]]:
    """Return the mean of each station in each hour, and the end of the hour, also of the one that has not ended."""
    frame = pd.DataFrame(
        {"tau": (feed.tau // HOUR_NS + 1) * HOUR_NS, "station": feed.columns[0], "mean": feed.columns[1]}
    )
    means = frame.groupby(["tau", "station"], as_index=False).mean()
    return [means[name].to_numpy() for name in frame]


def test_means_of_hours_are_compared_up_to_the_last_that_was_closed() -> None:
    # Eight hours and twenty minutes.
    feed = prepare_feed("hourly_mean", make_feeds("sliding_mean", 250_000)["readings"])
    feeds = {"readings": feed}
    ours, rows = run_text("hourly_mean", feeds), list_hourly_means(feed)
    assert rows[0][-1] == 9 * HOUR_NS > feed.tau[-1] > 8 * HOUR_NS
    compare("hourly_mean", feeds, ours, rows)
    compare("hourly_mean", feeds, ours, [column[rows[0] <= 5 * HOUR_NS] for column in rows])
    for kept in (rows[0] <= 4 * HOUR_NS, rows[0] != 3 * HOUR_NS, np.arange(len(rows[0])) != 7):
        with pytest.raises(AssertionError, match="a peer"):
            compare("hourly_mean", feeds, ours, [column[kept] for column in rows])
    # Nothing was closed, also where hardly an hour went by.
    nothing = [column[:0] for column in rows]
    for part in (feed, cut_feed(feed, 40_000)):
        with pytest.raises(AssertionError, match="closed hours up to 0 ns"):
            compare("hourly_mean", {"readings": part}, ours, nothing)
    wrong = [rows[0], rows[1], rows[2] + (rows[0] == 2 * HOUR_NS)]
    with pytest.raises(AssertionError, match="hourly_mean"):
        compare("hourly_mean", feeds, ours, wrong)


@pytest.mark.parametrize(
    ("workload", "count", "batch"),
    [("filter", 6000, WHOLE), ("sliding_mean", 70_000, 16_000), ("hourly_mean", 250_000, 65_536)],
)
def test_spark_gives_the_engines_rows(workload: str, count: int, batch: int) -> None:
    # More than an hour of readings in the first half, in three batches; or more than four.
    [(stream, feed)] = make_feeds(INPUTS[workload], count + count // 8).items()
    feed = cut_feed(prepare_feed(workload, feed), count)
    half = {stream: cut_feed(feed, len(feed.tau) // 2)}
    seconds, rows = run_program(Path(sys.executable), "spark", workload, feed, batch)
    assert set(seconds) == {"half_cpu_s", "cpu_s"}
    compare(workload, half, run_text(workload, half), [rows[name] for name in RESULT[workload]])


def test_peers_without_an_environment_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    absent = {name: Peer("no-environment", peer.aim, peer.batches) for name, peer in PROGRAMS.items()}
    monkeypatch.setattr(cql_peers_apart, "PROGRAMS", absent)
    listed = measure_apart({"filter": make_feeds("filter", 1000)}, 1, run_text)
    assert [row["run"] for row in listed if row["batch"] in (None, 65536)] == list(PROGRAMS)
    assert all("make cql-peers" in row["failure"] for row in listed)
    [(_, columns, rows)] = tables({"rates": [], "apart": listed})
    assert all(len(row) == len(columns) for row in rows)


def test_both_have_the_batch_that_is_best_for_them() -> None:
    shared = {"workload": "filter", "aim": 5.0}
    peers = [
        shared | {"run": run, "batch": batch, "rows_per_cpu_s": rate}
        for run, batch, rate in (("ours", 500, 10.0), ("duckdb", 500, 4.0), ("ours", 4096, 60.0), ("duckdb", 4096, 3.0))
    ]
    apart = [
        shared | {"run": "bytewax", "batch": batch, "rows_per_cpu_s": rate, "ours_per_cpu_s": own, "aim": 20.0}
        for batch, rate, own in ((4096, 5.0, 40.0), (1 << 40, 4.0, 90.0))
    ]
    apart += [shared | {"run": "csp", "batch": None, "rows_per_cpu_s": 1.0, "ours_per_cpu_s": 90.0}]
    apart += [shared | {"run": "laminardb", "batch": 4096, "failure": "cannot"}]
    peers += [row | {"workload": "mean_at_ends"} for row in peers]
    listed = compare_best(peers, apart)
    compared = [(row["run"], row["batch"], row["own_batch"], row["ours_over_it"], row["is_met"]) for row in listed]
    assert compared == [("duckdb", 500, 4096, 15.0, True), ("bytewax", 4096, 65536, 18.0, False)]
    [(_, columns, rows)] = tables({"rates": [], "best": listed})
    assert all(len(row) == len(columns) for row in rows)


def test_a_rate_that_the_start_hides_is_that_of_all_rows() -> None:
    assert rate_rows(100, 3.0, 1.0) == 25.0
    assert rate_rows(100, 1.0, 1.1) == 100.0


@pytest.mark.parametrize("name", ["peers", "flink"])
def test_the_lists_of_peers_are_pinned_by_hashes(name: str) -> None:
    folder = Path(__file__).parents[2] / "tools" / "cql_peers"
    text = (folder / f"{name}.lock").read_text()
    blocks = re.split(r"^(?=\S)", text, flags=re.MULTILINE)[1:]
    assert all(re.match(r"[a-z0-9._-]+==\S+", block) and "--hash=sha256:" in block for block in blocks)
    assert "://" not in text
    assert "--index" not in text
    wanted = re.findall(r"^[^=<\s]+==\S+", (folder / f"{name}.txt").read_text(), flags=re.MULTILINE)
    assert set(wanted) <= {re.split(r"[\s;]", block)[0] for block in blocks}
