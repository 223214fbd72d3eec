"""Continuous queries over a stretch of an archive, with tables of the user beside it."""

import math
import re
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from hypergrid.continuous.algebra import Operator, RelationInput, StreamInput, list_leaves
from hypergrid.continuous.archive_catalogue import NEIGHBOURS, SERIES_OF_VARIABLE, STATIONS, list_streams
from hypergrid.continuous.columns import check_frame, instants_of
from hypergrid.continuous.engine import ChangeBatch, ContinuousEngine, ElementBatch, Texts
from hypergrid.continuous.engine.batch import PHYSICAL, Column
from hypergrid.continuous.expressions import GREATEST_INTEGER, NULL_INTEGER, Attributes
from hypergrid.continuous.frames import FrameSource, batch_of, frame_of, read_frames, rows_of
from hypergrid.continuous.language import explain_query, list_registered, parse_script
from hypergrid.continuous.limits import find_free_share, require_share
from hypergrid.continuous.partitioning import KeyColumns, KeyOptions, Partitioning, find_partitioning
from hypergrid.continuous.properties import emptied_after_ns
from hypergrid.continuous.records import ORDERS, SIGN, TAU, BoundQuery, StreamCatalogue
from hypergrid.continuous.result_order import sort_changes
from hypergrid.continuous.rewrite import Rewritten, rewrite
from hypergrid.continuous.sources import (
    ArchiveStreams,
    CodedTexts,
    SourceBatch,
    Stretch,
    check_table,
    list_demands,
    match_archive,
    neighbour_changes,
    read_table,
    station_changes,
    surface_changes,
)
from hypergrid.continuous.sources.demand import Demand
from hypergrid.continuous.surface_catalogue import NamedSurface, list_surfaces
from hypergrid.core.errors import InvalidQuery
from hypergrid.core.lazy_libraries import pd
from hypergrid.core.times import SECOND_NS, Window, parse_instant
from hypergrid.query import OpenArchive

if TYPE_CHECKING:
    import pandas

OnFraction = Callable[[float], None]


@dataclass(frozen=True)
class ArchiveInputs:
    """Archive, tables of the user, and what queries may name of both."""

    archive: OpenArchive
    tables: Mapping[str, "pandas.DataFrame"] = field(default_factory=dict)
    views: Mapping[str, str] = field(default_factory=dict)
    kept_surfaces: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    """Surfaces that stand for those of now (`list_surfaces`)."""

    @cached_property
    def of_archive(self) -> StreamCatalogue:
        return list_streams(self.archive, self.surfaces)

    def choose(self, text: str) -> tuple[StreamCatalogue, FrameSource, BoundQuery]:
        """Return the catalogue of a text of one query, its tables in the types that it registers, and the query.

        Raises
        ------
        InvalidQuery
            The text is not valid, or a table does not fit.
        """
        registered = list_registered(text)
        script = parse_script(text, self.list_inputs(text, registered))
        if len(script.queries) != 1:
            raise InvalidQuery(f"a text of one query is needed; got {len(script.queries)} queries")
        declared = {**script.catalogue.streams, **script.catalogue.relations}
        typed = {
            name: check_table(name, frame, declared[name]) if name in registered else frame
            for name, frame in self.tables.items()
        }
        tables = read_frames(typed, self.views)
        for name in registered & declared.keys():
            _check_form(name, script.catalogue, tables.catalogue)
        joined = replace(
            script.catalogue,
            static=script.catalogue.static | tables.catalogue.static,
            counts={**script.catalogue.counts, **tables.catalogue.counts},
        )
        return joined, tables, script.queries[0]

    @cached_property
    def surfaces(self) -> Mapping[str, NamedSurface]:
        """Surfaces of the archive by the name of their relation."""
        return list_surfaces(self.archive, self.kept_surfaces)

    def _refuse_unfit(self, text: str) -> None:
        """Raise `InvalidQuery` if a text names a surface that is no relation, with the reason."""
        words = set(re.findall(r"\w+", text))
        for name in (self.surfaces.keys() & words) - self.tables.keys():
            if problem := self.surfaces[name].problem:
                raise InvalidQuery(f"standing query {self.surfaces[name].title!r} is no relation {name}: {problem}")

    def list_inputs(self, text: str, registered: Collection[str]) -> StreamCatalogue:
        """Return what the statements of a text may name before any of them, without tables that they register.

        Raises
        ------
        InvalidQuery
            The text names a surface that is no relation, or a table does not fit.
        """
        self._refuse_unfit(text)
        free = {name: frame for name, frame in self.tables.items() if name not in registered}
        return self._join(read_frames(free, self.views))

    def _join(self, tables: FrameSource) -> StreamCatalogue:
        """Return the catalogue of the archive with tables; a relation of the user stands for one of the archive."""
        known, own = self.of_archive, tables.catalogue
        for name in (*own.streams, *own.relations):
            if name in known.streams:
                raise InvalidQuery(f"table {name!r} needs another name: the archive has a stream {name!r}")
        for name in own.views:
            if name in known.names:
                raise InvalidQuery(f"view {name!r} needs another name: the archive has a stream or relation {name!r}")
        relations = {name: part for name, part in known.relations.items() if name not in own.streams}
        return replace(
            known,
            streams={**known.streams, **own.streams},
            relations={**relations, **own.relations},
            views={**known.views, **own.views},
            static=(known.static - own.relations.keys()) | own.static,
            rates={**known.rates, **own.rates},
            counts={**known.counts, **own.counts},
            origins={name: text for name, text in known.origins.items() if name in relations.keys() - own.relations},
        )


