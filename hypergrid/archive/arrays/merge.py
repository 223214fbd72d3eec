"""Merge rules for new readings; no I/O.

A reading fills a cell, goes to the side table, replaces another reading, or is dropped.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hypergrid.archive.arrays.cells import Tile
from hypergrid.core.flags import ABSENT, MISSING
from hypergrid.core.readings import Readings, concatenate, equal_values


@dataclass(frozen=True, eq=False)
class SideRows:
    """The m rows of the side table that are not superseded."""

    row: NDArray[np.intp]
    """Row numbers in the table, shape (m,)."""
    series: NDArray[np.int32]
    time_ns: NDArray[np.int64]
    value: NDArray[np.float64]
    flag: NDArray[np.uint8]

    @classmethod
    def empty(cls) -> "SideRows":
        none = Readings.empty()
        return cls(np.empty(0, np.intp), none.index, none.time_ns, none.value, none.flag)

    def find(self, series: NDArray[np.int32], time_ns: NDArray[np.int64]) -> NDArray[np.intp]:
        """Return the position (not the row) of each of n distinct keys, -1 if absent."""
        stored = len(self.row)
        every_series = np.concatenate([self.series, series])
        every_time = np.concatenate([self.time_ns, time_ns])
        # The sort is stable, so a stored row directly precedes the equal key that is looked up.
        order = np.lexsort((every_time, every_series))
        before, after = order[:-1], order[1:]
        equal = (every_series[before] == every_series[after]) & (every_time[before] == every_time[after])
        positions = np.full(len(series), -1, np.intp)
        positions[after[equal] - stored] = before[equal]
        return positions


@dataclass(frozen=True, eq=False)
class Placement:
    """Cells of a block to which n readings belong."""

    row: NDArray[np.int64]
    """Row within the block, shape (n,)."""
    column: NDArray[np.int64]
    """Column within the block, shape (n,)."""
    start_ns: NDArray[np.int64]
    """Start of the slice [ns since 1970 UTC], shape (n,)."""

    def take_rows(self, rows: NDArray[np.intp] | NDArray[np.bool_]) -> "Placement":
        return Placement(self.row[rows], self.column[rows], self.start_ns[rows])


@dataclass(frozen=True, eq=False)
class MergeOutcome:
    """Result of `merge`, with the readings to append to the side table."""

    tile_changed: bool
    side_superseded: Readings
    """Replaced readings, in order of replacement."""
    side_current: Readings
    """Readings beyond the first in a cell."""
    side_replaced: NDArray[np.intp]
    """Rows of the side table that are now superseded."""
    stored: int
    """Number of cells that were empty."""
    duplicates: int
    missing: int
    """Change of the number of readings without a value; may be negative."""
    touched: Readings
    """Readings that changed the archive."""
    replaces: NDArray[np.bool_]
    """Which of them replaced another, shape (touched,)."""


def collapse(readings: Readings) -> tuple[Readings, int]:
    """Sort readings by (series, time), drop consecutive duplicates, and count those dropped.

    Equal keys keep their order, so that the later one will replace the earlier.
    """
    ordered = readings.sort_rows()
    repeats = ordered.mark_repeats() & _mark_same(
        ordered.value[1:], ordered.flag[1:], ordered.value[:-1], ordered.flag[:-1]
    )
    if not repeats.any():
        return ordered, 0
    return ordered.take_rows(np.r_[True, ~repeats]), int(np.count_nonzero(repeats))


def merge(  # noqa: PLR0914 - one decision table, easiest to read in one piece
    tile: Tile, given: Readings, places: Placement, *, side: Callable[[], SideRows]
) -> MergeOutcome:
    """Merge readings into a block of cells in place; returns additions to the side table.

    Parameters
    ----------
    tile
        The block; shape (slices, series).
    given
        n readings from `collapse`; those of one cell are adjacent and ordered by time.
    places
        Their cells.
    side
        Returns the variable's side table rows; called only if a cell holds another stamp.
    """
    opening = np.ones(len(given), np.bool_)
    opening[1:] = ~given.mark_repeats()
    first = np.flatnonzero(opening)
    last = np.r_[first[1:], len(given)] - 1
    if len(first) < len(given):
        newest, places = given.take_rows(last), places.take_rows(first)
    else:
        newest = given
    # An empty cell takes the first of its readings, the side table takes the others.
    opens = np.ones(len(newest), np.bool_)
    opens[1:] = (np.diff(places.row) != 0) | (np.diff(places.column) != 0)
    passing = np.ones(len(given), np.bool_)
    passing[last] = False
    if not tile.flag[places.row, places.column].any():
        # Most blocks of a first ingest are empty: this path takes half the work.
        return _fill_empty(tile, newest, places, opens, given.take_rows(passing))

    # Find the stored reading with this stamp, in a cell or in the side table.
    old = tile.take_cells(places.row, places.column)
    occupied = old.flag != ABSENT
    in_cell = occupied & (old.offset_ns == newest.time_ns - places.start_ns)
    asked = np.flatnonzero(occupied & ~in_cell)
    beside = side() if len(asked) else SideRows.empty()
    position = np.full(len(first), -1, np.intp)
    position[asked] = beside.find(newest.index[asked], newest.time_ns[asked])
    in_side = position >= 0
    old.value[in_side], old.flag[in_side] = beside.value[position[in_side]], beside.flag[position[in_side]]
    is_stored = in_cell | in_side

    # The first reading of each key may repeat the stored one: it is dropped, and if it is the only one nothing
    # changes.
    repeats = is_stored & _mark_same(given.value[first], given.flag[first], old.value, old.flag)
    changes = ~(repeats & (first == last))
    passing[first[repeats]] = False
    replaced_cell, replaced_side = in_cell & changes, in_side & changes

    fills = ~occupied & opens
    to_cell = replaced_cell | fills
    to_side = changes & ~to_cell

    replaced = newest.take_rows(replaced_cell)
    displaced = Readings(
        given.series,
        replaced.index,
        replaced.time_ns,
        old.value[replaced_cell],
        old.flag[replaced_cell],
        replaced.time_ns + old.delay_ns[replaced_cell],
        old.tests[replaced_cell],
    )
    _fill_cells(tile, newest.take_rows(to_cell), places.take_rows(to_cell))
    gone = old.flag[replaced_cell | replaced_side]
    return MergeOutcome(
        tile_changed=bool(to_cell.any()),
        side_superseded=concatenate([displaced, given.take_rows(passing)]),
        side_current=newest.take_rows(to_side),
        side_replaced=beside.row[position[replaced_side]],
        stored=int(np.count_nonzero(fills)),
        duplicates=int(np.count_nonzero(repeats)),
        missing=int(np.count_nonzero(newest.flag[changes] == MISSING)) - int(np.count_nonzero(gone == MISSING)),
        touched=newest.take_rows(changes),
        replaces=is_stored[changes],
    )


def _fill_empty(
    tile: Tile, newest: Readings, places: Placement, opens: NDArray[np.bool_], superseded: Readings
) -> MergeOutcome:
    """Merge readings into empty cells; those that open a cell fill it."""
    if opens.all():
        _fill_cells(tile, newest, places)
    else:
        _fill_cells(tile, newest.take_rows(opens), places.take_rows(opens))
    return MergeOutcome(
        tile_changed=len(newest) > 0,
        side_superseded=superseded,
        side_current=newest.take_rows(~opens),
        side_replaced=np.empty(0, np.intp),
        stored=int(np.count_nonzero(opens)),
        duplicates=0,
        missing=int(np.count_nonzero(newest.flag == MISSING)),
        touched=newest,
        replaces=np.zeros(len(newest), np.bool_),
    )


def _fill_cells(tile: Tile, readings: Readings, places: Placement) -> None:
    # A flat index per cell is computed once for all arrays.
    cell = places.row * tile.flag.shape[1] + places.column
    np.put(tile.value, cell, readings.value)
    np.put(tile.flag, cell, readings.flag)
    np.put(tile.offset_ns, cell, readings.time_ns - places.start_ns)
    np.put(tile.delay_ns, cell, readings.arrival_ns - readings.time_ns)
    np.put(tile.tests, cell, 0 if readings.tests is None else readings.tests)


def _mark_same(
    value: NDArray[np.float64], flag: NDArray[np.uint8], other_value: NDArray[np.float64], other_flag: NDArray[np.uint8]
) -> NDArray[np.bool_]:
    return np.asarray(equal_values(value, other_value) & (flag == other_flag))
