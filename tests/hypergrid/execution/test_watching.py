"""Which order a watched answer takes: where a walk can pay, where it falls back, and algorithm 9 line by line."""

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hypergrid.core.errors import InvalidQuery
from hypergrid.execution import Plan, WalkSettings, Watching, make_plan, refine
from hypergrid.execution.orders.printed_walk import EQUAL_RAD, PrintedWalk
from hypergrid.execution.orders.walk import STRIDE, reflect_positions, sample_stratified
from hypergrid.execution.planning.costs import MEASUREMENTS, Measurement
from hypergrid.execution.planning.strategy import path
from hypergrid.execution.planning.watching import LOOK_NS, ROUND_S, predict_times, step_key
from hypergrid.query import Query
from tests.support.chains import GRID, MODEL, SLIDING, network


@pytest.fixture(autouse=True)
def costs() -> Iterator[None]:
    """Leave no measured cost to other tests."""
    MEASUREMENTS.clear()
    yield
    MEASUREMENTS.clear()


def mapped() -> Query:
    return network().aggregate("mean", time="20min", min_coverage=0).interpolate(
        "ordinary_kriging", grid=GRID, variogram=MODEL
    )  # fmt: skip


def spend(query: Query, *seconds: float) -> None:
    """Set the measured costs of the perspectives above the readings [s]."""
    for item, cost in zip(path(query.plan().surface), seconds, strict=True):
        MEASUREMENTS.put(item.token, Measurement(item.topology.count, cost, 1.0), 1)


def test_the_gain_of_a_walk_is_of_its_cells_beside_its_start_and_its_steps() -> None:
    query = mapped()
    surface = query.plan().surface
    costs_s = {item.token: 0.0 for item in surface.list_chain()}
    costs_s |= dict(zip((item.token for item in path(surface)), (1.0, 100.0), strict=True))

    def predict(order: str, walkers: int | None = None) -> tuple[float, float]:
        return predict_times(surface, Watching(order, WalkSettings(walkers=walkers)), costs_s)

    def steps_s(order: str, steps: int) -> float:
        return steps * (ROUND_S[order] + 10 * LOOK_NS[order] * 1e-9)

    # Of 10 cells two walkers start on two, and meet the others in four steps.
    assert predict("walk") == pytest.approx((101.0, 1.0 + 15.0 + steps_s("walk", 4)))
    assert predict("walk", 1)[1] == pytest.approx(16.0 + steps_s("walk", 9))
    assert predict("walk", 50)[1] == pytest.approx(16.0)
    MEASUREMENTS.put(step_key("walk"), Measurement(10, 5.0, 1.0), 1)
    assert predict("walk")[1] == pytest.approx(16.0 + 4 * (ROUND_S["walk"] + 10 * 0.5))
    # Another walk's steps are its own.
    assert predict("algorithm_9")[1] == pytest.approx(16.0 + steps_s("algorithm_9", 4))


@pytest.mark.parametrize("order", ["walk", "algorithm_9"])
def test_a_walk_that_pays_is_taken_and_another_falls_back_with_the_reason(order: str) -> None:
    query = mapped()
    spend(query, 0.1, 10.0)
    state = next(iter(query.refine(order=order)))
    assert state.order == order
    assert state.order_note == f"{order}: 15% of the cells by a walk are predicted to take 1.6 s, all of them 10 s"
    assert f"Order: {order}: 15% of the cells" in query.explain(order=order)
    spend(query, 10.0, 0.1)
    state = next(iter(query.refine(order=order)))
    assert state.order == "coarse_to_fine"
    assert state.order_note == (
        "coarse to fine: 15% of the cells by a walk are predicted to take 10 s, all of them 10 s, "
        "less than 2 times as long"
    )
    assert "Order: coarse to fine: 15%" in query.explain(order=order)
    assert next(iter(query.refine(order=order, min_gain=0))).order == order
    assert next(iter(query.refine(order=order, min_gain=1.0))).order == order
    assert "Order:" not in query.explain()


def test_a_series_of_readings_is_one_pass_and_no_walk() -> None:
    one = network(576, 1).aggregate("mean", time="1h", min_coverage=0)
    state = next(iter(one.refine(order="walk")))
    assert state.order == "coarse_to_fine"
    assert state.order_note.startswith("coarse to fine: 15% of the cells by a walk")
    plan = make_plan(one.surface(), watched=Watching("walk", WalkSettings(min_gain=0)))
    assert plan.order is not None
    assert plan.order.walk_gain is not None
    assert plan.order.walk_gain < 2


