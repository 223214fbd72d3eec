"""Plans: what is projected holds, what is too large is refused, and a run that is closed stops."""

import threading
import tracemalloc
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from numpy.typing import NDArray

import hypergrid as hg
from hypergrid.core.errors import InvalidQuery, NotFound, TooLarge
from hypergrid.core.times import SECOND_NS
from hypergrid.execution import ORDERS, make_plan
from hypergrid.execution.orders.orders import PART_CELLS, FixedOrder
from hypergrid.execution.planning.costs import MEASUREMENTS
from hypergrid.execution.running.evaluate import Evaluator
from hypergrid.query import Query
from tests.support.networks import random_archive

GOLDEN = Path(__file__).parents[2] / "golden"
MODEL = hg.variogram("exponential", psill=1.2, range_m=250.0, nugget=0.05)


def network(slices: int, stations: int, *, holes: float = 0.1) -> Query:
    rng = np.random.default_rng(slices)
    times = np.arange(slices) * 600 * SECOND_NS
    values = np.where(rng.random((slices, stations)) < holes, np.nan, rng.normal(5, 3, (slices, stations)))
    places = {name: ("station", rng.uniform(0, 2000, stations)) for name in ("x", "y")}
    coords = {"time": times.view("datetime64[ns]"), **places}
    return hg.base(xr.DataArray(values, dims=("time", "station"), coords=coords, name="air_temperature"))


def on_grid(query: Query, side: int, neighbours: int | None = None) -> Query:
    grid = hg.grid(x=(0, 2000), y=(0, 2000), step=2000 / side)
    given = {"neighbours": neighbours} if neighbours else {}
    return query.interpolate("ordinary_kriging", grid=grid, variogram=MODEL, **given)


def blocks(query: Query, side: int, **given: object) -> Query:
    grid = hg.grid(x=(0, 2000), y=(0, 2000), step=2000 / side)
    wanted = {"variogram": MODEL, "support": "block", "quadrature": 8, **given}
    return query.interpolate("ordinary_kriging", grid=grid, **wanted)


QUERIES = {
    "small map": lambda: on_grid(network(20, 10), 20),
    "many slices": lambda: on_grid(network(2000, 24), 23).aggregate("mean", time="all"),
    "nearest of many slices": lambda: on_grid(network(430, 24), 23, 20).aggregate("mean", time="all"),
    "large map": lambda: on_grid(network(10, 60), 400),
    "large map of nearest": lambda: on_grid(network(2, 60), 200, 20),
    "map with variance": lambda: on_grid(network(30, 40), 100).with_variance(),
    "map with variance of nearest": lambda: on_grid(network(10, 40), 100, 8).with_variance(),
    "hourly maps": lambda: on_grid(network(600, 24), 60).aggregate("mean", time="1h"),
    "coarser maps": lambda: on_grid(network(200, 24), 100).aggregate("max", time="1h", x=100, y=100),
    "ranges of maps": lambda: on_grid(network(300, 24), 60).convert("valid_range", low=0, high=9).aggregate(
        "mean", time={"length": "1h", "step": "20min"}),
    "blocks": lambda: blocks(network(20, 100), 60),
    "blocks in one mean": lambda: blocks(network(100, 100), 60).aggregate("mean", time="all"),
    "blocks with variance": lambda: blocks(network(20, 100), 25).with_variance(),
    "blocks of few stations with variance": lambda: blocks(network(20, 12), 40).with_variance(),
    "blocks of nearest": lambda: blocks(network(20, 100), 60, neighbours=12),
    "blocks of a region": lambda: blocks(network(20, 100), 60, quadrature=4).aggregate("mean", x="all", y="all"),
    "blocks of a region with variance": lambda: blocks(network(20, 100), 20, quadrature=4).aggregate(
        "mean", x="all", y="all").with_variance(),
    "series": lambda: network(20_000, 50).aggregate("mean", time="1h"),
    "sampled series": lambda: network(20_000, 50).aggregate("sample", time="1h"),
    "difference of maps": lambda: on_grid(network(60, 24), 60).merge(
        "difference", on_grid(network(60, 24).convert("scale", factor=2.0), 60)),
    "anomalies of maps": lambda: on_grid(network(60, 24), 60).merge(
        "anomaly", on_grid(network(60, 24), 60).aggregate("mean", time="hour_of_day")),
    "map of anomalies": lambda: on_grid(network(600, 24).aggregate("mean", time="20min").merge(
        "anomaly", network(600, 24).aggregate("mean", time="hour_of_day")), 60),
}  # fmt: skip


