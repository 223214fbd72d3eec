"""Runs of `hypergrid ingest` that are killed (-9) at random moments: the driver, a worker of Spark, or its JVM.

`Proof` makes a network that delivers its files one after the other, with rows that are spoilt, come twice, or come once
more with other values. Each delivery is ingested by the command line, killed once, and run again; the archive must come
to be what an undisturbed one is, and all readings must be somewhere.
"""

import os
import random
import re
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal

import numpy as np

from hypergrid.archive import Archive
from ingest.job import IngestReport, ingest

Victim = Literal["driver", "driver on Spark", "worker", "JVM"]
Text = Callable[..., bytes]
Told = dict[str, list[tuple[object, ...]]]
STATIONS: Final = ("1", "2", "3")
WIDTH: Final = 9
"""Values of a row."""
START: Final = 1_190_246_400
PATIENCE_S: Final = 900.0
"""On a machine that is busy with other things Spark may take minutes to start."""


@dataclass
class Ledger:
    """What was delivered, and where all of it is."""

    readings: int = 0
    archive: int = 0
    superseded: int = 0
    rejects: int = 0
    duplicates: int = 0

    def describe(self) -> str:
        """Return it in a line."""
        return (
            f"{self.readings} readings in = {self.archive} in the archive + {self.superseded} superseded (retained) + "
            f"{self.rejects} rejects + {self.duplicates} exact duplicates"
        )

    def is_balanced(self) -> bool:
        """Return whether nothing is lost, and nothing counted twice."""
        return self.readings == self.archive + self.superseded + self.rejects + self.duplicates


