"""Increments of counters: falls told apart, noise that does not accumulate, and the same answer in every part."""

import numpy as np
import pytest
from numpy.typing import NDArray

from hypergrid.execution.operators.counters import counter_note
from hypergrid.physics.counters import EMPTIED, FELL, GROWN, HELD, RESET, ROLLOVER, Increments, increments
from tests.support import counter_oracle

Floats = NDArray[np.float64]
MINUTE_NS = 60 * 10**9
HOUR_NS = 60 * MINUTE_NS
START_NS = 1_191_196_800 * 10**9


def grown(values: list[float] | Floats, minutes: float = 10.0, **declared: float) -> Increments:
    at_ns = START_NS + (np.arange(len(values)) * minutes * MINUTE_NS).astype(np.int64)
    return increments(np.asarray(values, float), at_ns, np.zeros(len(values)), 3 * HOUR_NS, **declared)


def assert_the_oracle_agrees(
    shown: Floats, found: Increments, *, minutes: float = 10.0, resolution: float | None = None
) -> None:
    at_ns = START_NS + (np.arange(len(shown)) * minutes * MINUTE_NS).astype(np.int64)
    series = list(zip(at_ns.tolist(), shown.tolist(), strict=True))
    slow = counter_oracle.increments(series, 3 * HOUR_NS, resolution)
    expected = np.array([slow.get(i, np.nan) for i in range(len(shown))])
    np.testing.assert_allclose(found.growth, expected, rtol=0, atol=1e-9)


def day_of(shown: Floats, at: int, offset: float) -> Floats:
    wrong = shown.copy()
    wrong[at] += offset
    return wrong


