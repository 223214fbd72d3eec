"""Cells and places that all solutions of the tasks answer for, and distances in metres."""

from pathlib import Path
from typing import Any, Final

import numpy as np
import pandas as pd
from numpy.typing import NDArray

Floats = NDArray[np.float64]

ARCSEC: Final = 1.0 / 3600.0
WEST, SOUTH = 7.0 + 10.0 / 60.0 + 37.0 / 3600.0, 45.0 + 52.0 / 60.0 + 1.0 / 3600.0
SIDE: Final = 23
LON: Final = WEST + (np.arange(SIDE) + 0.5) * ARCSEC
"""Centres of the columns of the map [degree]."""
LAT: Final = SOUTH + (np.arange(SIDE) + 0.5) * ARCSEC
"""Centres of its rows [degree]."""
PLACE: Final = (7.1795, 45.8690)
"""A place without a station (longitude, latitude) [degree]."""
METRES: Final = (111_320.0 * float(np.cos(np.radians(45.87))), 111_320.0)
"""Metres of a degree of longitude and of latitude."""


def to_metres(lon: Any, lat: Any) -> tuple[Floats, Floats]:  # noqa: ANN401 - numbers, arrays or series
    """Return metres east and north of the south-west corner of the map."""
    return (np.asarray(lon) - WEST) * METRES[0], (np.asarray(lat) - SOUTH) * METRES[1]


def read_stations(data: Path) -> pd.DataFrame:
    """Return the stations by id, with x and y [m]."""
    stations = pd.read_csv(data / "stations.csv", dtype={"station": str}).set_index("station")
    stations["x"], stations["y"] = to_metres(stations["lon"], stations["lat"])
    return stations


def read_table(data: Path, *variables: str, start: str, stop: str) -> dict[str, pd.DataFrame]:
    """Return prepared readings of a period, for each variable a table of times by stations."""
    window = [("time", ">=", pd.Timestamp(start)), ("time", "<", pd.Timestamp(stop))]
    table = pd.read_parquet(data / "readings.parquet", columns=["station", "time", *variables], filters=window)
    return {name: table.pivot_table(index="time", columns="station", values=name) for name in variables}
