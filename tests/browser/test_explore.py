"""Explore in headless Chromium: a map that sharpens, its last values, stopping, errors in words, the keyboard."""

import re
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
import xarray as xr
from playwright.sync_api import Browser, Page, expect

from tests.browser.pages import (
    SMALL,
    choose_by_arrows,
    data,
    digest,
    eventually,
    finer,
    image,
    press_until,
    run,
    saved,
    unasked,
    unfold,
    wait_for,
    write,
)

pytestmark = pytest.mark.browser

LONG_S = 3.0
"""How long the query that is watched must take at least [s]."""


def seconds(page: Page) -> float:
    """Return how long the run took [s], as the page says it."""
    return float(page.inner_text("#status").split("·")[-1].split()[0].replace(",", ""))


def watch(page: Page, document: dict[str, Any]) -> list[str]:
    """Run a query; return digests of the pictures seen while it was computed, without repetitions."""
    write(page, document)
    page.get_by_role("button", name="Run", exact=True).click()
    seen: list[str] = []
    while not page.inner_text("#status").startswith("Done"):
        if page.locator("#picture canvas").count() and (now := digest(page)) not in seen:
            seen.append(now)
        assert page.locator("#notice").is_hidden(), page.inner_text("#notice")
        page.wait_for_timeout(100)
    return seen


def test_a_map_sharpens_until_it_equals_the_download(opened: Page, tmp_path: Path) -> None:
    cells = 184
    seen = watch(opened, finer(cells))
    # Where that is too fast to be watched: as many cells more as the time was too short, with some reserve.
    for _ in range(3):
        if seconds(opened) < LONG_S:
            cells = min(round(cells * (1.4 * LONG_S / max(seconds(opened), 0.5)) ** 0.5), 800)
            seen = watch(opened, finer(cells))
    assert seconds(opened) >= LONG_S
    expect(opened.locator("#range")).to_contain_text("all time cells")
    expect(opened.locator("#caption")).to_contain_text("100 % computed")
    last = digest(opened)
    assert len({*seen, last}) >= 4, "at least three pictures before the last"

    opened.get_by_label("Time cell").focus()
    for _ in range(30):
        opened.keyboard.press("ArrowRight")
    expect(opened.locator("#caption")).to_contain_text("02:3")
    with opened.expect_download() as downloading:
        opened.get_by_role("link", name="NetCDF", exact=True).click()
    downloading.value.save_as(tmp_path / "surface.nc")
    surface = xr.open_dataset(tmp_path / "surface.nc", engine="h5netcdf")["air_temperature"]
    drawn = image(opened)
    shown = np.array(drawn["values"], np.float64).reshape(drawn["shape"])
    time_index = int(opened.get_by_label("Time cell").input_value())
    assert time_index == 30
    generator = np.random.default_rng(5)
    rows, columns = generator.integers(0, cells, 10), generator.integers(0, cells, 10)
    np.testing.assert_array_equal(shown[rows, columns], surface.to_numpy()[time_index, rows, columns])
    assert np.isfinite(shown[rows, columns]).all()


def test_cells_beyond_the_stations_are_faded(opened: Page) -> None:
    run(opened, SMALL)
    caption = opened.locator("#caption")
    expect(caption).to_contain_text(re.compile(r"\d+ % of the cells are extrapolated"))
    (outline,), stations = data(opened, "hull", "xs"), data(opened, "stations", "lon")
    assert (min(outline), max(outline)) == (min(stations), max(stations))
    ((rings,),) = data(opened, "beyond", "xs")
    assert len(rings) == 2, "a box with a hole"
    unfold(opened, "looks-part")
    opened.get_by_label("Cells beyond the stations").select_option("same")
    eventually(opened, lambda: data(opened, "beyond", "xs") == [])
    expect(caption).not_to_contain_text("extrapolated")
    assert "extrapolated=same" in opened.url


@pytest.mark.usefixtures("unhurried")
def test_estimated_cells_can_be_left_out_and_the_run_stopped(opened: Page, address: str) -> None:
    write(opened, finer(500))
    opened.get_by_role("button", name="Run", exact=True).click()
    expect(opened.locator("#caption")).to_contain_text("Paler cells are estimated")
    assert None not in image(opened)["values"]
    expect(opened.locator("#range")).to_contain_text("held while the picture sharpens")
    unfold(opened, "looks-part")
    opened.get_by_label("Cells not computed yet").select_option("hidden")
    # The arrays of this page are NaN where nothing is computed.
    eventually(opened, lambda: None in image(opened)["values"])
    opened.get_by_role("button", name="Stop", exact=True).click()
    wait_for(opened, "Stopped")
    job = httpx.get(f"{address}api/v1/queries", timeout=60).json()[0]
    assert job["state"] == "cancelled"
    assert job["fraction"] < 1
    expect(opened.get_by_role("button", name="Run", exact=True)).to_be_enabled()
    expect(opened.get_by_role("navigation", name="Downloads")).to_be_hidden()


@pytest.mark.usefixtures("unhurried")
def test_leaving_the_page_stops_its_query(browser: Browser, address: str) -> None:
    # Without the watch on requests, which a page that is gone cannot answer for.
    context = browser.new_context()
    try:
        page = context.new_page()
        page.goto(unasked(address))
        page.wait_for_selector("body[data-ready=yes]")
        write(page, finer(400))
        page.get_by_role("button", name="Run", exact=True).click()
        wait_for(page, "Computing")
        page.goto("about:blank")
        eventually(page, lambda: httpx.get(f"{address}api/v1/queries", timeout=60).json()[0]["state"] == "cancelled")
    finally:
        context.close()


