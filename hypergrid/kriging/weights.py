"""What kriging made once and may need again, in bounded memory: inverted systems, right-hand sides, weights.

They depend on where the stations and targets are, on their covariates and on the variogram, never on values, so that a
second query over the same network (the next slice of a standing query, another time of a page) starts with them.
"""

import hashlib
import os
import threading
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol, TypeVar, cast

import numpy as np

ALLOWED_BYTES = 256 * 2**20
"""What is kept at most [bytes]; the least recently used goes first."""


@dataclass(frozen=True)
class WeightStatistics:
    """What the cache did since it was made."""

    hits: int
    misses: int
    evictions: int
    entries: int
    held_bytes: int
    allowed_bytes: int


class Sized(Protocol):
    """An array, or several in a record."""

    @property
    def nbytes(self) -> int:
        """What it takes [bytes]."""


Held = TypeVar("Held", bound=Sized)


class WeightCache:
    """Arrays, and records of them, by what they were made of, the least recently used dropped beyond a bound.

    Safe between threads.
    """

    def __init__(self, allowed_bytes: int = ALLOWED_BYTES) -> None:
        self._allowed_bytes = allowed_bytes
        self._arrays: OrderedDict[bytes, Sized] = OrderedDict()
        self._lock = threading.Lock()
        self._held_bytes = self._hits = self._misses = self._evictions = 0

    def takes(self, job_bytes: int) -> bool:
        """Return whether all that a job keeps may be kept: a large one would drop what small ones come back for."""
        return job_bytes <= self._allowed_bytes // 4

    def get(self, key: bytes, make: Callable[[], Held], *, job_bytes: int = 0) -> Held:
        """Return what a key stands for, made where it is not kept; nobody may write to it.

        Parameters
        ----------
        key
            Tells it apart from all else that is kept, of whatever kind.
        make
            Makes it.
        job_bytes
            What it takes with all the other parts of a job that come and go together [bytes].
        """
        found = self.peek(key)
        if found is not None:
            return cast(Held, found)
        # Made without the lock: two threads may make the same, which costs time and changes nothing.
        made = make()
        if isinstance(made, np.ndarray):
            made.setflags(write=False)
        if not self.takes(max(made.nbytes, job_bytes)):
            return made
        with self._lock:
            if key not in self._arrays:
                self._arrays[key] = made
                self._held_bytes += made.nbytes
            while self._held_bytes > self._allowed_bytes:
                _, dropped = self._arrays.popitem(last=False)
                self._held_bytes -= dropped.nbytes
                self._evictions += 1
        return made

    def peek(self, key: bytes) -> Sized | None:
        """Return what a key stands for where it is kept."""
        with self._lock:
            found = self._arrays.get(key)
            if found is None:
                self._misses += 1
            else:
                self._hits += 1
                self._arrays.move_to_end(key)
            return found

    def statistics(self) -> WeightStatistics:
        """Return what the cache did, and what it holds."""
        with self._lock:
            return WeightStatistics(
                self._hits, self._misses, self._evictions, len(self._arrays), self._held_bytes, self._allowed_bytes
            )

    def clear(self) -> None:
        """Drop everything, as for a first query."""
        with self._lock:
            self._arrays.clear()
            self._held_bytes = 0

    def start_anew(self) -> None:
        """Forget who holds what, in a forked child: another thread of the parent may have held the lock."""
        self._lock = threading.Lock()
        self.clear()


WEIGHTS = WeightCache()
"""The cache of this process."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=WEIGHTS.start_anew)


def key_of(*parts: object) -> bytes:
    """Return a key of arrays and of whatever else has a `repr` that tells it apart."""
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        if isinstance(part, np.ndarray):
            digest.update(repr(part.shape).encode())
            digest.update(np.ascontiguousarray(part).tobytes())
        else:
            digest.update(repr(part).encode())
        digest.update(b"\0")
    return digest.digest()
