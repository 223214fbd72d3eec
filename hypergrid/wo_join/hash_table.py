"""The tuples that a join holds: a hash table from keys to entries, and a ring of tuples for each stream of an entry.

Where tuples are dropped by key, buckets follow the keys' order, so that a sweep goes through neighbouring buckets and
meets each entry once; `SHIFT` is how many low bits of a key a bucket spans. Elsewhere buckets are scattered (SHIFT -1).
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
    Floats,
    Ints,
    Narrow,
)

SCATTER = -7046029254386353131
"""2^64 over the golden ratio (Knuth's multiplicative hashing)."""


@jit_inline
def bucket_at(buckets: Narrow, shift: int, key: int) -> int:
    """Return the bucket of a key."""
    if shift >= 0:
        return (key >> shift) & (len(buckets) - 1)
    return ((key * SCATTER) >> 20) & (len(buckets) - 1)


@jit_inline
def find(buckets: Narrow, keys: Ints, heads: Narrow, join_state: Ints, key: int) -> int:
    """Return the entry of a key, or NONE."""
    entry = buckets[index(bucket_at(buckets, join_state[SHIFT], key))]
    while entry != NONE and keys[index(entry)] != key:
        entry = heads[index(entry), AFTER]
    return int(entry)


@jit_inline
def enter(buckets: Narrow, keys: Ints, heads: Narrow, join_state: Ints, key: int) -> int:
    """Return a new entry for a key that has none; there must be a free one, and of no stream is there a tuple in it."""
    entry = index(join_state[FREE_ENTRY])
    join_state[FREE_ENTRY] = heads[entry, AFTER]
    bucket = index(bucket_at(buckets, join_state[SHIFT], key))
    keys[entry] = key
    heads[entry, AFTER] = buckets[bucket]
    buckets[bucket] = entry
    heads[entry, SIZE] = 0
    # Asked first at the first arrival of any other stream: the last one.
    heads[entry, WATCH] = heads.shape[1] - TAILS - 1
    join_state[ENTRIES] += 1
    join_state[CREATED] += 1
    return int(entry)


@jit_inline
def insert(
    heads: Narrow,
    links: Narrow,
    rows: Ints,
    payloads: Floats,
    join_state: Ints,
    stream_state: Ints,
    entry: int,
    stream: int,
    row: int,
    payload: float,
    queued: int,
) -> int:
    """Put a tuple behind those of its stream in an entry, return how many these were; there must be a free slot."""
    slot = index(join_state[FREE_SLOT])
    join_state[FREE_SLOT] = links[slot, NEXT]
    rows[slot] = row
    payloads[slot] = payload
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
    if queued:
        links[slot, YOUNGER] = NONE
        if stream_state[stream, NEWEST] == NONE:
            stream_state[stream, OLDEST] = slot
        else:
            links[stream_state[stream, NEWEST], YOUNGER] = slot
        stream_state[stream, NEWEST] = slot
    return ordinal


@jit_inline
def drop_chain(heads: Narrow, links: Narrow, join_state: Ints, stream_state: Ints, entry: int, stream: int) -> None:
    """Drop all tuples of one stream from an entry, which may be left empty."""
    tail = heads[entry, TAILS + stream]
    tail = index(tail)
    head = index(links[tail, NEXT])
    dropped = links[tail, ORDINAL] - links[head, ORDINAL] + 1
    links[tail, NEXT] = join_state[FREE_SLOT]
    join_state[FREE_SLOT] = head
    heads[entry, TAILS + stream] = NONE
    heads[entry, SIZE] -= dropped
    stream_state[stream, HELD] -= dropped
    join_state[HELD_ALL] -= dropped


@jit_inline
def drop_chains(heads: Narrow, links: Narrow, join_state: Ints, stream_state: Ints, entry: int) -> None:
    """Drop all tuples from an entry."""
    free_slot = join_state[FREE_SLOT]
    for stream in range(heads.shape[1] - TAILS):
        tail = heads[entry, TAILS + stream]
        if tail != NONE:
            tail = index(tail)
            head = index(links[tail, NEXT])
            links[tail, NEXT] = free_slot
            free_slot = head
            stream_state[stream, HELD] -= links[tail, ORDINAL] - links[head, ORDINAL] + 1
            heads[entry, TAILS + stream] = NONE
    join_state[FREE_SLOT] = free_slot
    join_state[HELD_ALL] -= heads[entry, SIZE]
    heads[entry, SIZE] = 0


@jit
def unlink(buckets: Narrow, keys: Ints, heads: Narrow, join_state: Ints, entry: int) -> None:
    """Take an entry out of its bucket."""
    bucket = bucket_at(buckets, join_state[SHIFT], keys[entry])
    before = buckets[bucket]
    if before == entry:
        buckets[bucket] = heads[entry, AFTER]
        return
    while heads[before, AFTER] != entry:
        before = heads[before, AFTER]
    heads[before, AFTER] = heads[entry, AFTER]


@jit_inline
def free(heads: Narrow, join_state: Ints, entry: int) -> None:
    """Give back an entry that is empty and in no bucket."""
    heads[entry, SIZE] = 0
    heads[entry, AFTER] = join_state[FREE_ENTRY]
    join_state[FREE_ENTRY] = entry
    join_state[ENTRIES] -= 1


@jit
def drop_oldest(
    buckets: Narrow, keys: Ints, heads: Narrow, links: Narrow, join_state: Ints, stream_state: Ints, stream: int
) -> None:
    """Drop the tuple of a stream that came first (thesis 3.2.1: buffers are first in, first out)."""
    slot = stream_state[stream, OLDEST]
    stream_state[stream, OLDEST] = links[slot, YOUNGER]
    if stream_state[stream, OLDEST] == NONE:
        stream_state[stream, NEWEST] = NONE
    entry = links[slot, OWNER]
    tail = heads[entry, TAILS + stream]
    # The oldest of the stream is the first of its ring too.
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
        unlink(buckets, keys, heads, join_state, entry)
        free(heads, join_state, entry)


@jit_inline
def sweep(
    buckets: Narrow,
    keys: Ints,
    heads: Narrow,
    links: Narrow,
    pending: Narrow,
    join_state: Ints,
    stream_state: Ints,
    start: int,
    stop: int,
    stream: int,
    closing: int,
) -> int:
    """Drop what has a key from `start` to below `stop`: of one stream, or whole entries where it is NONE.

    Where `closing` is 0 or more, entries of which something is held are not dropped but taken out and added to the
    pending ones, of which there are so many already; returns how many there are now.
    """
    shift, size = join_state[SHIFT], len(buckets)
    first, last = start >> shift, (stop - 1) >> shift
    if start <= FLOOR or last - first >= size:
        first = last - size + 1
    for number in range(first, last + 1):
        bucket = index(number & (size - 1))
        before = NONE
        entry = buckets[bucket]
        join_state[VISITS] += 1
        while entry != NONE:
            entry = index(entry)
            after = heads[entry, AFTER]
            gone = False
            if keys[entry] < stop:
                if stream != NONE:
                    if heads[entry, TAILS + stream] != NONE:
                        drop_chain(heads, links, join_state, stream_state, entry, stream)
                        gone = heads[entry, SIZE] == 0
                else:
                    gone = True
                    if closing < 0 and heads[entry, SIZE] > 0:
                        drop_chains(heads, links, join_state, stream_state, entry)
            if gone:
                join_state[DROPS] += 1
                if before == NONE:
                    buckets[bucket] = after
                else:
                    heads[before, AFTER] = after
                if stream == NONE and closing >= 0 and heads[entry, SIZE] > 0:
                    pending[closing] = entry
                    closing += 1
                else:
                    free(heads, join_state, entry)
            else:
                before = entry
                join_state[VISITS] += 1
            entry = after
    return closing


@jit
def link_all(buckets: Narrow, keys: Ints, heads: Narrow, join_state: Ints) -> None:
    """Put every key that is held into its bucket anew."""
    for bucket in range(len(buckets)):
        buckets[bucket] = NONE
    for entry in range(len(heads)):
        if heads[entry, SIZE] != 0:
            bucket = bucket_at(buckets, join_state[SHIFT], keys[entry])
            heads[entry, AFTER] = buckets[bucket]
            buckets[bucket] = entry


@jit_maker
def gather_slots(heads: Narrow, links: Narrow, count: int) -> tuple[Ints, Ints]:
    """Return the slots of the `count` tuples that are held, and the stream of each."""
    slots, owners = np.empty(count, np.int64), np.empty(count, np.int64)
    slot_count = 0
    for entry in range(len(heads)):
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
def reinsert(
    buckets: Narrow,
    keys: Ints,
    heads: Narrow,
    links: Narrow,
    rows: Ints,
    payloads: Floats,
    arrivals: Ints,
    join_state: Ints,
    stream_state: Ints,
    queued: int,
    owner: Ints,
    key: Ints,
    row: Ints,
    payload: Floats,
    ordinal: Narrow,
    arrival: Ints,
    whole_keys: Ints,
) -> None:
    """Insert tuples as they were held, in order of arrival within each stream, and keys that are whole.

    Arrivals may be none.
    """
    for number in range(len(row)):
        entry = find(buckets, keys, heads, join_state, key[number])
        if entry == NONE:
            entry = enter(buckets, keys, heads, join_state, key[number])
        slot = join_state[FREE_SLOT]
        insert(
            heads,
            links,
            rows,
            payloads,
            join_state,
            stream_state,
            entry,
            owner[number],
            row[number],
            payload[number],
            queued,
        )
        links[slot, ORDINAL] = ordinal[number]
        if len(arrival):
            arrivals[slot] = arrival[number]
    for key_of_whole in whole_keys:
        heads[enter(buckets, keys, heads, join_state, key_of_whole), SIZE] = WHOLE


@jit_maker
def number_rows(stream: Narrow, brought: Ints) -> Ints:
    """Return each tuple's number in its stream, and count them on in `brought`."""
    row = np.empty(len(stream), np.int64)
    for tuple_index in range(len(stream)):
        row[tuple_index] = brought[stream[tuple_index]]
        brought[stream[tuple_index]] += 1
    return row
