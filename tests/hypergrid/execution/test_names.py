"""What a result says that its numbers are: names, methods of CF alone, parameters, and what is normal."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import hypergrid as hg
from hypergrid.core.errors import InvalidUnit
from hypergrid.execution.results.dataset import _describe_period
from hypergrid.formats.results import write
from hypergrid.plots import plot
from hypergrid.query import Query

CF_METHODS = {
    "point", "sum", "maximum", "maximum_absolute_value", "median", "mid_range", "minimum", "minimum_absolute_value",
    "mean", "mean_absolute_value", "mean_of_upper_decile", "mode", "range", "root_mean_square", "standard_deviation",
    "sum_of_squares", "variance",
}  # fmt: skip
"""CF 1.11, appendix E."""


def hourly(name: str = "air_temperature", unit: str = "degC", days: int = 3) -> Query:
    values = np.random.default_rng(1).uniform(2, 40, (24 * days, 3))
    coords: dict[str, Any] = {"time": pd.date_range("2007-10-01", periods=len(values), freq="1h")}
    coords |= {axis: ("station", at) for axis, at in (("x", [0.0, 90.0, 40.0]), ("y", [0.0, 20.0, 80.0]))}
    return hg.base(xr.DataArray(values, coords, ("time", "station"), name, {"units": unit}))


def told(query: Query) -> dict[str, Any]:
    return dict(query.compute()["value"].attrs)


@pytest.mark.parametrize(
    ("function", "given", "long_name", "parameters"),
    [
        ("exceedance", {"threshold": 30}, "share of Air temperature above 30 degC", {"threshold": "30 degC"}),
        (
            "exceedance",
            {"threshold": "50 degF", "side": "below"},
            "share of Air temperature below 10 degC",
            {"threshold": "10 degC", "side": "below"},
        ),
        (
            "degree_days",
            {"base": 5, "upper": 30},
            "degree days of Air temperature above 5 degC",
            {"base": "5 degC", "upper": "30 degC"},
        ),
        ("quantile", {"q": 0.9}, "0.9 quantile of Air temperature", {"q": 0.9}),
        ("trend", {"per": "decade"}, "trend of Air temperature per decade", {"per": "decade"}),
        ("count", {}, "number of values of Air temperature", {}),
        ("variance", {}, "variance of Air temperature", {}),
        ("standard_deviation", {}, "standard deviation of Air temperature", {}),
        ("sum", {}, "sum of Air temperature", {}),
    ],
)
def test_an_aggregate_names_what_it_makes_and_by_what(
    function: str, given: dict[str, Any], long_name: str, parameters: dict[str, Any]
) -> None:
    means = hourly().aggregate("mean", time="2h")
    attributes = told(means.aggregate(function, time="1day", **given))
    assert attributes["long_name"] == long_name
    assert "standard_name" not in attributes
    assert {name: attributes[f"{function}_{name}"] for name in parameters} == parameters


def test_a_sum_of_temperatures_is_no_temperature() -> None:
    daily = hourly().aggregate("sum", time="1day", min_coverage=0)
    assert told(daily)["units"] == "K"
    assert told(daily.aggregate("mean", time="all"))["long_name"] == "sum of Air temperature"
    kelvin = hourly(unit="K").aggregate("sum", time="1day", min_coverage=0)
    assert (told(kelvin)["units"], told(kelvin)["cell_methods"]) == ("K", "time: sum (comment: cells of 1day)")
    with pytest.raises(InvalidUnit, match="a difference of temperatures is not a temperature"):
        daily.merge("difference", hourly().aggregate("mean", time="1day")).compute()


def test_the_axis_of_a_picture_says_so() -> None:
    figure = plot(hourly().aggregate("exceedance", time="1day", threshold=30).compute(), kind="lines")
    assert figure.axes[0].get_ylabel() == "share of Air temperature above 30 degC [1]"


@pytest.mark.parametrize("function", ["mean", "min", "max", "median", "first"])
def test_what_is_still_a_temperature_is_named_so(function: str) -> None:
    attributes = told(hourly().aggregate(function, time="1day"))
    assert (attributes["long_name"], attributes["standard_name"]) == ("Air temperature", "air_temperature")


def test_names_go_on_through_later_steps() -> None:
    hot = hourly().aggregate("exceedance", time="1day", threshold=30).aggregate("mean", time="all")
    assert told(hot)["long_name"] == "share of Air temperature above 30 degC"
    assert told(hot.merge("difference", hot))["long_name"].startswith("share of Air temperature above 30 degC less")


@pytest.mark.parametrize(
    ("function", "given"),
    [
        (name, {"q": 0.5} if name == "quantile" else {"threshold": 3} if name == "exceedance" else {})
        for name in ("mean", "sum", "count", "min", "max", "first", "last", "sample", "median", "variance", "quantile")
        + ("standard_deviation", "exceedance", "trend")
    ],
)
def test_cell_methods_are_those_of_cf_alone(function: str, given: dict[str, Any]) -> None:
    attributes = told(hourly().aggregate(function, time="1day", **given))
    said = attributes.get("cell_methods", "").split(" (comment")[0].removeprefix("time: ")
    if function in ("quantile", "trend"):
        assert said == ""
        assert attributes["comment"].startswith(f"{function}(")
        assert attributes["comment"].endswith("over time (cells of 1day)")
    else:
        assert said in CF_METHODS


@pytest.fixture
def own() -> Iterator[None]:
    @hg.aggregate_function("daily_range")
    def daily_range(values: Any) -> float:  # noqa: ANN401
        """Greatest less least."""
        return float(np.ptp(values))

    @hg.aggregate_function("named_range", long_name="Range {of} all", standard_name="air_temperature_range")
    def named_range(values: Any) -> float:  # noqa: ANN401
        """Greatest less least."""
        return float(np.ptp(values))

    yield
    hg.forget_function("daily_range")
    hg.forget_function("named_range")


@pytest.mark.usefixtures("own")
def test_an_own_aggregate_is_named_by_its_author_or_its_name() -> None:
    plain = told(hourly().aggregate("daily_range", time="1day"))
    assert plain["long_name"] == "daily range of Air temperature"
    assert plain["comment"] == "daily_range over time (cells of 1day)"
    assert {"standard_name", "cell_methods"}.isdisjoint(plain)
    named = told(hourly().aggregate("named_range", time="1day"))
    assert (named["long_name"], named["standard_name"]) == ("Range {of} all", "air_temperature_range")


def test_an_anomaly_says_what_it_is_compared_with() -> None:
    normal = hourly().aggregate("mean", time="hour_of_day").clip(time=("2007-10-01", "2007-10-03"))
    attributes = told(hourly().merge("anomaly", normal))
    assert attributes["reference"] == (
        "Air temperature: mean over time (by hour_of_day (UTC)); 2007-10-01T00:00Z to 2007-10-03T00:00Z"
    )
    day = hourly().aggregate("mean", time="6h").merge("difference", hourly().aggregate("mean", time="all"))
    whole = told(day.clip(time=("2007-10-02", "2007-10-03")))
    assert whole["reference"].endswith("; 2007-10-01T00:00Z to 2007-10-03T23:00Z")
    assert "reference" not in told(hourly().merge("difference", hourly()))


def test_coordinates_of_stations_say_what_they_are(tmp_path: Path) -> None:
    write(hourly().aggregate("mean", time="1day").compute(), tmp_path / "a.nc")
    with xr.open_dataset(tmp_path / "a.nc") as found:
        for name in ("station", "height_m", "statistic", "interval_s", "replicate", "source", "elevation"):
            assert found[name].attrs["long_name"]
        assert {name: found[name].attrs["units"] for name in ("height_m", "interval_s", "replicate", "elevation")} == {
            "height_m": "m", "interval_s": "s", "replicate": "1", "elevation": "m"
        }  # fmt: skip
        assert found["height_m"].attrs["standard_name"] == "height"
        assert found["station"].attrs["cf_role"] == "timeseries_id"
        assert found["interval_s"].dtype == float


@pytest.mark.parametrize(
    ("start", "stop", "words"),
    [
        ("2007-10-04", "2007-10-05", "2007-10-04"),
        ("2007-10-01", "2007-10-05", "2007-10-01 to 2007-10-04"),
        ("2007-10-01T06:00", "2007-10-02", "2007-10-01T06:00Z to 2007-10-02T00:00Z"),
        ("2007-10-01", "2007-10-01T06:00", "2007-10-01T00:00Z to 2007-10-01T06:00Z"),
    ],
)
def test_whole_days_are_named_by_the_first_and_the_last(start: str, stop: str, words: str) -> None:
    edges = (int(np.datetime64(edge, "ns").astype(np.int64)) for edge in (start, stop))
    assert _describe_period(*edges) == words