def _check_form(name: str, declared: StreamCatalogue, given: StreamCatalogue) -> None:
    if name not in given.streams and name not in given.relations:
        raise InvalidQuery(
            f"{name!r} is registered, and has no rows: give a table of this name (tables={{{name!r}: …}}, or --table "
            f"{name}=FILE)"
        )
    if name in declared.streams and name not in given.streams:
        raise InvalidQuery(f"table {name!r} is registered as a stream, and needs the column {TAU!r} without {SIGN!r}")
    if name in declared.relations and name in given.streams:
        raise InvalidQuery(f"table {name!r} is registered as a relation, and needs no {TAU!r}, or {SIGN!r} beside it")


def open_inputs(
    archive: OpenArchive, tables: Mapping[str, Any] | None = None, views: Mapping[str, str] | None = None
) -> ArchiveInputs:
    """Return an archive and tables, frames or paths of CSV and Parquet files, as inputs of queries.

    Raises
    ------
    NotFound
        A file does not exist.
    InvalidQuery
        A table is none.
    """
    frames: dict[str, pandas.DataFrame] = {}
    for name, table in (tables or {}).items():
        if isinstance(table, str | Path):
            frames[name] = match_archive(name, read_table(name, Path(table)))
        elif isinstance(table, pd.DataFrame):
            check_frame(name, table)
            frames[name] = match_archive(name, table)
        else:
            raise InvalidQuery(
                f"table {name!r} needs a pandas.DataFrame, or the path of a CSV or Parquet file; got {table!r}"
            )
    return ArchiveInputs(archive, frames, dict(views or {}))


@dataclass(frozen=True, repr=False)
class ContinuousArchive:
    """Streams and relations of an archive and of tables."""

    inputs: ArchiveInputs

    def __repr__(self) -> str:
        archive, beside = self.inputs.archive, ", ".join((*self.inputs.tables, *self.inputs.views))
        names = f"{self.inputs.of_archive.summary}{f'; beside it {beside}' if beside else ''}"
        return f"{type(self).__name__}({archive.name}, snapshot {archive.snapshot}: {names})"

    def query(self, text: str) -> "ArchiveQuery":
        """Return a query in CQL.

        Raises
        ------
        InvalidQuery
            The text is not valid, and the message underlines where; or a table does not fit.
        """
        return ArchiveQuery(self.inputs, *self.inputs.choose(text))


