"""Interpolation in time in queries: whole questions against the oracle, and what each part of a step means."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from hypothesis import HealthCheck, Phase, event, given, reject, settings
from hypothesis import strategies as st

import hypergrid as hg
from hypergrid.core.errors import HyperGridError, InvalidQuery, InvalidTime, NotFound
from hypergrid.core.readings import Position, Series, Station
from hypergrid.core.times import SECOND_NS
from hypergrid.execution import make_plan, run
from hypergrid.perspective import Surface, question_from_json
from hypergrid.query import OpenArchive, Query
from tests.support.feeds import Feed, Row
from tests.support.networks import START_NS, random_archive, random_array, table, write_archive
from tests.support.oracle import answer

METHODS = ("nearest", "linear", "spline")
KRIGING = {"variogram": {"model": "exponential", "psill": 1.0, "range_m": 300.0, "nugget": 0.05}}
GRID = {"lon": "7:10:39", "lat": "45:52:03", "step": "3arcsec", "shape": [2, 3]}
every = pytest.mark.parametrize("method", METHODS)


def readings(minutes: list[float], values: list[float], *, unit: str = "degC") -> xr.DataArray:
    """Return one station's readings, in minutes since the start of a day."""
    times = pd.Timestamp("2007-10-01") + pd.to_timedelta(minutes, unit="min")
    coords = {"time": times, "x": ("station", [0.0]), "y": ("station", [0.0])}
    return xr.DataArray(
        np.array(values)[:, None], dims=("time", "station"), coords=coords, name="t", attrs={"units": unit}
    )


def archive_of(folder: Path, series: Series, rows: list[tuple[float, float, int]]) -> OpenArchive:
    """Write an archive of one series; readings as minutes since its start, value and flag."""
    stamps = [START_NS + round(minute * 60) * SECOND_NS for minute, _, _ in rows]
    listed = [Row(0, t, t, value, flag) for t, (_, value, flag) in zip(stamps, rows, strict=True)]
    station = Station("a", "a", (Position(None, 7.17, 45.86, 2000.0),))
    return write_archive(folder, stations=[station], readings=[table([series], listed)])


def values(query: Query) -> dict[int, float]:
    """Return the values of one series by minute since the start, missing ones left out."""
    found = query.compute()["value"][:, 0].to_series()
    minutes = (found.index - pd.Timestamp("2007-10-01")) / pd.Timedelta("1min")
    return {int(minute): value for minute, value in zip(minutes, found, strict=True) if np.isfinite(value)}


# Whole questions against a slow loop.


@st.composite
def documents(draw: st.DrawFn) -> dict[str, Any]:
    """Return a question with an interpolation in time, steps before and after it, and perhaps a clip."""
    before = draw(
        st.sampled_from(
            [
                [],
                [{"op": "convert", "function": "valid_range", "params": {"low": -3.0, "high": 12.0}}],
                [{"op": "aggregate", "function": "mean", "time": "4min", "params": {"min_coverage": 0}}],
                [{"op": "aggregate", "function": "last", "time": {"length": "10min", "step": "5min"}}],
                [{"op": "interpolate", "method": "linear", "time": "7min", "params": {"max_gap": "30min"}}],
            ]
        )
    )
    in_time = {
        "op": "interpolate",
        "method": draw(st.sampled_from(METHODS)),
        "time": draw(st.sampled_from(["45s", "3min", "10min", "25min"])),
        "params": {"max_gap": draw(st.sampled_from(["2min", "5min", "20min", "3h"]))},
    }
    mean = {"op": "aggregate", "function": "mean", "params": {"min_coverage": 0}}
    after = draw(st.sampled_from([[], [{**mean, "time": "1h"}], [{**mean, "time": "all"}], [in_time]]))
    document: dict[str, Any] = {"variable": "air_temperature", "steps": [*before, in_time, *after]}
    if draw(st.integers(0, 3)):
        first = draw(st.integers(0, 200))
        last = first + draw(st.integers(10, 100))
        document["clip"] = {"time": [f"2007-10-01T{m // 60:02d}:{m % 60:02d}Z" for m in (first, last)]}
    return document


