"""Files and folders: assignment of files to feeds, and splitting of files into chunks of whole lines.

Compressed files are extracted, with limited size; names of their members are shown to the user and never used as paths.
Text in wide characters, or with bare returns, is rewritten.
"""

import codecs
import errno
import fnmatch
import gzip
import io
import lzma
import os
import re
import tarfile
import tempfile
import zipfile
import zlib
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import IO, BinaryIO, Final

import numpy as np

from hypergrid.archive.disk.raw_copies import hash_of
from hypergrid.core.errors import InvalidDeployment, NotFound
from ingest.deployment.deployment_file import FILE_NAME, Deployment, Feed
from ingest.deployment.station_table import is_station_table
from ingest.formats import FORMATS, BadRow, DocumentFormat, Format, Layout, Parsed, Unreadable, recognise
from ingest.formats.base import GENERAL
from ingest.formats.csv_sniffer import has_lines, is_superset_of_ascii, wide_encoding
from ingest.formats.file_metadata import variable_name
from ingest.formats.timestamps import changes, find_repeated

# Text of stations has a ratio of about 5 to 50.
RATIO_MOST: Final = 200
"""Compression ratio above which a file is refused as a bomb."""
MEMBERS_MOST: Final = 10_000
DEPTH_MOST: Final = 1
"""Compressed files within compressed files are read to this depth."""
DAMAGED: Final = "damaged archive"

_BLOCK: Final = 1 << 20
# zipfile raises RuntimeError for encrypted files, and for unknown compression methods.
_ERRORS: Final = (
    EOFError, zlib.error, lzma.LZMAError, zipfile.BadZipFile, tarfile.TarError, RuntimeError, OSError,
)  # fmt: skip
# A full disk, for example, does not mean that the file is unreadable.
_OF_THE_MACHINE: Final = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EMFILE, errno.ENFILE, errno.EIO})
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
    inner: "Member | None" = None
    """Member of this member, which is itself a compressed file."""
    packed_name: str = ""
    """Name of the compressed file that `inner` is in."""


def list_members(path: Path) -> list[Member] | None:
    """Return the members of a compressed file, None if it is not compressed.

    Raises
    ------
    Unreadable
        It is damaged, or has too many members.
    """
    if not is_packed(path.name):
        return None
    size = path.stat().st_size
    with _translate_errors(), path.open("rb") as stream:
        members = _members_of(stream, path.name, size, size, depth=0)
    if len(members) > MEMBERS_MOST:
        raise Unreadable(f"too many files: {len(members)} in one packed file; at most {MEMBERS_MOST} are read")
    return members


def is_packed(name: str) -> bool:
    """Return whether a file is a compressed one, or an archive of files, by its name."""
    return name.lower().endswith((".gz", ".zip", ".tgz", ".tar"))


def is_single_packed(name: str) -> bool:
    """Return whether a compressed file holds one file, which has its name."""
    return name.lower().endswith(".gz") and not _is_tar(name)


def _is_tar(name: str) -> bool:
    return name.lower().endswith((".tar", ".tgz", ".tar.gz"))


