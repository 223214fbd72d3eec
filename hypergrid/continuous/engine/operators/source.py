"""Sources: elements that were given, in canonical order."""

from collections.abc import Sequence

import numpy as np

from hypergrid.continuous.algebra import RelationInput, StreamInput
from hypergrid.continuous.engine.batch import (
    EMPTY,
    PHYSICAL,
    ElementBatch,
    Elements,
    Integers,
    make_order,
    no_elements,
)
from hypergrid.continuous.engine.evaluation import ExpressionEvaluator
from hypergrid.continuous.engine.kernels.windows import are_in_order
from hypergrid.continuous.engine.operators.base import Needs, StepOperator
from hypergrid.continuous.engine.state import State, batches_of, save_batches
from hypergrid.continuous.expressions import NULL_INTEGER
from hypergrid.core.errors import InvalidQuery


class InputSource(StepOperator):
    """Elements of a named stream or relation; those at and after the heartbeat wait."""

    STATE = (*StepOperator.STATE, "_taken", "_number", "_is_sorted", "_is_plain")
    HOLDS_ROWS = False

    def __init__(self, operator: StreamInput | RelationInput, needs: Needs, evaluator: ExpressionEvaluator) -> None:
        super().__init__(operator.attributes, evaluator)
        self.is_stream = operator.is_stream
        self._name = operator.name
        self._types = [PHYSICAL[attribute.kind] for attribute in operator.attributes]
        self.order_width = 2 if needs.order else 0
        self._waiting: list[ElementBatch] = []
        # Elements of the first batch that waits which were taken.
        self._passed = 0
        self._taken = self._number = 0
        self._is_sorted = self._is_plain = True
        self._nothing = no_elements([attribute.kind for attribute in operator.attributes], ordered=False)
        if self.order_width:
            self._nothing.order = np.empty((0, 2), np.int64)
        self._round = self._nothing

    def save(self) -> State:
        self._drop_passed()
        return {**super().save(), "waiting": save_batches(self._waiting)}

    def load(self, state: State) -> None:
        super().load(state)
        self._waiting, self._passed = batches_of(state["waiting"]), 0
        for batch in self._waiting:
            batch.check(self._name, self._types, is_stream=self.is_stream)

    def push(self, batch: ElementBatch, heartbeat: int) -> None:
        """Take a batch whose instants are not before the heartbeat.

        Raises
        ------
        InvalidQuery
            Columns do not fit, or an instant is before the heartbeat.
        """
        batch.check(self._name, self._types, is_stream=self.is_stream)
        count = len(batch.tau)
        if not count:
            return
        is_plain = batch.is_plain
        batch = _make_contiguous(batch)
        tau = batch.tau
        is_sorted = are_in_order(tau)
        first = int(tau[0] if is_sorted else tau.min())
        if first < heartbeat and heartbeat > NULL_INTEGER:
            raise InvalidQuery(
                f"input {self._name!r} needs instants from the heartbeat {heartbeat} ns on; got {first}; "
                "elements that come late are corrections of a result, not part of it"
            )
        if first == NULL_INTEGER and self.is_stream:
            raise InvalidQuery(f"stream {self._name!r} has an element without instant")
        if self._taken and is_plain != self._is_plain:
            raise InvalidQuery(f"input {self._name!r} needs the order of elements in all batches, or in none")
        self._is_plain = is_plain
        if batch.number is None and not is_plain:
            numbers = np.arange(self._taken, self._taken + count)
            batch = ElementBatch(tau, batch.columns, batch.sign, batch.arrival, batch.series, numbers)
        self._taken += count
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
        return tau[self._passed : tau.searchsorted(heartbeat)]

    def _sort(self) -> None:
        """Put what waits into canonical order."""
        if self._waiting and not self._is_sorted:
            self._drop_passed()
            batch = _join(self._waiting)
            keys = [part for part in (batch.number, batch.series, batch.arrival, batch.tau) if part is not None]
            self._waiting = [_take(batch, np.lexsort(keys))]
            self._is_sorted = True

    def _drop_passed(self) -> None:
        if self._passed:
            self._waiting[0] = _take(self._waiting[0], slice(self._passed, None))
            self._passed = 0

    def count_before(self, heartbeat: int) -> int:
        """Return how many elements that wait are before a heartbeat."""
        self._sort()
        count = -self._passed
        for batch in self._waiting:
            if batch.tau[-1] >= heartbeat:
                return count + int(batch.tau.searchsorted(heartbeat))
            count += len(batch.tau)
        return count

    def begin_round(self, count: int) -> None:
        """Take the first `count` waiting elements as those of the round."""
        if not count:
            self._round = self._nothing
            return
        elements = self._round = self._take_first(count)
        if not self._waiting:
            self._is_sorted = True
        if self.first_tau is None and elements.tau[-1] != NULL_INTEGER:
            self.first_tau = int(elements.tau[elements.tau.searchsorted(NULL_INTEGER, side="right")])
        if self.order_width:
            elements.order = make_order(elements.tau, self._number)
        self._number += count

    def _take_first(self, count: int) -> Elements:
        """Take the first elements from what waits; columns of several batches are joined when they are read."""
        width, batch = len(self._types), self._waiting[0]
        if len(batch.tau) == count and not self._passed:
            self._waiting.pop(0)
            return Elements(batch.tau, batch.sign, width, batch.columns.__getitem__)
        parts: list[tuple[ElementBatch, slice]] = []
        while count:
            batch, first = self._waiting[0], self._passed
            stop = self._passed = min(first + count, len(batch.tau))
            if stop == len(batch.tau):
                self._waiting.pop(0)
                self._passed = 0
            parts.append((batch, slice(first, stop)))
            count -= stop - first
        if len(parts) == 1:
            [(batch, chosen)] = parts
            sign = None if batch.sign is None else batch.sign[chosen]
            return Elements(batch.tau[chosen], sign, width, lambda position: batch.columns[position][chosen])
        return Elements(
            np.concatenate([batch.tau[chosen] for batch, chosen in parts]),
            None
            if all(batch.sign is None for batch, _ in parts)
            else np.concatenate([batch.signs()[chosen] for batch, chosen in parts]),
            width,
            lambda position: np.concatenate([batch.columns[position][chosen] for batch, chosen in parts]),
        )

    def process(self, inputs: Sequence[Elements], heartbeat: int) -> Elements:
        """Return the elements of the round, which are let go of, as the next one may be far."""
        elements, self._round = self._round, self._nothing
        return elements


