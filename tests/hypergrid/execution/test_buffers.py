"""Buffers: nothing is computed twice with them, memory stays bounded, and without them windows are computed again."""

from dataclasses import replace

import numpy as np
import pytest
import xarray as xr

import hypergrid as hg
from hypergrid.execution import make_plan, run
from hypergrid.execution.operators.cells import Cells, SparseCells, store_sparse
from hypergrid.execution.planning.dependencies import Buffer, find_all_needed, first_and_last_boxes
from hypergrid.execution.planning.strategy import Strategy, path
from hypergrid.execution.running.run import Outcome
from hypergrid.interpolation.local.field import Weights
from hypergrid.perspective import Perspective
from hypergrid.query import Query
from hypergrid.rewrite import RULES
from hypergrid.rewrite.rules import commute
from tests.support.chains import CHAINS, GRID, MODEL, network

SLIDING = {"length": "1h", "step": "10min"}


def ran(query: Query, *, buffered: bool, k: int = 0, places: int = 64, times: int = 1) -> tuple[Outcome, Perspective]:
    # Of what commutes few slices are interpolated: here each is.
    plan = make_plan(query.surface(), rules=tuple(rule for rule in RULES if rule is not commute))
    chosen = Strategy(k, len(path(plan.surface)), "test", buffered=buffered)
    boxes = replace(plan, block_cells=places, block_times=times, strategy=chosen)
    return list(run(boxes))[-1].outcome, plan.surface


def sliding(slices: int = 60) -> Query:
    maps = network(slices).interpolate("ordinary_kriging", grid=GRID, variogram=MODEL)
    return maps.aggregate("max", time=SLIDING)


@pytest.mark.parametrize("name", CHAINS)
@pytest.mark.parametrize("times", [1, 4])
def test_with_buffers_no_cell_is_computed_twice(name: str, times: int) -> None:
    outcome, surface = ran(CHAINS[name](), buffered=True, places=23, times=times)
    assert outcome.work
    for item in surface.list_chain():
        # A place of coarser cells needs several of finer ones; none of them belongs to two.
        assert outcome.work.get(item.token, 0) <= item.topology.count, item.operator.describe()


def test_without_buffers_each_slice_is_interpolated_once_a_window() -> None:
    outcome, surface = ran(sliding(), buffered=False)
    maps = surface.source
    # Six slices in each window of an hour; the last five windows reach past the last slice.
    assert outcome.work[maps.token] == (6 * 55 + 5 + 4 + 3 + 2 + 1) * 64
    again, _ = ran(sliding(), buffered=True)
    assert again.work[maps.token] == 60 * 64
    # Products of matrices of other shapes round otherwise.
    np.testing.assert_allclose(again.value, outcome.value, rtol=1e-13)


def test_what_buffers_hold_does_not_grow_with_the_length_of_the_surface() -> None:
    # One block of places: stations expire too.
    short, _ = ran(sliding(40), buffered=True)
    long, surface = ran(sliding(400), buffered=True)
    assert 0 < long.buffered == short.buffered
    assert long.buffered <= 6 * (64 + surface.source.source.topology.space.count)


def outages() -> Query:
    """Return readings of which three sets of stations report, each for some time."""
    rng = np.random.default_rng(1)
    values = rng.normal(5, 3, (400, 9))
    values[100:180, 2] = np.nan
    values[300:330, 5:] = np.nan
    coords = {"time": np.arange(400) * np.timedelta64(600, "s") + np.datetime64("2007-10-01T00:00", "ns")}
    places = {name: ("station", rng.uniform(0, 2000, 9)) for name in ("x", "y")}
    return hg.base(xr.DataArray(values, {**coords, **places}, ("time", "station"), "air_temperature"))


