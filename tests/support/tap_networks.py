"""A network whose messages go into a spool, for queries over the tap."""

import json
from pathlib import Path

from hypergrid.archive import Archive, FileEntry
from hypergrid.archive.disk.raw_copies import RAW, hash_of, keep
from hypergrid.core.readings import Position, Station
from hypergrid.core.times import SECOND_NS
from hypergrid.core.units import KNOWN_VARIABLES
from hypergrid.query import OpenArchive, open_archive
from ingest.deployment.deployment_file import deploy
from ingest.sources.spool import SpoolRecord, retire, segments
from ingest.streaming.stream_commit import DEPLOYMENTS, SPOOL, STREAM

VARIABLES = ("air_temperature", "wind_speed")
DEPLOYMENT = """
[network]
name = "tap"
slice_s = 10
[[feed]]
name = "net"
format = "messages"
topic = "net/{station}/up"
[feed.columns]
t = {variable = "air_temperature", unit = "K"}
w = {variable = "wind_speed", unit = "m/s"}
"""


def create_network(folder: Path, *, stations: int, now_ns: int, more: str = "") -> OpenArchive:
    """Create an archive with the deployment of its stream, and without readings."""
    archive = Archive.create(
        folder, name="tap", slice_s=10.0, variables=[KNOWN_VARIABLES[name] for name in VARIABLES], now_ns=now_ns
    )
    listed = [
        Station(f"s{number}", f"s{number}", (Position(None, 7.0 + number / 1e4, 45.0, 2000.0),))
        for number in range(stations)
    ]
    with archive.commit(batch="0", message="stations", now_ns=now_ns) as writer:
        writer.stations(listed)
    path = folder.parent / f"{folder.name}.toml"
    path.write_text(more + DEPLOYMENT)
    deploy(folder / STREAM / DEPLOYMENTS, path, first=1)
    return open_archive(folder)


def message(station: int, time_ns: int, celsius: float, *, wind: float = 3.0) -> tuple[str, bytes]:
    """Return topic and content of a message; temperatures are sent in K."""
    content = {"station": f"s{station}", "time": time_ns / SECOND_NS, "t": round(celsius + 273.15, 3), "w": wind}
    return f"net/s{station}/up", json.dumps(content).encode()


def record(station: int, time_ns: int, celsius: float, arrival_ns: int) -> SpoolRecord:
    """Return a message as the receiver keeps it."""
    topic, payload = message(station, time_ns, celsius)
    return SpoolRecord(arrival_ns, "net", topic, payload, -1 - station)


def retire_segments(opened: OpenArchive, count: int, *, now_ns: int) -> None:
    """Let the first segments of the spool become raw copies, as a stream does with those that it has stored."""
    spool, entries = opened.path / SPOOL, []
    there = segments(spool)
    for _, path in there[:count]:
        size_bytes = path.stat().st_size
        sha256 = hash_of(path, size_bytes)
        keep(path, opened.path / RAW, sha256=sha256, size_bytes=size_bytes)
        entries.append(FileEntry(f"spool/{path.name}", sha256, size_bytes, 5, 10, 0, now_ns, "d"))
    with opened.store.commit(batch="1", message="segments", now_ns=now_ns) as writer:
        writer.files(entries)
    retire(spool, there[count][0] - 1)
    assert segments(spool) == there[count:]
