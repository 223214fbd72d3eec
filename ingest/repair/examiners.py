"""Examine the parts of an archive's folder beside its store.

The store checks itself, raw copies and the state of servers (`Archive.check`). Each part that ingest keeps has an
examiner that knows its format; a new part needs one, and an entry in `PARTS`.
"""

import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hypergrid.archive import Archive, Defect
from hypergrid.archive.disk.checksums import read_checked
from hypergrid.archive.disk.lock import is_free
from hypergrid.core.errors import DamagedArchive
from hypergrid.formats.partitioned import load_piece
from ingest.repair.stream_history import committed_upto, stored_upto
from ingest.reprocess.job import FOLDER as REPROCESS
from ingest.sources.spool import MARK_FILE, frames_in, mapped, marked, segments
from ingest.streaming.restart import RESTART_FILE
from ingest.streaming.stream_commit import CHECKPOINT, SPOOL, STREAM


@dataclass(frozen=True)
class DamagedSegment:
    """Unreadable records of a segment."""

    path: Path
    offset: int
    """Start of the damage [bytes]."""
    first: int
    """First unreadable record; a frame is damaged as a whole, because its checksum does not show which record is."""
    last: int | None
    """Last unreadable record; None if the end of the segment is unknown."""


def has_damaged_mark(folder: Path) -> bool:
    """Return whether the mark of the last durable record is lost."""
    return bool(segments(folder)) and (folder / MARK_FILE).exists() and marked(folder) is None


def damaged_segments(folder: Path, *, upto: int = 0) -> Iterator[DamagedSegment]:
    """Yield the unreadable parts of a spool; segments that are retired meanwhile are skipped.

    Parameters
    ----------
    upto
        Last record that is known to have been durable, regardless of the spool's own mark; 0 if unknown.
    """
    # Read before the segments, so that records written meanwhile lie beyond it.
    promised = marked(folder)
    known = segments(folder)
    ends: list[int | None] = [first - 1 for first, _ in known[1:]]
    last = None if promised is None else max(promised, upto)
    for (first, path), end in zip(known, [*ends, last], strict=True):
        with suppress(FileNotFoundError):
            yield from _damaged(path, first, end)


def _damaged(path: Path, first: int, end: int | None) -> Iterator[DamagedSegment]:
    """Yield the unreadable parts of a segment up to record `end`; None: up to its end."""
    buffer, reached, offset = mapped(path), first - 1, 0
    for frame in frames_in(buffer):
        if frame.first != reached + 1 or (end is not None and reached >= end):
            break
        if zlib.crc32(buffer[frame.body : frame.stop]) != frame.check:
            yield DamagedSegment(path, frame.offset, frame.first, frame.last)
        reached, offset = frame.last, frame.stop
    # Records beyond the mark were being written during a power failure, and were never acknowledged.
    if (offset < len(buffer) or not buffer.nbytes) if end is None else reached < end:
        yield DamagedSegment(path, offset, reached + 1, end)


Examiner = Callable[[Path, Archive | None], Iterator[Defect]]
"""Yields the defects of a part of an archive's folder; the archive is None if it cannot be opened."""

_BLOCK: Final = 512
"""Block size of Hadoop's CRC-32 checksums [bytes]; the default, which no session changes."""
_CRC_HEAD: Final = b"crc\x00" + _BLOCK.to_bytes(4)
_ANEW: Final = "'hypergrid stream' begins anew from its spool: remove the folder stream/checkpoint, then start it"
_PIECE: Final = "the next start of the same 'hypergrid reprocess' computes it once more; or remove it"


def check_parts(folder: Path, archive: Archive | None, notify: Callable[[str, float], None]) -> Iterator[Defect]:
    """Yield the defects of all parts of an archive's folder that ingest keeps."""
    for position, (name, examine) in enumerate(PARTS):
        if (folder / name).exists():
            notify("beside the store", position / len(PARTS))
            yield from examine(folder, archive)
    notify("beside the store", 1.0)


