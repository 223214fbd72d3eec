"""Standing queries over HTTP: made, looked at, paused, muted, tested, removed; alerts as they come, and resumed."""

import base64
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import xarray as xr

import hypergrid as hg
from hypergrid.core.times import parse_instant
from queries.jobs.runner import Runner
from queries.snapshots.catalogue import Catalogue
from queries.standing.service import StandingQueries
from queries.web.app import Services, create_app
from tests.serving import SharedServer
from tests.support.standing_runner import settle

Document = dict[str, Any]
FROST: Document = {
    "name": "frost",
    "query": {"variable": "air_temperature", "steps": [{"op": "aggregate", "function": "mean", "time": "10min"}]},
    "condition": {"kind": "threshold", "below": "0 degC", "clear": "1 degC"},
}
HERE = "/api/v1/standing"
NOW_NS = parse_instant("2024-01-01")


@pytest.fixture
def standing(archive: hg.OpenArchive, tmp_path: Path) -> Iterator[StandingQueries]:
    with StandingQueries(archive, clock=lambda: NOW_NS, folder=tmp_path / "standing") as made:
        yield made


@pytest.fixture
def client(
    archive: hg.OpenArchive, make_runner: Callable[..., Runner], standing: StandingQueries, shared: SharedServer
) -> Iterator[httpx.Client]:
    app = create_app(make_runner(archive), Catalogue(archive), services=Services(standing=standing))
    with shared.serving(app) as address, httpx.Client(base_url=address, timeout=60) as made:
        yield made


def test_the_life_of_a_standing_query(client: httpx.Client) -> None:
    made = client.post(HERE, json=FROST)
    assert (made.status_code, made.headers["location"]) == (201, f"{HERE}/frost")
    assert made.json()["class"] == "alert"
    assert client.get(f"{HERE}/frost").json() == made.json()
    assert [one["name"] for one in client.get(HERE).json()] == ["frost"]
    assert client.post(f"{HERE}/frost/pause").json()["paused"] is True
    assert client.post(f"{HERE}/frost/resume").json()["paused"] is False
    muted = client.post(f"{HERE}/frost/mute", json={"until": "2150-01-01T00:00Z"})
    assert muted.json()["muted_until"] == "2150-01-01T00:00:00Z"
    assert client.post(f"{HERE}/frost/mute", json={"until": None}).json()["muted_until"] is None
    assert client.post(f"{HERE}/frost/mute", json={"for": "200day"}).status_code == 200
    told = client.post(f"{HERE}/frost/test").json()
    assert told == {"number": 1, "to": ["events"]}
    (alert,) = client.get(f"{HERE}/alerts").json()
    assert (alert["happening"], alert["query"]) == ("test", "frost")
    assert client.get(f"{HERE}/alerts", params={"name": "other"}).json() == []
    assert client.delete(f"{HERE}/frost").status_code == 204
    assert client.get(HERE).json() == []


# What is posted, and the status and words of the answer.
BAD: list[tuple[Document | None, int, str]] = [
    ({}, 422, "name"),
    ({**FROST, "name": "../x"}, 422, "lower-case"),
    ({**FROST, "name": "a\r\nX-Evil: 1"}, 422, "lower-case"),
    ({**FROST, "colour": 1}, 422, "colour"),
    ({**FROST, "query": {"variable": "air_temprature"}}, 422, "air_temperature"),
    ({**FROST, "query": {"variable": "air_temperature", "steps": 5}}, 422, "steps"),
    ({**FROST, "condition": {"kind": "treshold"}}, 422, "threshold"),
    ({**FROST, "condition": {"kind": "threshold", "below": "0 m"}}, 422, "m"),
    ({**FROST, "weight": -1}, 422, "weight"),
    ({**FROST, "weight": 1e308 * 10}, 400, ""),
    ({**FROST, "to": ["webhook:http://169.254.169.254/"]}, 422, "not allowed"),
    ({**FROST, "to": ["email:a@b.org\r\nBcc: c@d.org"]}, 422, "mail address"),
    ({**FROST, "validity": "-5min"}, 422, "validity"),
    (None, 400, "JSON"),
]


