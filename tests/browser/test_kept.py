"""Continuous: query 5 is written, mended, back-tested, kept and followed until its alert, by mouse and keyboard."""

import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
from playwright.sync_api import Page, expect

import hypergrid as hg
from queries.jobs.runner import Runner
from queries.snapshots.catalogue import Catalogue
from queries.standing.service import StandingQueries
from queries.web.app import Services, create_app
from tests.browser.pages import press_until
from tests.queries.standing.live import STATIONS, VARIABLES, Live
from tests.serving import serving
from viz.site import site

pytestmark = pytest.mark.browser

BEGINNING: Final = "Select count(distinct d.station) as silent\nFrom Dstream(Select distinct station From read"
REST: Final = " [Range 30 Minutes]) [Range 10 Minutes] d\nHaving count(distinct d.statio) >= 3"

SLOW_ROWS: Final = """() => {
  const fetched = window.fetch;
  window.fetch = async (path, ...rest) => {
    if (path.includes("/rows?")) await new Promise((end) => setTimeout(end, 1000));
    return fetched(path, ...rest);
  };
}"""


@pytest.fixture
def live(tmp_path: Path) -> Live:
    """Give four stations that report for three hours."""
    made = Live(tmp_path / "archive")
    made.add_all([(slice_, dict.fromkeys(STATIONS, 5.0)) for slice_ in range(90)], variables=VARIABLES)
    return made


@pytest.fixture
def at_page(page: Page, live: Live, complaints: list[str]) -> Iterator[Page]:
    archive = hg.open(live.folder)
    with StandingQueries(archive, clock=time.time_ns) as standing:
        standing.start()
        app = create_app(Runner(archive), Catalogue(archive), services=Services(standing=standing))
        app.mount("/", site())
        with serving(app) as address:
            page.goto(f"{address}/#continuous")
            page.wait_for_selector("body[data-ready=yes]")
            expect(page.locator("#cql-kept")).to_contain_text("No query is kept yet.")
            yield page
            page.goto("about:blank")
    assert [text for text in complaints if not re.search("422", text)] == []


def wait_until_run(page: Page) -> None:
    expect(page.locator("#cql-result")).not_to_have_attribute("aria-busy", re.compile(""), timeout=60_000)
    expect(page.locator("#cql-run")).to_be_visible()


def fall_silent(live: Live) -> None:
    """Let three of four stations be silent for 100 minutes."""
    for first in range(90, 140, 10):
        live.add_all([(slice_, {"4": 5.0}) for slice_ in range(first, first + 10)], variables=VARIABLES)


def expect_the_alert(page: Page) -> None:
    """See the row on the page as it comes, and the alert where alerts are."""
    rows = page.locator("#cql-rows-table tbody tr")
    expect(rows).to_have_count(2, timeout=60_000)
    expect(rows.last).to_contain_text("+1 enters")
    expect(rows.last).to_contain_text("3")
    expect(rows.first).to_contain_text("−1 leaves")


def see_it_on_standing(page: Page) -> None:
    expect(page.locator("#page-standing")).to_be_visible()
    expect(page.locator("#page-standing")).to_contain_text("a continuous query")
    page.get_by_text("All alerts as a table").click()
    alerts = page.locator("#alerts")
    expect(alerts).to_contain_text("silent-together")
    expect(alerts).to_contain_text("raised")


def test_must_show_6_by_mouse(at_page: Page, live: Live) -> None:
    page = at_page
    wait_until_run(page)
    page.get_by_label("Begin with").select_option(label="(your own)")
    page.locator("#cql").fill("")
    page.locator("#cql").click()
    page.keyboard.type(BEGINNING)
    page.locator("#cql-options").get_by_role("option", name="readings").click()
    page.keyboard.type(REST)
    page.keyboard.press("Escape")
    fault = page.locator(".cql-fault")
    expect(fault).to_have_text("d.statio")
    box = fault.bounding_box()
    assert box is not None
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    page.locator("#cql-options").get_by_role("option").click()
    expect(page.locator("#cql-told")).to_contain_text("Understood")
    page.get_by_role("button", name="Back-test").click()
    wait_until_run(page)
    page.get_by_role("button", name="Keep this query").click()
    dialog = page.get_by_role("dialog")
    # What is refused is said in the dialog.
    dialog.get_by_label("Name").fill("Silent together")
    dialog.get_by_role("button", name="Keep it").click()
    expect(dialog.get_by_role("alert")).to_contain_text("lower-case letters")
    dialog.get_by_label("Name").fill("silent-together")
    dialog.get_by_label("Keep its rows").select_option(label="for 90 days")
    dialog.get_by_role("button", name="Keep it").click()
    expect(dialog).to_have_count(0)
    expect(page.locator("#cql-kept-list")).to_contain_text("silent-together")
    assert page.evaluate("fetch('api/v1/continuous').then((answer) => answer.json())")[0]["keep_s"] == 90 * 86_400
    expect(page.locator("#cql-rows-title")).to_be_focused()
    expect(page.locator("#cql-rows-table")).to_contain_text("No row has entered the result yet.")
    fall_silent(live)
    expect_the_alert(page)
    # What a late reading takes back is marked as a correction.
    live.add_all([(slice_, dict.fromkeys(STATIONS, 5.0)) for slice_ in range(90, 140)], variables=VARIABLES)
    expect(page.locator("#cql-rows-table .cql-correction")).to_have_count(2, timeout=60_000)
    expect(page.locator("#cql-kept-list")).to_contain_text("Corrected for")
    page.get_by_role("button", name=re.compile("Alerts of silent-together")).click()
    see_it_on_standing(page)
    expect(page.locator("#alerts")).to_contain_text("withdrawn")
    # Rows that are still asked for when their query is removed are no trouble, also where the server is slow.
    page.evaluate(SLOW_ROWS)
    with page.expect_response(re.compile(r"/rows\?")) as answer:
        page.go_back()
        page.get_by_role("button", name="Remove: silent-together").click()
        page.get_by_role("dialog").get_by_role("button", name="Remove").click()
    assert answer.value.ok
    expect(page.locator("#cql-kept")).to_contain_text("No query is kept yet.")
    expect(page.locator("#cql-rows")).to_be_hidden()


