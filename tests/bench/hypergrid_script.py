"""Queries Q1 to Q4 the array way: what a good user of pandas, xarray and PyKrige writes by hand, to be read.

It reads the stations' CSV files, one a station with all nine variables and the whole campaign, and takes the wanted
variable and period of them; masks what is out of range; takes means of 10-minute slices that have enough readings;
kriges each slice in one call of PyKrige's C backend with the stations that are present; and takes the mean of the maps.
Steps that a user could share between queries (the files once read) are apart, so that they can be timed apart.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from numpy.typing import NDArray
from pykrige.ok import OrdinaryKriging
from pyproj import Transformer

Floats = NDArray[np.float64]

SLICE = "10min"
READING = "2min"
"""Interval of the loggers."""

COVERAGE = 0.8
"""Share of the possible readings, or slices, that a mean needs."""


@dataclass(frozen=True)
class Wanted:
    """What a query asks for."""

    variable: str
    start: str
    stop: str
    """The first instant that is not wanted."""
    low: float
    """Least and greatest value that is believed [the variable's unit]."""
    high: float
    west: float
    """Lower left corner of the grid [degree]."""
    south: float
    step: float
    """Side of a cell [degree]."""
    rows: int
    columns: int
    neighbours: int
    psill: float
    range_m: float
    nugget: float


def answer(folder: Path, wanted: Wanted) -> xr.DataArray:
    """Return the mean map from the station files in a folder, dimensions lat, lon."""
    return mean_map(read(folder / "csv", wanted), pd.read_csv(folder / "stations.csv"), wanted)


def read(folder: Path, wanted: Wanted) -> pd.DataFrame:
    """Return the readings of a variable and a period: columns station, time (UTC, no zone), value."""
    # The multithreaded parser of pyarrow is three times as fast as pandas' own, and reads times by itself.
    columns = ["station", "time", wanted.variable]
    files = [pd.read_csv(path, usecols=columns, engine="pyarrow") for path in sorted(folder.glob("*.csv"))]
    readings = pd.concat(files, ignore_index=True).rename(columns={wanted.variable: "value"})
    readings["time"] = pd.to_datetime(readings["time"]).dt.tz_localize(None)
    return readings[(readings["time"] >= wanted.start) & (readings["time"] < wanted.stop)]


def mean_map(readings: pd.DataFrame, stations: pd.DataFrame, wanted: Wanted) -> xr.DataArray:
    """Return the mean over all slices of the kriged map."""
    maps = krige(slices(readings, wanted), stations, wanted)
    enough = maps.notnull().sum("time") >= COVERAGE * maps.sizes["time"]
    return maps.mean("time").where(enough)


def slices(readings: pd.DataFrame, wanted: Wanted) -> xr.DataArray:
    """Return the means of the slices, dimensions time, station; NaN where too few readings are there."""
    clean = readings[readings["value"].between(wanted.low, wanted.high)]
    by_slice = clean.groupby([clean["time"].dt.floor(SLICE), "station"])["value"].agg(["mean", "count"])
    possible = pd.Timedelta(SLICE) / pd.Timedelta(READING)
    means = by_slice["mean"].where(by_slice["count"] >= COVERAGE * possible).unstack("station")
    times = pd.date_range(wanted.start, wanted.stop, freq=SLICE, inclusive="left")
    return xr.DataArray(means.reindex(times), dims=("time", "station"))


def krige(means: xr.DataArray, stations: pd.DataFrame, wanted: Wanted) -> xr.DataArray:
    """Return the kriged map of each slice, dimensions time, lat, lon; NaN where fewer than two stations are present."""
    place = stations.set_index("station").loc[means["station"].to_numpy()]
    plane = f"+proj=aeqd +lat_0={stations['lat'].mean():.6f} +lon_0={stations['lon'].mean():.6f} +datum=WGS84"
    project = Transformer.from_crs("EPSG:4326", plane, always_xy=True).transform
    x, y = project(place["lon"].to_numpy(), place["lat"].to_numpy())
    lon = wanted.west + (np.arange(wanted.columns) + 0.5) * wanted.step
    lat = wanted.south + (np.arange(wanted.rows) + 0.5) * wanted.step
    columns, rows = np.meshgrid(lon, lat)
    target_x, target_y = project(columns.ravel(), rows.ravel())
    maps = np.full((means.sizes["time"], columns.size), np.nan)
    for number, values in enumerate(means.to_numpy()):
        there = np.isfinite(values)
        if np.count_nonzero(there) > 1:
            maps[number] = _one_map(x[there], y[there], values[there], (target_x, target_y), wanted)
    coords: dict[str, Any] = {"time": means["time"], "lat": lat, "lon": lon}
    return xr.DataArray(maps.reshape(len(maps), *columns.shape), dims=("time", "lat", "lon"), coords=coords)


def _one_map(x: Floats, y: Floats, values: Floats, targets: tuple[Floats, Floats], wanted: Wanted) -> Floats:
    parameters = {"psill": wanted.psill, "range": wanted.range_m, "nugget": wanted.nugget}
    kriging = OrdinaryKriging(x, y, values, variogram_model="exponential", variogram_parameters=parameters)
    # With no more stations than neighbours one system serves all cells, which is faster.
    nearest = wanted.neighbours if wanted.neighbours < len(values) else None
    estimate, _ = kriging.execute("points", *targets, backend="C", n_closest_points=nearest)
    return np.asarray(estimate)
