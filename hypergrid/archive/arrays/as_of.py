"""What was known at an instant: of the versions of each reading, those that had arrived by then.

Exact for readings and what they replaced. Not stored with a time, and so as they are in the snapshot that is read:
flags that tests gave later, positions and names of stations, layers, declarations and series (one without a reading
that had arrived is listed, and holds nothing). Of a reading that came twice the arrival of the first to be committed
counts; versions of one reading follow one another in the order of their commits; where a feed tells no arrivals, a
reading arrived when it was ingested.
"""

import numpy as np
from numpy.typing import NDArray

from hypergrid.archive.arrays.cells import CHUNK_SERIES, Slices
from hypergrid.archive.arrays.reader import iterate_bands, read
from hypergrid.archive.arrays.variable_group import Extent, VariableGroup, join_extents
from hypergrid.core.readings import Readings, concatenate
from hypergrid.core.times import Window


def split_known(current: Readings, superseded: Readings, as_of_ns: int) -> tuple[Readings, Readings]:
    """Return what would be current and what superseded if only what had arrived by an instant were known.

    Parameters
    ----------
    current, superseded
        Readings of the same series; superseded ones of one stamp oldest first.
    as_of_ns
        The instant, included [ns since 1970 UTC].

    Returns
    -------
    Both ordered by series, then time.
    """
    earlier = superseded.take_rows(superseded.arrival_ns <= as_of_ns)
    latest = current.take_rows(current.arrival_ns <= as_of_ns)
    if not len(earlier):
        return latest.sort_rows(), earlier
    # The sort keeps the order of equal keys, so the versions of a reading stand together, oldest first.
    versions = concatenate([earlier, latest]).sort_rows()
    same_key = _mark_equal(versions.index) & _mark_equal(versions.time_ns)
    nothing = np.isnan(versions.value)
    same_value = _mark_equal(versions.value) | (nothing[1:] & nothing[:-1])
    # Where what lay between two equal versions had not arrived, the second one would have been a duplicate.
    repeats = same_key & same_value & _mark_equal(versions.flag)
    if repeats.any():
        versions = versions.take_rows(np.r_[True, ~repeats])
        same_key = _mark_equal(versions.index) & _mark_equal(versions.time_ns)
    is_last = np.r_[~same_key, True]
    return versions.take_rows(is_last), versions.take_rows(~is_last)


def _mark_equal(column: NDArray[np.generic]) -> NDArray[np.bool_]:
    equal: NDArray[np.bool_] = column[1:] == column[:-1]
    return equal


def find_extent(source: VariableGroup, slices: Slices, as_of_ns: int) -> Extent | None:
    """Return the first and the last slice that held a reading at an instant; None where none did."""
    if source.extent is None:
        return None
    extent: Extent | None = None
    if len(source.side):
        time_ns, arrival_ns = source.side.read("time_ns", "arrival_ns")
        stamps = slices.index(time_ns[arrival_ns <= as_of_ns])
        extent = (int(stamps.min()), int(stamps.max())) if len(stamps) else None
    runs = list(iterate_bands(source, source.extent[0], source.extent[1] + 1))
    for ordered_runs in (runs, reversed(runs)):
        # From each end only as far as the first cells that had arrived.
        for rows in ordered_runs:
            inside = _find_arrived_rows(source, slices, rows, as_of_ns)
            if len(inside):
                extent = join_extents(extent, (rows.start + int(inside[0]), rows.start + int(inside[-1])))
                break
    return extent


def _find_arrived_rows(source: VariableGroup, slices: Slices, rows: slice, as_of_ns: int) -> NDArray[np.intp]:
    """Return which slices of a block hold a reading that had arrived."""
    any_of = np.zeros(rows.stop - rows.start, np.bool_)
    starts_ns = slices.starts_ns(np.arange(rows.start, rows.stop))[:, None]
    for left in range(0, len(source.series), CHUNK_SERIES):
        tile = source.cells.read(rows, slice(left, min(left + CHUNK_SERIES, len(source.series))), tests=False)
        any_of |= ((tile.flag != 0) & (starts_ns + tile.offset_ns + tile.delay_ns <= as_of_ns)).any(axis=1)
    return np.flatnonzero(any_of)


def count_as_of(source: VariableGroup, slices: Slices, as_of_ns: int) -> dict[str, int]:
    """Return the number of readings, of those without a value, of superseded ones, and of slices, at an instant."""
    total = dict.fromkeys(("readings", "missing", "superseded", "slices"), 0)
    if source.extent is None:
        return total
    for rows in iterate_bands(source, source.extent[0], source.extent[1] + 1):
        window = Window(slices.start_ns(rows.start), slices.start_ns(rows.stop))
        current, superseded = (
            read(source, slices, window=window, series=None, superseded=replaced) for replaced in (False, True)
        )
        known, before = split_known(current, superseded, as_of_ns)
        total["readings"] += len(known)
        total["missing"] += int(np.isnan(known.value).sum())
        total["superseded"] += len(before)
        total["slices"] += len(np.unique(slices.index(known.time_ns)))
    return total
