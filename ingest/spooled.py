"""Records of the spool to rows: parsed as files of the same feeds are, with the arrival that the spool knows."""

import pickle
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from hypergrid.errors import NotFound
from hypergrid.flags import NOT_EVALUATED
from hypergrid.store import Reject
from hypergrid.streams.elements import Station
from hypergrid.times import SECOND_NS
from hypergrid.units import Variable
from ingest.arrived import Arrived, Clock, Names, joined
from ingest.mapping import Column, Deployment, Feed
from ingest.parsers import FORMATS, BadRow, DocumentFormat, Format, Layout, Parsed, Unreadable
from ingest.parsers.messages import parse_texts
from ingest.parsers.table import VALUE, ReadOptions
from ingest.sources.spool import END, HEADER, MESSAGE, REFUSED, TICK, frames
from ingest.telling import column_of

MESSAGES: Final = "messages"
CHUNK_BYTES: Final = 8 << 20


@dataclass
class Piece:
    """What a span of the spool holds for one group of stations."""

    group: str
    rows: Arrived
    clock: Clock
    after: int = 0
    upto: int = 0
    """Its records are those with after < seq <= upto."""
    rejects: list[tuple[int, Reject]] = field(default_factory=list)
    """With the record that each came in."""
    rejected: int = 0
    """Readings that the rejected rows would have been."""
    stations: tuple[Station, ...] = ()
    """That tell where they stand."""
    variables: tuple[Variable, ...] = ()
    """That files tell."""
    unmapped: frozenset[str] = frozenset()
    """Columns that nothing maps."""

    def to_bytes(self) -> bytes:
        """Return it as bytes, for another process of this release."""
        return pickle.dumps({**vars(self), "rows": self.rows.to_bytes()}, protocol=5)

    @classmethod
    def from_bytes(cls, data: bytes) -> "Piece":
        """Return what `to_bytes` was called of."""
        content = pickle.loads(data)
        return cls(**{**content, "rows": Arrived.from_bytes(content["rows"])[0]})


def merged(pieces: Sequence[Piece]) -> Piece:
    """Return the pieces of one group as one, ordered by their records; at least one."""
    ordered = sorted(pieces, key=lambda piece: piece.after)
    names = Names()
    rows = joined([names.counted(piece.rows) for piece in ordered])
    clocks = [piece.clock for piece in ordered]
    clock = Clock(*(np.concatenate([getattr(one, name) for one in clocks]) for name in ("seq", "clock_ns", "is_end")))
    found = {station.id: station for piece in ordered for station in piece.stations}
    return Piece(
        ordered[0].group,
        rows,
        clock,
        ordered[0].after,
        ordered[-1].upto,
        [pair for piece in ordered for pair in piece.rejects],
        sum(piece.rejected for piece in ordered),
        tuple(found.values()),
        tuple({one.name: one for piece in ordered for one in piece.variables}.values()),
        frozenset().union(*(piece.unmapped for piece in ordered)),
    )


def groups_of(deployment: Deployment) -> tuple[str, ...]:
    """Return the names of the groups of stations whose slices are assembled together."""
    by_feed = deployment.stream.join == "feed"
    return tuple(feed.name for feed in deployment.feeds) if by_feed else (deployment.name,)


def expected(deployment: Deployment, group: str) -> tuple[tuple[str, str], ...]:
    """Return feeds and stations that a group waits for from its beginning: those declared, where one feed has all."""
    feeds = [feed.name for feed in deployment.feeds]
    return tuple((feeds[0], station.id) for station in deployment.stations) if len(feeds) == 1 else ()


def parse_span(folder: Path, after: int, upto: int, deployment: Deployment) -> list[Piece]:
    """Parse the records of a spool with after < seq <= upto into a piece for each group."""
    found = parse_records(frames(folder, after, upto), deployment)
    return [replace(piece, after=after, upto=upto) for piece in found]


