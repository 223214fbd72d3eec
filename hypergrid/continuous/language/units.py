"""Types and units of scalar expressions: which values go together, and what converts them."""

from dataclasses import replace
from typing import Final

from hypergrid.continuous.expressions import Constant, Expression, Operation
from hypergrid.continuous.language.errors import Refusal, Span
from hypergrid.core.errors import InvalidTime, InvalidUnit
from hypergrid.core.times import parse_duration, parse_instant
from hypergrid.core.units import DIMENSIONLESS_TEXT, convert, difference_of, is_offset, parse_number

NUMERIC: Final = ("number", "integer")


def describe(expression: Expression) -> str:
    """Describe the type of an expression for messages."""
    return expression.kind + (f" [{expression.unit}]" if expression.unit else "")


def is_null(expression: Expression) -> bool:
    """Return whether an expression is the word Null."""
    return isinstance(expression, Constant) and expression.value is None


def to_number(expression: Expression) -> Expression:
    """Return an expression as a number."""
    if expression.kind == "number":
        return expression
    if isinstance(expression, Constant):
        value = expression.value
        return Constant(None if value is None else float(value), "number", expression.unit)
    return Operation("to_number", (expression,), "number", expression.unit)


def to_unit(expression: Expression, unit: str | None, span: Span | None) -> Expression:
    """Return a number in another unit, rounded to 12 digits; one without a unit is taken as it is.

    Values that are equal by their digits are equal after conversion: 50 degF are 10 degC.

    Raises
    ------
    Refusal
        Its unit does not convert.
    """
    if unit is None or expression.unit is None or expression.unit == unit:
        return expression
    try:
        offset, factor = _find_conversion(expression.unit, unit)
        if isinstance(expression, Constant):
            value = expression.value
            converted = None if value is None else _round(float(convert(float(value), expression.unit, unit)), 12)
            return Constant(converted, "number", unit)
    except InvalidUnit as error:
        raise Refusal(span, str(error)) from error
    number = to_number(expression)
    if factor != 1:
        number = Operation("multiply", (number, Constant(factor, "number")), "number", unit)
    if offset != 0:
        number = Operation("add", (number, Constant(offset, "number", unit)), "number", unit)
    if factor == 1 and offset == 0:
        return replace(number, unit=unit) if isinstance(number, Operation) else number
    return Operation("round_digits", (number, Constant(abs(offset), "number", unit)), "number", unit)


def _find_conversion(source: str, target: str) -> tuple[float, float]:
    """Return what a conversion adds, and the factor before it."""
    noisy = float(convert(0.0, source, target))
    if noisy == 0:
        return 0.0, _round(float(convert(1.0, source, target)), 15)
    # The difference of two converted temperatures would carry the noise of their offset.
    factor = _round(float(convert(1.0, difference_of(source), difference_of(target))), 15)
    offset = _round(noisy, 12)
    if abs(offset - noisy) > 1e-13 * abs(noisy):
        # As 32 degF are 0 degC, 0 degF are a periodic fraction.
        offset = _round(-_round(float(convert(0.0, target, source)), 12) * factor, 15)
    return offset, factor


def _round(number: float, digits: int) -> float:
    return float(f"{number:.{digits}g}")


def _read_text(text: Constant, other: Expression, span: Span | None) -> Expression:
    """Read a quoted value as what it is compared to or combined with."""
    if other.kind in NUMERIC:
        return _read_quantity(str(text.value), other, span)
    if other.kind == "time":
        try:
            return Constant(parse_instant(str(text.value)), "time")
        except InvalidTime as error:
            raise Refusal(span, str(error)) from error
    raise Refusal(span, f"a text cannot be compared with a {other.kind}")


def _read_quantity(text: str, other: Expression, span: Span | None) -> Expression:
    if other.unit is None:
        raise Refusal(
            span,
            f"{text!r} is quoted, but what it is compared or combined with is {_with_article(other)} without unit; "
            "write a number alone",
        )  # fmt: skip
    try:
        value = parse_number(text, other.unit, label="the quoted value")
    except InvalidUnit as error:
        raise Refusal(span, str(error)) from error
    # Conversion leaves noise in the last digits: 50 degF would be 10.000000000000057 degC, which 10 does not reach.
    return Constant(_round(value, 12), "number", other.unit)


def _with_article(expression: Expression) -> str:
    return f"{'an' if expression.kind == 'integer' else 'a'} {expression.kind}"


def match(parts: tuple[Expression, ...], spans: tuple[Span | None, ...]) -> tuple[Expression, ...]:
    """Return expressions that can be compared: of one kind, and of the unit of the first that has one.

    Raises
    ------
    Refusal
        They cannot.
    """
    sample = next((part for part in parts if not is_null(part) and not _is_quoted(part)), None)
    sample = sample or next((part for part in parts if not is_null(part)), parts[0])
    matched: list[Expression] = []
    for part, span in zip(parts, spans, strict=True):
        if is_null(part):
            matched.append(Constant(None, sample.kind, sample.unit))
        elif _is_quoted(part) and sample.kind != "text":
            matched.append(_read_text(part, sample, span))  # type: ignore[arg-type]
        elif part.kind == sample.kind or (part.kind in NUMERIC and sample.kind in NUMERIC):
            matched.append(part)
        else:
            raise Refusal(span, _mismatch(part, sample))
    if sample.kind in NUMERIC:
        if any(part.kind == "number" for part in matched):
            matched = [to_number(part) for part in matched]
        unit = next((part.unit for part in matched if part.unit), None)
        matched = [to_unit(part, unit, span) for part, span in zip(matched, spans, strict=True)]
    return tuple(matched)


