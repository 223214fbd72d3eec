"""SensorScope's text format: 17 fields separated by blanks, no header, one file per station.

Station, year, month, day, hour, minute, second (local clock), epoch [s UTC], and nine numbers. The epoch is the stamp
of a row; the clock must be a possible date.
"""

from datetime import UTC, datetime
from typing import Final

import pyarrow as pa

from ingest.formats import timestamps
from ingest.formats.base import BLANKS, FORMATS, Format, Layout, Parsed, ReadOptions, TextForm
from ingest.formats.csv_lines import LABEL, gather, integers, labels, numbers, read_table
from ingest.formats.csv_sniffer import BYTE_ORDER_MARK
from ingest.formats.file_metadata import FileMetadata, column_of

CLOCK: Final = ("year", "month", "day", "hour", "minute", "second")
"""Columns of the local clock."""
COLUMNS: Final = (
    "air_temperature",
    "surface_temperature",
    "solar_radiation",
    "relative_humidity",
    "soil_moisture",
    "watermark",
    "rain_meter",
    "wind_speed",
    "wind_direction",
)
"""Numeric columns, in file order after the epoch."""

_UNITS: Final = ("degC", "degC", "W m-2", "%", "%", "kPa", "mm", "m s-1", "degree")
METADATA: Final = FileMetadata(
    {name: column_of(name, unit) for name, unit in zip(COLUMNS, _UNITS, strict=True)}, zone="UTC"
)

_FIELDS: Final = 1 + len(CLOCK) + 1 + len(COLUMNS)


def layout(head: bytes, file: str, options: ReadOptions) -> Layout:
    """Return the layout, which is the same for all files of this format."""
    wanted, ignored = options.divide_columns(COLUMNS)
    start = len(BYTE_ORDER_MARK) if head.startswith(BYTE_ORDER_MARK) else 0
    header = ("station", *CLOCK, "epoch", *COLUMNS)
    blank = ReadOptions(options.columns, options.timezone, options.nodata, text=TextForm(BLANKS))
    return Layout(header, wanted, ignored, blank, file, start, 0, METADATA)


def parse(data: bytes, layout: Layout, *, last: bool) -> Parsed:
    """Parse a chunk; see `ingest.formats.base.Format`."""
    types = {"station": LABEL} | dict.fromkeys((*CLOCK, "epoch"), pa.int64())
    types |= dict.fromkeys(layout.columns, pa.float64())
    lines, table = read_table(data, layout, types, last=last)
    stations, code = labels(table, "station", lines)
    # The clock is not used, but an impossible one indicates a damaged row.
    timestamps.refuse_impossible({name: integers(table, name, lines) for name in CLOCK}, lines)
    time_ns = timestamps.from_epoch(integers(table, "epoch", lines), "epoch", lines)
    values = {name: numbers(table, name, lines, layout.options) for name in layout.columns}
    return gather(Parsed(stations, code, time_ns, values), lines)


def sniff(head: bytes, file: str) -> str | None:
    """Recognise rows of 17 numbers, with a valid date and an epoch within a day of it."""
    rows = [line.split() for line in head.splitlines()[:5] if line.strip()]
    rows = rows[: -1 if len(rows) > 1 and len(rows[-1]) < _FIELDS else None]
    for row in rows:
        try:
            year, month, day, hour, minute, second, epoch = (int(cell) for cell in row[1:8])
            clock_s = datetime(year, month, day, hour, minute, second, tzinfo=UTC).timestamp()
        except ValueError:
            return None
        if len(row) != _FIELDS or abs(clock_s - epoch) > 86_400:
            return None
    return "17 fields separated by blanks: a station, a date, the epoch of that date, nine numbers" if rows else None


FORMATS.add("sensorscope", Format("sensorscope", COLUMNS, layout, parse, sniff))
