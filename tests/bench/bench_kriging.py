"""Kriging many slices of one network, beside PyKrige's C backend as a good user of PyKrige calls it.

A good user builds one `OrdinaryKriging` a slice with the stations that report, the variogram given, and executes it on
the points with the C backend. Both sides get the same numbers in projected metres. Pairs are interleaved, so that
whatever else the machine does falls on both.
"""

import os
import platform
import statistics
import time
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import numpy as np
import pandas as pd
import xarray as xr
from pykrige.ok import OrdinaryKriging

import hypergrid as hg

STATIONS, SIDE, SLICES, PAIRS = 23, 23, 432, 5
SIDE_M = 30.0
PSILL, RANGE_M, NUGGET = 1.2, 250.0, 0.05


def network(seed: int = 0) -> xr.DataArray:
    """Return readings of 23 stations on a common clock, about 10 % missing in bursts of an hour."""
    random = np.random.default_rng(seed)
    values = random.normal(size=(SLICES, STATIONS)).cumsum(axis=0) * 0.1
    for start in range(0, SLICES, 10):
        values[start : start + 10, random.random(STATIONS) < 0.1] = np.nan
    places = random.uniform(0, SIDE * SIDE_M, size=(STATIONS, 2))
    coords = {
        "time": pd.date_range("2007-10-01", periods=SLICES, freq="10min"),
        "x": ("station", places[:, 0]),
        "y": ("station", places[:, 1]),
    }
    return xr.DataArray(values, dims=("time", "station"), coords=coords, name="air_temperature")


def by_pykrige(readings: xr.DataArray) -> np.ndarray:
    """Return every slice kriged by PyKrige, shape (slices, rows, columns)."""
    x, y, values = readings["x"].to_numpy(), readings["y"].to_numpy(), readings.to_numpy()
    centres = (np.arange(SIDE) + 0.5) * SIDE_M
    result = np.empty((SLICES, SIDE, SIDE))
    for number, row in enumerate(values):
        heard = np.isfinite(row)
        parameters = {"psill": PSILL, "range": RANGE_M, "nugget": NUGGET}
        kriging = OrdinaryKriging(
            x[heard], y[heard], row[heard], variogram_model="exponential", variogram_parameters=parameters
        )
        estimate, _ = kriging.execute("grid", centres, centres, backend="C")
        result[number] = estimate
    return result


def by_hypergrid(readings: xr.DataArray, *, mean: bool) -> np.ndarray:
    """Return every slice, or their mean, through the public interface."""
    query = hg.base(readings).interpolate(
        "ordinary_kriging",
        grid=hg.grid(x=0.0, y=0.0, step=SIDE_M, shape=(SIDE, SIDE)),
        variogram=hg.variogram("exponential", psill=PSILL, range_m=RANGE_M, nugget=NUGGET),
    )
    return (query.aggregate("mean", time="all") if mean else query).compute()["value"].to_numpy()


def measure() -> dict[str, Any]:
    """Return medians and ranges of interleaved pairs, the ratio, and the greatest difference."""
    readings = network()
    cold = _timed(lambda: by_hypergrid(readings, mean=False))[0]
    pairs, means, difference = [], [], 0.0
    for _ in range(PAIRS):
        seconds, ours = _timed(lambda: by_hypergrid(readings, mean=False))
        mean_s, our_mean = _timed(lambda: by_hypergrid(readings, mean=True))
        theirs_s, theirs = _timed(lambda: by_pykrige(readings))
        pairs.append((seconds, theirs_s))
        means.append((mean_s, theirs_s))
        difference = max(
            difference, float(np.abs(ours - theirs).max()), float(np.abs(our_mean[0] - theirs.mean(0)).max())
        )
    return {
        "case": f"{STATIONS} stations, {SIDE} x {SIDE} cells, {SLICES} slices, about 10 % missing in bursts",
        "peer": f"PyKrige {version('pykrige')}, C backend, one call a slice",
        "all_slices": _ratio(pairs),
        "time_mean": _ratio(means),
        "first_call_s": round(cold, 4),
        "greatest_difference": difference,
        "machine": {"cores": os.cpu_count(), "python": platform.python_version(), "numpy": np.__version__},
    }


def _timed(work: Callable[[], np.ndarray]) -> tuple[float, np.ndarray]:
    begun = time.perf_counter()
    result = work()
    return time.perf_counter() - begun, result


def _ratio(pairs: list[tuple[float, float]]) -> dict[str, Any]:
    ratios = [theirs / ours for ours, theirs in pairs]
    return {
        "hypergrid_s": round(statistics.median(ours for ours, _ in pairs), 4),
        "peer_s": round(statistics.median(theirs for _, theirs in pairs), 4),
        "ratio": round(statistics.median(ratios), 1),
        "ratio_range": [round(min(ratios), 1), round(max(ratios), 1)],
        "pairs": len(pairs),
    }
