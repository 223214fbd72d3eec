"""Strategies by name, to compare OptProfit with: round-robin, other orders, their choice at run time (4.11)."""

import math
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from heapq import heapify, heappop, heappush
from typing import Final

from hypergrid.core.errors import NotFound
from queries.scheduling.job_tree import CutRule, JobTree, cut_into_fragments
from queries.scheduling.strategies import ROUNDING_S, Key, Ordered, make_opt_profit, profit_key
from queries.scheduling.strategy import NEVER_S, SchedulingStrategy, StrategyStatistics, Work
from tests.support.scheduling.cuts import cut_as_printed, cut_into_jobs


def laxity_key(work: Work) -> Key:
    """Order by least laxity; ties by density (algorithm 6)."""
    return work.start_s, -work.density


def deadline_key(work: Work) -> Key:
    """Order by earliest deadline; ties by density."""
    return work.due_s, -work.density


def arrival_key(work: Work) -> Key:
    """Order first come, first served; the jobs of a tree in its order."""
    return work.tree.arrived_s, work.number


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


class LastDitch(Ordered):
    """Strategy with an order that may have a last ditch, or preempt nothing; algorithms 1, 2, 6-8.

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

    def __init__(self, name: str, rule: CutRule, order: Order) -> None:
        super().__init__(name, rule, order.key)
        self._order = order
        self._postponed: list[tuple[float, int, Work]] = []
        self._rescued = self._refused = 0

    def next(self, now_s: float) -> Work | None:
        """Dequeue the piece to run now; None if nothing can run."""
        if self._order.last_ditch is None:
            return super().next(now_s)
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
            if first is not None and self._ready[0][0] < self._key(running)[0]:
                self._leave(first)
                self._enter(running, now_s)
                held = first
        due = self._pop_due(now_s) if self._order.last_ditch is not None else []
        if due:
            held = self._rescue_due(held, due, now_s)
        if held is running:
            return None
        self._preempted += 1
        self._chosen += 1
        return held

    def done(self, work: Work, now_s: float) -> None:
        """Mark a piece as complete and release those that wait for it."""
        is_open = self._left.get(work.tree, 1) > 1
        # Aurora's handler runs for each job that becomes ready; OptProfit's does not (4.6.2.1).
        self.interrupts += is_open and self._rule is cut_into_jobs and bool(work.cut.following[work.number])
        super().done(work, now_s)

    def alarm_s(self) -> float:
        """Return when the next waiting piece becomes late [s]; infinite if that changes nothing."""
        if self._order.last_ditch is None:
            return NEVER_S
        while self._due and self._due[0][-1].stamp != self._due[0][-2]:
            heappop(self._due)
        return self._due[0][0] if self._due else NEVER_S

    def statistics(self, now_s: float) -> StrategyStatistics:
        return replace(
            super().statistics(now_s),
            postponed=sum(entry[-1].stamp == entry[-2] for entry in self._postponed),
            rescued=self._rescued,
            refused=self._refused,
        )

    def _enter(self, work: Work, now_s: float) -> None:
        """Queue a piece; without laxity, postpone it if the order has a last ditch."""
        if self._order.last_ditch is not None and work.start_s <= now_s + ROUNDING_S:
            self._postpone(work)
        else:
            super()._enter(work, now_s)

    def _postpone(self, work: Work) -> None:
        self._stamp += 1
        work.stamp = self._stamp
        self._waiting += 1
        heappush(self._postponed, (-work.density, self._stamp, work))
        self.steps += len(self._postponed).bit_length()

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

    def _mark_late(self, now_s: float) -> None:
        # With a last ditch what becomes late is handled, not only marked.
        if self._order.last_ditch is None:
            super()._mark_late(now_s)

    def _pop_due(self, now_s: float) -> list[Work]:
        """Dequeue the pieces without laxity."""
        due_works: list[Work] = []
        while self._due and (self._due[0][0] <= now_s + ROUNDING_S or self._due[0][-1].stamp != self._due[0][-2]):
            _, stamp, work = heappop(self._due)
            if work.stamp != stamp:
                continue
            if work.tree.ends_s < now_s:
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

    def _count_entries(self) -> int:
        return super()._count_entries() + len(self._postponed)

    def _list_entries(self) -> list[Work]:
        return super()._list_entries() + [entry[-1] for entry in self._postponed]

    def _tidy(self) -> None:
        super()._tidy()
        self._postponed = [entry for entry in self._postponed if entry[-1].stamp == entry[-2]]
        heapify(self._postponed)


GREEDY: Final = Order(profit_key)
"""Densest first (algorithms 1 and 2)."""
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


class Hybrid(LastDitch):
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
        super().__init__(name, cut_into_fragments, CALM)
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
            self._order, self._key = order, order.key
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
        self._ready = [(*self._key(work), stamp, work) for work, stamp in waiting]
        heapify(self._ready)
        self.steps += len(waiting)


WAITS, RUNS, COMPLETE = 0, 1, 2


class RoundRobin:
    """Strategy that runs all jobs that one query still needs, then those of the next.

    A job that earns a profit counts as a query. On its turn a query takes its oldest batch; without waiting batches it
    is skipped. Jobs completed for one query stay complete for the others, and new input does not reset the turn.
    """

    def __init__(self, name: str = "round-robin") -> None:
        self.name = name
        self._ring: deque[str] = deque()
        self._pending: dict[str, deque[tuple[JobTree, int]]] = {}
        self._states: dict[JobTree, bytearray] = {}
        """State of each job of an open tree."""
        self._earning: dict[JobTree, int] = {}
        """Number of incomplete jobs with a profit, per open tree."""
        self._pushed = self._chosen = self._late = self._withdrawn = self.interrupts = self.steps = 0

    def push(self, tree: JobTree, now_s: float) -> None:
        """Queue the jobs of a tree."""
        self._pushed += 1
        self.interrupts += 1
        self._states[tree] = bytearray(len(tree.shape.names))
        earning = [job for job, profit in enumerate(tree.shape.profits) if profit > 0]
        self._earning[tree] = len(earning)
        for job in earning:
            query = tree.shape.names[job]
            if query not in self._pending:
                self._pending[query] = deque()
                self._ring.append(query)
            self._pending[query].append((tree, job))
        self.steps += len(earning)

    def next(self, now_s: float) -> Work | None:
        """Return the next job that the current query needs; None if nothing can run."""
        for _ in range(len(self._ring)):
            query = self._ring[0]
            target = self._oldest(query, now_s)
            self.steps += 1
            if target is None:
                self._ring.popleft()
                del self._pending[query]
                continue
            tree, job = target
            states, parents = self._states[tree], tree.shape.parents
            # Ancestors run first; those completed for other queries are skipped.
            while parents[job] >= 0 and states[parents[job]] != COMPLETE:
                job = parents[job]
                self.steps += 1
            if states[job] == RUNS:
                # Another worker computes what this query needs; skip it so that it does not block the others.
                self._ring.rotate(-1)
                continue
            states[job] = RUNS
            self._chosen += 1
            return Work(tree, tree.shape.cut(cut_into_jobs), job)
        return None

    def challenge(self, running: Work, now_s: float) -> Work | None:
        """Never preempt: every job runs to completion."""
        return None

    def done(self, work: Work, now_s: float) -> None:
        """Mark a job as complete; pass the turn on if it answers the query."""
        states = self._states.get(work.tree)
        if states is None:
            return
        states[work.number] = COMPLETE
        # Only a job with a profit answers the query and passes the turn on.
        if not work.fragment.profit:
            return
        if self._ring and self._ring[0] == work.tree.shape.names[work.number]:
            self._ring.rotate(-1)
        self._earning[work.tree] -= 1
        if not self._earning[work.tree]:
            self._close(work.tree)

    def put_back(self, work: Work, now_s: float) -> None:
        states = self._states.get(work.tree)
        if states is not None:
            states[work.number] = WAITS

    def withdraw(self, tree: JobTree) -> int:
        """Drop the jobs of a tree; return how many had not started."""
        states = self._states.get(tree)
        if states is None:
            return 0
        self._close(tree)
        self._withdrawn += states.count(WAITS)
        return states.count(WAITS)

    def alarm_s(self) -> float:
        return NEVER_S

    def laxity_s(self, now_s: float) -> float:
        """Return the mean time to the open trees' future deadlines [s]; infinite without any."""
        for tree in [tree for tree in self._states if tree.ends_s < now_s]:
            self._late += self._states[tree].count(WAITS)
            self._close(tree)
        ahead = [tree.deadline_s - now_s for tree in self._states if tree.deadline_s > now_s]
        return sum(ahead) / len(ahead) if ahead else NEVER_S

    def statistics(self, now_s: float) -> StrategyStatistics:
        laxity_s = self.laxity_s(now_s)
        return StrategyStatistics(
            name=self.name,
            waiting=sum(states.count(WAITS) for states in self._states.values()),
            postponed=0,
            laxity_s=laxity_s,
            pushed=self._pushed,
            chosen=self._chosen,
            preempted=0,
            rescued=0,
            refused=0,
            late=self._late,
            withdrawn=self._withdrawn,
            interrupts=self.interrupts,
            steps=self.steps,
        )

    def _oldest(self, query: str, now_s: float) -> tuple[JobTree, int] | None:
        """Find a query's oldest unanswered batch that can still earn; drop older ones."""
        pending = self._pending[query]
        while pending:
            tree, job = pending[0]
            states = self._states.get(tree)
            if states is not None and states[job] != COMPLETE:
                if tree.ends_s >= now_s:
                    return tree, job
                self._late += states.count(WAITS)
                self._close(tree)
            pending.popleft()
        return None

    def _close(self, tree: JobTree) -> None:
        del self._states[tree], self._earning[tree]


