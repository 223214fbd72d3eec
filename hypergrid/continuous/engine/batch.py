"""Batches of elements: at the door of the engine, and between its operators."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from hypergrid.continuous.expressions import Kind, null_of
from hypergrid.core.errors import InvalidQuery

Column: TypeAlias = NDArray[Any]
Integers: TypeAlias = NDArray[np.int64]
Signs: TypeAlias = NDArray[np.int8]

_INTEGER: Final = np.dtype(np.int64)
PHYSICAL: Final[dict[Kind, np.dtype[Any]]] = {
    "number": np.dtype(np.float64),
    "integer": _INTEGER,
    "time": _INTEGER,
    "text": _INTEGER,
    "boolean": _INTEGER,
}
"""Type of numpy in which a kind is held."""


class ElementBatch(NamedTuple):
    """Elements of a stream, or insertions and deletions of a relation.

    Elements of one instant are ordered by (arrival, series, number), by their position where these are absent. Arrays
    are not copied: they must not change once the batch was pushed.
    """

    tau: Integers
    """Instants [ns since 1970-01-01 UTC], shape (n,)."""
    columns: tuple[Column, ...]
    """One array of shape (n,) for each attribute, of the numpy type of its kind; texts as codes of the engine."""
    sign: Signs | None = None
    """+1 for rows that are added, -1 for rows that are removed; None if all are added."""
    arrival: Integers | None = None
    series: Integers | None = None
    number: Integers | None = None
    """Distinguishes the elements of one instant, arrival and series; positions in the stream if None."""

    @property
    def is_plain(self) -> bool:
        """Whether elements of one instant are ordered by their position."""
        return self.arrival is None and self.series is None and self.number is None

    def signs(self) -> Signs:
        """Return the signs, also if all are +1."""
        return _all_positive(len(self.tau)) if self.sign is None else self.sign

    def check(self, name: str, types: Sequence[np.dtype[Any]], *, is_stream: bool) -> None:
        """Raise `InvalidQuery` if shapes or types do not fit those of an input's columns."""
        tau, columns = self.tau, self.columns
        shape = tau.shape
        if len(columns) != len(types):
            raise InvalidQuery(f"input {name!r} needs {len(types)} columns, in order; got {len(columns)}")
        if tau.dtype != _INTEGER or len(shape) != 1:
            raise InvalidQuery(f"input {name!r} needs instants as int64 nanoseconds; got {tau.dtype}")
        for position, column in enumerate(columns):
            if column.shape != shape or column.dtype != types[position]:
                raise InvalidQuery(
                    f"column {position} of input {name!r} needs {len(tau)} values of {types[position]}; "
                    f"got {column.shape} of {column.dtype}"
                )
        for part in () if self.is_plain else (self.arrival, self.series, self.number):
            if part is not None and part.shape != shape:
                raise InvalidQuery(f"order of input {name!r} needs {len(self.tau)} values; got {part.shape}")
        if self.sign is not None:
            if self.sign.shape != self.tau.shape:
                raise InvalidQuery(f"input {name!r} needs {len(self.tau)} signs; got {self.sign.shape}")
            if self.sign.dtype != np.int8:
                raise InvalidQuery(f"input {name!r} needs signs as int8; got {self.sign.dtype}")
            if is_stream and (self.sign != 1).any():
                raise InvalidQuery(f"stream {name!r} cannot remove elements; give a relation, or signs of +1")


Gather: TypeAlias = Callable[[int], Column]


Kept: TypeAlias = Integers | Sequence[slice]
"""Positions, or slices; a mask would be taken for positions."""


def pick(values: Column, kept: Kept) -> Column:
    """Return values, or rows of two dimensions."""
    if isinstance(kept, np.ndarray):
        # Indexing takes twice the time for values, and 15 times for rows.
        return values.take(kept, axis=0)
    return values[kept[0]] if len(kept) == 1 else np.concatenate([values[part] for part in kept])


def list_positions(starts: Integers, stops: Integers) -> Integers:
    """Return the positions of ranges, one after the other."""
    counts = stops - starts
    return np.repeat(stops - np.cumsum(counts), counts) + np.arange(counts.sum())


