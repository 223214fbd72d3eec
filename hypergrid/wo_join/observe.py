"""Monitors of single streams, brought up to date at every arrival (thesis 3.2.2).

The physical index of a tuple is its number in its stream. Its displacement is how far it came behind the first tuple
with a key as great as its own; the scrambling factor is the greatest displacement. Only running maxima can be that
first tuple, so that it is found among them by bisection. Disorder is the same in key units: the greatest key so far
less the tuple's own.
"""

import numpy as np

from hypergrid.wo_join.compiled import compiled, compiled_within
from hypergrid.wo_join.hints import index, unlikely
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
    Floats,
    Ints,
    Narrow,
)


@compiled_within
def bucket_of(disorder: int) -> int:
    """Return the histogram's bucket of a disorder of zero or more: exact below 64, then to 1/32."""
    if disorder < 2 << FINE:
        return disorder
    shift = (int(np.float64(disorder).view(np.int64)) >> 52) - 1023 - FINE
    return (shift << FINE) + min(disorder >> shift, (2 << FINE) - 1)


@compiled_within
def upper_of(bucket: int) -> int:
    """Return the greatest disorder of a bucket."""
    if bucket < 2 << FINE:
        return bucket
    shift = (bucket >> FINE) - 1
    return (((bucket & ((1 << FINE) - 1)) + (1 << FINE) + 1) << shift) - 1


@compiled_within
def disorder_of(per: Ints, stream: int) -> int:
    """Return the quantile of disorder; -1 where all but a few tuples were greater than any before."""
    return upper_of(per[stream, QUANTILE]) - 1


@compiled_within
def first_as_great(per: Ints, records: Ints, stream: int, key: int) -> int:
    """Return the place of the first running maximum of at least the key, which there must be."""
    mask = index(records.shape[1] - 1)
    first, high = per[stream, FIRST_RECORD], per[stream, END_RECORD] - 1
    step = 1
    # From the newest backwards: what is out of order is seldom far out.
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


@compiled
def set_guard(per: Ints, records: Ints, stream: int) -> None:
    """Note the key above which no tuple can be displaced further than any of this epoch, for some arrivals to come.

    A tuple is, where the running maximum of more than the greatest displacement ago is as great as its key. That
    maximum only grows, so the one of some arrivals on serves until then, and hardly any tuple needs a search.
    """
    mask = index(records.shape[1] - 1)
    first, low, high = per[stream, FIRST_RECORD], per[stream, FIRST_RECORD], per[stream, END_RECORD] - 1
    displaced = per[stream, DISPLACED]
    per[stream, GUARDED] = per[stream, COUNT] + displaced // 4
    before = per[stream, GUARDED] - displaced
    # From the newest backwards: it is seldom far.
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
    per[stream, GUARD] = records[stream, low & mask, 1] if reaches else FLOOR


@compiled
def turn_epoch(per: Ints, spread: Narrow, stream: int, rare: int) -> None:
    """Forget the epoch before; this one becomes it."""
    per[stream, DISPLACED_BEFORE], per[stream, DISPLACED] = per[stream, DISPLACED], 0
    per[stream, REPEATED_BEFORE], per[stream, REPEATED] = per[stream, REPEATED], 0
    per[stream, WORST_BEFORE], per[stream, WORST] = per[stream, WORST], 0
    total = 0
    for bucket in range(BUCKETS):
        spread[stream, 0, bucket] = spread[stream, 1, bucket]
        spread[stream, 1, bucket] = 0
        total += spread[stream, 0, bucket]
    per[stream, COUNTED], per[stream, ABOVE], per[stream, QUANTILE] = total, 0, BUCKETS - 1
    settle(per, spread, stream, rare)
    per[stream, GUARDED] = 0


@compiled_within
def settle(per: Ints, spread: Narrow, stream: int, rare: int) -> None:
    """Move the quantile to the least bucket that at most one in `rare` tuples lies above."""
    allowed = per[stream, COUNTED] // rare
    per[stream, TURN] = (allowed + 1) * rare
    bucket, above = per[stream, QUANTILE], per[stream, ABOVE]
    while above > allowed:
        bucket += 1
        above -= spread[stream, 0, bucket]
    while bucket > 0 and above + spread[stream, 0, bucket] <= allowed:
        above += spread[stream, 0, bucket]
        bucket -= 1
    per[stream, QUANTILE], per[stream, ABOVE] = bucket, above


