"""Overview: the newest values on a map with its ground, by mouse and keyboard, and of networks that have less."""

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
from playwright.sync_api import Browser, Page, expect

import hypergrid as hg
from hypergrid.archive import Archive
from hypergrid.core.flags import FAIL, GOOD
from hypergrid.core.readings import Position, Readings, Series, Station
from hypergrid.core.times import SECOND_NS, parse_instant
from hypergrid.core.units import KNOWN_VARIABLES
from hypergrid.layers.layer import Layer
from ingest.job import ingest
from queries.jobs.runner import Runner
from queries.snapshots.catalogue import Catalogue
from queries.web.app import create_app
from tests.browser.pages import box_of, data, eventually, image, show, wait_for, written
from tests.serving import serving
from viz.natural_earth import FOLDER
from viz.site import site

pytestmark = pytest.mark.browser

START_NS: Final = parse_instant("2024-05-01")
STEP_S: Final = 600
PLACES: Final = {
    "A1": (7.00, 46.00), "B2": (7.06, 46.00), "C3": (7.00, 46.05), "D4": (7.06, 46.05), "E5": (7.03, 46.08),
    "F6": (7.03, 45.97), "G7": (math.nan, math.nan),
}  # fmt: skip
VALUES: Final = {"A1": -3.5, "B2": 1.0, "C3": 2.0, "D4": 4.5, "E5": 3.0, "F6": 99.0, "G7": 0.5}

COLOURS: Final = """() => {
  const { palette, low, high } = document.getElementById("overview-map").figure.find("colours");
  return [palette[0] === palette.at(-1), low, high];
}"""
PLACED: Final = """([lon, lat]) => {
  const { plot, view } = document.getElementById("overview-map").figure;
  const { left, top, width, height } = view.frame.bbox;
  const { x_range: across, y_range: upwards } = plot;
  const right = ((lon - across.start) / (across.end - across.start)) * width;
  return [left + right, top + ((upwards.end - lat) / (upwards.end - upwards.start)) * height];
}"""
"""Where a position lies on the map, from its upper left corner [px]."""


def readings(hours: range, shift: float = 0.0, without: str = "") -> Readings:
    """Return readings of every ten minutes; E5 is silent from the second half of two days on, and F6 fails."""
    names = [name for name in PLACES if name not in without.split()]
    series = tuple(Series("air_temperature", name, 2.0, interval_s=STEP_S, source="feed/t") for name in names)
    steps = np.arange(hours.start * 6, hours.stop * 6)
    index = np.repeat(np.arange(len(series), dtype=np.int32), len(steps))
    time_ns = np.tile(START_NS + steps * STEP_S * SECOND_NS, len(series))
    value = np.array([VALUES[name] + shift for name in names])[index]
    flag = np.where(np.array(names)[index] == "F6", FAIL, GOOD).astype(np.uint8)
    return Readings(series, index, time_ns, value, flag, time_ns)


