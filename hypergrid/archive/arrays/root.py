"""The root group: stations, names of variables, and the tables of rejects, files and batches.

Rows of files and batches are in no raw copy, and without them raw copies cannot be identified. A spare table therefore
repeats each of them as a line of JSON. An archive of an older program gets it with its next commit.
"""

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import astuple, fields
from typing import Any, Final, Generic, TypeVar

import icechunk
import zarr

from hypergrid.archive.arrays.records import FileEntry, Json, Reject
from hypergrid.archive.arrays.table import ColumnTable, append_rows
from hypergrid.archive.arrays.withdrawn import Withdrawn
from hypergrid.archive.disk.concurrent_io import open_group, open_root
from hypergrid.core.clock_errors import ClockError, decode_clock_errors, encode_clock_errors
from hypergrid.core.errors import NotFound

_RECORDS: Final[dict[str, type[Reject] | type[FileEntry]]] = {"rejects": Reject, "files": FileEntry}
_BATCHES: Final = "batches"


TABLES: Final = (*_RECORDS, _BATCHES)
"""Names of the tables."""
SPARED: Final = ("files", _BATCHES)
"""Names of the tables whose rows are repeated in the spare."""
SPARE: Final = "spare"
"""Name of the spare."""
_LINE: Final = "line"

Row = tuple[Any, ...]
"""Values of a row, in the table's column order."""


Content = TypeVar("Content")


class _Attribute(Generic[Content]):
    """An attribute of the root group, copied when it is read."""

    def __init__(
        self,
        make: Callable[[Any], Content],
        *,
        optional: bool = False,
        encode: Callable[[Content], object] = lambda content: content,
    ) -> None:
        self._make, self._optional, self._encode = make, optional, encode

    def __set_name__(self, owner: type, name: str) -> None:
        self._name = name

    def __get__(self, root: "Root | None", owner: type) -> Content:
        if root is None:
            raise AttributeError(f"{owner.__name__}.{self._name} is an attribute of a root, not of its class")
        stored = root.group.attrs
        return self._make(stored.get(self._name, ()) if self._optional else stored[self._name])

    def __set__(self, root: "Root", content: Content) -> None:
        root.group.update_attributes({self._name: self._encode(content)})


