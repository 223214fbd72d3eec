"""Assemble arriving rows into slices by joining station streams on time (thesis 5.10.1).

The streams of the join are the stations of each feed, the key is the number of the slice, and a tuple is a row. A slice
is emitted once no station is expected to bring it any more. With the order "whole" it is also emitted as soon as it is
complete, even before older incomplete ones; with "time" slices are emitted in order of time, as in the thesis. A later
row is an amendment and is emitted at once. Only rows that the join holds are held here.

A batch emits a bounded part of what is due; the rest comes with the next batches, in the order in which it became due.
With a limit of memory the oldest rows wait on disk (`spilled_rows.py`). If the join alone is too large, the oldest
slices close before they are due: what comes later of them are amendments, so nothing is lost.
"""

import json
import math
from bisect import bisect_right
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from hypergrid.archive import Reject
from hypergrid.core.clock_errors import ClockErrors, find_bounds_by_station_ns
from hypergrid.core.errors import InvalidQuery
from hypergrid.core.files import seal_chunks, sealed_version, unseal
from hypergrid.core.readings import Station
from hypergrid.core.times import SECOND_NS
from hypergrid.core.units import Variable
from hypergrid.wo_join import KeysDoNotGrow, Matches, WoJoin
from ingest.deployment.deployment_file import SliceOrder
from ingest.streaming.repeats import REMEMBERED, SentMessages, find_repeats
from ingest.streaming.spilled_rows import SpilledRows, StateUnusable, hash_keys
from ingest.streaming.spool_decoder import ClockTicks, DecodedPiece, Dictionary, RowBatch, concatenate_batches

STREAMS_AT_ONCE: Final = 128
"""Streams up to which the status is determined after every batch; 1,024 streams take 0.15 s, so every eighth then."""


@dataclass(frozen=True)
class JoinStatus:
    """Join of a group of stations after a batch; its tuples are rows, its keys slices."""

    streams: int
    """Stations that have brought anything."""
    silent: int
    """Stations among them that are not waited for: silent for too long, or with a stalled clock."""
    held: int
    """Rows held, in memory and on disk."""
    held_bytes: int
    """Memory of held rows and of the join's entries [bytes]."""
    allocated_bytes: int
    """Memory of the rows and of all arrays of the join [bytes]."""
    allowed_bytes: int | None
    """Memory limit [bytes]; None: unlimited."""
    needed: float | None
    """Rows that equation 3.8 of the thesis holds at these scrambling factors, rates and lags; None: not known yet."""
    scrambling_factor: int
    """Greatest scrambling factor of a station [rows]."""
    lag: float | None
    """Greatest lag of a station to another that is waited for [rows]."""
    order: SliceOrder = "whole"
    """Order in which slices are emitted."""
    spilled: int = 0
    """Rows that wait on disk."""
    disk_bytes: int = 0
    """Size of their files [bytes]."""
    closed_early: int = 0
    """Slices closed so far before they were due, for want of memory."""
    row_bytes: float = 0.0
    """What a row takes in memory, with its tuple of the join [bytes]."""

    @classmethod
    def of(cls, assembler: "Assembler") -> "JoinStatus":
        """Summarise what an assembler holds, and the statistics of its join."""
        join, spilled = assembler._join, assembler._spilled
        statistics = join.statistics()
        rows_bytes = assembler._held.nbytes + assembler._numbers.nbytes + assembler._due.nbytes
        rows_bytes += assembler._clocks.nbytes + (0 if spilled is None else spilled.memory_bytes)
        has_arrived = np.array([stream.arrived > 0 for stream in statistics.streams])
        awake = np.array([stream.activity == "awake" for stream in statistics.streams])
        needed = sum(stream.bound for stream in statistics.streams if stream.arrived)
        # The lag to a station that is not waited for grows forever.
        lags = join.lags()[np.ix_(awake, awake)]
        lag = float(lags.max()) if len(lags) > 1 else math.nan
        return cls(
            streams=int(has_arrived.sum()),
            silent=int((has_arrived & ~awake).sum()),
            held=len(assembler),
            held_bytes=statistics.held_bytes + rows_bytes,
            allocated_bytes=statistics.allocated_bytes + rows_bytes,
            allowed_bytes=assembler.memory,
            needed=needed if math.isfinite(needed) and has_arrived.any() else None,
            scrambling_factor=max((stream.scrambling_factor for stream in statistics.streams), default=0),
            lag=lag if math.isfinite(lag) else None,
            order="time" if join.in_order else "whole",
            spilled=0 if spilled is None else len(spilled),
            disk_bytes=0 if spilled is None else spilled.disk_bytes,
            closed_early=assembler.counts.closed_early,
            row_bytes=assembler._row_bytes + TUPLE_BYTES,
        )


