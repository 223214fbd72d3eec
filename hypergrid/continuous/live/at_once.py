"""Queries with `EMIT NOW` over a stretch of an archive: rows as they could be given, in order of arrival.

What a live query does with each commit is done here with each arrival: results up to the newest element are given at
once, and what an element changes that comes later is corrected. Elements that arrive in order of time are processed
together, as no result depends on how the input is cut; each row has the arrival with which it was given.
"""

import math
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from hypergrid.continuous.algebra import RelationInput, list_leaves
from hypergrid.continuous.archive_query import ArchiveQuery, OnFraction, SourceEncoder, cut_stream
from hypergrid.continuous.engine import ElementBatch, Texts
from hypergrid.continuous.frames import batch_of
from hypergrid.continuous.limits import find_free_share
from hypergrid.continuous.live.evaluation import START, LiveElement, LiveEvaluation, LiveStep
from hypergrid.continuous.live.rows import Row
from hypergrid.continuous.live.tables import tabulate_given
from hypergrid.continuous.sources import SourceBatch, Stretch, list_demands
from hypergrid.continuous.sources.batch import CodedTexts, Column, Integers
from hypergrid.continuous.sources.readings import Rows, make_reader, read_columns
from hypergrid.core.errors import InvalidQuery
from hypergrid.core.lazy_libraries import pd
from hypergrid.core.times import Window

if TYPE_CHECKING:
    import pandas

_NEVER: Final = 2**63 - 1
_WORDS_BESIDE: Final = 4
"""Words of a row beside its columns: instant, arrival, series, and arrival of what replaces it."""


@dataclass(frozen=True, eq=False)
class _ArrivedRows:
    """Elements of a stream in canonical order, every version of each."""

    batch: SourceBatch
    arrival: Integers
    until: Integers
    """Arrival of the version that replaces a row; `_NEVER` if none does."""

    def select(self, window: Window, arrived_ns: int) -> SourceBatch:
        """Return the elements of a window that are known after an arrival."""
        first, stop = np.searchsorted(self.batch.tau, (window.start_ns, window.stop_ns)).tolist()
        known = (self.arrival[first:stop] <= arrived_ns) & (self.until[first:stop] > arrived_ns)
        rows = first + np.flatnonzero(known)
        return SourceBatch(self.batch.tau[rows], _take(self.batch.columns, rows))


def _order_rows(rows: Rows, columns: Sequence[Column | None]) -> _ArrivedRows:
    """Return rows in canonical order, each with the arrival of the next version of its reading."""
    order = np.lexsort((rows.arrival, rows.tau, rows.series))
    series, tau, arrival = rows.series[order], rows.tau[order], rows.arrival[order]
    is_replaced = np.append((np.diff(series) == 0) & (np.diff(tau) == 0), False)[: len(order)]
    until = np.full(len(rows), _NEVER)
    until[order[is_replaced]] = arrival[1:][is_replaced[:-1]]
    canonical = np.lexsort((rows.series, rows.arrival, rows.tau))
    batch = SourceBatch(rows.tau[canonical], _take(columns, canonical))
    return _ArrivedRows(batch, rows.arrival[canonical], until[canonical])


def _take(columns: Sequence[Column | None], rows: Integers) -> tuple[Column | None, ...]:
    return tuple(
        None if column is None else column.take(rows) if isinstance(column, CodedTexts) else column[rows]
        for column in columns
    )


