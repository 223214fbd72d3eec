"""SMET 1.1 of MeteoIO: a header of keys and values, then blank-separated rows.

There is one file per station. The field name defines the meaning of a number; `units_multiplier` and `units_offset`
convert it to the unit of SMET (K, 1, m, W m-2, kg m-2). Position, zone (`tz`, hours ahead of UTC) and `nodata` are in
the header. Only the ASCII form is supported.

Source: SMET format specification 1.1 (WSL Institute for Snow and Avalanche Research SLF).
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyproj

from hypergrid.core.readings import Station
from ingest.formats import timestamps
from ingest.formats.base import BLANKS, FORMATS, Format, Layout, Parsed, ReadOptions, TextForm, Unreadable
from ingest.formats.csv_lines import array_of, gather, numbers, read_table
from ingest.formats.file_metadata import (
    ColumnMetadata,
    FileMetadata,
    column_of,
    station_at,
    usual_interval_s,
    zone_text,
)
from ingest.formats.timestamps import ISO

_TIME: Final = "timestamp"
_NO_READINGS: Final = ("latitude", "longitude", "altitude", "easting", "northing", "julian", "optime")
_UNITS: Final = {
    "TA": ("air_temperature", "K"),
    "TD": ("dew_point_temperature", "K"),
    "TSS": ("surface_temperature", "K"),
    "TSG": ("ground_surface_temperature", "K"),
    "RH": ("relative_humidity", "1"),
    "VW": ("wind_speed", "m s-1"),
    "VW_MAX": ("wind_gust", "m s-1"),
    "DW": ("wind_direction", "degree"),
    "ISWR": ("solar_radiation", "W m-2"),
    "RSWR": ("reflected_radiation", "W m-2"),
    "ILWR": ("longwave_radiation", "W m-2"),
    "OLWR": ("outgoing_longwave_radiation", "W m-2"),
    "HS": ("snow_height", "m"),
    "PSUM": ("precipitation", "mm"),
    "PINT": ("precipitation_rate", "mm h-1"),
    "P": ("air_pressure", "Pa"),
}
"""Fields of the standard, with the unit that SMET defines; kg m-2 of water are mm."""


def sniff(head: bytes, file: str) -> str | None:
    match = re.match(rb"(?:\xef\xbb\xbf)?\s*(SMET +[\d.]+ +(?:ASCII|BINARY))", head)
    return f"begins with {match[1].decode()!r}" if match else None


def layout(head: bytes, file: str, options: ReadOptions) -> Layout:
    """Read the header.

    Raises
    ------
    Unreadable
        It has no SMET header, is binary, or lacks a required field.
    """
    top, mark, _ = head.partition(b"[DATA]")
    if sniff(head, file) is None or not mark:
        raise Unreadable("no header: a first line 'SMET 1.1 ASCII' and a section [HEADER] before [DATA] are needed")
    if b"BINARY" in top.split(b"\n", 1)[0]:
        raise Unreadable("binary SMET is not read; write it as ASCII")
    start = head.find(b"\n", len(top)) + 1 or len(head)
    keys = _keys(top.decode("utf-8", errors="replace"))
    header = tuple(keys.get("fields", "").split())
    if _TIME not in header or len(set(header)) < len(header):
        raise Unreadable(f"no header: 'fields' needs a {_TIME!r} and each name once; got {' '.join(header)[:120]!r}")
    present = [name for name in header if name != _TIME and name.lower() not in _NO_READINGS]
    wanted, ignored = options.divide_columns(present)
    nodata = keys.get("nodata", "-999")
    # The deployment takes precedence over the header.
    zone = options.timezone if "timezone" in options.given or "tz" not in keys else zone_text(_number(keys, "tz"))
    form = TextForm(BLANKS, time_format=ISO)
    blank = replace(options, nodata=(*options.nodata, nodata), timezone=zone, time_column=_TIME, text=form)
    multipliers, offsets = _each(keys, "units_multiplier", header, 1.0), _each(keys, "units_offset", header, 0.0)
    station = _station(keys, file)
    plain = Layout(
        header,
        wanted,
        ignored,
        blank,
        station.id,
        start,
        head[:start].count(b"\n"),
        detail={name: (multipliers[name], offsets[name]) for name in header},
    )
    # The first rows show the interval, and the first instant.
    first = parse(head[start : head.rfind(b"\n") + 1], plain, last=False).time_ns
    metadata = FileMetadata(
        _columns(wanted, usual_interval_s(first)),
        (station,),
        first_ns=int(first.min()) if len(first) else None,
        zone=zone if "tz" in keys else None,
    )
    return replace(plain, metadata=metadata)


def _keys(text: str) -> dict[str, str]:
    pairs = (line.partition("=") for line in text.splitlines() if not line.lstrip().startswith(("#", ";")))
    return {key.strip().lower(): value.split("#")[0].strip() for key, sign, value in pairs if sign}


def _number(keys: Mapping[str, str], key: str) -> float:
    try:
        return float(keys[key])
    except ValueError as error:
        raise Unreadable(f"bad header: {key} needs a number; got {keys[key]!r}") from error


def _each(keys: Mapping[str, str], key: str, header: tuple[str, ...], default: float) -> dict[str, float]:
    if key not in keys:
        return dict.fromkeys(header, default)
    try:
        numbers = [float(word) for word in keys[key].split()]
    except ValueError as error:
        raise Unreadable(f"bad header: {key} needs numbers; got {keys[key]!r}") from error
    if len(numbers) != len(header):
        raise Unreadable(f"bad header: {key} has {len(numbers)} numbers for {len(header)} fields")
    return dict(zip(header, numbers, strict=True))


def _station(keys: Mapping[str, str], file: str) -> Station:
    name = keys.get("station_id") or file.rsplit(".", 1)[0]
    nodata = keys.get("nodata")
    coordinates = {
        key: _number(keys, key) if keys.get(key) not in (None, "", nodata) else float("nan")
        for key in ("longitude", "latitude", "altitude", "easting", "northing")
    }
    lon, lat = coordinates["longitude"], coordinates["latitude"]
    if np.isnan(lon) and "epsg" in keys and not np.isnan(coordinates["easting"]):
        try:
            turn = pyproj.Transformer.from_crs(int(_number(keys, "epsg")), 4326, always_xy=True)
            lon, lat = turn.transform(coordinates["easting"], coordinates["northing"])
        except pyproj.exceptions.CRSError as error:
            raise Unreadable(f"bad header: epsg {keys['epsg']!r} is no known coordinate system") from error
    return station_at(name, lon, lat, coordinates["altitude"], name=keys.get("station_name"))


def _columns(wanted: tuple[str, ...], interval_s: float) -> dict[str, ColumnMetadata]:
    columns = {}
    for name in wanted:
        # "TA_HYD" and "TS1" are variants of "TA" and "TS".
        base = name if name in _UNITS else re.sub(r"(_\w+|\d+)$", "", name)
        variable, unit = _UNITS.get(base, (None, None))
        own = name.lower() if variable is None else variable
        column = column_of(own, unit, variable=variable, interval_s=interval_s)
        # PSUM is a total, with the stamp at its end.
        columns[name] = replace(column, statistic="total", stamp="end") if base == "PSUM" else column
    return columns


def parse(data: bytes, layout: Layout, *, last: bool) -> Parsed:
    """Parse a chunk of whole lines, as defined by `ingest.formats.base.Format`."""
    scales: Mapping[str, tuple[float, float]] = layout.detail
    types = {_TIME: pa.string()} | dict.fromkeys(layout.columns, pa.float64())
    lines, table = read_table(data, layout, types, last=last)
    time_ns = timestamps.from_text(array_of(table, _TIME), layout.options, lines)
    values = {}
    for name in layout.columns:
        raw = numbers(table, name, lines, layout.options)
        multiplier, offset = scales[name]
        values[name] = raw if scales[name] == (1.0, 0.0) else raw * multiplier + offset
    return gather(Parsed((layout.station,), np.zeros(len(lines.number), np.int32), time_ns, values), lines)


FORMATS.add("smet", Format("smet", None, layout, parse, sniff))
