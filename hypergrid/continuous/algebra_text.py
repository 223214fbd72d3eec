"""Operators of continuous queries and their expressions as text."""

from collections import Counter

from hypergrid.continuous.algebra import (
    AggregateCall,
    AggregateOf,
    BagOf,
    DistinctOf,
    FilterOf,
    JoinOf,
    MembershipOf,
    Operator,
    ProjectionOf,
    RelationInput,
    SampleOf,
    StreamInput,
    ToStream,
    WindowOf,
)
from hypergrid.continuous.expressions import Attributes, Constant, Expression, Operation, Reference

_INFIX = {
    "add": "+",
    "subtract": "-",
    "multiply": "*",
    "divide": "/",
    "modulo": "%",
    "equal": "=",
    "unequal": "<>",
    "less": "<",
    "less_equal": "<=",
    "greater": ">",
    "greater_equal": ">=",
    "and": "and",
    "or": "or",
    "like": "like",
}
_BINDING = {"or": 1, "and": 2, "not": 3, "add": 5, "subtract": 5, "multiply": 6, "divide": 6, "modulo": 6}
"""How tightly an operator binds; comparisons 4, functions 9."""
_UNITS = (("d", 86_400), ("h", 3_600), ("min", 60), ("s", 1))


def operator_text(operator: Operator) -> str:
    """Return an operator without its inputs."""
    match operator:
        case StreamInput(name=name) | RelationInput(name=name):
            columns = ", ".join(f"{part.name} {part.kind}" for part in operator.attributes)
            return f"{'stream' if operator.is_stream else 'relation'} {name}({columns})"
        case SampleOf(share=share, seed=seed):
            return f"sample {share:g} (seed {seed})"
        case WindowOf():
            return f"window {_window_text(operator)}"
        case FilterOf(predicate=predicate):
            return f"filter {expression_text(predicate, operator.input.attributes)}"
        case ProjectionOf(input=below, expressions=expressions, names=names):
            return "project " + _list_named(expressions, names, below.attributes)
        case JoinOf(predicate=predicate):
            return "join" if predicate is None else f"join on {expression_text(predicate, operator.attributes)}"
        case AggregateOf(input=below, keys=keys, calls=calls, names=names):
            parts = [_call_text(call, below.attributes) for call in calls]
            of_calls = ", ".join(f"{text} as {name}" for text, name in zip(parts, names[len(keys) :], strict=True))
            by = f" by {_list_named(keys, names[: len(keys)], below.attributes)}" if keys else ""
            return f"aggregate {of_calls}{by}".replace("aggregate  by", "aggregate by")
        case DistinctOf():
            return "distinct"
        case BagOf(form=form):
            return f"{form} all"
        case MembershipOf(input=below, values=values, is_negated=is_negated):
            texts = ", ".join(expression_text(value, below.attributes) for value in values)
            return f"({texts}) {'not in' if is_negated else 'in'}"
        case ToStream(form=form, slide_ns=slide_ns):
            return form + (f" slide {duration_text(slide_ns)}" if slide_ns else "")


def _window_text(window: WindowOf) -> str:
    parts = []
    if window.partition:
        parts.append("by " + ", ".join(column_text(position, window.attributes) for position in window.partition))
    if window.form == "rows":
        parts.append(f"rows {window.rows}")
    elif window.form == "range":
        parts.append(f"range {duration_text(window.range_ns)}")
        parts += [f"slide {duration_text(window.slide_ns)}"] if window.slide_ns else []
    else:
        parts.append(window.form)
    if window.where is not None:
        parts.append(f"where {expression_text(window.where, window.attributes)}")
    return " ".join(parts)


def duration_text(duration_ns: int) -> str:
    """Return a duration in its largest whole unit."""
    for unit, seconds in _UNITS:
        if duration_ns % (seconds * 10**9) == 0:
            return f"{duration_ns // (seconds * 10**9)} {unit}"
    return f"{duration_ns} ns"


def _list_named(expressions: tuple[Expression, ...], names: tuple[str, ...], attributes: Attributes) -> str:
    pairs = [(expression_text(part, attributes), name) for part, name in zip(expressions, names, strict=True)]
    return ", ".join(text if text == name else f"{text} as {name}" for text, name in pairs)


def _call_text(call: AggregateCall, attributes: Attributes) -> str:
    argument = "*" if call.argument is None else expression_text(call.argument, attributes)
    share = f", {call.share:g}" if call.function == "quantile" else ""
    return f"{call.function}({argument}{share})"


def column_text(position: int, attributes: Attributes) -> str:
    """Return the name of an attribute, with its position where several have that name."""
    name = attributes[position].name
    is_shared = Counter(attribute.name for attribute in attributes)[name] > 1
    return f"{name}#{position}" if is_shared else name


def expression_text(expression: Expression, attributes: Attributes) -> str:
    """Return an expression over some attributes, with the parentheses that it needs."""
    return _expression_text(expression, attributes, 0)


def _expression_text(expression: Expression, attributes: Attributes, outer: int) -> str:
    match expression:
        case Reference(position=position):
            return column_text(position, attributes)
        case Constant(value=value):
            return "NULL" if value is None else repr(value)
        case Operation(name=name, arguments=arguments):
            binding = _BINDING.get(name, 4 if name in _INFIX else 9)
            if name == "not":
                text = f"not {_expression_text(arguments[0], attributes, binding)}"
            elif name in _INFIX and len(arguments) > 1:
                parts = [_expression_text(part, attributes, binding + (n > 0)) for n, part in enumerate(arguments)]
                text = f" {_INFIX[name]} ".join(parts)
            else:
                return f"{name}({', '.join(_expression_text(part, attributes, 0) for part in arguments)})"
            return f"({text})" if binding < outer else text
