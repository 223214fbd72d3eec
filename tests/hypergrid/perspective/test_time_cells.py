"""Months, seasons, civil days, given edges and cells that come again, as a query gives them."""

from collections import defaultdict
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from hypothesis import given, settings
from hypothesis import strategies as st

import hypergrid as hg
from hypergrid.core.errors import HyperGridError, InvalidQuery, InvalidTime, NotFound, TooLarge
from hypergrid.core.readings import Position, Series, Station
from hypergrid.core.times import SECOND_NS, parse_instant
from hypergrid.execution.running.evaluate import Evaluator
from hypergrid.formats.results import to_bytes
from hypergrid.perspective import Perspective
from hypergrid.perspective.build.restrict import restrict
from hypergrid.plots import plot
from hypergrid.query import OpenArchive
from tests.support.feeds import Row
from tests.support.networks import table, write_archive

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
GRID = {"lon": 7.17, "lat": 45.86, "step": "20arcsec", "shape": [2, 3]}
MODEL = {"model": "exponential", "psill": 1.0, "range_m": 500.0, "nugget": 0.1}
ZURICH = "Europe/Zurich"
EVERY = np.timedelta64(3, "h")
"""How far apart the values lie that the calendar is tried with."""


def array(start: str, hours: int, *, every: str = "1h", lon: float = 7.17, stations: int = 4, seed: int = 0) -> Any:  # noqa: ANN401 - a DataArray
    rng = np.random.default_rng(seed)
    times = pd.date_range(start, periods=hours, freq=every)
    values = rng.normal(5.0, 3.0, (hours, stations))
    values[rng.random(values.shape) < 0.2] = np.nan
    places = np.arange(stations)
    coords = {
        "time": times, "lon": ("station", lon + 0.004 * places), "lat": ("station", 45.86 + 0.003 * (places**2 % 5))
    }  # fmt: skip
    return xr.DataArray(values, coords, ("time", "station"), "air_temperature", {"units": "degC"})


def wall(instant: np.datetime64, clock: Any = UTC) -> datetime:  # noqa: ANN401 - a tzinfo
    return (EPOCH + timedelta(seconds=int(instant.astype("datetime64[s]").astype(int)))).astimezone(clock)


def first_of(local: datetime, months: int, first: int) -> tuple[int, int]:
    number = local.year * 12 + local.month - 1
    begin = number - (number - (first - 1)) % months
    return begin // 12, begin % 12 + 1


KEYS = {
    "month": (lambda t: (wall(t).year, wall(t).month), "month"),
    "season": (lambda t: first_of(wall(t), 3, 12), "season"),
    "year": (lambda t: wall(t).year, "year"),
    "hydrological": (lambda t: first_of(wall(t), 12, 10), "hydrological_year"),
    "from november": (lambda t: first_of(wall(t), 12, 11), {"hydrological_year": 11}),
    "from six": (lambda t: (wall(t) - timedelta(hours=6)).date(), {"step": "1day", "offset": "6h"}),
    "civil": (lambda t: wall(t, ZoneInfo(ZURICH)).date(), {"step": "1day", "zone": ZURICH}),
    "civil months": (lambda t: wall(t, ZoneInfo(ZURICH)).strftime("%Y-%m"), {"step": "month", "zone": ZURICH}),
}
AGAIN = {
    "hour_of_day": lambda local: local.hour,
    "day_of_week": lambda local: local.isoweekday(),
    "day_of_year": lambda local: local.replace(year=2000, tzinfo=None).timetuple().tm_yday,
    "month_of_year": lambda local: local.month,
    "season_of_year": lambda local: local.month % 12 // 3 + 1,
}


@settings(max_examples=40)
@given(
    which=st.sampled_from(sorted(KEYS)), start=st.integers(0, 365 * 24 * 5), hours=st.integers(1, 2500),
    function=st.sampled_from(["mean", "max", "sum", "count", "first"]), seed=st.integers(0, 9),
)  # fmt: skip
def test_cells_hold_what_the_calendar_says(which: str, start: int, hours: int, function: str, seed: int) -> None:
    data = array(str(np.datetime64("2003-01-01T00") + start), hours, every="3h", stations=2, seed=seed)
    key, spec = KEYS[which]
    found = hg.base(data).aggregate(function, time=spec, min_coverage=0).compute()
    groups: dict[Any, list[int]] = defaultdict(list)
    for number, time in enumerate(data["time"].to_numpy()):
        groups[key(time)].append(number)
    assert found.sizes["time"] == len(groups)
    for cell, rows in enumerate(groups.values()):
        low, high = found["time_bounds"].to_numpy()[cell]
        inside = data["time"].to_numpy()[rows]
        assert low <= inside[0]
        assert inside[-1] < high
        fitting = max(int((high - low) / EVERY), 1)
        for station in range(2):
            of_station = found.isel(time=cell, station=station)
            check(function, data.to_numpy()[rows, station], of_station)
            # Two instants do not tell how often a series reports: how many were possible is not known.
            assert ("count_possible" in found) == (hours > 2)
            if hours > 2:
                assert int(of_station["count_possible"]) == max(fitting, int(of_station["count"]))


