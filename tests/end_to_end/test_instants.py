"""Interpolation in time, then in space, on the sample network: through Python and through the command line."""

import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import xarray as xr

import hypergrid as hg
from hypergrid.cli.main import main

CLIP = ("2007-10-01T06:00Z", "2007-10-01T12:00Z")
GRID = hg.grid(lon="7:10:37", lat="45:52:01", step="4arcsec", shape=(5, 6))
VARIOGRAM = hg.variogram("exponential", psill=1.2, range_m=250.0, nugget=0.05)


@pytest.mark.parametrize("method", ["nearest", "linear", "spline"])
def test_a_map_of_instants(five_days: Path, method: str) -> None:
    base = hg.open(five_days / "build/demo/archive")["air_temperature"]
    instants = base.convert("valid_range", low=-40, high=50).interpolate(method, time="10min", max_gap="30min")
    maps = instants.interpolate("ordinary_kriging", grid=GRID, variogram=VARIOGRAM).clip(time=CLIP).compute()
    assert maps["value"].shape == (36, 5, 6)
    assert maps["time"].to_numpy()[0] == np.datetime64("2007-10-01T06:00")
    stations = instants.clip(time=CLIP).compute()["value"].to_numpy()
    np.testing.assert_array_equal(maps["count"][:, 0, 0], np.isfinite(stations).sum(axis=1))
    # Not far from means of the cells around: the weather of the sample changes slowly, its noise is small.
    means = base.convert("valid_range", low=-40, high=50).aggregate("mean", time="10min").clip(time=CLIP).compute()
    difference = np.nanmean(np.abs(stations - means["value"].to_numpy()))
    assert 0 < difference < 1.0


def test_a_lost_reading_is_found_again(five_days: Path) -> None:
    """Of cell means with every third instant left out, the spline finds what was left out better than the nearest."""
    base = hg.open(five_days / "build/demo/archive")["air_temperature"].convert("valid_range", low=-40, high=50)
    hourly = base.aggregate("mean", time="1h").clip(time=("2007-10-01", "2007-10-04")).compute()["value"]
    array = hourly.rename("air_temperature").assign_attrs(units="degC").drop_vars(["time_bounds"], errors="ignore")
    kept = array.isel(time=[i for i in range(array.sizes["time"]) if i % 3 != 1])
    errors = {}
    for method in ("nearest", "linear", "spline"):
        found = hg.base(kept).interpolate(method, time="1h", max_gap="2h").compute()["value"]
        left_out = array.isel(time=slice(1, None, 3))
        errors[method] = float(np.sqrt(np.nanmean((found.sel(time=left_out["time"]) - left_out) ** 2)))
    assert errors["linear"] < 0.6 * errors["nearest"]
    assert errors["spline"] < 0.6 * errors["nearest"]


def test_the_command_line_computes_it(
    five_days: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    archive = five_days / "build/demo/archive"
    query = (
        hg.open(archive)["air_temperature"]
        .interpolate("linear", time="10min", max_gap="30min")
        .interpolate("ordinary_kriging", grid=GRID, variogram=VARIOGRAM)
        .clip(time=CLIP)
    )
    (tmp_path / "query.json").write_text(json.dumps(query.to_json()))
    words = ["query", tmp_path / "query.json", "--archive", archive, "-o", tmp_path / "out.nc", "--json"]
    monkeypatch.setattr(sys, "argv", ["hypergrid", *map(str, words)])
    with pytest.raises(SystemExit) as leaving:
        main()
    assert not leaving.value.code, capsys.readouterr().err
    computed = query.compute()
    with xr.open_dataset(tmp_path / "out.nc") as written:
        np.testing.assert_array_equal(written["air_temperature"], computed["air_temperature"])
        assert pd.DatetimeIndex(written["time"]).equals(pd.DatetimeIndex(computed["time"]))
        assert "time: point (comment: linear_in_time)" in written["air_temperature"].attrs["cell_methods"]
