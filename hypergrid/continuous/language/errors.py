"""Errors of the language: what is wrong, where in the text, and what to do."""

import difflib
import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from hypergrid.core.errors import InvalidQuery


@dataclass(frozen=True)
class Span:
    """Characters of a text, from `start` up to `end`, which is not included."""

    start: int
    end: int

    def shift(self, offset: int) -> "Span":
        """Return the span in a text in which this one's begins at `offset`."""
        return Span(self.start + offset, self.end + offset)

    def to(self, other: "Span") -> "Span":
        """Return the span from this one's start to another's end."""
        return Span(self.start, max(self.end, other.end))


class InvalidCql(InvalidQuery):
    """A text that is no valid query; the message underlines the fault."""

    line: int = 0
    """Line of the fault, from 1; 0 if the fault has no position."""
    column: int = 0
    """Column of the fault, from 1."""
    length: int = 0
    """Number of characters at fault, in that line."""
    problem: str = ""
    """The message without position and excerpt."""
    suggestion: str = ""
    """What may have been meant instead of all characters at fault; empty if unknown."""


class Refusal(Exception):  # noqa: N818 - never leaves the package: `locate_refusal` makes the error of it
    """A fault with its span, before the text is at hand."""

    def __init__(self, span: Span | None, problem: str) -> None:
        super().__init__(problem)
        self.span, self.problem = span, problem


_WIDEST: Final = 100
"""Characters of an excerpt."""
_SUGGESTED: Final = re.compile(r"(\w+) '([^']+)'[^']*; did you mean '([^']+)'\?")
"""Kind, name and suggestion in a message that ends by `suggest_name`."""


def locate_refusal(text: str, refusal: Refusal, context: str = "") -> InvalidCql:
    """Build the error of a refusal: line, column, message, and the line with a caret below each character at fault."""
    problem = f"{context}{refusal.problem}"
    if refusal.span is None:
        error = InvalidCql(problem)
        error.problem = problem
        return error
    start = min(refusal.span.start, len(text))
    # A fault at the end of the text belongs to its last line that has words.
    if start >= len(text.rstrip()):
        start = len(text.rstrip())
    first = text.rfind("\n", 0, start) + 1
    last = text.find("\n", start)
    whole = text[first : last if last >= 0 else len(text)]
    line, column = text.count("\n", 0, start) + 1, start - first + 1
    length = max(min(refusal.span.end, first + len(whole)) - start, 1)
    cut = max(column - 1 - _WIDEST // 2, 0) if len(whole) > _WIDEST else 0
    shown = whole[cut : cut + _WIDEST].replace("\t", " ")
    carets = "^" * max(min(length, len(shown) - (column - 1 - cut)), 1)
    margin = " " * len(str(line))
    error = InvalidCql(
        f"line {line}, column {column}: {problem}\n  {line} | {shown}\n  {margin} | {' ' * (column - 1 - cut)}{carets}"
    )
    error.line, error.column, error.length = line, column, length
    error.problem, error.suggestion = problem, _suggest_text(problem, text[start : start + length])
    return error


def _suggest_text(problem: str, written: str) -> str:
    """Return the characters at fault with the name that may have been meant; empty if unknown."""
    suggested = _SUGGESTED.search(problem)
    if suggested is None:
        return ""
    kind, name, meant = suggested.groups()
    # Of d.statio the column is unknown, of e.station the source.
    at = written.find(name) if kind == "source" else written.rfind(name)
    return "" if at < 0 else written[:at] + meant + written[at + len(name) :]


def suggest_name(given: str, existing: Iterable[str]) -> str:
    """Return the end of a message about an unknown name: the nearest one, and all there are."""
    names = list(dict.fromkeys(existing))
    lowered = {name.lower(): name for name in names}
    close = difflib.get_close_matches(given.lower(), lowered, n=1, cutoff=0.5)
    hint = f"; did you mean {lowered[close[0]]!r}?" if close else "."
    listing = ", ".join(names[:40]) + (", …" if len(names) > 40 else "") if names else "none"
    return f"{hint} There are: {listing}"
