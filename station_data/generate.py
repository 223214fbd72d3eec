"""Draw the station files of the pass into a folder that appears whole or not at all."""

import argparse
import os
import shutil
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple, TextIO

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import Progress
from scipy.special import ndtri

from station_data import faults
from station_data import network as pass_network
from station_data.clock import NOMINAL_S, draw, dropouts, numbers_between, sample_times, station_generator
from station_data.faults import Fault
from station_data.network import Station
from station_data.truth import VARIABLES, truth

Format = Literal["sensorscope", "csv"]
FORMATS: tuple[Format, ...] = ("sensorscope", "csv")
LOCAL_OFFSET_S = 7200
"""The clock columns of the SensorScope text are in local summer time [s ahead of UTC]."""
CHUNK_ROWS = 50_000


def write_sensorscope(path: Path, station: str, stamps_s: NDArray[np.int64], readings: NDArray[np.float64]) -> None:
    """Write 17 blank-separated columns: station, local clock (six), epoch [s], nine values with three decimals."""
    row = f"{station} %s %d" + " %.3f" * len(VARIABLES) + "\n"
    with path.open("w", encoding="ascii", newline="\n") as file:
        for part in _chunks(stamps_s):
            clock = iso_seconds(stamps_s[part] + LOCAL_OFFSET_S)
            # The text "2007-10-01T02:00:12" differs from the six columns only in its separators.
            letters = clock.view("U1").reshape(clock.size, -1)
            letters[:, [4, 7, 10, 13, 16]] = " "
            _write_rows(file, row, [clock, stamps_s[part]], readings[part], missing="NaN")


def write_csv(path: Path, station: str, stamps_s: NDArray[np.int64], readings: NDArray[np.float64]) -> None:
    """Write ``station,time,<nine variables>`` with a header, ISO 8601 time with Z, and empty missing values."""
    row = f"{station},%sZ" + ",%.3f" * len(VARIABLES) + "\n"
    with path.open("w", encoding="ascii", newline="\n") as file:
        file.write(",".join(("station", "time", *VARIABLES)) + "\n")
        for part in _chunks(stamps_s):
            _write_rows(file, row, [iso_seconds(stamps_s[part])], readings[part], missing="")


def write_arrivals(
    path: Path, stations: NDArray[np.int64], stamps_s: NDArray[np.int64], arrivals_s: NDArray[np.float64]
) -> None:
    """Write ``station,time,arrival`` [s since 1970], ordered by arrival, then stamp, then station."""
    order = np.lexsort((stations, stamps_s, arrivals_s))
    with path.open("w", encoding="ascii", newline="\n") as file:
        file.write("station,time,arrival\n")
        for part in _chunks(order):
            rows = order[part]
            columns = [stations[rows], stamps_s[rows]]
            _write_rows(file, "%d,%d,%.3f\n", columns, arrivals_s[rows][:, None], missing="")


def write_faults(path: Path, planted: Iterable[Fault]) -> None:
    """Write the ledger: ``kind,station,variable,start,end,magnitude``, ISO 8601 times with Z, end excluded."""
    lines = ["kind,station,variable,start,end,magnitude"]
    for fault in planted:
        start, end = iso_seconds(np.array([fault.start_s, fault.end_s]))
        magnitude = "" if np.isnan(fault.magnitude) else f"{fault.magnitude:g}"
        lines.append(f"{fault.kind},{fault.station},{fault.variable},{start}Z,{end}Z,{magnitude}")
    path.write_text("\n".join(lines) + "\n", encoding="ascii", newline="\n")


def write_stations(path: Path, network: Iterable[Station]) -> None:
    rows = [f"{station.id},{station.lon:.6f},{station.lat:.6f},{station.elevation_m:.1f}" for station in network]
    path.write_text("\n".join(["station,lon,lat,elevation_m", *rows]) + "\n", encoding="ascii", newline="\n")


