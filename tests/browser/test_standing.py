"""Standing: alerts are made by what, when and whom, with a preview; they are seen where and when, and acknowledged."""

import json
import re
from collections.abc import Iterator
from typing import Any, Final
from urllib.parse import urlencode

import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from hypergrid.core.times import format_timestamp, parse_instant
from queries.standing.conditions import Episode
from queries.standing.repository import Alert, EvaluationProgress, EvaluationResult
from queries.standing.service import StandingQueries
from tests.browser.pages import SMALL, choose_by_arrows, data, eventually, press_until, show

pytestmark = pytest.mark.browser

FROST: Final[dict[str, Any]] = {
    "name": "frost",
    "query": {"variable": "air_temperature", "steps": [{"op": "aggregate", "function": "mean", "time": "10min"}]},
    "condition": {"kind": "threshold", "below": "0 degC", "clear": "1 degC"},
}
MOST_ACTIONS: Final = 12
"""On a phone, from opening the page to an alert."""
SINCE: Final = {"4": "2007-10-01T10:00Z", "7": "2007-10-01T20:30Z"}
"""Stations in alert, and since when."""


@pytest.fixture
def served(page: Page, standing: StandingQueries) -> Iterator[list[tuple[str, str]]]:
    """What was asked to change, as method and path; each test begins without standing queries."""
    asked: list[tuple[str, str]] = []
    page.on(
        "request",
        lambda request: (
            asked.append((request.method, request.url.partition("/api/v1/")[2])) if "/standing" in request.url else None
        ),
    )
    yield asked
    for one in standing.listing():
        standing.remove(one["name"])


@pytest.fixture
def raised(standing: StandingQueries, served: list[tuple[str, str]]) -> list[int]:
    """Give the numbers of two alerts that stand, and of one that is over."""
    standing.add({**FROST, "title": "Frost in the vineyard!"})
    entry = standing.store.entry("frost")
    over = Episode("9", parse_instant("2007-09-30T10:00Z"), parse_instant("2007-09-30T14:00Z"))
    episodes = (*(Episode(place, parse_instant(since)) for place, since in SINCE.items()), over)
    alerts = []
    for index, episode in enumerate(episodes):
        until = None if episode.cleared_ns is None else format_timestamp(episode.cleared_ns)
        reading = {"time": format_timestamp(episode.onset_ns), "value": -1.25, "unit": "degC", "measure": -1.25}
        body = {
            "variable": "air_temperature", "place": episode.place, "since": format_timestamp(episode.onset_ns),
            "until": until, "text": f"frost raised at {episode.place}", "rule": "value below 0 °C", "late": False,
            "readings": [reading], "condition": FROST["condition"], "snapshot": entry.progress.snapshot,
        }  # fmt: skip
        alerts.append((Alert("frost", "raised", body, episode.onset_ns), index))
        if until:
            alerts.append((Alert("frost", "cleared", body, episode.onset_ns), None))
    progress = EvaluationProgress(entry.progress.snapshot, judged_ns=parse_instant("2007-10-02"), episodes=episodes)
    ((_, kept),) = standing.store.keep([EvaluationResult("frost", progress, tuple(alerts))])
    return [alert.number for alert in kept if alert.happening == "raised"]


def row(page: Page, name: str) -> Locator:
    return page.locator("#standing-list tbody tr").filter(has_text=name)


def query_of(page: Page) -> dict[str, Any]:
    """Return the query that the form makes."""
    return dict(json.loads(page.locator("#standing-query").input_value()))


def first_line(page: Page) -> str:
    """Return the name of the first line of the preview; empty as long as none is drawn."""
    figure = "document.getElementById('preview-picture').figure"
    return str(page.evaluate(f"() => {figure}?.find('lines').data.station[0] ?? ''"))


