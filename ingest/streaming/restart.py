"""Restart a stream without usable state from its spool and from raw copies.

The state of a stream, which includes rows that wait for their slice, is Spark's checkpoint. A restored backup has none,
and one that is damaged or of another version is not read. The state is rebuilt from the records that led to it:
segments of the spool that have become raw copies are brought back into the spool, from the first record on with a row
that waited, according to the ledger. Most of their content was committed before; the file `anew.json` records up to
which record, so that later amendments stay in force (`stream_commit.commit`).
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
    HELD,
    SHARES,
    SPOOL,
    STREAM,
    Ledger,
    kept_segments,
    ledger_of,
    stream_id,
)

RESTART_FILE: Final = "anew.json"
"""File of a restarted stream: the stream before it, and the last record that this had committed."""


@dataclass(frozen=True)
class Restart:
    """How a stream restarted from its spool."""

    upto: int
    """Last record that was committed before; 0 if there is none."""
    segments: int
    """Number of spool segments brought back from raw copies."""
    lost: str = ""
    """Description of what cannot be recovered, and why; empty if nothing is lost."""


def has_checkpoint(folder: Path) -> bool:
    """Return whether there is a checkpoint with a readable stream id."""
    try:
        return bool(stream_id(folder / STREAM / CHECKPOINT))
    except (OSError, ValueError, LookupError, TypeError):
        return False


def replayed(folder: Path) -> int:
    """Return the last spool record that an earlier stream had committed, or 0."""
    note = folder / STREAM / RESTART_FILE
    try:
        return int(read_checked(note)["upto"])
    except FileNotFoundError:
        return 0
    except DamagedArchive:
        # Rebuilt from the ledgers of earlier streams.
        archive, now = Archive.open(folder), stream_id(folder / STREAM / CHECKPOINT)
        before = [stream for stream in archive.streams if stream != now]
        upto = min(durable(folder / SPOOL), max((ledger_of(archive, stream).upto for stream in before), default=0))
        write_checked(note, {"stream": before[-1] if before else "", "upto": upto})
        return upto


def note_replay(folder: Path, *, upto: int) -> None:
    """Record that an archive has the spool records up to `upto`, whatever its streams committed."""
    before = _read_note(folder)
    write_checked(folder / STREAM / RESTART_FILE, {"stream": "", "upto": max(upto, before.get("upto", 0))})


def _read_note(folder: Path) -> dict[str, Any]:
    try:
        return read_checked(folder / STREAM / RESTART_FILE)
    except (FileNotFoundError, DamagedArchive):
        return {}


def forget_checkpoint(folder: Path) -> bool:
    """Remove the checkpoint of an archive's stream atomically; return whether there was one."""
    checkpoint, aside = folder / STREAM / CHECKPOINT, folder / STREAM / f".{CHECKPOINT}.gone"
    shutil.rmtree(aside, ignore_errors=True)
    # The next state counts its batches from the first one.
    shutil.rmtree(folder / STREAM / HELD, ignore_errors=True)
    try:
        # Renamed first, so that a kill cannot leave a partial checkpoint.
        checkpoint.rename(aside)
    except FileNotFoundError:
        return False
    finally:
        (folder / STREAM / SHARES).unlink(missing_ok=True)
    shutil.rmtree(aside, ignore_errors=True)
    return True


def begin_anew(folder: Path) -> Restart | None:
    """Discard a stream's state and prepare its spool for a replay.

    Returns None if no stream wrote into the archive before.

    It can safely be repeated after being killed.
    """
    archive, note = Archive.open(folder), folder / STREAM / RESTART_FILE
    forget_checkpoint(folder)
    before = _read_note(folder)
    # A repair may have stored a stream's readings after all its commits were lost.
    if not archive.streams and not before:
        note.unlink(missing_ok=True)
        return None
    ledgers = {stream: ledger_of(archive, stream) for stream in archive.streams} or {"": Ledger()}
    last, ledger = list(ledgers.items())[-1]
    brought, lost = _bring_back(archive, folder / SPOOL, first_needed(ledger))
    # The spool of a backup is a little older than the archive: later record numbers are assigned a second time.
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
    """Return the first record that a replay needs, with a row that waited."""
    if not ledger.held:
        return ledger.upto + 1
    # A ledger of an earlier release lacks this number: then everything available is brought back.
    return ledger.first_held or 1


def _bring_back(archive: Archive, spool: Path, first_needed: int) -> tuple[int, str]:
    """Bring segments back from raw copies until the spool begins with `first_needed`; return number and losses."""
    # Latest segments first: the spool then never has a gap, even after being killed.
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
    """Restore the last and later segments from raw copies that are longer."""
    # A backup may have copied segments of the spool while they were still growing.
    brought = 0
    for first in sorted(kept):
        there = segments(spool)
        if not there or first < there[-1][0]:
            continue
        # A gap: this segment does not continue the spool.
        if first > durable(spool) + 1:
            break
        with suppress(OSError, DamagedArchive):
            content = read_back(archive.path / RAW, kept[first])
            if last_record(content) > durable(spool):
                put_segment(spool, first, content)
                brought += 1
    return brought
