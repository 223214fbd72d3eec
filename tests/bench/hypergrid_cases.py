"""What the thesis's figures are measured on: the sample network as station files and as an archive, and its queries."""

import json
import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

from ingest.job import ingest
from station_data.generate import generate
from tests.bench.hypergrid_script import Wanted

QUERIES = Path(__file__).resolve().parents[2] / "station_data" / "queries"
NOW_NS = 1_200_000_000 * 10**9

Tell = Callable[[str, float], None]


@dataclass(frozen=True)
class Engine:
    """Sizes of the comparison of the engine with bare kernels."""

    stations: int = 200
    side: int = 200
    slices: int = 1000


@dataclass(frozen=True)
class Growth:
    """Sizes of a surface that grows."""

    stations: int = 23
    side: int = 200
    slices: int = 10_000
    allowed_bytes: int = 16 * 2**30

    def describe(self) -> str:
        """Return the sizes in words."""
        return f"{self.stations} stations, {self.side} x {self.side} cells, {self.slices:,} slices of 5 minutes"


@dataclass(frozen=True)
class Sizes:
    """How large everything is; the thesis's sizes where nothing else is said."""

    start: str = "2007-09-20"
    days: int = 28
    hours: int = 72
    """Period of Q1; Q3's is twice as long."""
    side: int = 23
    """Cells along each side of Q1's grid; Q4's has the square root of 2 as many."""
    walked_side: int = 400
    """Cells along each side of the map of Q1 that is walked."""
    dear_side: int = 150
    """Cells along each side of the walked map of dear cells."""
    engine: Engine = Engine()
    growth: Growth = Growth()
    seeds: int = 100
    """Walks, and choices of cells at random, that a median is of."""
    run_s: float = 1.0
    """Least processor time of a timed run of a strategy [s]; shorter runs are repeated."""

    def describe(self) -> str:
        """Return the sizes in words."""
        return f"sample network of 24 stations, {self.days} days from {self.start}, readings each 2 minutes"


@dataclass(frozen=True)
class Sample:
    """The sample network, made for a run."""

    stations: Path
    """Folder of the station files: `csv/`, `sensorscope/`, `stations.csv`."""
    archive: Path
    sizes: Sizes

    def query(self, name: str) -> dict[str, Any]:
        """Return a reference query in its JSON form, cut to the sizes."""
        document: dict[str, Any] = json.loads((QUERIES / f"{name}.json").read_text())
        if self.sizes == Sizes():
            return document
        begin = np.datetime64("2007-10-01T00:00")
        stop = begin + np.timedelta64(self.sizes.hours * (2 if name == "q3" else 1), "h")
        side = math.ceil(self.sizes.side * math.sqrt(2)) if name == "q4" else self.sizes.side
        for step in document["steps"]:
            if "grid" in step:
                step["grid"]["shape"] = [side, side]
        return {**document, "clip": {"time": [f"{begin}Z", f"{stop}Z"]}}


@contextmanager
def sample(sizes: Sizes, notify: Tell) -> Iterator[Sample]:
    """Make the sample network, and bring it into an archive, for as long as it is needed."""
    with TemporaryDirectory() as folder:
        stations, archive = Path(folder) / "stations", Path(folder) / "archive"
        notify("make the sample network", 0.0)
        generate(stations, start=sizes.start, days=sizes.days)
        notify("make the sample network", 0.5)
        ingest(
            [stations / "sensorscope"],
            archive,
            deployment=stations / "deployment.toml",
            engine="inprocess",
            now_ns=NOW_NS,
        )
        notify("make the sample network", 1.0)
        yield Sample(stations, archive, sizes)


def wanted(document: dict[str, Any]) -> Wanted:
    """Return what the script needs to know of a query of the kind of Q1."""
    cleaning, _, interpolation, _ = document["steps"]
    grid, variogram = interpolation["grid"], interpolation["params"]["variogram"]
    start, stop = (bound.removesuffix("Z") for bound in document["clip"]["time"])
    return Wanted(
        document["variable"], start, stop, **cleaning["params"],
        west=_degrees(grid["lon"]), south=_degrees(grid["lat"]), step=1 / 3600,
        rows=grid["shape"][0], columns=grid["shape"][1], neighbours=interpolation["params"]["neighbours"],
        psill=variogram["psill"], range_m=variogram["range_m"], nugget=variogram["nugget"],
    )  # fmt: skip


def _degrees(text: str) -> float:
    degrees, minutes, seconds = map(float, text.split(":"))
    return degrees + minutes / 60 + seconds / 3600
