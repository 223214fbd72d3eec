"""Results of a push in columns, and late tuples."""

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np

from hypergrid.core.errors import HyperGridError, InvalidQuery, TooLarge
from hypergrid.wo_join.state_layout import CLOSED, QUARANTINED, Floats, Ints, OutputArrays

LATE_ROWS = 256
"""Initial capacity for late tuples."""


@dataclass(frozen=True, eq=False)
class LateTuples:
    """Tuples that may have missed results, in order of arrival; none is lost."""

    stream: Ints
    """Shape (l,)."""
    row: Ints
    """Number in its stream, from 0; shape (l,)."""
    key: Ints
    """Shape (l,)."""
    payload: Floats
    """Shape (l,)."""
    reason: Ints
    """0 (`LateTuples.CLOSED`): possible partners were dropped, or its slice is closed. 1 (`LateTuples.QUARANTINED`):
    its key is so far off that its clock must have jumped; it was not joined at all. Shape (l,)."""

    CLOSED = CLOSED
    QUARANTINED = QUARANTINED

    def __len__(self) -> int:
        return len(self.row)


@dataclass(frozen=True, eq=False)
class Matches:
    """Results of a push, in the order in which they were found."""

    rows: Ints
    """Number of each tuple in its stream, from 0; -1 if absent (assembling form); shape (m, n)."""
    payloads: Floats
    """Payload of each tuple, NaN if absent; shape (m, n)."""
    key: Ints
    """Key of each result; shape (m,)."""
    at: Ints
    """Number, from 0 over all pushes, of the arrival that completed each result; shape (m,)."""
    late: LateTuples

    def __len__(self) -> int:
        return len(self.rows)


def make_output(capacity: int, streams: int, late: int = LATE_ROWS) -> OutputArrays:
    return OutputArrays(
        rows=np.empty((capacity, streams), np.int64),
        payloads=np.empty((capacity, streams), np.float64),
        key=np.empty(capacity, np.int64),
        at=np.empty(capacity, np.int64),
        late=np.empty((late, 4), np.int64),
        late_payload=np.empty(late, np.float64),
    )


def enlarge_output(out: OutputArrays, results: int, late: int) -> OutputArrays:
    """Copy the output into larger buffers."""
    larger = make_output(results, out.rows.shape[1], late)
    for before, after in zip(out, larger, strict=True):
        size = min(len(before), len(after))
        after[:size] = before[:size]
    return larger


def matches_of(out: OutputArrays, results: int, late: int) -> Matches:
    """Return the written results, as a copy if the buffers are more than twice as large."""
    wasteful = results < len(out.key) // 2
    rows, payloads, key, at = out.rows[:results], out.payloads[:results], out.key[:results], out.at[:results]
    if wasteful:
        # Views would keep the large buffers alive.
        rows, payloads, key, at = rows.copy(), payloads.copy(), key.copy(), at.copy()
    stream, row, late_key, reason = out.late[:late].T.copy()
    return Matches(rows, payloads, key, at, LateTuples(stream, row, late_key, out.late_payload[:late].copy(), reason))


def join_matches(parts: Sequence[Matches]) -> Matches:
    """Concatenate results and late tuples of at least one part."""
    if len(parts) == 1:
        return parts[0]
    return Matches(
        np.concatenate([part.rows for part in parts]),
        np.concatenate([part.payloads for part in parts]),
        np.concatenate([part.key for part in parts]),
        np.concatenate([part.at for part in parts]),
        join_late([part.late for part in parts]),
    )


def join_late(parts: Sequence[LateTuples]) -> LateTuples:
    """Concatenate late tuples of at least one part."""
    return LateTuples(*(np.concatenate([getattr(part, field.name) for part in parts]) for field in fields(LateTuples)))


class KeysDoNotGrow(InvalidQuery):
    """A stream's keys have stopped growing, so memory is unbounded; pushing can go on."""

    def __init__(self, message: str, matches: Matches) -> None:
        super().__init__(message)
        self.matches = matches
        """Results of the push that detected it, all of whose tuples were taken."""


class BufferFull(TooLarge):
    """A join needs more memory than it is allowed, and has no strategy to use less.

    With a strategy, tuples that were taken and could not be joined wait, and are retried with the next push.
    """

    def __init__(self, label: str, projected: float, allowed: float, matches: Matches, taken: int) -> None:
        remedy = "allow more, or give known parameters or a smaller window"
        super().__init__(label, "bytes to be held", projected, allowed, remedy)
        self.matches = matches
        """Results of the tuples that were taken."""
        self.taken = taken
        """Number of tuples of the push that were taken; the rest were not."""


class SpillFailed(HyperGridError, OSError):
    """A join could not write to its spill folder.

    No tuple is lost: those taken stay in memory, and pushing can go on.
    """

    def __init__(self, label: str, why: OSError, matches: Matches, taken: int) -> None:
        super().__init__(
            f"{label} needs to write what it may not hold to disk; {why.filename or 'its folder'} could not be "
            f"written: "
            f"{why.strerror or why}; make room there, then push what was not taken"
        )
        self.matches = matches
        """Results of the tuples that were taken."""
        self.taken = taken
        """Number of tuples of the push that were taken; the rest were not."""
