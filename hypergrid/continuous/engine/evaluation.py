"""Scalar expressions over batches: one vectorised pass for each function, with NULL and three-valued logic.

A boolean is computed as two masks, where it is true and where it is false, so that a filter needs one of them only. A
value depends on its row alone, to the bit: rows are removed in other batches than those in which they were added.
"""

from collections.abc import Callable, Sequence
from functools import reduce
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hypergrid.continuous.engine.batch import PHYSICAL, Column, Elements, Integers, null_mask
from hypergrid.continuous.engine.patterns import match_like, match_regex, parse_regions
from hypergrid.continuous.engine.texts import Texts
from hypergrid.continuous.expressions import (
    NULL_CODE,
    NULL_INTEGER,
    Constant,
    Expression,
    Kind,
    Operation,
    Reference,
    null_of,
)
from hypergrid.core.errors import InvalidQuery
from hypergrid.core.geodesy import arc_m, places_m

Mask = NDArray[np.bool_]
Value = NDArray[Any]

COMPLEMENTS: Final = {
    "equal": "unequal",
    "unequal": "equal",
    "less": "greater_equal",
    "less_equal": "greater",
    "greater": "less_equal",
    "greater_equal": "less",
}
COMPARISONS: Final[dict[str, Callable[[Any, Any], Any]]] = {
    "equal": np.equal,
    # NaN is unequal to all, but NULL is not.
    "unequal": lambda a, b: (a < b) | (a > b),
    "less": np.less,
    "less_equal": np.less_equal,
    "greater": np.greater,
    "greater_equal": np.greater_equal,
}
ARITHMETIC: Final[dict[str, Callable[..., Any]]] = {
    "add": np.add,
    "subtract": np.subtract,
    "multiply": np.multiply,
    "negate": np.negative,
    "abs": np.abs,
}
"""Functions of which integers make integers, numbers numbers."""


def _is_wrapped(name: str, arguments: Sequence[Value], result: Value) -> Mask:
    """Return where integer arithmetic left 64 bits."""
    if len(arguments) < 2:
        # Only the least integer has no opposite, and that is NULL.
        return np.zeros(np.shape(result), bool)
    a, b = arguments
    if name == "add":
        return np.asarray(((a ^ result) & (b ^ result)) < 0)
    if name == "subtract":
        return np.asarray(((a ^ b) & (a ^ result)) < 0)
    # Numbers tell products that are far off; near the limits the quotient does.
    quotient = result // np.where(a == 0, 1, a)
    return np.asarray((np.abs(a.astype(np.float64) * b) > 2.0**64) | ((a != 0) & (quotient != b)))


def _power(a: Value, b: Value) -> Value:
    return np.where((a == 0) & (b < 0), np.nan, np.power(a, b))


_POWERS: Final = np.array([float(f"1e{exponent}") for exponent in range(309)])


def _round_digits(a: Value, size: Value) -> Value:
    """Return numbers to 12 significant digits, counted from the first digit of a number or of a size."""
    first = np.floor(np.log10(np.maximum(np.abs(a), np.abs(size))))
    decimals = np.where(np.isfinite(first), 11 - first, 0).astype(np.int64)
    # Products and quotients with powers of ten to 10^22, which are exact, make the number nearest to the digits.
    up, down = _POWERS[np.clip(decimals, 0, 308)], _POWERS[np.clip(-decimals, 0, 308)]
    rounded = np.rint(a * up / down) / up * down
    return np.where(np.isfinite(rounded), rounded, a)


def _distance_m(*at: Value) -> Value:
    lon, lat, other_lon, other_lat = np.broadcast_arrays(*at)
    return arc_m(np.linalg.norm(places_m(lon, lat) - places_m(other_lon, other_lat), axis=-1))


NUMERIC: Final[dict[str, Callable[..., Any]]] = {
    "divide": lambda a, b: np.where(b == 0, np.nan, a / b),
    "sqrt": np.sqrt,
    "exp": np.exp,
    "ln": lambda a: np.log(np.where(a > 0, a, np.nan)),
    "power": _power,
    "floor": np.floor,
    "ceil": np.ceil,
    "round": np.rint,
    "round_digits": _round_digits,
    "sin": np.sin,
    "cos": np.cos,
    "to_number": lambda a: a,
    "distance_m": _distance_m,
}
"""Functions of numbers that make numbers."""
LOGICAL: Final = frozenset(
    (*COMPLEMENTS, "and", "or", "not", "is_null", "in", "like", "regex", "inside"),
)


