"""Figures 5.8 to 5.10: hourly radiation and rain rate at one station by day and hour, 15 % of the cells walked.

How much of the picture the walk tells is judged by `walk_quality.py`, beside as many cells in other orders. What it
costs is its time, beside that of the whole picture. The share of the cells is what was asked for, and no finding. The
walk waits for values before the next cells are known, batch by batch, while the whole picture of so cheap a query is
one pass: no time is saved here, against figure 5.10.
"""

from collections.abc import Callable
from itertools import takewhile
from typing import Any

import numpy as np

import hypergrid as hg
from hypergrid.core.result_names import value_of
from hypergrid.query import Query
from tests.bench.hypergrid_cases import Sample
from tests.bench.kriging_figures import Figure, Tell, faster, interleaved
from tests.bench.walk_quality import FRACTION, STATION, judge

GOAL = 0.85
"""Least median correlation of radiation."""


def pair(sample: Sample) -> dict[str, Query]:
    """Return the pair of example 5.3.2: radiation [W m-2], and rain of each hour from the counter [mm]."""
    archive, begin = hg.open(sample.archive), np.datetime64(sample.sizes.start)
    period = (str(begin), str(begin + np.timedelta64(sample.sizes.days, "D")))
    station = str(STATION + 1)
    radiation = archive["solar_radiation"].select(station=station).convert("valid_range", low=0.0, high=1500.0)
    rain = archive["rain_meter"].select(station=station)
    return {
        "radiation": radiation.aggregate("mean", time="1h", min_coverage=0.0).clip(time=period),
        "rain": rain.aggregate("rain_accumulation", time="1h", min_coverage=0.0).clip(time=period),
    }


def measure(sample: Sample, pairs: int, notify: Tell) -> dict[str, Any]:
    """Return the time of the walk beside that of the whole, and the correlations of the pictures by order."""
    figures: list[Figure] = []
    differences = []
    correlations = []
    for name, query in pair(sample).items():
        stage = f"figures 5.8 to 5.10, {name}"
        notify(stage, 0.0)
        for order, found in judge(query, sample.sizes.seeds).items():
            goal = GOAL if (name, order) == ("radiation", "walk") else None
            met = None if goal is None else found["median"] >= goal
            correlations.append({"name": name, "order": order, **found, "goal": goal, "met": met})
        cells = round(FRACTION * query.plan().cells)
        seconds = interleaved(_works(query, cells), pairs, notify=notify, stage=stage, warm_up=True)
        figures.append(faster(f"{name}, time of the walk", seconds["walk"], seconds["whole"], what="whole / walk"))
        differences.append(_completed(name, query))
    return {
        "figures": [figure.to_json() for figure in figures],
        "differences": differences,
        "correlation": correlations,
        "seeds": sample.sizes.seeds,
    }


def _works(query: Query, cells: int) -> dict[str, Callable[[int], object]]:
    def walk(number: int) -> object:
        steps = query.refine(order="walk", seed=number + 1, fraction=FRACTION)
        return list(takewhile(lambda one: one.cells < cells, steps))

    return {"walk": walk, "whole": lambda _: query.compute()}


def _completed(name: str, query: Query) -> dict[str, Any]:
    """Compare the surface that a walk ends with, all cells computed, with the one computed at once."""
    *_, last = query.refine(order="walk", fraction=FRACTION)
    apart = np.abs(value_of(last.dataset()).to_numpy() - value_of(query.compute()).to_numpy())
    greatest = float(np.nanmax(apart))
    return {"name": f"{name}, completed after the walk", "greatest": greatest, "goal": 1e-9, "met": greatest <= 1e-9}
