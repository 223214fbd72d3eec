"""A slow, obvious evaluation of a question: Python loops over cells and readings, one solve a slice.

It shares no code with the executor or with kriging, so that an error would have to be made twice. What makes time cells
is in `oracle_times.py`, how a cell's values become one in `oracle_aggregates.py`, converts and merges in
`oracle_formulas.py`, grids, zones and interpolation in space in `oracle_spaces.py`.
"""

import json
import math
import statistics
from bisect import bisect_left
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache, reduce
from itertools import pairwise, product
from typing import Any, TypeVar

from hypergrid.core.readings import Series
from hypergrid.core.times import parse_duration, parse_instant
from hypergrid.core.tokens import token
from hypergrid.perspective.spec.query_spec import QuerySpec, Step
from hypergrid.topology import grid, quanta
from tests.support.counter_oracle import increments
from tests.support.feeds import Feed, Row, Sensor
from tests.support.in_time_oracle import in_time
from tests.support.oracle_aggregates import (
    BY_AREA,
    DAY_NS,
    MIN_COVERAGE,
    REPEATABLE,
    Member,
    aggregated,
    cell_hash,
    is_enough,
    tiled,
)
from tests.support.oracle_formulas import (
    COUNTED_BY_FIRST,
    DIVIDING,
    Undecided,
    converted,
    is_rounding,
    merged,
)
from tests.support.oracle_spaces import (
    Covered,
    Place,
    axis_cells,
    coarser,
    in_band,
    in_zone,
    interpolated,
    levels,
    quantum,
)
from tests.support.oracle_times import PERIODIC, Block, TimeCell, Times, even, instants, time_cells
from tests.support.sun_oracle import clear_sky

Placed = TypeVar("Placed")

COUNTER = "rain_accumulation"
PLACED = ("clear_sky_index", "from_clear_sky_index")
"""Converts that depend on where and when a value is."""
ON_EQUAL_STATIONS = ("difference", "ratio", "anomaly", "standardised_anomaly")
"""Merges that do not look for the stations that their sources have in common."""

CANCELLING = ("variance", "standard_deviation", "trend", "difference", "anomaly", "standardised_anomaly")
"""Steps whose zeros may be sums of terms that cancel, beside all interpolations."""


@dataclass
class Answer:
    """Cells with their values; a table is a list over time of lists over places."""

    times: Times
    sensors: Sequence[Sensor]
    """Who the places are, where there is no grid, no band and no zone."""
    axes: dict[str, list[Block]] = field(default_factory=dict)
    """Cells along the axes of a grid, slowest first, or of bands along z alone; empty for stations and zones."""
    zones: list[str] = field(default_factory=list)
    value: list[list[float]] = field(default_factory=list)
    count: list[list[int]] = field(default_factory=list)
    possible: list[list[int]] = field(default_factory=list)
    variance: list[list[float]] = field(default_factory=list)
    """Of estimates by kriging, where nothing was done with them since."""
    readings: list[Row] | None = None
    """Readings not yet in cells."""
    unit: str = ""
    """Unit of temperatures that were converted to another; empty where they were not."""
    since_ns: int = 0
    """Readings before are in no cell; a counter looks back at them."""
    until_ns: int = 2**63
    """Readings from it on are in no cell; a counter looks ahead at them."""

    @property
    def grid_places(self) -> list[Place]:
        """Cells along the axes that each place of a grid or of bands has."""
        return list(product(*self.axes.values())) if self.axes else []

    @property
    def places(self) -> Sequence[Place | int]:
        """The same, or else the number of the place's zone or sensor."""
        return self.grid_places or list(range(len(self.zones or self.sensors)))

    def put(self, line: Sequence[tuple[float, int, int]]) -> None:
        """Add value, count and what is possible of each place of a time cell."""
        self.value.append([value for value, _, _ in line])
        self.count.append([count for _, count, _ in line])
        self.possible.append([possible for _, _, possible in line])


