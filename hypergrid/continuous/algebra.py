"""Algebra of continuous queries: a tree of operators over streams and relations.

A stream is a bag of rows with their instants; a relation is a bag of rows at each instant (Babu 2005, section 2.1.1).
Windows make relations of streams, the operators of SQL relations of relations, and `ToStream` makes streams. The
language builds these trees, rules rewrite them, the engine and the oracle of the tests evaluate them: what a tree means
is said here and nowhere else.

Time is in whole nanoseconds. Elements of one instant are ordered by (arrival, series, number); a relation is taken
after all of them, so it has one state at each instant. Rows of relations that never change, and the row of an aggregate
without keys, are there before the first instant (``NULL_INTEGER``): streams of changes do not show them entering.

Rows have an order where it matters (``first``, ``last``, windows of rows): those of streams by their stamps and then as
elements; a combination of rows has the greatest stamp of its parts, and of equal stamps their order from left to right;
of the union of two streams the left comes first at an instant. `properties.is_ordered` says where it is defined.
"""

from collections.abc import Iterator
from dataclasses import dataclass, fields
from functools import cached_property
from typing import Literal, TypeAlias

from hypergrid.continuous.expressions import Attribute, Attributes, Expression, Kind

StreamOf: TypeAlias = Literal["istream", "dstream", "rstream"]


@dataclass(frozen=True)
class StreamInput:
    """Named stream; each row has an instant, which is not an attribute."""

    name: str
    attributes: Attributes

    is_stream = True


@dataclass(frozen=True)
class RelationInput:
    """Named relation, whose rows are added and removed at instants."""

    name: str
    attributes: Attributes

    is_stream = False


@dataclass(frozen=True)
class SampleOf:
    """Rows of a stream kept with a probability: those whose hash is below `share`, equally in each run (R7).

    The hash is of the seed, the stamp and the row: equal rows of one instant are kept together. In uint64, with `mix`
    the finaliser of splitmix64 after adding its constant: ``h = mix(seed)``, ``h = mix(h ^ mix(tau))``, then
    ``h = mix(h ^ bits)`` for each attribute; kept if ``(h >> 11) * 2**-53 < share``. Bits are those of the value's 64
    (0.0 for -0.0, 0x7FF8000000000000 for a NULL number), and of a text the BLAKE2b digest of 8 bytes, little-endian.
    """

    input: "Operator"
    share: float
    """Probability in (0, 1]."""
    seed: int

    is_stream = True

    @property
    def attributes(self) -> Attributes:
        return self.input.attributes


@dataclass(frozen=True)
class WindowOf:
    """Relation of the recent rows of a stream.

    At instant t it holds, of the rows with stamps up to t for which `where` is true:

    ========= ==============================================================================================
    rows      the last `rows`; with `partition` the last `rows` of each group of equal values
    range     those with stamps in (t - range_ns, t] (R1); with `slide_ns` the same at floor(t / slide) * slide
    now       those with stamp t
    unbounded all
    ========= ==============================================================================================

    NULL is a group of its own in `partition`.
    """

    input: "Operator"
    form: Literal["rows", "range", "now", "unbounded"]
    rows: int = 0
    range_ns: int = 0
    slide_ns: int = 0
    """Period at which a range window changes; 0 if it changes with each row."""
    partition: tuple[int, ...] = ()
    """Positions of the attributes by which a rows window is split."""
    where: Expression | None = None
    """Predicate applied before the window's limit, unlike a filter above it."""

    is_stream = False

    @property
    def attributes(self) -> Attributes:
        return self.input.attributes


@dataclass(frozen=True)
class FilterOf:
    """Rows for which a predicate is true; of a stream or a relation."""

    input: "Operator"
    predicate: Expression

    @property
    def is_stream(self) -> bool:
        return self.input.is_stream

    @property
    def attributes(self) -> Attributes:
        return self.input.attributes


@dataclass(frozen=True)
class ProjectionOf:
    """Expressions of each row, duplicates kept; of a stream or a relation."""

    input: "Operator"
    expressions: tuple[Expression, ...]
    names: tuple[str, ...]

    @property
    def is_stream(self) -> bool:
        return self.input.is_stream

    @cached_property
    def attributes(self) -> Attributes:
        pairs = zip(self.names, self.expressions, strict=True)
        return tuple(Attribute(name, part.kind, part.unit) for name, part in pairs)


@dataclass(frozen=True)
class JoinOf:
    """Combinations of one row of each relation for which the predicate is true; a row is their concatenation.

    One input may be a stream if all others are relations that never change (`StreamInput` with static
    `RelationInput`s, after rewriting): then the result is a stream with the stamps of its rows.
    """

    inputs: tuple["Operator", ...]
    predicate: Expression | None = None

    @property
    def is_stream(self) -> bool:
        return any(part.is_stream for part in self.inputs)

    @cached_property
    def attributes(self) -> Attributes:
        return tuple(attribute for part in self.inputs for attribute in part.attributes)


