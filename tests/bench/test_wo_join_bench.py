"""The benchmark of the join of streams in small: that both sides agree, and what it says. No time is tested."""

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pytest

from hypergrid.wo_join import KnownParameters, Matches, WoJoin
from tests.bench import (
    bench_wo_join,
    wo_join_cases,
    wo_join_orders,
    wo_join_peers,
    wo_join_pictures,
    wo_join_settings,
    wo_join_spark,
    wo_join_strategies,
)
from tests.bench.bench_wo_join import CASES, PARTS, TITLES
from tests.bench.wo_join_buffers import CURVES, course
from tests.bench.wo_join_cases import Sizes
from tests.support import stream_oracles as oracle
from tests.support.streams.arrivals import Arrivals
from tests.support.streams.generator import Lag, Load, Source
from tests.support.streams.optimum import count_results

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SMALL = Sizes(
    seeds=1, until_s=16.0, slices=300, stations=5, every=7, singles=20, tuples=30_000, at_rest=6_000, spark=6_000,
    spark_batch=1_500, order_slices=300, order_every=7, day_s=9_000.0, real_days=2,
)  # fmt: skip


@pytest.fixture(scope="module")
def measured(spark: "SparkSession") -> dict[str, Any]:
    assert spark.version  # Spark's join is run in the session of the tests
    return bench_wo_join.measure("all", pairs=2, sizes=SMALL)


def lagging(seed: int) -> Arrivals:
    return Load((Source(3, 2), Source(7, 2, lag=Lag(0.3)), Source(1, 2)), keys=20, seed=seed).arrivals()


@pytest.mark.parametrize("seed", range(4))
def test_true_parameters_are_those_of_the_definitions(seed: int) -> None:
    arrivals = lagging(seed)
    keys = [arrivals.key[arrivals.stream == stream].tolist() for stream in range(3)]
    found = wo_join_cases.parameters(arrivals)
    assert found.scrambling_factor.tolist() == [oracle.scrambling_factor(own) for own in keys]
    assert found.counts.tolist() == [len(own) for own in keys]
    assert found.disorder.tolist() == [max(max(own[: at + 1]) - key for at, key in enumerate(own)) for own in keys]
    come = np.stack([np.cumsum(arrivals.stream == stream) for stream in range(3)])
    for one, other in ((0, 1), (1, 0), (2, 1)):
        lags = wo_join_cases.lags(arrivals, one, other)
        for at in range(len(arrivals)):
            i, j = int(come[one, at]), int(come[other, at])
            assert lags[at] == (oracle.lag(keys[one], keys[other], i, j) if j else i)


@pytest.mark.parametrize("policy", ["published", "progress"])
def test_with_true_parameters_nothing_is_lost(policy: Any) -> None:  # noqa: ANN401 - a name of a policy
    for seed in range(4):
        arrivals = lagging(seed)
        known: KnownParameters = wo_join_cases.parameters(arrivals).known()
        matches: Matches = wo_join_cases.pushed(WoJoin(3, policy=policy, known=known), arrivals)
        assert len(matches) == count_results(arrivals)


def test_both_sides_of_each_figure_agree(measured: dict[str, Any]) -> None:
    assert list(measured["parts"]) == list(PARTS) == [name for name in CASES if name != "all"]
    differences = measured["parts"]["speed"]["differences"]
    assert {row["name"] for row in differences} >= {"3-way, pandas", "23-way, pandas", "2-way, Spark"}
    peers = [row for row in differences if not row["name"].endswith("join of streams")]
    assert all(row["met"] and row["there"] == row["of"] for row in peers), differences
    assert all(0.9 * row["of"] <= row["here"] <= row["of"] for row in differences), differences


def test_known_parameters_give_all_results(measured: dict[str, Any]) -> None:
    rows = measured["parts"]["accuracy"]["rows"]
    assert {(row["query"], row["policy"], row["parameters"]) for row in rows} == {
        *((query, policy, told) for query in (1, 2, 3) for policy in ("published", "progress")
          for told in ("known", "monitored")),
        (1, "window", "known"),
    }  # fmt: skip
    for row in rows:
        assert 0.5 < row["least"] <= row["share"] <= row["greatest"] <= 1
        assert row["met"] == (row["share"] >= row["goal"])
        if row["parameters"] == "known":
            assert row["least"] == row["goal"] == 1, row


