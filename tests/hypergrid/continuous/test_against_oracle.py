"""The engine against the oracle: random trees and streams, cut into batches at random, in any order of arrival."""

from collections import Counter
from collections.abc import Iterator, Sequence

import pytest

from hypergrid.continuous.algebra import (
    AggregateOf,
    BagOf,
    DistinctOf,
    JoinOf,
    MembershipOf,
    RelationInput,
    SampleOf,
    StreamInput,
    ToStream,
    WindowOf,
    walk_operators,
)
from hypergrid.continuous.engine import join_store
from hypergrid.continuous.engine.operators import join as join_operator
from hypergrid.continuous.rewrite import rewrite
from tests.support.continuous_feeds import feed_engine
from tests.support.continuous_oracle import Change, Edge, find_end, net_changes, oracle_result
from tests.support.continuous_random import Case, random_case

BLOCK = 25


@pytest.mark.parametrize("block", range(80))
def test_the_engine_gives_what_the_oracle_gives(block: int) -> None:
    edges: tuple[Edge, ...] = ("half-open", "closed")
    for seed in range(BLOCK * block, BLOCK * (block + 1)):
        case = random_case(seed)
        end = find_end(case.tree, case.streams, case.relations)
        for edge in edges:
            expected = net_changes(oracle_result(case.tree, case.streams, case.relations, edge, end))
            for tree in (case.tree, rewrite(case.tree, case.static).tree):
                changes = feed_engine(case, tree, end, edge, seed)
                assert net_changes(changes) == expected, f"seed {seed}, {edge}\n{case.describe()}"
                if not tree.is_stream:
                    assert is_net(changes), f"seed {seed}, {edge}\n{case.describe()}"


def is_net(changes: Sequence[Change]) -> bool:
    """Return whether no row enters and leaves at one instant, and rows that leave come first at each."""
    signs: dict[tuple[int, object], set[int]] = {}
    for tau, sign, row in changes:
        signs.setdefault((tau, row), set()).add(sign)
    order = [change[:2] for change in changes]
    return order == sorted(order) and all(len(both) == 1 for both in signs.values())


def test_changes_that_are_not_net_are_noticed() -> None:
    assert is_net([(1, -1, (1,)), (1, 1, (2,)), (2, -1, (2,))])
    assert not is_net([(1, 1, (2,)), (1, -1, (1,))])
    assert not is_net([(1, -1, (1,)), (1, 1, (1,))])


@pytest.mark.parametrize("block", range(20))
def test_cuts_and_arrival_do_not_matter(block: int) -> None:
    for seed in range(5 * block, 5 * block + 5):
        case = random_case(seed, elements=24)
        end = find_end(case.tree, case.streams, case.relations)
        expected = net_changes(oracle_result(case.tree, case.streams, case.relations, "half-open", end))
        for cut in range(6):
            changes = feed_engine(case, case.tree, end, "half-open", cut)
            assert net_changes(changes) == expected, f"seed {seed}, cut {cut}\n{case.describe()}"


@pytest.mark.parametrize("block", range(10))
def test_joins_go_on_where_their_output_and_their_tables_are_full(block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(join_operator, "ROOM", 2)
    monkeypatch.setattr(join_store, "HASHED_WORDS", 1)
    joins = 0
    for seed in range(40 * block, 40 * block + 40):
        case = random_case(seed)
        if not any(isinstance(part, JoinOf) for part in walk_operators(case.tree)):
            continue
        end = find_end(case.tree, case.streams, case.relations)
        expected = net_changes(oracle_result(case.tree, case.streams, case.relations, "half-open", end))
        assert net_changes(feed_engine(case, case.tree, end, "half-open", seed)) == expected, case.describe()
        joins += 1
    assert joins > 3


def test_random_cases_have_everything_that_the_language_makes() -> None:
    met = Counter(feature for seed in range(200) for feature in set(list_features(random_case(seed))))
    assert FEATURES - met.keys() == set()


FEATURES = {
    *("now", "unbounded", "range", "range slide", "rows", "partition", "now where", "range where", "rows where"),
    *("sample", "union", "except", "intersect", "in", "not in", "distinct", "aggregate", "aggregate without keys"),
    *("istream", "dstream", "rstream", "rstream slide", "join of 2", "join of 3", "join of 4"),
    *("relation", "relation that changes", "subtree read twice"),
}


def list_features(case: Case) -> Iterator[str]:
    """List what a case has of the language."""
    parts = list(walk_operators(case.tree))
    for part in parts:
        match part:
            case WindowOf():
                form = "partition" if part.partition else part.form
                yield f"{form} slide" if part.slide_ns else form
                if part.where is not None:
                    yield f"{form} where"
            case SampleOf():
                yield "sample"
            case BagOf():
                yield part.form
            case MembershipOf():
                yield "not in" if part.is_negated else "in"
            case DistinctOf():
                yield "distinct"
            case AggregateOf():
                yield "aggregate" if part.keys else "aggregate without keys"
            case ToStream():
                yield f"{part.form} slide" if part.slide_ns else part.form
            case JoinOf():
                yield f"join of {len(part.inputs)}"
            case RelationInput():
                yield "relation" if part.name in case.static else "relation that changes"
    uses = Counter(part for part in parts if not isinstance(part, StreamInput | RelationInput))
    if any(count > 1 for count in uses.values()):
        yield "subtree read twice"
