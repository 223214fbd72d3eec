"""Scalar expressions over batches: one vectorised pass for each function, with NULL and three-valued logic.

A boolean is computed as two masks, where it is true and where it is false, so that a filter needs one of them only. A
value depends on its row alone, to the bit: rows are removed in other batches than those in which they were added.
"""

from collections.abc import Callable, Sequence
from functools import reduce
from operator import methodcaller
from typing import Any, Final, TypeAlias

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
Evaluate: TypeAlias = Callable[[Elements], Value]
"""Function of elements that gives the value of an expression for each, or one for all; of a condition, a mask."""

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
    # 1 to the NULL and NULL to the 0 are numbers for numpy.
    return np.where(np.isnan(a) | np.isnan(b) | ((a == 0) & (b < 0)), np.nan, np.power(a, b))


_POWERS: Final = np.array([float(f"1e{exponent}") for exponent in range(309)])


def _round(a: Value, decimals: Value | None = None) -> Value:
    """Return numbers rounded to whole ones or to decimals, which are negative in front of the point."""
    if decimals is None:
        return np.rint(a)
    whole = decimals.astype(np.int64)
    # Products and quotients with powers of ten to 10^22, which are exact, make the number nearest to the digits.
    up, down = _POWERS[np.clip(whole, 0, 308)], _POWERS[np.clip(-whole, 0, 308)]
    rounded = np.rint(a * up / down) / up * down
    return np.where(np.isfinite(rounded), rounded, a)


