"""Restore damaged chunks from raw copies and from their readable parts.

Raw files are read as they were when they were ingested, run by run, and stream segments in the order of their records
(`stream_history`): of the versions of a reading the last is in force, earlier ones are retained, and repeats change
nothing. A reading that is stored already is left alone. If the flag, the tests or the arrival of a cell are readable,
they are kept; otherwise the reading is flagged as in an ingest, and gets the arrival that its file gives. Readings
without a raw copy are counted as lost.

An archive of an older layout is upgraded after its values were compared with its raw copies: its chunks have no
checksums, so only raw copies can show whether a value has changed. Flags, and the tests that set them, are in no raw
copy; nor are readings that were written from Python, amended or withdrawn.
"""

import shutil
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import numpy as np

from hypergrid.archive import Archive, Defect, FileEntry, Writer
from hypergrid.archive.arrays.cells import Slices
from hypergrid.archive.arrays.records import LostRecords, Repair
from hypergrid.archive.arrays.variable_group import VariableGroup
from hypergrid.archive.disk.lock import wait_for_lock
from hypergrid.archive.disk.raw_copies import RAW, list_copies, read_back
from hypergrid.archive.durability import salvage
from hypergrid.archive.durability.repair import GONE, read_gone, repair_files
from hypergrid.archive.durability.salvage import Damage, LostReadings
from hypergrid.archive.durability.upgrade import LayoutUpgrade, upgrade
from hypergrid.core.errors import ArchiveConflict, HyperGridError
from hypergrid.core.flags import MISSING
from hypergrid.core.readings import Readings, concatenate, equal_values, has_version, share_series
from hypergrid.core.times import Window
from ingest.batch.archive_session import STAGING
from ingest.batch.report import Stages
from ingest.deployment.deployment_file import FILE_NAME, read_versions
from ingest.job import ingest
from ingest.quality.flagging import add_stations, flagger_as_kept
from ingest.repair.stream_history import ALL_TIME, StreamHistory, StreamReader, committed_upto, stored_upto
from ingest.repair.verify_values import RawComparisonReport, verify
from ingest.reprocess.reading_diff import ParsedAs, find_readings
from ingest.reprocess.remap import descriptions_by_mapping, kept_descriptions, unpack, unpack_tables, versions_of
from ingest.sources.spool import durable
from ingest.streaming.restart import forget_checkpoint, note_replay
from ingest.streaming.stream_commit import DEPLOYMENTS, SPOOL, STREAM, is_segment

Versions = Sequence[tuple[ParsedAs, int]]
"""Readings of raw files, oldest first, and when each was ingested."""
LISTED: Final = 100
"""Maximum number of series and times for which a repair lists lost readings."""


@dataclass
class RepairReport:
    """Result of a repair."""

    archive: str
    mended: list[Repair] = field(default_factory=list)
    restored: int = 0
    """Readings restored from raw files."""
    kept: int = 0
    """Readings of damaged chunks that no raw file has, but that were still readable."""
    lost: int = 0
    superseded_lost: int = 0
    lost_readings: list[LostReadings] = field(default_factory=list)
    """Lost readings by series and time, at most `LISTED`."""
    lost_unlisted: int = 0
    """Number of further entries that are not listed."""
    snapshot: str | None = None
    """Committed snapshot; None if nothing was committed."""
    warnings: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        listed = [lost_reading.to_json() for lost_reading in self.lost_readings]
        return {**asdict(self), "lost_readings": listed, "warnings": list(self.warnings)}

    def list_lost(self, lost_readings: Iterable[LostReadings]) -> None:
        every = [*self.lost_readings, *lost_readings]
        self.lost_readings, self.lost_unlisted = every[:LISTED], self.lost_unlisted + max(0, len(every) - LISTED)


def repair(
    archive_path: str | Path,
    *,
    now_ns: int,
    deep: bool = False,
    progress: Callable[[str, float], None] | None = None,
) -> RepairReport:
    """Repair an archive as far as possible; an undamaged archive is not changed.

    Parameters
    ----------
    now_ns
        Current time [ns since 1970 UTC].
    deep
        Compare stored values with raw copies, and restore lost ones even if nothing is damaged.

    Raises
    ------
    hypergrid.core.errors.NotAnArchive
        There is no archive, or none of its snapshots is whole.
    hypergrid.core.errors.OldLayout
        The archive has no checksums.
    hypergrid.core.errors.ArchiveConflict
        A stream writes into the archive.
    """
    folder = Path(archive_path).resolve()
    with ExitStack() as stack:
        if (folder / STREAM / "lock").exists():
            stack.enter_context(wait_for_lock(folder / STREAM / "lock", on_wait=partial(_refuse, folder)))
        report = _repair(folder, now_ns, progress)
        if deep:
            _store_lost(folder, report, now_ns, progress)
        return report


