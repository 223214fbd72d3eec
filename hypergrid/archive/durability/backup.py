"""Backups: copies of an archive's files at one snapshot, made during commits, and their restoration.

A backup is a folder that is not an archive, so it cannot be committed to: its marker is `backup.json`. Repository files
never change under their names, except as in `snapshot_checksums.PENDING`, so the next backup into the same folder
copies only new files. During a backup a branch beside main keeps snapshots from expiring. Each file is verified when it
is read, and read back from the disk once everything is written; only then do the references move. A run that is killed
or fills the disk leaves the previous backup intact.

Data acknowledged by a receiver are copied before the snapshot is chosen (`spool/`), so none are missing: records
committed meanwhile are included twice, and ingesting them a second time changes nothing. State of other rooms is left
out, and reported, unless requested (`state_backup`); it is copied first of all, so that values and spool hold all that
it knows. Whether access needs keys is always recorded: a restored archive has the same access control.
"""

import os
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

import icechunk

from hypergrid.archive.archive import LOCK, Archive
from hypergrid.archive.arrays.root import Root
from hypergrid.archive.disk.checksums import (
    DEPLOYMENTS,
    checksum,
    checksum_of_file,
    read_either,
    read_sums,
    spare_path,
    write_twice,
)
from hypergrid.archive.disk.checksums import FOLDER as CHECKSUMS
from hypergrid.archive.disk.folder import BACKUP as MARKER
from hypergrid.archive.disk.folder import MARKER as ARCHIVE_MARKER
from hypergrid.archive.disk.folder import (
    Identity,
    create_folder,
    identity_of,
    make_marker,
    read_identity,
    synchronise,
)
from hypergrid.archive.disk.lock import try_lock, wait_for_lock
from hypergrid.archive.disk.raw_copies import RAW, copy_path, find_content_problem, list_copies
from hypergrid.archive.disk.retention import BACKING_UP, BACKUP_LOCK
from hypergrid.archive.disk.snapshot_checksums import PENDING, REFERENCE, SPARES, SnapshotChecksums, format_reference
from hypergrid.archive.disk.storage import BRANCH, STORE, LocalStorage
from hypergrid.archive.durability.salvage import has_all_chunks, read_ledger
from hypergrid.archive.integrity import check_files, describe_older_chunk
from hypergrid.archive.state_backup import (
    ACCESS_KEY,
    SCRATCH,
    STATE,
    Secure,
    StateCopy,
    copy_state,
    has_access_control,
    is_current,
    is_state_copy,
    iterate_state_files,
    keep_access_control,
    prune_state,
    publish_state,
)
from hypergrid.archive.state_backup import KEY as STATE_KEY
from hypergrid.core.errors import ArchiveConflict, CannotBackUp, DamagedArchive, HyperGridError
from hypergrid.core.times import format_instant

_SPOOL: Final = "spool"
_NEW_SPOOL: Final = ".spool"
_DURABLE: Final = "durable"
"""File of a spool that states up to which record it is on the disk."""
_SNAPSHOTS: Final = "snapshots"
_KINDS: Final = ("chunks", "manifests", "transactions", _SNAPSHOTS)
_PARTIAL: Final = ".partial"
CLOSED: Final = (
    "keys: none came with the backup; access control stays on, so make new ones: 'hypergrid keys create', or turn it "
    "off: 'hypergrid keys off'"
)
"""Note for restoring a backup without keys of an archive that has keys."""
_OURS: Final = frozenset(
    {ARCHIVE_MARKER, LOCK, BACKUP_LOCK, STORE, CHECKSUMS, SPARES, RAW, _SPOOL, "stream", "staging", "maintained.json"}
)
"""Content of an archive's folder that a backup includes or that no archive needs."""


@dataclass(frozen=True)
class BackupReport:
    """Result of a backup or a restoration."""

    archive: str
    backup: str
    snapshot: str
    files_copied: int
    bytes_copied: int
    files_there: int
    """Number of files copied by an earlier run."""
    bytes_there: int
    files_removed: int
    """Number of files of the backup that no snapshot needs any more."""
    left_out: tuple[str, ...]
    """Content of the archive's folder that is not in the backup: state beside the data, work in progress."""
    seconds: float
    state: tuple[str, ...] = ()
    """State files of the server that were included or restored."""
    state_made: str | None = None
    """Instant of the state in the backup, perhaps of an earlier run; None if it has none."""
    notes: tuple[str, ...] = ()
    """Notes on damage (omitted or restored as it is), and on what was revoked, paused or ended."""


