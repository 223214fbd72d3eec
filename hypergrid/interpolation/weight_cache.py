"""Cache of kriging intermediates in bounded memory: inverted systems, right-hand sides, weights, fits.

All except fits depend on the positions of stations and targets, their covariates and the variogram, never on values, so
a second query over the same network (the next slice of a standing query, another time of a page) reuses them. A fitted
variogram is keyed by the values, for another place of the same surface.
"""

import hashlib
from collections.abc import Callable
from typing import Protocol, TypeVar, cast

import numpy as np

from hypergrid.core.lru_cache import LruCache

ALLOWED_BYTES = 256 * 2**20
"""Memory budget of the cache [bytes]; the least recently used entries are evicted first."""


class Sized(Protocol):
    """An array, or a record of several."""

    @property
    def nbytes(self) -> int:
        """Memory used [bytes]."""


Held = TypeVar("Held", bound=Sized)


class WeightCache(LruCache[bytes, Sized]):
    """LRU cache of arrays, and records of arrays, by the key of their inputs."""

    def __init__(self, allowed_bytes: int = ALLOWED_BYTES) -> None:
        super().__init__(allowed_bytes)

    def takes(self, job_bytes: int) -> bool:
        """Check whether all entries of a job may be cached."""
        # A large job would evict the entries that small ones reuse.
        return job_bytes <= self.allowed_bytes // 4

    def get(self, key: bytes, make: Callable[[], Held], *, job_bytes: int = 0) -> Held:
        """Return the cached array for a key, computing it on a miss; read-only.

        Parameters
        ----------
        key
            Identifies the entry among entries of all kinds.
        make
            Computes the entry.
        job_bytes
            Size of the entry together with all others that its job uses at the same time [bytes].
        """
        entry = self.peek(key)
        if entry is not None:
            return cast(Held, entry)
        # Computed without the lock: two threads may compute the same entry, which costs time but is correct.
        made = make()
        if isinstance(made, np.ndarray):
            made.setflags(write=False)
        if self.takes(max(made.nbytes, job_bytes)):
            self.put(key, made, made.nbytes)
        return made


WEIGHTS = WeightCache()
"""The cache of this process."""


def key_of(*parts: object) -> bytes:
    """Hash arrays, and other objects by their `repr`, into a key."""
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        if isinstance(part, np.ndarray):
            digest.update(repr(part.shape).encode())
            digest.update(np.ascontiguousarray(part).reshape(-1).view(np.uint8).data)
        else:
            digest.update(repr(part).encode())
        digest.update(b"\0")
    return digest.digest()
