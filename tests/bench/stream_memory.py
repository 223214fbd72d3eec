"""Memory of a stream whose rows wait for hours: what its processes hold, with a limit and without.

A few stations report hours late, so every slice waits for them. The messages are in the spool before a run begins, and
each run is a process of its own, which is watched from outside. What an idle run of a few messages holds is taken off.
Run by itself, `python -m tests.bench.stream_memory ARCHIVE DEPLOYMENT BYTES` streams what is in the spool of an archive
and prints how it went.
"""

import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np

from hypergrid.archive import Archive
from ingest.batch.archive_session import locked_archive
from ingest.deployment.deployment_file import load
from ingest.sources.spool import Spool, SpoolRecord
from ingest.streaming.stream_commit import STREAM, StreamStatus
from ingest.streaming_service import StreamOptions, stream
from tests.bench.kriging_figures import Tell
from tests.bench.process_memory import run_watched

NS: Final = 10**9
BEGIN_S: Final = 1_700_000_000 // 3600 * 3600
"""When the first message came [s since 1970 UTC]."""
FEW: Final = 12
"""Rounds of messages that an idle run has."""
LEAST_BYTES: Final = 10**9
"""What a run without a limit must hold over an idle one [bytes]."""
SURPLUS: Final = 0.2
"""Share of the limit by which the peak may lie above it."""
ROOT: Final = Path(__file__).resolve().parents[2]


@dataclass(frozen=True)
class Waiting:
    """A network whose slices wait."""

    stations: int = 1000
    late: int = 10
    """Stations among them that report late."""
    late_s: int = 12600
    length_s: int = 4 * 3600
    """How long messages come [s]."""
    interval_s: int = 20
    variables: int = 30
    slice_s: int = 120
    limit: str | None = None
    """Limit of memory; None: a quarter of what the Python processes of the unlimited run hold over an idle one."""
    kills: int = 10
    batch_bytes: int = 64 << 20
    trigger_s: float = 10.0

    @property
    def rounds(self) -> int:
        return self.length_s // self.interval_s


def write_deployment(path: Path, case: Waiting, memory: str | None) -> Path:
    """Write the deployment of a case."""
    names = [f"v{at:02}" for at in range(case.variables)]
    limit = "" if memory is None else f'memory = "{memory}"\n'
    variables = "".join(f'[[variable]]\nname = "{name}"\nunit = "degC"\n' for name in names)
    stations = "".join(
        f'[[station]]\nid = "{at}"\nlon = {7 + at % 100 / 1000}\nlat = {46 + at // 100 / 1000}\n'
        for at in range(case.stations)
    )
    columns = "".join(f'{name} = "{name}"\n' for name in names)
    path.write_text(
        f'[network]\nname = "waiting"\nslice_s = {case.slice_s}\n'
        f"[stream]\nidle_s = {2 * case.length_s}\n{limit}"
        f'[[feed]]\nname = "net"\nformat = "messages"\ntopic = "net/{{station}}/up"\ninterval_s = {case.interval_s}\n'
        f"[feed.columns]\n{columns}{variables}{stations}"
    )
    return path


def messages(case: Waiting) -> Iterator[list[SpoolRecord]]:
    """Give the messages of each round, in order of arrival."""
    draw = np.random.default_rng(25)
    head = '{"station":"%d","time":%d,'
    body = ",".join(f'"v{at:02}":%.2f' for at in range(case.variables)) + "}"
    order = draw.permutation(case.stations).tolist()
    delays_s = [case.late_s if station < case.late else 0 for station in range(case.stations)]
    for turn in range(case.rounds):
        now_s = BEGIN_S + (turn + 1) * case.interval_s
        values = draw.normal(10.0, 5.0, (case.stations, case.variables)).tolist()
        step_ns = case.interval_s * NS // case.stations
        yield [
            SpoolRecord(
                now_s * NS + at * step_ns, "net", f"net/{station}/up",
                (head % (station, now_s - delays_s[station]) + body % tuple(row)).encode(), -1,
            )
            for at, (station, row) in enumerate(zip(order, values, strict=True))
        ]  # fmt: skip


def make_archive(folder: Path, case: Waiting, *, rounds: int) -> Path:
    """Make an archive whose spool has the messages of the first rounds."""
    archive = folder / "archive"
    deployment = write_deployment(folder / "deployment.toml", case, None)
    with locked_archive(archive, load(deployment), now_ns=1, on_wait=lambda: None):
        pass
    with Spool.open(archive / "spool") as spool:
        for turn, records in zip(range(rounds), messages(case), strict=False):
            spool.append(records)
            if turn % 20 == 0:
                spool.flush()
        spool.flush()
    return archive


