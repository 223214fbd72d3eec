"""Filters, projections, samples and unions, which hold nothing."""

import hashlib
from collections.abc import Sequence

import numpy as np

from hypergrid.continuous.algebra import BagOf, FilterOf, ProjectionOf, SampleOf
from hypergrid.continuous.engine.batch import PHYSICAL, Column, Elements, Integers, bits_of, concatenate, make_order
from hypergrid.continuous.engine.evaluation import Evaluate, ExpressionEvaluator
from hypergrid.continuous.engine.operators.base import Needs, StepOperator
from hypergrid.continuous.engine.row_store import HeldColumns
from hypergrid.continuous.engine.state import Stateful
from hypergrid.continuous.engine.texts import Texts
from hypergrid.continuous.expressions import Reference


def select_true(holds: Evaluate | None, elements: Elements) -> Elements:
    """Return the elements for which a condition is true; all without one."""
    if holds is None or not len(elements.tau):
        return elements
    kept = holds(elements).nonzero()[0]
    return elements if len(kept) == len(elements.tau) else elements.take(kept)


class Filter(StepOperator):
    """Elements for which a predicate is true."""

    HOLDS_ROWS = False

    def __init__(self, operator: FilterOf, below: StepOperator, evaluator: ExpressionEvaluator) -> None:
        super().__init__(operator.attributes, evaluator)
        self.store, self.unique, self.order_width = below.store, below.unique, below.order_width
        self.is_queue, self.is_growing = below.is_queue, below.is_growing
        self._holds = evaluator.prepare_truth(operator.predicate)

    def process(self, inputs: Sequence[Elements], heartbeat: int) -> Elements:
        return select_true(self._holds, inputs[0])


class Projection(StepOperator):
    """Expressions of elements; their slots stay those of the input."""

    STATE = (*StepOperator.STATE, "_computed")
    HOLDS_ROWS = False

    def __init__(
        self, operator: ProjectionOf, below: StepOperator, needs: Needs, evaluator: ExpressionEvaluator
    ) -> None:
        super().__init__(operator.attributes, evaluator)
        self._values = [evaluator.prepare_value(part) for part in operator.expressions]
        self.order_width, self.is_queue, self.is_growing = below.order_width, below.is_queue, below.is_growing
        references = {
            part.position: position for position, part in enumerate(operator.expressions) if isinstance(part, Reference)
        }
        # Changes of what is not kept would show as rows that leave and enter.
        if below.unique is not None and set(range(len(below.attributes))) <= set(references):
            self.unique = frozenset(references[position] for position in below.unique)
        # The columns that are there, with other names perhaps.
        self._is_renaming = len(operator.expressions) == len(below.attributes) and all(
            isinstance(part, Reference) and part.position == position
            for position, part in enumerate(operator.expressions)
        )
        self._computed: ComputedColumns | None = None
        if needs.slots and below.store is not None:
            self._computed = ComputedColumns(operator, below.store, needs)
            self.store = self._computed

    def process(self, inputs: Sequence[Elements], heartbeat: int) -> Elements:
        below = inputs[0]
        if self._is_renaming and below.slots is None:
            return below
        elements = Elements(
            below.tau,
            below.sign,
            len(self._values),
            lambda position: self._values[position](below),
            below.order,
            below.slots if self.store is not None else None,
        )
        if self._computed is not None:
            self._computed.write(elements)
        return elements


class ComputedColumns(Stateful):
    """Columns of a projection by slot: those of the input, and those that are computed."""

    STATE = ("_columns",)

    def __init__(self, operator: ProjectionOf, below: HeldColumns, needs: Needs) -> None:
        self._below = below
        self._columns: dict[int, Column] = {}
        self._references: dict[int, int] = {}
        for position in needs.columns:
            part = operator.expressions[position]
            if isinstance(part, Reference):
                self._references[position] = part.position
            else:
                self._columns[position] = np.empty(0, PHYSICAL[part.kind])

    @property
    def capacity(self) -> int:
        """One more than the greatest slot."""
        return self._below.capacity

    def column(self, position: int) -> Column:
        """Return a column by slot, shape (capacity,)."""
        if position in self._references:
            return self._below.column(self._references[position])
        return self._columns[position]

    def order(self) -> Integers | None:
        """Return the order of rows by slot, if it is held."""
        return self._below.order()

    def write(self, elements: Elements) -> None:
        """Write what is computed of elements that are added."""
        if elements.slots is None or not len(elements):
            return
        added = slice(None) if elements.sign is None else elements.sign > 0
        for position, column in self._columns.items():
            if len(column) < self.capacity:
                grown = np.empty(self.capacity, column.dtype)
                grown[: len(column)] = column
                column = self._columns[position] = grown
            column[elements.slots[added]] = elements.column(position)[added]