class Root:
    """The root group of a session."""

    variables = _Attribute[list[str]](list)
    """Names of the variables, in order of declaration."""
    stations = _Attribute[dict[str, Json]](dict)
    """Stations by id, as encoded by `records.encode_station`."""
    quality = _Attribute[Json](dict, optional=True)
    """Parameters of the tests that set the flags; empty if none ran."""
    clock_errors = _Attribute[dict[str, tuple[ClockError, ...]]](
        lambda stored: decode_clock_errors(dict(stored)), optional=True, encode=encode_clock_errors
    )
    """Clock errors by station; absent if none was declared."""
    publication = _Attribute[dict[str, str]](dict, optional=True)
    """Statements about the data, as of `Publication.attributes`; empty if none were made."""
    described_by = _Attribute[dict[str, str]](dict, optional=True)
    """Names, by SHA-256, of raw copies that describe how to read others, or when their readings arrived."""
    streams = _Attribute[dict[str, Json]](dict, optional=True)
    """Recorded state of each stream, by its id."""
    withdrawn = _Attribute[Withdrawn](
        lambda stored: Withdrawn.decode(dict(stored)), optional=True, encode=Withdrawn.encode
    )
    """Series, stations and rejects that are not listed any more."""

    def __init__(self, group: zarr.Group) -> None:
        self.group = group
        self._tables: dict[str, ColumnTable] = {}

    @classmethod
    def open(cls, repository: icechunk.Repository, snapshot: str) -> "Root":
        return cls(open_root(repository.readonly_session(snapshot_id=snapshot)))

    @classmethod
    def create(cls, group: zarr.Group) -> "Root":
        group.update_attributes({"stations": {}, "variables": []})
        for name, record in _RECORDS.items():
            kinds = {field.name: "text" if field.type is str else "int64" for field in fields(record)}
            ColumnTable.create(group, name, columns=kinds)
        ColumnTable.create(group, _BATCHES, columns={"high": "uint64", "low": "uint64"})
        ColumnTable.create(group, SPARE, columns={_LINE: "text"})
        return cls(group)

    def require_variable(self, name: str) -> None:
        """Raise `NotFound` unless the variable is declared."""
        NotFound.refuse_unknown("variable", [name], self.variables)

    def add_rejects(self, rejects: Sequence[Reject]) -> int:
        if rejects:
            append_rows([self._encode_rows("rejects", list(map(astuple, rejects)))])
        return len(rejects)

    def add_commit(self, batch: str, files: Sequence[FileEntry]) -> None:
        """Record the batch id and files of a commit, also in the spare."""
        # Missing or incomplete (older programs do not write the spare), or damaged at its end.
        if not (self.is_spare_complete() and self._can_append_to_spare()):
            self.renew_spare()
        # Of the id only 16 bytes of its hash are stored: 8 MB a year at one commit a minute.
        rows: dict[str, list[Row]] = {_BATCHES: [_batch_key(batch)]}
        if files:
            rows["files"] = list(map(astuple, files))
        lines: list[Row] = [(_format_line(name, row),) for name in SPARED for row in rows.get(name, ())]
        append_rows([self._encode_rows(name, added) for name, added in (*rows.items(), (SPARE, lines))])

    def rejects(self) -> list[Reject]:
        return [Reject(*row) for row in self.read_rows("rejects")]

    def files(self) -> list[FileEntry]:
        return [FileEntry(*row) for row in self.read_rows("files")]

    def has_batch(self, batch: str) -> bool:
        """Return whether a commit carried this batch id."""
        high, low = _batch_key(batch)
        highs, lows = self._open_table(_BATCHES).read("high", "low")
        return bool(((highs == high) & (lows == low)).any())

    def count_rows(self, name: str) -> int:
        return len(self._open_table(name))

    def read_rows(self, name: str) -> list[Row]:
        table = self._open_table(name)
        columns = [
            table.read_text(column) if kind == "text" else table.read(column)[0].tolist()
            for column, kind in table.columns.items()
        ]
        return list(zip(*columns, strict=True))

    def replace_table(self, name: str, rows: Sequence[Row]) -> None:
        self._create_anew(name, self._open_table(name).columns, rows)

    @property
    def stored_tables(self) -> tuple[str, ...]:
        return (*TABLES, SPARE) if SPARE in self._tables or SPARE in self.group else TABLES

    def read_spare(self, name: str) -> list[Row]:
        """Return the rows of a table from the spare, which lacks commits of older programs.

        Errors of damaged chunks propagate to the caller.
        """
        if SPARE not in self.stored_tables:
            return []
        lines = (json.loads(line) for (line,) in self.read_rows(SPARE))
        return [tuple(row) for table, *row in lines if table == name]

    def renew_spare(self) -> None:
        lines = [(_format_line(name, row),) for name in SPARED for row in self.read_rows(name)]
        self._create_anew(SPARE, {_LINE: "text"}, lines)

    def _create_anew(self, name: str, columns: Mapping[str, str], rows: Sequence[Row]) -> None:
        if name in self.group:
            del self.group[name]
        self._tables[name] = ColumnTable.create(self.group, name, columns=columns)
        if rows:
            append_rows([self._encode_rows(name, rows)])

    def _encode_rows(self, name: str, rows: Sequence[Row]) -> tuple[ColumnTable, dict[str, Any]]:
        table = self._open_table(name)
        return table, dict(zip(table.columns, zip(*rows, strict=True), strict=True))

    def is_spare_complete(self) -> bool:
        return SPARE in self.stored_tables and self.count_rows(SPARE) == sum(map(self.count_rows, SPARED))

    def _can_append_to_spare(self) -> bool:
        """Return whether the spare's last chunks, which an append rewrites, are readable."""
        last = self.count_rows(SPARE) - 1
        try:
            ends = self._open_table(SPARE).read(f"{_LINE}_end", rows=slice(last, None))[0]
            self._open_table(SPARE).read(_LINE, rows=slice(int(ends[-1]) - 1, None))
        except (ValueError, RuntimeError, IndexError, icechunk.IcechunkError):
            return last < 0
        return True

    def _open_table(self, name: str) -> ColumnTable:
        if name not in self._tables:
            self._tables[name] = ColumnTable(open_group(self.group, name))
        return self._tables[name]


def _batch_key(batch: str) -> tuple[int, int]:
    digest = hashlib.sha256(batch.encode(errors="surrogatepass")).digest()
    return int.from_bytes(digest[:8], "big"), int.from_bytes(digest[8:16], "big")


def _format_line(name: str, row: Row) -> str:
    # Commits from Python may contain NumPy integers.
    return json.dumps([name, *row], separators=(",", ":"), default=int)
