"""What a push gives: results in columns, and tuples that came late."""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from hypergrid.core.errors import HyperGridError, InvalidQuery, TooLarge
from hypergrid.wo_join.state_layout import CLOSED, QUARANTINED, Floats, Ints, OutputArrays

LATE_ROWS = 256
"""LateTuples tuples that there is room for at first."""


@dataclass(frozen=True, eq=False)
class LateTuples:
    """Tuples that may have missed results: none is lost, all are told here, in order of arrival."""

    stream: Ints
    """Shape (l,)."""
    row: Ints
    """Number in its stream, from 0; shape (l,)."""
    key: Ints
    """Shape (l,)."""
    payload: Floats
    """Shape (l,)."""
    reason: Ints
    """0 (`Late.CLOSED`): what it could have met was dropped, or its slice closed. 1 (`Late.QUARANTINED`): its key is so
    far off that its clock must have jumped; it took no part in anything. Shape (l,)."""

    CLOSED = CLOSED
    QUARANTINED = QUARANTINED

    def __len__(self) -> int:
        return len(self.row)


@dataclass(frozen=True, eq=False)
class Matches:
    """Results of a push, in the order in which they were made."""

    rows: Ints
    """Number of each tuple in its stream, from 0; -1 where there is none (assembling form); shape (m, n)."""
    payloads: Floats
    """Payload of each, NaN where there is none; shape (m, n)."""
    key: Ints
    """The key of each result; shape (m,)."""
    at: Ints
    """Number, from 0 over all pushes, of the arrival that brought each result about; shape (m,)."""
    late: LateTuples

    def __len__(self) -> int:
        return len(self.rows)


def make_output(capacity: int, streams: int, late: int = LATE_ROWS) -> OutputArrays:
    """Return room for so many results and late tuples."""
    return OutputArrays(
        rows=np.empty((capacity, streams), np.int64),
        payloads=np.empty((capacity, streams), np.float64),
        key=np.empty(capacity, np.int64),
        at=np.empty(capacity, np.int64),
        late=np.empty((late, 4), np.int64),
        late_payload=np.empty(late, np.float64),
    )


def enlarge_output(out: OutputArrays, results: int, late: int) -> OutputArrays:
    """Return the same with room for so many results and late tuples."""
    larger = make_output(results, out.rows.shape[1], late)
    for before, after in zip(out, larger, strict=True):
        size = min(len(before), len(after))
        after[:size] = before[:size]
    return larger


def matches_of(out: OutputArrays, results: int, late: int) -> Matches:
    """Return what was written; arrays much larger than that are let go."""
    wasteful = results < len(out.key) // 2
    rows, payloads, key, at = out.rows[:results], out.payloads[:results], out.key[:results], out.at[:results]
    if wasteful:
        rows, payloads, key, at = rows.copy(), payloads.copy(), key.copy(), at.copy()
    stream, row, late_key, reason = out.late[:late].T.copy()
    return Matches(rows, payloads, key, at, LateTuples(stream, row, late_key, out.late_payload[:late].copy(), reason))


def join_matches(parts: Sequence[Matches]) -> Matches:
    """Return all results, one part after the other, and all late tuples; at least one part."""
    if len(parts) == 1:
        return parts[0]
    late = LateTuples(
        *(np.concatenate([getattr(part.late, field.name) for part in parts]) for field in fields(LateTuples))
    )
    return Matches(
        np.concatenate([part.rows for part in parts]),
        np.concatenate([part.payloads for part in parts]),
        np.concatenate([part.key for part in parts]),
        np.concatenate([part.at for part in parts]),
        late,
    )


class KeysDoNotGrow(InvalidQuery):
    """A stream's keys have stopped growing, so that no bound of memory exists. Nothing is lost: pushing can go on."""

    def __init__(self, message: str, matches: Matches) -> None:
        super().__init__(message)
        self.matches = matches
        """Results of the push in which it was noticed; the push was taken whole."""


class BufferFull(TooLarge):
    """A join needs more memory than it is allowed, and has no strategy that makes do with less.

    With a strategy, what was taken and could not be joined waits: where it is pushed on, it is tried again.
    """

    def __init__(self, label: str, projected: float, allowed: float, matches: Matches, taken: int) -> None:
        remedy = "allow more, or give known parameters or a smaller window"
        super().__init__(label, "bytes to be held", projected, allowed, remedy)
        self.matches = matches
        """Results of what was taken."""
        self.taken = taken
        """Tuples of the push that were taken; those after them were not."""


class SpillFailed(HyperGridError, OSError):
    """A join could not write to its folder. Nothing is lost: what was taken waits in memory, and pushing can go on."""

    def __init__(self, label: str, why: OSError, matches: Matches, taken: int) -> None:
        super().__init__(
            f"{label} needs to write what it may not hold to disk; {why.filename or 'its folder'} could not be "
            f"written: "
            f"{why.strerror or why}; make room there, then push what was not taken"
        )
        self.matches = matches
        """Results of what was taken."""
        self.taken = taken
        """Tuples of the push that were taken; those after them were not."""
