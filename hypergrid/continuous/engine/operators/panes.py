"""Aggregates of a sliding window: what its panes hold in place of its rows."""

from bisect import bisect_right
from collections.abc import Sequence
from typing import Final

import numpy as np

from hypergrid.continuous.algebra import AggregateOf, WindowOf
from hypergrid.continuous.engine.batch import EMPTY, NO_SIGNS, Elements, Integers, concatenate
from hypergrid.continuous.engine.evaluation import ExpressionEvaluator
from hypergrid.continuous.engine.kernels import groups as kernel
from hypergrid.continuous.engine.kernels import panes as pane_kernel
from hypergrid.continuous.engine.operators.aggregate import NO_PANES, NO_RANKS, Grouping
from hypergrid.continuous.engine.operators.base import StepOperator
from hypergrid.continuous.engine.operators.stateless import select_true
from hypergrid.continuous.engine.operators.window import find_shown
from hypergrid.continuous.engine.row_store import reserve
from hypergrid.continuous.engine.state import State
from hypergrid.continuous.expressions import GREATEST_INTEGER, NULL_INTEGER

LEAST_ROOM: Final = 256
"""Rows of an array at first."""
LEAST_FOR_PARTS: Final = 8192
"""Elements of a stretch on average, from which on it takes longer to join stretches than to pass one by one."""


