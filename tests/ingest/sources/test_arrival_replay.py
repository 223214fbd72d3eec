"""Recorded files once more, in the order in which their lines arrived."""

import re
import resource
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from hypergrid.archive import Archive
from hypergrid.core.errors import InvalidDeployment
from hypergrid.core.times import parse_instant
from ingest.batch.archive_session import locked_archive
from ingest.deployment.deployment_file import load
from ingest.job import ingest
from ingest.sources import arrival_replay
from ingest.sources.arrival_replay import ArrivalReplay
from ingest.sources.receiver import SPOOL, Receiver, resolve_sources
from ingest.sources.spool import END, HEADER, MESSAGE, TICK, Spool, SpoolRecord, durable, frames
from tests.ingest.stream_loop import Loop
from tests.ingest.streamed import everything

START_NS = parse_instant("2024-07-01T00:00")
MINUTE_NS = 60 * 10**9
ROWS = 40
DEPLOYMENT = """
[network]
name = "valley"
slice_s = 600
[quality]
run = false
[[feed]]
name = "logger"
files = "*.csv"
format = "csv"
time_format = "iso"
interval_s = 600
{arrivals}
[feed.columns]
T = {{variable = "air_temperature", unit = "degC"}}
"""


def delay_min(station: str, row: int) -> int:
    """A sends each row at once, the rows of B come every ten, newest first."""
    return 1 if station == "A" else 10 * (10 - row % 10) + (10 - row % 10)