def parse_records(batches: Iterable[pa.RecordBatch], deployment: Deployment) -> list[Piece]:
    """Parse records of the spool, in their order, into a piece for each group; the pieces' spans are not set."""
    reading = _Reading(deployment)
    for batch in batches:
        reading.add(batch)
    clock = reading.clock()
    pieces: list[Piece] = []
    for group in groups_of(deployment):
        together = deployment.stream.join == "network"
        feeds = [feed.name for feed in deployment.feeds if together or feed.name == group]
        # What no feed of this deployment reads is refused once, in the first group.
        unknown = [name for name in reading.found if name not in {one.name for one in deployment.feeds}]
        mine = [*feeds, *(unknown if not pieces else [])]
        pieces.append(reading.piece(group, mine, clock))
    return pieces


@dataclass
class _Found:
    """What came of one feed."""

    rows: list[Arrived] = field(default_factory=list)
    rejects: list[tuple[int, Reject]] = field(default_factory=list)
    rejected: int = 0
    stations: dict[str, Station] = field(default_factory=dict)
    variables: dict[str, Variable] = field(default_factory=dict)
    unmapped: set[str] = field(default_factory=set)


class _Reading:
    """Records of the spool, as they are read."""

    def __init__(self, deployment: Deployment) -> None:
        self._feeds = {feed.name: feed for feed in deployment.feeds}
        self._shifts = {station: round(hours * 3600 * SECOND_NS) for station, hours in deployment.quality.clock_shift_h}
        self._clocks: list[tuple[int, int, bool]] = []
        self.found: dict[str, _Found] = {}

    def add(self, batch: pa.RecordBatch) -> None:
        """Read a batch of records."""
        kind = batch.column("kind").to_numpy()
        seq, arrival_ns = (batch.column(name).to_numpy() for name in ("seq", "arrival_ns"))
        for place in np.flatnonzero((kind == TICK) | (kind == END)).tolist():
            self._clocks.append((int(seq[place]), int(arrival_ns[place]), bool(kind[place] == END)))
        feeds = batch.column("feed")
        codes, names = feeds.indices.to_numpy(), feeds.dictionary.to_pylist()
        holds = (kind == MESSAGE) | (kind == HEADER) | (kind == REFUSED)
        for code, name in enumerate(names):
            mine = np.flatnonzero(holds & (codes == code))
            if len(mine):
                chosen = batch.take(pa.array(mine))
                self._feed(name, chosen)

    def _feed(self, name: str, batch: pa.RecordBatch) -> None:
        found = self.found.setdefault(name, _Found())
        feed = self._feeds.get(name)
        records = batch.select(["seq", "arrival_ns", "origin", "place", "kind", "payload"]).to_pydict()
        rows = list(zip(*records.values(), strict=True))
        plain: list[tuple[int, int, str, int, bytes]] = []
        header = b""
        for seq, arrival_ns, origin, place, kind, payload in rows:
            if kind == HEADER:
                header = payload
            elif kind == REFUSED:
                reason, _, text = payload.decode("utf-8", "replace").partition("\n")
                _refuse(found, seq, Reject(origin, max(0, place), "", text, reason))
            elif feed is None:
                reason = f"no such feed: {name!r} is none of the deployment"
                _refuse(found, seq, Reject(origin, max(0, place), "", payload[:200].decode("utf-8", "replace"), reason))
            elif feed.format == MESSAGES:
                plain.append((seq, arrival_ns, origin, place, payload))
            else:
                self._lines(found, feed, (seq, arrival_ns, origin, place, payload), header)
                header = b""
        if plain and feed is not None:
            self._messages(found, feed, plain)

    def _messages(self, found: _Found, feed: Feed, records: list[tuple[int, int, str, int, bytes]]) -> None:
        numbered: list[tuple[int, int]] = []
        """Of each message, its record and its line in it."""

        def texts() -> Iterator[tuple[int, bytes, str]]:
            for number, (_, _, topic, first, payload) in enumerate(records):
                station = _topic_station(feed, topic)
                for line, text in enumerate(payload.split(b"\n") if first > 0 else (payload,)):
                    if text.strip():
                        numbered.append((number, line))
                        yield len(numbered), text, station

        parsed, stations = parse_texts(texts(), feed.options, lines=len(records))
        found.stations |= {station.id: station for station in stations}
        found.unmapped |= set(parsed.unmapped)
        for bad in parsed.bad:
            number, line = numbered[bad.line - 1]
            refused, _, origin, place, _ = records[number]
            _refuse(found, refused, Reject(origin, place + line if place > 0 else 0, bad.column, bad.text, bad.reason))
        if not len(parsed.code) or parsed.line is None:
            return
        record = np.array([number for number, _ in numbered], np.int64)[parsed.line - 1]
        seq, arrival_ns = (np.array([one[place] for one in records], np.int64) for place in (0, 1))
        columns = tuple(feed.column(name) for name in parsed.names)
        found.rows.append(self._rows(feed, columns, parsed, seq[record], arrival_ns[record]))

    def _lines(self, found: _Found, feed: Feed, record: tuple[int, int, str, int, bytes], header: bytes) -> None:
        seq, arrival_ns, origin, place, payload = record
        try:
            if isinstance(FORMATS[feed.format], DocumentFormat):
                layout, parts = _document(feed, origin, payload)
            else:
                layout, parts = _text(feed, origin, header, payload)
        except (Unreadable, NotFound) as error:
            _refuse(found, seq, Reject(origin, max(0, place), "", "", str(error)))
            return
        told = layout.told
        found.stations |= {station.id: station for station in told.stations}
        found.variables |= {one.variable.name: one.variable for one in told.columns.values() if one.variable}
        lines = 0
        for parsed in parts:
            columns = tuple(column_of(feed, layout, name) for name in (parsed.names if layout.long else layout.wanted))
            width = 1 if layout.long else max(1, len(columns))
            found.unmapped |= {*parsed.unmapped, *layout.ignored}
            for bad in parsed.bad:
                line = max(1, place) + lines + bad.line - 1
                _refuse(found, seq, _reject(origin, line, bad), width)
            lines += parsed.lines
            size = len(parsed.code)
            if size:
                found.rows.append(self._rows(feed, columns, parsed, np.full(size, seq), np.full(size, arrival_ns)))

    def _rows(
        self,
        feed: Feed,
        columns: tuple[Column, ...],
        parsed: Parsed,
        seq: NDArray[np.int64],
        came_ns: NDArray[np.int64],
    ) -> Arrived:
        """Return parsed rows as they arrived; long ones of one record, station and instant are one row."""
        size = len(parsed.code)
        told_ns = parsed.arrival_ns
        arrival_ns = came_ns if told_ns is None else np.where(told_ns > 0, told_ns, came_ns)
        counter = np.full(size, -1, np.int64) if parsed.counter is None else parsed.counter
        time_ns = parsed.time_ns
        if not self._shifts.keys().isdisjoint(parsed.stations):
            time_ns = time_ns + np.array([self._shifts.get(one, 0) for one in parsed.stations], np.int64)[parsed.code]
        flag = np.full(size, NOT_EVALUATED, np.uint8) if parsed.flags is None else parsed.flags
        origins = tuple((feed.name, station) for station in parsed.stations)
        named = tuple((feed.name, column) for column in columns)
        if parsed.which is None:
            names = list(parsed.values)
            number = {column.name: place for place, column in enumerate(columns)}
            first, width = np.arange(size), len(names)
            column = np.tile(np.array([number[name] for name in names], np.int32), size)
            value = np.stack([parsed.values[name] for name in names], axis=1).ravel() if names else np.empty(0)
            flag, stops = np.repeat(flag, width), np.arange(1, size + 1) * width
        else:
            line = np.arange(size) if parsed.line is None else parsed.line
            keys = (line, seq, parsed.code, time_ns, arrival_ns, counter)
            differs = np.logical_or.reduce([key[1:] != key[:-1] for key in keys])
            first = np.concatenate([[0], np.flatnonzero(differs) + 1]) if size else np.empty(0, np.intp)
            column, value = parsed.which, parsed.values[VALUE]
            stops = np.concatenate([first[1:], [size]]).astype(np.int64) if size else np.empty(0, np.int64)
        return Arrived(
            origins, named, seq[first], came_ns[first], arrival_ns[first], time_ns[first],
            parsed.code[first].astype(np.int32), counter[first], stops, column.astype(np.int32), value, flag,
        )  # fmt: skip

    def clock(self) -> Clock:
        """Return the ticks and ends so far."""
        seq, clock_ns, is_end = zip(*sorted(self._clocks), strict=True) if self._clocks else ((), (), ())
        return Clock(np.array(seq, np.int64), np.array(clock_ns, np.int64), np.array(is_end, np.bool_))

    def piece(self, group: str, feeds: Sequence[str], clock: Clock) -> Piece:
        """Return what came of some feeds."""
        mine = [self.found[name] for name in feeds if name in self.found]
        names = Names()
        rows = joined([Arrived.nothing(), *(names.counted(part) for one in mine for part in one.rows)])
        rows = rows.take(np.argsort(rows.seq, kind="stable"))
        rejects = sorted((pair for one in mine for pair in one.rejects), key=lambda pair: pair[0])
        return Piece(
            group,
            rows,
            clock,
            rejects=rejects,
            rejected=sum(one.rejected for one in mine),
            stations=tuple(station for one in mine for station in one.stations.values()),
            variables=tuple(variable for one in mine for variable in one.variables.values()),
            unmapped=frozenset().union(*(one.unmapped for one in mine)),
        )


