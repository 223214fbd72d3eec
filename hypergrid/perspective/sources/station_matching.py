"""Stations that two sources have in common, for functions of two different variables."""

from collections.abc import Callable
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from hypergrid.core.errors import InvalidQuery
from hypergrid.core.readings import Series
from hypergrid.topology import SeriesAxis

Key = Callable[[Series], object]


def find_common_stations(first: SeriesAxis, second: SeriesAxis) -> SeriesAxis:
    """Return the series of the first axis whose stations the second has as well.

    Stations are matched by name where each has one series, else by name, height and replicate.

    Raises
    ------
    InvalidQuery
        There are none, or several series of a station cannot be told apart.
    """
    key = _choose_key(first, second)
    others = {key(series) for series in second.series}
    kept = np.array([key(series) in others for series in first.series], dtype=bool)
    if not kept.any():
        names = ", ".join(dict.fromkeys(series.station for series in first.series[:3]))
        others_named = ", ".join(dict.fromkeys(series.station for series in second.series[:3]))
        message = f"its sources have no station in common ({names}, …; {others_named}, …); a formula of both needs some"
        raise InvalidQuery(message)
    if kept.all():
        return first
    series = tuple(series for series, keep in zip(first.series, kept, strict=True) if keep)
    return replace(first, series=series, x=first.x[kept], y=first.y[kept], elevation_m=first.elevation_m[kept])


def find_columns(wanted: SeriesAxis, axis: SeriesAxis) -> NDArray[np.intp]:
    """Return where the stations of a matched axis are on one of the two that it was matched from, shape (series,)."""
    key = _choose_key(wanted, axis)
    places = {key(series): number for number, series in enumerate(axis.series)}
    return np.array([places[key(series)] for series in wanted.series], dtype=np.intp)


def _choose_key(*axes: SeriesAxis) -> Key:
    choices: tuple[Key, ...] = (
        lambda series: series.station,
        lambda series: (series.station, series.height_m, series.replicate),
    )
    for key in choices:
        if all(len({key(series) for series in axis.series}) == axis.count for axis in axes):
            return key
    message = "its sources have several series of a station; choose one of each with .select(height_m=…, statistic=…)"
    raise InvalidQuery(message)
