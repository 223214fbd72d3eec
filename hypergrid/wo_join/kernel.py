"""The join itself: one pass over the tuples in order of arrival (an MJoin, thesis 3.3, over one shared hash table).

The loop changes nothing before it knows that there is room for what a tuple brings; where there is none it returns with
what it needs and goes on later from the same tuple. So results do not depend on how arrivals are cut into pushes.

Tried for speed, and no faster: one formula, without a choice, for both kinds of buckets (0.2 to 1.4 ns a tuple slower).
"""

from typing import Any

import numpy as np

from hypergrid.wo_join.compiled import compiled, compiled_within
from hypergrid.wo_join.early_close import brought, drop_whole, is_brought, is_whole
from hypergrid.wo_join.hash_table import drop_chain, drop_oldest, enter, find, free, insert, sweep
from hypergrid.wo_join.hints import assume, index, unlikely
from hypergrid.wo_join.lags import bound_all, make_room, rank_in
from hypergrid.wo_join.observe import multiplicity, observe, scrambling
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
    Held,
    Ints,
    Known,
    Monitored,
    Narrow,
    Written,
)
from hypergrid.wo_join.watermarks import advance, astray, doze, line_of, lowest

AT_ONCE = 64
"""Tuples after which room is looked for again, at the latest: buckets are cut anew in time."""
VISITS_ALLOWED = 65536
"""Buckets that sweeps may visit in vain before buckets are cut anew."""


@compiled_within
def is_complete(heads: Narrow, entry: int, stream: int) -> bool:
    """Tell whether all other streams have a tuple in the entry; the one whose absence was seen last is asked first."""
    n, entry = index(heads.shape[1] - TAILS), index(entry)
    # Most often there are too few tuples at all, and nobody needs to be asked.
    if heads[entry, SIZE] < n - 1:
        return False
    asked = index(heads[entry, WATCH])
    for _ in range(n):
        # One branch for both is foretold better than two.
        if (asked != stream) & (heads[entry, TAILS + asked] == NONE):
            heads[entry, WATCH] = asked
            return False
        asked = asked - 1 if asked > 0 else n - 1
    return True


@compiled_within
def combinations(heads: Narrow, links: Narrow, entry: int, stream: int) -> int:
    """Return how many results a tuple of a stream has in a complete entry."""
    product, n = 1, heads.shape[1] - TAILS
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


@compiled_within
def write_only(
    heads: Narrow,
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
    key: int,
) -> None:
    """Write the only combination of a tuple, in whose complete entry each other stream has one."""
    place, entry = index(whole[WRITTEN]), index(entry)
    # The tuple is put where it will be held. Then all streams are alike, and no branch is to be foretold.
    own = index(whole[FREE_SLOT])
    rows[own], payloads[own] = row, payload
    for other in range(heads.shape[1] - TAILS):
        slot = index(own if other == stream else heads[entry, TAILS + other])
        out_rows[place, other] = rows[slot]
        out_payloads[place, other] = payloads[slot]
    out_key[place], out_at[place] = key, whole[TAKEN] - 1
    whole[WRITTEN] = place + 1


