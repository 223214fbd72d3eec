"""Repair of an archive's files: restore what leads to the chunks of a whole snapshot.

For copies made during commits, and for disks that lose bytes. Chunks are handled separately
(`ingest.repair.restore_values`), as raw copies hold their content. Nothing is invented: losses are reported, and
everything that is left remains readable.
"""

import json
import shutil
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import icechunk

from hypergrid.archive.archive import LOCK
from hypergrid.archive.arrays.records import FileEntry, LostRecords, Repair
from hypergrid.archive.arrays.root import TABLES, Root
from hypergrid.archive.arrays.variable_group import VariableGroup
from hypergrid.archive.branch import NAME as BRANCH_KEY
from hypergrid.archive.disk.checksums import (
    DEPLOYMENTS,
    FileChecksum,
    compute_sum,
    find_damaged_copies,
    list_written_twice,
    read_checked,
    read_either,
    read_sums,
    write_checked,
    write_sums,
    write_twice,
)
from hypergrid.archive.disk.checksums import FOLDER as CHECKSUMS
from hypergrid.archive.disk.folder import (
    MARKER,
    SPARE,
    is_spare_whole,
    read_identity,
    restore_marker,
    write_identity,
)
from hypergrid.archive.disk.lock import wait_for_lock
from hypergrid.archive.disk.raw_copies import RAW, copy_path
from hypergrid.archive.disk.retention import MARKER as MAINTAINED
from hypergrid.archive.disk.retention import parse_tag
from hypergrid.archive.disk.snapshot_checksums import (
    REFERENCE,
    SnapshotChecksums,
    format_reference,
    replace_in_object,
)
from hypergrid.archive.disk.storage import BRANCH, STORE, LocalStorage
from hypergrid.archive.durability.salvage import (
    find_damage,
    has_all_chunks,
    is_whole_table,
    read_ledger,
    read_spare_rows,
)
from hypergrid.archive.durability.upgrade import COPIED
from hypergrid.core.errors import DamagedArchive, NotAnArchive
from hypergrid.core.files import replace_atomically

Answer = TypeVar("Answer")
_HEAD: Final = f"refs/branch.{BRANCH}"
_FIRST: Final = "1CECHNKREP0F1RSTCMT0"
"""Icechunk's initial snapshot, the same in every repository."""
GONE: Final = "repair.json"
"""File of an archive while a repair restores commits that main was rolled back past."""


def repair_files(folder: Path, gone: LostRecords | None = None) -> list[Repair]:
    """Repair the marker, references, checksums and snapshots of an archive; returns the repairs.

    If the newest snapshot is not whole, main moves back to the newest that is. What later commits recorded of files is
    added to `gone`, as far as it is readable.

    Raises
    ------
    NotAnArchive
        There is no archive, or its marker and the copy of it are lost.
    DamagedArchive
        No snapshot is whole.
    OldLayout
        The archive has no checksums.
    """
    folder = Path(folder).resolve()
    done = list(_mend_marker(folder))
    identity = read_identity(folder)
    identity.require_newest(folder)
    if identity.store is not None:
        return done
    if not (folder / STORE).is_dir():
        raise DamagedArchive(
            f"{folder} has lost {STORE}/, which held its values; restore a backup, or ingest its raw files anew"
        )
    with wait_for_lock(folder / LOCK):
        run = _RepairRun(
            folder,
            SnapshotChecksums(folder, LocalStorage(folder).store),
            done,
            gone or LostRecords(),
            notes=gone is not None,
        )
        run.run()
    return done


def read_gone(folder: Path) -> LostRecords:
    """Read the losses noted by an unfinished repair; empty if there are none."""
    try:
        content = read_checked(folder / GONE)
    except (OSError, DamagedArchive):
        return LostRecords((folder / GONE).exists())
    return LostRecords(content["is_any"], [FileEntry(**entry) for entry in content["files"]], content["described_by"])


def _mend_marker(folder: Path) -> Iterator[Repair]:
    try:
        read_identity(folder)
    except NotAnArchive:
        if not (folder / SPARE).exists():
            raise
        restore_marker(folder)
        yield Repair(MARKER, f"was another than it was; {SPARE}, its copy, took its place")
    if (folder / CHECKSUMS).is_dir() and not is_spare_whole(folder):
        write_identity(folder, read_identity(folder))
        yield Repair(SPARE, f"was another than {MARKER}; it was written anew")
    yield from _mend_deployments(folder)
    try:
        read_checked(folder / MAINTAINED)
    except FileNotFoundError:
        pass
    except (OSError, DamagedArchive):
        (folder / MAINTAINED).unlink()
        yield Repair(MAINTAINED, "was another than it was; the next maintenance writes it")


