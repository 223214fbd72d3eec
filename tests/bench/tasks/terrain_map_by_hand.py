"""A map of one afternoon hour that knows the terrain: kriging with elevation as external drift."""

from pathlib import Path

import numpy as np
import rasterio
import xarray as xr
from pykrige.uk import UniversalKriging
from scipy.interpolate import RegularGridInterpolator

from tests.bench.tasks.places import LAT, LON, read_stations, read_table, to_metres


def answer(data: Path) -> xr.DataArray:
    stations = read_stations(data)
    table = read_table(data, "air_temperature", start="2007-10-02T13:00", stop="2007-10-02T14:00")["air_temperature"]
    means = table.mean().where(table.count() >= 24).dropna()
    known = stations.loc[means.index]
    with rasterio.open(data / "dem.tif") as raster:
        heights = raster.read(1)[::-1]
        west, south, east, north = raster.bounds
    rows, columns = heights.shape
    height_step, width_step = (north - south) / rows, (east - west) / columns
    lat = south + (np.arange(rows) + 0.5) * height_step
    lon = west + (np.arange(columns) + 0.5) * width_step
    elevation = RegularGridInterpolator((lat, lon), heights)
    x, y = to_metres(*(axis.ravel() for axis in np.meshgrid(LON, LAT)))
    cells = elevation(np.column_stack([axis.ravel() for axis in np.meshgrid(LAT, LON, indexing="ij")]))
    kriging = UniversalKriging(
        known["x"], known["y"], means, variogram_model="exponential", nlags=8, weight=True,
        drift_terms=["specified"], specified_drift=[known["elevation_m"].to_numpy()],
    )  # fmt: skip
    values, _ = kriging.execute("points", x, y, specified_drift_arrays=[cells])
    return xr.DataArray(np.asarray(values).reshape(len(LAT), len(LON)), dims=("lat", "lon"))