def check(function: str, values: np.ndarray[Any, Any], cell: xr.Dataset) -> None:
    held = values[np.isfinite(values)]
    assert int(cell["count"]) == len(held)
    reduce = {"mean": np.mean, "max": np.max, "sum": np.sum, "count": len, "first": lambda v: v[0]}[function]
    if len(held):
        np.testing.assert_allclose(float(cell["value"]), reduce(held), rtol=1e-12, atol=1e-12)
    else:
        assert function == "count" or np.isnan(float(cell["value"]))


@settings(max_examples=40)
@given(
    name=st.sampled_from(sorted(AGAIN)), start=st.integers(0, 365 * 24 * 5), hours=st.integers(1, 2500),
    function=st.sampled_from(["mean", "max", "sum", "count", "first"]), seed=st.integers(0, 9),
    clock=st.sampled_from(["utc", "zone", "east", "west"]),
)  # fmt: skip
def test_cells_that_come_again_hold_what_the_wall_clock_says(
    name: str, start: int, hours: int, function: str, seed: int, clock: str
) -> None:
    lon = {"east": 172.5, "west": -67.5}.get(clock, 7.0)
    data = array(str(np.datetime64("2003-01-01T00") + start), hours, every="3h", stations=2, seed=seed, lon=lon - 0.002)
    options: dict[str, Any] = {"utc": {}, "zone": {"zone": ZURICH}}.get(clock, {"solar": True})
    found = hg.base(data).aggregate(function, time={"periodic": name, **options}, min_coverage=0).compute()
    shown = ZoneInfo(ZURICH) if clock == "zone" else timezone(timedelta(seconds=240 * lon if clock != "utc" else 0))
    groups: dict[int, list[int]] = defaultdict(list)
    for number, time in enumerate(data["time"].to_numpy()):
        groups[AGAIN[name](wall(time, shown))].append(number)
    assert found["value"].dims == (name, "station")
    assert set(groups) <= set(found[name].to_numpy().tolist())
    fitting = fitting_in_cycle(data["time"].to_numpy(), lambda time: AGAIN[name](wall(time, shown)))
    for label in found[name].to_numpy().tolist():
        rows = groups[label]
        for station in range(2):
            cell = found.sel({name: label}).isel(station=station)
            check(function, data.to_numpy()[rows, station], cell)
            assert ("count_possible" in found) == (hours > 2)
            if hours > 2:
                assert int(cell["count_possible"]) == max(fitting.get(label, 0), int(cell["count"]))


