"""The directed random walk as the thesis prints it (5.7.3, algorithm 9), beside our own.

The thesis leaves open f, its threshold, g and the stride; they are chosen as plainly as possible. f is |v_i - v_(i-1)|,
as a mean over the time cells. Its threshold is the mean of all f so far: a number given beforehand would need to know
the values. RandGauss draws a direction around U whose standard deviation g falls from a quarter of a turn, where the
values are equal, as f grows beyond the threshold. Steps are reflected at the edge and end at the centre of a cell.
"""

from collections.abc import Iterable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hypergrid.execution.orders.walk import CellNumbers, Floats, Walk, WalkSettings, choose_times, reflect_positions

EQUAL_RAD: Final = np.pi / 2
"""Standard deviation of the direction where two values are equal [rad]."""
MAX_STEPS: Final = 1000
"""Steps in a row without a cell that is not computed yet, after which a walk ends: the rest comes coarse to fine."""


class PrintedWalk(Walk):
    """Serves the cells that k walkers of algorithm 9 meet, then the rest in a given order; as `Walk` otherwise."""

    def __init__(
        self,
        shape: tuple[int, int],
        walking: WalkSettings,
        *,
        total: int | None = None,
        order: Iterable[CellNumbers] | None = None,
    ) -> None:
        super().__init__(shape, walking, total=total, order=order)
        self._values = np.empty((0, 0))
        self._changes = 0.0
        self._compared = 0
        self._has_moved = False

    def add_values(self, cells: CellNumbers, values: Floats) -> None:
        if self._remaining is not None:
            return
        times = choose_times(len(values))
        if not self._values.size:
            self._values = np.full((len(times), self._total), np.nan)
        self._values[:, cells] = values[times]

    def _advance(self) -> CellNumbers:
        """Step until walkers meet cells that are not computed yet, and return them; none beyond the share."""
        for _ in range(MAX_STEPS):
            if np.count_nonzero(self._served) == self._budget:
                break
            direction, length = self._draw_direction(), self._stride
            if self._has_moved:
                length = length * self._random.random(self._walkers)
            step = np.stack([np.sin(direction), np.cos(direction)], axis=1) * np.reshape(length, (-1, 1))
            ends = np.rint(reflect_positions(self._next_positions + step, self._shape)).astype(np.intp)
            self._positions, self._next_positions, self._has_moved = self._next_positions, ends, True
            fresh = self._select_new(self._flatten_positions(ends))
            if len(fresh):
                return fresh
        return np.empty(0, dtype=np.intp)

    def _draw_direction(self) -> Floats:
        """Draw the walkers' next directions [rad] (lines 9 to 14); from the first cell anywhere (line 1)."""
        if not self._has_moved:
            return self._random.uniform(0.0, 2.0 * np.pi, self._walkers)
        change = self._find_changes()
        threshold = self._changes / max(self._compared, 1)
        moved = self._next_positions - self._positions
        mean = np.where(moved.any(axis=1), np.arctan2(moved[:, 0], moved[:, 1]), self._heading)
        # Line 10: towards the cell before.
        mean = np.where(change > threshold, mean + np.pi, mean)
        self._heading = mean
        spread = EQUAL_RAD / (1.0 + change / threshold) if threshold > 0 else np.full(self._walkers, EQUAL_RAD)
        return np.asarray(mean + spread * self._random.standard_normal(self._walkers))

    def _find_changes(self) -> Floats:
        """Return f of each walker's last two cells, and count them towards the threshold."""
        current, before = (
            self._values[:, self._flatten_positions(places)] for places in (self._next_positions, self._positions)
        )
        difference: NDArray[np.float64] = np.abs(current - before)
        known = np.isfinite(difference)
        change = np.sum(difference, axis=0, where=known) / np.maximum(np.count_nonzero(known, axis=0), 1)
        self._changes, self._compared = self._changes + float(change.sum()), self._compared + len(change)
        return np.asarray(change)