def open_form(page: Page, address: str) -> None:
    """Open the page, whose form is open while there is no standing query, and wait for the query that it makes."""
    page.goto(f"{address}#standing")
    eventually(page, lambda: "variable" in page.locator("#standing-query").input_value())


def test_an_alert_is_made_by_mouse_while_its_preview_follows(
    opened: Page, address: str, served: list[tuple[str, str]], standing: StandingQueries
) -> None:
    open_form(opened, address)
    groups = opened.locator("#standing-form legend").all_inner_texts()
    assert groups == ["What", "When", "Notify"]
    expect(opened.locator("#standing-query")).to_be_hidden()
    opened.get_by_label("Variable", exact=True).locator("visible=true").select_option("air_temperature")
    # A number of the recent values is proposed, with its unit.
    level = opened.get_by_label("Threshold [°C]")
    expect(level).to_have_value(re.compile(r"^-?\d+(\.\d+)?$"))
    said = opened.locator("#preview-words")
    expect(said).to_contain_text(re.compile(r"^\d+ alerts? on \d+ stations?: "))
    opened.wait_for_selector("#preview-picture canvas")
    eventually(opened, lambda: len(data(opened, "bands", "times", "preview-picture")) > 0)
    names = data(opened, "lines", "station", "preview-picture")
    assert names[-1].startswith("Threshold "), "the number is a line"
    assert 2 < len(names) <= 13
    keys = opened.locator("#standing-preview .legend li").all_inner_texts()
    assert (keys[0], keys[-1]) == (names[-1], "While an alert lasts")
    assert len(keys) >= 3, "places with alerts, or how many, are named"
    opened.get_by_label("The value", exact=True).select_option(label="is below")
    opened.get_by_label("Threshold [°C]").fill("-80")
    expect(said).to_contain_text("No alert would have been raised from 2007-09-")
    assert data(opened, "bands", "times", "preview-picture") == []
    opened.get_by_label("Threshold [°C]").fill("80")
    expect(said).to_contain_text(re.compile(r"^\d+ alerts on \d+ stations"))
    expect(opened.locator("#standing-preview table tbody tr").first).to_contain_text(
        "air-temperature-below-80-c raised"
    )
    opened.get_by_label("Threshold [°C]").fill("0")
    opened.get_by_label("Clear at").fill("1")
    opened.get_by_label("Title").fill("Frost in the vineyard!")
    opened.get_by_label("Email").fill("warden@example.org")
    opened.get_by_role("button", name="Create").click()
    expect(opened.locator("#standing-problem")).to_contain_text("Frost in the vineyard! is kept up to date")
    expect(row(opened, "Frost in the vineyard!")).to_contain_text("up to date")
    (made,) = standing.listing()
    assert (made["name"], made["title"]) == ("frost-in-the-vineyard", "Frost in the vineyard!")
    assert (made["class"], made["to"]) == ("alert", ["events", "email:warden@example.org"])
    assert made["condition"] == {"kind": "threshold", "below": 0, "clear": 1}
    assert made["query"] == FROST["query"]
    assert ("POST", "standing") in served


def test_every_place_makes_a_query_that_the_engine_answers(
    page: Page, address: str, served: list[tuple[str, str]]
) -> None:
    open_form(page, address)
    where = page.get_by_label("Where")
    words = page.locator("#standing-sentence")
    said = page.locator("#preview-words")
    expect(words).to_have_text("Air temperature: mean over 10min.")
    where.select_option(label="One station")
    page.get_by_label("Station", exact=True).locator("visible=true").fill("7")
    expect(words).to_have_text("Air temperature: mean over 10min, at station 7.")
    eventually(page, lambda: first_line(page) == "7")
    # A coarse step, so that maps of a week take no time.
    page.locator("#standing-details summary").click()
    page.get_by_label("Each value is over").fill("6h")
    where.select_option(label="The map, its most extreme cell")
    expect(words).to_contain_text("then a map (method chosen by itself)")
    eventually(page, lambda: first_line(page) == "map")
    expect(said).to_contain_text(re.compile("on the map would|No alert would|Give a threshold"))
    assert max(query_of(page)["steps"][-1]["grid"]["shape"]) <= 20
    where.select_option(label="The mean over the map")
    expect(words).to_contain_text("then mean.")
    eventually(page, lambda: query_of(page)["steps"][-1] == {
        "op": "aggregate", "function": "mean", "lon": "all", "lat": "all",
    })  # fmt: skip
    expect(said).to_contain_text(re.compile("on the map would|No alert would|Give a threshold"))
    where.select_option(label="Each station")
    page.get_by_label("The value", exact=True).select_option(label="rises by more than")
    expect(page.get_by_label(re.compile(r"^Threshold \["))).to_have_value(re.compile(r"\d"))
    page.get_by_label("Within").fill("7h")
    expect(said).to_contain_text("is no multiple of the surface's step of 6h")


