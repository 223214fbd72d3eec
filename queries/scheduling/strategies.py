"""Priority order of pieces, and OptProfit, the strategy of the server (thesis 4.6, 4.7)."""

from collections.abc import Callable
from heapq import heapify, heappop, heappush

from queries.scheduling.job_tree import CutRule, JobTree, cut_into_fragments
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


class Ordered:
    """Strategy with a priority order, O(log n) for n waiting pieces (algorithms 1 and 2).

    Its handler runs for each new input (4.6.2.1). Nothing is dropped or postponed for being late, as long as something
    of its tree can earn.

    Parameters
    ----------
    name
        Name of the strategy.
    rule
        How trees are cut into pieces.
    key
        Priority of the pieces, smallest first; constant while a piece waits, as all laxities shrink equally.
    """

    def __init__(self, name: str, rule: CutRule, key: Callable[[Work], Key]) -> None:
        self.name = name
        self._rule, self._key = rule, key
        self._ready: list[tuple[float, float, int, Work]] = []
        self._due: list[tuple[float, int, Work]] = []
        self._left: dict[JobTree, int] = {}
        """Number of incomplete pieces of each open tree."""
        self._stamp = 0
        self._sweep_at = SPARE
        self._waiting = self._timely = 0
        self._starts_s = 0.0
        """Sum of the latest starts of the timely pieces."""
        self._pushed = self._chosen = self._preempted = self._late = 0
        self._withdrawn = self.interrupts = self.steps = 0

    def push(self, tree: JobTree, now_s: float) -> None:
        # Amortised: stale entries are removed only once they outnumber the waiting pieces.
        if self._count_entries() > self._sweep_at:
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
        self._mark_late(now_s)
        work = self._find_first(now_s)
        if work is not None:
            self._leave(work)
            self._chosen += 1
        return work

    def challenge(self, running: Work, now_s: float) -> Work | None:
        """Return a piece to run instead of `running`, which is requeued; None to continue."""
        first = self._find_first(now_s)
        # Only the first part of the key: a tie must not preempt.
        if first is None or self._ready[0][0] >= self._key(running)[0]:
            return None
        self._leave(first)
        self._enter(running, now_s)
        self._preempted += 1
        self._chosen += 1
        return first

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
        for number in work.cut.following[work.number]:
            self._enter(Work(work.tree, work.cut, number), now_s)

    def put_back(self, work: Work, now_s: float) -> None:
        if work.tree in self._left:
            self._enter(work, now_s)

    def withdraw(self, tree: JobTree) -> int:
        """Drop the unstarted jobs of a tree; return how many pieces waited. O(n)."""
        if self._left.pop(tree, None) is None:
            return 0
        withdrawn = {work for work in self._list_entries() if work.tree is tree and work.stamp}
        for work in withdrawn:
            self._leave(work)
        self._due = [entry for entry in self._due if entry[-1].stamp == entry[-2]]
        heapify(self._due)
        self._tidy()
        self._withdrawn += len(withdrawn)
        return len(withdrawn)

    def alarm_s(self) -> float:
        """Return when `challenge` must be called at the latest [s]: never, as being late changes nothing."""
        return NEVER_S

    def laxity_s(self, now_s: float) -> float:
        self._mark_late(now_s)
        return self._starts_s / self._timely - now_s if self._timely else NEVER_S

    def statistics(self, now_s: float) -> StrategyStatistics:
        return StrategyStatistics(
            name=self.name,
            waiting=self._waiting,
            postponed=0,
            laxity_s=self.laxity_s(now_s),
            pushed=self._pushed,
            chosen=self._chosen,
            preempted=self._preempted,
            rescued=0,
            refused=0,
            late=self._late,
            withdrawn=self._withdrawn,
            interrupts=self.interrupts,
            steps=self.steps,
        )

    def _enter(self, work: Work, now_s: float) -> None:
        """Queue a piece."""
        self._stamp += 1
        work.stamp = self._stamp
        self._waiting += 1
        heappush(self._ready, (*self._key(work), self._stamp, work))
        self.steps += len(self._ready).bit_length()
        start_s = work.start_s
        if start_s > now_s + ROUNDING_S:
            heappush(self._due, (start_s, self._stamp, work))
            self.steps += len(self._due).bit_length()
            work.timely = True
            self._timely += 1
            self._starts_s += start_s

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

    def _drop(self, work: Work) -> None:
        """Drop a piece that cannot earn any more, with everything that waits for it."""
        self._leave(work)
        self._left.pop(work.tree, None)
        self._late += 1

    def _mark_late(self, now_s: float) -> None:
        """Mark the waiting pieces that have no laxity any more."""
        while self._due and (self._due[0][0] <= now_s + ROUNDING_S or self._due[0][-1].stamp != self._due[0][-2]):
            _, stamp, work = heappop(self._due)
            if work.stamp == stamp:
                self._mark_untimely(work)

    def _count_entries(self) -> int:
        return len(self._ready)

    def _list_entries(self) -> list[Work]:
        """List the pieces in the heaps, those that left among them."""
        return [entry[-1] for entry in self._ready]

    def _sweep(self, now_s: float) -> None:
        """Drop late pieces and stale entries, which bounds memory."""
        for work in self._list_entries():
            if work.stamp and work.tree.ends_s < now_s:
                self._drop(work)
        self._tidy()
        # The number of waiting pieces is known only after the sweep.
        self._sweep_at = SPARE + 2 * self._count_entries()

    def _tidy(self) -> None:
        """Remove the stale entries."""
        self._ready = [entry for entry in self._ready if entry[-1].stamp == entry[-2]]
        heapify(self._ready)


def make_opt_profit() -> Ordered:
    """Make OptProfit, the server's strategy: fragments, densest first (algorithms 2 and 3)."""
    return Ordered("opt-profit", cut_into_fragments, profit_key)
