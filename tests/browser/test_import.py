"""Importing on the page: from an empty archive to a picture, what has to be answered, corrections, and rejects."""

import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import numpy as np
import pytest
from playwright.sync_api import Locator, Page, expect

import hypergrid as hg
from hypergrid.archive import Archive
from hypergrid.core.settings import Settings
from tests.browser.pages import axe, press_until, serious, wait_for
from tests.end_to_end.foreign.networks import NETWORKS
from tests.end_to_end.foreign.seeds import seed_of
from tests.end_to_end.foreign.visit import served

pytestmark = pytest.mark.browser

MOST_ACTIONS: Final = 12
NOW_NS: Final = 1_720_000_000 * 10**9
PLAIN: Final = "station,time,air_temperature,humidity\n" + "".join(
    f"{name},2024-03-{day:02} {hour:02}:00,{(3.2 + at + hour / 4 + day / 10) * 1.8 + 32:.2f},{60 + hour}\n"
    for day in (12, 13)
    for hour in range(24)
    for at, name in enumerate(("N1", "N2"))
)
"""Two days of two stations, by the clock of Zurich and in Fahrenheit, which the file does not say."""


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    path = tmp_path / "valley"
    Archive.create(path, name="valley", slice_s=120.0, variables=(), now_ns=NOW_NS)
    return path


@pytest.fixture
def taking(archive: Path) -> Iterator[str]:
    """Give the address of a server of an empty archive that takes imports."""
    with served(archive, Settings(imports=True)) as address:
        yield f"{address}/"


class Counted:
    """Counts what a user does: clicks, choices, and what is reached and pressed by keys."""

    def __init__(self, page: Page) -> None:
        self.page, self.actions = page, list[str]()

    def _count(self, words: str) -> None:
        self.actions.append(words)
        assert len(self.actions) <= MOST_ACTIONS, self.actions

    def click(self, control: Locator) -> None:
        self._count(f"click {control}")
        control.click()

    def choose(self, control: Locator, value: str) -> None:
        self._count(f"choose {value}")
        control.select_option(value)

    def press(self, wanted: str, key: str = "Enter") -> None:
        self._count(f"{key} on {wanted}")
        press_until(self.page, wanted)
        self.page.keyboard.press(key)

    def send(self, act: Callable[[], None], files: list[Path]) -> None:
        with self.page.expect_file_chooser() as choosing:
            act()
        choosing.value.set_files(files)


def preview(page: Page) -> Locator:
    return page.locator("[data-preview] p").first


def count(page: Page, name: str) -> Locator:
    return page.locator(f"[data-count={name}]")


def held(archive: Path, variable: str) -> dict[tuple[str, str], float]:
    """Return the values in force, by station and instant."""
    opened = Archive.open(archive)
    readings = opened.read(variable)
    good = readings.flag != 9
    return {
        (readings.series[index].station, str(np.datetime64(int(at), "ns").astype("datetime64[m]"))): float(value)
        for index, at, value in zip(readings.index[good], readings.time_ns[good], readings.value[good], strict=True)
    }


