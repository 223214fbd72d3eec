"""Joins of near points by a grid: the same rows as all pairs, wherever the points are, from few candidates."""

from collections.abc import Sequence
from unittest.mock import patch

import numpy as np
import pytest

from hypergrid.continuous import join_plan
from hypergrid.continuous.algebra import JoinOf, Operator, ToStream, WindowOf
from hypergrid.continuous.engine import ChangeBatch, ContinuousEngine, ElementBatch
from hypergrid.continuous.engine.batch import PHYSICAL, Elements
from hypergrid.continuous.engine.evaluation import Evaluate, ExpressionEvaluator, Value
from hypergrid.continuous.engine.kernels.grid import NEIGHBOURS, NO_CELL, cells_of
from hypergrid.continuous.expressions import Expression, Operation
from hypergrid.continuous.join_plan import LEAST_EDGE_M, limit_of_distance, plan_join
from hypergrid.continuous.result_order import sort_changes
from hypergrid.core.errors import InvalidQuery
from hypergrid.core.geodesy import RADIUS_M
from tests.support.continuous_engine import decode
from tests.support.continuous_oracle import START, Change, net_changes, oracle_result
from tests.support.continuous_trees import call, column, constant, relation, stream

PLACES = {
    "anywhere": lambda rng, n: (rng.uniform(-180, 180, n), np.degrees(np.arcsin(rng.uniform(-1, 1, n)))),
    "valley": lambda rng, n: (7 + rng.uniform(0, 0.2, n), 46 + rng.uniform(0, 0.2, n)),
    "north pole": lambda rng, n: (rng.uniform(-180, 180, n), 90 - rng.exponential(0.1, n)),
    "south pole": lambda rng, n: (rng.uniform(0, 360, n), np.where(rng.random(n) < 0.2, -90, -90 + rng.random(n))),
    "date line": lambda rng, n: (180 + rng.normal(0, 0.1, n) - 360 * rng.integers(0, 2, n), rng.normal(0, 0.1, n)),
    "equator and Greenwich": lambda rng, n: (rng.normal(0, 1e-4, n), rng.normal(0, 1e-4, n)),
    "a few points": lambda rng, n: (rng.integers(-3, 3, n) * 60.0, rng.integers(-3, 4, n) * 30.0),
    "faulty": lambda rng, n: (rng.normal(0, 1e3, n), rng.choice([91.0, -450.0, 0.0, np.inf, np.nan], n)),
}
LIMITS_M = (0.5, 300.0, 5_000.0, 80_000.0, 1.5e6, 1.0e7, 2.1e7)

LIGHTNING = stream("lightning", "k:i lon:n lat:n")
STATIONS = relation("stations", "k:i lon:n lat:n")
RAIN = stream("rain", "k:i mm:n")


def near(join: Sequence[Operator], limit_m: float, first: int = 0, second: int = 1) -> Operation:
    """Return the condition that the points of two inputs are nearer than a limit."""
    whole = JoinOf(tuple(join))
    points = [column(whole, name, number) for number in (first, second) for name in ("lon", "lat")]
    return call("less", call("distance_m", *points), limit_m)


def windowed(seconds: int = 600) -> WindowOf:
    return WindowOf(LIGHTNING, "range", range_ns=seconds)


def make_points(rng: np.random.Generator, place: str, count: int, *, keys: int) -> tuple[np.ndarray, ...]:
    lon, lat = PLACES[place](rng, count)
    for part in (lon, lat):
        part[rng.random(count) < 0.03] = np.nan
    return rng.integers(0, keys, count), np.asarray(lon, float), np.asarray(lat, float)


Inputs = dict[str, ElementBatch]


