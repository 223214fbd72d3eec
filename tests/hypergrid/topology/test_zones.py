"""Polygons as cells: closed forms, a fine raster as oracle, and GeoJSON as people have it."""

import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import shapely
from hypothesis import given, settings
from hypothesis import strategies as st

import hypergrid as hg
from hypergrid.core.errors import HyperGridError, InvalidQuery, NotFound
from hypergrid.core.geodesy import RADIUS_M
from hypergrid.topology import ZoneCells, zones
from hypergrid.topology.areas import cell_areas, polygon_areas
from hypergrid.topology.zones import inline_zone_files

METRES = hg.grid(x=0, y=0, step=10, shape=(8, 10))
LONLAT = hg.grid(lon=(7, 7.1), lat=(46, 46.08), step=0.01)


def polygon(*rings: list[list[float]]) -> dict[str, Any]:
    return {"type": "Polygon", "coordinates": [[*ring, ring[0]] for ring in rings]}


def box(west: float, south: float, east: float, north: float) -> list[list[float]]:
    return [[west, south], [east, south], [east, north], [west, north]]


def shares(made: ZoneCells, zone: int = 0) -> np.ndarray[Any, np.dtype[np.float64]]:
    """The shares of one zone as a map."""
    found = np.zeros(made.grid.count)
    mine = made.overlap.zone == zone
    found[made.overlap.cell[mine]] = made.overlap.share[mine]
    return found.reshape(made.grid.shape)


def test_a_rectangle_has_the_products_of_its_overlaps() -> None:
    made = ZoneCells(zones(polygon(box(12, 5, 37, 30))), METRES)
    across = np.array([0, 0.8, 1, 0.7, 0, 0, 0, 0, 0, 0])
    up = np.array([0.5, 1, 1, 0, 0, 0, 0, 0])
    np.testing.assert_allclose(shares(made), np.outer(up, across), rtol=1e-14)
    assert made.area_m2.tolist() == [625.0]
    assert made.share_in_grid.tolist() == [1.0]


def test_a_triangle_halves_the_cells_on_its_diagonal() -> None:
    made = ZoneCells(zones(polygon([[0, 0], [80, 0], [80, 80]])), METRES)
    np.testing.assert_allclose(shares(made)[:, :8], np.triu(np.ones((8, 8)), 1) + np.eye(8) / 2, rtol=1e-12)


def test_a_hole_is_left_out_and_parts_belong_together() -> None:
    ring = polygon(box(0, 0, 50, 50), box(10, 10, 35, 40))
    island = polygon(box(80, 60, 90, 70))
    both = {"type": "MultiPolygon", "coordinates": [ring["coordinates"], island["coordinates"]]}
    made = ZoneCells(zones({"both": both}), METRES)
    found = shares(made)
    assert found[1:4, 1:3].sum() == 0
    np.testing.assert_allclose(found[1:4, 3], 0.5, rtol=1e-14)
    assert found[6, 8] == 1
    np.testing.assert_allclose(found.sum() * 100, 50 * 50 - 25 * 30 + 100)
    np.testing.assert_allclose(made.area_m2, 50 * 50 - 25 * 30 + 100)


def test_neighbours_that_only_touch_a_zone_have_no_share() -> None:
    made = ZoneCells(zones(polygon(box(7.03, 46.02, 7.06, 46.05))), LONLAT)
    assert (shares(made) > 0).sum() == 9
    np.testing.assert_allclose(shares(made)[2:5, 3:6], 1, rtol=1e-12)


