"""A result's variables are named after its quantity; the names of before are answered with a warning."""

import io
import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import hypergrid as hg
from hypergrid.core.errors import InvalidQuery
from hypergrid.core.result_dataset import ResultDataset, restore
from hypergrid.core.result_names import by_role, find_names, index_series, index_stations, make_name, value_of
from hypergrid.formats.results import to_bytes, write
from hypergrid.query import Query

GRID = hg.grid(lon=(7.0, 7.02), lat=(45.0, 45.02), step=0.005)
MODEL = hg.variogram("exponential", psill=1.0, range_m=1000.0)


def readings(name: str | None = "air_temperature", unit: str = "degC") -> Query:
    coords: dict[str, Any] = {"time": pd.date_range("2007-10-01", periods=12, freq="10min")}
    coords |= {"lon": ("station", [7.0, 7.01, 7.02]), "lat": ("station", [45.0, 45.01, 45.0])}
    values = np.random.default_rng(3).uniform(2, 8, (12, 3))
    return hg.base(xr.DataArray(values, coords, ("time", "station"), name, {"units": unit}))


@pytest.fixture(scope="module")
def surface() -> xr.Dataset:
    hourly = readings().aggregate("mean", time="1h")
    return hourly.interpolate("ordinary_kriging", grid=GRID, variogram=MODEL).with_variance().compute()


OWN = [
    (readings, "air_temperature"),
    (lambda: readings(None), "value"),
    (lambda: readings("my gauge/3"), "my_gauge_3"),
    # Taken by a dimension and by a coordinate of each result.
    (lambda: readings("station"), "station_value"),
    (lambda: readings("elevation", "m"), "elevation_value"),
    (lambda: readings().convert("valid_range", low=0.0, high=50.0).aggregate("mean", time="1h"), "air_temperature"),
    (lambda: readings().aggregate("sum", time="1h"), "sum_of_air_temperature"),
    (lambda: readings().aggregate("variance", time="1h").aggregate("mean", time="all"), "variance_of_air_temperature"),
    (
        lambda: readings().merge("difference", readings("surface_temperature")),
        "air_temperature_less_surface_temperature",
    ),
    (lambda: readings("relative_humidity", "%").merge("dew_point", readings()), "dew_point"),
]


@pytest.mark.parametrize(("make", "name"), OWN, ids=[name for _, name in OWN])
def test_values_are_named_after_their_quantity(make: Callable[[], Query], name: str) -> None:
    result = make().compute()
    assert list(result.data_vars)[:2] == [name, f"{name}_count"]
    assert find_names(result) == {"value": name, "count": f"{name}_count"} | (
        {"count_possible": f"{name}_count_possible"} if len(result.data_vars) > 2 else {}
    )


def test_what_is_about_the_values_is_linked_to_them(surface: xr.Dataset) -> None:
    about = surface["air_temperature"].attrs["ancillary_variables"].split()
    assert set(about) == set(surface.data_vars) - {"air_temperature"}
    assert {"air_temperature_variance", "air_temperature_count"} <= set(about)


CHANGES: dict[str, Callable[[xr.Dataset], Any]] = {
    "as it is": lambda result: result,
    "selected": lambda result: result.isel(time=slice(0, 1)).sel(lat=45.01, method="nearest"),
    "averaged": lambda result: result.mean("time"),
    "pickled": lambda result: pickle.loads(pickle.dumps(result)),
    "copied": lambda result: result.copy(deep=True),
    "masked": lambda result: result.where(result["lat"] > 45.005),
    "in a row": lambda result: xr.concat([result, result], "time"),
}


@pytest.mark.parametrize("change", CHANGES)
def test_names_of_before_are_answered_with_a_warning(surface: xr.Dataset, change: str) -> None:
    result = CHANGES[change](surface)
    for old, new in {"value": "air_temperature", "variance": "air_temperature_variance"}.items():
        for ask in (lambda name: result[name], lambda name: getattr(result, name), lambda name: result[[name]]):
            with pytest.warns(DeprecationWarning, match=f"'{old}' of a result is now '{new}'") as told:
                found = ask(old)
            assert told[0].filename == __file__
            assert found.equals(result[[new]] if isinstance(found, xr.Dataset) else result[new])
    with pytest.warns(DeprecationWarning, match="air_temperature_count"):
        assert "count" in result
    assert "nothing" not in result
    with pytest.raises(KeyError, match="nothing"):
        result["nothing"]


