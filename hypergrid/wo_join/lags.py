"""Ranks, lags and the buffer bound of the thesis (3.2.3, 3.3), updated at every arrival.

Definition 3.2.6 asks for ranks among future tuples. What the arrivals so far allow is, for a leading stream, the number
of its tuples with keys beyond the greatest of the lagging one, which is exact for what has arrived. A lagging stream
lacks the tuples that the other has beyond its own greatest key, converted to its own rate.
"""

from typing import Any

import numpy as np

from hypergrid.wo_join.compiled import jit
from hypergrid.wo_join.observe import observe_tuple, rate_of, scrambling
from hypergrid.wo_join.state_layout import (
    ASLEEP,
    BELOW,
    BOUND,
    CEILING,
    COUNT,
    DONE,
    FLOOR,
    GREATEST,
    KNOWN_DISPLACED,
    RANKED,
    RANKS_FULL,
    RECORDS_SHORT,
    REPEATED,
    SHORT,
    WARM,
    Floats,
    Ints,
    MonitorState,
    Narrow,
)

MARGIN = 1024
"""Keys retained below those that lags need, so that ranks of late tuples are exact."""


@jit
def rank_of(stream_state: Ints, ranks: Ints, stream: int, key: int) -> int:
    """Count the sorted keys of a stream that are less than a key."""
    low, high = 0, stream_state[stream, RANKED]
    while low < high:
        middle = (low + high) >> 1
        if ranks[stream, middle] < key:
            low = middle + 1
        else:
            high = middle
    return low


@jit
def find_passed(stream_state: Ints, ranks: Ints, stream: int, factor: int) -> int:
    """Return the key that all but `factor` tuples of a stream have passed, else FLOOR.

    This is the key of s'_j in equation 3.7: with the scrambling factor as `factor`, all future tuples have greater keys
    (definition 3.2.2), so its rank is final. FLOOR means that the stream has at most `factor` tuples.
    """
    rank = stream_state[stream, COUNT] - factor - stream_state[stream, BELOW] - 1
    if stream_state[stream, COUNT] <= factor:
        return FLOOR
    # The least retained key replaces one that is no longer in the list.
    return int(ranks[stream, max(rank, 0)])


@jit
def make_room(stream_state: Ints, ranks: Ints, stream: int) -> bool:
    """Drop the least keys of a full list; False if more than three quarters of it are still needed."""
    size = stream_state[stream, RANKED]
    # Twice the factor, because it may grow.
    drop = size - 2 * scrambling(stream_state, stream) - MARGIN
    for other in range(len(stream_state)):
        if other != stream:
            needed = find_passed(stream_state, ranks, other, scrambling(stream_state, other))
            drop = min(drop, rank_of(stream_state, ranks, stream, needed) - MARGIN)
    if drop < size // 4:
        return False
    for rank in range(size - drop):
        ranks[stream, rank] = ranks[stream, rank + drop]
    stream_state[stream, RANKED] = size - drop
    stream_state[stream, BELOW] += drop
    return True


@jit
def rank_in(stream_state: Ints, ranks: Ints, stream: int, key: int) -> None:
    """Insert a key into the sorted list of its stream, and update the multiplicity."""
    rank = stream_state[stream, RANKED]
    stream_state[stream, RANKED] = rank + 1
    # From the end, because keys mostly grow.
    while rank > 0 and ranks[stream, rank - 1] > key:
        ranks[stream, rank] = ranks[stream, rank - 1]
        rank -= 1
    ranks[stream, rank] = key
    run = 1
    while run <= rank and ranks[stream, rank - run] == key:
        run += 1
    stream_state[stream, REPEATED] = max(stream_state[stream, REPEATED], run)


@jit
def least_index(stream_state: Ints, ranks: Ints, stream: int, key: int) -> int:
    """Return a key's least virtual index: one plus the number of lesser keys."""
    return int(stream_state[stream, BELOW] + rank_of(stream_state, ranks, stream, key) + 1)


