"""Boards: panels are pinned, arranged by mouse and keyboard, follow new readings, and fill walls and frames."""

import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Browser, Page, Route, expect

import hypergrid as hg
from hypergrid.archive import Archive
from hypergrid.core.flags import NOT_EVALUATED
from hypergrid.core.readings import Position, Readings, Series, Station
from hypergrid.core.times import SECOND_NS, parse_instant
from hypergrid.core.units import KNOWN_VARIABLES
from queries.boards.definition import board_from_json
from queries.boards.repository import BoardStore
from queries.jobs.runner import Runner
from queries.snapshots.catalogue import Catalogue
from queries.web.app import Services, create_app
from tests.browser.pages import SMALL, axe, data, eventually, image, run, serious, show
from tests.serving import serving
from viz.site import site

pytestmark = pytest.mark.browser

START_NS = parse_instant("2007-10-01")
STEP_S = 600
MAP = {
    "variable": "air_temperature",
    "steps": [{"op": "aggregate", "function": "mean", "time": "1h"}, SMALL["steps"][1]],
}
TEXTS = 2500
"""Texts of labels and ticks, each another one."""
LINES = {"variable": "air_temperature", "steps": [{"op": "aggregate", "function": "mean", "time": "1h"}]}
PANELS: list[dict[str, Any]] = [
    {"id": "map", "kind": "picture", "title": "Map", "last": "3h", "query": MAP, "view": {"view": "map"}, "columns": 2},
    {"id": "lines", "kind": "picture", "title": "Lines", "last": "3h", "query": LINES, "view": {"view": "lines"}},
    {"id": "series", "kind": "series", "last": "2h", "station": "a", "variable": "air_temperature"},
    {"id": "number", "kind": "number", "last": "2h", "station": "a", "variable": "air_temperature"},
    {"id": "most", "kind": "number", "last": "3h", "query": LINES, "reduce": "max", "title": "Warmest"},
    {"id": "wind", "kind": "number", "last": "1day", "station": "a", "variable": "wind_speed", "title": "Wind"},
]


class Growing:
    """An archive to which readings come."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.slices = folder, 0
        known = [KNOWN_VARIABLES[name] for name in ("air_temperature", "wind_speed")]
        made = Archive.create(folder, name="valley", slice_s=STEP_S, variables=known, now_ns=START_NS)
        places = {"a": (7.1772, 45.8672), "b": (7.1803, 45.8671), "c": (7.1788, 45.8690), "d": (7.1771, 45.8702)}
        with made.commit(batch="stations", message="stations", now_ns=START_NS) as writer:
            writer.stations([Station(name, name, (Position(None, *at, 2400.0),)) for name, at in places.items()])
        self.stations = tuple(places)
        self.add(1, value=2.0, variable="wind_speed")
        self.add(36, value=5.0)

    def add(self, slices: int, value: float, variable: str = "air_temperature") -> None:
        """Commit readings of all stations, each a degree warmer than the one before."""
        series = tuple(Series(variable, name, 2.0, interval_s=STEP_S, source="f/t") for name in self.stations)
        index = np.repeat(np.arange(len(series), dtype=np.int32), slices)
        stamps = np.tile(START_NS + (self.slices + np.arange(slices)) * STEP_S * SECOND_NS, len(series))
        flags = np.full(len(index), NOT_EVALUATED, np.uint8)
        values = value + index.astype(float)
        with Archive.open(self.folder).commit(
            batch=f"{variable} {self.slices}", message="slices", now_ns=time.time_ns()
        ) as writer:
            writer.readings(Readings(series, index, stamps, values, flags, stamps))
        if variable == "air_temperature":
            self.slices += slices


@pytest.fixture(scope="module")
def growing(tmp_path_factory: pytest.TempPathFactory) -> Growing:
    return Growing(tmp_path_factory.mktemp("growing") / "archive")


@pytest.fixture(scope="module")
def live(growing: Growing, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Give the address of a server of the growing archive, with a board of each kind of panel."""
    archive = hg.open(growing.folder)
    store = BoardStore(tmp_path_factory.mktemp("live") / "boards.sqlite")
    store.add_board(board_from_json({"title": "Valley", "panels": PANELS}), now_ns=time.time_ns())
    store.add_link("boards?board=valley&panel=map", "The map", now_ns=1)
    app = create_app(Runner(archive), Catalogue(archive), services=Services(boards=store))
    app.mount("/", site())
    with serving(app) as address:
        yield f"{address}/"
    store.close()


