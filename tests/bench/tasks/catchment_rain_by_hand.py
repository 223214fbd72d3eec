"""The rain of a week in two catchments, from counters that reset at midnight."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import shapely
from pykrige.ok import OrdinaryKriging

from tests.bench.tasks.places import ARCSEC, LAT, LON, read_stations, read_table, to_metres

RESET_TO_MM = 1.0


def answer(data: Path) -> pd.Series:
    stations = read_stations(data)
    meter = read_table(data, "rain_meter", start="2007-09-27", stop="2007-10-04")["rain_meter"]
    totals = {}
    for station in meter:
        counter = meter[station].dropna()
        step = counter.diff()
        # After a fall to near zero the counter shows what has fallen since; other falls are no rain.
        growth = step.where(step >= 0, counter.where(counter <= RESET_TO_MM, 0.0))
        if counter.index.to_series().diff().max() < pd.Timedelta(hours=6) and len(counter) >= 0.8 * 7 * 720:
            totals[station] = growth.sum()
    rain = pd.Series(totals)
    known = stations.loc[rain.index]
    kriging = OrdinaryKriging(known["x"], known["y"], rain, variogram_model="exponential", nlags=8, weight=True)
    x, y = to_metres(LON, LAT)
    amount = np.maximum(np.asarray(kriging.execute("grid", x, y)[0]), 0.0)
    half = ARCSEC / 2
    cells = [[shapely.box(lon - half, lat - half, lon + half, lat + half) for lon in LON] for lat in LAT]
    means = {}
    for feature in json.loads((data / "catchments.geojson").read_text())["features"]:
        area = shapely.area(shapely.intersection(cells, shapely.geometry.shape(feature["geometry"])))
        means[feature["properties"]["name"]] = (amount * area).sum() / area.sum()
    return pd.Series(means)
