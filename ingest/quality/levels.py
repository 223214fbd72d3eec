"""Test of level shifts and drift, against references and a series' own past. Pure.

The difference between a series and the median of its references (`deviation`) has a usual level for each hour of the
day, the median of unflagged values in the last `days`, and a usual spread (from the median absolute deviation, or the
tail if that is heavier: nights of inversion are usual, not noise). A block is off if it lies more than `threshold`
spreads from its level. A shift needs at least six of seven consecutive blocks off to one side, and far off on average,
or steadily off: that is most of a day, so that one night's inversion is not a shift. Deviations that many surrounding
stations show at the same time are weather. Flagged values do not become usual before the memory ends (`blocks`).

References are the other stations that correlate best with a series: among the nearest if positions are known, otherwise
among all; neither level nor elevation is needed, as each has a usual difference from the others. If several are off at
once, only the one that is furthest off is removed from the references, and the others are evaluated again. A series
without two references is compared with its own past alone, more generously (`alone_threshold`).

The procedure is a relative homogeneity test, over hours instead of years (Alexandersson 1986, A homogeneity test
applied to precipitation data, J. Climatol. 6, 661-675; Fiebrich and others 2010, Quality assurance procedures for
mesoscale meteorological data, J. Atmos. Oceanic Technol. 27, 1565-1582).
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ingest.deployment.quality_settings import LevelShift
from ingest.quality.blocks import A_DAY, Blocks, median, term_blocks
from ingest.quality.spatial import Places, nearest_neighbours
from ingest.quality.temporal import Floats

RUN: Final = 7
"""Consecutive blocks, of which `RUN_OFF` must be off."""
RUN_OFF: Final = 6
# A week, for series with one reading a day.
LOOK: Final = 7 * A_DAY
"""Maximum distance of blocks in the same run [blocks]."""
_MOST_RUN_DAYS: Final = 10
"""Maximum length of a run of blocks with pauses [d]."""
_DAILY: Final = 28
"""Usual levels are updated daily for this long, then weekly [d]."""
_LEAST_ALONE_DAYS: Final = 20
_LEAST_OF_HOUR: Final = 14
_CONFIRMED: Final = 1.4
"""Minimum mean deviation of the off blocks of a run [thresholds]."""
# Steady deviations need a smaller mean, because weather comes and goes.
_STEADY: Final = (1.1, 0.15)
"""Alternative minimum mean [thresholds], and maximum standard deviation [share of the mean]."""
_HELD: Final = 0.5
"""A confirmed shift extends over blocks that are this far off [thresholds]."""
_UNUSUAL: Final = 0.6
"""Deviation beyond which a station is unusual at a time [thresholds]."""
_MOST_BROKEN: Final = 0.2
"""If a greater share of the surrounding stations is unusual at the same time, it is weather."""
_CANDIDATES: Final = 24
"""Number of stations from which the references are chosen."""

Bools = NDArray[np.bool_]


class Term:
    """Flagged blocks and learned state of a term, so that later blocks can be added."""

    def __init__(self, number: int, settings: LevelShift) -> None:
        self._settings, self._length = settings, term_blocks(settings.memory_days)
        self.begin = (number - 1) * self._length
        """Index of the first block that is learned from."""
        self._flagged = np.empty((0, 0), np.bool_)
        self._references = self._candidates = np.empty((0, 0), np.intp)
        self._baseline: dict[int, _Baseline] = {}

    def find_shifts(self, blocks: Blocks, places: Places, changed: int) -> Bools:
        """Return the mask of blocks of the term in a shift, shape (series, blocks of the term).

        Parameters
        ----------
        blocks
            Medians, from the beginning of the previous term to a day after the term, as far as available.
        changed
            Index of the first block that may differ from the previous call.
        """
        length = self._length
        values = blocks.part(self.begin, self.begin + 2 * length + LOOK)
        present = np.isfinite(values)
        count = len(values)
        if not present.any():
            return np.zeros((count, length), np.bool_)
        touched = changed - self.begin
        if touched < length or len(self._flagged) != count:
            learned = values[:, :length] if present[:, :length].any() else values
            self._candidates = nearest_neighbours(places, _CANDIDATES)
            self._references = _references(learned, self._settings, self._candidates)
            self._flagged, self._baseline, touched = np.zeros((count, 2 * length), np.bool_), {}, 0
        if not present[:, :length].any():
            # References are then chosen from the term itself, and may change with each block that is added.
            touched = 0
        began = int(np.flatnonzero(present.any(axis=0))[0]) // A_DAY * A_DAY
        stop = min(2 * length, int(np.flatnonzero(present.any(axis=0))[-1]) + 1)
        self._flagged[:, stop:] = False
        usual, at = _Baseline.unknown(count), began
        while at < stop:
            days = 1 if at - began < _DAILY * A_DAY else 7 - (at // A_DAY) % 7
            until = min(at + days * A_DAY, 2 * length)
            if until + LOOK > touched or until not in self._baseline:
                self._baseline[at] = usual
                if at > began:
                    shifts, usual = self._epoch(values, usual, at, until)
                    self._flagged[:, at:until] = shifts
            else:
                usual = self._baseline[until]
            self._baseline[until] = usual
            at = until
        return self._flagged[:, length:]

    def _epoch(self, values: Floats, before: "_Baseline", at: int, until: int) -> "tuple[Bools, _Baseline]":
        """Return which blocks from `at` to `until` are in a shift, and the baseline up to `at`."""
        settings, flagged = self._settings, self._flagged
        start = max(0, at - round(settings.days) * A_DAY)
        # The epoch plus one run of blocks around it, whose flags are determined below.
        stop = min(until + LOOK, values.shape[1])
        past = np.where(flagged[:, start:at], np.nan, values[:, start:at])
        offsets = _offsets(past)
        hour = np.arange(start, stop) % A_DAY
        anomaly = values[:, start:stop] - offsets[:, hour]
        split = at - start
        clean = anomaly.copy()
        clean[:, :split][flagged[:, start:at]] = np.nan
        deviation, enough = _deviation(anomaly, clean, self._references)
        alone = enough[:, :split].sum(axis=1) < 0.5 * np.isfinite(past).sum(axis=1)
        own = np.isfinite(values[:, start:stop]) & alone[:, None]
        deviation = np.where(own, values[:, start:stop], deviation)
        usual = _estimate_baseline(
            np.where(flagged[:, start:at], np.nan, deviation[:, :split]), before, settings, alone
        )
        threshold = np.where(usual.is_alone, settings.alone_threshold, settings.threshold) * (
            # Wider while few days were learned.
            1.0 + 4.0 / np.maximum(usual.days, 1.0)
        )
        bound = np.maximum(threshold[:, None] * usual.spread, settings.least_shift)[:, hour]
        ready = usual.days >= np.where(usual.is_alone, _LEAST_ALONE_DAYS, settings.least_days)
        first = max(split - LOOK, 0)
        part = slice(first, None)
        level, bound = usual.level[:, hour[part]], bound[:, part]
        # Each round removes only the series that are at least as far off as all of their references.
        for _ in range(4):
            size = deviation[:, part] - level
            off = (np.abs(size) > bound) & ready[:, None]
            worst = _furthest(np.where(off, np.abs(size), 0.0), self._references)
            fresh = worst & np.isfinite(clean[:, part])
            if not fresh.any():
                break
            clean[:, part][fresh] = np.nan
            again, _ = _deviation(anomaly[:, part], clean[:, part], self._references)
            deviation[:, part] = np.where(own[:, part], values[:, start:stop][:, part], again)
        size = deviation[:, part] - level
        relative = np.where(ready[:, None], np.nan_to_num(size) / bound, 0.0)
        present = np.isfinite(size)
        doubtful = _weather(np.abs(relative), present & ready[:, None], self._candidates)
        known = np.zeros(relative.shape, np.bool_)
        known[:, : split - first] = flagged[:, at - (split - first) : at]
        runs = _runs(relative, doubtful, known, present)
        return runs[:, split - first : split - first + until - at], usual


@dataclass(frozen=True, eq=False)
class _Baseline:
    """Usual level and spread of each series."""

    level: Floats
    """By block of the day, shape (series, blocks of a day)."""
    spread: Floats
    """By block of the day, in the shape of `level`."""
    days: Floats
    """Days that it was learned from, shape (series,)."""
    is_alone: Bools
    """Whether the series has too few references and is compared with its own past, shape (series,)."""

    @classmethod
    def unknown(cls, series: int) -> "_Baseline":
        nothing = np.zeros(series)
        return cls(np.full((series, A_DAY), np.nan), np.zeros((series, A_DAY)), nothing, np.zeros(series, np.bool_))


def _offsets(past: Floats) -> Floats:
    """Return the usual difference of each series from the network, shape (series, blocks of a day)."""
    days = past.shape[1] // A_DAY
    cube = past[:, past.shape[1] - days * A_DAY :].reshape(len(past), days, A_DAY)
    offset = np.zeros((len(past), A_DAY))
    # Two rounds, so that the network's median does not depend on which stations happen to report.
    for _ in range(2):
        shared = median(cube - offset[:, None, :], axis=0)
        offset = median(cube - shared, axis=1)
        offset = np.nan_to_num(np.where(np.isfinite(offset), offset, median(offset, axis=1)[:, None]))
    return offset


def _deviation(anomaly: Floats, clean: Floats, references: NDArray[np.intp]) -> tuple[Floats, Bools]:
    """Return the difference from the median of the references, NaN if fewer than two report."""
    if references.shape[1] < 2:
        return np.full(anomaly.shape, np.nan), np.zeros(anomaly.shape, np.bool_)
    beside = np.where((references >= 0)[:, :, None], clean[references], np.nan)
    enough = np.isfinite(beside).sum(axis=1) >= 2
    return np.where(enough, anomaly - median(beside, axis=1), np.nan), enough


def _estimate_baseline(deviation: Floats, before: _Baseline, settings: LevelShift, alone: Bools) -> _Baseline:
    """Estimate the baseline from the past; series with too little data keep the previous one."""
    count, length = deviation.shape
    days = length // A_DAY
    cube = deviation[:, length - days * A_DAY :].reshape(count, days, A_DAY)
    seen = np.isfinite(cube)
    number = seen.any(axis=2).sum(axis=1).astype(np.float64)
    whole = median(cube.reshape(count, -1), axis=1)
    level = np.where(seen.sum(axis=1) >= 4, median(cube, axis=1), whole[:, None])
    rest = np.abs(cube - level[:, None, :]).reshape(count, -1)
    middle = median(rest, axis=1)
    whole_spread = np.maximum(1.4826 * middle, _share(rest, 0.975) / 2.24)
    # Nights vary more than days: scaled by the ratio of medians, as each hour of the day has too few values in its
    # tail.
    of_hour = median(np.abs(cube - level[:, None, :]), axis=1) / np.maximum(middle, 1e-12)[:, None]
    of_hour = np.where((seen.sum(axis=1) >= _LEAST_OF_HOUR) & np.isfinite(of_hour), np.clip(of_hour, 0.6, 1.6), 1.0)
    spread = whole_spread[:, None] * of_hour
    old = (number < settings.least_days) & (before.days > number)
    return _Baseline(
        np.where(old[:, None], before.level, level),
        np.nan_to_num(np.where(old[:, None], before.spread, spread)),
        np.where(old, before.days, number),
        np.where(old, before.is_alone, alone),
    )


def _share(values: Floats, share: float) -> Floats:
    """Return the quantile of the non-NaN values in each row."""
    ordered = np.sort(values, axis=1)
    count = np.isfinite(ordered).sum(axis=1)
    at = np.maximum(np.ceil(share * count).astype(np.intp) - 1, 0)
    return np.asarray(np.take_along_axis(ordered, at[:, None], 1)[:, 0])


def _furthest(size: Floats, references: NDArray[np.intp]) -> Bools:
    """Return which series are off, and at least as far as all of their references."""
    if not references.shape[1]:
        return size > 0.0
    beside = np.where((references >= 0)[:, :, None], size[references], 0.0).max(axis=1)
    return (size > 0.0) & (size >= beside)


def _weather(relative: Floats, present: Bools, candidates: NDArray[np.intp]) -> Bools:
    """Return where more surrounding stations are unusual than break at a time: weather.

    A station counts if it deviates by more than `_UNUSUAL` and by more than half as much as the series.
    """
    around, unusual = np.zeros(relative.shape), np.zeros(relative.shape)
    bound = np.maximum(_UNUSUAL, 0.5 * relative)
    for column in range(candidates.shape[1]):
        other = candidates[:, column]
        there = (other >= 0)[:, None] & present[other]
        around += there
        unusual += there & (relative[other] > bound)
    return np.asarray(unusual > np.maximum(1.0, _MOST_BROKEN * around))


def _runs(relative: Floats, doubtful: Bools, known: Bools, present: Bools) -> Bools:
    """Return the mask of blocks in a shift.

    A shift is confirmed by a run of present blocks that are nearly all off to one side, far off, and not by weather; or
    it continues one in `known`. It extends as far as blocks are half as far off to the same side.
    """
    count, length = relative.shape
    if length < RUN:
        return np.zeros((count, length), np.bool_)
    # Present blocks move to the left, so that pauses, and readings once a day, do not matter.
    order = np.argsort(~present, axis=1, kind="stable")
    number = present.sum(axis=1)
    size = np.take_along_axis(relative, order, 1)
    doubt, held = (np.take_along_axis(part, order, 1) for part in (doubtful, known))
    windows = length - RUN + 1
    whole = np.arange(windows)[None, :] + RUN <= number[:, None]
    whole &= order[:, RUN - 1 :] - order[:, :windows] <= _MOST_RUN_DAYS * A_DAY
    there = np.arange(length)[None, :] < number[:, None]
    run_mask = np.zeros((count, length), np.bool_)
    for sign in (1.0, -1.0):
        off = (sign * size > 1.0) & there & ~doubt
        total = np.cumsum(np.pad(off, ((0, 0), (1, 0))), axis=1)
        off_sums = np.cumsum(np.pad(np.where(off, np.abs(size), 0.0), ((0, 0), (1, 0))), axis=1)
        run = whole & (total[:, RUN:] - total[:, :-RUN] >= RUN_OFF)
        remote = off_sums[:, RUN:] - off_sums[:, :-RUN] >= _CONFIRMED * (total[:, RUN:] - total[:, :-RUN])
        run &= remote | _steady(np.where(there, sign * size, 0.0))
        edges = np.zeros((count, length + 1), np.int64)
        edges[:, :windows] += run
        edges[:, RUN:] -= run
        low = (sign * size > _HELD) & there
        confirmed = low & (((np.cumsum(edges, axis=1)[:, :-1] > 0) & off) | held)
        stretch = np.cumsum(np.pad(low[:, 1:] != low[:, :-1], ((0, 0), (1, 0))), axis=1)
        stretch += np.arange(count)[:, None] * (length + 1)
        run_mask |= low & np.isin(stretch, stretch[confirmed])
    back = np.zeros((count, length), np.bool_)
    np.put_along_axis(back, order, run_mask, 1)
    return back


def _steady(size: Floats) -> Bools:
    """Return where runs of nearly constant deviation begin, shape (series, blocks - RUN + 1)."""
    total, square = (np.cumsum(np.pad(part, ((0, 0), (1, 0))), axis=1) for part in (size, size * size))
    mean = (total[:, RUN:] - total[:, :-RUN]) / RUN
    variance = (square[:, RUN:] - square[:, :-RUN]) / RUN - mean * mean
    return np.asarray((mean >= _STEADY[0]) & (variance <= (_STEADY[1] * mean) ** 2))


def _references(values: Floats, settings: LevelShift, candidates: NDArray[np.intp]) -> NDArray[np.intp]:
    """Return the references of each series, padded with -1, shape (series, at most `references`).

    They are the candidates whose difference from the series varies least from day to day: they correlate with it and
    have the same amplitude.
    """
    max_count = min(round(settings.references), candidates.shape[1])
    if not max_count:
        return candidates
    rough = np.full(candidates.shape, np.inf)
    step = np.full(values.shape, np.nan)
    step[:, A_DAY:] = values[:, A_DAY:] - values[:, :-A_DAY]
    step = step[:, -max(7, round(settings.days)) * A_DAY :]
    for column in range(candidates.shape[1]):
        other = candidates[:, column]
        difference = np.where((other >= 0)[:, None], step - step[other], np.nan)
        enough = np.isfinite(difference).sum(axis=1) >= A_DAY
        # Candidates with too little common data (1e300) come before missing ones (inf).
        rough[:, column] = np.where(enough, median(np.abs(difference), axis=1), np.where(other >= 0, 1e300, np.inf))
    order = np.argsort(rough, axis=1, kind="stable")[:, :max_count]
    return np.take_along_axis(candidates, order, 1)
