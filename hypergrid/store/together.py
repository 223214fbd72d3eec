"""Several requests to a store at once: one by one, each waits for Zarr's own thread to wake and to answer."""

import asyncio
from collections.abc import Awaitable, Sequence
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


def blocks(arrays: Sequence[zarr.Array[Any]], *block: slice) -> list[NDArray[Any]]:
    """Return the same block of several arrays, a slice a dimension."""
    found = _together([array.async_array.getitem(block) for array in arrays])
    return [np.asarray(block) for block in found]


def _together(requests: Sequence[Awaitable[Answer]]) -> list[Answer]:
    async def answers() -> list[Answer]:
        return await asyncio.gather(*requests)

    return sync(answers())
