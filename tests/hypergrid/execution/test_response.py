"""The cost model, what is measured for it, and smaller boxes where memory is short."""

from itertools import pairwise

import numpy as np
import pytest

import hypergrid as hg
from hypergrid.core.errors import InvalidQuery, TooLarge
from hypergrid.core.lru_cache import LruCache
from hypergrid.execution import Watching, make_plan, refine, run
from hypergrid.execution.planning.costs import MEASUREMENTS, Measurement, Meter
from hypergrid.execution.planning.response import (
    list_candidates,
    must_compare,
    project_times,
    sort_candidates,
)
from hypergrid.execution.planning.strategy import count_at_stations, path
from hypergrid.query import Query
from tests.support.chains import GRID, MODEL, SLIDING, network


def maps(slices: int = 60) -> Query:
    aligned = network(slices).convert("scale", factor=2.0).aggregate("mean", time="20min", min_coverage=0)
    return aligned.interpolate("ordinary_kriging", grid=GRID, variogram=MODEL).aggregate("max", time=SLIDING)


def project(query: Query, k: int, *, blocks: int, boxes: int, seconds: tuple[float, ...]) -> tuple[float, float]:
    """Return mean response and total [s], of costs along the path alone."""
    surface = make_plan(query.surface()).surface
    costs = {item.token: 0.0 for item in surface.list_chain()}
    costs |= {item.token: cost for item, cost in zip(path(surface), seconds, strict=True)}
    places = np.array_split(np.arange(surface.topology.space.count), blocks)
    times = np.array_split(np.arange(surface.topology.time.count), boxes)
    found = project_times(surface, costs, k, blocks=places, boxes=times, call_s=0.0)
    return found.response_s, found.total_s


def test_one_box_in_time_is_equation_5_9_with_the_stations_first() -> None:
    seconds, cells = (1.0, 2.0, 4.0, 8.0), 64
    for k in range(4):
        at_stations, on_grid = sum(seconds[:2]), sum(seconds[max(k, 2) :])
        held = sum(seconds[2 : max(k, 2)])
        response, total = project(maps(), k, blocks=cells, boxes=1, seconds=seconds)
        assert response == pytest.approx(at_stations + held + on_grid * (cells + 1) / (2 * cells))
        assert total == pytest.approx(sum(seconds))


def test_boxes_in_time_share_what_is_at_the_stations() -> None:
    """Hours of one map each: every box needs its own cells of the stations, and nothing of the others."""
    aligned = network(60).aggregate("mean", time="20min", min_coverage=0).convert("scale", factor=2.0)
    query = aligned.interpolate("ordinary_kriging", grid=GRID, variogram=MODEL)
    boxes = query.plan().surface.topology.time.count
    half = (boxes + 1) / (2 * boxes)
    for k, expected in enumerate([(3 + 4) * half, 1 + 6 * half, 3 + 4 * half]):
        response, total = project(query, k, blocks=1, boxes=boxes, seconds=(1.0, 2.0, 4.0))
        assert response == pytest.approx(expected)
        assert total == pytest.approx(7)
    fitted = aligned.interpolate("ordinary_kriging", grid=GRID, variogram="fit")
    # A variogram that is fitted to all slices needs all stations before the first map.
    for k in range(3):
        response, _ = project(fitted, k, blocks=1, boxes=boxes, seconds=(1.0, 2.0, 4.0))
        assert response == pytest.approx(3 + 4 * half)


def nested(count: int) -> Query:
    """Return means over zones that all hold the middle of the map."""
    squares = {
        f"zone {number}": {
            "type": "Polygon",
            "coordinates": [[[low, low], [high, low], [high, high], [low, high], [low, low]]],
        }
        for number, (low, high) in enumerate((250.0 * n, 2000.0 - 250.0 * n) for n in range(count))
    }
    mapped = network(6).interpolate("ordinary_kriging", grid=GRID, variogram=MODEL)
    return mapped.aggregate("mean", zones=squares, min_coverage=0)


def test_cells_that_zones_share_are_computed_by_each_block_unless_held() -> None:
    query, seconds = nested(3), (8.0, 1.0)
    # 64, 36 and 16 of the map's cells; each block is one zone.
    pulled = np.cumsum([8.0 * share / 64 + 1 / 3 for share in (64, 36, 16)])
    assert project(query, 0, blocks=3, boxes=1, seconds=seconds) == pytest.approx((pulled.mean(), pulled[-1]))
    assert project(query, 1, blocks=3, boxes=1, seconds=seconds) == pytest.approx((8 + 2 / 3, 9))