@dataclass
class _CopyCounts:
    """Running counts of copied files."""

    files: int = 0
    size: int = 0
    files_there: int = 0
    size_there: int = 0
    removed: int = 0
    written: list[tuple[Path, str]] = field(default_factory=list)
    """Files, each with the checksum of its written content."""

    def add(self, path: Path, crc: str, size: int) -> None:
        self.files += 1
        self.size += size
        self.written.append((path, crc))


Progress = Callable[[str, float], None]


def back_up(
    archive_path: Path,
    target: Path,
    *,
    now_ns: int,
    with_server: bool = False,
    server: Path | None = None,
    progress: Progress = lambda _what, _done: None,
) -> BackupReport:
    """Copy the current archive into a folder, or update the backup there.

    Parameters
    ----------
    archive_path, target
        Folders of the archive and of the backup.
    now_ns
        The current time [ns since 1970 UTC].
    with_server
        Include keys, audit log, jobs, standing and continuous queries. Otherwise an earlier copy of them is kept.
    server
        Folder of keys, audit log and jobs, if outside the archive.
    progress
        Called with the current step and the fraction done.

    Raises
    ------
    CannotBackUp
        The target holds something else, lies in the archive, is full or not writable; the archive's values are in a
        bucket; or a state file of the server cannot be read.
    DamagedArchive
        A file of the archive is damaged; the previous backup is kept.
    OldLayout
        The archive has no checksums yet.
    """
    started_s = time.monotonic()
    archive, target = Archive.open(archive_path), Path(target).resolve()
    _refuse_target(archive, target)
    archive.require_newest()
    with _translate_errors(target), ExitStack() as stack:
        target.mkdir(parents=True, exist_ok=True)
        stack.enter_context(_lock_target(target))
        folders = {name: archive.path / name for name in STATE} | ({"server": server} if server else {})
        is_closed = has_access_control(folders["server"])
        run = _BackupRun(archive, target, progress, folders if with_server else None, is_closed=is_closed)
        report = run.run(stack, now_ns)
    return replace(report, seconds=round(time.monotonic() - started_s, 3))


def restore(
    backup: Path,
    target: Path,
    *,
    secure: Secure | None = None,
    damaged: bool = False,
    progress: Progress = lambda _what, _done: None,
) -> BackupReport:
    """Create an archive from a backup, atomically, in an unused folder.

    Parameters
    ----------
    backup, target
        Folders of the backup and of the archive.
    secure
        Secures the server's state before it can be used: `queries.backup_commands.secure_state`. Required if the
        backup holds such state.
    damaged
        Restore a damaged backup as it is: notes name the damaged files, and a repair of the archive
        (`ingest.repair.restore_values.repair`) recovers what it can. Damaged state files are omitted.
    progress
        Called with the current step and the fraction done.

    Raises
    ------
    CannotBackUp
        The folder is not a backup, the disk is full, or the backup holds state and `secure` is missing.
    ArchiveConflict, NotAnArchive
        The target is already in use.
    DamagedArchive
        A file of the backup is damaged and `damaged` is False; nothing is restored.
    """
    started_s = time.monotonic()
    source, folder = Path(backup).resolve(), Path(target).resolve()
    identity, content = read_backup(source)
    if _is_nested(folder, source):
        raise CannotBackUp(f"a restored archive needs a folder of its own, outside of {source}; got {folder}")
    state = content.get(STATE_KEY)
    if state is not None and secure is None:
        raise CannotBackUp(
            f"{source} holds keys, which must be revoked when they are restored; use 'hypergrid restore', or give "
            "queries.backup_commands.secure_state as 'secure'"
        )
    copied, notes, brought = _CopyCounts(), list[str](), list[str]()

    def refuse_or_note(what: str) -> None:
        if not damaged:
            raise DamagedArchive(
                f"{what}; nothing was restored; back up once more, or, where the archive is gone, restore what is "
                f"there: hypergrid restore {folder} {source} --damaged"
            )
        notes.append(f"{what}, and was restored as it is")

    def build(building: Path) -> None:
        files = [path for path in sorted(source.rglob("*")) if path.is_file() and _is_content(path, source)]
        # Spares are recreated from the files, unless these may be damaged.
        files = [path for path in files if damaged or path.relative_to(source).parts[0] != SPARES]
        for number, path in enumerate(files):
            _copy_file(path, building / path.relative_to(source), copied)
            progress("copy", (number + 1) / len(files))
        for name, path in iterate_state_files(source, state, notes if damaged else None) if state else ():
            _copy_file(path, building / name, copied, private=True)
            brought.append(name)
        (building / LOCK).touch()
        _verify_copies(building, copied, progress)
        for what in _find_damage(building, source, progress):
            refuse_or_note(what)
        if damaged and notes:
            notes.append(f"mend what can be mended: hypergrid check {folder} --repair")
        else:
            SnapshotChecksums(building, building / STORE).keep_spares()
        if content.get(ACCESS_KEY):
            keep_access_control(building / "server")
        if state is not None and secure is not None:
            notes.extend(secure(building, state["made"]))
        elif content.get(ACCESS_KEY):
            notes.append(CLOSED)
        synchronise(building)

    with _translate_errors(folder):
        create_folder(folder, identity, build=build)
    return BackupReport(
        str(folder), str(source), content["snapshot"], copied.files, copied.size, 0, 0, 0, (),
        round(time.monotonic() - started_s, 3), tuple(brought), state["made"] if state else None,
        tuple(notes),
    )  # fmt: skip


