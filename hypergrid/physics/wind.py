"""Wind components; directions are where wind comes from, clockwise from north (WMO-No. 8, I, 5)."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

CALM_M_S = 1e-6
"""Speed below which a wind has no direction [m s-1]."""


def eastward(speed_m_s: Floats, direction_degree: Floats) -> Floats:
    """Return the eastward wind component [m s-1]; 0 in calm air, even without a direction."""
    return np.where(speed_m_s == 0, 0.0, -speed_m_s * np.sin(np.radians(direction_degree)))


def northward(speed_m_s: Floats, direction_degree: Floats) -> Floats:
    """Return the northward wind component [m s-1]; 0 in calm air, even without a direction."""
    return np.where(speed_m_s == 0, 0.0, -speed_m_s * np.cos(np.radians(direction_degree)))


def speed(eastward_m_s: Floats, northward_m_s: Floats) -> Floats:
    return np.asarray(np.hypot(eastward_m_s, northward_m_s))


def direction(eastward_m_s: Floats, northward_m_s: Floats) -> Floats:
    """Return the direction a wind comes from [degree].

    It is at least 0 and below 360; NaN in calm air.

    Examples
    --------
    >>> direction(np.array([1.0, 0.0, 0.0]), np.array([0.0, 1.0, 0.0]))
    array([270., 180.,  nan])
    """
    towards = np.degrees(np.arctan2(-eastward_m_s, -northward_m_s)) % 360.0
    # A remainder of -1e-17 degrees is rounded up to the full turn.
    towards = np.where(towards >= 360.0, 0.0, towards)
    return np.where(speed(eastward_m_s, northward_m_s) > CALM_M_S, towards, np.nan)
