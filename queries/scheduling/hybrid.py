"""A strategy that chooses its order while it runs: the question that the thesis leaves open (4.11)."""

import math
from heapq import heapify, heappop, heappush
from typing import Final

from queries.scheduling.job_tree import JobTree
from queries.scheduling.ordered import Order, Ordered, deadline_key, profit_key
from queries.scheduling.strategy import Work

CALM: Final = Order(deadline_key)
"""While all can be in time, earliest deadline first, which then misses none."""
PRESSED: Final = Order(profit_key)
"""When not all can be in time, what earns most for each second."""
PRESSURE: Final = 0.3
"""Above it densities decide; found on seeds that no figure is judged on (`tests/bench/scheduling_hybrid.py`)."""
RELEASE: Final = 0.5
"""Below this share of it deadlines decide again, so that the order does not change at every push."""
FORGETTING: Final = 0.02
"""What a new piece counts in the spread of densities."""


class Hybrid(Ordered):
    """OptProfit's fragments, by deadline or by profit, as load, laxity and the spread of densities tell at each push.

    Pressure is the work that is open, over the mean laxity of what waits, times the coefficient of variation of the
    densities. Where it is low all can be done, or all is worth the same: deadlines decide. Where it is high something
    will be late: profits decide what not.

    Parameters
    ----------
    name
        What it is called.
    pressure
        Where the order changes.
    """

    def __init__(self, name: str = "hybrid", *, pressure: float = PRESSURE) -> None:
        super().__init__(name, "fragments", CALM)
        self._pressure_at = pressure
        self._open_s: dict[JobTree, float] = {}
        """What each open tree still takes [s]."""
        self._ends: list[tuple[float, int, JobTree]] = []
        self._backlog_s = 0.0
        self._mean = self._variance = 0.0
        self.changes = 0
        """Times that the order changed."""

    @property
    def is_pressed(self) -> bool:
        """Whether profits decide."""
        return self._order is PRESSED

    def push(self, tree: JobTree, now_s: float) -> None:
        """Take the jobs of a new batch, and choose the order anew."""
        cut = tree.shape.cut(self._rule)
        self._open(tree, sum(piece.cost_s for piece in cut.fragments) * tree.size)
        if tree.ends_s < math.inf:
            heappush(self._ends, (tree.ends_s, self._pushed, tree))
        for piece in cut.fragments:
            density = piece.value / piece.cost_s
            change = density - self._mean
            weight = FORGETTING if self._mean else 1.0
            self._mean += weight * change
            self._variance = (1 - weight) * (self._variance + weight * change**2)
        super().push(tree, now_s)
        while self._ends and self._ends[0][0] < now_s:
            self._close(heappop(self._ends)[-1])
        pressure = self.pressure(now_s)
        order = PRESSED if pressure > self._pressure_at * (RELEASE if self.is_pressed else 1.0) else CALM
        self.steps += 1
        if order is not self._order:
            self._order = order
            self.changes += 1
            self._rekey()

    def pressure(self, now_s: float) -> float:
        """Return how much of what is open will be late, and how much that matters; 0 where nothing is open."""
        laxity_s = self.laxity_s(now_s)
        spread = math.sqrt(self._variance) / self._mean if self._mean else 0.0
        if not self._backlog_s:
            return 0.0
        # Without any laxity left all that waits is late already.
        return spread * self._backlog_s / laxity_s if 0 < laxity_s < math.inf else math.inf

    def done(self, work: Work, now_s: float) -> None:
        """Learn that a piece is complete."""
        super().done(work, now_s)
        if work.tree not in self._left:
            self._close(work.tree)
        elif work.tree in self._open_s:
            self._open(work.tree, -work.fragment.cost_s * work.tree.size)

    def withdraw(self, tree: JobTree) -> int:
        """Forget the jobs of a tree that have not begun; return how many pieces waited."""
        self._close(tree)
        return super().withdraw(tree)

    def _open(self, tree: JobTree, seconds: float) -> None:
        self._open_s[tree] = self._open_s.get(tree, 0.0) + seconds
        self._backlog_s += seconds

    def _close(self, tree: JobTree) -> None:
        self._backlog_s -= self._open_s.pop(tree, 0.0)
        if not self._open_s:
            self._backlog_s = 0.0

    def _rekey(self) -> None:
        """Put what waits into the order of now. O(n), at most once a push."""
        waiting = [(entry[-1], entry[-2]) for entry in self._ready if entry[-1].stamp == entry[-2]]
        self._ready = [(*self._order.key(work), stamp, work) for work, stamp in waiting]
        heapify(self._ready)
        self.steps += len(waiting)
