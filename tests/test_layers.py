"""The layers of the design hold, and the check that says so can say otherwise."""

import os
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SETTINGS = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["importlinter"]
PACKAGES = SETTINGS["root_packages"]
CONTRACTS = [contract["id"] for contract in SETTINGS["contracts"]]


def check_layers(folder: Path) -> subprocess.CompletedProcess[str]:
    """Run import-linter on the packages that lie in `folder`, not on those installed."""
    program = "import sys; from importlinter.cli import lint_imports_command; sys.exit(lint_imports_command())"
    command = [sys.executable, "-c", program, "--no-cache"]
    # A wide page, so that no contract's name is broken over two lines.
    environment = {**os.environ, "COLUMNS": "200"}
    return subprocess.run(
        command, cwd=folder, env=environment, capture_output=True, text=True, timeout=120, check=False
    )


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    """Give a copy of the packages and their contracts."""
    for package in PACKAGES:
        shutil.copytree(
            ROOT / package,
            tmp_path / package,
            ignore=lambda folder, names: [
                name for name in names if not name.endswith(".py") and not (Path(folder) / name).is_dir()
            ],
        )
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    return tmp_path


def test_the_layers_hold() -> None:
    answer = check_layers(ROOT)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert f"{len(CONTRACTS)} kept, 0 broken" in answer.stdout


@pytest.mark.parametrize(
    ("module", "planted", "reported"),
    [
        # the floor reaches up to the query
        ("hypergrid/units.py", "import hypergrid.query", "inside hypergrid imports go downwards"),
        # kriging reaches up to the perspective
        ("hypergrid/kriging/variogram.py", "import hypergrid.perspective", "inside hypergrid imports go downwards"),
        # the perspective reaches up to an engine
        ("hypergrid/perspective/steps.py", "import hypergrid.execution", "inside hypergrid imports go downwards"),
        # the model reaches up to a room that stands on it
        ("hypergrid/store/archive.py", "import ingest.assemble", "hypergrid knows nothing that stands on it"),
        # one room reaches over to another
        ("queries/catalogue.py", "import ingest.assemble", "stand side by side"),
        # the truth leans on what it judges
        ("station_data/truth.py", "import hypergrid.kriging", "stands alone"),
        # frameworks outside their folders
        ("ingest/assemble.py", "import pyspark", "Spark is known in ingest.spark only"),
        ("queries/catalogue.py", "import fastapi", "the web framework is known in queries.web only"),
        ("queries/web/app.py", "import bokeh", "Bokeh is known in viz only"),
        ("hypergrid/query.py", "import icechunk", "Icechunk is known in hypergrid.store only"),
        ("hypergrid/query.py", "import rasterio", "rasterio is known in hypergrid.rasters"),
    ],
)
def test_a_planted_import_is_reported(copy: Path, module: str, planted: str, reported: str) -> None:
    path = copy / module
    path.write_text(path.read_text() + f"\n{planted}\n")
    answer = check_layers(copy)
    assert answer.returncode == 1
    broken = [line for line in answer.stdout.splitlines() if " BROKEN" in line]
    assert any(reported in line for line in broken), answer.stdout + answer.stderr


def test_a_module_without_a_storey_is_reported(copy: Path) -> None:
    (copy / "hypergrid" / "anywhere.py").write_text('"""A module that the contracts do not name."""\n')
    answer = check_layers(copy)
    assert answer.returncode == 1
    assert "anywhere" in answer.stdout
