"""Eight tasks of a new user by mouse, by keyboard and on a phone, in few actions: `viz/README.md` has the table."""

import json
import zipfile
from pathlib import Path
from typing import Final
from urllib.parse import urlencode

import pytest
import xarray as xr
from playwright.sync_api import Browser, Page, Route, expect

from queries.standing.service import StandingQueries
from tests.browser.pages import SMALL, eventually, wait_for, written
from tests.browser.users import User, Way, user

pytestmark = pytest.mark.browser

WAYS: Final[tuple[Way, ...]] = ("mouse", "keyboard", "touch")
AFTERNOON: Final = {**SMALL, "clip": {"time": ["2007-10-01T12:00Z", "2007-10-02T00:00Z"]}}
TABLE: Final = "station,time,air_temperature [degC]\n" + "".join(
    f"N{at},2024-03-12 {hour:02}:00Z,{4 + at + hour / 4:.2f}\n" for hour in range(24) for at in range(4)
)
"""A day of four stations that says all that is needed of itself."""
STATIONS: Final = "station,latitude,longitude\n" + "".join(
    f"N{at},{46.5 + at / 100:.2f},{7.5 + at * at / 100:.2f}\n" for at in range(4)
)
"""Where they are."""


def write_table(folder: Path) -> list[Path]:
    """Write the table and its stations; return the files."""
    files = [folder / "data.csv", folder / "stations.csv"]
    for path, text in zip(files, (TABLE, STATIONS), strict=True):
        path.write_text(text, "utf-8")
    return files


def check_package(package: Path, folder: Path) -> None:
    """See that what was saved has values and a picture."""
    with zipfile.ZipFile(package) as content:
        content.extractall(folder)
    with xr.open_dataset(folder / "values.nc", engine="h5netcdf") as held:
        assert "air_temperature" in held
    assert (folder / "picture.png").read_bytes().startswith(b"\x89PNG")


def whole(page: Page) -> None:
    """Wait until a picture is computed in full."""
    wait_for(page, "Done")
    expect(page.locator("#caption")).to_contain_text("100 % computed")


def begin(user: User, address: str, options: str = "?finer=no") -> None:
    """Come to where the first map stands, which is counted by its own task."""
    user.page.goto(f"{address}#explore{options}")
    user.page.wait_for_selector("body[data-ready=yes]")
    whole(user.page)
    # Nothing moves under a finger any more.
    eventually(user.page, lambda: user.page.locator("#picture").get_attribute("data-ground") is not None)


@pytest.mark.parametrize("way", WAYS)
def test_a_map_is_two_actions_away(way: Way, browser: Browser, address: str) -> None:
    with user(browser, way) as someone:
        someone.open(address)
        someone.press("map-of")
        whole(someone.page)
        assert written(someone.page)["steps"][-1]["op"] == "interpolate"
        assert len(someone.actions) <= 2


@pytest.mark.parametrize("way", WAYS)
def test_another_variable_is_a_choice(way: Way, browser: Browser, address: str) -> None:
    with user(browser, way) as someone:
        begin(someone, address)
        someone.choose("variable", "relative_humidity")
        expect(someone.page.locator("#caption")).to_contain_text("humidity")
        whole(someone.page)
        assert len(someone.actions) <= 1


@pytest.mark.parametrize("way", WAYS)
def test_a_region_is_moved_to(way: Way, browser: Browser, address: str) -> None:
    with user(browser, way) as someone:
        begin(someone, address, "")
        before = written(someone.page)["steps"][-1]["grid"]
        if way == "keyboard":
            someone.steer("picture", "ArrowRight", "ArrowRight", "ArrowDown", "ArrowDown")
        else:
            # The map follows.
            someone.drag("picture", (0.7, 0.5), (0.4, 0.4))
        eventually(someone.page, lambda: written(someone.page)["steps"][-1]["grid"] != before)
        whole(someone.page)
        after = written(someone.page)["steps"][-1]["grid"]
        # Dragged to the left and upwards, a map shows what is east and south of it.
        assert after["lon"] > before["lon"]
        assert after["lat"] < before["lat"]
        assert len(someone.actions) <= 1


