"""Made-up networks with everything that goes wrong: holes, drifting clocks, flags, dead and unplaced stations."""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from hypergrid.archive import Archive
from hypergrid.core.flags import MISSING
from hypergrid.core.readings import Position, Readings, Series, Station
from hypergrid.core.times import SECOND_NS, parse_instant
from hypergrid.core.units import KNOWN_VARIABLES, Variable
from hypergrid.query import OpenArchive, open_archive
from tests.support.feeds import Feed, Row, Sensor

START_NS = parse_instant("2007-10-01T00:00Z")
"""When the networks begin to report, or soon after."""

SLICE_S = 120.0

LOWEST_M: Final = 2300.0
HIGHER_M: Final = 37.25
"""Elevation of the first station, and how much higher each is than the one before [m]."""


def write_archive(
    folder: Path, *, stations: Sequence[Station], readings: Sequence[Readings], slice_s: float = SLICE_S,
    now_ns: int = START_NS,
) -> OpenArchive:  # fmt: skip
    """Write an archive with one commit, made at `now_ns` by the committer's clock, and open it."""
    names = list(dict.fromkeys(series.variable for part in readings for series in part.series))
    variables = [KNOWN_VARIABLES.get(name, Variable(name)) for name in names]
    archive = Archive.create(folder, name="made-up", slice_s=slice_s, variables=variables, now_ns=START_NS)
    with archive.commit(batch="1", message="made up", now_ns=now_ns) as writer:
        writer.stations(stations)
        for part in readings:
            writer.readings(part)
    return open_archive(folder)


def table(series: Sequence[Series], rows: Sequence[Row]) -> Readings:
    """Return rows as readings, each arriving at its stamp."""
    stamps = np.array([row.stamp_ns for row in rows], np.int64)
    return Readings(
        tuple(series),
        np.array([row.sensor for row in rows], np.int32),
        stamps,
        np.array([row.value for row in rows], np.float64),
        np.array([row.flag for row in rows], np.uint8),
        stamps,
    )


