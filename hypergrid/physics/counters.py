"""Increments of ever-growing counters: tipping buckets and weighing gauges that reset, roll over, wobble and evaporate.

A fall of a counter is no rain. Which kind of fall it is decides what the counter grew by:

* a **reset** is a fall to near zero: what the counter shows since is what it grew by;
* a **rollover** is a fall of a counter whose rollover is declared: it grew by the fall's complement;
* an **emptying** is a large, lasting fall to anything else, a service visit: what fell meanwhile is not known. A noisy
  gauge is left with a charge of any size, so that a fall in hard rain to more than the noise is an emptying;
* a **dropout** is a fall that the next readings take back at once: it is passed over. But where a logger restarts
  daily, hard rain may take back a restart at once: falls to near zero that last, at its time of day on the days around
  it, show that it is none. So they do where the reading at the restart is missing, and rain has taken the counter
  beyond what it showed before;
* everything else is **noise** or evaporation, and is balanced with what rises around it, so that it cannot accumulate.

The last rule is that of the neutral aggregating filters of weighing gauges (Ross, Smith and Barr, 2020, Atmospheric
Measurement Techniques 13, 2979-2994): noise is aggregated with its neighbours until nothing falls, and the total is
kept. The cumulated curve that does so with the least squared change is the isotonic regression, found by pooling
adjacent violators (Barlow and others, 1972). As in their segmented filter (NAF-SEG), the series is worked on in
overlapping segments, and the drift of a segment, learned from its dry hours, is given back before its rain is counted:
a mean and a wave of one day, as a gauge evaporates by day and swings with temperature.

A segment is what lies in one window of whole multiples of `span_ns` since 1970, with as much before and after it. So an
increment depends on readings at most twice `span_ns` away, whichever part of a series is looked at. Where no reading of
a segment falls, increments are the plain differences.

Nothing is given back where the dry hours rise by more than their noise: it rains in them, too lightly to be seen
within an hour. How far their levels lie from the drift is no measure of noise then, as such rain bends them. Where they
rise by less, nothing evaporates, and the wave is the one that fits alone.

Bias: noise of standard deviation s leaves some hundredths of s a dry day; where a segment has few dry hours, or rain so
light that its noise hides it, the drift is learned too small, and rain loses what evaporated before it; a segment that
is wet throughout keeps its net change. A drift learned over weeks would be nearer where all days are alike, and further
off where evaporation changes with the weather, as it does: none is kept.
"""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import scipy  # its parts load when they are used: most queries need none of them
from numpy.typing import NDArray

from hypergrid.core.medians import medians_by_group

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Kinds = NDArray[np.uint8]

DAY_NS: Final = 86_400 * 10**9
HOUR_S: Final = 3600.0
DAY_S: Final = 86_400.0

GROWN, RESET, ROLLOVER, EMPTIED, HELD, FELL = range(6)
"""What became of a reading: it counts as it is; follows a reset, a rollover, an emptying; is a dropout; is noise."""

