"""The best method's map with its uncertainty: which method, which time, and what is drawn."""

import re
from dataclasses import replace
from typing import Any

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import hypergrid as hg
from hypergrid.analysis.best_map import map_of_best, plot_comparison
from hypergrid.core.errors import InvalidQuery, InvalidTime
from hypergrid.core.version import VERSION


@pytest.fixture(scope="module")
def readings() -> xr.DataArray:
    """25 stations, 12 slices drawn from an exponential variogram; the third slice alone is whole."""
    random = np.random.default_rng(5)
    lon, lat = random.uniform(5, 6, 25), random.uniform(52, 53, 25)
    distance = np.hypot(lon[:, None] - lon, lat[:, None] - lat)
    values = random.multivariate_normal(np.full(25, 8.0), 4 * np.exp(-3 * distance) + 0.04 * np.eye(25), size=12)
    values[np.arange(12) != 2, 0] = np.nan
    coords: dict[str, Any] = {
        "time": pd.date_range("2022-12-31", periods=12, freq="10min"),
        "lon": ("station", lon),
        "lat": ("station", lat),
    }
    return xr.DataArray(
        values, dims=("time", "station"), coords=coords, name="air_temperature", attrs={"units": "degC"}
    )


@pytest.fixture(scope="module")
def compared(readings: xr.DataArray) -> list[Any]:
    """Every method on them."""
    return hg.compare_methods(readings)


def test_the_map_is_that_of_the_best_method_with_a_variance(readings: xr.DataArray, compared: list[Any]) -> None:
    best = map_of_best(readings, compared)
    assert best.best_method.validation is not None
    assert best.best_method.validation.variance is not None
    assert compared[best.rank - 1] is best.best_method
    better = [each for each in compared[: best.rank - 1] if each.validation.variance is not None]
    assert all("drift" in each.method for each in better)
    assert best.dataset["time"].to_numpy()[0] == readings["time"].to_numpy()[2]
    assert np.isfinite(best.values).all()
    # Cells at the stations are near what was measured, by no more than a few standard errors of the nugget.
    nearest = best.dataset["value"][0].sel(lon=readings["lon"], lat=readings["lat"], method="nearest")
    error = np.sqrt(best.dataset["variance"][0].sel(lon=readings["lon"], lat=readings["lat"], method="nearest"))
    assert (np.abs(nearest - readings[2]) < 4 * error).all()
    assert float(error.max()) < float(np.sqrt(best.dataset["variance"].max()))


def test_a_time_is_named_or_refused(readings: xr.DataArray, compared: list[Any]) -> None:
    best = map_of_best(readings, compared, time="2022-12-31T01:00Z")
    assert best.dataset["time"].to_numpy()[0] == np.datetime64("2022-12-31T01:00")
    times = "they go from 2022-12-31T00:00Z to 2022-12-31T01:50Z$"
    with pytest.raises(InvalidQuery, match=f"there is no time cell 2022-12-31T01:05; {times}"):
        map_of_best(readings, compared, time="2022-12-31T01:05")
    with pytest.raises(InvalidTime, match="an instant needs ISO 8601 text; got 'noon'"):
        map_of_best(readings, compared, time="noon")


def test_a_comparison_without_variances_is_refused(readings: xr.DataArray, compared: list[Any]) -> None:
    without = [each for each in compared if each.method in ("nearest", "inverse_distance")]
    with pytest.raises(InvalidQuery, match="knows its uncertainty"):
        map_of_best(readings, without)


def test_the_picture_has_both_maps_in_the_variables_unit(readings: xr.DataArray, compared: list[Any]) -> None:
    best = map_of_best(readings, compared)
    figure = plot_comparison(best)
    left, right = figure.axes[:2]
    labels = [axes.get_xlabel() for axes in figure.axes[2:]]
    assert labels == ["Air temperature [°C]", "standard error [°C]"]
    drawn = [axes.collections[0].get_array() for axes in (left, right)]
    np.testing.assert_allclose(drawn[0].ravel(), best.dataset["value"][0].to_numpy().ravel())
    np.testing.assert_allclose(drawn[1].ravel() ** 2, best.dataset["variance"][0].to_numpy().ravel())
    assert len(right.collections[-1].get_offsets()) == 25
    middle = float(best.dataset["lat"].mean())
    assert left.get_aspect() == pytest.approx(1 / np.cos(np.radians(middle)), rel=1e-3)
    assert "2022-12-31 00:20 UTC" in figure.get_suptitle()
    told = figure.get_supxlabel()
    assert f"Leave-one-out by station, {compared[0].scored_on}: " in told
    assert told.endswith(f"\nHyperGrid {VERSION}")
    assert re.search(r"scored on the \d+ of 289 values that every method estimates", told)
    doubted = replace(best, best_method=replace(best.best_method, notes=("the fit is poor: few bins",)))
    assert "Note: the fit is poor: few bins" in plot_comparison(doubted).get_supxlabel()