def test_windows_of_equal_accuracy_hold_more_than_the_optimum(measured: dict[str, Any]) -> None:
    rows = measured["parts"]["window"]["rows"]
    assert [(row["query"], row["policy"]) for row in rows] == [
        (query, policy) for query in (1, 2, 3) for policy in ("published", "progress")
    ]
    for row in rows:
        assert row["window each"] <= row["window"]
        assert row["saving"] == pytest.approx(1 - row["held"] / row["window"], abs=1e-3)
        assert row["saving each"] == pytest.approx(1 - row["held"] / row["window each"], abs=1e-3)
        # Windows that hold on average what the join holds give fewer results than it.
        for name in ("share at equal memory", "share at equal memory, each"):
            assert 0 <= row[name] <= 1
            assert row[name] < row["share"] or row["saving"] < 0


def test_every_setting_of_table_5_4_has_its_goal(measured: dict[str, Any]) -> None:
    rows = measured["parts"]["table-5.4"]["rows"]
    cases = [(row["setting"], row["lag"]) for row in rows if row["policy"] == "progress"]
    assert len(cases) == len(set(cases)) == 11
    assert {("ordered", "none"), ("scrambled", "none"), ("lag 120 min", "moving"), ("lag 10 min", "static")} < set(
        cases
    )
    for row in rows:
        assert row["waits [s]"] == [0, 0]  # a result comes with its last tuple
        median, most = row["slice waits [s]"]
        assert 0 <= median <= most
        assert 0 < row["push [us]"][0] <= row["push [us]"][1]
        assert row["window each"] <= row["window"]
        assert row["saving"] == pytest.approx(1 - row["held"] / row["window"], abs=2e-3)
        assert row["saving each"] == pytest.approx(1 - row["held"] / row["window each"], abs=2e-3)
        assert (row["goal"] is None) == (row["met"] is None) == (row["policy"] == "published")
        if row["goal"] is not None:
            assert row["met"] == (row["held"] <= row["goal"] and row["least share"] >= 0.995)
            assert row["goal"] == pytest.approx(max(1.2 * row["optimum"], row["optimum"] + 5), rel=1e-3)
    ordered = next(row for row in rows if row["setting"] == "ordered" and row["policy"] == "progress")
    assert ordered["share"] == 1
    # Of so few slices the beginning, in which nothing is dropped, is a tenth.
    held, best = ordered["settled"]
    assert best <= held <= best + 1 < ordered["held"]


def test_rows_of_several_loads_become_one() -> None:
    loads = [Load((Source(3, regular=True),) * 3, keys=100, seed=seed) for seed in range(2)]
    sizes = Sizes(seeds=2, slices=100, every=7, singles=5)
    both = wo_join_settings._of_all("three", "none", loads, sizes)[0]
    each = [wo_join_settings._of_all("three", "none", [load], sizes)[0] for load in loads]
    assert both["held"] == pytest.approx(sum(row["held"] for row in each) / 2)
    assert both["settled"][1] == pytest.approx(sum(row["settled"][1] for row in each) / 2)
    assert both["least share"] == min(row["share"] for row in each)
    assert both["met"] == all(row["met"] for row in each)


def test_waiting_counts_from_the_last_tuple_that_contributes() -> None:
    nanoseconds = np.array([0, 1, 2, 5, 6]) * 10**9
    stream, key = np.array([0, 1, 0, 1, 0], np.int32), np.array([1, 1, 2, 2, 3])
    arrivals = Arrivals(2, stream, key, np.zeros(5), nanoseconds)
    join = WoJoin(2, form="assembling", known=KnownParameters(disorder=(0, 0)))
    found = wo_join_settings.follow(join, arrivals, 2, 3)
    # Slice 1 is whole at 1 s, and closed at 5 s, when both streams are beyond it.
    assert found.waited_s.tolist() == [4.0]
    assert found.held.tolist() == [2, 2]
    assert found.share == 1


def test_without_a_strategy_results_come_at_once() -> None:
    arrivals = wo_join_cases.query_arrivals(1, 0, SMALL)
    (join, bound), *others = wo_join_strategies.joins_of(1, arrivals, "none")
    assert not others
    assert not join.waited_s.any()
    assert not join.spilled.any()
    assert 0 < len(join.results) == join.in_time <= count_results(arrivals)
    assert join.held_bytes.min() > 0
    assert bound >= 3


