"""Between parsing and the commit: parsed chunks as Parquet files in a folder of the archive, gone when the run ends.

A chunk becomes one file with a column for each of its own, so that a variable is read by itself; its rows are in the
order of the file, usually that of time, and row groups are small, so that a range of time is read by itself too. What
is in memory is bounded by a chunk on the way in and by a range of time on the way out.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from hypergrid.core.times import Window
from ingest.formats import BadRow, Parsed
from ingest.sources.folder import Chunk, parse

ROW_GROUP: Final = 1 << 16
"""Rows of a row group."""
STATION, COLUMN, TIME, ARRIVAL, PREFIX = "station", "column", "time_ns", "arrival_ns", "value:"
FLAG: Final = "flag"
SUMMARY: Final = pa.schema(
    [
        ("number", pa.int64()),
        ("lines", pa.int64()),
        ("rows", pa.int64()),
        ("rejects", pa.int64()),
        ("first_ns", pa.int64()),
        ("last_ns", pa.int64()),
        ("stations", pa.list_(pa.string())),
        ("columns", pa.list_(pa.string())),
        ("unmapped", pa.list_(pa.string())),
    ]
)
"""What a staged chunk tells about itself."""


@dataclass(frozen=True)
class StagedChunk:
    """A staged chunk: where it is, and how much of what."""

    number: int
    lines: int
    rows: int
    rejects: int
    first_ns: int
    """Least time stamp [ns since 1970 UTC]; 0 without rows."""
    last_ns: int
    """Greatest time stamp [ns since 1970 UTC]; 0 without rows."""
    stations: tuple[str, ...]
    columns: tuple[str, ...] | None = None
    """Of long rows: a column that the station beside it in `stations` has; a station comes once for each."""
    unmapped: tuple[str, ...] = ()
    """Of long rows: columns that nothing maps."""

    def record(self) -> dict[str, Any]:
        """Return it as a row of `SUMMARY`."""
        summary = {name: getattr(self, name) for name in SUMMARY.names}
        return {name: list(value) if isinstance(value, tuple) else value for name, value in summary.items()}

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> "StagedChunk":
        """Read a row of `SUMMARY`."""
        lists: dict[str, Any] = {name: tuple(value) for name, value in record.items() if isinstance(value, list)}
        return cls(**{**record, **lists})


def stage(chunk: Chunk, folder: Path) -> StagedChunk:
    """Parse a chunk and write its rows and rejects into the folder; staging it again gives the same files."""
    parsed = parse(chunk)
    if len(parsed.code):
        _write(_table(parsed), _rows_path(folder, chunk.number))
    if parsed.bad:
        columns = {name: [getattr(row, name) for row in parsed.bad] for name in BadRow.__dataclass_fields__}
        _write(pa.table(columns), _rejects_path(folder, chunk.number))
    first, last = (int(parsed.time_ns.min()), int(parsed.time_ns.max())) if len(parsed.code) else (0, 0)
    stations, present = _present_columns(parsed)
    return StagedChunk(
        number=chunk.number,
        lines=parsed.lines,
        rows=len(parsed.code),
        rejects=len(parsed.bad),
        first_ns=first,
        last_ns=last,
        stations=stations,
        columns=present,
        unmapped=parsed.unmapped,
    )


def _present_columns(parsed: Parsed) -> tuple[tuple[str, ...], tuple[str, ...] | None]:
    """Return the stations and, of long rows, a column that each has."""
    if parsed.name_code is None:
        return parsed.stations, None
    pairs = np.unique(np.column_stack([parsed.code, parsed.name_code]), axis=0).tolist()
    return tuple(parsed.stations[a] for a, _ in pairs), tuple(parsed.names[b] for _, b in pairs)


def _table(parsed: Parsed) -> pa.Table:
    columns: dict[str, Any] = {STATION: _labels(parsed.code, parsed.stations), TIME: parsed.time_ns}
    if parsed.name_code is not None:
        columns[COLUMN] = _labels(parsed.name_code, parsed.names)
    if parsed.arrival_ns is not None:
        columns[ARRIVAL] = parsed.arrival_ns
    if parsed.flags is not None:
        columns[FLAG] = parsed.flags
    return pa.table(columns | {f"{PREFIX}{name}": values for name, values in parsed.values.items()})


def _labels(code: NDArray[np.int32], names: tuple[str, ...]) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(code), pa.array(names, pa.string()))


def _write(table: pa.Table, path: Path) -> None:
    # A task that runs twice must not be read half written.
    partial = path.with_suffix(".partial")
    pq.write_table(table, partial, row_group_size=ROW_GROUP, compression="lz4", use_dictionary=[STATION, COLUMN])
    partial.replace(path)


def _rows_path(folder: Path, number: int) -> Path:
    return folder / f"rows-{number:08d}.parquet"


def _rejects_path(folder: Path, number: int) -> Path:
    return folder / f"rejects-{number:08d}.parquet"


def staged_rejects(staged: StagedChunk, folder: Path) -> Iterator[BadRow]:
    """Yield the rows of a chunk that were refused, by line."""
    if staged.rejects:
        for batch in pq.ParquetFile(_rejects_path(folder, staged.number)).iter_batches(ROW_GROUP):
            for record in batch.to_pylist():
                yield BadRow(**record)


def staged_rows(staged: StagedChunk, folder: Path, window: Window) -> Parsed | None:
    """Return the rows of a chunk that are stamped within the window, None where there are none."""
    if not staged.rows or staged.last_ns < window.start_ns or staged.first_ns >= window.stop_ns:
        return None
    whole = window.start_ns <= staged.first_ns and staged.last_ns < window.stop_ns
    inside = (pc.field(TIME) >= window.start_ns) & (pc.field(TIME) < window.stop_ns)
    table = pq.read_table(_rows_path(folder, staged.number), filters=None if whole else inside)
    if not table.num_rows:
        return None
    table = table.unify_dictionaries().combine_chunks()
    values = {
        name.removeprefix(PREFIX): table[name].to_numpy() for name in table.column_names if name.startswith(PREFIX)
    }
    stations, code = _unlabelled(table[STATION])
    names, name_code = _unlabelled(table[COLUMN]) if COLUMN in table.column_names else ((), None)
    arrival_ns = table[ARRIVAL].to_numpy() if ARRIVAL in table.column_names else None
    time_ns = table[TIME].to_numpy()
    flags = table[FLAG].to_numpy() if FLAG in table.column_names else None
    return Parsed(
        stations, code, time_ns, values, (), staged.lines, names, name_code, arrival_ns=arrival_ns, flags=flags
    )


def _unlabelled(column: pa.ChunkedArray) -> tuple[tuple[str, ...], NDArray[np.int32]]:
    labels = column.chunk(0)
    code = labels.indices.to_numpy(zero_copy_only=False).astype(np.int32, copy=False)
    return tuple(labels.dictionary.to_pylist()), code


Span = tuple[int, int, int]
"""First and last stamp of some values [ns since 1970 UTC], and how many they are."""


def windows(spans: Iterable[Span], *, maximum: int, chunks_ns: tuple[int, int]) -> Sequence[Window]:
    """Cut time so that no window holds many more than `most` values, if each span's are spread evenly over its time.

    Parameters
    ----------
    spans
        Of values; those without any are passed over.
    chunks_ns
        Where the archive's first chunk along time begins, and how long its chunks are [ns]. Windows that are longer
        begin and end with one, so that none is written twice.
    """
    filled = [(first, last + 1, count) for first, last, count in spans if count]
    if not filled:
        return []
    starts, stops, counts = (np.array(part) for part in zip(*filled, strict=True))
    first, last, total = int(starts.min()), int(stops.max()), int(counts.sum())
    pieces = -(-total // maximum)
    if pieces == 1:
        return [Window(first, last)]
    edges = np.unique(np.concatenate([starts, stops]))
    held = _held_before(edges, starts, stops, counts)
    cuts = np.interp(np.linspace(0, total, pieces + 1)[1:-1], held, edges.astype(np.float64)).astype(np.int64)
    origin, length = chunks_ns
    if last - first >= 2 * length * pieces:
        cuts = origin + (cuts - origin + length // 2) // length * length
    bounds = np.unique(np.concatenate([[first], np.clip(cuts, first, last), [last]])).tolist()
    return [Window(start, stop) for start, stop in zip(bounds[:-1], bounds[1:], strict=True)]


def _held_before(
    edges: NDArray[np.int64], starts: NDArray[np.int64], stops: NDArray[np.int64], counts: NDArray[np.int64]
) -> NDArray[np.float64]:
    # Between two edges values come at one rate: the sum of those of all spans that reach there.
    rate = np.zeros(len(edges))
    each = counts / (stops - starts)
    np.add.at(rate, np.searchsorted(edges, starts), each)
    np.subtract.at(rate, np.searchsorted(edges, stops), each)
    steps = np.cumsum(rate)[:-1] * np.diff(edges)
    return np.concatenate([np.zeros(1), np.cumsum(steps)])
