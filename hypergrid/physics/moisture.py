"""Humidity: the Magnus formula over water, with the coefficients of Alduchov and Eskridge.

O. A. Alduchov and R. E. Eskridge (1996), Improved Magnus form approximation of saturation vapor pressure, Journal of
Applied Meteorology 35, equation 21: within 0.4 % from -40 to 50 degC over water. Below freezing, stations also report
relative humidity with respect to water (WMO-No. 8, part I, chapter 4).
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

A: Final = 17.625
B_DEGC: Final = 243.04
C_KPA: Final = 0.61094
"""Saturation vapour pressure at 0 degC [kPa]."""

VAPOUR_J_KG_K: Final = 461.5
"""Gas constant of water vapour [J kg-1 K-1]."""
LIGHTER: Final = 0.622
"""Ratio of the molar masses of water and dry air."""
KAPPA: Final = 0.2857
"""Ratio of the gas constant of dry air to its heat capacity at constant pressure."""
ZERO_K: Final = 273.15
"""0 degC [K]."""


def dew_point(humidity_percent: Floats, temperature_degc: Floats) -> Floats:
    """Return the dew point [degC] from relative humidity [%] and air temperature [degC]; shapes broadcast.

    NaN if either is missing, or the humidity is not above zero: dry air has no dew point.

    Examples
    --------
    >>> dew_point(np.array([100.0, 50.0]), np.array([20.0, 20.0])).round(2)
    array([20.  ,  9.26])
    """
    share = np.where(humidity_percent > 0, humidity_percent, np.nan) / 100.0
    exponent = np.log(share) + _magnus(temperature_degc)
    return np.asarray(B_DEGC * exponent / (A - exponent))


def relative_humidity(dew_point_degc: Floats, temperature_degc: Floats) -> Floats:
    """Return relative humidity [%] from dew point and air temperature [degC].

    At most 100; shapes broadcast.
    """
    return np.asarray(np.minimum(100.0 * np.exp(_magnus(dew_point_degc) - _magnus(temperature_degc)), 100.0))


def saturation_kpa(temperature_degc: Floats) -> Floats:
    """Return the saturation vapour pressure over water [kPa] at a temperature [degC]."""
    return np.asarray(C_KPA * np.exp(_magnus(temperature_degc)))


def vapour_pressure_kpa(temperature_degc: Floats, humidity_percent: Floats) -> Floats:
    """Return the vapour pressure [kPa] from temperature [degC] and relative humidity [%]; shapes broadcast.

    NaN for a humidity below 0; a sensor's 101 % count as saturation.
    """
    share = np.where(humidity_percent >= 0, np.minimum(humidity_percent, 100.0), np.nan) / 100.0
    return np.asarray(saturation_kpa(temperature_degc) * share)


def vapour_pressure_deficit(temperature_degc: Floats, humidity_percent: Floats) -> Floats:
    """Return the vapour pressure deficit [kPa]; arguments as for `vapour_pressure_kpa`.

    Examples
    --------
    >>> vapour_pressure_deficit(np.array([20.0]), np.array([50.0])).round(3)
    array([1.167])
    """
    return saturation_kpa(temperature_degc) - vapour_pressure_kpa(temperature_degc, humidity_percent)


def absolute_humidity(temperature_degc: Floats, humidity_percent: Floats) -> Floats:
    """Return absolute humidity [g m-3], by the ideal gas law; arguments as for `vapour_pressure_kpa`.

    Examples
    --------
    >>> absolute_humidity(np.array([20.0]), np.array([100.0])).round(1)
    array([17.2])
    """
    pascal = 1e3 * vapour_pressure_kpa(temperature_degc, humidity_percent)
    return np.asarray(1e3 * pascal / (VAPOUR_J_KG_K * (temperature_degc + ZERO_K)))


def specific_humidity(temperature_degc: Floats, humidity_percent: Floats, pressure_kpa: Floats) -> Floats:
    """Return specific humidity [g kg-1] of moist air (WMO-No. 8, part I, annex 4.A).

    NaN if the pressure does not exceed that of the vapour.

    Examples
    --------
    >>> specific_humidity(np.array([20.0]), np.array([100.0]), np.array([101.325])).round(2)
    array([14.45])
    """
    vapour = vapour_pressure_kpa(temperature_degc, humidity_percent)
    air = np.where(pressure_kpa > vapour, pressure_kpa, np.nan)
    return np.asarray(1e3 * LIGHTER * vapour / (air - (1 - LIGHTER) * vapour))


def potential_temperature(temperature_degc: Floats, pressure_kpa: Floats) -> Floats:
    """Return the potential temperature at 100 kPa [K] (Poisson).

    NaN if the pressure is not above 0.

    Examples
    --------
    >>> potential_temperature(np.array([0.0]), np.array([70.0])).round(1)
    array([302.5])
    """
    ratio = 100.0 / np.where(pressure_kpa > 0, pressure_kpa, np.nan)
    return np.asarray((temperature_degc + ZERO_K) * ratio**KAPPA)


def _magnus(temperature_degc: Floats) -> Floats:
    return np.asarray(A * temperature_degc / (B_DEGC + temperature_degc))