def _refuse(folder: Path) -> None:
    raise ArchiveConflict(f"a stream writes into {folder}; end it, then repair")


def _repair(folder: Path, now_ns: int, progress: Callable[[str, float], None] | None) -> RepairReport:
    gone, warnings = read_gone(folder), list[str]()
    report = RepairReport(str(folder), repair_files(folder, gone))
    archive = Archive.open(folder)
    if gone.is_any:
        with tempfile.TemporaryDirectory(prefix="hypergrid-") as unpacked:
            report.restored = commit_again(archive, gone, Path(unpacked), now_ns=now_ns, warn=warnings.append)
        # Only after the commit, so that a killed repair can be repeated.
        (folder / GONE).unlink(missing_ok=True)
        archive = archive.latest()
        what = (
            f"raw copies of {len(gone.files):,} files were ingested again, which brought {report.restored:,} readings"
        )
        report.mended.append(Repair("later commits", what))
    damaged, is_root_damaged = salvage.find_damaged_parts(archive)
    if any(outcome.lost for outcome in report.mended) and not is_root_damaged:
        _warn_of_unknown(archive, archive.files(), warnings.append)
    if not damaged and not is_root_damaged:
        report.warnings, report.snapshot = tuple(warnings), archive.snapshot if gone.is_any else None
        return report
    stages = Stages(time.perf_counter, progress)
    (folder / STAGING).mkdir(exist_ok=True)
    scratch = Path(tempfile.mkdtemp(prefix="repair-", dir=folder / STAGING))
    batch = f"repair of {archive.snapshot}"
    prepare = partial(salvage.mend_root, archive=archive, done=report.mended)
    try:
        with archive.commit(batch=batch, message="repair", now_ns=now_ns, prepare=prepare) as writer:
            latest = archive.latest()
            versions: Versions = ()
            streams: Mapping[str, StreamHistory] = {}
            if damaged:
                files = _known_files(latest, warnings.append)
                versions = versions_of(latest, files, scratch, stages, warnings.append)
                reader = StreamReader(latest, files, scratch, warnings.append)
                streams = reader.read(damaged, upto=committed_upto(latest))
            run = _RestoreRun(archive, writer, versions, streams, report)
            with stages.stage("restore") as on_progress:
                for index, name in enumerate(damaged):
                    run.restore_variable(name)
                    on_progress((index + 1) / len(damaged))
        report.snapshot = writer.snapshot
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
    report.warnings = tuple(warnings)
    return report


def _store_lost(folder: Path, report: RepairReport, now_ns: int, progress: Callable[[str, float], None] | None) -> None:
    """Store readings of raw copies that the archive lacks; another value in force is superseded."""
    archive = Archive.open(folder)
    if not verify(archive, progress=progress).lost:
        return
    batch, stored = f"values of raw copies after {archive.snapshot}", Counter[str]()
    with archive.commit(batch=batch, message="repair of values", now_ns=now_ns) as writer:
        # Compared again within the commit, while no other process can commit.
        run = _RestoreRun(archive.latest(), writer, (), {}, report)

        def store(name: str, window: Window, in_force: Readings, replaced: Readings) -> None:
            stored[name] += run.store(name, in_force) + run.store_replaced(name, window, replaced)

        verified = verify(run.archive, progress=progress, on_lost=store)
    for name, count in stored.items():
        report.mended.append(Repair(name, f"{count:,} readings of raw copies were not stored, and are now"))
    report.restored += stored.total()
    failed = [f"{item.where}: {item.what}" for item in verified.failed]
    report.snapshot, report.warnings = writer.snapshot, (*report.warnings, *verified.warnings, *failed)


def _known_files(archive: Archive, warn: Callable[[str], None]) -> list[FileEntry]:
    """Return the ledger of files, its spare, or that of the newest whole snapshot."""
    entries = salvage.read_ledger(archive.root)
    if entries is None:
        whole_root = salvage.find_whole_table(archive, "files")
        entries = [] if whole_root is None else whole_root[1].files()
        _warn_of_unknown(archive, entries, warn)
    return entries


