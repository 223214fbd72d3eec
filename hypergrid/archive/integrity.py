"""Integrity check of an archive: defects with their place and remedy.

Readings are examined piece by piece in bounded memory. Files are compared with their checksums and their content with
the rules below, which alone can find a flipped byte in a layout without checksums.
"""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Final

import icechunk
import numpy as np
from numpy.typing import NDArray

from hypergrid.archive.arrays.cells import CHUNK_SERIES, CHUNK_SLICES, Slices, Tile
from hypergrid.archive.arrays.layer_store import Layers
from hypergrid.archive.arrays.reader import iterate_bands
from hypergrid.archive.arrays.records import decode_station
from hypergrid.archive.arrays.root import SPARED, Root
from hypergrid.archive.arrays.variable_group import Extent, VariableGroup, are_within_spans, join_extents
from hypergrid.archive.disk.checksums import DEPLOYMENTS, find_damaged_copies, list_written_twice, read_checked
from hypergrid.archive.disk.checksums import FOLDER as CHECKSUMS
from hypergrid.archive.disk.concurrent_io import DamagedChunks, list_stored_chunks, open_array
from hypergrid.archive.disk.folder import MARKER as ARCHIVE_MARKER
from hypergrid.archive.disk.folder import SPARE, is_spare_whole
from hypergrid.archive.disk.lock import is_free
from hypergrid.archive.disk.raw_copies import RAW, find_content_problem, list_copies, list_unfinished
from hypergrid.archive.disk.retention import MARKER, parse_tag, read_failure
from hypergrid.archive.disk.snapshot_checksums import HEAD, REFERENCE, SnapshotChecksums
from hypergrid.archive.disk.storage import STORE
from hypergrid.core.errors import DamagedArchive
from hypergrid.core.flags import MEANINGS, MISSING
from hypergrid.core.flags import TESTS as FLAG_TESTS
from hypergrid.core.times import format_instant

STAGING: Final = "staging"
"""Folder of an archive in which ingest works."""
# Length of the examined blocks, which bounds the memory.
_CHUNKS_AT_ONCE: Final = 4
RESTORE: Final = "restore the archive from a copy, or ingest its raw files into a new one"
_REPAIR: Final = "'hypergrid check --repair' brings back what raw copies hold"
_AGAIN: Final = "ingest the raw files into a new archive"

ORPHANS: Final = ("orphan", "lost", "care", "state")
"""Kinds of defects outside the content of a snapshot."""

Progress = Callable[[str, float], None]


@dataclass(frozen=True)
class Defect:
    """A defect of an archive."""

    kind: str
    """"damaged", "unreadable", "counts", "flags", "times", "table", "layer", "state", "orphan", "lost" or "care";
    from a comparison with raw copies "values" or "not compared".
    """
    where: str
    what: str
    remedy: str

    def to_json(self) -> dict[str, str]:
        return asdict(self)


def examine(
    folder: Path, root: Root, slices: Slices, *, newest: Root, deep: bool, progress: Progress
) -> Iterator[Defect]:
    """Yield the defects of a snapshot, except orphaned objects (`check_store`).

    Parameters
    ----------
    newest
        Root of the newest snapshot, whose ledger lists all raw copies.
    """
    yield from check_readings(root, slices, progress)
    yield from check_tables(root)
    yield from check_layers(root)
    yield from check_raw(folder, root, newest, deep=deep, progress=progress)
    if why := read_failure(folder):
        what = f"the last maintenance failed, and snapshots grow: {why}"
        yield Defect("care", MARKER, what, "mend what it tells, then run 'hypergrid maintain'")
    # Files of an active run are not leftovers.
    if is_free(folder / STAGING / "lock"):
        yield from check_left(folder)


def check_readings(root: Root, slices: Slices, progress: Progress) -> Iterator[Defect]:
    """Check every variable: readability, counts, flags and stamps."""
    for name in root.variables:
        try:
            group = VariableGroup.load(root.group, name)
            scan = _VariableCheck(name, group)
            blocks = list(iterate_bands(group, 0, slices.count, _CHUNKS_AT_ONCE))
            side = _SideTable.read(group, slices)
            yield from scan.check_side(side)
            for index, rows in enumerate(blocks):
                progress(f"readings of {name}", index / len(blocks))
                yield from scan.check_block(rows, side, slices)
            if scan.is_whole:
                yield from scan.check_counts(side)
            yield from scan.check_unlisted()
            progress(f"readings of {name}", 1.0)
        except Exception as error:  # whatever a damaged store raises
            yield Defect("unreadable", name, f"cannot be read: {_shorten(error)}", RESTORE)