def _make_contiguous(batch: ElementBatch) -> ElementBatch:
    """Return a batch whose arrays are contiguous and can be written to, as those of Arrow and slices of tables may not.

    The loops are compiled for such arrays; each other kind would be compiled when it first comes, which takes 17 s.
    """
    parts = (batch.tau, *batch.columns, *batch[2:])
    for part in parts:
        if part is not None and not part.flags.carray:
            break
    else:
        return batch
    tau, *others = (None if part is None else np.require(part, requirements=["C", "A", "W"]) for part in parts)
    assert tau is not None
    width = len(batch.columns)
    return ElementBatch(tau, tuple(others[:width]), *others[width:])  # type: ignore[arg-type]


def _take(batch: ElementBatch, kept: Integers | slice) -> ElementBatch:
    return ElementBatch(
        batch.tau[kept],
        tuple(column[kept] for column in batch.columns),
        None if batch.sign is None else batch.sign[kept],
        *(None if part is None else part[kept] for part in (batch.arrival, batch.series, batch.number)),
    )


def _join(batches: Sequence[ElementBatch]) -> ElementBatch:
    """Return one batch; what only some batches have is 0 in the others, or +1 for signs."""

    def join(name: str) -> Integers | None:
        parts = [getattr(batch, name) for batch in batches]
        if all(part is None for part in parts):
            return None
        return np.concatenate(
            [
                np.zeros(len(batch.tau), np.int64) if part is None else part
                for part, batch in zip(parts, batches, strict=True)
            ]
        )

    width = len(batches[0].columns)
    return ElementBatch(
        np.concatenate([batch.tau for batch in batches]),
        tuple(np.concatenate([batch.columns[position] for batch in batches]) for position in range(width)),
        None if all(batch.sign is None for batch in batches) else np.concatenate([batch.signs() for batch in batches]),
        join("arrival"),
        join("series"),
        join("number"),
    )
