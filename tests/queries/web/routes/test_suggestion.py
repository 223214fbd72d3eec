"""A first query of the archive, and a query carried over to another variable, by HTTP and by the Python client."""

import json
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

import hypergrid as hg
import queries.snapshots.catalogue as catalogue_module
from hypergrid.analysis.suggestion import suggest_document
from hypergrid.archive import Archive
from hypergrid.core.errors import NotFound
from hypergrid.core.flags import NOT_EVALUATED
from hypergrid.core.readings import Position, Readings, Series, Station
from hypergrid.core.times import DAY_NS, SECOND_NS
from hypergrid.core.units import KNOWN_VARIABLES, Variable
from queries.jobs.runner import Runner
from queries.snapshots.catalogue import Catalogue
from queries.web.app import create_app
from tests.queries.conftest import MAP, START_NS
from viz.client import Client


def test_the_first_query_is_made_from_the_archive(client: httpx.Client, archive: hg.OpenArchive) -> None:
    body = client.get("/api/v1/suggestion").raise_for_status().json()
    suggestion = suggest_document(archive)
    assert body == {"query": suggestion.query, "notes": list(suggestion.notes)}
    assert client.get("/api/v1/suggestion?variable=air_temperature").json() == body
    assert client.post("/api/v1/queries/explain", json=body["query"]).status_code == 200


def test_what_cannot_be_suggested_is_told(client: httpx.Client) -> None:
    unknown = client.get("/api/v1/suggestion?variable=air_temprature")
    assert unknown.status_code == 404
    assert "did you mean 'air_temperature'" in unknown.json()["detail"]
    assert client.get("/api/v1/suggestion?varable=air_temperature").status_code == 400
    assert client.post("/api/v1/suggestion", json=MAP).status_code == 422
    broken = client.post("/api/v1/suggestion?variable=air_temperature", json={**MAP, "steps": [{"op": "agregate"}]})
    assert broken.status_code == 422
    assert "did you mean 'aggregate'" in broken.json()["detail"]


def test_a_query_of_the_same_variable_stays(client: httpx.Client) -> None:
    body = client.post("/api/v1/suggestion?variable=air_temperature", json=MAP).raise_for_status().json()
    assert body == {"query": MAP, "notes": []}