VERSION: Final = 4
"""Version of the serialised state; in earlier ones all but the rows is metadata of these, and 2 has no checksum."""
_EARLIER: Final = 3
MAGIC: Final = b"HGSLICES"
_ARROW: Final = b"\xff\xff\xff\xff"
"""Prefix of a state of version 2."""
IDLE_SLICES: Final = 10.0
"""Default number of silent slices after which the join stops waiting for a station."""
FIRST_S: Final = 60.0
"""Time after the first row for which declared stations that never sent anything are waited for, or a slice if that is
longer [s]. It covers receiving one file per station, so that these make complete slices."""
MOST_STREAMS: Final = 1024
"""Maximum number of streams of a join; if there are more stations, some share one."""
PUSHED: Final = 1 << 12
"""Rows per push, so that the results of a push stay small."""
STALLED: Final = 256
"""Stop waiting for a station after this many rows without a later slice: its clock stands still."""
UNCERTAIN_BYTES: Final = 300
"""Memory of a row that is held for several slices, besides the row [bytes]."""
_RIGHT: Final[ClockErrors] = MappingProxyType({})
"""Clock errors where every clock is right."""
_NEVER_NS: Final = -(2**62)
_EVER_NS: Final = 2**62

ROWS_SHARE: Final = 1 / 8
"""Share of a limit of memory that held rows may take; as much may be emitted by a batch."""
EMITTED_BYTES: Final = 256 << 20
"""Rows that a batch emits at most, whatever the limit: they pass through Spark's JVM [bytes]."""
TUPLE_BYTES: Final = 32
"""What the join holds for a row [bytes]."""
FIRST_ROW_BYTES: Final = 200.0
"""Size of a row until some are there [bytes]."""
JOIN_SHARE: Final = 3 / 8
"""Share that the join may take by what it holds: its arrays are up to twice as large."""

_Emitted = list[tuple[NDArray[np.int64], NDArray[np.int64], bool]]
"""Rows that a batch emits: their numbers, when each was emitted, and whether they were late."""


@dataclass(frozen=True, eq=False)
class EmittedRows:
    """Emitted rows, e of them, in the order in which they are stored: those due in one batch in order of arrival."""

    rows: RowBatch
    closed_ns: NDArray[np.int64]
    """When the slice closed, or the amendment arrived [ns since 1970 UTC], shape (e,)."""
    late: NDArray[np.bool_]
    """Whether the row is an amendment, shape (e,)."""


@dataclass
class Counts:
    """Counts of all rows so far: `readings == released + duplicates +` readings that are held."""

    rows: int = 0
    readings: int = 0
    """Readings that arrived."""
    released: int = 0
    """Readings that were emitted."""
    duplicates: int = 0
    """Readings of rows that equal a held row value by value; dropped."""
    late: int = 0
    """Rows emitted as amendments."""
    slices: int = 0
    last_slice: int = 0
    """Number of the last closed slice, counted from 1970."""
    closed_early: int = 0
    """Slices closed before they were due, for want of memory."""


@dataclass
class _ElapsedClock:
    """Elapsed time that survives changes of the machine's clock; it decides which stations are idle."""

    clock_ns: int = _NEVER_NS
    """Greatest clock value since the clock was last set back [ns]."""
    elapsed_ns: int = _NEVER_NS
    """Elapsed time at that clock value [ns]; equal to it as long as the clock is not set."""

    def advance_to(self, clock_ns: NDArray[np.int64], *, most_ns: int) -> NDArray[np.int64]:
        """Return the elapsed time at each clock value, nondecreasing, shape (n,).

        A step ahead counts `most_ns` at most. A clock that is further back than that was set, and time continues from
        there.
        """
        elapsed_ns = np.empty(len(clock_ns), np.int64)
        if len(clock_ns) and self.clock_ns == _NEVER_NS:
            self.clock_ns = self.elapsed_ns = int(clock_ns[0])
        start = 0
        while start < len(clock_ns):
            stamps_ns = clock_ns[start : start + PUSHED]
            greatest = np.maximum.accumulate(np.r_[self.clock_ns, stamps_ns])
            back = np.flatnonzero(stamps_ns < greatest[1:] - most_ns)
            size = int(back[0]) if len(back) else len(stamps_ns)
            steps = np.minimum(np.diff(greatest[: size + 1]), most_ns)
            elapsed_ns[start : start + size] = self.elapsed_ns + np.cumsum(steps)
            self.elapsed_ns += int(steps.sum())
            start += size
            self.clock_ns = int(stamps_ns[size]) if len(back) else int(greatest[-1])
        return elapsed_ns