def check(query: Query, feeds: dict[str, Feed]) -> None:
    try:
        surface = query.surface()
    except HyperGridError as error:
        event(f"refused: {str(error)[-40:]}")
        reject()
    expected = answer(query.question, feeds)
    found = query.compute()
    assert found["time"].to_numpy().astype(np.int64).tolist() == [cell.corner for cell in expected.times.cells]
    np.testing.assert_allclose(found["value"], expected.value, rtol=1e-9, atol=1e-7)
    np.testing.assert_array_equal(found["count"], expected.count)
    np.testing.assert_array_equal(found["count_possible"], expected.possible)
    # The clip changes no value: those of the whole surface, computed without any rule, hold the same.
    whole = list(run(make_plan(Surface(surface.perspective))))[-1].outcome.value
    corners = surface.perspective.topology.time.corners
    kept = np.isin(corners, found["time"].to_numpy().astype(np.int64))
    # Readings of fewer cells are added in another order: the last digit may differ.
    np.testing.assert_allclose(whole[kept], found["value"], rtol=1e-13, atol=1e-13)


slowly = settings(
    max_examples=120,
    suppress_health_check=[HealthCheck.too_slow],
    phases=[Phase.explicit, Phase.reuse, Phase.generate],
)


@pytest.fixture(scope="module")
def archives(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[OpenArchive, dict[str, Feed]]]:
    folder = tmp_path_factory.mktemp("archives")
    return [random_archive(folder / str(seed), seed) for seed in range(4)]


@slowly
@given(seed=st.integers(0, 3), document=documents())
def test_an_archive_answers_as_the_oracle(
    archives: list[tuple[OpenArchive, dict[str, Feed]]], seed: int, document: dict[str, Any]
) -> None:
    archive, feeds = archives[seed]
    check(archive.query(document), feeds)


@slowly
@given(seed=st.integers(0, 10_000), document=documents())
def test_an_array_answers_as_the_oracle(seed: int, document: dict[str, Any]) -> None:
    array, feeds = random_array(seed)
    query = hg.base(array)
    question = replace(question_from_json(document), snapshot=query.question.snapshot)
    check(replace(query, question=question), feeds)


# What a step means.


def test_instants_are_whole_multiples_of_the_step_since_midnight() -> None:
    #  3     11                 40        minutes; the step is 10
    found = values(hg.base(readings([3, 11, 40], [3.0, 11.0, 40.0])).interpolate("linear", time="10min", max_gap="1h"))
    np.testing.assert_allclose(list(found), [10, 20, 30, 40])
    np.testing.assert_allclose(list(found.values()), [10.0, 20.0, 30.0, 40.0])


def test_a_gap_longer_than_the_maximum_is_missing_with_count_0() -> None:
    query = hg.base(readings([0, 10, 50, 60], [0.0, 1.0, 5.0, 6.0])).interpolate("linear", time="5min", max_gap="39min")
    found = query.compute()
    inside = found.sel(time=slice("2007-10-01T00:11", "2007-10-01T00:49"))
    assert np.isnan(inside["value"]).all()
    assert not inside["count"].any()
    assert values(query.clip(time=("2007-10-01", "2007-10-02"))) == {0: 0.0, 5: 0.5, 10: 1.0, 50: 5.0, 55: 5.5, 60: 6.0}
    assert found["count"][:, 0].to_numpy().tolist() == [1, 2, 1, *[0] * 7, 1, 2, 1]
    assert found["count_possible"][:, 0].to_numpy().tolist() == [1, 2, 1, *[2] * 7, 1, 2, 1]


def test_the_mean_of_a_cell_stands_in_its_middle() -> None:
    # Cells of an hour over a straight line: their means are exact in their middles, and so is the line between.
    minutes = list(range(0, 360, 2))
    base = hg.base(readings(minutes, [float(m + 1) for m in minutes]))
    found = values(base.aggregate("mean", time="1h").interpolate("linear", time="15min"))
    assert list(found) == list(range(30, 331, 15))
    np.testing.assert_allclose(list(found.values()), list(found))


