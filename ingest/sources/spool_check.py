"""Whether the segments of a spool hold what was written: the records that cannot be read any more, by segment."""

import zlib
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from ingest.sources.spool import MARK_FILE, frames_in, mapped, marked, segments


@dataclass(frozen=True)
class DamagedSegment:
    """Records of a segment that cannot be read any more."""

    path: Path
    offset: int
    """Where the damage begins [bytes]."""
    first: int
    """The first record of them; a frame is damaged as a whole, as its checksum does not tell which record is."""
    last: int | None
    """The last; None: nothing tells how far the segment went."""


def has_damaged_mark(folder: Path) -> bool:
    """Return whether nothing tells any more up to which record the spool was on the disk."""
    return bool(segments(folder)) and (folder / MARK_FILE).exists() and marked(folder) is None


def damaged_segments(folder: Path, *, upto: int = 0) -> Iterator[DamagedSegment]:
    """Yield what of a spool cannot be read; segments that are retired meanwhile are passed over.

    Parameters
    ----------
    upto
        Up to this record the spool is known to have been on the disk, whatever its own mark tells; 0: not known.
    """
    # Read before the segments: what is written meanwhile lies behind it.
    promised = marked(folder)
    known = segments(folder)
    ends: list[int | None] = [first - 1 for first, _ in known[1:]]
    last = None if promised is None else max(promised, upto)
    for (first, path), end in zip(known, [*ends, last], strict=True):
        with suppress(FileNotFoundError):
            yield from _damaged(path, first, end)


def _damaged(path: Path, first: int, end: int | None) -> Iterator[DamagedSegment]:
    """Yield what of a segment cannot be read up to a record; None: all of it is to be there."""
    buffer, reached, offset = mapped(path), first - 1, 0
    for frame in frames_in(buffer):
        if frame.first != reached + 1 or (end is not None and reached >= end):
            break
        if zlib.crc32(buffer[frame.body : frame.stop]) != frame.check:
            yield DamagedSegment(path, frame.offset, frame.first, frame.last)
        reached, offset = frame.last, frame.stop
    # What lies behind the mark was being written when the power failed, and was promised to nobody.
    if (offset < len(buffer) or not buffer.nbytes) if end is None else reached < end:
        yield DamagedSegment(path, offset, reached + 1, end)