@dataclass(frozen=True)
class QueryPart:
    """Part of the evaluation of a query over a stretch, which gives the whole result with the others."""

    read: Stretch
    """Elements that are read."""
    shown_ns: int
    """Results before this instant belong to another part."""
    firsts: Mapping[str, int] = field(default_factory=dict)
    """First instant of each input of the whole [ns], where the result depends on it."""
    keys: Mapping[str, KeyColumns] = field(default_factory=dict)
    """Keys by which rows are dealt; none: all rows are of this part."""
    number: int = 0
    count: int = 1


@dataclass(frozen=True, repr=False)
class ArchiveQuery:
    """Query over a stretch of an archive."""

    inputs: ArchiveInputs
    catalogue: StreamCatalogue
    tables: FrameSource
    bound: BoundQuery

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.bound.summary})"

    @cached_property
    def rewritten(self) -> Rewritten:
        """The tree that is run, and the rules that made it."""
        return rewrite(self.bound.tree, self.catalogue.static)

    def explain(self) -> str:
        """Return defaults, windows, rewriting, the tree and projected memory as text."""
        return explain_query(
            self.bound,
            rewritten=self.rewritten,
            rates=self.catalogue.rates,
            groups=self.catalogue.groups,
            partitions=self.partitioning.describe(),
            origins={name: self.catalogue.origins[name] for name in self.surfaces},
        )

    @cached_property
    def surfaces(self) -> tuple[str, ...]:
        """Names of the relations that are surfaces of the archive."""
        leaves = dict.fromkeys(part.name for part in list_leaves(self.bound.tree) if isinstance(part, RelationInput))
        return tuple(name for name in leaves if name in self.catalogue.origins.keys() - self.tables.frames.keys())

    def refuse_surfaces(self, remedy: str) -> None:
        """Raise `InvalidQuery` if the query reads a surface, with what to do instead."""
        if self.surfaces:
            raise InvalidQuery(f"{self.surfaces[0]} is computed in order of time, in one process; {remedy}")

    @cached_property
    def partitioning(self) -> Partitioning:
        """By what a back-test of the query can be split into tasks."""
        options = list_key_options(self.catalogue, self.inputs.of_archive, self.tables.frames)
        return find_partitioning(self.rewritten.tree, self.catalogue.static, options)

    def run(
        self,
        start: object = None,
        end: object = None,
        *,
        order: str = "time",
        allowed_bytes: int | None = None,
        progress: OnFraction | None = None,
    ) -> "pandas.DataFrame":
        """Return the changes of the relation, or the elements of the stream, over a stretch, in order of time.

        Windows are empty at the start of the stretch. Columns are `tau` (UTC), `sign` (+1: the row enters, -1: it
        leaves) and the select list; rows that leave at an instant come before those that enter.

        Parameters
        ----------
        start, end
            The stretch, its end excluded; None: from the first element to the last. Text or datetimes as in queries.
        order
            "time": an element has the instant at which it was complete; "arrival": that at which it arrived.
        allowed_bytes
            Memory that windows may take at mean rates [bytes]; half of what is free if absent.
        progress
            Called with the share of the stretch that is done.

        Raises
        ------
        InvalidQuery
            The stretch is empty, there is no such order, or windows need more memory.
        """
        self.check_memory(start, end, order=order, allowed_bytes=allowed_bytes)
        texts = Texts()
        batches: list[ChangeBatch] = []
        for changes, fraction in self.iterate_changes(texts, _whole(start, end, order)):
            batches += changes
            if progress is not None:
                progress(fraction)
        return self.tabulate(batches, texts)

    def iterate(
        self,
        start: object = None,
        end: object = None,
        *,
        order: str = "time",
        by_value: bool = False,
        allowed_bytes: int | None = None,
    ) -> Iterator[tuple["pandas.DataFrame", float]]:
        """Yield what `run` returns in parts, each with the share of the stretch that is done; memory stays bounded.

        Parameters
        ----------
        by_value
            Whether rows that leave at an instant, and those that enter, are in order of their values, as back-tests in
            tasks give them.
        allowed_bytes
            Memory that windows may take at mean rates [bytes]; half of what is free if absent.
        """
        self.check_memory(start, end, order=order, allowed_bytes=allowed_bytes)
        texts = Texts()
        for changes, fraction in self.iterate_changes(texts, _whole(start, end, order)):
            ordered = (
                [sort_changes(each, self.bound.tree.attributes, texts) for each in changes] if by_value else changes
            )
            yield self.tabulate(ordered, texts), fraction

    def check_memory(
        self, start: object = None, end: object = None, *, order: str = "time", allowed_bytes: int | None = None
    ) -> None:
        """Raise `InvalidQuery` if windows over a stretch need more memory than is allowed; says what would fit."""
        allowed = find_free_share() if allowed_bytes is None else allowed_bytes
        counts = self.count_elements(_make_stretch(start, end, order))
        require_share(self.rewritten.tree, self.catalogue.rates, allowed, counts, self.catalogue.groups)

    def count_elements(self, stretch: Stretch) -> dict[str, float]:
        """Return how many elements streams have in a stretch at most, at mean rates, by name."""
        # By arrival each version of a reading is an element, and only the last ones are counted.
        counts = dict(self.catalogue.counts) if stretch.order == "time" else {}
        if stretch.start_ns is not None and stretch.end_ns is not None:
            length_s = (stretch.end_ns - stretch.start_ns) / SECOND_NS
            for name, rate in self.catalogue.rates.items():
                counts[name] = min(rate * length_s, counts.get(name, math.inf))
        return counts

    def relation(
        self, tau: object, *, start: object = None, order: str = "time", allowed_bytes: int | None = None
    ) -> "pandas.DataFrame":
        """Return the rows of the relation at an instant.

        Parameters
        ----------
        allowed_bytes
            Memory that windows may take at mean rates [bytes]; half of what is free if absent.

        Raises
        ------
        InvalidQuery
            The query gives a stream, or windows need more memory.
        """
        if self.bound.tree.is_stream:
            raise InvalidQuery("only a query that gives a relation has rows at an instant; this one gives a stream")
        after = np.datetime64(read_instant(tau) + 1, "ns")
        self.check_memory(start, after, order=order, allowed_bytes=allowed_bytes)
        texts = Texts()
        part = _whole(start, after, order)
        batches = [batch for changes, _ in self.iterate_changes(texts, part) for batch in changes]
        return _localise(rows_of(batches, self.bound.tree.attributes, texts))

    def tabulate(self, batches: list[ChangeBatch], texts: Texts | None = None) -> "pandas.DataFrame":
        """Return changes as `run` does."""
        texts = Texts() if texts is None else texts
        return _localise(frame_of(batches, self.bound.tree.attributes, texts, has_datetimes=True))

    def iterate_changes(self, texts: Texts, part: QueryPart) -> Iterator[tuple[list[ChangeBatch], float]]:
        """Yield the results of a part, each time with the share of it that is done."""
        tree = self.rewritten.tree
        streams = self._open(tree, part)
        window = streams.window
        engine = ContinuousEngine(tree, texts)
        encoder = SourceEncoder(texts)
        leaves = list_leaves(tree)
        for leaf in leaves:
            if (given := self.read_beside(leaf, window, texts)) is not None:
                engine.push(leaf.name, self._select(given, leaf, part, texts))
        first_ns = begin_in_part(engine, part.firsts, window)
        attributes = {leaf.name: leaf.attributes for leaf in leaves}
        for step in streams.iterate():
            for name, batch in step.batches.items():
                engine.push(name, encoder.encode(batch, attributes[name]))
            if step.heartbeat_ns > first_ns:
                engine.advance(step.heartbeat_ns)
            if step.fraction == 1.0 and not part.firsts:
                engine.finish()
            yield [_cut_changes(changes, part.shown_ns) for changes in engine.results()], step.fraction

    def read_beside(self, leaf: StreamInput | RelationInput, window: Window, texts: Texts) -> ElementBatch | None:
        """Return the elements of a table or relation in a window; None of a stream of the archive."""
        if leaf.name in self.tables.frames:
            whole = batch_of(self.tables, leaf.name, leaf.attributes, texts)
            return cut_stream(whole, window) if leaf.is_stream else begin_changes(whole, window)
        if isinstance(leaf, StreamInput):
            return None
        if leaf.name in self.surfaces:
            changes = surface_changes(self.inputs.surfaces[leaf.name], window)
            return begin_changes(SourceEncoder(texts).encode(changes, leaf.attributes), window)
        return begin_changes(self.read_leaf(leaf, texts), window)

    def _select(
        self, batch: ElementBatch, leaf: StreamInput | RelationInput, part: QueryPart, texts: Texts
    ) -> ElementBatch:
        """Return the rows of a table or relation that are dealt to a part."""
        key = part.keys.get(leaf.name)
        if key is None:
            return batch
        position = [attribute.name for attribute in leaf.attributes].index(key.names[0])
        column = batch.columns[position]
        values = texts.decode(column) if leaf.attributes[position].kind == "text" else column.tolist()
        kept = np.array([self._part_of(value, part.count) == part.number for value in values], bool)
        sign = None if batch.sign is None else batch.sign[kept]
        return ElementBatch(batch.tau[kept], tuple(each[kept] for each in batch.columns), sign)

    @cached_property
    def _dealt_stations(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(sorted(set(self._stations_of_series.values())))}

    @cached_property
    def _stations_of_series(self) -> dict[int, str]:
        store = self.inputs.archive.store
        return {
            first * SERIES_OF_VARIABLE + number: item.station
            for first, variable in enumerate(store.variables)
            for number, item in enumerate(store.series(variable))
        }

    def _part_of(self, value: str | int | None, count: int) -> int:
        """Return the part of a key: that of its station, if it is a station or series of the archive."""
        if isinstance(value, int):
            value = self._stations_of_series.get(value, str(value))
        if value is None:
            return 0
        number = self._dealt_stations.get(value)
        return (zlib.crc32(value.encode()) if number is None else number) % count

    def find_firsts(self, stretch: Stretch) -> dict[str, int]:
        """Return the first instant of each input within a stretch [ns]; inputs without one are absent."""
        firsts: dict[str, int] = {}
        tree, texts = self.rewritten.tree, Texts()
        whole = self._open(tree, QueryPart(stretch, stretch.start_ns or 0)).window
        demands = list_demands(tree)
        for leaf in list_leaves(tree):
            batch = self.read_beside(leaf, whole, texts)
            taus = batch.tau if batch is not None else np.empty(0, np.int64)
            if batch is None:
                bounded = Stretch(whole.start_ns, whole.stop_ns, stretch.order)
                archive = self.inputs.archive
                streams = ArchiveStreams(archive, {leaf.name: leaf.attributes}, demands, bounded)
                instants = (step.batches[leaf.name].tau for step in streams.iterate())
                taus = next((tau for tau in instants if len(tau)), taus)
            taus = taus[taus != NULL_INTEGER]
            if len(taus):
                firsts[leaf.name] = int(taus[0])
        return firsts

    def find_window(self, start: object, end: object, order: str) -> Stretch:
        """Return a stretch with its bounds, which are those of all readings where absent."""
        stretch = _make_stretch(start, end, order)
        window = self._open(self.rewritten.tree, QueryPart(stretch, 0)).window
        return Stretch(window.start_ns, window.stop_ns, stretch.order)

    def _open(self, tree: Operator, part: QueryPart) -> ArchiveStreams:
        """Return the streams of the archive that a tree reads."""
        if part.read.order == "arrival":
            self.refuse_surfaces("it knows no arrivals: leave --order arrival out")
        leaves = [part for part in list_leaves(tree) if isinstance(part, StreamInput)]
        of_archive = {leaf.name: leaf.attributes for leaf in leaves if leaf.name not in self.tables.frames}
        known = [_find_extent(self.tables, leaf.name) for leaf in leaves if leaf.name not in of_archive]
        extents = [extent for extent in known if extent is not None]
        beside = None if leaves else self._read_whole()
        if extents:
            # Windows of tables that stand alone empty within the stretch.
            emptied = 0 if of_archive else emptied_after_ns(tree)
            last = max(extent.stop_ns for extent in extents)
            beside = Window(min(extent.start_ns for extent in extents), min(last + emptied, GREATEST_INTEGER))
        demands = list_demands(tree)
        for name in part.keys.keys() & of_archive.keys():
            demands[name] = self._restrict(demands[name], part)
        return ArchiveStreams(self.inputs.archive, of_archive, demands, part.read, beside=beside)

    def _restrict(self, demand: Demand, part: QueryPart) -> Demand:
        """Return the demand on a stream of the archive in a part: of the part's stations only."""
        own = frozenset(name for name in self._dealt_stations if self._part_of(name, part.count) == part.number)
        known = demand.restrictions.get("station", own)
        return Demand(demand.columns, {**demand.restrictions, "station": known & own})

    def _read_whole(self) -> Window:
        """Return the window of all readings, for queries without a stream."""
        store = self.inputs.archive.store
        bounds = [extent for name in store.variables if (extent := store.extent(name)) is not None]
        if not bounds:
            return Window(0, 1)
        return Window(min(bound.start_ns for bound in bounds), max(bound.stop_ns for bound in bounds))

    def read_leaf(self, leaf: RelationInput, texts: Texts) -> ElementBatch:
        """Return the changes of a relation, of the archive or of a table."""
        if leaf.name in self.tables.frames:
            return batch_of(self.tables, leaf.name, leaf.attributes, texts)
        return SourceEncoder(texts).encode(self.read_relation(leaf.name), leaf.attributes)

    def read_relation(self, name: str) -> SourceBatch:
        """Return the changes of a relation of the archive."""
        stations = self.inputs.archive.store.stations
        return {STATIONS: station_changes, NEIGHBOURS: neighbour_changes}[name](stations)


