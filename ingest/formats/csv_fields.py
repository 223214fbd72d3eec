"""Parsing of the fields of well-formed lines with pyarrow, and reasons for those that fail.

pyarrow converts a whole chunk or nothing. A chunk is therefore first read as numbers (the fast path, about 70 MB/s on
one core); if that fails, it is read as text, invalid numbers are found by a pattern, and the rest is converted (the
careful path, still by column and never by line).
"""

import io
from collections.abc import Mapping
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
from numpy.typing import NDArray

from ingest.formats.base import BLANKS, LARGEST, TOO_LARGE, Layout, Parsed, TextForm
from ingest.formats.csv_lines import Lines

BAD_NUMBER: Final = "bad number"

_NUMBER: Final = r"(?i)^[+-]?((\d+\.?\d*|\.\d+)(e[+-]?\d+)?|inf(inity)?)$"
_NAN: Final = r"(?i)^[+-]?nan$"
_INTEGER: Final = r"^[+-]?\d{1,18}$"
LABEL: Final = pa.dictionary(pa.int32(), pa.string())
"""Type of a column of names."""


def read_columns(lines: Lines, layout: Layout, types: Mapping[str, pa.DataType], *, quotes: bool) -> pa.Table:
    """Return the columns of `types`; all as text if any field does not convert.

    Raises
    ------
    RuntimeError
        pyarrow saw other rows than `read_lines` did: an internal error, independent of the file.
    """
    try:
        table = _read(lines, layout, types, quotes=quotes)
        # An empty integer cell becomes null instead of failing.
        converted = not any(pa.types.is_integer(kind) and table[name].null_count for name, kind in types.items())
    except pa.ArrowInvalid:
        converted = False
    if not converted:
        table = _read(lines, layout, dict.fromkeys(types, pa.string()), quotes=quotes)
    if table.num_rows != len(lines.number):
        raise RuntimeError(
            f"{len(lines.number)} lines were found and {table.num_rows} rows read; the parser needs a repair"
        )
    return table


def _read(lines: Lines, layout: Layout, types: Mapping[str, pa.DataType], *, quotes: bool) -> pa.Table:
    if not len(lines.number):
        return pa.schema(list(types.items())).empty_table()
    return pa.csv.read_csv(
        io.BytesIO(lines.data),
        read_options=pa.csv.ReadOptions(column_names=list(layout.header), block_size=len(lines.data) + 1),
        parse_options=pa.csv.ParseOptions(
            delimiter=separator(layout.options.text), quote_char='"' if quotes else False, ignore_empty_lines=True
        ),
        convert_options=pa.csv.ConvertOptions(
            column_types=dict(types),
            include_columns=list(types),
            null_values=[*layout.options.nodata, ""],
            strings_can_be_null=False,
            decimal_point=layout.options.text.decimal or ".",
        ),
    )


def separator(form: TextForm) -> str:
    """Return the delimiter for pyarrow; runs of blanks must already be reduced to one."""
    return " " if form.delimiter == BLANKS else form.delimiter or ","


def numbers(
    table: pa.Table, column: str, lines: Lines, nodata: tuple[str, ...], *, decimal: str = "."
) -> NDArray[np.float64]:
    """Return a column as numbers, shape (n,), NaN for missing values; refuse lines without a finite number."""
    array = _join_chunks(table[column])
    if pa.types.is_string(array.type):
        array = _parse_carefully(array, column, lines, nodata, decimal)
    values = array.to_numpy(zero_copy_only=False)
    if np.isinf(values).any():
        lines.refuse(np.isinf(values), column, f"{BAD_NUMBER}: infinite")
    for number in _numeric_nodata(nodata, decimal):
        # A station may write -999 as -999.000, so nodata is compared by value, too.
        if (values == number).any():
            values = np.where(values == number, np.nan, values)
    beyond = np.isfinite(values) & (np.abs(values) > LARGEST)
    if beyond.any():
        lines.refuse(beyond, column, TOO_LARGE)
    return values