def check_spool(folder: Path, archive: Archive | None) -> Iterator[Defect]:
    """Yield the damaged segments of the spool, and the consequences."""
    spool = folder / SPOOL
    committed, stored = (0, 0) if archive is None else (committed_upto(archive), stored_upto(archive))
    if has_damaged_mark(spool) and is_free(spool / "lock"):
        what = "does not tell any more up to which record the spool was on the disk"
        yield Defect("damaged", f"{SPOOL}/{MARK_FILE}", what, "the next 'hypergrid stream' writes it anew")
    for damaged_segment in damaged_segments(spool, upto=committed):
        yield _segment(damaged_segment, stored)


def _segment(damaged_segment: DamagedSegment, stored: int) -> Defect:
    if damaged_segment.last is None:
        records = (
            f"it ends in bytes from {damaged_segment.offset:,} on that are no whole record, after record "
            f"{damaged_segment.first - 1:,}"
        )
    else:
        records = (
            f"records {damaged_segment.first:,} to {damaged_segment.last:,} cannot be read, from byte "
            f"{damaged_segment.offset:,} on"
        )
    restore = "restore the file from a backup or another copy"
    if damaged_segment.last is not None and damaged_segment.last <= stored:
        what = f"{records}; what they brought is in the archive"
        remedy = f"{restore}; without one nothing is lost but what 'check --deep' compares"
    else:
        what = f"{records}; what they brought is not in the archive yet, and nothing else has it"
        remedy = f"{restore} before the stream goes on, which stops there"
    return Defect("damaged", f"{SPOOL}/{damaged_segment.path.name}", what, remedy)


def check_anew(folder: Path, _archive: Archive | None) -> Iterator[Defect]:
    """Yield the defects of the restart note of a stream."""
    try:
        read_checked(folder / STREAM / RESTART_FILE)
    except FileNotFoundError:
        return
    except (OSError, DamagedArchive):
        yield Defect(
            "damaged", f"{STREAM}/{RESTART_FILE}", "is another than it was",
            "the next 'hypergrid stream' writes it anew from what the archive tells of streams",
        )  # fmt: skip


def check_checkpoint(folder: Path, _archive: Archive | None) -> Iterator[Defect]:
    """Compare Spark's checkpoint with Hadoop's checksum files, unless a stream is running."""
    # A running stream is changing the files.
    if not is_free(folder / STREAM / "lock"):
        return
    for beside in sorted((folder / STREAM / CHECKPOINT).rglob(".*.crc")):
        path = beside.with_name(beside.name[1:].removesuffix(".crc"))
        if path.is_file() and not _fits(path.read_bytes(), beside.read_bytes()):
            where = str(path.relative_to(folder))
            yield Defect("damaged", where, "it, or the file of its checksums, is another than it was", _ANEW)


def _fits(content: bytes, sums: bytes) -> bool:
    """Return whether content matches a checksum file of Hadoop."""
    blocks = (content[at : at + _BLOCK] for at in range(0, len(content), _BLOCK))
    return sums == _CRC_HEAD + b"".join(zlib.crc32(block).to_bytes(4) for block in blocks)


def check_pieces(folder: Path, _archive: Archive | None) -> Iterator[Defect]:
    """Yield the damaged pieces of an interrupted reprocessing."""
    for path in sorted((folder / REPROCESS).rglob("*.npz")):
        try:
            load_piece(path)
        except FileNotFoundError:
            continue
        except (OSError, DamagedArchive):
            yield Defect("damaged", str(path.relative_to(folder)), "is not what was written", _PIECE)


PARTS: Final[tuple[tuple[str, Examiner], ...]] = (
    (SPOOL, check_spool),
    (f"{STREAM}/{RESTART_FILE}", check_anew),
    (f"{STREAM}/{CHECKPOINT}", check_checkpoint),
    (REPROCESS, check_pieces),
)
"""Parts and their examiners; the store checks the deployments of streams, because its backups need them."""
