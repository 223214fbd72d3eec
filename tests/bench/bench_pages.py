"""The pages in a real Chromium: the first picture, how it sharpens, pages and boards left open, many stations."""

import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TypeVar

from playwright.sync_api import Browser

import hypergrid as hg
from hypergrid.core.times import parse_instant
from ingest.job import ingest
from tests.bench.kriging_figures import Tell, machine
from tests.bench.many_stations import ManyStations
from tests.bench.page_board import board_followed
from tests.bench.page_devtools import devtools
from tests.bench.page_open import MOST_GROWTH, kept_open
from tests.bench.page_tab import Run, chromium, press_run
from tests.bench.page_usable import USES, FirstMap, FirstValues, Opening, open_map, open_overview, openings
from tests.bench.web_load import QUERIES_FOLDER, Served, served, serving

Seen = TypeVar("Seen")

FIRST_S: Final = 0.5
"""When the first picture must be on the screen, after Run is pressed [s]."""
CELLS: Final = 200
"""Cells along each side of Q1's square."""
REGION_CELLS: Final = 50
"""Cells along the longer side of a region that is dragged on the page."""
SERVERS: Final = 3
"""Servers that are started anew; the first question of each finds nothing warm."""
LEAST_REDRAWS: Final = 5
MOST_RATIO: Final = 1.3
"""What the whole answer may take at the page, over what the API takes alone."""
MINUTES: Final = 30.0
STATIONS: Final = 2000
MORE_STATIONS: Final = 13_000
"""Stations of a second archive, whose page of stations must not grow with them."""
USABLE_S: Final = 3.0
"""When a page must be usable, after it is opened."""
VALUES_S: Final = {"warm": 1.0, "cold": 3.0}
"""When the overview must show the stations' values, in the median, by whether its server has answered before [s]."""
MAP_S: Final = 1.5
"""When the map that Explore begins with must be whole, after it is opened on a warm server, in the median [s]."""
REDRAWS: Final = 10.0
"""Least redraws a second of a map that sharpens, in the median."""
OVERVIEWS: Final = 20
"""Openings of the overview, and of Explore, on a warm server."""
MOST_WEIGHT: Final = 1_800_000
"""What all that a page loads may weigh, uncompressed [bytes]."""
MOST_ELEMENTS: Final = 1.1
"""Elements of the page of stations with more of them, over those with fewer."""

TITLES = {
    "first": "From the press of Run to the first picture on the screen, Q1",
    "sharpens": "A surface of many seconds: redraws before it is complete, and its time over that of the API alone",
    "open": "Pages left open while readings come at 60 times real time",
    "overview": "From opening the pages to the stations in the colours of their newest values, and what is loaded",
    "map": "From opening Explore to the map that it begins with, kriged in full",
    "board": "A board of ten panels left open while readings come at 60 times real time",
    "many": "From opening a page of a network of 2,000 stations until it can be used; elements of 13,000",
}


def measure(
    case: str = "all",
    *,
    pairs: int = 5,
    notify: Tell = lambda _stage, _done: None,
    quick: bool = False,
    minutes: float | None = None,
) -> dict[str, Any]:
    """Return the figures by part.

    Parameters
    ----------
    case
        One of `CASES`.
    pairs
        Questions that each server is asked (first), pairs of page and API (sharpens), openings of each page (many).
    tell
        Told how far it is.
    quick
        The day of the repository, small surfaces, seconds in place of minutes.
    minutes
        How long the pages are left open [min]; 30, or a tenth of a minute where it is quick.
    """
    parts = {name: part for name, part in PARTS.items() if case in (name, "all")}
    shown = minutes or (0.1 if quick else MINUTES)
    return {
        "machine": machine(),
        "pairs": pairs,
        "parts": {name: {"rows": part(notify, pairs, quick, shown)} for name, part in parts.items()},
    }


