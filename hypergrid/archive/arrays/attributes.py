"""JSON encoding of stations, series and variables as Zarr attributes; NaN becomes null."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any
from urllib.parse import quote

from hypergrid.core.readings import Position, Series, Station
from hypergrid.core.units import Variable

Json = dict[str, Any]


def node_name(variable: str) -> str:
    """Return the group name of a variable, escaped so that any text is valid.

    This includes names that Zarr reserves.

    Raises
    ------
    ValueError
        The name is empty.
    """
    if not variable:
        raise ValueError("a variable needs a name; got an empty one; name the column")
    name = quote(variable, safe="").replace(".", "%2E")
    return f"%5F{name[1:]}" if name.startswith("_") else name


def encode_variable(variable: Variable) -> Json:
    return asdict(variable)


def decode_variable(content: Json) -> Variable:
    return Variable(**content)


def encode_series(series: Sequence[Series]) -> Json:
    """Encode series as one JSON list per property."""
    # Shorter than a list of records, which repeats the field names for every series.
    return {name: [getattr(sensor_series, name) for sensor_series in series] for name in _SERIES_FIELDS}


def decode_series(variable: str, content: Json) -> tuple[Series, ...]:
    rows = zip(*(content[name] for name in _SERIES_FIELDS), strict=True)
    return tuple(Series(variable, *row) for row in rows)


_SERIES_FIELDS = tuple(field.name for field in fields(Series) if field.name != "variable")


def encode_station(station: Station) -> Json:
    return {"id": station.id, "name": station.name, "positions": [_encode_position(p) for p in station.positions]}


def decode_station(content: Json) -> Station:
    return Station(
        content["id"], content["name"], tuple(_decode_position(position) for position in content["positions"])
    )


def _encode_position(position: Position) -> Json:
    return {name: None if _is_nan(value) else value for name, value in asdict(position).items()}


def _decode_position(content: Json) -> Position:
    coordinates = {name: math.nan if value is None else value for name, value in content.items() if name != "from_ns"}
    return Position(from_ns=content["from_ns"], **coordinates)


def _is_nan(value: object) -> bool:
    return isinstance(value, float) and math.isnan(value)


def extend_stations(stored: Mapping[str, Json], given: Iterable[Station]) -> dict[str, Json]:
    """Merge the given stations into the stored ones; returns them as JSON by id.

    A position with a new first instant extends a station's history; one with an existing first instant corrects the
    coordinates that it knows and removes none. A name replaces the old one unless it is empty or equal to the id.
    """
    result = dict(stored)
    for station in given:
        new = encode_station(station)
        old = result.get(station.id, {"name": "", "positions": []})
        places: dict[int | None, Json] = {}
        for station_json in (*old["positions"], *new["positions"]):
            known = {name: value for name, value in station_json.items() if value is not None}
            places[station_json["from_ns"]] = {**places.get(station_json["from_ns"], station_json), **known}
        ordered = sorted(
            places.values(), key=lambda position: -math.inf if position["from_ns"] is None else position["from_ns"]
        )
        # A station declared without a name has its id as the name.
        name = old["name"] if new["name"] in ("", station.id) else new["name"]
        result[station.id] = {"id": station.id, "name": name or new["name"], "positions": ordered}
    return result
