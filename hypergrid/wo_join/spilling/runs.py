"""Sorted runs of tuples that wait, in memory or on disk: what one stream is behind its gate."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from hypergrid.wo_join.state_layout import CEILING, Floats, Ints

if TYPE_CHECKING:
    from hypergrid.wo_join.spilling.segments import Segments

ROWS_ON_DISK = 32_768
"""Tuples of a segment, at most."""


class TupleColumns(NamedTuple):
    """Tuples of one stream that wait, ordered by key and then by row, each column of shape (m,)."""

    key: Ints
    row: Ints
    """Number in the stream, or its complement where it is a further key of the same reading."""
    payload: Floats

    def part(self, rows: slice) -> "TupleColumns":
        """Return some of the tuples."""
        return TupleColumns(self.key[rows], self.row[rows], self.payload[rows])

    @property
    def oldest(self) -> int:
        """Least number of a tuple in the stream."""
        return int(np.where(self.row < 0, ~self.row, self.row).min())

    @property
    def size_bytes(self) -> int:
        """Bytes of all columns."""
        return self.key.nbytes + self.row.nbytes + self.payload.nbytes


def sort_columns(key: Ints, row: Ints, payload: Floats) -> TupleColumns:
    """Return tuples by key; those of one key stay in their order, which is that of arrival."""
    order = np.argsort(key, kind="stable")
    return TupleColumns(key[order], row[order], payload[order])


@dataclass(eq=False)
class SortedRun:
    """Tuples ordered by key, of which the first `taken` have gone; in memory, on disk or both."""

    columns: TupleColumns | None
    low: int
    """Key of the first tuple that has not gone."""
    size: int
    oldest: int
    """Least number of a tuple in the stream, of all that the run was made of."""
    taken: int = 0
    segment: str | None = None

    def __len__(self) -> int:
        return self.size - self.taken

    @property
    def memory_bytes(self) -> int:
        """Bytes in memory."""
        return 0 if self.columns is None else self.columns.size_bytes

    def select_upto(self, key: int) -> TupleColumns:
        """Return the tuples that have not gone, with keys up to one; they must be in memory."""
        assert self.columns is not None
        stop = int(np.searchsorted(self.columns.key, key, side="right"))
        return self.columns.part(slice(self.taken, max(stop, self.taken)))

    def advance(self, count: int) -> None:
        """Let the next tuples go."""
        assert self.columns is not None
        self.taken += count
        self.low = int(self.columns.key[self.taken]) if self.taken < self.size else CEILING
        if 2 * self.taken >= self.size:
            self.shrink()

    def shrink(self) -> None:
        """Give back the memory of what has gone, of a run in memory alone."""
        if self.columns is not None and self.segment is None and self.taken:
            rest = self.columns.part(slice(self.taken, None))
            self.columns = TupleColumns(rest.key.copy(), rest.row.copy(), rest.payload.copy())
            self.size, self.taken = self.size - self.taken, 0


def make_run(columns: TupleColumns) -> SortedRun:
    """Return a run in memory."""
    return SortedRun(columns, int(columns.key[0]), len(columns.key), columns.oldest)


@dataclass(eq=False)
class TupleQueue:
    """All tuples of one stream that wait."""

    runs: list[SortedRun] = field(default_factory=list)

    @property
    def waiting(self) -> int:
        """Tuples, in memory or on disk."""
        return sum(map(len, self.runs))

    @property
    def spilled(self) -> int:
        """Tuples on disk."""
        return sum(len(run) for run in self.runs if run.segment is not None)

    @property
    def memory_bytes(self) -> int:
        """Bytes in memory."""
        return sum(run.memory_bytes for run in self.runs)

    @property
    def unwritten(self) -> int:
        """Tuples that are not on disk."""
        return sum(len(run) for run in self.runs if run.segment is None)

    def add(self, columns: TupleColumns) -> None:
        """Put sorted tuples in, later than all before; small runs are merged, so that there are few."""
        if not len(columns.key):
            return
        new = make_run(columns)
        while self.runs and self.runs[-1].segment is None:
            last = self.runs[-1]
            if len(last) > 2 * len(new) or len(last) + len(new) > ROWS_ON_DISK:
                break
            new = merge_runs([self.runs.pop(), new])
        self.runs.append(new)

    def find_absent(self, upto: int) -> list[SortedRun]:
        """Return the runs whose next tuples are due by a key but on disk alone, by their next keys."""
        return sorted((run for run in self.runs if run.columns is None and run.low <= upto), key=lambda run: run.low)

    def load(self, run: SortedRun, segments: "Segments") -> None:
        """Bring a run into memory."""
        assert run.segment is not None
        run.columns = segments.read(run.segment)

    def release(self, upto: int, segments: "Segments | None") -> TupleColumns:
        """Take out the tuples in memory with keys up to one, ordered."""
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
        """Write what is in memory alone and has keys up to one, in segments of so many rows; `least` or fewer stay.

        Raises
        ------
        OSError
            Not all could be written; nothing is lost.
        """
        inside = [run for run in self.runs if run.segment is None]
        if not inside:
            return
        join_state = merge_runs(inside)
        self.runs = [run for run in self.runs if run.segment is not None]
        self.runs.append(join_state)
        due = len(join_state.select_upto(upto).key)
        while due > minimum:
            count = min(rows, due)
            part = join_state.select_upto(upto).part(slice(count))
            name = segments.write(part)
            self.runs.insert(-1, SortedRun(None, int(part.key[0]), count, part.oldest, 0, name))
            join_state.advance(count)
            due -= count
        self.runs = [run for run in self.runs if len(run)]


def join_columns(parts: list[TupleColumns]) -> TupleColumns:
    """Return tuples of several runs in one order; of equal keys, those of earlier rows first."""
    if not parts:
        integers = np.empty(0, np.int64)
        return TupleColumns(integers, integers, np.empty(0))
    if len(parts) == 1:
        return parts[0]
    key, row, payload = (np.concatenate(column) for column in zip(*parts, strict=True))
    order = np.lexsort((np.where(row < 0, ~row, row), key))
    return TupleColumns(key[order], row[order], payload[order])


def merge_runs(runs: list[SortedRun]) -> SortedRun:
    """Return one run of several that are in memory."""
    return make_run(join_columns([run.select_upto(CEILING) for run in runs]))
