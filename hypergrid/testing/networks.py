"""Made-up networks with everything that goes wrong: holes, drifting clocks, flags, dead and unplaced stations."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import xarray as xr
from numpy.typing import NDArray

from hypergrid.flags import MISSING
from hypergrid.query import OpenArchive, open_archive
from hypergrid.store import Archive
from hypergrid.streams.elements import Position, Readings, Series, Station
from hypergrid.testing.feeds import Feed, Row, Sensor
from hypergrid.times import SECOND_NS, parse_instant
from hypergrid.units import KNOWN_VARIABLES, Variable

START_NS = parse_instant("2007-10-01T00:00Z")
"""When the networks begin to report, or soon after."""

SLICE_S = 120.0


def write_archive(
    folder: Path, *, stations: Sequence[Station], readings: Sequence[Readings], slice_s: float = SLICE_S
) -> OpenArchive:
    """Write an archive with one commit, and open it."""
    names = list(dict.fromkeys(series.variable for part in readings for series in part.series))
    variables = [KNOWN_VARIABLES.get(name, Variable(name)) for name in names]
    archive = Archive.create(folder, name="made-up", slice_s=slice_s, variables=variables, now_ns=START_NS)
    with archive.commit(batch="1", message="made up", now_ns=START_NS) as writer:
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


def random_archive(folder: Path, seed: int, *, hours: int = 4) -> tuple[OpenArchive, dict[str, Feed]]:
    """Write an archive of two variables of random readings; return it with the same as an oracle's feeds."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(3, 7))
    places = np.stack([7.177 + rng.uniform(0, 0.004, count), 45.867 + rng.uniform(0, 0.003, count)], axis=1)
    if seed % 3 == 2:
        places[0] = np.nan
    # The last of every other network has no known elevation.
    heights = [2300.0 + 37.25 * i if i < count - seed % 2 else np.nan for i in range(count)]
    stations = [
        Station(f"s{i}", f"Station {i}", (Position(None, float(x), float(y), height),))
        for i, ((x, y), height) in enumerate(zip(places, heights, strict=True))
    ]
    feeds, parts = {}, []
    for variable in ("air_temperature", "surface_temperature"):
        series = tuple(_series(rng, variable, i) for i in range(count))
        rows = [row for i, item in enumerate(series) for row in _rows(rng, i, item, hours)]
        located = zip(series, places, heights, strict=True)
        sensors = tuple(Sensor(item, float(x), float(y), height) for item, (x, y), height in located)
        feeds[variable] = Feed(sensors, tuple(rows), round(SLICE_S * SECOND_NS))
        parts.append(table(series, rows))
    return write_archive(folder, stations=stations, readings=parts), feeds


def _series(rng: np.random.Generator, variable: str, number: int) -> Series:
    interval, stamp = ((120.0, "instant"), (60.0, "instant"), (120.0, "end"), (0.0, "instant"))[rng.integers(4)]
    statistic = "mean" if stamp == "end" else "sample"
    return Series(variable, f"s{number}", 2.0, 1, statistic, interval, stamp)  # type: ignore[arg-type]


def _rows(rng: np.random.Generator, number: int, series: Series, hours: int) -> list[Row]:
    interval = round((series.interval_s or 120.0) * SECOND_NS)
    begin = START_NS + int(rng.integers(0, 3_000)) * SECOND_NS
    ticks = np.arange(begin, START_NS + hours * 3600 * SECOND_NS, interval)
    ticks = ticks + rng.integers(0, interval // 2_000_000, len(ticks)) * 1_000_000 * int(rng.integers(0, 2))
    heard = rng.random(len(ticks)) > rng.choice([0.0, 0.3, 0.8])
    first, last = sorted(rng.integers(0, len(ticks) + 1, 2).tolist())
    heard[first:last] &= bool(rng.integers(0, 2))
    ticks = ticks[heard] if heard.any() else ticks[:1]
    flags = rng.choice([1, 2, 2, 2, 3, 4, MISSING], len(ticks))
    values = np.where(flags == MISSING, np.nan, np.round(rng.normal(5.0, 8.0, len(ticks)), 3))
    shift = interval if series.stamp == "end" else 0
    return [Row(number, int(t) - shift, int(t), float(v), int(f)) for t, v, f in zip(ticks, values, flags, strict=True)]


def random_array(seed: int, *, instants: int = 40) -> tuple[xr.DataArray, dict[str, Feed]]:
    """Return a random array on projected metres, with irregular instants and holes, and the same as a feed."""
    rng = np.random.default_rng(seed)
    count = int(rng.integers(1, 6))
    times: NDArray[np.int64] = START_NS + np.cumsum(rng.integers(1, 600, instants)) * SECOND_NS
    values = np.where(rng.random((instants, count)) < 0.3, np.nan, rng.normal(0.0, 5.0, (instants, count)))
    x, y = rng.uniform(0, 1000.0, (2, count))
    heights = [2300.0 + 37.25 * i for i in range(count)]
    array = xr.DataArray(
        values,
        dims=("time", "station"),
        coords={
            "time": times.view("datetime64[ns]"),
            "x": ("station", x),
            "y": ("station", y),
            "elevation": ("station", heights),
        },
        name="air_temperature",
        attrs={"units": "degC"},
    )
    sensors = tuple(
        Sensor(Series("air_temperature", str(i), source="array"), float(x[i]), float(y[i]), heights[i])
        for i in range(count)
    )
    rows = tuple(
        Row(j, int(times[i]), int(times[i]), float(values[i, j]), 2)
        for i, j in zip(*np.nonzero(np.isfinite(values)), strict=True)
    )
    return array, {"air_temperature": Feed(sensors, rows, None, tuple(times.tolist()), is_lonlat=False)}
