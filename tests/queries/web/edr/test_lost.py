"""Saved surfaces that cannot be computed any more are listed with why, and the server's health says so."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from fastapi.testclient import TestClient

import hypergrid as hg
from hypergrid.archive import Archive
from hypergrid.core.readings import Position, Readings, Series, Station
from hypergrid.core.times import SECOND_NS, parse_instant
from hypergrid.core.units import KNOWN_VARIABLES
from ingest.job import ingest
from queries.jobs.runner import Runner
from queries.snapshots.catalogue import Catalogue
from queries.web.app import create_app
from tests.queries.conftest import STATIONS

Document = dict[str, Any]
AIR = "air_temperature"
START_NS = parse_instant("2007-10-01")
KRIGED = ("hourly", "distance", "levels", "whole", "coarse", "difference", "part")
WHY = "station '1' has 2 series of this variable"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Five stations, one series each, as an archive that others commit to."""
    made = Archive.create(
        tmp_path / "archive", name="small", slice_s=120, variables=[KNOWN_VARIABLES[AIR]], now_ns=START_NS
    )
    series = tuple(Series(AIR, station, 2.0, interval_s=120.0, source="feed/t") for station in STATIONS)
    index = np.repeat(np.arange(len(series), dtype=np.int32), 180)
    time_ns = np.tile(START_NS + np.arange(180) * 120 * SECOND_NS, len(series))
    readings = Readings(series, index, time_ns, 5.0 + index, np.ones(len(index), np.uint8), time_ns)
    with made.commit(batch="first", message="", now_ns=START_NS) as writer:
        writer.stations([Station(key, key, (Position(None, *place, 2400.0),)) for key, place in STATIONS.items()])
        writer.readings(readings)
    return tmp_path / "archive"


@pytest.fixture
def saved(surfaces: dict[str, Document], tmp_path: Path) -> Path:
    folder = tmp_path / "saved"
    folder.mkdir()
    chosen = {**surfaces["hourly"], "select": {"height_m": 2.0}}
    others = {"chosen": chosen, "of_nothing": {"variable": "nothing", "steps": []}, "table": {"variable": AIR}}
    for name, document in {**{name: surfaces[name] for name in KRIGED}, **others}.items():
        (folder / f"{name}.json").write_text(json.dumps(document), "utf-8")
    return folder


@pytest.fixture
def web(path: Path, saved: Path) -> Iterator[httpx.Client]:
    opened = hg.open(path)
    app = create_app(Runner(opened), Catalogue(opened, saved=saved))
    with TestClient(app, base_url="http://127.0.0.1") as client:
        yield client


def add_second_series(path: Path, tmp_path: Path) -> list[str]:
    """Ingest a plain CSV of a station that the archive has; return the warnings."""
    plain = tmp_path / "plain.csv"
    plain.write_text(f"station,time,{AIR}\n1,2007-10-01T02:00:00Z,3.5\n1,2007-10-01T02:10:00Z,3.6\n", "utf-8")
    return list(ingest([plain], path, now_ns=START_NS + SECOND_NS).warnings)


def listed(web: httpx.Client) -> tuple[set[str], dict[str, str]]:
    surfaces = web.get("/api/v1/surfaces").json()
    there = {one["id"] for one in web.get("/edr/collections").json()["collections"]}
    assert there - {"stations"} == {one["id"] for one in surfaces if one["collection"] is not None}
    assert all(web.get(one["collection"]).status_code == 200 for one in surfaces if one["collection"] is not None)
    return there, {one["id"]: one["why"] for one in surfaces if one["why"]}


def test_surfaces_that_a_second_series_makes_ambiguous_are_listed_with_why(
    web: httpx.Client, path: Path, tmp_path: Path
) -> None:
    there, unavailable = listed(web)
    assert there == {"stations", "chosen", *KRIGED}
    # That its variable is in no reading of this archive is no news.
    assert set(unavailable) == {"of_nothing"}
    assert web.get("/health").json()["troubles"] == {}
    before = hg.open(path).snapshot
    add_second_series(path, tmp_path)
    there, unavailable = listed(web)
    assert there == {"stations", "chosen"}
    assert set(unavailable) == {"of_nothing", *KRIGED}
    for name in KRIGED:
        assert WHY in unavailable[name]
        assert "select" in unavailable[name]
        refused = web.get(f"/edr/collections/{name}")
        assert refused.status_code == 404
        assert WHY in refused.json()["detail"]
        asked = web.get(f"/edr/collections/{name}/cube?bbox=7,45,8,46")
        assert (asked.status_code, WHY in asked.json()["detail"]) == (404, True)
        # The version before still has it.
        assert web.get(f"/edr/collections/{name}/instances/{before}").status_code == 200
        versions = web.get(f"/edr/collections/{name}/instances").json()["instances"]
        assert [one["id"] for one in versions] == [before]


def test_health_says_which_surfaces_cannot_be_computed(web: httpx.Client, path: Path, tmp_path: Path) -> None:
    assert web.get("/health").json()["status"] == "ok"
    add_second_series(path, tmp_path)
    told = web.get("/health").json()
    assert told["status"] == "degraded"
    trouble = told["troubles"]["saved surfaces"]
    assert "7 of 8" in trouble
    assert WHY in trouble
    assert all(name in trouble for name in KRIGED)
    # Data are served all the same.
    assert web.get("/health/ready").status_code == 200


def test_ingest_warns_of_a_second_series(path: Path, tmp_path: Path) -> None:
    (warning,) = [one for one in add_second_series(path, tmp_path) if "second series" in one]
    assert "air_temperature of 1" in warning
    assert "height_m=2.0" in warning
    assert "select" in warning
    # The same series goes on: nothing new.
    more = tmp_path / "more.csv"
    more.write_text(f"station,time,{AIR}\n1,2007-10-01T03:00:00Z,3.5\n", "utf-8")
    assert not [one for one in ingest([more], path, now_ns=START_NS + 2).warnings if "second series" in one]


def test_series_that_no_query_takes_for_another_are_not_warned_of(path: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.csv"
    other.write_text("station,time,relative_humidity\n1,2007-10-01T02:00:00Z,50\n9,2007-10-01T02:00:00Z,51\n", "utf-8")
    assert not [one for one in ingest([other], path, now_ns=START_NS + 2).warnings if "second series" in one]