def answer(question: QuerySpec, feeds: Mapping[str, Feed]) -> Answer:
    """Return what a question's surface holds, by the book (design section 4).

    Parameters
    ----------
    question
        Every parameter is a plain number, every duration text.
    feeds
        Readings by variable.
    """
    clip = dict(question.clip)
    window = _window(question)
    bounded = _ends_over_all(question)
    here = _chain(question, feeds, window, bounded=bounded)
    here = _in_cells(here, feeds[question.variable])
    keep_times = [i for i, cell in enumerate(here.times.cells) if bounded or _inside(cell.corner, window)]
    keep = list(range(len(here.places)))
    if here.axes:
        bounds = {name: [quanta(edge, quantum(name), name) for edge in clip[name]] for name in clip if name != "time"}
        keep = [
            i
            for i, place in enumerate(here.grid_places)
            if all(_inside(cell[0], bounds.get(name)) for name, cell in zip(here.axes, place, strict=True))
        ]
        here.axes = {n: [cell for cell in axis if _inside(cell[0], bounds.get(n))] for n, axis in here.axes.items()}
    here.times = here.times.only([here.times.cells[i] for i in keep_times])
    for name in ("value", "count", "possible", "variance"):
        table = getattr(here, name)
        setattr(here, name, [[table[i][j] for j in keep] for i in keep_times if table])
    return here


def _selected(question: QuerySpec, feeds: Mapping[str, Feed]) -> Feed:
    stations, feed = dict(question.select).get("station"), feeds[question.variable]
    return feed if stations is None else feed.at((stations,) if isinstance(stations, str) else stations)


def _inside(corner: int, bounds: Sequence[int] | None) -> bool:
    return bounds is None or bounds[0] <= corner < bounds[1]


def _ends_over_all(question: QuerySpec) -> bool:
    for number in range(len(question.steps) - 1, -1, -1):
        step = question.steps[number]
        if step.op == "aggregate" and "time" in dict(step.cells):
            return _is_of_all(dict(step.cells)["time"])
        if step.op == "merge":
            before = QuerySpec(question.variable, question.steps[:number])
            alike = [other for other in step.others if not _is_normal(other, before)]
            return all(map(_ends_over_all, [before, *alike]))
    return False


def _is_of_all(spec: object) -> bool:
    return spec == "all" or spec in PERIODIC or (isinstance(spec, Mapping) and "periodic" in spec)


def _last_time_cells(question: QuerySpec) -> object:
    for step in reversed(question.steps):
        if _in_time_cells(step) or (step.op == "aggregate" and "time" in dict(step.cells)):
            return None if _in_time_cells(step) else dict(step.cells)["time"]
    return None


def _is_normal(other: QuerySpec, before: QuerySpec) -> bool:
    """Return whether a source of a merge is a climatology: over all of time, or cells that come again, as it alone."""
    cells, own = _last_time_cells(other), _last_time_cells(before)
    alike = cells == own or (_is_of_all(cells) and _is_of_all(own) and "all" not in (cells, own)
                             and _blocks_in_spring(_text(cells)) == _blocks_in_spring(_text(own)))  # fmt: skip
    return _is_of_all(cells) and ("time" in dict(other.clip) or not alike)


def _text(cells: object) -> str:
    return json.dumps(dict(cells) if isinstance(cells, Mapping) else cells)


@lru_cache
def _blocks_in_spring(spec: str) -> list[tuple[Block, ...]]:
    """Return when cells that come again, given as JSON, are there: in ten days with a change of clocks."""
    days: Block = (parse_instant("2007-03-20"), parse_instant("2007-03-30"))
    one = even(range(*days, days[1] - days[0]), days[1] - days[0])
    found = time_cells(json.loads(spec), one, days, exact=True, longitudes=[0])
    return [cell.blocks for cell in found.cells]


def _window(question: QuerySpec) -> Block | None:
    clip = dict(question.clip)
    return (parse_instant(clip["time"][0]), parse_instant(clip["time"][1])) if "time" in clip else None


