"""What a server holds a while after many large and refused requests, in a process of its own."""

import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final, NamedTuple

import httpx
import numpy as np
import pytest

from hypergrid.archive import Archive
from hypergrid.core.flags import NOT_EVALUATED
from hypergrid.core.readings import Position, Readings, Series, Station
from hypergrid.core.times import SECOND_NS, parse_instant
from hypergrid.core.units import KNOWN_VARIABLES
from tests.bench.web_load import Served, serving

AIR: Final = "air_temperature"
START_NS: Final = parse_instant("2024-06-01")
SLICE_S: Final = 600.0
CALLERS: Final = 8
"""Requests at a time."""


class Load(NamedTuple):
    """How much is asked of how large an archive, and what may be held afterwards."""

    stations: int
    days: int
    requests: int
    most_bytes: int
    """Above what an idle server holds."""
    within_s: float
    """How long after the last answer."""


SMALL: Final = Load(stations=150, days=60, requests=24, most_bytes=300 << 20, within_s=20.0)
WHOLE: Final = Load(stations=400, days=60, requests=1000, most_bytes=600 << 20, within_s=60.0)


def made_archive(path: Path, load: Load) -> Path:
    """Write an archive of stations that report every ten minutes."""
    archive = Archive.create(path, name="wide", slice_s=SLICE_S, variables=[KNOWN_VARIABLES[AIR]], now_ns=START_NS)
    series = tuple(Series(AIR, f"S{number:03}", 2.0, interval_s=SLICE_S) for number in range(load.stations))
    chosen = np.random.default_rng(1)
    with archive.commit(batch="stations", message="stations", now_ns=START_NS) as writer:
        lons, lats = 8 + chosen.random(len(series)), 46.5 + chosen.random(len(series))
        writer.stations(
            [
                Station(one.station, one.station, (Position(None, float(lon), float(lat), 500.0),))
                for one, lon, lat in zip(series, lons, lats, strict=True)
            ]
        )
    count = round(86_400 / SLICE_S) * 10
    for first in range(0, load.days * count // 10, count):
        index = np.repeat(np.arange(len(series), dtype=np.int32), count)
        time_ns = START_NS + np.tile(first + np.arange(count), len(series)) * round(SLICE_S * SECOND_NS)
        flag = np.full(len(index), NOT_EVALUATED, np.uint8)
        with archive.latest().commit(batch=str(first), message="readings", now_ns=START_NS) as writer:
            writer.readings(Readings(series, index, time_ns, chosen.normal(size=len(index)), flag, time_ns))
    return path


def surface(number: int, cells: int) -> dict[str, Any]:
    """Return a query for a map of two days, of so many cells a side."""
    variogram = {"model": "exponential", "psill": 1.2, "range_m": 5000.0 + number, "nugget": 0.05}
    grid = {"lon": [8.0, 8.0 + 0.001 * cells], "lat": [46.5, 46.5 + 0.001 * cells], "step": 0.001}
    params = {"neighbours": 20, "variogram": variogram}
    return {
        "variable": AIR,
        "steps": [
            {"op": "aggregate", "function": "mean", "time": "6h"},
            {"op": "interpolate", "method": "ordinary_kriging", "grid": grid, "params": params},
        ],
        "clip": {"time": ["2024-06-01T00:00Z", "2024-06-03T00:00Z"]},
    }


def asked(client: httpx.Client, number: int, load: Load) -> int:
    """Send a request, each time of another kind, and return its status."""
    names = [f"S{(number * 7 + place) % load.stations:03}" for place in range(100)]
    some, series = ",".join(names), "/api/v1/series"
    stations, wait = "/edr/collections/stations", {"wait": "60s"}
    table = {"variable": AIR, "steps": [{"op": "aggregate", "function": "mean", "time": "3h"}]}
    everywhere = "POLYGON((0 40,20 40,20 60,0 60,0 40))"
    requests: list[tuple[str, str, dict[str, Any]]] = [
        ("GET", series, {"params": {"f": "csv"}}),
        ("GET", series, {"params": {"f": "covjson"}}),
        ("GET", series, {"params": {"f": "csv", "station": some}}),
        ("GET", series, {"params": {"f": "parquet", "station": some}}),
        ("GET", series, {"params": {"f": "covjson", "station": ",".join(names[:40])}}),
        ("GET", f"{stations}/cube", {"params": {"bbox": "0,40,20,60", "f": "CoverageJSON"}}),
        ("GET", f"{stations}/area", {"params": {"coords": everywhere, "f": "GeoJSON"}}),
        ("GET", f"{stations}/locations/{names[0]}", {"params": {"f": "CoverageJSON"}}),
        ("POST", "/api/v1/queries", {"params": wait, "json": surface(number, 30_000)}),
        ("POST", "/api/v1/queries", {"params": wait, "json": surface(number, 60)}),
        ("POST", "/api/v1/queries", {"params": {**wait, "f": "csv"}, "json": table}),
        ("POST", "/api/v1/queries", {"content": b"[" * 1_500_000, "headers": {"Content-Type": "application/json"}}),
    ]
    method, path, options = requests[number % len(requests)]
    return client.request(method, path, **options).status_code


def held(served: Served) -> int:
    return int(served.process.memory_info().rss)


@pytest.fixture
def load(request: pytest.FixtureRequest) -> Load:
    found: Load = request.param
    return found


@pytest.fixture
def served(load: Load, tmp_path: Path) -> Iterator[Served]:
    with serving(made_archive(tmp_path / "archive", load), tmp_path / "state") as here:
        yield here


@pytest.mark.parametrize(
    "load", [pytest.param(SMALL, id="small"), pytest.param(WHOLE, id="whole", marks=pytest.mark.soak)], indirect=True
)
def test_memory_is_given_back_after_large_and_refused_requests(served: Served, load: Load) -> None:
    idle = _settled(served)
    with ThreadPoolExecutor(CALLERS) as callers, httpx.Client(base_url=served.address, timeout=300) as client:
        statuses = Counter(callers.map(lambda number: asked(client, number, load), range(load.requests)))
    busy, ends = held(served), time.monotonic() + load.within_s
    while held(served) - idle > load.most_bytes and time.monotonic() < ends:
        time.sleep(1.0)
    left = held(served) - idle
    print(f"{statuses}: {idle >> 20} MiB idle, {busy >> 20} at the end, {left >> 20} above idle at last")
    assert set(statuses) <= {200, 202, 413}
    assert min(statuses[200], statuses[413]) > load.requests // 4
    assert left <= load.most_bytes


def _settled(served: Served) -> int:
    """Return what the server holds once it has loaded all code, and served each kind of answer that is small."""
    for path in ("/api/v1/latest", "/edr/collections", "/api/v1/stations"):
        served.client.get(path).raise_for_status()
    served.client.post("/api/v1/queries", params={"wait": "60s"}, json=surface(0, 5)).raise_for_status()
    before, now = 0, held(served)
    while abs(now - before) > 1 << 20:
        time.sleep(3.0)
        before, now = now, held(served)
    return now
