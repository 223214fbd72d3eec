"""Recipes by variable beside plain kriging: on the sample network, simulated networks, and real stations left out.

`recipes_judged.py` says on simulated networks and real stations whether a recipe is worse than plain kriging, in bias
or root-mean-square error, by more than the error of sampling. On the sample network, whose truth is known in closed
form, errors are shown by band of elevation.

Five days of the sample network with its noise, faults and gaps are ingested; each variable is cleaned, aligned to
10 minutes, and interpolated twice through the public interface: by its recipe, and by ordinary kriging of the variable
itself with a variogram that is fitted in the same way. Both are compared with the truth at the middle of each cell, the
mean over the 10 minutes, by band of elevation. Directions have no plain kriging to compare with. The station with the
wrong time zone is left out of both: it is two hours off, which no interpolation mends.
"""

import csv
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import hypergrid as hg
from hypergrid.archive import Archive
from hypergrid.core.result_names import value_of
from hypergrid.layers.raster_reader import read_raster
from hypergrid.query import OpenArchive, Query
from ingest.job import ingest
from station_data.generate import generate
from station_data.terrain import elevation, write_terrain
from station_data.truth import VARIABLES, truth
from tests.bench.recipes_judged import REPLICATES, measure_judged

Floats = NDArray[np.float64]
Tell = Callable[[str, float], None]

CASES = ("all", "relative_humidity", "air_temperature", "surface_temperature", "solar_radiation", "wind_speed",
         "wind_direction", "rain_meter", "simulated", "real")  # fmt: skip
"""What can be asked for: all, the judgement on simulated networks or real stations, or one variable of the sample."""

JUDGED = ("simulated", "real")

START, DAYS = "2007-09-26", 5
"""A clear night with a pool of cold air, and the front with its rain on the third day."""

NOW_NS = 1_200_000_000 * 10**9
BANDS_M = (2380.0, 2400.0, 2420.0, 2440.0, 2460.0, 2500.0, 2520.0)
"""Edges of the bands of elevation; the stations stand from 2,391 to 2,497 m, the cells from 2,386 to 2,516 m."""

SAMPLES = 5
"""Instants that the mean of the truth over a cell is taken of."""


@dataclass(frozen=True)
class Setup:
    """How a variable is cleaned and aligned."""

    low: float
    high: float
    aggregate: str = "mean"
    plain: bool = True
    """Whether it can be kriged as it is."""


SETUPS: Mapping[str, Setup] = {
    "air_temperature": Setup(-40.0, 50.0),
    "surface_temperature": Setup(-40.0, 70.0),
    "relative_humidity": Setup(0.0, 105.0),
    "wind_speed": Setup(0.0, 60.0),
    "wind_direction": Setup(0.0, 360.0, "sample", plain=False),
    "solar_radiation": Setup(-10.0, 1500.0),
    "rain_meter": Setup(0.0, 300.0, "last"),
}


def measure(
    case: str = "all",
    *,
    pairs: int = 1,
    notify: Tell = lambda _stage, _done: None,
    days: int = DAYS,
    replicates: int = REPLICATES,
) -> dict[str, Any]:
    """Return the errors of recipes and of plain kriging.

    Parameters
    ----------
    case
        One of `CASES`.
    pairs
        Not used: errors are the same in every run.
    tell
        Is told the stage and the share of it that is done.
    days
        How many days of the sample.
    replicates
        How many networks are simulated a case.
    """
    if case in JUDGED:
        return measure_judged(case, replicates=replicates, notify=notify)
    judged = {each: measure_judged(each, replicates=replicates, notify=notify) for each in JUDGED if case == "all"}
    with tempfile.TemporaryDirectory() as folder:
        archive = _archive(Path(folder), days, notify)
        late = _late(Path(folder) / "stations" / "faults.csv")
        chosen = list(SETUPS) if case == "all" else [case]
        rows = [row for name in chosen for row in _variable(archive, name, late, notify)]
    return {
        "case": f"sample network, {days} days from {START}, 10-minute cells, 23 x 23 cells",
        "truth": "closed form at the middle of each cell, mean over the 10 minutes",
        "errors": rows,
        **judged,
    }


