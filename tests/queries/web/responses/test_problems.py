"""Everything that can go wrong is a problem document (RFC 9457), with the status that fits."""

import json
from collections.abc import Callable
from typing import Any, Protocol

import httpx
import pytest

from hypergrid.core.errors import Cancelled, InvalidUnit, NotAnArchive, NotFound, SingularSystem, TooLarge
from queries.jobs.records import QueueFull
from queries.jobs.runner import Runner
from queries.web.responses.problems import problem_of

Document = dict[str, Any]


class Gate(Protocol):
    """What the fixture of this name does."""

    failure: Exception | None

    def open(self) -> None: ...


def check(answer: httpx.Response, status: int, *words: str) -> Document:
    assert answer.status_code == status, answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert problem["status"] == status
    assert {"type", "title", "detail"} <= problem.keys()
    for word in words:
        assert word in problem["detail"]
    return dict(problem)


def test_what_is_not_there(client: httpx.Client) -> None:
    check(client.get("/api/v1/queries/none"), 404, "none")
    check(client.delete("/api/v1/queries/none"), 404)
    check(client.get("/api/v1/queries/none/events"), 404)
    check(client.get("/api/v1/queries/none/frame"), 404)
    check(client.get("/api/v1/queries/none/result"), 404)
    check(client.get("/api/v1/nothing"), 404, "/api/v1/nothing")
    check(client.put("/api/v1/queries"), 405)


# What is changed in a good query, and what the answer must name.
BAD = [
    ({"variable": "air_temprature"}, "air_temprature", "air_temperature"),
    ({"colour": "red"}, "colour", "steps"),
    ({"steps": [{"op": "convert", "function": "valid_rnge"}]}, "valid_rnge", "valid_range"),
    ({"steps": [{"op": "aggregate", "function": "mean", "time": "-5min"}]}, "-5min", ""),
    ({"steps": [{"op": "aggregate", "function": "mean", "time": "5parsecs"}]}, "5parsecs", ""),
    ({"clip": {"time": ["2007-10-04", "2007-10-01"]}}, "2007-10-04", ""),
    ({"clip": {"time": ["yesterday", "2007-10-01"]}}, "yesterday", ""),
    ({"clip": {"time": ["1980-10-01", "1980-10-02"]}}, "", ""),
    ({"snapshot": "nosuchsnapshot"}, "nosuchsnapshot", ""),
    ({"steps": 5}, "steps", ""),
]


@pytest.mark.parametrize("path", ["queries", "queries/explain"])
@pytest.mark.parametrize(("change", "given", "exists"), BAD)
def test_a_bad_query_is_refused_at_once(
    client: httpx.Client, runner: Runner, map_query: Document, path: str, change: Document, given: str, exists: str
) -> None:
    check(client.post(f"/api/v1/{path}", json={**map_query, **change}), 422, given, exists)
    assert runner.jobs() == []


def test_bodies_that_cannot_be_read(client: httpx.Client) -> None:
    def post(content: bytes, media_type: str = "application/json") -> httpx.Response:
        return client.post("/api/v1/queries", content=content, headers={"Content-Type": media_type})

    check(post(b"{"), 400, "line 1")
    check(post(b'{"a": NaN}'), 400, "NaN")
    check(post(b"\xff\xfe\x00"), 400)
    check(post(b"[" * 40 + b"]" * 40), 400, "deeper than 32")
    check(post(b"[" * 200_000), 400)
    check(post(b"[]"), 422, "object")
    check(post(b"{}", "text/plain"), 415, "text/plain")
    check(post(b" " * 1_000_001), 413, "1,000,000")


def test_parameters_that_do_not_fit(
    client: httpx.Client, gate: Gate, map_query: Document, wait_until: Callable[..., None]
) -> None:
    gate.open()
    job_id = client.post("/api/v1/queries", json=map_query).json()["id"]
    wait_until(lambda: client.get(f"/api/v1/queries/{job_id}").json()["state"] == "done")
    check(client.get(f"/api/v1/queries/{job_id}/result?f=word"), 404, "word", "netcdf")
    check(client.get(f"/api/v1/queries/{job_id}/frame?time=99"), 404, "0 to 3", "99")
    assert check(client.get(f"/api/v1/queries/{job_id}/frame?time=a"), 422)["errors"][0]["where"] == "query/time"


def test_a_failing_run_is_told_without_its_inside(
    client: httpx.Client, gate: Gate, map_query: Document, wait_until: Callable[..., None]
) -> None:
    gate.failure = ZeroDivisionError("secret at /srv/somebody")
    gate.open()
    job_id = client.post("/api/v1/queries", json=map_query).json()["id"]
    wait_until(lambda: client.get(f"/api/v1/queries/{job_id}").json()["state"] == "failed")
    error = client.get(f"/api/v1/queries/{job_id}").json()["error"]
    assert error["status"] == 500
    assert "secret" not in json.dumps(error)
    events = client.get(f"/api/v1/queries/{job_id}/events").text
    assert "event: error" in events
    assert "secret" not in events
    check(client.get(f"/api/v1/queries/{job_id}/result"), 409)


def test_an_unexpected_error_of_a_route_is_a_document_without_its_inside(
    client: httpx.Client, runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> None:
        message = "secret"
        raise ZeroDivisionError(message)

    monkeypatch.setattr(runner, "jobs", fail)
    problem = check(client.get("/api/v1/queries"), 500)
    assert "secret" not in json.dumps(problem)
    assert "Traceback" not in json.dumps(problem)


def test_a_strange_host_name_is_refused(client: httpx.Client) -> None:
    check(client.get("/api/v1/variables", headers={"Host": "evil.example"}), 421, "127.0.0.1")
    assert client.get("/health", headers={"Host": "localhost:1"}).status_code == 200
    assert client.get("/health", headers={"Host": "[::1]:80"}).status_code == 200


@pytest.mark.parametrize(
    ("error", "posted", "status"),
    [
        (NotFound("x"), False, 404),
        (NotFound("x"), True, 422),
        (InvalidUnit("x"), False, 400),
        (TooLarge("it", "bytes", 2, 1, "shrink it"), True, 413),
        (SingularSystem("x"), True, 422),
        (QueueFull("x"), True, 429),
        (Cancelled("x"), False, 409),
        (NotAnArchive("x"), False, 500),
        (ValueError("x"), True, 500),
        (MemoryError("x"), True, 413),
    ],
)
def test_the_tree_maps_to_statuses(error: Exception, posted: bool, status: int) -> None:  # noqa: FBT001
    assert problem_of(error, posted=posted)["status"] == status


def test_a_query_that_is_too_large_tells_both_numbers() -> None:
    problem = problem_of(TooLarge("it", "bytes", 2, 1, "shrink it"), posted=True)
    assert (problem["projected"], problem["allowed"]) == (2, 1)
    assert problem["type"] == "urn:hypergrid:problem:too-large"
