"""Resolve a question against its data into a chain of perspectives, fully checked."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Final

import numpy as np

from hypergrid.core.errors import HyperGridError, InvalidQuery, NotFound
from hypergrid.core.parameters import bind
from hypergrid.core.times import SECOND_NS, Window, format_duration, format_instant, parse_duration, parse_instant
from hypergrid.core.units import parse_number
from hypergrid.interpolation import AUTO, Variogram, method_in_time
from hypergrid.interpolation.methods.detrended import refuse_variance
from hypergrid.interpolation.methods.station_selection import PARAMETERS as SELECTION
from hypergrid.interpolation.methods.station_selection import parse_selection
from hypergrid.interpolation.solvers.trend import ELEVATION, trend_of
from hypergrid.layers.layer import Layer  # fmt: skip
from hypergrid.perspective.build.aggregate_checks import (
    check_aggregate,
    check_window_coverage,
    find_declared,
    find_longest_interval_ns,
    refuse_directions,
    refuse_odd_totals,
    refuse_overlapping,
)
from hypergrid.perspective.build.data_sources import PlanMemo, format_step, make_base_key
from hypergrid.perspective.build.merge_step import merge
from hypergrid.perspective.build.recipes import expand_recipes
from hypergrid.perspective.build.restrict import (
    INSTANT_NS,
    describe_interval_values,
    find_index,
    narrow_source,
    restrict,
    widen_readings,
)
from hypergrid.perspective.build.station_projection import GridDistance, measure_grid_distance, place_stations
from hypergrid.perspective.build.uncertainty_spec import check_variance
from hypergrid.perspective.build.vertical import (
    list_layers_on_levels,
    make_bands,
    refuse_alike,
    refuse_far_levels,
    refuse_moved,
)
from hypergrid.perspective.functions.aggregates import AGGREGATES, AggregateRow
from hypergrid.perspective.functions.rows import CONVERTS, MERGES
from hypergrid.perspective.sources.array_source import find_span, find_start_window, has_intervals
from hypergrid.perspective.spec.cell_specs import has_same_cells, is_periodic, make_space_cells, make_time_cells
from hypergrid.perspective.spec.correlation_time import Memory, parse_memory
from hypergrid.perspective.spec.python_values import check_ends
from hypergrid.perspective.spec.query_spec import GRID_KEYS, QuerySpec, Step
from hypergrid.perspective.spec.step_checks import check_sources
from hypergrid.perspective.tree import (
    Aggregate,
    Base,
    Call,
    Clip,
    Convert,
    Interpolate,
    InterpolateInTime,
    Perspective,
    Source,
    Surface,
)
from hypergrid.topology import (  # fmt: skip
    Bands,
    Bins,
    Grid,
    Instants,
    Periodic,
    Points,
    Regular,
    SeriesAxis,
    Space,
    TimeAxis,
    Topology,
    ZoneCells,
    axes_of,
    cells_from_json,
    describe_levels,
    shortest_ns,
    zones,
)
from hypergrid.topology.bins import civil_day_ns

Lookup = Callable[[QuerySpec], Source]
"""Returns the source of a question's variable; raises NotFound if it does not exist."""

# Beyond it every estimate is the mean.
REACH_RANGES: Final = 3.0
"""Largest distance of a grid from the nearest station, in ranges of the variogram."""


def build(question: QuerySpec, lookup: Lookup, known: PlanMemo | None = None) -> Surface:
    """Build the surface of a question, sharing cached parts in `known`.

    A clip in time bounds the readings if the last aggregate is over "all" or periodic cells; otherwise it selects cells
    by their corner (design section 4). After an interpolation in time it bounds the instants, and readings around them
    are used. It never bounds a climatology in a merge, which has a clip of its own.

    Raises
    ------
    HyperGridError
        Any error detectable before execution: unknown names, invalid parameters, cells that cut those of their source,
        a grid far from all stations, a time range without readings.
    """
    question = expand_recipes(question)
    window = _clip_window(question)
    bounded = _is_over_all(question)
    memory = parse_memory(question.correlation_time)
    builder = _SurfaceBuilder(lookup, window, question.variance, memory, known=PlanMemo() if known is None else known)
    perspective = builder.build_chain(question, bounded=bounded)
    if question.variance:
        check_variance(perspective)
    return Surface(perspective, _clip(question, perspective, None if bounded else window))


