"""Position of the sun, and the irradiance of a clear sky.

The sun's position is the Astronomical Almanac's approximation (J. J. Michalsky 1988, The Astronomical Almanac's
algorithm for approximate solar position, Solar Energy 40, 227-235), accurate to 0.01 degree from 1950 to 2050. The
clear sky is the global irradiance of P. Ineichen and R. Perez (2002, A new airmass independent formulation for the
Linke turbidity coefficient, Solar Energy 73, 151-157, equation 8) with the air mass of Kasten and Young (1989). Inputs
are the elevation of the place and a turbidity; the surrounding terrain and the horizon are ignored.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

SOLAR_CONSTANT_W_M2: Final = 1361.0
"""Irradiance outside the atmosphere at one astronomical unit (Kopp and Lean 2011) [W m-2]."""

TURBIDITY: Final = 3.0
"""Linke turbidity of clean continental air; 2 on a cold clear day in the mountains, 5 and more in polluted air."""

J2000_NS: Final = 946_728_000 * 10**9
"""Noon of 1 January 2000 (UTC) [ns since 1970]."""

LONGEST_STEP_S: Final = 900
"""Longest step at which the sun is sampled within a time cell [s]."""

MAX_STEPS: Final = 96
"""Maximum number of steps in one time cell."""


@dataclass(frozen=True, eq=False)
class Sun:
    """Position and irradiance of the sun at some instants."""

    directions: Floats
    """Unit vectors from the earth to the sun, in earth-fixed axes (x to 0 E, z to the north), shape (times, 3)."""
    irradiance_w_m2: Floats
    """Irradiance outside the atmosphere on a plane facing the sun [W m-2], shape (times,)."""

    def sine(self, lon: Floats, lat: Floats) -> Floats:
        """Return the sine of the sun's true elevation at places [degree], shape (times, places)."""
        east, north = np.radians(lon), np.radians(lat)
        up = np.stack([np.cos(north) * np.cos(east), np.cos(north) * np.sin(east), np.sin(north)])
        return np.asarray(np.clip(self.directions @ up, -1.0, 1.0))


def sun(times_ns: NDArray[np.int64]) -> Sun:
    """Return the sun's position and irradiance at instants (UTC) [ns since 1970], shape (times,).

    Examples
    --------
    >>> noon = np.array([np.datetime64("2007-06-21T12:02", "ns")]).astype(np.int64)
    >>> round(float(np.degrees(np.arcsin(sun(noon).sine(np.zeros(1), np.array([50.0]))[0, 0]))), 1)
    63.4
    """
    days = (times_ns - J2000_NS) / 86_400e9
    hours = (times_ns % (86_400 * 10**9)) / 3_600e9
    mean_longitude = 280.460 + 0.9856474 * days
    anomaly = np.radians(357.528 + 0.9856003 * days)
    ecliptic = np.radians(mean_longitude + 1.915 * np.sin(anomaly) + 0.020 * np.sin(2 * anomaly))
    tilt = np.radians(23.439 - 0.0000004 * days)
    sidereal = np.radians(15.0 * (6.697375 + 0.0657098242 * days + hours))
    # Rotate equatorial coordinates by the sidereal time into earth-fixed ones.
    x, y = np.cos(ecliptic), np.cos(tilt) * np.sin(ecliptic)
    turned = x * np.cos(sidereal) + y * np.sin(sidereal), y * np.cos(sidereal) - x * np.sin(sidereal)
    directions = np.stack([*turned, np.sin(tilt) * np.sin(ecliptic)], axis=1)
    distance = 1.00014 - 0.01671 * np.cos(anomaly) - 0.00014 * np.cos(2 * anomaly)
    return Sun(directions, SOLAR_CONSTANT_W_M2 / distance**2)


def clear_sky(sine: Floats, elevation_m: Floats, irradiance_w_m2: Floats, *, turbidity: float = TURBIDITY) -> Floats:
    """Return clear-sky global irradiance on a level plane [W m-2]; 0 below the horizon.

    Parameters
    ----------
    sine
        Sine of the sun's elevation, shape (times, places).
    elevation_m
        Elevation of the places [m], shape (places,).
    irradiance_w_m2
        Irradiance outside the atmosphere [W m-2], shape (times,).
    turbidity
        Linke turbidity.
    """
    up = np.maximum(sine, 0.0)
    pressure = (1.0 - 2.25577e-5 * elevation_m) ** 5.25588
    mass = pressure / (up + 0.50572 * (np.degrees(np.arcsin(up)) + 6.07995) ** -1.6364)
    low, high = np.exp(-elevation_m / 8000.0), np.exp(-elevation_m / 1250.0)
    weakening = (3.92e-5 * elevation_m + 0.0387) * (low + high * (turbidity - 1.0))
    strength = 5.09e-5 * elevation_m + 0.868
    return np.asarray(strength * irradiance_w_m2[:, None] * up * np.exp(-weakening * mass))


def clear_sky_of_cells(
    start_ns: NDArray[np.int64],
    length_ns: int | NDArray[np.int64],
    lon: Floats,
    lat: Floats,
    elevation_m: Floats,
    *,
    turbidity: float,
) -> Floats:
    """Average `clear_sky` over time cells [W m-2], shape (time cells, places).

    Parameters
    ----------
    start_ns, length_ns
        Starts and lengths of the cells [ns], shape (time cells,) each, or one length for all; 0 for instants.
    lon, lat, elevation_m
        Positions of the places [degree, m], shape (places,).
    turbidity
        Linke turbidity.
    """
    lengths = np.broadcast_to(length_ns, start_ns.shape)
    # Steps depend on the cell's own length only, so its value is independent of the other cells requested.
    steps = np.clip(-(-lengths // (LONGEST_STEP_S * 10**9)), 1, MAX_STEPS)
    means = np.zeros((len(start_ns), len(lon)))
    for count in np.unique(steps).tolist():
        cells = np.flatnonzero(steps == count)
        whole, rest = np.divmod(lengths[cells], 2 * count)
        total = np.zeros((len(cells), len(lon)))
        for step in range(count):
            # Split in two parts, so that years times steps fit into 64-bit integers.
            now = sun(start_ns[cells] + whole * (2 * step + 1) + rest * (2 * step + 1) // (2 * count))
            total += clear_sky(now.sine(lon, lat), elevation_m, now.irradiance_w_m2, turbidity=turbidity)
        means[cells] = total / count
    return means


# Under a low sun the plain index is a ratio of two small numbers, dominated by horizon, tilt and noise. Damping moves
# the index to 1 there, and the irradiance to that of the clear sky; under a high sun it is negligible.
DAMPING_W_M2: Final = 30.0
"""Added to both sides of a clear-sky index [W m-2]: about the clear-sky irradiance at a solar elevation of 4 degree."""


def clear_sky_index(radiation_w_m2: Floats, clear_w_m2: Floats) -> Floats:
    return np.asarray((radiation_w_m2 + DAMPING_W_M2) / (clear_w_m2 + DAMPING_W_M2))


def from_clear_sky_index(index: Floats, clear_w_m2: Floats) -> Floats:
    """Return the irradiance [W m-2] of a damped clear-sky index.

    At least 0, and 0 at night; NaN if either argument is NaN.
    """
    day = np.maximum(index * (clear_w_m2 + DAMPING_W_M2) - DAMPING_W_M2, 0.0)
    return np.where((clear_w_m2 == 0) & ~np.isnan(index), 0.0, day)
