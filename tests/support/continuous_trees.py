"""Short ways to write trees of continuous queries in tests, and their text."""

from hypergrid.continuous.algebra import (
    AggregateCall,
    AggregateOf,
    Operator,
    ProjectionOf,
    RelationInput,
    StreamInput,
    inputs_of,
)
from hypergrid.continuous.algebra_text import operator_text
from hypergrid.continuous.expressions import Attribute, Attributes, Constant, Expression, Kind, Operation, Reference

KINDS: dict[str, Kind] = {"n": "number", "i": "integer", "t": "time", "s": "text", "b": "boolean"}
NUMBERS = {"divide", "sqrt", "exp", "ln", "power", "floor", "ceil", "round", "sin", "cos", "to_number", "distance_m"}
OF_ARGUMENTS = {"add", "subtract", "multiply", "modulo", "negate", "abs", "least", "greatest", "coalesce"}


def attributes(text: str) -> Attributes:
    """Return attributes from ``name:kind`` pairs, kinds by their first letter, ``s`` for text."""
    pairs = (part.split(":") for part in text.split())
    return tuple(Attribute(name, KINDS[kind]) for name, kind in pairs)


def stream(name: str, text: str) -> StreamInput:
    return StreamInput(name, attributes(text))


def relation(name: str, text: str) -> RelationInput:
    return RelationInput(name, attributes(text))


def column(operator: Operator, name: str, occurrence: int = 0) -> Reference:
    """Return a reference to the attribute of an operator with a name; to a later one of equal names if asked."""
    positions = [number for number, attribute in enumerate(operator.attributes) if attribute.name == name]
    return Reference(positions[occurrence], operator.attributes[positions[occurrence]])


def constant(value: float | str | None, kind: Kind | None = None) -> Constant:
    kinds: dict[type, Kind] = {bool: "boolean", int: "integer", float: "number", str: "text"}
    return Constant(value, kind or kinds[type(value)])


def call(name: str, *arguments: Expression | float | str) -> Operation:
    """Return a scalar function of expressions or constants, of the kind that follows from its arguments."""
    parts = tuple(constant(part) if isinstance(part, float | int | str) else part for part in arguments)
    if name in NUMBERS:
        return Operation(name, parts, "number")
    if name in OF_ARGUMENTS:
        kinds = {part.kind for part in parts}
        return Operation(name, parts, "number" if "number" in kinds else parts[0].kind)
    if name == "case":
        return Operation(name, parts, parts[1].kind)
    if name in ("lower", "upper"):
        return Operation(name, parts, "text")
    return Operation(name, parts, "boolean")


def project(operator: Operator, *names: str) -> ProjectionOf:
    """Return the projection of some attributes."""
    return ProjectionOf(operator, tuple(column(operator, name) for name in names), names)


def aggregate_call(function: str, argument: Expression | None = None, share: float = 0.5) -> AggregateCall:
    """Return an aggregate of the kind that follows from its function and argument."""
    kind: Kind = "integer" if function in ("count", "count_distinct") else "number"
    if argument is not None and function in ("sum", "min", "max", "first", "last"):
        kind = argument.kind
    return AggregateCall(function, argument, kind, share=share)  # type: ignore[arg-type]


def aggregate(operator: Operator, keys: str = "", **calls: AggregateCall) -> AggregateOf:
    """Return the groups of an operator by attributes, whose names are given in one text."""
    names = keys.split()
    return AggregateOf(
        operator, tuple(column(operator, name) for name in names), tuple(calls.values()), (*names, *calls)
    )


def tree_text(tree: Operator) -> str:
    """Return a tree as text: one operator a line, its inputs below it, indented."""
    lines = [operator_text(tree)]
    for part in inputs_of(tree):
        lines += ["  " + line for line in tree_text(part).splitlines()]
    return "\n".join(lines)
