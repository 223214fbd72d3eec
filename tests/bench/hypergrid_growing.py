"""One slice more: a surface that grows with its archive, beside computing it anew.

Q5 of the thesis (means of 15 minutes each 5 minutes of kriged slices of 5 minutes) on a made-up network whose archive
gets a slice in each round.
"""

from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import hypergrid as hg
from hypergrid.store import Archive
from hypergrid.streams.elements import Position, Readings, Series, Station
from hypergrid.times import SECOND_NS, parse_instant
from hypergrid.units import KNOWN_VARIABLES
from tests.bench.hypergrid_cases import Growth
from tests.bench.kriging_figures import Tell, seconds_of, slower

START_NS = parse_instant("2007-10-01T00:00Z")
SLICE_S = 300.0
HEARD = 0.9
"""Share of the readings that arrive."""
GOAL = 0.01
LIMIT = 1e-10
"""Greatest difference that is allowed [degC]."""


class Growths:
    """An archive that gets slices, and its query."""

    def __init__(self, folder: Path, sizes: Growth) -> None:
        self._random, self._sizes = np.random.default_rng(5), sizes
        self._archive = Archive.create(
            folder, name="growing", slice_s=SLICE_S, variables=[KNOWN_VARIABLES["air_temperature"]], now_ns=START_NS
        )
        extent = sizes.side / 3600
        self._places = np.array([7.0, 46.0]) + self._random.uniform(0, extent, (sizes.stations, 2))
        self._stop = 0
        self.add(sizes.slices)

    def add(self, slices: int) -> None:
        """Commit some slices more."""
        series = tuple(
            Series("air_temperature", f"s{number}", 2.0, 1, "sample", SLICE_S, "instant")
            for number in range(self._sizes.stations)
        )
        shape = (self._sizes.stations, slices)
        station, slice_ = np.nonzero(self._random.random(shape) < HEARD)
        stamps = START_NS + (self._stop + slice_) * round(SLICE_S * SECOND_NS)
        values, flags = self._random.normal(5.0, 2.0, len(stamps)), np.full(len(stamps), 2, np.uint8)
        with self._archive.commit(batch=str(self._stop), message="more", now_ns=START_NS) as writer:
            if not self._stop:
                writer.stations([self._station(number) for number in range(self._sizes.stations)])
            writer.readings(Readings(series, station.astype(np.int32), stamps, values, flags, stamps))
        self._stop += slices

    def query(self) -> hg.Query:
        """Return Q5 at the newest snapshot."""
        side = self._sizes.side
        aligned = hg.open(self._archive.path)["air_temperature"].aggregate("mean", time="5min", min_coverage=0)
        mapped = aligned.interpolate(
            "ordinary_kriging",
            grid=hg.grid(lon=7.0, lat=46.0, step="1arcsec", shape=(side, side)),
            variogram=hg.variogram("exponential", psill=1.2, range_m=3000.0, nugget=0.05),
        )
        return mapped.aggregate("mean", time={"length": "15min", "step": "5min"}, min_coverage=0)

    def _station(self, number: int) -> Station:
        lon, lat = self._places[number].tolist()
        return Station(f"s{number}", f"Station {number}", (Position(None, lon, lat, 2400.0),))


def measure(sizes: Growth, pairs: int, tell: Tell) -> dict[str, Any]:
    """Return the time of an update over that of computing anew, both after one slice more, and how far they differ."""
    updates, anew, greatest, cells = [], [], 0.0, set()
    with TemporaryDirectory() as folder:
        growths = Growths(Path(folder) / "archive", sizes)
        growing = hg.Growing(growths.query(), allowed_bytes=sizes.allowed_bytes)
        for number in range(pairs + 1):
            tell("one slice more", number / (pairs + 1))
            growths.add(1)
            made: dict[str, Any] = {}
            update = seconds_of(lambda _, made=made: made.update(update=growing.update()))  # type: ignore[misc]
            compute = seconds_of(
                lambda _, made=made: made.update(value=growths.query().compute(allowed_bytes=sizes.allowed_bytes))  # type: ignore[misc]
            )
            fresh, kept = made["value"]["value"].to_numpy(), growing.dataset()["value"].to_numpy()
            greatest = max([greatest, *(float(np.nanmax(abs(a - b))) for a, b in zip(kept, fresh, strict=True))])
            cells.add(len(made["update"].time_cells))
            if number:
                # The first of each loads what later ones find loaded.
                updates.append(update)
                anew.append(compute)
            del made, fresh, kept
        tell("one slice more", 1.0)
    name = f"one slice more on {sizes.slices:,}: {'/'.join(map(str, sorted(cells)))} time cells touched"
    figure = slower(name, updates, anew, what="update / computing anew", goal=GOAL)
    difference = {"name": "updated and computed anew", "greatest": greatest, "goal": LIMIT, "met": greatest <= LIMIT}
    return {"case": sizes.describe(), "figures": [figure.to_json()], "differences": [difference]}
