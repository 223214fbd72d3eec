"""The benchmark of quality, smaller: a seed that no threshold was chosen on, and the real stations."""

import json

import pytest

from tests.bench import bench_quality
from tests.bench.bench_quality import CASES, measure, tables


def test_planted_faults_are_found_and_little_else() -> None:
    measured = measure("truth", seeds=(211,), days=14)
    totals = {row["fault"]: row for row in measured["truth"] if row["variable"] == "all"}
    for kind in ("spike", "impossible", "stuck", "timezone"):
        assert totals[kind]["planted"] > 0
        assert totals[kind]["recall"] >= 0.9, kind
        assert totals[kind]["precision"] >= 0.95, kind
    assert totals["all but drift"]["precision"] >= 0.95
    assert totals["all but drift"]["planted"] == sum(
        totals[kind]["planted"] for kind in ("spike", "impossible", "stuck", "timezone")
    )
    json.dumps(measured)
    [(title, columns, rows)] = tables(measured)
    assert "[211]" in title
    assert all(len(row) == len(columns) for row in rows)


@pytest.mark.skipif(not bench_quality.IMIS.is_dir(), reason="the real station data are not here (../shared/data)")
def test_real_stations_are_hardly_flagged() -> None:
    alarms = measure("false-alarms")["false_alarms"]
    assert alarms["stations"] == 9
    assert 15.0 < alarms["station_months"] < 16.0
    total = alarms["rows"][-1]
    assert (total["variable"], total["test"]) == ("all", "all")
    assert total["readings"] > 80_000
    assert total["flagged_a_station-month"] < 2.0


def test_speed_is_of_all_variables() -> None:
    measured = measure("speed", days=1)
    assert [row["variable"] for row in measured["speed"]][-1] == "all"
    assert all(row["million_values_a_second"] > 0.1 for row in measured["speed"])
    assert set(CASES) == {"all", "truth", "false-alarms", "speed", "shifts", "zeros", "events"}
