"""Files and folders: which file belongs to which feed, and how a file is cut into chunks of whole lines."""

import fnmatch
import hashlib
import os
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO, Final

import numpy as np

from hypergrid.core.errors import InvalidDeployment, NotFound
from ingest.deployment.deployment_file import FILE_NAME, Deployment, Feed
from ingest.formats import FORMATS, BadRow, DocumentFormat, Format, Layout, Parsed, Unreadable, recognise
from ingest.formats.encoding import has_lines
from ingest.formats.timestamps import changes, find_repeated
from ingest.sources.compressed import Member, list_members, open_member, plain_head, rewrite_text, unpack_member

HEAD_BYTES: Final = 1 << 16
"""What is read of a file to tell its form [bytes]."""
CHUNK_BYTES: Final = 8 << 20
"""Nominal length of a chunk [bytes]; parsing one takes some ten times as much memory."""
HEAD_MOST_BYTES: Final = 1 << 20
"""What is read at most where the first lines are long [bytes]."""
LINE_MOST_BYTES: Final = 1 << 20
"""No line of a station file is longer [bytes]."""
COMPANIONS: Final = ("arrivals.csv", "stations.csv", "faults.csv")
"""Names of files that, beside a deployment file, go with the data and are none."""
_LINES_LEAST: Final = 3
_FOLDERS_MOST: Final = 4096
BINARY: Final = "binary"
EMPTY: Final = "empty file"


@dataclass(frozen=True)
class SourceFile:
    """A file that a feed reads."""

    path: Path
    name: str
    """Path from the folder that was ingested, with folders above it where two files of a run are alike; what rejects
    and the ledger of files name."""
    feed: str
    size_bytes: int
    changed_ns: int
    """Its time of modification when it was found [ns since 1970 UTC]."""
    sha256: str = ""
    """Hash of its content; empty until it was read."""
    member: Member | None = None
    """It is packed in the file at `path`, until `decompress_to` has unpacked it."""
    refused: str = ""
    """Why it cannot be read at all, where that is known already."""
    text: Path | None = None
    """A copy that can be cut at ends of lines, where it cannot itself."""

    @property
    def readable(self) -> Path:
        """What is to be parsed."""
        return self.text or self.path


@dataclass(frozen=True)
class Discovery:
    """What lies at some paths."""

    files: tuple[SourceFile, ...]
    ignored: tuple[str, ...]
    """Names of files that no feed reads."""
    companions: tuple[str, ...] = ()
    """Names of files that a feed would read, but that by name and place go with the data."""


@dataclass(frozen=True)
class Chunk:
    """Whole lines of a file, or a piece of a document, parsed in one go; can be sent to another process."""

    number: int
    """Place among all chunks of a run, in the order of files and lines."""
    file: int
    """Place of its file among the files of the run."""
    path: str
    format: str
    layout: Layout
    start: int
    """First byte, or the first of a document's own count."""
    stop: int
    """First byte after it."""
    last: bool
    """It ends where the file ends."""


def discover(paths: Sequence[Path], deployment: Deployment, *, exclude: Path | None = None) -> Discovery:
    """Return the files of the paths (folders with all that is in them) that a feed reads, by path and name.

    Left out without a word are hidden files and folders, the folder `exclude`, deployment files, and tables of arrivals
    that the deployment names. `COMPANIONS` are left out where a deployment file lies beside them, and told if a feed
    would read them; a file that is itself one of the paths is always data.

    Raises
    ------
    NotFound
        A path does not exist.
    """
    placed: list[tuple[Path, Path]] = []
    packed: list[Member | str | None] = []
    feeds: list[Feed] = []
    ignored: list[str] = []
    companions: list[str] = []
    given = {path.resolve() for path in paths if path.is_file()}
    arrivals = arrival_tables(deployment)
    seen: set[Path] = set()
    for root, path in walk(paths, exclude):
        if (real := path.resolve()) in seen:
            continue
        seen.add(real)
        if path.name == FILE_NAME or (real not in given and real in arrivals):
            continue
        name = path.relative_to(root).as_posix()
        inner = _members(path)
        if inner is not None:
            for member in inner:
                shown = path / member.name if isinstance(member, Member) else path
                feed = deployment.feeds[0] if isinstance(member, str) else _feed_of(path, member, deployment)
                if feed is None:
                    ignored.append(shown.relative_to(root).as_posix())
                else:
                    placed.append((root, path if path.suffix.lower() == ".gz" else shown))
                    packed.append(member)
                    feeds.append(feed)
            continue
        feed = _feed_of(path, None, deployment)
        if real not in given and is_companion(path, deployment):
            companions += [name] if feed else []
        elif feed is None:
            ignored.append(name)
        else:
            placed.append((root, path))
            packed.append(None)
            feeds.append(feed)
    files = (
        _source_file(path, name, feed, inner)
        for (_, path), name, feed, inner in zip(placed, _unique_names(placed), feeds, packed, strict=True)
    )
    return Discovery(tuple(files), tuple(ignored), tuple(companions))


