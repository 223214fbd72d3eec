"""Long tables, a row a reading: CSV after RFC 4180, and Parquet."""

import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Final, Literal, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.csv as pv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from hypergrid.flags import MISSING
from hypergrid.reading_files.selection import Piece, tests_in_words

LABEL: Final = pa.dictionary(pa.int32(), pa.string())
STAMP: Final = pa.timestamp("ns", tz="UTC")
SCHEMA: Final = pa.schema(
    [
        ("station", LABEL), ("time", STAMP), ("variable", LABEL), ("value", pa.float64()), ("unit", LABEL),
        ("flag", pa.uint8()), ("failed_tests", LABEL), ("arrival", STAMP),
    ]
)  # fmt: skip
"""Columns of a table; in CSV all but value and flag are text."""
_NEEDS_QUOTES: Final = re.compile('[",\r\n]')
_FORMULA: Final = ("=", "+", "-", "@", "\t", "\r")
"""How cells begin that spreadsheets take for formulas."""


class Rows(Protocol):
    """What takes pieces one after the other."""

    def add(self, piece: Piece) -> None:
        """Write the rows of a piece."""


@contextmanager
def parquet(path: Path) -> Iterator[Rows]:
    """Write a Parquet file."""
    with pq.ParquetWriter(path, SCHEMA, compression="zstd") as writer:
        yield _Parquet(writer)


class _Parquet:
    def __init__(self, writer: pq.ParquetWriter) -> None:
        self._writer = writer

    def add(self, piece: Piece) -> None:
        columns = _columns(piece)
        columns["time"] = pa.array(piece.readings.time_ns, STAMP)
        columns["arrival"] = pa.array(piece.readings.arrival_ns, STAMP)
        self._writer.write_table(pa.table({name: columns[name].cast(SCHEMA.field(name).type) for name in SCHEMA.names}))


@contextmanager
def csv(path: Path) -> Iterator[Rows]:
    """Write a CSV file: a header, lines that end with CR LF, text that could be a formula after an apostrophe."""
    with path.open("wb") as stream:
        stream.write(",".join(SCHEMA.names).encode() + b"\r\n")
        yield _Csv(stream)


class _Csv:
    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream

    def add(self, piece: Piece) -> None:
        columns = _columns(piece)
        columns["time"] = _instants(piece.readings.time_ns)
        columns["arrival"] = _instants(piece.readings.arrival_ns)
        for name in ("station", "variable", "unit"):
            columns[name] = _harmless(columns[name])
        labels = [name for name in SCHEMA.names if name not in ("value", "flag")]
        # "none" writes no quotes at all, and "needed" quotes around every text.
        plain = not any(_NEEDS_QUOTES.search(text) for name in labels for text in columns[name].dictionary.to_pylist())
        options = pv.WriteOptions(include_header=False, quoting_style="none" if plain else "needed", eol="\r\n")
        columns |= {name: columns[name].cast(pa.string()) for name in labels}
        pv.write_csv(pa.table({name: columns[name] for name in SCHEMA.names}), self._stream, options)


def _columns(piece: Piece) -> dict[str, Any]:
    readings, kind = piece.readings, piece.kind
    count = len(readings)
    bits, code = np.unique(readings.tests_or_none_set(), return_inverse=True)
    missing = readings.flag == MISSING
    return {
        "station": _labels(piece.station, list(kind.stations)),
        "variable": _labels(np.zeros(count, np.int64), [kind.label]),
        "value": pa.array(readings.value, pa.float64(), mask=missing),
        "unit": _labels(np.zeros(count, np.int64), [kind.variable.unit]),
        "flag": pa.array(readings.flag, pa.uint8()),
        "failed_tests": _labels(code, [tests_in_words(int(one)) for one in bits]),
    }


def _labels(code: NDArray[np.int64], names: list[str]) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(code, pa.int32()), pa.array(names, pa.string()))


def _harmless(column: pa.Array) -> pa.Array:
    names = [f"'{name}" if name.startswith(_FORMULA) else name for name in column.dictionary.to_pylist()]
    return pa.DictionaryArray.from_arrays(column.indices, pa.array(names, pa.string()))


def _instants(time_ns: NDArray[np.int64]) -> pa.Array:
    """Return ISO 8601 texts in UTC, as short as they are exact for all of a piece."""
    different, code = np.unique(time_ns, return_inverse=True)
    units: tuple[tuple[Literal["s", "ms", "us", "ns"], int], ...] = (
        ("s", 10**9), ("ms", 10**6), ("us", 10**3), ("ns", 1),
    )  # fmt: skip
    unit = next(name for name, ns in units if not (different % ns).any())
    texts = np.datetime_as_string(different.astype("datetime64[ns]"), unit=unit)
    return _labels(code, [f"{text}Z" for text in texts.tolist()])
