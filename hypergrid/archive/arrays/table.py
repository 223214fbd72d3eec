"""Append-only tables: equally long columns in a Zarr group."""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import zarr
from numpy.typing import ArrayLike, NDArray
from zarr.codecs import BloscCodec, Crc32cCodec

from hypergrid.archive.disk.concurrent_io import (
    EmptyArray,
    Node,
    create_nodes,
    extend_arrays,
    name_damaged_chunks,
    open_group,
    open_nodes,
    place_nodes,
    read_blocks,
)

# Levels 3 and 5 save 2 and 4 % of the bytes; their times differ from level 1 by less than the noise.
CODECS: Final = (BloscCodec(cname="zstd", clevel=1, shuffle="shuffle"), Crc32cCodec())
"""Codecs of every chunk: compression, then a trailing checksum."""
CHUNK_ROWS: Final = 16_384
_CHUNK_BYTES: Final = 262_144
# Zarr has no stable type for text of any length, so text is stored as bytes and offsets.
_TEXT: Final = "text"
_END: Final = "_end"


class ColumnTable:
    """Columns of numbers or text: append-only, except for marks and flags (`set_values`).

    A text column is stored as two arrays: its UTF-8 bytes, and the end offset of each row.
    """

    def __init__(self, group: zarr.Group, opened: Mapping[str, zarr.Array[Any]] = MappingProxyType({})) -> None:
        self._group = group
        self.columns: dict[str, str] = dict(group.attrs["columns"])  # type: ignore[arg-type]
        """NumPy type of each column, or "text"."""
        self._arrays: dict[str, zarr.Array[Any]] = dict(opened)

    @classmethod
    def create(cls, parent: zarr.Group, name: str, *, columns: Mapping[str, str]) -> "ColumnTable":
        """Create an empty table; `columns` maps names to NumPy types or "text"."""
        create_nodes(parent, place_nodes(name, describe_table(columns)))
        return cls(open_group(parent, name))

    def __len__(self) -> int:
        name, kind = next(iter(self.columns.items()))
        return int(self._get_array(name + _END if kind == _TEXT else name).shape[0])

    def append(self, columns: Mapping[str, ArrayLike | Sequence[str]]) -> None:
        """Append rows; all columns of the table are required, all of equal length."""
        append_rows([(self, columns)])

    def encode_rows(self, columns: Mapping[str, ArrayLike | Sequence[str]]) -> dict[str, NDArray[Any]]:
        """Encode rows as the values to append to each array, by array name."""
        self._open_arrays([name for column, kind in self.columns.items() for name in _array_names(column, kind)])
        added: dict[str, NDArray[Any]] = {}
        for name, kind in self.columns.items():
            if kind == _TEXT:
                # Text may contain lone surrogates, which strict UTF-8 rejects.
                encoded = [text.encode(errors="surrogatepass") for text in columns[name]]  # type: ignore[union-attr]
                ends = np.cumsum([len(part) for part in encoded], dtype=np.int64)
                added[name] = np.frombuffer(b"".join(encoded), np.uint8)
                added[name + _END] = int(self._arrays[name].shape[0]) + ends
            else:
                added[name] = np.asarray(columns[name], kind)
        return added

    def read(self, *names: str, rows: slice = slice(None)) -> list[NDArray[Any]]:
        """Return numeric columns, each of shape (rows,), optionally only some `rows`."""
        self._open_arrays(names)
        return read_blocks([self._arrays[name] for name in names], rows)

    def read_text(self, name: str) -> list[str]:
        content, stops = self.read(name, name + _END)
        text, ends = content.tobytes(), stops.tolist()
        starts = [0, *ends][: len(ends)]
        return [text[start:end].decode(errors="surrogatepass") for start, end in zip(starts, ends, strict=True)]

    def set_values(self, name: str, rows: NDArray[np.intp], values: ArrayLike) -> None:
        array = self._get_array(name)
        with name_damaged_chunks([array]):
            array.set_orthogonal_selection((rows,), values)

    def add_column(self, name: str, kind: str) -> None:
        """Add a numeric column, 0 in the existing rows."""
        rows = len(self)
        create_nodes(self._group, {name: _make_empty(kind, CHUNK_ROWS)})
        self.columns[name] = kind
        self._group.attrs["columns"] = dict(self.columns)
        self._get_array(name).resize((rows,))

    def _open_arrays(self, names: Sequence[str]) -> None:
        missing = [name for name in names if name not in self._arrays]
        if not missing:
            return
        for name, array in zip(missing, open_nodes(self._group, missing), strict=True):
            assert isinstance(array, zarr.Array)
            self._arrays[name] = array

    def _get_array(self, name: str) -> zarr.Array[Any]:
        self._open_arrays([name])
        return self._arrays[name]


def describe_table(columns: Mapping[str, str]) -> dict[str, Node]:
    """Return the group, by "", and the arrays of an empty table; `columns` as of `ColumnTable.create`."""
    nodes: dict[str, Node] = {"": {"columns": dict(columns)}}
    for column, kind in columns.items():
        if kind == _TEXT:
            content, ends = _array_names(column, kind)
            nodes |= {content: _make_empty("uint8", _CHUNK_BYTES), ends: _make_empty("int64", CHUNK_ROWS)}
        else:
            nodes[column] = _make_empty(kind, CHUNK_ROWS)
    return nodes


def append_rows(added: Iterable[tuple[ColumnTable, Mapping[str, ArrayLike | Sequence[str]]]]) -> None:
    """Append rows to several tables concurrently; as `ColumnTable.append` for each."""
    encoded = [(table, table.encode_rows(columns)) for table, columns in added]
    arrays = [table._arrays[name] for table, rows in encoded for name in rows]
    extend_arrays(arrays, [content for _, rows in encoded for content in rows.values()])


def _array_names(column: str, kind: str) -> tuple[str, ...]:
    return (column, column + _END) if kind == _TEXT else (column,)


def _make_empty(dtype: str, chunk: int) -> EmptyArray:
    return EmptyArray(dtype, (0,), (chunk,), CODECS)
