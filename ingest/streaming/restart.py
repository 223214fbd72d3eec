"""A stream whose memory is gone, or cannot be used, begins anew: from its spool, and from raw copies of it.

What a stream remembers, rows that wait for their slice among it, is Spark's checkpoint. A restored backup has none, and
one that another version made, or that is damaged, is not read. What it remembered is made again from the records that
held it: segments of the spool that are raw copies by now come back into the spool, from the first record on with a row
that waited, as the ledger tells. Most of what they hold was committed before; the file `anew.json` tells up to which
record, so that what has been amended since stays as it is (`streamed.commit`).
"""

import shutil
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from hypergrid.archive import Archive
from hypergrid.archive.disk.checksums import read_checked, write_checked
from hypergrid.archive.disk.raw_copies import RAW, read_back
from hypergrid.core.errors import DamagedArchive
from ingest.sources.spool import bring_back, durable, last_record, put_segment, segments
from ingest.streaming.stream_commit import (
    CHECKPOINT,
    SPOOL,
    STREAM,
    Ledger,
    kept_segments,
    ledger_of,
    stream_id,
)

RESTART_FILE: Final = "anew.json"
"""File of a stream that began anew: after which one, and up to which record that had committed."""


@dataclass(frozen=True)
class Restart:
    """How a stream begins anew."""

    upto: int
    """The last record that was committed before; 0: none was."""
    segments: int
    """Segments of the spool that came back from raw copies."""
    lost: str = ""
    """What cannot come back, and why; empty where all does."""


def has_checkpoint(folder: Path) -> bool:
    """Return whether there is a memory that a stream can go on from, as far as its id tells."""
    try:
        return bool(stream_id(folder / STREAM / CHECKPOINT))
    except (OSError, ValueError, LookupError, TypeError):
        return False


def replayed(folder: Path) -> int:
    """Return up to which record of the spool a stream before this one had committed; 0: there was none."""
    note = folder / STREAM / RESTART_FILE
    try:
        return int(read_checked(note)["upto"])
    except FileNotFoundError:
        return 0
    except DamagedArchive:
        archive, now = Archive.open(folder), stream_id(folder / STREAM / CHECKPOINT)
        before = [stream for stream in archive.streams if stream != now]
        upto = min(durable(folder / SPOOL), max((ledger_of(archive, stream).upto for stream in before), default=0))
        write_checked(note, {"stream": before[-1] if before else "", "upto": upto})
        return upto


def note_replay(folder: Path, *, upto: int) -> None:
    """Note that records of the spool up to this one are in an archive, also where no stream of it committed them."""
    before = _read_note(folder)
    write_checked(folder / STREAM / RESTART_FILE, {"stream": "", "upto": max(upto, before.get("upto", 0))})


def _read_note(folder: Path) -> dict[str, Any]:
    """Return the note of a stream that began anew; empty where there is none, or a damaged one."""
    try:
        return read_checked(folder / STREAM / RESTART_FILE)
    except (FileNotFoundError, DamagedArchive):
        return {}


def forget_checkpoint(folder: Path) -> bool:
    """Remove what the stream of an archive remembers, whole or not at all; return whether there was anything."""
    checkpoint, aside = folder / STREAM / CHECKPOINT, folder / STREAM / f".{CHECKPOINT}.gone"
    shutil.rmtree(aside, ignore_errors=True)
    try:
        checkpoint.rename(aside)
    except FileNotFoundError:
        return False
    shutil.rmtree(aside, ignore_errors=True)
    return True


def begin_anew(folder: Path) -> Restart | None:
    """Forget what a stream remembered, and prepare its spool; None where no stream wrote into the archive before.

    It may be killed, and called again.
    """
    archive, note = Archive.open(folder), folder / STREAM / RESTART_FILE
    forget_checkpoint(folder)
    before = _read_note(folder)
    # A repair may have stored what a stream had brought, of whose commits none is left.
    if not archive.streams and not before:
        note.unlink(missing_ok=True)
        return None
    ledgers = {stream: ledger_of(archive, stream) for stream in archive.streams} or {"": Ledger()}
    last, ledger = list(ledgers.items())[-1]
    brought, lost = _bring_back(archive, folder / SPOOL, first_needed(ledger))
    # A backup has the spool as it was a little before: numbers after that are given a second time.
    there = durable(folder / SPOOL)
    if ledger.held and there < ledger.upto and not lost:
        lost = f"rows of records {there + 1} to {ledger.upto} that waited: the spool ends before them"
    if not before:
        upto = min(there, max(ledger.upto for ledger in ledgers.values()))
    elif before["stream"] == last:
        upto = int(before["upto"])
    else:
        upto = max(int(before["upto"]), min(there, ledger.upto))
    write_checked(note, {"stream": last, "upto": upto})
    return Restart(upto, brought, lost)


def first_needed(ledger: Ledger) -> int:
    """Return the first record with a row that waited."""
    if not ledger.held:
        return ledger.upto + 1
    # A ledger of an earlier program does not tell it: then all that can come back does.
    return ledger.first_held or 1


def _bring_back(archive: Archive, spool: Path, first_needed: int) -> tuple[int, str]:
    """Bring segments back from raw copies, so that the spool begins with a record; return how many, and what is lost.

    The last of them comes first: what is there is without a gap, whatever is killed.
    """
    kept = kept_segments(archive.files())
    spool.mkdir(parents=True, exist_ok=True)
    brought = _complete_last(archive, spool, kept)
    for first in sorted(kept, reverse=True):
        there = segments(spool)
        if there and there[0][0] <= first_needed:
            break
        if there and first >= there[0][0]:
            continue
        why = ""
        try:
            if not bring_back(spool, first, read_back(archive.path / RAW, kept[first])):
                why = "the ledger of files has none that ends there"
        except (OSError, DamagedArchive) as error:
            why = str(error)
        if why:
            return brought, f"rows that waited in records before {there[0][0] if there else first}: {why}"
        brought += 1
    there = segments(spool)
    if there and there[0][0] > first_needed:
        return brought, f"rows that waited in records {first_needed} to {there[0][0] - 1}: no raw copy has them"
    return brought, ""


def _complete_last(archive: Archive, spool: Path, kept: Mapping[int, str]) -> int:
    """Take the raw copies of the last segment and of later ones where these go on: a backup has them as they grew."""
    brought = 0
    for first in sorted(kept):
        there = segments(spool)
        if not there or first < there[-1][0]:
            continue
        if first > durable(spool) + 1:
            break
        with suppress(OSError, DamagedArchive):
            content = read_back(archive.path / RAW, kept[first])
            if last_record(content) > durable(spool):
                put_segment(spool, first, content)
                brought += 1
    return brought
