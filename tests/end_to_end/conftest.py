"""Archives of the sample network, made once a run."""

from pathlib import Path

import pytest

from ingest.job import ingest
from station_data.generate import generate
from tools.docs.blocks import make_demo

ROOT = Path(__file__).resolve().parents[2]
NOW_NS = 1_200_000_000 * 10**9


@pytest.fixture(scope="session")
def root() -> Path:
    """The project's folder."""
    return ROOT


@pytest.fixture(scope="session")
def five_days(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder in which `build/demo/archive` holds the sample's days from 2007-09-30 to 2007-10-04."""
    folder = tmp_path_factory.mktemp("five_days")
    generate(folder / "stations", start="2007-09-30", days=5, formats=("sensorscope",))
    ingest([folder / "stations"], folder / "build/demo/archive", engine="inprocess", now_ns=NOW_NS)
    return folder


@pytest.fixture(scope="session")
def demo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The archive that the guide reads: nine days of the sample network, with its terrain."""
    return make_demo(tmp_path_factory.mktemp("guide"))
