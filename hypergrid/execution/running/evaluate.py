"""Evaluation: what a perspective holds in a block of cells, from what its sources hold.

What is materialised is held: at the stations, which is small, it is computed once as a whole and kept by token, so that
equal parts of a query are computed once; on a grid a run puts it together and gives it (`hold`). Everything else is
pulled a box at a time, some time cells of some places, through the chain down to what is held. Readings have no cells:
they, and converts of them, are read as a whole by every strategy.
"""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from hypergrid.core.errors import InvalidQuery
from hypergrid.core.pacing import give_way
from hypergrid.core.readings import Readings
from hypergrid.core.tokens import token
from hypergrid.execution.diagnostics.coverage_notes import unlike
from hypergrid.execution.diagnostics.missing_values import without_infinite
from hypergrid.execution.diagnostics.run_notes import Remarks
from hypergrid.execution.operators.array_readings import judged_by_interval, readings_of
from hypergrid.execution.operators.cells import Cells, times_of
from hypergrid.execution.operators.counters import note_of_cells, prepared_readings
from hypergrid.execution.operators.elementwise import columns, converted, merged, where_of
from hypergrid.execution.operators.field_cache import Network, Networks
from hypergrid.execution.operators.grids import aggregate_cells, cover_space, space_keys
from hypergrid.execution.operators.instants import at_instants, known_cells, known_readings
from hypergrid.execution.operators.interpolation_inputs import (
    covariates_of,
    prepare,
    stations_of,
    targets_of,
)
from hypergrid.execution.operators.interpolations import (
    field_key,
    grid_of,
    is_by_slice,
    layers_of,
    of_what,
    reached_by,
    stations_used,
)
from hypergrid.execution.operators.intervals import IntervalNotes, say_intervals
from hypergrid.execution.operators.pieces import Pieces, in_pieces
from hypergrid.execution.operators.sparse_cells import SparseCells, stored, taken
from hypergrid.execution.operators.stations import FIRST, aggregate_readings, aggregate_slices, finite
from hypergrid.execution.operators.user_function_errors import naming_cell, naming_reading
from hypergrid.execution.planning.dependencies import Times, reached, recurred, time_part
from hypergrid.execution.planning.measured import Meter
from hypergrid.execution.running.buffers import Buffers
from hypergrid.execution.running.mean_errors import MeanErrors
from hypergrid.execution.running.unused_readings import LeftOut
from hypergrid.interpolation import Field, Targets
from hypergrid.interpolation.local.field import LocalField
from hypergrid.interpolation.methods.detrended import Detrended, DetrendedKriging
from hypergrid.interpolation.methods.extrapolation import relative_leverage
from hypergrid.interpolation.methods.field_subset import field_of
from hypergrid.interpolation.methods.in_time import Known
from hypergrid.interpolation.solvers.field import KrigingField
from hypergrid.interpolation.solvers.trend import ELEVATION
from hypergrid.perspective import Aggregate, Base, Convert, Interpolate, InterpolateInTime, Merge, Perspective, Recur
from hypergrid.perspective.build.station_projection import place
from hypergrid.perspective.build.uncertainty_spec import averaged
from hypergrid.perspective.functions.rows import Where
from hypergrid.perspective.sources.interval_spans import has_intervals
from hypergrid.topology import Instants, Metres, Regular, SeriesAxis, TimeAxis, TimeCells, changes_cells


