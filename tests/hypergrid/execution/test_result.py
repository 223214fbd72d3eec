"""What a result says of its cells."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import hypergrid as hg
from hypergrid.query import Query

MODEL = hg.variogram("exponential", psill=1.0, range_m=500.0, nugget=0.1)
GRID = hg.grid(x=(0, 1000), y=(0, 1000), step=500)


def array(name: str, unit: str, frequency: str = "10min") -> Query:
    rng = np.random.default_rng(2)
    coords: dict[str, Any] = {name: ("station", rng.uniform(0, 1000, 6)) for name in ("x", "y")}
    coords["time"] = pd.date_range("2007-10-01", periods=6, freq=frequency)
    values = rng.uniform(2, 8, (6, 6))
    return hg.base(xr.DataArray(values, dims=("time", "station"), coords=coords, name=name, attrs={"units": unit}))


def kriged(query: Query, **given: object) -> Query:
    return query.interpolate("ordinary_kriging", grid=GRID, variogram=MODEL, **given)


def methods(query: Query) -> str:
    return str(query.compute()["value"].attrs["cell_methods"])


POINT = "area: point (comment: estimate at the cell's centre)"
BLOCK = "area: mean (comment: block of 3 by 3 Gauss-Legendre points)"


@pytest.mark.parametrize(("given", "area"), [({}, POINT), ({"support": "block", "quadrature": 3}, BLOCK)])
def test_a_block_is_a_mean_and_a_point_is_not(given: dict[str, Any], area: str) -> None:
    query = kriged(array("air_temperature", "degC"), **given)
    assert methods(query) == area
    assert methods(query.aggregate("mean", time="1h")) == f"{area} time: mean (comment: cells of 1h)"
    assert methods(query.aggregate("max", time="1h")) == f"{area} time: maximum (comment: cells of 1h)"
    below = kriged(array("air_temperature", "degC").aggregate("mean", time="30min"), **given)
    assert methods(below) == f"time: mean (comment: cells of 30min) {area}"


@pytest.mark.parametrize(
    ("frequency", "length"), [("12min", "1h"), ("10min", "50min"), ("100ms", "500ms"), ("24h", "5day")]
)
def test_all_instants_of_an_array_have_a_length_that_people_read(frequency: str, length: str) -> None:
    query = array("air_temperature", "degC", frequency).aggregate("mean", time="all")
    assert methods(query) == f"time: mean (comment: cells of {length})"


def test_an_odd_length_is_told_in_seconds() -> None:
    frame = array("air_temperature", "degC", "36123456789ns")
    assert methods(frame.aggregate("mean", time="all")) == "time: mean (comment: cells of 181s)"


def test_what_two_branches_do_alike_is_said_once() -> None:
    speed, direction = array("wind_speed", "m/s"), array("wind_direction", "degree")
    query = direction.interpolate("recipe", speed, grid=GRID, by="inverse_distance", trend="none")
    hourly = speed.aggregate("mean", time="1h").merge("difference", speed.aggregate("mean", time="1h"))
    assert methods(hourly).count("time: mean") == 1
    assert methods(query).count("area: ") == 1