def test_a_reading_of_an_interval_stands_in_its_middle(tmp_path: Path) -> None:
    rows = [(float(minute), float(minute), 1) for minute in range(10, 70, 10)]
    for stamp, behind in (("end", 5), ("start", -5), ("instant", 0)):
        series = Series("air_temperature", "a", statistic="mean", interval_s=600.0, stamp=stamp)  # type: ignore[arg-type]
        opened = archive_of(tmp_path / stamp, series, rows)
        found = values(opened["air_temperature"].interpolate("linear", time="1min"))
        np.testing.assert_allclose(list(found.values()), [minute + behind for minute in found])
        assert min(found) == 10 - behind


def test_a_sample_stands_at_its_stamp_and_its_default_gap_is_three_intervals(tmp_path: Path) -> None:
    rows = [(float(minute), float(minute), 1) for minute in (0, 10, 40, 80)]
    series = Series("air_temperature", "a", interval_s=600.0)
    query = archive_of(tmp_path / "archive", series, rows)["air_temperature"].interpolate("linear", time="10min")
    assert values(query) == pytest.approx({0: 0, 10: 10, 20: 20, 30: 30, 40: 40, 80: 80})
    assert "by interval" in query.explain()
    assert values(query.clip(time=("2007-10-01T00:20", "2007-10-01T00:40"))) == pytest.approx({20: 20, 30: 30})


def test_only_accepted_readings_are_used_and_the_others_are_counted(tmp_path: Path) -> None:
    rows = [(0.0, 0.0, 1), (10.0, 99.0, 4), (20.0, 20.0, 2), (30.0, np.nan, 9)]
    opened = archive_of(tmp_path / "archive", Series("air_temperature", "a", interval_s=600.0), rows)
    query = opened["air_temperature"].interpolate("linear", time="10min")
    assert values(query) == {0: 0.0, 10: 10.0, 20: 20.0}
    assert "1 by flag 4" in query.compute().attrs["hypergrid_readings_left_out"]
    assert values(query.accept_flags(1, 2, 4)) == {0: 0.0, 10: 99.0, 20: 20.0}


@every
def test_a_clip_keeps_the_readings_around_it(tmp_path: Path, method: str) -> None:
    rng = np.random.default_rng(7)
    rows = [(float(m), float(v), 1) for m, v in zip(range(0, 600, 7), rng.normal(size=86), strict=True)]
    opened = archive_of(tmp_path / "archive", Series("air_temperature", "a", interval_s=420.0), rows)
    query = opened["air_temperature"].interpolate(method, time="2min", max_gap="20min")
    clip = ("2007-10-01T05:00", "2007-10-01T05:20")
    whole = {minute: value for minute, value in values(query).items() if 300 <= minute < 320}
    assert values(query.clip(time=clip)) == whole
    # So does a mean over all of the clip, which bounds the instants.
    mean = query.aggregate("mean", time="all").clip(time=clip).compute()
    assert mean["value"].to_numpy() == pytest.approx(np.mean(list(whole.values())))
    assert mean["count"].to_numpy().tolist() == [[10]]
    bases = query.clip(time=clip).plan().surface.list_bases()
    window = bases[0].operator.window  # type: ignore[union-attr]
    assert window.stop_ns - window.start_ns < 2 * 3600 * SECOND_NS, "and no more is read than may matter"


def test_instants_of_instants_reach_beyond_the_clip_too() -> None:
    #  0   2   4   6   8   10      a reading every 2 min; the clip from 4 to 8
    #        3       6       9     first every 3 min, then every minute
    minutes = list(range(0, 11, 2))
    first = hg.base(readings(minutes, [float(m) for m in minutes])).interpolate("linear", time="3min", max_gap="3min")
    second = first.interpolate("linear", time="1min", max_gap="3min")
    mean = second.aggregate("mean", time="all").clip(time=("2007-10-01T00:04", "2007-10-01T00:08")).compute()
    assert mean["count"].to_numpy().tolist() == [[4]]
    assert mean["value"].to_numpy() == pytest.approx(5.5)


