"""Ranks, lags and the buffer bound of the thesis (3.2.3, 3.3), at every arrival.

Definition 3.2.6 asks for ranks among tuples yet to come. What the arrivals so far allow: the tuples of the leading
stream with keys beyond the greatest of the lagging one, which is exact for what has arrived. Where the stream itself
lags, the tuples that it lacks are those of the other beyond its own greatest key, at its own rate.
"""

from typing import Any

import numpy as np

from hypergrid.streams.compiled import compiled
from hypergrid.streams.fields import (
    ASLEEP,
    BELOW,
    BOUND,
    CEILING,
    COUNT,
    DONE,
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
    Monitored,
    Narrow,
)
from hypergrid.streams.observe import observe, rate_of, scrambling

MARGIN = 1024
"""Keys kept below those that lags need, so that ranks of late tuples are exact."""


@compiled
def place_of(per: Ints, ranks: Ints, stream: int, key: int) -> int:
    """Return how many of the sorted keys of a stream lie below a key."""
    low, high = 0, per[stream, RANKED]
    while low < high:
        middle = (low + high) >> 1
        if ranks[stream, middle] < key:
            low = middle + 1
        else:
            high = middle
    return low


@compiled
def make_room(per: Ints, ranks: Ints, stream: int) -> bool:
    """Drop the least keys of a full list; False where more than half of it is still needed."""
    needed = CEILING
    for other in range(len(per)):
        if other != stream:
            needed = min(needed, per[other, GREATEST])
    size = per[stream, RANKED]
    drop = place_of(per, ranks, stream, needed) - MARGIN
    if drop < size // 2 and size > 4 * MARGIN or drop < 1:
        return False
    for place in range(size - drop):
        ranks[stream, place] = ranks[stream, place + drop]
    per[stream, RANKED] = size - drop
    per[stream, BELOW] += drop
    return True


@compiled
def rank_in(per: Ints, ranks: Ints, stream: int, key: int) -> None:
    """Insert a key into the sorted list of its stream, and note how often it came."""
    place = per[stream, RANKED]
    per[stream, RANKED] = place + 1
    while place > 0 and ranks[stream, place - 1] > key:
        ranks[stream, place] = ranks[stream, place - 1]
        place -= 1
    ranks[stream, place] = key
    run = 1
    while run <= place and ranks[stream, place - run] == key:
        run += 1
    per[stream, REPEATED] = max(per[stream, REPEATED], run)


@compiled
def least_index(per: Ints, ranks: Ints, stream: int, key: int) -> int:
    """Return one more than the tuples with lesser keys: the least virtual index that the key has so far."""
    return int(per[stream, BELOW] + place_of(per, ranks, stream, key) + 1)


@compiled
def greatest_index(per: Ints, ranks: Ints, stream: int, key: int) -> int:
    """Return the tuples with keys not above: the greatest virtual index that the key has so far."""
    return int(per[stream, BELOW] + place_of(per, ranks, stream, key + 1))


@compiled
def ratio_of(per: Ints, rates: Ints, known: Floats, stream: int, other: int, clock: int) -> float:
    """Return the rate of a stream over that of another; 1 where either is unknown."""
    ratio = rate_of(per, rates, known, stream, clock) / rate_of(per, rates, known, other, clock)
    return ratio if ratio == ratio else 1.0


@compiled
def lag_of(
    per: Ints, rates: Ints, ranks: Ints, rate: Floats, lag: Floats, stream: int, other: int, clock: int
) -> float:
    """Return the lag from a stream to another [tuples], positive where it leads (definition 3.2.6)."""
    known = lag[stream, other]
    if known == known:
        return float(known)
    if per[other, COUNT] == 0:
        return np.float64(per[stream, COUNT])
    ahead = per[stream, COUNT] - greatest_index(per, ranks, stream, per[other, GREATEST])
    if ahead > 0:
        return np.float64(ahead)
    lacking = per[other, COUNT]
    if per[stream, COUNT] > 0:
        lacking -= greatest_index(per, ranks, other, per[stream, GREATEST])
    return float(-np.floor(lacking * ratio_of(per, rates, rate, stream, other, clock)))


