"""Days judged by their readings, on hand-made readings of both verdicts."""

import numpy as np
import pytest
from numpy.typing import NDArray

from hypergrid.physics.counters import GROWN, HELD, RESET, Increments
from tests.bench.counter_twins import Window, daily_restart, daylight, is_undecided, log_likelihood, missed
from tests.bench.gauges_simulated import START, Gauge

Floats = NDArray[np.float64]
PER_DAY = 144
COUNT = 3 * PER_DAY


def window(rain: Floats, *, rate_mm: float, noise_mm: float, memory_s: float = 0.0) -> Window:
    """Return three days of a gauge that evaporates where no rain falls [mm a day]."""
    seconds = np.arange(COUNT) * 600.0
    dried = np.where(rain > 0, 0.0, np.diff(daylight(seconds), prepend=0.0))
    noise = noise_mm * np.random.default_rng(7).standard_normal(COUNT)
    content = 50 + np.cumsum(rain) - rate_mm * np.cumsum(dried) + noise
    return Window(seconds, np.round(content, 3), np.zeros(COUNT, dtype=bool), noise_mm, 0.001, memory_s)


def shower(amount_mm: float, first: int, readings: int) -> Floats:
    """Return rain of the middle day [mm], from the given reading of it on."""
    rain = np.zeros(COUNT)
    rain[PER_DAY + first : PER_DAY + first + readings] = amount_mm / readings
    return rain


@pytest.mark.parametrize("memory_s", [0.0, 300.0])
@pytest.mark.parametrize(
    ("noise_mm", "twin_mm", "undecided"),
    [
        # Levels on both sides of a shower are known to a hundredth.
        (0.02, 1.4, False),
        (0.02, 2.6, False),
        # The truth itself, and what its noise hides.
        (0.02, 2.0, True),
        (2.0, 2.3, True),
        # Noise that hides a third of a millimetre does not hide five.
        (2.0, 7.0, False),
    ],
)
def test_levels_beside_a_shower(noise_mm: float, twin_mm: float, memory_s: float, *, undecided: bool) -> None:
    rain = shower(2.0, 100, 12)
    seen = window(rain, rate_mm=0.2, noise_mm=noise_mm, memory_s=memory_s)
    truth, twin = log_likelihood(seen, rain), log_likelihood(seen, shower(twin_mm, 100, 12))
    assert is_undecided(truth, twin) is undecided


def test_rain_by_daylight_changes_places_with_evaporation() -> None:
    """All daylight is wet, or all of it dries: 0.15 mm may be either where noise hides the shape, 0.6 mm may not."""
    drizzle = shower(0.15, 36, 72)
    seen = window(np.zeros(COUNT), rate_mm=0.1, noise_mm=0.3)
    assert is_undecided(log_likelihood(seen, np.zeros(COUNT)), log_likelihood(seen, drizzle))
    assert not is_undecided(log_likelihood(seen, np.zeros(COUNT)), log_likelihood(seen, drizzle * 4))


def test_drift_is_bounded_by_what_gauges_can_have() -> None:
    """A fall of a millimetre a day is evaporation only where the weather multiplies it."""
    seen = window(np.zeros(COUNT), rate_mm=1.0, noise_mm=0.02)
    steady = log_likelihood(seen, np.zeros(COUNT))
    weather = log_likelihood(Window(**{**vars(seen), "weather": 6.8}), np.zeros(COUNT))
    assert weather > steady + 100


def test_rounded_readings_are_explained_by_what_rounds_to_them() -> None:
    """Steps far wider than the noise: any content that rounds to the reading is as good, and none beyond."""
    content = np.full(COUNT, 50.0)
    seen = Window(np.arange(COUNT) * 600.0, content, np.zeros(COUNT, dtype=bool), 0.005, 0.1)
    dry = log_likelihood(seen, np.zeros(COUNT))
    assert dry == pytest.approx(0.0, abs=1e-3)
    assert is_undecided(dry, log_likelihood(seen, shower(0.05, 10, 6)))
    assert not is_undecided(dry, log_likelihood(seen, shower(0.2, 10, 6)))


def tipping(value: Floats, fallen: Floats) -> Gauge:
    """Return a gauge of whole millimetres, read every hour."""
    ticks = np.arange(len(value), dtype=np.int64) * 3600 * 10**9 + START.astype(np.int64)
    return Gauge(1, "tipping", "temperate", "mm", 3600, 1.0, 0.0, None, ticks, value, fallen, {})


def test_a_reset_that_hard_rain_takes_back_is_as_likely_as_a_dropout() -> None:
    """Once: 0 after 9, then 9 again. By one event nine millimetres fell, by another none."""
    value = np.concatenate([np.full(10, 9.0), [0.0], np.full(13, 9.0)])
    fallen = np.concatenate([np.full(11, 9.0), np.full(13, 18.0)])
    kind = np.where(np.arange(24) == 10, HELD, GROWN).astype(np.uint8)
    found = Increments(np.zeros(24), kind)
    [row] = missed(tipping(value, fallen), found)
    assert (row.true_mm, row.found_mm, row.undecided) == (9.0, 0.0, True)
    assert (row.truth, row.twin) == (1.0, 1.0)


def test_a_restart_of_every_day_is_no_dropout() -> None:
    """The same readings on the last of twelve days, all of which restart at ten o'clock."""
    day = np.concatenate([np.full(10, 3.0), np.zeros(4), np.full(10, 3.0)])
    last = np.concatenate([np.full(10, 3.0), [0.0], np.full(13, 3.0)])
    value = np.concatenate([*[day] * 11, last])
    growth = np.maximum(np.diff(value, prepend=3.0), 0.0)
    kind = np.where(np.diff(value, prepend=3.0) < 0, RESET, GROWN).astype(np.uint8)
    kind[11 * 24 + 10] = HELD
    own = growth.copy()
    own[11 * 24 + 11] = 0.0
    assert np.array_equal(
        np.flatnonzero(daily_restart(value, tipping(value, growth).time_ns, 3600)) % 24, np.full(12, 10)
    )
    [row] = missed(tipping(value, np.cumsum(growth)), Increments(own, kind))
    assert (row.day, row.undecided) == (11, False)
    assert row.twin > row.truth
