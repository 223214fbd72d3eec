"""The web API under load, on loopback, while ingest commits and standing queries run: latest values, and queries."""

import asyncio
import json
import time
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final

import numpy as np

from tests.bench.kriging_figures import Tell, machine
from tests.bench.web_boxes import boxes
from tests.bench.web_load import Answers, Served, get, open_loop, post, q1_like, served

RATE: Final = 200.0
"""Requests a second that must be served."""
P99_S: Final = 0.15
RATES: Final = (250, 300, 400, 500, 600, 800, 1000, 1250, 1500, 1750, 2000, 2500, 3000)
"""Requests a second that are tried after it."""
QUERIES: Final = 200
WITHIN_S: Final = 10.0
LATEST: Final = "/api/v1/latest?variable=air_temperature"
POSITIONS: Final = 100
"""Positions of one request, beside a request of one."""
MOST_SHARE: Final = 3.0
"""What they may take, over what one takes."""
BOX_REQUESTS: Final = 200
_MEAN_MAP: Final = "/edr/collections/mean_map/position"
ASKERS: Final = 10
"""Those who each have a large query running."""
LARGE_CELLS: Final = 4000
"""Cells a side of the map of a large query: more than 300 s are projected."""
ALONE_CELLS: Final = 120
"""Cells a side of the large query that is timed alone, and beside small requests."""
SMALL_REQUESTS: Final = 200
SMALL_PER_S: Final = 4.0

TITLES = {
    "latest": "Latest values, 200 requests a second in an open loop, and the highest rate with p99 of 150 ms at most",
    "queries": "200 different queries like Q1 within 10 s",
    "positions": "100 positions in one request of EDR, beside one: at most three times the time",
    "fair": "200 positions at 4 a second by one key, while ten other keys have a large query each",
    "box": "Latest values of boxes in a network of 2,000 stations, 25 requests a second in an open loop",
}


def measure(
    case: str = "all",
    *,
    pairs: int = 5,
    tell: Tell = lambda _stage, _done: None,
    quick: bool = False,
    slices: int = 2160,
) -> dict[str, Any]:
    """Return the figures by part.

    Parameters
    ----------
    case
        One of `CASES`.
    pairs
        Rounds of the boxes; each other part is one run.
    tell
        Told how far it is.
    quick
        Seconds in place of minutes.
    slices
        Slices of the archive before the first request.
    """
    parts = {name: part for name, part in PARTS.items() if case in (name, "all")}
    found: dict[str, Any] = {}
    if parts:
        with served(slices=slices) as here:
            found |= {name: {"rows": part(here, tell, quick)} for name, part in parts.items()}
    if case in ("fair", "all"):
        with served(slices=slices, keys=ASKERS + 1) as here:
            found["fair"] = {"rows": _fair(here, tell, quick)}
    if case in ("box", "all"):
        rounds, count = (1, 20) if quick else (pairs, BOX_REQUESTS)
        found["box"] = {"rows": boxes(rounds=rounds, count=count, told=lambda share: tell("box", share))}
        tell("box", 1.0)
    return {"machine": machine(), "pairs": pairs, "parts": found}


def _latest(here: Served, tell: Tell, quick: bool) -> list[dict[str, Any]]:  # noqa: FBT001 - of a table of parts
    tell("latest", 0.0)
    rows = [_at(here, RATE, 4.0 if quick else 120.0)]
    for number, rate in enumerate(RATES[:2] if quick else RATES):
        tell("latest", (number + 1) / (len(RATES) + 1))
        rows.append(_at(here, float(rate), 3.0 if quick else 15.0))
        if rows[-1]["p99 s"] > P99_S or rows[-1]["errors"]:
            break
    tell("latest", 1.0)
    return rows


def _at(here: Served, rate: float, seconds: float) -> dict[str, Any]:
    before = here.standing()
    answers = asyncio.run(open_loop(here.host, here.port, [get(LATEST)] * round(rate * seconds), per_s=rate))
    return {
        "rate /s": rate, "seconds": seconds, "requests": len(answers.seconds), "errors": answers.errors,
        "not 200": len(answers.seconds) - answers.statuses[200], "median s": answers.quantile(0.5),
        "p99 s": answers.quantile(0.99), "longest s": answers.quantile(1.0),
        "kept": answers.quantile(0.99) <= P99_S and not answers.errors, "peak MiB": here.peak_bytes() / 2**20,
        **_standing(before, here.standing()),
    }  # fmt: skip


