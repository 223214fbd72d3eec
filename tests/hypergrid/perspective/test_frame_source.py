"""A table of readings is the same base as the array of its values, and is refused in words where it is none."""

from collections.abc import Callable

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import hypergrid as hg
from hypergrid.core.errors import HyperGridError, InvalidQuery, InvalidUnit, TooLarge
from hypergrid.perspective.sources import frame_source

TIMES = pd.date_range("2024-06-01", periods=48, freq="30min")
LON = [7.00, 7.01, 7.02, 7.03]
LAT = [46.00, 46.01, 46.00, 46.01]


def array() -> xr.DataArray:
    values = np.arange(48.0)[:, None] + np.arange(4.0)
    values[3, 2] = np.nan
    coords = {"time": TIMES, "station": list("dbca"), "lon": ("station", LON), "lat": ("station", LAT)}
    return xr.DataArray(values, coords, ("time", "station"), "air_temperature", {"units": "degF"})


def table() -> pd.DataFrame:
    """Return the readings in the order of stations, without a row for the missing one."""
    rows = array().rename("value").drop_attrs().transpose("station", "time").to_dataframe().reset_index()
    return rows.dropna(subset=["value"]).reset_index(drop=True)


def test_a_table_is_the_array_of_its_values() -> None:
    expected = hg.base(array())
    query = hg.base(table(), variable="air_temperature", unit="degF")
    assert query.token == expected.token
    assert query.compute().drop_attrs().equals(expected.compute().drop_attrs())
    assert query.compute()["value"].attrs["units"] == "degF"


def test_names_of_an_index_are_columns_and_the_order_of_rows_changes_nothing() -> None:
    whole = hg.base(table()).token
    assert hg.base(table().set_index("time")).token == whole
    assert hg.base(table().set_index(["station", "time"])).token == whole
    assert hg.base(table().set_index("time").rename_axis(None)).token == whole
    shuffled = table().sort_values("time", ascending=False, kind="stable")
    assert hg.base(shuffled).token == whole


def test_metres_elevations_zones_and_whole_numbers_are_taken() -> None:
    rows = table().rename(columns={"lon": "x", "lat": "y"}).assign(elevation=400, station=7)
    rows = rows[rows["x"] == LON[0]].assign(value=lambda frame: frame["value"].astype("Int64"))
    rows["time"] = rows["time"].dt.tz_localize("Europe/Zurich")
    result = hg.base(rows).compute()
    assert result["station"].values.tolist() == ["7"]
    assert result["elevation"].values.tolist() == [400.0]
    assert result["time"].values[0] == np.datetime64("2024-05-31T22:00")
    assert {"x", "y"} <= set(result.coords)


def test_a_position_that_some_rows_lack_is_that_of_the_others() -> None:
    rows = table()
    rows.loc[rows.index[::2], "lon"] = np.nan
    assert hg.base(rows).token == hg.base(table()).token
    nowhere = table().assign(lon=np.nan, lat=np.nan)
    assert np.isnan(hg.base(nowhere).compute()["lon"]).all()


def test_an_array_takes_a_name_and_a_unit_too() -> None:
    bare = array().rename(None).drop_attrs()
    assert hg.base(bare, variable="air_temperature", unit="degF").token == hg.base(array()).token
    with pytest.raises(InvalidUnit, match="unit='K' for an array in 'degF'; leave the unit out"):
        hg.base(array(), unit="K")


def sparse() -> pd.DataFrame:
    return pd.DataFrame({"station": ["a", "b"], "time": TIMES[:2], "value": 1.0, "lon": 7.0, "lat": 46.0})


WRONG: dict[str, tuple[Callable[[], object], type[HyperGridError], str]] = {
    "no positions": (lambda: hg.base(table().drop(columns="lon")), InvalidQuery, "without lon and lat, or x and y"),
    "another name": (lambda: hg.base(table().rename(columns={"station": "id"})), InvalidQuery, "without station: it"),
    "no rows": (lambda: hg.base(table().head(0)), InvalidQuery, "at least one row"),
    "text": (lambda: hg.base(table().assign(value="n.a.")), InvalidQuery, "got 'n.a.' in row 0, and 190 more"),
    "instants": (lambda: hg.base(table().assign(value=TIMES[0])), InvalidQuery, "numbers in the column 'value'"),
    "twice": (lambda: hg.base(pd.concat([table(), table().head(2)])), InvalidQuery, "2 rows repeat one, .* row 191"),
    "moved": (lambda: hg.base(table().assign(lon=table()["value"])), InvalidQuery, "lon of station d runs from 0"),
    "text for times": (lambda: hg.base(table().assign(time="noon")), InvalidQuery, "rows repeat one"),
    "text for a time": (lambda: hg.base(sparse().assign(time=["x", "y"])), InvalidQuery, "'time' of datetime64"),
    "no time": (lambda: hg.base(table().assign(time=pd.NaT)), InvalidQuery, "needs a time in every row; 191 of 191"),
    "no station": (lambda: hg.base(table().assign(station=None)), InvalidQuery, "needs a station in every row"),
    "off the globe": (lambda: hg.base(table().assign(lat=95)), InvalidQuery, "lat 95"),
    "a unit": (lambda: hg.base(table(), unit="bananas"), InvalidUnit, "unknown unit 'bananas'"),
    "a number for a unit": (lambda: hg.base(table(), unit=3), InvalidQuery, "needs unit as text; got 3"),  # type: ignore[arg-type]
    "a column": (lambda: hg.base(table()["value"]), InvalidQuery, "needs .* or a pandas.DataFrame with .*; got Series"),
}  # fmt: skip


@pytest.mark.parametrize("name", WRONG)
def test_a_table_that_is_none_is_refused_in_words(name: str) -> None:
    ask, error, words = WRONG[name]
    with pytest.raises(error, match=words):
        ask()


def test_times_that_no_two_stations_share_are_no_array(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(frame_source, "MAX_CELLS", 3)
    with pytest.raises(TooLarge, match="projects 4 cells .* above the 3 allowed; round the times"):
        hg.base(sparse())
