"""Kept rows: a relation whose rows are found by their values when they are removed, and referred to by slot."""

from collections.abc import Sequence

import numpy as np

from hypergrid.continuous.engine.batch import Elements, make_order
from hypergrid.continuous.engine.evaluation import ExpressionEvaluator
from hypergrid.continuous.engine.kernels.bags import NONE, keep_rows
from hypergrid.continuous.engine.operators.base import Needs, StepOperator
from hypergrid.continuous.engine.row_store import RowStore
from hypergrid.continuous.engine.row_table import RowTable, pack
from hypergrid.continuous.records import RowNotHeld


class Keep(StepOperator):
    """Rows of a relation, each in a slot; of equal rows the oldest is removed first."""

    STATE = (*StepOperator.STATE, "_rows", "_table", "_ends", "_following", "_number")

    def __init__(self, below: StepOperator, needs: Needs, evaluator: ExpressionEvaluator) -> None:
        super().__init__(below.attributes, evaluator)
        self.unique = below.unique
        self.order_width = 2 if needs.order else 0
        self._positions = sorted(needs.columns)
        self._rows = RowStore(below.attributes, needs.columns, self.order_width)
        self.store = self._rows
        self._table = RowTable(len(self._positions))
        self._ends = np.empty((0, 2), np.int64)
        self._following = np.empty(0, np.int64)
        self._number = 0

    def process(self, inputs: Sequence[Elements], heartbeat: int) -> Elements:
        """Return the changes of the relation, with slots."""
        elements = inputs[0]
        columns = [elements.column(position) for position in self._positions]
        numbers = self._table.intern(pack(columns, len(elements)))
        signs = elements.signs()
        added = np.flatnonzero(signs > 0)
        fresh = self._rows.allocate(len(added))
        if self.order_width:
            # The order of rows that enter: by instant, then as they come.
            order = make_order(elements.tau, self._number)
            self._number += len(elements)
            elements = elements.relabel(elements.sign, order)
        self._rows.write(fresh, elements.take(added))
        self._make_room()
        slots = np.empty(len(elements), np.int64)
        done = keep_rows(self._ends, self._following, numbers, signs, fresh, slots)
        if done < len(elements):
            raise RowNotHeld(f"a row was removed at {elements.tau[done]} ns before it was there")
        removed = signs < 0
        self._rows.release(slots[removed])
        left = numbers[removed]
        self._table.release(left[self._ends[left, 0] == NONE])
        return self._rows.refer(elements.tau, elements.sign, slots)

    def _make_room(self) -> None:
        if len(self._ends) < self._table.capacity:
            ends = np.full((self._table.capacity, 2), NONE)
            ends[: len(self._ends)] = self._ends
            self._ends = ends
        if len(self._following) < self._rows.capacity:
            following = np.full(self._rows.capacity, NONE)
            following[: len(self._following)] = self._following
            self._following = following
