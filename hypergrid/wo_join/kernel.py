"""Join kernel: one pass over the tuples in order of arrival (MJoin, thesis 3.3).

The loop changes no state before it has checked that there is room for a tuple. If there is not, it returns a code that
names the shortage and is later resumed from the same tuple. Results therefore do not depend on how arrivals are split
into pushes.
"""

from typing import Any

import numpy as np

from hypergrid.wo_join.compiled import assume, index, jit, jit_inline, unlikely
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
    JUMP,
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
    Floats,
    HeldTuples,
    Ints,
    KnownArrays,
    MonitorState,
    Narrow,
    OutputArrays,
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
def count_combinations(heads: Narrow, links: Narrow, entry: int, stream: int) -> int:
    """Count the results of a tuple of a stream in a complete entry."""
    product, n = 1, heads.shape[1] - TAILS
    # Exactly one tuple of each other stream, as usual.
    if heads[entry, SIZE] == n - 1:
        return 1
    for other in range(n):
        if other != stream:
            tail = index(heads[entry, TAILS + other])
            slot = index(links[tail, NEXT])
            size = 1
            while slot != tail:
                size += 1
                slot = index(links[slot, NEXT])
            product *= size
    return product


@jit_inline
def write_only(
    heads: Narrow,
    rows: Ints,
    payloads: Floats,
    join_state: Ints,
    out_rows: Ints,
    out_payloads: Floats,
    out_key: Ints,
    out_at: Ints,
    entry: int,
    stream: int,
    row: int,
    payload: float,
    key: int,
) -> None:
    """Write a tuple's only combination: each other stream has exactly one partner."""
    result_index, entry = index(join_state[WRITTEN]), index(entry)
    # Stored in its future slot first: the loop then treats all streams the same and has no branch to predict.
    own = index(join_state[FREE_SLOT])
    rows[own], payloads[own] = row, payload
    for other in range(heads.shape[1] - TAILS):
        slot = index(own if other == stream else heads[entry, TAILS + other])
        out_rows[result_index, other] = rows[slot]
        out_payloads[result_index, other] = payloads[slot]
    out_key[result_index], out_at[result_index] = key, join_state[TAKEN] - 1
    join_state[WRITTEN] = result_index + 1


@jit
def write_combinations(
    heads: Narrow,
    links: Narrow,
    rows: Ints,
    payloads: Floats,
    join_state: Ints,
    out_rows: Ints,
    out_payloads: Floats,
    out_key: Ints,
    out_at: Ints,
    entry: int,
    stream: int,
    row: int,
    payload: float,
    key: int,
    product: int,
) -> None:
    """Write every combination of a tuple with its partners; the last stream is innermost."""
    n = heads.shape[1] - TAILS
    first = index(join_state[WRITTEN])
    for result_index in range(first, first + product):
        out_rows[result_index, stream] = row
        out_payloads[result_index, stream] = payload
        out_key[result_index], out_at[result_index] = key, join_state[TAKEN] - 1
    join_state[WRITTEN] = first + product
    # Mixed radix: the last stream changes with each result, an earlier one after all combinations of the later ones.
    repeat = 1
    for other in range(n - 1, -1, -1):
        if other == stream:
            continue
        tail = index(heads[entry, TAILS + other])
        slot = index(links[tail, NEXT])
        size = links[tail, ORDINAL] - links[slot, ORDINAL] + 1
        result_index = first
        while result_index < first + product:
            for _ in range(repeat):
                out_rows[result_index, other] = rows[slot]
                out_payloads[result_index, other] = payloads[slot]
                result_index += 1
            slot = index(links[slot, NEXT])
        repeat *= size