def _warn_of_unknown(archive: Archive, files: Sequence[FileEntry], warn: Callable[[str], None]) -> None:
    """Warn of raw copies that no ledger mentions any more."""
    known = {entry.sha256 for entry in files} | archive.described_by.keys()
    left = sum(path.stem not in known for path in list_copies(archive.path / RAW))
    if left:
        warn(
            f"nothing tells any more what {left:,} raw copies are, so that nothing of them comes back: ingest these "
            "files once more"
        )


@dataclass
class _RestoreRun:
    archive: Archive
    writer: Writer
    versions: Versions
    streams: Mapping[str, StreamHistory]
    report: RepairReport

    def restore_variable(self, name: str) -> None:
        """Restore the readings of a variable's damaged chunks."""
        result: dict[str, Any] = {}

        def look(group: VariableGroup, slices: Slices) -> None:
            damage = salvage.find_damage(group)
            result.update(
                damage=damage,
                before=(group.readings, group.superseded),
                windows=damage.list_windows(group, slices),
                beside=Damage(side_rows=damage.side_rows).list_windows(group, slices),
                outcomes=[salvage.put_back(hole, group, slices) for hole in damage.holes],
                flags=[salvage.read_known_flags(hole, group, slices) for hole in damage.holes],
                arrivals=[
                    salvage.read_known_flags(hole, group, slices) for hole in damage.holes if hole.knows_arrivals
                ],
            )
            salvage.remove_damaged(group, damage)
            salvage.recount(group, slices)

        self.writer.mend(name, look)
        damage: Damage = result["damage"]
        self._restore(name, result["windows"], result["arrivals"])
        for hole_readings in result["outcomes"]:
            self.report.kept += self._store_missing(name, hole_readings)
        for flags in result["flags"]:
            self.writer.flags(flags.take_rows(flags.flag != MISSING))
        after: dict[str, int] = {}
        lost: list[LostReadings] = []

        def count(group: VariableGroup, slices: Slices) -> None:
            salvage.recount(group, slices)
            after.update(readings=group.readings, superseded=group.superseded)
            lost.extend(salvage.lost_readings(name, damage.holes, group, slices))

        self.writer.mend(name, count)
        readings, superseded = result["before"]
        gone, old_gone = max(0, readings - after["readings"]), max(0, superseded - after["superseded"])
        self.report.lost += gone
        self.report.superseded_lost += old_gone
        # The series of lost readings outside the cells are unknown.
        rest = gone + old_gone - sum(item.count or 0 for item in lost)
        lost += [LostReadings(name, "", "", item.start_ns, item.stop_ns, None) for item in result["beside"] if rest > 0]
        self.report.list_lost(lost if gone or old_gone else ())
        blocks, beside = len(damage.holes), 0 if damage.side_rows is None else int(damage.side_rows.sum())
        what = f"damaged blocks of cells: {blocks}, rows beside them: {beside:,}"
        self.report.mended.append(Repair(name, f"{what}; of {readings:,} readings {gone:,} are lost", lost=gone > 0))

    def _restore(self, name: str, windows: Sequence[Window], known: Sequence[Readings]) -> None:
        for window in windows:
            given, replaced = self._history(name, window)
            for known_readings in known:
                given = _with_arrivals(given, known_readings)
            self.report.restored += self._store_missing(name, given)
            self.store_replaced(name, window, replaced)

    def _history(self, name: str, window: Window) -> tuple[Readings, Readings]:
        """Return the readings of raw files in a window: in force, and superseded, oldest first."""
        parts = self._readings_by_run(name, window)
        whole = concatenate(share_series(Readings.empty(), *parts)).select_window(window)
        # A stable sort: versions of one series and timestamp keep their order.
        whole = whole.take_rows(np.lexsort((whole.time_ns, whole.index)))
        alike = whole.mark_repeats() & equal_values(whole.value[1:], whole.value[:-1])
        kept = whole.take_rows(~np.r_[False, alike][: len(whole)])
        last = np.r_[~kept.mark_repeats(), True][: len(kept)]
        return kept.take_rows(last), kept.take_rows(~last)

    def _readings_by_run(self, name: str, window: Window) -> list[Readings]:
        """Return the readings of each ingest run, and of the streams between runs, oldest first."""
        runs = [(ingested_ns, parsed_as) for parsed_as, ingested_ns in self.versions if name in parsed_as.series]
        history = self.streams.get(name)
        by_run, before = [], -np.inf
        for ingested_ns, parsed_as in runs:
            if history is not None:
                by_run.append(history.within(window, before, ingested_ns))
            by_run.append(parsed_as.versions(name, parsed_as.pieces_around(window, ingested_ns)))
            before = ingested_ns
        return [*by_run, history.within(window, before, np.inf)] if history is not None else by_run

    def store_replaced(self, name: str, window: Window, replaced: Readings) -> int:
        """Add superseded readings that are no longer retained; return their number."""
        if not len(replaced):
            return 0
        added = 0

        def add(group: VariableGroup, _slices: Slices) -> None:
            nonlocal added
            there = group.side_readings(superseded=True, window=window)
            there, offered = share_series(there, replaced)
            lacking = ~has_version(there, offered) & (offered.index < len(group.series))
            lost = offered.take_rows(lacking).sort_rows()
            group.add_side([(lost, True)])
            added = len(lost)
            group.superseded += added

        self.writer.mend(name, add)
        return added

    def _store_missing(self, name: str, given: Readings) -> int:
        """Flag and store the readings that are not stored; return their number."""
        if not len(given):
            return 0
        window = Window(int(given.time_ns.min()), int(given.time_ns.max()) + 1)
        stored = self.writer.read(name, window=window)
        stored, offered = share_series(stored, given)
        return self.store(name, offered.take_rows(find_readings(stored, offered) < 0).sort_rows())

    def store(self, name: str, readings: Readings) -> int:
        """Flag and store readings; return their number."""
        if not len(readings):
            return 0
        inspector, variable = flagger_as_kept(self.archive), self.archive.variable(name)
        return inspector.store(self.writer, variable, replace(readings, tests=None), lambda _name: None).changed


