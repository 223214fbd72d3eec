"""Stations: how each is, in a table and on a map, and its readings with their flags; by mouse and by keyboard."""

import csv
import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from playwright.sync_api import Page, Route, expect

import hypergrid as hg
from hypergrid.archive import Archive
from hypergrid.core.flags import FAIL, GOOD, SUSPECT
from hypergrid.core.readings import Position, Station
from hypergrid.core.times import parse_instant
from hypergrid.core.units import unit_symbol
from ingest.job import ingest
from queries.jobs.runner import Runner
from queries.snapshots.catalogue import Catalogue
from queries.snapshots.station_health import HealthAssessor
from queries.web.app import create_app
from tests.browser.pages import data, press_until, show
from tests.serving import serving
from viz.site import site

pytestmark = pytest.mark.browser


def test_the_table_and_the_map_show_every_station(opened: Page, archive: hg.OpenArchive) -> None:
    show(opened, "Stations")
    table = opened.locator("#stations-list table")
    expect(table.locator("tbody tr")).to_have_count(len(archive.stations))
    told = HealthAssessor().assess(archive)
    reporting = sum(one.state == "reporting" for one in told)
    expect(opened.locator("#stations-summary")).to_contain_text(f"{reporting} reporting")
    opened.wait_for_selector("#stations-map canvas")
    assert sorted(data(opened, "stations", "station", "stations-map")) == sorted(archive.stations)
    assert set(data(opened, "stations", "marker", "stations-map")) <= {"circle", "triangle", "diamond", "square"}


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Give the address of a server of 450 stations."""
    folder = tmp_path_factory.mktemp("many")
    rows = "".join(f"S{number:03},2007-10-01T00:{minute:02}Z,1.5\n" for number in range(450) for minute in (0, 10))
    (folder / "many.csv").write_text(f"station,time,air_temperature\n{rows}")
    ingest([folder / "many.csv"], folder / "archive", engine="inprocess", now_ns=parse_instant("2007-10-02"))
    made = hg.open(folder / "archive")
    app = create_app(Runner(made), Catalogue(made))
    app.mount("/", site())
    with serving(app) as address:
        yield f"{address}/"


def test_of_many_stations_some_are_drawn_and_others_are_found(page: Page, many: str, complaints: list[str]) -> None:
    page.goto(f"{many}#stations")
    rows, shown = page.locator("#stations-list tbody tr"), page.locator("#stations-list p[role=status]")
    expect(rows).to_have_count(200)
    expect(page.locator("#quality-list tbody tr")).to_have_count(200)
    expect(shown).to_have_text("200 of 450 are shown.")
    assert page.evaluate("document.querySelectorAll('*').length") < 8000
    more = page.locator("#stations-list").get_by_role("button", name="Show 200 more")
    more.click()
    expect(rows).to_have_count(400)
    more.click()
    expect(rows).to_have_count(450)
    expect(more).to_be_hidden()
    find = page.locator("#stations-list").get_by_label("Find a station")
    find.fill("s44")
    expect(rows).to_have_count(10)
    expect(shown).to_have_text("10 of 10 are shown.")
    page.get_by_role("button", name="Show the readings of station S447").first.click()
    expect(page.locator("#station-title")).to_contain_text("S447")
    find.fill("nowhere")
    expect(rows).to_have_count(0)
    assert complaints == []


def worst(archive: hg.OpenArchive) -> tuple[str, str]:
    """Return the station and variable with the most flagged readings."""
    counts = {}
    for variable in archive.variables:
        readings = archive.store.read(variable)
        for place, series in enumerate(readings.series):
            bad = (readings.index == place) & ((readings.flag == SUSPECT) | (readings.flag == FAIL))
            counts[series.station, variable] = int(bad.sum())
    return max(counts, key=lambda pair: counts[pair])


def test_readings_with_their_flags_by_mouse(opened: Page, archive: hg.OpenArchive) -> None:
    station, variable = worst(archive)
    show(opened, "Stations")
    # A station in trouble that has flags is in two lists.
    look = opened.locator("#stations-list").get_by_role(
        "button", name=f"Show the readings of station {station}", exact=True
    )
    look.click()
    opened.get_by_role("combobox", name="Variable").locator("visible=true").select_option(variable)
    expect(opened.locator("#caption-station")).to_contain_text(f"readings of {archive.variables[variable].long_name}")
    readings = archive.store.read(variable)
    mine = [place for place, series in enumerate(readings.series) if series.station == station]
    of = readings.take_rows(readings.index == mine[0])
    bad = (of.flag == SUSPECT) | (of.flag == FAIL)
    assert bad.any(), "the sample network has flagged readings"
    assert data(opened, "points", "value", "picture-station") == of.value[bad].tolist()
    assert len(data(opened, "lines", "values", "picture-station")[0]) == int((of.flag < SUSPECT).sum())
    counts = opened.locator("#station-counts")
    for flag, word in ((SUSPECT, "suspect"), (FAIL, "fail")):
        if (of.flag == flag).any():
            expect(counts).to_contain_text(word)
    expect(opened.locator("#units")).to_contain_text(unit_symbol(archive.variables[variable].unit))
    assert f"station={station}" in opened.url


def test_readings_that_come_late_do_not_replace_those_asked_for_after_them(opened: Page) -> None:
    held: list[Route] = []

    def slow(route: Route) -> None:
        if not held:
            held.append(route)
        else:
            route.continue_()

    opened.route("**/api/v1/series?*", slow)
    show(opened, "Stations")
    opened.locator("#stations-list").get_by_role("button", name="Show the readings of station 3", exact=True).click()
    opened.wait_for_function("() => document.activeElement.id === 'station-title'")
    opened.get_by_role("combobox", name="Variable").locator("visible=true").select_option("relative_humidity")
    expect(opened.locator("#caption-station")).to_contain_text("readings of Relative humidity")
    with opened.expect_response("**/api/v1/series?*"):
        held[0].continue_()
    opened.wait_for_timeout(500)
    expect(opened.locator("#caption-station")).to_contain_text("readings of Relative humidity")


def test_readings_by_keyboard(opened: Page) -> None:
    press_until(opened, "link-stations")
    opened.keyboard.press("Enter")
    opened.wait_for_selector("#stations-list button")
    for _ in range(60):
        opened.keyboard.press("Tab")
        if opened.evaluate("() => document.activeElement.dataset.station") == "3":
            break
    opened.keyboard.press("Enter")
    assert opened.evaluate("() => document.activeElement.id") == "station-title"
    expect(opened.locator("#caption-station")).to_contain_text("readings of Air temperature")
    press_until(opened, "station-period")
    opened.keyboard.type("All")
    expect(opened.locator("#station-period")).to_have_value("0")
    expect(opened.locator("#station-title")).to_have_text("Readings of station 3")


def test_a_link_to_a_station(opened: Page, address: str) -> None:
    opened.goto(f"{address}#stations?station=5&variable=wind_speed&days=1")
    expect(opened.locator("#caption-station")).to_contain_text("readings of Wind speed [m s⁻¹]")
    opened.goto(f"{address}#stations?station=5&variable=air_temperature&days=1")
    expect(opened.locator("#caption-station")).to_contain_text("readings of Air temperature [°C]")
    expect(opened.locator("#units")).to_have_text("Air temperature [°C], times in UTC")
    opened.go_back()
    expect(opened.locator("#caption-station")).to_contain_text("readings of Wind speed [m s⁻¹]")
    expect(opened.locator("#units")).to_have_text("Wind speed [m s⁻¹], times in UTC")


def counted(archive: hg.OpenArchive, station: str, flag: int) -> int:
    """Count the readings of a station with a flag, variable by variable."""
    total = 0
    for variable in archive.variables:
        readings = archive.store.read(variable)
        mine = [place for place, series in enumerate(readings.series) if series.station == station]
        total += int((np.isin(readings.index, mine) & (readings.flag == flag)).sum())
    return total


def test_what_the_tests_said_by_mouse(opened: Page, archive: hg.OpenArchive, tmp_path: Path) -> None:
    show(opened, "Stations")
    table = opened.locator("#quality-list table")
    expect(table.locator("tbody tr")).to_have_count(len(archive.stations))
    expect(opened.locator("#quality-summary")).to_contain_text("Set by:")
    shown = opened.locator("#quality-list tbody tr")
    doubtful = shown.first.locator("button").inner_text()
    assert counted(archive, doubtful, SUSPECT) + counted(archive, doubtful, FAIL) > 0, "the most doubtful comes first"
    heads = table.locator("thead th").all_inner_texts()
    cells = dict(zip(heads, shown.first.locator("td").all_inner_texts(), strict=True))
    for word, flag in (("Suspect", SUSPECT), ("Fail", FAIL), ("Good", GOOD)):
        assert int(cells[word].split(" ")[0].replace(",", "")) == counted(archive, doubtful, flag)
    readings = int(cells["Readings"].replace(",", ""))
    if counted(archive, doubtful, GOOD):
        share = float(cells["Good"].partition("(")[2].split(" ")[0])
        assert share == pytest.approx(100 * counted(archive, doubtful, GOOD) / readings, abs=0.06)
    with opened.expect_download() as downloading:
        opened.locator("#quality-list").get_by_role("button", name="Save shown values").click()
    downloading.value.save_as(tmp_path / "quality.csv")
    rows = list(csv.DictReader((tmp_path / "quality.csv").read_text("utf-8").splitlines()))
    assert sum(int(one["readings"]) for one in rows) == sum(map(archive.store.readings, archive.variables))
    opened.get_by_label("Flags of").select_option("wind_speed")
    expect(opened.locator("#quality-summary")).to_contain_text(f"{archive.store.readings('wind_speed'):,} readings")
    shown.first.locator("button").click()
    expect(opened.locator("#caption-station")).to_contain_text("readings of Wind speed")


def test_what_the_tests_said_by_keyboard(opened: Page) -> None:
    press_until(opened, "link-stations")
    opened.keyboard.press("Enter")
    opened.wait_for_selector("#quality-list tbody tr")
    press_until(opened, "quality-variable")
    opened.keyboard.type("solar")
    expect(opened.locator("#quality-variable")).to_have_value("solar_radiation")
    press_until(opened, "quality-period")
    opened.keyboard.type("All")
    expect(opened.locator("#quality-period")).to_have_value("")
    for _ in range(10):
        opened.keyboard.press("Tab")
        if opened.evaluate("() => document.activeElement.dataset.quality") is not None:
            break
    station = opened.evaluate("() => document.activeElement.dataset.quality")
    opened.keyboard.press("Enter")
    expect(opened.locator("#station-title")).to_have_text(f"Readings of station {station}")
    assert opened.evaluate("() => document.activeElement.id") == "station-title"


def test_what_could_not_be_read_is_shown_with_examples(opened: Page, archive: hg.OpenArchive, tmp_path: Path) -> None:
    rejects = archive.store.rejects()
    assert len(rejects) == 3
    show(opened, "Stations")
    table = opened.locator("#rejects table")
    expect(table.locator("caption")).to_contain_text("3 rows or files")
    first = table.locator("tbody tr").first
    expect(first).to_contain_text("wrong number of fields")
    expect(first).to_contain_text("66.7 %")
    example = first.locator("summary")
    expect(example).to_have_text("pass-meteo-torn.txt, line 1")
    example.focus()
    opened.keyboard.press("Enter")
    expect(first).to_contain_text("17 needed, 9 found")
    expect(first.locator("code").first).to_have_text(rejects[0].text)
    table.locator("tbody tr").nth(1).locator("summary").click()
    expect(table.locator("tbody tr").nth(1)).to_contain_text("'MMVII' in year")
    with opened.expect_download() as downloading:
        opened.get_by_role("link", name="Save all of them").click()
    downloading.value.save_as(tmp_path / "rejects.csv")
    rows = list(csv.DictReader((tmp_path / "rejects.csv").read_text("utf-8").splitlines()))
    assert [(one["file"], int(one["line"])) for one in rows] == [(one.file, one.line) for one in rejects]


def test_an_archive_without_rejects_says_so(opened: Page) -> None:
    opened.route("**/api/v1/rejects", lambda route: route.fulfill(json={"count": 0, "kinds": []}))
    show(opened, "Stations")
    expect(opened.locator("#rejects")).to_have_text("Everything that came could be read.")


TURNED = "S\u202e1\x1b[31m"
"""A station whose name turns the text behind it, and colours a terminal."""
SHOWN = "S\\u202e1\\x1b[31m"


@pytest.fixture(scope="module")
def turning(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Give the address of a server with a station of such a name, and with rows that could not be read."""
    folder = tmp_path_factory.mktemp("turning")
    rows = f"{TURNED},2007-10-01T00:00Z,1.5\n{TURNED},2007-10-01T00:10Z,cold\u2067\n"
    (folder / "turned.csv").write_text(f"station,time,air_temperature\n{rows}", "utf-8")
    ingest([folder / "turned.csv"], folder / "archive", engine="inprocess", now_ns=parse_instant("2007-10-02"))
    with Archive.open(folder / "archive").commit(batch="places", message="places", now_ns=1) as writer:
        writer.stations([Station(TURNED, TURNED, (Position(None, 7.1, 45.8, 2400.0),))])
    made = hg.open(folder / "archive")
    assert list(made.stations) == [TURNED]
    assert made.store.rejects()
    app = create_app(Runner(made), Catalogue(made))
    app.mount("/", site())
    with serving(app) as address:
        yield f"{address}/"


