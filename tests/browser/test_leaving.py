"""Pages that are left and shown again: what they began ends or goes on; what lies over them."""

import re
from typing import Any

import pytest
from playwright.sync_api import Page, Route, expect

from tests.browser.pages import SMALL, eventually, run, show

pytestmark = pytest.mark.browser

DROP = """([selector, names]) => {
  const dataTransfer = new DataTransfer();
  for (const name of names) dataTransfer.items.add(new File(["station,time\\n"], name));
  const event = new DragEvent("drop", { dataTransfer, bubbles: true, cancelable: true });
  document.querySelector(selector).dispatchEvent(event);
  return event.defaultPrevented;
}"""
"""Drop files on an element; tells whether the page took them."""
FIGURE = (
    "(() => { const { figure } = document.getElementById('overview-map'); return figure?.plot.outer_width ?? 0; })()"
)
STATE = {
    "id": "first", "owner": "", "created": "2024-05-01T00:00:00Z", "files": [], "described": False, "runs": 0,
    "state": "running", "progress": {"stage": "", "fraction": 0.25, "warnings": []}, "error": "", "report": None,
}  # fmt: skip


@pytest.mark.parametrize("values_come", ["before", "after"])
def test_the_overview_keeps_its_size_when_the_theme_changes_on_another_page(opened: Page, values_come: str) -> None:
    waiting_routes: list[Route] = []
    opened.route(
        "**/api/v1/latest?*",
        lambda route: route.continue_() if values_come == "before" else waiting_routes.append(route),
    )
    show(opened, "Overview")
    eventually(opened, lambda: opened.evaluate(FIGURE) > 1000)
    if values_come == "before":
        expect(opened.locator("#overview-map")).to_have_attribute("data-drawn", re.compile("."))
    show(opened, "Standing")
    opened.get_by_label("Theme").select_option("dark")
    opened.set_viewport_size({"width": 1000, "height": 700})
    opened.wait_for_timeout(500)
    show(opened, "Overview")
    eventually(opened, lambda: 900 < opened.evaluate(FIGURE) <= 1000)
    for route in waiting_routes:
        route.continue_()
    rim = "document.getElementById('overview-map').figure?.find('stations').data.edge?.[0]"
    eventually(opened, lambda: opened.evaluate(rim) == "#e4e9ee")


@pytest.mark.parametrize(("name", "asks"), [("Standing", "standing"), ("Engine", "engine")])
def test_a_page_that_is_left_before_its_first_answer_asks_no_more(opened: Page, name: str, asks: str) -> None:
    held: list[Route] = []
    opened.route(f"**/api/v1/{asks}", lambda route: held.append(route))
    show(opened, name)
    eventually(opened, lambda: len(held) > 0)
    show(opened, "Explore")
    asked: list[str] = []
    opened.on("request", lambda request: asked.append(request.url) if request.url.endswith(f"v1/{asks}") else None)
    for route in held:
        route.continue_()
    # Longer than from one look to the next.
    opened.wait_for_timeout(3000)
    assert asked == []


def test_a_film_and_finer_cells_end_with_the_page(opened: Page) -> None:
    run(opened, SMALL)
    opened.get_by_role("button", name="Play").click()
    expect(opened.locator("#play")).to_have_attribute("aria-pressed", "true")
    show(opened, "Boards")
    expect(opened.locator("#play")).to_have_attribute("aria-pressed", "false")
    time = opened.locator("#time").input_value()
    opened.wait_for_timeout(1000)
    assert opened.locator("#time").input_value() == time


def test_what_is_shared_lies_over_the_picture_and_is_closed(opened: Page) -> None:
    run(opened, SMALL)
    place = opened.locator("#picture-part").bounding_box()
    opened.get_by_role("button", name="Short link").click()
    result = opened.locator("#share .shared")
    expect(result.locator("pre")).to_contain_text("/l/")
    assert opened.locator("#picture-part").bounding_box() == place
    result.get_by_role("button", name="Close this").click()
    expect(result).to_be_hidden()
    opened.get_by_role("button", name="Embed").click()
    expect(result.locator("pre")).to_contain_text("<iframe")
    box = result.bounding_box()
    size = opened.viewport_size
    assert box is not None
    assert size is not None
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= size["width"]
    opened.keyboard.press("Escape")
    expect(result).to_be_hidden()
    heights = [(button.bounding_box() or {})["height"] for button in opened.locator("#share .buttons button").all()]
    assert max(heights) < 40, heights


def test_a_running_import_is_followed_again_and_takes_no_files(page: Page, address: str) -> None:
    state: dict[str, Any] = {**STATE}
    asked: list[str] = []

    def answer(route: Route) -> None:
        asked.append(f"{route.request.method} {route.request.url}")
        route.fulfill(json=state if "imports/" in route.request.url else [state])

    page.route("**/api/v1/imports**", answer)
    page.route("**/api/v1/imports/**", answer)
    page.route("**/api/v1/session", allow_imports)
    page.goto(f"{address}#import?id=first")
    percent = page.locator("#import-result [role=status]")
    expect(percent).to_contain_text("25")
    show(page, "Boards")
    page.wait_for_timeout(600)
    before = len(asked)
    page.wait_for_timeout(1000)
    assert len(asked) == before
    state["progress"]["fraction"] = 0.5
    show(page, "Import")
    expect(percent).to_contain_text("50")
    # Files that are dropped anywhere do not replace the page, and are refused as long as it runs.
    for selector in ("#status-line", "#import-drop"):
        assert page.evaluate(DROP, [selector, ["more.csv"]])
        expect(page.get_by_role("alert")).to_contain_text("Files are being ingested")
        page.get_by_role("button", name="Close this message").click()
    assert not [one for one in asked if one.startswith("PUT")]
    show(page, "Boards")
    assert not page.evaluate(DROP, ["#status-line", ["more.csv"]])


def test_the_overview_asks_for_stations_again_when_readings_of_another_one_come(page: Page, address: str) -> None:
    lists: list[int] = []

    def answer(route: Route) -> None:
        known = route.fetch().json()
        # The first answer is older than a station.
        known["features"] = known["features"][0 if lists else 1 :]
        lists.append(len(known["features"]))
        route.fulfill(json=known)

    page.route("**/api/v1/stations", answer)
    page.goto(f"{address}#overview?variable=air_temperature")
    eventually(page, lambda: len(lists) > 1)
    assert lists == [lists[1] - 1, lists[1]]
    expect(page.locator("#overview-below tbody tr")).to_have_count(lists[1])


def allow_imports(route: Route) -> None:
    """Answer as a server that takes imports."""
    known = route.fetch().json()
    route.fulfill(json={**known, "imports": True})
