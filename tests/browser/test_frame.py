"""The frame of the pages: which is shown, links that reproduce it, theme, narrow windows, what is said in trouble."""

import json
import os
import re
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlencode, urlsplit

import pytest
from playwright.sync_api import Browser, Page, Route, expect

from tests.browser.pages import SMALL, axe, eventually, press_until, run, serious, show, unfold, wait_for, written

pytestmark = pytest.mark.browser

PAGES = ("Overview", "Explore", "Boards", "Stations", "Standing", "Continuous", "Engine")
CSS = Path(__file__).parents[2] / "viz" / "pages" / "page.css"

NAMELESS = """() => [...document.querySelectorAll(
    "button, input, select, textarea, summary, [role=img], [role=region]")]
  .filter((one) => one.offsetParent && !one.ariaLabel && !one.textContent.trim() && !one.labels?.length
    && !document.getElementById(one.getAttribute("aria-labelledby"))?.textContent)
  .map((one) => one.outerHTML.slice(0, 120))"""


def hash_of(page: Page) -> dict[str, str]:
    """Return what the address says of what is shown."""
    return {name: values[0] for name, values in parse_qs(urlsplit(page.url).fragment.partition("?")[2]).items()}


@pytest.mark.parametrize("address", ["http://stations.example/one.png", "http://192.0.2.7/one.png"])
def test_a_request_that_would_leave_the_machine_fails_and_is_seen(
    page: Page, address: str, outside_requests: list[str]
) -> None:
    page.set_content(f"<img src='{address}'>")
    eventually(page, lambda: bool(outside_requests))
    assert outside_requests == [address]
    outside_requests.clear()


def test_pages_by_mouse(opened: Page) -> None:
    for name in reversed(PAGES):
        show(opened, name)
        assert opened.title() == f"{name} · HyperGrid"
        assert opened.locator("section.page:visible").count() == 1
        current = opened.locator("#pages [aria-current=page]")
        expect(current).to_have_text(name)


def test_pages_by_keyboard(opened: Page) -> None:
    press_until(opened, "skip")
    opened.keyboard.press("Enter")
    assert opened.evaluate("() => document.activeElement.id") == "main"
    press_until(opened, "link-engine", "Shift+Tab")
    opened.keyboard.press("Enter")
    expect(opened.locator("#page-engine")).to_be_visible()
    press_until(opened, "link-stations", "Shift+Tab")
    opened.keyboard.press("Enter")
    expect(opened.locator("#page-stations")).to_be_visible()
    opened.go_back()
    expect(opened.locator("#page-engine")).to_be_visible()


def test_a_link_reproduces_the_page(opened: Page, browser: Browser) -> None:
    run(opened, SMALL)
    opened.get_by_label("Beside it").select_option("variable:relative_humidity")
    wait_for(opened, "beside: Done")
    opened.get_by_label("Histogram").check()
    expect(opened.locator("#caption")).to_contain_text("Histogram")
    assert hash_of(opened)["view"] == "histogram"
    context = browser.new_context()
    try:
        other = context.new_page()
        other.goto(opened.url)
        wait_for(other, "beside: Done")
        expect(other.locator("#caption")).to_have_text(opened.inner_text("#caption"))
        expect(other.locator("#caption-second")).to_contain_text("Relative humidity")
        assert written(other)["steps"] == SMALL["steps"]
    finally:
        context.close()


def test_the_copied_link_names_the_snapshot(opened: Page, archive: Any) -> None:  # noqa: ANN401
    run(opened, SMALL)
    opened.get_by_role("button", name="Link", exact=True).click()
    link = opened.locator(".copied pre").inner_text()
    asked = json.loads(parse_qs(urlsplit(link).fragment.partition("?")[2])["q"][0])
    assert asked["snapshot"] == archive.snapshot


def test_the_theme_is_chosen_and_kept(opened: Page) -> None:
    ground = "() => getComputedStyle(document.body).backgroundColor"
    before = opened.evaluate(ground)
    opened.get_by_label("Theme").select_option("dark")
    assert opened.evaluate(ground) == "rgb(23, 29, 36)" != before
    opened.reload()
    opened.wait_for_selector("body[data-ready=yes]")
    assert opened.evaluate(ground) == "rgb(23, 29, 36)"
    expect(opened.get_by_label("Theme")).to_have_value("dark")
    opened.get_by_label("Theme").select_option("system")
    assert opened.evaluate(ground) == before
    assert opened.evaluate("() => localStorage.length") == 0


