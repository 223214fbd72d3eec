"""Delimited text: wide tables (one row per station and time, one column per variable) or long ones.

A long table has one value per row. What the deployment does not declare is inferred from the file's beginning
(`ingest.formats.csv_sniffer`). A file without a station column holds one station, named like the file.
"""

import re
from collections.abc import Collection
from dataclasses import replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from hypergrid.core.errors import InvalidUnit
from hypergrid.core.times import floor_to_microsecond
from hypergrid.core.units import convert
from ingest.formats import timestamps
from ingest.formats.base import (
    BLANKS,
    FORMATS,
    MISSING_WORDS,
    VALUE,
    Format,
    Layout,
    Parsed,
    ReadOptions,
    TextForm,
    Unreadable,
)
from ingest.formats.compass import compass_words, is_direction
from ingest.formats.csv_lines import (
    LABEL,
    Lines,
    array_of,
    compact_codes,
    gather,
    labels,
    name_rows,
    numbers,
    parse_number,
    read_table,
)
from ingest.formats.csv_sniffer import UTF8, Dialect, read_head, to_utf8
from ingest.formats.file_metadata import FileMetadata, column_of, unit_of, variable_name
from ingest.formats.timestamps import EPOCHS, ISO, SHARE, AmbiguousDates, fits

QARTOD: Final = (("1", 1), ("2", 2), ("3", 3), ("4", 4), ("9", 9))
"""Default meaning of a flag column: QARTOD flags."""
NO_VALUE: Final = MISSING_WORDS | {""}
"""Texts of cells that do not show whether a column has numbers."""


def layout(head: bytes, file: str, options: ReadOptions) -> Layout:
    """Read the header.

    Raises
    ------
    Unreadable
        A header with a time column is missing, it repeats a name, or its dates are ambiguous.
    """
    dialect = read_head(head, options)
    form = dialect.form
    special = {dialect.station_column, *form.time_columns, form.flag_column, form.arrival_column}
    if form.long:
        roles = {form.variable_column, form.value_column, form.unit_column, form.flag_column} - {""}
        if missing := sorted(roles - set(dialect.header)):
            listed = ", ".join(map(repr, missing))
            raise Unreadable(f"no header: columns {listed} are needed; it has {', '.join(dialect.header)[:120]!r}")
        special |= roles
    present = [name for name in dialect.header if name not in special]
    if form.across:
        return _layout_across(dialect, options, present)
    # Words of one letter stand for much else in columns of another name.
    placed = [name for name in present if not form.long and is_direction(name)]
    compass = {name: words for name in placed if (words := compass_words(dialect.cells(name)))}
    if form.long:
        # Known only as far as the deployment lists the names in rows; the value column is not a variable.
        wanted: tuple[str, ...] = options.columns or ()
    elif options.columns is None:
        texts = _columns_of_text(dialect, options) - compass.keys()
        wanted = tuple(name for name in present if name not in texts)
    else:
        wanted = tuple(name for name in present if name in options.columns)
    compass = {name: words for name, words in compass.items() if name in wanted}
    ignored = tuple(name for name in present if name not in wanted)
    if form.unit_column in dialect.header and options.columns is None:
        # Without declared columns, values are converted to the unit that a variable has first.
        metadata = _file_metadata(dialect, wanted, compass)
        units = tuple((name, column.unit or "") for name, column in metadata.columns.items())
        form = replace(form, targets=units)
    resolved = replace(options, station_column=dialect.station_column, time_column=form.time_columns[0], text=form)
    station = form.station or _station_of(file, options.station_pattern)
    return Layout(
        dialect.header, wanted, ignored, resolved, station, dialect.data_start, dialect.lines_before,
        _file_metadata(dialect, wanted, compass), form.long, compass,
        notes=(*dialect.notes, *(f"{name!r} has directions as words, which are read as degrees" for name in compass)),
        zoned=_is_zoned(dialect), repeated=dialect.repeated,
    )  # fmt: skip


def _layout_across(head: Dialect, options: ReadOptions, present: list[str]) -> Layout:
    """Return the layout of a table with a column per station."""
    stations = tuple(present)
    resolved = replace(options, time_column=head.form.time_columns[0], text=head.form)
    note = f"each of {len(stations)} columns is a station"
    return Layout(
        head.header, (head.form.across,), (), resolved, "", head.data_start, head.lines_before,
        long=True, detail=stations, notes=(*head.notes, note), zoned=_is_zoned(head), repeated=head.repeated,
    )  # fmt: skip


def _file_metadata(head: Dialect, wanted: tuple[str, ...], compass: Collection[str]) -> FileMetadata:
    """Return the units in a header line or, for a long table, in a column; degrees of directions in words."""
    form = head.form
    units = {name: unit for name, unit in head.units.items() if name in wanted} | dict.fromkeys(compass, "degree")
    if form.unit_column in head.header:
        pairs = zip(head.cells(form.variable_column), head.cells(form.unit_column), strict=True)
        units = {name: unit for name, unit in reversed(list(pairs)) if unit}
    return FileMetadata({name: column_of(variable_name(name), unit) for name, unit in units.items() if unit_of(unit)})


