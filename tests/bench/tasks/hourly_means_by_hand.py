"""Hourly means of all stations, missing where less than 80 % of the readings are there."""

from pathlib import Path

import pandas as pd

from tests.bench.tasks.places import read_table

POSSIBLE = 30


def answer(data: Path) -> pd.DataFrame:
    table = read_table(data, "air_temperature", start="2007-09-28", stop="2007-10-04")["air_temperature"]
    hours = table.resample("1h")
    return hours.mean().where(hours.count() >= 0.8 * POSSIBLE)
