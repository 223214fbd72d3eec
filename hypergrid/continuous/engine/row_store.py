"""Columns of rows that operators hold, kept once: elements refer to them by slot."""

import math
import mmap
from collections import deque
from collections.abc import Iterable
from typing import Any, Final, Protocol

import numpy as np

from hypergrid.continuous.engine.batch import EMPTY, PHYSICAL, Column, Elements, Integers
from hypergrid.continuous.engine.state import State, Stateful
from hypergrid.continuous.expressions import Attributes

MAPPED_BYTES: Final = 2**18
"""From how many bytes on an array has a mapping of its own."""


class HeldColumns(Protocol):
    """Columns by slot."""

    @property
    def capacity(self) -> int:
        """One more than the greatest slot."""
        ...

    def column(self, position: int) -> Column:
        """Return a column by slot, shape (capacity,)."""
        ...

    def order(self) -> Integers | None:
        """Return the order of rows by slot, shape (capacity, w), if it is held."""
        ...


def reserve(shape: tuple[int, ...], dtype: Any) -> Column:  # noqa: ANN401 - what numpy takes
    """Return an array whose memory is taken page by page as it is written, and given back at once when it is freed.

    Arrays of a few MiB from the allocator leave holes behind as a store grows, a quarter of a window's memory.
    """
    size = math.prod(shape) * np.dtype(dtype).itemsize
    if size < MAPPED_BYTES:
        return np.empty(shape, dtype)
    mapped = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    return np.frombuffer(mapped, dtype).reshape(shape)


def _join_words(rows: Integers) -> Column:
    """Return rows, shape (n, w), as n values of as many bytes."""
    return np.ascontiguousarray(rows).view(f"V{8 * rows.shape[1]}").reshape(-1)


class RowStore(Stateful):
    """Columns of rows; slots are free again one round after they were released, so that elements can refer to them."""

    def __init__(self, attributes: Attributes, positions: Iterable[int], order_width: int) -> None:
        self._columns: dict[int, Column] = {
            position: np.empty(0, PHYSICAL[attributes[position].kind]) for position in sorted(positions)
        }
        self._order = np.empty((0, order_width), np.int64) if order_width else None
        self._free: deque[Integers] = deque()
        self._released: list[Integers] = []
        self._used = 0
        self.capacity = 0
        self.width = len(attributes)

    def column(self, position: int) -> Column:
        """Return a column by slot, shape (capacity,)."""
        return self._columns[position]

    def order(self) -> Integers | None:
        """Return the order of rows by slot, shape (capacity, w), if it is held."""
        return self._order

    def save(self) -> State:
        used = slice(0, self._used)
        return {
            "columns": [column[used] for column in self._columns.values()],
            "order": None if self._order is None else self._order[used],
            "free": list(self._free),
            "released": self._released,
            "used": self._used,
            "capacity": self.capacity,
        }

    def load(self, state: State) -> None:
        self._used = state["used"]
        self._grow(state["capacity"])
        for column, held in zip(self._columns.values(), state["columns"], strict=True):
            column[: len(held)] = held
        if self._order is not None:
            self._order[: len(state["order"])] = state["order"]
        self._free, self._released = deque(state["free"]), state["released"]

    def allocate(self, count: int) -> Integers:
        """Return free slots, oldest first, so that rows that leave in order stay in order.

        It is called once a round, and frees what was released in the round before.
        """
        if self._released:
            self._free.extend(self._released)
            self._released.clear()
        if not count:
            return EMPTY
        # As many as left in the round before, most often.
        if self._free and len(self._free[0]) == count:
            return self._free.popleft()
        parts: list[Integers] = []
        while count and self._free:
            part = self._free.popleft()
            if len(part) > count:
                self._free.appendleft(part[count:])
                part = part[:count]
            parts.append(part)
            count -= len(part)
        if count:
            parts.append(np.arange(self._used, self._used + count))
            self._used += count
            if self._used > self.capacity:
                self._grow(max(self._used, 2 * self.capacity, 1024))
        return np.concatenate(parts) if len(parts) != 1 else parts[0]

    def _grow(self, capacity: int) -> None:
        for position, column in self._columns.items():
            grown = reserve((capacity,), column.dtype)
            grown[: self.capacity] = column
            self._columns[position] = grown
        if self._order is not None:
            order = reserve((capacity, self._order.shape[1]), np.int64)
            order[: self.capacity] = self._order
            self._order = order
        self.capacity = capacity

    def write(self, slots: Integers, elements: Elements) -> None:
        """Write the rows of elements."""
        for position, column in self._columns.items():
            column[slots] = elements.column(position)
        if self._order is not None:
            assert elements.order is not None
            # Each row as one value: nine times as fast as two of them.
            _join_words(self._order)[slots] = _join_words(elements.order)

    def release(self, slots: Integers) -> None:
        """Let slots be free from the next round on."""
        if len(slots):
            self._released.append(slots)

    def refer(self, tau: Integers, sign: Column | None, slots: Integers) -> Elements:
        """Return elements that refer to slots."""
        return refer_to(self, tau, sign, slots, self.width)


def refer_to(store: HeldColumns, tau: Integers, sign: Column | None, slots: Integers, width: int) -> Elements:
    """Return elements that refer to slots of a store."""
    order = store.order()
    return Elements(
        tau,
        sign,
        width,
        lambda position: store.column(position).take(slots),
        None if order is None else order.take(slots, axis=0),
        slots,
    )
