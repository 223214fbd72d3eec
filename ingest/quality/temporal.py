"""QARTOD tests along each series, vectorised over all series.

Definitions are QARTOD's (US IOOS, Manual for Real-Time Quality Control of In-situ Temperature and Salinity Data,
version 2.1) as implemented in ioos_qc, which the unit tests compare with. Deliberate differences are stated with each
test.

Each test takes readings ordered by series, then time, without missing values, and returns flags, shape (n,).
"""

# We do not call ioos_qc: its `flat_line_test` never flags at its default tolerance 0, counts by the median step and
# flags only the readings after the threshold. It took one series a call and processed 0.2 million values a second
# (our tests together more than 10), its range over a window 0.4; importing it took 1.7 s.

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hypergrid.core.flags import FAIL, GOOD, NOT_EVALUATED, SUSPECT, TESTS
from hypergrid.core.readings import Series
from ingest.deployment.quality_settings import (
    JOINED_INTERVALS,
    MINUTE_NS,
    AttenuatedSignal,
    CounterFall,
    FlatLine,
    Gap,
    GrossRange,
    RateOfChange,
    Spike,
)

Floats = NDArray[np.float64]
Flags = NDArray[np.uint8]
Exemption = Callable[[NDArray[np.intp]], NDArray[np.bool_]]
"""Returns which of the given rows are exempt, shape (rows,)."""
HOUR_NS: Final = 3_600_000_000_000
# Stamps of a logger are off by some seconds.
OVERLAPPING: Final = 0.9
"""Minimum distance of the stamps of non-overlapping intervals [share of their length]."""


def bits_of(*names: str) -> np.uint16:
    return np.uint16(sum(1 << TESTS.index(name) for name in names))


@dataclass(frozen=True, eq=False)
class Sampling:
    """Interval and sampling of the readings of each series; all of shape (series,)."""

    length_ns: NDArray[np.int64]
    """Interval of a mean, total or extreme [ns]; 0 for samples, and if unknown."""
    usual_ns: NDArray[np.int64]
    """Nominal time between readings [ns]; 0 if unknown."""
    averaged: NDArray[np.bool_]
    """Whether a reading is a mean or a total."""
    anywhere: NDArray[np.bool_]
    """Whether a reading may belong to any single instant of its interval: an extreme, a total."""

    @classmethod
    def of(cls, series: Sequence[Series]) -> "Sampling":
        kinds = [sensor_series.statistic for sensor_series in series]
        usual_ns = np.array([round(sensor_series.interval_s * 1e9) for sensor_series in series], np.int64)
        return cls(
            np.where(np.array([kind != "sample" for kind in kinds], np.bool_), usual_ns, 0),
            usual_ns,
            np.array([kind in ("mean", "total") for kind in kinds], np.bool_),
            np.array([kind in ("max", "min", "total") for kind in kinds], np.bool_),
        )

    def joined_ns(self, within_hours: float) -> NDArray[np.int64]:
        """Return how far apart consecutive readings may lie [ns], shape (series,)."""
        return np.maximum(round(within_hours * HOUR_NS), np.round(JOINED_INTERVALS * self.usual_ns).astype(np.int64))


@dataclass(frozen=True, eq=False)
class Line:
    """Readings of several series, n in total, ordered by series, then time."""

    index: NDArray[np.int32]
    """Index of the series, shape (n,)."""
    time_ns: NDArray[np.int64]
    """Shape (n,)."""
    value: Floats
    """Without NaN, shape (n,)."""
    sampling: Sampling | None = None
    """Sampling of the series; None: all are samples at unknown intervals."""

    def __len__(self) -> int:
        return len(self.index)

    def take(self, rows: NDArray[np.bool_] | NDArray[np.intp]) -> "Line":
        return Line(self.index[rows], self.time_ns[rows], self.value[rows], self.sampling)

    def joined(self, within_hours: float) -> NDArray[np.bool_]:
        """Return which readings directly follow the previous one of their series, shape (n - 1,).

        The limit is `within_hours`, or the nominal interval of the series if that is longer.
        """
        most_ns: NDArray[np.int64] | int = round(within_hours * HOUR_NS)
        if self.sampling is not None:
            limits = self.sampling.joined_ns(within_hours)
            most_ns = limits[self.index[1:]] if (limits > most_ns).any() else most_ns
        near: NDArray[np.bool_] = np.diff(self.time_ns) <= most_ns
        near &= self.index[1:] == self.index[:-1]
        return near

    def hours_within(self, rows: NDArray[np.intp]) -> Floats | float:
        """Return by how much further apart than their stamps two readings may lie [h], shape (rows,)."""
        if self.sampling is None:
            return 0.0
        # Two daily maxima may be two days apart, and a running total drops a burst from one interval length ago.
        return np.where(self.sampling.anywhere, self.sampling.length_ns / HOUR_NS, 0.0)[self.index[rows]]


