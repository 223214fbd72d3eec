"""Figures: what the page looks up in them, true proportions, colours with units."""

import math
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from viz.figures import (
    HALO,
    LOOKS,
    PALETTES,
    MapExtent,
    Scale,
    Theme,
    Words,
    day_by_hour_figure,
    histogram_figure,
    lines_figure,
    make_relief_palette,
    map_figure,
    overview_figure,
    region_figure,
    variogram_figure,
)

WORDS = Words("air_temperature", "air_temperature", "degC")
PASS = MapExtent(7.1769, 7.1833, 45.8669, 45.8733, geographic=True)


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
    assert found["ColorBar"]["title"] == "air_temperature [°C]"


def test_a_degree_of_longitude_is_drawn_shorter_by_the_cosine_of_latitude() -> None:
    root = map_figure(PASS, WORDS, theme="light", width=900)["doc"]["roots"][0]["attributes"]
    assert root["frame_height"] / root["frame_width"] == pytest.approx(1 / math.cos(math.radians(45.8701)), rel=0.01)
    square = map_figure(MapExtent(0, 1000, 0, 1000, geographic=False), WORDS, theme="light", width=900)
    attributes = square["doc"]["roots"][0]["attributes"]
    assert attributes["frame_height"] == attributes["frame_width"]


def test_axes_name_what_they_show() -> None:
    text = str(map_figure(PASS, WORDS, theme="light", width=900))
    assert "lon [degree]" in text
    assert "lat [degree]" in text
    assert "x [m]" in str(map_figure(MapExtent(0, 10, 0, 10, geographic=False), WORDS, theme="light", width=900))
    assert "air_temperature [°C]" in str(lines_figure(WORDS, theme="light", width=900))
    assert "hour of day [UTC]" in str(day_by_hour_figure(WORDS, theme="light", width=900))


def test_a_map_fits_a_narrow_window() -> None:
    root = map_figure(PASS, WORDS, theme="dark", width=360)["doc"]["roots"][0]["attributes"]
    assert root["frame_width"] <= 360


@pytest.mark.parametrize(("width", "height"), [(1200, 560), (390, 600)])
@pytest.mark.parametrize("extent", [PASS, MapExtent(0, 9000, 0, 2000, geographic=False)])
def test_a_map_fills_a_room_in_true_proportions(extent: MapExtent, width: int, height: int) -> None:
    item = map_figure(extent, WORDS, theme="light", width=width, height=height)
    root = item["doc"]["roots"][0]["attributes"]
    assert 0.7 * width < root["frame_width"] < width
    assert 0.7 * height < root["frame_height"] < height
    across, upwards = (root[name]["attributes"] for name in ("x_range", "y_range"))
    assert across["start"] < extent.west < extent.east < across["end"]
    assert upwards["start"] < extent.south < extent.north < upwards["end"]
    shown = MapExtent(across["start"], across["end"], upwards["start"], upwards["end"], extent.geographic)
    assert shown.height_by_width == pytest.approx(root["frame_height"] / root["frame_width"], rel=0.01)
    assert {"surface", "veil", "hatch"} <= models(item).keys()
    # The colours lie within, and take nothing from the map.
    assert models(item)["ColorBar"]["orientation"] == "horizontal"


def test_themes_differ() -> None:
    light, dark = (
        map_figure(PASS, WORDS, theme=theme, width=600)["doc"]["roots"][0]["attributes"] for theme in ("light", "dark")
    )
    assert light.get("border_fill_color") != dark["border_fill_color"]


@pytest.mark.parametrize("edges", [(1, 1, 0, 1), (0, 1, 2, 1), (0, math.nan, 0, 1), (0, math.inf, 0, 1)])
def test_edges_that_make_no_map_are_refused(edges: tuple[float, float, float, float]) -> None:
    with pytest.raises(ValueError, match="west < east"):
        MapExtent(*edges, geographic=True)


def luminance(colour: str) -> float:
    """Return the relative luminance of a colour (WCAG 2), 0 to 1."""
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_palettes_are_what_their_names_say() -> None:
    light = {scale: [luminance(colour) for colour in palette] for scale, palette in PALETTES.items()}
    for palette in ("sequential", "cividis", "inferno", "plasma"):
        assert np.diff(light[palette]).min() > -0.002, "brighter is more"
    assert np.diff(light["uncertainty"]).max() < 0.001, "darker is less certain"
    middle = len(light["diverging"]) // 2
    assert max(light["diverging"]) == light["diverging"][middle], "nothing is the brightest"
    assert light["diverging"][0] == pytest.approx(light["diverging"][-1], abs=0.05), "both ends are as dark"
    assert PALETTES["cyclic"][0] == PALETTES["cyclic"][-1], "359 degrees look like 1"


@pytest.mark.parametrize("scale", ["sequential", "diverging", "cyclic"])
def test_colours_are_by_what_a_field_is(scale: Scale) -> None:
    found = models(map_figure(PASS, WORDS, theme="light", width=600, scale=scale))
    assert found["colours"]["palette"] == list(PALETTES[scale])
    days = models(day_by_hour_figure(WORDS, theme="light", width=600, scale=scale))["colours"]["palette"]
    assert scale == "sequential" or days == list(PALETTES[scale])


