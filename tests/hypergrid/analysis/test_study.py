"""Studies through the public door: what they read, and what they refuse."""

from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import hypergrid as hg
from hypergrid.core.errors import InvalidQuery, InvalidUnit, NotFound
from hypergrid.interpolation.variograms.empirical import Binning
from hypergrid.interpolation.variograms.fit import VariogramFit
from hypergrid.plots import plot_variogram

VARIOGRAM = {"model": "exponential", "psill": 1.0, "range_m": 400.0, "nugget": 0.05}


@pytest.fixture(scope="module")
def readings() -> xr.DataArray:
    """30 stations, 40 slices drawn from the variogram above."""
    random = np.random.default_rng(3)
    places = random.uniform(0, 1000, (30, 2))
    distance = np.linalg.norm(places[:, None] - places, axis=-1)
    covariance = np.exp(-3 * distance / 400.0) + 0.05 * np.eye(30)
    values = random.multivariate_normal(np.zeros(30), covariance, size=40)
    values[random.random(values.shape) < 0.1] = np.nan
    coords: dict[str, Any] = {
        "time": pd.date_range("2007-10-01", periods=40, freq="10min"),
        "x": ("station", places[:, 0]),
        "y": ("station", places[:, 1]),
    }
    return xr.DataArray(values, dims=("time", "station"), coords=coords, name="t", attrs={"units": "degC"})


def test_a_fitted_variogram_is_near_the_one_that_made_the_field(readings: xr.DataArray) -> None:
    fitted = hg.fit_variogram(readings).variogram
    assert 0.7 < fitted.psill + fitted.nugget < 1.4
    assert 200 < fitted.range_m < 800
    query = hg.base(readings).interpolate(
        "ordinary_kriging", grid=hg.grid(x=0, y=0, step=100, shape=(10, 10)), variogram=fitted
    )
    assert np.isfinite(query.compute()["value"]).all()


def test_leaving_out_one_station_is_what_a_query_without_it_says(readings: xr.DataArray) -> None:
    found = hg.cross_validate(readings, "ordinary_kriging", parameters={"variogram": VARIOGRAM})
    assert found.in_closed_form
    x, y = (float(readings[name][4]) for name in "xy")
    others = readings.isel(station=[i for i in range(30) if i != 4])
    grid = hg.grid(x=round(x, 3) - 0.001, y=round(y, 3) - 0.001, step=0.002, shape=(1, 1))
    asked = hg.base(others).interpolate("ordinary_kriging", grid=grid, variogram=VARIOGRAM).compute()["value"]
    here = np.isfinite(readings[:, 4].to_numpy())
    np.testing.assert_allclose(found.estimate[here, 4], asked.to_numpy().ravel()[here], atol=1e-4)


def test_kriging_with_its_own_variogram_beats_the_nearest_station(readings: xr.DataArray) -> None:
    order = [each.method for each in hg.compare_methods(readings) if each.common is not None]
    assert order.index("ordinary_kriging") < order.index("nearest")


def test_a_network_as_wide_as_a_continent_is_studied_over_the_sphere(readings: xr.DataArray) -> None:
    places = np.stack([readings["x"], readings["y"]], axis=1) / 1000
    lon, lat = -40 + 80 * places[:, 0], 20 + 50 * places[:, 1]
    wide = readings.drop_vars(["x", "y"]).assign_coords(lon=("station", lon), lat=("station", lat))
    found = hg.cross_validate(wide, "inverse_distance")
    half = np.radians(lat[:, None] - lat) / 2, np.radians(lon[:, None] - lon) / 2
    across = np.sin(half[0]) ** 2 + np.cos(np.radians(lat[:, None])) * np.cos(np.radians(lat)) * np.sin(half[1]) ** 2
    apart = np.arcsin(np.sqrt(across)) + np.where(np.eye(30), np.inf, 0)
    weights = np.where(np.isfinite(readings), 1.0, 0.0)[:, None] / apart**2
    wanted = (weights * np.nan_to_num(readings.to_numpy())[:, None]).sum(axis=2) / weights.sum(axis=2)
    here = np.isfinite(readings.to_numpy())
    np.testing.assert_allclose(found.estimate[here], wanted[here], rtol=1e-9, atol=1e-12)
    assert hg.fit_variogram(wide).variogram.range_m > 1e5
    refused = {each.method for each in hg.compare_methods(wide) if each.common is None}
    assert {"linear", "radial_basis"} <= refused