@pytest.mark.parametrize("name", QUERIES)
def test_the_peak_stays_below_the_projection(name: str) -> None:
    query = QUERIES[name]()
    projected = query.plan().projected_bytes
    # Loaded when they are used, and counted as memory then.
    import_module("scipy.sparse.csgraph")
    import_module("scipy.spatial")
    tracemalloc.start()
    try:
        dataset = query.compute(allowed_bytes=projected)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < projected + 2**20, f"{peak / 2**20:.1f} MiB of {projected / 2**20:.1f} MiB projected"
    assert projected < 60 * max(peak, 2**20), "a projection that refuses everything is none"
    assert dataset["value"].size == query.plan().cells


def test_a_variogram_a_slice_keeps_a_system_a_slice() -> None:
    grid = hg.grid(x=(0, 2000), y=(0, 2000), step=200)
    once, by_slice = (
        network(1000, 80).interpolate("ordinary_kriging", grid=grid, **given).plan().projected_bytes
        for given in ({"variogram": MODEL, "neighbours": 79}, {"variogram": "fit_by_slice"})
    )
    assert by_slice - once >= 1000 * 80**2 * 8


def test_an_archives_peak_stays_below_the_projection(tmp_path: Path) -> None:
    archive, _ = random_archive(tmp_path / "archive", 1, hours=24)
    query = archive["air_temperature"].aggregate("mean", time="10min", min_coverage=0)
    query.compute()
    projected = query.plan().projected_bytes
    tracemalloc.start()
    try:
        query.compute()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # Reading touches whole chunks of the archive, a few MiB whatever is asked.
    assert peak < projected + 16 * 2**20


def test_what_is_too_large_is_refused_before_it_runs_with_both_numbers() -> None:
    query = on_grid(network(20, 10), 100)
    projected = query.plan().projected_bytes
    for attempt in (lambda: query.compute(allowed_bytes=1000), lambda: query.refine(allowed_bytes=1000)):
        with pytest.raises(
            TooLarge, match=r"the query projects [0-9,]+ bytes of memory, above the 1,000 allowed"
        ) as error:
            attempt()
        assert error.value.allowed == 1000
        assert error.value.projected > 1000
    assert query.compute(allowed_bytes=projected)["value"].size == 20 * 100 * 100


def test_a_grid_of_a_million_million_cells_is_planned_and_refused() -> None:
    query = network(20, 10).interpolate(
        "ordinary_kriging", grid=hg.grid(x=0, y=0, step=0.001, shape=(10**6, 10**6)), variogram=MODEL
    )
    assert query.plan().cells == 20 * 10**12
    with pytest.raises(TooLarge):
        query.compute()
    clipped = query.clip(x=(0, 0.002), y=(0, 0.003))
    assert clipped.compute()["value"].shape == (20, 3, 2)


@pytest.mark.parametrize("order", ORDERS)
def test_a_refinement_that_is_closed_computes_no_further_block(order: str, monkeypatch: pytest.MonkeyPatch) -> None:
    computed = []
    block = Evaluator.block

    def counted(self: Evaluator, here: object, cells: object, **more: object) -> object:
        computed.append(here)
        return block(self, here, cells, **more)  # type: ignore[arg-type]

    monkeypatch.setattr(Evaluator, "block", counted)
    threads = threading.active_count()
    refinements = on_grid(network(5, 10), 30).refine(order=order)
    assert computed == []
    for refinement in refinements:
        if refinement.fraction > 0.4:
            break
    before = len(computed)
    refinements.close()  # type: ignore[attr-defined]
    assert next(refinements, None) is None
    assert len(computed) == before
    assert threading.active_count() == threads
    assert not refinement.complete
    frame = refinement.frame(0)
    assert np.isfinite(frame.values[frame.computed]).all()
    assert np.isnan(frame.values[~frame.computed]).all()
    assert np.isfinite(frame.estimate).all()
    assert refinement.dataset().attrs["hypergrid_fraction"] == refinement.fraction


