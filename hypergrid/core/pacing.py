"""Cooperative scheduling: long work yields or is cancelled between two pieces.

`pace_work` sets the policy for a thread; without one, `give_way` costs next to nothing.
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
"""Target duration of a piece of work [s], after which other work can run."""
_ASKED_S: Final = 0.02
"""How often a thread that waits for its helpers gives way for them [s]."""

Piece = TypeVar("Piece")


class Pace(Protocol):
    """Policy that decides when work may continue."""

    waited_s: float
    """Time that the work has waited so far [s]."""

    def give_way(self) -> None:
        """Block until the work may continue; raise to end it."""


_PACE: Final[ContextVar[Pace | None]] = ContextVar("pace", default=None)


def give_way() -> None:
    """Let waiting work run first, if the work of this thread is paced."""
    pace = _PACE.get()
    if pace is not None:
        pace.give_way()


def time_waited_s() -> float:
    """Return the time this thread's work has waited for other work [s]; 0 if unpaced."""
    pace = _PACE.get()
    return 0.0 if pace is None else pace.waited_s


def is_paced() -> bool:
    return _PACE.get() is not None


@contextmanager
def pace_work(pace: Pace) -> Iterator[None]:
    """Apply a pace to the work inside, in this thread."""
    token = _PACE.set(pace)
    try:
        yield
    finally:
        _PACE.reset(token)


def ranges(count: int) -> Iterator[tuple[int, int]]:
    """Yield (first, stop) ranges of items that take about `PIECE_S` each; give way between them.

    A single range covers all items if the work is not paced.
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


def split_work(count: int, size: int) -> Iterator[slice]:
    """Yield slices of at most `size` items, at least one; give way before each."""
    step = max(1, size)
    for first in range(0, count, step):
        give_way()
        yield slice(first, min(first + step, count))


class Helpers:
    """Helper threads of paced work; they pause while it gives way."""

    waited_s = 0.0

    def __init__(self) -> None:
        self._may_go = threading.Event()
        self._may_go.set()
        self._is_over = False
        self._asked_s = time.monotonic()

    def give_way(self) -> None:
        """Block while the helped work gives way; raise `Cancelled` once it has ended."""
        self._may_go.wait()
        if self._is_over:
            raise Cancelled("the work that was helped has ended")

    def run(self, work: Callable[[Piece], None], piece: Piece) -> None:
        """Run a piece of work, in a helper thread."""
        with pace_work(self):
            self.give_way()
            work(piece)

    def wait_for(self, future: "Future[None]") -> None:
        """Wait for a piece of work and give way meanwhile; re-raise its error."""
        while True:
            # Measured by the clock rather than per piece, because many short pieces in a row take long, too.
            left_s = max(0.0, self._asked_s + _ASKED_S - time.monotonic())
            try:
                return future.result(timeout=left_s)
            except TimeoutError:
                # The piece of work itself raised the TimeoutError.
                if future.done():
                    raise
            self._may_go.clear()
            try:
                give_way()
            except BaseException:
                # The helpers are woken below, and end at their next `give_way`.
                self._is_over = True
                raise
            finally:
                self._asked_s = time.monotonic()
                self._may_go.set()