def _with_arrivals(given: Readings, known: Readings) -> Readings:
    """Replace arrivals by those of `known` for the same series and timestamps."""
    if not len(given) or not len(known):
        return given
    known, given = share_series(known, given)
    at = find_readings(known, given)
    return replace(given, arrival_ns=np.where(at >= 0, known.arrival_ns[at], given.arrival_ns))


def commit_again(
    archive: Archive, gone: LostRecords, scratch: Path, *, now_ns: int, warn: Callable[[str], None]
) -> int:
    """Ingest raw copies of files missing in the ledger; return the number of readings gained.

    They are read by the last description that contains the feed they were read by, with their original arrivals. Stream
    segments are added to the ledger again, and the stream restarts from there when it is next started.

    Parameters
    ----------
    scratch
        Folder for unpacked copies.
    warn
        Called for each file that cannot be read again, with the reason.
    """
    kept = kept_descriptions(archive, gone.described_by)
    hashes = {id(deployment): sha256 for sha256, deployment in kept.items()}
    read_by = descriptions_by_mapping(archive, kept)
    before = _readings(archive)
    runs: dict[tuple[int, str], list[FileEntry]] = {}
    for entry in gone.files:
        if is_segment(entry.name):
            continue
        if entry.mapping in read_by:
            described = hashes.get(id(read_by[entry.mapping]), "")
            runs.setdefault((entry.ingested_ns, described), []).append(entry)
        else:
            warn(f"nothing tells how {entry.name} was read; ingest it once more")
    streams, received_ns = _streams(archive, gone, scratch, warn) if runs else {}, -np.inf
    for number, ((ingested_ns, described), entries) in enumerate(sorted(runs.items())):
        _store_received(archive.latest(), streams, received_ns, ingested_ns, now_ns)
        received_ns = ingested_ns
        folder = scratch / f"run-{number}"
        folder.mkdir()
        try:
            if described in kept:
                (folder / FILE_NAME).write_bytes(read_back(archive.path / RAW, described))
                unpack_tables(archive, gone.described_by, folder)
            for entry in entries:
                unpack(archive, entry, folder, warn)
            # With the original time, which becomes the arrival of readings without a known one.
            ingest([folder], archive.path, now_ns=ingested_ns, engine="inprocess")
        except (HyperGridError, OSError) as error:
            warn(f"{entries[0].name} and what came with it cannot be ingested again: {error}")
        shutil.rmtree(folder, ignore_errors=True)
    segments = [entry for entry in gone.files if is_segment(entry.name)]
    if segments:
        with archive.latest().commit(
            batch=f"segments of streams {segments[-1].sha256}", message="segments of streams", now_ns=now_ns
        ) as writer:
            writer.files(segments)
    if streams:
        note_replay(archive.path, upto=durable(archive.path / SPOOL))
    # The checkpoint refers to commits that the archive no longer has.
    if forget_checkpoint(archive.path):
        warn("the stream of this archive begins anew when it is next started, and brings back what it had brought")
    return _readings(archive.latest()) - before