class ExpressionEvaluator:
    """Evaluation of expressions over elements, with the texts of an engine."""

    def __init__(self, texts: Texts) -> None:
        self.texts = texts

    def value(self, expression: Expression, elements: Elements) -> Column:
        """Return the values of an expression, shape (n,)."""
        if isinstance(expression, Reference):
            return elements.column(expression.position)
        with np.errstate(all="ignore"):
            value = self._value(expression, elements)
        if value.ndim == 0:
            value = np.full(len(elements), value)
        return np.ascontiguousarray(value, PHYSICAL[expression.kind])

    def truth(self, expression: Expression, elements: Elements) -> Mask:
        """Return where a boolean expression is true, shape (n,)."""
        with np.errstate(all="ignore"):
            mask = self._holds(expression, elements, of=True)
        return np.full(len(elements), mask) if mask.ndim == 0 else mask

    def _value(self, expression: Expression, elements: Elements) -> Value:
        if isinstance(expression, Reference):
            return elements.column(expression.position)
        if isinstance(expression, Constant):
            return self._constant(expression)
        if expression.name in LOGICAL:
            is_true = self._holds(expression, elements, of=True)
            is_false = self._holds(expression, elements, of=False)
            return np.where(is_true, np.int64(1), np.where(is_false, np.int64(0), np.int64(NULL_CODE)))
        if expression.name in ("case", "coalesce"):
            return self._choose(expression, elements)
        if expression.name in ("lower", "upper"):
            return self._letters(expression, elements)
        arguments = [self._value(part, elements) for part in expression.arguments]
        if expression.name in NUMERIC:
            return self._numeric(expression, arguments)
        if expression.name in ("least", "greatest"):
            return self._extreme(expression, arguments)
        if expression.kind == "number":
            numbers = self._numbers(expression.arguments, arguments)
            function = np.fmod if expression.name == "modulo" else ARITHMETIC[expression.name]
            return np.asarray(function(*numbers))
        return self._whole(expression, arguments)

    def _constant(self, constant: Constant) -> Value:
        if constant.value is None:
            return np.asarray(null_of(constant.kind), PHYSICAL[constant.kind])
        if constant.kind == "text":
            return np.asarray(self.texts.code(str(constant.value)), np.int64)
        return np.asarray(constant.value, PHYSICAL[constant.kind])

    def _numbers(self, parts: Sequence[Expression], values: Sequence[Value]) -> list[Value]:
        """Return values as numbers, contiguous: numpy has other loops for those that are not, with other last bits."""
        return [
            np.ascontiguousarray(value).reshape(value.shape)
            if part.kind == "number"
            else np.where(null_mask(value, part.kind), np.nan, value.astype(np.float64))
            for part, value in zip(parts, values, strict=True)
        ]

    def _numeric(self, expression: Operation, arguments: Sequence[Value]) -> Value:
        numbers = self._numbers(expression.arguments, arguments)
        result = np.asarray(NUMERIC[expression.name](*numbers))
        if expression.name == "power":
            # 1 to the NULL and NULL to the 0 are numbers for numpy.
            result = np.where(np.isnan(numbers[0]) | np.isnan(numbers[1]), np.nan, result)
        return result

    def _whole(self, expression: Operation, arguments: Sequence[Value]) -> Value:
        """Return a function of integers and times, NULL where an argument is or the result is beyond 64 bits."""
        is_null = self._any_null(expression.arguments, arguments)
        if expression.name == "modulo":
            is_null = is_null | (arguments[1] == 0)
            result = np.fmod(arguments[0], np.where(is_null, 1, arguments[1]))
        else:
            result = ARITHMETIC[expression.name](*arguments)
            is_null = is_null | _is_wrapped(expression.name, arguments, result)
        return np.where(is_null, np.int64(NULL_INTEGER), result)

    @staticmethod
    def _any_null(parts: Sequence[Expression], values: Sequence[Value]) -> Mask:
        masks = (null_mask(value, part.kind) for part, value in zip(parts, values, strict=True))
        return np.asarray(reduce(np.logical_or, masks))

    def _extreme(self, expression: Operation, arguments: Sequence[Value]) -> Value:
        if expression.kind == "number":
            numbers = self._numbers(expression.arguments, arguments)
            return np.asarray(reduce(np.minimum if expression.name == "least" else np.maximum, numbers))
        is_null = self._any_null(expression.arguments, arguments)
        result = arguments[0]
        for value in arguments[1:]:
            ours, theirs = result, value
            if expression.kind == "text":
                ours, theirs = self.texts.ranks()[ours], self.texts.ranks()[theirs]
            result = np.where(ours <= theirs if expression.name == "least" else ours >= theirs, result, value)
        return np.where(is_null, np.int64(null_of(expression.kind)), result)

    def _choose(self, expression: Operation, elements: Elements) -> Value:
        parts = list(expression.arguments)
        if expression.name == "coalesce":
            values = [self._as(expression.kind, part, elements) for part in parts]
            masks = [~null_mask(value, expression.kind) for value in values]
            rest: Value = np.asarray(null_of(expression.kind), PHYSICAL[expression.kind])
        else:
            values = [self._as(expression.kind, part, elements) for part in parts[1::2]]
            masks = [self._holds(part, elements, of=True) for part in parts[: len(parts) // 2 * 2 : 2]]
            has_rest = len(parts) % 2 == 1
            rest = (
                self._as(expression.kind, parts[-1], elements)
                if has_rest
                else np.asarray(null_of(expression.kind), PHYSICAL[expression.kind])
            )
        for mask, value in zip(reversed(masks), reversed(values), strict=True):
            rest = np.where(mask, value, rest)
        return rest

    def _as(self, kind: Kind, part: Expression, elements: Elements) -> Value:
        """Return the values of an expression in a kind to which it converts."""
        if isinstance(part, Constant) and part.value is None:
            return np.asarray(null_of(kind), PHYSICAL[kind])
        value = self._value(part, elements)
        return self._numbers([part], [value])[0] if kind == "number" and part.kind != "number" else value

    def _letters(self, expression: Operation, elements: Elements) -> Value:
        codes = self._value(expression.arguments[0], elements)
        change = str.lower if expression.name == "lower" else str.upper
        table = self.texts.derive(
            expression.name, lambda texts: self.texts.encode([change(text) for text in texts]), NULL_CODE
        )
        return np.asarray(table[codes])

    def _holds(self, expression: Expression, elements: Elements, *, of: bool) -> Mask:
        """Return where a boolean expression is true, or false."""
        if not isinstance(expression, Operation) or expression.name not in LOGICAL:
            return np.asarray(self._value(expression, elements) == int(of))
        name, parts = expression.name, expression.arguments
        if name == "not":
            return self._holds(parts[0], elements, of=not of)
        if name in ("and", "or"):
            masks = (self._holds(part, elements, of=of) for part in parts)
            return np.asarray(reduce(np.logical_and if (name == "and") == of else np.logical_or, masks))
        if name == "is_null":
            is_null = null_mask(self._value(parts[0], elements), parts[0].kind)
            return is_null if of else ~is_null
        if name == "in":
            return self._in(expression, elements, of=of)
        if name in ("like", "regex"):
            return np.asarray(self._match(expression, elements) == int(of))
        if name == "inside":
            return np.asarray(self._inside(expression, elements) == int(of))
        values = [self._value(part, elements) for part in parts]
        return self._compare(name if of else COMPLEMENTS[name], parts, values)

    def _compare(self, name: str, parts: Sequence[Expression], values: Sequence[Value]) -> Mask:
        a, b = values
        kinds = parts[0].kind, parts[1].kind
        if "number" in kinds:
            if kinds[0] != kinds[1]:
                a, b = self._numbers(parts, values)
            return np.asarray(COMPARISONS[name](a, b))
        if kinds == ("text", "text") and name not in ("equal", "unequal"):
            ranks = self.texts.ranks()
            a, b = ranks[a], ranks[b]
        is_there = ~self._any_null(parts, values)
        return np.asarray(COMPARISONS[name](a, b) & is_there)

    def _in(self, expression: Operation, elements: Elements, *, of: bool) -> Mask:
        asked, *rest = expression.arguments
        value = self._value(asked, elements)
        constants = [part for part in rest if not (isinstance(part, Constant) and part.value is None)]
        is_equal = np.zeros(value.shape, bool)
        for part in constants:
            is_equal = is_equal | self._compare("equal", (asked, part), (value, self._value(part, elements)))
        if of:
            return is_equal
        if len(constants) < len(rest):
            return np.zeros(value.shape, bool)
        return ~is_equal & ~null_mask(value, asked.kind)

    def _match(self, expression: Operation, elements: Elements) -> Integers:
        codes = self._value(expression.arguments[0], elements)
        pattern = expression.arguments[1]
        if not isinstance(pattern, Constant):
            raise InvalidQuery(f"{expression.name} needs a constant pattern")
        if pattern.value is None:
            return np.full(codes.shape, NULL_CODE)
        match = match_like if expression.name == "like" else match_regex
        table = self.texts.derive(
            (expression.name, pattern.value), lambda texts: match(texts, str(pattern.value)), NULL_CODE
        )
        return np.asarray(table[codes])

    def _inside(self, expression: Operation, elements: Elements) -> Integers:
        x, y, codes = np.broadcast_arrays(*(self._value(part, elements) for part in expression.arguments))
        x, y = self._numbers(expression.arguments[:2], (x, y))
        regions = self.texts.derive("region", parse_regions, None)
        inside = np.full(x.shape, NULL_CODE, np.int64)
        for code in np.unique(codes):
            region = regions[code]
            if region is not None:
                chosen = (codes == code) & ~np.isnan(x) & ~np.isnan(y)
                inside[chosen] = region.holds(x[chosen], y[chosen])
        return inside
