"""A question and its data to a chain of perspectives: every topology known, everything checked, nothing computed."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

import numpy as np

from hypergrid.core.errors import HyperGridError, InvalidQuery, NotFound
from hypergrid.interpolation import Variogram
from hypergrid.interpolation.methods.detrended import refuse_variance
from hypergrid.interpolation.methods.station_selection import PARAMETERS as SELECTION
from hypergrid.interpolation.methods.station_selection import parse_selection
from hypergrid.interpolation.solvers.trend import ELEVATION, trend_of
from hypergrid.core.parameters import bind
from hypergrid.perspective.functions.aggregates import AGGREGATES, AggregateRow
from hypergrid.perspective.spec.cell_specs import space_cells, time_cells
from hypergrid.perspective.build.aggregate_checks import (
    check_aggregate,
    declared_of,
    longest_interval_ns,
    refuse_directions,
    refuse_longer,
    refuse_odd_totals,
)
from hypergrid.perspective.functions.rows import CONVERTS
from hypergrid.perspective.build.vertical import (
    bands_of,
    layers_on_levels,
    refuse_alike,
    refuse_far_levels,
    refuse_moved,
)
from hypergrid.perspective.build.instants import interpolate_in_time
from hypergrid.perspective.sources.interval_spans import has_intervals, span_of, starts_of
from hypergrid.perspective.build.plan_memo import Known, about, written
from hypergrid.perspective.functions.merges import MERGES
from hypergrid.perspective.build.merge_step import check_sources, merge
from hypergrid.perspective.tree.operators import Aggregate, Base, Call, Convert, Interpolate, Source
from hypergrid.perspective.build.overlapping_values import refuse_overlapping
from hypergrid.perspective.tree.perspective import Perspective
from hypergrid.perspective.build.station_projection import Reach, place, reach_of
from hypergrid.perspective.build.recipes import expanded
from hypergrid.perspective.build.restrict import narrowed, readings_around
from hypergrid.perspective.spec.query_spec import GRID_KEYS, Question, Step
from hypergrid.perspective.tree.surface import Clip, Surface
from hypergrid.perspective.spec.time_specs import comes_as, is_periodic
from hypergrid.perspective.build.uncertainty_spec import Memory, check_variance, parse_memory
from hypergrid.core.times import SECOND_NS, Window, format_duration, format_instant, parse_instant
from hypergrid.topology import Bands, Grid, Instants, Periodic, Points, Regular, SeriesAxis, Space, TimeAxis, Topology, ZoneCells, axes_of, cells_from_json, levels_words, quanta, shortest_ns, zones  # fmt: skip
from hypergrid.layers.layer import Layer  # fmt: skip
from hypergrid.topology.bins import civil_day_ns
from hypergrid.core.units import parse_number

Lookup = Callable[[Question], Source]
"""Finds the source of a question's variable; raises NotFound where it does not exist."""

REACH_RANGES: Final = 3.0
"""How many ranges of the variogram a grid may lie from the nearest station; beyond, every estimate is the mean."""


def build(question: Question, lookup: Lookup, known: Known | None = None) -> Surface:
    """Return the surface that a question asks for; what it has in common with others built is taken from `known`.

    A clip in time bounds the readings where the last aggregate is over "all" or cells that come again; elsewhere it
    selects cells by their corner (design section 4). Where a step interpolates in time, it bounds the instants, and
    readings around them are used. It never bounds what a climatology in a merge is of: that has a clip of its own.

    Raises
    ------
    HyperGridError
        Whatever is known to be wrong before anything runs: unknown names, parameters that do not fit, cells that
        cut their source's, a grid that misses all stations, a time range without readings.
    """
    question = expanded(question)
    window = _clip_window(question)
    bounded = _is_over_all(question)
    memory = parse_memory(question.correlation_time)
    builder = _Builder(lookup, window, question.variance, memory, known=Known() if known is None else known)
    perspective = builder.chain(question, bounded=bounded)
    if question.variance:
        check_variance(perspective)
    return Surface(perspective, _clip(question, perspective, None if bounded else window))


