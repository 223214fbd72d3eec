"""Increments of counters: tipping buckets and weighing gauges that reset, roll over, fluctuate and evaporate.

A fall of a counter is not rain. Each fall is classified, and its kind determines the increment:

* a **reset** is a fall to near zero: the increment is the value shown since;
* a **rollover** is a fall of a counter with a declared rollover: the increment is the fall's complement;
* an **emptying** is a large, lasting fall to any other value, a service visit: the increment is unknown. A noisy gauge
  is refilled with a charge of any size, so a fall in hard rain to more than the noise is an emptying;
* a **dropout** is a fall that the next readings take back at once: it is ignored. But where a logger restarts daily,
  hard rain can undo a restart at once: it is recognised by lasting falls to near zero at the same time of day on the
  days around it. The same holds if the reading at the restart is missing, and rain has raised the counter beyond its
  value before the restart;
* everything else is **noise** or evaporation, balanced with the rises around it so that it cannot accumulate.

The last rule is that of the neutral aggregating filters for weighing gauges (Ross, Smith and Barr, 2020, Atmospheric
Measurement Techniques 13, 2979-2994): noise is aggregated with its neighbours until nothing falls, and the total is
kept. The cumulative curve that does so with the least squared change is the isotonic regression, found by pooling
adjacent violators (Barlow and others, 1972). As in their segmented filter (NAF-SEG), the series is processed in
overlapping segments, and the drift of a segment, estimated from its dry hours, is restored before its rain is counted:
a mean and a daily wave, as a gauge evaporates by day and swings with temperature.

A segment is one window of whole multiples of `span_ns` since 1970, plus one such window before and after it. An
increment therefore depends on readings at most twice `span_ns` away, whichever part of a series is processed. If no
reading of a segment falls, increments are the plain differences.

No drift is restored if the dry hours rise by more than their noise: it is raining, too lightly to be seen within an
hour. The deviation of their levels from the drift then does not measure noise, since such rain bends them. If they
rise by less, nothing evaporates, and the wave is fitted alone.

Bias: noise of standard deviation s leaves some hundredths of s per dry day. If a segment has few dry hours, or rain so
light that its noise hides it, the drift is underestimated, and rain loses what evaporated before it. A segment that is
wet throughout keeps its net change. A drift estimated over weeks would be more accurate where all days are equal, and
less where evaporation changes with the weather, as it does; therefore none is stored.
"""

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
import scipy  # submodules load on first use; most queries need none of them
from numpy.typing import NDArray

from hypergrid.core.medians import medians_by_group

Floats = NDArray[np.float64]
Integers = NDArray[np.int64]
Kinds = NDArray[np.uint8]

DAY_NS: Final = 86_400 * 10**9
HOUR_S: Final = 3600.0
DAY_S: Final = 86_400.0

GROWN, RESET, ROLLOVER, EMPTIED, HELD, FELL = range(6)
"""Classification of a reading: regular; after a reset, a rollover, an emptying; dropout; noise."""

# Interpolation in time changes values by less than this.
ROUNDING: Final = 1e-9
"""Smallest relative change of a counter that counts as a change."""
MIN_FALLS: Final = 5
NOISY_SHARE: Final = 0.1
"""A gauge is noisy if at least this number of readings, and this share of its changes, are falls not to zero."""
# Differences of white noise have twice its variance.
MEDIAN_FALL: Final = 0.6744897501960817 * 2**0.5
"""Median fall of white noise over its standard deviation."""
SPIKE_STEPS, SPIKE_NOISES, SPIKE_READINGS = 50, 20, 3
"""Dropout: a change of this many steps of the resolution and this many times the noise that one of this many following
readings takes back (within 10 %)."""
TAKEN_BACK: Final = (0.9, 1.1)
# White noise produces such a fall once in 65 million readings.
LASTING_NOISES: Final = 8
"""Multiple of the noise from which a fall is not noise."""
NEAR_STEPS, NEAR_NOISES, NEAR_RATES = 2, 4, 4
"""Near zero: two steps of the resolution, four times the noise, or the growth at four times the rate around."""
LONE_CHANGE: Final = 0.05
"""Resolution over the only change of a counter: a fall to a tenth of the change or less is one to near zero."""
LIKELY_STEPS, POSSIBLE_STEPS, STEPS_IN_S = 20, 250, 600.0
"""Steps of the resolution that a counter can grow by at a rollover within this time [s], whatever the rate around: for
one that lands near zero, as after a reset, and for any other."""
LACKING: Final = 1.5
"""Steps longer than this multiple of the steps on the days beside lack a reading."""
LOST_STEPS, LOST_S = 10, 7200.0
"""A counter of at least this many steps that is back from near zero within this time [s] was not reset."""
AROUND: Final = 3
"""Readings before and after a fall that show whether it lasts, and how hard it rained."""
ALIGNED: Final = 5
"""Readings whose medians are aligned across a gap or an emptying of a noisy gauge."""
DRY_BINS: Final = 12
"""Hours without rain that a segment needs for an estimate of its drift."""
RAINING_NOISES: Final = 2
"""It is raining if the median rises by this multiple of the noise between the halves of a few readings."""
# The median of n values has a variance of pi / 2n times that of one value.
MEDIAN_ERROR: Final = 1.25
"""Standard error of the median over that of the mean."""
DAMPING: Final = 3.0
"""Dry hours that a daily wave must outweigh; it is damped towards zero if few hours of the day are dry."""
RISING_ERRORS: Final = 3
"""Hours in which a gauge rises by more than this many standard errors of its drift are not dry."""


