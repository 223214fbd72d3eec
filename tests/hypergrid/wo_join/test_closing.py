"""Joins whose clock advances without tuples, and whose oldest slices are closed before their time."""

import pytest

from hypergrid.core.errors import InvalidQuery
from hypergrid.wo_join import WoJoin


def test_slices_are_closed_early_until_what_is_held_fits() -> None:
    join = WoJoin(2, form="assembling")
    join.push([0, 0, 0], [1, 2, 3], [0.0, 1.0, 2.0])
    assert len(join.close_oldest(10**9)) == 0
    closed = join.close_oldest(0)
    assert sorted({int(key) for key in closed.key}) == [1, 2, 3]
    late = join.push([1], [1], [3.0])
    assert len(late) == 0
    with pytest.raises(InvalidQuery, match='in a join of form "assembling"'):
        WoJoin(2).close_oldest(0)


def test_a_clock_that_advances_changes_no_match_of_a_sorted_join() -> None:
    def count(*, advances: bool) -> int:
        join = WoJoin(2, strategy="msf", idle_s=1.0)
        found = 0
        for second in range(20):
            found += len(join.push([0, 1], [second, second], [float(second)] * 2))
            if advances:
                found += len(join.advance(second * 10**9 + 1))
        return found + len(join.finish())

    assert count(advances=True) == count(advances=False) > 0
