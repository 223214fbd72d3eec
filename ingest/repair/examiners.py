"""What lies in the folder of an archive beside its store, examined part by part.

The store examines itself, raw copies and the state of servers (`Archive.check`). Of what ingest keeps, each part has
an examiner, which knows its format; a new part gets one, and its line in `PARTS`.
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


Examiner = Callable[[Path, Archive | None], Iterator[Defect]]
"""Yields what is wrong with a part of an archive's folder; without the archive where that does not open."""

_BLOCK: Final = 512
"""Of which each Hadoop writes down a CRC-32 [byte]; its default, which no session changes."""
_CRC_HEAD: Final = b"crc\x00" + _BLOCK.to_bytes(4)
_ANEW: Final = "'hypergrid stream' begins anew from its spool: remove the folder stream/checkpoint, then start it"
_PIECE: Final = "the next start of the same 'hypergrid reprocess' computes it once more; or remove it"


def check_parts(folder: Path, archive: Archive | None, notify: Callable[[str, float], None]) -> Iterator[Defect]:
    """Yield what is wrong with all parts of an archive's folder that ingest keeps."""
    for position, (name, examine) in enumerate(PARTS):
        if (folder / name).exists():
            notify("beside the store", position / len(PARTS))
            yield from examine(folder, archive)
    notify("beside the store", 1.0)


def check_spool(folder: Path, archive: Archive | None) -> Iterator[Defect]:
    """Yield the segments of the spool of which records cannot be read, and what that costs."""
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
    """Yield what is wrong with the note of a stream that began anew."""
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
    """Compare Spark's checkpoint with the checksums that Hadoop keeps beside each file, while no stream is at work."""
    if not is_free(folder / STREAM / "lock"):
        return
    for beside in sorted((folder / STREAM / CHECKPOINT).rglob(".*.crc")):
        path = beside.with_name(beside.name[1:].removesuffix(".crc"))
        if path.is_file() and not _fits(path.read_bytes(), beside.read_bytes()):
            where = str(path.relative_to(folder))
            yield Defect("damaged", where, "it, or the file of its checksums, is another than it was", _ANEW)


def _fits(content: bytes, sums: bytes) -> bool:
    """Return whether content has the checksums that a file of Hadoop's tells."""
    blocks = (content[at : at + _BLOCK] for at in range(0, len(content), _BLOCK))
    return sums == _CRC_HEAD + b"".join(zlib.crc32(block).to_bytes(4) for block in blocks)


def check_pieces(folder: Path, _archive: Archive | None) -> Iterator[Defect]:
    """Yield the pieces of an interrupted reprocessing that are not what was written."""
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
"""The parts, and what examines each; deployments of streams are compared by the store, as its backups need them."""
