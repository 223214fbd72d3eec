"""Checksums of files: a flipped byte raises an error and is never a reading.

Chunks carry their own checksum (`table.CODECS`), and so do small JSON files (`write_checked`). The checksums of the
files that lead to the chunks are kept in separate files (`snapshot_checksums`).

All are CRC-32C, like Zarr's: they detect faults of disks and copies, not tampering.
"""

import json
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import google_crc32c

from hypergrid.core.errors import DamagedArchive
from hypergrid.core.files import replace_atomically

FOLDER: Final = "checksums"
"""Folder of an archive with a file per snapshot: checksum, size and name of each file that leads to its chunks."""
DEPLOYMENTS: Final = "stream/deployments"
"""Folder of an archive with the deployments of its streams, over time."""
CHUNK_TAIL: Final = 4
"""Length of the little-endian checksum at the end of a chunk, which is that of the bytes before it [bytes]."""
_KEY: Final = "checksum"
_BY_HAND: Final = f" (whoever changed it by hand leaves the line '{_KEY}' away)"
_BLOCK: Final = 4 << 20


def checksum(data: bytes) -> str:
    """Return the CRC-32C of bytes as eight hexadecimal digits."""
    return f"{google_crc32c.value(data):08x}"


def checksum_of_file(path: Path) -> tuple[str, int]:
    """Return the CRC-32C and the size [byte] of a file, in bounded memory."""
    crc, size = 0, 0
    with path.open("rb") as file:
        while block := file.read(_BLOCK):
            crc, size = google_crc32c.extend(crc, block), size + len(block)
    return f"{crc:08x}", size


def is_whole_chunk(data: bytes) -> bool:
    """Return whether a chunk ends with the checksum of its content."""
    return len(data) > CHUNK_TAIL and google_crc32c.value(data[:-CHUNK_TAIL]) == int.from_bytes(
        data[-CHUNK_TAIL:], "little"
    )


@dataclass(frozen=True)
class FileChecksum:
    """Checksum of a file."""

    name: str
    """Path relative to the folder in question."""
    crc: str
    size: int

    def fits(self, folder: Path) -> bool:
        """Return whether the file exists and matches."""
        try:
            if self.size > _BLOCK:
                return checksum_of_file(folder / self.name) == (self.crc, self.size)
            # A query's first read verifies some hundred small files: opening them as paths takes three times as long.
            with open(f"{folder}/{self.name}", "rb", buffering=0) as file:  # noqa: PTH123 - as above
                data = file.read(_BLOCK + 1)
            return len(data) == self.size and checksum(data) == self.crc
        except OSError:
            return False


def compute_sum(folder: Path, name: str) -> FileChecksum:
    return FileChecksum(name, *checksum_of_file(folder / name))


def write_sums(path: Path, sums: Iterable[FileChecksum]) -> None:
    """Write checksums to a file atomically, one per line, ending with its own."""
    text = "".join(f"{file_sum.crc} {file_sum.size} {file_sum.name}\n" for file_sum in sums)
    _swap_file(path, f"{text}{checksum(text.encode())}\n")


def read_sums(path: Path, *, maximum: int | None = None) -> list[FileChecksum]:
    """Read the checksums written by `write_sums`; with `maximum` only the first ones.

    The first is that of the snapshot's own file.

    Raises
    ------
    DamagedArchive
        The file is missing or damaged.
    """
    try:
        text = path.read_bytes().decode("ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise damage_error(path, "cannot be read") from error
    # The last line: eight digits and a newline.
    body, tail = text[:-9], text[-9:]
    if tail != f"{checksum(body.encode())}\n":
        raise damage_error(path, "is another than it was")
    lines = body.splitlines() if maximum is None else body.split("\n", maximum)[:maximum]
    rows = [line.split(" ", 2) for line in lines]
    return [FileChecksum(name, crc, int(size)) for crc, size, name in rows]


def write_checked(path: Path, content: Mapping[str, Any]) -> None:
    """Write JSON with its checksum to a file, atomically."""
    _swap_file(path, _format_checked(content))


def read_checked(path: Path, *, by_hand: bool = False) -> dict[str, Any]:
    """Read the JSON written by `write_checked`; with `by_hand`, also JSON without a checksum.

    Raises
    ------
    OSError
        The file is missing.
    DamagedArchive
        The file does not match its checksum, or is not a JSON object.
    """
    data = path.read_bytes()
    try:
        content = json.loads(data)
    except ValueError as error:
        raise damage_error(path, "is no JSON") from error
    if not isinstance(content, dict):
        raise damage_error(path, "is no object of JSON")
    stored_crc = content.pop(_KEY, None)
    # Comparing bytes also finds damage outside of the values, such as in whitespace.
    if data != _format_checked(content).encode() and not (stored_crc is None and by_hand):
        raise damage_error(path, "is another than it was" + (_BY_HAND if by_hand else ""))
    return content


def write_twice(path: Path, content: Mapping[str, Any]) -> None:
    """Write JSON with its checksum durably to a file and its spare."""
    for copy_path in (path, spare_path(path)):
        _swap_file(copy_path, _format_checked(content), durable=True)


def read_either(path: Path) -> dict[str, Any]:
    """Read what `write_twice` or the user wrote, from the spare if the file is damaged.

    Raises
    ------
    DamagedArchive
        Both are missing or damaged.
    """
    try:
        return read_checked(path, by_hand=True)
    except (OSError, DamagedArchive) as error:
        with suppress(OSError, DamagedArchive):
            return read_checked(spare_path(path))
        raise damage_error(path, "and its spare are others than they were") from error


def spare_path(path: Path) -> Path:
    """Return the path of the spare of a file written by `write_twice`."""
    return path.with_suffix(".spare")


def list_written_twice(folder: Path) -> list[Path]:
    """List, sorted, the files that `write_twice` wrote, even with only the spare left."""
    return sorted({path.with_suffix(".json") for path in folder.glob("*") if path.suffix in (".json", ".spare")})


def find_damaged_copies(path: Path) -> list[Path]:
    """Return the damaged copies of a file written by `write_twice`; older files have no spare."""
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
        # The last writer was killed between the two copies.
        damaged.append(spare)
    return damaged


def _format_checked(content: Mapping[str, Any]) -> str:
    body = dict(content)
    return json.dumps({**body, _KEY: checksum(json.dumps(body).encode())}, indent=1) + "\n"


def _swap_file(path: Path, text: str, *, durable: bool = False) -> None:
    with replace_atomically(path, durable=durable) as scratch:
        scratch.write_text(text, encoding="utf-8")


def damage_error(path: Path, what: str) -> DamagedArchive:
    archive = next((folder for folder in path.parents if (folder / FOLDER).is_dir()), path.parent)
    return DamagedArchive(f"{path} {what}; 'hypergrid check {archive} --repair' mends what can be mended")
