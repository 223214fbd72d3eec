"""Splitting of a chunk of text into well-formed lines, and parsing of their fields with pyarrow.

pyarrow converts a whole chunk or nothing. A chunk is therefore first read as numbers (the fast path, about 70 MB/s on
one core); if that fails, it is read as text, invalid numbers are found by a pattern, and the rest is converted (the
careful path, still by column and never by line).
"""

import csv
import io
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
from numpy.typing import NDArray

from ingest.formats.base import BLANKS, LARGEST, TEXT_MOST, TOO_LARGE, BadRow, Layout, Parsed, ReadOptions, TextForm

WRONG_COUNT: Final = "wrong number of fields"

_NEWLINE: Final = ord("\n")
_UNEVEN: Final = (b"  ", b"\t", b"\n ", b" \n", b" \r\n")
_BLANKS: Final = re.compile(rb"[ \t]+")
_EDGES: Final = re.compile(rb"(?m)^ | (?=\r?$)")


@dataclass(eq=False)
class Lines:
    """Well-formed lines of a chunk, n of them, and those refused so far.

    A parser refuses further lines with `refuse` when it checks fields; the first reason for a line is kept.
    """

    source: bytes
    """The chunk, with lines ended by newlines only."""
    data: bytes
    """The n remaining lines, each ended by a newline."""
    starts: NDArray[np.int64]
    """Their start offsets in `source`, shape (n,)."""
    stops: NDArray[np.int64]
    """Their end offsets, without the newline, shape (n,)."""
    number: NDArray[np.int64]
    """Line number from 1, shape (n,)."""
    count: int
    """Number of lines of the chunk."""
    is_sound: NDArray[np.bool_]
    """Lines that were not refused, shape (n,)."""
    bad: list[BadRow] = field(default_factory=list)
    refused: dict[str, NDArray[np.bool_]] = field(default_factory=dict)
    """Refused cells by column, shape (n,) each."""
    bad_cells: list[tuple[int, BadRow]] = field(default_factory=list)
    """Each refused cell, with the index of its line."""

    def refuse(
        self, rows: NDArray[np.bool_] | NDArray[np.intp] | list[int], column: str, reason: str | Callable[[int], str]
    ) -> None:
        """Refuse lines, by mask [shape (n,)] or by index, for `reason`, given as text or by row."""
        chosen = np.zeros(len(self.is_sound), bool)
        chosen[rows] = True
        if not chosen.any():
            return
        for row in np.flatnonzero(chosen & self.is_sound).tolist():
            text = show(self.source[self.starts[row] : self.stops[row]])
            why = reason if isinstance(reason, str) else reason(row)
            self.bad.append(BadRow(int(self.number[row]), column, text, why))
        self.is_sound &= ~chosen

    def refuse_cells(self, rows: NDArray[np.bool_], column: str, reason: str | Callable[[int], str]) -> None:
        """Refuse the cells of one column, by mask [shape (n,)]; their lines are kept, as is the first reason."""
        known = self.refused.get(column)
        chosen = rows & self.is_sound if known is None else rows & self.is_sound & ~known
        if not chosen.any():
            return
        for row in np.flatnonzero(chosen).tolist():
            text = show(self.source[self.starts[row] : self.stops[row]])
            why = reason if isinstance(reason, str) else reason(row)
            self.bad_cells.append((row, BadRow(int(self.number[row]), column, text, why, rows=0)))
        self.refused[column] = chosen if known is None else known | chosen

    def settle(self, width: int) -> None:
        """Refuse the lines that have no cell left of the `width` that are numbers, and list the cells of others."""
        lost = np.zeros(len(self.is_sound), bool)
        if len(self.refused) == width:
            lost = np.logical_and.reduce(list(self.refused.values()))
        for row, bad in self.bad_cells:
            if not self.is_sound[row]:
                continue
            if lost[row]:
                bad = replace(bad, rows=1)
                self.is_sound[row] = False
            self.bad.append(bad)
        self.bad_cells.clear()


def single_blanks(data: bytes) -> bytes:
    """Replace runs of blanks and tabs by one blank, and remove them at line edges."""
    # Searching for each of these marks is five times faster than one pattern for all.
    uneven = data.startswith(b" ") or data.endswith(b" ") or any(mark in data for mark in _UNEVEN)
    return _EDGES.sub(b"", _BLANKS.sub(b" ", data)) if uneven else data


