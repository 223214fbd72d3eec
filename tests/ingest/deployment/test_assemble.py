"""Rows to readings: units, flags, series, arrivals."""

import tomllib
from pathlib import Path

import numpy as np
import pytest

from hypergrid.core.errors import InvalidDeployment
from hypergrid.core.flags import MISSING, NOT_EVALUATED
from ingest.deployment.arrival_table import read_arrivals
from ingest.deployment.deployment_file import Deployment, from_mapping
from ingest.deployment.to_readings import (
    ParsedRows,
    all_series,
    assemble_readings,
    natural_sort_key,
    series_of,
    stations_of,
)

TEXT = """
[network]
name = "pass"
[[feed]]
name = "logger"
files = "*.csv"
format = "csv"
interval_s = 600
[feed.columns]
high = {variable = "air_temperature", unit = "degF", height_m = 10}
low = {variable = "air_temperature", unit = "K", height_m = 2}
[[station]]
id = "10"
[[station]]
id = "9"
"""


@pytest.fixture
def deployment() -> Deployment:
    return from_mapping(tomllib.loads(TEXT))


def rows_of(deployment: Deployment) -> ParsedRows:
    values = {"high": np.array([32.0, np.nan, 212.0]), "low": np.array([273.15, 283.15, np.nan])}
    times = np.array([5, 6, 7], np.int64)
    columns = {column.name: column for column in deployment.feeds[0].columns}
    return ParsedRows(
        deployment.feeds[0], columns, ("9", "10"), np.array([0, 1, 0], np.int32), times, times + 100, values
    )


def test_values_are_converted_and_missing_ones_keep_their_time(deployment: Deployment) -> None:
    rows, feed = rows_of(deployment), deployment.feeds[0]
    present = {(feed, column, station) for column in feed.columns for station in rows.stations}
    series = all_series(present, deployment)["air_temperature"]
    # the deployment's order of stations, then the columns'
    assert [(one.station, one.height_m) for one in series] == [("10", 10), ("10", 2), ("9", 10), ("9", 2)]
    assert series[0] == series_of(feed.name, feed.columns[0], "10")
    readings = assemble_readings([rows], deployment.variable("air_temperature"), series, deployment)
    np.testing.assert_allclose(readings.value, [0, np.nan, 100, 0, 10, np.nan], atol=1e-9)
    assert readings.flag.tolist() == [NOT_EVALUATED, MISSING, NOT_EVALUATED, NOT_EVALUATED, NOT_EVALUATED, MISSING]
    assert readings.index.tolist() == [2, 0, 2, 3, 1, 3]
    assert readings.time_ns.tolist() == [5, 6, 7, 5, 6, 7]
    assert readings.arrival_ns.tolist() == [105, 106, 107, 105, 106, 107]


def test_stations_nobody_declared_have_no_position(deployment: Deployment) -> None:
    stations = stations_of(["9", "b10", "b9", "old"], deployment, known=["old"])
    assert [station.id for station in stations] == ["10", "9", "b9", "b10"]
    assert np.isnan(stations[-1].position.lon)


def test_numbers_in_names_are_ordered_as_numbers() -> None:
    assert sorted(["10", "a10", "9", "a2", ""], key=natural_sort_key) == ["", "a2", "a10", "9", "10"]


def test_arrivals_are_found_by_station_and_time(tmp_path: Path) -> None:
    path = tmp_path / "arrivals.csv"
    path.write_text(
        "station,time,arrival\n2,1190246520,1190246530.125\n1,1190246400,1190246401.001\n2,1190246400,5e9\n"
    )
    arrivals = read_arrivals(path)
    times = np.array([1190246400, 1190246520, 1190246400, 1190246401], np.int64) * 10**9
    found = arrivals.arrival_times(("2", "1", "x"), np.array([0, 0, 1, 2], np.int32), times, otherwise_ns=-1)
    assert found.tolist() == [5 * 10**18, 1190246530125 * 10**6, 1190246401001 * 10**6, -1]


@pytest.mark.parametrize("text", ["station,time\n1,2\n", "station,time,arrival\n1,now,3\n", ""])
def test_a_table_of_arrivals_that_is_none(tmp_path: Path, text: str) -> None:
    path = tmp_path / "arrivals.csv"
    path.write_text(text)
    with pytest.raises(InvalidDeployment, match=r"arrivals\.csv needs the columns station, time, arrival"):
        read_arrivals(path)
