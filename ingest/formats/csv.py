"""Tables of delimited text: wide, one row a station and time and one column a variable, or long, one row a value.

What the deployment does not say of their form is told by their beginning (`ingest.formats.csv_sniffer`). A file without
a station column holds one station, named as the file is.
"""

import re
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from hypergrid.core.errors import InvalidUnit
from hypergrid.core.units import convert
from ingest.formats import csv_fields, timestamps
from ingest.formats.base import BLANKS, FORMATS, VALUE, Format, Layout, Parsed, ReadOptions, Unreadable
from ingest.formats.csv_lines import Lines, read_lines, single_blanks
from ingest.formats.csv_sniffer import Head, read_head
from ingest.formats.encoding import UTF8, to_utf8
from ingest.formats.file_metadata import Told, column_of, unit_of, variable_name
from ingest.formats.strptime import EPOCHS, ISO
from ingest.formats.time_detection import SHARE, AmbiguousDates, fits

QARTOD: Final = (("1", 1), ("2", 2), ("3", 3), ("4", 4), ("9", 9))
"""What a column of flags holds where the deployment does not say: the flags themselves."""
UNKNOWN_FLAG: Final = "unknown flag"
WRONG_UNIT: Final = "wrong unit"


def layout(head: bytes, file: str, options: ReadOptions) -> Layout:
    """Read the header.

    Raises
    ------
    Unreadable
        There is no header with a time column, it names a column twice, or its dates are ambiguous.
    """
    told = read_head(head, options)
    form = told.form
    special = {told.station_column, *form.time_columns, form.flag_column}
    if form.long:
        special |= {form.variable_column, form.value_column, form.unit_column}
        missing = sorted({form.variable_column, form.value_column, form.unit_column, form.flag_column} - {""})
        missing = [name for name in missing if name not in told.header]
        if missing:
            listed = ", ".join(map(repr, missing))
            message = f"no header: columns {listed} are needed; it has {', '.join(told.header)[:120]!r}"
            raise Unreadable(message)
    present = [name for name in told.header if name not in special]
    if form.long:
        # What rows name, as far as the deployment says it beforehand; the column of values is nobody's variable.
        wanted: tuple[str, ...] = options.columns or ()
    elif options.columns is None:
        texts = _columns_of_text(told, options)
        wanted = tuple(name for name in present if name not in texts)
    else:
        wanted = tuple(name for name in present if name in options.columns)
    ignored = tuple(name for name in present if name not in wanted)
    if form.unit_column in told.header and options.columns is None:
        # Nobody says in which unit values are wanted: in the one that a variable has first.
        units = tuple((name, one.unit or "") for name, one in _told(told, wanted).columns.items())
        form = replace(form, targets=units)
    resolved = replace(options, station_column=told.station_column, time_column=form.time_columns[0], text=form)
    station = form.station or _station_of(file, options.station_pattern)
    return Layout(
        told.header, wanted, ignored, resolved, station, told.data_start, told.lines_before,
        _told(told, wanted), form.long, notes=told.notes, zoned=_is_zoned(told), repeated=told.repeated,
    )  # fmt: skip


def _told(head: Head, wanted: tuple[str, ...]) -> Told:
    """Return the units that a line of the header or, of a long table, a column has."""
    form = head.form
    units = {name: unit for name, unit in head.units.items() if name in wanted}
    if form.unit_column in head.header:
        pairs = zip(head.cells(form.variable_column), head.cells(form.unit_column), strict=True)
        units = {name: unit for name, unit in reversed(list(pairs)) if unit}
    return Told({name: column_of(variable_name(name), unit) for name, unit in units.items() if unit_of(unit)})


def _is_zoned(head: Head) -> bool | None:
    stamps = [text for text in head.cells(head.form.time_columns[-1]) if text]
    if not stamps:
        return None
    counted = head.form.time_format in EPOCHS or "%z" in (head.form.time_format or "")
    return counted or sum(bool(re.search(timestamps.WITH_ZONE, text)) for text in stamps) >= SHARE * len(stamps)


def _station_of(file: str, pattern: str) -> str:
    name = file.removesuffix(".gz").rsplit(".", 1)[0]
    if pattern:
        match = re.search(pattern, file)
        if match is None:
            message = f"no station: station_pattern {pattern!r} finds none in the file's name {file!r}"
            raise Unreadable(message)
        name = match[1]
    return name.strip() or file


def _columns_of_text(head: Head, options: ReadOptions) -> set[str]:
    """Return the columns that hold no number and some text in the first rows: remarks, not readings."""
    found = set()
    for name in head.header:
        said = [cell for cell in head.cells(name) if cell and cell not in options.nodata]
        if said and not any(_is_number(cell, head.form.decimal or ".") for cell in said):
            found.add(name)
    return found


def _is_number(text: str, decimal: str) -> bool:
    try:
        float(text.replace(decimal, "."))
    except ValueError:
        return False
    return True


