"""The stations as a collection: stored readings, good or not evaluated, at the station positions."""

import math
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hypergrid.archive import Archive
from hypergrid.core.errors import NotFound
from hypergrid.core.flags import ACCEPTED_BY_DEFAULT
from hypergrid.core.geodesy import arc_m, places_m
from hypergrid.core.times import SECOND_NS, Window
from hypergrid.core.tokens import token
from hypergrid.formats.readings import ReadingsPiece, SelectedReadings, Selection, SeriesKind
from hypergrid.topology.wkt import Region
from queries.snapshots.latest import SeriesExtents
from queries.snapshots.readings import EVER, pieces_of
from queries.web.edr.asked import EdrParams, Ranges

ID: Final = "stations"
"""Id of the collection; a saved query of this name is not served."""
# Stations further away are not representative of the position.
NEAREST_M: Final = 50_000.0
"""Largest distance of the nearest station from a position [m]."""


@dataclass(frozen=True, eq=False)
class ReadingsAnswer:
    """Readings that answer a request."""

    chosen: SelectedReadings
    pieces: tuple[ReadingsPiece, ...]


@dataclass(frozen=True)
class ReadingsExtent:
    """Time span of a station's readings of a parameter."""

    start_ns: int
    """Start of the interval of the first reading [ns since 1970 UTC]."""
    end_ns: int
    """End of the interval of the last reading; for instantaneous readings the last instant [ns since 1970 UTC]."""
    is_of_instants: bool

    def meets(self, times: Ranges) -> bool:
        """Return whether it overlaps times [ns since 1970 UTC]."""
        end_ns = self.end_ns + (1 if self.is_of_instants else 0)
        return bool(times.meet(np.array([self.start_ns]), np.array([end_ns]))[0])


@dataclass(frozen=True, eq=False)
class StationsCollection:
    """The stations of an archive at one snapshot."""

    archive: Archive
    extent_cache: SeriesExtents
    """Shared between snapshots, so that only changes are read."""
    id: str = ID

    @property
    def token(self) -> str:
        """Content token: equal tokens give equal answers."""
        return token(self.archive.name, self.archive.snapshot, self.id)

    @cached_property
    def parameters(self) -> dict[str, SeriesKind]:
        """Kinds of series by key: the variable, with height or statistic if it has several."""
        try:
            return {kind.key: kind for kind in SelectedReadings(self.archive, Selection()).kinds}
        except NotFound:
            # The archive is empty.
            return {}

    @cached_property
    def keys(self) -> dict[str, tuple[str, ...]]:
        """Parameter keys of each station that has any."""
        keys_by_station: dict[str, list[str]] = {}
        for key, kind in self.parameters.items():
            for name in kind.stations:
                keys_by_station.setdefault(name, []).append(key)
        return {name: tuple(dict.fromkeys(keys)) for name, keys in keys_by_station.items()}

    @cached_property
    def places(self) -> dict[str, tuple[float, float]]:
        """Longitude and latitude [degree] of the stations with parameters and a position."""
        positions = {}
        for name in self.keys:
            station = self.archive.stations.get(name)
            if station is not None and math.isfinite(station.position.lon) and math.isfinite(station.position.lat):
                positions[name] = (station.position.lon, station.position.lat)
        return positions

    @cached_property
    def box(self) -> tuple[float, float, float, float] | None:
        """West, south, east and north [degree]; None if no station has a position."""
        if not self.places:
            return None
        at = np.array(list(self.places.values()))
        (west, south), (east, north) = at.min(axis=0).tolist(), at.max(axis=0).tolist()
        return west, south, east, north

    @cached_property
    def window(self) -> Window | None:
        """Time span of the slices with readings; None without any."""
        names = {kind.variable.name for kind in self.parameters.values()}
        held = [window for name in names if (window := self.archive.extent(name)) is not None]
        if not held:
            return None
        return Window(min(span.start_ns for span in held), max(span.stop_ns for span in held))

    @cached_property
    def extents(self) -> dict[str, dict[str, ReadingsExtent]]:
        """Time span of the served readings, by station and parameter."""
        held, extents_by_station = self.extent_cache.read_extents(self.archive), dict[str, dict[str, ReadingsExtent]]()
        for key, kind in self.parameters.items():
            of, sample = held[kind.variable.name], kind.sample
            length_ns = 0 if sample.stamp == "instant" else round(sample.interval_s * SECOND_NS)
            before_ns, after_ns = (length_ns, 0) if sample.stamp == "end" else (0, length_ns)
            for number, name in zip(kind.numbers, kind.stations, strict=True):
                first_ns, last_ns = int(of.first_ns[number]), int(of.last_ns[number])
                if first_ns <= last_ns:
                    extent = ReadingsExtent(first_ns - before_ns, last_ns + after_ns, length_ns == 0)
                    extents_by_station.setdefault(name, {})[key] = extent
        return extents_by_station

    def label(self, name: str) -> str:
        station = self.archive.stations.get(name)
        return name if station is None or not station.name else station.name

    def find_nearest(self, lon: float, lat: float, names: tuple[str, ...] | None) -> tuple[str, float] | None:
        """Find the nearest station with a wanted parameter, and its distance [m]; None beyond `NEAREST_M`."""
        able = [name for name in self.places if names is None or set(names) & set(self.keys[name])]
        if not able:
            return None
        at = np.array([self.places[name] for name in able])
        # Chord lengths have the same order as distances on the sphere.
        straight = np.linalg.norm(places_m(at[:, 0], at[:, 1]) - places_m(np.array(lon), np.array(lat)), axis=1)
        best = int(np.argmin(straight))
        distance_m = float(arc_m(straight[best : best + 1])[0])
        return (able[best], distance_m) if distance_m <= NEAREST_M else None

    def find_inside(self, region: Region) -> tuple[str, ...]:
        """Find the stations in a region or on its edge."""
        if not self.places:
            return ()
        names, at = list(self.places), np.array(list(self.places.values()))
        return tuple(names[index] for index in np.flatnonzero(region.holds(at[:, 0], at[:, 1])).tolist())

    def read(self, names: tuple[str, ...], asked: EdrParams) -> ReadingsAnswer | None:
        """Read the requested readings of some stations; None if these have none of the parameters.

        Raises
        ------
        TooLarge
            There are too many for one answer.
        """
        wanted = asked.names or tuple(self.parameters)
        able = tuple(name for name in names if set(wanted) & set(self.keys[name]))
        if not able:
            return None
        window = None if asked.times is None else self._window(asked.times)
        chosen = SelectedReadings(self.archive, Selection(wanted, able, window, ACCEPTED_BY_DEFAULT))
        return ReadingsAnswer(chosen, tuple(_clip_piece(piece, asked.times) for piece in pieces_of(chosen)))

    def _window(self, times: Ranges) -> Window:
        """Bound the timestamps of readings whose interval overlaps the times."""
        longest_ns = max(round(kind.sample.interval_s * SECOND_NS) for kind in self.parameters.values())
        first = EVER[0] if math.isinf(times.first) else max(int(times.first) - longest_ns, EVER[0])
        last = EVER[1] if math.isinf(times.last) else min(int(times.last) + longest_ns, EVER[1])
        # Clamped, as requests may lie outside the representable times.
        return Window(min(first, EVER[1] - 1), max(last, EVER[0]) + 1)


def _clip_piece(piece: ReadingsPiece, times: Ranges | None) -> ReadingsPiece:
    if times is None:
        return piece
    kept: NDArray[np.bool_] = times.meet(*piece.intervals_ns())
    return replace(piece, readings=piece.readings.take_rows(kept), station=piece.station[kept])
