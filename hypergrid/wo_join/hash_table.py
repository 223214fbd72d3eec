"""Hash table of held tuples: from keys to entries with a ring for each stream.

If tuples are dropped by key, buckets follow the order of keys: a sweep visits neighbouring buckets and meets each entry
once. `SHIFT` is the number of low key bits that one bucket spans. Otherwise keys are scattered (SHIFT -1).
"""

import numpy as np

from hypergrid.wo_join.compiled import index, jit, jit_inline, jit_maker
from hypergrid.wo_join.state_layout import (
    AFTER,
    CREATED,
    DROPS,
    ENTRIES,
    FLOOR,
    FREE_ENTRY,
    FREE_SLOT,
    HELD,
    HELD_ALL,
    NEWEST,
    NEXT,
    NONE,
    OLDEST,
    ORDINAL,
    OWNER,
    PEAK,
    PEAK_ALL,
    SHIFT,
    SIZE,
    TAILS,
    VISITS,
    WATCH,
    WHOLE,
    YOUNGER,
    Batch,
    Ints,
    JoinState,
    Narrow,
    StreamTuple,
)

SCATTER = -7046029254386353131
"""2^64 over the golden ratio (Knuth's multiplicative hashing)."""


@jit_inline
def bucket_at(state: JoinState, key: int) -> int:
    shift: int = state.join_state[SHIFT]
    buckets = state.held.buckets
    # Tried and 0.2 to 1.4 ns a tuple slower: one branchless formula for both kinds of buckets.
    if shift >= 0:
        return (key >> shift) & (len(buckets) - 1)
    return ((key * SCATTER) >> 20) & (len(buckets) - 1)


@jit_inline
def find(state: JoinState, key: int) -> int:
    """Look up the entry of a key; NONE if it has none."""
    entry = state.held.buckets[index(bucket_at(state, key))]
    while entry != NONE and state.held.keys[index(entry)] != key:
        entry = state.held.heads[index(entry), AFTER]
    return int(entry)


@jit_inline
def enter(state: JoinState, key: int) -> int:
    """Create an empty entry for a key that has none; a free entry must exist."""
    join_state, heads, buckets = state.join_state, state.held.heads, state.held.buckets
    entry = index(join_state[FREE_ENTRY])
    join_state[FREE_ENTRY] = heads[entry, AFTER]
    bucket = index(bucket_at(state, key))
    state.held.keys[entry] = key
    heads[entry, AFTER] = buckets[bucket]
    buckets[bucket] = entry
    heads[entry, SIZE] = 0
    # The first stream to be probed when another stream's tuple arrives.
    heads[entry, WATCH] = heads.shape[1] - TAILS - 1
    join_state[ENTRIES] += 1
    join_state[CREATED] += 1
    return int(entry)


@jit_inline
def insert(state: JoinState, entry: int, stream_tuple: StreamTuple) -> int:
    """Append a tuple to its stream's ring in an entry; return the ring's previous size.

    A free slot must exist.
    """
    join_state, stream_state, stream = state.join_state, state.monitors.per, stream_tuple.stream
    heads, links = state.held.heads, state.held.links
    slot = index(join_state[FREE_SLOT])
    join_state[FREE_SLOT] = links[slot, NEXT]
    state.held.rows[slot], state.held.payloads[slot] = stream_tuple.row, stream_tuple.payload
    links[slot, OWNER] = entry
    tail = heads[entry, TAILS + stream]
    ordinal = 0
    if tail == NONE:
        links[slot, NEXT] = slot
    else:
        tail = index(tail)
        links[slot, NEXT] = links[tail, NEXT]
        links[tail, NEXT] = slot
        ordinal = links[tail, ORDINAL] + 1
    links[slot, ORDINAL] = ordinal
    heads[entry, TAILS + stream] = slot
    heads[entry, SIZE] += 1
    held, held_all = stream_state[stream, HELD] + 1, join_state[HELD_ALL] + 1
    stream_state[stream, HELD], join_state[HELD_ALL] = held, held_all
    if held > stream_state[stream, PEAK]:
        stream_state[stream, PEAK] = held
    if held_all > join_state[PEAK_ALL]:
        join_state[PEAK_ALL] = held_all
    # Queue of the stream by arrival, for policies that drop its oldest tuple.
    if join_state[SHIFT] < 0:
        links[slot, YOUNGER] = NONE
        if stream_state[stream, NEWEST] == NONE:
            stream_state[stream, OLDEST] = slot
        else:
            links[stream_state[stream, NEWEST], YOUNGER] = slot
        stream_state[stream, NEWEST] = slot
    return ordinal


