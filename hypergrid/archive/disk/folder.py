"""The folder of an archive: it is one completely, or not at all."""

import ctypes
import os
import shutil
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, Final

from hypergrid.archive.disk.checksums import FOLDER as CHECKSUMS
from hypergrid.archive.disk.checksums import read_checked, write_checked
from hypergrid.archive.disk.lock import wait_for_lock
from hypergrid.archive.disk.storage import S3Store, open_storage
from hypergrid.core.errors import (
    ArchiveConflict,
    DamagedArchive,
    InvalidDeployment,
    NotAnArchive,
    OldLayout,
    StoreUnavailable,
    UnknownLayout,
)
from hypergrid.core.version import VERSION as PROGRAM

MARKER: Final = "hypergrid.json"
"""File that makes a folder an archive."""
SPARE: Final = f"{CHECKSUMS}/{MARKER}"
"""A copy of it, from which a damaged one is mended."""
BACKUP: Final = "backup.json"
"""File that makes a folder a backup."""
FORMAT: Final = "hypergrid-archive"
VERSION: Final = 3
"""Version of the layout that this program writes."""
READABLE: Final = (2, VERSION)
"""Versions that it reads; it commits nothing to older ones, which `hypergrid upgrade` makes new."""


def describe_readable_layouts() -> str:
    """Return the layouts that this program reads, as people are told of them."""
    return f"the layouts {' and '.join(map(str, READABLE))}"


@dataclass(frozen=True)
class Identity:
    """What never changes about an archive."""

    name: str
    """Name of the network."""
    slice_ns: int
    """Length of a slice [ns]."""
    store: S3Store | None = None
    """Where the values lie; None: in the folder."""
    format: str = FORMAT
    version: int = VERSION
    """Version of the layout."""
    id: str | None = None
    """What tells it from all others; None: it was made before archives had one."""

    def require_newest(self, path: Path) -> None:
        """Raise `OldLayout` where this program only reads the layout of the archive at `path`."""
        if self.version != VERSION:
            message = (
                f"{path} is an archive of layout {self.version}, which this program reads and does not write; "
                f"'hypergrid upgrade {path}' gives it layout {VERSION}"
            )
            raise OldLayout(message)


def read_identity(path: Path) -> Identity:
    """Return the identity of the archive in a folder.

    Raises
    ------
    NotAnArchive
        The folder is missing or no archive.
    UnknownLayout
        It has a version of the layout that this program does not read.
    DamagedArchive
        Its marker is another than it was.
    """
    marker = path / MARKER
    if not path.exists():
        message = f"{path} does not exist; an archive was needed; create one with 'hypergrid ingest … --archive {path}'"
        raise NotAnArchive(message)
    try:
        content = read_checked(marker, by_hand=True)
    except OSError as error:
        if (path / BACKUP).is_file():
            message = f"{path} is a backup; an archive was needed; make one of it: hypergrid restore {path} ARCHIVE"
            raise NotAnArchive(message) from error
        message = (
            f"{path} is no archive: {MARKER} is missing or unreadable; nothing was touched; give an archive's folder"
        )
        raise NotAnArchive(message) from error
    return identity_of(path, content)


def read_layout(path: Path) -> int | None:
    """Return the version of the layout of the archive in a folder; None where it cannot be read."""
    try:
        return read_identity(path).version
    except NotAnArchive:
        return None


def identity_of(path: Path, content: Any) -> Identity:  # noqa: ANN401 - whatever the file held
    """Return the identity that a marker tells of the archive in a folder; errors as of `read_identity`."""
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        message = (
            f"{path} is no archive: {MARKER} does not say {FORMAT!r}; nothing was touched; give an archive's folder"
        )
        raise NotAnArchive(message)
    version = content.get("version")
    if version not in READABLE:
        needed = f"HyperGrid {content['program']} or newer" if content.get("program") else "the program that wrote it"
        message = (
            f"{path} is an archive of layout {version!r}; this program (HyperGrid {PROGRAM}) reads "
            f"{describe_readable_layouts()}; nothing was touched; use {needed}"
        )
        raise UnknownLayout(message)
    unknown = sorted(content.keys() - {"program", *(field.name for field in fields(Identity))})
    if unknown:
        message = f"{path / MARKER} is another than it was: it has {unknown[0]!r}; restore the file from a copy"
        raise DamagedArchive(message)
    name, slice_ns = content.get("name"), content.get("slice_ns")
    if not isinstance(name, str) or not isinstance(slice_ns, int) or slice_ns <= 0:
        message = f"{path} is no archive: {MARKER} lacks the name or the slice length; restore the file from a copy"
        raise NotAnArchive(message)
    return Identity(name, slice_ns, _parse_store(path, content.get("store")), version=version, id=content.get("id"))