def test_interpolated_variables_can_be_merged_and_aggregated() -> None:
    first = hg.base(readings([0, 9, 21, 33], [0.0, 9.0, 21.0, 33.0]))
    other = hg.base(readings([-5, 14, 40], [-5.0, 14.0, 40.0]).rename("u"))
    aligned = [query.interpolate("linear", time="10min", max_gap="1h") for query in (first, other)]
    difference = aligned[0].merge("difference", aligned[1])
    assert values(difference) == pytest.approx({0: 0.0, 10: 0.0, 20: 0.0, 30: 0.0}, abs=1e-12)
    hourly = difference.aggregate("count", time="1h").compute()
    assert hourly["value"].to_numpy().tolist() == [[4.0]]
    with pytest.raises(InvalidQuery, match="different time cells"):
        aligned[0].merge("difference", other.aggregate("mean", time="10min")).surface()


def test_the_result_says_what_it_is() -> None:
    query = hg.base(readings([0, 10], [0.0, 1.0])).interpolate("spline", time="5min", max_gap="10min")
    found = query.compute()
    assert found["value"].attrs["cell_methods"] == "time: point (comment: spline_in_time)"
    assert found["count"].attrs["long_name"] == "source cells used"
    assert "time_bounds" not in found
    mean = query.aggregate("mean", time="10min").compute()["value"].attrs["cell_methods"]
    assert mean == "time: point (comment: spline_in_time) time: mean (comment: cells of 10min)"
    text = query.explain()
    assert "interpolate spline_in_time(max_gap=10min) -> 3 instants every 5min from 2007-10-01T00:00Z, 1 series" in text


@every
def test_the_query_comes_back_from_its_json(method: str) -> None:
    query = hg.base(readings([0, 10], [0.0, 1.0])).interpolate(method, time="5min", max_gap="10min")
    document = json.loads(json.dumps(query.to_json()))
    assert document["steps"] == [
        {"op": "interpolate", "method": method, "time": "5min", "params": {"max_gap": "10min"}}
    ]
    assert question_from_json(document) == query.question
    full = replace(query, question=question_from_json({**document, "steps": [
        {**document["steps"][0], "method": f"{method}_in_time"}]}))  # fmt: skip
    assert full.token == query.token, "the row's full name means the same"


def test_values_on_a_grid_follow_from_instants(tmp_path: Path) -> None:
    opened, _ = random_archive(tmp_path / "archive", 0)
    in_time = opened["air_temperature"].interpolate("linear", time="10min", max_gap="30min")
    found = in_time.interpolate("ordinary_kriging", grid=GRID, **KRIGING).compute()
    stations = in_time.compute()
    assert found["value"].shape == (stations.sizes["time"], 2, 3)
    heard = np.isfinite(stations["value"]).sum("station")
    np.testing.assert_array_equal(found["count"][:, 0, 0], heard)
    assert found["value"].attrs["cell_methods"].startswith("time: point (comment: linear_in_time) area: ")
    values = stations["value"].to_numpy()
    inside = found["value"].to_numpy().reshape(len(values), -1)
    for line, estimates in zip(values, inside, strict=True):
        assert np.isfinite(estimates).all() == np.isfinite(line).any()


# What is refused, and how.

BASE = hg.base(readings([0, 10, 50], [0.0, 1.0, 2.0]))
"""Instants that tell no interval."""


