"""What some cells of a surface were made of: cells of each perspective below them, stations, and readings.

Cells are followed from the surface down to the readings, as queries state the steps: an aggregate takes the cells that
it covers, an interpolation the stations that its method selects, and an aggregate of readings those that lie in its
cells. Fields are those of the whole query, so that a fitted variogram is the one that the result was made with.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hypergrid.core.clock_errors import find_reading_bounds_ns
from hypergrid.core.errors import InvalidQuery, SingularSystem, TooLarge
from hypergrid.core.flags import MEANINGS
from hypergrid.core.readings import Readings, Series
from hypergrid.core.times import SECOND_NS, Window
from hypergrid.execution.operators.counters import find_increments
from hypergrid.execution.operators.elementwise import convert_values
from hypergrid.execution.operators.grids import cover_space
from hypergrid.execution.operators.interpolations import ReportingStations, prepare_interpolation, select_stations
from hypergrid.execution.operators.intervals import find_cells, find_crowded_series, is_sliding, select_tiles
from hypergrid.execution.planning.dependencies import find_covered_cells, is_fitted_to_data
from hypergrid.execution.running.clock_cells import find_block_ranges, read_uncertain
from hypergrid.execution.running.evaluate import Evaluator
from hypergrid.interpolation import Field, Targets, Variogram
from hypergrid.interpolation.methods.conditioning import models_of
from hypergrid.interpolation.methods.fitted_variogram import SliceFields
from hypergrid.interpolation.points import separations
from hypergrid.interpolation.solvers.trend import trend_of
from hypergrid.perspective import Aggregate, Base, Convert, Interpolate, InterpolateInTime, Operator, Perspective, Recur
from hypergrid.perspective.build.restrict import (
    find_reading_instants_ns,
    find_standing_instants_ns,
    restrict_readings,
)
from hypergrid.perspective.functions.user_interpolation import UserField
from hypergrid.perspective.sources.archive_source import ArchiveSource
from hypergrid.topology import (
    Instants,
    Periodic,
    Regular,
    TimeAxis,
    TimeCells,
    blocks_of,
    changes_cells,
    find_normal_cells,
)

Floats = NDArray[np.float64]
Mask = NDArray[np.bool_]
"""Which cells of a perspective are meant, shape (time cells, places)."""

MAX_WEIGHED: Final = 512
"""Maximum stations whose weights are computed."""
MAX_ESTIMATES: Final = 50_000_000
"""Maximum estimates, stations times slices times targets, for weights."""
MAX_FITTED: Final = 64
"""Maximum slices with variograms of their own for which weights are computed."""
FIRST_CANDIDATES: Final = 64
"""Stations nearest to the targets that are tried first; the others count only if they change an estimate."""
LINEAR: Final = 1e-8
"""Relative difference up to which weights times values make an estimate."""

USED: Final = ""
"""Reason of a reading that is used."""


@dataclass(frozen=True, eq=False)
class TracedStep:
    """Cells of a perspective that the traced cells were made of."""

    operator: Operator
    cells: int
    """Number of cells, or of readings."""
    with_value: int
    """Number of those with a value; of readings, those used."""


@dataclass(frozen=True, eq=False)
class TracedReadings:
    """Readings in the traced cells of a step that reads them."""

    base: Base
    window: Window
    """Window in which the intervals of the cells' readings begin."""
    readings: Readings
    """All readings of the stations that were used, in those cells; ordered by series, then time."""
    reasons: NDArray[np.object_]
    """Why each reading is not used, `USED` if it is; shape (readings,)."""
    is_inside: Callable[[Readings], NDArray[np.bool_]]
    """Whether readings of any station lie in the time that the cells depend on, shape (readings,)."""
    series: frozenset[Series] | None
    """Series that can affect the cells; None: any, as an interpolation selects its stations."""

    @property
    def used(self) -> NDArray[np.bool_]:
        return np.asarray(self.reasons == USED, dtype=bool)


