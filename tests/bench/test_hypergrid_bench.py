"""The benchmark of the engine in small: that both sides of each figure agree, and what it says. No time is tested."""

import json
from typing import Any

import numpy as np
import pandas as pd
import pytest

from tests.bench import bench_hypergrid, hypergrid_script
from tests.bench.bench_hypergrid import CASES, PARTS, TITLES
from tests.bench.hypergrid_cases import QUERIES, Engine, Growth, Sample, Sizes, wanted

SMALL = Sizes(
    start="2007-10-01", days=2, hours=12, side=5, engine=Engine(stations=20, side=9, slices=50),
    growth=Growth(stations=6, side=9, slices=50), walked_side=9, dear_side=8, seeds=2,
)  # fmt: skip


@pytest.fixture(scope="module")
def measured() -> dict[str, Any]:
    return bench_hypergrid.measure("all", pairs=2, sizes=SMALL)


def test_both_sides_of_each_figure_agree(measured: dict[str, Any]) -> None:
    assert list(measured["parts"]) == [name for name in CASES if name != "all"]
    for part in measured["parts"].values():
        assert part["differences"]
        assert all(row["met"] for row in part["differences"]), part["differences"]


def test_every_figure_says_what_it_is_and_whether_its_goal_is_met(measured: dict[str, Any]) -> None:
    document = json.loads(json.dumps(measured, allow_nan=False))
    figures = {row["name"]: row for part in document["parts"].values() for row in part["figures"]}
    assert figures["Q1, reading included"]["goal"] == figures["Q3, reading included"]["goal"] == 10
    assert figures["Q2, reading included"]["goal"] is None
    assert figures["convert, align, krige"]["goal"] == 1.1
    assert figures["convert, align, krige"]["goal_is"] == "at most"
    for row in figures.values():
        low, high = row["ratio_range"]
        assert low <= row["ratio"] <= high
        assert (row["met"] is None) == (row["goal"] is None)


def test_a_slice_more_touches_the_windows_that_hold_it(measured: dict[str, Any]) -> None:
    figures = measured["parts"]["growing"]["figures"]
    assert [figure["name"] for figure in figures] == [
        "Q5, one slice more on 50: 3 time cells touched",
        "Q5 from all stations, one slice more on 50: 3 time cells touched",
    ]
    assert [figure["goal"] for figure in figures] == [0.01, None]


def test_each_rule_that_fires_is_measured_by_itself(measured: dict[str, Any]) -> None:
    names = [row["name"] for row in measured["parts"]["rewriting"]["figures"]]
    assert [name for name in names if name.startswith("Q1 with three converts")] == [
        "Q1 with three converts, all rules (3 fire)",
        "Q1 with three converts, drop_idle alone",
        "Q1 with three converts, coalesce alone",
        "Q1 with three converts, commute alone",
    ]
    assert "Q5 from all stations, push_clip alone" in names


def test_fused_queries_have_the_same_bits_a_time_and_a_peak(measured: dict[str, Any]) -> None:
    part = measured["parts"]["rewriting"]
    figures = {row["name"]: row for row in part["figures"]}
    exact = {row["name"]: row["greatest"] for row in part["differences"] if row["goal"] == 0.0}
    for query in ("Q1", "Q2", "Q3", "Q4", "Q5"):
        for name in (query, f"{query}, convert and align alone"):
            assert figures[name]["what"] == "unfused / fused"
            assert figures[name]["goal"] is None
            assert figures[f"{name}, peak memory"]["ratio"] > 0
            assert exact[f"{name}, fused"] == 0.0


def test_what_is_kept_from_box_to_box_is_measured_apart(measured: dict[str, Any]) -> None:
    figures = {row["name"]: row for row in measured["parts"]["buffers"]["figures"]}
    for what in ("cells", "kriging weights", "cells and kriging weights"):
        assert "time cells" in figures[f"Q5, {what} kept"]["what"]
    # Without buffers a slice is interpolated once a box that needs it; selections are made once a set of stations.
    assert figures["Q5, cells interpolated"]["ratio"] > 1
    assert figures["Q5 by quarters, calls of select"]["ratio"] > 1


def test_the_walk_is_judged_beside_other_orders_of_as_many_cells(measured: dict[str, Any]) -> None:
    rows = measured["parts"]["walk"]["correlation"]
    assert {row["name"] for row in rows} == {"radiation", "rain"}
    assert {"walk", "algorithm_9", "uniform", "raster", "coarse_to_fine"} <= {row["order"] for row in rows}
    assert [(row["name"], row["order"]) for row in rows if row["goal"] == 0.85] == [("radiation", "walk")]
    times = measured["parts"]["walk"]["figures"]
    goals = {row["name"]: row["goal"] for row in times}
    # A series is one pass: no walk is promised to save time, and the plan falls back.
    assert goals["radiation, 15 % by walk"] is goals["radiation, 15 % by algorithm_9"] is None
    assert goals["Q1, 9 x 9, 15 % by walk"] == goals["wet bulb, 8 x 8, 15 % by walk"] == 5
    assert goals["Q1, 9 x 9, predicted gain"] == 1.3
    falls_back = {row["name"]: row["ratio"] for row in times if row["name"].endswith("falls back")}
    assert falls_back["radiation, falls back"] == falls_back["rain, falls back"] == 1


def test_tables_have_a_row_a_figure(measured: dict[str, Any]) -> None:
    assert set(TITLES) == set(measured["parts"])
    tables = bench_hypergrid.tables(measured)
    assert len(tables) == 2 * len(measured["parts"]) + 1
    for _, columns, rows in tables:
        assert rows
        assert all(len(row) == len(columns) for row in rows)


def test_the_script_is_asked_what_the_query_asks() -> None:
    whole = Sample(QUERIES, QUERIES, Sizes())
    asked = wanted(whole.query("q4"))
    assert (asked.rows, asked.columns, asked.neighbours) == (33, 33, 20)
    assert (asked.start, asked.stop) == ("2007-10-01T00:00", "2007-10-04T00:00")
    assert asked.west == pytest.approx(7 + 10 / 60 + 32 / 3600, abs=1e-12)
    assert wanted(whole.query("q3")).stop == "2007-10-07T00:00"
    small = Sample(QUERIES, QUERIES, SMALL)
    assert wanted(small.query("q4")).rows == 8
    assert wanted(small.query("q3")).stop == "2007-10-02T00:00"
    assert set(PARTS) < set(CASES)


def test_the_script_leaves_out_what_a_mean_has_too_few_of() -> None:
    asked = wanted(Sample(QUERIES, QUERIES, SMALL).query("q1"))
    times = pd.date_range("2007-10-01", periods=10, freq="2min")
    values = np.arange(10.0)
    values[:2] = np.nan  # three of five are left in the first slice
    values[7] = 99.0  # out of range: four of five are left in the second
    readings = pd.DataFrame({"station": 1, "time": times, "value": values})
    means = hypergrid_script.slices(readings, asked)
    assert means.sizes == {"time": 72, "station": 1}
    assert np.isnan(means[0, 0])
    assert float(means[1, 0]) == pytest.approx((5 + 6 + 8 + 9) / 4)
    assert int(means.notnull().sum()) == 1
