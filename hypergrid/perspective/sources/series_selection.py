"""Select the series that a question reads."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from hypergrid.core.errors import InvalidQuery
from hypergrid.core.readings import Series
from hypergrid.topology import SeriesAxis

SELECTED_BY_DEFAULT: Final[Mapping[str, Any]] = {"statistic": ("sample", "mean")}
"""Default selection of series."""

MAX_OFFERED: Final = 5
"""Maximum number of property values suggested in an error message."""

Select = tuple[tuple[str, Any], ...]


def select_series(variable: str, series: tuple[Series, ...], select: Select) -> NDArray[np.intp]:
    """Return the indices of the selected series, shape (selected,), at least one.

    Raises
    ------
    InvalidQuery
        No series matches; the message lists the existing values.
    """
    wanted = {**SELECTED_BY_DEFAULT, **dict(select)}
    chosen = np.array([i for i, item in enumerate(series) if _matches(item, wanted)], dtype=np.intp)
    if not len(chosen):
        asked = ", ".join(f"{name}={value!r}" for name, value in wanted.items())
        offers = _format_offers(series, ("statistic", *dict(select)))
        raise InvalidQuery(f"no series of {variable!r} has {asked}; there are: {offers}{_remedy(series, wanted)}")
    return chosen


def _matches(series: Series, wanted: Mapping[str, Any]) -> bool:
    return all(
        getattr(series, name) in (choice if isinstance(choice, tuple | list) else (choice,))
        for name, choice in wanted.items()
    )


def _remedy(series: tuple[Series, ...], wanted: Mapping[str, Any]) -> str:
    """Suggest a selection that matches existing series; empty if there is none."""
    calls = []
    for name, choice in wanted.items():
        there = {getattr(sensor_series, name): None for sensor_series in series}
        if there and not there.keys() & set(choice if isinstance(choice, tuple | list) else (choice,)):
            several = tuple(sorted(there, key=str)[:MAX_OFFERED])
            calls.append(f"{name}={(several[0] if len(several) == 1 else several)!r}")
    return f"; choose with .select({', '.join(calls)})" if calls else ""


def _format_offers(series: tuple[Series, ...], names: tuple[str, ...]) -> str:
    values = {
        name: sorted({str(getattr(sensor_series, name)) for sensor_series in series}) for name in dict.fromkeys(names)
    }
    return "; ".join(f"{name} {', '.join(several[:20])}" for name, several in values.items()) if series else "no series"


Key = Callable[[Series], object]


def find_common_stations(first: SeriesAxis, second: SeriesAxis) -> SeriesAxis:
    """Return the series of the first axis whose stations are also on the second.

    Stations are matched by name if each has one series, else by name, height and replicate.

    Raises
    ------
    InvalidQuery
        No common station, or several indistinguishable series of a station.
    """
    key = _choose_key(first, second)
    others = {key(series) for series in second.series}
    kept = np.array([key(series) in others for series in first.series], dtype=bool)
    if not kept.any():
        names = ", ".join(dict.fromkeys(series.station for series in first.series[:3]))
        others_named = ", ".join(dict.fromkeys(series.station for series in second.series[:3]))
        raise InvalidQuery(
            f"its sources have no station in common ({names}, …; {others_named}, …); a formula of both needs some"
        )
    # The same object keeps its cached token.
    return first if kept.all() else take_series(first, np.flatnonzero(kept))


def take_series(axis: SeriesAxis, chosen: NDArray[np.intp]) -> SeriesAxis:
    series = tuple(axis.series[number] for number in chosen.tolist())
    return replace(axis, series=series, x=axis.x[chosen], y=axis.y[chosen], elevation_m=axis.elevation_m[chosen])


def find_columns(wanted: SeriesAxis, axis: SeriesAxis) -> NDArray[np.intp]:
    """Return the indices of matched stations on one of the original axes, shape (series,)."""
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
    raise InvalidQuery(
        "its sources have several series of a station; choose one of each with .select(height_m=…, statistic=…)"
    )
