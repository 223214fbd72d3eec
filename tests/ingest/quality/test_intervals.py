"""Tests respect what a reading is of: running extremes and totals, daily values, rates."""

import numpy as np
import pytest
from numpy.typing import NDArray

from hypergrid.core.flags import FAIL, GOOD, MISSING, NOT_EVALUATED, SUSPECT, TESTS
from hypergrid.core.readings import Position, Readings, Series, Station, Statistic
from hypergrid.core.units import KNOWN_VARIABLES, Variable
from ingest.deployment.quality_overrides import default_tests
from ingest.deployment.quality_settings import (
    AttenuatedSignal,
    Exempt,
    FlatLine,
    Gap,
    RateOfChange,
    Spike,
    VariableTests,
)
from ingest.quality.flagging import Summary, count_gaps, places_of
from ingest.quality.run_tests import FlagResult, judge

Floats = NDArray[np.float64]
START_NS = int(np.datetime64("2020-06-21T00:00", "ns").astype(np.int64))
HOUR_S = 3600.0
SITE = Position(None, 8.0, 46.5, 500.0)
AIR = KNOWN_VARIABLES["air_temperature"]


def readings_of(
    value: Floats,
    *,
    step_s: float,
    variable: str = "air_temperature",
    statistic: Statistic = "sample",
    interval_s: float = 0.0,
) -> Readings:
    stamps = START_NS + np.round(np.arange(len(value)) * step_s * 1e9).astype(np.int64)
    series = Series(
        variable,
        "a",
        2.0,
        statistic=statistic,
        interval_s=interval_s,
        stamp="end" if statistic != "sample" else "instant",
    )
    flag = np.where(np.isnan(value), MISSING, NOT_EVALUATED).astype(np.uint8)
    return Readings((series,), np.zeros(len(value), np.int32), stamps, np.asarray(value, np.float64), flag, stamps)


def judged(readings: Readings, tests: VariableTests, site: Position = SITE) -> FlagResult:
    return judge(readings, tests, places_of(readings.series, {"a": Station("a", "a", (site,))}), {})


def count_flagged(result: FlagResult, test: str) -> int:
    return int(np.count_nonzero((result.tests >> np.uint16(TESTS.index(test))) & 1))


def summer(days: int, *, seed: int = 1, step_s: float = 600.0) -> Floats:
    """Return air temperature of summer days, with weather and a tenth of a degree of resolution."""
    rng = np.random.default_rng(seed)
    hours = np.arange(round(days * 24 * HOUR_S / step_s)) * step_s / HOUR_S
    weather = np.cumsum(rng.normal(0.0, 0.12, len(hours)))
    return np.round(18.0 + 6.0 * np.sin((hours - 9.0) / 24.0 * 2.0 * np.pi) + weather * np.exp(-0.0005 * hours), 1)


def running(value: Floats, length: int, of: str) -> Floats:
    windows = np.lib.stride_tricks.sliding_window_view(value, length)
    return {"max": windows.max, "min": windows.min, "mean": windows.mean}[of](axis=1)


@pytest.mark.parametrize("of", ["max", "min"])
@pytest.mark.parametrize("hours", [1, 6, 12, 24])
def test_a_running_extreme_is_flat_by_nature(of: Statistic, hours: int) -> None:
    value = running(summer(12), hours * 6, of)
    result = judged(readings_of(value, step_s=600.0, statistic=of, interval_s=hours * HOUR_S), default_tests(AIR))
    assert count_flagged(result, "flat_line") == 0
    assert (result.flag == GOOD).all()


@pytest.mark.parametrize(("hours", "days"), [(1, 3), (6, 10)])
def test_a_running_extreme_of_a_stuck_sensor_is_found_all_the_same(hours: int, days: int) -> None:
    base = summer(20)
    base[6 * 24 :][: 6 * 24 * days] = 21.3
    value = running(base, hours * 6, "max")
    result = judged(readings_of(value, step_s=600.0, statistic="max", interval_s=hours * HOUR_S), default_tests(AIR))
    stuck = np.flatnonzero(result.flag >= SUSPECT)
    assert len(stuck) >= 6 * 24 * (days - 2)
    assert (value[stuck] == 21.3).all()