def gross_range(line: Line, settings: GrossRange) -> Flags:
    """Flag values outside their inclusive bounds. As ioos_qc, except that bounds may scale with the interval."""
    scale = _scale(line, settings.interval_exponent)
    flag = np.full(len(line), GOOD, np.uint8)
    # In this order, so that fail overwrites suspect.
    for span, worse in ((settings.suspect, SUSPECT), (settings.fail, FAIL)):
        if span is not None:
            low, high = span if scale is None else (span[0] * scale[0][line.index], span[1] * scale[1][line.index])
            outside = (line.value < low) | (line.value > high)
            if outside.any():
                flag[outside] = worse
    return flag


def _scale(line: Line, exponent: float) -> tuple[Floats, Floats] | None:
    """Return the factors of lower and upper bounds of one hour, shape (series,) each; None: no scaling."""
    if exponent == 0.0 or line.sampling is None:
        return None
    sampling = line.sampling
    if exponent < 0.0:
        hours = np.where(sampling.averaged & (sampling.length_ns > 0), sampling.length_ns, MINUTE_NS) / HOUR_NS
        # A mean over seconds is bounded like one over a minute: no records are known for shorter intervals.
        scale = np.maximum(hours, MINUTE_NS / HOUR_NS) ** exponent
        return scale, scale
    scale = (sampling.usual_ns / HOUR_NS) ** exponent
    known = sampling.usual_ns > 0
    return np.where(known, scale, 1.0), np.where(known, scale, np.inf)


def spike(line: Line, settings: Spike) -> Flags:
    """Flag readings that differ from both the previous and the next one.

    As ioos_qc, except that the threshold grows with the time between readings, and that neighbours are the existing
    readings within `within_hours`: a missing value next to a spike does not hide it. Ends are not evaluated.
    """
    flag = np.full(len(line), NOT_EVALUATED, np.uint8)
    near = line.joined(settings.within_hours)
    flag[1:-1][near[:-1] & near[1:]] = GOOD
    step = np.diff(line.value)
    before, after = step[:-1], step[1:]
    if settings.method == "average":
        size = np.abs(before - after) / 2.0
    else:
        size = np.where(before * after < 0.0, np.minimum(np.abs(before), np.abs(after)), 0.0)
    rows = np.flatnonzero(size > settings.suspect)
    rows = rows[flag[rows + 1] == GOOD]
    hours = (line.time_ns[rows + 2] - line.time_ns[rows]) / (2.0 * HOUR_NS) + line.hours_within(rows)
    _mark(flag, rows + 1, size[rows] - settings.per_hour * hours, settings.suspect, settings.fail)
    return flag


def rate_of_change(line: Line, settings: RateOfChange) -> Flags:
    """Flag large steps from the previous reading; as ioos_qc if `suspect` is 0.

    `per_hour` is then the rate of ioos_qc.
    """
    flag = np.full(len(line), NOT_EVALUATED, np.uint8)
    flag[1:][line.joined(settings.within_hours)] = GOOD
    size = np.abs(np.diff(line.value))
    rows = np.flatnonzero(size > settings.suspect)
    rows = rows[flag[rows + 1] == GOOD]
    hours = (line.time_ns[rows + 1] - line.time_ns[rows]) / HOUR_NS + line.hours_within(rows)
    _mark(flag, rows + 1, size[rows] - settings.per_hour * hours, settings.suspect, settings.fail)
    return flag


def _mark(flag: Flags, rows: NDArray[np.intp], size: Floats, suspect: float, fail: float | None) -> None:
    flag[rows[size > suspect]] = SUSPECT
    if fail is not None:
        flag[rows[size > fail]] = FAIL


def gap(line: Line, settings: Gap) -> Flags:
    """Flag the first reading after a pause, if enabled; the first of a series is not evaluated."""
    flag = np.full(len(line), NOT_EVALUATED, np.uint8)
    same = line.index[1:] == line.index[:-1]
    flag[1:][same] = GOOD
    if settings.flag != "none":
        late = same & ~line.joined(settings.hours)
        flag[1:][late] = FAIL if settings.flag == "fail" else SUSPECT
    return flag


