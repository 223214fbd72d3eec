"""The mean over the region for each hour of a day, with the standard error of that mean."""

from pathlib import Path

import numpy as np
import pandas as pd
from pykrige.ok import OrdinaryKriging
from scipy.spatial.distance import cdist

from tests.bench.tasks.places import LAT, LON, read_stations, read_table, to_metres


def answer(data: Path) -> pd.DataFrame:
    stations = read_stations(data)
    table = read_table(data, "air_temperature", start="2007-10-02", stop="2007-10-03")["air_temperature"]
    hourly = table.resample("1h").mean().where(table.resample("1h").count() >= 24)
    x, y = to_metres(*(axis.ravel() for axis in np.meshgrid(LON, LAT)))
    cells = np.column_stack([x, y])
    rows = {}
    for hour, row in hourly.iterrows():
        present = row.dropna()
        known = stations.loc[present.index]
        fitted = OrdinaryKriging(known["x"], known["y"], present, variogram_model="exponential", nlags=8, weight=True)
        psill, reach, nugget = fitted.variogram_model_parameters
        places = known[["x", "y"]].to_numpy()

        # PyKrige has no variance of a mean, so the system is solved here: one right-hand side, the mean of all cells'.
        def covariance(distance: np.ndarray, psill: float = psill, reach: float = reach) -> np.ndarray:
            return psill * np.exp(-3.0 * distance / reach)

        count = len(present)
        system = np.ones((count + 1, count + 1))
        system[:count, :count] = covariance(cdist(places, places)) + nugget * np.eye(count)
        system[count, count] = 0.0
        right = np.append(covariance(cdist(places, cells)).mean(axis=1), 1.0)
        weights = np.linalg.solve(system, right)
        variance = covariance(cdist(cells, cells)).mean() - weights @ right
        rows[hour] = {"mean": weights[:count] @ present.to_numpy(), "error": np.sqrt(max(variance, 0.0))}
    return pd.DataFrame.from_dict(rows, orient="index")
