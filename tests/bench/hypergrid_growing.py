"""One slice more: a surface that grows with its archive, beside computing it anew.

Q5 of the thesis (means of 15 minutes each 5 minutes of kriged slices of 5 minutes) on a made-up network whose archive
gets a slice in each round.
"""

import json
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

import hypergrid as hg
from hypergrid.archive import Archive
from hypergrid.core.readings import Position, Readings, Series, Station
from hypergrid.core.result_names import value_of
from hypergrid.core.times import SECOND_NS, parse_instant
from hypergrid.core.units import KNOWN_VARIABLES
from tests.bench.hypergrid_cases import QUERIES, Growth
from tests.bench.kriging_figures import Tell, seconds_of, slower

START_NS = parse_instant("2007-10-01T00:00Z")
SLICE_S = 300.0
HEARD = 0.9
"""Share of the readings that arrive."""
GOAL = 0.01
WEST, SOUTH = 7.0, 46.0
"""Corner of the grid [degree]."""
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
        self._places = np.array([WEST, SOUTH]) + self._random.uniform(0, extent, (sizes.stations, 2))
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

    def query(self, *, everybody: bool) -> hg.Query:
        """Return Q5 over all there is, at the newest snapshot: kriged from all stations, or from the 20 nearest."""
        document = json.loads((QUERIES / "q5.json").read_text())
        del document["clip"]
        side, (_, _, interpolation, _) = self._sizes.side, document["steps"]
        interpolation["grid"] = {"lon": WEST, "lat": SOUTH, "step": "1arcsec", "shape": [side, side]}
        if everybody:
            interpolation["params"]["neighbours"] = None
        return hg.open(self._archive.path).query(document)

    def _station(self, number: int) -> Station:
        lon, lat = self._places[number].tolist()
        return Station(f"s{number}", f"Station {number}", (Position(None, lon, lat, 2400.0),))


def measure(sizes: Growth, pairs: int, notify: Tell) -> dict[str, Any]:
    """Return the time of an update over that of computing anew, both after one slice more, and how far they differ.

    The goal is for Q5 as it is. Kriged from all stations its means commute, and all of it is one product of two
    matrices, which writes the surface about as fast as memory takes it: beside that, opening the new snapshot counts.
    """
    figures, differences = [], []
    for name, everybody in (("Q5", False), ("Q5 from all stations", True)):
        updates, anew, greatest, cells = _rounds(sizes, pairs, notify, name, everybody=everybody)
        figures.append(
            slower(
                f"{name}, one slice more on {sizes.slices:,}: {cells} time cells touched", updates, anew,
                what="update / computing anew", goal=None if everybody else GOAL,
            )
        )  # fmt: skip
        differences.append(
            {"name": f"{name}, updated and anew", "greatest": greatest, "goal": LIMIT, "met": greatest <= LIMIT}
        )
    return {
        "case": sizes.describe(),
        "figures": [figure.to_json() for figure in figures],
        "differences": differences,
    }


def _rounds(
    sizes: Growth, pairs: int, notify: Tell, name: str, *, everybody: bool
) -> tuple[list[float], list[float], float, str]:
    """Return seconds of updates and of computing anew, how far they differ, and how many time cells an update has."""
    updates, anew, greatest, cells = [], [], 0.0, set()
    with TemporaryDirectory() as folder:
        growths = Growths(Path(folder) / "archive", sizes)
        growing = hg.Growing(growths.query(everybody=everybody), allowed_bytes=sizes.allowed_bytes)
        for number in range(pairs + 1):
            notify(f"one slice more, {name}", number / (pairs + 1))
            growths.add(1)
            made: dict[str, Any] = {}

            def update(_: int, made: dict[str, Any] = made) -> None:
                made["update"] = growing.update()

            def compute(_: int, made: dict[str, Any] = made) -> None:
                query = growths.query(everybody=everybody)
                made["value"] = value_of(query.compute(allowed_bytes=sizes.allowed_bytes)).to_numpy()

            update_s, anew_s = seconds_of(update), seconds_of(compute)
            kept = value_of(growing.dataset()).to_numpy()
            for here, there in zip(kept, made["value"], strict=True):
                known = ~np.isnan(here)
                assert np.array_equal(known, ~np.isnan(there))
                greatest = max(greatest, float(np.max(np.abs(here - there), initial=0.0, where=known)))
            cells.add(len(made["update"].time_cells))
            if number:
                # The first of each loads what later ones find loaded.
                updates.append(update_s)
                anew.append(anew_s)
            del made, kept, update, compute
        notify(f"one slice more, {name}", 1.0)
    return updates, anew, greatest, "/".join(map(str, sorted(cells)))
