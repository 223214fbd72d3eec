"""The offline oracles: what the thesis tells of figure 3.1, its theorems, and joins that can be counted by hand."""

import math
import random

import pytest

from tests.support.stream_oracles import (
    Result,
    dependent_scrambling_factor,
    group,
    join,
    lag,
    multiplicity,
    needed_buffers,
    optimal_course,
    physical_indices,
    query,
    rate_hz,
    scrambling_factor,
    virtual_indices,
    windowed,
)

# Figure 3.1 is missing in the scan. These two streams are as the text describes it, with p = 1: <66> of S1 comes at t5
# with PI = p + 2 and VI = p + 4, <63> came at t1 and t4; what the text leaves open is filled in.
#
#            t1  t2  t3  t4  t5  t6  t7  t8  t9  t10
#   S1       63          63  66  62  64  68  67
#   S2           64  65                  62      68  (63 and 66 later)
FIRST = [63, 63, 66, 62, 64, 68, 67]
SECOND = [64, 65, 62, 68, 63, 66]


def test_figure_3_1_indices() -> None:
    assert physical_indices(FIRST)[2] == 3
    assert virtual_indices(FIRST)[2] == (5, 5)
    assert virtual_indices(FIRST)[0] == virtual_indices(FIRST)[1] == (2, 3)


def test_figure_3_1_lags() -> None:
    # At t5 s1 = <66>, s2 = <65>, s'2 = <63>, s'1 = <63>: p + 2 - (p + 2) = 0, synchronized.
    assert lag(FIRST, SECOND, arrived_i=3, arrived_j=2) == 0
    # At t10 s1 = <67>, s2 = <68>, s'2 = <65>, s'1 = <64>: 3.
    assert lag(FIRST, SECOND, arrived_i=7, arrived_j=4) == 3


@pytest.mark.parametrize(
    ("keys", "factor"),
    [
        ([], 0),
        ([1, 2, 3], 0),  # totally ordered (definition 3.2.1)
        ([1, 1, 2], 1),  # equal keys count as disorder, m of them as m - 1
        ([4, 4, 4], 2),
        ([2, 1, 3], 1),
        ([2, 3, 4, 1], 3),  # one tuple three places late
        ([4, 1, 2, 3], 3),  # or three places early
        ([2, 1, 1, 3, 5, 4], 2),
    ],
)
def test_scrambling_factor(keys: list[int], factor: int) -> None:
    assert scrambling_factor(keys) == factor


def test_dependent_scrambling_factor_does_not_depend_on_the_order_of_arrival() -> None:
    #         A  1  2  3  4
    #         B  1  4  2  3     ordered by A the 3 stands two places behind the 4
    tuples = [(1, 1), (2, 4), (3, 2), (4, 3)]
    for seed in range(6):
        random.Random(seed).shuffle(tuples)
        assert dependent_scrambling_factor([a for a, _ in tuples], [b for _, b in tuples]) == 2
    assert dependent_scrambling_factor([1, 2, 3], [1, 2, 3]) == 0
    # Two tuples of one key may stand either way round.
    assert dependent_scrambling_factor([1, 1, 2], [5, 6, 7]) == 1


def test_multiplicity_and_rate() -> None:
    assert multiplicity([1, 2, 1, 3, 1, 2]) == 3
    assert multiplicity([]) == 0
    # Four tuples in half a second; the one at its end belongs to the next.
    assert rate_hz([0, 100_000_000, 200_000_000, 499_999_999, 500_000_000], 0, 500_000_000) == 8


# 0: a A   b     a       the third stream completes key 7 at 3, the first stream's second tuple again at 4
# 1:     7
TUPLES = [(0, 7), (1, 7), (1, 8), (2, 7), (0, 7), (2, 9)]


def test_join_by_hand() -> None:
    assert join(TUPLES, 3) == [Result(3, (0, 0, 0)), Result(4, (1, 0, 0))]


