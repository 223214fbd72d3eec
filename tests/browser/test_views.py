"""Looking at an answer: uncertainty, cells over time, days by hours, two at once, differences, film, tables, files."""

import csv
import io
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from playwright.sync_api import Page, expect

import hypergrid as hg
from tests.browser.pages import (
    SMALL,
    box_of,
    data,
    digest,
    eventually,
    finer,
    image,
    run,
    saved,
    unfold,
    wait_for,
    write,
)

pytestmark = pytest.mark.browser

HOURLY = {**SMALL, "steps": [{"op": "aggregate", "function": "mean", "time": "1h"}, SMALL["steps"][1]]}
SERIES = {"variable": "solar_radiation", "steps": [{"op": "aggregate", "function": "mean", "time": "1h"}]}


def cells(page: Page, place: str = "picture") -> np.ndarray:
    """Return the map that is drawn."""
    drawn = image(page, place)
    return np.array(drawn["values"], np.float64).reshape(drawn["shape"])


def is_drawn(page: Page, caption: str = "caption") -> None:
    expect(page.locator(f"#{caption}")).to_contain_text("100 % computed")


def span(page: Page, place: str) -> list[float]:
    return list(
        page.evaluate(
            "(id) => { const { start, end } = document.getElementById(id).figure.plot.x_range; return [start, end]; }",
            place,
        )
    )


def colours(page: Page, place: str = "picture") -> dict[str, Any]:
    return dict(
        page.evaluate(
            "(id) => { const { low, high, palette } = document.getElementById(id).figure.find('colours');"
            " return { low, high, palette: palette.slice() }; }",
            place,
        )
    )


def limits(page: Page, place: str = "picture") -> tuple[float, float]:
    """Return the values of the first and the last colour."""
    found = colours(page, place)
    return found["low"], found["high"]


def label(page: Page, name: str, place: str = "picture") -> str:
    """Return the text above or below a figure, in one line."""
    text = page.evaluate("([id, name]) => document.getElementById(id).figure.find(name).text", [place, name])
    return str(text).replace("\n", " ")


def rows_of(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(path.read_text("utf-8"))))


def test_uncertainty_beside_the_values(opened: Page, archive: hg.OpenArchive) -> None:
    opened.get_by_label("Beside it").select_option("deviation")
    run(opened, HOURLY)
    is_drawn(opened)
    is_drawn(opened, "caption-second")
    expected = archive.query({**HOURLY, "variance": True}).compute()
    np.testing.assert_allclose(cells(opened), expected["value"].to_numpy()[0], rtol=1e-9)
    np.testing.assert_allclose(cells(opened, "picture-second"), np.sqrt(expected["variance"].to_numpy()[0]), rtol=1e-9)
    expect(opened.locator("#caption-second")).to_contain_text("standard deviation [°C]")
    assert limits(opened) != limits(opened, "picture-second"), "of another quantity"


def test_pictures_beside_each_other_show_the_same_stretch(opened: Page) -> None:
    opened.get_by_label("Beside it").select_option("variable:relative_humidity")
    run(opened, HOURLY)
    wait_for(opened, "beside: Done")
    is_drawn(opened, "caption-second")
    linked = "() => Boolean(document.getElementById('picture-second').figure?.linked)"
    eventually(opened, lambda: bool(opened.evaluate(linked)))
    opened.evaluate("() => document.getElementById('picture').figure.plot.x_range.setv({ start: 7.178, end: 7.18 })")
    eventually(opened, lambda: span(opened, "picture-second") == [7.178, 7.18])
    opened.evaluate(
        "() => document.getElementById('picture-second').figure.plot.x_range.setv({ start: 7.17, end: 7.19 })"
    )
    assert span(opened, "picture") == [7.17, 7.19]
    expect(opened.get_by_label("Difference as well")).to_be_enabled()
    opened.get_by_label("Difference as well").check()
    expect(opened.locator("#caption-difference")).to_contain_text("other units")