def _clip_window(question: QuerySpec) -> Window | None:
    bounds = dict(question.clip).get("time")
    return Window(parse_instant(bounds[0]), parse_instant(bounds[1])) if bounds else None


def _is_over_all(question: QuerySpec) -> bool:
    """Return whether the last aggregate over time has a single cell or periodic cells."""
    for number, step in reversed(list(enumerate(question.steps))):
        cells = dict(step.cells) if step.op == "aggregate" else {}
        if "time" in cells:
            return bool(cells["time"] == "all") or is_periodic(cells["time"])
        if step.op == "merge":
            before = _cut_before(question, number)
            alike = (other for other in step.others if not is_climatology(other, before))
            return all(_is_over_all(source) for source in (before, *alike))
    return False


def _cut_before(question: QuerySpec, number: int) -> QuerySpec:
    return replace(question, steps=question.steps[:number], clip=())


def is_climatology(other: QuerySpec, before: QuerySpec) -> bool:
    """Return whether a query in a merge is a climatology.

    A climatology is over all time or periodic cells, and either has a clip in time or differs in cells from the query
    it is merged with. Each cell of that query then takes the value of the climatology cell that contains it.
    """
    cells, own = _find_time_cells(other), _find_time_cells(before)
    if cells != "all" and not is_periodic(cells):
        return False
    return "time" in dict(other.clip) or not (cells == own or has_same_cells(cells, own))


def _find_time_cells(question: QuerySpec) -> object:
    """Return the specification of the last time aggregate; None if absent or followed by instants."""
    for step in reversed(question.steps):
        cells = dict(step.cells).get("time") if step.op == "aggregate" else None
        if step.is_in_time:
            return None
        if cells is not None:
            return cells
    return None


def _looks_back_at_cells(question: QuerySpec, base: Perspective) -> bool:
    # An aggregate of readings instead widens the window of the base.
    changing = [step for step in question.steps if step.op in ("aggregate", "interpolate")]
    over_cells = changing[1:] if base.holds_readings else changing
    return any(step.op == "aggregate" and AGGREGATES[step.name].reach_ns for step in over_cells)


