"""Axes and covers against brute force over lists of cells."""

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hypergrid.core.errors import InvalidQuery
from hypergrid.topology import Instants, Regular, cover, is_location_consistent

SMALL = st.integers(1, 9)


def axes(name: str = "time") -> st.SearchStrategy[Regular]:
    return st.builds(Regular, st.just(name), st.integers(-30, 30), SMALL, SMALL, SMALL)


def cells(axis: Regular) -> list[tuple[int, int]]:
    return [(int(corner), int(corner) + axis.length) for corner in axis.corners]


def lattice(axis: Regular) -> list[tuple[int, int]]:
    """Return the cells that the axis would have if it went on, far enough for these tests."""
    return [(axis.origin + i * axis.step, axis.origin + i * axis.step + axis.length) for i in range(-150, 300)]


def points(spans: list[tuple[int, int]]) -> set[int]:
    return {point for start, stop in spans for point in range(start, stop)}


@given(axes(), axes())
def test_consistency_is_that_every_target_is_a_union_of_source_cells(source: Regular, target: Regular) -> None:
    whole = lattice(source)
    inside_source = points(whole)
    exact = True
    for start, stop in cells(target):
        members = [cell for cell in whole if start <= cell[0] and cell[1] <= stop]
        # What the source's own gaps leave out belongs to no cell.
        wanted = {point for point in range(start, stop) if point in inside_source}
        exact &= points(members) == wanted
    found = is_location_consistent(source, target)
    assert not found or exact, "a target that cuts source cells was called consistent"
    if target.count == 1 or source.length == source.step:
        lattices = target.count == 1 or all(
            points([c for c in whole if a <= c[0] and c[1] <= b]) == set(range(a, b)) & inside_source
            for a, b in [(x, x + target.length) for x in range(target.origin, target.origin + 99, target.step)]
        )
        assert found == (exact and lattices)


@given(axes(), axes())
def test_cover_is_what_brute_force_finds(source: Regular, target: Regular) -> None:
    if not is_location_consistent(source, target):
        with pytest.raises(InvalidQuery, match="cut the source's cells"):
            cover(source, target)
        return
    found = cover(source, target)
    for number, (start, stop) in enumerate(cells(target)):
        inside = [i for i, cell in enumerate(cells(source)) if start <= cell[0] and cell[1] <= stop]
        assert list(range(int(found.first[number]), int(found.stop[number]))) == inside


@given(st.sets(st.integers(-50, 50), min_size=1), axes())
def test_instants_are_covered_half_open(times: set[int], target: Regular) -> None:
    source = Instants("time", np.array(sorted(times), dtype=np.int64))
    assert is_location_consistent(source, target)
    found = cover(source, target)
    for number, (start, stop) in enumerate(cells(target)):
        inside = [i for i, time in enumerate(sorted(times)) if start <= time < stop]
        assert list(range(int(found.first[number]), int(found.stop[number]))) == inside


@given(st.integers(-100, 100), st.integers(1, 60), SMALL, SMALL)
def test_aligned_cells_start_at_multiples_from_the_first_to_the_last(
    start: int, span: int, step: int, length: int
) -> None:
    axis = Regular("time", 0, step, 1, length).repeat_over(start, start + span)
    assert all(corner % step == 0 for corner in axis.corners)
    assert start - step < axis.origin <= start
    assert start + span - step <= int(axis.corners[-1]) < start + span
    assert axis.length == length


def test_corners_do_not_drift() -> None:
    # A third of an arc-second in quanta, added a million times in floats, would be off by now.
    axis = Regular("lon", 25_837_000_000, 333_333, 1_000_000, 333_333, "uas")
    last = Fraction(25_837_000_000 + 999_999 * 333_333, 3_600_000_000)
    assert axis.bounds[-1, 0] == float(last)
    assert axis.stop == 25_837_000_000 + 1_000_000 * 333_333
    assert axis.centres[0] == float(Fraction(2 * 25_837_000_000 + 333_333, 7_200_000_000))
    np.testing.assert_array_equal(axis.bounds[1:, 0], axis.bounds[:-1, 1])


def test_a_part_keeps_its_corners() -> None:
    axis = Regular("time", 5, 7, 10, 3)
    np.testing.assert_array_equal(axis.part(2, 6).corners, axis.corners[2:6])
    instants = Instants("time", np.array([1, 5, 9]))
    assert instants.part(1, 3).corners.tolist() == [5, 9]
    assert (instants.count, instants.origin, instants.stop) == (3, 1, 10)


@pytest.mark.parametrize("wrong", [{"step": 0}, {"count": 0}, {"length": -1}, {"origin": 2**62}, {"count": 2**61}])
def test_axes_that_hold_no_cells_or_cannot_be_counted_are_refused(wrong: dict[str, int]) -> None:
    good = {"origin": 0, "step": 10, "count": 1, "length": 10}
    with pytest.raises(InvalidQuery, match="axis 'time'"):
        Regular("time", **{**good, **wrong})


@pytest.mark.parametrize("times", [[], [1, 1], [2, 1]])
def test_instants_increase(times: list[int]) -> None:
    with pytest.raises(InvalidQuery, match="strictly increasing"):
        Instants("time", np.array(times, dtype=np.int64))
