"""Honest counts, coverage, flags, statistics, positions: small cases done by hand."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import xarray as xr

import hypergrid as hg
from hypergrid.core.errors import InvalidQuery, InvalidUnit, NotFound
from hypergrid.core.readings import Position, Series, Station
from hypergrid.core.times import SECOND_NS, parse_instant
from hypergrid.query import OpenArchive
from tests.support.feeds import Row
from tests.support.networks import table, write_archive

Make = Callable[..., OpenArchive]
GRID = {"lon": 7.17, "lat": 45.86, "step": "10arcsec", "shape": [2, 2]}
MODEL = {"variogram": {"model": "exponential", "psill": 1.0, "range_m": 500.0, "nugget": 0.1}}


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Build an archive from series, each with (time of 2007-10-01, value[, flag]) rows, and stations a to d."""

    def build(*given: tuple[Series, list[tuple[Any, ...]]], stations: tuple[Station, ...] = ()) -> OpenArchive:
        placed = stations or tuple(
            Station(name, name, (Position(None, 7.17 + 0.002 * i, 45.86 + 0.001 * i * i, 2000.0),))
            for i, name in enumerate("abcd")
        )
        parts = []
        for variable in dict.fromkeys(series.variable for series, _ in given):
            own = [(series, rows) for series, rows in given if series.variable == variable]
            listed = []
            for number, (_, rows) in enumerate(own):
                for time, value, *flag in rows:
                    stamp = parse_instant(f"2007-10-01T{time}Z")
                    listed.append(Row(number, stamp, stamp, float(value), flag[0] if flag else 2))
            parts.append(table([series for series, _ in own], listed))
        return write_archive(tmp_path / "archive", stations=placed, readings=parts)

    return build


def sensor(station: str, **given: Any) -> Series:  # noqa: ANN401 - the fields of a series
    return Series(**{"variable": "air_temperature", "station": station, "height_m": 2.0, "interval_s": 120.0, **given})


def every(minutes: int, start: int, stop: int, value: float = 1.0) -> list[tuple[str, float]]:
    return [(f"{m // 60:02d}:{m % 60:02d}:00", value) for m in range(start, stop, minutes)]


def kriged(query: Any, grid: object = GRID) -> Any:  # noqa: ANN401 - a query
    return query.interpolate("ordinary_kriging", grid=grid, **MODEL)


def values(dataset: xr.Dataset, name: str = "value") -> list[Any]:
    return list(dataset[name].to_numpy().ravel().tolist())


# 00:00    00:10     00:20      00:30
# |.....   |....     |..        |        readings of 5 possible: 5, 4, 2
def test_counts_and_coverage_of_means_and_totals(make: Make) -> None:
    rows = every(2, 0, 18) + every(2, 20, 24)
    query = make((sensor("a"), rows))["air_temperature"]
    mean = query.aggregate("mean", time="10min").compute()
    assert values(mean, "count") == [5, 4, 2]
    assert values(mean, "count_possible") == [5, 5, 5]
    assert values(mean)[:2] == [1.0, 1.0]
    assert np.isnan(values(mean)[2])
    total = query.aggregate("sum", time="10min").compute()
    assert values(total)[0] == 5.0
    assert np.isnan(values(total)[1:]).all()
    assert values(query.aggregate("sum", time="10min", min_coverage=0.8).compute())[:2] == [5.0, 4.0]
    assert values(query.aggregate("sum", time="10min", min_coverage="40 %").compute()) == [5.0, 4.0, 2.0]
    for function in ("min", "max", "count", "first", "last", "sample"):
        assert np.isfinite(values(query.aggregate(function, time="10min").compute())).all()
    assert values(query.aggregate("count", time="10min").compute()) == [5.0, 4.0, 2.0]
    assert query.aggregate("count", time="10min").compute()["value"].attrs["units"] == "1"


def test_fifty_five_of_a_hundred_is_fifty_five_per_cent(make: Make) -> None:
    rows = [(f"00:{s // 60:02d}:{s % 60:02d}", 1.0) for s in range(0, 55 * 36, 36)]
    archive = make((sensor("a", interval_s=36.0), rows))
    query = archive["air_temperature"].aggregate("mean", time="1h", min_coverage=0.55)
    assert values(query.compute()) == [1.0]