def _members_of(stream: IO[bytes], name: str, size_bytes: int, packed_bytes: int, *, depth: int) -> list[Member]:
    """Return the members of an open compressed file, and those of compressed files among them.

    Parameters
    ----------
    packed_bytes
        Compressed size of the outermost file, for the limit of what is unpacked to look into it.
    depth
        Number of compressed files around this one.
    """
    mark = stream.read(4)
    stream.seek(0)
    if _is_tar(name):
        with tarfile.open(fileobj=_Limited(stream, packed_bytes), mode="r:") as packed:
            numbered = enumerate(islice(packed, MEMBERS_MOST + 1))
            entries = [(index, info.name, min(info.size, size_bytes)) for index, info in numbered if info.isfile()]
    elif mark.startswith(_GZIP):
        entries = [(0, name[:-3] if name.lower().endswith(".gz") else name, size_bytes)]
    elif mark.startswith(_ZIP):
        with zipfile.ZipFile(stream) as packed_zip:
            entries = [
                (index, info.filename, min(info.compress_size, size_bytes))
                for index, info in enumerate(packed_zip.infolist())
                if not info.is_dir()
            ]
    else:
        raise Unreadable(f"{DAMAGED}: it is named {Path(name).suffix}, and does not begin like one")
    if len(entries) > MEMBERS_MOST:
        raise Unreadable(f"too many files: {len(entries)} in one packed file; at most {MEMBERS_MOST} are read")
    members: list[Member] = []
    for index, inner_name, size in entries:
        if _base(inner_name).startswith(".") or "__MACOSX" in inner_name:
            continue
        member = Member(index, _printable_name(inner_name), size)
        if not is_packed(inner_name) or depth == DEPTH_MOST or (mark.startswith(_GZIP) and not _is_tar(name)):
            members.append(member)
            continue
        try:
            with _translate_errors(), _open_within(stream, name, member, packed_bytes) as inner_stream:
                inner = _members_of(inner_stream, _base(inner_name), size, packed_bytes, depth=depth + 1)
        except Unreadable:
            # A file of its own, which is rejected with its reason; the others are read.
            members.append(member)
            continue
        if len(members) + len(inner) > MEMBERS_MOST:
            raise Unreadable(f"too many files in one packed file; at most {MEMBERS_MOST} are read")
        members += [
            replace(
                member,
                name=_joined_name(member.name, inner_member.name),
                size_bytes=inner_member.size_bytes,
                inner=inner_member,
                packed_name=_base(inner_name),
            )
            for inner_member in inner
        ]
    return members


def _joined_name(outer: str, inner: str) -> str:
    return outer.removesuffix(".gz") if _base(outer) == f"{inner}.gz" else f"{outer}/{inner}"


class _Limited(io.RawIOBase):
    """Plain bytes of a stream, which is refused beyond the size that a compressed file may have."""

    def __init__(self, stream: IO[bytes], packed_bytes: int) -> None:
        mark = stream.read(2)
        stream.seek(0)
        self._stream: IO[bytes] = gzip.open(stream) if mark == _GZIP else stream  # type: ignore[assignment]
        self._packed_bytes = packed_bytes

    def readable(self) -> bool:
        return True

    def read(self, size: int = -1) -> bytes:
        if self._stream.seek(0, io.SEEK_CUR) + max(size, 0) > max_unpacked_bytes(self._packed_bytes):
            raise Unreadable(_too_dense(self._packed_bytes))
        return self._stream.read(size)

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, origin: int = 0) -> int:
        # A packed stream is unpacked up to there.
        if offset > max_unpacked_bytes(self._packed_bytes):
            raise Unreadable(_too_dense(self._packed_bytes))
        return self._stream.seek(offset, origin)


def max_unpacked_bytes(packed_bytes: int) -> int:
    """Return the size up to which a compressed file of a size is unpacked [bytes]."""
    # Any ratio is accepted up to 64 MB.
    return max(64 << 20, RATIO_MOST * packed_bytes)


def _too_dense(packed_bytes: int) -> str:
    return (
        f"packed too densely: {packed_bytes} bytes become more than {max_unpacked_bytes(packed_bytes)}, "
        f"{RATIO_MOST} times as many; unpack it yourself if it is sound"
    )


@contextmanager
def _open_within(stream: IO[bytes], name: str, member: Member, packed_bytes: int) -> Iterator[IO[bytes]]:
    """Open a member of an open compressed file that is itself one, as a file that can be searched."""
    stream.seek(0)
    with _open_one(stream, name, member, packed_bytes) as inner, tempfile.TemporaryFile() as plain:
        total = 0
        while block := inner.read(_BLOCK):
            # Counted, because a file can lie about its size.
            total += len(block)
            if total > max_unpacked_bytes(min(member.size_bytes, packed_bytes)):
                raise Unreadable(_too_dense(member.size_bytes))
            plain.write(block)
        plain.seek(0)
        yield plain


