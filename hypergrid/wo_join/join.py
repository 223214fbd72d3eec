"""WO-Join: a join of many streams on equality of keys, whose memory is driven by the data (thesis, chapter 3)."""

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
from hypergrid.wo_join import kernel, state
from hypergrid.wo_join.batches import batch_of, echoed, nothing, ticks, whole_numbers
from hypergrid.wo_join.config import RARE, SLOT_BYTES, SPILLING, Description, Form, Known, Policy, Strategy
from hypergrid.wo_join.faults import BufferFull, KeysDoNotGrow, SpillFailed
from hypergrid.wo_join.hash_table import gather, number_rows
from hypergrid.wo_join.memory.cost import admit, buffer_bounds
from hypergrid.wo_join.results import LATE_ROWS, Matches, enlarged, joined_matches, matches_of, written
from hypergrid.wo_join.spilling.reorder_buffer import PIECE, Waiting, tell_join
from hypergrid.wo_join.state_layout import (
    ALLOWED,
    ASLEEP,
    CEILING,
    CLOCK,
    COUNT,
    DEADLINE,
    DONE,
    ENTRIES,
    ENTRIES_FULL,
    FIRST_KEY,
    GREATEST,
    HELD_ALL,
    IDLE,
    LAST,
    LATE_FULL,
    LATE_WRITTEN,
    LIMIT,
    NEEDED,
    OUTPUT_FULL,
    RANKS_FULL,
    RECORDS_SHORT,
    RETUNE,
    SLOTS_FULL,
    STILL,
    SWEPT_ALL,
    TAKEN,
    WRITTEN,
    Batch,
)
from hypergrid.wo_join.statistics import (
    STILL_TUPLES,
    Statistics,
    as_arrived,
    bounds_of,
    lags_of,
    statistics_of,
)
from hypergrid.wo_join.watermarks import doze, lowest

if TYPE_CHECKING:
    from hypergrid.wo_join.spilling.segments import Segments

RANKS = 4096
"""Sorted keys of each stream that there is room for at first, where lags are monitored."""


