"""The variogram of a question's stations with its fit, by mouse and by keyboard, and in the address."""

import csv
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Browser, Page, expect

import hypergrid as hg
from tests.browser.pages import SMALL, axe, data, press_until, run, serious, wait_for

pytestmark = pytest.mark.browser

HOURLY = {**SMALL, "steps": [{"op": "aggregate", "function": "mean", "time": "1h"}, SMALL["steps"][1]]}
SERIES = {"variable": "relative_humidity", "steps": [{"op": "aggregate", "function": "mean", "time": "1h"}]}


def fit(archive: hg.OpenArchive, document: dict[str, Any], **options: object) -> Any:  # noqa: ANN401 - a fit
    return hg.fit_variogram(archive.query(document), **options)


def is_drawn(page: Page, words: str, caption: str = "caption") -> None:
    expect(page.locator(f"#{caption}")).to_contain_text(words)


def test_points_with_pairs_and_both_models_by_mouse(opened: Page, archive: hg.OpenArchive, tmp_path: Path) -> None:
    run(opened, HOURLY)
    opened.get_by_label("Variogram", exact=True).check()
    is_drawn(opened, "Variogram of Air temperature [(°C)²] at the stations")
    expected = fit(archive, HOURLY)
    assert data(opened, "bins", "pairs") == expected.bins.pairs.tolist()
    np.testing.assert_allclose(data(opened, "bins", "x"), expected.bins.distance_m, rtol=1e-9)
    np.testing.assert_allclose(data(opened, "bins", "y"), expected.bins.semivariance, rtol=1e-9)
    fitted, given = (np.array(line) for line in data(opened, "models", "values"))
    near = np.array(data(opened, "models", "times")[0])
    np.testing.assert_allclose(fitted, expected.variogram.semivariance(near), rtol=1e-9)
    np.testing.assert_allclose(given, 0.05 + 1.2 * (1 - np.exp(-3 * near / 250)), rtol=1e-9)
    caption = opened.locator("#caption")
    expect(caption).to_contain_text("The query names: exponential, nugget 0.05 (°C)², sill 1.25 (°C)², range 250 m.")
    expect(caption).to_contain_text(f"range {expected.variogram.effective_range_m:,.0f} m; it explains")
    expect(opened.locator("figure.pane").first.locator(".legend")).to_contain_text("exponential of the query")
    opened.get_by_text("As a table").first.click()
    expect(opened.locator("#about-first table tbody tr")).to_have_count(len(expected.bins.pairs))
    with opened.expect_download() as downloading:
        opened.get_by_role("button", name="Save shown values").first.click()
    downloading.value.save_as(tmp_path / "variogram.csv")
    rows = list(csv.DictReader((tmp_path / "variogram.csv").read_text("utf-8").splitlines()))
    assert [int(one["pairs"]) for one in rows] == expected.bins.pairs.tolist()
    assert "semivariance [(degC)²]" in rows[0]


def test_the_fit_is_chosen_by_keyboard_and_kept_in_the_address(
    opened: Page, archive: hg.OpenArchive, browser: Browser
) -> None:
    run(opened, HOURLY)
    opened.locator("input[name=view]:checked").focus()
    for _ in range(4):
        opened.keyboard.press("ArrowRight")
    is_drawn(opened, "Fitted: exponential")
    press_until(opened, "fit-model")
    opened.keyboard.type("spher")
    is_drawn(opened, "Fitted: spherical")
    press_until(opened, "fit-cutoff")
    opened.keyboard.type("300")
    press_until(opened, "fit-bins")
    opened.keyboard.press("Control+A")
    opened.keyboard.type("6")
    opened.keyboard.press("Tab")
    expected = fit(archive, HOURLY, model="spherical", cutoff_m=300, bins=6)
    is_drawn(opened, f"{len(expected.bins.pairs)} points of {expected.bins.pairs.sum():,} pairs up to 300 m")
    assert data(opened, "bins", "pairs") == expected.bins.pairs.tolist()
    context = browser.new_context()
    try:
        other = context.new_page()
        other.goto(opened.url)
        wait_for(other, "Done")
        expect(other.locator("#caption")).to_have_text(opened.inner_text("#caption"))
    finally:
        context.close()


def test_series_and_what_stands_beside_have_variograms(opened: Page, archive: hg.OpenArchive) -> None:
    opened.get_by_label("Beside it").select_option("variable:air_temperature")
    run(opened, SERIES)
    wait_for(opened, "beside: Done")
    opened.get_by_label("Variogram", exact=True).check()
    is_drawn(opened, "Variogram of Relative humidity [(%)²]")
    is_drawn(opened, "Variogram of Air temperature [(°C)²]", "caption-second")
    for place, document in (("picture", SERIES), ("picture-second", {**SERIES, "variable": "air_temperature"})):
        assert data(opened, "bins", "pairs", place) == fit(archive, document).bins.pairs.tolist()
    assert len(data(opened, "models", "values")) == 1, "the query names none"


def test_a_variogram_that_cannot_be_says_why(page: Page, address: str) -> None:
    page.goto(f"{address}#explore")
    page.wait_for_selector("body[data-ready=yes]")
    run(page, {"variable": "wind_direction", "steps": [{"op": "aggregate", "function": "sample", "time": "1h"}]})
    page.get_by_label("Variogram", exact=True).check()
    is_drawn(page, "No variogram: a study of directions has no meaning")


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
        run(page, HOURLY)
        page.get_by_label("Variogram", exact=True).check()
        is_drawn(page, "Fitted:")
        assert serious(page, source) == []
    finally:
        context.close()