@jit_inline
def drop_chain(state: JoinState, entry: int, stream: int) -> None:
    """Drop all tuples of one stream from an entry, which may become empty."""
    join_state, heads, links = state.join_state, state.held.heads, state.held.links
    tail = index(heads[entry, TAILS + stream])
    head = index(links[tail, NEXT])
    dropped = links[tail, ORDINAL] - links[head, ORDINAL] + 1
    # The whole ring is put in front of the free list.
    links[tail, NEXT] = join_state[FREE_SLOT]
    join_state[FREE_SLOT] = head
    heads[entry, TAILS + stream] = NONE
    heads[entry, SIZE] -= dropped
    state.monitors.per[stream, HELD] -= dropped
    join_state[HELD_ALL] -= dropped


@jit_inline
def drop_chains(state: JoinState, entry: int) -> None:
    """Free the chains of all streams at an entry."""
    join_state, heads, links = state.join_state, state.held.heads, state.held.links
    free_slot = join_state[FREE_SLOT]
    for stream in range(heads.shape[1] - TAILS):
        tail = heads[entry, TAILS + stream]
        if tail != NONE:
            tail = index(tail)
            head = index(links[tail, NEXT])
            links[tail, NEXT] = free_slot
            free_slot = head
            state.monitors.per[stream, HELD] -= links[tail, ORDINAL] - links[head, ORDINAL] + 1
            heads[entry, TAILS + stream] = NONE
    join_state[FREE_SLOT] = free_slot
    join_state[HELD_ALL] -= heads[entry, SIZE]
    heads[entry, SIZE] = 0


@jit
def unlink(state: JoinState, entry: int) -> None:
    """Remove an entry from its bucket."""
    buckets, heads = state.held.buckets, state.held.heads
    bucket = bucket_at(state, state.held.keys[entry])
    before = buckets[bucket]
    if before == entry:
        buckets[bucket] = heads[entry, AFTER]
        return
    while heads[before, AFTER] != entry:
        before = heads[before, AFTER]
    heads[before, AFTER] = heads[entry, AFTER]


@jit_inline
def free(state: JoinState, entry: int) -> None:
    """Return an empty, unlinked entry to the free list."""
    join_state, heads = state.join_state, state.held.heads
    heads[entry, SIZE] = 0
    heads[entry, AFTER] = join_state[FREE_ENTRY]
    join_state[FREE_ENTRY] = entry
    join_state[ENTRIES] -= 1


@jit
def drop_oldest(state: JoinState, stream: int) -> None:
    """Drop the oldest tuple of a stream by arrival (first in, first out; thesis 3.2.1)."""
    join_state, stream_state = state.join_state, state.monitors.per
    heads, links = state.held.heads, state.held.links
    slot = stream_state[stream, OLDEST]
    stream_state[stream, OLDEST] = links[slot, YOUNGER]
    if stream_state[stream, OLDEST] == NONE:
        stream_state[stream, NEWEST] = NONE
    entry = links[slot, OWNER]
    tail = heads[entry, TAILS + stream]
    # The stream's oldest tuple is always the first of its ring.
    if tail == slot:
        heads[entry, TAILS + stream] = NONE
    else:
        links[tail, NEXT] = links[slot, NEXT]
    links[slot, NEXT] = join_state[FREE_SLOT]
    join_state[FREE_SLOT] = slot
    stream_state[stream, HELD] -= 1
    join_state[HELD_ALL] -= 1
    heads[entry, SIZE] -= 1
    if heads[entry, SIZE] == 0:
        unlink(state, entry)
        free(state, entry)