class WoJoin:
    """A symmetric join of n streams on one key, fed in order of arrival.

    Parameters
    ----------
    streams
        How many; a tuple names its stream from 0 on.
    policy
        When a tuple is dropped. "window": after a number of later tuples of its stream, or a time. "published": when
        its stream's buffer holds more than equation 3.8 asks for. "progress": when no other stream is believed to bring
        its key any more, as each has come beyond it by more than its disorder; keys must grow in the long run.
    form
        "inner": each combination of tuples with one key, once, as soon as its last member is there. "assembling": each
        key once no stream is believed to bring it any more, in order of keys, with what there is of it. Of a key that
        comes several times in a stream there are several rows, the r-th with the r-th tuple of each stream.
    in_order
        False: in the assembling form, a key also once all streams awake have brought it as often as they bring any.
    allowed_bytes
        Limit of what is held, as `statistics().held_bytes` counts it.
    strategy
        How to make do with less memory than the policy asks for (thesis 3.5): "msf" sorts each stream first, "dbf" lets
        tuples of leading streams wait on disk, "hybrid" does both. Then "published" too drops tuples by key.
    spill_folder
        Where a folder for what waits on disk is made, and removed at the end; None: among temporary files.
    known
        Parameters known beforehand; the others are monitored.
    window
        For policy "window": tuples of each stream, or a time.
    idle_s
        A stream that is silent for longer [s] is asleep: nobody waits for it until it comes again. None: never, so that
        a stream which brings nothing keeps all others held.
    jump
        Key units by which a key may lie beyond all others, or below those of its stream, before its clock is taken to
        have jumped; such tuples are told in `late`. None: judged by the keys so far (10,000 mean steps), once there
        were 64 steps.
    rare
        Under "progress": of this many tuples of a stream, one may come later than reckoned with.

    Raises
    ------
    InvalidQuery
        Arguments that do not go together.
    TooLarge
        The limit is below one tuple a stream, or below what known parameters ask for: both numbers.

    Notes
    -----
    All streams share one hash table, with an entry a key, so that one probe finds the partners in all streams; the
    stream whose absence prevented the entry's last result is asked first. Results do not depend on how arrivals are cut
    into pushes. What a wrong parameter loses from the results is told in `late`.

    Examples
    --------
    >>> join = WoJoin(streams=2)
    >>> matches = join.push(stream=[0, 0, 1], key=[7, 8, 7], payload=[0.5, 0.6, 20.0])
    >>> matches.rows.tolist(), matches.payloads.tolist()
    ([[0, 0]], [[0.5, 20.0]])
    """

    _waiting: Waiting | None

    def __init__(
        self,
        streams: int,
        *,
        policy: Policy = "progress",
        form: Form = "inner",
        allowed_bytes: int | None = None,
        strategy: Strategy | None = None,
        spill_folder: str | os.PathLike[str] | None = None,
        known: Known | None = None,
        window: int | datetime.timedelta | None = None,
        idle_s: float | None = None,
        jump: int | None = None,
        rare: int = RARE,
        in_order: bool = True,
    ) -> None:
        folder = None if spill_folder is None else os.fspath(spill_folder)
        given = (allowed_bytes, known, window, idle_s, jump, rare, strategy, folder, in_order)
        about = Description(streams, policy, form, *given)
        self._begin(about)
        self._admit()
        self._state = state.empty(
            streams,
            ranks=0 if self._sweeping else RANKS if policy == "published" else 0,
            scattered=not self._sweeping,
            timed=about.slot_bytes > SLOT_BYTES,
            jump=CEILING // 2 if strategy else jump or 0,
        )
        if strategy is None:
            about.tell(self._state.whole, self._state.seen.per)
        else:
            tell_join(about, self._state.whole, self._state.seen.per)
            self._waiting = Waiting(about, _segments(folder) if strategy in SPILLING else None)
        self._ticking: bool | None = None
        self._finished = False

    def _begin(self, about: Description) -> None:
        self._about = about
        self._known = about.known_arrays()
        self._sweeping = about.form == "assembling" or about.policy == "progress" or about.strategy is not None
        self._waiting = None
        self._results = 0

    def _admit(self) -> None:
        about, known = self._about, self._about.known or Known()
        if about.allowed_bytes is None:
            return
        who = f"a join of {about.streams} streams"
        admit(f"{who} with one tuple each", about.one_each_bytes, about.allowed_bytes)
        if about.sorting_bytes:
            admit(f"{who} that sorts {known.scrambling_factor} tuples first", self.least_bytes, about.allowed_bytes)
        if about.strategy is not None:
            return
        if about.policy == "published" and known.scrambling_factor is not None and known.lag is not None:
            rates = known.rate_hz or (1.0,) * about.streams
            bounds = buffer_bounds(known.scrambling_factor, rates, known.lag)
            # Under a limit a key need not have more than one tuple.
            admit(who, float(bounds.sum()) * about.slot_bytes + bounds.max() * about.entry_bytes, about.allowed_bytes)

    @property
    def streams(self) -> int:
        """How many streams there are."""
        return self._about.streams

    def push(
        self,
        stream: ArrayLike,
        key: ArrayLike,
        payload: ArrayLike,
        arrival: ArrayLike | None = None,
        *,
        key_high: ArrayLike | None = None,
    ) -> Matches:
        """Take tuples in order of arrival; return the results that they bring about.

        Parameters
        ----------
        stream
            Number of each tuple's stream, int32, shape (m,).
        key
            int64 from -2^61 to below 2^62 - 1, or instants (datetime64), which become ns; shape (m,).
        payload
            float64, shape (m,).
        arrival
            [ns], int64, shape (m,); an earlier one than before counts as the one before. None: one tick a tuple, which
            counts as a second.
        key_high
            For readings of uncertain key: the last key that each may have, shape (m,). The reading is then held under
            every key from `key` to it, and monitors and lines count it as `key`.

        Raises
        ------
        InvalidQuery
            Columns of different lengths or of no whole numbers, a stream or a key out of range; nothing was taken.
        KeysDoNotGrow
            A stream has brought 100,000 tuples without a greater key.
        BufferFull
            More than `allowed_bytes` would have to be held.
        SpillFailed
            What may not be held could not be written to disk.
        """
        if self._finished:
            message = "a join that was finished takes no more tuples; make a new one"
            raise InvalidQuery(message)
        batch = self._batch(stream, key, payload, arrival, key_high)
        if not len(batch.stream):
            return self._run(batch)
        whole, per = self._state.whole, self._state.seen.per
        if self._waiting is not None:
            self._waiting.begin(int(batch.arrival[0]))
        elif whole[DEADLINE] == CEILING and whole[IDLE] < CEILING:
            # Streams that have brought nothing yet are waited for from the first arrival on.
            per[:, LAST] = batch.arrival[0]
            whole[DEADLINE] = batch.arrival[0] + whole[IDLE]
        if not self._state.rows.any():
            whole[FIRST_KEY] = batch.key[0]
        numbered = batch._replace(row=number_rows(batch.stream, self._state.rows))
        whole_batch = (
            numbered if key_high is None else echoed(numbered, whole_numbers("key_high", key_high).astype(np.int64))
        )
        matches = self._run(whole_batch) if self._waiting is None else self._through(whole_batch)
        self._check_growth(matches)
        return matches

    def advance(self, clock_ns: int) -> Matches:
        """Let the clock go on without an arrival [ns]: streams may fall asleep, and slices close."""
        if self._waiting is not None:
            self._waiting.advance(clock_ns)
            return self._through(nothing())
        kernel.pass_time(self._state.seen, self._state.held, self._state.whole, clock_ns)
        return self._run(nothing())

    def sleep_absent(self) -> Matches:
        """Wait no longer for streams that have brought nothing yet; return what that lets go.

        One that brings something later wakes, as a stream does that `widen` made.

        Raises
        ------
        InvalidQuery
            The join has a strategy.
        """
        if self._waiting is not None:
            message = "a join with a strategy waits for all its streams; give idle_s instead"
            raise InvalidQuery(message)
        whole, per = self._state.whole, self._state.seen.per
        per[per[:, COUNT] == 0, ASLEEP] = 1
        doze(per, whole, whole[IDLE], whole[CLOCK])
        return self.advance(int(whole[CLOCK]))

    def finish(self) -> Matches:
        """Return the last results: in the assembling form, all slices still open. Nothing can be pushed after it."""
        if self._waiting is not None:
            matches, self._finished = self._through(nothing(), last=True), True
            if self._waiting.segments is not None:
                self._waiting.segments.close()
            return matches
        self._finished = True
        self._close(CEILING)
        return self._run(nothing())

    def _close(self, stop: int) -> None:
        """Close the slices below a key, in the assembling form."""
        if self._about.form == "assembling" and self._state.whole[SWEPT_ALL] < stop:
            held = self._state.held
            table = (held.buckets, held.keys, held.heads, held.links, held.pending)
            kernel.close(*table, self._state.whole, self._state.seen.per, stop)

    def widen(self, streams: int) -> None:
        """Let there be so many streams; nobody waits for a new one until it brings something."""
        if streams <= self.streams:
            return
        if self._about.known is not None or self._about.strategy is not None:
            message = "a join with known parameters or with a strategy keeps its streams; make one with more"
            raise InvalidQuery(message)
        self._about = dataclasses.replace(self._about, streams=streams)
        self._known = self._about.known_arrays()
        state.widen(self._state, streams)
        self._about.tell(self._state.whole, self._state.seen.per)

    def statistics(self) -> Statistics:
        """Return what is held, and what monitors say."""
        return statistics_of(self._state, self._known, self._about.allowed_bytes, self._waiting)

    def lags(self) -> NDArray[np.float64]:
        """Return the lag from each stream (row) to each other (column) [tuples], shape (n, n), 0 on the diagonal.

        Under policy "published" they are monitored at every arrival; else they are told by the greatest keys.
        """
        waiting = self._waiting
        return lags_of(self._state if waiting is None else as_arrived(self._state, waiting.monitors), self._known)

    def bounds(self, scrambling_factor: ArrayLike, rate_hz: ArrayLike) -> NDArray[np.float64]:
        """Return the tuples of each stream that equation 3.8 asks to hold by other parameters than the monitored ones.

        Parameters
        ----------
        scrambling_factor, rate_hz
            Of each stream [tuples], [Hz], shape (n,).
        """
        waiting = self._waiting
        here = self._state if waiting is None else as_arrived(self._state, waiting.monitors)
        return bounds_of(here, self._known, scrambling_factor, rate_hz)

    def allow(self, allowed_bytes: int) -> None:
        """Change the limit of what is held.

        Raises
        ------
        TooLarge
            It is below one tuple a stream.
        """
        before, self._about = self._about, dataclasses.replace(self._about, allowed_bytes=allowed_bytes)
        try:
            self._admit()
        except TooLarge:
            self._about = before
            raise
        if self._waiting is None:
            self._about.tell(self._state.whole, self._state.seen.per)
        else:
            self._waiting.allow(self._about)

    @property
    def least_bytes(self) -> int:
        """Bytes of one tuple of each stream and, with "msf", of the tuples that are known to be sorted at once."""
        return self._about.one_each_bytes + self._about.sorting_bytes

    @property
    def needed_bytes(self) -> float:
        """Bytes that equation 3.8 asks to hold, as `statistics()` tells them; the least before they are known.

        With a strategy, the least: it makes do with what there is.
        """
        asked = self.statistics().bound_bytes
        return max(asked, self.least_bytes) if asked < math.inf and self._about.strategy is None else self.least_bytes

    @property
    def held_bytes(self) -> int:
        """Bytes that are held, as `statistics()` tells them."""
        return self._held_bytes() + (0 if self._waiting is None else self._waiting.memory_bytes)

    @property
    def tuple_bytes(self) -> int:
        """Bytes of a tuple that is held with a key of its own."""
        return self._about.slot_bytes + self._about.entry_bytes

    @property
    def brought(self) -> NDArray[np.int64]:
        """How many tuples of each stream were taken: the rows of the next ones, shape (n,)."""
        return self._state.rows.copy()

    @property
    def stalled(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """How many tuples each stream has brought since its greatest key, and that key, shape (n,) each."""
        per = (self._state.seen if self._waiting is None else self._waiting.monitors.seen).per
        return per[:, STILL].copy(), per[:, GREATEST].copy()

    def least_rows(self) -> list[int | None]:
        """Return the least row of each stream that is held or waits, None where there is nothing of it."""
        held = self._state.held
        slots, owners = gather(held.heads, held.links, int(self._state.whole[HELD_ALL]))
        least = np.full(self.streams, CEILING)
        np.minimum.at(least, owners, held.rows[slots])
        for stream, queue in enumerate([] if self._waiting is None else self._waiting.queues):
            least[stream] = min([int(least[stream]), *(run.oldest for run in queue.runs)])
        return [None if row == CEILING else row for row in least.tolist()]

    def snapshot(self) -> bytes:
        """Return all that the join remembers; `resume` goes on from it, equal to the last bit.

        Segments on disk are named only; they stay there until the next snapshot or `finish`.
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
        if self._waiting is None:
            return state.to_bytes(self._state, description)
        description["segments"] = self._waiting.named()
        return state.to_bytes(self._state, description, self._waiting.columns())

    @classmethod
    def resume(cls, data: bytes) -> Self:
        """Return the join that `snapshot` kept.

        Raises
        ------
        InvalidQuery
            The bytes are no snapshot, were damaged, or were made by another version; or segments are gone.
        """
        header, body = state.header_of(data)
        description: dict[str, Any] = header["description"]  # type: ignore[assignment]
        about = dict(description["about"])
        if isinstance(about["window"], dict):
            about["window"] = datetime.timedelta(microseconds=about["window"]["ns"] / 1000)
        if about["known"] is not None:
            about["known"] = Known(**{name: state.tuples(value) for name, value in about["known"].items()})
        join = cls.__new__(cls)
        join._begin(Description(**about))
        join._ticking, join._finished = description["ticking"], description["finished"]
        columns = state.columns_of(header, body)
        join._state = state.from_columns(header, columns)
        if join._about.strategy is not None:
            named = description["segments"]
            segments = None if named is None else _segments(join._about.spill_folder)
            if segments is not None:
                segments.adopt(Path(named["folder"]), [run[0] for runs in named["runs"] for run in runs])
            join._waiting = Waiting(join._about, segments)
            join._waiting.restore(columns, named)
        return join

    def _batch(
        self,
        stream: ArrayLike,
        key: ArrayLike,
        payload: ArrayLike,
        arrival: ArrayLike | None,
        key_high: ArrayLike | None,
    ) -> Batch:
        """Return columns that the loop can take."""
        ticking = arrival is None
        if self._ticking is not None and ticking != self._ticking and np.size(stream):
            message = "a join needs arrivals with every push, or with none; got both"
            raise InvalidQuery(message)
        arrivals = ticks(int(self._state.rows.sum()), np.size(stream)) if arrival is None else arrival
        batch = batch_of(self.streams, stream, key, payload, arrivals, key_high)
        if len(batch.stream):
            self._ticking = ticking
        return batch

    def _run(self, batch: Batch) -> Matches:
        """Take a batch."""
        matches, code, start = self._loop(batch, 0)
        if code == LIMIT:
            taken = self._untake(batch, start)
            raise BufferFull(self._who, self._held_bytes(1), float(self._about.allowed_bytes or 0), matches, taken)
        return matches

    def _untake(self, batch: Batch, start: int) -> int:
        """Let the tuples of a batch from `start` on come again; return how many came before them."""
        rest = batch.stream[start:][batch.row[start:] >= 0]
        self._state.rows -= np.bincount(rest, minlength=self.streams)
        return int(np.count_nonzero(batch.row[:start] >= 0))

    @property
    def _who(self) -> str:
        return f"a join of {self.streams} streams"

    def _held_bytes(self, more: int = 0) -> int:
        """Return the bytes of what is held, and of some tuples more with keys of their own."""
        held, entries = self._state.whole[[HELD_ALL, ENTRIES]].tolist()
        return int((held + more) * self._about.slot_bytes + (entries + more) * self._about.entry_bytes)

    def _loop(self, batch: Batch, start: int) -> tuple[Matches, int, int]:
        """Run the loop over a batch, with more room each time that it asks for it; return how far it came, and why."""
        here = self._state
        out = written(max(1024, self._results + self._results // 4), self.streams)
        here.whole[WRITTEN] = here.whole[LATE_WRITTEN] = 0
        while True:
            code, start = kernel.run(here.seen, here.held, self._known, here.whole, here.steps, batch, out, start)
            if code in (DONE, LIMIT):
                break
            if code == OUTPUT_FULL:
                out = enlarged(out, 2 * len(out.key) + int(here.whole[NEEDED]), len(out.late))
            elif code == LATE_FULL:
                out = enlarged(out, len(out.key), 2 * len(out.late) + LATE_ROWS)
            else:
                self._grow(code)
        self._results = int(here.whole[WRITTEN])
        return matches_of(out, self._results, int(here.whole[LATE_WRITTEN])), code, start

    def _through(self, batch: Batch, *, last: bool = False) -> Matches:
        """Take a batch by way of what waits, in pieces."""
        found: list[Matches] = []
        for first in range(0, max(1, len(batch.stream)), PIECE):
            piece = batch.part(slice(first, first + PIECE))
            try:
                lacking = self._piece(piece, found, last=last)
            except OSError as error:
                raise SpillFailed(
                    self._who, error, joined_matches(found), self._untake(batch, first + PIECE)
                ) from error
            if lacking:
                taken = self._untake(batch, first + PIECE)
                raise BufferFull(
                    self._who, lacking, float(self._about.allowed_bytes or 0), joined_matches(found), taken
                )
        return joined_matches(found)

    def _piece(self, piece: Batch, found: list[Matches], *, last: bool) -> int:
        """Take a piece of a batch, add to what was found; return the bytes that are needed where these are too many."""
        waiting = self._waiting
        assert waiting is not None
        with contextlib.closing(waiting.take(piece, last=last)) as released:
            for part, at in released:
                self._let_sleep()
                lacking = self._feed(part, at, found)
                if lacking:
                    return lacking
                if last:
                    self._close(waiting.lowest)
                    self._now(found)
        found.append(waiting.quarantined())
        self._let_sleep()
        if last:
            self._close(CEILING)
        else:
            clock = int(waiting.monitors.whole[CLOCK])
            kernel.pass_time(self._state.seen, self._state.held, self._state.whole, clock)
        self._now(found)
        return 0 if waiting.settle(self._held_bytes()) else self._held_bytes() + waiting.memory_bytes

    def _feed(self, part: Batch, at: "np.ndarray[tuple[int], np.dtype[np.int64]]", found: list[Matches]) -> int:
        """Join what was let go by the arrivals `at`; return the bytes needed where they are too many."""
        waiting = self._waiting
        assert waiting is not None
        start, before = 0, int(self._state.whole[TAKEN])
        waiting.tell_disorder(self._state.seen.per)
        while True:
            self._state.whole[ALLOWED] = waiting.room
            matches, code, start = self._loop(part, start)
            found.append(dataclasses.replace(matches, at=at[matches.at - before]))
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

    def _now(self, found: list[Matches]) -> None:
        """Take the slices that were closed, as results of the last arrival."""
        assert self._waiting is not None
        matches, _, _ = self._loop(nothing(), 0)
        last = np.full(len(matches), self._waiting.monitors.whole[TAKEN] - 1)
        found.append(dataclasses.replace(matches, at=last))

    def _let_sleep(self) -> None:
        """Wait no more for streams that are asleep once nothing of theirs waits."""
        assert self._waiting is not None
        gone = self._waiting.gone
        if len(gone):
            self._state.seen.per[gone, ASLEEP] = 1
            lowest(self._state.seen.per, self._state.whole)

    def _grow(self, code: int) -> None:
        here = self._state
        if code == SLOTS_FULL:
            state.grow_slots(here, 2 * len(here.held.rows))
        elif code == ENTRIES_FULL:
            state.grow_entries(here, 2 * len(here.held.keys))
        elif code == RECORDS_SHORT:
            state.grow_records(here, 2 * here.seen.records.shape[1])
        elif code == RANKS_FULL:
            state.grow_ranks(here, 2 * here.seen.ranks.shape[1])
        elif code == RETUNE:
            state.retune(here)

    def _check_growth(self, matches: Matches) -> None:
        if self._about.policy == "window" and self._about.form == "inner":
            return
        seen = self._state.seen if self._waiting is None else self._waiting.monitors.seen
        still = np.flatnonzero(seen.per[:, STILL] > STILL_TUPLES)
        if len(still):
            message = (
                f"a join by policy {self._about.policy!r} needs keys that grow in the long run; stream {still[0]} has "
                f"brought {STILL_TUPLES:,} tuples without a greater key, so that no bound of its memory exists: join "
                "on a key that grows with time, leave the stream out, or use policy 'window'"
            )
            raise KeysDoNotGrow(message, matches)


def _segments(folder: str | None) -> "Segments":
    # Only who writes to disk waits for pyarrow.
    from hypergrid.wo_join.spilling.segments import Segments  # noqa: PLC0415

    return Segments(folder)