@pytest.fixture(params=["column", "table"])
def files(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    folder = tmp_path / "data"
    folder.mkdir()
    listed = ["station,time,arrival"]
    for station in "AB":
        lines = ["time,T,received"]
        for row in range(ROWS):
            time_ns = START_NS + 10 * row * MINUTE_NS
            arrival_ns = time_ns + delay_min(station, row) * MINUTE_NS
            stamp, arrival = (np.datetime64(ns, "ns").astype("datetime64[s]") for ns in (time_ns, arrival_ns))
            lines.append(f"{stamp},{row + 0.5},{arrival}")
            listed.append(f"{station},{time_ns // 10**9},{arrival_ns // 10**9}")
        lines.insert(8, "2024-07-01T99:00,1.0,2024-07-01T01:00")
        (folder / f"{station}.csv").write_text("\n".join(lines) + "\n")
    key = 'arrival_column = "received"' if request.param == "column" else 'arrivals = "arrivals.csv"'
    (folder / "deployment.toml").write_text(DEPLOYMENT.format(arrivals=key))
    if request.param == "table":
        (folder / "arrivals.csv").write_text("\n".join(listed) + "\n")
    return folder


def records(archive: Path) -> Iterator[SpoolRecord]:
    for batch in frames(archive / SPOOL, 0, durable(archive / SPOOL)):
        yield from SpoolRecord.from_batch(batch)


def run(files: Path, archive: Path, *, stopped: bool = False, by_arrival: bool = True) -> str:
    """Be a receiver that replays the files, and return what it says; one that is stopped appends one batch."""
    stopping = threading.Event()
    if stopped:
        stopping.set()
    what = resolve_sources(load(files / "deployment.toml"), watch=files, mqtt=None, by_arrival=by_arrival)
    said: list[str] = []
    receiver = Receiver(archive, what, notify=said.append, environment={}, stopping=stopping)
    try:
        receiver.run(until_idle=True)
    finally:
        receiver.close()
    return "; ".join(said)


def test_lines_come_in_the_order_of_arrival(files: Path, tmp_path: Path) -> None:
    run(files, tmp_path / "a")
    replayed = list(records(tmp_path / "a"))
    lines = [record for record in replayed if record.kind == MESSAGE]
    assert [record.arrival_ns for record in lines] == sorted(record.arrival_ns for record in lines)
    for station in "AB":
        own = sorted((r.position, r.payload) for r in lines if r.origin == f"{station}.csv")
        header, *content = (files / f"{station}.csv").read_bytes().splitlines(keepends=True)
        assert b"".join(payload for _, payload in own) == b"".join(content)
        assert {r.payload for r in replayed if r.kind == HEADER} == {header}
    # The ten newest of B come together, the newest first.
    first = [r.payload.split(b",")[1] for r in lines if r.origin == "B.csv"][:3]
    assert first[0] == b"9.5"
    # The clock of the receiver is that of the network then.
    assert {record.arrival_ns // (10**9 * 86_400) for record in replayed if record.kind == TICK} == {19905}


def test_a_replay_that_was_stopped_goes_on(files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(files, tmp_path / "whole")
    wanted = [(r.arrival_ns, r.origin, r.payload) for r in records(tmp_path / "whole") if r.kind == MESSAGE]
    monkeypatch.setattr(arrival_replay, "BATCH_LINES", 7)
    for _ in range(5):
        run(files, tmp_path / "parts", stopped=True)
    assert run(files, tmp_path / "parts").startswith("47 of 82 lines of 2 files, which arrived from 2024-07-01T")
    assert run(files, tmp_path / "parts") == "all 82 lines of 2 files were replayed before"
    lines = [(r.arrival_ns, r.origin, r.payload) for r in records(tmp_path / "parts") if r.kind == MESSAGE]
    assert [b"".join(part[2] for part in parts) for parts in (lines, wanted)][0] == b"".join(w[2] for w in wanted)
    with (files / "A.csv").open("a") as file:
        file.write("2024-07-03T00:00,1.0,2024-07-03T00:01\n")
    with pytest.raises(InvalidDeployment, match="are others than those whose replay into .* began"):
        run(files, tmp_path / "parts")


def test_a_replay_does_not_go_on_in_another_order(files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrival_replay, "BATCH_LINES", 7)
    run(files, tmp_path / "a", stopped=True)
    if (table := files / "arrivals.csv").exists():
        # All of A arrives a day later.
        table.write_text(re.sub(r"(A,\d+),(\d+)", lambda row: f"{row[1]},{int(row[2]) + 86_400}", table.read_text()))
    else:
        described = files / "deployment.toml"
        described.write_text(described.read_text().replace('column = "received"', 'column = "time"'))
    with pytest.raises(InvalidDeployment, match="or when their lines arrived, are others"):
        run(files, tmp_path / "a")


def test_a_folder_is_not_followed_amid_its_replay(files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrival_replay, "BATCH_LINES", 7)
    for _ in range(2):
        run(files, tmp_path / "a", stopped=True)
    for _ in range(2):
        with pytest.raises(InvalidDeployment, match="has 14 of 82 lines of a replay, .* end it with --by-arrival"):
            run(files, tmp_path / "a", by_arrival=False)
    assert run(files, tmp_path / "a").startswith("68 of 82 lines")


def test_the_archive_is_that_of_an_ingest(files: Path, tmp_path: Path) -> None:
    deployment = load(files / "deployment.toml")
    ingest([files], tmp_path / "expected", now_ns=START_NS + 10**15, engine="inprocess")
    archive = tmp_path / "a"
    with locked_archive(archive, deployment, now_ns=1, on_wait=lambda: None):
        pass
    run(files, archive)
    with Spool.open(archive / SPOOL) as spool:
        spool.append([SpoolRecord(START_NS + 10**15, kind=END)])
    ledger = Loop(archive, deployment, batch_bytes=1 << 20).run()
    assert (ledger.rejected, ledger.held) == (2, 0)
    assert everything(archive) == everything(tmp_path / "expected")
    readings = Archive.open(archive).read("air_temperature")
    late_min = (readings.arrival_ns - readings.time_ns) // MINUTE_NS
    assert (late_min.min(), late_min.max()) == (1, 110)


def test_more_files_than_a_process_may_have_open(files: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(30):
        shutil.copy(files / "A.csv", files / f"A{number}.csv")
        if (table := files / "arrivals.csv").exists():
            own = [line for line in table.read_text().splitlines(keepends=True) if line.startswith("A,")]
            table.write_text(table.read_text() + "".join(line.replace("A,", f"A{number},") for line in own))
    monkeypatch.setattr(arrival_replay, "_MAPS_AT_ONCE", 4)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    descriptors = len(list(Path("/dev/fd").iterdir()))
    resource.setrlimit(resource.RLIMIT_NOFILE, (descriptors + 20, hard))
    try:
        replay = ArrivalReplay(files, load(files / "deployment.toml"), exclude=None, scratch=tmp_path)
        lines = [record.payload for batch, _ in replay.batches(0) for record in batch if record.kind == MESSAGE]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    assert b"".join(lines).count(b"\n") == 32 * (ROWS + 1)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (('arrival_column = "received"', ""), "needs `arrival_column`, .* or `arrivals`"),
        (('format = "csv"', 'format = "messages"'), "only formats of lines can; got 'messages'"),
    ],
)
def test_feeds_without_arrivals_are_refused(change: tuple[str, str], said: str, tmp_path: Path) -> None:
    text = DEPLOYMENT.format(arrivals='arrival_column = "received"' if change[1] == "" else "")
    (tmp_path / "deployment.toml").write_text(text.replace(*change))
    with pytest.raises(InvalidDeployment, match=said):
        resolve_sources(load(tmp_path / "deployment.toml"), watch=tmp_path, mqtt=None, by_arrival=True)


def test_a_folder_without_arrivals_is_refused(tmp_path: Path) -> None:
    (tmp_path / "deployment.toml").write_text(DEPLOYMENT.format(arrivals='arrival_column = "received"'))
    deployment = load(tmp_path / "deployment.toml")
    with pytest.raises(InvalidDeployment, match="replays the files of a folder"):
        resolve_sources(deployment, watch=None, mqtt="mqtt://h", by_arrival=True)
    (tmp_path / "a.csv").write_text("time,T,received\n2024-07-01T00:00,1.0,\n")
    (tmp_path / "b.csv").write_text("time,T,received\n2024-07-01T00:00,1.0,2024-07-01T00:01\n")
    replay = ArrivalReplay(tmp_path, deployment, exclude=None, scratch=tmp_path)
    (refused, count), (lines, _) = replay.batches(0)
    assert (len(replay), count, refused[0].origin) == (1, 0, "a.csv")
    assert b"no arrival" in refused[0].payload
    assert lines[-1].payload == b"2024-07-01T00:00,1.0,2024-07-01T00:01\n"
