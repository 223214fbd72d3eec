"""Judging a few readings that came, a minute of a stream, by what lies near them: as if all had been judged.

Of each series with new readings as much is read as `stretches` says that they can concern: first a short time for all,
then more for the series that need it. The tests by neighbours are repeated in the cells of time in which readings that
they look at came or went, and there on all series. Everything else keeps the flags that it has.
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

_INTERVALS: Final = 32
"""Intervals before and after what came that are read at first: enough where values change."""
_TIMES: Final = 8
"""How many times as far is looked where that was too short: a chunk of 2,048 slices is read as a whole anyway."""
_FURTHEST: Final = 2
"""How many reaches away is looked at most."""
_MOST_REACHES: Final = 2
"""What spans more of the reach of the tests is judged with all around it: that is little then."""

Rows = NDArray[np.bool_]


@dataclass(frozen=True, eq=False)
class FlaggingContext:
    """What came, among what the archive has around it, judged."""

    old: Readings
    """What the archive has, ordered by series, then time."""
    context: Readings
    """Both together, with the flags that the archive has, n readings."""
    masks: MergeMasks
    flag_result: FlagResult
    """Flags of the whole context, shape (n,)."""


@dataclass(frozen=True, eq=False)
class IncrementalFlagger:
    """What is judged, and with what."""

    writer: "Writer | MemorylessReader"
    variable: str
    tests: VariableTests
    places: Callable[[tuple[Series, ...]], Places]
    companions: Callable[[Window, Collection[str] | None], Mapping[str, Readings]]
    """Gives readings of other variables within a window, at least those of some stations; None: of all."""

    def judge(self, new: Readings, *, interval_s: float, reach_ns: int) -> FlaggingContext | None:
        """Return new readings and those around them with their flags; None: only a look at all within reach can tell.

        That is where the readings span more than their surroundings, where a flag does not tell whether a reading was
        judged, because no test judges every reading, or where the archive holds some that were not.

        Parameters
        ----------
        new
            Ordered by series, then time, at least one.
        interval_s
            Time between readings of a series [s].
        reach_ns
            How far from a reading those lie that its flags depend on [ns].
        """
        tests, cell_ns = self.tests, self.tests.cell_ns
        span = Window(int(new.time_ns.min()), int(new.time_ns.max()) + 1)
        extent = self.writer.extent(self.variable)
        if extent is None or (tests.gross_range is None and tests.flat_line is None):
            return None
        if span.stop_ns - span.start_ns > _MOST_REACHES * reach_ns or cell_ns > reach_ns:
            return None
        windows = _windows(span, round(_INTERVALS * interval_s * SECOND_NS), _FURTHEST * reach_ns, cell_ns)
        # Without tests by neighbours nobody asks for the series to which nothing came.
        new_series = None if cell_ns else [new.series[n] for n in np.unique(new.index).tolist()]
        near = self.writer.read(self.variable, window=windows[0], series=new_series)
        if _has_unjudged(near):
            return None
        concerned = self._find_affected_series(new, near, windows, extent, reach_ns)
        return None if concerned is None else self._judge_window(new, near, windows[0], concerned)

    def judge_all(self, new: Readings, *, reach_ns: int) -> FlaggingContext:
        """Return new readings and all within their reach with their flags, whatever flags the archive has."""
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
        """Return what the archive has of the series with new readings, as far as these may concern it."""
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
        """Return the outcome of the tests along series, and then of those by neighbours."""
        cell_ns, old = self.tests.cell_ns, concerned.old()
        context, masks = merge_stored_and_new(old, new)
        alone, is_reflagged = self._judge_alone(context, concerned)
        if not cell_ns:
            return FlaggingContext(old, context, masks, alone)
        changed = _is_usable(context, alone.tests) != (_is_usable(context, context.tests_or_none_set()) & ~masks.is_new)
        cells = np.unique(context.time_ns[masks.replaces | changed] // cell_ns)
        hull = Window(int(cells[0]) * cell_ns, (int(cells[-1]) + 1) * cell_ns) if len(cells) else window
        if hull.start_ns < window.start_ns or hull.stop_ns > window.stop_ns:
            near = self.writer.read(self.variable, window=hull)
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
        """Return flags by the tests along series where these tell them anew, and where that is."""
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
        """Return flags after the tests by neighbours, of some readings anew, of others as the archive has them."""
        is_usable = _is_usable(context, judged.tests)
        before = context.tests_or_none_set() & BY_NEIGHBOURS
        # What the tests along the series said is known of those too that neighbours were found against.
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
    """What the archive has of the series to which something came, and what of it is judged and told."""

    def __init__(self, series: tuple[Series, ...]) -> None:
        self.series = series
        self.known = AffectedIntervals.none(len(series))
        self._parts = [Readings.empty(series)]
        self._start_ns, self._stop_ns = np.full(len(series), UNBOUNDED), np.full(len(series), -UNBOUNDED)

    def add(self, old: Readings, listed: NDArray[np.int32], window: Window, known: AffectedIntervals) -> None:
        """Take those series of the listed ones of which enough is known."""
        done = listed[known.is_bounded[listed]]
        self.known = self.known.update_series(known, done)
        self._start_ns[done], self._stop_ns[done] = window.start_ns, window.stop_ns
        self._parts.append(replace(old.take_rows(np.isin(old.index, done)), series=self.series))

    def old(self) -> Readings:
        """Return what the archive has, ordered by series, then time."""
        return concatenate(self._parts).sort_rows()

    def holds(self, readings: Readings) -> Rows:
        """Return which readings lie where all that there is of their series was taken, shape (n,)."""
        index, time_ns = readings.index, readings.time_ns
        held: Rows = (time_ns >= self._start_ns[index]) & (time_ns < self._stop_ns[index])
        return held


def _windows(span: Window, short_ns: int, most_ns: int, cell_ns: int) -> list[Window]:
    """Return ever wider windows around a span, of whole cells; the last reaches as far as is ever looked."""
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
    """Return which readings no test along their series found anything against, and they came with nothing bad."""
    is_usable: Rows = (readings.flag != MISSING) & ((tests & SERIES_TEST_BITS) == 0)
    return is_usable


def _has_unjudged(stored: Readings) -> bool:
    """Return whether there are flags among those of the archive that no test set."""
    none = stored.tests_or_none_set() == 0
    unjudged = (stored.flag == NOT_EVALUATED) | (none & ((stored.flag == SUSPECT) | (stored.flag == FAIL)))
    return bool(unjudged.any())
