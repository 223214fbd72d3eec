"""Hourly mean wind vectors of all stations, in components towards east and north."""

from pathlib import Path

import pandas as pd

import hypergrid as hg


def answer(data: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    archive = hg.open(data / "archive")
    means = []
    for component in ("eastward_wind", "northward_wind"):
        direction = archive["wind_direction"].aggregate("circular_mean", time="10min")
        merged = archive["wind_speed"].aggregate("mean", time="10min").merge(component, direction)
        result = merged.aggregate("mean", time="1h").clip(time=("2007-09-28", "2007-09-30")).compute()
        means.append(next(iter(result.data_vars.values())).to_pandas())
    return means[0], means[1]
