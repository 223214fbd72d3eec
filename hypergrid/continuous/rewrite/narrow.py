"""Keep only the columns that are used above.

Exact where rows stay the same rows without a column. Columns that decide are kept: those that conditions, keys and
partitions read, all below distinct rows, differences, intersections and samples, and all below a stream of changes
unless its relation only grows: a row that changes in an unused column leaves and enters. What several operators read
keeps the columns that any of them uses.
"""

from collections.abc import Iterable

from hypergrid.continuous.algebra import (
    AggregateCall,
    AggregateOf,
    BagOf,
    FilterOf,
    JoinOf,
    MembershipOf,
    Operator,
    ProjectionOf,
    RelationInput,
    ToStream,
    WindowOf,
    inputs_of,
)
from hypergrid.continuous.expressions import Attributes, Expression, Reference, positions
from hypergrid.continuous.properties import is_append_only
from hypergrid.continuous.rewrite.conditions import replace_references
from hypergrid.continuous.rewrite.sharing import Shared, find_shared
from hypergrid.continuous.rewrite.trees import with_inputs

Positions = frozenset[int]
Narrow = tuple[Operator, tuple[int, ...]]
"""Narrower operator, with the former positions of its columns in ascending order."""


def narrow(tree: Operator, static: frozenset[str]) -> tuple[Operator, tuple[str, ...]]:
    """Drop columns that nothing above uses, at windows, joined relations, projections and groups.

    ::

        project a > window range 1 h > stream S(a, b)   becomes   window range 1 h > project a > stream S(a, b)
    """
    everything = frozenset(range(len(tree.attributes)))
    narrower = Narrowing(static, find_shared(tree))
    # The first pass collects what is used of subtrees that several operators read.
    narrower.narrow(tree, everything)
    narrower.narrowed.clear()
    narrower.dropped.clear()
    changed, _ = narrower.narrow(tree, everything)
    dropped = ", ".join(dict.fromkeys(narrower.dropped))
    return changed, (f"columns that nothing uses are not kept: {dropped}",) if dropped else ()


