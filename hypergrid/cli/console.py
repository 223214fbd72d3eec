"""Console output: progress and messages (stderr), tables and JSON (stdout)."""

import errno
import json
import math
import os
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, Final

from rich import box
from rich.console import Console
from rich.markup import escape
from rich.measure import Measurement
from rich.padding import Padding
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn
from rich.table import Table

STDERR = Console(stderr=True, highlight=False)
"""Console for messages to the user."""

OnProgress = Callable[[str, float], None]
"""Called with a stage's name and its fraction done."""


@contextmanager
def show_stages(*, quiet: bool = False) -> Iterator[OnProgress]:
    """Show a progress bar per stage; yields the callback that updates it."""
    bars = Progress(
        TextColumn("{task.description:<28}"), BarColumn(30), TextColumn("{task.percentage:>3.0f} %"),
        TimeElapsedColumn(), console=STDERR, disable=quiet,
    )  # fmt: skip
    tasks: dict[str, TaskID] = {}

    def update_bar(name: str, fraction: float) -> None:
        if name not in tasks:
            tasks[name] = bars.add_task(name, total=1.0)
        bars.update(tasks[name], completed=fraction)

    with bars:
        yield update_bar


_REMEDIES: Mapping[int, str] = {
    errno.EROFS: "nothing was written; mount it for writing, or work on a copy",
    errno.EACCES: "nothing was written; ask for the right to write there, or work on a copy",
    errno.ENOSPC: "make room, and give the command again",
    errno.EDQUOT: "make room, or ask for a larger quota, and give the command again",
}


_FULL: Final = (errno.ENOSPC, errno.EDQUOT)
_UNBOUNDED: Final = 100_000
"""Width that no table reaches [characters]."""
_LINES_A_ROW: Final = 3
"""Lines of a row, on average, above which a table is unreadable."""
_INVISIBLE: Final = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]")
"""Invisible control characters: terminal commands, and those that change the direction of text."""


def escape_invisible(text: str) -> str:
    r"""Escape characters that would control a terminal as in Python: `\x1b`, `\u202e`."""
    # Names of stations and unreadable rows are untrusted input.
    return _INVISIBLE.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def explain_error(error: BaseException) -> str:
    if isinstance(error, OSError) and error.errno is not None and error.errno in _REMEDIES:
        if error.filename:
            return f"{error.filename}: {(error.strerror or '').lower()}; {_REMEDIES[error.errno]}"
        if error.errno in _FULL:
            # Raised by Arrow without a file name: "Error writing bytes to file. Detail: [errno 28] …".
            return f"{os.strerror(error.errno).lower()}; {_REMEDIES[error.errno]}"
    return str(error)


def show_message(text: str) -> None:
    STDERR.print(escape_invisible(text), markup=False, soft_wrap=True)


def show_error(text: str) -> None:
    STDERR.print(escape_invisible(f"hypergrid: {text}"), style="red", markup=False, soft_wrap=True)


def show_table(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Print a table on stdout, up to the width of the terminal; where it is too narrow, a paragraph for each row.

    Columns whose first cell is a number are right-aligned.
    """
    listed = [list(row) for row in rows]
    # An unescaped line break in a cell would look like another row.
    texts = [[escape(escape_invisible(_format_cell(cell)).replace("\n", "\\n")) for cell in row] for row in listed]
    heading = escape(escape_invisible(title))
    # Units in brackets would be read as styles.
    names = [escape(name) for name in columns]
    table = Table(title=heading, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD, show_edge=False)
    for number, name in enumerate(names):
        right = bool(listed) and isinstance(listed[0][number], int | float)
        # Where space is short, only columns of several words give way.
        is_text = any(" " in text[number] for text in texts)
        table.add_column(name, justify="right" if right else "left", overflow="fold", no_wrap=not is_text)
    for text in texts:
        table.add_row(*text)
    console = Console(highlight=False)
    # Measured without a limit: a table is never measured wider than its console.
    needed = Measurement.get(console, console.options.update_width(_UNBOUNDED), table)
    if needed.minimum <= console.width and len(console.render_lines(table)) <= _LINES_A_ROW * (len(texts) + 1):
        console.print(table)
        return
    console.print(f"[bold]{heading}[/bold]")
    for text in texts:
        console.print(f"[bold]{text[0]}[/bold]", overflow="fold")
        for name, cell in zip(names[1:], text[1:], strict=True):
            if cell:
                console.print(Padding(f"{name}: {cell}", (0, 0, 0, 2), expand=False), overflow="fold")


class Footnotes:
    """Deduplicated texts that are too long for a table, numbered in order of appearance."""

    def __init__(self) -> None:
        self._numbers: dict[str, int] = {}

    def number(self, texts: Iterable[str]) -> str:
        return ", ".join(str(self._numbers.setdefault(text, len(self._numbers) + 1)) for text in texts)

    def show(self) -> None:
        for text, number in self._numbers.items():
            show_line(f"{number}: {text}")


def show_line(text: str) -> None:
    Console(highlight=False).print(escape_invisible(text), markup=False, soft_wrap=True)


def show_rows(title: str, columns: Sequence[str], rows: Iterable[Sequence[object]], *, as_json: bool) -> None:
    """Print rows on stdout: as a table, or as JSON objects."""
    if as_json:
        show_json([dict(zip(columns, row, strict=True)) for row in rows])
    else:
        show_table(title, columns, rows)


def _format_cell(cell: object) -> str:
    if isinstance(cell, bool) or cell is None:
        return {True: "yes", False: "no"}.get(cell, "") if cell is not None else ""
    if isinstance(cell, int):
        return f"{cell:,}"
    if isinstance(cell, float):
        return "" if math.isnan(cell) else f"{cell:.6g}"
    return str(cell)


def show_json(value: Mapping[str, Any] | Sequence[Any]) -> None:
    """Print JSON on stdout; NaN and infinity, which JSON lacks, become null."""
    print(json.dumps(_replace_nonfinite(value), indent=1, default=str, allow_nan=False))


def _replace_nonfinite(value: Any) -> Any:  # noqa: ANN401 - any JSON value
    if isinstance(value, Mapping):
        return {key: _replace_nonfinite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_replace_nonfinite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