def test_boxes_of_a_plan_short_of_memory_share_kriging_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    maps = outages().interpolate("ordinary_kriging", grid=GRID, variogram=MODEL, neighbours=4)
    surface = maps.aggregate("max", time=SLIDING).surface()
    whole = make_plan(surface)
    allowed = whole.projected_bytes // 20
    short = make_plan(surface, allowed_bytes=allowed)
    assert short.block_times is not None
    assert short.strategy.weights_bytes
    assert short.projected_bytes <= allowed
    solved = []
    of = Weights.of

    def counted(rows: np.ndarray, stations: int) -> Weights:
        solved.append(stations)
        return of(rows, stations)

    monkeypatch.setattr(Weights, "of", counted)
    expected = list(run(whole))[-1].outcome.value
    assert not solved
    np.testing.assert_allclose(list(run(short))[-1].outcome.value, expected, rtol=1e-12)
    # Once for each set of stations that report, whatever the number of boxes.
    assert len(solved) == 3 * -(-64 // short.block_cells)
    nothing = replace(short, strategy=replace(short.strategy, weights_bytes=0))
    np.testing.assert_allclose(list(run(nothing))[-1].outcome.value, expected, rtol=1e-12)
    assert len(solved) == 3 * -(-64 // short.block_cells)


def test_branches_of_a_merge_share_what_both_ask_for() -> None:
    maps = network().interpolate("ordinary_kriging", grid=GRID, variogram=MODEL)
    query = maps.aggregate("max", time="1h").merge("difference", maps.aggregate("min", time="1h"))
    shared, surface = ran(query, buffered=True)
    assert shared.work[surface.sources[0].source.token] == 60 * 64
    apart, _ = ran(query, buffered=False)
    assert apart.work[surface.sources[0].source.token] == 2 * 60 * 64


def test_a_materialised_perspective_is_computed_once() -> None:
    outcome, surface = ran(sliding(), buffered=False, k=1, places=23)
    assert outcome.work[surface.source.token] == surface.source.topology.count


def test_the_candidate_window_closes_behind_the_boxes() -> None:
    surface = make_plan(sliding().surface()).surface
    boxes = np.array_split(np.arange(surface.topology.time.count), 10)
    first, last = first_and_last_boxes(surface, boxes)
    slices = surface.source.token
    for number, times in enumerate(boxes):
        needed = find_all_needed(surface, times)[slices]
        assert (last[slices][needed] >= number).all()
        assert (first[slices][needed] <= number).all()
    assert (np.diff(last[slices]) >= 0).all()


def test_a_buffer_computes_what_it_does_not_hold() -> None:
    buffer, asked = Buffer(), []

    def compute(times: np.ndarray) -> Cells:
        asked.append(times.tolist())
        count = np.ones((len(times), 1), dtype=np.int64)
        return Cells(np.multiply.outer(times, np.ones(3)), count, np.ones((1, 1), dtype=np.int64))

    places = np.arange(3)
    buffer.get_cells(places, np.array([2, 3, 5]), compute)
    assert buffer.get_cells(places, np.array([1, 3, 4, 5]), compute).value[:, 0].tolist() == [1, 3, 4, 5]
    buffer.evict_old(np.arange(8), 3)
    assert buffer.cell_count == 2 * 3
    assert buffer.get_cells(places, np.array([3, 4]), compute).value[:, 0].tolist() == [3, 4]
    assert buffer.get_cells(np.arange(2), np.array([4]), compute).value.shape == (1, 3)
    assert asked == [[2, 3, 5], [1, 4], [3], [4]]


@pytest.mark.parametrize("density", [0.0, 0.05, 0.29, 0.31, 1.0])
def test_few_values_are_kept_sparse_and_come_back_as_they_were(density: float) -> None:
    rng = np.random.default_rng(3)
    present = np.zeros(2000, dtype=bool)
    present[rng.permutation(2000)[: int(2000 * density)]] = True
    value = np.where(present, rng.normal(size=2000), np.nan).reshape(100, 20)
    cells = Cells(value, np.isfinite(value).astype(np.int64), np.ones((1, 1), dtype=np.int64))
    kept = store_sparse(cells)
    assert isinstance(kept, SparseCells) == (density < 0.3)
    for times in (None, np.arange(100), np.array([0, 7, 8, 99]), np.array([50])):
        part = kept.select_times(times)
        rows = slice(None) if times is None else times
        np.testing.assert_array_equal(part.value, value[rows])
        np.testing.assert_array_equal(part.count, cells.count[rows])
        assert part.possible.shape == (1, 1)
