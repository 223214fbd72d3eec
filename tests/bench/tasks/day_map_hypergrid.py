"""A map of the mean temperature of a day."""

from pathlib import Path

import xarray as xr

import hypergrid as hg


def answer(data: Path) -> xr.DataArray:
    archive = hg.open(data / "archive")
    grid = hg.grid(lon="7:10:37", lat="45:52:01", step="1arcsec", shape=(23, 23))
    daily = archive["air_temperature"].aggregate("mean", time="1day").interpolate(grid=grid)
    return daily.clip(time=("2007-10-02", "2007-10-03")).compute()["air_temperature"].squeeze("time")
