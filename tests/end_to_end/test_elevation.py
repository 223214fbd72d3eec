"""Levels above sea level and bands of elevation, on the sample network, by the command line."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import xarray as xr

import hypergrid as hg
from hypergrid.core.times import parse_instant
from hypergrid.layers.layer import Layer

NOW_NS = parse_instant("2008-01-12")


def answered(name: str, root: Path, archive: Path, out: Path) -> xr.Dataset:
    """Return what the command line answers to a reference query, having computed it twice."""
    query = root / "station_data/queries" / f"{name}.json"
    for words in (["query", query, "-o", out], ["query", "--again", out]):
        command = [sys.executable, "-m", "hypergrid", *map(str, words), "--archive", str(archive)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
    assert "identical" in done.stdout
    return xr.open_dataset(out, engine="h5netcdf")


def test_three_levels_are_three_maps_over_plains_of_their_heights(root: Path, five_days: Path, tmp_path: Path) -> None:
    found = answered("levels", root, five_days / "build/demo/archive", tmp_path / "levels.nc")
    assert found["air_temperature"].shape == (24, 3, 23, 23)
    np.testing.assert_array_equal(found["z_bounds"], [[2375, 2425], [2425, 2475], [2475, 2525]])
    document = json.loads((root / "station_data/queries/levels.json").read_text())
    document["steps"][2]["grid"].pop("z")
    for level, height_m in enumerate((2400.0, 2450.0, 2500.0)):
        shutil.copytree(five_days / "build/demo/archive", tmp_path / f"over {height_m}")
        archive = hg.open(tmp_path / f"over {height_m}")
        plain = Layer("elevation", x=[7.0, 7.4], y=[45.7, 46.0], values=np.full((2, 2), height_m))
        archive.store.add_layer(plain, now_ns=NOW_NS)
        expected = archive.latest().query(document).compute()
        np.testing.assert_allclose(
            found["air_temperature"][:, level], expected["air_temperature"], rtol=1e-10, atol=1e-10
        )
        np.testing.assert_array_equal(found["extrapolated"][level], expected["extrapolated"])


def test_bands_are_the_means_of_their_stations(root: Path, five_days: Path, tmp_path: Path) -> None:
    archive = five_days / "build/demo/archive"
    found = answered("bands", root, archive, tmp_path / "bands.nc")
    assert found["air_temperature"].dims == ("time", "z")
    document = json.loads((root / "station_data/queries/bands.json").read_text())
    stations = hg.open(archive).query({**document, "steps": document["steps"][:-1]}).compute()
    for band, (low, high) in enumerate(((2350, 2400), (2400, 2450), (2450, 2550))):
        held = stations["air_temperature"].values[
            :, [low <= height < high for height in stations["elevation"].values.tolist()]
        ]
        known = np.isfinite(held)
        assert known.any()
        np.testing.assert_array_equal(found["air_temperature_count"][:, band], known.sum(axis=1))
        np.testing.assert_array_equal(found["air_temperature_count_possible"][:, band], known.shape[1])
        enough = known.mean(axis=1) >= 0.8
        expected = [np.mean(row[there]) for row, there in zip(held[enough], known[enough], strict=True)]
        np.testing.assert_allclose(found["air_temperature"].values[enough, band], expected, rtol=1e-12)
        assert np.isnan(found["air_temperature"].values[~enough, band]).all()