@compiled
def write_combinations(
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
    key: int,
    product: int,
) -> None:
    """Write each combination of a tuple with those of the other streams in its entry, the last stream fastest."""
    n = heads.shape[1] - TAILS
    first = index(whole[WRITTEN])
    for place in range(first, first + product):
        out_rows[place, stream] = row
        out_payloads[place, stream] = payload
        out_key[place], out_at[place] = key, whole[TAKEN] - 1
    whole[WRITTEN] = first + product
    repeat = 1
    for other in range(n - 1, -1, -1):
        if other == stream:
            continue
        tail = index(heads[entry, TAILS + other])
        slot = index(links[tail, NEXT])
        size = links[tail, ORDINAL] - links[slot, ORDINAL] + 1
        place = first
        while place < first + product:
            for _ in range(repeat):
                out_rows[place, other] = rows[slot]
                out_payloads[place, other] = payloads[slot]
                place += 1
            slot = index(links[slot, NEXT])
        repeat *= size


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
    n = index(heads.shape[1] - TAILS)
    while whole[PENDING_DONE] < whole[PENDING]:
        entry = pending[whole[PENDING_DONE]]
        height = 0
        for stream in range(n):
            tail = heads[entry, TAILS + stream]
            if tail != NONE:
                height = max(height, links[tail, ORDINAL] + 1)
        first = index(whole[WRITTEN])
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
                    slot = index(links[slot, NEXT])
                    place += 1
                drop_chain(heads, links, whole, per, entry, stream)
        if keys[entry] < whole[SWEPT_ALL]:
            free(heads, whole, entry)
        else:
            # It is whole before its time: the key stays until it is passed, so that what comes nevertheless is told.
            heads[entry, SIZE] = WHOLE
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
    whole[TOP_SWEPT] = max(whole[TOP_SWEPT], stop)
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
    whole[MOVED] = 0
    least = whole[LEAST_LINE]
    if whole[FORM] == ASSEMBLING:
        if least > whole[SWEPT_ALL]:
            close(buckets, keys, heads, links, pending, whole, per, least)
        return
    if least > whole[SWEPT_ALL]:
        sweep(buckets, keys, heads, links, pending, whole, per, whole[SWEPT_ALL], least, NONE, -1)
        whole[SWEPT_ALL] = least
        whole[TOP_SWEPT] = max(whole[TOP_SWEPT], least)
    last = whole[LAST_STREAM]
    if last == NONE:
        return
    last = index(last)
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
    if whole[FORM] == INNER:
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


