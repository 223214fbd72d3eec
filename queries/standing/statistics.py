"""What the runner of standing queries tells of itself: updates for listeners, how each query stands, and figures."""

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from queries.scheduling.step_graph import Sharing
from queries.scheduling.strategy import StrategyStatistics
from queries.standing.repository import Alert


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
