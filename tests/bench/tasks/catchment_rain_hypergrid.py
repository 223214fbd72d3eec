"""The rain of a week in two catchments, from counters that reset at midnight."""

from pathlib import Path

import pandas as pd

import hypergrid as hg


def answer(data: Path) -> pd.Series:
    meter = hg.open(data / "archive")["rain_meter"]
    grid = hg.grid(lon="7:10:37", lat="45:52:01", step="1arcsec", shape=(23, 23))
    rain = meter.aggregate("rain_accumulation", time="all").interpolate("recipe", grid=grid)
    zones = rain.aggregate("mean", zones=hg.zones(data / "catchments.geojson"))
    result = zones.clip(time=("2007-09-27", "2007-10-04")).compute()
    return pd.Series(next(iter(result.data_vars.values())).values.ravel(), index=result["zone"].values)
