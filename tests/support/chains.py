"""Chains of every kind over one small network: what executors are proved on."""

from collections.abc import Callable

import numpy as np
import xarray as xr

import hypergrid as hg
from hypergrid.core.times import SECOND_NS
from hypergrid.query import Query
from hypergrid.topology import Grid

MODEL = hg.variogram("exponential", psill=1.2, range_m=900.0, nugget=0.05)
GRID = hg.grid(x=(0, 2000), y=(0, 2000), step=250)
LEVELS = hg.grid(x=(0, 2000), y=(0, 1500), step=500, z={"edges": [0, 200, 300, 800]})


def network(slices: int = 60, stations: int = 9) -> Query:
    """Return readings every ten minutes, a fifth of them missing."""
    rng = np.random.default_rng(4)
    times = np.arange(slices) * 600 * SECOND_NS
    values = np.where(rng.random((slices, stations)) < 0.2, np.nan, rng.normal(5, 3, (slices, stations)))
    places = {name: ("station", rng.uniform(0, 2000, stations)) for name in ("x", "y")}
    coords = {"time": times.view("datetime64[ns]"), **places, "elevation": ("station", np.linspace(0, 900, stations))}
    return hg.base(
        xr.DataArray(values, dims=("time", "station"), coords=coords, name="air_temperature"),
        layers={"elevation": xr.DataArray(np.fromfunction(lambda y, x: 40.0 * x + 7 * y, (9, 9)), dims=("y", "x"),
                coords={"y": np.arange(9) * 250.0, "x": np.arange(9) * 250.0})},
    )  # fmt: skip


def hourly() -> Query:
    """Return means of each hour of four days."""
    return network(576).aggregate("mean", time="1h", min_coverage=0)


def sunny() -> Query:
    """Return radiation of each hour of four days, at stations with longitude and latitude."""
    rng = np.random.default_rng(5)
    times = (np.arange(96) * 3600 * SECOND_NS).view("datetime64[ns]")
    places = {"lon": ("station", rng.uniform(7.0, 7.1, 5)), "lat": ("station", rng.uniform(46.0, 46.1, 5))}
    values = np.where(rng.random((96, 5)) < 0.2, np.nan, rng.uniform(0, 800, (96, 5)))
    coords = {"time": times, **places, "elevation": ("station", np.linspace(0, 900, 5))}
    array = xr.DataArray(values, coords, ("time", "station"), "solar_radiation", {"units": "W m-2"})
    return hg.base(array)


def on_grid(method: str = "ordinary_kriging", *, grid: Grid = GRID, **given: object) -> Query:
    """Return the network on 8 x 8 cells, or another grid."""
    return network().interpolate(method, grid=grid, **given)


def in_kelvin() -> Query:
    """Return the network on a grid in K, of which there are ratios."""
    warm = network().convert("scale", factor=1.0, offset=273.15, unit="K")
    return warm.interpolate("ordinary_kriging", grid=GRID, variogram=MODEL)


