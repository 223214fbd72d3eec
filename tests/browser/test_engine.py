"""Engine: plans as graphs, what moves, caches, the scheduler's choices, snapshots."""

import pytest
from playwright.sync_api import Page, expect

import hypergrid as hg
from tests.browser.pages import SMALL, data, eventually, press_until, run, show

pytestmark = pytest.mark.browser


def test_the_plan_of_a_query_is_a_graph(opened: Page) -> None:
    run(opened, SMALL)
    show(opened, "Engine")
    graph = opened.get_by_role("img", name="A plan of")
    expect(graph).to_be_visible(timeout=10_000)
    expect(graph.locator(".node")).to_have_count(3)
    expect(graph.locator(".arrow")).to_have_count(2)
    expect(graph).to_contain_text("ordinary_kriging")
    expect(opened.locator("#plan-graph")).to_contain_text("This query: done, 100 % computed")
    expect(graph).to_contain_text("cells/s when last computed")
    opened.locator("#plan-graph").get_by_text("As a table").click()
    expect(opened.locator("#plan-graph table tbody tr")).to_have_count(3)
    # The readings were folded as they were read: they have no time of their own, and are computed all the same.
    expect(graph).to_contain_text("in the time of the next step")
    expect(opened.locator("#plan-graph")).not_to_contain_text("not computed")


def test_a_plan_that_was_never_computed_says_so(opened: Page) -> None:
    show(opened, "Engine")
    opened.get_by_label("Plan of").select_option("saved:q4")
    expect(opened.get_by_role("img", name="A plan of 5")).to_contain_text("not computed here yet", timeout=10_000)
    expect(opened.locator("#plan-graph")).not_to_contain_text("in the time of")


def test_a_plan_is_chosen_by_keyboard_and_linked(opened: Page, address: str) -> None:
    show(opened, "Engine")
    expect(opened.locator("#plan-graph svg")).to_be_visible(timeout=10_000)
    press_until(opened, "plan-of")
    opened.keyboard.type("saved query q5_fine")
    expect(opened.locator("#plan-of")).to_have_value("saved:q5_fine")
    expect(opened.locator("#plan-graph")).to_contain_text("A plan of 5 perspectives", timeout=10_000)
    assert "plan=saved" in opened.url
    link = opened.url
    opened.goto(address)
    opened.goto(link)
    expect(opened.locator("#plan-of")).to_have_value("saved:q5_fine", timeout=10_000)


def test_what_moves_moves_without_flicker(opened: Page) -> None:
    show(opened, "Engine")
    opened.wait_for_selector("#page-engine .picture canvas")
    place = opened.locator("#page-engine .picture").first
    eventually(opened, lambda: bool(place.evaluate("(one) => Boolean(one.figure)")))
    place.evaluate("(one) => { one.id = 'moving'; one.marked = one.figure; }")
    before = len(data(opened, "lines", "times", "moving")[0])
    eventually(opened, lambda: len(data(opened, "lines", "times", "moving")[0]) >= before + 2)
    assert place.evaluate("(one) => one.marked === one.figure"), "the same figure, with newer values"


def test_caches_choices_and_snapshots(opened: Page, archive: hg.OpenArchive) -> None:
    show(opened, "Engine")
    expect(opened.locator("#caches tbody tr")).to_have_count(3)
    expect(opened.locator("#caches")).to_contain_text("Kriging weights")
    expect(opened.locator("#choices")).to_contain_text("opt-profit")
    expect(opened.locator("#snapshots tbody tr")).to_have_count(len(archive.snapshots))
    # Both were committed at the same time: one dot stands for them.
    expect(opened.locator("#snapshots circle")).to_have_count(1)
    expect(opened.locator("#snapshots circle title")).to_contain_text(f", and {len(archive.snapshots) - 1} more")
    expect(opened.locator("#snapshots")).to_contain_text(archive.snapshot)
    expect(opened.locator("#tiles")).to_contain_text("Queries running")
