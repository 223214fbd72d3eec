"""Salvage of damaged chunks: report and clear them, so that the rest becomes writable.

Called inside a commit, whose writer then stores the values of raw copies again (`ingest.repair.restore_values`).
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

import icechunk
import numpy as np
import zarr
from numpy.typing import NDArray
from zarr.abc.store import RangeByteRequest
from zarr.core.buffer import default_buffer_prototype
from zarr.core.sync import sync

from hypergrid.archive.archive import Archive
from hypergrid.archive.arrays.cells import ARRAYS, CHUNK_SERIES, CHUNK_SLICES, TESTS, Slices
from hypergrid.archive.arrays.layer_store import GROUP as LAYERS
from hypergrid.archive.arrays.layer_store import read_entries, remove_layer
from hypergrid.archive.arrays.reader import iterate_bands
from hypergrid.archive.arrays.records import FileEntry, Repair, node_name
from hypergrid.archive.arrays.root import SPARE, SPARED, TABLES, Root, Row
from hypergrid.archive.arrays.table import CHUNK_ROWS
from hypergrid.archive.arrays.variable_group import VariableGroup
from hypergrid.archive.disk.concurrent_io import list_stored_chunks, open_array, open_group, open_root
from hypergrid.core.errors import HyperGridError
from hypergrid.core.flags import ABSENT, MISSING, NOT_EVALUATED
from hypergrid.core.readings import Readings
from hypergrid.core.times import Window, format_instant

_UNREADABLE: Final = (ValueError, RuntimeError, icechunk.IcechunkError)
"""Errors of Zarr and Icechunk for a damaged, truncated or missing chunk."""


@dataclass
class Hole:
    """A block of a variable's cells in which some arrays are damaged."""

    rows: slice
    """Slices."""
    columns: slice
    """Series numbers."""
    known: Mapping[str, NDArray[Any]]
    """The readable arrays, each of shape (slices, series)."""

    @property
    def knows_arrivals(self) -> bool:
        return "delay_ns" in self.known

    def mark_filled(self) -> NDArray[np.bool_] | None:
        """Mark the cells that held a reading, shape (slices, series); None if unknown."""
        if "flag" in self.known:
            return np.asarray(self.known["flag"] != ABSENT)
        # A reading without a value cannot be distinguished from an empty cell.
        return ~np.isnan(self.known["value"]) if "value" in self.known else None


