"""Figures: what the page looks up in them, true proportions, colours with units."""

import math
from typing import Any

import pytest

from viz.figures import Extent, Words, day_by_hour_figure, lines_figure, map_figure

WORDS = Words("air_temperature", "air_temperature", "degC")
PASS = Extent(7.1769, 7.1833, 45.8669, 45.8733, geographic=True)


def models(item: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Every model of a document that has a name, and every one by its type."""
    found: dict[str, dict[str, Any]] = {}

    def visit(value: Any) -> None:  # noqa: ANN401
        if isinstance(value, dict):
            if value.get("type") == "object":
                attributes = value.get("attributes", {})
                found[attributes.get("name") or value["name"]] = {"model": value["name"], **attributes}
            for inner in value.values():
                visit(inner)
        elif isinstance(value, list):
            for inner in value:
                visit(inner)

    visit(item["doc"]["roots"])
    return found


def test_a_map_has_what_the_page_fills() -> None:
    found = models(map_figure(PASS, WORDS, theme="light", width=900))
    assert {"surface", "veil", "stations"} <= found.keys()
    assert found["colours"]["model"] == "LinearColorMapper"
    assert found["colours"]["palette"][0] == "#440154", "the palette is Viridis, which is perceptually uniform"
    assert found["ColorBar"]["title"] == "air_temperature [degC]"


def test_a_degree_of_longitude_is_drawn_shorter_by_the_cosine_of_latitude() -> None:
    root = map_figure(PASS, WORDS, theme="light", width=900)["doc"]["roots"][0]["attributes"]
    assert root["frame_height"] / root["frame_width"] == pytest.approx(1 / math.cos(math.radians(45.8701)), rel=0.01)
    square = map_figure(Extent(0, 1000, 0, 1000, geographic=False), WORDS, theme="light", width=900)
    attributes = square["doc"]["roots"][0]["attributes"]
    assert attributes["frame_height"] == attributes["frame_width"]


def test_axes_name_what_they_show() -> None:
    text = str(map_figure(PASS, WORDS, theme="light", width=900))
    assert "lon [degree]" in text
    assert "lat [degree]" in text
    assert "x [m]" in str(map_figure(Extent(0, 10, 0, 10, geographic=False), WORDS, theme="light", width=900))
    assert "air_temperature [degC]" in str(lines_figure(WORDS, theme="light", width=900))
    assert "hour of day [UTC]" in str(day_by_hour_figure(WORDS, theme="light", width=900))


def test_a_map_fits_a_narrow_window() -> None:
    root = map_figure(PASS, WORDS, theme="dark", width=360)["doc"]["roots"][0]["attributes"]
    assert root["frame_width"] <= 360


def test_themes_differ() -> None:
    light, dark = (
        map_figure(PASS, WORDS, theme=theme, width=600)["doc"]["roots"][0]["attributes"] for theme in ("light", "dark")
    )
    assert light.get("border_fill_color") != dark["border_fill_color"]


@pytest.mark.parametrize("edges", [(1, 1, 0, 1), (0, 1, 2, 1), (0, math.nan, 0, 1), (0, math.inf, 0, 1)])
def test_edges_that_make_no_map_are_refused(edges: tuple[float, float, float, float]) -> None:
    with pytest.raises(ValueError, match="west < east"):
        Extent(*edges, geographic=True)