@jit
def write_closed(
    keys: Ints,
    heads: Narrow,
    links: Narrow,
    rows: Ints,
    payloads: Floats,
    pending: Narrow,
    join_state: Ints,
    stream_state: Ints,
    out_rows: Ints,
    out_payloads: Floats,
    out_key: Ints,
    out_at: Ints,
) -> bool:
    """Write pending slices in order of keys; False if the output is full.

    A slice has as many rows as its most frequent stream has tuples; row r has the r-th tuple of each stream.
    """
    n = index(heads.shape[1] - TAILS)
    while join_state[PENDING_DONE] < join_state[PENDING]:
        entry = pending[join_state[PENDING_DONE]]
        height = 0
        for stream in range(n):
            tail = heads[entry, TAILS + stream]
            if tail != NONE:
                height = max(height, links[tail, ORDINAL] + 1)
        first = index(join_state[WRITTEN])
        if first + height > len(out_rows):
            join_state[NEEDED] = height
            return False
        for result_index in range(first, first + height):
            out_key[result_index] = keys[entry]
            out_at[result_index] = join_state[TAKEN] - 1
            for stream in range(n):
                out_rows[result_index, stream] = -1
                out_payloads[result_index, stream] = np.nan
        for stream in range(n):
            tail = heads[entry, TAILS + stream]
            if tail != NONE:
                slot, result_index = links[tail, NEXT], first
                while True:
                    out_rows[result_index, stream] = rows[slot]
                    out_payloads[result_index, stream] = payloads[slot]
                    if slot == tail:
                        break
                    slot = index(links[slot, NEXT])
                    result_index += 1
                drop_chain(heads, links, join_state, stream_state, entry, stream)
        if keys[entry] < join_state[SWEPT_ALL]:
            free(heads, join_state, entry)
        else:
            # Closed before the watermark passed it: the key stays until then, so that a late tuple of it is detected.
            heads[entry, SIZE] = WHOLE
        join_state[WRITTEN] = first + height
        join_state[PENDING_DONE] += 1
    join_state[PENDING], join_state[PENDING_DONE] = 0, 0
    return True


