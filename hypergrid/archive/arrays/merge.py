"""Where each new reading goes: into its empty cell, beside it, in the place of another, or nowhere; no disk here."""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from hypergrid.archive.arrays.cells import Tile
from hypergrid.core.flags import ABSENT, MISSING
from hypergrid.core.readings import Readings, concatenate, equal_values


@dataclass(frozen=True, eq=False)
class SideRows:
    """The rows of the side table that are not superseded, m of them."""

    row: NDArray[np.intp]
    """Which rows of the table, shape (m,)."""
    series: NDArray[np.int32]
    time_ns: NDArray[np.int64]
    value: NDArray[np.float64]
    flag: NDArray[np.uint8]

    @classmethod
    def empty(cls) -> "SideRows":
        """Return no rows."""
        none = Readings.empty()
        return cls(np.empty(0, np.intp), none.index, none.time_ns, none.value, none.flag)

    def find(self, series: NDArray[np.int32], time_ns: NDArray[np.int64]) -> NDArray[np.intp]:
        """Return for each of n distinct keys the position (not the row) that holds it, -1 where none does."""
        stored = len(self.row)
        every_series = np.concatenate([self.series, series])
        every_time = np.concatenate([self.time_ns, time_ns])
        # The sort keeps the order of equal keys, so a stored row stands directly before the key that asks for it.
        order = np.lexsort((every_time, every_series))
        before, after = order[:-1], order[1:]
        equal = (every_series[before] == every_series[after]) & (every_time[before] == every_time[after])
        positions = np.full(len(series), -1, np.intp)
        positions[after[equal] - stored] = before[equal]
        return positions


@dataclass(frozen=True, eq=False)
class MergeOutcome:
    """What `merge` did, and what is to be added to the side table."""

    tile_changed: bool
    side_superseded: Readings
    """Readings that were replaced, in the order in which that happened."""
    side_current: Readings
    """Readings beyond the first in a cell."""
    side_replaced: NDArray[np.intp]
    """Rows of the side table that are superseded now."""
    stored: int
    """Cells that were empty."""
    duplicates: int
    missing: int
    """By how much the count of readings without a value grew; may be negative."""
    touched: Readings
    """What changed the block."""
    replaces: NDArray[np.bool_]
    """Which of these took the place of another, shape (touched,)."""


def collapse(readings: Readings) -> tuple[Readings, int]:
    """Return readings ordered by (series, time) without those that repeat the one before them, and how many those were.

    Equal keys keep their order: of two, the later one will replace the earlier.
    """
    ordered = readings.sort_rows()
    repeats = ordered.mark_repeats() & _mark_same(
        ordered.value[1:], ordered.flag[1:], ordered.value[:-1], ordered.flag[:-1]
    )
    if not repeats.any():
        return ordered, 0
    return ordered.take_rows(np.r_[True, ~repeats]), int(np.count_nonzero(repeats))