def _is_zoned(head: Dialect) -> bool | None:
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
            raise Unreadable(f"no station: station_pattern {pattern!r} finds none in the file's name {file!r}")
        name = match[1]
    return name.strip() or file


def _columns_of_text(head: Dialect, options: ReadOptions) -> set[str]:
    """Return the columns whose first rows have text and no number: remarks, not readings."""
    text_columns = set()
    for name in head.header:
        cells = [cell for cell in head.cells(name) if cell not in options.nodata and cell.lower() not in NO_VALUE]
        if cells and all(parse_number(cell, head.form.decimal or ".") is None for cell in cells):
            text_columns.add(name)
    return text_columns


def parse(data: bytes, layout: Layout, *, last: bool) -> Parsed:
    """Parse a chunk of whole lines, as defined by `ingest.formats.base.Format`."""
    options, form = layout.options, layout.options.text
    if form.encoding not in (None, UTF8):
        data = to_utf8(data, form.encoding or UTF8)
    if form.across:
        return _parse_across(data, layout, last=last)
    types: dict[str, pa.DataType] = dict.fromkeys(_instant_columns(layout), pa.string())
    label_columns = [name for name in (options.station_column, form.variable_column, form.unit_column, form.flag_column)
              if name in layout.header]  # fmt: skip
    numeric = (form.value_column,) if form.long else layout.columns
    types |= dict.fromkeys(label_columns, LABEL) | dict.fromkeys(numeric, pa.float64())
    lines, table = read_table(data, layout, types, last=last, quotes=form.delimiter != BLANKS)
    stations: tuple[str, ...] = (layout.station,)
    code = np.zeros(len(lines.number), np.int32)
    if options.station_column in layout.header:
        stations, code = labels(table, options.station_column, lines)
    names: tuple[str, ...] = ()
    name_code = code
    if form.long:
        names, name_code = labels(table, form.variable_column, lines, what="variable")
    # Repeated local times are resolved per sensor: by station and, in long tables, by variable.
    group = code.astype(np.int64) * max(1, len(names)) + (name_code if form.long else 0)
    time_ns = timestamps.from_text(_stamps(table, form), options, lines, group=group)
    values = {name: numbers(table, name, lines, options, words=layout.detail) for name in numeric}
    flags = _flags(table, layout, lines)
    arrival_ns = _arrivals(table, layout, lines, group)
    if not form.long:
        return gather(Parsed(stations, code, time_ns, values, flags=flags, arrival_ns=arrival_ns), lines)
    value = _convert_to_wanted_units(table, layout, values[form.value_column], names, name_code, lines)
    parsed = gather(Parsed(stations, code, time_ns, {VALUE: value}, flags=flags, arrival_ns=arrival_ns), lines)
    return name_rows(parsed, names, name_code[lines.is_sound], options.columns)


def read_texts(data: bytes, layout: Layout) -> tuple[dict[str, pa.Array], NDArray[np.int64]]:
    """Return the texts of each column, and the instants [ns since 1970 UTC] of the rows that have one, shape (n,)."""
    form = layout.options.text
    if form.encoding not in (None, UTF8):
        data = to_utf8(data, form.encoding or UTF8)
    types = dict.fromkeys(layout.header, pa.string())
    lines, table = read_table(data, layout, types, last=False, quotes=form.delimiter != BLANKS)
    time_ns = timestamps.from_text(_stamps(table, form), layout.options, lines)
    sound = pa.array(lines.is_sound)
    return {name: array_of(table, name).filter(sound) for name in layout.header}, time_ns[lines.is_sound]


def _parse_across(data: bytes, layout: Layout, *, last: bool) -> Parsed:
    """Parse a table with a column per station to long rows, one for each line and station."""
    options, form, stations = layout.options, layout.options.text, layout.detail
    types = dict.fromkeys(_instant_columns(layout), pa.string()) | dict.fromkeys(stations, pa.float64())
    lines, table = read_table(data, layout, types, last=last, quotes=form.delimiter != BLANKS)
    time_ns = timestamps.from_text(_stamps(table, form), options, lines)
    arrival_ns = _arrivals(table, layout, lines, np.zeros(len(time_ns), np.int64))
    values = np.stack([numbers(table, name, lines, options) for name in stations], axis=1)
    lines.settle(len(stations))
    kept = np.repeat(lines.is_sound[:, None], len(stations), axis=1)
    for at, name in enumerate(stations):
        kept[:, at] &= ~lines.refused.get(name, np.zeros(len(kept), bool))
    row, column = np.nonzero(kept)
    names, code = compact_codes(stations, column.astype(np.int32))
    # A line is a row for each station, and a cell is a row.
    bad = sorted(
        (replace(bad_row, rows=bad_row.rows * len(stations) or 1) for bad_row in lines.bad),
        key=lambda bad_row: bad_row.line,
    )
    return Parsed(
        names, code, time_ns[row], {VALUE: values[kept]}, tuple(bad), lines.count, (form.across,),
        np.zeros(len(row), np.int32), arrival_ns=None if arrival_ns is None else arrival_ns[row],
        line=lines.number[row],
    )  # fmt: skip


