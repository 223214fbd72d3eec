"""Block queue: which work computes next, of users' questions and of standing queries.

Work is cut into blocks (`hypergrid.core.pacing`) and yields between them to work with precedence: that with the highest
profit per remaining second, as in OptProfit (thesis 5.11). A question's profit is the weight of a user's query; that of
the standing queries comes from their strategy. Each kind that waits (small questions, large questions, standing
queries) has at least a quarter of the time, however much denser the others are, and of questions small ones come first.
Within each kind of question, owners have equal shares by start-time fair queueing (Goyal, Vin and Cheng, 1996): an
owner that returns after a pause starts at the least used share and has no saved credit. Among one owner's questions the
smallest projection comes first, and ties go by arrival.
"""

import math
import threading
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Final, Generic, Literal, TypeVar, get_args

from hypergrid.core.errors import Cancelled
from hypergrid.core.pacing import pace_work

SMALL_S: Final = 1.0
"""Work counts as small until it has taken this long [s], unless more than `PROJECTED_S` was projected."""
# Above SMALL_S, as projections are off by a factor of a few in both directions.
PROJECTED_S: Final = 10.0
"""Projection above which work is never small [s]."""
QUESTION_WEIGHT: Final = 3.0
"""Profit of a question: the weight of a user's query, 2 to 5 (thesis 5.11)."""
GUARANTEED_SHARE: Final = 0.25
"""Share of the time of each kind of work, at least, while others wait, too."""
MOST_AHEAD_S: Final = 0.25
"""Longest time beyond its share that a kind is charged [s]: it is owed its share again soon after others took over."""
OVERDUE_S: Final = 0.1
"""Work that has not yielded for this long [s] is overtaken by small work: both compute until it yields. So it is by
standing queries that are denser."""
MOST_OVERTAKEN: Final = 2
"""Overtaken turns at a time, per worker."""
# The processor's caches are cold after each switch.
LEAST_TURN_S: Final = 0.02
"""Minimum duration of a turn [s], however many wait."""

Key = TypeVar("Key", bound=Hashable)
Kind = Literal["small", "large", "standing"]
"""Small and large questions, and standing queries."""
ROUNDING_S: Final = 1e-9
"""Time owed below which nothing is owed [s]."""


class FairShares(Generic[Key]):
    """Time used by each of several parties."""

    def __init__(self) -> None:
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
        self._used_s[key] += seconds

    def used_s(self, key: Key) -> float:
        """Return the time used by a party [s]."""
        return self._used_s[key]


class KindShares:
    """Time of each kind of work against its guaranteed share, since it joined."""

    def __init__(self) -> None:
        self._ahead_s: dict[Kind, float] = {}
        self._open: Counter[Kind] = Counter()

    def join(self, kind: Kind) -> None:
        """Add a piece of work; a kind that was idle has no saved credit."""
        if kind not in self._open:
            self._ahead_s[kind] = max(self._ahead_s.get(kind, 0.0), 0.0)
        self._open[kind] += 1

    def leave(self, kind: Kind) -> None:
        self._open[kind] -= 1
        if not self._open[kind]:
            del self._open[kind]

    def charge(self, kind: Kind, seconds: float) -> None:
        """Charge a kind, and owe all their shares; time without competition is free."""
        if len(self._open) < 2:
            return
        for other in self._open:
            used_s = seconds if other == kind else 0.0
            self._ahead_s[other] = min(self._ahead_s[other] + used_s - GUARANTEED_SHARE * seconds, MOST_AHEAD_S)

    def owed_s(self, kind: Kind) -> float:
        """Return how much of its share a kind lacks [s]; below zero if it had more."""
        return -self._ahead_s[kind]