@dataclass(frozen=True, eq=False)
class TracedClocks:
    """Readings of which it depends on their clocks whether the traced cells have them."""

    base: Base
    readings: Readings
    bound_ns: NDArray[np.int64]
    """Bound of each clock error [ns], shape (readings,)."""
    used: NDArray[np.bool_]
    """Whether the cells have each by its stamp, shape (readings,)."""


@dataclass(frozen=True, eq=False)
class TracedStations:
    """Stations that an interpolation used for the traced cells."""

    node: Perspective
    series: NDArray[np.intp]
    """Series of its source that report in the slices, shape (reporting,)."""
    slices: NDArray[np.int64]
    """Number of slices in which each was used, shape (reporting,)."""
    weights: Floats | None
    """Mean weight of each in the slices in which it was used, shape (reporting,); None if not known."""
    distances_m: Floats
    """Distance of each from the centre of the cells [m], shape (reporting,)."""
    of_slices: int
    """Number of slices."""


@dataclass(eq=False)
class Trace:
    """What traced cells were made of."""

    value: Floats
    """Values of the traced cells, computed again, shape (cells,)."""
    steps: list[TracedStep] = field(default_factory=list)
    """From the surface down."""
    stations: list[TracedStations] = field(default_factory=list)
    readings: list[TracedReadings] = field(default_factory=list)
    clocks: list[TracedClocks] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def trace(surface: Perspective, mask: Mask, *, max_readings: int) -> Trace:
    """Find what some cells of a surface were made of.

    Parameters
    ----------
    surface
        The perspective as the query states it, not rewritten.
    mask
        The cells, at least one; shape (time cells, places), places being flat cells of its space.
    max_readings
        Maximum number of readings in the time of the cells, for each base.

    Raises
    ------
    TooLarge
        There are more.
    """
    return _Tracer(surface, mask, max_readings).run()


def find_values(surface: Perspective, mask: Mask) -> Floats:
    """Compute some cells of a surface, shape (cells,)."""
    return np.asarray(_evaluate(Evaluator(), surface, mask)[mask])


def _evaluate(evaluator: Evaluator, node: Perspective, mask: Mask) -> Floats:
    """Evaluate the masked cells; NaN elsewhere, shape (time cells, places)."""
    times, places = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
    value = np.full(mask.shape, np.nan)
    value[np.ix_(times, places)] = evaluator.block(node, places, times).value
    return value


