"""Snapshots of an archive as versions of the inputs of a query."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from itertools import pairwise, starmap
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from hypergrid.archive.diff import Change, diff_from_log, merge_windows
from hypergrid.continuous.algebra import RelationInput, StreamInput, list_leaves
from hypergrid.continuous.archive_query import ArchiveQuery, SourceEncoder, begin_changes
from hypergrid.continuous.engine import ElementBatch, Texts
from hypergrid.continuous.engine.batch import bits_of
from hypergrid.continuous.live.evaluation import START
from hypergrid.continuous.sources import ArchiveStreams, Stretch, list_demands, surface_changes
from hypergrid.continuous.sources.readings import GAP_INTERVALS, HOUR_NS, RowReader, Rows, completion_ns, make_reader
from hypergrid.continuous.surface_catalogue import LARGEST_CELLS, NamedSurface
from hypergrid.core.errors import HyperGridError, InvalidQuery, NotFound, TooLarge
from hypergrid.core.times import SECOND_NS, Window
from hypergrid.query import OpenArchive

_KEPT_SNAPSHOTS = 4
_CELLS_AT_ONCE = 500_000
_LONGEST_LOOK = 32
"""How many times as long windows become in which elements are sought before those of a clock that is ahead."""

Integers: TypeAlias = NDArray[np.int64]


class ArchiveVersions:
    """Elements of an archive at its snapshots, for one query.

    Parameters
    ----------
    query
        The query; streams must be those of the archive, and tables of the user must not change.
    start_ns
        Start of the stretch.
    idle_s
        A series without a reading for this long behind the newest of all is not waited for.
    disorder_s
        How far behind the newest reading of its series a reading may come and not be late; None: as far behind as
        readings of the last `idle_s` arrived, measured for each series.

    Raises
    ------
    InvalidQuery
        A table of the query has instants, or slices of a surface depend on each other.
    TooLarge
        A slice of a surface has too many cells.
    """

    floor_ns: int = START
    """Instant from which on elements can be read [ns]; `START` if all can."""

    def __init__(self, query: ArchiveQuery, start_ns: int, *, idle_s: float, disorder_s: float | None) -> None:
        self._query, self._start_ns = query, start_ns
        self._idle_ns = round(idle_s * SECOND_NS)
        self._disorder_ns = None if disorder_s is None else round(disorder_s * SECOND_NS)
        self.longest_disorder_ns = 0
        """Greatest disorder of a series that the last heartbeat took into account [ns]."""
        self.tree = query.rewritten.tree
        leaves = list_leaves(self.tree)
        relations = {leaf.name: leaf for leaf in leaves if isinstance(leaf, RelationInput)}
        self._surfaces = {name: relations.pop(name).attributes for name in query.surfaces}
        self._relations = list(relations.values())
        self._streams = {leaf.name: leaf.attributes for leaf in leaves if isinstance(leaf, StreamInput)}
        self._demands = list_demands(self.tree)
        for leaf in leaves:
            if leaf.name in query.tables.frames and leaf.name not in query.catalogue.static:
                raise InvalidQuery(
                    f"a live query reads table {leaf.name!r}, whose rows have instants: only streams of the archive "
                    "go on; leave out its column 'tau'"
                )
        if not (self._streams or self._surfaces):
            raise InvalidQuery(
                "a live query needs a stream or a surface of the archive; this one reads other relations only"
            )
        if query.bound.emit == "now":
            query.refuse_surfaces("it knows no arrivals: leave EMIT NOW out")
        for name in self._surfaces:
            surface = query.inputs.surfaces[name]
            if surface.bond:
                raise InvalidQuery(f"a live query cannot read {name}, slice by slice: {surface.bond}")
            # A slice, and the one that it replaces.
            if 2 * surface.cells > LARGEST_CELLS:
                remedy = "keep a coarser standing query"
                raise TooLarge(f"two slices of {name}", "cells", 2 * surface.cells, LARGEST_CELLS, remedy)
        self.open = lru_cache(_KEPT_SNAPSHOTS)(self._open)
        self._find_surface = lru_cache(_KEPT_SNAPSHOTS * max(len(self._surfaces), 1))(self._open_surface)

    def _open(self, version: str) -> OpenArchive:
        archive = self._query.inputs.archive
        return archive if archive.snapshot == version else OpenArchive(archive.store.at_snapshot(version))

    def _open_surface(self, version: str, name: str) -> NamedSurface:
        return self._query.inputs.surfaces[name].at(self.open(version))

    def _read_surfaces(self, version: str, window: Window, texts: Texts) -> dict[str, ElementBatch]:
        """Return the changes of surfaces within a window, after the rows that they hold before."""
        encoder = SourceEncoder(texts)
        return {
            name: encoder.encode(surface_changes(self._find_surface(version, name), window), attributes)
            for name, attributes in self._surfaces.items()
        }

    def _iterate_surfaces(
        self, version: str, window: Window, texts: Texts
    ) -> Iterator[tuple[Mapping[str, ElementBatch], int]]:
        """Yield the changes of surfaces within a window, in parts of some cells, each with the heartbeat at its end."""
        edges = {window.stop_ns}.union(*(self._list_edges(name, version, window) for name in self._surfaces))
        start = window.start_ns
        for stop in sorted(edges):
            given = self._read_surfaces(version, Window(start, stop), texts)
            yield {name: _cut(batch, start, stop) for name, batch in given.items()}, stop
            start = stop

    def _read_relations(self, version: str, texts: Texts) -> dict[str, ElementBatch]:
        query = replace(self._query, inputs=replace(self._query.inputs, archive=self.open(version)))
        return {leaf.name: query.read_leaf(leaf, texts) for leaf in self._relations}

    def begin(self, version: str, texts: Texts) -> Mapping[str, ElementBatch]:
        """Return the rows of relations that are there from the start."""
        surfaces = self._read_surfaces(version, Window(self._start_ns, self._start_ns + 1), texts)
        return {
            name: _cut(begin_changes(batch, Window(self._start_ns, 2**62)), START, START + 1)
            for name, batch in {**self._read_relations(version, texts), **surfaces}.items()
        }

    def read(self, version: str, window: Window, texts: Texts) -> Iterator[tuple[Mapping[str, ElementBatch], int]]:
        """Yield the elements of a window in canonical order, in parts, each with the heartbeat at its end."""
        done = window.start_ns
        for given, heartbeat in self._iterate_streams(version, window, texts):
            if not self._surfaces or heartbeat <= done:
                yield given, heartbeat
                continue
            for part, upto in self._iterate_surfaces(version, Window(done, heartbeat), texts):
                # Elements of streams beyond this part wait.
                yield {**given, **part}, upto
                given = {}
            done = heartbeat

    def _iterate_streams(
        self, version: str, window: Window, texts: Texts
    ) -> Iterator[tuple[Mapping[str, ElementBatch], int]]:
        """Yield the elements of streams and relations, without surfaces, as `read` does."""
        archive, encoder = self.open(version), SourceEncoder(texts)
        changes = {
            name: _cut(batch, window.start_ns, window.stop_ns)
            for name, batch in self._read_relations(version, texts).items()
        }
        readers = self._make_readers(archive)
        extents = [reader.extent for reader in readers.values()]
        inside = [part for extent in extents if extent is not None and (part := extent.intersect(window)) is not None]
        if inside:
            stretch = Stretch(min(part.start_ns for part in inside), max(part.stop_ns for part in inside))
            for step in ArchiveStreams(archive, self._streams, self._demands, stretch).iterate():
                batches = {name: encoder.encode(batch, self._streams[name]) for name, batch in step.batches.items()}
                # All at once: changes after the part wait.
                yield {**batches, **changes}, step.heartbeat_ns
                changes = {}
        yield changes, window.stop_ns

    def _make_readers(self, archive: OpenArchive) -> dict[str, RowReader]:
        readers = {}
        for name in self._streams:
            restrictions = self._demands[name].restrictions
            readers[name] = make_reader(archive, name, restrictions.get("station"), restrictions.get("variable"))
        return readers

    def _make_all_readers(self, version: str) -> dict[str, RowReader]:
        """Return readers of all that results depend on: streams, and what surfaces are of."""
        archive = self.open(version)
        variables = frozenset[str]().union(*(self._find_surface(version, name).variables for name in self._surfaces))
        return {
            **self._make_readers(archive),
            **{name: make_reader(archive, name, None, None) for name in sorted(variables)},
        }

    def list_changed(self, old: str, new: str, window: Window, past_ns: int) -> Sequence[Window] | None:
        """Return windows that hold all elements of a window that differ.

        None if rows of the start do, or of a relation before `past_ns`.
        """
        texts = Texts()
        try:
            before = self._read_relations(old, texts)
        except NotFound:
            # The snapshot expired, so what is there from the start may differ.
            return None
        after = self._read_relations(new, texts)
        moves = [_find_difference(before[name], after[name]) for name in before]
        if any(move is not None and move.start_ns < max(self._start_ns, past_ns) for move in moves):
            return None
        try:
            changes = diff_from_log(self.open(new).store, old)
        except NotFound:
            # The commits between the two expired: all may differ.
            return None if self._surfaces else (window,)
        margin = self._reach_ns(self.open(new))
        runs = (Window(run.start_ns, run.stop_ns + margin) for change in changes for run in change.runs)
        inside = [part for run in merge_windows(runs) if (part := run.intersect(window)) is not None]
        moved = (part for move in moves if move is not None and (part := move.intersect(window)) is not None)
        changed: list[Window] = list(moved)
        of_surfaces = self._list_changed_slices((old, new), changes, window, max(self._start_ns, past_ns))
        if of_surfaces is None:
            return None
        changed += of_surfaces
        for part in inside:
            for name in self._streams:
                versions = [self._read_whole(version, name, part, texts) for version in (old, new)]
                difference = _find_difference(*versions)
                changed += [] if difference is None else [difference]
        return merge_windows(changed)

    def _list_changed_slices(
        self, versions: tuple[str, str], changes: Sequence[Change], window: Window, past_ns: int
    ) -> list[Window] | None:
        """Return windows of the changes of surfaces that differ; None if a slice that holds at `past_ns` does."""
        written: dict[str, list[Window]] = {}
        for change in changes:
            written.setdefault(change.variable, []).extend(change.runs)
        differing: list[Window] = []
        for name in self._surfaces:
            try:
                before, after = (self._find_surface(version, name) for version in versions)
                reached = after.list_changed(before, written)
            except HyperGridError:
                # The snapshot expired.
                reached = None
            if reached is None:
                return None
            for part in merge_windows(reached):
                if part.start_ns < past_ns <= part.stop_ns:
                    held = [self._read_slices(name, each, Window(START, past_ns)) for each in versions]
                    if _find_difference(*held) is not None:
                        return None
                # One instant later, so that the slice that holds last is seen to end.
                seen = Window(part.start_ns, part.stop_ns + 1).intersect(window)
                if seen is not None and (first := self._find_changed_slice(name, versions, seen)) is not None:
                    if first.stop_ns > past_ns:
                        # All that follows is evaluated again in any case.
                        differing.append(Window(first.start_ns, window.stop_ns))
                        break
                    differing.append(first)
        return differing

    def _find_changed_slice(self, name: str, versions: tuple[str, str], window: Window) -> Window | None:
        """Return the first instants in a window at which a surface changes in another way; None if there are none."""
        ends = {window.start_ns, window.stop_ns}
        for version in versions:
            ends.update(self._list_edges(name, version, window))
        for part in starmap(Window, pairwise(sorted(ends))):
            difference = _find_difference(*(self._read_slices(name, each, part) for each in versions))
            if difference is not None:
                return difference
        return None

    def _list_edges(self, name: str, version: str, window: Window) -> list[int]:
        """Return instants within a window between which a surface has few cells."""
        surface = self._find_surface(version, name)
        ends = surface.ends[surface.ends.searchsorted(window.start_ns) : surface.ends.searchsorted(window.stop_ns)]
        edges: list[int] = ends[:: max(_CELLS_AT_ONCE // surface.cells, 1)][1:].tolist()
        return edges

    def _read_slices(self, name: str, version: str, window: Window) -> ElementBatch:
        """Return the changes of a surface in a window; from `START` on the rows that it holds at its end."""
        read = Window(window.stop_ns, window.stop_ns + 1) if window.start_ns == START else window
        changes = surface_changes(self._find_surface(version, name), read)
        encoded = SourceEncoder(Texts()).encode(changes, self._surfaces[name])
        return _cut(encoded, window.start_ns, window.stop_ns)

    @staticmethod
    def _reach_ns(archive: OpenArchive) -> int:
        """Return how long after the end of its slice an element can depend on a reading [ns]."""
        intervals = [item.interval_s for name in archive.store.variables for item in archive.store.series(name)]
        longest = round(max(intervals, default=0.0) * SECOND_NS)
        # Rain is what a counter grew by since the reading before.
        return longest + max(HOUR_NS, GAP_INTERVALS * longest)

    def _read_whole(self, version: str, name: str, window: Window, texts: Texts) -> ElementBatch:
        try:
            archive = self.open(version)
            stretch = Stretch(window.start_ns, window.stop_ns)
            streams = ArchiveStreams(archive, {name: self._streams[name]}, self._demands, stretch)
            encoder = SourceEncoder(texts)
            parts = [encoder.encode(step.batches[name], self._streams[name]) for step in streams.iterate()]
        except NotFound:
            # The snapshot expired.
            return ElementBatch(np.empty(0, np.int64), ())
        tau = np.concatenate([part.tau for part in parts])
        columns = zip(*(part.columns for part in parts), strict=True)
        return ElementBatch(tau, tuple(np.concatenate(column) for column in columns))

    def find_heartbeat(self, version: str, *, at_once: bool) -> int | None:
        """Return the instant before which elements are taken as complete [ns]; None if there is no element.

        Elements farther ahead of their arrival than `idle_s` come from a clock that is wrong, and have no say.

        Parameters
        ----------
        at_once
            Whether to take all that is there, whatever may come late.
        """
        rows = self._read_newest(self.open(version), self._make_all_readers(version))
        newest = max((int(part.tau.max()) for part in rows if len(part)), default=None)
        if newest is None:
            return None
        if at_once:
            return newest + 1
        awake: list[tuple[int, int]] = []
        for part in rows:
            latest, disorder = measure_disorder(part.series, part.tau, part.arrival)
            learnt = disorder if self._disorder_ns is None else np.full(len(latest), self._disorder_ns)
            awake += [
                (tau, own)
                for tau, own in zip(latest.tolist(), learnt.tolist(), strict=True)
                if tau > newest - self._idle_ns
            ]
        self.longest_disorder_ns = max(own for _, own in awake)
        return min(tau - own for tau, own in awake)

    def _read_newest(self, archive: OpenArchive, named: Mapping[str, RowReader]) -> list[Rows]:
        """Return the newest rows of each stream, of at least `idle_s`, without those whose clock is ahead."""
        readers = named.values()
        extents = [reader.extent for reader in readers if reader.extent is not None]
        # Extents are whole slices, so the newest element may be before the last.
        reach = self._idle_ns + 2 * round(archive.store.slice_s * SECOND_NS)
        stop, length = max((extent.stop_ns for extent in extents), default=self._start_ns), reach
        rows, ahead = list[Rows](), list[tuple[int, str, int]]()
        while extents:
            window = Window(stop - length, stop)
            given = [reader.read(window, every_version=self._disorder_ns is None) for reader in readers]
            rows = [part.take(~self._find_ahead(part)) for part in given]
            newest = max((int(part.tau.max()) for part in rows if len(part)), default=None)
            ahead += [
                (int(wrong.arrival.max()), name, int((wrong.tau - wrong.arrival).max()))
                for name, part in zip(named, given, strict=True)
                if len(wrong := part.take(self._find_ahead(part)))
            ]
            if not ahead or (newest is not None and newest - self._idle_ns >= window.start_ns):
                break
            if newest is not None:
                # All that is newer is ahead.
                stop, length = newest + 1, reach
                continue
            before = _find_stop_before(archive, window.start_ns)
            if before is None:
                break
            # Longer from time to time, where a clock was ahead for months.
            stop, length = before, min(2 * length, _LONGEST_LOOK * reach)
        arrived = max(
            (int(np.where(part.arrival > 0, part.arrival, part.tau).max()) for part in rows if len(part)), default=None
        )
        if ahead and (arrived is None or max(ahead)[0] > arrived + self._idle_ns):
            streams = ", ".join(sorted({name for _, name, _ in ahead}))
            furthest_h = max(by for _, _, by in ahead) / HOUR_NS
            raise InvalidQuery(
                f"all that reports now is ahead of its arrival, by {furthest_h:,.1f} h at most, in {streams}; a live "
                "query cannot tell what is complete: correct the clocks, or the time zone of the deployment"
            )
        return rows

    def _find_ahead(self, rows: Rows) -> NDArray[np.bool_]:
        """Return which rows are farther ahead of their arrival, where it is known, than a series may be silent."""
        return (rows.arrival > 0) & (rows.tau > rows.arrival + self._idle_ns)


def _find_stop_before(archive: OpenArchive, instant: int) -> int | None:
    """Return an instant up to another before which elements may lie, at chunks that hold readings; None: none."""
    stops = []
    for name in archive.store.variables:
        longest = max((completion_ns(item) for item in archive.store.series(name)), default=0)
        spans = (span for span in archive.store.spans(name, 1) if span.start_ns < instant)
        stops += [min(span.stop_ns + longest, instant) for span in spans]
    return max(stops, default=None)


def measure_disorder(series: Integers, tau: Integers, arrival: Integers) -> tuple[Integers, Integers]:
    """Return the greatest instant of each series, and how far one that arrived later was before it at most [ns].

    This is the disorder that monitors of streams measure, of few readings and so without a quantile. Of the versions of
    a reading the first counts, as an amendment is no disorder; those that arrive together are in order.
    """
    if not len(tau):
        return tau, tau
    order = np.lexsort((arrival, tau, series))
    repeats = (np.diff(series[order]) == 0) & (np.diff(tau[order]) == 0)
    order = order[np.append(True, ~repeats)]
    order = order[np.lexsort((tau[order], arrival[order], series[order]))]
    series, tau = series[order], tau[order]
    starts = np.flatnonzero(np.append(True, np.diff(series) != 0))
    # Each series above the one before, so that one running maximum serves all.
    span = int(tau.max() - tau.min()) + 1
    levels = np.repeat(np.arange(len(starts)), np.diff(starts, append=len(series))) * span + (tau - tau.min())
    behind = np.maximum.accumulate(levels) - levels
    return np.maximum.reduceat(tau, starts), np.maximum.reduceat(behind, starts)


def _cut(batch: ElementBatch, start: int, stop: int) -> ElementBatch:
    kept = (batch.tau >= start) & (batch.tau < stop)
    sign = None if batch.sign is None else batch.sign[kept]
    return ElementBatch(batch.tau[kept], tuple(column[kept] for column in batch.columns), sign)


def _find_difference(earlier: ElementBatch, later: ElementBatch) -> Window | None:
    """Return the window from the first to the last instant at which two batches differ; None if they do not."""
    if not len(earlier.tau) or not len(later.tau):
        tau = np.concatenate([earlier.tau, later.tau])
        return Window(int(tau.min()), int(tau.max()) + 1) if len(tau) else None
    signs = [np.ones(len(part.tau), np.int64) if part.sign is None else part.sign for part in (earlier, later)]
    rows, others = (
        np.column_stack([part.tau, sign, *(bits_of(np.ascontiguousarray(column)) for column in part.columns)])
        for part, sign in zip((earlier, later), signs, strict=True)
    )
    count = min(len(rows), len(others))
    first = _count_equal(rows[:count], others[:count])
    if first == count and len(rows) == len(others):
        return None
    last = _count_equal(rows[::-1][:count], others[::-1][:count])
    bounds = [part[first, 0] for part in (rows, others) if first < len(part)]
    ends = [part[-1 - last, 0] for part in (rows, others) if last < len(part)]
    return Window(int(min(bounds)), int(max(ends)) + 1)


def _count_equal(rows: np.ndarray, others: np.ndarray) -> int:
    differ = np.flatnonzero((rows != others).any(axis=1))
    return int(differ[0]) if len(differ) else len(rows)
