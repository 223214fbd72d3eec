"""Linear interpolation on triangles: planes, hulls, lines, and scipy's own."""

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy.interpolate import LinearNDInterpolator
from scipy.spatial import Delaunay

from hypergrid.core.errors import InvalidQuery, SingularSystem
from hypergrid.interpolation.methods.deterministic_methods import TriangleField, _triangulate
from hypergrid.interpolation.points import Stations, Targets

Floats = NDArray[np.float64]


def field(places: Floats, values: Floats) -> TriangleField:
    return TriangleField(Stations(places, tuple(f"s{i}" for i in range(len(places)))), values)


def test_a_plane_is_reproduced_inside_the_hull_and_nothing_is_said_outside() -> None:
    rng = np.random.default_rng(1)
    places = np.concatenate([[[0, 0], [100, 0], [0, 100], [100, 100]], rng.uniform(0, 100, (10, 2))])
    values = (3.0 + 0.2 * places[:, 0] - 0.1 * places[:, 1])[None, :]
    inside, outside = rng.uniform(0, 100, (50, 2)), np.array([[-1.0, 50.0], [50.0, 100.5], [1e6, 1e6]])
    found = field(places, values)
    np.testing.assert_allclose(found.estimate(Targets(inside))[0], 3.0 + 0.2 * inside[:, 0] - 0.1 * inside[:, 1])
    assert np.isnan(found.estimate(Targets(outside))).all()
    assert found.counts_at(Targets(np.concatenate([inside[:1], outside])))[0].tolist() == [3, 0, 0, 0]


def test_stations_on_a_regular_grid_with_their_edges_and_middles() -> None:
    x, y = (axis.ravel() * 1000.0 + 5e5 for axis in np.meshgrid(np.arange(6.0), np.arange(4.0)))
    places = np.stack([x, y], axis=1)
    values = (x + 2 * y)[None, :]
    # Cells' middles, where four stations are on one circle; edges of the hull; corners.
    points = np.concatenate([places, (places[:-1] + places[1:]) / 2])
    found = field(places, values)
    np.testing.assert_allclose(found.estimate(Targets(points))[0], points @ [1.0, 2.0], rtol=1e-12)
    np.testing.assert_allclose(found.estimate(Targets(np.array([[500500.0, 500500.0]]))), 1500000 + 1500.0, rtol=1e-12)


def test_agrees_with_scipy_slice_by_slice() -> None:
    rng = np.random.default_rng(2)
    places, points = rng.uniform(0, 1000, (25, 2)), rng.uniform(-100, 1100, (200, 2))
    values = np.where(rng.random((10, 25)) < 0.3, np.nan, rng.normal(size=(10, 25)))
    found = field(places, values).estimate(Targets(points))
    for line, estimate in zip(values, found, strict=True):
        present = np.isfinite(line)
        expected = LinearNDInterpolator(places[present] - places.mean(axis=0), line[present])
        np.testing.assert_allclose(estimate, expected(points - places.mean(axis=0)), rtol=1e-9, atol=1e-9)


def test_the_maps_of_triangles_are_those_that_scipy_would_make() -> None:
    places = np.random.default_rng(3).uniform(-500, 500, (40, 2))
    made = _triangulate(places)
    assert made is not None
    np.testing.assert_allclose(made[1], Delaunay(places).transform, rtol=1e-8, atol=1e-8)


def test_slices_with_too_few_stations_or_stations_on_one_line_are_missing_and_count_none() -> None:
    places = np.array([[0.0, 0.0], [1.0, 1.0], [2.0, 2.0], [0.0, 2.0]])
    nan = np.nan
    values = np.array([[1.0, 2.0, 3.0, 4.0], [1.0, 2.0, nan, nan], [1.0, 2.0, 3.0, nan], [1.0, nan, 3.0, 4.0]])
    found = field(places, values)
    assert found.counts.tolist() == [4, 0, 0, 3]
    np.testing.assert_array_equal(
        np.isnan(found.estimate(Targets(np.array([[0.5, 1.0]]))))[:, 0], [False, True, True, False]
    )


@pytest.mark.parametrize(
    ("places", "words"),
    [
        ([[0.0, 0.0]], "at least 3 stations .* got 1;"),
        ([[0.0, 0.0], [1.0, 0.0]], "got 2; use inverse_distance"),
        ([[0.0, 0.0], [1e5, 1e5], [3e5, 3e5], [7e5, 7e5]], "linear needs .* got 4 on one line"),
        ([[5.0, 5.0]] * 3, "got 3 on one line"),
    ],
)
def test_a_network_that_makes_no_triangle_is_refused(places: list[list[float]], words: str) -> None:
    with pytest.raises(InvalidQuery, match=words):
        field(np.array(places), np.ones((2, len(places))))


def test_two_stations_in_one_place_are_refused_by_name() -> None:
    places = np.array([[0.0, 0.0], [1.0, 0.0], [0.0, 1.0], [1.0, 0.0]])
    with pytest.raises(SingularSystem, match="s1 and s3"):
        field(places, np.ones((1, 4)))
