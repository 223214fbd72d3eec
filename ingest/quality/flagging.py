"""Quality control during ingest: flag readings in the context of the archive, then store them.

A flag depends on neighbours in time, and for spatial tests on all stations that report at that time. A batch is
therefore flagged together with its surroundings in the archive, and stored readings are reflagged as needed: for a few
readings only those near them (`IncrementalFlagger.judge`), otherwise everything from `2 reach` before the first to
`2 reach` after the last (`IncrementalFlagger.judge_all`), where `reach` is how far the tests of the variable look.
Readings further apart than any test looks, with others between them in the archive, are flagged separately, as are
batches that span years of an archive. Flags thus do not depend on how readings are split into batches, provided all
batches are sampled equally often.
"""

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cache, partial

import numpy as np
from numpy.typing import NDArray

from hypergrid.archive import Archive, Conservation, Writer
from hypergrid.core.flags import FAIL, MEANINGS, MISSING, SUSPECT, TESTS
from hypergrid.core.readings import Position, Readings, Series, Station, equal_values
from hypergrid.core.times import SECOND_NS, Window
from hypergrid.core.units import Variable
from ingest.deployment.deployment_file import Deployment
from ingest.deployment.quality_overrides import QualityOverrides, from_json
from ingest.deployment.quality_settings import JOINED_INTERVALS, VariableTests
from ingest.deployment.to_readings import stations_of
from ingest.quality.block_tests import (
    MEMORIES,
    Memory,
    MemorylessReader,
    evaluate_before,
    history_of,
    remember,
    with_memory,
)
from ingest.quality.blocks import BLOCK_NS
from ingest.quality.incremental import IncrementalFlagger, MergeMasks, merge_stored_and_new
from ingest.quality.run_tests import FlagResult, judge
from ingest.quality.spatial import Places, find_isolated, network_spacing_m
from ingest.quality.temporal import Line, Sampling, bits_of, pauses
from ingest.quality.zone import RADIATION, ZoneGuard, ZoneSuspicion

GAPS = "gaps"
"""Pauses longer than the gap test allows, per series."""
ISOLATED = "isolated"
"""Readings without neighbour tests because of too few nearby stations."""
NO_POSITION, NO_ELEVATION = "no_position", "no_elevation"
"""Readings without neighbour tests because of an unknown position or elevation."""
SKIPPED = (ISOLATED, NO_POSITION, NO_ELEVATION)