@dataclass(frozen=True)
class _SurfaceBuilder:
    lookup: Lookup
    window: Window | None
    """Clip in time."""
    variance: bool
    memory: Memory
    within: str = ""
    """Steps of the surrounding queries, for messages."""
    known: PlanMemo = field(default_factory=PlanMemo)

    def build_chain(self, question: QuerySpec, *, bounded: bool) -> Perspective:
        in_time = [number for number, step in enumerate(question.steps, start=1) if step.is_in_time]
        last_in_time = max(in_time, default=0)
        # An instant within the clip needs readings around it, so the base is bounded only without interpolation in
        # time.
        node = self.get_base(question, bounded=bounded and not in_time)
        looks_back = bounded and _looks_back_at_cells(question, node)
        if looks_back:
            node = self.get_base(question, bounded=False)
        whole = self.window if bounded and self.window else node.operator.window  # type: ignore[union-attr]
        for number, step in enumerate(question.steps, start=1):
            label = f"{self.within}step {number} ({step.op} {step.name!r})"
            try:
                if step.is_in_time:
                    refuse_directions(f"interpolating directions by {step.name}", node)
                    node = interpolate_in_time(step, node, self.window if bounded and number == last_in_time else None)
                    node = replace(node, steps=(label,))
                else:
                    inside = replace(self, within=f"{label}: ")
                    before = _cut_before(question, number - 1)
                    # Steps before the last interpolation in time see readings beyond the clip.
                    is_bounded = bounded and number > last_in_time
                    make = partial(inside.build_step, step, node, whole, before, bounded=is_bounded, narrow=looks_back)
                    # A merge also depends on the steps before it; its sources are cached individually.
                    bounds = is_bounded and self.window is not None
                    # Perspectives hash by identity; equal preceding steps share one object through the cache.
                    settings = (self.window, self.variance, self.memory)
                    key = ("step", node, label, format_step(step), whole, bounds, looks_back, *settings)
                    node = make() if step.op == "merge" else self.known.per_snapshot(key, make)
                if step.op == "merge" and not (bounded and self.window):
                    # After a merge "all" means the common time of its sources.
                    whole = Window(node.topology.time.origin, node.topology.time.stop)
            except HyperGridError as error:
                raise error.locate(f"step {number} ({step.op} {step.name!r})") from error
        return node

    def get_base(self, question: QuerySpec, *, bounded: bool) -> Perspective:
        key = ("base", make_base_key(question), self.window, bounded and self.window is not None)
        return self.known.per_snapshot(key, lambda: self._build_base(question, bounded=bounded))

    def _build_base(self, question: QuerySpec, *, bounded: bool) -> Perspective:
        source = self.lookup(question)
        extent = source.extent
        if extent is None:
            raise InvalidQuery(f"variable {question.variable!r} has no readings in this snapshot")
        inside = extent.intersect(self.window) if self.window else extent
        window = inside if bounded else extent
        time = source.time_axis(window) if inside and window else None
        if time is None or window is None:
            wanted = self.window or extent
            raise InvalidQuery(
                f"no reading of {question.variable!r} lies in {format_instant(wanted.start_ns)} to "
                f"{format_instant(wanted.stop_ns)}; readings run from {format_instant(extent.start_ns)} to "
                f"{format_instant(extent.stop_ns)}"
            )
        if isinstance(time, Instants):
            # Values that begin within the window may be stamped after it.
            window = Window(time.origin, time.stop)
        # Use the positions at the requested cells, even if more is read and then clipped.
        topology = Topology(time, self.known.intern(source.series_axis(inside or window)))
        return Perspective((), topology, Base(source, window, question.accept_flags), source.variable.unit)

    def build_step(
        self, step: Step, node: Perspective, whole: Window, before: QuerySpec, *, bounded: bool, narrow: bool
    ) -> Perspective:
        if step.op == "convert":
            made = _convert(step, node)
        elif step.op == "aggregate":
            made = _aggregate(step, node, whole, whole.start_ns if bounded and self.window else None)
        elif step.op == "interpolate":
            if step.others:
                raise InvalidQuery(
                    f"{step.name} interpolates one query; got {len(step.others)} more: only a recipe of two takes one"
                )
            made = self.build_interpolation(step, node)
        else:
            made = self.build_merge(step, node, before, bounded=bounded)
        # The base was left unbounded for an aggregate that looks back.
        if narrow and dict(step.cells).get("time") == "all":
            made = narrow_source(made)
        return replace(made, steps=(self.within.removesuffix(": "),))

    def build_interpolation(self, step: Step, node: Perspective) -> Perspective:
        """Build an interpolation, cached across snapshots if it uses no layers."""
        # The placement of the grid among the stations does not change with new slices.
        make = partial(_interpolation, step, node, variance=self.variance, memory=self.memory)
        key = ("interpolation", node.topology.space, node.unit, format_step(step), self.variance, self.memory)
        operator, cells = self.known.permanent(key, make, only=lambda made: not made[0].layers)
        return Perspective((node,), Topology(node.topology.time, cells), operator, node.unit)

    def build_merge(self, step: Step, node: Perspective, before: QuerySpec, *, bounded: bool) -> Perspective:
        """Build a merge.

        A climatology uses all its readings, or those in its own clip.
        """
        check_sources(step.name, len(step.others))
        sources, normal = [node], set()
        for number, other in enumerate(step.others, start=1):
            if other.variance:
                raise InvalidQuery("variance belongs to the surface, not to a query in 'with'; remove it there")
            if not is_climatology(other, before):
                if other.clip:
                    raise InvalidQuery(
                        "a query in 'with' takes the clip of the query around it; remove its own: only a climatology "
                        "(over 'all', or cells that come again) has one, in time"
                    )
                sources.append(self.build_chain(other, bounded=bounded))
                continue
            window = _clip_window(other)
            if set(dict(other.clip)) - {"time"}:
                raise InvalidQuery(
                    "a climatology in 'with' can be clipped in time alone; in space the query around it is"
                )
            sources.append(replace(self, window=window).build_chain(other, bounded=window is not None))
            normal.add(number)
        given = bind(step.name, MERGES[step.name].parameters, dict(step.params), variable_unit=node.unit)
        return merge(step.name, tuple(sources), normal=frozenset(normal), given=given)


