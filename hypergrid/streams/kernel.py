"""The join itself: one pass over the tuples in order of arrival (an MJoin, thesis 3.3, over one shared hash table).

The loop changes nothing before it knows that there is room for what a tuple brings; where there is none it returns with
what it needs and goes on later from the same tuple. So results do not depend on how arrivals are cut into pushes.
"""

from typing import Any

import numpy as np

from hypergrid.streams.compiled import compiled, compiled_within
from hypergrid.streams.fields import (
    ALLOWED,
    ASLEEP,
    ASSEMBLING,
    AWAY,
    BOUND,
    CLOCK,
    CLOSED,
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
    Held,
    Ints,
    Known,
    Monitored,
    Narrow,
    Written,
)
from hypergrid.streams.lags import bound_all, make_room, rank_in
from hypergrid.streams.observe import multiplicity, observe, scrambling
from hypergrid.streams.progress import advance, astray, doze, line_of, lowest
from hypergrid.streams.table import drop_chain, drop_oldest, enter, find, free, insert, sweep

VISITS_ALLOWED = 65536
"""Buckets that sweeps may visit in vain before buckets are cut anew."""


@compiled_within
def is_complete(heads: Narrow, entry: int, stream: int) -> bool:
    """Tell whether all other streams have a tuple in the entry; the one whose absence was seen last is asked first."""
    n = heads.shape[1] - TAILS
    asked = heads[entry, WATCH]
    for _ in range(n):
        if asked != stream and heads[entry, TAILS + asked] == NONE:
            heads[entry, WATCH] = asked
            return False
        asked = asked - 1 if asked > 0 else n - 1
    return True


@compiled_within
def brought(heads: Narrow, links: Narrow, entry: int, stream: int) -> int:
    """Return how many tuples a stream has brought of an entry's key."""
    tail = heads[entry, TAILS + stream]
    return int(links[tail, ORDINAL] + 1) if tail != NONE else 0


@compiled_within
def is_whole(heads: Narrow, links: Narrow, per: Ints, entry: int, stream: int) -> bool:
    """Tell whether each stream has brought a key as often as it brings any, with one more tuple of a stream.

    Nothing is believed of a stream that begins.
    """
    for other in range(len(per)):
        count = brought(heads, links, entry, other) + (other == stream)
        if count < multiplicity(per, other) or per[other, LINE] == FLOOR:
            return False
    return True


@compiled_within
def drop_whole(heads: Narrow, links: Narrow, whole: Ints, per: Ints, entry: int) -> None:
    """Drop all tuples of an entry, which stays until its key is passed, so that what comes nevertheless is told."""
    for stream in range(len(per)):
        if heads[entry, TAILS + stream] != NONE:
            drop_chain(heads, links, whole, per, entry, stream)
    heads[entry, SIZE] = WHOLE


@compiled_within
def combinations(heads: Narrow, links: Narrow, entry: int, stream: int) -> int:
    """Return how many results a tuple of a stream has in a complete entry."""
    product = 1
    for other in range(heads.shape[1] - TAILS):
        if other != stream:
            tail = heads[entry, TAILS + other]
            slot = links[tail, NEXT]
            size = 1
            while slot != tail:
                size += 1
                slot = links[slot, NEXT]
            product *= size
    return product


@compiled_within
def write_combinations(
    keys: Ints,
    heads: Narrow,
    links: Narrow,
    rows: Ints,
    payloads: Floats,
    whole: Ints,
    out_rows: Ints,
    out_payloads: Floats,
    out_key: Ints,
    out_at: Ints,
    entry: int,
    stream: int,
    row: int,
    payload: float,
    product: int,
) -> None:
    """Write each combination of a tuple with those of the other streams in its entry, the last stream fastest."""
    n = heads.shape[1] - TAILS
    first = whole[WRITTEN]
    key = keys[entry]
    for place in range(first, first + product):
        out_rows[place, stream] = row
        out_payloads[place, stream] = payload
        out_key[place] = key
        out_at[place] = whole[TAKEN] - 1
    repeat = 1
    for other in range(n - 1, -1, -1):
        if other == stream:
            continue
        tail = heads[entry, TAILS + other]
        slot = links[tail, NEXT]
        if slot == tail:
            for place in range(first, first + product):
                out_rows[place, other] = rows[slot]
                out_payloads[place, other] = payloads[slot]
            continue
        size = links[tail, ORDINAL] - links[slot, ORDINAL] + 1
        place = first
        while place < first + product:
            for _ in range(repeat):
                out_rows[place, other] = rows[slot]
                out_payloads[place, other] = payloads[slot]
                place += 1
            slot = links[slot, NEXT]
        repeat *= size
    whole[WRITTEN] = first + product


