"""What kriging made once and may need again, in bounded memory: inverted systems, right-hand sides, weights, fits.

All but fits depend on where the stations and targets are, on their covariates and on the variogram, never on values, so
that a second query over the same network (the next slice of a standing query, another time of a page) starts with them.
A variogram that was fitted is kept by the values, for another place of the same surface.
"""

import hashlib
from collections.abc import Callable
from typing import Protocol, TypeVar, cast

import numpy as np

from hypergrid.core.lru_cache import LruCache

ALLOWED_BYTES = 256 * 2**20
"""What is kept at most [bytes]; the least recently used goes first."""


class Sized(Protocol):
    """An array, or several in a record."""

    @property
    def nbytes(self) -> int:
        """What it takes [bytes]."""


Held = TypeVar("Held", bound=Sized)


class WeightCache(LruCache[bytes, Sized]):
    """Arrays, and records of them, by what they were made of."""

    def __init__(self, allowed_bytes: int = ALLOWED_BYTES) -> None:
        super().__init__(allowed_bytes)

    def takes(self, job_bytes: int) -> bool:
        """Return whether all that a job keeps may be kept: a large one would drop what small ones come back for."""
        return job_bytes <= self.allowed_bytes // 4

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
        entry = self.peek(key)
        if entry is not None:
            return cast(Held, entry)
        # Made without the lock: two threads may make the same, which costs time and changes nothing.
        made = make()
        if isinstance(made, np.ndarray):
            made.setflags(write=False)
        if self.takes(max(made.nbytes, job_bytes)):
            self.put(key, made, made.nbytes)
        return made


WEIGHTS = WeightCache()
"""The cache of this process."""


def key_of(*parts: object) -> bytes:
    """Return a key of arrays and of whatever else has a `repr` that tells it apart."""
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        if isinstance(part, np.ndarray):
            digest.update(repr(part.shape).encode())
            digest.update(np.ascontiguousarray(part).reshape(-1).view(np.uint8).data)
        else:
            digest.update(repr(part).encode())
        digest.update(b"\0")
    return digest.digest()
