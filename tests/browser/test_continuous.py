"""Continuous: a query is filled in or written with completion, mended where it is underlined, and back-tested."""

import csv
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote

import pytest
from playwright.sync_api import Browser, Page, expect

from queries.standing.service import StandingQueries
from tests.browser.pages import axe, eventually, press_until, serious, unfold

pytestmark = pytest.mark.browser

DAY: Final = "&from=2007-10-01T00:00&to=2007-10-02T00:00&order=time"
COLD: Final = (
    "Select station, min(value) as lowest From air_temperature [Range 1 Hour] Group By station Having min(value) < 0"
)


def address_of(address: str, text: str) -> str:
    return f"{address}#continuous?text={quote(text)}{DAY}"


def wait_until_told(page: Page) -> None:
    """Wait until a back-test has ended."""
    expect(page.locator("#cql-result")).not_to_have_attribute("aria-busy", re.compile(""))
    expect(page.locator("#cql-run")).to_be_visible()


@pytest.fixture
def at_page(page: Page, address: str, complaints: list[str]) -> Iterator[Page]:
    """Give the page with a query that was run; nothing on it may complain but of what is refused."""
    page.goto(address_of(address, COLD))
    page.wait_for_selector("body[data-ready=yes]")
    expect(page.locator("#cql-words")).to_contain_text("episode")
    wait_until_told(page)
    yield page
    assert [text for text in complaints if not re.search("422|413", text)] == []


def editor_text(page: Page) -> str:
    return page.locator("#cql").input_value()


def test_nothing_to_report_offers_a_longer_stretch(page: Page, address: str) -> None:
    page.goto(f"{address}#continuous")
    page.wait_for_selector("body[data-ready=yes]")
    page.locator("#cql").fill("Select station, value From air_temperature [Range 10 Minutes] Where value > 1000")
    page.get_by_label("Stretch").select_option(label="The last day")
    page.get_by_role("button", name="Back-test").click()
    begins = []
    for stretch in ("The last 3 days", "The last week", "The last month"):
        expect(page.get_by_role("button", name=f"{stretch} instead")).to_be_visible(timeout=120_000)
        begins.append(page.locator("#cql-words").inner_text())
        page.get_by_role("button", name=f"{stretch} instead").click()
    expect(page.get_by_role("button", name="instead")).to_have_count(0, timeout=120_000)
    begins.append(page.locator("#cql-words").inner_text())
    assert all(text.startswith("Nothing would have been reported from ") for text in begins)
    assert len({*begins}) == 4
    assert page.get_by_label("Stretch").input_value() == "31"


def test_it_begins_with_a_form_and_its_result(page: Page, address: str) -> None:
    page.goto(f"{address}#continuous")
    page.wait_for_selector("body[data-ready=yes]")
    expect(page.locator("#cql-words")).to_contain_text(re.compile("of|Nothing"), timeout=120_000)
    assert "Dstream(Select distinct station From readings [Range 30 Minutes])" in editor_text(page)
    # What is filled in is written.
    page.get_by_label("Begin with").select_option(label="Sensors that are stuck")
    page.get_by_label("Equal values in a row").fill("12")
    assert "Rows 12 Where flag < 9" in editor_text(page)
    assert "count(*) = 12" in editor_text(page)
    page.get_by_label("Equal values in a row").fill("0")
    expect(page.locator("#cql-told")).to_have_text("Fill in numbers above zero.")
    # A question of a month takes one.
    stretch = page.locator("#cql-stretch")
    expect(stretch).not_to_have_value("31")
    page.get_by_label("Begin with").select_option(label="A thermometer that drifts, within a month")
    expect(stretch).to_have_value("31")
    page.get_by_label("Drifts by more than [K]").fill("0.5")
    assert "quantile(change_k, 0.25) > 0.5 or quantile(change_k, 0.75) < -0.5" in editor_text(page)
    expect(page.locator("#cql-told")).to_contain_text("Understood: the result is a relation; 3 columns.")
    labels = page.locator("#cql-begin option").all_inner_texts()
    assert {"Much rain in an hour", "Stations that fall silent together"} <= set(labels)
    # Examples that name what this archive lacks are not offered.
    assert not any("lightning" in label for label in labels)


