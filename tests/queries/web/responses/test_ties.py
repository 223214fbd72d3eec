"""A client that goes away takes its query along, where it said so."""

import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Protocol

import httpx
import pytest

from queries.jobs.runner import Runner
from queries.web.responses.waiting import OrphanJobCanceller

Document = dict[str, Any]
Wait = Callable[..., None]


class Gate(Protocol):
    """What the fixture of this name does."""

    def let(self, blocks: int) -> None: ...
    def open(self) -> None: ...


@pytest.fixture(autouse=True)
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is waited for long."""
    monkeypatch.setattr(OrphanJobCanceller.__init__, "__kwdefaults__", {"first_s": 0.6, "grace_s": 0.2})


def state(client: httpx.Client, job_id: str) -> str:
    return str(client.get(f"/api/v1/queries/{job_id}").json()["state"])


def test_the_last_follower_takes_the_job_along(
    client: httpx.Client, runner: Runner, gate: Gate, map_query: Document, wait_until: Wait
) -> None:
    job_id = client.post("/api/v1/queries?tied=true", json=map_query).json()["id"]
    events = f"/api/v1/queries/{job_id}/events"
    held = []  # an iterator that is dropped closes its connection
    with ExitStack() as first, ExitStack() as second:
        for stack in (first, second):
            held.append(stack.enter_context(client.stream("GET", events)).iter_lines())
            assert next(held[-1])
        first.close()
        time.sleep(0.8)
        assert state(client, job_id) == "running"
    wait_until(lambda: state(client, job_id) == "cancelled")
    gate.let(1)
    wait_until(lambda: runner.statistics().running == 0)


def test_a_tied_job_that_nobody_follows_ends(
    client: httpx.Client, gate: Gate, map_query: Document, wait_until: Wait
) -> None:
    job_id = client.post("/api/v1/queries?tied=true", json=map_query).json()["id"]
    wait_until(lambda: state(client, job_id) == "cancelled")
    gate.open()


def test_a_job_that_is_not_tied_goes_on(client: httpx.Client, gate: Gate, map_query: Document) -> None:
    job_id = client.post("/api/v1/queries", json=map_query).json()["id"]
    with client.stream("GET", f"/api/v1/queries/{job_id}/events") as response:
        assert next(response.iter_lines())
    time.sleep(0.8)
    assert state(client, job_id) == "running"
    gate.open()


def test_a_client_that_waits_and_goes_away_stops_its_query(
    client: httpx.Client, runner: Runner, gate: Gate, map_query: Document, wait_until: Wait
) -> None:
    with pytest.raises(httpx.ReadTimeout), httpx.Client(base_url=client.base_url, timeout=1.0) as impatient:
        impatient.post("/api/v1/queries?wait=30s", json=map_query)
    wait_until(lambda: [job.state for job in runner.jobs()] == ["cancelled"])
    gate.let(1)
    wait_until(lambda: runner.statistics().running == 0)