def run(tree: Operator, inputs: Inputs, *, is_indexed: bool = True) -> ChangeBatch:
    """Return the changes of a tree in canonical order, by its index or by all pairs."""
    with patch.object(join_plan, "limit_of_distance", limit_of_distance if is_indexed else lambda _: None):
        engine = ContinuousEngine(tree)
    for name, batch in inputs.items():
        engine.push(name, batch)
    for heartbeat in (100, 107, 500, 4000):
        engine.advance(heartbeat)
    engine.finish()
    nothing = (np.empty(0, PHYSICAL[part.kind]) for part in tree.attributes)
    parts = [(np.empty(0, np.int64), np.empty(0, np.int8), *nothing)]
    parts += [(part.tau, part.sign, *part.columns) for part in engine.results()]
    tau, sign, *columns = (np.concatenate(each) for each in zip(*parts, strict=True))
    return sort_changes(ChangeBatch(tau, sign, tuple(columns)), tree.attributes, engine.texts)


def bits(batch: ChangeBatch) -> list[bytes]:
    return [part.tobytes() for part in (batch.tau, batch.sign, *batch.columns)]


def sample(rng: np.random.Generator, place: str, *, moving: bool, keys: int = 3) -> Inputs:
    strokes, stations = 40, 30
    tau = np.sort(rng.integers(0, 1000, strokes))
    known = make_points(rng, place, stations, keys=keys)
    signs, since = np.ones(stations, np.int8), np.full(stations, START)
    if moving:
        # Each station appears somewhere, and a third of them leave again.
        since = np.sort(rng.integers(0, 900, stations))
        gone = rng.choice(stations, stations // 3, replace=False)
        known = tuple(np.concatenate([part, part[gone]]) for part in known)
        signs = np.concatenate([signs, -np.ones(len(gone), np.int8)])
        since = np.concatenate([since, since[gone] + rng.integers(1, 200, len(gone))])
        order = np.argsort(since, kind="stable")
        known, signs, since = tuple(part[order] for part in known), signs[order], since[order]
    return {
        "lightning": ElementBatch(tau, make_points(rng, place, strokes, keys=keys)),
        "stations": ElementBatch(since, known, signs),
        "rain": ElementBatch(tau + 5, (rng.integers(0, keys, strokes), rng.integers(0, 9, strokes) * 1.0)),
    }


def trees(limit_m: float) -> dict[str, Operator]:
    two = (windowed(), STATIONS)
    three = (windowed(), WindowOf(RAIN, "rows", rows=9), STATIONS)
    of_rain = call("equal", column(JoinOf(three), "k", 1), column(JoinOf(three), "k", 2))
    selves = (windowed(300), windowed(), STATIONS)
    keys = call("equal", column(JoinOf(two), "k", 0), column(JoinOf(two), "k", 1))
    return {
        "two": JoinOf(two, near(two, limit_m)),
        "two by key": JoinOf(two, call("and", keys, near(two, limit_m))),
        "two, the limit first": JoinOf(two, call("greater_equal", limit_m, near(two, limit_m).arguments[0])),
        "rain near lightning": ToStream(JoinOf(three, call("and", of_rain, near(three, limit_m))), "istream"),
        "three, two limits": JoinOf(
            selves, call("and", near(selves, limit_m), near(selves, 3 * limit_m, 1, 2), near(selves, limit_m, 0, 2))
        ),
        "passing": JoinOf((LIGHTNING, STATIONS), near((LIGHTNING, STATIONS), limit_m)),
    }


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("limit_m", LIMITS_M)
def test_the_index_gives_the_bits_of_all_pairs(place: str, limit_m: float) -> None:
    for number, (name, tree) in enumerate(trees(limit_m).items()):
        assert plan_join(tree if isinstance(tree, JoinOf) else tree.input).searched_links, name
        rng = np.random.default_rng([number, int(limit_m)])
        inputs = sample(rng, place, moving=name != "passing")
        used = {leaf: batch for leaf, batch in inputs.items() if leaf != "rain" or "rain" in name}
        result = run(tree, used)
        assert bits(result) == bits(run(tree, used, is_indexed=False)), name
        if limit_m == LIMITS_M[-1]:
            assert len(result.tau) > 0


@pytest.mark.parametrize("place", [place for place in PLACES if place != "faulty"])
def test_the_index_gives_what_the_oracle_gives(place: str) -> None:
    matches = 0
    for seed, limit_m in enumerate((5_000.0, 80_000.0, 1.5e6)):
        # Distances of the oracle have other last digits, so only keys are compared.
        tree = trees(limit_m)["two by key"]
        inputs = sample(np.random.default_rng(seed), place, moving=True)
        del inputs["rain"]
        rows = {name: rows_of(batch, LIGHTNING if name == "lightning" else STATIONS) for name, batch in inputs.items()}
        streams = {"lightning": [(tau, row) for tau, _, row in rows["lightning"]]}
        expected = net_changes(oracle_result(tree, streams, {"stations": rows["stations"]}, until=3999))
        result = net_changes(rows_of(run(tree, inputs), tree))
        assert result == expected
        matches += len(expected)
    assert matches > 0


def rows_of(batch: ElementBatch | ChangeBatch, tree: Operator) -> list[Change]:
    texts = ContinuousEngine(LIGHTNING).texts
    columns = [decode(part, each.kind, texts) for part, each in zip(batch.columns, tree.attributes, strict=True)]
    signs = np.ones(len(batch.tau), np.int8) if batch.sign is None else batch.sign
    return list(zip(batch.tau.tolist(), signs.tolist(), zip(*columns, strict=True), strict=True))


@pytest.mark.parametrize("limit_m", [9.0, 5_000.0, 2.0e5, 3.0e6])
def test_a_point_is_in_a_neighbouring_cell_of_one_at_the_limit(limit_m: float) -> None:
    rng = np.random.default_rng(1)
    lon, lat = PLACES["anywhere"](rng, 20_000)
    lat[:200] = 90.0
    # As far as the limit by the closed form of the sphere: bearing and arc.
    bearing, arc = rng.uniform(0, 2 * np.pi, len(lon)), limit_m / RADIUS_M
    phi = np.radians(lat)
    sine = np.sin(phi) * np.cos(arc) + np.cos(phi) * np.sin(arc) * np.cos(bearing)
    turn = np.arctan2(np.sin(bearing) * np.sin(arc) * np.cos(phi), np.cos(arc) - np.sin(phi) * sine)
    there = np.where(lat == 90.0, rng.uniform(-180, 180, len(lon)), lon + np.degrees(turn))
    link = next(iter(plan_join(trees(limit_m)["two"]).searched_links))
    cells, others = cells_of(lon, lat, link.edge_m), cells_of(there, np.degrees(np.arcsin(sine)), link.edge_m)
    assert np.isin(others - cells, NEIGHBOURS).all()
    # The check can fail: cubes of half the edge do not reach.
    if link.edge_m > 2 * LEAST_EDGE_M:
        half = link.edge_m / 2
        steps = cells_of(there, np.degrees(np.arcsin(sine)), half) - cells_of(lon, lat, half)
        assert not np.isin(steps, NEIGHBOURS).all()


def test_cells_of_nothing_are_none() -> None:
    lon, lat = np.array([np.nan, 0.0, np.inf, 0.0]), np.array([0.0, np.nan, 0.0, 0.0])
    assert (cells_of(lon, lat, 100.0) == NO_CELL).tolist() == [True, True, True, False]
    assert len(set(NEIGHBOURS.tolist())) == 27
    # A pole is in one cell on every meridian, and the date line in one from both sides.
    assert len(set(cells_of(np.arange(0.0, 360.0, 7.0), np.full(52, 90.0), 8.0).tolist())) == 1
    assert len(set(cells_of(np.array([-180.0, 180.0, 540.0]), np.full(3, 12.0), 8.0).tolist())) == 1


JOINED = (windowed(), STATIONS)
DISTANCE = near(JOINED, 1.0).arguments[0]
K, LON, LAT = (column(JoinOf(JOINED), name) for name in ("k", "lon", "lat"))


@pytest.mark.parametrize(
    ("condition", "is_indexed"),
    [
        (call("less", DISTANCE, 5000.0), True),
        (call("less_equal", DISTANCE, 5000), True),
        (call("greater", 5000.0, DISTANCE), True),
        # Pairs that are far apart have no cell in common.
        (call("greater", DISTANCE, 5000.0), False),
        (call("equal", DISTANCE, 5000.0), False),
        (call("not", call("less", DISTANCE, 5000.0)), False),
        (call("or", call("less", DISTANCE, 5000.0), call("equal", K, 1)), False),
        (call("less", DISTANCE, LON), False),
        (call("less", DISTANCE, constant(None, "number")), False),
        (call("less", DISTANCE, float("nan")), False),
        (call("less", call("multiply", DISTANCE, 2.0), 5000.0), False),
        # A point that is made of two inputs is in no cell of one.
        (call("less", call("distance_m", *DISTANCE.arguments[::2], *DISTANCE.arguments[1::2]), 5000.0), False),
        # Points of one input, and constants, make a filter.
        (call("less", call("distance_m", LON, LAT, 7.0, 46.0), 5000.0), False),
    ],
)
def test_conditions_that_are_searched_by_cells(condition: Expression, is_indexed: bool) -> None:  # noqa: FBT001
    plan = plan_join(JoinOf(JOINED, condition))
    assert bool(plan.searched_links) == is_indexed
    assert any(part.points for part in plan.inputs) == is_indexed
    # The condition itself is tested all the same.
    assert (condition in plan.rest) != any(part.filters for part in plan.inputs)


def test_the_narrowest_of_several_limits_is_searched() -> None:
    plan = plan_join(JoinOf(JOINED, call("and", near(JOINED, 9000.0), near(JOINED, 2000.0), near(JOINED, 5000.0))))
    assert [link.predicate for link in plan.searched_links] == [near(JOINED, 2000.0)]
    assert len(plan.rest) == 3


def test_few_candidates_are_tested() -> None:
    rng = np.random.default_rng(3)
    strokes, stations = 2000, 1000
    at = [(7 + rng.uniform(0, 3, n), 46 + rng.uniform(0, 2, n)) for n in (strokes, stations)]
    tree = JoinOf((LIGHTNING, STATIONS), near((LIGHTNING, STATIONS), 5000.0))
    inputs = {
        "lightning": ElementBatch(np.arange(strokes), (np.arange(strokes), *at[0])),
        "stations": ElementBatch(np.full(stations, START), (np.arange(stations), *at[1])),
    }
    tested: list[int] = []
    prepare = ExpressionEvaluator.prepare_truth

    def prepare_counting(self: ExpressionEvaluator, expression: Expression) -> Evaluate:
        holds = prepare(self, expression)

        def count(elements: Elements) -> Value:
            tested.append(len(elements))
            return holds(elements)

        return count

    with patch.object(ExpressionEvaluator, "prepare_truth", prepare_counting):
        result = run(tree, inputs)
    assert 0 < len(result.tau) < sum(tested) < 9 * len(result.tau) < strokes * stations / 30


def test_a_state_goes_on_to_the_last_bit() -> None:
    tree = trees(80_000.0)["three, two limits"]
    inputs = sample(np.random.default_rng(5), "date line", moving=True)
    expected: list[ChangeBatch] = []
    restored: list[ChangeBatch] = []
    for results, is_restored in ((expected, False), (restored, True)):
        engine = ContinuousEngine(tree)
        for name in ("lightning", "stations"):
            engine.push(name, inputs[name])
        for heartbeat in (50, 300, 301, 700, 4000):
            engine.advance(heartbeat)
            if is_restored:
                engine = ContinuousEngine.restore(tree, engine.save())
            results += engine.results()
    assert sum(len(part.tau) for part in expected) > 0
    assert [bits(part) for part in restored] == [bits(part) for part in expected]


def test_a_state_without_cells_is_refused() -> None:
    tree = trees(80_000.0)["two"]
    with patch.object(join_plan, "limit_of_distance", lambda _: None):
        saved = ContinuousEngine(tree).save()
    with pytest.raises(InvalidQuery, match="another program; evaluate the query again"):
        ContinuousEngine.restore(tree, saved)