def star(draw_seed: int, *, centre: tuple[float, float], reach: tuple[float, float]) -> list[list[float]]:
    """A polygon without crossings: a random distance in each direction."""
    rng = np.random.default_rng(draw_seed)
    turn = np.sort(rng.uniform(0, 2 * np.pi, rng.integers(5, 40)))
    turn = np.linspace(0, 2 * np.pi, len(turn), endpoint=False) + 0.5 * turn / len(turn) / np.pi
    away = rng.uniform(0.2, 1, len(turn))
    x, y = centre[0] + reach[0] * away * np.cos(turn), centre[1] + reach[1] * away * np.sin(turn)
    return np.stack([x, y], axis=1).tolist()


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6), is_lonlat=st.booleans(), with_hole=st.booleans())
def test_random_polygons_agree_with_a_fine_raster(seed: int, is_lonlat: bool, with_hole: bool) -> None:  # noqa: FBT001
    rng = np.random.default_rng(seed)
    grid = LONLAT if is_lonlat else METRES
    (west, south), (step_x, step_y) = (
        (grid.x.bounds[0, 0], grid.y.bounds[0, 0]),
        ((0.01, 0.01) if is_lonlat else (10, 10)),
    )
    centre = (west + step_x * rng.uniform(1, 9), south + step_y * rng.uniform(1, 7))
    outer = star(seed, centre=centre, reach=(4 * step_x, 4 * step_y))
    rings = [outer, *([star(seed + 1, centre=centre, reach=(step_x / 2, step_y / 2))] if with_hole else [])]
    if not shapely.is_valid(shapely.Polygon(outer, rings[1:])):
        return
    made = ZoneCells(zones(polygon(*rings)), grid)
    fine = 40
    x = west + step_x * (np.arange(grid.x.count * fine) + 0.5) / fine
    y = south + step_y * (np.arange(grid.y.count * fine) + 0.5) / fine
    inside = shapely.contains_xy(made.zones.shapes[0], *np.meshgrid(x, y))
    expected = inside.reshape(grid.y.count, fine, grid.x.count, fine).mean(axis=(1, 3))
    # A straight edge through a cell misplaces half the squares that it crosses at most, here of 40 or so; spikes more.
    np.testing.assert_allclose(shares(made), expected, atol=0.06)
    assert abs(shares(made).mean() - expected.mean()) < 2e-3


def test_a_large_zone_with_a_long_boundary_is_exact_however_it_is_cut() -> None:
    turn = np.linspace(0, 2 * np.pi, 5000, endpoint=False)
    away = 0.1 * (1 + 0.3 * np.sin(7 * turn) + 0.05 * np.sin(301 * turn))
    ring = np.stack([7.3 + away * np.cos(turn), 46 + away * np.sin(turn)], axis=1).tolist()
    made = ZoneCells(zones(polygon(ring)), hg.grid(lon=(7.1, 7.5), lat=(45.8, 46.2), step="4arcsec"))
    assert made.overlap.area_m2.sum() == pytest.approx(made.area_m2[0], rel=1e-11)
    edges = np.flatnonzero(made.overlap.share < 1)[::97]
    cells = made.overlap.cell[edges]
    row, column = np.divmod(cells, made.grid.x.count)
    x, y = made.grid.x.bounds[column], made.grid.y.bounds[row]
    pieces = shapely.intersection(made.zones.shapes[0], shapely.box(x[:, 0], y[:, 0], x[:, 1], y[:, 1]))
    whole = cell_areas(made.grid.y, made.grid.x)[row]
    np.testing.assert_allclose(
        made.overlap.share[edges], polygon_areas(pieces, "lonlat") / whole, rtol=1e-7, atol=1e-10
    )


@settings(max_examples=30, deadline=None)
@given(seed=st.integers(0, 10**6))
def test_a_tiling_has_each_cell_once(seed: int) -> None:
    rng = np.random.default_rng(seed)
    sites = shapely.multipoints(np.stack([rng.uniform(7, 7.1, 12), rng.uniform(46, 46.08, 12)], axis=1))
    frame = shapely.box(6.9, 45.9, 7.2, 46.2)
    tiles = shapely.intersection(shapely.get_parts(shapely.voronoi_polygons(sites, extend_to=frame)), frame)
    made = ZoneCells(zones({str(i): tile for i, tile in enumerate(tiles)}), LONLAT)
    assert made.count == 12
    total = sum(shares(made, i) for i in range(made.count))
    np.testing.assert_allclose(total, 1, rtol=1e-7)
    whole = cell_areas(LONLAT.y, LONLAT.x).sum() * LONLAT.x.count
    np.testing.assert_allclose(made.overlap.area_m2.sum(), whole, rtol=1e-8)
    np.testing.assert_allclose((made.share_in_grid * made.area_m2).sum(), whole, rtol=1e-8)


