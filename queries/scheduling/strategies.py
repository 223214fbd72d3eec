"""Priority order of pieces, and OptProfit, the strategy of the server (thesis 4.6, 4.7)."""

from collections.abc import Callable
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import Final

from queries.scheduling.job_tree import JobTree, Rule
from queries.scheduling.strategy import NEVER_S, StrategyStatistics, Work

ROUNDING_S = 1e-9
"""Laxity below this counts as none [s]."""
SPARE = 256
"""Stale heap entries tolerated beyond the number of waiting pieces, before a sweep."""

Key = tuple[float, float]


def profit_key(work: Work) -> Key:
    """Order densest first; ties by least laxity (algorithms 1, 2 and 8)."""
    # Batches of one input have equal densities up to rounding, which must not decide.
    return -float(f"{work.density:.9g}"), work.start_s


@dataclass(frozen=True)
class Order:
    """Priority of pieces, and which may pass it."""

    key: Callable[[Work], Key]
    """Smallest first; constant while a piece waits, as all laxities shrink equally."""
    preempts: bool = True
    """Whether a running piece is handed back when one with a smaller key arrives."""
    last_ditch: float | None = None
    """u of algorithm 7: a piece about to be late runs at once if its density exceeds u times that of the running one,
    else it is postponed; above 1 with laxity first, below 1 with profit first. None: no last ditch.
    """


