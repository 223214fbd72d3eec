"""JIT compilation of kriging loops, and the thread pool that runs them.

Compiled functions release the GIL, so plain Python threads can share their work. numba takes half a second to import:
import this module inside a function, and only for large jobs.
"""

import os
import threading
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import TypeVar

from hypergrid.core.blas import count_cores, one_thread
from hypergrid.core.machine_code import Compiled, compile_into, find_cache_folder
from hypergrid.core.pacing import Helpers, give_way, is_paced

Piece = TypeVar("Piece")

PACKAGE = Path(__file__).parents[2]
SOURCES = tuple(
    PACKAGE / f"{name}.py"
    for name in (
        *(f"interpolation/kernels/{name}" for name in ("cholesky", "covariance", "covariance_loops", "imputation")),
        *(f"interpolation/kernels/{name}" for name in ("local_task", "threads")),
        *(f"interpolation/local/{name}" for name in ("neighbourhood", "numba_backend")),
        *(f"core/{name}" for name in ("geodesy", "machine_code")),
    )
)
"""Files that the compiled functions depend on, including those of their constants and records."""


@cache
def _find_cache_folder() -> str:
    """Find the machine code cache folder of exactly these sources; empty to let numba choose."""
    return find_cache_folder(SOURCES)


# numba's own parallel loops are not used: its OpenMP threads and those of BLAS contend (up to 40 times slower on two
# cores), and its workqueue layer aborts the process if two threads enter it at once, as server threads do.
def jit_kernel(
    *, reordered: bool = False, counted: bool = True, wrapped: bool = True
) -> Callable[[Compiled], Compiled]:
    """Compile a function at its first call, to run without the GIL; the machine code is cached on disk.

    Parameters
    ----------
    reordered
        Whether sums may be reordered, so that they can be vectorised.
    counted, wrapped
        As in `compile_into`.
    """
    fastmath = {"contract", "reassoc"} if reordered else {"contract"}
    return compile_into(_find_cache_folder(), fastmath, counted=counted, wrapped=wrapped)


class _ThreadTeam:
    """The thread pools of this process, and the lock for using them."""

    def __init__(self) -> None:
        self.reset_after_fork()

    def reset_after_fork(self) -> None:
        """Drop all pools and release the lock, in the child of a fork."""
        # A forked child has none of its parent's threads: with the parent's pool, or with a lock held by another thread
        # of the parent, it would wait forever.
        self.turn = threading.Lock()
        self._pools: dict[int, ThreadPoolExecutor] = {}

    def get_pool(self) -> ThreadPoolExecutor:
        """Return the pool of the caller's priority, creating it if necessary; requires the lock."""
        # A thread inherits the priority of its creator and cannot be raised above it.
        priority = 0
        if hasattr(os, "getpriority"):
            with suppress(OSError):
                priority = os.getpriority(os.PRIO_PROCESS, 0)
        if priority not in self._pools:
            self._pools[priority] = ThreadPoolExecutor(count_cores(), thread_name_prefix="kriging")
        return self._pools[priority]


_threads = _ThreadTeam()
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_threads.reset_after_fork)


def share(work: Callable[[Piece], None], pieces: Iterable[Piece]) -> None:
    """Run `work` on each piece, on all processors if the pool is free, else serially.

    Pieces must be independent. An error of one piece is raised after the pieces before it are done.
    """
    listed, turn = list(pieces), _threads.turn
    # If another caller has the pool, its threads already use all processors: waiting for it would gain nothing.
    if len(listed) < 2 or count_cores() < 2 or not turn.acquire(blocking=False):
        for piece in listed:
            give_way()
            work(piece)
        return
    helpers = Helpers() if is_paced() else None
    try:
        with one_thread():
            _run_on_pool(_threads.get_pool(), work, listed, helpers)
    finally:
        turn.release()


def _run_on_pool(
    pool: ThreadPoolExecutor, work: Callable[[Piece], None], pieces: Sequence[Piece], helpers: Helpers | None
) -> None:
    futures = [
        pool.submit(work, piece) if helpers is None else pool.submit(helpers.run, work, piece) for piece in pieces
    ]
    try:
        for future in futures:
            future.result() if helpers is None else helpers.wait_for(future)
    finally:
        # After an error, cancel the remaining pieces and wait for running ones: they write into the caller's arrays.
        for future in futures:
            if not future.cancel():
                future.exception()