def iso_seconds(seconds: NDArray[np.int64]) -> NDArray[np.str_]:
    """Format seconds since 1970 as ISO 8601 text to the second, without a zone."""
    return np.datetime_as_string(seconds.astype("datetime64[s]"), unit="s")


def _chunks(rows: NDArray[np.int64]) -> Iterable[slice]:
    """Split rows into slices of bounded length."""
    # Years of readings must not become one list of Python numbers.
    return (slice(begin, begin + CHUNK_ROWS) for begin in range(0, rows.size, CHUNK_ROWS))


def _write_rows(
    file: TextIO,
    row: str,
    keys: Sequence[NDArray[np.int64] | NDArray[np.str_]],
    values: NDArray[np.float64],
    *,
    missing: str,
) -> None:
    # Formatted in one operation; adding 0.0 removes the sign of -0.
    table = np.empty((values.shape[0], len(keys) + values.shape[1]), dtype=object)
    for column, key in enumerate(keys):
        table[:, column] = key
    table[:, len(keys) :] = np.round(values, 3) + 0.0
    file.write(((row * values.shape[0]) % tuple(table.ravel())).replace("nan", missing))


DEFAULT_START, DEFAULT_DAYS, DEFAULT_SEED, DEFAULT_STATIONS = "2007-09-20", 28, 2007, 24
Report = Callable[[int, int], None]
"""Called with the number of stations written and their total."""
_PATHS: dict[Format, str] = {"sensorscope": "pass-meteo-{}.txt", "csv": "pass-{}.csv"}
_WRITERS = {"sensorscope": write_sensorscope, "csv": write_csv}


class Period(NamedTuple):
    """The stamps in ``[start_s, stop_s)`` [s since 1970]."""

    start_s: int
    stop_s: int


def generate(
    out: Path,
    *,
    start: str | np.datetime64 = DEFAULT_START,
    days: int = DEFAULT_DAYS,
    seed: int = DEFAULT_SEED,
    stations: int = DEFAULT_STATIONS,
    formats: Sequence[Format] = FORMATS,
    progress: Report | None = None,
) -> Path:
    """Write the station files of a period into a new folder.

    What a station reports at an instant depends on the seed and the number of stations, never on the period: a day
    generated alone equals that day of a longer period.

    Parameters
    ----------
    out
        Folder to create; it may exist if it is empty. Files are written into a sibling folder that is renamed at the
        end.
    start
        First day (UTC midnight).
    days
        Number of days, at least 1.
    seed
        Seed of noise, faults and arrivals, at least 0.
    stations
        Number of stations, at least 1.
    formats
        Which of ``FORMATS`` to write.
    progress
        Called after each station.

    Returns
    -------
    Path
        `out`, with ``<format>/``, ``arrivals.csv``, ``faults.csv``, ``stations.csv`` and ``deployment.toml``.

    Raises
    ------
    FileExistsError
        If `out` exists and is not an empty folder.
    ValueError
        If a number is out of range, a format is unknown, or `start` is not a day.
    """
    period = _checked_period(start, days=days, seed=seed, formats=formats)
    network = pass_network.stations(stations)
    out = Path(out)
    if out.exists() and not (out.is_dir() and not any(out.iterdir())):
        raise FileExistsError(
            f"generate needs a folder that does not exist or is empty; got {out}; name another or remove it"
        )
    out.parent.mkdir(parents=True, exist_ok=True)
    # Renamed into place at the end, so that the folder appears complete or not at all.
    partial = out.parent / f".{out.name}.partial-{os.urandom(4).hex()}"
    try:
        _write(partial, network, period, seed, formats, progress)
        partial.rename(out)
    finally:
        shutil.rmtree(partial, ignore_errors=True)
    return out