ROUNDING: Final = 1e-9
"""Part of a counter by which it must change for a change: interpolation in time makes smaller ones."""
MIN_FALLS: Final = 5
NOISY_SHARE: Final = 0.1
"""A gauge is noisy where so many readings fall, but not to zero, and so many of its changes are such falls."""
MEDIAN_FALL: Final = 0.6744897501960817 * 2**0.5
"""Median of the falls of white noise over its standard deviation: differences have twice its variance."""
SPIKE_STEPS, SPIKE_NOISES, SPIKE_READINGS = 50, 20, 3
"""A change of so many steps of the resolution, and so many times the noise, that is taken back (within 10 %) by one of
the next readings is a dropout."""
TAKEN_BACK: Final = (0.9, 1.1)
LASTING_NOISES: Final = 8
"""Falls of so many times the noise, or more, are no noise: white noise makes one in 65 million readings."""
NEAR_STEPS, NEAR_NOISES, NEAR_RATES = 2, 4, 4
"""Near zero: two steps of the resolution, four times the noise, or what falls at four times the rate around."""
LONE_CHANGE: Final = 0.05
"""Resolution as a part of the only change there is: a fall to a tenth of it, or less, is one to near zero."""
LIKELY_STEPS, POSSIBLE_STEPS, STEPS_IN_S = 20, 250, 600.0
"""Steps of the resolution that a counter may grow by within so many seconds, whatever it did around, where it rolls
over: one that lands near zero, as after a reset, and any other."""
LACKING: Final = 1.5
"""Steps of so many times the length of those beside lack a reading."""
LOST_STEPS, LOST_S = 10, 7200.0
"""A counter of so many steps that shows near zero, and within so many seconds what it showed before, was not reset."""
AROUND: Final = 3
"""Readings before and after a fall that show whether it lasts, and how hard it rained."""
ALIGNED: Final = 5
"""Readings whose medians are laid on one another across a gap or an emptying of a noisy gauge."""
DRY_BINS: Final = 12
"""Hours without rain that a segment needs for its drift to be learned."""
RAINING_NOISES: Final = 2
"""It rains where the medians of a few readings' halves rise by so many times the noise."""
MEDIAN_ERROR: Final = 1.25
"""Standard error of the median over that of the mean: the median of n values has a variance of pi / 2n."""
DAMPING: Final = 3.0
"""Dry hours that a daily wave must outweigh: where few hours of the day are dry, it is damped to none."""
RISING_ERRORS: Final = 3
"""Hours in which a gauge rises by so many standard errors of its drift are not dry."""


@dataclass(frozen=True, eq=False)
class Increments:
    """By how much a counter grew, and what was done to know it."""

    growth: Floats
    """Up to each reading [the counter's unit], at least 0; NaN where it is not known, shape (n,)."""
    kind: Kinds
    """What became of each reading, shape (n,)."""


def span_ns(max_gap_ns: int) -> int:
    """Return the window in which falls are judged [ns]: a day, or the longest gap that is bridged."""
    return max(DAY_NS, max_gap_ns)


