"""How many readings of the last six hours were known at noon, at each station."""

from pathlib import Path

import pandas as pd

NOON = pd.Timestamp("2007-10-02T12:00")


def answer(data: Path) -> pd.Series:
    window = [("time", ">=", NOON - pd.Timedelta(hours=6)), ("time", "<", NOON)]
    readings = pd.read_parquet(
        data / "readings.parquet", columns=["station", "time", "air_temperature"], filters=window
    )
    arrivals = pd.read_csv(data / "arrivals.csv", dtype={"station": str})
    # The stamps of station 9 were shifted when its clock was corrected.
    arrivals["time"] = pd.to_datetime(arrivals["time"] - 7200 * (arrivals["station"] == "9"), unit="s")
    arrivals["arrival"] = pd.to_datetime(arrivals["arrival"], unit="s")
    # A repeated transmission counts by its first arrival.
    first = arrivals.groupby(["station", "time"], as_index=False)["arrival"].min()
    known = readings.dropna().merge(first, on=["station", "time"])
    return known[known["arrival"] <= NOON].groupby("station").size()
