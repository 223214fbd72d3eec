"""WO-Join: an equi-join of many streams whose memory is driven by the data (thesis, chapter 3)."""

import contextlib
import dataclasses
import datetime
import math
import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hypergrid.core.errors import InvalidQuery, TooLarge
from hypergrid.core.moved_modules import FormerNames
from hypergrid.wo_join import kernel, state
from hypergrid.wo_join.batches import echo_keys, make_batch, make_empty_batch, make_ticks, parse_integers
from hypergrid.wo_join.config import RARE, SLOT_BYTES, SPILLING, Form, JoinConfig, KnownParameters, Policy, Strategy
from hypergrid.wo_join.hash_table import gather_slots, number_rows
from hypergrid.wo_join.memory import admit, buffer_bounds
from hypergrid.wo_join.results import (
    LATE_ROWS,
    BufferFull,
    KeysDoNotGrow,
    Matches,
    SpillFailed,
    enlarge_output,
    join_matches,
    make_output,
    matches_of,
)
from hypergrid.wo_join.spilling.reorder_buffer import PIECE, ReorderBuffer, write_join_settings
from hypergrid.wo_join.state_layout import (
    ALLOWED,
    ASLEEP,
    CEILING,
    CLOCK,
    COUNT,
    DONE,
    ENTRIES,
    ENTRIES_FULL,
    FIRST_KEY,
    GREATEST,
    HELD_ALL,
    LATE_FULL,
    LATE_WRITTEN,
    LIMIT,
    NEEDED,
    OUTPUT_FULL,
    OWNER,
    RANKS_FULL,
    RECORDS_SHORT,
    RETUNE,
    SLOTS_FULL,
    STILL,
    SWEPT_ALL,
    TAKEN,
    WRITTEN,
    Batch,
    JoinState,
)
from hypergrid.wo_join.statistics import (
    STILL_TUPLES,
    JoinStatistics,
    add_arrivals,
    find_bounds,
    find_lags,
    make_statistics,
)
from hypergrid.wo_join.watermarks import find_lowest_lines, mark_idle

if TYPE_CHECKING:
    from hypergrid.wo_join.spilling.segments import Segments

RANKS = 4096
"""Initial capacity of the sorted keys of each stream, if lags are monitored."""