def _clip_window(question: Question) -> Window | None:
    bounds = dict(question.clip).get("time")
    return Window(parse_instant(bounds[0]), parse_instant(bounds[1])) if bounds else None


def _is_over_all(question: Question) -> bool:
    """Return whether the last aggregate over time is over all of it, in one cell or in cells that come again."""
    for number, step in reversed(list(enumerate(question.steps))):
        cells = dict(step.cells) if step.op == "aggregate" else {}
        if "time" in cells:
            return bool(cells["time"] == "all") or is_periodic(cells["time"])
        if step.op == "merge":
            before = _before(question, number)
            alike = (other for other in step.others if not _is_normal(other, before))
            return all(_is_over_all(source) for source in (before, *alike))
    return False


def _before(question: Question, number: int) -> Question:
    """Return the steps of a question before one of them."""
    return replace(question, steps=question.steps[:number], clip=())


def _is_normal(other: Question, before: Question) -> bool:
    """Return whether a query in a merge is a climatology, of which each cell before it takes the one that it lies in.

    That is one over all of time, or over cells that come again, where what it is merged with has other cells, or where
    it has a clip of its own.
    """
    cells, own = _time_cells(other), _time_cells(before)
    if cells != "all" and not is_periodic(cells):
        return False
    return "time" in dict(other.clip) or not (cells == own or comes_as(cells, own))


def _time_cells(question: Question) -> object:
    """Return what the last aggregate over time was given, None where there is none, or instants follow it."""
    for step in reversed(question.steps):
        cells = dict(step.cells).get("time") if step.op == "aggregate" else None
        if step.is_in_time:
            return None
        if cells is not None:
            return cells
    return None


def _looks_back_at_cells(question: Question, base: Perspective) -> bool:
    """Return whether an aggregate takes cells from before its own; one that takes readings widens what is read."""
    changing = [step for step in question.steps if step.op in ("aggregate", "interpolate")]
    over_cells = changing[1:] if base.holds_readings else changing
    return any(step.op == "aggregate" and AGGREGATES[step.name].reach_ns for step in over_cells)


