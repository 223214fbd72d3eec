"""Readings as an oracle takes them: a list of rows for each variable, and where its sensors stand."""

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace

from hypergrid.core.readings import Series


@dataclass(frozen=True)
class Row:
    """One reading."""

    sensor: int
    start_ns: int
    """Start of its interval [ns since 1970 UTC]; the instant of a sample."""
    stamp_ns: int
    """Its stamp [ns since 1970 UTC]."""
    value: float
    flag: int


@dataclass(frozen=True)
class Sensor:
    """One series with its place: lon and lat [degree], or x and y [m]; NaN where it is not known."""

    series: Series
    x: float
    y: float
    elevation_m: float
    """Above sea level; NaN where it is not known."""


@dataclass(frozen=True)
class Feed:
    """All readings of one variable, of the series that a query reads."""

    sensors: tuple[Sensor, ...]
    rows: tuple[Row, ...]
    slice_ns: int | None
    """Length of the slices of the base [ns]; None for an array, whose readings share their instants."""
    times_ns: tuple[int, ...] = ()
    """Instants of an array [ns since 1970 UTC]."""
    is_lonlat: bool = True
    stamps_ns: tuple[int, ...] = ()
    """Stamps of the variable, where some of its series are left out."""
    terrain: Callable[[float, float], float] | None = None
    """Elevation of the ground [m] at x and y, where it is known."""

    def at(self, stations: Collection[str]) -> "Feed":
        """Return the readings of some stations."""
        kept = [i for i, sensor in enumerate(self.sensors) if sensor.series.station in stations]
        rows = tuple(replace(row, sensor=kept.index(row.sensor)) for row in self.rows if row.sensor in kept)
        stamps = tuple(row.stamp_ns for row in self.rows)
        return replace(self, sensors=tuple(self.sensors[i] for i in kept), rows=rows, stamps_ns=stamps)

    @property
    def extent(self) -> tuple[int, int]:
        """From the first to after the last slice with a stamp, each earlier where intervals end at their stamps."""
        if self.slice_ns is None:
            return self.times_ns[0], self.times_ns[-1] + 1
        slices = [stamp // self.slice_ns for stamp in self.stamps_ns or [row.stamp_ns for row in self.rows]]
        spans = [round(s.series.interval_s * 1e9) if s.series.stamp == "end" else 0 for s in self.sensors]
        return min(slices) * self.slice_ns - max(spans), (max(slices) + 1) * self.slice_ns - min(spans)
