"""Aggregates of groups."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from hypergrid.continuous.algebra import AggregateCall, AggregateOf
from hypergrid.continuous.engine.batch import PHYSICAL, Elements, Integers, bits_of, no_elements, null_bits
from hypergrid.continuous.engine.evaluation import ExpressionEvaluator
from hypergrid.continuous.engine.kernels import groups as kernel
from hypergrid.continuous.engine.kernels.aggregates import change_groups
from hypergrid.continuous.engine.kernels.extremes import ENTERED, FIRST, LAST
from hypergrid.continuous.engine.kernels.extremes import WORDS as EXTREME_WORDS
from hypergrid.continuous.engine.kernels.ordered import (
    BY_KEY,
    BY_RANK,
    BY_ROW,
    KEY,
    LEFT,
    MAX_BITS,
    NODE_WORDS,
    NODES_USED,
    RIGHT,
    VALUE,
)
from hypergrid.continuous.engine.kernels.panes import PART_WORDS, STATE_WORDS, SUM_WORDS, PaneState
from hypergrid.continuous.engine.kernels.sums import WORDS
from hypergrid.continuous.engine.operators.base import StepOperator
from hypergrid.continuous.engine.row_table import RowTable, pack
from hypergrid.continuous.engine.state import State
from hypergrid.continuous.expressions import NULL_INTEGER, Expression, Operation

SIZES: Final = {
    kernel.COUNTING: 1,
    kernel.SUMMING: WORDS,
    kernel.SUMMING_WHOLE: 2,
    kernel.SQUARING: WORDS,
    kernel.SORTING: 2,
    kernel.ORDERING: 2,
    kernel.LEAST: EXTREME_WORDS,
    kernel.GREATEST: EXTREME_WORDS,
    kernel.QUEUEING: EXTREME_WORDS,
    kernel.ENDING: EXTREME_WORDS,
    kernel.LEAST_EVER: EXTREME_WORDS,
    kernel.GREATEST_EVER: EXTREME_WORDS,
}
"""Words of each kind of accumulator."""
_IN_QUEUE: Final = (kernel.LEAST, kernel.GREATEST)
_EVER: Final = (kernel.LEAST_EVER, kernel.GREATEST_EVER)
NO_RANKS: Final = np.empty((0, 1), np.int64)
"""What orders texts that are not compared."""
_NOTHING: Final = np.empty((0, 1), np.int64)
NO_PANES: Final = PaneState(
    _NOTHING, _NOTHING, _NOTHING, _NOTHING, _NOTHING[:, 0].copy(), _NOTHING, np.zeros(STATE_WORDS, np.int64)
)
"""What the loop is given for elements of both signs."""
PART_SIZES: Final = {
    kernel.COUNTING: 0,
    kernel.SUMMING: SUM_WORDS,
    kernel.SUMMING_WHOLE: 2,
    kernel.SQUARING: 2 * SUM_WORDS,
    kernel.LEAST: 1,
    kernel.GREATEST: 1,
    kernel.QUEUEING: 2,
}
"""Words of each kind of accumulator in a part of a pane, its counter apart."""
SHARES: Final = {"min": 0.0, "max": 1.0, "median": 0.5, "first": 0.0, "last": 1.0}


class Program:
    """Accumulators and calls of an aggregate, as arrays for the compiled loop; equal accumulators are shared."""

    def __init__(self, calls: Sequence[AggregateCall], *, is_queue: bool, is_growing: bool, ends: int) -> None:
        self._is_queue, self._is_growing, self._ends = is_queue, is_growing, ends
        self.arguments: list[Expression] = []
        self._accumulators: dict[tuple[int, int], int] = {}
        self._rows: list[list[int]] = []
        self.words = kernel.VALUES + len(calls)
        self.has_age = False
        self.trees = 0
        table = [self._plan(call) for call in calls]
        self.calls = np.array(table, np.int64).reshape(len(calls), 6)
        self.shares = np.array([SHARES.get(call.function, call.share) for call in calls], np.float64)
        self.has_texts = any(row[4] == BY_RANK for row in self._rows)
        self.accumulators = np.array(self._rows, np.int64).reshape(len(self._rows), kernel.ACCUMULATOR_WORDS)

    def _plan(self, call: AggregateCall) -> tuple[int, ...]:
        null, is_number = null_bits(call.kind), int(call.kind == "number")
        argument, function = call.argument, call.function
        if argument is None:
            return kernel.COUNT_ROWS, 0, 0, 0, null, 0
        if function in ("avg", "stddev", "median", "quantile") or (function == "sum" and call.kind == "number"):
            argument = argument if argument.kind == "number" else Operation("to_number", (argument,), "number")
        counter = self._accumulate(kernel.COUNTING, argument)
        match function:
            case "count":
                return kernel.COUNT_VALUES, counter, 0, 0, null, 0
            case "sum" if call.kind != "number":
                return kernel.SUM_WHOLE, counter, self._accumulate(kernel.SUMMING_WHOLE, argument), 0, null, 0
            case "sum" | "avg":
                code = kernel.SUM if function == "sum" else kernel.MEAN
                return code, counter, self._accumulate(kernel.SUMMING, argument), 0, null, 1
            case "stddev":
                sums = self._accumulate(kernel.SUMMING, argument), self._accumulate(kernel.SQUARING, argument)
                return kernel.DEVIATION, counter, *sums, null, 1
            case "first" | "last" if self._ends != kernel.ORDERING:
                return kernel.END, counter, self._accumulate(self._ends, argument), 0, null, 0
            case "first" | "last":
                self.has_age = True
                return kernel.AGE, counter, self._accumulate(kernel.ORDERING, argument), 0, null, is_number
            case "min" | "max" if self._is_queue:
                kind = (_EVER if self._is_growing else _IN_QUEUE)[function == "max"]
                return kernel.EXTREME, counter, self._accumulate(kind, argument), 0, null, is_number
            case "count_distinct":
                return kernel.DISTINCT, counter, self._accumulate(kernel.SORTING, argument), 0, null, 0
        return kernel.RANK, counter, self._accumulate(kernel.SORTING, argument), 0, null, is_number

    def _accumulate(self, kind: int, argument: Expression) -> int:
        """Return the first word of an accumulator."""
        if argument not in self.arguments:
            self.arguments.append(argument)
        number = self.arguments.index(argument)
        if (kind, number) not in self._accumulators:
            self._accumulators[kind, number] = self.words
            is_compared = kind in (kernel.SORTING, *_IN_QUEUE, *_EVER)
            order = BY_RANK if argument.kind == "text" and is_compared else BY_KEY
            row = [kind, number, self.words, null_bits(argument.kind), order, int(argument.kind == "number"), 0]
            if kind == kernel.COUNTING:
                row[kernel.COUNTER] = self.words
            elif self._rows[-1][: kernel.FIRST_WORD] == [kernel.COUNTING, number]:
                # Values are counted where they are summed: one step of the loop instead of two.
                row[kernel.COUNTER] = self._rows.pop()[kernel.COUNTER]
            self._rows.append(row)
            self.words += SIZES[kind]
            self.trees += is_compared or kind in (kernel.ORDERING, kernel.QUEUEING, kernel.ENDING)
        return self._accumulators[kind, number]

    def lay_out_parts(self) -> tuple[Integers, int]:
        """Return the words of accumulators in parts of panes (`PaneState.layout`), and how many words a part has."""
        layout, words = np.zeros((len(self.accumulators), 2), np.int64), PART_WORDS
        counters: dict[int, int] = {}
        for number, (kind, argument, *_, counter) in enumerate(self.accumulators.tolist()):
            if counter:
                counters[argument] = words
                words += 1
            layout[number] = words, counters[argument]
            words += PART_SIZES[kind]
        return layout, words


def find_ends(nodes: Integers, roots: Integers, side: int) -> Integers:
    """Return the outermost nodes of trees at a side."""
    following = roots
    while following.any():
        roots = np.where(following != 0, following, roots)
        following = nodes[roots, side]
    return roots


class Grouping(StepOperator):
    """One row for each group, which is replaced where it changes."""

    STATE = (*StepOperator.STATE, "_table", "_ages", "_groups", "_is_reported")

    def __init__(
        self,
        operator: AggregateOf,
        below: StepOperator,
        evaluator: ExpressionEvaluator,
        *,
        is_queue: bool = False,
        ends: int = kernel.ORDERING,
    ) -> None:
        super().__init__(operator.attributes, evaluator)
        is_queue = is_queue or below.is_queue
        program = Program(operator.calls, is_queue=is_queue, is_growing=below.is_growing, ends=ends)
        self._keys, self._program = operator.keys, program
        self._key_values, self._argument_values = (
            [evaluator.prepare_value(part) for part in parts] for parts in (operator.keys, self._program.arguments)
        )
        self.unique = frozenset(range(len(operator.keys)))
        self._table = RowTable(len(operator.keys))
        # Rows of streams are ordered by their numbers, combinations of rows by those of all their parts.
        self._ages = RowTable(below.order_width) if program.has_age and below.order_width > 2 else None
        if self._ages is not None:
            program.accumulators[program.accumulators[:, 0] == kernel.ORDERING, 4] = BY_ROW
        self._groups = kernel.GroupState(
            np.zeros((1, program.words), np.int64),
            np.zeros((64, NODE_WORDS), np.int64),
            np.array([0, 1, 0], np.int64),
            program.accumulators,
            program.calls,
            program.shares,
            np.array([len(operator.keys), len(operator.calls)], np.int64),
        )
        self._is_reported = bool(operator.keys)
        self._fresh = np.empty(len(operator.calls), np.int64)
        self._types = [PHYSICAL[attribute.kind] for attribute in operator.attributes]
        self.nothing = no_elements([attribute.kind for attribute in operator.attributes], ordered=False)

    def load(self, state: State) -> None:
        super().load(state)
        if not np.array_equal(self._groups.program, self._program.accumulators):
            self._groups = self._adopt(self._groups)

    def _adopt(self, held: kernel.GroupState) -> kernel.GroupState:
        """Return groups of an earlier program, which kept more values of a stream to know its ends and extremes.

        Raises
        ------
        ValueError
            They have other accumulators, for which elements are not prepared any more.
        """
        program, nodes, pool = self._program, held.nodes, held.pool
        words = np.zeros((len(held.words), program.words), np.int64)
        head = kernel.VALUES + len(program.calls)
        words[:, :head] = held.words[:, :head]
        for old, own in zip(held.program.tolist(), program.accumulators.tolist(), strict=True):
            (kind, argument, first), (own_kind, own_argument, own_first) = old[:3], own[:3]
            # Of a chain that was kept for rows that leave, the first is the extreme ever.
            is_kept = kind == own_kind or (kind, own_kind) in zip(_IN_QUEUE, _EVER, strict=True)
            if argument != own_argument or not (is_kept or kind == kernel.ORDERING):
                raise ValueError("other accumulators")
            words[:, own[kernel.COUNTER]] = held.words[:, old[kernel.COUNTER]]
            if is_kept:
                words[:, own_first : own_first + SIZES[kind]] = held.words[:, first : first + SIZES[kind]]
                continue
            if own_kind != kernel.ENDING:
                raise ValueError("rows that leave")
            alive = np.flatnonzero(held.words[:, first])
            ends = [nodes[find_ends(nodes, held.words[alive, first], side), VALUE] for side in (LEFT, RIGHT)]
            numbers = np.arange(len(alive)) + int(pool[NODES_USED])
            nodes = np.concatenate([nodes[: pool[NODES_USED]], np.zeros((len(alive), NODE_WORDS), np.int64)])
            # Numbers were held as integers of their order.
            nodes[numbers, KEY], nodes[numbers, VALUE] = (each ^ ((each >> 63) & MAX_BITS * own[5]) for each in ends)
            pool = pool + np.array([0, len(alive), 0])
            words[alive, own_first + FIRST] = words[alive, own_first + LAST] = numbers
            words[alive, own_first + ENTERED] = 1
        return kernel.GroupState(
            words, nodes, pool, program.accumulators, program.calls, program.shares, self._groups.sizes
        )

    def process(self, inputs: Sequence[Elements], heartbeat: int) -> Elements:
        """Return the changes of the rows of groups."""
        elements = inputs[0]
        count = len(elements)
        if not count and self._is_reported:
            return self.nothing
        tau, sign = elements.tau, elements.signs()
        numbers, arguments = self._number(elements), self._collect_arguments(elements)
        order, ages = self._find_ages(elements)
        if not self._is_reported:
            # The row of no rows is there from the start: an element without a sign and values lets it be written.
            tau, sign = np.append(NULL_INTEGER, tau), np.append(np.int8(0), sign)
            numbers = np.append(0, numbers)
            arguments = np.column_stack([self._list_nulls(), arguments])
            order = np.append(0, order) if len(order) else order
            self._is_reported = True
        self._make_room(len(tau))
        touched = np.empty(2 * len(tau) + 1, np.int64)
        ranks = self._list_ranks()
        given = kernel.GroupElements(tau, sign, numbers, order, arguments, ranks, ages, self._group_keys(), touched)
        changes = self._change(given, NO_PANES, 2 * len(tau))
        if self._ages is not None and elements.sign is not None:
            self._ages.release(order[-count:][elements.sign < 0])
        self._release(touched)
        return changes

    def _list_ranks(self) -> Integers:
        """Return what orders texts, shape (texts, 1), if any are compared: all are put in order for it."""
        return self.evaluator.texts.ranks().reshape(-1, 1) if self._program.has_texts else NO_RANKS

    def _number(self, elements: Elements) -> Integers:
        """Return the number of each element's group."""
        count = len(elements)
        if not self._keys:
            return np.zeros(count, np.int64)
        return self._table.intern(pack([value(elements) for value in self._key_values], count))

    def _collect_arguments(self, elements: Elements) -> Integers:
        """Return the bits of the arguments, shape (arguments, n)."""
        given = [value(elements) for value in self._argument_values]
        # Counts and sums know 0.0 and NaN by any of their bits; what is put in order needs equal ones.
        given_bits = [bits_of(column) if self._program.trees else column.view(np.int64) for column in given]
        # A single one is not copied.
        joined = given_bits[0] if len(given_bits) == 1 else np.concatenate(given_bits or [elements.tau[:0]])
        return np.ascontiguousarray(joined).reshape(len(given_bits), len(elements))

    def _list_nulls(self) -> Integers:
        """Return the bits of arguments that are NULL, shape (arguments,)."""
        return np.array([null_bits(argument.kind) for argument in self._program.arguments], np.int64)

    def _group_keys(self) -> Integers:
        return self._table.all_keys if self._keys else np.empty((1, 0), np.int64)

    def _change(self, given: kernel.GroupElements, panes: PaneState, rows: int) -> Elements:
        """Return what changes, at most some rows."""
        sign, columns = np.empty(rows, np.int8), np.empty((1 + len(self._types), rows), np.int64)
        written = change_groups(self._groups, given, panes, kernel.GroupOutput(sign, columns, self._fresh))
        sign, columns = sign[:written], columns[:, :written]
        if 2 * written <= rows:
            # Results that wait do not hold much more room than they fill.
            sign, columns = sign.copy(), columns.copy()
        typed = [columns[row].view(physical) for row, physical in enumerate(self._types, 1)]
        return Elements(columns[0], sign, len(typed), typed.__getitem__)

    def _find_ages(self, elements: Elements) -> tuple[Integers, Integers]:
        """Return a number of the age of each element, and the rows by which numbers are ordered."""
        if not self._program.has_age:
            return np.empty(0, np.int64), NO_RANKS
        assert elements.order is not None
        if self._ages is None:
            return np.ascontiguousarray(elements.order[:, 1]), NO_RANKS
        return self._ages.intern(np.ascontiguousarray(elements.order)), self._ages.all_keys

    def _make_room(self, count: int) -> None:
        groups = self._groups
        if len(groups.words) < self._table.capacity:
            words = np.zeros((self._table.capacity, groups.words.shape[1]), np.int64)
            words[: len(groups.words)] = groups.words
            self._groups = groups = groups._replace(words=words)
        if not self._program.trees:
            return
        needed = count * self._program.trees + int(groups.pool[1] - groups.pool[2])
        if needed > len(groups.nodes):
            nodes = np.zeros((max(needed, 2 * len(groups.nodes)), NODE_WORDS), np.int64)
            nodes[: len(groups.nodes)] = groups.nodes
            self._groups = groups._replace(nodes=nodes)

    def _release(self, touched: Integers) -> None:
        """Free groups that hold nothing; some of those that held nothing at an instant do so again."""
        count = int(touched[-1])
        if count and self._keys:
            left = touched[-1 - count : -1]
            left = left[self._count_held(left) == 0]
            self._groups.words[left] = 0
            self._table.release(left)

    def _count_held(self, groups: Integers) -> Integers:
        """Return how many rows groups hold."""
        rows: Integers = self._groups.words[groups, kernel.ROWS]
        return rows