@compiled
def write_closed(
    keys: Ints,
    heads: Narrow,
    links: Narrow,
    rows: Ints,
    payloads: Floats,
    pending: Narrow,
    whole: Ints,
    per: Ints,
    out_rows: Ints,
    out_payloads: Floats,
    out_key: Ints,
    out_at: Ints,
) -> bool:
    """Write the slices that are pending, in order of their keys; False where there is no room for the next.

    A slice is as many rows as its most frequent stream has tuples; the r-th has the r-th tuple of each stream.
    """
    n = heads.shape[1] - TAILS
    while whole[PENDING_DONE] < whole[PENDING]:
        entry = pending[whole[PENDING_DONE]]
        height = 0
        for stream in range(n):
            tail = heads[entry, TAILS + stream]
            if tail != NONE:
                height = max(height, links[tail, ORDINAL] + 1)
        first = whole[WRITTEN]
        if first + height > len(out_rows):
            whole[NEEDED] = height
            return False
        for place in range(first, first + height):
            out_key[place] = keys[entry]
            out_at[place] = whole[TAKEN] - 1
            for stream in range(n):
                out_rows[place, stream] = -1
                out_payloads[place, stream] = np.nan
        for stream in range(n):
            tail = heads[entry, TAILS + stream]
            if tail != NONE:
                slot, place = links[tail, NEXT], first
                while True:
                    out_rows[place, stream] = rows[slot]
                    out_payloads[place, stream] = payloads[slot]
                    if slot == tail:
                        break
                    slot = links[slot, NEXT]
                    place += 1
                drop_chain(heads, links, whole, per, entry, stream)
        free(heads, whole, entry)
        whole[WRITTEN] = first + height
        whole[PENDING_DONE] += 1
    whole[PENDING], whole[PENDING_DONE] = 0, 0
    return True


