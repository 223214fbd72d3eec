"""Defaults of a query and what is likely to surprise: each one that applies is a sentence."""

from functools import reduce
from math import gcd

from hypergrid.continuous.algebra import (
    AggregateOf,
    BagOf,
    MembershipOf,
    Operator,
    StreamOf,
    ToStream,
    WindowOf,
    inputs_of,
)
from hypergrid.continuous.language.errors import Refusal, Span
from hypergrid.continuous.properties import is_momentary, is_ordered

EMIT_FINAL = "The query does not say Emit: Final."


def say_unbounded(label: str) -> str:
    """Return the sentence of a stream without a window (A4)."""
    return f"{label} has no window: [Unbounded], all its rows up to t."


def say_istream(label: str) -> str:
    """Return the sentence of a query that is a stream by default (R3)."""
    return (
        f"{label} is a stream, Istream(…): it has no aggregate, no Except or Not In, and no stream in its From has a "
        "window (R3)."
    )


def say_relation(reason: str) -> str:
    """Return the sentence of a query over streams that stays a relation by default (R3)."""
    return f"The query is a relation: {reason} (R3)."


def say_renamed(name: str, other: str) -> str:
    """Return the sentence of a column that has the name of one of results."""
    return f"Column {name!r} is given as {other!r}: results have a column {name!r} of their own."


def say_flags(label: str) -> str:
    """Return the sentence of the flags that pass (R8)."""
    return f"{label}: rows whose flag is 1 (good) or 2 (not evaluated), as the query does not name `flag` (R8)."


UNION_OF_SETS = (
    "Union without All keeps each row once, as in SQL; Babu's thesis means the union of bags by it, which is Union All "
    "(R9)."
)

REFUSED_UNION_OF_STREAMS = (
    "Union without All removes repeated rows, for which a stream would have to be kept for ever; write Union All, "
    "which is what Babu's thesis means by Union (R9)"
)


def make_stream(tree: Operator, form: StreamOf, span: Span | None) -> ToStream:
    """Return the stream of a relation.

    Raises
    ------
    Refusal
        An ``rstream`` would hold the relation at each nanosecond (R6).
    """
    if form != "rstream":
        return ToStream(tree, form)
    if is_momentary(tree):
        return ToStream(tree, form)
    slides = [part.slide_ns for part in _below_streams(tree) if isinstance(part, WindowOf) and part.slide_ns]
    if not slides:
        raise Refusal(
            span,
            "Rstream gives the whole relation at each instant, which needs a [Now] window in its From, or a Slide that "
            "sets the instants: [Range 1 Hour Slide 5 Minutes]",
        )
    return ToStream(tree, form, reduce(gcd, slides))


def find_obstacle(tree: Operator, label: str) -> str:
    """Return why a relation in From keeps a query from being a stream by default; empty if nothing does."""
    for part in _below_streams(tree):
        if isinstance(part, WindowOf) and part.form != "unbounded":
            return f"{label} has a window"
        if isinstance(part, AggregateOf):
            return f"{label} has an aggregate"
        if isinstance(part, MembershipOf) and part.is_negated:
            return f"{label} has a Not In"
        if isinstance(part, BagOf) and part.form == "except":
            return f"{label} has an Except"
    return ""


def find_warnings(tree: Operator, static: frozenset[str] = frozenset()) -> tuple[str, ...]:
    """Return what is likely to surprise in a tree, given the relations that never change."""
    warnings = []
    for part in _all_operators(tree):
        if (needing := _need_order(part)) and not is_ordered(inputs_of(part)[0], static):
            warnings.append(
                f"{needing} needs the order of rows, which is not defined here: of several rows of one instant, any "
                "may be taken."
            )
        if isinstance(part, ToStream) and part.form != "rstream":
            rows = [
                below for below in _below_streams(part.input) if isinstance(below, WindowOf) and below.form == "rows"
            ]
            if rows:
                warnings.append(
                    f"{part.form.title()} over a window of rows does not show a row that replaces an equal one, as "
                    "both changes fall on one instant (R2); use [Now] if each reading counts."
                )
    return tuple(dict.fromkeys(warnings))


def _need_order(part: Operator) -> str:
    """Return the form of an operator whose result depends on the order of rows; empty for others."""
    if isinstance(part, WindowOf):
        return f"A window of {part.rows:,} row{'s' if part.rows != 1 else ''}" if part.form == "rows" else ""
    calls = part.calls if isinstance(part, AggregateOf) else ()
    return next((call.function.title() for call in calls if call.function in ("first", "last")), "")


def _all_operators(tree: Operator) -> list[Operator]:
    """Return all operators of a tree, equal ones once."""
    seen: dict[int, Operator] = {}
    below = [tree]
    while below:
        part = below.pop()
        if id(part) not in seen:
            seen[id(part)] = part
            below += reversed(inputs_of(part))
    return list(seen.values())


def _below_streams(tree: Operator) -> list[Operator]:
    """Return the operators of a relation that change it, down to the streams of others."""
    if isinstance(tree, ToStream):
        return []
    # Rows of a membership enter and leave with its input, whatever the window of the other side.
    inputs = (tree.input,) if isinstance(tree, MembershipOf) else inputs_of(tree)
    return [tree, *(part for below in inputs for part in _below_streams(below))]
