"""Quality on the way into an archive: readings are judged with what the archive has around them, and then stored.

A flag depends on neighbours in time, and in space on all that report at the time. So what comes is judged together with
the readings that the archive has from `2 reach` before its first stamp to `2 reach` after its last one, `reach` being
how far the tests of the variable look; flags of the archive's readings within `reach` are given anew. So flags are the
same in whatever pieces the readings came, as far as each piece is sampled as often as the others.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

import numpy as np
from numpy.typing import NDArray

from hypergrid.flags import MISSING
from hypergrid.store import Archive, Conservation, Writer
from hypergrid.streams.elements import Position, Readings, Series, Station, concatenate
from hypergrid.times import SECOND_NS, Window
from hypergrid.units import Variable
from ingest.quality.declared import Quality
from ingest.quality.judge import judge
from ingest.quality.settings import VariableTests
from ingest.quality.spatial import Places, isolated
from ingest.quality.summary import GAPS, ISOLATED, Summary
from ingest.quality.temporal import Line, pauses
from ingest.quality.zone import RADIATION, ZoneGuard, ZoneSuspicion

_NOWHERE = Position(None, float("nan"), float("nan"), float("nan"))


@dataclass
class Inspector:
    """Judges the readings of a run, variable by variable, and sums up."""

    quality: Quality
    stations: Mapping[str, Station]
    slice_s: float
    summary: Summary = field(default_factory=Summary)
    guard: ZoneGuard = field(default_factory=ZoneGuard)
    revised: int = 0
    """Readings that were stored before and have another flag now."""

    def store(
        self, writer: Writer, variable: Variable, given: Readings, companion: Callable[[str], Readings | None]
    ) -> Conservation:
        """Judge and store readings of a variable, in any order.

        Parameters
        ----------
        companion
            Gives readings of another variable that come at the same time; None: none come.
        """
        tests = self.quality.tests(variable)
        if not len(given):
            return writer.readings(given)
        new = given.ordered()
        if not tests:
            self._sum_up(new)
            return writer.readings(new)
        reach_ns = self.reach_ns(tests, new)
        first, last = int(new.time_ns.min()), int(new.time_ns.max())
        around = Window(first - 2 * reach_ns, last + 2 * reach_ns + 1)
        old = writer.read(variable.name, window=around)
        context, came = together(old, new)
        others = {name: self._with_stored(writer, name, companion(name), around) for name in tests.companions}
        places = places_of(context.series, self.stations)
        judged = judge(context, tests, places, others)
        flags, bits = judged.flag, judged.tests
        # What is stored already with this value stays, so that it is told as a duplicate; its flag is given below.
        new = _with_flags(new, context, came, flags, bits, old)
        stored = writer.readings(new)
        if len(old):
            near = (context.time_ns >= first - reach_ns) & (context.time_ns <= last + reach_ns)
            changed = (
                near & ((context.flag != flags) | (context.tests_or_none_set() != bits)) & (context.flag != MISSING)
            )
            self.revised += writer.flags(replace(context, flag=flags, tests=bits).take(changed & ~came.is_new))
        self._sum_up(new)
        count_gaps(self.summary, context, tests, came.is_new)
        count_isolated(self.summary, context, tests, places, came.is_new)
        return stored

    def reach_ns(self, tests: VariableTests, readings: Readings) -> int:
        """Return how far from a reading those lie that its flags depend on [ns]."""
        return reach_ns(tests, readings, self.slice_s)

    def _with_stored(self, writer: Writer, name: str, new: Readings | None, around: Window) -> Readings:
        old = writer.read(name, window=around)
        return old if new is None or not len(new) else together(old, new.ordered())[0]

    def _sum_up(self, readings: Readings) -> None:
        self.summary.add(readings.series, readings.index, readings.flag, readings.tests_or_none_set())
        if self.quality.zone_guard and readings.series[0].variable == RADIATION:
            self.guard.add(readings)

    def suspicions(self) -> list[ZoneSuspicion]:
        """Return the stations whose clocks the radiation of this run says are hours off."""
        places = {name: station.position for name, station in self.stations.items()}
        return self.guard.suspicions({name: (p.lon, p.lat, p.elevation_m) for name, p in places.items()})


def count_gaps(summary: Summary, context: Readings, tests: VariableTests, wanted: NDArray[np.bool_]) -> None:
    """Count the pauses that end with a wanted reading, shape (context,); `context` is ordered by series, then time."""
    if tests.gap:
        present = np.flatnonzero(context.flag != MISSING)
        usable = context.take(present)
        before = pauses(Line(usable.index, usable.time_ns, usable.value), tests.gap.hours)
        summary.add_to(GAPS, usable.series, usable.index[before[wanted[present[before + 1]]]])


def count_isolated(
    summary: Summary, context: Readings, tests: VariableTests, places: Places, wanted: NDArray[np.bool_]
) -> None:
    """Count the wanted readings, shape (context,), of series that have too few neighbours for every test by them."""
    checks = [one for one in (tests.buddy_check, tests.spatial_consistency) if one]
    if checks:
        alone = np.logical_and.reduce(
            [isolated(places, radius_m=one.radius_km * 1000.0, neighbours=one.neighbours) for one in checks]
        )
        summary.add_to(ISOLATED, context.series, context.index[wanted & alone[context.index]])


def reach_ns(tests: VariableTests, readings: Readings, slice_s: float) -> int:
    """Return how far from a reading those lie that its flags depend on [ns]; these are ordered by series, then time."""
    steps = np.diff(readings.time_ns)[readings.index[1:] == readings.index[:-1]]
    usual_s = float(np.median(steps[steps > 0])) / SECOND_NS if (steps > 0).any() else 0.0
    interval_s = max(slice_s, usual_s, *(series.interval_s for series in readings.series))
    return round(tests.reach_s(interval_s) * SECOND_NS)


def judged_part(
    read: Callable[..., Readings], archive: Archive, variable: Variable, tests: VariableTests, part: Window
) -> tuple[Readings, Readings, NDArray[np.bool_]]:
    """Return the readings within a window and around it, the same with new flags, and which lie within it.

    Parameters
    ----------
    read
        Gives a variable's readings with the tests that set their flags: `Writer.read`, or the like.
    archive
        Tells the stations.
    """
    reach = round(tests.reach_s(archive.slice_s) * SECOND_NS)
    context = read(variable.name, window=widened(part, reach))
    # How far is only known of readings: what is sampled more rarely than slices are long looks further.
    needed = reach_ns(tests, context.take(_within(context, part)), archive.slice_s)
    if needed > reach:
        context = read(variable.name, window=widened(part, needed))
    around = widened(part, max(reach, needed))
    others = {name: read(name, window=around) for name in tests.companions}
    judged = judge(context, tests, places_of(context.series, archive.stations), others)
    return context, replace(context, flag=judged.flag, tests=judged.tests), _within(context, part)


def _within(readings: Readings, part: Window) -> NDArray[np.bool_]:
    inside: NDArray[np.bool_] = (readings.time_ns >= part.start_ns) & (readings.time_ns < part.stop_ns)
    return inside


def widened(part: Window, reach: int) -> Window:
    """Return the window that flags within another depend on: on neighbours, and on what their own flags depend on."""
    return Window(part.start_ns - 2 * reach, part.stop_ns + 2 * reach)


@dataclass(frozen=True, eq=False)
class Came:
    """Where the rows of a context came from."""

    is_new: NDArray[np.bool_]
    """Whether the row is a new reading, with a stamp or a value that the archive has not, shape (context,)."""
    row: NDArray[np.intp]
    """For each new reading given, its row of the context, shape (new,)."""
    repeats: NDArray[np.intp]
    """For each new reading given, the stored reading that has its series, stamp and value; -1: none, shape (new,)."""


def together(old: Readings, new: Readings) -> tuple[Readings, Came]:
    """Return stored and new readings as one, by series, then time; of those with one stamp the last.

    Both are ordered, `old` without two of one stamp. Flags of rows are those of `old` where it has them.
    """
    known = {series: number for number, series in enumerate(old.series)}
    series = (*old.series, *(one for one in dict.fromkeys(new.series) if one not in known))
    number = {one: place for place, one in enumerate(series)}
    table = np.array([number[one] for one in new.series] or [0], np.int32)
    moved = replace(new, series=series, index=table[new.index])
    if not len(old) and np.array_equal(table, np.arange(len(new.series))):
        both, order = moved, None
    else:
        joined = concatenate([replace(old, series=series), moved])
        order = np.lexsort((joined.time_ns, joined.index))
        both = joined.take(order)
    same = (both.index[1:] == both.index[:-1]) & (both.time_ns[1:] == both.time_ns[:-1])
    if order is None and not same.any():
        rows = np.arange(len(new))
        return both, Came(np.ones(len(new), np.bool_), rows, np.full(len(new), -1))
    order = np.arange(len(both)) if order is None else order
    starts = np.r_[True, ~same] if len(both) else np.empty(0, np.bool_)
    group = np.cumsum(starts) - 1
    last = np.r_[np.flatnonzero(starts)[1:] - 1, len(both) - 1] if len(both) else np.empty(0, np.intp)
    context = both.take(last)
    # The stored reading of a group, where there is one, is its first.
    head = order[np.flatnonzero(starts)]
    stored = np.where(head < len(old), head, -1)
    is_stored = stored >= 0
    keeps = np.zeros(len(context), np.bool_)
    keeps[is_stored] = _equal(old.value[stored[is_stored]], context.value[is_stored])
    if keeps.any():
        flag, bits = context.flag.copy(), context.tests_or_none_set().copy()
        flag[keeps] = old.flag[stored[keeps]]
        bits[keeps] = old.tests_or_none_set()[stored[keeps]]
        context = replace(context, flag=flag, tests=bits)
    row = np.empty(len(both), np.intp)
    row[order] = group
    mine = row[len(old) :]
    repeats = stored[mine]
    repeats[repeats >= 0] = np.where(
        _equal(old.value[repeats[repeats >= 0]], new.value[repeats >= 0]), repeats[repeats >= 0], -1
    )
    return context, Came(~keeps, mine, repeats)


def _equal(one: NDArray[np.float64], other: NDArray[np.float64]) -> NDArray[np.bool_]:
    equal: NDArray[np.bool_] = (one == other) | (np.isnan(one) & np.isnan(other))
    return equal


def _with_flags(
    new: Readings,
    context: Readings,
    came: Came,
    flags: NDArray[np.uint8],
    bits: NDArray[np.uint16],
    old: Readings,
) -> Readings:
    """Return the new readings with their flags; one that another of this call replaces at once stays as it is."""
    current = _equal(context.value[came.row], new.value)
    flag = np.where(current, flags[came.row], new.flag)
    tests = np.where(current, bits[came.row], np.uint16(0))
    again = came.repeats >= 0
    if again.any():
        flag[again], tests[again] = old.flag[came.repeats[again]], old.tests_or_none_set()[came.repeats[again]]
    return replace(new, flag=flag, tests=tests)


def places_of(series: tuple[Series, ...], stations: Mapping[str, Station]) -> Places:
    """Return where series are measured: the latest position of their station."""
    here = [stations[one.station].position if one.station in stations else _NOWHERE for one in series]
    names, station = np.unique([one.station for one in series] or [""], return_inverse=True)
    kinds, kind = np.unique([str(one.statistic) for one in series] or [""], return_inverse=True)
    heights = [float("nan") if one.height_m is None else one.height_m for one in series]
    return Places(
        np.array([p.lon for p in here], np.float64),
        np.array([p.lat for p in here], np.float64),
        np.array([p.elevation_m for p in here], np.float64),
        station[: len(series)].astype(np.int64),
        kind[: len(series)].astype(np.int64),
        np.array(heights, np.float64),
    )
