"""Distinct rows, differences and intersections of bags, and net changes."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from hypergrid.continuous.algebra import BagOf, DistinctOf
from hypergrid.continuous.engine.batch import EMPTY, Elements, Integers, Signs, concatenate, list_positions
from hypergrid.continuous.engine.evaluation import ExpressionEvaluator
from hypergrid.continuous.engine.kernels.bags import (
    DISTINCT,
    EXCEPT,
    FEW,
    INTERSECT,
    NetElements,
    NetOutput,
    change_bags,
    net_changes,
)
from hypergrid.continuous.engine.operators.base import StepOperator
from hypergrid.continuous.engine.row_table import RowTable, pack
from hypergrid.continuous.engine.state import Stateful

LEAST: Final = 2048
"""Elements from which on it pays to look only at the instants at which some leave, if these are few."""
FORMS: Final = {"except": EXCEPT, "intersect": INTERSECT}


class BagChanges(Stateful):
    """Multiplicities of numbered rows in one or two bags, and in the bag that is computed of them."""

    STATE = ("counts",)

    def __init__(self, form: int) -> None:
        self._form = form
        self.counts = np.zeros((64, 2), np.int64)

    def change(self, numbers: Integers, side: np.ndarray, sign: np.ndarray, capacity: int) -> np.ndarray:
        """Return what each element changes in the computed bag: +1, -1 or 0 rows."""
        if len(self.counts) < capacity:
            counts = np.zeros((capacity, 2), np.int64)
            counts[: len(self.counts)] = self.counts
            self.counts = counts
        out = np.empty(len(numbers), np.int8)
        change_bags(self.counts, numbers, side, sign, self._form, out)
        return out


class Bags(StepOperator):
    """Rows by their multiplicity in one or two inputs."""

    STATE = (*StepOperator.STATE, "_bags", "_table")

    def __init__(self, operator: DistinctOf | BagOf, evaluator: ExpressionEvaluator) -> None:
        super().__init__(operator.attributes, evaluator)
        self._form = DISTINCT if isinstance(operator, DistinctOf) else FORMS[operator.form]
        self._bags = BagChanges(self._form)
        self._table = RowTable(len(self.attributes))
        self._all = tuple(range(len(self.attributes)))

    def process(self, inputs: Sequence[Elements], heartbeat: int) -> Elements:
        """Return the changes of the computed bag."""
        elements = concatenate(inputs, self._all)
        if not len(elements):
            return elements
        side = np.zeros(len(elements), np.int8)
        if len(inputs) > 1 and len(inputs[1]):
            # As `concatenate` does: in order of time, the left first.
            which_side = np.repeat(np.array([0, 1], np.int8), [len(part) for part in inputs])
            side = which_side[np.argsort(np.concatenate([part.tau for part in inputs]), kind="stable")]
        numbers = self._table.intern(pack([elements.column(position) for position in self._all], len(elements)))
        change = self._bags.change(numbers, side, elements.signs(), self._table.capacity)
        removed = numbers[elements.signs() < 0]
        self._table.release(removed[(self._bags.counts[removed] == 0).all(axis=1)])
        shown = np.flatnonzero(change)
        kept = elements.take(shown)
        return kept.relabel(change[shown])


class Netting:
    """Net changes at each instant, of rows given by some columns."""

    def __init__(self, width: int) -> None:
        self._table = RowTable(width)
        self._count = np.zeros(64, np.int64)

    def apply(self, elements: Elements, positions: Sequence[int], sign: int = 0) -> Elements:
        """Return the rows that leave and enter at each instant, or those of one sign; equal rows do not do both."""
        if not len(elements) or elements.sign is None or elements.sign[elements.sign.argmin()] > 0:
            # Rows that enter only are net.
            return elements if sign >= 0 else elements.take(EMPTY)
        if sign > 0 and len(elements) >= LEAST:
            leaving = np.flatnonzero(elements.sign < 0)
            if 8 * len(leaving) <= len(elements):
                return self._take_entering(elements, positions, leaving)
        element, signs = self._net(elements, positions, sign)
        kept = elements.take(element)
        return kept.relabel(signs, kept.order)

    def _take_entering(self, elements: Elements, positions: Sequence[int], leaving: Integers) -> Elements:
        """Return the rows that enter, where few leave: only their instants are looked at."""
        tau = elements.tau
        instants = tau.take(leaving)
        instants = instants[np.append(True, instants[1:] != instants[:-1])]
        starts, stops = tau.searchsorted(instants), tau.searchsorted(instants, side="right")
        rows = list_positions(starts, stops)
        element, _ = self._net(elements.take(rows), positions, 1)
        kept = np.ones(len(tau), np.bool_)
        kept[rows] = False
        kept[rows[element]] = True
        return elements.take(np.flatnonzero(kept))

    def _net(self, elements: Elements, positions: Sequence[int], sign: int) -> tuple[Integers, Signs]:
        """Return an element with each row that leaves or enters, or only with those of a sign, and their signs."""
        count = len(elements)
        rows = pack([elements.column(position) for position in positions], count)
        self._make_room(count)
        numbers, first = np.empty(count, np.int64), np.empty(count, np.int64)
        numbers.fill(-1)
        given = NetElements(elements.tau, elements.signs(), rows, numbers, self._count, first)
        out = NetOutput(np.empty(count, np.int64), np.empty(count, np.int8))
        written = net_changes(given, out, sign)
        if written < 0:
            self._number(given)
            written = net_changes(given._replace(counts=self._count), out, sign)
        return out.element[:written], out.sign[:written]

    def _number(self, elements: NetElements) -> None:
        """Give numbers to the rows of instants with many elements."""
        tau, count = elements.tau, len(elements.tau)
        starts = np.flatnonzero(np.append(True, tau[1:] != tau[:-1]))
        sizes = np.diff(np.append(starts, count))
        crowded = np.flatnonzero(np.repeat(sizes > FEW, sizes))
        elements.number[crowded] = count + self._table.intern(elements.rows[crowded])
        self._table.clear()
        self._make_room(count + self._table.capacity)

    def _make_room(self, count: int) -> None:
        if len(self._count) < count:
            self._count = np.zeros(count, np.int64)
