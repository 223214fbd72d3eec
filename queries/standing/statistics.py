"""What the runner of standing queries tells of itself: updates for listeners, how each query stands, and figures."""

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np

from queries.scheduling.step_graph import Sharing
from queries.scheduling.strategy import StrategyStatistics
from queries.standing.repository import Alert
from queries.standing.shared_steps import SnapshotEvaluation


@dataclass(frozen=True)
class StandingUpdate:
    """A standing query was evaluated, failed, or raised alerts: what a listener is told."""

    name: str
    snapshot: str
    cells: int
    """Cells that were computed."""
    behind_s: float
    """From the oldest change that it shows now to its end [s]."""
    alerts: tuple[Alert, ...] = ()
    error: str = ""


class Listeners:
    """Who is told of updates, from the thread that made them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._listeners: list[Callable[[StandingUpdate], None]] = []

    def add(self, listener: Callable[[StandingUpdate], None]) -> Callable[[], None]:
        """Have a listener called with each update; return what ends that."""
        with self._lock:
            self._listeners.append(listener)

        def leave() -> None:
            with self._lock:
                if listener in self._listeners:
                    self._listeners.remove(listener)

        return leave

    def notify(self, update: StandingUpdate) -> None:
        """Call each."""
        with self._lock:
            called = list(self._listeners)
        for listener in called:
            listener(update)


@dataclass(frozen=True)
class StandingStatus:
    """How a standing query stands."""

    name: str
    evaluations: int
    snapshot: str
    """Snapshot that its surface is of."""
    waiting_s: float
    """Since the oldest change that it does not show [s]; 0 where it is fresh."""
    postponed: int
    """Slices that overtook an evaluation: what they touched was computed with the next one."""
    failures: int
    """In a row."""
    error: str
    """Of the last failure."""
    retry_s: float
    """Until a query that failed is tried again [s]."""


@dataclass(frozen=True)
class Freshness:
    """How late evaluations of a class were: from when the oldest slice that they show was seen to their end."""

    evaluations: int
    median_s: float
    p99_s: float
    longest_s: float


@dataclass(frozen=True)
class StandingStatistics:
    """What the runner holds and did."""

    queries: int
    rounds: int
    """Snapshots that were taken up."""
    evaluations: int
    postponed: int
    """Evaluations that a newer slice overtook."""
    overloaded: bool
    """Whether the last round was overtaken before it was done."""
    trouble: str
    """Why nothing can be evaluated or kept now, as on a full disk; it is tried again. Empty: nothing is wrong."""
    queue: int
    """Queries that wait."""
    oldest_s: float
    """How long the one that has waited the longest waits [s]."""
    longest_wait_s: float
    """Bound of that by the share `FAIRNESS_SHARE` [s], from costs as they were measured."""
    fair_turns: int
    """Evaluations outside the strategy, for the longest wait."""
    failing: tuple[str, ...]
    """Queries that failed last time."""
    freshness: Mapping[str, Freshness]
    """By class."""
    token_score: float
    """Tokens that were credited, as a share of those that were offered (thesis 5.11)."""
    busy_s: float
    """Time of the thread on the processor [s]."""
    scheduling_s: float
    """Of it, in choosing what comes next [s]."""
    planning_s: float
    """Of it, in finding what slices touch [s]."""
    steps_asked: int
    """Steps that the queries would have run alone."""
    steps_run: int
    saved_s: float
    """What sharing steps saved [s]."""
    sharing: Sharing
    strategy: StrategyStatistics

    @property
    def scheduling_share(self) -> float:
        """Share of the thread's time that scheduling took, 0 to 1."""
        return self.scheduling_s / self.busy_s if self.busy_s else 0.0


def measure_freshness(delays: Sequence[float]) -> Freshness:
    """Return the figures of delays [s], of which there is at least one."""
    delays_s = np.array(delays)
    return Freshness(
        len(delays_s), float(np.median(delays_s)), float(np.quantile(delays_s, 0.99)), float(delays_s.max())
    )


FAIRNESS_SHARE: Final = 0.05
"""Share of the computing time that goes to the query that has waited the longest."""
MAX_DELAYS: Final = 4096
"""Evaluations by class that the figures of freshness are of."""
EWMA_WEIGHT: Final = 0.3
"""Weight of a new measurement in a mean that follows what is measured."""
PEAK_DECAY: Final = 0.999
"""What the longest block keeps of itself at each block: one hiccup is not told for ever."""

Timed = Literal["busy_s", "scheduling_s", "planning_s"]
Measured = Literal["look_s", "judge_s"]


class RunnerMetrics:
    """Counts and seconds since the runner was made. Not locked."""

    def __init__(self) -> None:
        self.counts = dict.fromkeys(("rounds", "evaluations", "postponed", "fair_turns", "steps_asked", "steps_run"), 0)
        self.overloaded = False
        self._seconds = {"busy_s": 0.0, "scheduling_s": 0.0, "planning_s": 0.0, "saved_s": 0.0}
        self._means = {"look_s": 0.0, "judge_s": 0.0}
        self._block_s = 0.0
        self._delays: dict[str, deque[float]] = {}

    @contextmanager
    def timing(self, what: Timed) -> Iterator[None]:
        """Add the time of this thread on the processor to what it was spent on."""
        begun_s = time.thread_time()
        try:
            yield
        finally:
            self._seconds[what] += time.thread_time() - begun_s

    def learn(self, what: Measured, seconds: float) -> None:
        """Learn what looking at a query, or judging and keeping what was computed, takes [s]."""
        self._means[what] += EWMA_WEIGHT * (seconds - self._means[what])

    def add_block(self, seconds: float) -> None:
        """Learn what lay between two decisions [s]."""
        self._block_s = max(PEAK_DECAY * self._block_s, seconds)

    def count_evaluation(self, kind: str, behind_s: float) -> None:
        """Count an evaluation of a class, so long after what it shows [s]."""
        self.counts["evaluations"] += 1
        self._delays.setdefault(kind, deque(maxlen=MAX_DELAYS)).append(behind_s)

    def add_round(self, before: SnapshotEvaluation, *, overloaded: bool) -> None:
        """Take what a round did; overloaded where it was overtaken before it was done."""
        self.overloaded = overloaded
        self.counts["steps_asked"] += before.steps_asked
        self.counts["steps_run"] += before.steps_run
        self._seconds["saved_s"] += before.asked_s - before.run_s

    def longest_wait_s(self, seconds_apart: float, queries: int) -> float:
        """Return how long a query waits at most [s], of those whose costs are known.

        All of them may have waited longer, and each has its turn first; that is looked at, computed and judged in the
        share `FAIRNESS_SHARE` of the time, after what a block takes more than its share; and no decision falls within a
        block.
        """
        alone_s = seconds_apart + queries * (self._means["look_s"] + self._means["judge_s"])
        return (alone_s + self._block_s) / FAIRNESS_SHARE + 2 * self._block_s

    def snapshot(self, this: SnapshotEvaluation | None) -> dict[str, Any]:
        """Return these figures as `Statistics` has them, with those of a round that is under way."""
        counts, seconds = dict(self.counts), dict(self._seconds)
        if this is not None:
            counts["steps_asked"] += this.steps_asked
            counts["steps_run"] += this.steps_run
            seconds["saved_s"] += this.asked_s - this.run_s
        delays = {kind: measure_freshness(delays_s) for kind, delays_s in self._delays.items()}
        return {**counts, **seconds, "overloaded": self.overloaded, "freshness": delays}
