"""Hourly mean wind vectors of all stations, in components towards east and north."""

from pathlib import Path

import numpy as np
import pandas as pd

from tests.bench.tasks.places import read_table

POSSIBLE = 30


def answer(data: Path) -> tuple[pd.DataFrame, pd.DataFrame]:
    tables = read_table(data, "wind_speed", "wind_direction", start="2007-09-28", stop="2007-09-30")
    speed, angle = tables["wind_speed"], np.radians(tables["wind_direction"])
    means = []
    for component in (-speed * np.sin(angle), -speed * np.cos(angle)):
        hours = component.resample("1h")
        means.append(hours.mean().where(hours.count() >= 0.8 * POSSIBLE))
    return means[0], means[1]
