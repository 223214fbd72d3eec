"""What an ideal estimator of a simulated gauge leaves: days beyond the limits, and months within 1 %.

It knows when no rain falls and what became of the gauge, and nothing of the rain but the readings. Days, months and the
readings that are asked of it are those of an estimate that is scored. What two causes explain alike does not count
against it.

* **Weighing gauges**: the standard error of least squares over the dry readings of the days asked for and of one on
  each side. Each dry run has a level of its own, each day a drift of its own (evaporation in daylight, a daily swing)
  about which only its spread among the generator's gauges is known: that days drift alike is true of no real gauge. A
  reading in rain says nothing but its own level. Rounding counts as white noise; the memory of correlated noise
  lengthens errors as it does those of long means. Errors are normal, so that days and months are expected numbers.
  Levels and drift that days of a month share are counted once: their errors cancel.
* **Tipping gauges**: whole tips have no noise. What the bucket holds at the ends of a month is not in them (nor guessed
  by the tips around, where the end lies in rain): an error of less than a tip, as likely up as down. After a restart
  the counter shows what fell since; what fell before it, since the last reading, is in no reading. A restart that no
  fall shows is known only where the gauge restarts at that time on its other days.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from tests.bench.counter_scores import LEAST_MONTH_MM, WITHIN_MONTH, ByDay, beyond, by_day
from tests.bench.counter_twins import EMPTIED_MM, MEMORY_S, TIPS_APART, daily_restart, daylight
from tests.bench.gauges_simulated import DAY_S, MM_IN, Gauge, Kind

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]

EVAPORATION_MM: Final = 0.158
"""Root mean square of what simulated gauges evaporate a dry day [mm]: 0, 0, 0.1 or 0.3."""
SWING_NOISES: Final = 0.913
"""Root mean square of each wave of the daily swing, in standard deviations of the noise: amplitudes 0, 1 or 2."""
WEATHER: Final = 1.28
"""Root mean square of the factor of a day's drift, where it changes with the weather."""


@dataclass(frozen=True)
class Ideal:
    """What an ideal estimator leaves of one gauge; expected numbers where it has noise."""

    kind: Kind
    beyond: float
    """Judged days beyond max(10 %, 0.5 mm)."""
    months: int
    """Months of 10 mm or more."""
    months_within: float
    """Those within 1 %."""


def ideal(gauge: Gauge, held: ByDay, *, weather: bool = False) -> Ideal:
    """Return what an ideal estimator leaves of the days and months of a scored estimate."""
    return _tipping(gauge, held) if gauge.kind == "tipping" else _weighing(gauge, held, weather=weather)


def ideal_summary(each: Sequence[Ideal]) -> dict[str, Any]:
    """Return the figures of many gauges together."""
    months = sum(one.months for one in each)
    within = sum(one.months_within for one in each)
    return {
        "gauges": len(each),
        "ideal_beyond_days": float(sum(one.beyond for one in each)),
        "months": months,
        "ideal_months_within_1_percent": 100 * within / max(months, 1),
    }


def expected_beyond(fell: Floats, errors: Floats) -> float:
    """Return how many days [mm] normal errors of these standard deviations [mm] take beyond max(10 %, 0.5 mm)."""
    return float((1 - _within(np.maximum(0.1 * fell, 0.5), errors)).sum())


def expected_within(fell: Floats, errors: Floats) -> float:
    """Return how many months [mm] normal errors of these standard deviations [mm] leave within 1 %."""
    return float(_within(WITHIN_MONTH * fell, errors).sum())


def _within(limit: Floats, errors: Floats) -> Floats:
    ratio = np.divide(limit, errors, out=np.full(len(limit), np.inf), where=errors > 0)
    return np.asarray(1 - 2 * ndtr(-ratio))


def _weighing(gauge: Gauge, held: ByDay, *, weather: bool) -> Ideal:
    known = _drifting(gauge, held, weather=weather)
    judged = np.flatnonzero(held.judged)
    errors = np.array([known.error(day, day) for day in judged.tolist()])
    months = [block for block in held.months() if held.fallen[block].sum() >= LEAST_MONTH_MM]
    monthly = np.array([known.error(int(block[0]), int(block[-1])) for block in months])
    fell = np.array([held.fallen[block].sum() for block in months])
    return Ideal(
        gauge.kind, expected_beyond(held.fallen[judged], errors), len(months), expected_within(fell, monthly)
    )  # fmt: skip


def _tipping(gauge: Gauge, held: ByDay) -> Ideal:
    grown = np.where(held.known, whole_tips(gauge), np.nan)
    own = by_day(gauge, grown)
    blocks = held.months()
    fell, found = (np.array([each[block].sum() for block in blocks]) for each in (held.fallen, own.found))
    some = fell >= LEAST_MONTH_MM
    within = np.abs(found - fell)[some] <= WITHIN_MONTH * fell[some]
    far = beyond(held.fallen, own.found) & held.judged
    return Ideal(gauge.kind, float(far.sum()), int(some.sum()), float(within.sum()))


