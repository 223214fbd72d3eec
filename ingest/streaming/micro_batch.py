"""Micro-batch of one group of stations: decoded pieces of the spool, assembled for the commit."""

import pickle
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from hypergrid.archive import Reject
from hypergrid.core.readings import Station
from hypergrid.core.units import Variable
from ingest.streaming.assembler import Assembler, Counts, EmittedRows
from ingest.streaming.join_status import JoinStatus
from ingest.streaming.row_batch import RowBatch
from ingest.streaming.spool_decoder import DecodedPiece

Tally = dict[int, list[int]]
"""Rows, readings and rejects of each segment, by the number of its first record."""


@dataclass(frozen=True)
class MicroBatch:
    """Result of one batch of one group."""

    group: str
    emitted_rows: EmittedRows
    after: int
    upto: int
    """The batch has the records with after < seq <= upto."""
    counts: Counts
    """Counts of all rows of the group so far."""
    rejects: tuple[tuple[int, Reject], ...]
    """Rows that could not be read, each with the number of its record."""
    rejected: int
    """Readings that all rows rejected so far would have been."""
    held_rows: int
    held_readings: int
    stations: tuple[Station, ...]
    variables: tuple[Variable, ...]
    unmapped: frozenset[str]
    finished: Tally
    """Counts of segments in the spool that ended before this batch."""
    first_held: int | None
    """First record with a held row; None if there is none."""
    join: JoinStatus | None
    """Status of the join; None if it was not determined."""

    def to_bytes(self) -> bytes:
        """Serialise for another process of this run; the bytes are never stored."""
        rows = self.emitted_rows.rows.to_bytes()
        rest = replace(self, emitted_rows=None)  # type: ignore[arg-type]
        return pickle.dumps((rows, self.emitted_rows.closed_ns, self.emitted_rows.late, rest), protocol=5)

    @classmethod
    def from_bytes(cls, data: bytes) -> "MicroBatch":
        """Restore from `to_bytes`."""
        rows, closed_ns, late, made = pickle.loads(data)
        emitted_rows = EmittedRows(RowBatch.from_bytes(rows)[0], closed_ns, late)
        return replace(made, emitted_rows=emitted_rows)


def assemble_batch(assembler: Assembler, piece: DecodedPiece, segments: Sequence[int]) -> MicroBatch:
    """Process a batch of a group.

    Parameters
    ----------
    segments
        Numbers of the first records of the spool's segments, ascending.
    """
    _tally(assembler.tally, piece, segments)
    assembler.rejected += piece.rejected
    emitted_rows = assembler.process(piece.rows, piece.clock)
    # Other segments are raw copies by now. A tally stays until its segment is one, because other groups may need it
    # longer.
    assembler.tally = {first: counts for first, counts in assembler.tally.items() if first in segments}
    done = segments[: max(0, bisect_right(segments, piece.after + 1) - 1)]
    finished = {first: list(assembler.tally[first]) for first in done if first in assembler.tally}
    return MicroBatch(
        piece.group,
        emitted_rows,
        piece.after,
        piece.upto,
        replace(assembler.counts),
        tuple(piece.rejects),
        assembler.rejected,
        len(assembler),
        assembler.held_readings,
        piece.stations,
        piece.variables,
        piece.unmapped,
        finished,
        assembler.first_held,
        assembler.join_status(),
    )


def _tally(tally: Tally, piece: DecodedPiece, segments: Sequence[int]) -> None:
    """Add the rows, readings and rejects of a piece to the counts of their segments."""
    bounds = np.array(segments, np.int64)
    rows = np.searchsorted(bounds, piece.rows.seq, side="right") - 1
    refused = np.searchsorted(bounds, np.array([seq for seq, _ in piece.rejects], np.int64), side="right") - 1
    size = len(segments)
    counted = (
        np.bincount(rows, minlength=size),
        np.bincount(rows, piece.rows.sizes, minlength=size).astype(np.int64),
        np.bincount(refused, minlength=size),
    )
    for segment_index in np.flatnonzero(np.sum(counted, axis=0)).tolist():
        counts = tally.setdefault(segments[segment_index], [0, 0, 0])
        for kind, count in enumerate(counted):
            counts[kind] += int(count[segment_index])
