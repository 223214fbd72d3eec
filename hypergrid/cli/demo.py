"""End-to-end demo, from station files to answers; `hypergrid demo` then serves the page.

The generator and ingest are passed in, so that this module does not import them.
"""

import json
import shutil
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import xarray as xr

from hypergrid.archive.disk.folder import MARKER
from hypergrid.core.result_names import value_of
from hypergrid.formats.results import write
from hypergrid.layers.layer import Layer
from hypergrid.plots import plot
from hypergrid.query import OpenArchive, open_archive

OnProgress = Callable[[str, float], None]


Truth = Callable[..., np.ndarray[Any, np.dtype[np.float64]]]
"""`truth_mean(variable, start, stop, lon, lat)`: mean of the sample's truth over a period at places."""


@dataclass(frozen=True)
class DemoSteps:
    """Functions and data that the demo combines."""

    generate: Callable[[Path, OnProgress], None]
    """Writes the sample network's station files into a folder."""
    ingest: Callable[[Path, Path, OnProgress], Mapping[str, Any]]
    """Ingests a folder of files into an archive; returns its report."""
    terrain: Callable[[Path], Layer]
    """Writes the sample's terrain to a raster file, and reads it."""
    truth_mean: Truth
    queries: Path
    """Folder of the reference queries."""


@dataclass
class StageTimer:
    """Time taken by each stage [s]."""

    seconds: dict[str, float] = field(default_factory=dict)

    @contextmanager
    def time_stage(self, name: str, notify: OnProgress) -> Iterator[Callable[[float], None]]:
        started_s = time.monotonic()
        notify(name, 0.0)
        yield lambda fraction: notify(name, fraction)
        notify(name, 1.0)
        self.seconds[name] = round(time.monotonic() - started_s, 2)


def run_demo(folder: Path, rooms: DemoSteps, notify: OnProgress) -> dict[str, Any]:
    """Generate the sample once, ingest it, answer two queries, and compare with the truth.

    The queries are Q1 and the radiation query; only Q1 is compared.

    Parameters
    ----------
    folder
        Output folder: `stations/`, `terrain.tif`, `archive/`, and `q1` and `radiation` as .nc and .png.
    rooms
        Generator, ingest, terrain and truth.
    notify
        Called with the progress of each stage.

    Returns
    -------
    Summary: the ingest report, the error of Q1 [K], seconds per stage, and the paths written.
    """
    clock, archive_folder, stations = StageTimer(), folder / "archive", folder / "stations"
    folder.mkdir(parents=True, exist_ok=True)
    with clock.time_stage("generate the sample", notify) as done:
        if not stations.is_dir():
            rooms.generate(stations, lambda _, fraction: done(fraction))
    if archive_folder.is_dir():
        # Each demo does the whole job: ingest would skip the files of the last one. Archives of earlier versions are
        # replaced as well; a folder that is not an archive is refused.
        if not (archive_folder / MARKER).is_file():
            open_archive(archive_folder)
        shutil.rmtree(archive_folder)
    with clock.time_stage("ingest", notify):
        report = rooms.ingest(stations, archive_folder, notify)
    with clock.time_stage("add the terrain", notify):
        open_archive(archive_folder).store.add_layer(rooms.terrain(folder / "terrain.tif"), now_ns=time.time_ns())
    archive = open_archive(archive_folder)
    q1 = _answer_query(archive, rooms.queries / "q1.json", folder / "q1", clock, notify)
    _answer_query(archive, rooms.queries / "radiation.json", folder / "radiation", clock, notify)
    with clock.time_stage("compare with the truth", notify):
        errors = compare(archive, q1, _read_document(rooms.queries / "q1.json"), rooms.truth_mean)
    outputs = [str(folder / f"{name}.{ending}") for name in ("q1", "radiation") for ending in ("nc", "png")]
    return {"ingest": dict(report), "q1": errors, "seconds": clock.seconds, "outputs": outputs}


def _read_document(path: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(path.read_text())
    return document


def _answer_query(archive: OpenArchive, path: Path, out: Path, clock: StageTimer, notify: OnProgress) -> xr.Dataset:
    with clock.time_stage(f"query {path.stem}", notify) as done:
        dataset = archive.query(_read_document(path)).compute(progress=done)
    with clock.time_stage(f"write {path.stem}", notify):
        write(dataset, out.with_suffix(".nc"))
        plot(dataset, stations=list(archive.stations.values())).savefig(out.with_suffix(".png"))
    return dataset


def compare(archive: OpenArchive, q1: xr.Dataset, document: Mapping[str, Any], truth_mean: Truth) -> dict[str, float]:
    """Return the errors (RMSE) of Q1 and of the plain station mean [K].

    Parameters
    ----------
    archive
        Archive with the stations' readings.
    q1
        The computed surface, one time cell.
    document
        Q1's JSON form; the plain mean uses its cleaning and its period.
    truth_mean
        Truth of the sample.
    """
    start, stop = q1["time_bounds"].to_numpy()[0]
    lat, lon = np.meshgrid(q1["lat"].to_numpy(), q1["lon"].to_numpy(), indexing="ij")
    truth = truth_mean("air_temperature", start, stop, lon, lat)
    steps = [step for step in document["steps"] if step["op"] == "convert"]
    steps.append({"op": "aggregate", "function": "mean", "time": "all", "params": {"min_coverage": 0.0}})
    plain = archive.query({"variable": document["variable"], "steps": steps, "clip": document["clip"]}).compute()
    flat = float(np.nanmean(value_of(plain).to_numpy()))
    return {
        "rmse_K": _root_mean_square(value_of(q1).to_numpy()[0] - truth),
        "rmse_plain_mean_K": _root_mean_square(flat - truth),
    }


def _root_mean_square(values: np.ndarray[Any, np.dtype[np.float64]]) -> float:
    return float(np.sqrt(np.mean(np.square(values))))
