"""Scalar expressions: from trees of the SQL parser to bound ones with types and units."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from sqlglot import exp

from hypergrid.continuous.expressions import Constant, Expression, Kind, Operation
from hypergrid.continuous.language import units
from hypergrid.continuous.language.errors import Refusal, Span, suggest_name
from hypergrid.continuous.language.functions import AGGREGATES, SCALARS, SYNONYMS, call_scalar, match_pattern
from hypergrid.continuous.language.scope import Scope
from hypergrid.continuous.language.syntax import QueryClause, name_span, query_in, span_of

DEEPEST: Final = 200
"""Levels of an expression, at most."""

_COMPARISONS: Final[Mapping[type[exp.Expr], str]] = {
    exp.EQ: "equal",
    exp.NEQ: "unequal",
    exp.LT: "less",
    exp.LTE: "less_equal",
    exp.GT: "greater",
    exp.GTE: "greater_equal",
}
_SUMS: Final[Mapping[type[exp.Expr], str]] = {exp.Add: "add", exp.Sub: "subtract"}
_PRODUCTS: Final[Mapping[type[exp.Expr], str]] = {exp.Mul: "multiply", exp.Div: "divide", exp.Mod: "modulo"}

_UNSUPPORTED: Final[Mapping[type[exp.Expr], str]] = {
    exp.Cast: "types are not cast; write to_number(x), or an instant in quotes",
    exp.Interval: "write a duration in quotes: '10 minutes'",
    exp.Window: "Over is no part of CQL; windows stand in brackets after a stream",
    exp.DPipe: "texts are not joined",
    exp.ILike: "write lower(x) Like 'pattern in lower case'",
    exp.Escape: "patterns of Like have no escape character; write regex(x, 'pattern'), in which a backslash escapes",
    exp.Any: "Any is no part of CQL; compare with (Select min(…) …) or (Select max(…) …)",
    exp.All: "All is no part of CQL; compare with (Select min(…) …) or (Select max(…) …)",
    exp.Exists: "Exists is no part of CQL; write In (Select …)",
    exp.Bracket: "a window in brackets stands after a stream in From",
    exp.Concat: "texts are not joined",
    exp.Star: "* stands alone in a select list or in count(*)",
    exp.Tuple: "a row of values stands before In (Select …) only",
    exp.Placeholder: "a query has no parameters; write the value",
    exp.Parameter: "a query has no parameters; write the value",
    exp.IntDiv: "write floor(a / b)",
    exp.Alias: "a name after As stands in the select list only",
    exp.Distinct: "Distinct stands after Select, or in count(distinct x)",
}
"""Expressions of SQL that CQL does not have, with what to write instead."""


@dataclass(frozen=True)
class ScalarBinder:
    """Binder of expressions over one scope."""

    scope: Scope
    expand: Callable[[exp.Anonymous], exp.Expr | None]
    """Body of a function of the user with its arguments put in, None if there is no such function."""
    functions: tuple[str, ...]
    """Names of the functions of the user."""
    subquery: Callable[[QueryClause, Span | None], Expression] | None = None
    """What gives the value of a query in parentheses, None where there may be none."""
    aggregates: str = "an aggregate stands in the select list or in Having"
    """Message about an aggregate."""

    def bind(self, node: exp.Expr) -> Expression:
        """Return the bound expression.

        Raises
        ------
        Refusal
            A name is unknown, types or units do not go together, or it is no part of CQL.
        """
        if isinstance(node, exp.Paren) and query_in(node) is None:
            return self.bind(node.this)
        if isinstance(node, exp.Column):
            return self._column(node)
        if isinstance(node, exp.Literal):
            return _literal(node)
        if isinstance(node, exp.Boolean):
            return Constant(bool(node.this), "boolean")
        if isinstance(node, exp.Null):
            return Constant(None, "integer")
        if isinstance(node, exp.And | exp.Or):
            return self._connect(node)
        if (clause := query_in(node)) is not None:
            if self.subquery is None:
                raise Refusal(span_of(node), "a query is not expected in this expression; name it in From and join it")
            return self.subquery(clause, span_of(node))
        return self._operation(node)

    def condition(self, node: exp.Expr) -> Expression:
        """Return a bound condition."""
        return self._require_boolean(self.bind(node), span_of(node))

    def _operation(self, node: exp.Expr) -> Expression:
        kind = type(node)
        if isinstance(node, exp.Anonymous):
            return self.call(node)
        if kind in _COMPARISONS:
            left, right = self._pair(node)
            return Operation(_COMPARISONS[kind], units.match((left, right), _spans(node)), "boolean")
        if kind in _SUMS:
            return units.add(_SUMS[kind], *self._pair(node), _spans(node))
        if kind in _PRODUCTS:
            return units.multiply(_PRODUCTS[kind], *self._pair(node), _spans(node))
        if isinstance(node, exp.Not):
            return Operation("not", (self.condition(node.this),), "boolean")
        if isinstance(node, exp.Neg):
            return self._negate(node)
        if isinstance(node, exp.Is):
            return self._is(node)
        if isinstance(node, exp.Between):
            return self._between(node)
        if isinstance(node, exp.In):
            return self._in(node)
        if isinstance(node, exp.Like | exp.RegexpLike):
            name = "like" if isinstance(node, exp.Like) else "regex"
            test = match_pattern(name, self._pair(node), _spans(node))
            return Operation("not", (test,), "boolean") if node.args.get("negate") else test
        if isinstance(node, exp.Case):
            return self._case(node)
        raise Refusal(span_of(node), _UNSUPPORTED.get(kind, f"{kind.__name__} is no part of CQL"))

    def _pair(self, node: exp.Expr) -> tuple[Expression, Expression]:
        return self.bind(node.this), self.bind(node.args["expression"])

    def _column(self, node: exp.Column) -> Expression:
        if isinstance(node.this, exp.Star):
            raise Refusal(span_of(node), "* stands alone in a select list or in count(*)")
        if not node.table and self.scope.source_named(node.name) is not None:
            names = [attribute.name.lower() for attribute in self.scope.attributes]
            if node.name.lower() not in names:
                raise Refusal(
                    span_of(node),
                    f"{node.name!r} is a source, not a column; write one of its columns, or {node.name} In (Select …)",
                )
        return self.scope.resolve(node)

    def _connect(self, node: exp.Expr) -> Expression:
        # A long chain is a deep tree on its left side, so it is not walked by recursion.
        kind, parts, rest = type(node), [], node
        while isinstance(rest, kind):
            parts.append(rest.args["expression"])
            rest = rest.this
        arguments: list[Expression] = []
        name = "and" if kind is exp.And else "or"
        for part in (rest, *reversed(parts)):
            bound = self.condition(part)
            nested = isinstance(bound, Operation) and bound.name == name
            arguments += bound.arguments if nested else (bound,)  # type: ignore[union-attr]
        return Operation(name, tuple(arguments), "boolean")

    def _negate(self, node: exp.Neg) -> Expression:
        value, span = self.bind(node.this), span_of(node)
        units.require_number(value, span)
        if isinstance(value, Constant) and isinstance(value.value, int | float):
            return Constant(-value.value, value.kind, value.unit)
        return Operation("negate", (value,), value.kind, value.unit)

    def _is(self, node: exp.Is) -> Expression:
        value = self.bind(node.this)
        other = node.args["expression"]
        if isinstance(other, exp.Null):
            return Operation("is_null", (value,), "boolean")
        if isinstance(other, exp.Boolean):
            self._require_boolean(value, span_of(node))
            known = Operation("coalesce", (value, Constant(not other.this, "boolean")), "boolean")
            return known if other.this else Operation("not", (known,), "boolean")
        raise Refusal(span_of(node), "Is needs Null, True or False; write = for other values")

    def _between(self, node: exp.Between) -> Expression:
        if node.args.get("symmetric"):
            raise Refusal(span_of(node), "write the lower limit first, without Symmetric")
        low, high = node.args["low"], node.args.get("high")
        if low is None or high is None:
            raise Refusal(span_of(node), "Between needs two limits: x Between 1 And 2")
        parts = tuple(self.bind(part) for part in (node.this, low, high))
        value, lowest, highest = units.match(parts, tuple(span_of(part) for part in (node.this, low, high)))
        lower = Operation("greater_equal", (value, lowest), "boolean")
        return Operation("and", (lower, Operation("less_equal", (value, highest), "boolean")), "boolean")

    def _in(self, node: exp.In) -> Expression:
        if any(query_in(part) is not None for part in node.expressions):
            raise Refusal(span_of(node), "In (Select …) stands in Where, alone or joined by And")
        if isinstance(node.this, exp.Tuple):
            raise Refusal(span_of(node), "a row of values stands before In (Select …) only; write a = 1 And b = 2")
        if not node.expressions:
            raise Refusal(span_of(node), "In needs a list in parentheses: x In (1, 2)")
        nodes = (node.this, *node.expressions)
        parts = units.match(tuple(self.bind(part) for part in nodes), tuple(span_of(part) for part in nodes))
        if all(isinstance(part, Constant) for part in parts[1:]):
            return Operation("in", parts, "boolean")
        equal = tuple(Operation("equal", (parts[0], part), "boolean") for part in parts[1:])
        return Operation("or", equal, "boolean") if len(equal) > 1 else equal[0]

    def _case(self, node: exp.Case) -> Expression:
        conditions, values = [], []
        for branch in node.args["ifs"]:
            test = branch.this if node.this is None else exp.EQ(this=node.this, expression=branch.this)
            conditions.append(self.condition(test))
            values.append(branch.args["true"])
        spans = [span_of(value) for value in values]
        bound = [self.bind(value) for value in values]
        rest = node.args.get("default")
        bound.append(Constant(None, "integer") if rest is None else self.bind(rest))
        spans.append(None if rest is None else span_of(rest))
        try:
            matched = units.match(tuple(bound), tuple(spans))
        except Refusal as error:
            kinds = dict.fromkeys(units.describe(part) for part in bound if not units.is_null(part))
            problem = f"the values of Case need one kind; got {', '.join(kinds)}: {error.problem}"
            raise Refusal(error.span, problem) from error
        arguments: list[Expression] = []
        for condition, value in zip(conditions, matched, strict=False):
            arguments += (condition, value)
        return Operation("case", (*arguments, matched[-1]), matched[-1].kind, matched[-1].unit)

    def call(self, node: exp.Anonymous) -> Expression:
        """Return the call of a scalar function."""
        name = node.name.lower()
        if (body := self.expand(node)) is not None:
            return self.bind(body)
        if name in AGGREGATES:
            raise Refusal(span_of(node), self.aggregates)
        if name not in SCALARS:
            if name in SYNONYMS:
                raise Refusal(name_span(node), f"unknown function {node.name!r}; write {SYNONYMS[name]}")
            names = (*SCALARS, *AGGREGATES, *self.functions)
            raise Refusal(name_span(node), f"unknown function {node.name!r}{suggest_name(node.name, names)}")
        parts = tuple(self.bind(part) for part in node.expressions)
        return call_scalar(name, parts, tuple(span_of(part) for part in node.expressions), span_of(node))

    @staticmethod
    def _require_boolean(bound: Expression, span: Span | None) -> Expression:
        if bound.kind == "boolean":
            return bound
        if units.is_null(bound):
            return Constant(None, "boolean")
        raise Refusal(span, f"a condition is needed; got {'an' if bound.kind == 'integer' else 'a'} {bound.kind}")


def _spans(node: exp.Expr) -> tuple[Span | None, Span | None]:
    return span_of(node.this), span_of(node.args["expression"])


def _literal(node: exp.Literal) -> Constant:
    text = str(node.this)
    if node.is_string:
        return Constant(text, "text")
    kind: Kind = "integer" if text.isdigit() else "number"
    if kind == "integer" and int(text) < 2**63:
        return Constant(int(text), "integer")
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise Refusal(span_of(node), f"{text!r} is no number of 64 bits")
    return Constant(value, "number")


def check_depth(node: exp.Expr) -> None:
    """Refuse an expression of more levels than `DEEPEST`; chains of And and Or count as one level."""
    below: list[tuple[exp.Expr, int]] = [(node, 0)]
    while below:
        part, depth = below.pop()
        if depth > DEEPEST:
            raise Refusal(span_of(part), f"the expression has more than {DEEPEST} levels; shorten it")
        for child in part.iter_expressions():
            is_chain = isinstance(part, exp.And | exp.Or) and type(child) is type(part)
            below.append((child, depth if is_chain else depth + 1))
