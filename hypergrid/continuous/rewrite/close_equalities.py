"""Close the equalities of a join by transitivity, and carry conditions on one column over to those equal to it.

Exact for inner joins: where the equalities are true, both columns hold one value that is not NULL, so that a condition
true of one is true of the other. What is added only tells the join earlier what its result obeys anyway.
"""

from itertools import combinations

from hypergrid.continuous.algebra import FilterOf, JoinOf, Operator, WindowOf
from hypergrid.continuous.algebra_text import expression_text
from hypergrid.continuous.expressions import Expression, Operation, Reference, positions
from hypergrid.continuous.rewrite.conditions import join_conditions, move, rebind, replace_references, split_condition
from hypergrid.continuous.rewrite.trees import transform


def close_equalities(tree: Operator, static: frozenset[str]) -> tuple[Operator, tuple[str, ...]]:
    """Add the equalities and the conditions that follow from those of a join.

    ::

        join on a = b and b = c and a > 10   becomes   join on … and a = c and b > 10 and c > 10
    """
    notes: list[str] = []

    def change(operator: Operator) -> Operator:
        if not isinstance(operator, JoinOf):
            return operator
        added = _find_implied(operator)
        if not added:
            return operator
        notes.append("it follows that " + ", ".join(expression_text(part, operator.attributes) for part in added))
        return JoinOf(operator.inputs, join_conditions((*split_condition(operator.predicate), *added)))

    return transform(tree, change), tuple(dict.fromkeys(notes))


def group_equal(conditions: tuple[Expression, ...]) -> list[frozenset[int]]:
    """Return the sets of positions that equalities among conditions make equal, in order of their least."""
    classes: dict[int, set[int]] = {}
    for condition in conditions:
        pair = _read_equality(condition)
        if pair is not None:
            joined = classes.get(pair[0], {pair[0]}) | classes.get(pair[1], {pair[1]})
            classes |= dict.fromkeys(joined, joined)
    return sorted({frozenset(group) for group in classes.values()}, key=min)


def _read_equality(condition: Expression) -> tuple[int, int] | None:
    match condition:
        case Operation(name="equal", arguments=(Reference() as a, Reference() as b)) if a.kind == b.kind:
            return a.position, b.position
    return None


def _find_implied(join: JoinOf) -> list[Expression]:
    attributes = join.attributes
    owners = [number for number, part in enumerate(join.inputs) for _ in part.attributes]
    own = split_condition(join.predicate)
    known = list(own)
    start = 0
    for part in join.inputs:
        known += [move(condition, start) for condition in _list_known(part)]
        start += len(part.attributes)
    pairs = {frozenset(pair) for condition in known if (pair := _read_equality(condition)) is not None}
    seen = {rebind(condition, attributes) for condition in known}
    implied: list[Expression] = []
    for group in group_equal(own):
        for a, b in combinations(sorted(group), 2):
            if owners[a] != owners[b] and frozenset((a, b)) not in pairs:
                references = (Reference(a, attributes[a]), Reference(b, attributes[b]))
                implied.append(Operation("equal", references, "boolean"))
        for condition in known:
            read = positions(condition)
            if len(read) != 1 or not read <= group:
                continue
            for position in sorted(group - read):
                moved = _set_position(condition, Reference(position, attributes[position]))
                if owners[position] != owners[min(read)] and moved not in seen:
                    seen.add(moved)
                    implied.append(moved)
    return implied


def _set_position(condition: Expression, reference: Reference) -> Expression:
    return replace_references(condition, lambda _: reference)


def _list_known(operator: Operator) -> tuple[Expression, ...]:
    """Return conditions that are true of all rows of an input."""
    match operator:
        case FilterOf(input=below, predicate=predicate):
            return (*split_condition(predicate), *_list_known(below))
        case WindowOf(input=below, where=where):
            return (*split_condition(where), *_list_known(below))
    return ()
