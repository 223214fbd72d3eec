"""Layers that come with an array: read in its coordinates, part of its identity, refused where they do not fit."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import hypergrid as hg
from hypergrid.core.errors import InvalidLayer, InvalidQuery, InvalidUnit, NotFound
from hypergrid.layers.layer import Layer
from hypergrid.perspective.sources.array_source import array_source


def readings(names: tuple[str, str] = ("x", "y")) -> xr.DataArray:
    coords = {
        "time": pd.date_range("2007-10-01", periods=2, freq="1h"),
        names[0]: ("station", [0.0, 9.0]),
        names[1]: ("station", [0.0, 0.0]),
    }
    return xr.DataArray([[1.0, 2.0], [3.0, 4.0]], dims=("time", "station"), coords=coords, name="air_temperature")


def field(dims: tuple[str, str] = ("y", "x"), **attrs: str) -> xr.DataArray:
    values = np.arange(6.0).reshape(2, 3)
    return xr.DataArray(values, dims=dims, coords={dims[0]: [10.0, 0.0], dims[1]: [0.0, 5.0, 10.0]}, attrs=attrs)


def test_a_layer_is_found_in_the_coordinates_of_the_array() -> None:
    source = array_source(readings(), layers={"elevation": field(units="km"), "slope": field(("x", "y")[::-1])})
    ground = source.layer("elevation")
    assert (ground.unit, ground.system) == ("m", "metres")
    np.testing.assert_allclose(ground.sample([(0.0, 10.0), (2.5, 5.0)]), [0.0, 2000.0])
    np.testing.assert_allclose(source.layer("slope").sample([(10.0, 0.0)]), [5.0])
    with pytest.raises(NotFound, match=r"did you mean 'slope'.*hg.base\(…, layers=\{'slop': dataarray\}\)"):
        source.layer("slop")


def test_dimensions_come_in_either_order() -> None:
    turned = array_source(readings(), layers={"slope": field().transpose("x", "y")})
    assert turned.layer("slope").token == array_source(readings(), layers={"slope": field()}).layer("slope").token


def test_a_layer_that_was_made_is_taken_as_it_is() -> None:
    ground = Layer("elevation", x=[6.0, 7.0], y=[45.0, 46.0], values=np.ones((2, 2)))
    assert array_source(readings(("lon", "lat")), layers={"elevation": ground}).layer("elevation") is ground
    with pytest.raises(InvalidQuery, match="is in lonlat, the stations are in metres"):
        array_source(readings(), layers={"elevation": ground})


def test_layers_are_part_of_what_a_query_is_about() -> None:
    plain, again = hg.base(readings()), hg.base(readings(), layers={})
    low, high = (hg.base(readings(), layers={"elevation": field() + height}) for height in (0.0, 1.0))
    assert plain.token == again.token
    assert len({plain.token, low.token, high.token}) == 3
    merged = low.merge("difference", high)
    found = {key: source.layer("elevation").values.min() for key, source in merged.lookup.arrays.items()}
    assert sorted(found.values()) == [0.0, 1.0]
    np.testing.assert_array_equal(low.aggregate("mean", time="all").compute()["value"], [[2.0, 3.0]])


@pytest.mark.parametrize(
    ("layers", "kind", "words"),
    [
        ([field()], InvalidQuery, "needs a mapping"),
        ({3: field()}, InvalidQuery, "needs a mapping"),
        ({"elevation": np.ones((2, 2))}, InvalidQuery, "needs an xarray.DataArray or a hypergrid Layer; got ndarray"),
        ({"elevation": field(("lat", "lon"))}, InvalidQuery, r"\(y, x\), as the stations have; got \('lat', 'lon'\)"),
        ({"elevation": field().expand_dims("time")}, InvalidQuery, "squeeze"),
        ({"elevation": field().drop_vars("x")}, InvalidQuery, "dimensions and coordinates"),
        ({"elevation": field().isel(x=[0])}, InvalidLayer, "two or more x centres"),
        ({"elevation": field(units="degC")}, InvalidUnit, "measure different things"),
    ],
)
def test_what_does_not_fit_is_refused(layers: Any, kind: type[Exception], words: str) -> None:  # noqa: ANN401
    with pytest.raises(kind, match=words):
        hg.base(readings(), layers=layers)


@pytest.mark.parametrize(
    ("method", "given"),
    [("external_drift_kriging", {"drift": ["elevation"]}), ("ordinary_kriging", {"trend": "lapse_rate"})],
)
def test_a_layer_that_covers_no_cell_is_refused_and_one_that_covers_some_is_not(
    method: str, given: dict[str, Any]
) -> None:
    model = hg.variogram("exponential", psill=1.0, range_m=50.0)
    query = hg.base(readings(), layers={"elevation": field(units="m")})
    elsewhere = hg.grid(x=(20, 40), y=(-5, 15), step=5)
    words = (
        r"layer 'elevation' covers no cell of the grid: it lies within -2.5 to 12.5, -5 to 15, the centres of the "
        r"grid's cells within 22.5 to 37.5, -2.5 to 12.5 \(x, y\); give a layer"
    )
    with pytest.raises(InvalidQuery, match=words):
        query.interpolate(method, grid=elsewhere, variogram=model, **given).explain()
    partly = hg.grid(x=(0, 40), y=(-5, 15), step=5)
    assert query.interpolate(method, grid=partly, variogram=model, **given).explain()


def test_an_elevation_in_degrees_celsius_is_refused_with_what_to_do() -> None:
    with pytest.raises(
        InvalidUnit, match=r"layer 'elevation': 'degC' does not convert to 'm'.*set its attrs\['units'\]"
    ):
        hg.base(readings(), layers={"elevation": field(units="degC")})
    assert array_source(readings(), layers={"slope": field(units="degC")}).layer("slope").unit == "degC"
