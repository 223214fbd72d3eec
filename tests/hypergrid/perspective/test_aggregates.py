"""Aggregates against slow loops over cells: over time, over the cells of a grid, over both, with holes."""

import math
import statistics
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

import hypergrid as hg
from hypergrid.core.errors import HyperGridError, InvalidQuery, InvalidTime, InvalidUnit, NotFound
from hypergrid.core.readings import Position, Series, Station
from hypergrid.core.times import SECOND_NS
from hypergrid.execution.operators.fold import fold_again, fold_values
from hypergrid.perspective.functions import aggregate_formulas
from hypergrid.perspective.functions.aggregate_formulas import RaggedCells, ValueInstants
from hypergrid.perspective.functions.aggregates import AGGREGATES
from hypergrid.query import OpenArchive, Query
from tests.support.feeds import Row
from tests.support.networks import START_NS, table, write_archive

Oracle = Callable[[list[float], list[float]], float]
"""Values of a cell that are not missing, and their times [day], to what the cell holds."""

MODEL = {"variogram": {"model": "exponential", "psill": 1.0, "range_m": 500.0, "nugget": 0.1}}
GRID = {"lon": 7.17, "lat": 45.86, "step": "2arcsec", "shape": [4, 6]}
FIVE_DEGREES = 5.0


def slow_quantile(q: float) -> Oracle:
    return lambda values, _: float(np.quantile(values, q)) if values else math.nan


def slow_direction(values: list[float], _times: list[float]) -> float:
    if not values:
        return math.nan
    east = math.fsum(math.sin(math.radians(v)) for v in values) / len(values)
    north = math.fsum(math.cos(math.radians(v)) for v in values) / len(values)
    return math.degrees(math.atan2(east, north)) % 360 if math.hypot(east, north) >= 1e-9 else math.nan


def slow_slope(values: list[float], times: list[float]) -> float:
    if len(values) < 3 or len(set(times)) < 2:
        return math.nan
    return statistics.linear_regression(times, values).slope


ORACLES: dict[str, tuple[dict[str, Any], Oracle]] = {
    "variance": ({}, lambda values, _: statistics.variance(values) if len(values) > 1 else math.nan),
    "standard_deviation": ({}, lambda values, _: statistics.stdev(values) if len(values) > 1 else math.nan),
    "median": ({}, lambda values, _: statistics.median(values) if values else math.nan),
    "quantile": ({"q": 0.3}, slow_quantile(0.3)),
    "circular_mean": ({}, slow_direction),
    "exceedance": (
        {"threshold": FIVE_DEGREES, "side": "below"},
        lambda values, _: sum(v < FIVE_DEGREES for v in values) / len(values) if values else math.nan,
    ),
    "trend": ({}, slow_slope),
}
"""Parameters and oracle by function, for those that need no more than values and times."""


def array(values: object, *, minutes: float = 10.0, unit: str = "degC", name: str = "t") -> xr.DataArray:
    """Return readings of stations beside each other, every so many minutes."""
    table = np.asarray(values, dtype=np.float64)
    table = table[:, None] if table.ndim == 1 else table
    count = table.shape[1]
    coords = {
        "time": pd.Timestamp("2007-10-01") + pd.to_timedelta(np.arange(len(table)) * minutes, unit="min"),
        "lon": ("station", 7.17 + 0.002 * np.arange(count)),
        "lat": ("station", 45.86 + 0.001 * np.arange(count) ** 2),
    }
    return xr.DataArray(table, dims=("time", "station"), coords=coords, name=name, attrs={"units": unit})


def values_of(query: Query, name: str = "value") -> list[Any]:
    return list(query.compute()[name].to_numpy().ravel().tolist())


