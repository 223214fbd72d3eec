"""Ranks, lags and the buffer bound of the thesis (3.2.3, 3.3), at every arrival.

Definition 3.2.6 asks for ranks among tuples yet to come. What the arrivals so far allow: the tuples of the leading
stream with keys beyond the greatest of the lagging one, which is exact for what has arrived. Where the stream itself
lags, the tuples that it lacks are those of the other beyond its own greatest key, at its own rate.
"""

import numpy as np

from hypergrid.streams.compiled import compiled
from hypergrid.streams.fields import (
    ASLEEP,
    BELOW,
    BOUND,
    CEILING,
    COUNT,
    GREATEST,
    KNOWN_DISPLACED,
    RANKED,
    REPEATED,
    WARM,
    Floats,
    Ints,
)
from hypergrid.streams.observe import rate_of, scrambling

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
def bound_of(per: Ints, rates: Ints, ranks: Ints, rate: Floats, lag: Floats, stream: int, clock: int) -> int:
    """Return the tuples of a stream that may have to be held (equations 3.7 and 3.8)."""
    if per[stream, COUNT] < WARM and per[stream, KNOWN_DISPLACED] < 0:
        return CEILING
    most = 0.0
    own = scrambling(per, stream)
    for other in range(len(per)):
        if other == stream or per[other, ASLEEP]:
            continue
        if per[other, COUNT] < WARM and per[other, KNOWN_DISPLACED] < 0:
            return CEILING
        delay = 0.0
        displaced = scrambling(per, other)
        if displaced > 0:
            delay = displaced * ratio_of(per, rates, rate, stream, other, clock)
        most = max(most, own + delay + lag_of(per, rates, ranks, rate, lag, stream, other, clock))
    return max(1, int(np.ceil(most - 1e-9)))


@compiled
def bound_all(per: Ints, rates: Ints, ranks: Ints, rate: Floats, lag: Floats, clock: int) -> None:
    """Bring the bounds of all streams up to date."""
    for stream in range(len(per)):
        per[stream, BOUND] = bound_of(per, rates, ranks, rate, lag, stream, clock)