@pytest.mark.parametrize("by", ["keys", "mouse"])
def test_a_plain_table_becomes_a_picture(
    by: str, page: Page, taking: str, archive: Path, complaints: list[str], tmp_path: Path
) -> None:
    (tmp_path / "data.csv").write_text(PLAIN + "N1,2024-03-14 00:00,warm,50\n", "utf-8")
    page.goto(taking)
    page.wait_for_selector("body[data-ready=yes]")
    user = Counted(page)
    by_mouse = by == "mouse"
    if by_mouse:
        user.click(page.get_by_role("link", name="Import files"))
        user.send(lambda: user.click(page.get_by_role("button", name="Choose files")), [tmp_path / "data.csv"])
    else:
        user.press("link-import")
        user.send(lambda: user.press("import-choose"), [tmp_path / "data.csv"])
    ingest = page.get_by_role("button", name="Ingest", exact=True)
    expect(ingest).to_be_disabled()
    expect(page.locator("#import-todo")).to_contain_text("3 answers are needed")
    expect(page.locator(".rows-bad")).to_contain_text("1 × bad number; the first: data.csv, line 98")
    expect(preview(page)).to_contain_text("12 March 2024 00:00 by the clock of the file = 12 March 2024 00:00 UTC")
    unit = page.get_by_label("Unit of air_temperature")
    if by_mouse:
        user.choose(unit, "degF")
        user.choose(page.get_by_label("Time zone of the clock"), "Europe/Zurich")
        user.click(page.get_by_role("button", name="The unit is as shown"))
    else:
        user.press("zone-right-0")
        user.press("units-right-0")
        # Wrong on purpose: corrected below.
        expect(preview(page)).to_contain_text("Air temperature 39.92 °C")
    if by_mouse:
        expect(preview(page)).to_contain_text("= 11 March 2024 23:00 UTC")
        expect(preview(page)).to_contain_text("Air temperature 4.4 °C")
    expect(page.locator("#import-todo")).to_have_text("Ready to be ingested.")
    if source := axe():
        # Contrasts of both schemes are computed from the colours.
        assert serious(page, source) == []
    user.click(ingest) if by_mouse else user.press("import-run")
    expect(count(page, "stored")).to_have_text("193")
    expect(count(page, "readings_rejected")).to_have_text("1")
    report = page.locator(".report")
    expect(report).to_contain_text("bad number")
    expect(report.locator("code").first).to_contain_text("warm")
    if source := axe():
        assert serious(page, source) == []
    if by_mouse:
        user.click(page.get_by_role("button", name="See it in Explore"))
    else:
        user.press("import-explore")
    wait_for(page, "Done")
    if by_mouse:
        assert held(archive, "air_temperature")["N1", "2024-03-11T23:00"] == pytest.approx(4.4, abs=0.01)
        assert len(user.actions) <= 8
        assert complaints == []
        return

    # What was answered wrongly is corrected, on the page as it was left.
    page.go_back()
    user.actions.clear()
    unit.focus()
    user.choose(unit, "degF")
    user.choose(page.get_by_label("Time zone of the clock"), "Europe/Zurich")
    page.get_by_label("Longitude of N1").fill("7.5")
    page.get_by_label("Latitude of N1").fill("46.5")
    page.get_by_label("Latitude of N1").press("Enter")
    expect(page.locator("#import-map canvas").first).to_be_visible()
    expect(page.get_by_text("A click on the map places station N2.")).to_be_visible()
    page.locator("#import-map").click(position={"x": 300, "y": 120})
    expect(page.get_by_label("Longitude of N2")).not_to_have_value("")
    placed = float(page.get_by_label("Longitude of N2").input_value())
    user.press("import-run")
    expect(page.locator("[data-count=added]")).not_to_have_text("")
    expect(page.get_by_text("Read again as described now: 1 file")).to_be_visible()
    temperatures = held(archive, "air_temperature")
    assert temperatures["N1", "2024-03-11T23:00"] == pytest.approx(4.4, abs=0.01)
    assert len(temperatures) == 96
    assert Archive.open(archive).stations["N2"].position.lon == pytest.approx(placed)
    with page.expect_download() as downloading:
        page.get_by_role("link", name="deployment.toml").click()
    text = Path(downloading.value.path()).read_text("utf-8")
    assert re.search(r'timezone = "Europe/Zurich"', text)
    assert "degF" in text
    # A reload shows the import as it stands.
    page.reload()
    expect(page.get_by_role("button", name="Ingest again")).to_be_enabled()
    assert complaints == []