def _checked_period(start: str | np.datetime64, *, days: int, seed: int, formats: Sequence[Format]) -> Period:
    """Validate the arguments and return the period."""
    unknown = [form for form in formats if form not in FORMATS]
    if days < 1 or seed < 0 or unknown or not formats:
        raise ValueError(
            f"generate needs days of at least 1, a seed of at least 0 and formats of {', '.join(FORMATS)}; "
            f"got days={days}, seed={seed}, formats={','.join(formats) or 'none'}"
        )
    instant = np.asarray(start, dtype="datetime64[s]")[()]
    if instant != instant.astype("datetime64[D]"):
        raise ValueError(f"generate needs a start at midnight UTC; got {start}; give a day such as {DEFAULT_START}")
    start_s = int(instant.astype(np.int64))
    return Period(start_s, start_s + days * 86_400)


def _write(
    folder: Path,
    network: tuple[Station, ...],
    period: Period,
    seed: int,
    formats: Sequence[Format],
    progress: Report | None,
) -> None:
    for form in formats:
        (folder / form).mkdir(parents=True)
    planted = faults.plan(seed, network, *period)
    keys, stamps, arrivals = [], [], []
    for done, station in enumerate(network, start=1):
        station_faults = tuple(fault for fault in planted if fault.station == station.id)
        late_s = faults.ZONE_ERROR_S if station.id == faults.wrong_zone_station(seed, len(network)) else 0
        stamps_s, readings, arrived_s = _readings(seed, station, station_faults, period, late_s)
        for form in formats:
            _WRITERS[form](folder / form / _PATHS[form].format(station.id), station.id, stamps_s, readings)
        keys.append(np.full(stamps_s.shape, int(station.id)))
        stamps.append(stamps_s)
        arrivals.append(arrived_s)
        if progress is not None:
            progress(done, len(network))
    write_arrivals(folder / "arrivals.csv", np.concatenate(keys), np.concatenate(stamps), np.concatenate(arrivals))
    write_faults(folder / "faults.csv", planted)
    write_stations(folder / "stations.csv", network)
    (folder / "deployment.toml").write_text(deployment_text(network, formats), encoding="utf-8", newline="\n")


def _readings(
    seed: int, station: Station, station_faults: tuple[faults.Fault, ...], period: Period, late_s: int
) -> tuple[NDArray[np.int64], NDArray[np.float64], NDArray[np.float64]]:
    """Generate stamps, values and arrivals of one station, for stamps in the period."""
    numbers = numbers_between(seed, station.id, period.start_s - late_s, period.stop_s - late_s)
    taken_s = sample_times(seed, station.id, numbers)
    stamps_s = taken_s + late_s
    instants = taken_s * 1_000_000_000
    true_values = np.stack([truth(variable, instants, station.lon, station.lat) for variable in VARIABLES], axis=1)
    readings = measure(seed, station.id, numbers, true_values)
    lost, missing = dropouts(seed, station.id, numbers, len(VARIABLES))
    # Planted faults of single readings must remain, so that they can be found.
    planted = np.isin(stamps_s, [fault.start_s for fault in station_faults if fault.kind in ("spike", "impossible")])
    readings[missing & ~planted[:, None]] = np.nan
    readings, absent = faults.apply(station_faults, stamps_s, readings)
    kept = ~absent & (~lost | planted)
    return stamps_s[kept], readings[kept], arrival_times(seed, station.id, numbers, taken_s)[kept]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line; exit status 0 done, 1 failed, 2 wrong usage."""
    parser = argparse.ArgumentParser(prog="python -m station_data.generate", description=__doc__)
    parser.add_argument("out", type=Path, help="folder to make")
    parser.add_argument("--start", default=DEFAULT_START, help="first day, UTC (default: %(default)s)")
    parser.add_argument("--days", type=int, default=DEFAULT_DAYS, help="number of days (default: %(default)s)")
    parser.add_argument(
        "--seed", type=int, default=DEFAULT_SEED, help="seed of noise and faults (default: %(default)s)"
    )
    parser.add_argument(
        "--stations", type=int, default=DEFAULT_STATIONS, help="number of stations (default: %(default)s)"
    )
    parser.add_argument("--format", default=",".join(FORMATS), help="formats, by comma (default: %(default)s)")
    options = parser.parse_args(arguments)
    console = Console(stderr=True)
    with Progress(console=console, transient=True, disable=not console.is_terminal) as bar:
        task = bar.add_task("stations", total=options.stations)
        try:
            generate(
                options.out,
                start=options.start,
                days=options.days,
                seed=options.seed,
                stations=options.stations,
                formats=options.format.split(","),
                progress=lambda done, total: bar.update(task, completed=done, total=total),
            )
        except (ValueError, OSError) as error:
            sys.stderr.write(f"{error}\n")
            return 2 if isinstance(error, ValueError) else 1
    return 0


_HEADER = """\
# Written by station_data.generate. Feeds match files by name; where there are two, they hold the same readings in two
# formats: ingest one of the folders with --deployment, not both, or every reading comes twice, under two sources.
[network]
name = "pass"
title = "An invented alpine pass"
slice_s = 120            # length of a slice of the base [s]
"""
_FEED = """
[[feed]]
name = "{format}"
files = "{files}"
format = "{format}"
interval_s = 120.0       # nominal sampling interval [s]
statistic = "sample"
stamp = "instant"
timezone = "UTC"
nodata = ["{nodata}"]
arrivals = "arrivals.csv"