def _convert(step: Step, node: Perspective) -> Perspective:
    row = CONVERTS[step.name]
    given = bind(step.name, row.parameters, dict(step.params), variable_unit=node.unit)
    if step.name in ("valid_range", "limit") and given["high"] is not None and given["low"] > given["high"]:
        raise InvalidQuery(f"{step.name} needs low not above high; got {given['low']:g} to {given['high']:g}")
    operator = Convert((Call.of(step.name, given),), _find_ground(step, node) if row.placed else ())
    return Perspective((node,), node.topology, operator, row.unit(node.unit, given))


def _find_ground(step: Step, node: Perspective) -> tuple[tuple[str, str], ...]:
    """Return the elevation layer of a function of place and time, or an empty tuple."""
    stations = node.list_bases()[0].topology.space
    if node.holds_readings:
        raise InvalidQuery(
            f"{step.name} needs time cells, to know where the sun is; align the readings with an aggregate first"
        )
    if isinstance(node.topology.time, Periodic):
        raise InvalidQuery(
            f"{step.name} needs time cells that lie somewhere in time, to know where the sun is; its source is by "
            f"{node.topology.time.describe()}: convert before that aggregate"
        )
    if isinstance(node.topology.space, ZoneCells | Bands):
        kind = "zone" if isinstance(node.topology.space, ZoneCells) else "band"
        raise InvalidQuery(
            f"{step.name} needs the place of each value; a {kind} has many: put it before that aggregate"
        )
    if isinstance(stations, SeriesAxis) and stations.system != "lonlat":
        raise InvalidQuery(
            f"{step.name} needs positions as lon and lat [degree]; these stations have x and y in metres"
        )
    layer = _find_layer(node.bases[0].source, ELEVATION)
    return () if layer is None else ((ELEVATION, layer.token),)


def _aggregate(step: Step, node: Perspective, whole: Window, since_ns: int | None) -> Perspective:
    cells = dict(step.cells)
    if not cells:
        raise InvalidQuery("an aggregate needs cells, for example time='10min'; got none")
    row = AGGREGATES[step.name]
    coverage, given = _bind_parameters(step, row, node)
    time: TimeAxis = node.topology.time
    space = node.topology.space
    along = {name: spec for name, spec in cells.items() if name != "time"}
    if "time" in cells:
        stations = node.list_bases()[0].topology.space
        named = stations if isinstance(stations, SeriesAxis) else None
        laid: TimeAxis = time
        exact = node.holds_readings
        if isinstance(time, Instants) and isinstance(space, SeriesAxis) and has_intervals(time, space) and not along:
            # Assign readings by interval start: by its stamp, the first one would be in no cell.
            span = find_start_window(time.times_ns, space)
            length_ns = span.stop_ns - span.start_ns
            laid, exact = Regular("time", span.start_ns, length_ns, 1, length_ns), True
            whole = whole if since_ns is not None else find_span(time.times_ns, space)
        time = make_time_cells(cells["time"], laid, whole, exact=exact, stations=named)
    if along:
        space = _coarsen_space(along, space, variable=node)
    unit = row.unit(node.unit, given)
    check_aggregate(row, tuple(cells), node)
    if "time" in cells:
        refuse_overlapping(row, node)
    given = {**given, **find_declared(row, node, given)}
    given = given if row.settle is None else dict(row.settle(given, find_longest_interval_ns(node)))
    if "time" in cells and (node.holds_readings or isinstance(node.topology.time, Instants)):
        _refuse_short(time, node, whole)
        if cells["time"] != "all":
            refuse_odd_totals(row, time, node)
    # Absent parameters do not change the token.
    known = tuple(sorted((name, value) for name, value in given.items() if value is not None))
    operator = Aggregate(step.name, tuple(cells), _parse_coverage(coverage, row, node), known)
    if cells.get("time", "all") != "all":
        check_window_coverage(time, node, operator.min_coverage)
    if since_ns is not None and row.reach_ns and node.holds_readings:
        # Readings around the clip determine increments within it but belong to no cell.
        operator = replace(operator, since_ns=since_ns, until_ns=whole.stop_ns)
        node = widen_readings(node, operator.reach_ns)
    return Perspective((node,), Topology(time, space), operator, unit)


