"""Conversion of parsed rows to readings. Pure: no file, no clock, no Spark."""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from hypergrid.core.flags import MISSING, NOT_EVALUATED
from hypergrid.core.readings import Position, Readings, Series, Station, concatenate
from hypergrid.core.units import Variable, convert
from ingest.deployment.deployment_file import Column, Deployment, Feed

_DIGITS = re.compile(r"(\d+)")


@dataclass(frozen=True, eq=False)
class ParsedRows:
    """Parsed rows of one feed in columns, n rows."""

    feed: Feed
    columns: Mapping[str, Column]
    """Column of each entry of `values`."""
    stations: tuple[str, ...]
    code: NDArray[np.int32]
    """Index into `stations`, shape (n,)."""
    time_ns: NDArray[np.int64]
    """Time stamp [ns since 1970 UTC], shape (n,)."""
    arrival_ns: NDArray[np.int64]
    """Arrival [ns since 1970 UTC], shape (n,)."""
    values: Mapping[str, NDArray[np.float64]]
    """Values by column [the column's unit], shape (n,) each; NaN: reported without a value."""
    flag: NDArray[np.uint8] | None = None
    """QARTOD flags from the source, shape (n,)."""
    refused: Mapping[str, NDArray[np.bool_]] = field(default_factory=dict)
    """Which cells were rejected and give no reading, by column, shape (n,) each."""


def series_of(feed: str, column: Column, station: str) -> Series:
    return Series(
        column.variable,
        station,
        column.height_m,
        column.replicate,
        column.statistic,
        column.interval_s,
        column.stamp,
        f"{feed}:{column.name}",
    )


def all_series(present: Iterable[tuple[Feed, Column, str]], deployment: Deployment) -> Mapping[str, tuple[Series, ...]]:
    """Return the series by variable: stations in the deployment's order, then others by name."""
    # The order depends only on the series that are present, so that equal files make equal archives.
    rank = {station.id: index for index, station in enumerate(deployment.stations)}
    keyed_series: dict[str, set[tuple[object, Series]]] = {}
    for feed, column, station in present:
        key = (rank.get(station, len(rank)), natural_sort_key(station))
        keyed_series.setdefault(column.variable, set()).add((key, series_of(feed.name, column, station)))

    def order(item: tuple[object, Series]) -> tuple[object, ...]:
        key, series = item
        height = series.height_m if series.height_m is not None else 0.0
        return key, series.source, height, series.replicate, series.statistic, series.interval_s, series.stamp

    return {
        name: tuple(series for _, series in sorted(items, key=order)) for name, items in sorted(keyed_series.items())
    }


def natural_sort_key(text: str) -> tuple[tuple[int, str], ...]:
    """Return a key that orders "2" before "10"."""
    parts = _DIGITS.split(text)
    return tuple((int(part), "") if part.isdigit() and part.isascii() else (-1, part) for part in parts if part)


def assemble_readings(
    pieces: Sequence[ParsedRows], variable: Variable, series: tuple[Series, ...], deployment: Deployment
) -> Readings:
    """Return the readings of a variable from the rows that contain it, in order.

    Values are converted to the variable's unit; a missing value becomes a reading with the flag MISSING and its exact
    time.

    Raises
    ------
    hypergrid.core.errors.InvalidUnit
        A column's unit is not convertible to the variable's.
    """
    series_index = {sensor_series: index for index, sensor_series in enumerate(series)}
    parts = [Readings.empty(series)]
    for piece in pieces:
        for name, values in piece.values.items():
            column = piece.columns[name]
            if column.variable != variable.name:
                continue
            # In long rows, not every station has every column.
            indices = [series_index.get(series_of(piece.feed.name, column, station), -1) for station in piece.stations]
            table = np.array(indices or [0], np.int32)
            converted = convert(values, column.unit, deployment.variable(variable.name).unit)
            given = NOT_EVALUATED if piece.flag is None else piece.flag
            flag = np.where(np.isnan(converted), MISSING, given).astype(np.uint8)
            index = table[piece.code]
            readings = Readings(series, index, piece.time_ns, converted, flag, piece.arrival_ns)
            parts.append(readings.take_rows(~piece.refused[name]) if name in piece.refused else readings)
    return concatenate(parts)


def stations_of(present: Iterable[str], deployment: Deployment, *, known: Collection[str]) -> tuple[Station, ...]:
    """Return the declared stations, and those present that are neither declared nor `known`, without a position."""
    declared = {station.id: station for station in deployment.stations}
    nowhere = (Position(None, float("nan"), float("nan"), float("nan")),)
    others = [
        Station(name, name, nowhere) for name in sorted(set(present) - set(declared) - set(known), key=natural_sort_key)
    ]
    return (*deployment.stations, *others)
