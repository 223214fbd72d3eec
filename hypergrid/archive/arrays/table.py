"""Append-only tables: columns of one length in a Zarr group."""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import zarr
from numpy.typing import ArrayLike, NDArray
from zarr.codecs import BloscCodec, Crc32cCodec

from hypergrid.archive.disk.concurrent_io import (
    create_arrays,
    extend_arrays,
    name_damaged_chunks,
    open_nodes,
    read_blocks,
)

CODECS: Final = (BloscCodec(cname="zstd", clevel=1, shuffle="shuffle"), Crc32cCodec())
"""Of every chunk: compressed, and with a checksum at its end.

Levels 3 and 5 save 2 and 4 % of the bytes; their times differ from those of level 1 by less than the noise.
"""
CHUNK_ROWS: Final = 16_384
_CHUNK_BYTES: Final = 262_144
_TEXT: Final = "text"
_END: Final = "_end"


class ColumnTable:
    """Columns of numbers or of text; rows are only added, but for marks and flags (`set`).

    A column of text is one array of UTF-8 bytes and one of the positions where the rows end in it, because Zarr has no
    stable type for text of any length.
    """

    def __init__(self, group: zarr.Group, opened: Mapping[str, zarr.Array[Any]] = MappingProxyType({})) -> None:
        self._group = group
        self._columns: dict[str, str] = dict(group.attrs["columns"])  # type: ignore[arg-type]
        self._arrays: dict[str, zarr.Array[Any]] = dict(opened)

    @classmethod
    def create(cls, parent: zarr.Group, name: str, *, columns: Mapping[str, str]) -> "ColumnTable":
        """Make an empty table; `columns` gives the NumPy type of each, or "text"."""
        group = parent.create_group(name, attributes={"columns": dict(columns)})
        arrays: dict[str, dict[str, Any]] = {}
        for column, kind in columns.items():
            if kind == _TEXT:
                content, ends = _array_names(column, kind)
                arrays |= {content: _make_empty("uint8", _CHUNK_BYTES), ends: _make_empty("int64", CHUNK_ROWS)}
            else:
                arrays[column] = _make_empty(kind, CHUNK_ROWS)
        create_arrays(group, arrays)
        return cls(group)

    def __len__(self) -> int:
        """Return the number of rows."""
        name, kind = next(iter(self._columns.items()))
        return int(self._get_array(name + _END if kind == _TEXT else name).shape[0])

    def append(self, columns: Mapping[str, ArrayLike | Sequence[str]]) -> None:
        """Add rows; every column of the table is given, all of one length."""
        append_rows([(self, columns)])

    def encode_rows(self, columns: Mapping[str, ArrayLike | Sequence[str]]) -> dict[str, NDArray[Any]]:
        """Return what rows add to each array, by its name."""
        self._open_arrays([name for column, kind in self._columns.items() for name in _array_names(column, kind)])
        added: dict[str, NDArray[Any]] = {}
        for name, kind in self._columns.items():
            if kind == _TEXT:
                encoded = [text.encode(errors="surrogatepass") for text in columns[name]]  # type: ignore[union-attr]
                ends = np.cumsum([len(part) for part in encoded], dtype=np.int64)
                added[name] = np.frombuffer(b"".join(encoded), np.uint8)
                added[name + _END] = int(self._arrays[name].shape[0]) + ends
            else:
                added[name] = np.asarray(columns[name], kind)
        return added

    def read(self, *names: str, rows: slice = slice(None)) -> list[NDArray[Any]]:
        """Return columns of numbers, each of shape (rows,); only some `rows`, where they are given."""
        self._open_arrays(names)
        return read_blocks([self._arrays[name] for name in names], rows)

    def read_text(self, name: str) -> list[str]:
        """Return a column of text."""
        content, stops = self.read(name, name + _END)
        text, ends = content.tobytes(), stops.tolist()
        starts = [0, *ends][: len(ends)]
        return [text[start:end].decode(errors="surrogatepass") for start, end in zip(starts, ends, strict=True)]

    def set_values(self, name: str, rows: NDArray[np.intp], values: ArrayLike) -> None:
        """Set a column of numbers in the given rows."""
        array = self._get_array(name)
        with name_damaged_chunks([array]):
            array.set_orthogonal_selection((rows,), values)

    @property
    def columns(self) -> dict[str, str]:
        """The NumPy type of each column, or "text"."""
        return dict(self._columns)

    def has_column(self, name: str) -> bool:
        """Return whether there is such a column."""
        return name in self._columns

    def add_column(self, name: str, kind: str) -> None:
        """Add a column of numbers; it is 0 in the rows that are there."""
        rows = len(self)
        create_arrays(self._group, {name: _make_empty(kind, CHUNK_ROWS)})
        self._columns[name] = kind
        self._group.attrs["columns"] = dict(self._columns)
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


def append_rows(added: Iterable[tuple[ColumnTable, Mapping[str, ArrayLike | Sequence[str]]]]) -> None:
    """Add rows to several tables at once; of each every column is given, all of one length."""
    encoded = [(table, table.encode_rows(columns)) for table, columns in added]
    arrays = [table._arrays[name] for table, rows in encoded for name in rows]
    extend_arrays(arrays, [content for _, rows in encoded for content in rows.values()])


def _array_names(column: str, kind: str) -> tuple[str, ...]:
    """Return the names of the arrays of a column."""
    return (column, column + _END) if kind == _TEXT else (column,)


def _make_empty(dtype: str, chunk: int) -> dict[str, Any]:
    return {"shape": (0,), "chunks": (chunk,), "dtype": dtype, "compressors": CODECS}
