"""Files and bytes that outlive a process: atomic replacement, and sealed state."""

import os
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from hypergrid.core.errors import InvalidQuery


@contextmanager
def replace_atomically(path: Path, *, durable: bool = False) -> Iterator[Path]:
    """Yield a scratch path beside a file, which replaces the file at the end, or is removed after an error.

    Readers see the old file or the new one, never a part, also after the writer was killed; a killed writer leaves its
    hidden scratch file, which the next one overwrites. Writers of one path must exclude each other.

    Parameters
    ----------
    path
        The file; its folder exists.
    durable
        Whether the content is on the disk before it gets its name, so that it survives a power cut.
    """
    # Hidden, and with the same suffix: some writers choose the format by it.
    scratch = path.with_name(f".{path.name}")
    try:
        yield scratch
        if durable:
            with scratch.open("rb") as file:
                os.fsync(file.fileno())
        scratch.replace(path)
    except BaseException:
        scratch.unlink(missing_ok=True)
        raise


def sync_folder(folder: Path) -> None:
    """Write the names of a folder's files to the disk, so that they survive a power cut."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


# State that one process keeps for the next is plain data, as reading it must never execute code: magic, version, CRC-32
# checksum, content.

_VERSION_BYTES: Final = 2
_CHECKSUM_BYTES: Final = 4


def seal(magic: bytes, version: int, content: bytes) -> bytes:
    """Prefix content with a magic, a version and a checksum."""
    return b"".join(seal_chunks(magic, version, [content]))


def seal_chunks(magic: bytes, version: int, chunks: Sequence[bytes]) -> list[bytes]:
    """Prefix content that comes in chunks with a magic, a version and a checksum; nothing large is copied."""
    checksum = 0
    for chunk in chunks:
        checksum = zlib.crc32(chunk, checksum)
    numbers = version.to_bytes(_VERSION_BYTES, "little") + checksum.to_bytes(_CHECKSUM_BYTES, "little")
    return [magic + numbers, *chunks]


def sealed_version(data: bytes, magic: bytes) -> int | None:
    """Return the version of bytes made by `seal`, before they are checked; None: they have another magic."""
    start = len(magic)
    return int.from_bytes(data[start : start + _VERSION_BYTES], "little") if data[:start] == magic else None


def unseal(data: bytes, magic: bytes, version: int, *, label: str) -> bytes:
    """Return the content of bytes made by `seal`.

    Parameters
    ----------
    label
        Name of the component that resumes, as in "a join".

    Raises
    ------
    InvalidQuery
        The bytes have another magic or version, or are damaged.
    """
    what = f"{label} can be resumed only from the bytes of its snapshot"
    size = len(magic)
    body = size + _VERSION_BYTES + _CHECKSUM_BYTES
    if data[:size] != magic:
        raise InvalidQuery(f"{what}; got {len(data)} bytes that begin with {data[:size]!r}")
    numbers, content = data[size:body], data[body:]
    made = int.from_bytes(numbers[:_VERSION_BYTES], "little")
    if made != version:
        raise InvalidQuery(f"{what} of version {version}; got version {made}: resume it by the release that made it")
    if zlib.crc32(content) != int.from_bytes(numbers[_VERSION_BYTES:], "little"):
        raise InvalidQuery(f"{what}, whole and unchanged; their check sum differs: take an earlier snapshot")
    return content
