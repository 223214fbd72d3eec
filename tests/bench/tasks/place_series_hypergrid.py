"""The temperature of three days at a place without a station, hour by hour, with its standard error."""

from pathlib import Path

import numpy as np
import pandas as pd

import hypergrid as hg
from tests.bench.tasks.places import PLACE


def answer(data: Path) -> pd.DataFrame:
    temperature = hg.open(data / "archive")["air_temperature"]
    place = hg.points(lon=[PLACE[0]], lat=[PLACE[1]], step="1arcsec")
    hourly = temperature.aggregate("mean", time="1h").interpolate(grid=place).with_variance()
    result = hourly.clip(time=("2007-10-01", "2007-10-04")).compute().squeeze("point")
    error = np.sqrt(result["air_temperature_variance"])
    return pd.DataFrame({"mean": result["air_temperature"].values, "error": error.values}, index=result["time"].values)
