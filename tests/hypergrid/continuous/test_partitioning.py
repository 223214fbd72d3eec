"""Queries that are evaluated in parts, by a key or by time, give what they give as a whole."""

import zlib
from collections.abc import Iterable

import numpy as np
import pytest

from hypergrid.continuous.algebra import Operator, RelationInput, StreamInput, walk_operators
from hypergrid.continuous.archive_query import begin_in_part
from hypergrid.continuous.engine import ContinuousEngine
from hypergrid.continuous.partitioning import KeyColumns, Partitioning, find_partitioning
from hypergrid.continuous.rewrite import rewrite
from hypergrid.core.times import Window
from tests.support.continuous_engine import collect, make_batch
from tests.support.continuous_oracle import START, Change
from tests.support.continuous_random import Case, random_case

PARTS = 3
CASES = 25
Inputs = dict[str, list[Change]]


def list_inputs(case: Case) -> Inputs:
    inputs: Inputs = {name: [(tau, 1, row) for tau, row in rows] for name, rows in case.streams.items()}
    return inputs | {name: list(rows) for name, rows in case.relations.items()}


def leaves_of(tree: Operator) -> dict[str, StreamInput | RelationInput]:
    return {part.name: part for part in walk_operators(tree) if isinstance(part, StreamInput | RelationInput)}


def evaluate(tree: Operator, inputs: Inputs, firsts: dict[str, int], window: Window, shown: int) -> list[Change]:
    """Return the results of a part from an instant on."""
    engine = ContinuousEngine(tree)
    for name, leaf in leaves_of(tree).items():
        rows = [row for row in inputs[name] if row[0] == START or window.start_ns <= row[0] < window.stop_ns]
        engine.push(name, make_batch(rows, leaf.attributes, engine.texts))
    begin_in_part(engine, firsts, window)
    engine.advance(max(window.stop_ns, engine.heartbeat))
    return [change for change in collect(engine) if change[0] >= shown]


def sort(changes: Iterable[Change]) -> list[Change]:
    return sorted(changes, key=lambda change: (change[0], change[1], repr(change[2])))


def part_of(value: object) -> int:
    return 0 if value is None else zlib.crc32(repr(value).encode()) % PARTS


def evaluate_by_key(
    tree: Operator, inputs: Inputs, how: Partitioning, firsts: dict[str, int], whole: Window
) -> list[Change]:
    leaves, changes = leaves_of(tree), []
    for number in range(PARTS):
        own = dict(inputs)
        for name, key in how.keys.items():
            at = [attribute.name for attribute in leaves[name].attributes].index(key.names[0])
            own[name] = [row for row in inputs[name] if part_of(row[2][at]) == number]
        changes += evaluate(tree, own, firsts, whole, START)
    return changes


def check(seed: int) -> tuple[bool, bool]:
    """Compare the parts of a case with the whole; returns whether it was split by key, and by time."""
    case = random_case(seed, elements=30)
    tree = rewrite(case.tree, case.static).tree if seed % 2 else case.tree
    inputs, leaves = list_inputs(case), leaves_of(tree)
    options = {
        name: [
            KeyColumns((part.name,), never_null=all(row[2][at] is not None for row in inputs[name]))
            for at, part in enumerate(leaf.attributes)
            if part.kind in ("text", "integer")
        ]
        for name, leaf in leaves.items()
    }
    how = find_partitioning(tree, case.static, options)
    taus = {name: [row[0] for row in inputs[name] if row[0] != START] for name in leaves}
    firsts = {name: min(own) for name, own in taus.items() if own} if how.shows_from_start else {}
    if not any(taus.values()):
        return False, False
    start, stop = min(min(own) for own in taus.values() if own), max(max(own) for own in taus.values() if own) + 60
    whole = Window(start, stop)
    expected = sort(evaluate(tree, inputs, {}, whole, START))
    if how.keys:
        by_key = sort(evaluate_by_key(tree, inputs, how, firsts, whole))
        assert by_key == expected, f"seed {seed}, by key {how}\n{case.describe()}"
    if how.horizon_ns is not None:
        rng = np.random.default_rng(seed)
        bounds = sorted({start, stop, *rng.integers(start, stop, 3).tolist()})
        by_time: list[Change] = []
        for first, last in zip(bounds[:-1], bounds[1:], strict=True):
            read = Window(max(start, first - how.horizon_ns - 1), last)
            by_time += evaluate(tree, inputs, firsts, read, first)
        assert sort(by_time) == expected, f"seed {seed}, by time {bounds} {how}\n{case.describe()}"
    return bool(how.keys) and len(expected) > 0, how.horizon_ns is not None and len(expected) > 0


@pytest.mark.parametrize("block", range(16))
def test_parts_merged_are_the_whole(block: int) -> None:
    counts = np.sum([check(seed) for seed in range(CASES * block, CASES * (block + 1))], axis=0)
    assert (counts >= 1).all()
