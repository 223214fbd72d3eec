"""Where in time the values of a block or of readings stand, and counters turned to what they grew by."""

from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from hypergrid.core.readings import Readings
from hypergrid.core.times import SECOND_NS
from hypergrid.execution.diagnostics.counter_notes import counter_note
from hypergrid.perspective.build.timestamps import find_reading_instants_ns, find_standing_instants_ns
from hypergrid.perspective.functions.ragged import ValueInstants, split_pieces
from hypergrid.perspective.tree.operators import Aggregate
from hypergrid.topology import Bins, Regular, TimeAxis

DAY_NS = 86_400 * SECOND_NS


def instants_of_readings(readings: Readings, operator: Aggregate, origin_ns: int) -> ValueInstants | None:
    """Return where readings stand in time, in days since an origin; None where the function does not ask."""
    if not (operator.row.timed or operator.row.lasting):
        return None
    intervals_s = np.array([series.interval_s for series in readings.series] or [0.0])
    for_days = np.where(intervals_s > 0, intervals_s * SECOND_NS / DAY_NS, np.nan)[readings.index]
    return ValueInstants((find_reading_instants_ns(readings) - origin_ns) / DAY_NS, for_days)


def instants_of_cells(axis: TimeAxis, operator: Aggregate, origin_ns: int) -> ValueInstants | None:
    """Return where the values of time cells stand, in days since an origin; None where the function does not ask."""
    if not (operator.row.timed or operator.row.lasting):
        return None
    at_days = (find_standing_instants_ns(axis) - origin_ns) / DAY_NS
    return ValueInstants(at_days, _interval_lengths_ns(axis) / DAY_NS)


def _interval_lengths_ns(axis: TimeAxis) -> NDArray[np.float64]:
    """Return how long each cell stands for [ns], NaN where that is not known, shape (count,)."""
    if isinstance(axis, Bins):
        return axis.lengths.astype(np.float64)
    # Windows that overlap share their time; each stands for what is its own.
    return np.full(axis.count, min(axis.length, axis.step) if isinstance(axis, Regular) else np.nan)


def prepare_readings(readings: Readings, operator: Aggregate) -> tuple[Readings, str]:
    """Return readings as a function takes them, and what a reader should know of how they were made.

    Of a counter they are what it grew by, and the note counts its gaps and its falls.

    Parameters
    ----------
    readings
        Ordered by series and time, none missing; those that the function looks back or ahead at are among them.
    """
    prepare = operator.row.prepare
    if prepare is None:
        return readings, ""
    increments = prepare(readings.value, readings.time_ns, readings.index, operator.arguments)
    counted = np.ones(len(readings), dtype=bool)
    if operator.since_ns is not None:
        counted &= readings.starts_ns() >= operator.since_ns
    if operator.until_ns is not None:
        counted &= readings.starts_ns() < operator.until_ns
    intervals_ns = np.array([round(series.interval_s * SECOND_NS) for series in readings.series] or [0], np.int64)
    held = (readings.value, readings.time_ns, readings.index, intervals_ns[readings.index])
    note = counter_note(held, increments, counted, operator.arguments, [series.station for series in readings.series])
    return replace(readings, value=increments.growth).take_rows(np.isfinite(increments.growth) & counted), note


def note_of_cells(value: NDArray[np.float64], axis: TimeAxis, operator: Aggregate) -> str:
    """Return the same note on a counter whose readings are time cells, shape (time, space)."""
    prepare = operator.row.prepare
    if prepare is None:
        return ""
    column_index, time = np.nonzero(np.isfinite(value.T))
    interval_ns = np.full(len(time), axis.step if isinstance(axis, Regular) else 0, dtype=np.int64)
    held = (value[time, column_index], axis.corners[time], column_index, interval_ns)
    increments = prepare(*held[:3], operator.arguments)
    return counter_note(held, increments, np.ones(len(time), dtype=bool), operator.arguments)


def prepare_cells(value: NDArray[np.float64], axis: TimeAxis, operator: Aggregate) -> NDArray[np.float64]:
    """Return the values of time cells as a function takes them, shape (time, space) as they are."""
    prepare = operator.row.prepare
    if prepare is None:
        return value
    corners, places = axis.corners, value.shape[1]
    growth = np.full(value.shape, np.nan)
    for part in split_pieces(np.full(places, value.shape[0], dtype=np.int64)):
        columns = value[:, part]
        column_index, time = np.nonzero(np.isfinite(columns.T))
        growth[:, part][time, column_index] = prepare(
            columns[time, column_index], corners[time], column_index, operator.arguments
        ).growth
    return growth
