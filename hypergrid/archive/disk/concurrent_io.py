"""Several requests to a store at once: one by one, each waits for Zarr's own thread to wake and to answer."""

import asyncio
import itertools
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, TypeVar

import icechunk
import numpy as np
import zarr
import zarr.api.asynchronous
from numpy.typing import NDArray
from zarr.core.common import AccessModeLiteral
from zarr.core.sync import sync

from hypergrid.core.errors import DamagedArchive

Answer = TypeVar("Answer")


@dataclass(frozen=True)
class DamagedChunk:
    """A chunk that cannot be read."""

    array: str
    """Path of its array."""
    block: tuple[slice, ...]
    """What it holds of the array, a slice a dimension."""

    def __str__(self) -> str:
        """Name the array, and the rows."""
        return f"{self.array}[{', '.join(f'{part.start}:{part.stop}' for part in self.block)}]"


class DamagedChunks(DamagedArchive):
    """Chunks that cannot be read, each by name."""

    def __init__(self, chunks: Sequence[DamagedChunk]) -> None:
        super().__init__(f"the checksums of chunks differ, or they are cut: {', '.join(map(str, chunks))}")
        self.chunks = tuple(chunks)


@contextmanager
def name_damaged_chunks(arrays: Sequence[zarr.Array[Any]], *block: slice) -> Iterator[None]:
    """Turn what Zarr raises inside the context, where a block of arrays is read, into `DamagedChunks`."""
    try:
        yield
    except (ValueError, RuntimeError) as error:
        damaged_chunks = [chunk for array in arrays for chunk in _find_damaged(array, block)]
        if not damaged_chunks:
            raise
        raise DamagedChunks(damaged_chunks) from error


def _find_damaged(array: zarr.Array[Any], block: tuple[slice, ...]) -> Iterator[DamagedChunk]:
    """Yield the chunks of a block that cannot be read, each by itself."""
    ranges = []
    whole = (slice(None),) * (array.ndim - len(block))
    for size, length, part in zip(array.chunks, array.shape, (*block, *whole), strict=True):
        first, stop, _ = part.indices(length)
        starts = range(first // size * size, stop, size)
        ranges.append([slice(start, min(start + size, length)) for start in starts])
    for chunk in itertools.product(*ranges):
        try:
            array[chunk]
        except (ValueError, RuntimeError):
            yield DamagedChunk(array.path, chunk)


def list_stored_chunks(array: zarr.Array[Any]) -> list[tuple[int, ...]]:
    """Return the chunks of an array that were ever written, by number along each dimension, in order."""
    store = array.store
    assert isinstance(store, icechunk.IcechunkStore)

    async def places() -> list[tuple[int, ...]]:
        return [tuple(coordinate) async for coordinate in store.session.chunk_coordinates(f"/{array.path}")]

    return sorted(sync(places()))


def open_nodes(group: zarr.Group, paths: Sequence[str]) -> list[zarr.Group | zarr.Array[Any]]:
    """Return the nodes of some paths below a group."""
    mode: AccessModeLiteral = "r" if group.store.read_only else "r+"
    whole = [f"{group.path}/{path}" for path in paths]
    opened_nodes = _run_concurrently(
        [zarr.api.asynchronous.open(store=group.store, path=path, mode=mode) for path in whole]
    )
    return [zarr.Group(node) if isinstance(node, zarr.AsyncGroup) else zarr.Array(node) for node in opened_nodes]


def create_arrays(group: zarr.Group, arrays: Mapping[str, Mapping[str, Any]]) -> None:
    """Make the arrays of some names below a group; each has the arguments of `zarr.create_array`."""
    prefix = f"{group.path}/" if group.path else ""
    make = zarr.api.asynchronous.create_array
    _run_concurrently([make(group.store, name=prefix + name, **asked) for name, asked in arrays.items()])


def read_blocks(arrays: Sequence[zarr.Array[Any]], *block: slice) -> list[NDArray[Any]]:
    """Return the same block of several arrays, a slice a dimension."""
    with name_damaged_chunks(arrays, *block):
        contents = _run_concurrently([array.async_array.getitem(block) for array in arrays])
    return [np.asarray(block) for block in contents]


def extend_arrays(arrays: Sequence[zarr.Array[Any]], rows: Sequence[NDArray[Any]]) -> None:
    """Add rows at the end of arrays of one dimension."""

    async def added(array: zarr.AsyncArray[Any], rows: NDArray[Any]) -> None:
        stored = int(array.shape[0])
        await array.resize((stored + len(rows),))
        await array.setitem(slice(stored, None), rows)

    pairs = zip(arrays, rows, strict=True)
    with name_damaged_chunks(arrays):
        _run_concurrently([added(array.async_array, rows) for array, rows in pairs if len(rows)])


def _run_concurrently(requests: Sequence[Awaitable[Answer]]) -> list[Answer]:
    async def answers() -> list[Answer]:
        return await asyncio.gather(*requests)

    return sync(answers())
