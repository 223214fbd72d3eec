"""The table of formats, and the records that every parser takes and gives."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from hypergrid.core.registry import Registry
from ingest.formats.file_metadata import NO_METADATA, FileMetadata

VALUE: Final = ""
"""The one column of long rows."""
TEXT_MOST: Final = 200
"""Characters of a bad row that are kept; the whole row is in the raw copy of its file."""


class Unreadable(ValueError):
    """A whole file that cannot be read; it becomes one reject of line 0."""


BLANKS: Final = "blanks"
"""In place of a delimiter: any number of blanks and tabs."""


LARGEST: Final = 1e300
"""Greatest number that is read as a measurement: beyond it a change of the unit, or a sum, would be infinite."""
TOO_LARGE: Final = f"bad number: beyond {LARGEST:g}, above which no sum is finite"


@dataclass(frozen=True)
class TextForm:
    """The form of delimited text. What is None or empty is told by the file's beginning."""

    token_name: ClassVar[str] = "TextForm"

    delimiter: str | None = None
    """What parts two cells: one character, or `BLANKS`."""
    decimal: str | None = None
    """"." or ","."""
    encoding: str | None = None
    comment: str | None = None
    """How lines begin that are no rows; empty: there are none."""
    skip_lines: int = 0
    """Lines above the header."""
    header_lines: int | None = None
    """Lines of the header, comments not counted; 0: there is none."""
    name_lines: tuple[int, ...] = (1,)
    """Those of them that name the columns, from 1; the texts of several are joined by a blank."""
    unit_line: int = 0
    """That of them that has the units, from 1; 0: none."""
    names: tuple[str, ...] = ()
    """Names of the columns, in place of those of the header."""
    time_columns: tuple[str, ...] = ()
    """Columns whose texts, joined by blanks, are the time stamp."""
    time_format: str | None = None
    """"iso", "epoch_s", "epoch_ms", "epoch_us", "epoch_ns", or a pattern as of strptime."""
    station: str = ""
    """The station of all rows, where no column names it."""
    variable_column: str = ""
    """Long tables, a row a value: what the value is of."""
    value_column: str = ""
    """Long tables: the value."""
    unit_column: str = ""
    """Long tables: its unit."""
    flag_column: str = ""
    """The flag that the values of a row came with."""
    flags: tuple[tuple[str, int], ...] = ()
    """Texts of the flag column to flags of QARTOD."""
    targets: tuple[tuple[str, str], ...] = ()
    """Long tables with units: the unit that the values of a column are wanted in, by its name."""

    @property
    def long(self) -> bool:
        """Whether a row holds one value."""
        return bool(self.variable_column)


@dataclass(frozen=True)
class ReadOptions:
    """How a feed's files are to be read; what a parser may know of the deployment."""

    token_name: ClassVar[str] = "ReadOptions"

    columns: tuple[str, ...] | None = None
    """Columns that are wanted; None takes every column of numbers."""
    timezone: str = "UTC"
    """Zone of times that carry none: an IANA name, or an offset such as "+02:00"."""
    nodata: tuple[str, ...] = ("NaN",)
    """Texts that mean that the station reported without a value."""
    station_column: str = "station"
    time_column: str = "time"
    station_pattern: str = ""
    """Regular expression whose group is the station in the name of a device or a file; empty: the whole name is."""
    given: tuple[str, ...] = ()
    """Keys that the deployment gives for the feed: what a file tells does not replace them."""
    text: TextForm = TextForm()
    """What is particular to delimited text."""


@dataclass(frozen=True)
class Layout:
    """What the beginning of a file tells about the rest of it, so that its chunks can be parsed apart."""

    header: tuple[str, ...]
    """Names of all columns, in file order."""
    columns: tuple[str, ...]
    """Columns of numbers to read."""
    ignored: tuple[str, ...]
    """Columns that nothing maps."""
    options: ReadOptions
    station: str
    """Station of rows without a station column: the file's name."""
    data_start: int
    """Where the rows begin [bytes from the file's start]."""
    lines_before: int
    """Lines above the first row."""
    metadata: FileMetadata = NO_METADATA
    """What the file tells of its stations and columns."""
    long: bool = False
    """A row is one reading, of the station and the column that it names; `wanted` is then what is known beforehand."""
    detail: Any = None
    """What else the format's own parser needs."""
    notes: tuple[str, ...] = ()
    """What was recognised of the form, and by what."""
    zoned: bool | None = None
    """Whether the first time stamps carry their zone, or count from 1970 UTC; None: that is not told."""
    repeated: bytes = b""
    """The line of the header; one that is equal to it is no row."""