def _bind_parameters(step: Step, row: AggregateRow, node: Perspective) -> tuple[object, dict[str, Any]]:
    """Return the requested coverage (None if absent) and the other parameters, validated."""
    params = dict(step.params)
    coverage = params.pop("min_coverage", None)
    names = [parameter.name for parameter in row.parameters]
    NotFound.refuse_unknown(f"parameter of {step.name}", params, [*names, "min_coverage"])
    return coverage, bind(step.name, row.parameters, params, variable_unit=node.unit)


def _coarsen_space(along: Mapping[str, Any], space: Space, *, variable: Perspective) -> Grid | ZoneCells | Bands:
    if isinstance(space, Points):
        raise InvalidQuery(
            f"an aggregate over {', '.join(along)} needs the cells of a grid, and its source is at points; interpolate "
            "onto a grid before it, or aggregate over time alone"
        )
    if "z" in along and (isinstance(space, SeriesAxis) or (isinstance(space, Grid) and space.z is None)):
        return make_bands(along, variable)
    if isinstance(space, Bands):
        raise InvalidQuery("its source is made of bands already; make the bands that are wanted of what these hold")
    if not isinstance(space, Grid) or variable.holds_readings:
        raise InvalidQuery(f"an aggregate over {', '.join(along)} needs a grid; interpolate before it")
    if "zones" in along:
        if len(along) > 1:
            raise InvalidQuery(
                f"zones are cells in place of {', '.join(set(along) - {'zones'})}; give one or the other"
            )
        if space.z is not None and space.z.count > 1:
            raise InvalidQuery(
                f"zones lie on one level, this grid has {describe_levels(space.z)}; aggregate with z='all' first"
            )
        return _make_zone_cells(ZoneCells(zones(along["zones"]), space))
    axes = {axis.name: axis for axis in space.axes}
    NotFound.refuse_unknown("dimension of this grid", along, axes)
    for name, spec in along.items():
        axes[name] = make_space_cells(name, spec, axes[name])
    return space.replace_axes(list(axes.values()))


def _make_zone_cells(cells: ZoneCells) -> ZoneCells:
    """Return zones, refusing them if none overlaps the grid."""
    # Otherwise every value would be missing.
    if not cells.share_in_grid.any():
        names = ", ".join(cells.zones.names[:5]) + (", …" if cells.count > 5 else "")
        grid = cells.grid
        raise InvalidQuery(
            f"none of the {cells.count} zones ({names}) lies on the grid, which is within "
            f"{_format_span(grid.x.bounds)}, {_format_span(grid.y.bounds)} ({grid.x.name}, {grid.y.name}); the zones "
            f"are around {cells.x.mean():.6g}, {cells.y.mean():.6g}: give zones of the grid's area, or move the grid"
        )
    return cells


def _parse_coverage(given: object, row: AggregateRow, node: Perspective) -> float:
    if given is None:
        # Without a known interval there is no possible count to compare with.
        carried = all(base.source.carries_intervals for base in node.bases)
        return row.min_coverage if carried else 0.0
    share = parse_number(given, "", label="'min_coverage'")
    if not 0 <= share <= 1:
        raise InvalidQuery(f"'min_coverage' needs a share from 0 to 1; got {given!r}")
    return share


