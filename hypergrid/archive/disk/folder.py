"""The folder of an archive, created and removed atomically."""

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
"""Copy of the marker, from which a damaged one is restored."""
BACKUP: Final = "backup.json"
"""File that makes a folder a backup."""
FORMAT: Final = "hypergrid-archive"
VERSION: Final = 3
"""Layout version that this program writes."""
READABLE: Final = (2, VERSION)
"""Layout versions that this program reads; older ones are read-only until `hypergrid upgrade`."""


def describe_readable_layouts() -> str:
    return f"the layouts {' and '.join(map(str, READABLE))}"


@dataclass(frozen=True)
class Identity:
    """Immutable properties of an archive."""

    name: str
    """Name of the network."""
    slice_ns: int
    """Length of a slice [ns]."""
    store: S3Store | None = None
    """Store of the values; None: in the folder."""
    format: str = FORMAT
    version: int = VERSION
    """Version of the layout."""
    id: str | None = None
    """Unique id; None for archives that predate ids."""

    def require_newest(self, path: Path) -> None:
        """Raise `OldLayout` if this program can only read the layout of the archive at `path`."""
        if self.version != VERSION:
            raise OldLayout(
                f"{path} is an archive of layout {self.version}, which this program reads and does not write; "
                f"'hypergrid upgrade {path}' gives it layout {VERSION}"
            )


def read_identity(path: Path) -> Identity:
    """Return the identity of the archive in a folder.

    Raises
    ------
    NotAnArchive
        The folder is missing or is not an archive.
    UnknownLayout
        This program cannot read its layout version.
    DamagedArchive
        Its marker is damaged.
    """
    marker = path / MARKER
    if not path.exists():
        raise NotAnArchive(
            f"{path} does not exist; an archive was needed; create one with 'hypergrid ingest {path} PATHS'"
        )
    try:
        content = read_checked(marker, by_hand=True)
    except OSError as error:
        if (path / BACKUP).is_file():
            raise NotAnArchive(
                f"{path} is a backup; an archive was needed; make one of it: hypergrid restore ARCHIVE {path}"
            ) from error
        raise NotAnArchive(
            f"{path} is no archive: {MARKER} is missing or unreadable; nothing was touched; give an archive's folder"
        ) from error
    return identity_of(path, content)


def read_layout(path: Path) -> int | None:
    """Return the layout version of the archive in a folder; None if unreadable."""
    try:
        return read_identity(path).version
    except NotAnArchive:
        return None


def identity_of(path: Path, content: Any) -> Identity:  # noqa: ANN401 - whatever the file held
    """Parse the content of an archive's marker; raises as `read_identity`."""
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise NotAnArchive(
            f"{path} is no archive: {MARKER} does not say {FORMAT!r}; nothing was touched; give an archive's folder"
        )
    version = content.get("version")
    if version not in READABLE:
        needed = f"HyperGrid {content['program']} or newer" if content.get("program") else "the program that wrote it"
        raise UnknownLayout(
            f"{path} is an archive of layout {version!r}; this program (HyperGrid {PROGRAM}) reads "
            f"{describe_readable_layouts()}; nothing was touched; use {needed}"
        )
    unknown = sorted(content.keys() - {"program", *(field.name for field in fields(Identity))})
    if unknown:
        raise DamagedArchive(
            f"{path / MARKER} is another than it was: it has {unknown[0]!r}; restore the file from a copy"
        )
    name, slice_ns = content.get("name"), content.get("slice_ns")
    if not isinstance(name, str) or not isinstance(slice_ns, int) or slice_ns <= 0:
        raise NotAnArchive(
            f"{path} is no archive: {MARKER} lacks the name or the slice length; restore the file from a copy"
        )
    return Identity(name, slice_ns, _parse_store(path, content.get("store")), version=version, id=content.get("id"))


