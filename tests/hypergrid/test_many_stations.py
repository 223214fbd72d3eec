"""Networks of many stations are kriged from tiles of their system, which is never inverted as a whole."""

import numpy as np
import xarray as xr

import hypergrid as hg

STATIONS = 800
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


def test_800_stations_are_kriged_as_by_one_dense_system() -> None:
    rng = np.random.default_rng(5)
    x, y = rng.uniform(0, 10_000, (2, STATIONS))
    values = np.sin(x / 2000) + np.cos(y / 1500) + 0.3 * rng.normal(size=(3, STATIONS))
    # A station that does not report in one slice.
    values[1, 17] = np.nan
    times = np.array(["2007-10-01T00", "2007-10-01T01", "2007-10-01T02"], "M8[ns]")
    readings = xr.DataArray(
        values,
        dims=("time", "station"),
        coords={"x": ("station", x), "y": ("station", y), "time": times},
        name="level",
    )
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