def show(text: bytes) -> str:
    """Return the beginning of a line as printable text, for any bytes."""
    decoded = text[: 4 * TEXT_MOST].decode("utf-8", errors="backslashreplace").replace("\0", "\\x00")
    return decoded[:TEXT_MOST]


def is_utf8(text: bytes) -> bool:
    try:
        text.decode("utf-8")
    except UnicodeDecodeError:
        return False
    return True


def read_table(
    data: bytes, layout: Layout, types: Mapping[str, pa.DataType], *, last: bool, quotes: bool = False
) -> tuple[Lines, pa.Table]:
    """Return the well-formed lines of a chunk, and their columns of `types`; errors as in `read_columns`.

    Parameters
    ----------
    data
        Whole lines; only the last one of the file may lack its newline.
    last
        The chunk ends at the end of its file: a last line that is too short and has no newline was cut off.
    quotes
        Whether double quotes may enclose a field.
    """
    lines = read_lines(
        single_blanks(data) if layout.options.text.delimiter == BLANKS else data, layout, quotes=quotes, last=last
    )
    return lines, read_columns(lines, layout, types, quotes=quotes)


def read_lines(source: bytes, layout: Layout, *, quotes: bool, last: bool) -> Lines:
    """Return the lines of a chunk with a field for each column of the layout; blank lines and comments are skipped.

    Parameters are those of `read_table`.
    """
    delimiter, fields = separator(layout.options.text), len(layout.header)
    if b"\r" in source:
        source = source.replace(b"\r\n", b"\n")
        if b"\r" in source:
            source = _part_at_returns(source, delimiter.encode(), fields)
    # Counting delimiter bytes finds malformed lines with exact line numbers, before pyarrow converts the others.
    octets = np.frombuffer(source, np.uint8)
    stops = np.flatnonzero(octets == _NEWLINE)
    open_end = len(source) > 0 and octets[-1] != _NEWLINE
    if open_end:
        stops = np.append(stops, len(source))
    starts = np.concatenate([np.zeros(min(1, len(stops)), np.int64), stops[:-1] + 1])
    delimiters = np.flatnonzero(octets == ord(delimiter))
    field_counts = np.searchsorted(delimiters, stops) - np.searchsorted(delimiters, starts) + 1
    lines = Lines(source, b"", starts, stops, np.arange(1, len(starts) + 1), len(starts), stops != starts)
    if delimiter != "\t":
        # Rarely more than a few lines: those with one field, which may consist of blanks.
        for row in np.flatnonzero((field_counts == 1) & lines.is_sound).tolist():
            lines.is_sound[row] = bool(source[starts[row] : stops[row]].strip())
    for text, whole in (((layout.options.text.comment or "").encode(), False), (layout.repeated, True)):
        if text and text in source:
            lines.is_sound[_lines_beginning_with(lines, octets, text, whole=whole)] = False
    _refuse_bytes(lines, octets)
    if quotes and b'"' in source:
        _count_quoted(lines, delimiter, field_counts)
    wrong = field_counts != fields
    if last and open_end and wrong[-1] and field_counts[-1] < fields:
        lines.refuse([len(wrong) - 1], "", f"cut off: the file ends after {field_counts[-1]} of {fields} fields")
    lines.refuse(wrong, "", lambda row: f"{WRONG_COUNT}: {fields} needed, {field_counts[row]} found")
    return _left(lines, octets, open_end=open_end)


def _part_at_returns(source: bytes, delimiter: bytes, fields: int) -> bytes:
    """Turn carriage returns that separate whole rows into line ends; others are damage, and are kept."""
    lines = source.split(b"\n")
    for index, line in enumerate(lines):
        if b"\r" in line and all(part.count(delimiter) == fields - 1 for part in line.rstrip(b"\r").split(b"\r")):
            lines[index] = line.rstrip(b"\r").replace(b"\r", b"\n")
    return b"\n".join(lines)


def _lines_beginning_with(lines: Lines, octets: NDArray[np.uint8], text: bytes, *, whole: bool) -> NDArray[np.intp]:
    """Return the indices of lines that begin with a text or, if `whole`, are equal to it."""
    length = lines.stops - lines.starts
    rows = np.flatnonzero(length == len(text) if whole else length >= len(text))
    for offset, byte in enumerate(text):
        rows = rows[octets[lines.starts[rows] + offset] == byte]
    return rows