def _parse_store(path: Path, settings: Any) -> S3Store | None:  # noqa: ANN401 - whatever the file held
    try:
        store = None if settings is None else S3Store(**settings)
    except (TypeError, AttributeError, InvalidDeployment) as error:
        raise NotAnArchive(
            f"{path} cannot be opened: 'store' in {MARKER} cannot be used: {error}; restore the file from a copy"
        ) from error
    if store is not None and not store.prefix:
        raise NotAnArchive(
            f"{path} cannot be opened: 'store' in {MARKER} lacks the prefix; restore the file from a copy"
        )
    return store


def create_folder(path: Path, identity: Identity, *, build: Callable[[Path], None]) -> None:
    """Create an archive at `path`, with the content that `build` writes into a folder.

    The folder is built hidden beside `path` and then renamed, so a process that dies leaves nothing at `path`. The next
    creation removes the leftovers, in an S3-compatible store too. Concurrent creations wait on the lock of the parent.

    Raises
    ------
    ArchiveConflict
        `path` is already an archive.
    NotAnArchive
        `path` is a file or a folder with other content, which is left unchanged.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    with wait_for_lock(path.parent):
        for leftover in path.parent.iterdir():
            if leftover.name.startswith(_hidden_name(path)):
                _remove_hidden(leftover)
        _refuse_occupied(path)
        building = Path(tempfile.mkdtemp(prefix=_hidden_name(path), dir=path.parent))
        try:
            # mkdtemp makes folders that only their owner can open.
            building.chmod(0o755)
            # First, because it tells the next creation which objects to remove in a store.
            write_identity(building, identity)
            build(building)
            os.rename(building, path)
        except BaseException:
            _remove_hidden(building)
            raise


def write_identity(path: Path, identity: Identity) -> None:
    marker = make_marker(identity)
    write_checked(path / MARKER, marker)
    if identity.store is None:
        (path / SPARE).parent.mkdir(exist_ok=True)
        write_checked(path / SPARE, marker)


def is_spare_whole(path: Path) -> bool:
    """Return whether the copy of the marker equals the marker."""
    try:
        return read_checked(path / SPARE) == read_checked(path / MARKER, by_hand=True)
    except (OSError, DamagedArchive):
        return False


def restore_marker(path: Path) -> None:
    """Replace a damaged marker by its copy.

    Raises
    ------
    NotAnArchive
        The copy is missing or damaged too.
    """
    try:
        content = read_checked(path / SPARE)
    except (OSError, DamagedArchive) as error:
        raise NotAnArchive(f"{path / MARKER} is damaged, and so is its copy, {SPARE}; restore a backup") from error
    # Raises if the copy is not a valid marker.
    identity_of(path, content)
    write_checked(path / MARKER, content)


def make_marker(identity: Identity) -> dict[str, Any]:
    return {key: value for key, value in asdict(identity).items() if value is not None} | {"program": PROGRAM}


def _remove_hidden(hidden: Path) -> None:
    """Remove a hidden folder and its values; if their store is unreachable, both stay."""
    with suppress(NotAnArchive):
        try:
            open_storage(hidden, read_identity(hidden).store).remove()
        # The next creation tries again.
        except StoreUnavailable:
            return
    shutil.rmtree(hidden, ignore_errors=True)


def remove_folder(path: Path) -> None:
    """Remove an archive atomically; leftovers of a process that dies go with the next creation."""
    with wait_for_lock(path.parent):
        leaving = Path(tempfile.mkdtemp(prefix=_hidden_name(path), dir=path.parent))
        os.rename(path, leaving)
        # Another process may still be writing into it; what remains is hidden, and goes with the next creation.
        _remove_hidden(leaving)


def synchronise(path: Path) -> None:
    """Flush the whole file system of a folder to disk, including writes of other processes.

    Raises
    ------
    OSError
        Something cannot be written.
    """
    whole = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
    if whole is None:
        # Not on Linux: flush all file systems; failures are not reported.
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
        raise ArchiveConflict(f"an archive is at {path} already; open it, or choose another folder")
    if path.exists() and not (path.is_dir() and not any(path.iterdir())):
        raise NotAnArchive(
            f"{path} holds something that is no archive; nothing was touched; choose an empty or a new folder"
        )
