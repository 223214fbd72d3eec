"""The first seconds of a server: latest values at 200 requests a second from the moment at which it is ready."""

import asyncio
import json
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from tests.bench.kriging_figures import Tell, machine
from tests.bench.standing_network import Network
from tests.bench.web_load import SLICES, get, open_loop, serving

RATE: Final = 200.0
"""Requests a second that must be served."""
SECONDS: Final = 5.0
P99_S: Final = 0.15
LATEST: Final = "/api/v1/latest?variable=air_temperature"
STATIONS: Final = {"sample": 24, "larger": 400}
"""Stations of each network."""
CASES = (*STATIONS, "all")
"""What can be asked for."""


def measure(
    case: str = "all",
    *,
    pairs: int = 5,
    notify: Tell = lambda _stage, _done: None,
    quick: bool = False,
    slices: int = SLICES,
) -> dict[str, Any]:
    """Return the figures by network, a row for each of several servers.

    Parameters
    ----------
    case
        One of `CASES`.
    pairs
        How many servers are started, one after the other.
    tell
        Told how far it is.
    quick
        One server, for a second.
    slices
        Slices of the archive.
    """
    chosen = {name: count for name, count in STATIONS.items() if case in (name, "all")}
    servers, seconds = (1, 1.0) if quick else (pairs, SECONDS)
    parts: dict[str, Any] = {}
    for place, (name, count) in enumerate(chosen.items()):
        rows = []
        with tempfile.TemporaryDirectory() as folder:
            Network(Path(folder) / "archive", count).create(slices)
            for number in range(servers):
                notify("cold start", (place + number / servers) / len(chosen))
                rows.append(_row(Path(folder) / "archive", Path(folder) / f"state-{number}", seconds))
        parts[name] = {"stations": count, "rows": rows}
    notify("cold start", 1.0)
    return {"machine": machine(), "pairs": pairs, "parts": parts}


def _row(archive: Path, state: Path, seconds: float) -> dict[str, Any]:
    """Start a server, and ask it from the moment at which it is ready."""
    begun = time.monotonic()
    with serving(archive, state) as here:
        ready_s = time.monotonic() - begun
        answers = asyncio.run(open_loop(here.host, here.port, [get(LATEST)] * round(RATE * seconds), per_s=RATE))
    first = answers.seconds[: round(RATE)]
    return {
        "s until ready": ready_s, "values": _values(answers.bodies[-1]),
        "requests": len(answers.seconds), "without an answer": answers.statuses[0],
        "not 200": len(answers.seconds) - answers.statuses[200], "median s": answers.quantile(0.5),
        "p99 s of the first 200": float(np.quantile(first, 0.99)), "p99 s": answers.quantile(0.99),
        "longest s": answers.quantile(1.0), "kept": answers.quantile(0.99) <= P99_S and not answers.errors,
    }  # fmt: skip


def _values(body: bytes) -> int:
    return len(json.loads(body)["features"]) if body else 0


def tables(measured: Mapping[str, Any]) -> list[tuple[str, tuple[str, ...], list[tuple[object, ...]]]]:
    """Return what `measure` returned as tables: title, columns, rows; each figure is a row."""
    shown = []
    for part in measured["parts"].values():
        rows = part["rows"]
        title = f"Latest values of {part['stations']} stations from the moment of readiness, 200 requests a second"
        columns = ("figure", *(f"server {number + 1}" for number in range(len(rows))))
        shown.append((title, columns, [(figure, *(_short(row[figure]) for row in rows)) for figure in rows[0]]))
    return shown


def _short(value: object) -> object:
    return f"{value:.3g}" if isinstance(value, float) else value
