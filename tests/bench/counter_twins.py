"""Days that a method gets wrong, judged by their readings: do these favour what fell over what was found?

What was found on a day is taken for a second truth, its twin, with the true rain on the days beside it; for weighing
gauges as it was found or as the true rain of the day scaled to its amount, whichever explains the readings better.
Truth and twin are put through the instrument of the simulated gauge:

* **weighing gauges**: Gaussian log-likelihood of the readings of the day and of one on each side, each the probability
  of the rounded value (given the reading before, where noise has a memory). The level after each true emptying and each
  day's drift are free within what the generator can draw, for both alike; noise is as the gauge's, Gaussian also where
  its tails are heavier;
* **tipping gauges**: the events that each needs beside rain: resets, rollovers, dropouts and wobbles. Where the
  readings of the gauge show a restart at one time of day, that restart is no event, and leaving it out is one.

A twin is fitted to the noise of its readings, which favours it: a day that is called decidable is so all the more.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import lsq_linear, minimize
from scipy.special import log_ndtr

from hypergrid.physics.counters import FELL, GROWN, HELD, RESET, ROLLOVER, Increments
from tests.bench.counter_scores import DAY_NS, beyond, by_day
from tests.bench.gauges_simulated import DAY_S, MM_IN, START, Gauge

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]

UNDECIDED_BELOW: Final = 2.0
"""By so much less than the truth's log-likelihood a twin's may be for its day to be undecided: odds of 7 to 1."""
MOST_EVAPORATION_MM: Final = 0.3
"""Most that a simulated gauge evaporates a dry day [mm]."""
MOST_SWING_NOISES: Final = 2.0
"""Greatest amplitude of a simulated gauge's daily swing, in standard deviations of its noise."""
MOST_WEATHER: Final = 6.8
"""Factor that a day's drift exceeds once in a thousand days, where it changes with the weather."""
MEMORY_S: Final = 300.0
"""Time in which correlated noise decays to 1/e [s]."""
EMPTIED_MM: Final = 10.0
"""Content beyond what fell that is lost at once where a simulated gauge is emptied, or more [mm]."""
TIPS_APART: Final = 1.01
"""Tips by which a counter differs from what it grew by only if something happened to it."""
LEAST_RAIN_MM: Final = 1e-6
"""Rain of a dry day [mm], as what is scaled."""
DAILY_SHARE, DAILY_LEAST = 0.9, 10
"""A counter restarts daily at a time at which so many of its readings above zero fall, of at least so many."""


@dataclass(frozen=True)
class Missed:
    """A day beyond what is allowed of any day, and what its readings say of it."""

    seed: int
    kind: str
    day: int
    """Days since the gauge began."""
    true_mm: float
    found_mm: float
    measure: str
    """How the readings judge: by log-likelihood (more is better) or by events (fewer are better)."""
    truth: float
    twin: float
    undecided: bool
    reason: str


@dataclass(frozen=True, eq=False)
class Window:
    """Readings of a weighing gauge over a few days, with what is known of its noise."""

    seconds: Floats
    """Since the midnight at which the gauge began, shape (n,)."""
    content: Floats
    """What the gauge showed [mm], shape (n,)."""
    emptied: Flags
    """Readings that are the first after an emptying, shape (n,)."""
    noise_mm: float
    resolution_mm: float
    memory_s: float = 0.0
    """Time in which noise decays to 1/e; 0: white noise."""
    weather: float = 1.0
    """Factor of the greatest drift."""


def missed(gauge: Gauge, found: Increments, *, weather: bool = False) -> list[Missed]:
    """Return the days beyond what is allowed, each judged by its readings."""
    days = by_day(gauge, found.growth)
    judge = _weighing if gauge.kind == "weighing" else _tipping
    rows = []
    for day in np.flatnonzero(beyond(days.fallen, days.found) & days.judged).tolist():
        measure, truth, twin, undecided, reason = judge(gauge, found, day, weather=weather)
        rows.append(Missed(gauge.seed, gauge.kind, day, float(days.fallen[day]), float(days.found[day]),
                           measure, truth, twin, undecided, reason))  # fmt: skip
    return rows


