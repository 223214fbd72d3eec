"""A map of one afternoon hour that knows the terrain: kriging with elevation as external drift."""

from pathlib import Path

import xarray as xr

import hypergrid as hg


def answer(data: Path) -> xr.DataArray:
    temperature = hg.open(data / "archive")["air_temperature"]
    grid = hg.grid(lon="7:10:37", lat="45:52:01", step="1arcsec", shape=(23, 23))
    hourly = temperature.aggregate("mean", time="1h").interpolate(grid=grid)
    result = hourly.clip(time=("2007-10-02T13:00", "2007-10-02T14:00")).compute()
    return result["air_temperature"].squeeze("time")
