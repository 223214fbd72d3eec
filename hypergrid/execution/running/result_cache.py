"""Memory of results: a cache of datasets, and a pool that reuses the memory of large arrays.

A result depends on the query and on the content that it reads, which the surface's token and the snapshot identify, so
a cached result is never stale. Its arrays are read-only, and each caller gets its own dataset around them.
"""

from __future__ import annotations

import mmap
import os
import threading
import weakref
from collections import deque
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hypergrid.core.lazy_libraries import xr
from hypergrid.core.lru_cache import LruCache
from hypergrid.core.settings import read_settings


class DatasetCache(LruCache[str, "xr.Dataset"]):
    """Datasets by key; the memory limit defaults to the setting `kept_bytes` of the environment."""

    @property
    def allowed_bytes(self) -> int:
        return read_settings().kept_bytes if self._allowed_bytes is None else self._allowed_bytes

    def get(self, key: str) -> xr.Dataset | None:
        """Return the cached result of a key, if any, as the caller's own dataset."""
        dataset = self.peek(key)
        return None if dataset is None else _copy_dataset(dataset)

    def keep(self, key: str, result: xr.Dataset) -> xr.Dataset:
        """Cache a result, make its arrays read-only, and return it as `get` does.

        A result above the memory limit is returned unchanged, and not cached.
        """
        size = _count_bytes(result)
        if size > self.allowed_bytes:
            return result
        for variable in result.variables.values():
            # Indexes are immutable already.
            if isinstance(variable, xr.Variable) and not isinstance(variable, xr.IndexVariable):
                variable.to_numpy().setflags(write=False)
        self.put(key, _copy_dataset(result), size)
        return _copy_dataset(result)


RESULT_CACHE = DatasetCache()
"""Result cache of this process."""


def _copy_dataset(result: xr.Dataset) -> xr.Dataset:
    """Copy a dataset: arrays are shared, variables and attributes can be changed."""
    own = result.copy(deep=False)
    own.attrs = dict(result.attrs)
    for name in own.variables:
        own[name].attrs = dict(result[name].attrs)
    return own


def _count_bytes(result: xr.Dataset) -> int:
    """Return the memory of a result's arrays [bytes]; a broadcast column counts once."""
    total = 0
    for variable in result.variables.values():
        array = variable.to_numpy()
        repeated = any(step == 0 and length > 1 for step, length in zip(array.strides, array.shape, strict=True))
        base = array.base
        total += base.nbytes if repeated and base is not None and base.nbytes < array.nbytes else array.nbytes
    return int(total)


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
