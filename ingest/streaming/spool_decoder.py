"""Decode spool records into batches of rows with the batch parsers, keeping their arrival times."""

import json
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from hypergrid.archive import Reject
from hypergrid.core.clock_errors import ClockErrors
from hypergrid.core.errors import NotFound
from hypergrid.core.flags import NOT_EVALUATED
from hypergrid.core.readings import Station
from hypergrid.core.units import Variable
from ingest.batch.plan import column_of
from ingest.deployment.deployment_file import Column, Deployment, DeploymentVersion, Feed, split_by_version
from ingest.formats import FORMATS, DocumentFormat, Layout, Parsed, Unreadable
from ingest.formats.base import TEXT_MOST, VALUE, ReadOptions
from ingest.formats.messages import parse_texts
from ingest.sources.folder import (
    HEAD_BYTES,
    SourceFile,
    cut,
    decompress_to,
    discover,
    is_packed,
    is_single_packed,
    layout_of,
    list_members,
    parse,
)
from ingest.sources.spool import END, HEADER, MESSAGE, REFUSED, TICK, SpoolRecord, frames

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

    def __reduce__(self) -> tuple[Callable[[bytes], "RowBatch"], tuple[bytes]]:
        # Compressed, for another process of this run; never stored, as reading what is kept must not execute code.
        return _unpickle_rows, (self.to_bytes(),)

    @property
    def readings(self) -> int:
        return len(self.value)

    @property
    def nbytes(self) -> int:
        """Size of all arrays [bytes]."""
        return sum(getattr(self, name).nbytes for name in (*_ROWS, "stops", *_READINGS))

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
        shifts = self.starts[chosen] - (stops - sizes)
        total = int(stops[-1]) if len(stops) else 0
        readings: dict[str, Any] = {name: np.empty(total, getattr(self, name).dtype) for name in _READINGS}
        for first in range(0, len(chosen), TAKEN_TOGETHER):
            part = slice(first, first + TAKEN_TOGETHER)
            span = slice(int(stops[first] - sizes[first]), int(stops[part][-1]))
            inner = np.repeat(shifts[part], sizes[part]) + np.arange(span.start, span.stop)
            for name, column in readings.items():
                column[span] = getattr(self, name)[inner]
        return replace(self, **{name: getattr(self, name)[chosen] for name in _ROWS}, stops=stops, **readings)

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


def _unpickle_rows(data: bytes) -> RowBatch:
    return RowBatch.from_bytes(data)[0]


@dataclass(frozen=True, eq=False)
class ClockTicks:
    """Spool records without rows: ticks of the clock, and ends of the input."""

    seq: NDArray[np.int64]
    """Sequence number of each record, ascending, shape (t,)."""
    clock_ns: NDArray[np.int64]
    """Time of each tick [ns since 1970 UTC], shape (t,)."""
    is_end: NDArray[np.bool_]
    """Whether the input ends here and all held rows are emitted; shape (t,)."""


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


CHUNK_BYTES: Final = 8 << 20
PARSED_TOGETHER: Final = 2048
"""Messages parsed at a time: as Python's own objects their readings take twenty times the memory of their rows."""
TAKEN_TOGETHER: Final = 1 << 14
"""Rows copied at a time: indices of their readings take nearly as much memory as the readings."""


@dataclass
class DecodedPiece:
    """Decoded rows of a span of the spool for one group of stations."""

    group: str
    rows: RowBatch
    clock: ClockTicks
    after: int = 0
    upto: int = 0
    """The span has the records with after < seq <= upto."""
    rejects: list[tuple[int, Reject]] = field(default_factory=list)
    """Rejects, each with the number of its record."""
    rejected: int = 0
    """Number of readings that the rejected rows would have been."""
    stations: tuple[Station, ...] = ()
    """Stations whose positions the records give."""
    variables: tuple[Variable, ...] = ()
    """Variables defined by files."""
    clock_errors: ClockErrors = field(default_factory=dict)
    """Clock errors by station, of the deployment that reads the records."""


