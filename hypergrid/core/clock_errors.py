"""Clocks that are right only within a bound: the true time of a reading lies within the bound of its stamp."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from hypergrid.core.readings import Readings
from hypergrid.core.times import SECOND_NS


@dataclass(frozen=True)
class ClockError:
    """Bound of a station's clock error from an instant on."""

    token_name: ClassVar[str] = "ClockError"

    from_ns: int | None
    """First stamp that it is of [ns since 1970 UTC]; None: all."""
    bound_s: float
    """Maximum distance of the true time from the stamp [s]; 0: the clock is right."""

    @property
    def bound_ns(self) -> int:
        return round(self.bound_s * SECOND_NS)


ClockErrors = Mapping[str, Sequence[ClockError]]
"""Clock errors by station, each ordered by `from_ns`. Other clocks, and earlier stamps, are taken to be right."""


def find_bounds_ns(history: Sequence[ClockError], time_ns: NDArray[np.int64]) -> NDArray[np.int64]:
    """Return the bound of each stamp of a station [ns], shape (n,)."""
    starts = np.array([-(2**63) if each.from_ns is None else each.from_ns for each in history], np.int64)
    bounds = np.array([0, *(each.bound_ns for each in history)], np.int64)
    return np.asarray(bounds[np.searchsorted(starts, time_ns, side="right")])


def find_bounds_by_station_ns(
    errors: ClockErrors, stations: Sequence[str], code: NDArray[np.integer[Any]], time_ns: NDArray[np.int64]
) -> NDArray[np.int64]:
    """Return the bound of each stamp of `stations[code]` [ns], shape (n,)."""
    bound_ns = np.zeros(len(time_ns), np.int64)
    for number, station in enumerate(stations):
        if station in errors:
            rows = np.flatnonzero(code == number)
            bound_ns[rows] = find_bounds_ns(errors[station], time_ns[rows])
    return bound_ns


def find_reading_bounds_ns(errors: ClockErrors, readings: Readings) -> NDArray[np.int64]:
    """Return the bound of each reading's stamp [ns], shape (n,)."""
    stations = [series.station for series in readings.series]
    return find_bounds_by_station_ns(errors, stations, readings.index, readings.time_ns)


def encode_clock_errors(errors: ClockErrors) -> dict[str, Any]:
    """Return clock errors as JSON."""
    return {station: [[each.from_ns, each.bound_s] for each in history] for station, history in errors.items()}


def decode_clock_errors(content: Mapping[str, Any]) -> dict[str, tuple[ClockError, ...]]:
    """Parse the output of `encode_clock_errors`."""
    return {station: tuple(ClockError(*each) for each in history) for station, history in content.items()}
