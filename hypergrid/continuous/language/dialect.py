"""Dialect of CQL: the rules of queries and statements are ours, those of expressions are the SQL parser's."""

import zlib
from typing import Any, Final, Self, cast

from sqlglot import exp
from sqlglot.dialects.dialect import Dialect
from sqlglot.errors import ParseError
from sqlglot.parser import Parser
from sqlglot.tokens import Token, Tokenizer, TokenType

from hypergrid.continuous.algebra import StreamOf
from hypergrid.continuous.language.errors import Refusal, Span
from hypergrid.continuous.language.from_clause import FromClause
from hypergrid.continuous.language.syntax import (
    Body,
    CombinedClause,
    FunctionStatement,
    ItemClause,
    QueryClause,
    QueryNode,
    QueryStatement,
    RegisterStatement,
    SelectClause,
    Statement,
    StreamClause,
    ViewStatement,
    span_of,
)
from hypergrid.continuous.records import Emit, Explanation

DEEPEST: Final = 16
"""Queries inside each other, at most."""

_COMBINING: Final = {TokenType.UNION: "union", TokenType.EXCEPT: "except", TokenType.INTERSECT: "intersect"}

_UNSUPPORTED: Final = {
    "ORDER BY": "the rows of a relation have no order; take the newest by a window as [Rows 10], or sort the result",
    "SORT BY": "the rows of a relation have no order; sort the result",
    "LIMIT": "the rows of a relation have no order to cut; take the newest by a window such as [Rows 10]",
    "FETCH": "the rows of a relation have no order to cut; take the newest by a window such as [Rows 10]",
    "OFFSET": "the rows of a relation have no order to cut; take the newest by a window such as [Rows 10]",
    "QUALIFY": "write the condition in Having, or in the Where of a query around this one",
    "WINDOW": "windows stand in brackets after a stream, as in S [Range 10 Minutes]",
    "MINUS": "write Except",
}
"""Clauses of SQL that CQL does not have, with what to write instead."""