[feed.columns]
"""
_FILES: dict[Format, str] = {"sensorscope": "*.txt", "csv": "pass-*.csv"}
_NODATA: dict[Format, str] = {"sensorscope": "NaN", "csv": ""}
HEIGHT_M = {
    "air_temperature": 2.0,
    "surface_temperature": 0.0,
    "solar_radiation": 2.0,
    "relative_humidity": 2.0,
    "soil_moisture": -0.2,
    "watermark": -0.2,
    "rain_meter": 1.5,
    "wind_speed": 3.0,
    "wind_direction": 3.0,
}
"""Height of each sensor above the ground [m]."""


def deployment_text(network: Iterable[Station], formats: Iterable[Format]) -> str:
    """Write the text of ``deployment.toml``: the network, one feed per format, and the stations."""
    parts = [_HEADER]
    for form in formats:
        parts.append(_FEED.format(format=form, files=_FILES[form], nodata=_NODATA[form]))
        parts += [
            f'{variable} = {{variable = "{variable}", unit = "{unit}", height_m = {HEIGHT_M[variable]}}}\n'
            for variable, unit in VARIABLES.items()
        ]
    parts += [
        f'\n[[station]]\nid = "{station.id}"\nname = "{station.name}"\n'
        f"lon = {station.lon:.6f}\nlat = {station.lat:.6f}\nelevation_m = {station.elevation_m:.1f}\n"
        for station in network
    ]
    return "".join(parts)


@dataclass(frozen=True)
class Upload:
    """A station that buffers its readings and sends them together."""

    period_s: int
    """Time between uploads [s]."""
    order: Literal["oldest_first", "newest_first"]


UPLOADS: dict[str, Upload] = {
    "6": Upload(1800, "oldest_first"),
    "13": Upload(3600, "newest_first"),
    "18": Upload(21_600, "oldest_first"),
    "21": Upload(1800, "newest_first"),
}
"""Stations with buffered upload; oldest first keeps order but not promptness, newest first neither."""
SENDING_S = 0.05
"""Time between two readings of one upload [s]."""
BASE_LAG_S = (1.0, 40.0)
"""Range of a station's constant lag, drawn uniformly [s]."""
RANDOM_DELAY_S = 2.0
"""Mean of the exponential part of the delay [s]."""
RETRY_SHARE = {0: 0.0, 1: 0.02, 2: 0.10}
"""Share of the readings that are sent again later, by the station's number modulo 3."""
# More than a sampling interval, so that newer readings overtake it.
RETRY_S = (150.0, 900.0)
"""Delay of a retry, drawn uniformly [s]."""