def test_the_last_join_is_fed_what_the_others_emit() -> None:
    arrivals = wo_join_cases.query_arrivals(3, 0, SMALL)
    known = wo_join_strategies.joins_of(3, arrivals, "none")
    assert len(known) == 3
    # Without a strategy nearly all results come, with their last tuple, as if the joins before gave all theirs.
    whole = wo_join_cases.last_inputs(3, arrivals)
    assert 0.9 * count_results(whole) < len(known[-1][0].results) <= count_results(whole)
    assert known[-1][0].waited_s.max() == 0
    # Where the leaves sort, the last join sees them sorted on the first key, and waits for their sorting too.
    sorted_first = wo_join_strategies.joins_of(2, wo_join_cases.query_arrivals(2, 0, SMALL), "msf at leaves")
    leaf, last = sorted_first[0][0], sorted_first[-1][0]
    assert np.all(np.diff(leaf.results.key) >= 0)
    if last.in_time:
        assert last.waited_s.min() >= 0
        assert last.waited_s.max() > 0


def test_strategies_give_what_is_given_without(measured: dict[str, Any]) -> None:
    if not wo_join_strategies.spills():
        pytest.skip("joins spill nothing to disk here")
    rows = measured["parts"]["strategies"]["rows"]
    names = ("none", "window", "msf", "msf at leaves", "dbf", "hybrid", "hybrid at leaves")
    assert [(row["query"], row["strategy"]) for row in rows] == [
        (query, name) for query in (1, 2, 3) for name in names if query > 1 or "leaves" not in name
    ]
    assert all(0.85 < row["share"] <= 1 for row in rows), rows
    # Of equal accuracy, and as prompt.
    for none, window in ((row, rows[at + 1]) for at, row in enumerate(rows) if row["strategy"] == "none"):
        assert window["share"] >= none["share"]
        assert window["waited, p99 [s]"] == none["waited, p99 [s]"] == 0
        assert window["by 3.5 [tuples]"] is None
    courses = measured["parts"]["strategies"]["courses"]["S3"]
    assert {len(course) for course in courses.values()} == {round(SMALL.until_s)}
    for row in rows:
        if row["waited, p99 [s]"] is not None:  # in so short a load nothing may come before its end
            assert 0 <= row["waited, median [s]"] <= row["waited, p99 [s]"]
        assert row["on disk [tuples]"] == 0 or row["strategy"].split()[0] in {"dbf", "hybrid"}


def test_shapes_of_the_figures_are_judged_by_what_was_measured(measured: dict[str, Any]) -> None:
    part = measured["parts"]["strategies"]
    held = {(row["query"], row["strategy"]): row["held [tuples]"] for row in part["rows"]}
    shapes = {row["claim"]: row for row in part["shapes"]}
    for number in (2, 3):
        shown = shapes[f"query {number}: MSF at leaves holds less than DBF"]
        assert shown["measured"] == pytest.approx(held[number, "msf at leaves"] / held[number, "dbf"], rel=1e-3)
        assert shown["reproduced"] == (held[number, "msf at leaves"] <= held[number, "dbf"])
    assert {row["figure"] for row in part["shapes"]} == {"3.13", "3.14", "3.15", "3.5.3"}


def test_both_orders_stand_beside_every_contrast(measured: dict[str, Any]) -> None:
    part = measured["parts"]["orders"]
    rows = [row for row in part["rows"] if row["network"] == "generated"]
    cases = [(row["setting"], row["lag"], row["order"]) for row in rows]
    assert len(cases) == len(set(cases)) == 2 * (2 + 4 * 3)
    for whole, in_order in zip(rows[::2], rows[1::2], strict=True):
        assert (whole["order"], in_order["order"]) == ("whole", "time")
        assert whole["setting"] == in_order["setting"]
        assert whole["least"] <= in_order["least"]
        assert whole["watermark"] is None
        assert in_order["watermark"] > 0
    for row in part["rows"]:
        assert 0.8 < row["share"] <= 1
        assert row["window each"] <= row["window one"]
        assert row["saved, each"] == pytest.approx(1 - row["held"] / row["window each"], abs=5e-3)
        if row["share"] == 1:
            assert row["least"] <= min(row["held"], row["window each"]) * (1 + 1e-3)
        assert 0 <= row["day before: share"] <= 1
        assert row["day before"] < row["a tenth more"] <= 1.1 * row["day before"] + 23
    ordered = next(row for row in rows if row["setting"] == "ordered")
    assert ordered["share"] == ordered["day before: share"] == 1


