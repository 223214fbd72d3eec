"""Zone guard: detects clocks that are hours off by comparing radiation with the sun's course.

Terrain and clouds reduce radiation; nothing adds it at night. A clock is therefore suspected only if there is much more
radiation than a clear sky could give at the stamped time, which shade cannot explain, and some other offset explains
it. The offset follows from the whole course: among those that leave next to no radiation unexplained, the one that
correlates best with a clear sky. Terrain that shades one end of the day shifts it by half an hour or an hour, so that
whole hours are preferred.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import numpy as np
from numpy.typing import NDArray

from hypergrid.core.clock_errors import ClockError, ClockErrors
from hypergrid.core.readings import Position, Readings, Station
from hypergrid.physics.sun import clear_sky, sun
from ingest.quality.temporal import HOUR_NS, Floats

RADIATION: Final = "solar_radiation"
STEP_NS: Final = 600 * 10**9
"""Radiation is thinned to one reading per this interval [ns]."""
LEAST_DAYS: Final = 2
"""Minimum number of days with radiation."""
BRIGHTEST_W_M2: Final = 1600.0
CLOUD_EDGE: Final = 1.3
"""Maximum factor by which cloud edges exceed a clear sky, over ten minutes."""
# By a tilted sensor, haze and a clock that is minutes off.
LOW_SUN_W_M2: Final = 60.0
"""Maximum excess of radiation under a low sun [W m-2]."""
MOST_UNEXPLAINED: Final = 0.02
"""Unexplained share of the radiation above which a clock is suspected."""
# Few zones have them, and shade looks similar.
HALF_HOURS: Final = 0.99
"""Weight of offsets by half hours."""
LEAST_KNOWN_H: Final = 1.0
"""How far the true offset may be from the one that was found, for shade and half hours [h]."""
OFFSETS_H: Final = np.arange(-14.0, 14.01, 0.5)


@dataclass(frozen=True)
class ZoneSuspicion:
    """A station whose clock is hours off according to its radiation."""

    station: str
    shift_h: float
    """Stamps less UTC [h]: 2 if a clock in zone +02:00 was read as UTC."""
    unexplained: float
    """Share of its radiation that was stamped when the sky is too dark for it."""
    noon_h: float
    """Hours from the sun's noon to the middle of the radiation."""

    def describe(self) -> str:
        late = "after" if self.noon_h >= 0.0 else "before"
        sign = "+" if self.shift_h >= 0.0 else "-"
        hours, minutes = divmod(round(abs(self.shift_h) * 60), 60)
        return (
            f"radiation of station {self.station} peaks {abs(self.noon_h):.1f} h {late} solar noon, and "
            f"{self.unexplained:.0%} of it comes under too dark a sky: its clock is likely "
            f"{sign}{hours:02d}:{minutes:02d} from the declared zone; mend the timezone of its feed, or give "
            f'"{self.station}" = {-self.shift_h:g} under [quality.clock_shift_h]; until then, '
            f'"{self.station}" = {self.bound_s:g} under [quality.clock_error_s] marks what depends on it'
        )

    @property
    def bound_s(self) -> float:
        """Bound of the clock's error [s]."""
        return (abs(self.shift_h) + LEAST_KNOWN_H) * 3600.0


def bound_clocks(suspicions: Iterable[ZoneSuspicion], declared: ClockErrors) -> dict[str, tuple[ClockError, ...]]:
    """Return the clock errors of suspected stations, without those that are declared."""
    return {
        suspicion.station: (ClockError(None, suspicion.bound_s),)
        for suspicion in suspicions
        if suspicion.station not in declared
    }


