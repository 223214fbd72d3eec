"""Numbers of distinct rows, on the compiled table."""

from collections.abc import Sequence

import numpy as np

from hypergrid.continuous.engine.batch import EMPTY, Column, Integers, bits_of
from hypergrid.continuous.engine.kernels.rows import FILLED, FREE, USED, RowState, intern_rows, release_rows
from hypergrid.continuous.engine.state import State, Stateful


def pack(columns: Sequence[Column], count: int) -> Integers:
    """Return columns as rows of bits, shape (n, columns), in which equal values have equal bits."""
    if len(columns) == 1:
        return np.ascontiguousarray(bits_of(columns[0])).reshape(count, 1)
    rows = np.empty((count, len(columns)), np.int64)
    for position, column in enumerate(columns):
        rows[:, position] = bits_of(column)
    return rows


def _fill(rows: RowState) -> RowState:
    """Fill the empty cells of a table with its rows."""
    rows.state[FILLED] = -1
    intern_rows(rows, rows.keys[:0], EMPTY, 0)
    return rows


class RowTable(Stateful):
    """Table of rows of bits: equal rows have one number, which is given again once it is released."""

    def __init__(self, width: int) -> None:
        self._rows = self._make(64, width)

    @staticmethod
    def _make(capacity: int, width: int) -> RowState:
        return RowState(
            np.zeros(4 * capacity, np.int64),
            np.zeros(4 * capacity if width == 1 else 0, np.int64),
            np.zeros((capacity, width), np.int64),
            np.zeros(capacity, np.int64),
            np.zeros(capacity, np.int64),
            np.array([-1, 0, 0], np.int64),
        )

    @property
    def capacity(self) -> int:
        """One more than the greatest number that rows can have without growing."""
        return len(self._rows.keys)

    def save(self) -> State:
        rows = self._rows
        used = slice(0, int(rows.state[USED]))
        return [len(rows.keys), rows.keys[used], rows.hashes[used], rows.following[used], rows.state]

    def load(self, state: State) -> None:
        capacity, *held, numbers = state
        rows = self._make(capacity, self._rows.keys.shape[1])
        for array, values in zip((rows.keys, rows.hashes, rows.following), held, strict=True):
            array[: len(values)] = values
        rows.state[:] = numbers
        self._rows = _fill(rows)

    def intern(self, rows: Integers) -> Integers:
        """Return the number of each row of bits, shape (n, width)."""
        numbers = np.empty(len(rows), np.int64)
        done = 0
        while (done := intern_rows(self._rows, rows, numbers, done)) < len(rows):
            self._grow()
        return numbers

    def _grow(self) -> None:
        old = self._rows
        used = int(old.state[USED])
        # Numbers that are free, or cells of rows removed, may be all that is lacking.
        is_full = used == len(old.keys) and old.state[FREE] < 0
        capacity = len(old.keys) * (2 if is_full else 1)
        fresh = self._make(capacity, old.keys.shape[1])
        for name in ("keys", "hashes", "following"):
            getattr(fresh, name)[: len(old.keys)] = getattr(old, name)
        fresh.state[:] = old.state
        self._rows = _fill(fresh)

    @property
    def all_keys(self) -> Integers:
        """Rows by number, also those that are free, shape (capacity, width)."""
        return self._rows.keys

    def release(self, numbers: Integers) -> None:
        """Free numbers; those that are free already stay so."""
        release_rows(self._rows, numbers)

    def clear(self) -> None:
        """Free all numbers."""
        self._rows.table[:] = 0
        self._rows.direct[:] = 0
        self._rows.state[:] = (-1, 0, 0)
