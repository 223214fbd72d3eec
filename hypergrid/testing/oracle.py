"""A slow, obvious evaluation of a question: Python loops over cells and readings, one solve a slice.

It shares no code with the executor or with kriging, so that an error would have to be made twice.
"""

import itertools
import math
import operator
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fractions import Fraction
from typing import Any

from hypergrid.perspective.steps import Question, Step
from hypergrid.testing.feeds import Feed, Row, Sensor
from hypergrid.testing.in_time_oracle import in_time
from hypergrid.testing.kriging_oracle import krige, plane
from hypergrid.times import parse_duration, parse_instant
from hypergrid.tokens import token
from hypergrid.topology import grid, quanta

Cell = tuple[int, int]
"""Start and end of a cell along one dimension [quantum]; equal for an instant."""
Place = tuple[Cell, ...]
Params = tuple[tuple[str, Any], ...]
"""Parameters of a step."""

WORD = 2**64

MIN_COVERAGE = {"mean": 0.8, "sum": 1.0, "median": 0.8, "quantile": 0.8, "variance": 0.8, "exceedance": 0.8}


@dataclass
class Answer:
    """Cells with their values; a table is a list over time of lists over places."""

    times: list[Cell]
    step_ns: int | None
    """From time cell to time cell [ns]; None for instants."""
    sensors: Sequence[Sensor]
    """Who the places are, where there is no grid."""
    axes: dict[str, list[Cell]] = field(default_factory=dict)
    """Cells along the axes of a grid, or of bands, by their names, slowest first; empty at stations."""
    value: list[list[float]] = field(default_factory=list)
    count: list[list[int]] = field(default_factory=list)
    possible: list[list[int]] = field(default_factory=list)
    readings: list[Row] | None = None
    """Readings not yet in cells."""

    @property
    def grid_places(self) -> list[Place]:
        """Cells along the axes that each place of a grid or of bands has."""
        return list(itertools.product(*self.axes.values())) if self.axes else []

    @property
    def places(self) -> Sequence[Place | int]:
        """The same, or else the number of the place's sensor."""
        return self.grid_places or list(range(len(self.sensors)))


def answer(question: Question, feeds: Mapping[str, Feed]) -> Answer:
    """Return what a question's surface holds, by the book (design section 4).

    Parameters
    ----------
    question
        Every parameter is a plain number, every duration text.
    feeds
        Readings by variable.
    """
    clip = dict(question.clip)
    window = None
    if "time" in clip:
        window = parse_instant(clip["time"][0]), parse_instant(clip["time"][1])
    bounded = _ends_over_all(question)
    here = _chain(question, feeds, window, bounded=bounded)
    here = _in_cells(here, feeds[question.variable])
    keep_times = [i for i, (start, _) in enumerate(here.times) if _inside(start, None if bounded else window)]
    keep = list(range(len(here.places)))
    if here.axes:
        bounds = {name: [quanta(edge, _quantum(name), name) for edge in clip[name]] for name in clip if name != "time"}
        keep = [
            i
            for i, place in enumerate(here.grid_places)
            if all(_inside(cell[0], bounds.get(name)) for name, cell in zip(here.axes, place, strict=True))
        ]
        here.axes = {n: [cell for cell in axis if _inside(cell[0], bounds.get(n))] for n, axis in here.axes.items()}
    here.times = [here.times[i] for i in keep_times]
    here.value = [[here.value[i][j] for j in keep] for i in keep_times]
    here.count = [[here.count[i][j] for j in keep] for i in keep_times]
    here.possible = [[here.possible[i][j] for j in keep] for i in keep_times]
    return here


def _inside(corner: int, bounds: Sequence[int] | None) -> bool:
    return bounds is None or bounds[0] <= corner < bounds[1]


def _quantum(name: str) -> Any:  # noqa: ANN401 - one of three texts
    return "uas" if name in ("lat", "lon") else "mm"


def _ends_over_all(question: Question) -> bool:
    for number in range(len(question.steps) - 1, -1, -1):
        step = question.steps[number]
        if step.op == "aggregate" and "time" in dict(step.cells):
            return bool(dict(step.cells)["time"] == "all")
        if step.op == "merge":
            before = Question(question.variable, question.steps[:number])
            return _ends_over_all(before) and all(_ends_over_all(other) for other in step.others)
    return False