@jit
def greatest_index(stream_state: Ints, ranks: Ints, stream: int, key: int) -> int:
    """Return a key's greatest virtual index: the number of keys up to it."""
    return int(stream_state[stream, BELOW] + rank_of(stream_state, ranks, stream, key + 1))


@jit
def ratio_of(stream_state: Ints, rates: Ints, known: Floats, stream: int, other: int, clock: int) -> float:
    """Return the rate of a stream divided by that of another; 1 if either is unknown."""
    ratio = rate_of(stream_state, rates, known, stream, clock) / rate_of(stream_state, rates, known, other, clock)
    return ratio if ratio == ratio else 1.0


@jit
def lag_of(
    stream_state: Ints, rates: Ints, ranks: Ints, rate: Floats, lag: Floats, stream: int, other: int, clock: int
) -> float:
    """Return the lag from a stream to another [tuples], positive if it leads (definition 3.2.6)."""
    known = lag[stream, other]
    if known == known:
        return float(known)
    if stream_state[other, COUNT] == 0:
        return np.float64(stream_state[stream, COUNT])
    ahead = stream_state[stream, COUNT] - greatest_index(stream_state, ranks, stream, stream_state[other, GREATEST])
    if ahead > 0:
        return np.float64(ahead)
    lacking = stream_state[other, COUNT]
    if stream_state[stream, COUNT] > 0:
        lacking -= greatest_index(stream_state, ranks, other, stream_state[stream, GREATEST])
    return float(-np.floor(lacking * ratio_of(stream_state, rates, rate, stream, other, clock)))


@jit
def count_awaited(stream_state: Ints, ranks: Ints, stream: int, other: int, factor: int) -> int:
    """Count tuples beyond the key that all but `factor` of the other stream have passed.

    For S_i, S_j and k_j this is the sum of the last two terms of equation 3.7: the lag at tau', when s'_j arrived,
    which is known by now, plus the tuples of S_i counted since then, which are r_i k_j / r_j at the rates from tau' on.
    If S_i has not reached that key, the result is negative: the tuples it lacks, estimated from the mean distance of
    its keys.
    """
    key, ranked = find_passed(stream_state, ranks, other, factor), stream_state[stream, RANKED]
    lacking = key - stream_state[stream, GREATEST]
    if lacking <= 0 or ranked < WARM:
        return int(stream_state[stream, COUNT] - greatest_index(stream_state, ranks, stream, key))
    come = ranks[stream, ranked - 1] - ranks[stream, 0]
    return -int(lacking * (ranked - 1) / come) if come > 0 else 0


@jit
def reach_of(
    stream_state: Ints, rates: Ints, ranks: Ints, rate: Floats, lag: Floats, stream: int, other: int, clock: int
) -> float:
    """Return the tuples that equation 3.7 holds beyond the stream's own scrambling factor."""
    known, factor = lag[stream, other], scrambling(stream_state, other)
    if known == known:
        during = factor * ratio_of(stream_state, rates, rate, stream, other, clock) if factor > 0 else 0.0
        return float(during + known)
    return np.float64(count_awaited(stream_state, ranks, stream, other, factor))


@jit
def fill_lags(
    stream_state: Ints, rates: Ints, ranks: Ints, rate: Floats, lag: Floats, clock: int, lags: Floats
) -> None:
    """Write the lag from each stream to each other [tuples], shape (n, n)."""
    for i in range(len(stream_state)):
        for j in range(len(stream_state)):
            if i != j:
                lags[i, j] = lag_of(stream_state, rates, ranks, rate, lag, i, j, clock)


@jit
def count_all_awaited(stream_state: Ints, ranks: Ints, factors: Ints, ratios: Floats, reaches: Floats) -> None:
    """Write `count_awaited` for each pair of streams, shape (n, n).

    Tuples that are no longer in the sorted lists are estimated from the rate ratios, shape (n, n).
    """
    for i in range(len(stream_state)):
        for j in range(len(stream_state)):
            reach: float = count_awaited(stream_state, ranks, i, j, factors[j])
            forgotten = min(factors[j], stream_state[j, COUNT]) + 1 - stream_state[j, RANKED]
            if forgotten > 0 and stream_state[j, COUNT] > factors[j]:
                reach += forgotten * ratios[i, j]
            reaches[i, j] = reach