def _mend_deployments(folder: Path) -> Iterator[Repair]:
    """Rewrite damaged deployments of streams from their spares, and damaged spares."""
    for path in list_written_twice(folder / DEPLOYMENTS):
        try:
            content = read_either(path)
        except DamagedArchive:
            what = "is another than it was, and so is its spare: put it there from a backup"
            yield Repair(str(path.relative_to(folder)), what, lost=True)
            continue
        for damaged in find_damaged_copies(path):
            write_twice(path, content)
            yield Repair(str(damaged.relative_to(folder)), "was another than it was, and was written anew")


@dataclass
class _RepairRun:
    folder: Path
    sums: SnapshotChecksums
    done: list[Repair]
    gone: LostRecords
    notes: bool
    """Whether losses are recorded in `GONE`, for the caller to restore them."""
    _known: dict[str, bool] = field(default_factory=dict)

    def run(self) -> None:
        """Repair what leads to chunks: first the newest snapshot, then cited ones, then the history."""
        self.sums.folder.mkdir(exist_ok=True)
        self._mend_first_snapshot()
        for name in self.sums.restore_spares():
            self._record(f"store/{name}", "was another than it was; its spare took its place")
        with suppress(DamagedArchive):
            self.sums.settle()
        before = self._find_named(_HEAD) or self._name_newest_by_spares()
        repository = self._open_repository()
        head = self._find_head(repository, before)
        if before is not None and head != before:
            self._note_gone(repository, before, head)
        self._point_reference(_HEAD, head)
        if head != before:
            problem = "does not name a snapshot" if before is None else f"snapshot {before}, the newest, is not whole"
            when = repository.lookup_snapshot(head).message
            self._record(
                f"store/{_HEAD}",
                f"{problem}; {head} is the newest that is ({when!r}); of what came after it, raw copies alone are left",
                lost=True,
            )
        self._mend_references(repository)
        self._mend_history(repository)
        self._mend_logs()
        for path in self.sums.find_damaged_spares():
            self._record(
                str(path.relative_to(self.folder)),
                "was another than the file of which it is a copy; it was written anew",
            )
        self.sums.mark_pending(repository)
        self.sums.settle()
        self.sums.keep_spares(compare=True)

    def _name_newest_by_spares(self) -> str | None:
        """Point main to the spares' snapshot; None if a later one may have existed."""
        newest = self.sums.spares.find_snapshot()
        if newest is None or not self._leads(newest):
            return None
        self._point_reference(_HEAD, newest)
        if self._list_candidates(LocalStorage(self.folder).open())[:1] != [newest]:
            return None
        self._record(f"store/{_HEAD}", f"does not name a snapshot; it names {newest} again, of which spares are")
        return newest

    def _record(self, where: str, what: str, *, lost: bool = False) -> None:
        self.done.append(Repair(where, what, lost))

    def _note_gone(self, repository: icechunk.Repository, before: str, head: str) -> None:
        # Before main moves, so that a restarted repair still knows the losses of a killed one.
        self.gone.is_any = True
        kept = read_ledger(Root.open(repository, head)) or []
        known = {entry.sha256 for entry in [*kept, *self.gone.files]}
        root = _try_call(partial(Root.open, repository, before))
        if root is not None:
            self.gone.described_by |= _try_call(lambda: root.described_by) or {}
            ledger = _try_call(partial(read_ledger, root)) or []
            self.gone.files += [entry for entry in ledger if entry.sha256 not in known]
        if self.notes:
            write_checked(self.folder / GONE, asdict(self.gone))

    def _mend_first_snapshot(self) -> None:
        name = f"snapshots/{_FIRST}"
        known = self._read_sums(_FIRST)
        if known and known[0].fits(self.sums.store):
            return
        (self.sums.store / name).parent.mkdir(exist_ok=True)
        (self.sums.store / name).write_bytes(_make_first_snapshot())
        write_sums(self.sums.folder / _FIRST, [compute_sum(self.sums.store, name)])
        self._record(f"store/{name}", "Icechunk's own first snapshot was written anew")

    def _open_repository(self) -> icechunk.Repository:
        # Icechunk opens a repository only if main names a snapshot; any one will do.
        if self._find_named(_HEAD) is None:
            self._point_reference(_HEAD, _FIRST)
        return LocalStorage(self.folder).open()

    def _find_head(self, repository: icechunk.Repository, now: str | None) -> str:
        """Return the newest whole snapshot of main, or its newest one if that loses less."""
        if now is not None and now != _FIRST:
            self._renew_sums(repository, now)
            if self._is_whole(repository, now):
                return now
        # All of its files are intact, so what is left of its chunks can be read.
        lacks_chunks = now if now is not None and now != _FIRST and self._leads(now) else None
        for snapshot in self._list_candidates(repository):
            self._renew_sums(repository, snapshot)
            if self._is_whole(repository, snapshot):
                # A missing chunk loses the part of its content that no raw copy has; an older snapshot loses
                # everything after it. Take the cheaper one.
                if lacks_chunks is not None:
                    newest, older = Root.open(repository, lacks_chunks), Root.open(repository, snapshot)
                    if _count_lost(newest, older, self.folder / RAW) <= _count_held(newest) - _count_held(older):
                        break
                return snapshot
        if lacks_chunks is not None:
            return lacks_chunks
        raise DamagedArchive(
            f"{self.folder} has no snapshot that is whole; restore a backup, or ingest its raw files anew"
        )

    def _list_candidates(self, repository: icechunk.Repository) -> list[str]:
        """List the snapshots that may have been main's, newest first."""
        candidates = []
        for path in self.sums.list_objects("snapshots"):
            sums = self._read_sums(path.name)
            if sums is not None and not sums[0].fits(self.sums.store):
                continue
            info = _try_call(partial(repository.lookup_snapshot, path.name))
            if info is None:
                continue
            metadata: dict[str, Any] = dict(info.metadata)
            # Commits of branches, and those of an upgrade before its last one, were never main's.
            if "time_ns" in metadata and BRANCH_KEY not in metadata and not metadata.get(COPIED):
                candidates.append((info.written_at, path.name))
        return [name for _, name in sorted(candidates, reverse=True)]

    def _renew_sums(self, repository: icechunk.Repository, snapshot: str) -> None:
        if self._read_sums(snapshot) is not None or not (self.sums.store / "snapshots" / snapshot).exists():
            return
        # Other snapshots share the manifests and may have their checksums.
        _try_call(partial(self.sums.write, repository, snapshot, self.sums.iterate_known()))
        if self._read_sums(snapshot) is None:
            return
        self._record(f"checksums/{snapshot}", "was damaged; its checksums were taken anew from files that others tell")

    def _is_whole(self, repository: icechunk.Repository, snapshot: str) -> bool:
        """Return whether a snapshot's manifests are intact and all its chunks exist, perhaps damaged."""
        return self._leads(snapshot) and self._has_chunks(repository, snapshot)

    def _leads(self, snapshot: str) -> bool:
        sums = self._read_sums(snapshot)
        return sums is not None and all(
            entry.fits(self.sums.store) for entry in sums if not SnapshotChecksums.is_log(entry)
        )

    def _has_chunks(self, repository: icechunk.Repository, snapshot: str) -> bool:
        if snapshot not in self._known:
            self._known[snapshot] = bool(_try_call(partial(has_all_chunks, repository, snapshot)))
        return self._known[snapshot]

    def _read_sums(self, snapshot: str) -> list[FileChecksum] | None:
        try:
            return read_sums(self.sums.folder / snapshot)
        except DamagedArchive:
            return None

    def _find_named(self, reference: str) -> str | None:
        return self.sums.find_named(self.sums.store / reference / REFERENCE)

    def _point_reference(self, reference: str, snapshot: str) -> None:
        path = self.sums.store / reference / REFERENCE
        path.parent.mkdir(parents=True, exist_ok=True)
        content = format_reference(snapshot)
        if not path.exists() or path.read_bytes() != content:
            with replace_atomically(path) as scratch:
                scratch.write_bytes(content)

    def _mend_references(self, repository: icechunk.Repository) -> None:
        """Repair the references other than main, and delete those whose snapshot is not whole."""
        damaged = {path.parent.name for path in self.sums.find_damaged_references()}
        for path in sorted((self.sums.store / "refs").iterdir()):
            if f"refs/{path.name}" == _HEAD or (path / "ref.json.deleted").exists() or not any(path.iterdir()):
                continue
            # The name of a tag contains its snapshot.
            kind, _, name = path.name.partition(".")
            snapshot = parse_tag(name) if kind == "tag" else self._find_named(f"refs/{path.name}")
            if snapshot is not None:
                self._renew_sums(repository, snapshot)
            if snapshot is None or not self._is_whole(repository, snapshot):
                shutil.rmtree(path)
                what = f"snapshot {snapshot}, which was cited" if kind == "tag" else f"the branch {name}"
                self._record(f"store/refs/{path.name}", f"{what}, is not whole, and was let go", lost=True)
            elif path.name in damaged:
                self._point_reference(f"refs/{path.name}", snapshot)
                self._record(f"store/refs/{path.name}", f"names snapshot {snapshot} again")

    def _mend_history(self, repository: icechunk.Repository) -> None:
        """Cut the history before snapshots that are not whole."""
        for path in self.sums.list_objects("snapshots"):
            snapshot = path.name
            if snapshot == _FIRST:
                continue
            self._renew_sums(repository, snapshot)
            if self._leads(snapshot):
                continue
            if not (self.sums.folder / snapshot).exists():
                # Written by a commit that never reached a branch.
                path.unlink()
                continue
            self._end_history(snapshot, "is not whole")
        # A spare that replaced a file missing from a copy does not bring back the snapshots before it.
        for path in self.sums.list_objects("snapshots"):
            content = json.loads(_try_call(partial(repository.inspect_snapshot, path.name)) or "{}")
            parent = content.get("parent_id")
            if parent is not None and not path.with_name(parent).exists():
                self._end_history(parent, "is gone")

    def _end_history(self, snapshot: str, why: str) -> None:
        """Replace an unreadable snapshot by Icechunk's initial one."""
        name = f"snapshots/{snapshot}"
        # With an unreadable ancestor no snapshot would ever expire.
        shutil.copyfile(self.sums.store / "snapshots" / _FIRST, self.sums.store / name)
        write_sums(self.sums.folder / snapshot, [compute_sum(self.sums.store, name)])
        self._record(f"store/{name}", f"{why}; history ends after it", lost=True)

    def _mend_logs(self) -> None:
        """Accept damaged transaction logs, which are never read."""
        for path in self.sums.list_snapshot_files():
            sums = self._read_sums(path.name)
            if sums is None:
                path.unlink()
                continue
            kept = [entry for entry in sums if not SnapshotChecksums.is_log(entry) or entry.fits(self.sums.store)]
            if kept != sums:
                write_sums(path, kept)
                self._record(f"store/transactions/{path.name}", "is another than it was; nothing reads it")


