"""Compile the loops of continuous queries ahead of the first query: `python -m hypergrid.continuous.engine.warm`."""

from typing import Final

import numpy as np

from hypergrid.continuous.algebra import (
    AggregateCall,
    AggregateOf,
    DistinctOf,
    JoinOf,
    Operator,
    ProjectionOf,
    RelationInput,
    StreamInput,
    ToStream,
    WindowOf,
)
from hypergrid.continuous.engine.batch import ElementBatch
from hypergrid.continuous.engine.engine import ContinuousEngine
from hypergrid.continuous.engine.join_store import HASHED_WORDS
from hypergrid.continuous.expressions import Attribute, Operation, Reference

_ATTRIBUTES: Final = (Attribute("a", "integer"), Attribute("b", "number"))
_STREAM: Final = StreamInput("S", _ATTRIBUTES)
_KEY: Final = Reference(0, _ATTRIBUTES[0])
_KEYS: Final = Operation("equal", (_KEY, Reference(2, _ATTRIBUTES[0])), "boolean")
_RANGE: Final = WindowOf(_STREAM, "range", range_ns=1)
_SUM: Final = AggregateCall("sum", Reference(1, _ATTRIBUTES[1]), "number")
TREES: Final[tuple[Operator, ...]] = (
    AggregateOf(_RANGE, (_KEY,), (_SUM,), ("a", "b")),
    DistinctOf(ProjectionOf(WindowOf(_STREAM, "rows", rows=1, partition=(0,)), (_KEY,), ("a",))),
    JoinOf((RelationInput("R", _ATTRIBUTES), _RANGE), _KEYS),
    ToStream(_RANGE, "rstream", slide_ns=1),
)
"""Trees that together use all loops."""


def warm() -> None:
    """Compile every function for its argument types; returns at once if they are cached."""
    # More keys than tables and indexes hold at first, so that they grow.
    count = HASHED_WORDS
    columns = (np.arange(count), np.zeros(count))
    for tree in TREES:
        engine = ContinuousEngine(tree)
        for name in engine.inputs:
            engine.push(name, ElementBatch(np.zeros(count, np.int64), columns))
        engine.advance(3)
        engine.results()


if __name__ == "__main__":
    warm()
