"""A map of the mean temperature of a day."""

from pathlib import Path

import numpy as np
import xarray as xr
from pykrige.ok import OrdinaryKriging

from tests.bench.tasks.places import LAT, LON, read_stations, read_table, to_metres


def answer(data: Path) -> xr.DataArray:
    stations = read_stations(data)
    table = read_table(data, "air_temperature", start="2007-10-02", stop="2007-10-03")["air_temperature"]
    hourly = table.resample("1h").mean().where(table.resample("1h").count() >= 24)
    daily = hourly.mean().where(hourly.count() >= 20).dropna()
    known = stations.loc[daily.index]
    kriging = OrdinaryKriging(known["x"], known["y"], daily, variogram_model="exponential", nlags=8, weight=True)
    x, y = to_metres(LON, LAT)
    values, _ = kriging.execute("grid", x, y)
    return xr.DataArray(np.asarray(values), dims=("lat", "lon"), coords={"lat": LAT, "lon": LON})
