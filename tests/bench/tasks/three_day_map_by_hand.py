"""A map of three days: every ten minutes kriged from the 20 nearest stations with a given variogram, then averaged."""

from pathlib import Path

import numpy as np
import xarray as xr
from pykrige.ok import OrdinaryKriging

from tests.bench.tasks.places import LAT, LON, read_stations, read_table, to_metres

VARIOGRAM = {"psill": 1.2, "range": 250.0, "nugget": 0.05}


def answer(data: Path) -> xr.DataArray:
    stations = read_stations(data)
    table = read_table(data, "air_temperature", start="2007-10-01", stop="2007-10-04")["air_temperature"]
    means = table.resample("10min").mean().where(table.resample("10min").count() >= 4)
    x, y = to_metres(LON, LAT)
    slices = []
    for _, row in means.iterrows():
        present = row.dropna()
        known = stations.loc[present.index]
        kriging = OrdinaryKriging(known["x"], known["y"], present, "exponential", VARIOGRAM)
        values, _ = kriging.execute("grid", x, y, backend="C", n_closest_points=20)
        slices.append(np.asarray(values))
    return xr.DataArray(np.mean(slices, axis=0), dims=("lat", "lon"), coords={"lat": LAT, "lon": LON})
