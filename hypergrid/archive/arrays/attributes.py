"""Stations, series and variables as attributes of Zarr groups: JSON, where a NaN is null."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, fields
from typing import Any
from urllib.parse import quote

from hypergrid.core.readings import Position, Series, Station
from hypergrid.core.units import Variable

Json = dict[str, Any]


def node_name(variable: str) -> str:
    """Return the name of a variable's group; every text is possible, also those that Zarr reserves.

    Raises
    ------
    ValueError
        The name is empty.
    """
    if not variable:
        message = "a variable needs a name; got an empty one; name the column"
        raise ValueError(message)
    name = quote(variable, safe="").replace(".", "%2E")
    return f"%5F{name[1:]}" if name.startswith("_") else name


def encode_variable(variable: Variable) -> Json:
    """Return a variable as JSON."""
    return asdict(variable)


def decode_variable(content: Json) -> Variable:
    """Return the variable that `encode_variable` wrote."""
    return Variable(**content)


def encode_series(series: Sequence[Series]) -> Json:
    """Return series as JSON, a list a property: long lists of records repeat the names of their fields."""
    return {name: [getattr(sensor_series, name) for sensor_series in series] for name in _SERIES_FIELDS}


def decode_series(variable: str, content: Json) -> tuple[Series, ...]:
    """Return the series that `encode_series` wrote."""
    rows = zip(*(content[name] for name in _SERIES_FIELDS), strict=True)
    return tuple(Series(variable, *row) for row in rows)


_SERIES_FIELDS = tuple(field.name for field in fields(Series) if field.name != "variable")


def encode_station(station: Station) -> Json:
    """Return a station as JSON."""
    return {"id": station.id, "name": station.name, "positions": [_encode_position(p) for p in station.positions]}


def decode_station(content: Json) -> Station:
    """Return the station that `encode_station` wrote."""
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
    """Return the stations as JSON by id, with the given ones added to them.

    A position whose first instant is new extends the station's history; one that begins with another corrects it in
    all that it knows, and takes away nothing. A name that is given, and more than the id, replaces the old one.
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
        # Who declares no name says the id instead.
        name = old["name"] if new["name"] in ("", station.id) else new["name"]
        result[station.id] = {"id": station.id, "name": name or new["name"], "positions": ordered}
    return result