def test_must_show_6_by_keyboard(at_page: Page, live: Live) -> None:
    page = at_page
    wait_until_run(page)
    press_until(page, "cql")
    page.keyboard.press("Control+a")
    page.keyboard.press("Delete")
    page.keyboard.type(BEGINNING)
    expect(page.locator("#cql-options").get_by_role("option", selected=True)).to_contain_text("readings")
    page.keyboard.press("Enter")
    page.keyboard.type(REST)
    page.keyboard.press("Escape")
    expect(page.locator(".cql-fault")).to_have_text("d.statio")
    page.keyboard.press("Alt+Enter")
    expect(page.locator("#cql-told")).to_contain_text("Understood")
    page.keyboard.press("Control+Enter")
    wait_until_run(page)
    press_until(page, "cql-keep")
    page.keyboard.press("Enter")
    expect(page.locator("#cql-name")).to_be_focused()
    page.keyboard.type("silent-together")
    page.keyboard.press("Enter")
    expect(page.locator("#cql-rows-title")).to_be_focused()
    fall_silent(live)
    expect_the_alert(page)
    page.keyboard.press("Shift+Tab")
    for _ in range(20):
        if page.evaluate("() => document.activeElement.getAttribute('aria-label') ?? ''").startswith("Alerts of"):
            break
        page.keyboard.press("Shift+Tab")
    expect_it_stays_where_it_is(page, live)
    page.keyboard.press("Enter")
    see_it_on_standing(page)


def expect_it_stays_where_it_is(page: Page, live: Live) -> None:
    """See that a commit, after which the list is drawn again, neither moves the focus nor closes a text."""
    kept = page.locator("#cql-kept-list")
    kept.locator("details").evaluate("(part) => { part.open = true; }")
    before = kept.locator("tbody td").nth(1).inner_text()
    live.add_all([(slice_, {"4": 5.0}) for slice_ in range(140, 150)], variables=VARIABLES)
    expect(kept.locator("tbody td").nth(1)).not_to_have_text(before, timeout=60_000)
    expect(page.get_by_role("button", name=re.compile("Alerts of silent-together"))).to_be_focused()
    expect(kept.locator("pre")).to_be_visible()


def test_the_page_says_from_when_on_rows_are_kept_and_what_came_too_late(at_page: Page, live: Live) -> None:
    page = at_page
    hg.continuous(live.folder).live(
        "Select station, avg(value) as k From air_temperature [Range 4 Hours] Group By station",
        name="k",
        keep_s=86_400.0,
    )
    row = page.locator("#cql-kept-list tbody tr")
    expect(row).to_contain_text("Complete before", timeout=60_000)
    row.get_by_role("button", name="Rows: k").click()
    expect(page.locator("#cql-rows-table tbody tr")).not_to_have_count(0)
    for first in range(90, 2000, 500):
        live.add_all([(slice_, dict.fromkeys(STATIONS, 5.0)) for slice_ in range(first, first + 500)])
    expect(row).to_contain_text("Rows are kept from 2007-10-02", timeout=120_000)
    row.get_by_role("button", name="How long: k").click()
    dialog = page.get_by_role("dialog")
    # One day is not among those offered.
    expect(dialog.get_by_label("Keep its rows").locator("option:checked")).to_have_text("for 1 day")
    dialog.get_by_label("Keep its rows").select_option(label="for a week")
    dialog.get_by_role("button", name="Save").click()
    expect(dialog).to_have_count(0)
    row.get_by_role("button", name="How long: k").click()
    expect(dialog.get_by_label("Keep its rows").locator("option:checked")).to_have_text("for a week")
    dialog.get_by_role("button", name="Cancel").click()
    live.add_all([(50, dict.fromkeys(STATIONS, 9.0))])
    expect(row).to_contain_text("Readings from before then arrived too late to count, in 1 stretch.", timeout=60_000)
