"""Parquet tables: wide (time and station columns, one column per variable), or long (one value per row).

A long table has columns such as `variable` and `value`, and optionally `unit`. Times are timestamps, ISO 8601 or
epochs. Metadata of columns (units, standard_name, long_name, height_m, statistic) are used. Pieces are runs of row
groups; a null is a reading without a value.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, cast, get_args

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from numpy.typing import NDArray

from hypergrid.core.flags import MEANINGS, NOT_EVALUATED
from hypergrid.core.readings import Statistic
from hypergrid.core.times import SECOND_NS
from ingest.formats import timestamps
from ingest.formats.base import FORMATS, VALUE, DocumentFormat, Layout, Parsed, ReadOptions, TextForm, Unreadable
from ingest.formats.csv_lines import Lines, gather, labels, name_rows, numbers
from ingest.formats.file_metadata import (
    LONG_UNIT,
    LONG_VALUE,
    LONG_VARIABLE,
    STATION,
    TIME,
    ColumnMetadata,
    FileMetadata,
    column_of,
    normalise_name,
)

_PARTED: Final = 8
"""Row groups larger than this many chunks are read in parts."""


def sniff(head: bytes, file: str) -> str | None:
    return "Parquet's signature" if head.startswith(b"PAR1") else None


def _open(path: Path) -> pq.ParquetFile:
    try:
        return pq.ParquetFile(path)
    except (pa.ArrowException, OSError) as error:
        raise Unreadable(f"damaged: it cannot be read as Parquet: {str(error)[:120]}") from error


def layout(path: Path, options: ReadOptions) -> Layout:
    """Read the schema.

    Raises
    ------
    Unreadable
        It is damaged, has no time column, or declares much more than its size allows.
    """
    with _open(path) as file:
        schema, metadata = file.schema_arrow, file.metadata
        largest = max((metadata.row_group(n).total_byte_size for n in range(metadata.num_row_groups)), default=0)
        held = path.stat().st_size
        # Checked first, because a damaged file can declare any size.
        if largest > max(256 << 20, 1000 * held):
            raise Unreadable(f"declares a row group of {largest} bytes and holds {held}; no packing is that good")
        names = tuple(schema.names)
        if len(set(names)) < len(names):
            raise Unreadable("column named twice")
        time = _find_column(names, options.time_column, TIME)
        if not time:
            raise Unreadable(
                f"no times: a column {options.time_column!r} is needed; there are {', '.join(names)[:120]}"
            )
        kind = schema.field(time).type
        if not (_is_text(kind) or _is_number(kind) or pa.types.is_timestamp(kind) or pa.types.is_date(kind)):
            raise Unreadable(f"no times: column {time!r} is of {kind}")
        station = _find_column(names, options.station_column, STATION)
        parts = _long_columns(schema, (time, station))
        known = replace(options, station_column=station, time_column=time)
        if parts is not None:
            column_metadata = {} if not parts[2] else _units(file, parts)
            wanted, _ = options.divide_columns(list(column_metadata))
            return Layout(
                names, wanted, (), known, path.stem, 0, 0, FileMetadata(column_metadata), long=True, detail=parts
            )
        present = [name for name in names if name not in (time, station) and _is_number(schema.field(name).type)]
        wanted, _ = options.divide_columns(present)
        metadata_or_none = {name: _column_metadata(name, schema.field(name).metadata or {}) for name in wanted}
    zone = "UTC" if pa.types.is_timestamp(schema.field(time).type) and schema.field(time).type.tz else None
    ignored = tuple(name for name in names if name not in (*wanted, time, station))
    column_metadata = {name: column for name, column in metadata_or_none.items() if column is not None}
    return Layout(names, wanted, ignored, known, path.stem, 0, 0, FileMetadata(column_metadata, zone=zone))


def _find_column(names: tuple[str, ...], first: str, known: frozenset[str]) -> str:
    return first if first in names else next((name for name in names if normalise_name(name) in known), "")


def _long_columns(schema: pa.Schema, excluded_names: tuple[str, str]) -> tuple[str, str, str] | None:
    """Return variable, value and unit ("" if missing) columns of a long table, else None."""
    variable, value, unit = (
        next((name for name in schema.names if name not in excluded_names and normalise_name(name) in known), "")
        for known in (LONG_VARIABLE, LONG_VALUE, LONG_UNIT)
    )
    if not (variable and value and _is_text(schema.field(variable).type) and _is_number(schema.field(value).type)):
        return None
    return variable, value, unit


def _units(file: pq.ParquetFile, parts: tuple[str, str, str]) -> dict[str, ColumnMetadata]:
    """Return the columns of a long table, one per pair of variable and unit."""
    variable, _, unit = parts
    pairs: set[tuple[str, str]] = set()
    for batch in file.iter_batches(columns=[variable, unit]):
        table = pa.table({"v": batch[variable].cast(pa.string()), "u": batch[unit].cast(pa.string())})
        pairs |= {(row["v"], row["u"] or "") for row in table.group_by(["v", "u"]).aggregate([]).to_pylist()}
    return {f"{name} [{unit}]" if unit else name: column_of(name, unit) for name, unit in sorted(pairs) if name}


def _is_text(kind: pa.DataType) -> bool:
    inner = kind.value_type if pa.types.is_dictionary(kind) else kind
    return bool(pa.types.is_string(inner) or pa.types.is_large_string(inner))


def _is_number(kind: pa.DataType) -> bool:
    return bool(pa.types.is_floating(kind) or pa.types.is_integer(kind) or pa.types.is_decimal(kind))


def _column_metadata(name: str, metadata: Mapping[bytes, bytes]) -> ColumnMetadata | None:
    attributes = {
        key.decode("utf-8", "replace").lower(): value.decode("utf-8", "replace") for key, value in metadata.items()
    }
    unit = attributes.get("units") or attributes.get("unit")
    if unit is None and not {"standard_name", "long_name", "height_m", "statistic"} & set(attributes):
        return None
    statistic = attributes.get("statistic")
    try:
        height_m = float(attributes["height_m"]) if "height_m" in attributes else None
    except ValueError:
        height_m = None
    return column_of(
        name,
        unit,
        standard_name=attributes.get("standard_name"),
        long_name=attributes.get("long_name", ""),
        height_m=height_m,
        statistic=cast("Statistic", statistic) if statistic in get_args(Statistic) else None,
    )


def cut(path: Path, layout: Layout, chunk_bytes: int) -> list[int]:
    """Return bounds in rows: small row groups are combined, and very large ones are split."""
    with _open(path) as file:
        groups = [file.metadata.row_group(n) for n in range(file.metadata.num_row_groups)]
        sizes = [(group.num_rows, group.total_byte_size) for group in groups]
    bounds, row, held = [0], 0, 0
    for rows, size in sizes:
        if held and held + size > chunk_bytes:
            bounds.append(row)
            held = 0
        if size > _PARTED * chunk_bytes:
            # Reading the last part decompresses the whole group, so parts are larger than other pieces.
            step = -(-rows // -(-size // (_PARTED * chunk_bytes)))
            bounds += list(range(row + step, row + rows, step))
        row, held = row + rows, held + size
    return [*bounds, row]


def _rows(file: pq.ParquetFile, columns: list[str], start: int, stop: int) -> pa.Table:
    """Read rows by their number; in partly needed groups, other batches are skipped."""
    batches, row = [], 0
    for number in range(file.metadata.num_row_groups):
        rows = file.metadata.row_group(number).num_rows
        if start <= row and row + rows <= stop:
            batches += file.read_row_group(number, columns=columns).to_batches()
        elif row < stop and start < row + rows:
            at = row
            for batch in file.iter_batches(1 << 16, row_groups=[number], columns=columns):
                first, last = max(0, start - at), min(len(batch), stop - at)
                if first < last:
                    batches.append(batch.slice(first, last - first))
                at += len(batch)
        row += rows
    schema = pa.schema([file.schema_arrow.field(name) for name in columns])
    return pa.Table.from_batches(batches, schema).select(columns) if batches else schema.empty_table()


def parse(path: Path, layout: Layout, start: int, stop: int) -> Parsed:
    """Parse a run of rows."""
    options = layout.options
    parts: tuple[str, str, str] | None = layout.detail
    columns = [options.time_column, *([options.station_column] if options.station_column else [])]
    columns += [name for name in parts if name] if parts is not None else layout.columns
    columns += [options.text.flag_column] if options.text.flag_column in layout.header else []
    columns = list(dict.fromkeys(columns))
    try:
        with _open(path) as file:
            table = _rows(file, columns, start, stop)
    except (pa.ArrowException, OSError) as error:
        raise Unreadable(
            f"damaged: rows {start + 1} to {stop} cannot be read as Parquet: {str(error)[:120]}"
        ) from error
    rows = table.num_rows
    nothing = np.zeros(rows, np.int64)
    lines = Lines(b"", b"", nothing, nothing, np.arange(1, rows + 1), rows, np.ones(rows, bool))
    stations: tuple[str, ...] = (layout.station,)
    code = np.zeros(rows, np.int32)
    if options.station_column:
        stations, code = labels(pa.table({"station": _text(table[options.station_column])}), "station", lines)
    time_ns = _times(table[options.time_column], options, lines, code)
    if parts is None:
        values = {name: _numbers(table[name], name, options, lines) for name in layout.columns}
        return gather(Parsed(stations, code, time_ns, values), lines)
    variable, value, unit = parts
    names = _text(table[variable])
    if unit:
        given = _text(table[unit])
        named = pc.binary_join_element_wise(names, pc.binary_join_element_wise("[", given, "]", ""), " ")
        names = pc.if_else(pc.equal(given, ""), names, named)
    kinds, name_code = labels(pa.table({"variable": names}), "variable", lines, what="variable")
    values = {VALUE: _numbers(table[value], value, options, lines)}
    parsed = gather(Parsed(stations, code, time_ns, values, flags=_flags(table, options)), lines)
    return name_rows(parsed, kinds, name_code[lines.is_sound], options.columns)


def _flags(table: pa.Table, options: ReadOptions) -> NDArray[np.uint8] | None:
    """Return QARTOD flags of the rows, if the deployment names their column and it is of integers."""
    name = options.text.flag_column
    if name not in table.column_names or not pa.types.is_integer(table[name].type):
        return None
    flags = np.asarray(table[name].fill_null(NOT_EVALUATED).to_numpy(), np.int64)
    return np.where(np.isin(flags, list(MEANINGS)), flags, NOT_EVALUATED).astype(np.uint8)


def _text(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a column as text, "" for null."""
    if pa.types.is_dictionary(column.type):
        column = column.cast(column.type.value_type)
    return pc.fill_null(column.cast(pa.string()), "")


