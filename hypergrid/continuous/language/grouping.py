"""Expressions over groups: keys and aggregates, which may stand inside expressions."""

from collections.abc import Callable

from sqlglot import exp

from hypergrid.continuous.algebra import AggregateCall
from hypergrid.continuous.expressions import Attribute, Constant, Expression, Reference, positions
from hypergrid.continuous.language.errors import Refusal
from hypergrid.continuous.language.functions import AGGREGATES, call_aggregate
from hypergrid.continuous.language.scalar import ScalarBinder
from hypergrid.continuous.language.syntax import QueryNode, span_of


def is_aggregate(node: exp.Expr) -> bool:
    """Return whether a node is the call of an aggregate."""
    return isinstance(node, exp.Anonymous) and node.name.lower() in AGGREGATES


def has_aggregate(node: exp.Expr, expand: Callable[[exp.Anonymous], exp.Expr | None]) -> bool:
    """Return whether an aggregate is in an expression, also in a function of the user."""
    for part in node.walk():
        if is_aggregate(part):
            return True
        body = expand(part) if isinstance(part, exp.Anonymous) else None
        if body is not None and has_aggregate(body, expand):
            return True
    return False


class GroupedBinder(ScalarBinder):
    """Binder of expressions over rows of groups: the keys, then the aggregates in the order in which they occur."""

    def __init__(self, plain: ScalarBinder, keys: tuple[Expression, ...], key_names: tuple[str, ...]) -> None:
        super().__init__(plain.scope, plain.expand, plain.functions)
        object.__setattr__(self, "plain", plain)
        object.__setattr__(self, "keys", keys)
        object.__setattr__(self, "key_names", key_names)
        object.__setattr__(self, "calls", [])
        object.__setattr__(self, "call_names", [])

    plain: ScalarBinder
    keys: tuple[Expression, ...]
    key_names: tuple[str, ...]
    calls: list[AggregateCall]
    call_names: list[str]

    def bind(self, node: exp.Expr) -> Expression:
        """Return the bound expression; each column is in a key or inside an aggregate."""
        if isinstance(node, exp.Anonymous) and is_aggregate(node):
            return self._aggregate(node)
        if not has_aggregate(node, self.expand) and not any(isinstance(part, QueryNode) for part in node.walk()):
            bound = self.plain.bind(node)
            if bound in self.keys:
                index = self.keys.index(bound)
                return Reference(index, Attribute(self.key_names[index], bound.kind, bound.unit))
            if not positions(bound):
                return bound
        if isinstance(node, exp.Column):
            hint = "add it to Group By" if self.keys else "add Group By"
            raise Refusal(span_of(node), f"column {node.name!r} is neither in Group By nor inside an aggregate; {hint}")
        return super().bind(node)

    def _aggregate(self, node: exp.Anonymous) -> Expression:
        name, span = node.name.lower(), span_of(node)
        arguments = node.expressions
        if name == "count" and len(arguments) == 1 and isinstance(arguments[0], exp.Star):
            return self._keep(call_aggregate("count", None, 0.5, span), name)
        if not arguments or len(arguments) > (2 if name == "quantile" else 1):
            needed = "two arguments: quantile(x, 0.9)" if name == "quantile" else "one argument"
            raise Refusal(span, f"{name} needs {needed}; got {len(arguments)}")
        argument = arguments[0]
        is_distinct = isinstance(argument, exp.Distinct)
        if is_distinct:
            if name != "count" or len(argument.expressions) != 1:
                raise Refusal(span, "Distinct stands in count(distinct x) of one expression only")
            argument = argument.expressions[0]
        if any(is_aggregate(part) for part in argument.walk()):
            raise Refusal(span, "an aggregate cannot be inside another; write the inner one in a query in From")
        bound = self.plain.bind(argument)
        if is_distinct:
            return self._keep(AggregateCall("count_distinct", bound, "integer"), "count")
        return self._keep(call_aggregate(name, bound, self._share(node), span_of(argument)), name)

    def _share(self, node: exp.Anonymous) -> float:
        if node.name.lower() != "quantile":
            return 0.5
        if len(node.expressions) != 2:
            raise Refusal(span_of(node), "quantile needs two arguments: quantile(x, 0.9)")
        share = self.plain.bind(node.expressions[1])
        if not isinstance(share, Constant) or not isinstance(share.value, int | float) or not 0 <= share.value <= 1:
            raise Refusal(span_of(node.expressions[1]), "the share of a quantile needs a number from 0 to 1")
        return float(share.value)

    def _keep(self, call: AggregateCall, name: str) -> Reference:
        if call not in self.calls:
            self.calls.append(call)
            self.call_names.append(name)
        index = self.calls.index(call)
        return Reference(len(self.keys) + index, Attribute(self.call_names[index], call.kind, call.unit))
