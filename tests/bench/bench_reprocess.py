"""Three years of 200 stations once more: quality and a daily kriged mean, by one core and by two, killed and resumed.

`measure(case, tell)` makes an archive (`reprocess_archive`), and on copies of it runs the command line: undisturbed
with one core and with two, and with two killed twice, with Java and all workers, once while flags are at work and once
while pieces of the surface are. Their flags are compared with those of `hypergrid quality`, reading by reading, and
their surfaces with `Query.compute`, cell by cell.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import numpy as np
import xarray as xr

import hypergrid as hg
from hypergrid.archive import Archive, Branch
from hypergrid.core.errors import HyperGridError
from ingest.reprocess.job import FOLDER, READINGS_OF_A_PART
from ingest.reprocess.reflag import run_quality
from tests.bench.reprocess_archive import VARIABLE, make_archive

DEPLOYMENT: Final = """
[network]
name = "years"
slice_s = 600
[[feed]]
name = "bench"
files = "*.csv"
format = "csv"
[quality.air_temperature]
gross_range = {suspect = [-30, 35], fail = [-50, 50]}
"""
PATIENCE_S: Final = 3600.0
PROGRAM: Final = """
import sys
from hypergrid.formats import partitioned as in_parts
from hypergrid.cli.main import main
from ingest.reprocess import job as reprocessing
in_parts.READINGS_OF_A_PIECE = reprocessing.READINGS_OF_A_PART = int(sys.argv.pop(1))
main()
"""


@dataclass(frozen=True)
class Sizes:
    """How large the archive is, and the grid."""

    days: int = 1095
    stations: int = 200
    rows: int = 70
    columns: int = 100
    part: int = READINGS_OF_A_PART
    """Readings of a part, and of a piece."""
    cores: tuple[int, ...] = (1, 2)

    @property
    def query(self) -> dict[str, Any]:
        """A kriged mean of each day, as JSON."""
        grid = {"lon": 7.0, "lat": 46.0, "step": f"{3600 / self.columns:g}arcsec", "shape": [self.rows, self.columns]}
        model = {"model": "exponential", "psill": 20.0, "range_m": 30000.0, "nugget": 0.5}
        return {
            "variable": VARIABLE,
            "steps": [
                {"op": "aggregate", "function": "mean", "time": "1day"},
                {"op": "interpolate", "method": "ordinary_kriging", "grid": grid, "params": {"variogram": model}},
            ],
        }


CASES: Final[Mapping[str, Sizes]] = {
    "all": Sizes(),
    "short": Sizes(days=60, stations=10, rows=7, columns=10, part=20_000, cores=(2,)),
}


def measure(sizes: Sizes | str, notify: Callable[[str, float], None], *, pairs: int = 1) -> dict[str, Any]:
    """Return seconds and readings a second of each run, and whether all ended in the same flags and surfaces.

    Parameters
    ----------
    sizes
        Or the name of a case.
    pairs
        Undisturbed runs with each number of cores; the fastest counts.
    """
    sizes = CASES[sizes] if isinstance(sizes, str) else sizes
    with tempfile.TemporaryDirectory(prefix="hypergrid-reprocess-") as scratch:
        folder = Path(scratch)
        notify("make the archive", 0.0)
        made = make_archive(folder / "made", days=sizes.days, stations=sizes.stations)
        notify("make the archive", 1.0)
        (folder / "new.toml").write_text(DEPLOYMENT)
        (folder / "daily.json").write_text(json.dumps(sizes.query))
        notify("in this process", 0.0)
        expected, alone = _in_process(folder, sizes)
        notify("in this process", 1.0)
        runs = []
        for cores in sizes.cores:
            name = f"{cores} core{'s' if cores > 1 else ''}"
            notify(name, 0.0)
            found = [_undisturbed(folder, cores, sizes.part, expected) for _ in range(pairs)]
            runs.append(min(found, key=lambda one: float(one["command_s"])))
            notify(name, 1.0)
        notify("killed twice", 0.0)
        killed = _killed(folder, sizes.part, expected)
        notify("killed twice", 1.0)
        return {
            "sizes": asdict(sizes),
            "readings": made.readings(VARIABLE),
            "cells": int(expected.surface.size),
            "in_process": alone,
            "runs": runs,
            "killed": killed,
            "same": all(run["same"] for run in (*runs, killed)),
        }


@dataclass(frozen=True, eq=False)
class _Expected:
    """What every run is to end in."""

    archive: Archive
    surface: xr.DataArray


def _in_process(folder: Path, sizes: Sizes) -> tuple[_Expected, dict[str, float]]:
    path = _copy(folder, "expected")
    begun = time.perf_counter()
    run_quality(path, deployment=folder / "new.toml", now_ns=time.time_ns())
    judged = time.perf_counter()
    surface = hg.open(path).query(sizes.query).compute()["air_temperature"]
    seconds = {"quality_s": judged - begun, "surface_s": time.perf_counter() - judged}
    return _Expected(Archive.open(path), surface), seconds


def _copy(folder: Path, name: str) -> Path:
    path = folder / name
    shutil.rmtree(path, ignore_errors=True)
    return Path(shutil.copytree(folder / "made", path))


def _start(folder: Path, archive: Path, cores: int, part: int) -> subprocess.Popen[str]:
    asked = ["--quality", folder / "new.toml", "--queries", folder / "daily.json", "-o", folder / "daily.nc"]
    command = [sys.executable, "-c", PROGRAM, part, "reprocess", archive, *asked, "--cores", cores, "--json"]
    # A group of its own, so that Java can be killed with it.
    return subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, text=True, start_new_session=True)


def _ended(process: subprocess.Popen[str]) -> dict[str, Any]:
    answer, _ = process.communicate(timeout=PATIENCE_S)
    if process.returncode != 0:
        message = f"hypergrid reprocess ended with status {process.returncode}"
        raise RuntimeError(message)
    told: dict[str, Any] = json.loads(answer)
    return told


def _undisturbed(folder: Path, cores: int, part: int, expected: _Expected) -> dict[str, Any]:
    archive = _copy(folder, "copy")
    begun = time.perf_counter()
    told = _ended(_start(folder, archive, cores, part))
    seconds, readings = told["seconds"], told["judged"]["readings"]
    quality_s = seconds["judge"] + seconds["publish"]
    surface_s = seconds["compute daily.nc"] + seconds["write daily.nc"]
    return {
        "cores": cores,
        "command_s": time.perf_counter() - begun,
        "quality_s": quality_s,
        "publish_s": seconds["publish"],
        "surface_s": surface_s,
        "quality_readings_per_s": readings / quality_s,
        "surface_readings_per_s": readings / surface_s,
        "changed": told["judged"]["changed"],
        "same": _same(archive, folder / "daily.nc", expected),
    }


def _killed(folder: Path, part: int, expected: _Expected) -> dict[str, Any]:
    archive = _copy(folder, "copy")
    opened = Archive.open(archive)

    def judged() -> bool:
        return any(Branch(opened, name).notes for name in Branch.names(opened))

    def computed() -> bool:
        return any((archive / FOLDER).rglob("*.npz"))

    for happened in (judged, computed):
        _kill_once(_start(folder, archive, 2, part), happened)
    told = _ended(_start(folder, archive, 2, part))
    surface = told["surfaces"][0]
    return {
        "kills": 2,
        "parts": told["judged"]["parts"],
        "parts_resumed": told["judged"]["resumed"],
        "pieces": surface["pieces"],
        "pieces_resumed": surface["resumed"],
        "same": _same(archive, folder / "daily.nc", expected),
    }


def _kill_once(process: subprocess.Popen[str], happened: Callable[[], bool]) -> None:
    """Kill a run, with all that it started, as soon as something happened."""
    until = time.monotonic() + PATIENCE_S
    while process.poll() is None and time.monotonic() < until:
        # A branch may be made, or removed, just now.
        with contextlib.suppress(HyperGridError, OSError):
            if happened():
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()
                return
        time.sleep(0.05)
    message = "a run that was to be killed ended before"
    raise RuntimeError(message)


def _same(archive: Path, out: Path, expected: _Expected) -> bool:
    """Return whether flags are equal and values equal but for the order of sums."""
    found = Archive.open(archive)
    for window in found.spans(VARIABLE, 8):
        one, two = (each.read(VARIABLE, window=window, tests=True) for each in (found, expected.archive))
        for column in ("index", "time_ns", "value", "arrival_ns", "flag", "tests"):
            if not np.array_equal(getattr(one, column), getattr(two, column)):
                return False
    with xr.open_dataset(out) as surface:
        close = np.allclose(
            surface["air_temperature"].values, expected.surface.values, rtol=1e-11, atol=1e-11, equal_nan=True
        )
    out.unlink()
    return bool(close) and Branch.names(found) == ()


def tables(measured: Mapping[str, Any]) -> list[tuple[str, tuple[str, ...], list[tuple[object, ...]]]]:
    """Return what people read of it."""
    title = f"{measured['readings']:,} readings and {measured['cells']:,} cells, reprocessed"
    columns = (
        "cores",
        "quality [s]",
        "of it publishing",
        "readings/s",
        "surface [s]",
        "readings/s ",
        "command [s]",
        "same",
    )
    names = (
        "quality_s",
        "publish_s",
        "quality_readings_per_s",
        "surface_s",
        "surface_readings_per_s",
        "command_s",
        "same",
    )
    alone, killed = measured["in_process"], measured["killed"]
    return [
        (title, columns, [(run["cores"], *(run[name] for name in names)) for run in measured["runs"]]),
        ("In one process, without Spark", ("quality [s]", "surface [s]"), [(alone["quality_s"], alone["surface_s"])]),
        (
            "Killed twice, two cores",
            ("parts", "done before the last start", "pieces", "done before", "same"),
            [tuple(killed[name] for name in ("parts", "parts_resumed", "pieces", "pieces_resumed", "same"))],
        ),
    ]