def counter_fall(line: Line, settings: CounterFall) -> Flags:
    """Flag readings of a counter below the previous one, except near zero, where it was reset."""
    flag = np.full(len(line), NOT_EVALUATED, np.uint8)
    near = (line.index[1:] == line.index[:-1]) & (np.diff(line.time_ns) <= settings.within_hours * HOUR_NS)
    fell = (np.diff(line.value) <= -settings.least) & (line.value[1:] > settings.near_zero)
    flag[1:][near] = GOOD
    flag[1:][near & fell] = FAIL if settings.flag == "fail" else SUSPECT
    return flag


def pauses(line: Line, hours: float) -> NDArray[np.intp]:
    """Return the rows followed by a pause in their series, longer than `hours` and than the interval."""
    return np.flatnonzero((line.index[1:] == line.index[:-1]) & ~line.joined(hours))


def flat_line(line: Line, settings: FlatLine, exempt: Exemption) -> Flags:
    """Flag runs of readings that stay within the tolerance for too long.

    Unlike ioos_qc: equal values are flagged at a tolerance of 0, time is measured by the stamps, the whole run is
    flagged instead of only the readings after the threshold, and exempt times do not count. For means, totals and
    extremes only non-overlapping intervals count: a maximum over six hours, reported every ten minutes, stays the same
    for six hours.
    """
    flag = np.full(len(line), GOOD, np.uint8)
    if len(line) < 2:
        return flag
    near = line.joined(settings.within_hours)
    # In this order, so that fail overwrites suspect.
    thresholds = [(settings.hours, SUSPECT)]
    if settings.fail_hours is not None:
        thresholds.append((settings.fail_hours, FAIL))
    # Equal values form runs, which need no sliding windows.
    if settings.tolerance == 0.0:
        _equal_runs(line, near, settings, thresholds, exempt, flag)
    else:
        held = exempt(np.arange(len(line)))
        for hours, worse in thresholds:
            flag[_flag_still(line, near, settings, hours, held)] = worse
    return flag


def _least_ns(line: Line, settings: FlatLine, hours: float, rows: NDArray[np.intp]) -> NDArray[np.int64]:
    """Return how long readings must stay the same, given the interval of their series [ns], shape (rows,)."""
    least_ns = np.full(len(rows), round(hours * HOUR_NS), np.int64)
    if line.sampling is None:
        return least_ns
    apart_ns = ((settings.readings - 1.0) * OVERLAPPING * line.sampling.length_ns).astype(np.int64)
    return np.maximum(least_ns, apart_ns[line.index[rows]])


def _equal_runs(
    line: Line,
    near: NDArray[np.bool_],
    settings: FlatLine,
    thresholds: list[tuple[float, int]],
    exempt: Exemption,
    flag: Flags,
) -> None:
    breaks = np.flatnonzero(~near | (line.value[1:] != line.value[:-1])) + 1
    first, stop = np.r_[0, breaks], np.r_[breaks, len(line)]
    long = (stop - first >= settings.readings) & (
        line.time_ns[stop - 1] - line.time_ns[first] >= _least_ns(line, settings, settings.hours, first)
    )
    first, stop = first[long], stop[long]
    if not len(first):
        return
    # Exemptions are evaluated only for runs that are long enough, because they can need other variables.
    lengths = stop - first
    ends = np.cumsum(lengths)
    rows = np.arange(int(ends[-1])) + np.repeat(first - (ends - lengths), lengths)
    elapsed, counted = _clock(line, rows, exempt(rows), np.repeat(np.arange(len(first)), lengths))
    enough = counted[ends - 1] - counted[ends - lengths] + 1 >= settings.readings
    length_ns = elapsed[ends - 1] - elapsed[ends - lengths]
    for min_hours, worse in thresholds:
        long = length_ns >= _least_ns(line, settings, min_hours, first)
        flag[rows[np.repeat(enough & long, lengths)]] = worse


