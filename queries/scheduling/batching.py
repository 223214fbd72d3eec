"""When arriving tuples make one batch (thesis 4.8): intelligently, or by count, by time, or each alone."""

import math
from dataclasses import dataclass
from typing import Protocol

ALPHA = 0.9
"""Of the mean laxity, what a batch may span (thesis 4.9.2.2)."""
BETA = 4.0
"""Of the mean time between two tuples, what may lie between two of a batch (thesis 4.9.2.2)."""


class Batching(Protocol):
    """Tells when an open batch ends."""

    name: str
    eager: bool
    """Whether what is there is released when nothing else can run."""

    def closes_s(self, first_s: float, last_s: float, count: int, *, laxity_s: float, gap_s: float) -> float:
        """Return when a batch ends to which no further tuple comes [s]; one that comes until then joins it.

        Parameters
        ----------
        first_s, last_s
            Arrival of its first and of its last tuple [s].
        count
            Tuples in it, at least 1.
        laxity_s
            Mean laxity of the jobs in the system [s]; infinite where there is none.
        gap_s
            Mean time between two tuples of this input [s].
        """


@dataclass(frozen=True)
class Single:
    """Each tuple alone."""

    name: str = "none"
    eager: bool = False

    def closes_s(self, first_s: float, last_s: float, count: int, *, laxity_s: float, gap_s: float) -> float:
        """Return the arrival of the first."""
        return -math.inf


@dataclass(frozen=True)
class FixedLength:
    """So many tuples each, however long that takes."""

    length: int
    name: str = "fixed length"
    eager: bool = False

    def closes_s(self, first_s: float, last_s: float, count: int, *, laxity_s: float, gap_s: float) -> float:
        """Return the arrival of the last one that it needs."""
        return -math.inf if count >= self.length else math.inf


@dataclass(frozen=True)
class FixedInterval:
    """All that comes within one interval of a clock."""

    interval_s: float
    name: str = "fixed interval"
    eager: bool = False

    def closes_s(self, first_s: float, last_s: float, count: int, *, laxity_s: float, gap_s: float) -> float:
        """Return the end of the interval in which the first came."""
        return (math.floor(first_s / self.interval_s) + 1) * self.interval_s


@dataclass(frozen=True)
class Intelligent:
    """Ends with a pause of beta mean gaps, or once it spans alpha mean laxities (criteria 2 and 1 of 4.8).

    Where nothing else can run, what is there is released at once: to wait longer would only lose time. The thesis does
    not say so; `eager=False` leaves it out.
    """

    alpha: float = ALPHA
    beta: float = BETA
    name: str = "intelligent"
    eager: bool = True

    def closes_s(self, first_s: float, last_s: float, count: int, *, laxity_s: float, gap_s: float) -> float:
        """Return the end of the pause, or of the span where that is earlier."""
        return min(first_s + self.alpha * max(laxity_s, 0.0), last_s + self.beta * gap_s)
