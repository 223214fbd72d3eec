"""Hourly mean wind vectors of all stations, in components towards east and north."""

from pathlib import Path

import pandas as pd

import hypergrid as hg


def answer(data: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    archive = hg.open(data / "archive")
    means = []
    for component in ("eastward_wind", "northward_wind"):
        merged = archive["wind_speed"].merge(component, archive["wind_direction"])
        result = merged.aggregate("mean", time="1h").clip(time=("2007-09-28", "2007-09-30")).compute()
        means.append(result[component].to_pandas())
    return means[0], means[1]
