"""Batches of arrived rows: readings of stations in order of arrival, in memory and as bytes."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ingest.deployment.deployment_file import Column

_ABOUT: Final = b"about"
_ROWS: Final = ("seq", "came_ns", "arrival_ns", "time_ns", "origin", "counter")
_READINGS: Final = ("column", "value", "flag")


@dataclass(frozen=True, eq=False)
class RowBatch:
    """Rows in order of arrival, each with readings of one station at one instant.

    There are m rows and n readings in all.
    """

    origins: tuple[tuple[str, str], ...]
    """Feed and station of each origin."""
    columns: tuple[tuple[str, Column], ...]
    """Feed and description of each column."""
    seq: NDArray[np.int64]
    """Sequence number of each row's spool record, shape (m,)."""
    came_ns: NDArray[np.int64]
    """Arrival of that record in the spool [ns since 1970 UTC], shape (m,)."""
    arrival_ns: NDArray[np.int64]
    """Arrival of the row, possibly reported by a network server [ns since 1970 UTC], shape (m,)."""
    time_ns: NDArray[np.int64]
    """Exact timestamp [ns since 1970 UTC], shape (m,)."""
    origin: NDArray[np.int32]
    """Index into `origins`, shape (m,)."""
    counter: NDArray[np.int64]
    """The device's message counter, -1 if it has none, shape (m,)."""
    stops: NDArray[np.int64]
    """End index of each row's readings, which begin where those of the previous row end; shape (m,)."""
    column: NDArray[np.int32]
    """Index into `columns`, shape (n,)."""
    value: NDArray[np.float64]
    """Value [the column's unit], NaN if none was reported, shape (n,)."""
    flag: NDArray[np.uint8]
    """QARTOD flag from the source, shape (n,)."""

    def __len__(self) -> int:
        return len(self.seq)

    @property
    def readings(self) -> int:
        return len(self.value)

    @property
    def starts(self) -> NDArray[np.int64]:
        """Start index of each row's readings, shape (m,)."""
        return np.concatenate([np.zeros(1, np.int64), self.stops[:-1]])[: len(self)]

    @property
    def sizes(self) -> NDArray[np.int64]:
        """Number of readings of each row, shape (m,)."""
        return self.stops - self.starts

    @classmethod
    def empty(
        cls, origins: tuple[tuple[str, str], ...] = (), columns: tuple[tuple[str, Column], ...] = ()
    ) -> "RowBatch":
        whole, narrow = np.empty(0, np.int64), np.empty(0, np.int32)
        return cls(
            origins, columns, whole, whole, whole, whole, narrow, whole, whole,
            narrow, np.empty(0), np.empty(0, np.uint8),
        )  # fmt: skip

    def take(self, rows: NDArray[np.intp] | NDArray[np.bool_]) -> "RowBatch":
        """Select rows by index, in the given order, or by mask."""
        chosen = np.flatnonzero(rows) if rows.dtype == np.bool_ else rows
        sizes = self.sizes[chosen]
        stops = np.cumsum(sizes)
        inner = np.repeat(self.starts[chosen] - (stops - sizes), sizes) + np.arange(int(sizes.sum()))
        return replace(
            self,
            **{name: getattr(self, name)[chosen] for name in _ROWS},
            stops=stops,
            **{name: getattr(self, name)[inner] for name in _READINGS},
        )

    def to_bytes(self, about: Any = None, **more: bytes) -> bytes:  # noqa: ANN401 - whatever JSON holds
        """Serialise the rows, with `about`, which must be JSON data, and further bytes by name."""
        inner = pa.StructArray.from_arrays([pa.array(getattr(self, name)) for name in _READINGS], names=_READINGS)
        offsets = pa.array(np.concatenate([[0], self.stops]).astype(np.int32))
        columns = [*(pa.array(getattr(self, name)) for name in _ROWS), pa.ListArray.from_arrays(offsets, inner)]
        named = {
            "origins": self.origins,
            "columns": [(feed, asdict(column)) for feed, column in self.columns],
            "about": about,
        }
        batch = pa.record_batch(columns, names=[*_ROWS, "readings"])
        further = {f"more:{name}".encode(): content for name, content in more.items()}
        batch = batch.replace_schema_metadata({_ABOUT: json.dumps(named).encode(), **further})
        sink = pa.BufferOutputStream()
        with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
            writer.write_batch(batch)
        return sink.getvalue().to_pybytes()

    @classmethod
    def from_bytes(cls, data: bytes) -> tuple[Self, Any, dict[str, bytes]]:
        """Restore the rows, `about` and further bytes from `to_bytes`."""
        with pa.ipc.open_stream(data) as reader:
            metadata = dict(reader.schema.metadata)
            named = json.loads(metadata.pop(_ABOUT))
            batch = reader.read_next_batch()
        rows = {name: batch.column(name).to_numpy(zero_copy_only=False) for name in _ROWS}
        nested = batch.column("readings")
        inner = nested.values
        readings = {name: inner.field(name).to_numpy(zero_copy_only=False) for name in _READINGS}
        columns = tuple(
            (feed, Column(**{**content, "given": tuple(content["given"])})) for feed, content in named["columns"]
        )
        stops = nested.offsets.to_numpy()[1:].astype(np.int64)
        origins = tuple((feed, station) for feed, station in named["origins"])
        return (
            cls(origins, columns, **rows, stops=stops, **readings),
            named["about"],
            {key.decode().removeprefix("more:"): content for key, content in metadata.items()},
        )


@dataclass(frozen=True, eq=False)
class ClockTicks:
    """Spool records without rows: ticks of the clock, and ends of the input."""

    seq: NDArray[np.int64]
    """Sequence number of each record, ascending, shape (t,)."""
    clock_ns: NDArray[np.int64]
    """Time of each tick [ns since 1970 UTC], shape (t,)."""
    is_end: NDArray[np.bool_]
    """Whether the input ends here and all held rows are emitted; shape (t,)."""

    @classmethod
    def empty(cls) -> "ClockTicks":
        return cls(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.bool_))


@dataclass
class Dictionary:
    """Known origins and columns, each with a permanent number."""

    origins: dict[tuple[str, str], int] = field(default_factory=dict)
    columns: dict[tuple[str, Column], int] = field(default_factory=dict)

    def encode(self, rows: RowBatch) -> RowBatch:
        """Renumber rows by this dictionary, adding new origins and columns."""
        origin = np.array(
            [self.origins.setdefault(origin, len(self.origins)) for origin in rows.origins] or [0], np.int32
        )
        column = np.array(
            [self.columns.setdefault(column, len(self.columns)) for column in rows.columns] or [0], np.int32
        )
        return replace(
            rows,
            origins=tuple(self.origins),
            columns=tuple(self.columns),
            origin=origin[rows.origin],
            column=column[rows.column],
        )


def concatenate_batches(parts: Sequence[RowBatch]) -> RowBatch:
    """Concatenate at least one part; each must extend the origins and columns before it."""
    if len(parts) == 1:
        return parts[0]
    before = np.concatenate([[0], np.cumsum([part.readings for part in parts])]).tolist()
    stops = np.concatenate([part.stops + start for part, start in zip(parts, before, strict=False)])
    others = {
        column_field.name: np.concatenate([getattr(part, column_field.name) for part in parts])
        for column_field in fields(RowBatch)
        if column_field.name not in ("origins", "columns", "stops")
    }
    return RowBatch(parts[-1].origins, parts[-1].columns, stops=stops, **others)