def _is_quoted(part: Expression) -> bool:
    return isinstance(part, Constant) and part.kind == "text" and part.value is not None


def _mismatch(part: Expression, sample: Expression) -> str:
    problem = f"{_with_article(part)} cannot be compared with {_with_article(sample)}"
    if isinstance(part, Constant) and sample.kind == "text":
        return f"{problem}; write texts in quotes: '{part.value}'"
    if isinstance(part, Constant) and sample.kind == "time":
        return f"{problem}; write an instant in quotes: '2007-10-01T12:00'"
    return problem


def add(name: str, left: Expression, right: Expression, spans: tuple[Span | None, Span | None]) -> Expression:
    """Return a sum or difference (`name` is "add" or "subtract").

    Two times differ by a number of seconds; a time and a quoted duration ('2 h') give a time. Temperatures differ by a
    difference of temperatures.
    """
    if left.kind == "time" or right.kind == "time":
        return _shift_time(name, left, right, spans)
    left, right = match((left, right), spans) if _is_quoted(left) or _is_quoted(right) else (left, right)
    for part, span in zip((left, right), spans, strict=True):
        require_number(part, span)
    unit = left.unit or right.unit
    if left.unit and right.unit:
        unit, right = _combine_units(name, left, right, spans[1])
    if "number" in (left.kind, right.kind):
        left, right = to_number(left), to_number(right)
    return Operation(name, (left, right), left.kind, unit)


def _combine_units(name: str, left: Expression, right: Expression, span: Span | None) -> tuple[str, Expression]:
    unit = str(left.unit)
    if left.unit == right.unit and (unit in DIMENSIONLESS_TEXT or not _is_temperature(unit)):
        return unit, right
    if _is_temperature(unit) and not _is_temperature(str(right.unit)):
        # A temperature and a difference.
        return unit, to_unit(right, difference_of(unit), span)
    if _is_temperature(str(right.unit)) and unit.startswith("delta_"):
        return str(right.unit), right
    right = to_unit(right, unit, span)
    return difference_of(unit) if name == "subtract" else unit, right


def _is_temperature(unit: str) -> bool:
    return unit not in ("m", "s", "%", "mm") and is_offset(unit)


def _shift_time(name: str, left: Expression, right: Expression, spans: tuple[Span | None, Span | None]) -> Expression:
    if left.kind == "time" and right.kind == "time":
        if name == "add":
            raise Refusal(spans[1], "two times cannot be added")
        return _as_seconds(Operation("subtract", (left, right), "integer"))
    if right.kind == "time":
        if name == "subtract":
            raise Refusal(spans[0], "a time cannot be taken from a duration")
        left, right, spans = right, left, (spans[1], spans[0])
    if not _is_quoted(right):
        raise Refusal(spans[1], f"a time needs a duration in quotes, such as '10 minutes'; got {_with_article(right)}")
    try:
        length = parse_duration(str(right.value))  # type: ignore[union-attr]
    except InvalidTime:
        # A quoted instant beside a time.
        if name == "add":
            raise Refusal(spans[1], "a time needs a duration in quotes, such as '10 minutes'") from None
        return _as_seconds(Operation("subtract", (left, _read_text(right, left, spans[1])), "integer"))  # type: ignore[arg-type]
    return Operation(name, (left, Constant(length, "integer")), "time")


def _as_seconds(nanoseconds: Expression) -> Expression:
    return Operation("multiply", (to_number(nanoseconds), Constant(1e-9, "number", "s")), "number", "s")


def multiply(name: str, left: Expression, right: Expression, spans: tuple[Span | None, Span | None]) -> Expression:
    """Return a product, quotient or remainder; it keeps a unit only beside a whole number, which counts.

    Any other factor may carry a unit itself, such as a rate, so the result has none.
    """
    for part, span in zip((left, right), spans, strict=True):
        require_number(part, span)
    unit = None
    if right.kind == "integer" and right.unit is None:
        unit = left.unit
    elif left.kind == "integer" and left.unit is None and name == "multiply":
        unit = right.unit
    elif name == "modulo":
        left, right = match((left, right), spans)
        unit = left.unit
    if name == "divide" or "number" in (left.kind, right.kind):
        left, right = to_number(left), to_number(right)
    return Operation(name, (left, right), left.kind, unit)


def require_number(part: Expression, span: Span | None) -> None:
    """Raise a refusal unless an expression is a number or an integer."""
    if part.kind not in NUMERIC:
        quoted = "; write a number without quotes" if _is_quoted(part) else ""
        raise Refusal(span, f"a number is needed; got a {part.kind}{quoted}")