@jit_inline
def sweep(state: JoinState, start: int, stop: int, stream: int, closing: int) -> int:
    """Drop keys from `start` to below `stop`: of one stream, or whole entries (NONE).

    If `closing` is 0 or more, it is the number of entries already in `pending`: nonempty entries are then appended to
    `pending` instead of dropped. Returns the new number.
    """
    join_state, held = state.join_state, state.held
    shift, size = join_state[SHIFT], len(held.buckets)
    first, last = start >> shift, (stop - 1) >> shift
    # There are more bucket numbers than buckets: visit each bucket once.
    if start <= FLOOR or last - first >= size:
        first = last - size + 1
    for number in range(first, last + 1):
        bucket = index(number & (size - 1))
        before = NONE
        entry = held.buckets[bucket]
        join_state[VISITS] += 1
        while entry != NONE:
            entry = index(entry)
            after = held.heads[entry, AFTER]
            gone = False
            if held.keys[entry] < stop:
                if stream != NONE:
                    if held.heads[entry, TAILS + stream] != NONE:
                        drop_chain(state, entry, stream)
                        gone = held.heads[entry, SIZE] == 0
                else:
                    gone = True
                    if closing < 0 and held.heads[entry, SIZE] > 0:
                        drop_chains(state, entry)
            if gone:
                join_state[DROPS] += 1
                if before == NONE:
                    held.buckets[bucket] = after
                else:
                    held.heads[before, AFTER] = after
                if stream == NONE and closing >= 0 and held.heads[entry, SIZE] > 0:
                    held.pending[closing] = entry
                    closing += 1
                else:
                    free(state, entry)
            else:
                before = entry
                join_state[VISITS] += 1
            entry = after
    return closing


@jit
def link_all(state: JoinState) -> None:
    """Rebuild all bucket chains."""
    buckets, heads = state.held.buckets, state.held.heads
    for bucket in range(len(buckets)):
        buckets[bucket] = NONE
    for entry in range(len(heads)):
        # Completed entries (WHOLE) must be found too, to detect late tuples.
        if heads[entry, SIZE] != 0:
            bucket = bucket_at(state, state.held.keys[entry])
            heads[entry, AFTER] = buckets[bucket]
            buckets[bucket] = entry


@jit_maker
def gather_slots(heads: Narrow, links: Narrow, count: int) -> tuple[Ints, Ints]:
    """Collect the slots of the `count` tuples that are held, and the stream of each."""
    slots, owners = np.empty(count, np.int64), np.empty(count, np.int64)
    slot_count = 0
    for entry in range(len(heads)):
        # Free and completed entries hold no tuples.
        if heads[entry, SIZE] <= 0:
            continue
        for stream in range(heads.shape[1] - TAILS):
            tail = np.int64(heads[entry, TAILS + stream])
            if tail == NONE:
                continue
            slot = tail
            while True:
                slots[slot_count], owners[slot_count] = slot, stream
                slot_count += 1
                slot = np.int64(links[slot, NEXT])
                if slot == tail:
                    break
    return slots, owners


@jit
def reinsert(state: JoinState, batch: Batch, ordinal: Narrow, whole_keys: Ints) -> None:
    """Restore held tuples, in order of arrival within each stream, and the keys of completed entries.

    The batch may have no arrivals.
    """
    for number in range(len(batch.row)):
        key, slot = batch.key[number], state.join_state[FREE_SLOT]
        entry = find(state, key)
        if entry == NONE:
            entry = enter(state, key)
        insert(state, entry, StreamTuple(batch.stream[number], batch.row[number], key, batch.payload[number]))
        state.held.links[slot, ORDINAL] = ordinal[number]
        if len(batch.arrival):
            state.held.arrivals[slot] = batch.arrival[number]
    for key_of_whole in whole_keys:
        state.held.heads[enter(state, key_of_whole), SIZE] = WHOLE


@jit_maker
def number_rows(stream: Narrow, brought: Ints) -> Ints:
    """Assign row numbers within each stream, continuing and advancing the counts in `brought`."""
    row = np.empty(len(stream), np.int64)
    for tuple_index in range(len(stream)):
        row[tuple_index] = brought[stream[tuple_index]]
        brought[stream[tuple_index]] += 1
    return row
