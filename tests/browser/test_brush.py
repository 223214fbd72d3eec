"""Linked brushing: what is chosen in one picture is marked in the one beside it; by dragging, and by values."""

from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Browser, Page, expect

import hypergrid as hg
from tests.browser.pages import SMALL, axe, box_of, data, eventually, image, press_until, run, serious, wait_for

pytestmark = pytest.mark.browser

HOURLY = {**SMALL, "steps": [{"op": "aggregate", "function": "mean", "time": "1h"}, SMALL["steps"][1]]}
WIND = {
    "variable": "wind_speed",
    "steps": [{"op": "aggregate", "function": "max", "time": "1h"}],
    "select": {"station": "1"},
}
RADIATION = {
    "variable": "solar_radiation",
    "steps": [{"op": "aggregate", "function": "mean", "time": "1h"}],
    "select": {"station": "1"},
}


def paled(page: Page, place: str) -> np.ndarray:
    """Return which cells of a map are paled, for they were not chosen."""
    told = dict(data(page, "brush", "image", place)[0])
    return np.array([value is not None for value in told["values"]]).reshape(told["shape"])


def beside(page: Page, document: dict[str, Any], variable: str) -> None:
    """Ask, and have the same of another variable beside it."""
    page.get_by_label("Beside it").select_option(f"variable:{variable}")
    run(page, document)
    wait_for(page, "beside: Done")


def maps(page: Page) -> None:
    """Show two maps beside each other."""
    beside(page, HOURLY, "relative_humidity")
    for caption in ("caption", "caption-second"):
        expect(page.locator(f"#{caption}")).to_contain_text("100 % computed")
    eventually(page, lambda: bool(page.evaluate("() => document.getElementById('picture-second').figure?.brushes")))


def drag(page: Page, place: str, path: list[tuple[float, float]]) -> None:
    """Drag over a picture, along points as shares of its width and height."""
    page.evaluate("(id) => document.getElementById(id).scrollIntoView({ block: 'center' })", place)
    box = box_of(page, f"#{place}")
    at = [(box["x"] + x * box["width"], box["y"] + y * box["height"]) for x, y in path]
    page.mouse.move(*at[0])
    page.mouse.down()
    for one in at[1:]:
        page.mouse.move(*one, steps=8)
    page.mouse.up()


def test_a_box_in_one_map_is_marked_in_both_by_mouse(opened: Page) -> None:
    opened.set_viewport_size({"width": 1280, "height": 1000})
    maps(opened)
    assert not paled(opened, "picture").any()
    opened.locator("#brush summary").click()
    opened.get_by_label("Dragging").select_option("box")
    drag(opened, "picture", [(0.4, 0.4), (0.6, 0.6)])
    eventually(opened, lambda: paled(opened, "picture").shape == (23, 23))
    chosen = ~paled(opened, "picture")
    np.testing.assert_array_equal(~paled(opened, "picture-second"), chosen)
    rows, columns = chosen.any(axis=1), chosen.any(axis=0)
    assert 0 < chosen.sum() < 529
    assert chosen.sum() == rows.sum() * columns.sum(), "a box"
    shown = image(opened)
    mean = np.array(shown["values"]).reshape(23, 23)[chosen].mean()
    told = opened.locator("#brushed")
    expect(told).to_contain_text(f"{chosen.sum()} of 529 cells chosen")
    number = told.inner_text().partition("Air temperature: ")[2].split(" ")[0].replace("−", "-")
    assert float(number) == pytest.approx(mean, abs=0.006)
    # It works the other way round, too, and around a shape.
    opened.get_by_label("Dragging").select_option("lasso")
    drag(opened, "picture-second", [(0.3, 0.3), (0.6, 0.3), (0.3, 0.7), (0.3, 0.3)])
    eventually(opened, lambda: not np.array_equal(~paled(opened, "picture"), chosen))
    around = ~paled(opened, "picture")
    np.testing.assert_array_equal(~paled(opened, "picture-second"), around)
    assert around.sum() < around.any(axis=1).sum() * around.any(axis=0).sum(), "a triangle is no box"
    opened.get_by_role("button", name="Choose nothing").click()
    expect(told).to_be_hidden()
    assert not paled(opened, "picture").any()
    opened.get_by_label("Dragging").select_option("move")
    low = "() => document.getElementById('picture').figure.plot.x_range.start"
    before = opened.evaluate(low)
    drag(opened, "picture", [(0.5, 0.5), (0.6, 0.5)])
    assert opened.evaluate(low) < before
    assert not paled(opened, "picture").any()


