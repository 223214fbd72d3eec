"""How many threads the linear algebra below numpy uses.

A product on all threads waits for the last of them; where another process, or a loop of ours, has one of the
processors, that wait is longer than the product: 2,000 stations took 13 s in place of 2 on a busy machine. And its
threads go on running for some 26 ms after a product, in case there is another (OPENBLAS_THREAD_TIMEOUT): a product of
one millisecond on two threads took 40 ms from the quarter of a second of our own threads after it.
"""

import os
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import cache
from typing import Any

from threadpoolctl import ThreadpoolController

TINY_PRODUCT = 2**18
"""Multiplications up to which OpenBLAS takes one thread by itself; to ask for it costs longer than the product."""
SMALL_PRODUCT = 1e8
"""Multiplications up to which one thread is as fast as two (some milliseconds)."""


def count_cores() -> int:
    """Return how many threads are worth having: the processors this process may use, or `NUMBA_NUM_THREADS`."""
    given = os.environ.get("NUMBA_NUM_THREADS", "")
    if given.isdecimal() and int(given):
        return int(given)
    # Not every system tells what a process is bound to.
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@cache
def _load_libraries() -> ThreadpoolController:
    return ThreadpoolController()


class _ThreadLimit:
    """The limit of this process, and how many rely on it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._limits: Any = None

    def enter(self) -> None:
        """Set the limit, unless somebody did."""
        with self._lock:
            if not self._users:
                self._limits = _load_libraries().limit(limits=1, user_api="blas")
            self._users += 1

    def leave(self) -> None:
        """Take it back, unless somebody else relies on it."""
        with self._lock:
            # A child that was forked in here relies on nothing any more.
            self._users = max(self._users - 1, 0)
            if not self._users:
                self._limits.restore_original_limits()

    def reset_in_child(self) -> None:
        """Begin anew after a fork: the threads that held the lock or relied on the limit are not in this process."""
        self._lock = threading.Lock()
        if self._users:
            self._limits.restore_original_limits()
        self._users = 0


_limit = _ThreadLimit()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_limit.reset_in_child)


@contextmanager
def one_thread() -> Iterator[None]:
    """Let products in this process run on the thread that asks for them; several may be inside at once."""
    _limit.enter()
    try:
        yield
    finally:
        _limit.leave()


def threads_for(multiplications: float) -> AbstractContextManager[None]:
    """Let a product inside have as many threads as are worth it: one if it is small, else what BLAS takes."""
    return one_thread() if TINY_PRODUCT < multiplications <= SMALL_PRODUCT else nullcontext()
