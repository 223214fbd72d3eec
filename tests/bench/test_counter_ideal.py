"""What an ideal estimator leaves, on hand-made gauges whose answer follows from a few numbers."""

import numpy as np
import pytest
from numpy.typing import NDArray

from tests.bench.counter_ideal import (
    EVAPORATION_MM,
    SWING_NOISES,
    _drifting,
    expected_beyond,
    expected_within,
    ideal,
    ideal_summary,
    whole_tips,
)
from tests.bench.counter_scores import ByDay, by_day
from tests.bench.counter_twins import daylight
from tests.bench.gauges_simulated import DAY_S, START, Gauge, Kind

Floats = NDArray[np.float64]
PER_DAY = 24


def hourly(
    value: Floats, rain: Floats, *, kind: Kind = "tipping", noise: float = 0.0, rollover: float | None = None,
    heard: NDArray[np.intp] | None = None,
) -> Gauge:  # fmt: skip
    """Return a gauge of whole millimetres, or a weighing one of hundredths, read every hour."""
    ticks = np.arange(len(value), dtype=np.int64) * 3600 * 10**9 + START.astype(np.int64)
    keep = np.arange(len(value)) if heard is None else heard
    resolution = 1.0 if kind == "tipping" else 0.01
    return Gauge(
        1,
        kind,
        "temperate",
        "mm",
        3600,
        resolution,
        noise,
        rollover,
        ticks[keep],
        value[keep],
        np.cumsum(rain)[keep],
        {},
    )


def exact(gauge: Gauge) -> ByDay:
    """Return an estimate that knows each increment."""
    return by_day(gauge, np.diff(gauge.fallen, prepend=gauge.fallen[0]))


def test_errors_by_normal_tails() -> None:
    """A standard error of a quarter millimetre leaves 4.55 % beyond half of one; of months 10 mm have 0.1 mm."""
    assert expected_beyond(np.array([1.0]), np.array([0.25])) == pytest.approx(0.0455, abs=1e-4)
    assert expected_beyond(np.array([50.0, 1.0]), np.array([0.25, 0.0])) == pytest.approx(0.0, abs=1e-9)
    assert expected_within(np.array([10.0, 20.0]), np.array([0.1, 0.1])) == pytest.approx(0.6827 + 0.9545, abs=1e-4)
    assert expected_within(np.array([10.0]), np.array([0.0])) == 1.0


@pytest.mark.parametrize(
    ("value", "rain", "rollover", "shown"),
    [
        # Whole tips, and one reading a tip too low.
        ([5, 6, 5, 8], [0, 1.2, 0.1, 1.8], None, [0, 1, 0, 2]),
        # A restart shows what fell since.
        ([5, 7, 1, 3], [0, 2.1, 1.0, 2.0], None, [0, 2, 1, 2]),
        # A restart at one tip is none that is a tip too low.
        ([0, 1, 0, 1], [0, 1.2, 0.1, 0.9], None, [0, 1, 0, 1]),
        ([98, 99, 1, 2], [0, 1.0, 2.1, 1.0], 100.0, [0, 1, 2, 1]),
        # Rain of more than a turn before the next reading.
        ([98, 3, 4], [0, 105.0, 1.0], 100.0, [0, 105, 1]),
        # Nine millimetres fell before a restart, and two after it, between two readings: nine are in none.
        ([5, 2, 3], [0, 11.0, 1.0], None, [0, 2, 1]),
        # The same, and what it shows has not fallen: no reading shows a restart.
        ([5, 6, 7], [0, 15.0, 1.0], None, [0, 1, 1]),
    ],
)
def test_what_whole_tips_show(
    value: list[float], rain: list[float], rollover: float | None, shown: list[float]
) -> None:
    one = hourly(np.array(value, float), np.array(rain, float), rollover=rollover)
    np.testing.assert_allclose(whole_tips(one), shown)