def test_daily_values_that_stay_the_same_for_weeks_are_flat_and_those_of_a_week_are_not() -> None:
    tests = VariableTests(flat_line=FlatLine(hours=4.0, fail_hours=24.0, readings=24))
    daily = np.round(np.random.default_rng(3).normal(15.0, 4.0, 90), 1)
    daily[20:27] = 14.0
    daily[40:70] = 12.5
    result = judged(readings_of(daily, step_s=24 * HOUR_S, statistic="max", interval_s=24 * HOUR_S), tests)
    assert np.flatnonzero(result.flag == FAIL).tolist() == list(range(40, 70))


def test_a_pause_ends_a_still_stretch_and_an_interval_is_none() -> None:
    tests = VariableTests(flat_line=FlatLine(hours=4.0, readings=4, within_hours=6.0))
    still = np.full(12, 3.0)
    assert count_flagged(judged(readings_of(still, step_s=24 * HOUR_S), tests), "flat_line") == 0, (
        "how often they come is not known"
    )
    assert (
        count_flagged(judged(readings_of(still, step_s=24 * HOUR_S, interval_s=24 * HOUR_S), tests), "flat_line") == 12
    )


def test_a_tolerance_looks_at_intervals_too() -> None:
    tests = VariableTests(flat_line=FlatLine(hours=4.0, readings=12, tolerance=0.05))
    value = running(summer(12), 36, "max")
    assert (
        count_flagged(
            judged(readings_of(value, step_s=600.0, statistic="max", interval_s=6 * HOUR_S), tests), "flat_line"
        )
        == 0
    )
    still = 20.0 + 0.02 * np.sin(np.arange(1000.0))
    result = judged(readings_of(still, step_s=600.0, statistic="max", interval_s=6 * HOUR_S), tests)
    assert count_flagged(result, "flat_line") == 1000


def test_exempt_time_does_not_count_in_running_extremes() -> None:
    tests = VariableTests(flat_line=FlatLine(hours=4.0, readings=4, exempt=(Exempt(least=95.0),)))
    for value, count in ((97.0, 0), (90.0, 400)):
        readings = readings_of(np.full(400, value), step_s=600.0, statistic="max", interval_s=HOUR_S)
        assert count_flagged(judged(readings, tests), "flat_line") == count


@pytest.mark.parametrize(("interval_s", "gaps"), [(86_400.0, 1), (0.0, 1)])
def test_daily_readings_have_no_gaps_but_where_a_day_is_missing(interval_s: float, gaps: int) -> None:
    value = np.arange(13.0)
    readings = readings_of(value, step_s=86_400.0, interval_s=interval_s).take_rows(np.r_[0:5, 6:13])
    summary = Summary()
    count_gaps(summary, readings, VariableTests(gap=Gap()), np.ones(12, np.bool_))
    assert summary.count_by_station()["a"].get("gaps", 0) == gaps


def test_readings_without_any_rhythm_have_gaps_by_hours_alone() -> None:
    readings = readings_of(np.arange(40.0), step_s=HOUR_S).take_rows(
        np.unique(np.random.default_rng(2).integers(0, 40, 14))
    )
    steps_h = np.diff(readings.time_ns) / 3.6e12
    summary = Summary()
    count_gaps(summary, readings, VariableTests(gap=Gap()), np.ones(len(readings), np.bool_))
    assert summary.count_by_station().get("a", {}).get("gaps", 0) == np.count_nonzero(steps_h > 3.0) > 0


def test_a_flagged_gap_is_one_of_the_interval() -> None:
    tests = VariableTests(gap=Gap(flag="suspect"))
    readings = readings_of(np.arange(10.0), step_s=86_400.0, interval_s=86_400.0).take_rows(np.r_[0:4, 6:10])
    assert np.flatnonzero(judged(readings, tests).flag == SUSPECT).tolist() == [4]
    # What a running total of a day covers is no gap.
    running_total = readings_of(np.arange(10.0), step_s=30 * HOUR_S, statistic="total", interval_s=86_400.0)
    assert count_flagged(judged(running_total, tests), "gap") == 0


