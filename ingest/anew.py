"""A stream whose memory is gone, or cannot be used, begins anew: from its spool, and from raw copies of it.

What a stream remembers, rows that wait for their slice among it, is Spark's checkpoint. A restored backup has none, and
one that another version made, or that is damaged, is not read. What it remembered is made again from the records that
held it: segments of the spool that are raw copies by now come back into the spool, from the first record on with a row
that waited, as the ledger tells. Most of what they hold was committed before; the file `anew.json` tells up to which
record, so that what has been amended since stays as it is (`streamed.commit`).
"""

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hypergrid.errors import DamagedArchive
from hypergrid.store import Archive
from hypergrid.store.checksums import read_checked, write_checked
from ingest.job import RAW
from ingest.sources.raw import read_back
from ingest.sources.spool import bring_back, durable, segment_first, segments
from ingest.streamed import CHECKPOINT, SPOOL, STREAM, Ledger, is_segment, ledger_of, stream_id

ANEW: Final = "anew.json"
"""File of a stream that began anew: after which one, and up to which record that had committed."""


@dataclass(frozen=True)
class Begun:
    """How a stream begins anew."""

    upto: int
    """The last record that was committed before; 0: none was."""
    segments: int
    """Segments of the spool that came back from raw copies."""
    lost: str = ""
    """What cannot come back, and why; empty where all does."""


def remembers(folder: Path) -> bool:
    """Return whether there is a memory that a stream can go on from, as far as its id tells."""
    try:
        return bool(stream_id(folder / STREAM / CHECKPOINT))
    except (OSError, ValueError, LookupError, TypeError):
        return False


def replayed(folder: Path) -> int:
    """Return up to which record of the spool a stream before this one had committed; 0: there was none."""
    try:
        return int(read_checked(folder / STREAM / ANEW)["upto"])
    except FileNotFoundError:
        return 0


def begin_anew(folder: Path) -> Begun | None:
    """Forget what a stream remembered, and prepare its spool; None where no stream wrote into the archive before.

    It may be killed, and called again.

    Raises
    ------
    DamagedArchive
        The file that says what was committed before is not what it was.
    """
    archive, checkpoint, note = Archive.open(folder), folder / STREAM / CHECKPOINT, folder / STREAM / ANEW
    shutil.rmtree(checkpoint, ignore_errors=True)
    if not archive.streams:
        note.unlink(missing_ok=True)
        return None
    ledgers = {stream: ledger_of(archive, stream) for stream in archive.streams}
    last, ledger = list(ledgers.items())[-1]
    brought, lost = _bring_back(archive, folder / SPOOL, _first_needed(ledger))
    # A backup has the spool as it was a little before: numbers after that are given a second time.
    there = durable(folder / SPOOL)
    if not note.exists():
        upto = min(there, max(one.upto for one in ledgers.values()))
    else:
        before = read_checked(note)
        upto = int(before["upto"]) if before["stream"] == last else max(int(before["upto"]), min(there, ledger.upto))
    write_checked(note, {"stream": last, "upto": upto})
    return Begun(upto, brought, lost)


def _first_needed(ledger: Ledger) -> int:
    """Return the first record with a row that waited."""
    if not ledger.held:
        return ledger.upto + 1
    # A ledger of an earlier program does not tell it: then all that can come back does.
    return ledger.first_held or 1


def _bring_back(archive: Archive, spool: Path, first_needed: int) -> tuple[int, str]:
    """Bring segments back from raw copies, so that the spool begins with a record; return how many, and what is lost.

    The last of them comes first: what is there is without a gap, whatever is killed.
    """
    kept = {segment_first(Path(entry.name)): entry.sha256 for entry in archive.files() if is_segment(entry.name)}
    brought = 0
    spool.mkdir(parents=True, exist_ok=True)
    for first in sorted(kept, reverse=True):
        begins = segments(spool)[0][0] if segments(spool) else first + 1
        if begins <= first_needed:
            break
        if first >= begins:
            continue
        why = ""
        try:
            if not bring_back(spool, first, read_back(archive.path / RAW, kept[first])):
                why = f"the ledger of files has none that ends with record {begins - 1}"
        except (OSError, DamagedArchive) as error:
            why = str(error)
        if why:
            return brought, f"rows of records {first_needed} to {begins - 1} that waited cannot come back: {why}"
        brought += 1
    return brought, ""