def _refuse_short(time: TimeAxis, node: Perspective, whole: Window) -> None:
    """Refuse cells shorter than the interval of their readings."""
    space = node.topology.space
    if isinstance(time, Instants) or not isinstance(space, SeriesAxis):
        return
    # In shorter cells each reading would still count for its whole interval.
    longest_s = max((series.interval_s for series in space.series if series.statistic != "sample"), default=0.0)
    longest_ns = round(longest_s * SECOND_NS)
    # Civil days may contain daily totals, even the day of 23 hours.
    length_ns = civil_day_ns(time) or shortest_ns(time)
    stamps = node.topology.time
    if isinstance(stamps, Instants) and stamps.count > 1 and isinstance(time, Regular) and time.count == 1:
        # An array extends from its first to its last stamp, however far back its first interval reaches.
        length_ns = min(length_ns, stamps.stop - 1 - stamps.origin)
    there_ns = round(length_ns / SECOND_NS) * SECOND_NS
    if longest_ns > length_ns and isinstance(time, Regular) and time.length == whole.stop_ns - whole.start_ns:
        variable = node.bases[0].source.variable.name
        raise InvalidQuery(
            f"readings of {variable!r} stand for {format_duration(longest_ns)} each, longer "
            f"than the {format_duration(there_ns)} that there are: nothing can be made of all of it; ask for more, "
            "or .select(interval_s=…) series of shorter intervals"
        )
    if longest_ns > length_ns:
        raise InvalidQuery(
            f"time cells of {format_duration(length_ns)} are shorter than the {format_duration(longest_ns)} that "
            f"readings of {node.bases[0].source.variable.name!r} stand for; choose longer cells"
        )


def _interpolation(
    step: Step, node: Perspective, *, variance: bool, memory: Memory
) -> tuple[Interpolate, Grid | Points]:
    """Return the validated interpolation operator of a step and its target cells."""
    stations = node.topology.space
    if not isinstance(stations, SeriesAxis):
        kind = {Bands: "made of bands", Points: "at points"}.get(type(stations), "a grid")
        raise InvalidQuery(f"its source is {kind} already; interpolate once, from the stations")
    refuse_alike(stations)
    if node.unit == "degree":
        raise InvalidQuery(
            f"interpolating directions by {step.name} has no meaning: 350 and 10 degree would give 180; "
            "interpolate('recipe', …) takes the components of the wind"
        )
    refuse_moved(stations)
    given_grid = dict(step.cells)
    NotFound.refuse_unknown("key of a grid", given_grid, GRID_KEYS)
    if "step" not in given_grid:
        raise InvalidQuery(f"a grid needs a step, such as '1arcsec'; got {given_grid}")
    cells = cells_from_json(given_grid)
    grid = cells.grid if isinstance(cells, Points) else cells
    if cells.system != stations.system:
        need = "lon and lat" if stations.system == "lonlat" else "x and y in metres"
        raise InvalidQuery(f"its stations have {need}; the grid does not: give it {need}")
    operator = Interpolate(step.name, (), variance)
    if variance and not operator.row.has_variance:
        raise InvalidQuery(f"{step.name} has no variance; ask for it with a kriging method")
    row = operator.row
    bound = bind(step.name, (*row.parameters, *SELECTION), dict(step.params), variable_unit=node.unit)
    selection = parse_selection(step.name, {item.name: bound.pop(item.name) for item in SELECTION})
    source = node.bases[0].source
    parameters = _drop_trend_without_terrain({**row.parse(bound), **selection}, source)
    if variance:
        refuse_variance(trend_of(parameters))
    if not (np.isfinite(stations.x) & np.isfinite(stations.y)).any():
        raise InvalidQuery(
            f"none of the {stations.count} stations has a position; name them with lon and lat in the deployment file"
        )
    reach = measure_grid_distance(stations, grid, parameters)
    if step.name == AUTO:
        # Two stations at one mast are common, and no reason to refuse a map.
        parameters.setdefault("coincident", "merge")
        if _knows_elevation(source, grid):
            parameters["drift"] = (ELEVATION,)
        elif _find_layer(source, ELEVATION) is not None:
            reason = "no trend in elevation is tried, as the layer of elevation does not cover the whole grid"
            parameters["because"] = "; ".join(filter(None, [parameters.get("because"), reason]))
    names = row.covariates(parameters)
    if cells.z is not None:
        names = list_layers_on_levels(step.name, names, stations, source)
    try:
        covariates = {name: source.layer(name) for name in names}
    except NotFound as error:
        if trend_of(parameters) is None:
            raise
        raise NotFound(f"{error}; a trend needs the elevation of the cells: without it, use trend='none'") from error
    layers = tuple((name, layer.token) for name, layer in covariates.items())
    operator = Interpolate(
        step.name,
        tuple(sorted(parameters.items())),
        variance,
        layers,
        excluded_stations=reach.excluded,
        error_correlation=memory,
    )
    _refuse_far(grid, stations, operator, reach)
    if cells.z is not None:
        refuse_far_levels(cells.z, stations, covariates.get(ELEVATION))
    for name, layer in covariates.items():
        if cells.z is None or name != ELEVATION:
            _refuse_elsewhere(name, layer, grid)
    return operator, cells