@pytest.mark.parametrize("way", WAYS)
def test_a_cells_series_has_its_uncertainty(way: Way, browser: Browser, address: str) -> None:
    with user(browser, way) as someone:
        begin(someone, address)
        someone.point("picture")
        drawn = "document.getElementById('picture-cell')?.figure"
        someone.page.wait_for_function(f"() => {drawn}?.find('bands')?.data.times.length > 0")
        times = someone.page.evaluate(f"() => Array.from({drawn}.find('lines').data.times[0])")
        assert len(times) > 20, "the day in short steps"
        assert len(someone.actions) <= 1


@pytest.mark.parametrize("way", WAYS)
def test_two_periods_are_compared(way: Way, browser: Browser, address: str) -> None:
    with user(browser, way) as someone:
        someone.page.goto(f"{address}#explore?{urlencode({'q': json.dumps(AFTERNOON), 'finer': 'no'})}")
        someone.page.wait_for_selector("body[data-ready=yes]")
        someone.page.locator("#run").click()
        whole(someone.page)
        someone.choose("beside", "before")
        expect(someone.page.locator("#caption-second")).to_contain_text("100 % computed")
        whole(someone.page)
        assert len(someone.actions) <= 1


@pytest.mark.parametrize("way", WAYS)
def test_picture_and_values_are_saved(way: Way, browser: Browser, address: str, tmp_path: Path) -> None:
    with user(browser, way) as someone:
        begin(someone, address)
        check_package(someone.save_link("Everything (zip)", tmp_path), tmp_path)
        assert len(someone.actions) <= 1


@pytest.mark.parametrize("way", WAYS)
def test_ones_own_table_becomes_a_map(way: Way, browser: Browser, taking: str, tmp_path: Path) -> None:
    with user(browser, way) as someone:
        someone.open(taking)
        someone.press("link-import")
        someone.send("import-choose", write_table(tmp_path))
        expect(someone.page.locator("#import-todo")).to_have_text("Ready to be ingested.")
        someone.press("import-run")
        expect(someone.page.locator("[data-count=stored]")).to_have_text("96")
        someone.press("import-explore")
        whole(someone.page)
        assert len(someone.actions) <= 12


@pytest.mark.parametrize("way", WAYS)
def test_an_alert_is_made(way: Way, browser: Browser, address: str, standing: StandingQueries) -> None:
    with user(browser, way) as someone:
        someone.open(address)
        someone.press("link-standing")
        # Where nothing is watched yet, the form is open.
        expect(someone.page.locator("#standing-list")).to_contain_text("There are no standing queries")
        # The page says what it would do once it knows the variable's stations.
        expect(someone.page.locator("#standing-sentence")).not_to_be_empty()
        # What most ask for stands there.
        expect(someone.page.locator("#condition")).to_have_value("above")
        someone.type("condition-level", "95")
        someone.press("create")
        expect(someone.page.locator("#standing-problem")).to_contain_text("is kept up to date")
        assert len(someone.actions) <= 12
    (made,) = standing.listing()
    assert made["condition"] == {"kind": "threshold", "above": 95}
    standing.remove(made["name"])


def test_what_is_chosen_while_a_question_is_asked_is_asked(browser: Browser, address: str) -> None:
    with user(browser, "mouse") as someone:
        begin(someone, address)
        # By arrows in a list that is closed each choice comes at once after the one before.
        for value in ("deviation", "year", "method:inverse_distance"):
            someone.page.locator("#beside").select_option(value)
        expect(someone.page.locator("#caption-second")).to_contain_text("100 % computed")
        whole(someone.page)


AREA = (
    """() => { const { x_range: x, y_range: y } = picture.figure.plot; return [x.end - x.start, y.end - y.start]; }"""
)