@dataclass(frozen=True)
class _Builder:
    lookup: Lookup
    window: Window | None
    """The clip in time."""
    variance: bool
    memory: Memory
    within: str = ""
    """The steps of the queries around this one, in words."""
    known: Known = field(default_factory=Known)

    def chain(self, question: Question, *, bounded: bool) -> Perspective:
        in_time = [number for number, step in enumerate(question.steps, start=1) if step.is_in_time]
        last_in_time = max(in_time, default=0)
        # An instant in the clip needs readings around it: so these are bounded only where nothing fills gaps.
        here = self.base(question, bounded=bounded and not in_time)
        looks_back = bounded and _looks_back_at_cells(question, here)
        if looks_back:
            here = self.base(question, bounded=False)
        whole = self.window if bounded and self.window else here.operator.window  # type: ignore[union-attr]
        for number, step in enumerate(question.steps, start=1):
            label = f"{self.within}step {number} ({step.op} {step.name!r})"
            try:
                if step.is_in_time:
                    refuse_directions(f"interpolating directions by {step.name}", here)
                    here = interpolate_in_time(step, here, self.window if bounded and number == last_in_time else None)
                    here = replace(here, steps=(label,))
                else:
                    inside = replace(self, within=f"{label}: ")
                    before = _before(question, number - 1)
                    is_bounded = bounded and number > last_in_time
                    make = partial(inside.step, step, here, whole, before, bounded=is_bounded, narrow=looks_back)
                    # What a merge is depends on the steps before it, too, and those that it merges share what they can.
                    bounds = is_bounded and self.window is not None
                    key = ("step", here, label, written(step), whole, bounds, looks_back, *self.settings)
                    here = make() if step.op == "merge" else self.known.once(key, make)
                if step.op == "merge" and not (bounded and self.window):
                    # From here on, all is what both sources have.
                    whole = Window(here.topology.time.origin, here.topology.time.stop)
            except HyperGridError as error:
                message = f"step {number} ({step.op} {step.name!r}): {error}"
                raise type(error)(message) from error
        return here

    def base(self, question: Question, *, bounded: bool) -> Perspective:
        key = ("base", about(question), self.window, bounded and self.window is not None)
        return self.known.once(key, lambda: self._base(question, bounded=bounded))

    def _base(self, question: Question, *, bounded: bool) -> Perspective:
        source = self.lookup(question)
        extent = source.extent
        if extent is None:
            message = f"variable {question.variable!r} has no readings in this snapshot"
            raise InvalidQuery(message)
        inside = extent.intersect(self.window) if self.window else extent
        window = inside if bounded else extent
        time = source.time_axis(window) if inside and window else None
        if time is None or window is None:
            wanted = self.window or extent
            message = (
                f"no reading of {question.variable!r} lies in {format_instant(wanted.start_ns)} to "
                f"{format_instant(wanted.stop_ns)}; readings run from {format_instant(extent.start_ns)} to "
                f"{format_instant(extent.stop_ns)}"
            )
            raise InvalidQuery(message)
        if isinstance(time, Instants):
            # What begins within the window may be stamped after it.
            window = Window(time.origin, time.stop)
        # Positions are those of the cells that are asked for, also where more is read and then clipped.
        topology = Topology(time, self.known.same(source.series_axis(inside or window)))
        return Perspective((), topology, Base(source, window, question.accept_flags), source.variable.unit)

    @property
    def settings(self) -> tuple[Window | None, bool, Memory]:
        """What the steps of a chain are made with, besides the steps before them."""
        return self.window, self.variance, self.memory

    def step(
        self, step: Step, here: Perspective, whole: Window, before: Question, *, bounded: bool, narrow: bool
    ) -> Perspective:
        if step.op == "convert":
            made = _convert(step, here)
        elif step.op == "aggregate":
            made = _aggregate(step, here, whole, whole.start_ns if bounded and self.window else None)
        elif step.op == "interpolate":
            if step.others:
                message = (
                    f"{step.name} interpolates one query; got {len(step.others)} more: only a recipe of two takes one"
                )
                raise InvalidQuery(message)
            made = self.interpolated(step, here)
        else:
            made = self.merged(step, here, before, bounded=bounded)
        if narrow and dict(step.cells).get("time") == "all":
            made = narrowed(made)
        return replace(made, steps=(self.within.removesuffix(": "),))

    def interpolated(self, step: Step, here: Perspective) -> Perspective:
        """Return an interpolation; where it lies among the stations no slice changes."""
        make = partial(_interpolation, step, here, variance=self.variance, memory=self.memory)
        key = ("interpolation", here.topology.space, here.unit, written(step), self.variance, self.memory)
        operator, cells = self.known.lasting(key, make, only=lambda made: not made[0].layers)
        return Perspective((here,), Topology(here.topology.time, cells), operator, here.unit)

    def merged(self, step: Step, here: Perspective, before: Question, *, bounded: bool) -> Perspective:
        """Return a merge; a climatology is of all its readings, or of those in its own clip."""
        check_sources(step.name, len(step.others))
        sources, normal = [here], set()
        for number, other in enumerate(step.others, start=1):
            if other.variance:
                message = "variance belongs to the surface, not to a query in 'with'; remove it there"
                raise InvalidQuery(message)
            if not _is_normal(other, before):
                if other.clip:
                    message = (
                        "a query in 'with' takes the clip of the query around it; remove its own: only a climatology "
                        "(over 'all', or cells that come again) has one, in time"
                    )
                    raise InvalidQuery(message)
                sources.append(self.chain(other, bounded=bounded))
                continue
            window = _clip_window(other)
            if set(dict(other.clip)) - {"time"}:
                message = "a climatology in 'with' can be clipped in time alone; in space the query around it is"
                raise InvalidQuery(message)
            sources.append(replace(self, window=window).chain(other, bounded=window is not None))
            normal.add(number)
        given = bind(step.name, MERGES[step.name].parameters, dict(step.params), variable_unit=here.unit)
        return merge(step.name, tuple(sources), normal=frozenset(normal), given=given)


