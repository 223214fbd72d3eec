"""Compute what does not depend on rows.

Exact: a function of constants has one value, computed in the same arithmetic of 64 bits; a result that is not finite,
or beyond 64 bits, is left to the engine. Negations go to the comparisons, which have opposites in logic of three
values; TRUE leaves a conjunction and FALSE decides it, whatever is NULL.
"""

import math
import operator as of
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from hypergrid.continuous.algebra import FilterOf, JoinOf, Operator, WindowOf
from hypergrid.continuous.expressions import Constant, Expression, Operation
from hypergrid.continuous.rewrite.trees import transform, transform_expressions

TRUE: Final = Constant(True, "boolean")  # noqa: FBT003 - a value
FALSE: Final = Constant(False, "boolean")  # noqa: FBT003 - a value
OPPOSITES: Final = {
    "equal": "unequal",
    "unequal": "equal",
    "less": "greater_equal",
    "greater_equal": "less",
    "greater": "less_equal",
    "less_equal": "greater",
}
FOLDED: Final[dict[str, Callable[..., Any]]] = {
    "add": of.add,
    "subtract": of.sub,
    "multiply": of.mul,
    "divide": lambda a, b: None if b == 0 else float(a) / float(b),
    "negate": of.neg,
    "equal": of.eq,
    "unequal": of.ne,
    "less": of.lt,
    "less_equal": of.le,
    "greater": of.gt,
    "greater_equal": of.ge,
    "not": of.not_,
    "abs": abs,
    "to_number": float,
}
"""Functions that are computed; each is NULL where an argument is."""


def fold_constants(tree: Operator, static: frozenset[str]) -> tuple[Operator, tuple[str, ...]]:
    """Replace functions of constants by their values, and drop conditions that are always true.

    ::

        filter a > 2 * 5 and not b < 1   becomes   filter a > 10 and b >= 1
    """
    notes: list[str] = []

    def change(operator: Operator) -> Operator:
        folded = transform_expressions(operator, fold)
        if folded is not operator:
            notes.append("what does not depend on rows is computed once")
        match folded:
            case FilterOf(input=below, predicate=predicate) if predicate == TRUE:
                return below
            case JoinOf(inputs=inputs, predicate=predicate) if predicate == TRUE:
                return JoinOf(inputs)
            case WindowOf(where=where) if where == TRUE:
                return replace(folded, where=None)
        return folded

    return transform(tree, change), tuple(dict.fromkeys(notes))


def fold(expression: Expression) -> Expression:
    """Return an expression whose parts without references are constants."""
    if not isinstance(expression, Operation):
        return expression
    arguments = tuple(fold(argument) for argument in expression.arguments)
    folded = Operation(expression.name, arguments, expression.kind, expression.unit)
    if expression.name in ("and", "or"):
        return _fold_logic(folded)
    if expression.name == "not" and isinstance(arguments[0], Operation):
        return _negate(arguments[0]) or folded
    values = [part.value for part in arguments if isinstance(part, Constant)]
    if len(values) < len(arguments) or expression.name not in FOLDED:
        return folded
    value = None if None in values else FOLDED[expression.name](*values)
    if expression.kind == "number" and value is not None:
        value = float(value)
    is_held = abs(value) < 2**63 if isinstance(value, int) else value is None or math.isfinite(value)
    return Constant(value, expression.kind, expression.unit) if is_held else folded


def _fold_logic(expression: Operation) -> Expression:
    """Return a conjunction or disjunction without what does not decide it."""
    deciding, neutral = (FALSE, TRUE) if expression.name == "and" else (TRUE, FALSE)
    if deciding in expression.arguments:
        return deciding
    parts: list[Expression] = []
    for part in expression.arguments:
        is_same = isinstance(part, Operation) and part.name == expression.name
        parts += part.arguments if isinstance(part, Operation) and is_same else [part]
    distinct = tuple(part for part in dict.fromkeys(parts) if part != neutral)
    if len(distinct) < 2:
        return distinct[0] if distinct else neutral
    return Operation(expression.name, distinct, "boolean")


def _negate(expression: Operation) -> Expression | None:
    """Return the negation of a comparison, conjunction, disjunction or negation; None of others."""
    if expression.name in OPPOSITES:
        return Operation(OPPOSITES[expression.name], expression.arguments, "boolean")
    if expression.name == "not":
        return expression.arguments[0]
    if expression.name in ("and", "or"):
        name = "or" if expression.name == "and" else "and"
        parts = tuple(fold(Operation("not", (part,), "boolean")) for part in expression.arguments)
        return _fold_logic(Operation(name, parts, "boolean"))
    return None