def test_a_cell_at_the_edge_is_partial_and_says_so(make: Make) -> None:
    archive = make((sensor("a"), every(2, 4, 14)))
    found = archive["air_temperature"].aggregate("mean", time="10min", min_coverage=0).compute()
    assert values(found, "count") == [3, 2]
    assert values(found, "count_possible") == [5, 5]
    assert found["time"].to_numpy()[0] == np.datetime64("2007-10-01T00:00")
    assert found["time_bounds"].to_numpy()[-1, 1] == np.datetime64("2007-10-01T00:20")


def test_all_after_other_cells_takes_whole_cells_where_the_readings_begin_within_one(make: Make) -> None:
    archive = make((sensor("a"), every(2, 4, 34)))
    found = archive["air_temperature"].aggregate("mean", time="10min").aggregate("count", time="all").compute()
    assert found["time_bounds"].to_numpy().ravel().tolist() == [
        parse_instant("2007-10-01T00:00"), parse_instant("2007-10-01T00:40"),
    ]  # fmt: skip
    assert values(found, "count_possible") == [4]
    # The first cell has 3 of 5, the last 2 of 5: below 80 %.
    assert values(found) == [2.0]


def test_flags_are_left_out_and_counted(make: Make) -> None:
    rows = [("00:00:00", 1.0, 1), ("00:02:00", 100.0, 3), ("00:04:00", 3.0, 2), ("00:06:00", np.nan, 9)]
    query = make((sensor("a"), [*rows, ("00:08:00", 900.0, 1)]))["air_temperature"]
    found = query.convert("valid_range", low=-40, high=50).aggregate("mean", time="10min", min_coverage=0).compute()
    assert values(found) == [2.0]
    assert values(found, "count") == [2]
    left_out = found.attrs["hypergrid_readings_left_out"]
    assert left_out == "1 by flag 3, 1 by flag 9, 1 by valid_range"
    suspect = query.accept_flags(1, 2, 3).aggregate("max", time="10min").compute()
    assert values(suspect) == [900.0]
    assert values(suspect, "count") == [4]
    with pytest.raises(InvalidQuery, match="accept_flags needs"):
        query.accept_flags(7)


def test_flags_are_named_where_they_leave_nothing(make: Make) -> None:
    rows = [("00:00:00", 1.0, 3), ("00:02:00", 1.0, 3), ("00:04:00", 1.0, 4)]
    found = make((sensor("a"), rows))["air_temperature"].aggregate("mean", time="10min").compute()
    assert "every value is missing: readings are left out by their flags, 2 suspect, 1 fail" in found.attrs["comment"]
    assert "mean 80% (its default) must be there" in found.attrs["comment"]


def test_a_reading_that_two_sources_of_a_merge_leave_out_is_counted_once(make: Make) -> None:
    """Of 30 readings 4 are suspect or impossible; both sources read some of them, in windows of their own."""
    rows = [(f"00:{2 * k:02d}:00", 900.0 if k in (3, 20) else 5.0, 3 if k in (4, 25) else 1) for k in range(30)]
    query = make((sensor("a"), rows))["air_temperature"].convert("valid_range", low=-40, high=50)
    cells = query.aggregate("mean", time="10min", min_coverage=0)
    normal = query.aggregate("mean", time="all", min_coverage=0).clip(time=("2007-10-01T00:00", "2007-10-01T00:30"))
    merged = cells.merge("anomaly", normal)
    assert merged.compute().attrs["hypergrid_readings_left_out"] == "2 by flag 3, 2 by valid_range"
    late = merged.clip(time=("2007-10-01T00:40", "2007-10-01T01:00"))
    assert late.compute().attrs["hypergrid_readings_left_out"] == "2 by flag 3, 2 by valid_range"
    assert normal.compute().attrs["hypergrid_readings_left_out"] == "1 by flag 3, 1 by valid_range"


def test_scaled_values_lose_the_name_of_what_they_were(make: Make) -> None:
    """Twice a temperature is no temperature; one in another unit is, and so is one with a constant taken off."""
    query = make((sensor("a"), [("00:00:00", 4.0)]))["air_temperature"]
    for given, unit, standard_name in (
        ({"factor": 2.0}, "degC", None),
        ({"factor": 1.0, "offset": -0.3}, "degC", "air_temperature"),
        ({"factor": 1.8, "offset": 32.0, "unit": "degF"}, "degF", None),
    ):
        found = query.convert("scale", **given).aggregate("mean", time="10min", min_coverage=0).compute()["value"]
        assert (found.attrs["units"], found.attrs.get("standard_name")) == (unit, standard_name)


