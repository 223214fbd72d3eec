"""Points as users write them, and as queries' JSON has them."""

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hypergrid.core.errors import HyperGridError, InvalidQuery
from hypergrid.topology import Grid, Points, cells_from_json, cells_json, grid, points

CELLS = grid(lon=(7.0, 7.1), lat=(45.0, 45.1), step="10arcsec", z=[500, 900])


def test_points_are_counted_one_by_one_and_then_level_by_level() -> None:
    made = points(lon=[7.01, "7:03"], lat=np.array([45.0, 45.1]), grid=CELLS)
    assert (made.shape, made.count, made.system, made.names) == ((2, 2), 4, "lonlat", ("lon", "lat"))
    np.testing.assert_array_equal(made.centres(np.arange(4)), [[7.01, 45.0], [7.05, 45.1]] * 2)
    np.testing.assert_array_equal(made.heights_m(np.arange(4)), [500, 500, 900, 900])
    assert made.size == CELLS.size == (10 / 3600, 10 / 3600)
    np.testing.assert_allclose(made.box, (7.01 - 5 / 3600, 45 - 5 / 3600, 7.05 + 5 / 3600, 45.1 + 5 / 3600))


def test_points_without_a_grid_have_the_least_one_that_holds_them() -> None:
    made = points(x=[12.3456, -400], y=[7, 9], step="20m")
    assert made.grid == Grid(made.grid.y, made.grid.x)
    assert (made.grid.x.origin, made.grid.x.count, made.grid.y.origin, made.grid.y.count) == (-410_000, 22, -3_000, 2)
    assert made.at.tolist() == [[12_346, 7_000], [-400_000, 9_000]]
    west, south, east, north = made.box
    around = made.grid.box
    assert max(around[0] - west, around[1] - south, east - around[2], north - around[3]) <= 0


@given(
    places=st.lists(st.tuples(st.integers(0, 10_000), st.integers(0, 10_000)), min_size=1, max_size=5),
    geographic=st.booleans(),
    z=st.none() | st.just([500, 900]),
    framed=st.booleans(),
)
def test_json_holds_points_exactly(*, places: list[tuple[int, int]], geographic: bool, z: object, framed: bool) -> None:
    names = ("lon", "lat") if geographic else ("x", "y")
    scale, first, step = (1e5, -7.123_456_789, "3.25arcsec") if geographic else (1.0, 0.001, 2.5)
    given = {
        name: [first + number / scale for number in column]
        for name, column in zip(names, zip(*places, strict=True), strict=True)
    }
    if framed:
        ends = {name: (first, first + 10_001 / scale) for name in names}
        made = points(**given, grid=grid(**ends, step=step, z=z))
    else:
        made = points(**given, step=step, z=z)
    again = cells_from_json(cells_json(made))
    assert isinstance(again, Points)
    assert (again.at.tolist(), again.grid, again.token()) == (made.at.tolist(), made.grid, made.token())
    assert cells_json(again) == cells_json(made)
    # A grid and its points are not the same cells.
    assert cells_from_json(cells_json(made.grid)) == made.grid
    assert made.token() != made.grid.token()


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"lon": [7.01], "lat": [45.01]}, "points need a step"),
        ({"lon": [7.01], "step": 1}, "points need lon and lat, or x and y; got lon"),
        ({"lon": [7.01], "y": [1], "step": 1}, "points need lon and lat, or x and y; got lon, y"),
        ({"step": 1}, "got neither"),
        ({"lon": [7.01, 7.02], "lat": [45.01], "grid": CELLS}, "got 2 of lon and 1 of lat"),
        ({"lon": [], "lat": [], "grid": CELLS}, "needs a list of at least one coordinate"),
        ({"lon": 7.01, "lat": 45.01, "grid": CELLS}, "needs a list of at least one coordinate; got 7.01"),
        (
            {"lon": [7.2], "lat": [45.01], "grid": CELLS},
            r"must lie within 7 to 7.1, 45 to 45.1 \(lon, lat\); got 7.2, 45.01",
        ),
        ({"lon": [float("nan")], "lat": [45.01], "grid": CELLS}, "lon needs degrees"),
        ({"lon": [7.0], "lat": [91], "step": 1}, "must lie within -180 to 360, -90 to 90"),
        ({"x": [7.0], "y": [9], "grid": CELLS}, "need its coordinates, lon and lat; got x and y"),
        ({"x": [7.0], "y": [9], "step": 0}, "a step above zero"),
        ({"lon": [7.01], "lat": [45.01], "grid": CELLS, "step": 1}, "leave out step and z"),
    ],
)
def test_points_that_make_no_sense_are_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidQuery, match=message):
        points(**given)


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"points": [[7.1, 45.0]], "step": 1}, "points of a grid are lists of coordinates"),
        ({"points": {"lon": [7.1], "lat": [45.0], "height": [1]}, "step": 1}, "height"),
        ({"points": {"lon": [7.1], "lat": [45.0]}}, "points need a step"),
        ({"points": {"lon": [7.1], "lat": [45.0]}, "lon": 7, "lat": 45, "shape": [2, 2]}, "a grid needs a step"),
        ({"points": {"lon": [7.1], "lat": [45.0]}, "step": 1, "shape": [2, 2]}, "a grid needs lon and lat"),
    ],
)
def test_json_that_makes_no_sense_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(HyperGridError, match=message):
        cells_from_json(given)
