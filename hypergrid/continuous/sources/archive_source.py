"""Elements of an archive in canonical order, by time or by arrival, a window of bounded memory after another."""

from collections import OrderedDict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Final

import numpy as np

from hypergrid.continuous.expressions import Attributes
from hypergrid.continuous.records import Order
from hypergrid.continuous.sources.batch import SourceBatch, SourceStep
from hypergrid.continuous.sources.demand import Demand
from hypergrid.continuous.sources.readings import RowReader, Rows, concatenate_rows, make_reader, read_columns
from hypergrid.core.errors import InvalidQuery
from hypergrid.core.times import SECOND_NS, Window, format_instant
from hypergrid.query import OpenArchive

CELLS: Final = 500_000
"""Cells of a window that are read at once, all streams together."""
_KEPT_BLOCKS: Final = 2


@dataclass(frozen=True)
class Stretch:
    """Part of an archive: elements with instants from its start up to its end, excluded; None: of all readings."""

    start_ns: int | None = None
    end_ns: int | None = None
    order: Order = "time"

    def __post_init__(self) -> None:
        if self.start_ns is not None and self.end_ns is not None and self.end_ns <= self.start_ns:
            raise InvalidQuery(
                f"a stretch needs an end after its start; got {format_instant(self.start_ns)} to "
                f"{format_instant(self.end_ns)}"
            )


def _find_length(rate: float, chunk_ns: int) -> int:
    """Return the length of windows of bounded memory [ns], given the cells of a second: chunks, or a part of one."""
    length = max(round(CELLS / max(rate, 1e-9) * SECOND_NS), 1)
    return length // chunk_ns * chunk_ns if length >= chunk_ns else -(-chunk_ns // -(-chunk_ns // length))


