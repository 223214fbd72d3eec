"""Networks of strangers on the pages, once ingested: a map, its files and an alert in at most ten actions."""

from collections.abc import Iterator
from pathlib import Path
from typing import Final

import numpy as np
import pytest
import xarray as xr
from playwright.sync_api import Locator, Page, expect

import hypergrid as hg
from hypergrid.core.settings import Settings
from tests.browser.pages import eventually, image, wait_for, written
from tests.end_to_end.foreign.judging import pick
from tests.end_to_end.foreign.networks import NETWORKS
from tests.end_to_end.foreign.seeds import seed_of
from tests.end_to_end.foreign.visit import Visit, find_lacks, served
from tests.queries.standing.hook import Hook

pytestmark = pytest.mark.browser

MOST_ACTIONS: Final = 10
LONGEST_MS: Final = 300_000
"""How long the uncertainty of 200 stations that report now and then may take on a busy machine [ms]."""


class Visitor:
    """Somebody who has never seen the pages, and may do little: each opening, click, choice and typed field counts."""

    def __init__(self, page: Page, downloads: Path) -> None:
        self.page, self.actions = page, list[str]()
        self._downloads = downloads

    def _count(self, words: str) -> None:
        self.actions.append(words)
        assert len(self.actions) <= MOST_ACTIONS, self.actions

    def open(self, address: str) -> None:
        self._count(f"open {address}")
        self.page.goto(address)

    def click(self, control: Locator) -> None:
        self._count(f"click {control}")
        control.click()

    def choose(self, label: str, option: str) -> None:
        self._count(f"choose {option} of {label}")
        self.page.get_by_label(label, exact=True).locator("visible=true").select_option(label=option)

    def fill(self, label: str, text: str) -> None:
        self._count(f"type {text} into {label}")
        self.page.get_by_label(label, exact=True).locator("visible=true").fill(text)

    def download(self, link: str) -> Path:
        with self.page.expect_download() as downloading:
            self.click(self.page.get_by_role("link", name=link, exact=True))
        path = self._downloads / downloading.value.suggested_filename
        downloading.value.save_as(path)
        return path


@pytest.fixture
def hook() -> Iterator[Hook]:
    """Give what takes alerts."""
    made = Hook()
    yield made
    made.server.shutdown()


def drawn(page: Page, place: str) -> np.ndarray:
    """Return the cells of a picture."""
    picture = image(page, place)
    return np.array(picture["values"], np.float64).reshape(picture["shape"])


@pytest.mark.parametrize("name", NETWORKS)
def test_a_map_its_files_and_an_alert_are_ten_actions_away(
    name: str, page: Page, hook: Hook, complaints: list[str], tmp_path: Path
) -> None:
    visit = Visit(NETWORKS[name](seed_of(0)), tmp_path)
    archive, network = visit.ingested, visit.network
    threshold_c = round(network.threshold_c, 1)
    visitor = Visitor(page, tmp_path)
    with served(visit.archive, Settings(webhook_hosts=(hook.host,))) as address:
        visitor.open(f"{address}/#explore")
        wait_for(page, "Done")
        visitor.choose("Beside it", "Its uncertainty")
        expect(page.locator("#caption-second")).to_contain_text("100 % computed", timeout=LONGEST_MS)
        wait_for(page, "Done")
        # The query is the one whose maps are judged by the truth.
        asked = written(page)
        assert {**asked, "snapshot": archive.snapshot} == hg.suggest(archive).to_json()
        answer = archive.query({**asked, "variance": True}).compute()
        value, variance = (pick(answer, what).to_numpy()[0] for what in ("", "variance"))
        assert np.ptp(value) > 0.0
        # Sums of other blocks differ in the last digit.
        np.testing.assert_allclose(drawn(page, "picture"), value, rtol=1e-12)
        np.testing.assert_allclose(drawn(page, "picture-second"), np.sqrt(variance), rtol=1e-12)
        expect(page.locator("#caption")).to_contain_text("Map of Air temperature [°C]")

        of_map, of_readings = visitor.download("NetCDF"), visitor.download("Readings of the answer: NetCDF")
        with xr.open_dataset(of_map, engine="h5netcdf") as held:
            np.testing.assert_array_equal(pick(held, "").to_numpy()[0], drawn(page, "picture"))
        first, last = (np.datetime64(instant.removesuffix("Z"), "ns") for instant in asked["clip"]["time"])
        times = network.weather.times_ns.astype("datetime64[ns]")
        sent = network.written_c[(times >= first) & (times < last)]
        with xr.open_dataset(of_readings, engine="h5netcdf") as held:
            found = held["air_temperature"].to_numpy()
        np.testing.assert_allclose(np.sort(found[np.isfinite(found)]), np.sort(sent[np.isfinite(sent)]), atol=1e-9)
        assert find_lacks([of_map, of_readings]) == {}

        visitor.click(page.get_by_role("navigation", name="Pages").get_by_role("link", name="Standing"))
        visitor.choose("The value", "is above")
        visitor.fill("Threshold [°C]", str(threshold_c))
        visitor.fill("Webhook", hook.url("/hot"))
        visitor.click(page.get_by_role("button", name="Create"))
        expect(page.locator("#standing-list")).to_contain_text("Air temperature")
        assert hook.got == []
        visit.ingest_later()
        eventually(page, lambda: bool(hook.got))
        expect(page.locator("#alerts tbody")).to_contain_text("raised")
    rows = network.written_c[network.raw_count :]
    above = {each for at, each in enumerate(network.ids) if np.nanmax(rows[:, at]) > threshold_c}
    assert {letter["place"] for _, letter in hook.got if letter["happening"] == "raised"} <= above
    assert complaints == []
