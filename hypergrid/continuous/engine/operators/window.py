"""Windows: rows of a stream enter a store and leave it."""

from collections.abc import Iterable, Sequence
from typing import Final

import numpy as np

from hypergrid.continuous.algebra import WindowOf
from hypergrid.continuous.engine.batch import EMPTY, Elements, Integers, Kept, Signs, list_positions
from hypergrid.continuous.engine.evaluation import ExpressionEvaluator
from hypergrid.continuous.engine.kernels.windows import QueueState, WindowOutput, WindowRows, merge_changes, pass_queues
from hypergrid.continuous.engine.operators.base import Needs, StepOperator
from hypergrid.continuous.engine.operators.stateless import select_true
from hypergrid.continuous.engine.row_store import RowStore, reserve
from hypergrid.continuous.engine.row_table import RowTable, pack
from hypergrid.continuous.engine.state import State, Stateful
from hypergrid.continuous.expressions import GREATEST_INTEGER, NULL_INTEGER

BLOCK_ROWS: Final = 16_384
"""Rows of a block of a queue."""
LEAST_FOR_RUNS: Final = 2048
"""Stamps from which on it pays to look for the multiples of a slide among them."""

MOST_SEARCHES: Final = 4
"""Multiples of a slide up to which stamps are searched for each, which is faster than for all of them at once."""
MOST_SLICES: Final = 8
"""Slices of stamps up to which joining them is faster than gathering positions."""