def test_samples_and_means_are_read_unless_one_selects(make: Make) -> None:
    archive = make(
        (sensor("a"), [("00:00:00", 1.0)]),
        (sensor("a", statistic="mean", height_m=5.0), [("00:00:00", 2.0)]),
        (sensor("a", statistic="max"), [("00:00:00", 9.0)]),
        (sensor("b", height_m=10.0), [("00:00:00", 3.0)]),
    )
    query = archive["air_temperature"]
    first = query.aggregate("first", time="10min")
    assert values(first.compute()) == [1.0, 2.0, 3.0]
    assert values(query.select(height_m=10.0).aggregate("first", time="10min").compute()) == [3.0]
    assert values(query.select(station=["a"], height_m=[2.0, 5.0]).aggregate("first", time="10min").compute()) == [1, 2]
    maxima = query.select(statistic="max")
    assert values(maxima.aggregate("max", time="10min").compute()) == [9.0]
    with pytest.raises(InvalidQuery, match="a mean of max values is not the mean of the readings"):
        maxima.aggregate("mean", time="10min").plan()
    with pytest.raises(InvalidQuery, match="no series .* has statistic='min'; there are: statistic max, mean, sample"):
        query.select(statistic="min").plan()
    with pytest.raises(NotFound, match="property of a series to select by 'hight_m'; did you mean 'height_m'"):
        query.select(hight_m=2)


def test_a_mean_stamped_at_its_end_belongs_to_the_cell_before(make: Make) -> None:
    archive = make(
        (sensor("a", statistic="mean", interval_s=600.0, stamp="end"), [("00:10:00", 1.0), ("00:20:00", 2.0)])
    )
    found = archive["air_temperature"].aggregate("mean", time="10min").compute()
    assert values(found) == [1.0, 2.0]
    assert found["time"].to_numpy()[0] == np.datetime64("2007-10-01T00:00")


def test_a_station_without_a_position_is_named_and_left_out(make: Make) -> None:
    nowhere = Position(None, np.nan, np.nan, np.nan)
    stations = (
        Station("a", "a", (Position(None, 7.17, 45.86, 1.0),)), Station("b", "b", (nowhere,)),
        Station("d", "d", (Position(None, 7.171, 45.861, 1.0),)),
    )  # fmt: skip
    archive = make(*((sensor(name), every(2, 0, 10)) for name in "abcd"), stations=stations)
    found = archive["air_temperature"].aggregate("mean", time="10min").interpolate(
        "ordinary_kriging", grid=GRID, **MODEL
    ).compute()  # fmt: skip
    assert set(values(found, "count")) == {2}
    assert set(values(found, "count_possible")) == {2}
    assert "without a position are not used: b, c" in found.attrs["comment"]
    np.testing.assert_allclose(values(found), 1.0)


def test_no_station_with_a_position_is_refused(make: Make) -> None:
    nowhere = Station("a", "a", (Position(None, np.nan, np.nan, np.nan),))
    query = make((sensor("a"), every(2, 0, 10)), stations=(nowhere,))["air_temperature"]
    with pytest.raises(InvalidQuery, match="none of the 1 stations has a position"):
        query.interpolate("ordinary_kriging", grid=GRID, **MODEL).plan()


def test_a_grid_that_misses_all_stations_is_refused_with_the_distance(make: Make) -> None:
    query = make(*((sensor(name), every(2, 0, 10)) for name in "abc"))["air_temperature"]
    with pytest.raises(InvalidQuery, match=r"misses all 3 stations: the nearest is [0-9,.]+ km away"):
        query.interpolate("ordinary_kriging", grid={**GRID, "lon": 17.0}, **MODEL).plan()


