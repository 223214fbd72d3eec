"""Studies through the public door: what they read, and what they refuse."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import hypergrid as hg
from hypergrid.errors import InvalidQuery

VARIOGRAM = {"model": "exponential", "psill": 1.0, "range_m": 400.0, "nugget": 0.05}


@pytest.fixture(scope="module")
def readings() -> xr.DataArray:
    """30 stations, 40 slices drawn from the variogram above."""
    random = np.random.default_rng(3)
    places = random.uniform(0, 1000, (30, 2))
    distance = np.linalg.norm(places[:, None] - places, axis=-1)
    covariance = np.exp(-3 * distance / 400.0) + 0.05 * np.eye(30)
    values = random.multivariate_normal(np.zeros(30), covariance, size=40)
    values[random.random(values.shape) < 0.1] = np.nan
    coords: dict[str, Any] = {
        "time": pd.date_range("2007-10-01", periods=40, freq="10min"),
        "x": ("station", places[:, 0]),
        "y": ("station", places[:, 1]),
    }
    return xr.DataArray(values, dims=("time", "station"), coords=coords, name="t", attrs={"units": "degC"})


def test_a_fitted_variogram_is_near_the_one_that_made_the_field(readings: xr.DataArray) -> None:
    fitted = hg.fit_variogram(readings).variogram
    assert 0.7 < fitted.psill + fitted.nugget < 1.4
    assert 200 < fitted.range_m < 800
    query = hg.base(readings).interpolate(
        "ordinary_kriging", grid=hg.grid(x=0, y=0, step=100, shape=(10, 10)), variogram=fitted
    )
    assert np.isfinite(query.compute()["value"]).all()


def test_leaving_out_one_station_is_what_a_query_without_it_says(readings: xr.DataArray) -> None:
    found = hg.cross_validate(readings, "ordinary_kriging", parameters={"variogram": VARIOGRAM})
    assert found.in_closed_form
    x, y = (float(readings[name][4]) for name in "xy")
    others = readings.isel(station=[i for i in range(30) if i != 4])
    grid = hg.grid(x=round(x, 3) - 0.001, y=round(y, 3) - 0.001, step=0.002, shape=(1, 1))
    asked = hg.base(others).interpolate("ordinary_kriging", grid=grid, variogram=VARIOGRAM).compute()["value"]
    here = np.isfinite(readings[:, 4].to_numpy())
    np.testing.assert_allclose(found.estimate[here, 4], asked.to_numpy().ravel()[here], atol=1e-4)


def test_kriging_with_its_own_variogram_beats_the_nearest_station(readings: xr.DataArray) -> None:
    order = [each.method for each in hg.compare_methods(readings) if each.common is not None]
    assert order.index("ordinary_kriging") < order.index("nearest")


def test_a_network_as_wide_as_a_continent_is_studied_over_the_sphere(readings: xr.DataArray) -> None:
    places = np.stack([readings["x"], readings["y"]], axis=1) / 1000
    lon, lat = -40 + 80 * places[:, 0], 20 + 50 * places[:, 1]
    wide = readings.drop_vars(["x", "y"]).assign_coords(lon=("station", lon), lat=("station", lat))
    found = hg.cross_validate(wide, "inverse_distance")
    half = np.radians(lat[:, None] - lat) / 2, np.radians(lon[:, None] - lon) / 2
    across = np.sin(half[0]) ** 2 + np.cos(np.radians(lat[:, None])) * np.cos(np.radians(lat)) * np.sin(half[1]) ** 2
    apart = np.arcsin(np.sqrt(across)) + np.where(np.eye(30), np.inf, 0)
    weights = np.where(np.isfinite(readings), 1.0, 0.0)[:, None] / apart**2
    wanted = (weights * np.nan_to_num(readings.to_numpy())[:, None]).sum(axis=2) / weights.sum(axis=2)
    here = np.isfinite(readings.to_numpy())
    np.testing.assert_allclose(found.estimate[here], wanted[here], rtol=1e-9, atol=1e-12)
    assert hg.fit_variogram(wide).variogram.range_m > 1e5
    refused = {each.method for each in hg.compare_methods(wide) if each.common is None}
    assert {"linear", "radial_basis"} <= refused


def test_of_a_map_the_stations_below_it_are_studied(readings: xr.DataArray) -> None:
    stations = hg.base(readings).aggregate("mean", time="30min")
    surface = stations.interpolate("nearest", grid=hg.grid(x=0, y=0, step=100, shape=(3, 3))).aggregate(
        "max", time="all"
    )
    found, wanted = hg.cross_validate(surface, "nearest"), hg.cross_validate(stations, "nearest")
    np.testing.assert_array_equal(found.samples.values, wanted.samples.values)
    assert found.score.rmse == wanted.score.rmse
    filled = hg.base(readings).interpolate("linear", time="10min", max_gap="1h")
    assert len(hg.cross_validate(filled, "nearest").samples.values) == 40, "an interpolation in time is not left out"


def test_times_left_out_are_kriged_with_a_variogram_of_the_others(readings: xr.DataArray) -> None:
    found = hg.cross_validate(readings, "ordinary_kriging", by="time_block")
    assert len(found.given) == 4
    models = [given["variogram"] for given in found.given]
    assert len({model.range_m for model in models}) == 4, "each block is left out of its own fit"
    assert found.score.rmse < hg.cross_validate(readings, "nearest").score.rmse
    with pytest.raises(InvalidQuery, match="nearest fits nothing"):
        hg.cross_validate(readings, "nearest", by="time_block")
