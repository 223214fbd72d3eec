"""The method "auto" in queries: the default, with layers, masts with two stations, levels of notes, and JSON."""

import json

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import hypergrid as hg
from hypergrid.core.errors import InvalidQuery, TooLarge
from tests.bench.hypergrid_cases import Sizes, sample

GRID = hg.grid(x=(0, 10_000), y=(0, 10_000), step=500.0)


def readings(*, stations: int = 20, slices: int = 6, seed: int = 0) -> xr.DataArray:
    """Hourly air temperatures that fall with elevation, at stations in a square of 10 km; the last two share a mast."""
    rng = np.random.default_rng(seed)
    x, y = rng.uniform(0, 10_000, (2, stations))
    x[-1], y[-1] = x[-2], y[-2]
    elevation = height_m(x, y)
    values = 20 - 0.0065 * elevation + np.sin(np.arange(slices))[:, None] + 0.05 * rng.normal(size=(slices, stations))
    coords = {
        "time": pd.date_range("2024-01-01", periods=slices, freq="1h"),
        "station": [f"s{i}" for i in range(stations)],
        "x": ("station", x), "y": ("station", y), "elevation": ("station", elevation),
    }  # fmt: skip
    return xr.DataArray(values, coords, ("time", "station"), "air_temperature", {"units": "degC"})


