"""Random inputs for the engine of continuous queries: cut into batches, in order of time or mixed."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from unittest.mock import patch

import numpy as np

from hypergrid.continuous.algebra import Operator, RelationInput, StreamInput, walk_operators
from hypergrid.continuous.engine import ContinuousEngine, ElementBatch
from hypergrid.continuous.engine import engine as engine_module
from hypergrid.continuous.expressions import Attributes
from tests.support.continuous_engine import collect, encode
from tests.support.continuous_oracle import START, Change, Edge
from tests.support.continuous_random import Case

Numbered = tuple[int, Change]
"""Change of an input with its number in canonical order."""


@dataclass
class Feed:
    """An engine with what it gave."""

    engine: ContinuousEngine
    attributes: dict[str, Attributes]
    is_ordered: bool
    """Whether batches of each input follow each other in time, so that their last instants are heartbeats."""
    changes: list[Change] = field(default_factory=list)
    last_taus: dict[str, int] = field(default_factory=dict)

    def push(self, name: str, elements: Sequence[Numbered]) -> None:
        """Push elements as one batch, in the order given."""
        columns = tuple(
            encode([row[position] for _, (_, _, row) in elements], attribute.kind, self.engine.texts)
            for position, attribute in enumerate(self.attributes[name])
        )
        tau = np.array([tau for _, (tau, _, _) in elements], np.int64)
        sign = np.array([sign for _, (_, sign, _) in elements], np.int8)
        number = np.array([number for number, _ in elements], np.int64)
        self.engine.push(name, ElementBatch(tau, columns, sign, number=number))
        if self.is_ordered and elements:
            self.last_taus[name] = int(tau[-1])
            if self.last_taus.keys() == self.attributes.keys():
                self.engine.advance(max(self.engine.heartbeat, min(self.last_taus.values())))
        self.changes += collect(self.engine)

    def advance(self, heartbeat: int) -> None:
        self.engine.advance(heartbeat)
        self.changes += collect(self.engine)


def feed_engine(case: Case, tree: Operator, until: int, edge: Edge, seed: int) -> list[Change]:
    """Return what an engine gives for a tree up to an instant, its inputs cut and mixed as a seed has it.

    Half of the seeds give inputs in order of time, which then are heartbeats themselves; the others mix all elements
    between two heartbeats. Half of them let the engine end a round after two elements.
    """
    rng = np.random.default_rng(seed)
    size = 2 if rng.random() < 0.5 else engine_module.ROUND
    with patch.multiple(engine_module, ROUND=size, STATELESS_ROUND=size):
        return _feed(case, tree, until, edge, rng)


def _feed(case: Case, tree: Operator, until: int, edge: Edge, rng: np.random.Generator) -> list[Change]:
    leaves = [part for part in walk_operators(tree) if isinstance(part, StreamInput | RelationInput)]
    attributes = {part.name: part.attributes for part in leaves}
    # Relations come first.
    changes = {name: list(enumerate(case.relations[name])) for name in case.relations if name in attributes}
    for name in case.streams:
        if name in attributes:
            changes[name] = [(number, (tau, +1, row)) for number, (tau, row) in enumerate(case.streams[name])]
    is_ordered = bool(rng.random() < 0.5)
    feed = Feed(ContinuousEngine(tree, is_closed=edge == "closed"), attributes, is_ordered)
    for name, own in changes.items():
        if first := [element for element in own if element[1][0] == START]:
            feed.push(name, first)
    taus = sorted({tau for own in changes.values() for _, (tau, _, _) in own} - {START})
    share = rng.choice([0.1, 0.5])
    cuts = [tau for tau in taus if rng.random() < share]
    push = _push_in_order if is_ordered else _push_mixed
    for start, end in zip([START + 1, *cuts], [*cuts, until + 1], strict=True):
        segment = {name: [each for each in own if start <= each[1][0] < end] for name, own in changes.items()}
        push(feed, segment, rng)
        if not is_ordered or rng.random() < 0.5 or end == until + 1:
            feed.advance(end)
    feed.engine.finish()
    return feed.changes + collect(feed.engine)


def _push_in_order(feed: Feed, segment: dict[str, list[Numbered]], rng: np.random.Generator) -> None:
    """Push each input's elements of a segment in batches; relations come first."""
    for name, events in segment.items():
        cuts = sorted(rng.integers(0, len(events) + 1, size=int(rng.integers(0, 3))).tolist())
        for start, end in zip([0, *cuts], [*cuts, len(events)], strict=True):
            if start < end or rng.random() < 0.1:
                feed.push(name, events[start:end])


def _push_mixed(feed: Feed, segment: dict[str, list[Numbered]], rng: np.random.Generator) -> None:
    """Push the elements of a segment in any order."""
    pairs = [(name, event) for name, events in segment.items() for event in events]
    order = rng.permutation(len(pairs)).tolist()
    while order:
        count = int(rng.integers(1, 6))
        taken, order = [pairs[index] for index in order[:count]], order[count:]
        for name in {name: None for name, _ in taken}:
            feed.push(name, [event for own, event in taken if own == name])
