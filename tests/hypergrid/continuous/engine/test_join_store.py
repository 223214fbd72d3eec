"""What a join holds: tables that inputs share, their room, and saved states."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest

from hypergrid.continuous.algebra import AggregateOf, JoinOf, WindowOf
from hypergrid.continuous.engine import ContinuousEngine, ElementBatch, join_store
from hypergrid.continuous.engine.join_store import JoinEntry, JoinStore, list_entries
from hypergrid.continuous.engine.kernels import join as kernel
from hypergrid.continuous.engine.operators.join import Join
from hypergrid.continuous.expressions import Reference
from hypergrid.continuous.join_plan import JoinPlan, plan_join
from hypergrid.core.errors import InvalidQuery
from tests.support.continuous_engine import collect
from tests.support.continuous_oracle import Change
from tests.support.continuous_trees import aggregate_call, call, stream


def plan_windows(equal: Sequence[tuple[int, int]]) -> JoinPlan:
    """Return the plan of three windows with the attributes R.a, S.a, S.b, T.a and T.b, of which some are equal."""
    streams = (stream("R", "a:i"), stream("S", "a:i b:i"), stream("T", "a:i b:i"))
    windows = tuple(WindowOf(each, form="rows", rows=2) for each in streams)
    every = JoinOf(windows)
    sides = [[Reference(number, every.attributes[number]) for number in pair] for pair in equal]
    predicate = call("equal", *sides[0])
    for pair in sides[1:]:
        predicate = call("and", predicate, call("equal", *pair))
    return plan_join(JoinOf(windows, predicate))


def make_store(plan: JoinPlan) -> JoinStore:
    return JoinStore(plan, [False] * 3, [(-1, -1)] * 3, is_leaving_read=True)


def make_counts() -> AggregateOf:
    """Return the number of combinations of all rows of R with a few of S and T: R.a = S.a, S.b = T.b."""
    few = (WindowOf(stream(each, attributes), "rows", rows=8) for each, attributes in (("S", "a:i b:i"), ("T", "b:i")))
    windows = (WindowOf(stream("R", "a:i"), "unbounded"), *few)
    every = JoinOf(windows)
    a, b, c, d = (Reference(at, every.attributes[at]) for at in range(4))
    join = JoinOf(windows, call("and", call("equal", a, b), call("equal", c, d)))
    return AggregateOf(join, (), (aggregate_call("count"),), ("n",))


def find_store(engine: ContinuousEngine) -> JoinStore:
    """Return what the only join of an engine holds."""
    [join] = [operator for operator, _ in engine._plan.steps if isinstance(operator, Join)]
    return join._held


def test_inputs_with_equal_keys_share_a_table() -> None:
    assert list_entries(plan_windows([(0, 1), (2, 4)])) == [
        JoinEntry(owner=0, table=0, keys=(0,), of_index=0, head=2),
        JoinEntry(owner=1, table=0, keys=(0,), of_index=1, head=3),
        JoinEntry(owner=1, table=1, keys=(1,), of_index=2, head=2),
        JoinEntry(owner=2, table=1, keys=(0,), of_index=3, head=3),
    ]


def test_several_keys_have_a_table_of_their_own() -> None:
    entries = list_entries(plan_windows([(0, 1), (1, 3), (2, 4)]))
    several = [entry for entry in entries if len(entry.keys) > 1]
    assert [(entry.owner, entry.keys) for entry in several] == [(1, (0, 1)), (2, (0, 1))]
    assert {entry.table for entry in several}.isdisjoint(entry.table for entry in entries if len(entry.keys) == 1)
    # By these alone the rows of R are looked up in tables of single keys.
    assert [(entry.owner, entry.keys) for entry in entries if len(entry.keys) == 1] == [(0, (0,)), (1, (0,)), (2, (0,))]


def test_a_state_of_an_earlier_program_is_held_and_saved_again() -> None:
    # Each index had a table. Rows of R are 5, 6 and 5, of S (5, 1), (5, 1) and (6, 2), of T 1, 2 and 1; the first left.
    state = {
        "_capacities": [3, 3, 3],
        "records": np.array(
            [
                *(5, -1, 2, 6, -1, -1, 5, -1, -1),
                *(5, 1, -1, 1, -1, 1, 5, 1, -1, -1, -1, -1, 6, 2, -1, -1, -1, -1),
                *(1, -1, 2, 2, -1, -1, 1, -1, -1),
            ]
        ),
        "inputs": np.array([[0, 3, 1, 0, 1, 0], [9, 6, 2, 1, 2, 0], [27, 3, 1, 3, 1, 0]]),
        "indexes": np.array(
            [[0, 0, 63, 2, 1, 1, 0], [1, 128, 63, 2, 2, 1, 1], [1, 256, 63, 2, 4, 1, 2], [2, 384, 63, 2, 1, 1, 3]]
        ),
        "held": [
            np.array(chains) for chains in ([[6, 2], [5, 3]], [[6, 3], [5, 2]], [[2, 3], [1, 2]], [[2, 2], [1, 3]])
        ],
    }
    store = make_store(plan_windows([(0, 1), (2, 4)]))
    store.load(state)
    saved = store.save()
    assert saved["records"].tolist() == state["records"].tolist()
    assert [sorted(chains.tolist()) for chains in saved["held"]] == [
        sorted(chains.tolist()) for chains in state["held"]
    ]
    again = make_store(plan_windows([(0, 1), (2, 4)]))
    again.load(saved)
    assert again.arrays.records.tolist() == store.arrays.records.tolist()


def test_a_state_of_another_plan_is_refused() -> None:
    saved = make_store(plan_windows([(0, 1), (2, 4)])).save()
    with pytest.raises(InvalidQuery, match="another program; evaluate the query again"):
        make_store(plan_windows([(0, 1), (1, 3), (2, 4)])).load(saved)


def test_a_restored_join_takes_no_more_room_than_the_saved_one() -> None:
    engine = ContinuousEngine(make_counts())
    engine.push("R", ElementBatch(np.arange(100_000), (np.arange(100_000) % 10,)))
    engine.advance(100_000)
    restored = ContinuousEngine.restore(make_counts(), engine.save())
    sizes = [find_store(each).arrays.tables.nbytes for each in (engine, restored)]
    assert sizes[1] <= 2 * sizes[0] < 60_000


def test_keys_that_come_and_go_take_no_more_room_and_enter_no_row_again(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = ContinuousEngine(make_counts())
    engine.push("R", ElementBatch(np.arange(10_000), (np.arange(10_000) % 8,)))
    engine.advance(10_000)
    entered: list[int] = []
    refill = kernel.refill_entry

    def count_heads(*arguments: Any) -> int:  # noqa: ANN401 - those of the loop
        entered.append(len(arguments[4]))
        return int(refill(*arguments))

    monkeypatch.setattr(kernel, "refill_entry", count_heads)
    numbers, tau = np.arange(20_000), 10_000 + np.arange(20_000)
    engine.push("S", ElementBatch(tau, (numbers % 8, numbers)))
    engine.push("T", ElementBatch(tau, (numbers,)))
    engine.advance(40_000)
    assert sum(entered) == 0
    assert find_store(engine).arrays.tables.nbytes < 30_000
    # The last eight rows of S meet those of T, and each of the 10,000 of R has one of their keys.
    assert engine.results()[-1].columns[0][-1] == 10_000


def test_keys_without_an_index_are_found_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(join_store, "HASHED_WORDS", 1)
    plan = plan_windows([(0, 1), (1, 3), (2, 4)])
    assert any(entry.of_index is None for entry in list_entries(plan))
    streams = (stream("R", "a:i"), stream("S", "a:i b:i"), stream("T", "a:i b:i"))
    windows = tuple(WindowOf(each, form="rows", rows=40) for each in streams)
    every = JoinOf(windows)
    pairs = [[Reference(number, every.attributes[number]) for number in pair] for pair in ((0, 1), (1, 3), (2, 4))]
    first, second, third = (call("equal", *pair) for pair in pairs)
    tree = JoinOf(windows, call("and", call("and", first, second), third))
    rng = np.random.default_rng(3)
    feeds = {name: rng.integers(0, 12, (2, 300)) for name in "RST"}
    results: list[list[Change]] = []
    for is_restored in (False, True):
        engine = ContinuousEngine(tree)
        for name, columns in feeds.items():
            engine.push(name, ElementBatch(np.arange(300), tuple(columns[: 1 if name == "R" else 2])))
        for heartbeat in range(30, 331, 30):
            engine.advance(heartbeat)
            if is_restored:
                engine = ContinuousEngine.restore(tree, engine.save())
        results.append(collect(engine))
    assert results[0] == results[1] != []
