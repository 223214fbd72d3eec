"""Statistics of the standing-query runner: updates for listeners, query status and metrics."""

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np

from hypergrid.core.times import SECOND_NS
from queries.scheduling.step_graph import Sharing
from queries.scheduling.strategy import StrategyStatistics
from queries.standing.definition import Definition
from queries.standing.repository import Alert
from queries.standing.shared_steps import SnapshotEvaluation


@dataclass(frozen=True)
class StandingUpdate:
    """Notification that a standing query was evaluated, failed, or raised alerts."""

    name: str
    snapshot: str
    cells: int
    """Number of cells computed, or of elements of a kept continuous query."""
    behind_s: float
    """From the oldest change that it now includes to its end [s]."""
    alerts: tuple[Alert, ...] = ()
    error: str = ""


class Listeners:
    """Subscribers to updates, called on the thread that produced them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listeners: list[Callable[[StandingUpdate], None]] = []

    def add(self, listener: Callable[[StandingUpdate], None]) -> Callable[[], None]:
        """Register a listener; return its unsubscribe function."""
        with self._lock:
            self._listeners.append(listener)

        def leave() -> None:
            with self._lock:
                if listener in self._listeners:
                    self._listeners.remove(listener)

        return leave

    def notify(self, update: StandingUpdate) -> None:
        with self._lock:
            # Called outside the lock, so that a listener may unsubscribe.
            called = list(self._listeners)
        for listener in called:
            listener(update)


@dataclass(frozen=True)
class Freshness:
    """Evaluation delays of a class, from the oldest included slice to the evaluation's end."""

    evaluations: int
    median_s: float
    p99_s: float
    longest_s: float
    expired: int
    """Results that were ready later than the validity of their query, since the runner was created."""


@dataclass(frozen=True)
class StandingStatistics:
    """Statistics of the runner since it was created."""

    queries: int
    rounds: int
    """Snapshots evaluated."""
    evaluations: int
    postponed: int
    """Evaluations overtaken by a newer slice."""
    overloaded: bool
    """Whether the last round was overtaken before it finished."""
    trouble: str
    """Why nothing can be evaluated or stored now, such as a full disk; it is retried. Empty: no error."""
    queue: int
    """Waiting queries."""
    oldest_s: float
    """Longest current wait [s]."""
    longest_wait_s: float
    """Upper bound of the longest wait, by `FAIRNESS_SHARE` and the measured costs [s]."""
    fair_turns: int
    """Evaluations run outside the strategy, for the longest wait."""
    failing: tuple[str, ...]
    """Queries whose last evaluation failed, kept continuous ones among them."""
    freshness: Mapping[str, Freshness]
    """Evaluation delays by class."""
    expired: Mapping[str, int]
    """Results that were ready later than their query's validity, by query; none without any."""
    token_score: float
    """Tokens credited, as a share of those offered (thesis 5.11)."""
    busy_s: float
    """CPU time of the thread [s]."""
    scheduling_s: float
    """Part of it spent choosing the next step [s]."""
    planning_s: float
    """Part of it spent finding the cells that slices affect [s]."""
    steps_asked: int
    """Steps that the queries would have run separately."""
    steps_run: int
    saved_s: float
    """Time saved by sharing steps [s]."""
    sharing: Sharing
    strategy: StrategyStatistics

    @property
    def scheduling_share(self) -> float:
        """Share of the thread's CPU time spent on scheduling, 0 to 1."""
        return self.scheduling_s / self.busy_s if self.busy_s else 0.0


def measure_freshness(delays: Sequence[float], expired: int) -> Freshness:
    """Summarise delays [s], of which there is at least one."""
    delays_s = np.array(delays)
    return Freshness(
        len(delays_s), float(np.median(delays_s)), float(np.quantile(delays_s, 0.99)), float(delays_s.max()), expired
    )


