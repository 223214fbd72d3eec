"""The truth fields: nine variables in closed form; README.md has the formulas."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np
from numpy.typing import ArrayLike, NDArray

from station_data import sky
from station_data.terrain import REFERENCE_M, across_road, elevation, local_metres

Floats = NDArray[np.float64]

VARIABLES: Mapping[str, str] = MappingProxyType(
    {
        "air_temperature": "degC",
        "surface_temperature": "degC",
        "solar_radiation": "W m-2",
        "relative_humidity": "%",
        "soil_moisture": "%",
        "watermark": "kPa",
        "rain_meter": "mm",
        "wind_speed": "m s-1",
        "wind_direction": "degree",
    }
)
"""Variable to unit, in the order of the columns of the station files."""

LAPSE_K_PER_M = 0.0065
POOL_K, POOL_TOP_M, POOL_DEPTH_M = 4.5, 2430.0, 16.0
"""Cold-air pool: cooling at full strength [K], elevation of half strength [m], vertical decay [m]."""


def pool(height_m: Floats) -> Floats:
    """Compute the depth in the cold-air pool, 0 (above) to 1 (floor), from elevation [m]."""
    return sky.rising((POOL_TOP_M - height_m) / POOL_DEPTH_M)


def _season(days: Floats) -> Floats:
    return -0.5 + 7.5 * np.cos(2.0 * np.pi * (days + 262.0 - 210.0) / 365.2422)


def _air_temperature(days: Floats, lon: Floats, lat: Floats) -> Floats:
    height = elevation(lon, lat)
    day = sky.crossing_day(days, local_metres(lon, lat)[0])
    clear = 1.0 - sky.cloud(days)
    solar_day = days + sky.PASS_LON / 360.0
    wave = np.cos(2.0 * np.pi * (solar_day - 14.5 / 24.0)) + 0.2 * np.cos(4.0 * np.pi * (solar_day - 14.0 / 24.0))
    spell = 1.3 * np.sin(2.0 * np.pi * days / 9.0)
    free_air = _season(days) + spell + 2.8 * (0.35 + 0.65 * clear) * wave
    colder = 6.0 * sky.behind_front(day, 3.0) + POOL_K * sky.night(days) * clear * pool(height)
    return np.asarray(free_air - LAPSE_K_PER_M * (height - REFERENCE_M) - colder)


def _solar_radiation(days: Floats, lon: Floats, lat: Floats) -> Floats:
    height = elevation(lon, lat)
    sun = sky.solar_elevation(days)
    sine = np.maximum(np.sin(np.radians(sun)), 0.0)
    above = 1120.0 * sine**1.15 * (1.0 - 0.85 * sky.cloud(days) ** 2)
    horizon = 5.0 + 4.0 * pool(height)
    beam = sky.rising((sun - horizon) / 0.8)
    return np.asarray(above * (0.15 + 0.85 * beam) * (1.0 + 8e-5 * (height - REFERENCE_M)))


def _surface_temperature(days: Floats, lon: Floats, lat: Floats) -> Floats:
    warmed = 0.013 * _solar_radiation(days, lon, lat)
    cooled = 2.4 * sky.night(days) * (1.0 - sky.cloud(days))
    return np.asarray(_air_temperature(days, lon, lat) + warmed - cooled)


def _relative_humidity(days: Floats, lon: Floats, lat: Floats) -> Floats:
    air = _air_temperature(days, lon, lat)
    day = sky.crossing_day(days, local_metres(lon, lat)[0])
    dew = _season(days) - 4.5 + 4.0 * sky.under_rain(days) - 4.5 * sky.behind_front(day, 3.0)
    dew = dew - 0.0018 * (elevation(lon, lat) - REFERENCE_M)
    # Smooth saturation: the exact vapour pressure ratio (Magnus) would need a kink at 100 %.
    ratio = np.exp(17.62 * dew / (243.12 + dew) - 17.62 * air / (243.12 + air))
    return np.asarray(100.0 * ratio / (1.0 + ratio**6) ** (1.0 / 6.0))


def _rain_here_mm(height_m: Floats) -> Floats:
    return np.asarray(1.0 + 0.0015 * (height_m - REFERENCE_M))


def _soil_moisture(days: Floats, lon: Floats, lat: Floats) -> Floats:
    height = elevation(lon, lat)
    day = sky.crossing_day(days, local_metres(lon, lat)[0])
    wet = np.zeros_like(day)
    for event in sky.RAIN:
        since_end = day - event.end_day
        wet = wet + event.total_mm * sky.fallen(day, event) * np.exp(-np.maximum(since_end, 0.0) / 6.0)
        wet = wet + event.total_mm * np.exp(-(since_end + sky.CAMPAIGN_DAYS) / 6.0)
    return np.asarray(20.0 + 6.0 * pool(height) - 0.03 * (height - REFERENCE_M) + 0.5 * wet * _rain_here_mm(height))


def _watermark(days: Floats, lon: Floats, lat: Floats) -> Floats:
    moisture = _soil_moisture(days, lon, lat)
    daily = 1.0 + 0.02 * np.cos(2.0 * np.pi * (days - 16.0 / 24.0))
    return np.asarray(-(8.0 + 60.0 * np.exp(-(moisture - 12.0) / 8.0)) * daily)


def _rain_meter(days: Floats, lon: Floats, lat: Floats) -> Floats:
    east = local_metres(lon, lat)[0]
    now = sky.crossing_day(days, east)
    # Counted back from `now` without wrapping again: on the campaign's first day, midnight lies before its start.
    reset = now - (days - np.floor(days))
    depth = np.zeros_like(now)
    for event in sky.RAIN:
        depth = depth + event.total_mm * (sky.fallen(now, event) - sky.fallen(reset, event))
    return np.asarray(depth * _rain_here_mm(elevation(lon, lat)))


def _wind_speed(days: Floats, lon: Floats, lat: Floats) -> Floats:
    day = sky.crossing_day(days, local_metres(lon, lat)[0])
    gust = 6.0 * np.exp(-(((day - sky.FRONT_DAY) * 24.0 / 4.0) ** 2))
    breeze = 2.4 + 1.6 * (1.0 - sky.night(days)) + 0.8 * np.sin(2.0 * np.pi * days / 6.5)
    return np.asarray((breeze + gust) * (1.0 + 0.0025 * (elevation(lon, lat) - REFERENCE_M)))


def _wind_direction(days: Floats, lon: Floats, lat: Floats) -> Floats:
    day = sky.crossing_day(days, local_metres(lon, lat)[0])
    veer = 100.0 * sky.behind_front(day, 3.0)
    breeze = 12.0 * np.sin(2.0 * np.pi * (days - 0.4))
    return np.asarray(np.mod(215.0 + breeze + 0.04 * across_road(lon, lat) + veer, 360.0))


_FIELDS: Mapping[str, Callable[[Floats, Floats, Floats], Floats]] = {
    "air_temperature": _air_temperature,
    "surface_temperature": _surface_temperature,
    "solar_radiation": _solar_radiation,
    "relative_humidity": _relative_humidity,
    "soil_moisture": _soil_moisture,
    "watermark": _watermark,
    "rain_meter": _rain_meter,
    "wind_speed": _wind_speed,
    "wind_direction": _wind_direction,
}


def truth(variable: str, time: ArrayLike, lon: ArrayLike, lat: ArrayLike) -> Floats:
    """Compute the value of a variable without noise or faults.

    Parameters
    ----------
    variable
        One of ``VARIABLES``; the value is in its unit.
    time
        Instants (UTC), datetime64 or int64 nanoseconds since 1970.
    lon, lat
        Position [degree].

    Returns
    -------
    ndarray
        Values, of the shape that the three arguments broadcast to.

    Raises
    ------
    KeyError
        If the variable is unknown; the message lists those that exist.
    TypeError
        If `time` is neither datetime64 nor integer.

    Examples
    --------
    >>> import numpy as np
    >>> float(truth("rain_meter", np.datetime64("2007-10-01T12:00", "ns"), 7.18, 45.87))
    0.0
    """
    if variable not in _FIELDS:
        raise KeyError(f"truth needs a variable of the network; got {variable!r}; there are {', '.join(_FIELDS)}")
    days, east, north = sky.days_since_anchor(time), np.asarray(lon, np.float64), np.asarray(lat, np.float64)
    shape = np.broadcast_shapes(days.shape, east.shape, north.shape)
    # A field may not depend on all arguments, and broadcast_to returns a read-only view.
    return np.ascontiguousarray(np.broadcast_to(_FIELDS[variable](days, east, north), shape))


def truth_mean(
    variable: str,
    start: np.datetime64,
    stop: np.datetime64,
    lon: ArrayLike,
    lat: ArrayLike,
    *,
    step_s: float = 120.0,
) -> Floats:
    """Compute the mean of the truth over ``[start, stop)``, sampled at step midpoints.

    Parameters
    ----------
    variable
        One of ``VARIABLES``.
    start, stop
        Half-open interval (UTC).
    lon, lat
        Positions [degree] that broadcast with each other.
    step_s
        Sampling step [s]; the last one may be short.

    Returns
    -------
    ndarray
        Mean in the variable's unit, of the broadcast shape of `lon` and `lat`.

    Raises
    ------
    ValueError
        If the interval is empty or the step is not positive.
    """
    first, last = (int(edge.astype("datetime64[ns]").astype(np.int64)) for edge in (start, stop))
    step = round(step_s * 1e9)
    if last <= first or step <= 0:
        raise ValueError(
            f"truth_mean needs start before stop and a positive step; got {start}, {stop}, step_s={step_s}"
        )
    edges = np.append(np.arange(first, last, step, dtype=np.int64), last)
    middles, weights = edges[:-1] + np.diff(edges) // 2, np.diff(edges).astype(np.float64)
    east, north = np.broadcast_arrays(np.asarray(lon, np.float64), np.asarray(lat, np.float64))
    total = np.zeros(east.size)
    # Blocks of time bound the memory: a fine grid over weeks would not fit as a whole.
    rows = max(1, 2_000_000 // max(1, east.size))
    for begin in range(0, middles.size, rows):
        part = slice(begin, begin + rows)
        values = truth(variable, middles[part, None], east.ravel(), north.ravel())
        total += weights[part] @ values
    return (total / weights.sum()).reshape(east.shape)
