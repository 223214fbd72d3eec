"""Building a question: forms and JSON follow each other, by mouse and by keyboard; regions; copies that do the same."""

import json
import re
import shlex
import subprocess
import sys
from typing import Any

import pytest
from playwright.sync_api import Page, expect

import hypergrid as hg
from tests.browser.pages import (
    SMALL,
    box_of,
    choose_by_arrows,
    press_until,
    run,
    saved,
    show,
    unfold,
    wait_for,
    write,
    written,
)

pytestmark = pytest.mark.browser


def ops(page: Page) -> list[str]:
    return [step["op"] for step in written(page)["steps"]]


def settle(page: Page, document: dict[str, Any]) -> None:
    """Write a query, and wait until the forms follow."""
    write(page, document)
    page.wait_for_function(
        "(wanted) => JSON.stringify(JSON.parse(new URLSearchParams(location.hash.split('?')[1]).get('q'))) "
        "=== JSON.stringify(JSON.parse(wanted))",
        arg=json.dumps(document),
    )
    expect(page.locator("#steps > li.step")).to_have_count(len(document["steps"]))


def type_into(page: Page, label: str, value: str) -> None:
    """Type as a user does: the numbers of a region change one another."""
    page.get_by_label(label).click()
    page.keyboard.press("Control+A")
    page.keyboard.type(value)


def test_forms_follow_the_json(opened: Page) -> None:
    settle(opened, saved("q1"))
    steps = opened.locator("#steps > li")
    expect(steps.nth(0).get_by_label("Function")).to_have_value("valid_range")
    expect(steps.nth(0).get_by_label("low")).to_have_value("-40")
    expect(steps.nth(1).get_by_label("Over time")).to_have_value("10min")
    expect(steps.nth(2).get_by_label("Range [m]")).to_have_value("250")
    expect(steps.nth(2).get_by_label("neighbours")).to_have_value("20")
    expect(opened.get_by_label("From (UTC)")).to_have_value("2007-10-01T00:00")
    expect(opened.get_by_label("West")).to_have_value(re.compile(r"^7\.17694"))
    expect(opened.get_by_label("Cell size")).to_have_value("1arcsec")


def test_a_question_is_built_by_mouse_and_answered(opened: Page) -> None:
    settle(opened, {"variable": "air_temperature", "steps": []})
    for op in ("convert", "aggregate", "interpolate", "aggregate"):
        opened.get_by_label("New step").select_option(op)
        opened.get_by_role("button", name="Add step").click()
    steps = opened.locator("#steps > li")
    steps.nth(1).get_by_label("Over time").fill("10min")
    assert written(opened)["steps"][2]["method"] == "auto"
    opened.locator("#step-2-function").select_option("ordinary_kriging")
    steps.nth(2).get_by_label("variogram").select_option("exponential")
    steps.nth(2).get_by_label("Partial sill").fill("1.2")
    steps.nth(2).get_by_label("Range [m]").fill("250")
    steps.nth(2).get_by_label("Nugget").fill("0.05")
    steps.nth(3).get_by_label("Over time").fill("all")
    unfold(opened, "dates")
    opened.get_by_label("From (UTC)").fill("2007-10-01T00:00")
    opened.get_by_label("Until (UTC, not included)").fill("2007-10-01T06:00")
    opened.get_by_label("Until (UTC, not included)").press("Tab")
    document = written(opened)
    assert [step["op"] for step in document["steps"]] == ["convert", "aggregate", "interpolate", "aggregate"]
    assert document["clip"] == {"time": ["2007-10-01T00:00Z", "2007-10-01T06:00Z"]}
    variogram = {"model": "exponential", "psill": 1.2, "range_m": 250, "nugget": 0.05}
    assert document["steps"][2]["params"] == {"variogram": variogram}
    run(opened)
    expect(opened.locator("#caption")).to_contain_text("100 % computed")