def _queries(here: Served, tell: Tell, quick: bool) -> list[dict[str, Any]]:  # noqa: FBT001 - of a table of parts
    tell("queries", 0.0)
    count = QUERIES // 4 if quick else QUERIES
    before, held = here.standing(), here.peak_bytes()
    begun = time.monotonic()
    requests = [post("/api/v1/queries", q1_like(number)) for number in range(count)]
    answers: Answers = asyncio.run(open_loop(here.host, here.port, requests, per_s=QUERIES / WITHIN_S))
    taken = {json.loads(body)["id"] for body in answers.bodies if b'"state"' in body}
    states: dict[str, str] = {}
    while len(states) < len(taken):
        time.sleep(0.5)
        jobs = here.client.get("/api/v1/queries").json()
        states = {job["id"]: job["state"] for job in jobs if job["id"] in taken and job["ended"] is not None}
        tell("queries", len(states) / max(len(taken), 1))
    took_s = time.monotonic() - begun
    done = sum(state == "done" for state in states.values())
    row = {
        "queries": count, "within s": count / QUERIES * WITHIN_S, "answered": done, "share answered": done / count,
        "refused with 429": answers.statuses[429], "errors": answers.errors + len(states) - done,
        "p99 s to take": answers.quantile(0.99), "s until all were answered": took_s,
        "peak MiB before": held / 2**20, "peak MiB": here.peak_bytes() / 2**20, **_standing(before, here.standing()),
    }  # fmt: skip
    return [row]


def _positions(here: Served, tell: Tell, quick: bool) -> list[dict[str, Any]]:  # noqa: FBT001 - as the others
    pairs, shares, one_s, all_s = 5 if quick else 25, [], [], []
    lon, lat = np.random.default_rng(1).random((2, POSITIONS))
    for pair in range(pairs + 1):
        tell("positions", pair / (pairs + 1))
        # Each is of positions that nobody asked for before: nothing of it is kept.
        lots = [(7.177 + 0.004 * lon[:count] + pair * 1e-6, 45.867 + 0.004 * lat[:count]) for count in (1, POSITIONS)]
        points = [", ".join(f"({x:.7f} {y:.7f})" for x, y in zip(*lot, strict=True)) for lot in lots]
        seconds = [_answered_s(here, f"{_MEAN_MAP}?f=CoverageJSON&coords=MULTIPOINT({text})", "") for text in points]
        if pair:
            one_s.append(seconds[0])
            all_s.append(seconds[1])
            shares.append(seconds[1] / seconds[0])
    tell("positions", 1.0)
    return [
        {
            "positions": POSITIONS, "pairs": pairs, "one, median s": float(np.median(one_s)),
            "all, median s": float(np.median(all_s)), "all / one, median": float(np.median(shares)),
            "least": min(shares), "most": max(shares), "kept": float(np.median(shares)) <= MOST_SHARE,
        }
    ]  # fmt: skip


