"""Affected intervals: how much of each series must be tested again when readings arrive. Pure.

The tests along a series drop readings one after the other, so that readings far apart may affect each other. A stored
reading is an anchor if no such test flagged it and its neighbours and flat line are unchanged: the tests pass it again,
and starting from it they give later readings the same flags as they would with all earlier readings. Why an anchor
holds:

* New values and stamps change the single-value tests only of themselves.
* A spike depends on the neighbours on both sides: the reading next to a new one may become a spike, or cease to be one.
* A flat line (`flat_line`) is evaluated as a whole. It extends from the new readings to one that it cannot contain: a
  reading whose value differs by more than the tolerance, one separated by a pause, or as far as time is exempt.
* A step (`rate_of_change`) depends on the previous reading: a second anchor is needed after the new readings.
* An attenuated signal (`attenuated_signal`) depends on the hours before.
"""

from dataclasses import dataclass, fields, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hypergrid.core.flags import MISSING
from hypergrid.core.readings import Readings
from ingest.deployment.quality_settings import SUN, VALUE, FlatLine, VariableTests
from ingest.quality.run_tests import SERIES_TEST_BITS, Exemptions, bits_of, judge
from ingest.quality.spatial import Places
from ingest.quality.temporal import HOUR_NS, Line, Sampling

UNBOUNDED: Final = np.iinfo(np.int64).max
"""Later than any stamp; `-UNBOUNDED` is earlier than any [ns]."""
_SINGLE: Final = bits_of("given_suspect", "given_fail", "gross_range", "climatology")
FLAT_BIT: Final = bits_of("flat_line")
_UP_TO_SPIKE: Final = _SINGLE | bits_of("spike")

Rows = NDArray[np.bool_]
Stamps = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class AffectedIntervals:
    """Intervals to test and to reflag in each series; all of shape (series,)."""

    is_bounded: Rows
    """Whether the available readings were enough to determine the interval."""
    first_ns: Stamps
    """First reading to test [ns]."""
    after_ns: Stamps
    """Flags of readings after this are updated [ns]."""
    until_ns: Stamps
    """Flags of readings before this are updated [ns]."""
    last_ns: Stamps
    """Last reading to test [ns]."""
    stuck: Rows
    """Whether all updated readings continue a flat line that already has the worst flag."""

    @classmethod
    def none(cls, series: int) -> "AffectedIntervals":
        """Return undetermined intervals for a number of series."""
        unknown = np.zeros(series, np.bool_)
        first, after, until, last = np.full((4, series), UNBOUNDED)
        return cls(unknown, first, after, until, last, unknown)

    def update_series(self, other: "AffectedIntervals", series: NDArray[np.int32]) -> "AffectedIntervals":
        """Return a copy with some series replaced by those of another."""
        parts = [getattr(self, each.name).copy() for each in fields(self)]
        for part, each in zip(parts, fields(self), strict=True):
            part[series] = getattr(other, each.name)[series]
        return AffectedIntervals(*parts)

    def fill_unbounded(self, after_ns: int, until_ns: int) -> "AffectedIntervals":
        """Return a copy where undetermined series test all readings and update those from `after_ns` to `until_ns`."""
        bounds = {"first_ns": -UNBOUNDED, "after_ns": after_ns - 1, "until_ns": until_ns + 1, "last_ns": UNBOUNDED}
        new = {name: np.where(self.is_bounded, getattr(self, name), bound) for name, bound in bounds.items()}
        return replace(self, is_bounded=np.ones_like(self.is_bounded), **new)

    def rows_to_test(self, readings: Readings) -> Rows:
        """Return which readings the tests need, shape (n,)."""
        index, time_ns = readings.index, readings.time_ns
        rows: Rows = self.is_bounded[index] & (time_ns >= self.first_ns[index]) & (time_ns <= self.last_ns[index])
        return rows

    def rows_to_flag(self, readings: Readings) -> Rows:
        """Return which readings get new flags from the tests, shape (n,)."""
        index, time_ns = readings.index, readings.time_ns
        rows: Rows = self.is_bounded[index] & (time_ns > self.after_ns[index]) & (time_ns < self.until_ns[index])
        return rows


def find_affected_intervals(
    readings: Readings,
    touched: Rows,
    replaced: Rows,
    tests: VariableTests,
    places: Places,
    *,
    begins: bool,
    ends: bool,
) -> AffectedIntervals:
    """Find the intervals of each series affected by new or replaced readings.

    Parameters
    ----------
    readings
        Ordered by series, then time, without omitting any that the archive has in between; untouched readings have the
        flags and tests that these parameters gave them.
    touched
        Readings that are new or differ from the archive's value, shape (n,).
    replaced
        Those of them that the archive has with another value, shape (n,).
    begins, ends
        Whether the archive has nothing before the first, or after the last of the readings.
    """
    if not len(readings):
        return AffectedIntervals.none(len(readings.series)).fill_unbounded(UNBOUNDED, UNBOUNDED)
    scan = _IntervalScan(readings, touched, tests)
    until_ns, ended = scan.stop_bounds()
    ended |= ends
    first_ns, after_ns, has_start = scan.start_bounds(places, ended)
    intervals = AffectedIntervals(
        (has_start | begins) & ended, first_ns, after_ns, until_ns, until_ns, np.zeros_like(has_start)
    )
    return scan.shorten(intervals, replaced, places, begins=begins, ends=ends)