@compiled
def close(
    buckets: Narrow, keys: Ints, heads: Narrow, links: Narrow, pending: Narrow, whole: Ints, per: Ints, stop: int
) -> None:
    """Take the slices with keys below `stop` out of the table, for `write_closed`."""
    size = sweep(buckets, keys, heads, links, pending, whole, per, whole[SWEPT_ALL], stop, NONE, 0)
    whole[SWEPT_ALL] = stop
    whole[PENDING], whole[PENDING_DONE] = size, 0
    # Most often there is one. They are few, but for the last ones (heap sort, in place).
    for root in range(size // 2 - 1, -1, -1):
        sift(keys, pending, root, size)
    for end in range(size - 1, 0, -1):
        pending[0], pending[end] = pending[end], pending[0]
        sift(keys, pending, 0, end)


@compiled
def sift(keys: Ints, pending: Narrow, root: int, end: int) -> None:
    """Let an entry sink in a heap whose greatest key is on top."""
    while 2 * root + 1 < end:
        child = 2 * root + 1
        if child + 1 < end and keys[pending[child]] < keys[pending[child + 1]]:
            child += 1
        if keys[pending[root]] >= keys[pending[child]]:
            return
        pending[root], pending[child] = pending[child], pending[root]
        root = child


@compiled_within
def drop_passed(
    buckets: Narrow, keys: Ints, heads: Narrow, links: Narrow, pending: Narrow, whole: Ints, per: Ints
) -> None:
    """Drop, or close, what is below the lines.

    A tuple of stream i is of no more use below the least line of the other streams: below the least of all, or, for the
    stream that has the least itself, below the least but one.
    """
    least = whole[LEAST_LINE]
    if whole[FORM] == ASSEMBLING:
        if least > whole[SWEPT_ALL]:
            close(buckets, keys, heads, links, pending, whole, per, least)
        return
    if least > whole[SWEPT_ALL]:
        sweep(buckets, keys, heads, links, pending, whole, per, whole[SWEPT_ALL], least, NONE, -1)
        whole[SWEPT_ALL] = least
    last = whole[LAST_STREAM]
    if last == NONE:
        return
    following = whole[NEXT_LINE]
    if following > per[last, SWEPT] and following > whole[SWEPT_ALL]:
        sweep(
            buckets,
            keys,
            heads,
            links,
            pending,
            whole,
            per,
            max(per[last, SWEPT], whole[SWEPT_ALL]),
            following,
            last,
            -1,
        )
        per[last, SWEPT] = following
        whole[TOP_SWEPT] = max(whole[TOP_SWEPT], following)


@compiled_within
def missed_some(whole: Ints, per: Ints, stream: int, key: int) -> bool:
    """Tell whether tuples that the key would have met were dropped on purpose before."""
    if key < whole[SWEPT_ALL]:
        return True
    if whole[FORM] == INNER and key < whole[TOP_SWEPT]:
        for other in range(len(per)):
            if other != stream and key < per[other, SWEPT]:
                return True
    return False


@compiled
def expire(
    buckets: Narrow, keys: Ints, heads: Narrow, links: Narrow, arrivals: Ints, whole: Ints, per: Ints, before: int
) -> None:
    """Drop the tuples that arrived before an instant [ns]."""
    for stream in range(len(per)):
        while per[stream, OLDEST] != NONE and arrivals[per[stream, OLDEST]] < before:
            drop_oldest(buckets, keys, heads, links, whole, per, stream)


@compiled
def note_late(
    whole: Ints, per: Ints, late: Ints, late_payload: Floats, stream: int, row: int, key: int, payload: float, why: int
) -> None:
    """Write a late tuple."""
    place = whole[LATE_WRITTEN]
    late[place, 0], late[place, 1] = stream, row
    late[place, 2], late[place, 3] = key, why
    late_payload[place] = payload
    whole[LATE_WRITTEN] = place + 1
    per[stream, LATE] += 1


@compiled_within
def lacks_room(per: Ints, whole: Ints, ranks: Ints, late: Ints, stream: int) -> int:
    """Return what is needed before a tuple of a stream can be taken, DONE where there is enough of all."""
    if whole[FREE_SLOT] == NONE:
        return SLOTS_FULL
    taken = (whole[HELD_ALL] + 1) * whole[SLOT_BYTES] + (whole[ENTRIES] + 1) * whole[ENTRY_BYTES]
    if taken > whole[ALLOWED]:
        return LIMIT
    if whole[FREE_ENTRY] == NONE:
        return ENTRIES_FULL
    if whole[LATE_WRITTEN] == len(late):
        return LATE_FULL
    if whole[VISITS] > 8 * whole[DROPS] + VISITS_ALLOWED:
        return RETUNE
    if per[stream, SHORT]:
        return RECORDS_SHORT
    size = ranks.shape[1]
    if size and per[stream, RANKED] == size and not make_room(per, ranks, stream):
        return RANKS_FULL
    return DONE


@compiled
def run(
    seen: Monitored, held: Held, known: Known, whole: Ints, steps: Floats, batch: Batch, out: Written, start: int
) -> tuple[int, int]:
    """Take the tuples of a batch from `start` on; return a code, and the first tuple that was not taken."""
    # Arrays by names of their own: to take one from a record counts references, which costs more than the loop.
    per, records, rates, spread, ranks, reaches = seen
    buckets, keys, heads, links, rows, payloads, arrivals, pending = held
    known_rate, known_lag = known
    batch_stream, batch_row, batch_key, batch_payload, batch_arrival = batch
    out_rows, out_payloads, out_key, out_at, late, late_payload = out
    form, policy, window = whole[FORM], whole[POLICY], whole[WINDOW]
    # Buckets follow the keys' order where tuples are dropped by key.
    sweeping = whole[SHIFT] >= 0
    queued = not sweeping
    judging = policy == PROGRESS or policy == PUBLISHED
    if not write_closed(
        keys, heads, links, rows, payloads, pending, whole, per, out_rows, out_payloads, out_key, out_at
    ):
        return OUTPUT_FULL, start
    for t in range(start, len(batch_stream)):
        stream: Any = np.int64(batch_stream[t])
        code = lacks_room(per, whole, ranks, late, stream)
        if code != DONE:
            return code, t
        row: Any = batch_row[t]
        key, payload = batch_key[t], batch_payload[t]
        echo = row < 0
        if echo:
            row = ~row
        clock = max(whole[CLOCK], batch_arrival[t])
        whole[CLOCK] = clock
        if queued and policy == WINDOW_TIME:
            expire(buckets, keys, heads, links, arrivals, whole, per, clock - window)
        entry: Any = np.int64(find(buckets, keys, heads, whole, key))
        product = 0
        if form == INNER and entry != NONE and is_complete(heads, entry, stream):
            product = combinations(heads, links, entry, stream)
            if whole[WRITTEN] + product > len(out_rows):
                whole[NEEDED] = product
                return OUTPUT_FULL, t
        whole[TAKEN] += 1
        if (
            judging
            and (key > whole[GREATEST_ALL] + whole[REACH] or key < per[stream, GREATEST] - whole[REACH])
            and whole[GREATEST_ALL] > FLOOR
            and astray(per, whole, stream, key, whole[JUMP])
        ):
            note_late(whole, per, late, late_payload, stream, row, key, payload, QUARANTINED)
            continue
        is_late = sweeping and missed_some(whole, per, stream, key)
        stays = queued or key >= max(whole[SWEPT_ALL], per[stream, SWEPT])
        if entry != NONE and heads[entry, SIZE] == WHOLE:
            is_late, stays = True, False
            per[stream, REPEATED] = max(per[stream, REPEATED], multiplicity(per, stream) + 1)
        if not echo:
            per[stream, AWAY] = FLOOR
            if key > whole[GREATEST_ALL]:
                advance(whole, steps, key, whole[JUMP])
            reckoned = scrambling(per, stream)
            displacement = observe(per, records, rates, spread, stream, key, clock, whole[RARE])
            if queued and policy == PUBLISHED and displacement > reckoned and per[stream, COUNT] > WARM:
                is_late = True
            if ranks.shape[1]:
                rank_in(per, ranks, stream, key)
            if per[stream, ASLEEP]:
                per[stream, ASLEEP] = 0
                lowest(per, whole)
                whole[DEADLINE] = min(whole[DEADLINE], clock + whole[IDLE])
            if clock > whole[DEADLINE]:
                doze(per, whole, whole[IDLE], clock)
        if product:
            write_combinations(
                keys, heads, links, rows, payloads, whole, out_rows, out_payloads, out_key, out_at,
                entry, stream, row, payload, product,
            )  # fmt: skip
            if whole[DROPS_WHOLE] and stays and is_whole(heads, links, per, entry, stream):
                per[stream, REPEATED] = max(per[stream, REPEATED], brought(heads, links, entry, stream) + 1)
                drop_whole(heads, links, whole, per, entry)
                stays = False
        if is_late:
            note_late(whole, per, late, late_payload, stream, row, key, payload, CLOSED)
        if stays:
            if entry == NONE:
                entry = np.int64(enter(buckets, keys, heads, whole, key))
            if queued and policy == WINDOW_TIME:
                arrivals[whole[FREE_SLOT]] = clock
            repeated = insert(heads, links, rows, payloads, whole, per, entry, stream, row, payload, queued) + 1
            if repeated > per[stream, REPEATED]:
                per[stream, REPEATED] = repeated
        if sweeping:
            if policy == WINDOW_TIME:
                for other in range(len(per)):
                    per[other, LINE] = line_of(per, whole, records, other, clock)
                lowest(per, whole)
            else:
                line, before = line_of(per, whole, records, stream, clock), per[stream, LINE]
                if line != before:
                    per[stream, LINE] = line
                    if min(line, before) <= whole[NEXT_LINE] or stream == whole[LAST_STREAM]:
                        lowest(per, whole)
            drop_passed(buckets, keys, heads, links, pending, whole, per)
            if whole[PENDING] and not write_closed(
                keys, heads, links, rows, payloads, pending, whole, per, out_rows, out_payloads, out_key, out_at
            ):
                return OUTPUT_FULL, t + 1
        elif policy == WINDOW_COUNT:
            while per[stream, HELD] > window:
                drop_oldest(buckets, keys, heads, links, whole, per, stream)
        elif policy == PUBLISHED:
            bound_all(per, rates, ranks, reaches, known_rate, known_lag, stream, clock)
            for other in range(len(per)):
                while per[other, HELD] > per[other, BOUND]:
                    drop_oldest(buckets, keys, heads, links, whole, per, other)
    return DONE, len(batch_stream)


@compiled
def pass_time(seen: Monitored, held: Held, whole: Ints, clock: int) -> None:
    """Let the clock go on without an arrival: streams may fall asleep, windows end."""
    per, records, _, _, _, _ = seen
    buckets, keys, heads, links, _, _, arrivals, pending = held
    clock = max(whole[CLOCK], clock)
    whole[CLOCK] = clock
    if clock > whole[DEADLINE]:
        doze(per, whole, whole[IDLE], clock)
    if whole[SHIFT] >= 0:
        if whole[POLICY] == WINDOW_TIME:
            for stream in range(len(per)):
                per[stream, LINE] = line_of(per, whole, records, stream, clock)
            lowest(per, whole)
        drop_passed(buckets, keys, heads, links, pending, whole, per)
    elif whole[POLICY] == WINDOW_TIME:
        expire(buckets, keys, heads, links, arrivals, whole, per, clock - whole[WINDOW])
