"""Tests along a series: against ioos_qc where both mean the same, against slow loops where we mean something else."""

from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given, settings
from ioos_qc import qartod
from numpy.typing import NDArray

from hypergrid.core.flags import FAIL, GOOD, NOT_EVALUATED, SUSPECT
from hypergrid.core.readings import Series
from ingest.deployment.quality_settings import (
    AttenuatedSignal,
    Climatology,
    FlatLine,
    Gap,
    GrossRange,
    Normal,
    RateOfChange,
    Spike,
)
from ingest.quality import temporal
from ingest.quality.flagging import places_of
from ingest.quality.run_tests import climatology
from ingest.quality.temporal import HOUR_NS, Line

Floats = NDArray[np.float64]
STEP_S = 600


def _line(value: Floats, *, hours: Floats | None = None, index: NDArray[np.int32] | None = None) -> Line:
    stamps = np.arange(len(value)) * STEP_S * 10**9 if hours is None else np.rint(hours * HOUR_NS).astype(np.int64)
    return Line(np.zeros(len(value), np.int32) if index is None else index, stamps, np.asarray(value, np.float64))


def exempt_none(rows: NDArray[np.intp]) -> NDArray[np.bool_]:
    return np.zeros(len(rows), np.bool_)


def _walk(seed: int, size: int = 400) -> Floats:
    generator = np.random.default_rng(seed)
    value = np.cumsum(generator.normal(size=size)) + 5.0 * (generator.random(size) < 0.05) * generator.normal(size=size)
    # Some stretches hardly change, some not at all.
    value[100:140] = value[100] + 0.01 * generator.random(40)
    value[200:230] = value[200]
    return np.round(value, 3)


def _dates(line: Line) -> Any:  # noqa: ANN401
    return line.time_ns.astype("datetime64[ns]")


@pytest.mark.parametrize("seed", [1, 2, 3])
class TestLikeIoos:
    def test_gross_range(self, seed: int) -> None:
        line = _line(_walk(seed))
        ours = temporal.gross_range(line, GrossRange(fail=(-10.0, 10.0), suspect=(-5.0, 7.0)))
        theirs = qartod.gross_range_test(line.value, fail_span=(-10.0, 10.0), suspect_span=(-5.0, 7.0))
        np.testing.assert_array_equal(ours, theirs)

    @pytest.mark.parametrize("method", ["average", "differential"])
    def test_spike(self, seed: int, method: str) -> None:
        line = _line(_walk(seed))
        ours = temporal.spike(line, Spike(suspect=1.0, fail=2.5, method=method))
        theirs = qartod.spike_test(line.value, suspect_threshold=1.0, fail_threshold=2.5, method=method)
        np.testing.assert_array_equal(ours, np.asarray(theirs))
        assert {SUSPECT, FAIL} <= set(ours.tolist())

    def test_rate_of_change(self, seed: int) -> None:
        line = _line(_walk(seed))
        ours = temporal.rate_of_change(line, RateOfChange(suspect=0.0, per_hour=9.0))
        theirs = qartod.rate_of_change_test(line.value, _dates(line), 9.0 / 3600.0)
        # The first reading follows none: theirs is good, ours not evaluated.
        np.testing.assert_array_equal(ours[1:], theirs[1:])
        assert ours[0] == NOT_EVALUATED

    def test_flat_line_flags_theirs_and_what_led_to_them(self, seed: int) -> None:
        line = _line(_walk(seed))
        ours = temporal.flat_line(line, FlatLine(hours=2.0, fail_hours=4.0, readings=2, tolerance=0.05), exempt_none)
        theirs = qartod.flat_line_test(line.value, _dates(line), 7200, 14400, tolerance=0.05)
        for level, count in ((SUSPECT, 12), (FAIL, 24)):
            expected = np.zeros(len(line), np.bool_)
            for last in np.flatnonzero(theirs >= level):
                expected[last - count : last + 1] = True
            np.testing.assert_array_equal(ours >= level, expected)
            assert expected.any()

    @pytest.mark.parametrize("measure", ["std", "range"])
    def test_attenuated_signal(self, seed: int, measure: str) -> None:
        line = _line(_walk(seed))
        given = AttenuatedSignal(hours=3.0, suspect=0.5, fail=0.005, readings=2, measure=measure)
        ours = temporal.attenuated_signal(line, given)
        theirs = qartod.attenuated_signal_test(
            line.value, _dates(line), 0.5, 0.005, test_period=10_800, min_obs=2, check_type=measure
        )
        # Theirs begins with windows that are cut by the beginning of the series.
        full = line.time_ns >= 3 * HOUR_NS
        np.testing.assert_array_equal(ours[full], np.asarray(theirs)[full])
        assert (ours[~full] == NOT_EVALUATED).all()
        assert {GOOD, SUSPECT, FAIL} <= set(ours.tolist())

    def test_climatology(self, seed: int) -> None:
        value = np.random.default_rng(seed).normal(10.0, 8.0, 500)
        stamps = np.datetime64("2020-01-01", "ns") + np.arange(500) * np.timedelta64(17, "h")
        line = Line(np.zeros(500, np.int32), stamps.astype(np.int64), value)
        ours = climatology(
            line,
            Climatology(
                (Normal((1, 2), suspect=(0.0, 15.0)), Normal((2, 3, 4), fail=(-5.0, 30.0), suspect=(5.0, 20.0)))
            ),
            places_of((Series("air_temperature", "a"),), {}),
        )
        members = qartod.ClimatologyConfig()
        members.add(tspan=[1, 2], vspan=[0.0, 15.0], period="month")
        members.add(tspan=[2, 4], vspan=[5.0, 20.0], fspan=[-5.0, 30.0], period="month")
        theirs = qartod.climatology_test(members, value, stamps, np.zeros(500))
        np.testing.assert_array_equal(ours, np.asarray(theirs))
        assert set(ours.tolist()) == {GOOD, NOT_EVALUATED, SUSPECT, FAIL}


