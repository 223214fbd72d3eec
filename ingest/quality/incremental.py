"""Incremental flagging of a few new readings, such as a minute of a stream.

The flags are the same as if all readings had been flagged. For each series with new readings, only the affected
interval is read (`find_affected_intervals`): first a short time for all, then more for the series that need it. The
neighbour tests are repeated for all series in the time cells where their input changed. All other flags are kept.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, fields, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hypergrid.archive import Writer
from hypergrid.core.flags import FAIL, GOOD, MISSING, NOT_EVALUATED, SUSPECT
from hypergrid.core.readings import Readings, Series, concatenate, equal_values, renumber_series, share_series
from hypergrid.core.times import SECOND_NS, Window
from ingest.deployment.quality_settings import SUN, VALUE, FlatLine, VariableTests
from ingest.quality.block_tests import MemorylessReader
from ingest.quality.run_tests import (
    BY_NEIGHBOURS,
    GAP_BIT,
    OLDEST_HOURS,
    SERIES_TEST_BITS,
    Exemptions,
    FlagResult,
    judge,
    run_neighbour_tests,
)
from ingest.quality.spatial import Places
from ingest.quality.temporal import HOUR_NS, Line, Sampling, bits_of

# Enough if values change.
_INTERVALS: Final = 32
"""Number of intervals before and after the new readings that are read first."""
_FURTHEST: Final = 2
"""Maximum distance that is read [reaches]."""
# For longer spans, flagging all surroundings adds little.
_MOST_REACHES: Final = 2
"""Maximum span of new readings for incremental flagging [reaches]."""
UNBOUNDED: Final = np.iinfo(np.int64).max
"""Later than any stamp; `-UNBOUNDED` is earlier than any [ns]."""
_SINGLE: Final = bits_of("given_suspect", "given_fail", "gross_range", "climatology")
FLAT_BIT: Final = bits_of("flat_line")
_UP_TO_SPIKE: Final = _SINGLE | bits_of("spike")

Rows = NDArray[np.bool_]
Stamps = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class MergeMasks:
    """Origin of the rows of a merged context."""

    is_new: NDArray[np.bool_]
    """Whether the row's stamp or value is not in the archive, shape (context,)."""
    replaces: NDArray[np.bool_]
    """Whether it replaces a stored reading with another value, shape (context,)."""
    row: NDArray[np.intp]
    """Row of the context of each new reading, shape (new,)."""
    repeats: NDArray[np.intp]
    """Index of the stored reading with the same series, stamp and value, else -1, shape (new,)."""


def merge_stored_and_new(old: Readings, new: Readings) -> tuple[Readings, MergeMasks]:
    """Merge stored and new readings by series, then time; the last of equal stamps wins.

    Both must be ordered, `old` without equal stamps. Rows that `old` has with the same value keep its flags.
    """
    stored_readings, moved = share_series(old, new)
    if not len(old) and moved.series[: len(new.series)] == new.series:
        both, order = moved, None
    else:
        joined = concatenate([stored_readings, moved])
        # A stable sort: of equal stamps, the stored reading comes first, and the latest new one last.
        order = np.lexsort((joined.time_ns, joined.index))
        both = joined.take_rows(order)
    same = both.mark_repeats()
    # Without stored readings and repeats there is nothing to merge.
    if order is None and not same.any():
        rows = np.arange(len(new))
        return both, MergeMasks(np.ones(len(new), np.bool_), np.zeros(len(new), np.bool_), rows, np.full(len(new), -1))
    order = np.arange(len(both)) if order is None else order
    starts = np.r_[True, ~same] if len(both) else np.empty(0, np.bool_)
    group = np.cumsum(starts) - 1
    last = np.r_[np.flatnonzero(starts)[1:] - 1, len(both) - 1] if len(both) else np.empty(0, np.intp)
    context = both.take_rows(last)
    # If a group has a stored reading, it is the first one.
    head = order[np.flatnonzero(starts)]
    stored = np.where(head < len(old), head, -1)
    is_stored = stored >= 0
    keeps = np.zeros(len(context), np.bool_)
    keeps[is_stored] = equal_values(old.value[stored[is_stored]], context.value[is_stored])
    if keeps.any():
        flag, bits = context.flag.copy(), context.tests_or_none_set().copy()
        flag[keeps] = old.flag[stored[keeps]]
        bits[keeps] = old.tests_or_none_set()[stored[keeps]]
        context = replace(context, flag=flag, tests=bits)
    row = np.empty(len(both), np.intp)
    row[order] = group
    new_rows = row[len(old) :]
    repeats = stored[new_rows]
    repeats[repeats >= 0] = np.where(
        equal_values(old.value[repeats[repeats >= 0]], new.value[repeats >= 0]), repeats[repeats >= 0], -1
    )
    return context, MergeMasks(~keeps, is_stored & ~keeps, new_rows, repeats)