def _convert(step: Step, here: Perspective) -> Perspective:
    row = CONVERTS[step.name]
    given = bind(step.name, row.parameters, dict(step.params), variable_unit=here.unit)
    if step.name in ("valid_range", "limit") and given["high"] is not None and given["low"] > given["high"]:
        message = f"{step.name} needs low not above high; got {given['low']:g} to {given['high']:g}"
        raise InvalidQuery(message)
    operator = Convert((Call.of(step.name, given),), _ground(step, here) if row.placed else ())
    return Perspective((here,), here.topology, operator, row.unit(here.unit, given))


def _ground(step: Step, here: Perspective) -> tuple[tuple[str, str], ...]:
    """Return the layer of elevation that a function of place and time uses; none where there is none."""
    base = here.bases()[0]
    space = base.topology.space
    if here.holds_readings:
        message = f"{step.name} needs time cells, to know where the sun is; align the readings with an aggregate first"
        raise InvalidQuery(message)
    if isinstance(here.topology.time, Periodic):
        message = (
            f"{step.name} needs time cells that lie somewhere in time, to know where the sun is; its source is by "
            f"{here.topology.time.describe()}: convert before that aggregate"
        )
        raise InvalidQuery(message)
    if isinstance(here.topology.space, ZoneCells | Bands):
        kind = "zone" if isinstance(here.topology.space, ZoneCells) else "band"
        message = f"{step.name} needs the place of each value; a {kind} has many: put it before that aggregate"
        raise InvalidQuery(message)
    if isinstance(space, SeriesAxis) and space.system != "lonlat":
        message = f"{step.name} needs positions as lon and lat [degree]; these stations have x and y in metres"
        raise InvalidQuery(message)
    try:
        return ((ELEVATION, base.operator.source.layer(ELEVATION).token),)  # type: ignore[union-attr]
    except NotFound:
        return ()


def _aggregate(step: Step, here: Perspective, whole: Window, since_ns: int | None) -> Perspective:
    cells = dict(step.cells)
    if not cells:
        message = "an aggregate needs cells, for example time='10min'; got none"
        raise InvalidQuery(message)
    row = AGGREGATES[step.name]
    coverage, given = _parameters_of(step, row, here)
    time: TimeAxis = here.topology.time
    space = here.topology.space
    along = {name: spec for name, spec in cells.items() if name != "time"}
    if "time" in cells:
        stations = here.bases()[0].topology.space
        named = stations if isinstance(stations, SeriesAxis) else None
        laid: TimeAxis = time
        exact = here.holds_readings
        if isinstance(time, Instants) and isinstance(space, SeriesAxis) and has_intervals(time, space) and not along:
            # Readings are assigned by the starts of their intervals: by its stamp, the first would be in no cell.
            begun = starts_of(time.times_ns, space)
            length_ns = begun.stop_ns - begun.start_ns
            laid, exact = Regular("time", begun.start_ns, length_ns, 1, length_ns), True
            whole = whole if since_ns is not None else span_of(time.times_ns, space)
        time = time_cells(cells["time"], laid, whole, exact=exact, stations=named)
    if along:
        space = _coarser(along, space, variable=here)
    unit = row.unit(here.unit, given)
    check_aggregate(row, tuple(cells), here)
    if "time" in cells:
        refuse_overlapping(row, here)
    given = {**given, **declared_of(row, here, given)}
    given = given if row.settle is None else dict(row.settle(given, longest_interval_ns(here)))
    if "time" in cells and (here.holds_readings or isinstance(here.topology.time, Instants)):
        _refuse_short(time, here, whole)
        if cells["time"] != "all":
            refuse_odd_totals(row, time, here)
    known = tuple(sorted((name, value) for name, value in given.items() if value is not None))
    operator = Aggregate(step.name, tuple(cells), _coverage(coverage, row, here), known)
    if cells.get("time", "all") != "all":
        refuse_longer(time, here, operator.min_coverage)
    if since_ns is not None and row.reach_ns and here.holds_readings:
        # Readings around the clip tell what those within it grew by, and are in no cell.
        operator = replace(operator, since_ns=since_ns, until_ns=whole.stop_ns)
        here = readings_around(here, operator.reach_ns)
    return Perspective((here,), Topology(time, space), operator, unit)


