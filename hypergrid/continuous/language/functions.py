"""Functions of CQL: scalar functions and aggregates by name, with what they take and give."""

import importlib
import re
from collections.abc import Callable
from typing import Any, Final

from hypergrid.continuous.algebra import AggregateCall
from hypergrid.continuous.expressions import Constant, Expression, Operation
from hypergrid.continuous.language.errors import Refusal, Span
from hypergrid.continuous.language.units import NUMERIC, describe, match, require_number, to_number
from hypergrid.core.errors import InvalidQuery
from hypergrid.core.units import difference_of
from hypergrid.topology.wkt import read_region

Spans = tuple[Span | None, ...]

# The standard library's parser of patterns; its public names are deprecated, and it has no type stubs.
codes: Any = importlib.import_module("re._constants")
regular: Any = importlib.import_module("re._parser")

MOST_DECIMALS: Final = 22
"""Decimals to which numbers are rounded, at most: greater powers of ten are not exact."""
LONGEST_PATTERN: Final = 256
"""Characters of a pattern, at most."""


def _number(name: str, parts: tuple[Expression, ...], spans: Spans) -> Expression:
    for part, span in zip(parts, spans, strict=True):
        require_number(part, span)
    return Operation(name, tuple(to_number(part) for part in parts), "number")


def _same_unit(name: str, parts: tuple[Expression, ...], spans: Spans) -> Expression:
    require_number(parts[0], spans[0])
    return Operation(name, (to_number(parts[0]), *parts[1:]), "number", parts[0].unit)


def _round(name: str, parts: tuple[Expression, ...], spans: Spans) -> Expression:
    rounded = _same_unit(name, parts, spans)
    for part, span in zip(parts[1:], spans[1:], strict=True):
        decimals = part.value if isinstance(part, Constant) and part.kind == "integer" else None
        if decimals is None or not -MOST_DECIMALS <= int(decimals) <= MOST_DECIMALS:
            raise Refusal(span, f"round needs a whole number of decimals, from -{MOST_DECIMALS} to {MOST_DECIMALS}")
    return rounded


def _absolute(name: str, parts: tuple[Expression, ...], spans: Spans) -> Expression:
    require_number(parts[0], spans[0])
    return Operation(name, parts, parts[0].kind, parts[0].unit)


def _alike(name: str, parts: tuple[Expression, ...], spans: Spans) -> Expression:
    parts = match(parts, spans)
    return Operation(name, parts, parts[0].kind, parts[0].unit)


def _text(name: str, parts: tuple[Expression, ...], spans: Spans) -> Expression:
    _require_text(parts[0], spans[0])
    return Operation(name, parts, "text")


def _convert_to_number(_: str, parts: tuple[Expression, ...], spans: Spans) -> Expression:
    if parts[0].kind == "text":
        raise Refusal(spans[0], "a text cannot be converted to a number")
    return to_number(parts[0])


def _distance(name: str, parts: tuple[Expression, ...], spans: Spans) -> Expression:
    for part, span in zip(parts, spans, strict=True):
        require_number(part, span)
    return Operation(name, tuple(to_number(part) for part in parts), "number", "m")


def _inside(name: str, parts: tuple[Expression, ...], spans: Spans) -> Expression:
    for part, span in zip(parts[:2], spans[:2], strict=True):
        require_number(part, span)
    _require_text(parts[2], spans[2])
    if isinstance(parts[2], Constant) and parts[2].value is not None:
        try:
            read_region(str(parts[2].value))
        except InvalidQuery as error:
            raise Refusal(spans[2], str(error)) from error
    return Operation(name, (to_number(parts[0]), to_number(parts[1]), parts[2]), "boolean")


def match_pattern(name: str, parts: tuple[Expression, ...], spans: Spans) -> Expression:
    """Return a test of a text against a constant pattern of ``like`` or ``regex``."""
    _require_text(parts[0], spans[0])
    pattern = parts[1]
    if not isinstance(pattern, Constant) or pattern.kind != "text" or pattern.value is None:
        raise Refusal(spans[1], "a pattern needs to be a text in quotes")
    if len(text := str(pattern.value)) > LONGEST_PATTERN:
        label = "a regular expression" if name == "regex" else "a pattern of Like"
        raise Refusal(spans[1], f"{label} has at most {LONGEST_PATTERN} characters; got {len(text)}")
    if name == "regex":
        _check_regex(text, spans[1])
    return Operation(name, parts, "boolean")


