"""Commands used wrongly or in vain: each says what it needed, what came and what to do; and checks before serving."""

import json
import re
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import rasterio

from tests.end_to_end.in_process import Done, hypergrid, process
from tests.ingest.valley import deployment_text

SERIES = {"variable": "air_temperature", "steps": [{"op": "aggregate", "function": "mean", "time": "1day"}]}


@pytest.fixture
def archive(five_days: Path, tmp_path: Path) -> Path:
    """A copy of the sample's archive."""
    return Path(shutil.copytree(five_days / "build/demo/archive", tmp_path / "archive"))


def findings(done: Done) -> dict[str, tuple[str, str]]:
    """Return what `serve --check` found: state and message, by what was looked at."""
    return {row["what"]: (row["state"], row["found"]) for row in json.loads(done.stdout)}


def test_a_server_is_checked_before_it_is_started(archive: Path, tmp_path: Path) -> None:
    (tmp_path / "saved").mkdir()
    (tmp_path / "saved" / "series.json").write_text(json.dumps(SERIES))
    (tmp_path / "settings.toml").write_text('origins = ["https://maps.example.org"]\n')
    words = ("serve", archive, "--check", "--json", "--saved", tmp_path / "saved")
    fine = hypergrid(*words, "--port", "0", "--settings", tmp_path / "settings.toml")
    assert fine.returncode == 0, fine.stdout
    assert {state for state, _ in findings(fine).values()} == {"fine"}
    assert "access control is off" in findings(fine)["keys"][1]

    (tmp_path / "saved" / "broken.json").write_text("{")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        refused = hypergrid(*words, "--port", str(taken.getsockname()[1]))
    assert refused.returncode == 1
    found = findings(refused)
    assert found["saved"][0] == "wrong"
    assert "broken" in found["saved"][1]
    assert found["address"][0] == "wrong"
    assert "already in use" in found["address"][1]

    (tmp_path / "settings.toml").write_text('origins = ["https://*.example.org"]\n')
    vague = hypergrid(*words, "--port", "0", "--settings", tmp_path / "settings.toml")
    assert "needs exact origins" in vague.stdout + vague.stderr


def test_another_address_needs_a_key_that_was_not_revoked(archive: Path) -> None:
    words = ("serve", archive, "--check", "--json", "--host", "0.0.0.0", "--port", "0")
    assert "there is none that opens anything" in findings(hypergrid(*words))["address"][1]
    made = hypergrid("keys", "create", archive, "office")
    assert made.returncode == 0, made.stderr
    assert findings(hypergrid(*words))["address"][0] == "fine"
    assert "opens nothing any more" in hypergrid("keys", "revoke", archive, "office").stderr
    assert findings(hypergrid(*words))["address"][0] == "wrong"
    assert "office" in hypergrid("keys", "revoke", archive, "office").stderr


def test_an_archive_that_a_variable_of_the_environment_names_takes_files_alone(
    archive: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HYPERGRID_ARCHIVE", str(archive))
    done = hypergrid("ingest", tmp_path / "nowhere")
    assert done.returncode == 2
    assert "is no file or folder with files; give --archive DIR" in " ".join(done.stderr.split())


def test_a_zarr_store_replaces_another_and_nothing_else(archive: Path, tmp_path: Path) -> None:
    (tmp_path / "query.json").write_text(json.dumps(SERIES))
    words = ("query", archive, tmp_path / "query.json", "-o")
    for _ in range(2):
        assert hypergrid(*words, tmp_path / "days.zarr").returncode == 0
    assert (tmp_path / "days.zarr" / "zarr.json").is_file()
    (tmp_path / "notes.zarr").mkdir()
    (tmp_path / "notes.zarr" / "note.txt").write_text("kept")
    refused = hypergrid(*words, tmp_path / "notes.zarr")
    assert refused.returncode == 2
    assert "no Zarr store" in refused.stderr
    assert (tmp_path / "notes.zarr" / "note.txt").read_text() == "kept"


def test_large_maps_are_written_one_after_another(archive: Path, tmp_path: Path) -> None:
    grid = {"lon": 7.0, "lat": 45.0, "step": "1arcsec", "shape": [2100, 2100]}
    steps = [
        {"op": "aggregate", "function": "mean", "time": "all"},
        {"op": "interpolate", "method": "nearest", "grid": grid},
    ]
    (tmp_path / "query.json").write_text(json.dumps({"variable": "air_temperature", "steps": steps}))
    maps = []
    for name in ("first.tif", "second.tif"):
        done = hypergrid("query", archive, tmp_path / "query.json", "-o", tmp_path / name)
        assert done.returncode == 0, done.stderr
        with rasterio.open(tmp_path / name) as raster:
            maps.append(raster.read())
    # The files tell how long they took, so that their sizes may differ.
    assert maps[0].shape[-2:] == (2100, 2100)
    assert np.array_equal(*maps, equal_nan=True)


def test_a_command_without_its_library_names_the_extra(archive: Path) -> None:
    program = (
        "import sys; sys.modules['uvicorn'] = None; sys.argv[0] = 'hypergrid'; "
        "from hypergrid.cli.main import main; main()"
    )
    words = [sys.executable, "-c", program, "serve", str(archive), "--check"]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "uvicorn is not installed: install hypergrid-stations[serve]" in done.stderr


def test_a_benchmark_that_does_not_exist_is_named_with_those_that_do() -> None:
    done = hypergrid("bench", "krigging")
    assert done.returncode == 2
    assert "did you mean 'kriging'" in done.stderr


@pytest.mark.parametrize(
    ("written", "meant"),
    [("slice_s", "slize_s"), ('"csv"', '"cvs"')],
    ids=["a key", "a format"],
)
def test_a_slip_in_a_deployment_file_is_told_with_what_is_near(written: str, meant: str, tmp_path: Path) -> None:
    text = deployment_text()
    assert written in text
    (tmp_path / "deployment.toml").write_text(text.replace(written, meant, 1))
    (tmp_path / "A.csv").write_text("time,T,RH\n2024-07-01T00:00,1.0,50\n")
    done = hypergrid("ingest", tmp_path / "archive", tmp_path)
    assert done.returncode == 2
    assert "did you mean" in done.stderr


def test_the_whole_way_is_shown_once(tmp_path: Path) -> None:
    done = process("demo", "--no-serve", "--folder", tmp_path / "demo")
    assert done.returncode == 0, done.stderr
    shown = " ".join((done.stdout + done.stderr).split())
    numbers = re.search(r"root-mean-square error ([0-9.]+) K; plain mean of the stations ([0-9.]+) K", shown)
    assert numbers is not None, shown
    assert 0.0 < float(numbers[1]) < float(numbers[2])
    assert (tmp_path / "demo" / "archive").is_dir()
