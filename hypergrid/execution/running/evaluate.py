"""Evaluation: compute the values of a perspective in a block of cells from its sources.

Materialised perspectives are cached. Those at stations, which are small, are computed once as a whole and cached by
token, so equal parts of a query are computed once; those on a grid are assembled by the run and passed in (`hold`).
Everything else is pulled box by box (a box is some time cells of some places) through the chain, down to what is
cached. Readings have no cells: every strategy reads them, and converts of them, as a whole.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from hypergrid.core.errors import InvalidQuery
from hypergrid.core.pacing import give_way
from hypergrid.core.readings import Readings
from hypergrid.core.tokens import token
from hypergrid.execution.diagnostics import RunDiagnostics, note_unlike_bands, replace_infinite
from hypergrid.execution.operators.cells import FUSED_VALUES, Cells, SparseCells, join_places, store_sparse
from hypergrid.execution.operators.counters import note_of_cells, prepare_readings
from hypergrid.execution.operators.elementwise import (
    convert_values,
    locate_values,
    merge_sources,
    name_faulty_cell,
    name_faulty_reading,
)
from hypergrid.execution.operators.grids import TimePart, aggregate_cells, cover_space, space_keys
from hypergrid.execution.operators.interpolations import (
    FieldCache,
    FieldNetwork,
    count_stations_used,
    field_key,
    get_grid,
    interpolate_at_instants,
    is_by_slice,
    mask_reach,
    note_prefix,
    order_cells,
    order_readings,
    prepare_interpolation,
    select_stations,
    targets_of,
)
from hypergrid.execution.operators.intervals import IntervalNotes, note_intervals
from hypergrid.execution.operators.pieces import PiecewiseAggregate, is_read_in_pieces
from hypergrid.execution.operators.stations import (
    FIRST,
    UnusedReadings,
    aggregate_readings,
    aggregate_slices,
    count_by_interval,
    keep_rows,
    readings_of,
)
from hypergrid.execution.planning.costs import Meter
from hypergrid.execution.planning.dependencies import Buffers, Times, find_reached_cells, make_time_part, recurred
from hypergrid.execution.running.mean_errors import MeanErrors
from hypergrid.interpolation import Field, Targets
from hypergrid.interpolation.local.field import LocalField
from hypergrid.interpolation.methods.conditioning import relative_leverage
from hypergrid.interpolation.methods.detrended import DetrendedKriging
from hypergrid.interpolation.methods.in_time import KnownReadings
from hypergrid.interpolation.solvers.field import KrigingField
from hypergrid.interpolation.weight_cache import WEIGHTS, WeightCache
from hypergrid.perspective import Aggregate, Base, Convert, Interpolate, InterpolateInTime, Merge, Perspective, Recur
from hypergrid.perspective.build.uncertainty_spec import split_aggregates
from hypergrid.perspective.functions.rows import CellPlaces
from hypergrid.perspective.sources.array_source import has_intervals
from hypergrid.topology import Instants, Metres, Regular, SeriesAxis, TimeAxis, TimeCells, changes_cells


class Evaluator:
    """Computes blocks of perspectives; caches what blocks share."""

    def __init__(
        self,
        *,
        pulled: frozenset[str] = frozenset(),
        buffers: Buffers | None = None,
        meter: Meter | None = None,
        weights: WeightCache | None = WEIGHTS,
        reads_once: bool = False,
        is_part: bool = False,
    ) -> None:
        """Configure the evaluation of a chain.

        Parameters
        ----------
        pulled
            Tokens of the perspectives at stations that are pulled box by box; the others are computed as a whole.
        buffers
            Buffers of cells that more than one box needs; without them, such cells are computed again.
        meter
            Measures each perspective.
        weights
            Cache of kriging weights for other boxes; None: they are not cached.
        reads_once
            Whether only one perspective reads readings, so that unused ones can be counted as they pass.
        is_part
            Whether its slices are some of more, in which stations that are silent in these may report.
        """
        self._meter, self._weights = meter, weights
        self._pulled, self._buffers = pulled, buffers
        self.work: dict[str, int] = {}
        """Number of computed cells, by token."""
        self._grid_cells: dict[str, Cells] = {}
        self._network_known: set[str] = set()
        self._readings: dict[str, Readings] = {}
        # Detecting the resets of a counter takes longer than reading it.
        self._increments: dict[str, Readings] = {}
        """Increments of counters, by token of the aggregate."""
        self._interval_notes: dict[str, IntervalNotes] = {}
        """By token of an aggregate computed in pieces."""
        self._known_readings: dict[str, KnownReadings] = {}
        self._station_cache: dict[str, Cells | SparseCells] = {}
        self._carried: dict[str, tuple[Cells, NDArray[np.float64]]] = {}
        self._fields: dict[str, tuple[Field, Metres, int]] = {}
        self._field_cache = FieldCache()
        self._unused = UnusedReadings()
        self.left_out = self._unused.counts
        """Readings that were read but not used, counted by reason."""
        self.diagnostics = RunDiagnostics()
        """Notes and other diagnostics of the run."""
        self.correlation = ""
        """Correlation between slices that the variance of a mean assumes, in words."""
        self._errors: dict[str, MeanErrors] = {}
        self._passed_tokens: set[str] = set()
        self.reads_in_pieces, self.reads_once = True, reads_once
        self._is_part = is_part

    def hold(self, node: Perspective, cells: Cells) -> None:
        """Cache all cells of a materialised perspective; nothing below it is computed again."""
        self._grid_cells[node.token] = cells

    def materialise_stations(self, node: Perspective) -> None:
        self._station_cache[node.token] = store_sparse(self._cached_stations(node))

    def drop(self, node: Perspective) -> None:
        self._grid_cells.pop(node.token, None)
        self._station_cache.pop(node.token, None)

    def surface(
        self,
        node: Perspective,
        cells: NDArray[np.intp],
        times: Times | None = None,
        *,
        out: NDArray[np.float64] | None = None,
    ) -> Cells:
        """Compute a box like `block`, with variances if the query asks for them."""
        below, aggregates = split_aggregates(node)
        operator = below.operator
        if not isinstance(operator, Interpolate) or not operator.variance:
            return self.block(node, cells, times=times, out=out)
        if not aggregates:
            return self._interpolate(node, operator, cells, times, out, variance=True)
        block = self.block(node, cells, times=times, out=out)
        high, low = self._find_mean_variance(below, operator, aggregates, cells)
        if times is not None:
            # Errors of means correlate over all slices: compute them for the whole time, then select.
            high, low = high[times], None if low is None else low[times]
        # A missing mean has no error.
        missing = np.isnan(block.value)
        for variance in (high, low):
            if variance is not None:
                variance[missing] = np.nan
        return replace(block, variance=high, variance_low=low)

    def block(
        self,
        node: Perspective,
        cells: NDArray[np.intp],
        times: Times | None = None,
        *,
        out: NDArray[np.float64] | None = None,
    ) -> Cells:
        """Compute the values of a box: some time cells of some cells of the space.

        Parameters
        ----------
        node
            The perspective.
        cells
            Flat cells of a grid, or series; shape (cells,).
        times
            Indices of the time cells, increasing, shape (chosen,); None for all time cells.
        out
            Optional output buffer, shape (time, cells); steps that support it write there instead of to new memory.
        """
        if isinstance(node.topology.space, SeriesAxis):
            return self._station_cells(node, times).select_places(cells)
        if node.token in self._grid_cells:
            return self._grid_cells[node.token].select_places(cells).select_times(times)
        if self._buffers is None or not self._buffers.has_buffer(node):
            return self._measure_on_grid(node, cells, times, out)
        return self._buffers.get_cells(
            node, cells, times, lambda missing: self._measure_on_grid(node, cells, missing, None)
        )

    def _measure_on_grid(
        self, node: Perspective, cells: NDArray[np.intp], times: Times | None, out: NDArray[np.float64] | None
    ) -> Cells:
        return self._measure(node, lambda: self._evaluate_on_grid(node, cells, times, out))

    def _measure(self, node: Perspective, make: Callable[[], Cells]) -> Cells:
        give_way()
        if self._meter is None:
            return make()
        with self._meter.measure(node.token) as measure:
            made = make()
            measure(made.value)
        return made

    def _evaluate_on_grid(
        self, node: Perspective, cells: NDArray[np.intp], times: Times | None, out: NDArray[np.float64] | None
    ) -> Cells:
        operator = node.operator
        if isinstance(operator, Interpolate):
            return self._interpolate(node, operator, cells, times, out, variance=False)
        self._count_work(node, times, len(cells))
        with name_faulty_cell(node, cells, times):
            if isinstance(operator, Aggregate):
                return self._aggregate_grid(node, operator, cells, times, out)
            if isinstance(operator, Recur):
                needed, places = recurred(node, times)
                return self.block(node.source, cells, times=needed).select_times(places)
            sources = [self.block(source, cells, times=times) for source in node.sources]
            return self._evaluate_elementwise(node, sources, cells, times)

    def _count_work(self, node: Perspective, times: Times | None, places: int) -> None:
        rows = node.topology.time.count if times is None else len(times)
        self.work[node.token] = self.work.get(node.token, 0) + rows * places

    def _is_pulled(self, node: Perspective) -> bool:
        return node.token in self._pulled and node.token not in self._station_cache

    def _station_cells(self, node: Perspective, times: Times | None) -> Cells:
        if not self._is_pulled(node):
            return self._cached_stations(node) if times is None else self._cached_slices(node, times)
        if self._buffers is None or not self._buffers.has_buffer(node):
            return self._compute_stations(node, times)
        places = np.arange(node.topology.space.count)
        return self._buffers.get_cells(node, places, times, lambda missing: self._compute_stations(node, missing))

    def _cached_stations(self, node: Perspective) -> Cells:
        if node.token not in self._station_cache:
            evaluate = self._station_cells if self._is_pulled(node) else self._compute_stations
            self._station_cache[node.token] = evaluate(node, None)
        return self._station_cache[node.token].select_times(None)

    def _cached_slices(self, node: Perspective, times: Times) -> Cells:
        kept = self._station_cache.get(node.token)
        return (self._cached_stations(node) if kept is None else kept).select_times(times)

    def _compute_stations(self, node: Perspective, times: Times | None) -> Cells:
        with name_faulty_cell(node, times=times):
            return self._measure(node, lambda: self._evaluate_at_stations(node, times))

    def _evaluate_at_stations(self, node: Perspective, times: Times | None) -> Cells:
        operator, axis, time = node.operator, node.topology.space, node.topology.time
        self._count_work(node, times, axis.count)
        if node.holds_readings and isinstance(axis, SeriesAxis) and isinstance(time, Regular):
            # Read as cells, the base holds the first reading of each series in each slice.
            if self.reads_in_pieces and is_read_in_pieces(node, FIRST):
                return self._aggregate_in_pieces(node, FIRST, time, axis, times, IntervalNotes(time, FIRST, axis.count))
            return aggregate_slices(self._read(node), time, axis, times)
        if isinstance(operator, Base):
            values, note = replace_infinite(np.asarray(operator.source.read(operator.window, operator.unread)))
            self.diagnostics.set_note(f"{node.token} infinite", note)
            count, possible = np.isfinite(values).astype(np.int64), np.ones((1, 1), dtype=np.int64)
            return Cells(values, count, possible).select_times(times)
        if isinstance(operator, InterpolateInTime) and isinstance(axis, SeriesAxis) and isinstance(time, Regular):
            return interpolate_at_instants(self._order_readings(node, operator, times), operator, time, axis, times)
        if isinstance(operator, Aggregate) and isinstance(axis, SeriesAxis) and not isinstance(time, Instants):
            if self.reads_in_pieces and is_read_in_pieces(node.source, operator):
                notes = self._interval_notes.setdefault(node.token, IntervalNotes(time, operator, axis.count))
                cells = self._aggregate_in_pieces(node.source, operator, time, axis, times, notes)
                notes.write_notes(self.diagnostics, node.token)
                return cells
            if node.source.holds_readings:
                if operator.row.tiles and not self.diagnostics.has_note(f"{node.token} overlap"):
                    note_intervals(self.diagnostics, node.token, self._all_readings(node.source), time, operator)
                readings = self._prepare_readings(node, operator)
                return aggregate_readings(readings, time, axis, operator=operator, times=times)
            return self._aggregate_cells_of_stations(node, operator, axis, time, times)
        if isinstance(operator, Recur):
            needed, inverse = recurred(node, times)
            return self._station_cells(node.source, needed).select_times(inverse)
        places = np.arange(node.topology.space.count)
        return self._evaluate_elementwise(
            node, [self._station_cells(source, times) for source in node.sources], places, times
        )

    def _prepare_readings(self, node: Perspective, operator: Aggregate) -> Readings:
        if operator.row.prepare is None:
            return self._read(node.source)
        if node.token not in self._increments:
            readings, everything = self._read(node.source), self._all_readings(node.source)
            self._increments[node.token], note = prepare_readings(readings, operator)
            if not self.diagnostics.has_note(node.token):
                note = note if everything is readings else prepare_readings(everything, operator)[1]
                self.diagnostics.set_note(node.token, note)
        return self._increments[node.token]

    def _aggregate_cells_of_stations(
        self, node: Perspective, operator: Aggregate, axis: SeriesAxis, time: TimeCells, times: Times | None
    ) -> Cells:
        source = node.source.topology.time
        if isinstance(source, Instants) and has_intervals(source, axis):
            # The start of an interval, and what it overlaps, may lie outside the instants of a box.
            readings = readings_of(self._station_cells(node.source, None).value, source, axis)
            if operator.row.prepare is not None:
                readings, note = prepare_readings(readings, operator)
                self.diagnostics.set_note(node.token, note)
            if operator.row.tiles and not self.diagnostics.has_note(f"{node.token} overlap"):
                note_intervals(self.diagnostics, node.token, readings, time, operator)
            return aggregate_readings(readings, time, axis, operator=operator, times=times)
        keys = space_keys(axis, np.arange(axis.count))
        axes = (source, time)
        needed, part = make_time_part(axes, operator, times)
        block = self._station_cells(node.source, needed)
        if operator.row.prepare is not None and not self.diagnostics.has_note(node.token):
            self.diagnostics.set_note(node.token, note_of_cells(self._all_cells(node.source).value, source, operator))

        def fold(by: Aggregate) -> Cells:
            return aggregate_cells(block, by, times=axes, space=None, keys=keys, part=part)

        return count_by_interval(fold, operator, time, axis, times) if isinstance(source, Instants) else fold(operator)

    def _order_readings(self, node: Perspective, operator: InterpolateInTime, times: Times | None) -> KnownReadings:
        source = node.source
        if source.holds_readings:
            if source.token not in self._known_readings:
                ordered_readings = order_readings(self._read(source), node.topology.space.count)
                self._known_readings[source.token] = ordered_readings
            return self._known_readings[source.token]
        if times is None:
            return order_cells(self._station_cells(source, None), source.topology.time)
        needed = find_reached_cells(node, operator, times)
        span = source.topology.time.part(int(needed[0]), int(needed[-1]) + 1)
        return order_cells(self._station_cells(source, needed), span)

    def _all_cells(self, node: Perspective) -> Cells:
        """Return all cells at the stations; a subclass may evaluate some at a time."""
        return self._station_cells(node, None)

    def _all_readings(self, node: Perspective) -> Readings:
        """Return all readings of the run; a subclass may evaluate some at a time."""
        return self._read(node)

    def _read(self, node: Perspective) -> Readings:
        if node.token not in self._readings:
            self._readings[node.token] = self._compute_readings(node)
        return self._readings[node.token]

    def _compute_readings(self, node: Perspective) -> Readings:
        operator, base = node.operator, node.operator if isinstance(node.operator, Base) else node.source.operator
        if not isinstance(base, Base) or not (base is operator or node.is_fused):
            return self._convert_readings(node, self._read(node.source))
        base_readings = base.source.read(base.window, base.unread)
        if not isinstance(base_readings, Readings):
            raise TypeError(f"{base.source.variable.name} is an array, not readings")
        return self._use_readings(node, base_readings)

    def _use_readings(self, node: Perspective, readings: Readings, *, known_once: bool = False) -> Readings:
        """Return the usable ones of a base's readings, converted if the node is a convert above it."""
        if isinstance(node.operator, Base):
            return keep_rows(readings, self._mask_accepted(node.operator, readings, known_once=known_once))
        if node.is_fused and isinstance(node.source.operator, Base):
            accepted_mask = self._mask_accepted(node.source.operator, readings, known_once=known_once)
            return self._convert_readings(node, readings, accepted_mask, known_once=known_once)
        below = self._use_readings(node.source, readings, known_once=known_once)
        return self._convert_readings(node, below, known_once=known_once)

    def _mask_accepted(self, operator: Base, readings: Readings, *, known_once: bool) -> NDArray[np.bool_]:
        """Mask the readings with an accepted flag and a finite value; count the others."""
        accepted, finite = np.isin(readings.flag, operator.accept_flags), np.isfinite(readings.value)
        for flag in np.unique(readings.flag[~accepted]):
            self._unused.add(f"flag {flag}", readings.take_rows(readings.flag == flag), known_once=known_once)
        # Counted here, because infinite values are dropped together with missing ones.
        odd = accepted & ~finite
        if odd.any():
            infinite = readings.take_rows(odd & np.isinf(readings.value))
            self._unused.add("being infinite", infinite, known_once=known_once)
        return np.asarray(accepted & finite)

    def _convert_readings(
        self,
        node: Perspective,
        readings: Readings,
        accepted: NDArray[np.bool_] | None = None,
        *,
        known_once: bool = False,
    ) -> Readings:
        """Convert readings, or those accepted, and drop what becomes missing; what is kept is copied once."""
        operator = node.operator
        if not isinstance(operator, Convert):
            raise TypeError(f"{type(operator).__name__} does not give readings")
        rows = np.arange(len(readings)) if accepted is None else np.flatnonzero(accepted)
        value = readings.value if len(rows) == len(readings) else readings.value[rows]
        with name_faulty_reading(node, readings, rows):
            value = convert_values(operator, value)
        finite = np.isfinite(value)
        if not finite.all():
            missing = readings.take_rows(rows[~finite])
            self._unused.add(", ".join(call.name for call in operator.calls), missing, known_once=known_once)
            rows, value = rows[finite], value[finite]
        kept = readings if len(rows) == len(readings) else readings.take_rows(rows)
        return replace(kept, value=value)

    def _aggregate_in_pieces(
        self,
        node: Perspective,
        operator: Aggregate,
        time: TimeCells,
        axis: SeriesAxis,
        times: Times | None,
        intervals: IntervalNotes,
    ) -> Cells:
        """Aggregate readings in pieces that fit in memory; `intervals` collects their notes."""
        # If nothing else reads them, each reading passes once: unused ones can be counted without being remembered.
        known_once = self.reads_once and times is None and node.token not in self._passed_tokens
        self._passed_tokens.add(node.token)

        use = partial(self._use_readings, node, known_once=known_once)
        return PiecewiseAggregate(
            node.bases[0], use, operator, time, axis, intervals, intervals.select_uncounted(times)
        ).compute(times)

    def _evaluate_elementwise(
        self, node: Perspective, sources: list[Cells], places: NDArray[np.intp], times: Times | None
    ) -> Cells:
        operator = node.operator
        if isinstance(operator, Merge):
            for note in note_unlike_bands([source.topology.space for source in node.sources]):
                self.diagnostics.set_note(note, note)
            return merge_sources(node, operator, sources)
        if not isinstance(operator, Convert):
            raise TypeError(f"{type(operator).__name__} is not element-wise")
        where = self._locate_values(node, operator, places)
        if where is not None and times is not None:
            where = where.select_times(times)
        return replace(sources[0], value=convert_values(operator, sources[0].value, where))

    def _locate_values(self, node: Perspective, operator: Convert, places: NDArray[np.intp]) -> CellPlaces | None:
        """Locate values for functions of place, noting assumptions; None if not needed."""
        if not any(row.placed for row in operator.list_rows()):
            return None
        where, note = locate_values(node, places)
        if note:
            self.diagnostics.set_note(note, note)
        return where

    def _interpolate(
        self,
        node: Perspective,
        operator: Interpolate,
        cells: NDArray[np.intp],
        times: Times | None,
        out: NDArray[np.float64] | None,
        *,
        variance: bool,
    ) -> Cells:
        self._count_work(node, times, len(cells))
        with name_faulty_cell(node, cells, times):
            field, metres, stations = self._get_field(node, operator, times)
        targets, known = self._get_targets(node, operator, metres, cells)
        self._mark_extrapolated(node, operator, cells[known], targets)
        possible = np.array([[stations]], dtype=np.int64)
        with name_faulty_cell(node, cells[known], times):
            counts = count_stations_used(field, targets)
            self._note_unreached(node, operator, targets, cells[known], None if times is not None else counts)
            into = {"out": out} if isinstance(field, KrigingField | LocalField) and out is not None else {}
            estimates = field.estimate(targets, **(into if known.all() else {}))
        if known.all():
            return Cells(estimates, counts, possible, field.variance(targets) if variance else None)
        # An unknown covariate makes the estimate unknown.
        shape = (node.topology.time.count if times is None else len(times), len(cells))
        value, count = np.full(shape, np.nan), np.zeros(shape, dtype=np.int64)
        value[:, known], count[:, known] = estimates, counts
        errors = None
        if variance:
            errors = np.full(shape, np.nan)
            errors[:, known] = field.variance(targets)
        return Cells(value, count, possible, errors)

    def _find_mean_variance(
        self, node: Perspective, operator: Interpolate, aggregates: tuple[Perspective, ...], cells: NDArray[np.intp]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64] | None]:
        """Compute the variances of aggregates of an interpolation, and their lower bounds if bracketed."""
        errors = self.get_mean_errors(node, operator, aggregates)
        if errors is None:
            return np.full((aggregates[-1].topology.time.count, len(cells)), np.nan), None
        variance_pair = errors.get_variances(cells)
        self.note_errors(errors)
        return variance_pair

    def note_errors(self, errors: MeanErrors) -> None:
        self.correlation = errors.correlation
        for note in errors.notes:
            self.diagnostics.set_note(note, note)

    def get_mean_errors(
        self, node: Perspective, operator: Interpolate, aggregates: tuple[Perspective, ...]
    ) -> MeanErrors | None:
        """Return the errors of aggregates of an interpolation; None without stations or a variogram."""
        final = aggregates[-1]
        field, metres, _ = self._get_field(node, operator)
        # An assumed variogram gives no error variance.
        if not field.counts.any() or field.is_assumed:
            return None
        if final.token not in self._errors:
            if not isinstance(field, KrigingField):
                raise InvalidQuery(
                    f"the variance of a mean is known for kriging from all stations only; {operator.method} with these "
                    "parameters is not that; ask for the variance of the single estimates"
                )
            targets = partial(targets_of, node, operator, metres)
            self._errors[final.token] = MeanErrors(aggregates, field, targets, memory=operator.error_correlation)
        return self._errors[final.token]

    def collect_notes(self, node: Perspective, cells: NDArray[np.intp]) -> None:
        """Collect the notes of computing all time cells of some cells, without computing them.

        The cells are of a grid, or zones. The notes of their sources must have been collected before.
        """
        operator, target = node.operator, node.topology.space
        if isinstance(operator, Interpolate):
            _, targets, known = self.get_interpolation(node, operator, cells)
            self._mark_extrapolated(node, operator, cells[known], targets)
            self._note_unreached(node, operator, targets, cells[known], None)
        elif isinstance(operator, Convert):
            self._locate_values(node, operator, cells)
        elif isinstance(operator, Aggregate) and changes_cells(node.source.topology.space, target):
            below = node.source.topology.space
            self.diagnostics.carry_marks(below, target, cells, cover_space(below, target, cells, operator.row))

    def get_interpolation(
        self, node: Perspective, operator: Interpolate, cells: NDArray[np.intp]
    ) -> tuple[Field, Targets, NDArray[np.bool_]]:
        """Return field and targets of an interpolation, and the mask of `cells` that are targets."""
        field, metres, _ = self._get_field(node, operator)
        return field, *self._get_targets(node, operator, metres, cells)

    def _get_targets(
        self, node: Perspective, operator: Interpolate, metres: Metres, cells: NDArray[np.intp]
    ) -> tuple[Targets, NDArray[np.bool_]]:
        targets, known = self._field_cache.get_targets(
            node.token, cells, metres, partial(targets_of, node, operator, metres, cells)
        )
        if not known.all():
            key, names = field_key(node, operator), operator.covariates
            self.diagnostics.note_missing_covariates(key, get_grid(node), cells[~known], names)
        return targets, known

    def _mark_extrapolated(
        self, node: Perspective, operator: Interpolate, cells: NDArray[np.intp], targets: Targets
    ) -> None:
        key = field_key(node, operator)
        field = self._fields[key][0] if key in self._fields else None
        grid = get_grid(node)
        self.diagnostics.mark_extrapolated(key, field, grid, cells, targets)
        self.diagnostics.note_extrapolation(key, operator.method, grid, cells, relative_leverage(field, targets))

    def _note_unreached(
        self,
        node: Perspective,
        operator: Interpolate,
        targets: Targets,
        cells: NDArray[np.intp],
        counts: NDArray[np.int64] | None,
    ) -> None:
        """Note how many estimates are missing because too few reporting stations are within the radius.

        The note is for all slices: if a box has only some of them, the others are counted too, once per cell.
        """
        radius_m = operator.arguments.get("radius_m")
        if radius_m is None:
            return
        key = node.token
        if counts is None and self.diagnostics.has_reach(key, cells):
            return
        field, _, _ = self._get_field(node, operator)
        counts = count_stations_used(field, targets) if counts is None else counts
        if counts.shape[1] == len(cells):
            self.diagnostics.note_unreached(key, get_grid(node), cells, field, counts, radius_m)

    def _get_field(
        self, node: Perspective, operator: Interpolate, times: Times | None = None
    ) -> tuple[Field, Metres, int]:
        """Return the field of some or all slices, its plane, and its station count."""
        key = field_key(node, operator)
        if key not in self._fields:
            if times is not None and self._is_pulled(node.source) and is_by_slice(operator):
                values = self.block(node.source, np.arange(node.source.topology.space.count), times=times).value
                # Once each station has reported, the set of used stations no longer depends on the slices.
                if key in self._network_known or (np.isfinite(values).any(axis=0) | ~mask_reach(node)).all():
                    self._network_known.add(key)
                    return self._field_cache.get_field(key, values) or self._prepare_field(node, operator, values)
            self._fields[key] = self._prepare_field(node, operator, self._cached_stations(node.source).value)
        field, metres, stations = self._fields[key]
        return (field if times is None else field.take_slices(times)), metres, stations

    def _prepare_field(
        self, node: Perspective, operator: Interpolate, values: NDArray[np.float64]
    ) -> tuple[Field, Metres, int]:
        key = field_key(node, operator)
        # Once the network is known, a station that is silent in this box reports in others.
        has_reports = np.asarray(np.isfinite(values).any(axis=0) | (key in self._network_known))
        reporting = select_stations(node, operator, has_reports, is_part=self._is_part)
        for what, left_out in reporting.left_out.items():
            self.diagnostics.set_note(what, f"stations {what} are not used: {', '.join(left_out)}")
        if reporting.heights_m is not None:
            self.diagnostics.set_station_heights(key, reporting.heights_m)
        used, metres = reporting.used, reporting.metres
        prepared = prepare_interpolation(operator, reporting.stations, values[:, used], reporting.network_m)
        for note in (*reporting.notes, *(note_prefix(node.source) + note for note in prepared.notes)):
            self.diagnostics.set_note(note, note)
        field = prepared.field
        field.expect(node.topology.space.count, node.topology.time.count, cache=self._weights)
        placed_count = reporting.placed_count - prepared.merged_count
        stations = min(operator.arguments.get("neighbours") or placed_count, placed_count)
        if key in self._network_known and not prepared.merged_count:
            self._field_cache.keep(key, FieldNetwork(field, used, metres, stations))
        return field, metres, stations

    def _aggregate_grid(
        self,
        node: Perspective,
        operator: Aggregate,
        cells: NDArray[np.intp],
        wanted: Times | None,
        out: NDArray[np.float64] | None,
    ) -> Cells:
        source, target, time = node.source.topology, node.topology.space, node.topology.time
        space, needed = None, cells
        if changes_cells(source.space, target):
            space = cover_space(source.space, target, cells, operator.row)
            needed = space.needed
        times = (source.time, time) if "time" in operator.dimensions and not isinstance(time, Instants) else None
        if times is not None and operator.at_stations:
            commuted = self._commute_aggregate(node.source, operator, times, needed, wanted, out)
            if commuted is not None:
                return commuted
        keys = space_keys(target, cells) if operator.row.rank is not None else np.empty(0, dtype=np.uint64)
        slices, part = (wanted, None) if times is None else make_time_part(times, operator, wanted)
        if times is not None and space is None and self._is_applied_above(node.source):
            return self._aggregate_converted(node, times, cells, slices, keys, part)
        block = self.block(node.source, needed, times=slices)
        if space is not None:
            self.diagnostics.carry_marks(source.space, target, cells, space)
        return aggregate_cells(block, operator, times=times, space=space, keys=keys, part=part)

    def _is_applied_above(self, node: Perspective) -> bool:
        """Return whether a convert on a grid is applied in the pass of its aggregate, not held."""
        return node.is_fused and node.token not in self._grid_cells

    def _aggregate_converted(
        self,
        node: Perspective,
        axes: tuple[TimeAxis, TimeCells],
        cells: NDArray[np.intp],
        slices: Times | None,
        keys: NDArray[np.uint64],
        part: TimePart | None,
    ) -> Cells:
        """Convert and aggregate a few places at a time: converted values stay in the processor's cache."""
        convert, operator = node.source, node.aggregate
        below = self.block(convert.source, cells, times=slices)
        self._count_work(convert, slices, len(cells))
        # At least two places: one column alone would be summed in pairs, and rounded otherwise.
        count = max(1, len(cells) // max(FUSED_VALUES // max(len(below.value), 1), 2))
        parts = []
        for first, stop in pairwise(np.linspace(0, len(cells), count + 1, dtype=np.intp).tolist()):
            chosen = slice(first, stop)
            source = self._evaluate_elementwise(convert, [below.select_places(chosen)], cells[chosen], slices)
            parts.append(aggregate_cells(source, operator, times=axes, space=None, keys=keys[chosen], part=part))
        return join_places(parts)

    def _commute_aggregate(
        self,
        source: Perspective,
        operator: Aggregate,
        times: tuple[TimeAxis, TimeCells],
        cells: NDArray[np.intp],
        wanted: Times | None,
        out: NDArray[np.float64] | None,
    ) -> Cells | None:
        """Interpolate the aggregated stations once instead of aggregating the interpolated slices.

        Exact if the method is one linear map of the values of all stations in every slice; None otherwise.
        """
        if not isinstance(source.operator, Interpolate):
            return None
        if source.token in self._grid_cells:
            return None
        needed, part = make_time_part(times, operator, wanted)
        field, metres, _ = self._get_field(source, source.operator, needed)
        # With a known mean, a sum of slices is not the kriged sum: the mean would have to be added once per slice.
        if not isinstance(field, KrigingField | DetrendedKriging) or (field.mean and operator.function != "mean"):
            return None
        targets, known = self._get_targets(source, source.operator, metres, cells)
        self._mark_extrapolated(source, source.operator, cells[known], targets)
        key = source.token + repr(operator.content()) + token(times[1])
        if key not in self._carried or wanted is not None:
            keys = np.empty(0, dtype=np.uint64)
            stations = Cells(field.complete, np.ones((1, 1), np.int64), np.ones((1, 1), np.int64))
            folded = aggregate_cells(stations, operator, times=times, space=None, keys=keys, part=part)
            self._carried[key] = folded, field.dual(folded.value)
        folded, dual = self._carried[key]
        count = folded.count[:, :1]
        if known.all():
            # Write straight into the surface: copying it costs as much as the product.
            into = {"out": out} if isinstance(field, KrigingField) and out is not None and wanted is None else {}
            return Cells(field.carry(dual, targets, **into), count, folded.possible)
        value = np.full((len(count), len(cells)), np.nan)
        value[:, known] = field.carry(dual, targets)
        return Cells(value, np.where(known, count, 0), folded.possible)