def _find_damage(building: Path, source: Path, progress: Progress) -> Iterator[str]:
    """Yield what is damaged or missing in a copied backup, by its place there."""
    is_damaged = False
    for defect in check_files(building, progress):
        is_damaged = True
        yield f"{source / defect.where} is another than it was, or gone"
    for path in list_copies(building / RAW):
        if problem := find_content_problem(path, path.stem):
            yield f"{source / path.relative_to(building)} {problem}"
    if is_damaged:
        return
    try:
        repository = LocalStorage(building).open()
        newest = repository.lookup_branch(BRANCH)
        is_whole = has_all_chunks(repository, newest)
    except icechunk.IcechunkError as error:
        yield f"{source / STORE} cannot be opened: {' '.join(str(error).split())[:200]}"
        return
    if not is_whole:
        yield f"{source / STORE / 'chunks'} lacks chunks of the newest snapshot"
    for entry in read_ledger(Root.open(repository, newest)) or ():
        if not (path := copy_path(building / RAW, entry.sha256)).exists():
            yield f"{source / path.relative_to(building)}, the raw copy of {entry.name}, is gone"


def read_backup(folder: Path) -> tuple[Identity, dict[str, Any]]:
    """Return the identity of a backup's archive and the content of its marker.

    Raises
    ------
    CannotBackUp
        The folder is not a backup.
    DamagedArchive
        The marker and its spare are damaged.
    """
    if not ((folder / MARKER).is_file() or spare_path(folder / MARKER).is_file()):
        raise CannotBackUp(f"{folder} is no backup: it has no {MARKER}; give the folder that 'hypergrid backup' wrote")
    try:
        content = read_either(folder / MARKER)
    except DamagedArchive as error:
        raise DamagedArchive(f"{folder / MARKER} and its spare are others than they were; back up once more") from error
    return identity_of(folder, content["archive"]), content


