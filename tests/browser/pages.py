"""What the tests of the pages share: questions, waiting, and what is drawn."""

import hashlib
import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
from playwright.sync_api import Page, expect

ROOT = Path(__file__).parents[2]
QUERIES = ROOT / "station_data" / "queries"

SMALL = {
    "variable": "air_temperature",
    "steps": [
        {"op": "aggregate", "function": "mean", "time": "6h"},
        {
            "op": "interpolate",
            "method": "ordinary_kriging",
            "grid": {"lon": "7:10:37", "lat": "45:52:01", "step": "1arcsec", "shape": [23, 23]},
            "params": {"variogram": {"model": "exponential", "psill": 1.2, "range_m": 250.0, "nugget": 0.05}},
        },
    ],
}

CANVASES = """(id) => {
  const found = [];
  const visit = (node) => {
    if (node instanceof HTMLCanvasElement && node.width) found.push(node.toDataURL());
    for (const inner of node.children ?? []) visit(inner);
    if (node.shadowRoot) visit(node.shadowRoot);
  };
  visit(document.getElementById(id));
  return found;
}"""

MODEL = """([place, name, column]) => {
  const value = document.getElementById(place).figure.find(name).data[column];
  const cells = (one) => Array.from(one, (value) => Number.isFinite(value) ? value : null);
  const plain = (one) => one.shape ? { shape: one.shape, values: cells(one) } : one;
  return Array.from(value, plain);
}"""


def finer(cells: int) -> dict[str, Any]:
    """Query 5 on a grid of `cells` by `cells` over the same square."""
    document = json.loads((QUERIES / "q5_fine.json").read_text("utf-8"))
    document["steps"][2]["grid"] |= {"step": f"{23 / cells:.6f}arcsec", "shape": [cells, cells]}
    return dict(document)


def saved(name: str) -> dict[str, Any]:
    """Return a saved query of the sample network."""
    return dict(json.loads((QUERIES / f"{name}.json").read_text("utf-8")))


def unasked(address: str) -> str:
    """Return the address of Explore with a question that has not been asked."""
    return f"{address}#explore?{urlencode({'q': json.dumps(saved('mean_map'))})}"


def unfold(page: Page, part: str) -> None:
    """Open a part of Explore that is folded away: "panel", how it is computed, or a list of controls."""
    if part == "panel":
        if page.locator("#how-panel").is_hidden():
            page.locator("#how").click()
    elif page.locator(f"#{part}").get_attribute("open") is None:
        page.locator(f"#{part}-button").click()


def write(page: Page, document: dict[str, Any]) -> None:
    """Write a query into the text."""
    unfold(page, "panel")
    page.get_by_label("Query (JSON)").fill(json.dumps(document))


def written(page: Page) -> dict[str, Any]:
    """Return the query that stands in the text."""
    return dict(json.loads(page.get_by_label("Query (JSON)").input_value()))


def run(page: Page, document: dict[str, Any] | None = None) -> None:
    """Ask, and wait for the answer."""
    if document is not None:
        write(page, document)
    page.get_by_role("button", name="Run", exact=True).click()
    wait_for(page, "Done")


def wait_for(page: Page, word: str) -> None:
    """Wait until the state of the question is told with a word."""
    expect(page.locator("#status")).to_contain_text(word, timeout=90_000)


def box_of(page: Page, selector: str) -> dict[str, float]:
    """Return where the first canvas below an element lies, once it stays there: a redraw makes it anew."""
    canvas = page.locator(f"{selector} canvas").first
    last: dict[str, float] = {}

    def stays() -> bool:
        nonlocal last
        before, last = last, {**(canvas.bounding_box() or {})}
        return bool(last) and last == before

    canvas.scroll_into_view_if_needed()
    eventually(page, stays)
    return last


def eventually(page: Page, holds: Callable[[], bool], within_s: float = 60.0) -> None:
    """Wait until something holds."""
    for _ in range(round(within_s * 10)):
        if holds():
            return
        page.wait_for_timeout(100)
    assert holds()


def digest(page: Page, place: str = "picture") -> str:
    """Return what tells one picture from another."""
    return hashlib.sha256("".join(page.evaluate(CANVASES, place)).encode()).hexdigest()


def data(page: Page, name: str, column: str, place: str = "picture") -> Any:  # noqa: ANN401 - what a source holds
    """Return a column of a source of a figure; images as shape and values, None where they are missing."""
    # A figure whose place has changed its size is drawn again: it is waited for and read in one turn of the page.
    drawn = "document.getElementById(place).figure?.find(name)"
    read = f"([place, name, column]) => {drawn} && [({MODEL})([place, name, column])]"
    return page.wait_for_function(read, arg=[place, name, column]).json_value()[0]


def image(page: Page, place: str = "picture") -> dict[str, Any]:
    """Return the cells of a map that has been drawn: shape, and values by row."""
    # The end of a query may be told before its map is drawn.
    drawn = "document.getElementById(place).figure?.find('surface')?.data.image[0]?.some(Number.isFinite)"
    page.wait_for_function(f"(place) => {drawn}", arg=place)
    return dict(data(page, "surface", "image", place)[0])


def press_until(page: Page, wanted: str, key: str = "Tab") -> None:
    """Press a key until the element with an id has the focus."""
    for _ in range(150):
        page.keyboard.press(key)
        if page.evaluate("() => document.activeElement.id") == wanted:
            return
    pytest.fail(f"{key} never reached {wanted}")


def choose_by_arrows(page: Page, wanted: str, value: str) -> None:
    """Choose from the list that has the focus by arrows, as it forgets letters after a second and machines are slow."""
    page.keyboard.press("Home")
    for _ in range(150):
        if page.locator(f"#{wanted}").input_value() == value:
            return
        page.keyboard.press("ArrowDown")
    pytest.fail(f"no arrow made {wanted} {value}")


def show(page: Page, name: str) -> None:
    """Go to a page by its link, and wait until it is there."""
    page.get_by_role("navigation", name="Pages").get_by_role("link", name=name).click()
    expect(page.locator(f"#page-{name.lower()}")).to_be_visible()


def axe() -> str | None:
    """Return the source of axe-core where node has it (`NODE_PATH`), else None."""
    node = shutil.which("node")
    if node is None:
        return None
    found = subprocess.run([node, "-p", "require.resolve('axe-core')"], capture_output=True, text=True, check=False)
    return Path(found.stdout.strip()).read_text("utf-8") if found.returncode == 0 else None


def serious(page: Page, source: str) -> list[tuple[str, str, list[Any]]]:
    """Return what axe-core finds that is more than minor."""
    page.evaluate(source)
    # Colours of buttons change over some hundredths of a second, as after a change of theme; a page that is not drawn
    # never ends it.
    found = page.evaluate(
        """() => Promise.race([
            Promise.allSettled(document.getAnimations().map((one) => one.finished)),
            new Promise((resolve) => setTimeout(resolve, 5000)),
        ]).then(() => axe.run())"""
    )
    return [
        (one["id"], one["help"], [node["target"] for node in one["nodes"]][:4])
        for one in found["violations"]
        if one["impact"] in ("serious", "critical", "moderate")
    ]
