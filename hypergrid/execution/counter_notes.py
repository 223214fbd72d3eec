"""Notes on counters: how many gaps were bridged and falls explained, and how, for the reader of a result."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hypergrid.physics.counters import EMPTIED, FELL, HELD, RESET, ROLLOVER, Increments
from hypergrid.times import format_duration, parse_duration

Held = tuple[NDArray[np.float64], NDArray[np.int64], NDArray[Any], NDArray[np.int64]]
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


def counter_note(held: Held, found: Increments, counted: NDArray[np.bool_], given: Mapping[str, Any]) -> str:
    """Return over how many gaps counters were followed, how much they grew in the others, and what falls were.

    Parameters
    ----------
    held
        The readings that `found` is of.
    found
        What the counters grew by.
    counted
        Which readings are in the cells; the others are looked back or ahead at, shape (n,).
    given
        The function's parameters, `max_gap` among them.
    """
    value, at_ns, group, interval_ns = held
    max_gap_ns = parse_duration(given["max_gap"])
    gap_ns = np.diff(at_ns)
    same = (group[1:] == group[:-1]) & counted[1:]
    lost = same & (gap_ns > max_gap_ns)
    bridged = same & ~lost & (interval_ns[1:] > 0) & (2 * gap_ns > 3 * interval_ns[1:])
    said, longest = [], format_duration(max_gap_ns)
    if lost.any():
        # Over a gap the counter may have been reset, and grown more.
        grown = np.nansum(np.maximum(np.diff(value), 0.0)[lost])
        said.append(
            f"{_gaps_are(lost)[0]} between readings of a counter {_gaps_are(lost)[1]} longer than max_gap = {longest}: "
            f"what it grew by there, {grown:.6g} at least, is in no cell"
        )
    if bridged.any():
        said.append(
            f"{_gaps_are(bridged)[0]} of missing readings, none longer than max_gap = {longest}, "
            f"{_gaps_are(bridged)[1]} bridged: what it grew by is in the cell of the later reading"
        )
    falls = [_times(int(np.count_nonzero((found.kind == kind) & counted)), words) for kind, words in _FALLS]
    if any(falls):
        said.append(f"a counter fell: {', '.join(filter(None, falls))}")
    return "; ".join(said)


def _times(count: int, words: str) -> str:
    name, _, rest = words.partition(" ")
    return f"{count:,} {name if count == 1 else _PLURAL[name]} {rest}" if count else ""


def _gaps_are(found: NDArray[np.bool_]) -> tuple[str, str]:
    count = int(found.sum())
    return ("1 gap", "is") if count == 1 else (f"{count:,} gaps", "are")
