"""Incremental flagging of a few new readings, such as a minute of a stream.

The flags are the same as if all readings had been flagged. For each series with new readings, only the affected
interval is read (`affected_intervals`): first a short time for all, then more for the series that need it. The
neighbour tests are repeated for all series in the time cells where their input changed. All other flags are kept.
"""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hypergrid.archive import Writer
from hypergrid.core.flags import FAIL, GOOD, MISSING, NOT_EVALUATED, SUSPECT
from hypergrid.core.readings import Readings, Series, concatenate
from hypergrid.core.times import SECOND_NS, Window
from ingest.deployment.quality_settings import VariableTests
from ingest.quality.affected_intervals import FLAT_BIT, UNBOUNDED, AffectedIntervals, find_affected_intervals
from ingest.quality.block_tests import MemorylessReader
from ingest.quality.merge_new import MergeMasks, merge_stored_and_new
from ingest.quality.run_tests import (
    BY_NEIGHBOURS,
    GAP_BIT,
    OLDEST_HOURS,
    SERIES_TEST_BITS,
    FlagResult,
    judge,
    run_neighbour_tests,
)
from ingest.quality.spatial import Places
from ingest.quality.temporal import HOUR_NS, Line

# Enough if values change.
_INTERVALS: Final = 32
"""Number of intervals before and after the new readings that are read first."""
# A chunk of 2,048 slices is read as a whole anyway.
_TIMES: Final = 8
"""Factor by which the window grows if it was too short."""
_FURTHEST: Final = 2
"""Maximum distance that is read [reaches]."""
# For longer spans, flagging all surroundings adds little.
_MOST_REACHES: Final = 2
"""Maximum span of new readings for incremental flagging [reaches]."""

Rows = NDArray[np.bool_]


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
        number = {sensor_series: index for index, sensor_series in enumerate(series)}
        table = np.array([number[sensor_series] for sensor_series in new.series], np.int32)
        open_ = new
        for window in windows:
            listed = np.unique(open_.index)
            old = near.take_rows(np.isin(near.index, table[listed]))
            if window is not windows[0]:
                old = self.writer.read(self.variable, window=window, series=[new.series[n] for n in listed.tolist()])
                if _has_unjudged(old):
                    return None
            context, masks = merge_stored_and_new(old, open_)
            touched = masks.is_new & ((context.flag != MISSING) | masks.replaces)
            begins, ends = window.start_ns <= extent.start_ns, window.stop_ns >= extent.stop_ns
            intervals = find_affected_intervals(
                context, touched, masks.replaces, self.tests, places, begins=begins, ends=ends
            )
            if window is windows[-1]:
                span = int(new.time_ns.min()) - reach_ns, int(new.time_ns.max()) + reach_ns
                intervals = intervals.fill_unbounded(*span)
            concerned.add(old, table[listed], window, intervals)
            open_ = open_.take_rows(~intervals.is_bounded[table[open_.index]])
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

    def add(self, old: Readings, listed: NDArray[np.int32], window: Window, known: AffectedIntervals) -> None:
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
        held: Rows = (time_ns >= self._start_ns[index]) & (time_ns < self._stop_ns[index])
        return held


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
        length_ns = min(_TIMES * length_ns, most_ns)


def _is_usable(readings: Readings, tests: NDArray[np.uint16]) -> Rows:
    """Return which readings have a value and passed all tests along their series."""
    is_usable: Rows = (readings.flag != MISSING) & ((tests & SERIES_TEST_BITS) == 0)
    return is_usable


def _has_unjudged(stored: Readings) -> bool:
    """Return whether the archive has readings with a flag that no test set."""
    none = stored.tests_or_none_set() == 0
    unjudged = (stored.flag == NOT_EVALUATED) | (none & ((stored.flag == SUSPECT) | (stored.flag == FAIL)))
    return bool(unjudged.any())
