"""What `hg.base` takes: selections, units of coordinates, times with a zone, and what it refuses."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import hypergrid as hg
from hypergrid.core.errors import InvalidQuery, InvalidUnit

TIMES = np.array(["2007-10-01T00:00", "2007-10-01T01:00"], dtype="datetime64[ns]")


def array_of(coords: dict[str, Any] | None = None, values: Any = None) -> xr.DataArray:  # noqa: ANN401
    """Return 1, 2, 3 and 4, 5, 6 degC at stations a, b and c, with some coordinates in place of the usual ones."""
    usual = {
        "time": TIMES, "station": list("abc"), "x": ("station", [0.0, 1000.0, 0.0]),
        "y": ("station", [0.0, 0.0, 1000.0]), "elevation": ("station", [500.0, 1500.0, 2500.0]),
    }  # fmt: skip
    known = {**usual, **(coords or {})}
    grid = np.arange(1.0, 7.0).reshape(2, 3) if values is None else values
    return xr.DataArray(grid, known, ("time", "station"), "air_temperature", {"units": "degC"})


def test_an_array_reads_the_stations_that_are_selected() -> None:
    """Each number comes from the stations that were asked for; all of them are the array itself."""
    query = hg.base(array_of())
    some = query.select(station=["a", "c"]).aggregate("mean", time="all").compute()
    assert some["station"].values.tolist() == ["a", "c"]
    assert some["value"].values.tolist() == [[2.5, 4.5]]
    one = query.select(station="b").compute()
    assert one["value"].values.tolist() == [[2.0], [5.0]]
    assert one["elevation"].values.tolist() == [1500.0]
    assert query.select(station="b").token != query.token
    assert query.select(station=["c", "b", "a"]).token == query.token
    merged = query.select(station="a").merge("difference", query.select(station="a")).compute()
    assert merged["value"].values.tolist() == [[0.0], [0.0]]


def test_an_array_refuses_what_it_cannot_be_asked() -> None:
    """A selection of nothing names what there is; values without flags are not chosen by flag."""
    query = hg.base(array_of())
    with pytest.raises(InvalidQuery, match=r"no series of 'air_temperature' has .*'A'.*there are: .*station a, b, c"):
        query.select(station="A").compute()
    with pytest.raises(InvalidQuery, match="'air_temperature' have no flags, so that accept_flags 1, 2, 3"):
        query.accept_flags(1, 2, 3).compute()
    with pytest.raises(InvalidQuery, match="no series of"):
        query.merge("difference", query.select(statistic="max")).plan()
    assert query.accept_flags(1, 2).compute()["value"].values.tolist() == [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]]


def test_coordinates_are_converted_from_the_unit_that_they_say() -> None:
    """A kilometre is 1000 m, also under a layer; CF's degrees are degrees."""
    in_km = {
        "x": ("station", [0.0, 1.0, 0.0], {"units": "km"}), "y": ("station", [0.0, 0.0, 1.0], {"units": "km"}),
        "elevation": ("station", [0.5, 1.5, 2.5], {"units": "km"}),
    }  # fmt: skip
    assert hg.base(array_of(in_km)).token == hg.base(array_of()).token
    row = {"y": ("y", [0.0, 1.0], {"units": "km"}), "x": ("x", [0.0, 1.0], {"units": "km"})}
    layer = xr.DataArray(np.eye(2), row, ("y", "x"), attrs={"units": "m"})
    plain = xr.DataArray(np.eye(2), {"y": [0.0, 1000.0], "x": [0.0, 1000.0]}, ("y", "x"), attrs={"units": "m"})
    tokens = {hg.base(array_of(), layers={"elevation": field}).token for field in (layer, plain)}
    assert len(tokens) == 1
    lonlat = {"lon": ("station", [7.0, 7.1, 7.2], {"units": "degrees_east"}),
              "lat": ("station", [45.0, 45.1, 45.2], {"units": "degrees_north"})}  # fmt: skip
    assert hg.base(array_of(lonlat)).compute()["lon"].values.tolist() == [7.0, 7.1, 7.2]


@pytest.mark.parametrize(
    ("name", "unit"), [("x", "s"), ("elevation", "m a.s.l."), ("y", "degC")]
)  # fmt: skip
def test_a_coordinate_in_a_strange_unit_is_refused(name: str, unit: str) -> None:
    """The message names the coordinate and what it should be in."""
    with pytest.raises(InvalidUnit, match=f"coordinate '{name}' needs values in 'm'"):
        hg.base(array_of({name: ("station", [0.0, 1.0, 2.0], {"units": unit})}))


def test_times_of_a_zone_are_turned_to_utc() -> None:
    """Two o'clock in summer in Zurich is midnight in UTC, however it is kept."""
    local = pd.DatetimeIndex(TIMES).tz_localize("UTC").tz_convert("Europe/Zurich")
    for times in (local, np.array(list(local), dtype=object)):
        found = hg.base(array_of({"time": ("time", times)})).compute()
        assert found["time"].values.tolist() == TIMES.tolist()


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (
            array_of({"time": np.array(["NaT", "2007-10-01"], "datetime64[ns]")}),
            "are NaT, the first is number 0",
        ),
        (
            array_of({"time": np.array(["2007-10-01", "NaT"], "datetime64[ns]")}),
            "are NaT, the first is number 1",
        ),
        (array_of({"time": [0.0, 1.0]}), "of datetime64; got float64"),
        (array_of({"time": np.array(["soon", "later"], dtype=object)}), "of datetime64; got object"),
        (array_of({"station": ["a", "b", "a"]}), "each station once; 'a' comes more than once"),
        (array_of().isel(station=slice(0, 0)), "at least one station; the array has none"),
    ],
)
def test_what_is_no_base_is_refused_at_once(array: xr.DataArray, message: str) -> None:
    """No answer is made of readings whose time or station nobody knows."""
    with pytest.raises(InvalidQuery, match=message):
        hg.base(array)