class _ArrivalVersions:
    """Elements of a stretch by what had arrived; a version is the text of an arrival [ns]."""

    floor_ns: int = START

    def __init__(self, query: ArchiveQuery, window: Window) -> None:
        tree = query.rewritten.tree
        self._query, self._window = query, window
        self._leaves = list_leaves(tree)
        self._rows: dict[str, _ArrivedRows] = {}
        demands, archive = list_demands(tree), query.inputs.archive
        for leaf in self._leaves:
            if isinstance(leaf, RelationInput) or leaf.name in query.tables.frames:
                continue
            demand = demands[leaf.name]
            chosen = (demand.restrictions.get(name) for name in ("station", "variable"))
            reader = make_reader(archive, leaf.name, *chosen)
            inside = None if reader.extent is None else reader.extent.intersect(window)
            # An empty window is read as well, for the columns.
            rows = reader.read(inside or Window(window.start_ns, window.start_ns + 1), every_version=True)
            rows = rows if inside is not None else rows.take(slice(0, 0))
            # Where an arrival is not known, it is the instant.
            rows = replace(rows, arrival=np.where(rows.arrival > 0, rows.arrival, rows.tau))
            self._rows[leaf.name] = _order_rows(rows, read_columns(rows, leaf.attributes, demand.columns))
        self.arrival, self.tau = self._list_arrivals()

    def _list_arrivals(self) -> tuple[Integers, Integers]:
        """Return the arrivals and instants of all elements in order of arrival; tables arrive at their instants."""
        arrivals = [rows.arrival for rows in self._rows.values()]
        instants = [rows.batch.tau for rows in self._rows.values()]
        texts = Texts()
        for leaf in self._leaves:
            if leaf.name in self._query.tables.frames and leaf.is_stream:
                tau = cut_stream(batch_of(self._query.tables, leaf.name, leaf.attributes, texts), self._window).tau
                arrivals.append(tau)
                instants.append(tau)
        arrival, tau = (np.concatenate([np.empty(0, np.int64), *parts]) for parts in (arrivals, instants))
        order = np.lexsort((tau, arrival))
        return arrival[order], tau[order]

    def begin(self, version: str, texts: Texts) -> Mapping[str, ElementBatch]:
        """Return the rows of relations that are there from the start."""
        del version
        return {
            leaf.name: _cut(batch, Window(START, START + 1))
            for leaf in self._leaves
            if (batch := self._query.read_beside(leaf, self._window, texts)) is not None and not leaf.is_stream
        }

    def read(self, version: str, window: Window, texts: Texts) -> Iterator[tuple[Mapping[str, ElementBatch], int]]:
        """Yield the elements of a window in canonical order, with the heartbeat at its end."""
        encoder, batches = SourceEncoder(texts), {}
        for leaf in self._leaves:
            if (rows := self._rows.get(leaf.name)) is not None:
                batches[leaf.name] = encoder.encode(rows.select(window, int(version)), leaf.attributes)
            elif (beside := self._query.read_beside(leaf, self._window, texts)) is not None:
                batches[leaf.name] = _cut(beside, window)
        yield batches, window.stop_ns

    def list_changed(self, old: str, new: str, window: Window, past_ns: int) -> Sequence[Window]:
        """Return the instants of a window at which elements arrived between two versions."""
        del past_ns
        first, stop = np.searchsorted(self.arrival, (int(old), int(new)), side="right").tolist()
        tau = np.unique(self.tau[first:stop])
        return [Window(at, at + 1) for at in tau[(tau >= window.start_ns) & (tau < window.stop_ns)].tolist()]


def _cut(batch: ElementBatch, window: Window) -> ElementBatch:
    kept = (batch.tau >= window.start_ns) & (batch.tau < window.stop_ns)
    sign = None if batch.sign is None else batch.sign[kept]
    return ElementBatch(batch.tau[kept], tuple(column[kept] for column in batch.columns), sign)


@dataclass
class _HeldRecord:
    """What an evaluation gave and its states, in memory."""

    states: dict[int, bytes] = field(default_factory=dict)
    _counts: dict[int, Counter[Row]] = field(default_factory=dict)
    _instants: list[int] = field(default_factory=list)

    def find_heartbeat(self) -> int | None:
        return max(self.states, default=None)

    def find_kept(self) -> int:
        return START

    def find_state(self, at_ns: int) -> tuple[int, bytes] | None:
        known = max((heartbeat for heartbeat in self.states if heartbeat <= at_ns), default=None)
        return None if known is None else (known, self.states[known])

    def list_states(self) -> Sequence[int]:
        return list(self.states)

    def count_given(self, window: Window) -> Counter[tuple[int, Row]]:
        first, stop = (bisect_left(self._instants, bound) for bound in (window.start_ns, window.stop_ns))
        return Counter(
            {(at, row): count for at in self._instants[first:stop] for row, count in self._counts[at].items()}
        )

    def keep(self, step: LiveStep) -> None:
        self.states |= step.states
        for heartbeat in step.dropped:
            self.states.pop(heartbeat, None)
        for element in step.elements:
            if element.tau not in self._counts:
                self._counts[element.tau] = Counter()
                insort(self._instants, element.tau)
            self._counts[element.tau][element.row] += element.sign