class _IntervalScan:
    def __init__(self, readings: Readings, touched: Rows, tests: VariableTests) -> None:
        count, index, time_ns = len(readings.series), readings.index, readings.time_ns
        self._readings, self._touched, self._tests, self._count = readings, touched, tests, count
        self._earliest, self._latest = np.full(count, UNBOUNDED), np.full(count, -UNBOUNDED)
        np.minimum.at(self._earliest, index[touched], time_ns[touched])
        np.maximum.at(self._latest, index[touched], time_ns[touched])
        is_unchanged = ~touched & (readings.flag != MISSING)
        bits = readings.tests_or_none_set()
        self._rows = np.arange(len(readings))
        self._is_before = is_unchanged & (time_ns < self._earliest[index])
        self._is_after = is_unchanged & (time_ns > self._latest[index])
        self._single, self._level = (bits & _SINGLE) == 0, (bits & _UP_TO_SPIKE) == 0
        self._clean = (bits & SERIES_TEST_BITS) == 0
        # The reading next to a new one may become a spike, or cease to be one.
        spike = self._last(self._is_before & self._single)
        self._sure = self._is_before & self._level & (self._rows < spike[index])
        within_hours = tests.flat_line.within_hours if tests.flat_line else 0.0
        self._joined_ns = Sampling.of(readings.series).joined_ns(within_hours)
        """How far apart readings of a flat line may lie [ns], shape (series,)."""
        self._attenuated_ns = round(tests.attenuated_signal.hours * HOUR_NS) if tests.attenuated_signal else 0

    def start_bounds(self, places: Places, has_stop: Rows) -> tuple[Stamps, Stamps, Rows]:
        """Return the stamps of start anchors and last unaffected readings, and which series have them."""
        index, time_ns = self._readings.index, self._readings.time_ns
        nearest = self._last(self._sure)
        edge = self._last(self._is_different(self._sure, nearest=nearest, backward=True))
        flat = self._tests.flat_line
        if flat and flat.exempt:
            open_ = (edge < 0) & (nearest >= 0)
            if open_.any():
                edge = np.where(self._is_uncounted(nearest, open_, flat, places, has_stop), nearest, edge)
        edge_ns = np.where(edge >= 0, time_ns[edge], -UNBOUNDED)
        # Without an edge, -UNBOUNDED less some hours would wrap around to a late stamp.
        until_ns = np.where(edge >= 0, edge_ns - self._attenuated_ns, -UNBOUNDED)
        last_rows = self._last(
            self._is_before & self._clean & (self._rows <= edge[index]) & (time_ns <= until_ns[index])
        )
        has = last_rows >= 0
        return np.where(has, time_ns[last_rows], -UNBOUNDED), np.where(has, edge_ns, -UNBOUNDED), has

    def stop_bounds(self) -> tuple[Stamps, Rows]:
        """Return the stamp of the anchor after the new readings, and which series have one."""
        index, time_ns = self._readings.index, self._readings.time_ns
        spike = self._first(self._is_after & self._single)
        sure = self._is_after & self._level & (self._rows > spike[index])
        edge = self._first(self._is_different(sure, nearest=self._first(sure), backward=False))
        step = self._first(self._is_after & self._clean & (self._rows >= edge[index]))
        none = len(time_ns)
        from_ns = np.where(step < none, np.r_[time_ns, 0][step] + self._attenuated_ns, UNBOUNDED)
        first_rows = self._first(
            self._is_after & self._clean & (self._rows > step[index]) & (time_ns >= from_ns[index])
        )
        return np.where(first_rows < none, np.r_[time_ns, UNBOUNDED][first_rows], UNBOUNDED), first_rows < none

    def shorten(
        self, intervals: AffectedIntervals, replaced: Rows, places: Places, *, begins: bool, ends: bool
    ) -> AffectedIntervals:
        """Shorten the intervals of broken sensors, which may have no anchor for days.

        A reading that is bad by itself affects only its own flag. A reading that continues a flat line with the worst
        flag gets the same flag.
        """
        # With a gap flag, even a bad reading changes the flag of the next one.
        if self._tests.gap and self._tests.gap.flag != "none":
            return intervals
        readings, touched = self._readings, self._touched
        rows = np.flatnonzero(touched)
        single = VariableTests(gross_range=self._tests.gross_range, climatology=self._tests.climatology)
        bad = np.zeros(len(readings), np.bool_)
        bad[rows] = judge(readings.take_rows(rows), single, places, {}).tests > 0
        inside = (readings.flag != MISSING) & ~touched & ~self._is_before & ~self._is_after
        known = ~self._has_rows(inside | replaced)
        if self._tests.gap and not begins:
            # The reading before, good or bad, decides whether there was a pause.
            known &= self._has_rows(self._is_before) | ~self._has_rows(touched)
        alone = known & ~self._has_rows(touched & ~bad)
        stuck = known & ends & ~alone & self._stuck(bad)
        short = alone | stuck
        bounds = {
            "first_ns": np.where(stuck, UNBOUNDED, self._earliest),
            "after_ns": np.minimum(self._earliest, UNBOUNDED - 1) - 1,
            "until_ns": np.maximum(self._latest, 1 - UNBOUNDED) + 1,
            "last_ns": self._latest,
        }
        bounds = {name: np.where(short, bound, getattr(intervals, name)) for name, bound in bounds.items()}
        return replace(intervals, is_bounded=intervals.is_bounded | short, stuck=stuck, **bounds)

    def _stuck(self, bad: Rows) -> Rows:
        """Return the series in which new readings continue a flat line that already has the worst flag."""
        flat, readings, index = self._tests.flat_line, self._readings, self._readings.index
        if not flat or flat.tolerance > 0.0:
            return np.zeros(self._count, np.bool_)
        nearest = self._last(self._sure)
        rows = np.flatnonzero((nearest[index] >= 0) & (self._rows >= nearest[index]) & (readings.flag != MISSING))
        was = (readings.flag[rows] == flat.worst_flag) & (readings.tests_or_none_set()[rows] == FLAT_BIT)
        goes_on = (self._touched[rows] & ~bad[rows]) | (was & ~self._touched[rows])
        goes_on &= readings.value[rows] == readings.value[nearest[index[rows]]]
        pause = np.diff(readings.time_ns[rows]) > self._joined_ns[index[rows[1:]]]
        goes_on[1:] &= ~pause | (index[rows[1:]] != index[rows[:-1]])
        ended = np.zeros(len(readings), np.bool_)
        ended[rows[~goes_on]] = True
        return (nearest >= 0) & ~self._has_rows(ended | self._is_after)

    def _is_different(self, sure: Rows, *, nearest: NDArray[np.intp], backward: bool) -> Rows:
        """Return which sure readings no flat line can join with the nearest ones."""
        flat = self._tests.flat_line
        if not flat:
            return sure
        index, time_ns, value = self._readings.index, self._readings.time_ns, self._readings.value
        rows = np.flatnonzero(sure)
        is_different = np.zeros(len(value), np.bool_)
        is_different[rows] = np.abs(value[rows] - value[nearest[index[rows]]]) > flat.tolerance
        pause = np.diff(time_ns[rows]) > self._joined_ns[index[rows[1:]]]
        pause &= index[rows[1:]] == index[rows[:-1]]
        is_different[(rows[:-1] if backward else rows[1:])[pause]] = True
        return is_different

    def _is_uncounted(
        self, nearest: NDArray[np.intp], open_: Rows, flat: FlatLine, places: Places, has_stop: Rows
    ) -> Rows:
        """Return the series whose flat line is exempt from the nearest reading on, shape (series,).

        New readings there do not lengthen it.
        """
        # Exemptions by other variables are ignored, because readings of those may arrive later.
        alone = tuple(exemption for exemption in flat.exempt if exemption.of in (VALUE, SUN))
        readings = self._readings
        line = Line(readings.index, readings.time_ns, readings.value)
        if flat.tolerance == 0.0:
            by_value = Exemptions(
                line, tuple(exemption for exemption in alone if exemption.of == VALUE), readings, places, {}
            )
            held = np.zeros(self._count, np.bool_)
            chosen = np.flatnonzero(open_)
            held[chosen] = by_value(nearest[chosen])
        else:
            held = np.zeros(self._count, np.bool_)
        candidates = open_ & ~held & has_stop
        rows = np.flatnonzero(
            candidates[readings.index] & (self._rows >= nearest[readings.index]) & (readings.flag != MISSING)
        )
        counts = np.zeros(self._count, np.bool_)
        counts[readings.index[rows[~Exemptions(line, alone, readings, places, {})(rows)]]] = True
        uncounted: Rows = held | (candidates & ~counts)
        return uncounted

    def _has_rows(self, rows: Rows) -> Rows:
        """Return which series have one of the rows, shape (series,)."""
        series_mask = np.zeros(self._count, np.bool_)
        series_mask[self._readings.index[rows]] = True
        return series_mask

    def _last(self, rows: Rows) -> NDArray[np.intp]:
        """Return the last of the rows in each series, -1 if none, shape (series,)."""
        last_rows = np.full(self._count, -1, np.intp)
        chosen = np.flatnonzero(rows)
        np.maximum.at(last_rows, self._readings.index[chosen], chosen)
        return last_rows

    def _first(self, rows: Rows) -> NDArray[np.intp]:
        """Return the first of the rows in each series, n if none, shape (series,)."""
        first_rows = np.full(self._count, len(self._rows), np.intp)
        chosen = np.flatnonzero(rows)
        np.minimum.at(first_rows, self._readings.index[chosen], chosen)
        return first_rows
