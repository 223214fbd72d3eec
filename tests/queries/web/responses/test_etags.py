"""Every list bears a tag of its content: what has not changed is not sent again."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI

import hypergrid as hg
from queries.jobs.runner import Runner
from queries.snapshots.catalogue import Catalogue
from queries.standing.service import StandingQueries
from queries.web.app import Services, create_app
from tests.queries.conftest import START_NS

Document = dict[str, Any]
LISTS = [
    "/api/v1/variables", "/api/v1/stations", "/api/v1/layers", "/api/v1/snapshots", "/api/v1/functions",
    "/api/v1/saved", "/api/v1/latest", "/api/v1/stations/health", "/api/v1/stations/quality", "/api/v1/rejects",
    "/api/v1/queries", "/api/v1/standing", "/api/v1/standing/alerts", "/api/v1/standing/dead", "/openapi.json",
    "/edr", "/edr/conformance", "/edr/collections", "/edr/collections/stations", "/edr/collections/stations/locations",
    "/edr/collections/stations/items", "/edr/collections/stations/instances", "/api/v1/surfaces", "/api/v1/series",
    "/edr/collections?bbox=7.1,45.8,7.2,45.9",
]  # fmt: skip
SEVERAL_FORMS = [
    "/api/v1/latest", "/api/v1/rejects", "/edr/collections/stations/locations", "/edr/collections/stations/items",
    "/api/v1/series",
]  # fmt: skip


@pytest.fixture
def app(runner: Runner, archive: hg.OpenArchive, saved: Path, tmp_path: Path) -> Iterator[FastAPI]:
    with StandingQueries(archive, clock=lambda: START_NS, folder=tmp_path / "standing") as standing:
        standing.add({"name": "dead", "query": {"variable": "air_temperature"}, "condition": {"kind": "dead"}})
        yield create_app(runner, Catalogue(archive, saved=saved), services=Services(standing=standing))


@pytest.mark.parametrize("path", LISTS)
def test_what_has_not_changed_is_not_sent_again(client: httpx.Client, path: str) -> None:
    answer = client.get(path)
    assert answer.status_code == 200
    tag = answer.headers["etag"]
    assert not tag.startswith("W/")
    assert "no-store" not in answer.headers["cache-control"]
    for known in (tag, f"W/{tag}", f'"other", {tag}'):
        again = client.get(path, headers={"If-None-Match": known})
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
        # What protects a page protects the one that is not sent again.
        assert again.headers["x-content-type-options"] == "nosniff"
        assert "content-type" not in again.headers
        assert ("Accept," in f"{again.headers['vary']},") == (path in SEVERAL_FORMS)
        assert ("Accept," in f"{answer.headers.get('vary', '')},") == (path in SEVERAL_FORMS)
    assert client.get(path, headers={"If-None-Match": '"other"'}).content == answer.content
    head = client.head(path)
    assert (head.headers["etag"], head.headers["content-length"]) == (tag, answer.headers["content-length"])
    assert client.head(path, headers={"If-None-Match": tag}).status_code == 304


def test_a_list_that_changed_has_another_tag(client: httpx.Client, gate: Any, map_query: Document) -> None:  # noqa: ANN401
    for path, change in (
        ("/api/v1/queries", lambda: client.post("/api/v1/queries", json=map_query)),
        ("/api/v1/standing", lambda: client.post("/api/v1/standing/dead/pause")),
        ("/api/v1/standing/alerts", lambda: client.post("/api/v1/standing/dead/test")),
    ):
        before = client.get(path)
        assert change().status_code < 300
        after = client.get(path, headers={"If-None-Match": before.headers["etag"]})
        assert after.status_code == 200
        assert after.content != before.content
        assert after.headers["etag"] != before.headers["etag"]
    gate.open()


def test_what_fails_and_what_is_changed_bears_no_tag(client: httpx.Client, map_query: Document) -> None:
    assert "etag" not in client.get("/api/v1/nothing").headers
    assert "etag" not in client.post("/api/v1/queries/explain", json=map_query).headers
    assert "etag" not in client.post("/api/v1/queries", json=map_query).headers
