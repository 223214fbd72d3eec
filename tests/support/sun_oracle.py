"""The clear sky as an oracle sees it: one instant at one place at a time, by declination and hour angle."""

import math
from functools import lru_cache

DAY_NS = 86_400 * 10**9
J2000_NS = 946_728_000 * 10**9
STEP_NS = 900 * 10**9


@lru_cache(maxsize=2**17)
def clear_sky(start_ns: int, length_ns: int, place: tuple[float, float], height_m: float, turbidity: float) -> float:
    """Return the mean irradiance of a clear sky over a time cell [W m-2], by its quarters of an hour, at most 96.

    Parameters
    ----------
    start_ns, length_ns
        Of the cell [ns since 1970 UTC, ns]; of an instant the length is 0.
    place
        Longitude and latitude [degree]; NaN where not known.
    height_m
        Elevation of the place [m].
    turbidity
        Linke turbidity.
    """
    if not all(map(math.isfinite, place)):
        return math.nan
    parts = min(max(math.ceil(length_ns / STEP_NS), 1), 96)
    middles = (start_ns + length_ns * (2 * part + 1) // (2 * parts) for part in range(parts))
    return math.fsum(_irradiance(at, *place, height_m, turbidity) for at in middles) / parts


@lru_cache(maxsize=2**17)
def _sun(at_ns: int) -> tuple[float, float, float]:
    """Return declination, hour angle at longitude 0 [radian], and distance [astronomical unit]."""
    days = (at_ns - J2000_NS) / DAY_NS
    anomaly = math.radians(357.528 + 0.9856003 * days)
    along = 280.460 + 0.9856474 * days + 1.915 * math.sin(anomaly) + 0.020 * math.sin(2 * anomaly)
    ecliptic, tilt = math.radians(along), math.radians(23.439 - 4e-7 * days)
    ascension = math.atan2(math.cos(tilt) * math.sin(ecliptic), math.cos(ecliptic))
    sidereal = 15 * (6.697375 + 0.0657098242 * days + at_ns % DAY_NS / 3600e9)
    distance = 1.00014 - 0.01671 * math.cos(anomaly) - 0.00014 * math.cos(2 * anomaly)
    return math.asin(math.sin(tilt) * math.sin(ecliptic)), math.radians(sidereal) - ascension, distance


def _irradiance(at_ns: int, lon: float, lat: float, height_m: float, turbidity: float) -> float:
    declination, angle, distance = _sun(at_ns)
    north, hour = math.radians(lat), math.cos(angle + math.radians(lon))
    up = math.sin(north) * math.sin(declination) + math.cos(north) * math.cos(declination) * hour
    if up <= 0:
        return 0.0
    # Kasten and Young (1989), and Ineichen and Perez (2002), equation 8.
    mass = 1 / (up + 0.50572 * (math.degrees(math.asin(up)) + 6.07995) ** -1.6364)
    mass *= (1 - 2.25577e-5 * height_m) ** 5.25588
    haze = math.exp(-height_m / 8000) + math.exp(-height_m / 1250) * (turbidity - 1)
    through = math.exp(-(3.92e-5 * height_m + 0.0387) * mass * haze)
    return (5.09e-5 * height_m + 0.868) * 1361.0 / distance**2 * up * through
