"""Interpolation in time against one loop over targets and readings, and against scipy where that has the method."""

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy.interpolate import CubicHermiteSpline

from hypergrid.core.errors import InvalidQuery
from hypergrid.interpolation.methods import in_time
from hypergrid.interpolation.methods.in_time import (
    Estimate,
    KnownReadings,
    Ticks,
    estimate,
    linear,
    method_in_time,
    nearest,
    spline,
)
from hypergrid.interpolation.points import Stations
from tests.support.in_time_oracle import in_time as in_time_oracle

SECOND = 10**9
Reading = tuple[int, float]
every = pytest.mark.parametrize("method", [nearest, linear, spline], ids=lambda method: method.__name__)


def known(series: list[list[Reading]]) -> KnownReadings:
    index = np.repeat(np.arange(len(series)), [len(one) for one in series]).astype(np.int32)
    instants = np.array([t for one in series for t, _ in one], dtype=np.int64)
    values = np.array([v for one in series for _, v in one], dtype=np.float64)
    return KnownReadings.of(index, instants, values, series=len(series))


def ask(method: Estimate, readings: list[Reading], ticks: Ticks, max_gap_ns: int) -> tuple[list[float], list[int]]:
    value, count = estimate(method, known([readings]), ticks, np.array([max_gap_ns]))
    return value[:, 0].tolist(), count[:, 0].tolist()


def at(method: Estimate, readings: list[Reading], instant: int, max_gap_ns: int) -> tuple[float, int]:
    value, count = ask(method, readings, Ticks(instant, SECOND, 1), max_gap_ns)
    return value[0], count[0]


INSTANTS = st.integers(-40, 60)
VALUES = st.floats(-50, 50) | st.just(math.nan)
SERIES = st.lists(st.tuples(INSTANTS, VALUES), max_size=14).map(lambda rows: sorted(rows, key=lambda row: row[0]))


@every
@given(
    series=st.lists(SERIES, min_size=1, max_size=4),
    origin=INSTANTS,
    step=st.integers(1, 9),
    count=st.integers(1, 30),
    gap=st.integers(1, 60),
    at_once=st.sampled_from([1, 40, 10**6]),
)
def test_any_readings_give_what_the_slow_loop_gives(
    method: Estimate, series: list[list[Reading]], origin: int, step: int, count: int, gap: int, at_once: int
) -> None:
    # Quanta of half a second, so that instants fall between targets as well as on them.
    half = SECOND // 2
    rows = [[(t * half, v) for t, v in one] for one in series]
    gaps = np.array([(gap + number) * half for number in range(len(rows))])
    ticks = Ticks(origin * half, step * half, count)
    before = in_time.CELLS_AT_ONCE
    in_time.CELLS_AT_ONCE = at_once  # type: ignore[misc]
    try:
        value, counts = estimate(method, known(rows), ticks, gaps)
    finally:
        in_time.CELLS_AT_ONCE = before  # type: ignore[misc]
    expected = [
        [in_time_oracle(method.__name__, one, int(t), int(g)) for one, g in zip(rows, gaps, strict=True)]
        for t in ticks.instants_ns
    ]
    np.testing.assert_allclose(value, [[v for v, _ in line] for line in expected], rtol=1e-9, atol=1e-7)
    assert counts.tolist() == [[n for _, n in line] for line in expected]


#      0    10        30 40                     100       120
#      |    |         |  |                      |         |      readings [s]
#      a    b         c  d      a gap of 60     e         f
LINE: list[Reading] = [(t * SECOND, float(t)) for t in (0, 10, 30, 40, 100, 120)]
CASES: list[tuple[Any, int, float, int]] = [
    # method, instant [s], value, count; the maximum gap is 20 s
    (nearest, 10, 10.0, 1),
    (nearest, 4, 0.0, 1),
    (nearest, 6, 10.0, 1),
    (nearest, 5, 0.0, 1),  # equally near: the earlier
    (nearest, 50, 40.0, 1),  # half the maximum gap behind the end of a run
    (nearest, 51, math.nan, 0),
    (nearest, 90, 100.0, 1),
    (nearest, -10, 0.0, 1),
    (nearest, -11, math.nan, 0),
    (nearest, 130, 120.0, 1),
    (nearest, 131, math.nan, 0),
    (linear, 10, 10.0, 1),
    (linear, 20, 20.0, 2),  # a gap as long as the maximum is filled
    (linear, 41, math.nan, 0),
    (linear, 99, math.nan, 0),
    (linear, 100, 100.0, 1),
    (linear, 120, 120.0, 1),
    (linear, 121, math.nan, 0),
    (linear, -1, math.nan, 0),
    (spline, 5, 5.0, 3),  # at the end of a run
    (spline, 20, 20.0, 4),
    (spline, 110, 110.0, 2),  # a run of two readings
    (spline, 60, math.nan, 0),
    (spline, 40, 40.0, 1),
]


