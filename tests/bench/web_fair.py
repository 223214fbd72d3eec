"""What others notice of ten large queries: small requests, alerts, and one large query beside small ones."""

import asyncio
import json
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import count
from typing import Any, Final

import numpy as np

from hypergrid.core.times import SECOND_NS, parse_instant
from tests.bench.kriging_figures import Tell
from tests.bench.standing_network import template
from tests.bench.web_load import Answers, Served, get, open_loop, q1_like

ASKERS: Final = 10
"""Askers with a large query each."""
LARGE: Final[dict[str, Any]] = {"cells": 2200, "time": "2min"}
"""Of a large query: more than 300 s are projected, and so little memory (300 MB) that ten run at a time."""
LARGE_S: Final = 300.0
"""What the plan of each must project, at least [s]."""
PAIRED: Final[dict[str, Any]] = {"cells": 720, "time": "10min"}
"""Of a query that is large by its plan, and short enough to be timed by itself and beside small requests in pairs."""
BEGUN_S: Final = 120.0
"""How long the first cells of the large queries are waited for [s]."""
SMALL_REQUESTS: Final = 200
SMALL_PER_S: Final = 4.0
RAISING: Final = 12
"""Standing queries whose alerts are timed; their levels are spread over the values of the stations."""
SMALL_P99_S: Final = 1.0
OWN_S: Final = 2.0
ALERT_P99_S: Final = 5.0
BESIDE: Final = 1.2
"""What a large query may take beside small requests, of what it takes alone."""
MEAN_MAP: Final = "/edr/collections/mean_map/position"
_NUMBERS: Final = count()
"""Nothing of a position, or of a map, that nobody asked for before is kept."""


def position() -> str:
    """Return the address of an estimate at a place that nobody asked for before."""
    return f"{MEAN_MAP}?coords=POINT({7.177 + next(_NUMBERS) * 1e-7:.7f}%2045.868)&f=CoverageJSON"


def answered_s(here: Served, path: str, key: str = "") -> float:
    """Return how long an answer takes [s]."""
    begun = time.monotonic()
    here.client.get(path, headers={"X-API-Key": key} if key else {}).raise_for_status()
    return time.monotonic() - begun


def small_requests(
    here: Served, requests: int, key: str, stop: threading.Event | None = None, *, address: str = ""
) -> Answers:
    """Ask `SMALL_PER_S` times a second, for positions or at one address, until all are answered that were sent."""
    sent = [get(address or position(), key=key) for _ in range(requests)]
    return asyncio.run(open_loop(here.host, here.port, sent, per_s=SMALL_PER_S, stop=stop))


@dataclass
class LargeQueries:
    """A large query of each of some askers."""

    here: Served
    jobs: list[str]
    projected_s: list[float]
    cells: list[int] = field(default_factory=list)
    """What each had computed when all had begun, or were not waited for any longer."""

    @property
    def begun(self) -> int:
        """Those that ran and had computed cells by then."""
        return sum(cells > 0 for cells in self.cells)

    def advanced(self) -> int:
        """Return how many run still, and have computed more cells than then."""
        now = zip(self.cells, self._running(), strict=True)
        return sum(cells is not None and cells > before for before, cells in now)

    def wait(self) -> None:
        """Wait until each has computed cells."""
        ends = time.monotonic() + BEGUN_S
        while True:
            self.cells = [cells or 0 for cells in self._running()]
            if all(self.cells) or time.monotonic() > ends:
                return
            time.sleep(0.5)

    def _running(self) -> list[int | None]:
        """Return the cells that each has computed; None of one that does not run."""
        states = [self.here.client.get(job).raise_for_status().json() for job in self.jobs]
        return [int(one["cells"]) if one["state"] == "running" else None for one in states]


@contextmanager
def large_queries(here: Served, keys: Sequence[str]) -> Iterator[LargeQueries]:
    """Ask a large query with each key, and wait until each computes; stop them in the end."""
    jobs = []
    try:
        for key in keys:
            document, headers = q1_like(1000 + next(_NUMBERS), **LARGE), {"X-API-Key": key}
            posted = here.client.post("/api/v1/queries", json=document, headers=headers).raise_for_status()
            jobs.append(f"/api/v1/queries/{posted.json()['id']}")
        large = LargeQueries(here, jobs, [here.client.get(job).json()["plan"]["projected_seconds"] for job in jobs])
        large.wait()
        yield large
    finally:
        for job in jobs:
            here.client.delete(job)


def runs(large: LargeQueries, advanced: int) -> dict[str, Any]:
    """Return whether the large queries ran: all were begun, were as large as they must be, and went on."""
    return {
        "large queries": len(large.jobs), "least that one projects, s": min(large.projected_s),
        "begun before the small ones": large.begun, "advanced meanwhile": advanced,
        "all ran": large.begun == advanced == len(large.jobs) and min(large.projected_s) > LARGE_S,
    }  # fmt: skip


def small_row(answers: Answers, requests: int) -> dict[str, Any]:
    """Return the figures of small requests."""
    return {
        "small requests": requests, "errors": answers.errors, "not 200": requests - answers.statuses[200],
        "median s": answers.quantile(0.5), "p99 s": answers.quantile(0.99), "longest s": answers.quantile(1.0),
        "small kept": answers.quantile(0.99) < SMALL_P99_S and answers.statuses[200] == requests,
    }  # fmt: skip


