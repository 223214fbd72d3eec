"""Streams of relations: what enters, what leaves, or all rows at instants."""

from collections.abc import Sequence
from typing import Final

import numpy as np

from hypergrid.continuous.algebra import ToStream
from hypergrid.continuous.algebra_text import duration_text
from hypergrid.continuous.engine.batch import Elements, Integers, make_order
from hypergrid.continuous.engine.evaluation import ExpressionEvaluator
from hypergrid.continuous.engine.kernels.bags import RelationOutput, RelationState, list_relation
from hypergrid.continuous.engine.operators.bags import Netting
from hypergrid.continuous.engine.operators.base import Needs, StepOperator
from hypergrid.continuous.engine.state import State
from hypergrid.continuous.expressions import NULL_INTEGER
from hypergrid.core.errors import InvalidQuery
from hypergrid.core.times import format_instant

CHUNK: Final = 65_536
"""Instants of a slide that are looked at together, at most."""
MOST_ROOM: Final = 1 << 20
"""Rows that are listed together, at most, unless a relation is larger."""
MOST_REPEATED: Final = 10_000_000
"""Rows of a relation that are given while nothing comes and it does not change, at most: beyond, a clock has jumped."""


class StreamMaker(StepOperator):
    """What makes streams: elements in the order of their rows, numbered."""

    STATE = (*StepOperator.STATE, "_number")

    def __init__(self, operator: ToStream, needs: Needs, evaluator: ExpressionEvaluator) -> None:
        super().__init__(operator.attributes, evaluator)
        self.order_width = 2 if needs.order else 0
        self._number = 0

    def number(self, elements: Elements) -> Elements:
        """Return elements in the order of their rows at each instant, with their numbers as order."""
        if not self.order_width:
            return elements.relabel(None)
        if elements.order is not None:
            keys = [elements.order[:, column] for column in range(elements.order.shape[1] - 1, -1, -1)]
            elements = elements.take(np.lexsort([*keys, elements.tau]))
        first, self._number = self._number, self._number + len(elements)
        order = make_order(elements.tau, first)
        return elements.relabel(None, order)


class ChangeStream(StreamMaker):
    """Rows that enter a relation, or that leave it."""

    def __init__(self, operator: ToStream, below: StepOperator, needs: Needs, evaluator: ExpressionEvaluator) -> None:
        super().__init__(operator, needs, evaluator)
        self._sign = 1 if operator.form == "istream" else -1
        self._netting = None if below.unique is not None else Netting(len(self.attributes))

    def process(self, inputs: Sequence[Elements], heartbeat: int) -> Elements:
        """Return the elements of the stream."""
        elements = inputs[0]
        if self._netting is not None:
            elements = self._netting.apply(elements, range(len(self.attributes)), self._sign)
        else:
            elements = elements.take(np.flatnonzero(elements.signs() == self._sign))
        # Rows that are there from the start come first.
        if len(elements) and elements.tau[0] == NULL_INTEGER:
            elements = elements.take(np.flatnonzero(elements.tau != NULL_INTEGER))
        return self.number(elements)


