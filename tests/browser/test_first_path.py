"""Somebody who has never seen the pages: from their address to a file and a picture in at most ten actions."""

from pathlib import Path

import numpy as np
import pytest
import xarray as xr
from playwright.sync_api import Page, expect

import hypergrid as hg
from tests.browser.first_path import SIZE, actions, walk
from tests.browser.pages import saved, unfold, write, written

pytestmark = pytest.mark.browser


def test_the_mean_of_a_catchment_with_its_uncertainty_as_file_and_picture(
    page: Page, address: str, complaints: list[str], archive: hg.OpenArchive, tmp_path: Path
) -> None:
    page.set_viewport_size(SIZE)
    # The sample is of one day; a mean of a week would need more of it.
    done = list(walk(page, address, tmp_path, "The newest day"))
    # `make demo` is the first.
    assert 1 + len(done) <= 10
    asked = written(page)
    assert asked["clip"]["time"] == ["2007-10-01T00:00Z", "2007-10-02T00:00Z"]
    (netcdf,) = tmp_path.glob("*.nc")
    (picture,) = tmp_path.glob("*.png")
    assert picture.read_bytes().startswith(b"\x89PNG")
    expected = archive.query({**asked, "variance": True}).compute()
    with xr.open_dataset(netcdf, engine="h5netcdf") as held:
        for name in ("air_temperature", "air_temperature_variance"):
            np.testing.assert_allclose(held[name].to_numpy(), expected[name].to_numpy(), rtol=1e-9)
    assert np.isfinite(expected["air_temperature_variance"]).all()
    assert complaints == []


def test_a_span_is_shown_as_long_as_the_times_are_its_own(page: Page, address: str, tmp_path: Path) -> None:
    page.set_viewport_size(SIZE)
    for action in actions(address, tmp_path)[:4]:
        action.act(page)
    span = page.get_by_label("Time", exact=True)
    expect(span).to_have_value("7")
    unfold(page, "dates")
    page.get_by_label("From (UTC").fill("2007-10-01T00:00")
    page.get_by_label("From (UTC").press("Tab")
    expect(span).to_have_value("")
    assert written(page)["clip"]["time"] == ["2007-10-01T00:00Z", "2007-10-02T00:00Z"]


def test_what_is_refused_is_seen_wherever_one_is_on_the_page(page: Page, address: str, tmp_path: Path) -> None:
    actions(address, tmp_path)[0].act(page)
    page.set_viewport_size(SIZE)
    write(page, {**saved("q1"), "variance": True})
    page.get_by_label("Query (JSON)").scroll_into_view_if_needed()
    page.get_by_role("button", name="Run", exact=True).click()
    notice = page.locator("#notice")
    expect(notice).to_contain_text("leave out neighbours")
    expect(notice).to_be_in_viewport()
    expect(page.locator("#caption")).to_have_text("No picture: the message above says why.")
    page.get_by_role("button", name="Close this message").click()
    expect(notice).to_be_empty()
