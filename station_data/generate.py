"""Draw the station files of the pass into a folder that appears whole or not at all."""

import argparse
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from rich.console import Console
from rich.progress import Progress

from station_data import faults, files
from station_data import network as pass_network
from station_data.arrivals import arrival_times
from station_data.clock import dropouts, numbers_between, sample_times
from station_data.deployment import deployment_text
from station_data.network import Station
from station_data.sensors import measure
from station_data.truth import VARIABLES, truth

DEFAULT_START, DEFAULT_DAYS, DEFAULT_SEED, DEFAULT_STATIONS = "2007-09-20", 28, 2007, 24
Report = Callable[[int, int], None]
"""Called with the number of stations written and their total."""
_PATHS: dict[files.Format, str] = {"sensorscope": "pass-meteo-{}.txt", "csv": "pass-{}.csv"}
_WRITERS = {"sensorscope": files.write_sensorscope, "csv": files.write_csv}


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
    formats: Sequence[files.Format] = files.FORMATS,
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


def _checked_period(start: str | np.datetime64, *, days: int, seed: int, formats: Sequence[files.Format]) -> Period:
    """Validate the arguments and return the period."""
    unknown = [form for form in formats if form not in files.FORMATS]
    if days < 1 or seed < 0 or unknown or not formats:
        raise ValueError(
            f"generate needs days of at least 1, a seed of at least 0 and formats of {', '.join(files.FORMATS)}; "
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
    formats: Sequence[files.Format],
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
    files.write_arrivals(
        folder / "arrivals.csv", np.concatenate(keys), np.concatenate(stamps), np.concatenate(arrivals)
    )
    files.write_faults(folder / "faults.csv", planted)
    files.write_stations(folder / "stations.csv", network)
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
    parser.add_argument("--format", default=",".join(files.FORMATS), help="formats, by comma (default: %(default)s)")
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
        except ValueError as error:
            sys.stderr.write(f"{error}\n")
            return 2
        except OSError as error:
            sys.stderr.write(f"{error}\n")
            return 1
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
