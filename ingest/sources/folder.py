"""Files and folders: which file belongs to which feed, and how a file is cut into chunks of whole lines."""

import fnmatch
import hashlib
import os
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

import numpy as np

from hypergrid.errors import InvalidDeployment, NotFound
from ingest.mapping import FILE_NAME, Deployment, Feed
from ingest.parsers import FORMATS, BadRow, DocumentFormat, Layout, Parsed, Unreadable, recognise

HEAD_BYTES: Final = 1 << 16
"""What is read of a file to tell its form [bytes]."""
CHUNK_BYTES: Final = 8 << 20
"""Nominal length of a chunk [bytes]; parsing one takes some ten times as much memory."""
LINE_MOST_BYTES: Final = 1 << 20
"""No line of a station file is longer [bytes]."""
COMPANIONS: Final = ("arrivals.csv", "stations.csv", "faults.csv")
"""Names of files that, beside a deployment file, go with the data and are none."""
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


@dataclass(frozen=True)
class Found:
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


def discover(paths: Sequence[Path], deployment: Deployment, *, exclude: Path | None = None) -> Found:
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
    feeds: list[Feed] = []
    ignored: list[str] = []
    companions: list[str] = []
    given = {path.resolve() for path in paths if path.is_file()}
    arrivals = _arrivals(deployment)
    seen: set[Path] = set()
    for root, path in _walk(paths, exclude):
        if (real := path.resolve()) in seen:
            continue
        seen.add(real)
        if path.name == FILE_NAME or (real not in given and real in arrivals):
            continue
        name = path.relative_to(root).as_posix()
        feed = _feed_of(path, deployment)
        if real not in given and _is_companion(path, deployment):
            companions += [name] if feed else []
        elif feed is None:
            ignored.append(name)
        else:
            placed.append((root, path))
            feeds.append(feed)
    status = [path.stat() for _, path in placed]
    files = (
        SourceFile(path, name, feed.name, s.st_size, s.st_mtime_ns)
        for (_, path), name, feed, s in zip(placed, _told_apart(placed), feeds, status, strict=True)
    )
    return Found(tuple(files), tuple(ignored), tuple(companions))


def _arrivals(deployment: Deployment) -> set[Path]:
    path, names = deployment.path, [feed.arrivals for feed in deployment.feeds if feed.arrivals is not None]
    return set() if path is None else {(path.parent / name).resolve() for name in names}


def _is_companion(path: Path, deployment: Deployment) -> bool:
    if path.name not in COMPANIONS or any(feed.files == path.name for feed in deployment.feeds):
        return False
    folder = path.resolve().parent
    described = deployment.path is not None and deployment.path.resolve().parent == folder
    return described or (folder / FILE_NAME).is_file()


def _told_apart(placed: Sequence[tuple[Path, Path]]) -> list[str]:
    """Return a name for each (root, path), no two alike: from the root, with as many folders above it as it takes."""
    above = [0] * len(placed)
    while True:
        names = [_name(root, path, count) for (root, path), count in zip(placed, above, strict=True)]
        times = Counter(names)
        if len(times) == len(names):
            return names
        above = [count + (times[name] > 1) for name, count in zip(names, above, strict=True)]


def _name(root: Path, path: Path, above: int) -> str:
    folders = root.resolve().parts
    return Path(*folders[max(0, len(folders) - above) :], path.relative_to(root)).as_posix()


def _feed_of(path: Path, deployment: Deployment) -> Feed | None:
    """Return the feed of a file: by its name, or without a deployment file by what its first bytes are like."""
    named = next((feed for feed in deployment.feeds if fnmatch.fnmatchcase(path.name, feed.files)), None)
    if deployment.declared:
        return named
    with path.open("rb") as stream:
        recognised = recognise(stream.read(HEAD_BYTES), path.name)
    by_format = {feed.format: feed for feed in deployment.feeds}
    return named if recognised is None else by_format.get(recognised[0], named)


