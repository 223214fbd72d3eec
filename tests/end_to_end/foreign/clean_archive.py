"""An archive of a foreign network's readings as they should be understood, made without reading a file."""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import numpy as np

from hypergrid.core.flags import MISSING, NOT_EVALUATED
from hypergrid.core.readings import Position, Readings, Series, Station
from hypergrid.core.times import SECOND_NS
from hypergrid.query import OpenArchive
from tests.end_to_end.foreign.networks import Network
from tests.support.networks import write_archive

COARSE: Final = 24
"""Cells a side of a coarse map, at most."""


def write_clean(network: Network, folder: Path) -> OpenArchive:
    """Write the air temperature of `raw` to an archive."""
    stations, times_ns = network.weather.stations, network.weather.times_ns
    step_s = float(times_ns[1] - times_ns[0]) / SECOND_NS
    series = tuple(Series("air_temperature", name, interval_s=step_s, source="feed/t") for name in network.ids)
    time, station = np.nonzero(network.rows[: network.raw_count])
    value = network.written_c[time, station]
    flag = np.where(np.isnan(value), MISSING, NOT_EVALUATED).astype(np.uint8)
    stamps = times_ns[time]
    places = zip(stations.lon.tolist(), stations.lat.tolist(), stations.elevation.tolist(), strict=True)
    return write_archive(
        folder,
        stations=[
            Station(name, name, (Position(None, *place),)) for name, place in zip(network.ids, places, strict=True)
        ],
        readings=[Readings(series, station.astype(np.int32), stamps, value, flag, stamps)],
        slice_s=step_s,
        now_ns=int(times_ns[-1]),
    )


def coarsen(query: Mapping[str, Any]) -> dict[str, Any]:
    """Return a suggested query with its variance, and with cells so wide that there are at most `COARSE` a side."""
    *before, interpolate = query["steps"]
    grid = interpolate["grid"]
    factor = -(-max(grid["shape"]) // COARSE)
    number, unit = re.fullmatch(r"([\d.]+)(\D*)", str(grid["step"])).groups()  # type: ignore[union-attr]
    step = f"{float(number) * factor:g}{unit}" if unit else float(number) * factor
    wider = {**grid, "step": step, "shape": [count // factor for count in grid["shape"]]}
    return ask_intervals({**query, "steps": [*before, {**interpolate, "grid": wider}]})


def ask_intervals(query: Mapping[str, Any]) -> dict[str, Any]:
    """Return a query with the variance of the field itself, which is what the truth is of, without readings' noise."""
    *before, interpolate = query["steps"]
    params = {**interpolate.get("params", {}), "variance_of": "noise-free"}
    return {**query, "variance": True, "steps": [*before, {**interpolate, "params": params}]}