@dataclass(frozen=True)
class BadRow:
    """A row that could not be read; `line` counts from 1 at the chunk's first line."""

    line: int
    column: str
    text: str
    reason: str
    """The kind of defect, then a colon and its particulars."""


@dataclass(frozen=True, eq=False)
class Parsed:
    """The rows of a chunk in columns; n rows in the order of the file."""

    stations: tuple[str, ...]
    code: NDArray[np.int32]
    """Which of `stations`, shape (n,)."""
    time_ns: NDArray[np.int64]
    """Time stamp [ns since 1970 UTC], shape (n,)."""
    values: Mapping[str, NDArray[np.float64]]
    """Column to values [the column's unit], each of shape (n,); NaN: reported without a value."""
    bad: tuple[BadRow, ...]
    """Rows that are not among the n, by line."""
    lines: int
    """Lines of the chunk, blank ones included; rows where the format has no lines."""
    names: tuple[str, ...] = ()
    """Long rows: what the values are of; `values` then has them all under the name `VALUE`."""
    name_code: NDArray[np.int32] | None = None
    """Long rows: which of `names` a row's value is of, shape (n,)."""
    unmapped: tuple[str, ...] = ()
    """Long rows: names that nothing maps; their rows are not among the n."""
    arrival_ns: NDArray[np.int64] | None = None
    """When it arrived [ns since 1970 UTC], 0 where that is not told, shape (n,)."""
    counter: NDArray[np.int64] | None = None
    """The device's own count of its messages, -1 where there is none, shape (n,)."""
    flags: NDArray[np.uint8] | None = None
    """Flags of QARTOD that the rows came with, shape (n,)."""
    line: NDArray[np.int64] | None = None
    """Line, or record, that each row is of, from 1, where that is told, shape (n,)."""


class Parse(Protocol):
    """What parses a chunk."""

    def __call__(self, data: bytes, layout: Layout, *, last: bool) -> Parsed:
        """Parse whole lines; `last`: they end the file."""
        ...


def _never_matches(head: bytes, file: str) -> str | None:
    return None


@dataclass(frozen=True)
class Format:
    """One row of the table.

    `layout(head, file, options)` reads the first bytes of a file (at least 64 kB where it has them; `file` is its
    name); `parse(data, layout, last=…)` parses whole lines, `last` where they end the file. Both are pure; `layout`
    raises `Unreadable` for a file that has no such form.
    """

    name: str
    columns: tuple[str, ...] | None
    """Columns of numbers where the format fixes them; None where the header does."""
    layout: Callable[[bytes, str, ReadOptions], Layout]
    parse: Parse
    sniff: Callable[[bytes, str], str | None] = _never_matches
    """`sniff(head, file)`: why a file is of this format, told by its first bytes and its name; None where it is not."""


@dataclass(frozen=True)
class DocumentFormat:
    """One row of the table: a format that is no lines of text, and is read by pieces of its own from the file itself.

    `layout(path, options)` reads what the file tells; `cut(path, layout, chunk_bytes)` returns the bounds of pieces
    that are about so large [bytes] when parsed (numbers of rows, say, from the first to behind the last);
    `parse(path, layout, start, stop)` parses one. All raise `Unreadable` for what has no such form: the first two cost
    the file, the last one its piece.
    """

    name: str
    layout: Callable[[Path, ReadOptions], Layout]
    cut: Callable[[Path, Layout, int], list[int]]
    parse: Callable[[Path, Layout, int, int], Parsed]
    sniff: Callable[[bytes, str], str | None] = _never_matches
    columns: None = None
    link: Callable[[Sequence[Layout]], list[Layout]] | None = None
    """Where files of a feed tell of one another's columns: returns all layouts, each with what the others tell."""


FORMATS: Final = Registry[Format | DocumentFormat]("format")
"""Formats by name."""
GENERAL: Final = "csv"
"""The format that is asked last, for it takes any table of text."""


def recognise(head: bytes, file: str) -> tuple[str, str] | None:
    """Return the format of a file and why it is that, told by its first bytes and its name; None where none fits."""
    for name in sorted(FORMATS, key=lambda name: (name == GENERAL, name)):
        reason = FORMATS[name].sniff(head, file)
        if reason is not None:
            return name, reason
    return None