def test_a_question_is_built_by_keyboard_alone(opened: Page) -> None:
    settle(opened, {"variable": "air_temperature", "steps": []})
    press_until(opened, "new-step", "Shift+Tab")
    opened.keyboard.type("Agg")
    press_until(opened, "add-step")
    opened.keyboard.press("Enter")
    assert opened.evaluate("() => document.activeElement.id") == "step-0-function"
    choose_by_arrows(opened, "step-0-function", "max")
    press_until(opened, "add-step")
    opened.keyboard.press("Enter")
    expect(opened.locator("#steps > li.step")).to_have_count(2)
    assert [step["function"] for step in written(opened)["steps"]] == ["max", "mean"]
    # The second moves up, by its button and by Alt with an arrow.
    press_until(opened, "step-1-up", "Shift+Tab")
    opened.keyboard.press("Enter")
    assert [step["function"] for step in written(opened)["steps"]] == ["mean", "max"]
    opened.keyboard.press("Alt+ArrowDown")
    assert [step["function"] for step in written(opened)["steps"]] == ["max", "mean"]
    press_until(opened, "step-1-remove")
    opened.keyboard.press("Enter")
    assert [step["function"] for step in written(opened)["steps"]] == ["max"]
    assert opened.evaluate("() => document.activeElement.id") == "step-0-remove", "the focus stays near"
    press_until(opened, "document")
    opened.keyboard.press("Control+Enter")
    wait_for(opened, "Done")
    expect(opened.locator("#caption")).to_contain_text("24 series of Air temperature")


def test_steps_are_moved_and_removed_by_mouse(opened: Page) -> None:
    settle(opened, saved("q1"))
    opened.get_by_role("button", name="Move step 2 (aggregate mean) earlier").click()
    assert ops(opened) == ["aggregate", "convert", "interpolate", "aggregate"]
    opened.get_by_role("button", name="Move step 1 (aggregate mean) later").click()
    assert ops(opened) == ["convert", "aggregate", "interpolate", "aggregate"]
    opened.get_by_role("button", name="Remove step 3 (interpolate ordinary_kriging)").click()
    assert ops(opened) == ["convert", "aggregate", "aggregate"]
    expect(opened.get_by_role("button", name="Move step 1 (convert valid_range) earlier")).to_be_disabled()


def test_another_function_keeps_what_it_knows(opened: Page) -> None:
    settle(opened, saved("q1"))
    method = opened.locator("#step-2-function")
    method.select_option("inverse_distance")
    step = written(opened)["steps"][2]
    assert (step["method"], step["params"]) == ("inverse_distance", {"neighbours": 20})
    opened.locator("#step-2-function").select_option("linear_in_time")
    step = written(opened)["steps"][2]
    assert "grid" not in step
    assert step["time"] == "10min"
    opened.locator("#step-2-function").select_option("nearest")
    assert "grid" in written(opened)["steps"][2]


def test_a_region_is_dragged_on_the_map_of_the_stations(opened: Page) -> None:
    settle(opened, saved("q1"))
    opened.set_viewport_size({"width": 1280, "height": 1200})
    unfold(opened, "place-part")
    box = box_of(opened, "#region-map")
    x, y = box["x"] + box["width"] * 0.45, box["y"] + box["height"] * 0.35
    opened.mouse.move(x, y)
    opened.mouse.down()
    opened.mouse.move(x + 40, y + 40, steps=5)
    opened.mouse.up()
    expect(opened.get_by_label("Query (JSON)")).not_to_have_value(re.compile("7:10:37"))
    grid = written(opened)["steps"][2]["grid"]
    assert 7.16 < grid["lon"] < 7.19
    assert 45.86 < grid["lat"] < 45.88
    assert max(grid["shape"]) in range(45, 56)
    run(opened)
    expect(opened.locator("#caption")).to_contain_text(f"{grid['shape'][1]} by {grid['shape'][0]} cells")


def test_a_region_is_typed(opened: Page, archive: hg.OpenArchive) -> None:
    settle(opened, saved("q1"))
    unfold(opened, "place-part")
    for side, value in (("West", "7.177"), ("East", "7.181"), ("South", "45.867"), ("North", "45.8692")):
        type_into(opened, side, value)
    opened.get_by_label("North").press("Tab")
    type_into(opened, "Cell size", "2arcsec")
    opened.get_by_label("Cell size").press("Tab")
    assert written(opened)["steps"][2]["grid"] == {"lon": 7.177, "lat": 45.867, "step": "2arcsec", "shape": [4, 7]}
    # Without an interpolation it chooses the stations, as readings have no cells that a clip could bound.
    settle(opened, {"variable": "air_temperature", "steps": []})
    unfold(opened, "place-part")
    for side, value in (("West", "7.177"), ("East", "7.181"), ("South", "45.867"), ("North", "45.8692")):
        type_into(opened, side, value)
    opened.get_by_label("North").press("Tab")
    places = {name: station.position for name, station in archive.stations.items()}
    inside = {name for name, at in places.items() if 7.177 <= at.lon <= 7.181 and 45.867 <= at.lat <= 45.8692}
    assert "clip" not in written(opened)
    assert set(written(opened)["select"]["station"]) == inside
    expect(opened.locator("#caption")).to_contain_text(f"{len(inside)} series of Air temperature")
    unfold(opened, "place-part")
    opened.get_by_label("West").fill("8")
    opened.get_by_label("West").press("Tab")
    assert opened.get_by_label("West").get_attribute("aria-invalid") is not None


