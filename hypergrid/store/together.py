"""Several requests to a store at once: one by one, each waits for Zarr's own thread to wake and to answer."""

import asyncio
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import zarr
import zarr.api.asynchronous
from numpy.typing import NDArray
from zarr.core.common import AccessModeLiteral
from zarr.core.sync import sync

Answer = TypeVar("Answer")


def nodes(group: zarr.Group, paths: Sequence[str]) -> list[zarr.Group | zarr.Array[Any]]:
    """Return the nodes of some paths below a group."""
    mode: AccessModeLiteral = "r" if group.store.read_only else "r+"
    whole = [f"{group.path}/{path}" for path in paths]
    found = _together([zarr.api.asynchronous.open(store=group.store, path=path, mode=mode) for path in whole])
    return [zarr.Group(node) if isinstance(node, zarr.AsyncGroup) else zarr.Array(node) for node in found]


def create_arrays(group: zarr.Group, arrays: Mapping[str, Mapping[str, Any]]) -> None:
    """Make the arrays of some names below a group; each has the arguments of `zarr.create_array`."""
    prefix = f"{group.path}/" if group.path else ""
    make = zarr.api.asynchronous.create_array
    _together([make(group.store, name=prefix + name, **asked) for name, asked in arrays.items()])


def blocks(arrays: Sequence[zarr.Array[Any]], *block: slice) -> list[NDArray[Any]]:
    """Return the same block of several arrays, a slice a dimension."""
    found = _together([array.async_array.getitem(block) for array in arrays])
    return [np.asarray(block) for block in found]


def extend(arrays: Sequence[zarr.Array[Any]], rows: Sequence[NDArray[Any]]) -> None:
    """Add rows at the end of arrays of one dimension."""

    async def added(array: zarr.AsyncArray[Any], rows: NDArray[Any]) -> None:
        stored = int(array.shape[0])
        await array.resize((stored + len(rows),))
        await array.setitem(slice(stored, None), rows)

    pairs = zip(arrays, rows, strict=True)
    _together([added(array.async_array, rows) for array, rows in pairs if len(rows)])


def _together(requests: Sequence[Awaitable[Answer]]) -> list[Answer]:
    async def answers() -> list[Answer]:
        return await asyncio.gather(*requests)

    return sync(answers())