@pytest.mark.parametrize("wrong", [-1, float("nan"), "twice", True])
def test_a_least_gain_that_is_none_is_refused(wrong: object) -> None:
    with pytest.raises(InvalidQuery, match="min_gain"):
        mapped().refine(order="walk", min_gain=wrong)  # type: ignore[arg-type]


def algorithm_9(values: np.ndarray, seed: int, budget: int) -> list[int]:
    """Return the cells that one walker computes, by the lines of algorithm 9."""
    shape, columns = np.array(values.shape), values.shape[1]
    random = np.random.default_rng(seed)
    stride = max(1.0, STRIDE * np.sqrt(values.size / budget))

    def go(start: np.ndarray, angle: float, length: float) -> np.ndarray:
        step = length * np.array([np.sin(angle), np.cos(angle)])
        return np.rint(reflect_positions((start + step)[None, :], shape)).astype(int)[0]

    before = sample_stratified(shape, 1, random)[0]
    angle = random.uniform(0, 2 * np.pi, 1)[0]
    computed = [int(before[0] * columns + before[1])]
    # Line 1.
    here = go(before, random.uniform(0, 2 * np.pi, 1)[0], stride)
    changes: list[float] = []
    for _ in range(10_000):
        # Lines 4 to 8.
        cell = int(here[0] * columns + here[1])
        if cell not in computed and len(computed) < budget:
            computed.append(cell)
        # Lines 15 to 17.
        if len(computed) >= budget:
            break
        change = abs(values[tuple(here)] - values[tuple(before)])
        changes.append(change)
        threshold = float(np.mean(changes))
        # Lines 9 to 13.
        moved = here - before
        forward = np.arctan2(moved[0], moved[1]) if moved.any() else angle
        angle = forward + np.pi if change > threshold else forward
        # Line 14.
        spread = EQUAL_RAD / (1 + change / threshold) if threshold > 0 else EQUAL_RAD
        direction = angle + spread * random.standard_normal(1)[0]
        before, here = here, go(here, direction, stride * random.random(1)[0])
    return computed


@given(st.integers(2, 12), st.integers(2, 12), st.integers(0, 1000), st.floats(0.05, 0.5), st.booleans())
@settings(max_examples=40, deadline=None)
def test_the_printed_walk_is_algorithm_9(rows: int, columns: int, seed: int, fraction: float, alike: bool) -> None:  # noqa: FBT001
    values = np.zeros((rows, columns)) if alike else np.random.default_rng(seed).normal(size=(rows, columns))
    walk = PrintedWalk((rows, columns), WalkSettings(fraction, 1, seed))
    budget, found = max(1, round(fraction * values.size)), list[int]()
    while len(found) < budget:
        cells = walk.next_cells(7)
        walk.add_values(cells, values.ravel()[cells][None, :])
        found.extend(cells.tolist())
    assert found[:budget] == algorithm_9(values, seed, budget)


def test_maps_by_time_give_up_the_weights_of_all_queries_only_where_memory_is_short() -> None:
    near = network(240).interpolate("ordinary_kriging", grid=GRID, variogram=MODEL, neighbours=4)
    query, by_time = near.convert("scale", factor=2.0).aggregate("max", time=SLIDING), Watching("by_time")
    whole = make_plan(query.surface(), watched=by_time, strategy=0)
    needed, places = whole.projected_bytes, query.plan().surface.topology.space.count

    def within(allowed_bytes: int) -> Plan:
        plan = make_plan(query.surface(), watched=by_time, strategy=0, allowed_bytes=allowed_bytes)
        assert plan.fits(allowed_bytes)
        assert plan.order == whole.order
        assert plan.block_cells == places
        return plan

    def is_fused(plan: Plan) -> bool:
        return any(item.is_fused for item in plan.surface.list_chain())

    assert whole.block_times is not None
    assert not is_fused(within(needed))
    assert within(needed).strategy == whole.strategy
    # Fused, it fits in the boxes that it has.
    assert is_fused(within(needed - 1))
    assert within(needed - 1).strategy.weights_bytes is None
    short = within(needed * 2 // 3)
    assert is_fused(short)
    assert short.strategy.weights_bytes
    assert short.block_times is not None
    assert short.block_times < whole.block_times
    *_, last = refine(short)
    expected = query.compute()["value"].to_numpy()
    np.testing.assert_allclose(last.progress.outcome.value.reshape(expected.shape), expected, rtol=1e-11)
