"""`hypergrid layers`: what a data manager does with an elevation model."""

import io
import json
import shutil
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import numpy as np
import pyproj
import pytest

import hypergrid as hg
from hypergrid.cli.main import main
from station_data.network import stations
from station_data.terrain import write_terrain


def layers(*words: str | Path) -> tuple[int, str, str]:
    """Run the command in this process; return status, what machines and what people read."""
    out, err = io.StringIO(), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr(sys, "argv", ["hypergrid", "layers", *map(str, words)])
        try:
            main()
        except SystemExit as leaving:
            return int(leaving.code or 0), out.getvalue(), " ".join(err.getvalue().split())
    return 0, out.getvalue(), " ".join(err.getvalue().split())


@pytest.fixture
def archive(five_days: Path, tmp_path: Path) -> Path:
    """A copy of the sample's archive."""
    return Path(shutil.copytree(five_days / "build/demo/archive", tmp_path / "archive"))


def test_add_list_replace_and_remove(archive: Path, tmp_path: Path) -> None:
    terrain = write_terrain(tmp_path / "terrain.tif")
    assert layers("list", "--archive", archive, "--json") == (0, "[]\n", "")
    status, _, told = layers("add", terrain, "--archive", archive)
    assert (status, told) == (
        0, "layer 'elevation' [m]: 240 x 240 cells from terrain.tif, band 1, EPSG:4326, cell by cell",
    )  # fmt: skip
    first = hg.open(archive).snapshot
    status, _, told = layers("add", terrain, "--archive", archive)
    assert (status, "nothing was committed" in told, hg.open(archive).snapshot) == (0, True, first)

    listed = json.loads(layers("list", "--archive", archive, "--json")[1])
    assert [(row["name"], row["unit"], row["rows"], row["columns"]) for row in listed] == [("elevation", "m", 240, 240)]
    assert "elevation" in layers("list", "--archive", archive)[1]

    bounds = (7.1737, 45.8637, 7.1863, 45.8763)
    status, out, _ = layers("add", terrain, "--archive", archive, "--bounds", *map(str, bounds), "--json")
    summary = json.loads(out)
    assert status == 0
    assert summary["changed"]
    assert summary["replaced"]["rows"] == 240
    assert summary["rows"] < 120
    held = hg.open(archive).layers["elevation"]
    assert held.token == summary["token"]
    known = held.sample([(one.lon, one.lat) for one in stations()])
    np.testing.assert_allclose(known[np.isfinite(known)], [
        one.elevation_m for one, here in zip(stations(), known, strict=True) if np.isfinite(here)
    ], rtol=0, atol=0.13)  # fmt: skip

    status, _, told = layers("remove", "elevation", "--archive", archive)
    assert status == 0
    assert "older snapshots keep it" in told
    assert len(hg.open(archive).layers) == 0
    assert json.loads(layers("list", "--archive", archive, "--snapshot", first, "--json")[1]) == listed


def test_it_warns_of_stations_outside_and_of_a_unit_that_nobody_knows(archive: Path, tmp_path: Path) -> None:
    (tmp_path / "far.asc").write_text("ncols 2\nnrows 2\nxllcorner 8\nyllcorner 45\ncellsize 1\n1 2\n3 4\n")
    words = ("add", tmp_path / "far.asc", "--archive", archive, "--name", "slope", "--crs", "EPSG:4326")
    status, _, told = layers(*words)
    assert status == 0
    assert "its unit is unknown; state it with --unit" in told
    assert "24 of 24 stations have no value of it: 1, 2," in told
    status, _, told = layers(*words, "--unit", "degree")
    assert "it replaces 2 x 2 cells from far.asc" in told
    assert hg.open(archive).layers["slope"].unit == "degree"


def test_a_raster_in_metres_is_laid_onto_longitudes_and_latitudes(archive: Path, tmp_path: Path) -> None:
    to_metres = pyproj.Transformer.from_crs("EPSG:4326", "EPSG:32632", always_xy=True)
    known = stations()
    x, y = to_metres.transform(np.array([one.lon for one in known]), np.array([one.lat for one in known]))
    west, south, step = np.floor(x.min()) - 300, np.floor(y.min()) - 300, 50
    columns, rows = (int(np.ptp(axis) + 600) // step + 1 for axis in (x, y))
    # A slope whose height is known everywhere, from the north downwards as the format has it; but for a lake.
    heights = 1000 + 0.1 * step * (np.arange(columns) + 0.5) + 0.2 * step * (rows - np.arange(rows)[:, None] - 0.5)
    heights[:4, :4] = -9999
    lines = "\n".join(" ".join(map(repr, map(float, row))) for row in heights)
    raster = tmp_path / "slope.asc"
    head = f"ncols {columns}\nnrows {rows}\nxllcorner {west}\nyllcorner {south}\ncellsize {step}\nNODATA_value -9999"
    raster.write_text(f"{head}\n{lines}\n")
    options = ("--name", "elevation", "--crs", "EPSG:32632", "--unit", "m", "--json")
    status, out, told = layers("add", raster, "--archive", archive, *options)
    assert (status, told) == (0, "")
    assert "EPSG:32632, bilinear to EPSG:4326" in json.loads(out)["description"]
    sampled = hg.open(archive).layers["elevation"].sample([(one.lon, one.lat) for one in known])
    np.testing.assert_allclose(sampled, 1000 + 0.1 * (x - west) + 0.2 * (y - south), rtol=0, atol=0.2)


def test_wrong_use_is_told_and_commits_nothing(archive: Path, tmp_path: Path) -> None:
    before = hg.open(archive).snapshot
    (tmp_path / "text.tif").write_text("no raster")
    terrain = write_terrain(tmp_path / "terrain.tif", step_arcsec=10.0)
    cases: list[tuple[tuple[str | Path, ...], str]] = [
        (("add", tmp_path / "none.tif", "--archive", archive), "does not exist"),
        (("add", tmp_path / "text.tif", "--archive", archive), "cannot be read as a raster"),
        (("add", terrain, "--archive", archive, "--unit", "blorp"), "unknown unit 'blorp'"),
        (("add", terrain, "--archive", archive, "--unit", "degC"), "measure different things"),
        (("add", terrain, "--archive", archive, "--unit", "degC"), "layer 'elevation' with --unit degC: 'degC'"),
        (("add", terrain, "--archive", archive, "--unit", "degC"), "another layer takes --name"),
        (("add", terrain, "--archive", archive, "--band", "2"), "unknown band '2'"),
        (("add", terrain, "--archive", archive, "--name", ""), "needs a name"),
        (("add", terrain, "--archive", tmp_path / "nowhere"), "does not exist"),
        (("remove", "elevation", "--archive", archive), "unknown layer 'elevation'"),
    ]
    for words, expected in cases:
        status, _, told = layers(*words)
        assert (status, expected in told, "Traceback" in told) == (2, True, False), (words, told)
    assert hg.open(archive).snapshot == before
