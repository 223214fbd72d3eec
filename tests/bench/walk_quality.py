"""How much of a picture a few of its cells tell: the directed walks beside cells at random, row by row, coarse to fine.

Thesis example 5.3.2, figures 5.8 and 5.9, on the sample network: radiation and rain rate at one station, by day and
hour over 28 days, of which 15 % of the cells are computed and the rest is estimated, alike for all orders. The rain
rate is the counter's increments; it falls back to 0 at midnight.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
import xarray as xr
from numpy.typing import NDArray

import hypergrid as hg
from hypergrid.core.result_names import value_of
from hypergrid.execution import ORDERS
from hypergrid.execution.orders.orders import WALKS, FixedOrder
from hypergrid.execution.orders.walk import complete
from hypergrid.query import Query
from station_data.clock import numbers_between, sample_times
from station_data.generate import DEFAULT_DAYS, DEFAULT_SEED, DEFAULT_START, DEFAULT_STATIONS, measure
from station_data.network import stations
from station_data.truth import VARIABLES, truth

Floats = NDArray[np.float64]

FRACTION = 0.15
STATION = 5
"""Station at which the pair is looked at, from 0."""


def pair(*, days: int = DEFAULT_DAYS) -> Mapping[str, Query]:
    """Return hourly radiation [W m-2] and rain rate [mm h-1] at one station of the sample network, as queries."""
    station = stations(DEFAULT_STATIONS)[STATION]
    start = int(np.datetime64(DEFAULT_START, "s").astype(np.int64))
    numbers = numbers_between(DEFAULT_SEED, station.id, start, start + days * 86_400)
    taken_s = sample_times(DEFAULT_SEED, station.id, numbers)
    true = np.stack([truth(name, taken_s * 10**9, station.lon, station.lat) for name in VARIABLES], axis=1)
    readings = dict(zip(VARIABLES, measure(DEFAULT_SEED, station.id, numbers, true).T, strict=True))
    counter = readings["rain_meter"]
    fallen = np.diff(counter, prepend=counter[0])
    hours = np.diff(taken_s, prepend=taken_s[0] - 120) / 3600.0
    columns = {
        "solar_radiation": (readings["solar_radiation"], "W m-2"),
        "rain_rate": (np.where(fallen < 0, counter, fallen) / hours, "mm h-1"),
    }
    coords = {"time": (taken_s * 10**9).view("datetime64[ns]"), "lon": ("station", [station.lon])}
    coords["lat"] = ("station", [station.lat])
    return {
        name: hg.base(xr.DataArray(values[:, None], coords, ("time", "station"), name, {"units": unit})).aggregate(
            "mean", time="1h", min_coverage=0.0
        )
        for name, (values, unit) in columns.items()
    }


def walked(query: Query, seed: int, fraction: float = FRACTION, order: str = "walk") -> tuple[Floats, int]:
    """Return the completed picture after a walk's share, and how many cells it computed."""
    cells = round(fraction * query.plan().cells)
    # What a walk shows is judged here also where it cannot save time.
    refinements = query.refine(order=order, seed=seed, fraction=fraction, min_gain=0.0)
    last = next(one for one in refinements if one.cells >= cells)
    return last.estimate, last.cells


def completed(full: Floats, cells: NDArray[np.intp]) -> Floats:
    """Return a picture of which some cells are computed, completed as a refinement's is."""
    computed = np.zeros(full.shape, dtype=bool)
    computed.ravel()[cells] = True
    return complete(np.where(computed, full, np.nan), computed)[0]


def correlation(picture: Floats, full: Floats) -> float:
    """Return Pearson's correlation of two pictures, 0 where one is all alike."""
    if picture.std() == 0 or full.std() == 0:
        return 0.0
    return float(np.corrcoef(picture.ravel(), full.ravel())[0, 1])


def judge(query: Query, seeds: int, fraction: float = FRACTION) -> dict[str, Any]:
    """Return by order the correlations of the completed picture with the full one: median, least and greatest."""
    hours = value_of(query.compute()).to_numpy()[:, 0]
    full = hours.reshape(-1, 24)
    count = round(fraction * full.size)
    found: dict[str, list[float]] = {**{order: [] for order in WALKS}, "uniform": [], "coarse_to_fine_shifted": []}
    rows, columns = np.divmod(FixedOrder(ORDERS["coarse_to_fine"](full.shape)).next_cells(count), full.shape[1])
    for seed in range(seeds):
        for order in WALKS:
            picture, cells = walked(query, seed, fraction, order)
            if cells != count:
                message = f"a walk of {count} cells computed {cells}"
                raise ValueError(message)
            found[order].append(correlation(picture, full))
        at_random = np.random.default_rng(seed).permutation(full.size)[:count]
        found["uniform"].append(correlation(completed(full, at_random), full))
        # One lattice hits a short event or misses it: the same lattice elsewhere says how much of that is luck.
        down, across = np.divmod(at_random[0], full.shape[1])
        shifted = (rows + down) % full.shape[0] * full.shape[1] + (columns + across) % full.shape[1]
        found["coarse_to_fine_shifted"].append(correlation(completed(full, shifted), full))
    for order in ("raster", "coarse_to_fine"):
        found[order] = [correlation(completed(full, FixedOrder(ORDERS[order](full.shape)).next_cells(count)), full)]
    return {
        order: {"median": float(np.median(one)), "least": min(one), "greatest": max(one), "mean": float(np.mean(one))}
        for order, one in found.items()
    }


def measure_walks(*, seeds: int = 100, days: int = DEFAULT_DAYS) -> dict[str, Any]:
    """Return correlations by variable and order, with the share of the work that was done.

    Parameters
    ----------
    seeds
        Walks, and choices at random, that the medians are of.
    days
        Rows of the picture.
    """
    judged = {name: judge(query, seeds) for name, query in pair(days=days).items()}
    return {"cells": FRACTION, "seeds": seeds, "days": days, "correlation": judged}


if __name__ == "__main__":
    import json

    print(json.dumps(measure_walks(), indent=1))
