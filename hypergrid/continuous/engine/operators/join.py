"""Join of n inputs: elements probe the indexes of the others in order of time, each to completion."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from functools import reduce
from typing import Final

import numpy as np

from hypergrid.continuous.algebra import JoinOf
from hypergrid.continuous.engine.batch import Column, Elements, Integers, bits_of, has_null, make_order, null_mask
from hypergrid.continuous.engine.evaluation import ExpressionEvaluator
from hypergrid.continuous.engine.kernels import join as kernel
from hypergrid.continuous.engine.kernels.grid import NO_CELL, cells_of
from hypergrid.continuous.engine.operators.base import Needs, StepOperator
from hypergrid.continuous.engine.row_store import HeldColumns
from hypergrid.continuous.engine.state import State
from hypergrid.continuous.expressions import positions
from hypergrid.continuous.join_plan import GridPoint, InputPlan, JoinPlan, plan_join
from hypergrid.core.errors import InvalidQuery

ROOM: Final = 65536
"""Combinations that the loop writes before it returns."""
CELLS: Final = 64
"""Cells of an index at first."""


class JoinedRows:
    """Combinations of rows: for each input the columns by slot, or those of the elements at hand."""

    def __init__(self, stores: Sequence[HeldColumns | Elements], first: Sequence[int]) -> None:
        self._stores, self._first = stores, first

    def refer(self, tau: Integers, sign: Column | None, slots: Integers, width: int) -> Elements:
        """Return elements for combinations, slots of shape (inputs, n)."""

        def gather(position: int) -> Column:
            number = bisect_right(self._first, position) - 1
            # Inputs without attributes share their first position with the next; none of theirs is asked for.
            return np.asarray(self._stores[number].column(position - self._first[number])[slots[number]])

        return Elements(tau, sign, width, gather)


class Join(StepOperator):
    """Combinations of rows of all inputs for which a predicate is true."""

    STATE = (*StepOperator.STATE, "_number", "_capacities", "_room")

    def __init__(
        self, operator: JoinOf, parts: Sequence[StepOperator], needs: Needs, evaluator: ExpressionEvaluator
    ) -> None:
        super().__init__(operator.attributes, evaluator)
        self._parts = parts
        # An operator above asks for the slots of the first input.
        self._gives_slots = needs.slots
        self._is_leaving_read = int(needs.leaving)
        self._plan = plan_join(operator)
        self._compared = list_compared(self._plan, needs.compared or frozenset())
        self._passing = [part.is_stream for part in operator.inputs]
        self._is_stream = operator.is_stream
        self._needs_order = needs.order
        if needs.order:
            self.order_width = 2 if self._is_stream else 1 + sum(part.order_width - 1 for part in parts)
        self._number = 0
        self._first = [plan.first for plan in self._plan.inputs]
        self._most_keys = max(1, *(plan.width for plan in self._plan.inputs))
        self._capacities = [1] * len(parts)
        self._join = self._make_state()
        self._room = ROOM

    def _make_state(self) -> kernel.JoinArrays:
        plan = self._plan
        count = len(plan.inputs)
        inputs = np.zeros((count, kernel.INPUT_WORDS), np.int64)
        indexes = np.zeros((len(plan.indexes), kernel.INDEX_WORDS), np.int64)
        parts: list[int] = []
        for number, part in enumerate(plan.inputs):
            own = [index for index, (owner, _) in enumerate(plan.indexes) if owner == number]
            stride = part.width + 2 * len(own)
            first_index = own[0] if own else 0
            inputs[number] = (0, stride, part.width, first_index, len(own), int(self._passing[number]))
        for index, (owner, keys) in enumerate(plan.indexes):
            link = plan.inputs[owner].width + 2 * (index - int(inputs[owner, kernel.FIRST_INDEX]))
            indexes[index] = (owner, 2 * CELLS * index, CELLS - 1, 0, link, len(keys), len(parts))
            parts += keys
        ordered = [step for steps_of_input in plan.steps for step in steps_of_input]
        steps = np.zeros((len(ordered), kernel.STEP_WORDS), np.int64)
        sources: list[tuple[int, int]] = []
        for number, step in enumerate(ordered):
            steps[number, : kernel.CHAIN] = (step.probed, step.index, len(sources))
            steps[number, kernel.IS_NEAR] = int(step.link is not None)
            sources += step.sources
        state = kernel.JoinArrays(
            np.zeros(0, np.int64),
            np.zeros(2 * CELLS * len(plan.indexes), np.int64),
            inputs,
            indexes,
            np.array(parts, np.int64),
            steps,
            np.array(sources, np.int64).reshape(len(sources), 2),
            np.zeros(count, np.int64),
            np.zeros(count, np.int64),
            np.array(self._compared, np.int64),
            np.zeros((kernel.COMPARED_ELEMENTS, 2), np.int64),
        )
        state = self._place_records(state, self._capacities)
        self._describe_steps(state)
        return state

    @staticmethod
    def _describe_steps(state: kernel.JoinArrays) -> None:
        """Write to the steps where their chains, tables and keys are."""
        inputs, indexes, steps = state.inputs, state.indexes, state.steps
        probed, number = steps[:, kernel.PROBED], steps[:, kernel.INDEX]
        steps[:, kernel.CHAIN] = inputs[probed, kernel.RECORD] + indexes[number, kernel.LINK]
        steps[:, kernel.CHAIN_STRIDE] = inputs[probed, kernel.STRIDE]
        steps[:, kernel.CELLS] = indexes[number, kernel.TABLE]
        steps[:, kernel.CELL_MASK] = indexes[number, kernel.MASK]
        is_near = steps[:, kernel.IS_NEAR] != 0
        steps[:, kernel.COUNT] = np.where(is_near, -1, 1) * indexes[number, kernel.PARTS]
        single = steps[:, kernel.COUNT] == 1
        source = state.sources[steps[single, kernel.FIRST_SOURCE]]
        steps[single, kernel.BOUND] = source[:, 0]
        steps[single, kernel.KEY] = inputs[source[:, 0], kernel.RECORD] + source[:, 1]
        steps[single, kernel.KEY_STRIDE] = inputs[source[:, 0], kernel.STRIDE]

    @staticmethod
    def _place_records(state: kernel.JoinArrays, capacities: Sequence[int]) -> kernel.JoinArrays:
        """Return a state with room for more records."""
        old, starts = state.records, state.inputs[:, kernel.RECORD].copy()
        sizes = state.inputs[:, kernel.STRIDE] * np.array(capacities, np.int64)
        stops = np.append(starts[1:], len(old))
        state.inputs[:, kernel.RECORD] = np.cumsum(sizes) - sizes
        records = np.zeros(int(sizes.sum()), np.int64)
        for start, stop, to in zip(starts, stops, state.inputs[:, kernel.RECORD], strict=True):
            records[to : to + max(stop - start, 0)] = old[start : max(stop, start)]
        return state._replace(records=records)

    def save(self) -> State:
        join = self._join
        cells = [self._cells_of(index) for index in range(len(join.indexes))]
        held = [part[part[:, 1] > 0] for part in cells]
        return {**super().save(), "records": join.records, "inputs": join.inputs, "indexes": join.indexes, "held": held}

    def load(self, state: State) -> None:
        if _form_of(state["inputs"], state["indexes"]) != _form_of(self._join.inputs, self._join.indexes):
            raise InvalidQuery("the state of a join is that of another program; evaluate the query again")
        super().load(state)
        tables = np.zeros(2 * int((state["indexes"][:, kernel.MASK] + 1).sum()), np.int64)
        self._join = self._join._replace(
            records=state["records"], tables=tables, inputs=state["inputs"], indexes=state["indexes"]
        )
        for index, cells in enumerate(state["held"]):
            kernel.refill_index(self._join, index, cells.reshape(-1))
        self._describe_steps(self._join)

    def _cells_of(self, index: int) -> Integers:
        """Return the cells of an index, shape (cells, 2)."""
        table, cells = self._join.indexes[index, kernel.TABLE], self._join.indexes[index, kernel.MASK] + 1
        return self._join.tables[table : table + 2 * cells].reshape(-1, 2)

    def _make_room(self) -> None:
        capacities = [
            1 if is_passing else max(1, 0 if part.store is None else part.store.capacity)
            for part, is_passing in zip(self._parts, self._passing, strict=True)
        ]
        if capacities != self._capacities:
            self._join = self._place_records(self._join, capacities)
            self._describe_steps(self._join)
            self._capacities = capacities

    def _grow_indexes(self, arriving: int) -> None:
        """Make all indexes of an input at most a quarter full."""
        for index in np.flatnonzero(self._join.indexes[:, kernel.OWNER] == arriving):
            state = self._join
            table, cells = state.indexes[index, kernel.TABLE], int(state.indexes[index, kernel.MASK]) + 1
            held = state.tables[table : table + 2 * cells].copy()
            alive = int((held[1::2] > 0).sum())
            size = cells
            while 4 * (alive + 1) > size:
                size *= 2
            added = 2 * (size - cells)
            tables = np.concatenate(
                [state.tables[:table], np.zeros(2 * size, np.int64), state.tables[table + 2 * cells :]]
            )
            behind = state.indexes[:, kernel.TABLE] > table
            state.indexes[behind, kernel.TABLE] += added
            state.indexes[index, kernel.MASK] = size - 1
            self._join = state._replace(tables=tables)
            kernel.refill_index(self._join, int(index), held)
        self._describe_steps(self._join)

    def _select(self, plan: InputPlan, elements: Elements) -> tuple[Elements, list[Integers]]:
        """Return the elements that can match, and their keys."""
        cells = [self._cells(point, elements) for point in plan.points]
        keys = [self.evaluator.value(key, elements) for key in plan.keys]
        if len(elements):
            masks = [self.evaluator.truth(part, elements) for part in plan.filters]
            masks += [
                ~null_mask(values, key.kind)
                for key, values in zip(plan.keys, keys, strict=True)
                if has_null(values, key.kind)
            ]
            masks += [part != NO_CELL for part in cells]
            if masks:
                kept = reduce(np.logical_and, masks)
                if not kept.all():
                    rows = np.flatnonzero(kept)
                    elements = elements.take(rows)
                    cells, keys = [part[rows] for part in cells], [part[rows] for part in keys]
        return elements, [*map(bits_of, keys), *cells]

    def _cells(self, point: GridPoint, elements: Elements) -> Integers:
        """Return the cell of a point of each element."""
        lon, lat = (self.evaluator.value(part, elements) for part in (point.lon, point.lat))
        return cells_of(lon, lat, point.edge_m)

    def process(self, inputs: Sequence[Elements], heartbeat: int) -> Elements:
        """Return the changes of combinations."""
        selected = [self._select(plan, part) for plan, part in zip(self._plan.inputs, inputs, strict=True)]
        elements = [part for part, _ in selected]
        self._make_room()
        stops = np.cumsum([len(part) for part in elements])
        ends = np.empty((len(elements), 2), np.int64)
        ends[0, 0], ends[1:, 0], ends[:, 1] = 0, stops[:-1], stops
        tau = np.concatenate([part.tau for part in elements])
        sign = np.concatenate([part.signs() for part in elements])
        slot = np.concatenate(
            [
                np.zeros(len(part), np.int64) if is_passing else _slots_of(part)
                for part, is_passing in zip(elements, self._passing, strict=True)
            ]
        )
        keys = np.empty((len(tau), self._most_keys), np.int64)
        for (_, own), (start, stop) in zip(selected, ends.tolist(), strict=True):
            for number, values in enumerate(own):
                keys[start:stop, number] = values
        sources: list[HeldColumns | Elements] = []
        for part, operator, is_passing in zip(elements, self._parts, self._passing, strict=True):
            assert is_passing or operator.store is not None
            sources.append(part if is_passing or operator.store is None else operator.store)
        combinations = JoinedRows(sources, self._first)
        element, slots = self._combine(kernel.JoinElements(tau, sign, slot, keys, ends), combinations)
        result = combinations.refer(
            tau[element], None if self._is_stream else sign[element], slots, len(self.attributes)
        )
        if self._gives_slots:
            result.slots = slots[0]
        return self._give_order(result, sources, slots) if self._needs_order else result

    def _combine(self, given: kernel.JoinElements, combinations: JoinedRows) -> tuple[Integers, Integers]:
        """Return elements and slots of the combinations for which all of the predicate is true."""
        count = len(self._parts)
        starts = given.ends[:, 0].copy()
        parts: list[tuple[Integers, Integers]] = []
        reason = kernel.OUTPUT_FULL
        while reason != kernel.DONE:
            out = kernel.JoinOutput(np.empty(self._room, np.int64), np.empty((count, self._room), np.int64))
            reason, arriving, written = kernel.join_elements(
                self._join, given, out, self._is_leaving_read, int(len(parts) > 0)
            )
            element, slots = out.element[:written], out.slots[:, :written]
            for number, is_passing in enumerate(self._passing):
                # Rows of a stream are referred to by their position among the elements at hand.
                if is_passing:
                    slots[number] = element - starts[number]
            if self._plan.rest and written:
                candidates = combinations.refer(given.tau[element], None, slots, len(self.attributes))
                masks = [self.evaluator.truth(part, candidates) for part in self._plan.rest]
                kept = np.flatnonzero(reduce(np.logical_and, masks))
                element, slots = element[kept], slots.take(kept, axis=1)
            parts.append((element, slots))
            if reason == kernel.INDEX_FULL:
                self._grow_indexes(arriving)
            elif reason == kernel.OUTPUT_FULL and not written:
                self._room *= 2
        if len(parts) == 1:
            return parts[0]
        return np.concatenate([element for element, _ in parts]), np.concatenate([slots for _, slots in parts], axis=1)

    def _give_order(self, elements: Elements, sources: Sequence[HeldColumns | Elements], slots: Integers) -> Elements:
        """Return combinations with their order: the greatest stamp, then the orders of the parts from left to right."""
        parts = []
        for number, source in enumerate(sources):
            order = source.order if isinstance(source, Elements) else source.order()
            assert order is not None
            parts.append(order[slots[number]])
        stamp = reduce(np.maximum, [part[:, 0] for part in parts])
        order = np.column_stack([stamp, *(part[:, 1:] for part in parts)])
        if self._is_stream:
            keys = [order[:, column] for column in range(order.shape[1] - 1, -1, -1)]
            elements = elements.take(np.lexsort([*keys, elements.tau]))
            order = make_order(elements.tau, self._number)
            self._number += len(elements)
        return Elements(elements.tau, elements.sign, elements.width, elements.column, order)


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


def _form_of(inputs: Integers, indexes: Integers) -> tuple[list[list[int]], list[list[int]]]:
    """Return what the plan of a join decides of its arrays."""
    of_inputs = inputs[:, [kernel.STRIDE, kernel.KEYS, kernel.INDEXES]]
    return of_inputs.tolist(), indexes[:, [kernel.OWNER, kernel.LINK, kernel.PARTS]].tolist()


def _slots_of(elements: Elements) -> Integers:
    if elements.slots is None:
        raise AssertionError("elements of a joined relation need slots")
    return elements.slots
