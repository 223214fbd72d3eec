"""Pages that are left open while readings come: what their tabs hold, minute by minute."""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlencode

from tests.bench.page_devtools import Devtools, Tab
from tests.bench.web_load import Served

ASKED_EVERY_S: Final = 10.0
"""How often the question of Explore is asked again, of the newest snapshot."""
FIRST_MINUTE: Final = 3.0
"""When the memory that may grow is looked at first: by then each page has drawn all that it draws."""
MOST_GROWTH: Final = 0.2

_QUESTION: Final[dict[str, Any]] = {
    "variable": "air_temperature",
    "steps": [
        {"op": "aggregate", "function": "mean", "time": "1h"},
        {
            "op": "interpolate", "method": "ordinary_kriging",
            "grid": {"lon": "7:10:37", "lat": "45:52:01", "step": "1arcsec", "shape": [23, 23]},
            "params": {
                "neighbours": 12, "variogram": {"model": "exponential", "psill": 1.2, "range_m": 250.0, "nugget": 0.05},
            },
        },
    ],
    "clip": {"time": ["2007-10-01T00:00Z", "2007-10-03T00:00Z"]},
}  # fmt: skip
_ALERTS: Final[dict[str, Any]] = {
    "name": "jumps", "class": "alert", "weight": 10.0, "validity": "4min",
    "query": {"variable": "air_temperature", "steps": [{"op": "aggregate", "function": "mean", "time": "2min"}]},
    "condition": {"kind": "rate", "above": 5.0},
}  # fmt: skip
"""Alerts that come and go all the time: the noise of each station jumps so far every few slices."""
TABS: Final[dict[str, str]] = {
    "overview": "overview?variable=air_temperature",
    "explore": f"explore?{urlencode({'q': json.dumps(_QUESTION), 'pick': '10,10'})}",
    "stations": "stations?station=1&variable=air_temperature&days=1",
    "standing": "standing",
    "engine": "engine",
}
"""The pages, and what each of them shows."""
SHOWN: Final[dict[str, str]] = {
    "overview": "document.getElementById('overview-health').textContent",
    "explore": "document.getElementById('status').textContent",
    "stations": "document.getElementById('stations-summary').textContent",
    "standing": "document.querySelectorAll('#alerts tbody tr').length",
    "engine": "document.querySelector('#snapshots caption').textContent",
}
"""What tells that a page went with the readings, as it stands at the end."""


@dataclass(frozen=True)
class Look:
    """What a tab held after its garbage was collected."""

    heap_bytes: float
    """JavaScript's objects, the buffers of its arrays, and those that the browser holds for it."""
    nodes: int
    listeners: int


def look_at(tab: Tab) -> Look:
    """Collect a tab's garbage, and return what is left."""
    for _ in range(2):
        tab.send("HeapProfiler.collectGarbage")
    heap, counted = tab.send("Runtime.getHeapUsage"), tab.send("Memory.getDOMCounters")
    held = sum(heap.get(name, 0) for name in ("usedSize", "embedderHeapUsedSize", "backingStorageSize"))
    return Look(held, counted["nodes"], counted["jsEventListeners"])


def kept_open(
    here: Served, browser: Devtools, *, minutes: float, told: Callable[[float, dict[str, Any]], None]
) -> list[dict[str, Any]]:
    """Keep all pages open, each in a tab, and return what each held at first and at the end.

    Parameters
    ----------
    here
        A server to which slices come.
    browser
        Where the tabs are opened.
    minutes
        How long they stay open; the end is compared with minute 3, or with the first quarter where that is sooner.
    told
        Called each minute with the minute and what all tabs hold.
    """
    here.client.post("/api/v1/standing", json=_ALERTS).raise_for_status()
    tabs = {name: Tab(browser, f"{here.address}#{target}") for name, target in TABS.items()}
    for tab in tabs.values():
        tab.wait_for("document.body?.dataset.ready === 'yes'")
    # All that is folded is drawn as it moves.
    tabs["engine"].evaluate("document.querySelectorAll('details.block').forEach((block) => { block.open = true; })")
    begun, looks = time.monotonic(), []
    step_s = 60.0 * min(1.0, minutes / 10)
    while len(looks) * step_s < minutes * 60:
        _ask_until(tabs["explore"], begun + (len(looks) + 1) * step_s)
        held = {name: look_at(tab) for name, tab in tabs.items()}
        looks.append((held, browser.renderers_bytes()))
        told((time.monotonic() - begun) / 60, _row(looks[-1]))
    shown = "; ".join(f"{name}: {tabs[name].evaluate(expression)}" for name, expression in SHOWN.items())
    first = max(round(min(FIRST_MINUTE, minutes / 4) * 60 / step_s), 1)
    (before, renderers_before), (after, renderers_after) = looks[first - 1], looks[-1]
    rows = [
        {
            "tab": name, "minutes": f"{first * step_s / 60:g} to {minutes:g}",
            "heap MiB before": before[name].heap_bytes / 2**20, "heap MiB after": after[name].heap_bytes / 2**20,
            "growth %": 100 * (after[name].heap_bytes / before[name].heap_bytes - 1),
            "nodes before": before[name].nodes, "nodes after": after[name].nodes,
            "listeners before": before[name].listeners, "listeners after": after[name].listeners,
        }
        for name in tabs
    ]  # fmt: skip
    rows.append(
        {
            "tab": "processes of all tabs", "minutes": rows[0]["minutes"], "heap MiB before": renderers_before / 2**20,
            "heap MiB after": renderers_after / 2**20, "growth %": 100 * (renderers_after / renderers_before - 1),
            "complaints": browser.complaints, "shown": shown,
        }
    )  # fmt: skip
    return rows


def _ask_until(tab: Tab, ends: float) -> None:
    """Ask the question again and again until a time."""
    while (left_s := ends - time.monotonic()) > 0:
        tab.wait_for("!document.getElementById('run').disabled")
        tab.evaluate("document.getElementById('run').click()")
        time.sleep(min(ASKED_EVERY_S, left_s))


def _row(look: tuple[dict[str, Look], int]) -> dict[str, Any]:
    held, renderers = look
    shown = {name: [round(one.heap_bytes / 2**20, 2), one.nodes, one.listeners] for name, one in held.items()}
    return shown | {"processes MiB": round(renderers / 2**20, 1)}
