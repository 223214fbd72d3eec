"""Pictures of every page for people to look at: ``python -m tests.browser.review OUT [NETWORK ...]``.

Each page is opened on three networks, the sample's and two of strangers, in windows of three sizes, light and dark;
files are called `NETWORK_PAGE_WIDTH_SCHEME.png`.
"""

import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import httpx
from playwright.sync_api import Browser, Page, sync_playwright

from hypergrid.core.settings import Settings
from tests.browser.screenshots import LONGEST_MS, take
from tests.chromium import OPTIONS, chromium_path
from tests.end_to_end.foreign.networks import NETWORKS
from tests.end_to_end.foreign.seeds import seed_of
from tests.end_to_end.foreign.visit import Visit, served
from tools.docs.blocks import make_demo

SIZES: Final = ((1280, 800), (1920, 1080), (390, 844))
SCHEMES: Final = ("light", "dark")
CHOSEN: Final = ("sample", "mountains", "country")
TABLE: Final = (
    "station,time,temp,rh\nN1,2024-03-12 00:00,39.9,60\nN1,2024-03-12 01:00,40.1,\nN2,2024-03-12 00:00,x,61\n"
)
"""A file that has to be asked about: neither zone nor units, and a number that is none."""


def _open_question(page: Page) -> None:
    if page.locator("#open-sheet").is_visible():
        page.locator("#open-sheet").click()
    page.locator("#how").click()


def _choose_file(page: Page) -> None:
    with page.expect_file_chooser() as choosing:
        page.locator("#import-choose").click()
    choosing.value.set_files([{"name": "data.csv", "mimeType": "text/csv", "buffer": TABLE.encode()}])
    page.locator("#import-todo").wait_for(timeout=LONGEST_MS)


PAGES: Final[dict[str, tuple[str, Callable[[Page], None] | None]]] = {
    "overview": ("overview", None),
    "explore": ("explore", None),
    "how": ("explore", _open_question),
    "series": ("explore", lambda page: page.locator("#picture").click()),
    "stations": ("stations", None),
    "board": ("boards?board=valley", None),
    "import": ("import", _choose_file),
    "standing": ("standing", None),
    "alert": ("standing", lambda page: page.locator("#new-standing").click()),
    "engine": ("engine", None),
}
"""The address of each page, and what is pressed there."""


def _make(network: str, folder: Path) -> Path:
    """Make the archive of a network in an empty folder; return it."""
    if network == "sample":
        return make_demo(folder)
    return Visit(NETWORKS[network](seed_of(0)), folder).ingested.store.path


@contextmanager
def _served(archive: Path) -> Iterator[str]:
    """Serve an archive with a board, and a standing query whose alerts are those of its last values."""
    with served(archive, Settings(imports=True)) as address:
        with httpx.Client(base_url=f"{address}/api/v1/", timeout=120) as client:
            query = client.get("suggestion").raise_for_status().json()["query"]
            watched = {"variable": query["variable"], "steps": []}
            low = {"kind": "threshold", "above": -100}
            client.post("standing", json={"title": "Above everything", "query": watched, "condition": low})
            client.post("standing", json={"title": "Silent stations", "query": watched, "condition": {"kind": "dead"}})
        yield address


def _pin(page: Page, address: str) -> None:
    """Make a board of a map and of a station's readings, as a user does."""
    page.goto(f"{address}#explore?finer=no")
    page.wait_for_selector("body[data-ready=yes]", timeout=LONGEST_MS)
    page.get_by_text("100 % computed").first.wait_for(timeout=LONGEST_MS)
    page.get_by_role("button", name="Pin …").click()
    dialog = page.get_by_role("dialog")
    dialog.get_by_label("Title of the new board").fill("Valley")
    dialog.get_by_label("Title of the panel").fill("Temperature")
    dialog.get_by_role("button", name="Pin").click()
    dialog.wait_for(state="hidden")
    page.goto(f"{address}#stations")
    page.locator("#stations-list tbody button").first.click()
    for kind, title in (("number", "Now"), ("readings", "Readings")):
        page.get_by_role("button", name="Pin …").click()
        shown = dialog.get_by_label("Show it as")
        if kind in [option.get_attribute("value") for option in shown.locator("option").all()]:
            shown.select_option(kind)
        dialog.get_by_label("Title of the panel").fill(title)
        dialog.get_by_role("button", name="Pin").click()
        dialog.wait_for(state="hidden")


def _look(browser: Browser, address: str, network: str, out: Path) -> None:
    first = browser.new_page(viewport={"width": 1280, "height": 800})
    _pin(first, address)
    first.close()
    for width, height in SIZES:
        for scheme in SCHEMES:
            phone = {"has_touch": True, "is_mobile": True} if width < 600 else {}
            context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme, **phone)
            for name, (path, press) in PAGES.items():
                page = context.new_page()
                take(page, f"{address}#{path}", out / f"{network}_{name}_{width}_{scheme}.png", press)
                page.close()
            context.close()


def main(out: Path, networks: Sequence[str]) -> None:
    """Take them all."""
    out.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium_path(), args=list(OPTIONS))
        for network in networks:
            with tempfile.TemporaryDirectory() as folder, _served(_make(network, Path(folder))) as address:
                _look(browser, address, network, out)
        browser.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:] or CHOSEN)
