"""A small archive of stations with names, for what a person looks at."""

from collections.abc import Mapping
from pathlib import Path
from typing import Final

import numpy as np

from hypergrid.core.readings import Position, Readings, Series, Station
from hypergrid.core.times import SECOND_NS
from hypergrid.query import OpenArchive
from tests.support.networks import START_NS, write_archive

TOWNS: Final = {
    "s1": ("Col de la Vue", 7.00, 46.00, 2400.0),
    "s2": ("Lac & Pré", 7.10, 46.05, 1850.0),
    "s3": ("<b>Plan</b>", 7.05, 46.20, 1200.0),
    "s4": ("Tête", 7.20, 46.15, 2950.0),
}
"""Name, longitude and latitude [degree], and elevation [m] of each station, by id."""
_MINUTES: Final = 24 * 60


def named_archive(
    folder: Path, *, heights_m: tuple[float, ...] = (2.0,), renamed: Mapping[str, str] | None = None
) -> OpenArchive:
    """Write a day of two variables every ten minutes, with a reading of each flag at each station."""
    stations = [
        Station(key, (renamed or {}).get(key, name), (Position(None, *place),)) for key, (name, *place) in TOWNS.items()
    ]
    parts = [_readings(name, heights_m) for name in ("air_temperature", "wind_speed")]
    return write_archive(folder, stations=stations, readings=parts, slice_s=600.0)


def _readings(variable: str, heights_m: tuple[float, ...]) -> Readings:
    series = tuple(Series(variable, key, height, interval_s=600.0) for key in TOWNS for height in heights_m)
    minutes = np.arange(0, _MINUTES, 10)
    index = np.repeat(np.arange(len(series)), len(minutes))
    # Clocks that are some seconds apart.
    stamps = START_NS + (np.tile(minutes, len(series)) * 60 + 7 * index) * SECOND_NS
    day = np.tile(minutes, len(series)) / _MINUTES
    values = np.round(5.0 - 0.5 * index + 4.0 * np.sin(2 * np.pi * (day - 0.3)), 3)
    flags = np.tile(np.where(minutes == 120, 3, np.where(minutes == 240, 4, 1)), len(series))
    return Readings(series, index.astype(np.int32), stamps, values, flags.astype(np.uint8), stamps)
