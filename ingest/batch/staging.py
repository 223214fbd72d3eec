"""Staging of parsed chunks as Parquet files in the archive's folder.

The files are deleted when the run ends. Each has the columns of its chunk, and its rows in the order of the input file.
Memory is bounded by one chunk while staging, and by one range of time while reading.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from hypergrid.core.times import Window
from ingest.batch.clock_back import find_clock_back
from ingest.formats import BadRow, Parsed
from ingest.sources.folder import Chunk, parse

# Small, because rows are usually in order of time, and a range of time is read separately.
ROW_GROUP: Final = 1 << 16
STATION, COLUMN, TIME, ARRIVAL, PREFIX = "station", "column", "time_ns", "arrival_ns", "value:"
REFUSED: Final = "refused:"
FLAG: Final = "flag"
SUMMARY: Final = pa.schema(
    [
        ("number", pa.int64()),
        ("lines", pa.int64()),
        ("rows", pa.int64()),
        ("rejects", pa.int64()),
        ("cells", pa.int64()),
        ("repeated", pa.int64()),
        ("repeated_ns", pa.int64()),
        ("no_arrivals", pa.int64()),
        ("early_arrivals", pa.int64()),
        ("last_arrival_ns", pa.int64()),
        ("first_ns", pa.int64()),
        ("last_ns", pa.int64()),
        ("stations", pa.list_(pa.string())),
        ("columns", pa.list_(pa.string())),
        ("unmapped", pa.list_(pa.string())),
    ]
)
"""Schema of the record of a staged chunk."""


@dataclass(frozen=True)
class StagedChunk:
    """Summary of a staged chunk."""

    number: int
    lines: int
    rows: int
    rejects: int
    """Number of rejected rows."""
    cells: int
    """Number of rejected cells of the other rows."""
    first_ns: int
    """First time stamp [ns since 1970 UTC]; 0 without rows."""
    last_ns: int
    """Last time stamp [ns since 1970 UTC]; 0 without rows."""
    stations: tuple[str, ...]
    columns: tuple[str, ...] | None = None
    """For long rows: columns parallel to `stations`, with one entry per pair."""
    unmapped: tuple[str, ...] = ()
    """For long rows: columns without a mapping."""
    repeated: int = 0
    """Number of readings with a time twice where clocks went back an hour."""
    repeated_ns: int = 0
    """First such time, by the clock [ns since 1970]; 0 without any."""
    no_arrivals: int = 0
    """Number of rows whose arrival, which a column holds, is unreadable."""
    early_arrivals: int = 0
    """Number of rows that arrived before their time stamp."""
    last_arrival_ns: int = 0
    """Last arrival in a column [ns since 1970 UTC]; 0 without any."""

    @classmethod
    def from_record(cls, record: dict[str, Any]) -> "StagedChunk":
        """Build a summary from a row of `SUMMARY`."""
        lists: dict[str, Any] = {name: tuple(value) for name, value in record.items() if isinstance(value, list)}
        return cls(**{**record, **lists})


def stage(chunk: Chunk, folder: Path) -> StagedChunk:
    """Parse a chunk and write its rows and rejects into the folder; idempotent."""
    parsed = parse(chunk)
    if len(parsed.code):
        _write(_table(parsed), _path(folder, "rows", chunk.number))
    if parsed.bad:
        columns = {name: [getattr(row, name) for row in parsed.bad] for name in BadRow.__dataclass_fields__}
        _write(pa.table(columns), _path(folder, "rejects", chunk.number))
    first, last = (int(parsed.time_ns.min()), int(parsed.time_ns.max())) if len(parsed.code) else (0, 0)
    stations, present = _present_columns(parsed)
    back = find_clock_back(parsed, chunk.layout)
    arrival_ns = np.empty(0, np.int64) if parsed.arrival_ns is None else parsed.arrival_ns
    known = arrival_ns > 0
    return StagedChunk(
        number=chunk.number,
        lines=parsed.lines,
        rows=len(parsed.code),
        rejects=sum(bad.rows for bad in parsed.bad),
        cells=sum(not bad.rows for bad in parsed.bad),
        first_ns=first,
        last_ns=last,
        stations=stations,
        columns=present,
        unmapped=parsed.unmapped,
        repeated=back.readings if back else 0,
        repeated_ns=back.at_ns if back else 0,
        no_arrivals=int(np.count_nonzero(~known)),
        early_arrivals=int(np.count_nonzero(arrival_ns[known] < parsed.time_ns[known])) if len(known) else 0,
        last_arrival_ns=int(arrival_ns.max(initial=0)),
    )


def _present_columns(parsed: Parsed) -> tuple[tuple[str, ...], tuple[str, ...] | None]:
    """Return the stations or, for long rows, each pair of station and column."""
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
    columns |= {f"{PREFIX}{name}": values for name, values in parsed.values.items()}
    return pa.table(columns | {f"{REFUSED}{name}": cells for name, cells in parsed.refused.items()})


def _labels(code: NDArray[np.int32], names: tuple[str, ...]) -> pa.Array:
    return pa.DictionaryArray.from_arrays(pa.array(code), pa.array(names, pa.string()))


def _write(table: pa.Table, path: Path) -> None:
    # If a task runs twice, its file must not be read half written.
    partial = path.with_suffix(".partial")
    pq.write_table(table, partial, row_group_size=ROW_GROUP, compression="lz4", use_dictionary=[STATION, COLUMN])
    partial.replace(path)


def _path(folder: Path, kind: Literal["rows", "rejects"], number: int) -> Path:
    return folder / f"{kind}-{number:08d}.parquet"


def staged_rejects(staged: StagedChunk, folder: Path) -> Iterator[BadRow]:
    """Yield the rejected rows and cells of a chunk, by line."""
    if staged.rejects or staged.cells:
        for batch in pq.ParquetFile(_path(folder, "rejects", staged.number)).iter_batches(ROW_GROUP):
            for record in batch.to_pylist():
                yield BadRow(**record)


def staged_rows(staged: StagedChunk, folder: Path, window: Window) -> Parsed | None:
    """Return the rows of a chunk with stamps within the window, None if there are none."""
    if not staged.rows or staged.last_ns < window.start_ns or staged.first_ns >= window.stop_ns:
        return None
    whole = window.start_ns <= staged.first_ns and staged.last_ns < window.stop_ns
    inside = (pc.field(TIME) >= window.start_ns) & (pc.field(TIME) < window.stop_ns)
    table = pq.read_table(_path(folder, "rows", staged.number), filters=None if whole else inside)
    if not table.num_rows:
        return None
    table = table.unify_dictionaries().combine_chunks()
    values, refused = (
        {name.removeprefix(prefix): table[name].to_numpy() for name in table.column_names if name.startswith(prefix)}
        for prefix in (PREFIX, REFUSED)
    )
    stations, code = _unlabelled(table[STATION])
    names, name_code = _unlabelled(table[COLUMN]) if COLUMN in table.column_names else ((), None)
    arrival_ns = table[ARRIVAL].to_numpy() if ARRIVAL in table.column_names else None
    time_ns = table[TIME].to_numpy()
    flags = table[FLAG].to_numpy() if FLAG in table.column_names else None
    return Parsed(
        stations, code, time_ns, values, (), staged.lines, names, name_code,
        arrival_ns=arrival_ns, flags=flags, refused=refused,
    )  # fmt: skip


def _unlabelled(column: pa.ChunkedArray) -> tuple[tuple[str, ...], NDArray[np.int32]]:
    labels = column.chunk(0)
    code = labels.indices.to_numpy(zero_copy_only=False).astype(np.int32, copy=False)
    return tuple(labels.dictionary.to_pylist()), code


Span = tuple[int, int, int]
"""First and last stamp of some values [ns since 1970 UTC], and their number."""


def windows(spans: Iterable[Span], *, maximum: int, chunks_ns: tuple[int, int]) -> Sequence[Window]:
    """Split time into windows of about `maximum` values, if values are spread evenly within each span.

    Parameters
    ----------
    spans
        Spans of values; empty ones are ignored.
    chunks_ns
        Start of the archive's first chunk along time, and length of its chunks [ns]. Longer windows are aligned to
        chunks.
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
        # Aligned, so that no chunk is written twice.
        cuts = origin + (cuts - origin + length // 2) // length * length
    bounds = np.unique(np.concatenate([[first], np.clip(cuts, first, last), [last]])).tolist()
    return [Window(start, stop) for start, stop in zip(bounds[:-1], bounds[1:], strict=True)]


def _held_before(
    edges: NDArray[np.int64], starts: NDArray[np.int64], stops: NDArray[np.int64], counts: NDArray[np.int64]
) -> NDArray[np.float64]:
    # Between two edges the rate is constant: the sum over all spans that cover them.
    rate = np.zeros(len(edges))
    each = counts / (stops - starts)
    np.add.at(rate, np.searchsorted(edges, starts), each)
    np.subtract.at(rate, np.searchsorted(edges, stops), each)
    steps = np.cumsum(rate)[:-1] * np.diff(edges)
    return np.concatenate([np.zeros(1), np.cumsum(steps)])
