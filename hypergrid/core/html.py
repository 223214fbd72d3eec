"""HTML of what a notebook shows: escaped text and tables."""

from __future__ import annotations

import html
from typing import Final

from hypergrid.core.lazy_libraries import pd

MAX_ROWS: Final = 60
"""Maximum number of rows of a table; the middle of longer ones is left out."""


def escape(text: object) -> str:
    return html.escape(str(text))


def format_table(table: pd.DataFrame, *, index: bool = False) -> str:
    """Return a table as HTML, with its text escaped and missing values as dashes."""
    with pd.option_context("display.max_colwidth", None, "display.precision", 4):
        return str(table.to_html(index=index, border=0, max_rows=MAX_ROWS, na_rep="–", justify="left"))


def join_parts(*parts: str) -> str:
    """Return pieces of HTML as one block."""
    return f'<div class="hypergrid">{"".join(part for part in parts if part)}</div>'


def format_line(title: object, *details: object) -> str:
    """Return a title in bold with details behind it."""
    return f"<p><b>{escape(title)}</b>{''.join(f', {escape(detail)}' for detail in details)}</p>"