def test_recordings_that_are_absent_are_named(tmp_path: Path) -> None:
    reasons: list[str] = []
    assert list(wo_join_orders._recorded(replace(SMALL, data=tmp_path), reasons)) == []
    assert [f"{tmp_path}/sensorscope_gsb, which is not here" in reasons[0], f"{tmp_path}/ulb_wsn" in reasons[1]] == [
        True,
        True,
    ]


def test_the_watermark_lets_go_of_what_it_passes() -> None:
    key = np.array([0, 0, 1, 0, 1, 2, 2])
    arrivals = Arrivals(2, np.array([0, 1, 0, 1, 1, 0, 1], np.int32), key, np.zeros(7), np.arange(7))
    case = wo_join_orders.Case(arrivals, key * 10**9, 10**9, 10**9)
    # The fourth is a slice behind, so slice 0 may close once a stamp is two slices ahead of it: nothing does before the
    # sixth, which lets go of slice 0.
    assert wo_join_orders.watermark(case, 1.0) == pytest.approx((1 + 2 + 3 + 4 + 5 + 3 + 4) / 7)


def test_a_course_has_all_its_curves(measured: dict[str, Any]) -> None:
    part = measured["parts"]["buffers"]
    assert list(part["courses"]) == ["query 1", "query 2", "query 3"]
    for told in part["courses"].values():
        seconds = len(told["starts_s"])
        assert seconds > 0
        for name in CURVES:
            assert [len(curve) for curve in told[name]] == [seconds] * len(told["streams"])
    rows = [row for row in part["rows"] if row["query"] == 1]
    assert [(row["stream"], row["phase"]) for row in rows] == [
        (name, phase) for name in ("S1", "S2", "S3") for phase in ("before", "congestion")
    ]
    assert all(row[name] is not None and row[name] >= 0 for row in rows for name in CURVES)


def test_what_is_held_at_the_end_of_a_second() -> None:
    shown = course(1, 0, SMALL)
    arrivals = wo_join_cases.query_arrivals(1, 0, Sizes(until_s=5.0))
    join = WoJoin(3)
    wo_join_cases.pushed(join, arrivals)
    held = [one.held for one in join.statistics().streams]
    assert shown.curves["progress"][:, 4].tolist() == held
    assert shown.starts_s[4] == 4


def test_the_document_and_the_tables(measured: dict[str, Any]) -> None:
    document = json.loads(json.dumps(measured, allow_nan=False))
    assert set(TITLES) - {"strategies"} == set(document["parts"]) - {"strategies"}
    tables = bench_wo_join.tables(document)
    assert len(tables) == len(PARTS) + 3
    for title, columns, rows in tables:
        assert "{" not in title
        assert rows
        assert all(len(row) == len(columns) for row in rows)
    goals = {row["name"]: row["goal"] for row in document["parts"]["speed"]["figures"]}
    assert goals["3-way, tuples/s through push"] == 25e6
    assert goals["23-way, tuples/s through push"] == 15e6
    assert goals["throughput over Spark's stream-stream join"] == 100
    assert goals["tuples held over Spark's state rows"] == 1 / 8


def test_peers_join_on_the_key() -> None:
    tables = [pd.DataFrame({"key": keys, f"value{at}": 0.5}) for at, keys in enumerate(([1, 2, 2], [2, 3], [2, 2, 9]))]
    for name, join in wo_join_peers.installed().items():
        for cores in (1, 2):
            assert join(tables, cores)() == 4, name


def test_the_watermark_is_just_large_enough() -> None:
    stream, key = np.array([0, 0, 0, 1, 1], np.int32), np.array([9, 4, 10, 3, 1])
    assert wo_join_spark.watermark(Arrivals(2, stream, key, np.zeros(5), np.arange(5))) == 6


def test_the_picture_is_written(tmp_path: Path) -> None:
    path = wo_join_pictures.write(tmp_path / "pictures", SMALL)
    assert path.name == "buffers.png"
    assert path.read_bytes().startswith(b"\x89PNG")