def _chain(question: Question, feeds: Mapping[str, Feed], window: Cell | None, *, bounded: bool) -> Answer:
    feed = feeds[question.variable]
    start, stop = feed.extent
    last_in_time = max((number for number, step in enumerate(question.steps) if _in_time_cells(step)), default=-1)
    if bounded and window and last_in_time < 0:
        start, stop = max(start, window[0]), min(stop, window[1])
    whole = window if bounded and window else (start, stop)
    readings = [
        row
        for row in feed.rows
        if row.flag in question.accept_flags and math.isfinite(row.value) and start <= row.start_ns < stop
    ]
    here = Answer([], feed.slice_ns, feed.sensors, readings=readings)
    if feed.slice_ns is None:
        here.times = [(t, t) for t in feed.times_ns if start <= t < stop]
        here = _in_cells(here, feed)
    else:
        here.times = [(i * feed.slice_ns, (i + 1) * feed.slice_ns) for i in _slices(start, stop, feed.slice_ns)]
    for number, step in enumerate(question.steps):
        if _in_time_cells(step):
            here = _interpolate_in_time(step, here, window if bounded and number == last_in_time else None)
        elif step.op == "convert":
            here = _convert(step, here)
        elif step.op == "aggregate":
            here = _aggregate(step, here, whole, intervals=feed.slice_ns is not None)
        elif step.op == "interpolate":
            here = _interpolate(step, _in_cells(here, feed), is_lonlat=feed.is_lonlat)
        else:
            here = _merge(step, here, _chain(step.others[0], feeds, window, bounded=bounded and number > last_in_time))
            if not (bounded and window):
                (begin, _), (last, end) = here.times[0], here.times[-1]
                whole = (begin, max(end, last + 1))
    return here


