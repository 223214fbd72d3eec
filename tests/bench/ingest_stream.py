"""Streaming: messages of the sample network through a broker and Spark, killed in between; how fast, how soon.

What a slice waits for is told in stream time: as if each message had come when the sample says that it did.
"""

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hypergrid.archive import Archive
from ingest.batch.archive_session import locked_archive
from ingest.deployment.arrival_table import read_arrivals
from ingest.deployment.deployment_file import SliceOrder, deploy, load
from ingest.formats.sensorscope import COLUMNS
from ingest.sources.spool import MESSAGE, Spool, SpoolRecord, durable, frames
from ingest.streaming.assembler import Assembler
from ingest.streaming.spool_decoder import RowBatch, expected_origins, parse_records
from ingest.streaming.stream_commit import DEPLOYMENTS, STREAM, StreamStatus, ledger_of, stream_id
from ingest.streaming_service import StreamOptions, stream
from station_data import network
from station_data.generate import generate
from tests.bench.ingest_watermark import closed_slices, compare, settings
from tests.support.no_clock import no_ticks

Tell = Callable[[str, float], None]
Table = tuple[str, tuple[str, ...], list[tuple[object, ...]]]
SLICE_S = 120.0
NS = 10**9
BROKEN = ("job", "broker", "Spark", "job", "broker", "Spark", "job", "broker")
"""What is killed after each part of the messages."""
IDLE_S = 30_000.0
"""A station of the sample sends every six hours, and another's clock is two hours ahead of the rest [s]."""


@dataclass(frozen=True)
class Sizes:
    """How much is measured."""

    messages: int = 100_000
    """Through the broker, and assembled."""
    steady: int = 200_000
    """Messages that wait in the spool when the steady rate is measured."""
    stations: int = 1000
    """Of the network whose readings are to be visible soon, each every ten seconds."""
    visible_s: float = 120.0
    """For how long it is watched [s]."""
    batch_bytes: int = 16 << 20
    held_slices: int = 2000
    """Of a setting of table 5.4 that is held beside Spark's watermark."""
    held_batches: int = 100
    """In which each of them, and the sample, comes."""


