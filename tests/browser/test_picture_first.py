"""The picture first: it fills the window, is changed beside it, swiped, hatched, and its cells become finer."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Browser, Page, expect

import hypergrid as hg
from tests.browser.pages import SMALL, axe, box_of, data, eventually, image, run, serious, unfold, wait_for, written
from viz.figures import LOOKS

pytestmark = pytest.mark.browser

HOURLY: dict[str, Any] = {
    **SMALL,
    "steps": [{"op": "aggregate", "function": "mean", "time": "1h"}, SMALL["steps"][1]],
    "clip": {"time": ["2007-10-01T06:00Z", "2007-10-01T12:00Z"]},
}
FRAME = """(id) => {
  const { figure } = document.getElementById(id);
  if (!figure) return null;
  const { plot, view } = figure;
  const { x_range: x, y_range: y } = plot;
  const { width, height } = view.frame.bbox;
  return { width, height, across: x.end - x.start, up: y.end - y.start, middle: (y.start + y.end) / 2 };
}"""
GROUND = "(id) => document.getElementById(id).figure?.plot.border_fill_color"
LEAST_TOUCH_PX = 40
SMALL_TARGETS = """(least) => [...document.querySelectorAll("#page-explore button, #page-explore select,"
    + " #page-explore summary, #page-explore input[type=range]")]
  .filter((control) => control.closest(".screen") && control.checkVisibility({ visibilityProperty: true }))
  .map((control) => [control.id || control.textContent, control.getBoundingClientRect()])
  .filter(([name, box]) => box.height && box.height < least).map(([name, box]) => `${name}: ${box.height}`)"""


@contextmanager
def window(browser: Browser, address: str, width: int, height: int, **options: Any) -> Iterator[Page]:  # noqa: ANN401
    """Open Explore in a window of a size, with its first picture."""
    context = browser.new_context(viewport={"width": width, "height": height}, **options)
    try:
        page = context.new_page()
        page.goto(address)
        page.wait_for_selector("body[data-ready=yes]")
        wait_for(page, "Done")
        expect(page.locator("#caption")).to_contain_text("100 % computed")
        yield page
    finally:
        context.close()


def fills(page: Page, width: int, height: int) -> bool:
    """Whether the picture, and what is drawn within its axes and heading, fills a window of a size."""
    box, frame = page.locator("#picture").bounding_box(), page.evaluate(FRAME, "picture")
    return bool(
        box
        and frame
        and box["width"] >= 0.98 * width
        and box["width"] * box["height"] >= 0.6 * width * height
        and frame["width"] * frame["height"] >= 0.5 * width * height
    )


def test_the_picture_fills_the_window(browser: Browser, address: str) -> None:
    with window(browser, f"{address}#explore?finer=no", 1280, 800) as page:
        # Also a window that becomes larger.
        for width, height in [(1280, 800), (1920, 1080)]:
            page.set_viewport_size({"width": width, "height": height})
            eventually(page, lambda size=(width, height): fills(page, *size))
            frame = page.evaluate(FRAME, "picture")
            shrink = np.cos(np.radians(frame["middle"]))
            assert frame["height"] / frame["width"] == pytest.approx(frame["up"] / (frame["across"] * shrink), rel=0.02)
        eventually(page, lambda: page.locator("#picture").get_attribute("data-ground") is not None)
        # Time stands with the picture, whatever else there is.
        page.get_by_label("Every").select_option("1h")
        expect(page.get_by_label("Time cell")).to_be_in_viewport()
        expect(page.get_by_role("button", name="Play")).to_be_in_viewport()
        expect(page.locator("#document")).to_be_hidden()


def test_what_is_seen_is_changed_beside_the_picture_and_asked_at_once(page: Page, address: str) -> None:
    page.goto(f"{address}#explore?finer=no")
    page.wait_for_selector("body[data-ready=yes]")
    wait_for(page, "Done")
    sentence = page.locator("#sentence")
    expect(sentence).to_have_text(
        "Means of 24 stations over one day, mapped by the method that suits the stations best."
    )
    page.get_by_label("Every").select_option("1h")
    expect(page.locator("#caption")).to_contain_text("100 % computed")
    page.get_by_label("Statistic").select_option("max")
    expect(sentence).to_have_text("Hourly maxima of 24 stations, mapped by the method that suits the stations best.")
    eventually(page, lambda: "Maximum" in str(page.evaluate("() => picture.figure?.find('heading').text")))
    assert written(page)["steps"][0] == {"op": "aggregate", "function": "max", "time": "1h"}
    assert page.get_by_label("Time cell").get_attribute("max") == "23"
    # The same length earlier, of which there are no readings, and back.
    page.get_by_role("button", name="Earlier by the same length").click()
    assert written(page)["clip"]["time"] == ["2007-09-30T00:00Z", "2007-10-01T00:00Z"]
    page.get_by_role("button", name="Later by the same length").click()
    assert written(page)["clip"]["time"] == ["2007-10-01T00:00Z", "2007-10-02T00:00Z"]
    expect(page.locator("#caption")).to_contain_text("100 % computed")
    wait_for(page, "Done")
    # A stretch of the map that was moved to is mapped by one press.
    expect(page.locator("#map-area")).to_be_hidden()
    page.evaluate("() => picture.figure.plot.x_range.setv({ start: 7.178, end: 7.182 })")
    page.evaluate("() => picture.figure.plot.y_range.setv({ start: 45.868, end: 45.87 })")
    page.locator("#map-area").click()
    grid = written(page)["steps"][1]["grid"]
    assert (grid["lon"], grid["lat"], grid["step"]) == (7.178, 45.868, "0.3arcsec")
    eventually(page, lambda: image(page)["shape"] == grid["shape"])


def test_two_pictures_of_one_extent_are_swiped(opened: Page) -> None:
    opened.get_by_label("Beside it").select_option("before")
    run(opened, HOURLY)
    wait_for(opened, "beside: Done")
    opened.get_by_label("Compared").select_option("swipe")
    expect(opened.locator("#caption-second")).to_contain_text("2007-10-01 00:00")
    eventually(opened, lambda: opened.locator("#picture-second canvas").count() > 0)
    places = [opened.locator(f"#{name}").bounding_box() for name in ("picture", "picture-second")]
    assert places[0] == places[1], "they lie over each other"
    frames = [opened.evaluate(FRAME, name) for name in ("picture", "picture-second")]
    assert frames[0] == frames[1]
    # By keyboard,
    divider = opened.get_by_label("Divider")
    divider.focus()
    opened.keyboard.press("Home")
    edge = "() => getComputedStyle(document.querySelector('.panes')).getPropertyValue('--swipe')"
    assert opened.evaluate(edge) == "0%"
    for _ in range(10):
        opened.keyboard.press("ArrowRight")
    assert opened.evaluate(edge) == "10%"
    # and by dragging.
    box = opened.locator(".divider").bounding_box()
    assert box is not None
    opened.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    opened.mouse.down()
    opened.mouse.move(places[0]["x"] + 0.7 * places[0]["width"], box["y"] + 40, steps=4)
    opened.mouse.up()
    assert 60 < float(opened.evaluate(edge).rstrip("%")) < 80
    assert "compare=swipe" in opened.url
    # Another method is compared likewise.
    opened.get_by_label("Beside it").select_option("method:inverse_distance")
    wait_for(opened, "beside: Done")
    expect(opened.locator("#caption-second")).to_contain_text("2007-10-01 06:00")
    eventually(opened, lambda: image(opened)["values"] != image(opened, "picture-second")["values"])
    assert data(opened, "surface", "x") == data(opened, "surface", "x", "picture-second")


def test_uncertain_cells_are_hatched_and_colours_are_chosen(opened: Page, archive: hg.OpenArchive) -> None:
    run(opened, HOURLY)
    unfold(opened, "looks-part")
    opened.get_by_label("Uncertain cells").select_option("0.1")
    expect(opened.locator("#range")).to_contain_text("standard error above")
    surface = archive.query({**HOURLY, "variance": True}).compute()
    value = surface["air_temperature"].to_numpy()
    deviation = np.sqrt(surface["air_temperature_variance"].to_numpy()[0])
    uncertain = deviation > 0.1 * (value.max() - value.min())
    assert 0 < uncertain.sum() < uncertain.size
    drawn = data(opened, "hatch", "image")[0]
    marks = np.array([mark is not None for mark in drawn["values"]]).reshape(drawn["shape"])
    across = drawn["shape"][0] // 23
    blocks = marks.reshape(23, across, 23, across).any(axis=(1, 3))
    np.testing.assert_array_equal(blocks, uncertain)
    # Another palette, and a scale of this picture alone.
    opened.get_by_label("Colours", exact=True).select_option("cividis")
    opened.get_by_label("Their scale").select_option("picture")
    expect(opened.locator("#range")).to_contain_text("the values of this picture alone")
    found = opened.evaluate(
        "() => { const { low, high, palette } = picture.figure.find('colours'); return [low, high, palette[0]]; }"
    )
    assert found[:2] == pytest.approx([value[0].min(), value[0].max()])
    assert found[2] == "#00204C"
    assert {"palette=cividis", "colours=picture", "hatch=0.1"} <= set(opened.url.split("?")[1].split("&"))


def test_cells_become_finer_while_one_looks_until_something_is_touched(page: Page, address: str) -> None:
    page.set_viewport_size({"width": 1280, "height": 800})
    page.goto(f"{address}#explore")
    page.wait_for_selector("body[data-ready=yes]")
    page.wait_for_function("() => document.getElementById('picture')?.figure")
    page.evaluate("() => (picture.figure.isFirst = true)")
    expect(page.locator("#finer")).to_contain_text("Sharpened to")
    rows, columns = written(page)["steps"][1]["grid"]["shape"]
    assert page.evaluate("() => picture.figure.isFirst"), "the map and its ground stay, and get finer cells"
    # The picture is drawn after the words above it.
    eventually(page, lambda: image(page)["shape"][0] % (2 * rows) == 0)
    shape = image(page)["shape"]
    assert shape[0] // rows == shape[1] // columns
    box = box_of(page, "#picture")
    page.mouse.click(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    expect(page.locator("#picked-value")).to_contain_text("°C")
    # The link tells the cell of the grid that was asked for.
    row = page.get_by_label("Row of the cell for lines")
    eventually(page, lambda: f"pick={int(row.input_value()) * rows // image(page)['shape'][0]}%2C" in page.url)
    shape = image(page)["shape"]
    page.wait_for_timeout(2000)
    assert image(page)["shape"] == shape, "it was touched"
    # A question whose grid the user wrote keeps it.
    run(page, SMALL)
    eventually(page, lambda: image(page)["shape"] == [23, 23])
    page.wait_for_timeout(2000)
    assert image(page)["shape"] == [23, 23]


def test_on_a_phone_the_map_comes_first_and_controls_slide_up(browser: Browser, address: str) -> None:
    options = {"has_touch": True, "is_mobile": True, "color_scheme": "light"}
    with window(browser, f"{address}#explore?finer=no", 390, 844, **options) as page:
        box = page.locator("#picture").bounding_box()
        assert box is not None
        assert box["width"] == 390
        assert box["y"] < 200
        assert box["height"] >= 0.55 * 844
        assert page.evaluate("() => document.documentElement.scrollHeight") <= 844
        assert page.evaluate("() => document.querySelector('main').scrollHeight") <= 2500
        # What is chosen most often is at hand; the rest slides up.
        for name in ("Variable", "Beside it"):
            expect(page.get_by_label(name, exact=True)).to_be_in_viewport()
        expect(page.get_by_label("Every")).to_be_hidden()
        page.locator("#open-sheet").tap()
        expect(page.get_by_label("Every")).to_be_in_viewport()
        page.wait_for_timeout(400)
        assert page.evaluate(SMALL_TARGETS, LEAST_TOUCH_PX) == []
        page.get_by_label("Every").select_option("1h")
        page.locator("#close-sheet").tap()
        expect(page.get_by_label("Every")).to_be_hidden()
        expect(page.get_by_label("Time cell")).to_be_in_viewport()
        expect(page.locator("#caption")).to_contain_text("100 % computed")
        wait_for(page, "Done")
        # A tap shows the series of a cell below the map.
        at = box_of(page, "#picture")
        page.touchscreen.tap(at["x"] + at["width"] / 2, at["y"] + at["height"] / 2)
        expect(page.locator("#caption-cell")).to_contain_text("24 time cells")
        first, cell = (page.locator(f"#{name}").bounding_box() for name in ("picture", "picture-cell"))
        assert first is not None
        assert cell is not None
        assert first["y"] + first["height"] <= cell["y"] + 1
        expect(page.locator("#picture-cell")).to_be_in_viewport()
        source = axe()
        if source is not None:
            assert serious(page, source) == []
        # The same at night: figures that were kept take the other theme as well.
        page.emulate_media(color_scheme="dark")
        for name in ("picture", "picture-cell"):
            eventually(page, lambda name=name: page.evaluate(GROUND, name) == LOOKS["dark"].ground)
        if source is not None:
            assert serious(page, source) == []
