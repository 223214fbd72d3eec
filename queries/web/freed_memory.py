"""Return of freed memory, otherwise retained by the C library and Arrow, to the system."""

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
"""Parameter of glibc's `mallopt`: the number of heaps that threads share."""
EVERY_S: Final = 5.0
"""Interval at which the process's activity is checked [s]."""
WORKED_S: Final = 0.2
"""Processor time within that interval above which the process is active [s]; `give_back` takes 10 to 40 ms."""


def resident_bytes() -> int | None:
    """Return the resident memory of this process [bytes]; None if unavailable."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except (OSError, IndexError, ValueError):
        return None


def share_heaps() -> None:
    """Make Arrow allocate from the C library, and limit the number of thread heaps."""
    # Arrow's own allocator retained 140 MB of unused memory. Each of 16 heaps, glibc's limit for two processors,
    # retains the gaps between live allocations.
    pa.set_memory_pool(pa.system_memory_pool())
    choose: Callable[[int, int], int] | None = getattr(ctypes.CDLL(None), "mallopt", None)
    if choose is not None:
        choose(_M_ARENA_MAX, 2 * count_cores())


def give_back() -> None:
    """Collect cycles, and return freed memory to the system as far as the libraries can."""
    # The data of an exception, such as readings above a limit, stay referenced by a cycle of a future and a traceback
    # until Python's collector runs, which is seldom in a process with many long-lived objects.
    gc.collect()
    # Each thread that answers a large request fragments its own heap. glibc's malloc_trim releases the gaps of all
    # heaps, where `free` releases at most the end of one.
    trim: Callable[[int], int] | None = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


@contextmanager
def return_freed_memory(*, every_s: float = EVERY_S) -> Iterator[None]:
    """Return freed memory periodically in a background thread while the context is open."""
    ended = threading.Event()
    # Excludes 400,000 permanent objects from each collection: it takes 5 ms instead of 200, in which no other thread
    # runs.
    gc.collect()
    gc.freeze()

    def look() -> None:
        # Resident memory cannot decide this: memory in use a moment ago may be free now.
        before_s, has_worked = time.process_time(), False
        while not ended.wait(every_s):
            works = time.process_time() - before_s > WORKED_S
            # Once more after the last activity, for what was still in use at the previous call.
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
