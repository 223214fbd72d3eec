"""The small archive with saved surfaces of every kind, served."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi.testclient import TestClient

import hypergrid as hg
from queries.jobs.runner import Runner
from queries.snapshots.catalogue import Catalogue
from queries.web.app import create_app

Document = dict[str, Any]


@pytest.fixture(scope="session")
def surfaces() -> dict[str, Document]:
    """Return the saved queries that are collections."""
    hourly = {"op": "aggregate", "function": "mean", "time": "1h"}
    cells = {"lon": "7:10:37", "lat": "45:52:01", "step": "1arcsec", "shape": [10, 12]}
    model = {"model": "exponential", "psill": 1.2, "range_m": 250.0, "nugget": 0.05}
    kriged = {"op": "interpolate", "method": "ordinary_kriging", "grid": cells, "params": {"variogram": model}}
    time = {"time": ["2007-10-01T00:00Z", "2007-10-01T04:00Z"]}
    levels = {**kriged, "grid": {**cells, "z": {"edges": [2300, 2400, 2500]}}}
    levels["params"] = {"variogram": model, "trend": {"lapse_rate": -6.5}}
    nearest = {"op": "interpolate", "method": "inverse_distance", "grid": cells}
    fitted = {**kriged, "params": {"variogram": "fit"}}
    average = {"op": "aggregate", "function": "mean", "time": "all"}
    coarse = {"op": "aggregate", "function": "mean", "lon": "all", "lat": "all"}
    normal = {"variable": "air_temperature", "steps": [hourly, kriged]}
    merged = {"op": "merge", "function": "difference", "with": [normal]}
    found = {
        "hourly": [hourly, kriged],
        "levels": [hourly, levels],
        "whole": [hourly, kriged, average],
        "distance": [hourly, nearest],
        "fitted": [hourly, fitted],
        "coarse": [hourly, kriged, coarse],
        "difference": [hourly, kriged, merged],
    }
    made: dict[str, Document] = {
        name: {"variable": "air_temperature", "steps": steps, "clip": time} for name, steps in found.items()
    }
    made["part"] = {**made["hourly"], "clip": {**time, "lon": ["7:10:39", "7:10:45"], "lat": ["45:52:03", "45:52:09"]}}
    return made


@pytest.fixture(scope="session")
def saved_surfaces(surfaces: dict[str, Document], tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("saved")
    others = {
        "series": {"variable": "air_temperature", "steps": [{"op": "aggregate", "function": "mean", "time": "1h"}]},
        "of_nothing": {"variable": "nothing", "steps": []},
        "with blank": surfaces["hourly"],
        "stations": surfaces["hourly"],
        "hours": {
            **surfaces["hourly"],
            "steps": [*surfaces["hourly"]["steps"], {"op": "aggregate", "function": "mean", "time": "hour_of_day"}],
        },
    }
    for name, document in {**surfaces, **others}.items():
        (folder / f"{name}.json").write_text(json.dumps(document), "utf-8")
    return folder


@pytest.fixture(scope="session")
def edr(archive: hg.OpenArchive, saved_surfaces: Path) -> Iterator[httpx.Client]:
    """Return a client whose addresses start below `/edr/collections`."""
    app = create_app(Runner(archive), Catalogue(archive, saved=saved_surfaces))
    with TestClient(app, base_url="http://127.0.0.1/edr/", raise_server_exceptions=True) as client:
        yield client
