"""Least, greatest, first and last values of sliding windows, against the values that each window holds."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal

import numpy as np
import pytest

from hypergrid.continuous.algebra import AggregateCall, AggregateOf, FilterOf, StreamInput, WindowOf
from hypergrid.continuous.engine import ContinuousEngine, ElementBatch
from hypergrid.continuous.engine.operators.panes import PaneGrouping
from hypergrid.continuous.expressions import Attribute, Constant, Kind, Operation, Reference

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
