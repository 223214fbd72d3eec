"""A deployment file for exported tables, so that ingest reads them back as what they were."""

import json
import math
from collections.abc import Iterator, Mapping
from typing import Any

from hypergrid.core.readings import Position, Station
from hypergrid.core.times import format_instant
from hypergrid.formats.readings.selection import SelectedReadings, SeriesKind


def format_deployment(chosen: SelectedReadings, *, file: str, format_name: str) -> str:
    """Return the text of a deployment file for a table: network, variables, stations, and what is in its columns."""
    archive = chosen.archive
    parts = [
        f"# How to read {file} back: hypergrid ingest {file} --archive DIR --deployment THIS",
        _format_table("network", {"name": archive.name, "slice_s": archive.slice_s}),
        "# The flags are those of the archive.",
        _format_table("quality", {"run": False, "zone_guard": False}),
    ]
    for variable in {kind.variable.name: kind.variable for kind in chosen.kinds}.values():
        fields = {"name": variable.name, "unit": variable.unit, "standard_name": variable.standard_name}
        parts.append(_format_table("[variable]", {**fields, "long_name": variable.long_name or variable.name}))
    feed: dict[str, Any] = {"name": "export", "files": file, "format": format_name}
    feed |= {"variable_column": "variable", "value_column": "value", "flag_column": "flag"}
    if format_name == "csv":
        feed |= {"delimiter": ",", "time_format": "iso", "nodata": ["", "NaN"]}
    parts += [_format_table("[feed]", feed), "[feed.columns]"]
    parts += [_format_column(kind, format_name) for kind in chosen.kinds]
    parts += list(_format_stations(chosen.stations))
    return "\n".join([*parts, ""])


def _format_column(kind: SeriesKind, format_name: str) -> str:
    series, unit = kind.sample, kind.variable.unit
    label = kind.label if format_name == "csv" or not unit else f"{kind.label} [{unit}]"
    fields = {"variable": kind.variable.name, "unit": unit, "height_m": series.height_m, "replicate": series.replicate}
    # An interval of 0 is one that is not known: a deployment leaves its key out.
    fields |= {"statistic": series.statistic, "interval_s": series.interval_s or None, "stamp": series.stamp}
    inner = ", ".join(f"{name} = {_format_value(value)}" for name, value in fields.items() if value is not None)
    return f"{_format_value(label)} = {{{inner}}}"


def _format_stations(stations: Mapping[str, Station]) -> Iterator[str]:
    for station in stations.values():
        first, *others = station.positions
        yield _format_table(
            "[station]", {"id": station.id, "name": station.name or station.id, **_position_fields(first)}
        )
        for moved in others:
            if moved.from_ns is not None:
                yield _format_table(
                    "[station.moved]", {"from": format_instant(moved.from_ns), **_position_fields(moved)}
                )


def _position_fields(position: Position) -> dict[str, float | None]:
    coordinates = {"lon": position.lon, "lat": position.lat, "elevation_m": position.elevation_m}
    return {name: None if math.isnan(value) else float(value) for name, value in coordinates.items()}


def _format_table(name: str, content: Mapping[str, Any]) -> str:
    return "\n".join(
        [f"[{name}]", *(f"{key} = {_format_value(value)}" for key, value in content.items() if value is not None)]
    )


def _format_value(value: object) -> str:
    """Return a value as TOML writes it, which for text, numbers, truths and lists of them is as JSON does.

    But for DEL, which TOML wants escaped.
    """
    return json.dumps(value).replace("\x7f", "\\u007f")
