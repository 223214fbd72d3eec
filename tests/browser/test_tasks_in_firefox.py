"""The eight tasks of `test_tasks.py` in Debian's own Firefox, by mouse and by keyboard, within the same limits.

A phone is left out: the protocol has fingers, but no screen of a phone. Lists are chosen from by arrows in both ways,
as an open one is a window of the browser's own.
"""

import json
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode

import pytest
import xarray as xr

from queries.standing.service import StandingQueries
from tests.browser.firefox import COMMANDS, Firefox, FirefoxUser, Way, firefox, firefox_path, firefox_user
from tests.browser.test_tasks import AFTERNOON, STATIONS, TABLE

WAYS: Final[tuple[Way, ...]] = ("mouse", "keyboard")


@pytest.fixture(scope="module")
def browser() -> Iterator[Firefox]:
    """Give a headless Firefox, or skip."""
    path = firefox_path()
    if path is None:
        pytest.skip(f"no Firefox on the PATH: install the package {COMMANDS[0]}")
    with firefox(path) as running:
        yield running


def text_holds(element: str, text: str) -> str:
    """Return the condition that an element's text contains another."""
    return f"document.getElementById({json.dumps(element)})?.textContent.includes({json.dumps(text)})"


def whole(user: FirefoxUser) -> None:
    """Wait until a picture is computed in full, and its figure holds cells."""
    user.wait_for(f"{text_holds('status', 'Done')} && {text_holds('caption', '100 % computed')}")
    user.wait_for("picture.figure?.find('surface')?.data.image[0]?.some(Number.isFinite)")


def written(user: FirefoxUser) -> dict[str, Any]:
    """Return the query that stands in the text."""
    return dict(json.loads(user.evaluate("document.getElementById('document').value")))


def begin(user: FirefoxUser, address: str, options: str = "?finer=no") -> None:
    """Come to where the first map stands, which is counted by its own task."""
    user.go(f"{address}#explore{options}")
    whole(user)
    # Nothing moves under the mouse any more.
    user.wait_for("picture.dataset.ground !== undefined")


@pytest.mark.parametrize("way", WAYS)
def test_a_map_is_two_actions_away(way: Way, browser: Firefox, address: str) -> None:
    with firefox_user(browser, way) as user:
        user.open(address)
        user.press("map-of")
        whole(user)
        assert written(user)["steps"][-1]["op"] == "interpolate"
        assert len(user.actions) <= 2
        assert user.complaints() == []


@pytest.mark.parametrize("way", WAYS)
def test_another_variable_is_a_choice(way: Way, browser: Firefox, address: str) -> None:
    with firefox_user(browser, way) as user:
        begin(user, address)
        user.choose("variable", "relative_humidity")
        user.wait_for(text_holds("caption", "humidity"))
        whole(user)
        assert written(user)["variable"] == "relative_humidity"
        assert len(user.actions) <= 1


@pytest.mark.parametrize("way", WAYS)
def test_a_region_is_moved_to(way: Way, browser: Firefox, address: str) -> None:
    with firefox_user(browser, way) as user:
        begin(user, address, "")
        before = written(user)["steps"][-1]["grid"]
        if way == "keyboard":
            user.steer("picture", "ArrowRight", "ArrowRight", "ArrowDown", "ArrowDown")
        else:
            user.drag("picture", (0.7, 0.5), (0.4, 0.4))
        grid = "JSON.parse(document.getElementById('document').value).steps.at(-1).grid"
        user.wait_for(f"((grid) => grid.lon !== {before['lon']} && grid.lat !== {before['lat']})({grid})")
        whole(user)
        after = written(user)["steps"][-1]["grid"]
        # Dragged to the left and upwards, a map shows what is east and south of it.
        assert after["lon"] > before["lon"]
        assert after["lat"] < before["lat"]
        assert len(user.actions) <= 1


@pytest.mark.parametrize("way", WAYS)
def test_a_cells_series_has_its_uncertainty(way: Way, browser: Firefox, address: str) -> None:
    with firefox_user(browser, way) as user:
        begin(user, address)
        user.point("picture")
        drawn = "document.getElementById('picture-cell')?.figure"
        user.wait_for(f"{drawn}?.find('bands')?.data.times.length > 0")
        times = user.evaluate(f"Array.from({drawn}.find('lines').data.times[0])")
        assert len(times) > 20, "the day in short steps"
        assert len(user.actions) <= 1


@pytest.mark.parametrize("way", WAYS)
def test_two_periods_are_compared(way: Way, browser: Firefox, address: str) -> None:
    with firefox_user(browser, way) as user:
        user.go(f"{address}#explore?{urlencode({'q': json.dumps(AFTERNOON), 'finer': 'no'})}")
        user.evaluate("document.getElementById('run').click()")
        whole(user)
        user.choose("beside", "before")
        user.wait_for(text_holds("caption-second", "100 % computed"))
        whole(user)
        assert len(user.actions) <= 1


@pytest.mark.parametrize("way", WAYS)
def test_picture_and_values_are_saved(way: Way, browser: Firefox, address: str, tmp_path: Path) -> None:
    with firefox_user(browser, way) as user:
        begin(user, address)
        with zipfile.ZipFile(user.save_link("Everything (zip)")) as package:
            package.extractall(tmp_path)
        with xr.open_dataset(tmp_path / "values.nc", engine="h5netcdf") as held:
            assert "air_temperature" in held
        assert (tmp_path / "picture.png").read_bytes().startswith(b"\x89PNG")
        assert len(user.actions) <= 1


@pytest.mark.parametrize("way", WAYS)
def test_ones_own_table_becomes_a_map(way: Way, browser: Firefox, taking: str, tmp_path: Path) -> None:
    files = {"data.csv": TABLE, "stations.csv": STATIONS}
    for name, text in files.items():
        (tmp_path / name).write_text(text, "utf-8")
    with firefox_user(browser, way) as user:
        user.open(taking)
        user.press("link-import")
        user.send_files("import-choose", [tmp_path / name for name in files])
        user.wait_for(text_holds("import-todo", "Ready to be ingested."))
        user.press("import-run")
        user.wait_for("document.querySelector('[data-count=stored]')?.textContent.trim() === '96'")
        user.press("import-explore")
        whole(user)
        assert len(user.actions) <= 12


@pytest.mark.parametrize("way", WAYS)
def test_an_alert_is_made(way: Way, browser: Firefox, address: str, standing: StandingQueries) -> None:
    with firefox_user(browser, way) as user:
        user.open(address)
        user.press("link-standing")
        # Where nothing is watched yet, the form is open.
        user.wait_for(text_holds("standing-list", "There are no standing queries"))
        # The page says what it would do once it knows the variable's stations.
        user.wait_for("document.getElementById('standing-sentence').textContent.trim() !== ''")
        assert user.evaluate("document.getElementById('condition').value") == "above"
        user.type("condition-level", "95")
        user.press("create")
        user.wait_for(text_holds("standing-problem", "is kept up to date"))
        assert len(user.actions) <= 12
    (made,) = standing.listing()
    assert made["condition"] == {"kind": "threshold", "above": 95}
    standing.remove(made["name"])