class RelationStream(StreamMaker):
    """All rows of a relation, at multiples of a period, or at the instants of the windows of one instant below.

    These windows are inputs, too; with a period the streams and relations below are.
    """

    STATE = (*StreamMaker.STATE, "_next", "_relation", "_repeated", "_changed_ns")

    def __init__(self, operator: ToStream, below: StepOperator, needs: Needs, evaluator: ExpressionEvaluator) -> None:
        super().__init__(operator, needs, evaluator)
        assert below.store is not None
        self._below = below.store
        self._slide_ns = operator.slide_ns
        self._next: int | None = None
        self._relation = RelationState(np.empty(0, np.int64), np.empty(0, np.int64), np.zeros(2, np.int64))
        # Rows given since anything arrived or changed, and its instant.
        self._repeated, self._changed_ns = 0, NULL_INTEGER

    def load(self, state: State) -> None:
        """Take the state of an object that was made in the same way; those of earlier programs count no rows."""
        super().load({"_repeated": 0, "_changed_ns": NULL_INTEGER, **state})

    def _instants(self, inputs: Sequence[Elements], heartbeat: int) -> Integers:
        if not self._slide_ns:
            # A relation that is the same at two instants one after the other does not change, but shows at both.
            tau = np.unique(np.concatenate([part.tau for part in inputs]))
            return np.asarray(tau[tau != NULL_INTEGER])
        if self._next is None and self.first_tau is not None:
            self._next = -(-self.first_tau // self._slide_ns) * self._slide_ns
        if self._next is None:
            return np.empty(0, np.int64)
        if not self._relation.state[0]:
            # Nothing shows until the next change.
            tau = inputs[0].tau
            done = int(self._relation.state[1])
            change = min(int(tau[done]), heartbeat) if done < len(tau) else heartbeat
            self._next = max(self._next, -(-change // self._slide_ns) * self._slide_ns)
        instants = np.arange(self._next, min(heartbeat, self._next + CHUNK * self._slide_ns), self._slide_ns)
        self._next += len(instants) * self._slide_ns
        return instants

    def process(self, inputs: Sequence[Elements], heartbeat: int) -> Elements:
        """Return the elements of the stream."""
        elements = inputs[0]
        assert elements.slots is not None
        capacity = self._below.capacity
        if len(self._relation.alive) < capacity:
            alive, position = np.empty((2, capacity), np.int64)
            size = len(self._relation.alive)
            alive[:size], position[:size] = self._relation.alive, self._relation.position
            self._relation = RelationState(alive, position, self._relation.state)
        # The last elements come after the last instant: they are entered by one that shows nothing.
        state = self._relation.state
        state[1] = 0
        instants = self._instants(inputs, heartbeat)
        taus, slots = [], []
        room = 1024
        while len(instants):
            out = RelationOutput(np.empty(room, np.int64), np.empty(room, np.int64))
            done, written = list_relation(self._relation, elements.tau, elements.signs(), elements.slots, instants, out)
            if self._slide_ns:
                self._count_repeated(inputs, out.tau[:written], heartbeat)
            if written:
                taus.append(out.tau[:written].copy())
                slots.append(out.slot[:written].copy())
            instants = instants[done:]
            if not len(instants) and self._slide_ns:
                instants = self._instants(inputs, heartbeat)
            room = max(min(2 * room, MOST_ROOM), int(state[0]))
        self._enter_rest(elements)
        tau = np.concatenate(taus) if taus else np.empty(0, np.int64)
        slot = np.concatenate(slots) if slots else np.empty(0, np.int64)
        order = self._below.order() if self.order_width else None
        return self.number(
            Elements(
                tau,
                None,
                elements.width,
                lambda position: self._below.column(position).take(slot),
                None if order is None else order.take(slot, axis=0),
            )
        )

    def _count_repeated(self, inputs: Sequence[Elements], given: Integers, heartbeat: int) -> None:
        """Count rows that are given while nothing comes and they do not change.

        Raises
        ------
        InvalidQuery
            They are too many.
        """
        if not len(given):
            return
        last, upto = int(given[-1]), heartbeat
        for tau in (part.tau for part in inputs):
            count = int(tau.searchsorted(last, side="right"))
            if count and tau[count - 1] > self._changed_ns:
                self._changed_ns = int(tau[count - 1])
                self._repeated = -int(given.searchsorted(self._changed_ns))
            if count < len(tau):
                upto = min(upto, int(tau[count]))
        self._repeated += len(given)
        if self._repeated <= MOST_REPEATED:
            return
        rows, first = int(self._relation.state[0]), max(self._changed_ns, self.first_tau or 0)
        raise InvalidQuery(
            f"Rstream each {duration_text(self._slide_ns)} would give {rows:,} rows, which do not change, at each "
            f"instant from {format_instant(first)} to {format_instant(upto)}: "
            f"{(upto - first) // self._slide_ns * rows:,} rows, above the {MOST_REPEATED:,} allowed. If a clock has "
            "jumped, end the stretch before it or correct its readings; else take a larger Slide, or windows of time "
            "that empty"
        )

    def _enter_rest(self, elements: Elements) -> None:
        """Enter the elements after the last instant."""
        assert elements.slots is not None
        rest = int(self._relation.state[1])
        if rest < len(elements):
            out = RelationOutput(np.empty(0, np.int64), np.empty(0, np.int64))
            last = np.array([elements.tau[-1]])
            list_relation(self._relation, elements.tau, elements.signs(), elements.slots, last, out)
