"""Reorder buffer: delay tuples before the join, partly on disk, to save memory (thesis 3.5).

A tuple waits until the arrivals have passed its key:

- MSF (Memory-Sort First): until its own stream brings nothing below it any more. The join receives sorted streams.
- DBF (Disk-Buffer First): until every other stream has reached it. No result needs it before, so no result is delayed.
- Hybrid: until no stream brings anything below it any more. The join receives sorted streams without lag.

Waiting tuples are in sorted runs. DBF and the hybrid spill runs to disk if the lag in time is at least three times what
it takes to write and read a segment, and whenever memory is short. Segments are read `AHEAD` tuples ahead.

Delayed tuples reach the join with the arrival that releases them. This only improves the order within a stream: neither
its scrambling factor nor its disorder grows, so known values remain valid.
"""

import math
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from hypergrid.wo_join import state
from hypergrid.wo_join.config import ROW_BYTES, JoinConfig
from hypergrid.wo_join.results import LateTuples, Matches
from hypergrid.wo_join.spilling import release_gate
from hypergrid.wo_join.spilling.runs import ROWS_ON_DISK, SortedRun, TupleColumns, TupleQueue, make_run, sort_columns
from hypergrid.wo_join.state_layout import (
    ALLOWED,
    ASLEEP,
    CEILING,
    CLOCK,
    DEADLINE,
    GREATEST,
    IDLE,
    JUMP,
    KNOWN_DISORDER,
    LAST_STREAM,
    LEAST_LINE,
    LINE,
    NEXT_LINE,
    POLICY,
    PROGRESS,
    QUARANTINED,
    TAKEN,
    Batch,
    Ints,
)
from hypergrid.wo_join.watermarks import mark_idle

if TYPE_CHECKING:
    from hypergrid.wo_join.spilling.segments import Segments

PIECE = 4096
"""Tuples of a push that are processed together."""
AHEAD = 1024
"""C of thesis 3.5.2: if fewer tuples of a stream wait in memory, the next segment is read."""
TRIGGER = 3.0
"""Spill a stream if its lag is at least this multiple of the disk time of a segment (thesis 3.5.2)."""
AT_ONCE = 1
"""Segments of a stream that are read at a time; if more are due, they are read in turns by key."""
NEVER = np.int64(CEILING)
NONE = np.empty(0, np.int64)


