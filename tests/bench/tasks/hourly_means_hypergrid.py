"""Hourly means of all stations, missing where less than 80 % of the readings are there."""

from pathlib import Path

import pandas as pd

import hypergrid as hg


def answer(data: Path) -> pd.DataFrame:
    archive = hg.open(data / "archive")
    hourly = archive["air_temperature"].aggregate("mean", time="1h").clip(time=("2007-09-28", "2007-10-04"))
    return hourly.compute()["air_temperature"].to_pandas()
