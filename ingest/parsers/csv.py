"""Plain tables of text: a header, then one row a station and time, one column a variable; missing is empty.

A file without a station column holds one station, named as the file is. Times are ISO 8601.
"""

import csv
from typing import Final

import numpy as np
import pyarrow as pa

from ingest.parsers import clock, fields
from ingest.parsers.lines import read_lines
from ingest.parsers.table import FORMATS, Format, Layout, Parsed, ReadOptions, Unreadable

_BYTE_ORDER_MARK: Final = b"\xef\xbb\xbf"


def layout(head: bytes, file: str, options: ReadOptions) -> Layout:
    """Read the header.

    Raises
    ------
    Unreadable
        There is no header with a time column, or it names a column twice.
    """
    mark = len(_BYTE_ORDER_MARK) if head.startswith(_BYTE_ORDER_MARK) else 0
    first, newline, rest = head[mark:].partition(b"\n")
    try:
        header = tuple(
            name.strip() for name in next(csv.reader([first.decode("utf-8")], delimiter=options.delimiter), [])
        )
    except UnicodeDecodeError as error:
        message = "invalid UTF-8: in the header"
        raise Unreadable(message) from error
    if options.time_column not in header:
        message = (
            f"no header: a column {options.time_column!r} is needed; the first line has {', '.join(header)[:120]!r}"
        )
        raise Unreadable(message)
    twice = sorted({name for name in header if header.count(name) > 1})
    if twice:
        message = f"column named twice: {', '.join(twice)}"
        raise Unreadable(message)
    present = [name for name in header if name not in (options.station_column, options.time_column)]
    if options.columns is None:
        texts = _columns_of_text(header, rest, options)
        wanted = tuple(name for name in present if name and name not in texts)
    else:
        wanted = tuple(name for name in present if name in options.columns)
    ignored = tuple(name for name in present if name not in wanted)
    start = mark + len(first) + len(newline)
    return Layout(header, wanted, ignored, options, file.rsplit(".", 1)[0], start, 1)


def _columns_of_text(header: tuple[str, ...], rest: bytes, options: ReadOptions) -> set[str]:
    """Return the columns that hold no number and some text in the first rows: remarks, not readings."""
    whole = rest[: rest.rfind(b"\n") + 1] or rest
    rows = list(csv.reader(whole.decode("utf-8", errors="replace").splitlines()[:1000], delimiter=options.delimiter))
    found = set()
    for place, name in enumerate(header):
        cells = [row[place].strip() for row in rows if len(row) == len(header)]
        said = [cell for cell in cells if cell and cell not in options.nodata]
        if said and not any(_is_number(cell) for cell in said):
            found.add(name)
    return found


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def parse(data: bytes, layout: Layout, *, last: bool) -> Parsed:
    """Parse a chunk; see `ingest.parsers.table.Format`."""
    options = layout.options
    lines = read_lines(data, delimiter=options.delimiter, fields=len(layout.header), quotes=True, last=last)
    types: dict[str, pa.DataType] = {options.time_column: pa.string()}
    has_station = options.station_column in layout.header
    if has_station:
        types[options.station_column] = fields.LABEL
    types |= dict.fromkeys(layout.wanted, pa.float64())
    table = fields.read_columns(lines, layout, types, quotes=True)
    if has_station:
        stations, code = fields.labels(table, options.station_column, lines)
    else:
        stations, code = (layout.station,), np.zeros(len(lines.number), np.int32)
    texts = fields.text_of(table, options.time_column)
    time_ns = clock.from_text(texts, options.timezone, options.time_column, lines)
    values = {name: fields.numbers(table, name, lines, options.nodata) for name in layout.wanted}
    return fields.gather(stations, code, time_ns, values, lines)


FORMATS.add("csv", Format("csv", None, layout, parse))