def merge_pieces(pieces: Sequence[DecodedPiece]) -> DecodedPiece:
    """Merge the pieces of one group, ordered by their records; at least one."""
    ordered = sorted(pieces, key=lambda piece: piece.after)
    names = Dictionary()
    rows = concatenate_batches([names.encode(piece.rows) for piece in ordered])
    clocks = [piece.clock for piece in ordered]
    clock = ClockTicks(
        *(np.concatenate([getattr(clock, name) for clock in clocks]) for name in ("seq", "clock_ns", "is_end"))
    )
    stations = {station.id: station for piece in ordered for station in piece.stations}
    return DecodedPiece(
        ordered[0].group,
        rows,
        clock,
        ordered[0].after,
        ordered[-1].upto,
        [pair for piece in ordered for pair in piece.rejects],
        sum(piece.rejected for piece in ordered),
        tuple(stations.values()),
        tuple({variable.name: variable for piece in ordered for variable in piece.variables}.values()),
        {station: history for piece in ordered for station, history in piece.clock_errors.items()},
    )


def groups_of(deployment: Deployment) -> tuple[str, ...]:
    """Return the names of the groups of stations whose slices are assembled together."""
    by_feed = deployment.stream.join == "feed"
    return tuple(feed.name for feed in deployment.feeds) if by_feed else (deployment.name,)


def expected_origins(deployment: Deployment) -> tuple[tuple[str, str], ...]:
    """Return the feeds and stations that a group waits for at first.

    These are the declared stations, if there is only one feed.
    """
    feeds = [feed.name for feed in deployment.feeds]
    return tuple((feeds[0], station.id) for station in deployment.stations) if len(feeds) == 1 else ()


def parse_span(folder: Path, after: int, upto: int, deployment: Deployment) -> list[DecodedPiece]:
    """Parse spool records with after < seq <= upto into a piece per group."""
    pieces = parse_records(frames(folder, after, upto), deployment)
    return [replace(piece, after=after, upto=upto) for piece in pieces]


def parse_by_version(
    spool: Path, after: int, upto: int, versions: list[DeploymentVersion]
) -> Iterator[list[DecodedPiece]]:
    """Parse spool records with after < seq <= upto by their deployments, into pieces per group.

    A replay therefore reads as before. Groups that only earlier deployments have get pieces that close what they hold.
    """
    for start, stop, deployment in split_by_version(versions, after, upto):
        pieces = parse_span(spool, start, stop, deployment)
        before = [name for version in versions if version.first <= stop for name in groups_of(version.deployment)]
        gone = dict.fromkeys(name for name in before if name not in groups_of(deployment))
        clock = pieces[0].clock
        # Before the first tick there is no time at which to close them.
        closing = ClockTicks(clock.seq[:1], clock.clock_ns[:1], np.ones(min(1, len(clock.seq)), np.bool_))
        yield [*pieces, *(DecodedPiece(name, RowBatch.empty(), closing, start, stop) for name in gone)]


def parse_records(batches: Iterable[pa.RecordBatch], deployment: Deployment) -> list[DecodedPiece]:
    """Parse spool records, in order, into a piece per group, without span."""
    reading = _SpanDecoder(deployment)
    for batch in batches:
        reading.add(batch)
    clock = reading.clock()
    pieces: list[DecodedPiece] = []
    for group in groups_of(deployment):
        together = deployment.stream.join == "network"
        feeds = [feed.name for feed in deployment.feeds if together or feed.name == group]
        # Records of feeds that this deployment lacks are rejected once, in the first group.
        unknown = [name for name in reading.feed_rows if name not in {feed.name for feed in deployment.feeds}]
        group_feeds = [*feeds, *(unknown if not pieces else [])]
        pieces.append(reading.piece(group, group_feeds, clock))
    return pieces


def _excerpt(record: SpoolRecord) -> str:
    return record.payload[:TEXT_MOST].decode("utf-8", "replace")


def _follows(record: SpoolRecord, before: SpoolRecord) -> bool:
    """Tell whether the lines of a record directly follow those of another one of the same file."""
    # A last line without a line end is sent again once it has one.
    whole = before.position > 0 and before.payload.endswith(b"\n")
    return whole and record.position == before.position + before.payload.count(b"\n")


