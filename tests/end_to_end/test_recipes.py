"""Recipes on the sample network: the other variable and the terrain come from the archive, errors from the truth."""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import hypergrid as hg
from hypergrid.archive import Archive
from hypergrid.core.errors import InvalidQuery, NotFound
from hypergrid.layers.raster_reader import read_raster
from hypergrid.query import OpenArchive
from station_data.terrain import write_terrain
from station_data.truth import truth

NOW_NS = 1_200_000_000 * 10**9
GRID = {"lon": "7:10:37", "lat": "45:52:01", "step": "2arcsec", "shape": [11, 11]}
CLEAN = {"relative_humidity": (0.0, 105.0), "wind_direction": (0.0, 360.0), "solar_radiation": (-10.0, 1500.0)}


@pytest.fixture(scope="module")
def archive(five_days: Path, tmp_path_factory: pytest.TempPathFactory) -> OpenArchive:
    """The sample's archive with its terrain."""
    folder = tmp_path_factory.mktemp("terrain")
    shutil.copytree(five_days / "build/demo/archive", folder / "archive")
    layer = read_raster(write_terrain(folder / "terrain.tif", step_arcsec=1.0), name="elevation", unit="m")
    Archive.open(folder / "archive").add_layer(layer, now_ns=NOW_NS)
    return hg.open(folder / "archive")


def document(variable: str, **params: object) -> dict[str, Any]:
    low, high = CLEAN[variable]
    stations = [str(number) for number in range(1, 25) if number != 9]  # 9 has the wrong time zone
    aligned = "sample" if variable == "wind_direction" else "mean"
    return {
        "variable": variable,
        "select": {"station": stations},
        "steps": [
            {"op": "convert", "function": "valid_range", "params": {"low": low, "high": high}},
            {"op": "aggregate", "function": aligned, "time": "10min"},
            {"op": "interpolate", "method": "recipe", "grid": GRID, "params": params},
        ],
        "clip": {"time": ["2007-10-01T03:00Z", "2007-10-01T15:00Z"]},
    }


@pytest.mark.parametrize(
    ("variable", "rmse"), [("relative_humidity", 1.0), ("wind_direction", 8.0), ("solar_radiation", 5.0)]
)
def test_a_written_recipe_comes_near_the_truth(archive: OpenArchive, variable: str, rmse: float) -> None:
    found = archive.query(document(variable)).compute()
    middle = found["time"].to_numpy().astype("datetime64[ns]") + np.timedelta64(300, "s")
    lon, lat = np.meshgrid(found["lon"].to_numpy(), found["lat"].to_numpy())
    off = found["value"].to_numpy() - truth(variable, middle[:, None, None], lon, lat)
    if variable == "wind_direction":
        off = (off + 180.0) % 360.0 - 180.0
    assert found["value"].shape == (72, 11, 11)
    assert float(np.sqrt(np.mean(off**2))) < rmse


def test_explain_shows_what_is_done(archive: OpenArchive) -> None:
    text = archive.query(document("relative_humidity")).explain()
    for line in (
        "base air_temperature [degC]",
        "valid_range(high=60, low=-80)",
        "merge dew_point",
        "interpolate ordinary_kriging(trend=auto, variogram=exponential fitted once)",
        "merge relative_humidity -> 72 x 10min",
    ):
        assert line in text


def test_the_token_knows_the_terrain(archive: OpenArchive, five_days: Path) -> None:
    query = archive.query(document("solar_radiation"))
    bare = hg.open(five_days / "build/demo/archive")
    with pytest.raises(NotFound, match="hypergrid layers add"):
        bare.query(document("solar_radiation", trend="profile")).plan()
    without = bare.query(document("solar_radiation", trend="none")).compute()
    assert np.isfinite(without["value"]).all()
    assert "clear sky is that of" in without.attrs["comment"]
    dropped = bare.query(document("solar_radiation")).compute()
    assert dropped["value"].equals(without["value"])
    assert "no trend in elevation is tried" in dropped.attrs["comment"]
    assert query.token != archive.query(document("solar_radiation", trend="none")).token
    assert "clear sky is that of" not in query.compute().attrs["comment"]


def test_readings_with_clocks_of_their_own_are_to_be_aligned_first(archive: OpenArchive) -> None:
    grid = hg.grid(**GRID)
    for variable in ("relative_humidity", "solar_radiation"):
        with pytest.raises(InvalidQuery, match="aggregate"):
            archive[variable].interpolate("recipe", grid=grid).plan()
