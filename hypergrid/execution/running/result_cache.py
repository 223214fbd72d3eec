"""Result cache of a process, in bounded memory.

A result depends on the query and on the content that it reads, which the surface's token and the snapshot identify, so
a cached result is never stale. Its arrays are read-only, and each caller gets its own dataset around them.
"""

import xarray as xr

from hypergrid.core.lru_cache import LruCache
from hypergrid.core.settings import read_settings


class DatasetCache(LruCache[str, xr.Dataset]):
    """Datasets by key; the memory limit defaults to the setting `kept_bytes` of the environment."""

    @property
    def allowed_bytes(self) -> int:
        """Memory limit of all results together [bytes]."""
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
