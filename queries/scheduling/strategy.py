"""Interface of scheduling strategies, for simulation and live workers (thesis 4.6, 4.7)."""

from dataclasses import dataclass
from typing import Protocol

from queries.scheduling.job_tree import Cut, Fragment, JobTree

NEVER_S = float("inf")


class Work:
    """One piece of a tree in progress: waiting, running, or handed back.

    While it runs, only its worker updates `cost_s` (remaining cost) and, if it earns along the way, `value` (remaining
    value).
    """

    __slots__ = ("cost_s", "cut", "due_s", "number", "fragment", "stamp", "timely", "tree", "value")

    def __init__(self, tree: JobTree, cut: Cut, number: int) -> None:
        piece = cut.fragments[number]
        self.tree = tree
        self.cut = cut
        self.number = number
        """Number of the piece in the cut."""
        self.fragment: Fragment = piece
        self.cost_s = piece.cost_s * tree.size
        """Remaining cost [s]."""
        self.value = piece.value * tree.size
        """Remaining value."""
        # Early enough for all pieces that wait for it (4.7.1).
        self.due_s = tree.deadline_s + piece.slack_s - piece.below_s * tree.size
        """When it must complete for all pieces that wait for it to be in time [s]."""
        self.stamp = 0
        """Strategy's mark: 0 while it is not queued."""
        self.timely = False
        """Strategy's mark: whether it is queued with laxity left."""

    @property
    def density(self) -> float:
        """Value per remaining second [1/s]."""
        return self.value / self.cost_s if self.cost_s > 0 else NEVER_S

    @property
    def start_s(self) -> float:
        """Latest time to start or continue and be in time [s]: laxity is this minus now."""
        return self.due_s - self.cost_s


@dataclass(frozen=True)
class StrategyStatistics:
    """Statistics of a strategy."""

    name: str
    waiting: int
    """Pieces that could run now."""
    postponed: int
    """Those of them that are too late as a whole, and run only when nothing else can."""
    laxity_s: float
    """Mean laxity of the other waiting pieces [s]; infinite if there are none."""
    pushed: int
    """Trees pushed."""
    chosen: int
    """Pieces chosen to run, including those that continue."""
    preempted: int
    """Pieces handed back unfinished for a better one."""
    rescued: int
    """Pieces about to be late that got their last chance (algorithm 7)."""
    refused: int
    """Such pieces that did not, and were postponed."""
    late: int
    """Pieces dropped because nothing of their tree could earn any more."""
    withdrawn: int
    """Pieces whose tree was withdrawn before they ran."""
    interrupts: int
    """Handler runs: for new input, new jobs, last ditches."""
    steps: int
    """Comparisons in all handlers: a machine-independent cost of scheduling."""


class SchedulingStrategy(Protocol):
    """Chooses the next piece to run; time is passed in; not thread-safe.

    All callers share one lock. A caller pushes trees as they arrive, calls `next` when a worker is free, and `done`
    afterwards. Between two blocks of a running piece, after a push or at `alarm_s`, it calls `challenge` and runs what
    that returns instead.
    """

    name: str
    interrupts: int
    """Handler runs."""
    steps: int
    """Comparisons made by them."""

    def push(self, tree: JobTree, now_s: float) -> None:
        """Add the jobs of a new batch (NewInput)."""

    def next(self, now_s: float) -> Work | None:
        """Dequeue the piece to run now; None if nothing can run."""

    def challenge(self, running: Work, now_s: float) -> Work | None:
        """Return a piece to run instead of `running`, which is requeued; None to continue."""

    def done(self, work: Work, now_s: float) -> None:
        """Mark a piece as complete and release those that wait for it."""

    def put_back(self, work: Work, now_s: float) -> None:
        """Return a chosen, unfinished piece to the queue."""

    def withdraw(self, tree: JobTree) -> int:
        """Drop the unstarted jobs of a tree; return the number of pieces.

        Running pieces may finish or be abandoned.
        """

    def alarm_s(self) -> float:
        """Return the latest time to call `challenge` [s]; infinite if time does not matter."""

    def laxity_s(self, now_s: float) -> float:
        """Return the mean laxity of the timely waiting pieces [s]; infinite without any."""

    def statistics(self, now_s: float) -> StrategyStatistics:
        """Return the statistics since the strategy was created."""
