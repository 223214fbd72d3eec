"""Events: order, resumption, late readers, the rate, and the end."""

import asyncio
import json
import selectors
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

import httpx
import pytest

from queries.jobs.job_history import JobRecord, Past
from queries.jobs.records import Job
from queries.jobs.runner import Runner
from queries.web.routes.jobs import END_ID, follow_job

Document = dict[str, Any]
Wait = Callable[..., None]


class Gate(Protocol):
    """What the fixture of this name does."""

    failure: Exception | None

    def let(self, blocks: int) -> None: ...
    def open(self) -> None: ...


def ask(client: httpx.Client, document: Document) -> str:
    return str(client.post("/api/v1/queries", json=document).json()["id"])


@contextmanager
def following(client: httpx.Client, job_id: str, *, after: str | None = None) -> Iterator[Iterator[Document]]:
    """The events of a job, as they come."""
    headers = {} if after is None else {"Last-Event-ID": after}
    with client.stream("GET", f"/api/v1/queries/{job_id}/events", headers=headers) as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        yield events_in(response.iter_lines())


def events_in(lines: Iterator[str]) -> Iterator[Document]:
    event: Document = {}
    for line in lines:
        if line.startswith(":"):
            continue
        if line:
            name, _, value = line.partition(": ")
            event[name] = value
        elif event:
            yield {**event, "data": json.loads(event["data"])}
            event = {}


def test_from_plan_to_done(client: httpx.Client, gate: Gate, map_query: Document) -> None:
    job_id = ask(client, map_query)
    with following(client, job_id) as events:
        plan = next(events)
        assert plan["event"] == "plan"
        assert plan["data"]["cells"] == 480
        assert len(plan["data"]["surface"]["lon"]) == 12
        gate.open()
        rest = list(events)
    assert {event["event"] for event in rest[:-1]} == {"progress"}
    fractions = [event["data"]["fraction"] for event in rest[:-1]]
    assert fractions == sorted(fractions)
    assert rest[-1]["event"] == "done"
    assert rest[-1]["data"]["state"] == "done"
    assert rest[-1]["data"]["value_range"][0] < rest[-1]["data"]["value_range"][1]
    numbers = [int(event["id"]) for event in [plan, *rest]]
    assert numbers == sorted(set(numbers))


def test_resumption_after_the_last_event_seen(
    client: httpx.Client, gate: Gate, map_query: Document, wait_until: Wait
) -> None:
    job_id = ask(client, map_query)
    gate.let(2)
    wait_until(lambda: client.get(f"/api/v1/queries/{job_id}").json()["fraction"] > 0.05)
    with following(client, job_id) as events:
        seen = [next(events), next(events)]
    assert [event["event"] for event in seen] == ["plan", "progress"]
    gate.open()
    wait_until(lambda: client.get(f"/api/v1/queries/{job_id}").json()["state"] == "done")
    with following(client, job_id, after=seen[-1]["id"]) as events:
        rest = list(events)
    assert [event["event"] for event in rest] == ["progress", "done"]
    assert int(rest[0]["id"]) > int(seen[-1]["id"])
    with following(client, job_id, after=rest[0]["id"]) as events:
        assert [event["event"] for event in events] == ["done"]


@pytest.mark.parametrize("end", ["done", "cancelled"])
def test_who_has_seen_the_end_is_told_to_stop(
    client: httpx.Client, gate: Gate, map_query: Document, wait_until: Wait, end: str
) -> None:
    job_id = ask(client, map_query)
    if end == "cancelled":
        # The run goes on for another follower, and counts on.
        ask(client, map_query)
        client.delete(f"/api/v1/queries/{job_id}")
    gate.open()
    with following(client, job_id) as events:
        last = list(events)[-1]
    assert last["event"] == end
    answer = client.get(f"/api/v1/queries/{job_id}/events", headers={"Last-Event-ID": last["id"]}, timeout=10)
    assert (answer.status_code, answer.content) == (204, b"")
    # A number that is none of this stream keeps nobody waiting.
    with following(client, job_id, after="999999") as events:
        assert [event["event"] for event in events] == [end]


@pytest.mark.parametrize("after", ["999999", str(END_ID)])
def test_a_number_above_all_does_not_hide_the_end_to_come(
    client: httpx.Client, gate: Gate, map_query: Document, after: str
) -> None:
    job_id = ask(client, map_query)
    with following(client, job_id, after=after) as events:
        gate.open()
        assert [event["event"] for event in events] == ["done"]


