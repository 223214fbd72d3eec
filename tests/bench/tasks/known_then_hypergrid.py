"""How many readings of the last six hours were known at noon, at each station."""

from pathlib import Path

import pandas as pd

import hypergrid as hg


def answer(data: Path) -> pd.Series:
    then = hg.open(data / "archive", as_of="2007-10-02T12:00Z")
    count = then["air_temperature"].aggregate("count", time="all")
    result = count.clip(time=("2007-10-02T06:00", "2007-10-02T12:00")).compute()
    return next(iter(result.data_vars.values())).squeeze("time").to_series()
