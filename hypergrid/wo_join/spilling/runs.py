"""Sorted runs of waiting tuples, in memory or on disk, and the queue of a stream."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hypergrid.wo_join.state_layout import CEILING, Floats, Ints

if TYPE_CHECKING:
    from hypergrid.wo_join.spilling.segments import Segments

ROWS_ON_DISK = 32_768
"""Maximum number of tuples of a segment."""


class TupleColumns(NamedTuple):
    """Waiting tuples of one stream, ordered by key, then row; columns of shape (m,)."""

    key: Ints
    row: Ints
    """Number in the stream, or its complement for the further keys of a reading of uncertain key."""
    payload: Floats

    def part(self, rows: slice) -> "TupleColumns":
        return TupleColumns(self.key[rows], self.row[rows], self.payload[rows])

    @property
    def oldest(self) -> int:
        return int(np.where(self.row < 0, ~self.row, self.row).min())


def sort_columns(key: Ints, row: Ints, payload: Floats) -> TupleColumns:
    """Sort tuples by key; tuples of one key keep their order, which is that of arrival."""
    order = np.argsort(key, kind="stable")
    return TupleColumns(key[order], row[order], payload[order])


@dataclass(eq=False)
class SortedRun:
    """Tuples ordered by key, partly released; in memory, on disk or both."""

    columns: TupleColumns | None
    low: int
    """Key of the first tuple that is not released."""
    size: int
    oldest: int
    """Least row number of the original run, including released tuples."""
    taken: int = 0
    segment: str | None = None

    def __len__(self) -> int:
        return self.size - self.taken

    @property
    def memory_bytes(self) -> int:
        return sum(column.nbytes for column in self.columns or ())

    def select_upto(self, key: int) -> TupleColumns:
        """Return the unreleased tuples with keys up to `key`; they must be in memory."""
        assert self.columns is not None
        stop = int(np.searchsorted(self.columns.key, key, side="right"))
        return self.columns.part(slice(self.taken, max(stop, self.taken)))

    def advance(self, count: int) -> None:
        """Release the next `count` tuples."""
        assert self.columns is not None
        self.taken += count
        self.low = int(self.columns.key[self.taken]) if self.taken < self.size else CEILING
        # Copying the rest only after half is released costs a constant time per tuple.
        if 2 * self.taken >= self.size:
            self.shrink()

    def shrink(self) -> None:
        """Free the memory of released tuples, if the run is in memory only."""
        if self.columns is not None and self.segment is None and self.taken:
            rest = self.columns.part(slice(self.taken, None))
            self.columns = TupleColumns(rest.key.copy(), rest.row.copy(), rest.payload.copy())
            self.size, self.taken = self.size - self.taken, 0


def make_run(columns: TupleColumns) -> SortedRun:
    return SortedRun(columns, int(columns.key[0]), len(columns.key), columns.oldest)


@dataclass(eq=False)
class TupleQueue:
    """All waiting tuples of one stream."""

    runs: list[SortedRun] = field(default_factory=list)

    @property
    def waiting(self) -> int:
        """Number of tuples in memory and on disk."""
        return sum(map(len, self.runs))

    @property
    def spilled(self) -> int:
        return sum(len(run) for run in self.runs if run.segment is not None)

    @property
    def memory_bytes(self) -> int:
        return sum(run.memory_bytes for run in self.runs)

    @property
    def unwritten(self) -> int:
        return sum(len(run) for run in self.runs if run.segment is None)

    def add(self, columns: TupleColumns) -> None:
        """Append sorted tuples that arrived after all others, merging small runs so that there are few."""
        if not len(columns.key):
            return
        new = make_run(columns)
        while self.runs and self.runs[-1].segment is None:
            last = self.runs[-1]
            # Only runs of similar size are merged, so that each tuple is copied few times.
            if len(last) > 2 * len(new) or len(last) + len(new) > ROWS_ON_DISK:
                break
            new = merge_runs([self.runs.pop(), new])
        self.runs.append(new)

    def find_absent(self, upto: int) -> list[SortedRun]:
        """Return runs that are due up to a key but only on disk, by next key."""
        return sorted((run for run in self.runs if run.columns is None and run.low <= upto), key=lambda run: run.low)

    def load(self, run: SortedRun, segments: "Segments") -> None:
        assert run.segment is not None
        run.columns = segments.read(run.segment)

    def release(self, upto: int, segments: "Segments | None") -> TupleColumns:
        """Remove and return the tuples in memory with keys up to `upto`, ordered."""
        parts = []
        for run in self.runs:
            if run.low <= upto and run.columns is not None:
                part = run.select_upto(upto)
                parts.append(part)
                run.advance(len(part.key))
                if not len(run) and run.segment is not None and segments is not None:
                    segments.drop(run.segment)
        self.runs = [run for run in self.runs if len(run)]
        return join_columns(parts)

    def write(self, segments: "Segments", rows: int, upto: int, *, minimum: int) -> None:
        """Spill tuples with keys up to `upto` to segments of `rows`; at most `minimum` stay.

        Raises
        ------
        OSError
            A segment could not be written; no tuple is lost.
        """
        inside = [run for run in self.runs if run.segment is None]
        if not inside:
            return
        merged = merge_runs(inside)
        self.runs = [*(run for run in self.runs if run.segment is not None), merged]
        due = len(merged.select_upto(upto).key)
        while due > minimum:
            count = min(rows, due)
            part = merged.select_upto(upto).part(slice(count))
            name = segments.write(part)
            self.runs.insert(-1, SortedRun(None, int(part.key[0]), count, part.oldest, 0, name))
            merged.advance(count)
            due -= count
        self.runs = [run for run in self.runs if len(run)]


def join_columns(parts: list[TupleColumns]) -> TupleColumns:
    """Merge tuples of several runs; equal keys are ordered by row."""
    if not parts:
        integers = np.empty(0, np.int64)
        return TupleColumns(integers, integers, np.empty(0))
    if len(parts) == 1:
        return parts[0]
    key, row, payload = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.lexsort((np.where(row < 0, ~row, row), key))
    return TupleColumns(key[order], row[order], payload[order])


def merge_runs(runs: list[SortedRun]) -> SortedRun:
    """Merge runs that are in memory."""
    return make_run(join_columns([run.select_upto(CEILING) for run in runs]))
