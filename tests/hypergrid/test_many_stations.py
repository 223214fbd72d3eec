"""Networks of many stations are kriged from tiles of their system, which is never inverted as a whole."""

import numpy as np
import pytest
import xarray as xr

import hypergrid as hg
from hypergrid.core.errors import SingularSystem

STATIONS = 800
FACTORED = 3000
"""So many that the system's inverse would not be kept for the next query: its factor is solved with."""
RANGE_M, SILL, NUGGET = 3000.0, 1.0, 0.1


def semivariance(distance_m: np.ndarray) -> np.ndarray:
    return np.where(distance_m > 0, NUGGET + SILL * (1 - np.exp(-3 * distance_m / RANGE_M)), 0.0)


def krige(x: np.ndarray, y: np.ndarray, values: np.ndarray, targets: tuple[np.ndarray, ...]) -> list[np.ndarray]:
    """Return estimate and variance by one dense system."""
    system = np.ones((len(x) + 1, len(x) + 1))
    system[:-1, :-1] = semivariance(np.hypot(x[:, None] - x, y[:, None] - y))
    system[-1, -1] = 0.0
    right = np.ones((len(x) + 1, len(targets[0])))
    right[:-1] = semivariance(np.hypot(x[:, None] - targets[0], y[:, None] - targets[1]))
    weights = np.linalg.solve(system, right)
    return [weights[:-1].T @ values, (weights * right).sum(axis=0)]


def draw_network(stations: int = STATIONS) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return coordinates of stations, and three slices of their values."""
    rng = np.random.default_rng(5)
    x, y = rng.uniform(0, 10_000, (2, stations))
    return x, y, np.sin(x / 2000) + np.cos(y / 1500) + 0.3 * rng.normal(size=(3, stations))


def make_readings(x: np.ndarray, y: np.ndarray, values: np.ndarray) -> xr.DataArray:
    times = np.array(["2007-10-01T00", "2007-10-01T01", "2007-10-01T02"], "M8[ns]")
    coords = {"x": ("station", x), "y": ("station", y), "time": times}
    return xr.DataArray(values, dims=("time", "station"), coords=coords, name="level")


@pytest.mark.parametrize("stations", [STATIONS, FACTORED])
def test_many_stations_are_kriged_as_by_one_dense_system(stations: int) -> None:
    x, y, values = draw_network(stations)
    # A station that does not report in one slice.
    values[1, 17] = np.nan
    readings = make_readings(x, y, values)
    variogram = hg.variogram("exponential", psill=SILL, range_m=RANGE_M, nugget=NUGGET)
    grid = hg.grid(x=500.0, y=500.0, step=1500.0, shape=(6, 6))
    asked = hg.base(readings).interpolate("ordinary_kriging", grid=grid, variogram=variogram).with_variance()
    dataset = asked.compute()

    centres_x, centres_y = np.meshgrid(dataset["x"].values, dataset["y"].values)
    for number, row in enumerate(values):
        known = ~np.isnan(row)
        wanted = krige(x[known], y[known], row[known], (centres_x.ravel(), centres_y.ravel()))
        for name, expected in zip(("level", "level_variance"), wanted, strict=True):
            assert np.allclose(dataset[name].values[number].ravel(), expected, rtol=0, atol=1e-9)


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ({"model": "gaussian", "psill": 1.0, "range_m": 1e6}, "the stations differ"),
        ({"model": "nugget", "psill": 0.0, "nugget": 1.0}, ""),
    ],
)
def test_a_system_of_many_stations_is_solved_or_refused(model: dict[str, object], words: str) -> None:
    base = hg.base(make_readings(*draw_network()))
    grid = hg.grid(x=500.0, y=500.0, step=1500.0, shape=(6, 6))
    maps = base.interpolate("ordinary_kriging", grid=grid, variogram=hg.variogram(**model))
    if words:
        with pytest.raises(SingularSystem, match=words):
            maps.compute()
    else:
        # Without any correlation each estimate is the mean.
        means = base.compute()["level"].to_numpy().mean(axis=1)
        np.testing.assert_allclose(maps.compute()["level"], np.broadcast_to(means[:, None, None], (3, 6, 6)))


def test_gaps_of_many_slices_are_filled_as_each_alone() -> None:
    x, y, few = draw_network()
    rng = np.random.default_rng(6)
    values = np.tile(few, (20, 1)) + rng.normal(size=(60, STATIONS))
    values[rng.random(values.shape) < 0.005] = np.nan
    times = np.datetime64("2007-10-01", "ns") + np.arange(60) * np.timedelta64(1, "h")
    readings = xr.DataArray(
        values, dims=("time", "station"), coords={"x": ("station", x), "y": ("station", y), "time": times}, name="level"
    )
    variogram = hg.variogram("exponential", psill=SILL, range_m=RANGE_M, nugget=NUGGET)
    grid = hg.grid(x=500.0, y=500.0, step=200.0, shape=(45, 45))
    together = hg.base(readings).interpolate("ordinary_kriging", grid=grid, variogram=variogram).compute()["level"]
    for number in (0, 31, 59):
        alone = hg.base(readings.isel(time=[number])).interpolate("ordinary_kriging", grid=grid, variogram=variogram)
        np.testing.assert_allclose(together[number], alone.compute()["level"][0], atol=1e-9)
