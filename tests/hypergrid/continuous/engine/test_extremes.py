"""Least, greatest, first and last values of sliding windows, against the values that each window holds."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
import pytest

from hypergrid.continuous.algebra import AggregateCall, AggregateOf, BagOf, FilterOf, StreamInput, WindowOf
from hypergrid.continuous.engine import ContinuousEngine, ElementBatch, plan
from hypergrid.continuous.engine.kernels.groups import ORDERING
from hypergrid.continuous.engine.kernels.ordered import NODES_FREE, NODES_USED
from hypergrid.continuous.engine.operators.aggregate import Grouping
from hypergrid.continuous.engine.operators.panes import PaneGrouping
from hypergrid.continuous.expressions import Attribute, Constant, Kind, Operation, Reference
from hypergrid.continuous.properties import keeps_no_values

ATTRIBUTES = (Attribute("key", "integer"), Attribute("value", "number"))
KEY, VALUE = (Reference(position, attribute) for position, attribute in enumerate(ATTRIBUTES))
CALLS: tuple[tuple[Literal["min", "max", "first", "last", "count"], Kind], ...] = (
    ("min", "number"),
    ("max", "number"),
    ("first", "number"),
    ("last", "number"),
    ("count", "integer"),
)
RANGE = 25


@pytest.mark.parametrize("calls", [CALLS, CALLS[2:4], CALLS[3:]])
@pytest.mark.parametrize("is_filtered", [True, False])
@pytest.mark.parametrize("slide", [0, 10, 40])
@pytest.mark.parametrize("seed", range(4))
def test_values_are_those_that_a_window_holds(
    seed: int,
    slide: int,
    is_filtered: bool,  # noqa: FBT001 - a parameter of the test
    calls: Sequence[tuple[Literal["min", "max", "first", "last", "count"], Kind]],
) -> None:
    rng = np.random.default_rng(seed)
    count = 600
    tau = np.sort(rng.integers(0, 400, count))
    key = rng.integers(0, 3, count)
    # Runs that rise and fall, equal values, and NULL.
    value = np.round(10 * np.sin(np.arange(count) / rng.uniform(2, 9)) + rng.normal(0, 2, count))
    value[rng.random(count) < 0.1] = np.nan
    chosen = Operation("unequal", (VALUE, Constant(3.0, "number")), "boolean")
    window = WindowOf(StreamInput("S", ATTRIBUTES), "range", range_ns=RANGE, slide_ns=slide)
    # Panes of a window that slides are decomposed where nothing stands between it and its groups.
    below = FilterOf(window, chosen) if is_filtered else replace(window, where=chosen)
    names = [function for function, _ in calls]
    called = tuple(AggregateCall(function, VALUE, kind) for function, kind in calls)
    engine = ContinuousEngine(AggregateOf(below, (KEY,), called, ("key", *names)))
    has_panes = any(isinstance(step.operator, PaneGrouping) for step in engine._plan.steps)
    assert has_panes == (slide > 0 and not is_filtered)
    held: dict[int, tuple[float, ...]] = {}
    for part in np.array_split(np.arange(count), 7):
        engine.push("S", ElementBatch(tau[part], (key[part], value[part])))
        engine.advance(int(tau[part[-1]]))
        engine = ContinuousEngine.restore(engine.tree, engine.save())
    states: dict[int, dict[int, tuple[float, ...]]] = {}
    engine.advance(500)
    for batch in engine.results():
        for at, sign, group, *row in zip(batch.tau, batch.sign, *batch.columns, strict=True):
            if sign < 0:
                held.pop(int(group))
            else:
                held[int(group)] = tuple(row)
            states[int(at)] = dict(held)
    for at, state in states.items():
        edge = at // slide * slide if slide else at
        expected = {}
        for group in range(3):
            inside = (tau > edge - RANGE) & (tau <= edge) & (key == group) & ~(np.isnan(value) | (value == 3.0))
            if inside.any():
                values = value[inside]
                wanted = {"min": values.min(), "max": values.max(), "first": values[0], "last": values[-1]}
                wanted["count"] = len(values)
                expected[group] = tuple(wanted[name] for name in names)
        assert state == expected, at
    assert len(states) >= 10
    assert not held


@pytest.mark.parametrize("is_truth", [False, True])
@pytest.mark.parametrize("is_adopted", [False, True])
def test_first_last_least_and_greatest_values_of_a_stream_take_a_node_a_group(
    is_truth: bool,  # noqa: FBT001 - a parameter of the test
    is_adopted: bool,  # noqa: FBT001 - as above
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also where an earlier program had put all values in order of age, and kept values as if rows could leave."""
    rng = np.random.default_rng(5)
    count, groups = 3000, 7
    tau, key = np.sort(rng.integers(0, 900, count)), rng.integers(0, groups, count)
    value = np.round(rng.normal(0, 5, count), 1)
    value[rng.random(count) < 0.2] = np.nan
    argument = Operation("greater", (VALUE, Constant(0.0, "number")), "boolean") if is_truth else VALUE
    kind: Kind = "boolean" if is_truth else "number"
    names = ("last", "first", "min", "max")
    calls = tuple(AggregateCall(function, argument, kind) for function in names)
    calls += (AggregateCall("avg", VALUE, "number"),)
    window = WindowOf(StreamInput("S", ATTRIBUTES), "unbounded")
    tree = AggregateOf(window, (KEY,), calls, ("key", *names, "mean"))
    with monkeypatch.context() as earlier:
        if is_adopted:
            earlier.setattr(plan, "choose_ends", lambda operator: ORDERING)
        engine = ContinuousEngine(tree)
        half = slice(0, count // 2)
        engine.push("S", ElementBatch(tau[half], (key[half], value[half])))
        engine.advance(int(tau[count // 2]))
        results, saved = engine.results(), engine.save()
    engine = ContinuousEngine.restore(tree, saved)
    [operator] = [step.operator for step in engine._plan.steps if isinstance(step.operator, Grouping)]
    used = operator._groups.pool[NODES_USED]
    for part in np.array_split(np.arange(count // 2, count), 5):
        engine.push("S", ElementBatch(tau[part], (key[part], value[part])))
    engine.advance(1000)
    held: dict[int, tuple[float, ...]] = {}
    for batch in results + engine.results():
        for sign, group, *row in zip(batch.sign, *batch.columns, strict=True):
            if sign > 0:
                held[int(group)] = tuple(row)
            else:
                del held[int(group)]
    for group in range(groups):
        values = value[(key == group) & ~np.isnan(value)]
        *given, mean = held[group]
        told = values > 0 if is_truth else values
        assert given == [told[-1], told[0], told.min(), told.max()]
        assert mean == pytest.approx(values.mean())
    free = operator._groups.pool[NODES_FREE]
    assert is_adopted or operator._groups.pool[NODES_USED] - free == 1 + 3 * groups
    assert operator._groups.pool[NODES_USED] < count // 2 + 2 * groups + 2
    # What a round surpasses is free for it.
    assert operator._groups.pool[NODES_USED] <= used + 1


def test_extremes_of_a_union_of_streams_take_a_node_though_its_rows_have_no_age() -> None:
    count = 2000
    union = BagOf("union", StreamInput("S", ATTRIBUTES), StreamInput("T", ATTRIBUTES))
    calls = (AggregateCall("min", VALUE, "number"), AggregateCall("max", VALUE, "number"))
    tree = AggregateOf(WindowOf(union, "unbounded"), (), calls, ("min", "max"))
    assert keeps_no_values(tree)
    assert not keeps_no_values(replace(tree, calls=(AggregateCall("last", VALUE, "number"),)))
    engine = ContinuousEngine(tree)
    for name, value in (("S", np.arange(float(count))), ("T", -np.arange(float(count)))):
        # The least value is not surpassed by what rises, nor the greatest by what falls.
        for part in np.array_split(np.arange(count), 4):
            engine.push(name, ElementBatch(part, (part, value[part])))
    engine.advance(count)
    last = engine.results()[-1]
    assert [column[-1] for column in last.columns] == [1.0 - count, count - 1.0]
    [operator] = [step.operator for step in engine._plan.steps if isinstance(step.operator, Grouping)]
    assert operator._groups.pool[NODES_USED] - operator._groups.pool[NODES_FREE] == 3


@pytest.mark.parametrize("slide", [0, 1, 5, 11])
@pytest.mark.parametrize("seed", range(5))
def test_first_and_last_values_of_an_instant_go_by_the_order_of_its_elements(seed: int, slide: int) -> None:
    """Of equal instants: by arrival, series and number, whatever order elements of a batch come in."""
    rng = np.random.default_rng(seed)
    count, span = 150, int(rng.integers(1, 12))
    tau, key = rng.integers(0, 40, count), rng.integers(0, 2, count)
    arrival, series, number = rng.integers(0, 3, count), rng.integers(0, 3, count), np.arange(count)
    value = number.astype(float)
    value[rng.random(count) < 0.2] = np.nan
    window = WindowOf(StreamInput("S", ATTRIBUTES), "range", range_ns=span, slide_ns=slide)
    calls = tuple(AggregateCall(function, VALUE, "number") for function in ("first", "last"))
    engine = ContinuousEngine(AggregateOf(window, (KEY,), calls, ("key", "first", "last")))
    for start in range(0, 42, 7):
        part = (tau >= start) & (tau < start + 7)
        order = arrival[part], series[part], number[part]
        engine.push("S", ElementBatch(tau[part], (key[part], value[part]), None, *order))
        engine.advance(start + 7)
    engine.advance(100)
    held: dict[int, list[float]] = {}
    states: dict[int, dict[int, list[float]]] = {}
    for batch in engine.results():
        for at, sign, group, *row in zip(batch.tau, batch.sign, *batch.columns, strict=True):
            if sign < 0:
                del held[int(group)]
            else:
                held[int(group)] = row
            states[int(at)] = dict(held)
    ordered = np.lexsort([number, series, arrival, tau])
    for at, state in states.items():
        edge = at // slide * slide if slide else at
        inside = ordered[(tau[ordered] > edge - span) & (tau[ordered] <= edge)]
        assert state.keys() == set(key[inside].tolist())
        for group, row in state.items():
            values = value[inside][(key[inside] == group) & ~np.isnan(value[inside])]
            np.testing.assert_array_equal(row, [values[0], values[-1]] if len(values) else [np.nan, np.nan])
    assert len(states) > 4
