"""Rewritten trees give exactly the result of the original, of random trees over random streams, at both edges of R1."""

import pytest

from hypergrid.continuous.rewrite import RULES, rewrite
from tests.support.continuous_oracle import Edge, find_end, net_changes, oracle_result
from tests.support.continuous_random import random_case

BLOCK = 25


@pytest.mark.parametrize("block", range(80))
def test_a_rewritten_tree_gives_what_the_original_gives(block: int) -> None:
    edges: tuple[Edge, ...] = ("half-open", "closed")
    for seed in range(BLOCK * block, BLOCK * (block + 1)):
        case = random_case(seed)
        inputs = case.streams, case.relations
        end = find_end(case.tree, *inputs)
        for edge in edges:
            expected = net_changes(oracle_result(case.tree, *inputs, edge, end))
            for rules in (RULES, (RULES[seed % len(RULES)],)):
                tree = rewrite(case.tree, case.static, rules).tree
                assert tree.attributes == case.tree.attributes
                assert tree.is_stream == case.tree.is_stream
                found = net_changes(oracle_result(tree, *inputs, edge, end))
                assert found == expected, f"seed {seed}, {edge}\n{case.describe()}"


def test_most_random_trees_have_rows_and_are_changed_by_rules() -> None:
    fired: set[str] = set()
    rows = changed = 0
    for seed in range(100):
        case = random_case(seed)
        rows += len(oracle_result(case.tree, case.streams, case.relations)) > 2
        rewritten = rewrite(case.tree, case.static)
        changed += rewritten.tree != case.tree
        fired |= {sentence.split(":")[0] for sentence in rewritten.rules}
    assert rows > 80
    assert changed > 70
    assert fired == {rule.__name__ for rule in RULES}