@dataclass(frozen=True, eq=False)
class Increments:
    """Increments of counters, and how each reading was classified."""

    growth: Floats
    """Increment up to each reading [the counter's unit], at least 0; NaN if unknown, shape (n,)."""
    kind: Kinds
    """Classification of each reading (`GROWN` to `FELL`), shape (n,)."""


def span_ns(max_gap_ns: int) -> int:
    """Return the length of a classification window [ns]: a day, or the longest bridged gap."""
    return max(DAY_NS, max_gap_ns)


def increments(  # noqa: PLR0913 - columns of readings, and the declared properties of the gauge
    values: Floats,
    at_ns: Integers,
    group: NDArray[Any],
    max_gap_ns: int,
    *,
    resolution: float | None = None,
    rollover: float | None = None,
) -> Increments:
    """Return the increments of counters up to each reading.

    Parameters
    ----------
    values, at_ns
        Readings and their times [ns], ordered by time within each group, without NaN, shape (n,).
    group
        Counter of each reading, shape (n,); the readings of one counter are contiguous.
    max_gap_ns
        Longest time since the previous reading [ns] over which an increment is known.
    resolution
        Step of the counters [their unit]; None: inferred from the smallest change in each segment.
    rollover
        Value at which they wrap to zero [their unit]; None: never.

    Returns
    -------
    Increments; NaN for the first reading of a counter, after longer gaps, and where a gauge was emptied.

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
        # A rise by nearly the rollover is a small fall across zero.
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
    """Return the largest change between neighbours that counts as rounding."""
    size = np.abs(values)
    return np.asarray(ROUNDING * np.maximum(size[1:], size[:-1]))


def _infer_resolution(changes: Floats) -> float:
    # A single change may be an emptying or a reset.
    return float(changes.min()) if len(changes) > 1 else LONE_CHANGE * float(changes.max(initial=0.0))


def _fit_losses(lost: Floats, left: Floats, variance: float) -> Floats | None:
    """Fit a line and a daily wave to hourly levels; None if the line rises.

    The fit is by least squares; its coefficients are losses.
    """
    damped = lost @ lost.T + np.diag([0.0, DAMPING, DAMPING])
    fitted = np.linalg.solve(damped, -lost @ left)
    # Light rain bends the levels away from any drift. Taking their misfit for noise would hide that they rise.
    variance = min(variance, float(np.mean((left + fitted @ lost) ** 2)))
    if fitted[0] < -RISING_ERRORS * float(np.sqrt(variance * np.linalg.inv(damped)[0, 0])):
        # It rains too lightly to be seen within an hour: these hours are not dry.
        return None
    if fitted[0] < 0:
        # Nothing evaporates. A wave fitted together with a rise would take some of it from the rain.
        fitted = np.append(0.0, np.linalg.solve(damped[1:, 1:], -lost[1:] @ left))
    return np.asarray(fitted)


class _CounterSegment:
    """Readings of one counter in a window and around it, with at least one fall."""

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
        # A counter that is reset each day falls as often as it tips, but to zero and not below.
        wobbles = falls & ~((values[1:] >= 0) & (values[1:] <= values[:-1] / 2))
        self.is_noisy = int(wobbles.sum()) >= max(MIN_FALLS, NOISY_SHARE * len(changes))
        self.noise = float(np.median(-step[wobbles])) / MEDIAN_FALL if self.is_noisy else 0.0
        self.resolution = _infer_resolution(changes) if resolution is None else resolution

    def find_growth(self) -> Floats:
        """Return the increment up to each reading, NaN if unknown."""
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
        """Replace dropouts and spikes that a following reading takes back by the reading before."""
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
                    # An earlier reading came back already, including rain in between.
                    break
                back = (self.value[j - 1] - self.value[j]) * np.sign(change)
                if TAKEN_BACK[0] * size <= back <= TAKEN_BACK[1] * size:
                    self.value[i + 1 : j] = self.value[i]
                    self.kind[i + 1 : j] = HELD
                    break

    def _restore_daily_restarts(self, shown: Floats) -> None:
        """Undo dropouts to near zero where most falls at that time of day on other days persist."""
        if self.is_noisy:
            return
        near, low = NEAR_STEPS * self.resolution, shown[1:] <= shown[:-1] / 2
        falls = np.flatnonzero((np.diff(shown) < -self._rounding) & (shown[1:] <= near) & low) + 1
        is_held = self.kind[falls] == HELD
        # A fall at the end of a segment may be taken back after it.
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
        """Return the steps between readings, with the growth at resets and rollovers; NaN if unknown."""
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
            # Steps are compared, not levels: in hard rain both sides of a visit rise by as much as was emptied.
            beside = np.concatenate([step[max(i - AROUND, 0) : i], step[i + 1 : i + 1 + AROUND]])
            lasts = bool(beside.max(initial=0.0) < fall / 2)
            if turn is not None and (fall > turn / 2 or (lasts and not self.is_noisy and value[i + 1] > near)):
                # Near zero it may have been reset; it rolled over if the implied growth is possible.
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
            # It restarted, and rain raised it beyond its earlier value before the next reading.
            length_s = self._seconds[i + 1] - self._seconds[i]
            if value[i + 1] <= max(near, NEAR_RATES * self._rate_around(i, step) * length_s):
                self.kind[i + 1], explained[i] = RESET, value[i + 1]
        explained[self._gap] = np.nan
        return np.asarray(explained)

    def _find_scheduled(self) -> NDArray[np.bool_]:
        """Mark steps that lack a reading at the daily restart of a noise-free counter.

        The restart is that of a neighbouring day.

        On the day beyond, it must restart as well, or show zero already, which hides a restart.
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
        """Return the largest rate of the steps around one [unit per second]."""
        near = [j for j in range(max(i - AROUND, 0), min(i + AROUND + 1, len(step))) if j != i and step[j] > 0]
        if self.rollover is not None:
            near = [j for j in near if step[j] <= 0.9 * self.rollover]
        rates = [step[j] / (self._seconds[j + 1] - self._seconds[j]) for j in near]
        return float(max(rates, default=0.0))

    def _align_steps(self, unknown: NDArray[np.intp], step: Floats) -> Floats:
        """Return steps across gaps and emptyings that align the levels on both sides: without growth."""
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
        """Return the level at one end of readings.

        It is their median, or the reading at the end while it rains.
        """
        if len(near) < 2:
            return float(near[end])
        half = len(near) // 2
        rises = float(np.median(near[-half:]) - np.median(near[:half]))
        return float(near[end] if rises > RAINING_NOISES * self.noise else np.median(near))

    def _find_drift(self, curve: Floats) -> tuple[Floats, Floats]:
        """Estimate drift from the dry hours: loss up to each reading, evaporation per step.

        The loss is a line and a daily wave, fitted by least squares to the medians of the dry hours, with a separate
        level for each run of them. The line is evaporation; of the wave, as much as evaporation in daylight explains.
        The rest of the wave is due to temperature, and reverses.
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
        # A half-wave of evaporation in daylight has a daily wave of pi / 2 times its mean.
        share = min(1.0, np.pi / 2 * mean / height) if height else 0.0
        turn = self._to_angle(np.asarray((self._seconds[1:] + self._seconds[:-1]) / 2))
        rate = mean + share * (sine * np.cos(turn) - cosine * np.sin(turn))
        return fitted @ self._find_losses(self._seconds), np.maximum(rate, 0.0) * np.diff(self._seconds)

    def _to_angle(self, seconds: Floats) -> Floats:
        """Convert seconds to the time of day as an angle [rad]."""
        return np.asarray(2 * np.pi * (self._first_s + seconds) / DAY_S)

    def _find_losses(self, seconds: Floats) -> Floats:
        """Return the basis of losses at some times [s].

        Its rows are a line of one per day, and daily sine and cosine waves of amplitude one.
        """
        turn = self._to_angle(seconds)
        return np.stack([seconds / DAY_S, np.sin(turn), np.cos(turn)])

    def _find_hours(self, curve: Floats) -> tuple[float, Integers, Integers, Floats]:
        """Return the bin length [s], and the bins' numbers, sizes and medians.

        Bins are hours, or longer if readings are rare.
        """
        # Rare readings need longer bins, of about four readings each.
        length = max(HOUR_S, 4 * float(np.median(np.diff(self._seconds))))
        hour = (self._seconds // length).astype(np.int64)
        bins, medians = medians_by_group(curve, hour)
        sizes = np.diff(np.append(np.searchsorted(hour, bins), len(hour)))
        return length, bins, sizes, medians

    def _is_dry(self, bins: Integers, sizes: Integers, change: Floats) -> NDArray[np.bool_]:
        """Mark pairs of consecutive hours that, like their neighbours, show no unusual change."""
        follows = np.diff(bins) == 1
        if int(follows.sum()) < DRY_BINS:
            return np.zeros(len(follows), dtype=bool)
        error = MEDIAN_ERROR * self.noise * np.sqrt(1 / sizes[1:] + 1 / sizes[:-1])
        off = np.abs(change - np.median(change[follows]))
        # 1.4826 times the median absolute deviation estimates a standard deviation.
        spread = 3 * 1.4826 * float(np.median(off[follows]))
        dry = follows & (off < np.maximum(spread, np.maximum(3 * error, 1.01 * self.resolution)))
        # Rain seldom begins or ends at a full hour, and its first drops are within the noise.
        calm = dry.copy()
        calm[1:] &= dry[:-1]
        calm[:-1] &= dry[1:]
        return np.asarray(calm)
