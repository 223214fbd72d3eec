"""Timestamps of block values and readings; increments of counters."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hypergrid.core.readings import Readings
from hypergrid.core.times import SECOND_NS, format_duration, parse_duration
from hypergrid.perspective.build.restrict import find_reading_instants_ns, find_standing_instants_ns
from hypergrid.perspective.functions.aggregate_formulas import ValueInstants, split_pieces
from hypergrid.perspective.tree import Aggregate
from hypergrid.physics.counters import EMPTIED, FELL, GROWN, HELD, RESET, ROLLOVER, Increments
from hypergrid.topology import Bins, Regular, TimeAxis

DAY_NS = 86_400 * SECOND_NS


def instants_of_readings(readings: Readings, operator: Aggregate, origin_ns: int) -> ValueInstants | None:
    """Return times and durations of readings in days since an origin; None if not needed."""
    if not (operator.row.timed or operator.row.lasting):
        return None
    intervals_s = np.array([series.interval_s for series in readings.series] or [0.0])
    for_days = np.where(intervals_s > 0, intervals_s * SECOND_NS / DAY_NS, np.nan)[readings.index]
    return ValueInstants((find_reading_instants_ns(readings) - origin_ns) / DAY_NS, for_days)


def instants_of_cells(axis: TimeAxis, operator: Aggregate, origin_ns: int) -> ValueInstants | None:
    """Return times and durations of cells in days since an origin; None if not needed."""
    if not (operator.row.timed or operator.row.lasting):
        return None
    at_days = (find_standing_instants_ns(axis) - origin_ns) / DAY_NS
    # Overlapping windows share their time; each represents only its own part.
    length_ns = min(axis.length, axis.step) if isinstance(axis, Regular) else np.nan
    lengths_ns = axis.lengths if isinstance(axis, Bins) else np.full(axis.count, length_ns)
    return ValueInstants(at_days, lengths_ns / DAY_NS)


def prepare_readings(readings: Readings, operator: Aggregate) -> tuple[Readings, str]:
    """Prepare readings for a function, with a note on how they were made.

    Counters are replaced by their increments, and the note counts their gaps and falls.

    Parameters
    ----------
    readings
        Ordered by series and time, none missing; they include those that the function looks back or ahead at.
    """
    prepare = operator.row.prepare
    if prepare is None:
        return readings, ""
    increments = prepare(readings.value, readings.time_ns, readings.index, operator.arguments)
    counted = _mask_counted(readings, operator)
    intervals_ns = np.array([round(series.interval_s * SECOND_NS) for series in readings.series] or [0], np.int64)
    held = (readings.value, readings.time_ns, readings.index, intervals_ns[readings.index])
    note = counter_note(held, increments, counted, operator.arguments, [series.station for series in readings.series])
    return replace(readings, value=increments.growth).take_rows(np.isfinite(increments.growth) & counted), note


def find_increments(readings: Readings, operator: Aggregate) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Mask the readings whose increments `prepare_readings` keeps, and those at which the counter fell.

    Both have shape (readings,).
    """
    prepare = operator.row.prepare
    if prepare is None:
        return np.ones(len(readings), dtype=bool), np.zeros(len(readings), dtype=bool)
    increments = prepare(readings.value, readings.time_ns, readings.index, operator.arguments)
    kept = np.isfinite(increments.growth) & _mask_counted(readings, operator)
    return kept, np.asarray(increments.kind != GROWN)


def _mask_counted(readings: Readings, operator: Aggregate) -> NDArray[np.bool_]:
    counted = np.ones(len(readings), dtype=bool)
    if operator.since_ns is not None:
        counted &= readings.starts_ns() >= operator.since_ns
    if operator.until_ns is not None:
        counted &= readings.starts_ns() < operator.until_ns
    return counted


def note_of_cells(value: NDArray[np.float64], axis: TimeAxis, operator: Aggregate) -> str:
    """Return the note of `prepare_readings` for a counter read as time cells, shape (time, space)."""
    prepare = operator.row.prepare
    if prepare is None:
        return ""
    column_index, time = np.nonzero(np.isfinite(value.T))
    interval_ns = np.full(len(time), axis.step if isinstance(axis, Regular) else 0, dtype=np.int64)
    held = (value[time, column_index], axis.corners[time], column_index, interval_ns)
    increments = prepare(*held[:3], operator.arguments)
    return counter_note(held, increments, np.ones(len(time), dtype=bool), operator.arguments)


def prepare_cells(value: NDArray[np.float64], axis: TimeAxis, operator: Aggregate) -> NDArray[np.float64]:
    """Prepare the values of time cells for a function; the shape (time, space) stays."""
    prepare = operator.row.prepare
    if prepare is None:
        return value
    corners, places = axis.corners, value.shape[1]
    growth = np.full(value.shape, np.nan)
    # Some columns at a time, to limit memory.
    for part in split_pieces(np.full(places, value.shape[0], dtype=np.int64)):
        columns = value[:, part]
        column_index, time = np.nonzero(np.isfinite(columns.T))
        growth[:, part][time, column_index] = prepare(
            columns[time, column_index], corners[time], column_index, operator.arguments
        ).growth
    return growth