@jit
def close(
    buckets: Narrow,
    keys: Ints,
    heads: Narrow,
    links: Narrow,
    pending: Narrow,
    join_state: Ints,
    stream_state: Ints,
    stop: int,
) -> None:
    """Move the slices with keys below `stop` out of the table into `pending`, for `write_closed`."""
    size = sweep(buckets, keys, heads, links, pending, join_state, stream_state, join_state[SWEPT_ALL], stop, NONE, 0)
    join_state[SWEPT_ALL] = stop
    join_state[TOP_SWEPT] = max(join_state[TOP_SWEPT], stop)
    join_state[PENDING], join_state[PENDING_DONE] = size, 0
    # Heap sort in place: usually one slice is pending, and few except at the end.
    for root in range(size // 2 - 1, -1, -1):
        sift_down(keys, pending, root, size)
    for end in range(size - 1, 0, -1):
        pending[0], pending[end] = pending[end], pending[0]
        sift_down(keys, pending, 0, end)


@jit
def sift_down(keys: Ints, pending: Narrow, root: int, end: int) -> None:
    """Sift an entry down a heap that has its greatest key on top."""
    while 2 * root + 1 < end:
        child = 2 * root + 1
        if child + 1 < end and keys[pending[child]] < keys[pending[child + 1]]:
            child += 1
        if keys[pending[root]] >= keys[pending[child]]:
            return
        pending[root], pending[child] = pending[child], pending[root]
        root = child


@jit_inline
def drop_passed(
    buckets: Narrow, keys: Ints, heads: Narrow, links: Narrow, pending: Narrow, join_state: Ints, stream_state: Ints
) -> None:
    """Drop, or close, everything below the watermarks.

    A tuple of stream i can be dropped below the least watermark of the other streams. For all streams but one that is
    the least watermark of all; for the stream that has it, the second least.
    """
    join_state[MOVED] = 0
    min_line = join_state[LEAST_LINE]
    if join_state[FORM] == ASSEMBLING:
        if min_line > join_state[SWEPT_ALL]:
            close(buckets, keys, heads, links, pending, join_state, stream_state, min_line)
        return
    if min_line > join_state[SWEPT_ALL]:
        sweep(buckets, keys, heads, links, pending, join_state, stream_state, join_state[SWEPT_ALL], min_line, NONE, -1)
        join_state[SWEPT_ALL] = min_line
        join_state[TOP_SWEPT] = max(join_state[TOP_SWEPT], min_line)
    last = join_state[LAST_STREAM]
    if last == NONE:
        return
    last = index(last)
    following = join_state[NEXT_LINE]
    if following > stream_state[last, SWEPT] and following > join_state[SWEPT_ALL]:
        sweep(
            buckets,
            keys,
            heads,
            links,
            pending,
            join_state,
            stream_state,
            max(stream_state[last, SWEPT], join_state[SWEPT_ALL]),
            following,
            last,
            -1,
        )
        stream_state[last, SWEPT] = following
        join_state[TOP_SWEPT] = max(join_state[TOP_SWEPT], following)


@jit_inline
def has_missed(join_state: Ints, stream_state: Ints, stream: int, key: int) -> bool:
    """Tell whether tuples that could have matched the key have already been dropped on purpose."""
    if key < join_state[SWEPT_ALL]:
        return True
    if join_state[FORM] == INNER:
        for other in range(len(stream_state)):
            if other != stream and key < stream_state[other, SWEPT]:
                return True
    return False


@jit
def expire(
    buckets: Narrow,
    keys: Ints,
    heads: Narrow,
    links: Narrow,
    arrivals: Ints,
    join_state: Ints,
    stream_state: Ints,
    before: int,
) -> None:
    """Drop the tuples that arrived before an instant [ns]."""
    for stream in range(len(stream_state)):
        while stream_state[stream, OLDEST] != NONE and arrivals[stream_state[stream, OLDEST]] < before:
            drop_oldest(buckets, keys, heads, links, join_state, stream_state, stream)


@jit
def note_late(
    join_state: Ints,
    stream_state: Ints,
    late: Ints,
    late_payload: Floats,
    stream: int,
    row: int,
    key: int,
    payload: float,
    why: int,
) -> None:
    """Record a late tuple."""
    late_index = join_state[LATE_WRITTEN]
    late[late_index, 0], late[late_index, 1] = stream, row
    late[late_index, 2], late[late_index, 3] = key, why
    late_payload[late_index] = payload
    join_state[LATE_WRITTEN] = late_index + 1
    stream_state[stream, LATE] += 1


@jit_inline
def lacks_room(stream_state: Ints, join_state: Ints, ranks: Ints, late: Ints, stream: int) -> int:
    """Return the code of a resource to enlarge before taking a tuple, else DONE."""
    if join_state[FREE_SLOT] == NONE:
        return SLOTS_FULL
    taken = (join_state[HELD_ALL] + 1) * join_state[SLOT_BYTES] + (join_state[ENTRIES] + 1) * join_state[ENTRY_BYTES]
    if taken > join_state[ALLOWED]:
        return LIMIT
    if join_state[FREE_ENTRY] == NONE:
        return ENTRIES_FULL
    if join_state[LATE_WRITTEN] == len(late):
        return LATE_FULL
    # Sweeps visit far more than they drop: the width of the buckets no longer fits the keys.
    if join_state[VISITS] > 8 * join_state[DROPS] + VISITS_ALLOWED:
        return RETUNE
    if stream_state[stream, SHORT]:
        return RECORDS_SHORT
    size = ranks.shape[1]
    if size and stream_state[stream, RANKED] == size and not make_room(stream_state, ranks, stream):
        return RANKS_FULL
    return DONE


@jit_inline
def count_sure_room(keys: Ints, rows: Ints, ranks: Ints, late: Ints, join_state: Ints) -> int:
    """Return a number of tuples that fit whatever they contain, to skip the check for each."""
    # Sorted lists may fill up with any tuple.
    if ranks.shape[1]:
        return 1
    held, entries = join_state[HELD_ALL], join_state[ENTRIES]
    taken = held * join_state[SLOT_BYTES] + entries * join_state[ENTRY_BYTES]
    allowed = (join_state[ALLOWED] - taken) // (join_state[SLOT_BYTES] + join_state[ENTRY_BYTES])
    room = min(allowed, len(rows) - held, len(keys) - entries, len(late) - join_state[LATE_WRITTEN])
    return int(max(1, min(room, AT_ONCE)))


@jit
def run(
    monitors: MonitorState,
    held: HeldTuples,
    known: KnownArrays,
    join_state: Ints,
    steps: Floats,
    batch: Batch,
    out: OutputArrays,
    start: int,
) -> tuple[int, int]:
    """Join the tuples of a batch from `start` on.

    Returns a code and the first tuple that was not taken.
    """
    # Arrays are unpacked into locals: taking one from a record counts references, which costs more than the loop.
    stream_state, records, rates, spread, ranks, reaches = monitors
    buckets, keys, heads, links, rows, payloads, arrivals, pending = held
    known_rate, known_lag = known
    batch_stream, batch_row, batch_key, batch_payload, batch_arrival = batch
    out_rows, out_payloads, out_key, out_at, late, late_payload = out
    form, policy, window = join_state[FORM], join_state[POLICY], join_state[WINDOW]
    # Buckets follow the order of keys if tuples are dropped by key.
    sweeping = join_state[SHIFT] >= 0
    queued = not sweeping
    counting = queued and policy == PUBLISHED
    judging = policy == PROGRESS or policy == PUBLISHED
    timed = queued and policy == WINDOW_TIME
    hurried = form == ASSEMBLING and join_state[DROPS_WHOLE] != 0
    if not write_closed(
        keys, heads, links, rows, payloads, pending, join_state, stream_state, out_rows, out_payloads, out_key, out_at
    ):
        return OUTPUT_FULL, start
    # `sure` tuples fit whatever they contain, and need no check for room.
    sure, clock = 0, join_state[CLOCK]
    assume(stream_state.shape[1] == COLUMNS and records.shape[2] == 3 and links.shape[1] == 4 and late.shape[1] == 4)
    assume(rates.shape[1] == RATED and spread.shape[1] == 2 and spread.shape[2] == BUCKETS)
    for turn in range(start, len(batch_stream)):
        t: Any = index(turn)
        stream: Any = index(batch_stream[t])
        if unlikely(sure == 0 or stream_state[stream, SHORT] != 0):
            code = lacks_room(stream_state, join_state, ranks, late, stream)
            if code != DONE:
                return code, t
            sure = count_sure_room(keys, rows, ranks, late, join_state)
        sure -= 1
        row: Any = batch_row[t]
        key, payload = batch_key[t], batch_payload[t]
        echo = row < 0
        if unlikely(echo):
            row = ~row
        # An arrival before its predecessor counts as equal to it.
        if batch_arrival[t] > clock:
            clock = batch_arrival[t]
            join_state[CLOCK] = clock
        if unlikely(timed):
            expire(buckets, keys, heads, links, arrivals, join_state, stream_state, clock - window)
        entry: Any = np.int64(find(buckets, keys, heads, join_state, key))
        product = 0
        if form == INNER and entry != NONE and is_complete(heads, entry, stream):
            product = count_combinations(heads, links, entry, stream)
            if unlikely(join_state[WRITTEN] + product > len(out_rows)):
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
            and is_clock_jump(stream_state, join_state, stream, key, join_state[JUMP])
        ):
            note_late(join_state, stream_state, late, late_payload, stream, row, key, payload, QUARANTINED)
            continue
        is_late, is_held, is_moved = False, True, False
        if key < join_state[TOP_SWEPT]:
            is_late = has_missed(join_state, stream_state, stream, key)
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
                note_greatest(join_state, steps, key, join_state[JUMP])
            reckoned = scrambling(stream_state, stream) if counting else 0
            displacement, is_moved = observe_tuple(
                stream_state, records, rates, spread, stream, key, clock, join_state[RARE]
            )
            # The buffers were sized for a smaller scrambling factor, so partners may already be dropped.
            if unlikely(counting) and displacement > reckoned and stream_state[stream, COUNT] > WARM:
                is_late = True
            if unlikely(ranks.shape[1] > 0):
                rank_in(stream_state, ranks, stream, key)
            if unlikely(stream_state[stream, ASLEEP] != 0):
                stream_state[stream, ASLEEP] = 0
                find_lowest_lines(stream_state, join_state)
                join_state[DEADLINE] = min(join_state[DEADLINE], clock + join_state[IDLE])
            if unlikely(clock > join_state[DEADLINE]):
                mark_idle(stream_state, join_state, join_state[IDLE], clock)
        if product:
            if product == 1:
                write_only(
                    heads, rows, payloads, join_state, out_rows, out_payloads, out_key, out_at,
                    entry, stream, row, payload, key,
                )  # fmt: skip
            else:
                write_combinations(
                    heads, links, rows, payloads, join_state, out_rows, out_payloads, out_key, out_at,
                    entry, stream, row, payload, key, product,
                )  # fmt: skip
            if join_state[DROPS_WHOLE] and is_held and is_whole(heads, links, stream_state, entry, stream):
                stream_state[stream, REPEATED] = max(
                    stream_state[stream, REPEATED], count_brought(heads, links, entry, stream) + 1
                )
                drop_whole(heads, links, join_state, stream_state, entry)
                is_held = False
        if unlikely(is_late):
            note_late(join_state, stream_state, late, late_payload, stream, row, key, payload, CLOSED)
        if is_held:
            if entry == NONE:
                entry = np.int64(enter(buckets, keys, heads, join_state, key))
            if unlikely(timed):
                arrivals[join_state[FREE_SLOT]] = clock
            repeated = (
                insert(heads, links, rows, payloads, join_state, stream_state, entry, stream, row, payload, queued) + 1
            )
            if unlikely(repeated > stream_state[stream, REPEATED]):
                stream_state[stream, REPEATED] = repeated
        if sweeping:
            if policy == WINDOW_TIME:
                for other in range(len(stream_state)):
                    stream_state[other, LINE] = line_of(stream_state, join_state, records, other, clock)
                find_lowest_lines(stream_state, join_state)
            else:
                before = stream_state[stream, LINE]
                # Most tuples are not the greatest of their stream and move no watermark.
                if is_moved or before == FLOOR or policy != PROGRESS:
                    line = line_of(stream_state, join_state, records, stream, clock)
                    if line != before:
                        stream_state[stream, LINE] = line
                        # Other watermarks are not among the two least.
                        if min(line, before) <= join_state[NEXT_LINE] or stream == join_state[LAST_STREAM]:
                            find_lowest_lines(stream_state, join_state)
            if join_state[MOVED]:
                drop_passed(buckets, keys, heads, links, pending, join_state, stream_state)
            if unlikely(join_state[PENDING] > 0) and not write_closed(
                keys,
                heads,
                links,
                rows,
                payloads,
                pending,
                join_state,
                stream_state,
                out_rows,
                out_payloads,
                out_key,
                out_at,
            ):
                return OUTPUT_FULL, t + 1
            if hurried and is_held and key >= join_state[SWEPT_ALL] and is_brought(heads, links, stream_state, entry):
                pending[0], join_state[PENDING] = entry, 1
                if not write_closed(
                    keys,
                    heads,
                    links,
                    rows,
                    payloads,
                    pending,
                    join_state,
                    stream_state,
                    out_rows,
                    out_payloads,
                    out_key,
                    out_at,
                ):
                    return OUTPUT_FULL, t + 1
        elif policy == WINDOW_COUNT:
            while stream_state[stream, HELD] > window:
                drop_oldest(buckets, keys, heads, links, join_state, stream_state, stream)
        elif policy == PUBLISHED:
            fill_bounds(stream_state, rates, ranks, reaches, known_rate, known_lag, stream, clock)
            for other in range(len(stream_state)):
                while stream_state[other, HELD] > stream_state[other, BOUND]:
                    drop_oldest(buckets, keys, heads, links, join_state, stream_state, other)
    return DONE, len(batch_stream)


