"""Where in time the values of a block or of readings stand, and counters turned to what they grew by."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hypergrid.core.readings import Readings
from hypergrid.core.times import SECOND_NS, format_duration, parse_duration
from hypergrid.perspective.build.timestamps import find_reading_instants_ns, find_standing_instants_ns
from hypergrid.perspective.functions.aggregate_formulas import ValueInstants, split_pieces
from hypergrid.perspective.tree.operators import Aggregate
from hypergrid.physics.counters import EMPTIED, FELL, HELD, RESET, ROLLOVER, Increments
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


CounterReadings = tuple[NDArray[np.float64], NDArray[np.int64], NDArray[Any], NDArray[np.int64]]
"""Values, times [ns], whose they are, and the interval of each [ns], 0 where it is not known; shape (n,) each."""

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
"""Changes of a series from which on it is judged whether it is a counter at all."""
FALLING_SHARE: Final = 0.3
"""A counter falls less often than at this share of its changes, …"""
FALLING_PART: Final = 0.05
"""… or, as noise, by less than this part of its content."""
MAX_NAMED: Final = 4


def counter_note(  # noqa: PLR0913 - what is known of the readings
    held: CounterReadings,
    increments: Increments,
    counted: NDArray[np.bool_],
    given: Mapping[str, Any],
    names: Sequence[str] = (),
) -> str:
    """Return over how many gaps counters were followed, how much they grew in the others, and what falls were.

    Parameters
    ----------
    held
        The readings that `found` is of.
    increments
        What the counters grew by.
    counted
        Which readings are in the cells; the others are looked back or ahead at, shape (n,).
    given
        The function's parameters, `max_gap` among them.
    names
        Of the series, by number; empty where they are cells.
    """
    value, at_ns, group, interval_ns = held
    max_gap_ns = parse_duration(given["max_gap"])
    gap_ns = np.diff(at_ns)
    same = (group[1:] == group[:-1]) & counted[1:]
    lost = same & (gap_ns > max_gap_ns)
    bridged = same & ~lost & (interval_ns[1:] > 0) & (2 * gap_ns > 3 * interval_ns[1:])
    notes, longest = [], format_duration(max_gap_ns)
    if lost.any():
        # Over a gap the counter may have been reset, and grown more.
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
    """Return the numbers of the series that fall too often, and by too much, for a counter."""
    value, _, group, _ = held
    falls = counted & np.isin(increments.kind, (RESET, EMPTIED, FELL))
    if np.count_nonzero(falls) < FALLING_SHARE * MIN_CHANGES:
        return []
    step = np.diff(value, prepend=np.nan)
    step[np.flatnonzero(np.diff(group)) + 1] = np.nan
    # A counter that is reset each day falls once it has stood for hours; an amount falls at the next reading.
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
