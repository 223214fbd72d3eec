"""Commits that a repair had to go back behind, done once more: their raw copies are ingested again, run by run."""

import shutil
from collections.abc import Callable
from pathlib import Path

from hypergrid.errors import HyperGridError
from hypergrid.store import Archive, FileEntry
from hypergrid.store.records import Gone
from ingest.anew import forget
from ingest.job import RAW, ingest
from ingest.mapping import FILE_NAME
from ingest.remap import descriptions_by_mapping, kept_descriptions, unpack, unpack_tables
from ingest.sources.raw import read_back
from ingest.streamed import is_segment


def commit_again(archive: Archive, gone: Gone, scratch: Path, *, now_ns: int, warn: Callable[[str], None]) -> int:
    """Ingest the raw copies of files that the ledger of an archive lacks; return how many readings that brought.

    They are read by the last description with the feed that read them, and arrive when they arrived then. Segments of
    streams come back into the ledger; a stream begins anew from there when it is next started.

    Parameters
    ----------
    scratch
        A folder to unpack them in.
    warn
        Is told which files cannot be read again, and why.
    """
    kept = kept_descriptions(archive, gone.described_by)
    hashes = {id(one): sha256 for sha256, one in kept.items()}
    read_by = descriptions_by_mapping(archive, kept)
    before = _readings(archive)
    runs: dict[tuple[int, str], list[FileEntry]] = {}
    for entry in gone.files:
        if is_segment(entry.name):
            continue
        if entry.mapping in read_by:
            described = hashes.get(id(read_by[entry.mapping]), "")
            runs.setdefault((entry.ingested_ns, described), []).append(entry)
        else:
            warn(f"nothing tells how {entry.name} was read; ingest it once more")
    for number, ((ingested_ns, described), entries) in enumerate(sorted(runs.items())):
        folder = scratch / f"run-{number}"
        folder.mkdir()
        try:
            if described in kept:
                (folder / FILE_NAME).write_bytes(read_back(archive.path / RAW, described))
                unpack_tables(archive, gone.described_by, folder)
            for entry in entries:
                unpack(archive, entry, folder, warn)
            ingest([folder], archive.path, now_ns=ingested_ns, engine="inprocess")
        except (HyperGridError, OSError) as error:
            warn(f"{entries[0].name} and what came with it cannot be ingested again: {error}")
        shutil.rmtree(folder, ignore_errors=True)
    segments = [entry for entry in gone.files if is_segment(entry.name)]
    if segments:
        with archive.latest().commit(
            batch=f"segments of streams {segments[-1].sha256}", message="segments of streams", now_ns=now_ns
        ) as writer:
            writer.files(segments)
    # It remembers what the archive no longer has.
    if forget(archive.path):
        warn("the stream of this archive begins anew when it is next started, and brings back what it had brought")
    return _readings(archive.latest()) - before


def _readings(archive: Archive) -> int:
    return sum(archive.readings(name) for name in archive.variables)