@dataclass
class _BackupRun:
    archive: Archive
    target: Path
    progress: Progress
    folders: Mapping[str, Path] | None = None
    """Folders of the server's state; None if not requested."""
    is_closed: bool = field(default=False, kw_only=True)
    """Whether access needs keys."""
    copied: _CopyCounts = field(default_factory=_CopyCounts)
    state: StateCopy | None = None
    _referenced: Sequence[str] = ()
    """Manifests of the snapshots being copied."""
    notes: list[str] = field(default_factory=list)

    def run(self, stack: ExitStack, now_ns: int) -> BackupReport:
        source = self.archive.path
        # First, so that the backup contains everything that standing and continuous queries have seen.
        self._copy_state()
        self._copy_spool()
        repository = stack.enter_context(_keep_snapshots(self.archive))
        head = repository.lookup_branch(BRANCH)
        self.archive = self.archive.at_snapshot(head)
        # Of main and of cited snapshots.
        references = {f"branch.{BRANCH}": head}
        references |= {f"tag.{tag}": repository.lookup_tag(tag) for tag in sorted(repository.list_tags())}
        snapshots = self._list_snapshots(repository, references)
        # Icechunk skips tags that it cannot read, which would be missing from the backup.
        self._sums.verify_references()
        for snapshot in snapshots:
            self._sums.verify(snapshot, alone=True)
        names = self._list_names(snapshots)
        if not has_all_chunks(repository, head):
            raise DamagedArchive(
                f"chunks of the newest snapshot of {source} are gone; the former backup stays; "
                f"'hypergrid check {source} --repair' brings back what raw copies hold"
            )
        for number, name in enumerate(names):
            self._copy_store_file(name)
            if number % 16 == 0:
                self.progress("copy", number / len(names))
        self.progress("copy", 1.0)
        self._copy_raw()
        changed = self._copy_new_and_changed(snapshots)
        _verify_copies(self.target, self.copied, self.progress)
        self._publish(references, changed, now_ns)
        self._prune(set(names) | {f"snapshots/{snapshot}" for snapshot in snapshots}, snapshots)
        copied, state = self.copied, self.state
        former_state = read_backup(self.target)[1].get(STATE_KEY)
        return BackupReport(
            str(source), str(self.target), head, copied.files, copied.size, copied.files_there, copied.size_there,
            copied.removed, self._list_left_out(), 0.0, tuple(state.files if state else ()),
            None if former_state is None else former_state["made"],
            (*self.notes, *(state.warnings if state else ())),
        )  # fmt: skip

    def _list_left_out(self) -> tuple[str, ...]:
        state = self.state
        known = _OURS if state is None else _OURS.union(STATE)
        names = (path.name for path in self.archive.path.iterdir() if not path.name.startswith("."))
        beside = [name for name in names if name not in known]
        return tuple(sorted(beside if state is None else [*beside, *state.left_out]))

    @property
    def _sums(self) -> SnapshotChecksums:
        assert self.archive.sums is not None
        return self.archive.sums

    def _list_snapshots(self, repository: icechunk.Repository, references: dict[str, str]) -> list[str]:
        """List the snapshots of main and the cited ones, with all their ancestors."""
        snapshot_ids: dict[str, None] = {}
        for snapshot in references.values():
            for info in repository.ancestry(snapshot_id=snapshot):
                if info.id in snapshot_ids:
                    break
                snapshot_ids[info.id] = None
        return list(snapshot_ids)

    def _list_names(self, snapshots: Sequence[str]) -> list[str]:
        """List immutable repository files, chunks first; some may belong to a later commit."""
        led = {entry.name for snapshot in snapshots for entry in read_sums(self._sums.folder / snapshot)}
        self._referenced = sorted(name for name in led if name.startswith("manifests/"))
        chunks = [f"chunks/{path.name}" for path in self._sums.list_objects("chunks")]
        return [*chunks, *sorted(name for name in led if not name.startswith(("snapshots/", "..", "chunks/")))]

    def _copy_store_file(self, name: str) -> None:
        path, copy = self._sums.store / name, self.target / STORE / name
        with suppress(FileNotFoundError):
            # A damaged copy is replaced.
            if self._sums.holds(name, copy.read_bytes()):
                self.copied.files_there += 1
                self.copied.size_there += copy.stat().st_size
                return
        try:
            data = path.read_bytes()
        except FileNotFoundError as error:
            if name.startswith(("chunks/", "transactions/")):
                # A chunk of a commit that died, collected meanwhile, or a transaction log that is never read.
                return
            raise _damage_error(self.archive.path, path.relative_to(self.archive.path)) from error
        if not self._sums.holds(name, data):
            if name.startswith("chunks/") and not self._sums.leads_to(self._referenced, path.name):
                # Written partially by a commit that died; maintenance removes it.
                return
            if name.startswith("chunks/") and not self._sums.is_of_snapshot(self.archive.snapshot, path.name):
                remedy = describe_older_chunk(self._sums, path.name, self.archive.path)
                self.notes.append(f"{path} is another than it was, and is not in the backup; {remedy}")
                return
            raise _damage_error(self.archive.path, path.relative_to(self.archive.path))
        _write_file(data, copy, self.copied)

    def _copy_spool(self) -> None:
        """Copy the spool and the deployments of streams."""
        source = self.archive.path / _SPOOL
        shutil.rmtree(self.target / _NEW_SPOOL, ignore_errors=True)
        if (source / _DURABLE).exists():
            _copy_file(source / _DURABLE, self.target / _NEW_SPOOL / _DURABLE, self.copied)
            # The durable position is copied before the segments, so these reach at least that far.
            for path in sorted(source.glob("segment-*.spool")):
                with suppress(FileNotFoundError):
                    _copy_file(path, self.target / _NEW_SPOOL / path.name, self.copied)
        deployments = self.archive.path / DEPLOYMENTS
        for path in sorted(deployments.rglob("*")) if deployments.is_dir() else ():
            if path.is_file():
                _copy_file(path, self.target / DEPLOYMENTS / path.relative_to(deployments), self.copied)

    def _copy_state(self) -> None:
        """Copy the server's state if requested and changed."""
        if self.folders is None:
            return
        self.state = copy_state(self.folders, self.target)
        if is_current(self.target, self._former_state, self.state):
            shutil.rmtree(self.target / SCRATCH)
            self.copied.files_there += len(self.state.files)
            self.copied.size_there += sum(size for _, size in self.state.files.values())
            return
        for name, (crc, size) in self.state.files.items():
            self.copied.add(self.target / SCRATCH / name, crc, size)

    @property
    def _former_state(self) -> dict[str, Any] | None:
        """Marker entry of the state that an earlier run copied."""
        return read_backup(self.target)[1].get(STATE_KEY) if (self.target / MARKER).exists() else None

    def _copy_raw(self) -> None:
        raw = self.archive.path / RAW
        paths = list_copies(raw)
        for number, path in enumerate(paths):
            copy = self.target / RAW / path.relative_to(raw)
            # A flipped bit keeps the size, so without the hash no later backup would repair the copy.
            if find_content_problem(copy, path.stem) or not _is_there(path, copy, self.copied):
                if problem := find_content_problem(path, path.stem):
                    raise DamagedArchive(
                        f"{path} {problem}; the former backup stays; replace it by a copy of the file as it came"
                    )
                _copy_file(path, copy, self.copied)
            self.progress("raw copies", (number + 1) / len(paths))

    def _copy_new_and_changed(self, snapshots: Sequence[str]) -> list[tuple[Path, Path]]:
        """Copy new snapshots and checksums; return those that changed under their names, with targets."""
        places = [(self._sums.folder / name, self.target / CHECKSUMS / name) for name in snapshots]
        places += [
            (self._sums.store / _SNAPSHOTS / name, self.target / STORE / _SNAPSHOTS / name) for name in snapshots
        ]
        places += [(path, self.target / CHECKSUMS / path.name) for path in self._sums.find_bare_lists()]
        changed = []
        for path, copy in places:
            if not copy.exists():
                _copy_file(path, copy, self.copied)
            elif copy.read_bytes() != path.read_bytes():
                changed.append((path, copy))
        return changed

    def _publish(self, references: dict[str, str], changed: Sequence[tuple[Path, Path]], now_ns: int) -> None:
        """Switch the backup to the new snapshot; everything it needs is on the disk."""
        (self.target / CHECKSUMS).mkdir(parents=True, exist_ok=True)
        pending = self.target / CHECKSUMS / PENDING
        # If this run is killed, changed snapshots may be beside their former checksums; the marker allows that.
        pending.touch()
        for path, copy in changed:
            _copy_file(path, copy, self.copied)
        _verify_copies(self.target, self.copied, self.progress)
        folder = self.target / STORE / "refs"
        for name, snapshot in references.items():
            _write_file(format_reference(snapshot), folder / name / REFERENCE, self.copied)
        for path in sorted(folder.iterdir()):
            if path.name not in references:
                shutil.rmtree(path)
        SnapshotChecksums(self.target, self.target / STORE).keep_spares(compare=True)
        pending.unlink()
        if (self.target / _NEW_SPOOL).is_dir():
            shutil.rmtree(self.target / _SPOOL, ignore_errors=True)
            (self.target / _NEW_SPOOL).rename(self.target / _SPOOL)
        content: dict[str, Any] = {
            "archive": make_marker(read_identity(self.archive.path)),
            "snapshot": self.archive.snapshot,
            "made": format_instant(now_ns),
            "of": str(self.archive.path),
            ACCESS_KEY: self.is_closed,
        }
        if (self.target / SCRATCH).exists() and self.state is not None:
            publish_state(self.state, self.target)
        state = self._former_state
        if self.state is not None:
            state = {"folder": self.state.folder, "made": format_instant(now_ns), "files": self.state.files}
        write_twice(self.target / MARKER, content if state is None else {**content, STATE_KEY: state})
        synchronise(self.target)
        # The former state goes only after the marker names the new one.
        self.copied.removed += prune_state(self.target, None if state is None else state["folder"])

    def _prune(self, names: set[str], snapshots: Sequence[str]) -> None:
        """Remove files that no snapshot needs any more."""
        store = self.target / STORE
        for kind in _KINDS:
            for path in sorted((store / kind).glob("*")):
                if f"{kind}/{path.name}" in names:
                    continue
                # A chunk that the archive lost meanwhile may be needed by a cited snapshot, and exist only here.
                if kind == "chunks" and self._sums.leads_to(self._referenced, path.name):
                    continue
                path.unlink()
                self.copied.removed += 1
        kept = {*snapshots, *(path.name for path in self._sums.find_bare_lists())}
        for path in sorted((self.target / CHECKSUMS).iterdir()):
            if path.name not in kept:
                path.unlink()
                self.copied.removed += 1


