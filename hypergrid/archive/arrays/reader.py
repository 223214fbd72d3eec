"""Reading a variable's cells and side table back as readings."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from hypergrid.archive.arrays.cells import CHUNK_SERIES, CHUNK_SLICES, RUN_CHUNKS, Slices, split_consecutive
from hypergrid.archive.arrays.variable_group import VariableGroup
from hypergrid.core.errors import NotFound
from hypergrid.core.readings import Readings, concatenate
from hypergrid.core.times import Window


def read(
    source: VariableGroup,
    slices: Slices,
    *,
    window: Window | None,
    series: NDArray[np.intp] | None,
    superseded: bool,
    tests: bool = False,
) -> Readings:
    """Return what `Archive.read` says."""
    wanted = _mask_series(source, series)
    side = source.side_readings(superseded=superseded, tests=tests, window=window)
    parts = [side.take_rows(_mask_window(side.time_ns, window) & wanted[side.index])]
    if not superseded:
        parts += _read_cells(source, slices, window, wanted, tests=tests)
    return concatenate(parts).sort_rows()


def count_slices(source: VariableGroup) -> int:
    """Return how many slices hold a reading."""
    if source.extent is None:
        return 0
    first, last = source.extent
    columns = slice(0, len(source.series))
    return sum(
        int(np.count_nonzero(source.cells.read_flags(rows, columns).any(axis=1)))
        for rows in iterate_bands(source, first, last + 1)
    )


def count_cells(
    source: VariableGroup,
    slices: Slices,
    *,
    window: Window | None,
    series: NDArray[np.intp] | None,
    flags: tuple[int, ...],
    maximum: float,
) -> int:
    """Return how many cells hold a reading, in slices that lie within the window, counted until they exceed `most`."""
    if source.extent is None:
        return 0
    start, stop = source.extent[0], source.extent[1] + 1
    if window is not None:
        # The first slice that begins in the window, and the one that its end lies in or begins with.
        start = max(start, slices.position(window.start_ns - 1) + 1)
        stop = min(stop, slices.position(window.stop_ns))
    wanted, count = _mask_series(source, series), 0
    for rows, columns in _iterate_blocks(source, start, stop, wanted):
        held = source.cells.read_flags(rows, columns)[:, wanted[columns]]
        count += int(np.count_nonzero(np.isin(held, flags) if flags else held))
        if count > maximum:
            break
    return count


def _mask_series(source: VariableGroup, series: NDArray[np.intp] | None) -> NDArray[np.bool_]:
    count = len(source.series)
    if series is None:
        return np.ones(count, np.bool_)
    chosen = np.asarray(series, np.intp)
    if len(chosen) and (chosen.min() < 0 or chosen.max() >= count):
        wrong = int(chosen.min() if chosen.min() < 0 else chosen.max())
        message = f"series index {wrong} of {source.variable.name!r} does not exist; it has the series 0 to {count - 1}"
        raise NotFound(message)
    wanted = np.zeros(count, np.bool_)
    wanted[chosen] = True
    return wanted


def _mask_window(time_ns: NDArray[np.int64], window: Window | None) -> NDArray[np.bool_]:
    return np.ones(len(time_ns), np.bool_) if window is None else window.holds(time_ns)


def _read_cells(
    source: VariableGroup, slices: Slices, window: Window | None, wanted: NDArray[np.bool_], *, tests: bool
) -> Iterator[Readings]:
    if source.extent is None:
        return
    start, stop = source.extent[0], source.extent[1] + 1
    if window is not None:
        start = max(start, slices.position(window.start_ns))
        stop = min(stop, slices.position(window.stop_ns - 1) + 1)
    for rows, columns in _iterate_blocks(source, start, stop, wanted):
        readings = _read_block(source, slices, rows, columns, wanted, tests=tests)
        yield readings if window is None else readings.take_rows(_mask_window(readings.time_ns, window))


def _iterate_blocks(
    source: VariableGroup, start: int, stop: int, wanted: NDArray[np.bool_]
) -> Iterator[tuple[slice, slice]]:
    """Yield the slices and the series of each block that may hold wanted cells, from a slice to another."""
    for left in range(0, len(wanted), CHUNK_SERIES):
        columns = slice(left, min(left + CHUNK_SERIES, len(wanted)))
        if wanted[columns].any():
            for rows in iterate_bands(source, start, stop):
                yield rows, columns


def iterate_bands(source: VariableGroup, start: int, stop: int, maximum: int = RUN_CHUNKS) -> Iterator[slice]:
    """Yield the slices from start to stop as far as their chunks hold readings, in runs of at most `most` chunks."""
    chunks = source.chunks
    for run in split_consecutive(chunks[(chunks >= start // CHUNK_SLICES) & (chunks * CHUNK_SLICES < stop)]):
        for first in range(0, len(run), maximum):
            band = run[first : first + maximum]
            yield slice(max(start, int(band[0]) * CHUNK_SLICES), min(stop, (int(band[-1]) + 1) * CHUNK_SLICES))


def _read_block(
    source: VariableGroup, slices: Slices, rows: slice, columns: slice, wanted: NDArray[np.bool_], *, tests: bool
) -> Readings:
    tile = source.cells.read(rows, columns, tests=tests)
    # Transposed, so that the cells come ordered by series, then time, and the parts need little sorting.
    column, row = np.nonzero((tile.flag.T != 0) & wanted[columns, None])
    time_ns = slices.starts_ns(rows.start + row) + tile.offset_ns[row, column]
    return Readings(
        source.series,
        (column + columns.start).astype(np.int32),
        time_ns,
        tile.value[row, column],
        tile.flag[row, column],
        time_ns + tile.delay_ns[row, column],
        tile.tests[row, column] if tests else None,
    )
