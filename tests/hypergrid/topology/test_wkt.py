"""Well-known text as clients send it, and as nobody should."""

import numpy as np
import pytest

from hypergrid.core.errors import InvalidQuery
from hypergrid.topology.wkt import box, read_points, read_region


@pytest.mark.parametrize(
    ("text", "points"),
    [
        ("POINT(7.5 46)", [(7.5, 46.0, None)]),
        ("point (7.5 46.0)", [(7.5, 46.0, None)]),
        ("POINT Z (7.5 46 2400)", [(7.5, 46.0, 2400.0)]),
        ("POINT(7.5 46 2400)", [(7.5, 46.0, 2400.0)]),
        ("MULTIPOINT((7 46),(8 47))", [(7.0, 46.0, None), (8.0, 47.0, None)]),
        ("MULTIPOINT(7 46, 8 47)", [(7.0, 46.0, None), (8.0, 47.0, None)]),
        ("POINT(1e1 -4.5e+1)", [(10.0, -45.0, None)]),
    ],
)
def test_points(text: str, points: list[tuple[float, float, float | None]]) -> None:
    assert read_points(text) == points


@pytest.mark.parametrize(
    "text",
    [
        "", "POINT", "POINT()", "POINT EMPTY", "POINT(7)", "POINT(7 46", "POINT(7 46))", "POINT(a b)", "POINT(nan 4)",
        "POINT(inf 4)", "POINT(1e999 4)", "POINT(7 91)", "POINT(-361 4)", "POINT(7 46);DROP TABLE",
        "POLYGON((0 0,1 0,1 1,0 0))",
        "GEOMETRYCOLLECTION(POINT(1 1))", "POINT" + "(" * 5000 + ")" * 5000, "POINT(1 1)" + " " * 200_000,
        "POINT(--1 4)",
        "MULTIPOINT()", "POINT(1 2 3 4 5)", "\x00POINT(1 2)",
    ],
)  # fmt: skip
def test_odd_points_are_refused(text: str) -> None:
    with pytest.raises(InvalidQuery):
        read_points(text)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("POLYGON((0 0,1 1,1 0,0 1,0 0))", "Self-intersection"),
        ("POLYGON((0 0,1 1,0 0))", ""),
        ("POLYGON((170 0,-170 0,-170 10,170 10,170 0))", "antimeridian"),
        ("POLYGON((0 0,1 0,1 95,0 0))", "latitudes"),
        ("POLYGON((0 0,1 0,1 1,0 1))", ""),
        ("POLYGON EMPTY", ""),
        ("POINT(1 1)", "POLYGON"),
        ("MULTIPOLYGON(((0 0,2 0,2 2,0 2,0 0)),((1 1,3 1,3 3,1 3,1 1)))", "Self-intersection"),
    ],
)
def test_odd_polygons_are_refused(text: str, reason: str) -> None:
    with pytest.raises(InvalidQuery, match=reason):
        read_region(text)


def test_a_region_holds_what_lies_inside_or_on_its_edge() -> None:
    ring = read_region("POLYGON((0 0,4 0,4 4,0 4,0 0),(1 1,3 1,3 3,1 3,1 1))")
    lon, lat = np.array([0.5, 2.0, 4.0, 4.1, 360.5, -359.5]), np.array([0.5, 2.0, 4.0, 2.0, 0.5, 0.5])
    assert ring.holds(lon, lat).tolist() == [True, False, True, False, True, True]
    assert ring.boxes == [(0.0, 0.0, 4.0, 4.0)]
    assert ring.touches(3.5, 3.5, 9.0, 9.0)
    assert not ring.touches(1.5, 1.5, 2.5, 2.5)


def test_the_whole_earth_is_no_antimeridian() -> None:
    whole = read_region("POLYGON((-180 -90,180 -90,180 90,-180 90,-180 -90))")
    assert whole.holds(np.array([7.0, 359.0]), np.array([46.0, -46.0])).all()


def test_a_box_may_cross_the_antimeridian() -> None:
    pacific = box(170.0, -10.0, -170.0, 10.0)
    lon = np.array([175.0, -175.0, 185.0, 0.0, 180.0, -180.0])
    assert pacific.holds(lon, np.zeros(6)).tolist() == [True, True, True, False, True, True]
    assert box(1.0, 2.0, 1.0, 2.0).holds(np.array([1.0]), np.array([2.0])).all()
    with pytest.raises(InvalidQuery, match="south below north"):
        box(0.0, 2.0, 1.0, 1.0)
    with pytest.raises(InvalidQuery, match="latitudes"):
        box(0.0, float("nan"), 1.0, 1.0)