def arrival_times(
    seed: int, station: str, numbers: NDArray[np.int64], taken_s: NDArray[np.int64]
) -> NDArray[np.float64]:
    """Compute the arrival of each reading [s since 1970, UTC], to the millisecond, never before sampling.

    Parameters
    ----------
    seed, station, numbers
        Identify the readings.
    taken_s
        True sampling times [s since 1970].
    """
    uniform = draw(seed, "arrival", station, numbers, 3)
    low, high = BASE_LAG_S
    lag = low + (high - low) * station_generator(seed, "arrival", station).random()
    upload = UPLOADS.get(station)
    if upload is None:
        delay = lag - RANDOM_DELAY_S * np.log1p(-uniform[:, 0])
        retried = uniform[:, 1] < RETRY_SHARE[int(station) % 3]
        delay = delay + retried * (RETRY_S[0] + (RETRY_S[1] - RETRY_S[0]) * uniform[:, 2])
        return np.round(taken_s + delay, 3)
    sent = (taken_s // upload.period_s + 1) * upload.period_s
    # The position in the upload follows from the time within the period, not from the given rows, so it is independent
    # of the generated span.
    age = taken_s % upload.period_s if upload.order == "oldest_first" else sent - taken_s
    return np.round(sent + lag + SENDING_S * age / NOMINAL_S, 3)


Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Sensor:
    """Deviation of a sensor from the truth; all in the variable's unit."""

    noise: float
    """Standard deviation of one reading."""
    offset: float = 0.0
    """Standard deviation, over the stations, of a constant offset."""
    relative_noise: float = 0.0
    """Standard deviation of one reading as a share of the value."""
    low: float = -np.inf
    high: float = np.inf
    step: float = 0.0
    """Resolution: values are rounded down to its multiples; 0 keeps the three decimals of the files."""


SENSORS: Mapping[str, Sensor] = {
    "air_temperature": Sensor(noise=0.12, offset=0.06),
    "surface_temperature": Sensor(noise=0.25, offset=0.1),
    "solar_radiation": Sensor(noise=1.5, relative_noise=0.03, low=0.0),
    "relative_humidity": Sensor(noise=0.8, offset=0.5, low=0.0, high=100.0),
    "soil_moisture": Sensor(noise=0.25, offset=0.3, low=0.0, high=100.0),
    "watermark": Sensor(noise=0.3, offset=0.3, high=0.0),
    "rain_meter": Sensor(noise=0.0, step=0.2),
    "wind_speed": Sensor(noise=0.35, relative_noise=0.08, low=0.0),
    "wind_direction": Sensor(noise=8.0, offset=2.0),
}


def measure(seed: int, station: str, numbers: NDArray[np.int64], true_values: Floats) -> Floats:
    """Simulate the readings of sensors without faults.

    Parameters
    ----------
    seed, station, numbers
        Identify the readings.
    true_values
        Truth, shape ``(len(numbers), 9)``, columns as in ``VARIABLES``.

    Returns
    -------
    ndarray
        Readings of the same shape.
    """
    width = len(VARIABLES)
    uniform = draw(seed, "noise", station, numbers, width)
    # Uniform numbers can be 0, whose normal quantile is infinite.
    normal = ndtri(np.clip(uniform, 1e-12, 1.0 - 1e-12))
    offsets = station_generator(seed, "noise", station).standard_normal(width)
    readings = np.empty_like(true_values)
    for column, variable in enumerate(VARIABLES):
        sensor = SENSORS[variable]
        spread = np.hypot(sensor.noise, sensor.relative_noise * true_values[:, column])
        values = true_values[:, column] + sensor.offset * offsets[column] + spread * normal[:, column]
        if sensor.step:
            values = np.floor(values / sensor.step + 1e-9) * sensor.step
        if variable == "wind_direction":
            values = np.mod(values, 360.0)
        readings[:, column] = np.clip(values, sensor.low, sensor.high)
    return readings


if __name__ == "__main__":
    raise SystemExit(main())
