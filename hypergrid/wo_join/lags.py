"""Ranks, lags and the buffer bound of the thesis (3.2.3, 3.3), at every arrival.

Definition 3.2.6 asks for ranks among tuples yet to come. What the arrivals so far allow: the tuples of the leading
stream with keys beyond the greatest of the lagging one, which is exact for what has arrived. Where the stream itself
lags, the tuples that it lacks are those of the other beyond its own greatest key, at its own rate.
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
"""Keys kept below those that lags need, so that ranks of late tuples are exact."""


@jit
def rank_of(stream_state: Ints, ranks: Ints, stream: int, key: int) -> int:
    """Return how many of the sorted keys of a stream lie below a key."""
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
    """Return the key that all but so many tuples of a stream have passed, FLOOR where no more came.

    It is that of s'_j in equation 3.7: with the scrambling factor for `factor`, all to come have greater keys
    (definition 3.2.2), so that its rank is known.
    """
    rank = stream_state[stream, COUNT] - factor - stream_state[stream, BELOW] - 1
    if stream_state[stream, COUNT] <= factor:
        return FLOOR
    return int(ranks[stream, max(rank, 0)])


@jit
def make_room(stream_state: Ints, ranks: Ints, stream: int) -> bool:
    """Drop the least keys of a full list; False where more than three quarters of it are still needed."""
    size = stream_state[stream, RANKED]
    # Twice as many as the factor, since it may grow.
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
    """Insert a key into the sorted list of its stream, and note how often it came."""
    rank = stream_state[stream, RANKED]
    stream_state[stream, RANKED] = rank + 1
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
    """Return one more than the tuples with lesser keys: the least virtual index that the key has so far."""
    return int(stream_state[stream, BELOW] + rank_of(stream_state, ranks, stream, key) + 1)


@jit
def greatest_index(stream_state: Ints, ranks: Ints, stream: int, key: int) -> int:
    """Return the tuples with keys not above: the greatest virtual index that the key has so far."""
    return int(stream_state[stream, BELOW] + rank_of(stream_state, ranks, stream, key + 1))


@jit
def ratio_of(stream_state: Ints, rates: Ints, known: Floats, stream: int, other: int, clock: int) -> float:
    """Return the rate of a stream over that of another; 1 where either is unknown."""
    ratio = rate_of(stream_state, rates, known, stream, clock) / rate_of(stream_state, rates, known, other, clock)
    return ratio if ratio == ratio else 1.0


@jit
def lag_of(
    stream_state: Ints, rates: Ints, ranks: Ints, rate: Floats, lag: Floats, stream: int, other: int, clock: int
) -> float:
    """Return the lag from a stream to another [tuples], positive where it leads (definition 3.2.6)."""
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
    """Return the tuples of a stream so far beyond the key that all but `factor` tuples of the other have passed.

    With S_i, S_j and k_j it is the sum of the last two terms of equation 3.7: the lag at tau', when s'_j arrived, which
    is known by now, and what came of S_i since then, counted. That is r_i k_j / r_j, with the rates from tau' on. Where
    S_i has not come to that key it is negative: the tuples that it lacks, by the mean distance of its keys.
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
    """Return what equation 3.7 asks to hold of a stream for another beyond its own scrambling factor [tuples]."""
    known, factor = lag[stream, other], scrambling(stream_state, other)
    if known == known:
        during = factor * ratio_of(stream_state, rates, rate, stream, other, clock) if factor > 0 else 0.0
        return float(during + known)
    return np.float64(count_awaited(stream_state, ranks, stream, other, factor))


@jit
def fill_lags(
    stream_state: Ints, rates: Ints, ranks: Ints, rate: Floats, lag: Floats, clock: int, lags: Floats
) -> None:
    """Write the lag from each stream to each other, shape (n, n)."""
    for i in range(len(stream_state)):
        for j in range(len(stream_state)):
            if i != j:
                lags[i, j] = lag_of(stream_state, rates, ranks, rate, lag, i, j, clock)


@jit
def count_all_awaited(stream_state: Ints, ranks: Ints, factors: Ints, ratios: Floats, reaches: Floats) -> None:
    """Write what each stream has beyond the key that all but some tuples of each other have passed, shape (n, n).

    What lies further back than is remembered is reckoned by the ratios of the rates, shape (n, n).
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
    """Bring the bounds of all streams up to date after an arrival of one (equations 3.7 and 3.8).

    What changes lies between that stream and the others only, so that the others' is kept in `reaches`.
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
        # At least one, also where all others sleep.
        bound = max(1.0, np.ceil(scrambling(stream_state, i) + max_reach - 1e-9))
        stream_state[i, BOUND] = CEILING if is_unknown else int(bound)


@jit
def observe_tuples(
    monitors: MonitorState, stream: Narrow, key: Ints, arrival: Ints, rare: int, start: int
) -> tuple[int, int]:
    """Observe tuples without joining them; return a code, and the first tuple that was not taken."""
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
    """Sort tuples on their first key within a buffer of `slack`, and observe the second keys in that order.

    `waiting` holds both keys of what waits, shape (capacity, 2), between the two `ends`.
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