@pytest.mark.parametrize(("document", "status", "words"), BAD)
def test_a_document_that_does_not_fit(client: httpx.Client, document: Document | None, status: int, words: str) -> None:
    content = b"{" if document is None else json.dumps(document).encode()
    answer = client.post(HERE, content=content, headers={"Content-Type": "application/json"})
    assert answer.status_code == status
    assert answer.headers["content-type"] == "application/problem+json"
    assert words in answer.json()["detail"]
    assert client.get(HERE).json() == []


def test_a_standing_query_is_replaced(client: httpx.Client) -> None:
    assert client.post(f"{HERE}/frost/replace", json=FROST).status_code == 404
    client.post(HERE, json=FROST)
    client.post(f"{HERE}/frost/pause")
    colder = {**FROST, "condition": {"kind": "threshold", "below": "-5 degC"}, "weight": 20}
    replaced = client.post(f"{HERE}/frost/replace", json=colder)
    assert replaced.status_code == 200
    assert (replaced.json()["weight"], replaced.json()["paused"]) == (20, True)
    assert client.get(f"{HERE}/frost").json()["condition"] == {"kind": "threshold", "below": "-5 degC"}
    other = client.post(f"{HERE}/frost/replace", json={**FROST, "name": "ice"})
    assert other.status_code == 422
    assert "'frost' needs its name; got 'ice'" in other.json()["detail"]
    wrong = client.post(f"{HERE}/frost/replace", json={**FROST, "condition": {"kind": "rain"}})
    assert wrong.status_code == 422
    assert client.get(f"{HERE}/frost").json() == replaced.json()


def test_a_name_is_taken_once(client: httpx.Client) -> None:
    client.post(HERE, json=FROST)
    answer = client.post(HERE, json=FROST)
    assert answer.status_code == 409
    assert "remove it first" in answer.json()["detail"]


@pytest.mark.parametrize("path", ["none", "..%2f..%2fetc", "%00", "frost%0d%0aX:1", "a" * 5000])
def test_a_name_that_is_not_there(client: httpx.Client, path: str) -> None:
    for method, more in (("GET", ""), ("DELETE", ""), ("POST", "/pause"), ("POST", "/test")):
        answer = client.request(method, f"{HERE}/{path}{more}")
        assert answer.status_code in (404, 405), (method, answer.text)
        assert answer.headers["content-type"] == "application/problem+json"


@pytest.mark.parametrize(
    "body", [{}, {"until": 5}, {"for": "2parsecs"}, {"for": "2h", "until": None}, {"for": "400000day"},
             {"for": "182000day"}, {"until": "1500-01-01"}, {"until": "yesterday"}],
)  # fmt: skip
def test_a_mute_that_does_not_fit(client: httpx.Client, body: Document) -> None:
    client.post(HERE, json=FROST)
    answer = client.post(f"{HERE}/frost/mute", json=body)
    assert answer.status_code == 422, answer.text
    assert client.get(f"{HERE}/frost").json()["muted_until"] is None


def alerts_in(response: httpx.Response) -> Iterator[Document]:
    event: Document = {}
    for line in response.iter_lines():
        name, _, value = line.partition(": ")
        if not line and event:
            yield {**event, "data": json.loads(event["data"])}
            event = {}
        elif name:
            event[name] = value