def run_once(archive: Path, deployment: Path, batch_bytes: int, trigger_s: float) -> dict[str, Any]:
    """Stream what is in the spool, in this process; return how it went."""
    marks: list[tuple[int, int, int, float]] = []
    most: dict[str, int] = {"held": 0, "held_bytes": 0, "spilled": 0, "disk_bytes": 0, "closed_early": 0}

    def note(status: StreamStatus) -> None:
        for join in status.joins.values():
            for name in most:
                most[name] = max(most[name], int(getattr(join, name)))
        if not marks or status.batches > marks[-1][0]:
            closed = -1 if status.last_slice_ns is None else status.last_slice_ns // NS
            marks.append((status.batches, status.ledger.upto, closed, time.perf_counter()))

    options = StreamOptions(deployment, until_idle=True, batch_bytes=batch_bytes, trigger_s=trigger_s)
    report = stream(archive, options, on_status=note)
    steps_s = np.diff([mark[3] for mark in marks])
    return {
        "seconds": report.seconds, "batches": report.batches, "longest batch s": float(max(steps_s, default=0.0)),
        "ledger": asdict(report.ledger), "closed": [mark[1:3] for mark in marks], **most,
    }  # fmt: skip


def command(archive: Path, deployment: Path, batch_bytes: int, trigger_s: float) -> list[str]:
    """Return the command that streams in a process of its own."""
    return [
        sys.executable,
        "-m",
        "tests.bench.stream_memory",
        str(archive),
        str(deployment),
        str(batch_bytes),
        str(trigger_s),
    ]


def watched(archive: Path, deployment: Path, batch_bytes: int, trigger_s: float) -> dict[str, Any]:
    """Stream in a process of its own; return how it went, and what its processes held at most."""
    printed, peaks = run_watched(command(archive, deployment, batch_bytes, trigger_s), ROOT)
    return {**json.loads(printed.splitlines()[-1]), **peaks}


def killed(
    archive: Path, deployment: Path, batch_bytes: int, trigger_s: float, *, kills: int, seed: int = 25
) -> dict[str, Any]:
    """Stream, and kill it (-9) again and again: Python, Spark or both; return how often rows were on disk then."""
    draw = random.Random(seed)
    words = command(archive, deployment, batch_bytes, trigger_s)
    with_rows = done = 0
    while True:
        job = subprocess.Popen(words, cwd=ROOT, stdout=subprocess.DEVNULL, start_new_session=True)
        before = batches_done(archive)
        try:
            while job.poll() is None and batches_done(archive) < before + 2:
                time.sleep(0.1)
            job.wait(0.0 if done < kills and job.poll() is None else None)
        except subprocess.TimeoutExpired:
            time.sleep(draw.random() * 2)
            with_rows += any((archive / STREAM).glob("held/*/*.rows"))
            what = draw.choice(("python", "spark", "both"))
            java = int((archive / STREAM / "jvm").read_text().split()[0])
            for process, kind in ((java, "spark"), (job.pid, "python")):
                if what in (kind, "both"):
                    os.kill(process, signal.SIGKILL)
            if what == "spark":
                # It starts Spark again by itself; the next kill is of that one.
                time.sleep(draw.random() * 5)
                job.kill()
            job.wait()
            done += 1
            continue
        if job.returncode:
            message = f"a stream ended with {job.returncode} after {done} kills"
            raise RuntimeError(message)
        return {"kills": done, "kills with rows on disk": with_rows}


def batches_done(archive: Path) -> int:
    """Return how many batches Spark counts as done."""
    commits = archive / STREAM / "checkpoint" / "commits"
    return max((int(path.name) + 1 for path in commits.glob("[0-9]*")), default=0)


def differences(first: Path, second: Path) -> list[str]:
    """Compare two archives value by value; return the variables that differ."""
    archives = Archive.open(first), Archive.open(second)
    names = sorted({*archives[0].variables, *archives[1].variables})
    found = []
    for name in names:
        tables = []
        for archive in archives:
            read = archive.read(name)
            stations = np.array([series.station for series in read.series])[read.index]
            order = np.lexsort((read.time_ns, stations))
            tables.append([column[order] for column in (stations, read.time_ns, read.value, read.flag)])
        if not all(np.array_equal(*pair, equal_nan=pair[0].dtype.kind == "f") for pair in zip(*tables, strict=True)):
            found.append(name)
    return found


