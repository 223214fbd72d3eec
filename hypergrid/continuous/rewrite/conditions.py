"""Predicates as conjunctions, and expressions moved to other inputs."""

from collections.abc import Callable, Iterable, Sequence

from hypergrid.continuous.expressions import Attributes, Constant, Expression, Operation, Reference


def split_condition(predicate: Expression | None) -> tuple[Expression, ...]:
    """Return the conditions whose conjunction a predicate is; of None there are none."""
    if predicate is None:
        return ()
    if isinstance(predicate, Operation) and predicate.name == "and":
        return tuple(part for argument in predicate.arguments for part in split_condition(argument))
    return (predicate,)


def join_conditions(conditions: Iterable[Expression]) -> Expression | None:
    """Return the conjunction of conditions, each once; None of none."""
    distinct = tuple(dict.fromkeys(conditions))
    return conjoin(*distinct) if distinct else None


def conjoin(first: Expression, *others: Expression) -> Expression:
    """Return the conjunction of conditions, which are different."""
    return Operation("and", (first, *others), "boolean") if others else first


def replace_references(expression: Expression, change: Callable[[Reference], Expression]) -> Expression:
    """Return an expression with each reference replaced."""
    match expression:
        case Reference():
            return change(expression)
        case Constant():
            return expression
    arguments = tuple(replace_references(argument, change) for argument in expression.arguments)
    return Operation(expression.name, arguments, expression.kind, expression.unit)


def substitute(expression: Expression, values: Sequence[Expression]) -> Expression:
    """Return an expression over rows of `values` as one over the rows that these are of."""
    return replace_references(expression, lambda part: values[part.position])


def move(expression: Expression, offset: int) -> Expression:
    """Return an expression over a row that begins `offset` positions later."""
    return replace_references(expression, lambda part: Reference(part.position + offset, part.attribute))


def rebind(expression: Expression, attributes: Attributes) -> Expression:
    """Return an expression over the same positions of another input."""
    return replace_references(expression, lambda part: Reference(part.position, attributes[part.position]))


def list_references(attributes: Attributes) -> tuple[Reference, ...]:
    """Return references to all attributes of an input."""
    return tuple(Reference(position, attribute) for position, attribute in enumerate(attributes))