def _is_nested(folder: Path, other: Path) -> bool:
    return folder == other or other in folder.parents or folder in other.parents


def _refuse_target(archive: Archive, target: Path) -> None:
    """Refuse an invalid target before anything is changed."""
    source = archive.path
    if archive.store is not None:
        raise CannotBackUp(
            f"the values of {source} lie in {archive.store.url}, and a backup is of files; let the store keep versions "
            "or copies of its objects, and copy the folder, which has all else"
        )
    if _is_nested(target, source):
        raise CannotBackUp(
            f"a backup needs a folder of its own, outside of {source}; got {target}; best one on another disk"
        )
    if (target / ARCHIVE_MARKER).exists():
        raise CannotBackUp(f"{target} is an archive itself; nothing was touched; give a new or an empty folder")
    if (target / MARKER).exists():
        identity, content = read_backup(target)
        if identity != read_identity(source):
            raise CannotBackUp(
                f"{target} is a backup of {content['of']}, another archive; nothing was touched; give another folder"
            )
    elif target.exists():
        if not target.is_dir():
            raise CannotBackUp(f"{target} is no folder; nothing was touched; give a new or an empty folder")
        if any(path.name != BACKUP_LOCK and not _is_ours(path, target) for path in target.iterdir()):
            raise CannotBackUp(
                f"{target} holds something that is no backup; nothing was touched; give a new or an empty folder"
            )


