"""Properties of trees hold of what the oracle computes for random trees."""

from collections import Counter

import pytest

from hypergrid.continuous.algebra import Operator, ToStream, walk_operators
from hypergrid.continuous.properties import is_append_only, is_momentary, is_static
from tests.support.continuous_oracle import Oracle, oracle_relation, oracle_result
from tests.support.continuous_random import Case, random_case


def relations_of(seed: int) -> tuple[Case, list[Operator]]:
    """Return the case of a seed and all relations in its tree."""
    case = random_case(seed)
    return case, [part for part in walk_operators(case.tree) if not part.is_stream]


def test_rows_never_leave_what_only_grows() -> None:
    kinds: Counter[str] = Counter()
    for seed in range(100):
        case, relations = relations_of(seed)
        for part in relations:
            if not is_append_only(part, case.static):
                continue
            kinds[type(part).__name__] += 1
            changes = oracle_result(part, case.streams, case.relations)
            assert all(sign > 0 for _, sign, _ in changes), f"seed {seed}\n{case.describe()}"
            assert oracle_result(ToStream(part, "dstream"), case.streams, case.relations) == []
            if is_static(part, case.static):
                assert len({tau for tau, *_ in changes}) <= 1
    assert kinds.keys() >= {"WindowOf", "FilterOf", "ProjectionOf", "JoinOf", "DistinctOf", "RelationInput"}


def test_what_is_momentary_is_empty_between_instants() -> None:
    kinds: Counter[str] = Counter()
    for seed in range(100):
        case, relations = relations_of(seed)
        for part in relations:
            if not is_momentary(part):
                continue
            kinds[type(part).__name__] += 1
            instants = Oracle(part, case.streams, case.relations, "half-open", None).instants(part)
            between = {tau + 1 for tau in instants} - set(instants)
            assert between or not instants
            assert not any(oracle_relation(part, case.streams, case.relations, tau) for tau in between)
    assert kinds.keys() >= {"WindowOf", "FilterOf", "ProjectionOf", "JoinOf", "AggregateOf"}


@pytest.mark.parametrize("seed", range(40))
def test_an_istream_and_a_dstream_are_the_changes_of_a_relation(seed: int) -> None:
    case, relations = relations_of(seed)
    for part in relations[:3]:
        before = Counter(dict(oracle_relation(part, case.streams, case.relations, -(2**63))))
        changes = oracle_result(part, case.streams, case.relations)
        entered = oracle_result(ToStream(part, "istream"), case.streams, case.relations)
        left = oracle_result(ToStream(part, "dstream"), case.streams, case.relations)
        after = before + Counter(row for *_, row in entered)
        after.subtract(row for *_, row in left)
        final: Counter[object] = Counter()
        for _, sign, row in changes:
            final[row] += sign
        # Without any change, the rows that are there from the start are all.
        assert +final == (+after if changes else +before)
