"""A network of thousands of stations, generated and committed directly, to which slices may come."""

import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np

from hypergrid.archive import Archive
from hypergrid.core.flags import GOOD, SUSPECT
from hypergrid.core.readings import Position, Readings, Series, Station
from hypergrid.core.times import SECOND_NS, parse_instant
from hypergrid.core.units import KNOWN_VARIABLES

START_NS: Final = parse_instant("2007-10-01T00:00Z")
SLICE_S: Final = 600
VARIABLES: Final = {
    "air_temperature": (1, 1, 12.0, 6.0),
    "relative_humidity": (2, 1, 70.0, -20.0),
    "wind_speed": (3, 1, 4.0, 2.0),
    "solar_radiation": (6, 6, 300.0, 300.0),
}
"""Of each variable: one station in how many has it, every how many slices it is read, its mean and course of a day."""
WEST, EAST, SOUTH, NORTH = 6.0, 10.5, 45.8, 47.8
"""Where they stand [degree]; the saved queries of the sample network lie within."""
SILENT: Final = 6
"""Which station of each hundred is silent at the end."""
_SILENT_DAYS: Final = 1.0
_SLICES_A_DAY: Final = 86_400 // SLICE_S


class ManyStations:
    """An archive of many stations: one in a hundred is silent at the end, one reading in a thousand is suspect."""

    def __init__(self, folder: Path, count: int = 2000) -> None:
        self._folder = folder
        self._random = np.random.default_rng(2007)
        places = zip(
            self._random.uniform(WEST, EAST, count).round(5).tolist(),
            self._random.uniform(SOUTH, NORTH, count).round(5).tolist(),
            self._random.uniform(200.0, 3000.0, count).round().tolist(),
            strict=True,
        )
        self.stations = tuple(
            Station(f"{number:05d}", f"Gauge {number}", (Position(None, *place),))
            for number, place in enumerate(places, 1)
        )
        self.slices = 0
        self._ends = 0

    def create(self, days: int = 3) -> None:
        """Make the archive with some days of readings, in one commit."""
        variables = [KNOWN_VARIABLES[name] for name in VARIABLES]
        archive = Archive.create(self._folder, name="many", slice_s=SLICE_S, variables=variables, now_ns=START_NS)
        with archive.commit(batch="stations", message="stations", now_ns=START_NS) as writer:
            writer.stations(self.stations)
        self._ends = days * _SLICES_A_DAY
        self.add(self._ends)

    def resume(self, slices: int) -> None:
        """Go on after so many slices, in another process."""
        self.slices = self._ends = slices

    def add(self, slices: int = 1) -> None:
        """Commit slices, in one commit."""
        archive = Archive.open(self._folder)
        with archive.commit(batch=str(self.slices), message=f"{slices} slices", now_ns=time.time_ns()) as writer:
            for name in VARIABLES:
                writer.readings(self._readings(name, slices))
        self.slices += slices

    def box(self, values: int, variables: Sequence[str]) -> tuple[float, float, float, float]:
        """Return the smallest box around the middle that holds so many series of some variables at least.

        Returns
        -------
        tuple of float
            West, south, east and north [degree].
        """
        middle, size = np.array([WEST + EAST, SOUTH + NORTH]) / 2, np.array([EAST - WEST, NORTH - SOUTH])
        places = np.array([(one.position.lon, one.position.lat) for one in self.stations])
        away = np.abs((places - middle) / size).max(axis=1)
        order = np.argsort(away)
        held = np.cumsum([sum(one % VARIABLES[name][0] == 0 for name in variables) for one in order])
        # So that the last station lies within, and not on the edge.
        half = (float(away[order[np.searchsorted(held, values)]]) + 1e-6) * size
        west, south, east, north = (*(middle - half).tolist(), *(middle + half).tolist())
        return west, south, east, north

    def _readings(self, variable: str, slices: int) -> Readings:
        every, apart, mean, course = VARIABLES[variable]
        some = self.stations[::every]
        series = tuple(Series(variable, one.id, 2.0, interval_s=float(apart * SLICE_S), source="bench") for one in some)
        at = np.arange(self.slices, self.slices + slices, dtype=np.int64)
        at = at[at % apart == 0]
        day = at * SLICE_S / 86_400
        height_m = np.array([one.position.elevation_m for one in some])
        value = mean - 0.0015 * height_m[:, None] + course * np.sin(2 * np.pi * (day - 0.4))
        value += self._random.normal(0, 0.3, value.shape)
        if variable != "air_temperature":
            value = np.maximum(value, 0.0)
        present = np.ones(value.shape, bool)
        silent = np.arange(len(self.stations))[::every] % 100 == SILENT
        present[np.ix_(silent, day > self._ends / _SLICES_A_DAY - _SILENT_DAYS)] = False
        index, column = np.nonzero(present)
        flag = np.where(self._random.random(len(index)) < 1e-3, SUSPECT, GOOD).astype(np.uint8)
        stamps = START_NS + at[column] * (SLICE_S * SECOND_NS)
        return Readings(series, index.astype(np.int32), stamps, value[index, column].round(2), flag, stamps)


def feed(folder: Path, count: int, first: int, slices: int, period_s: float) -> "subprocess.Popen[bytes]":
    """Start a process that commits a slice every so often."""
    numbers = [str(one) for one in (count, first, slices, period_s)]
    return subprocess.Popen([sys.executable, "-m", "tests.bench.many_stations", str(folder), *numbers])


def main(arguments: Sequence[str]) -> None:
    """Commit slices: folder, number of stations, of the first slice, how many, seconds between them."""
    folder, count, first, slices = Path(arguments[0]), *(int(one) for one in arguments[1:4])
    network, period_s = ManyStations(folder, count), float(arguments[4])
    network.resume(first)
    begun = time.monotonic()
    for number in range(slices):
        time.sleep(max(begun + number * period_s - time.monotonic(), 0.0))
        network.add()


if __name__ == "__main__":
    main(sys.argv[1:])
