"""What a process keeps for whoever asks again, in bounded memory: the least recently used goes first."""

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
    """What a store did since it was made, and what it holds."""

    hits: int
    misses: int
    evictions: int
    entries: int
    held_bytes: int
    allowed_bytes: int


class LruCache(Generic[Key, Held]):
    """Things by key, the least recently used dropped beyond a bound; safe between threads, empty after a fork.

    Parameters
    ----------
    allowed_bytes
        What all may take together [bytes]; absent where a subclass says so.
    """

    def __init__(self, allowed_bytes: int | None = None) -> None:
        self._allowed_bytes = allowed_bytes
        self._entries: OrderedDict[Key, tuple[Held, int]] = OrderedDict()
        self._lock = threading.Lock()
        self._held_bytes = self._hits = self._misses = self._evictions = 0
        _CACHES.add(self)

    @property
    def allowed_bytes(self) -> int:
        """What all may take together [bytes]."""
        return self._allowed_bytes or 0

    def peek(self, key: Key) -> Held | None:
        """Return what a key stands for where it is kept, which counts as a use."""
        with self._lock:
            entry = self._entries.get(key)
            if entry is None:
                self._misses += 1
                return None
            self._hits += 1
            self._entries.move_to_end(key)
            return entry[0]

    def put(self, key: Key, held: Held, size: int) -> None:
        """Keep something that takes `size` bytes instead of what the key stood for; drop what is beyond the bound."""
        allowed = self.allowed_bytes
        with self._lock:
            self._held_bytes += size - self._entries.pop(key, (held, 0))[1]
            self._entries[key] = held, size
            while self._held_bytes > allowed:
                _, (_, dropped) = self._entries.popitem(last=False)
                self._held_bytes -= dropped
                self._evictions += 1

    def statistics(self) -> CacheStatistics:
        """Return what the store did, and what it holds."""
        allowed = self.allowed_bytes
        with self._lock:
            return CacheStatistics(
                self._hits, self._misses, self._evictions, len(self._entries), self._held_bytes, allowed
            )  # fmt: skip

    def clear(self) -> None:
        """Drop everything, as for a first query."""
        with self._lock:
            self._entries.clear()
            self._held_bytes = 0

    def reset_after_fork(self) -> None:
        """Forget who holds what, in a forked child: another thread of the parent may have held the lock."""
        self._lock = threading.Lock()
        self.clear()


_CACHES: "weakref.WeakSet[LruCache[Any, Any]]" = weakref.WeakSet()


def _reset_after_fork() -> None:
    for store in list(_CACHES):
        store.reset_after_fork()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_after_fork)