def behind_s(case: Waiting, closed: Sequence[Sequence[int]]) -> list[int]:
    """Return how far the newest slice that closed was behind the newest message, after each batch [s].

    The beginning, when only those that are late have closed any, and the end, when all close, are left out.
    """
    found = []
    for upto, newest_s in closed:
        arrival_s = BEGIN_S + (1 + (upto - 1) // case.stations) * case.interval_s
        if newest_s > BEGIN_S + case.slice_s and upto < case.stations * case.rounds:
            found.append(arrival_s - newest_s)
    return found


def measure(case: Waiting, notify: Tell) -> dict[str, Any]:
    """Return what the runs of a case held, idle, without a limit, with one, and when killed."""
    with tempfile.TemporaryDirectory(prefix="bench-waiting-") as scratch:
        folder = Path(scratch)
        for name, rounds in (("few", FEW), ("all", case.rounds)):
            notify(f"write the spool: {name}", 0.0)
            (folder / name).mkdir()
            make_archive(folder / name, case, rounds=rounds)
        runs: dict[str, dict[str, Any]] = {}
        archives = {}
        limit = case.limit

        def start(name: str, spool: str, memory: str | None) -> tuple[Path, Path, int, float]:
            notify(name, 0.0)
            archives[name] = folder / name.replace(" ", "-")
            shutil.copytree(folder / spool / "archive", archives[name])
            deployment = write_deployment(folder / f"{name}.toml", case, memory)
            return archives[name], deployment, case.batch_bytes, case.trigger_s

        runs["idle"] = watched(*start("idle", "few", None))
        runs["no limit"] = watched(*start("no limit", "all", None))
        limit = case.limit or f"{_over(runs, 'no limit', 'python_sum_bytes') // 4_000_000}MB"
        runs["limit"] = watched(*start("limit", "all", limit))
        limited = {"differs": differences(archives["no limit"], archives["limit"])}
        shutil.rmtree(archives["limit"])
        kills = killed(*start("killed", "all", limit), kills=case.kills) if case.kills else {}
        if kills:
            kills["differs"] = differences(archives["no limit"], archives["killed"])
    for name, run in runs.items():
        delays_s = behind_s(case, run.pop("closed"))
        run["behind s, median"], run["behind s, most"] = (
            (float(np.median(delays_s)), max(delays_s)) if delays_s else (None, None)
        )
        for what in ("python_sum_bytes", "jvm_bytes", "sum_bytes"):
            run[f"{what[:-6]}_over_idle_bytes"] = _over(runs, name, what)
    limit_bytes = int(limit.removesuffix("MB")) * 1_000_000 if limit.endswith("MB") else None
    above = None if limit_bytes is None else runs["limit"]["python_sum_over_idle_bytes"] / limit_bytes
    return {
        "case": asdict(case), "limit": limit, "runs": runs, "limited": limited, "killed": kills,
        "share of the limit": above, "met": above is not None and above <= 1 + SURPLUS,
        f"at least {LEAST_BYTES / 1e9:g} GB without": _over(runs, "no limit", "python_sum_bytes") >= LEAST_BYTES,
    }  # fmt: skip


def _over(runs: Mapping[str, Mapping[str, Any]], name: str, what: str) -> int:
    """Return by how much a run exceeds an idle one."""
    return int(runs[name][what] - runs["idle"][what])


def tables(measured: Mapping[str, Any]) -> list[tuple[str, tuple[str, ...], list[tuple[object, ...]]]]:
    """Return the tables that people read."""
    runs: Mapping[str, Mapping[str, Any]] = measured["runs"]
    names = [name for name in next(iter(runs.values())) if name not in {"ledger", "python_each_bytes"}]
    rows = [(name, *(run[name] for run in runs.values())) for name in names]
    proofs: Sequence[tuple[object, ...]] = [
        ("limit", measured["limit"]), ("peak over idle, of the limit", measured["share of the limit"]),
        ("differs from no limit", measured["limited"]["differs"]), *measured["killed"].items(),
    ]  # fmt: skip
    return [
        ("Memory of a stream that waits", ("what", *runs), rows),
        ("Beside a run without a limit", ("what", "measured"), list(proofs)),
    ]


def main() -> None:
    """Stream once, and print how it went."""
    print(json.dumps(run_once(Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), float(sys.argv[4]))))


if __name__ == "__main__":
    main()