def test_bright_hours_are_marked_in_both_lines_by_keyboard(
    opened: Page, archive: hg.OpenArchive, browser: Browser
) -> None:
    beside(opened, RADIATION, "surface_temperature")
    opened.get_by_label("Lines over time").check()
    expect(opened.locator("#caption-second")).to_contain_text("Surface temperature")
    opened.locator("#brush summary").focus()
    opened.keyboard.press("Enter")
    press_until(opened, "brush-from")
    opened.keyboard.type("200")
    press_until(opened, "brush-to")
    opened.keyboard.type("600")
    opened.keyboard.press("Enter")
    radiation = archive.query(RADIATION).compute()["value"].to_numpy().ravel()
    bright = (radiation >= 200) & (radiation <= 600)
    assert 0 < bright.sum() < len(bright)
    expect(opened.locator("#brushed")).to_contain_text(f"{bright.sum()} of {np.isfinite(radiation).sum()} cells chosen")
    np.testing.assert_allclose(data(opened, "brush", "value"), radiation[bright], rtol=1e-9)
    warm = archive.query({**RADIATION, "variable": "surface_temperature"}).compute()["value"].to_numpy().ravel()
    np.testing.assert_allclose(data(opened, "brush", "value", "picture-second"), warm[bright], rtol=1e-9)
    assert data(opened, "brush", "time") == data(opened, "brush", "time", "picture-second")
    context = browser.new_context()
    try:
        other = context.new_page()
        other.goto(opened.url)
        wait_for(other, "beside: Done")
        expect(other.locator("#brushed")).to_have_text(opened.inner_text("#brushed"))
    finally:
        context.close()
    press_until(opened, "brush-clear")
    opened.keyboard.press("Enter")
    expect(opened.locator("#brushed")).to_be_hidden()
    assert data(opened, "brush", "value") == []
    assert "brush=" not in opened.url


def test_windy_hours_are_marked_in_the_radiation(page: Page, address: str, archive: hg.OpenArchive) -> None:
    """Two questions of other variables and steps: times are what they have in common."""
    page.route("**/api/v1/saved", lambda route: route.fulfill(json={"wind": WIND, "radiation": RADIATION}))
    page.goto(f"{address}#explore")
    page.wait_for_selector("body[data-ready=yes]")
    page.get_by_label("Beside it").select_option("saved:radiation")
    run(page, WIND)
    wait_for(page, "beside: Done")
    page.get_by_label("Lines over time").check()
    expect(page.locator("#caption-second")).to_contain_text("Solar radiation")
    wind, radiation = (archive.query(one).compute()["value"].to_numpy().ravel() for one in (WIND, RADIATION))
    level = round(float(np.nanmedian(wind)), 2)
    page.locator("#brush summary").click()
    page.get_by_label("From", exact=True).fill(str(level))
    page.get_by_role("button", name="Choose", exact=True).click()
    windy = wind >= level
    assert 0 < windy.sum() < len(wind)
    expect(page.locator("#brushed")).to_contain_text(f"{windy.sum()} of {np.isfinite(wind).sum()} cells chosen")
    np.testing.assert_allclose(data(page, "brush", "value", "picture-second"), radiation[windy], rtol=1e-9)
    # Of the second picture, up to a value.
    page.get_by_label("Values of").select_option("second")
    page.get_by_label("From", exact=True).fill("")
    page.get_by_label("To", exact=True).fill("10")
    page.keyboard.press("Enter")
    eventually(page, lambda: len(data(page, "brush", "value")) == int((radiation <= 10).sum()))
    np.testing.assert_allclose(data(page, "brush", "value"), wind[radiation <= 10], rtol=1e-9)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_serious(browser: Browser, address: str, scheme: Any) -> None:  # noqa: ANN401
    source = axe()
    if source is None:
        pytest.skip("axe-core is not where NODE_PATH says: npm install axe-core")
    context = browser.new_context(viewport={"width": 1300, "height": 900}, color_scheme=scheme)
    try:
        page = context.new_page()
        page.goto(f"{address}#explore")
        page.wait_for_selector("body[data-ready=yes]")
        maps(page)
        page.locator("#brush summary").click()
        page.get_by_role("button", name="Choose", exact=True).click()
        expect(page.locator("#brushed")).to_contain_text("529 of 529")
        assert serious(page, source) == []
    finally:
        context.close()