def panel(page: Page, title: str) -> Any:  # noqa: ANN401 - a locator
    return page.locator(".panel").filter(has=page.locator(".panel-title", has_text=title))


def titles(page: Page) -> list[str]:
    return page.locator(".panel .panel-title").all_inner_texts()


def statistics(page: Page) -> list[dict[str, Any]]:
    """Return what each panel did."""
    return list(page.evaluate("[...document.querySelectorAll('.panel')].map((one) => one.view.statistics())"))


def overlapping(page: Page) -> list[tuple[dict[str, float], dict[str, float]]]:
    """Return pairs of panels' boxes that lie on each other."""
    boxes = [dict(box.bounding_box() or {}) for box in page.locator(".panel").all()]
    return [
        (first, second)
        for place, first in enumerate(boxes)
        for second in boxes[place + 1 :]
        if first["x"] + first["width"] > second["x"] + 1
        and second["x"] + second["width"] > first["x"] + 1
        and first["y"] + first["height"] > second["y"] + 1
        and second["y"] + second["height"] > first["y"] + 1
    ]


def test_pinned_panels_are_arranged_by_mouse_and_keyboard(opened: Page, boards: BoardStore, address: str) -> None:
    run(opened, SMALL)
    opened.get_by_role("button", name="Pin …").click()
    dialog = opened.get_by_role("dialog")
    dialog.get_by_label("Title of the new board").fill("Upper valley")
    dialog.get_by_label("Title of the panel").fill("Temperature")
    dialog.get_by_label("Time").select_option("1day")
    dialog.get_by_role("button", name="Pin").click()
    expect(dialog).to_be_hidden()
    show(opened, "Stations")
    opened.locator("#stations-list tbody button").first.click()
    opened.get_by_role("button", name="Pin …").click()
    expect(dialog.get_by_label("Board", exact=True)).to_have_value("upper-valley")
    dialog.get_by_label("Show it as").select_option("number")
    dialog.get_by_label("Title of the panel").fill("Now")
    dialog.get_by_role("button", name="Pin").click()
    opened.get_by_role("link", name="Open the board").click()
    expect(opened.locator("#board-title")).to_have_text("Upper valley")
    temperature, now = panel(opened, "Temperature"), panel(opened, "Now")
    expect(temperature.locator("figcaption")).to_contain_text("100 % computed")
    expect(now.locator(".panel-figure")).to_be_visible()
    expect(now.locator(".panel-unit")).not_to_be_empty()
    (board,) = boards.boards()
    assert [one.kind for one in board.panels] == ["picture", "number"]
    assert "clip" not in (board.panels[0].query or {})

    # By mouse: the second panel is dragged over the first.
    opened.get_by_role("button", name="Arrange").click()
    now.locator(".panel-head").drag_to(temperature.locator(".panel-head"))
    eventually(opened, lambda: [one.title for one in boards.board("upper-valley").panels] == ["Now", "Temperature"])
    # By keyboard: it is moved back, made wider and renamed.
    now.focus()
    opened.keyboard.press("Alt+ArrowRight")
    eventually(opened, lambda: [one.title for one in boards.board("upper-valley").panels] == ["Temperature", "Now"])
    assert titles(opened) == ["Temperature", "Now"]
    opened.get_by_role("button", name="Make Now two columns wide").press("Enter")
    name = now.get_by_label("Title of the panel")
    name.fill("At the hut")
    name.press("Enter")
    eventually(opened, lambda: boards.board("upper-valley").panels[1].title == "At the hut")
    assert boards.board("upper-valley").panels[1].columns == 2
    opened.get_by_role("button", name="Remove Temperature").click()
    eventually(opened, lambda: len(boards.board("upper-valley").panels) == 1)
    opened.reload()
    expect(opened.locator(".panel")).to_have_count(1)
    expect(panel(opened, "At the hut").locator(".panel-figure")).to_be_visible()

    # A link opens the board; the line that embeds it names the same.
    opened.get_by_role("button", name="Short link").click()
    text = opened.locator("#page-boards .shared pre")
    expect(text).to_contain_text(f"{address}l/")
    link = text.inner_text()
    opened.get_by_role("button", name="Embed").click()
    expect(text).to_contain_text("<iframe")
    embedded = text.inner_text()
    assert f'<iframe src="{link.replace("/l/", "/embed/")}" title="Upper valley"' in embedded
    opened.goto(link)
    expect(opened.locator("#board-title")).to_have_text("Upper valley")
    opened.get_by_role("button", name="Remove board").click()
    opened.get_by_role("dialog").get_by_role("button", name="Remove").click()
    expect(opened.locator("#board-grid .empty")).to_contain_text("There is no board yet")
    assert boards.boards() == []


