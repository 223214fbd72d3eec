"""Results that a process keeps for whoever asks the same again, in bounded memory.

A result depends on the question and on the content of what it reads, which the surface's token and the snapshot name;
so one that is kept is never stale. Its arrays are read-only, and each who asks gets a dataset of their own around them.
"""

import os
import threading
from collections import OrderedDict
from dataclasses import dataclass

import xarray as xr

from hypergrid.settings import read_settings


@dataclass(frozen=True)
class KeptStatistics:
    """What the cache did since it was made."""

    hits: int
    misses: int
    evictions: int
    entries: int
    held_bytes: int
    allowed_bytes: int


class KeptResults:
    """Results by key, the least recently used dropped beyond a bound; safe between threads.

    Parameters
    ----------
    allowed_bytes
        What all results may take together [bytes]; the setting `kept_bytes` of the environment where absent.
    """

    def __init__(self, allowed_bytes: int | None = None) -> None:
        self._given_bytes = allowed_bytes
        self._results: OrderedDict[str, xr.Dataset] = OrderedDict()
        self._lock = threading.Lock()
        self._held_bytes = self._hits = self._misses = self._evictions = 0

    @property
    def allowed_bytes(self) -> int:
        """What all results may take together [bytes]."""
        return read_settings().kept_bytes if self._given_bytes is None else self._given_bytes

    def get(self, key: str) -> xr.Dataset | None:
        """Return the result of a key where it is kept: a dataset of the caller's own, whose arrays are read-only."""
        with self._lock:
            found = self._results.get(key)
            if found is None:
                self._misses += 1
                return None
            self._hits += 1
            self._results.move_to_end(key)
            return _own(found)

    def keep(self, key: str, result: xr.Dataset) -> xr.Dataset:
        """Keep a result, whose arrays nobody may write to from now on, and return it as `get` does.

        One that takes more than all may together is returned as it is, and not kept.
        """
        allowed = self.allowed_bytes
        size = _held(result)
        if size > allowed:
            return result
        for variable in result.variables.values():
            # Indexes are immutable as they are.
            if isinstance(variable, xr.Variable) and not isinstance(variable, xr.IndexVariable):
                variable.to_numpy().setflags(write=False)
        with self._lock:
            self._drop(key)
            self._results[key] = _own(result)
            self._held_bytes += size
            while self._held_bytes > allowed:
                self._drop(next(iter(self._results)))
                self._evictions += 1
        return _own(result)

    def statistics(self) -> KeptStatistics:
        """Return what the cache did, and what it holds."""
        allowed = self.allowed_bytes
        with self._lock:
            return KeptStatistics(
                self._hits, self._misses, self._evictions, len(self._results), self._held_bytes, allowed
            )

    def clear(self) -> None:
        """Drop everything, as for a first query."""
        with self._lock:
            self._results.clear()
            self._held_bytes = 0

    def start_anew(self) -> None:
        """Forget who holds what, in a forked child: another thread of the parent may have held the lock."""
        self._lock = threading.Lock()
        self.clear()

    def _drop(self, key: str) -> None:
        dropped = self._results.pop(key, None)
        if dropped is not None:
            self._held_bytes -= _held(dropped)


KEPT = KeptResults()
"""The results of this process."""

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=KEPT.start_anew)


def _own(result: xr.Dataset) -> xr.Dataset:
    """Return a dataset around the same arrays, whose variables and attributes are its own to change."""
    own = result.copy(deep=False)
    own.attrs = dict(result.attrs)
    for name in own.variables:
        own[name].attrs = dict(result[name].attrs)
    return own


def _held(result: xr.Dataset) -> int:
    """Return what the arrays of a result take [bytes]; a column that stands for all places takes a column."""
    total = 0
    for variable in result.variables.values():
        array = variable.to_numpy()
        repeated = any(step == 0 and length > 1 for step, length in zip(array.strides, array.shape, strict=True))
        base = array.base
        total += base.nbytes if repeated and base is not None and base.nbytes < array.nbytes else array.nbytes
    return int(total)
