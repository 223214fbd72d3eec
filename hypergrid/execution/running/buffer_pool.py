"""Memory of large results, used again once nobody holds the result any more.

New memory is paid for at its first touch: the system clears it (17 ms for 320 MB), and a virtual machine whose host
took its free memory back fetches it anew (0.3 to 0.6 s: more than to krige 1,000 slices of 200 x 200 cells). So what a
large result lay in is kept for the next one. The system is told that it may have it (MADV_FREE) and takes it where
memory is short, so that keeping it takes nothing from anybody.
"""

import mmap
import os
import threading
import weakref
from collections import deque
from typing import Final

import numpy as np
from numpy.typing import NDArray

LARGE_BYTES: Final = 32 * 2**20
"""Size from which a result's memory is kept [bytes]; smaller ones the allocator keeps by itself."""
MAX_BYTES: Final = 2**30
"""What is kept at most [bytes]."""
_FREE: Final[int | None] = getattr(mmap, "MADV_FREE", None)
_HUGE: Final[int | None] = getattr(mmap, "MADV_HUGEPAGE", None)


class _BufferPool:
    """Pieces of memory that nobody uses, newest last."""

    def __init__(self) -> None:
        # What is given comes from the collector, in whichever thread and whatever that thread holds: it never waits.
        self._returned: deque[mmap.mmap] = deque()
        self._pieces: list[mmap.mmap] = []
        self.reset_after_fork()

    def reset_after_fork(self) -> None:
        """Begin with a free lock, as a process must that was forked while another thread held it."""
        self._lock = threading.Lock()

    def acquire(self, size: int) -> mmap.mmap:
        """Return a piece of this size, not cleared."""
        with self._lock:
            self._keep_returned()
            for number in reversed(range(len(self._pieces))):
                if len(self._pieces[number]) == size:
                    return self._pieces.pop(number)
        made = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        if _HUGE is not None:
            made.madvise(_HUGE)
        return made

    def release(self, piece: mmap.mmap) -> None:
        """Keep a piece; the oldest go where that would be too much."""
        if _FREE is not None:
            piece.madvise(_FREE)
        self._returned.append(piece)
        if self._lock.acquire(blocking=False):
            try:
                self._keep_returned()
            finally:
                self._lock.release()

    @property
    def sizes(self) -> tuple[int, ...]:
        """Sizes of what is kept now, oldest first [bytes]."""
        with self._lock:
            self._keep_returned()
            return tuple(map(len, self._pieces))

    def clear(self) -> None:
        """Keep nothing."""
        with self._lock:
            self._returned.clear()
            self._pieces.clear()

    def _keep_returned(self) -> None:
        while self._returned:
            self._pieces.append(self._returned.popleft())
        while sum(map(len, self._pieces)) > MAX_BYTES:
            del self._pieces[0]


BUFFER_POOL: Final = _BufferPool()
"""Of this process; pages are private, so a child that is forked writes to its own."""
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=BUFFER_POOL.reset_after_fork)


def allocate(shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Return an array whose numbers are not set, as `numpy.empty` does.

    When the last array that looks at its memory is gone, the memory is kept for the next of its size.
    """
    size = 8 * int(np.prod(shape, dtype=np.int64))
    if size < LARGE_BYTES or _FREE is None:
        return np.empty(shape)
    piece = BUFFER_POOL.acquire(size)
    whole = np.frombuffer(piece, dtype=np.float64)
    # Views have this very array as their base, so it lives as long as they do.
    weakref.finalize(whole, BUFFER_POOL.release, piece).atexit = False
    return whole.reshape(shape)