def test_what_is_no_json_is_told_and_harms_nothing(opened: Page) -> None:
    settle(opened, saved("q1"))
    opened.get_by_label("Query (JSON)").fill('{"variable": ')
    expect(opened.locator("#document-hint")).to_contain_text("check quotes, commas and brackets")
    expect(opened.get_by_label("Query (JSON)")).to_have_attribute("aria-invalid", "true")
    expect(opened.locator("#steps > li.step")).to_have_count(4)
    settle(opened, SMALL)
    assert opened.get_by_label("Query (JSON)").get_attribute("aria-invalid") is None


def test_flags_variance_and_version(opened: Page, archive: hg.OpenArchive) -> None:
    settle(opened, saved("q1"))
    opened.get_by_text("More: flags").click()
    opened.get_by_label("Uncertainty (variance) as well").check()
    opened.get_by_label("suspect").check()
    opened.get_by_label("Version of the archive").select_option(archive.snapshot)
    document = written(opened)
    assert (document["variance"], document["accept_flags"], document["snapshot"]) == (True, [1, 2, 3], archive.snapshot)
    opened.get_by_label("suspect").uncheck()
    opened.get_by_label("Uncertainty (variance) as well").uncheck()
    opened.get_by_label("Version of the archive").select_option("")
    assert written(opened) == saved("q1")


CASES = {
    "q1": saved("q1"),
    "levels": saved("levels"),
    "bands": saved("bands"),
    "flags": {**SMALL, "accept_flags": [1, 3], "variance": True, "select": {"station": ["1", "2", "3"]}},
    "merge": {
        "variable": "air_temperature",
        "steps": [
            {"op": "aggregate", "function": "mean", "time": "1h"},
            {
                "op": "merge",
                "function": "difference",
                "with": [
                    {
                        "variable": "surface_temperature",
                        "steps": [{"op": "aggregate", "function": "mean", "time": "1h"}],
                    }
                ],
            },
        ],
    },
}


@pytest.mark.parametrize("name", CASES)
def test_copied_python_asks_the_same(opened: Page, archive: hg.OpenArchive, name: str) -> None:
    settle(opened, CASES[name])
    opened.get_by_role("button", name="Python").click()
    code = opened.locator(".copied pre").inner_text().replace('hg.open("archive")', "archive")
    code = code.replace("import hypergrid as hg\n", "").replace("dataset = surface.compute()", "")
    names: dict[str, Any] = {"archive": archive, "hg": hg}
    exec(code, names)
    assert names["surface"].token == archive.query(CASES[name]).token


def test_copied_json_and_curl_ask_the_same(opened: Page, address: str, archive: hg.OpenArchive, tmp_path: Any) -> None:  # noqa: ANN401
    settle(opened, SMALL)
    opened.locator("#copy-json").click()
    assert json.loads(opened.locator(".copied pre").inner_text()) == SMALL
    opened.locator("#copy-curl").click()
    code = opened.locator(".copied pre").inner_text()
    assert f"{address}api/v1/queries" in code
    code = code.replace("python3", shlex.quote(sys.executable))
    subprocess.run(["bash", "-c", code], cwd=tmp_path, check=True, timeout=60)
    import xarray as xr  # noqa: PLC0415 - one test of many needs it

    with xr.open_dataset(tmp_path / "surface.nc", engine="h5netcdf") as surface:
        expected = archive.query(SMALL).compute()["air_temperature"]
        assert abs(surface["air_temperature"] - expected).max() < 1e-9


def test_a_part_that_opens_over_others_closes_when_the_focus_leaves_it(opened: Page) -> None:
    show(opened, "Explore")
    press_until(opened, "dates-button")
    opened.keyboard.press("Enter")
    expect(opened.locator("#dates")).to_have_attribute("open", "")
    opened.keyboard.press("Tab")
    assert opened.evaluate("() => document.getElementById('dates').contains(document.activeElement)")
    expect(opened.locator("#dates")).to_have_attribute("open", "")
    press_until(opened, "dates-button", "Shift+Tab")
    expect(opened.locator("#dates")).to_have_attribute("open", "")
    opened.keyboard.press("Shift+Tab")
    expect(opened.locator("#dates")).not_to_have_attribute("open", "")
