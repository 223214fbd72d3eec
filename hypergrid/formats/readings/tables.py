"""Long tables with one row per reading: CSV (RFC 4180) and Parquet."""

import re
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any, BinaryIO, Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.csv as pv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from hypergrid.core.flags import MISSING
from hypergrid.formats.covjson import format_instants
from hypergrid.formats.readings.selection import ReadingsPiece, format_tests

LABEL: Final = pa.dictionary(pa.int32(), pa.string())
STAMP: Final = pa.timestamp("ns", tz="UTC")
SCHEMA: Final = pa.schema(
    [
        ("station", LABEL), ("time", STAMP), ("variable", LABEL), ("value", pa.float64()), ("unit", LABEL),
        ("flag", pa.uint8()), ("failed_tests", LABEL), ("arrival", STAMP),
    ]
)  # fmt: skip
"""Columns of an exported table, which ingest can read back; in CSV all but numbers are text."""
INTERVALS: Final = pa.schema(
    [
        ("station", LABEL), ("variable", LABEL), ("start", STAMP), ("end", STAMP), ("value", pa.float64()),
        ("unit", LABEL), ("flag", pa.uint8()), ("height_m", pa.float64()), ("statistic", LABEL),
        ("replicate", pa.int32()), ("failed_tests", LABEL),
    ]
)  # fmt: skip
"""Columns of a self-contained table, whose rows describe their own intervals, heights and statistics."""
_NEEDS_QUOTES: Final = re.compile('[",\r\n]')
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")
"""Leading characters that make a spreadsheet run a cell as a formula."""


class RowWriter(Protocol):
    """Sink for the pieces of an export."""

    def add(self, piece: ReadingsPiece) -> None:
        """Append the rows of a piece."""


@contextmanager
def write_parquet(sink: Path | BinaryIO, schema: pa.Schema = SCHEMA) -> Iterator[RowWriter]:
    with pq.ParquetWriter(sink, schema, compression="zstd") as writer:
        yield _Parquet(writer, schema)


class _Parquet:
    def __init__(self, writer: pq.ParquetWriter, schema: pa.Schema) -> None:
        self._writer, self._schema = writer, schema

    def add(self, piece: ReadingsPiece) -> None:
        columns = _make_columns(piece, self._schema)
        columns |= {name: pa.array(columns[name], STAMP) for name in _list_names(self._schema, STAMP)}
        table = {field.name: columns[field.name].cast(field.type) for field in self._schema}
        self._writer.write_table(pa.table(table, schema=self._schema))


@contextmanager
def write_csv(sink: Path | BinaryIO, schema: pa.Schema = SCHEMA) -> Iterator[RowWriter]:
    """Open a CSV file for writing.

    It has a header, lines ending in CR LF, and an apostrophe before text that could be a formula.
    """
    # A stream that was passed in stays open; its owner closes it.
    with sink.open("wb") if isinstance(sink, Path) else nullcontext(sink) as stream:
        stream.write(",".join(schema.names).encode() + b"\r\n")
        yield _Csv(stream, schema)


class _Csv:
    def __init__(self, stream: BinaryIO, schema: pa.Schema) -> None:
        self._stream, self._schema = stream, schema

    def add(self, piece: ReadingsPiece) -> None:
        columns = _make_columns(piece, self._schema)
        columns |= {name: _label_instants(columns[name]) for name in _list_names(self._schema, STAMP)}
        columns |= {name: _escape_formulas(columns[name]) for name in ("station", "variable", "unit")}
        labels = [*_list_names(self._schema, STAMP), *_list_names(self._schema, LABEL)]
        # pyarrow: "none" writes no quotes at all, "needed" puts quotes around every text.
        plain = not any(_NEEDS_QUOTES.search(text) for name in labels for text in columns[name].dictionary.to_pylist())
        options = pv.WriteOptions(include_header=False, quoting_style="none" if plain else "needed", eol="\r\n")
        columns |= {name: columns[name].cast(pa.string()) for name in labels}
        pv.write_csv(pa.table({name: columns[name] for name in self._schema.names}), self._stream, options)


def _list_names(schema: pa.Schema, kind: pa.DataType) -> list[str]:
    return [field.name for field in schema if field.type == kind]


def _make_columns(piece: ReadingsPiece, schema: pa.Schema) -> dict[str, Any]:
    """Return the columns of a schema by name; instants are still nanoseconds since 1970."""
    readings, kind = piece.readings, piece.kind
    count = len(readings)
    bits, code = np.unique(readings.tests_or_none_set(), return_inverse=True)
    alone = "height_m" in schema.names
    starts_ns, ends_ns = piece.intervals_ns()
    height_m = kind.sample.height_m
    columns = {
        "station": _make_labels(piece.station, list(kind.stations)),
        "variable": _make_labels(np.zeros(count, np.int64), [kind.variable.name if alone else kind.label]),
        "value": pa.array(readings.value, pa.float64(), mask=readings.flag == MISSING),
        "unit": _make_labels(np.zeros(count, np.int64), [kind.variable.unit]),
        "flag": pa.array(readings.flag, pa.uint8()),
        "failed_tests": _make_labels(code, [format_tests(int(bit_set)) for bit_set in bits]),
        "time": readings.time_ns,
        "arrival": readings.arrival_ns,
        "start": starts_ns,
        "end": ends_ns,
        "height_m": pa.array(np.full(count, height_m or 0.0), pa.float64(), mask=np.full(count, height_m is None)),
        "statistic": _make_labels(np.zeros(count, np.int64), [kind.sample.statistic]),
        "replicate": pa.array(np.full(count, kind.sample.replicate), pa.int32()),
    }
    return {name: columns[name] for name in schema.names}


def _make_labels(code: NDArray[np.int64], names: list[str]) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(code, pa.int32()), pa.array(names, pa.string()))


def _escape_formulas(column: pa.Array) -> pa.Array:
    names = [f"'{name}" if name.startswith(_FORMULA) else name for name in column.dictionary.to_pylist()]
    return pa.DictionaryArray.from_arrays(column.indices, pa.array(names, pa.string()))


def _label_instants(time_ns: NDArray[np.int64]) -> pa.Array:
    different, code = np.unique(time_ns, return_inverse=True)
    return _make_labels(code, format_instants(different))