def is_undecided(truth: float, twin: float) -> bool:
    """Return whether a twin's log-likelihood is as good as that of the truth."""
    return twin >= truth - UNDECIDED_BELOW


def log_likelihood(window: Window, rain: Floats) -> float:
    """Return the greatest log-likelihood of readings for rain up to each reading [mm], whatever the drift was.

    The probability of each rounded value is log-concave in levels and drift, so that the greatest is unique.
    """
    rises = np.cumsum(rain)
    columns, low, high = _drift(window, rain)
    level = np.cumsum(window.emptied)
    # Rain counts from the first reading of each level, else emptied contents would have to be drawn as well.
    levels = (level[:, None] == np.arange(level[-1] + 1)).astype(float)
    design = np.hstack([levels, columns])
    step_s = np.diff(window.seconds, prepend=-np.inf)
    kept = np.exp(-step_s / window.memory_s) if window.memory_s else np.zeros(len(rain))
    spread = window.noise_mm * np.sqrt(1 - kept**2)
    y = _innovations(window.content - rises, kept)
    design = np.apply_along_axis(_innovations, 0, design, kept)
    bounds = (np.r_[np.full(level[-1] + 1, -np.inf), low], np.r_[np.full(level[-1] + 1, np.inf), high])
    start = lsq_linear(design / spread[:, None], y / spread, bounds=bounds).x

    def cost(fitted: Floats) -> tuple[float, Floats]:
        each, slope = _rounded(y - design @ fitted, spread, window.resolution_mm / 2)
        return -float(each.sum()), design.T @ slope

    fit = minimize(cost, start, jac=True, method="L-BFGS-B", bounds=list(zip(*bounds, strict=True)))
    return -min(float(fit.fun), cost(start)[0])


def _innovations(column: Floats, kept: Floats) -> Floats:
    """Return what each value adds to the share that is kept of the one before."""
    return column - kept * np.concatenate([[0.0], column[:-1]])


def _rounded(off: Floats, spread: Floats, half: float) -> tuple[Floats, Floats]:
    """Return logarithms of the probabilities of rounded values, and their slopes by the offset."""
    size = np.abs(off)
    upper, lower = (half - size) / spread, (-half - size) / spread
    most = log_ndtr(upper)
    log = most + np.log1p(-np.exp(log_ndtr(lower) - most))
    density = np.exp(-(upper**2) / 2 - log) - np.exp(-(lower**2) / 2 - log)
    return log, -np.sign(off) * density / (spread * np.sqrt(2 * np.pi))