def _parameters_of(step: Step, row: AggregateRow, here: Perspective) -> tuple[object, dict[str, Any]]:
    """Return the coverage that an aggregate asks for, None where it does not, and its other parameters, checked."""
    params = dict(step.params)
    coverage = params.pop("min_coverage", None)
    names = [parameter.name for parameter in row.parameters]
    for name in params:
        if name not in names:
            raise NotFound.among(kind=f"parameter of {step.name}", given=name, existing=[*names, "min_coverage"])
    return coverage, bind(step.name, row.parameters, params, variable_unit=here.unit)


def _coarser(along: Mapping[str, Any], space: Space, *, variable: Perspective) -> Grid | ZoneCells | Bands:
    if isinstance(space, Points):
        message = (
            f"an aggregate over {', '.join(along)} needs the cells of a grid, and its source is at points; interpolate "
            "onto a grid before it, or aggregate over time alone"
        )
        raise InvalidQuery(message)
    if "z" in along and (isinstance(space, SeriesAxis) or (isinstance(space, Grid) and space.z is None)):
        return bands_of(along, variable)
    if isinstance(space, Bands):
        message = "its source is made of bands already; make the bands that are wanted of what these hold"
        raise InvalidQuery(message)
    if not isinstance(space, Grid) or variable.holds_readings:
        message = f"an aggregate over {', '.join(along)} needs a grid; interpolate before it"
        raise InvalidQuery(message)
    if "zones" in along:
        if len(along) > 1:
            message = f"zones are cells in place of {', '.join(set(along) - {'zones'})}; give one or the other"
            raise InvalidQuery(message)
        if space.z is not None and space.z.count > 1:
            message = f"zones lie on one level, this grid has {levels_words(space.z)}; aggregate with z='all' first"
            raise InvalidQuery(message)
        return _zones_on(ZoneCells(zones(along["zones"]), space))
    axes = {axis.name: axis for axis in space.axes}
    for name, spec in along.items():
        if name not in axes:
            raise NotFound.among(kind="dimension of this grid", given=name, existing=axes)
        axes[name] = space_cells(name, spec, axes[name])
    return space.along(list(axes.values()))


def _zones_on(cells: ZoneCells) -> ZoneCells:
    """Return zones, refused where the grid holds nothing of any: every value would be missing."""
    if not cells.held.any():
        names = ", ".join(cells.zones.names[:5]) + (", …" if cells.count > 5 else "")
        grid = cells.grid
        message = (
            f"none of the {cells.count} zones ({names}) lies on the grid, which is within {_span(grid.x.bounds)}, "
            f"{_span(grid.y.bounds)} ({grid.x.name}, {grid.y.name}); the zones are around "
            f"{cells.x.mean():.6g}, {cells.y.mean():.6g}: give zones of the grid's area, or move the grid"
        )
        raise InvalidQuery(message)
    return cells


def _coverage(given: object, row: AggregateRow, here: Perspective) -> float:
    if given is None:
        carried = all(base.operator.source.carries_intervals for base in here.bases())  # type: ignore[union-attr]
        return row.min_coverage if carried else 0.0
    share = parse_number(given, "", who="'min_coverage'")
    if not 0 <= share <= 1:
        message = f"'min_coverage' needs a share from 0 to 1; got {given!r}"
        raise InvalidQuery(message)
    return share


def _refuse_short(time: TimeAxis, here: Perspective, whole: Window) -> None:
    """Refuse cells shorter than the intervals that their readings stand for: each would claim the whole interval."""
    space = here.topology.space
    if isinstance(time, Instants) or not isinstance(space, SeriesAxis):
        return
    longest = max((series.interval_s for series in space.series if series.statistic != "sample"), default=0.0)
    # Whole days by the clock of a zone hold totals of a day, also the one of 23 hours.
    length_ns = civil_day_ns(time) or shortest_ns(time)
    stamps = here.topology.time
    if isinstance(stamps, Instants) and stamps.count > 1 and isinstance(time, Regular) and time.count == 1:
        # What there is of an array is from its first stamp to its last, however far back the first interval reaches.
        length_ns = min(length_ns, stamps.stop - 1 - stamps.origin)
    there_ns = round(length_ns / SECOND_NS) * SECOND_NS
    if longest * SECOND_NS > length_ns and isinstance(time, Regular) and time.length == whole.stop_ns - whole.start_ns:
        message = (
            f"readings of {here.bases()[0].operator.source.variable.name!r} stand for {longest:.12g} s each, longer "  # type: ignore[union-attr]
            f"than the {format_duration(there_ns)} that there are: nothing can be made of all of it; ask for more, "
            "or .select(interval_s=…) series of shorter intervals"
        )
        raise InvalidQuery(message)
    if longest * SECOND_NS > length_ns:
        message = (
            f"time cells of {format_duration(length_ns)} are shorter than the {longest:.12g} s that readings of "
            f"{here.bases()[0].operator.source.variable.name!r} stand for; choose longer cells"  # type: ignore[union-attr]
        )
        raise InvalidQuery(message)