def _refuse_bytes(lines: Lines, octets: NDArray[np.uint8]) -> None:
    """Refuse lines with bytes that are invalid in text."""
    source = lines.source
    for byte, what in ((b"\0", "a NUL byte"), (b"\r", "a carriage return inside a line")):
        if byte in source:
            rows = np.searchsorted(lines.stops, np.flatnonzero(octets == ord(byte)))
            lines.refuse(rows, "", f"binary: {what}")
    if not source.isascii():
        # Only lines with non-ASCII bytes are decoded.
        suspects = np.unique(np.searchsorted(lines.stops, np.flatnonzero(octets >= 0x80))).tolist()
        foreign = [row for row in suspects if not is_utf8(source[lines.starts[row] : lines.stops[row]])]
        lines.refuse(foreign, "", "invalid UTF-8")


def _count_quoted(lines: Lines, delimiter: str, field_counts: NDArray[np.int64]) -> None:
    """Recount the fields of lines with quotes; refuse lines with an open quote."""
    # Quotes may hide a delimiter; only lines with quotes go through the slow csv reader.
    quotes = np.flatnonzero(np.frombuffer(lines.source, np.uint8) == ord('"'))
    rows, number = np.unique(np.searchsorted(lines.stops, quotes), return_counts=True)
    lines.refuse(rows[number % 2 == 1], "", f"{WRONG_COUNT}: a quote that is not closed on its line")
    for row in rows[lines.is_sound[rows]].tolist():
        text = lines.source[lines.starts[row] : lines.stops[row]].decode("utf-8")
        field_counts[row] = len(next(csv.reader([text], delimiter=delimiter)))


def _left(lines: Lines, octets: NDArray[np.uint8], *, open_end: bool) -> Lines:
    if lines.is_sound.all():
        data = lines.source + b"\n" if open_end else lines.source
    else:
        lengths = np.diff(np.append(lines.starts, len(octets)))
        data = octets[np.repeat(lines.is_sound, lengths)].tobytes()
        data += b"\n" if data and not data.endswith(b"\n") else b""
    kept = lines.is_sound
    starts, stops, number = lines.starts[kept], lines.stops[kept], lines.number[kept]
    return Lines(lines.source, data, starts, stops, number, lines.count, np.ones(len(number), bool), lines.bad)


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
    table: pa.Table,
    column: str,
    lines: Lines,
    options: ReadOptions,
    *,
    words: Mapping[str, Mapping[str, str]] | None = None,
) -> NDArray[np.float64]:
    """Return a column as numbers, shape (n,), NaN for missing values; refuse cells without a finite number.

    `words` has the numbers of words in lower case, by column.
    """
    array, decimal = array_of(table, column), options.text.decimal or "."
    if pa.types.is_string(array.type) and column in (words := words or {}):
        array = _as_numbers(array, words[column], decimal)
    if pa.types.is_string(array.type):
        array = _parse_carefully(array, column, lines, options.nodata, decimal)
    values = array.to_numpy(zero_copy_only=False)
    lines.refuse_cells(np.isinf(values), column, f"{BAD_NUMBER}: infinite")
    for number in numeric_texts(options.nodata, decimal):
        # A station may write -999 as -999.000, so nodata is compared by value, too.
        if (values == number).any():
            values = np.where(values == number, np.nan, values)
    lines.refuse_cells(np.isfinite(values) & (np.abs(values) > LARGEST), column, TOO_LARGE)
    return np.where(lines.refused[column], np.nan, values) if column in lines.refused else values


def _as_numbers(text: pa.Array, words: Mapping[str, str], decimal: str) -> pa.Array:
    """Return the texts with known words replaced by their numbers."""
    keys = pa.array(list(words))
    at = pc.index_in(pc.utf8_lower(pc.utf8_trim_whitespace(text)), keys)
    return pc.coalesce(pc.take(pa.array([number.replace(".", decimal) for number in words.values()]), at), text)


def _parse_carefully(text: pa.Array, column: str, lines: Lines, nodata: tuple[str, ...], decimal: str) -> pa.Array:
    text = pc.utf8_trim_whitespace(text)
    nothing = pc.or_(pc.is_in(text, pa.array([*nodata, ""], pa.string())), pc.match_substring_regex(text, _NAN))
    usable = pc.match_substring_regex(text, _NUMBER if decimal == "." else _NUMBER.replace("\\.", ","))
    wrong = pc.invert(pc.or_(usable, nothing)).to_numpy(zero_copy_only=False)
    lines.refuse_cells(wrong, column, lambda row: f"{BAD_NUMBER}: {_quoted(text, row)} in {column}")
    digits = pc.utf8_ltrim(pc.if_else(pc.and_(usable, pc.invert(nothing)), text, None), characters="+")
    if decimal != ".":
        digits = pc.replace_substring(digits, decimal, ".")
    return digits.cast(pa.float64())


