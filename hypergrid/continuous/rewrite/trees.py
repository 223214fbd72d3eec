"""Trees changed from the leaves up, equal subtrees once."""

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from typing import Any

from hypergrid.continuous.algebra import AggregateCall, JoinOf, Operator, inputs_of
from hypergrid.continuous.expressions import Constant, Expression, Operation, Reference


def with_inputs(operator: Operator, inputs: Sequence[Operator]) -> Operator:
    """Return an operator above other inputs, given from left to right; the same object if they are the same."""
    if all(new is old for new, old in zip(inputs, inputs_of(operator), strict=True)):
        return operator
    if isinstance(operator, JoinOf):
        return replace(operator, inputs=tuple(inputs))
    names = [part.name for part in fields(operator) if isinstance(getattr(operator, part.name), Operator)]
    changes: dict[str, Any] = dict(zip(names, inputs, strict=True))
    return replace(operator, **changes)


class Interning:
    """Makes equal subtrees one object, so that rules visit each once and compare by identity."""

    def __init__(self) -> None:
        self._by_content: dict[tuple[object, ...], Operator] = {}
        # Holds what was interned, so that no other object gets its identity.
        self._by_identity: dict[int, tuple[Operator, Operator]] = {}

    def intern(self, operator: Operator) -> Operator:
        """Return the object that stands for all trees equal to one."""
        known = self._by_identity.get(id(operator))
        if known is None:
            inputs = [self.intern(part) for part in inputs_of(operator)]
            values = [getattr(operator, part.name) for part in fields(operator)]
            own = (value for value in values if not _holds_operators(value))
            content = (type(operator), *map(id, inputs), *own)
            interned = self._by_content.setdefault(content, with_inputs(operator, inputs))
            known = self._by_identity[id(operator)] = (operator, interned)
        return known[1]


def _holds_operators(value: object) -> bool:
    return isinstance(value, Operator) or (isinstance(value, tuple) and bool(value) and isinstance(value[0], Operator))


def transform(tree: Operator, change: Callable[[Operator], Operator]) -> Operator:
    """Return a tree in which each operator is changed, after its inputs; each object once."""
    changed: dict[int, Operator] = {}

    def visit(operator: Operator) -> Operator:
        if id(operator) not in changed:
            changed[id(operator)] = change(with_inputs(operator, [visit(part) for part in inputs_of(operator)]))
        return changed[id(operator)]

    return visit(tree)


def transform_expressions(operator: Operator, change: Callable[[Expression], Expression]) -> Operator:
    """Return an operator with its own expressions changed; the same object if they are the same."""
    changes: dict[str, Any] = {}
    for part in fields(operator):
        value = getattr(operator, part.name)
        changed = _transform_value(value, change)
        if changed != value:
            changes[part.name] = changed
    return replace(operator, **changes) if changes else operator


def _transform_value(value: object, change: Callable[[Expression], Expression]) -> object:
    if isinstance(value, Reference | Constant | Operation):
        return change(value)
    if isinstance(value, AggregateCall) and value.argument is not None:
        return replace(value, argument=change(value.argument))
    if isinstance(value, tuple) and not _holds_operators(value):
        return tuple(_transform_value(part, change) for part in value)
    return value