@dataclass
class _VariableCheck:
    """State of the check of one variable."""

    name: str
    group: VariableGroup
    cells: int = 0
    missing: int = 0
    extent: Extent | None = None
    """First and last slice with a reading."""
    is_whole: bool = True
    """Whether all blocks could be read; otherwise the counts cannot be checked."""

    def check_side(self, side: "_SideTable") -> Iterator[Defect]:
        where = f"side table of {self.name}"
        if side.lengths_differ:
            yield Defect("table", where, "its columns have different lengths", RESTORE)
        elif self.group.spans is not None and not are_within_spans(self.group.spans, side.time_ns):
            yield Defect("table", where, "rows lie outside the times that it says of its chunks", _AGAIN)
        wrong = (side.series < 0) | (side.series >= len(self.group.series))
        if wrong.any():
            yield Defect("times", where, f"{wrong.sum():,} rows are of series that do not exist", _AGAIN)
        yield from _check_flags(where, side.flag, side.value, side.tests, side.time_ns)
        if (side.superseded > 1).any():
            yield Defect("flags", where, "rows are neither superseded nor not", _AGAIN)
        current = np.flatnonzero(side.superseded == 0)
        keys = current[np.lexsort((side.time_ns[current], side.series[current]))]
        series, time_ns = side.series[keys], side.time_ns[keys]
        twice = (series[1:] == series[:-1]) & (time_ns[1:] == time_ns[:-1])
        if twice.any():
            first = format_instant(int(time_ns[1:][twice][0]))
            what = f"{twice.sum():,} stamps of a series are there twice, the first at {first}"
            yield Defect("times", where, what, _AGAIN)

    def check_block(self, rows: slice, side: "_SideTable", slices: Slices) -> Iterator[Defect]:
        within = (side.position >= rows.start) & (side.position < rows.stop)
        held = np.zeros(int(within.sum()), np.bool_)
        for left in range(0, len(self.group.series), CHUNK_SERIES):
            columns = slice(left, min(left + CHUNK_SERIES, len(self.group.series)))
            where = (
                f"{self.name} from {format_instant(slices.start_ns(rows.start))}, series {left} to {columns.stop - 1}"
            )
            try:
                tile = self.group.cells.read(rows, columns)
            except Exception as error:  # whatever a damaged store raises
                yield _unreadable_defect(where, error)
                self.is_whole = False
                # Unknown, so rows beside an unreadable block are not reported.
                held |= True
                continue
            yield from self._check_tile(where, tile, rows, slices)
            start_ns = slices.starts_ns(np.arange(rows.start, rows.stop))
            held |= side.mark_held(tile, rows, columns, start_ns, np.flatnonzero(within))
        if not held.all():
            rows_of = np.flatnonzero(within)[~held]
            first = format_instant(int(side.time_ns[rows_of[0]]))
            what = f"{len(rows_of):,} rows belong beside no cell, or repeat one, the first at {first}"
            yield Defect("times", f"side table of {self.name}", what, _AGAIN)
        side.seen[within] = True

    def _check_tile(self, where: str, tile: Tile, rows: slice, slices: Slices) -> Iterator[Defect]:
        filled = tile.flag != 0
        row, column = np.nonzero(filled)
        self.cells += len(row)
        self.missing += int(np.count_nonzero(tile.flag == MISSING))
        if len(row):
            self.extent = join_extents(self.extent, (rows.start + int(row.min()), rows.start + int(row.max())))
        chosen = tile.take_cells(row, column)
        time_ns = slices.starts_ns(rows.start + row) + chosen.offset_ns
        yield from _check_flags(where, chosen.flag, chosen.value, chosen.tests, time_ns)
        if stray := int(np.count_nonzero(~filled & ~np.isnan(tile.value))):
            yield Defect("flags", where, f"{stray:,} cells have a value and no flag", _AGAIN)
        outside = (chosen.offset_ns < 0) | (chosen.offset_ns >= slices.length_ns)
        if outside.any():
            what = f"{outside.sum():,} stamps lie outside their slice, so that they are out of order"
            yield Defect("times", where, what, _AGAIN)

    def check_counts(self, side: "_SideTable") -> Iterator[Defect]:
        group = self.group
        current = side.superseded == 0
        readings = self.cells + int(current.sum())
        missing = self.missing + int(np.count_nonzero(side.flag[current] == MISSING))
        superseded = int(np.count_nonzero(side.superseded == 1))
        for what, expected_count, met in (
            ("readings", group.readings, readings),
            ("readings without a value", group.missing, missing),
            ("superseded readings", group.superseded, superseded),
        ):
            if expected_count != met:
                yield Defect("counts", self.name, f"says {expected_count:,} {what}; there are {met:,}", _AGAIN)
        if self.extent != group.extent:
            what = f"says that slices {group.extent} hold readings; {self.extent} do"
            yield Defect("counts", self.name, what, _AGAIN)
        if stray := int(np.count_nonzero(~side.seen)):
            what = f"{stray:,} rows lie where no cells are said to be"
            yield Defect("times", f"side table of {self.name}", what, _AGAIN)
        columns = group.cells.shape[1]
        if columns != len(group.series):
            yield Defect("counts", self.name, f"says {len(group.series)} series; its cells have {columns}", RESTORE)

    def check_unlisted(self) -> Iterator[Defect]:
        """Find stored chunks missing from the list of chunks in use, which are never read."""
        stored = [first for first, _ in list_stored_chunks(open_array(self.group.group, "flag"))]
        beyond = np.setdiff1d(stored, self.group.chunks)
        if len(beyond):
            what = f"{len(beyond)} stretches of {CHUNK_SLICES} slices are stored and not listed; nobody reads them"
            yield Defect("counts", self.name, what, _AGAIN)


