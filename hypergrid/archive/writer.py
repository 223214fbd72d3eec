"""Changes to an archive within one commit."""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from functools import cache, partial
from threading import Lock
from typing import Final

import numpy as np
import zarr
from numpy.typing import NDArray

from hypergrid.archive.arrays.cells import (
    CHUNK_SERIES,
    CHUNK_SLICES,
    Slices,
    TilePool,
    iterate_blocks,
    make_empty_tile,
)
from hypergrid.archive.arrays.layer_store import LayerChange, LayerEntry, remove_layer, write_layer
from hypergrid.archive.arrays.merge import MergeOutcome, Placement, collapse, merge
from hypergrid.archive.arrays.reader import read
from hypergrid.archive.arrays.records import (
    ChangeSet,
    Conservation,
    FileEntry,
    Json,
    Reject,
    extend_stations,
    make_record,
)
from hypergrid.archive.arrays.root import Root
from hypergrid.archive.arrays.variable_group import VariableGroup
from hypergrid.core.clock_errors import ClockErrors
from hypergrid.core.errors import ArchiveConflict
from hypergrid.core.flags import ABSENT, MISSING
from hypergrid.core.lru_cache import LruCache
from hypergrid.core.publication import Publication
from hypergrid.core.readings import Readings, Series, Station
from hypergrid.core.times import Window
from hypergrid.core.units import Variable
from hypergrid.layers.layer import Layer

POOL_BYTES: Final = 128 << 20
"""Budget for chunks of cells in memory [bytes]: a slice of 2,400 series."""
# A stream's commit of nine variables of 1,000 stations took 7.6 s without: quality tests and the merge read each chunk
# three to four times.


