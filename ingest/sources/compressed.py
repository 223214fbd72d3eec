"""Compressed files, and text whose lines are not separated by newlines.

Text in wide characters, or with bare returns, is rewritten. Decompression is limited in size. Names of
members are shown to the user and never used as paths.
"""

import errno
import gzip
import io
import lzma
import re
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, Final

from ingest.formats import Unreadable
from ingest.formats.encoding import has_lines, is_superset_of_ascii, wide_encoding

# Text of stations has a ratio of about 5 to 50.
RATIO_MOST: Final = 200
"""Compression ratio above which a file is refused as a bomb."""
RATIO_FROM_BYTES: Final = 64 << 20
"""Size up to which any ratio is accepted [bytes]."""
MEMBERS_MOST: Final = 10_000
DAMAGED: Final = "damaged archive"
BOMB: Final = "packed too densely"
ENCRYPTED: Final = "encrypted"
TOO_MANY: Final = "too many files"

_BLOCK: Final = 1 << 20
_NAME_MOST: Final = 200
# zipfile raises RuntimeError for encrypted files, and for unknown compression methods.
_ERRORS: Final = (EOFError, zlib.error, lzma.LZMAError, zipfile.BadZipFile, RuntimeError, OSError)
# A full disk, for example, does not mean that the file is unreadable.
_OF_THE_MACHINE: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EMFILE, errno.ENFILE, errno.EIO})
"""Errors of the machine."""
_GZIP: Final = b"\x1f\x8b"
_ZIP: Final = (b"PK\x03\x04", b"PK\x05\x06")


@dataclass(frozen=True)
class Member:
    """A file within a compressed one."""

    index: int
    """Index among the members; 0 if there is only one."""
    name: str
    """Printable name."""
    size_bytes: int
    """Compressed size."""


def list_members(path: Path) -> list[Member] | None:
    """Return the members of a compressed file, None if it is not compressed.

    Raises
    ------
    Unreadable
        It is damaged, or has too many members.
    """
    if path.suffix.lower() not in (".gz", ".zip"):
        return None
    with path.open("rb") as stream:
        mark = stream.read(4)
    if mark.startswith(_GZIP):
        return [Member(0, path.name[:-3] if path.name.lower().endswith(".gz") else path.name, path.stat().st_size)]
    if not mark.startswith(_ZIP):
        raise Unreadable(f"{DAMAGED}: it is named {path.suffix}, and does not begin like one")
    with _translate_errors(), zipfile.ZipFile(path) as packed:
        infos = packed.infolist()
    if len(infos) > MEMBERS_MOST:
        raise Unreadable(f"{TOO_MANY}: {len(infos)} in one packed file; at most {MEMBERS_MOST} are read")
    size = path.stat().st_size
    return [
        Member(index, _printable_name(info.filename), min(info.compress_size, size))
        for index, info in enumerate(infos)
        if not info.is_dir() and not _base(info.filename).startswith(".") and "__MACOSX" not in info.filename
    ]


def _base(name: str) -> str:
    return re.split(r"[/\\]", name)[-1]


def _printable_name(name: str) -> str:
    """Return a name without parts of paths elsewhere and unprintable characters."""
    parts = [part for part in re.split(r"[/\\]", name) if part not in ("", ".", "..")]
    text = "".join(letter if letter.isprintable() else "?" for letter in "/".join(parts))
    return text[-_NAME_MOST:] or "unnamed"


@contextmanager
def _translate_errors() -> Iterator[None]:
    try:
        yield
    except _ERRORS as error:
        if isinstance(error, OSError) and error.errno in _OF_THE_MACHINE:
            raise
        kind = ENCRYPTED if "encrypted" in str(error) else DAMAGED
        raise Unreadable(f"{kind}: {str(error)[:200] or type(error).__name__}") from error


@contextmanager
def open_member(path: Path, member: Member | None) -> Iterator[IO[bytes]]:
    """Open a file, or a member of it, for reading; errors as in `list_members`."""
    if member is None:
        with path.open("rb") as stream:
            yield stream
    else:
        with _translate_errors():
            if path.suffix.lower() == ".gz":
                with gzip.open(path) as stream:
                    yield stream  # type: ignore[misc]
            else:
                with zipfile.ZipFile(path) as packed, packed.open(packed.infolist()[member.index]) as stream:
                    yield stream


def unpack_member(path: Path, member: Member, folder: Path) -> Path:
    """Extract a member into the folder; errors as in `list_members`, and `Unreadable` above the ratio limit."""
    target = folder / (re.sub(r"[^\w.\- ]", "_", _base(member.name))[-80:] or "unnamed")
    max_bytes = max(RATIO_FROM_BYTES, RATIO_MOST * member.size_bytes)
    total = 0
    with open_member(path, member) as stream, target.open("wb") as out:
        while block := stream.read(_BLOCK):
            # Counted here, because a file can lie about its size.
            total += len(block)
            if total > max_bytes:
                out.truncate(0)
                raise Unreadable(
                    f"{BOMB}: {member.size_bytes} bytes become more than {max_bytes}, {RATIO_MOST} times as many; "
                    "unpack it yourself if it is sound"
                )
            out.write(block)
    return target


def needs_rewriting(head: bytes, encoding: str | None) -> bool:
    """Return whether text has to be rewritten before it can be split at line ends."""
    return not has_lines(head, encoding)


def rewrite_text(source: Path, size_bytes: int, head: bytes, encoding: str | None, folder: Path) -> Path:
    """Write the first `size_bytes` bytes of a text into the folder, with lines ended by newlines.

    Wide characters become UTF-8; those that are invalid in the encoding become U+FFFD.
    """
    target = folder / source.name
    wide = _wide(head, encoding)
    with source.open("rb") as raw, target.open("w", encoding="utf-8" if wide else "latin-1", newline="\n") as out:
        # Latin-1 keeps every byte as it is, so that the encoding can be detected later.
        text = io.TextIOWrapper(
            io.BufferedReader(_LimitedReader(raw, size_bytes)),
            encoding=wide or "latin-1",
            errors="replace",
            newline=None,
        )
        while block := text.read(_BLOCK):
            out.write(block)
    return target


def _wide(head: bytes, encoding: str | None) -> str | None:
    declared = encoding if encoding is not None and not is_superset_of_ascii(encoding) else None
    return declared or wide_encoding(head)


def plain_head(head: bytes, encoding: str | None) -> bytes:
    """Return the first bytes of a text as `rewrite_text` would write them."""
    if not needs_rewriting(head, encoding):
        return head
    wide = _wide(head, encoding)
    if wide is None:
        return head.replace(b"\r", b"\n")
    # Only whole characters, of two or four bytes.
    text = head[: len(head) // 4 * 4].decode(wide, errors="ignore").removeprefix("\ufeff")
    return text.replace("\r\n", "\n").replace("\r", "\n").encode("utf-8", errors="replace")


class _LimitedReader(io.RawIOBase):
    """The first bytes of a stream."""

    def __init__(self, stream: IO[bytes], size_bytes: int) -> None:
        self._stream, self._left = stream, size_bytes

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:  # noqa: ANN401 - any buffer
        block = self._stream.read(min(len(buffer), self._left))
        buffer[: len(block)] = block
        self._left -= len(block)
        return len(block)


__all__ = ["Member", "list_members", "open_member", "plain_head", "rewrite_text", "unpack_member"]