def _stamps(table: pa.Table, form: TextForm) -> pa.Array:
    """Return the texts of the time columns, joined by a blank."""
    texts = [array_of(table, column) for column in form.time_columns]
    return texts[0] if len(texts) == 1 else pc.binary_join_element_wise(*texts, " ")


def _instant_columns(layout: Layout) -> tuple[str, ...]:
    """Return the columns whose texts are instants."""
    form = layout.options.text
    return (*form.time_columns, *([form.arrival_column] if form.arrival_column in layout.header else []))


def _arrivals(table: pa.Table, layout: Layout, lines: Lines, group: NDArray[np.int64]) -> NDArray[np.int64] | None:
    """Return when rows arrived [ns since 1970 UTC], in whole microseconds, shape (n,); 0 where that is unreadable."""
    options, form = layout.options, layout.options.text
    if form.arrival_column not in layout.header:
        return None
    # An arrival that cannot be read costs no reading.
    quiet = replace(lines, is_sound=np.ones(len(lines.number), bool), bad=[], refused={}, bad_cells=[])
    like_times = replace(options, time_column=form.arrival_column, text=replace(form, time_format=form.arrival_format))
    arrival_ns = timestamps.from_text(array_of(table, form.arrival_column), like_times, quiet, group=group)
    return np.where(quiet.is_sound, floor_to_microsecond(arrival_ns), 0)


def _flags(table: pa.Table, layout: Layout, lines: Lines) -> NDArray[np.uint8] | None:
    """Return the rows' flags from the source, shape (n,); refuse rows with an unknown flag."""
    form = layout.options.text
    if form.flag_column not in layout.header:
        return None
    known = dict(form.flags or QARTOD)
    texts, code = labels(table, form.flag_column, lines, what=None)
    numbers = np.array([known.get(text, 0) for text in texts] or [0], np.uint8)
    # An empty flag means that the value was not evaluated.
    numbers[[index for index, text in enumerate(texts) if not text and text not in known]] = 2
    flags = numbers[code]
    lines.refuse(
        flags == 0, form.flag_column, lambda row: f"unknown flag: {texts[code[row]][:40]!r}; map it in [feed.flags]"
    )
    return flags


def _convert_to_wanted_units(
    table: pa.Table,
    layout: Layout,
    value: NDArray[np.float64],
    names: tuple[str, ...],
    name_code: NDArray[np.int32],
    lines: Lines,
) -> NDArray[np.float64]:
    """Convert values to the units of the deployment, if each row has its unit."""
    form = layout.options.text
    if form.unit_column not in layout.header or not form.targets:
        return value
    targets = dict(form.targets)
    units, code = labels(table, form.unit_column, lines, what=None)
    converted = value.copy()
    pairs, member = np.unique(name_code.astype(np.int64) * len(units) + code, return_inverse=True)
    for index, pair in enumerate(pairs.tolist()):
        name, unit = names[pair // len(units)], units[pair % len(units)]
        rows = member == index
        if name in targets and unit:
            try:
                converted[rows] = convert(value[rows], unit_of(unit) or unit, targets[name])
            except InvalidUnit as error:
                lines.refuse(rows, form.unit_column, f"wrong unit: {name}: {error}")
    return converted


def sniff(head: bytes, file: str) -> str | None:
    """Recognise a header with a time column, above rows of the same length with time stamps."""
    try:
        dialect = read_head(head, ReadOptions())
    except AmbiguousDates as error:
        # Still this format: `layout` raises the error.
        return f"a table with {error}"
    except Unreadable:
        return None
    stamps = [" ".join(parts) for parts in zip(*map(dialect.cells, dialect.form.time_columns), strict=True)]
    if len(dialect.header) < 2 or not fits(stamps, dialect.form.time_format or ISO):
        return None
    below = [line for line in head[dialect.data_start :].splitlines()[:100] if line.strip()]
    # Minus one, because the last line may be truncated.
    if len(dialect.rows[:100]) < SHARE * (len(below) - 1):
        return None
    time = " and ".join(repr(name) for name in dialect.form.time_columns)
    return f"a table of {len(dialect.header)} columns under a header, with the time in {time}"


FORMATS.add("csv", Format("csv", None, layout, parse, sniff))
