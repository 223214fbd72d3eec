"""Arrays whose values stand for intervals that end, or start, at their stamps: what an archive of them gives."""

from typing import Any

import numpy as np
import pytest
import xarray as xr

import hypergrid as hg
from hypergrid.core.readings import Position, Series, Station
from hypergrid.core.times import SECOND_NS, parse_instant
from hypergrid.query import Query
from tests.support.feeds import Row
from tests.support.networks import table, write_archive

START = parse_instant("2007-10-01")
TENTH_NS = 600 * SECOND_NS

Values = np.ndarray[Any, np.dtype[np.float64]]


def stamps(count: int, stamp: str, step_s: float = 600.0) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Return instants [ns] of intervals from `START` on."""
    begins = START + (np.arange(count) * step_s * SECOND_NS).astype(np.int64)
    return begins + (round(step_s * SECOND_NS) if stamp == "end" else 0)


def array_of(values: Values, stamp: str = "end", statistic: str = "total", step_s: float = 600.0) -> xr.DataArray:
    coords = {
        "time": stamps(len(values), stamp, step_s).view("datetime64[ns]"), "station": ["a"],
        "lon": ("station", [8.0]), "lat": ("station", [47.0]), "statistic": ("station", [statistic]),
        "interval_s": ("station", [step_s]), "stamp": ("station", [stamp]),
    }  # fmt: skip
    return xr.DataArray(values[:, None], coords, ("time", "station"), "precipitation", {"units": "mm"})


def numbers(query: Query, **cells: Any) -> tuple[list[float], list[int], list[int]]:  # noqa: ANN401
    """Return sums, counts and what is possible."""
    found = query.aggregate("sum", **cells).compute()
    return tuple(found[name].values.ravel().tolist() for name in ("value", "count", "count_possible"))  # type: ignore[return-value]


@pytest.mark.parametrize("stamp", ["start", "end"])
def test_all_of_an_array_holds_its_first_and_its_last_interval(stamp: str) -> None:
    assert numbers(hg.base(array_of(np.ones(10), stamp)), time="all") == ([10.0], [10], [10])


def test_the_largest_value_may_be_the_first() -> None:
    highest = hg.base(array_of(np.array([99.0, 1.0, 1.0, 1.0]), statistic="max")).aggregate("max", time="all")
    assert highest.compute()["value"].item() == 99.0


@pytest.mark.parametrize("stamp", ["start", "end"])
def test_daily_totals_each_have_a_day(stamp: str) -> None:
    days = array_of(np.arange(1.0, 10.0), stamp, step_s=86_400.0)
    assert numbers(hg.base(days), time="1day") == (list(np.arange(1.0, 10.0)), [1] * 9, [1] * 9)


@pytest.fixture(scope="module", params=["start", "end"])
def pair(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Query, Query]:
    """Return an array of three days, less 20 and 30 minutes at their ends, and an archive of the same."""
    stamp = request.param
    values = np.random.default_rng(3).exponential(0.3, 432)[2:-3]
    array = array_of(values, stamp)
    array = array.assign_coords(time=array["time"] + np.timedelta64(20, "m"))
    series = Series("precipitation", "a", statistic="total", interval_s=600.0, stamp=stamp, source="f/p")
    at_ns = array["time"].values.astype("datetime64[ns]").astype(np.int64).tolist()
    before = TENTH_NS if stamp == "end" else 0
    rows = [Row(0, at - before, at, float(value), 2) for at, value in zip(at_ns, values, strict=True)]
    station = Station("a", "a", (Position(None, 8.0, 47.0, 2000.0),))
    folder = tmp_path_factory.mktemp(stamp)
    opened = write_archive(folder, stations=[station], readings=[table([series], rows)], slice_s=600.0)
    return hg.base(array), opened["precipitation"].select(statistic="total")


@pytest.mark.parametrize("time", ["all", "1h", "1day", "hour_of_day", {"length": "3h", "step": "1h"}])
@pytest.mark.parametrize("clip", [None, ("2007-10-01T02:30", "2007-10-02T05:00")])
def test_an_array_answers_as_an_archive_of_the_same(pair: tuple[Query, Query], time: Any, clip: Any) -> None:  # noqa: ANN401
    queries = [query.aggregate("sum", time=time, min_coverage=0) for query in pair]
    ours, theirs = (query.clip(time=clip).compute() if clip else query.compute() for query in queries)
    assert np.allclose(ours["value"].values, theirs["value"].values, rtol=1e-12, equal_nan=True)
    for name in ("time" if time != "hour_of_day" else "hour_of_day", "count", "count_possible"):
        assert np.array_equal(ours[name].values, theirs[name].values), name


def test_samples_beside_totals_are_all_there() -> None:
    """Ten values each from 00:10 on: the totals begin at 00:00, the last sample is at 01:40."""
    times = stamps(10, "end").view("datetime64[ns]")
    coords = {
        "time": times, "x": ("station", [0.0, 1.0]), "y": ("station", [0.0, 0.0]),
        "statistic": ("station", ["total", "sample"]), "interval_s": ("station", [600.0, 600.0]),
        "stamp": ("station", ["end", "instant"]),
    }  # fmt: skip
    both = xr.DataArray(np.ones((10, 2)), coords, ("time", "station"), "precipitation", {"units": "mm"})
    values, counts, possible = numbers(hg.base(both), time="all", min_coverage=0)
    assert (values, counts, possible) == ([10.0, 10.0], [10, 10], [10, 10])