class Narrowing:
    """Passes from the root down, with what they dropped."""

    def __init__(self, static: frozenset[str], shared: Shared) -> None:
        self.static = static
        self.used: dict[int, Positions] = dict.fromkeys(shared, frozenset())
        self.narrowed: dict[tuple[int, Positions], Narrow] = {}
        self.dropped: list[str] = []

    def narrow(self, operator: Operator, needed: Positions) -> Narrow:
        """Return an operator with at least the needed columns."""
        if id(operator) in self.used:
            self.used[id(operator)] |= needed
            needed = self.used[id(operator)]
        key = (id(operator), needed)
        if key not in self.narrowed:
            self.narrowed[key] = self._narrow(operator, needed)
        return self.narrowed[key]

    def _narrow(self, operator: Operator, needed: Positions) -> Narrow:
        match operator:
            case FilterOf(input=below, predicate=predicate):
                inner, kept = self.narrow(below, needed | positions(predicate))
                return FilterOf(inner, _bind(predicate, kept, inner.attributes)), kept
            case WindowOf():
                return self._narrow_window(operator, needed)
            case ProjectionOf():
                return self._narrow_projection(operator, needed)
            case JoinOf():
                return self._narrow_join(operator, needed)
            case AggregateOf():
                return self._narrow_groups(operator, needed)
            case BagOf(form="union", left=left, right=right):
                sides = [self._trim(*self.narrow(side, needed), needed) for side in (left, right)]
                return with_inputs(operator, [side for side, _ in sides]), sides[0][1]
            case MembershipOf(input=below, values=values):
                inner, kept = self.narrow(below, needed.union(*map(positions, values)))
                bound = tuple(_bind(value, kept, inner.attributes) for value in values)
                return MembershipOf(inner, bound, self._keep_all(operator.other), operator.is_negated), kept
            case ToStream(input=below, form=form):
                grows = form == "istream" and is_append_only(below, self.static)
                if form == "rstream" or grows:
                    inner, kept = self.narrow(below, needed)
                    return with_inputs(operator, [inner]), kept
        everything = tuple(range(len(operator.attributes)))
        return with_inputs(operator, [self._keep_all(part) for part in inputs_of(operator)]), everything

    def _keep_all(self, operator: Operator) -> Operator:
        return self.narrow(operator, frozenset(range(len(operator.attributes))))[0]

    def _trim(self, operator: Operator, kept: tuple[int, ...], needed: Positions) -> Narrow:
        """Project an operator to the needed columns, to its first if it has no needed one."""
        wanted = tuple(position for position in kept if position in needed) or kept[:1]
        if wanted == kept:
            return operator, kept
        numbers = [number for number, position in enumerate(kept) if position in wanted]
        self._note(operator.attributes, numbers)
        references = tuple(Reference(number, operator.attributes[number]) for number in numbers)
        return ProjectionOf(operator, references, tuple(part.attribute.name for part in references)), wanted

    def _note(self, attributes: Attributes, kept: Iterable[int]) -> None:
        held = frozenset(kept)
        self.dropped += [attribute.name for number, attribute in enumerate(attributes) if number not in held]

    def _narrow_window(self, window: WindowOf, needed: Positions) -> Narrow:
        of_where = positions(window.where) if window.where is not None else frozenset()
        used = needed | frozenset(window.partition) | of_where
        inner, kept = self._trim(*self.narrow(window.input, used), used)
        where = None if window.where is None else _bind(window.where, kept, inner.attributes)
        partition = tuple(kept.index(position) for position in window.partition)
        narrower = WindowOf(inner, window.form, window.rows, window.range_ns, window.slide_ns, partition, where)
        return narrower, kept

    def _narrow_projection(self, projection: ProjectionOf, needed: Positions) -> Narrow:
        kept = tuple(sorted(needed)) or (0,)
        self._note(projection.attributes, kept)
        chosen = [projection.expressions[position] for position in kept]
        inner, of_input = self.narrow(projection.input, frozenset[int]().union(*map(positions, chosen)))
        expressions = tuple(_bind(part, of_input, inner.attributes) for part in chosen)
        return ProjectionOf(inner, expressions, tuple(projection.names[position] for position in kept)), kept

    def _narrow_join(self, join: JoinOf, needed: Positions) -> Narrow:
        used = needed if join.predicate is None else needed | positions(join.predicate)
        inputs: list[Operator] = []
        kept: list[int] = []
        start = 0
        for part in join.inputs:
            end = start + len(part.attributes)
            own = frozenset(position - start for position in used if start <= position < end)
            inner, of_input = self.narrow(part, own)
            if _is_relation(inner):
                inner, of_input = self._trim(inner, of_input, own)
            inputs.append(inner)
            kept += [start + position for position in of_input]
            start = end
        narrower = JoinOf(tuple(inputs))
        if join.predicate is None:
            return narrower, tuple(kept)
        return JoinOf(tuple(inputs), _bind(join.predicate, tuple(kept), narrower.attributes)), tuple(kept)

    def _narrow_groups(self, groups: AggregateOf, needed: Positions) -> Narrow:
        count = len(groups.keys)
        wanted = {*range(count), *needed} or {0}
        kept = tuple(sorted(wanted))
        self._note(groups.attributes, kept)
        calls = [groups.calls[position - count] for position in kept if position >= count]
        read = [*groups.keys, *(call.argument for call in calls if call.argument is not None)]
        inner, of_input = self.narrow(groups.input, frozenset[int]().union(*map(positions, read)))
        keys = tuple(_bind(key, of_input, inner.attributes) for key in groups.keys)
        bound = tuple(_bind_call(call, of_input, inner.attributes) for call in calls)
        return AggregateOf(inner, keys, bound, tuple(groups.names[position] for position in kept)), kept


def _is_relation(operator: Operator) -> bool:
    """Return whether an operator is a relation that users give, filtered or not."""
    while isinstance(operator, FilterOf):
        operator = operator.input
    return isinstance(operator, RelationInput)


def _bind(expression: Expression, kept: tuple[int, ...], attributes: Attributes) -> Expression:
    """Return an expression over the columns that are kept."""
    numbers = {position: number for number, position in enumerate(kept)}

    def change(part: Reference) -> Reference:
        number = numbers[part.position]
        return Reference(number, attributes[number])

    return replace_references(expression, change)


def _bind_call(call: AggregateCall, kept: tuple[int, ...], attributes: Attributes) -> AggregateCall:
    if call.argument is None:
        return call
    return AggregateCall(call.function, _bind(call.argument, kept, attributes), call.kind, call.unit, call.share)