def test_units_and_zone_are_always_in_sight(opened: Page) -> None:
    run(opened, SMALL)
    for name in PAGES:
        show(opened, name)
        expect(opened.locator("#status-line")).to_be_in_viewport()
        expect(opened.locator("#clock")).to_have_text(re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d UTC"))
        expect(opened.locator("#units")).to_contain_text("UTC")
    show(opened, "Explore")
    expect(opened.locator("#units")).to_have_text("Air temperature [°C], times in UTC")


def test_a_page_that_was_left_says_nothing_of_units(opened: Page) -> None:
    run(opened, SMALL)
    held: list[Route] = []
    opened.route("**/api/v1/stations/health*", lambda route: held.append(route), times=1)
    opened.goto(
        f"{opened.url.partition('#')[0]}#stations?{urlencode({'station': '5', 'variable': 'relative_humidity'})}"
    )
    eventually(opened, lambda: bool(held))
    expect(opened.locator("#units")).to_have_text("Relative humidity [%], times in UTC")
    show(opened, "Explore")
    expect(opened.locator("#units")).to_have_text("Air temperature [°C], times in UTC")
    for request in held:
        request.continue_()
    expect(opened.locator("#station-title")).to_contain_text("5")
    expect(opened.locator("#units")).to_have_text("Air temperature [°C], times in UTC")
    show(opened, "Stations")
    expect(opened.locator("#units")).to_have_text("Relative humidity [%], times in UTC")


def test_a_link_followed_while_a_page_notes_its_state_is_followed(opened: Page) -> None:
    run(opened, SMALL)
    # Both happen before the page hears of its new address, as when an answer ends right after the click.
    histogram = opened.get_by_label("Histogram")
    histogram.evaluate("(one) => { document.getElementById('link-boards').click(); one.click(); }")
    expect(opened.locator("#page-boards")).to_be_visible()
    show(opened, "Explore")
    assert hash_of(opened)["view"] == "histogram"
    lines = opened.get_by_label("Lines over time")
    other = json.dumps({**SMALL, "variable": "relative_humidity"})
    lines.evaluate(
        "(one, asked) => { location.hash = `#explore?q=${encodeURIComponent(asked)}&run=1`; one.click(); }", other
    )
    expect(opened.locator("#units")).to_have_text("Relative humidity [%], times in UTC")


def test_the_foot_says_whose_data_they_are(page: Page, opened: Page) -> None:
    expect(opened.locator("#publication")).to_be_empty()
    stated = {"institution": "Institute <b>", "license": "https://example.org/by", "creator_email": "data@example.org"}
    page.route("**/api/v1/publication", lambda route: route.fulfill(json={"network": "valley", **stated}))
    page.reload()
    expect(page.locator("#publication")).to_have_text("Data: Institute <b>, https://example.org/by, data@example.org")
    expect(page.locator("#publication a[rel=license]")).to_have_attribute("href", stated["license"])


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [360, 800, 1400])
def test_every_page_fits_every_window(browser: Browser, address: str, width: int, scheme: Any) -> None:  # noqa: ANN401
    context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
    try:
        page = context.new_page()
        for name in PAGES:
            page.goto(f"{address}#{name.lower()}")
            page.wait_for_selector("body[data-ready=yes]")
            page.wait_for_timeout(500)
            assert page.evaluate("() => document.documentElement.scrollWidth") <= width, name
            assert page.evaluate(NAMELESS) == [], name
    finally:
        context.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(browser: Browser, address: str, scheme: Any) -> None:  # noqa: ANN401
    source = axe()
    if source is None:
        pytest.skip(f"axe-core is not where NODE_PATH={os.environ.get('NODE_PATH', '')} says: npm install axe-core")
    context = browser.new_context(viewport={"width": 1300, "height": 900}, color_scheme=scheme)
    try:
        page = context.new_page()
        for name in PAGES:
            page.goto(f"{address}#{name.lower()}")
            page.wait_for_selector("body[data-ready=yes]")
            if name == "Explore":
                run(page, SMALL)
                expect(page.locator("#caption")).to_contain_text("100 % computed")
            page.wait_for_timeout(1000)
            assert serious(page, source) == [], name
    finally:
        context.close()


def contrast(one: str, other: str) -> float:
    """Return the contrast of two colours (WCAG 2), 1 to 21."""

    def light(colour: str) -> float:
        parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
        linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    low, high = sorted((light(one), light(other)))
    return (high + 0.05) / (low + 0.05)


def test_colours_of_the_pages_have_contrast() -> None:
    pairs = dict(re.findall(r"--([\w-]+): light-dark\((#\w{6}, #\w{6})\)", CSS.read_text("utf-8")))
    colours = {name: pair.split(", ") for name, pair in pairs.items()}
    for theme in (0, 1):
        told = {name: pair[theme] for name, pair in colours.items()}
        for ground in ("ground", "panel"):
            for ink in ("ink", "quiet", "accent", "good", "late"):
                assert contrast(told[ink], told[ground]) >= 4.5, (theme, ink, ground)
            assert contrast(told["edge"], told[ground]) >= 3, (theme, ground)
        assert contrast(told["accent-ink"], told["accent"]) >= 4.5
        assert contrast(told["bad"], told["bad-ground"]) >= 4.5
        assert contrast(told["bad"], told["ground"]) >= 4.5


# Trouble


def test_an_archive_without_readings_says_what_to_do(page: Page, address: str) -> None:
    is_empty = True

    def answer(route: Route) -> None:
        if is_empty:
            route.fulfill(json=[])
        else:
            route.fallback()

    page.route("**/api/v1/variables", answer)
    page.goto(f"{address}#explore")
    page.wait_for_selector("body[data-ready=yes]")
    expect(page.locator("#no-data")).to_contain_text("hypergrid ingest")
    is_empty = False
    page.get_by_role("button", name="Look again").click()
    expect(page.get_by_role("button", name="Run", exact=True)).to_be_visible()
    expect(page.locator("#no-data")).to_be_empty()


def test_a_server_that_is_gone_is_told_and_found_again(page: Page, address: str) -> None:
    page.goto(f"{address}#explore")
    page.wait_for_selector("body[data-ready=yes]")
    unfold(page, "panel")
    page.route("**/api/**", lambda route: route.abort())
    page.route("**/health", lambda route: route.abort())
    page.get_by_role("button", name="Explain").click()
    expect(page.locator("#notice")).to_contain_text("The server does not answer")
    expect(page.locator("#connection")).to_contain_text("trying again")
    page.unroute("**/api/**")
    page.unroute("**/health")
    expect(page.locator("#connection")).to_have_text("Connected")
    expect(page.locator("#notice")).to_be_empty()
    page.get_by_role("button", name="Explain").click()
    expect(page.locator("#plan")).to_contain_text("Plan")
