"""Membership: rows by the number of their matches among the rows of another relation."""

from collections.abc import Sequence

import numpy as np

from hypergrid.continuous.algebra import DistinctOf, FilterOf, JoinOf, MembershipOf
from hypergrid.continuous.engine.batch import Elements
from hypergrid.continuous.engine.evaluation import ExpressionEvaluator
from hypergrid.continuous.engine.kernels.bags import EXCEPT, INTERSECT
from hypergrid.continuous.engine.operators.bags import BagChanges
from hypergrid.continuous.engine.operators.base import StepOperator
from hypergrid.continuous.engine.row_store import refer_to
from hypergrid.continuous.expressions import Expression, Operation, Reference


def _any_null(parts: Sequence[Expression]) -> Expression:
    return Operation("or", tuple(Operation("is_null", (part,), "boolean") for part in parts), "boolean")


def _not(predicate: Expression) -> Expression:
    return Operation("not", (predicate,), "boolean")


def joins_of(operator: MembershipOf) -> tuple[JoinOf, ...]:
    """Return joins of the rows with those that decide: equal ones, and for ``Not In`` those that may be equal.

    Equal rows are found by an index; only rows with a NULL are compared with all.
    """
    attributes = operator.other.attributes
    width = len(operator.input.attributes)
    others = [Reference(position, attribute) for position, attribute in enumerate(attributes)]
    joined = [Reference(width + position, attribute) for position, attribute in enumerate(attributes)]
    pairs = list(zip(operator.values, joined, strict=True))
    other = DistinctOf(operator.other)
    equal = tuple(Operation("equal", pair, "boolean") for pair in pairs)
    by_value = JoinOf((operator.input, other), Operation("and", equal, "boolean"))
    if not operator.is_negated:
        return (by_value,)
    may_be_equal = Operation(
        "and",
        tuple(Operation("or", (Operation("equal", pair, "boolean"), _any_null(pair)), "boolean") for pair in pairs),
        "boolean",
    )
    has_null, other_has_null = _any_null(operator.values), _any_null(others)
    return (
        by_value,
        JoinOf((FilterOf(operator.input, has_null), other), may_be_equal),
        JoinOf((FilterOf(operator.input, _not(has_null)), FilterOf(other, other_has_null)), may_be_equal),
    )


class Membership(StepOperator):
    """Rows with, or without, a match; the inputs are the rows themselves, then joins that refer to their slots."""

    STATE = (*StepOperator.STATE, "_bags")

    def __init__(self, operator: MembershipOf, below: StepOperator, evaluator: ExpressionEvaluator) -> None:
        super().__init__(operator.attributes, evaluator)
        self.store, self.order_width = below.store, below.order_width
        self._bags = BagChanges(EXCEPT if operator.is_negated else INTERSECT)

    def process(self, inputs: Sequence[Elements], heartbeat: int) -> Elements:
        """Return the changes of the rows with, or without, a match."""
        tau = np.concatenate([part.tau for part in inputs])
        sign = np.concatenate([part.signs() for part in inputs])
        slot = np.concatenate([part.slots for part in inputs if part.slots is not None])
        side = np.concatenate([np.full(len(part), int(number > 0), np.int8) for number, part in enumerate(inputs)])
        by_time = np.argsort(tau, kind="stable")
        tau, sign, slot, side = tau[by_time], sign[by_time], slot[by_time], side[by_time]
        assert self.store is not None
        change = self._bags.change(slot, side, sign, self.store.capacity)
        shown = np.flatnonzero(change)
        return refer_to(self.store, tau[shown], change[shown], slot[shown], len(self.attributes))
