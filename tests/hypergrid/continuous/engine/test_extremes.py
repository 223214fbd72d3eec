"""Least and greatest values of sliding windows, against the values that each window holds."""

from typing import Literal

import numpy as np
import pytest

from hypergrid.continuous.algebra import AggregateCall, AggregateOf, FilterOf, StreamInput, WindowOf
from hypergrid.continuous.engine import ContinuousEngine, ElementBatch
from hypergrid.continuous.expressions import Attribute, Constant, Kind, Operation, Reference

ATTRIBUTES = (Attribute("key", "integer"), Attribute("value", "number"))
KEY, VALUE = (Reference(position, attribute) for position, attribute in enumerate(ATTRIBUTES))
CALLS: tuple[tuple[Literal["min", "max", "count"], Kind], ...] = (
    ("min", "number"),
    ("max", "number"),
    ("count", "integer"),
)
RANGE = 25


@pytest.mark.parametrize("slide", [0, 10])
@pytest.mark.parametrize("seed", range(4))
def test_extremes_are_those_of_the_values_that_a_window_holds(seed: int, slide: int) -> None:
    rng = np.random.default_rng(seed)
    count = 600
    tau = np.sort(rng.integers(0, 400, count))
    key = rng.integers(0, 3, count)
    # Runs that rise and fall, equal values, and NULL.
    value = np.round(10 * np.sin(np.arange(count) / rng.uniform(2, 9)) + rng.normal(0, 2, count))
    value[rng.random(count) < 0.1] = np.nan
    window = WindowOf(StreamInput("S", ATTRIBUTES), "range", range_ns=RANGE, slide_ns=slide)
    above = FilterOf(window, Operation("unequal", (VALUE, Constant(3.0, "number")), "boolean"))
    calls = tuple(AggregateCall(function, VALUE, kind) for function, kind in CALLS)
    engine = ContinuousEngine(AggregateOf(above, (KEY,), calls, ("key", "min", "max", "count")))
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
                expected[group] = (value[inside].min(), value[inside].max(), inside.sum())
        assert state == expected, at
    assert len(states) > 30
    assert not held
