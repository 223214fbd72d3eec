"""Queries of growing size, and the memory that each adds to a fresh process beside what its plan projected.

`python -m tests.bench.memory_cases NAME FOLDER` prints JSON. What a process takes once (libraries, compiled loops, the
buffers of threads) is there before, by the same query in small: what is measured is the query's own.
"""

import ctypes
import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

import hypergrid as hg
from hypergrid.execution import make_streamed_plan
from hypergrid.interpolation import warm
from hypergrid.query import Query
from tests.bench.kriging_cases import Case, network
from tests.bench.resident import peak_above, reset_peak

ROOT = Path(__file__).resolve().parents[2]
MODEL = hg.variogram("exponential", psill=1.2, range_m=5000.0, nugget=0.05)


@dataclass(frozen=True)
class MemoryCase:
    """A query, how large it is, and where its result goes."""

    case: Case
    steps: Callable[[Query, hg.Grid], Query]
    allowed_bytes: int | None = None
    """What the query may take, straight to a store [bytes]; where absent its result is held in memory."""


def _maps(query: Query, grid: hg.Grid) -> Query:
    return query.interpolate("ordinary_kriging", grid=grid, variogram=MODEL)


def _with_variances(query: Query, grid: hg.Grid) -> Query:
    return _maps(query, grid).with_variance()


def _nearest(query: Query, grid: hg.Grid) -> Query:
    return query.interpolate("ordinary_kriging", grid=grid, variogram=MODEL, neighbours=16)


def _case(name: str, stations: int, side: int, slices: int) -> Case:
    return Case(name, stations, side, slices, cell_m=round(20_000 / side), range_m=5000.0, burst_slices=20.0)


MEMORY_CASES = {
    "16 MB of maps with variances": MemoryCase(_case("a", 30, 100, 200), _with_variances),
    "40 MB of maps to a store": MemoryCase(_case("b", 30, 160, 200), _maps, allowed_bytes=24 * 2**20),
    "64 MB of maps of the nearest": MemoryCase(_case("c", 60, 200, 200), _nearest),
    "320 MB of maps": MemoryCase(_case("d", 60, 200, 1000), _maps),
    "4 GB of maps to a store": MemoryCase(_case("e", 100, 500, 2000), _maps, allowed_bytes=10**9),
}
"""By name, in the order of their size."""
FEW_SLICES = "2 MB of maps of the nearest, whose weights are kept"
ALL_CASES = {**MEMORY_CASES, FEW_SLICES: MemoryCase(_case("k", 60, 200, 6), _nearest)}


@dataclass(frozen=True)
class Measured:
    """What a query took."""

    projected_bytes: int
    peak_bytes: int | None
    """Most that it added to the process's resident memory [bytes]; None where the system does not say."""
    surface_bytes: int
    """What the values alone take [bytes]."""


def measured(name: str, folder: Path) -> Measured:
    """Answer a case's query in a new process; a store goes into the folder."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.bench.memory_cases", name, str(folder)],
        cwd=ROOT, check=False, capture_output=True, text=True,
    )  # fmt: skip
    if done.returncode:
        raise RuntimeError(done.stderr)
    return Measured(**json.loads(done.stdout))


def query_of(chosen: MemoryCase, *, slices: int | None = None, side: int | None = None) -> Query:
    """Return the query of a case, or the same with fewer slices and fewer cells."""
    side = side or chosen.case.side
    grid = hg.grid(x=0.0, y=0.0, step=chosen.case.extent_m / side, shape=(side, side))
    return chosen.steps(hg.base(network(chosen.case).isel(time=slice(slices))), grid)


def _answer(chosen: MemoryCase, query: Query, store: Path) -> tuple[int, object]:
    """Answer a query; return what its plan projected and the result, held as long as the caller holds it."""
    if chosen.allowed_bytes is None:
        return query.plan().projected_bytes, query.compute()
    projected = make_streamed_plan(query.surface(), chosen.allowed_bytes)[0].projected_bytes
    return projected, query.to_zarr(store, allowed_bytes=chosen.allowed_bytes)


def _run(chosen: MemoryCase, store: Path) -> Measured:
    warm.warm()
    _answer(chosen, query_of(chosen, slices=chosen.case.slices // 4, side=min(chosen.case.side, 100)), store)
    query = query_of(chosen)
    # What the small query freed is given back, so that it does not serve the measured one.
    ctypes.CDLL(None).malloc_trim(0)
    before = reset_peak()
    projected, held = _answer(chosen, query, store)
    peak = peak_above(before)
    del held
    return Measured(projected, peak, chosen.case.output_bytes)


if __name__ == "__main__":
    wanted, place = sys.argv[1:]
    print(json.dumps(asdict(_run(ALL_CASES[wanted], Path(place) / "out.zarr"))))