@dataclass(eq=False)
class Turn:
    """Place of one piece of work in the queue; used only by its own thread."""

    queue: "BlockQueue"
    owner: str
    projected_s: float
    """Projected duration [s]."""
    kind: Kind
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
    offered_density: float = 0.0
    """Profit per remaining second of the best standing query [1/s]."""

    @property
    def density(self) -> float:
        """Profit per remaining second [1/s]."""
        if self.kind == "standing":
            return self.offered_density
        # Work beyond its projection is expected to take as long again as so far.
        left_s = self.projected_s - self.worked_s if self.worked_s < self.projected_s else self.worked_s
        return QUESTION_WEIGHT / max(left_s, LEAST_TURN_S)

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
        self._kinds = KindShares()
        self._owners: dict[Kind, FairShares[str]] = {kind: FairShares() for kind in get_args(Kind)}
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
        kind: Kind = "small" if projected_s <= PROJECTED_S else "large"
        turn = self._enter(owner, kind, projected_s=projected_s, stop=stop)
        try:
            with self._lock:
                self._wait(turn)
            on_begin()
            with pace_work(turn):
                yield turn
        finally:
            self.leave(turn)

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
            if not self._may_continue(turn, now_s):
                self._wait(turn)

    def compete(self) -> "StandingTurns":
        """Let standing queries take part."""
        return StandingTurns(self)

    def take_standing(self, turn: Turn | None, density: float, timeout_s: float) -> Turn:
        """Take or keep a turn of the standing queries, if it is granted in time."""
        now_s = self._clock()
        if turn is None:
            turn = self._enter("", "standing", density=density)
        with self._lock:
            turn.offered_density = density
            if turn.granted:
                self.longest_block_s = max(self.longest_block_s, now_s - turn.asked_s)
                turn.asked_s = now_s
                is_short = now_s - turn.since_s < LEAST_TURN_S and not turn.overtaken
                if is_short or self._may_continue(turn, now_s):
                    return turn
            until_s = time.monotonic() + timeout_s
            while not turn.granted and (left_s := until_s - time.monotonic()) > 0:
                if not turn.condition.wait(min(left_s, OVERDUE_S)):
                    self._overtake(turn)
            return turn

    def wake(self) -> None:
        """Make waiting work check whether it is still wanted."""
        with self._lock:
            for turn in self._waiting:
                turn.condition.notify()

    def _enter(
        self,
        owner: str,
        kind: Kind,
        *,
        projected_s: float = 0.0,
        density: float = 0.0,
        stop: threading.Event | None = None,
    ) -> Turn:
        with self._lock:
            self._arrived += 1
            woken = threading.Condition(self._lock)
            turn = Turn(self, owner, projected_s, kind, self._arrived, stop or threading.Event(), woken)
            turn.offered_density = density
            self._join_shares(turn)
            turn.since_s = self._clock()
            self._waiting.append(turn)
            self._grant()
            return turn

    def _may_continue(self, turn: Turn, now_s: float) -> bool:
        """Return whether a turn keeps its place; else it waits again."""
        self._charge(turn, now_s)
        if not turn.overtaken and self._find_first(turn) is turn:
            return True
        self._give_back(turn)
        self._waiting.append(turn)
        self._grant()
        return False

    def _wait(self, turn: Turn) -> None:
        while not turn.granted and not turn.stop.is_set():
            # Of questions only small ones overtake, so only they need a timeout.
            if not turn.condition.wait(OVERDUE_S if turn.kind == "small" else None):
                self._overtake(turn)
        # Work that was stopped may have been granted a turn before its thread woke.
        if turn.stop.is_set() or not turn.granted:
            raise _cancelled_error()

    def leave(self, turn: Turn) -> None:
        """Give up a turn, or its place among those that wait."""
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
        """Give a place to small work, or to standing queries that are denser, if other work does not yield."""
        now_s, overtaken = self._clock(), sum(other.overtaken for other in self._computing)
        if turn.granted or overtaken >= MOST_OVERTAKEN * self._workers:
            return
        for other in self._computing:
            has_precedence = turn.kind == "small" or turn.density > other.density
            if has_precedence and not other.overtaken and now_s - other.asked_s > OVERDUE_S:
                other.overtaken = True
                self._admit(turn)
                return

    def _find_first(self, *others: Turn) -> Turn:
        """Find the turn with precedence, of those that wait and others."""
        heads: dict[Kind, Turn] = {}
        for turn in (*self._waiting, *others):
            head = heads.get(turn.kind)
            if head is None or self._rank(turn) < self._rank(head):
                heads[turn.kind] = turn
        owed = max(heads.values(), key=lambda turn: self._kinds.owed_s(turn.kind))
        if self._kinds.owed_s(owed.kind) > ROUNDING_S:
            return owed
        # Small questions come before large ones, even before one that ends soon: projections are rough.
        if "small" in heads:
            heads.pop("large", None)
        return max(heads.values(), key=lambda turn: (turn.density, -turn.number))

    def _rank(self, turn: Turn) -> tuple[float, float, int]:
        return self._owners[turn.kind].used_s(turn.owner), turn.projected_s, turn.number

    def _join_shares(self, turn: Turn) -> None:
        self._kinds.join(turn.kind)
        self._owners[turn.kind].join(turn.owner)

    def _leave_shares(self, turn: Turn) -> None:
        self._kinds.leave(turn.kind)
        self._owners[turn.kind].leave(turn.owner)

    def _charge(self, turn: Turn, now_s: float) -> None:
        """Charge the time since the last call; work above `SMALL_S` ceases to be small."""
        seconds = now_s - turn.since_s
        turn.since_s = now_s
        turn.worked_s += seconds
        self._kinds.charge(turn.kind, seconds)
        self._owners[turn.kind].charge(turn.owner, seconds)
        if turn.kind == "small" and turn.worked_s > SMALL_S:
            # It used its time as small work; from now on it competes with the large.
            self._leave_shares(turn)
            turn.kind = "large"
            self._join_shares(turn)


class StandingTurns:
    """Turns of the standing queries, whose one thread takes part in a queue while it has work."""

    def __init__(self, queue: BlockQueue) -> None:
        self._queue = queue
        self._turn: Turn | None = None

    def take(self, density: float, timeout_s: float) -> bool:
        """Wait for a turn, or keep it unless others have precedence; return whether it has one.

        Parameters
        ----------
        density
            Profit per remaining second of the best standing query [1/s].
        timeout_s
            How long to wait at most [s]; the place among those that wait is kept.
        """
        self._turn = self._queue.take_standing(self._turn, density, timeout_s)
        return self._turn.granted

    def release(self) -> None:
        """Leave the queue until there is work again."""
        if self._turn is not None:
            self._queue.leave(self._turn)
            self._turn = None


def _cancelled_error() -> Cancelled:
    return Cancelled("the query was stopped between two blocks")