def _is_ours(path: Path, target: Path) -> bool:
    """Return whether a folder is part of a first backup that was killed."""
    is_known = path.name in {STORE, CHECKSUMS, SPARES, RAW, _SPOOL, _NEW_SPOOL, "stream"} or is_state_copy(path.name)
    return is_known and (target / BACKUP_LOCK).exists()


@contextmanager
def _lock_target(target: Path) -> Iterator[None]:
    """Exclude other backups into the same folder."""
    try:
        with try_lock(target / BACKUP_LOCK, "another process"):
            yield
    except ArchiveConflict as error:
        raise CannotBackUp(f"another process backs up into {target}; wait until it is done") from error


@contextmanager
def _keep_snapshots(archive: Archive) -> Iterator[icechunk.Repository]:
    """Keep snapshots from expiring inside the context, by a branch."""
    repository, name = archive.storage.open(), f"{BACKING_UP}{uuid4().hex[:12]}"
    with ExitStack() as stack:
        try:
            stack.enter_context(try_lock(archive.path / BACKUP_LOCK, "another process"))
        except ArchiveConflict as error:
            raise CannotBackUp(
                f"{archive.path} is being backed up by another process; wait until it is done"
            ) from error
        except OSError:
            # A read-only mount: nothing expires here, and copies are verified by their checksums anyway.
            yield repository
            return
        with wait_for_lock(archive.path / LOCK):
            if archive.sums is not None:
                archive.sums.settle()
            # Left by a backup that was killed, as this process holds the backup lock.
            for left in repository.list_branches():
                if left.startswith(BACKING_UP):
                    repository.delete_branch(left)
            repository.create_branch(name, repository.lookup_branch(BRANCH))
        try:
            yield archive.storage.open()
        finally:
            with wait_for_lock(archive.path / LOCK):
                repository.delete_branch(name)


