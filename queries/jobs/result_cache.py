"""Finished results, kept while they fit; the oldest leaves first."""

from collections import OrderedDict
from dataclasses import dataclass

import xarray as xr


@dataclass(frozen=True)
class ResultCacheStatistics:
    """What a shelf holds."""

    results: int
    held_bytes: int
    limit_bytes: int
    evicted: int
    """Results dropped since the start."""


class ResultCache:
    """Keeps results by key within a count and a size; not locked, its owner does that.

    Parameters
    ----------
    limit
        Most results to keep.
    limit_bytes
        Most memory for all of them [bytes]. A larger one is kept until the next comes: its reader is waiting.
    """

    def __init__(self, *, limit: int, limit_bytes: int) -> None:
        self._limit = limit
        self._limit_bytes = limit_bytes
        self._kept: OrderedDict[str, xr.Dataset] = OrderedDict()
        self._evicted = 0

    def put(self, key: str, dataset: xr.Dataset) -> list[str]:
        """Keep a result; return the keys of those that left for it, oldest first."""
        self._kept[key] = dataset
        left = []
        while len(self._kept) > 1 and (len(self._kept) > self._limit or self._bytes() > self._limit_bytes):
            oldest, _ = self._kept.popitem(last=False)
            left.append(oldest)
        self._evicted += len(left)
        return left

    def get(self, key: str) -> xr.Dataset | None:
        """Return a result, None where it is not kept."""
        return self._kept.get(key)

    def drop(self, key: str) -> None:
        """Forget a result that nobody can ask for any more."""
        self._kept.pop(key, None)

    def statistics(self) -> ResultCacheStatistics:
        """Return what is held now."""
        return ResultCacheStatistics(len(self._kept), self._bytes(), self._limit_bytes, self._evicted)

    def _bytes(self) -> int:
        return sum(dataset.nbytes for dataset in self._kept.values())
