"""Positions that no place on earth has, and layers that a cross-validation needs."""

import numpy as np
import pytest
import xarray as xr

import hypergrid as hg
from hypergrid.core.errors import InvalidQuery, NotFound

MODEL = hg.variogram("exponential", psill=1.0, range_m=1e4)
RANDOM = np.random.default_rng(2)


def readings(lon: list[float], lat: list[float]) -> xr.DataArray:
    coords = {"time": [np.datetime64("2007-10-01", "ns")], "station": [f"s{i}" for i in range(len(lon))],
              "lon": ("station", lon), "lat": ("station", lat)}  # fmt: skip
    values = RANDOM.normal(size=(1, len(lon)))
    return xr.DataArray(values, dims=("time", "station"), coords=coords, attrs={"units": "mm"})


@pytest.mark.parametrize(
    ("lon", "lat", "says"),
    [
        ([7.0, 7.1], [91.0, 46.0], r"got s0 at lon 7, lat 91; check whether lon and lat are swapped"),
        ([7.0, 7.1], [46.0, -90.5], r"got s1 at lon 7.1, lat -90.5"),
        ([7.0, 400.0], [46.0, 46.0], r"got s1 at lon 400, lat 46"),
        ([7.0] * 5, [91.0] * 5, r"lat 91 and 2 more"),
    ],
)
def test_stations_off_the_globe_are_named(lon: list[float], lat: list[float], says: str) -> None:
    with pytest.raises(InvalidQuery, match=says):
        hg.base(readings(lon, lat))


def test_a_station_without_a_position_and_one_at_the_pole_are_taken() -> None:
    assert hg.base(readings([7.0, np.nan, 7.1], [46.0, np.nan, 90.0])).compute()["value"].size == 3


def test_a_drift_in_any_layer_can_be_cross_validated() -> None:
    lon, lat = RANDOM.uniform(7.0, 7.9, 20), RANDOM.uniform(46.0, 46.9, 20)
    array = readings(lon.tolist(), lat.tolist())
    edges = {"lon": np.linspace(6.9, 8.0, 12), "lat": np.linspace(45.9, 47.0, 12)}
    field = RANDOM.normal(size=(12, 12))
    layer = xr.DataArray(field, dims=("lat", "lon"), coords=edges, attrs={"units": "degree"})
    data = hg.base(array, layers={"slope": layer})
    slope = layer.interp(lon=("station", lon), lat=("station", lat)).to_numpy()
    data = hg.base(array.copy(data=5.0 * slope[None] + 0.01 * array.to_numpy()), layers={"slope": layer})
    found = hg.cross_validate(data, "external_drift_kriging", parameters={"variogram": MODEL, "drift": ["slope"]})
    assert found.score.count == 20
    assert found.score.rmse < 0.05
    with pytest.raises(NotFound, match="unknown layer 'aspect'"):
        hg.cross_validate(data, "external_drift_kriging", parameters={"variogram": MODEL, "drift": ["aspect"]})
