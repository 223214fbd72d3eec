"""Piecewise reading: aggregate archives that are too large to be read at once.

Each series is aggregated by itself, so its cells do not depend on which others are read with it, and a cell along time
is complete once all its readings have been read. Pieces are whole chunks of the archive, so none is decompressed twice.
Readings of an incomplete cell wait for the next piece: every function sees all readings of a cell together and returns
the same as if everything were read at once.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hypergrid.core.pacing import give_way
from hypergrid.core.readings import Readings, concatenate
from hypergrid.core.times import Window
from hypergrid.execution.operators.cells import Cells
from hypergrid.execution.operators.intervals import IntervalNotes
from hypergrid.execution.operators.stations import FIRST, aggregate_readings, aggregate_slices
from hypergrid.perspective import Aggregate, Base, InterpolateInTime, Perspective
from hypergrid.perspective.build.restrict import find_lengths_ns
from hypergrid.perspective.sources.archive_source import ArchiveSource
from hypergrid.perspective.sources.series_selection import take_series
from hypergrid.topology import Bins, Instants, Periodic, Regular, SeriesAxis, TimeCells

WHOLE_READINGS: Final = 2**21
"""Readings up to which a base is read at once (200 MB), so that later steps can reuse them."""
CHUNKS_AT_ONCE: Final = 8
"""Chunks of an archive read at once: half a million readings."""
BATCH_READINGS: Final = 2**19
"""Readings sorted and aggregated at once."""
HELD_BYTES: Final = 29
"""Memory per reading while its cell is incomplete [bytes]: series, stamp, value, flag and arrival."""
WHOLE_BYTES: Final = 100
"""Memory per reading if all are read at once [bytes]: read, ordered, filtered, up to three copies of 33 bytes."""
WORKING_BYTES: Final = 110
"""Memory per reading while its chunks are read or it is aggregated [bytes]: masks, indices, copies."""

Use = Callable[[Readings], Readings]
"""Maps the readings of a base to those to aggregate: accepted, converted, none missing."""


def estimate_readings(node: Perspective) -> int:
    """Estimate the maximum number of readings of a base.

    Each series reports at its interval, or once per slice if that is unknown.
    """
    node, base = node.list_bases()[0], node.bases[0]
    length_s = (base.window.stop_ns - base.window.start_ns) * 1e-9
    slices = node.topology.time.count
    read = np.delete([s.interval_s for s in node.series], np.asarray(base.unread, dtype=np.intp))
    possible = int(np.sum([length_s / interval_s + 1 if interval_s > 0 else slices for interval_s in read]))
    if possible > WHOLE_READINGS and isinstance(base.source, ArchiveSource):
        # For a large base the number of stored readings may be a tighter bound.
        return min(possible, base.source.readings)
    return possible


def is_read_in_pieces(node: Perspective, operator: Aggregate) -> bool:
    # A function that looks back, such as at the previous reading of a counter, may need the whole series.
    if not node.holds_readings or operator.row.prepare is not None:
        return False
    # Smaller bases are read once, and kept for other steps.
    return isinstance(node.bases[0].source, ArchiveSource) and estimate_readings(node) > WHOLE_READINGS


def projected_bytes(surface: Perspective, node: Perspective) -> int:
    """Project the memory that readings of a base, or converts of it, take [bytes]."""
    if node.is_fused:
        # Readings are converted as they are read: counted with the base.
        return 0
    whole = WHOLE_BYTES * estimate_readings(node)
    base = node.operator
    if isinstance(base, Base) and isinstance(base.source, ArchiveSource):
        # Chunks are dense, however few readings they have.
        whole += HELD_BYTES * base.source.chunk_readings * min(CHUNKS_AT_ONCE, base.source.count_chunks(base.window))
    if not all_in_pieces(surface, node):
        return whole
    if not isinstance(node.operator, Base):
        # A piece passes through all converts before the next is read: it is counted with the base.
        return 0
    waiting = max(_count_waiting(node, time) for _, _, time in find_readers(surface, node))
    return min(whole, HELD_BYTES * waiting + WORKING_BYTES * 2 * BATCH_READINGS)


def all_in_pieces(surface: Perspective, node: Perspective) -> bool:
    """Return whether every step that reads readings, or converts of them, reads in pieces."""
    return all(
        operator is not None and is_read_in_pieces(source, operator)
        for source, operator, _ in find_readers(surface, node)
    )


def find_readers(
    surface: Perspective, node: Perspective
) -> Iterator[tuple[Perspective, Aggregate | None, TimeCells | Instants]]:
    """Yield the source, aggregate (None if not aggregated) and time cells of each reader."""
    if surface.holds_readings:
        yield surface, FIRST, surface.topology.time
    for item in surface.list_chain():
        if item.holds_readings:
            continue
        for source in item.sources:
            if source.holds_readings and node.token in {below.token for below in source.list_chain()}:
                if isinstance(item.operator, Aggregate):
                    yield source, item.operator, item.topology.time
                else:
                    in_time = isinstance(item.operator, InterpolateInTime)
                    yield source, None if in_time else FIRST, source.topology.time


def _count_waiting(node: Perspective, time: TimeCells | Instants) -> int:
    """Return how many readings can wait for complete cells, including the latest piece."""
    base = node.operator
    if not isinstance(base, Base) or not isinstance(base.source, ArchiveSource):
        raise TypeError("pieces are of an archive")
    window, source = base.window, base.source
    columns = source.columns_at_once(CHUNKS_AT_ONCE, window)
    whole = estimate_readings(node) * min(1.0, columns / max(node.topology.space.count, 1))
    if not isinstance(time, Bins | Regular):
        return int(whole)
    cell = whole * int(np.max(find_lengths_ns(time))) / max(window.stop_ns - window.start_ns, 1)
    return int(min(whole, cell + source.chunk_readings * CHUNKS_AT_ONCE))


@dataclass(frozen=True, eq=False)
class PiecewiseAggregate:
    """An aggregate of archive readings that is computed piece by piece."""

    base: Base
    """The base to read."""
    use: Use
    operator: Aggregate
    target: TimeCells
    axis: SeriesAxis
    """All series of the base."""
    intervals: IntervalNotes
    """Collects the notes on the intervals of the readings of `new_cells`."""
    new_cells: NDArray[np.intp]
    """Cells that were not computed before."""

    def compute(self, times: NDArray[np.intp] | None = None) -> Cells:
        """Compute what `aggregate_readings` returns for all readings; `times` as there."""
        chosen = np.arange(self.target.count) if times is None else times
        shape = (len(chosen), self.axis.count)
        value, count = np.full(shape, np.nan), np.zeros(shape, dtype=np.int64)
        possible: NDArray[np.int64] | None = None
        source = self.base.source
        if not isinstance(source, ArchiveSource):
            raise TypeError("pieces are of an archive")
        window = self._window(chosen)
        columns = source.columns_at_once(CHUNKS_AT_ONCE, window or self.base.window)
        for series in source.split_series(columns):
            for rows, part, cells in self._compute_parts(source, window, series, chosen):
                value[rows, part], count[rows, part] = cells.value, cells.count
                if possible is None:
                    # Cells of one length have equal possible counts, so one row serves all.
                    height = 1 if isinstance(self.target, Regular) else len(chosen)
                    possible = np.zeros((height, self.axis.count), dtype=np.int64)
                possible[rows if len(possible) > 1 else slice(None), part] = cells.possible
        return Cells(value, count, np.zeros((1, 1), np.int64) if possible is None else possible)

    def _compute_parts(
        self, source: ArchiveSource, window: Window | None, series: NDArray[np.intp], chosen: NDArray[np.intp]
    ) -> Iterator[tuple[slice, NDArray[np.intp], Cells]]:
        """Yield the completed rows of the chosen cells, their series, and their values."""
        waiting: list[Readings] = []
        done, unread = 0, set(self.base.unread)
        read = np.array([number for number in series.tolist() if number not in unread], dtype=np.intp)
        if len(read) and window is not None:
            for new_readings, until_ns in source.read_pieces(window, read, CHUNKS_AT_ONCE):
                give_way()
                used = self.use(new_readings)
                if len(used):
                    waiting.append(used)
                # A cell is complete once all readings before its end are read, a periodic one only with the last piece.
                complete = done
                if not isinstance(self.target, Periodic):
                    complete += int(np.searchsorted(self._cell_ends(chosen[done:]), until_ns, side="right"))
                if complete > done:
                    yield from self._compute_batches(waiting, series, chosen, slice(done, complete))
                    done = complete
                    waiting = [] if done == len(chosen) else self._select_later(waiting, int(chosen[done]))
        if done < len(chosen):
            yield from self._compute_batches(waiting, series, chosen, slice(done, len(chosen)))

    def _cell_ends(self, cells: NDArray[np.intp]) -> NDArray[np.int64]:
        target = self.target
        if isinstance(target, Regular):
            return target.origin + target.step * cells.astype(np.int64) + target.length
        if isinstance(target, Bins):
            return target.ends[cells]
        return np.full(len(cells), target.stop, dtype=np.int64)

    def _select_later(self, waiting: list[Readings], cell: int) -> list[Readings]:
        """Select the readings that a cell, or a later one, needs."""
        corner = self._corner(cell)
        kept = [part.take_rows(part.starts_ns() >= corner) for part in waiting]
        return [part for part in kept if len(part)]

    def _compute_batches(
        self, waiting: list[Readings], series: NDArray[np.intp], chosen: NDArray[np.intp], rows: slice
    ) -> Iterator[tuple[slice, NDArray[np.intp], Cells]]:
        """Yield the values of some cells, in batches of series that limit memory."""
        edges = _split_series(waiting, series)
        for first, stop in zip(edges[:-1], edges[1:], strict=True):
            series_batch = series[first:stop]
            readings = _select_readings(waiting, series_batch, self.axis)
            axis = take_series(self.axis, series_batch)
            self.intervals.add(readings, np.intersect1d(chosen[rows], self.new_cells))
            yield rows, series_batch, self._aggregate(readings, axis, chosen[rows])

    def _aggregate(self, readings: Readings, axis: SeriesAxis, chosen: NDArray[np.intp]) -> Cells:
        if self.operator is FIRST and isinstance(self.target, Regular):
            # The base itself: a slice holds its first reading, whatever the interval of that reading.
            return aggregate_slices(readings, self.target, axis, chosen)
        return aggregate_readings(readings, self.target, axis, operator=self.operator, times=chosen)

    def _window(self, chosen: NDArray[np.intp]) -> Window | None:
        """Return the window in which readings of the chosen cells begin; None outside the base."""
        window, target = self.base.window, self.target
        if isinstance(target, Periodic):
            return window
        start = max(window.start_ns, self._corner(int(chosen[0])))
        stop = min(window.stop_ns, int(self._cell_ends(chosen[-1:])[0]))
        return Window(start, stop) if start < stop else None

    def _corner(self, cell: int) -> int:
        target = self.target
        # A regular axis may have too many cells to list.
        return target.origin + target.step * cell if isinstance(target, Regular) else int(target.corners[cell])


def _split_series(waiting: list[Readings], series: NDArray[np.intp]) -> list[int]:
    """Split the series into parts of about `BATCH_READINGS` readings, or of one series."""
    counts = np.zeros(len(series), dtype=np.int64)
    for part in waiting:
        counts += np.bincount(np.searchsorted(series, part.index), minlength=len(series))
    number = np.cumsum(counts) // BATCH_READINGS
    cuts = np.flatnonzero(np.diff(number) > 0) + 1
    return [0, *cuts.tolist(), len(series)]


def _select_readings(waiting: list[Readings], series_batch: NDArray[np.intp], axis: SeriesAxis) -> Readings:
    """Select the sorted readings of consecutive series; `index` refers to these series."""
    own = tuple(axis.series[number] for number in series_batch.tolist())
    parts = []
    for part in waiting:
        first, stop = np.searchsorted(part.index, [series_batch[0], series_batch[-1] + 1])
        chosen = part.take_rows(slice(int(first), int(stop)))
        index = np.searchsorted(series_batch, chosen.index).astype(np.int32)
        parts.append(replace(chosen, series=own, index=index, tests=None))
    return concatenate(parts).sort_rows() if parts else Readings.empty(own)
