"""All tests of a variable together: precedence, what leaves the others alone, exemptions, flags that came along."""

from dataclasses import replace

import numpy as np
import pytest
from ioos_qc import qartod
from numpy.typing import NDArray

from hypergrid.core.flags import FAIL, GOOD, MISSING, NOT_EVALUATED, SUSPECT, TESTS
from hypergrid.core.readings import Position, Readings, Series, Station
from ingest.deployment.quality_overrides import DEFAULTS
from ingest.deployment.quality_settings import (
    Exempt,
    FlatLine,
    Gap,
    GrossRange,
    RateOfChange,
    Spike,
    VariableTests,
)
from ingest.quality.flagging import places_of
from ingest.quality.run_tests import FlagResult, judge
from ingest.quality.spatial import Places

Floats = NDArray[np.float64]
START_NS = int(np.datetime64("2020-06-21T00:00", "ns").astype(np.int64))


def _readings(value: Floats, *, step_s: int = 600, variable: str = "air_temperature", stations: int = 1) -> Readings:
    """Each station in turn has the values, one every `step_s`."""
    every = np.tile(np.asarray(value, np.float64), stations)
    index = np.repeat(np.arange(stations, dtype=np.int32), len(value))
    stamps = np.tile(START_NS + np.arange(len(value)) * step_s * 10**9, stations)
    flag = np.where(np.isnan(every), MISSING, NOT_EVALUATED).astype(np.uint8)
    return Readings(tuple(Series(variable, str(n)) for n in range(stations)), index, stamps, every, flag, stamps)


def _places(readings: Readings, *, known: bool = True) -> Places:
    place = Position(None, 8.0, 46.5, 500.0)
    stations = {one.station: Station(one.station, one.station, (place,)) for one in readings.series} if known else {}
    return places_of(readings.series, stations)


def _judge(readings: Readings, tests: VariableTests, **companions: Readings) -> FlagResult:
    return judge(readings, tests, _places(readings), companions)


def find_flagged(judged: FlagResult, test: str) -> list[int]:
    return np.flatnonzero((judged.tests >> np.uint16(TESTS.index(test))) & 1).tolist()


def test_the_worst_counts_and_what_is_found_leaves_its_neighbours_alone() -> None:
    value = np.array([1.0, 1.1, 90.0, 1.2, 1.3, np.nan, 8.9, 1.2, 1.1, 30.0, 30.1])
    tests = VariableTests(
        gross_range=GrossRange(fail=(-50.0, 60.0)), spike=Spike(suspect=3.0), rate_of_change=RateOfChange(suspect=4.0)
    )
    judged = _judge(_readings(value), tests)
    assert judged.flag.tolist() == [1, 1, FAIL, 1, 1, MISSING, SUSPECT, 1, 1, SUSPECT, 1]
    assert (
        find_flagged(judged, "gross_range"),
        find_flagged(judged, "spike"),
        find_flagged(judged, "rate_of_change"),
    ) == ([2], [6], [9])


def test_precedence_is_that_of_ioos() -> None:
    # Neither end of a spike test is evaluated; where another test is passed, the reading is good.
    value = np.array([1.0, 1.1, 9.0, 1.2, 1.1, 60.0, 1.1, 1.3])
    span, spike = GrossRange(fail=(-50.0, 50.0), suspect=(-5.0, 40.0)), Spike(suspect=3.0, fail=6.0)
    ours = _judge(_readings(value), VariableTests(gross_range=span, spike=spike))
    theirs = qartod.qartod_compare(
        [
            qartod.gross_range_test(value, fail_span=(-50.0, 50.0), suspect_span=(-5.0, 40.0)),
            qartod.spike_test(value, suspect_threshold=3.0, fail_threshold=6.0, method="differential"),
        ]
    )
    np.testing.assert_array_equal(ours.flag, theirs)
    alone = _judge(_readings(value[:4]), VariableTests(spike=spike))
    assert alone.flag.tolist() == [NOT_EVALUATED, GOOD, FAIL, NOT_EVALUATED]
    assert _judge(_readings(value), VariableTests()).flag.tolist() == [NOT_EVALUATED] * 8


def test_flags_that_values_came_with_stay() -> None:
    readings = _readings(np.array([1.0, 1.1, 9.0, 1.2, 1.1, 1.0]))
    readings = replace(readings, flag=np.array([2, 4, 3, 2, 3, 1], np.uint8))
    judged = _judge(readings, VariableTests(gross_range=GrossRange(suspect=(0.0, 5.0))))
    assert judged.flag.tolist() == [1, FAIL, SUSPECT, 1, SUSPECT, 1]
    assert (
        find_flagged(judged, "given_fail"),
        find_flagged(judged, "given_suspect"),
        find_flagged(judged, "gross_range"),
    ) == (
        [1],
        [2, 4],
        [],
    )
    # Judged again, with no test at all, they are still there; what tests had found is not.
    again = replace(readings, flag=judged.flag, tests=judged.tests)
    assert _judge(again, VariableTests()).flag.tolist() == [2, FAIL, SUSPECT, 2, SUSPECT, 2]