def test_an_alert_is_made_by_keyboard_alone(
    opened: Page, served: list[tuple[str, str]], standing: StandingQueries
) -> None:
    press_until(opened, "link-standing")
    opened.keyboard.press("Enter")
    expect(opened.locator("#standing-form")).to_be_visible()
    press_until(opened, "condition")
    choose_by_arrows(opened, "condition", "missing")
    press_until(opened, "condition-after")
    opened.keyboard.press("Control+A")
    opened.keyboard.type("2h")
    press_until(opened, "standing-name")
    opened.keyboard.type("Gone")
    expect(opened.locator("#preview-words")).to_contain_text(re.compile("would have been raised"))
    opened.keyboard.press("Enter")
    expect(row(opened, "Gone")).to_be_visible()
    (made,) = standing.listing()
    assert (made["class"], made["condition"]) == ("alert", {"kind": "missing", "after": "2h"})
    assert ("POST", "standing") in served


def test_what_listens_has_no_steps_and_a_missing_number_is_told(
    page: Page, address: str, served: list[tuple[str, str]], standing: StandingQueries
) -> None:
    open_form(page, address)
    before = query_of(page)
    assert before["steps"]
    way = page.get_by_label("The value", exact=True)
    way.select_option(label="stops coming from all stations")
    expect(page.locator("#listening")).to_be_visible()
    assert query_of(page)["steps"] == []
    way.select_option(label="is missing for")
    expect(page.locator("#listening")).to_be_hidden()
    assert query_of(page) == before, "its steps come back"
    way.select_option(label="stops coming from a station")
    expect(page.locator("#preview-words")).to_contain_text("would have been raised")
    page.get_by_role("button", name="Create").click()
    expect(row(page, "Air temperature: station silent")).to_be_visible()
    (made,) = standing.listing()
    assert (made["class"], made["condition"]) == ("alert", {"kind": "dead"})
    way.select_option(label="is above")
    page.get_by_label(re.compile(r"^Threshold")).fill(" ")
    page.get_by_role("button", name="Create").click()
    expect(page.locator("#standing-problem")).to_contain_text("The threshold is missing")
    page.get_by_label("Webhook").fill("http://hooks.example.org/x")
    page.get_by_label(re.compile(r"^Threshold")).fill("5")
    page.get_by_role("button", name="Create").click()
    expect(page.locator("#standing-problem")).to_contain_text("'hooks.example.org', which is not allowed")
    assert len(standing.listing()) == 1


