"""The mean over the region for each hour of a day, with the standard error of that mean."""

from pathlib import Path

import numpy as np
import pandas as pd

import hypergrid as hg


def answer(data: Path) -> pd.DataFrame:
    temperature = hg.open(data / "archive")["air_temperature"]
    grid = hg.grid(lon="7:10:37", lat="45:52:01", step="1arcsec", shape=(23, 23))
    region = temperature.aggregate("mean", time="1h").interpolate(grid=grid).aggregate("mean", lon="all", lat="all")
    result = region.with_variance().clip(time=("2007-10-02", "2007-10-03")).compute().squeeze(("lat", "lon"))
    error = np.sqrt(result["air_temperature_variance"])
    return pd.DataFrame({"mean": result["air_temperature"].values, "error": error.values}, index=result["time"].values)
