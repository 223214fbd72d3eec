"""Strategies that make do with less memory (thesis 3.5): tuples wait before they are joined, some of them on disk.

A tuple waits until the arrivals pass its key:

- MSF (Memory-Sort First): until its own stream brings nothing below it any more. So the join gets sorted streams.
- DBF (Disk-Buffer First): until each other stream has come to it. No result needs it before: no result comes later.
- Hybrid: until all streams bring nothing below it any more. So the join gets sorted streams without lag.

What waits is in sorted runs. DBF and the hybrid write runs to disk where the lag in time is at least three times what
it takes to write and read a segment, and wherever memory is short; the next segment is read `AHEAD` tuples ahead.

A tuple that waited comes with the arrival that let it go, so that the order within a stream only improves: neither its
scrambling factor nor its disorder grows, and what is known of them stays true.
"""

import math
from collections.abc import Generator, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from hypergrid.wo_join import state
from hypergrid.wo_join.config import ROW_BYTES, Description
from hypergrid.wo_join.results import Late, Matches
from hypergrid.wo_join.spilling import release_gate
from hypergrid.wo_join.spilling.runs import ROWS_ON_DISK, Columns, Queue, Run, run_of, sorted_columns
from hypergrid.wo_join.state_layout import (
    ALLOWED,
    ASLEEP,
    CEILING,
    CLOCK,
    DEADLINE,
    END_RECORD,
    FIRST_RECORD,
    GREATEST,
    IDLE,
    JUMP,
    KNOWN_DISORDER,
    LAST,
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
from hypergrid.wo_join.watermarks import doze

if TYPE_CHECKING:
    from hypergrid.wo_join.spilling.segments import Segments

PIECE = 4096
"""Tuples of a push that are taken at once."""
AHEAD = 1024
"""C of thesis 3.5.2: where fewer tuples of a stream wait in memory, the next segment is read."""
TRIGGER = 3.0
"""Lags of at least as many times the disk time of a segment are written to disk (thesis 3.5.2)."""
AT_ONCE = 1
"""Segments of a stream that are read at once; where more are due they come in turns, by key."""
NEVER = np.int64(CEILING)
NONE = np.empty(0, np.int64)


class Waiting:
    """Tuples that wait, and the monitors of the arrivals.

    Parameters
    ----------
    about
        The join, which has a strategy.
    segments
        Where runs are written; None for MSF.
    """

    def __init__(self, about: Description, segments: "Segments | None") -> None:
        self.segments = segments
        self._sorting = about.strategy != "dbf"
        self._together = about.strategy == "hybrid"
        n = about.streams
        self.monitors = state.empty(n, ranks=0, scattered=False, timed=False, jump=about.jump or 0)
        about.tell(self.monitors.whole, self.monitors.seen.per)
        self.queues = [Queue() for _ in range(n)]
        self._first_bytes = self.monitors.seen.records.nbytes
        self.allow(about)

    def allow(self, about: Description) -> None:
        """Change the limit to that of `about`, and cut segments from now on so that several of each stream fit."""
        self._about = about
        allowed = math.inf if about.allowed_bytes is None else about.allowed_bytes
        self._rows = int(min(ROWS_ON_DISK, max(16, allowed // (16 * about.streams * ROW_BYTES))))
        self._ahead = min(AHEAD, self._rows // 4)

    @property
    def memory_bytes(self) -> int:
        """Bytes of what waits in memory, and of running maxima beyond those that every join has room for."""
        grown = self.monitors.seen.records.nbytes - self._first_bytes
        return grown + sum(queue.memory_bytes for queue in self.queues)

    @property
    def room(self) -> int:
        """Bytes that are left for the join."""
        return CEILING if self._about.allowed_bytes is None else self._about.allowed_bytes - self.memory_bytes

    @property
    def gone(self) -> Ints:
        """The streams that are asleep and of which nothing waits."""
        asleep = np.flatnonzero(self.monitors.seen.per[:, ASLEEP])
        return np.array([stream for stream in asleep if not self.queues[stream].runs], np.int64)

    @property
    def lowest(self) -> int:
        """The least key that waits."""
        return min((run.low for queue in self.queues for run in queue.runs), default=CEILING)

    def tell_disorder(self, per: Ints) -> None:
        """Tell a join that gets its tuples as they come how far arrivals lie behind, where it is monitored.

        What was let go in order of keys is in better order than what is still to come: from it, too little is learned.
        """
        known = self._about.known
        if self._sorting or self._about.policy != "progress" or (known is not None and known.disorder is not None):
            return
        release_gate.tell_disorder(self.monitors.seen, self.monitors.whole, per)

    def begin(self, arrival: int) -> None:
        """Streams that have brought nothing yet are waited for from the first arrival on."""
        whole = self.monitors.whole
        if whole[DEADLINE] == CEILING and whole[IDLE] < CEILING:
            self.monitors.seen.per[:, LAST] = arrival
            whole[DEADLINE] = arrival + whole[IDLE]

    def advance(self, clock: int) -> None:
        """Let the clock go on without an arrival [ns]."""
        whole = self.monitors.whole
        whole[CLOCK] = max(whole[CLOCK], clock)
        if whole[CLOCK] > whole[DEADLINE]:
            doze(self.monitors.seen.per, whole, whole[IDLE], whole[CLOCK])

    def take(self, piece: Batch, *, last: bool = False) -> Generator[tuple[Batch, Ints]]:
        """Take tuples; yield what may be joined, and the number of the arrival that let each go.

        Whoever stops in the middle loses nothing: all else waits on.

        Parameters
        ----------
        last
            Whether nothing waits any longer.
        """
        first = int(self.monitors.whole[TAKEN])
        passed = self._watch(piece)
        if len(piece.stream):
            arrivals = np.maximum.accumulate(piece.arrival)
        else:
            # Without an arrival, what the clock let go of comes as with the last one.
            arrivals, first = self.monitors.whole[[CLOCK]].copy(), max(first - 1, 0)
        keep = passed[4] == 0
        self._away = self._late(piece, ~keep)
        limits = [self._limits(piece, passed, stream, last=last) for stream in range(len(self.queues))]
        start = 0
        try:
            while start < len(arrivals):
                stop = self._span(limits, start)
                here = np.flatnonzero(keep[start:stop]) + start if len(piece.stream) else np.empty(0, np.intp)
                new = [here[piece.stream[here] == stream] for stream in range(len(self.queues))]
                span = slice(start, stop)
                start = stop
                for columns, at in self._turns(piece, limits, new, span):
                    yield Batch(*columns, arrivals[at]), first + at
        finally:
            rest = np.flatnonzero(keep[start:]) + start
            if len(piece.stream) and len(rest):
                self._store(piece, rest)

    def quarantined(self) -> Matches:
        """Return the tuples of the last piece whose clocks must have jumped."""
        return Matches(
            np.empty((0, self._about.streams), np.int64), np.empty((0, self._about.streams)), NONE, NONE, self._away
        )

    def _late(self, piece: Batch, away: "np.ndarray[Any, np.dtype[np.bool_]]") -> Late:
        if not len(piece.stream) or not away.any():
            return Late(NONE, NONE, NONE, np.empty(0), NONE)
        row = np.where(piece.row < 0, ~piece.row, piece.row)[away]
        stream = piece.stream[away].astype(np.int64)
        return Late(stream, row, piece.key[away], piece.payload[away], np.full(len(row), QUARANTINED, np.int64))

    def put_back(self, rest: Batch) -> None:
        """Let tuples wait that the join could not take."""
        self._store(rest, np.arange(len(rest.stream)))

    def _store(self, batch: Batch, places: "np.ndarray[Any, np.dtype[np.intp]]") -> None:
        for stream in np.unique(batch.stream[places]):
            own = places[batch.stream[places] == stream]
            self.queues[stream].add(sorted_columns(batch.key[own], batch.row[own], batch.payload[own]))

    def _watch(self, piece: Batch) -> Ints:
        """Return what each arrival says (`gate.watch`), or the state as it is where there is none."""
        here = self.monitors
        if not len(piece.stream):
            return np.array([[here.whole[LEAST_LINE]], [here.whole[NEXT_LINE]], [here.whole[LAST_STREAM]], [0], [0]])
        passed = np.empty((5, len(piece.stream)), np.int64)
        start = 0
        while True:
            start = release_gate.watch(here.seen, here.whole, here.steps, piece, self._sorting, passed, start)
            if start == len(piece.stream):
                return passed
            state.grow_records(here, 2 * here.seen.records.shape[1])

    def _limits(self, piece: Batch, passed: Ints, stream: int, *, last: bool) -> Ints:
        """Return the key up to which a stream's tuples may go after each arrival, never falling."""
        size = passed.shape[1]
        if last:
            # Results need all streams: beyond the greatest key of any there are none.
            inner = self._about.form == "inner"
            return np.full(size, self.monitors.seen.per[:, GREATEST].min() if inner else NEVER)
        if self._together:
            limits = passed[0]
        elif not self._sorting:
            limits = np.where(passed[2] == stream, passed[1], passed[0])
        else:
            own = np.maximum.accumulate(np.where(piece.stream == stream, np.arange(len(piece.stream)), -1))
            now = self.monitors.seen.per[stream, LINE]
            # Before its first tuple here, all that its last line allows has gone.
            limits = np.where(own >= 0, passed[3][own], np.int64(-CEILING)) if len(own) else np.array([now])
            if self.monitors.seen.per[stream, ASLEEP]:
                limits[-1] = NEVER
        return np.asarray(np.maximum.accumulate(limits))

    def _span(self, limits: list[Ints], start: int) -> int:
        """Return up to which arrival all segments that are due can be read at once; one arrival at least."""
        stop = len(limits[0])
        for queue, limit in zip(self.queues, limits, strict=True):
            absent = queue.absent(int(limit[stop - 1]))
            if len(absent) > AT_ONCE:
                stop = min(stop, max(start + 1, int(np.searchsorted(limit, absent[AT_ONCE].low))))
        return stop

    def _turns(
        self, piece: Batch, limits: list[Ints], new: "list[np.ndarray[Any, np.dtype[np.intp]]]", span: slice
    ) -> Iterator[tuple[tuple[Any, Any, Any, Any], Ints]]:
        """Yield the tuples that go within a span of arrivals, in order, with the arrivals that let them go."""
        upto = [int(limit[span.stop - 1]) for limit in limits]
        parts: list[tuple[int, Columns, Ints]] = []
        for stream, places in enumerate(new):
            if not len(places):
                continue
            at = np.maximum(places, np.searchsorted(limits[stream], piece.key[places]))
            goes = at < span.stop
            now = places[goes]
            parts.append((stream, Columns(piece.key[now], piece.row[now], piece.payload[now]), at[goes]))
            self._store(piece, places[~goes])
        while True:
            until = self._due(upto)
            for stream, queue in enumerate(self.queues):
                waited = queue.release(min(upto[stream], until), self.segments)
                if len(waited.key):
                    at = np.maximum(np.searchsorted(limits[stream], waited.key), span.start)
                    parts.append((stream, waited, at))
            if parts:
                yield self._ordered(parts, piece)
            if until == CEILING:
                return
            parts = []

    def _due(self, upto: list[int]) -> int:
        """Read the segments that are due, in turns; return the key up to which all tuples are now in memory."""
        until = CEILING
        if self.segments is None:
            return until
        for queue, key in zip(self.queues, upto, strict=True):
            absent = queue.absent(key)
            for run in absent[:AT_ONCE]:
                queue.load(run, self.segments)
            if len(absent) > AT_ONCE:
                until = min(until, absent[AT_ONCE].low)
        return until

    def _ordered(self, parts: list[tuple[int, Columns, Ints]], piece: Batch) -> tuple[tuple[Any, Any, Any, Any], Ints]:
        """Return tuples in the order in which they go: by arrival that let them go, then by key.

        Streams keep step so. With DBF the arrival itself comes first: the lines that it moves let the others pass
        through the join without staying.
        """
        key, row, payload = (np.concatenate(column) for column in zip(*(part[1] for part in parts), strict=True))
        stream = np.concatenate([np.full(len(part[2]), part[0], np.int32) for part in parts])
        at = np.concatenate([part[2] for part in parts])
        number = np.where(row < 0, ~row, row)
        itself = np.zeros(len(at), bool)
        if not self._sorting and len(piece.stream):
            itself = (piece.stream[at] == stream) & (np.where(piece.row < 0, ~piece.row, piece.row)[at] == number)
        order = np.lexsort((number, key, ~itself, at))
        return (stream[order], row[order], key[order], payload[order]), at[order]

    def settle(self, held_bytes: int) -> bool:
        """Write what shall be on disk, read ahead; return whether all is within the limit.

        Raises
        ------
        OSError
            Something could not be written; it waits in memory.
        """
        if self.segments is not None:
            for stream, queue in enumerate(self.queues):
                if queue.unwritten >= self._rows and self.lag_s(stream) >= TRIGGER * self.segments.segment_s:
                    line = int(self.monitors.seen.per[stream, LINE]) if self._sorting else CEILING
                    queue.write(self.segments, self._rows, line, least=self._rows - 1)
            if self.within(held_bytes):
                self._read_ahead(held_bytes)
        return self.within(held_bytes) or self.relieve(held_bytes)

    def within(self, held_bytes: int) -> bool:
        """Tell whether what the join holds and what waits is within the limit."""
        return held_bytes <= self.room

    def _read_ahead(self, held_bytes: int) -> None:
        assert self.segments is not None
        for queue in self.queues:
            ready = sum(len(run) for run in queue.runs if run.columns is not None)
            absent = queue.absent(CEILING)
            if absent and ready < self._ahead and held_bytes + absent[0].size * ROW_BYTES <= self.room:
                queue.load(absent[0], self.segments)

    def relieve(self, held_bytes: int) -> bool:
        """Give back memory and move to disk what waits, until the limit is kept; return whether it is.

        Raises
        ------
        OSError
            Something could not be written; it waits in memory.
        """
        for queue in self.queues:
            for run in queue.runs:
                run.shrink()
                if run.segment is not None:
                    run.columns = None
        if self.segments is None:
            return self.within(held_bytes)
        for queue in sorted(self.queues, key=lambda queue: -queue.memory_bytes):
            if self.within(held_bytes):
                return True
            queue.write(self.segments, self._rows, CEILING, least=0)
        return self.within(held_bytes)

    def lag_s(self, stream: int) -> float:
        """Return for how long a stream has been ahead of the last one [s]; 0 where it is not."""
        per, records, whole = self.monitors.seen.per, self.monitors.seen.records, self.monitors.whole
        passed = int(whole[LEAST_LINE])
        if per[stream, GREATEST] <= passed:
            return 0.0
        ring = records[stream, np.arange(*per[stream, [FIRST_RECORD, END_RECORD]]) & (records.shape[1] - 1)]
        return float(whole[CLOCK] - ring[np.searchsorted(ring[:, 1], passed, side="right"), 2]) / 1e9

    def columns(self) -> dict[str, "np.ndarray[Any, Any]"]:
        """Return monitors and what waits in memory alone, as columns of a snapshot."""
        here = self.monitors
        runs = [(i, run.upto(CEILING)) for i, queue in enumerate(self.queues) for run in queue.runs if not run.segment]
        parts = [part for _, part in runs] or [Columns(np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros(0))]
        key, row, payload = (np.concatenate(column) for column in zip(*parts, strict=True))
        sizes = np.array([(i, len(part.key)) for i, part in runs], np.int64).reshape(-1, 2)
        return {
            "waiting.whole": here.whole,
            "waiting.steps": here.steps,
            "waiting.per": here.seen.per,
            "waiting.records": here.seen.records,
            "waiting.rates": here.seen.rates,
            "waiting.spread": here.seen.spread,
            "waiting.runs": sizes,
            "waiting.key": key,
            "waiting.row": row,
            "waiting.payload": payload,
        }

    def named(self) -> dict[str, object] | None:
        """Return the folder and the segments of each stream, for a snapshot; None where nothing is on disk."""
        if self.segments is None:
            return None
        runs = [
            [[run.segment, run.low, run.size, run.oldest, run.taken] for run in q.runs if run.segment]
            for q in self.queues
        ]
        self.segments.name()
        return {"folder": str(self.segments.folder), "runs": runs}

    def restore(self, columns: "dict[str, np.ndarray[Any, Any]]", named: "dict[str, Any] | None") -> None:
        """Be as `columns` and `named` were told."""
        here = self.monitors
        here.whole, here.steps = columns["waiting.whole"], columns["waiting.steps"]
        names = ("per", "records", "rates", "spread")
        here.seen = here.seen._replace(**{name: columns[f"waiting.{name}"] for name in names})
        for queue, runs in zip(self.queues, named["runs"] if named else [], strict=False):
            queue.runs = [Run(None, low, size, oldest, taken, name) for name, low, size, oldest, taken in runs]
        start = 0
        for stream, size in columns["waiting.runs"].tolist():
            parts = (columns[f"waiting.{name}"][start : start + size] for name in Columns._fields)
            self.queues[stream].runs.append(run_of(Columns(*parts)))
            start += size


def tell_join(about: Description, whole: Ints, per: Ints) -> None:
    """Tell a join before which tuples wait: clocks are judged before, and streams may be sorted."""
    about.tell(whole, per)
    whole[IDLE], whole[JUMP], whole[ALLOWED] = CEILING, CEILING // 2, CEILING
    if about.strategy == "dbf":
        return
    known = about.known
    given = known is not None and (known.disorder if about.policy == "progress" else known.scrambling_factor)
    whole[POLICY] = PROGRESS
    per[:, KNOWN_DISORDER] = 0 if given else -1