def fair(here: Served, notify: Tell, pairs: int, *, quick: bool) -> list[dict[str, Any]]:
    """Return what small requests and alerts wait while each key but the last has a large query, and pairs of one."""
    notify("fair", 0.0)
    *keys, small = here.keys
    requests = 40 if quick else SMALL_REQUESTS
    # Compiled, and planned once.
    small_requests(here, 3, small)
    paired = _paired(here, keys[0], small, pairs, PAIRED | {"cells": 120} if quick else PAIRED)
    notify("fair", 0.5)
    _stand(here)
    with _alerts_followed(here) as alerts, large_queries(here, keys) as large, ThreadPoolExecutor(1) as pool:
        before, begun_ns = here.standing(), time.time_ns()
        asked = pool.submit(small_requests, here, requests, small)
        own_s = []
        while not asked.done():
            own_s.append(answered_s(here, position(), keys[0]))
            time.sleep(1.0)
        answers, advanced, ended_ns = asked.result(), large.advanced(), time.time_ns()
        longest_block_s = here.client.get("/api/v1/engine").json()["queries"]["longest_block_s"]
        evaluations = here.standing()["evaluations"] - before["evaluations"]
    behind_s = _behind_s(here, alerts, begun_ns, ended_ns)
    row = {
        **runs(large, advanced), **small_row(answers, requests),
        "own small requests": len(own_s), "own small, longest s": max(own_s), "own kept": max(own_s) < OWN_S,
        "alerts": len(behind_s), "alert behind its slice, median s": float(np.median(behind_s)),
        "alert behind its slice, p99 s": float(np.quantile(behind_s, 0.99)),
        "alerts kept": float(np.quantile(behind_s, 0.99)) <= ALERT_P99_S,
        "longest block s": longest_block_s, "standing evaluations": evaluations,
        **paired, "peak MiB": here.peak_bytes() / 2**20,
    }  # fmt: skip
    notify("fair", 1.0)
    return [row]


def _paired(here: Served, key: str, small: str, pairs: int, size: dict[str, Any]) -> dict[str, Any]:
    """Time a large query alone and beside small requests, in pairs, in either order by turns."""
    took_s: dict[bool, list[float]] = {False: [], True: []}
    projected_s = []
    for pair in range(pairs):
        for is_beside in (False, True) if pair % 2 else (True, False):
            stop = threading.Event()
            with ThreadPoolExecutor(1) as pool:
                if is_beside:
                    pool.submit(small_requests, here, 1000, small, stop)
                seconds, projected = _query(here, q1_like(next(_NUMBERS), **size), key)
                stop.set()
            took_s[is_beside].append(seconds)
            projected_s.append(projected)
    shares = [beside / alone for alone, beside in zip(took_s[False], took_s[True], strict=True)]
    return {
        "pairs": len(shares), "large alone, median s": float(np.median(took_s[False])),
        "least that it projects, s": min(projected_s),
        "beside small ones, median s": float(np.median(took_s[True])),
        "beside / alone, median": float(np.median(shares)), "least": min(shares), "most": max(shares),
        "beside kept": float(np.median(shares)) <= BESIDE,
    }  # fmt: skip


def _query(here: Served, document: dict[str, Any], key: str) -> tuple[float, float]:
    """Return how long a query takes until it is done [s], and what its plan projects [s]."""
    begun, headers = time.monotonic(), {"X-API-Key": key}
    job = here.client.post("/api/v1/queries", json=document, headers=headers).raise_for_status().json()
    while (state := here.client.get(f"/api/v1/queries/{job['id']}", headers=headers).json())["state"] != "done":
        assert state["ended"] is None, state
        time.sleep(0.05)
    return time.monotonic() - begun, state["plan"]["projected_seconds"]


def _stand(here: Served) -> None:
    """Have alerts be raised and cleared with nearly each slice: values of stations have noise, and go up and down."""
    latest = here.client.get("/api/v1/latest?variable=air_temperature").raise_for_status().json()
    values = [station["properties"]["value"] for station in latest["features"]]
    for number, level in enumerate(np.quantile(values, np.linspace(0.05, 0.95, RAISING))):
        condition = {"kind": "threshold", "above": round(float(level), 3)}
        document = {"name": f"raises{number:02d}", "query": template(0, side=6), "class": "alert", "weight": 10.0,
                    "validity": "4min", "condition": condition}  # fmt: skip
        here.client.post("/api/v1/standing", json=document).raise_for_status()


@contextmanager
def _alerts_followed(here: Served) -> Iterator[list[tuple[int, dict[str, Any]]]]:
    """Yield a list to which each alert comes, with the time at which it was there [ns since 1970 UTC]."""
    came: list[tuple[int, dict[str, Any]]] = []
    stop = threading.Event()

    def follow() -> None:
        with here.client.stream("GET", "/api/v1/standing/alerts/events") as answer:
            for line in answer.iter_lines():
                if line.startswith("data:"):
                    came.append((time.time_ns(), json.loads(line.removeprefix("data:"))))
                if stop.is_set():
                    return

    with ThreadPoolExecutor(1) as pool:
        following = pool.submit(follow)
        try:
            yield came
        finally:
            stop.set()
            following.result(60)


def _behind_s(here: Served, alerts: Sequence[tuple[int, dict[str, Any]]], begun_ns: int, ended_ns: int) -> list[float]:
    """Return how long after its slice began to be committed each alert came, of slices of a span of time [s]."""
    snapshots = here.client.get("/api/v1/snapshots?limit=1000").raise_for_status().json()
    committed_ns = {
        snapshot["metadata"]["slices"]["air_temperature"]["first_ns"]: parse_instant(snapshot["time"])
        for snapshot in snapshots
        if snapshot["message"] == "slices"
    }
    return [
        (came_ns - committed_ns[slice_ns]) / SECOND_NS
        for came_ns, alert in alerts
        for slice_ns in [parse_instant(alert["until"] or alert["since"])]
        if begun_ns <= committed_ns[slice_ns] <= ended_ns
    ]