def sample(folder: Path, count: int) -> list[tuple[int, str, bytes]]:
    """Return arrival [ns], station and payload of the first messages of the sample network, in order of arrival."""
    days = max(1, -(-count // 16_000))
    made = generate(folder / "sample", days=days, formats=("sensorscope",))
    arrivals = read_arrivals(made / "arrivals.csv").by_station
    found = []
    for path in sorted(made.rglob("pass-meteo-*.txt")):
        for line in path.read_text().splitlines():
            station, _, _, _, _, _, _, epoch, *numbers = line.split(" ")
            stamps, arrived = arrivals[station]
            place = int(np.searchsorted(stamps, int(epoch) * NS))
            arrival_ns = int(arrived[place])
            values = {n: None if v == "NaN" else float(v) for n, v in zip(COLUMNS, numbers, strict=True)}
            said = {"station": station, "time": int(epoch), "arrival": arrival_ns / NS, **values}
            found.append((arrival_ns, station, json.dumps(said).encode()))
    found.sort(key=lambda one: one[0])
    return found[:count]


def deployment_file(folder: Path, *, slice_s: float = SLICE_S, idle_s: float = IDLE_S, stations: int = 24) -> Path:
    """Write the deployment of the sample's messages."""
    columns = "\n".join(f'{name} = "{name}"' for name in COLUMNS)
    text = f"""
[network]
name = "pass"
slice_s = {slice_s}
[stream]
idle_s = {idle_s}
[[feed]]
name = "net"
format = "messages"
topic = "pass/{{station}}/up"
interval_s = {slice_s}
[feed.columns]
{columns}
"""
    path = folder / "deployment.toml"
    listed = (f'[[station]]\nid = "{one.id}"\nlon = {one.lon}\nlat = {one.lat}\n' for one in network.stations(stations))
    path.write_text(text + "".join(listed))
    return path


def made(folder: Path, deployment: Path) -> Path:
    """Make the archive of a deployment, in a folder; return its place."""
    archive = folder / "archive"
    with locked_archive(archive, load(deployment), now_ns=1, on_wait=lambda: None):
        pass
    return archive


def _spooled(archive: Path, sent: Iterable[tuple[int, str, bytes]], *, at_once: int = 500) -> int:
    count = 0
    with Spool.open(archive / "spool") as spool:
        part: list[SpoolRecord] = []
        for arrival_ns, station, payload in sent:
            part.append(SpoolRecord(arrival_ns, "net", f"pass/{station}/up", payload, -1))
            count += 1
            if len(part) == at_once:
                spool.append(part)
                spool.flush()
                part = []
        spool.append(part)
        spool.flush()
    return count


def _arrived(sent: Sequence[tuple[int, str, bytes]], folder: Path, deployment: Path) -> RowBatch:
    with tempfile.TemporaryDirectory(dir=folder) as scratch:
        with Spool.open(Path(scratch)) as spool:
            spool.append(SpoolRecord(when, "net", f"pass/{station}/up", payload, -1) for when, station, payload in sent)
            last = spool.flush()
        return parse_records(frames(Path(scratch), 0, last), load(deployment))[0].rows


def closing(sent: Sequence[tuple[int, str, bytes]], folder: Path, deployment: Path) -> dict[str, Any]:
    """Assemble messages as they came; tell which slices were whole when they closed, how soon, and what was held.

    A station that has never sent is waited for briefly, so slices that begin before each has been heard are also
    counted apart.
    """
    rows = _arrived(sent, folder, deployment)
    described = load(deployment)
    assembler = Assembler(SLICE_S, IDLE_S, expected=expected_origins(described))
    peak, steps, parts = 0, [], []
    for part in np.array_split(np.arange(len(rows)), max(1, len(rows) // 200)):
        parts.append(assembler.process(rows.take(part), no_ticks()))
        peak = max(peak, len(assembler))
        steps.append(len(assembler))
    closed, whole, of = closed_slices(rows, parts, assembler.slice_ns)
    keys, which = np.unique(rows.time_ns // assembler.slice_ns, return_inverse=True)
    heard_ns = max(int(rows.came_ns[rows.origin == origin].min()) for origin in np.unique(rows.origin))
    after = closed & (keys * assembler.slice_ns >= heard_ns)
    last_ns = np.zeros(len(closed), np.int64)
    np.maximum.at(last_ns, which, rows.came_ns)
    closed_ns = np.concatenate([part.closed_ns for part in parts])
    on_time = ~np.concatenate([part.late for part in parts])
    wait_s = np.full(len(closed), np.nan)
    wait_s[of[on_time]] = (closed_ns[on_time] - last_ns[of[on_time]]) / NS
    return {
        "slices_closed": int(closed.sum()),
        "whole_at_first_closing": float(whole.sum() / closed.sum()),
        "slices_closed_after_all_were_heard": int(after.sum()),
        "whole_at_first_closing_after_all_were_heard": float(whole[after].sum() / after.sum()),
        "wait_s_median": float(np.nanmedian(wait_s[whole])),
        "wait_s_p99": float(np.nanquantile(wait_s[whole], 0.99)),
        "state_rows_peak": peak,
        "state_rows_mean": float(np.mean(steps)),
    }


def beside_a_watermark(
    sent: Sequence[tuple[int, str, bytes]], folder: Path, deployment: Path, sizes: Sizes, notify: Tell
) -> dict[str, Any]:
    """Hold the sample network's messages, and table 5.4's settings, our way and behind a watermark of Spark."""
    rows, described = _arrived(sent, folder, deployment), load(deployment)

    def new(order: SliceOrder) -> Assembler:
        return Assembler(SLICE_S, IDLE_S, order=order, expected=expected_origins(described))

    beside = compare(rows, new, batches=sizes.held_batches, at_once=len(described.stations))
    own = {"setting": "sample network", "lag": "its own", **beside}
    return {"rows": [own, *settings(sizes.held_slices, sizes.held_batches, notify)]}


def steady(sent: Sequence[tuple[int, str, bytes]], folder: Path, sizes: Sizes) -> dict[str, Any]:
    """Stream what waits in a spool; return the readings a second once Spark is warm, which two batches take."""
    folder.mkdir()
    deployment = deployment_file(folder)
    archive = made(folder, deployment)
    count = _spooled(archive, sent)
    marks: list[tuple[float, int]] = []

    def note(status: StreamStatus) -> None:
        if not marks or status.batches > marks[-1][1]:
            marks.append((time.perf_counter(), status.batches))
            readings.append(status.ledger.came)

    readings: list[int] = []
    report = stream(archive, StreamOptions(deployment, until_idle=True, batch_bytes=sizes.batch_bytes), on_status=note)
    warm = next((place for place, (_, batches) in enumerate(marks) if batches >= 2), 0)
    seconds = marks[-1][0] - marks[warm][0]
    return {
        "messages": count,
        "readings": report.ledger.came,
        "batches": report.batches,
        "readings_per_s": (readings[-1] - readings[warm]) / seconds if seconds else None,
        "ledger": report.ledger.describe(),
    }


def visible(folder: Path, sizes: Sizes) -> dict[str, Any]:
    """Let stations report every ten seconds, by the clock; return how long after its arrival a reading can be queried.

    The first five minutes are those in which a join learns how stations come; they are not counted.
    """
    folder.mkdir()
    deployment = deployment_file(folder, slice_s=10.0, idle_s=60.0, stations=sizes.stations)
    archive = made(folder, deployment)
    stopping = threading.Event()
    learn_s = 330.0
    writer = threading.Thread(target=report_readings, args=(archive, sizes.stations, stopping), daemon=True)
    delays: list[NDArray[np.float64]] = []

    begun = time.monotonic()

    def note(seen_s: float, lag_s: NDArray[np.float64]) -> None:
        if seen_s - begun > learn_s:
            delays.append(lag_s)

    watcher = threading.Thread(target=watch, args=(archive, note, stopping), daemon=True)
    timer = threading.Timer(learn_s + sizes.visible_s, stopping.set)
    for one in (writer, watcher, timer):
        one.start()
    report = stream(archive, StreamOptions(deployment, trigger_s=1.0), stopping=stopping)
    writer.join()
    watcher.join()
    seconds = np.concatenate(delays) if delays else np.full(1, np.nan)
    return {
        "stations": sizes.stations,
        "readings": len(seconds),
        "median_s": float(np.median(seconds)),
        "p99_s": float(np.quantile(seconds, 0.99)),
        "batches": report.batches,
        "late_rows": report.ledger.late,
    }


def watch(archive: Path, note: Callable[[float, NDArray[np.float64]], None], stopping: threading.Event) -> None:
    """Call `note` with each new version's time on the monotonic clock, and what its new readings waited [s]."""
    opened = Archive.open(archive)
    before = opened.extent("air_temperature")
    seen_ns = 0 if before is None else before.stop_ns
    while not stopping.wait(0.2):
        newest = opened.latest()
        if newest is opened:
            continue
        opened, now_ns, now_s = newest, time.time_ns(), time.monotonic()
        extent = opened.extent("air_temperature")
        if extent is None:
            continue
        read = opened.read("air_temperature", window=replace(extent, start_ns=max(extent.start_ns, seen_ns)))
        seen_ns = extent.stop_ns
        if len(read):
            note(now_s, (now_ns - read.arrival_ns) / NS)


def report_readings(
    archive: Path, stations: int, stopping: threading.Event, *, first: int = 0, past_s: float = 0.0
) -> None:
    """Have each station from number `first` on report every ten seconds, at its own time in them, until it shall stop.

    `past_s`: as if they had begun so long ago [s].
    """
    phase = np.random.default_rng(7).permutation(stations) / stations * 10.0
    order = np.argsort(phase)
    with Spool.open(archive / "spool") as spool:
        now = time.time()
        begin = now - past_s
        for turn in range(10**9):
            for tenth in range(10):
                due = begin + 10 * turn + tenth + 1
                if stopping.wait(max(0.0, due - time.time())):
                    return
                mine = order[(phase[order] >= tenth) & (phase[order] < tenth + 1)]
                now_ns = round(due * NS) if due < now else time.time_ns()
                spool.append(
                    SpoolRecord(now_ns, "net", f"pass/{one}/up", json.dumps(_said(one, now_ns)).encode(), -1)
                    for one in (first + mine).tolist()
                )
                spool.flush()


def _said(station: int, now_ns: int) -> dict[str, Any]:
    return {"station": str(station), "time": now_ns // 10**6 / 1000, **dict.fromkeys(COLUMNS, station / 10)}


def through_a_broker(sent: Sequence[tuple[int, str, bytes]], folder: Path, sizes: Sizes) -> dict[str, Any]:
    """Publish messages to a real broker; kill it, the job, and Spark in between; return what the archive has."""
    from tests.ingest.brokers import RunningBroker, publish  # noqa: PLC0415 - needs a broker

    folder.mkdir()
    deployment = deployment_file(folder)
    archive, broker = made(folder, deployment), RunningBroker(folder / "broker").start()
    deploy(archive / STREAM / DEPLOYMENTS, deployment, first=1)
    words = [sys.executable, "-m", "hypergrid", "stream", str(archive), "--deployment", str(deployment)]
    words += ["--mqtt", broker.url, "--trigger", "5s"]
    began = time.perf_counter()
    kills: list[dict[str, Any]] = []
    try:
        job = subprocess.Popen(words)
        # A broker keeps for a client what comes after it asked for the first time.
        _wait(lambda: durable(archive / "spool") > 0, 300)
        parts = np.array_split(np.arange(len(sent)), len(BROKEN))
        for part, kill in zip(parts, BROKEN, strict=True):
            before = durable(archive / "spool")
            publish(broker, ((f"pass/{sent[n][1]}/up", sent[n][2]) for n in part.tolist()))
            if kill == "broker":
                broker.save()
                broker.stop(signal.SIGKILL)
                broker.start()
            else:
                # Some of the part came, and batches go on: one is cut off, not a beginning. (A station of the sample
                # dies, and is waited for while the days of the messages go by in minutes: little may be committed.)
                _wait(lambda before=before, part=part: durable(archive / "spool") > before + len(part) // 2, 600)
                batches = _batches(archive)
                _wait(lambda batches=batches: _batches(archive) > batches + 1, 600)
            if kill == "job":
                job.kill()
                job.wait()
                job = subprocess.Popen(words)
            if kill == "Spark":
                os.kill(int((archive / STREAM / "jvm").read_text().split()[0]), signal.SIGKILL)
            kills.append({"killed": kill, "batches": _batches(archive)})
        _wait(lambda: _messages(archive) >= len(sent), 600)
        job.terminate()
        job.wait(120)
        subprocess.run([*words[:7], "--until-idle", "--mqtt", broker.url], check=True)
    finally:
        job.kill()
        broker.stop()
    opened = Archive.open(archive)
    ledger = ledger_of(opened, stream_id(archive / STREAM / "checkpoint"))
    rows = sum(opened.readings(name) for name in opened.variables)
    return {
        "messages": len(sent),
        "kills": kills,
        "readings_sent": 9 * len(sent),
        "readings_in_archive": rows,
        "complete": rows == 9 * len(sent),
        "ledger": ledger.describe(),
        "balance": ledger.balance,
        "seconds": time.perf_counter() - began,
        "batch_bytes": sizes.batch_bytes,
    }


def _batches(archive: Path) -> int:
    """Return the number of the last batch that was done, -1 where none was."""
    commits = archive / STREAM / "checkpoint" / "commits"
    return max((int(path.name) for path in commits.glob("[0-9]*")), default=-1)


def _messages(archive: Path) -> int:
    spool = archive / "spool"
    first = min((int(path.stem.partition("-")[2]) for path in spool.glob("segment-*.spool")), default=1)
    whole = first - 1
    for batch in frames(spool, first - 1, durable(spool)):
        whole += int((batch.column("kind").to_numpy() == MESSAGE).sum())
    return whole


def _wait(true: Callable[[], bool], within_s: float) -> None:
    until = time.monotonic() + within_s
    while not true():
        if time.monotonic() > until:
            message = f"nothing happened within {within_s:g} s"
            raise TimeoutError(message)
        time.sleep(0.5)


def measure(sizes: Sizes, notify: Tell) -> dict[str, Any]:
    """Return what was measured of each part."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sent = sample(folder, max(sizes.messages, sizes.steady))
        few = sent[: sizes.messages]
        found: dict[str, Any] = {}
        parts: tuple[tuple[str, Callable[[], dict[str, Any]]], ...] = (
            ("closing", lambda: closing(few, folder, deployment_file(folder))),
            ("watermark", lambda: beside_a_watermark(few, folder, deployment_file(folder), sizes, notify)),
            ("broker", lambda: through_a_broker(few, folder / "broker", sizes)),
            ("steady", lambda: steady(sent[: sizes.steady], folder / "steady", sizes)),
            ("visible", lambda: visible(folder / "visible", sizes)),
        )
        for place, (part, run) in enumerate(parts):
            notify(part, place / len(parts))
            found[part] = run()
        return found


def tables(measured: Mapping[str, Any]) -> list[Table]:
    """Return the tables that people read."""
    found: list[Table] = []
    for part, content in measured.items():
        title = f"Streaming: {part}"
        if "rows" in content:
            rows: list[dict[str, Any]] = content["rows"]
            found.append((title, tuple(rows[0]), [tuple(row.values()) for row in rows]))
        else:
            found.append((title, ("what", "measured"), list(content.items())))
    return found


def main() -> None:
    """Measure by itself."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("part", choices=("closing", "watermark", "broker", "steady", "visible"))
    parser.add_argument("--messages", type=int, default=Sizes().messages)
    given = parser.parse_args()
    sizes = Sizes(messages=given.messages, steady=given.messages)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        sent = sample(folder, given.messages) if given.part != "visible" else []
        runs = {
            "closing": lambda: closing(sent, folder, deployment_file(folder)),
            "watermark": lambda: beside_a_watermark(sent, folder, deployment_file(folder), sizes, lambda *_: None),
            "broker": lambda: through_a_broker(sent, folder / "broker", sizes),
            "steady": lambda: steady(sent, folder / "steady", sizes),
            "visible": lambda: visible(folder / "visible", sizes),
        }
        print(json.dumps(runs[given.part](), indent=1))


if __name__ == "__main__":
    main()