def random_values(seed: int, shape: tuple[int, ...], *, low: float = -10.0, high: float = 20.0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return np.where(rng.random(shape) < 0.3, np.nan, np.round(rng.uniform(low, high, shape), 2))


def unit_of(function: str) -> str:
    return "degree" if function == "circular_mean" else "degC"


def archive_of(folder: Path, rows: list[tuple[float, float]], **given: Any) -> OpenArchive:  # noqa: ANN401 - fields of a series
    """Write an archive of one series; readings as minutes since its start, and values."""
    series = Series(**{"variable": "air_temperature", "station": "a", "interval_s": 120.0, **given})
    stamps = [START_NS + round(minute * 60) * SECOND_NS for minute, _ in rows]
    listed = [Row(0, at, at, value, 2) for at, (_, value) in zip(stamps, rows, strict=True)]
    station = Station("a", "a", (Position(None, 7.17, 45.86, 2000.0),))
    return write_archive(folder, stations=[station], readings=[table([series], listed)])


# Whole queries against the loops.


@pytest.mark.parametrize("function", ORACLES)
@settings(max_examples=25, deadline=None)
@given(seed=st.integers(0, 10_000), count=st.integers(1, 40), step=st.sampled_from([10, 20, 30, 60]))
def test_over_time_is_what_a_loop_finds(function: str, seed: int, count: int, step: int) -> None:
    given_, oracle = ORACLES[function]
    values = random_values(seed, (count, 3))
    minutes = 10.0 * np.arange(count)
    sliding = {"length": f"{step + 20}min", "step": f"{step}min"}
    for spec, length in ((f"{step}min", step), (sliding, step + 20)):
        query = hg.base(array(values, unit=unit_of(function))).aggregate(function, time=spec, min_coverage=0, **given_)
        found = query.compute()
        expected, counts = [], []
        for start in range(0, int(minutes[-1]) + 1, step):
            inside = (minutes >= start) & (minutes < start + length)
            for place in range(3):
                here = inside & np.isfinite(values[:, place])
                expected.append(oracle(values[here, place].tolist(), (minutes[here] / 1440).tolist()))
                counts.append(int(here.sum()))
        np.testing.assert_allclose(found["value"].to_numpy().ravel(), expected, rtol=1e-9, atol=1e-9)
        assert found["count"].to_numpy().ravel().tolist() == counts


@pytest.mark.parametrize(
    ("function", "over"),
    # An exceedance weighs cells by their area: test_area_weights.py.
    [(name, "both") for name in ORACLES if name not in ("circular_mean", "exceedance")]
    + [(name, "space") for name in ORACLES if name not in ("circular_mean", "exceedance", "trend")],
)
def test_over_the_cells_of_a_grid_all_source_cells_are_taken_together(function: str, over: str) -> None:
    given_, oracle = ORACLES[function]
    values = random_values(3, (12, 5))
    values[4] = np.nan
    values[7, 1:] = np.nan
    slices = hg.base(array(values)).interpolate("ordinary_kriging", grid=GRID, **MODEL)
    below = slices.compute()["value"].to_numpy()
    time = {"time": "30min"} if over == "both" else {}
    found = slices.aggregate(function, lat="4arcsec", lon="6arcsec", min_coverage=0, **time, **given_).compute()
    length = 3 if over == "both" else 1
    expected = np.empty((12 // length, 2, 2))
    for k, i, j in np.ndindex(expected.shape):
        block = below[k * length : (k + 1) * length, 2 * i : 2 * i + 2, 3 * j : 3 * j + 3]
        times = np.broadcast_to((np.arange(length) * 10.0 / 1440)[:, None, None], block.shape)
        present = np.isfinite(block)
        expected[k, i, j] = oracle(block[present].tolist(), times[present].tolist())
    assert found["value"].shape == expected.shape
    np.testing.assert_allclose(found["value"].to_numpy(), expected, rtol=1e-7, atol=1e-7)
    assert found["count"].to_numpy()[4 // length, 0, 0] == (12 if over == "both" else 0)


@pytest.mark.parametrize("function", ORACLES)
def test_an_archive_gives_what_a_loop_finds(function: str, tmp_path: Path) -> None:
    given_, oracle = ORACLES[function]
    rng = np.random.default_rng(5)
    at = np.sort(rng.choice(np.arange(0, 240, 0.5), 90, replace=False))
    values = np.round(rng.uniform(0, 30, 90), 2)
    variable = "wind_direction" if function == "circular_mean" else "air_temperature"
    archive = archive_of(tmp_path / "a", list(zip(at.tolist(), values.tolist(), strict=True)), variable=variable)
    query = archive[variable].aggregate(function, time="1h", min_coverage=0, **given_)
    expected = []
    for hour in range(4):
        inside = (at >= 60 * hour) & (at < 60 * hour + 60)
        expected.append(oracle(values[inside].tolist(), (at[inside] / 1440).tolist()))
    np.testing.assert_allclose(values_of(query), expected, rtol=1e-9, atol=1e-9)
    assert values_of(query, "count_possible") == [30] * 4
    assert np.isnan(values_of(archive[variable].aggregate(function, time="1h", min_coverage=1, **given_))).all()


@pytest.mark.parametrize("function", ["quantile", "variance", "trend"])
def test_cells_that_are_listed_in_parts_hold_the_same(function: str, monkeypatch: pytest.MonkeyPatch) -> None:
    given_, _ = ORACLES[function]
    slices = hg.base(array(random_values(8, (12, 5)))).interpolate("ordinary_kriging", grid=GRID, **MODEL)
    query = slices.aggregate(function, time="30min", lat="4arcsec", lon="all", min_coverage=0, **given_)
    whole = query.compute()["value"].to_numpy()
    monkeypatch.setattr(aggregate_formulas, "LISTED_AT_ONCE", 5)
    np.testing.assert_array_equal(query.compute()["value"].to_numpy(), whole)
    # Blocks of one place after the other, as well.
    blocks = list(query.refine())
    np.testing.assert_array_equal(blocks[-1].dataset()["value"].to_numpy(), whole)


def test_quantiles_of_lists_with_one_long_cell_are_sorted_alike() -> None:
    rng = np.random.default_rng(1)
    sizes = np.array([1, 500, 0, 2, 3])
    members = RaggedCells(sizes, rng.normal(size=506))
    cells = np.split(members.value, np.cumsum(sizes)[:-1])
    np.testing.assert_array_equal(members.sort_values(), np.concatenate([np.sort(cell) for cell in cells]))


# Folding halves and merging them.


@pytest.mark.parametrize("function", [name for name, row in AGGREGATES.items() if row.decomposable])
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    values=arrays.arrays(
        np.float64, st.tuples(st.integers(1, 12), st.integers(1, 3)), elements=st.floats(-1e4, 1e4) | st.just(np.nan)
    ),
    data=st.data(),
)
def test_halves_merge_to_the_whole(function: str, values: np.ndarray, data: st.DataObject) -> None:
    row = AGGREGATES[function]
    given_ = {"threshold": 1.0, "side": "above", "base": 2.0, "per": "day", "max_gap": "1h"}
    standing = ValueInstants(np.arange(len(values)) / 24.0, np.full(len(values), 1 / 24.0))
    cut = data.draw(st.integers(0, len(values)))
    ends = np.array([0, cut, len(values)])
    whole, whole_count = fold_values(row, values, ends[:1], ends[2:], given=given_, standing=standing)
    halves, counts = fold_values(row, values, ends[:2], ends[1:], given=given_, standing=standing)
    merged, count = fold_again(row, halves, counts, np.array([0]), np.array([2]))
    assert row.finish is not None
    np.testing.assert_array_equal(np.broadcast_to(count, merged[0].shape), np.broadcast_to(whole_count, count.shape))
    if function == "circular_mean" and np.hypot(*merged).min() < 1e-6:
        return  # where directions nearly cancel, what is left is rounding
    one, other = row.finish(merged, count, given_), row.finish(whole, whole_count, given_)
    np.testing.assert_allclose(one, np.broadcast_to(other, one.shape), rtol=1e-9, atol=1e-6)


def test_every_row_says_how_it_is_computed_and_only_means_and_sums_commute() -> None:
    for row in AGGREGATES.values():
        ways = [bool(row.parts), row.step is not None, row.whole is not None, row.rank is not None]
        assert sum(ways) == 1, row.name
        assert (row.finish is not None) == row.decomposable, row.name
        assert (row.step is None) == (row.merge is None), row.name
        assert row.summary.endswith("."), row.name
    assert {row.name for row in AGGREGATES.values() if row.linear} == {"mean", "sum"}


@pytest.mark.parametrize(
    ("function", "cells"),
    [
        ("quantile", {"time": "all", "lat": "all", "lon": "all"}),
        ("quantile", {"time": "1h"}),
        ("variance", {"lat": "all", "lon": "all"}),
        ("trend", {"time": "1h", "lat": "4arcsec"}),
    ],
)
def test_a_plan_knows_what_listing_takes(function: str, cells: dict[str, str]) -> None:
    parameters, _ = ORACLES[function]
    wide = {**GRID, "shape": [16, 24]}
    slices = hg.base(array(random_values(2, (1200, 4)))).interpolate("ordinary_kriging", grid=wide, **MODEL)
    query = slices.aggregate(function, **cells, **parameters)
    list(query.refine())
    tracemalloc.start()
    query.compute()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak <= query.plan().projected_bytes


# What each function means.


def test_a_small_variance_far_from_zero_is_not_lost() -> None:
    small = np.tile([0.0, 1e-3, 2e-3], 20)
    far = hg.base(array(1e6 + small)).aggregate("variance", time="all")
    assert values_of(far) == pytest.approx([np.var(small, ddof=1)], rel=1e-6)
    assert values_of(hg.base(array(np.full(50, 0.1))).aggregate("variance", time="all")) == [
        pytest.approx(0, abs=1e-30)
    ]


def test_units_of_results() -> None:
    def unit(function: str, source: str, **given: object) -> str:
        query = hg.base(array(np.arange(6.0), unit=source)).aggregate(function, time="all", **given)
        return str(query.compute()["value"].attrs["units"])

    assert [unit("variance", source) for source in ("degC", "m s-1", "mm", "%", "1", "unknown")] == [
        "K2", "m2 s-2", "mm2", "% %", "1", "unknown",
    ]  # fmt: skip
    assert [unit("standard_deviation", source) for source in ("degC", "m s-1")] == ["K", "m s-1"]
    # UDUNITS has no differences: a step of degF is one of degR.
    assert unit("variance", "degF") == "degR degR"
    assert [unit("trend", source, per="decade") for source in ("degC", "mm", "1")] == [
        "K decade-1", "mm decade-1", "decade-1",
    ]  # fmt: skip
    assert unit("exceedance", "degC", threshold="50 degF") == "1"
    assert unit("quantile", "degC", q="90 %") == "degC"
    # What comes of it can be worked with: a rate a day is 365.25 as much a year.
    per_day = hg.base(array(np.arange(6.0))).aggregate("trend", time="all")
    per_year = hg.base(array(np.arange(6.0))).aggregate("trend", time="all", per="year")
    assert values_of(per_year) == pytest.approx([365.25 * 144], rel=1e-12)
    assert values_of(per_day) == pytest.approx([144.0], rel=1e-12)
    assert values_of(per_year.convert("scale", factor=1, unit="K day-1")) == values_of(per_year)


def test_the_mean_of_350_and_10_degree_is_north() -> None:
    query = hg.base(array([[350.0, 0.0, 90.0], [10.0, 180.0, 270.0], [np.nan, np.nan, 90.0]], unit="degree"))
    north, none, east = values_of(query.aggregate("circular_mean", time="all", min_coverage=0))
    assert north == pytest.approx(0.0, abs=1e-9) or north == pytest.approx(360.0, abs=1e-9)
    assert 0 <= north < 360
    assert math.isnan(none)
    assert east == pytest.approx(90.0)


@settings(max_examples=50, deadline=None)
@given(st.lists(st.floats(-720, 720), min_size=1, max_size=8))
def test_a_mean_direction_lies_in_the_circle(directions: list[float]) -> None:
    (found,) = values_of(hg.base(array(directions, unit="degree")).aggregate("circular_mean", time="all"))
    assert math.isnan(found) or 0 <= found < 360


def test_a_mean_wind_is_that_of_its_components() -> None:
    """Merge, mean, merge: 3 m/s from the north and 4 m/s from the east give 2.5 m/s from between them."""
    speed = hg.base(array([3.0, 4.0], unit="m s-1", name="wind_speed"))
    direction = hg.base(array([0.0, 90.0], unit="degree", name="wind_direction"))
    east, north = (
        speed.merge(function, direction).aggregate("mean", time="all")
        for function in ("eastward_wind", "northward_wind")
    )
    assert values_of(east.merge("wind_speed", north)) == pytest.approx([2.5])
    mean = east.merge("wind_direction", north)
    assert values_of(mean) == pytest.approx([math.degrees(math.atan2(4, 3))])
    assert mean.compute()["value"].attrs["units"] == "degree"


def test_what_equals_a_threshold_is_on_neither_side() -> None:
    query = hg.base(array([4.0, 5.0, 6.0, 7.0]))
    assert values_of(query.aggregate("exceedance", time="all", threshold=5.0)) == [0.5]
    assert values_of(query.aggregate("exceedance", time="all", threshold=5.0, side="below")) == [0.25]


def test_degree_days_of_a_day_and_of_readings(tmp_path: Path) -> None:
    # Two half days of 12 and 3 degC above 5 degC: 7 K for half a day.
    halves = hg.base(array([12.0, 3.0, 40.0, 4.0], minutes=720)).aggregate("mean", time="12h")
    assert values_of(halves.aggregate("degree_days", base=5.0, time="1day")) == pytest.approx([3.5, 17.5])
    capped = halves.aggregate("degree_days", base=5.0, upper="30 degC", time="1day")
    assert values_of(capped) == pytest.approx([3.5, 12.5])
    assert capped.compute()["value"].attrs["units"] == "K day"
    # Windows of a day every half day (7.5, 21.5, 22 and 4 degC) stand for half a day each.
    windows = halves.aggregate("mean", time={"length": "1day", "step": "12h"})
    assert values_of(windows.aggregate("degree_days", base=5.0, time="all")) == pytest.approx([(2.5 + 16.5 + 17) / 2])
    archive = archive_of(tmp_path / "a", [(2.0 * i, 10.0) for i in range(60)])
    hours = archive["air_temperature"].aggregate("degree_days", base="41 degF", time="1h")
    assert values_of(hours) == pytest.approx([5 / 24, 5 / 24])


# A counter:      0 3 5 | 1 2 2 | . . 4 |     reset after 5; two readings missing, but the gap is bridged
def test_a_counter_that_resets() -> None:
    counter = array([100.0, 103.0, 105.0, 1.0, 2.0, 2.0, np.nan, np.nan, 4.0], unit="mm")
    query = hg.base(counter)
    assert values_of(query.aggregate("rain_accumulation", time="30min", min_coverage=0)) == [5.0, 2.0, 2.0]
    assert values_of(query.aggregate("rain_accumulation", time="30min", min_coverage=0), "count") == [2, 3, 1]
    assert values_of(query.aggregate("rain_accumulation", time="all", min_coverage=0)) == [9.0]
    # What grew over a gap longer than may be bridged is not known.
    short = query.aggregate("rain_accumulation", time="30min", min_coverage=0, max_gap="20min")
    assert values_of(short)[:2] == [5.0, 2.0]
    assert math.isnan(values_of(short)[2])
    assert values_of(short, "count") == [2, 3, 0]


def test_a_counter_that_falls_by_rounding_was_not_reset() -> None:
    # What interpolation between two equal readings makes of them.
    still = hg.base(array([5.3, np.nextafter(5.3, 0.0), 5.3, 5.8], unit="mm"))
    assert values_of(still.aggregate("rain_accumulation", time="all", min_coverage=0)) == pytest.approx([0.5])


def slow_counter(rows: list[tuple[float, float]], start: float, stop: float, gap: float) -> tuple[float, int]:
    total, count = 0.0, 0
    for (earlier, before), (later, value) in zip(rows, rows[1:], strict=False):
        if start <= later < stop and later - earlier <= gap:
            total += value if value < before else value - before
            count += 1
    return (total if count else math.nan), count


def counter_rows(seed: int) -> list[tuple[float, float]]:
    """Return readings of a counter with holes and resets, as minutes and values."""
    rng = np.random.default_rng(seed)
    at = np.sort(rng.choice(np.arange(0, 360, 2.0), 70, replace=False))
    at = at[(at < 130) | (at > 215)]
    shown, rows = 0.0, []
    for minute in at:
        was_reset = rng.random() < 0.1 and shown > 2.0
        shown = round(rng.uniform(0, 0.2), 2) if was_reset else round(shown + max(rng.normal(0, 0.5), 0), 2)
        rows.append((float(minute), shown))
    return rows


@pytest.mark.parametrize("seed", range(4))
def test_a_counter_of_an_archive_and_its_clips(seed: int, tmp_path: Path) -> None:
    rows = counter_rows(seed)
    query = archive_of(tmp_path / "a", rows, variable="rain_meter")["rain_meter"]
    hours = query.aggregate("rain_accumulation", time="1h", min_coverage=0)
    expected = [slow_counter(rows, 60 * hour, 60 * hour + 60, 60.0) for hour in range(6)]
    np.testing.assert_allclose(values_of(hours), [value for value, _ in expected], atol=1e-9)
    assert values_of(hours, "count") == [count for _, count in expected]
    # A clip changes no cell: the reading before its first cell is read as well.
    clipped = hours.clip(time=("2007-10-01T01:00Z", "2007-10-01T03:00Z"))
    np.testing.assert_allclose(values_of(clipped), values_of(hours)[1:3])
    # Over all of a clip only increments within it count, the first of them from the reading before.
    whole = query.aggregate("rain_accumulation", time="all", min_coverage=0, max_gap="20min")
    for start, stop in ((60, 130), (31, 99), (5, 250)):
        times = tuple(f"2007-10-01T{minute // 60:02d}:{minute % 60:02d}Z" for minute in (start, stop))
        value, count = slow_counter(rows, start, stop, 20.0)
        assert values_of(whole.clip(time=times)) == pytest.approx([value])
        assert values_of(whole.clip(time=times), "count") == [count]
        # The hours at the edge of a clip over all hold what lies in it, no more.
        summed = query.aggregate("rain_accumulation", time="1h", min_coverage=0, max_gap="20min")
        summed = summed.aggregate("sum", time="all", min_coverage=0).clip(time=times)
        assert values_of(summed) == pytest.approx([value])


def test_a_clip_of_a_counter_over_cells_reads_the_cell_before() -> None:
    counter = np.cumsum(np.arange(24.0))
    for query in (
        hg.base(array(counter, unit="mm")),
        hg.base(array(counter, unit="mm")).aggregate("last", time="10min"),
    ):
        hours = query.aggregate("rain_accumulation", time="1h")
        clip = ("2007-10-01T02:00Z", "2007-10-01T03:00Z")
        expected = counter[17] - counter[11]
        assert values_of(hours.clip(time=clip)) == [expected]
        assert values_of(query.aggregate("rain_accumulation", time="all").clip(time=clip)) == [expected]
        assert values_of(hours.aggregate("sum", time="all").clip(time=clip)) == [expected]


def test_an_hourly_counter_is_followed_over_missing_readings(tmp_path: Path) -> None:
    """Of 0.5 mm an hour nothing is lost where one or two readings are missing; where more are, the result says it."""
    held = [hour for hour in range(24) if hour not in (5, 9, 10, 14, 15, 16)]
    rows = [(60.0 * hour, 0.5 * hour) for hour in held]
    query = archive_of(tmp_path / "a", rows, variable="rain_meter", interval_s=3600.0)["rain_meter"]
    day = query.aggregate("rain_accumulation", time="1day", min_coverage=0)
    result = day.compute()
    assert "rain_accumulation(max_gap=3h)" in day.explain()
    # Readings of 13 and of 17 o'clock: 2 mm.
    assert result["value"].to_numpy().ravel() == pytest.approx([0.5 * 23 - 2.0])
    assert result.attrs["comment"] == (
        "1 gap between readings of a counter is longer than max_gap = 3h: what it grew by there, 2 at least, is "
        "in no cell; 2 gaps of missing readings, none longer than max_gap = 3h, are bridged: what it grew by is in "
        "the cell of the later reading"
    )
    hours = query.aggregate("rain_accumulation", time="1h", min_coverage=0).compute()["value"].to_numpy().ravel()
    assert hours[6] == pytest.approx(1.0)
    assert np.isnan(hours[5])
    whole = query.aggregate("rain_accumulation", time="1day", min_coverage=0, max_gap="4h").compute()
    assert whole["value"].to_numpy().ravel() == pytest.approx([0.5 * 23])
    assert "in no cell" not in whole.attrs["comment"]
    # Readings every two minutes are followed over an hour, as are cells and instants an hour apart over three.
    often = archive_of(tmp_path / "b", [(0.0, 1.0), (4.0, 2.0)], variable="rain_meter")["rain_meter"]
    assert "(max_gap=1h)" in often.aggregate("rain_accumulation", time="2min").explain()
    kept = np.where(np.isin(np.arange(24), held), 0.5 * np.arange(24), np.nan)
    instants = hg.base(array(kept, minutes=60.0, unit="mm"))
    for cells in (query.aggregate("last", time="1h"), instants):
        found = cells.aggregate("rain_accumulation", time="1day", min_coverage=0).compute()
        assert found["value"].to_numpy().ravel() == pytest.approx([0.5 * 23 - 2.0])
        assert "1 gap between readings of a counter is longer than max_gap = 3h" in found.attrs["comment"]


def test_what_is_no_counter_is_not_taken_for_one(tmp_path: Path) -> None:
    """What a counter grew by grows no more; single readings of a counter have no mean."""
    rows = [(2.0 * k, 0.2 * k) for k in range(60)]
    counter = archive_of(tmp_path / "a", rows, variable="rain_meter")["rain_meter"]
    grown = counter.aggregate("rain_accumulation", time="10min", min_coverage=0)
    assert values_of(grown.aggregate("sum", time="all", min_coverage=0)) == pytest.approx([0.2 * 59])
    for amounts in (grown, grown.convert("scale", factor=2.0), grown.aggregate("sum", time="20min", min_coverage=0)):
        with pytest.raises(InvalidQuery, match="or what a counter grew by: use sum"):
            amounts.aggregate("rain_accumulation", time="1h").plan()
    for function in ("sum", "mean", "median", "variance"):
        for readings in (counter, counter.aggregate("last", time="10min")):
            with pytest.raises(InvalidQuery, match=f"a {function} of 'rain_meter' has no meaning.*rain_accumulation"):
                readings.aggregate(function, time="1h").plan()
    assert values_of(grown.aggregate("mean", time="all", min_coverage=0)) == pytest.approx([0.2 * 59 / 12])
    totals = archive_of(tmp_path / "b", rows, variable="rain_meter", statistic="total")["rain_meter"]
    assert values_of(totals.select(statistic="total").aggregate("sum", time="all", min_coverage=0))[0] > 300
    for unit in ("degC", "m s-1", "%", "W m-2"):
        with pytest.raises(InvalidQuery, match=f"got values in '{unit}', which cannot be amassed"):
            hg.base(array([1.0, 2.0], unit=unit)).aggregate("rain_accumulation", time="1h").plan()
    for unit in ("mm", "inch", "kg m-2", "l", "kWh", "1", "unknown", "count"):
        assert values_of(hg.base(array([1.0, 3.0], unit=unit)).aggregate("rain_accumulation", time="1h")) == [2.0]


def wobbling(days: int = 7) -> xr.DataArray:
    """Return a tipping bucket with 3 mm a day that reads 0.1 mm too little once, at 51 mm on the first day."""
    per_day = np.minimum(np.arange(144) // 3, 30) * 0.1
    shown = np.concatenate([50.0 + 3.0 * day + per_day for day in range(days)]).round(6)
    shown[31] -= 0.1
    return array(shown, unit="mm")


def test_a_counter_that_wobbles_is_not_reset() -> None:
    """A fall of 0.1 mm at 51 mm adds nothing: it added the whole content, and the day had 54 mm."""
    day = hg.base(wobbling()).aggregate("rain_accumulation", time="1day", min_coverage=0)
    assert values_of(day) == pytest.approx([3.0] * 7)
    assert "a counter fell: 1 dropout (the next readings took it back" in day.compute().attrs["comment"]


@pytest.mark.parametrize("strategy", ["top_down", "bottom_up", 1])
def test_a_noisy_gauge_gives_the_same_in_every_part_and_by_every_strategy(strategy: str | int) -> None:
    rng = np.random.default_rng(5)
    rain = np.where(np.arange(12 * 144) % 500 < 40, 0.15, 0.0)
    gauge = array(np.round(200.0 + np.cumsum(rain) + rng.normal(0, 0.05, len(rain)), 2), unit="mm")
    days = hg.base(gauge).aggregate("rain_accumulation", time="1day", min_coverage=0)
    whole = np.array(values_of(days))
    fell = rain.reshape(12, 144).sum(axis=1)
    np.testing.assert_allclose(whole, fell, atol=0.15)
    for first in (2, 5, 9):
        clip = (f"2007-10-{first + 1:02d}", f"2007-10-{first + 3:02d}")
        part = days.clip(time=clip).compute(strategy=strategy)
        np.testing.assert_array_equal(part["value"].to_numpy().ravel(), whole[first : first + 2])
        hours = hg.base(gauge).aggregate("rain_accumulation", time="1h", min_coverage=0)
        summed = hours.aggregate("sum", time="all", min_coverage=0).clip(time=clip)
        np.testing.assert_allclose(values_of(summed), whole[first : first + 2].sum(), atol=1e-9)


def test_a_counter_says_what_it_is() -> None:
    turning = array(np.round(np.arange(144) * 0.2 % 10.0, 1), unit="mm")
    turning.attrs |= {"resolution": 0.1, "rollover": 10.0}
    day = hg.base(turning).aggregate("rain_accumulation", time="1day")
    assert values_of(day) == pytest.approx([143 * 0.2])
    assert "2 rollovers" in day.compute().attrs["comment"]
    scaled = hg.base(turning).convert("scale", factor=0.1, unit="cm").aggregate("rain_accumulation", time="1day")
    assert "resolution=0.01, rollover=1)" in scaled.explain()
    assert values_of(scaled) == pytest.approx([143 * 0.02])
    # Of values that are shifted it is not known.
    shifted = hg.base(turning).convert("scale", factor=1.0, offset=5.0).aggregate("rain_accumulation", time="1day")
    assert "rollover" not in shifted.explain()
    for declared, message in (
        ({"rollover": 0.1, "resolution": 0.2}, "a rollover of 0.1 with a resolution of 0.2"),
        ({"resolution": 0.0}, "resolution of a counter needs a number above 0; got 0"),
    ):
        with pytest.raises(InvalidQuery, match=message):
            hg.base(turning).aggregate("rain_accumulation", time="1day", **declared).plan()
        turning.attrs |= declared
        with pytest.raises(InvalidQuery, match=message):
            hg.base(turning)
        turning.attrs |= {"resolution": 0.1, "rollover": 10.0}
    turning.attrs["rollover"] = "never"
    with pytest.raises(InvalidQuery, match="rollover of a counter needs a number, in the array's unit; got 'never'"):
        hg.base(turning)


# How a query is written.


def test_parameters_are_in_the_json_and_in_the_token() -> None:
    query = hg.base(array(np.arange(12.0)))
    found = query.aggregate("quantile", q=0.9, time="1h")
    step = found.to_json()["steps"][0]
    assert step == {"op": "aggregate", "function": "quantile", "params": {"q": 0.9}, "time": "1h"}
    assert hg.perspective.question_from_json(found.to_json()) == found.question
    assert found.token != query.aggregate("quantile", q=0.8, time="1h").token
    assert found.token == query.aggregate("quantile", q="90 %", time="1h").token
    assert "aggregate quantile(q=0.9) over time, coverage at least 0" in found.explain()


def test_a_function_without_parameters_has_the_content_that_it_had() -> None:
    operator = hg.base(array(np.arange(12.0))).aggregate("mean", time="1h").surface().perspective.operator
    assert operator.content() == ("aggregate", "mean", ("time",), 0.8)


def directions() -> Query:
    return hg.base(array(np.arange(6.0), unit="degree"))


def degrees(unit: str = "degC") -> Query:
    return hg.base(array(np.arange(6.0), unit=unit))


def gridded() -> Query:
    return degrees().aggregate("mean", time="10min").interpolate("nearest", grid=GRID)


@pytest.mark.parametrize(
    ("ask", "error", "says"),
    [
        (lambda: degrees().aggregate("quantile", q=1.5, time="1h"), InvalidQuery, "'q' from 0 to 1 .*; got 1.5"),
        (lambda: degrees().aggregate("quantile", q=-0.1, time="1h"), InvalidQuery, "got -0.1"),
        (
            lambda: degrees().aggregate("quantile", q="2 m", time="1h"),
            InvalidUnit,
            "'q' of quantile needs a plain number",
        ),
        (lambda: degrees().aggregate("quantile", time="1h"), InvalidQuery, "needs the parameter 'q' .*missing"),
        (
            lambda: degrees().aggregate("quantile", p=0.5, time="1h"),
            NotFound,
            "parameter of quantile 'p'.*min_coverage, q",
        ),
        (lambda: degrees().aggregate("mean", q=0.5, time="1h"), NotFound, "unknown parameter of mean 'q'"),
        (lambda: degrees().aggregate("exceedance", time="1h"), InvalidQuery, "needs the parameter 'threshold'"),
        (
            lambda: degrees().aggregate("exceedance", time="1h", threshold="3 mm"),
            InvalidUnit,
            "'threshold' of exceedance: 'mm'",
        ),
        (
            lambda: degrees().aggregate("exceedance", time="1h", threshold=3, side="over"),
            InvalidQuery,
            "'side' of exceedance needs one of 'above', 'below'; got 'over'",
        ),
        (
            lambda: degrees().aggregate("circular_mean", time="1h"),
            InvalidUnit,
            "directions in 'degree'; got values in 'degC'",
        ),
        (
            lambda: directions().aggregate("mean", time="1h"),
            InvalidQuery,
            "mean of directions has no meaning.*circular_mean",
        ),
        (lambda: directions().aggregate("quantile", q=0.5, time="1h"), InvalidQuery, "quantile of directions"),
        (
            lambda: degrees("mm").aggregate("degree_days", base=5, time="1h"),
            InvalidUnit,
            "needs temperatures.*got values in 'mm'",
        ),
        (
            lambda: degrees("unknown").aggregate("degree_days", base=5, time="1h"),
            InvalidUnit,
            "got values in 'unknown'",
        ),
        (
            lambda: degrees().aggregate("degree_days", base=5, time="1h"),
            InvalidQuery,
            "instants stand for none; aggregate before",
        ),
        (
            lambda: degrees().aggregate("mean", time="10min").aggregate("degree_days", base=5, upper=4, time="1h"),
            InvalidQuery,
            "'upper' above 'base'; got 4 and 5 degC",
        ),
        (
            lambda: gridded().aggregate("degree_days", base=5, time="1h", lat="all"),
            InvalidQuery,
            "take it over time, and then",
        ),
        (
            lambda: gridded().aggregate("rain_accumulation", lat="all"),
            InvalidQuery,
            "follows each place in time; got lat",
        ),
        (lambda: gridded().aggregate("trend", lat="all"), InvalidQuery, "trend needs time; got lat alone"),
        (
            lambda: degrees().aggregate("trend", time="1h", per="week"),
            InvalidQuery,
            "one of 'day', 'year', 'decade'; got 'week'",
        ),
        (lambda: degrees("mm").aggregate("rain_accumulation", time="1h", max_gap="soon"), InvalidTime, "got 'soon'"),
        (
            lambda: degrees().aggregate("variance", time="10min").interpolate("linear", time="5min", max_gap="1h"),
            InvalidQuery,
            "a variance of each cell",
        ),
    ],
)
def test_what_cannot_be_is_refused_before_it_runs(
    ask: Callable[[], Query], error: type[HyperGridError], says: str
) -> None:
    with pytest.raises(error, match=rf"step \d.*{says}"):
        ask().plan()


def test_readings_whose_interval_is_not_known_have_no_degree_days(tmp_path: Path) -> None:
    query = archive_of(tmp_path / "a", [(0.0, 1.0)], interval_s=0.0)["air_temperature"]
    with pytest.raises(InvalidQuery, match=r"interval of 1 of 1 series is not known \(a\); aggregate before it"):
        query.aggregate("degree_days", base=5, time="1h").plan()


def test_coverage_that_nobody_can_judge_is_said(tmp_path: Path) -> None:
    """One reading of an hour is taken for all of it where nobody knows how often there should be one."""
    rows = [(0.0, 1.0), (70.0, 2.0)]
    query = archive_of(tmp_path / "a", rows, interval_s=0.0)["air_temperature"].aggregate("mean", time="1h")
    assert values_of(query) == [1.0, 2.0]
    said = "the coverage of 1 of 1 series cannot be judged, and min_coverage=0.8 is not asked of them: their interval "
    said += "is unknown (a)"
    assert said in query.explain()
    assert query.compute().attrs["comment"] == said
    for judged in (
        archive_of(tmp_path / "b", rows)["air_temperature"].aggregate("mean", time="1h"),
        archive_of(tmp_path / "c", rows, interval_s=0.0)["air_temperature"].aggregate("max", time="1h"),
    ):
        assert "cannot be judged" not in judged.explain()
        assert "cannot be judged" not in judged.compute().attrs.get("comment", "")


def test_totals_are_no_counter_and_maxima_have_no_median(tmp_path: Path) -> None:
    totals = archive_of(tmp_path / "a", [(0.0, 1.0)], variable="rain_meter", statistic="total")["rain_meter"]
    with pytest.raises(InvalidQuery, match="totals of their intervals, or what a counter grew by: use sum"):
        totals.select(statistic="total").aggregate("rain_accumulation", time="1h").plan()
    maxima = archive_of(tmp_path / "b", [(0.0, 1.0)], statistic="max")["air_temperature"].select(statistic="max")
    with pytest.raises(InvalidQuery, match="a median of max values is not the median of the readings"):
        maxima.aggregate("median", time="1h").plan()
    assert values_of(maxima.aggregate("exceedance", threshold=0, time="1h", min_coverage=0)) == [1.0]
