"""State beside the data in a backup: copied from a running server, secured when restored.

It is in a folder `state-DIGEST` of the backup, which the backup's marker names with a checksum of each file. So the
previous copy stays intact until the marker moves, unchanged state is not copied, and a program that does not know about
it restores the data alone.
"""

import json
import os
import shutil
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from hypergrid.archive.disk.checksums import checksum, checksum_of_file
from hypergrid.archive.disk.row_checksums import find_damage
from hypergrid.archive.integrity import Defect
from hypergrid.core.errors import CannotBackUp, DamagedArchive

STATE: Final = ("server", "standing", "continuous")
"""Folders of an archive that hold state beside its data."""
KEY: Final = "state"
"""Entry of a backup's marker: the folder, the instant, and checksum and size of each file."""
SCRATCH: Final = ".state"
ACCESS_KEY: Final = "access_control"
"""Entry of a backup's marker: whether the archive's server requires keys."""
KEYS: Final = "keys.sqlite"
"""File of access keys in the server's folder."""
ACCESS_MARKER: Final = "keys.required"
"""File beside it that marks access control as on, so that a server that lost its keys admits no caller."""
_PREFIX: Final = "state-"
_SQLITE_OWN: Final = ("-wal", "-shm", "-journal")
"""Suffixes of SQLite's own files, whose content is in the copy of the database."""
_TAKEN: Final = (".sqlite", ".jsonl")
"""Suffixes of the files that are copied; locks and sockets are meaningless elsewhere, and results can be recomputed."""
_BLOCK: Final = 1 << 20
_REMEDIES: Final = {
    "": "restore the file from a backup made --with-server, or move it away: then what it held is lost",
    "indexes": "start the server, or 'hypergrid keys list' where it is the file of keys",
}
"""Remedies for damage of a file, by its place; `_ROW` for others."""
_ROW: Final = "it counts as missing: make anew what it held, or restore the file from a backup made --with-server"

Secure = Callable[[Path, str], Sequence[str]]
"""Secures restored state, given the new archive's folder and the backup's instant; returns notes on what it did."""


@dataclass
class StateCopy:
    """A copy of the state, in the backup's folder."""

    folder: str
    """Name of its folder once published."""
    files: dict[str, tuple[str, int]]
    """Checksum and size [byte] by path."""
    left_out: list[str] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)


def is_state_copy(name: str) -> bool:
    """Return whether a name in a backup's folder is a copy of state, perhaps partial."""
    return name == SCRATCH or name.startswith(_PREFIX)


def has_access_control(folder: Path) -> bool:
    """Return whether a server with this folder requires keys."""
    return any((folder / name).exists() for name in (ACCESS_MARKER, KEYS))


def keep_access_control(folder: Path) -> None:
    """Make a server with this folder require keys; synced to disk on return.

    Raises
    ------
    OSError
        The folder cannot be written.
    """
    folder.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(folder / ACCESS_MARKER, os.O_CREAT | os.O_WRONLY, 0o600)
    with os.fdopen(descriptor, "w", encoding="utf-8") as file:
        file.write("Access needs keys; 'hypergrid keys off' turns access control off.\n")
        file.flush()
        os.fsync(file.fileno())
    # The directory entry must be on the disk as well.
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def copy_state(folders: Mapping[str, Path], target: Path) -> StateCopy:
    """Copy state into the scratch folder of a backup, each file consistent in itself.

    The processes that own it may keep running.

    Parameters
    ----------
    folders
        Location of each folder of `STATE`; missing ones are skipped.
    target
        The backup.

    Raises
    ------
    CannotBackUp
        A whole SQLite file is damaged; single damaged rows are copied and reported.
    """
    scratch = target / SCRATCH
    # Left by a run that was killed.
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir(mode=0o700)
    made = StateCopy("", {})
    for name, source in folders.items():
        for path in sorted(source.iterdir()) if source.is_dir() else ():
            if path.name.endswith(_SQLITE_OWN) or path.name == ACCESS_MARKER:
                continue
            shown = f"{name}/{path.name}"
            if path.suffix not in _TAKEN or path.name.startswith(".") or not path.is_file():
                made.left_out.append(shown)
                continue
            copy = scratch / name / path.name
            copy.parent.mkdir(mode=0o700, exist_ok=True)
            _copy_file(path, copy)
            made.warnings += _iterate_warnings(path, copy, shown)
            made.files[shown] = checksum_of_file(copy)
    # Named by its content, so that unchanged state is recognised by name.
    digest = checksum(json.dumps(sorted(made.files.items())).encode())
    made.folder = f"{_PREFIX}{digest}"
    return made