def test_areas_are_those_of_the_sphere() -> None:
    octant = polygon(box(0, 0, 90, 90))
    sphere = 4 * math.pi * RADIUS_M**2
    assert ZoneCells(zones(octant), hg.grid(lon=(0, 10), lat=(0, 10), step=1)).area_m2[0] == pytest.approx(sphere / 8)
    globe = hg.grid(lon=(-180, 180), lat=(-90, 90), step=10)
    assert cell_areas(globe.y, globe.x).sum() * globe.x.count == pytest.approx(sphere, rel=1e-14)
    # An edge that is straight in longitude and latitude, integrated in strips of equal latitude.
    triangle = zones(polygon([[0, 0], [40, 0], [0, 60]]))
    y = np.radians((np.arange(200_000) + 0.5) * 60 / 200_000)
    strips = (np.cos(y) * np.radians(40) * (1 - y / np.radians(60))).mean() * np.radians(60)
    assert polygon_areas(triangle.shapes, "lonlat")[0] == pytest.approx(strips * RADIUS_M**2, rel=1e-9)
    small = zones(polygon(box(7, 46, 7 + 1e-6, 46 + 1e-6)))
    closed = np.cos(np.radians(46 + 5e-7)) * (np.radians(1e-6) * RADIUS_M) ** 2
    # 46 and 46.000001 are 7e-15 apart from what is written: 7e-9 of their difference.
    assert polygon_areas(small.shapes, "lonlat")[0] == pytest.approx(closed, rel=2e-8)


def test_a_zone_across_the_date_line_is_found_on_a_grid_of_another_turn() -> None:
    made = ZoneCells(zones(polygon(box(-2, 10, 1, 12))), hg.grid(lon=(350, 360), lat=(5, 15), step=1))
    assert np.argwhere(shares(made) > 1 - 1e-12).tolist() == [[5, 8], [5, 9], [6, 8], [6, 9]]
    assert made.share_in_grid[0] == pytest.approx(2 / 3)


def test_what_belongs_to_a_zone_has_half_of_itself_inside_or_is_its_largest_part() -> None:
    document = {
        "wide": polygon(box(4, 0, 26, 10)),
        "thin": polygon(box(11, 28, 17, 31)),
        "out": polygon(box(900, 0, 910, 9)),
    }
    made = ZoneCells(zones(document), METRES)
    belongs = made.membership
    assert made.overlap.zone[belongs].tolist() == [0, 0, 0, 1]
    assert made.overlap.cell[belongs].tolist() == [0, 1, 2, 21]
    assert made.share_in_grid.tolist() == [1.0, 1.0, 0.0]


def test_geojson_in_each_form_gives_the_same_zones(tmp_path: Path) -> None:
    square = polygon(box(7, 46, 7.05, 46.05))
    feature = {"type": "Feature", "id": "a", "properties": {"BASIN": "a"}, "geometry": square}
    collection = {"type": "FeatureCollection", "features": [feature]}
    path = tmp_path / "basins.geojson"
    path.write_text(json.dumps(collection))
    made = [
        zones(feature), zones(collection), zones(path), zones(str(path), name="BASIN"), zones(json.dumps(collection)),
        zones({"a": square}), zones({"a": shapely.box(7, 46, 7.05, 46.05)}).select("a"),
    ]  # fmt: skip
    assert {item.names for item in made} == {("a",)}
    assert len({item.token() for item in made[:-1]}) == 1
    assert zones(square).names == ("1",)
    assert zones(made[0].to_json()).token() == made[0].token()
    assert zones(made[0]) is made[0]


def test_a_query_file_names_a_file_of_zones(tmp_path: Path) -> None:
    (tmp_path / "z.geojson").write_text(
        json.dumps({"type": "Feature", "properties": {"N": "a"}, "geometry": polygon(box(0, 0, 1, 1))})
    )
    steps = [{"op": "aggregate", "function": "mean", "zones": {"file": "z.geojson", "name": "N"}, "time": "all"}]
    found = inline_zone_files({"variable": "t", "steps": steps}, tmp_path)
    assert found["steps"][0]["zones"]["features"][0]["properties"] == {"name": "a"}  # type: ignore[index]
    assert found["steps"][0]["time"] == "all"  # type: ignore[index]
    assert inline_zone_files(found, tmp_path) == found
    with pytest.raises(NotFound, match="zone file .*none.geojson cannot be read: No such file"):
        inline_zone_files({"zones": {"file": "none.geojson"}}, tmp_path)
    with pytest.raises(InvalidQuery, match="'file' and perhaps 'name'"):
        inline_zone_files({"zones": {"file": 3}}, tmp_path)


