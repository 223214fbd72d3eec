"""Standing queries: made from the query in Explore, paused, muted, tested, removed; alerts come by themselves."""

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest
from playwright.sync_api import Page, Route, expect

from hypergrid.core.errors import HyperGridError
from hypergrid.core.times import parse_instant
from queries.standing.service import StandingQueries
from tests.browser.pages import SMALL, press_until, show, write

pytestmark = pytest.mark.browser

FROST = {
    "name": "frost",
    "query": {"variable": "air_temperature", "steps": [{"op": "aggregate", "function": "mean", "time": "10min"}]},
    "condition": {"kind": "threshold", "below": "0 degC", "clear": "1 degC"},
}


@pytest.fixture
def served(page: Page, address: str, standing: StandingQueries) -> Iterator[list[tuple[str, str]]]:
    """What was asked to change, as method and path; each test begins without standing queries."""
    asked: list[tuple[str, str]] = []
    page.on(
        "request",
        lambda request: (
            asked.append((request.method, request.url.partition("/api/v1/")[2])) if "/standing" in request.url else None
        ),
    )
    if "post" not in httpx.get(f"{address}openapi.json", timeout=60).json()["paths"]["/api/v1/standing"]:
        page.route("**/api/v1/standing**", lambda route: _answer(route, standing))
        page.route("**/api/v1/standing/**", lambda route: _answer(route, standing))
    yield asked
    for one in standing.listing():
        standing.remove(one["name"])


def _answer(route: Route, standing: StandingQueries) -> None:
    """Do what a writing route does, where the server has none."""
    request = route.request
    name, _, act = request.url.partition("/api/v1/standing")[2].strip("/").partition("/")
    acts: dict[str, Callable[[dict[str, Any]], object]] = {
        "": lambda document: standing.add(document),
        "pause": lambda _: standing.pause(name),
        "resume": lambda _: standing.resume(name),
        "test": lambda _: standing.test(name),
        "mute": lambda document: standing.mute(
            name, parse_instant("2100-01-01") if document == {"for": "1h"} else None
        ),
    }
    if request.method == "GET":
        route.fallback()
        return
    try:
        if request.method == "DELETE":
            standing.remove(name)
            route.fulfill(status=204)
        else:
            acts[act](json.loads(request.post_data or "{}"))
            route.fulfill(status=201, json={})
    except HyperGridError as error:
        problem = {"type": "about:blank", "title": "It cannot stand", "status": 422, "detail": str(error)}
        route.fulfill(status=422, content_type="application/problem+json", body=json.dumps(problem))


def row(page: Page, name: str) -> Any:  # noqa: ANN401 - a locator
    return page.locator("#standing-list tbody tr").filter(has_text=name)


def test_one_is_made_from_the_query_in_explore_by_mouse(
    opened: Page, served: list[tuple[str, str]], standing: StandingQueries
) -> None:
    write(opened, {**SMALL, "clip": {"time": ["2007-10-01T00:00Z", "2007-10-01T06:00Z"]}})
    opened.get_by_role("button", name="Keep up to date").click()
    expect(opened.locator("#page-standing")).to_be_visible()
    query = json.loads(opened.locator("#standing-query").input_value())
    assert query == {"variable": SMALL["variable"], "steps": SMALL["steps"]}, "it reads what comes: no clip in time"
    opened.get_by_label("Name", exact=True).fill("small-map")
    opened.get_by_label("Weight").fill("4")
    opened.get_by_role("button", name="Create").click()
    expect(opened.locator("#standing-problem")).to_contain_text("small-map is kept up to date")
    expect(row(opened, "small-map")).to_contain_text("up to date")
    (made,) = standing.listing()
    assert (made["name"], made["class"], made["weight"], made["query"]) == ("small-map", "user", 4, query)
    assert ("POST", "standing") in served