@jit
def fill_bounds(
    stream_state: Ints, rates: Ints, ranks: Ints, reaches: Floats, rate: Floats, lag: Floats, stream: int, clock: int
) -> None:
    """Update the bounds of all streams after an arrival of `stream` (equations 3.7 and 3.8).

    Only the reaches between that stream and the others change; those of all other pairs are kept in `reaches`.
    """
    n = len(stream_state)
    is_unknown = False
    for other in range(n):
        is_unknown |= (
            stream_state[other, COUNT] < WARM
            and stream_state[other, KNOWN_DISPLACED] < 0
            and not stream_state[other, ASLEEP]
        )
        if other != stream:
            reaches[stream, other] = reach_of(stream_state, rates, ranks, rate, lag, stream, other, clock)
            reaches[other, stream] = reach_of(stream_state, rates, ranks, rate, lag, other, stream, clock)
    for i in range(n):
        max_reach = -np.inf
        for j in range(n):
            if j != i and not stream_state[j, ASLEEP]:
                max_reach = max(max_reach, reaches[i, j])
        # At least one tuple, even if all other streams are asleep.
        # The 1e-9 keeps rounding errors from adding a tuple.
        bound = max(1.0, np.ceil(scrambling(stream_state, i) + max_reach - 1e-9))
        stream_state[i, BOUND] = CEILING if is_unknown else int(bound)


@jit
def observe_tuples(
    monitors: MonitorState, stream: Narrow, key: Ints, arrival: Ints, rare: int, start: int
) -> tuple[int, int]:
    """Monitor tuples without joining them; return a code and the first tuple that was not taken."""
    stream_state, records, rates, spread, ranks, _ = monitors
    for t in range(start, len(stream)):
        i: Any = np.int64(stream[t])
        if stream_state[i, SHORT]:
            return RECORDS_SHORT, t
        if stream_state[i, RANKED] == ranks.shape[1] and not make_room(stream_state, ranks, i):
            return RANKS_FULL, t
        observe_tuple(stream_state, records, rates, spread, i, key[t], arrival[t], rare)
        rank_in(stream_state, ranks, i, key[t])
    return DONE, len(stream)


@jit
def sort_along(
    monitors: MonitorState,
    waiting: Ints,
    ends: Ints,
    first_key: Ints,
    second_key: Ints,
    slack: int,
    rare: int,
    start: int,
) -> tuple[int, int]:
    """Sort by the first key within a buffer of `slack` tuples; monitor the second keys.

    `waiting` buffers both keys, shape (capacity, 2), valid between the two `ends`.
    """
    stream_state, records, rates, spread, _, _ = monitors
    for t in range(start, len(first_key)):
        if stream_state[0, SHORT]:
            return RECORDS_SHORT, t
        if ends[1] == len(waiting):
            for pair_index in range(ends[1] - ends[0]):
                waiting[pair_index, 0], waiting[pair_index, 1] = (
                    waiting[ends[0] + pair_index, 0],
                    waiting[ends[0] + pair_index, 1],
                )
            ends[0], ends[1] = 0, ends[1] - ends[0]
        pair_index = ends[1]
        while pair_index > ends[0] and waiting[pair_index - 1, 0] > first_key[t]:
            waiting[pair_index, 0], waiting[pair_index, 1] = waiting[pair_index - 1, 0], waiting[pair_index - 1, 1]
            pair_index -= 1
        waiting[pair_index, 0], waiting[pair_index, 1] = first_key[t], second_key[t]
        ends[1] += 1
        if ends[1] - ends[0] > slack:
            observe_tuple(stream_state, records, rates, spread, 0, waiting[ends[0], 1], stream_state[0, COUNT], rare)
            ends[0] += 1
    return DONE, len(first_key)