def _members(path: Path) -> list[Member] | list[str] | None:
    """Return what is packed in a file, or why that cannot be told; None where it is not packed."""
    try:
        return list_members(path)
    except Unreadable as error:
        return [str(error)]


def _source_file(path: Path, name: str, feed: Feed, packed: Member | str | None) -> SourceFile:
    # Files within another have no place of their own on the disk.
    file_path = next(candidate for candidate in (path, *path.parents) if candidate.is_file())
    status = file_path.stat()
    member = packed if isinstance(packed, Member) else None
    refused = packed if isinstance(packed, str) else ""
    return SourceFile(file_path, name, feed.name, status.st_size, status.st_mtime_ns, member=member, refused=refused)


def arrival_tables(deployment: Deployment) -> set[Path]:
    """Return the tables of arrivals that a deployment names."""
    path, names = deployment.path, [feed.arrivals for feed in deployment.feeds if feed.arrivals is not None]
    return set() if path is None else {(path.parent / name).resolve() for name in names}


def is_companion(path: Path, deployment: Deployment) -> bool:
    """Return whether a file by its name and place goes with the data, and is none."""
    if path.name not in COMPANIONS or any(feed.files == path.name for feed in deployment.feeds):
        return False
    folder = path.resolve().parent
    described = deployment.path is not None and deployment.path.resolve().parent == folder
    return described or (folder / FILE_NAME).is_file()


def _unique_names(placed: Sequence[tuple[Path, Path]]) -> list[str]:
    """Return a name for each (root, path), no two alike: from the root, with as many folders above it as it takes.

    What a packed file has several times under one name is numbered.
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
        if len(times) == len(names) or max(above) > _FOLDERS_MOST:
            return names
        above = [count + (times[name] > 1) for name, count in zip(names, above, strict=True)]


def _name(root: Path, path: Path, above: int) -> str:
    folders = root.resolve().parts
    return Path(*folders[max(0, len(folders) - above) :], path.relative_to(root)).as_posix()


def _feed_of(path: Path, member: Member | None, deployment: Deployment) -> Feed | None:
    """Return the feed of a file: by its name, or without a deployment file by what its first bytes are like."""
    name = path.name if member is None else Path(member.name).name
    named = next((feed for feed in deployment.feeds if fnmatch.fnmatchcase(name, feed.files)), None)
    if deployment.declared:
        return named
    try:
        with open_member(path, member) as stream:
            recognised = recognise(plain_head(stream.read(HEAD_BYTES), None), name)
    except Unreadable:
        # Why is told when it is read.
        recognised = None
    by_format = {feed.format: feed for feed in deployment.feeds}
    return named if recognised is None else by_format.get(recognised[0], named)


def walk(paths: Sequence[Path], exclude: Path | None) -> Iterator[tuple[Path, Path]]:
    """Yield each file with the folder that its name is told from."""
    excluded = exclude.resolve() if exclude else None
    for root in paths:
        if root.is_file():
            yield root.parent, root
        elif not root.is_dir():
            message = f"no file or folder {root}; check the path"
            raise NotFound(message)
        else:
            yield from ((root, path) for path in _walk_folder(root, excluded))


def _walk_folder(root: Path, excluded: Path | None) -> Iterator[Path]:
    for folder, folders, names in os.walk(root):
        folder_path = Path(folder)
        folders[:] = sorted(f for f in folders if not f.startswith(".") and (folder_path / f).resolve() != excluded)
        yield from (folder_path / name for name in sorted(names) if not name.startswith("."))


def find_deployment(paths: Sequence[Path]) -> Path | None:
    """Return the deployment file that lies in an ingested folder, or beside an ingested file.

    Raises
    ------
    InvalidDeployment
        There are several, or they lie deeper: one cannot speak for the files of another.
    """
    folders = dict.fromkeys((path if path.is_dir() else path.parent).resolve() for path in paths)
    candidates = [folder / FILE_NAME for folder in folders if (folder / FILE_NAME).is_file()]
    if len(candidates) > 1:
        listed = ", ".join(map(str, candidates))
        message = f"the files have several deployments: {listed}; ingest one folder after the other"
        raise InvalidDeployment(message)
    if not candidates:
        deeper = sorted(path for folder in paths if folder.is_dir() for path in folder.rglob(FILE_NAME))
        if deeper:
            listed = ", ".join(map(str, deeper[:5]))
            message = f"deployment files lie deeper than what is ingested: {listed}; name one folder, or --deployment"
            raise InvalidDeployment(message)
    return candidates[0] if candidates else None


def first_bytes(file: SourceFile, feed: Feed) -> bytes:
    """Return the first bytes of a file, unpacked and rewritten where needed: enough for its first lines.

    Raises
    ------
    Unreadable
        It cannot be unpacked.
    """
    with open_member(file.readable, file.member) as stream:
        head = stream.read(HEAD_BYTES)
        # A header of thousands of columns is longer.
        while head.count(b"\n") < _LINES_LEAST and len(head) < HEAD_MOST_BYTES and (more := stream.read(HEAD_BYTES)):
            head += more
    return head if isinstance(FORMATS[feed.format], DocumentFormat) else plain_head(head, feed.options.text.encoding)


def decompress_to(file: SourceFile, feed: Feed, scratch: Path) -> SourceFile:
    """Return a file that can be read at any place: unpacked, and as text with lines, into folders of its own.

    Raises
    ------
    Unreadable
        It cannot be unpacked.
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
    """Read the beginning of a file.

    Raises
    ------
    Unreadable
        It is empty or binary, or has no such form as the feed says.
    """
    form = FORMATS[feed.format]
    head = first_bytes(file, feed)
    if not head.strip():
        if file.size_bytes <= HEAD_BYTES:
            message = f"{EMPTY}: {file.size_bytes} bytes"
            raise Unreadable(message)
    if isinstance(form, DocumentFormat):
        return form.layout(file.path, feed.options)
    return layout_of_lines(head, file.path.name, feed, form)