def random_archive(
    folder: Path, seed: int, *, hours: int = 4, now_ns: int = START_NS
) -> tuple[OpenArchive, dict[str, Feed]]:
    """Write an archive of two variables of random readings; return it with the same as an oracle's feeds."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(3, 7))
    places = np.stack([7.177 + rng.uniform(0, 0.004, count), 45.867 + rng.uniform(0, 0.003, count)], axis=1)
    if seed % 3 == 2:
        places[0] = np.nan
    heights = _heights(count, all_known=seed % 2 == 0)
    stations = _stations(places, heights)
    feeds, parts = {}, []
    stop_ns = START_NS + hours * 3600 * SECOND_NS
    for variable in ("air_temperature", "surface_temperature"):
        series = tuple(_series(rng, variable, i, KINDS) for i in range(count))
        rows = [row for i, item in enumerate(series) for row in _rows(rng, i, item, START_NS, stop_ns, 3_000)]
        sensors = _sensors(series, places, heights)
        feeds[variable] = Feed(sensors, tuple(rows), round(SLICE_S * SECOND_NS))
        parts.append(table(series, rows))
    return write_archive(folder, stations=stations, readings=parts, now_ns=now_ns), feeds


def _heights(count: int, *, all_known: bool) -> list[float]:
    """Return elevations of stations [m]; that of the last may not be known."""
    return [LOWEST_M + HIGHER_M * i if all_known or i < count - 1 else math.nan for i in range(count)]


def _stations(places: NDArray[np.float64], heights: Sequence[float]) -> list[Station]:
    return [
        Station(f"s{i}", f"Station {i}", (Position(None, float(x), float(y), height),))
        for i, ((x, y), height) in enumerate(zip(places, heights, strict=True))
    ]


def _sensors(series: Sequence[Series], places: NDArray[np.float64], heights: Sequence[float]) -> tuple[Sensor, ...]:
    # Of the series, places or heights, those that are more belong to stations that do not measure this.
    located = zip(series, places, heights, strict=False)
    return tuple(Sensor(item, float(x), float(y), height) for item, (x, y), height in located)


Kind = tuple[float, str, str]
"""Interval [s], what a stamp marks, and statistic of a series."""
KINDS: Final[tuple[Kind, ...]] = (
    (120.0, "instant", "sample"), (60.0, "instant", "sample"), (120.0, "end", "mean"), (0.0, "instant", "sample")
)  # fmt: skip


@dataclass(frozen=True)
class Pace:
    """How fast the stations of a network report, and for how long."""

    slice_s: float
    kinds: tuple[Kind, ...]
    start_ns: int
    days: float
    most_stations: int = 4

    @property
    def stop_ns(self) -> int:
        """When they stop."""
        return self.start_ns + round(self.days * 86_400) * SECOND_NS


def _kinds(interval_s: float) -> tuple[Kind, ...]:
    half = (interval_s / 2, "instant", "sample")
    return ((interval_s, "instant", "sample"), half, *((interval_s, stamp, "mean") for stamp in ("start", "end")))


PACES: Final[Mapping[str, Pace]] = {
    "minutes": Pace(SLICE_S, (*_kinds(SLICE_S), (0.0, "instant", "sample")), START_NS, 1 / 6, 5),
    # Clocks in Europe went back on 28 October 2007.
    "hours": Pace(3_600.0, _kinds(3_600.0), parse_instant("2007-10-24T05:00Z"), 10.0),
    "days": Pace(21_600.0, _kinds(21_600.0), parse_instant("2007-10-20T00:00Z"), 100.0),
}
"""Networks over hours, over a change of the clock, and over months and a turn of the year."""

Draw = Callable[[np.random.Generator, int], NDArray[np.float64]]
VALUES: Final[Mapping[str, Draw]] = {
    "air_temperature": lambda rng, n: rng.normal(5.0, 8.0, n),
    "surface_temperature": lambda rng, n: rng.normal(4.0, 9.0, n),
    "relative_humidity": lambda rng, n: rng.uniform(5.0, 104.0, n),
    "air_pressure": lambda rng, n: rng.normal(75.0, 2.0, n),
    "rain_meter": lambda rng, n: _counter(rng, n),
    "wind_speed": lambda rng, n: np.maximum(rng.normal(2.0, 2.0, n), 0.0),
    "wind_direction": lambda rng, n: rng.uniform(0.0, 360.0, n),
    "solar_radiation": lambda rng, n: np.maximum(rng.normal(100.0, 200.0, n), 0.0),
}
"""What is measured, in the units of an archive; calm air, too wet sensors and counters that are reset among it."""


def _counter(rng: np.random.Generator, count: int) -> NDArray[np.float64]:
    total = np.cumsum(rng.choice([0.0, 0.0, 0.0, 0.25, 1.5], count))
    resets = np.sort(rng.integers(0, count + 1, 2))
    for reset in resets:
        total[reset:] -= total[reset] if reset < count else 0.0
    return total


def varied_archive(folder: Path, seed: int, pace: str) -> tuple[OpenArchive, dict[str, Feed]]:
    """Write an archive of every variable of `VALUES` at a pace of `PACES`; return it with the same as feeds.

    A station may lack a position, another its elevation, and the last one measures no wind speed and no pressure.
    """
    rng, own = np.random.default_rng([seed, len(pace)]), PACES[pace]
    count = int(rng.integers(3, own.most_stations + 1))
    places = np.stack([7.177 + rng.uniform(0, 0.004, count), 45.867 + rng.uniform(0, 0.003, count)], axis=1)
    if seed % 2:
        places[0] = np.nan
    heights = _heights(count, all_known=seed % 3 < 2)
    stations = _stations(places, heights)
    late_s = round(own.days * 86_400 / 8)
    feeds, parts = {}, []
    for variable, draw in VALUES.items():
        stood = places[: count - 1] if variable in ("wind_speed", "air_pressure") else places
        kinds = tuple(kind for kind in own.kinds if kind[2] == "sample" or variable != "rain_meter")
        series = tuple(_series(rng, variable, i, kinds) for i in range(len(stood)))
        rows = [
            row
            for i, item in enumerate(series)
            for row in _rows(rng, i, item, own.start_ns, own.stop_ns, late_s, draw, own.slice_s)
        ]
        sensors = _sensors(series, stood, heights)
        feeds[variable] = Feed(sensors, tuple(rows), round(own.slice_s * SECOND_NS))
        parts.append(table(series, rows))
    return write_archive(folder, stations=stations, readings=parts, slice_s=own.slice_s), feeds


def _series(rng: np.random.Generator, variable: str, number: int, kinds: Sequence[Kind]) -> Series:
    interval, stamp, statistic = kinds[int(rng.integers(len(kinds)))]
    return Series(variable, f"s{number}", 2.0, 1, statistic, interval, stamp)  # type: ignore[arg-type]


def _rows(  # noqa: PLR0913 - what a series is, when it reports and what
    rng: np.random.Generator, number: int, series: Series, start_ns: int, stop_ns: int, late_s: int,
    draw: Draw = lambda rng, n: rng.normal(5.0, 8.0, n), otherwise_s: float = SLICE_S,
) -> list[Row]:  # fmt: skip
    interval = round((series.interval_s or otherwise_s) * SECOND_NS)
    begin = start_ns + int(rng.integers(0, late_s)) * SECOND_NS
    ticks = np.arange(begin, stop_ns, interval)
    ticks = ticks + rng.integers(0, interval // 2_000_000, len(ticks)) * 1_000_000 * int(rng.integers(0, 2))
    heard = rng.random(len(ticks)) > rng.choice([0.0, 0.3, 0.8])
    first, last = sorted(rng.integers(0, len(ticks) + 1, 2).tolist())
    heard[first:last] &= bool(rng.integers(0, 2))
    ticks = ticks[heard] if heard.any() else ticks[:1]
    flags = rng.choice([1, 2, 2, 2, 3, 4, MISSING], len(ticks))
    values = np.where(flags == MISSING, np.nan, np.round(draw(rng, len(ticks)), 3))
    shift = interval if series.stamp == "end" else 0
    return [Row(number, int(t) - shift, int(t), float(v), int(f)) for t, v, f in zip(ticks, values, flags, strict=True)]


def random_array(
    seed: int, *, instants: int = 40, variable: str = "air_temperature", pace: str = "minutes"
) -> tuple[xr.DataArray, dict[str, Feed]]:
    """Return a random array on projected metres, with irregular instants and holes, and the same as a feed."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 6))
    longest_s = round(PACES[pace].days * 86_400 / 24)
    times: NDArray[np.int64] = PACES[pace].start_ns + np.cumsum(rng.integers(1, longest_s, instants)) * SECOND_NS
    values = np.where(rng.random((instants, count)) < 0.3, np.nan, rng.normal(0.0, 5.0, (instants, count)))
    if variable != "air_temperature":
        held = np.stack([VALUES[variable](rng, instants) for _ in range(count)], axis=1)
        values = np.where(np.isnan(values), np.nan, held)
    x, y = rng.uniform(0, 1000.0, (2, count))
    if seed % 4 == 2:
        # In the very middle of a cell of the grids that `strategies` draws.
        x[0], y[0] = 180.0, 300.0
    heights = _heights(count, all_known=count == 1 or seed % 3 > 0)
    array = xr.DataArray(
        values,
        dims=("time", "station"),
        coords={
            "time": times.view("datetime64[ns]"),
            **{name: ("station", along) for name, along in (("x", x), ("y", y), ("elevation", heights))},
        },
        name=variable,
        attrs={"units": KNOWN_VARIABLES[variable].unit},
    )
    series = [Series(variable, str(i), source="array") for i in range(count)]
    sensors = _sensors(series, np.stack([x, y], axis=1), heights)
    rows = tuple(
        Row(j, int(times[i]), int(times[i]), float(values[i, j]), 2)
        for i, j in zip(*np.nonzero(np.isfinite(values)), strict=True)
    )
    terrain = _ground if knows_ground(seed) else None
    return array, {variable: Feed(sensors, rows, None, tuple(times.tolist()), is_lonlat=False, terrain=terrain)}


def knows_ground(seed: int) -> bool:
    """Return whether there is a layer of elevation beside a random array."""
    return seed % 4 == 1


def random_layers(seed: int) -> dict[str, xr.DataArray]:
    """Return the layers beside a random array: a slope, or none."""
    along = np.arange(-500.0, 1501.0, 250.0)
    slope = [[_ground(x, y) for x in along] for y in along]
    ground = xr.DataArray(slope, dims=("y", "x"), coords={"y": along, "x": along}, attrs={"units": "m"})
    return {"elevation": ground} if knows_ground(seed) else {}


def _ground(x: float, y: float) -> float:
    return 2290.017 + 0.11 * x + 0.07 * y
