"""Components of the wind."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hypergrid.physics import wind


@pytest.mark.parametrize(
    ("direction", "east", "north"),
    # A wind from the north blows towards the south.
    [(0.0, 0.0, -2.0), (90.0, -2.0, 0.0), (180.0, 0.0, 2.0), (270.0, 2.0, 0.0), (360.0, 0.0, -2.0)],
)
def test_components_of_the_four_winds(direction: float, east: float, north: float) -> None:
    speed, towards = np.array([2.0]), np.array([direction])
    assert wind.eastward(speed, towards)[0] == pytest.approx(east, abs=1e-12)
    assert wind.northward(speed, towards)[0] == pytest.approx(north, abs=1e-12)


@given(st.floats(0.01, 60.0), st.floats(0.0, 359.999))
def test_speed_and_direction_come_back(speed: float, direction: float) -> None:
    parts = [f(np.array([speed]), np.array([direction])) for f in (wind.eastward, wind.northward)]
    assert wind.speed(*parts)[0] == pytest.approx(speed)
    off = (wind.direction(*parts)[0] - direction + 180.0) % 360.0 - 180.0
    assert off == pytest.approx(0.0, abs=1e-6)
    assert 0.0 <= wind.direction(*parts)[0] < 360.0


def test_calm_air_has_components_and_no_direction() -> None:
    calm, unknown = np.array([0.0]), np.array([np.nan])
    assert wind.eastward(calm, unknown)[0] == wind.northward(calm, unknown)[0] == 0.0
    assert np.isnan(wind.direction(calm, calm)[0])
    assert np.isnan(wind.eastward(np.array([1.0]), unknown)[0])


def test_a_direction_just_west_of_north_is_not_a_full_turn() -> None:
    assert wind.direction(np.array([1e-17]), np.array([-1.0]))[0] == 0.0