def height_m(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.asarray(1000 + 800 * np.sin(x / 900) * np.cos(y / 1300))


def terrain(*, reaches: float = 11_000.0) -> xr.DataArray:
    x = np.arange(-1000.0, reaches, 100.0)
    y = np.arange(-1000.0, 11_000.0, 100.0)
    return xr.DataArray(height_m(x, y[:, None]), {"y": y, "x": x}, ("y", "x"), attrs={"units": "m"})


def truth() -> np.ndarray:
    centres = np.arange(250.0, 10_000, 500.0)
    return 20 - 0.0065 * height_m(centres, centres[:, None])


def error(dataset: xr.Dataset) -> float:
    mean = dataset["value"].mean("time").to_numpy() - np.sin(np.arange(6)).mean()
    return float(np.sqrt(np.mean((mean - truth()) ** 2)))


def test_elevation_is_used_where_a_layer_covers_the_grid() -> None:
    with_layer = hg.base(readings(), layers={"elevation": terrain()}).interpolate(grid=GRID).compute()
    without = hg.base(readings()).interpolate(grid=GRID).compute()
    assert "auto chose kriging with a trend of elevation" in with_layer.attrs["comment"]
    assert "elevation" not in without.attrs["comment"].split("variogram by likelihood")[0]
    assert error(with_layer) < 0.2 < 2.0 < error(without)
    # A layer that ends within the grid would leave cells without a value.
    part = hg.base(readings(), layers={"elevation": terrain(reaches=5_000.0)}).interpolate(grid=GRID).compute()
    assert np.isfinite(part["value"]).all()
    assert part["value"].equals(without["value"])
    reason = "no trend in elevation is tried, as the layer of elevation does not cover the whole grid"
    assert [reason in each.attrs["comment"] for each in (part, without, with_layer)] == [True, False, False]


def test_two_stations_at_one_mast_are_one() -> None:
    dataset = hg.base(readings()).interpolate(grid=GRID).compute()
    assert "stations in one place are one, of their mean: s18 and s19" in dataset.attrs["comment"]


def test_a_step_without_a_method_is_auto() -> None:
    base = hg.base(readings())
    plain, named = base.interpolate(grid=GRID), base.interpolate("auto", grid=GRID)
    assert plain.token == named.token
    assert plain.to_json()["steps"] == named.to_json()["steps"]
    assert plain.to_json()["steps"][0]["method"] == "auto"
    with pytest.raises(InvalidQuery, match="either a grid|needs a grid"):
        base.interpolate()


def test_intervals_and_means_come_with_it() -> None:
    surface = hg.base(readings(), layers={"elevation": terrain()}).interpolate(grid=GRID)
    mean = surface.aggregate("mean", time="all", x="all", y="all").with_variance(correlation_time="0s").compute()
    assert np.isfinite(mean["variance"]).all()
    exact = 20 - 0.0065 * height_m(np.arange(50.0, 10_000, 100.0), np.arange(50.0, 10_000, 100.0)[:, None]).mean()
    difference = float(mean["value"].squeeze()) - np.sin(np.arange(6)).mean() - exact
    assert abs(difference) < 4 * float(np.sqrt(mean["variance"].squeeze()))


def test_any_block_is_part_of_the_whole() -> None:
    surface = hg.base(readings()).interpolate(grid=GRID)
    whole = surface.compute()
    boxed = surface.compute(strategy="bottom_up", allowed_bytes=3_000_000)
    np.testing.assert_allclose(boxed["value"], whole["value"], rtol=1e-9)
    part = surface.clip(x=(2_000, 4_000)).compute()
    np.testing.assert_allclose(part["value"], whole["value"].sel(x=slice(2_000, 4_000)), rtol=1e-9)


def test_json_needs_no_method_and_the_answer_can_be_had_again() -> None:
    with sample(Sizes(start="2007-10-01", days=1), lambda *_: None) as made:
        archive = hg.open(made.archive)
        document = made.query("q1")
        for step in document["steps"]:
            if step["op"] == "interpolate":
                del step["method"], step["params"]
        answer = archive.query(document).compute()
        assert "auto chose" in answer.attrs["comment"]
        assert hg.again(answer, archive).confirmed


def gappy(array: xr.DataArray) -> xr.DataArray:
    """Without one reading of one station."""
    values = array.to_numpy().copy()
    values[2, 3] = np.nan
    return array.copy(data=values)


def steps_of(query: hg.Query) -> list[dict[str, object]]:
    return query.to_json()["steps"]


def test_a_resolved_query_names_its_method_and_computes_the_same_from_its_json() -> None:
    query = hg.base(readings(), layers={"elevation": terrain()}).interpolate(grid=GRID)
    resolved = query.resolve()
    [step] = steps_of(resolved)
    assert step["method"] == "external_drift_kriging"
    assert step["params"]["drift"] == ["elevation"]
    assert "auto chose kriging with a trend of elevation" in step["params"]["because"]
    assert resolved.resolve().question == resolved.question
    answer = query.compute()
    assert json.loads(answer.attrs["hypergrid_query"])["steps"] == [step]
    assert answer.attrs["comment"].count("auto chose") == 1
    xr.testing.assert_identical(answer, resolved.compute())
    assert "external_drift_kriging" in query.explain()


def test_the_mean_is_taken_first_where_the_same_stations_report() -> None:
    chain = hg.base(readings()).interpolate(grid=GRID).aggregate("mean", time="all")
    first, chosen = steps_of(chain.resolve())
    assert first["op"] == "aggregate"
    assert "the mean over time is taken first" in chosen["params"]["because"]
    by_hand = hg.base(readings()).aggregate("mean", time="all").interpolate(grid=GRID)
    np.testing.assert_allclose(chain.compute()["value"], by_hand.compute()["value"], rtol=1e-12)
    # A station that misses one slice is in some maps and not in others.
    first, second = steps_of(hg.base(gappy(readings())).interpolate(grid=GRID).aggregate("mean", time="all").resolve())
    assert (first["op"], second["op"]) == ("interpolate", "aggregate")
    # Errors that are correlated for a given time need slices.
    timed = (
        hg.base(readings()).interpolate(grid=GRID).aggregate("mean", time="all").with_variance(correlation_time="1h")
    )
    assert [step["op"] for step in steps_of(timed.resolve())] == ["interpolate", "aggregate"]


def test_queries_that_are_merged_are_resolved_within_the_clip_of_the_whole() -> None:
    warm, cold = hg.base(readings()).interpolate(grid=GRID), hg.base(readings(seed=1)).interpolate(grid=GRID)
    both = warm.merge("difference", cold).clip(time=("2024-01-01T00:00Z", "2024-01-01T03:00Z"))
    first, merge = steps_of(both.resolve())
    [other] = merge["with"]
    assert first["method"] != "auto"
    assert other["steps"][0]["method"] != "auto"
    assert "clip" not in other
    alone = hg.base(readings().isel(time=slice(0, 3))).interpolate(grid=GRID).resolve()
    assert steps_of(alone)[0]["params"]["variogram"] == first["params"]["variogram"]


@pytest.mark.parametrize("stations", [1, 2])
def test_too_few_stations_leave_it_automatic(stations: int) -> None:
    query = hg.base(readings().isel(station=slice(0, stations))).interpolate(grid=GRID)
    assert query.resolve().question == query.question
    assert "variogram not fitted" in query.compute().attrs["comment"]


def test_of_many_slices_a_sample_decides() -> None:
    many = readings(slices=1_500)
    query = hg.base(many).interpolate(grid=GRID)
    whole = steps_of(query.resolve())[0]
    assert whole["method"] != "auto"
    # A sample of 240 slices of the same network has about the same variogram.
    few = steps_of(hg.base(many.isel(time=slice(0, 900))).interpolate(grid=GRID).resolve())[0]
    assert sill(whole) == pytest.approx(sill(few), rel=0.3)


def sill(step: dict[str, object]) -> float:
    return hg.variogram(**step["params"]["variogram"]).sill


def days(*, slices: int = 96, silent_from: int | None = None) -> xr.DataArray:
    """Readings whose western stations fall silent."""
    array = readings(stations=12, slices=slices)
    if silent_from is not None:
        values = array.to_numpy().copy()
        values[silent_from:, array["x"].to_numpy() < 5_000] = np.nan
        array = array.copy(data=values)
    return array


def test_a_merged_climatology_is_judged_by_all_its_readings() -> None:
    base = hg.base(days(silent_from=48))
    normal = base.interpolate(grid=GRID).aggregate("mean", time="all", min_coverage=0)
    both = base.interpolate(grid=GRID).merge("anomaly", normal).clip(time=("2024-01-01T00:00Z", "2024-01-02T00:00Z"))
    [merged] = steps_of(both.resolve())[1]["with"]
    assert [step["op"] for step in merged["steps"]] == ["interpolate", "aggregate"]
    assert both.compute().sizes["time"] == 24


def test_a_clip_that_holds_no_cell_of_a_climatology_is_no_obstacle() -> None:
    base = hg.base(days())
    daily = base.aggregate("mean", time="1day").interpolate(grid=GRID).aggregate("mean", time="all")
    hourly = base.aggregate("mean", time="1h").interpolate(grid=GRID).merge("anomaly", daily)
    assert hourly.clip(time=("2024-01-01T06:00Z", "2024-01-01T18:00Z")).compute().sizes["time"] == 12


def test_a_sample_of_slices_moves_no_mean() -> None:
    many = days(slices=1_500, silent_from=1_499)
    query = hg.base(many).interpolate(grid=GRID).aggregate("mean", time="all")
    assert [step["op"] for step in steps_of(query.resolve())] == ["interpolate", "aggregate"]


def test_means_keep_their_place_where_variances_or_later_readings_are_wanted() -> None:
    query = hg.base(readings()).interpolate(grid=GRID).aggregate("mean", time="all")
    for kept in (query.with_variance().resolve(), query.resolve(is_followed=True)):
        assert [step["op"] for step in steps_of(kept)] == ["interpolate", "aggregate"]
    assert [step["op"] for step in steps_of(query.resolve())] == ["aggregate", "interpolate"]


def test_what_is_too_large_is_refused_before_it_is_read() -> None:
    query = hg.base(readings()).interpolate(grid=hg.grid(x=(0, 10_000), y=(0, 10_000), step=5.0))
    with pytest.raises(TooLarge):
        query.compute(allowed_bytes=1_000)
