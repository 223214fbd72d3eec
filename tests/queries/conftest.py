"""A small archive, and a gate between the blocks of its queries."""

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import pytest

import hypergrid as hg
from hypergrid.archive import Archive
from hypergrid.core.flags import NOT_EVALUATED
from hypergrid.core.readings import Position, Readings, Series, Station
from hypergrid.core.times import SECOND_NS, parse_instant
from hypergrid.core.units import KNOWN_VARIABLES
from queries.jobs import block_queue
from queries.jobs.records import RunnerLimits
from queries.jobs.runner import Runner

START_NS = parse_instant("2007-10-01")
STEP_S = 120
STATIONS = {
    "1": (7.1772, 45.8672),
    "2": (7.1803, 45.8671),
    "3": (7.1788, 45.8690),
    "4": (7.1771, 45.8702),
    "5": (7.1805, 45.8701),
}

MAP = {
    "variable": "air_temperature",
    "steps": [
        {"op": "convert", "function": "valid_range", "params": {"low": -40.0, "high": 50.0}},
        {"op": "aggregate", "function": "mean", "time": "1h"},
        {
            "op": "interpolate",
            "method": "ordinary_kriging",
            "grid": {"lon": "7:10:37", "lat": "45:52:01", "step": "1arcsec", "shape": [10, 12]},
            "params": {"variogram": {"model": "exponential", "psill": 1.2, "range_m": 250.0, "nugget": 0.05}},
        },
    ],
    "clip": {"time": ["2007-10-01T00:00Z", "2007-10-01T04:00Z"]},
}
"""Four time cells of 10 rows by 12 columns."""

SERIES = {"variable": "air_temperature", "steps": [{"op": "aggregate", "function": "mean", "time": "1h"}]}


@pytest.fixture(scope="session")
def archive(tmp_path_factory: pytest.TempPathFactory) -> hg.OpenArchive:
    """Five stations over half a day, a sixth without a position."""
    path = tmp_path_factory.mktemp("network") / "archive"
    variable = KNOWN_VARIABLES["air_temperature"]
    made = Archive.create(path, name="small", slice_s=STEP_S, variables=[variable], now_ns=START_NS)
    series = tuple(Series("air_temperature", station, 2.0, interval_s=STEP_S, source="feed/t") for station in STATIONS)
    steps = 12 * 3600 // STEP_S
    index = np.repeat(np.arange(len(series), dtype=np.int32), steps)
    time_ns = np.tile(START_NS + np.arange(steps) * STEP_S * SECOND_NS, len(series))
    value = 5.0 + index + np.sin(time_ns / (3600 * SECOND_NS))
    readings = Readings(series, index, time_ns, value, np.full(len(index), NOT_EVALUATED, np.uint8), time_ns)
    stations = [Station(key, f"Station {key}", (Position(None, *place, 2400.0),)) for key, place in STATIONS.items()]
    stations.append(Station("6", "Lost", (Position(None, np.nan, np.nan, np.nan),)))
    with made.commit(batch="first", message="first readings", now_ns=START_NS) as writer:
        writer.stations(stations)
        writer.readings(readings)
    return hg.open(path)


class Gate:
    """Lets the blocks of queries through one by one, or all."""

    def __init__(self, archive: hg.OpenArchive) -> None:
        self._archive = archive
        self._turns = threading.Semaphore(0)
        self._is_open = False
        self.failure: Exception | None = None
        self.runs = 0

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self._archive, name)

    def latest(self) -> "Gate":
        return self

    def query(self, document: Mapping[str, Any]) -> "GatedQuery":
        return GatedQuery(self._archive.query(document), self)

    def let(self, blocks: int) -> None:
        self._turns.release(blocks)

    def is_used(self) -> bool:
        """Return whether all blocks that may pass have."""
        return not self._turns._value

    def open(self) -> None:
        self._is_open = True
        self._turns.release()

    def wait(self) -> None:
        if not self._is_open:
            assert self._turns.acquire(timeout=60), "the test never let the block through"
            if self._is_open:
                # Others may wait, too.
                self._turns.release()
        if self.failure is not None:
            raise self.failure


class GatedQuery:
    """A query whose every block waits at the gate."""

    def __init__(self, query: hg.Query, gate: Gate) -> None:
        self._query = query
        self._gate = gate

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401
        return getattr(self._query, name)

    def refine(self, **options: Any) -> Iterator[hg.Refinement]:  # noqa: ANN401
        self._gate.runs += 1
        for refinement in self._query.refine(**options):
            self._gate.wait()
            yield refinement


@pytest.fixture
def gate(archive: hg.OpenArchive, monkeypatch: pytest.MonkeyPatch) -> Iterator[Gate]:
    # What is held at the gate keeps its turn, however long the first block takes on a busy machine.
    monkeypatch.setattr(block_queue, "OVERDUE_S", 60.0)
    monkeypatch.setattr(block_queue, "LEAST_TURN_S", 60.0)
    made = Gate(archive)
    yield made
    made.open()


@pytest.fixture
def make_runner() -> Iterator[Callable[..., Runner]]:
    """Make runners that are stopped at the end of the test."""
    runners: list[Runner] = []

    def make(archive: Any, **options: Any) -> Runner:  # noqa: ANN401
        kept = {name: options.pop(name) for name in ("journal", "clock") if name in options}
        runner = Runner(archive, RunnerLimits(**options), **kept)
        runners.append(runner)
        return runner

    yield make
    for runner in runners:
        if isinstance(runner._archive, Gate):
            runner._archive.open()
        runner.stop()


def _wait_until(condition: Callable[[], bool], *, seconds: float = 60.0) -> None:
    ends = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < ends, "it did not happen in time"
        time.sleep(0.005)


@pytest.fixture
def wait_until() -> Callable[..., None]:
    return _wait_until


@pytest.fixture
def map_query() -> dict[str, Any]:
    return MAP


@pytest.fixture
def series_query() -> dict[str, Any]:
    return SERIES
