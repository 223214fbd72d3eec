"""The sample network as messages in the order of their arrival: as a spool, as a file, and streamed by a process."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from hypergrid.archive import Archive
from ingest.deployment.arrival_table import read_arrivals
from ingest.formats.sensorscope import COLUMNS
from ingest.sources.spool import Spool, SpoolRecord
from tests.support.processes import kill_at_exit

SAMPLE = Path(__file__).resolve().parents[2] / "station_data" / "sample"
ROOT = Path(__file__).resolve().parents[2]
CHILD = """
import sys
from pathlib import Path
from ingest.streaming_service import StreamOptions, stream
def told(status):
    print(status.batches, flush=True)
how = StreamOptions(Path(sys.argv[2]), until_idle=True, batch_bytes=int(sys.argv[3]))
report = stream(Path(sys.argv[1]), how, on_status=told, on_warning=lambda text: print(text, file=sys.stderr))
print("done", report.ledger.describe(), report.restarts, flush=True)
"""


@dataclass(frozen=True)
class Message:
    """A message of a station of the sample network."""

    arrival_ns: int
    station: str
    payload: bytes


def messages(stations: Sequence[str], *, until_h: float = 24.0) -> list[Message]:
    """Return the messages of stations in the order of their arrival, of the first hours of the sample."""
    arrivals = read_arrivals(SAMPLE / "arrivals.csv").by_station
    found = []
    for station in stations:
        stamps, arrived = arrivals[station]
        for line in (SAMPLE / "sensorscope" / f"pass-meteo-{station}.txt").read_text().splitlines():
            parts = line.split(" ")
            epoch = int(parts[7])
            values = dict(zip(COLUMNS, (None if one == "NaN" else float(one) for one in parts[8:]), strict=True))
            arrival_ns = int(arrived[np.searchsorted(stamps, epoch * 10**9)])
            payload = json.dumps({"station": station, "time": epoch, **values}).encode()
            found.append(Message(arrival_ns, station, payload))
    found.sort(key=lambda one: one.arrival_ns)
    last_ns = found[0].arrival_ns + round(until_h * 3600e9)
    return [one for one in found if one.arrival_ns < last_ns]


def write_deployment(folder: Path, *, arrivals: bool, more: str = "") -> Path:
    """Write the sample's deployment file for messages."""
    text = (SAMPLE / "deployment.toml").read_text()
    text = text.replace('files = "*.txt"\nformat = "sensorscope"', 'files = "*.jsonl"\nformat = "messages"')
    text = text if arrivals else text.replace('arrivals = "arrivals.csv"', 'topic = "pass/{station}/up"')
    path = folder / "deployment.toml"
    path.write_text(text + more)
    return path


def write_spool(folder: Path, sent: Sequence[Message], *, at_once: int = 100, segment_bytes: int = 64 << 20) -> None:
    """Write messages as a receiver does that flushes every so many."""
    with Spool.open(folder, segment_bytes=segment_bytes) as spool:
        for start in range(0, len(sent), at_once):
            part = sent[start : start + at_once]
            spool.append(
                SpoolRecord(one.arrival_ns, "sensorscope", f"pass/{one.station}/up", one.payload, -1) for one in part
            )
            spool.flush()


class Streaming:
    """A process that streams what is in the spool of an archive, and closes all at its end."""

    def __init__(self, archive: Path, deployment: Path, *, batch_bytes: int, program: Path = ROOT) -> None:
        self.archive = archive
        self.process = subprocess.Popen(
            [sys.executable, "-c", CHILD, str(archive), str(deployment), str(batch_bytes)],
            stdout=subprocess.PIPE, text=True, cwd=program,
        )  # fmt: skip
        self.last = ""

    def until(self, batches: int) -> bool:
        """Wait until so many batches are committed; return whether it got so far."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.last = line.strip()
            if self.last.isdigit() and int(self.last) >= batches:
                return True
        return False

    def kill_spark(self) -> bool:
        """Kill the process of Spark; return whether there was one."""
        try:
            pid, _ = (self.archive / "stream" / "jvm").read_text().split()
            os.kill(int(pid), signal.SIGKILL)
        except (FileNotFoundError, ProcessLookupError):
            return False
        return True

    def kill(self) -> bool:
        """Kill it, but not its children; return whether it was at work."""
        self.process.kill()
        return self.process.wait() == -signal.SIGKILL

    def end(self) -> int:
        """Wait for its end; return its status."""
        with kill_at_exit(self.process):
            self.until(10**9)
            return self.process.wait()


def everything(folder: Path) -> dict[tuple[object, ...], tuple[object, ...]]:
    """Return all that an archive says of its readings, those that were superseded included."""
    archive = Archive.open(folder)
    found: dict[tuple[object, ...], tuple[object, ...]] = {}
    for variable in archive.variables:
        for superseded in (False, True):
            part = archive.read(variable, superseded=superseded, tests=True)
            columns = (part.index, part.time_ns, part.value, part.flag, part.arrival_ns, part.tests_or_none_set())
            for index, time_ns, *rest in zip(*(column.tolist() for column in columns), strict=True):
                key = (part.series[index], time_ns, superseded, 0)
                while key in found:
                    key = (*key[:3], key[3] + 1)
                found[key] = tuple(None if one != one else one for one in rest)
    return found
