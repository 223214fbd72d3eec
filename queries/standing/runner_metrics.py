"""What the runner of standing queries keeps account of: counts, seconds, and the longest wait that follows."""

import time
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final, Literal

from queries.standing.shared_steps import Round
from queries.standing.statistics import freshness

FAIR: Final = 0.05
"""Share of the computing time that goes to the query that has waited the longest."""
REMEMBERED: Final = 4096
"""Evaluations by class that the figures of freshness are of."""
NEWER: Final = 0.3
"""Weight of a new measurement in a mean that follows what is measured."""
FADING: Final = 0.999
"""What the longest block keeps of itself at each block: one hiccup is not told for ever."""

Timed = Literal["busy_s", "scheduling_s", "planning_s"]
Measured = Literal["look_s", "judge_s"]


class Books:
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
        self._means[what] += NEWER * (seconds - self._means[what])

    def block(self, seconds: float) -> None:
        """Learn what lay between two decisions [s]."""
        self._block_s = max(FADING * self._block_s, seconds)

    def evaluated(self, kind: str, behind_s: float) -> None:
        """Count an evaluation of a class, so long after what it shows [s]."""
        self.counts["evaluations"] += 1
        self._delays.setdefault(kind, deque(maxlen=REMEMBERED)).append(behind_s)

    def round_ended(self, before: Round, *, overloaded: bool) -> None:
        """Take what a round did; overloaded where it was overtaken before it was done."""
        self.overloaded = overloaded
        self.counts["steps_asked"] += before.asked
        self.counts["steps_run"] += before.run
        self._seconds["saved_s"] += before.asked_s - before.run_s

    def longest_wait_s(self, seconds_apart: float, queries: int) -> float:
        """Return how long a query waits at most [s], of those whose costs are known.

        All of them may have waited longer, and each has its turn first; that is looked at, computed and judged in the
        share `FAIR` of the time, after what a block takes more than its share; and no decision falls within a block.
        """
        alone_s = seconds_apart + queries * (self._means["look_s"] + self._means["judge_s"])
        return (alone_s + self._block_s) / FAIR + 2 * self._block_s

    def told(self, this: Round | None) -> dict[str, Any]:
        """Return these figures as `Statistics` has them, with those of a round that is under way."""
        counts, seconds = dict(self.counts), dict(self._seconds)
        if this is not None:
            counts["steps_asked"] += this.asked
            counts["steps_run"] += this.run
            seconds["saved_s"] += this.asked_s - this.run_s
        delays = {kind: freshness(found) for kind, found in self._delays.items()}
        return {**counts, **seconds, "overloaded": self.overloaded, "freshness": delays}
