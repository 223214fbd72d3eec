"""A board of ten panels left open while readings come: what its tab holds, and how far its panels are behind."""

import statistics
import time
from collections.abc import Callable
from typing import Any, Final

from tests.bench.page_devtools import Devtools, Tab
from tests.bench.page_open import FIRST_MINUTE, look_at
from tests.bench.web_load import Served

MOST_BEHIND_S: Final = 2.0
"""From the commit of a slice until a panel shows it, at most [s]."""
NAME: Final = "wall"
_STATISTICS: Final = "[...document.querySelectorAll('.panel')].map((one) => one.view.statistics())"
_FORGET: Final = (
    "document.querySelectorAll('.panel').forEach((one) => void Object.assign(one.view, { late: 0, most_behind_ms: 0 }))"
)
_FAILING: Final = "[...document.querySelectorAll('.panel-state.bad:not([hidden])')].map((one) => one.textContent)"


def _map(variable: str, span: str, time_cells: str) -> dict[str, Any]:
    """Return a panel of a kriged map of the newest time cells."""
    grid = {"lon": "7:10:37", "lat": "45:52:01", "step": "1arcsec", "shape": [23, 23]}
    variogram = {"model": "exponential", "psill": 1.2, "range_m": 250.0, "nugget": 0.05}
    steps = [
        {"op": "aggregate", "function": "mean", "time": time_cells, "params": {"min_coverage": 0}},
        {
            "op": "interpolate", "method": "ordinary_kriging", "grid": grid,
            "params": {"neighbours": 12, "variogram": variogram},
        },
    ]  # fmt: skip
    return _picture("map", span, {"variable": variable, "steps": steps})


def _picture(view: str, span: str, query: dict[str, Any]) -> dict[str, Any]:
    return {"kind": "picture", "last": span, "view": {"view": view}, "query": query}


def _means(variable: str, time_cells: str) -> dict[str, Any]:
    return {
        "variable": variable, "select": {"station": "1"},
        "steps": [{"op": "aggregate", "function": "mean", "time": time_cells, "params": {"min_coverage": 0}}],
    }  # fmt: skip


PANELS: Final[tuple[dict[str, Any], ...]] = (
    _map("air_temperature", "1h", "10min"),
    _map("relative_humidity", "1h", "10min"),
    _map("wind_speed", "1h", "10min"),
    _picture("lines", "6h", _means("air_temperature", "10min")),
    _picture("heat", "3day", _means("air_temperature", "1h")),
    _picture("histogram", "1day", _means("wind_speed", "10min")),
    {"kind": "series", "last": "6h", "station": "2", "variable": "relative_humidity"},
    {"kind": "series", "last": "6h", "station": "3", "variable": "wind_speed"},
    {"kind": "number", "last": "1h", "station": "1", "variable": "air_temperature", "reduce": "latest"},
    {"kind": "number", "last": "6h", "query": _means("wind_speed", "10min"), "reduce": "max"},
)
"""Each kind of panel; a slice of the network changes all three variables, so that each panel asks again."""


def board_followed(
    here: Served, browser: Devtools, *, minutes: float, told: Callable[[float], None]
) -> list[dict[str, Any]]:
    """Keep a board open in a tab, and return what it held and how far its panels were behind.

    Parameters
    ----------
    here
        A server to which slices come.
    browser
        Where the tab is opened.
    minutes
        How long it stays open; the end is compared with minute 3, or with the first quarter where that is sooner.
    told
        Called each step with the minute.
    """
    board = {"name": NAME, "title": "Wall", "panels": list(PANELS)}
    here.client.post("/api/v1/boards", json=board).raise_for_status()
    tab = Tab(browser, f"{here.address}#boards?board={NAME}&wall=1")
    tab.wait_for(f"{_STATISTICS}.length === {len(PANELS)} && {_STATISTICS}.every((one) => one.updates > 0)")
    begun, looks = time.monotonic(), []
    step_s = 60.0 * min(1.0, minutes / 10)
    first = max(round(min(FIRST_MINUTE, minutes / 4) * 60 / step_s), 1)
    while len(looks) * step_s < minutes * 60:
        time.sleep(max(begun + (len(looks) + 1) * step_s - time.monotonic(), 0.0))
        looks.append((look_at(tab), browser.renderers_bytes()))
        if len(looks) == first:
            # As with the memory, what counts comes after the start, when everything is loaded at once.
            tab.evaluate(_FORGET)
        told((time.monotonic() - begun) / 60)
    panels, failing = tab.evaluate(_STATISTICS), tab.evaluate(_FAILING)
    (before, process_before), (after, process_after) = looks[first - 1], looks[-1]
    behind = [one["most_behind_ms"] / 1000 for one in panels]
    row = {
        "board": f"{len(PANELS)} panels", "minutes": f"{first * step_s / 60:g} to {minutes:g}",
        "updates of a panel": _spread([one["updates"] for one in panels]), "most behind s": _spread(behind),
        "at most 2 s behind": max(behind) <= MOST_BEHIND_S, "later updates": sum(one["late"] for one in panels),
        "heap MiB before": before.heap_bytes / 2**20, "heap MiB after": after.heap_bytes / 2**20,
        "heap growth %": 100 * (after.heap_bytes / before.heap_bytes - 1),
        "process MiB before": process_before / 2**20, "process MiB after": process_after / 2**20,
        "process growth %": 100 * (process_after / process_before - 1), "nodes before": before.nodes,
        "nodes after": after.nodes, "listeners before": before.listeners, "listeners after": after.listeners,
        "failing": failing, "complaints": browser.complaints,
    }  # fmt: skip
    return [row]


def _spread(values: list[float]) -> dict[str, float]:
    return {"median": statistics.median(values), "least": min(values), "most": max(values)}