def _whole(start: object, end: object, order: str) -> QueryPart:
    return QueryPart(_make_stretch(start, end, order), NULL_INTEGER)


def begin_in_part(engine: ContinuousEngine, firsts: Mapping[str, int], window: Window) -> int:
    """Let an engine begin as that of the whole did, whose inputs had their first elements at some instants [ns].

    Returns the instant that its first heartbeat must be past, so that what is there from the start shows with it.
    """
    first_ns = min(firsts.values(), default=GREATEST_INTEGER)
    if first_ns >= window.stop_ns:
        return NULL_INTEGER
    if window.start_ns <= first_ns:
        # What is there from the start waits in the engine, to show together with the first elements.
        engine.advance(NULL_INTEGER + 1)
    engine.begin_at(window.start_ns if window.start_ns > first_ns else NULL_INTEGER + 1, firsts)
    return first_ns


def _cut_changes(batch: ChangeBatch, start_ns: int) -> ChangeBatch:
    first = int(np.searchsorted(batch.tau, start_ns))
    return ChangeBatch(batch.tau[first:], batch.sign[first:], tuple(column[first:] for column in batch.columns))


def list_key_options(
    catalogue: StreamCatalogue, of_archive: StreamCatalogue, frames: "Mapping[str, pandas.DataFrame] | None" = None
) -> KeyOptions:
    """Return columns by which inputs can be dealt: stations of an archive's streams, texts and integers of others."""
    options: dict[str, list[KeyColumns]] = {}
    for name, attributes in {**catalogue.streams, **catalogue.relations}.items():
        names = [part.name for part in attributes if part.kind in ("text", "integer")]
        if name in of_archive.streams:
            options[name] = [
                KeyColumns(tuple(each for each in ("station", "series") if each in names), never_null=True)
            ]
            continue
        frame = (frames or {}).get(name)
        is_own = frame is None and name in of_archive.relations
        options[name] = [
            KeyColumns((each,), never_null=is_own or (frame is not None and not frame[each].isna().any()))
            for each in names
            if not is_own or each in ("station", "neighbour")
        ]
    return options


