"""The benchmark of rain counters, on a few gauges for a few weeks."""

import json

import pytest

from tests.bench.bench_counters import CASES, SHARED, measure, tables


def test_scores_of_a_few_gauges() -> None:
    measured = measure("held_out", gauges=12, days=40)
    rows = {(row["method"], row["gauge"]): row for row in measured["scores"]}
    ours, plain = rows["declared", "all"], rows["resets", "all"]
    assert ours["gauges"] == 12
    assert ours["gauge_days"] > 300
    assert ours["within_percent"] >= 95.0
    assert plain["within_percent"] < ours["within_percent"]
    assert abs(ours["monthly_bias_percent"]) <= 1.0 < abs(plain["monthly_bias_percent"])
    json.dumps(measured)
    [(_, columns, listed)] = tables(measured)
    assert all(len(row) == len(columns) for row in listed)


def test_shared_data_beside_plain_differences() -> None:
    if not SHARED.exists():
        pytest.skip(f"the shared data are not at {SHARED}")
    files = measure("shared")["files"]
    assert len(files) > 10
    for row in files:
        assert row["query_mm"] == pytest.approx(row["here_mm"], abs=1e-6)
        assert row["here_mm"] <= row["plain_mm"] + 1e-6


def test_each_kind_of_gauges_is_a_case() -> None:
    assert set(CASES) == {"simulated", "held_out", "shared"}