def fitting_in_cycle(times: np.ndarray[Any, Any], label: Callable[[np.datetime64], int]) -> dict[int, int]:
    """Return how many values, three hours apart, fit into the stretches with each label; one each where none does."""
    # Stretches begin at half and whole hours by every clock.
    steps = np.arange(times[0], times[-1] + np.timedelta64(1, "ns"), np.timedelta64(30, "m"))
    labels = np.array([label(step) for step in steps])
    first = np.flatnonzero(np.r_[True, labels[1:] != labels[:-1]])
    ends = np.r_[steps[first[1:]], times[-1] + np.timedelta64(1, "ns")]
    fitting: dict[int, list[np.timedelta64]] = defaultdict(list)
    for begin, end in zip(first, ends, strict=True):
        fitting[int(labels[begin])].append(end - steps[begin])
    found = {}
    for each, lengths in fitting.items():
        floors = [length // EVERY for length in lengths]
        # The last instant ends a stretch, and belongs to it.
        closing = sum(length % EVERY == np.timedelta64(1, "ns") for length in lengths)
        found[each] = int(sum(floors) + closing if any(floors) else len(lengths))
    return found


@pytest.mark.parametrize("kriged", [False, True])
def test_blocks_shorter_than_the_interval_may_hold_a_value_each(kriged: bool) -> None:  # noqa: FBT001 - a case
    data = array("2007-04-01", 10 * 8, every="3h").fillna(2.0)
    data[:24] = np.nan
    base = hg.base(data)
    slices = base.interpolate("ordinary_kriging", grid=GRID, variogram=MODEL) if kriged else base
    found = slices.aggregate("mean", time="hour_of_day").compute()
    counts = [found[name].to_numpy().reshape(24, -1)[::3, 0].tolist() for name in ("count", "count_possible")]
    assert counts == [[7] * 8, [10] * 8]
    # Seven days of ten are less than the 80 % that a mean needs.
    assert found["value"].isnull().all()


def test_climatology_as_cf_writes_it(tmp_path: Path) -> None:
    query = hg.base(array("2007-04-01", 30 * 24)).aggregate("max", time="hour_of_day")
    found = query.clip(time=("2007-04-01", "2007-05-01")).compute()
    assert found["time"].attrs["climatology"] == "climatology_bounds"
    bounds = found["climatology_bounds"].to_numpy().astype("datetime64[h]").astype(str)
    assert bounds[0].tolist() == ["2007-04-01T00", "2007-04-30T01"]
    assert bounds[23].tolist() == ["2007-04-01T23", "2007-05-01T00"]
    methods = found["value"].attrs["cell_methods"]
    assert methods.startswith("time: maximum within days time: maximum over days")
    assert found["hour_of_day"].attrs["long_name"] == "hour of day (UTC)"
    found.to_netcdf(tmp_path / "out.nc")
    with xr.open_dataset(tmp_path / "out.nc") as again:
        assert again["climatology_bounds"].to_numpy().tolist() == found["climatology_bounds"].to_numpy().tolist()
        assert again["hour_of_day"].to_numpy().tolist() == list(range(24))
    rows = to_bytes(found, "csv").decode().splitlines()
    assert len(rows) == 1 + 24 * 4
    assert "hour_of_day" in rows[0]
    assert plot(found).axes[0].get_xlabel() == "hour of day (UTC)"


def test_solar_time_is_stated_and_taken_across_the_date_line() -> None:
    data = array("2007-04-01", 48, stations=2)
    data = data.assign_coords(lon=("station", [179.5, -178.5]))
    found = hg.base(data).aggregate("mean", time={"periodic": "hour_of_day", "solar": True}).compute()
    assert found["hour_of_day"].attrs["long_name"] == "hour of day (mean solar time of 179.5 degrees west)"


def test_clip_bounds_the_readings_of_cells_that_come_again() -> None:
    data = array("2007-04-01", 30 * 24)
    hours = hg.base(data).aggregate("mean", time="hour_of_day", min_coverage=0)
    found = hours.clip(time=("2007-04-03T06:00", "2007-04-05T12:00")).compute()
    part = data.sel(time=slice("2007-04-03T06:00", "2007-04-05T11:59"))
    expected = part.groupby("time.hour").mean(skipna=True).to_numpy()
    np.testing.assert_allclose(found["value"].to_numpy(), expected)
    assert found["count_possible"].to_numpy()[:, 0].tolist() == [2] * 6 + [3] * 6 + [2] * 12


# clip           |-----------------------|          00:05 to 01:05
# instants   0  10  20  30  40  50  60  70           every ten minutes
# cells      00------------------ -01-----           of 10 in 30 minutes: 00:00, 00:30, 01:00
def test_cells_that_come_again_hold_no_instant_and_no_cell_outside_the_clip() -> None:
    data = array("2007-04-01", 24, every="5min").fillna(1.0)
    window = ("2007-04-01T00:05", "2007-04-01T01:05")
    instants = hg.base(data).interpolate("linear", time="10min", max_gap="1h")
    found = instants.aggregate("count", time="hour_of_day").clip(time=window).compute()
    assert found["count_possible"].to_numpy()[:2, 0].tolist() == [5, 1]
    assert found["value"].to_numpy()[:2, 0].tolist() == [5, 1]
    cells = hg.base(data).aggregate("mean", time={"length": "10min", "step": "30min"})
    for first, possible in (("00:05", [2, 1]), ("00:15", [1, 1])):
        found = cells.aggregate("count", time="hour_of_day").clip(time=(f"2007-04-01T{first}", "2007-04-01T01:20"))
        assert found.compute()["count_possible"].to_numpy()[:2, 0].tolist() == possible


@pytest.mark.parametrize("second", ["all", {"periodic": "day_of_week", "zone": ZURICH}])
def test_what_is_possible_is_told_also_where_a_clip_begins_in_a_day_without_readings(second: object) -> None:
    # Readings begin on the 3rd; the clip begins at noon of the day before, and ends at noon of the 5th.
    data = array("2007-04-03", 5 * 24).fillna(1.0)
    days = hg.base(data).aggregate("count", time={"step": "1day", "zone": ZURICH})
    found = days.aggregate("sum", time=second).clip(time=("2007-04-02T12:00", "2007-04-05T12:00")).compute()
    assert found["value"].sum("station" if second == "all" else found["value"].dims[0]).to_numpy().max() >= 2.5 * 24
    assert int(found["count"].isel(station=0).sum()) == 3
    assert int(found["count_possible"].isel(station=0).sum()) == 3


def test_a_clip_selects_uneven_cells_by_their_corner_and_reads_them_whole() -> None:
    query = hg.base(array("2007-01-10", 400 * 24)).aggregate("mean", time="month")
    whole, part = query.compute(), query.clip(time=("2007-03-15", "2007-06-01")).compute()
    assert part["time"].dt.month.to_numpy().tolist() == [4, 5]
    xr.testing.assert_equal(part["value"], whole["value"].sel(time=part["time"]))
    assert "14 x month from 2007-01-01T00:00Z" in query.explain()


@pytest.mark.parametrize(
    "spec",
    [
        "month",
        "hour_of_day",
        {"step": "1day", "zone": ZURICH},
        {"edges": ["2007-04-01T03:00", "2007-04-02", "2007-04-04"]},
    ],
)
def test_a_mean_of_kriged_slices_is_the_kriged_mean(spec: object) -> None:
    # Every station reports, so that each slice is the same linear map of its readings.
    data = array("2007-04-01", 4 * 24).fillna(2.0)
    base = hg.base(data)
    # The month and the first and last day by the local clock are not whole.
    above = base.interpolate("ordinary_kriging", grid=GRID, variogram=MODEL).aggregate(
        "mean", time=spec, min_coverage=0
    )
    below = base.aggregate("mean", time=spec, min_coverage=0).interpolate(
        "ordinary_kriging", grid=GRID, variogram=MODEL
    )
    one, other = above.compute(), below.compute()
    assert np.isfinite(one["value"]).all()
    np.testing.assert_allclose(one["value"].to_numpy(), other["value"].to_numpy(), rtol=1e-9)
    slices = base.interpolate("ordinary_kriging", grid=GRID, variogram=MODEL)
    maximum = slices.aggregate("max", time=spec, min_coverage=0).compute()
    assert (maximum["value"] >= one["value"]).all()
    # Errors of independent slices: the variance of a mean of n is that of one slice over n.
    varied = above.with_variance(correlation_time="0s").compute()
    single = below.with_variance().compute()["variance"].to_numpy()
    np.testing.assert_allclose(
        varied["variance"].to_numpy() * varied["count"].to_numpy(), single * np.ones_like(varied["count"]), rtol=1e-6
    )


def test_space_aggregates_converts_and_merges_of_equal_axes_above_cells_that_come_again() -> None:
    base = hg.base(array("2007-04-01", 4 * 24))
    hours = base.aggregate("mean", time="hour_of_day")
    map_ = hours.interpolate("ordinary_kriging", grid=GRID, variogram=MODEL)
    mean = map_.aggregate("mean", lat="all", lon="all").compute()
    assert mean["value"].dims == ("hour_of_day", "lat", "lon")
    of_cells = map_.compute()
    # A mean over latitudes weighs rows by their area on the sphere.
    areas = np.sin(np.radians(of_cells["lat_bounds"])).diff("bounds").squeeze("bounds")
    expected_mean = of_cells["value"].weighted(areas).mean(["lat", "lon"])
    np.testing.assert_allclose(mean["value"].to_numpy()[:, 0, 0], expected_mean, rtol=1e-9)
    assert len(plot(map_.compute(), time=23).axes) == 2
    spread = base.aggregate("max", time="hour_of_day").merge("difference", base.aggregate("min", time="hour_of_day"))
    expected = base.aggregate("max", time="hour_of_day").compute()["value"] - base.aggregate(
        "min", time="hour_of_day"
    ).compute()["value"]  # fmt: skip
    np.testing.assert_allclose(spread.compute()["value"].to_numpy(), expected.to_numpy())
    months = base.aggregate("max", time="month").convert("scale", factor=2.0).merge(
        "difference", base.aggregate("max", time="month")
    )  # fmt: skip
    assert months.compute()["value"].shape == (1, 4)


def test_months_of_days_and_years_of_months_say_what_is_possible() -> None:
    base = hg.base(array("2007-03-10", 24 * 200).fillna(1.0))
    days = base.aggregate("mean", time="1day")
    months = days.aggregate("count", time="month").compute()
    assert months["value"].to_numpy()[:, 0].tolist() == [22, 30, 31, 30, 31, 31, 25]
    assert months["count_possible"].to_numpy()[:, 0].tolist() == [31, 30, 31, 30, 31, 31, 30]
    year = days.aggregate("mean", time="month", min_coverage=0).aggregate("mean", time="year").compute()
    assert (year["count"].to_numpy()[0, 0], year["count_possible"].to_numpy()[0, 0]) == (7, 12)
    # Of March there are 22 days of 31, less than the 80 % that a mean needs unless it is told otherwise.
    covered = days.aggregate("mean", time="month").aggregate("mean", time="year").compute()
    assert (covered["count"].to_numpy()[0, 0], covered["count_possible"].to_numpy()[0, 0]) == (6, 12)
    weeks = days.aggregate("count", time="day_of_week").compute()
    assert weeks["value"].to_numpy()[:, 0].sum() == 200
    everything = days.aggregate("mean", time="month").aggregate("mean", time="all").compute()
    assert everything["count_possible"].to_numpy()[0, 0] == 7
    linear = days.aggregate("mean", time="month").interpolate("linear", time="10day").compute()
    assert np.isfinite(linear["value"].to_numpy()).any()


@pytest.fixture
def archive(tmp_path: Path) -> OpenArchive:
    """Two stations that report every half hour, a mean stamped at its end and samples, through the autumn change."""
    start = parse_instant("2024-10-20T00:00Z")
    series = (
        Series("air_temperature", "a", 2.0, 1, "mean", 1800.0, "end"),
        Series("air_temperature", "b", 2.0, 1, "sample", 1800.0),
    )
    rows = []
    for number in range(2):
        for tick in range(48 * 14):
            begin = start + tick * 1800 * SECOND_NS
            if (tick * 7 + number) % 11:
                rows.append(Row(number, begin, begin + (1800 * SECOND_NS if number == 0 else 0), float(tick % 48), 2))
    stations = tuple(Station(n, n, (Position(None, 7.5 + 0.01 * i, 46.0, 500.0),)) for i, n in enumerate("ab"))
    return write_archive(tmp_path / "archive", stations=stations, readings=[table(series, rows)], slice_s=1800.0)


def test_readings_go_to_the_cells_of_the_wall_clock(archive: OpenArchive) -> None:
    base = archive["air_temperature"]
    days = base.aggregate("mean", time={"step": "1day", "zone": ZURICH}, min_coverage=0.0).compute()
    begins = days["time"].dt.strftime("%m-%dT%H").to_numpy()
    possible = dict(zip(begins, days["count_possible"].to_numpy()[:, 0], strict=True))
    assert (possible["10-25T22"], possible["10-26T22"], possible["10-27T23"]) == (48, 50, 48)
    for spec, zone in (({"periodic": "hour_of_day", "zone": ZURICH}, ZURICH), ("hour_of_day", "UTC")):
        for function in ("mean", "count", "first", "sample", "max"):
            query = base.aggregate(function, time=spec, min_coverage=0.0)
            found = query.clip(time=("2024-10-20", "2024-11-03")).compute()
            for number in range(2):
                groups: dict[int, list[float]] = defaultdict(list)
                possible_of: dict[int, int] = defaultdict(int)
                for tick in range(48 * 14):
                    local = wall(np.datetime64("2024-10-20T00:00") + np.timedelta64(30 * tick, "m"), ZoneInfo(zone))
                    possible_of[local.hour] += 1
                    if (tick * 7 + number) % 11:
                        groups[local.hour].append(float(tick % 48))
                for hour in range(24):
                    cell = found.sel(hour_of_day=hour).isel(station=number)
                    assert int(cell["count"]) == len(groups[hour])
                    assert int(cell["count_possible"]) == possible_of[hour]
                    if function == "sample":
                        assert float(cell["value"]) in groups[hour]
                    else:
                        check(function, np.array(groups[hour]), cell)


def test_coverage_of_a_partial_month_and_cells_shorter_than_the_interval(archive: OpenArchive) -> None:
    months = archive["air_temperature"].aggregate("mean", time="month").compute()
    # 12 of 31 days of October, 2 of 30 of November: too few for a mean.
    assert months["count_possible"].to_numpy()[:, 0].tolist() == [31 * 48, 30 * 48]
    assert np.isnan(months["value"].to_numpy()).all()
    kept = archive["air_temperature"].aggregate("mean", time={"edges": ["2024-10-21", "2024-10-23T12:00"]}).compute()
    assert kept["count_possible"].to_numpy().tolist() == [[120, 120]]
    assert np.isfinite(kept["value"].to_numpy()).all()
    for spec in ({"periodic": "10min", "within": "1day"}, {"edges": ["2024-10-21", "2024-10-21T00:10"]}):
        with pytest.raises(InvalidQuery, match="time cells of 10min are shorter than the 30min"):
            archive["air_temperature"].aggregate("mean", time=spec).compute()


def test_a_window_longer_than_the_data_is_one_partial_cell(archive: OpenArchive) -> None:
    year = archive["air_temperature"].aggregate("mean", time="year", min_coverage=0.0).compute()
    assert year["count_possible"].to_numpy()[0, 0] == 366 * 48
    assert 0 < int(year["count"].to_numpy()[0, 0]) < 14 * 48
    far = archive["air_temperature"].aggregate(
        "mean", time={"edges": ["2020-01-01", "2024-10-25", "2030-01-01", "2031-01-01"]}
    )
    assert far.aggregate("count", time="all").compute()["value"].to_numpy().tolist() == [[0.0, 0.0]]
    assert far.compute()["count"].to_numpy()[2].tolist() == [0, 0]


def test_a_window_in_which_nothing_can_be_known_is_refused(archive: OpenArchive) -> None:
    base = archive["air_temperature"]
    for query in (
        base.aggregate("mean", time="30day"),
        base.aggregate("mean", time={"length": "30day", "step": "1day"}),
        base.aggregate("mean", time="1h").aggregate("max", time="20day", min_coverage=0.9),
    ):
        with pytest.raises(InvalidQuery, match=r"^step [12] \(aggregate .*are longer than the .* that there are: none"):
            query.plan()
    # The readings are of 14 days: three quarters of 18 days can be there, of 20 not.
    assert base.aggregate("mean", time="18day", min_coverage=0.75).plan().cells
    with pytest.raises(InvalidQuery, match="none can hold the 75% that min_coverage asks for"):
        base.aggregate("mean", time="20day", min_coverage=0.75).plan()
    assert base.aggregate("mean", time="30day", min_coverage=0).compute()["count"].to_numpy().max() > 0


def test_windows_without_number_are_refused_without_listing_them(archive: OpenArchive) -> None:
    """A day that slides by a nanosecond over half a day of readings: 4 * 10^13 cells."""
    base = archive["air_temperature"].clip(time=("2024-10-24", "2024-10-24T12:00"))
    short = archive["air_temperature"].aggregate("mean", time="1h").clip(time=("2024-10-24", "2024-10-24T12:00"))
    for query in (base, short):
        with pytest.raises((InvalidQuery, TooLarge)):
            archive.query(
                {**query.to_json(), "steps": [
                    *query.to_json()["steps"],
                    {"op": "aggregate", "function": "mean", "time": {"length": "1day", "step": "1ns"}},
                ]}
            ).plan().check(1 << 30)  # fmt: skip


def test_windows_are_refused_by_where_they_lie_not_by_their_length_alone(tmp_path: Path) -> None:
    """Six days of readings lie across the edges of two weeks that are counted from 1970, 2024-10-24 and 10-31."""
    start = parse_instant("2024-10-29")
    series = [Series("air_temperature", "a", 2.0, 1, "sample", 3600.0)]
    begins = [start + hour * 3600 * SECOND_NS for hour in range(144)]
    readings = table(series, [Row(0, begin, begin, 5.0, 2) for begin in begins])
    stations = [Station("a", "a", (Position(None, 7.17, 45.86, 2000.0),))]
    base = write_archive(tmp_path / "archive", stations=stations, readings=[readings])["air_temperature"]
    with pytest.raises(InvalidQuery, match=r"time cells of 7day are longer than the .* that there are: none can hold"):
        base.aggregate("mean", time="7day").plan()
    hourly = base.aggregate("mean", time="1h")
    with pytest.raises(InvalidQuery, match=r"^step 2 .*cells of 4day lie across the edges of the .* that there are"):
        hourly.aggregate("mean", time="4day", min_coverage=0.9).plan()
    # Four days of seven are there from the 31st on.
    for share, is_there in ((0.57, True), (0.6, False)):
        for query in (base, hourly):
            if is_there:
                assert query.aggregate("mean", time="7day", min_coverage=share).compute()["value"].notnull().any()
            else:
                with pytest.raises(InvalidQuery, match="none can hold the 60%"):
                    query.aggregate("mean", time="7day", min_coverage=share).plan()


def test_a_result_without_any_value_says_what_coverage_was_asked_for(archive: OpenArchive, tmp_path: Path) -> None:
    base = archive["air_temperature"]
    month = base.aggregate("degree_days", base=5.0, time="month")
    note = (
        "every value is missing: of what a cell could hold degree_days 100% (its default) must be there; min_coverage "
        "says how much, 0 takes what there is"
    )
    assert month.compute().attrs["comment"].endswith(note)
    month.to_zarr(tmp_path / "month.zarr")
    assert xr.open_zarr(tmp_path / "month.zarr", consolidated=False).attrs["comment"].endswith(note)
    refined = [state.dataset().attrs.get("comment", "") for state in month.refine(order="raster")]
    assert refined[-1].endswith(note)
    season = base.aggregate("mean", time="season", min_coverage=0.97)
    assert "hold mean 97% must be there" in season.compute().attrs["comment"]
    taken = base.aggregate("degree_days", base=5.0, time="month", min_coverage=0).compute()
    assert taken["value"].notnull().any()
    assert "every value" not in taken.attrs.get("comment", "")


def test_json_keeps_every_kind(archive: OpenArchive) -> None:
    for spec in (
        "season",
        {"edges": ["2024-10-21", "2024-10-22"]},
        {"periodic": "6h", "within": "1day", "phase": "3h"},
    ):
        query = archive["air_temperature"].aggregate("mean", time=spec)
        again = archive.query(query.to_json())
        assert again.token == query.token


@pytest.mark.parametrize(
    ("spec", "kind", "message"),
    [
        ("mnth", NotFound, "unknown time cells 'mnth'; did you mean 'month'"),
        ("0h", InvalidTime, "above zero"),
        ("1month", InvalidTime, "write 'month' for each month .*'hydrological_year'.*'month_of_year'.*'edges'"),
        ("3 months", InvalidTime, "'season'"),
        ({"step": "2 years", "zone": ZURICH}, InvalidTime, "write 'year' for each year"),
        ({"length": "1month", "step": "1day"}, InvalidTime, "write 'month'"),
        ({"periodic": "1month"}, InvalidTime, "come again every year are 'day_of_year', 'month_of_year'"),
        ({"periodic": "1day", "within": "1month"}, InvalidTime, "write 'month'"),
        ({"step": "-1day", "zone": ZURICH}, InvalidTime, "above zero"),
        ({"step": "1day", "zone": "Europe/Zurch"}, NotFound, "unknown time zone 'Europe/Zurch'; did you mean 'E"),
        ({"step": "1day", "zone": 3}, NotFound, "unknown time zone '3'"),
        ({"step": "1h", "zone": ZURICH}, InvalidQuery, "by a zone need whole days"),
        ({"step": "1day", "length": "2day", "zone": ZURICH}, InvalidQuery, "and no 'length'"),
        ({"step": "1day", "ofset": "6h"}, NotFound, "unknown key of time cells 'ofset'; did you mean 'offset'"),
        ({"zone": ZURICH}, InvalidQuery, "need a 'step'"),
        ({"edges": ["2007-04-01"]}, InvalidQuery, "two instants or more"),
        ({"edges": "2007-04-01"}, InvalidQuery, "two instants or more"),
        ({"edges": ["2007-04-01", "2007-04-03", "2007-04-02"]}, InvalidTime, "3, 2007-04-02, is not after 2007-04-03"),
        ({"edges": ["2007-04-01", "2007-04-01"]}, InvalidTime, "instants that increase"),
        ({"edges": ["2007-04-01", "soon"]}, InvalidTime, "ISO 8601"),
        ({"edges": ["1999-04-01", "2000-01-01"]}, InvalidQuery, "no time cell lies where its source does"),
        ({"hydrological_year": 13}, InvalidQuery, "1 to 12; got 13"),
        ({"hydrological_year": "may"}, InvalidQuery, "1 to 12; got 'may'"),
        ({"periodic": "hour_of_dy"}, NotFound, "unknown periodic cells 'hour_of_dy'; did you mean 'hour_of_day'"),
        ({"periodic": "6h"}, InvalidQuery, "such as 'within': '1day'"),
        ({"periodic": "5h", "within": "1day"}, InvalidQuery, "fits into their period"),
        ({"periodic": "1day", "within": "1day"}, InvalidQuery, "fits into their period"),
        ({"periodic": "hour_of_day", "within": "1day"}, NotFound, "unknown key of time cells 'within'"),
        ({"periodic": "hour_of_day", "zone": ZURICH, "solar": True}, InvalidQuery, "got both"),
        ({"periodic": "hour_of_day", "solar": "yes"}, InvalidQuery, "true or false; got 'yes'"),
        (["month"], InvalidQuery, "time cells need a duration"),
        (7, InvalidQuery, "time cells need a duration"),
    ],
)  # fmt: skip
def test_bad_cells_say_what_is_wrong(spec: object, kind: type[HyperGridError], message: str) -> None:
    with pytest.raises(kind, match=message) as caught:
        hg.base(array("2007-04-01", 48)).aggregate("mean", time=spec).compute()
    assert str(caught.value).startswith("step 1 (aggregate 'mean')")


def test_what_cannot_follow_is_refused() -> None:
    base = hg.base(array("2007-04-01", 96))
    hours = base.aggregate("mean", time="hour_of_day")
    for time in ("all", "month", "6h", "hour_of_day"):
        with pytest.raises(InvalidQuery, match=r"cells of hour_of_day \(UTC\), each of many times at once"):
            hours.aggregate("mean", time=time).compute()
    with pytest.raises(InvalidQuery, match="no instant between them"):
        hours.interpolate("linear", time="10min").compute()
    with pytest.raises(InvalidQuery, match="different time cells"):
        hours.merge("difference", base.aggregate("mean", time="1h")).compute()
    indian = base.aggregate("mean", time={"periodic": "hour_of_day", "zone": "Asia/Kolkata"})
    with pytest.raises(InvalidQuery, match=r"cell 0 of hour_of_day \(UTC\) lies in several cells of hour_of_day \(A"):
        hours.merge("difference", indian).compute()
    with pytest.raises(InvalidQuery, match="over different times"):
        hours.merge("difference", hg.base(array("2007-04-02", 96)).aggregate("mean", time="hour_of_day")).compute()
    with pytest.raises(InvalidQuery, match="would cut the source's cells"):
        base.aggregate("mean", time="7h").aggregate("mean", time="month").compute()
    with pytest.raises(InvalidQuery, match=r"would cut the source's cells \(month\)"):
        base.aggregate("mean", time="month").aggregate("mean", time="10day").compute()
    with pytest.raises(InvalidQuery, match="would cut the source's cells"):
        base.aggregate("mean", time="1h").aggregate("mean", time={"periodic": "hour_of_day", "solar": True}).compute()
    metres = array("2007-04-01", 48).drop_vars(["lon", "lat"])
    metres = metres.assign_coords(x=("station", np.arange(4.0)), y=("station", np.arange(4.0)))
    with pytest.raises(InvalidQuery, match="solar time needs stations with lon and lat"):
        hg.base(metres).aggregate("mean", time={"periodic": "hour_of_day", "solar": True}).compute()
    radiation = array("2007-04-01", 48).rename("global_radiation").assign_attrs(units="W m-2")
    with pytest.raises(InvalidQuery, match="needs time cells that lie somewhere in time"):
        hg.base(radiation).aggregate("mean", time="hour_of_day").convert("clear_sky_index").compute()
    months = hg.base(radiation).aggregate("mean", time="month", min_coverage=0)
    monthly = months.convert("clear_sky_index").compute()
    assert np.isfinite(monthly["value"].to_numpy()).all()


def computed(perspective: Perspective) -> dict[str, np.ndarray[Any, Any]]:
    block = Evaluator().surface(perspective, np.arange(perspective.topology.space.count))
    shape = block.value.shape
    return {"value": block.value, "count": block.count * np.ones(shape), "possible": block.possible * np.ones(shape)}


@settings(max_examples=30)
@given(
    spec=st.sampled_from(["month", "hour_of_day", "day_of_year", {"step": "1day", "zone": ZURICH}]),
    kriged=st.booleans(), first=st.integers(0, 400), count=st.integers(1, 30),
    below=st.sampled_from([None, "1day", "1h"]),
)  # fmt: skip
def test_a_part_of_the_cells_is_that_part_of_the_surface(
    spec: Any,  # noqa: ANN401 - a specification
    kriged: bool,  # noqa: FBT001 - Hypothesis draws it
    first: int,
    count: int,
    below: str | None,
) -> None:
    query = hg.base(array("2007-02-10", 24 * 60))
    if below == "1h" or (below == "1day" and spec in ("month", "day_of_year")):
        query = query.aggregate("mean", time=below)
    if kriged:
        query = query.interpolate("ordinary_kriging", grid=GRID, variogram=MODEL, neighbours=3)
    whole = query.aggregate("mean", time=spec).surface().perspective
    first = min(first, whole.topology.time.count - 1)
    stop = min(first + count, whole.topology.time.count)
    expected, found = computed(whole), computed(restrict(whole, slice(first, stop)))
    for name, whole_table in expected.items():
        np.testing.assert_allclose(found[name], whole_table[first:stop], rtol=1e-12, err_msg=name)
