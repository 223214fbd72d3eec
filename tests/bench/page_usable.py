"""Pages of a network of thousands of stations: from opening one until it can be used."""

import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from playwright.sync_api import Browser, Page

from tests.bench.many_stations import ManyStations
from tests.bench.page_tab import WATCH as PAINTS
from tests.bench.web_load import Served, serving, settle

AFTERWARDS_MS: Final = 2000
"""How long the main thread is watched once a page answered."""
LONGEST_TASK_MS: Final = 100
"""How long a task may keep the page from answering; until the end of a longer one it is not usable."""
_PATIENCE_MS: Final = 60_000

WATCH: Final = """(() => {
  const tasks = [];
  window.watched = tasks;
  new PerformanceObserver((list) => {
    for (const { startTime, duration } of list.getEntries()) tasks.push([startTime, duration]);
  }).observe({ type: "longtask", buffered: true });
})();"""
"""Tasks of the main thread that took 50 ms or more: beginning and length [ms since the page was opened]."""
AT: Final = """() => new Promise((resolve) => requestAnimationFrame(() => {
  const { port1, port2 } = new MessageChannel();
  port1.onmessage = () => resolve(performance.now());
  port2.postMessage(null);
}))"""
"""When the frame is on the screen that shows what the page is now [ms since it was opened]."""
VALUES: Final = (
    "document.getElementById('overview-map')?.dataset.drawn"
    " && document.getElementById('overview-map').figure.find('stations').data.lon.length"
)
"""JavaScript: how many stations the overview shows with their values."""
WEIGHT: Final = """() => [...performance.getEntriesByType("navigation"), ...performance.getEntriesByType("resource")]
  .reduce((sum, one) => sum + one.decodedBodySize, 0)"""
LOADED: Final = """() => [...performance.getEntriesByType("navigation"), ...performance.getEntriesByType("resource")]
  .reduce((sum, one) => sum + one.transferSize, 0)"""


@dataclass(frozen=True)
class Use:
    """How a page is used first."""

    drawn: str
    """JavaScript: whether its main content is there with its values, of `stations` stations and `standing` queries."""
    operate: Callable[[Page, int], None]
    """Operates its main control; is given the number of stations."""
    answered: str
    """JavaScript: whether the page shows what the control does."""
    last: str = "true"
    """JavaScript: whether what comes last is there, too."""


def _find(page: Page, stations: int) -> None:
    page.locator("#stations-list input[type=search]").fill(f"{stations:05d}")


def _explain(page: Page, _stations: int) -> None:
    page.locator("#how").click()
    page.locator("#explain").click()


def _say_when(page: Page, _stations: int) -> None:
    page.locator("#new-standing").click()
    page.locator("#condition").select_option("below")


def _choose_plan(page: Page, _stations: int) -> None:
    page.locator("#plan-summary").click()
    page.locator("#plan-graph svg").wait_for()
    page.evaluate("() => document.querySelector('#plan-graph svg').classList.add('before')")
    page.locator("#plan-of").select_option(index=1)


USES: Final[Mapping[str, Use]] = {
    # The stations on the first map, and the suggested query; Explain, where it is computed how, writes its plan.
    "explore": Use(
        "document.getElementById('picture')?.figure?.find('stations')?.data.lon.length === stations"
        " && document.getElementById('document').value.includes('steps')",
        _explain,
        "document.getElementById('plan').textContent.includes('cells')",
    ),
    # All on the map, the first 200 in the table; typing an id leaves the row of the station.
    "stations": Use(
        "document.getElementById('stations-map')?.figure?.find('stations').data.lon.length === stations"
        " && document.querySelectorAll('#stations-list tbody tr').length === Math.min(stations, 200)",
        _find,
        "document.querySelectorAll('#stations-list tbody tr').length === 1"
        " && document.querySelector('#stations-list tbody tr').textContent.includes(`Gauge ${stations}`)",
        "document.querySelector('#quality-list tbody tr')",
    ),
    # The standing queries with their alerts and their freshness; the form asks for the number of a condition.
    "standing": Use(
        "document.querySelectorAll('#standing-list tbody tr').length === standing"
        " && document.querySelector('#freshness tbody tr') && document.querySelector('#alerts tbody tr')",
        _say_when,
        "document.getElementById('condition-level').offsetParent",
    ),
    # The summary, and numbers and snapshots below it; choosing another plan draws it.
    "engine": Use(
        "document.querySelector('#engine-summary li') && document.querySelector('#tiles dd')"
        " && document.querySelector('#snapshots tbody tr')",
        _choose_plan,
        "document.querySelector('#plan-graph svg:not(.before)')",
    ),
    # The discs with their values; the arrow keys name a station.
    "overview": Use(
        f"({VALUES}) === stations",
        lambda page, _stations: page.locator("#overview-stage").press("ArrowRight"),
        "document.getElementById('overview-card').textContent.includes('Gauge')",
        "document.querySelector('#overview-below tbody tr') && document.getElementById('overview-map').dataset.ground",
    ),
}


@dataclass(frozen=True)
class Opening:
    """What came of opening a page."""

    drawn_s: float
    """When its main content was on the screen, after navigation began [s]."""
    usable_s: float
    """When its main control had answered, and no long task was left [s]."""
    longest_later_ms: float
    """The longest task after the answer [ms]; 0: none took 50 ms."""
    elements: int
    loaded_bytes: int


