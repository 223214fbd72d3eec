"""What a join holds, in the form of its saved states."""

from collections.abc import Sequence

import numpy as np
import pytest

from hypergrid.continuous.algebra import JoinOf, WindowOf
from hypergrid.continuous.engine.join_store import JoinEntry, JoinStore, list_entries
from hypergrid.continuous.expressions import Reference
from hypergrid.continuous.join_plan import JoinPlan, plan_join
from hypergrid.core.errors import InvalidQuery
from tests.support.continuous_trees import call, stream


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
    return JoinStore(plan, [False] * 3, [(-1, -1)] * 3)


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
        "held": [np.array(chains) for chains in ([[6, 2], [5, 3]], [[6, 3], [5, 2]], [[2, 3], [1, 2]], [[2, 2], [1, 3]])],
    }
    store = make_store(plan_windows([(0, 1), (2, 4)]))
    store.load(state)
    saved = store.save()
    assert saved["records"].tolist() == state["records"].tolist()
    assert [sorted(chains.tolist()) for chains in saved["held"]] == [sorted(chains.tolist()) for chains in state["held"]]
    again = make_store(plan_windows([(0, 1), (2, 4)]))
    again.load(saved)
    assert again.arrays.records.tolist() == store.arrays.records.tolist()


def test_a_state_of_another_plan_is_refused() -> None:
    saved = make_store(plan_windows([(0, 1), (2, 4)])).save()
    with pytest.raises(InvalidQuery, match="another program; evaluate the query again"):
        make_store(plan_windows([(0, 1), (1, 3), (2, 4)])).load(saved)