def test_of_a_map_the_stations_below_it_are_studied(readings: xr.DataArray) -> None:
    stations = hg.base(readings).aggregate("mean", time="30min")
    surface = stations.interpolate("nearest", grid=hg.grid(x=0, y=0, step=100, shape=(3, 3))).aggregate(
        "max", time="all"
    )
    found, wanted = hg.cross_validate(surface, "nearest"), hg.cross_validate(stations, "nearest")
    np.testing.assert_array_equal(found.samples.values, wanted.samples.values)
    assert found.score.rmse == wanted.score.rmse
    filled = hg.base(readings).interpolate("linear", time="10min", max_gap="1h")
    assert len(hg.cross_validate(filled, "nearest").samples.values) == 40, "an interpolation in time is not left out"


def test_times_left_out_are_kriged_with_a_variogram_of_the_others(readings: xr.DataArray) -> None:
    found = hg.cross_validate(readings, "ordinary_kriging", by="time_block")
    assert len(found.given) == 4
    models = [given["variogram"] for given in found.given]
    assert len({model.range_m for model in models}) == 4, "each block is left out of its own fit"
    assert found.score.rmse < hg.cross_validate(readings, "nearest").score.rmse
    with pytest.raises(InvalidQuery, match="nearest fits nothing"):
        hg.cross_validate(readings, "nearest", by="time_block")


def test_a_fit_takes_the_bins_that_its_messages_speak_of(readings: xr.DataArray) -> None:
    found = hg.fit_variogram(readings, cutoff_m="0.6 km", bins=8, model="spherical")
    assert found.bins.cutoff_m == 600.0
    assert len(found.bins.pairs) == 8
    assert found.variogram == hg.fit_variogram(readings, binning=Binning(600.0, 8), model="spherical").variogram
    assert plot_variogram(found, unit="degC").axes
    for options, kind, words in (
        ({"cutof_m": 600}, NotFound, "option of fit_variogram"),
        ({"cutoff_m": "far"}, InvalidUnit, "cutoff_m of fit_variogram needs a number in m"),
        ({"bins": 2.5}, InvalidQuery, "bins of fit_variogram needs a whole number"),
        ({"bins": 5, "binning": Binning()}, InvalidQuery, "takes binning, or bins"),
    ):
        with pytest.raises(kind, match=words):
            hg.fit_variogram(readings, **options)


def assert_alike(found: VariogramFit, wanted: VariogramFit) -> None:
    distance = np.linspace(1.0, 500.0, 20)
    wanted_there = wanted.variogram.semivariance(distance)
    np.testing.assert_allclose(found.variogram.semivariance(distance), wanted_there, rtol=1e-6)
    assert found.bins.pairs.tolist() == wanted.bins.pairs.tolist()