def test_costs_decide_only_where_they_can() -> None:
    flat, zoned = make_plan(maps().surface()).surface, make_plan(nested(3).surface()).surface
    assert not must_compare(flat, blocks=24, boxes=1)
    assert must_compare(flat, blocks=1, boxes=2)
    assert must_compare(zoned, blocks=3, boxes=1)
    assert not must_compare(zoned, blocks=1, boxes=1)


@pytest.mark.parametrize("name", ["maps", "zones"])
@pytest.mark.parametrize("costs", [(1e6, 1e-6), (1e-6, 1e6)])
def test_no_cost_changes_k_where_time_comes_in_one_box_and_cells_do_not_overlap(
    name: str, costs: tuple[float, float]
) -> None:
    """The proof of `response.py`: with any costs no k is faster than that of the stations."""
    query = maps() if name == "maps" else nested(3)
    surface = make_plan(query.surface()).surface
    usual, steps = count_at_stations(surface), len(path(surface))
    seconds = tuple(np.resize(costs, steps).tolist())
    blocks = 1 if name == "zones" else 24
    assert not must_compare(surface, blocks=blocks, boxes=1)
    responses = [project(query, k, blocks=blocks, boxes=1, seconds=seconds)[0] for k in range(steps)]
    assert responses[usual] <= min(responses) * (1 + 1e-12)


def test_auto_computes_stations_once_and_pulls_maps() -> None:
    for watched in (None, Watching(), Watching("raster")):
        plan = make_plan(maps().surface(), watched=watched)
        assert plan.strategy.k == count_at_stations(plan.surface) == 2
    assert sort_candidates(plan.surface, {0: 2.0, 1: 2.0, 2: 2.0, 3: 2.0, 4: 2.0})[0] == 2
    assert sort_candidates(plan.surface, {0: 2.0, 1: 1.0, 2: 2.0, 3: 2.0, 4: 2.0})[0] == 1
    assert sort_candidates(plan.surface, {0: 2.0, 1: 1.99, 2: 2.0})[0] == 2


def test_measured_costs_move_k_where_it_matters() -> None:
    """Maps by time: with dear stations none of their steps is waited for as a whole."""
    query = network(600).aggregate("mean", time="20min", min_coverage=0).interpolate(
        "ordinary_kriging", grid=GRID, variogram=MODEL, neighbours=4
    )  # fmt: skip
    surface = make_plan(query.surface(), rules=()).surface
    stations, mapped = path(surface)
    try:
        for dear, k in ((stations, 0), (mapped, 1)):
            for item in (stations, mapped):
                seconds = 10.0 if item is dear else 1e-9
                MEASUREMENTS.put(item.token, Measurement(item.topology.count, seconds, 1.0), 1)
            plan = make_plan(query.surface(), watched=Watching("by_time"), rules=())
            assert plan.strategy.k == k
            assert plan.block_times is not None
    finally:
        MEASUREMENTS.clear()


@pytest.mark.parametrize("query", [maps(), nested(4), network(30), network(30).aggregate("mean", time="1h")])
def test_maps_by_time_are_whole_maps_in_order_and_the_surface_the_same(query: Query) -> None:
    expected = query.compute()["value"].to_numpy()
    for k in (None, *range(len(path(query.plan().surface)) + 1)):
        strategy = "auto" if k is None else k
        plan = make_plan(query.surface(), watched=Watching("by_time"), strategy=strategy)
        before = 0
        for picture in refine(plan):
            value = picture.progress.outcome.value.reshape(expected.shape)
            np.testing.assert_allclose(value[: picture.count], expected[: picture.count], rtol=1e-11)
            assert np.isnan(value[picture.count :]).all()
            assert picture.count > before
            before = picture.count
        assert before == expected.shape[0] == picture.lattice.cells
        assert picture.progress.complete
        assert picture.error() == 0


def test_a_refinement_by_time_shows_the_maps_that_are_there() -> None:
    query = maps(240)
    first, *others = query.refine(order="by_time")
    *_, last = [first, *others] if others else [first]
    assert first.order == "by_time"
    assert first.order_note == ""
    assert last.complete
    states = iter(query.refine(order="by_time"))
    early = next(states)
    assert 0 < early.fraction < 1
    assert early.frame(0).computed.all()
    assert np.isfinite(early.estimate).all()
    assert not early.frame(early.frames - 1).computed.any()
    assert np.isnan(early.error)
    whole = query.compute()
    *_, complete = states
    np.testing.assert_allclose(complete.dataset()["value"], whole["value"], rtol=1e-11)
    single = next(iter(hg.Query.refine(maps(12).aggregate("mean", time="all"), order="by_time")))
    assert single.order == "coarse_to_fine"
    assert single.order_note == "coarse to fine: there is only one time cell"