@dataclass
class _SideTable:
    """The rows of a side table."""

    series: NDArray[np.int64]
    time_ns: NDArray[np.int64]
    value: NDArray[np.float64]
    flag: NDArray[np.uint8]
    superseded: NDArray[np.uint8]
    tests: NDArray[np.uint16]
    position: NDArray[np.int64]
    """Slice number."""
    in_side: NDArray[np.bool_]
    """For superseded rows, whether the replacement is in the side table too."""
    seen: NDArray[np.bool_]
    """Whether the cells next to the row were examined."""
    lengths_differ: bool

    @classmethod
    def read(cls, group: VariableGroup, slices: Slices) -> "_SideTable":
        """Read all columns, truncated to the shortest."""
        names = ("series", "time_ns", "value", "flag", "superseded", "arrival_ns")
        columns = [*group.side.read(*names), group.read_side_tests()]
        row_count = min(len(column) for column in columns)
        differ = any(len(column) != row_count for column in columns)
        series, time_ns, value, flag, superseded, _, tests = (column[:row_count] for column in columns)
        order = np.lexsort((superseded, time_ns, series))
        # Sorted so that the rows of a key are adjacent, the one in force before those it superseded.
        begins = np.r_[True, (np.diff(series[order]) != 0) | (np.diff(time_ns[order]) != 0)][:row_count]
        heads = order[np.flatnonzero(begins)][np.cumsum(begins) - 1]
        in_side = np.zeros(row_count, np.bool_)
        in_side[order] = superseded[heads] == 0
        position = time_ns // slices.length_ns + slices.position(0)
        seen = np.zeros(row_count, np.bool_)
        return cls(
            series.astype(np.int64), time_ns, value, flag, superseded, tests, position, in_side, seen, differ
        )  # fmt: skip

    def mark_held(
        self, tile: Tile, rows: slice, columns: slice, start_ns: NDArray[np.int64], chosen: NDArray[np.intp]
    ) -> NDArray[np.bool_]:
        """Mark the chosen rows that are consistent with a cell of the block.

        The cell must hold a reading: for a row in force one with another stamp; for a superseded row its replacement,
        unless that is in the side table.
        """
        series = self.series[chosen]
        indices = np.flatnonzero((series >= columns.start) & (series < columns.stop))
        row, column = self.position[chosen[indices]] - rows.start, series[indices] - columns.start
        same = self.time_ns[chosen[indices]] == start_ns[row] + tile.offset_ns[row, column]
        is_old = self.superseded[chosen[indices]] == 1
        held = np.zeros(len(chosen), np.bool_)
        held[indices] = (tile.flag[row, column] != 0) & np.where(is_old, same | self.in_side[chosen[indices]], ~same)
        return held


def _check_flags(
    where: str, flag: NDArray[np.uint8], value: NDArray[np.float64], tests: NDArray[np.uint16], time_ns: NDArray[Any]
) -> Iterator[Defect]:
    for wrong, what in (
        (~np.isin(flag, list(MEANINGS)), "have a flag that does not exist"),
        (np.isnan(value) != (flag == MISSING), f"are NaN without the flag {MISSING}, or have it and a value"),
        (tests >= 1 << len(FLAG_TESTS), "name a test that does not exist"),
    ):
        if wrong.any():
            first = format_instant(int(time_ns[np.flatnonzero(wrong)[0]]))
            yield Defect("flags", where, f"{wrong.sum():,} readings {what}, the first at {first}", _AGAIN)