def test_an_alert_is_made_by_keyboard_alone(
    opened: Page, served: list[tuple[str, str]], standing: StandingQueries
) -> None:
    press_until(opened, "link-standing")
    opened.keyboard.press("Enter")
    expect(opened.locator("#page-standing")).to_be_visible()
    press_until(opened, "standing-name")
    opened.keyboard.type("frost")
    press_until(opened, "condition")
    opened.keyboard.type("A value is ab")
    press_until(opened, "condition-below")
    opened.keyboard.type("0 degC")
    press_until(opened, "condition-clear")
    opened.keyboard.type("1 degC")
    opened.keyboard.press("Enter")
    expect(row(opened, "frost")).to_be_visible()
    (made,) = standing.listing()
    assert made["class"] == "alert"
    assert (made["condition"]["kind"], made["query"]) == ("threshold", FROST["query"])
    assert ("POST", "standing") in served


def test_a_network_that_is_silent_raises_an_alert_by_mouse(
    opened: Page, served: list[tuple[str, str]], standing: StandingQueries
) -> None:
    show(opened, "Standing")
    before = json.loads(opened.locator("#standing-query").input_value())
    opened.get_by_label("Name", exact=True).fill("quiet")
    opened.get_by_label("Alert when").select_option("silent")
    expect(opened.locator("#listening")).to_be_visible()
    assert json.loads(opened.locator("#standing-query").input_value())["steps"] == []
    opened.get_by_label("Alert when").select_option("missing")
    expect(opened.locator("#listening")).to_be_hidden()
    assert json.loads(opened.locator("#standing-query").input_value()) == before, "its steps come back"
    opened.get_by_label("Alert when").select_option("silent")
    opened.get_by_label("After").fill("30min")
    opened.get_by_role("button", name="Create").click()
    expect(row(opened, "quiet")).to_be_visible()
    (made,) = standing.listing()
    assert (made["class"], made["condition"]) == ("alert", {"kind": "silent", "after": "30min"})
    assert ("POST", "standing") in served


def test_a_network_that_is_silent_by_keyboard(
    opened: Page, served: list[tuple[str, str]], standing: StandingQueries
) -> None:
    press_until(opened, "link-standing")
    opened.keyboard.press("Enter")
    press_until(opened, "standing-name")
    opened.keyboard.type("quiet")
    press_until(opened, "condition")
    opened.keyboard.type("Nothing comes")
    press_until(opened, "condition-after")
    opened.keyboard.type("2h")
    opened.keyboard.press("Enter")
    expect(row(opened, "quiet")).to_be_visible()
    (made,) = standing.listing()
    assert made["condition"] == {"kind": "silent", "after": "2h"}
    assert ("POST", "standing") in served


def test_it_is_paused_muted_tested_and_removed(
    opened: Page, served: list[tuple[str, str]], standing: StandingQueries
) -> None:
    standing.add(FROST)
    show(opened, "Standing")
    for act, state in (("Pause", "paused"), ("Resume", "up to date"), ("Mute 1 h", "muted until"), ("Unmute", "up to")):
        opened.get_by_role("button", name=f"{act}: frost").click()
        expect(row(opened, "frost")).to_contain_text(state)
    opened.get_by_role("button", name="Test: frost").click()
    expect(opened.locator("#alerts")).to_contain_text("this is a test")
    opened.get_by_role("button", name="Explore: frost").click()
    expect(opened.get_by_label("Query (JSON)").locator("visible=true")).to_have_value(re.compile("10min"))
    show(opened, "Standing")
    opened.once("dialog", lambda dialog: dialog.dismiss())
    opened.get_by_role("button", name="Remove: frost").click()
    assert [one["name"] for one in standing.listing()] == ["frost"], "nobody agreed"
    opened.once("dialog", lambda dialog: dialog.accept())
    opened.get_by_role("button", name="Remove: frost").click()
    expect(opened.locator("#standing-list")).to_contain_text("There are no standing queries")
    assert standing.listing() == []
    assert ("DELETE", "standing/frost") in served


