"""Alert on frost: times in which an alert stands at a station, raised below 0 degC and cleared above 1 degC."""

from pathlib import Path

import numpy as np
import pandas as pd

import hypergrid as hg
from queries.standing.conditions import apply_hysteresis


def answer(data: Path) -> pd.DataFrame:
    archive = hg.open(data / "archive")
    ten = archive["air_temperature"].aggregate("mean", time="10min").clip(time=("2007-09-28", "2007-10-04"))
    means = ten.compute()["air_temperature"].to_pandas()
    # The rule of a standing query, which a server applies as readings arrive, over a period of the past.
    before = np.zeros(means.shape[1], bool)
    state = apply_hysteresis(means.to_numpy(), before, above=None, below=0.0, clear=1.0)
    return pd.DataFrame(state, means.index, means.columns)
