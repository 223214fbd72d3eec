"""Series of stations from NetCDF files after the CF conventions."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr

from hypergrid.core.errors import InvalidQuery, NotFound
from hypergrid.formats.cf_timeseries import read_timeseries


def written(folder: Path, **changes: Any) -> Path:  # noqa: ANN401 - variables of a dataset, None to leave one out
    """Write four stations and three times, stations first; D has no value, C lies far away."""
    values = np.arange(12.0).reshape(4, 3)
    values[3] = np.nan
    fixed = np.ones((3, 1))
    data: dict[str, Any] = {
        "ta": (("station", "time"), values, {"units": "degrees Celsius", "standard_name": "air_temperature"}),
        "lat": (("time", "station"), fixed * [52.0, 52.5, 12.0, 52.1], {"standard_name": "latitude"}),
        "lon": (("time", "station"), fixed * [5.0, 5.5, -68.0, 5.1], {"standard_name": "longitude"}),
        "height": (("time", "station"), fixed * [1.0, 20.0, 7.0, np.nan], {"standard_name": "height"}),
        "note": (("time",), np.zeros(3)),
        **changes,
    }
    coords = {"time": pd.date_range("2022-12-31", periods=3, freq="10min"), "station": ["A", "B", "C", "D"]}
    path = folder / "series.nc"
    xr.Dataset({name: item for name, item in data.items() if item is not None}, coords).to_netcdf(
        path, engine="h5netcdf"
    )
    return path


def test_a_series_has_its_unit_its_places_and_its_known_name(tmp_path: Path) -> None:
    found = read_timeseries(written(tmp_path), "ta")
    assert (found.name, found.attrs["units"], found.dims) == ("air_temperature", "degC", ("time", "station"))
    assert found["station"].values.tolist() == ["A", "B", "C"]
    np.testing.assert_array_equal(found.to_numpy(), np.arange(9.0).reshape(3, 3).T)
    np.testing.assert_array_equal(found["lon"], [5.0, 5.5, -68.0])
    np.testing.assert_array_equal(found["elevation"], [1.0, 20.0, 7.0])


def test_stations_are_chosen_by_a_box_and_by_name(tmp_path: Path) -> None:
    path = written(tmp_path)
    box = (3.0, 50.0, 8.0, 54.0)
    assert read_timeseries(path, "ta", within=box)["station"].values.tolist() == ["A", "B"]
    assert read_timeseries(path, "ta", within=box, without=["A"])["station"].values.tolist() == ["B"]
    with pytest.raises(InvalidQuery, match="no station in the box"):
        read_timeseries(path, "ta", within=(0.0, 0.0, 1.0, 1.0))
    with pytest.raises(NotFound, match="station of series.nc"):
        read_timeseries(path, "ta", without=["Z"])


def test_positions_without_time_and_without_elevation_will_do(tmp_path: Path) -> None:
    places = {"lat": (("station",), [52.0, 52.5, 12.0, 52.1]), "lon": (("station",), [5.0, 5.5, -68.0, 5.1])}
    found = read_timeseries(written(tmp_path, **places, height=None), "ta")
    np.testing.assert_array_equal(found["lat"], [52.0, 52.5, 12.0])
    assert np.isnan(found["elevation"]).all()


def test_what_cannot_be_read_is_refused_with_what_there_is(tmp_path: Path) -> None:
    path = written(tmp_path)
    with pytest.raises(NotFound, match="ta"):
        read_timeseries(path, "tb")
    with pytest.raises(NotFound, match=r"none\.nc"):
        read_timeseries(tmp_path / "none.nc", "ta")
    text = tmp_path / "text.nc"
    text.write_text("no NetCDF")
    with pytest.raises(InvalidQuery, match="cannot be read as NetCDF 4"):
        read_timeseries(text, "ta")
    with pytest.raises(InvalidQuery, match="longitude"):
        read_timeseries(written(tmp_path, lon=None), "ta")


def test_a_station_that_moves_is_refused(tmp_path: Path) -> None:
    moving = np.ones((3, 4)) * [5.0, 5.5, -68.0, 5.1]
    moving[2, 0] = 5.2
    with pytest.raises(InvalidQuery, match=r"moves by 0\.2 degree in lon"):
        read_timeseries(written(tmp_path, lon=(("time", "station"), moving, {"standard_name": "longitude"})), "ta")


def test_a_box_in_another_order_is_refused(tmp_path: Path) -> None:
    for box in ((7.3, 50.7, 3.4, 53.45), (3.4, 53.45, 7.3, 50.7)):
        with pytest.raises(InvalidQuery, match="west below east and south below north"):
            read_timeseries(written(tmp_path), "ta", within=box)