@dataclass
class Proof:
    """A network, an archive that is killed, and one that is not."""

    folder: Path
    deployment_text: str
    make_text: Text
    rows: int = 300
    moments: random.Random = field(default_factory=lambda: random.Random(2010))
    delivered: int = 0
    killed: dict[str, int] = field(default_factory=dict)
    """Runs that were alive when they, or a part of them, were killed, by victim."""
    finished: int = 0
    """Of them, those that had committed before, or went on without their worker."""
    readings: int = 0

    def __post_init__(self) -> None:
        self.folder.mkdir()
        text = self.deployment_text.replace("interval_s = 120.0", 'interval_s = 120.0\narrivals = "arrivals.csv"')
        (self.folder / "deployment.toml").write_text(text)
        self._before: dict[str, list[bytes]] = {}
        self._arrivals: list[str] = ["station,time,arrival"]

    @property
    def disturbed(self) -> Path:
        """The archive whose runs are killed."""
        return self.folder / "disturbed"

    @property
    def undisturbed(self) -> Path:
        """The archive whose runs are not."""
        return self.folder / "undisturbed"

    def deliver(self) -> Path:
        """Write the next files; return their folder."""
        folder = self.folder / f"delivery-{self.delivered:03d}"
        folder.mkdir()
        for station in STATIONS:
            lines = self.make_text(station, self.rows, seed=self.delivered).splitlines(keepends=True)
            first = START + int(station) + 120 * self.rows * self.delivered
            lines = [_stamped(line, first + 120 * place) for place, line in enumerate(lines)]
            mine = list(lines)
            self._arrivals += [f"{station},{first + 120 * n},{first + 120 * n + 60}" for n in range(self.rows)]
            if before := self._before.get(station):
                # Some rows of the last delivery come twice, others with another value.
                mine += before[10:30]
                mine += [_changed(line) for line in before[40:45]]
            mine[self.rows // 2] = b"spoilt\n"
            self._before[station] = lines
            (folder / f"pass-{station}-{self.delivered:03d}.txt").write_bytes(b"".join(mine))
            self.readings += len(mine) * WIDTH
        (self.folder / "arrivals.csv").write_text("\n".join(self._arrivals) + "\n")
        self.delivered += 1
        return folder

    def kill(self, victim: Victim, *, now_ns: int) -> bool:
        """Deliver, ingest and kill at a random moment; run again, and once undisturbed.

        Tell whether the run was alive then.
        """
        folder = self.deliver()
        alive, code, said = self._run_and_kill(folder, victim)
        self.killed[victim] = self.killed.get(victim, 0) + alive
        assert "Traceback" not in said, said
        driver = victim in ("driver", "driver on Spark")
        assert code in ((-9, 0) if driver else (0, 1)), said
        committed = self.disturbed.exists() and len(_batches(Archive.open(self.disturbed))) == self.delivered
        assert committed or code != 0
        assert code != 1 or "run it again" in said, said
        self.finished += alive and committed
        again = self._ingest(folder, self.disturbed, now_ns)
        # All or nothing: what was committed needs nothing more, what was not needs everything.
        assert (again.snapshot is None) == committed
        assert self._ingest(folder, self.undisturbed, now_ns).snapshot is not None
        assert [path.name for path in (self.disturbed / "staging").iterdir()] == ["lock"]
        assert not list((self.disturbed / "raw").glob("*/.partial-*"))
        return alive

    def ledger(self, path: Path) -> Ledger:
        """Return what became of all that was delivered, by reading the whole archive and its snapshots."""
        archive = Archive.open(path)
        names = archive.variables
        return Ledger(
            readings=self.readings,
            archive=sum(len(archive.read(name)) for name in names),
            superseded=sum(len(archive.read(name, superseded=True)) for name in names),
            rejects=WIDTH * len(list(archive.rejects())),
            duplicates=sum(one.metadata["counts"]["duplicates"] for one in _batches(archive)),
        )

    def _ingest(self, folder: Path, archive: Path, now_ns: int) -> IngestReport:
        return ingest([folder], archive, deployment=self.folder / "deployment.toml", engine="inprocess", now_ns=now_ns)

    def _run_and_kill(self, folder: Path, victim: Victim) -> tuple[bool, int, str]:
        engine = "inprocess" if victim == "driver" else "spark"
        arguments = [sys.executable, "-m", "hypergrid", "ingest", str(folder), "--archive", str(self.disturbed)]
        arguments += ["--deployment", str(self.folder / "deployment.toml"), "--engine", engine]
        with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as child:
            assert child.stdout is not None
            number = self._await(child, victim)
            alive = number is not None
            if number is not None:
                with suppress(ProcessLookupError):
                    os.kill(number, 9)
            said = child.stdout.read().decode()
            return alive, child.wait(timeout=PATIENCE_S), said

    def _await(self, child: "subprocess.Popen[bytes]", victim: Victim) -> int | None:
        """Wait until a random moment of the work of the victim; return its number, None where it ended before."""
        wanted = {"driver": _locked, "driver on Spark": _locked, "worker": _worker, "JVM": _jvm}[victim]
        longest_s = {"driver": 0.7, "driver on Spark": 7.0, "worker": 1.0, "JVM": 6.0}[victim]
        until = time.perf_counter() + PATIENCE_S
        while wanted(child.pid, self.disturbed) is None and child.poll() is None:
            assert time.perf_counter() < until
            time.sleep(0.01)
        time.sleep(self.moments.uniform(0.0, longest_s))
        # Asked anew, for the first JVM only assembles the command of the real one.
        return wanted(child.pid, self.disturbed) if child.poll() is None else None


def without_clock(told: Told) -> Told:
    """Return all that an archive holds but when its files came, which the command line takes from the clock."""
    files: list[tuple[object, ...]] = [(re.sub(r"ingested_ns=\d+", "", str(one)),) for (one,) in told["files"]]
    return {**told, "files": files}


def _stamped(line: bytes, epoch: int) -> bytes:
    """Return a row of SensorScope's text at another time."""
    cells = line.split(b" ")
    clock = str(np.datetime64(epoch + 7200, "s")).replace("-", " ").replace("T", " ").replace(":", " ")
    return b" ".join([cells[0], *clock.encode().split(b" "), str(epoch).encode(), *cells[8:]])


def _changed(line: bytes) -> bytes:
    """Return a row with another value in its last column."""
    cells = line.rstrip(b"\n").split(b" ")
    return b" ".join([*cells[:-1], b"1.25\n"])


def _batches(archive: Archive) -> list[Any]:
    return [one for one in archive.snapshots if one.metadata.get("counts", {}).get("files")]


def _locked(process: int, archive: Path) -> int | None:
    """Return the driver, once it has the archive."""
    return process if (archive / "staging" / "lock").exists() and _holds(process, archive) else None


def _holds(process: int, archive: Path) -> bool:
    lock = str(archive / "staging" / "lock")
    try:
        return any(os.readlink(entry) == lock for entry in Path(f"/proc/{process}/fd").iterdir())
    except OSError:
        return False


def _jvm(process: int, _archive: Path) -> int | None:
    return next((one for one, name in _below(process) if name == "java"), None)


def _worker(process: int, _archive: Path) -> int | None:
    """Return a worker of Spark: below the daemon that its JVM started."""
    below = dict(_below(process))
    jvms = [one for one, name in below.items() if name == "java"]
    daemons = [one for jvm in jvms for one, name in _below(jvm, deep=False) if name != "java"]
    return next((one for daemon in daemons for one, _ in _below(daemon, deep=False)), None)


def _below(process: int, *, deep: bool = True) -> list[tuple[int, str]]:
    """Return the children of a process, and theirs, with their names."""
    found = []
    try:
        tasks = list(Path(f"/proc/{process}/task").iterdir())
        children = [int(text) for task in tasks for text in (task / "children").read_text().split()]
        for child in children:
            found.append((child, Path(f"/proc/{child}/comm").read_text().strip()))
            found += _below(child) if deep else []
    except OSError:
        pass
    return found