def _is_there(path: Path, copy: Path, copied: _CopyCounts) -> bool:
    """Return whether an immutable file was copied before, and count it."""
    try:
        size = copy.stat().st_size
        is_there = size == path.stat().st_size
    except FileNotFoundError:
        return False
    if is_there:
        copied.files_there += 1
        copied.size_there += size
    return is_there


def _write_file(data: bytes, copy: Path, copied: _CopyCounts) -> None:
    copy.parent.mkdir(parents=True, exist_ok=True)
    partial = copy.with_name(copy.name + _PARTIAL)
    partial.write_bytes(data)
    partial.replace(copy)
    copied.add(copy, checksum(data), len(data))


def _copy_file(path: Path, copy: Path, copied: _CopyCounts, *, private: bool = False) -> None:
    """Copy a file of any size; a private one is readable only by its owner."""
    copy.parent.mkdir(parents=True, exist_ok=True)
    partial = copy.with_name(copy.name + _PARTIAL)
    if private:
        # Before the content is written, so that other users can never read it.
        os.close(os.open(partial, os.O_CREAT | os.O_WRONLY, 0o600))
    shutil.copyfile(path, partial)
    crc, size = checksum_of_file(partial)
    partial.replace(copy)
    copied.add(copy, crc, size)


def _verify_copies(target: Path, copied: _CopyCounts, progress: Progress) -> None:
    """Flush the copies to disk and compare them with what was written."""
    synchronise(target)
    for number, (path, crc) in enumerate(copied.written):
        with path.open("rb") as file:
            if hasattr(os, "posix_fadvise"):
                # Otherwise the page cache is read, which proves nothing about the disk.
                os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
        if checksum_of_file(path)[0] != crc:
            raise DamagedArchive(
                f"{path} cannot be read back as it was written; the former backup stays; use another disk"
            )
        if number % 64 == 0:
            progress("compare", number / len(copied.written))
    progress("compare", 1.0)
    copied.written.clear()


@contextmanager
def _translate_errors(target: Path) -> Iterator[None]:
    """Translate errors of a full or unwritable disk into ones with a remedy."""
    try:
        yield
    except HyperGridError:
        raise
    except icechunk.IcechunkError as error:
        raise DamagedArchive(
            "snapshots of the archive cannot all be read; the former backup stays; 'hypergrid check' names them"
        ) from error
    except OSError as error:
        # Errors about other files do not concern the target.
        if error.filename is not None and not _is_nested(Path(error.filename), target):
            raise
        reason = error.strerror or str(error)
        raise CannotBackUp(
            f"{target} cannot be written: {reason}; what was there stays; make room, or give another folder"
        ) from error


def _damage_error(folder: Path, where: Path) -> DamagedArchive:
    return DamagedArchive(
        f"{folder / where} is another than it was; the former state stays; 'hypergrid check {folder} --repair' mends "
        "what can be mended"
    )


def _is_content(path: Path, backup: Path) -> bool:
    top = path.relative_to(backup).parts[0]
    return (
        top not in (MARKER, spare_path(Path(MARKER)).name, BACKUP_LOCK, _NEW_SPOOL)
        and not is_state_copy(top)
        and not path.name.endswith(_PARTIAL)
    )
