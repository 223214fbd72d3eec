"""covjson-reader (npm), which the maps of others are drawn with, reads a Grid and a PointSeries.

Needs node, and the package where `NODE_PATH` says: `make judges` fetches it.
"""

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest

import hypergrid as hg
from hypergrid.core.times import parse_instant

NODE = shutil.which("node")
AIR = "air_temperature"


def is_there() -> bool:
    return (
        NODE is not None
        and subprocess.run([NODE, "-e", "require('covjson-reader')"], capture_output=True).returncode == 0
    )


pytestmark = pytest.mark.skipif(
    not is_there(), reason="node or its package covjson-reader (NODE_PATH) is not installed"
)


def read(content: bytes) -> list[dict[str, Any]]:
    script = Path(__file__).with_name("read_coverage.cjs")
    done = subprocess.run([str(NODE), str(script), AIR], input=content, capture_output=True, check=True, timeout=60)
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


def test_a_grid(edr: httpx.Client, archive: hg.OpenArchive, surfaces: dict[str, Any]) -> None:
    (found,) = read(edr.get("collections/hourly/cube", params={"bbox": "7,45,8,46"}).content)
    assert found["domainType"].endswith("Grid")
    expected = archive.query(surfaces["hourly"]).compute()["value"]
    assert len(found["rows"]) == expected.size
    for row in found["rows"]:
        at = dict(zip(found["axes"], row, strict=False))
        cell = expected.sel(lon=at["x"], lat=at["y"], time=np.datetime64(parse_instant(at["t"]), "ns"))
        assert row[-1] == pytest.approx(float(cell), rel=1e-12)


def test_a_series_of_a_point(edr: httpx.Client, archive: hg.OpenArchive) -> None:
    (found,) = read(edr.get("collections/stations/locations/2").content)
    assert found["domainType"].endswith("PointSeries")
    readings = archive.store.read(AIR)
    mine = readings.take_rows(np.array([readings.series[index].station == "2" for index in readings.index]))
    t = found["axes"].index("t")
    stamps = [parse_instant(row[t]) for row in found["rows"]]
    assert dict(zip(stamps, (row[-1] for row in found["rows"]), strict=True)) == dict(
        zip(mine.time_ns.tolist(), mine.value.tolist(), strict=True)
    )