@dataclass(frozen=True)
class AggregateCall:
    """Aggregate of an expression over a group; NULL values are skipped.

    ``count`` without an argument counts rows. ``first`` and ``last`` are the values of the oldest and the newest row of
    the group by (stamp, arrival, series, number). ``stddev`` is that of a sample, NULL below two values. ``quantile``
    interpolates linearly between order statistics; ``median`` is the quantile 0.5. Of no value, counts are 0 and all
    others NULL.
    """

    function: Literal[
        "count", "sum", "avg", "min", "max", "stddev", "first", "last", "median", "quantile", "count_distinct"
    ]
    argument: Expression | None
    kind: Kind
    unit: str | None = None
    share: float = 0.5
    """Share of a quantile."""


@dataclass(frozen=True)
class AggregateOf:
    """One row for each group of equal keys: the keys, then the aggregates.

    Without keys there is always exactly one row, also of an empty relation; with keys a group exists while it has rows.
    NULL keys are equal.
    """

    input: "Operator"
    keys: tuple[Expression, ...]
    calls: tuple[AggregateCall, ...]
    names: tuple[str, ...]
    """Names of the keys, then of the aggregates."""

    is_stream = False

    @cached_property
    def attributes(self) -> Attributes:
        parts = (*self.keys, *self.calls)
        return tuple(Attribute(name, part.kind, part.unit) for name, part in zip(self.names, parts, strict=True))


@dataclass(frozen=True)
class DistinctOf:
    """Each row of a relation once; NULLs are equal."""

    input: "Operator"

    is_stream = False

    @property
    def attributes(self) -> Attributes:
        return self.input.attributes


@dataclass(frozen=True)
class BagOf:
    """Union, difference or intersection of two bags; NULLs are equal.

    Multiplicities are m + n, max(m - n, 0) and min(m, n) (SQL's ``ALL``; R9); a `DistinctOf` above and below makes sets
    of them. The union of two streams is a stream.
    """

    form: Literal["union", "except", "intersect"]
    left: "Operator"
    right: "Operator"

    @property
    def is_stream(self) -> bool:
        return self.left.is_stream and self.right.is_stream

    @property
    def attributes(self) -> Attributes:
        return self.left.attributes


@dataclass(frozen=True)
class MembershipOf:
    """Rows of a relation whose values are, or are not, among the rows of another: ``In`` and ``Not In``.

    By SQL's logic of rows: values are equal as the conjunction of their parts, which is NULL if no part differs and one
    is NULL; a row is in if one is equal, in neither if none is and some are NULL, otherwise not in.
    """

    input: "Operator"
    values: tuple[Expression, ...]
    """Values of `input` that are compared, in order, with all attributes of `other`."""
    other: "Operator"
    is_negated: bool

    is_stream = False

    @property
    def attributes(self) -> Attributes:
        return self.input.attributes


@dataclass(frozen=True)
class ToStream:
    """Stream of a relation: its insertions, its deletions, or the whole relation at its instants.

    Insertions and deletions are those between one instant and the next, as bags: rows that enter and leave at one
    instant do not show (R2). ``rstream`` gives the relation at each instant at which it holds a row, which is bounded
    only above a ``now`` window, or at the multiples of ``slide_ns`` (R6).
    """

    input: "Operator"
    form: StreamOf
    slide_ns: int = 0
    """Period of an ``rstream``; 0 above a ``now`` window."""

    is_stream = True

    @property
    def attributes(self) -> Attributes:
        return self.input.attributes


Operator: TypeAlias = (
    StreamInput
    | RelationInput
    | SampleOf
    | WindowOf
    | FilterOf
    | ProjectionOf
    | JoinOf
    | AggregateOf
    | DistinctOf
    | BagOf
    | MembershipOf
    | ToStream
)


def inputs_of(operator: Operator) -> tuple[Operator, ...]:
    """Return the operators directly below one, from left to right."""
    below: list[Operator] = []
    for part in fields(operator):
        value = getattr(operator, part.name)
        below += [value] if isinstance(value, Operator) else []
        below += [each for each in value if isinstance(each, Operator)] if part.name == "inputs" else []
    return tuple(below)


def walk_operators(operator: Operator) -> Iterator[Operator]:
    """Yield an operator and all below it, from the root down."""
    yield operator
    for part in inputs_of(operator):
        yield from walk_operators(part)


def list_leaves(operator: Operator) -> list[StreamInput | RelationInput]:
    """Return the streams and relations that a tree reads, each once."""
    leaves = (part for part in walk_operators(operator) if isinstance(part, StreamInput | RelationInput))
    return list(dict.fromkeys(leaves))