def write_windy(folder: Path) -> hg.OpenArchive:
    """Write an archive of four days of hourly air temperature and wind, at nine stations."""
    variables = {
        "air_temperature": KNOWN_VARIABLES["air_temperature"],
        "wind": Variable("wind", "m s-1", "wind_speed"),
        "from_where": Variable("from_where", "degree", "wind_from_direction"),
    }
    store = Archive.create(folder, name="windy", slice_s=3600, variables=list(variables.values()), now_ns=START_NS)
    spots = [(7.0 + 0.1 * (number % 3), 46.0 + 0.1 * (number // 3)) for number in range(9)]
    hours, numbers = np.tile(np.arange(96), 9), np.repeat(np.arange(9, dtype=np.int32), 96)
    time_ns = START_NS + hours * 3600 * SECOND_NS
    values = {
        "air_temperature": 10 + 0.5 * numbers + 5 * np.sin(2 * np.pi * hours / 24),
        "wind": 3 + 0.1 * numbers + np.cos(hours),
        "from_where": (350.0 + 5 * numbers + hours) % 360,
    }
    with store.commit(batch="1", message="wind", now_ns=START_NS) as writer:
        writer.stations([
            Station(f"s{number}", f"Station {number}", (Position(None, lon, lat, float("nan")),))
            for number, (lon, lat) in enumerate(spots)
        ])  # fmt: skip
        for name, value in values.items():
            series = tuple(Series(name, f"s{number}", 2.0, 1, "sample", 3600.0) for number in range(9))
            flags = np.full(len(value), NOT_EVALUATED, np.uint8)
            writer.readings(Readings(series, numbers, time_ns, value, flags, time_ns))
    return hg.open(folder)


def test_a_query_is_carried_over_to_another_variable(tmp_path: Path) -> None:
    archive = write_windy(tmp_path / "archive")
    normal = {"variable": "air_temperature", "steps": [{"op": "aggregate", "function": "mean", "time": "hour_of_day"}]}
    # Half a degree around the stations, and a time after the last reading.
    grid = {"lon": 6.9, "lat": 45.9, "step": "180arcsec", "shape": [10, 10]}
    whole = {**MAP, "steps": [*MAP["steps"][:2], {**MAP["steps"][2], "grid": grid}]}  # type: ignore[index]
    later = {**whole, "clip": {"time": ["2008-10-01T00:00Z", "2008-10-01T04:00Z"]}}
    anomaly = {
        "variable": "air_temperature",
        "steps": [MAP["steps"][1], {"op": "merge", "function": "difference", "with": [normal]}],  # type: ignore[index]
    }
    with TestClient(create_app(Runner(archive), Catalogue(archive)), base_url="http://127.0.0.1") as client:

        def carry(document: dict[str, Any], variable: str) -> dict[str, Any]:
            answer = client.post(f"/api/v1/suggestion?variable={variable}", json=document).raise_for_status()
            assert client.post("/api/v1/queries/explain", json=answer.json()["query"]).status_code == 200
            return dict(answer.json())

        speed = carry(whole, "wind")
        assert speed["query"]["clip"] == whole["clip"]
        assert [step.get("function") or step["method"] for step in speed["query"]["steps"]] == ["mean", "auto"]
        assert speed["query"]["steps"][1]["grid"] == grid
        assert any("valid_range is left out" in note for note in speed["notes"])
        direction = carry(whole, "from_where")["query"]
        assert [step.get("function") or step["method"] for step in direction["steps"]] == ["circular_mean", "recipe"]
        moved = carry(later, "wind")
        assert moved["query"]["clip"]["time"] != later["clip"]["time"]
        assert any("has no readings in the one before" in note for note in moved["notes"])
        merged = carry(anomaly, "wind")["query"]
        assert [other["variable"] for other in merged["steps"][1]["with"]] == ["wind"]


def test_the_client_gets_it_as_a_query(app: FastAPI, gate: Any, archive: hg.OpenArchive) -> None:  # noqa: ANN401
    gate.open()
    remote = Client("http://127.0.0.1", transport=TestClient(app, base_url="http://127.0.0.1")._transport)
    dataset = remote.suggest().compute()
    np.testing.assert_array_equal(dataset["value"], hg.suggest(archive).compute()["value"])
    with pytest.raises(NotFound):
        remote.suggest("rain")


def test_saved_queries_that_cannot_be_answered_are_left_out(archive: hg.OpenArchive, tmp_path: Path) -> None:
    later = {"clip": {"time": ["2017-10-01T00:00Z", "2017-10-02T00:00Z"]}}
    documents = {"map": MAP, "rain": {**MAP, "variable": "rain"}, "later": {**MAP, **later}, "broken": {"steps": 3}}
    for name, document in documents.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(document))
    catalogue = Catalogue(archive, saved=tmp_path)
    assert catalogue.saved_queries().keys() == documents.keys()
    assert catalogue.answerable_queries() == {"map": MAP}


def add_hours(store: Archive, hours: range, *, station: str = "1", variable: str = "air_temperature") -> None:
    """Commit a reading each ten minutes."""
    time_ns = START_NS + np.arange(6 * hours.start, 6 * hours.stop) * 600 * SECOND_NS
    series = (Series(variable, station, 2.0, interval_s=600, source="feed/t"),)
    value, flag = np.sin(np.arange(len(time_ns))), np.full(len(time_ns), NOT_EVALUATED, np.uint8)
    with store.commit(batch=f"{hours} {station} {variable}", message="more", now_ns=START_NS + DAY_NS) as writer:
        writer.readings(Readings(series, np.zeros(len(time_ns), np.int32), time_ns, value, flag, time_ns))


def test_answers_stay_while_only_readings_of_the_same_days_come(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    variables = [KNOWN_VARIABLES["air_temperature"], KNOWN_VARIABLES["relative_humidity"]]
    store = Archive.create(tmp_path / "archive", name="small", slice_s=600, variables=variables, now_ns=START_NS)
    add_hours(store, range(30))
    queries = {
        "all": {"variable": "air_temperature", "steps": []},
        "humid": {"variable": "relative_humidity", "steps": []},
        "today": {"variable": "air_temperature", "steps": [], "clip": {"time": ["2007-10-02", "2007-10-03"]}},
        "evening": {"variable": "air_temperature", "steps": [], "clip": {"time": ["2007-10-02T18:00Z", "2007-10-03"]}},
        "then": {"variable": "air_temperature", "steps": [], "snapshot": store.latest().snapshot},
    }
    for name, document in queries.items():
        (tmp_path / f"{name}.json").write_text(json.dumps(document))
    looked: list[Any] = []

    def count(name: str) -> None:
        real = getattr(catalogue_module, name)
        monkeypatch.setattr(catalogue_module, name, lambda *given: (looked.append(given[1]), real(*given))[1])

    count("_can_answer")
    count("suggest_document")
    catalogue = Catalogue(hg.open(tmp_path / "archive"), saved=tmp_path)

    def ask() -> tuple[set[str], list[Any]]:
        looked.clear()
        answerable = set(catalogue.answerable_queries())
        catalogue.suggest(None)
        return answerable, [next((n for n, one in queries.items() if one == item), item) for item in looked]

    assert ask() == ({"all", "today", "then"}, ["all", "evening", "humid", "then", "today", None])
    # Readings of the same day: what could not be answered within a time is tried again, and what names a snapshot.
    add_hours(store, range(30, 40))
    assert ask() == ({"all", "today", "then"}, ["evening", "then"])
    add_hours(store, range(40, 44))
    assert ask() == ({"all", "today", "then", "evening"}, ["evening", "then"])
    assert ask() == ({"all", "today", "then", "evening"}, ["then"])
    everything = ["all", "evening", "humid", "then", "today", None]
    add_hours(store, range(50, 60))
    assert ask() == ({"all", "today", "then", "evening"}, everything), "another day"
    add_hours(store, range(50, 60), variable="relative_humidity")
    assert ask() == (set(queries), everything), "another variable"
    with store.commit(batch="place", message="stations", now_ns=START_NS) as writer:
        writer.stations([Station("1", "one", (Position(None, 7.0, 45.0, 2000.0),))])
    assert ask() == (set(queries), everything), "a position"