RAINY = np.round(50.0 + np.minimum(np.arange(144) // 3, 30) * 0.1, 6)
"""A day of 3 mm from 50 mm on, 0.1 mm every half hour."""

CASES = {
    # what the counter shows, what is declared, what it grew by in all, what was done (kind: how often)
    "no fall": (RAINY, {}, 3.0, {}),
    "one wobble of -0.1 mm at 51 mm": (day_of(RAINY, 31, -0.1), {}, 3.0, {HELD: 1}),
    "one zero among them": (day_of(RAINY, 40, -RAINY[40]), {}, 3.0, {HELD: 1}),
    "one spike of 900 mm": (day_of(RAINY, 40, 900.0), {}, 3.0, {HELD: 1}),
    "a reset": ([50.0, 50.1, 50.2, 0.1, 0.2], {}, 0.4, {RESET: 1}),
    "two resets a day": ([5.0, 5.2, 0.0, 0.2, 0.4, 0.0, 0.2], {}, 0.8, {RESET: 2}),
    "a rollover": ([99.8, 99.9, 0.1, 0.2], {"rollover": 100.0, "resolution": 0.1}, 0.4, {ROLLOVER: 1}),
    "a reset below the rollover": ([80.0, 80.0, 0.0, 0.1], {"rollover": 200.0, "resolution": 0.1}, 0.1, {RESET: 1}),
    "a dry gauge emptied, and nothing else": ([500.0] * 4 + [200.0] * 4, {}, 0.0, {EMPTIED: 1}),
    "a lone reset": ([50.0] * 4 + [0.2] * 4, {}, 0.2, {RESET: 1}),
    "a dry reset far below the rollover": (
        [800.0] * 4 + [0.0] * 4,
        {"rollover": 1000.0, "resolution": 0.2},
        0.0,
        {RESET: 1},
    ),
    "emptied in dry weather far below the rollover": (
        [760.0] * 4 + [12.0] * 4,
        {"rollover": 1000.0, "resolution": 0.2},
        0.0,
        {EMPTIED: 1},
    ),
    "over the rollover in a cloudburst": (
        [994.0, 996.0, 8.0, 9.0, 9.0],
        {"rollover": 1000.0, "resolution": 0.2},
        15.0,
        {ROLLOVER: 1},
    ),
    "a zero of a small counter": ([7.8, 8.0, 0.0, 8.0, 8.2], {"resolution": 0.2}, 0.4, {HELD: 1}),
    "an hour of zeros": ([100.0, 100.0, *[0.0] * 6, 100.0, 100.2], {"resolution": 0.2}, 0.2, {HELD: 6}),
    "emptied to a charge": ([400.0, 400.1, 400.1, 120.0, 120.0, 120.2, 120.2], {}, 0.3, {EMPTIED: 1}),
}


@pytest.mark.parametrize("name", CASES)
def test_falls_are_told_apart(name: str) -> None:
    shown, declared, expected, kinds = CASES[name]
    found = grown(shown, **declared)
    assert np.nansum(found.growth) == pytest.approx(expected)
    assert np.nanmin(found.growth) >= 0.0
    assert {int(kind): int(count) for kind, count in zip(*np.unique(found.kind, return_counts=True), strict=True)
            if kind} == kinds  # fmt: skip


def test_rain_after_a_wobble_counts_where_it_fell() -> None:
    """The last half millimetre is as much as the wobble took, and does not give it back."""
    found = grown([94.0, 94.0, 93.5, 95.5, 97.0, 97.5, 101.0], resolution=0.5)
    np.testing.assert_allclose(np.nancumsum(found.growth), [0, 0, 0, 1.5, 3, 3.5, 7], atol=0.26)
    assert HELD not in found.kind


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("noise", [0.02, 0.05, 0.1])
def test_noise_of_a_dry_gauge_does_not_accumulate(seed: int, noise: float) -> None:
    """Sums of all rises, and of rises with resets, grow with every reading; a week of noise grows by less than 4 s."""
    rng = np.random.default_rng(seed)
    week = np.round(300.0 + rng.normal(0.0, noise, 7 * 144), 3)
    found = grown(week)
    assert np.nansum(np.maximum(np.diff(week), 0.0)) > 300 * noise
    assert np.nansum(found.growth) < 4 * noise
    assert np.count_nonzero(found.kind == FELL) > 100


@pytest.mark.parametrize("seed", range(3))
def test_rain_on_a_noisy_gauge_that_evaporates(seed: int) -> None:
    rng = np.random.default_rng(100 + seed)
    rain = np.zeros(10 * 144)
    for start in (200, 640, 1100):
        rain[start : start + 30] = 0.2
    evaporated = np.cumsum(np.where(rain > 0, 0.0, 0.2 / 144))
    shown = np.round(200.0 + np.cumsum(rain) - evaporated + rng.normal(0.0, 0.03, len(rain)), 2)
    assert np.nansum(grown(shown).growth) == pytest.approx(18.0, rel=0.02)


def test_light_rain_that_passes_as_dry_is_not_taken_for_drift() -> None:
    """Rain of 0.3 mm an hour is hidden by noise, and bends three days away from any drift.

    The misfit hid that these hours rise, and a wave of one day took 6 % of the second day's rain.
    """
    hour = np.arange(432) / 6
    rain = 0.3 * np.clip(hour - 43, 0, 11) + 0.1 * np.clip(hour - 63, 0, 8)
    shown = [np.round(200 + rain + np.random.default_rng(seed).normal(0.0, 0.05, 432), 2) for seed in range(10)]
    found = [np.nansum(grown(each).growth[144:288]) for each in shown]
    assert np.mean(found) == pytest.approx(rain[287] - rain[143], abs=0.02)
    assert np.min(found) > 0.93 * (rain[287] - rain[143])


def test_an_outlier_of_a_gauge_below_zero_is_no_reset() -> None:
    """What evaporates from an empty gauge leaves it below zero: -3.1 after -2.0 is not near zero."""
    rng = np.random.default_rng(4)
    shown = np.round(-2.0 + rng.normal(0.0, 0.1, 300), 1)
    shown[150] = -3.1
    result = grown(shown)
    assert not np.any(result.kind == RESET)
    assert np.nansum(result.growth) < 0.4


@pytest.mark.parametrize("charge", [32.0, 80.0])
def test_a_noisy_gauge_emptied_to_a_charge_in_hard_rain_is_not_reset(charge: float) -> None:
    """Rain of 20 mm an hour explains what a gauge of hourly readings shows; but its charge was no rain."""
    rng = np.random.default_rng(3)
    rain = np.where((np.arange(96) >= 40) & (np.arange(96) < 56), 20.0, 0.0)
    shown = 100.0 + np.cumsum(rain) + rng.normal(0.0, 0.05, 96)
    shown[48:] += charge - shown[48]
    result = grown(np.round(shown, 2), minutes=60.0)
    assert result.kind[48] == EMPTIED
    assert np.isnan(result.growth[48])
    # What fell in the hour of the visit is not known; all other rain is kept, also beside it.
    assert np.nansum(result.growth) == pytest.approx(15 * 20.0, abs=0.5)
    assert result.growth[[47, 49]] == pytest.approx([20.0, 20.0], abs=0.3)


def gauge(seed: int) -> tuple[Floats, NDArray[np.int64]]:
    """Return a gauge of some days with everything that can happen to it, and holes."""
    rng = np.random.default_rng(seed)
    count = 5 * 72
    rain = np.where(rng.random(count) < 0.15, rng.gamma(1.0, 0.5, count), 0.0)
    shown = 20.0 + np.cumsum(rain)
    for at in rng.integers(5, count, 3):
        shown[at:] -= shown[at] - rng.choice([0.0, 7.0])
    if seed % 3 == 0:
        shown %= 10.0
    noise = [0.0, 0.05][seed % 2]
    shown = np.round((shown + rng.normal(0, noise, count) - 0.002 * np.arange(count) * (seed % 2)) / 0.1) * 0.1
    if noise == 0.0:
        shown[rng.integers(0, count, 6)] -= 0.1
    keep = rng.random(count) > 0.1
    keep[100:115] = False
    at_ns = START_NS + np.arange(count) * 20 * MINUTE_NS + rng.integers(0, 60, count) * 10**9
    return shown[keep], at_ns[keep]


@pytest.mark.parametrize("seed", range(12))
def test_the_oracle_gives_the_same(seed: int) -> None:
    shown, at_ns = gauge(seed)
    declared = {"resolution": 0.1, "rollover": 10.0} if seed % 3 == 0 else {}
    found = increments(shown, at_ns, np.zeros(len(shown)), 3 * HOUR_NS, **declared).growth
    series = list(zip(at_ns.tolist(), shown.tolist(), strict=True))
    slow = counter_oracle.increments(series, 3 * HOUR_NS, **declared)
    expected = np.array([slow.get(i, np.nan) for i in range(len(shown))])
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize("evaporates", [0.3, 0.0])
@pytest.mark.parametrize("seed", range(3))
def test_the_oracle_gives_the_same_where_gauges_drift(seed: int, evaporates: float) -> None:
    """Where nothing evaporates, dry hours often rise by chance, and what drifts is the wave that fits alone."""
    rng = np.random.default_rng(seed)
    count = 5 * 48
    day = np.sort(rng.choice(np.arange(count), count - 15, replace=False)) / 48
    rain = np.cumsum(np.where((day * 24 % 36 > 20) & (day * 24 % 36 < 24), 0.4, 0.0))
    evaporated = evaporates * day - 0.04 * np.sin(2 * np.pi * (day - 0.1))
    shown = np.round(80.0 + rain - evaporated + rng.normal(0.0, 0.02, len(day)), 2)
    at_ns = START_NS + (day * 24 * HOUR_NS).astype(np.int64)
    found = increments(shown, at_ns, np.zeros(len(shown)), 3 * HOUR_NS).growth
    slow = counter_oracle.increments(list(zip(at_ns.tolist(), shown.tolist(), strict=True)), 3 * HOUR_NS)
    expected = np.array([slow.get(i, np.nan) for i in range(len(shown))])
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-9)


RAIN_BACK = [20.0, 0.0, 20.0, 20.0]
"""A counter of 20 steps that shows zero once, and 20 again within two hours: lost, or restarted in hard rain."""
RESTART = [20.0, 0.0, 0.0, 20.0]
"""One that stays at zero for an hour, and grows by 20 later."""


@pytest.mark.parametrize(
    ("others", "restarts"),
    [
        # One day alone may have lost a reading.
        ([], False),
        # The day before, or the day after, it stays at zero: the logger restarts daily.
        ([(-1, RESTART)], True),
        ([(1, RESTART)], True),
        # Each day a reading of zero is lost.
        ([(-1, RAIN_BACK)], False),
        # As many readings are lost at this time of day as restarts happen.
        ([(-1, RAIN_BACK), (1, RESTART)], False),
        # Another time of day is no habit.
        ([(-1, [20.0, 20.0, 20.0, *RESTART])], False),
    ],
)
def test_a_fall_that_rain_takes_back_is_a_restart_where_others_last(
    others: list[tuple[int, list[float]]], restarts: bool  # noqa: FBT001 - a case
) -> None:  # fmt: skip
    shown = np.full(72, 20.0)
    for day, content in [(0, RAIN_BACK), *others]:
        noon = 36 + 24 * day
        shown[noon - 1 : noon - 1 + len(content)] = content
    found = grown(shown, minutes=60.0, resolution=1.0)
    assert found.kind[36] == (RESET if restarts else HELD)
    assert found.growth[37] == (20.0 if restarts else 0.0)
    assert_the_oracle_agrees(shown, found, minutes=60.0, resolution=1.0)


def test_a_reading_of_zero_that_is_lost_before_each_midnight_is_no_restart() -> None:
    """The last of them ends a segment, and looks there as if it lasted."""
    shown = np.full(5 * 144, 20.0)
    shown[143::144] = 0.0
    found = grown(shown, resolution=1.0)
    assert np.nansum(found.growth) == 0.0
    assert_the_oracle_agrees(shown, found, resolution=1.0)


@pytest.mark.parametrize("seed", range(6))
def test_a_part_with_what_lies_two_days_around_it_gives_what_the_whole_gives(seed: int) -> None:
    shown, at_ns = gauge(seed)
    whole = increments(shown, at_ns, np.zeros(len(shown)), 3 * HOUR_NS).growth
    rng = np.random.default_rng(seed)
    for start, stop in np.sort(rng.integers(0, len(shown), (6, 2)), axis=1).tolist():
        inside = slice(start, stop + 1)
        reach = 48 * HOUR_NS
        near = np.flatnonzero((at_ns >= at_ns[start] - reach) & (at_ns < at_ns[stop] + reach))
        part = increments(shown[near], at_ns[near], np.zeros(len(near)), 3 * HOUR_NS).growth
        np.testing.assert_array_equal(part[(near >= inside.start) & (near < inside.stop)], whole[inside])


def test_counters_side_by_side_are_followed_each_for_itself() -> None:
    first, second = gauge(1), gauge(2)
    both = increments(
        np.append(first[0], second[0]), np.append(first[1], second[1]),
        np.repeat([0, 1], [len(first[0]), len(second[0])]), 3 * HOUR_NS,
    )  # fmt: skip
    alone = [increments(*each, np.zeros(len(each[0])), 3 * HOUR_NS).growth for each in (first, second)]
    np.testing.assert_array_equal(both.growth, np.concatenate(alone))


@pytest.mark.parametrize(
    ("shown", "is_named"),
    [
        (10.0 + np.random.default_rng(1).normal(0.0, 1.0, 1008), True),
        (np.where(np.random.default_rng(2).random(1008) < 0.1, 0.2, 0.0), True),
        (np.cumsum(np.where(np.random.default_rng(2).random(1008) < 0.1, 0.2, 0.0)), False),
        (300.0 + np.random.default_rng(3).normal(0.0, 0.05, 1008), False),
        (np.tile(np.cumsum(np.where(np.arange(144) % 48 == 10, 0.2, 0.0)), 7), False),
    ],
    ids=["white noise", "amounts", "a counter", "a dry weighing gauge", "reset each day"],
)
def test_what_is_no_counter_is_named(shown: Floats, is_named: bool) -> None:  # noqa: FBT001 - a case
    at_ns = START_NS + np.arange(len(shown)) * 10 * MINUTE_NS
    held = (shown, at_ns, np.zeros(len(shown), np.int64), np.full(len(shown), 10 * MINUTE_NS))
    note = counter_note(held, grown(shown), np.ones(len(shown), dtype=bool), {"max_gap": "3h"}, ["s7"])
    assert ("may be no counters: s7" in note) == is_named


@pytest.mark.parametrize(
    ("before", "after", "landed", "kind"),
    [
        # It restarts on the day before and on the day after; or shows zero already on one of them.
        ("restart", "restart", 25.0, RESET),
        ("zero", "restart", 25.0, RESET),
        ("restart", "zero", 25.0, RESET),
        # It goes on counting on one of them, or shows zero on both: nothing tells of a daily restart.
        ("none", "restart", 25.0, GROWN),
        ("restart", "none", 25.0, GROWN),
        ("zero", "zero", 25.0, GROWN),
        # More than it can have rained meanwhile.
        ("restart", "restart", 400.0, GROWN),
    ],
)
def test_a_restart_whose_reading_is_missing_is_one_where_the_counter_restarts_daily(
    before: str, after: str, landed: float, kind: int
) -> None:
    """Rain of 10 an hour took the counter beyond what it showed before noon, when it restarts."""
    shown = {"restart": [20.0] * 12 + [0.0] * 12, "zero": [0.0] * 24, "none": [5.0] * 24}[before]
    shown += [shown[-1]] * 10 + [10.0, 20.0, np.nan, landed, *[landed + 10.0] * 6]
    shown += [0.0 if after == "zero" else shown[-1]] * 4
    shown += [shown[-1]] * 12 + [0.0 if after == "restart" else shown[-1]] * 12
    keep = ~np.isnan(shown)
    at_ns, value = START_NS + np.flatnonzero(keep) * HOUR_NS, np.asarray(shown)[keep]
    found = increments(value, at_ns, np.zeros(len(value)), 3 * HOUR_NS, resolution=1.0)
    assert (found.kind[36], found.growth[36]) == (kind, landed if kind == RESET else landed - 20.0)
    slow = counter_oracle.increments(list(zip(at_ns.tolist(), value.tolist(), strict=True)), 3 * HOUR_NS, 1.0)
    expected = np.array([slow.get(i, np.nan) for i in range(len(value))])
    np.testing.assert_allclose(found.growth, expected, rtol=0, atol=1e-9)