def test_extremes_and_totals_may_change_as_much_as_in_their_interval() -> None:
    tests = VariableTests(spike=Spike(3.0, 6.0, per_hour=4.0), rate_of_change=RateOfChange(8.0, 15.0, per_hour=12.0))
    value = np.full(20, 10.0)
    value[10] = 17.0
    for statistic, flag in (("sample", FAIL), ("mean", FAIL), ("max", GOOD), ("total", GOOD)):
        readings = readings_of(value, step_s=600.0, statistic=statistic, interval_s=HOUR_S)  # type: ignore[arg-type]
        assert judged(readings, tests).flag[10] == flag, statistic
    # When a peak leaves a running maximum it falls at once.
    value = np.r_[np.full(36, 26.0), np.full(36, 9.0)]
    result = judged(readings_of(value, step_s=600.0, statistic="max", interval_s=6 * HOUR_S), tests)
    assert not (result.flag >= SUSPECT).any()
    assert count_flagged(judged(readings_of(value, step_s=600.0), tests), "rate_of_change") == 1


def test_a_running_value_hardly_varies_within_its_interval() -> None:
    tests = VariableTests(attenuated_signal=AttenuatedSignal(hours=12.0, suspect=0.5, readings=12))
    value = running(summer(6), 144, "max")
    result = judged(readings_of(value, step_s=600.0, statistic="max", interval_s=24 * HOUR_S), tests)
    assert (result.flag == NOT_EVALUATED).all()
    assert count_flagged(judged(readings_of(np.full(200, 5.0), step_s=600.0), tests), "attenuated_signal") > 100


RATE = Variable("rg", "mm/h", "precipitation_rate")
FLUX = Variable("prf", "kg m-2 s-1", "precipitation_flux")
TOTAL = Variable("rr", "mm", "rainfall_amount")


@pytest.mark.parametrize(
    ("variable", "statistic", "interval_s", "value", "flag"),
    [
        (RATE, "mean", 600.0, -99.0, FAIL),
        (RATE, "sample", 0.0, -99.0, FAIL),
        (FLUX, "mean", 3600.0, -99.0 / 3600, FAIL),
        (RATE, "mean", 600.0, 0.0, GOOD),
        # The cloudburst of Füssen in 1920, 126 mm in 8 minutes, and the minute of Unionville, 31.2 mm.
        (RATE, "mean", 480.0, 126 * 7.5, SUSPECT),
        (RATE, "mean", 60.0, 31.2 * 60, GOOD),
        (RATE, "mean", 86_400.0, 1825.0 / 24, SUSPECT),
        (RATE, "mean", 86_400.0, 200.0, FAIL),
        (FLUX, "mean", 86_400.0, 200.0 / 3600, FAIL),
        # An instrument's wobble is no fault; a negative tenth would bias sums where it alone were left out.
        (TOTAL, "total", 600.0, -0.05, GOOD),
        (TOTAL, "total", 600.0, -3.0, FAIL),
        (TOTAL, "total", 600.0, 60.0, GOOD),
        (TOTAL, "total", 600.0, 300.0, FAIL),
        (TOTAL, "total", 86_400.0, 300.0, GOOD),
        (TOTAL, "total", 86_400.0, 1825.0, SUSPECT),
        (TOTAL, "total", 4 * 86_400.0, 4936.0, SUSPECT),
        (TOTAL, "total", 86_400.0, 9999.0, FAIL),
        # Over how long is not known.
        (TOTAL, "total", 0.0, 9999.0, GOOD),
        (TOTAL, "total", 0.0, -99.0, FAIL),
        (Variable("ss", "min", "duration_of_sunshine"), "total", 600.0, 10.0, GOOD),
        (Variable("ss", "min", "duration_of_sunshine"), "total", 600.0, 11.0, FAIL),
    ],
)  # fmt: skip
def test_limits_of_amounts_and_rates_go_by_their_interval(
    variable: Variable, statistic: Statistic, interval_s: float, value: float, flag: int
) -> None:
    readings = readings_of(np.array([0.0, value, 0.0]), step_s=86_400.0, statistic=statistic, interval_s=interval_s)
    assert judged(readings, default_tests(variable)).flag[1] == flag