class _Tracer:
    """Follows masks of cells from consumers to their sources."""

    def __init__(self, surface: Perspective, mask: Mask, max_readings: int) -> None:
        self._max_readings = max_readings
        self._surface, self._masks = surface, {surface.token: mask}
        self._evaluator = Evaluator()
        self._trace = Trace(np.empty(0))
        self._selects_stations = any(isinstance(item.operator, Interpolate) for item in surface.list_chain())

    def run(self) -> Trace:
        # Consumers precede their sources in this order, so all cells of a perspective are known when it is visited.
        for node in reversed(self._surface.list_chain()):
            wanted = self._masks.get(node.token)
            if wanted is None or not wanted.any():
                continue
            value = _evaluate(self._evaluator, node, wanted)
            if node is self._surface:
                self._trace.value = value[wanted]
            valued = wanted & np.isfinite(value)
            if not node.holds_readings:
                self._trace.steps.append(TracedStep(node.operator, int(wanted.sum()), int(valued.sum())))
            # A missing cell takes part in nothing; where all are missing, those below say why.
            self._follow(node, wanted, valued, valued if valued.any() else wanted)
        return self._trace

    def _follow(self, node: Perspective, wanted: Mask, valued: Mask, followed: Mask) -> None:
        operator = node.operator
        if node.holds_readings:
            self._trace_first(node, wanted, valued)
        elif isinstance(operator, Aggregate) and node.source.holds_readings:
            self._trace_aggregated(node, operator, wanted, valued)
        elif isinstance(operator, InterpolateInTime) and node.source.holds_readings:
            self._trace_in_time(node, operator, wanted, valued)
        elif isinstance(operator, Interpolate):
            self._follow_interpolation(node, operator, followed)
        elif isinstance(operator, InterpolateInTime):
            self._follow_in_time(node, operator, followed)
        elif isinstance(operator, Aggregate):
            self._follow_aggregate(node, operator, followed)
        elif isinstance(operator, Recur):
            below = np.zeros(_shape_of(node.source), dtype=bool)
            cells = find_normal_cells(node.source.topology.time, node.topology.time)
            np.logical_or.at(below, cells, followed)
            self._mark(node.source, below)
        else:
            for source in node.sources:
                self._mark(source, followed)

    def _mark(self, node: Perspective, mask: Mask) -> None:
        known = self._masks.get(node.token)
        self._masks[node.token] = mask if known is None else known | mask

    # Aggregates.

    def _follow_aggregate(self, node: Perspective, operator: Aggregate, mask: Mask) -> None:
        source, target = node.source.topology, node.topology
        if changes_cells(source.space, target.space):
            places = np.flatnonzero(mask.any(axis=0))
            over = cover_space(source.space, target.space, places, operator.row)
            wider = np.zeros((len(mask), source.space.count), dtype=bool)
            for number, target_place in enumerate(places.tolist()):
                below = over.needed[over.members[over.first[number] : over.stop[number]]]
                wider[:, below] |= mask[:, target_place, None]
            mask = wider
        if "time" in operator.dimensions and not isinstance(target.time, Instants):
            mask = _spread_over_time(source.time, node, operator, mask)
        self._note_choice(operator)
        self._mark(node.source, mask)

    def _note_choice(self, operator: Aggregate) -> None:
        if operator.row.rank is not None or operator.row.repeatable:
            self._note(f"{operator.function} takes one of the values of a cell: all that it was chosen from are listed")
        if operator.row.prepare is not None:
            self._note(f"{operator.function} takes differences: values before a cell are used, too")

    def _trace_aggregated(self, node: Perspective, operator: Aggregate, wanted: Mask, valued: Mask) -> None:
        """Trace the readings in the cells of an aggregate of readings."""
        time = node.topology.time
        if isinstance(time, Instants):
            raise TypeError("an aggregate over time has cells")
        starts, ends = blocks_of(time)
        owners = time.owners if isinstance(time, Periodic) else np.arange(len(starts))
        blocks = np.isin(owners, np.flatnonzero(wanted.any(axis=1)))
        if not blocks.any():
            return
        reach_ns = operator.reach_ns
        window = Window(int(starts[blocks].min()) - reach_ns, int(ends[blocks].max()) + reach_ns)
        read = self._read(restrict_readings(node.source, window))
        inside = _mask_in_cells(read.raw, time, wanted)
        used = np.zeros(len(read.raw), dtype=bool)
        if operator.row.prepare is not None:
            used[read.rows[_mask_growth(read.kept, operator, time, valued)]] = True
            read.explain(~used & inside, "its growth is not known")
            inside |= used
        else:
            used[read.rows[_mask_used(read.kept, time, operator, valued)]] = True
            read.explain(~_mask_in_cells(read.raw, time, valued), "its cell has no value")
            read.explain(~used, "its interval overlaps those that are used")
        self._note_choice(operator)
        rows = np.asarray(wanted.any(axis=1, keepdims=True))
        looks_around = operator.row.prepare is not None or reach_ns > 0

        def is_inside(readings: Readings) -> NDArray[np.bool_]:
            return np.ones(len(readings), dtype=bool) if looks_around else _mask_in_cells(readings, time, rows, 0)

        self._keep(read, window, inside, wanted, is_inside)
        self._trace_clocks(restrict_readings(node.source, window), time, wanted)

    def _trace_first(self, node: Perspective, wanted: Mask, valued: Mask) -> None:
        """Trace the first reading of each series in each slice."""
        time = node.topology.time
        if not isinstance(time, Regular):
            raise TypeError("readings are in slices")
        rows = np.asarray(wanted.any(axis=1, keepdims=True))
        starts, ends = (edges[rows[:, 0]] for edges in blocks_of(time))
        window = Window(int(starts[0]), int(ends[-1]))
        read = self._read(restrict_readings(node, window))
        cell = find_cells(read.kept, time)
        later = np.zeros(len(read.kept), dtype=bool)
        later[1:] = (np.diff(cell) == 0) & (np.diff(read.kept.index) == 0)
        read.reasons[read.rows[later]] = "not the first of its slice"
        read.explain(~_mask_in_cells(read.raw, time, valued), "its cell has no value")
        inside = _mask_in_cells(read.raw, time, wanted)
        self._keep(read, window, inside, wanted, lambda readings: _mask_in_cells(readings, time, rows, 0))
        self._trace_clocks(restrict_readings(node, window), time, wanted)

    def _trace_clocks(self, node: Perspective, time: TimeCells, wanted: Mask) -> None:
        """Trace the readings that lie in the cells or beside them, depending on their clocks."""
        for readings, bound_ns in read_uncertain(node):
            ranges = find_block_ranges(readings, bound_ns, time)
            rows = np.flatnonzero(ranges.mask_readings(time, wanted, readings.index))
            uncertain = readings.take_rows(rows)
            used = _mask_in_cells(uncertain, time, wanted)
            self._trace.clocks.append(TracedClocks(node.bases[0], uncertain, bound_ns[rows], used))

    # Interpolations.

    def _follow_in_time(self, node: Perspective, operator: InterpolateInTime, mask: Mask) -> None:
        source, instants, gaps_ns = node.source, node.topology.time.corners, operator.gaps_ns(node.source.stations)
        at_ns = find_standing_instants_ns(source.topology.time)
        present = np.isfinite(_evaluate(self._evaluator, source, np.ones(_shape_of(source), dtype=bool)))
        below = np.zeros_like(present)
        for column in np.flatnonzero(mask.any(axis=0)).tolist():
            own = np.flatnonzero(present[:, column])
            around = _find_around(at_ns[own], instants[mask[:, column]], operator, int(gaps_ns[column]))
            below[own[around], column] = True
        self._mark(source, below)

    def _trace_in_time(self, node: Perspective, operator: InterpolateInTime, wanted: Mask, valued: Mask) -> None:
        """Trace the readings around instants."""
        source, instants = node.source, node.topology.time.corners
        rows, columns = np.flatnonzero(wanted.any(axis=1)), np.flatnonzero(wanted.any(axis=0))
        reach_ns, gaps_ns = operator.reach_ns(source.stations), operator.gaps_ns(source.stations)
        longest_ns = max((round(series.interval_s * SECOND_NS) for series in source.series), default=0)
        window = Window(int(instants[rows[0]]) - reach_ns - longest_ns, int(instants[rows[-1]]) + reach_ns)
        read = self._read(restrict_readings(source, window))
        at_ns, used = find_reading_instants_ns(read.kept), np.zeros(len(read.raw), dtype=bool)
        for column in columns.tolist():
            own = slice(*np.searchsorted(read.kept.index, [column, column + 1]).tolist())
            around = _find_around(at_ns[own], instants[valued[:, column]], operator, int(gaps_ns[column]))
            used[read.rows[own][around]] = True
        read.explain(
            ~used, "others are nearer in time" if valued.any() else "too far from the instant, or from the next"
        )
        inside = np.isin(read.raw.index, columns)
        self._keep(read, window, inside, wanted, lambda readings: np.ones(len(readings), dtype=bool))
        if isinstance(read.base.source, ArchiveSource):
            # A value between readings depends on their exact times.
            bound_ns = find_reading_bounds_ns(read.base.source.archive.clock_errors, read.raw)
            rows = np.flatnonzero(used & (bound_ns > 0))
            clocks = TracedClocks(read.base, read.raw.take_rows(rows), bound_ns[rows], np.ones(len(rows), dtype=bool))
            self._trace.clocks.append(clocks)

    def _follow_interpolation(self, node: Perspective, operator: Interpolate, mask: Mask) -> None:
        rows, places = np.flatnonzero(mask.any(axis=1)), np.flatnonzero(mask.any(axis=0))
        source = node.source
        values = _evaluate(self._evaluator, source, np.ones(_shape_of(source), dtype=bool))
        reporting = select_stations(node, operator, np.asarray(np.isfinite(values).any(axis=0)))
        whole, targets, _ = self._evaluator.get_interpolation(node, operator, places)
        below = np.zeros(_shape_of(source), dtype=bool)
        if not targets.count or not len(reporting.used):
            self._mark(source, below)
            return
        known = values[np.ix_(rows, reporting.used)]
        used, weights = self._select_inputs(operator, whole.take_slices(rows), reporting, known, targets)
        if is_fitted_to_data(operator):
            self._note(
                f"{operator.method} learned its variogram or trend from all {len(values):,} slices: readings of other "
                "times are not listed, and changes of them not looked for"
            )
        below[np.ix_(rows, reporting.used)] = used
        self._mark(source, below)
        reports, slices = np.flatnonzero(np.isfinite(known).any(axis=0)), used.sum(axis=0)
        mean = None if weights is None else (weights.sum(axis=0) / np.maximum(slices, 1))[reports]
        self._trace.stations.append(
            TracedStations(
                node, reporting.used[reports], slices[reports], mean, _measure_distances(reporting, targets)[reports],
                len(rows),
            )
        )  # fmt: skip

    def _select_inputs(
        self, operator: Interpolate, part: Field, reporting: ReportingStations, known: Floats, targets: Targets
    ) -> tuple[Mask, Floats | None]:
        """Return which stations were used in each slice, and their weights if known, shape (slices, stations)."""
        present = np.isfinite(known)
        if isinstance(part, UserField):
            selected = part.mask_selected(targets)
            # Stations at one place may have been merged into one.
            if selected.shape == present.shape:
                return selected, None
        elif (weighed := _weigh_stations(operator, part, reporting, known, targets)) is not None:
            used, weights = weighed
            # Of kriging from all stations, some have no weight behind others, but all are part of the system.
            return (present if operator.uses_all(reporting.stations.count) else used), weights
        self._note(
            f"{operator.method}: all stations that report are listed; their weights, and which had none, are unknown"
        )
        return present, None

    # Readings.

    def _read(self, node: Perspective) -> "_ReadReadings":
        operator = node.operator
        if isinstance(operator, Base):
            self._check_size(operator)
            raw = operator.source.read(operator.window, operator.unread)
            if not isinstance(raw, Readings):
                raise TypeError(f"{operator.source.variable.name} is an array, not readings")
            reasons = np.full(len(raw), USED, dtype=object)
            for flag in np.unique(raw.flag[~np.isin(raw.flag, operator.accept_flags)]).tolist():
                reasons[raw.flag == flag] = f"{MEANINGS.get(flag, 'unknown')}, flag {flag}"
            reasons[(reasons == USED) & np.isinf(raw.value)] = "infinite"
            reasons[(reasons == USED) & np.isnan(raw.value)] = "missing"
            rows = np.flatnonzero(reasons == USED)
            return _ReadReadings(operator, raw, reasons, raw.take_rows(rows), rows)
        read = self._read(node.source)
        if not isinstance(operator, Convert):
            raise TypeError(f"{operator.describe()} does not give readings")
        value = convert_values(operator, read.kept.value)
        kept = np.isfinite(value)
        read.reasons[read.rows[~kept]] = ", ".join(call.name for call in operator.calls)
        converted = replace(read.kept, value=value).take_rows(kept)
        return replace(read, kept=converted, rows=read.rows[kept])

    def _check_size(self, base: Base) -> None:
        source = base.source
        if not isinstance(source, ArchiveSource):
            return
        # Readings as of an instant are at most those of now.
        count = source.archive.as_of(None).count_at_least(
            source.variable.name, window=base.window, series=source.series_numbers, maximum=self._max_readings
        )
        if count > self._max_readings:
            raise TooLarge(
                f"the lineage of a cell of {source.variable.name}", "readings", count, self._max_readings,
                "ask about a cell of less time, or allow more",
            )  # fmt: skip

    def _keep(
        self,
        read: "_ReadReadings",
        window: Window,
        inside: NDArray[np.bool_],
        wanted: Mask,
        is_inside: Callable[[Readings], NDArray[np.bool_]],
    ) -> None:
        series = None
        if not self._selects_stations:
            series = frozenset(read.raw.series[column] for column in np.flatnonzero(wanted.any(axis=0)).tolist())
        made = TracedReadings(read.base, window, read.raw.take_rows(inside), read.reasons[inside], is_inside, series)
        self._trace.readings.append(made)
        self._trace.steps.append(TracedStep(read.base, len(made.readings), int(made.used.sum())))

    def _note(self, text: str) -> None:
        if text not in self._trace.notes:
            self._trace.notes.append(text)