@jit
def pass_time(monitors: MonitorState, held: HeldTuples, join_state: Ints, clock: int) -> None:
    """Advance the clock without an arrival: streams may go idle, and windows expire."""
    stream_state, records, _, _, _, _ = monitors
    buckets, keys, heads, links, _, _, arrivals, pending = held
    clock = max(join_state[CLOCK], clock)
    join_state[CLOCK] = clock
    if clock > join_state[DEADLINE]:
        mark_idle(stream_state, join_state, join_state[IDLE], clock)
    if join_state[SHIFT] >= 0:
        if join_state[POLICY] == WINDOW_TIME:
            for stream in range(len(stream_state)):
                stream_state[stream, LINE] = line_of(stream_state, join_state, records, stream, clock)
            find_lowest_lines(stream_state, join_state)
        drop_passed(buckets, keys, heads, links, pending, join_state, stream_state)
    elif join_state[POLICY] == WINDOW_TIME:
        expire(buckets, keys, heads, links, arrivals, join_state, stream_state, clock - join_state[WINDOW])


@jit_inline
def count_brought(heads: Narrow, links: Narrow, entry: int, stream: int) -> int:
    """Return the number of tuples of an entry's key that a stream has brought."""
    tail = heads[entry, TAILS + stream]
    return int(links[tail, ORDINAL] + 1) if tail != NONE else 0


