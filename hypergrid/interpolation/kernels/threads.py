"""Compiled loops and the threads they run on.

Compiled functions leave Python's lock, and plain threads share their work. numba's own parallel loops are not used: its
OpenMP threads and those of BLAS hinder one another (up to 40 times slower on two cores), and its workqueue layer aborts
the process where two threads enter it at once, as those of a server do.

numba takes half a second to import. Only what is worth it imports this module, inside a function.
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
"""What compiled functions are made of: their files, and those that their constants and records come from."""


@cache
def _find_cache_folder() -> str:
    """Return the folder of the machine code of just these sources; empty where numba shall choose."""
    return find_cache_folder(SOURCES)


def jit_kernel(*, fused: bool = True, reordered: bool = False) -> Callable[[Compiled], Compiled]:
    """Compile a function at its first call, keep the machine code on disk, and run it without Python's lock.

    Parameters
    ----------
    fused
        Whether products and sums may be rounded once together.
    reordered
        Whether sums may be taken in another order, so that they can be vectorised.
    """
    return compile_into(
        _find_cache_folder(), {name for name, wanted in (("contract", fused), ("reassoc", reordered)) if wanted}
    )


class _ThreadTeam:
    """The threads of this process, and whose turn it is to use them."""

    def __init__(self) -> None:
        self.reset_after_fork()

    def reset_after_fork(self) -> None:
        """Begin without threads, free for anybody, as a process must that was forked: no thread of its parent is in it.

        With the parent's pool, or with its lock where another thread held it, a child would wait for ever.
        """
        self.turn = threading.Lock()
        self._pools: dict[int, ThreadPoolExecutor] = {}

    def get_pool(self) -> ThreadPoolExecutor:
        """Return the pool of the caller's priority, made where there is none; only for whose turn it is."""
        # A thread has the priority of the one that started it, and cannot be given a higher one.
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
    """Do the work of each piece, on all processors where nobody else uses them, else in the caller's own thread.

    An error of one piece is raised after those before it are done; pieces must not depend on each other's results.
    """
    listed, turn = list(pieces), _threads.turn
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
        # After an error nobody wants the rest; what runs already ends before the caller's arrays go.
        for future in futures:
            if not future.cancel():
                future.exception()
