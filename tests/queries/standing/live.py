"""A network that readings are added to slice by slice, and a clock that is moved by hand."""

import atexit
import shutil
import tempfile
from collections.abc import Mapping, Sequence
from functools import cache
from pathlib import Path

import numpy as np

from hypergrid.archive import Archive
from hypergrid.core.flags import NOT_EVALUATED
from hypergrid.core.readings import Position, Readings, Series, Station
from hypergrid.core.times import SECOND_NS, parse_instant
from hypergrid.core.units import KNOWN_VARIABLES

START_NS = parse_instant("2007-10-01")
STEP_NS = 120 * SECOND_NS
STATIONS = {
    "1": (7.1772, 45.8672),
    "2": (7.1803, 45.8671),
    "3": (7.1788, 45.8690),
    "4": (7.1771, 45.8702),
}
VARIABLES = ("air_temperature", "surface_temperature")


def _make(folder: Path) -> Archive:
    """Make an archive of stations without readings."""
    variables = [KNOWN_VARIABLES[name] for name in VARIABLES]
    archive = Archive.create(folder, name="live", slice_s=120.0, variables=variables, now_ns=START_NS)
    with archive.commit(batch="stations", message="stations", now_ns=START_NS) as writer:
        places = STATIONS.items()
        writer.stations([Station(one, f"Station {one}", (Position(None, *at, 2400.0),)) for one, at in places])
    return archive.latest()


@cache
def _made() -> Path:
    """Return such an archive, which is made once a process: to copy it takes a hundredth of the time."""
    above = Path(tempfile.mkdtemp(prefix="hypergrid-live-"))
    atexit.register(shutil.rmtree, above, ignore_errors=True)
    return _make(above / "live").path


class Live:
    """An archive with slices of two minutes; one that is made `anew` has no snapshot of another."""

    def __init__(self, folder: Path, *, anew: bool = False) -> None:
        self.archive = _make(folder) if anew else Archive.open(shutil.copytree(_made(), folder))
        self.folder, self.batches = folder, 0

    def add(
        self,
        slice_: int,
        values: Mapping[str, float],
        *,
        variable: str = "air_temperature",
        arrival_ns: int | None = None,
    ) -> str:
        """Commit one slice: a value a station; return the snapshot."""
        return self.add_all([(slice_, values)], variables=(variable,), arrival_ns=arrival_ns)

    def add_all(
        self,
        slices: Sequence[tuple[int, Mapping[str, float]]],
        *,
        variables: Sequence[str] = ("air_temperature",),
        arrival_ns: int | None = None,
    ) -> str:
        """Commit some slices of some variables at once; return the snapshot."""
        self.batches += 1
        with self.archive.commit(batch=str(self.batches), message="more", now_ns=START_NS) as writer:
            for variable in variables:
                for slice_, values in slices:
                    writer.readings(_readings(variable, slice_, values, arrival_ns))
        self.archive = self.archive.latest()
        return self.archive.snapshot

    def everywhere(self, slice_: int, value: float, *, variable: str = "air_temperature") -> str:
        """Commit one slice with the same value at every station."""
        return self.add(slice_, dict.fromkeys(STATIONS, value), variable=variable)


def _readings(variable: str, slice_: int, values: Mapping[str, float], arrival_ns: int | None) -> Readings:
    series = tuple(Series(variable, station, 2.0, interval_s=120.0, source="feed/t") for station in STATIONS)
    names = list(STATIONS)
    index = np.array([names.index(station) for station in values], np.int32)
    stamps = np.full(len(values), START_NS + slice_ * STEP_NS, np.int64)
    arrivals = stamps if arrival_ns is None else np.full(len(values), arrival_ns, np.int64)
    value = np.array(list(values.values()))
    flags = np.where(np.isnan(value), 9, NOT_EVALUATED).astype(np.uint8)
    return Readings(series, index, stamps, value, flags, arrivals)


class Clock:
    """A clock that is moved by hand."""

    def __init__(self) -> None:
        self.ns = START_NS
        self.seconds = 1000.0

    def time_ns(self) -> int:
        return self.ns

    def monotonic(self) -> float:
        return self.seconds