@pytest.mark.parametrize(
    ("where", "error", "words"),
    [
        ({}, InvalidQuery, "needs a grid .*, or time.*got neither"),
        ({"time": "10min", "grid": hg.grid(x=0, y=0, step=10, shape=(1, 1))}, InvalidQuery, "got both"),
        ({"grid": {"time": "10min"}}, NotFound, "key of a grid 'time'"),
        ({"time": "10 apples", "max_gap": "1h"}, InvalidTime, "step 1 .*duration"),
        ({"time": "all", "max_gap": "1h"}, InvalidTime, "step 1 .*duration"),
        ({"time": {"step": "1h", "length": "2h"}, "max_gap": "1h"}, InvalidTime, "step 1 .*duration"),
        ({"time": "10min"}, InvalidQuery, "interval .*1 of 1 series is not known.*max_gap='1h'"),
        ({"time": "10min", "max_gap": 60}, InvalidQuery, "'max_gap' of linear_in_time needs text"),
        ({"time": "10min", "max_gap": "0s"}, InvalidTime, "above zero"),
        ({"time": "10min", "max_gap": "400 weeks", "gap": 3}, NotFound, "parameter of linear_in_time 'gap'"),
        ({"time": "10min", "max_gap": "9999 days"}, InvalidQuery, "max_gap.*up to 3660day"),
    ],
)
def test_what_makes_no_step_is_refused(where: dict[str, Any], error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        BASE.interpolate("linear", **where).surface()


def test_a_wrong_name_lists_what_exists_over_that_dimension() -> None:
    with pytest.raises(NotFound, match="over time 'liner'; did you mean 'linear'.*linear, nearest, spline$"):
        BASE.interpolate("liner", time="10min")
    with pytest.raises(NotFound, match="over time 'ordinary_kriging'.*over space: give a grid"):
        BASE.interpolate("ordinary_kriging", time="10min")
    with pytest.raises(NotFound, match="over space 'spline'.*inverse_distance"):
        BASE.interpolate("spline", grid=hg.grid(x=0, y=0, step=10, shape=(1, 1)))
    with pytest.raises(NotFound, match="over space 'linear_in_time'.*give time='10min'"):
        BASE.interpolate("linear_in_time", grid=hg.grid(x=0, y=0, step=10, shape=(1, 1)))


def test_directions_have_no_line_between_them() -> None:
    query = hg.base(readings([0, 10], [350.0, 10.0], unit="degree"))
    with pytest.raises(InvalidQuery, match="directions"):
        query.interpolate("linear", time="5min", max_gap="10min").surface()


@pytest.mark.parametrize("statistic", ["total", "max", "min"])
def test_values_of_whole_intervals_have_none_at_an_instant(tmp_path: Path, statistic: str) -> None:
    series = Series("rain", "a", statistic=statistic, interval_s=600.0, stamp="end")  # type: ignore[arg-type]
    opened = archive_of(tmp_path / "archive", series, [(10.0, 1.0, 1), (20.0, 2.0, 1)])
    query = opened["rain"].select(statistic=statistic).interpolate("linear", time="5min")
    with pytest.raises(InvalidQuery, match=f"step 1 .*{statistic} values of the stations.*no value at an instant"):
        query.surface()


@pytest.mark.parametrize("function", ["sum", "count", "min", "max"])
def test_nor_have_amounts_and_extremes_of_cells(function: str) -> None:
    query = BASE.aggregate(function, time="20min").convert("scale", factor=2.0).interpolate("linear", time="5min")
    with pytest.raises(InvalidQuery, match=f"a {function} of each cell"):
        query.surface()


def test_a_grid_is_interpolated_in_time_before_it_is_one() -> None:
    gridded = BASE.interpolate("nearest", grid=hg.grid(x=0, y=0, step=10, shape=(1, 1)))
    with pytest.raises(InvalidQuery, match="in time first"):
        gridded.interpolate("linear", time="5min", max_gap="1h").surface()


def test_a_variance_belongs_to_space() -> None:
    with pytest.raises(InvalidQuery, match="variance"):
        BASE.interpolate("linear", time="5min", max_gap="1h").with_variance().surface()


def test_a_clip_between_two_instants_is_refused_with_the_step() -> None:
    query = BASE.interpolate("linear", time="10min", max_gap="1h").aggregate("mean", time="all")
    with pytest.raises(InvalidQuery, match="one every 10min.*shorter step"):
        query.clip(time=("2007-10-01T00:11", "2007-10-01T00:19")).surface()


def test_memory_stays_below_the_projection() -> None:
    import tracemalloc  # noqa: PLC0415 - nothing else here measures memory

    rng = np.random.default_rng(1)
    times = pd.date_range("2007-10-01", periods=4000, freq="10min")
    coords = {"time": times, "x": ("station", np.arange(60.0)), "y": ("station", np.zeros(60))}
    array = xr.DataArray(rng.normal(size=(4000, 60)), dims=("time", "station"), coords=coords, name="t")
    query = hg.base(array).interpolate("spline", time="5min", max_gap="1h")
    projected = query.plan().projected_bytes
    tracemalloc.start()
    try:
        query.compute()
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert projected / 4 < peak < projected
