"""Large queries, each in a fresh process: what its plan projects, and what it takes.

`python -m tests.bench.scale_cases NAME FOLDER SIZE` prints JSON. What a process takes once (libraries, compiled loops)
is there before, by the same query in small.
"""

import ctypes
import json
import resource
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

import numpy as np
import xarray as xr

import hypergrid as hg
from hypergrid.interpolation import warm
from hypergrid.query import Query
from queries.jobs.block_queue import BlockQueue
from tests.bench.reprocess_archive import DAY_S, STEP_S, make_archive
from tests.bench.resident import peak_above, reset_peak

ROOT: Final = Path(__file__).resolve().parents[2]
EXTENT_M: Final = 1e6
MODEL: Final = hg.variogram("exponential", psill=1.2, range_m=200_000.0, nugget=0.05)
SEED: Final = 19
DAYS: Final = 365
WAKE_S: Final = 0.005
"""How often another thread wants to run [s]."""
WARM_STATIONS: Final = 1500
"""Stations of the small query: enough that it loads the compiled loops."""


@dataclass(frozen=True)
class Scale:
    """How large everything is."""

    stations: int = 11_000
    side: int = 100
    readings: int = 30_000_000

    @property
    def archive_stations(self) -> int:
        """Stations that have about so many readings in a year of ten minutes."""
        return max(1, round(self.readings / (DAYS * DAY_S / STEP_S)))


@dataclass(frozen=True)
class Kriged:
    """A map from a network in memory."""

    slices: int = 1
    holes: float = 0.0
    """Share of the values that are missing, others in each slice."""
    neighbours: int | None = None
    fitted: bool = False
    variance: bool = False
    side: int | None = None

    def query(self, stations: int, side: int) -> Query:
        """Return the query of a network of so many stations."""
        random = np.random.default_rng(SEED)
        x, y = random.uniform(0.0, EXTENT_M, (2, stations))
        value = 10.0 + np.sin(x / 1e5) + np.cos(y / 7e4) + random.normal(0.0, 0.3, (self.slices, stations))
        value[random.random(value.shape) < self.holes] = np.nan
        hours = np.datetime64("2020-01-01", "ns") + np.arange(self.slices) * np.timedelta64(1, "h")
        places = {"time": hours, "x": ("station", x), "y": ("station", y)}
        array = xr.DataArray(value, dims=("time", "station"), coords=places, name="air_temperature")
        side = self.side or side
        grid = hg.grid(x=0.0, y=0.0, step=EXTENT_M / side, shape=(side, side))
        near = {} if self.neighbours is None else {"neighbours": self.neighbours}
        model = "fit" if self.fitted else MODEL
        query = hg.base(array).interpolate("ordinary_kriging", grid=grid, variogram=model, **near)
        return query.with_variance() if self.variance else query


KRIGED: Final = {
    "kriging": Kriged(),
    "kriging, fitted": Kriged(fitted=True),
    "kriging, nearest 20": Kriged(neighbours=20),
    "kriging, variance": Kriged(variance=True, side=30),
    "kriging, 6 slices with holes": Kriged(slices=6, holes=0.02),
    "kriging, large map": Kriged(side=500),
}
ARCHIVED: Final[dict[str, Callable[[Query], Query]]] = {
    "monthly mean": lambda base: base.aggregate("mean", time="month"),
    "monthly mean, converted": lambda base: base.convert("valid_range", low=-40.0, high=50.0).aggregate(
        "mean", time="month"
    ),
    "hourly mean": lambda base: base.aggregate("mean", time="1h"),
    "median of all": lambda base: base.aggregate("median", time="all"),
    "by hour of day": lambda base: base.aggregate("mean", time="hour_of_day"),
}
SCALED: Final = (*KRIGED, *ARCHIVED)


@dataclass(frozen=True)
class Taken:
    """What a query was projected to take, and took."""

    projected_bytes: int
    peak_bytes: int | None
    """Most that it added to the process's resident memory [bytes]; None where the system does not say."""
    projected_s: float
    seconds: float
    """By the clock [s]."""
    cpu_s: float
    """Of all threads [s]."""
    longest_block_s: float
    """Longest that it went on without asking whether other queries go first [s]."""
    longest_pause_s: float
    """Longest that another thread of the process, as a server's that answers requests, could not run [s]."""


def archive_of(folder: Path, scale: Scale) -> Path:
    """Return an archive of so many readings in a folder, made where it is not there."""
    path = folder / f"years-{scale.archive_stations}"
    if not path.exists():
        make_archive(path, days=DAYS, stations=scale.archive_stations)
    return path


def taken(name: str, folder: Path, scale: Scale) -> Taken:
    """Answer a case's query in a new process; the archive lies in the folder."""
    if name in ARCHIVED:
        archive_of(folder, scale)
    sizes = json.dumps(asdict(scale))
    done = subprocess.run(
        [sys.executable, "-m", "tests.bench.scale_cases", name, str(folder), sizes],
        cwd=ROOT, check=False, capture_output=True, text=True,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(done.stderr)
    return Taken(**json.loads(done.stdout))


def _run(name: str, folder: Path, scale: Scale) -> Taken:
    warm.warm()
    if name in KRIGED:
        KRIGED[name].query(min(WARM_STATIONS, scale.stations // 2), scale.side).compute()
        query = KRIGED[name].query(scale.stations, scale.side)
    else:
        base = hg.open(archive_of(folder, scale))["air_temperature"]
        ARCHIVED[name](base.select(station="s000")).compute()
        query = ARCHIVED[name](base)
    # The trials are a part of planning.
    plan = query.plan()
    ctypes.CDLL(None).malloc_trim(0)
    before, used, begun = reset_peak(), resource.getrusage(resource.RUSAGE_SELF), time.perf_counter()
    queue = BlockQueue(1)
    # As a server computes it.
    with pauses() as longest_s, queue.turn("bench", projected_s=plan.projected_s):
        held = query.compute(allowed_bytes=2 * plan.projected_bytes)
    seconds, peak, after = time.perf_counter() - begun, peak_above(before), resource.getrusage(resource.RUSAGE_SELF)
    del held
    cpu = after.ru_utime + after.ru_stime - used.ru_utime - used.ru_stime
    return Taken(plan.projected_bytes, peak, plan.projected_s, seconds, cpu, queue.longest_block_s, max(longest_s))


@contextmanager
def pauses() -> Iterator[list[float]]:
    """Note how much later than it asked for a thread wakes up [s], while the work inside goes on."""
    late_s, is_over = [0.0], threading.Event()

    def wake() -> None:
        begun = time.perf_counter()
        while not is_over.wait(WAKE_S):
            now = time.perf_counter()
            late_s.append(now - begun - WAKE_S)
            begun = now

    thread = threading.Thread(target=wake)
    thread.start()
    try:
        yield late_s
    finally:
        is_over.set()
        thread.join()


if __name__ == "__main__":
    wanted, place, given = sys.argv[1:]
    print(json.dumps(asdict(_run(wanted, Path(place), Scale(**json.loads(given))))))
