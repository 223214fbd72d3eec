"""A small network as files, and archives told as plain values."""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from hypergrid.archive import Archive
from tests.ingest.brokers import RunningBroker

NOW_NS = 1_790_000_000_000_000_000
COLUMNS = (
    "air_temperature",
    "surface_temperature",
    "solar_radiation",
    "relative_humidity",
    "soil_moisture",
    "watermark",
    "rain_meter",
    "wind_speed",
    "wind_direction",
)
UNITS = ("degC", "degC", "W m-2", "%", "%", "kPa", "mm", "m s-1", "degree")
START = 1_190_246_400

Told = dict[str, list[tuple[object, ...]]]


def sensorscope_text(station: str, rows: int, *, seed: int = 0) -> bytes:
    """Return a file of the SensorScope format, one value in ten missing."""
    random = np.random.default_rng(seed + 100 * int(station))
    epochs = START + int(station) + 120 * np.arange(rows)
    lines = []
    for epoch, values in zip(epochs.tolist(), random.normal(5, 20, (rows, 9)), strict=True):
        clock = str(np.datetime64(epoch + 7200, "s")).replace("-", " ").replace("T", " ").replace(":", " ")
        numbers = ["NaN" if random.random() < 0.1 else f"{value:.3f}" for value in values]
        lines.append(" ".join([station, clock, str(epoch), *numbers]))
    return ("\n".join(lines) + "\n").encode()


@pytest.fixture
def now_ns() -> int:
    return NOW_NS


@pytest.fixture
def make_text() -> Callable[..., bytes]:
    return sensorscope_text


@pytest.fixture
def deployment_text() -> str:
    columns = "\n".join(f'{c} = {{variable = "{c}", unit = "{u}"}}' for c, u in zip(COLUMNS, UNITS, strict=True))
    stations = "\n".join(f'[[station]]\nid = "{n}"\nlon = 7.{n}\nlat = 45.{n}\nelevation_m = 2400.0' for n in (1, 2, 3))
    return f"""
[network]
name = "pass"
slice_s = 120
[[feed]]
name = "sensorscope"
files = "*.txt"
format = "sensorscope"
interval_s = 120.0
[feed.columns]
{columns}
{stations}
"""


@pytest.fixture
def network(tmp_path: Path, deployment_text: str) -> Path:
    """Return a folder with a deployment file and three stations of 200 rows."""
    folder = tmp_path / "network"
    folder.mkdir()
    (folder / "deployment.toml").write_text(deployment_text)
    for station in ("1", "2", "3"):
        (folder / f"pass-{station}.txt").write_bytes(sensorscope_text(station, 200))
    return folder


def everything(folder: Path) -> Told:
    """Return all that an archive holds, as sorted tuples."""
    archive = Archive.open(folder)
    told: Told = {"stations": [(repr(station),) for station in archive.stations.values()]}
    for name in archive.variables:
        for superseded in (False, True):
            readings = archive.read(name, superseded=superseded)
            columns = [
                readings.index.tolist(),
                readings.time_ns.tolist(),
                # as bits, so that NaN equals NaN
                readings.value.view(np.int64).tolist(),
                readings.flag.tolist(),
                readings.arrival_ns.tolist(),
            ]
            told[f"{name} {superseded}"] = list(zip(*columns, strict=True))
        told[f"{name} series"] = [(repr(series),) for series in archive.series(name)]
    told["rejects"] = [(repr(reject),) for reject in archive.rejects()]
    told["files"] = [(repr(entry),) for entry in archive.files()]
    return told


@pytest.fixture
def summarise() -> Callable[[Path], Told]:
    return everything


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[RunningBroker]:
    """Give a running broker, or skip."""
    running = RunningBroker(tmp_path / "broker").start()
    yield running
    running.stop()