def _copy_file(path: Path, copy: Path) -> None:
    # Readable only by its owner from the start, like the original.
    os.close(os.open(copy, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    if path.suffix == ".sqlite":
        _copy_database(path, copy)
        return
    shutil.copyfile(path, copy)
    if path.suffix == ".jsonl":
        _cut_last_line(copy)


def _copy_database(path: Path, copy: Path) -> None:
    try:
        with closing(sqlite3.connect(path, timeout=30.0)) as source, closing(sqlite3.connect(copy)) as made:
            # All pages in one step: a single read transaction, which no writer can force to restart.
            source.backup(made, pages=-1)
    except sqlite3.Error as error:
        raise _unreadable_error(path, str(error)) from error
    for ending in _SQLITE_OWN:
        copy.with_name(copy.name + ending).unlink(missing_ok=True)


def _iterate_warnings(path: Path, copy: Path, shown: str) -> Iterator[str]:
    for where, what in find_damage(copy):
        if not where:
            raise _unreadable_error(path, what)
        yield f"{where} in {shown} {what}; copied as it is: 'hypergrid check' says what to do"


def _unreadable_error(path: Path, what: str) -> CannotBackUp:
    return CannotBackUp(
        f"{path} {what}; the former backup stays; restore the file from a copy, or leave --with-server away"
    )


def _cut_last_line(copy: Path) -> None:
    """Truncate an incomplete last line, which was being written."""
    with copy.open("r+b") as file:
        end = size = file.seek(0, os.SEEK_END)
        while end:
            start = max(0, end - _BLOCK)
            file.seek(start)
            newline = file.read(end - start).rfind(b"\n")
            if newline >= 0:
                end = start + newline + 1
                break
            end = start
        if end < size:
            file.truncate(end)


def publish_state(made: StateCopy, target: Path) -> None:
    """Rename a copy to its final name; the caller must update the marker next."""
    folder = target / made.folder
    if folder.exists():
        shutil.rmtree(folder)
    (target / SCRATCH).rename(folder)


def prune_state(target: Path, kept: str | None) -> int:
    """Remove all copies of state except one; return the number of files removed."""
    removed = 0
    for path in sorted(target.iterdir()):
        if is_state_copy(path.name) and path.name != kept:
            removed += sum(1 for entry in path.rglob("*") if entry.is_file())
            shutil.rmtree(path)
    return removed


def iterate_state_files(
    backup: Path, state_entry: Mapping[str, Any], notes: list[str] | None = None
) -> Iterator[tuple[str, Path]]:
    """Yield the state files of a backup by their archive paths, each once verified.

    With `notes`, damaged files are skipped and noted there.

    Raises
    ------
    DamagedArchive
        `notes` is None, and a file is missing or does not match its checksum.
    """
    for name, (crc, size) in state_entry["files"].items():
        path = backup / state_entry["folder"] / name
        if not _is_whole(path, crc, size):
            if notes is None:
                raise DamagedArchive(
                    f"{path} is another than it was; nothing was restored; back up once more, or restore without it, "
                    "by --damaged"
                )
            notes.append(f"{path} is another than it was, and was not restored")
            continue
        yield name, path


def is_current(backup: Path, state_entry: Mapping[str, Any] | None, made: StateCopy) -> bool:
    """Return whether a backup already holds exactly the copied state, intact."""
    if state_entry is None or state_entry["folder"] != made.folder:
        return False
    return all(_is_whole(backup / made.folder / name, crc, size) for name, (crc, size) in made.files.items())


def _is_whole(path: Path, crc: str, size: int) -> bool:
    try:
        return checksum_of_file(path) == (crc, size)
    except OSError:
        return False


def check_state(folder: Path) -> Iterator[Defect]:
    """Yield defects of the state beside an archive's data, by file and row."""
    for name in STATE:
        for path in sorted((folder / name).glob("*.*")):
            for where, what in find_damage(path) if path.is_file() else ():
                shown = f"{name}/{path.name}"
                yield Defect("state", f"{shown}: {where}" if where else shown, what, _REMEDIES.get(where, _ROW))
