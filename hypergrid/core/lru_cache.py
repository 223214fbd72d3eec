"""Process-wide LRU caches with a memory budget."""

import os
import threading
import weakref
from collections import OrderedDict
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

Key = TypeVar("Key")
Held = TypeVar("Held")


@dataclass(frozen=True)
class CacheStatistics:
    """Counters of a cache since its creation, and its current content."""

    hits: int
    misses: int
    evictions: int
    entries: int
    held_bytes: int
    allowed_bytes: int


class LruCache(Generic[Key, Held]):
    """LRU cache with a budget of memory, or of entries if each is put with size 1; thread-safe, and empty after a fork.

    Parameters
    ----------
    allowed_bytes
        Memory budget [bytes]; absent if a subclass overrides the property.
    """

    def __init__(self, allowed_bytes: int | None = None) -> None:
        self._allowed_bytes = allowed_bytes
        self._entries: OrderedDict[Key, tuple[Held, int]] = OrderedDict()
        self._lock = threading.Lock()
        self._held_bytes = self._hits = self._misses = self._evictions = 0
        _CACHES.add(self)

    @property
    def allowed_bytes(self) -> int:
        return self._allowed_bytes or 0

    def peek(self, key: Key) -> Held | None:
        """Return the cached value of a key, or None; a hit counts as a use."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                self._misses += 1
                return None
            self._hits += 1
            self._entries.move_to_end(key)
            return entry[0]

    def put(self, key: Key, held: Held, size: int) -> None:
        """Insert or replace a value of `size` bytes; evict the least recently used beyond the budget."""
        allowed = self.allowed_bytes
        with self._lock:
            self._held_bytes += size - self._entries.pop(key, (held, 0))[1]
            self._entries[key] = held, size
            while self._held_bytes > allowed:
                _, (_, dropped) = self._entries.popitem(last=False)
                self._held_bytes -= dropped
                self._evictions += 1

    def drop(self, key: Key) -> None:
        with self._lock:
            self._held_bytes -= self._entries.pop(key, (None, 0))[1]

    def statistics(self) -> CacheStatistics:
        allowed = self.allowed_bytes
        with self._lock:
            return CacheStatistics(
                self._hits, self._misses, self._evictions, len(self._entries), self._held_bytes, allowed
            )  # fmt: skip

    def clear(self) -> None:
        """Drop all entries; counters are kept."""
        with self._lock:
            self._entries.clear()
            self._held_bytes = 0

    def reset_after_fork(self) -> None:
        """Replace the lock and drop all entries, in a forked child."""
        # Another thread of the parent may have held the lock during the fork.
        self._lock = threading.Lock()
        self.clear()


# Weak references do not keep unused caches alive.
_CACHES: "weakref.WeakSet[LruCache[Any, Any]]" = weakref.WeakSet()


def _reset_after_fork() -> None:
    for store in list(_CACHES):
        store.reset_after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_after_fork)