@pytest.mark.parametrize(("method", "instant", "value", "count"), CASES)
def test_gaps_ends_and_hits(method: Estimate, instant: int, value: float, count: int) -> None:
    found = at(method, LINE, instant * SECOND, 20 * SECOND)
    assert found[1] == count
    np.testing.assert_allclose(found[0], value, rtol=1e-12)


@every
def test_a_reading_alone_counts_at_its_instant_only(method: Estimate) -> None:
    alone = [(5 * SECOND, 3.0)]
    assert at(method, alone, 5 * SECOND, 4 * SECOND) == (3.0, 1)
    assert at(method, alone, 8 * SECOND, 4 * SECOND)[1] == 0


@every
def test_of_readings_at_one_instant_the_first_counts(method: Estimate) -> None:
    twice = [(0, 1.0), (0, 7.0), (10 * SECOND, math.nan), (10 * SECOND, 2.0), (10 * SECOND, 9.0)]
    assert ask(method, twice, Ticks(0, 10 * SECOND, 2), 20 * SECOND) == ([1.0, 2.0], [1, 1])


@every
def test_no_readings_are_missing_values(method: Estimate) -> None:
    value, count = estimate(method, known([[], []]), Ticks(0, SECOND, 3), np.array([SECOND, SECOND]))
    assert np.isnan(value).all()
    assert value.shape == count.shape == (3, 2)
    assert not count.any()


@every
def test_a_constant_is_reproduced_exactly(method: Estimate) -> None:
    rng = np.random.default_rng(3)
    readings = [(int(t) * SECOND, 273.15) for t in np.unique(rng.integers(0, 500, 80))]
    value, _ = ask(method, readings, Ticks(0, SECOND, 500), 10 * SECOND)
    assert set(np.array(value)[np.isfinite(value)]) == {273.15}


def smooth(readings: NDArray[np.float64]) -> NDArray[np.float64]:
    return 2.0 - 0.3 * readings + 0.01 * readings**2


