"""Syntax of a query, before its names are resolved: records whose expressions are trees of the SQL parser."""

from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from sqlglot import exp

from hypergrid.continuous.algebra import StreamOf
from hypergrid.continuous.language.errors import Span
from hypergrid.continuous.records import Emit, Explanation


@dataclass(frozen=True)
class WindowClause:
    """Window in brackets."""

    form: Literal["rows", "range", "now", "unbounded"]
    span: Span
    rows: int = 0
    range_ns: int = 0
    slide_ns: int = 0
    partition: tuple[exp.Expr, ...] = ()
    where: exp.Expr | None = None


@dataclass(frozen=True)
class SourceClause:
    """Source of a From clause: a name or a query, and what is written around it."""

    span: Span
    """Characters of the name or the query."""
    name: str = ""
    query: "QueryClause | None" = None
    window: WindowClause | None = None
    sample: float | None = None
    """Share of the rows that is kept."""
    alias: str = ""


@dataclass(frozen=True)
class ItemClause:
    """Item of a select list; the name is empty if none is written."""

    value: exp.Expr
    name: str
    span: Span


@dataclass(frozen=True)
class SelectClause:
    """Select … From … Where … Group By … Having."""

    span: Span
    """Characters of the word Select."""
    items: tuple[ItemClause, ...]
    sources: tuple[SourceClause, ...]
    is_distinct: bool = False
    to_stream: StreamOf | None = None
    """Operator around the select list."""
    joined_on: tuple[exp.Expr, ...] = ()
    where: exp.Expr | None = None
    group: tuple[exp.Expr, ...] = ()
    having: exp.Expr | None = None


@dataclass(frozen=True)
class StreamClause:
    """Operator from relation to stream around a query."""

    span: Span
    form: StreamOf
    query: "QueryClause"


@dataclass(frozen=True)
class CombinedClause:
    """Union, Except or Intersect of two queries."""

    span: Span
    form: Literal["union", "except", "intersect"]
    is_all: bool
    left: "Body"
    right: "Body"


@dataclass(frozen=True)
class QueryClause:
    """Query with the queries that it names before."""

    body: "Body"
    span: Span
    named: tuple[tuple[str, Span, "QueryClause"], ...] = ()


Body: TypeAlias = SelectClause | StreamClause | CombinedClause | QueryClause


@dataclass(frozen=True)
class QueryStatement:
    """Query as a statement of its own."""

    query: QueryClause
    emit: Emit | None
    explanation: Explanation
    text: str
    words: frozenset[str] = field(default_factory=frozenset)
    """All words of the statement in lower case."""
    seed: int = 0
    """Seed of its samples, equal for equal words."""


@dataclass(frozen=True)
class RegisterStatement:
    """Schema of a stream or a relation."""

    kind: Literal["stream", "relation"]
    name: str
    span: Span
    columns: tuple[tuple[str, str, str | None, Span], ...]
    """Name, type, unit and characters of each column."""
    rate: float | None = None
    """Rows per second of a stream."""
    is_static: bool = False


@dataclass(frozen=True)
class ViewStatement:
    """Query with a name."""

    name: str
    span: Span
    text: str
    offset: int
    """Position of the text in that of all statements."""


@dataclass(frozen=True)
class FunctionStatement:
    """Expression of parameters with a name; `text` is "(parameters) AS expression"."""

    name: str
    span: Span
    text: str
    parameters: tuple[str, ...]
    body: exp.Expr


Statement: TypeAlias = QueryStatement | RegisterStatement | ViewStatement | FunctionStatement


class QueryNode(exp.Expression):
    """Query inside an expression; `this` is its `QueryClause`."""

    arg_types = {"this": True}  # noqa: RUF012 - as in the base class


def query_in(node: exp.Expr | None) -> QueryClause | None:
    """Return the query of a node that is nothing else than one in parentheses."""
    while isinstance(node, exp.Paren):
        node = node.this
    if not isinstance(node, QueryNode):
        return None
    clause: QueryClause = node.args["this"]
    return clause


def span_of(node: exp.Expr) -> Span | None:
    """Return the characters of an expression, as far as the parser has noted them."""
    starts, ends = [], []
    for part in node.walk():
        if isinstance(part, QueryNode):
            span = part.args["this"].span
            starts.append(span.start)
            ends.append(span.end)
        elif "whole" in part.meta:
            starts.append(part.meta["whole"].start)
            ends.append(part.meta["whole"].end)
        elif "start" in part.meta:
            starts.append(part.meta["start"])
            ends.append(part.meta["end"] + 1)
    return Span(min(starts), max(ends)) if starts else None


def name_span(call: exp.Anonymous) -> Span | None:
    """Return the characters of the name of a function that is called."""
    return Span(call.meta["start"], call.meta["end"] + 1) if "start" in call.meta else span_of(call)
