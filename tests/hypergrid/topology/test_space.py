"""Grids as users write them, and metres against geodesics."""

from typing import Any

import numpy as np
import pyproj
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hypergrid.core.errors import InvalidQuery
from hypergrid.core.readings import Series
from hypergrid.topology import Grid, Metres, SeriesAxis, Topology, grid, quanta
from hypergrid.topology.axes import Regular

DEGREE = 3_600_000_000


def test_q1s_grid_is_exact() -> None:
    made = grid(lon="7:10:37", lat="45:52:01", step="1arcsec", shape=(23, 23))
    assert made.x == Regular("lon", (7 * 3600 + 10 * 60 + 37) * 1_000_000, 1_000_000, 23, 1_000_000, "uas")
    assert made.y.origin == (45 * 3600 + 52 * 60 + 1) * 1_000_000
    assert made.x.stop == (7 * 3600 + 11 * 60) * 1_000_000
    assert (made.shape, made.count, made.system) == ((23, 23), 529, "lonlat")
    np.testing.assert_allclose(made.centres(np.array([0, 24])), [
        [7 + 10 / 60 + 37.5 / 3600, 45 + 52 / 60 + 1.5 / 3600], [7 + 10 / 60 + 38.5 / 3600, 45 + 52 / 60 + 2.5 / 3600],
    ], rtol=1e-15)  # fmt: skip


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("7:10:37", (7 * 3600 + 637) * 1_000_000),
        ("-7:10:37.25", -(7 * 3600 + 637) * 1_000_000 - 250_000),
        ("-0:30", -1800 * 1_000_000),
        ("+7:00", 7 * DEGREE),
        (7.5, 7 * DEGREE + DEGREE // 2),
        (0.1, DEGREE // 10),
        (np.float64(0.1), DEGREE // 10),
        ("0.1", DEGREE // 10),
        (" 90 arcsec ", 90_000_000),
        ("0.25arcsec", 250_000),
        ("1.5arcmin", 90_000_000),
        ("2 degrees", 2 * DEGREE),
        ("1e-3deg", DEGREE // 1000),
        (-3, -3 * DEGREE),
    ],
)
def test_degrees_are_read_exactly(text: object, expected: int) -> None:
    assert quanta(text, "uas", "lon") == expected


@pytest.mark.parametrize(
    ("text", "expected"), [("100m", 100_000), ("0.5 km", 500_000), (12.345, 12_345), (-7, -7_000), ("3", 3_000)]
)
def test_metres_are_read_exactly(text: object, expected: int) -> None:
    assert quanta(text, "mm", "x") == expected


@pytest.mark.parametrize(
    "text",
    ["", "seven", "7:75:00", "7:10:60", "7:10:37:1", "100m", "1e999999999deg", "1e9999", float("nan"), float("inf"),
     10**400, True, None, [], {}, "٧:10:37"],
)  # fmt: skip
def test_what_is_no_angle_is_refused(text: object) -> None:
    with pytest.raises(InvalidQuery, match="lon needs"):
        quanta(text, "uas", "lon")


@pytest.mark.parametrize("text", ["1arcsec", "7:10:37", "1 mile", None])
def test_what_is_no_length_is_refused(text: object) -> None:
    with pytest.raises(InvalidQuery, match="x needs"):
        quanta(text, "mm", "x")


@given(st.integers(-180 * DEGREE, 179 * DEGREE))
def test_degrees_as_floats_come_back_to_the_same_corner(corner: int) -> None:
    assert quanta(corner / DEGREE, "uas", "lon") == corner


def test_a_range_is_half_open_and_counts_its_cells() -> None:
    made = grid(x=(0, 250), y=(-100, 100), step="100m")
    assert made.shape == (2, 3)
    assert made.y.bounds.tolist() == [[-100, 0], [0, 100]]
    assert grid(lon=(7, 8), lat=(45, 46), step=0.1).shape == (10, 10)
    assert grid(lon=(7, 8), lat=(45, 46), step=0.1, shape=(10, 10)).shape == (10, 10)


GOOD: dict[str, Any] = {"lon": "7:10:37", "lat": "45:52:01", "step": "1arcsec", "shape": (2, 3)}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"lon": None}, "needs lon and lat"),
        ({"x": 0, "y": 0}, "needs lon and lat"),
        ({"step": 0}, "step above zero"),
        ({"step": "-1arcsec"}, "step above zero"),
        ({"shape": 5}, "two whole numbers"),
        ({"shape": (0, 3)}, "two whole numbers"),
        ({"shape": (True, 3)}, "two whole numbers"),
        ({"shape": (2.0, 3)}, "two whole numbers"),
        ({"shape": "23"}, "two whole numbers"),
        ({"shape": None}, "start and stop|start, stop"),
        ({"lon": (8, 7)}, "stop after its start"),
        ({"lon": (7, 8, 9)}, "a start and a stop"),
        ({"lon": (7, 8)}, "holds 3600 cells, but shape says 3"),
        ({"lat": 89.9999}, "-90 to 90"),
        ({"lon": 360}, "-180 to 360"),
        ({"shape": (2, 10**30)}, "beyond what can be counted|-180 to 360"),
    ],
)
def test_grids_that_cannot_be_are_refused(change: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidQuery, match=says):
        grid(**{**GOOD, **change})


def stations(lon: list[float], lat: list[float], system: Any = "lonlat") -> SeriesAxis:  # noqa: ANN401 - a literal
    series = tuple(Series("v", f"s{i}") for i in range(len(lon)))
    return SeriesAxis(series, np.array(lon), np.array(lat), np.full(len(lon), np.nan), system)


@pytest.mark.parametrize(
    ("lon", "lat"),
    [
        ([7.17, 7.18, 7.19], [45.86, 45.87, 45.88]),
        ([-70.0, -69.5, -69.0], [-33.0, -33.4, -33.2]),
        ([179.9, -179.9, 179.8], [-17.0, -17.1, -17.2]),  # across the date line
        ([20.0, 25.0, 22.0], [78.0, 78.3, 78.1]),
        ([7.17, 7.18, np.nan], [45.86, 45.87, np.nan]),
    ],
)
def test_distances_are_those_of_the_ellipsoid(lon: list[float], lat: list[float]) -> None:
    places = np.array([pair for pair in zip(lon, lat, strict=True) if np.isfinite(pair).all()])
    plane = Metres(stations(lon, lat)).project(places)
    geod = pyproj.Geod(ellps="WGS84")
    for i, (x, y) in enumerate(places):
        for j, (other_x, other_y) in enumerate(places):
            exact = geod.inv(x, y, other_x, other_y)[2]
            assert np.hypot(*(plane[i] - plane[j])) == pytest.approx(exact, rel=1e-4)


def test_projected_coordinates_pass_unchanged() -> None:
    places = np.array([[1.0, 2.0], [3.0, 4.0]])
    np.testing.assert_array_equal(Metres(stations([1, 3], [2, 4], "metres")).project(places), places)


def test_a_topologys_token_depends_on_its_cells_alone() -> None:
    time = Regular("time", 0, 10, 5, 10)
    one, other = grid(**GOOD), grid(**{**GOOD, "step": 1 / 3600})
    assert isinstance(one, Grid)
    assert Topology(time, one).token() == Topology(time, other).token()
    assert Topology(time, one).token() != Topology(time.part(0, 4), one).token()
    assert Topology(time, one).shape == (5, 2, 3)
    assert Topology(time, one).count == 30