def _check_regex(pattern: str, span: Span | None) -> None:
    try:
        parsed = regular.parse(pattern)
    except (re.error, OverflowError, RecursionError) as error:
        raise Refusal(span, f"this is no regular expression: {error}") from error
    _check_parts(parsed, span, is_repeated=False)
    import pyarrow as pa  # noqa: PLC0415 - only queries with a regular expression need it here
    import pyarrow.compute as pc  # noqa: PLC0415

    try:  # the engine's expressions are those of RE2, which has fewer forms
        pc.match_substring_regex(pa.array([""]), pattern)
    except pa.ArrowInvalid as error:
        raise Refusal(span, f"this is no regular expression of RE2: {error}") from error


def _check_parts(parts: Any, span: Span | None, *, is_repeated: bool) -> None:  # noqa: ANN401 - tree of the parser
    """Refuse what takes a backtracking matcher exponential time: repetition in repetition, and references back."""
    for code, value in parts:
        if code in (codes.GROUPREF, codes.GROUPREF_EXISTS, codes.ASSERT, codes.ASSERT_NOT):
            raise Refusal(span, "a regular expression may not refer back or look around, which can take forever")
        if code in (codes.MAX_REPEAT, codes.MIN_REPEAT, codes.POSSESSIVE_REPEAT):
            _, limit, inner = value
            if is_repeated and limit > 1:
                raise Refusal(
                    span, "a repetition inside a repetition can take exponential time; write the pattern without one"
                )
            _check_parts(inner, span, is_repeated=is_repeated or limit > 1)
        elif code == codes.SUBPATTERN:
            _check_parts(value[-1], span, is_repeated=is_repeated)
        elif code == codes.BRANCH:
            for branch in value[1]:
                _check_parts(branch, span, is_repeated=is_repeated)
        elif code == codes.ATOMIC_GROUP:
            _check_parts(value, span, is_repeated=is_repeated)


def _require_text(part: Expression, span: Span | None) -> None:
    if part.kind != "text":
        raise Refusal(span, f"a text is needed; got {'an' if part.kind == 'integer' else 'a'} {part.kind}")


Build = Callable[[str, tuple[Expression, ...], Spans], Expression]

SCALARS: Final[dict[str, tuple[int, int, Build]]] = {
    "abs": (1, 1, _absolute),
    "sqrt": (1, 1, _number),
    "exp": (1, 1, _number),
    "ln": (1, 1, _number),
    "power": (2, 2, _number),
    "floor": (1, 1, _same_unit),
    "ceil": (1, 1, _same_unit),
    "round": (1, 2, _round),
    "sin": (1, 1, _number),
    "cos": (1, 1, _number),
    "least": (1, 32, _alike),
    "greatest": (1, 32, _alike),
    "coalesce": (1, 32, _alike),
    "to_number": (1, 1, _convert_to_number),
    "lower": (1, 1, _text),
    "upper": (1, 1, _text),
    "regex": (2, 2, match_pattern),
    "distance_m": (4, 4, _distance),
    "inside": (3, 3, _inside),
}
"""Scalar functions: least and greatest number of arguments, and what builds the call."""

SYNONYMS: Final = {
    "mean": "avg",
    "average": "avg",
    "std": "stddev",
    "log": "ln",
    "pow": "power",
    "ceiling": "ceil",
    "cast": "to_number(x), or an instant in quotes",
    "if": "Case When … Then … Else … End",
}
"""Functions by other names, with what CQL calls them."""

AGGREGATES: Final = ("count", "sum", "avg", "min", "max", "stddev", "first", "last", "median", "quantile")
_OF_NUMBERS: Final = ("sum", "avg", "stddev", "median", "quantile")


def call_scalar(name: str, parts: tuple[Expression, ...], spans: Spans, span: Span | None) -> Expression:
    """Return the call of a scalar function that exists."""
    minimum, maximum, build = SCALARS[name]
    if not minimum <= len(parts) <= maximum:
        needed = str(minimum) if minimum == maximum else f"{minimum} to {maximum}"
        raise Refusal(span, f"{name} needs {needed} argument{'s' if needed != '1' else ''}; got {len(parts)}")
    return build(name, parts, spans)


def call_aggregate(name: str, part: Expression | None, share: float, span: Span | None) -> AggregateCall:
    """Return the call of an aggregate other than ``count(distinct …)``, of all rows without an expression."""
    if part is None:
        return AggregateCall("count", None, "integer")
    if name == "count":
        return AggregateCall("count", part, "integer")
    if name in _OF_NUMBERS:
        if part.kind not in NUMERIC:
            raise Refusal(span, f"{name} needs numbers; got {describe(part)}")
        if name != "sum":
            part = to_number(part)
        unit = difference_of(part.unit) if name == "stddev" and part.unit else part.unit
        return AggregateCall(name, part, part.kind, unit, share)  # type: ignore[arg-type]
    return AggregateCall(name, part, part.kind, part.unit)  # type: ignore[arg-type]
