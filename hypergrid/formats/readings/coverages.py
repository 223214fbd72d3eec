"""Readings as CoverageJSON: one point series per station and kind of series."""

from collections.abc import Iterable
from typing import Any

import numpy as np

from hypergrid.core.flags import MEANINGS
from hypergrid.formats.covjson import make_collection, make_parameter, point_series, time_axis
from hypergrid.formats.readings.selection import ReadingsPiece, SelectedReadings, SeriesKind


def make_coverages(
    chosen: SelectedReadings, pieces: Iterable[ReadingsPiece], *, flags: bool = False
) -> list[dict[str, Any]]:
    """Build a PointSeries for each station and kind, in the order of the pieces.

    Parameters
    ----------
    chosen
        Selection that the pieces were read from.
    pieces
        Readings; those of one kind are in order of time.
    flags
        Whether to add the QARTOD flags as a separate parameter.

    Returns
    -------
    Coverages with the station as `id` and without parameters, which a collection shares (`make_parameters`). Missing
    values are null, times are the stamps, with bounds if readings cover intervals.
    """
    held: dict[tuple[str, int], list[tuple[ReadingsPiece, Any]]] = {}
    for piece in pieces:
        for number in np.unique(piece.station).tolist():
            held.setdefault((piece.kind.label, number), []).append((piece, piece.station == number))
    made = []
    for (_, number), parts in held.items():
        kind = parts[0][0].kind
        name = kind.stations[number]
        time_ns, value, flag = (
            np.concatenate([getattr(piece.readings, column)[rows] for piece, rows in parts])
            for column in ("time_ns", "value", "flag")
        )
        starts_ns, ends_ns = (
            np.concatenate([piece.intervals_ns()[edge][rows] for piece, rows in parts]) for edge in (0, 1)
        )
        ranges = {kind.key: value, **({f"{kind.key}_flag": flag} if flags else {})}
        times = time_axis(starts_ns, ends_ns, stamps_ns=time_ns)
        made.append(point_series(_station_position(chosen, name), times, ranges, id=name))
    return made


def describe_measurement(kind: SeriesKind) -> dict[str, Any]:
    """Describe the measurement of a kind of series: method, duration, height [m].

    The result holds members of a CoverageJSON parameter.
    """
    sample = kind.sample
    method = "point" if sample.statistic == "sample" else sample.statistic
    length_s = 0.0 if sample.stamp == "instant" else sample.interval_s
    of_height = {} if sample.height_m is None else {"hypergrid:height_m": sample.height_m}
    return {"measurementType": {"method": method, "duration": f"PT{length_s:g}S"}, **of_height}


def make_parameters(kinds: Iterable[SeriesKind], *, flags: bool = False) -> dict[str, Any]:
    """Build the parameters of kinds of series by key, with their measurement."""
    parameters_by_key = {}
    for kind in kinds:
        variable = kind.variable
        named = {} if variable.standard_name is None else {"standard_name": variable.standard_name}
        label = variable.long_name or variable.name
        parameters_by_key[kind.key] = make_parameter(
            kind.key, {"long_name": label, "units": variable.unit, **named}
        ) | describe_measurement(kind)
        if flags:
            meanings = {"flag_values": list(MEANINGS), "flag_meanings": " ".join(MEANINGS.values())}
            parameters_by_key[f"{kind.key}_flag"] = make_parameter(
                kind.key, {"long_name": f"quality of {label}", **meanings}
            )
    return parameters_by_key


def coverage_collection(
    chosen: SelectedReadings, pieces: Iterable[ReadingsPiece], *, flags: bool = False
) -> dict[str, Any]:
    made = make_coverages(chosen, pieces, flags=flags)
    return make_collection(made, {"parameters": make_parameters(chosen.kinds, flags=flags)})


def _station_position(chosen: SelectedReadings, name: str) -> tuple[float, float, float | None]:
    station = chosen.archive.stations.get(name)
    if station is None:
        return np.nan, np.nan, None
    position = station.position
    return position.lon, position.lat, position.elevation_m