class Writer:
    """Changes that become visible together when the context of `Archive.commit` ends, or never.

    Thread-safe per variable: readings of several variables may be stored, read and flagged concurrently, because a lock
    per variable keeps half-written cells from being read.

    Attributes
    ----------
    already_committed
        The batch is in the archive already; everything written here is discarded.
    snapshot
        After the context: id of the new snapshot; None if nothing changed.
    parent
        Id of the snapshot being changed; None on a branch.
    """

    def __init__(self, root: zarr.Group, *, slices: Slices, batch: str, pool_bytes: int = POOL_BYTES) -> None:
        self._root = Root(root)
        self._slices = slices
        self._groups: dict[str, VariableGroup] = {}
        self._pool: TilePool = LruCache(pool_bytes)
        self._touched: dict[str, dict[str, ChangeSet]] = {}
        self._locks: dict[str, Lock] = {}
        self._totals = Lock()
        self._withdrawn = self._root.withdrawn
        self._counts = Conservation()
        self._rejects = 0
        self._files: list[FileEntry] = []
        self._layers: list[str] = []
        self._flags = 0
        self.batch = batch
        self.already_committed = self._root.has_batch(batch)
        self.changed = False
        self.snapshot: str | None = None
        self.parent: str | None = None

    @property
    def chunks_ns(self) -> tuple[int, int]:
        """Start of the first chunk along time [ns since 1970 UTC], and chunk length [ns]."""
        return self._slices.chunks_ns

    def variables(self, variables: Iterable[Variable]) -> None:
        """Declare variables; existing ones are left unchanged.

        Raises
        ------
        ArchiveConflict
            A variable exists with another unit.
        """
        names = self._root.variables
        for variable in variables:
            if variable.name not in names:
                created = VariableGroup.create(self._root.group, variable, slices=self._slices)
                self._groups[variable.name] = replace(created, pool=self._pool)
                names = [*names, variable.name]
                continue
            unit = self._get_group(variable.name).variable.unit
            if unit != variable.unit:
                raise ArchiveConflict(
                    f"the archive keeps {variable.name!r} in {unit!r}; got a declaration in {variable.unit!r}; "
                    f"declare {unit!r} (values are converted), or make another archive"
                )
        if names != self._root.variables:
            self._root.variables = names
            self.changed = True

    def stations(self, stations: Iterable[Station]) -> None:
        """Add stations, or extend the history of existing ones.

        A position with a new first instant is added; one with an existing first instant corrects it. Unknown values
        (NaN, or a name that only repeats the id) replace nothing. Withdrawn stations are listed again.
        """
        declared, stored = tuple(stations), self._root.stations
        extended = extend_stations(stored, declared)
        self._list_again({station.id for station in declared})
        if extended != stored:
            self._root.stations = extended
            self.changed = True

    def readings(self, readings: Readings) -> Conservation:
        """Store readings of one variable, in any order; new series are appended to the variable.

        A reading replaces a stored one with the same series and stamp, and within a call a later row replaces an
        earlier one. Replaced readings are retained as superseded. A reading with the same value (NaN equals NaN) and
        flag as the one it would replace is a duplicate and is dropped.

        Raises
        ------
        NotFound
            The variable is not declared.
        ValueError
            The series belong to several variables, a flag is ABSENT, a reading is NaN without the flag MISSING or vice
            versa, or an instant is outside 1900 to 2261 (`InvalidTime`). Nothing of the call is written then.
        """
        if not readings.series:
            return Conservation()
        name = _require_single_variable(readings)
        _check_readings(readings)
        # Raises for invalid instants before anything is written.
        self._slices.index(readings.time_ns)
        with self._get_lock(name):
            return self._store(self._get_group(name), readings)

    def read(self, variable: str, *, window: Window | None = None, series: Iterable[Series] | None = None) -> Readings:
        """Return the readings of a variable, including those written here.

        They have the tests that set their flags, and are ordered by series, then time; empty if the variable is not
        declared.

        Parameters
        ----------
        series
            Only these; series that are not stored are ignored.
        """
        if variable not in self._root.variables:
            return Readings.empty()
        with self._get_lock(variable):
            group, chosen = self._get_group(variable), None
            if series is not None:
                known = {sensor_series: number for number, sensor_series in enumerate(group.series)}
                chosen = np.array([known[sensor_series] for sensor_series in series if sensor_series in known], np.intp)
            return read(group, self._slices, window=window, series=chosen, superseded=False, tests=True)

    def series(self, variable: str) -> tuple[Series, ...]:
        """Return the series of a variable, including new ones; empty if it is not declared."""
        if variable not in self._root.variables:
            return ()
        with self._get_lock(variable):
            return self._get_group(variable).series

    def extent(self, variable: str) -> Window | None:
        """Return the whole slices that hold all readings of a variable; None if empty."""
        if variable not in self._root.variables:
            return None
        with self._get_lock(variable):
            extent = self._get_group(variable).extent
        return None if extent is None else Window(*(self._slices.start_ns(s) for s in (extent[0], extent[1] + 1)))

    def find_held(self, variable: str) -> tuple[NDArray[np.int64], int]:
        """Locate the chunks that hold readings of a variable.

        Returns the start of each chunk along time [ns], ascending, and the maximum number of cells per chunk.
        """
        if variable not in self._root.variables:
            return np.empty(0, np.int64), 0
        with self._get_lock(variable):
            group = self._get_group(variable)
            begin_ns, length_ns = self.chunks_ns
            return np.sort(begin_ns + group.chunks * length_ns), CHUNK_SLICES * len(group.series)

    def flags(self, judged: Readings) -> int:
        """Set new flags on stored readings; return the number of changed flags.

        A flag is a judgement of a reading, not a part of it: nothing is superseded, and older snapshots keep the old
        flags.

        Parameters
        ----------
        judged
            Readings of one variable as returned by `read`, with new flags and the tests that set them. Readings that
            are not stored or have no value are ignored.
        """
        changed, beside = self.flags_in_cells(judged)
        if len(beside):
            name = _require_single_variable(beside)
            with self._get_lock(name):
                group = self._get_group(name)
                numbers = self._find_numbers(group, beside)
                at = self._flags_beside(group, numbers, beside)
                self._touch(group, "flags", beside.time_ns[at], numbers[at])
                with self._totals:
                    self._flags += self._count(len(at))
            changed += len(at)
        return changed

    def flags_in_cells(self, judged: Readings) -> tuple[int, Readings]:
        """Do what `flags` does for readings in cells; return the number changed, and the readings in no cell.

        Writes only chunks of cells, so processes that share no chunk may run it concurrently.
        """
        if not len(judged):
            return 0, judged
        name = _require_single_variable(judged)
        with self._get_lock(name):
            return self._set_flags(self._get_group(name), judged)

    def _set_flags(self, group: VariableGroup, judged: Readings) -> tuple[int, Readings]:
        numbers = self._find_numbers(group, judged)
        if (numbers < 0).any():
            return self._set_flags(group, judged.take_rows(numbers >= 0))
        tests = judged.tests_or_none_set()
        if tests.any():
            group.keep_tests()
        slice_index = self._slices.index(judged.time_ns)
        offset_ns = judged.time_ns - self._slices.starts_ns(slice_index)
        beside = np.zeros(len(judged), np.bool_)
        changed = np.zeros(len(judged), np.bool_)
        for rows, columns, chosen in iterate_blocks(slice_index, numbers.astype(np.int64), group.cells.shape):
            tile = group.cells.read(rows, columns)
            row, column = slice_index[chosen] - rows.start, numbers[chosen] - columns.start
            old = tile.take_cells(row, column)
            is_in_cell = (old.flag != ABSENT) & (old.offset_ns == offset_ns[chosen])
            beside[chosen] = ~is_in_cell
            flag, bits = judged.flag[chosen], tests[chosen]
            # Readings without a value keep the flag MISSING.
            other = is_in_cell & (old.flag != MISSING) & (flag != MISSING) & ((old.flag != flag) | (old.tests != bits))
            if other.any():
                tile.flag[row[other], column[other]] = flag[other]
                if group.tested:
                    tile.tests[row[other], column[other]] = bits[other]
                group.cells.write_flags(rows, columns, tile)
                changed[chosen[other]] = True
        self._touch(group, "flags", judged.time_ns[changed], numbers[changed])
        count = int(np.count_nonzero(changed))
        with self._totals:
            self._flags += self._count(count)
        return count, judged.take_rows(beside)

    @staticmethod
    def _find_numbers(group: VariableGroup, readings: Readings) -> NDArray[np.int32]:
        """Return the index of each reading's series in the variable, -1 for an unknown series."""
        known = {sensor_series: number for number, sensor_series in enumerate(group.series)}
        return np.array([known.get(sensor_series, -1) for sensor_series in readings.series], np.int32)[readings.index]

    @staticmethod
    def _flags_beside(group: VariableGroup, numbers: NDArray[np.int32], judged: Readings) -> NDArray[np.intp]:
        """Set flags in the side table; return the indices of the readings that changed there."""
        if not len(group.side):
            return np.empty(0, np.intp)
        stored = group.side_rows(_find_window(judged.time_ns))
        position = stored.find(numbers, judged.time_ns)
        old_tests, flag, tests = group.read_side_tests(stored.row), judged.flag, judged.tests_or_none_set()
        indices: NDArray[np.intp] = np.flatnonzero(position >= 0)
        at = position[indices]
        other = (stored.flag[at] != MISSING) & (flag[indices] != MISSING)
        other &= (stored.flag[at] != flag[indices]) | (old_tests[at] != tests[indices])
        indices, rows = indices[other], stored.row[at[other]]
        if len(indices):
            order = np.argsort(rows)
            group.side.set_values("flag", rows[order], flag[indices][order])
            if group.tested:
                group.side.set_values("tests", rows[order], tests[indices][order])
        return indices

    def carry_flags(self, judged: VariableGroup, rows: slice) -> None:
        """Copy flags and test bits from another version of the variable to cells.

        Parameters
        ----------
        judged
            The variable to copy from. Its series must be the first of this version's, and the readings of both must be
            equal in these slices.
        rows
            The slices.
        """
        group = self._get_group(judged.variable.name)
        for left in range(0, len(judged.series), CHUNK_SERIES):
            columns = slice(left, min(left + CHUNK_SERIES, len(judged.series)))
            theirs, own_judgements = (
                source_group.cells.read_judgements(rows, columns) for source_group in (judged, group)
            )
            if theirs.tests.any():
                group.keep_tests()
            other = (own_judgements.flag != theirs.flag) | (own_judgements.tests != theirs.tests)
            if other.any():
                group.cells.write_judgements(rows, columns, theirs)
                touched = self._touched.setdefault(judged.variable.name, {}).setdefault("flags", ChangeSet())
                count = int(np.count_nonzero(other))
                slices, series = (np.flatnonzero(other.any(axis=axis)) for axis in (1, 0))
                touched.add_all(count, slices + rows.start, series + left)
                self._flags += self._count(count)

    def carry_side_flags(self, judged: VariableGroup) -> None:
        """Do what `carry_flags` does for the side table; rows superseded since keep their flags."""
        group = self._get_group(judged.variable.name)
        rows = judged.side_rows()
        if not len(rows.row):
            return
        tests, old = judged.read_side_tests(rows.row), group.read_side_tests(rows.row)
        flag, replaced = group.side.read("flag", "superseded", rows=slice(0, len(judged.side)))
        if tests.any():
            group.keep_tests()
        other = (replaced[rows.row] == 0) & ((flag[rows.row] != rows.flag) | (old != tests))
        if other.any():
            group.side.set_values("flag", rows.row[other], rows.flag[other])
            if group.tested:
                group.side.set_values("tests", rows.row[other], tests[other])
            self._touch(group, "flags", rows.time_ns[other], rows.series[other])
            self._flags += self._count(int(np.count_nonzero(other)))

    def mend(self, variable: str, change: Callable[[VariableGroup, Slices], None]) -> None:
        """Repair the group of a variable with `change`, while its lock is held."""
        with self._get_lock(variable):
            change(self._get_group(variable), self._slices)
            self._pool.clear()
        self.changed = True

    @property
    def kept_quality(self) -> Mapping[str, object]:
        """Parameters of the tests that set the flags; empty if none ran."""
        return self._root.quality

    def quality(self, parameters: Mapping[str, object]) -> None:
        """Store the parameters of the tests that set the flags, as JSON."""
        if self._root.quality != dict(parameters):
            self._root.quality = dict(parameters)
            self.changed = True

    def clock_errors(self, errors: ClockErrors, *, replacing: bool = True) -> None:
        """Store clock errors of stations, if `replacing` in place of earlier ones of these stations; others stay."""
        stored, given = self._root.clock_errors, {station: tuple(history) for station, history in errors.items()}
        declared = {**stored, **given} if replacing else {**given, **stored}
        if declared != stored:
            self._root.clock_errors = declared
            self.changed = True

    def publication(self, publication: Publication | None) -> None:
        """Store the statements about the data in place of earlier ones; None leaves them."""
        if publication is not None and self._root.publication != publication.attributes():
            self._root.publication = publication.attributes()
            self.changed = True

    def layer(self, layer: Layer) -> LayerChange:
        """Store a layer, replacing one of the same name unless its content is equal.

        Raises
        ------
        InvalidLayer
            The layer is in projected metres.
        """
        change = write_layer(self._root.group, layer)
        if change.changed:
            self._touch_layer(layer.name)
        return change

    def remove_layer(self, name: str) -> LayerEntry:
        """Remove a layer and return its entry; older snapshots keep it.

        Raises
        ------
        NotFound
            There is no layer of this name.
        """
        removed = remove_layer(self._root.group, name)
        self._touch_layer(name)
        return removed

    def withdraw(
        self,
        series: Mapping[str, Iterable[Series]],
        rejects: Collection[Reject],
        *,
        since_ns: int,
        kept: Collection[str],
    ) -> None:
        """List series without a value, their stations, and rejects no more; all of them stay in the store.

        Parameters
        ----------
        series
            Series by variable.
        since_ns
            Instant from which they are not listed [ns since 1970 UTC].
        kept
            Ids of stations that stay listed even without a series.
        """
        numbers = {
            name: self._number_series(self._get_group(name), tuple(gone)).tolist() for name, gone in series.items()
        }
        rows = [row for row, reject in enumerate(self._root.rejects()) if reject in rejects]
        withdrawn = self._withdrawn.add(since_ns, series=numbers, stations=(), rejects=rows)
        alive = {
            item.station
            for name in self._root.variables
            for number, item in enumerate(self._get_group(name).series)
            if number not in withdrawn.series.get(name, {})
        }
        ghosts = {item.station for gone in series.values() for item in gone} - alive - set(kept)
        self._withdrawn = withdrawn.add(since_ns, series={}, stations=ghosts, rejects=())
        self._list_again(kept)

    def rejects(self, rejects: Iterable[Reject]) -> None:
        self._rejects += self._count(self._root.add_rejects(list(rejects)))

    def files(self, files: Iterable[FileEntry]) -> None:
        added = list(files)
        self._files += added
        self._count(len(added))

    def described_by(self, kept: Mapping[str, str]) -> None:
        """Record raw copies without readings that describe how to read others: names by SHA-256."""
        stored = self._root.described_by
        if not kept.items() <= stored.items():
            self._root.described_by = {**stored, **kept}
            self.changed = True

    def set_stream(self, stream: str, state: Json) -> None:
        stored = self._root.streams
        if stored.get(stream) != state:
            self._root.streams = {**stored, stream: state}
            self.changed = True

    def finish(self) -> Json | None:
        """Write pending changes; return the snapshot's metadata, or None if nothing changed."""
        if self.already_committed or not self.changed:
            return None
        for group in self._groups.values():
            group.save()
        if self._withdrawn != self._root.withdrawn:
            self._root.withdrawn = self._withdrawn
        # The writer may be kept for its snapshot; its chunks are not needed any more.
        self._pool.clear()
        self._root.add_commit(self.batch, self._files)
        counts = {name: getattr(self._counts, name) for name in Conservation.__dataclass_fields__}
        counts |= {"rejects": self._rejects, "files": len(self._files)}
        touched = {name: make_record(kinds, self._slices) for name, kinds in self._touched.items()}
        more: Json = {"layers": self._layers} if self._layers else {}
        if self._flags:
            more["flags"] = self._flags
        return {"batch": self.batch, "slices": touched, "counts": counts, **more}

    def _list_again(self, stations: Collection[str]) -> None:
        self._withdrawn = self._withdrawn.restore_stations(stations)
        self.changed |= self._withdrawn != self._root.withdrawn

    def _count(self, added: int) -> int:
        self.changed |= added > 0
        return added

    def _touch_layer(self, name: str) -> None:
        self._layers = [*dict.fromkeys([*self._layers, name])]
        self.changed = True

    def _get_lock(self, variable: str) -> Lock:
        return self._locks.setdefault(variable, Lock())

    def _get_group(self, name: str) -> VariableGroup:
        if name not in self._groups:
            self._root.require_variable(name)
            self._groups[name] = replace(VariableGroup.load(self._root.group, name), pool=self._pool)
        return self._groups[name]

    def _number_series(self, group: VariableGroup, series: tuple[Series, ...]) -> NDArray[np.int32]:
        known = {sensor_series: number for number, sensor_series in enumerate(group.series)}
        new = [sensor_series for sensor_series in dict.fromkeys(series) if sensor_series not in known]
        if new:
            # Appended, so that the numbers of existing series remain valid.
            group.series += tuple(new)
            group.cells.resize(len(group.series))
            known = {sensor_series: number for number, sensor_series in enumerate(group.series)}
            self.changed = True
        return np.array([known[sensor_series] for sensor_series in series], np.int32)

    def _store(self, group: VariableGroup, readings: Readings) -> Conservation:
        numbers = self._number_series(group, readings.series)
        known = Readings(
            group.series,
            numbers[readings.index],
            readings.time_ns,
            readings.value,
            readings.flag,
            readings.arrival_ns,
            readings.tests,
        )
        kept, duplicates = collapse(known)
        if kept.tests is not None and kept.tests.any():
            group.keep_tests()
        total = Conservation(readings=len(readings), duplicates=duplicates)
        before = group.chunks
        # Read at most once, and only if a cell of the block holds another stamp.
        side = cache(partial(group.side_rows, _find_window(kept.time_ns)))
        slice_index = self._slices.index(kept.time_ns)
        column = kept.index.astype(np.int64)
        start_ns = self._slices.starts_ns(slice_index)
        beside: list[tuple[Readings, bool]] = []
        for rows, columns, chosen in iterate_blocks(slice_index, column, group.cells.shape):
            # Blocks without any stored chunk need not be read.
            fresh = not ((before >= rows.start // CHUNK_SLICES) & (before * CHUNK_SLICES < rows.stop)).any()
            shape = (rows.stop - rows.start, columns.stop - columns.start)
            tile = make_empty_tile(shape) if fresh else group.cells.read(rows, columns)
            places = Placement(slice_index[chosen] - rows.start, column[chosen] - columns.start, start_ns[chosen])
            outcome = merge(tile, kept.take_rows(chosen), places, side=side)
            if outcome.tile_changed:
                group.cells.write(rows, columns, tile)
            total += self._record(group, outcome)
            # Replaced readings are appended before their replacements, so that row order is the order of the
            # amendments.
            beside += [(outcome.side_superseded, True), (outcome.side_current, False)]
        # In one go: each append writes the last chunk of every column again, and a variable has many blocks.
        group.add_side(beside)
        with self._totals:
            # Threads that store other variables update the same totals.
            self._counts += total
            self.changed |= total.changed > 0
            if group.variable.name in self._withdrawn.series or self._withdrawn.stations:
                valued = np.unique(kept.index[kept.flag != MISSING])
                stations = {group.series[number].station for number in valued.tolist()}
                self._withdrawn = self._withdrawn.restore(group.variable.name, valued, stations)
        return total

    def _record(self, group: VariableGroup, outcome: MergeOutcome) -> Conservation:
        superseded = len(outcome.side_superseded) + len(outcome.side_replaced)
        if len(outcome.side_replaced):
            group.side.set_values("superseded", outcome.side_replaced, 1)
        side = len(outcome.side_current) - len(outcome.side_replaced)
        group.readings += outcome.stored + side
        group.missing += outcome.missing
        group.superseded += superseded
        touched, replaces = outcome.touched, outcome.replaces
        for kind, chosen in (("new", ~replaces if replaces.any() else slice(None)), ("replaced", replaces)):
            self._touch(group, kind, touched.time_ns[chosen], touched.index[chosen])
        return Conservation(stored=outcome.stored, side=side, superseded=superseded, duplicates=outcome.duplicates)

    def _touch(self, group: VariableGroup, kind: str, time_ns: NDArray[np.int64], series: NDArray[np.int32]) -> None:
        if len(time_ns):
            slice_index = self._slices.index(time_ns)
            group.occupy(slice_index)
            self._touched.setdefault(group.variable.name, {}).setdefault(kind, ChangeSet()).add(slice_index, series)


def _find_window(time_ns: NDArray[np.int64]) -> Window | None:
    return Window(int(time_ns.min()), int(time_ns.max()) + 1) if len(time_ns) else None


def _require_single_variable(readings: Readings) -> str:
    names = sorted({sensor_series.variable for sensor_series in readings.series})
    if len(names) != 1:
        raise ValueError(
            f"a call of readings() needs series of one variable; got {', '.join(names)}; call it once for each"
        )
    return names[0]


def _check_readings(readings: Readings) -> None:
    if len(readings) and (readings.index.min() < 0 or readings.index.max() >= len(readings.series)):
        raise ValueError(
            f"readings need an index from 0 to {len(readings.series) - 1}; got others; count their own series"
        )
    if (readings.flag == ABSENT).any():
        raise ValueError(
            f"readings need a flag; got {ABSENT} (absent), which marks an empty cell; use 2 (not evaluated)"
        )
    if (np.isnan(readings.value) != (readings.flag == MISSING)).any():
        raise ValueError(
            f"readings are NaN exactly where the flag is {MISSING} (missing); got one without the other; set both"
        )
