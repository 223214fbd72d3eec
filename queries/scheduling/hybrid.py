"""Strategy that chooses its order at run time, an open question of the thesis (4.11)."""

import math
from heapq import heapify, heappop, heappush
from typing import Final

from queries.scheduling.job_tree import JobTree
from queries.scheduling.ordered import Order, Ordered, deadline_key, profit_key
from queries.scheduling.strategy import Work

CALM: Final = Order(deadline_key)
"""If all work can be in time: earliest deadline first, which then misses none."""
PRESSED: Final = Order(profit_key)
"""If not all can be in time: highest profit per second first."""
PRESSURE: Final = 0.3
"""Pressure above which densities decide; tuned on seeds that are not used for evaluation
(`tests/bench/scheduling_hybrid.py`).
"""
RELEASE: Final = 0.5
"""Share of that pressure below which deadlines decide again: hysteresis against switching at every push."""
FORGETTING: Final = 0.02
"""Weight of a new piece in the spread of densities."""


class Hybrid(Ordered):
    """OptProfit's fragments, ordered by deadline or by profit, as decided at each push.

    Pressure is the open work divided by the mean laxity of the waiting pieces, times the coefficient of variation of
    the densities. If it is low, all work can be done, or is worth the same: deadlines decide. If it is high, some work
    will be late, and profits decide which.

    Parameters
    ----------
    name
        Name of the strategy.
    pressure
        Threshold at which the order changes.
    """

    def __init__(self, name: str = "hybrid", *, pressure: float = PRESSURE) -> None:
        super().__init__(name, "fragments", CALM)
        self._pressure_at = pressure
        self._open_s: dict[JobTree, float] = {}
        """Remaining work of each open tree [s]."""
        self._ends: list[tuple[float, int, JobTree]] = []
        self._backlog_s = 0.0
        self._mean = self._variance = 0.0
        self.changes = 0
        """Number of order changes."""

    @property
    def is_pressed(self) -> bool:
        """Whether profits decide."""
        return self._order is PRESSED

    def push(self, tree: JobTree, now_s: float) -> None:
        """Add the jobs of a new batch, and choose the order."""
        cut = tree.shape.cut(self._rule)
        self._open(tree, sum(piece.cost_s for piece in cut.fragments) * tree.size)
        if tree.ends_s < math.inf:
            heappush(self._ends, (tree.ends_s, self._pushed, tree))
        for piece in cut.fragments:
            density = piece.value / piece.cost_s
            change = density - self._mean
            # The first piece sets the mean.
            weight = FORGETTING if self._mean else 1.0
            self._mean += weight * change
            self._variance = (1 - weight) * (self._variance + weight * change**2)
        super().push(tree, now_s)
        while self._ends and self._ends[0][0] < now_s:
            self._close(heappop(self._ends)[-1])
        pressure = self.pressure(now_s)
        # Hysteresis: a pressed strategy calms down only at a lower pressure.
        order = PRESSED if pressure > self._pressure_at * (RELEASE if self.is_pressed else 1.0) else CALM
        self.steps += 1
        if order is not self._order:
            self._order = order
            self.changes += 1
            self._rekey()

    def pressure(self, now_s: float) -> float:
        """Return open work over mean laxity, times the spread of densities; 0 without work."""
        laxity_s = self.laxity_s(now_s)
        spread = math.sqrt(self._variance) / self._mean if self._mean else 0.0
        if not self._backlog_s:
            return 0.0
        # Without any laxity left, all waiting work is late already.
        return spread * self._backlog_s / laxity_s if 0 < laxity_s < math.inf else math.inf

    def done(self, work: Work, now_s: float) -> None:
        super().done(work, now_s)
        if work.tree not in self._left:
            self._close(work.tree)
        elif work.tree in self._open_s:
            self._open(work.tree, -work.fragment.cost_s * work.tree.size)

    def withdraw(self, tree: JobTree) -> int:
        self._close(tree)
        return super().withdraw(tree)

    def _open(self, tree: JobTree, seconds: float) -> None:
        self._open_s[tree] = self._open_s.get(tree, 0.0) + seconds
        self._backlog_s += seconds

    def _close(self, tree: JobTree) -> None:
        self._backlog_s -= self._open_s.pop(tree, 0.0)
        # Reset to exactly 0, so that rounding errors do not accumulate.
        if not self._open_s:
            self._backlog_s = 0.0

    def _rekey(self) -> None:
        """Re-sort the waiting pieces by the current order. O(n), at most once per push."""
        waiting = [(entry[-1], entry[-2]) for entry in self._ready if entry[-1].stamp == entry[-2]]
        self._ready = [(*self._order.key(work), stamp, work) for work, stamp in waiting]
        heapify(self._ready)
        self.steps += len(waiting)