def test_alerts_come_as_events_and_go_on_after_the_last_one_seen(
    client: httpx.Client, standing: StandingQueries
) -> None:
    client.post(HERE, json=FROST)
    client.post(f"{HERE}/frost/test")
    with client.stream("GET", f"{HERE}/alerts/events") as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        events = alerts_in(response)
        first = next(events)
        assert (first["id"], first["event"], first["data"]["query"]) == ("1", "test", "frost")
        standing.test("frost")  # as another process would
        second = next(events)
        assert second["id"] == "2"
        del events
    standing.test("frost")
    with client.stream("GET", f"{HERE}/alerts/events", headers={"Last-Event-ID": "2"}) as response:
        events = alerts_in(response)
        assert next(events)["id"] == "3"
        del events
    with client.stream("GET", f"{HERE}/alerts/events", params={"after": 1}) as response:
        events = alerts_in(response)
        assert next(events)["id"] == "2"


def test_a_reader_of_alerts_that_left_is_forgotten(
    client: httpx.Client, standing: StandingQueries, wait_until: Callable[..., None]
) -> None:
    client.post(HERE, json=FROST)
    client.post(f"{HERE}/frost/test")
    before = len(standing.runner._listeners._listeners)
    with client.stream("GET", f"{HERE}/alerts/events") as response:
        events = alerts_in(response)
        next(events)
        assert len(standing.runner._listeners._listeners) == before + 1
    wait_until(lambda: len(standing.runner._listeners._listeners) == before)