def _looks_back_at_cells(question: QuerySpec, feed: Feed) -> bool:
    """Return whether a counter is taken of cells: then also those before the clip are made."""
    changing = [step for step in question.steps if step.op in ("aggregate", "interpolate")]
    return any(step.name == COUNTER for step in (changing if feed.slice_ns is None else changing[1:]))


def _chain(question: QuerySpec, feeds: Mapping[str, Feed], window: Block | None, *, bounded: bool) -> Answer:
    feed = _selected(question, feeds)
    start, stop = feed.extent
    last_in_time = max((number for number, step in enumerate(question.steps) if _in_time_cells(step)), default=-1)
    if bounded and window and last_in_time < 0 and not _looks_back_at_cells(question, feed):
        start, stop = max(start, window[0]), min(stop, window[1])
    whole = window if bounded and window else (start, stop)
    readings = [row for row in feed.rows if row.flag in question.accept_flags and math.isfinite(row.value)]
    if feed.slice_ns is None:
        times = instants([t for t in feed.times_ns if start <= t < stop])
        here = _in_cells(Answer(times, feed.sensors, readings=readings, since_ns=start, until_ns=stop), feed)
    else:
        # From the slice in which the time begins to the one in which it ends.
        starts = range(start // feed.slice_ns * feed.slice_ns, stop, feed.slice_ns)
        here = Answer(even(starts, feed.slice_ns), feed.sensors, readings=readings, since_ns=start, until_ns=stop)
    for number, step in enumerate(question.steps):
        inside = bounded and number > last_in_time
        if _in_time_cells(step):
            here = _interpolate_in_time(step, here, window if bounded and number == last_in_time else None)
        elif step.op == "convert":
            here = _convert(step, here, feed)
        elif step.op == "aggregate":
            since = window[0] if inside and window and step.name == COUNTER else None
            here = _aggregate(step, here, whole, since, feed)
        elif step.op == "interpolate":
            here = _interpolate(step, _in_cells(here, feed), feed)
        else:
            here, before = _in_cells(here, feed), QuerySpec(question.variable, question.steps[:number])
            others = []
            for other in step.others:
                is_normal, own = _is_normal(other, before), _window(other)
                found = _chain(other, feeds, own, bounded=own is not None) if is_normal else (
                    _chain(other, feeds, window, bounded=inside))  # fmt: skip
                found = _in_cells(found, feeds[other.variable])
                others.append(_recurring(found, here.times) if is_normal else found)
            here = _merge(step, [here, *others])
            if not (bounded and window):
                whole = here.times.start, here.times.stop
    return here


def _in_cells(here: Answer, feed: Feed) -> Answer:
    """Return readings as cells: the first one of each slice, or the one of each instant."""
    if here.readings is None:
        return here
    if feed.slice_ns is not None:
        return _aggregate_readings("first", here, here.times, 0.0, {})
    by_place = {(row.start_ns, row.sensor): row.value for row in here.readings}
    for cell in here.times.cells:
        found = [by_place.get((cell.corner, i), math.nan) for i in range(len(here.sensors))]
        here.put([(value, int(math.isfinite(value)), 1) for value in found])
    here.readings = None
    return here


def _convert(step: Step, here: Answer, feed: Feed) -> Answer:
    given = dict(step.params)
    here.unit, here.variance = given.get("unit", here.unit), []
    if step.name in PLACED:
        return _by_the_sun(step.name, float(given.get("turbidity", 3.0)), here, feed)
    if here.readings is None:
        here.value = [[converted(step.name, value, given) for value in line] for line in here.value]
        return here
    changed = [Row(r.sensor, r.start_ns, r.stamp_ns, converted(step.name, r.value, given), r.flag)
               for r in here.readings]  # fmt: skip
    here.readings = [row for row in changed if not math.isnan(row.value)]
    return here


def _by_the_sun(name: str, turbidity: float, here: Answer, feed: Feed) -> Answer:
    """Return radiation as a damped share of the clear sky, or back, at stations and grids in longitude and latitude."""
    known = [sensor.elevation_m for sensor in feed.sensors if math.isfinite(sensor.elevation_m)]
    # What is not known is taken to be as high as the stations in the mean.
    middle = math.fsum(known) / len(known) if known else 0.0
    places = [(s.x, s.y, s.elevation_m if math.isfinite(s.elevation_m) else middle) for s in here.sensors]
    if here.axes:
        places = [(sum(column) / 7.2e9, sum(row) / 7.2e9, sum(level[0]) / 2e3 if level else middle)
                  for *level, row, column in here.grid_places]  # fmt: skip
    for cell, line in zip(here.times.cells, here.value, strict=True):
        ((start, end),) = cell.blocks
        clear = [clear_sky(start, end - start, (lon, lat), height, turbidity) for lon, lat, height in places]
        if name == "clear_sky_index":
            line[:] = [(value + 30) / (most + 30) for value, most in zip(line, clear, strict=True)]
        else:
            back = [value * (most + 30) - 30 for value, most in zip(line, clear, strict=True)]
            line[:] = [max(value, 0.0) * (most > 0) if math.isfinite(value) else math.nan
                       for value, most in zip(back, clear, strict=True)]  # fmt: skip
    return here


def _place_key(here: Answer, place: Place | int) -> int:
    if not isinstance(place, int):
        *before, last = (cell[0] for cell in place)
        return reduce(lambda key, corner: cell_hash(corner, key), before[::-1], last % 2**64)
    return int(token(here.zones[place] if here.zones else here.sensors[place].series)[:16], 16)


def _max_gap_ns(given: Mapping[str, Any], here: Answer) -> int:
    """Return over how long a counter is followed: three times as long as values lie apart, at least an hour."""
    if "max_gap" in given:
        return parse_duration(given["max_gap"])
    apart_ns = max(round(sensor.series.interval_s * 1e9) for sensor in here.sensors)
    if here.readings is None:
        corners = [cell.corner for cell in here.times.cells]
        longest = max(cell.blocks[0][1] - cell.corner for cell in here.times.cells)
        steps = sorted(later - corner for corner, later in pairwise(corners))
        free = statistics.median(steps) if here.times.are_free and steps else longest
        apart_ns = here.times.step_ns or round(free)
    return max(3 * apart_ns, 3_600_000_000_000)


def _declared(given: Mapping[str, Any]) -> dict[str, float]:
    return {name: float(given[name]) for name in ("resolution", "rollover") if name in given}


def _aggregate_readings(
    name: str, here: Answer, times: Times, share: float, given: Mapping[str, Any], since: int | None = None
) -> Answer:
    result = Answer(times, here.sensors, unit=here.unit)
    by_sensor: list[list[tuple[int, Member]]] = [[] for _ in here.sensors]
    for number, sensor in enumerate(here.sensors):
        rows = [row for row in here.readings or [] if row.sensor == number]
        rows.sort(key=lambda row: row.stamp_ns)
        values = {i: row.value for i, row in enumerate(rows)}
        if name == COUNTER:
            values = increments([(r.stamp_ns, r.value) for r in rows], _max_gap_ns(given, here), **_declared(given))
        days = sensor.series.interval_s / 86_400 or math.nan
        by_sensor[number] = [
            (rows[i].start_ns, Member(value, _stands(rows[i], sensor), days))
            for i, value in values.items()
            if (here.since_ns if since is None else since) <= rows[i].start_ns < here.until_ns
        ]
    for cell in times.cells:
        line = []
        for number, pairs in enumerate(by_sensor):
            series = here.sensors[number].series
            members, tiling = _of_cell(name, pairs, cell, series, is_sliced=times is here.times)
            interval = round(series.interval_s * 1e9)
            possible = 0
            if interval and cell.blocks:
                possible = times.fitting_in(cell, interval)
            value = aggregated(name, members, given, cell_hash(cell.corner, _place_key(here, number)))
            value = value if is_enough(tiling, possible, share) else math.nan
            line.append((value, tiling, possible))
        result.put(line)
    return result


def _of_cell(
    name: str, pairs: Sequence[tuple[int, Member]], cell: TimeCell, series: Series, *, is_sliced: bool
) -> tuple[list[Member], int]:
    """Return the readings of a series that a cell takes, and how many of them tile it; of a slice all of them."""
    interval = 0 if series.statistic == "sample" else round(series.interval_s * 1e9)
    if not interval or is_sliced or name == COUNTER:
        members = [member for _, member in _in_blocks(pairs, cell)]
        return members, len(members)
    taken: list[Member] = []
    tiling = 0
    for start, stop in cell.blocks:
        own = list(_in_blocks(pairs, TimeCell(start, ((start, stop),))))
        inside, tiles = tiled([(at, at + interval) for at, _ in own], start, stop)
        every = name in REPEATABLE
        taken += [own[i][1] for i in (inside if every else tiles)]
        tiling += len(tiles)
    return taken, tiling


def _aggregate(step: Step, here: Answer, whole: Block, since: int | None, feed: Feed) -> Answer:
    cells, given = dict(step.cells), dict(step.params)
    share = float(given.pop("min_coverage", MIN_COVERAGE.get(step.name, 0.0) if feed.slice_ns is not None else 0.0))
    times = here.times
    if "time" in cells:
        longitudes = [sensor.x for sensor in here.sensors]
        exact = here.readings is not None
        times = time_cells(cells["time"], here.times, whole, exact=exact, longitudes=longitudes)
    if here.readings is not None:
        return _aggregate_readings(step.name, here, times, share, given, since)
    result = Answer(times, here.sensors, here.axes, here.zones, unit=here.unit)
    over = _over_space(step, here, result, feed)
    by_place = _members(step.name, here, given)
    parts = [(part.corner, i) for i, part in enumerate(here.times.cells)]
    # How often the stations of an array report is not known where its instants have no step.
    is_known = "time" not in cells or bool(result.axes or result.zones) or not _is_uneven(here)
    share = share if is_known else 0.0
    for number, cell in enumerate(times.cells):
        slices = [number]
        if "time" in cells:
            slices = [i for _, i in _in_blocks(parts, cell) if cell.holds_all(here.times.cells[i])]
        lasting = here.times.possible_in(cell) if "time" in cells else 1
        line = []
        for place, covered in zip(result.places, over, strict=True):
            members = [
                Member(own.value, own.at_ns, own.for_days, weight)
                for i in slices
                for j, weight in zip(covered.sources, covered.weights, strict=True)
                if (own := by_place[j].get(i)) is not None
            ]
            known = [[i in by_place[j] for i in slices] for j in covered.sources]
            value = aggregated(step.name, members, given, cell_hash(cell.corner, _place_key(result, place)))
            if not _is_covered(covered, known, lasting, share):
                value = math.nan
            line.append((value, len(members), covered.possible * lasting if is_known else 0))
        result.put(line)
    return result


def _is_uneven(here: Answer) -> bool:
    """Return whether places have values at instants of which fewer than 90 % follow one another by their median."""
    corners = [cell.corner for cell in here.times.cells]
    steps = [later - corner for corner, later in pairwise(corners)]
    middle = round(statistics.median(steps)) if len(steps) > 1 else 0
    alike = sum(abs(step - middle) <= 0.1 * middle for step in steps)
    return here.times.are_free and (len(steps) < 2 or alike < 0.9 * len(steps))


def _in_blocks(placed: Sequence[tuple[int, Placed]], cell: TimeCell) -> Iterator[tuple[int, Placed]]:
    """Yield what begins in a cell, of what is ordered by where it begins."""
    for start, stop in cell.blocks:
        first, last = (bisect_left(placed, edge, key=lambda item: item[0]) for edge in (start, stop))
        yield from placed[first:last]


def _is_covered(covered: Covered, known: list[list[bool]], lasting: int, share: float) -> bool:
    """Return whether a cell has enough: of what is possible, or of a zone's area over time."""
    if covered.held is None:
        return is_enough(sum(map(sum, known)), covered.possible * lasting, share)
    if not covered.sources:
        return share == 0
    heard = math.fsum(area * sum(row) for area, row in zip(covered.areas, known, strict=True))
    return covered.held * heard / math.fsum(covered.areas) / max(lasting, 1) >= share * (1 - 1e-9)


def _over_space(step: Step, here: Answer, result: Answer, feed: Feed) -> list[Covered]:
    """Return what each place of the result takes of the source's places; sets these places."""
    cells = {name: spec for name, spec in step.cells if name != "time"}
    if not cells:
        return [Covered([number], [1.0], 1) for number in range(len(here.places))]
    if "zones" in cells:
        zones = dict(cells["zones"])
        result.axes, result.zones = {}, list(zones)
        return [in_zone(zones[name], here.grid_places, step.name, is_lonlat=feed.is_lonlat) for name in zones]
    if "z" in cells and "z" not in here.axes:
        heights = _heights(here, feed)
        known = [round(height * 1000) for height in heights if math.isfinite(height)]
        result.axes = {"z": levels(cells["z"], (min(known), max(known) + 1))}
        return [in_band(band, heights) for (band,) in result.grid_places]
    result.axes = {name: axis_cells(name, cells.get(name), axis) for name, axis in here.axes.items()}
    by_size = step.name in BY_AREA
    return [coarser(place, here.axes, by_size=by_size) for place in result.grid_places]


def _heights(here: Answer, feed: Feed) -> list[float]:
    """Return how high stations are, or the ground under the cells of a grid in metres [m]."""
    if not here.axes:
        return [sensor.elevation_m for sensor in here.sensors]
    return [feed.terrain(sum(x) / 2e3, sum(y) / 2e3) if feed.terrain else math.nan for y, x in here.grid_places]


def _members(name: str, here: Answer, given: Mapping[str, Any]) -> list[dict[int, Member]]:
    """Return the values of each place by their time cell, those that are missing left out."""
    found: list[dict[int, Member]] = []
    for j in range(len(here.places)):
        line = [here.value[i][j] for i in range(len(here.times.cells))]
        values = {i: value for i, value in enumerate(line) if math.isfinite(value)}
        if name == COUNTER:
            series = [(here.times.cells[i].corner, value) for i, value in values.items()]
            grown = increments(series, _max_gap_ns(given, here), **_declared(given))
            values = {i: grown[place] for place, i in enumerate(values) if place in grown}
        found.append({i: _member(here.times, i, value) for i, value in values.items()})
    return found


def _member(times: Times, number: int, value: float) -> Member:
    if times.comes_again:
        return Member(value, 0)
    ((start, end),) = times.cells[number].blocks
    return Member(value, (start + end) // 2, min(end - start, times.step_ns or end - start) / DAY_NS)


def _interpolate(step: Step, here: Answer, feed: Feed) -> Answer:
    cells = dict(step.cells)
    made = grid(**cells)
    axes = {axis.name: [(int(c), int(c) + axis.length) for c in axis.corners] for axis in (made.y, made.x)}
    if "z" in cells:
        axes = {"z": levels(cells["z"]), **axes}
    result = Answer(here.times, here.sensors, axes, unit=here.unit)
    unit = 3.6e9 if feed.is_lonlat else 1e3
    centres = [(sum(x) / 2 / unit, sum(y) / 2 / unit) for *_, y, x in result.grid_places]
    heights = [sum(place[0]) / 2e3 for place in result.grid_places]
    if "z" not in cells:
        heights = [feed.terrain(*centre) if feed.terrain else math.nan for centre in centres]
    found = interpolated(
        step.name, dict(step.params), here.value, here.sensors, centres, heights, feed.terrain, is_lonlat=feed.is_lonlat
    )
    result.value, result.count, result.variance = found.values, found.counts, found.variances
    result.possible = [[found.most] * len(centres) for _ in here.value]
    return result


def _in_time_cells(step: Step) -> dict[str, Any]:
    cells = dict(step.cells)
    return cells if step.op == "interpolate" and set(cells) == {"time"} else {}


def _interpolate_in_time(step: Step, here: Answer, window: Block | None) -> Answer:
    length, given = parse_duration(_in_time_cells(step)["time"]), dict(step.params)
    starts = range(here.times.start // length * length, here.times.stop, length)
    times = even(starts, 1)
    wanted = times.only([cell for cell in times.cells if _inside(cell.corner, window)])
    result = Answer(wanted, here.sensors, unit=here.unit)
    series: list[list[tuple[int, float]]] = [[] for _ in here.sensors]
    for row in sorted(here.readings or [], key=lambda row: row.stamp_ns):
        series[row.sensor].append((_stands(row, here.sensors[row.sensor]), row.value))
    if here.readings is None:
        for cell, line in zip(here.times.cells, here.value, strict=True):
            ((start, end),) = cell.blocks
            for number, value in enumerate(line):
                series[number].append(((start + end) // 2, value))
    most = {"nearest": 1, "linear": 2, "spline": 4}[step.name]
    for cell in result.times.cells:
        found = [in_time(step.name, readings, cell.corner, parse_duration(given["max_gap"])) for readings in series]
        result.put([(value, count, 1 if count == 1 else most) for value, count in found])
    return result


def _stands(row: Row, sensor: Sensor) -> int:
    """Return where in time a reading stands: a sample at its stamp, another in the middle of its interval."""
    if sensor.series.statistic == "sample":
        return row.stamp_ns
    half = round(sensor.series.interval_s * 1e9) // 2
    return row.stamp_ns + {"instant": 0, "start": half, "end": -half}[sensor.series.stamp]


def _recurring(normal: Answer, times: Times) -> Answer:
    """Return what is normal in each of some time cells: the cell of the climatology in which it begins."""
    number_of = normal.times.number_of or (lambda _: 0)
    numbers = [number_of(cell.corner) for cell in times.cells]
    value, count, possible = normal.value, normal.count, normal.possible
    return replace(
        normal, times=times, value=[value[i] for i in numbers], count=[count[i] for i in numbers],
        possible=[possible[i] for i in numbers],
    )  # fmt: skip


def _merge(step: Step, sources: list[Answer]) -> Answer:
    first = sources[0]
    if step.name in ("difference", "anomaly") and (first.unit, sources[1].unit) == ("", "degF"):
        sources[1].value = [[(value - 32) / 1.8 for value in line] for line in sources[1].value]
    common: list[TimeCell] = [
        cell for cell in first.times.cells if all(cell in source.times.cells for source in sources)
    ]
    result = Answer(first.times.only(common), first.sensors, first.axes, first.zones)
    places = [list(range(len(first.places))) for _ in sources]
    if not (first.axes or first.zones or step.name in ON_EQUAL_STATIONS):
        named = [{sensor.series.station: i for i, sensor in enumerate(source.sensors)} for source in sources]
        stations = [name for name in named[0] if all(name in others for others in named)]
        result.sensors = [first.sensors[named[0][name]] for name in stations]
        places = [[numbers[name] for name in stations] for numbers in named]
    counting = 1 if step.name in COUNTED_BY_FIRST else len(sources)
    for cell in common:
        lines = [source.times.cells.index(cell) for source in sources]
        line = []
        for at in zip(*places, strict=True):
            held = list(zip(sources, lines, at, strict=True))
            values = [source.value[i][j] for source, i, j in held]
            if step.name in DIVIDING and is_rounding(values[-1]) and (values[-1] or _is_weighted(step.others[-1])):
                raise Undecided
            value = merged(step.name, *values)
            count = min(source.count[i][j] for source, i, j in held[:counting])
            line.append((value, count, min(source.possible[i][j] for source, i, j in held[:counting])))
        result.put(line)
    return result


def _is_weighted(question: QuerySpec) -> bool:
    """Return whether its zeros may be sums of terms that cancel."""
    return any(
        step.op == "interpolate" or step.name in CANCELLING or any(map(_is_weighted, step.others))
        for step in question.steps
    )
