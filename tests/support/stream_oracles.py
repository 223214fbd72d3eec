"""What streams are and what joins of them give, by the definitions of thesis chapter 3: slow and obvious.

Everything here knows all of the input. Keys are lists in order of arrival. Physical and virtual indices begin at 1,
as in the thesis; rows of results are orders of arrival within a stream from 0, as in `hypergrid.wo_join`. Nothing
here is shared with the join, its monitors or the optimum.
"""

import itertools
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal


def physical_indices(keys: Sequence[int]) -> list[int]:
    """Return PI of each tuple: its place in the order of arrival (section 3.2.2)."""
    return [place + 1 for place in range(len(keys))]


def virtual_indices(keys: Sequence[int]) -> list[tuple[int, int]]:
    """Return the least and the greatest VI of each tuple: the places of its key when ordered (definition 3.2.5)."""
    return [
        (
            sum(other < key for other in keys) + 1,
            sum(other < key for other in keys) + sum(other == key for other in keys),
        )
        for key in keys
    ]


def scrambling_factor(keys: Sequence[int]) -> int:
    """Return the least k with PI(s) - k <= PI(s') for all pairs with s.A <= s'.A (definition 3.2.2)."""
    pairs = itertools.product(range(len(keys)), repeat=2)
    return max((place - other for place, other in pairs if keys[place] <= keys[other]), default=0)


def dependent_scrambling_factor(first: Sequence[int], second: Sequence[int]) -> int:
    """Return DSF from the first column to the second: the second's SF when ordered by the first (definition 3.4.1).

    Tuples with equal first keys may then stand in any order; the one that scrambles the second most counts, as in
    inequality 3.12, so that the order of arrival does not matter.
    """
    places = virtual_indices(first)
    pairs = itertools.product(range(len(first)), repeat=2)
    return max((places[one][1] - places[other][0] for one, other in pairs if second[one] <= second[other]), default=0)


def multiplicity(keys: Sequence[int]) -> int:
    """Return how often the most frequent key comes: the greatest size of a virtual index (section 3.4.1)."""
    return max((list(keys).count(key) for key in set(keys)), default=0)


def rate_hz(arrival_ns: Sequence[int], from_ns: int, until_ns: int) -> float:
    """Return how many tuples arrive a second, of those with `from_ns <= arrival < until_ns` [1/s]."""
    return sum(from_ns <= arrival < until_ns for arrival in arrival_ns) / ((until_ns - from_ns) / 1e9)


def lag(keys_i: Sequence[int], keys_j: Sequence[int], arrived_i: int, arrived_j: int) -> int:
    """Return the lag from S_i to S_j when so many tuples of each have arrived (definition 3.2.6, equation 3.5).

    s'_j is the tuple that would have come last of S_j, were it ordered; s'_i is its next of kin, the greatest of S_i
    that is not greater (definition 3.2.3). Where there is none its greatest VI is 0.

    Parameters
    ----------
    keys_i, keys_j
        All keys of the two streams, also those still to come.
    arrived_i, arrived_j
        Tuples that have arrived, at least 1 of S_j.
    """
    in_its_place = sorted(keys_j)[arrived_j - 1]
    return arrived_i - sum(key <= in_its_place for key in keys_i)


@dataclass(frozen=True, order=True)
class Result:
    """One result of a join."""

    completed: int
    """Arrival that completes it: its place among the arrivals of all streams, from 0."""
    rows: tuple[int, ...]
    """The order of arrival of each stream's tuple within its stream, from 0."""


Tuple = tuple[int, int]
"""A tuple in the order of arrival of all: its stream and its key."""


def join(tuples: Iterable[Tuple], streams: int) -> list[Result]:
    """Return every combination of one tuple of each stream with equal keys, by completion and rows."""
    places: list[list[int]] = [[] for _ in range(streams)]
    keys: list[list[int]] = [[] for _ in range(streams)]
    for place, (stream, key) in enumerate(tuples):
        places[stream].append(place)
        keys[stream].append(key)
    results = []
    for key in set(keys[0]):
        equal = [[row for row, other in enumerate(column) if other == key] for column in keys]
        for rows in itertools.product(*equal):
            results.append(Result(max(places[stream][row] for stream, row in enumerate(rows)), rows))
    return sorted(results)


@dataclass(frozen=True)
class Group:
    """All tuples of one key: a slice."""

    completed: int
    """Arrival of its last tuple, among the arrivals of all streams, from 0."""
    rows: tuple[tuple[int, ...], ...]
    """The orders of arrival of each stream's tuples, from 0; empty where the stream has none."""