def _clock(
    line: Line, rows: NDArray[np.intp], exempt: NDArray[np.bool_], run: NDArray[np.intp]
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return cumulative time [ns] and count, both constant over exempt readings and between runs, shape (rows,)."""
    counts = (run[1:] == run[:-1]) & ~exempt[1:]
    step = np.where(counts & ~exempt[:-1], np.diff(line.time_ns[rows]), 0)
    return np.r_[0, np.cumsum(step)], np.r_[0, np.cumsum(counts)]


def _flag_still(
    line: Line, near: NDArray[np.bool_], settings: FlatLine, least_hours: float, exempt: NDArray[np.bool_]
) -> NDArray[np.bool_]:
    """Return which readings lie in a window that is long enough and within the tolerance, shape (n,)."""
    run = np.r_[0, np.cumsum(~near)]
    elapsed, counted = _clock(line, np.arange(len(line)), exempt, run)
    more, rows = round(settings.readings) - 1, np.arange(len(line))
    least_ns = _least_ns(line, settings, least_hours, rows)
    last = np.maximum(np.searchsorted(elapsed, elapsed + least_ns), np.searchsorted(counted, counted + more))
    first = np.minimum(
        np.searchsorted(elapsed, elapsed - least_ns, side="right"),
        np.searchsorted(counted, counted - more, side="right"),
    )
    edges = np.zeros(len(line) + 1, np.int64)
    # The shortest windows that begin at each reading, and those that end there: both extend to exempt ends.
    for begin, end in ((rows, last), (first - 1, rows)):
        whole = np.flatnonzero((begin >= 0) & (end < len(line)))
        whole = whole[run[begin[whole]] == run[end[whole]]]
        low, high = _extremes(line.value, begin[whole], end[whole])
        still = whole[high - low <= settings.tolerance]
        np.add.at(edges, begin[still], 1)
        np.add.at(edges, end[still] + 1, -1)
    return np.cumsum(edges[:-1]) > 0


def _extremes(value: Floats, first: NDArray[np.intp], last: NDArray[np.intp]) -> tuple[Floats, Floats]:
    """Return the minima and maxima of windows, both ends included."""
    low, high = np.empty(len(first)), np.empty(len(first))
    # Sparse table: each window is the union of two overlapping windows whose length is a power of two.
    level = np.frexp((last - first + 1).astype(np.float64))[1] - 1
    minima, maxima = value, value
    for power in range(int(level.max(initial=-1)) + 1):
        rows = np.flatnonzero(level == power)
        second = last[rows] + 1 - (1 << power)
        low[rows] = np.minimum(minima[first[rows]], minima[second])
        high[rows] = np.maximum(maxima[first[rows]], maxima[second])
        reach = 1 << power
        minima, maxima = np.minimum(minima[:-reach], minima[reach:]), np.maximum(maxima[:-reach], maxima[reach:])
    return low, high


def attenuated_signal(line: Line, settings: AttenuatedSignal) -> Flags:
    """Flag readings at the end of a window in which values hardly varied.

    As ioos_qc: the window holds the readings after the stamp minus `hours`, up to the reading; the standard deviation
    is that of the population. A window that begins before its series, or holds fewer than `readings` non-overlapping
    intervals, is not evaluated.
    """
    flag = np.full(len(line), NOT_EVALUATED, np.uint8)
    if not len(line):
        return flag
    starts = np.flatnonzero(np.r_[True, line.index[1:] != line.index[:-1]])
    series = np.repeat(np.arange(len(starts)), np.diff(np.r_[starts, len(line)]))
    period_ns = round(settings.hours * HOUR_NS)
    first = _rows_after(line, starts, period_ns)
    rows = np.flatnonzero(
        (line.time_ns - line.time_ns[starts][series] >= period_ns)
        & (np.arange(len(line)) - first + 1 >= settings.readings)
        & _holds_enough(line, settings)
    )
    first = first[rows]
    if settings.measure == "range":
        low, high = _extremes(line.value, first, rows)
        size = high - low
    else:
        # Relative to the mean of each series, so that squares keep their precision.
        mean = np.add.reduceat(line.value, starts) / np.diff(np.r_[starts, len(line)])
        off = line.value - mean[series]
        once, twice = (np.r_[0.0, np.cumsum(power)] for power in (off, off * off))
        count = rows + 1 - first
        part = (once[rows + 1] - once[first]) / count
        size = np.sqrt(np.maximum((twice[rows + 1] - twice[first]) / count - part * part, 0.0))
    flag[rows] = np.where(size < settings.suspect, SUSPECT, GOOD)
    if settings.fail is not None:
        flag[rows[size < settings.fail]] = FAIL
    return flag


def _holds_enough(line: Line, settings: AttenuatedSignal) -> NDArray[np.bool_] | bool:
    """Return for which readings a window has room for the required number of intervals, shape (n,)."""
    if line.sampling is None:
        return True
    room = settings.hours * HOUR_NS >= settings.readings * OVERLAPPING * line.sampling.length_ns
    return np.asarray(room[line.index])


def _rows_after(line: Line, starts: NDArray[np.intp], period_ns: int) -> NDArray[np.intp]:
    """Return the first row of the same series less than a period before each reading, shape (n,)."""
    first = np.empty(len(line), np.intp)
    for start, stop in zip(starts.tolist(), [*starts[1:].tolist(), len(line)], strict=True):
        stamps = line.time_ns[start:stop]
        first[start:stop] = start + np.searchsorted(stamps, stamps - period_ns, side="right")
    return first