def parse(data: bytes, layout: Layout, *, last: bool) -> Parsed:
    """Parse a chunk; see `ingest.formats.base.Format`."""
    options, form = layout.options, layout.options.text
    if form.encoding not in (None, UTF8):
        data = to_utf8(data, form.encoding or UTF8)
    if form.delimiter == BLANKS:
        data = single_blanks(data)
    lines = read_lines(
        data,
        delimiter=csv_fields.separator(form),
        fields=len(layout.header),
        quotes=form.delimiter != BLANKS,
        last=last,
        comment=(form.comment or "").encode(),
        repeated=layout.repeated,
    )
    types: dict[str, pa.DataType] = dict.fromkeys(form.time_columns, pa.string())
    labels = [name for name in (options.station_column, form.variable_column, form.unit_column, form.flag_column)
              if name in layout.header]  # fmt: skip
    numeric = (form.value_column,) if form.long else layout.wanted
    types |= dict.fromkeys(labels, csv_fields.LABEL) | dict.fromkeys(numeric, pa.float64())
    table = csv_fields.read_columns(lines, layout, types, quotes=form.delimiter != BLANKS)
    stations: tuple[str, ...] = (layout.station,)
    code = np.zeros(len(lines.number), np.int32)
    if options.station_column in layout.header:
        stations, code = csv_fields.labels(table, options.station_column, lines)
    names: tuple[str, ...] = ()
    which = code
    if form.long:
        names, which = csv_fields.labels(table, form.variable_column, lines, what="variable")
    group = code.astype(np.int64) * max(1, len(names)) + (which if form.long else 0)
    time_ns = timestamps.from_text(_stamps(table, form.time_columns), timestamps.stamps_of(options), lines, group=group)
    values = {
        name: csv_fields.numbers(table, name, lines, options.nodata, decimal=form.decimal or ".") for name in numeric
    }
    flags = _flags(table, layout, lines)
    if not form.long:
        return csv_fields.gather(stations, code, time_ns, values, lines, flags=flags)
    value = _in_wanted_units(table, layout, values[form.value_column], names, which, lines)
    return _long(
        layout,
        csv_fields.gather(stations, code, time_ns, {VALUE: value}, lines, flags=flags),
        names,
        which[lines.sound],
    )


def _stamps(table: pa.Table, columns: tuple[str, ...]) -> pa.Array:
    texts = [csv_fields.text_of(table, column) for column in columns]
    return texts[0] if len(texts) == 1 else pc.binary_join_element_wise(*texts, " ")


def _flags(table: pa.Table, layout: Layout, lines: Lines) -> NDArray[np.uint8] | None:
    """Return the flags that rows came with, shape (n,); refuse rows whose flag nobody knows."""
    form = layout.options.text
    if form.flag_column not in layout.header:
        return None
    known = dict(form.flags or QARTOD)
    texts, code = csv_fields.labels(table, form.flag_column, lines, what=None)
    numbers = np.array([known.get(text, 0) for text in texts] or [0], np.uint8)
    # No flag at all: nobody has evaluated the value.
    numbers[[place for place, text in enumerate(texts) if not text and text not in known]] = 2
    flags = numbers[code]
    lines.refuse(
        flags == 0, form.flag_column, lambda row: f"{UNKNOWN_FLAG}: {texts[code[row]][:40]!r}; map it in [feed.flags]"
    )
    return flags


def _in_wanted_units(
    table: pa.Table,
    layout: Layout,
    value: NDArray[np.float64],
    names: tuple[str, ...],
    which: NDArray[np.int32],
    lines: Lines,
) -> NDArray[np.float64]:
    """Return values in the units that the deployment wants, where each row says its unit."""
    form = layout.options.text
    if form.unit_column not in layout.header or not form.targets:
        return value
    targets = dict(form.targets)
    units, code = csv_fields.labels(table, form.unit_column, lines, what=None)
    converted = value.copy()
    pairs, member = np.unique(which.astype(np.int64) * len(units) + code, return_inverse=True)
    for place, pair in enumerate(pairs.tolist()):
        name, unit = names[pair // len(units)], units[pair % len(units)]
        rows = member == place
        if name in targets and unit:
            try:
                converted[rows] = convert(value[rows], unit_of(unit) or unit, targets[name])
            except InvalidUnit as error:
                lines.refuse(rows, form.unit_column, f"{WRONG_UNIT}: {name}: {error}")
    return converted


def _long(layout: Layout, parsed: Parsed, names: tuple[str, ...], which: NDArray[np.int32]) -> Parsed:
    """Return the rows of variables that something maps, and which these are."""
    columns = layout.options.columns
    unmapped = () if columns is None else tuple(sorted({names[i] for i in np.unique(which)} - set(columns)))
    if unmapped:
        kept = ~np.isin(which, [place for place, name in enumerate(names) if name in unmapped])
        which = which[kept]
        stations, code = csv_fields.used(parsed.stations, parsed.code[kept])
        values = {VALUE: parsed.values[VALUE][kept]}
        flags = None if parsed.flags is None else parsed.flags[kept]
        parsed = Parsed(stations, code, parsed.time_ns[kept], values, parsed.bad, parsed.lines, flags=flags)
    present, which = csv_fields.used(names, which)
    return replace(parsed, names=present, which=which, unmapped=unmapped)


def sniff(head: bytes, file: str) -> str | None:
    """Tell a file by a header with a time column above rows of as many cells, most of them with a time stamp."""
    try:
        told = read_head(head, ReadOptions())
    except AmbiguousDates as error:
        return f"a table with {error}"
    except Unreadable:
        return None
    stamps = [" ".join(parts) for parts in zip(*map(told.cells, told.form.time_columns), strict=True)]
    if len(told.header) < 2 or not fits(stamps, told.form.time_format or ISO):
        return None
    below = [line for line in head[told.data_start :].splitlines()[:100] if line.strip()]
    if len(told.rows[:100]) < SHARE * (len(below) - 1):
        return None
    time = " and ".join(repr(name) for name in told.form.time_columns)
    return f"a table of {len(told.header)} columns under a header, with the time in {time}"


FORMATS.add("csv", Format("csv", None, layout, parse, sniff))