DD_U = 1.3
"""u of algorithm 7, laxity first (thesis 4.9.2.1)."""
PD_U = 0.65
"""u of algorithm 7, profit first (thesis 4.9.2.1)."""


def make_deadline_dominant(u: float = DD_U) -> Order:
    """Make the order of algorithm 6: least laxity first, last ditch for much denser pieces."""
    return Order(laxity_key, last_ditch=u)


def make_profit_dominant(u: float = PD_U) -> Order:
    """Make the order of algorithm 8: densest first, last ditch for slightly less dense."""
    return Order(profit_key, last_ditch=u)


STRATEGIES: Mapping[str, Callable[[], SchedulingStrategy]] = {
    "round-robin": RoundRobin,
    "fifo": lambda: LastDitch("fifo", cut_into_jobs, Order(arrival_key, preempts=False)),
    "earliest-deadline": lambda: LastDitch("earliest-deadline", cut_into_jobs, Order(deadline_key)),
    "least-laxity": lambda: LastDitch("least-laxity", cut_into_jobs, Order(laxity_key)),
    "basic": lambda: LastDitch("basic", cut_into_jobs, GREEDY),
    "opt-profit": make_opt_profit,
    "opt-profit-printed": lambda: LastDitch("opt-profit-printed", cut_as_printed, GREEDY),
    "basic+dd": lambda: LastDitch("basic+dd", cut_into_jobs, make_deadline_dominant()),
    "opt-profit+dd": lambda: LastDitch("opt-profit+dd", cut_into_fragments, make_deadline_dominant()),
    "basic+pd": lambda: LastDitch("basic+pd", cut_into_jobs, make_profit_dominant()),
    "opt-profit+pd": lambda: LastDitch("opt-profit+pd", cut_into_fragments, make_profit_dominant()),
    "hybrid": Hybrid,
}
"""Factories of empty strategies, by name."""


def make_strategy(name: str) -> SchedulingStrategy:
    """Make a strategy by its name.

    Raises
    ------
    NotFound
        Unknown strategy; the message lists the known ones.
    """
    if name not in STRATEGIES:
        raise NotFound.among(kind="strategy", given=name, existing=STRATEGIES)
    return STRATEGIES[name]()