def test_the_newest_result_is_downloaded(client: httpx.Client, standing: StandingQueries, tmp_path: Path) -> None:
    client.post(HERE, json={"name": "hours", "query": FROST["query"], "window": "1h"})
    early = client.get(f"{HERE}/hours/result")
    assert (early.status_code, early.headers["content-type"]) == (409, "application/problem+json")
    assert "not been evaluated yet" in early.json()["detail"]
    assert client.get(f"{HERE}/hours/result?f=xls").status_code == 404
    settle(standing.runner)
    made = client.get(f"{HERE}/hours/result")
    (tmp_path / "newest.nc").write_bytes(made.content)
    with xr.open_dataset(tmp_path / "newest.nc") as found:
        assert dict(found.sizes)["time"] == 1
        assert found["air_temperature"].notnull().all()
    again = client.get(f"{HERE}/hours/result", headers={"If-None-Match": made.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    assert client.get(f"{HERE}/hours/result", params={"f": "covjson"}).json()["type"] in (
        "Coverage",
        "CoverageCollection",
    )
    assert client.get(f"{HERE}/hours/result", params={"f": "doc"}).status_code == 404
    assert client.get(f"{HERE}/never/result").status_code == 404


def test_a_title_makes_the_name(client: httpx.Client) -> None:
    document = {"title": "Frost in the vineyard!", **{key: FROST[key] for key in ("query", "condition")}}
    made = [client.post(HERE, json=document) for _ in range(2)]
    assert [(one.status_code, one.json()["name"]) for one in made] == [
        (201, "frost-in-the-vineyard"), (201, "frost-in-the-vineyard-2"),
    ]  # fmt: skip
    assert {one["title"] for one in client.get(HERE).json()} == {"Frost in the vineyard!"}


def test_a_preview_stores_nothing_and_says_what_would_have_been_told(client: httpx.Client) -> None:
    document = {"title": "Cold", "query": FROST["query"], "condition": {"kind": "threshold", "below": "300 K"}}
    told = client.post(f"{HERE}/preview", json=document)
    assert told.status_code == 200, told.text
    body = told.json()
    assert (body["unit"], body["rule"]) == ("degC", "value below 26.85 °C")
    assert body["raised"] > 0
    assert {one["happening"] for one in body["alerts"]} <= {"raised", "cleared"}
    assert len(body["series"]["times"]) > 10
    shape = body["series"]["values"]["shape"]
    assert shape == [len(body["series"]["places"]), len(body["series"]["times"])]
    values = np.frombuffer(base64.b64decode(body["series"]["values"]["float64"]), "<f8").reshape(shape)
    assert np.nanmin(values) < 26.85
    assert body["recent"]["low"] <= body["recent"]["middle"] <= body["recent"]["high"]
    span = {"start": body["start"], "stop": body["stop"]}
    assert client.post(f"{HERE}/preview", params=span, json=document).json() == body
    assert client.get(HERE).json() == client.get(f"{HERE}/alerts").json() == []


def test_a_preview_of_a_rate_and_one_of_a_silent_network(client: httpx.Client) -> None:
    rate = {"title": "Fall", "query": FROST["query"], "condition": {"kind": "rate", "below": "-1000 K"}}
    body = client.post(f"{HERE}/preview", json=rate).json()
    assert (body["rule"], body["raised"]) == ("rate of change below -1000 °C per 1h", 0)
    silent = {"title": "Quiet", "query": {"variable": "air_temperature"}}
    span = {"start": body["start"], "stop": np.datetime_as_string(np.datetime64(body["stop"][:19]) + 7200) + "Z"}
    counts = {}
    for after in ("1h", "3day"):
        condition = {"kind": "silent", "after": after}
        told = client.post(f"{HERE}/preview", params=span, json={**silent, "condition": condition})
        assert told.status_code == 200, told.text
        counts[after] = told.json()["raised"]
        assert told.json()["rule"] == f"nothing came from any station for more than {after}"
    # Two hours follow the last readings.
    assert counts == {"1h": 1, "3day": 0}


@pytest.mark.parametrize(
    ("document", "params", "words"),
    [
        ({}, {}, "query"),
        ({"query": {"variable": "air_temprature"}}, {}, "air_temperature"),
        (FROST, {"start": "2007-10-01"}, "both 'start' and 'stop'"),
        (FROST, {"start": "2007-10-02", "stop": "2007-10-01"}, "stop after its start"),
        (FROST, {"start": "1900-01-01", "stop": "2007-10-01"}, "at most 31day"),
        ({**FROST, "to": ["webhook:http://169.254.169.254/"]}, {}, "not allowed"),
    ],
)
def test_a_preview_that_cannot_be_made(
    client: httpx.Client, document: Document, params: dict[str, str], words: str
) -> None:
    answer = client.post(f"{HERE}/preview", json=document, params=params)
    assert (answer.status_code, answer.headers["content-type"]) == (422, "application/problem+json"), answer.text
    assert words in answer.json()["detail"]


def test_alerts_are_acknowledged_commented_on_and_opened_again(client: httpx.Client) -> None:
    client.post(HERE, json=FROST)
    client.post(f"{HERE}/frost/test")
    made = client.post(f"{HERE}/alerts/1/acknowledge", json={})
    assert (made.status_code, made.json()["happening"], made.json()["about"]) == (201, "acknowledged", 1)
    assert (made.json()["author"], made.json()["at"]) == ("this machine", "2024-01-01T00:00:00Z")
    assert client.post(f"{HERE}/alerts/1/comment", json={"comment": "Seen"}).json()["comment"] == "Seen"
    assert client.post(f"{HERE}/alerts/1/reopen", json={}).status_code == 201
    listed = client.get(f"{HERE}/alerts", params={"newest": True, "limit": 3}).json()
    assert [one["happening"] for one in listed] == ["acknowledged", "commented", "reopened"]


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        ("7/acknowledge", {}, 404), ("0/acknowledge", {}, 422), ("one/comment", {"comment": "x"}, 422),
        ("1/forget", {}, 422), ("1/comment", {}, 422), ("1/comment", {"comment": 5}, 422),
        ("1/comment", {"comment": "x" * 1001}, 422), ("1/acknowledge", {"author": "eve"}, 422),
    ],
)  # fmt: skip
def test_a_remark_that_does_not_fit(client: httpx.Client, path: str, body: Document, status: int) -> None:
    client.post(HERE, json=FROST)
    client.post(f"{HERE}/frost/test")
    answer = client.post(f"{HERE}/alerts/{path}", json=body)
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.status_code == status, answer.text
    assert len(client.get(f"{HERE}/alerts").json()) == 1
