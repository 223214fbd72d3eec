"""Places and arcs on the sphere."""

import numpy as np
import pytest

from hypergrid.core.geodesy import RADIUS_M, arc_m, chord_m, places_m


def test_places_lie_on_the_sphere_where_they_should() -> None:
    found = places_m(np.array([0.0, 90.0, 180.0, 12.0]), np.array([0.0, 0.0, 0.0, 90.0]))
    wanted = RADIUS_M * np.array([[1, 0, 0], [0, 1, 0], [-1, 0, 0], [0, 0, 1]])
    np.testing.assert_allclose(found, wanted, atol=1e-8)
    np.testing.assert_allclose(np.linalg.norm(found, axis=-1), RADIUS_M, rtol=1e-15)


@pytest.mark.parametrize(
    ("one", "same"),
    [
        ((180.0, 12.0), (-180.0, 12.0)),
        ((359.0, -40.0), (-1.0, -40.0)),
        ((3.0, 90.0), (-77.0, 90.0)),
        ((3.0, -90.0), (0.0, -90.0)),
    ],
)
def test_one_place_is_one_place_to_the_last_digit(one: tuple[float, float], same: tuple[float, float]) -> None:
    first, second = (places_m(np.array([lon]), np.array([lat])) for lon, lat in (one, same))
    np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("arc", [0.0, 1e-3, 1.0, 1e5, 5e6, 1e7, 1.5e7])
def test_chord_and_arc_undo_each_other(arc: float) -> None:
    assert float(arc_m(np.array(chord_m(arc)))) == pytest.approx(arc, rel=1e-14)


def test_no_chord_is_longer_than_the_diameter() -> None:
    assert float(arc_m(np.array(2.0 * RADIUS_M * (1 + 1e-15)))) == pytest.approx(np.pi * RADIUS_M)
    assert chord_m(1e9) == pytest.approx(2.0 * RADIUS_M)
