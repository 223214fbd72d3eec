"""When batches of tuples end (thesis 4.8)."""

import math
from dataclasses import dataclass
from typing import Protocol

ALPHA = 0.9
"""Share of the mean laxity that a batch may span (thesis 4.9.2.2)."""
BETA = 4.0
"""Longest gap within a batch, in mean gaps between tuples (thesis 4.9.2.2)."""


class Batching(Protocol):
    """Decides when an open batch closes."""

    name: str
    eager: bool
    """Whether open batches are released when nothing else can run."""

    def closes_s(self, first_s: float, last_s: float, count: int, *, laxity_s: float, gap_s: float) -> float:
        """Return when a batch closes without further tuples [s]; tuples until then join it.

        Parameters
        ----------
        first_s, last_s
            Arrival of its first and of its last tuple [s].
        count
            Tuples in it, at least 1.
        laxity_s
            Mean laxity of the jobs in the system [s]; infinite without jobs.
        gap_s
            Mean time between two tuples of this input [s].
        """


@dataclass(frozen=True)
class Single:
    """Each tuple is a batch of its own."""

    name: str = "none"
    eager: bool = False

    def closes_s(self, first_s: float, last_s: float, count: int, *, laxity_s: float, gap_s: float) -> float:
        return -math.inf


@dataclass(frozen=True)
class FixedLength:
    """A fixed number of tuples per batch, however long that takes."""

    length: int
    name: str = "fixed length"
    eager: bool = False

    def closes_s(self, first_s: float, last_s: float, count: int, *, laxity_s: float, gap_s: float) -> float:
        """Close at the arrival of the last tuple it needs."""
        return -math.inf if count >= self.length else math.inf


@dataclass(frozen=True)
class FixedInterval:
    """All tuples within one interval of a clock."""

    interval_s: float
    name: str = "fixed interval"
    eager: bool = False

    def closes_s(self, first_s: float, last_s: float, count: int, *, laxity_s: float, gap_s: float) -> float:
        return (math.floor(first_s / self.interval_s) + 1) * self.interval_s


@dataclass(frozen=True)
class Intelligent:
    """Close after a pause of beta mean gaps, or a span of alpha mean laxities.

    These are criteria 2 and 1 of thesis 4.8. If nothing else can run, open batches are released at once; the thesis
    does not include this, and `eager=False` disables it.
    """

    alpha: float = ALPHA
    beta: float = BETA
    name: str = "intelligent"
    # Waiting while nothing else can run would only lose time.
    eager: bool = True

    def closes_s(self, first_s: float, last_s: float, count: int, *, laxity_s: float, gap_s: float) -> float:
        return min(first_s + self.alpha * max(laxity_s, 0.0), last_s + self.beta * gap_s)
