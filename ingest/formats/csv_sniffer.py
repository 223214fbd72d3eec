"""Inference of a text table's form from its beginning: delimiter, header and roles of columns."""

import codecs
import csv
import re
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from charset_normalizer import from_bytes

from ingest.formats.base import BLANKS, ReadOptions, TextForm, Unreadable
from ingest.formats.csv_lines import is_utf8, parse_number
from ingest.formats.file_metadata import (
    ARRIVAL,
    LONG_UNIT,
    LONG_VALUE,
    LONG_VARIABLE,
    STATION,
    STATION_IN_ENGLISH,
    is_unit_cell,
    normalise_name,
    pattern_of,
    time_columns_among,
)
from ingest.formats.timestamps import ISO, SHARE, AmbiguousDates, fits, recognise_form

UTF8: Final = "utf-8"
BYTE_ORDER_MARK: Final = codecs.BOM_UTF8

_WIDE_MARKS: Final = (
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_SINGLE_BYTE: Final = ["cp1252", "latin_1", "iso8859_15", "cp1250", "cp1251", "mac_roman", "cp850"]

DELIMITERS: Final = (",", ";", "\t", "|", BLANKS)
"""Candidate delimiters, in this order."""
NO_HEADER: Final = "no header"
HEADER_WITHIN: Final = 60
"""Number of lines that are searched for a header."""
_DECIMAL_COMMA: Final = re.compile(r"^\s*[+-]?\d+,\d+([eE][+-]?\d+)?\s*$")
_THOUSANDS: Final = re.compile(r"^\s*[+-]?\d{1,3}(,\d{3})+\s*$")
_DECIMAL_POINT: Final = re.compile(r"^\s*[+-]?\d*\.\d+([eE][+-]?\d+)?\s*$")
_DAY: Final = re.compile(r"^\s*(\d{1,4}[-./]){2}\d{1,4}\s*$")
_CLOCK_TEXT: Final = re.compile(r"^\s*\d{1,2}[:.h]\d{2}([:.]\d{2})?\s*$")
_NO_NAME: Final = re.compile(r"(?=[\W_]*\d)[\W\d_]+(?:[eE][+-]?\d+)?|(?i:[+-]?(nan|inf(inity)?))")
"""A text of digits and signs without a letter, and what else is a number."""
_LONGEST_NAME: Final = 500
"""Characters of a column name; longer cells are text."""
_NAMES: Final = {",": "commas", ";": "semicolons", "\t": "tabs", "|": "bars", BLANKS: "blanks"}


class TextLine(NamedTuple):
    """A line at the beginning of a file."""

    row: int
    """Line number from 1."""
    raw: bytes
    """Bytes in UTF-8, without the line end."""
    text: str
    stop: int
    """Offset of the next line [bytes from the file's start]."""


@dataclass(frozen=True)
class Dialect:
    """Inferred form of a table."""

    form: TextForm
    """Complete form, without unset fields."""
    header: tuple[str, ...]
    station_column: str
    data_start: int
    """Offset of the first row [bytes]."""
    lines_before: int
    units: dict[str, str]
    repeated: bytes
    rows: tuple[tuple[str, ...], ...]
    """Cells of those first rows that have the right length."""
    notes: tuple[str, ...] = field(default=())

    def cells(self, column: str) -> list[str]:
        index = self.header.index(column)
        return [row[index].strip() for row in self.rows]


class _HeaderMatch(NamedTuple):
    """A header candidate: index of its first line, number of lines, cells, and delimiter."""

    line_index: int
    lines: int
    names: tuple[str, ...]
    delimiter: str
    time_columns: tuple[str, ...]
    why: str


def read_head(head: bytes, options: ReadOptions) -> Dialect:
    """Infer the form of a table from its first bytes; settings in `options.text` are kept.

    Raises
    ------
    Unreadable
        A header with a time column is missing, it repeats a name, or its dates are ambiguous.
    """
    form = options.text
    encoding, why = (form.encoding, "") if form.encoding else encoding_of(head)
    notes = [f"encoding {encoding}: {why}"] if why else []
    everything = _lines(head, encoding)
    lines = everything[form.skip_lines :]
    # Only the first line counts, because a later one may be a row with a damaged first byte.
    first = next((line.text for line in lines if line.text.strip()), "")
    comment = form.comment if form.comment is not None else "#" * first.startswith("#")
    usable = [line for line in lines if line.text.strip() and not (comment and line.text.startswith(comment))]
    # The header may be in the last comment line, unless the deployment declares comments.
    may = usable if form.comment is not None else [line for line in lines if line.text.strip()]
    header_match = _declared_header(usable, options) or _recognise_header(usable, options)
    if header_match is None and len(may) > len(usable):
        header_match, usable = _recognise_commented_header(may, usable, comment, options)
    if header_match is None:
        wanted = " and ".join(repr(name) for name in form.time_columns or (options.time_column,))
        begins = ", ".join(_split(usable[0].text, form.delimiter or ",")) if usable else ""
        raise Unreadable(f"{NO_HEADER}: a column {wanted} is needed; the first line has {begins[:120]!r}")
    body = usable[header_match.line_index + header_match.lines :]
    header = _name_columns(header_match.names)
    rows = tuple(
        tuple(cells) for line in body if len(cells := _split(line.text, header_match.delimiter)) == len(header)
    )
    # The last line may be truncated, because only the beginning of the file was read.
    rows = rows[:-1] if len(rows) > 3 and not head.endswith(b"\n") else rows
    units = _units(
        usable[header_match.line_index : header_match.line_index + header_match.lines], header_match, header, form
    )
    start = len(BYTE_ORDER_MARK) if head.startswith(BYTE_ORDER_MARK) else 0
    above = [*everything[: form.skip_lines], *usable[: header_match.line_index + header_match.lines]]
    top = usable[header_match.line_index] if header_match.lines == 1 else None
    dialect = Dialect(
        replace(
            form,
            delimiter=header_match.delimiter,
            encoding=encoding,
            comment=comment,
            time_columns=header_match.time_columns,
        ),
        header,
        _station_column(header, options, header_match.time_columns),
        above[-1].stop if above else start,
        above[-1].row if above else 0,
        units,
        top.raw if top else b"",
        rows,
    )
    if form.delimiter is None:
        notes.append(f"cells are separated by {_NAMES[header_match.delimiter]}")
    if header_match.why:
        notes.append(header_match.why)
    return _complete_dialect(dialect, options, notes)


def _lines(head: bytes, encoding: str) -> list[TextLine]:
    offset = len(BYTE_ORDER_MARK) if head.startswith(BYTE_ORDER_MARK) else 0
    lines: list[TextLine] = []
    while offset < len(head) and len(lines) < 300:
        end = head.find(b"\n", offset)
        stop = len(head) if end < 0 else end + 1
        raw = head[offset:stop].rstrip(b"\r\n")
        raw = raw if encoding == UTF8 else to_utf8(raw, encoding)
        lines.append(TextLine(len(lines) + 1, raw, raw.decode(UTF8, errors="surrogateescape"), stop))
        offset = stop
    return lines


def _split(text: str, delimiter: str) -> list[str]:
    if delimiter == BLANKS:
        return text.split()
    try:
        return next(csv.reader([text], delimiter=delimiter), [])
    except csv.Error:
        return [text]


def _declared_header(usable: Sequence[TextLine], options: ReadOptions) -> _HeaderMatch | None:
    """Return the header described by the deployment, None if it describes none."""
    form = options.text
    count = form.header_lines if form.header_lines is not None else (0 if form.names else None)
    if count is None:
        return None
    delimiter = form.delimiter or _likely(usable, count, form.names)
    cells = [_split(line.text, delimiter) for line in usable[:count]]
    names = form.names
    if not names:
        if len(cells) < count or max(form.name_lines) > count:
            raise Unreadable(f"{NO_HEADER}: it has {count} lines, and the file {len(usable)}")
        chosen = [cells[line - 1] for line in form.name_lines]
        width = max(map(len, chosen))
        names = tuple(
            " ".join(part[index].strip() for part in chosen if index < len(part) and part[index].strip())
            for index in range(width)
        )
    columns = _time_columns(names, options)
    return _HeaderMatch(0, count, names, delimiter, columns, "") if columns else None


def _likely(usable: Sequence[TextLine], count: int, names: Sequence[str]) -> str:
    """Return the delimiter that gives most lines the same number of cells."""

    def agreement(delimiter: str) -> tuple[int, int]:
        widths = [len(_split(line.text, delimiter)) for line in usable[count : count + 100]]
        width = len(names) or max(set(widths), key=widths.count, default=0)
        return (widths.count(width) if width > 1 else 0), -DELIMITERS.index(delimiter)

    return max(DELIMITERS, key=agreement)


def _recognise_header(usable: Sequence[TextLine], options: ReadOptions) -> _HeaderMatch | None:
    """Return the first line that names time columns and has as many cells as the rows below."""
    form = options.text
    if form.header_lines is not None or form.names:
        return None
    best: tuple[float, _HeaderMatch] | None = None
    for delimiter in (form.delimiter,) if form.delimiter else DELIMITERS:
        for line_index, line in enumerate(usable[:HEADER_WITHIN]):
            names = tuple(cell.strip() for cell in _split(line.text, delimiter))
            columns = _time_columns(names, options)
            if not columns:
                continue
            below = [_split(row.text, delimiter) for row in usable[line_index + 1 : line_index + 100]]
            agreement = sum(len(row) == len(names) for row in below) / len(below) if below else 0.5
            # A single column agrees with almost any rows.
            agreement -= 0.4 * (len(names) < 2)
            # Earlier delimiters and lines win unless another one is clearly better.
            if best is None or agreement > best[0] + 0.2:
                more = _lines_below(below, names)
                reason = f"line {line.row} is the header" if line.row > 1 else ""
                best = agreement, _HeaderMatch(line_index, 1 + more, names, delimiter, columns, reason)
            if agreement >= 0.5:
                break
        # Other delimiters are not tried if nearly all rows have as many cells as the header.
        if best is not None and best[0] > 0.9:
            break
    return best[1] if best else _header_by_content(usable, options)


def _lines_below(below: Sequence[list[str]], names: Sequence[str]) -> int:
    """Return the number of lines below the names that have units or statistics, but no value."""
    count = 0
    for row in below[:3]:
        if len(row) != len(names) or not any(cell.strip() for cell in row) or not all(map(is_unit_cell, row)):
            break
        count += 1
    return count


def _header_by_content(usable: Sequence[TextLine], options: ReadOptions) -> _HeaderMatch | None:
    """Return a header without a time column by name, above a column of time stamps."""
    form = options.text
    if form.time_columns:
        return None
    for delimiter in (form.delimiter,) if form.delimiter else DELIMITERS:
        for line_index, line in enumerate(usable[:HEADER_WITHIN]):
            names = tuple(cell.strip() for cell in _split(line.text, delimiter))
            if len(names) < 2 or any(len(name) > _LONGEST_NAME or _NO_NAME.fullmatch(name) for name in names):
                continue
            below = [_split(row.text, delimiter) for row in usable[line_index + 1 : line_index + 100]]
            rows = [row for row in below if len(row) == len(names)]
            if not rows or len(rows) < 0.5 * len(below):
                continue
            # A row may have arrived long after it was measured.
            for column in sorted(range(min(3, len(names))), key=lambda at: normalise_name(names[at]) in ARRIVAL):
                form_of = recognise_form([row[column] for row in rows])
                # Epochs do not count, because other numbers may look like them.
                if form_of and not form_of[0].startswith("epoch") and recognise_form([names[column]]) is None:
                    named = _name_columns(names)
                    why = f"{named[column]!r} is the time: {form_of[1]}"
                    return _HeaderMatch(
                        line_index, 1 + _lines_below(below, names), names, delimiter, (named[column],), why
                    )
    return None


def _recognise_commented_header(
    may: Sequence[TextLine], usable: list[TextLine], comment: str, options: ReadOptions
) -> tuple[_HeaderMatch | None, list[TextLine]]:
    """Look for the header in the last comment line above the first row."""
    above = [line for line in may if not usable or line.row < usable[0].row]
    if not above or not comment:
        return None, usable
    bare = above[-1].text.lstrip(comment).strip()
    lines = [above[-1]._replace(text=bare), *usable]
    return _recognise_header(lines, options), lines


def _time_columns(names: Sequence[str], options: ReadOptions) -> tuple[str, ...]:
    stripped = [name.strip() for name in names]
    if options.text.time_columns:
        wanted = options.text.time_columns
        return wanted if all(name in _name_columns(stripped) for name in wanted) else ()
    if options.time_column in stripped and options.time_column != "time":
        return (options.time_column,)
    return time_columns_among(stripped)


def _name_columns(names: Sequence[str]) -> tuple[str, ...]:
    """Return names for all columns; unnamed ones are numbered."""
    column_names = tuple(name.strip() or f"column {number}" for number, name in enumerate(names, 1))
    # Lines were decoded with surrogateescape, which maps invalid bytes to surrogates.
    letters = {letter for name in column_names for letter in name}
    if any("\ud800" <= letter <= "\udfff" for letter in letters):
        raise Unreadable("invalid UTF-8: in the header; set encoding")
    if any(letter < " " for letter in letters):
        raise Unreadable("binary: a control character in the header")
    if twice := sorted(name for name, count in Counter(column_names).items() if count > 1):
        raise Unreadable(f"column named twice: {', '.join(twice)}")
    return column_names


def _units(
    lines: Sequence[TextLine], header_match: _HeaderMatch, header: tuple[str, ...], form: TextForm
) -> dict[str, str]:
    line_index = form.unit_line - 1 if form.unit_line else 1
    is_declared_without = form.unit_line == 0 and form.header_lines is not None
    if is_declared_without or not 0 <= line_index < len(lines):
        return {}
    cells = _split(lines[line_index].text, header_match.delimiter)
    return {name: cell.strip().strip("[]()") for name, cell in zip(header, cells, strict=False) if cell.strip()}


def _station_column(header: Sequence[str], options: ReadOptions, time_columns: Sequence[str]) -> str:
    if options.station_column in header or options.text.station:
        return options.station_column
    taken = {*time_columns, *(options.columns or ())}
    # Where columns are declared, further words would change the stations of earlier readings.
    known = STATION if options.columns is None else STATION_IN_ENGLISH
    return next((n for n in header if normalise_name(n) in known and n not in taken), options.station_column)


def _complete_dialect(head: Dialect, options: ReadOptions, notes: list[str]) -> Dialect:
    """Infer time format, decimal sign and long tables from the first rows."""
    form = head.form
    if clock := _clock_beside(head, options):
        form = replace(form, time_columns=(*form.time_columns, clock))
        head = replace(head, form=form)
        notes.append(f"{clock!r} is the time of day, by its texts")
    decimal = form.decimal
    others = [name for name in head.header if name not in (*form.time_columns, form.arrival_column)]
    if decimal is None:
        cells = [cell for name in others for cell in head.cells(name)]
        if form.delimiter == ",":
            # Quoted cells such as "1,013" are thousands more often than decimals, and refused as bad numbers.
            cells = [cell for cell in cells if not _THOUSANDS.match(cell)]
        commas, points = (sum(bool(p.match(cell)) for cell in cells) for p in (_DECIMAL_COMMA, _DECIMAL_POINT))
        decimal = "," if commas > points else "."
        notes += [f"decimal commas: {commas} of the first cells have one"] if decimal == "," else []
    time_format = form.time_format or pattern_of(form.time_columns, head.cells(form.time_columns[0]))
    if time_format is None:
        stamps = [" ".join(parts) for parts in zip(*map(head.cells, form.time_columns), strict=True)]
        detection = recognise_form(stamps)
        time_format = detection[0] if detection else "iso"
        notes += [f"time: {detection[1]}"] if detection else []
    if head.station_column != options.station_column:
        notes.append(f"{head.station_column!r} is the station, by its name")
    form = replace(form, decimal=decimal, time_format=time_format)
    if form.arrival_column in head.header and form.arrival_format is None:
        form = replace(form, arrival_format=_format_of(head.cells(form.arrival_column), time_format))
    if not form.variable_column:
        form = _long(form, head, options)
        notes += [f"a row is one value: of {form.variable_column!r}, in {form.value_column!r}"] if form.long else []
    return replace(head, form=form, notes=tuple(notes))


def _format_of(texts: Sequence[str], time_format: str) -> str:
    """Return the format of arrivals, as recognised; of ambiguous dates that of the times beside them."""
    try:
        detection = recognise_form(texts)
    except AmbiguousDates as error:
        if fits(texts, time_format):
            return time_format
        raise Unreadable(str(error).replace("set time_format", "set arrival_format")) from error
    return detection[0] if detection else ISO


def _clock_beside(head: Dialect, options: ReadOptions) -> str:
    """Return the column with the time of day if the time column has days only; empty if there is none."""
    form = head.form
    # The columns of a deployment are declared: there, the stamps of earlier readings must not change.
    if options.columns is not None or options.text.time_columns or form.time_format or len(form.time_columns) != 1:
        return ""
    # With one row a day, the time of day beside it is that of a sunrise or an extreme.
    days = [
        tuple(row)
        for row in zip(*map(head.cells, {*form.time_columns, head.station_column} & {*head.header}), strict=True)
    ]
    if len(set(days)) == len(days):
        return ""

    def agree(column: str, pattern: re.Pattern[str]) -> bool:
        texts = [text for text in head.cells(column) if text]
        return bool(texts) and sum(bool(pattern.match(text)) for text in texts) >= SHARE * len(texts)

    if not agree(form.time_columns[0], _DAY):
        return ""
    # Without a colon, a time of day would look like a number.
    colons = [name for name in head.header if any(":" in text or "h" in text for text in head.cells(name))]
    return next((name for name in colons if name not in form.time_columns and agree(name, _CLOCK_TEXT)), "")


def _long(form: TextForm, head: Dialect, options: ReadOptions) -> TextForm:
    """Return the form of a long table if column names and content indicate one."""
    named = {normalise_name(name): name for name in reversed(head.header)}
    variable, value, unit = (
        next((named[name] for name in names if name in named), "") for names in (LONG_VARIABLE, LONG_VALUE, LONG_UNIT)
    )
    if not variable or not value or value in (options.columns or ()):
        return form
    # Names of variables are texts: a column of numbers does not hold them.
    texts = [text for text in head.cells(variable) if text]
    if not texts or sum(parse_number(text, ",") is not None for text in texts) > (1 - SHARE) * len(texts):
        return form
    return replace(form, variable_column=variable, value_column=value, unit_column=form.unit_column or unit)


def ask_about(head: bytes) -> str:
    """Return the question to answer before a file that no format reads can be described.

    Parameters
    ----------
    head
        First bytes of the file, in plain lines.
    """
    if b"\0" in head[:8192]:
        return "it is binary, in a format that is not known: EXPORT it as text, Parquet or NetCDF"
    text = head.decode(UTF8, errors="replace")
    if text.lstrip("\ufeff \r\n\t")[:1] in ("<", "{", "["):
        return (
            "it is XML or JSON in a form that is not known: EXPORT it as a table of text, or as answers of SensorThings"
        )
    lines = [line for line in text.splitlines()[:100] if line.strip() and not line.startswith("#")]
    rows = max((_equal_rows(lines, delimiter) for delimiter in DELIMITERS), key=_count_numbers)
    width = len(rows[0]) if rows else 0
    if width < 2 or len(rows) < SHARE * len(lines) or not _count_numbers(rows):
        return "it is text without a table, which has no readings"
    if sum(parse_number(cell, ",") is None for cell in rows[0]) > width / 2:
        names = ", ".join(repr(cell.strip()) for cell in rows[0][:12]) + (", …" if width > 12 else "")
        return (
            f"WHICH COLUMN holds the times, {names}? Name it in a feed of a deployment file, such as time_column = "
            f"{rows[0][0].strip()!r}; a table without times has no readings"
        )
    hint = ""
    for number in range(width):
        with suppress(AmbiguousDates):
            if form := recognise_form([cells[number] for cells in rows]):
                hint = f"; column {number + 1} may be the time, as {form[1]}"
                break
    return (
        f"WHAT ARE the {width} columns of its rows, such as {lines[0].strip()[:80]!r}? Name them in a feed of a "
        f'deployment file: header_lines = 0, names = ["time", …], time_column = "time"{hint}'
    )


def _equal_rows(lines: Sequence[str], delimiter: str) -> list[list[str]]:
    """Return the cells of the lines that have as many as most."""
    table = [_split(line, delimiter) for line in lines]
    widths = [len(cells) for cells in table]
    width = max(widths, key=widths.count, default=0)
    return [cells for cells in table if len(cells) == width > 1]


def _count_numbers(rows: Sequence[Sequence[str]]) -> int:
    return sum(parse_number(cell, ",") is not None for cells in rows for cell in cells)


def wide_encoding(head: bytes) -> str | None:
    """Return the encoding of text with two or four bytes per character; None for other text."""
    for mark, name in _WIDE_MARKS:
        if head.startswith(mark):
            return name
    sample = head[:4096]
    if len(sample) >= 8 and b"\0" in sample:
        even, odd = sample[0::2].count(0), sample[1::2].count(0)
        # ASCII text in UTF-16 has a NUL in every second byte.
        threshold = 0.9 * (len(sample) // 2)
        for name, nul, other in (("utf-16-le", odd, even), ("utf-16-be", even, odd)):
            if nul > threshold and not other:
                return name
    return None


def has_lines(head: bytes, encoding: str | None) -> bool:
    """Return whether the text can be split at newlines; otherwise it must be rewritten first."""
    if wide_encoding(head) or (encoding is not None and not is_superset_of_ascii(encoding)):
        return False
    return b"\n" in head or b"\r" not in head


def is_superset_of_ascii(encoding: str) -> bool:
    """Return whether ASCII text has the same bytes in the encoding.

    Raises
    ------
    LookupError
        The encoding is unknown.
    """
    plain = "0Az,;\t|\n"
    return plain.encode(encoding) == plain.encode("ascii")


def encoding_of(head: bytes) -> tuple[str, str]:
    """Return the encoding of text with lines, and the reason.

    Text that is not UTF-8 has another encoding if a line of words, or several lines, have invalid bytes and no line
    with non-ASCII bytes is valid UTF-8. A single row of numbers with invalid bytes is damage, which costs that row.
    """
    if head.startswith(BYTE_ORDER_MARK):
        return UTF8, "its byte order mark"
    foreign = [line for line in head.splitlines() if not line.isascii()]
    wrong = [line for line in foreign if not is_utf8(line)]
    # A single line may be damaged.
    if not wrong or len(wrong) < len(foreign) or (len(wrong) == 1 and _is_row(wrong[0])):
        return UTF8, ""
    text = b"\n".join(wrong)
    # A few bytes, such as a degree sign and an umlaut, do not identify the encoding: the most common one is assumed.
    much = sum(byte >= 0x80 for byte in text) >= 64
    best_match = from_bytes(text, cp_isolation=_SINGLE_BYTE, threshold=0.5).best() if much else None
    name = best_match.encoding if best_match is not None else "cp1252"
    return name, f"{len(wrong)} of its first lines are no UTF-8, and are text in {name}"


def _is_row(line: bytes) -> bool:
    return sum(chr(byte).isdigit() for byte in line) > sum(chr(byte).isalpha() for byte in line if byte < 0x80)


def to_utf8(data: bytes, encoding: str) -> bytes:
    """Convert text to UTF-8; bytes that are invalid in the encoding are kept, and are invalid UTF-8."""
    return data.decode(encoding, errors="surrogateescape").encode(UTF8, errors="surrogateescape")