def open_page(browser: Browser, here: Served, name: str, *, stations: int, standing: int) -> Opening:
    """Open a page in a browser that has nothing of it, use it, and return what was seen.

    Parameters
    ----------
    browser, here
        Where, and whose page.
    name
        One of `USES`.
    stations, standing
        How many there are of each.
    """
    use, counts = USES[name], f"const [stations, standing] = [{stations}, {standing}];"
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    try:
        page = context.new_page()
        page.add_init_script(WATCH)
        page.goto(f"{here.address}#{name}", wait_until="commit")
        page.wait_for_function(f"() => {{ {counts} return {use.drawn}; }}", timeout=_PATIENCE_MS)
        drawn_ms = page.evaluate(AT)
        use.operate(page, stations)
        page.wait_for_function(f"() => {{ {counts} return {use.answered}; }}", timeout=_PATIENCE_MS)
        answered_ms = page.evaluate(AT)
        page.wait_for_timeout(AFTERWARDS_MS)
        tasks = [(start, length) for start, length in page.evaluate("() => watched") if start + length > answered_ms]
        loaded = page.evaluate(LOADED)
        # All that there is to see, which the control may have made less.
        page.reload(wait_until="commit")
        page.wait_for_function(f"() => {{ {counts} return {use.drawn} && {use.last}; }}", timeout=_PATIENCE_MS)
        elements = page.evaluate("() => document.querySelectorAll('*').length")
    finally:
        context.close()
    ends = [start + length for start, length in tasks if length > LONGEST_TASK_MS]
    longest_ms = max((length for _, length in tasks), default=0.0)
    return Opening(drawn_ms / 1000, max([answered_ms, *ends]) / 1000, longest_ms, elements, loaded)


@dataclass(frozen=True)
class FirstValues:
    """When the overview showed what."""

    values_s: float
    """When the stations were on the screen in the colours of their values, after navigation began [s]."""
    ground_s: float
    """When all else had come: health, names, relief and coast [s]."""
    decoded_bytes: int
    """Everything that was loaded by then, uncompressed."""


def open_overview(browser: Browser, address: str, stations: int) -> FirstValues:
    """Open the pages as their address stands, in a browser that has nothing of them."""
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    try:
        page = context.new_page()
        page.goto(address, wait_until="commit")
        page.wait_for_function(f"() => ({VALUES}) === {stations}", timeout=_PATIENCE_MS)
        values_ms = page.evaluate(AT)
        rest = "document.getElementById('overview-map').dataset.ground && document.querySelector('#overview-below tr')"
        page.wait_for_function(f"() => {rest}", timeout=_PATIENCE_MS)
        ground_ms = page.evaluate(AT)
        return FirstValues(values_ms / 1000, ground_ms / 1000, page.evaluate(WEIGHT))
    finally:
        context.close()


@dataclass(frozen=True)
class FirstMap:
    """When Explore showed the map that it begins with."""

    first_s: float
    """When a picture with estimated cells, or the whole map at once, was on the screen, after navigation began [s]."""
    whole_s: float
    """When all of its cells were computed ones [s]."""


def open_map(browser: Browser, address: str) -> FirstMap:
    """Open Explore, which asks the question that the archive suggests, in a browser that has nothing of it."""
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    try:
        page = context.new_page()
        page.add_init_script(PAINTS)
        # No press is waited for: the page asks by itself, and counts from its opening.
        page.add_init_script("watched.pressed = 0")
        page.goto(f"{address}#explore", wait_until="commit")
        page.wait_for_function("() => watched.paints.some((one) => one.complete)", timeout=_PATIENCE_MS)
        paints = page.evaluate("() => watched.paints")
        whole = next(one["at"] for one in paints if one["complete"])
        return FirstMap(paints[0]["at"] / 1000, whole / 1000)
    finally:
        context.close()


def standing_queries() -> list[dict[str, Any]]:
    """Return standing queries of all stations: two alerts and a series of each of three variables."""
    steps = [{"op": "aggregate", "function": "mean", "time": "10min"}]
    made = []
    # At the hours of the slices that come some of the lowest stations are above these.
    levels = {"air_temperature": 7.5, "relative_humidity": 81.0, "wind_speed": 2.5}
    for number, (variable, above) in enumerate(levels.items()):
        kinds: dict[str, dict[str, Any]] = {
            "high": {"class": "alert", "condition": {"kind": "threshold", "above": above}},
            "silent": {"class": "alert", "condition": {"kind": "dead"}},
            "mean": {"class": "user"},
        }
        for kind, more in kinds.items():
            query = {"variable": variable, "steps": [] if kind == "silent" else steps}
            made.append({"name": f"{kind}-{number}", "validity": "10min", "weight": 3.0, "query": query, **more})
    return made


def openings(
    browser: Browser, stations: int, *, days: int, rounds: int, names: tuple[str, ...], told: Callable[[float], None]
) -> dict[str, list[Opening]]:
    """Open pages again and again, and return what was seen, by page.

    Each round has a server of its own, and before each opening a slice is committed: no answer is kept from before.

    Parameters
    ----------
    browser
        Where.
    stations, days
        The size of the archive.
    rounds
        How often each page is opened; another one comes first in each round.
    names
        Which pages.
    told
        Told the share that is done.
    """
    seen: dict[str, list[Opening]] = {name: [] for name in names}
    documents = standing_queries() if "standing" in names else []
    with tempfile.TemporaryDirectory() as folder:
        network = ManyStations(Path(folder) / "archive", stations)
        network.create(days)
        for number in range(rounds):
            # Standing queries stay with the archive.
            with serving(Path(folder) / "archive", Path(folder) / f"state-{number}") as here:
                for document in documents if number == 0 else ():
                    here.client.post("/api/v1/standing", json=document).raise_for_status()
                first = number % len(names)
                for place, name in enumerate((*names[first:], *names[:first])):
                    told((number + place / len(names)) / rounds)
                    network.add()
                    # What stands on the slice has been computed; the pages' answers have not.
                    time.sleep(1.0)
                    settle(here)
                    seen[name].append(open_page(browser, here, name, stations=stations, standing=len(documents)))
    return seen
