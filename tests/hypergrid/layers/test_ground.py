"""Relief and contours of elevations whose slopes and levels are known."""

from typing import Any

import numpy as np
import pytest

from hypergrid.layers.ground import FLAT, UNKNOWN, _average_axis, make_ground
from hypergrid.layers.layer import Layer

EXTENT = (0.0, 0.0, 2000.0, 1000.0)


def layer(height: Any, *, step: float = 10.0, system: Any = "metres") -> Layer:  # noqa: ANN401 - a function of x and y
    """Return elevations of a function of x and y [m], somewhat beyond the extent."""
    x, y = np.arange(-200.0, 2201.0, step), np.arange(-200.0, 1201.0, step)
    values = height(*np.meshgrid(x, y))
    if system == "lonlat":
        x, y = 7.0 + x / 111_195 / np.cos(np.radians(46.0)), 46.0 + y / 111_195
    return Layer("elevation", x, y, values, "m", system)


def flat_shade() -> float:
    return 1.0 + 254.0 * FLAT


def test_slopes_towards_the_north_west_are_bright_and_level_ground_is_even() -> None:
    # A ridge from south-west to north-east: its north-western side faces the light.
    ridge = make_ground(layer(lambda x, y: 300.0 - 0.3 * np.abs(x - 500.0 - y)), EXTENT, columns=100)
    assert ridge.shade.shape == (50, 100)
    middle = ridge.shade[25]
    assert middle[30] > flat_shade() + 20 > flat_shade() - 20 > middle[70]
    level = make_ground(layer(lambda x, y: 0.0 * x + 7.0), EXTENT, columns=100)
    assert set(np.unique(level.shade)) == {round(flat_shade())}
    assert level.interval_m == 0.0
    assert level.contours == ()


@pytest.mark.parametrize("step", [10.0, 2.5, 40.0])
def test_contours_lie_where_the_elevation_is_theirs(step: float) -> None:
    ground = make_ground(layer(lambda x, y: 1000.0 + 0.5 * x + 0.1 * y, step=step), EXTENT, columns=80)
    assert ground.interval_m == 100.0
    assert [contour.level_m for contour in ground.contours] == list(np.arange(1100.0, 2100.0, 100.0))
    for contour in ground.contours:
        # Away from the edge, where a smoothed slope is bent.
        inside = (contour.x > 150.0) & (contour.x < 1850.0)
        heights = 1000.0 + 0.5 * contour.x[inside] + 0.1 * contour.y[inside]
        np.testing.assert_allclose(heights, contour.level_m, atol=8.0)


@pytest.mark.parametrize(
    ("span", "interval"), [(0.5, 0.0), (7.0, 1.0), (36.0, 5.0), (100.0, 10.0), (170.0, 20.0), (2400.0, 200.0)]
)
def test_intervals_are_round(span: float, interval: float) -> None:
    ground = make_ground(layer(lambda x, y: 0.3 + span * (x + 200.0) / 2400.0), EXTENT, columns=60)
    assert ground.interval_m == interval


def test_degrees_and_metres_show_the_same_ground() -> None:
    def hill(x: Any, y: Any) -> Any:  # noqa: ANN401
        return 400.0 * np.exp(-((x - 900.0) ** 2 + (y - 500.0) ** 2) / 300.0**2)

    metres = make_ground(layer(hill), EXTENT, columns=100)
    shrink = 111_195 * np.cos(np.radians(46.0))
    degrees = make_ground(
        layer(hill, system="lonlat"), (7.0, 46.0, 7.0 + 2000 / shrink, 46.0 + 1000 / 111_195), columns=100
    )
    assert degrees.interval_m == metres.interval_m
    assert np.abs(degrees.shade.astype(int) - metres.shade.astype(int)).max() <= 4
    # Longitudes may be counted from another turn.
    turned = make_ground(
        layer(hill, system="lonlat"), (367.0, 46.0, 367.0 + 2000 / shrink, 46.0 + 1000 / 111_195), columns=100
    )
    assert np.abs(turned.shade.astype(int) - degrees.shade.astype(int)).max() <= 1


def test_what_is_not_known_stays_so() -> None:
    def holed(x: Any, y: Any) -> Any:  # noqa: ANN401
        return np.where(x < 1000.0, 200.0 + 0.2 * x, np.nan)

    ground = make_ground(layer(holed), EXTENT, columns=100)
    assert (ground.shade[:, 55:] == UNKNOWN).all()
    assert (ground.shade[2:-2, 2:45] != UNKNOWN).all()
    assert all(contour.x.max() < 1050.0 for contour in ground.contours)
    far = make_ground(layer(holed), (50_000.0, 0.0, 52_000.0, 1000.0), columns=40)
    assert (far.shade == UNKNOWN).all()
    assert far.contours == ()


@pytest.mark.parametrize("ratio", range(1, 41))
def test_few_cells_of_a_finer_layer_are_averaged(ratio: int) -> None:
    centres, wanted = np.arange(4000.0), np.arange(20.0) * ratio + 1000.0
    cells, blocks = _average_axis(centres, wanted, float(ratio))
    assert len(cells) / len(blocks) <= 4
    assert float(blocks[1] - blocks[0]) == pytest.approx(ratio, rel=0.34)


def test_a_finer_layer_is_averaged_and_not_picked_from() -> None:
    # Stripes narrower than a cell would turn into false ridges.
    stripes = make_ground(layer(lambda x, y: 10.0 * (np.round(x) % 4.0 < 2.0), step=1.0), EXTENT, columns=50)
    assert np.abs(stripes.shade.astype(float) - flat_shade()).max() < 40


def test_rugged_ground_has_fewer_contours() -> None:
    """Between hills as many levels as on a slope would leave no room between their lines."""
    hills = make_ground(layer(lambda x, y: 50.0 + 50.0 * np.sin(x / 20.0) * np.cos(y / 20.0)), EXTENT, columns=200)
    slope = make_ground(layer(lambda x, y: 0.05 * x + 0.0 * y), EXTENT, columns=200)
    assert (hills.interval_m, slope.interval_m) == (50.0, 10.0)
    assert hills.contours