def tables(measured: Mapping[str, Any]) -> list[tuple[str, tuple[str, ...], list[tuple[str, ...]]]]:
    """Return the measured errors as tables for people: title, columns, rows."""
    found = [_judged_table(part) for part in (measured, *map(measured.get, JUDGED)) if part and "judged" in part]
    if "errors" not in measured:
        return found
    columns = ("variable", "unit", "elevation [m]", "cells", "plain RMSE", "recipe RMSE", "plain / recipe")
    return [*found, (measured["case"], columns, [tuple(_text(row[key]) for key in row) for row in measured["errors"]])]


def _judged_table(part: Mapping[str, Any]) -> tuple[str, tuple[str, ...], list[tuple[str, ...]]]:
    rows = [tuple(_text(value) for value in row.values()) for row in part["judged"]]
    return part["case"], tuple(part["judged"][0]) if rows else (), rows


def _text(value: object) -> str:
    return "" if value is None else f"{value:.3g}" if isinstance(value, float) else str(value)


def _archive(folder: Path, days: int, notify: Tell) -> OpenArchive:
    notify("make the sample network", 0.0)
    generate(folder / "stations", start=START, days=days, formats=("sensorscope",))
    ingest([folder / "stations"], folder / "archive", engine="inprocess", now_ns=NOW_NS)
    layer = read_raster(write_terrain(folder / "terrain.tif"), name="elevation", unit="m")
    Archive.open(folder / "archive").add_layer(layer, now_ns=NOW_NS)
    notify("make the sample network", 1.0)
    return hg.open(folder / "archive")


def _late(ledger: Path) -> list[str]:
    """Return the stations whose clock has the wrong time zone."""
    with ledger.open(newline="") as lines:
        return [fault["station"] for fault in csv.DictReader(lines) if fault["kind"] == "timezone"]


def _variable(archive: OpenArchive, name: str, late: list[str], notify: Tell) -> list[dict[str, Any]]:
    setup = SETUPS[name]
    notify(name, 0.0)
    sound = [station for station in archive.stations if station not in late]
    cleaned = archive[name].select(station=sound).convert("valid_range", low=setup.low, high=setup.high)
    aligned = cleaned.aggregate(setup.aggregate, time="10min")
    on = hg.grid(lon="7:10:37", lat="45:52:01", step="1arcsec", shape=(23, 23))
    recipe, heights = _errors(aligned.interpolate("recipe", grid=on), name, setup)
    plain = recipe * np.nan
    if setup.plain:
        plain, _ = _errors(aligned.interpolate("ordinary_kriging", grid=on, variogram="fit"), name, setup)
    notify(name, 1.0)
    ends = [(BANDS_M[0], BANDS_M[-1]), *zip(BANDS_M[:-1], BANDS_M[1:], strict=True)]
    return [_row(name, band, heights, plain, recipe) for band in ends]


def _errors(query: Query, name: str, setup: Setup) -> tuple[Floats, Floats]:
    """Return what a query is off by, shape (times, rows, columns), and the elevation of its cells [m]."""
    found = query.compute()
    lon, lat = np.meshgrid(found["lon"].to_numpy(), found["lat"].to_numpy())
    starts = found["time"].to_numpy().astype("datetime64[ns]").astype(np.int64)
    length_ns = 600 * 10**9
    # A counter is read at the end of the cell, a direction at some instant of it.
    shares = (np.arange(SAMPLES) + 0.5) / SAMPLES if setup.aggregate == "mean" else np.array([0.9])
    if setup.aggregate == "sample":
        shares = np.array([0.5])
    instants = [starts + round(share * length_ns) for share in shares]
    expected = np.mean([truth(name, now[:, None, None], lon, lat) for now in instants], axis=0)
    off = value_of(found).to_numpy() - expected
    return ((off + 180.0) % 360.0 - 180.0 if VARIABLES[name] == "degree" else off), elevation(lon, lat)


def _row(name: str, band: tuple[float, float], heights: Floats, plain: Floats, recipe: Floats) -> dict[str, Any]:
    inside = (heights >= band[0]) & (heights < band[1])
    known = np.isfinite(recipe) & inside & (np.isfinite(plain) | ~np.isfinite(plain).any())
    rmse = [float(np.sqrt(np.mean(each[known] ** 2))) for each in (plain, recipe)]
    has_plain = bool(np.isfinite(rmse[0]))
    return {
        "variable": name,
        "unit": VARIABLES[name],
        "elevation_m": f"{band[0]:.0f} to {band[1]:.0f}",
        "cells": int(inside.sum()),
        "plain_rmse": rmse[0] if has_plain else None,
        "recipe_rmse": rmse[1],
        "ratio": rmse[0] / rmse[1] if has_plain else None,
    }
