"""What the runner of standing queries keeps account of: counts, seconds, and the longest wait that follows."""

import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, Literal

from queries.standing.shared_steps import SnapshotEvaluation
from queries.standing.statistics import measure_freshness

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
