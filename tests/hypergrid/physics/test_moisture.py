"""Dew point and relative humidity."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hypergrid.physics.moisture import dew_point, relative_humidity

TEMPERATURES = st.floats(-40.0, 50.0)


@given(TEMPERATURES, st.floats(0.5, 100.0))
def test_humidity_comes_back_from_the_dew_point(temperature: float, humidity: float) -> None:
    dew = dew_point(np.array([humidity]), np.array([temperature]))
    assert relative_humidity(dew, np.array([temperature]))[0] == pytest.approx(humidity, rel=1e-12)


@given(TEMPERATURES)
def test_saturated_air_is_at_its_dew_point(temperature: float) -> None:
    assert dew_point(np.array([100.0]), np.array([temperature]))[0] == pytest.approx(temperature, abs=1e-9)


@pytest.mark.parametrize(
    ("temperature", "pressure_hpa"),
    # Saturation vapour pressure over water, Smithsonian tables (Goff-Gratch): within the 0.4 % of the formula.
    [(-20.0, 1.2540), (0.0, 6.1078), (20.0, 23.373), (40.0, 73.777)],
)
def test_ratios_agree_with_tabled_vapour_pressures(temperature: float, pressure_hpa: float) -> None:
    share = relative_humidity(np.array([0.0]), np.array([temperature])) if temperature >= 0 else None
    if share is None:
        share = 1e4 / relative_humidity(np.array([temperature]), np.array([0.0]))
    assert share[0] == pytest.approx(100.0 * 6.1078 / pressure_hpa, rel=4e-3)


def test_what_is_missing_stays_missing_and_dry_air_has_no_dew_point() -> None:
    dew = dew_point(np.array([np.nan, 50.0, 0.0, -3.0]), np.array([10.0, np.nan, 10.0, 10.0]))
    assert np.isnan(dew).all()


def test_humidity_ends_at_saturation() -> None:
    assert relative_humidity(np.array([12.0]), np.array([10.0]))[0] == 100.0
    assert np.isnan(relative_humidity(np.array([np.nan]), np.array([10.0]))[0])