def _fair(here: Served, tell: Tell, quick: bool) -> list[dict[str, Any]]:  # noqa: FBT001 - as the others
    tell("fair", 0.0)
    *large, small = here.keys
    count = 40 if quick else SMALL_REQUESTS
    positions = [get(_position(number), key=small) for number in range(count)]
    # Compiled, and planned once.
    asyncio.run(open_loop(here.host, here.port, positions[:3], per_s=1.0))
    size = ALONE_CELLS // 4 if quick else ALONE_CELLS
    alone_s = [_seconds(here, q1_like(number, cells=size), large[0]) for number in range(3)]
    tell("fair", 0.2)
    beside_s = []
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(lambda: asyncio.run(open_loop(here.host, here.port, positions, per_s=SMALL_PER_S)))
        while not asked.done() and len(beside_s) < 3:
            beside_s.append(_seconds(here, q1_like(10 + len(beside_s), cells=size), large[0]))
    tell("fair", 0.5)
    before = here.standing()
    posted = [
        here.client.post("/api/v1/queries", json=q1_like(100 + number, cells=LARGE_CELLS), headers={"X-API-Key": key})
        for number, key in enumerate(large)
    ]
    jobs = [f"/api/v1/queries/{one.raise_for_status().json()['id']}" for one in posted]
    projected_s = [here.client.get(job).json()["plan"]["projected_seconds"] for job in jobs]
    with ThreadPoolExecutor(1) as pool:
        asked = pool.submit(lambda: asyncio.run(open_loop(here.host, here.port, positions, per_s=SMALL_PER_S)))
        own_s = []
        while not asked.done():
            own_s.append(_answered_s(here, _position(1000 + len(own_s)), large[0]))
            time.sleep(1.0)
        answers = asked.result()
    states = Counter(here.client.get(job).json()["state"] for job in jobs)
    queue = here.client.get("/api/v1/engine").json()["queries"]
    for job in jobs:
        here.client.delete(job)
    tell("fair", 1.0)
    row = {
        "large queries": len(jobs), "least that one projects, s": min(projected_s), "of them ended": states["done"],
        "small requests": count, "errors": answers.errors, "not 200": count - answers.statuses[200],
        "median s": answers.quantile(0.5), "p99 s": answers.quantile(0.99), "longest s": answers.quantile(1.0),
        "own small, longest s": max(own_s), "longest block s": queue["longest_block_s"],
        "large alone, median s": float(np.median(alone_s)), "beside small ones, median s": float(np.median(beside_s)),
        "beside / alone": float(np.median(beside_s) / np.median(alone_s)), "peak MiB": here.peak_bytes() / 2**20,
        **_standing(before, here.standing()),
    }  # fmt: skip
    return [row]


def _position(number: int) -> str:
    """Return the address of an estimate at a place of its own."""
    return f"{_MEAN_MAP}?coords=POINT({7.177 + number * 1e-6:.6f}%2045.868)&f=CoverageJSON"


def _answered_s(here: Served, path: str, key: str) -> float:
    begun = time.monotonic()
    here.client.get(path, headers={"X-API-Key": key} if key else {}).raise_for_status()
    return time.monotonic() - begun


def _seconds(here: Served, document: dict[str, Any], key: str) -> float:
    """Return how long a query takes until it is done [s]."""
    begun, headers = time.monotonic(), {"X-API-Key": key}
    job = here.client.post("/api/v1/queries", json=document, headers=headers).raise_for_status().json()
    while (state := here.client.get(f"/api/v1/queries/{job['id']}", headers=headers).json())["state"] != "done":
        assert state["ended"] is None, state
        time.sleep(0.05)
    return time.monotonic() - begun


def _standing(before: Mapping[str, Any], after: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the standing queries did meanwhile."""
    alerts = after["freshness"].get("alert", {})
    return {
        "standing evaluations": after["evaluations"] - before["evaluations"],
        "alerts behind, median s": alerts.get("median_s", 0.0),
        "alerts behind, p99 s": alerts.get("p99_s", 0.0),
    }


PARTS: Mapping[str, Callable[[Served, Tell, bool], list[dict[str, Any]]]] = {
    "latest": _latest,
    "queries": _queries,
    "positions": _positions,
}
CASES = (*PARTS, "fair", "box", "all")
"""What can be asked for."""


def tables(measured: Mapping[str, Any]) -> list[tuple[str, tuple[str, ...], list[tuple[object, ...]]]]:
    """Return what `measure` returned as tables: title, columns, rows; each figure is a row."""
    shown = []
    for name, part in measured["parts"].items():
        columns = ("figure", *(str(row.get("rate /s", row.get("which", "here"))) for row in part["rows"]))
        rows = [(figure, *(_short(row[figure]) for row in part["rows"])) for figure in part["rows"][0]]
        shown.append((TITLES[name], columns, rows))
    return shown


def _short(value: object) -> object:
    return f"{value:.3g}" if isinstance(value, float) else value
