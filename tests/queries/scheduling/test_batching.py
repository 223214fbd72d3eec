"""When batches end, drawn as timelines."""

import math

import pytest

from tests.support.scheduling.batching import Batching, FixedInterval, FixedLength, Intelligent, Single


def batches(batching: Batching, times: list[float], *, laxity_s: float, gap_s: float) -> list[tuple[int, float]]:
    """Return the tuples and the end of each batch: one that comes until a batch ends joins it."""
    found, first = [], 0
    while first < len(times):
        stop = first + 1
        while True:
            ends_s = batching.closes_s(times[first], times[stop - 1], stop - first, laxity_s=laxity_s, gap_s=gap_s)
            if stop == len(times) or times[stop] > ends_s:
                break
            stop += 1
        found.append((stop - first, ends_s))
        first = stop
    return found


#         0    1    2    3    4    5    6    7    8    9
# times   ||   |              |    |    |    |
TIMES = [0.0, 0.2, 1.0, 4.0, 5.0, 6.0, 7.0]


@pytest.mark.parametrize(
    ("batching", "expected"),
    [
        (Single(), [(1, -math.inf)] * 7),
        (FixedLength(3), [(3, -math.inf), (3, -math.inf), (1, math.inf)]),
        (FixedInterval(2.0), [(3, 2.0), (3, 6.0), (1, 8.0)]),
        # A pause of 2 mean gaps ends the first; the others span 0.9 of a laxity of 2 s at most.
        (Intelligent(alpha=0.9, beta=2.0), [(3, 1.8), (2, 5.8), (2, 7.8)]),
        # With much laxity pauses alone end batches.
        (Intelligent(alpha=90.0, beta=2.0), [(3, 3.0), (4, 9.0)]),
    ],
    ids=lambda case: getattr(case, "name", ""),
)
def test_batches_end_where_they_should(batching: Batching, expected: list[tuple[int, float]]) -> None:
    found = batches(batching, TIMES, laxity_s=2.0, gap_s=1.0)
    assert [size for size, _ in found] == [size for size, _ in expected]
    assert [ends_s for _, ends_s in found] == pytest.approx([ends_s for _, ends_s in expected])


def test_without_laxity_each_tuple_goes_alone() -> None:
    assert [size for size, _ in batches(Intelligent(), [0.0, 0.5, 1.0], laxity_s=-3.0, gap_s=1.0)] == [1, 1, 1]
