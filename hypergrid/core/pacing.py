"""Giving way: long work asks between two pieces whether something else goes first, or whether nobody wants it any more.

Whoever runs the work says what becomes of the question (`pace_work`); where nobody does, asking costs next to nothing.
"""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Final, Protocol, TypeVar

from hypergrid.core.errors import Cancelled

PIECE_S: Final = 0.05
"""How long a piece of work should take [s]: other work waits for its end."""
_ASKED_S: Final = 0.02
"""How often who waits for helping threads asks on their behalf [s]."""

Piece = TypeVar("Piece")


class Pace(Protocol):
    """What decides when work goes on."""

    waited_s: float
    """How long the work has waited so far [s]."""

    def give_way(self) -> None:
        """Return when the work may go on; raise where it shall end."""
        ...


_PACE: Final[ContextVar[Pace | None]] = ContextVar("pace", default=None)


def give_way() -> None:
    """Let other work go first, where the work of this thread is paced and other work waits."""
    pace = _PACE.get()
    if pace is not None:
        pace.give_way()


def time_waited_s() -> float:
    """Return how long the work of this thread waited for other work [s]; 0 where it is not paced."""
    pace = _PACE.get()
    return 0.0 if pace is None else pace.waited_s


def is_paced() -> bool:
    """Return whether the work of this thread is asked to give way."""
    return _PACE.get() is not None


@contextmanager
def pace_work(pace: Pace) -> Iterator[None]:
    """Have the work inside, in this thread, ask a pace."""
    token = _PACE.set(pace)
    try:
        yield
    finally:
        _PACE.reset(token)


def ranges(count: int) -> Iterator[tuple[int, int]]:
    """Yield where to begin and end so that each range of items is some `PIECE_S` of work; give way between two.

    Where the work is not paced, one range is all.
    """
    first, size = 0, 1 if is_paced() else count
    while first < count:
        stop, begun_s = min(first + size, count), time.monotonic()
        yield first, stop
        took_s = time.monotonic() - begun_s
        size = max(1, min(4 * size, int((stop - first) * PIECE_S / max(took_s, 1e-9))))
        first = stop
        if first < count:
            give_way()


class Helpers:
    """Threads that work for a paced one: they pause, at their own questions, while it gives way."""

    waited_s = 0.0

    def __init__(self) -> None:
        self._may_go = threading.Event()
        self._may_go.set()
        self._is_over = False
        self._asked_s = time.monotonic()

    def give_way(self) -> None:
        """Wait while the one that is helped waits; end where it has ended."""
        self._may_go.wait()
        if self._is_over:
            message = "the work that was helped has ended"
            raise Cancelled(message)

    def run(self, work: Callable[[Piece], None], piece: Piece) -> None:
        """Do a piece of work, in a helping thread."""
        with pace_work(self):
            self.give_way()
            work(piece)

    def wait_for(self, future: "Future[None]") -> None:
        """Wait for a piece of work, giving way meanwhile; raise what it raised."""
        while True:
            # By the clock, and not by the piece: many short ones one after the other are long, too.
            left_s = max(0.0, self._asked_s + _ASKED_S - time.monotonic())
            try:
                return future.result(timeout=left_s)
            except TimeoutError:
                if future.done():
                    raise
            self._may_go.clear()
            try:
                give_way()
            except BaseException:
                self._is_over = True
                raise
            finally:
                self._asked_s = time.monotonic()
                self._may_go.set()
