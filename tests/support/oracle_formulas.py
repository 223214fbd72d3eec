"""Converts and merges as an oracle takes them: one number from one of each source, NaN where one is missing."""

import math
from collections.abc import Callable, Mapping
from typing import Any

from tests.support.own_functions import OWN_CONVERTS, OWN_MERGES

NAN = math.nan
ROUNDING = 1e-9
COUNTED_BY_FIRST = ("anomaly", "standardised_anomaly")
"""Merges whose count is that of the first source alone."""


DIVIDING = ("ratio", "standardised_anomaly")
"""Merges that divide by their last source."""


class Undecided(Exception):
    """A value lies where rounding decides what is made of it, so that there is no one answer."""


def is_rounding(value: float) -> bool:
    """Return whether a value may be what rounding leaves of nothing."""
    return abs(value) < ROUNDING


def converted(name: str, value: float, given: Mapping[str, Any]) -> float:
    """Return a value after a convert."""
    if math.isnan(value):
        return NAN
    if name in OWN_CONVERTS:
        return OWN_CONVERTS[name](value, **given)
    threshold = given.get("threshold", 0.1)
    ways: dict[str, Callable[[], float]] = {
        "valid_range": lambda: value if given["low"] <= value <= given["high"] else NAN,
        "scale": lambda: value * float(given["factor"]) + float(given.get("offset", 0.0)),
        "limit": lambda: min(max(value, given["low"]), given.get("high", math.inf)),
        "wet": lambda: float(value >= threshold),
    }
    return float(ways[name]())


def merged(name: str, *values: float) -> float:
    """Return what a merge makes of one value of each source, in their order."""
    if name in ("eastward_wind", "northward_wind") and values[0] == 0:
        return 0.0
    if any(math.isnan(value) for value in values):
        return NAN
    return OWN_MERGES[name](*values) if name in OWN_MERGES else FORMULAS[name](*values)


def _magnus(degc: float) -> float:
    return 17.625 * degc / (243.04 + degc)


def _saturation(degc: float) -> float:
    return 0.61094 * math.exp(_magnus(degc))


def _vapour(degc: float, percent: float) -> float:
    return _saturation(degc) * min(percent, 100.0) / 100 if percent >= 0 else NAN


def _dew_point(percent: float, degc: float) -> float:
    if percent <= 0:
        return NAN
    exponent = math.log(percent / 100) + _magnus(degc)
    return 243.04 * exponent / (17.625 - exponent)


def _specific(degc: float, percent: float, kpa: float) -> float:
    vapour = _vapour(degc, percent)
    return 1000 * 0.622 * vapour / (kpa - 0.378 * vapour) if kpa > vapour else NAN


def _bearing(east: float, north: float) -> float:
    return math.degrees(math.atan2(-east, -north)) % 360 if math.hypot(east, north) > 1e-6 else NAN


FORMULAS: Mapping[str, Callable[..., float]] = {
    "difference": lambda first, second: first - second,
    "anomaly": lambda first, second: first - second,
    "standardised_anomaly": lambda value, mean, spread: (value - mean) / spread if spread > 0 else NAN,
    "ratio": lambda first, second: first / second if second else NAN,
    "dew_point": _dew_point,
    "relative_humidity": lambda dew, degc: min(100 * math.exp(_magnus(dew) - _magnus(degc)), 100.0),
    "vapour_pressure_deficit": lambda degc, percent: _saturation(degc) - _vapour(degc, percent),
    "absolute_humidity": lambda degc, percent: 1e6 * _vapour(degc, percent) / (461.5 * (degc + 273.15)),
    "specific_humidity": _specific,
    "potential_temperature": lambda degc, kpa: (degc + 273.15) * (100 / kpa) ** 0.2857 if kpa > 0 else NAN,
    "eastward_wind": lambda speed, degree: -speed * math.sin(math.radians(degree)),
    "northward_wind": lambda speed, degree: -speed * math.cos(math.radians(degree)),
    "wind_speed": math.hypot,
    "wind_direction": _bearing,
}
