"""A map of three days: optimal interpolation of the means of three days, over a background of their mean."""

from pathlib import Path

import gridpp
import numpy as np
import xarray as xr

from tests.bench.tasks.places import LAT, LON, read_stations, read_table

REACH_M = 125.0


def answer(data: Path) -> xr.DataArray:
    stations = read_stations(data)
    table = read_table(data, "air_temperature", start="2007-10-01", stop="2007-10-04")["air_temperature"]
    means = table.resample("10min").mean().where(table.resample("10min").count() >= 4)
    mean = means.mean().where(means.count() >= 0.8 * len(means)).dropna()
    known = stations.loc[mean.index]
    lons, lats = np.meshgrid(LON, LAT)
    cells = gridpp.Grid(lats, lons, np.zeros_like(lats), np.ones_like(lats))
    points = gridpp.Points(known["lat"].to_numpy(), known["lon"].to_numpy(), np.zeros(len(known)), np.ones(len(known)))
    background = np.full(lats.shape, float(mean.mean()))
    at_points = np.full(len(known), float(mean.mean()))
    ratios = np.full(len(known), 0.1)
    structure = gridpp.BarnesStructure(REACH_M)
    values = gridpp.optimal_interpolation(
        cells, background, points, mean.to_numpy(), ratios, at_points, structure, 20
    )  # fmt: skip
    return xr.DataArray(np.asarray(values), dims=("lat", "lon"))