def layout_of_lines(head: bytes, file: str, feed: Feed, form: Format) -> Layout:
    """Read the first lines of a file; errors as in `layout_of`."""
    if (offset := head[:8192].find(b"\0")) >= 0:
        # Later NUL bytes are what a logger leaves when its power fails; they cost their lines only.
        message = f"{BINARY}: a NUL byte at byte {offset}"
        raise Unreadable(message)
    return form.layout(head, file, feed.options)


def cut(file: SourceFile, file_index: int, layout: Layout, form: str, *, chunk_bytes: int, first: int) -> list[Chunk]:
    """Cut a file into chunks of about `chunk_bytes` [bytes] at the ends of lines, or as its format says.

    They are numbered from `first`.

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
            while bound < size and _within_repeated_hour(stream, bound, layout, form):
                bound = _line_end(stream, min(size, bound + HEAD_BYTES), size)
            bounds.append(bound)
    return bounds if bounds[-1] >= size and len(bounds) > 1 else [*bounds, size]


def _within_repeated_hour(stream: BinaryIO, offset: int, layout: Layout, form: Format) -> bool:
    """Return whether rows at a place have times that come twice, which only all of them together tell apart."""
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
        message = f"{BINARY}: no end of line within {LINE_MOST_BYTES} bytes from byte {offset}"
        raise Unreadable(message)
    return offset + end + 1


def parse(chunk: Chunk) -> Parsed:
    """Parse a chunk by its format."""
    form, path = FORMATS[chunk.format], Path(chunk.path)
    if isinstance(form, DocumentFormat):
        try:
            return form.parse(path, chunk.layout, chunk.start, chunk.stop)
        except Unreadable as error:
            # A damaged piece costs its rows only.
            nothing = np.empty(0, np.int64)
            return Parsed((), nothing.astype(np.int32), nothing, {}, (BadRow(1, "", "", str(error)),), 1)
    return form.parse(read(chunk), chunk.layout, last=chunk.last)


def read(chunk: Chunk) -> bytes:
    """Return the bytes of a chunk of lines."""
    with Path(chunk.path).open("rb") as stream:
        stream.seek(chunk.start)
        return stream.read(chunk.stop - chunk.start)


def has_changed(file: SourceFile) -> bool:
    """Tell whether the part of a file that was read is another by now; that it grew does not matter."""
    try:
        status = file.path.stat()
    except FileNotFoundError:
        return True
    if (status.st_size, status.st_mtime_ns) == (file.size_bytes, file.changed_ns):
        return False
    digest = hashlib.sha256()
    left = file.size_bytes
    with file.path.open("rb") as stream:
        while left and (block := stream.read(min(left, CHUNK_BYTES))):
            digest.update(block)
            left -= len(block)
    return digest.hexdigest() != file.sha256
