"""Subtrees that several operators read: the engine computes equal subtrees once, so rules keep them equal."""

from collections import Counter

from hypergrid.continuous.algebra import (
    AggregateOf,
    BagOf,
    DistinctOf,
    JoinOf,
    MembershipOf,
    Operator,
    ToStream,
    inputs_of,
)

Shared = frozenset[int]
"""Identities of operators."""


def find_shared(tree: Operator) -> Shared:
    """Return the objects below a tree that are read more than once and hold more than a window.

    Windows are not among them: two smaller ones, each of the rows that its reader wants, hold less than it seems.
    """
    readers: Counter[int] = Counter()
    costly: dict[int, bool] = {}

    def visit(operator: Operator) -> None:
        for part in inputs_of(operator):
            readers[id(part)] += 1
            if readers[id(part)] == 1:
                visit(part)
        costly[id(operator)] = isinstance(operator, _COSTLY) or any(costly[id(part)] for part in inputs_of(operator))

    visit(tree)
    return frozenset(identity for identity, count in readers.items() if count > 1 and costly[identity])


_COSTLY = AggregateOf | JoinOf | DistinctOf | BagOf | MembershipOf | ToStream