@pytest.mark.parametrize("extent", [PASS, MapExtent(5, 11, 45.8, 47.8, geographic=True)])
def test_the_map_for_a_region_keeps_proportions_and_shows_all(extent: MapExtent) -> None:
    item = region_figure(extent, WORDS, theme="light", width=460)
    root = item["doc"]["roots"][0]["attributes"]
    ranges = [root[name]["attributes"] for name in ("x_range", "y_range")]
    across, upwards = (one["end"] - one["start"] for one in ranges)
    shrink = math.cos(math.radians((extent.south + extent.north) / 2))
    assert root["frame_height"] / root["frame_width"] == pytest.approx(upwards / (across * shrink), rel=0.01)
    assert ranges[0]["start"] < extent.west < extent.east < ranges[0]["end"]
    assert ranges[1]["start"] < extent.south < extent.north < ranges[1]["end"]
    assert {"box", "stations"} <= models(item).keys()


def test_tools_that_choose_are_where_something_listens_to_them() -> None:
    for choosing in (False, True):
        text = str(lines_figure(WORDS, theme="light", width=600, choosing=choosing))
        assert ("LassoSelectTool" in text) == choosing
    assert "LassoSelectTool" in str(map_figure(PASS, WORDS, theme="light", width=600))
    assert "brush" in models(day_by_hour_figure(WORDS, theme="light", width=600))


def test_lines_have_bands_and_points_and_a_histogram_has_bars() -> None:
    assert {"lines", "bands", "points", "across", "upwards"} <= models(
        lines_figure(WORDS, theme="dark", width=600)
    ).keys()
    assert {"bins", "models", "across", "upwards"} <= models(variogram_figure(WORDS, theme="dark", width=600)).keys()
    assert {"bars", "across", "upwards"} <= models(histogram_figure(WORDS, theme="dark", width=600)).keys()


GROUND = {"sea", "land", "relief", "contours", "heights", "coast", "borders", "ruler"}


def test_every_map_has_a_ground_and_a_scale_bar_in_metres() -> None:
    items = (
        map_figure(PASS, WORDS, theme="light", width=600), region_figure(PASS, WORDS, theme="light", width=600),
        overview_figure(PASS, theme="light", size=(900, 600)),
    )  # fmt: skip
    for item in items:
        found = models(item)
        assert found.keys() >= GROUND
        across = item["doc"]["roots"][0]["attributes"]["x_range"]["attributes"]
        width_m = (across["end"] - across["start"]) * 111_195 * math.cos(math.radians(45.8701))
        assert found["ruler"]["end"] == pytest.approx(width_m, rel=1e-4)
        assert "ScaleBar" in found
        assert found["MetricLength"]["include"] == ["m", "km"]
    plane = models(map_figure(MapExtent(0, 1000, 0, 500, geographic=False), WORDS, theme="light", width=600))
    assert plane["ruler"]["end"] == pytest.approx(1160.0)


def test_the_overview_fills_its_place_in_true_proportions() -> None:
    item = overview_figure(PASS, theme="dark", size=(1265, 712), scale="cyclic")
    root = item["doc"]["roots"][0]["attributes"]
    across, upwards = (root[name]["attributes"] for name in ("x_range", "y_range"))
    assert root["frame_width"] > 1180
    assert root["frame_height"] > 660
    shrink = math.cos(math.radians(45.8701))
    ratio = (upwards["end"] - upwards["start"]) / ((across["end"] - across["start"]) * shrink)
    assert root["frame_height"] / root["frame_width"] == pytest.approx(ratio, rel=0.01)
    found = models(item)
    assert found.keys() >= {"stations", "labels", "picked", "colours", "bar"}
    assert found["colours"]["palette"] == list(PALETTES["cyclic"])


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_level_ground_leaves_colours_as_they_are(theme: Theme) -> None:
    palette = make_relief_palette(LOOKS[theme])
    opacity = [int(colour[7:], 16) for colour in palette]
    assert len(palette) == 256
    assert opacity[0] == 0, "nothing is drawn where no elevation is known"
    assert opacity[181] <= 1
    assert opacity[1] > opacity[100] > opacity[170] > opacity[181] < opacity[200] < opacity[255]


@pytest.mark.parametrize("theme", ["light", "dark"])
@pytest.mark.parametrize("scale", ["sequential", "diverging", "cyclic"])
def test_lines_over_values_have_contrast_with_their_halo_on_every_colour(theme: Theme, scale: Scale) -> None:
    look, share = LOOKS[theme], int(HALO, 16) / 255

    def blend(below: str) -> str:
        parts = [(int(look.ground[at : at + 2], 16), int(below[at : at + 2], 16)) for at in (1, 3, 5)]
        return "#" + "".join(f"{round(share * above + (1 - share) * under):02x}" for above, under in parts)

    ink = luminance(look.ink)
    for colour in PALETTES[scale]:
        halo = luminance(blend(colour))
        assert (max(ink, halo) + 0.05) / (min(ink, halo) + 0.05) >= 3.0, colour


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_lines_of_the_pages_have_contrast_with_their_ground(theme: Theme) -> None:
    pages = Path(__file__).parents[2] / "viz" / "pages"
    listed = [(pages / name).read_text("utf-8") for name in ("pictures.js", "standing_preview.js")]
    several = re.search(rf"LINE_COLOURS = {{.*?{theme}: \[(.*?)\]", listed[0], re.DOTALL)
    calm = re.search(rf'CALM = {{.*?{theme}: "(#\w+)"', listed[1])
    assert several is not None
    assert calm is not None
    colours = [*re.findall(r"#\w{6}", several[1]), calm[1]]
    assert len(colours) == 8
    for ground in (LOOKS[theme].ground, LOOKS[theme].panel):
        for colour in colours:
            dark, light = sorted((luminance(colour), luminance(ground)))
            assert (light + 0.05) / (dark + 0.05) >= 3.0, (colour, ground)
