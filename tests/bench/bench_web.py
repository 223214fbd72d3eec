"""The web API under load, on loopback, while ingest commits and standing queries run: latest values, and queries."""

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from typing import Any, Final

import numpy as np

from tests.bench.kriging_figures import Tell, machine
from tests.bench.web_boxes import boxes
from tests.bench.web_fair import ASKERS, MEAN_MAP, answered_s, fair
from tests.bench.web_fair_stream import fair_stream
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

TITLES = {
    "latest": "Latest values, 200 requests a second in an open loop, and the highest rate with p99 of 150 ms at most",
    "queries": "200 different queries like Q1 within 10 s",
    "positions": "100 positions in one request of EDR, beside one: at most three times the time",
    "fair": "200 positions at 4 a second by one key, while ten other keys have a large query each",
    "fair-stream": "Lag of a stream of 1,000 stations while ten keys have a large query each",
    "box": "Latest values of boxes in a network of 2,000 stations, 25 requests a second in an open loop",
}


def measure(
    case: str = "all",
    *,
    pairs: int = 5,
    notify: Tell = lambda _stage, _done: None,
    quick: bool = False,
    slices: int = 2160,
) -> dict[str, Any]:
    """Return the figures by part.

    Parameters
    ----------
    case
        One of `CASES`.
    pairs
        Of a large query alone and beside small ones (fair), and rounds of the boxes; all else is one run.
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
            found |= {name: {"rows": part(here, notify, quick)} for name, part in parts.items()}
    if case in ("fair", "all"):
        with served(slices=slices, fed_s=1200.0, keys=ASKERS + 1) as here:
            found["fair"] = {"rows": fair(here, notify, 2 if quick else pairs, quick=quick)}
    if case in ("fair-stream", "all"):
        found["fair-stream"] = {"rows": fair_stream(notify, quick)}
    if case in ("box", "all"):
        rounds, count = (1, 20) if quick else (pairs, BOX_REQUESTS)
        found["box"] = {"rows": boxes(rounds=rounds, count=count, told=lambda share: notify("box", share))}
        notify("box", 1.0)
    return {"machine": machine(), "pairs": pairs, "parts": found}


def _latest(here: Served, notify: Tell, quick: bool) -> list[dict[str, Any]]:  # noqa: FBT001 - of a table of parts
    notify("latest", 0.0)
    rows = [_at(here, RATE, 4.0 if quick else 120.0)]
    for number, rate in enumerate(RATES[:2] if quick else RATES):
        notify("latest", (number + 1) / (len(RATES) + 1))
        rows.append(_at(here, float(rate), 3.0 if quick else 15.0))
        if rows[-1]["p99 s"] > P99_S or rows[-1]["errors"]:
            break
    notify("latest", 1.0)
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


def _queries(here: Served, notify: Tell, quick: bool) -> list[dict[str, Any]]:  # noqa: FBT001 - of a table of parts
    notify("queries", 0.0)
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
        notify("queries", len(states) / max(len(taken), 1))
    took_s = time.monotonic() - begun
    done = sum(state == "done" for state in states.values())
    row = {
        "queries": count, "within s": count / QUERIES * WITHIN_S, "answered": done, "share answered": done / count,
        "refused with 429": answers.statuses[429], "errors": answers.errors + len(states) - done,
        "p99 s to take": answers.quantile(0.99), "s until all were answered": took_s,
        "peak MiB before": held / 2**20, "peak MiB": here.peak_bytes() / 2**20, **_standing(before, here.standing()),
    }  # fmt: skip
    return [row]


def _positions(here: Served, notify: Tell, quick: bool) -> list[dict[str, Any]]:  # noqa: FBT001 - as the others
    pairs, shares, one_s, all_s = 5 if quick else 25, [], [], []
    lon, lat = np.random.default_rng(1).random((2, POSITIONS))
    for pair in range(pairs + 1):
        notify("positions", pair / (pairs + 1))
        # Each is of positions that nobody asked for before: nothing of it is kept.
        lots = [(7.177 + 0.004 * lon[:count] + pair * 1e-6, 45.867 + 0.004 * lat[:count]) for count in (1, POSITIONS)]
        points = [", ".join(f"({x:.7f} {y:.7f})" for x, y in zip(*lot, strict=True)) for lot in lots]
        seconds = [answered_s(here, f"{MEAN_MAP}?f=CoverageJSON&coords=MULTIPOINT({text})") for text in points]
        if pair:
            one_s.append(seconds[0])
            all_s.append(seconds[1])
            shares.append(seconds[1] / seconds[0])
    notify("positions", 1.0)
    return [
        {
            "positions": POSITIONS, "pairs": pairs, "one, median s": float(np.median(one_s)),
            "all, median s": float(np.median(all_s)), "all / one, median": float(np.median(shares)),
            "least": min(shares), "most": max(shares), "kept": float(np.median(shares)) <= MOST_SHARE,
        }
    ]  # fmt: skip


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
CASES = (*PARTS, "fair", "fair-stream", "box", "all")
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