def whole_tips(gauge: Gauge) -> Floats:
    """Return what a tipping gauge's readings show of what fell [its unit], where the cause of each fall is known."""
    content = np.round(gauge.value / gauge.resolution)
    step = np.diff(content, prepend=content[0])
    fell = np.diff(gauge.fallen, prepend=gauge.fallen[0]) / gauge.resolution
    if gauge.rollover is not None:
        turn = round(gauge.rollover / gauge.resolution)
        step += turn * np.maximum(np.round((fell - step) / turn), 0.0)
    # A restarted counter shows no more than what fell; one a tip too low shows what fell before as well.
    falls = step < 0
    restarted = (falls | (step - fell < -TIPS_APART)) & (content - fell < TIPS_APART)
    known = falls | daily_restart(gauge.value, gauge.time_ns, gauge.interval_s)
    step = np.where(restarted & known, content, step)
    # A tip too low is made up for by the next reading.
    curve = np.maximum.accumulate(np.cumsum(step))
    return np.diff(curve, prepend=0.0) * gauge.resolution


@dataclass(frozen=True, eq=False)
class _Drifting:
    """What an ideal estimator knows of a weighing gauge, by reading."""

    seconds: Floats
    """On the gauge's own clock."""
    day: Integers
    wet: Flags
    """Readings up to which rain has fallen."""
    emptied: Flags
    counted: Flags
    """Readings of judged days whose increment is asked for."""
    variance: float
    """Of the noise and of rounding [mm2]."""
    lengthened: float
    """Readings with correlated noise that say as much of a mean as one with white noise."""
    spread: Floats
    """Of a day's evaporation and two waves [mm]."""

    def error(self, first_day: int, last_day: int) -> float:
        """Return the standard error of the rain from the first day to the last [mm]; 0 where none falls."""
        days = [first_day - 1, first_day, last_day + 1, last_day + 2]
        first, start, stop, last = np.searchsorted(self.day, days).tolist()
        near = slice(first, last)
        rises = self.wet & ~self.emptied & self.counted
        jumps = np.flatnonzero(rises[start:stop]) + start - first
        jumps = jumps[jumps > 0]
        if not len(jumps):
            return 0.0
        run = np.cumsum(self.wet[near] | self.emptied[near])
        run -= run[0]
        counted = np.zeros(run[-1] + 1)
        np.add.at(counted, run[jumps], 1.0)
        np.add.at(counted, run[jumps] - 1, -1.0)
        sizes = np.bincount(run).astype(float)
        drift = self._drift(near)
        means = np.stack([np.bincount(run, column) for column in drift], axis=1) / sizes[:, None]
        within = drift @ drift.T - (means * sizes[:, None]).T @ means
        known = within / (self.variance * self.lengthened) + np.diag(np.tile(self.spread**-2.0, len(drift) // 3))
        levels = self.variance * float((counted**2 * np.minimum(1.0, self.lengthened / sizes)).sum())
        moved = counted @ means
        return float(np.sqrt(levels + moved @ np.linalg.solve(known, moved)))

    def _drift(self, near: slice) -> Floats:
        """Return what evaporates and two waves, of each day."""
        seconds, day, wet = self.seconds[near], self.day[near], self.wet[near]
        dried = np.where(wet, 0.0, np.diff(daylight(seconds), prepend=daylight(seconds[:1])))
        turn = 2 * np.pi * seconds / DAY_S
        each = [(np.cumsum(dried * own), own * np.sin(turn), own * np.cos(turn))
                for own in (day == one for one in np.unique(day))]  # fmt: skip
        return np.array([column for columns in each for column in columns])


def _drifting(gauge: Gauge, held: ByDay, *, weather: bool) -> _Drifting:
    mm = MM_IN[gauge.unit]
    rain = np.diff(gauge.fallen, prepend=gauge.fallen[0]) * mm
    emptied = np.diff((gauge.value - gauge.fallen) * mm, prepend=gauge.value[0] * mm) < -EMPTIED_MM
    memory = np.exp(-gauge.interval_s / MEMORY_S) if "correlated noise" in gauge.faults else 0.0
    noise = gauge.noise * mm
    spread = np.array([EVAPORATION_MM, SWING_NOISES * noise, SWING_NOISES * noise]) * (WEATHER if weather else 1.0)
    return _Drifting(
        (gauge.time_ns - gauge.time_ns[0]) / 1e9, held.day, rain > 0, emptied, held.known & held.judged[held.day],
        noise**2 + (gauge.resolution * mm) ** 2 / 12, (1 + memory) / (1 - memory), spread,
    )  # fmt: skip