@dataclass(frozen=True, eq=False)
class FlaggingContext:
    """New readings merged with their surroundings in the archive, with flags."""

    old: Readings
    """Stored readings, ordered by series, then time."""
    context: Readings
    """Stored and new readings merged, with the archive's flags, n readings."""
    masks: MergeMasks
    flag_result: FlagResult
    """Flags of the whole context, shape (n,)."""


@dataclass(frozen=True, eq=False)
class IncrementalFlagger:
    """Flagger of one variable that reads only what new readings can affect."""

    writer: "Writer | MemorylessReader"
    variable: str
    tests: VariableTests
    places: Callable[[tuple[Series, ...]], Places]
    companions: Callable[[Window, Collection[str] | None], Mapping[str, Readings]]
    """Reads other variables within a window, at least for the given stations; None: for all."""

    def judge(self, new: Readings, *, interval_s: float, reach_ns: int) -> FlaggingContext | None:
        """Flag new readings and their surroundings; None if all readings within reach are needed.

        That is the case if the readings span more than their surroundings, if a flag does not show whether a reading
        was tested because no test evaluates every reading, or if the archive holds untested readings.

        Parameters
        ----------
        new
            Ordered by series, then time, at least one.
        interval_s
            Time between readings of a series [s].
        reach_ns
            How far away the readings can be that a flag depends on [ns].
        """
        tests, cell_ns = self.tests, self.tests.cell_ns
        span = Window(int(new.time_ns.min()), int(new.time_ns.max()) + 1)
        extent = self.writer.extent(self.variable)
        if extent is None or (tests.gross_range is None and tests.flat_line is None):
            return None
        if span.stop_ns - span.start_ns > _MOST_REACHES * reach_ns or cell_ns > reach_ns:
            return None
        windows = _windows(span, round(_INTERVALS * interval_s * SECOND_NS), _FURTHEST * reach_ns, cell_ns)
        # Without neighbour tests, only the series with new readings are needed.
        new_series = None if cell_ns else [new.series[n] for n in np.unique(new.index).tolist()]
        near = self.writer.read(self.variable, window=windows[0], series=new_series)
        if _has_unjudged(near):
            return None
        concerned = self._find_affected_series(new, near, windows, extent, reach_ns)
        return None if concerned is None else self._judge_window(new, near, windows[0], concerned)

    def judge_all(self, new: Readings, *, reach_ns: int) -> FlaggingContext:
        """Flag new readings and all within their reach, regardless of the flags in the archive."""
        first, last = int(new.time_ns.min()), int(new.time_ns.max())
        window = Window(first - _FURTHEST * reach_ns, last + _FURTHEST * reach_ns + 1)
        old = self.writer.read(self.variable, window=window)
        context, masks = merge_stored_and_new(old, new)
        judged = judge(context, self.tests, self.places(context.series), self.companions(window, None))
        distant_rows = np.flatnonzero((context.time_ns < first - reach_ns) | (context.time_ns > last + reach_ns))
        if len(distant_rows):
            judged.flag[distant_rows], judged.tests[distant_rows] = (
                context.flag[distant_rows],
                context.tests_or_none_set()[distant_rows],
            )
        return FlaggingContext(old, context, masks, judged)

    def _find_affected_series(
        self, new: Readings, near: Readings, windows: list[Window], extent: Window, reach_ns: int
    ) -> "_AffectedSeries | None":
        """Return the stored readings of the series with new readings, as far as they are affected."""
        series = merge_stored_and_new(near, new)[0].series
        concerned, places = _AffectedSeries(series), self.places(series)
        open_ = renumber_series(new, series).sort_rows()
        for window in windows:
            listed = np.unique(open_.index)
            old = near.take_rows(np.isin(near.index, listed))
            if window is not windows[0]:
                old = self.writer.read(self.variable, window=window, series=[series[n] for n in listed.tolist()])
                if _has_unjudged(old):
                    return None
            context, masks = merge_stored_and_new(old, open_)
            begins, ends = window.start_ns <= extent.start_ns, window.stop_ns >= extent.stop_ns
            intervals = find_affected_intervals(context, masks, self.tests, places, begins=begins, ends=ends)
            if window is windows[-1]:
                span = int(new.time_ns.min()) - reach_ns, int(new.time_ns.max()) + reach_ns
                intervals = intervals.fill_unbounded(*span)
            concerned.add(old, listed, window, intervals)
            open_ = open_.take_rows(~intervals.is_bounded[open_.index])
            if not len(open_):
                break
        return concerned

    def _judge_window(
        self, new: Readings, near: Readings, window: Window, concerned: "_AffectedSeries"
    ) -> FlaggingContext | None:
        """Run the tests along series, then the neighbour tests."""
        cell_ns, old = self.tests.cell_ns, concerned.old()
        context, masks = merge_stored_and_new(old, new)
        alone, is_reflagged = self._judge_alone(context, concerned)
        if not cell_ns:
            return FlaggingContext(old, context, masks, alone)
        # The input of neighbour tests changes where a reading becomes usable or unusable, or is replaced.
        changed = _is_usable(context, alone.tests) != (_is_usable(context, context.tests_or_none_set()) & ~masks.is_new)
        cells = np.unique(context.time_ns[masks.replaces | changed] // cell_ns)
        hull = Window(int(cells[0]) * cell_ns, (int(cells[-1]) + 1) * cell_ns) if len(cells) else window
        if hull.start_ns < window.start_ns or hull.stop_ns > window.stop_ns:
            near = self.writer.read(self.variable, window=hull)
            # Cells between the affected ones are not needed.
            near = near.take_rows(np.isin(near.time_ns // cell_ns, cells))
            if _has_unjudged(near):
                return None
        beside = replace(near.take_rows(~concerned.holds(near)), series=concerned.series)
        old = concatenate([old, beside]).sort_rows()
        context, masks = merge_stored_and_new(old, new)
        rows = np.flatnonzero(concerned.holds(context))[is_reflagged]
        judged = FlagResult(context.flag.copy(), context.tests_or_none_set().copy())
        judged.flag[rows], judged.tests[rows] = alone.flag[is_reflagged], alone.tests[is_reflagged]
        again = np.isin(context.time_ns // cell_ns, cells)
        return FlaggingContext(old, context, masks, self._judge_neighbours(context, judged, again))

    def _judge_alone(self, context: Readings, concerned: "_AffectedSeries") -> tuple[FlagResult, Rows]:
        """Return flags updated by the tests along series in the affected intervals, and the mask of updates."""
        rows = np.flatnonzero(concerned.known.rows_to_test(context))
        given = context.take_rows(rows)
        others: Mapping[str, Readings] = {}
        if len(given) and self.tests.companions:
            window = Window(int(given.time_ns.min()) - round(OLDEST_HOURS * HOUR_NS), int(given.time_ns.max()) + 1)
            others = self.companions(window, {context.series[n].station for n in np.unique(given.index).tolist()})
        flag_result = judge(given, self.tests.series_tests(), self.places(context.series), others)
        is_reflagged = concerned.known.rows_to_flag(context)
        flag, tests = context.flag.copy(), context.tests_or_none_set().copy()
        is_selected = is_reflagged[rows]
        flag[rows[is_selected]], tests[rows[is_selected]] = (
            flag_result.flag[is_selected],
            flag_result.tests[is_selected],
        )
        stuck = is_reflagged & concerned.known.stuck[context.index] & (context.flag != MISSING)
        if self.tests.flat_line:
            flag[stuck], tests[stuck] = self.tests.flat_line.worst_flag, FLAT_BIT
        return FlagResult(flag, tests), is_reflagged

    def _judge_neighbours(self, context: Readings, judged: FlagResult, again: Rows) -> FlagResult:
        """Return flags after the neighbour tests, repeated for some readings; the others keep the archive's."""
        is_usable = _is_usable(context, judged.tests)
        before = context.tests_or_none_set() & BY_NEIGHBOURS
        # Readings that failed a neighbour test had passed the tests along their series, except for gaps.
        late = FAIL if self.tests.gap and self.tests.gap.flag == "fail" else SUSPECT
        beside = np.where(judged.tests & GAP_BIT, late, GOOD)
        flag = np.where(judged.tests & BY_NEIGHBOURS, beside, judged.flag).astype(np.uint8)
        rows = np.flatnonzero(again & is_usable)
        line = Line(context.index[rows], context.time_ns[rows], context.value[rows])
        by_neighbours = np.where(is_usable, before, np.uint16(0))
        by_neighbours[rows] = run_neighbour_tests(line, self.tests, self.places(context.series)).tests
        flag[by_neighbours > 0] = np.maximum(flag[by_neighbours > 0], SUSPECT)
        return FlagResult(flag, (judged.tests & ~BY_NEIGHBOURS) | by_neighbours)


class _AffectedSeries:
    """Stored readings of the series with new readings, and their affected intervals."""

    def __init__(self, series: tuple[Series, ...]) -> None:
        self.series = series
        self.known = AffectedIntervals.none(len(series))
        self._parts = [Readings.empty(series)]
        self._start_ns, self._stop_ns = np.full(len(series), UNBOUNDED), np.full(len(series), -UNBOUNDED)

    def add(self, old: Readings, listed: NDArray[np.int32], window: Window, known: "AffectedIntervals") -> None:
        """Add the listed series whose interval is determined."""
        done = listed[known.is_bounded[listed]]
        self.known = self.known.update_series(known, done)
        self._start_ns[done], self._stop_ns[done] = window.start_ns, window.stop_ns
        self._parts.append(replace(old.take_rows(np.isin(old.index, done)), series=self.series))

    def old(self) -> Readings:
        """Return the stored readings, ordered by series, then time."""
        return concatenate(self._parts).sort_rows()

    def holds(self, readings: Readings) -> Rows:
        """Return which readings lie in the window that was read of their series, shape (n,)."""
        index, time_ns = readings.index, readings.time_ns
        return (time_ns >= self._start_ns[index]) & (time_ns < self._stop_ns[index])


def _windows(span: Window, short_ns: int, most_ns: int, cell_ns: int) -> list[Window]:
    """Return growing windows around a span, aligned to cells; the last has the maximum reach."""
    windows = []
    length_ns = min(short_ns, most_ns)
    while True:
        start_ns, stop_ns = span.start_ns - length_ns, span.stop_ns + length_ns
        if cell_ns:
            start_ns, stop_ns = start_ns // cell_ns * cell_ns, -(-stop_ns // cell_ns) * cell_ns
        windows.append(Window(start_ns, stop_ns))
        if length_ns == most_ns:
            return windows
        # A chunk of 2,048 slices is read as a whole anyway.
        length_ns = min(8 * length_ns, most_ns)


def _is_usable(readings: Readings, tests: NDArray[np.uint16]) -> Rows:
    return (readings.flag != MISSING) & ((tests & SERIES_TEST_BITS) == 0)


def _has_unjudged(stored: Readings) -> bool:
    """Return whether the archive has readings with a flag that no test set."""
    none = stored.tests_or_none_set() == 0
    unjudged = (stored.flag == NOT_EVALUATED) | (none & ((stored.flag == SUSPECT) | (stored.flag == FAIL)))
    return bool(unjudged.any())


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
        return self.is_bounded[index] & (time_ns >= self.first_ns[index]) & (time_ns <= self.last_ns[index])

    def rows_to_flag(self, readings: Readings) -> Rows:
        """Return which readings get new flags from the tests, shape (n,)."""
        index, time_ns = readings.index, readings.time_ns
        return self.is_bounded[index] & (time_ns > self.after_ns[index]) & (time_ns < self.until_ns[index])


def find_affected_intervals(
    readings: Readings, masks: MergeMasks, tests: VariableTests, places: Places, *, begins: bool, ends: bool
) -> AffectedIntervals:
    """Find how much of each series must be tested again because of new or replaced readings. Pure.

    The tests along a series drop readings one after the other, so that readings far apart may affect each other. A
    stored reading is an anchor if no such test flagged it and its neighbours and flat line are unchanged: the tests
    pass it again, and starting from it they give later readings the same flags as they would with all earlier readings.
    Why an anchor holds:

    * New values and stamps change the single-value tests only of themselves.
    * A spike depends on the neighbours on both sides: the reading next to a new one may become a spike, or cease to be
      one.
    * A flat line (`flat_line`) is evaluated as a whole. It extends from the new readings to one that it cannot contain:
      a reading whose value differs by more than the tolerance, one separated by a pause, or as far as time is exempt.
    * A step (`rate_of_change`) depends on the previous reading: a second anchor is needed after the new readings.
    * An attenuated signal (`attenuated_signal`) depends on the hours before.

    Parameters
    ----------
    readings
        Ordered by series, then time, without omitting any that the archive has in between; untouched readings have the
        flags and tests that these parameters gave them.
    masks
        Which of them are new, or replace another value.
    begins, ends
        Whether the archive has nothing before the first, or after the last of the readings.
    """
    if not len(readings):
        return AffectedIntervals.none(len(readings.series)).fill_unbounded(UNBOUNDED, UNBOUNDED)
    touched = masks.is_new & ((readings.flag != MISSING) | masks.replaces)
    scan = _IntervalScan(readings, touched, tests)
    until_ns, ended = scan.stop_bounds()
    ended |= ends
    first_ns, after_ns, has_start = scan.start_bounds(places, ended)
    intervals = AffectedIntervals(
        (has_start | begins) & ended, first_ns, after_ns, until_ns, until_ns, np.zeros_like(has_start)
    )
    return scan.shorten(intervals, masks.replaces, places, begins=begins, ends=ends)


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
        held = np.zeros(self._count, np.bool_)
        if flat.tolerance == 0.0:
            by_value = Exemptions(
                line, tuple(exemption for exemption in alone if exemption.of == VALUE), readings, places, {}
            )
            chosen = np.flatnonzero(open_)
            held[chosen] = by_value(nearest[chosen])
        candidates = open_ & ~held & has_stop
        rows = np.flatnonzero(
            candidates[readings.index] & (self._rows >= nearest[readings.index]) & (readings.flag != MISSING)
        )
        counts = np.zeros(self._count, np.bool_)
        counts[readings.index[rows[~Exemptions(line, alone, readings, places, {})(rows)]]] = True
        return held | (candidates & ~counts)

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
