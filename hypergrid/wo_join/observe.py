"""Monitors of single streams, updated at every arrival (thesis 3.2.2).

The physical index of a tuple is its number in its stream. Its displacement is its distance behind the first tuple with
a key at least as great as its own; the scrambling factor is the greatest displacement. Only running maxima can be that
first tuple, so it is found among them by bisection. Disorder is the same in key units: the greatest key so far minus
the tuple's own.
"""

import numpy as np

from hypergrid.wo_join.compiled import index, jit, jit_inline, jit_shared, unlikely
from hypergrid.wo_join.state_layout import (
    ABOVE,
    BUCKETS,
    COUNT,
    COUNTED,
    DISPLACED,
    DISPLACED_BEFORE,
    END_RECORD,
    EPOCH,
    FINE,
    FIRST_RECORD,
    FLOOR,
    GREATEST,
    GUARD,
    GUARDED,
    KNOWN_DISPLACED,
    KNOWN_REPEATED,
    LAST,
    QUANTILE,
    RATED,
    REPEATED,
    REPEATED_BEFORE,
    SHORT,
    STILL,
    TURN,
    WORST,
    WORST_BEFORE,
    Ints,
    KnownArrays,
    MonitorState,
    Narrow,
)


@jit_shared
def bucket_of(disorder: int) -> int:
    """Return the histogram bucket of a nonnegative disorder: exact below 64, then to 1/32."""
    if disorder < 2 << FINE:
        return disorder
    shift = (int(np.float64(disorder).view(np.int64)) >> 52) - 1023 - FINE
    return (shift << FINE) + min(disorder >> shift, (2 << FINE) - 1)


@jit_shared
def upper_of(bucket: int) -> int:
    """Return the greatest disorder of a bucket."""
    if bucket < 2 << FINE:
        return bucket
    shift = (bucket >> FINE) - 1
    return (((bucket & ((1 << FINE) - 1)) + (1 << FINE) + 1) << shift) - 1


@jit_shared
def disorder_of(stream_state: Ints, stream: int) -> int:
    """Return the quantile of disorder; -1 if within it every tuple exceeded all before."""
    return upper_of(stream_state[stream, QUANTILE]) - 1


@jit_inline
def find_record(stream_state: Ints, records: Ints, stream: int, key: int) -> int:
    """Find the first running maximum that is at least the key; one must exist."""
    mask = index(records.shape[1] - 1)
    first, high = stream_state[stream, FIRST_RECORD], stream_state[stream, END_RECORD] - 1
    step = 1
    # Search from the newest backwards, because disorder is usually small.
    low = high - step
    while low >= first and records[stream, low & mask, 1] >= key:
        high = low
        step *= 2
        low = high - step
    low = max(low, first - 1)
    while high - low > 1:
        middle = (low + high) >> 1
        if records[stream, middle & mask, 1] >= key:
            high = middle
        else:
            low = middle
    return int(high)


@jit
def set_guard(stream_state: Ints, records: Ints, stream: int) -> None:
    """Set the key above which no tuple can exceed this epoch's displacement, valid for some arrivals."""
    # A tuple exceeds it if the running maximum of more than the greatest displacement ago is at least its key. That
    # maximum only grows, so one value serves for several arrivals, and hardly any tuple needs a search.
    mask = index(records.shape[1] - 1)
    first, low, high = (
        stream_state[stream, FIRST_RECORD],
        stream_state[stream, FIRST_RECORD],
        stream_state[stream, END_RECORD] - 1,
    )
    displaced = stream_state[stream, DISPLACED]
    stream_state[stream, GUARDED] = stream_state[stream, COUNT] + displaced // 4
    before = stream_state[stream, GUARDED] - displaced
    # Search from the newest backwards, because the distance is usually small.
    step = 1
    while high - step > low and records[stream, (high - step) & mask, 0] >= before:
        high -= step
        step *= 2
    low = max(low, high - step)
    while low < high:
        middle = (low + high + 1) >> 1
        if records[stream, middle & mask, 0] < before:
            low = middle
        else:
            high = middle - 1
    reaches = records[stream, low & mask, 0] < before or first > 0
    stream_state[stream, GUARD] = records[stream, low & mask, 1] if reaches else FLOOR


@jit
def turn_epoch(stream_state: Ints, spread: Narrow, stream: int, rare: int) -> None:
    """Start a new epoch; the current one becomes the previous one."""
    stream_state[stream, DISPLACED_BEFORE], stream_state[stream, DISPLACED] = stream_state[stream, DISPLACED], 0
    stream_state[stream, REPEATED_BEFORE], stream_state[stream, REPEATED] = stream_state[stream, REPEATED], 0
    stream_state[stream, WORST_BEFORE], stream_state[stream, WORST] = stream_state[stream, WORST], 0
    total = 0
    # Plane 0 covers both epochs, plane 1 the current one.
    for bucket in range(BUCKETS):
        spread[stream, 0, bucket] = spread[stream, 1, bucket]
        spread[stream, 1, bucket] = 0
        total += spread[stream, 0, bucket]
    stream_state[stream, COUNTED], stream_state[stream, ABOVE], stream_state[stream, QUANTILE] = total, 0, BUCKETS - 1
    settle_quantile(stream_state, spread, stream, rare)
    stream_state[stream, GUARDED] = 0