def test_it_is_edited_by_mouse(opened: Page, served: list[tuple[str, str]], standing: StandingQueries) -> None:
    document = {**FROST, "weight": 12, "validity": "20min", "window": "2h", "to": ["events", "archive"]}
    standing.add(document)
    before = standing.listing()[0]
    show(opened, "Standing")
    opened.get_by_role("button", name="Edit: frost").click()
    expect(opened.get_by_role("heading", name="Change frost")).to_be_visible()
    assert opened.get_by_label("Name", exact=True).get_attribute("readonly") is not None
    expect(opened.get_by_label("Below", exact=True)).to_have_value("0 degC")
    opened.get_by_role("button", name="Save changes").click()
    expect(opened.locator("#standing-problem")).to_contain_text("frost is as the form said")
    same = standing.listing()[0]
    assert {**same, "created": None, "snapshot": None} == {**before, "created": None, "snapshot": None}
    opened.get_by_role("button", name="Edit: frost").click()
    opened.get_by_label("Weight").fill("30")
    opened.get_by_label("Below", exact=True).fill("-10 degC")
    opened.get_by_label("Over again at").fill("")
    opened.get_by_role("button", name="Save changes").click()
    expect(row(opened, "frost")).to_contain_text("30")
    (changed,) = standing.listing()
    assert changed["condition"] == {"kind": "threshold", "below": "-10 degC"}
    assert (changed["weight"], changed["to"], changed["window"]) == (30, ["events", "archive"], "2h")
    expect(opened.get_by_role("button", name="Create")).to_be_visible()
    assert ("POST", "standing/frost/replace") in served


def test_an_edit_is_left_by_keyboard_and_what_does_not_fit_changes_nothing(
    page: Page, address: str, served: list[tuple[str, str]], standing: StandingQueries
) -> None:
    standing.add(FROST)
    page.goto(f"{address}#standing")
    page.wait_for_selector("#standing-list button")
    page.get_by_role("button", name="Edit: frost").focus()
    page.keyboard.press("Enter")
    assert page.evaluate("() => document.activeElement.id") == "standing-weight"
    page.keyboard.press("Control+A")
    page.keyboard.type("-1")
    page.keyboard.press("Enter")
    expect(page.locator("#standing-problem .problem")).to_contain_text("weight")
    assert standing.listing()[0]["weight"] == 10
    press_until(page, "leave-edit")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="New standing query")).to_be_visible()
    assert page.evaluate("() => document.activeElement.id") == "standing-name"
    expect(page.get_by_label("Name", exact=True)).to_have_value("")
    assert ("POST", "standing/frost/replace") in served


def test_what_cannot_stand_is_told(page: Page, address: str, served: list[tuple[str, str]]) -> None:
    page.goto(f"{address}#standing")
    page.wait_for_selector("body[data-ready=yes]")
    page.get_by_label("Name", exact=True).fill("No Name")
    page.get_by_role("button", name="Create").click()
    expect(page.locator("#standing-problem")).to_contain_text("1 to 63 lower-case letters")
    page.get_by_label("Name", exact=True).fill("quiet")
    page.get_by_label("Alert when").select_option("silent")
    page.get_by_role("button", name="Create").click()
    expect(page.locator("#standing-problem")).to_contain_text("needs 'after', such as '30min'")
    assert ("POST", "standing") in served


def test_alerts_and_freshness_are_shown_as_they_come(
    opened: Page, served: list[tuple[str, str]], standing: StandingQueries
) -> None:
    show(opened, "Standing")
    expect(opened.locator("#standing-list")).to_contain_text("There are no standing queries")
    standing.add({**FROST, "name": "late-frost"})
    standing.test("late-frost")
    expect(row(opened, "late-frost")).to_be_visible()
    expect(opened.locator("#alerts")).to_contain_text("late-frost")
    opened.get_by_label("Of", exact=True).select_option("late-frost")
    expect(opened.locator("#alerts tbody tr")).to_have_count(1)
    assert all(method == "GET" for method, _ in served)
