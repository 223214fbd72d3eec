"""Scalar expressions of continuous queries: bound to the columns of their input, with types and units.

A value is one of five kinds. Each is held in 64 bits, and one value of its kind stands for NULL:

======== ============== =================================== =====================
kind     numpy          value                               NULL
======== ============== =================================== =====================
number   float64        in the unit of its attribute        NaN
integer  int64          itself                              ``NULL_INTEGER``
time     int64          nanoseconds since 1970-01-01 UTC    ``NULL_INTEGER``
text     int64          code in the texts of the engine     ``NULL_CODE``
boolean  int64          0 or 1; NULL is SQL's unknown       ``NULL_CODE``
======== ============== =================================== =====================

Logic has three values: a comparison with NULL is NULL, and a filter keeps a row only if its predicate is true.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

Kind: TypeAlias = Literal["number", "integer", "time", "text", "boolean"]

NULL_INTEGER: Final = -(2**63)
"""NULL of integers and times, as `NaT` in numpy."""
GREATEST_INTEGER: Final = 2**63 - 1
"""Heartbeat past all instants, which are below it."""
NULL_CODE: Final = -1
"""NULL of texts (codes from 0) and booleans."""


def null_of(kind: Kind) -> float | int:
    """Return what stands for NULL in a kind."""
    if kind == "number":
        return math.nan
    return NULL_INTEGER if kind in ("integer", "time") else NULL_CODE


@dataclass(frozen=True)
class Attribute:
    """Column of a stream or relation."""

    name: str
    kind: Kind
    unit: str | None = None
    """Unit of a number, None if it has none."""


Attributes: TypeAlias = tuple[Attribute, ...]


@dataclass(frozen=True)
class Reference:
    """Value of the input row at a position, from 0."""

    position: int
    attribute: Attribute

    @property
    def kind(self) -> Kind:
        return self.attribute.kind

    @property
    def unit(self) -> str | None:
        return self.attribute.unit


@dataclass(frozen=True)
class Constant:
    """Value written in the query, already in the unit of its counterpart, and NULL if None."""

    value: float | int | str | bool | None
    kind: Kind
    unit: str | None = None


@dataclass(frozen=True)
class Operation:
    """Scalar function of other expressions; `OPERATIONS` lists the names."""

    name: str
    arguments: tuple["Expression", ...]
    kind: Kind
    unit: str | None = None


Expression: TypeAlias = Reference | Constant | Operation

OPERATIONS: Final[dict[str, str]] = {
    "add": "a + b",
    "subtract": "a - b",
    "multiply": "a * b",
    "divide": "a / b as a number; NULL if b is 0",
    "modulo": "remainder with the sign of a; NULL if b is 0",
    "negate": "-a",
    "equal": "a = b",
    "unequal": "a <> b",
    "less": "a < b; texts by code point",
    "less_equal": "a <= b",
    "greater": "a > b",
    "greater_equal": "a >= b",
    "and": "three-valued, any number of arguments",
    "or": "three-valued, any number of arguments",
    "not": "three-valued",
    "is_null": "1 if a is NULL, otherwise 0",
    "in": "whether a equals one of the constants that follow; NULL if none is equal and a or one of them is NULL",
    "like": "whether text a matches the constant pattern b, in which % is any text and _ any character",
    "regex": "whether the constant regular expression b matches somewhere in text a",
    "case": "condition, value, condition, value, ..., value of the rest: the value of the first true condition",
    "coalesce": "the first argument that is not NULL",
    "abs": "absolute value",
    "sqrt": "square root; NULL below 0",
    "exp": "exponential",
    "ln": "natural logarithm; NULL at 0 and below",
    "power": "a to the b; NULL where undefined",
    "floor": "greatest whole number up to a, as a number",
    "ceil": "least whole number from a, as a number",
    "round": "nearest whole number, or that of a * 10^b over 10^b, b constant; halves to even; as a number",
    "round_digits": "a to 12 significant digits, counted from the first of a or of b, if |b| is greater",
    "sin": "sine of a in radians",
    "cos": "cosine of a in radians",
    "least": "least of the arguments; NULL if one is NULL",
    "greatest": "greatest of the arguments; NULL if one is NULL",
    "to_number": "an integer, time or boolean as a number",
    "lower": "text in lower case",
    "upper": "text in upper case",
    "distance_m": "great-circle distance [m] of two points, given by longitude and latitude [deg]: lon, lat, lon, lat",
    "inside": "whether point x, y lies inside the polygon of the text (WKT)",
}
"""Scalar functions by name, with their meaning. A function is NULL where an argument is, unless it says otherwise."""


def walk(expression: Expression) -> Iterator[Expression]:
    """Yield the expression and all that it consists of, from the outside in."""
    yield expression
    if isinstance(expression, Operation):
        for argument in expression.arguments:
            yield from walk(argument)


def positions(expression: Expression) -> frozenset[int]:
    """Return the positions of the input row that an expression reads."""
    return frozenset(part.position for part in walk(expression) if isinstance(part, Reference))
