"""The layers of the design hold, and the check that says so can say otherwise."""

import os
import re
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


PLANTS = [
    # the floor reaches up to the query
    ("hypergrid/core/units.py", "import hypergrid.query", "inside hypergrid imports go downwards"),
    # kriging reaches up to the perspective
    (
        "hypergrid/interpolation/variograms/variogram.py",
        "import hypergrid.perspective",
        "inside hypergrid imports go downwards",
    ),
    # the perspective reaches up to an engine
    ("hypergrid/perspective/spec/query_spec.py", "import hypergrid.execution", "inside hypergrid imports go downwards"),
    # the model reaches up to a room that stands on it
    (
        "hypergrid/archive/archive.py",
        "import ingest.deployment.to_readings",
        "hypergrid below its command line imports no other room",
    ),
    # layers inside the rooms
    (
        "hypergrid/interpolation/points.py",
        "import hypergrid.interpolation.solvers",
        "hypergrid.interpolation imports",
    ),
    (
        "hypergrid/execution/planning/plan.py",
        "import hypergrid.execution.running",
        "inside hypergrid.execution imports",
    ),
    ("ingest/formats/csv.py", "import ingest.batch.plan", "inside ingest imports go downwards"),
    ("queries/jobs/records.py", "import queries.web.app", "inside queries imports go downwards"),
    # one room reaches over to another
    ("queries/snapshots/catalogue.py", "import ingest.deployment.to_readings", "stand side by side"),
    # the truth leans on what it judges
    ("station_data/truth.py", "import hypergrid.interpolation", "stands alone"),
    # frameworks outside their folders
    ("ingest/deployment/to_readings.py", "import pyspark", "Spark is known in ingest.spark only"),
    ("queries/snapshots/catalogue.py", "import fastapi", "the web framework is known in queries.web only"),
    ("queries/web/app.py", "import bokeh", "Bokeh is known in viz only"),
    ("hypergrid/query.py", "import icechunk", "Icechunk is known in hypergrid.archive only"),
    ("hypergrid/query.py", "import rasterio", "rasterio is known in hypergrid.layers.raster_reader"),
    ("hypergrid/query.py", "import shapely", "shapely is known in hypergrid.topology, and"),
    # a page that looks into the archive
    ("viz/site.py", "import hypergrid.query", "pages reach data through the web API only"),
]
"""Files, what is added to each, and words of the contract that says so."""


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> subprocess.CompletedProcess[str]:
    """Give what is said about a copy of the packages in which all that is planted stands."""
    folder = tmp_path_factory.mktemp("planted")
    for package in PACKAGES:
        shutil.copytree(
            ROOT / package,
            folder / package,
            ignore=lambda here, names: [
                name for name in names if not name.endswith(".py") and not (Path(here) / name).is_dir()
            ],
        )
    shutil.copy(ROOT / "pyproject.toml", folder)
    for module, planted, _ in PLANTS:
        with (folder / module).open("a") as file:
            file.write(f"\n{planted}\n")
    (folder / "hypergrid" / "anywhere.py").write_text('"""A module that the contracts do not name."""\n')
    return check_layers(folder)


def broken_contracts(said: str) -> dict[str, str]:
    """Return what is said about each broken contract, by its name."""
    _, _, details = said.partition("Broken contracts\n")
    parts = re.split(r"^(.+)\n-+\n", details, flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


def test_the_layers_hold() -> None:
    answer = check_layers(ROOT)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert f"{len(CONTRACTS)} kept, 0 broken" in answer.stdout


@pytest.mark.parametrize(("module", "planted", "contract"), PLANTS)
def test_a_planted_import_is_reported(
    report: subprocess.CompletedProcess[str], module: str, planted: str, contract: str
) -> None:
    assert report.returncode == 1
    (details,) = [text for name, text in broken_contracts(report.stdout).items() if contract in name]
    importer, imported = module.removesuffix(".py").replace("/", "."), planted.removeprefix("import ")
    assert re.search(rf"\b{re.escape(importer)} -> {re.escape(imported)}\b", details), report.stdout + report.stderr


def test_a_module_without_a_layer_is_reported(report: subprocess.CompletedProcess[str]) -> None:
    assert report.returncode == 1
    (details,) = [
        text
        for name, text in broken_contracts(report.stdout).items()
        if "inside hypergrid imports go downwards" in name
    ]
    assert "anywhere" in details
