"""The benchmark of fairness in small: that it counts what it says. No time is tested."""

import asyncio
import json
import threading
from collections.abc import Iterator
from typing import Any

import httpx
import numpy as np
import psutil
import pytest

from queries.jobs.block_queue import PROJECTED_S
from tests.bench import bench_web, web_fair
from tests.bench.web_fair import large_queries, runs
from tests.bench.web_fair_stream import Lag, is_kept, lag_of
from tests.bench.web_load import Served, open_loop


def test_the_large_queries_run_and_alerts_are_followed() -> None:
    (fair,) = bench_web.measure("fair", quick=True, slices=90)["parts"]["fair"]["rows"]
    assert (fair["small requests"], fair["errors"], fair["not 200"]) == (40, 0, 0)
    assert fair["large queries"] == fair["begun before the small ones"] == fair["advanced meanwhile"] == 10
    assert fair["least that one projects, s"] > PROJECTED_S
    assert fair["alerts"] > 0
    # A slice that is not committed yet raises nothing.
    assert 0 < fair["alert behind its slice, median s"] <= fair["alert behind its slice, p99 s"]
    assert fair["pairs"] == 2
    assert fair["least"] <= fair["beside / alone, median"] <= fair["most"]
    assert {figure for figure in fair if figure.endswith("kept")} == {
        "small kept", "own kept", "alerts kept", "beside kept",
    }  # fmt: skip


def test_a_stream_goes_on_beside_large_queries() -> None:
    (row,) = bench_web.measure("fair-stream", quick=True)["parts"]["fair-stream"]["rows"]
    assert row["large queries"] == row["begun before the small ones"] == row["advanced meanwhile"] == 10
    assert (row["stations"], row["errors"]) == (1000, 0)
    assert row["readings a second, idle"] > 0
    assert 0 < row["lag, median s"] <= row["lag, p99 s"]


@pytest.fixture
def three_jobs(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Served, list[dict[str, Any]]]]:
    """A server of which three queries are asked: their states, as they are changed, and what is deleted."""
    states = [{"state": "queued", "cells": 0, "plan": {"projected_seconds": 400.0 + number}} for number in range(3)]
    posted: list[int] = []

    def answer(request: httpx.Request) -> httpx.Response:
        if request.method == "POST":
            posted.append(json.loads(request.content)["steps"][2]["params"]["variogram"]["range_m"])
            return httpx.Response(202, json={"id": str(len(posted) - 1)})
        state = states[int(request.url.path.rpartition("/")[2])]
        if request.method == "DELETE":
            state["state"] = "cancelled"
        return httpx.Response(200, json=state)

    monkeypatch.setattr(web_fair, "BEGUN_S", 0.0)
    with httpx.Client(base_url="http://here", transport=httpx.MockTransport(answer)) as client:
        yield Served("here", 80, psutil.Process(), client), states
    assert len(set(posted)) == 3


def test_a_query_that_is_held_back_or_stands_still_does_not_count(
    three_jobs: tuple[Served, list[dict[str, Any]]],
) -> None:
    here, states = three_jobs
    for state, cells in zip(states[:2], (5, 7), strict=True):
        state |= {"state": "running", "cells": cells}
    with large_queries(here, ["a", "b", "c"]) as large:
        assert large.begun == 2
        assert large.projected_s == [400.0, 401.0, 402.0]
        # One goes on, one stands still, and one that waited begins late: it has more cells than before.
        states[0]["cells"] = 6
        assert large.advanced() == 1
        assert runs(large, large.advanced())["all ran"] is False
        for state in states:
            state |= {"state": "running", "cells": 10}
        large.wait()
        assert runs(large, 3)["all ran"] is True
        states[1] |= {"state": "done", "cells": 100}
        assert large.advanced() == 0
    assert [state["state"] for state in states] == ["cancelled"] * 3


@pytest.mark.parametrize(
    ("growth", "kept"),
    [
        (0.0, True),
        # In a hundred seconds the lag grows from 5 s to 6 s, and to 10 s.
        (0.01, True),
        (0.05, False),
    ],
)
def test_a_lag_that_grows_is_not_kept(growth: float, kept: bool) -> None:  # noqa: FBT001 - a table
    lags_s = np.tile([4.0, 5.0, 6.0], 10)
    seen = [(1000.0 + at_s, lags_s + growth * at_s) for at_s in range(101)]
    lag = lag_of(seen, 1000.0, 1100.0)
    assert lag.readings == 30 * 101
    assert lag.median_s == pytest.approx(5.0 + 50.0 * growth, abs=0.1)
    assert lag.growth == pytest.approx(growth, abs=1e-6)
    assert is_kept(Lag(1, 5.0, 6.0, 0.0), lag) is kept


def test_a_lag_that_is_longer_from_the_beginning_is_not_kept() -> None:
    seen = [(float(at_s), np.full(3, 8.0)) for at_s in range(10)]
    assert not is_kept(Lag(1, 5.0, 6.0, 0.0), lag_of(seen, 0.0, 9.0))
    assert is_kept(Lag(1, 6.0, 6.0, 0.0), lag_of(seen, 0.0, 9.0))
    # A stream that shows nothing keeps nothing.
    assert not is_kept(Lag(1, 6.0, 6.0, 0.0), lag_of(seen, 20.0, 30.0))


def test_a_loop_that_is_stopped_sends_no_more() -> None:
    stop = threading.Event()

    async def run() -> int:
        async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            while await reader.readline():
                await reader.readline()
                writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok")
                stop.set()
            writer.close()

        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        requests = [b"GET / HTTP/1.1\r\n\r\n"] * 1000
        answers = await open_loop("127.0.0.1", server.sockets[0].getsockname()[1], requests, per_s=2.0, stop=stop)
        server.close()
        return len(answers.seconds)

    assert 0 < asyncio.run(run()) < 1000