class ZoneGuard:
    """Collects thinned radiation and reports clocks that are hours off."""

    def __init__(self) -> None:
        self._parts: dict[str, list[tuple[NDArray[np.int64], Floats]]] = {}

    def add(self, readings: Readings) -> None:
        """Add readings of radiation [W m-2], ordered by series, then time."""
        usable = np.isfinite(readings.value) & (readings.value >= -50.0) & (readings.value <= BRIGHTEST_W_M2)
        kept = readings.take_rows(usable)
        cell = kept.time_ns // STEP_NS
        first = np.r_[True, (np.diff(cell) != 0) | (np.diff(kept.index) != 0)] if len(kept) else np.empty(0, np.bool_)
        kept = kept.take_rows(first)
        for number, series in enumerate(kept.series):
            start, stop = np.searchsorted(kept.index, [number, number + 1]).tolist()
            if stop > start:
                part = kept.starts_ns()[start:stop], kept.value[start:stop]
                self._parts.setdefault(series.station, []).append(part)

    def suspicions(self, stations: Mapping[str, Station]) -> list[ZoneSuspicion]:
        """Return stations whose clocks are off, among those with a position."""
        zone_suspicions = []
        for name, parts in self._parts.items():
            position = stations[name].position if name in stations else None
            if position is not None and np.isfinite(position.lon) and np.isfinite(position.lat):
                stamps, value = (np.concatenate(columns) for columns in zip(*parts, strict=True))
                suspicion = find_suspicion(name, stamps, value, position)
                zone_suspicions += [suspicion] if suspicion is not None else []
        return zone_suspicions


def find_suspicion(
    station: str, stamps_ns: NDArray[np.int64], value: Floats, position: Position
) -> ZoneSuspicion | None:
    """Compare a station's radiation [W m-2] with the sun; None without suspicion or enough data.

    Parameters
    ----------
    stamps_ns, value
        Shape (n,).
    position
        Of the station.
    """
    bright = np.maximum(value, 0.0)
    total = float(bright.sum())
    days = np.unique(stamps_ns[bright > 100.0] // (24 * HOUR_NS))
    if len(days) < LEAST_DAYS:
        return None
    unexplained, agreement = np.empty(len(OFFSETS_H)), np.empty(len(OFFSETS_H))
    zero = int(np.flatnonzero(OFFSETS_H == 0.0)[0])
    # The declared zone comes first, because the search ends if it explains the radiation.
    for number in (zero, *(index for index in range(len(OFFSETS_H)) if index != zero)):
        clear = _clear(stamps_ns - round(OFFSETS_H[number] * HOUR_NS), position)
        beyond = np.maximum(bright - CLOUD_EDGE * clear - LOW_SUN_W_M2, 0.0)
        unexplained[number] = beyond.sum() / total
        if number == zero and unexplained[zero] <= MOST_UNEXPLAINED:
            return None
        spread = float(np.linalg.norm(clear) * np.linalg.norm(bright))
        agreement[number] = float(clear @ bright) / spread if spread else 0.0
        agreement[number] *= 1.0 if OFFSETS_H[number].is_integer() else HALF_HOURS
    explaining = unexplained <= max(MOST_UNEXPLAINED / 2.0, 1.5 * float(unexplained.min()))
    if unexplained.min() > unexplained[zero] / 4.0:
        # No offset explains it: the sensor has another fault.
        return None
    best = int(np.argmax(np.where(explaining, agreement, -1.0)))
    return ZoneSuspicion(
        station, float(OFFSETS_H[best]), float(unexplained[zero]), _noon(stamps_ns, bright, position.lon)
    )


def _clear(stamps_ns: NDArray[np.int64], position: Position) -> Floats:
    now = sun(stamps_ns)
    sine, elevation_m = now.sine(np.array([position.lon]), np.array([position.lat])), np.array([position.elevation_m])
    return clear_sky(sine, np.nan_to_num(elevation_m), now.irradiance_w_m2, turbidity=2.0)[:, 0]


def _noon(stamps_ns: NDArray[np.int64], bright: Floats, lon: float) -> float:
    """Return the lag of the radiation's centre behind mean solar noon [h], -12 to 12."""
    angle = 2.0 * np.pi * ((stamps_ns % (24 * HOUR_NS)) / (24.0 * HOUR_NS) + lon / 360.0 - 0.5)
    middle = np.arctan2(float(np.sin(angle) @ bright), float(np.cos(angle) @ bright))
    return float(middle / (2.0 * np.pi) * 24.0)
