"""Results that a process keeps for whoever asks the same again, in bounded memory.

A result depends on the question and on the content of what it reads, which the surface's token and the snapshot name;
so one that is kept is never stale. Its arrays are read-only, and each who asks gets a dataset of their own around them.
"""

import xarray as xr

from hypergrid.core.lru_cache import LruCache
from hypergrid.core.settings import read_settings


class DatasetCache(LruCache[str, xr.Dataset]):
    """Results by key; all may take what the setting `kept_bytes` of the environment says where nothing is given."""

    @property
    def allowed_bytes(self) -> int:
        """What all results may take together [bytes]."""
        return read_settings().kept_bytes if self._allowed_bytes is None else self._allowed_bytes

    def get(self, key: str) -> xr.Dataset | None:
        """Return the result of a key where it is kept: a dataset of the caller's own, whose arrays are read-only."""
        dataset = self.peek(key)
        return None if dataset is None else _copy_dataset(dataset)

    def keep(self, key: str, result: xr.Dataset) -> xr.Dataset:
        """Keep a result, whose arrays nobody may write to from now on, and return it as `get` does.

        One that takes more than all may together is returned as it is, and not kept.
        """
        size = _count_bytes(result)
        if size > self.allowed_bytes:
            return result
        for variable in result.variables.values():
            # Indexes are immutable as they are.
            if isinstance(variable, xr.Variable) and not isinstance(variable, xr.IndexVariable):
                variable.to_numpy().setflags(write=False)
        self.put(key, _copy_dataset(result), size)
        return _copy_dataset(result)


RESULT_CACHE = DatasetCache()
"""The results of this process."""


def _copy_dataset(result: xr.Dataset) -> xr.Dataset:
    """Return a dataset around the same arrays, whose variables and attributes are its own to change."""
    own = result.copy(deep=False)
    own.attrs = dict(result.attrs)
    for name in own.variables:
        own[name].attrs = dict(result[name].attrs)
    return own


def _count_bytes(result: xr.Dataset) -> int:
    """Return what the arrays of a result take [bytes]; a column that stands for all places takes a column."""
    total = 0
    for variable in result.variables.values():
        array = variable.to_numpy()
        repeated = any(step == 0 and length > 1 for step, length in zip(array.strides, array.shape, strict=True))
        base = array.base
        total += base.nbytes if repeated and base is not None and base.nbytes < array.nbytes else array.nbytes
    return int(total)
