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
from hypergrid.analysis.suggestion import suggest_document
from hypergrid.core.errors import NotFound
from queries.snapshots.catalogue import Catalogue
from tests.queries.conftest import MAP
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
