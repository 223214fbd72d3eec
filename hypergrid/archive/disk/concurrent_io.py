"""Batches of concurrent Zarr requests; sequential ones pay an event-loop round trip each."""

import asyncio
import itertools
import json
from collections.abc import Awaitable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import copy
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final, TypeVar

import icechunk
import numpy as np
import zarr
from numpy.typing import NDArray
from zarr.abc.codec import BytesBytesCodec
from zarr.core.buffer import default_buffer_prototype
from zarr.core.group import GroupMetadata
from zarr.core.metadata import ArrayV3Metadata
from zarr.core.sync import sync
from zarr.errors import NodeNotFoundError
from zarr.storage import MemoryStore, StorePath

from hypergrid.core.errors import DamagedArchive
from hypergrid.core.lru_cache import LruCache

Answer = TypeVar("Answer")
_DOCUMENT: Final = "zarr.json"
"""File of the metadata of a node."""


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


def open_root(session: icechunk.Session) -> zarr.Group:
    """Open the root group of a session, writable if the session is."""
    root = sync(_open_node(StorePath(session.store)))
    assert isinstance(root, zarr.AsyncGroup)
    return zarr.Group(root)


def open_group(parent: zarr.Group, path: str) -> zarr.Group:
    (group,) = open_nodes(parent, [path])
    assert isinstance(group, zarr.Group)
    return group


def open_array(parent: zarr.Group, path: str) -> zarr.Array[Any]:
    (array,) = open_nodes(parent, [path])
    assert isinstance(array, zarr.Array)
    return array


def open_nodes(group: zarr.Group, paths: Sequence[str]) -> list[zarr.Group | zarr.Array[Any]]:
    """Open groups and arrays by their paths below a group.

    Raises
    ------
    zarr.errors.NodeNotFoundError
        One of them does not exist.
    """
    prefix = f"{group.path}/" if group.path else ""
    nodes = _run_concurrently([_open_node(StorePath(group.store, prefix + path)) for path in paths])
    return [zarr.Group(node) if isinstance(node, zarr.AsyncGroup) else zarr.Array(node) for node in nodes]


async def _open_node(path: StorePath) -> zarr.AsyncGroup | zarr.AsyncArray[Any]:
    # `zarr.open` takes twice as long: it parses the same document each time.
    document = await (path / _DOCUMENT).get()
    if document is None:
        raise NodeNotFoundError(f"the archive has no node {repr(path.path) if path.path else 'at its root'}")
    content = document.to_bytes()
    group = json.loads(content)
    if group["node_type"] == "group":
        return zarr.AsyncGroup(GroupMetadata.from_dict(group), path)
    array = copy(_parse_array(content))
    # Zarr changes attributes in place, and replaces all else.
    object.__setattr__(array, "attributes", dict(array.attributes))
    return zarr.AsyncArray(array, path)


@lru_cache(maxsize=1024)
def _parse_array(document: bytes) -> ArrayV3Metadata:
    return ArrayV3Metadata.from_dict(json.loads(document))


@dataclass(frozen=True)
class EmptyArray:
    """An array to create, which holds its fill value everywhere."""

    dtype: str
    shape: tuple[int, ...]
    chunks: tuple[int, ...]
    codecs: tuple[BytesBytesCodec, ...]
    """Of each chunk's bytes."""
    fill_value: float = 0
    dimension_names: tuple[str, ...] | None = None
    attributes: Mapping[str, Any] = field(default_factory=dict)

    def encode_document(self) -> bytes:
        """Return the metadata document that Zarr writes for it."""
        # Not the array itself: a fill value of NaN differs from itself.
        key = repr(self)
        document = _DOCUMENTS.peek(key)
        if document is None:
            document = self._make_document()
            _DOCUMENTS.put(key, document, len(document))
        return document

    def _make_document(self) -> bytes:
        store = MemoryStore()
        zarr.create_array(
            store, dtype=self.dtype, shape=self.shape, chunks=self.chunks, compressors=self.codecs,
            fill_value=self.fill_value, dimension_names=self.dimension_names,
            attributes=dict(self.attributes),
        )  # fmt: skip
        document = sync(store.get(_DOCUMENT, default_buffer_prototype()))
        assert document is not None
        return document.to_bytes()


_DOCUMENTS: Final[LruCache[str, bytes]] = LruCache(1 << 20)
"""Documents of empty arrays; a variable has five kinds, which differ by unit and by numbers of slices and series."""
Node = Mapping[str, Any] | EmptyArray
"""A group to create, given by its attributes, or an array."""


def create_nodes(parent: zarr.Group, nodes: Mapping[str, Node]) -> None:
    """Create groups and arrays, by their paths below a group, where none exists yet but the groups above them."""
    # `zarr.create_array` would take six times as long, as it also looks for every group above each array.
    prototype = default_buffer_prototype()
    requests = []
    for path, node in nodes.items():
        if isinstance(node, EmptyArray):
            document = prototype.buffer.from_bytes(node.encode_document())
        else:
            document = GroupMetadata(attributes=dict(node)).to_buffer_dict(prototype)[_DOCUMENT]
        requests.append(parent.store.set("/".join(filter(None, (parent.path, path, _DOCUMENT))), document))
    _run_concurrently(requests)


def place_nodes(path: str, nodes: Mapping[str, Node]) -> dict[str, Node]:
    """Prefix the paths of nodes with that of their group, which is "" itself."""
    return {f"{path}/{name}" if name else path: node for name, node in nodes.items()}


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
