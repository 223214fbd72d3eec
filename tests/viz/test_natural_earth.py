"""Coast, borders and land: decoded from TopoJSON, clipped to a map, absent without files or on narrow maps."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from viz import natural_earth
from viz.natural_earth import clip_atlas

# Two countries on an island of 0 to 20 by 0 to 10 degrees meet at longitude 10; the western one has a lake of its own.
# Lines are in tenths of a degree, as differences from vertex to vertex.
ARCS = [
    [[100, 0], [0, 50], [0, 50]],  # the border, northwards
    [[100, 100], [-100, 0], [0, -100], [100, 0]],  # the western coast, from the border's end to its beginning
    [[100, 0], [100, 0], [0, 100], [-100, 0]],  # the eastern coast, from the border's beginning to its end
    [[30, 30], [20, 0], [0, 20], [-20, 0], [0, -20]],  # the lake
    [[1790, 0], [10, 0], [0, 50], [-10, 0], [0, -50]],  # a country cut by the antimeridian
]
TOPOLOGY: dict[str, Any] = {
    "type": "Topology",
    "transform": {"scale": [0.1, 0.1], "translate": [0.0, 0.0]},
    "arcs": ARCS,
    "objects": {
        "countries": {
            "type": "GeometryCollection",
            "geometries": [
                {"type": "Polygon", "arcs": [[0, 1], [3]]},
                {"type": "MultiPolygon", "arcs": [[[2, -1]]]},
                {"type": "Polygon", "arcs": [[4]]},
                {"type": None},
            ],
        },
        "land": {
            "type": "GeometryCollection",
            "geometries": [{"type": "MultiPolygon", "arcs": [[[2, 1], [3]], [[4]]]}],
        },
    },
}


@pytest.fixture(autouse=True)
def atlas(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Give an atlas of one scale in place of the one that there may be."""
    (tmp_path / "countries-110m.json").write_text(json.dumps(TOPOLOGY), "utf-8")
    monkeypatch.setattr(natural_earth, "FOLDER", tmp_path)
    clip_atlas.cache_clear()
    yield tmp_path
    clip_atlas.cache_clear()
    natural_earth.read_atlas.cache_clear()


def vertices(columns: dict[str, Any]) -> set[tuple[float, float]]:
    return {place for xs, ys in zip(columns["xs"], columns["ys"], strict=True) for place in zip(xs, ys, strict=True)}


def test_what_two_countries_share_is_a_border_and_the_rest_is_coast() -> None:
    found = clip_atlas((-5.0, -5.0, 25.0, 15.0), pixels=800)
    assert found["scale"] == "110m"
    assert vertices(found["borders"]) == {(10.0, 0.0), (10.0, 10.0)}, "simplified: the vertex between is on the line"
    assert vertices(found["coast"]) == {
        (0, 0),
        (0, 10),
        (10, 0),
        (10, 10),
        (20, 0),
        (20, 10),
        (3, 3),
        (5, 3),
        (5, 5),
        (3, 5),
    }
    ((polygon,),) = found["land"]["xs"]
    outer, lake = polygon
    assert (min(outer), max(outer)) == (0.0, 20.0)
    assert (min(lake), max(lake)) == (3.0, 5.0)


def test_lines_and_land_end_at_the_edges_of_the_map() -> None:
    found = clip_atlas((8.0, 4.0, 12.0, 6.0), pixels=800)
    assert found["coast"] == {"xs": [], "ys": []}
    assert vertices(found["borders"]) == {(10.0, 4.0), (10.0, 6.0)}
    ((polygon,),) = found["land"]["xs"]
    assert (min(polygon[0]), max(polygon[0])) == (8.0, 12.0)


def test_the_antimeridian_is_no_coast_and_maps_may_cross_it() -> None:
    for turn in (0.0, -360.0):
        found = clip_atlas((170.0 + turn, -5.0, 190.0 + turn, 15.0), pixels=800)
        xs = np.concatenate(found["coast"]["xs"]) - turn
        assert (xs.min(), xs.max()) == (179.0, 180.0)
        for line_x, line_y in zip(found["coast"]["xs"], found["coast"]["ys"], strict=True):
            along = (np.abs(np.array(line_x) - turn - 180.0) < 0.01) & (np.array(line_y) >= 0.0)
            assert not (along[1:] & along[:-1]).any(), "nothing is drawn along it"


def test_islets_without_area_are_left_out(atlas: Path) -> None:
    topology = json.loads(json.dumps(TOPOLOGY))
    # A point, and a line there and back: as the finest scale of Natural Earth has them.
    topology["arcs"] += [[[50, 50], [0, 0]], [[60, 60], [1, 0], [-1, 0]]]
    topology["objects"]["land"]["geometries"][0]["arcs"] += [[[5]], [[6]]]
    topology["objects"]["land"]["geometries"][0]["arcs"][0] += [[5]]
    (atlas / "countries-110m.json").write_text(json.dumps(topology), "utf-8")
    ((outer, lake),) = (rings for (rings,) in clip_atlas((-5.0, -5.0, 25.0, 15.0), pixels=800)["land"]["xs"])
    assert (min(outer), max(outer), min(lake), max(lake)) == (0.0, 20.0, 3.0, 5.0)


def test_narrow_maps_and_missing_files_have_neither(atlas: Path) -> None:
    nothing = {"xs": [], "ys": []}
    absent = {"scale": None, "coast": nothing, "borders": nothing, "land": nothing}
    assert clip_atlas((9.9, 4.0, 10.3, 4.2), pixels=800) == absent, "45 km wide"
    assert clip_atlas((9.9, 4.0, 10.5, 4.2), pixels=800)["scale"] == "110m", "67 km"
    clip_atlas.cache_clear()
    (atlas / "countries-110m.json").unlink()
    assert clip_atlas((-5.0, -5.0, 25.0, 15.0), pixels=800) == absent


def test_a_narrower_map_has_finer_lines_where_there_are_some(atlas: Path) -> None:
    (atlas / "countries-50m.json").write_text(json.dumps(TOPOLOGY), "utf-8")
    scales = [clip_atlas((0.0, 0.0, width, 5.0), pixels=800)["scale"] for width in (100.0, 20.0, 2.0)]
    assert scales == ["110m", "50m", "50m"]
