"""TOA5, the text tables of Campbell loggers: four header lines, then quoted cells.

There is one file per station and table. The header lines are the logger (second cell: the station), the column names,
their units, and their statistic (Avg, Max, Min, Tot, Smp, …). A stamp marks the end of its interval, which is inferred
from the rows, or from the table's name if there are too few. Times of extremes (TMx, TMn) are not numbers and are left
out.

Source: Campbell Scientific, LoggerNet instruction manual, appendix B.
"""

import csv
import re
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa

from ingest.formats import timestamps
from ingest.formats.base import FORMATS, Format, Layout, Parsed, ReadOptions, TextForm, Unreadable
from ingest.formats.csv_lines import array_of, gather, numbers, read_table
from ingest.formats.csv_sniffer import BYTE_ORDER_MARK
from ingest.formats.file_metadata import (
    ColumnMetadata,
    FileMetadata,
    column_of,
    station_at,
    statistic_of,
    usual_interval_s,
    usual_variable,
)
from ingest.formats.timestamps import ISO

HEADER_LINES: Final = 4
_TIME: Final = "TIMESTAMP"
_RECORD: Final = "RECORD"
_TIMES: Final = ("tmx", "tmn", "tmax", "tmin")
_ARRAY: Final = re.compile(r"^(?P<name>.*?)\((?P<place>\d+)\)$")
_TABLES: Final = ((r"dai|day|24h", 86400.0), (r"hour|hr|60 ?min", 3600.0))
_MINUTES: Final = re.compile(r"(?i)(?:min|m)_?(\d+)|(\d+)_?m(?:in)?")


def sniff(head: bytes, file: str) -> str | None:
    return "its first cell is 'TOA5'" if re.match(rb'(?:\xef\xbb\xbf)?"?TOA5"?,', head) else None


def layout(head: bytes, file: str, options: ReadOptions) -> Layout:
    """Read the four header lines.

    Raises
    ------
    Unreadable
        They are missing, or contradict each other.
    """
    lines = head.removeprefix(BYTE_ORDER_MARK).split(b"\n", HEADER_LINES)
    if sniff(head, file) is None or len(lines) <= HEADER_LINES:
        raise Unreadable(f"no header: {HEADER_LINES} lines are needed, the first with the cell 'TOA5'")
    try:
        logger, header, units, kinds = (_cells(line) for line in lines[:HEADER_LINES])
    except UnicodeDecodeError as error:
        raise Unreadable("invalid UTF-8: in the header") from error
    if _TIME not in header or not len(header) == len(units) == len(kinds) or len(set(header)) < len(header):
        raise Unreadable(
            f"no header: a column {_TIME!r}, each name once, and as many units and statistics as names are needed; got "
            f"{len(header)} names, {len(units)} units and {len(kinds)} statistics"
        )
    numeric = [
        name
        for name, kind in zip(header, kinds, strict=True)
        if name not in (_TIME, _RECORD) and kind.lower() not in _TIMES
    ]
    wanted, _ = options.divide_columns(numeric)
    start = len(head) - len(head.removeprefix(BYTE_ORDER_MARK)) + sum(len(line) + 1 for line in lines[:HEADER_LINES])
    station = logger[1] if len(logger) > 1 and logger[1] else file.rsplit(".", 1)[0]
    # Loggers write NAN for missing values.
    named = replace(options, nodata=(*options.nodata, "NAN"), time_column=_TIME, text=TextForm(",", time_format=ISO))
    ignored = tuple(name for name in header if name not in (*wanted, _TIME, _RECORD))
    plain = Layout(header, wanted, ignored, named, station, start, HEADER_LINES)
    # The first rows show the interval, and the first instant.
    first = parse(head[start : head.rfind(b"\n") + 1], plain, last=False).time_ns
    interval_s = usual_interval_s(first) or _interval_of(logger[-1])
    column_metadata = {
        name: _column_metadata(name, unit, kind, interval_s)
        for name, unit, kind in zip(header, units, kinds, strict=True)
        if name in wanted
    }
    return replace(
        plain,
        metadata=FileMetadata(
            column_metadata,
            # The header has no position.
            (station_at(station, *[float("nan")] * 2),),
            first_ns=int(first.min()) if len(first) else None,
        ),
    )


def _cells(line: bytes) -> tuple[str, ...]:
    return tuple(cell.strip() for cell in next(csv.reader([line.decode("utf-8").rstrip("\r")]), []))


def _interval_of(table: str) -> float:
    """Return the interval in a table's name [s], 0 if it has none."""
    for pattern, interval_s in _TABLES:
        if re.search(pattern, table.lower()):
            return interval_s
    match = _MINUTES.search(table)
    return 60.0 * int(match[1] or match[2]) if match else 0.0


def _column_metadata(name: str, unit: str, kind: str, interval_s: float) -> ColumnMetadata:
    array = _ARRAY.match(name)
    replicate = int(array["place"]) if array else None
    base = array["name"] if array else name
    statistic = statistic_of(kind)
    if statistic is not None and base.lower().endswith(f"_{kind.lower()}"):
        base = base[: -len(kind) - 1]
    # A standard deviation or covariance is a separate variable, not a statistic of the original one.
    known = usual_variable(base) if statistic is not None or not kind else None
    return column_of(
        base.lower(),
        unit,
        variable=known,
        long_name=name,
        replicate=replicate,
        statistic=statistic or "sample",
        interval_s=interval_s,
        stamp="instant" if kind.lower() in ("smp", "") else "end",
    )


def parse(data: bytes, layout: Layout, *, last: bool) -> Parsed:
    """Parse a chunk of whole lines, as defined by `ingest.formats.base.Format`."""
    types = {_TIME: pa.string()} | dict.fromkeys(layout.columns, pa.float64())
    lines, table = read_table(data, layout, types, last=last, quotes=True)
    time_ns = timestamps.from_text(array_of(table, _TIME), layout.options, lines)
    values = {name: numbers(table, name, lines, layout.options) for name in layout.columns}
    return gather(Parsed((layout.station,), np.zeros(len(lines.number), np.int32), time_ns, values), lines)


FORMATS.add("toa5", Format("toa5", None, layout, parse, sniff))