@dataclass(frozen=True, eq=False)
class _ReadReadings:
    """Readings as stored, and those of them that converts left."""

    base: Base
    raw: Readings
    reasons: NDArray[np.object_]
    """As in `TracedReadings`; is written to."""
    kept: Readings
    rows: NDArray[np.intp]
    """Row of each kept reading among the stored ones."""

    def explain(self, rows: NDArray[np.bool_], reason: str) -> None:
        """Give a reason to the stored readings of a mask that have none yet."""
        self.reasons[(self.reasons == USED) & rows] = reason


def _shape_of(node: Perspective) -> tuple[int, int]:
    return node.topology.time.count, node.topology.space.count


def _mask_in_cells(
    readings: Readings, time: TimeCells, mask: Mask, columns: NDArray[np.int32] | int | None = None
) -> NDArray[np.bool_]:
    """Mask the readings that are assigned to a cell of the mask, shape (readings,).

    The columns of the mask are series, unless others are given for the readings.
    """
    columns = readings.index if columns is None else columns
    if not is_sliding(time):
        cell = find_cells(readings, time)
        return np.asarray((cell >= 0) & mask[cell, columns], dtype=bool)
    first, stop = _find_windows(readings, time)
    before = np.concatenate([np.zeros((1, mask.shape[1]), dtype=np.int64), np.cumsum(mask, axis=0)])
    return np.asarray(before[stop, columns] > before[first, columns])