@compiled_within
def sure_room(keys: Ints, rows: Ints, ranks: Ints, late: Ints, whole: Ints) -> int:
    """Return for how many tuples there is room, whatever they bring, so that it need not be asked for each."""
    if ranks.shape[1]:
        return 1
    held, entries = whole[HELD_ALL], whole[ENTRIES]
    taken = held * whole[SLOT_BYTES] + entries * whole[ENTRY_BYTES]
    allowed = (whole[ALLOWED] - taken) // (whole[SLOT_BYTES] + whole[ENTRY_BYTES])
    room = min(allowed, len(rows) - held, len(keys) - entries, len(late) - whole[LATE_WRITTEN])
    return int(max(1, min(room, AT_ONCE)))


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
    counting = queued and policy == PUBLISHED
    judging = policy == PROGRESS or policy == PUBLISHED
    timed = queued and policy == WINDOW_TIME
    hurried = form == ASSEMBLING and whole[DROPS_WHOLE] != 0
    if not write_closed(
        keys, heads, links, rows, payloads, pending, whole, per, out_rows, out_payloads, out_key, out_at
    ):
        return OUTPUT_FULL, start
    sure, clock = 0, whole[CLOCK]
    assume(per.shape[1] == COLUMNS and records.shape[2] == 3 and links.shape[1] == 4 and late.shape[1] == 4)
    assume(rates.shape[1] == RATED and spread.shape[1] == 2 and spread.shape[2] == BUCKETS)
    for turn in range(start, len(batch_stream)):
        t: Any = index(turn)
        stream: Any = index(batch_stream[t])
        if unlikely(sure == 0 or per[stream, SHORT] != 0):
            code = lacks_room(per, whole, ranks, late, stream)
            if code != DONE:
                return code, t
            sure = sure_room(keys, rows, ranks, late, whole)
        sure -= 1
        row: Any = batch_row[t]
        key, payload = batch_key[t], batch_payload[t]
        echo = row < 0
        if unlikely(echo):
            row = ~row
        if batch_arrival[t] > clock:
            clock = batch_arrival[t]
            whole[CLOCK] = clock
        if unlikely(timed):
            expire(buckets, keys, heads, links, arrivals, whole, per, clock - window)
        entry: Any = np.int64(find(buckets, keys, heads, whole, key))
        product = 0
        if form == INNER and entry != NONE and is_complete(heads, entry, stream):
            product = combinations(heads, links, entry, stream)
            if unlikely(whole[WRITTEN] + product > len(out_rows)):
                whole[NEEDED] = product
                return OUTPUT_FULL, t
        whole[TAKEN] += 1
        if (
            judging
            and unlikely(key > whole[GREATEST_ALL] + whole[REACH] or key < per[stream, GREATEST] - whole[REACH])
            and whole[GREATEST_ALL] > FLOOR
            and astray(per, whole, stream, key, whole[JUMP])
        ):
            note_late(whole, per, late, late_payload, stream, row, key, payload, QUARANTINED)
            continue
        is_late, is_held, is_moved = False, True, False
        if key < whole[TOP_SWEPT]:
            is_late = missed_some(whole, per, stream, key)
            is_held = key >= max(whole[SWEPT_ALL], per[stream, SWEPT])
        if unlikely(entry != NONE and heads[entry, SIZE] == WHOLE):
            is_late, is_held = True, False
            per[stream, REPEATED] = max(per[stream, REPEATED], multiplicity(per, stream) + 1)
        if not echo:
            per[stream, AWAY] = FLOOR
            if key > whole[GREATEST_ALL]:
                advance(whole, steps, key, whole[JUMP])
            reckoned = scrambling(per, stream) if counting else 0
            displacement, is_moved = observe(per, records, rates, spread, stream, key, clock, whole[RARE])
            if unlikely(counting) and displacement > reckoned and per[stream, COUNT] > WARM:
                is_late = True
            if unlikely(ranks.shape[1] > 0):
                rank_in(per, ranks, stream, key)
            if unlikely(per[stream, ASLEEP] != 0):
                per[stream, ASLEEP] = 0
                lowest(per, whole)
                whole[DEADLINE] = min(whole[DEADLINE], clock + whole[IDLE])
            if unlikely(clock > whole[DEADLINE]):
                doze(per, whole, whole[IDLE], clock)
        if product:
            if product == 1:
                write_only(
                    heads, rows, payloads, whole, out_rows, out_payloads, out_key, out_at,
                    entry, stream, row, payload, key,
                )  # fmt: skip
            else:
                write_combinations(
                    heads, links, rows, payloads, whole, out_rows, out_payloads, out_key, out_at,
                    entry, stream, row, payload, key, product,
                )  # fmt: skip
            if whole[DROPS_WHOLE] and is_held and is_whole(heads, links, per, entry, stream):
                per[stream, REPEATED] = max(per[stream, REPEATED], brought(heads, links, entry, stream) + 1)
                drop_whole(heads, links, whole, per, entry)
                is_held = False
        if unlikely(is_late):
            note_late(whole, per, late, late_payload, stream, row, key, payload, CLOSED)
        if is_held:
            if entry == NONE:
                entry = np.int64(enter(buckets, keys, heads, whole, key))
            if unlikely(timed):
                arrivals[whole[FREE_SLOT]] = clock
            repeated = insert(heads, links, rows, payloads, whole, per, entry, stream, row, payload, queued) + 1
            if unlikely(repeated > per[stream, REPEATED]):
                per[stream, REPEATED] = repeated
        if sweeping:
            if policy == WINDOW_TIME:
                for other in range(len(per)):
                    per[other, LINE] = line_of(per, whole, records, other, clock)
                lowest(per, whole)
            else:
                before = per[stream, LINE]
                # Most tuples are not the greatest of their stream, and move no line.
                if is_moved or before == FLOOR or policy != PROGRESS:
                    line = line_of(per, whole, records, stream, clock)
                    if line != before:
                        per[stream, LINE] = line
                        if min(line, before) <= whole[NEXT_LINE] or stream == whole[LAST_STREAM]:
                            lowest(per, whole)
            if whole[MOVED]:
                drop_passed(buckets, keys, heads, links, pending, whole, per)
            if unlikely(whole[PENDING] > 0) and not write_closed(
                keys, heads, links, rows, payloads, pending, whole, per, out_rows, out_payloads, out_key, out_at
            ):
                return OUTPUT_FULL, t + 1
            if hurried and is_held and key >= whole[SWEPT_ALL] and is_brought(heads, links, per, entry):
                pending[0], whole[PENDING] = entry, 1
                if not write_closed(
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