@contextmanager
def _open_one(stream: IO[bytes], name: str, member: Member, packed_bytes: int) -> Iterator[IO[bytes]]:
    """Open a member of an open compressed file."""
    if _is_tar(name):
        with tarfile.open(fileobj=_Limited(stream, packed_bytes), mode="r:") as packed:
            info = next((info for index, info in enumerate(packed) if index == member.index), None)
            inner = packed.extractfile(info) if info is not None else None
            if inner is None:
                raise Unreadable(f"{DAMAGED}: {member.name} cannot be found again")
            with inner:
                yield inner
    elif name.lower().endswith(".gz"):
        with gzip.open(stream) as plain:
            yield plain  # type: ignore[misc]
    else:
        with zipfile.ZipFile(stream) as packed_zip, packed_zip.open(packed_zip.infolist()[member.index]) as inner:
            yield inner


def _base(name: str) -> str:
    return re.split(r"[/\\]", name)[-1]


def _printable_name(name: str) -> str:
    """Return a name without parts of paths elsewhere and unprintable characters."""
    parts = [part for part in re.split(r"[/\\]", name) if part not in ("", ".", "..")]
    text = "".join(letter if letter.isprintable() else "?" for letter in "/".join(parts))
    return text[-200:] or "unnamed"


@contextmanager
def _translate_errors() -> Iterator[None]:
    try:
        yield
    except _ERRORS as error:
        if isinstance(error, OSError) and error.errno in _OF_THE_MACHINE:
            raise
        kind = "encrypted" if "encrypted" in str(error) else DAMAGED
        raise Unreadable(f"{kind}: {str(error)[:200] or type(error).__name__}") from error


@contextmanager
def open_member(path: Path, member: Member | None) -> Iterator[IO[bytes]]:
    """Open a file, or a member of it, for reading; errors as in `list_members`."""
    if member is None:
        with path.open("rb") as stream:
            yield stream
    else:
        with _translate_errors(), ExitStack() as stack:
            source: IO[bytes] = stack.enter_context(path.open("rb"))
            name, outer = path.name, member
            while outer.inner is not None:
                source = stack.enter_context(_open_within(source, name, outer, path.stat().st_size))
                # The name of a member holds those of its own members.
                name, outer = outer.packed_name, outer.inner
            yield stack.enter_context(_open_one(source, name, outer, path.stat().st_size))


def unpack_member(path: Path, member: Member, folder: Path) -> Path:
    """Extract a member into the folder; errors as in `list_members`, and `Unreadable` above the ratio limit."""
    target = folder / (re.sub(r"[^\w.\- ]", "_", _base(member.name))[-80:] or "unnamed")
    max_bytes = max_unpacked_bytes(member.size_bytes)
    total = 0
    with open_member(path, member) as stream, target.open("wb") as out:
        while block := stream.read(_BLOCK):
            # Counted here, because a file can lie about its size.
            total += len(block)
            if total > max_bytes:
                out.truncate(0)
                raise Unreadable(_too_dense(member.size_bytes))
            out.write(block)
    return target


def rewrite_text(source: Path, size_bytes: int, head: bytes, encoding: str | None, folder: Path) -> Path:
    """Write the first `size_bytes` bytes of a text into the folder, with lines ended by newlines.

    Wide characters become UTF-8; those that are invalid in the encoding become U+FFFD.
    """
    target = folder / source.name
    wide = _wide(head, encoding)
    # Latin-1 keeps every byte as it is, so that the encoding can be detected later.
    decoder = codecs.getincrementaldecoder(wide or "latin-1")("replace")
    lines = io.IncrementalNewlineDecoder(decoder, translate=True)
    with source.open("rb") as raw, target.open("w", encoding="utf-8" if wide else "latin-1", newline="\n") as out:
        for left in range(size_bytes, 0, -_BLOCK):
            out.write(lines.decode(raw.read(min(left, _BLOCK)), final=left <= _BLOCK))
    return target


def _wide(head: bytes, encoding: str | None) -> str | None:
    declared = encoding if encoding is not None and not is_superset_of_ascii(encoding) else None
    return declared or wide_encoding(head)