class Fifo(Stateful):
    """Queue of slots with their stamps, in blocks: a row takes 16 bytes, and is never moved.

    Of blocks that are left, one is kept for rows to come, as the pages of a new one would be cleared first.
    """

    def __init__(self) -> None:
        self._blocks: list[Integers] = []
        self._spare: list[Integers] = []
        self._first = self._count = 0

    def __len__(self) -> int:
        return self._count

    def slots(self, first: int, stop: int) -> Integers:
        """Return slots of rows by their position, 0 the oldest."""
        return self._read(0, first, stop)

    def stamps(self, first: int, stop: int) -> Integers:
        """Return stamps of rows by their position, 0 the oldest."""
        return self._read(1, first, stop)

    def _read(self, line: int, first: int, stop: int) -> Integers:
        if stop <= first:
            return EMPTY
        first, stop = first + self._first, stop + self._first
        start = first // BLOCK_ROWS * BLOCK_ROWS
        # Most reads are within a block, and copy nothing.
        if stop <= start + BLOCK_ROWS:
            return self._blocks[start // BLOCK_ROWS][line, first - start : stop - start]
        parts = [
            self._blocks[number][line, max(first - start, 0) : stop - start]
            for number in range(first // BLOCK_ROWS, -(-stop // BLOCK_ROWS))
            for start in (number * BLOCK_ROWS,)
        ]
        return np.concatenate(parts)

    def count_before(self, instant: int, known: int = 0) -> int:
        """Return how many rows have a stamp before an instant; the oldest `known` rows do."""
        counted = known
        while counted < self._count:
            stop = min(self._count, (self._first + counted) // BLOCK_ROWS * BLOCK_ROWS + BLOCK_ROWS - self._first)
            counted += int(self.stamps(counted, stop).searchsorted(instant))
            if counted < stop:
                break
        return counted

    def save(self) -> State:
        return np.stack([self.slots(0, self._count), self.stamps(0, self._count)])

    def load(self, state: State) -> None:
        self._blocks.clear()
        self._first = self._count = 0
        self.append(*state)

    def append(self, slots: Integers, stamps: Integers) -> None:
        """Append rows."""
        count = len(slots)
        while count:
            end = self._first + self._count
            at = end % BLOCK_ROWS
            if end == BLOCK_ROWS * len(self._blocks):
                self._blocks.append(self._spare.pop() if self._spare else reserve((2, BLOCK_ROWS), np.int64))
            block, room = self._blocks[-1], BLOCK_ROWS - at
            if count <= room:
                stop = at + count
                block[0, at:stop], block[1, at:stop] = slots, stamps
                self._count += count
                return
            block[0, at:], block[1, at:] = slots[:room], stamps[:room]
            slots, stamps, count = slots[room:], stamps[room:], count - room
            self._count += room

    def drop(self, count: int) -> None:
        """Drop the oldest rows."""
        self._first, self._count = self._first + count, self._count - count
        while self._first >= BLOCK_ROWS:
            self._spare = [self._blocks.pop(0)]
            self._first -= BLOCK_ROWS


_LEAVING: Final = np.full(BLOCK_ROWS, -1, np.int8)


def _list_leaving(count: int) -> Signs:
    """Return signs of elements that leave."""
    return _LEAVING[:count] if count <= len(_LEAVING) else np.full(count, -1, np.int8)


class StoredWindow(StepOperator):
    """What windows have in common: a store, and a predicate on the elements that count."""

    STATE = (*StepOperator.STATE, "_rows")

    def __init__(self, operator: WindowOf, needs: Needs, evaluator: ExpressionEvaluator) -> None:
        super().__init__(operator.attributes, evaluator)
        self._where = evaluator.prepare_all(operator.where)
        self.order_width = 2 if needs.order else 0
        self._rows = RowStore(operator.attributes, needs.columns, self.order_width)
        self.store = self._rows

    def select(self, elements: Elements) -> Elements:
        """Return the elements that count: for which the window's predicate is true."""
        return select_true(self._where, elements)

    def enter(self, elements: Elements) -> tuple[Elements, Integers]:
        """Write the elements that count to the store; returns them and their slots."""
        elements = self.select(elements)
        slots = self._rows.allocate(len(elements))
        self._rows.write(slots, elements)
        return elements, slots


def _find_factors(stamps: Integers, slide_ns: int) -> range | None:
    """Return the factors of a slide that give the multiples at which ordered stamps show, if these are few.

    None where it would not pay, and where the last one is no 64-bit integer.
    """
    if len(stamps) < LEAST_FOR_RUNS:
        return None
    first, last = -(-int(stamps[0]) // slide_ns), -(-int(stamps[-1]) // slide_ns)
    if last * slide_ns > GREATEST_INTEGER or 4 * (last - first) >= len(stamps):
        return None
    return range(first, last + 1)


def round_up(stamps: Integers, slide_ns: int) -> Integers:
    """Return the multiples of a slide at which stamps, in order, show; the stamps themselves without one."""
    if not slide_ns:
        return stamps
    factors = _find_factors(stamps, slide_ns)
    if factors is not None:
        # Each is repeated for its stamps, which is faster than to divide.
        multiples = np.arange(factors.start, factors.stop) * slide_ns
        counts = stamps.searchsorted(multiples, side="right")
        counts[1:] -= counts[:-1].copy()
        return multiples.repeat(counts)
    # No heartbeat is past the greatest integer: what would be rounded beyond it never comes.
    rounded = -(-stamps // slide_ns) * slide_ns
    return np.where(rounded < stamps, GREATEST_INTEGER, rounded)


def find_shown(stamps: Integers, slide_ns: int, span_ns: int) -> Kept | None:
    """Find which ordered stamps a window shows; None: all of them, as where it is not shorter than its slide."""
    if slide_ns <= span_ns:
        return None
    factors = _find_factors(stamps, slide_ns)
    if factors is None or factors.start * slide_ns < NULL_INTEGER + span_ns:
        shown = round_up(stamps, slide_ns) - stamps < span_ns
        return None if shown.all() else np.flatnonzero(shown)
    starts: Iterable[int]
    stops: Iterable[int]
    if len(factors) <= MOST_SEARCHES:
        ends = range(factors.start * slide_ns, factors.stop * slide_ns, slide_ns)
        starts = [int(stamps.searchsorted(end - span_ns, side="right")) for end in ends]
        stops = [int(stamps.searchsorted(end, side="right")) for end in ends]
    else:
        multiples = np.arange(factors.start, factors.stop) * slide_ns
        all_starts = stamps.searchsorted(multiples - span_ns, side="right")
        all_stops = stamps.searchsorted(multiples, side="right")
        filled = np.flatnonzero(all_starts < all_stops)
        if len(filled) > MOST_SLICES:
            positions = list_positions(all_starts, all_stops)
            return None if len(positions) == len(stamps) else positions
        starts, stops = all_starts[filled].tolist(), all_stops[filled].tolist()
    slices = [slice(start, stop) for start, stop in zip(starts, stops, strict=True) if start < stop]
    is_whole = sum(part.stop - part.start for part in slices) == len(stamps)
    return None if is_whole else slices or EMPTY


def select_shown(elements: Elements, slide_ns: int, span_ns: int) -> Elements:
    """Return the elements that a window shows."""
    shown = find_shown(elements.tau, slide_ns, span_ns)
    return elements if shown is None else elements.take(shown)


class FifoWindow(StoredWindow):
    """Window whose rows leave in the order in which they enter: Range with or without Slide, Now and Rows."""

    STATE = (*StoredWindow.STATE, "_queue", "_entered")

    def __init__(self, operator: WindowOf, needs: Needs, evaluator: ExpressionEvaluator, *, is_closed: bool) -> None:
        super().__init__(operator, needs, evaluator)
        self.is_queue = True
        self._slide_ns = operator.slide_ns
        self._limit = operator.rows if operator.form == "rows" else 0
        self._span_ns = 1 if operator.form == "now" else operator.range_ns + is_closed
        self._is_merged = needs.merged
        self._queue = Fifo()
        self._entered = 0

    def select(self, elements: Elements) -> Elements:
        """Return the elements that count, without those that leave the moment they would show."""
        if self._where is None and self._slide_ns <= self._span_ns:
            return elements
        return select_shown(super().select(elements), self._slide_ns, self._span_ns)

    def process(self, inputs: Sequence[Elements], heartbeat: int) -> Elements:
        """Return the rows that enter and leave."""
        elements, slots = self.enter(inputs[0])
        queue = self._queue
        queue.append(slots, elements.tau)
        stop, entered, until = len(queue), self._entered, heartbeat
        if self._limit:
            leave = queue.stamps(self._limit, stop)
        else:
            # Stamps before this show before the heartbeat: with a slide, those up to its last multiple before that.
            if self._slide_ns:
                until = max((heartbeat - 1) // self._slide_ns * self._slide_ns + 1, NULL_INTEGER)
                stop = queue.count_before(until, entered)
            # Rows show as left once their stamps are a span older than that.
            count = queue.count_before(max(until - self._span_ns, NULL_INTEGER))
            leave = round_up(queue.stamps(0, count) + self._span_ns, self._slide_ns)
        left = queue.slots(0, len(leave)).copy()
        if self._slide_ns:
            shown = queue.slots(entered, stop).copy()
            entering = self._rows.refer(round_up(queue.stamps(entered, stop), self._slide_ns), None, shown)
        else:
            # Without a slide all rows show as they come.
            shown = slots
            entering = elements.relabel(None, elements.order, slots)
        if self._is_merged:
            changes = self._merge(WindowRows(entering.tau, shown), WindowRows(leave, left))
        else:
            changes = self._rows.refer(leave, _list_leaving(len(left)), left)
            changes.entering = entering
        queue.drop(len(left))
        self._rows.release(left)
        self._entered = stop - len(left)
        return changes

    def _merge(self, enter: WindowRows, leave: WindowRows) -> Elements:
        """Return rows that enter and rows that leave in one order of time."""
        count = len(enter.tau) + len(leave.tau)
        out = WindowOutput(np.empty(count, np.int64), np.empty(count, np.int8), np.empty(count, np.int64))
        merge_changes(enter, leave, out)
        return self._rows.refer(out.tau, out.sign if len(leave.tau) else None, out.slot)


class UnboundedWindow(StoredWindow):
    """All rows; they are kept only if operators above refer to them."""

    def __init__(self, operator: WindowOf, needs: Needs, evaluator: ExpressionEvaluator) -> None:
        super().__init__(operator, needs, evaluator)
        self.is_queue = self.is_growing = True
        if not needs.slots:
            self.store = None

    def process(self, inputs: Sequence[Elements], heartbeat: int) -> Elements:
        """Return the rows that enter and leave."""
        elements = inputs[0]
        if self.store is not None:
            elements, slots = self.enter(elements)
            return self._rows.refer(elements.tau, None, slots)
        return self.select(elements)


class PartitionWindow(StoredWindow):
    """The last rows of each group of equal values."""

    STATE = (*StoredWindow.STATE, "_groups", "_queues")

    def __init__(self, operator: WindowOf, needs: Needs, evaluator: ExpressionEvaluator) -> None:
        super().__init__(operator, needs, evaluator)
        self._partition, self._limit = operator.partition, operator.rows
        self._groups = RowTable(len(operator.partition))
        self._queues = QueueState(np.zeros((0, 3), np.int64), np.zeros(0, np.int64))

    def process(self, inputs: Sequence[Elements], heartbeat: int) -> Elements:
        """Return the rows that enter and leave."""
        elements, slots = self.enter(inputs[0])
        count = len(elements)
        groups = self._groups.intern(pack([elements.column(position) for position in self._partition], count))
        ends, following = self._queues
        if len(ends) < self._groups.capacity or len(following) < self._rows.capacity:
            ends = np.zeros((self._groups.capacity, 3), np.int64)
            ends[: len(self._queues.ends)] = self._queues.ends
            following = np.zeros(self._rows.capacity, np.int64)
            following[: len(self._queues.following)] = self._queues.following
            self._queues = QueueState(ends, following)
        out = WindowOutput(np.empty(2 * count, np.int64), np.empty(2 * count, np.int8), np.empty(2 * count, np.int64))
        written = pass_queues(self._queues, elements.tau, groups, slots, self._limit, out)
        tau, sign, slot = out.tau[:written], out.sign[:written], out.slot[:written]
        self._rows.release(slot[sign < 0])
        return self._rows.refer(tau, sign, slot)


def make_window(operator: WindowOf, needs: Needs, evaluator: ExpressionEvaluator, *, is_closed: bool) -> StepOperator:
    """Return the operator of a window."""
    if operator.form == "unbounded":
        return UnboundedWindow(operator, needs, evaluator)
    if operator.form == "rows" and operator.partition:
        return PartitionWindow(operator, needs, evaluator)
    return FifoWindow(operator, needs, evaluator, is_closed=is_closed)
