"""Freed memory, which a process keeps unless it is returned to the system."""

import ctypes
import gc
from collections.abc import Callable
from functools import cache
from typing import Final

LARGE_BYTES: Final = 1 << 20
"""Blocks from here on are returned to the system when they are freed, once `return_large_blocks` was called [bytes]."""
KEPT_BYTES: Final = 1 << 25
"""Blocks below are kept when they are freed, once `keep_freed_blocks` was called; glibc takes no more [bytes]."""
_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3
_M_ARENA_MAX: Final = -8
"""Parameters of glibc's `mallopt`."""


def give_back() -> None:
    """Collect cycles, and return freed memory to the system as far as the libraries can."""
    # The data of an exception, such as readings above a limit, stay referenced by a cycle of a future and a traceback
    # until Python's collector runs, which is seldom in a process with many long-lived objects.
    gc.collect()
    # Each thread that does something large fragments its own heap. glibc's malloc_trim releases the gaps of all heaps,
    # where `free` releases at most the end of one.
    trim: Callable[[int], int] | None = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


@cache
def keep_freed_blocks() -> None:
    """Have this process keep freed blocks for the next ones, unless it returns large ones (`return_large_blocks`).

    It is meant for work in batches whose arrays are freed together, as results are: the system would clear the same
    pages again for each batch, which took half of the time of batches of 65,536 rows. What is free at the end of a heap
    is returned once it is more than 64 MiB, or by `give_back`.
    """
    returns_large = return_large_blocks.cache_info().currsize > 0
    if not returns_large:
        # glibc comes to the same by itself, but only once a block of 32 MiB was freed.
        _choose(_M_MMAP_THRESHOLD, KEPT_BYTES)
        _choose(_M_TRIM_THRESHOLD, 2 * KEPT_BYTES)


@cache
def return_large_blocks() -> None:
    """Have this process return large blocks to the system as soon as they are freed, as far as the libraries can.

    It is meant for processes with a limit of memory: large arrays become slower to allocate.
    """
    # glibc raises its threshold to the largest block freed so far, up to 32 MiB: from then on large arrays are carved
    # out of heaps, one for each thread, which keep the gaps between them.
    _choose(_M_MMAP_THRESHOLD, LARGE_BYTES)
    # What it is without `keep_freed_blocks`.
    _choose(_M_TRIM_THRESHOLD, 128 << 10)
    limit_heaps(1)


def limit_heaps(count: int) -> None:
    """Have the threads of this process share some heaps at most, as far as the libraries can."""
    _choose(_M_ARENA_MAX, count)


def _choose(parameter: int, value: int) -> None:
    """Set a parameter of glibc's allocator; other libraries have none."""
    choose: Callable[[int, int], int] | None = getattr(ctypes.CDLL(None), "mallopt", None)
    if choose is not None:
        choose(parameter, value)
