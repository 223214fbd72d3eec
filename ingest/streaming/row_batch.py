"""Rows that arrived: readings of stations in the order in which they came, as they travel and as they are held."""

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
    """Rows in order of arrival, m of them, each with readings of one station at one instant; n readings in all."""

    origins: tuple[tuple[str, str], ...]
    """Feeds and stations."""
    columns: tuple[tuple[str, Column], ...]
    """Feeds, and what is in a column of theirs."""
    seq: NDArray[np.int64]
    """Sequence number of the record of the spool that each row came in, shape (m,)."""
    came_ns: NDArray[np.int64]
    """When that record came to the spool [ns since 1970 UTC], shape (m,)."""
    arrival_ns: NDArray[np.int64]
    """When the row arrived, as a network server may tell [ns since 1970 UTC], shape (m,)."""
    time_ns: NDArray[np.int64]
    """Exact time stamp [ns since 1970 UTC], shape (m,)."""
    origin: NDArray[np.int32]
    """Which of `origins`, shape (m,)."""
    counter: NDArray[np.int64]
    """The device's own count of its messages, -1 where there is none, shape (m,)."""
    stops: NDArray[np.int64]
    """Where a row's readings end; they begin where the row before ends; shape (m,)."""
    column: NDArray[np.int32]
    """Which of `columns`, shape (n,)."""
    value: NDArray[np.float64]
    """Value [the column's unit], NaN where none was reported, shape (n,)."""
    flag: NDArray[np.uint8]
    """Flag of QARTOD that it came with, shape (n,)."""

    def __len__(self) -> int:
        return len(self.seq)

    @property
    def readings(self) -> int:
        """How many readings there are."""
        return len(self.value)

    @property
    def starts(self) -> NDArray[np.int64]:
        """Where a row's readings begin, shape (m,)."""
        return np.concatenate([np.zeros(1, np.int64), self.stops[:-1]])[: len(self)]

    @property
    def sizes(self) -> NDArray[np.int64]:
        """How many readings each row has, shape (m,)."""
        return self.stops - self.starts

    @classmethod
    def empty(
        cls, origins: tuple[tuple[str, str], ...] = (), columns: tuple[tuple[str, Column], ...] = ()
    ) -> "RowBatch":
        """Return no rows."""
        whole, narrow = np.empty(0, np.int64), np.empty(0, np.int32)
        return cls(
            origins, columns, whole, whole, whole, whole, narrow, whole, whole,
            narrow, np.empty(0), np.empty(0, np.uint8),
        )  # fmt: skip

    def take(self, rows: NDArray[np.intp] | NDArray[np.bool_]) -> "RowBatch":
        """Return the chosen rows, in the order in which they are named."""
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
        """Return them as bytes, with something that JSON can hold, and further bytes by name."""
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
        """Return what `to_bytes` was given."""
        with pa.ipc.open_stream(data) as reader:
            metadata = dict(reader.schema.metadata)
            named = json.loads(metadata.pop(_ABOUT))
            batch = reader.read_next_batch()
        rows = {name: batch.column(name).to_numpy(zero_copy_only=False) for name in _ROWS}
        nested = batch.column("readings")
        inner = nested.values
        readings = {name: inner.field(name).to_numpy(zero_copy_only=False) for name in _READINGS}
        columns = tuple((feed, column_from(content)) for feed, content in named["columns"])
        stops = nested.offsets.to_numpy()[1:].astype(np.int64)
        origins = tuple((feed, station) for feed, station in named["origins"])
        return (
            cls(origins, columns, **rows, stops=stops, **readings),
            named["about"],
            {key.decode().removeprefix("more:"): content for key, content in metadata.items()},
        )


@dataclass(frozen=True, eq=False)
class ClockTicks:
    """Records of the spool that hold no rows: ticks of the clock, and ends of the input."""

    seq: NDArray[np.int64]
    """Sequence number of each, ascending, shape (t,)."""
    clock_ns: NDArray[np.int64]
    """[ns since 1970 UTC], shape (t,)."""
    is_end: NDArray[np.bool_]
    """Whether the input ends here: all that is held is let go; shape (t,)."""

    @classmethod
    def empty(cls) -> "ClockTicks":
        """Return no records."""
        return cls(np.empty(0, np.int64), np.empty(0, np.int64), np.empty(0, np.bool_))


def column_from(content: dict[str, Any]) -> Column:
    """Return the column that `asdict` made a mapping of."""
    return Column(**{**content, "given": tuple(content["given"])})


@dataclass
class Dictionary:
    """Origins and columns that are known, each with a number for ever."""

    origins: dict[tuple[str, str], int] = field(default_factory=dict)
    columns: dict[tuple[str, Column], int] = field(default_factory=dict)

    def encode(self, rows: RowBatch) -> RowBatch:
        """Return rows that count these; new ones are added."""
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
    """Return the rows of all parts, one part after the other; each part counts what the one before it counts, or more.

    At least one part.
    """
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