def _try_call(call: Callable[[], Answer]) -> Answer | None:
    """Return the result of a call; None if it fails."""
    try:
        return call()
    except (KeyboardInterrupt, SystemExit):
        raise
    # Icechunk panics on some damaged files, and a panic is not an `Exception`.
    except BaseException:  # noqa: BLE001 - a panic of Rust
        return None


def _make_first_snapshot() -> bytes:
    """Return Icechunk's initial snapshot, dated 1970."""
    with tempfile.TemporaryDirectory() as scratch:
        repository = icechunk.Repository.create(icechunk.local_filesystem_storage(scratch))
        data = (Path(scratch) / "snapshots" / _FIRST).read_bytes()
        written_us = round(repository.lookup_snapshot(_FIRST).written_at.timestamp() * 1e6)
    # An initial snapshot younger than the expiring ones would stop all maintenance.
    return replace_in_object(data, written_us.to_bytes(8, "little"), bytes(8))


def _count_held(root: Root) -> int:
    """Return the number of readings and table rows that a snapshot reports."""
    return _count_readings(root) + sum(root.count_rows(name) for name in TABLES)


def _count_readings(root: Root) -> int:
    return sum(VariableGroup.load(root.group, name).readings for name in root.variables)


def _count_lost(root: Root, older: Root, raw: Path) -> int:
    """Bound the readings and table rows lost with a snapshot's damaged chunks from above.

    Readings can be restored from raw copies, and tables from an older snapshot.
    """
    groups = (VariableGroup.load(root.group, name) for name in root.variables)
    readings = sum(min(group.readings, find_damage(group).readings_at_most) for group in groups)
    cut = [name for name in TABLES if not is_whole_table(root, name)]
    spared = {name: len(_try_call(partial(read_spare_rows, root, name)) or []) for name in cut}
    damaged = [name for name in cut if spared[name] < root.count_rows(name)]
    kept = older if "files" in damaged else root
    files = _try_call(partial(read_ledger, kept)) or []
    copied = sum(entry.readings for entry in files if _is_there(raw, entry.sha256))
    rows = sum(max(0, root.count_rows(name) - max(older.count_rows(name), spared[name])) for name in damaged)
    return min(readings, max(0, _count_readings(root) - copied)) + rows


def _is_there(raw: Path, sha256: str) -> bool:
    try:
        return copy_path(raw, sha256).stat().st_size > 0
    except OSError:
        return False
