"""Join of n inputs: elements probe the indexes of the others in order of time, each to completion."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from functools import reduce
from typing import Final

import numpy as np

from hypergrid.continuous.algebra import JoinOf
from hypergrid.continuous.engine.batch import Column, Elements, Integers, bits_of, make_order, pick
from hypergrid.continuous.engine.evaluation import ExpressionEvaluator
from hypergrid.continuous.engine.join_store import JoinStore
from hypergrid.continuous.engine.kernels import join as kernel
from hypergrid.continuous.engine.kernels.grid import cells_of
from hypergrid.continuous.engine.operators.base import Needs, StepOperator
from hypergrid.continuous.engine.operators.stateless import select_true
from hypergrid.continuous.engine.row_store import HeldColumns
from hypergrid.continuous.engine.state import State
from hypergrid.continuous.expressions import positions
from hypergrid.continuous.join_plan import InputPlan, JoinPlan, plan_join

ROOM: Final = 65536
"""Combinations that the loop writes before it returns."""


class JoinedRows:
    """Combinations of rows: for each input the columns by slot, or those of the elements at hand."""

    def __init__(self, stores: Sequence[HeldColumns | Elements], first: Sequence[int]) -> None:
        self._stores, self._first = stores, first

    def refer(self, tau: Integers, sign: Column | None, slots: Integers, width: int) -> Elements:
        """Return elements for combinations, slots of shape (inputs, n)."""

        def gather(position: int) -> Column:
            number = bisect_right(self._first, position) - 1
            # Inputs without attributes share their first position with the next; none of theirs is asked for.
            return pick(self._stores[number].column(position - self._first[number]), slots[number])

        return Elements(tau, sign, width, gather)


class InputReader:
    """Selection of the elements of an input that can match, and their keys."""

    def __init__(self, plan: InputPlan, evaluator: ExpressionEvaluator) -> None:
        self._holds = evaluator.prepare_all(*plan.filters)
        self._keys = [evaluator.prepare_value(key) for key in plan.keys]
        self._points = [
            (evaluator.prepare_value(point.lon), evaluator.prepare_value(point.lat), point.edge_m)
            for point in plan.points
        ]

    def read(self, elements: Elements) -> tuple[Elements, list[Integers]]:
        """Return the elements for which the input's own predicates are true, and bits of their keys, then cells."""
        elements = select_true(self._holds, elements)
        keys = [bits_of(key(elements)) for key in self._keys]
        return elements, keys + [cells_of(lon(elements), lat(elements), edge) for lon, lat, edge in self._points]