def group(tuples: Iterable[Tuple], streams: int) -> dict[int, Group]:
    """Return the tuples of each key, of whichever streams have it: what the assembling form closes."""
    counts = [0] * streams
    rows: dict[int, list[list[int]]] = {}
    last: dict[int, int] = {}
    for place, (stream, key) in enumerate(tuples):
        rows.setdefault(key, [[] for _ in range(streams)])[stream].append(counts[stream])
        counts[stream] += 1
        last[key] = place
    return {key: Group(last[key], tuple(map(tuple, rows[key]))) for key in rows}


def query(
    number: Literal[1, 2, 3], tuples: Sequence[tuple[int, int, int]]
) -> tuple[list[Result], Mapping[int, list[Result]]]:
    """Return the results of query 1, 2 or 3 of figure 3.6, with those of the joins before the last.

    Query 1 joins three streams. Query 2 joins streams 0 to 2 (J1) and 3 to 5 (J2), and what they give (J3), all on the
    same key; query 3 does J3 on the second key, of which J1's result has that of stream 0, J2's that of stream 3.

    Parameters
    ----------
    number
        Which query.
    tuples
        Stream, key and second key of each tuple, in order of arrival.

    Returns
    -------
    list and mapping
        Results with a row for each of the three or six streams; and by the number of a join, 1 and 2, its results, with
        completions among all arrivals. Results of one join that are completed by one arrival are ordered by their rows.
    """
    if number == 1:
        return join([(stream, key) for stream, key, _ in tuples], 3), {}
    inner: dict[int, list[Result]] = {}
    for which, streams in ((1, (0, 1, 2)), (2, (3, 4, 5))):
        own = [place for place, (stream, _, _) in enumerate(tuples) if stream in streams]
        found = join([(streams.index(tuples[place][0]), tuples[place][1]) for place in own], 3)
        inner[which] = [Result(own[result.completed], result.rows) for result in found]
    carried = [[(key, second) for stream, key, second in tuples if stream == first] for first in (0, 3)]
    column = 0 if number == 2 else 1
    arriving = sorted((result.completed, which, result.rows) for which, results in inner.items() for result in results)
    last = join([(which - 1, carried[which - 1][rows[0]][column]) for _, which, rows in arriving], 2)
    return sorted(
        Result(arriving[found.completed][0], inner[1][found.rows[0]].rows + inner[2][found.rows[1]].rows)
        for found in last
    ), inner


def needed_buffers(tuples: Sequence[Tuple], streams: int, result: Result) -> list[int]:
    """Return the smallest first-in-first-out buffer of each stream that would have given a result: sizes are tried."""
    sizes = []
    for stream in range(streams):
        for size in itertools.count(1):
            buffer: deque[int] = deque(maxlen=size)
            arrived = 0
            for other, _ in tuples[: result.completed + 1]:
                if other == stream:
                    buffer.append(arrived)
                    arrived += 1
            if result.rows[stream] in buffer:
                sizes.append(size)
                break
    return sizes


def optimal_course(tuples: Sequence[Tuple], streams: int, *, form: Literal["inner", "assembling"]) -> list[list[int]]:
    """Return how many tuples a first-in-first-out buffer of each stream must hold after each arrival.

    The future is known: after each arrival the oldest tuples are let go as long as no result that is still to come
    has them; in the assembling form, no group that is still to be completed. Shape (streams, arrivals).
    """
    wanted: list[list[tuple[int, int]]] = [[] for _ in range(streams)]
    if form == "inner":
        for result in join(tuples, streams):
            for stream, row in enumerate(result.rows):
                wanted[stream].append((row, result.completed))
    else:
        for one in group(tuples, streams).values():
            for stream, rows in enumerate(one.rows):
                wanted[stream].extend((row, one.completed) for row in rows)
    buffers: list[deque[int]] = [deque() for _ in range(streams)]
    arrived = [0] * streams
    course: list[list[int]] = [[] for _ in range(streams)]
    for place, (stream, _) in enumerate(tuples):
        buffers[stream].append(arrived[stream])
        arrived[stream] += 1
        for number, buffer in enumerate(buffers):
            while buffer and not any(row == buffer[0] and completed > place for row, completed in wanted[number]):
                buffer.popleft()
            course[number].append(len(buffer))
    return course


def windowed(tuples: Sequence[Tuple], streams: int, sizes: Sequence[int]) -> int:
    """Return how many results a join gives whose buffers hold the latest so many tuples, the newest included."""
    buffers: list[deque[int]] = [deque(maxlen=size) for size in sizes]
    found = 0
    for stream, key in tuples:
        buffers[stream].append(key)
        combinations = 1
        for number, buffer in enumerate(buffers):
            if number != stream:
                combinations *= list(buffer).count(key)
        found += combinations
    return found