@pytest.mark.parametrize("order", ["raster", "coarse_to_fine", "by_time"])
def test_values_that_another_thread_writes_are_not_shown_before_they_are_marked(order: str) -> None:
    refinement = next(iter(on_grid(network(5, 10), 30).refine(order=order)))
    assert not refinement.complete
    numbers = 0, refinement.frames - 1
    before, estimate = [refinement.frame(number) for number in numbers], refinement.estimate
    outcome = refinement.progress.outcome
    # As the next block does, whose values are there first.
    if outcome.computed_times is None:
        outcome.value[:, ~outcome.computed] = 99.0
    else:
        outcome.value[~outcome.computed_times] = 99.0
    for number, shown in zip(numbers, before, strict=True):
        np.testing.assert_array_equal(refinement.frame(number).values, shown.values)
        np.testing.assert_array_equal(refinement.frame(number).estimate, shown.estimate)
    np.testing.assert_array_equal(refinement.estimate, estimate)


def test_an_unknown_order_is_refused_before_anything_runs() -> None:
    with pytest.raises(NotFound, match="unknown order of blocks 'spiral'"):
        on_grid(network(5, 10), 30).refine(order="spiral")


def cells_in(order: str, shape: tuple[int, ...]) -> NDArray[np.intp]:
    """Return all cells in an order."""
    return np.concatenate([*ORDERS[order](shape)])


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("shape", [(1, 1), (1, 7), (23, 23), (8, 64), (5,)])
def test_orders_are_permutations(order: str, shape: tuple[int, ...]) -> None:
    assert sorted(cells_in(order, shape).tolist()) == list(range(int(np.prod(shape))))


@pytest.mark.parametrize("shape", [(1, 1), (2, 2), (1, 7), (7, 1), (23, 23), (8, 64), (5,), (700, 1025), (3, 4, 5)])
def test_coarse_to_fine_is_by_how_often_rows_and_columns_can_be_halved(shape: tuple[int, ...]) -> None:
    coarsest = int(np.log2(max(max(shape) - 1, 1)))
    powers = np.array([coarsest, *(int(np.log2(index & -index)) for index in range(1, max(shape)))])
    each = np.stack([powers[index] for index in np.indices(shape)])
    least, most = each.min(axis=0), each.max(axis=0)
    expected = np.argsort(-(2 * least + (least == most)).ravel(), kind="stable")
    np.testing.assert_array_equal(cells_in("coarse_to_fine", shape), expected)


@pytest.mark.parametrize("count", [1, 7, 1000, PART_CELLS, 10**7])
def test_cells_are_served_in_lots_of_any_size(count: int) -> None:
    shape = (600, 901)
    known, lots = FixedOrder(ORDERS["coarse_to_fine"](shape)), []
    while len(lot := known.next_cells(count)) and len(lots) < 50:
        lots.append(lot)
    served = np.concatenate(lots)
    assert {len(lot) for lot in lots[:-1]} <= {count}
    np.testing.assert_array_equal(served, cells_in("coarse_to_fine", shape)[: len(served)])
    assert len(lots) == 50 or len(served) == 600 * 901


def test_a_coarse_lattice_comes_first() -> None:
    rows, columns = np.divmod(cells_in("coarse_to_fine", (16, 16)), 16)
    assert set(rows[:16].tolist()) == set(columns[:16].tolist()) == {0, 4, 8, 12}
    assert sorted(zip(rows[:4].tolist(), columns[:4].tolist(), strict=True)) == [(0, 0), (0, 8), (8, 0), (8, 8)]


def test_the_middle_of_four_cells_comes_before_the_middle_of_two() -> None:
    order = cells_in("coarse_to_fine", (9, 9))
    known = {(0, 0), (0, 8), (8, 0), (8, 8)}
    places = list(zip(*(one.tolist() for one in np.divmod(order, 9)), strict=True))
    assert set(places[:4]) == known
    assert places[4] == (4, 4)
    assert set(places[5:9]) == {(0, 4), (4, 0), (4, 8), (8, 4)}
    assert set(places[9:13]) == {(2, 2), (2, 6), (6, 2), (6, 6)}


