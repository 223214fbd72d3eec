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
    KnownArrays,
    MonitorState,
    Narrow,
    SortBuffer,
)

MARGIN = 1024
"""Keys retained below those that lags need, so that ranks of late tuples are exact."""


@jit
def rank_of(monitors: MonitorState, stream: int, key: int) -> int:
    """Count the sorted keys of a stream that are less than a key."""
    low, high = 0, monitors.per[stream, RANKED]
    while low < high:
        middle = (low + high) >> 1
        if monitors.ranks[stream, middle] < key:
            low = middle + 1
        else:
            high = middle
    return low


@jit
def find_passed(monitors: MonitorState, stream: int, factor: int) -> int:
    """Return the key that all but `factor` tuples of a stream have passed, else FLOOR.

    This is the key of s'_j in equation 3.7: with the scrambling factor as `factor`, all future tuples have greater keys
    (definition 3.2.2), so its rank is final. FLOOR means that the stream has at most `factor` tuples.
    """
    count = monitors.per[stream, COUNT]
    if count <= factor:
        return FLOOR
    # The least retained key replaces one that is no longer in the list.
    return int(monitors.ranks[stream, max(count - factor - monitors.per[stream, BELOW] - 1, 0)])


@jit
def make_room(monitors: MonitorState, stream: int) -> bool:
    """Drop the least keys of a full list; False if more than three quarters of it are still needed."""
    stream_state, ranks = monitors.per, monitors.ranks
    size = stream_state[stream, RANKED]
    # Twice the factor, because it may grow.
    drop = size - 2 * scrambling(stream_state, stream) - MARGIN
    for other in range(len(stream_state)):
        if other != stream:
            needed = find_passed(monitors, other, scrambling(stream_state, other))
            drop = min(drop, rank_of(monitors, stream, needed) - MARGIN)
    if drop < size // 4:
        return False
    for rank in range(size - drop):
        ranks[stream, rank] = ranks[stream, rank + drop]
    stream_state[stream, RANKED] = size - drop
    stream_state[stream, BELOW] += drop
    return True


@jit
def rank_in(monitors: MonitorState, stream: int, key: int) -> None:
    """Insert a key into the sorted list of its stream, and update the multiplicity."""
    stream_state, ranks = monitors.per, monitors.ranks
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
def least_index(monitors: MonitorState, stream: int, key: int) -> int:
    """Return a key's least virtual index: one plus the number of lesser keys."""
    return int(monitors.per[stream, BELOW] + rank_of(monitors, stream, key) + 1)


@jit
def greatest_index(monitors: MonitorState, stream: int, key: int) -> int:
    """Return a key's greatest virtual index: the number of keys up to it."""
    return int(monitors.per[stream, BELOW] + rank_of(monitors, stream, key + 1))


@jit
def ratio_of(monitors: MonitorState, known: KnownArrays, stream: int, other: int, clock: int) -> float:
    """Return the rate of a stream divided by that of another; 1 if either is unknown."""
    ratio = rate_of(monitors, known, stream, clock) / rate_of(monitors, known, other, clock)
    return ratio if ratio == ratio else 1.0


@jit
def lag_of(monitors: MonitorState, known: KnownArrays, stream: int, other: int, clock: int) -> float:
    """Return the lag from a stream to another [tuples], positive if it leads (definition 3.2.6)."""
    stream_state, lag = monitors.per, known.lag[stream, other]
    if lag == lag:
        return float(lag)
    if stream_state[other, COUNT] == 0:
        return np.float64(stream_state[stream, COUNT])
    ahead = stream_state[stream, COUNT] - greatest_index(monitors, stream, stream_state[other, GREATEST])
    if ahead > 0:
        return np.float64(ahead)
    lacking = stream_state[other, COUNT]
    if stream_state[stream, COUNT] > 0:
        lacking -= greatest_index(monitors, other, stream_state[stream, GREATEST])
    return float(-np.floor(lacking * ratio_of(monitors, known, stream, other, clock)))