def test_the_difference_of_two_questions(opened: Page, archive: hg.OpenArchive) -> None:
    opened.get_by_label("Beside it").select_option("variable:surface_temperature")
    opened.get_by_label("Difference as well").check()
    run(opened, HOURLY)
    wait_for(opened, "beside: Done")
    is_drawn(opened, "caption-difference")
    one, other = (
        archive.query({**HOURLY, "variable": name}).compute()["value"].to_numpy()[0]
        for name in ("air_temperature", "surface_temperature")
    )
    np.testing.assert_allclose(cells(opened, "picture-difference"), one - other, atol=1e-9)
    both = np.concatenate([cells(opened), cells(opened, "picture-second")])
    low, high = limits(opened)
    assert limits(opened, "picture-second") == (low, high), "pictures that are compared share their colours"
    assert low <= both.min() < both.max() <= high
    expect(opened.locator("#range")).to_contain_text("the values of both pictures")
    found = colours(opened, "picture-difference")
    assert found["low"] == -found["high"], "nothing is in the middle"
    assert len(found["palette"]) == 255


def test_the_difference_of_two_snapshots(opened: Page, archive: hg.OpenArchive) -> None:
    run(opened, SMALL)
    opened.get_by_label("Beside it").select_option(f"snapshot:{archive.snapshot}")
    opened.get_by_label("Difference as well").check()
    wait_for(opened, "beside: Done")
    is_drawn(opened, "caption-difference")
    assert np.all(cells(opened, "picture-difference") == 0), "it is the same snapshot"


def test_a_cell_over_time_with_its_band(opened: Page, archive: hg.OpenArchive) -> None:
    document = {**HOURLY, "variance": True}
    run(opened, document)
    is_drawn(opened)
    for label, value in (("Row of the cell for lines", "4"), ("Column", "9")):
        opened.get_by_label(label, exact=True).fill(value)
        opened.get_by_label(label, exact=True).press("Tab")
    expected = archive.query(document).compute()
    place = f"{expected['lon'].to_numpy()[9]:.5f}".rstrip("0")
    expect(opened.locator("#caption-cell")).to_contain_text(f"lon {place}")
    expect(opened.locator("#caption-cell")).to_contain_text("two standard deviations")
    np.testing.assert_allclose(
        data(opened, "lines", "values", "picture-cell")[0], expected["value"].to_numpy()[:, 4, 9], rtol=1e-9
    )
    band = data(opened, "bands", "values", "picture-cell")[0]
    deviation = np.sqrt(expected["variance"].to_numpy()[:, 4, 9])
    np.testing.assert_allclose(band[: len(deviation)], expected["value"].to_numpy()[:, 4, 9] + 2 * deviation, rtol=1e-9)
    assert data(opened, "picked", "x")[0] == pytest.approx(expected["lon"].to_numpy()[9])


def test_a_click_on_the_map_shows_the_cell(opened: Page) -> None:
    opened.set_viewport_size({"width": 1280, "height": 1000})
    run(opened, HOURLY)
    is_drawn(opened)
    box = box_of(opened, "#picture")
    opened.mouse.click(box["x"] + box["width"] * 0.5, box["y"] + box["height"] * 0.5)
    expect(opened.locator("#caption-cell")).to_contain_text("24 time cells")
    assert int(opened.get_by_label("Row of the cell for lines").input_value()) in range(23)
    assert "pick=" in opened.url


def test_what_made_a_cell_is_told(opened: Page, archive: hg.OpenArchive) -> None:
    run(opened, SMALL)
    is_drawn(opened)
    opened.get_by_role("button", name="What made this cell").click()
    expect(opened.locator("#lineage-words")).to_have_text("Click a cell of the map first.")
    for label, value in (("Row of the cell for lines", "4"), ("Column", "9")):
        opened.get_by_label(label, exact=True).fill(value)
        opened.get_by_label(label, exact=True).press("Tab")
    # What is said of the cell moves the button, perhaps while the mouse is on its way.
    expect(opened.locator("#picked-value")).not_to_be_empty()
    opened.get_by_role("button", name="What made this cell").click()
    expect(opened.locator("#lineage-words")).to_contain_text("made of")
    result = archive.query(SMALL).compute()
    made = hg.lineage(result, result.isel(time=0, lat=4, lon=9), archive)
    expect(opened.locator("#lineage-words")).to_contain_text(f"made of {len(made.used):,} readings")
    rows = opened.locator("#lineage tbody tr")
    expect(rows).to_have_count(int((made.stations["slices"] > 0).sum()))
    heaviest = made.stations.sort_values("weight", ascending=False).iloc[0]
    assert rows.first.inner_text().split("\t")[:2] == [heaviest["station"], f"{heaviest['weight']:.3f}"]
    # Another answer is another cell.
    run(opened)
    expect(opened.locator("#lineage")).to_be_hidden()