@compiled_within
def observe(
    per: Ints, records: Ints, rates: Ints, spread: Narrow, stream: int, key: int, arrival: int, rare: int
) -> tuple[int, bool]:
    """Take note of an arrival; return its displacement, and whether greatest key or quantile may have moved.

    The displacement [tuples] is told where none in this epoch was greater; else it is 0.

    Parameters
    ----------
    rare
        Of this many tuples, one may lie above the quantile of disorder.
    """
    count = per[stream, COUNT] + 1
    is_moved = unlikely(count & (EPOCH - 1) == 1 and count > EPOCH)
    if is_moved:
        turn_epoch(per, spread, stream, rare)
    per[stream, COUNT] = count
    per[stream, LAST] = arrival
    rates[stream, count & (RATED - 1)] = arrival
    per[stream, COUNTED] += 1
    mask = index(records.shape[1] - 1)
    if key > per[stream, GREATEST]:
        end = per[stream, END_RECORD]
        records[stream, end & mask, 0] = count
        records[stream, end & mask, 1] = key
        records[stream, end & mask, 2] = arrival
        per[stream, END_RECORD] = end + 1
        if end + 1 - per[stream, FIRST_RECORD] > records.shape[1]:
            per[stream, FIRST_RECORD] += 1
        per[stream, GREATEST] = key
        per[stream, STILL] = 0
        spread[stream, 0, 0] += 1
        spread[stream, 1, 0] += 1
        if unlikely(per[stream, COUNTED] >= per[stream, TURN]):
            settle(per, spread, stream, rare)
        return 0, True
    disorder = per[stream, GREATEST] - key
    per[stream, STILL] += 1
    if disorder > per[stream, WORST]:
        per[stream, WORST] = disorder
    # Bucket 0 is of those that were greater than any before.
    bucket = index(bucket_of(disorder + 1))
    spread[stream, 0, bucket] += 1
    spread[stream, 1, bucket] += 1
    is_above = bucket > per[stream, QUANTILE]
    if unlikely(is_above or per[stream, COUNTED] >= per[stream, TURN]):
        per[stream, ABOVE] += is_above
        settle(per, spread, stream, rare)
        is_moved = True
    if unlikely(count > per[stream, GUARDED]):
        set_guard(per, records, stream)
    if not unlikely(key <= per[stream, GUARD]):
        return 0, is_moved
    place = first_as_great(per, records, stream, key)
    if place == per[stream, FIRST_RECORD] and place > 0 and per[stream, END_RECORD] - place == records.shape[1]:
        per[stream, SHORT] = 1
    displacement = count - records[stream, place & mask, 0]
    if displacement <= per[stream, DISPLACED]:
        return 0, is_moved
    per[stream, DISPLACED] = displacement
    return displacement, is_moved


@compiled_within
def scrambling(per: Ints, stream: int) -> int:
    """Return the scrambling factor [tuples]: the known one, or the greatest displacement of one to two epochs."""
    if per[stream, KNOWN_DISPLACED] >= 0:
        return int(per[stream, KNOWN_DISPLACED])
    return int(max(per[stream, DISPLACED], per[stream, DISPLACED_BEFORE]))


@compiled_within
def multiplicity(per: Ints, stream: int) -> int:
    """Return the multiplicity [tuples]: the known one, or the greatest of one to two epochs."""
    if per[stream, KNOWN_REPEATED] >= 0:
        return int(per[stream, KNOWN_REPEATED])
    return int(max(per[stream, REPEATED], per[stream, REPEATED_BEFORE]))


@compiled
def rate_of(per: Ints, rates: Ints, known: Floats, stream: int, clock: int) -> float:
    """Return the rate [Hz]: the known one, or that of the last tuples until now; NaN where there is none yet."""
    if known[stream] == known[stream]:
        return float(known[stream])
    count = per[stream, COUNT]
    several = min(count, RATED) - 1
    if several < 1:
        return np.nan
    elapsed = clock - rates[stream, (count - several) & (RATED - 1)]
    return several * 1e9 / elapsed if elapsed > 0 else np.nan