@jit_inline
def is_whole(heads: Narrow, links: Narrow, stream_state: Ints, entry: int, stream: int) -> bool:
    """Tell whether one more tuple lets every stream reach its multiplicity in an entry.

    A stream whose watermark is unknown never counts as complete.
    """
    for other in range(len(stream_state)):
        count = count_brought(heads, links, entry, other) + (other == stream)
        if count < multiplicity(stream_state, other) or stream_state[other, LINE] == FLOOR:
            return False
    return True


@jit_inline
def drop_whole(heads: Narrow, links: Narrow, join_state: Ints, stream_state: Ints, entry: int) -> None:
    """Drop all tuples of an entry, keeping the key to detect late tuples."""
    drop_chains(heads, links, join_state, stream_state, entry)
    heads[entry, SIZE] = WHOLE


@jit_inline
def is_brought(heads: Narrow, links: Narrow, stream_state: Ints, entry: int) -> bool:
    """Tell whether every stream that is awake has reached its multiplicity in an entry.

    The stream that was last found short is checked first. A stream whose watermark is unknown never counts as complete.
    """
    asked = index(heads[entry, WATCH])
    for _ in range(len(stream_state)):
        if not stream_state[asked, ASLEEP] and (
            stream_state[asked, LINE] == FLOOR
            or count_brought(heads, links, entry, asked) < multiplicity(stream_state, asked)
        ):
            heads[entry, WATCH] = asked
            return False
        asked = asked - 1 if asked > 0 else len(stream_state) - 1
    return True
