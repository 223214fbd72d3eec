"""Exports of SensorScope's Climaps: one row per time, one file per station.

The header is "Epoch,<sensor> / <quantity>,…". Columns differ between stations; a repeated name ends with "[2]", which
is the replicate. The sensor defines the unit. A station table next to the files (`…stn.info`: id, name, easting,
northing, latitude, longitude, altitude) has the positions.
"""

import csv
import re
from dataclasses import replace
from pathlib import Path
from typing import Final

import numpy as np
import pyarrow as pa

from hypergrid.core.readings import Station
from ingest.formats import timestamps
from ingest.formats.base import (
    FORMATS,
    BadRow,
    DocumentFormat,
    Format,
    Layout,
    Parsed,
    ReadOptions,
    TextForm,
    Unreadable,
)
from ingest.formats.csv_lines import gather, integers, numbers, parse_number, read_table, show
from ingest.formats.csv_sniffer import BYTE_ORDER_MARK
from ingest.formats.file_metadata import ColumnMetadata, FileMetadata, column_of, station_at, usual_interval_s

_TIME: Final = "Epoch"
_REPLICATE: Final = re.compile(r"^(?P<name>.*?) *\[(?P<number>\d+)\]$")
_STATION: Final = re.compile(r"(?i)^station[_-](.+)$")
_QUANTITIES: Final = {
    "Temperature": ("air_temperature", "degC"),
    "Air Temperature": ("air_temperature", "degC"),
    "Surface Temperature": ("surface_temperature", "degC"),
    "Humidity": ("relative_humidity", "%"),
    "Rain": ("precipitation", "mm"),
    "Wind Speed": ("wind_speed", "m s-1"),
    "Wind Direction": ("wind_direction", "degree"),
    "VWC": ("soil_moisture", "1"),
    "Radiation": ("solar_radiation", "W m-2"),
}


def sniff(head: bytes, file: str) -> str | None:
    first = head.removeprefix(BYTE_ORDER_MARK).partition(b"\n")[0]
    return "its header is 'Epoch' and columns named 'sensor / quantity'" if re.match(rb"Epoch,.* / ", first) else None


def layout(head: bytes, file: str, options: ReadOptions) -> Layout:
    """Read the header.

    Raises
    ------
    Unreadable
        The header is missing, or repeats a column name.
    """
    first, newline, _ = head.partition(b"\n")
    header = tuple(name.strip() for name in next(csv.reader([first.decode("utf-8-sig", errors="replace")]), []))
    if _TIME not in header or len(set(header)) < len(header):
        raise Unreadable(
            f"no header: a column {_TIME!r} and each name once are needed; got {', '.join(header)[:120]!r}"
        )
    wanted, ignored = options.divide_columns([name for name in header if name != _TIME])
    stem = file.rsplit(".", 1)[0]
    match = _STATION.match(stem)
    # Missing values are written as nan.
    named = replace(options, nodata=(*options.nodata, "nan"), time_column=_TIME, text=TextForm(","))
    start = len(first) + len(newline)
    plain = Layout(header, wanted, ignored, named, match[1] if match else stem, start, 1)
    # The first rows show the interval.
    times = parse(head[start : head.rfind(b"\n") + 1], plain, last=False).time_ns
    return replace(
        plain,
        metadata=FileMetadata({name: _column_metadata(name, usual_interval_s(times)) for name in wanted}, zone="UTC"),
    )


def _column_metadata(name: str, interval_s: float) -> ColumnMetadata:
    match = _REPLICATE.match(name)
    base = match["name"] if match else name
    quantity = base.rpartition("/")[2].strip()
    variable, unit = _QUANTITIES.get(quantity, (None, None))
    column = column_of(quantity.lower() or "value", unit, variable=variable, long_name=base, interval_s=interval_s)
    column = replace(column, replicate=int(match["number"]) if match else 1)
    return replace(column, statistic="total", stamp="end") if quantity == "Rain" else column


def parse(data: bytes, layout: Layout, *, last: bool) -> Parsed:
    """Parse a chunk of whole lines, as defined by `ingest.formats.base.Format`."""
    types = {_TIME: pa.int64()} | dict.fromkeys(layout.columns, pa.float64())
    lines, table = read_table(data, layout, types, last=last)
    time_ns = timestamps.from_epoch(integers(table, _TIME, lines), _TIME, lines)
    values = {name: numbers(table, name, lines, layout.options) for name in layout.columns}
    return gather(Parsed((layout.station,), np.zeros(len(lines.number), np.int32), time_ns, values), lines)


FORMATS.add("climaps", Format("climaps", None, layout, parse, sniff))


def sniff_stations(head: bytes, file: str) -> str | None:
    return "a table of SensorScope's stations, by its name" if file.lower().endswith("stn.info") else None


def layout_stations(path: Path, options: ReadOptions) -> Layout:
    """Read the positions of the stations; the file has no readings."""
    stations = tuple(station for line in _station_lines(path) if (station := _station(line)) is not None)
    return Layout((), (), (), options, path.stem, 0, 0, FileMetadata(stations=stations, zone="UTC"))


def _station_lines(path: Path) -> list[str]:
    return [" ".join(line.split()) for line in path.read_text(encoding="utf-8", errors="replace").splitlines()]


def _station(line: str) -> Station | None:
    """Return the station in a line of id, name, x, y, latitude, longitude and altitude; None if it has another form."""
    words = line.split()
    numbers = [number for word in words[4:] if (number := parse_number(word)) is not None]
    if (len(words), len(numbers)) != (7, 3):
        return None
    # Unknown coordinates are listed as -999.
    lat, lon, up = (float("nan") if number == -999.0 else number for number in numbers)
    return station_at(words[0], lon, lat, up, name=words[1])


def parse_stations(path: Path, layout: Layout, start: int, stop: int) -> Parsed:
    """Return no rows; reject lines that are not stations."""
    lines = _station_lines(path)
    bad = tuple(
        BadRow(number, "", show(line.encode()), "no station: id, name, x, y, latitude, longitude, altitude are needed")
        for number, line in enumerate(lines, 1)
        if line and _station(line) is None
    )
    return Parsed((), np.empty(0, np.int32), np.empty(0, np.int64), {}, bad, len(lines))


FORMATS.add(
    "sensorscope_stations",
    DocumentFormat(
        "sensorscope_stations",
        layout_stations,
        lambda path, layout, chunk_bytes: [0, path.stat().st_size],
        parse_stations,
        sniff_stations,
    ),
)
