"""The root group: stations, names of variables, and the tables of rejects, files and batches."""

import hashlib
from collections.abc import Sequence
from dataclasses import fields
from typing import Any, Final

import zarr

from hypergrid.archive.arrays.attributes import Json
from hypergrid.archive.arrays.records import FileEntry, Reject
from hypergrid.archive.arrays.table import ColumnTable
from hypergrid.core.errors import NotFound

_RECORDS: Final[dict[str, type[Reject] | type[FileEntry]]] = {"rejects": Reject, "files": FileEntry}
_BATCHES: Final = "batches"
_KEY_COLUMNS: Final = {"high": "uint64", "low": "uint64"}


TABLES: Final = (*_RECORDS, _BATCHES)
"""Names of the tables."""


class Root:
    """The root group of a session."""

    def __init__(self, group: zarr.Group) -> None:
        self.group = group

    @classmethod
    def create(cls, group: zarr.Group) -> "Root":
        """Fill the root group of a new archive."""
        group.update_attributes({"stations": {}, "variables": []})
        for name, record in _RECORDS.items():
            kinds = {field.name: "text" if field.type is str else "int64" for field in fields(record)}
            ColumnTable.create(group, name, columns=kinds)
        ColumnTable.create(group, _BATCHES, columns=_KEY_COLUMNS)
        return cls(group)

    @property
    def variables(self) -> list[str]:
        """Names of the variables, in the order of their declaration."""
        names: Any = self.group.attrs["variables"]
        return list(names)

    @variables.setter
    def variables(self, names: list[str]) -> None:
        self.group.attrs["variables"] = names

    def require_variable(self, name: str) -> None:
        """Raise `NotFound` unless the variable is declared."""
        names = self.variables
        if name not in names:
            unknown = NotFound.among("variable", name, names)
            raise unknown

    @property
    def stations(self) -> dict[str, Json]:
        """Stations by id, as `attributes.encode_station` writes them."""
        stations: Any = self.group.attrs["stations"]
        return dict(stations)

    @stations.setter
    def stations(self, stations: dict[str, Json]) -> None:
        self.group.attrs["stations"] = stations

    @property
    def quality(self) -> Json:
        """Parameters of the tests that set the flags; empty where none ran."""
        quality: Any = self.group.attrs.get("quality", {})
        return dict(quality)

    @quality.setter
    def quality(self, quality: Json) -> None:
        self.group.attrs["quality"] = quality

    @property
    def described_by(self) -> dict[str, str]:
        """Names by SHA-256 of raw copies that hold no readings but tell how to read them, and when they arrived."""
        kept: Any = self.group.attrs.get("described_by", {})
        return dict(kept)

    @described_by.setter
    def described_by(self, kept: dict[str, str]) -> None:
        self.group.attrs["described_by"] = kept

    @property
    def streams(self) -> dict[str, Json]:
        """What each stream says of itself, by its id."""
        kept: Any = self.group.attrs.get("streams", {})
        return dict(kept)

    @streams.setter
    def streams(self, kept: dict[str, Json]) -> None:
        self.group.attrs["streams"] = kept

    def add(self, table: str, records: Sequence[Reject] | Sequence[FileEntry]) -> int:
        """Append records to "rejects" or "files"; return how many."""
        if records:
            names = [field.name for field in fields(_RECORDS[table])]
            self._open_table(table).append({name: [getattr(record, name) for record in records] for name in names})
        return len(records)

    def rejects(self) -> list[Reject]:
        """Return all rejects, in the order of their commits."""
        return [Reject(*row) for row in self._read_rows("rejects")]

    def files(self) -> list[FileEntry]:
        """Return all files, in the order of their commits."""
        return [FileEntry(*row) for row in self._read_rows("files")]

    def has_batch(self, batch: str) -> bool:
        """Return whether a commit carried this batch id."""
        high, low = _batch_key(batch)
        highs, lows = self._open_table(_BATCHES).read("high", "low")
        return bool(((highs == high) & (lows == low)).any())

    def add_batch(self, batch: str) -> None:
        """Remember a batch id; 16 bytes of its hash, so that a year of commits each minute stays at 8 MB."""
        high, low = _batch_key(batch)
        self._open_table(_BATCHES).append({"high": [high], "low": [low]})

    def count_rows(self, name: str) -> int:
        """Return how many rows a table has."""
        return len(self._open_table(name))

    def replace_table(self, name: str, older: "Root | None") -> tuple[int, int]:
        """Put a table of another snapshot, or an empty one, in the place of a damaged one; return the rows of both."""
        damaged = self._open_table(name)
        kinds, before = damaged.columns, len(damaged)
        kept = None if older is None else older._open_table(name)
        columns: dict[str, Any] = {} if kept is None else {
            column: kept.read_text(column) if kind == "text" else kept.read(column)[0] for column, kind in kinds.items()
        }  # fmt: skip
        del self.group[name]
        table = ColumnTable.create(self.group, name, columns=kinds)
        if kept is None:
            return 0, before
        table.append(columns)
        return len(kept), before

    def _read_rows(self, name: str) -> list[tuple[Any, ...]]:
        table = self._open_table(name)
        columns = [
            table.read_text(field.name) if field.type is str else table.read(field.name)[0].tolist()
            for field in fields(_RECORDS[name])
        ]
        return list(zip(*columns, strict=True))

    def _open_table(self, name: str) -> ColumnTable:
        group = self.group[name]
        assert isinstance(group, zarr.Group)
        return ColumnTable(group)


def _batch_key(batch: str) -> tuple[int, int]:
    digest = hashlib.sha256(batch.encode(errors="surrogatepass")).digest()
    return int.from_bytes(digest[:8], "big"), int.from_bytes(digest[8:16], "big")