def _round_digits(a: Value, size: Value) -> Value:
    """Return numbers to 12 significant digits, counted from the first digit of a number or of a size."""
    first = np.floor(np.log10(np.maximum(np.abs(a), np.abs(size))))
    return _round(a, np.where(np.isfinite(first), 11 - first, 0))


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
    "round": _round,
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
    """Evaluation of expressions over elements, with the texts of an engine.

    An expression is prepared once, when a plan is made: it becomes a function of elements, in which constants are known
    and functions chosen.
    """

    def __init__(self, texts: Texts) -> None:
        self.texts = texts

    def prepare_value(self, expression: Expression) -> Evaluate:
        """Return a function that gives the values of an expression, shape (n,)."""
        evaluate = _quieten(expression, self._value(expression))
        if isinstance(expression, Reference):
            return evaluate
        dtype = PHYSICAL[expression.kind]

        def give_column(elements: Elements) -> Column:
            value = evaluate(elements)
            if value.ndim == 0:
                value = np.full(len(elements), value)
            return np.ascontiguousarray(value, dtype)

        return give_column

    def prepare_truth(self, expression: Expression) -> Evaluate:
        """Return a function that gives where a boolean expression is true, shape (n,)."""
        evaluate = _quieten(expression, self._holds(expression, of=True))

        def give_mask(elements: Elements) -> Mask:
            mask = evaluate(elements)
            return np.full(len(elements), mask) if mask.ndim == 0 else mask

        return give_mask

    def prepare_all(self, *conditions: Expression | None) -> Evaluate | None:
        """Return a function that gives where all conditions are true, shape (n,); None without any."""
        given = tuple(condition for condition in conditions if condition is not None)
        if len(given) < 2:
            return self.prepare_truth(given[0]) if given else None
        return self.prepare_truth(Operation("and", given, "boolean"))

    def _value(self, expression: Expression) -> Evaluate:
        if isinstance(expression, Reference):
            return methodcaller("column", expression.position)
        if isinstance(expression, Constant):
            return _always(self._constant(expression))
        if expression.name in LOGICAL:
            return self._codes(expression)
        if expression.name == "case":
            return self._case(expression)
        if expression.name == "coalesce":
            return self._coalesce(expression)
        if expression.name in ("lower", "upper"):
            return self._letters(expression)
        if expression.name in NUMERIC:
            return _apply(NUMERIC[expression.name], [*map(self._number, expression.arguments)])
        if expression.name in ("least", "greatest"):
            return self._extreme(expression)
        if expression.kind == "number":
            function = np.fmod if expression.name == "modulo" else ARITHMETIC[expression.name]
            return _apply(function, [*map(self._number, expression.arguments)])
        return self._whole(expression)

    def _constant(self, constant: Constant) -> Value:
        if constant.value is None:
            return np.asarray(null_of(constant.kind), PHYSICAL[constant.kind])
        if constant.kind == "text":
            return np.asarray(self.texts.code(str(constant.value)), np.int64)
        return np.asarray(constant.value, PHYSICAL[constant.kind])

    def _number(self, part: Expression) -> Evaluate:
        """Prepare an expression whose values are taken as numbers."""
        evaluate, kind = self._value(part), part.kind
        return lambda elements: _as_numbers(evaluate(elements), kind)

    def _as(self, kind: Kind, part: Expression) -> Evaluate:
        """Prepare an expression whose values are taken in a kind to which it converts."""
        if isinstance(part, Constant) and part.value is None:
            return _always(np.asarray(null_of(kind), PHYSICAL[kind]))
        return self._number(part) if kind == "number" else self._value(part)

    def _codes(self, expression: Operation) -> Evaluate:
        """Prepare the codes of a boolean expression."""
        is_true, is_false = (self._holds(expression, of=of) for of in (True, False))
        true, false, null = np.int64(1), np.int64(0), np.int64(NULL_CODE)
        return lambda elements: np.where(is_true(elements), true, np.where(is_false(elements), false, null))

    def _whole(self, expression: Operation) -> Evaluate:
        """Prepare a function of integers and times, NULL where an argument is or the result is beyond 64 bits."""
        name, parts = expression.name, expression.arguments
        arguments = [*map(self._value, parts)]

        def compute(elements: Elements) -> Value:
            values = [argument(elements) for argument in arguments]
            is_null = _any_null(parts, values)
            if name == "modulo":
                is_null = is_null | (values[1] == 0)
                result = np.fmod(values[0], np.where(is_null, 1, values[1]))
            else:
                result = ARITHMETIC[name](*values)
                is_null = is_null | _is_wrapped(name, values, result)
            return np.where(is_null, np.int64(NULL_INTEGER), result)

        return compute

    def _extreme(self, expression: Operation) -> Evaluate:
        parts, kind, is_least = expression.arguments, expression.kind, expression.name == "least"
        if kind == "number":
            return _reduce(np.minimum if is_least else np.maximum, [*map(self._number, parts)])
        arguments, null = [*map(self._value, parts)], np.int64(null_of(kind))

        def choose(elements: Elements) -> Value:
            values = [argument(elements) for argument in arguments]
            result = values[0]
            for value in values[1:]:
                ours, theirs = result, value
                if kind == "text":
                    ours, theirs = self.texts.ranks()[ours], self.texts.ranks()[theirs]
                result = np.where(ours <= theirs if is_least else ours >= theirs, result, value)
            return np.where(_any_null(parts, values), null, result)

        return choose

    def _coalesce(self, expression: Operation) -> Evaluate:
        kind, values = expression.kind, [self._as(expression.kind, part) for part in expression.arguments]
        null = np.asarray(null_of(kind), PHYSICAL[kind])

        def choose(elements: Elements) -> Value:
            result = null
            for evaluate in reversed(values):
                value = evaluate(elements)
                result = np.where(null_mask(value, kind), result, value)
            return result

        return choose

    def _case(self, expression: Operation) -> Evaluate:
        kind, parts = expression.kind, list(expression.arguments)
        rest = self._as(kind, parts.pop() if len(parts) % 2 else Constant(None, kind))
        conditions = [self._holds(part, of=True) for part in parts[::2]]
        values = [self._as(kind, part) for part in parts[1::2]]

        def choose(elements: Elements) -> Value:
            result = rest(elements)
            for condition, value in zip(reversed(conditions), reversed(values), strict=True):
                result = np.where(condition(elements), value(elements), result)
            return result

        return choose

    def _letters(self, expression: Operation) -> Evaluate:
        name, codes = expression.name, self._value(expression.arguments[0])
        change = str.lower if name == "lower" else str.upper

        def encode(texts: list[str]) -> Integers:
            return self.texts.encode([change(text) for text in texts])

        return self._look_up(codes, name, encode)

    def _holds(self, expression: Expression, *, of: bool) -> Evaluate:
        """Prepare a mask of where a boolean expression is true, or false."""
        if not isinstance(expression, Operation) or expression.name not in LOGICAL:
            return _equals(self._value(expression), int(of))
        name, parts = expression.name, expression.arguments
        if name == "not":
            return self._holds(parts[0], of=not of)
        if name in ("and", "or"):
            function = np.logical_and if (name == "and") == of else np.logical_or
            return _reduce(function, [self._holds(part, of=of) for part in parts])
        if name == "is_null":
            value, kind = self._value(parts[0]), parts[0].kind
            if of:
                return lambda elements: null_mask(value(elements), kind)
            return lambda elements: ~null_mask(value(elements), kind)
        if name == "in":
            return self._in(expression, of=of)
        if name in ("like", "regex"):
            return _equals(self._match(expression), int(of))
        if name == "inside":
            return _equals(self._inside(expression), int(of))
        return self._compare(name if of else COMPLEMENTS[name], parts)

    def _compare(self, name: str, parts: Sequence[Expression]) -> Evaluate:
        a, b = parts
        return _apply(self._comparison(name, (a.kind, b.kind)), [self._value(a), self._value(b)])

    def _comparison(self, name: str, kinds: tuple[Kind, Kind]) -> Callable[[Value, Value], Mask]:
        """Return a comparison of values of two kinds."""
        function = COMPARISONS[name]
        if kinds == ("number", "number"):
            return function
        if "number" in kinds:
            return lambda a, b: function(_as_numbers(a, kinds[0]), _as_numbers(b, kinds[1]))
        is_ranked = kinds == ("text", "text") and name not in ("equal", "unequal")

        def compare(a: Value, b: Value) -> Mask:
            is_known = ~(null_mask(a, kinds[0]) | null_mask(b, kinds[1]))
            if is_ranked:
                a, b = self.texts.ranks()[a], self.texts.ranks()[b]
            return np.asarray(function(a, b) & is_known)

        return compare

    def _in(self, expression: Operation, *, of: bool) -> Evaluate:
        sought, *rest = expression.arguments
        value = self._value(sought)
        known = [part for part in rest if not (isinstance(part, Constant) and part.value is None)]
        comparisons = [(self._comparison("equal", (sought.kind, part.kind)), self._value(part)) for part in known]
        has_null = len(known) < len(rest)

        def search(elements: Elements) -> Mask:
            values = value(elements)
            is_equal = np.zeros(values.shape, bool)
            if not of and has_null:
                return is_equal
            for compare, part in comparisons:
                is_equal = is_equal | compare(values, part(elements))
            return is_equal if of else ~is_equal & ~null_mask(values, sought.kind)

        return search

    def _match(self, expression: Operation) -> Evaluate:
        """Prepare the codes of whether texts match a pattern."""
        name, codes, pattern = expression.name, self._value(expression.arguments[0]), expression.arguments[1]
        if not isinstance(pattern, Constant):
            raise InvalidQuery(f"{name} needs a constant pattern")
        if pattern.value is None:
            return lambda elements: np.full(np.shape(codes(elements)), NULL_CODE)
        match, text = match_like if name == "like" else match_regex, str(pattern.value)

        def match_texts(texts: list[str]) -> Integers:
            return match(texts, text)

        return self._look_up(codes, (name, text), match_texts)

    def _look_up(self, codes: Evaluate, key: object, compute: Callable[[list[str]], Integers]) -> Evaluate:
        """Prepare what is computed once of each text (`Texts.derive`)."""

        def look_up(elements: Elements) -> Integers:
            # They come first: they may be those of texts that are made on the way.
            known = codes(elements)
            return np.asarray(self.texts.derive(key, compute, NULL_CODE)[known])

        return look_up

    def _inside(self, expression: Operation) -> Evaluate:
        """Prepare the codes of whether points are inside regions."""
        arguments = [*map(self._number, expression.arguments[:2]), self._value(expression.arguments[2])]

        def locate(elements: Elements) -> Integers:
            x, y, codes = np.broadcast_arrays(*(argument(elements) for argument in arguments))
            regions = self.texts.derive("region", parse_regions, None)
            inside = np.full(x.shape, NULL_CODE, np.int64)
            for code in np.unique(codes):
                region = regions[code]
                if region is not None:
                    chosen = (codes == code) & ~np.isnan(x) & ~np.isnan(y)
                    inside[chosen] = region.holds(x[chosen], y[chosen])
            return inside

        return locate