class ArchiveStreams:
    """Streams of an archive over a stretch.

    Parameters
    ----------
    archive
        The archive, at its snapshot and instant of knowledge.
    attributes
        Attributes of each stream that is read, by name.
    demands
        What is needed of each.
    stretch
        By arrival an element has the instant of its arrival, and each version of a reading is an element.
    window_ns
        Length of the windows that are read [ns]; by the rate of the streams if absent. The elements are the same.
    beside
        Window of the elements of other sources, for a stretch without bounds.

    Raises
    ------
    InvalidQuery
        There is nothing to read: no reading at all, or a stretch without end or start that is empty.
    """

    def __init__(
        self,
        archive: OpenArchive,
        attributes: Mapping[str, Attributes],
        demands: Mapping[str, Demand],
        stretch: Stretch,
        *,
        window_ns: int | None = None,
        beside: Window | None = None,
    ) -> None:
        self._beside = beside
        self._attributes, self._demands, self._stretch = attributes, demands, stretch
        self._readers: dict[str, RowReader] = {
            name: make_reader(
                archive, name, demands[name].restrictions.get("station"), demands[name].restrictions.get("variable")
            )
            for name in attributes
        }
        rate = sum(reader.rate for reader in self._readers.values())
        self._edge_ns, chunk_ns = archive.store.slices.chunks_ns
        self._window_ns = window_ns or _find_length(rate, chunk_ns)
        self._blocks: OrderedDict[tuple[str, int], Rows] = OrderedDict()

    @cached_property
    def window(self) -> Window:
        """Window of instants that is read.

        Raises
        ------
        InvalidQuery
            No stream has an element, or the stretch ends before it begins.
        """
        stretch, known = self._stretch, self._whole()
        start, end = stretch.start_ns, stretch.end_ns
        if start is None or end is None:
            if known is None:
                names = ", ".join(map(self._describe, self._readers)) or "the query"
                raise InvalidQuery(f"a stretch without bounds needs readings; the archive has none of {names}")
            start = known.start_ns if start is None else start
            end = known.stop_ns if end is None else end
        if end <= start:
            assert known is not None
            raise InvalidQuery(
                f"the stretch {format_instant(start)} to {format_instant(end)} is empty: the readings span "
                f"{format_instant(known.start_ns)} to {format_instant(known.stop_ns)}"
            )
        return Window(start, end)

    def _describe(self, name: str) -> str:
        """Name a stream with the stations to which the query restricts it."""
        stations = self._demands[name].restrictions.get("station")
        return name if not stations else f"{name} at station {' or '.join(map(repr, sorted(stations)))}"

    def iterate(self) -> Iterator[SourceStep]:
        """Yield the elements of all streams, window by window."""
        start, end = self.window.start_ns, self.window.stop_ns
        for part in self._cut(self.window):
            batches = {name: self._make_batch(name, self._read(name, part)) for name in self._readers}
            yield SourceStep(batches, part.stop_ns, (part.stop_ns - start) / (end - start))

    def _cut(self, whole: Window) -> Iterator[Window]:
        """Yield the parts of a window that are read at once; where they can, their bounds are those of chunks."""
        first = whole.start_ns
        while first < whole.stop_ns:
            number = (first - self._edge_ns) // self._window_ns + 1
            stop = min(self._edge_ns + number * self._window_ns, whole.stop_ns)
            yield Window(first, stop)
            first = stop

    def _whole(self) -> Window | None:
        if self._stretch.order == "arrival":
            bounds = [window for blocks in self._arrivals.values() for _, window in blocks]
        else:
            bounds = [reader.extent for reader in self._readers.values() if reader.extent is not None]
        bounds += [] if self._beside is None else [self._beside]
        if not bounds:
            return None
        return Window(min(bound.start_ns for bound in bounds), max(bound.stop_ns for bound in bounds))

    def _read(self, name: str, part: Window) -> Rows:
        """Return the rows of a window in canonical order."""
        reader = self._readers[name]
        if self._stretch.order == "time":
            extent = reader.extent
            inside = None if extent is None else extent.intersect(part)
            # An empty window is read as well, for the columns.
            rows = reader.read(inside or Window(part.start_ns, part.start_ns + 1), every_version=False)
            rows = rows if inside is not None else rows.take(slice(0, 0))
            return rows.take(np.lexsort((rows.series, rows.arrival, rows.tau)))
        parts: list[Rows] = []
        for number, (stamps, arrivals) in enumerate(self._arrivals[name]):
            if arrivals.intersect(part) is not None:
                block = self._read_block(name, number, stamps)
                parts.append(block.take(part.holds(block.arrival)))
        if not parts:
            return reader.read(Window(0, 1), every_version=False).take(slice(0, 0))
        rows = concatenate_rows(parts)
        rows = rows.take(np.lexsort((rows.series, rows.tau, rows.arrival)))
        return Rows(rows.arrival, rows.arrival, rows.series, rows.columns)

    @cached_property
    def _arrivals(self) -> dict[str, list[tuple[Window, Window]]]:
        """Windows of instants, each with that of the arrivals in it, by stream."""
        arrivals: dict[str, list[tuple[Window, Window]]] = {}
        for name, reader in self._readers.items():
            arrivals[name] = []
            extent = reader.extent
            if extent is None:
                continue
            for stamps in self._cut(extent):
                rows = reader.read(stamps, every_version=True)
                if len(rows):
                    bounds = Window(int(rows.arrival.min()), int(rows.arrival.max()) + 1)
                    arrivals[name].append((stamps, bounds))
        return arrivals

    def _read_block(self, name: str, number: int, stamps: Window) -> Rows:
        key = (name, number)
        if key in self._blocks:
            self._blocks.move_to_end(key)
        else:
            self._blocks[key] = self._readers[name].read(stamps, every_version=True)
            while len(self._blocks) > _KEPT_BLOCKS * len(self._readers):
                self._blocks.popitem(last=False)
        return self._blocks[key]

    def _make_batch(self, name: str, rows: Rows) -> SourceBatch:
        return SourceBatch(rows.tau, read_columns(rows, self._attributes[name], self._demands[name].columns))
