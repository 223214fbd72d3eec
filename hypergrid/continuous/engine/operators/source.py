"""Sources: elements that were given, in canonical order."""

from collections.abc import Sequence

import numpy as np

from hypergrid.continuous.algebra import RelationInput, StreamInput
from hypergrid.continuous.engine.batch import EMPTY, ElementBatch, Elements, Integers, elements_of, no_elements
from hypergrid.continuous.engine.evaluation import ExpressionEvaluator
from hypergrid.continuous.engine.operators.base import Needs, StepOperator
from hypergrid.continuous.engine.state import State, batches_of, save_batches
from hypergrid.continuous.expressions import NULL_INTEGER
from hypergrid.core.errors import InvalidQuery


class InputSource(StepOperator):
    """Elements of a named stream or relation; those at and after the heartbeat wait."""

    STATE = (*StepOperator.STATE, "_taken", "_number", "_is_sorted", "_is_plain", "last_tau")

    def __init__(self, operator: StreamInput | RelationInput, needs: Needs, evaluator: ExpressionEvaluator) -> None:
        super().__init__(operator.attributes, evaluator)
        self.is_stream = operator.is_stream
        self._name = operator.name
        self._kinds = [attribute.kind for attribute in operator.attributes]
        self._positions = sorted(needs.columns)
        self.order_width = 2 if needs.order else 0
        self._waiting: list[ElementBatch] = []
        self._taken = self._number = 0
        self._is_sorted = self._is_plain = True
        self._round = no_elements(self._kinds, ordered=False)
        self.last_tau: int | None = None
        """Greatest instant that was given; None if there is none but the start."""

    def save(self) -> State:
        return {**super().save(), "waiting": save_batches(self._waiting)}

    def load(self, state: State) -> None:
        super().load(state)
        self._waiting = batches_of(state["waiting"])

    def push(self, batch: ElementBatch, heartbeat: int) -> None:
        """Take a batch whose instants are not before the heartbeat.

        Raises
        ------
        InvalidQuery
            Columns do not fit, or an instant is before the heartbeat.
        """
        batch.check(self._name, self._kinds, is_stream=self.is_stream)
        if not len(batch.tau):
            return
        first = int(batch.tau.min())
        if first < heartbeat and heartbeat > NULL_INTEGER:
            raise InvalidQuery(
                f"input {self._name!r} needs instants from the heartbeat {heartbeat} ns on; got {first}; "
                "elements that come late are corrections of a result, not part of it"
            )
        if first == NULL_INTEGER and self.is_stream:
            raise InvalidQuery(f"stream {self._name!r} has an element without instant")
        last = int(batch.tau.max())
        if last != NULL_INTEGER:
            self.last_tau = last if self.last_tau is None else max(self.last_tau, last)
        is_sorted = bool((batch.tau[1:] >= batch.tau[:-1]).all())
        is_plain = batch.arrival is None and batch.series is None and batch.number is None
        if self._taken and is_plain != self._is_plain:
            raise InvalidQuery(f"input {self._name!r} needs the order of elements in all batches, or in none")
        self._is_plain = is_plain
        if batch.number is None and not is_plain:
            numbers = np.arange(self._taken, self._taken + len(batch.tau))
            batch = ElementBatch(batch.tau, batch.columns, batch.sign, batch.arrival, batch.series, numbers)
        self._taken += len(batch.tau)
        follows = not self._waiting or self._waiting[-1].tau[-1] <= first
        # Batches without numbers that follow each other in time are in canonical order as they come.
        self._is_sorted = self._is_sorted and is_plain and is_sorted and follows
        self._waiting.append(batch)

    def waiting_taus(self, heartbeat: int) -> Integers:
        """Return the instants of waiting elements before a heartbeat, in order."""
        self._sort()
        if not self._waiting:
            return EMPTY
        tau = self._waiting[0].tau if len(self._waiting) == 1 else np.concatenate([part.tau for part in self._waiting])
        return tau[: int(np.searchsorted(tau, heartbeat))]

    def _sort(self) -> None:
        """Put what waits into canonical order."""
        if self._waiting and not self._is_sorted:
            batch = _join(self._waiting)
            keys = [part for part in (batch.number, batch.series, batch.arrival, batch.tau) if part is not None]
            self._waiting = [_take(batch, np.lexsort(keys))]
            self._is_sorted = True

    def count_before(self, heartbeat: int) -> int:
        """Return how many elements that wait are before a heartbeat."""
        self._sort()
        count = 0
        for batch in self._waiting:
            count += int(np.searchsorted(batch.tau, heartbeat))
            if batch.tau[-1] >= heartbeat:
                break
        return count

    def _take_first(self, count: int) -> ElementBatch:
        """Take the first elements from what waits; batches are copied only where a round takes several."""
        taken: list[ElementBatch] = []
        while count:
            batch = self._waiting.pop(0)
            if len(batch.tau) > count:
                self._waiting.insert(0, _take(batch, slice(count, None)))
                batch = _take(batch, slice(0, count))
            taken.append(batch)
            count -= len(batch.tau)
        return taken[0] if len(taken) == 1 else _join(taken)

    def begin_round(self, heartbeat: int) -> None:
        """Let the elements before a heartbeat be those of the round."""
        count = self.count_before(heartbeat)
        if not count:
            self._round = no_elements(self._kinds, ordered=False)
            if self.order_width:
                self._round.order = np.empty((0, 2), np.int64)
            return
        present = self._take_first(count)
        if not self._waiting:
            self._is_sorted = True
        if self.first_tau is None and present.tau[-1] != NULL_INTEGER:
            self.first_tau = int(present.tau[np.searchsorted(present.tau, NULL_INTEGER, side="right")])
        self._round = elements_of(present.tau, present.sign, present.columns)
        if self.order_width:
            numbers = np.arange(self._number, self._number + count)
            self._round.order = np.stack([present.tau, numbers], axis=1)
        self._number += count

    def process(self, inputs: Sequence[Elements], heartbeat: int) -> Elements:
        return self._round


def _take(batch: ElementBatch, kept: Integers | slice) -> ElementBatch:
    return ElementBatch(
        batch.tau[kept],
        tuple(column[kept] for column in batch.columns),
        None if batch.sign is None else batch.sign[kept],
        *(None if part is None else part[kept] for part in (batch.arrival, batch.series, batch.number)),
    )


def _join(batches: Sequence[ElementBatch]) -> ElementBatch:
    """Return one batch; what only some batches have is 0 in the others, or +1 for signs."""

    def join(name: str, missing: int) -> Integers | None:
        parts = [getattr(batch, name) for batch in batches]
        if all(part is None for part in parts):
            return None
        dtype = np.int8 if name == "sign" else np.int64
        return np.concatenate(
            [
                np.full(len(batch.tau), missing, dtype) if part is None else part
                for part, batch in zip(parts, batches, strict=True)
            ]
        )

    width = len(batches[0].columns)
    return ElementBatch(
        np.concatenate([batch.tau for batch in batches]),
        tuple(np.concatenate([batch.columns[position] for batch in batches]) for position in range(width)),
        join("sign", 1),  # type: ignore[arg-type]
        join("arrival", 0),
        join("series", 0),
        join("number", 0),
    )