class Union(StepOperator):
    """Elements of both inputs."""

    STATE = (*StepOperator.STATE, "_number")
    HOLDS_ROWS = False

    def __init__(
        self, operator: BagOf, parts: Sequence[StepOperator], needs: Needs, evaluator: ExpressionEvaluator
    ) -> None:
        super().__init__(operator.attributes, evaluator)
        self._positions = sorted(needs.columns)
        self._is_stream = operator.is_stream
        self._number = 0
        if needs.order:
            widest = max(part.order_width for part in parts)
            self.order_width = 2 if self._is_stream else widest + 1

    def process(self, inputs: Sequence[Elements], heartbeat: int) -> Elements:
        if self.order_width and not self._is_stream:
            inputs = [self._tag(part, side) for side, part in enumerate(inputs)]
        elements = concatenate(inputs, self._positions)
        if self.order_width and self._is_stream:
            return number_elements(elements, self)
        return elements

    def _tag(self, part: Elements, side: int) -> Elements:
        """Return elements whose order names their side after the stamp."""
        assert part.order is not None
        order = np.zeros((len(part), self.order_width), np.int64)
        order[:, 0], order[:, 1] = part.order[:, 0], side
        order[:, 2 : 1 + part.order.shape[1]] = part.order[:, 1:]
        return part.relabel(part.sign, order)

    def take_number(self, count: int) -> int:
        """Return the number of the next element of a stream, and count on."""
        self._number += count
        return self._number - count


def number_elements(elements: Elements, counter: Union) -> Elements:
    """Return the elements of a stream with their stamps and running numbers as order."""
    order = make_order(elements.tau, counter.take_number(len(elements)))
    return elements.relabel(elements.sign, order, elements.slots)


class Sample(StepOperator):
    """Elements of a stream whose hash is below a share."""

    HOLDS_ROWS = False

    def __init__(self, operator: SampleOf, below: StepOperator, evaluator: ExpressionEvaluator) -> None:
        super().__init__(operator.attributes, evaluator)
        self.order_width = below.order_width
        self._share, self._seed = operator.share, operator.seed

    def process(self, inputs: Sequence[Elements], heartbeat: int) -> Elements:
        elements = inputs[0]
        words = mix_words(np.array(self._seed).astype(np.uint64))
        words = mix_words(words ^ mix_words(elements.tau.view(np.uint64)))
        for position, attribute in enumerate(self.attributes):
            bits = bits_of(elements.column(position)).view(np.uint64)
            if attribute.kind == "text":
                bits = _digest(self.evaluator.texts)[elements.column(position)]
            words = mix_words(words ^ bits)
        return elements.take(np.flatnonzero((words >> np.uint64(11)) * 2.0**-53 < self._share))


def mix_words(words: np.ndarray) -> np.ndarray:
    """Return the finaliser of splitmix64 of words after adding its constant."""
    with np.errstate(over="ignore"):
        words = words + np.uint64(0x9E3779B97F4A7C15)
        words = (words ^ (words >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        words = (words ^ (words >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return np.asarray(words ^ (words >> np.uint64(31)))


def _digest(texts: Texts) -> np.ndarray:
    return texts.derive("digest", _digest_texts, 2**64 - 1)


def _digest_texts(texts: Sequence[str]) -> np.ndarray:
    digests = (hashlib.blake2b(text.encode(), digest_size=8).digest() for text in texts)
    return np.frombuffer(b"".join(digests), "<u8").astype(np.uint64)
