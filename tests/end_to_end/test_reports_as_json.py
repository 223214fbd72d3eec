"""A script's day: files are made, ingested and judged; reports are read as JSON, and readings go to other programs."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.end_to_end.in_process import hypergrid

ROOT = Path(__file__).resolve().parents[2]
STATIONS = 6


def run_module(name: str, *words: str | Path) -> str:
    """Run a module of the checkout as the READMEs print it, and return its output."""
    command = [sys.executable, "-m", name, *map(str, words)]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout


def run(*words: str | Path) -> str:
    """Run a command that must succeed, and return its output."""
    done = hypergrid(*words)
    assert done.returncode == 0, done.stderr
    return done.stdout


def run_json(*words: str | Path) -> dict[str, Any]:
    """Run a command with `--json`, and return its document."""
    document: dict[str, Any] = json.loads(run(*words, "--json"))
    return document


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An archive of one generated day of a few stations."""
    folder = tmp_path_factory.mktemp("day")
    run_module(
        "station_data.generate", folder / "stations", "--days", "1", "--start", "2007-09-30",
        "--stations", str(STATIONS), "--format", "csv",
    )  # fmt: skip
    run("ingest", folder / "archive", folder / "stations")
    return folder / "archive"


def test_quality_reports_each_variable(archive: Path) -> None:
    report = run_json("quality", archive)
    assert report["changed"] == 0
    assert report["readings"] > 1000
    assert report["before"] == report["after"]


def test_a_result_is_confirmed(archive: Path, tmp_path: Path) -> None:
    run("suggest", archive, "-o", tmp_path / "first.json")
    run("query", archive, tmp_path / "first.json", "-o", tmp_path / "first.nc")
    assert run_json("query", archive, "--again", tmp_path / "first.nc")["identical"] is True


def test_readings_go_to_smet_files(archive: Path, tmp_path: Path) -> None:
    run("export", archive, "-o", tmp_path / "out.smet")
    files = sorted(tmp_path.glob("out*.smet"))
    assert len(files) == STATIONS
    assert {path.read_text("utf-8").partition("\n")[0] for path in files} == {"SMET 1.1 ASCII"}


def test_defective_files_are_written_as_the_readme_says(tmp_path: Path) -> None:
    said = run_module("station_data.bad_files", tmp_path / "bad")
    # Their description is written beside them.
    assert f"{len(list((tmp_path / 'bad').iterdir())) - 1} files" in said
