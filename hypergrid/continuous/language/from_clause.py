"""From clause of CQL: sources with windows, samples and names, in any order.

::

    source := (name | "(" query ")" | r2s "(" query ")" | "(" source ")") [window] [SAMPLE "(" percent ")"] [[AS] name]
    window := "[" [PARTITION BY column, …] extent [PRECEDING] [WHERE p] "]"
    extent := ROWS (n | UNBOUNDED) | RANGE (n unit | UNBOUNDED) [SLIDE n unit] | NOW | UNBOUNDED
"""

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from sqlglot import exp
from sqlglot.parser import Parser
from sqlglot.tokens import Token, TokenType

from hypergrid.continuous.language.errors import Refusal, Span, suggest_name
from hypergrid.continuous.language.syntax import QueryClause, SourceClause, StreamClause, WindowClause

if TYPE_CHECKING:
    from hypergrid.continuous.algebra import StreamOf

UNITS_NS: Final = {
    "nanosecond": 1,
    "microsecond": 1_000,
    "millisecond": 1_000_000,
    "second": 1_000_000_000,
    "minute": 60_000_000_000,
    "hour": 3_600_000_000_000,
    "day": 86_400_000_000_000,
    "week": 604_800_000_000_000,
}
"""Units of windows [ns]."""

MOST_SOURCES: Final = 32
_LONGEST_NS: Final = 2**62
"""Longest window: sums of two stay within 64 bits."""

_OUTER: Final = ("LEFT", "RIGHT", "FULL", "OUTER", "NATURAL", "SEMI", "ANTI", "ASOF", "POSITIONAL")