def _localise(frame: "pandas.DataFrame") -> "pandas.DataFrame":
    """Return a table with its instants in UTC."""
    for position, kind in enumerate(frame.dtypes):
        if kind.kind == "M":
            frame.isetitem(position, frame.iloc[:, position].dt.tz_localize("UTC"))
    return frame


def _make_stretch(start: object, end: object, order: str) -> Stretch:
    known = next((each for each in ORDERS if each == order), None)
    if known is None:
        raise InvalidQuery(f"a stretch is read in the order {' or '.join(ORDERS)}; got {order!r}")
    bounds = [None if bound is None else read_instant(bound) for bound in (start, end)]
    return Stretch(bounds[0], bounds[1], known)


def read_instant(instant: object) -> int:
    """Return an instant [ns], given as in queries or in nanoseconds."""
    if isinstance(instant, int | np.integer) and not isinstance(instant, bool):
        return int(instant)
    return parse_instant(instant)


def _find_extent(tables: FrameSource, name: str) -> Window | None:
    taus = instants_of(name, tables.frames[name][TAU])
    return Window(int(taus.min()), int(taus.max()) + 1) if len(taus) else None


class SourceEncoder:
    """Encodes what sources give for an engine."""

    def __init__(self, texts: Texts) -> None:
        self._texts = texts
        self._codes: dict[tuple[str, ...], np.ndarray[Any, np.dtype[np.int64]]] = {}

    def encode(self, batch: SourceBatch, attributes: Attributes) -> ElementBatch:
        """Return a batch with the codes of the engine's texts; columns that nothing reads are of zeros."""
        columns: list[Column] = []
        for column, attribute in zip(batch.columns, attributes, strict=True):
            if column is None:
                columns.append(np.broadcast_to(np.zeros((), PHYSICAL[attribute.kind]), (len(batch),)))
            elif isinstance(column, CodedTexts):
                columns.append(self._codes_of(column.words)[column.codes])
            else:
                columns.append(column)
        return ElementBatch(batch.tau, tuple(columns), batch.sign)

    def _codes_of(self, words: tuple[str, ...]) -> np.ndarray[Any, np.dtype[np.int64]]:
        if words not in self._codes:
            self._codes[words] = self._texts.encode([*words, None])
        return self._codes[words]


