"""Latest values of boxes in a network of thousands of stations, over HTTP, with and without commits meanwhile."""

import asyncio
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import numpy as np

from tests.bench.many_stations import VARIABLES, ManyStations, feed
from tests.bench.web_load import Answers, Served, get, open_loop, serving, wait

STATIONS: Final = 2000
BOXES: Final = {300: ("air_temperature",), 1277: tuple(VARIABLES)}
"""Latest values in a box, and the variables that they are of."""
WITHIN_S: Final = 0.02
PER_S: Final = 25.0
PERIOD_S: Final = 4.0
"""From commit to commit: each of them, of 2,000 stations, keeps a processor busy for a second."""


def boxes(*, rounds: int, count: int, told: Callable[[float], None], stations: int = STATIONS) -> list[dict[str, Any]]:
    """Ask for the latest values of two boxes, and return a row of figures for each, with commits and without.

    Some requests name the same box again and again, others, which have rows of their own, a box that nobody asked for
    before, a hair larger: no answer to these is kept.

    Parameters
    ----------
    rounds
        How often each figure is taken, in turns.
    count
        Requests of each figure in a round.
    told
        Told the share that is done.
    stations
        The size of the network; with fewer stations the boxes hold as much less.
    """
    seen: dict[tuple[int, bool, bool], list[Answers]] = {}
    with tempfile.TemporaryDirectory() as name:
        network = ManyStations(Path(name) / "archive", stations)
        network.create()
        wanted = {values: network.box(round(values * stations / STATIONS), names) for values, names in BOXES.items()}
        with serving(Path(name) / "archive", Path(name) / "state") as here:
            for number in range(2 * rounds):
                told(number / rounds / 2)
                is_fed = number % 2 == 1
                slices = round(2 * len(BOXES) * count / PER_S / PERIOD_S) + 1
                if is_fed:
                    before = _snapshot(here)
                    feeding = feed(Path(name) / "archive", stations, network.slices, slices, PERIOD_S)
                    wait(lambda before=before: _snapshot(here) != before, "no slice came")
                for values, names in BOXES.items():
                    for is_same in (True, False):
                        first = number * count + 1
                        larger = [0] * count if is_same else list(range(first, first + count))
                        answers = _time_requests(here, wanted[values], names, larger)
                        seen.setdefault((values, is_same, is_fed), []).append(answers)
                if is_fed:
                    feeding.wait()
                    network.resume(network.slices + slices)
    return [_row(*key, some) for key, some in seen.items()]


def _time_requests(
    here: Served, box: tuple[float, float, float, float], variables: tuple[str, ...], larger: list[int]
) -> Answers:
    """Ask for a box again and again, each time by so many parts in 1e9 of a degree larger."""
    west, south, east, north = box
    asked = f"/api/v1/latest?variable={','.join(variables)}&bbox={west:.9f},{south:.9f},{east:.9f}"
    requests = [get(f"{asked},{north + more * 1e-9:.9f}") for more in larger]
    return asyncio.run(open_loop(here.host, here.port, requests, per_s=PER_S))


def _snapshot(here: Served) -> str:
    return str(here.client.get("/api/v1/snapshots?limit=1").json()[0]["id"])


def _row(values: int, is_same: bool, is_fed: bool, some: list[Answers]) -> dict[str, Any]:  # noqa: FBT001 - a key of a table
    bodies = [json.loads(body) for answers in some for body in answers.bodies if body]
    p99_s = float(np.median([answers.quantile(0.99) for answers in some]))
    which, when = "the same box" if is_same else "boxes of their own", "commits" if is_fed else "calm"
    return {
        "which": f"{values} values, {which}, {when}",
        "values": len(bodies[0]["features"]), "rounds": len(some), "requests": sum(len(one.seconds) for one in some),
        "not 200": sum(len(one.seconds) - one.statuses[200] for one in some),
        "snapshots": len({body["snapshot"] for body in bodies}),
        "median ms": 1000 * float(np.median([answers.quantile(0.5) for answers in some])), "p99 ms": 1000 * p99_s,
        "worst ms": 1000 * max(answers.quantile(1.0) for answers in some), "kept": p99_s <= WITHIN_S,
    }  # fmt: skip