def _drop_trend_without_terrain(parameters: dict[str, Any], source: Source) -> dict[str, Any]:
    """Drop a trend in elevation that the values may select or not, if no layer has the elevation of the cells."""
    trend = trend_of(parameters)
    if trend is None or not trend.is_chosen or _find_layer(source, ELEVATION) is not None:
        return parameters
    reason = (
        "no trend in elevation is tried, as the elevation of the cells is unknown: `hypergrid layers add dem.tif` "
        "stores it"
    )
    kept = {name: value for name, value in parameters.items() if name != "trend"}
    return {**kept, "because": "; ".join(filter(None, [parameters.get("because"), reason]))}


def _find_layer(source: Source, name: str) -> Layer | None:
    try:
        return source.layer(name)
    except NotFound:
        return None


def _knows_elevation(source: Source, cells: Grid) -> bool:
    """Return whether the source has a layer of elevation that covers all cells of a grid."""
    layer = _find_layer(source, ELEVATION)
    if layer is None or layer.system != cells.system:
        return False
    return bool(np.isfinite(layer.sample(cells.centres(np.arange(cells.count)))).all())


def _refuse_far(cells: Grid, stations: SeriesAxis, operator: Interpolate, reach: GridDistance) -> None:
    placing = place_stations(stations, operator)
    known, nearest = placing.placed, float(np.nanmin(reach.distance_m))
    places = placing.metres.project(np.stack([stations.x, stations.y], axis=1)[placing.near])
    model = operator.arguments.get("variogram")
    allowed = max(
        float(np.linalg.norm(np.ptp(places, axis=0))),
        reach.diagonal_m,
        REACH_RANGES * model.effective_range_m if isinstance(model, Variogram) else 0.0,
    )
    if not nearest <= allowed:
        names = "lon, lat" if cells.system == "lonlat" else "x, y"
        raise InvalidQuery(
            f"the grid misses all {int(known.sum())} stations: the nearest is {nearest / 1000:,.1f} km away; stations "
            f"lie within {_format_span(stations.x[known])}, {_format_span(stations.y[known])} ({names})"
        )


def _refuse_elsewhere(name: str, layer: Layer, cells: Grid) -> None:
    # Otherwise every estimate would be missing.
    if layer.system == cells.system and not layer.covers(x=cells.x.centres, y=cells.y.centres):
        west, south, east, north = layer.bounds
        names = ("lon", "lat") if cells.system == "lonlat" else ("x", "y")
        raise InvalidQuery(
            f"layer {name!r} covers no cell of the grid: it lies within {west:.6g} to {east:.6g}, {south:.6g} to "
            f"{north:.6g}, the centres of the grid's cells within {_format_span(cells.x.centres)}, "
            f"{_format_span(cells.y.centres)} ({', '.join(names)}); give a layer of the grid's area, or move the grid"
        )


def _format_span(values: np.ndarray[Any, np.dtype[np.float64]]) -> str:
    return f"{values.min():.6g} to {values.max():.6g}"


def _clip(question: QuerySpec, perspective: Perspective, window: Window | None) -> Clip:
    axes = {axis.name: axis for axis in axes_of(perspective.topology.space)}
    ranges: list[tuple[str, tuple[int, int]]] = []
    for name, bounds in question.clip:
        if name == "time":
            continue
        if name not in axes and isinstance(perspective.topology.space, Points):
            raise InvalidQuery(
                f"a clip of {name!r} needs the cells of a grid, and this surface is at points; leave points out"
            )
        NotFound.refuse_unknown("dimension of this surface to clip", [name], [*axes, "time"])
        ranges.append((name, check_ends(name, bounds, axes[name].quantum)))
    clip = Clip(window, tuple(sorted(ranges)))
    # Raises if the clip selects no cell.
    select_ranges(perspective.topology, clip)
    return clip