def test_a_question_from_explore_is_kept_up_to_date(
    page: Page, address: str, served: list[tuple[str, str]], standing: StandingQueries
) -> None:
    question = {**SMALL, "clip": {"time": ["2007-10-01T00:00Z", "2007-10-01T06:00Z"]}}
    page.goto(f"{address}#standing?{urlencode({'q': json.dumps(question)})}")
    expect(page.locator("#standing-sentence")).to_have_text(
        "Air temperature: mean over 6h, then a map (ordinary kriging)."
    )
    expect(page.get_by_label("Where")).to_have_value("own")
    assert query_of(page) == {"variable": SMALL["variable"], "steps": SMALL["steps"]}, "it reads what comes"
    expect(page.get_by_label("The value", exact=True)).to_have_value("none")
    page.get_by_label("Title").fill("Small map")
    page.locator("#standing-details summary").click()
    page.get_by_label("Weight").fill("4")
    page.get_by_role("button", name="Create").click()
    expect(row(page, "Small map")).to_contain_text("up to date")
    (made,) = standing.listing()
    assert (made["name"], made["class"], made["weight"]) == ("small-map", "user", 4)
    assert ("POST", "standing") in served


def test_it_is_paused_muted_tested_and_removed(
    opened: Page, served: list[tuple[str, str]], standing: StandingQueries
) -> None:
    standing.add(FROST)
    show(opened, "Standing")
    expect(opened.locator("#standing-form-part")).to_be_hidden()
    for act, state in (("Pause", "paused"), ("Resume", "up to date"), ("Mute 1 h", "muted until"), ("Unmute", "up to")):
        opened.get_by_role("button", name=f"{act}: frost").click()
        expect(row(opened, "frost")).to_contain_text(state)
    opened.get_by_role("button", name="Test: frost").click()
    opened.get_by_text("All alerts as a table").click()
    expect(opened.locator("#alerts")).to_contain_text("this is a test")
    opened.get_by_role("button", name="Explore: frost").click()
    expect(opened.locator("#page-explore")).to_be_visible()
    assert "10min" in opened.url
    show(opened, "Standing")
    opened.get_by_role("button", name="Remove: frost").click()
    dialog = opened.get_by_role("dialog", name="Remove frost?")
    dialog.get_by_role("button", name="Cancel").click()
    expect(dialog).to_be_hidden()
    assert [one["name"] for one in standing.listing()] == ["frost"], "nobody agreed"
    opened.get_by_role("button", name="Remove: frost").click()
    dialog.get_by_role("button", name="Remove").click()
    expect(opened.locator("#standing-list")).to_contain_text("There are no standing queries")
    assert standing.listing() == []
    assert ("DELETE", "standing/frost") in served


def test_it_is_edited_and_an_edit_is_left(
    page: Page, address: str, served: list[tuple[str, str]], standing: StandingQueries
) -> None:
    rate = {"kind": "rate", "below": "-3 K", "per": "1h", "clear": -1}
    documents = [
        {**FROST, "weight": 12, "validity": "20min", "window": "2h", "to": ["events", "archive"]},
        {**FROST, "name": "fall", "title": "It falls", "condition": rate, "to": ["email:a@b.org", "email:c@d.org"]},
    ]
    for document in documents:
        standing.add(document)
    before = standing.listing()
    page.goto(f"{address}#standing")
    for name, title in (("frost", "frost"), ("fall", "It falls")):
        page.get_by_role("button", name=f"Edit: {name}").click()
        expect(page.get_by_role("heading", name=f"Change {title}")).to_be_visible()
        page.get_by_role("button", name="Save changes").click()
        expect(page.locator("#standing-problem")).to_contain_text(f"{title} is as the form said")
    same = {"created": None, "snapshot": None, "judged": None}
    assert [one | same for one in standing.listing()] == [one | same for one in before], "nothing was changed"
    page.get_by_role("button", name="Edit: frost").click()
    expect(page.locator("#condition-level")).to_have_value("0 degC")
    page.locator("#standing-details summary").click()
    page.get_by_label("Weight").fill("30")
    page.locator("#condition-level").fill("-10")
    page.get_by_label("Clear at").fill("")
    page.get_by_label("Title").fill("Hard frost")
    page.get_by_role("button", name="Save changes").click()
    expect(row(page, "Hard frost")).to_contain_text("30")
    changed = standing.show("frost")
    assert changed["condition"] == {"kind": "threshold", "below": -10}
    assert (changed["weight"], changed["to"], changed["title"]) == (30, ["events", "archive"], "Hard frost")
    # What does not fit changes nothing, and an edit is left by keyboard.
    page.get_by_role("button", name="Edit: frost").focus()
    page.keyboard.press("Enter")
    assert page.evaluate("() => document.activeElement.id") == "standing-name"
    page.get_by_label("Weight").fill("-1")
    page.keyboard.press("Enter")
    expect(page.locator("#standing-problem .problem")).to_contain_text("weight")
    assert standing.show("frost")["weight"] == 30
    press_until(page, "leave-edit")
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name="New standing query")).to_be_visible()
    expect(page.get_by_label("Title")).to_have_value("")
    page.get_by_role("button", name="Close").click()
    expect(page.locator("#standing-form-part")).to_be_hidden()
    assert page.evaluate("() => document.activeElement.id") == "new-standing"


