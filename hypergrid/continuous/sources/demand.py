"""What a tree asks of its inputs: the columns that it reads, and the texts to which it restricts them."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from hypergrid.continuous.algebra import (
    FilterOf,
    Operator,
    ProjectionOf,
    RelationInput,
    SampleOf,
    StreamInput,
    WindowOf,
    inputs_of,
)
from hypergrid.continuous.expressions import Constant, Expression, Operation, Reference, positions
from hypergrid.continuous.properties import shows_from_start
from hypergrid.continuous.rewrite.conditions import replace_references

Texts: TypeAlias = frozenset[str]
Restrictions: TypeAlias = Mapping[str, Texts]
"""Texts of which an attribute is one, by its name; attributes without restriction are absent."""


@dataclass(frozen=True)
class Demand:
    """What all uses of an input need together."""

    columns: frozenset[int]
    """Positions of the attributes that are read."""
    restrictions: Restrictions = field(default_factory=dict)
    """Rows that do not comply change nothing."""


def list_demands(tree: Operator) -> dict[str, Demand]:
    """Return the demand on each input of a tree, by name.

    Rows are left out only where that cannot be seen: where no row shows before the first element of all inputs.
    """
    demands: dict[str, Demand] = {}
    is_vacant = not shows_from_start(tree)
    for leaf, read, conjuncts in _walk(tree, None, ()):
        everything = frozenset(range(len(leaf.attributes)))
        own = Demand(everything if read is None else read, _restrict(conjuncts) if is_vacant else {})
        known = demands.get(leaf.name)
        demands[leaf.name] = own if known is None else _unite(known, own)
    return demands


def _unite(first: Demand, second: Demand) -> Demand:
    shared = first.restrictions.keys() & second.restrictions.keys()
    return Demand(
        first.columns | second.columns, {name: first.restrictions[name] | second.restrictions[name] for name in shared}
    )


Leaf: TypeAlias = StreamInput | RelationInput


def _walk(
    operator: Operator, read: frozenset[int] | None, conjuncts: tuple[Expression, ...]
) -> Iterator[tuple[Leaf, frozenset[int] | None, tuple[Expression, ...]]]:
    """Yield each use of an input, with the positions read of it (None: all), and conditions that its rows must meet."""
    match operator:
        case StreamInput() | RelationInput():
            yield operator, read, conjuncts
        case FilterOf(input=below, predicate=predicate):
            kept = None if read is None else read | positions(predicate)
            yield from _walk(below, kept, (*conjuncts, *_split(predicate)))
        case SampleOf(input=below):
            # Whether a row is kept depends on all its columns.
            yield from _walk(below, None, conjuncts)
        case WindowOf(input=below, where=where, form=form):
            own = () if where is None else _split(where)
            # A filter above a window of rows is applied to what the window holds.
            yield from _walk(below, None, own if form == "rows" else (*own, *conjuncts))
        case ProjectionOf(input=below, expressions=expressions):
            read_below = frozenset[int]().union(*map(positions, expressions))
            yield from _walk(below, read_below, tuple(_see_through(conjuncts, expressions)))
        case _:
            for below in inputs_of(operator):
                yield from _walk(below, None, ())


def _see_through(conjuncts: tuple[Expression, ...], expressions: tuple[Expression, ...]) -> Iterator[Expression]:
    """Yield the conditions on columns that a projection only passes on, as conditions on its input."""
    passed = {position: part for position, part in enumerate(expressions) if isinstance(part, Reference)}
    for conjunct in conjuncts:
        if positions(conjunct) <= passed.keys():
            yield replace_references(conjunct, lambda part: passed[part.position])


def _split(predicate: Expression) -> tuple[Expression, ...]:
    if isinstance(predicate, Operation) and predicate.name == "and":
        return tuple(part for argument in predicate.arguments for part in _split(argument))
    return (predicate,)


def _restrict(conjuncts: tuple[Expression, ...]) -> dict[str, Texts]:
    restrictions: dict[str, Texts] = {}
    for conjunct in conjuncts:
        if (known := _accepted(conjunct)) is not None:
            name, texts = known
            restrictions[name] = restrictions.get(name, texts) & texts
    return restrictions


def _accepted(conjunct: Expression) -> tuple[str, Texts] | None:
    """Return the attribute and the texts of ``a = 'x'``, ``a In ('x', …)``, or an Or of such; None of another."""
    if not isinstance(conjunct, Operation):
        return None
    if conjunct.name == "or":
        parts = [_accepted(argument) for argument in conjunct.arguments]
        known = [part for part in parts if part is not None]
        names = {name for name, _ in known}
        if len(known) < len(parts) or len(names) != 1:
            return None
        return names.pop(), frozenset[str]().union(*(texts for _, texts in known))
    if conjunct.name not in ("equal", "in"):
        return None
    references = [part for part in conjunct.arguments if isinstance(part, Reference) and part.kind == "text"]
    values = [part.value for part in conjunct.arguments if isinstance(part, Constant) and isinstance(part.value, str)]
    if len(references) != 1 or len(values) + 1 != len(conjunct.arguments):
        return None
    return references[0].attribute.name, frozenset(values)