def test_days_by_hours_and_histograms(opened: Page, archive: hg.OpenArchive) -> None:
    run(opened, SMALL)
    is_drawn(opened)
    opened.get_by_label("Histogram").check()
    expect(opened.locator("#caption")).to_contain_text("Histogram of 529 values")
    assert sum(data(opened, "bars", "top")) == 529
    opened.get_by_label("Day by hour").check()
    expect(opened.locator("#caption")).to_contain_text("needs two days or more")
    opened.get_by_label("Lines over time").check()
    expect(opened.locator("#caption")).to_contain_text("4 time cells")
    expected = archive.query(SMALL).compute()["value"].to_numpy()[:, 11, 11]
    np.testing.assert_allclose(data(opened, "lines", "values")[0], expected, rtol=1e-9)


def test_time_cells_are_played_as_a_film(opened: Page) -> None:
    run(opened, HOURLY)
    is_drawn(opened)
    first = digest(opened)
    opened.get_by_role("button", name="Play").click()
    seen = {first}

    def goes_on() -> bool:
        seen.add(digest(opened))
        return len(seen) > 3

    eventually(opened, goes_on)
    opened.get_by_role("button", name="Pause").click()
    at = opened.get_by_label("Time cell").input_value()
    opened.wait_for_timeout(1000)
    assert opened.get_by_label("Time cell").input_value() == at
    assert colours(opened)["low"] < colours(opened)["high"]


@pytest.mark.usefixtures("unhurried")
def test_colours_stay_while_it_sharpens_ten_times_a_second(opened: Page) -> None:
    opened.evaluate(
        """() => {
          window.drawn = [];
          const watch = setInterval(() => {
            const figure = document.getElementById("picture").figure;
            if (!figure || figure.watched) return;
            figure.watched = true;
            const colours = figure.find("colours");
            const note = () => window.drawn.push([performance.now(), colours.low, colours.high]);
            figure.find("surface").properties.data.change.connect(note);
          }, 20);
          window.endWatch = () => clearInterval(watch);
        }"""
    )
    write(opened, finer(400))
    opened.get_by_role("button", name="Run", exact=True).click()
    eventually(opened, lambda: opened.evaluate("() => window.drawn.length") >= 6, 60)
    expect(opened.locator("#range")).to_contain_text("off by about")
    opened.get_by_role("button", name="Stop", exact=True).click()
    wait_for(opened, "Stopped")
    drawn = np.array(opened.evaluate("() => { window.endWatch(); return window.drawn; }"), np.float64)
    assert np.unique(drawn[:, 1:], axis=0).shape[0] == 1, "colours are fixed"
    assert 50 < np.diff(drawn[:, 0]).min(), "ten redraws a second, and few more"


@pytest.mark.parametrize("order", ["walk", "by_time", "raster"])
def test_orders_of_cells(opened: Page, order: str) -> None:
    unfold(opened, "panel")
    opened.get_by_text("More: flags").click()
    opened.get_by_label("Order of cells").select_option(order)
    with opened.expect_request("**/api/v1/queries?order=*") as asked:
        run(opened, SMALL)
    assert asked.value.url.endswith(f"order={order}")
    is_drawn(opened)
    assert f"order={order}" in opened.url


def test_a_direction_has_colours_all_round(opened: Page) -> None:
    steps = [
        {"op": "aggregate", "function": "sample", "time": "6h"},
        {**SMALL["steps"][1], "method": "recipe", "params": {"trend": "none"}},
    ]
    run(opened, {"variable": "wind_direction", "steps": steps})
    is_drawn(opened)
    found = colours(opened)
    assert (found["low"], found["high"]) == (0, 360)
    assert found["palette"][0] == found["palette"][-1]