@pytest.mark.filterwarnings("ignore:the variable:DeprecationWarning")
def test_names_of_before_change_what_they_name(surface: xr.Dataset) -> None:
    doubled = surface.assign(value=2 * surface["air_temperature"])
    assert set(doubled.data_vars) == set(surface.data_vars)
    assert doubled["air_temperature"].equals(2 * surface["air_temperature"])
    own = surface.copy()
    own["value"] = doubled["air_temperature"]
    assert own["air_temperature"].equals(doubled["air_temperature"])
    del own["count"]
    assert "air_temperature_count" not in own.variables
    assert set(surface.rename(value="t").data_vars) == {*surface.data_vars, "t"} - {"air_temperature"}
    left = surface.drop_vars(["count", "variance"])
    assert "air_temperature_count" not in left.variables
    assert find_names(left)["value"] == "air_temperature"


def test_a_table_of_a_result_has_a_row_a_cell(surface: xr.Dataset) -> None:
    table = surface.to_dataframe()
    assert len(table) == surface["air_temperature"].size
    assert not [name for name in table if "bounds" in str(name)]
    assert "time_bounds" in surface.coords


def test_a_station_is_selected_by_its_name() -> None:
    hourly = readings().aggregate("mean", time="1h").compute()
    assert hourly["air_temperature"].dims == ("time", "station")
    assert hourly.sel(station="1").equals(hourly.isel(station=1))
    daily = hg.base(hourly["air_temperature"]).aggregate("mean", time="1day").compute()
    assert daily["station"].values.tolist() == hourly["station"].values.tolist()
    assert index_stations(index_series(hourly)).identical(hourly)


def test_results_of_before_are_results(surface: xr.Dataset) -> None:
    before = by_role(surface)
    assert {"value", "variance", "count"} <= set(before.data_vars)
    assert find_names(before).keys() == find_names(surface).keys()
    assert isinstance(restore(before), ResultDataset)
    assert restore(before).identical(surface)
    assert hg.plot(before).axes[0].get_title(loc="left") == hg.plot(surface).axes[0].get_title(loc="left")


@pytest.mark.parametrize("name", [None, "air_temperature", "station", "series"])
def test_a_result_comes_back_from_its_file(name: str | None, tmp_path: Path) -> None:
    result = readings(name).aggregate("mean", time="1h").compute()
    write(result, tmp_path / "x.nc")
    with xr.open_dataset(tmp_path / "x.nc", engine="h5netcdf") as opened:
        again = restore(opened.load())
        write(opened, tmp_path / "again.csv")
    assert list(again.data_vars) == list(result.data_vars)
    np.testing.assert_array_equal(value_of(again), value_of(result))
    write(result, tmp_path / "x.csv")
    assert (tmp_path / "again.csv").read_text().splitlines()[0] == (tmp_path / "x.csv").read_text().splitlines()[0]


def test_a_result_whose_values_were_renamed_is_written(surface: xr.Dataset, tmp_path: Path) -> None:
    write(surface.rename(air_temperature="t2m"), tmp_path / "x.csv")
    assert (tmp_path / "x.csv").read_text().splitlines()[0].split(",")[:4] == ["time", "lat", "lon", "value"]
    with pytest.raises(InvalidQuery, match="result of a query is needed.*got the variables a, b"):
        write(xr.Dataset({"a": 1.0, "b": 2.0}), tmp_path / "y.csv")


def test_results_of_before_are_written_under_the_names_of_today(surface: xr.Dataset) -> None:
    before = by_role(xr.Dataset(surface.data_vars, surface.coords, surface.attrs))
    with xr.open_dataset(io.BytesIO(to_bytes(before, "netcdf")), engine="h5netcdf") as written:
        assert set(written.data_vars) == {*surface.data_vars, "air_temperature_standard_error", "crs"}
    # Without its query nothing tells the quantity.
    before.attrs.pop("hypergrid_query")
    with xr.open_dataset(io.BytesIO(to_bytes(before, "netcdf")), engine="h5netcdf") as written:
        assert find_names(written)["standard_error"] == "value_standard_error"
        assert restore(written)["value_count"].equals(before["count"])


def test_values_without_a_name_come_back_from_a_file() -> None:
    unnamed = readings(None).compute()
    with xr.open_dataset(io.BytesIO(to_bytes(unnamed, "netcdf")), engine="h5netcdf") as written:
        assert set(restore(written.load()).data_vars) == set(unnamed.data_vars)


def test_anything_else_is_no_result() -> None:
    two = xr.Dataset({"a": 1.0, "b": 2.0})
    assert find_names(two) == {}
    assert restore(two) is two
    assert by_role(two).identical(two)


@pytest.mark.parametrize(
    ("words", "name"),
    [("pm2.5", "pm2.5"), ("a b  c", "a_b_c"), ("/x", "_x"), (".", "value"), ("Größe", "Größe"), ("", "value")],
)
def test_names_are_those_that_files_allow(words: str, name: str) -> None:
    assert make_name(words) == name
    assert make_name(words, {name}) == f"{name}_value"
