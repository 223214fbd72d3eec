"""Replay of recorded files: their lines enter the spool in the order in which they arrived, with their own clock.

A stream of them is that of the network at that time: slices close, and standing queries are evaluated, as they would
have been. When a line arrived is in a column of its file (`arrival_column`) or in the feed's table of arrivals; a line
without an arrival, such as one that cannot be read, follows the line above it.
"""

import mmap
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hypergrid.archive.disk.raw_copies import hash_of
from hypergrid.core.errors import InvalidDeployment, NotFound
from hypergrid.core.times import SECOND_NS, format_instant
from hypergrid.core.tokens import token
from ingest.deployment.arrival_table import Arrivals, read_arrivals
from ingest.deployment.deployment_file import Deployment, Feed
from ingest.formats import FORMATS, DocumentFormat, Unreadable
from ingest.sources.folder import CHUNK_BYTES, Chunk, SourceFile, cut, decompress_to, discover, layout_of, parse, read
from ingest.sources.spool import HEADER, MESSAGE, REFUSED, TICK, SpoolRecord

BATCH_LINES: Final = 10_000
"""Number of lines that are appended to the spool at once."""
_TICKS_EACH: Final = 4
"""Clock ticks in a slice."""
_MAPS_AT_ONCE: Final = 64
"""Files that are mapped at once, each of which holds a descriptor; of these a process may have only some hundred."""


def check_replayable(deployment: Deployment) -> None:
    """Raise `InvalidDeployment` unless each feed of files says when its lines arrived."""
    for feed in deployment.feeds:
        if not feed.files:
            continue
        if isinstance(FORMATS[feed.format], DocumentFormat):
            raise InvalidDeployment(
                f"feed {feed.name!r} cannot be replayed by arrival: only formats of lines can; got {feed.format!r}; "
                "leave --by-arrival away"
            )
        if not feed.options.text.arrival_column and feed.arrivals is None:
            raise InvalidDeployment(
                f"feed {feed.name!r} cannot be replayed by arrival: it needs `arrival_column`, the column that tells "
                "when a line arrived, or `arrivals`, a table of them; got neither"
            )


def count_lines(record: SpoolRecord) -> int:
    """Return the number of lines of a file in a record."""
    is_line = record.kind == MESSAGE and record.position > 0
    return record.payload.count(b"\n") + (not record.payload.endswith(b"\n")) if is_line else 0


@dataclass(frozen=True, eq=False)
class _RecordedFile:
    """A file of lines, and when each of them arrived."""

    name: str
    feed: str
    path: Path
    header: bytes
    lines_before: int
    starts: NDArray[np.int64]
    """Offset of each line, and of the end of the last one [bytes], shape (lines + 1,)."""
    arrival_ns: NDArray[np.int64]
    """[ns since 1970 UTC], shape (lines,)."""


class ArrivalReplay:
    """All lines of a folder's files in the order of their arrival.

    Parameters
    ----------
    exclude
        Subfolder to skip: the archive.
    scratch
        Folder for what is unpacked.

    Raises
    ------
    InvalidDeployment
        A feed does not say when its lines arrived.
    NotFound
        No file of the folder has a line.
    """

    def __init__(self, folder: Path, deployment: Deployment, *, exclude: Path | None, scratch: Path) -> None:
        check_replayable(deployment)
        self._map = lru_cache(_MAPS_AT_ONCE)(_map_file)
        self._tick_ns = round(deployment.slice_s * SECOND_NS) // _TICKS_EACH
        self._files: list[_RecordedFile] = []
        self._refused: list[tuple[SourceFile, str]] = []
        tables = {feed.name: _read_table(feed, deployment) for feed in deployment.feeds if feed.files}
        hashes = []
        for file in discover([folder], deployment, exclude=exclude).files:
            hashes.append((file.name, hash_of(file.path, file.size_bytes)))
            try:
                self._files += _read_file(file, deployment.feeds_by_name[file.feed], tables[file.feed], scratch)
            except Unreadable as error:
                self._refused.append((file, str(error)))
        if not self._files:
            raise NotFound(f"nothing to replay: no file in {folder} has a line that a feed reads; check the patterns")
        number = np.repeat(np.arange(len(self._files)), [len(file.arrival_ns) for file in self._files])
        line = np.concatenate([np.arange(len(file.arrival_ns)) for file in self._files])
        arrival_ns = np.concatenate([file.arrival_ns for file in self._files])
        order = np.lexsort((line, number, arrival_ns))
        self._number, self._line, self._arrival_ns = number[order], line[order], arrival_ns[order]
        self.token = token(hashes, self._number, self._line, self._arrival_ns)
        """Digest of the files and of the order of their lines, which depends on the description too."""

    def __len__(self) -> int:
        return len(self._line)

    def describe(self, after: int) -> str:
        """Describe for the user what is left of it after a number of lines."""
        if after >= len(self):
            return f"all {len(self):,} lines of {len(self._files)} files were replayed before"
        first, last = (format_instant(int(self._arrival_ns[at])) for at in (after, -1))
        left = f"{len(self) - after:,} of {len(self):,} lines" if after else f"{len(self):,} lines"
        return f"{left} of {len(self._files)} files, which arrived from {first} to {last}, are replayed"

    def batches(self, after: int) -> Iterator[tuple[list[SpoolRecord], int]]:
        """Yield the records after a number of lines, in batches, each with its number of lines."""
        if not after and self._refused:
            start_ns = int(self._arrival_ns[0])
            yield (
                [
                    SpoolRecord(start_ns, file.feed, file.name, f"{why}\n{file.size_bytes} bytes".encode(), 0, REFUSED)
                    for file, why in self._refused
                ],
                0,
            )
        ticked_ns = int(self._arrival_ns[after - 1]) if after else None
        for first in range(after, len(self), BATCH_LINES):
            records: list[SpoolRecord] = []
            stop = min(first + BATCH_LINES, len(self))
            for start, end in self._runs(first, stop):
                arrival_ns = int(self._arrival_ns[start])
                if ticked_ns is None or arrival_ns - ticked_ns >= self._tick_ns:
                    records.append(SpoolRecord(arrival_ns, kind=TICK))
                    ticked_ns = arrival_ns
                records += self._records_of(start, end)
            yield records, stop - first

    def _runs(self, first: int, stop: int) -> Iterator[tuple[int, int]]:
        """Yield the ranges of lines that arrived together and follow one another in a file."""
        number, line, arrival_ns = (part[first:stop] for part in (self._number, self._line, self._arrival_ns))
        is_new = (np.diff(number) != 0) | (np.diff(line) != 1) | (np.diff(arrival_ns) != 0)
        edges = first + np.r_[0, np.flatnonzero(is_new) + 1, len(line)]
        yield from zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True)

    def _records_of(self, start: int, end: int) -> list[SpoolRecord]:
        file, line = self._files[self._number[start]], int(self._line[start])
        payload = self._map(file.path)[file.starts[line] : file.starts[line + end - start]]
        arrival_ns = int(self._arrival_ns[start])
        above = [SpoolRecord(arrival_ns, file.feed, file.name, file.header, 0, HEADER)] if file.header else []
        return [*above, SpoolRecord(arrival_ns, file.feed, file.name, payload, file.lines_before + line + 1)]