def increments(  # noqa: PLR0913 - columns of readings, and what is declared of the gauge
    values: Floats,
    at_ns: Integers,
    group: NDArray[Any],
    max_gap_ns: int,
    *,
    resolution: float | None = None,
    rollover: float | None = None,
) -> Increments:
    """Return by how much ever-growing counters grew up to each reading.

    Parameters
    ----------
    values, at_ns
        Readings and their times [ns], in the order of time within each group, none missing, shape (n,).
    group
        Which counter each belongs to, shape (n,); readings of one lie together.
    max_gap_ns
        Longest time since the reading before [ns] over which growth is known.
    resolution
        Step of the counters [their unit]; None: the smallest change around.
    rollover
        Content at which they start again from zero [their unit]; None: they do not.

    Returns
    -------
    Increments, NaN for the first reading of a counter, after longer gaps, and where a gauge was emptied.

    Examples
    --------
    >>> import numpy as np
    >>> from hypergrid.physics.counters import increments
    >>> hours = np.arange(6) * 3600 * 10**9
    >>> wobbles = np.array([50.0, 51.0, 50.9, 51.0, 0.2, 0.4])
    >>> increments(wobbles, hours, np.zeros(6), 3 * 3600 * 10**9).growth.round(6)
    array([nan, 1. , 0. , 0. , 0.2, 0.2])
    """
    count = len(values)
    grown, kind = np.full(count, np.nan), np.zeros(count, np.uint8)
    if count < 2:
        return Increments(grown, kind)
    step = np.diff(values)
    same, close = group[1:] == group[:-1], np.diff(at_ns) <= max_gap_ns
    grown[1:] = np.where(same & close, np.maximum(step, 0.0), np.nan)
    odd = step < -_find_rounding(values)
    if rollover is not None:
        odd |= step > 0.9 * rollover
    odd &= same
    if not odd.any():
        return Increments(grown, kind)
    span = span_ns(max_gap_ns)
    edges = np.concatenate([[0], np.flatnonzero(~same) + 1, [count]])
    before = np.concatenate([[0, 0], np.cumsum(odd)])
    for start, stop in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True):
        if before[stop] == before[start + 1]:
            continue
        times = at_ns[start:stop]
        windows = np.unique(times // span) * span
        own = np.searchsorted(times, np.stack([windows, windows + span])) + start
        wide = np.searchsorted(times, np.stack([windows - span, windows + 2 * span])) + start
        indices = np.flatnonzero(before[wide[1]] > before[wide[0] + 1])
        for i in indices.tolist():
            rows = slice(wide[0, i], wide[1, i])
            segment = _CounterSegment(values[rows], at_ns[rows], max_gap_ns, resolution, rollover)
            inside = slice(own[0, i] - wide[0, i], own[1, i] - wide[0, i])
            grown[own[0, i] : own[1, i]] = segment.find_growth()[inside]
            kind[own[0, i] : own[1, i]] = segment.kind[inside]
    return Increments(grown, kind)


def _find_rounding(values: Floats) -> Floats:
    """Return the smallest change between neighbours that is not rounding."""
    size = np.abs(values)
    return np.asarray(ROUNDING * np.maximum(size[1:], size[:-1]))


def _infer_resolution(changes: Floats) -> float:
    """Return the resolution of a counter as its changes show it; one change alone may be an emptying or a reset."""
    return float(changes.min()) if len(changes) > 1 else LONE_CHANGE * float(changes.max(initial=0.0))


def _fit_losses(lost: Floats, left: Floats, variance: float) -> Floats | None:
    """Return how often levels of a variance lost a line and two waves, by least squares; None where the line rises."""
    damped = lost @ lost.T + np.diag([0.0, DAMPING, DAMPING])
    fitted = np.linalg.solve(damped, -lost @ left)
    # Light rain bends levels away from any drift: were their misfit taken for noise, it would hide that they rise.
    variance = min(variance, float(np.mean((left + fitted @ lost) ** 2)))
    if fitted[0] < -RISING_ERRORS * float(np.sqrt(variance * np.linalg.inv(damped)[0, 0])):
        # It rains, too lightly to be seen within an hour: these hours are not dry.
        return None
    if fitted[0] < 0:
        # Nothing evaporates. The waves that were fitted beside a rise would take some of it from the rain.
        fitted = np.append(0.0, np.linalg.solve(damped[1:, 1:], -lost[1:] @ left))
    return np.asarray(fitted)


class _CounterSegment:
    """Readings of one counter in a window and around it, some of which fall."""

    def __init__(
        self, values: Floats, at_ns: Integers, max_gap_ns: int, resolution: float | None, rollover: float | None
    ) -> None:
        self.value, self.rollover = values.copy(), rollover
        self.kind: Kinds = np.zeros(len(values), np.uint8)
        self._seconds = (at_ns - at_ns[0]) / 1e9
        self._first_s = float(at_ns[0] % DAY_NS) / 1e9
        self._gap = np.diff(at_ns) > max_gap_ns
        self._rounding = _find_rounding(values)
        step = np.diff(values)
        falls, rises = step < -self._rounding, step > self._rounding
        changes = np.abs(step[falls | rises])
        # A counter that is reset each day falls as often as it tips: to zero, and not below.
        wobbles = falls & ~((values[1:] >= 0) & (values[1:] <= values[:-1] / 2))
        self.is_noisy = int(wobbles.sum()) >= max(MIN_FALLS, NOISY_SHARE * len(changes))
        self.noise = float(np.median(-step[wobbles])) / MEDIAN_FALL if self.is_noisy else 0.0
        self.resolution = _infer_resolution(changes) if resolution is None else resolution

    def find_growth(self) -> Floats:
        """Return what the counter grew by up to each reading, NaN where it is not known."""
        shown = self.value.copy()
        self._pass_over_dropouts()
        self._restore_daily_restarts(shown)
        step = self._explain_steps()
        unknown = np.isnan(step)
        step[unknown] = self._align_steps(np.flatnonzero(unknown), step)
        if np.all(step >= -self._rounding):
            growth = np.maximum(step, 0.0)
        else:
            self.kind[1:][(step < -self._rounding) & (self.kind[1:] == GROWN)] = FELL
            curve = np.concatenate([[0.0], np.cumsum(step)])
            lost, evaporated = self._find_drift(curve) if self.is_noisy else (0.0, 0.0)
            pooled = np.asarray(scipy.optimize.isotonic_regression(curve + lost).x)
            growth = np.maximum(np.diff(pooled) - evaporated, 0.0)
        growth[unknown] = np.nan
        return np.concatenate([[np.nan], growth])

    def _pass_over_dropouts(self) -> None:
        """Hold the reading before a fall or a spike that one of the next readings takes back."""
        spike = SPIKE_STEPS * self.resolution
        step = np.diff(self.value)
        if self.is_noisy:
            is_spike = np.abs(step) > max(spike, SPIKE_NOISES * self.noise)
        else:
            is_spike = (step < -self._rounding) | (step > spike)
        for i in np.flatnonzero(is_spike & ~self._gap).tolist():
            change = self.value[i + 1] - self.value[i]
            size = abs(change)
            if size <= self._rounding[i] or (self.rollover is not None and size > self.rollover / 2):
                continue
            near = NEAR_STEPS * self.resolution
            if change < 0 and self.value[i + 1] <= near:
                soon = int(np.searchsorted(self._seconds, self._seconds[i] + LOST_S, side="right"))
                after = i + 2 + np.flatnonzero(self.value[i + 2 : soon] > near)[:1]
                back = len(after) and abs(self.value[after[0]] - self.value[i]) <= self.resolution + self.noise
                if back and size >= LOST_STEPS * self.resolution:
                    self.value[i + 1 : after[0]] = self.value[i]
                    self.kind[i + 1 : after[0]] = HELD
                    continue
                if size < spike:
                    continue
            for j in range(i + 2, min(i + 2 + SPIKE_READINGS, len(self.value))):
                if (self.value[j - 1] - self.value[i]) * change <= 0:
                    # It came back before, with what fell meanwhile.
                    break
                back = (self.value[j - 1] - self.value[j]) * np.sign(change)
                if TAKEN_BACK[0] * size <= back <= TAKEN_BACK[1] * size:
                    self.value[i + 1 : j] = self.value[i]
                    self.kind[i + 1 : j] = HELD
                    break

    def _restore_daily_restarts(self, shown: Floats) -> None:
        """Restore dropouts to near zero where, at their time of day, more falls last on other days than do not."""
        if self.is_noisy:
            return
        near, low = NEAR_STEPS * self.resolution, shown[1:] <= shown[:-1] / 2
        falls = np.flatnonzero((np.diff(shown) < -self._rounding) & (shown[1:] <= near) & low) + 1
        is_held = self.kind[falls] == HELD
        # What a segment shows at its end may be taken back after it.
        seen_s = min(self._seconds[-1] - LOST_S, self._seconds[max(len(shown) - 1 - SPIKE_READINGS, 0)])
        lasts = ~is_held & (self._seconds[falls] <= seen_s)
        for i in falls[is_held].tolist():
            apart_s = self._seconds[falls] - self._seconds[i]
            days = np.round(apart_s / DAY_S)
            alike = (days != 0) & (np.abs(apart_s - days * DAY_S) < self._seconds[i] - self._seconds[i - 1])
            if np.count_nonzero(alike & lasts) > np.count_nonzero(alike & is_held):
                rest = self.kind[i:] != HELD
                stop = i + int(np.argmax(rest)) if rest.any() else len(shown)
                self.value[i:stop], self.kind[i:stop] = shown[i:stop], GROWN

    def _explain_steps(self) -> Floats:
        """Return the steps between readings, those of resets and rollovers as what they grew; NaN where unknown."""
        value, turn = self.value, self.rollover
        step = np.diff(value)
        falls = step < -self._rounding
        if self.is_noisy:
            falls &= -step > LASTING_NOISES * self.noise
        explained = step.copy()
        if turn is not None:
            explained[step > 0.9 * turn] -= turn
        near = max(NEAR_STEPS * self.resolution, NEAR_NOISES * self.noise)
        for i in np.flatnonzero(falls).tolist():
            fall, length_s = -step[i], self._seconds[i + 1] - self._seconds[i]
            raining = max(near, NEAR_RATES * self._rate_around(i, step) * length_s)
            # A noisy gauge may have been emptied to a charge in hard rain.
            landed = near if self.is_noisy else raining
            # By steps, not by levels: in hard rain both sides of a visit rise by as much as was emptied.
            beside = np.concatenate([step[max(i - AROUND, 0) : i], step[i + 1 : i + 1 + AROUND]])
            lasts = bool(beside.max(initial=0.0) < fall / 2)
            if turn is not None and (fall > turn / 2 or (lasts and not self.is_noisy and value[i + 1] > near)):
                # Near zero it may have been reset: it rolled over where the growth that this implies is possible.
                possible = (LIKELY_STEPS if value[i + 1] <= near else POSSIBLE_STEPS) * self.resolution
                possible *= max(length_s, STEPS_IN_S) / STEPS_IN_S
                rolls = turn - fall <= max(raining, min(turn / 4, possible))
                kind = ROLLOVER if rolls else RESET if value[i + 1] <= landed else EMPTIED
            elif -near <= value[i + 1] <= landed and value[i + 1] <= value[i] / 2:
                kind = RESET
            elif lasts or self._gap[i]:
                kind = EMPTIED
            else:
                continue
            self.kind[i + 1] = kind
            rolled = 0.0 if turn is None else turn - fall
            explained[i] = {RESET: max(value[i + 1], 0.0), ROLLOVER: rolled, EMPTIED: np.nan}[kind]
        for i in np.flatnonzero(self._find_scheduled() & (step > self._rounding)).tolist():
            # It restarted, and rain took it beyond what it had shown before the next reading came.
            length_s = self._seconds[i + 1] - self._seconds[i]
            if value[i + 1] <= max(near, NEAR_RATES * self._rate_around(i, step) * length_s):
                self.kind[i + 1], explained[i] = RESET, value[i + 1]
        explained[self._gap] = np.nan
        return np.asarray(explained)

    def _find_scheduled(self) -> NDArray[np.bool_]:
        """Return the steps without a reading at the time at which a counter without noise restarts on a day beside.

        On the day beyond it restarts, too, or shows zero already, so that nothing is to be seen.
        """
        begins, ends, restarts = self._seconds[:-1], self._seconds[1:], self.kind[1:] == RESET
        is_like = restarts | (self.value[:-1] <= NEAR_STEPS * self.resolution)
        scheduled = np.zeros(len(begins), dtype=bool)
        for i in np.flatnonzero(restarts & (not self.is_noisy)).tolist():
            for day_s in (-DAY_S, DAY_S):
                beyond = (begins < ends[i] + 2 * day_s) & (ends > begins[i] + 2 * day_s)
                if beyond.any() and is_like[beyond].all():
                    lacks = ends - begins > LACKING * (ends[i] - begins[i])
                    scheduled |= lacks & (begins <= begins[i] + day_s) & (ends >= ends[i] + day_s)
        return np.asarray(scheduled & (self.kind[1:] == GROWN))

    def _rate_around(self, i: int, step: Floats) -> float:
        """Return the greatest rate of the steps around one [a second]."""
        near = [j for j in range(max(i - AROUND, 0), min(i + AROUND + 1, len(step))) if j != i and step[j] > 0]
        if self.rollover is not None:
            near = [j for j in near if step[j] <= 0.9 * self.rollover]
        rates = [step[j] / (self._seconds[j + 1] - self._seconds[j]) for j in near]
        return float(max(rates, default=0.0))

    def _align_steps(self, unknown: NDArray[np.intp], step: Floats) -> Floats:
        """Return steps across gaps and emptyings that lay what is on both sides on one another: nothing is grown."""
        if not self.is_noisy or not len(unknown):
            return np.zeros(len(unknown))
        broken = np.isnan(step) | np.isin(self.kind[1:], (RESET, ROLLOVER))
        edges = np.concatenate([[0], np.flatnonzero(broken) + 1, [len(self.value)]])
        number = np.searchsorted(edges, unknown + 1)
        offsets = np.zeros(len(unknown))
        for k, (i, at) in enumerate(zip(unknown.tolist(), number.tolist(), strict=True)):
            before = self._find_level(self.value[max(edges[at - 1], i + 1 - ALIGNED) : i + 1], -1)
            after = self._find_level(self.value[i + 1 : min(i + 1 + ALIGNED, edges[at + 1])], 0)
            offsets[k] = (self.value[i + 1] - after) - (self.value[i] - before)
        return offsets

    def _find_level(self, near: Floats, end: int) -> float:
        """Return the level of readings at one end of them: the median, or the reading there where it rains."""
        if len(near) < 2:
            return float(near[end])
        half = len(near) // 2
        rises = float(np.median(near[-half:]) - np.median(near[:half]))
        return float(near[end] if rises > RAINING_NOISES * self.noise else np.median(near))

    def _find_drift(self, curve: Floats) -> tuple[Floats, Floats]:
        """Return what drifted away up to each reading, and what evaporates in each step, as the dry hours show it.

        What is lost is a line and a wave of one day, fitted by least squares to the medians of the dry hours, each run
        of them around a level of its own. The line evaporates; of the wave as much as evaporation in daylight explains,
        and temperature takes and gives the rest.
        """
        none = np.zeros(len(curve)), np.zeros(len(curve) - 1)
        length, bins, sizes, medians = self._find_hours(curve)
        dry = self._is_dry(bins, sizes, np.diff(medians))
        if int(dry.sum()) < DRY_BINS:
            return none
        run = np.concatenate([[0], np.cumsum(~dry)])
        columns = np.stack([*self._find_losses(np.asarray((bins + 0.5) * length)), medians])
        levels = np.stack([np.bincount(run, column) for column in columns]) / np.bincount(run)
        *losses, left = columns - levels[:, run]
        fitted = _fit_losses(np.stack(losses), left, (MEDIAN_ERROR * self.noise) ** 2 * float(np.mean(1 / sizes)))
        if fitted is None:
            return none
        mean, sine, cosine = fitted / DAY_S
        sine, cosine = 2 * np.pi * sine, 2 * np.pi * cosine
        height = float(np.hypot(sine, cosine))
        share = min(1.0, np.pi / 2 * mean / height) if height else 0.0
        turn = self._to_angle(np.asarray((self._seconds[1:] + self._seconds[:-1]) / 2))
        rate = mean + share * (sine * np.cos(turn) - cosine * np.sin(turn))
        return fitted @ self._find_losses(self._seconds), np.maximum(rate, 0.0) * np.diff(self._seconds)

    def _to_angle(self, seconds: Floats) -> Floats:
        """Return the time of day as an angle."""
        return np.asarray(2 * np.pi * (self._first_s + seconds) / DAY_S)

    def _find_losses(self, seconds: Floats) -> Floats:
        """Return what losses of one a day, and waves of one day with height one, have taken up to some times."""
        turn = self._to_angle(seconds)
        return np.stack([seconds / DAY_S, np.sin(turn), np.cos(turn)])

    def _find_hours(self, curve: Floats) -> tuple[float, Integers, Integers, Floats]:
        """Return the length of hours [s] (longer where readings are rare), their numbers, sizes and medians."""
        length = max(HOUR_S, 4 * float(np.median(np.diff(self._seconds))))
        hour = (self._seconds // length).astype(np.int64)
        bins, medians = medians_by_group(curve, hour)
        sizes = np.diff(np.append(np.searchsorted(hour, bins), len(hour)))
        return length, bins, sizes, medians

    def _is_dry(self, bins: Integers, sizes: Integers, change: Floats) -> NDArray[np.bool_]:
        """Return where two hours follow one another, and neither they nor their neighbours change unusually."""
        follows = np.diff(bins) == 1
        if int(follows.sum()) < DRY_BINS:
            return np.zeros(len(follows), dtype=bool)
        error = MEDIAN_ERROR * self.noise * np.sqrt(1 / sizes[1:] + 1 / sizes[:-1])
        off = np.abs(change - np.median(change[follows]))
        spread = 3 * 1.4826 * float(np.median(off[follows]))
        dry = follows & (off < np.maximum(spread, np.maximum(3 * error, 1.01 * self.resolution)))
        # Rain seldom begins and ends with an hour, and its first drops are within the noise.
        calm = dry.copy()
        calm[1:] &= dry[:-1]
        calm[:-1] &= dry[1:]
        return np.asarray(calm)