class FromClause(Parser):
    """Rules of the From clause, and the small ones that all of ours share."""

    _sources_read = 0

    # Small rules

    def _span(self, token: Token) -> Span:
        if token:
            return Span(token.start, token.end + 1)
        # Behind the last token there is none.
        end = self._tokens[-1].end + 1
        return Span(end, end + 1)

    def _refuse_here(self, problem: str) -> Refusal:
        return Refusal(self._span(self._curr), problem)

    def _word(self, word: str) -> bool:
        return bool(self._match_texts((word,)))

    def _expect_word(self, word: str) -> None:
        if not self._word(word):
            raise self._refuse_here(f"{word.title()} is expected after {self._prev.text!r}")

    def _expect(self, kind: TokenType, text: str) -> None:
        if not self._match(kind):
            got = f"; got {self._curr.text!r}" if self._curr else ""
            raise self._refuse_here(f"{text!r} is expected after {self._prev.text!r}{got}")

    def _parse_name(self, what: str, *, any_word: bool = False) -> tuple[str, Span]:
        token = self._curr
        is_word = token and (token.text[:1].isalpha() or token.text[:1] == "_")
        if token and token.token_type == TokenType.IDENTIFIER:
            is_word = True
        elif is_word and not any_word:
            is_word = token.token_type in self.TABLE_ALIAS_TOKENS
        if not is_word or token.token_type == TokenType.STRING:
            raise self._refuse_here(f"{what} is expected after {self._prev.text!r}")
        self._advance()
        return token.text, self._span(token)

    def _parse_amount(self, what: str) -> tuple[float, Span]:
        """Parse a number with commas of thousands."""
        start = self._curr
        sign = -1.0 if self._match(TokenType.DASH) else 1.0
        if not self._match(TokenType.NUMBER):
            raise self._refuse_here(f"{what} needs a number")
        digits = self._prev.text
        while (
            self._curr
            and self._curr.token_type == TokenType.COMMA
            and self._next
            and self._next.token_type == TokenType.NUMBER
            and len(self._next.text) == 3
            and self._next.text.isdigit()
        ):
            digits += self._next.text
            self._advance(2)
        span = self._span(start).to(self._span(self._prev))
        try:
            number = float(digits)
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            raise Refusal(span, f"{what} needs a number; got {digits!r}")
        return sign * number, span

    def _parse_time_unit(self) -> int:
        token = self._curr
        word = token.text.lower() if token else ""
        singular = word if word in UNITS_NS else word.removesuffix("s")
        if singular not in UNITS_NS:
            if not word.isalpha():
                raise self._refuse_here("a unit of time is expected, as in 10 Minutes")
            raise self._refuse_here(f"unknown unit of time {token.text!r}{suggest_name(word, UNITS_NS)}")
        self._advance()
        return UNITS_NS[singular]

    # Sources

    def _parse_sources(self) -> tuple[tuple[SourceClause, ...], tuple[exp.Expr, ...]]:
        """Parse what follows From: sources, and the conditions of joins."""
        sources, conditions = [self._parse_source()], []
        while True:
            word = self._curr.text.upper() if self._curr else ""
            if self._match(TokenType.COMMA):
                sources.append(self._parse_source())
            elif word in _OUTER:
                raise self._refuse_here(
                    f"{word.title()} joins are no part of CQL: write Join … On, and Not In for rows without a partner"
                )
            elif word == "CROSS":
                raise self._refuse_here("Cross joins are no part of CQL: write Join … On with a condition")
            elif word in ("JOIN", "INNER"):
                self._advance()
                if word == "INNER":
                    self._expect(TokenType.JOIN, "Join")
                sources.append(self._parse_source())
                if self._curr and self._curr.text.upper() == "USING":
                    raise self._refuse_here("Using is no part of CQL: write On with the equal columns")
                if not self._match(TokenType.ON):
                    raise self._refuse_here("a Join needs On with a condition")
                condition = self._parse_disjunction()
                if condition is None:
                    raise self._refuse_here("a condition is expected after On")
                conditions.append(condition)
            else:
                return tuple(sources), tuple(conditions)

    def _parse_source(self) -> SourceClause:
        self._sources_read += 1
        if self._sources_read > MOST_SOURCES:
            raise self._refuse_here(f"a query has at most {MOST_SOURCES} sources")
        return self._parse_after_source(self._parse_bare_source())

    def _parse_bare_source(self) -> SourceClause:
        token = self._curr
        if (form := self._to_stream_ahead()) is not None:
            self._advance(2)
            query = self._parse_query()
            self._expect(TokenType.R_PAREN, ")")
            span = self._span(token).to(self._span(self._prev))
            return SourceClause(span, query=QueryClause(StreamClause(self._span(token), form, query), span))
        if self._match(TokenType.L_PAREN):
            if self._query_ahead():
                query = self._parse_query()
                self._expect(TokenType.R_PAREN, ")")
                return SourceClause(self._span(token).to(self._span(self._prev)), query=query)
            source = self._parse_after_source(self._parse_bare_source())
            self._expect(TokenType.R_PAREN, ")")
            return source
        name, span = self._parse_name("the name of a stream or relation")
        if self._curr and self._curr.token_type == TokenType.DOT:
            raise self._refuse_here("names of streams and relations have no dot")
        return SourceClause(span, name=name)

    def _query_ahead(self) -> bool:
        """Whether a query, not the name of a source, is in the parentheses that were just opened."""
        index = self._index
        while self._match(TokenType.L_PAREN):
            pass
        is_query = self._match_set((TokenType.SELECT, TokenType.WITH), advance=False)
        is_query = bool(is_query) or self._to_stream_ahead() is not None
        self._retreat(index)
        return is_query

    def _parse_after_source(self, source: SourceClause) -> SourceClause:
        """Parse window, sample and name after a source, each at most once."""
        while self._curr:
            if self._match(TokenType.L_BRACKET):
                window = self._parse_bracketed_window()
                if source.window is not None:
                    raise Refusal(window.span, "a source has at most one window")
                source = replace(source, window=window)
            elif self._curr.text.upper() == "SAMPLE" and self._curr.token_type != TokenType.IDENTIFIER:
                if source.sample is not None:
                    raise self._refuse_here("a source is sampled at most once")
                source = replace(source, sample=self._parse_sample())
            elif self._alias_ahead():
                if source.alias:
                    raise self._refuse_here(f"{source.alias!r} is the name of this source already")
                self._match(TokenType.ALIAS)
                source = replace(source, alias=self._parse_name("a name after As")[0])
            else:
                break
        return source

    def _alias_ahead(self) -> bool:
        if self._match(TokenType.ALIAS, advance=False):
            return True
        word = self._curr.text.upper()
        if word in (*_OUTER, "EMIT", "CROSS", "INNER", "JOIN", "LIMIT", "OFFSET", "FETCH", "QUALIFY", "MINUS", "USING"):
            return False
        return self._curr.token_type == TokenType.IDENTIFIER or (
            self._curr.token_type in self.TABLE_ALIAS_TOKENS and self._curr.text[:1].isalpha()
        )

    def _parse_sample(self) -> float:
        self._advance()
        if not self._match(TokenType.L_PAREN):
            raise Refusal(self._span(self._prev), "Sample needs a percentage in parentheses: Sample(10)")
        percent, span = self._parse_amount("Sample")
        self._match(TokenType.MOD)
        self._expect(TokenType.R_PAREN, ")")
        if not 0 < percent <= 100:
            raise Refusal(span, f"Sample needs a percentage above 0 and up to 100; got {percent:g}")
        return percent / 100

    # Windows

    def _parse_bracketed_window(self) -> WindowClause:
        start = self._prev
        partition: list[exp.Expr] = []
        if self._match(TokenType.PARTITION_BY):
            while not partition or self._match(TokenType.COMMA):
                column = self._parse_column()
                if not isinstance(column, exp.Column):
                    raise self._refuse_here("Partition By needs names of columns")
                partition.append(column)
        window = self._parse_extent(start, is_partitioned=bool(partition))
        self._word("PRECEDING")
        where = None
        if self._match(TokenType.WHERE):
            where = self._parse_disjunction()
            if where is None:
                raise self._refuse_here("a condition is expected after Where")
        if not self._match(TokenType.R_BRACKET):
            got = f"; got {self._curr.text!r}" if self._curr else ""
            raise self._refuse_here(f"']' is expected at the end of a window{got}")
        span = self._span(start).to(self._span(self._prev))
        return replace(window, span=span, partition=tuple(partition), where=where)

    def _parse_extent(self, start: Token, *, is_partitioned: bool) -> WindowClause:
        span = self._span(start)
        if self._word("ROWS"):
            if self._word("UNBOUNDED"):
                return WindowClause("unbounded", span)
            rows, at = self._parse_amount("Rows")
            if rows != int(rows) or rows < 1:
                raise Refusal(at, f"a window of rows needs a whole number from 1; got {rows:,g}")
            if rows >= 2**31:
                raise Refusal(at, f"a window of {rows:,.0f} rows is too long; write [Rows Unbounded] for all rows")
            return WindowClause("rows", span, rows=int(rows))
        if is_partitioned:
            raise self._refuse_here("Partition By needs Rows; a Range holds all rows of its time, whatever their group")
        if self._word("RANGE"):
            if self._word("UNBOUNDED"):
                return WindowClause("unbounded", span)
            length = self._parse_duration("Range")
            return WindowClause(
                "range", span, range_ns=length, slide_ns=self._parse_duration("Slide") if self._word("SLIDE") else 0
            )
        if self._word("NOW"):
            return WindowClause("now", span)
        if self._word("UNBOUNDED"):
            return WindowClause("unbounded", span)
        got = self._curr.text if self._curr else ""
        forms = ("Rows", "Range", "Now", "Unbounded", "Partition By")
        raise self._refuse_here(f"unknown window {got!r}{suggest_name(got, forms)}")

    def _parse_duration(self, label: str) -> int:
        number, span = self._parse_amount(label)
        length = number * self._parse_time_unit()
        span = span.to(self._span(self._prev))
        if length < 1:
            now = "; the rows of one instant are [Now]" if label == "Range" and length == 0 else ""
            raise Refusal(span, f"{label} needs a length above 0; got {self.sql[span.start : span.end]!r}{now}")
        if length > _LONGEST_NS:
            raise Refusal(span, f"{label} is longer than 146 years; write [Unbounded] for all time")
        return round(length)

    if TYPE_CHECKING:  # rules of the class that has this one as its base

        def _to_stream_ahead(self) -> StreamOf | None: ...

        def _parse_query(self) -> QueryClause: ...