def q1(number: int, *, cells: int, **changes: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    """Return Q1 on its square in `cells` by `cells`, with a variogram of its own, so that no two share anything.

    Neither a kept result nor a run that goes on answers it, and no weights: all are told apart by the query's content.
    """
    document = json.loads((QUERIES_FOLDER / "q1.json").read_text("utf-8"))
    document["steps"][2]["grid"] |= {"step": f"{23 / cells:.6f}arcsec", "shape": [cells, cells]}
    document["steps"][2]["params"]["variogram"]["range_m"] = 250.0 + number
    return dict(document) | changes


def _longer(number: int, *, cells: int, time: str) -> dict[str, Any]:
    """Return Q1 aligned to a time shorter than its own, over all 28 days."""
    document = q1(number, cells=cells, clip={})
    document["steps"][1]["time"] = time
    return document


@contextmanager
def sample(*, quick: bool) -> Iterator[Path]:
    """Give the archive of the sample network as `make demo` makes it; where it is quick, its day in the repository."""
    with tempfile.TemporaryDirectory() as name:
        if quick:
            day = QUERIES_FOLDER.parent / "sample"
            ingest([day], Path(name) / "archive", engine="inprocess", now_ns=parse_instant("2007-10-02"))
        else:
            demo = [sys.executable, "-m", "hypergrid", "demo", "--no-serve", "--json", "--folder", name]
            subprocess.run(demo, check=True, capture_output=True)
        yield Path(name) / "archive"


def api_alone_s(here: Served, document: Mapping[str, Any]) -> float:
    """Ask a question without any page, and return how long it takes until its events say that it is done [s]."""
    begun = time.perf_counter()
    job = here.client.post("/api/v1/queries", json=document).raise_for_status().json()
    with here.client.stream("GET", f"/api/v1/queries/{job['id']}/events") as events:
        last = [line for line in events.iter_lines() if line.startswith("event: ")][-1]
    assert last == "event: done", last
    return time.perf_counter() - begun


def _first(notify: Tell, pairs: int, quick: bool, _minutes: float) -> list[dict[str, Any]]:  # noqa: FBT001 - of a table of parts
    cells, servers, asked = (40, 1, 2) if quick else (CELLS, SERVERS, max(pairs, 2))
    # Of the three days of Q1 the one in the repository is too little.
    changes = {"clip": {"time": ["2007-10-01", "2007-10-02"]}} if quick else {}
    fresh, later, tell_done = [], [], 0
    with sample(quick=quick) as archive, chromium() as browser:
        for _ in range(servers):
            with tempfile.TemporaryDirectory() as state, serving(archive, Path(state)) as here:
                runs = []
                for number in range(asked):
                    notify("first", tell_done / (servers * asked))
                    runs.append(press_run(browser, here.address, q1(number, cells=cells, **changes)))
                    tell_done += 1
            fresh.append(runs[0])
            later += runs[1:]
    notify("first", 1.0)
    rows = []
    for name, some in (("the first question to a server", fresh), ("later ones", later)):
        frames = [next(one for one in run.requests if one[0].endswith("/frame")) for run in some]
        asks = [next(one for one in run.requests if one[0].endswith("/queries")) for run in some]
        shown = [run.paints_s[0] for run in some]
        rows.append(
            {
                "which": name, "questions": len(some), "cells": cells * cells, "first picture ms": _ms(shown),
                "within 500 ms": max(shown) <= FIRST_S, "question taken by ms": _ms([end for _, _, end in asks]),
                "picture asked at ms": _ms([start for _, start, _ in frames]),
                "picture sent in ms": _ms([end - start for _, start, end in frames]),
                "drawn in ms": _ms([one - end for one, (_, _, end) in zip(shown, frames, strict=True)]),
                "complete ms": _ms([run.total_s for run in some]),
            }
        )  # fmt: skip
    return rows


def _sharpens(notify: Tell, pairs: int, quick: bool, _minutes: float) -> list[dict[str, Any]]:  # noqa: FBT001
    # The second has as many cells as a region that is dragged on the page.
    sizes = [(40, "5min")] if quick else [(CELLS, "5min"), (REGION_CELLS, "2min")]
    rows = []
    with sample(quick=quick) as archive, chromium() as browser:
        for at, (cells, length) in enumerate(sizes):

            def notify_share(done: float, at: int = at) -> None:
                notify("sharpens", (at + done) / len(sizes))

            rows.append(_sharpened(browser, archive, 1 if quick else pairs, notify_share, cells=cells, time=length))
    notify("sharpens", 1.0)
    return rows


def _sharpened(
    browser: Browser, archive: Path, pairs: int, notify: Callable[[float], None], *, cells: int, time: str
) -> dict[str, Any]:
    alone, runs = list[float](), list[Run]()
    with tempfile.TemporaryDirectory() as state, serving(archive, Path(state)) as here:

        def ask(number: int, *, on_page: bool) -> None:
            document = _longer(number, cells=cells, time=time)
            if on_page:
                runs.append(press_run(browser, here.address, document))
            else:
                alone.append(api_alone_s(here, document))

        # What is compiled, read and measured once is of neither.
        api_alone_s(here, _longer(0, cells=cells, time=time))
        for number in range(1, pairs + 1):
            notify((number - 1) / pairs)
            # Each comes first in every other pair.
            for on_page in (False, True) if number % 2 else (True, False):
                ask(2 * number + on_page, on_page=on_page)
    totals = [run.total_s for run in runs]
    ratios = [total / one for total, one in zip(totals, alone, strict=True)]
    redraws = [run.before_complete for run in runs]
    rates = [count / (run.total_s - run.paints_s[0]) for count, run in zip(redraws, runs, strict=True)]
    return {
        "cells": cells * cells, "pairs": len(runs), "API alone s": _spread(alone), "at the page s": _spread(totals),
        "ratio": _spread(ratios), "at most 1.3": statistics.median(ratios) <= MOST_RATIO,
        "redraws before": _spread(redraws), "at least 5": min(redraws) >= LEAST_REDRAWS,
        "redraws a second": _spread(rates), f"at least {REDRAWS:g}": statistics.median(rates) >= REDRAWS,
        "first picture ms": _ms([run.paints_s[0] for run in runs]),
        "shortest between redraws ms": _ms([min(_apart(run.paints_s), default=0.0) for run in runs]),
    }  # fmt: skip


def _open(notify: Tell, _pairs: int, quick: bool, minutes: float) -> list[dict[str, Any]]:  # noqa: FBT001
    slices = 90 if quick else 2160
    with served(slices=slices, standing=4 if quick else 20, fed_s=60 * minutes + 600) as here, devtools() as browser:
        rows = kept_open(
            here, browser, minutes=minutes, told=lambda now, _held: notify("open", min(now / minutes, 1.0))
        )
    return [row | {"less than 20 %": row["growth %"] < 100 * MOST_GROWTH} for row in rows]


def _overview(notify: Tell, pairs: int, quick: bool, _minutes: float) -> list[dict[str, Any]]:  # noqa: FBT001
    return _opened("overview", open_overview, _first_values, notify, pairs, quick=quick)


def _map(notify: Tell, pairs: int, quick: bool, _minutes: float) -> list[dict[str, Any]]:  # noqa: FBT001
    def open_explore(browser: Browser, address: str, _stations: int) -> FirstMap:
        return open_map(browser, address)

    return _opened("map", open_explore, _first_maps, notify, pairs, quick=quick)


def _opened(
    part: str,
    open_one: Callable[[Browser, str, int], Seen],
    row: Callable[[str, int, Sequence[Seen]], dict[str, Any]],
    notify: Tell,
    pairs: int,
    *,
    quick: bool,
) -> list[dict[str, Any]]:
    """Open a page of two networks, the sample's and one of many stations, on warm and on cold servers.

    Returns a row for each network and kind of server.
    """
    warm_count, servers, count = (2, 1, 250) if quick else (max(pairs, OVERVIEWS), SERVERS, STATIONS)
    rows = []
    with chromium() as browser, sample(quick=quick) as archive, tempfile.TemporaryDirectory() as folder:
        many = Path(folder) / "archive"
        ManyStations(many, count).create(1 if quick else 3)
        for at, (path, stations) in enumerate(((archive, len(hg.open(archive).stations)), (many, count))):
            cold, warm = list[Seen](), list[Seen]()
            for number in range(servers):
                with tempfile.TemporaryDirectory() as state, serving(path, Path(state)) as here:
                    cold.append(open_one(browser, here.address, stations))
                    for done in range(warm_count if number == 0 else 0):
                        notify(part, (at + done / warm_count) / 2)
                        warm.append(open_one(browser, here.address, stations))
            rows += [row(kind, stations, seen) for kind, seen in (("warm", warm), ("cold", cold))]
    notify(part, 1.0)
    return rows


def _first_maps(kind: str, stations: int, seen: Sequence[FirstMap]) -> dict[str, Any]:
    whole = [each.whole_s for each in seen]
    return {
        "which": f"{stations:,} stations, {kind} server", "openings": len(seen),
        "first picture s": _spread([each.first_s for each in seen]), "whole map s": _spread(whole),
        f"at most {MAP_S:g} s": statistics.median(whole) <= MAP_S,
    }  # fmt: skip


def _first_values(kind: str, stations: int, seen: Sequence[FirstValues]) -> dict[str, Any]:
    values = [each.values_s for each in seen]
    weight = max(each.decoded_bytes for each in seen)
    return {
        "which": f"{stations:,} stations, {kind} server", "openings": len(seen), "values s": _spread(values),
        f"at most {VALUES_S[kind]:g} s": statistics.median(values) <= VALUES_S[kind],
        "ground s": _spread([each.ground_s for each in seen]), "loaded KiB, uncompressed": weight / 1024,
        "at most 1.8 MB": weight <= MOST_WEIGHT,
    }  # fmt: skip


def _board(notify: Tell, _pairs: int, _quick: bool, minutes: float) -> list[dict[str, Any]]:  # noqa: FBT001
    # Two days at least, as one panel draws day by hour.
    with served(slices=2160, standing=4, fed_s=60 * minutes + 600) as here, devtools() as browser:
        rows = board_followed(here, browser, minutes=minutes, told=lambda now: notify("board", min(now / minutes, 1.0)))
    most = 100 * MOST_GROWTH
    return [row | {"less than 20 %": max(row["heap growth %"], row["process growth %"]) < most} for row in rows]


def _many(notify: Tell, pairs: int, quick: bool, _minutes: float) -> list[dict[str, Any]]:  # noqa: FBT001
    few, more, rounds = (250, 500, 1) if quick else (STATIONS, MORE_STATIONS, pairs)
    with chromium() as browser:
        seen = openings(
            browser, few, days=1 if quick else 3, rounds=rounds, names=tuple(USES),
            told=lambda share: notify("many", 0.8 * share),
        )  # fmt: skip
        larger = openings(
            browser, more, days=1, rounds=1, names=("stations",), told=lambda share: notify("many", 0.8 + 0.2 * share)
        )
    notify("many", 1.0)
    rows = [_usable(f"{name}, {few:,} stations", some) for name, some in seen.items()]
    for row in rows:
        row["kept"] = row["usable s"]["most"] <= USABLE_S
    last = _usable(f"stations, {more:,} stations", larger["stations"])
    bound = MOST_ELEMENTS * max(one.elements for one in seen["stations"])
    return [*rows, last | {"kept": last["elements"]["most"] <= bound}]


def _usable(name: str, some: Sequence[Opening]) -> dict[str, Any]:
    return {
        "page": name, "openings": len(some), "drawn s": _spread([one.drawn_s for one in some]),
        "usable s": _spread([one.usable_s for one in some]),
        "longest task afterwards ms": _spread([one.longest_later_ms for one in some]),
        "elements": _spread([one.elements for one in some]),
        "loaded KiB": _spread([one.loaded_bytes / 1024 for one in some]),
    }  # fmt: skip


def _apart(times: Sequence[float]) -> list[float]:
    return [later - earlier for earlier, later in zip(times, times[1:], strict=False)]


def _spread(values: Sequence[float]) -> dict[str, float]:
    return {"median": statistics.median(values), "least": min(values), "most": max(values)}


def _ms(seconds: Sequence[float]) -> dict[str, float]:
    return {name: round(1000 * value, 1) for name, value in _spread(seconds).items()}


PARTS: Mapping[str, Callable[[Tell, int, bool, float], list[dict[str, Any]]]] = {
    "first": _first,
    "sharpens": _sharpens,
    "open": _open,
    "overview": _overview,
    "map": _map,
    "board": _board,
    "many": _many,
}
CASES = (*PARTS, "all")
"""What can be asked for."""


def tables(measured: Mapping[str, Any]) -> list[tuple[str, tuple[str, ...], list[tuple[object, ...]]]]:
    """Return what `measure` returned as tables: title, columns, rows; each figure is a row."""
    shown = []
    for name, part in measured["parts"].items():
        names = list(dict.fromkeys(figure for row in part["rows"] for figure in row))
        columns = (names[0], *(str(row[names[0]]) for row in part["rows"]))
        rows = [(figure, *(_short(row.get(figure, "")) for row in part["rows"])) for figure in names[1:]]
        shown.append((TITLES[name], columns, rows))
    return shown


def _short(value: object) -> object:
    if isinstance(value, dict):
        return f"{value['median']:.3g} ({value['least']:.3g} to {value['most']:.3g})"
    return f"{value:.3g}" if isinstance(value, float) else value