@jit_inline
def settle_quantile(stream_state: Ints, spread: Narrow, stream: int, rare: int) -> None:
    """Move the quantile to the least bucket that at most one in `rare` tuples exceeds."""
    allowed = stream_state[stream, COUNTED] // rare
    stream_state[stream, TURN] = (allowed + 1) * rare
    bucket, above = stream_state[stream, QUANTILE], stream_state[stream, ABOVE]
    while above > allowed:
        bucket += 1
        above -= spread[stream, 0, bucket]
    while bucket > 0 and above + spread[stream, 0, bucket] <= allowed:
        above += spread[stream, 0, bucket]
        bucket -= 1
    stream_state[stream, QUANTILE], stream_state[stream, ABOVE] = bucket, above


@jit_inline
def observe_tuple(monitors: MonitorState, stream: int, key: int, arrival: int, rare: int) -> tuple[int, bool]:
    """Monitor an arrival; return its displacement, and whether its watermark may change.

    The displacement [tuples] is returned if it is a new maximum of this epoch, otherwise 0.

    Parameters
    ----------
    rare
        One in this many tuples may exceed the quantile of disorder.
    """
    stream_state, records, spread = monitors.per, monitors.records, monitors.spread
    count = stream_state[stream, COUNT] + 1
    is_moved = unlikely(count & (EPOCH - 1) == 1 and count > EPOCH)
    if is_moved:
        turn_epoch(stream_state, spread, stream, rare)
    stream_state[stream, COUNT] = count
    stream_state[stream, LAST] = arrival
    monitors.rates[stream, count & (RATED - 1)] = arrival
    stream_state[stream, COUNTED] += 1
    mask = index(records.shape[1] - 1)
    if key > stream_state[stream, GREATEST]:
        end = stream_state[stream, END_RECORD]
        records[stream, end & mask, 0] = count
        records[stream, end & mask, 1] = key
        records[stream, end & mask, 2] = arrival
        stream_state[stream, END_RECORD] = end + 1
        if end + 1 - stream_state[stream, FIRST_RECORD] > records.shape[1]:
            stream_state[stream, FIRST_RECORD] += 1
        stream_state[stream, GREATEST] = key
        stream_state[stream, STILL] = 0
        spread[stream, 0, 0] += 1
        spread[stream, 1, 0] += 1
        if unlikely(stream_state[stream, COUNTED] >= stream_state[stream, TURN]):
            settle_quantile(stream_state, spread, stream, rare)
        return 0, True
    disorder = stream_state[stream, GREATEST] - key
    stream_state[stream, STILL] += 1
    if disorder > stream_state[stream, WORST]:
        stream_state[stream, WORST] = disorder
    # Bucket 0 counts tuples that were greater than all before.
    bucket = index(bucket_of(disorder + 1))
    spread[stream, 0, bucket] += 1
    spread[stream, 1, bucket] += 1
    is_above = bucket > stream_state[stream, QUANTILE]
    if unlikely(is_above or stream_state[stream, COUNTED] >= stream_state[stream, TURN]):
        stream_state[stream, ABOVE] += is_above
        settle_quantile(stream_state, spread, stream, rare)
        is_moved = True
    if unlikely(count > stream_state[stream, GUARDED]):
        set_guard(stream_state, records, stream)
    if not unlikely(key <= stream_state[stream, GUARD]):
        return 0, is_moved
    record_index = find_record(stream_state, records, stream, key)
    if (
        record_index == stream_state[stream, FIRST_RECORD]
        and record_index > 0
        and stream_state[stream, END_RECORD] - record_index == records.shape[1]
    ):
        # The search met the start of a full ring, so an even older record may have matched.
        stream_state[stream, SHORT] = 1
    displacement = count - records[stream, record_index & mask, 0]
    if displacement <= stream_state[stream, DISPLACED]:
        return 0, is_moved
    stream_state[stream, DISPLACED] = displacement
    return displacement, is_moved


@jit_shared
def scrambling(stream_state: Ints, stream: int) -> int:
    """Return the scrambling factor [tuples]: known, or the maximum over one to two epochs."""
    if stream_state[stream, KNOWN_DISPLACED] >= 0:
        return int(stream_state[stream, KNOWN_DISPLACED])
    return int(max(stream_state[stream, DISPLACED], stream_state[stream, DISPLACED_BEFORE]))


@jit_shared
def multiplicity(stream_state: Ints, stream: int) -> int:
    """Return the multiplicity [tuples]: known, or the maximum over one to two epochs."""
    if stream_state[stream, KNOWN_REPEATED] >= 0:
        return int(stream_state[stream, KNOWN_REPEATED])
    return int(max(stream_state[stream, REPEATED], stream_state[stream, REPEATED_BEFORE]))


@jit
def rate_of(monitors: MonitorState, known: KnownArrays, stream: int, clock: int) -> float:
    """Return the rate [Hz]: known, or of the last tuples; NaN before two tuples."""
    if known.rate[stream] == known.rate[stream]:
        return float(known.rate[stream])
    count = monitors.per[stream, COUNT]
    several = min(count, RATED) - 1
    if several < 1:
        return np.nan
    elapsed = clock - monitors.rates[stream, (count - several) & (RATED - 1)]
    return several * 1e9 / elapsed if elapsed > 0 else np.nan
