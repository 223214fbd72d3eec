"""Spherical geometry for distances in wide networks."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

RADIUS_M = 6_371_008.8
"""Mean radius of the earth [m], (2a + b)/3 of WGS84."""

# The arcsine loses digits near the antipode.
FAR_CHORD = 1.9
"""Chord over radius above which an arc is computed from the chord to the antipode."""


def places_m(lon: Floats, lat: Floats) -> Floats:
    """Return positions on the sphere relative to its centre [m], shape (..., 3).

    Equal places have bit-identical positions: both sides of the date line, and a pole on every meridian.

    Parameters
    ----------
    lon, lat
        Degrees, any shape; longitudes may exceed one turn.
    """
    # Both sides of the date line become -180 degree.
    turned = np.radians((lon + 180.0) % 360.0 - 180.0)
    # The cosine of 90 degree in floating point is not 0, so a pole would depend on its meridian.
    around = np.where(np.abs(lat) >= 90.0, 0.0, np.cos(np.radians(lat)))
    return np.asarray(
        RADIUS_M * np.stack([around * np.cos(turned), around * np.sin(turned), np.sin(np.radians(lat))], axis=-1)
    )


def arc_m(chord_m: Floats) -> Floats:
    """Return great-circle distances [m] from chord lengths [m]."""
    scaled = np.asarray(np.minimum(chord_m / (2.0 * RADIUS_M), 1.0))
    np.arcsin(scaled, out=scaled)
    scaled *= 2.0 * RADIUS_M
    return scaled


def chord_m(arc: float) -> float:
    """Return the chord length [m] of a great-circle distance [m]."""
    return float(2.0 * RADIUS_M * np.sin(min(arc / (2.0 * RADIUS_M), np.pi / 2.0)))
