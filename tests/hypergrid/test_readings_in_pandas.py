"""Readings and results as tables and pictures: `to_pandas`, `head`, `to_xarray` and `plot` of a variable."""

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from matplotlib import pyplot
from matplotlib.collections import QuadMesh

import hypergrid as hg
from hypergrid.core.errors import HyperGridError, InvalidQuery, NotFound, TooLarge
from hypergrid.core.flags import ACCEPTED_BY_DEFAULT
from hypergrid.query import OpenArchive
from tests.support.chains import network
from tests.support.named_network import TOWNS, named_archive


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> OpenArchive:
    return named_archive(tmp_path_factory.mktemp("named") / "archive")


def test_readings_of_a_variable_are_a_table(archive: OpenArchive) -> None:
    table = archive["air_temperature"].to_pandas()
    stored = archive.store.read("air_temperature")
    accepted = np.isin(stored.flag, ACCEPTED_BY_DEFAULT)
    assert list(table.columns) == ["station", "time", "value", "flag", "lon", "lat", "elevation"]
    assert len(table) == accepted.sum() < len(stored)
    assert np.sort(table["value"]).tolist() == np.sort(stored.value[accepted]).tolist()
    assert table["time"].is_monotonic_increasing
    assert str(table["time"].dtype) == "datetime64[ns, UTC]"
    assert table.attrs == {"variable": "air_temperature", "unit": "degC"}
    of_first = table[table["station"] == "s1"]
    assert of_first[["lon", "lat", "elevation"]].drop_duplicates().to_numpy().tolist() == [list(TOWNS["s1"][1:])]


def test_flags_selections_and_time_ranges_hold_for_the_table(archive: OpenArchive) -> None:
    query = archive["air_temperature"]
    whole = query.to_pandas()
    hours = query.clip(time=slice("2007-10-01T06:00", "2007-10-01T12:00")).select(station=["s2", "s3"]).to_pandas()
    expected = whole[
        whole["station"].isin(["s2", "s3"])
        & whole["time"].between(pd.Timestamp("2007-10-01T06:00Z"), pd.Timestamp("2007-10-01T11:59:59Z"))
    ]
    assert hours["value"].tolist() == expected["value"].tolist()
    assert 3 in query.accept_flags(1, 2, 3).to_pandas()["flag"].unique()
    with pytest.raises(NotFound, match="unknown dimension of this surface to clip 'lon'"):
        query.clip(lon=(7, 8)).to_pandas()


def test_the_first_rows_are_those_of_the_table_and_little_is_read(archive: OpenArchive) -> None:
    query = archive["air_temperature"]
    for count in (1, 5, 300):
        pd.testing.assert_frame_equal(query.head(count), query.to_pandas().head(count))
    assert len(query.head(10**6)) == len(query.to_pandas())
    assert len(query.head()) == 5
    for wrong in (0, -1, "3"):
        with pytest.raises(InvalidQuery, match="head needs a whole number"):
            query.head(wrong)  # type: ignore[arg-type]


def test_a_table_above_its_budget_is_refused_with_both_numbers(archive: OpenArchive) -> None:
    query = archive["air_temperature"]
    with pytest.raises(TooLarge, match=r"air_temperature projects [\d,]+ bytes, above the 1,000 allowed; ask for less"):
        query.to_pandas(allowed_bytes=1000)
    # What is not asked for does not count.
    hour = query.clip(time=("2007-10-01T06:00", "2007-10-01T06:30"))
    assert len(hour.to_pandas(allowed_bytes=10_000)) > 0
    with pytest.raises(TooLarge):
        query.aggregate("mean", time="1h").to_pandas(allowed_bytes=1000)


def test_a_result_is_a_table_with_a_row_per_cell(archive: OpenArchive) -> None:
    hourly = archive["air_temperature"].aggregate("mean", time="hourly")
    table, result = hourly.to_pandas(), hourly.compute()
    assert list(table.columns[:5]) == ["station", "time", "value", "count", "count_possible"]
    assert not {"statistic", "replicate", "source", "series"} & set(table.columns)
    pivot = table.pivot_table(index="time", columns="station", values="value", dropna=False)
    np.testing.assert_array_equal(pivot.to_numpy(), result["value"].to_numpy())
    grid = hg.grid(lon=(7.0, 7.2), lat=(46.0, 46.2), step=0.1)
    cells = hourly.interpolate("nearest", grid=grid).head(4)
    assert list(cells.columns[:4]) == ["time", "lat", "lon", "value"]
    assert hourly.to_xarray().identical(hourly.compute())


def test_readings_of_an_array_are_a_table_that_makes_it_again() -> None:
    query = network()
    table = query.to_pandas()
    assert list(table.columns) == ["station", "time", "value", "x", "y", "elevation"]
    assert len(table) == np.isfinite(query.compute()["value"]).sum()
    again = hg.base(table, variable="air_temperature").aggregate("mean", time="1h").compute()
    expected = query.aggregate("mean", time="1h").compute()
    np.testing.assert_array_equal(again.sortby("station")["value"], expected.sortby("station")["value"])
    pd.testing.assert_frame_equal(query.head(7), table.head(7))


def test_series_that_differ_are_told_apart(tmp_path: Path) -> None:
    opened = named_archive(tmp_path / "archive", heights_m=(2.0, 10.0))
    table = opened["air_temperature"].to_pandas()
    assert sorted(table["height_m"].unique()) == [2.0, 10.0]
    assert len(table["station"].cat.categories) == len(TOWNS)


def test_a_variable_draws_itself_with_its_stations(archive: OpenArchive) -> None:
    lines = archive["air_temperature"].plot()
    assert [line.get_label() for line in lines.axes[0].get_lines()] == [f"station {name}" for name in TOWNS]
    grid = hg.grid(lon=(6.9, 7.3), lat=(45.9, 46.3), step=0.05)
    maps = archive["air_temperature"].aggregate("mean", time="1h").interpolate("inverse_distance", grid=grid)
    axes = maps.plot(time="2007-10-01T03:30", cmap="cividis").axes[0]
    assert [text.get_text() for text in axes.texts] == list(TOWNS)
    assert "2007-10-01 03:00" in axes.get_title(loc="left")
    (mesh,) = [item for item in axes.collections if isinstance(item, QuadMesh)]
    assert mesh.get_cmap().name == "cividis"
    figure, given = pyplot.subplots()
    assert maps.plot(ax=given, stations=()) is given
    assert not given.texts
    pyplot.close(figure)


def test_a_query_that_fails_fails_in_words(archive: OpenArchive) -> None:
    with pytest.raises(HyperGridError, match="no reading of 'air_temperature' lies in 1999"):
        archive["air_temperature"].clip(time=("1999", "2000")).to_pandas()