def _parse_store(path: Path, settings: Any) -> S3Store | None:  # noqa: ANN401 - whatever the file held
    try:
        store = None if settings is None else S3Store(**settings)
    except (TypeError, AttributeError, InvalidDeployment) as error:
        message = f"{path} cannot be opened: 'store' in {MARKER} cannot be used: {error}; restore the file from a copy"
        raise NotAnArchive(message) from error
    if store is not None and not store.prefix:
        message = f"{path} cannot be opened: 'store' in {MARKER} lacks the prefix; restore the file from a copy"
        raise NotAnArchive(message)
    return store


def create_folder(path: Path, identity: Identity, *, build: Callable[[Path], None]) -> None:
    """Make `path` an archive, with what `build` puts into the folder that it is given.

    The folder is built hidden beside `path` and renamed, so a process that dies leaves nothing at `path`; the next
    creation removes what it left, in an S3-compatible store too. Two creations wait for each other on the parent's
    lock.

    Raises
    ------
    ArchiveConflict
        An archive is there already.
    NotAnArchive
        A file, or a folder that holds something else; it stays as it is.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with wait_for_lock(path.parent):
        for leftover in path.parent.iterdir():
            if leftover.name.startswith(_hidden_name(path)):
                _remove_hidden(leftover)
        _refuse_occupied(path)
        building = Path(tempfile.mkdtemp(prefix=_hidden_name(path), dir=path.parent))
        try:
            building.chmod(0o755)
            # First of all, for it tells the next creation what there is to remove elsewhere.
            write_identity(building, identity)
            build(building)
            os.rename(building, path)
        except BaseException:
            _remove_hidden(building)
            raise


def write_identity(path: Path, identity: Identity) -> None:
    """Make a folder an archive, or give one another layout."""
    marker = make_marker(identity)
    write_checked(path / MARKER, marker)
    if identity.store is None:
        (path / SPARE).parent.mkdir(exist_ok=True)
        write_checked(path / SPARE, marker)


def is_spare_whole(path: Path) -> bool:
    """Return whether the copy of the marker says what the marker does."""
    try:
        return read_checked(path / SPARE) == read_checked(path / MARKER, by_hand=True)
    except (OSError, DamagedArchive):
        return False


def restore_marker(path: Path) -> None:
    """Put the copy of a damaged marker in its place.

    Raises
    ------
    NotAnArchive
        It is missing or damaged, too.
    """
    try:
        content = read_checked(path / SPARE)
    except (OSError, DamagedArchive) as error:
        message = f"{path / MARKER} is damaged, and so is its copy, {SPARE}; restore a backup"
        raise NotAnArchive(message) from error
    identity_of(path, content)
    write_checked(path / MARKER, content)


def make_marker(identity: Identity) -> dict[str, Any]:
    """Return what a marker tells."""
    marker = {key: value for key, value in asdict(identity).items() if value is not None}
    return {**marker, "program": PROGRAM}


def _remove_hidden(hidden: Path) -> None:
    """Remove a hidden folder and its values; where their store does not answer, both stay for the next creation."""
    with suppress(NotAnArchive):
        try:
            open_storage(hidden, read_identity(hidden).store).remove()
        except StoreUnavailable:
            return
    shutil.rmtree(hidden, ignore_errors=True)


def remove_folder(path: Path) -> None:
    """Take an archive away, at once and whole; a process that dies meanwhile leaves what the next creation removes."""
    with wait_for_lock(path.parent):
        leaving = Path(tempfile.mkdtemp(prefix=_hidden_name(path), dir=path.parent))
        os.rename(path, leaving)
        # Somebody may be writing into it yet; what stays is hidden, and goes with the next creation.
        _remove_hidden(leaving)


def synchronise(path: Path) -> None:
    """Return once all that was written to the file system of a folder is on the disk, by whichever process.

    Raises
    ------
    OSError
        Something cannot be written.
    """
    whole = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
    if whole is None:
        # Not on Linux: all file systems, and what fails is not told.
        os.sync()
        return
    descriptor = os.open(path, os.O_RDONLY)
    try:
        if whole(descriptor) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), str(path))
    finally:
        os.close(descriptor)


def _hidden_name(path: Path) -> str:
    return f".{path.name}.creating-"


def _refuse_occupied(path: Path) -> None:
    if (path / MARKER).exists():
        message = f"an archive is at {path} already; open it, or choose another folder"
        raise ArchiveConflict(message)
    if path.exists() and not (path.is_dir() and not any(path.iterdir())):
        message = f"{path} holds something that is no archive; nothing was touched; choose an empty or a new folder"
        raise NotAnArchive(message)
