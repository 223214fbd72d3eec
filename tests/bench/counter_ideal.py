"""Standard error of a day's rain for an ideal estimator of a weighing gauge, which knows when no rain falls.

Least squares over the dry readings of the day and of one on each side: each dry run has a level of its own, each day a
drift of its own (evaporation in daylight, a daily swing) about which only its spread among the generator's gauges is
known. A reading in rain says nothing but its own level. Rounding counts as white noise; the memory of correlated noise
lengthens errors as it does those of long means. A day's rain is the difference of the levels at its ends, so that
its error is that of two levels and of the drift between them. Tipping gauges are left out: their tips have no noise.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtr

from tests.bench.counter_scores import DAY_NS, LEAST_HEARD
from tests.bench.counter_twins import EMPTIED_MM, MEMORY_S, daylight
from tests.bench.gauges_simulated import DAY_S, MM_IN, START, Gauge

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Flags = NDArray[np.bool_]

EVAPORATION_MM: Final = 0.158
"""Root mean square of what simulated gauges evaporate a dry day [mm]: 0, 0, 0.1 or 0.3."""
SWING_NOISES: Final = 0.913
"""Root mean square of each wave of the daily swing, in standard deviations of the noise: amplitudes 0, 1 or 2."""
WEATHER: Final = 1.28
"""Root mean square of the factor of a day's drift, where it changes with the weather."""


def ideal_beyond(gauge: Gauge, *, weather: bool = False) -> float:
    """Return how many judged days an ideal estimator leaves beyond max(10 %, 0.5 mm), by normal tails."""
    if gauge.kind == "tipping":
        return 0.0
    mm = MM_IN[gauge.unit]
    rain = np.diff(gauge.fallen, prepend=gauge.fallen[0]) * mm
    day = (gauge.time_ns - int(START.astype(np.int64))) // DAY_NS
    fell = np.bincount(day, rain)
    heard = np.bincount(day) >= LEAST_HEARD * DAY_S / gauge.interval_s
    known = _drifting(gauge, rain, day, weather=weather)
    errors = np.array([known.error(each) if heard[each] else 0.0 for each in range(len(fell))])
    return expected_beyond(fell, errors)


def expected_beyond(fell: Floats, errors: Floats) -> float:
    """Return how many days [mm] normal errors of these standard deviations [mm] take beyond max(10 %, 0.5 mm)."""
    limit = np.maximum(0.1 * fell, 0.5)
    return float(2 * ndtr(-np.divide(limit, errors, out=np.full(len(fell), np.inf), where=errors > 0)).sum())


@dataclass(frozen=True, eq=False)
class _Drifting:
    """What an ideal estimator knows of a weighing gauge, by reading."""

    seconds: Floats
    """On the gauge's own clock."""
    day: Integers
    wet: Flags
    """Readings up to which rain has fallen."""
    emptied: Flags
    variance: float
    """Of the noise and of rounding [mm2]."""
    lengthened: float
    """Readings with correlated noise that say as much of a mean as one with white noise."""
    spread: Floats
    """Of a day's evaporation and two waves [mm]."""

    def error(self, day: int) -> float:
        """Return the standard error of a day's rain [mm]; 0 for a day without."""
        first, start, stop, last = np.searchsorted(self.day, [day - 1, day, day + 1, day + 2]).tolist()
        near = slice(first, last)
        jumps = np.flatnonzero(self.wet[start:stop] & ~self.emptied[start:stop]) + start - first
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


def _drifting(gauge: Gauge, rain: Floats, day: Integers, *, weather: bool) -> _Drifting:
    mm = MM_IN[gauge.unit]
    emptied = np.diff((gauge.value - gauge.fallen) * mm, prepend=gauge.value[0] * mm) < -EMPTIED_MM
    memory = np.exp(-gauge.interval_s / MEMORY_S) if "correlated noise" in gauge.faults else 0.0
    noise = gauge.noise * mm
    spread = np.array([EVAPORATION_MM, SWING_NOISES * noise, SWING_NOISES * noise]) * (WEATHER if weather else 1.0)
    return _Drifting(
        (gauge.time_ns - gauge.time_ns[0]) / 1e9, day, rain > 0, emptied, noise**2 + (gauge.resolution * mm) ** 2 / 12,
        (1 + memory) / (1 - memory), spread,
    )  # fmt: skip
