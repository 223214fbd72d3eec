"""The benchmark of rain counters, on a few gauges for a few weeks."""

import json

import numpy as np
import pytest

from hypergrid.physics.counters import increments
from tests.bench.bench_counters import CASES, HOUR_NS, SHARED, measure, tables
from tests.bench.counter_scores import score
from tests.bench.gauges_simulated import gauge


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
    assert len(measured["beyond"]) == measured["beyond_days"] == ours["beyond_days"]
    assert 0 <= measured["beyond_days_undecided"] <= measured["beyond_days"]
    ideals = {row["gauge"]: row for row in measured["ideal"]}
    assert ideals["all"]["gauges"] == sum(ideals[kind]["gauges"] for kind in ("tipping", "weighing")) == 12
    assert ideals["all"]["months"] == ideals["tipping"]["months"] + ideals["weighing"]["months"] > 0
    for kind, row in ideals.items():
        assert rows["declared", kind]["months_within_1_percent"] <= row["ideal_months_within_1_percent"] + 1e-9
    for _, columns, listed in tables(measured):
        assert all(len(row) == len(columns) for row in listed)


def test_wet_days_of_a_gauge_that_evaporates_by_day() -> None:
    """A gauge that no method is judged by; with a mean rate of evaporation alone 70 % of its wet days are within."""
    one = gauge(5029)
    own = increments(
        one.value, one.time_ns, np.zeros(len(one.value)), HOUR_NS, resolution=one.resolution, rollover=one.rollover
    ).growth
    held = score(one, own)
    assert held.wet_days > 100
    assert held.wet_within >= 0.9 * held.wet_days
    assert held.beyond <= 1
    # What is not known is counted, and nothing is gained by giving nothing.
    nothing = score(one, np.where(np.arange(len(own)) % 8, own, np.nan))
    assert nothing.unknown > 0
    assert nothing.unknown_mm > 10.0
    assert nothing.within_all < held.within_all


def test_weather_changes_the_drift_and_nothing_else() -> None:
    same, other = gauge(5029), gauge(5029, weather=True)
    assert same.noise == other.noise
    np.testing.assert_array_equal(same.fallen, other.fallen)
    np.testing.assert_array_equal(same.time_ns, other.time_ns)
    lost = same.value - other.value
    assert np.ptp(lost) > 3 * same.noise
    [row] = [row for row in measure("weather", gauges=6, days=40)["scores"] if row["method"] == "declared"][:1]
    assert row["within_percent"] >= 90.0


def test_shared_data_beside_plain_differences() -> None:
    if not SHARED.exists():
        pytest.skip(f"the shared data are not at {SHARED}")
    files = measure("shared")["files"]
    assert {row["file"][:7] for row in files} == {"stberna", "station"}
    for row in files:
        assert row["query_mm"] == pytest.approx(row["here_mm"], abs=1e-6)
        assert row["here_mm"] <= row["plain_mm"] + 1e-6


def test_each_kind_of_gauges_is_a_case() -> None:
    assert set(CASES) == {"simulated", "held_out", "weather", "shared"}