@pytest.fixture(scope="module")
def hills(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """Give the address of a network on hills, one of whose stations is dead, and its archive."""
    path = tmp_path_factory.mktemp("hills") / "archive"
    variables = [KNOWN_VARIABLES[name] for name in ("air_temperature", "wind_direction")]
    archive = Archive.create(path, name="hills", slice_s=STEP_S, variables=variables, now_ns=START_NS)
    lon, lat = np.linspace(6.8, 7.3, 251), np.linspace(45.8, 46.3, 251)
    heights = 900.0 + 500.0 * np.sin(40.0 * lon)[None, :] * np.cos(30.0 * lat)[:, None]
    with archive.commit(batch="first", message="first", now_ns=START_NS) as writer:
        writer.stations([Station(name, f"Site {name}", (Position(None, *at, 900.0),)) for name, at in PLACES.items()])
        writer.readings(readings(range(24)))
    with archive.commit(batch="second", message="second", now_ns=START_NS) as writer:
        writer.readings(readings(range(24, 48), without="E5"))
        writer.layer(Layer("elevation", lon, lat, heights, "m"))
    opened = hg.open(path)
    app = create_app(Runner(opened), Catalogue(opened))
    app.mount("/", site())
    with serving(app) as address:
        yield f"{address}/", path


def column(page: Page, name: str, source: str = "stations") -> list[Any]:
    return list(data(page, source, name, "overview-map"))


def colours(page: Page) -> list[Any]:
    """Return whether the palette goes round, and the values of its ends."""
    return list(page.evaluate(COLOURS))


def by_station(page: Page, name: str) -> dict[str, Any]:
    return dict(zip(column(page, "station"), column(page, name), strict=True))


def test_the_pages_open_with_the_newest_values_on_hills(
    page: Page, hills: tuple[str, Path], complaints: list[str]
) -> None:
    address, path = hills
    page.set_viewport_size({"width": 1280, "height": 800})
    page.goto(address)
    health = page.locator("#overview-health")
    expect(health).to_have_text("7 stations: 6 reporting, 1 dead; newest reading 2024-05-02 23:50 UTC")
    assert page.title() == "Overview · HyperGrid"
    # The picture is most of the window.
    map_box = page.locator("#overview-map").bounding_box()
    assert map_box is not None
    assert map_box["width"] * map_box["height"] > 0.75 * 1280 * 800
    assert map_box["y"] + map_box["height"] <= 800
    # Values that are none of now have no colour, and a shape of their own.
    markers = by_station(page, "marker")
    assert {name: value for name, value in by_station(page, "value").items() if name not in ("E5", "F6")} == {
        "A1": -3.5, "B2": 1.0, "C3": 2.0, "D4": 4.5,
    }  # fmt: skip
    assert markers == {**dict.fromkeys(("A1", "B2", "C3", "D4"), "circle"), "E5": "diamond", "F6": "square"}
    assert colours(page)[1:] == [-3.5, 4.5]
    expect(page.locator("#overview-key")).to_have_text("On the map: ◆ dead, ■ no current value.")
    expect(page.locator("#overview-age")).to_contain_text("All read at 2024-05-02 23:50 UTC")
    expect(page.locator("#overview-without")).to_have_text("Without a position, and so in this table only: 1 station.")
    # Relief, contours with round elevations, and a scale bar; no coast, as the map is narrow.
    expect(page.locator("#overview-map")).to_have_attribute("data-ground", "elevation")
    assert np.ptp(np.array(column(page, "image", "relief")[0]["values"])) > 50
    levels = set(column(page, "level", "contours"))
    assert len(levels) >= 4
    assert {level % 100.0 for level in levels} == {0.0}
    assert column(page, "xs", "coast") == []
    # The table says the same.
    row = page.locator("#overview-below tbody tr", has_text="Site F6")
    expect(row).to_contain_text("fail")
    expect(page.locator("#overview-below tbody tr")).to_have_count(7)

    # Labels with names where there is room, none over another.
    labels = column(page, "text", "labels")
    assert {"Site A1  −3.5", "Site D4  4.5"} <= set(labels)

    # Arrows go from station to station.
    page.locator("#overview-stage").focus()
    page.keyboard.press("ArrowUp")
    card = page.locator("#overview-card")
    expect(card).to_contain_text("F6 Site F6: 99.0 °C at 2024-05-02 23:50 UTC, reporting, fail")
    page.keyboard.press("ArrowUp")
    expect(card).to_contain_text(re.compile("A1|B2"))
    page.keyboard.press("Escape")
    expect(card).to_be_empty()
    # A click says the same.
    box = box_of(page, "#overview-map")
    where = page.evaluate(PLACED, [7.06, 46.05])
    page.mouse.click(box["x"] + where[0], box["y"] + where[1])
    expect(card).to_contain_text("D4 Site D4: 4.5 °C")
    assert column(page, "x", "picked") == [7.06]

    # New readings appear by themselves.
    with Archive.open(path).commit(batch="third", message="third", now_ns=START_NS) as writer:
        writer.readings(readings(range(48, 49), shift=2.0, without="E5"))
    eventually(page, lambda: by_station(page, "value")["A1"] == -1.5)
    expect(card).to_contain_text("D4 Site D4: 6.5 °C at 2024-05-03 00:50 UTC")
    expect(health).to_contain_text("newest reading 2024-05-03 00:50 UTC")

    # One press: the kriged map of it, on the same ground.
    page.get_by_role("button", name="Show the map").click()
    wait_for(page, "Done")
    assert written(page)["variable"] == "air_temperature"
    assert np.ptp([value for value in image(page)["values"] if value is not None]) > 0.1
    # It fills the window, which may be wide enough for a coast as well.
    expect(page.locator("#picture")).to_have_attribute("data-ground", re.compile("elevation$"))
    assert len(data(page, "contours", "xs")) > 3
    page.go_back()
    expect(health).to_be_visible()
    health.click()
    expect(page.locator("#stations-summary")).to_contain_text("6 reporting")
    assert complaints == []


def test_other_variables_directions_and_links(opened: Page, address: str, archive: hg.OpenArchive) -> None:
    show(opened, "Overview")
    chosen = opened.get_by_label("Latest values of")
    expect(chosen).to_have_value("air_temperature")
    expect(opened.locator("#overview-map")).to_have_attribute("data-drawn", "air_temperature")
    assert sorted(column(opened, "station")) == sorted(archive.stations)
    chosen.select_option("wind_direction")
    expect(opened.locator("#overview-map")).to_have_attribute("data-drawn", "wind_direction")
    assert colours(opened) == [True, 0, 360], "directions go round"
    assert "variable=wind_direction" in opened.url
    expect(opened.locator("#units")).to_have_text("Wind direction [°], times in UTC")
    opened.goto(f"{address}#overview?variable=solar_radiation")
    expect(opened.locator("#overview-map")).to_have_attribute("data-drawn", "solar_radiation")
    opened.get_by_label("Theme").select_option("dark")
    # There is no figure while one of the other theme is fetched.
    edges = "() => document.getElementById('overview-map').figure?.find('stations').data.edge ?? []"
    eventually(opened, lambda: "#e4e9ee" in opened.evaluate(edges))


def test_a_network_without_positions_has_tiles_and_says_how_to_get_a_map(browser: Browser, tmp_path: Path) -> None:
    rows = "".join(
        f"S{number},2007-10-01T00:{minute:02}Z,{number + 0.25}\n" for number in range(3) for minute in (0, 10)
    )
    (tmp_path / "raw.csv").write_text(f"station,time,air_temperature\n{rows}")
    ingest([tmp_path / "raw.csv"], tmp_path / "archive", engine="inprocess", now_ns=parse_instant("2007-10-02"))
    made = hg.open(tmp_path / "archive")
    app = create_app(Runner(made), Catalogue(made))
    app.mount("/", site())
    context = browser.new_context(viewport={"width": 390, "height": 844})
    try:
        with serving(app) as address:
            page = context.new_page()
            page.goto(address)
            expect(page.locator("#overview-tiles li")).to_have_count(3)
            expect(page.locator("#overview-tiles li").first).to_contain_text("0.3 unknown")
            expect(page.locator("#overview .empty")).to_contain_text("--remap --deployment")
            assert page.locator("#overview-stage").count() == 0
            expect(page.locator("#overview-below tbody tr")).to_have_count(3)
            assert page.evaluate("() => document.documentElement.scrollWidth") <= 390
            page.get_by_role("button", name="Show the map").click()
            wait_for(page, "Done")
    finally:
        context.close()


@pytest.mark.skipif(not (FOLDER / "countries-50m.json").is_file(), reason="needs coast and borders: make atlas")
def test_a_wide_network_lies_between_coasts(page: Page, tmp_path: Path, complaints: list[str]) -> None:
    rows = "".join(f"S{number},2024-05-01T00:{minute:02}Z,{number}\n" for number in range(4) for minute in (0, 10))
    (tmp_path / "raw.csv").write_text(f"station,time,air_temperature\n{rows}")
    ingest([tmp_path / "raw.csv"], tmp_path / "archive", engine="inprocess", now_ns=parse_instant("2024-05-02"))
    places = {"S0": (6.0, 52.0), "S1": (12.0, 52.0), "S2": (9.0, 54.0), "S3": (9.0, 50.5)}
    with Archive.open(tmp_path / "archive").commit(batch="at", message="places", now_ns=START_NS) as writer:
        writer.stations([Station(name, name, (Position(None, *at, math.nan),)) for name, at in places.items()])
    made = hg.open(tmp_path / "archive")
    app = create_app(Runner(made), Catalogue(made))
    app.mount("/", site())
    with serving(app) as address:
        page.goto(address)
        expect(page.locator("#overview-map")).to_have_attribute("data-ground", re.compile("50m|10m"))
        for source in ("coast", "borders", "land"):
            assert column(page, "xs", source), source
        assert column(page, "xs", "contours") == []
    assert complaints == []