class PaneGrouping(Grouping):
    """Aggregates of the groups of a sliding window that follow from its panes, and whose rows are not kept.

    Takes the elements of the window's input.
    """

    STATE = (*Grouping.STATE, "_panes")
    HOLDS_ROWS = False

    def __init__(
        self,
        operator: AggregateOf,
        window: WindowOf,
        below: StepOperator,
        evaluator: ExpressionEvaluator,
        *,
        is_closed: bool,
    ) -> None:
        super().__init__(operator, below, evaluator, is_queue=True, ends=kernel.QUEUEING)
        self._where = evaluator.prepare_all(window.where)
        self._slide_ns, self._span_ns = window.slide_ns, window.range_ns + is_closed
        layout, words = self._program.lay_out_parts()
        state = np.zeros(pane_kernel.STATE_WORDS, np.int64)
        state[pane_kernel.SLIDE], state[pane_kernel.SPAN] = self._slide_ns, self._span_ns
        state[pane_kernel.UNTIL], state[pane_kernel.PARTS_USED] = NULL_INTEGER, 1
        self._panes = pane_kernel.PaneState(
            np.zeros((1, words), np.int64),
            np.empty((0, pane_kernel.PANE_WORDS), np.int64),
            np.empty((0, pane_kernel.STRAY_WORDS), np.int64),
            np.zeros((0, pane_kernel.HOLDER_WORDS), np.int64),
            np.zeros(0, np.int64),
            layout,
            state,
        )
        kinds = self._program.accumulators[:, 0].tolist()
        # Numbers that an element adds to sums: a square is two.
        self._numbers = kinds.count(kernel.SUMMING) + 2 * kinds.count(kernel.SQUARING)

    def process(self, inputs: Sequence[Elements], heartbeat: int) -> Elements:
        """Return the changes of the rows of groups."""
        *earlier, elements = self._list_shown(select_true(self._where, inputs[0]))
        until = max((heartbeat - 1) // self._slide_ns * self._slide_ns, NULL_INTEGER)
        first = None if self._is_reported else self._report_first()
        if not len(elements) and not self._count_moved(until):
            return self.nothing if first is None else first
        for part in earlier:
            # Until the last part is added nothing enters or leaves: parts wait in their panes.
            self._pass(part, int(self._panes.state[pane_kernel.UNTIL]))
        changes = self._pass(elements, until)
        return changes if first is None else concatenate([first, changes], range(len(self.attributes)))

    def _list_shown(self, elements: Elements) -> list[Elements]:
        """Return the elements that the window shows, in as many parts as are worth a call of the loop."""
        shown = find_shown(elements.tau, self._slide_ns, self._span_ns)
        if shown is None:
            return [elements]
        if isinstance(shown, np.ndarray):
            return [elements.take(shown)]
        if sum(part.stop - part.start for part in shown) < LEAST_FOR_PARTS * len(shown):
            return [elements.take(shown)]
        return [elements.take([part]) for part in shown]

    def _pass(self, elements: Elements, until: int) -> Elements:
        """Add elements to panes; returns what changes as these enter and leave up to an instant."""
        numbers, arguments = self._number(elements), self._collect_arguments(elements)
        parts, state = self._make_room_for_parts(elements.tau), self._panes.state
        # Each part that enters has at most one node of each chain.
        self._make_room(parts + self._count_waiting() if self._program.trees else 0)
        # A group reports at most once at each multiple of the slide, and only where one of its parts enters or leaves.
        reports = self._table.capacity * (until // self._slide_ns - int(state[pane_kernel.UNTIL]) // self._slide_ns)
        if reports > LEAST_ROOM + len(elements):
            reports = min(reports, self._count_moved(until) + 2 * parts)
        state[pane_kernel.UNTIL] = until
        touched = np.empty(self._table.capacity + reports + 1, np.int64)
        given = kernel.GroupElements(
            elements.tau, NO_SIGNS, numbers, EMPTY, arguments, self._list_ranks(), NO_RANKS, self._group_keys(), touched
        )
        changes = self._change(given, self._panes, 2 * reports)
        self._release(touched)
        self._drop_panes()
        return changes

    def _report_first(self) -> Elements:
        """Return the row of no rows, which is there from the start."""
        self._is_reported = True
        self._make_room(1)
        given = kernel.GroupElements(
            np.full(1, NULL_INTEGER),
            np.zeros(1, np.int8),
            np.zeros(1, np.int64),
            EMPTY,
            self._list_nulls().reshape(-1, 1),
            NO_RANKS,
            NO_RANKS,
            self._group_keys(),
            np.empty(3, np.int64),
        )
        return self._change(given, NO_PANES, 2)

    def _count_waiting(self) -> int:
        """Return how many of the parts that there are have not entered."""
        state = self._panes.state.tolist()
        entered, added = state[pane_kernel.ENTERED], state[pane_kernel.ADDED]
        if entered == state[pane_kernel.PANES]:
            return 0
        return int(added - self._panes.panes[entered, pane_kernel.PARTS_BEFORE])

    def _count_moved(self, until: int) -> int:
        """Return how many of the parts that there are enter up to an instant, and how many leave."""
        panes, state = self._panes.panes, self._panes.state.tolist()
        left, entered, count = (state[word] for word in (pane_kernel.LEFT, pane_kernel.ENTERED, pane_kernel.PANES))
        moved = 0
        for first, instant in ((entered, pane_kernel.ENTER), (left, pane_kernel.LEAVE)):
            # A search by numpy would copy all of them.
            stop = first + bisect_right(panes[first:count, instant], until)
            if stop > first:
                after = panes[stop, pane_kernel.PARTS_BEFORE] if stop < count else state[pane_kernel.ADDED]
                moved += int(after - panes[first, pane_kernel.PARTS_BEFORE])
        return moved

    def _make_room_for_parts(self, tau: Integers) -> int:
        """Make room for what elements in order of time add; returns how many parts that is at most."""
        count = len(tau)
        most_panes = min(count, self._count_panes(int(tau[0]), int(tau[-1]))) if count else 0
        most_parts = min(count, most_panes * self._table.capacity)
        panes, state = self._panes, self._panes.state.tolist()
        parts = _extend(panes.parts, state[pane_kernel.PARTS_USED], most_parts)
        opened = _extend(panes.panes, state[pane_kernel.PANES], most_panes)
        strays = _extend(panes.strays, state[pane_kernel.STRAYS_USED], count * self._numbers)
        if not (parts is panes.parts and opened is panes.panes and strays is panes.strays):
            self._panes = panes._replace(parts=parts, panes=opened, strays=strays)
        if len(panes.groups) < self._table.capacity:
            known, capacity = len(panes.groups), self._table.capacity
            groups, current = np.zeros((capacity, pane_kernel.HOLDER_WORDS), np.int64), np.zeros(capacity, np.int64)
            groups[:known], current[:known] = panes.groups, panes.current
            self._panes = self._panes._replace(groups=groups, current=current)
        return most_parts

    def _count_panes(self, first: int, last: int) -> int:
        """Return how many panes there are from one stamp to another, at most."""
        slide_ns, span_ns = self._slide_ns, self._span_ns
        # They end where rows enter, where rows leave unless that is the same, and before rows that never leave.
        panes = 1 + -(-last // slide_ns) - -(-first // slide_ns)
        if span_ns % slide_ns:
            panes += -(-(last + span_ns) // slide_ns) - -(-(first + span_ns) // slide_ns)
        return panes + (first <= GREATEST_INTEGER - span_ns < last)

    def _drop_panes(self) -> None:
        """Let go of the panes that left, once they are most of them."""
        panes, state = self._panes.panes, self._panes.state
        left, count = int(state[pane_kernel.LEFT]), int(state[pane_kernel.PANES])
        if 2 * left >= count:
            panes[: count - left] = panes[left:count].copy()
            for word in (pane_kernel.LEFT, pane_kernel.ENTERED, pane_kernel.PANES):
                state[word] -= left

    def _count_held(self, groups: Integers) -> Integers:
        """Return how many parts groups hold, also of panes that have not entered."""
        parts: Integers = self._panes.groups[groups, pane_kernel.PARTS]
        return parts

    def save(self) -> State:
        panes, state = self._panes, self._panes.state
        used = panes._replace(
            parts=panes.parts[: state[pane_kernel.PARTS_USED]],
            panes=panes.panes[: state[pane_kernel.PANES]],
            strays=panes.strays[: state[pane_kernel.STRAYS_USED]],
        )
        return {**super().save(), "_panes": list(used)}

    def load(self, state: State) -> None:
        held = state["_panes"]
        if len(held) < len(self._panes):
            state = {**state, "_panes": _adopt(*held)}
        super().load(state)


_OPENED_BEFORE: Final = 7
"""Word of the state, in earlier programs, in which the panes ever opened were counted."""


def _adopt(
    parts: Integers, panes: Integers, strays: Integers, groups: Integers, layout: Integers, state: Integers
) -> list[Integers]:
    """Convert the panes of an earlier program, which had no dummy part 0: parts are numbered one higher now.

    The state also had the number of panes ever opened, and each group its newest part with the number of the pane of
    that, from which `current` follows. The other words of groups and states are as they were, in their order.
    """
    opened, state = state[_OPENED_BEFORE], np.delete(state, _OPENED_BEFORE)
    if not opened:
        state[pane_kernel.UNTIL] = NULL_INTEGER
    parts, panes = np.pad(parts, ((1, 0), (0, 0))), panes.copy()
    state[pane_kernel.PARTS_USED] += 1
    # Numbers of parts; 0 is no part.
    ends = slice(pane_kernel.FIRST_PART, pane_kernel.LAST_PART + 1)
    free = slice(pane_kernel.FREE_PART, pane_kernel.FREE_PART + 1)
    for links in (parts[:, pane_kernel.FOLLOWING], panes[:, ends], state[free]):
        links[links > 0] += 1
    count, newest, pane = groups[:, :3].T
    current = np.where(pane == opened, newest + 1, 0) if opened else np.zeros_like(count)
    return [parts, panes, strays, np.stack([count, np.zeros_like(count)], axis=1), current, layout, state]


def _extend(held: Integers, used: int, count: int) -> Integers:
    """Return an array with room for some rows after those in use."""
    if used + count <= len(held):
        return held
    extended = reserve((max(used + count, 2 * len(held), LEAST_ROOM), held.shape[1]), np.int64)
    extended[:used] = held[:used]
    return extended
