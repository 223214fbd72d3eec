"""Simulated rain gauges with known rain: tipping buckets and weighing gauges with the faults of real ones.

Written, with its seeds, before the method that it judges, and not changed for it. A gauge is drawn from its number
alone: climate, sensor, unit, interval and faults. Its content is what has fallen, plus what the sensor does to it:

* tipping buckets count whole tips; a logger restarts at zero, or rolls over; now and then one reading is a tip too low;
* weighing gauges add white or correlated noise, a daily swing with temperature, evaporation in dry daylight; a visit
  empties them to zero or to a charge of antifreeze;
* readings are missing singly, for hours, and for days.

With `weather`, what evaporates and what temperature does differ from day to day; everything else is drawn as without.

Everything is in millimetres until the end, where values are turned into the gauge's unit.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Kind = Literal["tipping", "weighing"]

SEEDS: Final = tuple(range(190_000, 190_200))
"""The 200 gauges that are judged."""
WEATHER: Final = tuple(range(290_000, 290_200))
"""As many others, whose evaporation and daily swing change with the weather."""
HELD_OUT: Final = tuple(range(790_000, 790_200))
"""As many others, for figures that no choice can have been fitted to."""

MM_IN: Final = {"mm": 1.0, "inch": 25.4, "cm": 10.0}
"""Millimetres in one of each unit that gauges report in."""

MINUTE_S: Final = 60
DAY_S: Final = 86_400
START: Final = np.datetime64("2015-01-01T00:00:00", "ns")

CLIMATES: Final = {
    # Events a day, median hours, mean millimetres an hour, a season's share of the rate.
    "temperate": (0.45, 4.0, 1.1, 0.2),
    "mediterranean": (0.18, 3.0, 2.5, 0.8),
    "monsoon": (0.55, 2.0, 5.0, 0.9),
    "arid": (0.05, 1.2, 3.5, 0.5),
    "alpine snow": (0.50, 8.0, 0.6, 0.3),
}


@dataclass(frozen=True, eq=False)
class Gauge:
    """One gauge: what it reports, and what really fell."""

    seed: int
    kind: Kind
    climate: str
    unit: str
    interval_s: int
    resolution: float
    """Step of its values [unit]."""
    noise: float
    """Standard deviation of its noise [unit]; 0 for a tipping bucket."""
    rollover: float | None
    """Content at which it starts again from zero [unit]."""
    time_ns: NDArray[np.int64]
    """When it reported, shape (n,)."""
    value: Floats
    """What it reported [unit], shape (n,)."""
    fallen: Floats
    """What had fallen into it in all up to each reading [unit], shape (n,)."""
    faults: dict[str, int]
    """How often each fault was put in."""


def gauges(seeds: tuple[int, ...] = SEEDS, *, days: int | None = None) -> Iterator[Gauge]:
    """Yield the gauges of some seeds, each for its own number of days, or for as many as are given."""
    for seed in seeds:
        yield gauge(seed, days=days)


def gauge(seed: int, *, days: int | None = None, weather: bool = False) -> Gauge:
    """Return the gauge of a seed; with `weather`, no day drifts as the one before."""
    rng = np.random.default_rng(seed)
    kind: Kind = "weighing" if rng.random() < 0.45 else "tipping"
    climate = str(rng.choice(list(CLIMATES)))
    interval_s = int(rng.choice([60, 300, 600, 900, 3600], p=[0.15, 0.2, 0.35, 0.15, 0.15]))
    unit = str(rng.choice(list(MM_IN), p=[0.75, 0.15, 0.10]))
    # As many years as make some hundred thousand readings at most.
    own_days = {60: 75, 300: 365, 600: 730, 900: 1095, 3600: 1460}[interval_s]
    count = (own_days if days is None else days) * DAY_S // interval_s
    rain = _rain(rng, climate, count, interval_s)
    fallen, lost = np.cumsum(rain), np.zeros(count, dtype=bool)
    faults: dict[str, int] = {}
    if kind == "tipping":
        resolution, noise, rollover, content = _tipping(rng, fallen, lost, interval_s, faults)
    else:
        daily = _weather(seed, count * interval_s // DAY_S + 1) if weather else np.ones(1)
        resolution, noise, rollover, content = _weighing(rng, rain, fallen, lost, interval_s, faults, daily)
    # What fell while a logger was down, or a bucket lifted off, is in no reading: no method can be asked for it.
    fallen = np.cumsum(np.where(lost, 0.0, rain))
    keep = _heard(rng, count, interval_s, faults)
    shift_ns = int(rng.integers(0, interval_s)) * 10**9
    ticks = np.arange(count, dtype=np.int64) * interval_s * 10**9 + START.astype(np.int64) + shift_ns
    mm = MM_IN[unit]
    # Loggers write decimals: as many as the step of the sensor has, and one more in other units.
    decimals = 3 if unit == "mm" else 5
    return Gauge(
        seed, kind, climate, unit, interval_s, resolution / mm, noise / mm, None if rollover is None else rollover / mm,
        ticks[keep], np.round(content[keep] / mm, decimals), fallen[keep] / mm, faults,
    )  # fmt: skip


def _rain(rng: np.random.Generator, climate: str, count: int, interval_s: int) -> Floats:
    """Return what falls in each interval [mm]: events of lognormal length, with intensity that varies within them."""
    often, hours, rate, season = CLIMATES[climate]
    days = count * interval_s / DAY_S
    starts = np.sort(rng.uniform(0, days, rng.poisson(often * days)))
    wet = 1.0 + season * np.cos(2 * np.pi * (starts / 365.25 - rng.random()))
    starts = starts[rng.random(len(starts)) < wet / (1.0 + season)]
    lengths = hours / 24 * np.exp(0.8 * rng.standard_normal(len(starts)))
    means = rate * np.exp(0.9 * rng.standard_normal(len(starts)) - 0.405)
    found = np.zeros(count)
    step = interval_s / DAY_S
    for start, length, mean in zip(starts, lengths, means, strict=True):
        first, stop = int(start / step), min(int((start + length) / step) + 1, count)
        if stop <= first:
            continue
        n = stop - first
        # Intensity varies over ten minutes or so: gamma variates smoothed over as many intervals.
        raw = rng.gamma(0.7, 1.0 / 0.7, n)
        width = max(round(600 / interval_s), 1)
        if width > 1 and n > width:
            raw = np.convolve(raw, np.ones(width) / width, mode="same")
        share = np.ones(n)
        share[0] = 1 - (start / step - first)
        found[first:stop] += mean * interval_s / 3600 * raw * share
    return found


def _weather(seed: int, days: int) -> Floats:
    """Return a factor a day of mean 1: lognormal, and like the day before by 0.6."""
    rng = np.random.default_rng([seed, 1])
    logarithm = rng.standard_normal(days)
    for day in range(1, days):
        logarithm[day] = 0.6 * logarithm[day - 1] + 0.8 * logarithm[day]
    return np.exp(0.7 * logarithm - 0.245)


def _tipping(
    rng: np.random.Generator, fallen: Floats, lost: NDArray[np.bool_], interval_s: int, faults: dict[str, int]
) -> tuple[float, float, float | None, Floats]:
    """Return resolution, noise, rollover and content of a tipping bucket [mm]."""
    resolution = float(rng.choice([0.1, 0.2, 0.254, 0.5]))
    count = len(fallen)
    tips = np.floor(fallen / resolution + rng.random())
    tips -= tips[0]
    tips += float(rng.integers(0, 2000)) * float(rng.random() < 0.5)
    rollover = None
    way = rng.choice(["none", "resets", "daily", "rollover"], p=[0.2, 0.4, 0.15, 0.25])
    if way == "resets":
        # In order: a later restart sets back what an earlier one left.
        yearly = rng.poisson(6 * count * interval_s / DAY_S / 365)
        for at in np.sort(rng.integers(1, count, max(1, yearly))).tolist():
            tips[at:] -= tips[at]
            lost[at] = True
            _add(faults, "reset")
    elif way == "daily":
        per = DAY_S // interval_s
        bounds = np.arange(int(rng.integers(1, per + 1)), count, per)
        for at in bounds.tolist():
            if tips[at - 1] > 0:
                tips[at:] -= tips[at]
                lost[at] = True
                _add(faults, "reset")
    elif way == "rollover":
        turns = float(rng.choice([1000.0, 1024.0, 4096.0]))
        rollover = turns * resolution
        _add(faults, "rollover", int(np.floor(tips[-1] / turns) - np.floor(tips[0] / turns)))
        tips = tips % turns
    # One reading a tip too low, several times a year.
    often = 8 * count * interval_s / DAY_S / 365
    wobbles: NDArray[np.int64] = rng.integers(1, count - 1, rng.poisson(often) if rng.random() < 0.6 else 0)
    for at in wobbles.tolist():
        if tips[at] >= 5 and tips[at - 1] >= 5:
            tips[at] -= 1
            _add(faults, "wobble")
    return resolution, 0.0, rollover, np.round(tips * resolution, 6)


def _weighing(
    rng: np.random.Generator, rain: Floats, fallen: Floats, lost: NDArray[np.bool_], interval_s: int,
    faults: dict[str, int], daily: Floats,
) -> tuple[float, float, float | None, Floats]:  # fmt: skip
    """Return resolution, noise, rollover and content of a weighing gauge [mm], whose drift has a factor a day."""
    count = len(fallen)
    resolution = float(rng.choice([0.001, 0.01, 0.05, 0.1]))
    noise = float(rng.choice([0.01, 0.02, 0.05, 0.1]))
    seconds = np.arange(count) * interval_s
    drift = daily[np.minimum(seconds // DAY_S, len(daily) - 1)]
    white = rng.standard_normal(count)
    if rng.random() < 0.3:
        # Wind pumps for some minutes: noise with a memory, of the same standard deviation.
        memory = float(np.exp(-interval_s / 300))
        for i in range(1, count):
            white[i] = memory * white[i - 1] + np.sqrt(1 - memory**2) * white[i]
        _add(faults, "correlated noise")
    elif rng.random() < 0.3:
        white = rng.standard_t(5, count) / np.sqrt(5 / 3)
    swing = noise * float(rng.choice([0.0, 1.0, 2.0])) * np.sin(2 * np.pi * (seconds / DAY_S + rng.random())) * drift
    evaporation = np.zeros(count)
    rate = float(rng.choice([0.0, 0.0, 0.1, 0.3]))
    if rate:
        daylight = np.maximum(np.sin(2 * np.pi * (seconds / DAY_S - 0.25)), 0.0) * np.pi
        evaporation = np.cumsum(np.where(rain > 0, 0.0, rate * daylight * drift * interval_s / DAY_S))
        _add(faults, "evaporation")
    level = float(rng.uniform(5, 150)) + fallen - evaporation
    capacity = float(rng.choice([250.0, 400.0, 750.0]))
    per_day = DAY_S // interval_s
    at = 0
    while True:
        # Emptied by day, some weeks after the last time, or when it is full.
        due = at + int(rng.integers(25, 120)) * per_day
        full = np.flatnonzero(level[at:] > capacity)
        visit = min(due, at + int(full[0])) if len(full) else due
        if visit >= count - 1 or visit <= 0:
            break
        left = float(rng.choice([0.0, rng.uniform(20, 120)]))
        if level[visit] - left < 20:
            at = visit + 1
            if due == visit or at >= count:
                continue
            break
        level[visit:] -= level[visit] - left
        lost[visit] = True
        _add(faults, "emptying to zero" if left == 0 else "emptying to a charge")
        at = visit + 1
    value = np.round((level + swing + noise * white) / resolution) * resolution
    return resolution, noise, None, value


def _heard(rng: np.random.Generator, count: int, interval_s: int, faults: dict[str, int]) -> NDArray[np.bool_]:
    """Return which readings arrived."""
    keep = rng.random(count) > float(rng.choice([0.0, 0.002, 0.02]))
    days = count * interval_s / DAY_S
    for length_s, yearly in ((7200, 12), (DAY_S * 1.5, 2)):
        for start in rng.integers(0, count, rng.poisson(yearly * days / 365)).tolist():
            keep[start : start + max(int(rng.exponential(length_s) / interval_s), 1)] = False
            _add(faults, "gap")
    keep[0] = keep[-1] = True
    return keep


def _add(faults: dict[str, int], name: str, often: int = 1) -> None:
    faults[name] = faults.get(name, 0) + often
