"""Raw copies: every ingested file, unchanged and compressed, named by the hash of its content."""

import errno
import hashlib
import os
from collections.abc import Iterator
from pathlib import Path
from threading import get_ident
from typing import BinaryIO, Final

import pyarrow as pa

from hypergrid.core.errors import DamagedArchive

RAW: Final = "raw"
"""Folder of an archive, and of its backups, that holds the raw copies."""

_BLOCK: Final = 4 << 20
_PARTIAL: Final = ".partial-"


def hash_of(path: Path, size_bytes: int) -> str:
    """Return the SHA-256 of the first `size_bytes` of a file, which may grow meanwhile."""
    digest = hashlib.sha256()
    with path.open("rb") as stream:
        for block in _blocks(stream, size_bytes):
            digest.update(block)
    return digest.hexdigest()


def _blocks(stream: BinaryIO, size_bytes: int) -> Iterator[bytes]:
    left = size_bytes
    while left > 0 and (block := stream.read(min(left, _BLOCK))):
        left -= len(block)
        yield block


def copy_path(raw: Path, sha256: str) -> Path:
    return raw / sha256[:2] / f"{sha256}.zst"


def list_copies(raw: Path) -> list[Path]:
    """List complete copies, sorted by hash; the stem of each name is the hash."""
    return sorted(raw.glob("*/*.zst"))


def list_unfinished(raw: Path) -> list[Path]:
    """List partial copies, of killed runs and of active ones."""
    return sorted(raw.glob(f"*/{_PARTIAL}*"))


def keep(path: Path, raw: Path, *, sha256: str, size_bytes: int) -> Path:
    """Copy the first bytes of a file to the raw copies, atomically, once per content.

    This also holds after a power cut: a file with the final name has its content on the disk. (The name itself is
    durable only after `Archive.settle`.)
    """
    target = copy_path(raw, sha256)
    if target.exists():
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    # Without the suffix, so that a partial copy is not listed as a copy.
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
        The copy does not match its hash.
    """
    path = copy_path(raw, sha256)
    if not path.exists():
        raise FileNotFoundError(errno.ENOENT, "there is no raw copy", str(path))
    try:
        with pa.CompressedInputStream(str(path), "zstd") as packed:
            content: bytes = packed.read()
    except (OSError, pa.ArrowException) as error:
        raise DamagedArchive(f"the raw copy {path} cannot be read: {error}; put it back from a backup") from error
    if hashlib.sha256(content).hexdigest() != sha256:
        raise DamagedArchive(f"the raw copy {path} is another than it was; put it back from a backup")
    return content


def find_content_problem(path: Path, sha256: str) -> str:
    """Return what is wrong with the copy of a hash; empty if nothing."""
    digest = hashlib.sha256()
    try:
        with pa.CompressedInputStream(str(path), "zstd") as packed:
            while block := packed.read(_BLOCK):
                digest.update(block)
    except OSError as error:
        return f"cannot be read: {' '.join(str(error).split())[:200]}"
    return "" if digest.hexdigest() == sha256 else "its content is another than when it was ingested"


def sweep(raw: Path) -> None:
    """Remove partial copies of runs that were killed."""
    for partial in list_unfinished(raw):
        partial.unlink(missing_ok=True)
