"""Batches of concurrent Zarr requests; sequential ones pay an event-loop round trip each."""

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
    """Part of the array that it holds, one slice per dimension."""

    def __str__(self) -> str:
        return f"{self.array}[{', '.join(f'{part.start}:{part.stop}' for part in self.block)}]"


class DamagedChunks(DamagedArchive):
    """Error that lists chunks that cannot be read."""

    def __init__(self, chunks: Sequence[DamagedChunk]) -> None:
        super().__init__(f"the checksums of chunks differ, or they are cut: {', '.join(map(str, chunks))}")
        self.chunks = tuple(chunks)


@contextmanager
def name_damaged_chunks(arrays: Sequence[zarr.Array[Any]], *block: slice) -> Iterator[None]:
    """Translate Zarr errors on a block of arrays into `DamagedChunks`."""
    try:
        yield
    except (ValueError, RuntimeError) as error:
        damaged_chunks = [chunk for array in arrays for chunk in _find_damaged(array, block)]
        if not damaged_chunks:
            raise
        raise DamagedChunks(damaged_chunks) from error


def _find_damaged(array: zarr.Array[Any], block: tuple[slice, ...]) -> Iterator[DamagedChunk]:
    """Yield the unreadable chunks of a block."""
    ranges = []
    whole = (slice(None),) * (array.ndim - len(block))
    for size, length, part in zip(array.chunks, array.shape, (*block, *whole), strict=True):
        first, stop, _ = part.indices(length)
        starts = range(first // size * size, stop, size)
        ranges.append([slice(start, min(start + size, length)) for start in starts])
    # Zarr's error does not identify the chunk, so each one is tried.
    for chunk in itertools.product(*ranges):
        try:
            array[chunk]
        except (ValueError, RuntimeError):
            yield DamagedChunk(array.path, chunk)


def list_stored_chunks(array: zarr.Array[Any]) -> list[tuple[int, ...]]:
    """List the chunks of an array that were ever written, sorted by index."""
    store = array.store
    assert isinstance(store, icechunk.IcechunkStore)

    async def places() -> list[tuple[int, ...]]:
        return [tuple(coordinate) async for coordinate in store.session.chunk_coordinates(f"/{array.path}")]

    return sorted(sync(places()))


def open_group(parent: zarr.Group, path: str) -> zarr.Group:
    group = parent[path]
    assert isinstance(group, zarr.Group)
    return group


def open_array(parent: zarr.Group, path: str) -> zarr.Array[Any]:
    array = parent[path]
    assert isinstance(array, zarr.Array)
    return array


def open_nodes(group: zarr.Group, paths: Sequence[str]) -> list[zarr.Group | zarr.Array[Any]]:
    mode: AccessModeLiteral = "r" if group.store.read_only else "r+"
    opened_nodes = _run_concurrently(
        [zarr.api.asynchronous.open(store=group.store, path=f"{group.path}/{path}", mode=mode) for path in paths]
    )
    return [zarr.Group(node) if isinstance(node, zarr.AsyncGroup) else zarr.Array(node) for node in opened_nodes]


def create_arrays(group: zarr.Group, arrays: Mapping[str, Mapping[str, Any]]) -> None:
    """Create arrays below a group; each value holds the arguments of `zarr.create_array`."""
    prefix = f"{group.path}/" if group.path else ""
    _run_concurrently(
        [zarr.api.asynchronous.create_array(group.store, name=prefix + name, **asked) for name, asked in arrays.items()]
    )


def read_blocks(arrays: Sequence[zarr.Array[Any]], *block: slice) -> list[NDArray[Any]]:
    """Read the same block of several arrays, one slice per dimension."""
    with name_damaged_chunks(arrays, *block):
        contents = _run_concurrently([array.async_array.getitem(block) for array in arrays])
    return [np.asarray(block) for block in contents]


def write_blocks(arrays: Sequence[zarr.Array[Any]], contents: Sequence[NDArray[Any]], *block: slice) -> None:
    """Write the same block of several arrays, one slice per dimension."""
    with name_damaged_chunks(arrays, *block):
        _run_concurrently(
            [array.async_array.setitem(block, content) for array, content in zip(arrays, contents, strict=True)]
        )


def extend_arrays(arrays: Sequence[zarr.Array[Any]], rows: Sequence[NDArray[Any]]) -> None:
    """Append rows to one-dimensional arrays."""

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
