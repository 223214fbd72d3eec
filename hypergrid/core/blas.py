"""Thread limit of the BLAS library that numpy calls."""

import os
import threading
from contextlib import AbstractContextManager, nullcontext
from functools import cache

from threadpoolctl import LibController, OpenBLASController, ThreadpoolController

# Below this OpenBLAS uses one thread by itself, and setting the limit costs more than the product.
TINY_PRODUCT = 2**18
"""Multiplications up to which OpenBLAS uses one thread by default."""
SMALL_PRODUCT = 1e8
"""Multiplications up to which one thread is as fast as two (a few milliseconds)."""


def count_cores() -> int:
    """Return how many threads are worth having: the processors this process may use, or `NUMBA_NUM_THREADS`."""
    given = os.environ.get("NUMBA_NUM_THREADS", "")
    if given.isdecimal() and int(given):
        return int(given)
    # Not every system tells what a process is bound to.
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


@cache
def _load_libraries() -> list[LibController]:
    return [library for library in ThreadpoolController().lib_controllers if library.user_api == "blas"]


class _ThreadLimit:
    """Process-wide limit of one BLAS thread, with a count of its users; a reentrant context manager.

    Where BLAS runs on OpenMP instead of threads of its own, threadpoolctl limits only the calling thread.
    """

    # threadpoolctl's own limits describe every library each time, in 30 us of a kriging of 0.8 ms.
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._users = 0
        self._limits: list[tuple[LibController, int]] = []

    def __enter__(self) -> None:
        """Set the limit for the first user."""
        with self._lock:
            # A child that is forked between these statements must restore, so its users are counted throughout.
            self._users += 1
            if self._users == 1:
                self._limits = [(library, library.get_num_threads()) for library in _load_libraries()]
                _clear_control()
                for library, _ in self._limits:
                    library.set_num_threads(1)

    def __exit__(self, *_: object) -> None:
        """Restore the previous limits after the last user leaves."""
        with self._lock:
            if self._users <= 1:
                self._restore()
            # A child forked inside `one_thread` has no users left.
            self._users = max(self._users - 1, 0)

    def reset_in_child(self) -> None:
        """Reset the lock and the user count in a forked child."""
        # The parent's threads that hold the lock or use the limit do not exist in the child.
        self._lock = threading.Lock()
        if self._users:
            self._restore()
        self._users = 0

    def _restore(self) -> None:
        _clear_control()
        for library, count in self._limits:
            library.set_num_threads(count)
        _clear_control()


def _clear_control() -> None:
    """Let whichever thread sets BLAS limits next do so."""
    # Otherwise threadpoolctl heeds only the first thread that did, and the limits of all others have no effect.
    OpenBLASController.clear_controlling_thread(force=True)


_limit = _ThreadLimit()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_limit.reset_in_child)


def one_thread() -> AbstractContextManager[None]:
    """Run BLAS products of this process on the calling thread; reentrant and thread-safe."""
    # A product on all threads waits for the slowest one. If another process or loop occupies a processor, that wait
    # exceeds the product: 2,000 stations took 13 s instead of 2 on a busy machine. BLAS threads also spin for about
    # 26 ms after a product (OPENBLAS_THREAD_TIMEOUT): a 1 ms product on two threads cost our own threads 40 ms of the
    # following 250 ms.
    return _limit


def threads_for(multiplications: float) -> AbstractContextManager[None]:
    """Limit small products to one BLAS thread; leave larger and tiny ones to BLAS."""
    return one_thread() if TINY_PRODUCT < multiplications <= SMALL_PRODUCT else nullcontext()