def test_errors_are_told_in_words(page: Page, address: str) -> None:
    page.goto(f"{address}#explore")
    page.wait_for_selector("body[data-ready=yes]")
    write(page, {**SMALL, "variable": "air_temprature"})
    page.get_by_role("button", name="Run", exact=True).click()
    alert = page.locator("#notice")
    expect(alert).to_contain_text("did you mean 'air_temperature'")
    expect(page.get_by_role("button", name="Run", exact=True)).to_be_enabled()
    page.get_by_label("Query (JSON)").fill("{")
    page.get_by_role("button", name="Run", exact=True).click()
    expect(alert).to_contain_text("no JSON")
    # A good query takes the message away.
    write(page, SMALL)
    page.get_by_role("button", name="Run", exact=True).click()
    wait_for(page, "Done")
    expect(alert).to_be_hidden()


def test_levels_have_a_slider_of_their_own(opened: Page) -> None:
    write(opened, saved("levels"))
    opened.get_by_role("button", name="Run", exact=True).click()
    wait_for(opened, "Done")
    expect(opened.locator("#caption")).to_contain_text("at 2,400 m, 23 by 23 cells, 100 % computed")
    lowest, values = digest(opened), image(opened)["values"]
    opened.get_by_label("Level").focus()
    for _ in range(2):
        opened.keyboard.press("ArrowRight")
    expect(opened.locator("#caption")).to_contain_text("at 2,500 m")
    expect(opened.locator("#level-text")).to_have_text("2,500 m")
    # The caption is there a frame before the picture.
    eventually(opened, lambda: digest(opened) != lowest)
    assert image(opened)["values"] != values
    # A map on the ground has none.
    write(opened, SMALL)
    opened.get_by_role("button", name="Run", exact=True).click()
    wait_for(opened, "Done")
    expect(opened.locator("#level-part")).to_be_hidden()


def test_with_the_keyboard_alone(opened: Page) -> None:
    press_until(opened, "how")
    opened.keyboard.press("Enter")
    press_until(opened, "saved", "Shift+Tab")
    choose_by_arrows(opened, "saved", "q2")
    expect(opened.get_by_label("Query (JSON)")).to_have_value(re.compile('"watermark"'))
    press_until(opened, "document")
    opened.keyboard.press("Control+Enter")
    wait_for(opened, "Done")
    expect(opened.locator("#caption")).to_contain_text("23 by 23 cells, 100 % computed")
    press_until(opened, "looks-part-button", "Shift+Tab")
    opened.keyboard.press("Enter")
    press_until(opened, "estimated")
    opened.keyboard.press("End")
    expect(opened.get_by_label("Cells not computed yet")).to_have_value("hidden")


def test_series_are_drawn_as_lines_or_day_by_hour(opened: Page) -> None:
    steps = [{"op": "aggregate", "function": "mean", "time": "1h"}]
    write(opened, {"variable": "solar_radiation", "steps": steps})
    opened.get_by_role("button", name="Run", exact=True).click()
    wait_for(opened, "Done")
    expect(opened.locator("#caption")).to_contain_text("24 series of Solar radiation [W m⁻²]")
    assert len(data(opened, "lines", "station")) == 24
    opened.get_by_label("Saved query").select_option("radiation")
    opened.get_by_role("button", name="Explain").click()
    expect(opened.locator("#plan")).to_contain_text("solar_radiation")


def test_a_picture_has_words_for_those_who_do_not_see_it(opened: Page) -> None:
    write(opened, SMALL)
    opened.get_by_role("button", name="Run", exact=True).click()
    wait_for(opened, "Done")
    named = opened.get_by_role("application", name=re.compile(r"Map of Air temperature \[°C\] .* 100 % computed"))
    expect(named).to_be_visible()
    assert opened.locator("#status").get_attribute("aria-live") == "polite"


@pytest.mark.parametrize(("width", "scheme"), [(360, "light"), (1300, "dark")])
def test_it_fits_narrow_windows_and_both_schemes(browser: Browser, address: str, width: int, scheme: Any) -> None:  # noqa: ANN401
    context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
    try:
        page = context.new_page()
        page.goto(f"{address}#explore")
        page.wait_for_selector("body[data-ready=yes]")
        write(page, SMALL)
        page.get_by_role("button", name="Run", exact=True).click()
        wait_for(page, "Done")
        expect(page.locator("#caption")).to_contain_text("100 % computed")
        assert page.evaluate("() => document.documentElement.scrollWidth") <= width
        ground = page.evaluate("() => getComputedStyle(document.body).backgroundColor")
        assert ground == ("rgb(255, 255, 255)" if scheme == "light" else "rgb(23, 29, 36)")
    finally:
        context.close()


def test_the_empty_map_is_fetched_before_run_is_pressed(opened: Page) -> None:
    # That of the question with which the page opens is not meant.
    opened.wait_for_function(
        "() => performance.getEntriesByType('resource').some(({ name }) => name.includes('/figures/map'))"
    )
    asked: list[str] = []
    opened.on("request", lambda request: asked.append(request.url) if "/figures/map" in request.url else None)
    with opened.expect_request(lambda request: "/figures/map" in request.url):
        write(opened, finer(40))
    run(opened)
    # The one that is drawn in has the same address, so that the browser has it.
    assert len(asked) == 2
    assert asked[0] == asked[1]


def test_figures_that_are_gone_are_kept_nowhere(opened: Page) -> None:
    """What outlives a figure must not know it: BokehJS's list of documents, and the viewport, to which it listens."""
    for _ in range(3):
        run(opened, SMALL)
        eventually(opened, lambda: opened.evaluate("() => Bokeh.documents.length") == 1)
    session = opened.context.new_cdp_session(opened)
    viewport = session.send("Runtime.evaluate", {"expression": "visualViewport"})["result"]["objectId"]
    assert session.send("DOMDebugger.getEventListeners", {"objectId": viewport})["listeners"] == []