class Ordered:
    """Strategy with a priority order, O(log n) for n waiting pieces; algorithms 1, 2, 6-8.

    What algorithm 7 discards is postponed here: it runs when nothing else can, densest first, and is dropped only when
    nothing of its tree can earn any more. Aurora's handlers run for each job that becomes ready, OptProfit's only for
    each new input (4.6.2.1).

    Parameters
    ----------
    name
        Name of the strategy.
    rule
        How trees are cut into pieces.
    order
        Priority of the pieces.
    """

    def __init__(self, name: str, rule: Rule, order: Order) -> None:
        self.name = name
        self._rule: Rule = rule
        self._order = order
        self._ready: list[tuple[float, float, int, Work]] = []
        self._due: list[tuple[float, int, Work]] = []
        self._postponed: list[tuple[float, int, Work]] = []
        self._left: dict[JobTree, int] = {}
        """Number of incomplete pieces of each open tree."""
        self._stamp = 0
        self._sweep_at = SPARE
        self._waiting = self._timely = 0
        self._starts_s = 0.0
        """Sum of the latest starts of the timely pieces."""
        self._pushed = self._chosen = self._preempted = self._rescued = self._refused = self._late = 0
        self._withdrawn = self.interrupts = self.steps = 0

    def push(self, tree: JobTree, now_s: float) -> None:
        # Amortised: stale entries are removed only once they outnumber the waiting pieces.
        if len(self._ready) + len(self._postponed) > self._sweep_at:
            self._sweep(now_s)
        cut = tree.shape.cut(self._rule)
        self._pushed += 1
        self.interrupts += 1
        self.steps += cut.steps
        self._left[tree] = len(cut.fragments)
        for number in cut.first:
            self._enter(Work(tree, cut, number), now_s)

    def next(self, now_s: float) -> Work | None:
        """Dequeue the piece to run now; None if nothing can run."""
        due = self._pop_due(now_s)
        work = self._find_first(now_s)
        if work is not None:
            self._leave(work)
        if due:
            work = self._rescue_due(work, due, now_s)
        if work is None:
            work = self._pop_postponed(now_s)
        self._chosen += work is not None
        return work

    def challenge(self, running: Work, now_s: float) -> Work | None:
        """Return a piece to run instead of `running`, which is requeued; None to continue."""
        held: Work | None = running
        if self._order.preempts:
            first = self._find_first(now_s)
            # Only the first part of the key: a tie must not preempt.
            if first is not None and self._ready[0][0] < self._order.key(running)[0]:
                self._leave(first)
                self._enter(running, now_s)
                held = first
        due = self._pop_due(now_s)
        if due:
            held = self._rescue_due(held, due, now_s)
        if held is running:
            return None
        self._preempted += 1
        self._chosen += 1
        return held

    def done(self, work: Work, now_s: float) -> None:
        """Mark a piece as complete and release those that wait for it."""
        left = self._left.get(work.tree)
        if left is None:
            return
        # The tree is complete.
        if left == 1:
            del self._left[work.tree]
            return
        self._left[work.tree] = left - 1
        following = work.cut.following[work.number]
        # Aurora's handler runs for each job that becomes ready; OptProfit's does not (4.6.2.1).
        self.interrupts += self._rule == "jobs" and bool(following)
        for number in following:
            self._enter(Work(work.tree, work.cut, number), now_s)

    def put_back(self, work: Work, now_s: float) -> None:
        if work.tree in self._left:
            self._enter(work, now_s)

    def withdraw(self, tree: JobTree) -> int:
        """Drop the unstarted jobs of a tree; return how many pieces waited. O(n)."""
        if self._left.pop(tree, None) is None:
            return 0
        waiting = [entry[-1] for entry in self._ready] + [entry[-1] for entry in self._postponed]
        withdrawn = {work for work in waiting if work.tree is tree and work.stamp}
        for work in withdrawn:
            self._leave(work)
        self._due = [entry for entry in self._due if entry[-1].stamp == entry[-2]]
        heapify(self._due)
        self._tidy()
        self._withdrawn += len(withdrawn)
        return len(withdrawn)

    def alarm_s(self) -> float:
        """Return when the next waiting piece becomes late [s]; infinite if that changes nothing."""
        if self._order.last_ditch is None:
            return NEVER_S
        while self._due and self._due[0][-1].stamp != self._due[0][-2]:
            heappop(self._due)
        return self._due[0][0] if self._due else NEVER_S

    def laxity_s(self, now_s: float) -> float:
        if self._order.last_ditch is None:
            self._pop_due(now_s)
        return self._starts_s / self._timely - now_s if self._timely else NEVER_S

    def statistics(self, now_s: float) -> StrategyStatistics:
        return StrategyStatistics(
            name=self.name,
            waiting=self._waiting,
            postponed=sum(entry[-1].stamp == entry[-2] for entry in self._postponed),
            laxity_s=self.laxity_s(now_s),
            pushed=self._pushed,
            chosen=self._chosen,
            preempted=self._preempted,
            rescued=self._rescued,
            refused=self._refused,
            late=self._late,
            withdrawn=self._withdrawn,
            interrupts=self.interrupts,
            steps=self.steps,
        )

    def _enter(self, work: Work, now_s: float) -> None:
        """Queue a piece; without laxity, postpone it if the order has a last ditch."""
        start_s = work.start_s
        timely = start_s > now_s + ROUNDING_S
        if not timely and self._order.last_ditch is not None:
            self._postpone(work)
            return
        self._stamp += 1
        work.stamp = self._stamp
        self._waiting += 1
        heappush(self._ready, (*self._order.key(work), self._stamp, work))
        self.steps += len(self._ready).bit_length()
        if timely:
            heappush(self._due, (start_s, self._stamp, work))
            self.steps += len(self._due).bit_length()
            work.timely = True
            self._timely += 1
            self._starts_s += start_s

    def _postpone(self, work: Work) -> None:
        self._stamp += 1
        work.stamp = self._stamp
        self._waiting += 1
        heappush(self._postponed, (-work.density, self._stamp, work))
        self.steps += len(self._postponed).bit_length()

    def _leave(self, work: Work) -> None:
        """Dequeue a piece; its heap entries become stale and are skipped later."""
        work.stamp = 0
        self._waiting -= 1
        self._mark_untimely(work)

    def _mark_untimely(self, work: Work) -> None:
        if work.timely:
            work.timely = False
            self._timely -= 1
            # Reset to exactly 0 when empty, so that rounding errors do not accumulate over months.
            self._starts_s = self._starts_s - work.start_s if self._timely else 0.0

    def _find_first(self, now_s: float) -> Work | None:
        """Return the first waiting piece, leaving it at the top of the heap."""
        ready = self._ready
        while ready:
            _, _, stamp, work = ready[0]
            if work.stamp == stamp:
                if work.tree.ends_s >= now_s:
                    return work
                self._drop(work)
            heappop(ready)
            self.steps += len(ready).bit_length()
        return None

    def _pop_postponed(self, now_s: float) -> Work | None:
        while self._postponed:
            _, stamp, work = heappop(self._postponed)
            self.steps += len(self._postponed).bit_length()
            if work.stamp != stamp:
                continue
            if work.tree.ends_s >= now_s:
                self._leave(work)
                return work
            self._drop(work)
        return None

    def _drop(self, work: Work) -> None:
        """Drop a piece that cannot earn any more, with everything that waits for it."""
        self._leave(work)
        self._left.pop(work.tree, None)
        self._late += 1

    def _pop_due(self, now_s: float) -> list[Work]:
        """Collect the pieces without laxity; with a last ditch they are dequeued, else only marked."""
        due_works: list[Work] = []
        while self._due and (self._due[0][0] <= now_s + ROUNDING_S or self._due[0][-1].stamp != self._due[0][-2]):
            _, stamp, work = heappop(self._due)
            if work.stamp != stamp:
                continue
            if self._order.last_ditch is None:
                self._mark_untimely(work)
            elif work.tree.ends_s < now_s:
                self._drop(work)
            else:
                self._leave(work)
                due_works.append(work)
        return due_works

    def _rescue_due(self, held: Work | None, due: list[Work], now_s: float) -> Work | None:
        """Apply algorithm 7 to each piece about to be late; return the one to run."""
        u = self._order.last_ditch or 0.0
        for work in due:
            self.interrupts += 1
            # Algorithm 7; without a running piece there is nothing to compare with.
            if held is None or work.density > u * held.density:
                if held is not None:
                    self._enter(held, now_s)
                held = work
                self._rescued += 1
            else:
                self._postpone(work)
                self._refused += 1
        return held

    def _sweep(self, now_s: float) -> None:
        """Drop late pieces and stale entries, which bounds memory."""
        for work in [entry[-1] for entry in self._ready] + [entry[-1] for entry in self._postponed]:
            if work.stamp and work.tree.ends_s < now_s:
                self._drop(work)
        self._tidy()
        # The number of waiting pieces is known only after the sweep.
        self._sweep_at = SPARE + 2 * (len(self._ready) + len(self._postponed))

    def _tidy(self) -> None:
        """Remove the stale entries."""
        self._ready = [entry for entry in self._ready if entry[-1].stamp == entry[-2]]
        self._postponed = [entry for entry in self._postponed if entry[-1].stamp == entry[-2]]
        heapify(self._ready)
        heapify(self._postponed)


GREEDY: Final = Order(profit_key)
"""Densest first (algorithms 1 and 2)."""


def make_opt_profit() -> Ordered:
    """Make OptProfit, the server's strategy: fragments, densest first (algorithms 2 and 3)."""
    return Ordered("opt-profit", "fragments", GREEDY)
