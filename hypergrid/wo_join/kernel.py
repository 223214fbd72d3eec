"""Join kernel: one pass over the tuples in order of arrival (MJoin, thesis 3.3).

The loop changes no state before it has checked that there is room for a tuple. If there is not, it returns a code that
names the shortage and is later resumed from the same tuple. Results therefore do not depend on how arrivals are split
into pushes.
"""

from typing import Any

import numpy as np

from hypergrid.wo_join.compiled import assume, index, jit, jit_inline, stay_apart, unlikely
from hypergrid.wo_join.hash_table import drop_chain, drop_chains, drop_oldest, enter, find, free, insert, sweep
from hypergrid.wo_join.lags import fill_bounds, make_room, rank_in
from hypergrid.wo_join.observe import multiplicity, observe_tuple, scrambling
from hypergrid.wo_join.state_layout import (
    ALLOWED,
    ASLEEP,
    ASSEMBLING,
    AWAY,
    BOUND,
    BUCKETS,
    CLOCK,
    CLOSED,
    COLUMNS,
    COUNT,
    DEADLINE,
    DONE,
    DROPS,
    DROPS_WHOLE,
    ENTRIES,
    ENTRIES_FULL,
    ENTRY_BYTES,
    FLOOR,
    FORM,
    FREE_ENTRY,
    FREE_SLOT,
    GREATEST,
    GREATEST_ALL,
    HELD,
    HELD_ALL,
    IDLE,
    INNER,
    LAST_STREAM,
    LATE,
    LATE_FULL,
    LATE_WRITTEN,
    LEAST_LINE,
    LIMIT,
    LINE,
    MOVED,
    NEEDED,
    NEXT,
    NEXT_LINE,
    NONE,
    OLDEST,
    ORDINAL,
    OUTPUT_FULL,
    PENDING,
    PENDING_DONE,
    POLICY,
    PROGRESS,
    PUBLISHED,
    QUARANTINED,
    RANKED,
    RANKS_FULL,
    RARE,
    RATED,
    REACH,
    RECORDS_SHORT,
    REPEATED,
    RETUNE,
    SHIFT,
    SHORT,
    SIZE,
    SLOT_BYTES,
    SLOTS_FULL,
    SWEPT,
    SWEPT_ALL,
    TAILS,
    TAKEN,
    TOP_SWEPT,
    VISITS,
    WARM,
    WATCH,
    WHOLE,
    WINDOW,
    WINDOW_COUNT,
    WINDOW_TIME,
    WRITTEN,
    Batch,
    HeldTuples,
    JoinState,
    KnownArrays,
    Narrow,
    OutputArrays,
    StreamTuple,
)
from hypergrid.wo_join.watermarks import find_lowest_lines, is_clock_jump, line_of, mark_idle, note_greatest

AT_ONCE = 64
"""Maximum number of tuples between two checks for free room, so that buckets are resized in time."""
VISITS_ALLOWED = 65536
"""Buckets that sweeps may visit without dropping anything before the buckets are resized."""


@jit_inline
def is_complete(heads: Narrow, entry: int, stream: int) -> bool:
    """Tell whether all other streams have a tuple, checking the last absent one first."""
    n, entry = index(heads.shape[1] - TAILS), index(entry)
    # Usually there are too few tuples in the entry, and no stream needs to be checked.
    if heads[entry, SIZE] < n - 1:
        return False
    asked = index(heads[entry, WATCH])
    for _ in range(n):
        # One combined branch is better predicted than two.
        if (asked != stream) & (heads[entry, TAILS + asked] == NONE):
            heads[entry, WATCH] = asked
            return False
        asked = asked - 1 if asked > 0 else n - 1
    return True


@jit_inline
def count_combinations(held: HeldTuples, entry: int, stream: int) -> int:
    """Count the results of a tuple of a stream in a complete entry."""
    product, n = 1, held.heads.shape[1] - TAILS
    # Exactly one tuple of each other stream, as usual.
    if held.heads[entry, SIZE] == n - 1:
        return 1
    for other in range(n):
        if other != stream:
            tail = index(held.heads[entry, TAILS + other])
            product *= held.links[tail, ORDINAL] - held.links[held.links[tail, NEXT], ORDINAL] + 1
    return product