@dataclass(frozen=True, repr=False)
class AtOnceQuery(ArchiveQuery):
    """Query with `EMIT NOW` over a stretch of an archive."""

    def run(
        self,
        start: object = None,
        end: object = None,
        *,
        order: str = "time",
        allowed_bytes: int | None = None,
        progress: OnFraction | None = None,
    ) -> "pandas.DataFrame":
        """Return rows as they could be given, in order of arrival, and corrections of what arrived too late for them.

        Columns are those of `ArchiveQuery.run`, then `given` (the arrival with which a row was given) and `corrects`
        (whether it corrects what was given before). All together are, row by row, the result without `EMIT NOW`.
        """
        frames = []
        for frame, fraction in self.iterate(start, end, order=order, allowed_bytes=allowed_bytes):
            frames.append(frame)
            if progress is not None:
                progress(fraction)
        return pd.concat(frames, ignore_index=True) if len(frames) > 1 else frames[0]

    def iterate(
        self,
        start: object = None,
        end: object = None,
        *,
        order: str = "time",
        by_value: bool = False,
        allowed_bytes: int | None = None,
    ) -> Iterator[tuple["pandas.DataFrame", float]]:
        """Yield what `run` returns in parts; back-tests and elements in order of arrival have nothing to correct."""
        if by_value or order != "time":
            yield from super().iterate(start, end, order=order, by_value=by_value, allowed_bytes=allowed_bytes)
            return
        self.refuse_surfaces("it knows no arrivals: leave EMIT NOW out")
        self.check_memory(start, end, allowed_bytes=allowed_bytes)
        whole = self.find_window(start, end, order)
        assert whole.start_ns is not None
        assert whole.end_ns is not None
        self._check_held(whole, find_free_share() if allowed_bytes is None else allowed_bytes)
        window = Window(whole.start_ns, whole.end_ns)
        is_empty = True
        for elements, given, fraction in self._give(_ArrivalVersions(self, window), window):
            if elements or is_empty or fraction == 1.0:
                is_empty = False
                yield tabulate_given(elements, given, self.bound.tree.attributes), fraction

    def _check_held(self, stretch: Stretch, allowed_bytes: int) -> None:
        """Raise `InvalidQuery` if the elements of a stretch need more memory than is allowed."""
        demands, counts = list_demands(self.rewritten.tree), self.count_elements(stretch)
        held = sum(
            counts.get(name, 0.0) * 8 * (len(demand.columns) + _WORDS_BESIDE) for name, demand in demands.items()
        )
        if held > allowed_bytes:
            raise InvalidQuery(
                f"EMIT NOW holds the elements of the stretch, {held:,.0f} bytes, and may take {allowed_bytes:,}; "
                f"choose a shorter stretch, or EMIT FINAL, or allow {math.ceil(held):,} bytes"
            )

    def _give(
        self, versions: _ArrivalVersions, window: Window
    ) -> Iterator[tuple[Sequence[LiveElement], Integers, float]]:
        """Yield elements, the arrivals with which they are given, and the share of the stretch that is done."""
        tree, record = self.rewritten.tree, _HeldRecord()
        evaluation = LiveEvaluation(tree, versions, record, window.start_ns, self.catalogue.static)
        arrivals, firsts = np.unique(versions.arrival, return_index=True)
        stops = np.append(firsts[1:], len(versions.arrival))
        if len(arrivals):
            newest = np.maximum.accumulate(np.maximum.reduceat(versions.tau, firsts))
            # The least instant of an arrival comes first.
            is_late = np.append(False, versions.tau[firsts][1:] <= newest[:-1])
            # Late arrivals alone, those between them together.
            bounds = np.unique(
                np.concatenate([[0], np.flatnonzero(is_late), np.flatnonzero(is_late) + 1, [len(arrivals)]])
            )
        else:
            newest, bounds = arrivals, np.zeros(1, np.int64)
        before: str | None = None
        for first, stop in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
            version = str(arrivals[stop - 1])
            step = evaluation.advance(before, version, int(newest[stop - 1]) + 1)
            record.keep(step)
            before = version
            tau = np.array([element.tau for element in step.elements], np.int64)
            at = first + np.searchsorted(newest[first:stop], tau)
            yield (
                step.elements,
                arrivals[np.minimum(at, stop - 1)],
                float(stops[stop - 1]) / len(versions.arrival) * 0.99,
            )
        # Once the stretch is over, nothing is awaited.
        step = evaluation.advance(before, before or str(_NEVER - 1), window.stop_ns)
        ended = max(window.stop_ns, int(arrivals[-1]) if len(arrivals) else window.stop_ns)
        yield step.elements, np.full(len(step.elements), ended), 1.0
