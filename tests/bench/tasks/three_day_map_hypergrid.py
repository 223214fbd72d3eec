"""A map of three days: every ten minutes kriged from the 20 nearest stations with a given variogram, then averaged."""

from pathlib import Path

import xarray as xr

import hypergrid as hg


def answer(data: Path) -> xr.DataArray:
    temperature = hg.open(data / "archive")["air_temperature"]
    grid = hg.grid(lon="7:10:37", lat="45:52:01", step="1arcsec", shape=(23, 23))
    model = hg.variogram("exponential", psill=1.2, range_m=250, nugget=0.05)
    kriged = temperature.aggregate("mean", time="10min").interpolate(
        "ordinary_kriging", grid=grid, variogram=model, neighbours=20
    )
    mean = kriged.aggregate("mean", time="all").clip(time=("2007-10-01", "2007-10-04"))
    return mean.compute()["air_temperature"].squeeze("time")