def test_a_station_that_moves_stands_where_it_stood_at_the_end(make: Make) -> None:
    moved = Station(
        "a", "a",
        (Position(None, 7.17, 45.86, 1.0), Position(parse_instant("2007-10-01T06:00"), 7.18, 45.87, 2.0)),
    )  # fmt: skip
    query = make((sensor("a"), every(2, 0, 720)), stations=(moved,))["air_temperature"]
    later = query.aggregate("mean", time="all").compute()
    assert (later["lon"].item(), later["elevation"].item()) == (7.18, 2.0)
    morning = query.aggregate("mean", time="all").clip(time=("2007-10-01T00:00", "2007-10-01T06:00")).compute()
    assert (morning["lon"].item(), morning["elevation"].item()) == (7.17, 1.0)


def test_a_slice_without_stations_is_missing_with_count_zero(make: Make) -> None:
    archive = make(*((sensor(name), every(2, 0, 10) + every(2, 20, 30)) for name in "ab"))
    query = archive["air_temperature"].aggregate("mean", time="10min")
    found = query.interpolate("ordinary_kriging", grid=GRID, **MODEL).compute()
    assert found["count"].isel(lat=0, lon=0).to_numpy().tolist() == [2, 0, 2]
    assert np.isnan(found["value"].isel(time=1)).all()
    assert np.isfinite(found["value"].isel(time=[0, 2])).all()


@pytest.mark.parametrize("neighbours", [None, 1])
def test_a_surface_without_any_value_is_missing(make: Make, neighbours: int | None) -> None:
    query = make(*((sensor(name), every(2, 0, 10, 99.0)) for name in "ab"))["air_temperature"]
    found = (
        query.convert("valid_range", low=-40, high=50)
        .aggregate("mean", time="10min")
        .interpolate("ordinary_kriging", grid=GRID, neighbours=neighbours, **MODEL)
        .with_variance()
        .compute()
    )
    assert np.isnan(found["value"]).all()
    assert np.isnan(found["variance"]).all()
    assert (found["count"] == 0).all()


def test_a_difference_of_two_units_is_taken_in_one(make: Make) -> None:
    other = sensor("a", variable="surface_temperature")
    archive = make((sensor("a"), [("00:00:00", 20.0)]), (other, [("00:00:00", 15.0)]))
    warm = archive["air_temperature"].aggregate("first", time="10min")
    kelvin = archive["surface_temperature"].convert("scale", factor=1.0, offset=273.15, unit="K")
    found = warm.merge("difference", kelvin.aggregate("first", time="10min")).compute()
    assert values(found) == [pytest.approx(5.0)]
    # A difference of temperatures is not a temperature.
    assert found["value"].attrs["units"] == "K"
    assert "standard_name" not in found["value"].attrs
    with pytest.raises(InvalidUnit, match="a ratio needs values whose 0 is nothing; got 'degC'"):
        warm.merge("ratio", warm).compute()
    absolute = warm.convert("scale", factor=1.0, offset=273.15, unit="K")
    ratio = absolute.merge("ratio", absolute).compute()
    assert values(ratio) == [1.0]
    assert ratio["value"].attrs["units"] == "1"
    wet = archive["surface_temperature"].convert("scale", factor=1.0, unit="%").aggregate("first", time="10min")
    with pytest.raises(InvalidUnit, match="does not convert"):
        warm.merge("difference", wet).plan()


def test_merges_that_do_not_fit_are_refused(make: Make) -> None:
    query = make((sensor("a"), every(2, 0, 30)), (sensor("b"), every(2, 0, 30)))["air_temperature"]
    ten, five = query.aggregate("mean", time="10min"), query.aggregate("mean", time="5min")
    with pytest.raises(InvalidQuery, match="step 2 .*different time cells"):
        ten.merge("difference", five).plan()
    with pytest.raises(InvalidQuery, match="align both"):
        query.merge("difference", query).plan()
    with pytest.raises(InvalidQuery, match="takes one other query"):
        ten.merge("difference", ten, ten).plan()
    with pytest.raises(InvalidQuery, match="different cells in space"):
        ten.merge("difference", query.select(station="a").aggregate("mean", time="10min")).plan()


