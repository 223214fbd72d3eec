"""The queue of blocks: who computes next, of all that was asked for.

Work is cut into blocks (`hypergrid.core.pacing`): between two of them it gives way to what comes before it. Small work
comes first, up to three quarters of the time; what is left, and where there is no small work all of it, is for the
rest. Within each of the two kinds owners have equal shares, by start-time fair queueing (Goyal, Vin and Cheng, 1996):
an owner who was away comes back with what the one has who had least, and saves up nothing. Of one owner's work what was
projected to be the smallest comes first, and of equal work what came first.
"""

import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

from hypergrid.core.errors import Cancelled
from hypergrid.core.pacing import pace_work

SMALL_S: Final = 1.0
"""Work is small until it has taken this long [s], unless more than `PROJECTED_S` was projected."""
PROJECTED_S: Final = 10.0
"""Projections are off by some times either way, so that this is more than `SMALL_S` [s]."""
SMALL_WEIGHT: Final = 3.0
"""What small work gets for each second that other work gets, while both wait."""
OVERDUE_S: Final = 0.1
"""Work that does not give way for so long [s] is overtaken by small work: both compute until it does."""
MOST_OVERTAKEN: Final = 2
"""Turns that may be overtaken at a time, for each worker."""
LEAST_TURN_S: Final = 0.02
"""How long a turn is at least, however many wait [s]: the caches are cold after each change."""

Key = TypeVar("Key", bound=Hashable)


class FairShares(Generic[Key]):
    """How much time each of some parties had, in proportion to its weight."""

    def __init__(self, weights: Callable[[Key], float] = lambda _key: 1.0) -> None:
        self._weight = weights
        self._used_s: dict[Key, float] = {}
        self._open: Counter[Key] = Counter()

    def join(self, key: Key) -> None:
        """Count one more piece of work of a party; one that had none begins where the last of the others is."""
        if key not in self._open:
            lowest_s = min((self._used_s[other] for other in self._open), default=0.0)
            self._used_s[key] = max(self._used_s.get(key, 0.0), lowest_s)
        self._open[key] += 1

    def leave(self, key: Key) -> None:
        """Count one piece of work less; of parties without work only those are remembered that had more than others."""
        self._open[key] -= 1
        if self._open[key]:
            return
        del self._open[key]
        lowest_s = min((self._used_s[other] for other in self._open), default=math.inf)
        self._used_s = {
            other: had_s for other, had_s in self._used_s.items() if other in self._open or had_s > lowest_s
        }

    def charge(self, key: Key, seconds: float) -> None:
        """Note time that a party had [s]."""
        self._used_s[key] += seconds / self._weight(key)

    def used_s(self, key: Key) -> float:
        """Return what a party had [s], by its weight."""
        return self._used_s[key]


@dataclass(eq=False)
class Turn:
    """The place of one piece of work in the queue; only the thread that does the work asks it."""

    queue: "BlockQueue"
    owner: str
    projected_s: float
    """How long it may take [s]."""
    is_small: bool
    number: int
    """In the order of arrival."""
    stop: threading.Event
    """Set when nobody wants it any more."""
    condition: threading.Condition
    """Told when its turn begins, or it is stopped."""
    worked_s: float = 0.0
    waited_s: float = 0.0
    granted: bool = False
    overtaken: bool = False
    """Whether another has taken its place while it computes."""
    since_s: float = 0.0
    """When the present turn, or the present wait, began [s]."""
    asked_s: float = 0.0
    """When it was last asked whether something else goes first [s]."""

    def give_way(self) -> None:
        """Return when the work may go on.

        Raises
        ------
        Cancelled
            Nobody wants it any more.
        """
        self.queue.give_way(self)


