"""`hypergrid compare-methods` on a day of Dutch stations: every method's error, the coverage, and the picture."""

import io
import json
import re
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import xarray as xr
from matplotlib.image import imread

from hypergrid.cli.main import main

MAINLAND = ("--within", "3.4", "50.7", "7.3", "53.45", "--without", "06204", "--without", "06320")
"""The European Netherlands without two platforms at sea."""


@pytest.fixture(scope="module")
def day(root: Path) -> Path:
    """The file of the day."""
    path = root.parent / "shared/data/knmi_10min/20221231.nc"
    if not path.is_file():
        pytest.skip("the real data set ../shared/data/knmi_10min is not here")
    return path


def run(*words: str | Path) -> tuple[int, str, str]:
    """Run the command line in this process; returns the exit status, stdout and stderr."""
    out, err = io.StringIO(), io.StringIO()
    status = 0
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(out), redirect_stderr(err):
        patch.setattr(sys, "argv", ["hypergrid", *map(str, words)])
        patch.setenv("COLUMNS", "160")
        try:
            main()
        except SystemExit as leaving:
            status = int(leaving.code or 0)
    return status, out.getvalue(), err.getvalue()


def test_kriging_is_honest_on_a_real_day(day: Path, tmp_path: Path) -> None:
    picture = tmp_path / "best.png"
    status, out, err = run("compare-methods", day, "--variable", "ta", *MAINLAND, "--picture", picture, "--json")
    assert status == 0, err
    found = {each["label"]: each["common"] for each in json.loads(out)}
    assert (
        found["ordinary kriging"]["rmse"] < 0.75 < 0.85 < found["inverse distance"]["rmse"] < found["nearest"]["rmse"]
    )
    assert 0.9 < found["ordinary kriging"]["coverage_95"] < 0.99
    assert found["nearest"]["coverage_95"] is None
    assert len({score["count"] for score in found.values()}) == 1
    height, width, _ = imread(picture).shape
    assert width > height > 600


def test_wrong_use_is_told(day: Path, tmp_path: Path) -> None:
    for words, message in (
        ((day,), "--variable"),
        ((day, "--variable", "air"), "series of stations in 20221231.nc"),
        ((day, "--variable", "ta", "--picture", tmp_path / "best.jpg"), "ends in .png"),
        ((day, "--variable", "ta", "--within", "7.3", "50.7", "3.4", "53.45"), "west below east"),
        ((tmp_path / "query.json",), "needs ARCHIVE"),
    ):
        status, out, err = run("compare-methods", *words)
        assert status == 2
        assert message in err
        assert not out


@pytest.fixture
def small(tmp_path: Path) -> Path:
    """A file of nine stations of which the outer ones lie beyond the hull of the others; three times."""
    random = np.random.default_rng(4)
    data = {
        "ta": (("station", "time"), random.normal(10.0, 1.0, (9, 3)), {"units": "degC"}),
        "lat": (("station",), random.uniform(52.0, 53.0, 9)),
        "lon": (("station",), random.uniform(5.0, 6.0, 9)),
    }
    coords = {"time": pd.date_range("2022-12-31", periods=3, freq="10min"), "station": list("ABCDEFGHI")}
    xr.Dataset(data, coords).to_netcdf(tmp_path / "small.nc", engine="h5netcdf")
    return tmp_path / "small.nc"


def test_the_table_says_what_it_scores_and_what_speaks_against_it(small: Path) -> None:
    status, out, err = run("compare-methods", small, "--variable", "ta")
    assert status == 0, err
    assert re.search(r"^scored on the \d+ of 27 values that every method estimates$", out, re.MULTILINE)
    assert re.search(r"^1: the fit of the variogram is poor: ", out, re.MULTILINE)
    status, out, _ = run("compare-methods", small, "--variable", "ta", "--json")
    rows = {row["label"]: row for row in json.loads(out)}
    assert rows["ordinary kriging"]["notes"][0].startswith("the fit of the variogram is poor: ")
    assert rows["nearest"]["notes"] == []


def test_problems_are_footnotes_that_several_methods_share(small: Path) -> None:
    without = [word for name in "ABCDEFG" for word in ("--without", name)]
    status, out, err = run("compare-methods", small, "--variable", "ta", *without)
    assert status == 0, err
    footnotes = [line for line in out.splitlines() if re.match(r"\d+: ", line)]
    assert sum("no variogram can be fitted" in line for line in footnotes) == 1
    lines = out.splitlines()
    below = next(number for number, line in enumerate(lines) if line.startswith("───")) + 1
    table = [line for line in lines[below:] if line.startswith(" ")]
    assert len(table) == len(json.loads(run("compare-methods", small, "--variable", "ta", *without, "--json")[1]))