def test_query_5_is_written_with_completion_mended_and_back_tested_by_keyboard(at_page: Page) -> None:
    page = at_page
    press_until(page, "cql")
    page.keyboard.press("Control+a")
    page.keyboard.press("Delete")
    page.keyboard.type("Select count(distinct d.station) as silent\nFrom Dstream(Select distinct station From read")
    options = page.locator("#cql-options")
    expect(options).to_be_visible()
    expect(options.get_by_role("option", selected=True)).to_contain_text("readings")
    page.keyboard.press("Enter")
    page.keyboard.type(" [Ran")
    expect(options.get_by_role("option").first).to_contain_text("Range")
    page.keyboard.press("Enter")
    page.keyboard.type(" 30 Minut")
    page.keyboard.press("Enter")
    assert editor_text(page).endswith("From readings [Range 30 Minutes")
    # Of a name before a dot the columns; Escape closes.
    page.keyboard.type("]) [Range 10 Minutes] d\nHaving count(distinct d.station) >= 1")
    page.keyboard.press("Escape")
    expect(options).to_be_hidden()
    expect(page.locator("#cql-told")).to_contain_text("Understood: the result is a relation; 1 column.")
    # A fault: underlined, explained, mended.
    page.keyboard.press("Control+Home")
    for _ in range(len("Select count(distinct d.station")):
        page.keyboard.press("ArrowRight")
    page.keyboard.press("Backspace")
    expect(page.locator(".cql-fault")).to_have_text("d.statio")
    expect(page.locator("#cql-told")).to_contain_text("Line 1, column 23: unknown column 'statio' of d")
    expect(page.locator("#cql-mend")).to_have_text("Replace “d.statio” by “d.station”")
    page.keyboard.press("Alt+Enter")
    expect(page.locator("#cql-told")).to_contain_text("Understood")
    expect(page.locator(".cql-fault")).to_have_count(0)
    assert "count(distinct d.station) as silent" in editor_text(page)
    page.keyboard.press("Control+Enter")
    expect(page.locator("#cql-words")).to_contain_text(re.compile("episode|Nothing"))
    wait_until_told(page)
    # The plan has the window that is a stream of departures.
    expect(page.locator("#cql-plan svg")).to_contain_text("dstream")


def test_a_fault_is_mended_by_mouse_where_it_is_underlined(at_page: Page) -> None:
    page = at_page
    page.locator("#cql").fill(COLD.replace("air_temperature", "air_temperatur"))
    fault = page.locator(".cql-fault")
    expect(fault).to_have_text("air_temperatur")
    # The page shows no plan of a text that is no query.
    expect(page.locator("#cql-plan svg")).to_have_count(0)
    box = fault.bounding_box()
    assert box is not None
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    option = page.locator("#cql-options").get_by_role("option")
    expect(option).to_have_count(1)
    option.click()
    expect(page.locator("#cql-told")).to_contain_text("Understood")
    assert editor_text(page) == COLD
    # So is the button below the text; and completion takes a click.
    page.locator("#cql").fill(COLD.replace("min(value) as", "min(valu) as"))
    page.get_by_role("button", name="Replace “valu” by “value”").click()
    expect(page.locator("#cql-plan svg")).to_be_visible()
    assert editor_text(page) == COLD
    page.locator("#cql").press("Control+End")
    page.keyboard.type(" and count(")
    page.keyboard.type("hei")
    page.locator("#cql-options").get_by_role("option", name="height_m").click()
    assert editor_text(page).endswith("count(height_m")


def test_the_result_is_a_strip_of_episodes_tables_and_files(at_page: Page, tmp_path: Path) -> None:
    page = at_page
    # It was run before: until the answer comes, all that is waited for is there already.
    with page.expect_response(lambda response: response.url.endswith("/rows?f=json")):
        page.get_by_role("button", name="Back-test").click()
    wait_until_told(page)
    words = page.locator("#cql-words").inner_text()
    told = re.match(r"(\d+) episodes? of (\d+) keys?, the first from 2007-10-01", words)
    assert told, words
    assert page.locator("#cql-strip rect.bar").count() == int(told[1])
    assert page.locator("#cql-strip .row-name").count() == int(told[2])
    assert page.locator("#cql-episodes tbody tr").count() == int(told[1])
    expect(page.locator("#cql-episodes thead")).to_contain_text("lowest [°C]")
    with page.expect_download() as downloading:
        page.get_by_role("link", name="CSV").click()
    downloading.value.save_as(tmp_path / "rows.csv")
    rows = list(csv.DictReader((tmp_path / "rows.csv").open(encoding="utf-8")))
    assert list(rows[0]) == ["tau", "sign", "station", "lowest"]
    entered = {row["station"] for row in rows if row["sign"] == "1"}
    assert len(entered) == int(told[2])
    page.get_by_text("All changes as a table").click()
    expect(page.locator("#cql-result details tbody tr").first).to_contain_text("+1")


