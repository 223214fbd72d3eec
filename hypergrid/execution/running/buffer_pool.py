"""Buffer pool: reuse the memory of large results that are no longer referenced."""

import mmap
import os
import threading
import weakref
from collections import deque
from typing import Final

import numpy as np
from numpy.typing import NDArray

# The first touch of new memory takes time: the system clears it (17 ms for 320 MB), and a virtual machine whose host
# took its free memory back fetches it again (0.3 to 0.6 s: more than to krige 1,000 slices of 200 x 200 cells). So the
# memory of a large result is kept for the next one. The system may reclaim it when memory is short (MADV_FREE), so
# keeping it takes nothing from other processes. Smaller pieces are kept by the allocator itself.
LARGE_BYTES: Final = 32 * 2**20
"""Size from which the memory of a result is kept [bytes]."""
MAX_BYTES: Final = 2**30
"""Maximum memory that is kept [bytes]."""
_FREE: Final[int | None] = getattr(mmap, "MADV_FREE", None)
_HUGE: Final[int | None] = getattr(mmap, "MADV_HUGEPAGE", None)


class _BufferPool:
    """Unused pieces of memory, newest last."""

    def __init__(self) -> None:
        # The garbage collector releases pieces in any thread, whatever locks that thread holds, so release never waits.
        self._returned: deque[mmap.mmap] = deque()
        self._pieces: list[mmap.mmap] = []
        self.reset_after_fork()

    def reset_after_fork(self) -> None:
        """Replace the lock, which another thread may have held when this process was forked."""
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
        """Keep a piece, and evict the oldest ones above `MAX_BYTES`."""
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
        """Sizes of the pieces kept, oldest first [bytes]."""
        with self._lock:
            self._keep_returned()
            return tuple(map(len, self._pieces))

    def clear(self) -> None:
        with self._lock:
            self._returned.clear()
            self._pieces.clear()

    def _keep_returned(self) -> None:
        while self._returned:
            self._pieces.append(self._returned.popleft())
        while sum(map(len, self._pieces)) > MAX_BYTES:
            del self._pieces[0]


BUFFER_POOL: Final = _BufferPool()
"""Pool of this process; pages are private, so a forked child writes to its own."""
if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=BUFFER_POOL.reset_after_fork)


def allocate(shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Allocate an uninitialised array, like `numpy.empty`.

    Once the last array that refers to its memory is gone, the memory is kept for the next of its size.
    """
    size = 8 * int(np.prod(shape, dtype=np.int64))
    if size < LARGE_BYTES or _FREE is None:
        return np.empty(shape)
    piece = BUFFER_POOL.acquire(size)
    whole = np.frombuffer(piece, dtype=np.float64)
    # Views have this very array as their base, so it lives as long as they do.
    weakref.finalize(whole, BUFFER_POOL.release, piece).atexit = False
    return whole.reshape(shape)
