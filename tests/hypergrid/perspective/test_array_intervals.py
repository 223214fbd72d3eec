"""How often the series of an array report, and what is asked of their cells by it."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import xarray as xr

import hypergrid as hg
from hypergrid.core.errors import InvalidQuery
from hypergrid.core.times import SECOND_NS, parse_instant

START = parse_instant("2007-10-01")
TEN_MINUTES = np.arange(0, 288, dtype=np.int64) * 600


def array_of(seconds: Any, *columns: Any, name: str = "precipitation", **coords: Any) -> xr.DataArray:  # noqa: ANN401
    """Return an array of some series at instants so many seconds after `START`, 0.1 each where nothing is given."""
    times = (START + np.asarray(seconds, dtype=np.int64) * SECOND_NS).view("datetime64[ns]")
    held = columns or (np.full(len(times), 0.1),)
    known = {
        "time": times,
        "x": ("station", np.arange(len(held)) * 100.0),
        "y": ("station", np.zeros(len(held))),
        **{key: ("station", value) for key, value in coords.items()},
    }
    return xr.DataArray(np.stack(held, axis=1), known, ("time", "station"), name, {"units": "mm"})


def holes(keep: Callable[[int], bool], value: float = 0.2) -> np.ndarray[Any, np.dtype[np.float64]]:
    return np.array([value if keep(i) else np.nan for i in range(288)])


def intervals(array: xr.DataArray) -> list[float]:
    return [float(one) for one in hg.base(array).aggregate("count", time="all").compute()["interval_s"]]


def test_a_daily_sum_with_half_the_day_missing_is_missing() -> None:
    """28.8 mm fall in a day of 144 times 0.2; of half of them nobody knows."""
    half = holes(lambda i: i < 72 or i >= 144)
    found = hg.base(array_of(TEN_MINUTES, half)).aggregate("sum", time="1day").compute()
    assert found["count"].values.ravel().tolist() == [72, 144]
    assert found["count_possible"].values.ravel().tolist() == [144, 144]
    assert np.isnan(found["value"].values[0, 0])
    assert found["value"].values[1, 0] == pytest.approx(28.8)
    assert (
        "1 of 2 values are missing: 1 with fewer than min_coverage = 1 of those that are possible"
        in (found.attrs["comment"])
    )
    taken = hg.base(array_of(TEN_MINUTES, half)).aggregate("sum", time="1day", min_coverage=0).compute()
    assert taken["value"].values[0, 0] == pytest.approx(14.4)


def test_rows_that_are_not_there_are_missing_too() -> None:
    """The same, where the array leaves the instants out; also below an interpolation."""
    seconds = np.r_[TEN_MINUTES[:72], TEN_MINUTES[144:]]
    found = hg.base(array_of(seconds)).aggregate("sum", time="1day").compute()
    assert np.isnan(found["value"].values[0, 0])
    assert found["value"].values[1, 0] == pytest.approx(14.4)
    three = array_of(seconds, *(np.full(len(seconds), value) for value in (0.1, 0.2, 0.3)))
    grid = hg.grid(x=(0, 200), y=(-50, 50), step=100)
    kriged = hg.base(three).interpolate("inverse_distance", grid=grid).aggregate("mean", time="1day").compute()
    assert np.isnan(kriged["value"].values[0]).all()
    assert np.isfinite(kriged["value"].values[1]).all()
    assert kriged["count_possible"].values.ravel()[0] == 144


@pytest.mark.parametrize(
    ("what", "column", "interval_s"),
    [
        ("complete", np.full(288, 0.2), 600.0),
        ("hourly among ten minutes", holes(lambda i: i % 6 == 0), 3600.0),
        ("every third lost by chance", np.where(np.random.default_rng(1).random(288) < 0.3, np.nan, 0.2), 600.0),
        ("three values", holes(lambda i: i in (0, 72, 144)), 600.0),
        ("nothing at all", np.full(288, np.nan), 600.0),
    ],
)
def test_each_series_has_the_interval_of_its_values(what: str, column: Any, interval_s: float) -> None:  # noqa: ANN401
    assert intervals(array_of(TEN_MINUTES, column)) == [interval_s], what


@pytest.mark.parametrize(
    ("seconds", "interval_s"),
    [
        ([0], 0.0),
        ([0, 600], 0.0),
        ([0, 600, 1200], 600.0),
        (np.cumsum(np.r_[[600] * 19, 5000, 5000]), 600.0),
        (np.cumsum(np.r_[[600] * 18, 5000, 5000, 5000]), 0.0),
        (np.cumsum([550, 640, 600, 590, 610, 600, 640]), 605.0),
        (np.cumsum([100, 900, 300, 2000, 50, 600]), 0.0),
    ],
)
def test_nine_of_ten_spacings_agree_within_a_tenth(seconds: Any, interval_s: float) -> None:  # noqa: ANN401
    assert intervals(array_of(seconds)) == [interval_s]


def test_coverage_of_irregular_instants_is_unknown_and_said_to_be() -> None:
    found = hg.base(array_of(np.cumsum([100, 900, 300, 2000, 50, 600]))).aggregate("sum", time="1day").compute()
    assert found["value"].values[0, 0] == pytest.approx(0.6)
    # As of an archive whose intervals are unknown: what is possible is not said.
    assert (found["count"].item(), "count_possible" in found) == (6, False)
    assert (
        "coverage is not known, and min_coverage=0: the instants of the array are not evenly"
        in (found.attrs["comment"])
    )
    assert "coverage is not known" not in (
        hg.base(array_of(TEN_MINUTES)).aggregate("sum", time="1day").compute().attrs.get("comment", "")
    )


def test_a_clip_does_not_change_what_is_possible() -> None:
    query = hg.base(array_of(TEN_MINUTES, holes(lambda i: i % 6 == 0))).aggregate("sum", time="1day")
    clipped = query.clip(time=("2007-10-02", "2007-10-03")).compute()
    assert (clipped["count"].item(), clipped["count_possible"].item()) == (24, 24)
    last = query.clip(time=("2007-10-01", "2007-10-01T12:00")).compute()
    assert last["value"].item() == pytest.approx(4.8)


def test_running_totals_of_an_array_are_taken_once() -> None:
    """The total of the last hour every ten minutes, with its interval declared."""
    fallen = np.random.default_rng(2).exponential(0.1, 288)
    last_hour = np.convolve(fallen, np.ones(6))[:288]
    seconds = TEN_MINUTES + 600
    array = array_of(seconds, last_hour, interval_s=[3600.0], statistic=["total"], stamp=["end"])
    found = hg.base(array).aggregate("sum", time="1day").compute()
    day = found.sel(time="2007-10-01").isel(station=0)
    # The first total reaches back before the first of October, and is none of it.
    assert (int(day["count"]), int(day["count_possible"])) == (24, 24)
    assert float(day["value"]) == pytest.approx(fallen[:144].sum())
    assert "intervals overlap in 1 of 1 series" in found.attrs["comment"]


def test_a_result_taken_as_an_array_has_the_interval_of_its_cells() -> None:
    daily = hg.base(array_of(TEN_MINUTES)).aggregate("sum", time="6h").compute()["value"]
    found = hg.base(daily.rename("precipitation")).aggregate("sum", time="1day").compute()
    assert found["interval_s"].values.tolist() == [21600.0]
    assert found["count_possible"].values.ravel().tolist() == [4, 4]


@pytest.mark.parametrize("wrong", [-600.0, np.nan, np.inf])
def test_intervals_that_cannot_be_are_refused(wrong: float) -> None:
    array = array_of(TEN_MINUTES, interval_s=[wrong], statistic=["total"])
    with pytest.raises(InvalidQuery, match=r"'interval_s' of hg.base needs seconds above 0, or 0 .*; got"):
        hg.base(array)


def test_a_statistic_that_does_not_exist_is_refused() -> None:
    with pytest.raises(InvalidQuery, match=r"'statistic' of hg.base needs sample, mean, .*; got 'average'"):
        hg.base(array_of(TEN_MINUTES, statistic=["average"]))


def test_infinite_values_are_missing_and_noted() -> None:
    column = np.full(288, 0.1)
    column[5] = np.inf
    found = hg.base(array_of(TEN_MINUTES, column)).aggregate("mean", time="1day").compute()
    assert found["count"].values.ravel().tolist() == [143, 144]
    assert "1 infinite values of the array are taken as missing" in found.attrs["comment"]


@pytest.mark.filterwarnings("ignore:overflow")
def test_results_that_are_infinite_are_noted() -> None:
    huge = hg.base(array_of(TEN_MINUTES, np.full(288, 1e300))).convert("scale", factor=1e10)
    assert "288 of 288 values are infinite" in huge.compute().attrs["comment"]


@pytest.mark.parametrize("function", ["max", "min"])
def test_directions_have_no_largest(function: str) -> None:
    array = array_of(TEN_MINUTES, np.full(288, 350.0), name="wind_direction")
    array.attrs["units"] = "degree"
    with pytest.raises(InvalidQuery, match=rf"a {function} of directions has no meaning: .* use circular_mean"):
        hg.base(array).aggregate(function, time="1day").compute()


def test_running_totals_of_an_array_are_not_summed_once_interpolated() -> None:
    columns = [np.full(288, value) for value in (0.1, 0.2, 0.3)]
    coords = {"interval_s": [3600.0] * 3, "statistic": ["total"] * 3, "stamp": ["end"] * 3}
    grid = hg.grid(x=(0, 200), y=(-50, 50), step=100)
    kriged = hg.base(array_of(TEN_MINUTES, *columns, **coords)).interpolate("inverse_distance", grid=grid)
    with pytest.raises(InvalidQuery, match=r"a sum over total values over 1h each, in steps of 10min"):
        kriged.aggregate("sum", time="1day").compute()
    tens = hg.base(array_of(TEN_MINUTES, *columns, **{**coords, "interval_s": [600.0] * 3}))
    of_tens = tens.interpolate("inverse_distance", grid=grid).aggregate("sum", time="1day").compute()
    assert "overlap" not in of_tens.attrs.get("comment", "")


def test_a_statistic_without_an_interval_is_that_of_the_values() -> None:
    """Nothing is dropped: maxima are no samples, and totals belong where their intervals begin."""
    with pytest.raises(InvalidQuery, match=r"a mean of max values is not the mean"):
        hg.base(array_of(TEN_MINUTES, statistic=["max"], stamp=["end"])).aggregate("mean", time="1day").compute()
    ends = array_of(TEN_MINUTES + 600, np.arange(288.0), statistic=["total"], stamp=["end"])
    found = hg.base(ends).aggregate("sum", time="1day").compute()
    assert found["value"].values.ravel().tolist() == [sum(range(144)), sum(range(144, 288))]
    assert (found["interval_s"].item(), found["statistic"].item()) == (600.0, "total")
    irregular = array_of(np.cumsum([100, 900, 300, 2000, 50, 600]), statistic=["min"])
    with pytest.raises(InvalidQuery, match=r"a mean of min values"):
        hg.base(irregular).aggregate("mean", time="1day").compute()


def test_a_statistic_over_no_time_is_refused() -> None:
    with pytest.raises(InvalidQuery, match=r"'interval_s' above 0 .*; got 0 for 1 of 1 series \(0: total\)"):
        hg.base(array_of(TEN_MINUTES, interval_s=[0.0], statistic=["total"], stamp=["end"]))


def test_a_total_longer_than_the_array_is_named_in_seconds() -> None:
    days = array_of(TEN_MINUTES, interval_s=[30 * 86_400.0], statistic=["total"], stamp=["end"])
    with pytest.raises(InvalidQuery, match=r"stand for 30day each, longer than the 2870min that there are"):
        hg.base(days).aggregate("sum", time="all").compute()
    one = array_of([600], [4.0], interval_s=[86_400.0], statistic=["total"], stamp=["end"])
    assert hg.base(one).aggregate("sum", time="all").compute()["value"].item() == 4.0


def test_missing_values_of_an_array_are_without_a_reading() -> None:
    found = hg.base(array_of(TEN_MINUTES, holes(lambda i: i < 144))).aggregate("mean", time="1day").compute()
    assert "1 of 2 values are missing: 1 without any reading" in found.attrs["comment"]


@pytest.mark.parametrize(("cells", "is_noted"), [("25min", True), ("30min", False)])
def test_cells_that_intervals_do_not_divide_are_noted(cells: str, is_noted: bool) -> None:  # noqa: FBT001
    """Starts 00:00, 00:10 and 00:20 lie in 25 minutes, into which two intervals fit wholly."""
    means = hg.base(array_of(TEN_MINUTES, interval_s=[600.0], statistic=["mean"], stamp=["start"]))
    found = means.aggregate("mean", time=cells).compute()
    assert bool((found["count"] > found["count_possible"]).any()) == is_noted
    note = "time cells of 25min hold no whole number of intervals of 10min (1 of 1 series)"
    assert (note in found.attrs.get("comment", "")) == is_noted