def _slices(start: int, stop: int, step: int) -> range:
    return range(start // step, (stop + step - 1) // step)


def _in_cells(here: Answer, feed: Feed) -> Answer:
    """Return readings as cells: the first one of each slice, or the one of each instant."""
    if here.readings is None:
        return here
    if feed.slice_ns is None:
        by_place = {(row.start_ns, row.sensor): row.value for row in here.readings}
        places = range(len(here.sensors))
        here.value = [[by_place.get((t, i), math.nan) for i in places] for t, _ in here.times]
        here.count = [[int((t, i) in by_place) for i in places] for t, _ in here.times]
        here.possible = [[1 for _ in places] for _ in here.times]
        here.readings = None
        return here
    return _aggregate_readings("first", here, here.times, feed.slice_ns, 0.0)


def _apply(step: Step, value: float) -> float:
    given = dict(step.params)
    if step.name == "valid_range":
        return value if given["low"] <= value <= given["high"] else math.nan
    return value * float(given["factor"]) + float(given.get("offset", 0.0))


def _convert(step: Step, here: Answer) -> Answer:
    if here.readings is None:
        here.value = [[_apply(step, value) for value in line] for line in here.value]
        return here
    changed = [Row(r.sensor, r.start_ns, r.stamp_ns, _apply(step, r.value), r.flag) for r in here.readings]
    here.readings = [row for row in changed if not math.isnan(row.value)]
    return here


def _time_cells(spec: Any, here: Answer, whole: Cell) -> tuple[list[Cell], int]:  # noqa: ANN401 - a step's cells are JSON
    source_start, source_stop = here.times[0][0], max(end for _, end in here.times)
    if here.step_ns is None:
        source_stop += 1
    if spec != "all":
        step = parse_duration(spec["step"] if isinstance(spec, Mapping) else spec)
        length = parse_duration(spec["length"]) if isinstance(spec, Mapping) else step
        starts = range(source_start // step * step, source_stop, step)
        return [(start, start + length) for start in starts], step
    start, stop = whole
    if here.readings is None and here.step_ns is not None:
        # Whole source cells only: the cells at the edge are partial.
        length = here.times[0][1] - here.times[0][0]
        lattice = here.times[0][0] % here.step_ns
        edges = [(start - lattice) % here.step_ns, (stop - lattice) % here.step_ns]
        fits = all(edge == 0 or edge >= length for edge in edges)
        if length > here.step_ns:
            fits = edges[0] == 0 and stop - start >= length and (stop - start - length) % here.step_ns == 0
        if not fits:
            while (start - lattice) % here.step_ns:
                start -= 1_000_000_000
            end = start + length
            while end < stop:
                end += here.step_ns
            stop = end
    return [(start, stop)], stop - start


def _hash(key: int) -> int:
    key = (key + 0x9E3779B97F4A7C15) % WORD
    key = (key ^ (key >> 30)) * 0xBF58476D1CE4E5B9 % WORD
    key = (key ^ (key >> 27)) * 0x94D049BB133111EB % WORD
    return key ^ (key >> 31)


def _cell_hash(first: int, second: int) -> int:
    return _hash((_hash(first % WORD) + 0x9E3779B97F4A7C15 * second) % WORD)


def _place_key(here: Answer, place: Place | int) -> int:
    if isinstance(place, int):
        return int(token(here.sensors[place].series)[:16], 16)
    key = place[-1][0] % WORD
    for cell in place[-2::-1]:
        key = _cell_hash(cell[0], key)
    return key


def _reduce(
    name: str, values: list[float], cell: int, params: Params = (), weights: list[float] | None = None
) -> float:
    """Return the aggregate of values in order of time; `cell` is the cell's hash; a mean weighs values by weights."""
    given = dict(params)
    if name == "count":
        return float(len(values))
    if not values or (name == "variance" and len(values) < 2):
        return math.nan
    if name == "variance":
        return float(statistics.variance(values))
    if name == "median":
        return float(statistics.median(values))
    if name == "quantile":
        return _quantile(sorted(values), given["q"])
    if name == "exceedance":
        return sum(value > float(given["threshold"]) for value in values) / len(values)
    total = math.fsum(values)
    mean = total / len(values)
    if weights is not None:
        mean = math.fsum(map(operator.mul, weights, values)) / math.fsum(weights)
    return {
        "mean": mean, "sum": total, "min": min(values), "max": max(values), "first": values[0],
        "last": values[-1], "sample": values[cell % len(values)],
    }[name]  # fmt: skip


def _quantile(ordered: list[float], share: float) -> float:
    place = share * (len(ordered) - 1)
    low = math.floor(place)
    above = ordered[min(low + 1, len(ordered) - 1)]
    return ordered[low] + (place - low) * (above - ordered[low])


def _enough(count: int, possible: int, share: float) -> bool:
    return Fraction(count) >= Fraction(str(share)) * possible


def _aggregate_readings(
    name: str, here: Answer, cells: list[Cell], step: int, share: float, params: Params = ()
) -> Answer:
    result = Answer(cells, step, here.sensors)
    by_sensor: list[list[Row]] = [[] for _ in here.sensors]
    for row in sorted(here.readings or [], key=lambda row: row.start_ns):
        by_sensor[row.sensor].append(row)
    for start, stop in cells:
        lines: tuple[list[float], list[int], list[int]] = ([], [], [])
        for number, rows in enumerate(by_sensor):
            values = [row.value for row in rows if start <= row.start_ns < stop]
            interval = round(here.sensors[number].series.interval_s * 1e9)
            possible = max((stop - start) // interval, 1) if interval else 0
            value = _reduce(name, values, _cell_hash(start, _place_key(here, number)), params)
            lines[0].append(value if _enough(len(values), possible, share) else math.nan)
            lines[1].append(len(values))
            lines[2].append(possible)
        result.value.append(lines[0])
        result.count.append(lines[1])
        result.possible.append(lines[2])
    return result


def _aggregate(step: Step, here: Answer, whole: Cell, *, intervals: bool) -> Answer:
    cells = dict(step.cells)
    default = MIN_COVERAGE.get(step.name, 0.0) if intervals else 0.0
    share = float(dict(step.params).get("min_coverage", default))
    times, time_step = _time_cells(cells["time"], here, whole) if "time" in cells else (here.times, here.step_ns)
    if here.readings is not None:
        assert time_step is not None
        return _aggregate_readings(step.name, here, times, time_step, share, step.params)
    axes = {name: _space_cells(name, cells.get(name), axis) for name, axis in here.axes.items()}
    heights = [round(sensor.elevation_m * 1000) for sensor in here.sensors if math.isfinite(sensor.elevation_m)]
    if "z" in cells and not here.axes:
        axes = {"z": _levels(cells["z"], min(heights), max(heights) + 1)}
    result = Answer(times, time_step, here.sensors, axes)
    weights_of = _sizes(here, axes)
    for number, cell in enumerate(times):
        slices = [number] if "time" not in cells else [i for i, part in enumerate(here.times) if _within(part, cell)]
        lines: tuple[list[float], list[int], list[int]] = ([], [], [])
        for place in result.places:
            shared = 1
            if isinstance(place, int):
                sources = [place]
            elif not here.axes:
                sources = [i for i, sensor in enumerate(here.sensors) if _is_between(sensor.elevation_m, place[0])]
                shared = len(sources)
            else:
                sources = [
                    i
                    for i, cell in enumerate(here.grid_places)
                    if all(itertools.starmap(_within, zip(cell, place, strict=True)))
                ]
                for name, along in zip(axes, place, strict=True):
                    shared *= _possible(here.axes[name], axes[name], along)
            known = [(i, j) for i in slices for j in sources if math.isfinite(here.value[i][j])]
            values = [here.value[i][j] for i, j in known]
            weights = [weights_of[j] for _, j in known] if weights_of else None
            possible = shared
            if "time" in cells:
                possible *= len(slices) if here.step_ns is None else _lattice(here, cell)
            value = _reduce(step.name, values, _cell_hash(cell[0], _place_key(result, place)), step.params, weights)
            lines[0].append(value if _enough(len(values), possible, share) else math.nan)
            lines[1].append(len(values))
            lines[2].append(possible)
        result.value.append(lines[0])
        result.count.append(lines[1])
        result.possible.append(lines[2])
    return result


def _sizes(here: Answer, axes: Mapping[str, list[Cell]]) -> list[float]:
    """Return the sizes of the cells of a grid up to a factor: of a row a slab of a ball, of a level its height."""
    found = [1.0] * len(here.grid_places)
    for at, name in enumerate(here.axes):
        if name in ("lat", "z") and here.axes[name] != axes[name]:
            for i, place in enumerate(here.grid_places):
                south, north = (math.sin(math.radians(edge / 3.6e9)) for edge in place[at])
                found[i] *= north - south if name == "lat" else float(place[at][1] - place[at][0])
    return found


def _is_between(height_m: float, band: Cell) -> bool:
    return math.isfinite(height_m) and band[0] <= round(height_m * 1000) < band[1]


def _possible(source: list[Cell], target: list[Cell], cell: Cell) -> int:
    """Return how many cells of a source could lie in a cell of the target."""
    lengths = {end - start for start, end in source}
    if source == target or len(lengths) > 1:
        return sum(_within(part, cell) for part in source)
    return (cell[1] - cell[0]) // lengths.pop()


def _within(part: Cell, cell: Cell) -> bool:
    if part[0] == part[1]:
        return cell[0] <= part[0] < cell[1]
    return cell[0] <= part[0] and part[1] <= cell[1]


def _lattice(here: Answer, cell: Cell) -> int:
    """Return how many source cells would lie in a cell if the source went on for ever."""
    assert here.step_ns is not None
    length = here.times[0][1] - here.times[0][0]
    start = here.times[0][0] + (cell[0] - here.times[0][0]) // here.step_ns * here.step_ns
    found = 0
    while start + length <= cell[1]:
        found += start >= cell[0]
        start += here.step_ns
    return found


def _space_cells(name: str, spec: Any, axis: list[Cell]) -> list[Cell]:  # noqa: ANN401 - a step's cells are JSON
    if spec is None:
        return axis
    if name == "z":
        return _levels(spec, axis[0][0], axis[-1][1])
    if spec == "all":
        return [(axis[0][0], axis[-1][1])]
    step = quanta(spec, _quantum(name), "cells")
    return [(start, start + step) for start in range(axis[0][0] // step * step, axis[-1][1], step)]


def _levels(spec: Any, low: int, high: int) -> list[Cell]:  # noqa: ANN401 - a step's cells are JSON
    """Return levels over a source from `low` to `high` [mm]; numbers are metres, steps start at sea level."""
    if spec == "all":
        return [(low, high)]
    if isinstance(spec, Mapping) and "edges" in spec:
        edges = [edge * 1000 for edge in spec["edges"]]
        return list(itertools.pairwise(edges))
    if isinstance(spec, Mapping):
        start, step = spec["start"] * 1000, spec["step"] * 1000
        return [(start + i * step, start + (i + 1) * step) for i in range(spec["count"])]
    step = spec * 1000
    return [(start, start + step) for start in range(low // step * step, high, step)]


def _interpolate(step: Step, here: Answer, *, is_lonlat: bool) -> Answer:
    made = grid(**dict(step.cells))
    given = dict(step.params)
    axes = {axis.name: [(int(c), int(c) + axis.length) for c in axis.corners] for axis in (made.y, made.x)}
    rate, levels = 0.0, dict(step.cells).get("z")
    if levels is not None:
        rate, axes = given["trend"]["lapse_rate"] / 1e6, {"z": _levels(levels, 0, 0), **axes}
    result = Answer(here.times, here.step_ns, here.sensors, axes)
    unit = 3.6e9 if is_lonlat else 1e3
    middles = [[(cell[0] + cell[1]) / 2 for cell in place] for place in result.grid_places]
    centres = [(middle[-1] / unit, middle[-2] / unit) for middle in middles]
    # What the trend says at a height [mm] is taken off and added again.
    rises = [rate * middle[0] if rate else 0.0 for middle in middles]
    # The plane is around all that have a place, also those of which no height is known.
    located = [i for i, s in enumerate(here.sensors) if math.isfinite(s.x) and math.isfinite(s.y)]
    everyone_m, points_m = plane(
        [(here.sensors[i].x, here.sensors[i].y) for i in located], centres, is_lonlat=is_lonlat
    )
    placed = [i for i in located if not rate or math.isfinite(here.sensors[i].elevation_m)]
    stations_m = [everyone_m[located.index(i)] for i in placed]
    most = given.get("neighbours") or len(placed)
    for line in here.value:
        values = [line[i] - (rate * here.sensors[i].elevation_m * 1000 if rate else 0.0) for i in placed]
        present = sum(map(math.isfinite, values))
        found = krige(stations_m, values, points_m, given["variogram"], most)
        result.value.append(list(map(operator.add, found, rises)))
        result.count.append([min(present, most)] * len(centres))
        result.possible.append([min(len(placed), most)] * len(centres))
    return result


def _in_time_cells(step: Step) -> dict[str, Any]:
    cells = dict(step.cells)
    return cells if step.op == "interpolate" and set(cells) == {"time"} else {}


def _interpolate_in_time(step: Step, here: Answer, window: Cell | None) -> Answer:
    length, given = parse_duration(_in_time_cells(step)["time"]), dict(step.params)
    stop = max(end for _, end in here.times) + (here.step_ns is None)
    instants = [t for t in range(here.times[0][0] // length * length, stop, length) if _inside(t, window)]
    result = Answer([(t, t + 1) for t in instants], length, here.sensors)
    series: list[list[tuple[int, float]]] = [[] for _ in here.sensors]
    for row in sorted(here.readings or [], key=lambda row: row.stamp_ns):
        series[row.sensor].append((_stands(row, here.sensors[row.sensor]), row.value))
    if here.readings is None:
        for (start, end), line in zip(here.times, here.value, strict=True):
            for number, value in enumerate(line):
                series[number].append(((start + end) // 2, value))
    most = {"nearest": 1, "linear": 2, "spline": 4}[step.name]
    for t in instants:
        found = [in_time(step.name, readings, t, parse_duration(given["max_gap"])) for readings in series]
        result.value.append([value for value, _ in found])
        result.count.append([count for _, count in found])
        result.possible.append([1 if count == 1 else most for _, count in found])
    return result


def _stands(row: Row, sensor: Sensor) -> int:
    """Return where in time a reading stands: a sample at its stamp, a mean in the middle of its interval."""
    half = round(sensor.series.interval_s * 1e9) // 2
    return row.stamp_ns - half if sensor.series.statistic == "mean" and sensor.series.stamp == "end" else row.stamp_ns


def _merge(step: Step, first: Answer, second: Answer) -> Answer:
    times = [cell for cell in first.times if cell in second.times]
    result = Answer(times, first.step_ns, first.sensors, first.axes)
    for cell in times:
        i, j = first.times.index(cell), second.times.index(cell)
        pairs = zip(first.value[i], second.value[j], strict=True)
        if step.name == "difference":
            result.value.append([a - b for a, b in pairs])
        else:
            result.value.append([a / b if b else math.nan for a, b in pairs])
        for table, one, other in (
            (result.count, first.count, second.count),
            (result.possible, first.possible, second.possible),
        ):
            table.append([min(a, b) for a, b in zip(one[i], other[j], strict=True)])
    return result