def test_a_list_that_changes_while_a_button_is_held_down_loses_no_click(
    page: Page, address: str, served: list[tuple[str, str]], standing: StandingQueries
) -> None:
    standing.add(FROST)
    page.goto(f"{address}#standing")
    edit = page.get_by_role("button", name="Edit: frost")
    # The press takes the focus from another element.
    page.get_by_role("button", name="Pause: frost").focus()
    edit.hover()
    for number, (press, release) in enumerate([
        (page.mouse.down, page.mouse.up), (lambda: page.keyboard.down("Space"), lambda: page.keyboard.up("Space"))
    ]):  # fmt: skip
        press()
        standing.add({**FROST, "name": f"another{number}"})
        # Longer than from one look to the next.
        page.wait_for_timeout(3000)
        expect(row(page, f"another{number}")).to_have_count(0)
        release()
        expect(page.get_by_role("heading", name="Change frost")).to_be_visible()
        expect(row(page, f"another{number}")).to_have_count(1)
        page.get_by_role("button", name="Leave it as it is").click()
        edit.focus()


def test_open_alerts_are_shown_acknowledged_and_commented_on(
    opened: Page, raised: list[int], standing: StandingQueries, served: list[tuple[str, str]]
) -> None:
    show(opened, "Standing")
    card = opened.locator("#open-alerts .alert-card")
    expect(card).to_have_count(1)
    expect(card).to_contain_text("Frost in the vineyard!")
    expect(card.locator("li")).to_have_count(2)
    expect(card).to_contain_text("since 2007-10-01 20:30 UTC (3.5 h) · −1.25 °C")
    expect(opened.locator("#standing-summary")).to_contain_text("2 open alerts")

    def marks() -> dict[str, str]:
        columns = [data(opened, "stations", name, "alerts-map") for name in ("id", "marker")]
        return {station: marker for station, marker in zip(*columns, strict=True) if marker != "circle"}

    eventually(opened, lambda: bool(opened.locator("#alerts-map").evaluate("(one) => Boolean(one.figure)")))
    eventually(opened, lambda: marks() == {"4": "diamond", "7": "diamond"})
    expect(opened.locator("#alerts-axis .bar")).to_have_count(3)
    expect(opened.locator("#alerts-axis .row-name")).to_have_count(1)
    opened.get_by_label("A row for each").select_option(label="station or place")
    expect(opened.locator("#alerts-axis .row-name")).to_have_count(3)
    opened.get_by_label("Time", exact=True).locator("visible=true").select_option(label="The last day")
    expect(opened.locator("#alerts-axis .bar")).to_have_count(2)
    opened.get_by_role("button", name="Acknowledge: Frost in the vineyard! at 4").click()
    expect(opened.locator("#open-alerts .alert-card.acknowledged li")).to_have_count(1)
    expect(opened.locator("#open-alerts .alert-card.open li")).to_have_count(1)
    eventually(opened, lambda: marks() == {"4": "triangle", "7": "diamond"})
    opened.get_by_role("button", name="Comment …: Frost in the vineyard! at 7").click()
    opened.keyboard.type("The fan runs")
    # The list is drawn anew when something else happens, and what is typed stays.
    standing.remark(raised[0], "commented", author="ana", comment="Seen <b>")
    expect(opened.locator("#open-alerts .acknowledged .remark").last).to_contain_text("ana, ")
    expect(opened.get_by_label("Comment", exact=True)).to_have_value("The fan runs")
    opened.keyboard.press("Enter")
    expect(opened.locator("#open-alerts .alert-card.open .remark")).to_contain_text("“The fan runs”")
    opened.get_by_text("All alerts as a table").click()
    expect(opened.locator("#alerts tbody tr").first).to_contain_text(
        "frost commented at 7 by this machine: The fan runs"
    )
    opened.reload()
    expect(opened.locator("#open-alerts .alert-card.acknowledged")).to_contain_text("“Seen <b>”")
    opened.get_by_role("button", name="Open again: Frost in the vineyard! at 4").click()
    expect(opened.locator("#open-alerts .alert-card.open li")).to_have_count(2)
    opened.get_by_role("button", name="Acknowledge all 2").click()
    expect(opened.locator("#open-alerts")).to_contain_text("No alert is open.")
    assert [one["acknowledged"] for one in standing.show("frost")["standing"]] == [True, True]
    assert ("POST", f"standing/alerts/{raised[0]}/reopen") in served


