"""File names of exported readings and surfaces: variable, period and kind."""

import re
from collections.abc import Sequence
from typing import Final

import numpy as np
import xarray as xr

from hypergrid.core.times import SECOND_NS, Window, format_timestamp
from hypergrid.formats.readings import ReadingsPiece, SelectedReadings

MOST_NAMES: Final = 3
"""Variables, or stations, listed in a name; with more of them none is listed."""
_LONGEST: Final = 60
_BOUNDS: Final = ("time_bounds", "climatology_bounds")


def surface_name(dataset: xr.Dataset, time: int | None = None) -> str:
    """Name a file with a surface, without suffix; `time` selects a single time cell.

    Examples
    --------
    `air_temperature_2007-10-01_2007-10-04_map`
    """
    variable = str(dataset.attrs["title"]).partition(":")[0]
    bounds = next((dataset[name] for name in _BOUNDS if name in dataset.coords), dataset["time"])
    stamps = bounds.to_numpy().astype("datetime64[ns]").astype(np.int64).reshape(dataset["time"].size, -1)
    if time is not None and 0 <= time < len(stamps):
        stamps = stamps[time : time + 1]
    period = (int(stamps.min()), int(stamps.max())) if stamps.size else None
    along = str(dataset["time"].dims[0]) if dataset["time"].dims else "time"
    kind = "map" if {"lat", "y"} & set(dataset.dims) else "series"
    return _join_parts(variable, *_period(period), *(() if along == "time" else (along,)), kind)


def readings_name(chosen: SelectedReadings, pieces: Sequence[ReadingsPiece] = ()) -> str:
    """Name a file with readings, without suffix; any pieces define the period.

    Examples
    --------
    `air_temperature_station-3_2007-10-01_2007-10-02_readings`
    """
    variables = list(dict.fromkeys(kind.variable.name for kind in chosen.kinds))
    stations = chosen.selection.stations
    extents = [extent for extent in map(chosen.archive.extent, variables) if extent is not None]
    period = None
    if pieces:
        spans = [piece.intervals_ns() for piece in pieces]
        period = min(int(first.min()) for first, _ in spans), max(int(last.max()) for _, last in spans)
    elif extents:
        whole = Window(min(extent.start_ns for extent in extents), max(extent.stop_ns for extent in extents))
        part = whole if chosen.selection.window is None else whole.intersect(chosen.selection.window)
        period = None if part is None else (part.start_ns, part.stop_ns)
    return _join_parts(
        *(variables if len(variables) <= MOST_NAMES else ()),
        *(f"station-{station}" for station in stations if len(stations) <= MOST_NAMES),
        *_period(period),
        "readings",
    )


def _period(period: tuple[int, int] | None) -> tuple[str, ...]:
    return () if period is None else tuple(map(_instant, period))


def _instant(time_ns: int) -> str:
    """Format a day, or an instant to the second, in characters safe for file names."""
    # Colons are not allowed in file names on Windows.
    text = format_timestamp(time_ns // SECOND_NS * SECOND_NS).replace(":", "")
    if text.endswith("T000000Z"):
        return text.removesuffix("T000000Z")
    return f"{text.removesuffix('00Z')}Z" if text.endswith("00Z") else text


def _join_parts(*parts: str) -> str:
    return "_".join(re.sub(r"[^A-Za-z0-9_.+-]+", "-", part)[:_LONGEST] for part in parts)