def cut_stream(batch: ElementBatch, window: Window) -> ElementBatch:
    """Return the elements of a stream whose instants lie in a window."""
    first, last = np.searchsorted(batch.tau, (window.start_ns, window.stop_ns)).tolist()
    return ElementBatch(batch.tau[first:last], tuple(column[first:last] for column in batch.columns))


def begin_changes(batch: ElementBatch, window: Window) -> ElementBatch:
    """Return the changes of a relation from a stretch's start on; what it holds then is there from the start."""
    last = int(np.searchsorted(batch.tau, window.stop_ns))
    before = int(np.searchsorted(batch.tau, window.start_ns))
    signs = batch.signs()
    rows = np.arange(last)
    if (signs[:before] < 0).any():
        rows = np.concatenate([_held_rows(batch, signs, before), np.arange(before, last)])
    tau = np.where(rows < before, NULL_INTEGER, batch.tau[rows])
    return ElementBatch(tau, tuple(column[rows] for column in batch.columns), signs[rows])


def _held_rows(batch: ElementBatch, signs: np.ndarray[Any, np.dtype[np.int8]], before: int) -> Any:  # noqa: ANN401
    """Return the positions of the rows that were added and not removed before a position."""
    held: dict[tuple[bytes, ...], list[int]] = {}
    for position in range(before):
        key = tuple(column[position].tobytes() for column in batch.columns)
        if signs[position] > 0:
            held.setdefault(key, []).append(position)
        else:
            held[key].pop(0)
    return np.array(sorted(position for group in held.values() for position in group), np.int64)