BOWTIE = [[0, 0], [10, 10], [10, 0], [0, 10]]


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"type": "FeatureCollection", "features": []}, "at least one feature"),
        ({}, "geometry is None"),
        (7, "zones need GeoJSON: the path of a file, its text, or a mapping; got int"),
        ("{nonsense", "no JSON that can be read"),
        ({"type": "Point", "coordinates": [1, 2]}, "Polygon or a MultiPolygon; its geometry is 'Point'"),
        ({"a": {"type": "LineString", "coordinates": [[0, 0], [1, 1]]}}, "zone 'a' needs a Polygon"),
        ({"type": "Feature", "id": "a", "geometry": None}, "its geometry is None"),
        ({"type": "FeatureCollection", "features": [3]}, "feature 1 of the zones needs to be a GeoJSON Feature"),
        ({"a": {"type": "Polygon", "coordinates": []}}, "zone 'a' has a polygon without a ring; leave it out"),
        ({"a": {"type": "Polygon", "coordinates": [box(0, 0, 1, 1)]}}, "an open ring: it starts at .0.0, 0.0"),
        ({"a": {"type": "Polygon", "coordinates": [[[0, 0], [1, 1], [0, 0]]]}}, "a ring of 3 positions"),
        ({"a": polygon(BOWTIE)}, r"zone 'a' is no valid polygon: Self-intersection.*5 5.*make_valid"),
        ({"a": polygon(box(0, 0, 5, 5), box(7, 7, 8, 8))}, "zone 'a' is no valid polygon: Hole lies outside shell"),
        ({"a": {"type": "Polygon", "coordinates": [[["x", 0], [1, 0], [1, 1], ["x", 0]]]}}, "finite numbers"),
        ({"a": polygon([[0, 0], [1, 0], [1, float("nan")]])}, "finite numbers"),
        ({"a": polygon([[0, 0], [1, 0], [1, 10**400]])}, "finite numbers"),
        ({"a": {"type": "Polygon", "coordinates": 3}}, "without a ring"),
        ({"a": {"type": "MultiPolygon", "coordinates": [3]}}, "without a ring"),
        ({"file": "zones.geojson"}, "a file can be named by hg.zones and in a query file only"),
        ("basins.shp", "convert basins.shp first: ogr2ogr"),
    ],
)  # fmt: skip
def test_what_is_no_zone_is_refused_by_name_and_reason(document: object, message: str) -> None:
    with pytest.raises(InvalidQuery, match=message):
        zones(document)


def test_names_are_told_apart_and_a_wrong_one_gets_the_list() -> None:
    square = polygon(box(0, 0, 1, 1))
    two = {
        "type": "FeatureCollection",
        "features": [{"properties": {"name": "a", "kind": i}, "geometry": square} for i in (1, 2)],
    }
    with pytest.raises(InvalidQuery, match="2 zones are named 'a'; join them"):
        zones(two)
    assert zones(two, name="kind").names == ("1", "2")
    with pytest.raises(NotFound, match="unknown property of a zone 'Kind'; did you mean 'kind'"):
        zones(two, name="Kind")
    with pytest.raises(NotFound, match="unknown zone 'Morge'; did you mean 'Morges'"):
        zones({"Morges": square}).select("Morge")
    for wrong in ((), ("Morges", "Morges")):
        with pytest.raises(InvalidQuery, match="each once"):
            zones({"Morges": square}).select(*wrong)


@pytest.mark.parametrize(
    ("zone", "crs", "grid", "message"),
    [
        (box(2_600_000, 1_200_000, 2_601_000, 1_201_000), None, LONLAT, "lon and lat in degrees, but the zones lie"),
        (box(7, 46, 8, 47), "urn:ogc:def:crs:EPSG::2056", LONLAT, "but the zones are in 'urn:ogc:def:crs:EPSG::2056'"),
        (box(7, 46, 8, 47), "urn:ogc:def:crs:OGC:1.3:CRS84", METRES, "x and y in metres, but the zones are in"),
        (box(7, 46, 8, 47), None, hg.grid(x=2_600_000, y=1_200_000, step=10, shape=(5, 5)), "which looks like degrees"),
    ],
)  # fmt: skip
def test_zones_in_other_coordinates_are_refused(
    zone: list[list[float]], crs: str | None, grid: hg.Grid, message: str
) -> None:
    document: dict[str, Any] = {"type": "FeatureCollection", "features": [{"geometry": polygon(zone)}]}
    if crs:
        document["crs"] = {"type": "name", "properties": {"name": crs}}
    made = zones(document)
    with pytest.raises(HyperGridError, match=message):
        ZoneCells(zones(made.to_json()), grid)