@dataclass(frozen=True, eq=False)
class _NewRows:
    """Rows of a batch, m of them, with the slices that they may belong to."""

    rows: RowBatch
    number: NDArray[np.int64]
    first: NDArray[np.int64]
    own: NDArray[np.int64]
    """Slice of the stamp."""
    last: NDArray[np.int64]

    @classmethod
    def of(cls, rows: RowBatch, number: NDArray[np.int64], slice_ns: int, errors: ClockErrors) -> "_NewRows":
        own = rows.time_ns // slice_ns
        stations = [station for _, station in rows.origins]
        if errors.keys().isdisjoint(stations):
            return cls(rows, number, own, own, own)
        bound_ns = find_bounds_by_station_ns(errors, stations, rows.origin, rows.time_ns)
        return cls(rows, number, (rows.time_ns - bound_ns) // slice_ns, own, (rows.time_ns + bound_ns) // slice_ns)


@dataclass
class _UncertainRows:
    """Rows that the join holds for several slices, as their clocks are right only within a bound."""

    by_number: dict[int, tuple[int, int]] = field(default_factory=dict)
    """Slice of each row's stamp, and for how many slices the join still holds it, by number."""

    @property
    def nbytes(self) -> int:
        return len(self.by_number) * UNCERTAIN_BYTES

    def add(self, number: NDArray[np.int64], key: NDArray[np.int64], more: NDArray[np.int64]) -> None:
        """Add those of some rows that are held for `more` slices than one."""
        rows = np.flatnonzero(more > 0)
        slices = zip(key[rows].tolist(), (more[rows] + 1).tolist(), strict=True)
        self.by_number.update(zip(number[rows].tolist(), slices, strict=True))

    def select_own(self, number: NDArray[np.int64], key: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Mask the rows that the join gave with the slice of their stamp; each is given once for each of its slices."""
        own = np.ones(len(number), np.bool_)
        if not self.by_number:
            return own
        for at, row in enumerate(number.tolist()):
            if row not in self.by_number:
                continue
            of_stamp, slices = self.by_number.pop(row)
            own[at] = key[at] == of_stamp
            if slices > 1:
                self.by_number[row] = (of_stamp, slices - 1)
        return own


@dataclass(frozen=True, eq=False)
class _DueRows:
    """Rows whose slices closed and that no batch has emitted yet, d of them.

    Those of a batch are ordered by arrival, and stand behind those of earlier batches.
    """

    number: NDArray[np.int64]
    closed_ns: NDArray[np.int64]
    late: NDArray[np.bool_]

    @classmethod
    def of(cls, parts: _Emitted) -> "_DueRows":
        """Collect what became due in a batch."""
        number = np.concatenate([np.empty(0, np.int64), *(part[0] for part in parts)])
        closed_ns = np.concatenate([np.empty(0, np.int64), *(part[1] for part in parts)])
        sizes = np.array([len(part[0]) for part in parts], np.int64)
        late = np.repeat(np.array([part[2] for part in parts], np.bool_), sizes)
        return cls(number, closed_ns, late).take(np.argsort(number, kind="stable"))

    @property
    def nbytes(self) -> int:
        return self.number.nbytes + self.closed_ns.nbytes + self.late.nbytes

    def append(self, later: "_DueRows") -> "_DueRows":
        """Return these rows, and later ones behind them."""
        names = ("number", "closed_ns", "late")
        return _DueRows(*(np.concatenate([getattr(self, name), getattr(later, name)]) for name in names))

    def take(self, rows: NDArray[np.intp]) -> "_DueRows":
        return _DueRows(self.number[rows], self.closed_ns[rows], self.late[rows])

    def split(self, size: int) -> "tuple[_DueRows, _DueRows]":
        """Return the first `size` rows, and the others."""
        rows = np.arange(len(self.number))
        return self.take(rows[:size]), self.take(rows[size:])


class Assembler:
    """State of one group of stations whose slices are assembled together.

    Parameters
    ----------
    slice_s
        Length of a slice [s].
    idle_s
        Silence after which the join stops waiting for a station [s]; None: `IDLE_SLICES` slices.
    order
        "whole": slices are emitted as soon as they are complete; "time": in order of time.
    expected
        Feeds and stations that the first slices wait for, until `FIRST_S` or a slice after the first row. Those that
        have sent nothing by then are waited for only after they do; others may appear at any time.
    memory
        Limit of what is held in memory [bytes]; None: unlimited. It may change between batches.
    folder
        Folder of rows that wait on disk; needed with a limit.
    """

    def __init__(
        self,
        slice_s: float,
        idle_s: float | None = None,
        *,
        order: SliceOrder = "whole",
        expected: Iterable[tuple[str, str]] = (),
        memory: int | None = None,
        folder: Path | None = None,
    ) -> None:
        self.slice_ns = round(slice_s * SECOND_NS)
        self.order: SliceOrder = order
        self.idle_s = IDLE_SLICES * slice_s if idle_s is None else idle_s
        self.counts = Counts()
        self.version = 0
        """Number of batches processed."""
        self.rejected = 0
        """Readings rejected so far, maintained by the caller that parses."""
        self.tally: dict[int, list[int]] = {}
        """Counts by unfinished segment of the spool, maintained by the caller that parses."""
        self._names = Dictionary({origin: number for number, origin in enumerate(expected)})
        self._sent = SentMessages()
        self._held = RowBatch.empty()
        self._numbers = np.empty(0, np.int64)
        self._due = _DueRows.of([])
        self.memory = memory
        self._spilled = None if folder is None else SpilledRows(folder)
        self._elapsed = _ElapsedClock()
        self._clocks = _UncertainRows()
        self._looked_ns = _NEVER_NS
        self._row_bytes = FIRST_ROW_BYTES
        self._begin()

    def _begin(self) -> None:
        # Stations that have sent something or are expected are waited for; new ones only after they have sent
        # something.
        self._absent_ns = _NEVER_NS
        streams = max(2, min(MOST_STREAMS, len(self._names.origins)))
        self._join = WoJoin(streams, form="assembling", idle_s=self.idle_s, in_order=self.order == "time")
        self._pushed = 0

    def __len__(self) -> int:
        return len(self._held) + (0 if self._spilled is None else len(self._spilled))

    @property
    def _streams(self) -> int:
        """Number of streams for the join, rounded up so that it is seldom widened."""
        return min(MOST_STREAMS, 1 << max(1, len(self._names.origins) - 1).bit_length())

    @property
    def first_held(self) -> int | None:
        """Number of the first spool record with a held row, or of one before it; None if there is none."""
        in_memory = int(self._held.seq.min()) if len(self._held) else None
        on_disk = None if self._spilled is None else self._spilled.first_seq
        return min((seq for seq in (in_memory, on_disk) if seq is not None), default=None)

    @property
    def held_bytes(self) -> int:
        """Size of the rows in memory [bytes]."""
        return self._held.nbytes

    @property
    def held_readings(self) -> int:
        return self._held.readings + (0 if self._spilled is None else self._spilled.readings)

    def join_status(self) -> JoinStatus | None:
        """Return the status of the join; None after most batches if there are many streams."""
        # Statistics of 1,024 streams take 0.15 s (`STREAMS_AT_ONCE`).
        looks = 1 + (self._join.streams - 1) // STREAMS_AT_ONCE
        return None if self.version % looks else JoinStatus.of(self)

    def process(self, rows: RowBatch, clock: ClockTicks, errors: ClockErrors = _RIGHT) -> EmittedRows:
        """Process a batch in the order of the spool; return the emitted rows.

        A row of a station with a clock error enters the join with all slices that it may belong to: none of them closes
        before such rows are expected no more. It is emitted with the slice of its stamp.
        """
        self.version += 1
        new_rows = self._names.encode(rows)
        new_rows = replace(new_rows, time_ns=self._sent.first_times(new_rows))
        self._join.widen(self._streams)
        numbers = self.counts.rows + np.arange(len(new_rows))
        self.counts.rows += len(new_rows)
        self.counts.readings += new_rows.readings
        held = replace(self._held, origins=new_rows.origins, columns=new_rows.columns)
        again = self._repeats_of_held(held, new_rows)
        self.counts.duplicates += int(new_rows.sizes[again].sum())
        new_rows, numbers = new_rows.take(~again), numbers[~again]
        arrived = len(new_rows)
        letting: _Emitted = []
        self._push_by_ticks(_NewRows.of(new_rows, numbers, self.slice_ns, errors), clock, letting)
        self._close_early(int(max([*new_rows.came_ns[-1:], *clock.clock_ns[-1:]], default=self._looked_ns)), letting)
        due = self._due.append(_DueRows.of(letting))
        pool, pool_numbers = concatenate_batches([held, new_rows]), np.concatenate([self._numbers, numbers])
        # Beside the pool there is room for what is emitted, but not for the rows that it was made of.
        del held, new_rows
        self._held = RowBatch.empty(pool.origins, pool.columns)
        emitted, self._due = due.split(self._batch_rows(pool, arrived))
        rows, kept = self._find_rows(emitted.number, pool, pool_numbers)
        self._held, self._numbers = pool if kept.all() else pool.take(kept), pool_numbers[kept]
        del pool
        self._spill()
        self.counts.released += rows.readings
        self.counts.late += int(emitted.late.sum())
        return EmittedRows(rows, np.where(emitted.late, rows.came_ns, emitted.closed_ns), emitted.late)

    def _repeats_of_held(self, held: RowBatch, new_rows: RowBatch) -> NDArray[np.bool_]:
        """Tell which new rows repeat the row before them of their station and instant, among those of open slices."""
        # What repeats a row whose slice closed is an amendment, whether or not that row was emitted yet.
        same = np.isin(hash_keys(held), np.unique(hash_keys(new_rows))) & ~np.isin(self._numbers, self._due.number)
        parts = [held.take(same), new_rows]
        if self._spilled is not None and len(self._spilled):
            parts.insert(0, self._spilled.find_same(new_rows, self._due.number))
        again = find_repeats(concatenate_batches(parts))
        # Held rows stay; only repeats in the new batch are dropped.
        return again[len(again) - len(new_rows) :]

    def _find_rows(
        self, number: NDArray[np.int64], pool: RowBatch, pool_numbers: NDArray[np.int64]
    ) -> tuple[RowBatch, NDArray[np.bool_]]:
        """Return rows by their numbers, in that order, from memory and from disk, and which of the pool stay."""
        order = np.argsort(number, kind="stable")
        ascending, kept = number[order], np.ones(len(pool), np.bool_)
        # Those on disk arrived before all in memory.
        on_disk = int(np.searchsorted(ascending, pool_numbers[0])) if len(pool) else len(number)
        at = np.searchsorted(pool_numbers, ascending[on_disk:])
        kept[at] = False
        if on_disk:
            if self._spilled is None:
                raise StateUnusable("rows that wait are on disk, and the stream was not told where")
            waited = self._spilled.take(ascending[:on_disk], pool, version=self.version)
            rows = concatenate_batches([*waited, pool.take(at)])
        else:
            rows = pool.take(at)
        # Rows that became due in one batch are in order already; a copy of them takes as much as they do.
        is_ordered = bool((number[1:] > number[:-1]).all())
        return rows if is_ordered else rows.take(np.argsort(order, kind="stable")), kept

    def _batch_rows(self, pool: RowBatch, arrived: int) -> int:
        """Return how many rows a batch may emit, at least one."""
        self._row_bytes = pool.nbytes / len(pool) if len(pool) else self._row_bytes
        allowed_bytes = EMITTED_BYTES if self.memory is None else min(EMITTED_BYTES, ROWS_SHARE * self.memory)
        # As many as it brought, which are in memory anyway: what waits must not grow for want of being emitted.
        return max(1, arrived, int(allowed_bytes / self._row_bytes))

    def _close_early(self, now_ns: int, letting: _Emitted) -> None:
        """Close the oldest slices if the join takes more than its share of the memory."""
        if self.memory is None:
            return
        known_bytes = self._due.nbytes + self._clocks.nbytes
        known_bytes += 0 if self._spilled is None else self._spilled.memory_bytes
        allowed = int(JOIN_SHARE * self.memory) - known_bytes
        if self._join.held_bytes <= allowed:
            return
        before = self.counts.slices
        # Somewhat more than is needed, so that not every batch closes a few.
        matches = self._join.close_oldest(max(0, 3 * allowed // 4))
        self._note(matches, np.empty(0, np.int64), now_ns, letting)
        self.counts.closed_early += self.counts.slices - before

    def _spill(self) -> None:
        """Write the oldest rows to disk if rows take more than their share of the memory."""
        if self._spilled is None:
            return
        allowed = math.inf if self.memory is None else ROWS_SHARE * self.memory
        count, size = len(self._held), self._held.nbytes
        if count > 1 and size > allowed:
            # In pieces that can be read again beside what is held; as much stays, so that not every batch writes.
            piece = max(1, int(count * (allowed / 2) / size))
            rest = count - piece
            for start in range(0, rest, piece):
                rows = np.arange(start, min(start + piece, rest))
                self._spilled.write(self._held.take(rows), self._numbers[rows], version=self.version)
            rows = np.arange(rest, count)
            self._held, self._numbers = self._held.take(rows), self._numbers[rows]
        self._spilled.sweep(self.version)

    def _push_by_ticks(self, new: "_NewRows", clock: ClockTicks, letting: _Emitted) -> None:
        start, places = 0, np.searchsorted(new.rows.seq, clock.seq)
        rows_ns, ticks_ns = self._times(new.rows, clock, places)
        columns = (places, clock.clock_ns, ticks_ns, clock.is_end)
        for stop, now_ns, tick_ns, is_end in zip(*(column.tolist() for column in columns), strict=True):
            latest = int(rows_ns[stop - 1]) if stop > start else self._looked_ns
            # Rows advance the join's clock too, so a tick within an eighth of a slice after a row is not needed.
            if not is_end and tick_ns < latest + self.slice_ns // 8:
                continue
            self._push(new, rows_ns, slice(start, stop), letting)
            start = stop
            if is_end:
                # The stream may continue after an end, with a new join.
                self._note(self._join.finish(), np.empty(0, np.int64), now_ns, letting)
                self._begin()
                self._join.widen(self._streams)
            else:
                self._looked_ns = tick_ns
                self._note(self._join.advance(tick_ns), np.empty(0, np.int64), now_ns, letting)
                if self._absent_ns != _NEVER_NS and tick_ns > self._absent_ns:
                    self._sleep_absent(now_ns, letting)
        self._push(new, rows_ns, slice(start, len(new.rows)), letting)

    def _times(
        self, rows: RowBatch, clock: ClockTicks, places: NDArray[np.intp]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return the elapsed time at each row, shape (m,), and at each tick, shape (ticks,) [ns]."""
        ticks = np.flatnonzero(~clock.is_end)
        came_ns = np.insert(rows.came_ns, places[ticks], clock.clock_ns[ticks])
        is_tick = np.insert(np.zeros(len(rows), np.bool_), places[ticks], np.ones(len(ticks), np.bool_))
        # A station silent for that long is idle, so a longer step makes no difference.
        elapsed_ns = self._elapsed.advance_to(came_ns, most_ns=round(self.idle_s * SECOND_NS) + self.slice_ns)
        ticks_ns = np.zeros(len(clock.seq), np.int64)
        ticks_ns[ticks] = elapsed_ns[is_tick]
        return elapsed_ns[~is_tick], ticks_ns

    def _push(self, new: "_NewRows", rows_ns: NDArray[np.int64], span: slice, letting: _Emitted) -> None:
        rows = new.rows
        if span.start < span.stop and self._absent_ns == _NEVER_NS:
            # How long stations that have sent nothing are waited for after the first row.
            first_s = min(self.idle_s, max(FIRST_S, self.slice_ns / SECOND_NS))
            self._absent_ns = int(rows_ns[span.start]) + round(first_s * SECOND_NS)
        late = span.start + int(np.searchsorted(rows_ns[span], self._absent_ns, side="right"))
        if late < span.stop and self._absent_ns < _EVER_NS:
            # Split at the instant, so that results do not depend on how arrivals are cut into batches.
            self._push(new, rows_ns, slice(span.start, late), letting)
            self._sleep_absent(int(rows.came_ns[late]), letting)
            span = slice(late, span.stop)
        more = new.last[span] - new.first[span]
        # A row of an uncertain clock is several tuples.
        tuples_upto = np.cumsum(1 + more)
        first = span.start
        while first < span.stop:
            pushed = tuples_upto[first - span.start - 1] if first > span.start else 0
            size = int(np.searchsorted(tuples_upto, pushed + PUSHED, side="right")) - (first - span.start)
            part = slice(first, first + max(1, size))
            first = part.stop
            stream, came_ns, elapsed_ns = rows.origin[part] % MOST_STREAMS, rows.came_ns[part], rows_ns[part]
            since, greatest = self._join.stalled_streams
            # Rows of a stalled clock bypass the join as amendments.
            aside = (since[stream] > STALLED) & (new.own[part] <= greatest[stream])
            if self.order == "time" and self.counts.slices:
                # A join that began after an end does not know which slices were closed before.
                aside |= new.own[part] <= self.counts.last_slice
            letting.append((new.number[part][aside], came_ns[aside], True))
            goes = ~aside
            self._looked_ns = int(elapsed_ns[-1])
            number, low, high = (column[part][goes] for column in (new.number, new.first, new.last))
            self._clocks.add(number, new.own[part][goes], high - low)
            # The payload is the row number, exact in float64 up to 2^53.
            tuples = stream[goes], low, number.astype(np.float64), elapsed_ns[goes]
            try:
                matches = self._join.push(*tuples, key_high=high if more.any() else None)
            except KeysDoNotGrow as stalled:
                matches = stalled.matches
            self._note(matches, np.repeat(came_ns[goes], 1 + high - low), int(came_ns[-1]), letting)

    def _sleep_absent(self, now_ns: int, letting: _Emitted) -> None:
        """Stop waiting for stations that have sent nothing yet."""
        self._absent_ns = _EVER_NS
        self._note(self._join.sleep_absent(), np.empty(0, np.int64), now_ns, letting)

    def _note(self, matches: Matches, came_ns: NDArray[np.int64], now_ns: int, letting: _Emitted) -> None:
        """Record a push's results; slices close at the arrival that closed them, else now."""
        before, self._pushed = self._pushed, self._pushed + len(came_ns)
        if len(matches):
            there = ~np.isnan(matches.payloads)
            at = matches.at - before
            closed_ns = came_ns[at] if len(came_ns) else np.full(len(matches), now_ns)
            number, key = matches.payloads[there].astype(np.int64), np.repeat(matches.key, there.sum(axis=1))
            own = self._clocks.select_own(number, key)
            letting.append((number[own], np.repeat(closed_ns, there.sum(axis=1))[own], False))
            self.counts.slices += len(np.unique(key[own]))
            self.counts.last_slice = max(self.counts.last_slice, int(key[own].max(initial=self.counts.last_slice)))
        if len(matches.late):
            number = matches.late.payload.astype(np.int64)
            number = number[self._clocks.select_own(number, matches.late.key)]
            letting.append((number, np.full(len(number), now_ns), True))

    def to_chunks(self) -> list[bytes]:
        """Serialise the state as chunks that belong behind each other; `from_bytes` restores it."""
        about: dict[str, Any] = {
            "slice_ns": self.slice_ns,
            "idle_s": self.idle_s,
            "order": self.order,
            "taken": self.version,
            "clock_ns": self._elapsed.clock_ns,
            "elapsed_ns": self._elapsed.elapsed_ns,
            "looked_ns": self._looked_ns,
            "absent_ns": self._absent_ns,
            "pushed": self._pushed,
            "counts": asdict(self.counts),
            "rejected": self.rejected,
            "tally": list(self.tally.items()),
            "sent": [[origin, list(entries)] for origin, entries in self._sent.by_origin.items()],
            "memory": self.memory,
            "row_bytes": self._row_bytes,
            "spilled": [] if self._spilled is None else self._spilled.to_json(),
            "clocks": [[number, *slices] for number, slices in self._clocks.by_number.items()],
        }
        sections = {
            "held": self._held.to_bytes(),
            "numbers": self._numbers.tobytes(),
            "join": self._join.snapshot(),
            "due_number": self._due.number.tobytes(),
            "due_closed_ns": self._due.closed_ns.tobytes(),
            "due_late": self._due.late.tobytes(),
            "gone": b"" if self._spilled is None else self._spilled.gone_bits(),
        }
        about["sections"] = {name: len(section) for name, section in sections.items()}
        text = json.dumps(about).encode()
        return seal_chunks(MAGIC, VERSION, [len(text).to_bytes(4, "little") + text, *sections.values()])

    @classmethod
    def from_bytes(cls, data: bytes, folder: Path | None = None) -> "Assembler":
        """Restore an assembler from `to_bytes`; `folder` has its rows that wait on disk.

        Raises
        ------
        StateUnusable
            The bytes are of another version, or damaged, or files of the folder are missing.
        """
        try:
            return cls._from_sections(*_read_sections(data), folder)
        except StateUnusable:
            raise
        except (InvalidQuery, pa.ArrowException, LookupError, ValueError, TypeError) as error:
            raise StateUnusable(f"the state of a stream cannot be used: {error}") from error

    @classmethod
    def _from_sections(
        cls, held: RowBatch, about: dict[str, Any], more: dict[str, bytes], folder: Path | None
    ) -> "Assembler":
        # Earlier releases knew one order, and no limit of memory.
        made = cls(
            about["slice_ns"] / SECOND_NS, about["idle_s"], order=about.get("order", "whole"),
            memory=about.get("memory"), folder=folder,
        )  # fmt: skip
        made._row_bytes = about.get("row_bytes", made._row_bytes)
        made._clocks.by_number |= {number: (key, rest) for number, key, rest in about.get("clocks", ())}
        if about.get("spilled"):
            if folder is None:
                raise StateUnusable("rows that wait are on disk, and the stream was not told where")
            made._spilled = SpilledRows.restore(folder, about["spilled"], more["gone"])
        if "due_number" in more:
            number, closed_ns = (np.frombuffer(more[f"due_{name}"], np.int64) for name in ("number", "closed_ns"))
            made._due = _DueRows(number, closed_ns, np.frombuffer(more["due_late"], np.bool_))
        made.version, made._looked_ns, made._pushed = about["taken"], about["looked_ns"], about["pushed"]
        # States of earlier releases start to wait for absent stations at their next row.
        made._absent_ns = about.get("absent_ns", _NEVER_NS)
        made._elapsed = _ElapsedClock(about["clock_ns"], about["elapsed_ns"])
        made.counts = Counts(**about["counts"])
        made.rejected, made.tally = about["rejected"], {first: counts for first, counts in about["tally"]}
        for origin, entries in about["sent"]:
            made._sent.by_origin[origin] = deque((tuple(entry) for entry in entries), maxlen=REMEMBERED)
        made._names = Dictionary(
            {origin: number for number, origin in enumerate(held.origins)},
            {column: number for number, column in enumerate(held.columns)},
        )
        made._held, made._numbers = held, np.frombuffer(more["numbers"], np.int64)
        made._join = WoJoin.resume(more["join"])
        return made


def _read_sections(data: bytes) -> tuple[RowBatch, dict[str, Any], dict[str, bytes]]:
    """Read the held rows, what describes the state, and further sections by name."""
    if data.startswith(_ARROW):
        return RowBatch.from_bytes(data)
    if sealed_version(data, MAGIC) == _EARLIER:
        return RowBatch.from_bytes(unseal(data, MAGIC, _EARLIER, label="a stream"))
    content = unseal(data, MAGIC, VERSION, label="a stream")
    start = 4 + int.from_bytes(content[:4], "little")
    about = json.loads(content[4:start])
    sections = {}
    for name, size in about["sections"].items():
        sections[name] = content[start : start + size]
        start += size
    return RowBatch.from_bytes(sections.pop("held"))[0], about, sections


Tally = dict[int, list[int]]
"""Rows, readings and rejects of each segment, by the number of its first record."""


@dataclass(frozen=True)
class MicroBatch:
    """Result of one batch of one group."""

    group: str
    rows: RowBatch
    """Emitted rows, in order of arrival."""
    after: int
    upto: int
    """The batch has the records with after < seq <= upto."""
    counts: Counts
    """Counts of all rows of the group so far."""
    rejects: tuple[tuple[int, Reject], ...]
    """Rows that could not be read, each with the number of its record."""
    rejected: int
    """Readings that all rows rejected so far would have been."""
    held_readings: int
    stations: tuple[Station, ...]
    variables: tuple[Variable, ...]
    finished: Tally
    """Counts of segments in the spool that ended before this batch."""
    first_held: int | None
    """First record with a held row; None if there is none."""
    join: JoinStatus | None
    """Status of the join; None if it was not determined."""


@dataclass(frozen=True)
class StreamBatch:
    """One batch of a stream."""

    stream: str
    """Id of the stream."""
    number: int
    groups: Sequence[MicroBatch]
    """What it brought about in each group of stations."""


def assemble_batch(assembler: Assembler, piece: DecodedPiece, segments: Sequence[int]) -> MicroBatch:
    """Process a batch of a group.

    Parameters
    ----------
    segments
        Numbers of the first records of the spool's segments, ascending.
    """
    _tally(assembler.tally, piece, segments)
    assembler.rejected += piece.rejected
    rows = assembler.process(piece.rows, piece.clock, piece.clock_errors).rows
    # Other segments are raw copies by now. A tally stays until its segment is one, because other groups may need it
    # longer.
    assembler.tally = {first: counts for first, counts in assembler.tally.items() if first in segments}
    done = segments[: max(0, bisect_right(segments, piece.after + 1) - 1)]
    finished = {first: list(assembler.tally[first]) for first in done if first in assembler.tally}
    return MicroBatch(
        piece.group,
        rows,
        piece.after,
        piece.upto,
        replace(assembler.counts),
        tuple(piece.rejects),
        assembler.rejected,
        assembler.held_readings,
        piece.stations,
        piece.variables,
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