@pytest.mark.parametrize("name", NETWORKS)
def test_networks_of_strangers_are_imported_as_they_are(
    name: str, page: Page, taking: str, archive: Path, complaints: list[str], tmp_path: Path
) -> None:
    network = NETWORKS[name](seed_of(0))
    network.write(tmp_path / "sent")
    page.goto(f"{taking}#import")
    page.wait_for_selector("body[data-ready=yes]")
    user = Counted(page)
    files = sorted((tmp_path / "sent" / "raw").iterdir())
    user.send(lambda: user.click(page.get_by_role("button", name="Choose files")), files)
    expect(page.locator("[data-preview] p").first).to_be_visible()
    if name == "plain":
        # Which zone its clocks showed is seen by the hour that they show twice.
        expect(page.get_by_label("Time zone of the clock")).to_have_value("Europe/Berlin")
        user.choose(page.get_by_label("Unit of Lufttemperatur"), "degF")
    if name == "country":
        user.click(page.get_by_role("button", name="Yes, it is UTC"))
    if network.units:
        user.click(page.get_by_role("button", name=re.compile("as shown")))
    expect(page.locator("#import-todo")).to_have_text("Ready to be ingested.")
    user.click(page.get_by_role("button", name="Ingest", exact=True))
    expect(count(page, "stored")).to_be_visible()
    user.click(page.get_by_role("button", name="See it in Explore"))
    wait_for(page, "Done")
    expect(page.locator("#caption")).to_contain_text("Map of Air temperature [°C]")
    times = network.weather.times_ns[: network.raw_count]
    stored = held(archive, "air_temperature")
    written = {
        (station, str(np.datetime64(int(at), "ns").astype("datetime64[m]"))): float(value)
        for row, at in enumerate(times)
        for station, value in zip(network.ids, network.written_c[row], strict=True)
        if np.isfinite(value) and network.rows[row, network.ids.index(station)]
    }
    assert stored.keys() == written.keys()
    np.testing.assert_allclose([stored[key] for key in written], list(written.values()), atol=1e-9)
    assert len(hg.open(archive).stations) == len(network.ids)
    assert complaints == []


def test_what_cannot_be_read_is_asked_about_and_what_is_wrong_is_shown_where_it_is(
    page: Page, taking: str, tmp_path: Path
) -> None:
    rows = "".join(f"0{day}/0{day + 1}/2024 {hour:02}:00;{day + hour}\n" for day in (1, 2, 3) for hour in range(24))
    (tmp_path / "dates.csv").write_text("date;T [degC]\n" + rows, "utf-8")
    bare = "".join(f"2024-06-0{day} {hour:02}:00;{day + hour};{700 + day}\n" for day in (1, 2, 3) for hour in range(24))
    (tmp_path / "bare.csv").write_text(bare, "utf-8")
    (tmp_path / "photo.jpg").write_bytes(bytes(range(256)) * 8)
    page.goto(f"{taking}#import")
    page.wait_for_selector("body[data-ready=yes]")
    with page.expect_file_chooser() as choosing:
        page.get_by_role("button", name="Choose files").click()
    choosing.value.set_files([tmp_path / "dates.csv", tmp_path / "bare.csv", tmp_path / "photo.jpg"])
    asked = page.locator(".question", has_text="dates.csv")
    expect(asked).to_contain_text("its dates can be read in several ways; what is 01/02/2024 00:00?")
    asked.get_by_label("The dates are written as").select_option("%d/%m/%Y %H:%M")
    asked.get_by_role("button", name="Read it so").click()
    expect(page.get_by_role("heading", name="dates.csv")).to_be_visible()
    page.get_by_label("Names of the columns").fill("time, temperature, air_pressure")
    page.get_by_role("button", name="Read it so").click()
    expect(page.get_by_role("heading", name="bare.csv")).to_be_visible()
    # A pressure of 700 may be in two units, which nobody but its user knows.
    unit = page.get_by_label("Unit of air_pressure")
    expect(unit.locator("option")).to_have_text(["(choose)", "hPa", "mmHg"])
    unit.select_option("hPa")
    for button in page.get_by_role("button", name=re.compile("Yes, it is")).all():
        button.click()
    for button in page.get_by_role("button", name=re.compile("as shown")).all():
        if button.is_visible():
            button.click()
    page.get_by_label("Variable of T [degC]").select_option("+")
    page.get_by_label("Name of the variable of T [degC]").fill("Leaf temperature")
    page.get_by_label("Unit of T [degC]").first.fill("degX")
    page.get_by_role("button", name="yes").click()
    page.get_by_role("button", name="Ingest", exact=True).click()
    expect(page.get_by_role("alert")).to_contain_text("unknown unit 'degX'")
    assert json.loads(page.evaluate("() => JSON.stringify(document.body.dataset)"))["ready"] == "yes"
