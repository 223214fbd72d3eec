"""The temperature of three days at a place without a station, hour by hour, with its standard error."""

from pathlib import Path

import numpy as np
import pandas as pd
from pykrige.ok import OrdinaryKriging

from tests.bench.tasks.places import PLACE, read_stations, read_table, to_metres


def answer(data: Path) -> pd.DataFrame:
    stations = read_stations(data)
    table = read_table(data, "air_temperature", start="2007-10-01", stop="2007-10-04")["air_temperature"]
    hourly = table.resample("1h").mean().where(table.resample("1h").count() >= 24)
    x, y = to_metres(*PLACE)
    rows = {}
    for hour, row in hourly.iterrows():
        present = row.dropna()
        known = stations.loc[present.index]
        kriging = OrdinaryKriging(known["x"], known["y"], present, variogram_model="exponential", nlags=8, weight=True)
        value, variance = kriging.execute("points", np.atleast_1d(x), np.atleast_1d(y))
        rows[hour] = {"mean": float(value[0]), "error": float(np.sqrt(max(variance[0], 0.0)))}
    return pd.DataFrame.from_dict(rows, orient="index")