def merge(  # noqa: PLR0914 - one decision table, which reads best in one piece
    tile: Tile,
    given: Readings,
    *,
    row: NDArray[np.int64],
    column: NDArray[np.int64],
    start_ns: NDArray[np.int64],
    side: Callable[[], SideRows],
) -> MergeOutcome:
    """Put readings into a block of cells, which is changed, and say what belongs beside it.

    Parameters
    ----------
    tile
        The block; shape (slices, series).
    given
        n readings from `collapse`, of which those of one cell stand together, ordered by time.
    row, column
        The cell of each within the block, shape (n,).
    start_ns
        Start of each reading's slice [ns since 1970 UTC], shape (n,).
    side
        Gives the side table's rows of the variable; asked only where a cell holds another stamp.
    """
    opening = np.ones(len(given), np.bool_)
    opening[1:] = ~given.mark_repeats()
    first = np.flatnonzero(opening)
    last = np.r_[first[1:], len(given)] - 1
    if len(first) < len(given):
        newest = given.take_rows(last)
        row, column, start_ns = row[first], column[first], start_ns[first]
    else:
        newest = given
    # A cell that is empty takes the first of its readings, the side table the others.
    opens = np.ones(len(row), np.bool_)
    opens[1:] = (row[1:] != row[:-1]) | (column[1:] != column[:-1])
    if not tile.flag[row, column].any():
        return _fill_empty(tile, given, newest, last, row, column, start_ns, opens)

    # Is there a reading with this stamp, and where?
    old = tile.take_cells(row, column)
    occupied = old.flag != ABSENT
    in_cell = occupied & (old.offset_ns == newest.time_ns - start_ns)
    asked = np.flatnonzero(occupied & ~in_cell)
    beside = side() if len(asked) else SideRows.empty()
    position = np.full(len(first), -1, np.intp)
    position[asked] = beside.find(newest.index[asked], newest.time_ns[asked])
    in_side = position >= 0
    old.value[in_side], old.flag[in_side] = beside.value[position[in_side]], beside.flag[position[in_side]]
    is_stored = in_cell | in_side

    # The first of each key may repeat what is stored; then it is dropped, and where nothing follows, nothing happens.
    repeats = is_stored & _mark_same(given.value[first], given.flag[first], old.value, old.flag)
    changes = ~(repeats & (first == last))
    passing = np.ones(len(given), np.bool_)
    passing[last] = False
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
    _fill_cells(tile, newest.take_rows(to_cell), row[to_cell], column[to_cell], start_ns[to_cell])
    gone = old.flag[replaced_cell | replaced_side]
    return MergeOutcome(
        tile_changed=bool(to_cell.any()),
        side_superseded=_join_readings(displaced, given.take_rows(passing)),
        side_current=newest.take_rows(to_side),
        side_replaced=beside.row[position[replaced_side]],
        stored=int(np.count_nonzero(fills)),
        duplicates=int(np.count_nonzero(repeats)),
        missing=int(np.count_nonzero(newest.flag[changes] == MISSING)) - int(np.count_nonzero(gone == MISSING)),
        touched=newest.take_rows(changes),
        replaces=is_stored[changes],
    )


def _fill_empty(
    tile: Tile,
    given: Readings,
    newest: Readings,
    last: NDArray[np.intp],
    row: NDArray[np.int64],
    column: NDArray[np.int64],
    start_ns: NDArray[np.int64],
    opens: NDArray[np.bool_],
) -> MergeOutcome:
    """Put readings into cells of which none holds any, as most of a first ingest are: half the work of `merge`."""
    passing = np.ones(len(given), np.bool_)
    passing[last] = False
    whole = bool(opens.all())
    chosen = slice(None) if whole else opens
    _fill_cells(tile, newest if whole else newest.take_rows(opens), row[chosen], column[chosen], start_ns[chosen])
    return MergeOutcome(
        tile_changed=len(newest) > 0,
        side_superseded=given.take_rows(passing),
        side_current=newest.take_rows(~opens),
        side_replaced=np.empty(0, np.intp),
        stored=int(np.count_nonzero(opens)),
        duplicates=0,
        missing=int(np.count_nonzero(newest.flag == MISSING)),
        touched=newest,
        replaces=np.zeros(len(newest), np.bool_),
    )


def _fill_cells(
    tile: Tile, readings: Readings, row: NDArray[np.int64], column: NDArray[np.int64], start_ns: NDArray[np.int64]
) -> None:
    # By one number a cell, which is found once for all arrays.
    cell = row * tile.flag.shape[1] + column
    np.put(tile.value, cell, readings.value)
    np.put(tile.flag, cell, readings.flag)
    np.put(tile.offset_ns, cell, readings.time_ns - start_ns)
    np.put(tile.delay_ns, cell, readings.arrival_ns - readings.time_ns)
    if readings.tests is not None:
        np.put(tile.tests, cell, readings.tests)
    else:
        np.put(tile.tests, cell, 0)


def _mark_same(
    value: NDArray[np.float64], flag: NDArray[np.uint8], other_value: NDArray[np.float64], other_flag: NDArray[np.uint8]
) -> NDArray[np.bool_]:
    same: NDArray[np.bool_] = equal_values(value, other_value) & (flag == other_flag)
    return same


def _join_readings(earlier: Readings, later: Readings) -> Readings:
    return concatenate([earlier, later])
