"""Methods without a variogram, asked through a query."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import hypergrid as hg
from hypergrid.core.errors import InvalidQuery, NotFound
from hypergrid.interpolation import NO_VARIOGRAM


@pytest.fixture
def readings() -> xr.DataArray:
    rng = np.random.default_rng(6)
    frame = np.array([[0, 0], [900, 0], [0, 900], [900, 900]], dtype=float)
    places = np.concatenate([frame, rng.uniform(0, 900, (8, 2))])
    values = rng.normal(10, 3, (6, 12))
    values[2] = np.nan
    values[3, 2:] = np.nan
    coords = {
        "time": pd.date_range("2007-10-01", periods=6, freq="10min"),
        "x": ("station", places[:, 0]),
        "y": ("station", places[:, 1]),
    }
    return xr.DataArray(values, dims=("time", "station"), coords=coords, name="air_temperature")


def grid() -> hg.Grid:
    return hg.grid(x=(0, 900), y=(0, 900), step=100)


@pytest.mark.parametrize("method", NO_VARIOGRAM)
def test_a_surface_of_each_method(readings: xr.DataArray, method: str) -> None:
    query = hg.base(readings).interpolate(method, grid=grid())
    found = query.compute()
    missing = found["value"].isnull().all(["y", "x"]).to_numpy()
    few = method in ("linear", "radial_basis")
    np.testing.assert_array_equal(missing, [False, False, True, few, False, False])
    counts = found["count"].isel(x=0, y=0).to_numpy()
    most = {"nearest": 1, "linear": 3}.get(method, 12)
    assert counts.tolist() == [most, most, 0, 0 if few else min(most, 2), most, most]
    assert (found["count_possible"] == {"nearest": 1}.get(method, 12)).all()
    # A single slice is what the whole holds of it.
    alone = hg.base(readings[[4]]).interpolate(method, grid=grid()).compute()
    np.testing.assert_allclose(alone["value"][0], found["value"][4], rtol=1e-9)


@pytest.mark.parametrize(
    ("method", "params"),
    [
        ("inverse_distance", {"power": 3, "neighbours": 4, "radius_m": "0.5 km"}),
        ("nearest", {"radius_m": 300}),
        ("radial_basis", {"kernel": "gaussian", "scale_m": "0.2 km", "smoothing": 0.1}),
    ],
)
def test_parameters_are_part_of_the_question(readings: xr.DataArray, method: str, params: dict[str, Any]) -> None:
    plain = hg.base(readings).interpolate(method, grid=grid(), **({} if "kernel" not in params else {"smoothing": 0.1}))
    query = hg.base(readings).interpolate(method, grid=grid(), **params)
    assert query.to_json()["steps"][0]["params"] == params
    assert query.token != plain.token
    assert not query.compute()["value"].equals(plain.compute()["value"])


def test_what_cannot_be_asked_is_refused_before_anything_is_computed(readings: xr.DataArray) -> None:
    with pytest.raises(InvalidQuery, match="nearest has no variance"):
        hg.base(readings).interpolate("nearest", grid=grid()).with_variance().plan()
    with pytest.raises(NotFound, match="kernel of radial_basis"):
        hg.base(readings).interpolate("radial_basis", grid=grid(), kernel="wendland").plan()
    with pytest.raises(InvalidQuery, match="linear needs at least 3 stations"):
        hg.base(readings[:, :2]).interpolate("linear", grid=grid()).compute()
