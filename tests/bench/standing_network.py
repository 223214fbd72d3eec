"""The sample network live: slices come one after the other, and standing queries of three classes stand on them."""

import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hypergrid.archive import Archive
from hypergrid.core.flags import NOT_EVALUATED
from hypergrid.core.readings import Position, Readings, Series, Station
from hypergrid.core.times import SECOND_NS, parse_instant
from hypergrid.core.units import KNOWN_VARIABLES
from station_data.network import stations
from station_data.truth import truth

START_NS = parse_instant("2007-10-01T00:00Z")
SLICE_S = 120.0
STEP_NS = round(SLICE_S * SECOND_NS)
VARIABLES = ("air_temperature", "relative_humidity", "wind_speed")
KINDS = ("alert", "user", "archive")
SHARES = (0.2, 0.4, 0.4)
"""Of the queries: alerts, users', archives."""
WARM_SLICES = 90


class Network:
    """Readings of the sample network's truth, with noise, slice by slice."""

    def __init__(self, folder: Path, count: int = 24) -> None:
        self._folder = folder
        self._network = stations(count)
        self.slices = 0
        self._random = np.random.default_rng(2007)

    def create(self, slices: int = WARM_SLICES) -> None:
        """Make the archive with some slices."""
        variables = [KNOWN_VARIABLES[name] for name in VARIABLES]
        Archive.create(self._folder, name="pass", slice_s=SLICE_S, variables=variables, now_ns=START_NS)
        self.begin(slices)

    def begin(self, slices: int) -> None:
        """Commit the stations and the first slices into an archive that is there."""
        archive = Archive.open(self._folder)
        listed = [Station(one.id, one.id, (Position(None, one.lon, one.lat, 2450.0),)) for one in self._network]
        with archive.commit(batch="stations", message="stations", now_ns=START_NS) as writer:
            writer.stations(listed)
        self.add(slices)

    def resume(self, slices: int) -> None:
        """Go on after so many slices, in another process."""
        self.slices = slices

    def add(self, slices: int = 1) -> None:
        """Commit slices, in one commit."""
        archive = Archive.open(self._folder)
        with archive.commit(batch=str(self.slices), message="slices", now_ns=time.time_ns()) as writer:
            for variable in VARIABLES:
                writer.readings(self._readings(variable, slices))
        self.slices += slices

    def _readings(self, variable: str, slices: int) -> Readings:
        count = len(self._network)
        series = tuple(Series(variable, one.id, 2.0, interval_s=SLICE_S, source="feed/x") for one in self._network)
        index = np.repeat(np.arange(count, dtype=np.int32), slices)
        stamps = np.tile(START_NS + (self.slices + np.arange(slices, dtype=np.int64)) * STEP_NS, count)
        lon, lat = (np.array([getattr(one, name) for one in self._network])[index] for name in ("lon", "lat"))
        value = truth(variable, stamps, lon, lat) + self._random.normal(0, 0.1, len(stamps))
        return Readings(series, index, stamps, value, np.full(len(stamps), NOT_EVALUATED, np.uint8), stamps)


def feed(folder: Path, first: int, slices: int, period_s: float) -> "subprocess.Popen[bytes]":
    """Start a process that commits a slice every so often."""
    command = [
        sys.executable,
        "-m",
        "tests.bench.standing_network",
        str(folder),
        str(first),
        str(slices),
        str(period_s),
    ]
    return subprocess.Popen(command)


def documents(count: int, *, templates: int, side: int) -> list[dict[str, Any]]:
    """Return so many standing queries from some templates: those of one differ in condition, weight and class.

    A template is a variable, an alignment, an interpolation of `side` by `side` cells, and for some a mean over it.
    """
    random, made = np.random.default_rng(5), []
    kinds = np.repeat(np.arange(3), np.round(np.array(SHARES) * count).astype(int))
    kinds = random.permutation(np.resize(kinds, count))
    for number in range(count):
        query = template(number % templates, side=side)
        kind = KINDS[int(kinds[number])]
        weight = {"alert": 10.0, "user": float(random.uniform(2, 5)), "archive": 1.0}[kind]
        document = {"name": f"q{number:03d}", "query": query, "class": kind, "weight": weight, "validity": "4min"}
        if kind == "alert":
            # Levels that are hardly ever reached: what is measured is evaluation, not telling.
            document["condition"] = {"kind": "threshold", "above": 200.0 + number}
        made.append(document)
    return made


def template(number: int, *, side: int) -> dict[str, Any]:
    """Return one of endlessly many different queries; those of one variable and alignment share their first steps."""
    variable = VARIABLES[number % len(VARIABLES)]
    time_cells = ("2min", "4min", "6min", "10min")[number // 3 % 4]
    steps: list[dict[str, Any]] = [
        {"op": "convert", "function": "valid_range", "params": {"low": -60.0, "high": 110.0}},
        {"op": "aggregate", "function": "mean", "time": time_cells, "params": {"min_coverage": 0}},
    ]
    if number % 5:
        grid = {"lon": f"7:10:{37 + number // 12 % 8}", "lat": "45:52:01", "step": "1arcsec", "shape": [side, side]}
        variogram = {"model": "exponential", "psill": 1.2, "range_m": 200.0 + number, "nugget": 0.05}
        params = {"variogram": variogram, "neighbours": 12}
        steps.append({"op": "interpolate", "method": "ordinary_kriging", "grid": grid, "params": params})
    if number % 5 == 4:
        steps.append({"op": "aggregate", "function": "mean", "lon": "all", "lat": "all"})
    return {"variable": variable, "steps": steps}


def main(arguments: Sequence[str]) -> None:
    """Commit slices: folder, number of the first, how many, seconds between them."""
    network, first, slices, period_s = (
        Network(Path(arguments[0])),
        int(arguments[1]),
        int(arguments[2]),
        float(arguments[3]),
    )
    network.resume(first)
    begun = time.monotonic()
    for number in range(slices):
        time.sleep(max(begun + number * period_s - time.monotonic(), 0.0))
        network.add()


if __name__ == "__main__":
    main(sys.argv[1:])
