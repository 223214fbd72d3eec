"""Notes on counters: how many gaps were bridged and falls explained, and how, for the reader of a result."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hypergrid.core.times import format_duration, parse_duration
from hypergrid.physics.counters import EMPTIED, FELL, HELD, RESET, ROLLOVER, Increments

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