class Evaluator:
    """Computes blocks of perspectives; holds what is shared between blocks."""

    def __init__(
        self,
        *,
        pulled: frozenset[str] = frozenset(),
        buffers: Buffers | None = None,
        meter: Meter | None = None,
        keeps_weights: bool = True,
        reads_once: bool = False,
    ) -> None:
        """Take how the chain is computed.

        Parameters
        ----------
        pulled
            Tokens of the perspectives at stations that are pulled box by box; the others are computed as a whole.
        buffers
            Where cells are kept that more than one box asks for; without, they are computed again.
        meter
            What measures each perspective.
        keeps_weights
            Whether weights of kriging are kept for other boxes.
        reads_once
            Whether one perspective alone reads readings, so that those left out are counted as they pass.
        """
        self._meter, self._keeps_weights = meter, keeps_weights
        self._pulled, self._buffers = pulled, buffers
        self.work: dict[str, int] = {}
        """Cells that were computed, by token."""
        self._held: dict[str, Cells] = {}
        self._network_known: set[str] = set()
        self._readings: dict[str, Readings] = {}
        self._increments: dict[str, Readings] = {}
        """By token, what counters grew by: judging their falls takes longer than reading them."""
        self._interval_notes: dict[str, IntervalNotes] = {}
        """By token of an aggregate of pieces."""
        self._known_readings: dict[str, Known] = {}
        self._whole: dict[str, Cells | SparseCells] = {}
        self._carried: dict[str, tuple[Cells, NDArray[np.float64]]] = {}
        self._fields: dict[str, tuple[Field, Metres, int]] = {}
        self._networks = Networks()
        self._left_out = LeftOut()
        self.remarks = Remarks()
        """What is said beside the values."""
        self.correlation = ""
        """Which correlation between slices the variance of a mean took, for people."""
        self._errors: dict[str, MeanErrors] = {}
        self._passed: set[str] = set()
        self.reads_in_pieces, self.reads_once = True, reads_once

    @property
    def left_out(self) -> dict[str, int]:
        """Readings that were read and not used, by reason."""
        return self._left_out.counts

    def hold(self, here: Perspective, cells: Cells) -> None:
        """Keep a materialised perspective, every time cell of every place; nothing below it is computed again."""
        self._held[here.token] = cells

    def materialise_stations(self, here: Perspective) -> None:
        """Compute a perspective at stations as a whole and keep it, sparse where it has many holes."""
        self._whole[here.token] = stored(self._stations(here))

    def drop(self, here: Perspective) -> None:
        """Let go of a materialised perspective."""
        self._held.pop(here.token, None)
        self._whole.pop(here.token, None)

    def surface(
        self,
        here: Perspective,
        cells: NDArray[np.intp],
        times: Times | None = None,
        *,
        out: NDArray[np.float64] | None = None,
    ) -> Cells:
        """Return what `block` does, and the variances where the query asks for them."""
        below, aggregates = averaged(here)
        operator = below.operator
        if not isinstance(operator, Interpolate) or not operator.variance:
            return self.block(here, cells, times=times, out=out)
        if not aggregates:
            return self._interpolate(here, operator, cells, times, out, variance=True)
        block = self.block(here, cells, times=times, out=out)
        high, low = self._mean_variance(below, operator, aggregates, cells)
        if times is not None:
            # Errors of means correlate over all slices: they are known for the whole time, and some of it taken.
            high, low = high[times], None if low is None else low[times]
        # Where too little is there for a mean, there is none to be wrong about.
        missing = np.isnan(block.value)
        for variance in (high, low):
            if variance is not None:
                variance[missing] = np.nan
        return replace(block, variance=high, variance_low=low)

    def block(
        self,
        here: Perspective,
        cells: NDArray[np.intp],
        times: Times | None = None,
        *,
        out: NDArray[np.float64] | None = None,
    ) -> Cells:
        """Return the values of a box: some time cells of some cells of the space.

        Parameters
        ----------
        here
            The perspective.
        cells
            Flat cells of a grid, or series; shape (cells,).
        times
            Numbers of the time cells, increasing, shape (chosen,); every time cell where absent.
        out
            Where the values may be put, shape (time, cells); whoever can writes them there instead of to new memory.
        """
        if isinstance(here.topology.space, SeriesAxis):
            return columns(self._at_stations(here, times), cells)
        if here.token in self._held:
            held = columns(self._held[here.token], cells)
            return held if times is None else times_of(held, times)
        if self._buffers is None:
            return self._on_grid(here, cells, times, out)
        if times is None and not self._buffers.has(here):
            return self._on_grid(here, cells, None, out)
        wanted = np.arange(here.topology.time.count) if times is None else times
        return self._buffers.take(here, cells, wanted, lambda missing: self._on_grid(here, cells, missing, None))

    def _on_grid(
        self, here: Perspective, cells: NDArray[np.intp], times: Times | None, out: NDArray[np.float64] | None
    ) -> Cells:
        return self._measured(here, lambda: self._make_on_grid(here, cells, times, out))

    def _measured(self, here: Perspective, make: Callable[[], Cells]) -> Cells:
        give_way()
        if self._meter is None:
            return make()
        with self._meter.on(here.token) as measure:
            made = make()
            measure(made.value)
        return made

    def _make_on_grid(
        self, here: Perspective, cells: NDArray[np.intp], times: Times | None, out: NDArray[np.float64] | None
    ) -> Cells:
        operator = here.operator
        if isinstance(operator, Interpolate):
            return self._interpolate(here, operator, cells, times, out, variance=False)
        self._count(here, times, len(cells))
        with naming_cell(here, cells, times):
            if isinstance(operator, Aggregate):
                return self._aggregate_grid(here, operator, cells, times, out)
            if isinstance(operator, Recur):
                needed, places = recurred(here, times)
                return times_of(self.block(here.source, cells, times=needed), places)
            sources = [self.block(source, cells, times=times) for source in here.sources]
            return self._elementwise(here, sources, cells, times)

    def _count(self, here: Perspective, times: Times | None, places: int) -> None:
        rows = here.topology.time.count if times is None else len(times)
        self.work[here.token] = self.work.get(here.token, 0) + rows * places

    def _is_pulled(self, here: Perspective) -> bool:
        return here.token in self._pulled and here.token not in self._whole

    def _at_stations(self, here: Perspective, times: Times | None) -> Cells:
        if not self._is_pulled(here):
            return self._stations(here) if times is None else self._stations_at(here, times)
        if self._buffers is None:
            return self._compute_stations(here, times)
        places = np.arange(here.topology.space.count)
        wanted = np.arange(here.topology.time.count) if times is None else times
        return self._buffers.take(here, places, wanted, lambda missing: self._compute_stations(here, missing))

    def _stations(self, here: Perspective) -> Cells:
        if here.token not in self._whole:
            pulled = self._is_pulled(here)
            self._whole[here.token] = self._at_stations(here, None) if pulled else self._compute_stations(here, None)
        return taken(self._whole[here.token], None)

    def _stations_at(self, here: Perspective, times: Times) -> Cells:
        kept = self._whole.get(here.token)
        return taken(self._stations(here) if kept is None else kept, times)

    def _compute_stations(self, here: Perspective, times: Times | None) -> Cells:
        with naming_cell(here, times=times):
            return self._measured(here, lambda: self._make_at_stations(here, times))

    def _make_at_stations(self, here: Perspective, times: Times | None) -> Cells:
        operator, axis, time = here.operator, here.topology.space, here.topology.time
        self._count(here, times, axis.count)
        if here.holds_readings and isinstance(axis, SeriesAxis) and isinstance(time, Regular):
            # Asked for as cells, the base holds the first reading of each series in each slice.
            if self.reads_in_pieces and in_pieces(here, FIRST):
                return self._in_pieces(here, FIRST, time, axis, times, IntervalNotes(time, FIRST, axis.count))
            return aggregate_slices(self._read(here), time, axis, times)
        if isinstance(operator, Base):
            values, note = without_infinite(np.asarray(operator.source.read(operator.window, operator.unread)))
            self.remarks.say(f"{here.token} infinite", note)
            whole = Cells(values, np.isfinite(values).astype(np.int64), np.ones((1, 1), dtype=np.int64))
            return whole if times is None else times_of(whole, times)
        if isinstance(operator, InterpolateInTime) and isinstance(axis, SeriesAxis) and isinstance(time, Regular):
            return at_instants(self._known(here, operator, times), operator, time, axis, times)
        if isinstance(operator, Aggregate) and isinstance(axis, SeriesAxis) and not isinstance(time, Instants):
            if self.reads_in_pieces and in_pieces(here.source, operator):
                notes = self._interval_notes.setdefault(here.token, IntervalNotes(time, operator, axis.count))
                cells = self._in_pieces(here.source, operator, time, axis, times, notes)
                notes.say(self.remarks, here.token)
                return cells
            if here.source.holds_readings:
                if operator.row.tiles and not self.remarks.has_said(f"{here.token} overlap"):
                    say_intervals(self.remarks, here.token, self._all_readings(here.source), time, operator)
                readings = self._prepared(here, operator)
                return aggregate_readings(readings, time, axis, operator=operator, times=times)
            return self._aggregate_cells_of_stations(here, operator, axis, time, times)
        if isinstance(operator, Recur):
            needed, which = recurred(here, times)
            return times_of(self._at_stations(here.source, needed), which)
        places = np.arange(here.topology.space.count)
        return self._elementwise(here, [self._at_stations(source, times) for source in here.sources], places, times)

    def _prepared(self, here: Perspective, operator: Aggregate) -> Readings:
        if operator.row.prepare is None:
            return self._read(here.source)
        if here.token not in self._increments:
            readings, everything = self._read(here.source), self._all_readings(here.source)
            self._increments[here.token], note = prepared_readings(readings, operator)
            if not self.remarks.has_said(here.token):
                note = note if everything is readings else prepared_readings(everything, operator)[1]
                self.remarks.say(here.token, note)
        return self._increments[here.token]

    def _aggregate_cells_of_stations(
        self, here: Perspective, operator: Aggregate, axis: SeriesAxis, time: TimeCells, times: Times | None
    ) -> Cells:
        source = here.source.topology.time
        if isinstance(source, Instants) and has_intervals(source, axis):
            # Where an interval begins, and what it overlaps, may lie beyond the instants of a box.
            readings = readings_of(self._at_stations(here.source, None).value, source, axis)
            if operator.row.prepare is not None:
                readings, note = prepared_readings(readings, operator)
                self.remarks.say(here.token, note)
            if operator.row.tiles and not self.remarks.has_said(f"{here.token} overlap"):
                say_intervals(self.remarks, here.token, readings, time, operator)
            return aggregate_readings(readings, time, axis, operator=operator, times=times)
        keys = space_keys(axis, np.arange(axis.count))
        axes = (source, time)
        needed, part = time_part(axes, operator, times)
        block = self._at_stations(here.source, needed)
        if operator.row.prepare is not None and not self.remarks.has_said(here.token):
            self.remarks.say(here.token, note_of_cells(self._all_cells(here.source).value, source, operator))

        def fold(by: Aggregate) -> Cells:
            return aggregate_cells(block, by, times=axes, space=None, full_space=1, keys=keys, part=part)

        return judged_by_interval(fold, operator, time, axis, times) if isinstance(source, Instants) else fold(operator)

    def _known(self, here: Perspective, operator: InterpolateInTime, times: Times | None) -> Known:
        source = here.source
        if source.holds_readings:
            if source.token not in self._known_readings:
                found = known_readings(self._read(source), here.topology.space.count)
                self._known_readings[source.token] = found
            return self._known_readings[source.token]
        if times is None:
            return known_cells(self._at_stations(source, None), source.topology.time)
        needed = reached(here, operator, times)
        span = source.topology.time.part(int(needed[0]), int(needed[-1]) + 1)
        return known_cells(self._at_stations(source, needed), span)

    def _all_cells(self, here: Perspective) -> Cells:
        """Return the cells of a run at the stations, whichever of them are worked on now."""
        return self._at_stations(here, None)

    def _all_readings(self, here: Perspective) -> Readings:
        """Return the readings of a run, whichever of them are worked on now."""
        return self._read(here)

    def _read(self, here: Perspective) -> Readings:
        if here.token not in self._readings:
            self._readings[here.token] = self._compute_readings(here)
        return self._readings[here.token]

    def _compute_readings(self, here: Perspective) -> Readings:
        operator = here.operator
        if isinstance(operator, Base):
            found = operator.source.read(operator.window, operator.unread)
            if not isinstance(found, Readings):
                message = f"{operator.source.variable.name} is an array, not readings"
                raise TypeError(message)
            return self._accepted(operator, found)
        return self._converted(here, self._read(here.source))

    def _accepted(self, operator: Base, found: Readings, *, known_once: bool = False) -> Readings:
        accepted = np.isin(found.flag, operator.accept_flags)
        for flag in np.unique(found.flag[~accepted]):
            self._left_out.add(f"flag {flag}", found.take(found.flag == flag), known_once=known_once)
        infinite = found.take(accepted & np.isinf(found.value))
        self._left_out.add("being infinite", infinite, known_once=known_once)
        return finite(found.take(accepted))

    def _converted(self, here: Perspective, readings: Readings, *, known_once: bool = False) -> Readings:
        operator = here.operator
        if not isinstance(operator, Convert):
            message = f"{type(operator).__name__} does not give readings"
            raise TypeError(message)
        with naming_reading(here, readings):
            value = converted(operator, readings.value)
        missing = readings.take(~np.isfinite(value))
        self._left_out.add(", ".join(call.name for call in operator.calls), missing, known_once=known_once)
        return finite(replace(readings, value=value))

    def _in_pieces(
        self,
        here: Perspective,
        operator: Aggregate,
        time: TimeCells,
        axis: SeriesAxis,
        times: Times | None,
        intervals: IntervalNotes,
    ) -> Cells:
        """Return an aggregate of readings that are too many to be read at once; `intervals` takes their notes."""
        base = here.bases()[0].operator
        if not isinstance(base, Base):
            message = "readings begin with a base"
            raise TypeError(message)
        # Where nothing else reads them, each reading passes once: which were left out need not be remembered.
        known_once = self.reads_once and times is None and here.token not in self._passed
        self._passed.add(here.token)

        def use(found: Readings, item: Perspective = here) -> Readings:
            if isinstance(item.operator, Base):
                return self._accepted(item.operator, found, known_once=known_once)
            return self._converted(item, use(found, item.source), known_once=known_once)

        return Pieces(base, use, operator, time, axis, intervals, intervals.fresh(times)).cells(times)

    def _elementwise(
        self, here: Perspective, sources: list[Cells], places: NDArray[np.intp], times: Times | None
    ) -> Cells:
        operator = here.operator
        if isinstance(operator, Merge):
            for note in unlike([source.topology.space for source in here.sources]):
                self.remarks.say(note, note)
            return merged(here, operator, sources)
        if not isinstance(operator, Convert):
            message = f"{type(operator).__name__} is not element-wise"
            raise TypeError(message)
        where = self._where(here, operator, places)
        if where is not None and times is not None:
            where = where.at(times)
        return replace(sources[0], value=converted(operator, sources[0].value, where))

    def _where(self, here: Perspective, operator: Convert, places: NDArray[np.intp]) -> Where | None:
        """Return where values are, for functions of place; what was assumed of it is said."""
        if not any(row.placed for row in operator.rows()):
            return None
        where, note = where_of(here, places)
        if note:
            self.remarks.say(note, note)
        return where

    def _interpolate(
        self,
        here: Perspective,
        operator: Interpolate,
        cells: NDArray[np.intp],
        times: Times | None,
        out: NDArray[np.float64] | None,
        *,
        variance: bool,
    ) -> Cells:
        self._count(here, times, len(cells))
        field, metres, stations = self._field(here, operator, times)
        targets, known = self._targets(here, operator, metres, cells)
        self._mark(here, operator, cells[known], targets)
        possible = np.array([[stations]], dtype=np.int64)
        counts = stations_used(field, targets)
        self._tell_unreached(here, operator, targets, cells[known], None if times is not None else counts)
        if known.all():
            into = {"out": out} if isinstance(field, KrigingField | LocalField) and out is not None else {}
            value = field.at(targets, **into)
            return Cells(value, counts, possible, field.variance(targets) if variance else None)
        # Where a covariate is unknown, so is the estimate.
        shape = (here.topology.time.count if times is None else len(times), len(cells))
        value, count = np.full(shape, np.nan), np.zeros(shape, dtype=np.int64)
        value[:, known], count[:, known] = field.at(targets), counts
        errors = None
        if variance:
            errors = np.full(shape, np.nan)
            errors[:, known] = field.variance(targets)
        return Cells(value, count, possible, errors)

    def _mean_variance(
        self, here: Perspective, operator: Interpolate, aggregates: tuple[Perspective, ...], cells: NDArray[np.intp]
    ) -> tuple[NDArray[np.float64], NDArray[np.float64] | None]:
        """Return the variances of aggregates of an interpolation, and their low ends where they are bracketed."""
        errors = self.mean_errors(here, operator, aggregates)
        if errors is None:
            return np.full((aggregates[-1].topology.time.count, len(cells)), np.nan), None
        found = errors.of(cells)
        self.remark_errors(errors)
        return found

    def remark_errors(self, errors: MeanErrors) -> None:
        """Say what the errors of a mean have to say."""
        self.correlation = errors.correlation
        for note in errors.notes:
            self.remarks.say(note, note)

    def mean_errors(
        self, here: Perspective, operator: Interpolate, aggregates: tuple[Perspective, ...]
    ) -> MeanErrors | None:
        """Return the errors of aggregates of an interpolation; None without stations or a variogram."""
        final = aggregates[-1]
        field, metres, _ = self._field(here, operator)
        if not field.counts.any() or getattr(field, "is_assumed", False):
            return None
        if final.token not in self._errors:
            if not isinstance(field, KrigingField):
                message = (
                    f"the variance of a mean is known for kriging from all stations only; {operator.method} with these "
                    "parameters is not that; ask for the variance of the single estimates"
                )
                raise InvalidQuery(message)
            names = operator.row.covariates(operator.given)

            def targets(places: NDArray[np.intp]) -> tuple[Targets, NDArray[np.bool_]]:
                return targets_of(grid_of(here), places, metres, names, layers_of(here), operator.given)

            self._errors[final.token] = MeanErrors(aggregates, field, targets, memory=operator.memory)
        return self._errors[final.token]

    def remark(self, here: Perspective, cells: NDArray[np.intp]) -> None:
        """Say what computing every time cell of some cells of a grid, or zones, would say; nothing is computed.

        What they are derived from was remarked on before.
        """
        operator, target = here.operator, here.topology.space
        if isinstance(operator, Interpolate):
            _, targets, known = self.interpolation(here, operator, cells)
            self._mark(here, operator, cells[known], targets)
            self._tell_unreached(here, operator, targets, cells[known], None)
        elif isinstance(operator, Convert):
            self._where(here, operator, cells)
        elif isinstance(operator, Aggregate) and changes_cells(here.source.topology.space, target):
            below = here.source.topology.space
            self.remarks.carry(below, target, cells, cover_space(below, target, cells, operator.row))

    def interpolation(
        self, here: Perspective, operator: Interpolate, cells: NDArray[np.intp]
    ) -> tuple[Field, Targets, NDArray[np.bool_]]:
        """Return the field of an interpolation, some of its cells as targets, and which of the cells they are."""
        field, metres, _ = self._field(here, operator)
        return field, *self._targets(here, operator, metres, cells)

    def _targets(
        self, here: Perspective, operator: Interpolate, metres: Metres, cells: NDArray[np.intp]
    ) -> tuple[Targets, NDArray[np.bool_]]:
        names = operator.row.covariates(operator.given)
        targets, known = self._networks.targets(
            here.token, cells, metres,
            lambda: targets_of(grid_of(here), cells, metres, names, layers_of(here), operator.given),
        )  # fmt: skip
        if not known.all():
            self.remarks.without_covariates(field_key(here, operator), grid_of(here), cells[~known], names)
        return targets, known

    def _mark(self, here: Perspective, operator: Interpolate, cells: NDArray[np.intp], targets: Targets) -> None:
        """Keep which cells of a grid lie outside the elevations of the stations that they are estimated from."""
        key = field_key(here, operator)
        field = self._fields[key][0] if key in self._fields else None
        grid = grid_of(here)
        self.remarks.mark(key, field, grid, cells, targets)
        self.remarks.beyond(key, operator.method, grid, cells, relative_leverage(field, targets))

    def _tell_unreached(
        self,
        here: Perspective,
        operator: Interpolate,
        targets: Targets,
        cells: NDArray[np.intp],
        counts: NDArray[np.int64] | None,
    ) -> None:
        """Say how many estimates are missing because too few of the stations that report are within the radius.

        It is said of all slices: where a box has some of them only, the others are counted too, once a cell.
        """
        radius_m = operator.given.get("radius_m")
        if radius_m is None:
            return
        key = here.token
        if counts is None and self.remarks.knows_reach(key, cells):
            return
        field, _, _ = self._field(here, operator)
        counts = stations_used(field, targets) if counts is None else counts
        if counts.shape[1] == len(cells):
            self.remarks.unreached(key, grid_of(here), cells, field, counts, radius_m)

    def _field(self, here: Perspective, operator: Interpolate, times: Times | None = None) -> tuple[Field, Metres, int]:
        """Return the field of some slices, or of all, the plane that it is on, and how many stations it may use."""
        key = field_key(here, operator)
        if key not in self._fields:
            if times is not None and self._is_pulled(here.source) and is_by_slice(operator):
                values = self.block(here.source, np.arange(here.source.topology.space.count), times=times).value
                # Which stations are used does not depend on the slices once each was heard.
                if key in self._network_known or (np.isfinite(values).any(axis=0) | ~reached_by(here)).all():
                    self._network_known.add(key)
                    return self._networks.field(key, values) or self._prepare(here, operator, values)
            self._fields[key] = self._prepare(here, operator, self._stations(here.source).value)
        field, metres, stations = self._fields[key]
        return (field if times is None else field_of(field, times)), metres, stations

    def _prepare(
        self, here: Perspective, operator: Interpolate, values: NDArray[np.float64]
    ) -> tuple[Field, Metres, int]:
        key = field_key(here, operator)
        axis = here.source.topology.space
        if not isinstance(axis, SeriesAxis):
            message = "an interpolation starts from stations"
            raise TypeError(message)
        placing = place(axis, operator)
        heard = np.isfinite(values).any(axis=0) | (key in self._network_known)
        names = operator.row.covariates(operator.given)
        covariates = covariates_of(axis, names, layers_of(here))
        known = np.ones(axis.count, dtype=bool)
        for covariate in covariates.values():
            known &= np.isfinite(covariate)
        for what, keep in (
            ("without a position", placing.placed),
            ("without a value in this time", heard | ~reached_by(here)),
            (f"without {' or '.join(names)}", known | ~placing.near | ~heard),
        ):
            left_out = [axis.series[i].station for i in np.flatnonzero(~keep)]
            if left_out:
                self.remarks.say(what, f"stations {what} are not used: {', '.join(left_out)}")
        used = np.flatnonzero(placing.near & heard & known)
        network_m = None
        if ELEVATION in covariates:
            self.remarks.stations_lie(key, covariates[ELEVATION][used])
            network_m = covariates[ELEVATION][placing.near & known]
        metres = placing.metres
        prepared = prepare(operator, stations_of(axis, used, metres, covariates), values[:, used], network_m)
        for note in (*placing.notes, *(of_what(here.source) + note for note in prepared.notes)):
            self.remarks.say(note, note)
        field = prepared.field
        if isinstance(field, KrigingField | LocalField | Detrended):
            field.expect(here.topology.space.count, here.topology.time.count, keep=self._keeps_weights)
        placed_count = int((placing.near & known).sum()) - prepared.merged
        stations = min(operator.given.get("neighbours") or placed_count, placed_count)
        if key in self._network_known and not prepared.merged:
            self._networks.keep(key, Network(field, used, metres, stations))
        return field, metres, stations

    def _aggregate_grid(
        self,
        here: Perspective,
        operator: Aggregate,
        cells: NDArray[np.intp],
        wanted: Times | None,
        out: NDArray[np.float64] | None,
    ) -> Cells:
        source, target, time = here.source.topology, here.topology.space, here.topology.time
        space, needed, full = None, cells, np.ones(1, np.int64)
        if changes_cells(source.space, target):
            space = cover_space(source.space, target, cells, operator.row)
            needed = space.needed
            full = space.full
        times = (source.time, time) if "time" in operator.dimensions and not isinstance(time, Instants) else None
        if times is not None and operator.at_stations:
            commuted = self._carry(here.source, operator, times, needed, wanted, out)
            if commuted is not None:
                return commuted
        keys = space_keys(target, cells) if operator.row.rank is not None else np.empty(0, dtype=np.uint64)
        slices, part = (wanted, None) if times is None else time_part(times, operator, wanted)
        block = self.block(here.source, needed, times=slices)
        if space is not None:
            self.remarks.carry(source.space, target, cells, space)
        return aggregate_cells(block, operator, times=times, space=space, full_space=full, keys=keys, part=part)

    def _carry(
        self,
        source: Perspective,
        operator: Aggregate,
        times: tuple[TimeAxis, TimeCells],
        cells: NDArray[np.intp],
        wanted: Times | None,
        out: NDArray[np.float64] | None,
    ) -> Cells | None:
        """Return a linear aggregate over time of interpolated slices as one interpolation of the aggregated stations.

        Exact where the method is one linear map of the values of all stations in every slice; None elsewhere.
        """
        if not isinstance(source.operator, Interpolate):
            return None
        if source.token in self._held:
            return None
        needed, part = time_part(times, operator, wanted)
        field, metres, _ = self._field(source, source.operator, needed)
        # A sum of slices with a known mean is not the kriged sum: the mean would have to be added once a slice.
        if not isinstance(field, KrigingField | DetrendedKriging) or (field.mean and operator.function != "mean"):
            return None
        targets, known = self._targets(source, source.operator, metres, cells)
        self._mark(source, source.operator, cells[known], targets)
        key = source.token + repr(operator.content()) + token(times[1])
        if key not in self._carried or wanted is not None:
            keys = np.empty(0, dtype=np.uint64)
            stations = Cells(field.complete, np.ones((1, 1), np.int64), np.ones((1, 1), np.int64))
            folded = aggregate_cells(stations, operator, times=times, space=None, full_space=1, keys=keys, part=part)
            self._carried[key] = folded, field.dual(folded.value)
        folded, dual = self._carried[key]
        count = folded.count[:, :1]
        if known.all():
            # Straight to where the surface is: a copy of all of it costs as much as the product.
            into = {"out": out} if isinstance(field, KrigingField) and out is not None and wanted is None else {}
            return Cells(field.carry(dual, targets, **into), count, folded.possible)
        value = np.full((len(count), len(cells)), np.nan)
        value[:, known] = field.carry(dual, targets)
        return Cells(value, np.where(known, count, 0), folded.possible)
