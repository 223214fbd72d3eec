"""Moisture of the air: the Magnus formula over water, with the coefficients of Alduchov and Eskridge.

O. A. Alduchov and R. E. Eskridge (1996), Improved Magnus form approximation of saturation vapor pressure, Journal of
Applied Meteorology 35, equation 21: within 0.4 % from -40 to 50 degC over water. Below freezing, too, stations report
relative humidity with respect to water (WMO-No. 8, part I, chapter 4).
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

A: Final = 17.625
B_DEGC: Final = 243.04


def dew_point(humidity_percent: Floats, temperature_degc: Floats) -> Floats:
    """Return the dew point [degC] from relative humidity [%] and air temperature [degC]; shapes broadcast.

    NaN where either is missing, and where the humidity is not above zero: dry air has no dew point.

    Examples
    --------
    >>> dew_point(np.array([100.0, 50.0]), np.array([20.0, 20.0])).round(2)
    array([20.  ,  9.26])
    """
    share = np.where(humidity_percent > 0, humidity_percent, np.nan) / 100.0
    exponent = np.log(share) + _magnus(temperature_degc)
    return np.asarray(B_DEGC * exponent / (A - exponent))


def relative_humidity(dew_point_degc: Floats, temperature_degc: Floats) -> Floats:
    """Return the relative humidity [%], at most 100, from dew point and air temperature [degC]; shapes broadcast."""
    return np.asarray(np.minimum(100.0 * np.exp(_magnus(dew_point_degc) - _magnus(temperature_degc)), 100.0))


def _magnus(temperature_degc: Floats) -> Floats:
    return np.asarray(A * temperature_degc / (B_DEGC + temperature_degc))