def check_tables(root: Root) -> Iterator[Defect]:
    """Check stations, rejects, files and batches, and the spare of the tables."""
    tables: tuple[tuple[str, Callable[[], object]], ...] = (
        ("stations", lambda: [decode_station(content) for content in root.stations.values()]),
        ("rejects", root.rejects),
        ("files", root.files),
        ("batches", lambda: root.has_batch("")),
    )
    for name, read in tables:
        try:
            read()
        except Exception as error:  # whatever a damaged store raises
            remedy = RESTORE if name == "stations" else f"{_REPAIR}, or their spare"
            yield Defect("table", f"table of {name}", f"cannot be read: {_shorten(error)}", remedy)
    for name in SPARED:
        try:
            spare = root.read_spare(name)
        except Exception as error:  # whatever a damaged store raises
            yield Defect("table", "spare of the tables", f"cannot be read: {_shorten(error)}", _REPAIR)
            return
        with suppress(Exception):  # unreadable tables are reported above
            if root.is_spare_complete() and spare != root.read_rows(name):
                yield Defect("table", "spare of the tables", f"has other rows of {name} than their table", _REPAIR)


def check_layers(root: Root) -> Iterator[Defect]:
    """Check that every layer is readable and matches its content token."""
    layers = Layers(root.group)
    for name, entry in layers.entries.items():
        remedy = f"add it again with 'hypergrid layers add ARCHIVE FILE --name {name}'"
        try:
            same = layers[name].token == entry.token
        except Exception as error:  # whatever a damaged store raises
            yield Defect("layer", f"layer {name}", f"cannot be read: {_shorten(error)}", remedy)
        else:
            if not same:
                yield Defect("layer", f"layer {name}", "is not the one that was added", remedy)


def check_raw(folder: Path, root: Root, newest: Root, *, deep: bool, progress: Progress) -> Iterator[Defect]:
    """Compare raw copies with the ledger of files; `deep` also hashes their content."""
    raw = folder / RAW
    there = {path.stem: path for path in list_copies(raw)}
    try:
        entries = root.files()
        # Files ingested after this snapshot are only in the newest ledger.
        known = {entry.sha256 for entry in newest.files()} | root.described_by.keys() | newest.described_by.keys()
    except Exception:  # `check_tables` reports the unreadable ledger
        return
    ledger = {entry.sha256: entry.name for entry in entries}
    for wanted, what in (
        (ledger, "the ledger has it, and the raw copy is gone"),
        (
            root.described_by,
            "files were read as it says, and its raw copy is gone, so that none of them can be compared",
        ),
    ):
        for sha256, name in wanted.items():
            if sha256 not in there:
                yield Defect("lost", name, what, f"put the file with SHA-256 {sha256} in {RAW}/, packed by zstd")
    for index, (sha256, path) in enumerate(there.items()):
        where = str(path.relative_to(folder))
        if sha256 not in ledger and sha256 not in known:
            what = "a raw copy of which the ledger knows nothing, as a run that was killed leaves it"
            remedy = "ingest the file again: of its readings the copy may be all that is left; deployments may stay"
            yield Defect("orphan", where, what, remedy)
        elif deep and (problem := find_content_problem(path, sha256)):
            yield Defect("unreadable", where, problem, "replace it by a copy of the file as it came")
        progress("raw copies", (index + 1) / len(there))


