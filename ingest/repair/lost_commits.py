"""Commits that a repair had to go back behind, done once more: their raw copies are ingested again, run by run."""

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np

from hypergrid.archive import Archive, FileEntry
from hypergrid.archive.arrays.records import LostRecords
from hypergrid.archive.disk.raw_copies import RAW, read_back
from hypergrid.core.errors import HyperGridError
from ingest.deployment.deployment_file import FILE_NAME
from ingest.deployment.to_readings import stations_of
from ingest.deployment.versions import read_versions
from ingest.job import ingest
from ingest.quality.flagging import QualityFlagger
from ingest.repair.stream_history import ALL_TIME, StreamHistory, read_streams, stored_upto
from ingest.reprocess.remap import descriptions_by_mapping, kept_descriptions, unpack, unpack_tables
from ingest.sources.spool import durable
from ingest.streaming.restart import forget_checkpoint, note_replay
from ingest.streaming.stream_commit import DEPLOYMENTS, SPOOL, STREAM, is_segment


def commit_again(
    archive: Archive, gone: LostRecords, scratch: Path, *, now_ns: int, warn: Callable[[str], None]
) -> int:
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
    hashes = {id(deployment): sha256 for sha256, deployment in kept.items()}
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
    streams, received_ns = _streams(archive, gone, scratch, warn) if runs else {}, -np.inf
    for number, ((ingested_ns, described), entries) in enumerate(sorted(runs.items())):
        _store_received(archive.latest(), streams, received_ns, ingested_ns, now_ns)
        received_ns = ingested_ns
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
    if streams:
        note_replay(archive.path, upto=durable(archive.path / SPOOL))
    # It remembers what the archive no longer has.
    if forget_checkpoint(archive.path):
        warn("the stream of this archive begins anew when it is next started, and brings back what it had brought")
    return _readings(archive.latest()) - before


def _streams(
    archive: Archive, gone: LostRecords, scratch: Path, warn: Callable[[str], None]
) -> Mapping[str, StreamHistory]:
    """Return what came by streams after all that the archive has of them."""
    always = dict.fromkeys(archive.variables, [ALL_TIME])
    files, after = [*archive.files(), *gone.files], stored_upto(archive)
    return read_streams(archive, files, always, scratch, warn, after=after, upto=durable(archive.path / SPOOL))


def _store_received(
    archive: Archive, streams: Mapping[str, StreamHistory], start_ns: float, stop_ns: int, now_ns: int
) -> None:
    """Store what streams received before a run of ingest, so that its files replace what they amended."""
    received = {name: history.within(ALL_TIME, start_ns, stop_ns) for name, history in streams.items()}
    present = {sensor_series.station for readings in received.values() for sensor_series in readings.series}
    if not present:
        return
    described = read_versions(archive.path / STREAM / DEPLOYMENTS)[-1].deployment
    batch = f"received again before {stop_ns}, after {archive.snapshot}"
    with archive.commit(batch=batch, message="streams again", now_ns=now_ns) as writer:
        stations = stations_of(present, described, known=archive.stations)
        writer.stations(stations)
        known = {**archive.stations, **{station.id: station for station in stations}}
        inspector = QualityFlagger(described.quality, known, archive.slice_s)
        inspector.keep(writer, {name: archive.variable(name) for name in received})
        for name, readings in received.items():
            inspector.store(writer, archive.variable(name), readings, lambda _name: None)


def _readings(archive: Archive) -> int:
    return sum(archive.readings(name) for name in archive.variables)