class Join(StepOperator):
    """Combinations of rows of all inputs for which a predicate is true."""

    STATE = (*StepOperator.STATE, "_number", "_room")

    def __init__(
        self, operator: JoinOf, parts: Sequence[StepOperator], needs: Needs, evaluator: ExpressionEvaluator
    ) -> None:
        super().__init__(operator.attributes, evaluator)
        # An operator above asks for the slots of the first input.
        self._gives_slots = needs.slots
        self._plan = plan_join(operator)
        self._readers = [InputReader(part, evaluator) for part in self._plan.inputs]
        self._holds = evaluator.prepare_all(*self._plan.rest)
        self._passing = [number for number, part in enumerate(operator.inputs) if part.is_stream]
        self._stores = [
            None if part.is_stream else below.store for part, below in zip(operator.inputs, parts, strict=True)
        ]
        compared = list_compared(self._plan, needs.compared or frozenset())
        passing = [part.is_stream for part in operator.inputs]
        self._held = JoinStore(self._plan, passing, compared, is_leaving_read=needs.leaving)
        self._is_stream = operator.is_stream
        self._needs_order = needs.order
        if needs.order:
            self.order_width = 2 if self._is_stream else 1 + sum(part.order_width - 1 for part in parts)
        self._number = 0
        self._first = [plan.first for plan in self._plan.inputs]
        self._most_keys = max(1, *(plan.width for plan in self._plan.inputs))
        self._room = ROOM

    def save(self) -> State:
        return {**super().save(), **self._held.save()}

    def load(self, state: State) -> None:
        self._held.load(state)
        super().load(state)

    def process(self, inputs: Sequence[Elements], heartbeat: int) -> Elements:
        """Return the changes of combinations."""
        self._held.make_room([1 if store is None else max(1, store.capacity) for store in self._stores])
        # Of each input the elements, or those that enter; then those that leave, where the window below gives these.
        parts: list[Elements] = []
        sources: list[HeldColumns | Elements] = []
        slots_of_parts: list[Integers] = []
        runs: list[tuple[int, int, int]] = []
        is_mixed, stop = False, 0
        given = np.empty((kernel.FIRST_KEY + self._most_keys, sum(map(_count_all, inputs))), np.int64)
        for reader, store, part in zip(self._readers, self._stores, inputs, strict=True):
            entering = part.entering
            elements, keys = reader.read(part if entering is None else entering)
            start, stop = stop, stop + len(elements.tau)
            is_positive = elements.sign is None
            is_mixed = is_mixed or not is_positive
            runs.append((start, stop, int(is_positive)))
            for row, values in enumerate(keys, kernel.FIRST_KEY):
                given[row, start:stop] = values
            parts.append(elements)
            if store is None:
                sources.append(elements)
                slots_of_parts.append(np.zeros(len(elements.tau), np.int64))
            else:
                sources.append(store)
                slots_of_parts.append(_slots_of(elements))
            start = stop
            if entering is not None:
                stop += len(part.tau)
                parts.append(part)
                slots_of_parts.append(_slots_of(part))
            runs.append((start, stop, -1))
        np.concatenate([part.tau for part in parts], out=given[kernel.TAU, :stop])
        np.concatenate(slots_of_parts, out=given[kernel.SLOT_OF_ELEMENT, :stop])
        if is_mixed:
            np.concatenate([part.signs() for part in parts], out=given[kernel.SIGN_OF_ELEMENT, :stop])
        self._held.runs[:, : kernel.DUE] = runs
        combinations = JoinedRows(sources, self._first)
        element, sign, slots = self._combine(given, runs, combinations)
        tau, signs = given[kernel.TAU].take(element), None if self._is_stream else sign.astype(np.int8)
        result = combinations.refer(tau, signs, slots, len(self.attributes))
        if self._gives_slots:
            result.slots = slots[0]
        return self._give_order(result, sources, slots) if self._needs_order else result

    def _combine(
        self, given: Integers, runs: Sequence[tuple[int, int, int]], combinations: JoinedRows
    ) -> tuple[Integers, Integers, Integers]:
        """Return elements, signs and slots of the combinations for which all of the predicate is true."""
        parts: list[tuple[Integers, Integers, Integers]] = []
        reason = kernel.OUTPUT_FULL
        while reason != kernel.DONE:
            out = np.empty((kernel.FIRST_SLOT + len(self._plan.inputs), self._room), np.int64)
            reason, written = kernel.join_elements(*self._held.arrays, given, out)
            out = out[:, :written]
            element, sign, slots = out[kernel.ELEMENT], out[kernel.SIGN_OF_COMBINATION], out[kernel.FIRST_SLOT :]
            for number in self._passing:
                # Rows of a stream are referred to by their position among the elements at hand.
                slots[number] = element - runs[2 * number][0]
            if self._holds is not None and written:
                candidates = combinations.refer(given[kernel.TAU].take(element), None, slots, len(self.attributes))
                kept = self._holds(candidates).nonzero()[0]
                element, sign, slots = element.take(kept), sign.take(kept), slots.take(kept, axis=1)
            parts.append((element, sign, slots))
            if reason == kernel.TABLE_FULL:
                self._held.grow_table()
            elif reason == kernel.OUTPUT_FULL and not written:
                self._room *= 2
        if len(parts) == 1:
            return parts[0]
        elements, signs, all_slots = zip(*parts, strict=True)
        return np.concatenate(elements), np.concatenate(signs), np.concatenate(all_slots, axis=1)

    def _give_order(self, elements: Elements, sources: Sequence[HeldColumns | Elements], slots: Integers) -> Elements:
        """Return combinations with their order: the greatest stamp, then the orders of the parts from left to right."""
        parts = []
        for number, source in enumerate(sources):
            order = source.order if isinstance(source, Elements) else source.order()
            assert order is not None
            parts.append(order.take(slots[number], axis=0))
        stamp = reduce(np.maximum, [part[:, 0] for part in parts])
        order = np.column_stack([stamp, *(part[:, 1:] for part in parts)])
        if self._is_stream:
            keys = [order[:, column] for column in range(order.shape[1] - 1, -1, -1)]
            elements = elements.take(np.lexsort([*keys, elements.tau]))
            order = make_order(elements.tau, self._number)
            self._number += len(elements)
        return elements.relabel(elements.sign, order)


def list_compared(plan: JoinPlan, compared: frozenset[int]) -> list[tuple[int, int]]:
    """Return the key of each input that equal rows above the join have in common, and its class; -1 without one.

    Parameters
    ----------
    compared
        Attributes of the join that equal rows have in common.
    """
    # In a combination all keys of a class are equal, so one of them that is made of such attributes is enough.
    common = {
        number
        for part in plan.inputs
        for key, number in zip(part.keys, part.classes, strict=True)
        if {part.first + position for position in positions(key)} <= compared
    }
    # Inputs are compared with each other if their classes are the same.
    shares = Counter(number for part in plan.inputs for number in part.classes if number in common)
    chosen = [
        max(common & set(part.classes), key=lambda number: (shares[number], -number), default=-1)
        for part in plan.inputs
    ]
    return [
        (-1 if number < 0 else part.classes.index(number), number)
        for part, number in zip(plan.inputs, chosen, strict=True)
    ]


def _count_all(elements: Elements) -> int:
    """Return how many elements there are, with those that enter."""
    entering = elements.entering
    return len(elements.tau) + (0 if entering is None else len(entering.tau))


def _slots_of(elements: Elements) -> Integers:
    if elements.slots is None:
        raise AssertionError("elements of a joined relation need slots")
    return elements.slots
