"""Ranks, lags and the buffer bound of the thesis (3.2.3, 3.3), at every arrival.

Definition 3.2.6 asks for ranks among tuples yet to come. What the arrivals so far allow: the tuples of the leading
stream with keys beyond the greatest of the lagging one, which is exact for what has arrived. Where the stream itself
lags, the tuples that it lacks are those of the other beyond its own greatest key, at its own rate.
"""

from typing import Any

import numpy as np

from hypergrid.wo_join.compiled import compiled
from hypergrid.wo_join.observe import observe, rate_of, scrambling
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
    Monitored,
    Narrow,
)

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
def passed(per: Ints, ranks: Ints, stream: int, factor: int) -> int:
    """Return the key that all but so many tuples of a stream have passed, FLOOR where no more came.

    It is that of s'_j in equation 3.7: with the scrambling factor for `factor`, all to come have greater keys
    (definition 3.2.2), so that its rank is known.
    """
    place = per[stream, COUNT] - factor - per[stream, BELOW] - 1
    if per[stream, COUNT] <= factor:
        return FLOOR
    return int(ranks[stream, max(place, 0)])


@compiled
def make_room(per: Ints, ranks: Ints, stream: int) -> bool:
    """Drop the least keys of a full list; False where more than three quarters of it are still needed."""
    size = per[stream, RANKED]
    # Twice as many as the factor, since it may grow.
    drop = size - 2 * scrambling(per, stream) - MARGIN
    for other in range(len(per)):
        if other != stream:
            needed = passed(per, ranks, other, scrambling(per, other))
            drop = min(drop, place_of(per, ranks, stream, needed) - MARGIN)
    if drop < size // 4:
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
def awaited(per: Ints, ranks: Ints, stream: int, other: int, factor: int) -> int:
    """Return the tuples of a stream so far beyond the key that all but `factor` tuples of the other have passed.

    With S_i, S_j and k_j it is the sum of the last two terms of equation 3.7: the lag at tau', when s'_j arrived, which
    is known by now, and what came of S_i since then, counted. That is r_i k_j / r_j, with the rates from tau' on. Where
    S_i has not come to that key it is negative: the tuples that it lacks, by the mean distance of its keys.
    """
    key, ranked = passed(per, ranks, other, factor), per[stream, RANKED]
    lacking = key - per[stream, GREATEST]
    if lacking <= 0 or ranked < WARM:
        return int(per[stream, COUNT] - greatest_index(per, ranks, stream, key))
    come = ranks[stream, ranked - 1] - ranks[stream, 0]
    return -int(lacking * (ranked - 1) / come) if come > 0 else 0


@compiled
def reach_of(
    per: Ints, rates: Ints, ranks: Ints, rate: Floats, lag: Floats, stream: int, other: int, clock: int
) -> float:
    """Return what equation 3.7 asks to hold of a stream for another beyond its own scrambling factor [tuples]."""
    known, factor = lag[stream, other], scrambling(per, other)
    if known == known:
        during = factor * ratio_of(per, rates, rate, stream, other, clock) if factor > 0 else 0.0
        return float(during + known)
    return np.float64(awaited(per, ranks, stream, other, factor))


@compiled
def lag_all(per: Ints, rates: Ints, ranks: Ints, rate: Floats, lag: Floats, clock: int, found: Floats) -> None:
    """Write the lag from each stream to each other, shape (n, n)."""
    for i in range(len(per)):
        for j in range(len(per)):
            if i != j:
                found[i, j] = lag_of(per, rates, ranks, rate, lag, i, j, clock)


@compiled
def await_all(per: Ints, ranks: Ints, factors: Ints, ratios: Floats, reaches: Floats) -> None:
    """Write what each stream has beyond the key that all but some tuples of each other have passed, shape (n, n).

    What lies further back than is remembered is reckoned by the ratios of the rates, shape (n, n).
    """
    for i in range(len(per)):
        for j in range(len(per)):
            reach: float = awaited(per, ranks, i, j, factors[j])
            forgotten = min(factors[j], per[j, COUNT]) + 1 - per[j, RANKED]
            if forgotten > 0 and per[j, COUNT] > factors[j]:
                reach += forgotten * ratios[i, j]
            reaches[i, j] = reach


@compiled
def bound_all(
    per: Ints, rates: Ints, ranks: Ints, reaches: Floats, rate: Floats, lag: Floats, stream: int, clock: int
) -> None:
    """Bring the bounds of all streams up to date after an arrival of one (equations 3.7 and 3.8).

    What changes lies between that stream and the others only, so that the others' is kept in `reaches`.
    """
    n = len(per)
    is_unknown = False
    for other in range(n):
        is_unknown |= per[other, COUNT] < WARM and per[other, KNOWN_DISPLACED] < 0 and not per[other, ASLEEP]
        if other != stream:
            reaches[stream, other] = reach_of(per, rates, ranks, rate, lag, stream, other, clock)
            reaches[other, stream] = reach_of(per, rates, ranks, rate, lag, other, stream, clock)
    for i in range(n):
        most = -np.inf
        for j in range(n):
            if j != i and not per[j, ASLEEP]:
                most = max(most, reaches[i, j])
        # At least one, also where all others sleep.
        bound = max(1.0, np.ceil(scrambling(per, i) + most - 1e-9))
        per[i, BOUND] = CEILING if is_unknown else int(bound)


@compiled
def watch(seen: Monitored, stream: Narrow, key: Ints, arrival: Ints, rare: int, start: int) -> tuple[int, int]:
    """Observe tuples without joining them; return a code, and the first tuple that was not taken."""
    per, records, rates, spread, ranks, _ = seen
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
    per, records, rates, spread, _, _ = seen
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
