"""Raw copies: every file that was ingested is kept as it came, compressed, under the hash of its content."""

import errno
import hashlib
import os
from pathlib import Path
from threading import get_ident
from typing import BinaryIO, Final

import pyarrow as pa

from hypergrid.core.errors import DamagedArchive

RAW: Final = "raw"
"""Folder of an archive that holds the files as they came."""

_BLOCK: Final = 4 << 20
_PARTIAL: Final = ".partial-"


def hash_of(path: Path, size_bytes: int) -> str:
    """Return the SHA-256 of the first bytes of a file; a file that grows meanwhile is taken as it was."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        for block in _blocks(stream, size_bytes):
            digest.update(block)
    return digest.hexdigest()


def _blocks(stream: BinaryIO, size_bytes: int):  # noqa: ANN202 - a generator of bytes
    left = size_bytes
    while left > 0 and (block := stream.read(min(left, _BLOCK))):
        left -= len(block)
        yield block


def copy_path(raw: Path, sha256: str) -> Path:
    """Return where the copy of a content lies."""
    return raw / sha256[:2] / f"{sha256}.zst"


def keep(path: Path, raw: Path, *, sha256: str, size_bytes: int) -> Path:
    """Copy the first bytes of a file into the folder `raw`, once a content; complete or not there at all.

    So it is after a power cut: what has its name is on the disk. (That it has it is so after `Archive.settle`.)
    """
    target = copy_path(raw, sha256)
    if target.exists():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    partial = target.with_name(f"{_PARTIAL}{os.getpid()}-{get_ident()}-{sha256}")
    with path.open("rb") as stream, pa.CompressedOutputStream(str(partial), "zstd") as packed:
        for block in _blocks(stream, size_bytes):
            packed.write(block)
    with partial.open("rb") as written:
        os.fsync(written.fileno())
    partial.replace(target)
    return target


def read_back(raw: Path, sha256: str) -> bytes:
    """Return the content of a hash.

    Raises
    ------
    FileNotFoundError
        There is no copy.
    DamagedArchive
        The copy is another than it was.
    """
    path = copy_path(raw, sha256)
    if not path.exists():
        raise FileNotFoundError(errno.ENOENT, "there is no raw copy", str(path))
    try:
        with pa.CompressedInputStream(str(path), "zstd") as packed:
            content: bytes = packed.read()
    except (OSError, pa.ArrowException) as error:
        message = f"the raw copy {path} cannot be read: {error}; put it back from a backup"
        raise DamagedArchive(message) from error
    if hashlib.sha256(content).hexdigest() != sha256:
        message = f"the raw copy {path} is another than it was; put it back from a backup"
        raise DamagedArchive(message)
    return content


def sweep(raw: Path) -> None:
    """Remove what a killed run left half copied."""
    for partial in raw.glob(f"*/{_PARTIAL}*"):
        partial.unlink(missing_ok=True)
