"""Merge operators that one pass over the rows can do.

Exact: filters and joins keep a row if all their conditions are true, in whatever order they are tested. A projection is
merged into another only if it is computed as often as before, and drawn out of a join if it only picks columns. Groups
are distinct by their keys. Joins that several operators read stay as they are.
"""

from collections import Counter
from dataclasses import replace

from hypergrid.continuous.algebra import AggregateOf, DistinctOf, FilterOf, JoinOf, Operator, ProjectionOf, inputs_of
from hypergrid.continuous.expressions import Constant, Expression, Operation, Reference, walk
from hypergrid.continuous.rewrite.conditions import (
    conjoin,
    join_conditions,
    list_references,
    move,
    split_condition,
    substitute,
)
from hypergrid.continuous.rewrite.sharing import Shared, find_shared
from hypergrid.continuous.rewrite.trees import with_inputs


def merge(tree: Operator, static: frozenset[str]) -> tuple[Operator, tuple[str, ...]]:
    """Make one filter of several, one projection of several, and one join of nested joins and the filter above.

    ::

        filter a = b > join > join, window   becomes   join on a = b > window, window, window
    """
    merging = Merging(find_shared(tree))
    merged = merging.merge(tree)
    return merged, tuple(dict.fromkeys(merging.notes))


class Merging:
    """One pass from the leaves up."""

    def __init__(self, shared: Shared) -> None:
        self.shared = shared
        self.merged: dict[int, Operator] = {}
        self.kept: set[int] = set()
        """Identities of what became of subtrees that several operators read."""
        self.notes: list[str] = []

    def merge(self, operator: Operator) -> Operator:
        """Return an operator merged with those below it."""
        if id(operator) not in self.merged:
            merged = self._merge(with_inputs(operator, [self.merge(part) for part in inputs_of(operator)]))
            self.merged[id(operator)] = merged
            if id(operator) in self.shared:
                self.kept.add(id(merged))
        return self.merged[id(operator)]

    def _merge(self, operator: Operator) -> Operator:
        match operator:
            case FilterOf(input=FilterOf(input=below, predicate=first), predicate=second):
                self.notes.append("filters above each other are one")
                parts = dict.fromkeys((*split_condition(first), *split_condition(second)))
                return self._merge(FilterOf(below, conjoin(*parts)))
            case FilterOf(input=JoinOf() as join, predicate=predicate) if id(join) not in self.kept:
                self.notes.append("a filter above a join is a condition of it")
                parts = dict.fromkeys((*split_condition(join.predicate), *split_condition(predicate)))
                return JoinOf(join.inputs, conjoin(*parts))
            case FilterOf(input=ProjectionOf() as projection, predicate=predicate) if self._is_drawn(projection):
                filtered = self._merge(FilterOf(projection.input, substitute(predicate, projection.expressions)))
                return replace(projection, input=filtered)
            case ProjectionOf():
                return self._merge_projection(operator)
            case DistinctOf(input=DistinctOf() | AggregateOf() as below):
                self.notes.append("rows that are distinct already are not compared again")
                return below
            case JoinOf():
                return self._flatten(operator)
        return operator

    def _is_drawn(self, operator: Operator) -> bool:
        """Return whether an operator only picks columns of a join, and nothing else reads either of them."""
        if not isinstance(operator, ProjectionOf) or not isinstance(operator.input, JoinOf):
            return False
        is_free = not self.kept & {id(operator), id(operator.input)}
        return is_free and all(isinstance(part, Reference | Constant) for part in operator.expressions)

    def _merge_projection(self, projection: ProjectionOf) -> Operator:
        below = projection.input
        if projection.expressions == list_references(below.attributes) and projection.attributes == below.attributes:
            self.notes.append("a projection of all columns is dropped")
            return below
        if not isinstance(below, ProjectionOf):
            return projection
        used = Counter(
            part.position for own in projection.expressions for part in walk(own) if isinstance(part, Reference)
        )
        if any(isinstance(part, Operation) and used[position] > 1 for position, part in enumerate(below.expressions)):
            return projection
        self.notes.append("projections above each other are one")
        expressions = tuple(substitute(part, below.expressions) for part in projection.expressions)
        return self._merge_projection(ProjectionOf(below.input, expressions, projection.names))

    def _flatten(self, join: JoinOf) -> Operator:
        """Return a join whose inputs are no joins, below the projections that were between."""
        inputs: list[Operator] = []
        conditions: list[Expression] = []
        values: list[Expression] = []
        start = 0
        for part in join.inputs:
            inner = part.input if isinstance(part, ProjectionOf) and self._is_drawn(part) else part
            if isinstance(inner, JoinOf) and id(inner) not in self.kept:
                self.notes.append("nested joins are one join of all their inputs")
                inputs += inner.inputs
                conditions += [move(condition, start) for condition in split_condition(inner.predicate)]
            else:
                inputs.append(part)
            picked = part.expressions if isinstance(part, ProjectionOf) and inner is not part else None
            values += [move(value, start) for value in picked or list_references(inner.attributes)]
            start += len(inner.attributes)
        if len(inputs) == len(join.inputs):
            return join
        own = [substitute(condition, values) for condition in split_condition(join.predicate)]
        flat = JoinOf(tuple(inputs), join_conditions([*conditions, *own]))
        if tuple(values) == list_references(flat.attributes):
            return flat
        return ProjectionOf(flat, tuple(values), tuple(attribute.name for attribute in join.attributes))