FAIRNESS_SHARE: Final = 0.05
"""Share of the computing time reserved for the query that has waited longest."""
MAX_DELAYS: Final = 4096
"""Latest evaluations per class from which `Freshness` is computed."""
EWMA_WEIGHT: Final = 0.3
"""Weight of a new measurement in an exponentially weighted mean."""
# A single hiccup must not dominate the bound for good.
PEAK_DECAY: Final = 0.999
"""Decay factor of the longest block, per block."""

Timed = Literal["busy_s", "scheduling_s", "planning_s"]
Measured = Literal["look_s", "judge_s"]


class RunnerMetrics:
    """Counters and timers since the runner was created. Not locked."""

    def __init__(self) -> None:
        self.counts = dict.fromkeys(("rounds", "evaluations", "postponed", "fair_turns", "steps_asked", "steps_run"), 0)
        self.overloaded = False
        self._seconds = {"busy_s": 0.0, "scheduling_s": 0.0, "planning_s": 0.0, "saved_s": 0.0}
        self._means = {"look_s": 0.0, "judge_s": 0.0}
        self._block_s = 0.0
        self._delays: dict[str, deque[float]] = {}
        self._expired: Counter[tuple[str, str]] = Counter()

    @contextmanager
    def timing(self, what: Timed) -> Iterator[None]:
        """Add this thread's CPU time within the context to a timer."""
        # CPU time, as waiting for the processor is not the thread's own cost.
        begun_s = time.thread_time()
        try:
            yield
        finally:
            self._seconds[what] += time.thread_time() - begun_s

    def learn(self, what: Measured, seconds: float) -> None:
        """Update the mean time of inspecting a query, or of judging a result [s]."""
        self._means[what] += EWMA_WEIGHT * (seconds - self._means[what])

    def add_block(self, seconds: float) -> None:
        """Update the longest time between two scheduling decisions [s]."""
        self._block_s = max(PEAK_DECAY * self._block_s, seconds)

    def count_evaluation(self, definition: Definition, behind_s: float) -> None:
        self.counts["evaluations"] += 1
        self._delays.setdefault(definition.kind, deque(maxlen=MAX_DELAYS)).append(behind_s)
        if behind_s * SECOND_NS > definition.validity_ns:
            self._expired[definition.kind, definition.name] += 1

    def add_round(self, before: SnapshotEvaluation, *, overloaded: bool) -> None:
        """Add the counters of a finished round; `overloaded` if it was overtaken before it finished."""
        self.overloaded = overloaded
        self.counts["steps_asked"] += before.steps_asked
        self.counts["steps_run"] += before.steps_run
        self._seconds["saved_s"] += before.asked_s - before.run_s

    def longest_wait_s(self, seconds_apart: float, queries: int) -> float:
        """Bound a query's wait [s], over the queries with known costs.

        All others may have waited longer and go first: they are inspected, computed and judged within the share
        `FAIRNESS_SHARE` of the time, after the excess of one block over its share; no decision falls within a block.
        """
        alone_s = seconds_apart + queries * (self._means["look_s"] + self._means["judge_s"])
        return (alone_s + self._block_s) / FAIRNESS_SHARE + 2 * self._block_s

    def snapshot(self, this: SnapshotEvaluation | None) -> dict[str, Any]:
        """Return the current metrics as `StandingStatistics` fields, including a round in progress."""
        counts, seconds = dict(self.counts), dict(self._seconds)
        if this is not None:
            counts["steps_asked"] += this.steps_asked
            counts["steps_run"] += this.steps_run
            seconds["saved_s"] += this.asked_s - this.run_s
        by_kind, by_name = Counter[str](), Counter[str]()
        for (kind, name), count in self._expired.items():
            by_kind[kind] += count
            by_name[name] += count
        delays = {kind: measure_freshness(delays_s, by_kind[kind]) for kind, delays_s in self._delays.items()}
        return {
            **counts, **seconds, "overloaded": self.overloaded, "freshness": delays, "expired": dict(by_name),
        }  # fmt: skip
