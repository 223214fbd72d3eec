"""Explore begins with a question of its archive, and carries it over to each of its variables."""

import json
import re
from typing import Any

import httpx
import numpy as np
import pytest
from playwright.sync_api import Page, expect

import hypergrid as hg
from tests.browser.pages import SMALL, eventually, image, wait_for, write, written

pytestmark = pytest.mark.browser


def values(page: Page) -> np.ndarray:
    """Return the values of the map that is shown."""
    return np.array([value for value in image(page)["values"] if value is not None], np.float64)


def begin(page: Page, address: str) -> None:
    page.goto(f"{address}#explore")
    page.wait_for_selector("body[data-ready=yes]")
    wait_for(page, "Done")


def test_the_first_picture_comes_without_a_click(page: Page, address: str, complaints: list[str]) -> None:
    begin(page, address)
    suggested = httpx.get(f"{address}api/v1/suggestion", timeout=60).json()
    assert written(page) == suggested["query"]
    expect(page.locator("#document-hint")).to_contain_text("newest")
    expect(page.locator("#caption")).to_contain_text("100 % computed")
    assert np.ptp(values(page)) > 0.1
    # What was chosen and why stands below the map.
    expect(page.locator("#notes")).to_contain_text("auto chose")
    assert "run=1" in page.url
    assert complaints == []


def test_every_variable_gets_a_picture(page: Page, address: str, archive: hg.OpenArchive) -> None:
    begin(page, address)
    for name in archive.variables:
        if name != written(page)["variable"]:
            page.get_by_label("Variable", exact=True).select_option(name)
        called = re.escape(archive.variables[name].long_name)
        expect(page.locator("#caption")).to_have_text(re.compile(rf"^Map of (growth of )?{called} \["), timeout=60_000)
        expect(page.locator("#caption")).to_contain_text("100 % computed")
        document = written(page)
        assert document["variable"] == name
        shown, at_stations = values(page), means(archive, document)
        assert shown.size
        unit = archive.variables[name].unit
        between, among = (spread(each, unit) for each in (shown, at_stations))
        # Interpolation smooths; where it shows less than half of what the stations differ by, it says why.
        assert between >= 0.5 * among or "the mean of the stations" in page.inner_text("#notes"), (name, between, among)


def means(archive: hg.OpenArchive, document: dict[str, Any]) -> np.ndarray:
    """Return what the map is interpolated from."""
    before = [step for step in document["steps"] if step["op"] != "interpolate"]
    found = archive.query({**document, "steps": before}).compute()["value"].to_numpy().ravel()
    return np.asarray(found[np.isfinite(found)])


def spread(found: np.ndarray, unit: str) -> float:
    if unit != "degree":
        return float(np.ptp(found))
    # Of directions, as far as they are from their mean.
    turned = np.exp(1j * np.radians(found))
    return float(np.ptp(np.degrees(np.angle(turned / turned.mean()))))


def test_a_query_of_ones_own_is_carried_over_with_notes(opened: Page, archive: hg.OpenArchive) -> None:
    write(opened, {**SMALL, "clip": {"time": ["2007-10-01T00:00Z", "2007-10-02T00:00Z"]}})
    eventually(opened, lambda: "6h" in json.dumps(written(opened)))
    opened.get_by_label("Variable", exact=True).select_option("rain_meter")
    eventually(opened, lambda: written(opened)["variable"] == "rain_meter")
    steps = written(opened)["steps"]
    assert [step.get("function") or step["method"] for step in steps] == ["rain_accumulation", "auto"]
    assert steps[0]["time"] == "6h"
    assert steps[1]["grid"] == SMALL["steps"][1]["grid"]
    expect(opened.locator("#document-hint")).to_contain_text("mean is now rain_accumulation")
    # What is seen was changed, so it is asked at once.
    wait_for(opened, "Done")
    expect(opened.locator("#caption")).to_contain_text("Map of")
    archive.query(written(opened)).surface()


def test_an_answer_without_values_has_no_picture(opened: Page) -> None:
    document = {**SMALL, "steps": [{"op": "convert", "function": "valid_range", "params": {"low": 900, "high": 901}}]}
    document["steps"] += SMALL["steps"]
    write(opened, document)
    opened.get_by_role("button", name="Run", exact=True).click()
    wait_for(opened, "every one of")
    expect(opened.locator("#picture")).to_contain_text("every cell is missing")
    assert opened.locator("#picture canvas").count() == 0
    assert "100 %" not in opened.inner_text("#status")
    expect(opened.locator("#notes li").first).to_be_visible()


def test_saved_queries_are_offered_where_they_can_be_answered(opened: Page) -> None:
    expect(opened.locator("#saved option")).not_to_have_count(1)
    offered = opened.locator("#saved option").all_inner_texts()
    # That of radiation is of 28 days, of which the archive has one.
    assert "q1" in offered
    answerable = httpx.get(f"{opened.url.split('#')[0]}api/v1/saved?answerable=true", timeout=60).json()
    assert sorted(offered[1:]) == sorted(answerable)


def test_a_question_that_runs_gives_way_to_another(page: Page, address: str) -> None:
    begin(page, address)
    button = page.get_by_role("button", name="Run", exact=True)
    expect(button).to_be_enabled()
    write(page, SMALL)
    button.click()
    wait_for(page, "Done")
    expect(page.locator("#caption")).to_contain_text("23 by 23 cells")