def plain_head(head: bytes, encoding: str | None) -> bytes:
    """Return the first bytes of a text as `rewrite_text` would write them."""
    if has_lines(head, encoding):
        return head
    wide = _wide(head, encoding)
    if wide is None:
        return head.replace(b"\r", b"\n")
    # Only whole characters, of two or four bytes.
    text = head[: len(head) // 4 * 4].decode(wide, errors="ignore").removeprefix("\ufeff")
    return text.replace("\r\n", "\n").replace("\r", "\n").encode("utf-8", errors="replace")


HEAD_BYTES: Final = 1 << 16
"""Number of bytes read to recognise a file's format."""
CHUNK_BYTES: Final = 8 << 20
"""Nominal length of a chunk [bytes]; parsing one takes about ten times as much memory."""
HEAD_MOST_BYTES: Final = 1 << 20
"""Maximum number of bytes read if the first lines are long."""
LINE_MOST_BYTES: Final = 1 << 20
"""Maximum length of a line of a station file [bytes]."""
COMPANIONS: Final = ("arrivals.csv", "stations.csv", "faults.csv")
"""Names of auxiliary files next to a deployment file, which are not data."""
BINARY: Final = "binary"


@dataclass(frozen=True)
class SourceFile:
    """A file that a feed reads."""

    path: Path
    name: str
    """Unique path from the ingested folder, with parent folders if needed; for rejects and the ledger of files."""
    feed: str
    size_bytes: int
    changed_ns: int
    """Modification time when the file was found [ns since 1970 UTC]."""
    sha256: str = ""
    """Hash of its content; empty until it is read."""
    member: Member | None = None
    """Member of the compressed file at `path`, until `decompress_to` has extracted it."""
    refused: str = ""
    """Reason why the file cannot be read at all, if already known."""
    text: Path | None = None
    """Copy that can be split at line ends, if the file itself cannot."""

    @property
    def readable(self) -> Path:
        return self.text or self.path


@dataclass(frozen=True)
class Discovery:
    """Files found at some paths."""

    files: tuple[SourceFile, ...]
    ignored: tuple[str, ...]
    """Names of files without a feed."""
    companions: tuple[str, ...] = ()
    """Names of files that match a feed, but are auxiliary by name and location."""
    station_tables: tuple[Path, ...] = ()
    """Tables of stations, if there is no deployment file that names one."""
    ignored_at: tuple[tuple[Path, Member | None], ...] = ()
    """Where each of the `ignored` files is."""


@dataclass(frozen=True)
class Chunk:
    """Whole lines of a file, or a piece of a document, that are parsed at once; picklable."""

    number: int
    """Index among all chunks of a run, in the order of files and lines."""
    file: int
    """Index of its file among the files of the run."""
    path: str
    format: str
    layout: Layout
    start: int
    """First byte, or first index in a document's own unit."""
    stop: int
    """End of the range, exclusive."""
    last: bool
    """Whether the chunk ends at the end of the file."""


def discover(paths: Sequence[Path], deployment: Deployment, *, exclude: Path | None = None) -> Discovery:
    """Find the files in the paths that a feed reads, by path and name.

    Folders are searched with all their content. Hidden files and folders, the folder `exclude`, deployment files, and
    tables named by the deployment are skipped silently. `COMPANIONS` next to a deployment file are skipped,
    and reported if they match a feed; a file that is itself one of the paths is always data.

    Raises
    ------
    NotFound
        A path does not exist.
    """
    sources: list[tuple[tuple[Path, Path], Feed, Member | str | None]] = []
    ignored: list[tuple[str, Path, Member | None]] = []
    companions: list[str] = []
    tables: list[Path] = []
    given = {path.resolve() for path in paths if path.is_file()}
    named_tables = {path.resolve() for path in deployment.tables}
    seen: set[Path] = set()
    for root, path in walk(paths, exclude):
        # A file that is given twice, or by a link, is read once.
        if (real := path.resolve()) in seen:
            continue
        seen.add(real)
        if path.name == FILE_NAME or (real not in given and real in named_tables):
            continue
        # Reported and stored names are relative to the path that was given.
        for member in _members(path):
            shown = path / member.name if isinstance(member, Member) else path
            name = shown.relative_to(root).as_posix()
            # An unreadable archive is assigned to any feed, so that it becomes a reject.
            feed = deployment.feeds[0] if isinstance(member, str) else _feed_of(path, member, deployment)
            if member is None and real not in given and _has_stations(path, feed, deployment):
                tables.append(path)
            elif member is None and real not in given and is_companion(path, deployment):
                companions += [name] if feed else []
            elif feed is None:
                ignored.append((name, path, member if isinstance(member, Member) else None))
            else:
                shown = path if member is not None and is_single_packed(path.name) else shown
                sources.append(((root, shown), feed, member))
    names = _unique_names([placed for placed, _, _ in sources])
    files = (
        _source_file(path, name, feed, inner) for ((_, path), feed, inner), name in zip(sources, names, strict=True)
    )
    left_out = tuple(name for name, _, _ in ignored)
    where = tuple((path, member) for _, path, member in ignored)
    return Discovery(tuple(files), left_out, tuple(companions), tuple(tables), where)


def _has_stations(path: Path, feed: Feed | None, deployment: Deployment) -> bool:
    """Return whether a file without a description is a table of stations, and no table of readings."""
    is_text = path.suffix.lower() in (".csv", ".txt", ".tsv", ".dat", ".asc")
    return is_text and not deployment.declared and (feed is None or feed.format == GENERAL) and is_station_table(path)


def _members(path: Path) -> Sequence[Member | str | None]:
    """Return a compressed file's members, or its error; for another file None, which stands for itself."""
    try:
        members = list_members(path)
    except Unreadable as error:
        return [str(error)]
    return [None] if members is None else members


def _source_file(path: Path, name: str, feed: Feed, packed: Member | str | None) -> SourceFile:
    # Members of a compressed file have no path of their own on disk.
    file_path = next(candidate for candidate in (path, *path.parents) if candidate.is_file())
    status = file_path.stat()
    member = packed if isinstance(packed, Member) else None
    refused = packed if isinstance(packed, str) else ""
    return SourceFile(file_path, name, feed.name, status.st_size, status.st_mtime_ns, member=member, refused=refused)


def is_companion(path: Path, deployment: Deployment) -> bool:
    """Return whether a file is auxiliary by its name and location, not data."""
    if path.name not in COMPANIONS or any(feed.files == path.name for feed in deployment.feeds):
        return False
    folder = path.resolve().parent
    described = deployment.path is not None and deployment.path.resolve().parent == folder
    return described or (folder / FILE_NAME).is_file()


def _unique_names(placed: Sequence[tuple[Path, Path]]) -> list[str]:
    """Return a unique name for each (root, path): relative to the root, with parent folders as needed.

    Members of a compressed file that share a name are numbered.
    """
    alike: Counter[tuple[Path, Path]] = Counter()
    above = [0] * len(placed)
    number = []
    for pair in placed:
        alike[pair] += 1
        number.append(f" ({alike[pair]})" if alike[pair] > 1 else "")
    while True:
        named = zip(placed, above, number, strict=True)
        names = [_name(root, path, count) + suffix for (root, path), count, suffix in named]
        times = Counter(names)
        if len(times) == len(names) or max(above) > 4096:
            return names
        above = [count + (times[name] > 1) for name, count in zip(names, above, strict=True)]


def _name(root: Path, path: Path, above: int) -> str:
    folders = root.resolve().parts
    return Path(*folders[max(0, len(folders) - above) :], path.relative_to(root)).as_posix()


def _feed_of(path: Path, member: Member | None, deployment: Deployment) -> Feed | None:
    """Return a file's feed by name or, without a deployment file, by first bytes."""
    name = path.name if member is None else Path(member.name).name
    named = next((feed for feed in deployment.feeds if fnmatch.fnmatchcase(name, feed.files)), None)
    if deployment.declared:
        return named
    try:
        with open_member(path, member) as stream:
            recognised = recognise(plain_head(stream.read(HEAD_BYTES), None), name)
    except Unreadable:
        # The error is reported when the file is read.
        recognised = None
    by_format = {feed.format: feed for feed in deployment.feeds}
    return named if recognised is None else by_format.get(recognised[0], named)


def walk(paths: Sequence[Path], exclude: Path | None) -> Iterator[tuple[Path, Path]]:
    """Yield each file with the folder that its name is relative to."""
    excluded = exclude.resolve() if exclude else None
    for root in paths:
        if root.is_file():
            yield root.parent, root
        elif not root.is_dir():
            raise NotFound(f"no file or folder {root}; check the path")
        else:
            yield from ((root, path) for path in _walk_folder(root, excluded))


def _walk_folder(root: Path, excluded: Path | None) -> Iterator[Path]:
    for folder, folders, names in os.walk(root):
        folder_path = Path(folder)
        # Changed in place, which also determines the order of os.walk.
        folders[:] = sorted(f for f in folders if not f.startswith(".") and (folder_path / f).resolve() != excluded)
        yield from (folder_path / name for name in sorted(names) if not name.startswith("."))


def find_deployment(paths: Sequence[Path]) -> Path | None:
    """Return the deployment file in an ingested folder, or next to an ingested file.

    Raises
    ------
    InvalidDeployment
        There are several, or only in subfolders: one deployment does not apply to files of another.
    """
    folders = dict.fromkeys((path if path.is_dir() else path.parent).resolve() for path in paths)
    candidates = [folder / FILE_NAME for folder in folders if (folder / FILE_NAME).is_file()]
    if len(candidates) > 1:
        listed = ", ".join(map(str, candidates))
        raise InvalidDeployment(f"the files have several deployments: {listed}; ingest one folder after the other")
    if not candidates:
        deeper = sorted(path for folder in paths if folder.is_dir() for path in folder.rglob(FILE_NAME))
        if deeper:
            listed = ", ".join(map(str, deeper[:5]))
            raise InvalidDeployment(
                f"deployment files lie deeper than what is ingested: {listed}; name one folder, or --deployment"
            )
    return candidates[0] if candidates else None


def network_name(paths: Sequence[Path]) -> str:
    """Return the name of the network without a deployment file: that of the first folder."""
    first = paths[0] if paths else Path()
    return variable_name((first if first.is_dir() else first.parent).resolve().name)


def first_bytes(file: SourceFile, feed: Feed) -> bytes:
    """Return the first bytes of a file, decompressed and rewritten if needed: enough for its first lines.

    Raises
    ------
    Unreadable
        It cannot be decompressed.
    """
    with open_member(file.readable, file.member) as stream:
        head = read_first_lines(stream)
    return head if isinstance(FORMATS[feed.format], DocumentFormat) else plain_head(head, feed.options.text.encoding)


def read_first_lines(stream: IO[bytes]) -> bytes:
    """Read the first bytes of a file: enough for its first lines."""
    head = stream.read(HEAD_BYTES)
    # Headers with thousands of columns are longer.
    while head.count(b"\n") < 3 and len(head) < HEAD_MOST_BYTES and (more := stream.read(HEAD_BYTES)):
        head += more
    return head


def decompress_to(file: SourceFile, feed: Feed, scratch: Path) -> SourceFile:
    """Decompress a file, or rewrite it as lines, into a new folder in `scratch`.

    Raises
    ------
    Unreadable
        It cannot be decompressed.
    """
    if file.refused:
        raise Unreadable(file.refused)
    if file.member is not None:
        path = unpack_member(file.path, file.member, Path(tempfile.mkdtemp(dir=scratch)))
        status = path.stat()
        file = replace(file, path=path, size_bytes=status.st_size, changed_ns=status.st_mtime_ns, member=None)
    encoding = feed.options.text.encoding
    if isinstance(FORMATS[feed.format], DocumentFormat):
        return file
    with file.path.open("rb") as stream:
        head = stream.read(HEAD_BYTES)
    if has_lines(head, encoding):
        return file
    return replace(
        file, text=rewrite_text(file.path, file.size_bytes, head, encoding, Path(tempfile.mkdtemp(dir=scratch)))
    )


def layout_of(file: SourceFile, feed: Feed) -> Layout:
    """Read the beginning of a file and return its layout.

    Raises
    ------
    Unreadable
        It is empty or binary, or does not have the feed's format.
    """
    form = FORMATS[feed.format]
    head = first_bytes(file, feed)
    if not head.strip() and file.size_bytes <= HEAD_BYTES:
        raise Unreadable(f"empty file: {file.size_bytes} bytes")
    if isinstance(form, DocumentFormat):
        return form.layout(file.path, feed.options)
    return layout_of_lines(head, file.path.name, feed, form)


def layout_of_lines(head: bytes, file: str, feed: Feed, form: Format) -> Layout:
    """Return the layout from the first lines of a file; errors as in `layout_of`."""
    if (offset := head[:8192].find(b"\0")) >= 0:
        # NUL bytes further down are left by loggers at power failures; they cost only their lines.
        raise Unreadable(f"{BINARY}: a NUL byte at byte {offset}")
    return form.layout(head, file, feed.options)


def cut(file: SourceFile, file_index: int, layout: Layout, form: str, *, chunk_bytes: int, first: int) -> list[Chunk]:
    """Split a file into chunks of about `chunk_bytes` [bytes], at line ends or as its format defines.

    Chunks are numbered from `first`.

    Raises
    ------
    Unreadable
        A line has no end.
    """
    document = FORMATS[form]
    if isinstance(document, DocumentFormat):
        bounds = document.cut(file.path, layout, chunk_bytes)
    else:
        bounds = _line_bounds(file, layout, document, chunk_bytes)
    pairs = list(zip(bounds[:-1], bounds[1:], strict=True))
    return [
        Chunk(first + n, file_index, str(file.readable), form, layout, start, stop, n == len(pairs) - 1)
        for n, (start, stop) in enumerate(pairs)
    ]


def _line_bounds(file: SourceFile, layout: Layout, form: Format, chunk_bytes: int) -> list[int]:
    bounds, size = [layout.data_start], file.readable.stat().st_size if file.text else file.size_bytes
    with file.readable.open("rb") as stream:
        while bounds[-1] + chunk_bytes < size:
            bound = _line_end(stream, bounds[-1] + chunk_bytes, size)
            # Repeated local times are resolved by the order of rows, so they must be in one chunk.
            while bound < size and _within_repeated_hour(stream, bound, layout, form):
                bound = _line_end(stream, min(size, bound + HEAD_BYTES), size)
            bounds.append(bound)
    return bounds if bounds[-1] >= size and len(bounds) > 1 else [*bounds, size]


def _within_repeated_hour(stream: BinaryIO, offset: int, layout: Layout, form: Format) -> bool:
    """Return whether rows at an offset have repeated local times."""
    zone = layout.options.timezone
    if not changes(zone):
        return False
    stream.seek(offset)
    block = stream.read(HEAD_BYTES)
    as_shown = replace(layout, options=replace(layout.options, timezone="UTC"))
    rows = form.parse(block[: block.rfind(b"\n") + 1], as_shown, last=False)
    return bool(find_repeated(rows.time_ns, zone).any())


def _line_end(stream: BinaryIO, offset: int, size: int) -> int:
    stream.seek(offset)
    block = stream.read(min(LINE_MOST_BYTES, size - offset))
    end = block.find(b"\n")
    if end < 0:
        if offset + len(block) == size:
            return size
        raise Unreadable(f"{BINARY}: no end of line within {LINE_MOST_BYTES} bytes from byte {offset}")
    return offset + end + 1


def parse(chunk: Chunk) -> Parsed:
    """Parse a chunk by its format; an unreadable piece of a document becomes one rejected row."""
    form, path = FORMATS[chunk.format], Path(chunk.path)
    if isinstance(form, DocumentFormat):
        try:
            return form.parse(path, chunk.layout, chunk.start, chunk.stop)
        except Unreadable as error:
            # A damaged piece costs only its rows.
            nothing = np.empty(0, np.int64)
            return Parsed((), nothing.astype(np.int32), nothing, {}, (BadRow(1, "", "", str(error)),), 1)
    return form.parse(read(chunk), chunk.layout, last=chunk.last)


def read(chunk: Chunk) -> bytes:
    """Return the bytes of a chunk of lines."""
    with Path(chunk.path).open("rb") as stream:
        stream.seek(chunk.start)
        return stream.read(chunk.stop - chunk.start)


def has_changed(file: SourceFile) -> bool:
    """Return whether the part of a file that was read has changed; growth does not count."""
    try:
        status = file.path.stat()
    except FileNotFoundError:
        return True
    if (status.st_size, status.st_mtime_ns) == (file.size_bytes, file.changed_ns):
        return False
    return hash_of(file.path, file.size_bytes) != file.sha256