@dataclass
class _FeedRows:
    """Decoded rows and rejects of one feed."""

    rows: list[RowBatch] = field(default_factory=list)
    rejects: list[tuple[int, Reject]] = field(default_factory=list)
    rejected: int = 0
    stations: dict[str, Station] = field(default_factory=dict)
    variables: dict[str, Variable] = field(default_factory=dict)

    def add(self, other: "_FeedRows") -> None:
        self.rows += other.rows
        self.rejects += other.rejects
        self.rejected += other.rejected
        self.stations |= other.stations
        self.variables |= other.variables


class _SpanDecoder:
    """Accumulates the decoded records of a span."""

    def __init__(self, deployment: Deployment) -> None:
        self._deployment = deployment
        self._feeds = {feed.name: feed for feed in deployment.feeds}
        self._clocks: list[tuple[int, int, bool]] = []
        self.feed_rows: dict[str, _FeedRows] = {}

    def add(self, batch: pa.RecordBatch) -> None:
        """Decode a batch of records."""
        kind = batch.column("kind").to_numpy()
        seq, arrival_ns = (batch.column(name).to_numpy() for name in ("seq", "arrival_ns"))
        for row in np.flatnonzero((kind == TICK) | (kind == END)).tolist():
            self._clocks.append((int(seq[row]), int(arrival_ns[row]), bool(kind[row] == END)))
        feeds = batch.column("feed")
        codes, names = feeds.indices.to_numpy(), feeds.dictionary.to_pylist()
        holds = (kind == MESSAGE) | (kind == HEADER) | (kind == REFUSED)
        for code, name in enumerate(names):
            indices = np.flatnonzero(holds & (codes == code))
            if len(indices):
                chosen = batch.take(pa.array(indices))
                self._feed(name, chosen)

    def _feed(self, name: str, batch: pa.RecordBatch) -> None:
        feed_rows = self.feed_rows.setdefault(name, _FeedRows())
        feed = self._feeds.get(name)
        plain: list[SpoolRecord] = []
        lines: dict[tuple[str, bytes], list[list[SpoolRecord]]] = {}
        header = b""
        for record in SpoolRecord.from_batch(batch):
            _, _, origin, payload, position, kind, seq = record
            if kind == HEADER:
                header = payload
                continue
            if kind == REFUSED:
                reason, _, text = payload.decode("utf-8", "replace").partition("\n")
                _refuse(feed_rows, seq, Reject(origin, max(0, position), "", text, reason))
            elif feed is None:
                reason = f"no such feed: {name!r} is none of the deployment"
                _refuse(feed_rows, seq, Reject(origin, max(0, position), "", _excerpt(record), reason))
            # Position 0 is a whole file; positive ones are line numbers.
            elif position == 0:
                self._quarantine_failures(feed, [record], lambda records: self._file(feed, records[0]))
            elif feed.format == "messages":
                plain.append(record)
            else:
                runs = lines.setdefault((origin, header), [])
                # At most 128 records are parsed together; each but the first has at most `HEAD_BYTES`.
                if runs and len(runs[-1]) < 128 and len(payload) <= HEAD_BYTES and _follows(record, runs[-1][-1]):
                    runs[-1].append(record)
                else:
                    runs.append([record])
            header = b""
        if feed is None:
            return
        for first in range(0, len(plain), PARSED_TOGETHER):
            together = plain[first : first + PARSED_TOGETHER]
            self._quarantine_failures(feed, together, lambda records: {feed.name: self._messages(feed, records)})
        for (_, above), runs in lines.items():
            for run in runs:
                self._quarantine_failures(
                    feed,
                    run,
                    lambda records, above=above: {feed.name: self._lines(feed, records, above)},  # type: ignore[misc]
                )

    def _quarantine_failures(
        self, feed: Feed, records: list[SpoolRecord], read: Callable[[list[SpoolRecord]], dict[str, _FeedRows]]
    ) -> None:
        """Add the rows that `read` returns, by feed; reject records on which it fails."""
        # An error would recur with the same records and block everything after them, so it costs one record, not the
        # stream.
        try:
            parts = read(records)
        except Exception as error:
            if isinstance(error, MemoryError) or (isinstance(error, OSError) and error.errno is not None):
                # A fault of the machine, not of the data.
                raise
            if len(records) > 1:
                for record in records:
                    self._quarantine_failures(feed, [record], read)
                return
            (record,) = records
            known = isinstance(error, Unreadable | NotFound)
            reason = str(error) if known else f"unreadable: {type(error).__name__}: {str(error)[:200]!a}"
            text = "" if known else _excerpt(record)
            _refuse(
                self.feed_rows[feed.name], record.seq, Reject(record.origin, max(0, record.position), "", text, reason)
            )
            return
        for name, part in parts.items():
            self.feed_rows.setdefault(name, _FeedRows()).add(part)

    def _messages(self, feed: Feed, records: list[SpoolRecord]) -> _FeedRows:
        feed_rows = _FeedRows()
        numbered: list[tuple[int, int]] = []
        """Record and line of each message."""

        def texts() -> Iterator[tuple[int, bytes, str]]:
            for number, record in enumerate(records):
                station = _topic_station(feed, record.origin)
                for line, text in enumerate(record.payload.split(b"\n") if record.position > 0 else (record.payload,)):
                    if text.strip():
                        numbered.append((number, line))
                        yield len(numbered), text, station

        parsed, stations = parse_texts(texts(), feed.options, lines=len(records))
        feed_rows.stations |= {station.id: station for station in stations}
        for bad in parsed.bad:
            number, line = numbered[bad.line - 1]
            record = records[number]
            line = record.position + line if record.position > 0 else 0
            _refuse(feed_rows, record.seq, Reject(record.origin, line, bad.column, bad.text, bad.reason))
        if len(parsed.code) and parsed.line is not None:
            record_index = np.array([number for number, _ in numbered], np.int64)[parsed.line - 1]
            seq, arrival_ns = (
                np.array(column, np.int64)
                for column in zip(*((record.seq, record.arrival_ns) for record in records), strict=True)
            )
            columns = tuple(feed.column(name) for name in parsed.names)
            feed_rows.rows.append(self._rows(feed, columns, parsed, seq[record_index], arrival_ns[record_index]))
        return feed_rows

    def _lines(self, feed: Feed, records: list[SpoolRecord], header: bytes) -> _FeedRows:
        """Parse records whose lines follow one another in a file, or a message.

        Their layout is determined from all of them, as from the beginning of a file.
        """
        feed_rows, form, first = _FeedRows(), FORMATS[feed.format], records[0]
        if isinstance(form, DocumentFormat):
            for record in records:
                layout, parts = _document(form, feed, record)
                self._add_parsed(feed_rows, feed, layout, parts, [record], line=max(1, record.position))
            return feed_rows
        head = header
        for record in records:
            head += record.payload
            # No more is needed to detect the layout.
            if len(head) >= HEAD_BYTES:
                break
        layout = form.layout(
            head if head.endswith(b"\n") else head + b"\n", Path(first.origin).name, _options(feed, first)
        )
        within = max(0, layout.data_start - len(header))
        lines = header[layout.data_start :] + b"".join(record.payload for record in records)[within:]
        parsed = form.parse(lines if lines.endswith(b"\n") else lines + b"\n", layout, last=False)
        if len(records) > 1 and (layout.data_start != len(header) or parsed.lines != sum(map(_lines_of, records))):
            # Rows cannot be attributed to their records: `_quarantine_failures` then parses each record alone.
            raise Unreadable("lines of several records that are not their own")
        above = first.payload.count(b"\n", 0, within)
        self._add_parsed(feed_rows, feed, layout, [parsed], records, line=max(1, first.position) + above)
        return feed_rows

    def _file(self, feed: Feed, record: SpoolRecord) -> dict[str, _FeedRows]:
        """Parse a whole file like a batch ingest, unpacked and as plain lines; return rows by feed."""
        parts: dict[str, _FeedRows] = {}
        with tempfile.TemporaryDirectory(prefix="hypergrid-") as scratch:
            path = Path(scratch) / "file" / _file_name(record.origin)
            path.parent.mkdir()
            path.write_bytes(record.payload)
            for file in _packed(path, feed, self._deployment):
                file_feed, feed_rows = self._feeds[file.feed], parts.setdefault(file.feed, _FeedRows())
                inner = record._replace(origin=(Path(record.origin).parent / file.name).as_posix())
                try:
                    plain = decompress_to(file, file_feed, Path(scratch))
                    layout = layout_of(plain, file_feed)
                    chunks = cut(plain, 0, layout, file_feed.format, chunk_bytes=CHUNK_BYTES, first=0)
                    parsed = map(parse, chunks)
                    self._add_parsed(feed_rows, file_feed, layout, parsed, [inner], line=layout.lines_before + 1)
                # One damaged member must not reject the others.
                except (Unreadable, NotFound) as error:
                    _refuse(feed_rows, record.seq, Reject(inner.origin, 0, "", "", str(error)))
        return parts

    def _add_parsed(
        self,
        feed_rows: _FeedRows,
        feed: Feed,
        layout: Layout,
        parts: Iterable[Parsed],
        records: list[SpoolRecord],
        *,
        line: int,
    ) -> None:
        """Add the parsed parts of one record, or the only part of several.

        Their first row is `line` of the file.
        """
        metadata = layout.metadata
        seq, came_ns = (
            np.array(column, np.int64) for column in zip(*((r.seq, r.arrival_ns) for r in records), strict=True)
        )
        stops = np.cumsum([_lines_of(record) for record in records])[:-1]
        feed_rows.stations |= {station.id: station for station in metadata.stations}
        feed_rows.variables |= {
            column.variable.name: column.variable for column in metadata.columns.values() if column.variable
        }
        for parsed in parts:
            columns = tuple(column_of(feed, layout, name) for name in (parsed.names if layout.long else layout.columns))
            width = 1 if layout.long else max(1, len(columns))
            for bad in parsed.bad:
                reject = Reject(records[0].origin, line + bad.line - 1, bad.column, bad.text, bad.reason)
                _refuse(feed_rows, int(seq[np.searchsorted(stops, bad.line)]), reject, bad.rows * width or 1)
            line += parsed.lines
            size = len(parsed.code)
            if size:
                record_index = np.zeros(size, np.intp)
                if len(records) > 1:
                    if parsed.line is None:
                        raise Unreadable("rows of several records without their lines")
                    record_index = np.searchsorted(stops, parsed.line)
                feed_rows.rows.append(self._rows(feed, columns, parsed, seq[record_index], came_ns[record_index]))

    def _rows(
        self,
        feed: Feed,
        columns: tuple[Column, ...],
        parsed: Parsed,
        seq: NDArray[np.int64],
        came_ns: NDArray[np.int64],
    ) -> RowBatch:
        """Return parsed rows with their arrivals, merging long-format rows of one record, station and instant."""
        size = len(parsed.code)
        told_ns = parsed.arrival_ns
        arrival_ns = came_ns if told_ns is None else np.where(told_ns > 0, told_ns, came_ns)
        counter = np.full(size, -1, np.int64) if parsed.counter is None else parsed.counter
        time_ns = self._deployment.quality.shift_times(parsed.stations, parsed.code, parsed.time_ns)
        flag = np.full(size, NOT_EVALUATED, np.uint8) if parsed.flags is None else parsed.flags
        origins = tuple((feed.name, station) for station in parsed.stations)
        named = tuple((feed.name, column) for column in columns)
        if parsed.name_code is None:
            names = list(parsed.values)
            number = {column.name: index for index, column in enumerate(columns)}
            first, width = np.arange(size), len(names)
            column = np.tile(np.array([number[name] for name in names], np.int32), size)
            value = np.stack([parsed.values[name] for name in names], axis=1).ravel() if names else np.empty(0)
            flag, stops = np.repeat(flag, width), np.arange(1, size + 1) * width
            if parsed.refused:
                no_cells = np.zeros(size, np.bool_)
                kept = ~np.stack([parsed.refused.get(name, no_cells) for name in names], axis=1)
                column, value, flag = column[kept.ravel()], value[kept.ravel()], flag[kept.ravel()]
                stops = np.cumsum(kept.sum(axis=1))
        else:
            line = np.arange(size) if parsed.line is None else parsed.line
            keys = (line, seq, parsed.code, time_ns, arrival_ns, counter)
            differs = np.logical_or.reduce([key[1:] != key[:-1] for key in keys])
            first = np.concatenate([[0], np.flatnonzero(differs) + 1]) if size else np.empty(0, np.intp)
            column, value = parsed.name_code, parsed.values[VALUE]
            stops = np.concatenate([first[1:], [size]]).astype(np.int64) if size else np.empty(0, np.int64)
        return RowBatch(
            origins, named, seq[first], came_ns[first], arrival_ns[first], time_ns[first],
            parsed.code[first].astype(np.int32), counter[first], stops, column.astype(np.int32), value, flag,
        )  # fmt: skip

    def clock(self) -> ClockTicks:
        """Return all ticks and ends so far, ordered by record."""
        seq, clock_ns, is_end = zip(*sorted(self._clocks), strict=True) if self._clocks else ((), (), ())
        return ClockTicks(np.array(seq, np.int64), np.array(clock_ns, np.int64), np.array(is_end, np.bool_))

    def piece(self, group: str, feeds: Sequence[str], clock: ClockTicks) -> DecodedPiece:
        """Build the piece of a group from its feeds."""
        group_rows = [self.feed_rows[name] for name in feeds if name in self.feed_rows]
        names = Dictionary()
        rows = concatenate_batches(
            [RowBatch.empty(), *(names.encode(part) for feed_rows in group_rows for part in feed_rows.rows)]
        )
        # Feeds were decoded one by one: restore the order of the spool.
        rows = rows.take(np.argsort(rows.seq, kind="stable"))
        rejects = sorted((pair for feed_rows in group_rows for pair in feed_rows.rejects), key=lambda pair: pair[0])
        return DecodedPiece(
            group,
            rows,
            clock,
            rejects=rejects,
            rejected=sum(feed_rows.rejected for feed_rows in group_rows),
            stations=tuple(station for feed_rows in group_rows for station in feed_rows.stations.values()),
            variables=tuple(variable for feed_rows in group_rows for variable in feed_rows.variables.values()),
            clock_errors=self._deployment.quality.clock_errors,
        )


