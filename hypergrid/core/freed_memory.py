"""Freed memory, which a process keeps unless it is returned to the system."""

import ctypes
import gc
from collections.abc import Callable


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