class Summary:
    """Counts of flags and of the tests that set them, by station and variable."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str], Counter[str]] = {}

    @classmethod
    def of(cls, parts: Iterable["Summary"]) -> "Summary":
        """Merge several summaries, which must not share a variable."""
        whole = cls()
        for part in parts:
            whole._counts |= part._counts
        return whole

    def add(self, readings: Readings) -> None:
        # Flags are below 16, so that series and flag form one index.
        flags = np.bincount(readings.index.astype(np.int64) * 16 + readings.flag, minlength=16 * len(readings.series))
        for number, flag in np.argwhere(flags.reshape(-1, 16)).tolist():
            self._counter_of(readings.series[number])[MEANINGS[flag]] += int(flags[16 * number + flag])
        tests = readings.tests_or_none_set()
        bad = np.flatnonzero(tests)
        for name in TESTS:
            self.add_to(name, readings.series, readings.index[bad[tests[bad] & bits_of(name) > 0]])

    def add_to(self, what: str, series: tuple[Series, ...], index: NDArray[np.int32]) -> None:
        """Add one to a count for each index of a series."""
        for number, count in enumerate(np.bincount(index).tolist()):
            if count:
                self._counter_of(series[number])[what] += count

    def _counter_of(self, series: Series) -> Counter[str]:
        return self._counts.setdefault((series.station, series.variable), Counter())

    def count_skipped(self) -> dict[str, dict[str, int]]:
        """Return the number of stations that no neighbour test could evaluate, by variable and reason."""
        variable_counts: dict[str, Counter[str]] = {}
        for (_, variable), counts in self._counts.items():
            for reason in SKIPPED:
                if counts.get(reason):
                    variable_counts.setdefault(variable, Counter())[reason] += 1
        return {variable: dict(counts) for variable, counts in variable_counts.items()}

    def count_by_station(self) -> dict[str, dict[str, int]]:
        """Return the counts of each station over its variables: flags by their word, tests, gaps."""
        station_counts: dict[str, Counter[str]] = {}
        for (station, _), counts in self._counts.items():
            station_counts.setdefault(station, Counter()).update(counts)
        return {station: dict(counts) for station, counts in station_counts.items()}


COLUMNS = ("station", "readings", "suspect", "fail", "found by")


def table_of(by_station: Mapping[str, Mapping[str, int]], *, maximum: int = 20) -> list[tuple[str, int, int, int, str]]:
    """Return table rows, most doubtful stations first: station, readings, suspect, fail, tests that flagged them."""
    suspect, fail = MEANINGS[SUSPECT], MEANINGS[FAIL]
    doubtful = {s: c for s, c in by_station.items() if c.get(suspect, 0) + c.get(fail, 0) + c.get(GAPS, 0)}
    ranked = sorted(doubtful.items(), key=lambda item: -(item[1].get(suspect, 0) + item[1].get(fail, 0)))
    return [
        (
            station,
            sum(counts.get(word, 0) for word in MEANINGS.values()),
            counts.get(suspect, 0),
            counts.get(fail, 0),
            ", ".join(f"{name} {counts[name]:,}" for name in (*TESTS, GAPS, *SKIPPED) if counts.get(name)),
        )
        for station, counts in ranked[:maximum]
    ]


_CELLS_AT_ONCE = 2_000_000
"""Cells of the archive that are read at once: about 250 MB including what flagging needs."""
_NO_POSITION = Position(None, float("nan"), float("nan"), float("nan"))


@dataclass
class QualityFlagger:
    """Flags the readings of a run, variable by variable, and keeps a summary."""

    quality: QualityOverrides
    stations: Mapping[str, Station]
    slice_s: float
    summary: Summary = field(default_factory=Summary)
    guard: ZoneGuard = field(default_factory=ZoneGuard)
    others: Collection[str] = ()
    """Variables whose flags in the archive were set by other tests than those in `quality`."""
    revised: int = 0
    """Stored readings whose flag changed."""

    def compare(self, writer: Writer, variables: Mapping[str, Variable]) -> Mapping[str, object]:
        """Record the variables flagged by other tests, whose readings within reach are reflagged in full.

        Returns the parameters of all tests, with the current ones for `variables`, for `Writer.quality`.
        """
        settings, kept = self.quality.to_json(variables), writer.kept_quality
        self.others = frozenset(name for name in settings if kept.get(name) != settings[name])
        return {**kept, **settings}

    def keep(self, writer: Writer, variables: Mapping[str, Variable]) -> None:
        parameters = self.compare(writer, variables)
        if self.quality.run:
            writer.quality(parameters)

    def store(
        self, writer: Writer, variable: Variable, given: Readings, companion: Callable[[str], Readings | None]
    ) -> Conservation:
        """Flag and store readings of a variable, in any order.

        Parameters
        ----------
        companion
            Returns the incoming readings of another variable at the same time; None: there are none.
        """
        tests = self.quality.tests(variable)
        if not len(given):
            return writer.readings(given)
        new = given.sort_rows()
        if not tests:
            self._sum_up(new)
            return writer.readings(new)
        places = partial(places_of, stations=self.stations)
        nearby = IncrementalFlagger(
            MemorylessReader(writer, tests) if tests.memory_days else writer,
            variable.name,
            tests.without_memory(),
            places,
            partial(Companions, writer, tests.companions, cache(companion)),
        )
        memory = MEMORIES.memory_of(writer, variable.name, tests, places) if tests.memory_days else None
        interval_s, apart_ns = _sampling(new, tests, self.slice_s, least_ns=writer.chunks_ns[1])
        reach_ns = round(tests.reach_s(interval_s) * SECOND_NS)
        stored = Conservation()
        for part in _split_at_gaps(writer, variable.name, new, max(apart_ns, 4 * reach_ns), reach_ns):
            stored += self._store_together(writer, nearby, part, memory, interval_s=interval_s, reach_ns=reach_ns)
        return stored

    def _store_together(
        self,
        writer: Writer,
        nearby: IncrementalFlagger,
        new: Readings,
        memory: Memory | None,
        *,
        interval_s: float,
        reach_ns: int,
    ) -> Conservation:
        """Flag and store readings ordered by series, then time, with the stored ones between and around them."""
        tests = nearby.tests
        same = nearby.variable not in self.others
        around = nearby.judge(new, interval_s=interval_s, reach_ns=reach_ns) if same else None
        if around is None:
            around = nearby.judge_all(new, reach_ns=reach_ns)
        old, context, masks, judged = around.old, around.context, around.masks, around.flag_result
        # A reading already stored with this value is kept, so that it is reported as a duplicate; its flag is set
        # below.
        before = None if memory is None else evaluate_before(memory, new)
        if before is not None:
            old = with_memory(old, before)
        new = _with_flags(new, context, masks, judged, old)
        stored = writer.readings(new)
        if len(old):
            changed = (context.flag != judged.flag) | (context.tests_or_none_set() != judged.tests)
            # New readings were stored with their flags already, and missing values have no other flag.
            changed &= (context.flag != MISSING) & ~masks.is_new
            given = replace(context, flag=judged.flag, tests=judged.tests).take_rows(changed)
            if before is not None:
                given = with_memory(given, before)
            self.revised += writer.flags(given)
        if before is not None and memory is not None:
            revised, new = remember(memory, before, new)
            self.revised += revised
        self._sum_up(new)
        count_gaps(self.summary, context, tests, masks.is_new)
        count_isolated(self.summary, context, tests, places_of(context.series, self.stations), masks.is_new)
        return stored

    def _sum_up(self, readings: Readings) -> None:
        self.summary.add(readings)
        if self.quality.zone_guard and readings.series[0].variable == RADIATION:
            self.guard.add(readings)

    def suspicions(self) -> list[ZoneSuspicion]:
        """Return the stations whose clocks are hours off according to the radiation of this run."""
        return self.guard.suspicions(self.stations)


class Companions(Mapping[str, Readings]):
    """Readings of other variables, read lazily."""

    def __init__(
        self,
        writer: Writer,
        names: tuple[str, ...],
        coming: Callable[[str], Readings | None],
        window: Window,
        stations: Collection[str] | None = None,
    ) -> None:
        self._writer, self._names, self._coming = writer, names, coming
        self._window, self._stations = window, stations
        # Read on first use: only flat lines need them, and most of those are short.
        self._read: dict[str, Readings] = {}

    def __getitem__(self, name: str) -> Readings:
        if name not in self._names:
            raise KeyError(name)
        if name not in self._read:
            series = self._writer.series(name)
            chosen = [
                sensor_series
                for sensor_series in series
                if self._stations is None or sensor_series.station in self._stations
            ]
            old, new = self._writer.read(name, window=self._window, series=chosen), self._coming(name)
            self._read[name] = old if new is None or not len(new) else merge_stored_and_new(old, new.sort_rows())[0]
        return self._read[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)


def add_stations(writer: Writer, present: Iterable[str], deployment: Deployment, archive: Archive) -> QualityFlagger:
    """Store the stations of incoming readings, and the publication; return a flagger of these readings."""
    stations = stations_of(present, deployment, known=archive.stations)
    writer.stations(stations)
    writer.publication(deployment.publication)
    known = {**archive.stations, **{station.id: station for station in stations}}
    return QualityFlagger(deployment.quality, known, archive.slice_s)


def flagger_as_kept(archive: Archive) -> QualityFlagger:
    """Return a flagger with the tests stored in an archive; without tests if none ran."""
    quality = replace(from_json(archive.quality), run=bool(archive.quality))
    return QualityFlagger(quality, archive.stations, archive.slice_s)


def count_gaps(summary: Summary, context: Readings, tests: VariableTests, wanted: NDArray[np.bool_]) -> None:
    """Count the pauses before selected readings, shape (context,); `context` is ordered by series, then time."""
    if tests.gap:
        present = np.flatnonzero(context.flag != MISSING)
        usable = context.take_rows(present)
        before = pauses(Line(usable.index, usable.time_ns, usable.value, _as_they_come(usable)), tests.gap.hours)
        summary.add_to(GAPS, usable.series, usable.index[before[wanted[present[before + 1]]]])


def _as_they_come(readings: Readings) -> Sampling:
    """Return the sampling of each series, inferred from the readings where no interval is declared.

    The median interval is used if 90 % of the intervals agree with it within 10 %.
    """
    declared = Sampling.of(readings.series)
    usual_ns = declared.usual_ns.copy()
    edges = np.searchsorted(readings.index, np.arange(len(readings.series) + 1))
    for number in np.flatnonzero((usual_ns == 0) & (np.diff(edges) > 2)).tolist():
        steps = np.diff(readings.time_ns[edges[number] : edges[number + 1]])
        median = float(np.median(steps))
        if np.mean(np.abs(steps - median) <= 0.1 * median) >= 0.9:
            usual_ns[number] = round(median)
    return replace(declared, usual_ns=usual_ns)


def count_isolated(
    summary: Summary, context: Readings, tests: VariableTests, places: Places, wanted: NDArray[np.bool_]
) -> None:
    """Count by reason the selected readings, shape (context,), that no neighbour test can evaluate."""
    for reason, skipped in skipped_series(tests, places).items():
        summary.add_to(reason, context.series, context.index[wanted & skipped[context.index]])


def skipped_series(tests: VariableTests, places: Places) -> dict[str, NDArray[np.bool_]]:
    """Return a mask by reason of the series that no neighbour test can evaluate.

    The reasons are a missing position, a missing elevation if every test needs one, and too few neighbours; each series
    has at most one.
    """
    buddies, consistency = tests.buddy_check, tests.spatial_consistency
    checks = [(check, most_m) for check, most_m in (
        (buddies, buddies.most_elevation_m if buddies else 0.0), (consistency, np.inf),
    ) if check]  # fmt: skip
    if not checks:
        return {}
    nowhere = ~(np.isfinite(places.lon) & np.isfinite(places.lat))
    flat = ~nowhere & ~np.isfinite(places.elevation_m)
    alone = np.logical_and.reduce(
        [find_isolated(places, radius_m=places.radius_m(check.radius_km, check.neighbours), neighbours=check.neighbours,
                  most_elevation_m=most_m)
         for check, most_m in checks]
    )  # fmt: skip
    return {NO_POSITION: nowhere, NO_ELEVATION: flat, ISOLATED: alone & ~nowhere & ~flat}


def reach_ns(tests: VariableTests, readings: Readings, slice_s: float) -> int:
    """Return the reach of the tests [ns] for readings ordered by series, then time."""
    return round(tests.reach_s(usual_interval_s(readings, slice_s)) * SECOND_NS)


def usual_interval_s(readings: Readings, slice_s: float, *, most_ns: int | None = None) -> float:
    """Return the usual interval of the slowest series [s]; `readings` is ordered by series, then time.

    Steps of more than `most_ns` are pauses and are ignored.
    """
    steps = np.diff(readings.time_ns)[readings.index[1:] == readings.index[:-1]]
    steps = steps[(steps > 0) & (True if most_ns is None else steps <= most_ns)]
    usual_s = float(np.median(steps)) / SECOND_NS if len(steps) else 0.0
    return max(slice_s, usual_s, *(series.interval_s for series in readings.series))


def _sampling(new: Readings, tests: VariableTests, slice_s: float, *, least_ns: int) -> tuple[float, int]:
    """Return the usual interval [s], and the distance beyond which no test combines readings [ns]."""
    told_s = max(slice_s, *(series.interval_s for series in new.series))
    joined_s = max(3600.0 * tests.flat_line.within_hours, JOINED_INTERVALS * told_s) if tests.flat_line else 0.0
    apart_ns = max(least_ns, round(max(4.0 * tests.reach_s(told_s), joined_s) * SECOND_NS))
    # Longer steps are ignored: an old stamp among recent ones may be the only step of its series, and is not its
    # interval.
    return usual_interval_s(new, slice_s, most_ns=apart_ns), apart_ns


def _split_at_gaps(writer: Writer, variable: str, new: Readings, apart_ns: int, reach_ns: int) -> Iterator[Readings]:
    """Split readings in time into parts that are flagged separately.

    The cuts are where readings are further apart than `apart_ns` and the archive has others in between, and at chunk
    borders after as many chunks as fit into memory. The only loss is a pause longer than the tests' reach, which is not
    detected there; nor is it if the readings arrive in two batches.
    """
    # Late readings may be years old: without cuts, all that lies in between would be read and flagged for nothing.
    stamps, (starts_ns, cells) = np.unique(new.time_ns), writer.find_held(variable)
    after = np.flatnonzero(np.diff(stamps) > apart_ns) + 1
    # A chunk that extends into a hole begins before the hole's end, by less than its own length.
    begins = np.searchsorted(starts_ns, stamps[after - 1] + 2 * reach_ns - writer.chunks_ns[1], side="right")
    after = after[begins < np.searchsorted(starts_ns, stamps[after] - 2 * reach_ns)]
    within = starts_ns[(starts_ns > stamps[0]) & (starts_ns <= stamps[-1])]
    max_readings = max(1, _CELLS_AT_ONCE // max(1, cells))
    cuts = np.union1d(stamps[after], within[max_readings - 1 :: max_readings])
    part = np.searchsorted(cuts, new.time_ns, side="right")
    for number in np.unique(part).tolist():
        yield new.take_rows(part == number)


def reflag_part(
    read: Callable[..., Readings], archive: Archive, variable: Variable, tests: VariableTests, part: Window
) -> tuple[Readings, Readings, NDArray[np.bool_]]:
    """Return a window's readings and surroundings, the same reflagged, and the window's mask.

    Parameters
    ----------
    read
        Reads a variable's readings with the tests that set their flags, such as `Writer.read`.
    archive
        Source of the stations.
    """
    reach = round(tests.reach_s(archive.slice_s) * SECOND_NS)
    context = read(variable.name, window=widen_window(part, reach))
    # The reach is only known after reading: series sampled more rarely than the slice length look further.
    needed = reach_ns(tests, context.select_window(part), archive.slice_s)
    if needed > reach:
        context = read(variable.name, window=widen_window(part, needed))
    around = widen_window(part, max(reach, needed))
    others = {name: read(name, window=around) for name in tests.companions}
    judged = judge(context, tests.without_memory(), places_of(context.series, archive.stations), others)
    flagged_readings = replace(context, flag=judged.flag, tests=judged.tests)
    if tests.memory_days and len(context):
        past = history_of(
            archive, variable.name, tests, partial(read, variable.name), partial(places_of, stations=archive.stations)
        )
        first, stop = part.start_ns // BLOCK_NS, -(-part.stop_ns // BLOCK_NS)
        flagged_readings = with_memory(flagged_readings, past.evaluate(first, stop))
    return context, flagged_readings, part.holds(context.time_ns)


def select_reflagged(old: Readings, new: Readings) -> Readings:
    return new.take_rows((old.flag != new.flag) | (old.tests_or_none_set() != new.tests_or_none_set()))


def widen_window(part: Window, reach: int) -> Window:
    """Return the window that flags within another depend on, directly or indirectly."""
    # One reach for the neighbours of the readings, and another for what the neighbours' own flags depend on.
    return Window(part.start_ns - 2 * reach, part.stop_ns + 2 * reach)


def _with_flags(
    new: Readings,
    context: Readings,
    masks: MergeMasks,
    judged: FlagResult,
    old: Readings,
) -> Readings:
    """Return the new readings with their flags; a reading replaced within this call keeps its own."""
    current = equal_values(context.value[masks.row], new.value)
    flag = np.where(current, judged.flag[masks.row], new.flag)
    tests = np.where(current, judged.tests[masks.row], np.uint16(0))
    again = masks.repeats >= 0
    if again.any():
        flag[again], tests[again] = old.flag[masks.repeats[again]], old.tests_or_none_set()[masks.repeats[again]]
    return replace(new, flag=flag, tests=tests)


def places_of(series: tuple[Series, ...], stations: Mapping[str, Station]) -> Places:
    """Return where series are measured: the latest position of each station."""
    positions = [
        stations[sensor_series.station].position if sensor_series.station in stations else _NO_POSITION
        for sensor_series in series
    ]
    known = [station.position for station in stations.values()]
    names, station = np.unique([sensor_series.station for sensor_series in series] or [""], return_inverse=True)
    kinds, kind = np.unique([str(sensor_series.statistic) for sensor_series in series] or [""], return_inverse=True)
    heights = [float("nan") if sensor_series.height_m is None else sensor_series.height_m for sensor_series in series]
    return Places(
        np.array([p.lon for p in positions], np.float64),
        np.array([p.lat for p in positions], np.float64),
        np.array([p.elevation_m for p in positions], np.float64),
        station[: len(series)].astype(np.int64),
        kind[: len(series)].astype(np.int64),
        np.array(heights, np.float64),
        network_spacing_m(*np.array([(p.lon, p.lat) for p in known], np.float64).reshape(-1, 2).T),
    )