def test_panels_follow_new_readings_in_place(page: Page, live: str, growing: Growing, complaints: list[str]) -> None:
    page.goto(f"{live}#boards?board=valley")
    eventually(page, lambda: len(statistics(page)) == 6 and all(one["updates"] for one in statistics(page)))
    expect(panel(page, "Wind").locator(".panel-figure")).to_have_text("2")
    assert image(page, "picture-panel-map")["shape"] == [23, 23]
    page.evaluate("for (const one of document.querySelectorAll('.picture')) one.figure.mark = 'kept'")
    nodes = page.evaluate("document.querySelectorAll('*').length")
    assert panel(page, "Warmest").locator(".panel-figure").inner_text() == "8"
    for number in range(3):
        growing.add(6, value=20.0 + number)
        expect(panel(page, "Warmest").locator(".panel-figure")).to_have_text(str(23 + number))
    eventually(page, lambda: all(one["updates"] >= 4 for one in statistics(page)[:5]))
    # Nothing came of the wind.
    assert statistics(page)[5]["updates"] == 1
    assert max(max(values) for values in data(page, "lines", "values", "picture-panel-lines")) > 20
    expect(page.locator(".panel[data-id=number] .panel-figure")).to_have_text("22")
    marks = page.evaluate("[...document.querySelectorAll('.picture')].map((one) => one.figure.mark)")
    assert marks == ["kept"] * 3
    assert page.evaluate("document.querySelectorAll('*').length") <= nodes + 5
    growing.add(1, value=3.0, variable="wind_speed")
    expect(panel(page, "Wind").locator(".panel-figure")).to_have_text("3")
    assert complaints == []


def texts_kept(page: Page) -> int:
    """Return how many texts Chromium remembers of those that canvases measured, after its garbage was collected."""
    session, chunks = page.context.new_cdp_session(page), list[str]()
    session.on("HeapProfiler.addHeapSnapshotChunk", lambda event: chunks.append(event["chunk"]))
    session.send("HeapProfiler.enable")
    session.send("HeapProfiler.collectGarbage")
    session.send("HeapProfiler.takeHeapSnapshot")
    session.detach()
    snapshot = json.loads("".join(chunks))
    fields = snapshot["snapshot"]["meta"]["node_fields"]
    names = snapshot["nodes"][fields.index("name") :: len(fields)]
    return sum(snapshot["strings"][name] == "blink::PlainTextNode" for name in names)


def test_texts_that_figures_measured_are_not_kept(page: Page, live: str) -> None:
    page.goto(f"{live}#boards?board=valley")
    eventually(page, lambda: len(statistics(page)) == 6 and all(one["updates"] for one in statistics(page)))
    before = texts_kept(page)
    own = """(count) => {
      window.kept = document.createElement("canvas").getContext("2d");
      kept.font = "13px sans-serif";
      return Array.from({ length: count }, (_, at) => kept.measureText(`${at} seen`).width);
    }"""
    widths = page.evaluate(own, TEXTS)
    after = texts_kept(page)
    if after - before < TEXTS:
        pytest.skip("this Chromium keeps nothing of a text that was measured")
    # As many as a board of ten panels measures in five minutes.
    measured = """(count) => Array.from({ length: count }, (_, at) =>
      Bokeh.require("core/graphics").text_width(`${at} seen`, "13px sans-serif"))"""
    assert page.evaluate(measured, TEXTS) == widths
    assert texts_kept(page) - after < TEXTS / 4


def test_a_hidden_tab_asks_nothing(page: Page, live: str) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url) if "snapshots/newest" in request.url else None)
    page.goto(f"{live}#boards?board=valley")
    eventually(page, lambda: len(asked) > 2)
    page.evaluate(
        "Object.defineProperty(document, 'hidden', { get: () => window.away ?? true, configurable: true });"
        "document.dispatchEvent(new Event('visibilitychange'))"
    )
    page.wait_for_timeout(700)
    before = len(asked)
    page.wait_for_timeout(1500)
    assert len(asked) == before
    page.evaluate("window.away = false; document.dispatchEvent(new Event('visibilitychange'))")
    eventually(page, lambda: len(asked) > before)