def test_ioos_never_flags_a_flat_line_at_its_default_tolerance() -> None:
    line = _line(np.full(100, 7.0))
    assert set(qartod.flat_line_test(line.value, _dates(line), 3600, 7200).tolist()) == {GOOD}
    assert set(temporal.flat_line(line, FlatLine(hours=1.0, fail_hours=2.0), exempt_none).tolist()) == {FAIL}


def test_a_missing_value_beside_a_spike_does_not_hide_it() -> None:
    # The reading at 20 min is missing, and so not in the line.
    line = _line(np.array([1.0, 9.0, 1.2, 1.1]), hours=np.array([0.0, 1 / 6, 0.5, 2 / 3]))
    assert temporal.spike(line, Spike(suspect=3.0, fail=6.0)).tolist() == [2, FAIL, GOOD, 2]


@pytest.mark.parametrize(("hours", "expected"), [(1 / 6, FAIL), (1.0, SUSPECT), (2.0, GOOD), (4.0, NOT_EVALUATED)])
def test_what_may_change_in_an_hour_is_no_spike(hours: float, expected: int) -> None:
    line = _line(np.array([1.0, 9.0, 1.0]), hours=np.array([0.0, hours, 2 * hours]))
    assert temporal.spike(line, Spike(suspect=3.0, fail=6.0, per_hour=3.0))[1] == expected


def test_series_do_not_touch() -> None:
    index = np.repeat(np.arange(3, dtype=np.int32), 2)
    line = _line(np.array([0.0, 0, 50, 50, 0, 0]), hours=np.array([0.0, 1, 0, 1, 0, 1]), index=index)
    assert temporal.spike(line, Spike(suspect=1.0)).tolist() == [2] * 6
    assert temporal.rate_of_change(line, RateOfChange(suspect=1.0)).tolist() == [2, 1, 2, 1, 2, 1]
    assert temporal.gap(line, Gap(0.5, "suspect")).tolist() == [2, 3, 2, 3, 2, 3]
    assert temporal.gap(line, Gap(0.5)).tolist() == [2, 1, 2, 1, 2, 1]
    assert temporal.pauses(line, 0.5).tolist() == [0, 2, 4]
    flat = temporal.flat_line(line, FlatLine(hours=1.0, readings=3), exempt_none)
    assert flat.tolist() == [GOOD] * 6


class _Given:
    def __init__(self, exempt: NDArray[np.bool_]) -> None:
        self._exempt = exempt

    def __call__(self, rows: NDArray[np.intp]) -> NDArray[np.bool_]:
        return self._exempt[rows]


def _slow_flat(line: Line, settings: FlatLine, exempt: NDArray[np.bool_], hours: float) -> NDArray[np.bool_]:
    """Every window of readings, one by one."""
    found = np.zeros(len(line), np.bool_)
    for first in range(len(line)):
        elapsed, counted = 0.0, 1
        for last in range(first, len(line)):
            if last > first:
                apart = (line.time_ns[last] - line.time_ns[last - 1]) / HOUR_NS
                if line.index[last] != line.index[last - 1] or apart > settings.within_hours:
                    break
                counted += not exempt[last]
                elapsed += apart if not exempt[last] and not exempt[last - 1] else 0.0
            if np.ptp(line.value[first : last + 1]) > settings.tolerance:
                break
            if elapsed >= hours - 1e-6 and counted >= settings.readings:
                found[first : last + 1] = True
    return found


@settings(max_examples=300, deadline=None)
@given(
    rows=st.lists(
        st.tuples(st.sampled_from([0.0, 0.0, 0.0, 1.0, 2.0]), st.integers(1, 9), st.booleans(), st.booleans()),
        min_size=1,
        max_size=40,
    ),
    tolerance=st.sampled_from([0.0, 1.0]),
    hours=st.sampled_from([0.5, 1.0, 2.0]),
    readings=st.integers(2, 6),
    exempts=st.booleans(),
)
def test_flat_lines_are_those_of_every_window(
    rows: list[tuple[float, int, bool, bool]], tolerance: float, hours: float, readings: int, *, exempts: bool
) -> None:
    value = np.array([row[0] for row in rows])
    stamps = np.cumsum([row[1] for row in rows]) * 600 * 10**9
    index = np.cumsum([row[2] and row[1] > 7 for row in rows]).astype(np.int32)
    exempt = np.array([row[3] and exempts for row in rows])
    line = Line(index, stamps, value)
    given_ = FlatLine(hours=hours, fail_hours=2 * hours, readings=readings, tolerance=tolerance, within_hours=1.2)
    found = temporal.flat_line(line, given_, _Given(exempt))
    for level, least in ((SUSPECT, hours), (FAIL, 2 * hours)):
        np.testing.assert_array_equal(found >= level, _slow_flat(line, given_, exempt, least))


def test_nothing_is_judged_without_readings() -> None:
    line = _line(np.empty(0))
    for flags in (
        temporal.gross_range(line, GrossRange(fail=(0.0, 1.0))),
        climatology(line, Climatology((Normal(suspect=(0.0, 1.0)),)), places_of((), {})),
        temporal.spike(line, Spike(suspect=1.0)),
        temporal.rate_of_change(line, RateOfChange(suspect=1.0)),
        temporal.flat_line(line, FlatLine(hours=1.0, tolerance=0.1), exempt_none),
        temporal.attenuated_signal(line, AttenuatedSignal(hours=1.0, suspect=1.0)),
        temporal.gap(line, Gap(flag="fail")),
    ):
        assert flags.shape == (0,)