CounterReadings = tuple[NDArray[np.float64], NDArray[np.int64], NDArray[Any], NDArray[np.int64]]
"""Values, times [ns], group numbers, and intervals [ns], 0 if unknown; shape (n,) each."""

_FALLS = (
    (RESET, "reset to near zero (what the counter shows since is what it grew by)"),
    (ROLLOVER, "rollover (the counter went on from zero)"),
    (EMPTIED, "emptying (what fell meanwhile is not known, and in no cell)"),
    (HELD, "dropout (the next readings took it back; the reading before was held)"),
    (FELL, "fall by noise or evaporation (balanced with what rose within a day; a dry day keeps some hundredths of the "
           "noise, and rain after evaporation may lose what evaporated since its last dry hours)"),
)  # fmt: skip
_PLURAL = {"reset": "resets", "rollover": "rollovers", "emptying": "emptyings", "dropout": "dropouts", "fall": "falls"}


MIN_CHANGES: Final = 30
"""Minimum number of changes for judging whether a series is a counter at all."""
FALLING_SHARE: Final = 0.3
"""Share of the changes from which falls are too frequent for a counter."""
FALLING_PART: Final = 0.05
"""Median fall, as a part of the median content, up to which falls count as noise."""
MAX_NAMED: Final = 4


def counter_note(  # noqa: PLR0913 - what is known of the readings
    held: CounterReadings,
    increments: Increments,
    counted: NDArray[np.bool_],
    given: Mapping[str, Any],
    names: Sequence[str] = (),
) -> str:
    """Describe the bridged gaps, the growth in other gaps, and the falls of counters.

    Parameters
    ----------
    held
        The readings that `increments` belong to.
    increments
        Increments of the counters.
    counted
        Mask of the readings in the cells, shape (n,); the others are only looked back or ahead at.
    given
        The function's parameters, `max_gap` among them.
    names
        Names of the series, by number; empty if the readings are cells.
    """
    value, at_ns, group, interval_ns = held
    max_gap_ns = parse_duration(given["max_gap"])
    gap_ns = np.diff(at_ns)
    same = (group[1:] == group[:-1]) & counted[1:]
    lost = same & (gap_ns > max_gap_ns)
    bridged = same & ~lost & (interval_ns[1:] > 0) & (2 * gap_ns > 3 * interval_ns[1:])
    notes, longest = [], format_duration(max_gap_ns)
    if lost.any():
        # During a gap the counter may have been reset, and grown more.
        grown = np.nansum(np.maximum(np.diff(value), 0.0)[lost])
        notes.append(
            f"{_format_gaps(lost)[0]} between readings of a counter {_format_gaps(lost)[1]} longer than max_gap = "
            f"{longest}: "
            f"what it grew by there, {grown:.6g} at least, is in no cell"
        )
    if bridged.any():
        notes.append(
            f"{_format_gaps(bridged)[0]} of missing readings, none longer than max_gap = {longest}, "
            f"{_format_gaps(bridged)[1]} bridged: what it grew by is in the cell of the later reading"
        )
    falls = [_format_count(int(np.count_nonzero((increments.kind == kind) & counted)), words) for kind, words in _FALLS]
    if any(falls):
        notes.append(f"a counter fell: {', '.join(filter(None, falls))}")
    odd = _find_non_counters(held, increments, counted)
    if odd:
        listed = ", ".join(names[number] if names else str(number) for number in odd[:MAX_NAMED])
        notes.append(
            f"{len(odd)} series fall nearly as often as they rise, as amounts of each interval or noise do, and may be "
            f"no counters: {listed}{', …' if len(odd) > MAX_NAMED else ''}"
        )
    return "; ".join(notes)


def _find_non_counters(held: CounterReadings, increments: Increments, counted: NDArray[np.bool_]) -> list[int]:
    """Find the series that fall too often, and by too much, for a counter."""
    value, _, group, _ = held
    falls = counted & np.isin(increments.kind, (RESET, EMPTIED, FELL))
    if np.count_nonzero(falls) < FALLING_SHARE * MIN_CHANGES:
        return []
    step = np.diff(value, prepend=np.nan)
    step[np.flatnonzero(np.diff(group)) + 1] = np.nan
    # A counter that is reset daily falls after hours without change; an amount falls at the next reading.
    falls &= (increments.kind == FELL) | (np.roll(step, 1) > 0)
    odd = []
    for number in np.unique(group[falls]).tolist():
        rows = slice(*np.searchsorted(group, [number, number + 1]))
        own = counted[rows] & np.isfinite(step[rows])
        changes, fell = int(np.count_nonzero(own & (step[rows] != 0))), own & falls[rows]
        if changes < MIN_CHANGES or np.count_nonzero(fell) < FALLING_SHARE * changes:
            continue
        if float(np.median(-step[rows][fell])) > FALLING_PART * float(np.median(np.abs(value[rows][own]))):
            odd.append(int(number))
    return odd


def _format_count(count: int, words: str) -> str:
    name, _, rest = words.partition(" ")
    return f"{count:,} {name if count == 1 else _PLURAL[name]} {rest}" if count else ""


def _format_gaps(gaps: NDArray[np.bool_]) -> tuple[str, str]:
    count = int(gaps.sum())
    return ("1 gap", "is") if count == 1 else (f"{count:,} gaps", "are")
