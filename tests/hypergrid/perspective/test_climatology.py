"""Merges with a climatology: each cell takes the cell that comes again in which it lies."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

import hypergrid as hg
from hypergrid.core.errors import InvalidQuery, InvalidUnit
from hypergrid.core.readings import Series
from hypergrid.execution import make_plan, run
from hypergrid.perspective import question_from_json
from hypergrid.query import Query
from tests.support.feeds import Feed, Row, Sensor
from tests.support.oracle import answer

GRID = hg.grid(x=0.0, y=0.0, step=30.0, shape=(3, 4))
ZURICH = "Europe/Zurich"

SPECS: dict[str, tuple[Any, Callable[[pd.DatetimeIndex], Any]]] = {
    # What the climatology's cells are, and by what pandas groups the same instants.
    "hour": ("hour_of_day", lambda times: times.hour),
    "local hour": ({"periodic": "hour_of_day", "zone": ZURICH}, lambda times: times.tz_convert(ZURICH).hour),
    "weekday": ("day_of_week", lambda times: times.dayofweek),
    "month": ("month_of_year", lambda times: times.month),
    "season": ("season_of_year", lambda times: times.month % 12 // 3),
    "shift": ({"periodic": "6h", "within": "1day", "phase": "3h"}, lambda times: (times.hour + 3) // 6 % 4),
    "all": ("all", lambda times: np.zeros(len(times))),
}


def network(start: str = "2007-10-20", days: int = 12, *, name: str = "air_temperature", seed: int = 3) -> xr.DataArray:
    """Return hourly readings of three stations over a change of the clock, with holes."""
    rng = np.random.default_rng(seed)
    values = rng.normal(5.0, 2.0, (24 * days, 3))
    values[rng.random(values.shape) < 0.1] = np.nan
    coords = {
        "time": pd.date_range(start, periods=len(values), freq="1h"),
        "x": ("station", [0.0, 80.0, 110.0]),
        "y": ("station", [10.0, 80.0, 20.0]),
    }
    return xr.DataArray(values, dims=("time", "station"), coords=coords, name=name, attrs={"units": "degC"})


def by_pandas(array: xr.DataArray, spec: str, at: xr.DataArray | None = None) -> Any:  # noqa: ANN401 - an array
    """Return the mean of its group of `array` at each time of `at`: slow and obvious."""
    group = SPECS[spec][1]
    times, asked = (pd.DatetimeIndex(item["time"].to_numpy()).tz_localize("UTC") for item in (array, _or(at, array)))
    means = pd.DataFrame(array.to_numpy()).groupby(np.asarray(group(times))).mean()
    return means.reindex(np.asarray(group(asked))).to_numpy()


def _or(at: xr.DataArray | None, array: xr.DataArray) -> xr.DataArray:
    return array if at is None else at


def values(query: Query, **how: Any) -> Any:  # noqa: ANN401 - an array
    return query.compute(**how)["value"].to_numpy()


@pytest.mark.parametrize("spec", SPECS)
def test_each_cell_takes_the_one_that_it_lies_in(spec: str) -> None:
    array = network()
    base = hg.base(array)
    normal = base.aggregate("mean", time=SPECS[spec][0], min_coverage=0)
    for hourly in (base, base.aggregate("mean", time="1h")):
        expected = array.to_numpy() - by_pandas(array, spec)
        np.testing.assert_allclose(values(hourly.merge("anomaly", normal)), expected, atol=1e-12)
        np.testing.assert_allclose(values(hourly.merge("difference", normal)), expected, atol=1e-12)
    # Of temperatures in degC there is no ratio.
    amount = hg.base(array.assign_attrs(units="mm").rename("water"))
    ratio = amount.merge("ratio", amount.aggregate("mean", time=SPECS[spec][0], min_coverage=0))
    np.testing.assert_allclose(values(ratio), array.to_numpy() / by_pandas(array, spec), rtol=1e-9)


@pytest.mark.parametrize(
    ("fine", "coarse"), [("month", "season"), ("hour", "shift"), ("hour", "all"), ("month", "all")]
)
def test_cells_that_come_again_lie_in_others(fine: str, coarse: str) -> None:
    array = network("2007-09-20", 120)
    base = hg.base(array)
    query = base.aggregate("mean", time=SPECS[fine][0]).merge("anomaly", base.aggregate("mean", time=SPECS[coarse][0]))
    result = query.compute()["value"]
    group = SPECS[fine][1](pd.DatetimeIndex(array["time"].to_numpy()).tz_localize("UTC"))
    both = pd.DataFrame(by_pandas(array, fine) - by_pandas(array, coarse)).groupby(np.asarray(group)).first()
    held = result.sel({result.dims[0]: both.index.to_numpy()}).to_numpy()
    np.testing.assert_allclose(held, both.to_numpy(), atol=1e-12)


@pytest.mark.parametrize("merged_with", ["standardised_anomaly"])
def test_a_standardised_anomaly_is_in_standard_deviations(merged_with: str) -> None:
    array = network()
    base = hg.base(array)
    group = np.asarray(array["time"].dt.hour)
    frame = pd.DataFrame(array.to_numpy())
    mean, spread = (frame.groupby(group).agg(name).reindex(group).to_numpy() for name in ("mean", "std"))
    normal = [base.aggregate(name, time="hour_of_day", min_coverage=0) for name in ("mean", "standard_deviation")]
    result = base.merge(merged_with, *normal).compute()["value"]
    np.testing.assert_allclose(result.to_numpy(), (array.to_numpy() - mean) / spread, atol=1e-9)
    assert result.attrs["units"] == "1"
    assert result.attrs["long_name"] == "standardised anomaly of Air temperature"
    fahrenheit = hg.base(array.copy(data=array.to_numpy() * 1.8 + 32).assign_attrs(units="degF"))
    other = [fahrenheit.aggregate(name, time="hour_of_day", min_coverage=0) for name in ("mean", "standard_deviation")]
    np.testing.assert_allclose(values(base.merge(merged_with, *other)), result.to_numpy(), atol=1e-9)
    with pytest.raises(InvalidUnit, match="a difference of temperatures is not a temperature"):
        base.merge(merged_with, normal[0], normal[0]).plan()


@pytest.mark.parametrize(
    ("spec", "respelled"),
    [
        ("hour_of_day", {"periodic": "hour_of_day"}),
        ("hour_of_day", {"periodic": "hour_of_day", "zone": "UTC"}),
        ("hour_of_day", {"periodic": "60min", "within": "24h"}),
        ({"periodic": "hour_of_day", "zone": ZURICH}, {"periodic": "1h", "within": "1day", "zone": ZURICH}),
        ({"periodic": "6h", "within": "1day"}, {"periodic": "360min", "within": "24h", "phase": "48h"}),
        ({"periodic": "6h", "within": "1day", "phase": "45h"}, {"periodic": "6h", "within": "1day", "phase": "21h"}),
    ],
)
def test_what_is_normal_is_told_by_cells_not_by_spelling(spec: Any, respelled: Any) -> None:  # noqa: ANN401 - JSON
    """The same cells in a merge are alike, so that a clip bounds both; other cells are what is normal of all time."""
    base = hg.base(network())
    days = ("2007-10-22", "2007-10-24")
    least = base.aggregate("min", time=spec)
    expected = values(base.aggregate("max", time=spec).merge("difference", least).clip(time=days))
    for one, other in ((spec, respelled), (respelled, spec)):
        query = base.aggregate("max", time=one).merge("difference", base.aggregate("min", time=other)).clip(time=days)
        np.testing.assert_array_equal(values(query), expected)
        found = answer(query.question, feeds_of(network()))
        np.testing.assert_allclose(found.value, expected, atol=1e-12)
    inside = base.aggregate("min", time=spec).clip(time=days)
    np.testing.assert_array_equal(
        values(base.aggregate("max", time=respelled).merge("difference", inside).clip(time=days)), expected
    )


def feeds_of(array: xr.DataArray) -> dict[str, Feed]:
    """Return an array as the oracle takes it."""
    times = [int(at) for at in array["time"].to_numpy().astype("datetime64[ns]").astype(np.int64)]
    held = array.to_numpy()
    rows = [Row(j, at, at, float(held[i, j]), 2) for i, at in enumerate(times) for j in range(held.shape[1])]
    sensors = [
        Sensor(Series(str(array.name), str(j), source="array"), float(array["x"][j]), float(array["y"][j]), np.nan)
        for j in range(held.shape[1])
    ]
    kept = tuple(row for row in rows if np.isfinite(row.value))
    return {str(array.name): Feed(tuple(sensors), kept, None, tuple(times), is_lonlat=False)}


class TestClip:
    """What is normal does not follow from what is asked for."""

    def test_of_the_surface_leaves_what_is_normal(self) -> None:
        array = network()
        base = hg.base(array)
        anomaly = base.aggregate("mean", time="1h").merge("anomaly", base.aggregate("mean", time="hour_of_day"))
        whole = values(anomaly)
        days = ("2007-10-22", "2007-10-24")
        np.testing.assert_array_equal(values(anomaly.clip(time=days)), whole[48:96])
        # Also where a later step makes the clip one of the readings.
        mean = anomaly.aggregate("mean", time="all", min_coverage=0)
        np.testing.assert_allclose(values(mean.clip(time=days))[0], np.nanmean(whole[48:96], axis=0), atol=1e-12)
        maps = anomaly.interpolate("inverse_distance", grid=GRID)
        near = values(maps)[48:96, :, 1:3]
        np.testing.assert_allclose(values(maps.clip(time=days, x=(30, 90))), near, atol=1e-12)

    def test_of_the_climatology_is_the_time_that_it_is_of(self) -> None:
        array = network()
        base = hg.base(array)
        normal = base.aggregate("mean", time="hour_of_day", min_coverage=0).clip(time=("2007-10-20", "2007-10-25"))
        query = base.aggregate("mean", time="1h").merge("anomaly", normal)
        expected = array.to_numpy() - by_pandas(array[:120], "hour", array)
        np.testing.assert_allclose(values(query), expected, atol=1e-12)
        later = query.clip(time=("2007-10-30", "2007-10-31"))
        np.testing.assert_allclose(values(later), expected[240:264], atol=1e-12)
        again = Query(question_from_json(later.to_json()), later.lookup)
        assert again.token == later.token
        # The same cells, of other times: a day's course against that of all days.
        course = base.aggregate("mean", time="hour_of_day")
        against = course.merge("anomaly", normal).clip(time=("2007-10-30", "2007-10-31"))
        np.testing.assert_allclose(values(against), expected[240:264], atol=1e-12)

    def test_of_both_alike_is_as_ever(self) -> None:
        array = network()
        base, other = hg.base(array), hg.base(network(seed=4, name="surface_temperature"))
        hours = [query.aggregate("mean", time="hour_of_day") for query in (base, other)]
        days = ("2007-10-22", "2007-10-24")
        both = [values(query.clip(time=days)) for query in hours]
        merged = hours[0].merge("difference", hours[1]).clip(time=days)
        np.testing.assert_allclose(values(merged), both[0] - both[1], atol=1e-12)

    @pytest.mark.parametrize("cells", ["hour_of_day", "all"])
    def test_one_that_comes_first_is_to_be_swapped(self, cells: str) -> None:
        hourly = hg.base(network()).aggregate("mean", time="1h")
        normal = hourly.aggregate("mean", time=cells)
        with pytest.raises(
            InvalidQuery, match=r"different time cells: .* swap them: .*hourly.merge\('anomaly', normal"
        ):
            normal.merge("anomaly", hourly).plan()
        assert hourly.merge("anomaly", normal).plan().cells == hourly.plan().cells

    def test_where_there_can_be_none_is_refused(self) -> None:
        base = hg.base(network())
        hourly = base.aggregate("mean", time="1h")
        with pytest.raises(
            InvalidQuery, match=r"step 2 \(merge 'anomaly'\): .* only a climatology .* has one, in time"
        ):
            hourly.merge("anomaly", hourly.clip(time=("2007-10-22", "2007-10-24"))).plan()
        maps = [query.interpolate("inverse_distance", grid=GRID) for query in (hourly, base)]
        normal = maps[1].aggregate("mean", time="hour_of_day").clip(x=(0, 60))
        with pytest.raises(InvalidQuery, match=r"step 3 .*climatology in 'with' can be clipped in time alone"):
            maps[0].merge("anomaly", normal).plan()


def surfaces() -> dict[str, Query]:
    base = hg.base(network(days=6))
    hourly = base.aggregate("mean", time="1h")
    normal = base.aggregate("mean", time="hour_of_day")
    maps = [query.interpolate("inverse_distance", grid=GRID) for query in (hourly, base)]
    on_grid = maps[0].merge("anomaly", maps[1].aggregate("mean", time="hour_of_day"))
    return {
        "at stations": hourly.merge("anomaly", normal),
        "on a grid": on_grid,
        "below an interpolation": hourly.merge("anomaly", normal).interpolate("inverse_distance", grid=GRID),
        "below an aggregate": on_grid.aggregate("max", time="6h"),
        "below sliding windows": hourly.merge("anomaly", normal).aggregate("max", time={"length": "6h", "step": "2h"}),
        "of all": maps[0].merge("anomaly", maps[1].aggregate("mean", time="all")),
    }


@pytest.mark.parametrize("name", surfaces())
def test_every_strategy_box_and_order_gives_the_same(name: str, tmp_path: Path) -> None:
    query = surfaces()[name]
    expected = query.compute(strategy="top_down")
    for strategy in ("auto", "bottom_up", 1, 2):
        xr.testing.assert_allclose(query.compute(strategy=strategy), expected, atol=1e-12)
        plan = make_plan(query.surface(), strategy=strategy)
        for times in (1, 5):
            outcome = list(run(type(plan)(**{**vars(plan), "block_times": times, "block_cells": 2})))[-1].outcome
            np.testing.assert_allclose(outcome.value.reshape(expected["value"].shape), expected["value"], atol=1e-12)
    for order in ("raster", "coarse_to_fine", "walk"):
        last = list(query.refine(order=order))[-1].dataset()
        np.testing.assert_allclose(last["value"], expected["value"], atol=1e-12)
    query.to_zarr(tmp_path / "a.zarr")
    with xr.open_zarr(tmp_path / "a.zarr", consolidated=False) as kept:
        for variable in expected.data_vars:
            np.testing.assert_allclose(kept[variable], expected[variable], atol=1e-12)


def test_counts_are_of_what_is_known_of_now() -> None:
    base = hg.base(network())
    hourly = base.aggregate("mean", time="2h")
    result = hourly.merge("anomaly", base.aggregate("mean", time={"periodic": "2h", "within": "1day"})).compute()
    np.testing.assert_array_equal(result["count"], hourly.compute()["count"])
    # The steps of what is normal are not those that the values went through.
    assert result["value"].attrs["cell_methods"] == "time: mean (comment: cells of 2h)"


@pytest.mark.parametrize(
    ("cells", "normal", "says"),
    [
        ("1day", "hour_of_day", "the cell 2007-10-20T00:00Z to 2007-10-21T00:00Z lies in several cells of hour_of_day"),
        ({"length": "2h", "step": "1h"}, "hour_of_day", "T00:00Z to 2007-10-20T02:00Z lies in several cells"),
        (
            {"length": "7day", "step": "1day"},
            "month_of_year",
            "the cell 2007-10-26T00:00Z to 2007-11-02T00:00Z lies in",
        ),
        ("season", "month_of_year", "lies in several cells of month_of_year"),
        ("hour_of_day", "month_of_year", r"cell 0 of hour_of_day \(UTC\) lies in several cells of month_of_year"),
        ("all", "hour_of_day", "lies in several cells of hour_of_day"),
    ],
)
def test_cells_in_several_are_refused_before_running(cells: object, normal: str, says: str) -> None:
    base = hg.base(network(days=30))
    query = base.aggregate("mean", time=cells).merge("anomaly", base.aggregate("mean", time=normal))
    with pytest.raises(InvalidQuery, match=rf"^step 2 \(merge 'anomaly'\): .*{says}"):
        query.plan()


@settings(max_examples=25, deadline=None)
@given(
    seed=st.integers(0, 2**16),
    start=st.sampled_from(["2007-03-20", "2007-10-20", "2008-02-25", "2007-12-25"]),
    spec=st.sampled_from(sorted(SPECS)),
    length=st.sampled_from(["1h", "30min"]),
    at=st.integers(0, 100),
)
def test_any_part_of_any_surface_is_what_pandas_makes_of_it(
    seed: int, start: str, spec: str, length: str, at: int
) -> None:
    array = network(start, 8, seed=seed)
    base = hg.base(array)
    normal = base.aggregate("mean", time=SPECS[spec][0], min_coverage=0)
    query = base.aggregate("mean", time=length, min_coverage=0).merge("anomaly", normal)
    begin = pd.Timestamp(start) + pd.Timedelta(hours=at)
    clipped = query.clip(time=(str(begin), str(begin + pd.Timedelta(hours=7)))).compute()["value"]
    expected = (array.to_numpy() - by_pandas(array, spec))[at : at + 7]
    full = clipped.sel(time=array["time"][at : at + 7].to_numpy()).to_numpy()
    np.testing.assert_allclose(full, expected, atol=1e-12)
