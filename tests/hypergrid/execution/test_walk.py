"""The directed random walk: which cells it serves, in which order, and what it needs to be told."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from scipy import ndimage

from hypergrid.core.errors import InvalidQuery
from hypergrid.execution.orders.walk import (
    TIMES_COMPARED,
    SamplingHistory,
    Walk,
    WalkSettings,
    reflect_positions,
    sample_stratified,
)

Floats = NDArray[np.float64]

SHAPES = st.tuples(st.integers(1, 30), st.integers(1, 30))


def batches(walk: Walk, field: Floats, count: int = 10**6) -> list[NDArray[np.intp]]:
    """Serve all cells of a field, shape (time cells, cells)."""
    found = []
    while len(cells := walk.next_cells(count)):
        walk.add_values(cells, field[:, cells])
        found.append(cells)
    return found


def noise(shape: tuple[int, int], times: int = 1, seed: int = 0) -> Floats:
    return np.random.default_rng(seed).normal(size=(times, shape[0] * shape[1]))


@given(
    SHAPES,
    st.floats(0.01, 0.5),
    st.one_of(st.none(), st.integers(1, 50)),
    st.integers(0, 2**31),
    st.integers(1, 40),
    st.integers(0, 20),
    st.sampled_from(["noise", "flat", "missing", "large"]),
)
def test_every_cell_is_served_once(
    shape: tuple[int, int], fraction: float, walkers: int | None, seed: int, count: int, beyond: int, kind: str
) -> None:
    total = shape[0] * shape[1] + beyond
    field = {
        "noise": np.random.default_rng(seed).normal(size=(3, total)),
        "flat": np.zeros((1, total)),
        "missing": np.full((2, total), np.nan),
        "large": np.full((1, total), 1e300),
    }[kind]
    found = batches(Walk(shape, WalkSettings(fraction, walkers, seed), total=total), field, count)
    assert sorted(np.concatenate(found).tolist()) == list(range(total))
    assert max(map(len, found)) <= count


@given(SHAPES, st.integers(0, 2**31))
def test_equal_seeds_walk_alike(shape: tuple[int, int], seed: int) -> None:
    field = noise(shape, 2, seed)
    first, second = (np.concatenate(batches(Walk(shape, WalkSettings(0.4, 3, seed)), field)) for _ in range(2))
    assert np.array_equal(first, second)


def test_the_order_depends_on_seed_and_on_values() -> None:
    shape = (30, 30)

    def order(seed: int, field: Floats) -> list[int]:
        served = np.concatenate(batches(Walk(shape, WalkSettings(seed=seed)), field))
        return [int(cell) for cell in served[:100]]

    assert order(1, noise(shape)) != order(2, noise(shape))
    assert order(1, noise(shape)) != order(1, np.zeros((1, 900)))


def test_a_walk_does_not_depend_on_the_size_of_blocks() -> None:
    field = noise((20, 20))
    whole, pieces = (np.concatenate(batches(Walk((20, 20), WalkSettings(seed=3)), field, n)) for n in (10**6, 2))
    assert np.array_equal(whole, pieces)


@pytest.mark.parametrize("scale", [1e-6, 1.0, 1e6])
def test_a_walk_does_not_depend_on_the_unit(scale: float) -> None:
    field = noise((20, 20))
    plain, scaled = (
        np.concatenate(batches(Walk((20, 20), WalkSettings(seed=3)), one)) for one in (field, field * scale)
    )
    assert np.array_equal(plain, scaled)


def test_a_share_is_walked_and_the_rest_follows_in_its_order() -> None:
    backwards = np.arange(28 * 24)[::-1]
    for order, way in ((None, 1), (np.array_split(backwards, 5), -1)):
        walk = Walk((28, 24), WalkSettings(0.15, seed=5), order=order)
        served = np.concatenate(batches(walk, noise((28, 24))))
        walked, rest = served[:101], served[101:]
        assert len(walked) == round(0.15 * 28 * 24)
        assert np.any(np.diff(walked) < 0)
        assert np.any(np.diff(walked) > 0)
        assert np.all(np.diff(rest) * way > 0)


def test_walkers_gather_where_values_change() -> None:
    """A plateau with an edge: cells near the edge are served more often than their share."""
    rows, columns = np.indices((40, 40))
    field = np.where(np.hypot(rows - 20, columns - 20) < 8, 10.0, 0.0)
    near = np.abs(np.hypot(rows - 20, columns - 20) - 8) < 2.5
    shares = []
    for seed in range(20):
        served = np.concatenate(batches(Walk((40, 40), WalkSettings(0.1, seed=seed)), field.reshape(1, -1)))[:160]
        shares.append(near.ravel()[served].mean())
    assert np.mean(shares) > 1.3 * near.mean()


def test_no_gap_stays_where_nothing_changes() -> None:
    """On a flat field the walk spreads: its largest gap is smaller than that of as many cells at random."""

    def largest(cells: NDArray[np.intp]) -> float:
        away = np.ones(1600, dtype=bool)
        away[cells] = False
        return float(ndimage.distance_transform_edt(away.reshape(40, 40)).max())

    walked = [
        largest(np.concatenate(batches(Walk((40, 40), WalkSettings(0.1, seed=seed)), np.zeros((1, 1600))))[:160])
        for seed in range(20)
    ]
    chance = [largest(np.random.default_rng(seed).permutation(1600)[:160]) for seed in range(20)]
    assert np.mean(walked) < np.mean(chance)


def test_a_walker_comes_back_until_the_neighbours_of_a_cell_that_surprised_are_known() -> None:
    """One cell differs from all others: once met, the four beside it are next."""
    field = np.zeros((1, 900))
    field[0, 15 * 30 + 15] = 1.0
    walk = Walk((30, 30), WalkSettings(0.5, 1, 0))
    met = walk._flatten_positions(walk._positions)[0]
    field = np.roll(field, met - (15 * 30 + 15), axis=1)
    served = [int(walk.next_cells(1)[0])]
    walk.add_values(np.array(served), field[:, served])
    # What it is compared with.
    for cell in range(0, 900, 77):
        walk._served[cell] = True
        walk._history.add_values(np.array([cell]), np.zeros((1, 1)))
    for _ in range(4):
        cells = walk.next_cells(1)
        walk.add_values(cells, field[:, cells])
        served.append(int(cells[0]))
    row, column = divmod(served[0], 30)
    assert {divmod(cell, 30) for cell in served[1:]} == {
        (row, column - 1), (row, column + 1), (row - 1, column), (row + 1, column)
    }  # fmt: skip


def test_a_walker_that_meets_a_computed_cell_restarts_where_there_is_a_gap() -> None:
    """All is computed but a far corner: the walker gets there though its steps do not reach."""
    walk = Walk((40, 40), WalkSettings(0.5, 1, 0))
    first = walk.next_cells(1)
    corner = np.zeros((40, 40), dtype=bool)
    far = (30, 40) if first[0] // 40 < 20 else (0, 10)
    corner[far[0] : far[1], :] = True
    walk._served[:] = ~corner.ravel()
    walk._budget = 1600
    walk._history = SamplingHistory(40, 1600)
    computed = np.flatnonzero(~corner.ravel())
    walk._history.add_values(computed, np.zeros((1, len(computed))))
    gap = ndimage.distance_transform_edt(corner)
    [cell] = walk.next_cells(1)
    # Of the cells that it drew, not of all, the best one.
    assert gap.ravel()[cell] > np.median(gap[corner])


def test_walkers_that_restart_draw_from_cells_of_their_own() -> None:
    walk = Walk((8, 8), WalkSettings(0.5, 25, 0))
    cells = walk.next_cells(99)
    walk.add_values(cells, np.zeros((1, len(cells))))
    walk._restart(np.arange(25), walk._find_gains(walk._history.find_errors()))
    reached = set(walk._flatten_positions(walk._next_positions).tolist())
    assert len(reached) == 25
    assert not reached & set(cells.tolist())


@given(SHAPES, st.lists(st.tuples(st.floats(-500, 500), st.floats(-500, 500)), min_size=1, max_size=20))
def test_reflection_is_a_mirror_at_the_outermost_cells(
    shape: tuple[int, int], places: list[tuple[float, float]]
) -> None:
    size = np.array(shape)
    found = reflect_positions(np.array(places), size)
    assert np.all((found >= 0) & (found <= size - 1))
    for place, got in zip(places, found, strict=True):
        for along, last, end in zip(place, size - 1, got, strict=True):
            while last > 0 and not 0 <= along <= last:
                along = -along if along < 0 else 2 * last - along
            assert end == pytest.approx(along if last > 0 else 0.0, abs=1e-9)


@given(SHAPES, st.integers(1, 40), st.integers(0, 2**31))
def test_walkers_start_in_boxes_of_their_own(shape: tuple[int, int], count: int, seed: int) -> None:
    size = np.array(shape)
    places = sample_stratified(size, count, np.random.default_rng(seed))
    assert places.shape == (count, 2)
    assert np.all((places >= 0) & (places < size))


def test_starts_are_spread_evenly() -> None:
    places = sample_stratified(np.array([32, 32]), 16, np.random.default_rng(1))
    assert len({tuple(box) for box in (places // 8).tolist()}) == 16


def test_a_surprise_is_the_mean_distance_from_what_the_others_tell() -> None:
    """Three cells in a row: each is compared with the mean of the others, weighted by 1 / distance**2, at each time."""
    visited = SamplingHistory(4, 4)
    values = np.array([[1.0, 4.0, 3.0], [np.nan, 1.0, 5.0], [2.0, 1.0, np.nan]])
    visited.add_values(np.array([0, 2]), values[:, :2])
    visited.add_values(np.array([3]), values[:, 2:])
    expected = []
    for cell, at in enumerate((0, 2, 3)):
        apart = []
        for row in values:
            others = [(row[i], 1 / (at - x) ** 2) for i, x in enumerate((0, 2, 3)) if i != cell and np.isfinite(row[i])]
            if np.isfinite(row[cell]) and others:
                apart.append(abs(row[cell] - sum(v * w for v, w in others) / sum(w for _, w in others)))
        expected.append(np.mean(apart))
    found = visited.find_errors()
    assert found.cells.tolist() == [0, 2, 3]
    assert found.sizes == pytest.approx(np.array(expected) / np.sqrt(np.mean(np.square(expected))))
    # Around each cell all three lie: the median of the shares 0, 1/3, 2/3 of cells that surprise less.
    assert found.ranks == pytest.approx(np.full(3, 1 / 3))


@pytest.mark.parametrize("value", [0.1, np.nan])
def test_nothing_surprises_where_all_is_alike_or_missing(value: float) -> None:
    visited = SamplingHistory(10, 30)
    visited.add_values(np.arange(30), np.full((2, 30), value))
    assert (visited.find_errors().sizes == 0).all()


def test_one_cell_does_not_surprise() -> None:
    visited = SamplingHistory(10, 30)
    visited.add_values(np.array([4]), np.array([[7.0]]))
    assert visited.find_errors().sizes.tolist() == [0.0]


def test_long_surfaces_are_compared_by_some_of_their_time_cells() -> None:
    visited = SamplingHistory(2, 2)
    visited.add_values(np.arange(2), np.random.default_rng(0).normal(size=(1000, 2)))
    assert visited._values.shape == (TIMES_COMPARED, 2)


@pytest.mark.parametrize(
    ("given_", "said"),
    [
        ({"fraction": 0.6}, "at most 0.5; got 0.6"),
        ({"fraction": 0.0}, "fraction above 0"),
        ({"fraction": float("nan")}, "got nan"),
        ({"walkers": 0}, "at least one walker; got 0"),
        ({"seed": -1}, "seed of at least 0; got -1"),
    ],
)
def test_what_a_walk_cannot_do(given_: dict[str, float], said: str) -> None:
    with pytest.raises(InvalidQuery, match=said):
        WalkSettings(**given_)  # type: ignore[arg-type]
