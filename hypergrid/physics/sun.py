"""Where the sun stands, and the irradiance of a clear sky.

The sun's position is the Astronomical Almanac's approximation (J. J. Michalsky 1988, The Astronomical Almanac's
algorithm for approximate solar position, Solar Energy 40, 227-235), good to 0.01 degree from 1950 to 2050. The clear
sky is the global irradiance of P. Ineichen and R. Perez (2002, A new airmass independent formulation for the Linke
turbidity coefficient, Solar Energy 73, 151-157, equation 8) with the air mass of Kasten and Young (1989). It knows the
elevation of the place and a turbidity, neither the terrain around it nor its horizon.
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
"""Noon of 1 January 2000 (UTC)."""

LONGEST_STEP_S: Final = 900
"""Step in which the sun is followed through longer time cells [s]."""

MAX_STEPS: Final = 96
"""Steps at most in one time cell."""


@dataclass(frozen=True, eq=False)
class Sun:
    """The sun over the earth at some instants."""

    directions: Floats
    """Unit vectors from the earth to the sun, turning with the earth (x to 0 E, z to the north), shape (times, 3)."""
    irradiance_w_m2: Floats
    """Outside the atmosphere, on a plane that faces the sun [W m-2], shape (times,)."""

    def sine(self, lon: Floats, lat: Floats) -> Floats:
        """Return the sine of the sun's true elevation at places [degree], shape (times, places)."""
        east, north = np.radians(lon), np.radians(lat)
        up = np.stack([np.cos(north) * np.cos(east), np.cos(north) * np.sin(east), np.sin(north)])
        return np.asarray(np.clip(self.directions @ up, -1.0, 1.0))


def sun(times_ns: NDArray[np.int64]) -> Sun:
    """Return the sun at instants (UTC) [ns since 1970], shape (times,).

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
    # Equatorial coordinates, turned by the sidereal time into those of the earth.
    x, y = np.cos(ecliptic), np.cos(tilt) * np.sin(ecliptic)
    turned = x * np.cos(sidereal) + y * np.sin(sidereal), y * np.cos(sidereal) - x * np.sin(sidereal)
    directions = np.stack([*turned, np.sin(tilt) * np.sin(ecliptic)], axis=1)
    distance = 1.00014 - 0.01671 * np.cos(anomaly) - 0.00014 * np.cos(2 * anomaly)
    return Sun(directions, SOLAR_CONSTANT_W_M2 / distance**2)


def clear_sky(sine: Floats, elevation_m: Floats, irradiance_w_m2: Floats, *, turbidity: float = TURBIDITY) -> Floats:
    """Return the global irradiance of a clear sky on a level plane [W m-2]; 0 where the sun is below the horizon.

    Parameters
    ----------
    sine
        Of the sun's elevation, shape (times, places).
    elevation_m
        Of the places [m], shape (places,).
    irradiance_w_m2
        Outside the atmosphere [W m-2], shape (times,).
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
    """Return means of `clear_sky` over time cells [W m-2], shape (time cells, places).

    Parameters
    ----------
    start_ns, length_ns
        Starts and length of the cells [ns], shape (time cells,) each, or one length of all; 0 for instants.
    lon, lat, elevation_m
        Of the places [degree, m], shape (places,).
    turbidity
        Linke turbidity.
    """
    lengths = np.broadcast_to(length_ns, start_ns.shape)
    # By each cell's own length, so that a cell is the same whichever are asked for with it.
    steps = np.clip(-(-lengths // (LONGEST_STEP_S * 10**9)), 1, MAX_STEPS)
    means = np.zeros((len(start_ns), len(lon)))
    for count in np.unique(steps).tolist():
        cells = np.flatnonzero(steps == count)
        whole, rest = np.divmod(lengths[cells], 2 * count)
        total = np.zeros((len(cells), len(lon)))
        for step in range(count):
            # In two parts, so that years times steps stay whole numbers of 64 bits.
            now = sun(start_ns[cells] + whole * (2 * step + 1) + rest * (2 * step + 1) // (2 * count))
            total += clear_sky(now.sine(lon, lat), elevation_m, now.irradiance_w_m2, turbidity=turbidity)
        means[cells] = total / count
    return means


DAMPING_W_M2: Final = 30.0
"""What is added to both sides of a clear-sky index, about a clear sky's irradiance under a sun of 4 degrees [W m-2].

Under a high sun it changes nothing to speak of. Under a low one the plain ratio of two small numbers is mostly horizon,
tilt and noise; so the index goes to 1 there, and the irradiance to that of the clear sky."""


def clear_sky_index(radiation_w_m2: Floats, clear_w_m2: Floats) -> Floats:
    """Return the damped clear-sky index of a global irradiance."""
    return np.asarray((radiation_w_m2 + DAMPING_W_M2) / (clear_w_m2 + DAMPING_W_M2))


def from_clear_sky_index(index: Floats, clear_w_m2: Floats) -> Floats:
    """Return the irradiance [W m-2] of a damped clear-sky index: 0 at night, never below; NaN where either is."""
    day = np.maximum(index * (clear_w_m2 + DAMPING_W_M2) - DAMPING_W_M2, 0.0)
    return np.where((clear_w_m2 == 0) & ~np.isnan(index), 0.0, day)