def test_a_back_test_can_be_stopped_and_says_what_is_too_large(at_page: Page) -> None:
    page = at_page
    page.get_by_label("From (UTC)").fill("1990-01-01T00:00")
    assert page.get_by_label("Stretch").input_value() == "own"
    page.get_by_role("button", name="Back-test").click()
    expect(page.locator("#notice")).to_contain_text(re.compile(r"days, above the 1,098 allowed"))
    page.get_by_label("Stretch").select_option("1")
    page.route(re.compile("continuous/backtest/[0-9a-f]+$"), answer_running)
    page.get_by_role("button", name="Back-test").click()
    expect(page.locator("#cql-progress-words")).to_contain_text("Reading: 40 % of the stretch, 7 rows so far.")
    page.get_by_role("button", name="Stop").click()
    expect(page.locator("#cql-progress-words")).to_have_text("Stopped.")
    expect(page.locator("#cql-run")).to_be_visible()


STATE: Final[dict[str, str]] = {}


def answer_running(route: Any) -> None:  # noqa: ANN401 - a route of Playwright
    """Answer as a back-test that runs until it is stopped."""
    request = route.request
    if request.method == "DELETE":
        STATE[request.url] = "cancelled"
    state = STATE.get(request.url, "running")
    number = request.url.rpartition("/")[2]
    route.fulfill(json={"id": number, "state": state, "fraction": 0.4, "rows": 7, "error": None})


def test_its_address_reproduces_it(at_page: Page, address: str) -> None:
    page = at_page
    page.get_by_label("Order").select_option("arrival")
    page.locator("#cql").fill(COLD.replace("< 0", "< 1"))
    eventually(page, lambda: "order=arrival" in page.url and quote("< 1", safe="").replace("%20", "+") in page.url)
    reproduced = page.url
    page.goto(f"{address}#engine")
    page.goto(reproduced)
    page.reload()
    page.wait_for_selector("body[data-ready=yes]")
    expect(page.locator("#cql")).to_have_value(COLD.replace("< 0", "< 1"))
    assert page.get_by_label("Order").input_value() == "arrival"
    assert page.get_by_label("From (UTC)").input_value() == "2007-10-01T00:00"


def test_a_question_of_explore_becomes_a_continuous_query(opened: Page) -> None:
    unfold(opened, "panel")
    opened.get_by_role("button", name="As a continuous query").click()
    expect(opened.locator("#page-continuous")).to_be_visible()
    expect(opened.locator("#cql")).to_have_value(
        re.compile(r"^Select station, avg\(value\) as mean\nFrom air_temperature")
    )
    expect(opened.locator("#cql-told")).to_contain_text("Understood")
    wait_until_told(opened)


def test_a_standing_query_becomes_a_continuous_one(page: Page, address: str, standing: StandingQueries) -> None:
    condition = {"kind": "threshold", "below": "-2 degC"}
    standing.add({"name": "frost", "query": {"variable": "air_temperature", "steps": []}, "condition": condition})
    try:
        page.goto(f"{address}#standing")
        page.wait_for_selector("body[data-ready=yes]")
        page.get_by_role("button", name="As a continuous query: frost").click()
        expect(page.locator("#page-continuous")).to_be_visible()
        expect(page.locator("#cql")).to_have_value(re.compile(r"From air_temperature[\s\S]*-2"))
        expect(page.locator("#cql-told")).to_contain_text("Understood")
        wait_until_told(page)
    finally:
        standing.remove("frost")


@pytest.mark.parametrize(("width", "scheme"), [(1280, "light"), (1280, "dark"), (390, "light")])
def test_axe_finds_nothing_serious_in_any_state(browser: Browser, address: str, width: int, scheme: Any) -> None:  # noqa: ANN401
    source = axe()
    if source is None:
        pytest.skip("axe-core is not where NODE_PATH says: npm install axe-core")
    context = browser.new_context(viewport={"width": width, "height": 900}, color_scheme=scheme)
    try:
        page = context.new_page()
        page.goto(address_of(address, COLD))
        page.wait_for_selector("body[data-ready=yes]")
        expect(page.locator("#cql-words")).to_contain_text("episode")
        wait_until_told(page)
        assert page.evaluate("() => document.documentElement.scrollWidth") <= width
        # On a phone the links of pages that are scrolled out of sight look like links that skip something.
        assert [fault for fault in serious(page, source) if fault[0] != "skip-link"] == []
        page.locator("#cql").fill(f"{COLD} and min(valu) > 1 ")
        expect(page.locator("#cql-mend")).to_be_visible()
        page.locator("#cql").press("Control+End")
        page.locator("#cql").press("Control+ ")
        expect(page.locator("#cql-options")).to_be_visible()
        assert [fault for fault in serious(page, source) if fault[0] != "skip-link"] == []
    finally:
        context.close()