def test_a_phone_shows_alerts_first_and_makes_one_in_few_actions(
    browser: Browser, address: str, raised: list[int], standing: StandingQueries
) -> None:
    context = browser.new_context(viewport={"width": 390, "height": 844}, has_touch=True, is_mobile=True)
    try:
        page = context.new_page()
        actions = 0

        def act(on: Any) -> None:  # noqa: ANN401 - whatever Playwright returns
            nonlocal actions
            actions += 1
            assert on is None or on
            assert page.evaluate("() => document.documentElement.scrollWidth") <= 390

        act(page.goto(address))
        page.wait_for_selector("body[data-ready=yes]")
        act(page.get_by_role("navigation", name="Pages").get_by_role("link", name="Standing").tap())
        expect(page.locator("#open-alerts li").first).to_be_in_viewport()
        act(page.get_by_role("button", name="New standing query").tap())
        act(page.get_by_label("Variable", exact=True).locator("visible=true").select_option("relative_humidity"))
        act(page.get_by_label("The value", exact=True).select_option(label="is above"))
        expect(page.get_by_label("Threshold [%]")).to_have_value(re.compile(r"\d"))
        act(page.get_by_label("Threshold [%]").fill("95"))
        act(page.get_by_label("Title").fill("Wet"))
        act(page.get_by_role("button", name="Create").tap())
        expect(page.locator("#standing-problem")).to_contain_text("Wet is kept up to date")
        assert actions <= MOST_ACTIONS
    finally:
        context.close()
    assert standing.show("wet")["condition"] == {"kind": "threshold", "above": 95}


def test_alerts_and_freshness_are_shown_as_they_come(
    opened: Page, served: list[tuple[str, str]], standing: StandingQueries
) -> None:
    show(opened, "Standing")
    expect(opened.locator("#standing-list")).to_contain_text("There are no standing queries")
    expect(opened.locator("#open-alerts")).to_have_text("No alert is open.")
    standing.add({**FROST, "name": "late-frost"})
    standing.test("late-frost")
    expect(row(opened, "late-frost")).to_be_visible()
    opened.get_by_text("All alerts as a table").click()
    expect(opened.locator("#alerts")).to_contain_text("late-frost")
    opened.get_by_label("Of", exact=True).select_option("late-frost")
    expect(opened.locator("#alerts tbody tr")).to_have_count(1)
    assert {path for method, path in served if method != "GET"} <= {"standing/preview"}
