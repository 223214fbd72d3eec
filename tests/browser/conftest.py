"""A headless Chromium that must not leave the machine, and a server of the sample network with its pages."""

import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Page, Request, expect, sync_playwright

import hypergrid as hg
from hypergrid.archive import Archive
from hypergrid.core.settings import Settings
from hypergrid.core.times import parse_instant
from ingest.job import ingest
from queries.boards.repository import BoardStore
from queries.jobs.runner import Runner
from queries.snapshots.catalogue import Catalogue
from queries.standing.service import StandingQueries
from queries.web.app import Services, create_app
from tests.browser.pages import QUERIES, ROOT, unasked
from tests.chromium import LOCAL_HOSTS, NO_OTHER_HOST, OPTIONS, SHELL, chromium_path
from tests.end_to_end.foreign.visit import served
from tests.serving import serving
from viz.site import site

LONGEST_MS = 60_000
"""How long a page may take to show what is expected, on a machine that is busy with other things [ms]."""
MOST = 0.9
"""Share of its cells at which a query that is held stays."""
expect.set_options(timeout=LONGEST_MS)


def on_this_machine(address: str) -> bool:
    """Tell whether a request to `address` stays here."""
    parts = urlsplit(address)
    return parts.scheme in ("data", "blob", "about") or parts.hostname in LOCAL_HOSTS


@pytest.fixture(scope="session")
def chromium() -> str:
    """Give the path of a Chromium, or skip."""
    found = chromium_path()
    if found is None:
        pytest.skip(f"no Chromium on the PATH: install the package {SHELL}, or chromium")
    return found


# Playwright keeps an event loop running in this thread as long as it lives, which forbids asyncio.run to tests of other
# folders: so it ends with the module.
@pytest.fixture(scope="module")
def browser(chromium: str) -> Iterator[Browser]:
    """Give a headless Chromium that cannot leave the machine."""
    with sync_playwright() as playwright:
        options = [*OPTIONS, NO_OTHER_HOST]
        running = playwright.chromium.launch(executable_path=chromium, headless=True, args=options)
        yield running
        running.close()


@pytest.fixture
def outside_requests() -> list[str]:
    """Addresses on other machines that the page asked for; the test fails if there is one."""
    return []


@pytest.fixture
def page(browser: Browser, outside_requests: list[str]) -> Iterator[Page]:
    """Give an empty page whose requests to other machines fail, are recorded, and fail the test."""
    context = browser.new_context()
    context.set_default_timeout(LONGEST_MS)

    def watch(request: Request) -> None:
        if not on_this_machine(request.url):
            outside_requests.append(request.url)

    # Not by a route: each of a page's many files would go through this process, and none would be cached.
    context.on("requestfailed", watch)
    yield context.new_page()
    context.close()
    assert outside_requests == [], "requests left the machine"


@pytest.fixture(scope="session")
def archive(tmp_path_factory: pytest.TempPathFactory) -> hg.OpenArchive:
    """Give the sample network's archive, with some rows that could not be read."""
    path = tmp_path_factory.mktemp("pages") / "archive"
    broken = path.parent / "pass-meteo-torn.txt"
    lines = (ROOT / "station_data" / "sample" / "sensorscope" / "pass-meteo-1.txt").read_text("utf-8").splitlines()
    broken.write_text("\n".join([lines[0][:40], lines[1][:60], lines[2].replace("2007", "MMVII")]) + "\n", "utf-8")
    files = [ROOT / "station_data" / "sample", broken]
    ingest(files, path, engine="inprocess", now_ns=parse_instant("2007-10-02"))
    return hg.open(path)


@pytest.fixture(scope="module")
def standing(archive: hg.OpenArchive, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandingQueries]:
    """Give standing queries that run, none at first."""
    with StandingQueries(archive, clock=time.time_ns, folder=tmp_path_factory.mktemp("standing")) as made:
        made.start()
        yield made


@pytest.fixture(scope="module")
def boards(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BoardStore]:
    """Give a file of boards and links, none at first."""
    made = BoardStore(tmp_path_factory.mktemp("boards") / "boards.sqlite")
    yield made
    made.close()


@pytest.fixture(scope="module")
def address(archive: hg.OpenArchive, standing: StandingQueries, boards: BoardStore) -> Iterator[str]:
    """Give the address of a server of the sample network, with pages, standing queries and boards."""
    app = create_app(
        Runner(archive), Catalogue(archive, saved=QUERIES), services=Services(standing=standing, boards=boards)
    )
    app.mount("/", site())
    with serving(app) as made:
        yield f"{made}/"


@pytest.fixture
def taking(tmp_path: Path) -> Iterator[str]:
    """Give the address of a server of an empty archive that takes imports."""
    path = tmp_path / "valley"
    Archive.create(path, name="valley", slice_s=120.0, variables=(), now_ns=1_720_000_000 * 10**9)
    with served(path, Settings(imports=True)) as address:
        yield f"{address}/"


@pytest.fixture
def unhurried(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Compute block by block, and stay short of the end, so that no machine is done before a page asks to stop."""
    refine, ended = hg.Query.refine, threading.Event()

    def held(query: hg.Query, **options: Any) -> Iterator[hg.Refinement]:  # noqa: ANN401 - those of a run
        for refinement in refine(query, **options):
            ended.wait(0.15)
            while refinement.fraction > MOST and not ended.wait(0.15):
                yield refinement
            yield refinement

    monkeypatch.setattr(hg.Query, "refine", held)
    yield
    ended.set()


@pytest.fixture
def complaints(page: Page) -> list[str]:
    """Give what the console complains of."""
    told: list[str] = []
    page.on("console", lambda message: told.append(message.text) if message.type in ("error", "warning") else None)
    page.on("pageerror", lambda error: told.append(str(error)))
    return told


@pytest.fixture
def opened(page: Page, address: str, complaints: list[str]) -> Iterator[Page]:
    """Give the pages, ready, with a question that has not been asked; nothing on them may complain."""
    page.goto(unasked(address))
    page.wait_for_selector("body[data-ready=yes]")
    yield page
    assert complaints == []