def _drift(window: Window, rain: Floats) -> tuple[Floats, Floats, Floats]:
    """Return columns of each day's evaporation and swing, and the bounds of their factors."""
    day = (window.seconds // DAY_S).astype(np.int64)
    turn = 2 * np.pi * window.seconds / DAY_S
    dried = np.where(rain > 0, 0.0, np.diff(daylight(window.seconds), prepend=daylight(window.seconds[:1])))
    columns, most = [], []
    for each in np.unique(day):
        own = day == each
        columns += [-np.cumsum(np.where(own, dried, 0.0)), own * np.sin(turn), own * np.cos(turn)]
        most += [MOST_EVAPORATION_MM, *2 * [MOST_SWING_NOISES * window.noise_mm]]
    high = np.array(most) * window.weather
    return np.stack(columns, axis=1), np.where(np.arange(len(high)) % 3, -high, 0.0), high


def daylight(seconds: Floats) -> Floats:
    """Return which part of a day's evaporation is over, plus whole days before: half a sine from six to six."""
    days = seconds / DAY_S
    whole = np.floor(days)
    return np.asarray(whole + (1 - np.cos(2 * np.pi * np.clip(days - whole - 0.25, 0, 0.5))) / 2)


def _weighing(
    gauge: Gauge, found: Increments, day: int, *, weather: bool
) -> tuple[str, float, float, bool, str]:  # fmt: skip
    mm = MM_IN[gauge.unit]
    start = int(START.astype(np.int64))
    number = (gauge.time_ns - start) // DAY_NS
    near = np.abs(number - day) <= 1
    fell = np.diff(gauge.fallen, prepend=gauge.fallen[0]) * mm
    alike = np.where(np.isfinite(found.growth) & (number == day), found.growth * mm, fell)
    emptied = np.diff((gauge.value - gauge.fallen) * mm, prepend=np.inf) < -EMPTIED_MM
    emptied[0] = False
    # Drift goes by the ticks of the gauge's own clock.
    window = Window(
        (gauge.time_ns - gauge.time_ns[0])[near] / 1e9, gauge.value[near] * mm, emptied[near], gauge.noise * mm,
        gauge.resolution * mm, MEMORY_S if "correlated noise" in gauge.faults else 0.0,
        MOST_WEATHER if weather else 1.0,
    )  # fmt: skip
    own = number == day
    scaled = np.where(own, fell * alike[own].sum() / max(fell[own].sum(), LEAST_RAIN_MM), fell)
    truth = log_likelihood(window, fell[near])
    twin = max(log_likelihood(window, rain[near]) for rain in (alike, scaled))
    same = is_undecided(truth, twin)
    reason = "rain and drift of the day change places" if same else "levels beside the rain differ by more than drift"
    return "log-likelihood", truth, twin, same, reason


def _tipping(
    gauge: Gauge, found: Increments, day: int, *, weather: bool  # noqa: ARG001 - as of weighing gauges
) -> tuple[str, float, float, bool, str]:  # fmt: skip
    own = (gauge.time_ns - int(START.astype(np.int64))) // DAY_NS == day
    due = daily_restart(gauge.value, gauge.time_ns, gauge.interval_s)
    tips = np.diff(gauge.value, prepend=gauge.value[0]) / gauge.resolution
    fell = np.diff(gauge.fallen, prepend=gauge.fallen[0]) / gauge.resolution
    # Whole tips differ from what fell by less than one; a reading a tip too low falls, or rains less than one.
    restarted = (tips < -0.5) | (tips - fell < -TIPS_APART)
    events = (restarted & ~due)[own]
    held = found.kind == HELD
    odd = np.isin(found.kind, (ROLLOVER, FELL)) | (held & ~np.roll(held, 1)) | ((found.kind == RESET) & ~due)
    left_out = due & (found.kind != RESET)
    # What is shown must follow from what was found, up to one tip; readings around dropouts are none of it.
    apart = np.abs(tips - found.growth / gauge.resolution) > TIPS_APART
    odd |= apart & (found.kind == GROWN) & ~np.roll(held, 1) & ~left_out
    truth, twin = int(events.sum()), int((odd | left_out)[own].sum())
    if twin > truth:
        reason = "the counter restarts daily at this time" if left_out[own].any() else "the estimate needs more events"
    else:
        reason = (
            "rain before a restart is in no reading" if due[own].any() else "one event explains it as well as the other"
        )
    return "events", float(truth), float(twin), twin <= truth, reason


def daily_restart(value: Floats, time_ns: NDArray[np.int64], interval_s: int) -> Flags:
    """Return the readings up to which a counter above zero passes the time of day at which it restarts."""
    per = DAY_S // interval_s
    tick = (time_ns - time_ns[0]) // (interval_s * 10**9)
    before, above = np.concatenate([tick[:1], tick[:-1]]), np.concatenate([[0.0], value[:-1]]) > 0
    asked = above & (tick - before == 1)
    falls = asked & (np.diff(value, prepend=0.0) < 0)
    often, fallen = (np.bincount(tick[some] % per, minlength=per) for some in (asked, falls))
    due = np.flatnonzero((often >= DAILY_LEAST) & (fallen >= DAILY_SHARE * often))
    passed = [(tick - slot) // per > (before - slot) // per for slot in due.tolist()]
    return np.asarray(above & np.any(passed, axis=0)) if passed else np.zeros(len(value), dtype=bool)