def _refuse(feed_rows: _FeedRows, seq: int, reject: Reject, readings: int = 1) -> None:
    feed_rows.rejects.append((seq, reject))
    feed_rows.rejected += readings


def _lines_of(record: SpoolRecord) -> int:
    return record.payload.count(b"\n") + (not record.payload.endswith(b"\n"))


def _options(feed: Feed, record: SpoolRecord) -> ReadOptions:
    """Return the read options of a record; the station in its topic is the default station."""
    station = _topic_station(feed, record.origin)
    return replace(feed.options, text=replace(feed.options.text, station=station)) if station else feed.options


def _document(form: DocumentFormat, feed: Feed, record: SpoolRecord) -> tuple[Layout, list[Parsed]]:
    """Parse a message that is a document."""
    with tempfile.TemporaryDirectory(prefix="hypergrid-") as folder:
        path = Path(folder) / _file_name(record.origin)
        path.write_bytes(record.payload)
        layout = form.layout(path, feed.options)
        bounds = form.cut(path, layout, CHUNK_BYTES)
        pairs = zip(bounds[:-1], bounds[1:], strict=True)
        return layout, [form.parse(path, layout, start, stop) for start, stop in pairs]


def _file_name(origin: str) -> str:
    """Return the last part of a path or a topic as a valid file name."""
    name = Path(origin).name.replace("\0", "_").encode()[-255:].decode("utf-8", "ignore")
    return "document" if name in ("", "..") else name


def _packed(path: Path, feed: Feed, deployment: Deployment) -> Sequence[SourceFile]:
    """List the files in a packed file, or the file itself.

    Raises
    ------
    Unreadable
        The file is damaged.
    """
    if is_packed(path.name) and not is_single_packed(path.name):
        return discover([path], deployment).files
    inner = list_members(path)
    status = path.stat()
    member = inner[0] if inner else None
    return [SourceFile(path, path.name, feed.name, status.st_size, status.st_mtime_ns, member=member)]


def _topic_station(feed: Feed, origin: str) -> str:
    return feed.topic.station(origin) if feed.topic is not None else ""
