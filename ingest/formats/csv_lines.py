"""Splitting of a chunk into well-formed lines, without parsing their fields."""

import csv
import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import numpy as np
from numpy.typing import NDArray

from ingest.formats.base import TEXT_MOST, BadRow

WRONG_COUNT: Final = "wrong number of fields"
CUT_OFF: Final = "cut off"
BINARY: Final = "binary"
INVALID_UTF8: Final = "invalid UTF-8"

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

    def refuse(self, mask: NDArray[np.bool_], column: str, reason: str | Callable[[int], str]) -> None:
        """Refuse the lines of `mask` [shape (n,)] for `reason`, given as text or by row."""
        for row in np.flatnonzero(mask & self.is_sound).tolist():
            text = show(self.source[self.starts[row] : self.stops[row]])
            why = reason if isinstance(reason, str) else reason(row)
            self.bad.append(BadRow(int(self.number[row]), column, text, why))
        self.is_sound &= ~mask

    def refused(self) -> tuple[BadRow, ...]:
        """Return the refused lines in order."""
        return tuple(sorted(self.bad, key=lambda row: row.line))


def single_blanks(data: bytes) -> bytes:
    """Replace runs of blanks and tabs by one blank, and remove them at line edges."""
    # Searching for each of these marks is five times faster than one pattern for all.
    uneven = data.startswith(b" ") or data.endswith(b" ") or any(mark in data for mark in _UNEVEN)
    return _EDGES.sub(b"", _BLANKS.sub(b" ", data)) if uneven else data


def show(text: bytes) -> str:
    """Return the beginning of a line as printable text, for any bytes."""
    decoded = text[: 4 * TEXT_MOST].decode("utf-8", errors="backslashreplace").replace("\0", "\\x00")
    return decoded[:TEXT_MOST]


def read_lines(
    source: bytes,
    *,
    delimiter: str,
    fields: int,
    quotes: bool,
    last: bool,
    comment: bytes = b"",
    repeated: bytes = b"",
) -> Lines:
    """Return the lines of a chunk that have `fields` fields; blank lines are skipped.

    Parameters
    ----------
    source
        Whole lines; only the last one of the file may lack its newline.
    delimiter, quotes
        Field delimiter, and whether double quotes may enclose a field.
    last
        The chunk ends at the end of its file: a last line that is too short and has no newline was cut off.
    comment, repeated
        Prefix of comment lines, and a whole line, which are skipped like blank ones; empty: none.
    """
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
    lines = Lines(source, b"", starts, stops, np.arange(1, len(starts) + 1), len(starts), np.ones(len(starts), bool))

    blank = stops == starts
    if delimiter != "\t" and (field_counts == 1).any():
        # Rarely more than a few lines: those with one field, which may consist of blanks.
        for row in np.flatnonzero((field_counts == 1) & ~blank).tolist():
            blank[row] = not source[starts[row] : stops[row]].strip()
    for text, whole in ((comment, False), (repeated, True)):
        if text and text in source:
            blank |= _lines_beginning_with(lines, octets, text, whole=whole)
    lines.is_sound &= ~blank
    _refuse_bytes(lines, octets)
    if quotes and b'"' in source:
        _count_quoted(lines, delimiter, field_counts)
    wrong = field_counts != fields
    if last and open_end and wrong[-1] and field_counts[-1] < fields:
        reason = f"{CUT_OFF}: the file ends after {field_counts[-1]} of {fields} fields"
        lines.refuse(_only(len(wrong), len(wrong) - 1), "", reason)
    lines.refuse(wrong, "", lambda row: f"{WRONG_COUNT}: {fields} needed, {field_counts[row]} found")
    return _left(lines, octets, open_end=open_end)


def _part_at_returns(source: bytes, delimiter: bytes, fields: int) -> bytes:
    """Turn carriage returns that separate whole rows into line ends; others are damage, and are kept."""
    lines = source.split(b"\n")
    for index, line in enumerate(lines):
        if b"\r" in line and all(part.count(delimiter) == fields - 1 for part in line.rstrip(b"\r").split(b"\r")):
            lines[index] = line.rstrip(b"\r").replace(b"\r", b"\n")
    return b"\n".join(lines)


def _lines_beginning_with(lines: Lines, octets: NDArray[np.uint8], text: bytes, *, whole: bool) -> NDArray[np.bool_]:
    """Return which lines begin with a text or, if `whole`, are equal to it."""
    length = lines.stops - lines.starts
    mask = length == len(text) if whole else length >= len(text)
    rows = np.flatnonzero(mask)
    for offset, byte in enumerate(text):
        rows = rows[octets[lines.starts[rows] + offset] == byte]
    mask[:] = False
    mask[rows] = True
    return mask


def _refuse_bytes(lines: Lines, octets: NDArray[np.uint8]) -> None:
    """Refuse lines with bytes that are invalid in text."""
    source, size = lines.source, len(lines.starts)

    def having(byte: int) -> NDArray[np.bool_]:
        mask = np.zeros(size, bool)
        mask[np.searchsorted(lines.stops, np.flatnonzero(octets == byte))] = True
        return mask

    if b"\0" in source:
        lines.refuse(having(0), "", f"{BINARY}: a NUL byte")
    if b"\r" in source:
        lines.refuse(having(ord("\r")), "", f"{BINARY}: a carriage return inside a line")
    if not source.isascii():
        foreign = np.zeros(size, bool)
        # Only lines with non-ASCII bytes are decoded.
        suspects = np.unique(np.searchsorted(lines.stops, np.flatnonzero(octets >= 0x80)))
        for row in suspects.tolist():
            try:
                source[lines.starts[row] : lines.stops[row]].decode("utf-8")
            except UnicodeDecodeError:
                foreign[row] = True
        lines.refuse(foreign, "", INVALID_UTF8)


def _count_quoted(lines: Lines, delimiter: str, field_counts: NDArray[np.int64]) -> None:
    """Recount the fields of lines with quotes; refuse lines with an open quote."""
    # Quotes may hide a delimiter; only lines with quotes go through the slow csv reader.
    quotes = np.flatnonzero(np.frombuffer(lines.source, np.uint8) == ord('"'))
    rows, number = np.unique(np.searchsorted(lines.stops, quotes), return_counts=True)
    odd = np.zeros(len(field_counts), bool)
    odd[rows[number % 2 == 1]] = True
    lines.refuse(odd, "", f"{WRONG_COUNT}: a quote that is not closed on its line")
    for row in rows[lines.is_sound[rows]].tolist():
        text = lines.source[lines.starts[row] : lines.stops[row]].decode("utf-8")
        field_counts[row] = len(next(csv.reader([text], delimiter=delimiter)))


def _only(size: int, row: int) -> NDArray[np.bool_]:
    mask = np.zeros(size, bool)
    mask[row] = True
    return mask


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
