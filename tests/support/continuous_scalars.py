"""Scalar functions of continuous queries in plain Python, None for NULL: the definition that others are tested by."""

import math
import re
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from hypergrid.continuous.expressions import Constant, Expression, Operation, Reference

Value = float | int | str | bool | None
Row = tuple[Value, ...]


def evaluate(expression: Expression, row: Row) -> Value:
    """Return the value of an expression for a row."""
    match expression:
        case Reference(position=position):
            return row[position]
        case Constant(value=value, kind=kind):
            return float(value) if kind == "number" and value is not None else value
        case Operation(name=name, arguments=arguments, kind=kind):
            value = _apply(name, [evaluate(argument, row) for argument in arguments])
            return _as_kind(value, kind)
    raise TypeError(expression)


def is_true(predicate: Expression | None, row: Row) -> bool:
    """Return whether a predicate is true, not NULL, of a row; None is true of all."""
    return predicate is None or evaluate(predicate, row) is True


def _as_kind(value: Value, kind: str) -> Value:
    if value is None or (isinstance(value, float) and math.isnan(value)):
        return None
    if kind == "number":
        return float(value)
    if kind in ("integer", "time") and abs(value) >= 2**63:
        return None
    return bool(value) if kind == "boolean" else value


def _apply(name: str, values: Sequence[Any]) -> Any:  # noqa: ANN401 - of any kind
    if name in NULL_AWARE:
        return NULL_AWARE[name](values)
    if any(value is None for value in values):
        return None
    return STRICT[name](*values)


def _all_of(values: Sequence[bool | None]) -> bool | None:
    if any(value is False for value in values):
        return False
    return None if any(value is None for value in values) else True


def _any_of(values: Sequence[bool | None]) -> bool | None:
    if any(value is True for value in values):
        return True
    return None if any(value is None for value in values) else False


def _is_in(values: Sequence[Value]) -> bool | None:
    first, *others = values
    return _any_of([None if first is None or other is None else first == other for other in others])


def _choose(values: Sequence[Value]) -> Value:
    *pairs, rest = values
    for condition, value in zip(pairs[::2], pairs[1::2], strict=True):
        if condition is True:
            return value
    return rest


def _modulo(a: float, b: float) -> float | None:
    if b == 0:
        return None
    if isinstance(a, int) and isinstance(b, int):
        return abs(a) % abs(b) * (-1 if a < 0 else 1)
    return math.fmod(a, b)


def _or_infinite(function: Callable[..., float]) -> Callable[..., float | None]:
    def call(*values: float) -> float | None:
        try:
            return function(*values)
        except OverflowError:
            return math.inf
        except ValueError:
            return None

    return call


def _power(a: float, b: float) -> float | None:
    try:
        return math.pow(a, b)
    except OverflowError:
        return -math.inf if a < 0 and b % 2 == 1 else math.inf
    except ValueError:
        return None


@cache
def _like_pattern(pattern: str) -> re.Pattern[str]:
    parts = {"%": ".*", "_": "."}
    return re.compile("".join(parts.get(letter, re.escape(letter)) for letter in pattern), re.DOTALL)


def _round(a: float, decimals: int = 0) -> float:
    scaled = a * 10.0**decimals if decimals >= 0 else a / 10.0**-decimals
    if math.isinf(scaled):
        return a
    return round(scaled) / 10.0**decimals if decimals >= 0 else round(scaled) * 10.0**-decimals


def _round_digits(a: float, size: float) -> float:
    largest = max(abs(a), abs(size))
    return a if largest == 0 or math.isinf(a) else round(a, 11 - math.floor(math.log10(largest)))


def _distance_m(*degrees: float) -> float:
    lon_1, lat_1, lon_2, lat_2 = map(math.radians, degrees)
    half = math.sin((lat_2 - lat_1) / 2) ** 2 + math.cos(lat_1) * math.cos(lat_2) * math.sin((lon_2 - lon_1) / 2) ** 2
    return 2 * 6_371_008.8 * math.asin(math.sqrt(min(1.0, half)))


def _is_inside(x: float, y: float, polygon: str) -> bool:
    """Return whether a point is inside a polygon without holes, by the edges that a ray to the right meets."""
    pairs = [tuple(map(float, pair.split())) for pair in re.sub(r"[A-Za-z()]", "", polygon).split(",")]
    met = 0
    for (x_1, y_1), (x_2, y_2) in zip(pairs, pairs[1:], strict=False):
        if (y_1 > y) != (y_2 > y) and x < (x_2 - x_1) * (y - y_1) / (y_2 - y_1) + x_1:
            met += 1
    return met % 2 == 1


NULL_AWARE: dict[str, Callable[[Sequence[Any]], Any]] = {
    "and": _all_of,
    "or": _any_of,
    "is_null": lambda values: values[0] is None,
    "in": _is_in,
    "case": _choose,
    "coalesce": lambda values: next((value for value in values if value is not None), None),
}
"""Functions that may differ from NULL where an argument is NULL."""

STRICT: dict[str, Callable[..., Any]] = {
    "add": lambda a, b: a + b,
    "subtract": lambda a, b: a - b,
    "multiply": lambda a, b: a * b,
    "divide": lambda a, b: None if b == 0 else float(a) / float(b),
    "modulo": _modulo,
    "negate": lambda a: -a,
    "equal": lambda a, b: a == b,
    "unequal": lambda a, b: a != b,
    "less": lambda a, b: a < b,
    "less_equal": lambda a, b: a <= b,
    "greater": lambda a, b: a > b,
    "greater_equal": lambda a, b: a >= b,
    "not": lambda a: not a,
    "like": lambda text, pattern: _like_pattern(pattern).fullmatch(text) is not None,
    "regex": lambda text, pattern: re.search(pattern, text) is not None,
    "abs": abs,
    "sqrt": lambda a: None if a < 0 else math.sqrt(a),
    "exp": _or_infinite(math.exp),
    "ln": lambda a: None if a <= 0 else math.log(a),
    "power": _power,
    "floor": lambda a: a if math.isinf(a) else float(math.floor(a)),
    "ceil": lambda a: a if math.isinf(a) else float(math.ceil(a)),
    "round": _round,
    "round_digits": _round_digits,
    "sin": _or_infinite(math.sin),
    "cos": _or_infinite(math.cos),
    "least": min,
    "greatest": max,
    "to_number": float,
    "lower": str.lower,
    "upper": str.upper,
    "distance_m": _distance_m,
    "inside": _is_inside,
}
"""Functions that are NULL where an argument is."""