def test_group_by_hand() -> None:
    groups = group(TUPLES, 3)
    assert {key: (one.completed, one.rows) for key, one in groups.items()} == {
        7: (4, ((0, 1), (0,), (0,))),
        8: (2, ((), (1,), ())),
        9: (5, ((), (), (1,))),
    }


def test_needed_buffers_by_hand() -> None:
    # At 3 the second stream has sent 8 after its 7; at 4 the newest tuple is its own.
    assert needed_buffers(TUPLES, 3, Result(3, (0, 0, 0))) == [1, 2, 1]
    assert needed_buffers(TUPLES, 3, Result(4, (1, 0, 0))) == [1, 2, 1]


def test_optimal_course_by_hand() -> None:
    # Stream 0's first tuple is needed until 3, its second never; 8 and 9 are of no use, but stand behind the 7.
    assert optimal_course(TUPLES, 3, form="inner") == [[1, 1, 1, 0, 0, 0], [0, 1, 2, 2, 0, 0], [0, 0, 0, 1, 0, 0]]
    # A slice is complete with its last tuple, whichever stream that is of.
    assert optimal_course(TUPLES, 3, form="assembling") == [[1, 1, 1, 1, 0, 0], [0, 1, 2, 2, 0, 0], [0, 0, 0, 1, 0, 0]]


def test_windowed_by_hand() -> None:
    assert windowed(TUPLES, 3, [1, 2, 1]) == 2
    assert windowed(TUPLES, 3, [1, 1, 1]) == 0


def test_queries_by_hand() -> None:
    one = [(stream, 5, 0) for stream in (2, 0, 1)]
    assert query(1, one) == ([Result(2, (0, 0, 0))], {})
    # J1 is completed by stream 2 at 3, J2 by stream 5 at 6. Their second keys, 8 and 8, are those of streams 0 and 3.
    two = [(0, 5, 8), (1, 5, 1), (4, 5, 2), (2, 5, 3), (5, 5, 4), (0, 6, 9), (3, 5, 8)]
    results, inner = query(2, two)
    assert inner == {1: [Result(3, (0, 0, 0))], 2: [Result(6, (0, 0, 0))]}
    assert results == [Result(6, (0, 0, 0, 0, 0, 0))]
    assert query(3, two)[0] == results
    # Another second key, and query 3 has nothing; query 2 does not look at it.
    other = [*two[:-1], (3, 5, 9)]
    assert query(3, other)[0] == []
    assert query(2, other)[0] == results


def streams_of(seed: int) -> tuple[list[list[int]], list[tuple[int, int]]]:
    """Two or three short streams with disorder and equal keys, and their tuples in an order of arrival by chance."""
    chance = random.Random(seed)
    times, spread = chance.choice([1, 1, 2]), chance.choice([0, 1, 3])
    streams = []
    for _ in range(chance.choice([2, 3])):
        keys = [key for key in range(5) for _ in range(chance.randint(1, times))]
        streams.append(sorted(keys, key=lambda key: key + spread * chance.random()))
    order = [number for number, keys in enumerate(streams) for _ in keys]
    chance.shuffle(order)
    rest = [iter(keys) for keys in streams]
    return streams, [(number, next(rest[number])) for number in order]


@pytest.mark.parametrize("seed", range(60))
def test_theorems_hold(seed: int) -> None:
    streams, tuples = streams_of(seed)
    for keys in streams:
        factor = scrambling_factor(keys)
        for place, (least, greatest) in zip(physical_indices(keys), virtual_indices(keys), strict=True):
            assert place - least <= factor  # 3.4a
            assert greatest - place <= factor  # 3.4b
        second = [key + random.Random(key * 97 + seed).randint(0, 3) for key in keys]
        # Theorem 3.4.2
        assert scrambling_factor(second) <= 2 * factor + dependent_scrambling_factor(keys, second)
    times = [multiplicity(keys) for keys in streams]
    bound = sum(scrambling_factor(keys) * math.prod(times) // m for keys, m in zip(streams, times, strict=True))
    # Theorem 3.4.1: equation 3.10
    assert scrambling_factor([streams[0][result.rows[0]] for result in join(tuples, len(streams))]) <= bound
