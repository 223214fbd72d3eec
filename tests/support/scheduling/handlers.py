"""What the handlers of the strategies cost: those that live workers call, timed call by call."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.optimize import nnls

from queries.scheduling.job_tree import JobTree
from queries.scheduling.strategy import SchedulingStrategy, StrategyStatistics, Work
from tests.support.scheduling.batching import Batching
from tests.support.scheduling.quality import Input, Overheads, simulate

RUNS = 3
"""Times that each simulation is timed; the quickest counts, as other processes can only add."""


class TimedStrategy:
    """A strategy whose handlers are timed; it chooses as the other does.

    Each push cuts its tree from the beginning, as a live worker has to, which knows other costs at each slice.
    """

    def __init__(self, strategy: SchedulingStrategy) -> None:
        self._strategy = strategy
        self.name = strategy.name
        self.seconds = 0.0
        """Processor time in all handlers [s]."""
        self.calls = self.switches = 0

    @property
    def interrupts(self) -> int:
        return self._strategy.interrupts

    @property
    def steps(self) -> int:
        return self._strategy.steps

    def push(self, tree: JobTree, now_s: float) -> None:
        # A shape that was never cut.
        object.__setattr__(tree, "shape", replace(tree.shape))
        begun_s = time.thread_time()
        self._strategy.push(tree, now_s)
        self._count(begun_s)

    def next(self, now_s: float) -> Work | None:
        begun_s = time.thread_time()
        work = self._strategy.next(now_s)
        self._count(begun_s)
        self.switches += work is not None
        return work

    def challenge(self, running: Work, now_s: float) -> Work | None:
        begun_s = time.thread_time()
        work = self._strategy.challenge(running, now_s)
        self._count(begun_s)
        self.switches += work is not None
        return work

    def done(self, work: Work, now_s: float) -> None:
        begun_s = time.thread_time()
        self._strategy.done(work, now_s)
        self._count(begun_s)

    def put_back(self, work: Work, now_s: float) -> None:
        begun_s = time.thread_time()
        self._strategy.put_back(work, now_s)
        self._count(begun_s)

    def withdraw(self, tree: JobTree) -> int:
        begun_s = time.thread_time()
        withdrawn = self._strategy.withdraw(tree)
        self._count(begun_s)
        return withdrawn

    def alarm_s(self) -> float:
        return self._strategy.alarm_s()

    def laxity_s(self, now_s: float) -> float:
        return self._strategy.laxity_s(now_s)

    def statistics(self, now_s: float) -> StrategyStatistics:
        return self._strategy.statistics(now_s)

    def _count(self, begun_s: float) -> None:
        self.seconds += time.thread_time() - begun_s
        self.calls += 1


@dataclass(frozen=True)
class HandlerCost:
    """What the handlers of one strategy cost in one simulation."""

    strategy: str
    batching: str
    interrupts: int
    steps: int
    switches: int
    seconds: float
    """Processor time in handlers, without the timer's own [s]."""

    def predicted_s(self, overheads: Overheads) -> float:
        """Return what the simulation charges for them [s]."""
        return (
            self.interrupts * overheads.interrupt_s + self.steps * overheads.step_s + self.switches * overheads.switch_s
        )


def time_handlers(
    inputs: Sequence[Input], strategies: Sequence[SchedulingStrategy], batching: Batching, *, late_runs: bool
) -> HandlerCost:
    """Time the handlers of a strategy on given arrivals.

    Parameters
    ----------
    inputs
        The streams.
    strategies
        As many of one kind as it is to be timed, with nothing waiting; they are used up.
    batching
        What makes batches.
    late_runs
        As of `simulate`.
    """
    timed = [TimedStrategy(strategy) for strategy in strategies]
    for each in timed:
        simulate(inputs, each, batching, late_runs=late_runs)
    quickest = min(timed, key=lambda each: each.seconds)
    return HandlerCost(
        quickest.name, batching.name, quickest.interrupts, quickest.steps, quickest.switches,
        max(quickest.seconds - quickest.calls * timer_s(), 0.0),
    )  # fmt: skip


def timer_s(calls: int = 20_000) -> float:
    """Return what a timed call sees of the timer itself [s]."""
    spent_s = 0.0
    for _ in range(calls):
        begun_s = time.thread_time()
        spent_s += time.thread_time() - begun_s
    return spent_s / calls


def fit_overheads(costs: Sequence[HandlerCost]) -> Overheads:
    """Return the cost of a handler, of a comparison and of a switch that fit best, none below zero.

    Least squares of the relative errors, so that a strategy with few handlers counts as much as one with many.
    """
    rows = np.array([[cost.interrupts, cost.steps, cost.switches] for cost in costs], np.float64)
    seconds = np.array([cost.seconds for cost in costs])
    scales, _ = nnls(rows / seconds[:, np.newaxis], np.ones(len(costs)))
    return Overheads(*(float(scale) for scale in scales))