def _always(value: Value) -> Evaluate:
    return lambda elements: value


def _equals(evaluate: Evaluate, code: int) -> Evaluate:
    return lambda elements: evaluate(elements) == code


def _apply(function: Callable[..., Any], arguments: Sequence[Evaluate]) -> Evaluate:
    """Return a function of the values of expressions."""
    if len(arguments) == 2:
        # The common case, without unpacking: it counts for small batches.
        a, b = arguments
        return lambda elements: function(a(elements), b(elements))
    return lambda elements: function(*(argument(elements) for argument in arguments))


def _reduce(function: Callable[[Any, Any], Any], arguments: Sequence[Evaluate]) -> Evaluate:
    """Return a function of two values applied from the first expression to the last."""
    first, *others = arguments

    def reduce_all(elements: Elements) -> Value:
        result = first(elements)
        for argument in others:
            result = function(result, argument(elements))
        return result

    return reduce_all


def _computes(expression: Expression) -> bool:
    """Return whether an expression has functions of which numpy may warn."""
    if not isinstance(expression, Operation):
        return False
    return expression.name not in LOGICAL - {"inside"} or any(map(_computes, expression.arguments))


def _quieten(expression: Expression, evaluate: Evaluate) -> Evaluate:
    """Return a function without warnings of numpy: what cannot be computed is NULL."""
    if not _computes(expression):
        return evaluate

    def evaluate_quietly(elements: Elements) -> Value:
        with np.errstate(all="ignore"):
            return evaluate(elements)

    return evaluate_quietly


def _as_numbers(value: Value, kind: Kind) -> Value:
    """Return values as numbers, contiguous: numpy has other loops for those that are not, with other last bits."""
    if kind != "number":
        return np.where(null_mask(value, kind), np.nan, value.astype(np.float64))
    return value if value.flags.c_contiguous else np.ascontiguousarray(value)


def _any_null(parts: Sequence[Expression], values: Sequence[Value]) -> Mask:
    masks = (null_mask(value, part.kind) for part, value in zip(parts, values, strict=True))
    return np.asarray(reduce(np.logical_or, masks))