@compiled
def bound_all(
    per: Ints,
    rates: Ints,
    ranks: Ints,
    lags: Floats,
    rates_now: Floats,
    rate: Floats,
    lag: Floats,
    stream: int,
    clock: int,
) -> None:
    """Bring the bounds of all streams up to date after an arrival of one (equations 3.7 and 3.8).

    Lags change between that stream and the others only, so that the others' are kept in `lags`.
    """
    n = len(per)
    for other in range(n):
        rates_now[other] = rate_of(per, rates, rate, other, clock)
        if other != stream:
            lags[stream, other] = lag_of(per, rates, ranks, rate, lag, stream, other, clock)
            lags[other, stream] = lag_of(per, rates, ranks, rate, lag, other, stream, clock)
    is_unknown = False
    for i in range(n):
        is_unknown |= per[i, COUNT] < WARM and per[i, KNOWN_DISPLACED] < 0 and not per[i, ASLEEP]
    for i in range(n):
        most = -np.inf
        for j in range(n):
            if j != i and not per[j, ASLEEP]:
                delay: float = scrambling(per, j)
                if delay > 0.0:
                    ratio = rates_now[i] / rates_now[j]
                    # 1 where either is unknown.
                    delay *= ratio if ratio == ratio else 1.0
                most = max(most, delay + lags[i, j])
        # At least one, also where all others sleep.
        bound = max(1.0, np.ceil(scrambling(per, i) + most - 1e-9))
        per[i, BOUND] = CEILING if is_unknown else int(bound)


@compiled
def watch(seen: Monitored, stream: Narrow, key: Ints, arrival: Ints, rare: int, start: int) -> tuple[int, int]:
    """Observe tuples without joining them; return a code, and the first tuple that was not taken."""
    per, records, rates, spread, ranks, _, _ = seen
    for t in range(start, len(stream)):
        i: Any = np.int64(stream[t])
        if per[i, SHORT]:
            return RECORDS_SHORT, t
        if per[i, RANKED] == ranks.shape[1] and not make_room(per, ranks, i):
            return RANKS_FULL, t
        observe(per, records, rates, spread, i, key[t], arrival[t], rare)
        rank_in(per, ranks, i, key[t])
    return DONE, len(stream)


@compiled
def sort_along(
    seen: Monitored, waiting: Ints, ends: Ints, first_key: Ints, second_key: Ints, slack: int, rare: int, start: int
) -> tuple[int, int]:
    """Sort tuples on their first key within a buffer of `slack`, and observe the second keys in that order.

    `waiting` holds both keys of what waits, shape (capacity, 2), between the two `ends`.
    """
    per, records, rates, spread, _, _, _ = seen
    for t in range(start, len(first_key)):
        if per[0, SHORT]:
            return RECORDS_SHORT, t
        if ends[1] == len(waiting):
            for place in range(ends[1] - ends[0]):
                waiting[place, 0], waiting[place, 1] = waiting[ends[0] + place, 0], waiting[ends[0] + place, 1]
            ends[0], ends[1] = 0, ends[1] - ends[0]
        place = ends[1]
        while place > ends[0] and waiting[place - 1, 0] > first_key[t]:
            waiting[place, 0], waiting[place, 1] = waiting[place - 1, 0], waiting[place - 1, 1]
            place -= 1
        waiting[place, 0], waiting[place, 1] = first_key[t], second_key[t]
        ends[1] += 1
        if ends[1] - ends[0] > slack:
            observe(per, records, rates, spread, 0, waiting[ends[0], 1], per[0, COUNT], rare)
            ends[0] += 1
    return DONE, len(first_key)
