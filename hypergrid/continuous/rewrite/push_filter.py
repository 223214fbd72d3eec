"""Test conditions as early as they can be: below joins, windows, groups and streams of changes.

Exact where a condition decides of a row alone, whatever others there are: below a window of time, but not below one of
rows, whose limit counts the rows that the condition drops, unless it decides of whole partitions (Babu 2005, section
2.2.4); below groups if it reads their keys only; below bags and distinct rows, on each side; never below a sample, and
never into the predicate of a window, which precedes the limit. What several operators read is computed once, without
the conditions of any.
"""

from hypergrid.continuous.algebra import (
    AggregateOf,
    BagOf,
    DistinctOf,
    FilterOf,
    JoinOf,
    MembershipOf,
    Operator,
    ProjectionOf,
    ToStream,
    WindowOf,
    inputs_of,
)
from hypergrid.continuous.expressions import Expression, positions
from hypergrid.continuous.rewrite.conditions import join_conditions, move, rebind, split_condition, substitute
from hypergrid.continuous.rewrite.sharing import Shared, find_shared
from hypergrid.continuous.rewrite.trees import with_inputs

Conditions = tuple[Expression, ...]


def push_filter(tree: Operator, static: frozenset[str]) -> tuple[Operator, tuple[str, ...]]:
    """Move each condition down as far as it stays the same.

    ::

        join on a = c and b > 1 > window range 1 h > stream S(a, b), …
        becomes
        join on a = c > window range 1 h > filter b > 1 > stream S(a, b), …
    """
    pushing = Pushing(find_shared(tree))
    pushed = pushing.push(tree, ())
    return pushed, (f"conditions are tested below {', '.join(pushing.passed)}",) if pushing.passed else ()


class Pushing:
    """One pass from the root down, with what conditions passed."""

    def __init__(self, shared: Shared) -> None:
        self.shared = shared
        self.pushed: dict[tuple[int, Conditions], Operator] = {}
        self.passed: dict[str, None] = {}

    def push(self, operator: Operator, conditions: Conditions) -> Operator:
        """Return an operator with a filter above, the filter as far below as it goes."""
        key = (id(operator), conditions)
        if key not in self.pushed:
            self.pushed[key] = self._push(operator, conditions)
        return self.pushed[key]

    def _push(self, operator: Operator, conditions: Conditions) -> Operator:
        if conditions and id(operator) in self.shared:
            return _filter(self.push(operator, ()), conditions)
        if isinstance(operator, FilterOf):
            return self.push(operator.input, (*split_condition(operator.predicate), *conditions))
        if isinstance(operator, JoinOf):
            return self._push_into_join(operator, conditions)
        below, above = _split(operator, conditions)
        translated = _translate(operator, below)
        inputs = [self.push(part, taken) for part, taken in zip(inputs_of(operator), translated, strict=True)]
        if below:
            self.passed[_NAMES[type(operator)]] = None
        return _filter(with_inputs(operator, inputs), above)

    def _push_into_join(self, join: JoinOf, conditions: Conditions) -> Operator:
        owners = [number for number, part in enumerate(join.inputs) for _ in part.attributes]
        starts = [owners.index(number) if number in owners else 0 for number in range(len(join.inputs))]
        taken: list[Conditions] = [() for _ in join.inputs]
        kept: list[Expression] = []
        for condition in (*split_condition(join.predicate), *conditions):
            read = {owners[position] for position in positions(condition)}
            if len(read) == 1:
                number = read.pop()
                taken[number] = (*taken[number], move(condition, -starts[number]))
                self.passed["joins"] = None
            else:
                kept.append(condition)
        inputs = tuple(self.push(part, own) for part, own in zip(join.inputs, taken, strict=True))
        return JoinOf(inputs, join_conditions(kept))


def _filter(operator: Operator, conditions: Conditions) -> Operator:
    predicate = join_conditions(conditions)
    return operator if predicate is None else FilterOf(operator, predicate)


_NAMES = {
    ProjectionOf: "projections",
    WindowOf: "windows",
    ToStream: "streams of changes",
    AggregateOf: "groups",
    DistinctOf: "distinct rows",
    BagOf: "bags",
    MembershipOf: "memberships",
}


def _split(operator: Operator, conditions: Conditions) -> tuple[Conditions, Conditions]:
    """Return the conditions that go below an operator, and those that stay above."""
    match operator:
        case ProjectionOf() | ToStream() | DistinctOf() | BagOf() | MembershipOf():
            return conditions, ()
        case WindowOf(form="rows", partition=readable):
            allowed = frozenset(readable)
        case WindowOf():
            return conditions, ()
        case AggregateOf(keys=keys):
            allowed = frozenset(range(len(keys)))
        case _:
            return (), conditions
    decided = [bool(positions(part)) and positions(part) <= allowed for part in conditions]
    below = tuple(part for part, is_decided in zip(conditions, decided, strict=True) if is_decided)
    return below, tuple(part for part, is_decided in zip(conditions, decided, strict=True) if not is_decided)


def _translate(operator: Operator, conditions: Conditions) -> list[Conditions]:
    """Return conditions over the rows of an operator as those over the rows of each input."""
    match operator:
        case ProjectionOf(expressions=values) | AggregateOf(keys=values):
            return [tuple(substitute(part, values) for part in conditions)]
        case BagOf(left=left, right=right):
            return [tuple(rebind(part, side.attributes) for part in conditions) for side in (left, right)]
        case MembershipOf():
            return [conditions, ()]
    return [conditions for _ in inputs_of(operator)]