def integers(table: pa.Table, column: str, lines: Lines) -> NDArray[np.int64]:
    """Return a column as integers, shape (n,); refuse lines without one."""
    array = array_of(table, column)
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
    array = array_of(table, column)
    if not pa.types.is_dictionary(array.type):
        array = array.dictionary_encode()
    names = tuple(name.strip() for name in array.dictionary.to_pylist())
    code = array.indices.to_numpy(zero_copy_only=False).astype(np.int32, copy=False)
    empty = [index for index, name in enumerate(names) if not name]
    if empty and what is not None:
        lines.refuse(np.isin(code, empty), column, f"no {what}: the column {column} is empty")
    return names, code


def array_of(table: pa.Table, column: str) -> pa.Array:
    joined = table[column].combine_chunks()
    # combine_chunks of a column without rows stays chunked in some versions of pyarrow.
    return joined if isinstance(joined, pa.Array) else pa.concat_arrays(joined.chunks or [pa.array([], joined.type)])


def gather(rows: Parsed, lines: Lines) -> Parsed:
    """Return the rows that were not refused, with the distinct stations that they have; `bad` is read from `lines`."""
    lines.settle(len(rows.values))
    code, time_ns, values, flags, arrival_ns = rows.code, rows.time_ns, rows.values, rows.flags, rows.arrival_ns
    kept, number, refused = lines.is_sound, lines.number, lines.refused
    if not kept.all():
        number = number[kept]
        code, time_ns = code[kept], time_ns[kept]
        values = {name: column[kept] for name, column in values.items()}
        flags = flags if flags is None else flags[kept]
        arrival_ns = arrival_ns if arrival_ns is None else arrival_ns[kept]
        refused = {name: cells[kept] for name, cells in refused.items()}
    refused = {name: cells for name, cells in refused.items() if cells.any()}
    names, code = compact_codes(rows.stations, code)
    bad = tuple(sorted(lines.bad, key=lambda row: row.line))
    return Parsed(
        names, code, time_ns, values, bad, lines.count,
        arrival_ns=arrival_ns, flags=flags, line=number, refused=refused,
    )  # fmt: skip


def name_rows(
    parsed: Parsed, names: tuple[str, ...], name_code: NDArray[np.int32], columns: tuple[str, ...] | None
) -> Parsed:
    """Name the variables of long rows; rows of names that are not among `columns`, if given, are dropped."""
    unmapped = tuple(sorted({names[i] for i in np.unique(name_code)} - set(names if columns is None else columns)))
    if unmapped:
        kept = ~np.isin(name_code, [index for index, name in enumerate(names) if name in unmapped])
        stations, code = compact_codes(parsed.stations, parsed.code[kept])
        keys = ("time_ns", "arrival_ns", "flags", "line")
        rows = {key: each[kept] for key in keys if (each := getattr(parsed, key)) is not None}
        values = {name: column[kept] for name, column in parsed.values.items()}
        parsed, name_code = replace(parsed, stations=stations, code=code, values=values, **rows), name_code[kept]
    present, name_code = compact_codes(names, name_code)
    return replace(parsed, names=present, name_code=name_code, unmapped=unmapped)


def compact_codes(names: tuple[str, ...], code: NDArray[np.int32]) -> tuple[tuple[str, ...], NDArray[np.int32]]:
    """Return the distinct names that are used, and the code as an index into them."""
    present = np.unique(code)
    new_codes = {name: number for number, name in enumerate(dict.fromkeys(names[index] for index in present.tolist()))}
    recoding = np.array([new_codes.get(name, 0) for name in names] or [0], np.int32)
    return tuple(new_codes), recoding[code]


@lru_cache(maxsize=64)
def numeric_texts(texts: tuple[str, ...], decimal: str = ".") -> frozenset[float]:
    numbers = (parse_number(text, decimal) for text in texts)
    return frozenset(number for number in numbers if number is not None and np.isfinite(number))


def parse_number(text: str, decimal: str = ".") -> float | None:
    try:
        return float(text.replace(decimal, "."))
    except ValueError:
        return None


def _quoted(text: pa.Array, row: int) -> str:
    return repr(text[row].as_py()[:40])