def test_a_fit_by_group_is_that_of_the_groups_slices(readings: xr.DataArray) -> None:
    found = hg.fit_variogram_by_group(readings, by="hour", cutoff_m=500)
    assert list(found) == [0, 1, 2, 3, 4, 5, 6]
    second = readings.isel(time=readings["time"].dt.hour == 1)
    assert_alike(found[1], hg.fit_variogram(second, cutoff_m=500))
    yearly = readings.assign_coords(time=pd.date_range("2007-11-15", periods=40, freq="30D"))
    seasons = hg.fit_variogram_by_group(yearly, by="season")
    assert set(seasons) == {"DJF", "MAM", "JJA", "SON"}
    winter = yearly.isel(time=yearly["time"].dt.season == "DJF")
    assert_alike(seasons["DJF"], hg.fit_variogram(winter))
    months = hg.fit_variogram_by_group(yearly, by="month")
    may = yearly.isel(time=yearly["time"].dt.month == 5)
    assert_alike(months[5], hg.fit_variogram(may))
    own = hg.fit_variogram_by_group(readings, by=np.arange(40) // 20)
    assert_alike(own[1], hg.fit_variogram(readings[20:]))
    with pytest.raises(NotFound, match="way to group slices"):
        hg.fit_variogram_by_group(readings, by="week")


def test_a_validation_is_told_in_a_few_lines(readings: xr.DataArray) -> None:
    high = readings.assign_coords(elevation=("station", np.linspace(1000.0, 2000.0, 30)))
    found = hg.cross_validate(high, "ordinary_kriging", parameters={"variogram": VARIOGRAM})
    first, *bands = repr(found).splitlines()
    assert first.startswith("CrossValidation of ordinary_kriging by station: ")
    assert f"RMSE {found.score.rmse:.4g} degC" in first
    assert "95 % interval" in first
    assert len(bands) == 4
    assert bands[0].startswith("  1,000 to ")
    assert "elevation unknown" in repr(hg.cross_validate(readings, "nearest"))
    assert len(repr(hg.compare_methods(readings)[0])) < 2000
    hourly = hg.base(readings).aggregate("mean", time="1h")
    assert repr(hourly) == "Query(t > mean)"
    last = list(hourly.refine())[-1]
    assert repr(last) == f"Refinement(t > mean: {last.total:,} of {last.total:,} cells)"


@pytest.mark.parametrize("count", [1, 2])
def test_stations_too_few_for_a_variogram_are_compared_without_one(readings: xr.DataArray, count: int) -> None:
    found = {each.method: each for each in hg.compare_methods(readings[:, :count])}
    kriging = found["ordinary_kriging"]
    assert kriging.validation is None
    assert (kriging.problem or "").startswith("no variogram can be fitted: ")
    assert (found["nearest"].common is not None) == (count == 2)


def test_a_comparison_says_what_it_is_scored_on(readings: xr.DataArray) -> None:
    compared = hg.compare_methods(readings)
    values, first = int(np.isfinite(readings).sum()), compared[0]
    assert first.common is not None
    linear = next(each for each in compared if each.method == "linear")
    assert linear.validation is not None
    assert first.common.count == linear.validation.score.count < values, "the linear surface ends at the hull"
    words = f"scored on the {first.common.count:,} of {values:,} values that every method estimates"
    assert {each.scored_on for each in compared if each.common} == {words}
    assert first.to_json()["scored_on"] == words


def test_a_comparison_says_what_speaks_against_its_variogram(readings: xr.DataArray) -> None:
    random = np.random.default_rng(8)
    noise = readings[:1].copy(data=random.normal(size=(1, 30)))
    noisy = {each.label: each for each in hg.compare_methods(noise)}
    assert noisy["ordinary kriging"].notes == (hg.fit_variogram(noise).warning,)
    assert "fewer than 30 pairs" in noisy["ordinary kriging"].to_json()["notes"][0]
    assert noisy["nearest"].notes == ()
    tilted = readings.copy(data=np.broadcast_to(readings["x"] / 100, readings.shape).copy())
    notes = next(each.notes for each in hg.compare_methods(tilted) if each.label == "ordinary kriging")
    assert "times the network's extent" in notes[-1]


def test_directions_are_not_studied(readings: xr.DataArray) -> None:
    directions = readings.assign_attrs(units="degree")
    for study in (hg.compare_methods, hg.fit_variogram, lambda data: hg.cross_validate(data, "nearest")):
        with pytest.raises(InvalidQuery, match=r"directions has no meaning.*eastward_wind"):
            study(directions)


def test_a_simulation_needs_whole_numbers(readings: xr.DataArray) -> None:
    grid = hg.grid(x=0, y=0, step=100, shape=(3, 3))
    query = hg.base(readings[:1]).interpolate("ordinary_kriging", grid=grid, variogram=VARIOGRAM)
    for count in ("3", 2.0, 0, True):
        with pytest.raises(InvalidQuery, match="needs count, a whole number"):
            hg.simulate(query, count=count, seed=1)  # type: ignore[arg-type]
    for seed in ("a", -1, None, 1.5):
        with pytest.raises(InvalidQuery, match="needs seed, a whole number"):
            hg.simulate(query, count=1, seed=seed)  # type: ignore[arg-type]
    assert hg.simulate(query, count=np.int64(2), seed=np.random.default_rng(1)).sizes["realisation"] == 2
