"""The sphere on which distances of wide networks are measured."""

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

RADIUS_M = 6_371_008.8
"""Mean radius of the earth [m] (2a + b)/3 of WGS84."""

FAR_CHORD = 1.9
"""Chord over radius above which an arc is taken from the chord to the antipode: the arcsine loses digits there."""


def places_m(lon: Floats, lat: Floats) -> Floats:
    """Return places on the sphere, from its centre [m], shape (..., 3).

    One place has one answer to the last digit: the date line from both sides, and a pole on every meridian.

    Parameters
    ----------
    lon, lat
        Degrees, any shape; longitudes in any turn.
    """
    turned = np.radians((lon + 180.0) % 360.0 - 180.0)
    around = np.where(np.abs(lat) >= 90.0, 0.0, np.cos(np.radians(lat)))
    return np.asarray(
        RADIUS_M * np.stack([around * np.cos(turned), around * np.sin(turned), np.sin(np.radians(lat))], axis=-1)
    )


def arc_m(chord_m: Floats) -> Floats:
    """Return the way over the sphere [m] between places that are this far apart in a straight line [m]."""
    scaled = np.asarray(np.minimum(chord_m / (2.0 * RADIUS_M), 1.0))
    np.arcsin(scaled, out=scaled)
    scaled *= 2.0 * RADIUS_M
    return scaled


def chord_m(arc: float) -> float:
    """Return the straight line [m] between places that are this far apart over the sphere [m]."""
    return float(2.0 * RADIUS_M * np.sin(min(arc / (2.0 * RADIUS_M), np.pi / 2.0)))
