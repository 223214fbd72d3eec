"""Registry of formats, and the records that every parser takes and returns."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Final, Protocol

import numpy as np
from numpy.typing import NDArray

from hypergrid.core.registry import Registry
from ingest.formats.file_metadata import NO_METADATA, FileMetadata

VALUE: Final = ""
"""Name of the single column of long rows."""
# The whole row is in the raw copy of its file.
TEXT_MOST: Final = 200
"""Maximum number of characters that are kept of a rejected row."""


class Unreadable(ValueError):
    """An unreadable file; it becomes one reject of line 0."""


BLANKS: Final = "blanks"
"""Delimiter value for any number of blanks and tabs."""


MISSING_WORDS: Final = frozenset(
    "n.a. na n/a #n/a nan null none nil - -- --- ---- missing nodata nd n.d. k.a. s/d s.d. \\n".split()
)
"""Texts in lower case that people and programs write for a missing value."""
# Beyond this, unit conversions or sums would be infinite.
LARGEST: Final = 1e300
"""Largest number accepted as a measurement."""
TOO_LARGE: Final = f"bad number: beyond {LARGEST:g}, above which no sum is finite"


@dataclass(frozen=True)
class TextForm:
    """Form of delimited text. What is None or empty is inferred from the file's beginning."""

    token_name: ClassVar[str] = "TextForm"

    delimiter: str | None = None
    """Cell delimiter: one character, or `BLANKS`."""
    decimal: str | None = None
    """"." or ","."""
    encoding: str | None = None
    comment: str | None = None
    """Prefix of lines that are not rows; empty: none."""
    skip_lines: int = 0
    """Number of lines above the header."""
    header_lines: int | None = None
    """Number of lines of the header, without comments; 0: no header."""
    name_lines: tuple[int, ...] = (1,)
    """Header lines with the column names, from 1; the texts of several are joined by a blank."""
    unit_line: int = 0
    """Header line with the units, from 1; 0: none."""
    names: tuple[str, ...] = ()
    """Names of the columns, instead of those in the header."""
    time_columns: tuple[str, ...] = ()
    """Columns whose texts, joined by blanks, are the time stamp."""
    time_format: str | None = None
    """Time format: "iso", "epoch_s", "epoch_ms", "epoch_us", "epoch_ns", or a strptime pattern."""
    station: str = ""
    """Station of all rows, if there is no column for it."""
    variable_column: str = ""
    """Long tables (one value per row): column with the variable."""
    value_column: str = ""
    """Long tables: column with the value."""
    unit_column: str = ""
    """Long tables: column with the unit."""
    flag_column: str = ""
    """Column with a flag for the values of a row."""
    flags: tuple[tuple[str, int], ...] = ()
    """QARTOD flags by text in the flag column."""
    targets: tuple[tuple[str, str], ...] = ()
    """Long tables with units: target unit by column name."""
    # Omitted from tokens if empty, so that feeds without it keep theirs.
    across: str = field(default="", metadata={"omit_default": True})
    """Tables with a column per station: the name of their only column in the deployment."""
    arrival_column: str = field(default="", metadata={"omit_default": True})
    """Column with the instant at which a row arrived; empty: that is unknown."""
    arrival_format: str | None = field(default=None, metadata={"omit_default": True})
    """Format of the arrivals, as `time_format`."""

    @property
    def long(self) -> bool:
        return bool(self.variable_column)


@dataclass(frozen=True)
class ReadOptions:
    """Options for reading a feed's files; all that a parser gets of the deployment."""

    token_name: ClassVar[str] = "ReadOptions"

    columns: tuple[str, ...] | None = None
    """Columns to read; None reads every numeric column."""
    timezone: str = "UTC"
    """Zone of times without one: an IANA name, or an offset such as "+02:00"."""
    nodata: tuple[str, ...] = ("NaN",)
    """Texts for a missing value."""
    station_column: str = "station"
    time_column: str = "time"
    station_pattern: str = ""
    """Regular expression with a group for the station in a device or file name; empty: the whole name."""
    given: tuple[str, ...] = ()
    """Keys set in the deployment for the feed; file metadata does not override them."""
    text: TextForm = TextForm()

    def divide_columns(self, names: Sequence[str]) -> tuple[tuple[str, ...], tuple[str, ...]]:
        """Return the columns to read and those to ignore, in order."""
        wanted = tuple(name for name in names if self.columns is None or name in self.columns)
        return wanted, tuple(name for name in names if name not in wanted)