def test_the_end_of_a_job_of_an_earlier_process_is_told_once(
    client: httpx.Client, runner: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    noted = JobRecord("early", "", "token", "snapshot", {}, 480, 1, "failed", 1, 2, "the server was killed")

    def past(_job_id: str) -> Job:
        raise Past(noted)

    monkeypatch.setattr(runner, "job", past)
    # A number of the stream that was cut short says nothing of the end.
    for after in (None, "1", "7"):
        with following(client, "early", after=after) as events:
            (end,) = events
            assert end["event"] == "error"
    answer = client.get("/api/v1/queries/early/events", headers={"Last-Event-ID": end["id"]})
    assert answer.status_code == 204


def test_a_late_reader_gets_the_state_first(
    client: httpx.Client, gate: Gate, map_query: Document, wait_until: Wait
) -> None:
    gate.open()
    job_id = ask(client, map_query)
    wait_until(lambda: client.get(f"/api/v1/queries/{job_id}").json()["state"] == "done")
    with following(client, job_id) as events:
        assert [event["event"] for event in events] == ["plan", "progress", "done"]


def test_a_last_event_id_that_is_no_number_starts_from_the_beginning(
    client: httpx.Client, gate: Gate, map_query: Document, wait_until: Wait
) -> None:
    gate.open()
    job_id = ask(client, map_query)
    wait_until(lambda: client.get(f"/api/v1/queries/{job_id}").json()["state"] == "done")
    for after in ("x", "9" * 5000):
        with following(client, job_id, after=after) as events:
            assert next(events)["event"] == "plan"


def test_cancelled_and_error_end_the_stream(
    client: httpx.Client, gate: Gate, map_query: Document, wait_until: Wait
) -> None:
    first = ask(client, map_query)
    with following(client, first) as events:
        assert next(events)["event"] == "plan"
        client.delete(f"/api/v1/queries/{first}")
        assert [event["event"] for event in events][-1] == "cancelled"
    gate.failure = ZeroDivisionError("planted")
    gate.open()
    second = ask(client, map_query)
    with following(client, second) as events:
        last = list(events)[-1]
    assert last["event"] == "error"
    assert last["data"]["status"] == 500


class LeapingLoop(asyncio.SelectorEventLoop):
    """A loop on a clock of its own, which stands still but where a timer is waited for, and then leaps to its end."""

    class Selector(selectors.DefaultSelector):
        """Waits for other threads as long as it takes, and for timers not at all."""

        waited_s = 0.0

        def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
            ready = super().select(None if timeout is None else 0)
            if not ready:
                self.waited_s += timeout or 0.0
            return ready

    def __init__(self) -> None:
        self._waiting = self.Selector()
        super().__init__(self._waiting)

    def time(self) -> float:
        return self._waiting.waited_s


def test_at_most_ten_progress_events_a_second(
    client: httpx.Client, runner: Runner, gate: Gate, map_query: Document
) -> None:
    job_id = ask(client, map_query)

    async def read() -> list[float]:
        told = []
        async for event in follow_job(runner, job_id, after=0):
            # The first one says that the run began.
            if event.event == "progress" and json.loads(event.data)["cells"]:
                told.append(asyncio.get_running_loop().time())
            # Each block has its event, for the next one waits until that has been read.
            gate.let(1)
        return told

    with asyncio.Runner(loop_factory=LeapingLoop) as loop:
        told = loop.run(read())
    assert len(told) > 2
    # The last one may come sooner, for the end waits for no pause and what was counted goes before it.
    assert told[:-1] == pytest.approx([told[0] + number / 10 for number in range(len(told) - 1)])
    assert told[-2] <= told[-1] <= told[-2] + 0.11


def test_two_readers_of_one_query_both_see_its_end(client: httpx.Client, gate: Gate, map_query: Document) -> None:
    job_id = ask(client, map_query)
    with following(client, job_id) as one, following(client, job_id) as two:
        assert next(one)["event"] == next(two)["event"] == "plan"
        gate.open()
        assert list(one)[-1]["event"] == list(two)[-1]["event"] == "done"


def test_a_reader_that_left_is_forgotten(
    client: httpx.Client, runner: Runner, gate: Gate, map_query: Document, wait_until: Wait
) -> None:
    job_id = ask(client, map_query)
    with following(client, job_id) as events:
        next(events)
        assert len(runner._listeners) == 1
    wait_until(lambda: not runner._listeners)
    gate.open()
