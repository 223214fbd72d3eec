"""Flags of running extremes, rates and radiation are the same in one batch, in small ones, and judged once more."""

from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from hypergrid.archive import Archive
from hypergrid.core.flags import FAIL, GOOD, SUSPECT, TESTS
from hypergrid.core.readings import Position, Readings, Series, Station
from hypergrid.core.units import KNOWN_VARIABLES, Variable
from ingest.deployment.quality_overrides import QualityOverrides
from ingest.quality.flagging import QualityFlagger
from ingest.reprocess.reflag import run_quality

STEP_NS = 600 * 10**9
HOURS = 3600.0
DAYS = 8
START_NS = int(np.datetime64("2021-03-01T00:00", "ns").astype(np.int64))
AIR, SUN = KNOWN_VARIABLES["air_temperature"], KNOWN_VARIABLES["solar_radiation"]
RATE = Variable("intensity", "kg m-2 s-1", "precipitation_flux")
STATIONS = {
    "a": Station("a", "a", (Position(None, 8.0, 46.5, 2000.0),)),
    "b": Station("b", "b", (Position(None, 0.0, -75.0, 2800.0),)),
}


def _readings(
    variable: str, series: tuple[Series, ...], values: list[NDArray[np.float64]], steps: list[int]
) -> Readings:
    """Return readings of each series, one in so many steps."""
    stamps = [START_NS + np.arange(len(value)) * step * STEP_NS for value, step in zip(values, steps, strict=True)]
    index = np.repeat(np.arange(len(series), dtype=np.int32), [len(value) for value in values])
    time_ns, value = np.concatenate(stamps), np.concatenate(values)
    return Readings(series, index, time_ns, value, np.where(np.isnan(value), 9, 2).astype(np.uint8), time_ns)


def _temperature() -> Readings:
    rng = np.random.default_rng(4)
    count = DAYS * 144
    base = np.round(2.0 + 6.0 * np.sin(np.arange(count + 17) * 2 * np.pi / 144) + rng.normal(0, 0.3, count + 17), 1)
    # For four days the sensor of the running maximum stands still.
    held = base.copy()
    held[288:864] = 4.4
    running = np.lib.stride_tricks.sliding_window_view(held, 18).max(axis=1)
    spiky = base[:count].copy()
    spiky[rng.integers(0, count, 12)] += 30.0
    spiky[rng.integers(0, count, 40)] = np.nan
    cold = base[: DAYS * 24] - 70.0
    cold[50], cold[70] = 40.0, 99.0
    series = (
        Series("air_temperature", "a", statistic="max", interval_s=3 * HOURS, stamp="end"),
        Series("air_temperature", "a", statistic="mean", interval_s=600.0, stamp="end"),
        Series("air_temperature", "b", statistic="mean", interval_s=HOURS, stamp="end"),
    )
    return _readings("air_temperature", series, [running, spiky, cold], [1, 1, 6])


def _radiation() -> Readings:
    rng = np.random.default_rng(5)
    day = 700.0 * np.maximum(np.sin((np.arange(DAYS * 144) / 144 - 0.25) * 2 * np.pi), 0.0)
    value = day + rng.normal(0.0, 2.0, len(day)) + (rng.random(len(day)) < 0.02) * rng.uniform(50, 1500, len(day))
    series = (Series("solar_radiation", "a", statistic="mean", interval_s=600.0, stamp="end"),)
    return _readings("solar_radiation", series, [value], [1])


def _rates() -> Readings:
    rng = np.random.default_rng(6)
    value = np.maximum(rng.normal(-1.0, 1.0, DAYS * 144), 0.0) / 3600.0
    value[rng.integers(0, len(value), 9)] = -99.0 / 3600.0
    value[rng.integers(0, len(value), 5)] = 5000.0 / 3600.0
    return _readings(
        "intensity", (Series("intensity", "a", statistic="mean", interval_s=600.0, stamp="end"),), [value], [1]
    )


CASES = ((AIR, _temperature), (SUN, _radiation), (RATE, _rates))


def _stored(path: Path, variable: Variable, parts: list[Readings]) -> tuple[NDArray[np.uint8], NDArray[np.uint16]]:
    archive = Archive.create(path, name="n", slice_s=600, variables=[variable], now_ns=0)
    with archive.commit(batch="all", message="", now_ns=1) as writer:
        writer.stations(list(STATIONS.values()))
        for part in parts:
            QualityFlagger(QualityOverrides(), STATIONS, 600.0).store(writer, variable, part, lambda _: None)
    return _flags(path, variable)


def _flags(path: Path, variable: Variable) -> tuple[NDArray[np.uint8], NDArray[np.uint16]]:
    found = Archive.open(path).read(variable.name, tests=True)
    names = [(one.station, one.interval_s) for one in found.series]
    order = np.lexsort((found.time_ns, np.array([sorted(names).index(names[n]) for n in found.index])))
    return found.flag[order], found.tests_or_none_set()[order]


@pytest.mark.parametrize(("variable", "make"), CASES, ids=lambda one: getattr(one, "name", ""))
def test_the_pieces_in_which_readings_come_change_no_flag(tmp_path: Path, variable: Variable, make: "object") -> None:
    whole = make()  # type: ignore[operator]
    flag, tests = _stored(tmp_path / "whole", variable, [whole])
    part = (whole.time_ns - START_NS) // (37 * 3600 * 10**9)
    pieces = [whole.take_rows(part == number) for number in np.unique(part)]
    small = _stored(tmp_path / "small", variable, pieces)
    np.testing.assert_array_equal(small[0], flag)
    np.testing.assert_array_equal(small[1], tests)
    back = _stored(tmp_path / "back", variable, pieces[::-1])
    np.testing.assert_array_equal(back[0], flag)
    report = run_quality(tmp_path / "small", now_ns=2)
    assert report.changed == 0
    assert {GOOD, FAIL} <= set(flag.tolist())
    names = {name for bit, name in enumerate(TESTS) if (tests >> np.uint16(bit) & 1).any()}
    assert (
        names >= {"gross_range", "flat_line", "spike", "climatology"} if variable is AIR else {"gross_range"} <= names
    )
    if variable is not AIR:
        assert np.count_nonzero(flag >= SUSPECT) >= 10


def test_once_more_on_an_archive_that_was_not_judged_gives_the_same(tmp_path: Path) -> None:
    whole = _temperature()
    flag, tests = _stored(tmp_path / "judged", AIR, [whole])
    archive = Archive.create(tmp_path / "plain", name="n", slice_s=600, variables=[AIR], now_ns=0)
    with archive.commit(batch="all", message="", now_ns=1) as writer:
        writer.stations(list(STATIONS.values()))
        writer.readings(whole)
    run_quality(tmp_path / "plain", now_ns=2)
    again = _flags(tmp_path / "plain", AIR)
    np.testing.assert_array_equal(again[0], flag)
    np.testing.assert_array_equal(again[1], tests)