def test_explain_is_stable_text() -> None:
    query = (
        on_grid(
            network(432, 12)
            .convert("valid_range", low=-40.0, high="50 degC")
            .convert("scale", factor=1.0)
            .aggregate("mean", time="30min"),
            23,
            20,
        )
        .aggregate("mean", time={"length": "3h", "step": "1h"})
        .clip(time=("1970-01-01T12:00", "1970-01-02"), x=(0, 1000))
    )
    assert query.explain() + "\n" == (GOLDEN / "explain.txt").read_text()


def test_explain_tells_what_was_measured() -> None:
    # Half of the readings are holes, so half of the first cells hold nothing.
    values = np.where(np.arange(40)[:, None] % 2 == 0, 5.0, np.nan) + np.arange(3.0)
    times = np.datetime64("1970-01-01", "ns") + np.arange(40) * np.timedelta64(10, "m")
    coords = {"time": times, "x": ("station", [0.0, 1.0, 2.0]), "y": ("station", np.zeros(3))}
    query = hg.base(xr.DataArray(values, dims=("time", "station"), coords=coords)).aggregate("max", time="20min")
    tabled = query.explain(strategy="top_down")
    assert tabled.splitlines()[-1].endswith("by tabled unit costs")
    query.compute(strategy="top_down")
    assert query.explain(strategy="top_down") == tabled
    told = query.explain(strategy="top_down", measured=True)
    assert "by measured unit costs of 2 of 2 steps" in told.splitlines()[-1]
    plan = query.plan()
    for number, (step, item) in enumerate(zip(plan.steps, plan.surface.list_chain(), strict=True)):
        found = MEASUREMENTS.peek(item.token)
        assert found is not None
        columns = next(line for line in reversed(told.splitlines()) if f"  {number}. " in line).split()
        assert float(columns[0].replace(",", "")) == step.cells
        assert float(columns[1]) == [0.5, 1.0][number]
        np.testing.assert_allclose(float(columns[2].replace(",", "")), found.seconds / found.cells * 1e9, rtol=0.06)


def test_explain_tells_the_plan_that_compute_takes() -> None:
    query = on_grid(network(200, 12), 40, 5).aggregate("max", time="1h")
    for strategy, words in (("top_down", "top-down: top-down, 2 of 2"), ("bottom_up", "bottom-up: bottom-up, 0 of 2")):
        assert f"Plan ({words} perspectives materialised)" in query.explain(strategy=strategy)
    assert "as asked: hybrid-1, 1 of 2 perspectives materialised" in query.explain(strategy=1)
    with pytest.raises(InvalidQuery, match="strategy needs one of auto, top_down, bottom_up, or how many"):
        query.explain(strategy=3)
    projected = query.plan().projected_bytes
    short = query.explain(strategy="bottom_up", allowed_bytes=projected // 2)
    assert "places and " in short
    assert "time cells" in short.splitlines()[-2]


def test_a_result_s_token_is_that_of_its_query_whatever_was_rewritten(tmp_path: Path) -> None:
    base = network(60, 12).convert("scale", factor=1.0)
    query = on_grid(base, 10).aggregate("mean", time="1h").clip(time=("1970-01-01T02:00", "1970-01-01T06:00"))
    assert query.plan().rewritten.surface.token != query.token
    assert query.compute().attrs["hypergrid_token"] == query.token
    assert list(query.refine())[-1].dataset().attrs["hypergrid_token"] == query.token
    query.to_zarr(tmp_path / "out.zarr")
    with xr.open_zarr(tmp_path / "out.zarr", consolidated=False) as kept:
        assert kept.attrs["hypergrid_token"] == query.token


@pytest.mark.parametrize("name", ["map of anomalies", "hourly maps"])
def test_time_cells_that_are_too_many_to_list_project_no_less(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    surface = QUERIES[name]().surface()
    listed = make_plan(surface, strategy="bottom_up")
    short = make_plan(surface, strategy="bottom_up", allowed_bytes=listed.projected_bytes // 2)
    assert short.block_times is not None
    monkeypatch.setattr("hypergrid.execution.planning.plan.MAX_LISTED", 1)
    shared = make_plan(surface, strategy="bottom_up", allowed_bytes=listed.projected_bytes // 2)
    assert (shared.block_times, shared.block_cells) <= (short.block_times, short.block_cells)