def select_ranges(topology: Topology, clip: Clip) -> tuple[slice, tuple[slice, ...]]:
    """Return the ranges of cells that a clip selects.

    The first one is along time, the others along each axis of the space.

    Raises
    ------
    InvalidQuery
        The clip selects no cell.
    """
    window, bounds = (clip.time.start_ns, clip.time.stop_ns) if clip.time else None, dict(clip.space)
    space = tuple(_find_range(axis, bounds.get(axis.name)) for axis in axes_of(topology.space))
    return _find_range(topology.time, window), space


def _find_range(axis: TimeAxis, bounds: tuple[int, int] | None) -> slice:
    if bounds is None:
        return slice(0, axis.count)
    first, stop = (find_index(axis, bound) for bound in bounds)
    if stop <= first:
        raise InvalidQuery(
            f"the clip along {axis.name!r} selects no cell; the surface has {axis.count} cells, none starts inside it"
        )
    return slice(first, stop)


def interpolate_in_time(step: Step, node: Perspective, window: Window | None) -> Perspective:
    """Build the perspective of the instants.

    Instants are whole multiples of the step since midnight UTC, the first and last chosen as for the cells of an
    aggregate.

    Parameters
    ----------
    step
        An interpolation with `time`.
    node
        Station readings, or time cells of stations.
    window
        Window of wanted instants; readings around it are still used. None: all instants.

    Raises
    ------
    HyperGridError
        A source without instantaneous values, an unknown method, parameter or duration, or no maximum gap for series
        with an unknown interval.
    """
    space, time = node.topology.space, node.topology.time
    row = method_in_time(step.name)
    if not isinstance(space, SeriesAxis):
        kind = {Bands: "made of bands", Points: "at points"}.get(type(space), "a grid")
        raise InvalidQuery(f"its source is {kind}; interpolate in time first, station by station, and then in space")
    if isinstance(time, Periodic):
        raise InvalidQuery(
            f"its source has cells of {time.describe()}, which come again and again: there is no instant between them"
        )
    whole = describe_interval_values(node)
    if whole is not None:
        raise InvalidQuery(
            f"its source holds {whole}, which belong to intervals and have no value at an instant between them; "
            "use a mean or samples, or an aggregate over longer time cells"
        )
    length_ns = parse_duration(dict(step.cells)["time"])
    given = row.parse(bind(row.name, row.parameters, dict(step.params), variable_unit=node.unit))
    gap_ns: int | None = given["max_gap_ns"]
    if gap_ns is None and not node.holds_readings:
        if isinstance(time, Regular):
            gap_ns = row.gap_of(time.step)
        elif isinstance(time, Bins):
            # The largest spacing, so that consecutive cells never form a gap.
            gap_ns = row.gap_of(int(max(np.diff(time.starts).max(initial=0), time.lengths.max())))
    if gap_ns is None:
        _refuse_unknown(space)
    operator = InterpolateInTime(row.name, gap_ns)
    # Cells of one nanosecond, so that an hourly mean and an instant are never confused.
    instants = Regular("time", 0, length_ns, 1, INSTANT_NS).repeat_over(time.origin, time.stop)
    made = Perspective((node,), Topology(instants, space), operator, node.unit)
    return made if window is None else restrict(made, _find_inside(instants, window))


def _refuse_unknown(space: SeriesAxis) -> None:
    """Refuse series with an unknown interval: their maximum gap cannot be derived."""
    unknown = [series.station for series in space.series if not series.interval_s > 0]
    if unknown:
        names = ", ".join(unknown[:5]) + (", …" if len(unknown) > 5 else "")
        raise InvalidQuery(
            f"the interval between readings of {len(unknown)} of {space.count} series is not known ({names}); say how "
            "long a gap may be filled, for example max_gap='1h'"
        )


def _find_inside(instants: Regular, window: Window) -> slice:
    first, stop = (find_index(instants, edge) for edge in (window.start_ns, window.stop_ns))
    if first >= stop:
        raise InvalidQuery(
            f"none of the instants, one every {format_duration(instants.step)}, lies in "
            f"{format_instant(window.start_ns)} to {format_instant(window.stop_ns)}; choose a shorter step"
        )
    return slice(first, stop)
