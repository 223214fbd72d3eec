"""Station files for the benchmark of ingest: values that vary as weather does, in two shapes of text.

Half of the stations write wide CSV with ISO times, half the text of SensorScope with its 17 fields; a file a station, a
row every two minutes, nine variables. A thousandth of the values is missing, and some are spikes. Written by columns.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.csv
from numpy.typing import NDArray

from hypergrid.physics.sun import clear_sky, sun
from ingest.formats.sensorscope import COLUMNS
from station_data.network import Station, stations

FIRST_S: Final = 1_167_609_600
"""The first stamp [s since 1970 UTC]: 2007-01-01."""
INTERVAL_S: Final = 120
MOST_STATIONS: Final = 64
RADIATION: Final = COLUMNS.index("solar_radiation")
GAUGE: Final = COLUMNS.index("rain_meter")
_SWING: Final = (6.0, 12.0, 0.0, 15.0, 1.0, 4.0, 0.0, 1.0, 60.0)
_MEAN: Final = (4.0, 5.0, 0.0, 65.0, 25.0, -40.0, 0.0, 4.0, 180.0)
_NOISE: Final = (0.1, 0.2, 0.0, 0.8, 0.05, 0.2, 0.0, 0.6, 15.0)
_LOW: Final = (-60.0, -60.0, 0.0, 5.0, 1.0, -200.0, 0.0, 0.0, 0.0)
_HIGH: Final = (45.0, 75.0, 1500.0, 100.0, 70.0, 0.0, 1e4, 60.0, 360.0)
_SPIKE: Final = (20.0, 40.0, 0.0, 45.0, 15.0, 90.0, 0.0, 40.0, 0.0)


@dataclass(frozen=True)
class Files:
    """What was written."""

    folder: Path
    values: int
    """Values of all files, the missing ones included."""
    size_bytes: int
    stations: int
    rows_a_station: int


def write_files(folder: Path, values: int, *, seed: int = 2007) -> Files:
    """Write files of about so many values and their deployments, with tests and without, into a new folder."""
    folder.mkdir(parents=True)
    rng = np.random.default_rng(seed)
    count = int(np.clip(values // (len(COLUMNS) * 2000), 2, MOST_STATIONS)) // 2 * 2
    rows = max(1, round(values / len(COLUMNS) / count))
    stamps_s = FIRST_S + INTERVAL_S * np.arange(rows)
    network = stations(count)
    size_bytes = 0
    for place, station in enumerate(network):
        clock_s = stamps_s + int(rng.integers(0, 30))
        columns = _weather(rng, clock_s, station)
        write, name = (_write_csv, "csv") if place % 2 == 0 else (_write_sensorscope, "txt")
        path = folder / f"station-{station.id}.{name}"
        write(path, station.id, clock_s, columns)
        size_bytes += path.stat().st_size
    for quality in (True, False):
        deployment_of(folder, quality=quality).write_text(deployment(count, quality=quality), encoding="utf-8")
    return Files(folder, count * rows * len(COLUMNS), size_bytes, count, rows)


def deployment_of(folder: Path, *, quality: bool) -> Path:
    """Return the deployment file that lets the default tests run, or none: it lies beside the folder."""
    return folder / "deployment.toml" if quality else folder.with_name(f"{folder.name}-without-tests.toml")


def deployment(count: int, *, quality: bool) -> str:
    """Return the deployment of the first stations of the sample network, with two feeds of all variables."""
    units = ("degC", "degC", "W m-2", "%", "%", "kPa", "mm", "m s-1", "degree")
    mapped = "\n".join(
        f'{name} = {{variable = "{name}", unit = "{unit}"}}' for name, unit in zip(COLUMNS, units, strict=True)
    )
    feeds = [
        f'[[feed]]\nname = "{name}"\nfiles = "*.{end}"\nformat = "{name}"\ninterval_s = {INTERVAL_S}.0\n'
        f'nodata = ["nan"]\n[feed.columns]\n{mapped}\n'
        for name, end in (("csv", "csv"), ("sensorscope", "txt"))
    ]
    places = [
        f'[[station]]\nid = "{one.id}"\nname = "{one.name}"\nlon = {one.lon}\nlat = {one.lat}\n'
        f"elevation_m = {one.elevation_m}\n"
        for one in stations(count)
    ]
    tests = f"[quality]\nrun = {str(quality).lower()}\n"
    return "\n".join([f'[network]\nname = "bench"\nslice_s = {INTERVAL_S}\n', *feeds, *places, tests])


def _weather(rng: np.random.Generator, clock_s: NDArray[np.int64], station: Station) -> list[NDArray[np.float64]]:
    """Return nine columns, each of shape (rows,), with two decimals."""
    size = len(clock_s)
    day = np.sin(2 * np.pi * (clock_s / 86_400 - 0.4))
    year = np.sin(2 * np.pi * (clock_s / (365.25 * 86_400) - 0.3))
    corners = np.arange(0, size + 720, 720)
    spells = np.interp(np.arange(size), corners, rng.normal(size=len(corners)))
    found = []
    for place, (mean, swing, noise) in enumerate(zip(_MEAN, _SWING, _NOISE, strict=True)):
        if place == GAUGE:
            # It counts, and stands still for days.
            column = np.cumsum(rng.random(size) < 0.002) * 0.2
        elif place == RADIATION:
            now = sun(clock_s * 10**9)
            above = now.sine(np.array([station.lon]), np.array([station.lat]))
            clear = clear_sky(above, np.array([station.elevation_m]), now.irradiance_w_m2)[:, 0]
            column = clear * (0.7 + 0.1 * np.tanh(spells) + rng.normal(0.0, 0.02, size))
        else:
            column = mean + swing * (0.6 * day + 0.5 * year + 0.4 * spells) + rng.normal(0.0, noise, size)
        column = np.clip(column, _LOW[place], _HIGH[place])
        if _SPIKE[place]:
            column[rng.integers(0, size, max(1, size // 20_000))] += _SPIKE[place]
        column[rng.random(size) < 0.001] = np.nan
        found.append(np.round(column, 2) + 0.0)
    return found


def _write_csv(path: Path, station: str, clock_s: NDArray[np.int64], columns: list[NDArray[np.float64]]) -> None:
    names = ["station", "time", *COLUMNS]
    # Nothing where nothing was measured.
    values = [pa.array(column, from_pandas=True) for column in columns]
    table = pa.table([_same(station, len(clock_s)), _iso(clock_s), *values], names)
    with path.open("wb") as stream:
        stream.write((",".join(names) + "\n").encode())
        pa.csv.write_csv(table, stream, pa.csv.WriteOptions(include_header=False, quoting_style="none"))


def _write_sensorscope(
    path: Path, station: str, clock_s: NDArray[np.int64], columns: list[NDArray[np.float64]]
) -> None:
    days = clock_s.astype("datetime64[s]").astype("datetime64[D]")
    months = days.astype("datetime64[M]")
    second = clock_s % 86_400
    clock = [
        days.astype("datetime64[Y]").astype(np.int64) + 1970,
        months.astype(np.int64) % 12 + 1,
        (days - months).astype(np.int64) + 1,
        second // 3600,
        second // 60 % 60,
        second % 60,
        clock_s,
    ]
    arrays = [_same(station, len(clock_s)), *map(pa.array, clock), *map(pa.array, columns)]
    table = pa.table(arrays, [str(number) for number in range(len(arrays))])
    options = pa.csv.WriteOptions(include_header=False, delimiter=" ", quoting_style="none")
    pa.csv.write_csv(table, path, options)


def _same(text: str, size: int) -> pa.Array:
    return pa.repeat(pa.scalar(text), size)


def _iso(clock_s: NDArray[np.int64]) -> pa.Array:
    return pa.array(np.char.add(np.datetime_as_string(clock_s.astype("datetime64[s]")), "Z"))