def _refuse(found: _Found, seq: int, reject: Reject, readings: int = 1) -> None:
    found.rejects.append((seq, reject))
    found.rejected += readings


def _reject(origin: str, line: int, bad: BadRow) -> Reject:
    return Reject(origin, line, bad.column, bad.text, bad.reason)


def _text(feed: Feed, origin: str, header: bytes, payload: bytes) -> tuple[Layout, list[Parsed]]:
    """Parse whole lines of a file, or of a message."""
    form = FORMATS[feed.format]
    assert isinstance(form, Format)
    whole = header + payload if payload.endswith(b"\n") else header + payload + b"\n"
    layout = form.layout(whole, Path(origin).name, _options(feed, origin))
    return layout, [form.parse(whole[layout.data_start :], layout, last=False)]


def _options(feed: Feed, origin: str) -> ReadOptions:
    """Return how to read what came under a topic: it names the station where nothing else does."""
    station = _topic_station(feed, origin)
    return replace(feed.options, text=replace(feed.options.text, station=station)) if station else feed.options


def _document(feed: Feed, origin: str, payload: bytes) -> tuple[Layout, list[Parsed]]:
    """Parse a whole file of a format without lines."""
    form = FORMATS[feed.format]
    assert isinstance(form, DocumentFormat)
    with tempfile.TemporaryDirectory(prefix="hypergrid-") as folder:
        path = Path(folder) / (Path(origin).name or "document")
        path.write_bytes(payload)
        layout = form.layout(path, feed.options)
        bounds = form.cut(path, layout, CHUNK_BYTES)
        pairs = zip(bounds[:-1], bounds[1:], strict=True)
        return layout, [form.parse(path, layout, start, stop) for start, stop in pairs]


def _topic_station(feed: Feed, origin: str) -> str:
    """Return the station that a topic names; empty where it names none."""
    return feed.topic.station(origin) if feed.topic is not None else ""