def _parse_carefully(text: pa.Array, column: str, lines: Lines, nodata: tuple[str, ...], decimal: str) -> pa.Array:
    text = pc.utf8_trim_whitespace(text)
    nothing = pc.or_(pc.is_in(text, pa.array([*nodata, ""], pa.string())), pc.match_substring_regex(text, _NAN))
    usable = pc.match_substring_regex(text, _NUMBER if decimal == "." else _NUMBER.replace("\\.", ","))
    wrong = pc.invert(pc.or_(usable, nothing)).to_numpy(zero_copy_only=False)
    lines.refuse(wrong, column, lambda row: f"{BAD_NUMBER}: {_quoted(text, row)} in {column}")
    digits = pc.utf8_ltrim(pc.if_else(pc.and_(usable, pc.invert(nothing)), text, None), characters="+")
    if decimal != ".":
        digits = pc.replace_substring(digits, decimal, ".")
    return digits.cast(pa.float64())


def integers(table: pa.Table, column: str, lines: Lines) -> NDArray[np.int64]:
    """Return a column as integers, shape (n,); refuse lines without one."""
    array = _join_chunks(table[column])
    if pa.types.is_string(array.type):
        text = pc.utf8_trim_whitespace(array)
        usable = pc.match_substring_regex(text, _INTEGER)
        wrong = pc.invert(usable).to_numpy(zero_copy_only=False)
        lines.refuse(
            wrong, column, lambda row: f"{BAD_NUMBER}: {_quoted(text, row)} in {column}, which needs an integer"
        )
        array = pc.utf8_ltrim(pc.if_else(usable, text, "0"), characters="+").cast(pa.int64())
    return array.to_numpy(zero_copy_only=False)


def labels(
    table: pa.Table, column: str, lines: Lines, *, what: str | None = "station"
) -> tuple[tuple[str, ...], NDArray[np.int32]]:
    """Return the distinct names in a column and each row's index; refuse empty ones.

    `what` describes the content for the reason; None: the column may be empty.
    """
    array = _join_chunks(table[column])
    if not pa.types.is_dictionary(array.type):
        array = array.dictionary_encode()
    names = tuple(name.strip() for name in array.dictionary.to_pylist())
    code = array.indices.to_numpy(zero_copy_only=False).astype(np.int32, copy=False)
    empty = [index for index, name in enumerate(names) if not name]
    if empty and what is not None:
        lines.refuse(np.isin(code, empty), column, f"no {what}: the column {column} is empty")
    return names, code


def _join_chunks(column: pa.ChunkedArray) -> pa.Array:
    joined = column.combine_chunks()
    # combine_chunks of a column without rows stays chunked in some versions of pyarrow.
    return joined if isinstance(joined, pa.Array) else pa.concat_arrays(joined.chunks or [pa.array([], column.type)])


def text_of(table: pa.Table, column: str) -> pa.Array:
    return _join_chunks(table[column])


def gather(
    stations: tuple[str, ...],
    code: NDArray[np.int32],
    time_ns: NDArray[np.int64],
    values: Mapping[str, NDArray[np.float64]],
    lines: Lines,
    *,
    flags: NDArray[np.uint8] | None = None,
) -> Parsed:
    """Return the rows that were not refused, with the distinct stations that they have."""
    kept, number = lines.is_sound, lines.number
    if not kept.all():
        number = number[kept]
        code, time_ns = code[kept], time_ns[kept]
        values = {name: column[kept] for name, column in values.items()}
        flags = flags if flags is None else flags[kept]
    names, code = compact_codes(stations, code)
    return Parsed(names, code, time_ns, values, lines.refused(), lines.count, flags=flags, line=number)


def compact_codes(names: tuple[str, ...], code: NDArray[np.int32]) -> tuple[tuple[str, ...], NDArray[np.int32]]:
    """Return the distinct names that are used, and the code as an index into them."""
    present = np.unique(code)
    new_codes = {name: number for number, name in enumerate(dict.fromkeys(names[index] for index in present.tolist()))}
    recoding = np.array([new_codes.get(name, 0) for name in names] or [0], np.int32)
    return tuple(new_codes), recoding[code]


def _numeric_nodata(nodata: tuple[str, ...], decimal: str) -> list[float]:
    values = []
    for text in nodata:
        try:
            values.append(float(text.replace(decimal, ".")))
        except ValueError:
            continue
    return [number for number in values if np.isfinite(number)]


def _quoted(text: pa.Array, row: int) -> str:
    return repr(text[row].as_py()[:40])
