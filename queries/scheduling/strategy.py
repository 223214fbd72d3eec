"""What every strategy of scheduling offers, to the simulation and to live workers alike (thesis 4.6, 4.7)."""

from dataclasses import dataclass
from typing import Protocol

from queries.scheduling.job_tree import Cut, Fragment, JobTree

NEVER_S = float("inf")


class Work:
    """A piece of one tree on its way: what waits, runs, and is handed back when something else is more urgent.

    Whoever runs it keeps `cost_s` what is still to do, and, where it earns along the way, `value` what is still to be
    earned; nobody else changes them while it runs.
    """

    __slots__ = ("cost_s", "cut", "due_s", "number", "fragment", "stamp", "timely", "tree", "value")

    def __init__(self, tree: JobTree, cut: Cut, number: int) -> None:
        piece = cut.fragments[number]
        self.tree = tree
        self.cut = cut
        self.number = number
        """Which piece of the cut it is."""
        self.fragment: Fragment = piece
        self.cost_s = piece.cost_s * tree.size
        """What is still to do [s]."""
        self.value = piece.value * tree.size
        """What that counts for."""
        self.due_s = tree.deadline_s + piece.slack_s - piece.below_s * tree.size
        """By when it must be complete, so that all that waits for it can be in time [s]."""
        self.stamp = 0
        """The strategy's mark: 0 while it waits nowhere."""
        self.timely = False
        """The strategy's mark: whether it waits and has laxity left."""

    @property
    def jobs(self) -> tuple[int, ...]:
        """Positions of its jobs in the tree's shape, in the order to run them."""
        return self.fragment.jobs

    @property
    def density(self) -> float:
        """Value for each second that is still to do [1/s]."""
        return self.value / self.cost_s if self.cost_s > 0 else NEVER_S

    @property
    def start_s(self) -> float:
        """When it must start, or go on, to be in time [s]: laxity is this less now."""
        return self.due_s - self.cost_s


@dataclass(frozen=True)
class StrategyStatistics:
    """What a strategy holds and did."""

    name: str
    waiting: int
    """Pieces that could run now."""
    postponed: int
    """Of these the ones that are too late to be in time as a whole, and run only when nothing else is there."""
    laxity_s: float
    """Mean time that the other waiting ones still have [s]; infinite where there is none."""
    pushed: int
    """Trees that came."""
    chosen: int
    """Pieces that were given to run, those that go on included."""
    preempted: int
    """Pieces that were handed back unfinished for a better one."""
    rescued: int
    """Pieces that were about to be late and got their last chance (algorithm 7)."""
    refused: int
    """Pieces that did not, and were postponed."""
    late: int
    """Pieces that were dropped, since nothing of their tree could earn any more."""
    withdrawn: int
    """Pieces whose tree was withdrawn before they ran."""
    interrupts: int
    """Times that a handler ran: for new input, new jobs, last ditches."""
    steps: int
    """Comparisons of all handlers: what scheduling costs, whatever the machine."""


class SchedulingStrategy(Protocol):
    """What chooses the next piece to run. Time is given; not safe between threads: one lock for all that share it.

    A caller pushes trees as they come, asks `next` when a worker is free, and says `done`. Between two blocks of a
    running piece, after a push or when `alarm_s` has come, it asks `challenge`; what comes back runs instead.
    """

    name: str
    interrupts: int
    """Times that a handler ran."""
    steps: int
    """Comparisons that they made."""

    def push(self, tree: JobTree, now_s: float) -> None:
        """Take the jobs of a new batch (NewInput)."""

    def next(self, now_s: float) -> Work | None:
        """Return the piece to run now, which waits no longer; None where nothing can run."""

    def challenge(self, running: Work, now_s: float) -> Work | None:
        """Return what shall run instead of a running piece, which waits again; None where it goes on."""

    def done(self, work: Work, now_s: float) -> None:
        """Learn that a piece is complete: what waited for it can run."""

    def put_back(self, work: Work, now_s: float) -> None:
        """Take back a piece that was chosen and is not complete."""

    def withdraw(self, tree: JobTree) -> int:
        """Forget the jobs of a tree that have not begun; return how many pieces. What runs may end, or be left."""

    def alarm_s(self) -> float:
        """Return when `challenge` must be asked at the latest [s]; infinite where no time matters."""

    def laxity_s(self, now_s: float) -> float:
        """Return the mean laxity of what waits and can be in time [s]; infinite where nothing does."""

    def statistics(self, now_s: float) -> StrategyStatistics:
        """Return what it holds and did."""
