"""`hypergrid compare-methods` on a day of Dutch stations: every method's error, the coverage, and the picture."""

import io
import json
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import pytest
from matplotlib.image import imread

from hypergrid.__main__ import main

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
        ((tmp_path / "query.json",), "--archive"),
    ):
        status, out, err = run("compare-methods", *words)
        assert status == 2
        assert message in err
        assert not out
