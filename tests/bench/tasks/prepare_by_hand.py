"""Reads the files, removes what cannot be and what sticks out, and keeps a table of the rest."""

from pathlib import Path

import pandas as pd

LIMITS = {
    "air_temperature": (-40, 50),
    "surface_temperature": (-60, 80),
    "solar_radiation": (0, 1500),
    "relative_humidity": (0, 105),
    "soil_moisture": (0, 80),
    "wind_speed": (0, 75),
    "wind_direction": (0, 360),
}
# Readings further than this from the median of eleven are spikes.
SPIKES = {"air_temperature": 3.0, "relative_humidity": 15.0, "wind_speed": 8.0}
CLOCKS_H = {"9": -2}


def answer(data: Path) -> pd.DataFrame:
    files = sorted((data / "csv").glob("*.csv"))
    table = pd.concat([pd.read_csv(file, dtype={"station": str}, parse_dates=["time"]) for file in files])
    table["time"] = table["time"].dt.tz_localize(None)
    for station, hours in CLOCKS_H.items():
        table.loc[table["station"] == station, "time"] += pd.Timedelta(hours=hours)
    table = table.drop_duplicates(["station", "time"], keep="last").sort_values(["station", "time"])
    for name, (low, high) in LIMITS.items():
        table[name] = table[name].where(table[name].between(low, high))
    for name, furthest in SPIKES.items():
        by_station = table.groupby("station")[name]
        middle = by_station.transform(lambda values: values.rolling(11, center=True, min_periods=3).median())
        table[name] = table[name].where((table[name] - middle).abs() <= furthest)
    table.to_parquet(data / "readings.parquet", index=False)
    return table