def _read_table(feed: Feed, deployment: Deployment) -> Arrivals:
    if feed.arrivals is None or deployment.path is None:
        return Arrivals({})
    return read_arrivals(deployment.path.parent / feed.arrivals)


def _read_file(file: SourceFile, feed: Feed, table: Arrivals, scratch: Path) -> list[_RecordedFile]:
    """Return a file with the arrivals of its lines; none if it has no line below its header.

    Raises
    ------
    Unreadable
        It has another format, or no line of it has an arrival.
    """
    plain = decompress_to(file, feed, Path(tempfile.mkdtemp(dir=scratch)))
    if plain.text is not None:
        raise Unreadable("no lines: text of wide characters cannot be replayed by arrival")
    layout = layout_of(plain, feed)
    chunks = cut(plain, 0, layout, feed.format, chunk_bytes=CHUNK_BYTES, first=0)
    starts, arrivals = [np.empty(0, np.int64)], [np.empty(0, np.int64)]
    for chunk in chunks:
        ends = chunk.start + np.flatnonzero(np.frombuffer(read(chunk), np.uint8) == ord("\n")) + 1
        begins = np.r_[chunk.start, ends]
        starts.append(begins[begins < chunk.stop])
        arrivals.append(_line_arrivals(chunk, len(starts[-1]), table))
    arrival_ns = np.concatenate(arrivals)
    if not len(arrival_ns):
        return []
    known = np.flatnonzero(arrival_ns)
    if not len(known):
        raise Unreadable("no arrival: of none of its lines is it known when it arrived")
    # A line without one follows the line above; those above the first one come with it.
    above = np.maximum(np.searchsorted(known, np.arange(len(arrival_ns)), side="right") - 1, 0)
    with plain.path.open("rb") as stream:
        header = stream.read(layout.data_start)
    return [
        _RecordedFile(
            file.name, feed.name, plain.path, header, layout.lines_before,
            np.append(np.concatenate(starts), chunks[-1].stop), arrival_ns[known[above]],
        )
    ]  # fmt: skip


def _map_file(path: Path) -> mmap.mmap:
    with path.open("rb") as stream:
        return mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ)


def _line_arrivals(chunk: Chunk, lines: int, table: Arrivals) -> NDArray[np.int64]:
    """Return when each line of a chunk arrived [ns since 1970 UTC], 0 where unknown, shape (lines,)."""
    parsed = parse(chunk)
    arrival_ns = np.zeros(lines, np.int64)
    if parsed.line is None or not len(parsed.code):
        return arrival_ns
    known_ns = table.arrival_times(parsed.stations, parsed.code, parsed.time_ns, otherwise_ns=0)
    if parsed.arrival_ns is not None:
        # The table takes precedence, as in an ingest.
        known_ns = np.where(known_ns > 0, known_ns, parsed.arrival_ns)
    np.maximum.at(arrival_ns, parsed.line - 1, known_ns)
    return arrival_ns