def test_a_panel_that_fails_says_why_and_goes_on(page: Page, live: str) -> None:
    failing = True

    def answer(route: Route) -> None:
        if failing:
            route.fulfill(status=429, json={"title": "Too many queries wait", "detail": "ask again", "status": 429})
        else:
            route.fallback()

    page.route("**/api/v1/queries?*", answer)
    page.goto(f"{live}#boards?board=valley")
    broken = panel(page, "Warmest")
    expect(broken.locator(".panel-state")).to_contain_text("Too many queries wait: ask again")
    # Others are shown.
    expect(page.locator(".panel[data-id=number] .panel-figure")).to_be_visible()
    failing = False
    expect(broken.locator(".panel-figure")).to_be_visible()
    expect(broken.locator(".panel-state")).to_be_hidden()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_wall_fills_the_window_until_escape(browser: Browser, live: str, scheme: Any) -> None:  # noqa: ANN401
    context = browser.new_context(viewport={"width": 1920, "height": 1080}, color_scheme=scheme)
    try:
        page = context.new_page()
        page.goto(f"{live}#boards?board=valley")
        eventually(page, lambda: len(statistics(page)) == 6 and all(one["updates"] for one in statistics(page)))
        source = axe()
        if source is not None:
            assert serious(page, source) == []
        page.get_by_role("button", name="Full screen").click()
        expect(page.locator("body > header")).to_be_hidden()
        expect(page.locator("#board-clock")).to_contain_text("UTC")
        expect(page.locator("#board-newest")).to_contain_text("Newest reading 2007-10-01")
        boxes = [one.bounding_box() or {} for one in page.locator(".panel").all()]
        assert sum(box["width"] * box["height"] for box in boxes) > 0.75 * 1920 * 1080
        assert all(box["y"] + box["height"] <= 1080 for box in boxes)
        assert overlapping(page) == []
        assert (
            float(page.evaluate("parseFloat(getComputedStyle(document.querySelector('.panel-title')).fontSize)")) > 24
        )
        if source is not None:
            assert serious(page, source) == []
        page.keyboard.press("Escape")
        expect(page.locator("body > header")).to_be_visible()
        assert "wall" not in page.url
    finally:
        context.close()


def test_an_embedded_panel_has_neither_frame_nor_header(page: Page, live: str, complaints: list[str]) -> None:
    document = {"address": "boards?board=valley&panel=map", "title": "The map"}
    name = page.request.post(f"{live}api/v1/links", data=document).json()["name"]
    page.route(
        "**/frame.html",
        lambda route: route.fulfill(
            content_type="text/html", body=f"<iframe src='{live}embed/{name}' width=700 height=450>"
        ),
    )
    page.goto(f"{live}frame.html")
    frame = page.frame_locator("iframe")
    expect(frame.locator(".panel")).to_have_count(1)
    expect(frame.locator("figcaption")).to_contain_text("100 % computed")
    expect(frame.locator("body > header")).to_be_hidden()
    expect(frame.get_by_role("button", name="Arrange")).to_have_count(0)
    # What Explore shows is a panel, too; other pages are none.
    for target, panels in (("stations?station=a&variable=air_temperature&days=1", 1), ("engine", 0)):
        page.goto(f"{live}?embed=1#{target}")
        page.reload()
        expect(page.locator("body[data-ready=yes]")).to_be_visible()
        expect(page.locator(".panel")).to_have_count(panels)
        expect(page.locator("body > header")).to_be_hidden()
    assert complaints == []


@pytest.mark.parametrize("width", [390, 1280])
def test_a_board_fits_a_narrow_window(browser: Browser, live: str, width: int) -> None:
    context = browser.new_context(viewport={"width": width, "height": 800})
    try:
        page = context.new_page()
        page.goto(f"{live}#boards?board=valley")
        eventually(page, lambda: len(statistics(page)) == 6 and all(one["updates"] for one in statistics(page)))
        assert overlapping(page) == []
        page.get_by_role("button", name="Arrange").click()
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert overlapping(page) == []
    finally:
        context.close()