def _find_windows(readings: Readings, time: Regular) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return the range of overlapping windows that each reading is in, shape (readings,) each."""
    after_ns = readings.starts_ns() - time.origin
    first = np.clip((after_ns - time.length) // time.step + 1, 0, time.count)
    return first, np.maximum(np.clip(after_ns // time.step + 1, 0, time.count), first)


def _mask_growth(readings: Readings, operator: Aggregate, time: TimeCells, mask: Mask) -> NDArray[np.bool_]:
    """Mask the readings that the growth of counters in some cells was made of, shape (readings,).

    They are those of the cells and the one before each. Where a counter fell, growth is balanced with readings around:
    then all of its series are.
    """
    kept, fell = find_increments(readings, operator)
    grown = np.flatnonzero(kept)
    chosen = grown[_mask_in_cells(readings.take_rows(grown), time, mask)]
    used = np.zeros(len(readings), dtype=bool)
    used[chosen] = True
    before = chosen[chosen > 0] - 1
    used[before[readings.index[before] == readings.index[before + 1]]] = True
    series = np.intersect1d(readings.index[chosen], readings.index[fell])
    return used | np.isin(readings.index, series)


def _mask_used(readings: Readings, time: TimeCells, operator: Aggregate, mask: Mask) -> NDArray[np.bool_]:
    """Mask the readings that cells of an aggregate use, shape (readings,)."""
    inside = _mask_in_cells(readings, time, mask)
    if not operator.row.tiles or not find_crowded_series(readings).any():
        return inside
    if not is_sliding(time):
        return inside & _mask_tiles(readings, time, repeatable=operator.row.repeatable)
    used = np.zeros(len(readings), dtype=bool)
    for row in np.flatnonzero(mask.any(axis=1)).tolist():
        alone = time.part(row, row + 1)
        within = _mask_in_cells(readings, alone, mask[row : row + 1])
        used |= within & _mask_tiles(readings, alone, repeatable=operator.row.repeatable)
    return used


def _mask_tiles(readings: Readings, time: TimeCells, *, repeatable: bool) -> NDArray[np.bool_]:
    tiles = select_tiles(readings, time)
    return tiles.tile_mask | tiles.inside_mask if repeatable else tiles.tile_mask


def _spread_over_time(source: TimeAxis, node: Perspective, operator: Aggregate, mask: Mask) -> Mask:
    """Return the source cells under the time cells of a mask."""
    below = np.zeros((source.count, mask.shape[1]), dtype=bool)
    rows = np.flatnonzero(mask.any(axis=1))
    time = node.topology.time
    if isinstance(time, Instants):
        raise TypeError("an aggregate over time has cells")
    needed, ranges = find_covered_cells(source, time, operator, rows)
    starts, ends = blocks_of(source) if not isinstance(source, Instants) else (source.corners, source.corners + 1)
    for number, row in enumerate(rows.tolist()):
        span = slice(int(ranges.first[number]), int(ranges.stop[number]))
        members = needed[span] if ranges.members is None else needed[ranges.members[span]]
        if len(members) and (operator.reach_ns or operator.row.prepare is not None):
            # Such a function looks around its cells, a counter at least at the value before.
            first, last = starts[members].min() - operator.reach_ns, ends[members].max() + operator.reach_ns
            members = np.flatnonzero((ends > first) & (starts < last))
            if operator.row.prepare is not None and members[0] > 0:
                members = np.append(members[0] - 1, members)
        below[members] |= mask[row]
    return below


def _find_around(
    at_ns: NDArray[np.int64], instants: NDArray[np.int64], operator: InterpolateInTime, gap_ns: int
) -> NDArray[np.intp]:
    """Return the values, at sorted times, that a method uses for some instants with an estimate."""
    if not len(at_ns):
        return np.empty(0, dtype=np.intp)
    after = np.searchsorted(at_ns, instants, side="right")
    each_side = max(operator.row.max_readings // 2, 1)
    offsets = np.arange(-each_side, each_side)
    around = after[:, None] + offsets
    exists = (around >= 0) & (around < len(at_ns))
    around = np.clip(around, 0, len(at_ns) - 1)
    away = np.abs(at_ns[around] - instants[:, None])
    # An outer value belongs to the run of the inner one beside it.
    for inner, outer in ((each_side - 1, each_side - 2), (each_side, each_side + 1)):
        if 0 <= outer < len(offsets):
            exists[:, outer] &= np.abs(at_ns[around[:, outer]] - at_ns[around[:, inner]]) <= gap_ns
    hit = (away == 0) & exists
    if operator.row.max_readings == 1:
        nearest = np.where(exists, away, np.iinfo(np.int64).max).argmin(axis=1)
        exists &= np.arange(len(offsets)) == nearest[:, None]
    exists &= hit | ~hit.any(axis=1)[:, None]
    return np.unique(around[exists])


def _freeze(operator: Interpolate, part: Field) -> Interpolate | None:
    """Return an interpolation with the variogram that a field was fitted with; None if it has several."""
    given = operator.arguments
    trend = trend_of(given)
    if trend is not None and trend.is_chosen:
        return None
    if any(item.name == "variogram" for item in operator.row.parameters):
        if not isinstance(given.get("variogram"), Variogram):
            models = set(models_of(part))
            if len(models) != 1:
                return None
            given["variogram"] = models.pop()
    return replace(operator, parameters=tuple(sorted(given.items())))


def _measure_distances(reporting: ReportingStations, targets: Targets) -> Floats:
    """Return the distances of stations from the middle of the targets [m], shape (stations,)."""
    middle = targets.mean(targets.positions_m).mean(axis=0)[None]
    return np.asarray(separations(middle, reporting.stations.positions_m)[0])


def _weigh_stations(
    operator: Interpolate, part: Field, reporting: ReportingStations, known: Floats, targets: Targets
) -> tuple[Mask, Floats] | None:
    """Find which stations have a weight in each slice, and their mean weights over targets; None if unknown.

    Both have shape (slices, stations).
    """
    if not isinstance(part, SliceFields):
        return _weigh(operator, part, reporting, known, targets)
    if len(known) > MAX_FITTED:
        return None
    # Each slice has a variogram of its own.
    single = [
        _weigh(operator, part.take_slices(np.array([row])), reporting, known[row : row + 1], targets)
        for row in range(len(known))
    ]
    weighed = [each for each in single if each is not None]
    if len(weighed) < len(single):
        return None
    return np.concatenate([used for used, _ in weighed]), np.concatenate([weights for _, weights in weighed])


def _weigh(
    operator: Interpolate, part: Field, reporting: ReportingStations, known: Floats, targets: Targets
) -> tuple[Mask, Floats] | None:
    # The method is asked for the estimates of ones at one station and zeros at all others that report.
    fixed = _freeze(operator, part)
    slices, stations = known.shape
    if fixed is None or slices * targets.count * min(stations, MAX_WEIGHED) > MAX_ESTIMATES:
        return None
    present = np.isfinite(known)

    def estimate(ones: NDArray[np.bool_]) -> Floats:
        values = np.where(present, ones.astype(np.float64), np.nan)
        return prepare_interpolation(fixed, reporting.stations, values, reporting.network_m).field.estimate(targets)

    try:
        nothing = estimate(np.zeros(stations, dtype=bool))
        order = np.argsort(_measure_distances(reporting, targets), kind="stable")
        count = min(FIRST_CANDIDATES, stations)
        while count < stations:
            beyond = np.zeros(stations, dtype=bool)
            beyond[order[count:]] = True
            if np.array_equal(estimate(beyond), nothing, equal_nan=True):
                break
            count = min(4 * count, stations)
        if count > MAX_WEIGHED:
            return None
        estimated = np.isfinite(nothing)
        targets_estimated = np.maximum(estimated.sum(axis=1), 1)
        used, weights = np.zeros((slices, stations), dtype=bool), np.zeros((slices, stations))
        expected = nothing.copy()
        for station in order[:count].tolist():
            unit_mask = np.zeros(stations, dtype=bool)
            unit_mask[station] = True
            each = np.where(estimated, estimate(unit_mask) - nothing, 0.0)
            used[:, station] = (each != 0.0).any(axis=1)
            weights[:, station] = each.sum(axis=1) / targets_estimated
            expected += each * np.where(present[:, station], known[:, station], 0.0)[:, None]
    except (InvalidQuery, SingularSystem):
        return None
    scale = float(np.nanmax(np.abs(known), initial=0.0)) or 1.0
    is_same = np.isclose(expected, part.estimate(targets), rtol=0.0, atol=LINEAR * scale, equal_nan=True)
    return (used, weights) if bool(is_same.all()) else None