def test_each_plot_is_a_table_too(opened: Page) -> None:
    run(opened, SMALL)
    is_drawn(opened)
    part = opened.locator("#about-first")
    part.get_by_text("As a table").click()
    table = part.get_by_role("table")
    expect(table.get_by_role("row")).to_have_count(201)
    expect(table).to_contain_text("the first 200 of 529 rows")
    opened.get_by_label("Lines over time").check()
    expect(table.get_by_role("row")).to_have_count(5)


def test_what_is_shown_is_saved(opened: Page, archive: hg.OpenArchive, tmp_path: Path) -> None:
    run(opened, SMALL)
    is_drawn(opened)
    heading = label(opened, "heading")
    assert re.fullmatch(r"Mean air temperature, 2007-10-01, ordinary kriging; 2007-10-01 00:00 UTC", heading), heading
    assert label(opened, "source").startswith(f"{archive.name} · snapshot {archive.snapshot[:8]} · HyperGrid ")
    part = opened.locator("#about-first")
    for button, name, begin in (("Save PNG", "map.png", b"\x89PNG"), ("Save SVG", "map.svg", b"<svg")):
        with opened.expect_download() as downloading:
            part.get_by_role("button", name=button).click()
        downloading.value.save_as(tmp_path / name)
        content = (tmp_path / name).read_bytes()
        assert content.startswith(begin)
        assert len(content) > 5000
    with opened.expect_download() as downloading:
        part.get_by_role("button", name="Save shown values").click()
    downloading.value.save_as(tmp_path / "map.csv")
    assert downloading.value.suggested_filename == "hypergrid-air-temperature.csv"
    rows = rows_of(tmp_path / "map.csv")
    expected = archive.query(SMALL).compute()["value"].to_numpy()[0]
    assert list(rows[0]) == ["lon [degree]", "lat [degree]", "Air temperature [degC]", "how"]
    np.testing.assert_allclose([float(row["Air temperature [degC]"]) for row in rows], expected.ravel(), rtol=1e-9)
    assert {row["how"] for row in rows} == {"computed"}


def test_series_beside_each_other_are_saved_with_all_their_lines(opened: Page, tmp_path: Path) -> None:
    opened.get_by_label("Beside it").select_option("variable:surface_temperature")
    run(opened, SERIES)
    wait_for(opened, "beside: Done")
    expect(opened.locator("#caption-second")).to_contain_text("Surface temperature [°C]")
    assert len(data(opened, "lines", "station")) == 24
    with opened.expect_download() as downloading:
        opened.locator("#about-first").get_by_role("button", name="Save shown values").click()
    downloading.value.save_as(tmp_path / "lines.csv")
    rows = rows_of(tmp_path / "lines.csv")
    assert len(rows) == 24
    assert len(rows[0]) == 25


def test_missing_values_are_said_to_be_missing(opened: Page) -> None:
    document = saved("q1")
    document["steps"][0]["params"] = {"low": 45.0, "high": 50.0}
    document["clip"] = {"time": ["2007-10-01T00:00Z", "2007-10-01T02:00Z"]}
    run(opened, document)
    expect(opened.locator("#caption")).to_contain_text("every value is missing")
    # No picture with colours of nothing.
    expect(opened.locator("#picture")).to_contain_text("every cell is missing")
    assert opened.locator("#picture canvas").count() == 0


def test_a_question_beside_that_cannot_be_answered_leaves_the_first_alone(page: Page, address: str) -> None:
    page.goto(f"{address}#explore")
    page.wait_for_selector("body[data-ready=yes]")
    page.get_by_label("Beside it").select_option("variable:wind_direction")
    run(page, SMALL)
    is_drawn(page)
    expect(page.locator("#notice")).to_contain_text("direction")
    expect(page.locator("#caption-second")).to_contain_text("cannot be answered")


def test_a_second_opinion_is_asked_of_the_answer_that_is_shown(opened: Page) -> None:
    button, opinion = opened.locator("#second-opinion"), opened.locator("#opinion")
    expect(button).to_be_hidden()
    write(opened, SMALL)
    run(opened)
    is_drawn(opened)
    button.click()
    expect(opinion).to_contain_text("second opinion by PyKrige")
    expect(opinion).to_contain_text("cells agree, greatest difference")
    # Another answer has no opinion yet.
    write(opened, HOURLY)
    run(opened)
    is_drawn(opened)
    expect(opinion).to_have_text("")
    expect(button).to_be_enabled()
