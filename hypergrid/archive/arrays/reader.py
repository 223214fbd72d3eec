"""Read cells and side table of a variable as readings, optionally as of an instant."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hypergrid.archive.arrays.cells import CHUNK_SERIES, CHUNK_SLICES, RUN_CHUNKS, Slices, split_consecutive
from hypergrid.archive.arrays.merge import collapse
from hypergrid.archive.arrays.records import node_name
from hypergrid.archive.arrays.root import Root
from hypergrid.archive.arrays.table import CHUNK_ROWS
from hypergrid.archive.arrays.variable_group import GROUP as VARIABLES
from hypergrid.archive.arrays.variable_group import Extent, VariableGroup, join_extents
from hypergrid.archive.disk.concurrent_io import DamagedChunk, DamagedChunks
from hypergrid.core.errors import DamagedArchive, NotFound
from hypergrid.core.readings import Readings, concatenate
from hypergrid.core.times import Window, format_instant


def read(
    source: VariableGroup,
    slices: Slices,
    *,
    window: Window | None,
    series: NDArray[np.intp] | None,
    superseded: bool,
    tests: bool = False,
) -> Readings:
    """Return readings as specified by `Archive.read`."""
    wanted = _mask_series(source, series)
    side = source.side_readings(superseded=superseded, tests=tests, window=window)
    parts = [side.take_rows(wanted[side.index] & (window is None or window.holds(side.time_ns)))]
    if not superseded:
        parts += _read_cells(source, slices, window, wanted, tests=tests)
    return concatenate(parts).sort_rows()


def count_cells(
    source: VariableGroup,
    slices: Slices,
    *,
    window: Window | None,
    series: NDArray[np.intp] | None,
    flags: tuple[int, ...],
    maximum: float,
) -> int:
    """Count the cells with a reading in slices inside the window, until the count exceeds `maximum`."""
    if source.extent is None:
        return 0
    start, stop = source.extent[0], source.extent[1] + 1
    if window is not None:
        # From the first slice that begins in the window, up to the one that contains its end, exclusive.
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
        raise NotFound(
            f"series index {wrong} of {source.variable.name!r} does not exist; it has the series 0 to {count - 1}"
        )
    wanted = np.zeros(count, np.bool_)
    wanted[chosen] = True
    return wanted


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
        yield readings if window is None else readings.select_window(window)


def _iterate_blocks(
    source: VariableGroup, start: int, stop: int, wanted: NDArray[np.bool_]
) -> Iterator[tuple[slice, slice]]:
    """Yield slices and series of each block in the range that may contain wanted cells."""
    for left in range(0, len(wanted), CHUNK_SERIES):
        columns = slice(left, min(left + CHUNK_SERIES, len(wanted)))
        if wanted[columns].any():
            for rows in iterate_bands(source, start, stop):
                yield rows, columns


def iterate_bands(source: VariableGroup, start: int, stop: int, maximum: int = RUN_CHUNKS) -> Iterator[slice]:
    """Yield the slices whose chunks hold readings, in runs of at most `maximum` chunks."""
    chunks = source.chunks
    for run in split_consecutive(chunks[(chunks >= start // CHUNK_SLICES) & (chunks * CHUNK_SLICES < stop)]):
        for first in range(0, len(run), maximum):
            band = run[first : first + maximum]
            yield slice(max(start, int(band[0]) * CHUNK_SLICES), min(stop, (int(band[-1]) + 1) * CHUNK_SLICES))


def _read_block(
    source: VariableGroup, slices: Slices, rows: slice, columns: slice, wanted: NDArray[np.bool_], *, tests: bool
) -> Readings:
    tile = source.cells.read(rows, columns, tests=tests)
    # Transposed, so that the cells are ordered by series, then time, and the parts need little sorting.
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


# As-of reads: of the versions of each reading, those that had arrived by an instant.
#
# Exact for readings and superseded readings. Data stored without a time are those of the snapshot: flags that tests
# set later, positions and names of stations, layers, declarations, and series (one without an arrived reading is
# listed but empty). A reading received twice has the arrival of the first committed; versions of a reading follow in
# commit order; if a feed gives no arrivals, a reading arrived when it was ingested.


def split_known(current: Readings, superseded: Readings, as_of_ns: int) -> tuple[Readings, Readings]:
    """Split readings into the current and the superseded ones as known at an instant.

    Parameters
    ----------
    current, superseded
        Readings of the same series; superseded ones of one stamp oldest first.
    as_of_ns
        The instant, inclusive [ns since 1970 UTC].

    Returns
    -------
    Both ordered by series, then time.
    """
    earlier = superseded.take_rows(superseded.arrival_ns <= as_of_ns)
    latest = current.take_rows(current.arrival_ns <= as_of_ns)
    if not len(earlier):
        return latest.sort_rows(), earlier
    # If the version between two equal ones had not arrived, the second would have been dropped as a duplicate.
    versions, _ = collapse(concatenate([earlier, latest]))
    is_last = np.append(~versions.mark_repeats(), True)  # noqa: FBT003 - the last one has no next
    return versions.take_rows(is_last), versions.take_rows(~is_last)


def find_extent(source: VariableGroup, slices: Slices, as_of_ns: int | None) -> Extent | None:
    """Return the first and last slice with a reading at an instant, or now; None if none."""
    if as_of_ns is None or source.extent is None:
        return source.extent
    extent: Extent | None = None
    if len(source.side):
        time_ns, arrival_ns = source.side.read("time_ns", "arrival_ns")
        stamps = slices.index(time_ns[arrival_ns <= as_of_ns])
        extent = (int(stamps.min()), int(stamps.max())) if len(stamps) else None
    runs = list(iterate_bands(source, source.extent[0], source.extent[1] + 1))
    for ordered_runs in (runs, reversed(runs)):
        # From each end, read only up to the first cells that had arrived.
        for rows in ordered_runs:
            inside = _find_arrived_rows(source, slices, rows, as_of_ns)
            if len(inside):
                extent = join_extents(extent, (rows.start + int(inside[0]), rows.start + int(inside[-1])))
                break
    return extent


def _find_arrived_rows(source: VariableGroup, slices: Slices, rows: slice, as_of_ns: int) -> NDArray[np.intp]:
    """Return the slices of a block that hold a reading that had arrived."""
    any_of = np.zeros(rows.stop - rows.start, np.bool_)
    starts_ns = slices.starts_ns(np.arange(rows.start, rows.stop))[:, None]
    for left in range(0, len(source.series), CHUNK_SERIES):
        tile = source.cells.read(rows, slice(left, min(left + CHUNK_SERIES, len(source.series))), tests=False)
        any_of |= ((tile.flag != 0) & (starts_ns + tile.offset_ns + tile.delay_ns <= as_of_ns)).any(axis=1)
    return np.flatnonzero(any_of)


def count_as_of(source: VariableGroup, slices: Slices, as_of_ns: int) -> int:
    """Count the readings at an instant, without superseded ones."""
    if source.extent is None:
        return 0
    total = 0
    for rows in iterate_bands(source, source.extent[0], source.extent[1] + 1):
        window = Window(slices.start_ns(rows.start), slices.start_ns(rows.stop))
        current, superseded = (
            read(source, slices, window=window, series=None, superseded=replaced) for replaced in (False, True)
        )
        known, _ = split_known(current, superseded, as_of_ns)
        total += len(known)
    return total


# Descriptions of damaged chunks: the variable, times and stations that are lost.
#
# All other chunks remain readable, so the caller can query around them.

_NAMED: Final = 8
"""Maximum number of stations that are named."""


@contextmanager
def name_damaged_chunks(path: Path, layout: Callable[[], tuple[Root, Slices]]) -> Iterator[None]:
    """Translate the error for damaged chunks into one that describes their content.

    Parameters
    ----------
    path
        Folder of the archive.
    layout
        Returns the root and the slices; called only on an error.
    """
    try:
        yield
    except DamagedChunks as error:
        named = "; ".join(dict.fromkeys(describe_chunk(chunk, *layout()) for chunk in error.chunks))
        raise DamagedArchive(
            f"{path} is damaged: {named} cannot be read, as the checksum differs; all else can, so that "
            f"questions about other times or stations are answered; 'hypergrid check {path} --repair' brings "
            "back what raw copies hold"
        ) from error


def describe_chunk(chunk: DamagedChunk, root: Root, slices: Slices) -> str:
    """Describe a chunk: variable, times and stations, or array and rows outside of variables."""
    names = {f"{VARIABLES}/{node_name(name)}": name for name in root.variables}
    group, _, array = chunk.array.rpartition("/")
    name = names.get(group.removesuffix("/side"))
    if name is None:
        return str(chunk)
    variable = VariableGroup.load(root.group, name)
    if group.endswith("/side"):
        when = _times_of_rows(chunk.block[0], variable)
        return f"{array} of readings beside the slices of {name}{when}"
    rows, columns = chunk.block
    stations = list(dict.fromkeys(item.station for item in variable.series[columns]))
    more = f" and {len(stations) - _NAMED} more" if len(stations) > _NAMED else ""
    when = _span(slices.start_ns(rows.start), slices.start_ns(rows.stop))
    return f"{array} of {name}{when}, stations {', '.join(stations[:_NAMED])}{more}"


def _times_of_rows(rows: slice, variable: VariableGroup) -> str:
    """Describe the times of side table rows; empty if unknown, in older archives."""
    chunk = rows.start // CHUNK_ROWS
    if variable.spans is None or chunk >= len(variable.spans):
        return ""
    return _span(*variable.spans[chunk].tolist())


def _span(start_ns: int, stop_ns: int) -> str:
    return f" from {format_instant(start_ns)} to {format_instant(stop_ns)}"
