"""Metres on a plane and on the sphere, chosen by the extent of the stations."""

import math
from dataclasses import replace

import numpy as np
import pyproj
import pytest

from hypergrid.core.errors import InvalidQuery, NotFound
from hypergrid.core.geodesy import RADIUS_M, places_m
from hypergrid.core.readings import Series
from hypergrid.topology import Metres, SeriesAxis
from hypergrid.topology.projection import MAX_PLANE_DISTORTION


def stations(lon: list[float], lat: list[float]) -> SeriesAxis:
    series = tuple(Series("v", f"s{i}") for i in range(len(lon)))
    return SeriesAxis(series, np.array(lon), np.array(lat), np.full(len(lon), np.nan))


def ring(radius_degree: float, *, lat: float = 52.0, count: int = 24) -> SeriesAxis:
    """Return stations at one distance around a middle on the meridian of Greenwich, and one in the middle."""
    geod, around = pyproj.Geod(ellps="WGS84"), np.linspace(0, 360, count, endpoint=False)
    away = np.full(count, math.radians(radius_degree) * RADIUS_M)
    lon, north, _ = geod.fwd(np.zeros(count), np.full(count, lat), around, away)
    return stations([0.0, *lon], [lat, *north])


@pytest.mark.parametrize("radius_degree", [0.5, 3.0, 8.0])
@pytest.mark.parametrize("lat", [0.0, 52.0])
def test_a_plane_is_off_by_no_more_than_it_says(radius_degree: float, lat: float) -> None:
    axis = ring(radius_degree, lat=lat)
    metres = Metres(axis)
    assert not metres.on_sphere
    places = np.stack([axis.x, axis.y], axis=1)
    plane = metres.project(places)
    assert plane.shape == (25, 2)
    first, second = np.triu_indices(25, 1)
    exact = pyproj.Geod(ellps="WGS84").inv(*places[first].T, *places[second].T)[2]
    off = np.abs(np.linalg.norm(plane[first] - plane[second], axis=1) / exact - 1).max()
    said = float(metres.description.split("at most ")[1].removesuffix(" %")) / 100
    # What it says is rounded to two digits; the ellipsoid adds some 1e-5.
    assert off <= said * 1.05 + 2e-5
    assert said <= MAX_PLANE_DISTORTION
    assert off > said / 4


@pytest.mark.parametrize(("radius_degree", "on_sphere"), [(9.0, False), (11.0, True), (60.0, True)])
def test_wide_networks_are_on_the_sphere(radius_degree: float, on_sphere: bool) -> None:  # noqa: FBT001 - of a table
    axis = ring(radius_degree)
    metres = Metres(axis)
    assert metres.on_sphere == on_sphere
    assert ("great circles on a sphere of radius 6371008.8 m" in metres.description) == on_sphere
    if on_sphere:
        np.testing.assert_array_equal(
            metres.project(np.array([[10.0, 20.0]])), places_m(np.array([10.0]), np.array([20.0]))
        )


def test_a_distance_that_is_asked_for_is_taken() -> None:
    assert not Metres(ring(11.0), "plane").on_sphere
    assert Metres(ring(1.0), "great_circle").on_sphere
    assert Metres(ring(1.0), "auto").description == Metres(ring(1.0)).description


def test_what_cannot_be_asked_is_refused() -> None:
    with pytest.raises(NotFound, match="did you mean 'great_circle'"):
        Metres(ring(1.0), "great-circle")
    with pytest.raises(InvalidQuery, match="these have x and y in metres"):
        Metres(replace(ring(1.0), system="metres"), "great_circle")


@pytest.mark.parametrize(
    ("lon", "lat"),
    [
        ([179.5, -179.5, 180.0], [-17.0, -17.2, -17.1]),  # across the date line
        ([0.0, 90.0, 180.0, -90.0], [89.9, 89.9, 89.9, 89.9]),  # around the pole
        ([0.0, 120.0, -120.0], [-89.0, -89.0, -89.0]),
    ],
)
def test_narrow_networks_have_a_plane_everywhere(lon: list[float], lat: list[float]) -> None:
    metres = Metres(stations(lon, lat))
    assert not metres.on_sphere
    plane = metres.project(np.stack([lon, lat], axis=1))
    exact = pyproj.Geod(ellps="WGS84").inv(lon[0], lat[0], lon[1], lat[1])[2]
    assert np.linalg.norm(plane[0] - plane[1]) == pytest.approx(exact, rel=1e-3)


def test_stations_on_both_sides_of_the_earth_are_on_the_sphere() -> None:
    assert Metres(stations([0.0, 180.0], [0.0, 0.0])).on_sphere
    assert Metres(stations([0.0, 90.0, 180.0, -90.0], [60.0] * 4)).on_sphere


def test_a_station_without_a_position_does_not_count() -> None:
    one = Metres(stations([5.0, 6.0, np.nan], [52.0, 52.5, 0.0]))
    assert one.description == Metres(stations([5.0, 6.0], [52.0, 52.5])).description


def test_one_station_is_the_middle() -> None:
    metres = Metres(stations([5.0], [52.0]))
    np.testing.assert_allclose(metres.project(np.array([[5.0, 52.0]])), [[0.0, 0.0]], atol=1e-6)
