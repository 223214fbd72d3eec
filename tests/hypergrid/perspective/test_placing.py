"""Where an interpolation finds its stations, and which are too far."""

from typing import Any

import numpy as np
import pyproj
import pytest

import hypergrid as hg
from hypergrid.core.errors import InvalidQuery
from hypergrid.core.readings import Series
from hypergrid.perspective.build.station_projection import StationPlacing, measure_grid_distance, place_stations
from hypergrid.perspective.tree import Interpolate
from hypergrid.topology import SeriesAxis


def axis(places: list[tuple[float, float]], system: Any = "lonlat") -> SeriesAxis:  # noqa: ANN401 - a literal
    series = tuple(Series("v", f"s{i}") for i in range(len(places)))
    x, y = np.array(places, dtype=float).T
    return SeriesAxis(series, x, y, np.full(len(places), np.nan), system)


def placed(stations: SeriesAxis, grid: hg.Grid, **given: Any) -> StationPlacing:  # noqa: ANN401 - parameters of a step
    far = measure_grid_distance(stations, grid, given).excluded
    return place_stations(stations, Interpolate("ordinary_kriging", tuple(given.items()), excluded_stations=far))


@pytest.mark.parametrize(
    ("grid", "point"),
    [
        ((5, 6, 52, 53), (4.0, 52.5)),
        ((5, 6, 52, 53), (5.5, 54.0)),
        ((5, 6, 52, 53), (7.0, 51.0)),
        ((5, 6, 52, 53), (5.5, 52.5)),
        ((5, 6, 52, 53), (5.0, 52.0)),
        ((179, 181, -18, -16), (-178.0, -17.0)),
        ((179, 181, -18, -16), (-179.5, -17.0)),
        ((-10, 10, 70, 80), (0.0, 85.0)),
        ((-10, 10, 70, 80), (180.0, 85.0)),
        ((0, 360, -90, 90), (-3.0, 89.0)),
    ],
)
def test_distances_from_a_grid_are_those_to_its_nearest_point(
    grid: tuple[float, float, float, float], point: tuple[float, float]
) -> None:
    left, right, low, high = grid
    made = hg.grid(lon=(left, right), lat=(low, high), step=1 if right - left < 100 else 10)
    found = measure_grid_distance(axis([point, (left + 0.5, low + 0.5)]), made, {})
    x, y = np.meshgrid(np.linspace(left, right, 201), np.linspace(low, high, 201))
    ones = np.ones(x.size)
    nearest = (
        pyproj.Geod(a=6_371_008.8, b=6_371_008.8).inv(x.ravel(), y.ravel(), ones * point[0], ones * point[1])[2].min()
    )
    inside = low <= point[1] <= high and (point[0] - left) % 360 <= right - left
    assert found.distance_m[0] == pytest.approx(0.0 if inside else nearest, rel=2e-3, abs=1.0)
    assert found.distance_m[1] == 0


def test_distances_from_a_projected_grid() -> None:
    grid = hg.grid(x=(0, 300), y=(0, 400), step=100)
    stations = axis([(150, 200), (-30, -40), (350, 100), (np.nan, 3)], "metres")
    found, placing = measure_grid_distance(stations, grid, {}), placed(stations, grid)
    np.testing.assert_allclose(found.distance_m, [0, 50, 50, np.nan])
    assert found.diagonal_m == 500
    assert placing.placed.tolist() == placing.near.tolist() == [True, True, True, False]
    assert placing.notes == ()


LOWLANDS = [(4.5, 52.0), (5.0, 52.3), (5.5, 52.1), (6.0, 52.6), (4.9, 53.0), (0.0, 0.0)]
GRID = hg.grid(lon=(4, 6.5), lat=(51.5, 53.5), step=0.5)


def test_a_zero_in_place_of_a_position_is_ignored_and_moves_no_plane() -> None:
    found = placed(axis(LOWLANDS), GRID, variogram=hg.variogram("exponential", psill=1, range_m="100 km"))
    assert found.near.tolist() == [True] * 5 + [False]
    (note,) = found.notes
    assert "s5 (5,7" in note
    assert note.startswith("stations far outside the grid are not used")
    assert found.metres.description == placed(axis(LOWLANDS[:5]), GRID).metres.description
    assert not found.metres.on_sphere


def test_with_a_long_range_it_counts() -> None:
    found = placed(axis(LOWLANDS), GRID, variogram=hg.variogram("exponential", psill=1, range_m="2000 km"))
    assert found.near.all()
    assert found.metres.on_sphere


def test_a_distance_that_is_asked_for_bounds_the_stations() -> None:
    grid = hg.grid(lon=(4.4, 4.6), lat=(51.9, 52.1), step=0.1)
    found = placed(axis(LOWLANDS), grid, ignore_beyond_m=50e3)
    assert found.near.tolist() == [True, True, False, False, False, False]
    assert placed(axis(LOWLANDS), grid, ignore_beyond_m=1e9).near.all()
    assert placed(axis(LOWLANDS), grid, ignore_beyond_m=0.0).near.tolist() == [True] + [False] * 5
    with pytest.raises(InvalidQuery, match="ignore_beyond_m=1000 leaves none of the 5 stations: the nearest is 35,"):
        placed(axis(LOWLANDS[1:]), grid, ignore_beyond_m=1000.0)