def _flat(variable: str, value: Floats, step_s: int = 600, **companions: Readings) -> list[int]:
    tests = VariableTests(flat_line=DEFAULTS[variable].flat_line)
    return find_flagged(_judge(_readings(value, variable=variable, step_s=step_s), tests, **companions), "flat_line")


class TestWhatMayStandStill:
    """Two days, each with a stretch of 20 hours without a change."""

    value = np.r_[np.arange(24.0), np.full(120, 55.5), np.arange(144.0)]
    stretch = list(range(24, 144))

    def test_a_sensor_that_is_stuck_may_not(self) -> None:
        for variable in ("air_temperature", "relative_humidity", "soil_moisture", "wind_direction", "wind_speed"):
            assert _flat(variable, self.value) == self.stretch, variable

    def test_saturated_air(self) -> None:
        assert _flat("relative_humidity", self.value + 44.5) == []

    def test_a_dry_gauge(self) -> None:
        assert DEFAULTS["rain_meter"].flat_line is None

    def test_radiation_at_night(self) -> None:
        # From 00:00 UTC on at 8 E: the sun is above 5 degrees from about 04:10 to 18:50.
        night = np.r_[np.zeros(24), 10.0 + np.arange(90), np.zeros(30)]
        assert _flat("solar_radiation", night) == []
        dead = np.r_[np.zeros(24), np.zeros(90), np.zeros(30)]
        assert len(_flat("solar_radiation", dead)) == 144
        readings = _readings(dead, variable="solar_radiation")
        nowhere = judge(readings, DEFAULTS["solar_radiation"], _places(readings, known=False), {})
        assert not find_flagged(nowhere, "flat_line")

    def test_frozen_soil(self) -> None:
        frost = _readings(np.full(288, -8.0), variable="surface_temperature")
        thaw = _readings(np.full(288, 3.0), variable="surface_temperature")
        assert _flat("soil_moisture", self.value, surface_temperature=frost) == []
        assert _flat("soil_moisture", self.value, surface_temperature=thaw) == self.stretch
        # What another station says does not count, nor what is older than three hours.
        other = replace(frost, series=(Series("surface_temperature", "elsewhere"),))
        assert _flat("soil_moisture", self.value, surface_temperature=other) == self.stretch
        assert _flat("soil_moisture", self.value, surface_temperature=frost.take_rows(slice(0, 10))) == self.stretch

    def test_soil_that_dries_slower_than_its_sensor_resolves(self) -> None:
        # A real probe that resolves 0.05 % stood still for eleven hours, and went on drying.
        quiet = np.r_[np.arange(24.0), np.full(68, 28.24), 28.0 - np.arange(196.0) * 0.05]
        assert _flat("soil_moisture", quiet) == []

    def test_a_vane_in_a_calm(self) -> None:
        calm = _readings(np.full(288, 0.2), variable="wind_speed")
        assert _flat("wind_direction", self.value, wind_speed=calm) == []

    def test_snow_that_melts(self) -> None:
        assert _flat("surface_temperature", self.value - 55.5) == []


@pytest.mark.parametrize("variable", sorted(DEFAULTS))
def test_each_default_passes_a_quiet_day_and_stops_nonsense(variable: str) -> None:
    level = {"air_pressure": 90.0, "watermark": -30.0}.get(variable, 12.0)
    daily = level + 0.5 * np.sin(np.arange(144) / 24.0) + 0.01 * np.random.default_rng(1).normal(size=144)
    assert set(_judge(_readings(daily, variable=variable), DEFAULTS[variable]).flag.tolist()) == {GOOD}
    daily[70] = 1e6
    judged = _judge(_readings(daily, variable=variable), DEFAULTS[variable])
    assert np.flatnonzero(judged.flag == FAIL).tolist() == [70]


def test_many_series_are_each_for_themselves() -> None:
    generator = np.random.default_rng(3)
    value = np.round(np.cumsum(generator.normal(size=200)), 1)
    value[50:90] = 3.0
    tests = replace(DEFAULTS["air_temperature"], buddy_check=None, gap=Gap(0.5, "suspect"))
    tests = replace(tests, flat_line=FlatLine(hours=3.0, readings=5, tolerance=0.5, exempt=(Exempt(least=50.0),)))
    one, many = _judge(_readings(value), tests), _judge(_readings(value, stations=3), tests)
    np.testing.assert_array_equal(many.flag.reshape(3, -1), np.tile(one.flag, (3, 1)))
    np.testing.assert_array_equal(many.tests.reshape(3, -1), np.tile(one.tests, (3, 1)))