@jit_inline
def write_only(state: JoinState, out: OutputArrays, entry: int, stream_tuple: StreamTuple) -> None:
    """Write a tuple's only combination: each other stream has exactly one partner."""
    held, join_state = state.held, state.join_state
    result_index, entry = index(join_state[WRITTEN]), index(entry)
    # Stored in its future slot first: the loop then treats all streams the same and has no branch to predict.
    own = index(join_state[FREE_SLOT])
    held.rows[own], held.payloads[own] = stream_tuple.row, stream_tuple.payload
    for other in range(held.heads.shape[1] - TAILS):
        slot = index(own if other == stream_tuple.stream else held.heads[entry, TAILS + other])
        out.rows[result_index, other] = held.rows[slot]
        out.payloads[result_index, other] = held.payloads[slot]
    out.key[result_index], out.at[result_index] = stream_tuple.key, join_state[TAKEN] - 1
    join_state[WRITTEN] = result_index + 1


@jit
def write_combinations(
    state: JoinState, out: OutputArrays, entry: int, stream_tuple: StreamTuple, product: int
) -> None:
    """Write every combination of a tuple with its partners; the last stream is innermost."""
    stay_apart()
    held, join_state, stream = state.held, state.join_state, stream_tuple.stream
    first = index(join_state[WRITTEN])
    for result_index in range(first, first + product):
        out.rows[result_index, stream], out.payloads[result_index, stream] = stream_tuple.row, stream_tuple.payload
        out.key[result_index], out.at[result_index] = stream_tuple.key, join_state[TAKEN] - 1
    join_state[WRITTEN] = first + product
    # Mixed radix: the last stream changes with each result, an earlier one after all combinations of the later ones.
    repeat = 1
    for other in range(held.heads.shape[1] - TAILS - 1, -1, -1):
        if other == stream:
            continue
        tail = index(held.heads[entry, TAILS + other])
        slot = index(held.links[tail, NEXT])
        size = held.links[tail, ORDINAL] - held.links[slot, ORDINAL] + 1
        result_index = first
        while result_index < first + product:
            for _ in range(repeat):
                out.rows[result_index, other] = held.rows[slot]
                out.payloads[result_index, other] = held.payloads[slot]
                result_index += 1
            slot = index(held.links[slot, NEXT])
        repeat *= size


@jit
def write_closed(state: JoinState, out: OutputArrays) -> bool:
    """Write pending slices in order of keys; False if the output is full.

    A slice has as many rows as its most frequent stream has tuples; row r has the r-th tuple of each stream.
    """
    join_state, held = state.join_state, state.held
    heads, links = held.heads, held.links
    n = index(heads.shape[1] - TAILS)
    while join_state[PENDING_DONE] < join_state[PENDING]:
        entry = held.pending[join_state[PENDING_DONE]]
        height = 0
        for stream in range(n):
            height = max(height, count_brought(held, entry, stream))
        first = index(join_state[WRITTEN])
        if first + height > len(out.rows):
            join_state[NEEDED] = height
            return False
        for result_index in range(first, first + height):
            out.key[result_index], out.at[result_index] = held.keys[entry], join_state[TAKEN] - 1
            for stream in range(n):
                out.rows[result_index, stream] = -1
                out.payloads[result_index, stream] = np.nan
        for stream in range(n):
            tail = heads[entry, TAILS + stream]
            if tail != NONE:
                slot, result_index = links[tail, NEXT], first
                while True:
                    out.rows[result_index, stream] = held.rows[slot]
                    out.payloads[result_index, stream] = held.payloads[slot]
                    if slot == tail:
                        break
                    slot = index(links[slot, NEXT])
                    result_index += 1
                drop_chain(state, entry, stream)
        if held.keys[entry] < join_state[SWEPT_ALL]:
            free(state, entry)
        else:
            # Closed before the watermark passed it: the key stays until then, so that a late tuple of it is detected.
            heads[entry, SIZE] = WHOLE
        join_state[WRITTEN] = first + height
        join_state[PENDING_DONE] += 1
    join_state[PENDING], join_state[PENDING_DONE] = 0, 0
    return True