class ReorderBuffer:
    """Queues of waiting tuples, and the monitors of the arrivals.

    Parameters
    ----------
    about
        Configuration of the join, which has a strategy.
    segments
        Storage of spilled runs; None for MSF.
    """

    def __init__(self, about: JoinConfig, segments: "Segments | None") -> None:
        self.segments = segments
        self._is_sorting = about.strategy != "dbf"
        self._is_hybrid = about.strategy == "hybrid"
        n = about.streams
        self.arrival_state = state.make_state(n, ranks=0, scattered=False, timed=False, jump=about.jump or 0)
        about.write_settings(self.arrival_state.join_state, self.arrival_state.monitors.per)
        self.queues = [TupleQueue() for _ in range(n)]
        self._first_bytes = self.arrival_state.monitors.records.nbytes
        self.allow(about)

    def allow(self, about: JoinConfig) -> None:
        """Change the limit to that of `about`, and let several segments per stream fit."""
        self._about = about
        allowed = math.inf if about.allowed_bytes is None else about.allowed_bytes
        self._rows = int(min(ROWS_ON_DISK, max(16, allowed // (16 * about.streams * ROW_BYTES))))
        self._ahead = min(AHEAD, self._rows // 4)

    @property
    def memory_bytes(self) -> int:
        """Bytes of tuples waiting in memory, and of running maxima beyond the initial capacity."""
        grown = self.arrival_state.monitors.records.nbytes - self._first_bytes
        return grown + sum(queue.memory_bytes for queue in self.queues)

    @property
    def room_bytes(self) -> int:
        """Bytes left for the join."""
        return CEILING if self._about.allowed_bytes is None else self._about.allowed_bytes - self.memory_bytes

    @property
    def gone_streams(self) -> Ints:
        """Streams that are asleep and have no waiting tuples."""
        asleep = np.flatnonzero(self.arrival_state.monitors.per[:, ASLEEP])
        return np.array([stream for stream in asleep if not self.queues[stream].runs], np.int64)

    @property
    def min_key(self) -> int:
        return min((run.low for queue in self.queues for run in queue.runs), default=CEILING)

    def write_disorder(self, stream_state: Ints) -> None:
        """Write the arrivals' disorder into the state of a join that receives unsorted tuples."""
        # Released tuples are in better order than future ones, so the join's own monitors would underestimate the
        # disorder.
        known = self._about.known
        if self._is_sorting or self._about.policy != "progress" or (known is not None and known.disorder is not None):
            return
        release_gate.write_disorder(self.arrival_state, stream_state)

    def advance(self, clock: int) -> None:
        join_state = self.arrival_state.join_state
        join_state[CLOCK] = max(join_state[CLOCK], clock)
        if join_state[CLOCK] > join_state[DEADLINE]:
            mark_idle(self.arrival_state)

    def release_tuples(self, piece: Batch, *, last: bool = False) -> Generator[tuple[Batch, Ints]]:
        """Take tuples; yield released batches, and the number of each tuple's releasing arrival.

        If the caller stops early, all other tuples stay in the queues.

        Parameters
        ----------
        last
            Whether to release everything.
        """
        first = int(self.arrival_state.join_state[TAKEN])
        passed = self._observe_arrivals(piece)
        if len(piece.stream):
            arrivals = np.maximum.accumulate(piece.arrival)
        else:
            # Without an arrival, tuples released by the clock count with the last one.
            arrivals, first = self.arrival_state.join_state[[CLOCK]].copy(), max(first - 1, 0)
        keep = passed[4] == 0
        self._away = self._make_late(piece, ~keep)
        limits = [self._find_limits(piece, passed, stream, last=last) for stream in range(len(self.queues))]
        start = 0
        try:
            while start < len(arrivals):
                stop = self._find_span(limits, start)
                positions = np.flatnonzero(keep[start:stop]) + start if len(piece.stream) else np.empty(0, np.intp)
                new = [positions[piece.stream[positions] == stream] for stream in range(len(self.queues))]
                span = slice(start, stop)
                start = stop
                for columns, at in self._release_in_turns(piece, limits, new, span):
                    yield Batch(*columns, arrivals[at]), first + at
        finally:
            rest = np.flatnonzero(keep[start:]) + start
            if len(piece.stream) and len(rest):
                self._store(piece, rest)

    def make_quarantined(self) -> Matches:
        """Return the quarantined tuples of the last piece, whose clocks must have jumped."""
        return Matches(
            np.empty((0, self._about.streams), np.int64), np.empty((0, self._about.streams)), NONE, NONE, self._away
        )

    def _make_late(self, piece: Batch, away: "np.ndarray[Any, np.dtype[np.bool_]]") -> LateTuples:
        if not len(piece.stream) or not away.any():
            return LateTuples(NONE, NONE, NONE, np.empty(0), NONE)
        row = np.where(piece.row < 0, ~piece.row, piece.row)[away]
        stream = piece.stream[away].astype(np.int64)
        return LateTuples(stream, row, piece.key[away], piece.payload[away], np.full(len(row), QUARANTINED, np.int64))

    def put_back(self, rest: Batch) -> None:
        """Return tuples that did not fit into the join to the queues."""
        self._store(rest, np.arange(len(rest.stream)))

    def _store(self, batch: Batch, places: "np.ndarray[Any, np.dtype[np.intp]]") -> None:
        for stream in np.unique(batch.stream[places]):
            own = places[batch.stream[places] == stream]
            self.queues[stream].add(sort_columns(batch.key[own], batch.row[own], batch.payload[own]))

    def _observe_arrivals(self, piece: Batch) -> Ints:
        """Monitor arrivals; return the rows of `release_gate.observe_arrivals`, or of the current state if none."""
        if not len(piece.stream):
            now = self.arrival_state.join_state[[LEAST_LINE, NEXT_LINE, LAST_STREAM]]
            return np.concatenate([now, np.zeros(2, np.int64)])[:, None]
        passed = np.empty((5, len(piece.stream)), np.int64)
        start = 0
        while True:
            start = release_gate.observe_arrivals(self.arrival_state, piece, self._is_sorting, passed, start)
            if start == len(piece.stream):
                return passed
            monitors = state.grow_records(self.arrival_state.monitors)
            self.arrival_state = self.arrival_state._replace(monitors=monitors)

    def _find_limits(self, piece: Batch, passed: Ints, stream: int, *, last: bool) -> Ints:
        """Return the greatest key that a stream may release after each arrival, nondecreasing."""
        size = passed.shape[1]
        if last:
            # Results need all streams: beyond the least of the streams' greatest keys there are none.
            inner = self._about.form == "inner"
            return np.full(size, self.arrival_state.monitors.per[:, GREATEST].min() if inner else NEVER)
        if self._is_hybrid:
            limits = passed[0]
        elif not self._is_sorting:
            limits = np.where(passed[2] == stream, passed[1], passed[0])
        else:
            own = np.maximum.accumulate(np.where(piece.stream == stream, np.arange(len(piece.stream)), -1))
            now = self.arrival_state.monitors.per[stream, LINE]
            # Before the stream's first tuple in this piece, everything up to its last watermark is already released.
            limits = np.where(own >= 0, passed[3][own], np.int64(-CEILING)) if len(own) else np.array([now])
            # Everything of an idle stream may go.
            if self.arrival_state.monitors.per[stream, ASLEEP]:
                limits[-1] = NEVER
        return np.asarray(np.maximum.accumulate(limits))

    def _find_span(self, limits: list[Ints], start: int) -> int:
        """Return the end of a span of arrivals whose due segments can be read together.

        It has at least one arrival.
        """
        stop = len(limits[0])
        for queue, limit in zip(self.queues, limits, strict=True):
            absent = queue.find_absent(int(limit[stop - 1]))
            if len(absent) > AT_ONCE:
                stop = min(stop, max(start + 1, int(np.searchsorted(limit, absent[AT_ONCE].low))))
        return stop

    def _release_in_turns(
        self, piece: Batch, limits: list[Ints], new: "list[np.ndarray[Any, np.dtype[np.intp]]]", span: slice
    ) -> Iterator[tuple[tuple[Any, Any, Any, Any], Ints]]:
        """Yield the tuples released within a span of arrivals, with their releasing arrivals."""
        upto = [int(limit[span.stop - 1]) for limit in limits]
        parts: list[tuple[int, TupleColumns, Ints]] = []
        for stream, places in enumerate(new):
            if not len(places):
                continue
            at = np.maximum(places, np.searchsorted(limits[stream], piece.key[places]))
            goes = at < span.stop
            now = places[goes]
            parts.append((stream, TupleColumns(piece.key[now], piece.row[now], piece.payload[now]), at[goes]))
            self._store(piece, places[~goes])
        while True:
            until = self._read_due(upto)
            for stream, queue in enumerate(self.queues):
                waited = queue.release(min(upto[stream], until), self.segments)
                if len(waited.key):
                    at = np.maximum(np.searchsorted(limits[stream], waited.key), span.start)
                    parts.append((stream, waited, at))
            if parts:
                yield self._order_parts(parts, piece)
            if until == CEILING:
                return
            parts = []

    def _read_due(self, upto: list[int]) -> int:
        """Read due segments, in turns; return the key up to which all tuples are in memory."""
        until = CEILING
        if self.segments is None:
            return until
        for queue, key in zip(self.queues, upto, strict=True):
            absent = queue.find_absent(key)
            for run in absent[:AT_ONCE]:
                queue.load(run, self.segments)
            if len(absent) > AT_ONCE:
                until = min(until, absent[AT_ONCE].low)
        return until

    def _order_parts(
        self, parts: list[tuple[int, TupleColumns, Ints]], piece: Batch
    ) -> tuple[tuple[Any, Any, Any, Any], Ints]:
        """Order tuples by their releasing arrival, then by key, which keeps streams in step."""
        key, row, payload = (np.concatenate(column) for column in zip(*(part[1] for part in parts), strict=True))
        stream = np.concatenate([np.full(len(part[2]), part[0], np.int32) for part in parts])
        at = np.concatenate([part[2] for part in parts])
        number = np.where(row < 0, ~row, row)
        # With DBF the arrival itself goes first: it moves the watermarks, so the others pass through without being
        # held.
        itself = np.zeros(len(at), bool)
        if not self._is_sorting and len(piece.stream):
            itself = (piece.stream[at] == stream) & (np.where(piece.row < 0, ~piece.row, piece.row)[at] == number)
        order = np.lexsort((number, key, ~itself, at))
        return (stream[order], row[order], key[order], payload[order]), at[order]

    def settle(self, held_bytes: int) -> bool:
        """Spill what the trigger selects, read ahead; return whether the limit is kept.

        Raises
        ------
        OSError
            A segment could not be written; its tuples stay in memory.
        """
        if self.segments is not None:
            for stream, queue in enumerate(self.queues):
                if queue.unwritten >= self._rows and self.lag_s(stream) >= TRIGGER * self.segments.segment_s:
                    line = int(self.arrival_state.monitors.per[stream, LINE]) if self._is_sorting else CEILING
                    # Full segments only.
                    queue.write(self.segments, self._rows, line, minimum=self._rows - 1)
            if self.is_within_limit(held_bytes):
                self._read_ahead(held_bytes)
        return self.is_within_limit(held_bytes) or self.relieve(held_bytes)

    def is_within_limit(self, held_bytes: int) -> bool:
        return held_bytes <= self.room_bytes

    def _read_ahead(self, held_bytes: int) -> None:
        assert self.segments is not None
        for queue in self.queues:
            ready = sum(len(run) for run in queue.runs if run.columns is not None)
            absent = queue.find_absent(CEILING)
            if absent and ready < self._ahead and held_bytes + absent[0].size * ROW_BYTES <= self.room_bytes:
                queue.load(absent[0], self.segments)

    def relieve(self, held_bytes: int) -> bool:
        """Free memory by spilling waiting tuples until the limit is kept; return whether it is.

        Raises
        ------
        OSError
            A segment could not be written; its tuples stay in memory.
        """
        for queue in self.queues:
            for run in queue.runs:
                run.shrink()
                if run.segment is not None:
                    run.columns = None
        if self.segments is None:
            return self.is_within_limit(held_bytes)
        # Largest queue first, so that few streams are spilled.
        for queue in sorted(self.queues, key=lambda queue: -queue.memory_bytes):
            if self.is_within_limit(held_bytes):
                return True
            queue.write(self.segments, self._rows, CEILING, minimum=0)
        return self.is_within_limit(held_bytes)

    def lag_s(self, stream: int) -> float:
        """Return the time that a stream has been ahead of the last one [s], else 0."""
        monitors, join_state = self.arrival_state.monitors, self.arrival_state.join_state
        passed = int(join_state[LEAST_LINE])
        if monitors.per[stream, GREATEST] <= passed:
            return 0.0
        ring = state.unroll_ring(monitors, stream)
        return float(join_state[CLOCK] - ring[np.searchsorted(ring[:, 1], passed, side="right"), 2]) / 1e9

    def columns(self) -> dict[str, "np.ndarray[Any, Any]"]:
        """Return the monitors and the tuples that wait in memory only, as columns of a snapshot."""
        arrival_state = self.arrival_state
        runs = [
            (i, run.select_upto(CEILING))
            for i, queue in enumerate(self.queues)
            for run in queue.runs
            if not run.segment
        ]
        parts = [part for _, part in runs] or [TupleColumns(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0))]
        key, row, payload = (np.concatenate(column) for column in zip(*parts, strict=True))
        sizes = np.array([(i, len(part.key)) for i, part in runs], np.int64).reshape(-1, 2)
        return {
            "waiting.join_state": arrival_state.join_state,
            "waiting.steps": arrival_state.steps,
            "waiting.per": arrival_state.monitors.per,
            "waiting.records": arrival_state.monitors.records,
            "waiting.rates": arrival_state.monitors.rates,
            "waiting.spread": arrival_state.monitors.spread,
            "waiting.runs": sizes,
            "waiting.key": key,
            "waiting.row": row,
            "waiting.payload": payload,
        }

    def name_segments(self) -> dict[str, object] | None:
        """Return the folder and the segments of each stream, for a snapshot; None without spilling."""
        if self.segments is None:
            return None
        runs = [
            [[run.segment, run.low, run.size, run.oldest, run.taken] for run in q.runs if run.segment]
            for q in self.queues
        ]
        self.segments.name_segments()
        return {"folder": str(self.segments.folder), "runs": runs}

    def restore(self, columns: "dict[str, np.ndarray[Any, Any]]", named: "dict[str, Any] | None") -> None:
        """Restore the state from `columns` and `name_segments`."""
        names = ("per", "records", "rates", "spread")
        monitors = self.arrival_state.monitors._replace(**{name: columns[f"waiting.{name}"] for name in names})
        self.arrival_state = self.arrival_state._replace(
            join_state=columns["waiting.join_state"], steps=columns["waiting.steps"], monitors=monitors
        )
        for queue, runs in zip(self.queues, named["runs"] if named else [], strict=False):
            queue.runs = [SortedRun(None, low, size, oldest, taken, name) for name, low, size, oldest, taken in runs]
        start = 0
        for stream, size in columns["waiting.runs"].tolist():
            parts = (columns[f"waiting.{name}"][start : start + size] for name in TupleColumns._fields)
            self.queues[stream].runs.append(make_run(TupleColumns(*parts)))
            start += size


def write_join_settings(about: JoinConfig, join_state: Ints, stream_state: Ints) -> None:
    """Write the settings of a join that gets its tuples from a reorder buffer."""
    about.write_settings(join_state, stream_state)
    join_state[IDLE], join_state[JUMP], join_state[ALLOWED] = CEILING, CEILING // 2, CEILING
    if about.strategy == "dbf":
        return
    known = about.known
    given = known is not None and (known.disorder if about.policy == "progress" else known.scrambling_factor)
    join_state[POLICY] = PROGRESS
    stream_state[:, KNOWN_DISORDER] = 0 if given else -1