@dataclass
class Damage:
    """The damage to a variable."""

    holes: list[Hole] = field(default_factory=list)
    side_rows: NDArray[np.bool_] | None = None
    """Rows of the side table that are not fully readable, shape (rows,); None if all are."""

    def __bool__(self) -> bool:
        return bool(self.holes) or self.side_rows is not None

    @property
    def readings_at_most(self) -> int:
        """Upper bound of the number of affected readings."""
        cells = 0
        for hole in self.holes:
            filled = hole.mark_filled()
            size = (hole.rows.stop - hole.rows.start) * (hole.columns.stop - hole.columns.start)
            cells += size if filled is None else int(np.count_nonzero(filled))
        return cells + (0 if self.side_rows is None else int(np.count_nonzero(self.side_rows)))

    def list_windows(self, group: VariableGroup, slices: Slices) -> list[Window]:
        """Return the windows of time that may lack readings."""
        damaged_windows = [
            Window(slices.start_ns(hole.rows.start), slices.start_ns(hole.rows.stop)) for hole in self.holes
        ]
        if self.side_rows is not None and group.extent is not None:
            first, last = group.extent
            spans = np.empty((0, 2), np.int64) if group.spans is None else group.spans
            for chunk in np.unique(np.flatnonzero(self.side_rows) // CHUNK_ROWS).tolist():
                if chunk < len(spans):
                    damaged_windows.append(Window(int(spans[chunk, 0]), int(spans[chunk, 1]) + 1))
                else:
                    damaged_windows.append(Window(slices.start_ns(first), slices.start_ns(last + 1)))
        return damaged_windows


def find_damage(group: VariableGroup) -> Damage:
    """Find unreadable cells and side rows of a variable, one chunk in memory at once."""
    holes = []
    arrays = {name: open_array(group.group, name) for name in (*ARRAYS, *([TESTS] if group.tested else []))}
    shape = arrays["flag"].shape
    for top, left in sorted({coordinate for array in arrays.values() for coordinate in list_stored_chunks(array)}):
        rows = slice(top * CHUNK_SLICES, min((top + 1) * CHUNK_SLICES, shape[0]))
        columns = slice(left * CHUNK_SERIES, min((left + 1) * CHUNK_SERIES, shape[1]))
        known = {}
        for name, array in arrays.items():
            try:
                known[name] = np.asarray(array[rows, columns])
            except _UNREADABLE:
                continue
        if len(known) < len(arrays):
            holes.append(Hole(rows, columns, known))
    return Damage(holes, _find_unreadable_rows(open_group(group.group, "side")))


def remove_damaged(group: VariableGroup, damage: Damage) -> None:
    """Remove the damaged blocks and side rows; `recount` must update the counts afterwards."""
    arrays = [name for name in (*ARRAYS, TESTS) if name in group.group]
    for hole in damage.holes:
        # All arrays of the block are cleared, intact ones too, so that no cell is filled in part.
        chunk_key = f"{hole.rows.start // CHUNK_SLICES}/{hole.columns.start // CHUNK_SERIES}"
        for name in arrays:
            sync(group.group.store.delete(f"{group.group.path}/{name}/c/{chunk_key}"))
    if damage.side_rows is not None:
        group.keep_side_rows(~damage.side_rows)


def put_back(hole: Hole, group: VariableGroup, slices: Slices) -> Readings:
    """Return the readings of a hole whose value and exact stamp are intact.

    A lost arrival is replaced by the stamp, a lost flag by NOT_EVALUATED.
    """
    if not {"value", "offset_ns"} <= hole.known.keys():
        return Readings.empty(group.series)
    filled = hole.mark_filled()
    assert filled is not None
    return _make_readings(hole, filled, group, slices)


def read_known_flags(hole: Hole, group: VariableGroup, slices: Slices) -> Readings:
    """Return readings of a hole with intact stamp and flag; values may be meaningless."""
    if not {"flag", "offset_ns"} <= hole.known.keys():
        return Readings.empty(group.series)
    return _make_readings(hole, hole.known["flag"] != ABSENT, group, slices)


def _make_readings(hole: Hole, filled: NDArray[np.bool_], group: VariableGroup, slices: Slices) -> Readings:
    """Build readings of a hole with intact stamps; `filled` has shape (slices, series)."""
    row, column = np.nonzero(filled)

    def of(name: str, otherwise: float, dtype: str) -> NDArray[Any]:
        known = hole.known.get(name)
        return np.full(len(row), otherwise, dtype) if known is None else known[row, column].astype(dtype)

    time_ns = slices.starts_ns(hole.rows.start + row) + hole.known["offset_ns"][row, column]
    value, flag = of("value", np.nan, "float64"), of("flag", NOT_EVALUATED, "uint8")
    if "flag" not in hole.known:
        flag[np.isnan(value)] = MISSING
    index = (column + hole.columns.start).astype(np.int32)
    return Readings(
        group.series, index, time_ns, value, flag, time_ns + of("delay_ns", 0, "int64"), of(TESTS, 0, "uint16")
    )


@dataclass(frozen=True)
class LostReadings:
    """Readings of a series that were not recovered."""

    variable: str
    station: str
    source: str
    """Station and source of the series; both empty if any series of the variable may be affected."""
    first_ns: int
    stop_ns: int
    """Bounds of their stamps, the second exclusive [ns since 1970 UTC]."""
    count: int | None
    """Number of readings; None if unknown."""

    def to_json(self) -> dict[str, Any]:
        return {
            "variable": self.variable,
            "station": self.station,
            "source": self.source,
            "from": format_instant(self.first_ns),
            "to": format_instant(self.stop_ns),
            "count": self.count,
        }


def lost_readings(name: str, holes: Sequence[Hole], group: VariableGroup, slices: Slices) -> Iterator[LostReadings]:
    """Yield the readings of holes that were not stored again, by series, with slice times.

    If neither flags nor values of a hole are readable, its filled cells are unknown: then every series with an empty
    cell is reported as possibly affected.
    """
    for hole in holes:
        is_back = group.cells.read_flags(hole.rows, hole.columns) != ABSENT
        filled = hole.mark_filled()
        gone = ~is_back if filled is None else filled & ~is_back
        for column in np.flatnonzero(gone.any(axis=0)).tolist():
            rows = np.flatnonzero(gone[:, column]) + hole.rows.start
            series = group.series[hole.columns.start + column]
            start_ns, stop_ns = slices.start_ns(int(rows[0])), slices.start_ns(int(rows[-1]) + 1)
            yield LostReadings(
                name, series.station, series.source, start_ns, stop_ns, None if filled is None else len(rows)
            )


def recount(group: VariableGroup, slices: Slices) -> None:
    """Recompute the counts, extent and chunks of a variable."""
    readings = missing = 0
    columns = slice(0, len(group.series))
    bands = list(iterate_bands(group, 0, slices.count, 1))
    group.extent, group.chunks = None, np.empty(0, np.int64)
    for rows in bands:
        flag = group.cells.read_flags(rows, columns)
        filled = np.flatnonzero((flag != ABSENT).any(axis=1)) + rows.start
        if len(filled):
            readings += int(np.count_nonzero(flag != ABSENT))
            missing += int(np.count_nonzero(flag == MISSING))
            group.occupy(filled)
    flag, superseded = group.side.read("flag", "superseded")
    current = superseded == 0
    group.readings = readings + int(np.count_nonzero(current))
    group.missing = missing + int(np.count_nonzero(current & (flag == MISSING)))
    group.superseded = int(np.count_nonzero(superseded))
    group.save()


def find_damaged_parts(archive: Archive) -> tuple[dict[str, list[Window]], bool]:
    """Return windows that may lack readings, by variable, and whether tables or layers are damaged."""
    root, slices = archive.root, archive.slices
    variables = {}
    for name in root.variables:
        group = VariableGroup.load(root.group, name)
        if damage := find_damage(group):
            variables[name] = damage.list_windows(group, slices)
    tables = any(not is_whole_table(root, name) for name in TABLES) or not _is_spare_whole(root)
    return variables, (tables or any(not _layer_is_whole(root, name) for name in read_entries(root.group)))


def mend_root(root: Root, archive: Archive, done: list[Repair]) -> bool:
    """Repair tables, which no raw copy has, from their spare or an older snapshot.

    Layers that cannot be read are removed.

    Repairs are appended to `done`; returns whether there were any.
    """
    before = len(done)
    for name in TABLES:
        if is_whole_table(root, name):
            continue
        all_of, rows, source = root.count_rows(name), read_spare_rows(root, name), "its spare"
        # Older snapshots lack later rows, so a complete spare is better.
        if len(rows) < all_of:
            older = find_whole_table(archive, name)
            kept = [] if older is None else older[1].read_rows(name)
            if older is not None and len(kept) > len(rows):
                rows, source = kept, f"snapshot {older[0]}"
        root.replace_table(name, rows)
        what = f"its rows are those of {source}" if rows else "begins anew"
        lost = max(0, all_of - len(rows))
        done.append(Repair(f"table of {name}", f"was damaged; {what}: of {all_of:,} {lost:,} are lost", lost=lost > 0))
    if not _is_spare_whole(root):
        root.renew_spare()
        done.append(Repair("spare of the tables", "was another than the tables; it was written anew"))
    for name in read_entries(root.group):
        if not _layer_is_whole(root, name):
            remove_layer(root.group, name)
            what = f"cannot be read, and was taken away; add it again: hypergrid layers add ARCHIVE FILE --name {name}"
            done.append(Repair(f"layer {name}", what, lost=True))
    return len(done) > before


def _layer_is_whole(root: Root, name: str) -> bool:
    group = open_group(root.group, f"{LAYERS}/{node_name(name)}")
    return not any(_is_damaged(array) for _, array in group.arrays())


def is_whole_table(root: Root, name: str) -> bool:
    return _find_unreadable_rows(open_group(root.group, name)) is None


def find_whole_table(archive: Archive, name: str) -> tuple[str, Root] | None:
    """Return the newest snapshot whose table of that name is whole, and its root."""
    for snapshot in archive.snapshots:
        with suppress(HyperGridError, icechunk.IcechunkError):
            root = archive.at_snapshot(snapshot.id).root
            if is_whole_table(root, name):
                return snapshot.id, root
    return None


def read_spare_rows(root: Root, name: str) -> list[Row]:
    """Return the rows of a damaged table from its spare; empty if damaged too."""
    try:
        return root.read_spare(name) if name in SPARED else []
    except _UNREADABLE:
        return []


def read_ledger(root: Root) -> list[FileEntry] | None:
    """Return the ledger of files, from its spare if damaged; None if both are."""
    try:
        return root.files()
    except _UNREADABLE:
        return [FileEntry(*row) for row in read_spare_rows(root, "files")] or None


def _is_spare_whole(root: Root) -> bool:
    """Return whether the spare matches the readable tables; one left by an older program does."""
    if SPARE not in root.stored_tables:
        return True
    if not is_whole_table(root, SPARE):
        return False
    whole = (name for name in SPARED if is_whole_table(root, name))
    return not root.is_spare_complete() or all(root.read_spare(name) == root.read_rows(name) for name in whole)


def _find_unreadable_rows(table: zarr.Group) -> NDArray[np.bool_] | None:
    """Return the rows of a table with an unreadable column; None if there are none."""
    columns = [array for _, array in table.arrays()]
    bad = np.zeros(max((array.shape[0] for array in columns), default=0), np.bool_)
    for array in columns:
        for (chunk,) in list_stored_chunks(array):
            rows = slice(chunk * array.chunks[0], min((chunk + 1) * array.chunks[0], array.shape[0]))
            try:
                array[rows]
            except _UNREADABLE:
                bad[rows] = True
    return bad if bad.any() else None


def _is_damaged(array: zarr.Array[Any]) -> bool:
    try:
        array[...]
    except _UNREADABLE:
        return True
    return False


def has_all_chunks(repository: icechunk.Repository, snapshot: str) -> bool:
    """Return whether every chunk that a snapshot names exists; it may be damaged.

    If the snapshot itself is unreadable, Icechunk raises or panics.
    """
    session = repository.readonly_session(snapshot_id=snapshot)
    return bool(sync(_are_all_there(session.store, open_root(session))))


async def _are_all_there(store: icechunk.IcechunkStore, root: zarr.Group) -> bool:
    """Return whether the first byte of every chunk can be read."""
    prototype = default_buffer_prototype()
    async for path, node in root._async_group.members(max_depth=None):
        if isinstance(node, zarr.AsyncArray):
            async for coordinate in store.session.chunk_coordinates(f"/{path}"):
                key = "/".join([path, "c", *map(str, coordinate)])
                try:
                    # One byte is enough: only existence is tested.
                    is_there = await store.get(key, prototype, RangeByteRequest(0, 1)) is not None
                except icechunk.IcechunkError:
                    is_there = False
                if not is_there:
                    return False
    return True