def check_files(folder: Path, progress: Progress) -> Iterator[Defect]:
    """Compare the files of an archive, except raw copies, with their checksums.

    The archive need not open. Archives in a store, or of a layout without checksums, are skipped.
    """
    if not (folder / CHECKSUMS).is_dir() or not (folder / STORE).is_dir():
        return
    sums = SnapshotChecksums(folder, folder / STORE)
    try:
        read_checked(folder / MARKER)
    except FileNotFoundError:
        pass
    except (OSError, DamagedArchive) as error:
        yield Defect("damaged", MARKER, _shorten(error), "'hypergrid maintain' writes it anew")
    try:
        read_checked(folder / ARCHIVE_MARKER, by_hand=True)
    except (OSError, DamagedArchive) as error:
        yield Defect("damaged", ARCHIVE_MARKER, _shorten(error), f"'hypergrid check --repair' takes {SPARE} for it")
    else:
        if not is_spare_whole(folder):
            yield Defect("damaged", SPARE, "is another than the marker of the archive", _REPAIR)
    for path in (
        copy for original in list_written_twice(folder / DEPLOYMENTS) for copy in find_damaged_copies(original)
    ):
        yield Defect("damaged", str(path.relative_to(folder)), "is another than it was", _REPAIR)
    for path in sums.find_damaged():
        yield Defect("damaged", str(path.relative_to(folder)), "is another than it was", _REPAIR)
    newest = sums.find_named(sums.store / HEAD / REFERENCE)
    spares = list(sums.find_damaged_spares())
    # A commit during the check writes spares of its own, so the comparison is void.
    for path in spares if newest == sums.find_named(sums.store / HEAD / REFERENCE) else ():
        what = "is gone, or another than the newest snapshot's file of which it is a copy"
        yield Defect("damaged", str(path.relative_to(folder)), what, "'hypergrid check --repair' writes it anew")
    if newest is None and not (sums.store / HEAD / REFERENCE).exists():
        yield Defect("damaged", f"{STORE}/{HEAD}/{REFERENCE}", "is gone", _REPAIR)
    for path in sums.find_damaged_references():
        what = "does not name a snapshot that is there"
        yield Defect("damaged", str(path.relative_to(folder)), what, _REPAIR)
    chunks = sums.list_objects("chunks")
    for index, path in enumerate(chunks):
        if not sums.is_whole(path):
            remedy = _REPAIR if sums.is_of_newest(path.name) else describe_older_chunk(sums, path.name, folder)
            yield Defect("damaged", str(path.relative_to(folder)), "is another than it was", remedy)
        if index % 64 == 0:
            progress("chunks", index / len(chunks))
    progress("chunks", 1.0)


def describe_older_chunk(sums: SnapshotChecksums, chunk: str, folder: Path) -> str:
    """Return the remedy for a damaged chunk that only older snapshots use."""
    tags = (path.parent.name.removeprefix("tag.") for path in (sums.store / "refs").glob(f"tag.*/{REFERENCE}"))
    cited = sorted({snapshot for snapshot in map(parse_tag, tags) if snapshot is not None})
    commands = [
        f"'hypergrid snapshots {folder} --release {name}'" for name in cited if sums.is_of_snapshot(name, chunk)
    ]
    expire = f"'hypergrid maintain {folder} --keep 1s'"
    if commands:
        return f"the newest snapshot does without it; let go of what cites it by {', '.join(commands)}, then {expire}"
    return f"the newest snapshot does without it; it goes when older ones expire, or at once by {expire}"


def check_left(folder: Path) -> Iterator[Defect]:
    """Find leftovers of runs that were killed; call only while no run is active."""
    for left, what in (
        (sorted((folder / STAGING).glob("*/")), "its staging"),
        (list_unfinished(folder / RAW), "half a copy"),
    ):
        for path in left:
            shown, remedy = str(path.relative_to(folder)), "the next ingest removes it; or remove it"
            yield Defect("orphan", shown, f"a run that was killed left {what}", remedy)


def check_store(repository: icechunk.Repository, where: str, *, grace_s: float) -> Iterator[Defect]:
    """Find objects that no snapshot uses; call under the lock."""
    # Under the lock, so objects of a commit in progress are not reported.
    before = datetime.now(UTC) - timedelta(seconds=grace_s)
    try:
        litter = repository.garbage_collect(before, dry_run=True)
    except Exception as error:  # whatever a damaged store raises
        yield Defect("unreadable", where, f"its snapshots cannot be read: {_shorten(error)}", RESTORE)
        return
    objects = litter.chunks_deleted + litter.manifests_deleted + litter.snapshots_deleted
    if objects:
        what = f"{objects:,} objects ({litter.bytes_deleted:,} bytes) belong to no snapshot"
        yield Defect("orphan", where, what, "'hypergrid maintain' removes them")


def _unreadable_defect(where: str, error: Exception) -> Defect:
    if isinstance(error, DamagedChunks):
        names = ", ".join(dict.fromkeys(chunk.array.rpartition("/")[2] for chunk in error.chunks))
        return Defect("damaged", where, f"the checksums of {names} differ", _REPAIR)
    return Defect("unreadable", where, f"cannot be read: {_shorten(error)}", f"{_REPAIR}; else {RESTORE}")


def _shorten(error: Exception) -> str:
    return " ".join(str(error).split())[:200] or type(error).__name__
