"""Alert on frost: hours in which an alert stands at a station, raised below 0 degC and cleared above 1 degC."""

from pathlib import Path

import numpy as np
import pandas as pd

from tests.bench.tasks.places import read_table

POSSIBLE = 5


def answer(data: Path) -> pd.DataFrame:
    table = read_table(data, "air_temperature", start="2007-09-28", stop="2007-10-04")["air_temperature"]
    tens = table.resample("10min")
    means = tens.mean().where(tens.count() >= 0.8 * POSSIBLE)
    # Below the threshold an alert begins, above the other one it ends, between them it stays as it was.
    state = pd.DataFrame(np.select([means < 0, means > 1], [1.0, 0.0], np.nan), means.index, means.columns)
    return state.ffill().fillna(0).astype(bool)
