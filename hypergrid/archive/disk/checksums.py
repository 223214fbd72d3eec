"""Checksums of what lies on the disk: a byte that was flipped there is an error and never a reading.

Chunks carry theirs (`table.CODECS`), as do small files of JSON (`write_checked`). Those of the files that lead to the
chunks stand in files of their own (`snapshot_checksums`).

All are CRC-32C, as Zarr's: for faults of disks and copies, not against somebody who means harm.
"""

import json
import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import google_crc32c

from hypergrid.core.errors import DamagedArchive

FOLDER: Final = "checksums"
"""Folder of an archive with a file for each snapshot: checksum, size and name of each file that leads to its chunks."""
DEPLOYMENTS: Final = "stream/deployments"
"""Folder of an archive with the deployments of its streams, over time."""
CHUNK_TAIL: Final = 4
"""Bytes at the end of a chunk that are the checksum of those before, little-endian."""
_KEY: Final = "checksum"
_BY_HAND: Final = f" (whoever changed it by hand leaves the line '{_KEY}' away)"
_BLOCK: Final = 4 << 20


def checksum(data: bytes) -> str:
    """Return the CRC-32C of bytes, as eight hexadecimal digits."""
    return f"{google_crc32c.value(data):08x}"


def checksum_of_file(path: Path) -> tuple[str, int]:
    """Return the CRC-32C of a file, and its size [byte], in bounded memory."""
    crc, size = 0, 0
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            crc, size = google_crc32c.extend(crc, block), size + len(block)
    return f"{crc:08x}", size


def is_whole_chunk(data: bytes) -> bool:
    """Return whether a chunk ends with the checksum of what is before."""
    return len(data) > CHUNK_TAIL and google_crc32c.value(data[:-CHUNK_TAIL]) == int.from_bytes(
        data[-CHUNK_TAIL:], "little"
    )


@dataclass(frozen=True)
class FileChecksum:
    """The checksum of a file."""

    name: str
    """Path below the folder that it is told of."""
    crc: str
    size: int

    def fits(self, folder: Path) -> bool:
        """Return whether the file is there, and what it was."""
        try:
            if self.size > _BLOCK:
                return checksum_of_file(folder / self.name) == (self.crc, self.size)
            # A query's first read compares some hundred small files: opened as paths they take three times as long.
            with open(f"{folder}/{self.name}", "rb", buffering=0) as file:  # noqa: PTH123 - as above
                data = file.read(_BLOCK + 1)
            return len(data) == self.size and checksum(data) == self.crc
        except OSError:
            return False


def compute_sum(folder: Path, name: str) -> FileChecksum:
    """Return the checksum of a file below a folder."""
    return FileChecksum(name, *checksum_of_file(folder / name))


def write_sums(path: Path, sums: Iterable[FileChecksum]) -> None:
    """Write checksums to a file, a line each and one for itself at the end; it is there whole or not at all."""
    text = "".join(f"{file_sum.crc} {file_sum.size} {file_sum.name}\n" for file_sum in sums)
    _swap_file(path, f"{text}{checksum(text.encode())}\n")


def read_sums(path: Path, *, maximum: int | None = None) -> list[FileChecksum]:
    """Return what `write_sums` wrote, or the first so many, of which the first is that of the snapshot's own file.

    Raises
    ------
    DamagedArchive
        It is missing, or another than it was.
    """
    try:
        text = path.read_bytes().decode("ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise damage_error(path, "cannot be read") from error
    body, tail = text[:-9], text[-9:]
    if tail != f"{checksum(body.encode())}\n":
        raise damage_error(path, "is another than it was")
    lines = body.splitlines() if maximum is None else body.split("\n", maximum)[:maximum]
    rows = [line.split(" ", 2) for line in lines]
    return [FileChecksum(name, crc, int(size)) for crc, size, name in rows]


def write_checked(path: Path, content: Mapping[str, Any]) -> None:
    """Write JSON with its checksum to a file, which is there whole or not at all."""
    _swap_file(path, _format_checked(content))


def read_checked(path: Path, *, by_hand: bool = False) -> dict[str, Any]:
    """Return what `write_checked` wrote, or, where it may be `by_hand`, what somebody wrote without a checksum.

    Raises
    ------
    OSError
        It is missing.
    DamagedArchive
        It is another than it was, or no JSON.
    """
    data = path.read_bytes()
    try:
        content = json.loads(data)
    except ValueError as error:
        raise damage_error(path, "is no JSON") from error
    if not isinstance(content, dict):
        raise damage_error(path, "is no object of JSON")
    stored_crc = content.pop(_KEY, None)
    if data != _format_checked(content).encode() and not (stored_crc is None and by_hand):
        raise damage_error(path, "is another than it was" + (_BY_HAND if by_hand else ""))
    return content


def write_twice(path: Path, content: Mapping[str, Any]) -> None:
    """Write JSON with its checksum to a file, and to a spare beside it; both are on the disk before this returns."""
    for copy_path in (path, spare_path(path)):
        _swap_file(copy_path, _format_checked(content), durable=True)


def read_either(path: Path) -> dict[str, Any]:
    """Return what `write_twice` wrote, or somebody by hand; where the file is damaged, what the spare says.

    Raises
    ------
    DamagedArchive
        Both are missing, or others than they were.
    """
    try:
        return read_checked(path, by_hand=True)
    except (OSError, DamagedArchive) as error:
        with suppress(OSError, DamagedArchive):
            return read_checked(spare_path(path))
        raise damage_error(path, "and its spare are others than they were") from error


def spare_path(path: Path) -> Path:
    """Return the spare of a file that is written twice."""
    return path.with_suffix(".spare")


def list_written_twice(folder: Path) -> list[Path]:
    """Return the files of a folder that `write_twice` wrote, also those of which the spare alone is left, by name."""
    return sorted({path.with_suffix(".json") for path in folder.glob("*") if path.suffix in (".json", ".spare")})


def find_damaged_copies(path: Path) -> list[Path]:
    """Return which of a file that is written twice, and its spare, is damaged; older files have no spare."""
    damaged = []
    for copy in (path, spare_path(path)):
        try:
            read_checked(copy, by_hand=copy == path)
        except FileNotFoundError:
            damaged += [copy] if copy == path else []
        except (OSError, DamagedArchive):
            damaged.append(copy)
    spare = spare_path(path)
    if not damaged and spare.exists() and read_checked(spare) != read_checked(path, by_hand=True):
        # Who wrote it anew was killed in between.
        damaged.append(spare)
    return damaged


def _format_checked(content: Mapping[str, Any]) -> str:
    body = dict(content)
    return json.dumps({**body, _KEY: checksum(json.dumps(body).encode())}, indent=1) + "\n"


def _swap_file(path: Path, text: str, *, durable: bool = False) -> None:
    scratch = path.with_name(f".{path.name}")
    with scratch.open("w", encoding="utf-8") as file:
        file.write(text)
        if durable:
            file.flush()
            os.fsync(file.fileno())
    scratch.replace(path)


def damage_error(path: Path, what: str) -> DamagedArchive:
    """Return the error that a file of an archive is damaged."""
    archive = next((folder for folder in path.parents if (folder / FOLDER).is_dir()), path.parent)
    return DamagedArchive(f"{path} {what}; 'hypergrid check {archive} --repair' mends what can be mended")
