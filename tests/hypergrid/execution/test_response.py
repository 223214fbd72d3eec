"""The cost model, what is measured for it, and smaller boxes where memory is short."""

from itertools import pairwise

import numpy as np
import pytest

from hypergrid.core.errors import InvalidQuery, TooLarge
from hypergrid.core.lru_cache import LruCache
from hypergrid.execution import make_plan, run
from hypergrid.execution.planning.costs import MEASUREMENTS, Measurement, Meter
from hypergrid.execution.planning.plan import (
    StepCost,
    count_at_stations,
    list_candidates,
    mean_response_s,
    path,
    sort_candidates,
)
from hypergrid.query import Query
from tests.support.chains import GRID, MODEL, SLIDING, network


def maps(slices: int = 60) -> Query:
    aligned = network(slices).convert("scale", factor=2.0).aggregate("mean", time="20min", min_coverage=0)
    return aligned.interpolate("ordinary_kriging", grid=GRID, variogram=MODEL).aggregate("max", time=SLIDING)


def test_the_mean_response_is_that_of_the_thesis() -> None:
    surface = make_plan(maps().surface()).surface
    costs = {item.token: StepCost(2.0**number, 0.5) for number, item in enumerate(surface.list_chain())}
    seconds = [costs[item.token].seconds for item in path(surface)]
    cells = surface.topology.space.count
    for k in range(len(seconds) + 1):
        on_grid = sum(seconds[max(k, count_at_stations(surface)) :])
        # Boxes of one place (5.9); what is at the stations is needed by the first.
        expected = (
            0.5 * sum(seconds[:k]) + sum(seconds[k : count_at_stations(surface)]) + on_grid * (cells + 1) / (2 * cells)
        )
        assert mean_response_s(surface, costs, k, blocks=cells, boxes=1) == pytest.approx(expected)


def test_auto_computes_stations_once_and_pulls_maps() -> None:
    plan = make_plan(maps().surface())
    assert plan.strategy.k == count_at_stations(plan.surface) == 2
    assert sort_candidates(plan.surface, {0: 2.0, 1: 2.0, 2: 2.0, 3: 2.0, 4: 2.0})[0] == 2
    assert sort_candidates(plan.surface, {0: 2.0, 1: 1.0, 2: 2.0, 3: 2.0, 4: 2.0})[0] == 1


def test_auto_never_makes_slices_that_only_their_means_are_asked_of() -> None:
    maps_of_means = network(600).interpolate("ordinary_kriging", grid=GRID, variogram=MODEL).aggregate(
        "mean", time=SLIDING
    )  # fmt: skip
    surface = make_plan(maps_of_means.surface()).surface
    assert list_candidates(surface) == [0]
    assert list_candidates(make_plan(maps().surface()).surface) == [0, 1, 2, 3, 4]
    outcome = list(run(make_plan(maps_of_means.surface())))[-1].outcome
    assert surface.source.token not in outcome.work


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
    plan = make_plan(maps().surface(), refining=True)
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
