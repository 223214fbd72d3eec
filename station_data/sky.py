"""The sky over the pass: sun, clouds, the three rain events and the front.

All are functions of time alone, except the front and the rain, which cross the pass at a finite speed. Times are days
since ``ANCHOR`` as floats. Events and front belong to a campaign of 28 days and repeat in each.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

Floats = NDArray[np.float64]

ANCHOR = np.datetime64("2007-09-20T00:00:00", "ns")
"""Start of the first campaign (UTC), from which clocks and faults are counted too."""
CAMPAIGN_DAYS = 28
FRONT_DAY = 8.5
"""Day of a campaign on which the front reaches the centre of the pass: 2007-09-28T12:00Z."""
FRONT_SPEED_M_S = 3.0
"""Speed at which front and rain cross the pass from west to east [m s-1]."""
PASS_LON, PASS_LAT = 7.18, 45.87


@dataclass(frozen=True)
class RainEvent:
    """Rain over the whole pass, with its clouds."""

    name: str
    start_day: float
    """Day of the campaign on which rain starts at the centre."""
    hours: float
    total_mm: float
    """Rain at the reference elevation [mm]."""

    @property
    def end_day(self) -> float:
        """Day of the campaign on which rain ends at the centre."""
        return self.start_day + self.hours / 24.0


RAIN = (
    RainEvent("E1", 3.0 + 9.0 / 24.0, 5.0, 8.0),
    RainEvent("E2", 8.0 + 10.0 / 24.0, 6.0, 16.0),
    RainEvent("E3", 20.0 + 10.0 / 24.0, 4.0, 6.0),
)
"""E1 2007-09-23 09:00 to 14:00, E2 2007-09-28 10:00 to 16:00 (the front's), E3 2007-10-10 10:00 to 14:00, all UTC."""


def days_since_anchor(time: ArrayLike) -> Floats:
    """Convert instants, as datetime64 or int64 nanoseconds since 1970 (UTC), to days since ``ANCHOR``.

    Raises
    ------
    TypeError
        If `time` is neither: a float has lost the nanoseconds and has no unit.
    """
    array = np.asarray(time)
    if array.dtype.kind == "M":
        nanoseconds = array.astype("datetime64[ns]").astype(np.int64)
    elif array.dtype.kind in "iu":
        nanoseconds = array.astype(np.int64)
    else:
        raise TypeError(
            f"truth needs time as datetime64 or int nanoseconds (UTC); got dtype {array.dtype}; convert it first"
        )
    return np.asarray((nanoseconds - ANCHOR.astype(np.int64)) / 86_400e9, dtype=np.float64)


def rising(argument: ArrayLike) -> Floats:
    """Compute a logistic step from 0 to 1."""
    return np.asarray(0.5 * (1.0 + np.tanh(0.5 * np.asarray(argument, dtype=np.float64))))


def solar_elevation(days: Floats) -> Floats:
    """Compute the sun's elevation over the pass [degree], ignoring the equation of time."""
    declination = np.radians(23.44) * np.sin(2.0 * np.pi * (days + 262.0 - 80.0) / 365.2422)
    hour_angle = 2.0 * np.pi * (days - np.floor(days) + PASS_LON / 360.0 - 0.5)
    latitude = np.radians(PASS_LAT)
    sine = np.sin(latitude) * np.sin(declination) + np.cos(latitude) * np.cos(declination) * np.cos(hour_angle)
    return np.asarray(np.degrees(np.arcsin(sine)))


def night(days: Floats) -> Floats:
    """Compute the degree of night: 0 with a high sun, 0.5 at the horizon, 1 well after sunset."""
    return rising(-solar_elevation(days) / 4.0)


def under_rain(days: Floats) -> Floats:
    """Compute the rain events' cloud cover, 0 to 1, from an hour before the rain to an hour after it."""
    day = np.mod(days, CAMPAIGN_DAYS)
    clear = np.ones_like(day)
    for event in RAIN:
        margin = 1.0 / 24.0
        covered = rising((day - event.start_day + margin) * 48.0) * rising((event.end_day + margin - day) * 48.0)
        clear = clear * (1.0 - covered)
    return 1.0 - clear


def cloud(days: Floats) -> Floats:
    """Compute cloud cover, 0 to 1: fair-weather clouds, nearly overcast during rain events."""
    fair = 0.2 + 0.12 * np.sin(1.9 * days) + 0.08 * np.sin(0.7 * days + 1.0)
    return 1.0 - (1.0 - fair) * (1.0 - 0.97 * under_rain(days))


def crossing_day(days: Floats, east_m: Floats) -> Floats:
    """Compute the campaign day as felt at a place: the east lags the west."""
    return np.mod(days - east_m / FRONT_SPEED_M_S / 86_400.0, CAMPAIGN_DAYS)


def behind_front(day: Floats, recovery_days: float) -> Floats:
    """Compute the front's strength, 0 to 1: rises within an hour, decays with `recovery_days`."""
    since = day - FRONT_DAY
    fresh = rising(since * 24.0 / 0.5) * np.exp(-np.maximum(since, 0.0) / recovery_days)
    # The front of the previous campaign is added, so that the field has no jump between campaigns.
    return np.asarray(fresh + np.exp(-(since + CAMPAIGN_DAYS) / recovery_days))


def fallen(day: Floats, event: RainEvent) -> Floats:
    """Compute the fallen share of an event's rain, 3 u**2 - 2 u**3 (u: elapsed share)."""
    elapsed = np.clip((day - event.start_day) * 24.0 / event.hours, 0.0, 1.0)
    return np.asarray(elapsed * elapsed * (3.0 - 2.0 * elapsed))