@dataclass(frozen=True)
class Layout:
    """Structure of a file, from its beginning, with which its chunks can be parsed separately."""

    header: tuple[str, ...]
    """Names of all columns, in file order."""
    columns: tuple[str, ...]
    """Numeric columns to read."""
    ignored: tuple[str, ...]
    """Columns without a mapping."""
    options: ReadOptions
    station: str
    """Station of rows without a station column: the file's name."""
    data_start: int
    """Offset of the first row [bytes from the file's start]."""
    lines_before: int
    """Number of lines above the first row."""
    metadata: FileMetadata = NO_METADATA
    long: bool = False
    """Whether each row is one reading; `columns` then has only columns known beforehand."""
    detail: Any = None
    """Further data for the format's own parser."""
    notes: tuple[str, ...] = ()
    """Inferred properties, with the reasons."""
    zoned: bool | None = None
    """Whether the first time stamps have a zone or count from 1970 UTC; None: unknown."""
    repeated: bytes = b""
    """Header line; lines equal to it are not rows."""


@dataclass(frozen=True)
class BadRow:
    """A rejected row, or a rejected cell of a row; `line` counts from 1 at the chunk's first line."""

    line: int
    column: str
    text: str
    reason: str
    """Kind of defect, a colon, and the details."""
    rows: int = 1
    """Number of rows that are lost; 0: only this cell of a row whose other cells are read."""


@dataclass(frozen=True, eq=False)
class Parsed:
    """Parsed rows of a chunk in columns; n rows in the order of the file."""

    stations: tuple[str, ...]
    code: NDArray[np.int32]
    """Index into `stations`, shape (n,)."""
    time_ns: NDArray[np.int64]
    """Time stamp [ns since 1970 UTC], shape (n,)."""
    values: Mapping[str, NDArray[np.float64]]
    """Values by column [the column's unit], each of shape (n,); NaN: reported without a value."""
    bad: tuple[BadRow, ...] = ()
    """Rejected rows, not among the n, and rejected cells of the n, by line."""
    lines: int = 0
    """Number of lines of the chunk, including blank ones; rows if the format has no lines."""
    names: tuple[str, ...] = ()
    """Long rows: variables of the values, all of which are in `values` under the name `VALUE`."""
    name_code: NDArray[np.int32] | None = None
    """Long rows: index into `names`, shape (n,)."""
    unmapped: tuple[str, ...] = ()
    """Long rows: names without a mapping; their rows are not among the n."""
    arrival_ns: NDArray[np.int64] | None = None
    """Arrival time [ns since 1970 UTC], 0 if unknown, shape (n,)."""
    counter: NDArray[np.int64] | None = None
    """The device's message counter, -1 if there is none, shape (n,)."""
    flags: NDArray[np.uint8] | None = None
    """QARTOD flags from the source, shape (n,)."""
    line: NDArray[np.int64] | None = None
    """Line or record number of each row, from 1, if known, shape (n,)."""
    refused: Mapping[str, NDArray[np.bool_]] = field(default_factory=dict)
    """Which cells were rejected, by column, shape (n,) each; columns without any are omitted."""


class Parse(Protocol):
    """Parser of a chunk."""

    def __call__(self, data: bytes, layout: Layout, *, last: bool) -> Parsed:
        """Parse whole lines; `last`: they end the file."""


@dataclass(frozen=True)
class Format:
    """Format of text lines: one entry of the registry.

    `layout(head, file, options)` reads the first bytes of a file (at least 64 kB if it has them; `file` is its name);
    `parse(data, layout, last=…)` parses whole lines, `last` if they end the file. Both are pure; `layout` raises
    `Unreadable` for a file of another format.
    """

    name: str
    columns: tuple[str, ...] | None
    """Numeric columns if the format defines them; None if the header does."""
    layout: Callable[[bytes, str, ReadOptions], Layout]
    parse: Parse
    sniff: Callable[[bytes, str], str | None] = lambda head, file: None
    """`sniff(head, file)`: reason to use this format, from a file's first bytes and name, or None."""
    link: None = None


@dataclass(frozen=True)
class DocumentFormat:
    """Format other than text lines, read from the file in pieces: one entry of the registry.

    `layout(path, options)` reads the file's structure; `cut(path, layout, chunk_bytes)` returns the bounds of pieces of
    about this size [bytes] when parsed (in row numbers, for example, the last one exclusive); `parse(path, layout,
    start, stop)` parses one. All raise `Unreadable` for invalid content: in the first two it costs the file, in the
    last one the piece.
    """

    name: str
    layout: Callable[[Path, ReadOptions], Layout]
    cut: Callable[[Path, Layout, int], list[int]]
    parse: Callable[[Path, Layout, int, int], Parsed]
    sniff: Callable[[bytes, str], str | None] = lambda head, file: None
    columns: None = None
    link: Callable[[Sequence[Layout]], list[Layout]] | None = None
    """Set if files of a feed describe one another's columns: merges their metadata into all layouts."""


FORMATS: Final = Registry[Format | DocumentFormat]("format")
# It accepts any table of text.
GENERAL: Final = "csv"
"""Format that is tried last."""


def recognise(head: bytes, file: str) -> tuple[str, str] | None:
    """Return a file's format and the reason, from its first bytes and name, or None."""
    for name in sorted(FORMATS, key=lambda name: (name == GENERAL, name)):
        reason = FORMATS[name].sniff(head, file)
        if reason is not None:
            return name, reason
    return None
