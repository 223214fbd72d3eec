"""Round-robin: queries in turn, regardless of weight; the baseline of thesis 4.9 and 5.11."""

from collections import deque

from queries.scheduling.job_tree import JobTree
from queries.scheduling.strategy import NEVER_S, StrategyStatistics, Work

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
        self._states[tree] = bytearray(len(tree.shape))
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
            return Work(tree, tree.shape.cut("jobs"), job)
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
        """Return a chosen, unfinished job to the queue."""
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
        """Return infinity: no time requires `challenge`."""
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
