"""What the tests of the sample network share: four generated weeks, and readers that know nothing of the writer."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from station_data.generate import generate

Table = NDArray[np.float64]


@pytest.fixture(scope="session")
def four_weeks(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The default deployment of 28 days, SensorScope text only."""
    return generate(tmp_path_factory.mktemp("pass") / "four_weeks", formats=("sensorscope",))


@pytest.fixture(scope="session")
def read_text() -> Callable[[Path, str], Table]:
    """Reader of one station's text file: an array of 17 columns."""

    def read(folder: Path, station: str) -> Table:
        return np.loadtxt(folder / "sensorscope" / f"pass-meteo-{station}.txt", ndmin=2)

    return read


@pytest.fixture(scope="session")
def read_arrivals() -> Callable[[Path], Table]:
    """Reader of ``arrivals.csv``: an array of station, time [s], arrival [s]."""

    def read(folder: Path) -> Table:
        return np.loadtxt(folder / "arrivals.csv", delimiter=",", skiprows=1)

    return read
