"""Block queue: which query computes next.

Work is cut into blocks (`hypergrid.core.pacing`) and yields between them to work with precedence. Small work comes
first, for up to three quarters of the time; the rest of the time, and all of it without small work, goes to other work.
Within each kind, owners have equal shares by start-time fair queueing (Goyal, Vin and Cheng, 1996): an owner that
returns after a pause starts at the least used share and has no saved credit. Among one owner's work the smallest
projection comes first, and ties go by arrival.
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
"""Work counts as small until it has taken this long [s], unless more than `PROJECTED_S` was projected."""
# Above SMALL_S, as projections are off by a factor of a few in both directions.
PROJECTED_S: Final = 10.0
"""Projection above which work is never small [s]."""
SMALL_WEIGHT: Final = 3.0
"""Seconds for small work per second of other work, while both wait."""
OVERDUE_S: Final = 0.1
"""Work that has not yielded for this long [s] is overtaken by small work: both compute until it yields."""
MOST_OVERTAKEN: Final = 2
"""Overtaken turns at a time, per worker."""
# The processor's caches are cold after each switch.
LEAST_TURN_S: Final = 0.02
"""Minimum duration of a turn [s], however many wait."""

Key = TypeVar("Key", bound=Hashable)


class FairShares(Generic[Key]):
    """Weighted time used by each of several parties."""

    def __init__(self, weights: Callable[[Key], float] = lambda _key: 1.0) -> None:
        self._weight = weights
        self._used_s: dict[Key, float] = {}
        self._open: Counter[Key] = Counter()

    def join(self, key: Key) -> None:
        """Add a piece of work; idle parties start at the others' least used time."""
        if key not in self._open:
            lowest_s = min((self._used_s[other] for other in self._open), default=0.0)
            # An owner that was away must not have saved up credit (start-time fair queueing).
            self._used_s[key] = max(self._used_s.get(key, 0.0), lowest_s)
        self._open[key] += 1

    def leave(self, key: Key) -> None:
        """Remove a piece of work; forget idle parties, unless they used more than the others."""
        self._open[key] -= 1
        if self._open[key]:
            return
        del self._open[key]
        lowest_s = min((self._used_s[other] for other in self._open), default=math.inf)
        self._used_s = {
            other: had_s for other, had_s in self._used_s.items() if other in self._open or had_s > lowest_s
        }

    def charge(self, key: Key, seconds: float) -> None:
        self._used_s[key] += seconds / self._weight(key)

    def used_s(self, key: Key) -> float:
        """Return the time used by a party [s], divided by its weight."""
        return self._used_s[key]


@dataclass(eq=False)
class Turn:
    """Place of one piece of work in the queue; used only by its own thread."""

    queue: "BlockQueue"
    owner: str
    projected_s: float
    """Projected duration [s]."""
    is_small: bool
    number: int
    """Sequence number by arrival."""
    stop: threading.Event
    """Set when the work is not wanted any more."""
    condition: threading.Condition
    """Notified when the turn begins, or is stopped."""
    worked_s: float = 0.0
    waited_s: float = 0.0
    granted: bool = False
    overtaken: bool = False
    """Whether another turn took its place while it computes."""
    since_s: float = 0.0
    """Start of the current turn, or of the current wait [s]."""
    asked_s: float = 0.0
    """When it last offered to yield [s]."""

    def give_way(self) -> None:
        """Yield to work with precedence, and return when this work may continue.

        Raises
        ------
        Cancelled
            The work is not wanted any more.
        """
        self.queue.give_way(self)


class BlockQueue:
    """Lets a limited number of pieces of work compute concurrently; thread-safe.

    Parameters
    ----------
    workers
        How many compute concurrently.
    clock
        Monotonic clock [s].
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
        """Longest time that work computed without offering to yield [s]."""

    @contextmanager
    def turn(
        self,
        owner: str,
        *,
        projected_s: float = 0.0,
        stop: threading.Event | None = None,
        on_begin: Callable[[], None] = lambda: None,
    ) -> Iterator[Turn]:
        """Wait for a turn; the work inside yields at `hypergrid.core.pacing.give_way`.

        Parameters
        ----------
        owner
            Owner of the work.
        projected_s
            Projected duration [s].
        stop
            Set when the work is not wanted any more: it ends at the next block (`Cancelled`).
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
        """Let turns with precedence go first; return when its work may continue.

        Raises
        ------
        Cancelled
            The work is not wanted any more.
        """
        now_s = self._clock()
        self.longest_block_s = max(self.longest_block_s, now_s - turn.asked_s)
        turn.asked_s = now_s
        if turn.stop.is_set():
            raise _cancelled_error()
        # Without the lock: this runs at every block.
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
        """Make waiting work check whether it is still wanted."""
        with self._lock:
            for turn in self._waiting:
                turn.condition.notify()

    def _wait(self, turn: Turn) -> None:
        while not turn.granted and not turn.stop.is_set():
            # Only small work overtakes, so only it needs a timeout.
            if not turn.condition.wait(OVERDUE_S if turn.is_small else None):
                self._overtake(turn)
        # Work that was stopped may have been granted a turn before its thread woke.
        if turn.stop.is_set() or not turn.granted:
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
        """Free the place of a turn, unless it was overtaken."""
        self._computing.remove(turn)
        # An overtaken turn has given its place away already.
        self._free += not turn.overtaken
        turn.granted = turn.overtaken = False

    def _overtake(self, turn: Turn) -> None:
        """Give a place to small work if other work does not yield."""
        now_s, overtaken = self._clock(), sum(other.overtaken for other in self._computing)
        if turn.granted or overtaken >= MOST_OVERTAKEN * self._workers:
            return
        for other in self._computing:
            if not other.overtaken and now_s - other.asked_s > OVERDUE_S:
                other.overtaken = True
                self._admit(turn)
                return

    def _find_first(self, *others: Turn) -> Turn:
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
        """Charge the time since the last call; work above `SMALL_S` ceases to be small."""
        seconds = now_s - turn.since_s
        turn.since_s = now_s
        turn.worked_s += seconds
        self._kinds.charge(turn.is_small, seconds)
        self._owners[turn.is_small].charge(turn.owner, seconds)
        if turn.is_small and turn.worked_s > SMALL_S:
            # It used its time as small work; from now on it competes with the large.
            self._leave_shares(turn)
            turn.is_small = False
            self._join_shares(turn)


def _cancelled_error() -> Cancelled:
    return Cancelled("the query was stopped between two blocks")