def _interpolation(
    step: Step, here: Perspective, *, variance: bool, memory: Memory
) -> tuple[Interpolate, Grid | Points]:
    """Return how a step interpolates, and onto which cells, checked."""
    stations = here.topology.space
    if not isinstance(stations, SeriesAxis):
        kind = {Bands: "made of bands", Points: "at points"}.get(type(stations), "a grid")
        message = f"its source is {kind} already; interpolate once, from the stations"
        raise InvalidQuery(message)
    refuse_alike(stations)
    if here.unit == "degree":
        message = (
            f"interpolating directions by {step.name} has no meaning: 350 and 10 degree would give 180; "
            "interpolate('recipe', …) takes the components of the wind"
        )
        raise InvalidQuery(message)
    refuse_moved(stations)
    given_grid = dict(step.cells)
    for key in given_grid:
        if key not in GRID_KEYS:
            raise NotFound.among(kind="key of a grid", given=key, existing=GRID_KEYS)
    if "step" not in given_grid:
        message = f"a grid needs a step, such as '1arcsec'; got {given_grid}"
        raise InvalidQuery(message)
    cells = cells_from_json(given_grid)
    grid = cells.grid if isinstance(cells, Points) else cells
    if cells.system != stations.system:
        need = "lon and lat" if stations.system == "lonlat" else "x and y in metres"
        message = f"its stations have {need}; the grid does not: give it {need}"
        raise InvalidQuery(message)
    operator = Interpolate(step.name, (), variance)
    if variance and not operator.row.has_variance:
        message = f"{step.name} has no variance; ask for it with a kriging method"
        raise InvalidQuery(message)
    row = operator.row
    bound = bind(step.name, (*row.parameters, *SELECTION), dict(step.params), variable_unit=here.unit)
    selection = parse_selection(step.name, {item.name: bound.pop(item.name) for item in SELECTION})
    parameters = {**row.parse(bound), **selection}
    if variance:
        refuse_variance(trend_of(parameters))
    _refuse_unplaced(stations)
    reach = reach_of(stations, grid, parameters)
    source = here.bases()[0].operator.source  # type: ignore[union-attr]
    names = row.covariates(parameters)
    if cells.z is not None:
        names = layers_on_levels(step.name, names, stations, source)
    try:
        covariates = {name: source.layer(name) for name in names}
    except NotFound as error:
        if trend_of(parameters) is None:
            raise
        message = f"{error}; a trend needs the elevation of the cells: without it, use trend='none'"
        raise NotFound(message) from error
    layers = tuple((name, layer.token) for name, layer in covariates.items())
    operator = Interpolate(step.name, tuple(sorted(parameters.items())), variance, layers, far=reach.far, memory=memory)
    _refuse_far(grid, stations, operator, reach)
    if cells.z is not None:
        refuse_far_levels(cells.z, stations, covariates.get(ELEVATION))
    for name, layer in covariates.items():
        if cells.z is None or name != ELEVATION:
            _refuse_elsewhere(name, layer, grid)
    return operator, cells


def _refuse_unplaced(stations: SeriesAxis) -> None:
    if not (np.isfinite(stations.x) & np.isfinite(stations.y)).any():
        message = (
            f"none of the {stations.count} stations has a position; name them with lon and lat in the deployment file"
        )
        raise InvalidQuery(message)