@dataclass(slots=True)
class Elements:
    """Elements of complete instants, in order of time; columns are gathered when they are first read."""

    tau: Integers
    sign: Signs | None
    """None if all are +1."""
    width: int
    """Number of columns."""
    gather: Gather
    """Return the column at a position."""
    order: Integers | None = None
    """Canonical positions of the elements that the rows come from; only where an operator above needs them."""
    slots: Integers | None = None
    """Positions of the rows in the store of the operator, if it has one."""
    entering: "Elements | None" = None
    """Elements that enter, where these are only those that leave (`Needs.merged`)."""
    _columns: dict[int, Column] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.tau)

    def column(self, position: int) -> Column:
        """Return a column, shape (n,)."""
        column = self._columns.get(position)
        if column is None:
            column = self._columns[position] = self.gather(position)
        return column

    def signs(self) -> Signs:
        """Return the signs, also if all are +1."""
        return _all_positive(len(self.tau)) if self.sign is None else self.sign

    def relabel(self, sign: Signs | None, order: Integers | None = None, slots: Integers | None = None) -> "Elements":
        """Return the same rows with these signs, order and slots only; a column is gathered once for both."""
        assert self.entering is None
        return Elements(self.tau, sign, self.width, self.gather, order, slots, None, self._columns)

    def take(self, kept: Kept) -> "Elements":
        """Return the elements at positions, or those of slices; columns are still gathered late."""
        assert self.entering is None
        return Elements(
            pick(self.tau, kept),
            None if self.sign is None else pick(self.sign, kept),
            self.width,
            lambda position: pick(self.column(position), kept),
            None if self.order is None else pick(self.order, kept),
            None if self.slots is None else pick(self.slots, kept),
        )


def _all_positive(count: int) -> Signs:
    """Return signs of elements that are added."""
    # A third of the time of np.ones for a few hundred.
    signs = np.empty(count, np.int8)
    signs.fill(1)
    return signs


def elements_of(
    tau: Integers, sign: Signs | None, columns: Sequence[Column | None], order: Integers | None = None
) -> Elements:
    """Return elements with columns at hand; None stands for a column that nothing reads."""

    def gather(position: int) -> Column:
        column = columns[position]
        if column is None:
            raise AssertionError(f"column {position} was not kept")
        return column

    return Elements(tau, sign, len(columns), gather, order)


def make_order(tau: Integers, first: int) -> Integers:
    """Return the order of the rows of a stream, shape (n, 2): their instants, and numbers that go on from `first`."""
    # Half of the time that np.stack takes for a few hundred rows.
    order = np.empty((len(tau), 2), np.int64)
    order[:, 0], order[:, 1] = tau, np.arange(first, first + len(tau))
    return order


EMPTY: Final[Integers] = np.empty(0, np.int64)
NO_SIGNS: Final[Signs] = np.empty(0, np.int8)
"""Signs for a loop whose elements all enter, and which reads none."""


def no_elements(kinds: Sequence[Kind], *, ordered: bool) -> Elements:
    """Return no elements, of these kinds."""
    return elements_of(EMPTY, None, [np.empty(0, PHYSICAL[kind]) for kind in kinds], EMPTY if ordered else None)


def concatenate(parts: Sequence[Elements], positions: Sequence[int]) -> Elements:
    """Return elements of several inputs in order of time, those of earlier inputs first within an instant.

    Parameters
    ----------
    parts
        At least one, of equal width.
    positions
        Columns that are kept.
    """
    present = [part for part in parts if len(part)] or [parts[0]]
    if len(present) == 1:
        return present[0]
    tau = np.concatenate([part.tau for part in present])
    # Timsort merges runs that are in order already.
    by_time = np.argsort(tau, kind="stable")
    is_positive = all(part.sign is None for part in present)
    columns: list[Column | None] = [None] * present[0].width
    for position in positions:
        columns[position] = np.concatenate([part.column(position) for part in present]).take(by_time)
    orders = [part.order for part in present]
    return elements_of(
        tau.take(by_time),
        None if is_positive else np.concatenate([part.signs() for part in present]).take(by_time),
        columns,
        None if any(order is None for order in orders) else np.concatenate(orders).take(by_time, axis=0),  # type: ignore[arg-type]
    )


def bits_of(column: Column) -> Integers:
    """Return a column as 64 bits a value in which equal values have equal bits, NULL included."""
    if column.dtype != np.float64:
        return column
    # -0.0 + 0.0 is 0.0, and all kinds of NaN become one, signalling ones included, of which processors warn.
    with np.errstate(invalid="ignore"):
        clean = column + 0.0
    # The greatest of values is NaN if one of them is: faster than a mask.
    if len(clean) and np.isnan(np.maximum.reduce(clean)):
        clean[np.isnan(clean)] = np.nan
    return clean.view(np.int64)


def null_bits(kind: Kind) -> int:
    """Return the bits of NULL."""
    return int(bits_of(np.array([null_of(kind)], PHYSICAL[kind]))[0])


def null_mask(column: Column, kind: Kind) -> NDArray[np.bool_]:
    """Return where a column is NULL."""
    return np.isnan(column) if kind == "number" else np.asarray(column == null_of(kind))