class CqlParser(FromClause, Parser):
    """Parser of statements; `Refusal` is raised at the first fault."""

    # Functions are resolved by the binder, so that each is written as a call and no name is special.
    FUNCTIONS = {}  # noqa: RUF012 - as in the base class
    FUNCTION_PARSERS = {}  # noqa: RUF012
    NO_PAREN_FUNCTIONS = {}  # noqa: RUF012
    NO_PAREN_FUNCTION_PARSERS = {"CASE": Parser.NO_PAREN_FUNCTION_PARSERS["CASE"]}  # noqa: RUF012

    _depth = 0

    def begin(self, text: str, tokens: list[Token]) -> Self:
        """Return the parser before the first of the tokens of one statement."""
        self.reset()
        self.sql, self._tokens, self._tokens_size, self._index = text, tokens, len(tokens), -1
        self._advance()
        return self

    def raise_error(self, message: str, token: Token | None = None) -> None:
        """Raise a fault of an expression at a token; the base class catches it where it tries another rule."""
        token = token or self._curr or self._prev
        error = ParseError(message)
        error.errors = [{"span": self._span(token)}]
        raise error

    # Statements

    def parse_statement(self) -> Statement:
        """Parse the tokens of one statement."""
        try:
            statement = self._parse_cql()
        except ParseError as error:
            span = cast("Span | None", error.errors[0]["span"] if error.errors else None)
            # A text that ends too early is at fault at its end, not at its last word.
            span = span if self._curr else self._span(self._curr)
            raise Refusal(span, self._explain_fault(str(error))) from error
        if self._curr:
            self._refuse_rest()
        return statement

    def _explain_fault(self, message: str) -> str:
        if not self._curr:
            return "the text ends where an expression, a name or a bracket is expected"
        if message.startswith("Required") or "Unexpected token" in message:
            return f"an expression is expected before {self._curr.text!r}"
        if message.startswith(("Expecting ", "Expected ")):
            return f"{message.split()[1]!r} is expected before {self._curr.text!r}"
        return message[0].lower() + message[1:]

    def _refuse_rest(self) -> None:
        word = self._curr.text.upper()
        word = {TokenType.ORDER_BY: "ORDER BY", TokenType.SORT_BY: "SORT BY"}.get(self._curr.token_type, word)
        if word in _UNSUPPORTED:
            raise Refusal(self._span(self._curr), f"{word.title()} is no part of CQL: {_UNSUPPORTED[word]}")
        raise Refusal(
            self._span(self._curr),
            f"{self._curr.text!r} is not expected after {self._prev.text!r}"
            if self._prev
            else f"{self._curr.text!r} begins no statement",
        )

    def _parse_cql(self) -> Statement:
        if self._word("REGISTER"):
            return self._parse_register()
        if self._word("CREATE"):
            return self._parse_definition()
        start = self._curr
        explanation: Explanation = "none"
        if self._word("EXPLAIN"):
            explanation = "measured" if self._word("ANALYZE") else "plan"
        first = self._index
        query = self._parse_query()
        words = [token.text.lower() for token in self._tokens[first : self._index]]
        emit: Emit | None = None
        if self._word("EMIT"):
            if not self._match_texts(("FINAL", "NOW")):
                raise self._refuse_here("Emit needs Final or Now")
            emit = "final" if self._prev.text.upper() == "FINAL" else "now"
        return QueryStatement(
            query,
            emit,
            explanation,
            self.sql[start.start : self._prev.end + 1],
            frozenset(token.text.lower() for token in self._tokens if token.token_type != TokenType.STRING),
            zlib.crc32(" ".join(words).encode()),
        )

    def _parse_register(self) -> RegisterStatement:
        if not self._match_texts(("STREAM", "RELATION")):
            raise self._refuse_here("Register needs Stream or Relation")
        kind = self._prev.text.lower()
        name, span = self._parse_name(f"the name of the {kind}")
        self._expect(TokenType.L_PAREN, "(")
        columns = [self._parse_schema_column()]
        while self._match(TokenType.COMMA):
            columns.append(self._parse_schema_column())
        self._expect(TokenType.R_PAREN, ")")
        rate, is_static = None, False
        if kind == "stream" and self._word("RATE"):
            number, _ = self._parse_amount("a rate")
            if not self._word("PER"):
                raise self._refuse_here("a rate is written as in Rate 10 Per Minute")
            rate = number * 1e9 / self._parse_time_unit()
        elif kind == "relation":
            is_static = self._word("STATIC")
        return RegisterStatement(
            "stream" if kind == "stream" else "relation", name, span, tuple(columns), rate, is_static
        )

    def _parse_schema_column(self) -> tuple[str, str, str | None, Span]:
        name, span = self._parse_name("the name of a column", any_word=True)
        kind, kind_span = self._parse_name("the type of a column", any_word=True)
        if self._match(TokenType.L_PAREN):  # the length of a text
            self._parse_amount("a length")
            self._expect(TokenType.R_PAREN, ")")
        unit = None
        if self._match(TokenType.STRING):
            unit, kind_span = self._prev.text, self._span(self._prev)
        return name, kind, unit, span.to(kind_span)

    def _parse_definition(self) -> ViewStatement | FunctionStatement:
        if not self._match_texts(("VIEW", "FUNCTION")):
            raise self._refuse_here("Create needs View or Function; streams and relations are registered")
        kind = self._prev.text.lower()
        name, span = self._parse_name(f"the name of the {kind}")
        start = self._curr
        if kind == "function":
            parameters, body = self.parse_function_text()
            return FunctionStatement(name, span, self.sql[start.start : self._prev.end + 1], parameters, body)
        self._expect_word("AS")
        start = self._curr
        self._parse_query()
        return ViewStatement(name, span, self.sql[start.start : self._prev.end + 1], start.start)

    def parse_function_text(self) -> tuple[tuple[str, ...], exp.Expr]:
        """Parse "(a, b) AS expression"."""
        self._expect(TokenType.L_PAREN, "(")
        names: list[str] = []
        while not self._match(TokenType.R_PAREN):
            if names:
                self._expect(TokenType.COMMA, ",")
            names.append(self._parse_name("the name of a parameter", any_word=True)[0])
        self._expect_word("AS")
        return tuple(names), self._parse_clause("an expression")

    # Queries

    def _parse_query(self) -> QueryClause:
        start = self._curr
        self._depth += 1
        if self._depth > DEEPEST:
            raise self._refuse_here(
                f"queries are nested deeper than {DEEPEST}; give the inner ones names by With or views"
            )
        named: list[tuple[str, Span, QueryClause]] = []
        if self._match(TokenType.WITH):
            if self._word("RECURSIVE"):
                raise Refusal(self._span(self._prev), "recursion is no part of CQL: a query cannot be its own source")
            while True:
                name, span = self._parse_name("the name of a query")
                self._expect_word("AS")
                self._expect(TokenType.L_PAREN, "(")
                named.append((name, span, self._parse_query()))
                self._expect(TokenType.R_PAREN, ")")
                if not self._match(TokenType.COMMA):
                    break
        body = self._parse_combined()
        self._depth -= 1
        return QueryClause(body, self._span(start).to(self._span(self._prev)), tuple(named))

    def _parse_combined(self) -> Body:
        left = self._parse_intersection()
        while self._match_set((TokenType.UNION, TokenType.EXCEPT)):
            left = self._parse_right_side(left, self._parse_intersection)
        return left

    def _parse_intersection(self) -> Body:
        left = self._parse_operand()
        while self._match(TokenType.INTERSECT):
            left = self._parse_right_side(left, self._parse_operand)
        return left

    def _parse_right_side(self, left: Body, parse: object) -> CombinedClause:
        token = self._prev
        form = _COMBINING[token.token_type]
        is_all = bool(self._match(TokenType.ALL))
        if not is_all:
            self._match(TokenType.DISTINCT)
        right = parse()  # type: ignore[operator]
        return CombinedClause(self._span(token), form, is_all, left, right)  # type: ignore[arg-type]

    def _parse_operand(self) -> Body:
        if (form := self._to_stream_ahead()) is not None:
            token = self._curr
            self._advance(2)
            query = self._parse_query()
            self._expect(TokenType.R_PAREN, ")")
            return StreamClause(self._span(token), form, query)
        if self._match(TokenType.L_PAREN):
            query = self._parse_query()
            self._expect(TokenType.R_PAREN, ")")
            return query
        if self._match(TokenType.SELECT):
            return self._parse_select_clause()
        if self._curr and self._prev:
            raise self._refuse_here(f"Select is expected after {self._prev.text!r}; got {self._curr.text!r}")
        raise self._refuse_here("Select is expected")

    def _to_stream_ahead(self) -> StreamOf | None:
        word = self._curr.text.lower() if self._curr else ""
        if word in ("istream", "dstream", "rstream") and self._next and self._next.token_type == TokenType.L_PAREN:
            return cast(StreamOf, word)
        return None

    def _parse_select_clause(self) -> SelectClause:
        span = self._span(self._prev)
        is_distinct = bool(self._match(TokenType.DISTINCT))
        if not is_distinct:
            self._match(TokenType.ALL)
        form = self._to_stream_ahead()
        if form is not None:
            self._advance(2)
            items = self._parse_items()
            self._expect(TokenType.R_PAREN, ")")
        else:
            items = self._parse_items()
        if not self._match(TokenType.FROM):
            raise self._refuse_here("From is expected after the select list")
        sources, joined_on = self._parse_sources()
        where = self._parse_clause("a condition") if self._match(TokenType.WHERE) else None
        group: list[exp.Expr] = []
        if self._match(TokenType.GROUP_BY):
            group.append(self._parse_clause("an expression"))
            while self._match(TokenType.COMMA):
                group.append(self._parse_clause("an expression"))
        having = self._parse_clause("a condition") if self._match(TokenType.HAVING) else None
        return SelectClause(span, items, sources, is_distinct, form, joined_on, where, tuple(group), having)

    def _parse_items(self) -> tuple[ItemClause, ...]:
        items: list[ItemClause] = []
        while not items or self._match(TokenType.COMMA):
            start = self._curr
            if self._to_stream_ahead() is not None:
                raise self._refuse_here(f"{start.text} goes around the whole select list, or around the query")
            parsed = self._parse_expression()
            if parsed is None:
                raise self._refuse_here("an item of the select list is expected")
            span = self._span(start).to(self._span(self._prev))
            if isinstance(parsed, exp.Alias):
                items.append(ItemClause(parsed.this, parsed.alias, span))
            else:
                items.append(ItemClause(parsed, "", span))
        return tuple(items)

    def _parse_clause(self, what: str) -> exp.Expr:
        parsed = self._parse_disjunction()
        if parsed is None:
            raise self._refuse_here(f"{what} is expected after {self._prev.text!r}")
        return parsed

    # The SQL parser notes positions of words only; brackets belong to what they close.

    def _note_whole(self, node: exp.Expr | None, start: Token) -> exp.Expr | None:
        if node is not None:
            node.meta["whole"] = self._span(start).to(self._span(self._prev))
        return node

    def _parse_paren(self) -> exp.Expr | None:
        start = self._curr
        return self._note_whole(super()._parse_paren(), start)

    def _parse_function(self, *args: Any, **options: Any) -> exp.Expr | None:  # noqa: ANN401 - those of the base class
        start = self._curr
        return self._note_whole(super()._parse_function(*args, **options), start)

    def _parse_in(self, this: exp.Expr | None, alias: bool = False) -> exp.In:  # noqa: FBT001, FBT002 - as in the base class
        node = super()._parse_in(this, alias)
        before = None if this is None else span_of(this)
        node.meta["whole"] = (before or self._span(self._prev)).to(self._span(self._prev))
        return node

    # The SQL parser calls these for queries inside expressions.

    def _parse_select(self, *_: object, **__: object) -> exp.Expr | None:
        if not self._match_set((TokenType.SELECT, TokenType.WITH), advance=False) and self._to_stream_ahead() is None:
            return None
        return QueryNode(this=self._parse_query())

    def _parse_table(self, *_: object, **__: object) -> exp.Expr | None:
        raise self._refuse_here("a table is not expected")


class CqlTokenizer(Tokenizer):
    """Tokenizer without SQL's commands, of whose words the rest of a statement would be one token (Explain is one)."""

    COMMANDS = set()  # noqa: RUF012 - as in the base class
    KEYWORDS = {  # noqa: RUF012
        word: kind for word, kind in Tokenizer.KEYWORDS.items() if kind not in Tokenizer.COMMANDS
    }


class Cql(Dialect):
    """Dialect whose parser reads CQL."""

    Tokenizer = CqlTokenizer
    Parser = CqlParser