def test_a_map_that_follows_stays_as_wide_and_forgets_the_cell_that_was_chosen(browser: Browser, address: str) -> None:
    with user(browser, "mouse") as someone:
        page = someone.page
        begin(someone, address, "")
        someone.point("picture")
        page.wait_for_function("() => document.getElementById('picture-cell').figure?.find('bands')?.data.times.length")
        widths = []
        for _ in range(3):
            before = written(page)["steps"][-1]["grid"]
            # The map has its place beside the series, and is heard.
            page.wait_for_timeout(1500)
            box = page.locator("#picture-part").bounding_box()
            assert box is not None
            middle = (box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
            page.mouse.move(*middle)
            page.mouse.down()
            page.mouse.move(middle[0] - 120, middle[1], steps=8)
            page.mouse.up()
            eventually(page, lambda before=before: written(page)["steps"][-1]["grid"] != before)
            whole(page)
            widths.append(page.evaluate(AREA))
        expect(page.locator("#picture-cell")).to_be_hidden()
        # The first one fills the window; none of those after it is larger than the one before.
        assert widths[2] == pytest.approx(widths[1], rel=0.05)


def test_a_map_follows_only_what_was_asked_and_chosen(browser: Browser, address: str) -> None:
    with user(browser, "mouse") as someone:
        page = someone.page
        begin(someone, address)
        before = written(page)["steps"][-1]["grid"]
        someone.drag("picture", (0.7, 0.5), (0.4, 0.4))
        expect(page.locator("#map-area")).to_be_visible()
        page.set_viewport_size({"width": 1200, "height": 760})
        page.wait_for_timeout(1500)
        assert written(page)["steps"][-1]["grid"] == before, "without finer cells nothing is asked by itself"


def test_a_map_that_is_moved_while_its_first_values_come_can_be_mapped_there(browser: Browser, address: str) -> None:
    with user(browser, "mouse") as someone:
        page, held, values_come = someone.page, list[Route](), []

        def hold(route: Route) -> None:
            if values_come:
                route.continue_()
            else:
                held.append(route)

        page.route("**/frame?*", hold)
        page.goto(f"{address}#explore?finer=no")
        page.wait_for_selector("body[data-ready=yes]")
        eventually(page, lambda: held and page.evaluate("() => Boolean(picture.figure)"))
        someone.drag("picture", (0.7, 0.5), (0.4, 0.4))
        expect(page.locator("#map-area")).to_be_hidden()
        values_come.append(True)
        for route in held:
            route.continue_()
        whole(page)
        before = written(page)["steps"][-1]["grid"]
        page.locator("#map-area").click()
        eventually(page, lambda: written(page)["steps"][-1]["grid"] != before)
        whole(page)
        expect(page.locator("#map-area")).to_be_hidden()


def test_a_series_that_is_refused_is_told_once_in_its_place(browser: Browser, address: str) -> None:
    with user(browser, "mouse") as someone:
        page = someone.page
        begin(someone, address)
        posed = []
        refusal = json.dumps({"title": "The query cannot be answered", "detail": "no such cells", "status": 422})

        def refuse(route: Route) -> None:
            if route.request.method == "POST":
                posed.append(route.request.post_data)
                route.fulfill(status=422, content_type="application/problem+json", body=refusal)
            else:
                route.continue_()

        page.route("**/api/v1/queries?order=*", refuse)
        someone.point("picture")
        expect(page.locator("#picture-cell")).to_contain_text("no such cells")
        count = len(posed)
        assert count > 1, "longer cells are tried"
        page.locator("#looks-part-button").click()
        page.get_by_label("Colours", exact=True).select_option("inferno")
        page.wait_for_timeout(800)
        assert len(posed) == count
        page.keyboard.press("Escape")
        # The map answers all the same.
        page.locator(".close-cell").click()
        expect(page.locator("#picture-cell")).to_be_hidden()