def _streams(
    archive: Archive, gone: LostRecords, scratch: Path, warn: Callable[[str], None]
) -> Mapping[str, StreamHistory]:
    """Return the stream readings received after all those that the archive has."""
    always = dict.fromkeys(archive.variables, [ALL_TIME])
    reader = StreamReader(archive, [*archive.files(), *gone.files], scratch, warn)
    return reader.read(always, after=stored_upto(archive), upto=durable(archive.path / SPOOL))


def _store_received(
    archive: Archive, streams: Mapping[str, StreamHistory], start_ns: float, stop_ns: int, now_ns: int
) -> None:
    """Store what streams received before an ingest run, so that its files supersede what they amended."""
    received = {name: history.within(ALL_TIME, start_ns, stop_ns) for name, history in streams.items()}
    present = {sensor_series.station for readings in received.values() for sensor_series in readings.series}
    if not present:
        return
    described = read_versions(archive.path / STREAM / DEPLOYMENTS)[-1].deployment
    batch = f"received again before {stop_ns}, after {archive.snapshot}"
    with archive.commit(batch=batch, message="streams again", now_ns=now_ns) as writer:
        inspector = add_stations(writer, present, described, archive)
        inspector.keep(writer, {name: archive.variable(name) for name in received})
        for name, readings in received.items():
            inspector.store(writer, archive.variable(name), readings, lambda _name: None)


def _readings(archive: Archive) -> int:
    return sum(archive.readings(name) for name in archive.variables)


@dataclass(frozen=True)
class UpgradeReport:
    """Result of an upgrade, and of the comparison of its values."""

    upgraded: LayoutUpgrade
    values: RawComparisonReport | None
    """Comparison with raw copies; None: this run compared nothing, because main had already moved."""
    repaired: RepairReport | None = None
    """Readings restored from raw copies; None: not requested, or not needed."""

    def to_dict(self) -> dict[str, Any]:
        metadata: dict[str, Any] = asdict(self.upgraded)
        if self.values is not None:
            metadata["values"] = {**self.values.to_json(), "failed": [item.to_json() for item in self.values.failed]}
        return metadata if self.repaired is None else {**metadata, "repair": self.repaired.to_dict()}


def upgrade_compared(
    path: Path,
    *,
    now_ns: int,
    mend: bool = False,
    progress: Callable[[str, float], None] = lambda _what, _done: None,
    on_wait: Callable[[], None] = lambda: None,
) -> UpgradeReport:
    """Upgrade an archive to the current layout, unless its values differ from its raw copies.

    Parameters
    ----------
    mend
        Upgrade it anyway, then store the values of raw copies; other values are superseded.

    Raises
    ------
    hypergrid.core.errors.DamagedArchive
        Values differ, or the archive is partly unreadable; nothing was changed.
    hypergrid.core.errors.NotAnArchive, hypergrid.core.errors.ArchiveConflict
        As in `hypergrid.archive.durability.upgrade.upgrade`.
    """
    compared: list[RawComparisonReport] = []

    def compare(copy: Archive, notify: Callable[[str, float], None]) -> Iterable[Defect]:
        values = verify(copy, progress=notify)
        compared.append(values)
        remedy = f"'hypergrid upgrade {copy.path} --repair' upgrades it and stores what raw copies say"
        # Parts that could not be compared do not prevent an upgrade; they are in the report.
        lost = replace(values, failed=[]).defects()
        return [] if mend else [replace(item, remedy=remedy) for item in lost]

    done = upgrade(path, now_ns=now_ns, compare=compare, progress=progress, on_wait=on_wait)
    values = compared[0] if compared else None
    # Also if main had already moved: a killed run may have done that without storing anything.
    needs_repair = mend and (values is None or bool(values.lost))
    repaired = repair(path, now_ns=now_ns, deep=True, progress=progress) if needs_repair else None
    return UpgradeReport(done, values, repaired)