@jit
def count_awaited(monitors: MonitorState, stream: int, other: int, factor: int) -> int:
    """Count tuples beyond the key that all but `factor` of the other stream have passed.

    For S_i, S_j and k_j this is the sum of the last two terms of equation 3.7: the lag at tau', when s'_j arrived,
    which is known by now, plus the tuples of S_i counted since then, which are r_i k_j / r_j at the rates from tau' on.
    If S_i has not reached that key, the result is negative: the tuples it lacks, estimated from the mean distance of
    its keys.
    """
    stream_state, ranks = monitors.per, monitors.ranks
    key, ranked = find_passed(monitors, other, factor), stream_state[stream, RANKED]
    lacking = key - stream_state[stream, GREATEST]
    if lacking <= 0 or ranked < WARM:
        return int(stream_state[stream, COUNT] - greatest_index(monitors, stream, key))
    come = ranks[stream, ranked - 1] - ranks[stream, 0]
    return -int(lacking * (ranked - 1) / come) if come > 0 else 0


@jit
def reach_of(monitors: MonitorState, known: KnownArrays, stream: int, other: int, clock: int) -> float:
    """Return the tuples that equation 3.7 holds beyond the stream's own scrambling factor."""
    lag, factor = known.lag[stream, other], scrambling(monitors.per, other)
    if lag == lag:
        during = factor * ratio_of(monitors, known, stream, other, clock) if factor > 0 else 0.0
        return float(during + lag)
    return np.float64(count_awaited(monitors, stream, other, factor))


@jit
def fill_lags(monitors: MonitorState, known: KnownArrays, clock: int, lags: Floats) -> None:
    """Write the lag from each stream to each other [tuples], shape (n, n)."""
    for i in range(len(lags)):
        for j in range(len(lags)):
            if i != j:
                lags[i, j] = lag_of(monitors, known, i, j, clock)


@jit
def count_all_awaited(monitors: MonitorState, factors: Ints, ratios: Floats, reaches: Floats) -> None:
    """Write `count_awaited` for each pair of streams, shape (n, n).

    Tuples that are no longer in the sorted lists are estimated from the rate ratios, shape (n, n).
    """
    stream_state = monitors.per
    for i in range(len(reaches)):
        for j in range(len(reaches)):
            reach: float = count_awaited(monitors, i, j, factors[j])
            forgotten = min(factors[j], stream_state[j, COUNT]) + 1 - stream_state[j, RANKED]
            if forgotten > 0 and stream_state[j, COUNT] > factors[j]:
                reach += forgotten * ratios[i, j]
            reaches[i, j] = reach


@jit
def fill_bounds(monitors: MonitorState, known: KnownArrays, stream: int, clock: int) -> None:
    """Update the bounds of all streams after an arrival of `stream` (equations 3.7 and 3.8).

    Only the reaches between that stream and the others change; those of all other pairs are kept.
    """
    stream_state, reaches = monitors.per, monitors.reaches
    n = len(stream_state)
    is_unknown = False
    for other in range(n):
        is_unknown |= (
            stream_state[other, COUNT] < WARM
            and stream_state[other, KNOWN_DISPLACED] < 0
            and not stream_state[other, ASLEEP]
        )
        if other != stream:
            reaches[stream, other] = reach_of(monitors, known, stream, other, clock)
            reaches[other, stream] = reach_of(monitors, known, other, stream, clock)
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
    for t in range(start, len(stream)):
        i: Any = np.int64(stream[t])
        if monitors.per[i, SHORT]:
            return RECORDS_SHORT, t
        if monitors.per[i, RANKED] == monitors.ranks.shape[1] and not make_room(monitors, i):
            return RANKS_FULL, t
        observe_tuple(monitors, i, key[t], arrival[t], rare)
        rank_in(monitors, i, key[t])
    return DONE, len(stream)


@jit
def sort_along(
    monitors: MonitorState, buffer: SortBuffer, first_key: Ints, second_key: Ints, rare: int, start: int
) -> tuple[int, int]:
    """Sort by the first key within a buffer; monitor the second keys of the tuples that leave it.

    Returns a code and the first tuple that was not taken.
    """
    waiting, ends = buffer
    slack = len(waiting) // 4 - 1
    for t in range(start, len(first_key)):
        if monitors.per[0, SHORT]:
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
            observe_tuple(monitors, 0, waiting[ends[0], 1], monitors.per[0, COUNT], rare)
            ends[0] += 1
    return DONE, len(first_key)