@pytest.mark.parametrize(
    ("step", "says"),
    [
        (lambda q: q.aggregate("mean", time="10min").aggregate("mean", time="15min"), "would cut the source's cells"),
        (lambda q: q.aggregate("mean"), "needs cells"),
        (lambda q: q.aggregate("mean", lon="1arcsec"), "needs a grid"),
        (lambda q: q.aggregate("mean", time="10min", min_coverage=2), "share from 0 to 1"),
        (lambda q: q.convert("valid_range", low=5, high=1), "low not above high"),
        (lambda q: kriged(kriged(q)), "a grid already"),
        (lambda q: kriged(q, {"x": 0, "y": 0, "step": 1, "shape": [1, 1]}), "its stations have lon and lat"),
        (lambda q: kriged(q).aggregate("first", lon="all"), "chooses a value"),
        (lambda q: q.with_variance(), "variance belongs to"),
        (lambda q: q.aggregate("mean", time="10min").clip(time=("2007-10-01T00:51", "2007-10-01T00:59")), "no cell"),
        (lambda q: q.clip(time=("2009-01-01", "2009-01-02")), "no reading of 'air_temperature' lies in"),
        (lambda q: q.aggregate("mean", time="all").clip(time=("2009-01-01", "2009-01-02")), "readings run from 2007"),
    ],
)  # fmt: skip
def test_questions_that_cannot_be_answered_say_why(make: Make, step: Callable[[Any], Any], says: str) -> None:
    query = make(*((sensor(name), every(2, 0, 60)) for name in "ab"))["air_temperature"]
    with pytest.raises(InvalidQuery, match=says):
        step(query).plan()


def test_bounds_may_be_datetimes_and_are_written_as_text(make: Make) -> None:
    query = make((sensor("a"), every(2, 0, 60)))["air_temperature"].aggregate("mean", time="10min")
    bounds = (np.datetime64("2007-10-01T00:10"), np.datetime64("2007-10-01T00:30"))
    clipped = query.clip(time=bounds)
    assert clipped.to_json()["clip"] == {"time": ["2007-10-01T00:10Z", "2007-10-01T00:30Z"]}
    assert clipped.compute().sizes["time"] == 2


def test_an_array_has_the_intervals_of_its_instants() -> None:
    times = np.arange(4) * 60 * SECOND_NS
    array = xr.DataArray(
        [[1.0, np.nan], [np.nan, np.nan], [3.0, np.nan], [4.0, 8.0]], dims=("time", "station"),
        coords={"time": times.view("datetime64[ns]"), "x": ("station", [0.0, 9.0]), "y": ("station", [0.0, 0.0])},
    )  # fmt: skip
    found = hg.base(array).aggregate("mean", time="2min").compute()
    # Half of two minutes is too little for the 80 % that a mean needs.
    np.testing.assert_array_equal(found["value"], [[np.nan, np.nan], [3.5, np.nan]])
    np.testing.assert_array_equal(found["count"], [[1, 0], [2, 1]])
    every = hg.base(array).aggregate("mean", time="2min", min_coverage=0).compute()
    np.testing.assert_array_equal(every["value"], [[1.0, np.nan], [3.5, 8.0]])


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda a: a.rename(station="place"), "needs the dimensions"),
        (lambda a: a.drop_vars("x"), "needs coordinates"),
        (lambda a: a.drop_vars("time"), "coordinate 'time'"),
        (lambda a: a.isel(time=[1, 0]), "strictly increasing"),
        (lambda a: a.isel(time=[]), "strictly increasing"),
    ],
)
def test_arrays_that_are_no_base_are_refused(change: Callable[[xr.DataArray], xr.DataArray], says: str) -> None:
    coords = {"time": np.arange(2).astype("datetime64[s]"), "x": ("station", [0.0]), "y": ("station", [0.0])}
    array = xr.DataArray([[1.0], [2.0]], dims=("time", "station"), coords=coords)
    with pytest.raises(InvalidQuery, match=says):
        hg.base(change(array))


def test_a_station_of_two_series_is_no_id_of_one(make: Make) -> None:
    archive = make((sensor("a"), [("00:00:00", 1.0)]), (sensor("a", height_m=10.0), [("00:00:00", 2.0)]))
    both = archive["air_temperature"].aggregate("first", time="10min")
    assert both.compute().sizes["series"] == 2
    assert "cf_role" not in both.compute()["station"].attrs
    upper = both.select(height_m=10.0).compute()
    assert upper["station"].attrs["cf_role"] == "timeseries_id"
    assert float(upper["air_temperature"].sel(station="a").item()) == 2.0