def _walk(paths: Sequence[Path], exclude: Path | None) -> Iterator[tuple[Path, Path]]:
    """Yield each file with the folder that its name is told from."""
    apart = exclude.resolve() if exclude else None
    for root in paths:
        if root.is_file():
            yield root.parent, root
        elif not root.is_dir():
            message = f"no file or folder {root}; check the path"
            raise NotFound(message)
        else:
            for folder, folders, names in os.walk(root):
                here = Path(folder)
                folders[:] = sorted(f for f in folders if not f.startswith(".") and (here / f).resolve() != apart)
                for name in sorted(names):
                    if not name.startswith("."):
                        yield root, here / name


def find_deployment(paths: Sequence[Path]) -> Path | None:
    """Return the deployment file that lies in an ingested folder, or beside an ingested file.

    Raises
    ------
    InvalidDeployment
        There are several, or they lie deeper: one cannot speak for the files of another.
    """
    folders = dict.fromkeys((path if path.is_dir() else path.parent).resolve() for path in paths)
    found = [folder / FILE_NAME for folder in folders if (folder / FILE_NAME).is_file()]
    if len(found) > 1:
        listed = ", ".join(map(str, found))
        message = f"the files have several deployments: {listed}; ingest one folder after the other"
        raise InvalidDeployment(message)
    if not found:
        deeper = sorted(path for folder in paths if folder.is_dir() for path in folder.rglob(FILE_NAME))
        if deeper:
            listed = ", ".join(map(str, deeper[:5]))
            message = f"deployment files lie deeper than what is ingested: {listed}; name one folder, or --deployment"
            raise InvalidDeployment(message)
    return found[0] if found else None


def layout_of(file: SourceFile, feed: Feed) -> Layout:
    """Read the beginning of a file.

    Raises
    ------
    Unreadable
        It is empty or binary, or has no such form as the feed says.
    """
    form = FORMATS[feed.format]
    with file.path.open("rb") as stream:
        head = stream.read(HEAD_BYTES)
    if not head.strip():
        if file.size_bytes <= HEAD_BYTES:
            message = f"{EMPTY}: {file.size_bytes} bytes"
            raise Unreadable(message)
    if isinstance(form, DocumentFormat):
        return form.layout(file.path, feed.options)
    if (place := head[:8192].find(b"\0")) >= 0:
        # Later NUL bytes are what a logger leaves when its power fails; they cost their lines only.
        message = f"{BINARY}: a NUL byte at byte {place}"
        raise Unreadable(message)
    return form.layout(head, file.path.name, feed.options)


def cut(file: SourceFile, place: int, layout: Layout, form: str, *, chunk_bytes: int, first: int) -> list[Chunk]:
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
        bounds = _line_bounds(file, layout, chunk_bytes)
    pairs = list(zip(bounds[:-1], bounds[1:], strict=True))
    return [
        Chunk(first + n, place, str(file.path), form, layout, start, stop, n == len(pairs) - 1)
        for n, (start, stop) in enumerate(pairs)
    ]


def _line_bounds(file: SourceFile, layout: Layout, chunk_bytes: int) -> list[int]:
    bounds = [layout.data_start]
    with file.path.open("rb") as stream:
        while bounds[-1] + chunk_bytes < file.size_bytes:
            bounds.append(_line_end(stream, bounds[-1] + chunk_bytes, file.size_bytes))
    return bounds if bounds[-1] >= file.size_bytes and len(bounds) > 1 else [*bounds, file.size_bytes]


def _line_end(stream: BinaryIO, place: int, size: int) -> int:
    stream.seek(place)
    block = stream.read(min(LINE_MOST_BYTES, size - place))
    end = block.find(b"\n")
    if end < 0:
        if place + len(block) == size:
            return size
        message = f"{BINARY}: no end of line within {LINE_MOST_BYTES} bytes from byte {place}"
        raise Unreadable(message)
    return place + end + 1


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