def test_names_and_rejects_that_turn_text_are_shown_as_escapes(page: Page, turning: str, complaints: list[str]) -> None:
    page.goto(f"{turning}#stations")
    look = page.locator("#stations-list tbody").get_by_role("button")
    expect(look).to_have_text(SHOWN)
    expect(look).to_have_attribute("aria-label", re.compile(re.escape(SHOWN)))
    # The id that is asked for stays as it is.
    with page.expect_response(lambda answer: "/series?station=" in answer.url) as answered:
        look.click()
    assert answered.value.status == 200
    expect(page.locator("#station-title")).to_contain_text(SHOWN)
    page.wait_for_selector("#picture-station canvas")
    page.wait_for_selector("#stations-map canvas")
    for column in ("station", "name"):
        assert data(page, "stations", column, "stations-map") == [SHOWN]
    expect(page.locator("#quality-list tbody").get_by_role("button")).to_have_text(SHOWN)
    page.locator("#rejects summary").first.click()
    expect(page.locator("#rejects code").first).to_contain_text("cold\\u2067")
    written = page.evaluate(
        "[document.body.innerText, ...Array.from(document.querySelectorAll('[aria-label]'), (one) => one.ariaLabel)]"
    )
    assert not re.search("[\x1b\u202e\u2067]", "".join(written))
    assert complaints == []