def test_a_spline_reproduces_parabolas_at_irregular_readings() -> None:
    rng = np.random.default_rng(4)
    seconds = np.unique(rng.integers(0, 500, 60))
    readings = [(int(t) * SECOND, float(v)) for t, v in zip(seconds, smooth(seconds.astype(float)), strict=True)]
    ticks = Ticks(int(seconds[0]) * SECOND, SECOND // 2, 2 * int(seconds[-1] - seconds[0]) + 1)
    value, count = ask(spline, readings, ticks, 10**12)
    np.testing.assert_allclose(value, smooth(ticks.instants_ns / SECOND), rtol=1e-11)
    assert set(count) <= {1, 3, 4}


def test_a_spline_is_the_hermite_cubic_of_scipy() -> None:
    rng = np.random.default_rng(8)
    seconds = np.unique(rng.integers(0, 300, 40)).astype(float)
    values = rng.normal(size=len(seconds))
    # numpy's second-order gradient takes the slope of the same parabolas, at both ends as well.
    slopes = np.gradient(values, seconds, edge_order=2)
    expected = CubicHermiteSpline(seconds, values, slopes)
    ticks = Ticks(int(seconds[0]) * SECOND, SECOND // 4, int(4 * (seconds[-1] - seconds[0])))
    readings = list(zip((seconds * SECOND).astype(int).tolist(), values.tolist(), strict=True))
    found, _ = ask(spline, readings, ticks, 10**12)
    np.testing.assert_allclose(found, expected(ticks.instants_ns / SECOND), atol=1e-11)


def test_a_spline_has_no_kink_at_a_reading() -> None:
    readings = [(t * SECOND, v) for t, v in ((0, 1.0), (7, 4.0), (9, -2.0), (20, 0.0), (24, 5.0))]
    small = SECOND // 10_000
    for t, v in readings[1:-1]:
        left, right = (at(spline, readings, t + side * small, 10**12)[0] for side in (-1, 1))
        np.testing.assert_allclose(v - left, right - v, atol=1e-6)


def test_the_error_of_each_method_falls_at_its_order() -> None:
    # Halved intervals: a line gains a factor of 4, a spline one of 8 at least, of a sine.
    def error(method: Estimate, step_s: int) -> float:
        readings = [(t * SECOND, math.sin(t / 400)) for t in range(0, 6001, step_s)]
        ticks = Ticks(1000 * SECOND, 7 * SECOND, 500)
        value, _ = ask(method, readings, ticks, 10**13)
        return float(np.abs(np.array(value) - np.sin(ticks.instants_ns / SECOND / 400)).max())

    assert error(linear, 200) / error(linear, 100) == pytest.approx(4, rel=0.1)
    assert error(spline, 200) / error(spline, 100) > 7.5
    assert error(spline, 100) < error(linear, 100) / 5


@every
def test_estimates_are_linear_in_the_values(method: Estimate) -> None:
    rng = np.random.default_rng(5)
    instants = np.sort(rng.integers(0, 600, 90)) * SECOND
    one, other = rng.normal(0, 3, (2, 90))
    ticks, gap = Ticks(0, 3 * SECOND, 200), 15 * SECOND
    parts = [ask(method, list(zip(instants.tolist(), v, strict=True)), ticks, gap)[0] for v in (one, other)]
    both, _ = ask(method, list(zip(instants.tolist(), 2 * one - other, strict=True)), ticks, gap)
    np.testing.assert_allclose(both, 2 * np.array(parts[0]) - np.array(parts[1]), atol=1e-11)


@every
def test_readings_beyond_the_reach_have_no_influence(method: Estimate) -> None:
    rng = np.random.default_rng(6)
    instants = np.sort(rng.integers(0, 900, 200)) * SECOND
    readings = list(zip(instants.tolist(), rng.normal(size=200).tolist(), strict=True))
    gap, ticks = 12 * SECOND, Ticks(400 * SECOND, SECOND, 60)
    reach = 2 * gap
    near = [row for row in readings if ticks.origin_ns - reach <= row[0] <= int(ticks.instants_ns[-1]) + reach]
    whole, part = (ask(method, rows, ticks, gap) for rows in (readings, near))
    np.testing.assert_array_equal(whole[0], part[0])
    assert whole[1] == part[1]


@every
@pytest.mark.parametrize("start", [0, 10**18, -(10**18), 4 * 10**18])
def test_instants_are_exact_however_far_from_1970(method: Estimate, start: int) -> None:
    # A line through 0 at one nanosecond and 2 at the next but one.
    readings = [(start, 0.0), (start + 2, 2.0)]
    value, count = ask(method, readings, Ticks(start, 1, 3), 10)
    assert value == ([0.0, 0.0, 2.0] if method is nearest else [0.0, 1.0, 2.0])
    assert count == [1, 1 if method is nearest else 2, 1]


@every
def test_the_largest_values_raise_no_warning(method: Estimate) -> None:
    readings = [(t * SECOND, v) for t, v in ((0, 1.7e308), (10, -1.7e308), (20, 1.7e308))]
    value, _ = ask(method, readings, Ticks(0, 5 * SECOND, 5), 20 * SECOND)
    assert value[::2] == [1.7e308, -1.7e308, 1.7e308]


def test_a_method_over_time_makes_no_field() -> None:
    with pytest.raises(InvalidQuery, match=r"linear_in_time interpolates in time, .* give time='10min'"):
        method_in_time("linear").prepare(Stations(np.zeros((1, 2)), ("a",)), np.zeros((1, 1)), {})