@jit
def close(state: JoinState, stop: int) -> None:
    """Move the slices with keys below `stop` out of the table into `pending`, for `write_closed`."""
    join_state, pending = state.join_state, state.held.pending
    size = sweep(state, join_state[SWEPT_ALL], stop, NONE, 0)
    join_state[SWEPT_ALL] = stop
    join_state[TOP_SWEPT] = max(join_state[TOP_SWEPT], stop)
    join_state[PENDING], join_state[PENDING_DONE] = size, 0
    # Heap sort in place: usually one slice is pending, and few except at the end.
    for root in range(size // 2 - 1, -1, -1):
        sift_down(state.held, root, size)
    for end in range(size - 1, 0, -1):
        pending[0], pending[end] = pending[end], pending[0]
        sift_down(state.held, 0, end)


@jit
def sift_down(held: HeldTuples, root: int, end: int) -> None:
    """Sift an entry down the heap of pending entries, which has its greatest key on top."""
    keys, pending = held.keys, held.pending
    while 2 * root + 1 < end:
        child = 2 * root + 1
        if child + 1 < end and keys[pending[child]] < keys[pending[child + 1]]:
            child += 1
        if keys[pending[root]] >= keys[pending[child]]:
            return
        pending[root], pending[child] = pending[child], pending[root]
        root = child


@jit_inline
def drop_passed(state: JoinState) -> None:
    """Drop, or close, everything below the watermarks.

    A tuple of stream i can be dropped below the least watermark of the other streams. For all streams but one that is
    the least watermark of all; for the stream that has it, the second least.
    """
    join_state, stream_state = state.join_state, state.monitors.per
    join_state[MOVED] = 0
    min_line = join_state[LEAST_LINE]
    if join_state[FORM] == ASSEMBLING:
        if min_line > join_state[SWEPT_ALL]:
            close(state, min_line)
        return
    if min_line > join_state[SWEPT_ALL]:
        sweep(state, join_state[SWEPT_ALL], min_line, NONE, -1)
        join_state[SWEPT_ALL] = min_line
        join_state[TOP_SWEPT] = max(join_state[TOP_SWEPT], min_line)
    last = join_state[LAST_STREAM]
    if last == NONE:
        return
    last = index(last)
    following = join_state[NEXT_LINE]
    if following > stream_state[last, SWEPT] and following > join_state[SWEPT_ALL]:
        sweep(state, max(stream_state[last, SWEPT], join_state[SWEPT_ALL]), following, last, -1)
        stream_state[last, SWEPT] = following
        join_state[TOP_SWEPT] = max(join_state[TOP_SWEPT], following)


@jit_inline
def has_missed(state: JoinState, stream: int, key: int) -> bool:
    """Tell whether tuples that could have matched the key have already been dropped on purpose."""
    join_state, stream_state = state.join_state, state.monitors.per
    if key < join_state[SWEPT_ALL]:
        return True
    if join_state[FORM] == INNER:
        for other in range(len(stream_state)):
            if other != stream and key < stream_state[other, SWEPT]:
                return True
    return False


@jit
def expire(state: JoinState, before: int) -> None:
    """Drop the tuples that arrived before an instant [ns]."""
    stay_apart()
    stream_state, arrivals = state.monitors.per, state.held.arrivals
    for stream in range(len(stream_state)):
        while stream_state[stream, OLDEST] != NONE and arrivals[stream_state[stream, OLDEST]] < before:
            drop_oldest(state, stream)


@jit
def note_late(state: JoinState, out: OutputArrays, stream_tuple: StreamTuple, why: int) -> None:
    """Record a late tuple."""
    late_index = state.join_state[LATE_WRITTEN]
    out.late[late_index, 0], out.late[late_index, 1] = stream_tuple.stream, stream_tuple.row
    out.late[late_index, 2], out.late[late_index, 3] = stream_tuple.key, why
    out.late_payload[late_index] = stream_tuple.payload
    state.join_state[LATE_WRITTEN] = late_index + 1
    state.monitors.per[stream_tuple.stream, LATE] += 1


@jit_inline
def lacks_room(state: JoinState, out: OutputArrays, stream: int) -> int:
    """Return the code of a resource to enlarge before taking a tuple, else DONE."""
    join_state, monitors = state.join_state, state.monitors
    if join_state[FREE_SLOT] == NONE:
        return SLOTS_FULL
    taken = (join_state[HELD_ALL] + 1) * join_state[SLOT_BYTES] + (join_state[ENTRIES] + 1) * join_state[ENTRY_BYTES]
    if taken > join_state[ALLOWED]:
        return LIMIT
    if join_state[FREE_ENTRY] == NONE:
        return ENTRIES_FULL
    if join_state[LATE_WRITTEN] == len(out.late):
        return LATE_FULL
    # Sweeps visit far more than they drop: the width of the buckets no longer fits the keys.
    if join_state[VISITS] > 8 * join_state[DROPS] + VISITS_ALLOWED:
        return RETUNE
    if monitors.per[stream, SHORT]:
        return RECORDS_SHORT
    size = monitors.ranks.shape[1]
    if size and monitors.per[stream, RANKED] == size and not make_room(monitors, stream):
        return RANKS_FULL
    return DONE


@jit_inline
def count_sure_room(state: JoinState, out: OutputArrays) -> int:
    """Return a number of tuples that fit whatever they contain, to skip the check for each."""
    # Sorted lists may fill up with any tuple.
    if state.monitors.ranks.shape[1]:
        return 1
    join_state = state.join_state
    held, entries = join_state[HELD_ALL], join_state[ENTRIES]
    taken = held * join_state[SLOT_BYTES] + entries * join_state[ENTRY_BYTES]
    allowed = (join_state[ALLOWED] - taken) // (join_state[SLOT_BYTES] + join_state[ENTRY_BYTES])
    free_rows, free_keys = len(state.held.rows) - held, len(state.held.keys) - entries
    return int(max(1, min(allowed, free_rows, free_keys, len(out.late) - join_state[LATE_WRITTEN], AT_ONCE)))


@jit
def run(state: JoinState, known: KnownArrays, batch: Batch, out: OutputArrays, start: int) -> tuple[int, int]:
    """Join the tuples of a batch from `start` on.

    Returns a code and the first tuple that was not taken.
    """
    join_state, monitors, held = state.join_state, state.monitors, state.held
    stream_state, heads = monitors.per, held.heads
    form, policy, window = join_state[FORM], join_state[POLICY], join_state[WINDOW]
    # Buckets follow the order of keys if tuples are dropped by key.
    sweeping = join_state[SHIFT] >= 0
    counting = not sweeping and policy == PUBLISHED
    judging = policy == PROGRESS or policy == PUBLISHED
    timed = not sweeping and policy == WINDOW_TIME
    hurried = form == ASSEMBLING and join_state[DROPS_WHOLE] != 0
    if not write_closed(state, out):
        return OUTPUT_FULL, start
    # `sure` tuples fit whatever they contain, and need no check for room.
    sure, clock = 0, join_state[CLOCK]
    assume(stream_state.shape[1] == COLUMNS and monitors.records.shape[2] == 3)
    assume(held.links.shape[1] == 4 and out.late.shape[1] == 4)
    assume(monitors.rates.shape[1] == RATED and monitors.spread.shape[1] == 2 and monitors.spread.shape[2] == BUCKETS)
    for turn in range(start, len(batch.stream)):
        t: Any = index(turn)
        stream: Any = index(batch.stream[t])
        if unlikely(sure == 0 or stream_state[stream, SHORT] != 0):
            code = lacks_room(state, out, stream)
            if code != DONE:
                return code, t
            sure = count_sure_room(state, out)
        sure -= 1
        row: Any = batch.row[t]
        key = batch.key[t]
        echo = row < 0
        if unlikely(echo):
            row = ~row
        stream_tuple = StreamTuple(stream, row, key, batch.payload[t])
        # An arrival before its predecessor counts as equal to it.
        if batch.arrival[t] > clock:
            clock = batch.arrival[t]
            join_state[CLOCK] = clock
        if unlikely(timed):
            expire(state, clock - window)
        entry: Any = np.int64(find(state, key))
        product = 0
        if form == INNER and entry != NONE and is_complete(heads, entry, stream):
            product = count_combinations(held, entry, stream)
            if unlikely(join_state[WRITTEN] + product > len(out.rows)):
                join_state[NEEDED] = product
                return OUTPUT_FULL, t
        # The tuple counts as taken only once its results have room.
        join_state[TAKEN] += 1
        if (
            judging
            and unlikely(
                key > join_state[GREATEST_ALL] + join_state[REACH]
                or key < stream_state[stream, GREATEST] - join_state[REACH]
            )
            and join_state[GREATEST_ALL] > FLOOR
            and is_clock_jump(state, stream, key)
        ):
            note_late(state, out, stream_tuple, QUARANTINED)
            continue
        is_late, is_held, is_moved = False, True, False
        if key < join_state[TOP_SWEPT]:
            is_late = has_missed(state, stream, key)
            # Sweeps never return to keys below these, so a tuple there would be held forever.
            is_held = key >= max(join_state[SWEPT_ALL], stream_state[stream, SWEPT])
        # A further tuple of a completed key: the multiplicity was underestimated.
        if unlikely(entry != NONE and heads[entry, SIZE] == WHOLE):
            is_late, is_held = True, False
            stream_state[stream, REPEATED] = max(stream_state[stream, REPEATED], multiplicity(stream_state, stream) + 1)
        # A reading of uncertain key is monitored at its first key only.
        if not echo:
            # An accepted tuple ends the stream's quarantine.
            stream_state[stream, AWAY] = FLOOR
            if key > join_state[GREATEST_ALL]:
                note_greatest(state, key)
            reckoned = scrambling(stream_state, stream) if counting else 0
            displacement, is_moved = observe_tuple(monitors, stream, key, clock, join_state[RARE])
            # The buffers were sized for a smaller scrambling factor, so partners may already be dropped.
            if unlikely(counting) and displacement > reckoned and stream_state[stream, COUNT] > WARM:
                is_late = True
            if unlikely(monitors.ranks.shape[1] > 0):
                rank_in(monitors, stream, key)
            if unlikely(stream_state[stream, ASLEEP] != 0):
                stream_state[stream, ASLEEP] = 0
                find_lowest_lines(state)
                join_state[DEADLINE] = min(join_state[DEADLINE], clock + join_state[IDLE])
            if unlikely(clock > join_state[DEADLINE]):
                mark_idle(state)
        if product:
            if product == 1:
                write_only(state, out, entry, stream_tuple)
            else:
                write_combinations(state, out, entry, stream_tuple, product)
            if join_state[DROPS_WHOLE] and is_held and is_whole(state, entry, stream):
                stream_state[stream, REPEATED] = max(
                    stream_state[stream, REPEATED], count_brought(held, entry, stream) + 1
                )
                drop_whole(state, entry)
                is_held = False
        if unlikely(is_late):
            note_late(state, out, stream_tuple, CLOSED)
        if is_held:
            if entry == NONE:
                entry = np.int64(enter(state, key))
            if unlikely(timed):
                held.arrivals[join_state[FREE_SLOT]] = clock
            repeated = insert(state, entry, stream_tuple) + 1
            if unlikely(repeated > stream_state[stream, REPEATED]):
                stream_state[stream, REPEATED] = repeated
        if sweeping:
            if policy == WINDOW_TIME:
                for other in range(len(stream_state)):
                    stream_state[other, LINE] = line_of(state, other)
                find_lowest_lines(state)
            else:
                before = stream_state[stream, LINE]
                # Most tuples are not the greatest of their stream and move no watermark.
                if is_moved or before == FLOOR or policy != PROGRESS:
                    line = line_of(state, stream)
                    if line != before:
                        stream_state[stream, LINE] = line
                        # Other watermarks are not among the two least.
                        if min(line, before) <= join_state[NEXT_LINE] or stream == join_state[LAST_STREAM]:
                            find_lowest_lines(state)
            if join_state[MOVED]:
                drop_passed(state)
            if unlikely(join_state[PENDING] > 0) and not write_closed(state, out):
                return OUTPUT_FULL, t + 1
            if hurried and is_held and key >= join_state[SWEPT_ALL] and is_brought(state, entry):
                held.pending[0], join_state[PENDING] = entry, 1
                if not write_closed(state, out):
                    return OUTPUT_FULL, t + 1
        elif policy == WINDOW_COUNT:
            while stream_state[stream, HELD] > window:
                drop_oldest(state, stream)
        elif policy == PUBLISHED:
            fill_bounds(monitors, known, stream, clock)
            for other in range(len(stream_state)):
                while stream_state[other, HELD] > stream_state[other, BOUND]:
                    drop_oldest(state, other)
    return DONE, len(batch.stream)


@jit
def pass_time(state: JoinState, clock: int) -> None:
    """Advance the clock without an arrival: streams may go idle, and windows expire."""
    join_state, stream_state = state.join_state, state.monitors.per
    clock = max(join_state[CLOCK], clock)
    join_state[CLOCK] = clock
    if clock > join_state[DEADLINE]:
        mark_idle(state)
    if join_state[SHIFT] >= 0:
        if join_state[POLICY] == WINDOW_TIME:
            for stream in range(len(stream_state)):
                stream_state[stream, LINE] = line_of(state, stream)
            find_lowest_lines(state)
        drop_passed(state)
    elif join_state[POLICY] == WINDOW_TIME:
        expire(state, clock - join_state[WINDOW])


@jit_inline
def count_brought(held: HeldTuples, entry: int, stream: int) -> int:
    """Return the number of tuples of an entry's key that a stream has brought."""
    tail = held.heads[entry, TAILS + stream]
    return int(held.links[tail, ORDINAL] + 1) if tail != NONE else 0


@jit_inline
def is_whole(state: JoinState, entry: int, stream: int) -> bool:
    """Tell whether one more tuple lets every stream reach its multiplicity in an entry.

    A stream whose watermark is unknown never counts as complete.
    """
    stream_state = state.monitors.per
    for other in range(len(stream_state)):
        count = count_brought(state.held, entry, other) + (other == stream)
        if count < multiplicity(stream_state, other) or stream_state[other, LINE] == FLOOR:
            return False
    return True


@jit_inline
def drop_whole(state: JoinState, entry: int) -> None:
    """Drop all tuples of an entry, keeping the key to detect late tuples."""
    drop_chains(state, entry)
    state.held.heads[entry, SIZE] = WHOLE


@jit_inline
def is_brought(state: JoinState, entry: int) -> bool:
    """Tell whether every stream that is awake has reached its multiplicity in an entry.

    The stream that was last found short is checked first. A stream whose watermark is unknown never counts as complete.
    """
    stream_state, heads = state.monitors.per, state.held.heads
    asked = index(heads[entry, WATCH])
    for _ in range(len(stream_state)):
        if not stream_state[asked, ASLEEP] and (
            stream_state[asked, LINE] == FLOOR
            or count_brought(state.held, entry, asked) < multiplicity(stream_state, asked)
        ):
            heads[entry, WATCH] = asked
            return False
        asked = asked - 1 if asked > 0 else len(stream_state) - 1
    return True
