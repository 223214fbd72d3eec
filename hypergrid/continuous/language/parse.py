"""Scripts of statements to bound queries."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, cast

from sqlglot import exp
from sqlglot.errors import TokenError
from sqlglot.tokens import Token, TokenType

from hypergrid.continuous.algebra import Operator
from hypergrid.continuous.expressions import Attribute, Attributes, Kind
from hypergrid.continuous.language import defaults
from hypergrid.continuous.language.bind import QueryBinder
from hypergrid.continuous.language.dialect import Cql, CqlParser
from hypergrid.continuous.language.errors import InvalidCql, Refusal, Span, locate_refusal, suggest_name
from hypergrid.continuous.language.functions import AGGREGATES, SCALARS
from hypergrid.continuous.language.syntax import (
    FunctionStatement,
    QueryNode,
    QueryStatement,
    RegisterStatement,
    Statement,
    ViewStatement,
    name_span,
    span_of,
)
from hypergrid.continuous.records import BoundQuery, StreamCatalogue
from hypergrid.core.errors import InvalidUnit
from hypergrid.core.units import check_unit

LONGEST: Final = 64 * 1024
"""Bytes of a text, at most."""

_SURROGATE: Final = re.compile(r"[\ud800-\udfff]")

MOST_EXPANDED: Final = 1000
"""Calls of functions of the user in a statement, at most, with those in their bodies."""

KINDS: Final[Mapping[str, Kind]] = {
    **dict.fromkeys(("number", "float", "double", "real", "decimal", "numeric"), "number"),
    **dict.fromkeys(("integer", "int", "bigint", "smallint", "long"), "integer"),
    **dict.fromkeys(("time", "timestamp", "datetime"), "time"),
    **dict.fromkeys(("text", "string", "varchar", "char", "byte"), "text"),
    **dict.fromkeys(("boolean", "bool"), "boolean"),
}
"""Words for the kinds of values."""


@dataclass(frozen=True)
class Script:
    """Statements of a text: its queries, and the catalogue with what it registers and defines."""

    catalogue: StreamCatalogue
    queries: tuple[BoundQuery, ...]


def parse_query(text: str, catalogue: StreamCatalogue) -> BoundQuery:
    """Parse a text of one query, which statements that register or define names may precede.

    Parameters
    ----------
    text
        The query in CQL.
    catalogue
        What it may name.

    Raises
    ------
    InvalidCql
        The text is no valid query; the message underlines the fault.

    Examples
    --------
    >>> query = parse_query("Register Stream S (A integer); Select Count(*) From S [Range 1 Minute]", StreamCatalogue())
    >>> query.tree.attributes
    (Attribute(name='count', kind='integer', unit=None),)
    """
    script = parse_script(text, catalogue)
    if len(script.queries) != 1:
        raise InvalidCql(f"a text of one query is needed; got {len(script.queries)} queries")
    return script.queries[0]


def parse_script(text: str, catalogue: StreamCatalogue) -> Script:
    """Parse a text of statements separated by semicolons.

    Raises
    ------
    InvalidCql
        A statement is not valid; the message underlines the fault.
    """
    return _ScriptReader(catalogue).read(text)


def list_registered(text: str) -> frozenset[str]:
    """Return the names that a text registers as streams or relations.

    Raises
    ------
    InvalidCql
        A quote is not closed, or the text is too long.
    """
    statements = _split(_tokenize(text))
    return frozenset(
        tokens[2].text for tokens in statements if len(tokens) > 2 and tokens[0].text.lower() == "register"
    )


def _tokenize(text: str) -> list[Token]:
    if (size := len(text.encode(errors="replace"))) > LONGEST:
        raise InvalidCql(f"a text of queries has at most {LONGEST:,} bytes; got {size:,}")
    if half := _SURROGATE.search(text):
        problem = "half of a pair of surrogates is no text of Unicode"
        raise InvalidCql(f"{problem}; got {half[0]!r} after {half.start():,} characters")
    try:
        return list(Cql().tokenize(text))
    except TokenError as error:
        quotes = [index for index, character in enumerate(text) if character in "'\""]
        start = quotes[-1] if quotes else len(text)
        problem = "a quote is not closed" if quotes else str(error)
        raise locate_refusal(text, Refusal(Span(start, start + 1), problem)) from error


def _parser(text: str, tokens: list[Token]) -> CqlParser:
    return CqlParser(dialect=Cql()).begin(text, tokens)


_TOO_DEEP: Final = "the statement is nested too deep; shorten its expressions, or give inner queries names by With"


def _parse_statement(text: str, tokens: list[Token]) -> Statement:
    try:
        return _parser(text, tokens).parse_statement()
    except RecursionError:
        span = Span(tokens[0].start, tokens[-1].end + 1)
        raise Refusal(span, _TOO_DEEP) from None


@dataclass
class _ScriptReader:
    catalogue: StreamCatalogue
    _trees: dict[str, Operator] = field(default_factory=dict)
    _opened: list[str] = field(default_factory=list)
    """Views that are being opened, from the outside in."""
    _view_sentences: dict[str, tuple[list[str], list[str], list[str]]] = field(default_factory=dict)
    """Sentences of defaults, warnings, and the views that are used, of each view that was opened."""
    _used: list[list[str]] = field(default_factory=list)
    """Views that each statement being bound has used so far."""
    _expanded: int = 0
    """Calls of functions of the user in the statement so far."""
    _bodies: dict[str, tuple[tuple[str, ...], exp.Expr]] = field(default_factory=dict)

    def read(self, text: str) -> Script:
        queries: list[BoundQuery] = []
        for tokens in _split(_tokenize(text)):
            self._expanded = 0
            try:
                statement = _parse_statement(text, tokens)
                if isinstance(statement, QueryStatement):
                    queries.append(self._bind(statement))
                else:
                    self._define(statement)
            except Refusal as refusal:
                raise locate_refusal(text, refusal) from refusal.__cause__
            except RecursionError:
                raise locate_refusal(text, Refusal(Span(tokens[0].start, tokens[-1].end + 1), _TOO_DEEP)) from None
        return Script(self.catalogue, tuple(queries))

    def _define(self, statement: RegisterStatement | ViewStatement | FunctionStatement) -> None:
        catalogue, name = self.catalogue, statement.name
        if isinstance(statement, FunctionStatement):
            self._define_function(statement)
            return
        if name in catalogue.names:
            raise Refusal(statement.span, f"{name!r} is the name of something else already")
        if isinstance(statement, ViewStatement):
            self.catalogue = replace(catalogue, views={**catalogue.views, name: statement.text})
            try:
                self._bind_view(name)
            except Refusal as refusal:
                span = statement.span if refusal.span is None else refusal.span.shift(statement.offset)
                raise Refusal(span, refusal.problem) from refusal.__cause__
            return
        attributes = _read_schema(statement)
        if statement.kind == "relation":
            static = catalogue.static | {name} if statement.is_static else catalogue.static
            self.catalogue = replace(catalogue, relations={**catalogue.relations, name: attributes}, static=static)
            return
        rates = {**catalogue.rates, name: statement.rate} if statement.rate else catalogue.rates
        self.catalogue = replace(catalogue, streams={**catalogue.streams, name: attributes}, rates=rates)

    def _define_function(self, statement: FunctionStatement) -> None:
        name, functions = statement.name, self.catalogue.functions
        known = [each.lower() for each in (*SCALARS, *AGGREGATES, *functions)]
        if name.lower() in known:
            raise Refusal(statement.span, f"{name!r} is the name of a function already")
        for part in statement.body.walk():
            if isinstance(part, exp.Column) and (part.table or part.name not in statement.parameters):
                named = suggest_name(part.name, statement.parameters)
                raise Refusal(span_of(part), f"unknown parameter {part.name!r} of {name}{named}")
            # A function names only those before it, so none can call itself.
            if isinstance(part, exp.Anonymous) and part.name.lower() not in known:
                raise Refusal(name_span(part), f"unknown function {part.name!r}{suggest_name(part.name, known)}")
            if isinstance(part, QueryNode):
                raise Refusal(span_of(part), "a function has no query in its body; write a view")
        self.catalogue = replace(self.catalogue, functions={**functions, name: statement.text})

    def _binder(self, statement: QueryStatement) -> QueryBinder:
        return QueryBinder(self.catalogue, statement.words, statement.seed, self._open_view, self._expand)

    def _bind(self, statement: QueryStatement) -> BoundQuery:
        binder = self._binder(statement)
        self._used.append([])
        tree = binder.bind_result(statement.query)
        used = self._list_views(self._used.pop())
        sentences = [f"View {name}: {sentence}" for name in used for sentence in self._view_sentences[name][0]]
        if statement.emit is None:
            binder.sentences.append(defaults.EMIT_FINAL)
        warnings = [*binder.warnings, *(each for name in used for each in self._view_sentences[name][1])]
        return BoundQuery(
            statement.text,
            tree,
            (*sentences, *binder.sentences),
            statement.emit or "final",
            tuple(dict.fromkeys((*warnings, *defaults.find_warnings(tree, self.catalogue.static)))),
            statement.explanation,
        )

    def _list_views(self, used: list[str]) -> list[str]:
        """Return views with those below them, the lowest first."""
        views: list[str] = []
        for name in used:
            views += [*self._list_views(self._view_sentences[name][2]), name]
        return list(dict.fromkeys(views))

    def _open_view(self, name: str, span: Span) -> Operator:
        if self._used:
            self._used[-1].append(name)
        if name in self._trees:
            return self._trees[name]
        if name in self._opened:
            raise Refusal(span, f"recursion is no part of CQL: view {name!r} is its own source")
        try:
            return self._bind_view(name)
        except Refusal as refusal:
            context = f"in view {name!r}: "
            raise locate_refusal(self.catalogue.views[name], refusal, context) from refusal.__cause__

    def _bind_view(self, name: str) -> Operator:
        """Return the tree of a view that is not bound yet; the span of a refusal is in the view's own text."""
        text = self.catalogue.views[name]
        self._opened.append(name)
        try:
            statement = _parse_statement(text, _tokenize(text))
            if not isinstance(statement, QueryStatement):
                raise Refusal(None, "a view is of a query")
            binder = self._binder(statement)
            self._used.append([])
            tree = binder.bind_outermost(statement.query)
            self._trees[name] = tree
            self._view_sentences[name] = (binder.sentences, binder.warnings, list(dict.fromkeys(self._used.pop())))
        finally:
            self._opened.pop()
        return self._trees[name]

    def _expand(self, call: exp.Anonymous) -> exp.Expr | None:
        """Return the body of a function of the user, with the arguments of a call."""
        name = next((each for each in self.catalogue.functions if each.lower() == call.name.lower()), None)
        if name is None:
            return None
        if name.lower() not in self._bodies:
            text = self.catalogue.functions[name]
            self._bodies[name.lower()] = _parser(text, _tokenize(text)).parse_function_text()
        names, body = self._bodies[name.lower()]
        if len(names) != len(call.expressions):
            needed = f"{len(names)} argument{'s' if len(names) != 1 else ''}"
            raise Refusal(span_of(call), f"{name} needs {needed}; got {len(call.expressions)}")
        self._expanded += 1
        if self._expanded > MOST_EXPANDED:
            raise Refusal(span_of(call), f"functions of the user stand for more than {MOST_EXPANDED:,} calls")
        arguments = dict(zip(names, call.expressions, strict=True))

        def put_in(node: exp.Expr) -> exp.Expr:
            if isinstance(node, exp.Column) and not node.table:
                if node.name not in arguments:
                    raise Refusal(span_of(call), f"the body of {name} names {node.name!r}, which is no parameter")
                return exp.Paren(this=arguments[node.name].copy())
            # A fault in the body is shown at the call.
            node.meta.clear()
            node.meta.update(call.meta)
            return node

        return cast(exp.Expr, exp.Paren(this=body.copy().transform(put_in)))


def _split(tokens: list[Token]) -> list[list[Token]]:
    statements: list[list[Token]] = [[]]
    for token in tokens:
        if token.token_type == TokenType.SEMICOLON:
            statements.append([])
        else:
            statements[-1].append(token)
    return [statement for statement in statements if statement]


def _read_schema(statement: RegisterStatement) -> Attributes:
    attributes: list[Attribute] = []
    for name, word, unit, span in statement.columns:
        kind = KINDS.get(word.lower())
        if kind is None:
            raise Refusal(span, f"unknown type {word!r}{suggest_name(word, sorted(set(KINDS.values())))}")
        if any(name == other.name for other in attributes):
            raise Refusal(span, f"two columns have the name {name!r}")
        if unit is not None:
            if kind != "number":
                raise Refusal(span, f"a unit needs a number; {name!r} is {kind}")
            try:
                check_unit(unit)
            except InvalidUnit as error:
                raise Refusal(span, str(error)) from error
        attributes.append(Attribute(name, kind, unit))
    return tuple(attributes)