def _refuse_far(cells: Grid, stations: SeriesAxis, operator: Interpolate, reach: Reach) -> None:
    placing = place(stations, operator)
    known, nearest = placing.placed, float(np.nanmin(reach.distance_m))
    places = placing.metres.of(np.stack([stations.x, stations.y], axis=1)[placing.near])
    model = operator.given.get("variogram")
    allowed = max(
        float(np.linalg.norm(np.ptp(places, axis=0))),
        reach.diagonal_m,
        REACH_RANGES * model.effective_range_m if isinstance(model, Variogram) else 0.0,
    )
    if not nearest <= allowed:
        names = "lon, lat" if cells.system == "lonlat" else "x, y"
        message = (
            f"the grid misses all {int(known.sum())} stations: the nearest is {nearest / 1000:,.1f} km away; stations "
            f"lie within {_span(stations.x[known])}, {_span(stations.y[known])} ({names})"
        )
        raise InvalidQuery(message)


def _refuse_elsewhere(name: str, layer: Layer, cells: Grid) -> None:
    """Refuse a layer in which no cell lies: every estimate would be missing."""
    if layer.system == cells.system and not layer.covers(x=cells.x.centres, y=cells.y.centres):
        west, south, east, north = layer.bounds
        names = ("lon", "lat") if cells.system == "lonlat" else ("x", "y")
        message = (
            f"layer {name!r} covers no cell of the grid: it lies within {west:.6g} to {east:.6g}, {south:.6g} to "
            f"{north:.6g}, the centres of the grid's cells within {_span(cells.x.centres)}, {_span(cells.y.centres)} "
            f"({', '.join(names)}); give a layer of the grid's area, or move the grid"
        )
        raise InvalidQuery(message)


def _span(values: np.ndarray[Any, np.dtype[np.float64]]) -> str:
    return f"{values.min():.6g} to {values.max():.6g}"


def _clip(question: Question, perspective: Perspective, window: Window | None) -> Clip:
    axes = {axis.name: axis for axis in axes_of(perspective.topology.space)}
    ranges: list[tuple[str, tuple[int, int]]] = []
    for name, (start, stop) in question.clip:
        if name == "time":
            continue
        if name not in axes and isinstance(perspective.topology.space, Points):
            message = f"a clip of {name!r} needs the cells of a grid, and this surface is at points; leave points out"
            raise InvalidQuery(message)
        if name not in axes:
            raise NotFound.among(kind="dimension of this surface to clip", given=name, existing=[*axes, "time"])
        axis = axes[name]
        low, high = quanta(start, axis.quantum, name), quanta(stop, axis.quantum, name)
        if high <= low:
            message = f"clip of {name!r} needs a stop after its start; got {start!r} to {stop!r}"
            raise InvalidQuery(message)
        ranges.append((name, (low, high)))
    clip = Clip(window, tuple(sorted(ranges)))
    selected(perspective.topology, clip)
    return clip


def selected(topology: Topology, clip: Clip) -> tuple[slice, tuple[slice, ...]]:
    """Return which time cells a clip selects, and which cells along each axis of the space, in their order.

    Raises
    ------
    InvalidQuery
        The clip selects no cell.
    """
    window, bounds = (clip.time.start_ns, clip.time.stop_ns) if clip.time else None, dict(clip.space)
    space = tuple(_range(axis, bounds.get(axis.name)) for axis in axes_of(topology.space))
    return _range(topology.time, window), space


def _index(axis: TimeAxis, bound: int) -> int:
    """Return the first cell whose corner is not below a bound; arithmetic, however many cells there are."""
    if isinstance(axis, Regular):
        return min(max(-(-(bound - axis.origin) // axis.step), 0), axis.count)
    return int(np.searchsorted(axis.corners, bound))


def _range(axis: TimeAxis, bounds: tuple[int, int] | None) -> slice:
    if bounds is None:
        return slice(0, axis.count)
    first, stop = (_index(axis, bound) for bound in bounds)
    if stop <= first:
        message = (
            f"the clip along {axis.name!r} selects no cell; the surface has {axis.count} cells, none starts inside it"
        )
        raise InvalidQuery(message)
    return slice(first, stop)