def daily(last_rain: float) -> Gauge:
    """Return twelve days of a counter that restarts at ten; it rains before eight, and on the last day until noon."""
    rain = np.tile(np.where(np.arange(PER_DAY) == 8, 3.0, 0.0), 12)
    rain[11 * PER_DAY + 11] = last_rain
    hours = np.arange(len(rain))
    began = np.maximum((hours - 10) // PER_DAY * PER_DAY + 10, 0)
    curve = np.cumsum(rain)
    return hourly(curve - curve[began], rain)


def test_a_restart_that_no_fall_shows_is_known_by_the_days_around() -> None:
    """Seven millimetres in the hour after three were set back to none: seven, not four, where the schedule is known."""
    one = daily(7.0)
    heard = np.delete(np.arange(len(one.value)), 11 * PER_DAY + 10)
    rare = Gauge(**{**vars(one), **{name: getattr(one, name)[heard] for name in ("time_ns", "value", "fallen")}})
    last = 11 * PER_DAY + 10
    assert (rare.value[last - 1], rare.value[last]) == (3.0, 7.0)
    assert whole_tips(rare)[last] == 7.0
    # Once, without such a schedule, the readings show four.
    alone = Gauge(**{**vars(rare), "value": np.r_[np.full(last, 3.0), rare.value[last:]]})
    alone = Gauge(**{**vars(alone), "fallen": np.r_[np.full(last, 3.0), np.full(len(alone.value) - last, 10.0)]})
    assert whole_tips(alone)[last] == 4.0


def test_days_of_tipping_gauges_that_no_reading_shows() -> None:
    """Nine of twelve millimetres fell before a restart, where readings are missing; on another day none are."""
    rain, value = np.zeros(2 * PER_DAY), np.full(2 * PER_DAY, 20.0)
    rain[8], rain[10] = 9.0, 3.0
    value[8], value[9:10], value[10:] = 29.0, 0.0, 3.0
    missing = np.delete(np.arange(2 * PER_DAY), [8, 9])
    hidden = hourly(value, rain, heard=missing)
    assert ideal(hidden, exact(hidden)).beyond == 1.0
    seen = hourly(value, rain)
    assert ideal(seen, exact(seen)).beyond == 0.0
    # Where the increment is asked of no method, neither is it of the ideal.
    asked = np.diff(hidden.fallen, prepend=0.0)
    asked[8] = np.nan
    assert ideal(hidden, by_day(hidden, asked)).beyond == 0.0


@pytest.mark.parametrize(("month_mm", "within"), [(60.6, 1), (60.7, 0), (9.6, 0)])
def test_months_of_whole_tips(month_mm: float, within: int) -> None:
    """Of sixty and a part the part is not shown; within 1 % it may be 0.6 mm. Less than ten are no month."""
    rain = np.zeros(30 * PER_DAY)
    rain[100:110] = month_mm / 10
    one = hourly(np.floor(np.cumsum(rain) + 1e-9), rain)
    found = ideal(one, exact(one))
    assert (found.kind, found.months, found.months_within) == ("tipping", int(month_mm >= 10), within)


def weighing(rain: Floats, noise: float) -> Gauge:
    return hourly(50.0 + np.cumsum(rain), rain, kind="weighing", noise=noise)


def test_the_error_is_that_of_least_squares() -> None:
    """Against the whole system of levels and drift, solved at once."""
    rain = np.zeros(5 * PER_DAY)
    rain[30:34], rain[60:66], rain[75] = 1.0, 0.5, 2.0
    one = weighing(rain, noise=0.1)
    first, last = 1, 3
    levels = (np.cumsum(rain > 0)[:, None] == np.arange(np.count_nonzero(rain) + 1)).astype(float)
    seconds = np.arange(len(rain)) * 3600.0
    dried = np.where(rain > 0, 0.0, np.diff(daylight(seconds), prepend=0.0))
    turn = 2 * np.pi * seconds / DAY_S
    drift = [own for day in range(5) for own in (
        np.cumsum(dried * (seconds // DAY_S == day)), np.sin(turn) * (seconds // DAY_S == day),
        np.cos(turn) * (seconds // DAY_S == day),
    )]  # fmt: skip
    design = np.column_stack([levels, *drift])
    spread = np.tile([EVAPORATION_MM, SWING_NOISES * 0.1, SWING_NOISES * 0.1], 5)
    known = design.T @ design / (0.1**2 + 0.01**2 / 12) + np.diag(np.r_[np.zeros(levels.shape[1]), spread**-2.0])
    asked = np.zeros(len(known))
    asked[levels.shape[1] - 1], asked[0] = 1.0, -1.0
    expected = np.sqrt(asked @ np.linalg.solve(known, asked))
    assert _drifting(one, exact(one), weather=False).error(first, last) == pytest.approx(expected, rel=1e-9)


def test_errors_that_days_share_count_once() -> None:
    """One dry reading at midnight between two showers: each day has its error, both days together have not."""
    rain = np.zeros(4 * PER_DAY)
    rain[2 * PER_DAY - 3 : 2 * PER_DAY + 3] = 1.0
    rain[2 * PER_DAY] = 0.0
    one = weighing(rain, noise=0.2)
    known = _drifting(one, exact(one), weather=False)
    each = [known.error(day, day) for day in (1, 2)]
    # Two readings of the level between: a standard error of 0.2 mm over the root of two.
    assert min(each) > 0.14
    assert known.error(1, 2) < 0.5 * np.hypot(*each)


def test_months_of_weighing_gauges_by_their_noise() -> None:
    rain = np.zeros(30 * PER_DAY)
    rain[100:106], rain[400:420] = 2.0, 0.5
    shares = [ideal(weighing(rain, noise=noise), exact(weighing(rain, noise=noise))) for noise in (0.001, 0.1, 5.0)]
    assert [one.months for one in shares] == [1, 1, 1]
    assert shares[0].months_within > shares[1].months_within > shares[2].months_within
    assert shares[2].months_within < 0.25
    together = ideal_summary(shares)
    assert together["months"] == 3
    assert together["ideal_months_within_1_percent"] == pytest.approx(100 * sum(s.months_within for s in shares) / 3)