def _numbers(column: pa.ChunkedArray, name: str, options: ReadOptions, lines: Lines) -> NDArray[np.float64]:
    values = np.asarray(column.cast(pa.float64(), safe=False).to_numpy(), np.float64)
    return numbers(pa.table({name: values}), name, lines, options)


def _times(
    column: pa.ChunkedArray, options: ReadOptions, lines: Lines, group: NDArray[np.integer[Any]]
) -> NDArray[np.int64]:
    name, kind = options.time_column, column.type
    null = np.asarray(column.is_null().to_numpy(), bool)
    lines.refuse(null, name, f"{timestamps.BAD_TIME}: there is none")
    options = replace(options, text=TextForm())
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        column = column.cast(pa.timestamp("s")) if pa.types.is_date(kind) else column
        plain = pa.timestamp("ns", getattr(kind, "tz", None))
        try:
            whole = column.cast(plain)
        except pa.ArrowInvalid:
            # Some lie outside the range of nanoseconds.
            coarse = column.cast(pa.timestamp("s", getattr(kind, "tz", None)), safe=False)
            seconds = np.asarray(coarse.cast(pa.int64()).fill_null(0).to_numpy(), np.int64)
            outside = (seconds < timestamps.EARLIEST_NS // SECOND_NS) | (seconds >= timestamps.LATEST_NS // SECOND_NS)
            lines.refuse(outside, name, timestamps.OUT_OF_RANGE)
            whole = pc.if_else(pa.array(~outside), column, pa.scalar(None, column.type)).cast(plain)
        time_ns = np.asarray(whole.cast(pa.int64()).fill_null(0).to_numpy(), np.int64)
        if getattr(kind, "tz", None) is None:
            time_ns = timestamps.localise(time_ns, options, lines, group)
        lines.refuse(
            (time_ns < timestamps.EARLIEST_NS) | (time_ns >= timestamps.LATEST_NS), name, timestamps.OUT_OF_RANGE
        )
        return time_ns
    if _is_text(kind):
        texts = _text(column).combine_chunks()
        return timestamps.from_text(texts, options, lines, group=group)
    if _is_number(kind):
        number = np.asarray(column.cast(pa.float64(), safe=False).fill_null(0).to_numpy(), np.float64)
        # The largest number determines the unit of all, because small epochs are ambiguous.
        largest = float(np.abs(number).max()) if len(number) else 0.0
        unit = timestamps.epoch_unit_ns(largest)
        if pa.types.is_integer(kind):
            whole_numbers = np.asarray(column.fill_null(0).cast(pa.int64(), safe=False).to_numpy(), np.int64)
            return timestamps.from_epoch(whole_numbers, name, lines, unit_ns=unit)
        return timestamps.from_epoch(np.rint(number * (unit / 1000)).astype(np.int64), name, lines, unit_ns=1000)
    raise TypeError(f"column {name!r} is of {kind}, which layout refuses")


FORMATS.add("parquet", DocumentFormat("parquet", layout, cut, parse, sniff))