class BlockQueue:
    """Lets a number of pieces of work compute at a time; all methods may be called from any thread.

    Parameters
    ----------
    workers
        How many compute at a time.
    clock
        Returns seconds that never go back [s].
    """

    def __init__(self, workers: int, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._free = workers
        self._workers = workers
        self._waiting: list[Turn] = []
        self._computing: set[Turn] = set()
        self._kinds: FairShares[bool] = FairShares(lambda is_small: SMALL_WEIGHT if is_small else 1.0)
        self._owners: dict[bool, FairShares[str]] = {True: FairShares(), False: FairShares()}
        self._arrived = 0
        self.longest_block_s = 0.0
        """Longest that work went on without asking [s]."""

    @contextmanager
    def turn(
        self,
        owner: str,
        *,
        projected_s: float = 0.0,
        stop: threading.Event | None = None,
        on_begin: Callable[[], None] = lambda: None,
    ) -> Iterator[Turn]:
        """Wait for a turn, and have the work inside give way where it is asked (`hypergrid.core.pacing.give_way`).

        Parameters
        ----------
        owner
            For whom it is done.
        projected_s
            How long it may take [s].
        stop
            Set when nobody wants it any more: the work ends at the next question (`Cancelled`).
        on_begin
            Called once, when the first turn begins.
        """
        with self._lock:
            self._arrived += 1
            is_small = projected_s <= PROJECTED_S
            woken = threading.Condition(self._lock)
            turn = Turn(self, owner, projected_s, is_small, self._arrived, stop or threading.Event(), woken)
            self._join_shares(turn)
            turn.since_s = self._clock()
            self._waiting.append(turn)
            self._grant()
        try:
            with self._lock:
                self._wait(turn)
            on_begin()
            with pace_work(turn):
                yield turn
        finally:
            self._leave(turn)

    def give_way(self, turn: Turn) -> None:
        """Let what comes before a turn go first; return when its work may go on.

        Raises
        ------
        Cancelled
            Nobody wants the work any more.
        """
        now_s = self._clock()
        self.longest_block_s = max(self.longest_block_s, now_s - turn.asked_s)
        turn.asked_s = now_s
        if turn.stop.is_set():
            raise _cancelled_error()
        if now_s - turn.since_s < LEAST_TURN_S and not turn.overtaken:
            return
        with self._lock:
            self._charge(turn, now_s)
            if not turn.overtaken and self._find_first(turn) is turn:
                return
            self._give_back(turn)
            self._waiting.append(turn)
            self._grant()
            self._wait(turn)

    def wake(self) -> None:
        """Have work that waits look whether it is still wanted."""
        with self._lock:
            for turn in self._waiting:
                turn.condition.notify()

    def _wait(self, turn: Turn) -> None:
        while not turn.granted and not turn.stop.is_set():
            if not turn.condition.wait(OVERDUE_S if turn.is_small else None):
                self._overtake(turn)
        if not turn.granted:
            raise _cancelled_error()

    def _leave(self, turn: Turn) -> None:
        with self._lock:
            if turn.granted:
                now_s = self._clock()
                self.longest_block_s = max(self.longest_block_s, now_s - turn.asked_s)
                self._charge(turn, now_s)
                self._give_back(turn)
            else:
                self._waiting.remove(turn)
            self._leave_shares(turn)
            self._grant()

    def _grant(self) -> None:
        while self._free and self._waiting:
            self._free -= 1
            self._admit(self._find_first())

    def _admit(self, turn: Turn) -> None:
        self._waiting.remove(turn)
        self._computing.add(turn)
        now_s = self._clock()
        turn.granted, turn.waited_s = True, turn.waited_s + now_s - turn.since_s
        turn.since_s = turn.asked_s = now_s
        turn.condition.notify()

    def _give_back(self, turn: Turn) -> None:
        """Free the place of a turn, unless another has it already."""
        self._computing.remove(turn)
        self._free += not turn.overtaken
        turn.granted = turn.overtaken = False

    def _overtake(self, turn: Turn) -> None:
        """Let small work take the place of work that does not give way."""
        now_s, overtaken = self._clock(), sum(other.overtaken for other in self._computing)
        if turn.granted or overtaken >= MOST_OVERTAKEN * self._workers:
            return
        for other in self._computing:
            if not other.overtaken and now_s - other.asked_s > OVERDUE_S:
                other.overtaken = True
                self._admit(turn)
                return

    def _find_first(self, *others: Turn) -> Turn:
        """Return who comes first of all that wait, and of some others."""
        return min((*self._waiting, *others), key=self._rank)

    def _rank(self, turn: Turn) -> tuple[float, float, float, int]:
        kind_s, owner_s = self._kinds.used_s(turn.is_small), self._owners[turn.is_small].used_s(turn.owner)
        return kind_s, owner_s, turn.projected_s, turn.number

    def _join_shares(self, turn: Turn) -> None:
        self._kinds.join(turn.is_small)
        self._owners[turn.is_small].join(turn.owner)

    def _leave_shares(self, turn: Turn) -> None:
        self._kinds.leave(turn.is_small)
        self._owners[turn.is_small].leave(turn.owner)

    def _charge(self, turn: Turn, now_s: float) -> None:
        """Note what a turn took up to now; work that took too long for small work is none from then on."""
        seconds = now_s - turn.since_s
        turn.since_s = now_s
        turn.worked_s += seconds
        self._kinds.charge(turn.is_small, seconds)
        self._owners[turn.is_small].charge(turn.owner, seconds)
        if turn.is_small and turn.worked_s > SMALL_S:
            self._leave_shares(turn)
            turn.is_small = False
            self._join_shares(turn)


def _cancelled_error() -> Cancelled:
    return Cancelled("the query was stopped between two blocks")
