"""Takes the README's screenshots: ``python -m tests.browser.screenshots [OUT]``.

Which pages are taken follows from the README: it shows `station_data/pictures/screenshot_NAME.png`, and NAME is that of
a page. The pages are those of a server of nine days of the sample network; a tenth is ingested while it runs, so that
there are alerts.
"""

import re
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

from playwright.sync_api import Page, sync_playwright

import hypergrid as hg
from hypergrid.core.times import DAY_NS
from ingest.job import ingest
from queries.jobs.runner import Runner
from queries.snapshots.catalogue import Catalogue
from queries.standing.service import StandingQueries
from queries.web.app import Services, create_app
from station_data.generate import generate
from tests.browser.pages import QUERIES, ROOT
from tests.chromium import OPTIONS, SHELL, chromium_path
from tests.ingest.brokers import wait_until
from tests.serving import serving
from tools.docs.blocks import NOW_NS, make_demo
from viz.site import site

WIDTH, HEIGHT = 1280, 800
QUIET_MS: Final = 4000
"""How long a page may settle after it is ready: answers arrive and pictures sharpen."""
LONGEST_MS: Final = 120_000
MEANS: Final = [{"op": "aggregate", "function": "mean", "time": "10min"}]
WATCHED: Final = (
    {
        "title": "Frost at the stations",
        "query": {"variable": "air_temperature", "steps": MEANS},
        "condition": {"kind": "threshold", "below": "-4 degC", "clear": "-3.5 degC"},
    },
    {
        "title": "Strong wind",
        "query": {"variable": "wind_speed", "steps": MEANS},
        "condition": {"kind": "threshold", "above": "3 m/s", "clear": "2.5 m/s"},
    },
)


def main(out: Path) -> int:
    """Open each page and write its picture."""
    names = re.findall(r"screenshot_(\w+)\.png", (ROOT / "README.md").read_text(encoding="utf-8"))
    path = chromium_path()
    if path is None:
        print(f"screenshots need Chromium: install the package {SHELL}", file=sys.stderr)
        return 1
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as playwright:
        archive = hg.open(make_demo(Path(folder)))
        with StandingQueries(archive, clock=time.time_ns, folder=Path(folder)) as standing:
            for definition in WATCHED:
                standing.add(definition)
            standing.start()
            generate(Path(folder) / "newest", start="2007-10-05", days=1, formats=("sensorscope",))
            ingest([Path(folder) / "newest"], archive.store.path, engine="inprocess", now_ns=NOW_NS + DAY_NS)
            newest = hg.open(archive.store.path).snapshot
            wait_until(lambda: all(one["snapshot"] == newest for one in standing.listing()))
            app = create_app(Runner(archive), Catalogue(archive, saved=QUERIES), services=Services(standing=standing))
            app.mount("/", site())
            browser = playwright.chromium.launch(executable_path=path, headless=True, args=list(OPTIONS))
            with serving(app) as address:
                for name in dict.fromkeys(names):
                    page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT}, color_scheme="light")
                    take(page, f"{address}/#{name}", out / f"screenshot_{name}.png")
                    page.close()
            browser.close()
    return 0


def take(page: Page, address: str, target: Path, press: Callable[[Page], None] | None = None) -> None:
    """Write the picture of a page that has settled, and settled again after something was pressed there."""
    page.goto(address)
    page.wait_for_selector("body[data-ready=yes]", timeout=LONGEST_MS)
    # Explore asks a question of its own: its picture is taken once all cells are computed.
    page.wait_for_function(
        "() => !document.querySelector('#bar')?.checkVisibility() || document.querySelector('#bar').value === 1",
        timeout=LONGEST_MS,
    )
    page.wait_for_timeout(QUIET_MS)
    if press is not None:
        press(page)
        page.wait_for_timeout(QUIET_MS)
    page.screenshot(path=target)
    print(f"{target}: {target.stat().st_size:,} bytes")


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "station_data" / "pictures"))