class WoJoin(FormerNames):
    """A symmetric join of n streams on one key, fed in order of arrival.

    Parameters
    ----------
    streams
        Number of streams; tuples name their stream from 0 on.
    policy
        When a tuple is dropped. "window": after a number of later tuples of its stream, or a time. "published": when
        its stream's buffer holds more than equation 3.8 asks for. "progress": when no other stream is expected to bring
        its key any more, because each has passed it by more than its disorder; keys must grow in the long run.
    form
        "inner": emits each combination of tuples with one key once, as soon as its last member arrives. "assembling":
        emits each key once no stream is expected to bring it any more, in order of keys, with whatever arrived. If a
        stream repeats a key, the slice has several rows, the r-th with the r-th tuple of each stream.
    in_order
        False: in the assembling form, a key is also emitted as soon as every awake stream has reached its
        multiplicity.
    allowed_bytes
        Memory limit of held tuples, as counted by `statistics().held_bytes`.
    strategy
        How to use less memory than the policy asks for (thesis 3.5): "msf" sorts each stream first, "dbf" spills
        tuples of leading streams to disk, "hybrid" does both. "published" then also drops tuples by key.
    spill_folder
        Parent of the spill folder, which is removed at the end; None: the system's folder for temporary files.
    known
        Parameters known beforehand; all others are monitored.
    window
        For policy "window": a number of tuples of each stream, or a time.
    idle_s
        Silence [s] after which a stream is asleep: the join stops waiting for it until it brings a tuple. None: never,
        so a stream that brings nothing keeps the tuples of all others held.
    jump
        Key units by which a key may lie beyond all others, or below those of its stream, before its clock is taken to
        have jumped; such tuples are quarantined in `late`. None: judged by the keys so far (10,000 mean steps), after
        64 steps.
    rare
        Under "progress": one in this many tuples of a stream may arrive later than expected.

    Raises
    ------
    InvalidQuery
        Incompatible arguments.
    TooLarge
        The limit is below one tuple per stream, or below what known parameters ask for; both numbers are given.

    Notes
    -----
    All streams share one hash table with one entry per key, so a single probe finds the partners in all streams. The
    stream whose absence last prevented a result of the entry is probed first. Results do not depend on how arrivals are
    split into pushes. Tuples that may have missed results because of a wrong parameter are in `late`.

    Examples
    --------
    >>> join = WoJoin(streams=2)
    >>> matches = join.push(stream=[0, 0, 1], key=[7, 8, 7], payload=[0.5, 0.6, 20.0])
    >>> matches.rows.tolist(), matches.payloads.tolist()
    ([[0, 0]], [[0.5, 20.0]])
    """

    former_names = {
        "brought": "tuple_counts",
        "least_bytes": "min_bytes",
        "least_rows": "list_min_rows",
        "stalled": "stalled_streams",
    }

    _reorder_buffer: ReorderBuffer | None

    def __init__(
        self,
        streams: int,
        *,
        policy: Policy = "progress",
        form: Form = "inner",
        allowed_bytes: int | None = None,
        strategy: Strategy | None = None,
        spill_folder: str | os.PathLike[str] | None = None,
        known: KnownParameters | None = None,
        window: int | datetime.timedelta | None = None,
        idle_s: float | None = None,
        jump: int | None = None,
        rare: int = RARE,
        in_order: bool = True,
    ) -> None:
        folder = None if spill_folder is None else os.fspath(spill_folder)
        given = (allowed_bytes, known, window, idle_s, jump, rare, strategy, folder, in_order)
        about = JoinConfig(streams, policy, form, *given)
        self._set_up(about)
        self._admit()
        self._state = state.make_state(
            streams,
            ranks=0 if self._sweeping else RANKS if policy == "published" else 0,
            scattered=not self._sweeping,
            timed=about.slot_bytes > SLOT_BYTES,
            # With a strategy the reorder buffer judges clock jumps.
            jump=CEILING // 2 if strategy else jump or 0,
        )
        if strategy is None:
            about.write_settings(self._state.join_state, self._state.monitors.per)
        else:
            write_join_settings(about, self._state.join_state, self._state.monitors.per)
            self._reorder_buffer = ReorderBuffer(about, _open_segments(folder) if strategy in SPILLING else None)
        self._ticking: bool | None = None
        self._finished = False

    def _set_up(self, about: JoinConfig) -> None:
        self._about = about
        self._known = about.known_arrays()
        self._sweeping = about.form == "assembling" or about.policy == "progress" or about.strategy is not None
        self._reorder_buffer = None
        self._results = 0

    def _admit(self) -> None:
        about, known = self._about, self._about.known or KnownParameters()
        if about.allowed_bytes is None:
            return
        label = f"a join of {about.streams} streams"
        admit(f"{label} with one tuple each", about.one_each_bytes, about.allowed_bytes)
        if about.sorting_bytes:
            admit(f"{label} that sorts {known.scrambling_factor} tuples first", self.min_bytes, about.allowed_bytes)
        by_bounds = about.strategy is None and about.policy == "published"
        if by_bounds and known.scrambling_factor is not None and known.lag is not None:
            rates = known.rate_hz or (1.0,) * about.streams
            bounds = buffer_bounds(known.scrambling_factor, rates, known.lag)
            # Under a limit, several tuples of one key are not guaranteed room.
            admit(label, float(bounds.sum()) * about.slot_bytes + bounds.max() * about.entry_bytes, about.allowed_bytes)

    @property
    def _arrival_state(self) -> JoinState:
        """State whose monitors observe the arrivals: that of the reorder buffer, if there is one."""
        return self._state if self._reorder_buffer is None else self._reorder_buffer.arrival_state

    @property
    def streams(self) -> int:
        return self._about.streams

    @property
    def in_order(self) -> bool:
        """Whether keys are emitted in their order, in the assembling form."""
        return self._about.in_order

    def push(
        self,
        stream: ArrayLike,
        key: ArrayLike,
        payload: ArrayLike,
        arrival: ArrayLike | None = None,
        *,
        key_high: ArrayLike | None = None,
    ) -> Matches:
        """Push tuples in order of arrival; return the results that they complete.

        Parameters
        ----------
        stream
            Number of each tuple's stream, int32, shape (m,).
        key
            int64 from -2^61 to below 2^62 - 1, or instants (datetime64), which become ns; shape (m,).
        payload
            float64, shape (m,).
        arrival
            [ns], int64, shape (m,); one earlier than its predecessor counts as equal to it. None: one tick per tuple,
            which counts as a second.
        key_high
            For readings of uncertain key: the last key that each may have, shape (m,). The reading is held under every
            key from `key` to it; monitors and watermarks count it at `key`.

        Raises
        ------
        InvalidQuery
            Columns of different lengths or not of whole numbers, a stream or a key out of range; nothing was taken.
        KeysDoNotGrow
            A stream has brought 100,000 tuples without a greater key.
        BufferFull
            More than `allowed_bytes` would have to be held.
        SpillFailed
            Tuples over the limit could not be written to disk.
        """
        if self._finished:
            raise InvalidQuery("a join that was finished takes no more tuples; make a new one")
        batch = self._make_batch(stream, key, payload, arrival, key_high)
        if not len(batch.stream):
            return self._run(batch)
        state.start_idle_clock(self._arrival_state, batch)
        if not self._state.rows.any():
            self._state.join_state[FIRST_KEY] = batch.key[0]
        numbered = batch._replace(row=number_rows(batch.stream, self._state.rows))
        whole_batch = (
            numbered if key_high is None else echo_keys(numbered, parse_integers("key_high", key_high).astype(np.int64))
        )
        waiting = self._reorder_buffer
        matches = self._run(whole_batch) if waiting is None else self._push_pieces(waiting, whole_batch)
        self._check_growth(matches)
        return matches

    def advance(self, clock_ns: int) -> Matches:
        """Advance the clock [ns] without an arrival: streams may go idle, and slices close."""
        if self._reorder_buffer is not None:
            self._reorder_buffer.advance(clock_ns)
            return self._push_pieces(self._reorder_buffer, make_empty_batch())
        kernel.pass_time(self._state, clock_ns)
        return self._run(make_empty_batch())

    def sleep_absent(self) -> Matches:
        """Put all streams to sleep that have brought nothing yet; return the slices that this closes.

        They wake with their first tuple, like streams that `widen` added.

        Raises
        ------
        InvalidQuery
            The join has a strategy.
        """
        if self._reorder_buffer is not None:
            raise InvalidQuery("a join with a strategy waits for all its streams; give idle_s instead")
        stream_state = self._state.monitors.per
        stream_state[stream_state[:, COUNT] == 0, ASLEEP] = 1
        mark_idle(self._state)
        return self.advance(int(self._state.join_state[CLOCK]))

    def close_oldest(self, max_bytes: int) -> Matches:
        """Close the oldest slices until held tuples and keys take at most `max_bytes`; return them.

        What comes later of them is late.

        Raises
        ------
        InvalidQuery
            The join has another form than "assembling", or a strategy.
        """
        if self._about.form != "assembling" or self._reorder_buffer is not None:
            raise InvalidQuery('slices are closed early in a join of form "assembling" without a strategy only')
        held, join_state = self._state.held, self._state.join_state
        excess = self._held_bytes() - max_bytes
        if excess > 0:
            slots, _ = gather_slots(held.heads, held.links, int(join_state[HELD_ALL]))
            keys, counts = np.unique(held.keys[held.links[slots, OWNER]], return_counts=True)
            freed = np.cumsum(counts * self._about.slot_bytes + self._about.entry_bytes)
            last = min(int(np.searchsorted(freed, excess)), len(keys) - 1)
            if last >= 0:
                self._close(int(keys[last]) + 1)
        return self._run(make_empty_batch())

    def finish(self) -> Matches:
        """Return the last results: in the assembling form, all open slices. Afterwards nothing can be pushed."""
        if self._reorder_buffer is not None:
            matches = self._push_pieces(self._reorder_buffer, make_empty_batch(), last=True)
            self._finished = True
            if self._reorder_buffer.segments is not None:
                self._reorder_buffer.segments.close()
            return matches
        self._finished = True
        self._close(CEILING)
        return self._run(make_empty_batch())

    def _close(self, stop: int) -> None:
        """Close the slices below a key, in the assembling form."""
        if self._about.form == "assembling" and self._state.join_state[SWEPT_ALL] < stop:
            kernel.close(self._state, stop)

    def widen(self, streams: int) -> None:
        """Add streams up to a total of `streams`, asleep until their first tuple."""
        if streams <= self.streams:
            return
        if self._about.known is not None or self._about.strategy is not None:
            raise InvalidQuery("a join with known parameters or with a strategy keeps its streams; make one with more")
        self._about = dataclasses.replace(self._about, streams=streams)
        self._known = self._about.known_arrays()
        self._state = state.widen(self._state, streams)
        self._about.write_settings(self._state.join_state, self._state.monitors.per)

    def statistics(self) -> JoinStatistics:
        return make_statistics(self._state, self._known, self._about.allowed_bytes, self._reorder_buffer)

    def lags(self) -> NDArray[np.float64]:
        """Return the lag [tuples] from each stream (row) to each other (column), shape (n, n).

        The diagonal is 0. Lags are monitored at every arrival under policy "published"; otherwise they are estimated
        from the greatest keys.
        """
        return find_lags(add_arrivals(self._state, self._reorder_buffer), self._known)

    def bounds(self, scrambling_factor: ArrayLike, rate_hz: ArrayLike) -> NDArray[np.float64]:
        """Return the tuples of each stream that equation 3.8 holds for given instead of monitored parameters.

        Parameters
        ----------
        scrambling_factor, rate_hz
            Of each stream [tuples], [Hz], shape (n,).
        """
        return find_bounds(add_arrivals(self._state, self._reorder_buffer), self._known, scrambling_factor, rate_hz)

    def allow(self, allowed_bytes: int) -> None:
        """Change the memory limit.

        Raises
        ------
        TooLarge
            It is below one tuple per stream.
        """
        before, self._about = self._about, dataclasses.replace(self._about, allowed_bytes=allowed_bytes)
        try:
            self._admit()
        except TooLarge:
            self._about = before
            raise
        if self._reorder_buffer is None:
            self._about.write_settings(self._state.join_state, self._state.monitors.per)
        else:
            self._reorder_buffer.allow(self._about)

    @property
    def min_bytes(self) -> int:
        """Bytes of one tuple per stream and, with "msf", of the known sort buffers."""
        return self._about.one_each_bytes + self._about.sorting_bytes

    @property
    def needed_bytes(self) -> float:
        """Bytes that equation 3.8 holds, as in `statistics()`; the minimum while they are unknown.

        With a strategy it is always the minimum, as the join spills to disk or sorts within it.
        """
        asked = self.statistics().bound_bytes
        return max(asked, self.min_bytes) if asked < math.inf and self._about.strategy is None else self.min_bytes

    @property
    def held_bytes(self) -> int:
        """Bytes held, as in `statistics()`."""
        return self._held_bytes() + (0 if self._reorder_buffer is None else self._reorder_buffer.memory_bytes)

    @property
    def tuple_bytes(self) -> int:
        """Bytes of a held tuple that has a key of its own."""
        return self._about.slot_bytes + self._about.entry_bytes

    @property
    def tuple_counts(self) -> NDArray[np.int64]:
        """Number of tuples taken per stream, which is its next row number, shape (n,)."""
        return self._state.rows.copy()

    @property
    def stalled_streams(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Number of tuples since each stream's greatest key, and that key, shape (n,) each."""
        stream_state = self._arrival_state.monitors.per
        return stream_state[:, STILL].copy(), stream_state[:, GREATEST].copy()

    def list_min_rows(self) -> list[int | None]:
        """Return the least row of each stream that is held or waits, else None."""
        held = self._state.held
        slots, owners = gather_slots(held.heads, held.links, int(self._state.join_state[HELD_ALL]))
        min_rows = np.full(self.streams, CEILING)
        np.minimum.at(min_rows, owners, held.rows[slots])
        for stream, queue in enumerate([] if self._reorder_buffer is None else self._reorder_buffer.queues):
            min_rows[stream] = min([int(min_rows[stream]), *(run.oldest for run in queue.runs)])
        return [None if row == CEILING else row for row in min_rows.tolist()]

    def snapshot(self) -> bytes:
        """Serialise the join; `resume` continues from the bytes with bit-identical results.

        Segments on disk are referenced, not copied; they stay there until the next snapshot or `finish`.
        """
        about = dataclasses.asdict(self._about)
        if isinstance(self._about.window, datetime.timedelta):
            about["window"] = {"ns": self._about.window_number}
        description = {
            "about": about,
            "timed": self._about.slot_bytes > SLOT_BYTES,
            "ticking": self._ticking,
            "finished": self._finished,
        }
        if self._reorder_buffer is None:
            return state.to_bytes(self._state, description)
        description["segments"] = self._reorder_buffer.name_segments()
        return state.to_bytes(self._state, description, self._reorder_buffer.columns())

    @classmethod
    def resume(cls, data: bytes) -> Self:
        """Restore a join from a `snapshot`.

        Raises
        ------
        InvalidQuery
            The bytes are not a snapshot, were damaged, or were made by another version; or segments are missing.
        """
        header, packed = state.header_of(data)
        description: dict[str, Any] = header["description"]  # type: ignore[assignment]
        about = dict(description["about"])
        if isinstance(about["window"], dict):
            about["window"] = datetime.timedelta(microseconds=about["window"]["ns"] / 1000)
        if about["known"] is not None:
            about["known"] = KnownParameters(**{name: state.to_tuples(value) for name, value in about["known"].items()})
        join = cls.__new__(cls)
        join._set_up(JoinConfig(**about))
        join._ticking, join._finished = description["ticking"], description["finished"]
        columns = state.columns_of(header, packed)
        join._state = state.from_columns(header, columns)
        if join._about.strategy is not None:
            named = description["segments"]
            segments = None if named is None else _open_segments(join._about.spill_folder)
            if segments is not None:
                segments.adopt(Path(named["folder"]), [run[0] for runs in named["runs"] for run in runs])
            join._reorder_buffer = ReorderBuffer(join._about, segments)
            join._reorder_buffer.restore(columns, named)
        return join

    def _make_batch(
        self,
        stream: ArrayLike,
        key: ArrayLike,
        payload: ArrayLike,
        arrival: ArrayLike | None,
        key_high: ArrayLike | None,
    ) -> Batch:
        ticking = arrival is None
        if self._ticking is not None and ticking != self._ticking and np.size(stream):
            raise InvalidQuery("a join needs arrivals with every push, or with none; got both")
        arrivals = make_ticks(int(self._state.rows.sum()), np.size(stream)) if arrival is None else arrival
        batch = make_batch(self.streams, stream, key, payload, arrivals, key_high)
        if len(batch.stream):
            self._ticking = ticking
        return batch

    def _run(self, batch: Batch) -> Matches:
        matches, code, start = self._loop(batch, 0)
        if code == LIMIT:
            taken = self._return_tuples(batch, start)
            raise BufferFull(self._label, self._held_bytes(1), float(self._about.allowed_bytes or 0), matches, taken)
        return matches

    def _return_tuples(self, batch: Batch, start: int) -> int:
        """Reset row numbers from `start` on, so that tuples can be pushed again.

        Returns the number of tuples before it.
        """
        rest = batch.stream[start:][batch.row[start:] >= 0]
        rows = self._state.rows
        rows -= np.bincount(rest, minlength=self.streams)
        return int(np.count_nonzero(batch.row[:start] >= 0))

    @property
    def _label(self) -> str:
        return f"a join of {self.streams} streams"

    def _held_bytes(self, more: int = 0) -> int:
        """Return the bytes of held tuples, plus `more` tuples with keys of their own."""
        held, entries = self._state.join_state[[HELD_ALL, ENTRIES]].tolist()
        return int((held + more) * self._about.slot_bytes + (entries + more) * self._about.entry_bytes)

    def _loop(self, batch: Batch, start: int) -> tuple[Matches, int, int]:
        """Run the kernel over a batch, growing arrays on request.

        Returns the results, the final code and the next tuple.
        """
        join_state = self._state.join_state
        # Sized by the previous push.
        out = make_output(max(1024, self._results + self._results // 4), self.streams)
        join_state[WRITTEN] = join_state[LATE_WRITTEN] = 0
        while True:
            code, start = kernel.run(self._state, self._known, batch, out, start)
            if code in (DONE, LIMIT):
                break
            if code == OUTPUT_FULL:
                out = enlarge_output(out, 2 * len(out.key) + int(join_state[NEEDED]), len(out.late))
            elif code == LATE_FULL:
                out = enlarge_output(out, len(out.key), 2 * len(out.late) + LATE_ROWS)
            else:
                self._grow(code)
        self._results = int(join_state[WRITTEN])
        return matches_of(out, self._results, int(join_state[LATE_WRITTEN])), code, start

    def _push_pieces(self, waiting: ReorderBuffer, batch: Batch, *, last: bool = False) -> Matches:
        results: list[Matches] = []
        for first in range(0, max(1, len(batch.stream)), PIECE):
            piece = batch.part(slice(first, first + PIECE))
            try:
                lacking = self._push_piece(waiting, piece, results, last=last)
            except OSError as error:
                raise SpillFailed(
                    self._label, error, join_matches(results), self._return_tuples(batch, first + PIECE)
                ) from error
            if lacking:
                taken = self._return_tuples(batch, first + PIECE)
                raise BufferFull(
                    self._label, lacking, float(self._about.allowed_bytes or 0), join_matches(results), taken
                )
        return join_matches(results)

    def _push_piece(self, waiting: ReorderBuffer, piece: Batch, results: list[Matches], *, last: bool) -> int:
        """Push one piece and append its results.

        Returns the bytes needed if the limit is exceeded, else 0.
        """
        with contextlib.closing(waiting.release_tuples(piece, last=last)) as released:
            for part, at in released:
                self._let_sleep(waiting)
                lacking = self._feed(waiting, part, at, results)
                if lacking:
                    return lacking
                if last:
                    self._close(waiting.min_key)
                    self._add_closed(waiting, results)
        results.append(waiting.make_quarantined())
        self._let_sleep(waiting)
        if last:
            self._close(CEILING)
        else:
            kernel.pass_time(self._state, int(waiting.arrival_state.join_state[CLOCK]))
        self._add_closed(waiting, results)
        return 0 if waiting.settle(self._held_bytes()) else self._held_bytes() + waiting.memory_bytes

    def _feed(
        self,
        waiting: ReorderBuffer,
        part: Batch,
        at: "np.ndarray[tuple[int], np.dtype[np.int64]]",
        results: list[Matches],
    ) -> int:
        """Join the tuples released by the arrivals `at`.

        Returns the bytes needed if the limit is exceeded, else 0.
        """
        start, before = 0, int(self._state.join_state[TAKEN])
        waiting.write_disorder(self._state.monitors.per)
        while True:
            self._state.join_state[ALLOWED] = waiting.room_bytes
            matches, code, start = self._loop(part, start)
            results.append(dataclasses.replace(matches, at=at[matches.at - before]))
            if code == DONE:
                return 0
            rest = part.part(slice(start, None))
            try:
                relieved = waiting.relieve(self._held_bytes(1))
            except OSError:
                waiting.put_back(rest)
                raise
            if not relieved:
                waiting.put_back(rest)
                return self._held_bytes(1) + waiting.memory_bytes

    def _add_closed(self, waiting: ReorderBuffer, results: list[Matches]) -> None:
        """Append the slices that were closed, as results of the last arrival."""
        matches, _, _ = self._loop(make_empty_batch(), 0)
        last = np.full(len(matches), waiting.arrival_state.join_state[TAKEN] - 1)
        results.append(dataclasses.replace(matches, at=last))

    def _let_sleep(self, waiting: ReorderBuffer) -> None:
        """Put idle streams to sleep in the join once none of their tuples wait."""
        gone = waiting.gone_streams
        if len(gone):
            self._state.monitors.per[gone, ASLEEP] = 1
            find_lowest_lines(self._state)

    def _grow(self, code: int) -> None:
        own_state = self._state
        if code == SLOTS_FULL:
            self._state = state.grow_slots(own_state, 2 * len(own_state.held.rows))
        elif code == ENTRIES_FULL:
            self._state = state.grow_entries(own_state, 2 * len(own_state.held.keys))
        elif code == RECORDS_SHORT:
            self._state = own_state._replace(monitors=state.grow_records(own_state.monitors))
        elif code == RANKS_FULL:
            self._state = own_state._replace(monitors=state.grow_ranks(own_state.monitors))
        elif code == RETUNE:
            state.retune(own_state)

    def _check_growth(self, matches: Matches) -> None:
        # A window bounds the memory of an inner join, whatever the keys do.
        if self._about.policy == "window" and self._about.form == "inner":
            return
        still = np.flatnonzero(self._arrival_state.monitors.per[:, STILL] > STILL_TUPLES)
        if len(still):
            raise KeysDoNotGrow(
                f"a join by policy {self._about.policy!r} needs keys that grow in the long run; stream {still[0]} has "
                f"brought {STILL_TUPLES:,} tuples without a greater key, so that no bound of its memory exists: join "
                "on a key that grows with time, leave the stream out, or use policy 'window'",
                matches,
            )


def _open_segments(folder: str | None) -> "Segments":
    # Imported here so that only joins that spill to disk load pyarrow.
    from hypergrid.wo_join.spilling.segments import Segments  # noqa: PLC0415

    return Segments(folder)