SPELLS = {"edges": ["1970-01-01T03:00", "1970-01-01T08:00", "1970-01-02T00:00", "1970-01-02T01:00", "1970-01-04T12:00"]}
SLIDING = {"length": "1h", "step": "20min"}
CHAINS: dict[str, Callable[[], Query]] = {
    "series": lambda: network().convert("scale", factor=2.0).aggregate("mean", time=SLIDING, min_coverage=0.3),
    "chosen of series": lambda: network().aggregate("sample", time="30min"),
    "instants": lambda: network().interpolate("spline", time="5min", max_gap="1h").aggregate("mean", time="1h"),
    "instants of cells": lambda: network().aggregate("mean", time="20min", min_coverage=0).interpolate(
        "linear", time="5min", max_gap="2h"),
    "kriging": lambda: on_grid(variogram=MODEL),
    "kriging with variance": lambda: on_grid(variogram=MODEL).with_variance(),
    "mean with variance": lambda: on_grid(variogram=MODEL).aggregate("mean", time="1h").with_variance(),
    "nearest kriging": lambda: on_grid(variogram=MODEL, neighbours=4, radius_m=600.0),
    "fitted": lambda: on_grid(variogram="fit"),
    "fitted by slice": lambda: on_grid(variogram="fit_by_slice"),
    "around a trend": lambda: on_grid(variogram=MODEL, trend="lapse_rate").aggregate("mean", time=SLIDING),
    "drift": lambda: on_grid("external_drift_kriging", drift=["elevation"], variogram=MODEL),
    "simple": lambda: on_grid("simple_kriging", variogram=MODEL, mean=4.0).aggregate("sum", time="1h", min_coverage=0),
    "levels": lambda: on_grid(grid=LEVELS, variogram=MODEL, trend="lapse_rate"),
    "levels by drift": lambda: on_grid("external_drift_kriging", grid=LEVELS, variogram=MODEL).with_variance(),
    "means over levels": lambda: on_grid("inverse_distance", grid=LEVELS, trend="lapse_rate").aggregate(
        "mean", time=SLIDING, z={"edges": [0, 300, 800]}, x=1000, min_coverage=0.3),
    "bands of stations": lambda: network().aggregate("mean", time="20min", min_coverage=0.5).aggregate(
        "max", z=300, min_coverage=0.3),
    "bands of terrain": lambda: on_grid(variogram=MODEL).aggregate("mean", time=SLIDING).aggregate(
        "quantile", z={"edges": [0, 60, 130, 400]}, q=0.3),
    "inverse distance": lambda: on_grid("inverse_distance", trend="lapse_rate"),
    "nearest": lambda: on_grid("nearest", radius_m=500.0),
    "linear": lambda: on_grid("linear"),
    "radial": lambda: on_grid("radial_basis").aggregate("max", time={"length": "20min", "step": "1h"}),
    "sliding means": lambda: on_grid(variogram=MODEL).aggregate("mean", time=SLIDING),
    "sliding extremes": lambda: on_grid(variogram=MODEL).aggregate("max", time=SLIDING).aggregate(
        "min", time="1h", x=500, y=500),
    "gaps": lambda: on_grid(variogram=MODEL).aggregate("last", time={"length": "20min", "step": "1h"}),
    "difference": lambda: on_grid(variogram=MODEL).merge(
        "difference", network().convert("scale", factor=2.0).interpolate("linear", grid=GRID)),
    "ratio of extremes": lambda: in_kelvin().aggregate("max", time="1h").merge(
        "ratio", in_kelvin().aggregate("min", time="1h")),
    "medians": lambda: on_grid(variogram=MODEL).aggregate("median", time=SLIDING, min_coverage=0),
    "spread of blocks": lambda: on_grid(variogram=MODEL).aggregate("variance", time="1h", x=500, y=500),
    "quantile of blocks": lambda: on_grid(variogram=MODEL).aggregate("quantile", time="1h", x=500, y=500, q=0.3),
    "trends": lambda: on_grid(variogram=MODEL).aggregate("trend", time=SLIDING),
    "counter": lambda: network().convert("scale", factor=1.0, unit="mm").aggregate(
        "rain_accumulation", time="30min", min_coverage=0),
    "degree days": lambda: network().aggregate("mean", time="20min", min_coverage=0).aggregate(
        "degree_days", time="1h", base=3.0, min_coverage=0),
    "spells": lambda: hourly().interpolate("linear", time="30min", max_gap="6h").aggregate("sum", time=SPELLS),
    "instants of spells": lambda: hourly().aggregate("mean", time=SPELLS, min_coverage=0).interpolate(
        "linear", time="1h", max_gap="1d"),
    "maps of spells": lambda: hourly().interpolate("ordinary_kriging", grid=GRID, variogram=MODEL).aggregate(
        "max", time=SPELLS, min_coverage=0),
    "means of spells": lambda: hourly().interpolate("ordinary_kriging", grid=GRID, variogram=MODEL).aggregate(
        "mean", time=SPELLS, min_coverage=0),
    "clear sky of spells": lambda: sunny().aggregate("mean", time=SPELLS, min_coverage=0).convert("clear_sky_index"),
    "hours of day": lambda: hourly().aggregate("sum", time="hour_of_day", min_coverage=0),
    "maps of hours of day": lambda: hourly().interpolate("ordinary_kriging", grid=GRID, variogram=MODEL).aggregate(
        "trend", time="hour_of_day", min_coverage=0),
}  # fmt: skip
"""Name to a query."""