def test_auto_never_makes_slices_that_only_their_means_are_asked_of() -> None:
    maps_of_means = network(600).interpolate("ordinary_kriging", grid=GRID, variogram=MODEL).aggregate(
        "mean", time=SLIDING
    )  # fmt: skip
    surface = make_plan(maps_of_means.surface()).surface
    assert list_candidates(surface) == [0]
    # All four materialised are the run of three: a surface is never cached.
    assert list_candidates(make_plan(maps().surface()).surface) == [0, 1, 2, 3]
    outcome = list(run(make_plan(maps_of_means.surface())))[-1].outcome
    assert surface.source.token not in outcome.work


def test_a_watched_answer_computes_what_is_at_the_stations_with_its_first_block_or_before_it() -> None:
    """Either way it is the same run: after each block the same cells of every perspective are computed."""

    def works(k: int) -> list[dict[str, int]]:
        plan = make_plan(maps().surface(), watched=Watching(), strategy=k)
        return [dict(state.progress.outcome.work) for state in refine(plan)]

    pulled, *others = works(0), works(1), works(2)
    assert len(pulled) > 1
    assert others == [pulled, pulled]
    held = works(3)
    assert held != pulled
    assert held[-1] == pulled[-1]


def test_a_run_remembers_what_it_measured() -> None:
    plan = make_plan(maps(44).surface())
    ticks = iter(range(10_000))
    last = list(run(plan, clock=lambda: float(next(ticks))))[-1]
    stations = next(item for item in plan.surface.list_chain() if item.token == path(plan.surface)[0].token)
    found = MEASUREMENTS.peek(stations.token)
    assert found is not None
    assert found.cells == stations.topology.count
    assert found.density == pytest.approx(0.8, abs=0.1)
    total = sum(one.seconds for item in plan.surface.list_chain() if (one := MEASUREMENTS.peek(item.token)))
    assert 0 < total < last.seconds


def test_the_time_of_sources_is_theirs_and_the_table_is_bounded() -> None:
    ticks = iter([0.0, 1.0, 4.0, 10.0])
    table: LruCache[str, Measurement] = LruCache(2)
    meter = Meter(lambda: next(ticks))
    with meter.measure("above") as above:
        with meter.measure("below") as below:
            below(np.array([1.0, np.nan]))
        above(np.ones(5))
    meter.save_sums(table)
    assert table.peek("below") == Measurement(2, 3.0, 0.5)
    assert table.peek("above") == Measurement(5, 7.0, 1.0)
    table.put("third", Measurement(1, 1.0, 1.0), 1)
    assert table.statistics().entries == 2
    assert table.peek("below") is None


def test_the_response_time_of_a_run_is_the_mean_over_its_cells() -> None:
    plan = make_plan(maps().surface(), watched=Watching())
    ticks = iter(range(100_000))
    states = list(run(plan, clock=lambda: float(next(ticks))))
    cells = np.diff([0, *(state.cells for state in states)])
    expected = sum(state.seconds * own for state, own in zip(states, cells, strict=True)) / plan.cells
    assert states[-1].response_s == pytest.approx(expected)
    assert states[-1].cells == plan.cells
    assert all(one.fraction < other.fraction for one, other in pairwise(states))


def test_where_memory_is_short_the_boxes_are_smaller_and_the_surface_the_same() -> None:
    query = maps(240)
    whole = query.plan()
    expected = query.compute(allowed_bytes=whole.projected_bytes)
    smallest = min(make_plan(query.surface(), allowed_bytes=0, strategy=k).projected_bytes for k in range(5))
    assert smallest < whole.projected_bytes
    for allowed in np.linspace(smallest, whole.projected_bytes, 5).astype(int).tolist()[1:-1]:
        plan = make_plan(query.surface(), allowed_bytes=allowed)
        assert plan.projected_bytes <= allowed
        assert plan.block_cells < whole.block_cells or plan.block_times is not None
        found = list(run(plan))[-1].outcome.value.reshape(expected["value"].shape)
        np.testing.assert_allclose(found, expected["value"].to_numpy(), rtol=1e-11)
    with pytest.raises(TooLarge) as error:
        query.compute(allowed_bytes=smallest - 1)
    assert error.value.projected == smallest


@pytest.mark.parametrize("wanted", ["fastest", -1, 5, True, 1.5])
def test_a_strategy_that_does_not_exist_is_refused(wanted: object) -> None:
    with pytest.raises(InvalidQuery, match="strategy needs one of auto, top_down, bottom_up, or how many .* 0 to 4"):
        maps().compute(strategy=wanted)  # type: ignore[arg-type]
