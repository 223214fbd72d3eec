"""Memory that was freed goes back to the system: the C library and Arrow would keep it for what may come.

Each thread that answers a large request has a heap of its own, of which holes are left. And what an error was raised
over, such as readings above the limit, hangs on a cycle of a future and a traceback, which stays until Python looks for
cycles: seldom, where many objects live long.
"""

import ctypes
import gc
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import pyarrow as pa

from hypergrid.core.blas import count_cores

_M_ARENA_MAX: Final = -8
"""Parameter of glibc's `mallopt`: how many heaps threads share."""
EVERY_S: Final = 5.0
"""How often it is looked whether the process has worked [s]."""
WORKED_S: Final = 0.2
"""Processor time within that time above which the process works [s]; giving back takes 10 to 40 ms of it."""


def resident_bytes() -> int | None:
    """Return the memory of this process [bytes]; None where the system does not say."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError):
        return None


def share_heaps() -> None:
    """Let Arrow take its memory from the C library, and few threads have a heap of their own.

    Arrow's own allocator kept 140 MB that nothing used; and of 16 heaps, glibc's bound for two processors, each keeps
    what lies between pieces that stay.
    """
    pa.set_memory_pool(pa.system_memory_pool())
    choose: Callable[[int, int], int] | None = getattr(ctypes.CDLL(None), "mallopt", None)
    if choose is not None:
        choose(_M_ARENA_MAX, 2 * count_cores())


def give_back() -> None:
    """Free cycles, and return freed memory to the system as far as the libraries can."""
    gc.collect()
    # Of glibc; it gives back the holes of all heaps, where `free` gives back the end of one at most.
    trim: Callable[[int], int] | None = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


@contextmanager
def return_freed_memory(*, every_s: float = EVERY_S) -> Iterator[None]:
    """Give freed memory back now and then, from a thread of its own, as long as the block lasts."""
    ended = threading.Event()
    # 400,000 objects that stay for good need not be looked at each time: 5 ms in place of 200, in which no other thread
    # runs.
    gc.collect()
    gc.freeze()

    def look() -> None:
        # By the memory that is held it could not be known: what was in use a moment ago may be free now.
        before_s, has_worked = time.process_time(), False
        while not ended.wait(every_s):
            works = time.process_time() - before_s > WORKED_S
            # Once more after the last work, for what it held when memory was given back last.
            if works or has_worked:
                give_back()
            before_s, has_worked = time.process_time(), works

    thread = threading.Thread(target=look, name="freed memory", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        gc.unfreeze()
